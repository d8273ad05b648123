"""One call of a hook with its limits of time, and the small files below ``.fleet`` that it reads and writes.

The files are the log, marks of when a hook fired, and notes of each session. None of them is a lesson, so a write that
fails is left out, and there is no fsync. No link is followed, since a hostile repository may bring a ``.fleet`` of its
own. Each tool call of each host imports this module, so it imports only little of the standard library and two modules
of ``store``.
"""

import json
import os
import signal
import stat
import time
from binascii import crc32
from contextlib import contextmanager

from fleet.store import homes
from fleet.store.changes import Changes

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, without the milliseconds of its import
    from collections.abc import Iterable, Iterator
    from types import FrameType

AT_THE_END = "session-end-work"
"""The internal event under which the work of a session's end runs, once the host has gone."""

AT_THE_START = "session-start-work"
"""The internal event under which the next session's start is made ready, where that takes too long to wait for."""

GUEST = "guest"
"""The agent where none is named, as in ``fleet.model.names``."""

FOLDER = ".fleet"
LOG_BYTES_MAX = 256 * 1024
DAYS_KEPT = 7
"""Days after its last note for which a session's notes are kept."""

_NOTES = "told"
_HEARD = "heard"
_PATH_BYTES_MAX = 8 * 1024
_NOTES_BYTES_MAX = 64 * 1024
_EVER_MS = 2**63
_MARK_BYTES_MAX = 200
_WORD_CHARS_MAX = 80
_WHAT_CHARS_MAX = 600
_CONFIG_BYTES_MAX = 1024 * 1024
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_IDLE_MS = 30 * 60_000  # as ``[reflect] idle_min`` where it is not set: a hook that has nothing to do parses no TOML
_REFLOG = "reflog"
_REFLOG_READ_MAX = 256 * 1024
_LINK_BYTES_MAX = 4096


# --- the files below .fleet ------------------------------------------------------------------------------------------


def now_ms() -> int:
    """Return the wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class _Heard:
    """A session for which a hook was called. ``session``: name of its file, which is the host's id or a hash of it."""

    def __init__(self, session: str, host: str, agent: str, at_ms: int, path: str, *, has_ended: bool) -> None:
        self.session, self.host, self.agent, self.has_ended = session, host, agent, has_ended
        self.at_ms, self.path = at_ms, path


class LocalFolder:
    """A workspace's .fleet, as hooks read and write it."""

    def __init__(self, root: str) -> None:
        self._root = root

    def path_of(self, *names: str) -> str:
        """Return the path of a file below ``.fleet``."""
        return os.path.join(self._root, FOLDER, *names)

    def read(self, *names: str, bytes_max: int) -> bytes:
        """Return the beginning of a file, b"" when it is not there or cannot be read."""
        return homes.read(self.path_of(*names), bytes_max)

    def write(self, names: tuple[str, ...], data: bytes, how: int, bytes_max: int | None = None) -> bool:
        """Write to a file at once; return whether that was done. A file of ``bytes_max`` takes no more.

        ``how``: ``O_APPEND`` or ``O_TRUNC``; 0 for a line in place of another one of its length.
        """
        try:
            self._make_folders(names[:-1])
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | how
            handle = os.open(self.path_of(*names), flags, 0o600)
        except OSError:
            return False
        try:
            has_room = bytes_max is None or os.fstat(handle).st_size < bytes_max
            return has_room and os.write(handle, data) == len(data)
        except OSError:
            return False
        finally:
            os.close(handle)

    def _make_folders(self, names: tuple[str, ...]) -> None:
        """Make the folders down to a file, but never the workspace: somebody may have deleted it."""
        for depth in range(len(names) + 1):
            path = self.path_of(*names[:depth])
            try:
                os.mkdir(path, 0o777 if depth else 0o700)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise NotADirectoryError("a link or a file where a folder belongs") from None

    def names(self, folder: str) -> list[str]:
        """Return the files of a folder, none where it is not there, or a link."""
        try:
            return [] if os.path.islink(self.path_of(folder)) else sorted(os.listdir(self.path_of(folder)))
        except OSError:
            return []

    def log(self, name: str, event: str, what: str, **who: str) -> None:
        """Add a JSON line to a log. A full log is renamed to ``<name>.1``, over the one before."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"at": at, "event": event[:_WORD_CHARS_MAX], **who, "what": what[:_WHAT_CHARS_MAX]}
        # ASCII, with all else escaped: one line, and safe on a terminal.
        line = json.dumps(entry).encode() + b"\n"
        if self.write((name,), line, os.O_APPEND, LOG_BYTES_MAX):
            return
        try:
            if os.lstat(self.path_of(name)).st_size >= LOG_BYTES_MAX:  # else somebody else has just moved it
                os.rename(self.path_of(name), self.path_of(f"{name}.1"))
        except OSError:
            return
        self.write((name,), line, os.O_APPEND, LOG_BYTES_MAX)

    def mark(self, *names: str, word: str) -> bool:
        """Replace a mark, a word and the time; return whether it could be written."""
        return self.write(names, f"{word} {now_ms()}\n".encode(), os.O_TRUNC)

    def marked_ms(self, *names: str) -> int:
        """Return the time of a mark, milliseconds since 1970; 0 where there is none."""
        stamp = self.read(*names, bytes_max=_MARK_BYTES_MAX).split(b" ")[-1].strip()
        return int(stamp) if stamp.isdigit() else 0

    def fired(self) -> dict[str, int]:
        """Return when each event's hook fired last, milliseconds since 1970."""
        return {name: at_ms for name in self.names("fired") if (at_ms := self.marked_ms("fired", name))}

    def bind(self) -> str:
        """Return the mark of this very folder, to which cached files are bound; it is made if it is missing."""
        if not Changes(self._root).mark():
            self.write(("ready", "here"), b"", os.O_APPEND)
        return Changes(self._root).mark()

    def default_agent(self) -> str:
        """Return the default agent that the register of writers names; "" for none."""
        # The line is found without a TOML parser: `fleet.store.replica` writes it in this one form.
        register = self.read("replica.toml", bytes_max=_CONFIG_BYTES_MAX).decode("utf-8", "replace")
        pairs = (line.partition("=") for line in register.splitlines())
        return next((value.strip().strip("\"'") for key, _, value in pairs if key.strip() == "default_agent"), "")

    def name(self, *agents: str) -> None:
        """Note that agents were named in this very folder."""
        here, known = self.bind(), Changes(self._root).named()
        if not {*agents} <= {*known}:
            line = " ".join(dict.fromkeys([here, *known, *agents]))
            self.write(("ready", "named"), f"{line}\n".encode(), os.O_TRUNC)

    def prune(self) -> None:
        """Delete the notes of sessions that are over a week old."""
        for name in self.names(_NOTES):
            newest_ms = max((at_ms for at_ms, _, _ in _noted(self, name)), default=0)
            if now_ms() - newest_ms > DAYS_KEPT * 86_400_000:
                os.unlink(self.path_of(_NOTES, name))

    # The sessions that hooks were called for: ``.fleet/heard/<session>`` has one line,
    # ``<host> <agent> <open|ended> <milliseconds> <mark of the folder> <path of the transcript>``. A line without the
    # mark came with a repository or a copy: what it names is not read.

    def hear(self, session: str, host: str, agent: str, path: str, *, has_ended: bool) -> None:
        """Note that a session goes on, or has ended, and where its transcript is."""
        if path and "\n" not in path and session:
            state, mark = "ended" if has_ended else "open", self.bind()
            line = f"{host or '-'} {agent or '-'} {state} {now_ms()} {mark} {path}\n"
            self.write((_HEARD, _file_of(session)), line.encode("utf-8", "surrogateescape"), os.O_TRUNC)

    def heard(self) -> list[_Heard]:
        """Return the sessions that hooks were called for and that are not forgotten, by name."""
        sessions, here = [], Changes(self._root).mark()
        for name in self.names(_HEARD):
            words = self.read(_HEARD, name, bytes_max=_PATH_BYTES_MAX).decode("utf-8", "surrogateescape").split(" ", 5)
            if len(words) == 6 and words[3].isdigit() and words[4] == here != "" and words[5].endswith("\n"):
                host, agent, state, at_ms, _, path = words
                line = path.partition("\n")[0]  # behind it stands the rest of a longer one that was written at once
                sessions.append(_Heard(name, host, agent, int(at_ms), line, has_ended=state == "ended"))
        return sessions

    def due(self, idle_ms: float) -> list[_Heard]:
        """Return the sessions that have ended: their host said so, or they have been quiet for so long."""
        now = now_ms()
        return [each for each in self.heard() if each.has_ended or now - each.at_ms >= idle_ms]

    def flagged_meanwhile(self, idle_ms: float, but: str) -> set[str]:
        """Return the ids of the signals of sessions that go on, except of the session ``but``."""
        running = self.running(idle_ms, but)
        return {id_ for session in running for id_ in SessionNotes(self._root, session).of("flag")}

    def running(self, idle_ms: float, but: str) -> list[str]:
        """Return the sessions that go on, except the session ``but``."""
        ended = {_file_of(but), *(each.session for each in self.due(idle_ms))}
        return [each.session for each in self.heard() if each.session not in ended]

    def forget_heard(self, session: str, before: "Iterable[_Heard]") -> None:
        """Forget a session: it was reflected on, or its transcript is gone.

        ``before``: the heard sessions when the reflection began. A session that was heard since then is kept.
        """
        name, known = _file_of(session), [(each.session, each.at_ms) for each in before]
        if any(each.session == name and (name, each.at_ms) in known for each in self.heard()):
            try:
                os.unlink(self.path_of(_HEARD, name))
            except OSError:
                return


class SessionNotes:
    """Notes of one session: what it was shown, so that nothing is shown twice, and which of its calls were answered.

    ``.fleet/told/<session>``: a line is a time, a random word, and the note. A lost line costs a repetition. Notes:
    ``since``: what the agent had seen at the start; ``came``: a fetch brought so much then; ``news``: that was shown;
    ``seen``, ``lesson``: ids shown in a list, or for a prompt or step; the kind ends with the number of compactions
    before, if any; ``cleared``: a session whose news are new to this one, too; ``flag``: a logged signal; ``heard``:
    the objection of one; ``red``: the entry of a failed build; ``stop``, ``green``: entries asked about; ``use``,
    ``used``: a lesson's command; ``call``, ``start``: answered. ``.fleet/told/<session>.read`` has one line, the offset
    up to which the transcript is read: a line for each turn would leave the others no room.
    """

    def __init__(self, root: str, session: str) -> None:
        self._folder, self._name = LocalFolder(root), _file_of(session)

    def all(self) -> list[str]:
        """Return the notes, oldest first."""
        return [note for _, note, _ in _noted(self._folder, self._name)]

    def of(self, kind: str) -> list[str]:
        """Return what follows the kind in the notes that begin with it, oldest first."""
        return [note.removeprefix(f"{kind} ") for note in self.all() if note.startswith(f"{kind} ")]

    def read_to(self) -> int | None:
        """Return the offset up to which the transcript is read; None for nowhere."""
        noted = _noted(self._folder, f"{self._name}.read")
        read = (note.removeprefix("read ").strip() for _, note, _ in noted)
        return next((int(each) for each in read if each.isdecimal()), None)

    def note_read(self, offset: int) -> None:
        """Note the offset up to which the transcript is read."""
        self._folder.write((_NOTES, f"{self._name}.read"), f"{now_ms()} - read {offset:<20}\n".encode(), 0)

    def add(self, note: str) -> None:
        """Add a note. A full file, or a disk that cannot be written, takes no more."""
        self._append(now_ms(), note)

    def claim(self, note: str) -> bool:
        """Add a note that counts once; return True for the first call. A host may call twice at the same time."""
        return self.is_first(note, now_ms(), _EVER_MS)

    def is_first(self, note: str, at_ms: int, within_ms: int) -> bool:
        """Add a note with its time; return False if the same note was added less than ``within_ms`` before."""
        mine = self._append(at_ms, note)
        first_ms = -within_ms
        # The file is read back in the order of all writers, so that two calls agree on which was first.
        for noted_ms, other, line in _noted(self._folder, self._name):
            if other != note:
                continue
            is_new = abs(noted_ms - first_ms) >= within_ms
            if is_new:
                first_ms = noted_ms
            if line == mine:
                return is_new
        return True  # it could not be written: twice is better than never

    def _append(self, at_ms: int, note: str) -> str:
        line = f"{at_ms} {os.urandom(4).hex()} {note}".encode("ascii", "replace").decode()
        self._folder.write((_NOTES, self._name), f"{line}\n".encode(), os.O_APPEND, _NOTES_BYTES_MAX)
        return line


def _noted(folder: LocalFolder, name: str) -> list[tuple[int, str, str]]:
    """Return time, note and full text of each valid line of a session's file."""
    lines = folder.read(_NOTES, name, bytes_max=2 * _NOTES_BYTES_MAX).decode("ascii", "replace").splitlines()
    parts = [(*line.split(" ", 2), line) for line in lines]
    return [(int(each[0]), each[2], each[3]) for each in parts if len(each) == 4 and each[0].isdigit()]


def _file_of(session: str) -> str:
    """Return the name of a session's file. The id comes from outside: one that is no plain word is hashed."""
    if session and len(session) <= _WORD_CHARS_MAX and _PLAIN.issuperset(session):
        return session
    import hashlib

    return "h-" + hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=8).hexdigest()


class Reflog:
    """Reader of what was added to the reflog of HEAD since the last reading, in the checkout or worktree of a folder.

    ``.fleet/reflog/<hash of the reflog's path>`` has the size at the last reading.
    """

    def __init__(self, root: str, cwd: str) -> None:
        self._folder, self._path = LocalFolder(root), _reflog_of(cwd)
        self._name = f"{crc32(os.path.realpath(self._path).encode('utf-8', 'surrogateescape')):08x}"
        try:
            self._size = os.stat(self._path).st_size if self._path else -1
        except FileNotFoundError:
            self._size = 0  # a repository without a commit, whose first one will be new
        except OSError:
            self._size = -1

    def _known(self) -> int:
        """Return the size that was read last, -1 for never."""
        size = self._folder.read(_REFLOG, self._name, bytes_max=_MARK_BYTES_MAX).partition(b" ")[0]
        return int(size) if size.isdigit() else -1

    def has_grown(self, command: str, session: str) -> bool:
        """Return whether the reflog has another size than at the last reading, likely by the command of the session.

        While other sessions run, it waits for a command that names git, which very likely made what is new.
        """
        is_larger = self._size >= 0 and self._size != self._known()
        return is_larger and ("git" in command or not self._folder.running(_IDLE_MS, session))

    def pass_over(self) -> None:
        """Note the reflog as read, since its commits are older than this session."""
        if self._size >= 0:
            self._folder.mark(_REFLOG, self._name, word=str(self._size))

    def commits(self) -> list[tuple[str, str]]:
        """Return the new entries as (action, subject), oldest first, and note the reflog as read.

        The first reading returns none, since those commits are older than any session that fleet knows of.
        """
        known, data = self._known(), b""
        if 0 <= known < self._size:
            try:
                with open(self._path, "rb") as file:
                    start = file.seek(max(known, self._size - _REFLOG_READ_MAX))
                    data = file.read(self._size - start)  # what follows was written since, and is read next time
            except OSError:
                return []
        self.pass_over()
        # A line is ``old new Name <mail> seconds zone<TAB>action: subject``.
        entries = (line.partition("\t")[2].partition(": ") for line in data.decode("utf-8", "replace").splitlines())
        return [(action.strip(), subject.strip()) for action, _, subject in entries if subject.strip()]


def _reflog_of(cwd: str) -> str:
    top = cwd
    while top and not os.access(os.path.join(top, ".git"), os.R_OK):
        above = os.path.dirname(top)
        top = above if above != top else ""
    mark = os.path.join(top, ".git") if top else ""
    if os.path.isdir(mark):
        return os.path.join(mark, "logs", "HEAD")
    link = os.fsdecode(homes.read(mark, _LINK_BYTES_MAX, follows=True)).strip()
    return os.path.join(top, link.removeprefix("gitdir: "), "logs", "HEAD") if link.startswith("gitdir: ") else ""


# --- one call -------------------------------------------------------------------------------------------------------


class TimeUpError(BaseException):
    """A limit of time was reached. A BaseException, so that no ``except Exception`` on the way catches it."""


class Call:
    """One call of a hook, and its place in a workspace.

    Attributes:
        event: Claude Code's name for the event, or the host's own for one that nobody here knows.
        root: of the workspace, "" where there is none.
        subagent: the host's id of the subagent in the session, "" for the session's own agent.
        can_write: whether anything can be written in the workspace.
        overdue: exit code, stdout and stderr where the time is up.
    """

    def __init__(self, event: str, root: str = "", agent: str = "", session: str = "", host: str = "") -> None:
        self.event, self.root, self.agent, self.session, self.host = event, root, agent, session, host
        self.subagent = ""
        self.can_write = True
        self.overdue = (0, "", "")

    @property
    def thread(self) -> str:
        """The session, or the subagent in it: each has a context and streaks of failures of its own."""
        return f"{self.session}/{self.subagent}" if self.subagent else self.session

    @property
    def notes(self) -> SessionNotes:
        """The notes of the session, or of the subagent."""
        return SessionNotes(self.root, self.thread)

    def log(self, what: str) -> None:
        """Add a line to ``.fleet/log``, if there is a workspace to have one."""
        if self.root:
            LocalFolder(self.root).log("log", self.event, what, host=self.host, session=self.session)

    def sets(self, section: str) -> bool:
        """Return whether a section of ``fleet.toml`` may set anything, so that its defaults may not hold.

        Parsing the file would take longer than all else in a hook. So this looks for a line in the section that is no
        comment, and may return True too often.
        """
        lines = homes.read(os.path.join(self.root, homes.CONFIG), _CONFIG_BYTES_MAX, follows=True).splitlines()
        inside, name = False, section.encode()
        for line in map(bytes.strip, lines):
            if line.startswith(b"["):
                inside = line.strip(b"[] \t").startswith(name)
            elif line and not line.startswith(b"#") and (inside or line.startswith(name)):
                return True
        return False

    @contextmanager
    def guarded(self, means: str) -> "Iterator[None]":
        """Log and suppress the errors of a block, except ``TimeUpError``, so that one fault does not stop the rest."""
        try:
            yield
        except Exception as why:  # noqa: BLE001 - whatever it is
            self.log(f"{means}: {explained(why)}")


@contextmanager
def alarm(limit_s: float) -> "Iterator[None]":
    """Limit the wall time of a block, after which ``TimeUpError`` is raised in it; for the main thread alone."""
    before, began_s = signal.signal(signal.SIGALRM, _ring), time.monotonic()
    outer_s = signal.setitimer(signal.ITIMER_REAL, limit_s)[0]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:
            left_s = outer_s - (time.monotonic() - began_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))


def _ring(number: int, frame: "FrameType | None") -> None:  # noqa: ARG001 - as signal.signal wants it
    raise TimeUpError


def explained(why: BaseException) -> str:
    """Return the text of an error for the log, without secrets."""
    text = f"{type(why).__name__}: {why}"
    try:
        from fleet.text.screening import redact

        return redact(text)
    except Exception:  # noqa: BLE001 - the text was not screened, and may hold anything
        return type(why).__name__
