"""Small files below ``.fleet`` that hooks write: the log, marks of when a hook fired, and what each session was told.

Standard library only, and little of it: this is imported on every tool call of every host. None of it is a lesson: what
cannot be written is left out, and nobody waits for the disk. No link is followed, since a hostile repository may hold a
``.fleet`` of its own.
"""

import errno
import json
import os
import stat
import time
from binascii import crc32

FOLDER = ".fleet"
LOG_BYTES_MAX = 256 * 1024
TWICE = "twice"
"""The mark of a session start that two installations of the hooks reported at once."""

DAYS_KEPT = 7
"""A session that nothing was noted of for so long is forgotten."""

_TOLD = "told"
_HEARD = "heard"
_PATH_BYTES_MAX = 8 * 1024
_TOLD_BYTES_MAX = 64 * 1024
_MARK_BYTES_MAX = 200
_WORD_CHARS_MAX = 80
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


# --- files --------------------------------------------------------------------------------------------------------


def _append(root: str, *names: str, data: bytes, bytes_max: int) -> bool:
    """Add to a file in one write; tell whether it was. A file of ``bytes_max`` or more takes nothing."""
    try:
        handle = _opened(root, names, os.O_APPEND)
    except OSError:
        return False
    try:
        return os.fstat(handle).st_size < bytes_max and os.write(handle, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(handle)


def _opened(root: str, names: tuple[str, ...], how: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    path = LocalFolder(root).path_of(*names)
    _check_folders(root, names[:-1])
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.join(root, FOLDER), 0o700, exist_ok=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o600)


def _check_folders(root: str, names: tuple[str, ...]) -> None:
    path = root
    for name in (FOLDER, *names):
        path = os.path.join(path, name)
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link or a file where a folder belongs", path)


def now_ms() -> int:
    """Return the wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


# --- marks: when something happened last --------------------------------------------------------------------------


# --- what one session has been told, so that nothing is said twice ------------------------------------------------
#
# ``.fleet/told/<session>``: a line is a time, something random, and a few words. A lost line costs a repetition.


class Told:
    """What one session has been told, and which of its calls were answered."""

    def __init__(self, root: str, session: str) -> None:
        self._root, self._name = root, _file_of(session)

    def words(self) -> list[str]:
        """Return what was noted, oldest first."""
        return [what for _, what, _ in _told(self._root, self._name)]

    def note(self, word: str) -> None:
        """Add what the session was told. A full file, or a disk that cannot be written, takes no more."""
        self._note(now_ms(), word)

    def claim(self, word: str) -> bool:
        """Note a word that counts once; return True for the first call. A host may call twice at the same time."""
        mine = self._note(now_ms(), word)
        # What is appended is read back in the order of all writers, so that two calls agree on who was first.
        return next((line for _, what, line in _told(self._root, self._name) if what == word), mine) == mine

    def is_first(self, word: str, at_ms: int, within_ms: int) -> bool:
        """Note that something happened; return True where it was the first time for so long.

        ``within_ms``: what comes closer behind a first one is the same.
        """
        mine = self._note(at_ms, word)
        first_ms = -within_ms
        for said_ms, what, line in _told(self._root, self._name):
            if what != word:
                continue
            is_new = abs(said_ms - first_ms) >= within_ms
            if is_new:
                first_ms = said_ms
            if line == mine:
                return is_new
        return True  # it could not be noted: twice is better than never

    def _note(self, at_ms: int, word: str) -> str:
        line = f"{at_ms} {os.urandom(4).hex()} {word}".encode("ascii", "replace").decode()
        _append(self._root, _TOLD, self._name, data=f"{line}\n".encode(), bytes_max=_TOLD_BYTES_MAX)
        return line


def _told(root: str, name: str) -> list[tuple[int, str, str]]:
    """Return time, words and the whole of each line of a session's file; what is no such line is left out."""
    found = []
    for line in (
        LocalFolder(root).read(_TOLD, name, bytes_max=2 * _TOLD_BYTES_MAX).decode("ascii", "replace").splitlines()
    ):
        at, _, rest = line.partition(" ")
        if at.isdigit():
            found.append((int(at), rest.partition(" ")[2], line))
    return found


def _file_of(session: str) -> str:
    """Return the name of a session's file. The id came from outside: what is no plain word is hashed."""
    if session and len(session) <= _WORD_CHARS_MAX and _PLAIN.issuperset(session):
        return session
    import hashlib

    return "h-" + hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# --- the sessions that were heard of --------------------------------------------------------------------------------
#
# ``.fleet/heard/<session>``: one line, ``<host> <agent> <open|ended> <milliseconds> <path of the transcript>``.


class _Heard:
    """A session that a hook heard of.

    Attributes:
        session: its file's name, which is the host's id where that is a plain word.
        at_ms: when it was heard of last, milliseconds since 1970.
    """

    __slots__ = ("agent", "at_ms", "has_ended", "host", "path", "session")

    def __init__(self, session: str, host: str, agent: str, at_ms: int, path: str, *, has_ended: bool) -> None:
        self.session, self.host, self.agent, self.has_ended = session, host, agent, has_ended
        self.at_ms, self.path = at_ms, path


_REFLOG = "reflog"
_REFLOG_READ_MAX = 256 * 1024
_LINK_BYTES_MAX = 4096
_SLACK_S = 5
_LOOK_AGAIN_S = 12 * 3600
"""What lies further back than the last look by so much was nobody's session."""


class LocalFolder:
    """A workspace's .fleet, as hooks read and write it."""

    def __init__(self, root: str) -> None:
        self._root = root

    def path_of(self, *names: str) -> str:
        """Return the path of a file below ``.fleet``."""
        return os.path.join(self._root, FOLDER, *names)

    def read(self, *names: str, bytes_max: int) -> bytes:
        """Return the beginning of a file, b"" when it is not there or cannot be read."""
        try:
            handle = os.open(self.path_of(*names), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(handle, bytes_max)
        except OSError:
            return b""
        finally:
            os.close(handle)

    def add_line(self, name: str, told: dict[str, str]) -> None:
        """Add a JSON line to a log. A full one becomes ``<name>.1``, and the one before that is gone."""
        # Escaped: whatever it says, it stays one line, and no terminal stumbles.
        line = json.dumps(told).encode() + b"\n"
        if _append(self._root, name, data=line, bytes_max=LOG_BYTES_MAX):
            return
        try:
            if os.lstat(self.path_of(name)).st_size >= LOG_BYTES_MAX:  # else somebody else has just moved it
                os.rename(self.path_of(name), self.path_of(f"{name}.1"))
        except OSError:
            return
        _append(self._root, name, data=line, bytes_max=LOG_BYTES_MAX)

    def mark(self, *names: str, word: str) -> bool:
        """Write a mark anew: a word, and the time; tell whether it could be written."""
        try:
            handle = _opened(self._root, names, os.O_TRUNC)
        except OSError:
            return False
        try:
            return os.write(handle, f"{word} {now_ms()}\n".encode()) > 0
        except OSError:
            return False
        finally:
            os.close(handle)

    def marked_ms(self, *names: str) -> int:
        """Return when a mark was written last, milliseconds since 1970; 0 where it is not there."""
        at = self.read(*names, bytes_max=_MARK_BYTES_MAX).split(b" ")[-1].strip()
        return int(at) if at.isdigit() else 0

    def fired(self) -> dict[str, int]:
        """Return when each event's hook fired last, milliseconds since 1970."""
        return {name: at for name in _names(self.path_of("fired")) if (at := self.marked_ms("fired", name))}

    def prune(self) -> None:
        """Forget the sessions that nobody has heard of for a week."""
        if os.path.islink(self.path_of(_TOLD)):
            return
        for name in _names(self.path_of(_TOLD)):
            newest_ms = max((at_ms for at_ms, _, _ in _told(self._root, name)), default=0)
            if now_ms() - newest_ms > DAYS_KEPT * 86_400_000:
                os.unlink(self.path_of(_TOLD, name))

    def hear(self, session: str, host: str, agent: str, path: str, *, has_ended: bool) -> None:
        """Note that a session goes on, or has ended, and where its transcript is."""
        if not path or "\n" in path or not session:
            return
        word = f"{host or '-'} {agent or '-'} {'ended' if has_ended else 'open'} {now_ms()} {path}\n"
        try:
            handle = _opened(self._root, (_HEARD, _file_of(session)), os.O_TRUNC)
        except OSError:
            return
        try:
            os.write(handle, word.encode("utf-8", "surrogateescape"))
        except OSError:
            return
        finally:
            os.close(handle)

    def heard(self) -> list[_Heard]:
        """Return the sessions that were heard of and not forgotten, by name."""
        if os.path.islink(self.path_of(_HEARD)):
            return []
        found = []
        for name in _names(self.path_of(_HEARD)):
            words = self.read(_HEARD, name, bytes_max=_PATH_BYTES_MAX).decode("utf-8", "surrogateescape").split(" ", 4)
            if len(words) == 5 and words[3].isdigit() and words[4].endswith("\n"):
                host, agent, state, at_ms, path = words
                found.append(_Heard(name, host, agent, int(at_ms), path[:-1], has_ended=state == "ended"))
        return found

    def due(self, idle_ms: float) -> list[_Heard]:
        """Return the sessions that have ended: their host said so, or they have been quiet for so long."""
        now = now_ms()
        return [each for each in self.heard() if each.has_ended or now - each.at_ms >= idle_ms]

    def forget_heard(self, session: str) -> None:
        """Forget a session: it was reflected on, or its transcript is gone."""
        if not os.path.islink(self.path_of(_HEARD)):
            try:
                os.unlink(self.path_of(_HEARD, _file_of(session)))
            except OSError:
                return

    def is_read_only(self) -> bool:
        """Tell whether nobody may write here: an ephemeral folder, and no lease."""
        register = self.read("replica.toml", bytes_max=1024 * 1024)
        return b"\nephemeral = true" in register and not os.environ.get("FLEET_REPLICA")

    def has_commits(self, cwd: str) -> bool:
        """Tell whether the reflog is longer than when somebody looked last. Two looks at files, and nothing read."""
        path = _reflog_of(cwd)
        size = _reflog_size(path)
        return size >= 0 and size != _reflog_read(self._root, path)[0]

    def pass_over_commits(self, cwd: str) -> None:
        """Note the reflog as read: what is in it by now was before this session."""
        path = _reflog_of(cwd)
        if (size := _reflog_size(path)) >= 0:
            self.mark(_REFLOG, _reflog_name(path), word=str(size))

    def new_commits(self, cwd: str) -> list[tuple[str, str]]:
        """Return what the reflog grew by, as (what was done, the subject), oldest first, and note it as read.

        Nothing where nobody looked before: those commits are older than any session that fleet knows of.
        """
        path = _reflog_of(cwd)
        size, (known, at_ms) = _reflog_size(path), _reflog_read(self._root, path)
        if size < 0 or size == known:
            return []
        data = b""
        if 0 <= known < size:
            try:
                with open(path, "rb") as file:
                    file.seek(max(known, size - _REFLOG_READ_MAX))
                    data = file.read(_REFLOG_READ_MAX)
            except OSError:
                return []
        self.mark(_REFLOG, _reflog_name(path), word=str(size))
        since = max(at_ms / 1000 - _SLACK_S, time.time() - _LOOK_AGAIN_S)
        return [found for line in data.decode("utf-8", "replace").splitlines() if (found := _commit_in(line, since))]


def _reflog_of(cwd: str) -> str:
    """Return the path of the reflog of HEAD in the checkout that a folder is in, a worktree's own; "" for none."""
    top = cwd
    while top:
        mark = os.path.join(top, ".git")
        try:
            with open(mark, "rb") as file:
                told = os.fsdecode(file.read(_LINK_BYTES_MAX)).strip()
        except IsADirectoryError:
            return os.path.join(mark, "logs", "HEAD")
        except OSError:
            above = os.path.dirname(top)
            top = above if above != top else ""
            continue
        own = os.path.join(top, told.removeprefix("gitdir: ")) if told.startswith("gitdir: ") else ""
        return os.path.join(own, "logs", "HEAD") if own else ""
    return ""


def _reflog_size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else -1
    except OSError:
        return -1


def _commit_in(line: str, since_s: float) -> tuple[str, str] | None:
    """Return what a line of a reflog tells: ``old new Name <mail> seconds zone<TAB>what: subject``."""
    head, tab, said = line.partition("\t")
    at = head.rsplit(" ", 2)[-2:-1]
    if not tab or not at or not at[0].isdigit() or int(at[0]) < since_s:
        return None
    what, _, subject = said.partition(": ")
    return (what.strip(), subject.strip()) if subject.strip() else None


def _reflog_name(path: str) -> str:
    return f"{crc32(os.path.realpath(path).encode('utf-8', 'surrogateescape')):08x}"


def _reflog_read(root: str, path: str) -> tuple[int, int]:
    """Return the size that was read last, -1 for never, and when."""
    if not path:
        return -1, 0
    size, _, at = (
        LocalFolder(root).read(_REFLOG, _reflog_name(path), bytes_max=200).decode("ascii", "replace").partition(" ")
    )
    return (int(size), int(at)) if size.isdigit() and at.strip().isdigit() else (-1, 0)
