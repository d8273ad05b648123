"""Memory of failed commands, and the door that closes on a fourth try of the same: the mutation protocol.

``.fleet/attempts/<agent>.jsonl``, append-only, one line one write. Local to this machine, and no promise hangs on it:
without it nothing is stopped. Hooks ask before every command, so this imports little of the standard library alone
until there is something to judge.

A *streak* is consecutive failures of one command family with one normalised error in one session. A success of the
family ends it, another error begins a new one, other families do not touch it. A *try* is the last failure of one very
command within a streak. A command of which nobody can tell how it ended is neither failure nor success.

**The door.** After ``limit`` failures in a streak, a command that failed among them is stopped, as long as nothing has
changed since that failure. It is open when

1. a file changed below the workspace or the working folder (``store.changes``), or a host reported an edit;
2. another command succeeded that may have changed something outside: an install, a service started, a process killed;
3. a mutation was declared, by ``fleet mutate`` or by hand, as a ``## MUTATION:`` block in a journal; that opens it for
   one more try, since the next failure is later than it.

Another command is never stopped; one that sleeps before it looks is a poll, and is not, unless it builds or tests.
"""

# ruff: noqa: PTH118
# Paths are texts here: pathlib alone would take 5 ms, on every tool call.
from __future__ import annotations

import json
import os
import stat
import time

from fleet.store import changes, homes

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from fleet.store.config import Attempts

    Event = dict[str, Any]
    Root = str | os.PathLike[str]
    Where = tuple[str, str]  # session, family

COMMAND_CHARS_MAX = 200
SAID_CHARS_MAX = 200
FILE_BYTES_MAX = 128 * 1024
KEPT_BYTES_MAX = FILE_BYTES_MAX // 2
READ_BYTES_MAX = 4 * FILE_BYTES_MAX  # a log that was not shortened in time is read from its end
LOCK_WAIT_S = 1.0
TRIES_KEPT_MAX = 50
WON_KEPT_MAX = 50
DAYS_KEPT = 7

_FOLDER = os.path.join(".fleet", "attempts")
_DAY_NS = 24 * 3600 * 1_000_000_000
_NAME_CHARS_MAX = 32
_JOURNALS_MAX = 20
_JOURNAL_BYTES_MAX = 64 * 1024
_BLOCKS_MAX = 5
_NUMBERS = frozenset("12345678")
_LABELS = {"failed": "failed", "switching to": "switch", "rationale": "why"}
_WORDS_CHARS_MAX = 1_000
_TEXTS = (
    *("event", "session", "family", "key", "error", "said", "command", "blocks"),
    *("id", "code", "name", "failed", "switch", "why"),
)


class Blocked:
    """A command that is stopped; ``journal.message`` says so to the agent.

    Attributes:
        command: as it was typed last time, screened and cut.
        said: the last line of the error that says something.
        blocks: the declarations in the journals when it failed last.
    """

    __slots__ = ("blocks", "command", "count", "family", "names", "said")

    def __init__(self, streak: Streak, tried: _Try, names: Mapping[str, str]) -> None:
        self.command = tried.command
        self.blocks = tried.blocks
        self.family = streak.family
        self.count = streak.count
        self.said = streak.said
        self.names = names


class _Try:
    """The last failure of one command.

    Attributes:
        command: as it was typed, screened and cut.
        at_ns: when it failed, by the clock of the file system (see ``changes.moment``).
        blocks: the declarations that stood in the journals then, as ``_declarations`` names them; None: not known.
        is_open: whether something was changed or declared since.
    """

    __slots__ = ("at_ns", "blocks", "command", "is_open")

    def __init__(self, command: str, at_ns: int, blocks: str | None) -> None:
        self.command = command
        self.at_ns = at_ns
        self.blocks = blocks
        self.is_open = False


class Streak:
    """Consecutive failures with one error.

    Attributes:
        tries: each command's last failure, by its key, oldest first.
    """

    __slots__ = ("count", "error", "family", "said", "session", "tries")

    def __init__(self, session: str, family: str, error: str) -> None:
        self.session = session
        self.family = family
        self.error = error
        self.said = ""
        self.count = 0
        self.tries: dict[str, _Try] = {}

    @property
    def last(self) -> _Try:
        """The newest failure."""
        return next(reversed(self.tries.values()))

    @property
    def is_open(self) -> bool:
        """Whether every command in it may be tried again, whatever the count."""
        return all(each.is_open for each in self.tries.values())


class _State:
    """The fold of a log of attempts.

    Attributes:
        pending: declared mutations that wait for a success, by session ("" for all) and family.
        declared: all declared mutations that have not worked yet, oldest first.
        won: mutations that worked and were not dropped, oldest first.
    """

    __slots__ = ("declared", "pending", "streaks", "won")

    def __init__(self) -> None:
        self.streaks: dict[Where, Streak] = {}
        self.pending: dict[Where, list[Event]] = {}
        self.declared: dict[str, Event] = {}
        self.won: dict[str, Event] = {}

    def of(self, session: str) -> list[Streak]:
        """Return the open streaks of a session and its subagents, ``<session>/<subagent>``; of all of them for ""."""
        subagents = f"{session}/"
        return [
            streak
            for streak in self.streaks.values()
            if session in ("", streak.session) or streak.session.startswith(subagents)
        ]

    def waiting(self, session: str, family: str) -> list[Event]:
        """Return the declared mutations that a success of this family would crown."""
        sessions = dict.fromkeys((session, session.partition("/")[0], ""))
        return [event for each in sessions for event in self.pending.get((each, family), ())]


# The door


class AttemptLog:
    """Log of an agent's attempts: asked before a command runs, told how it ended."""

    def __init__(self, root: Root, agent: str) -> None:
        self._root = root
        self._agent = agent

    def verdict(self, session: str, command: str, cwd: str = "", *, settings: Attempts | None = None) -> Blocked | None:
        """Return why a command is stopped, or None: it may run. Never raises: in doubt, it may.

        ``settings``: ``[attempts]``; read from ``fleet.toml`` when it is needed and not given.
        """
        try:
            data = _read(self._root, self._agent)
            blocked = _judged(self._root, session, command, cwd, data, settings) if data else None
            return None if blocked is None or _declared_by_hand(self._root, self._agent, session, blocked) else blocked
        except (OSError, ValueError):
            return None

    def note_failure(
        self, session: str, command: str, error: str = "", exit_code: int | None = None, cwd: str = ""
    ) -> int:
        """Note that a command failed; return how many failures in a row this makes.

        A failure on a person's stop is none.

        Raises:
            DiskError: it could not be noted.
        """
        from fleet.text import shell

        said = shell.error_line(error) or (f"exit {exit_code}" if exit_code is not None else "")
        event: Event = {
            "event": "failed",
            "session": session,
            "family": shell.family(command),
            "key": _key(command, cwd),
            "error": _hash(shell.error_fingerprint(error) or f"exit {exit_code}"),
            "said": fitting(said, SAID_CHARS_MAX),
            "command": fitting(command[: 4 * COMMAND_CHARS_MAX], COMMAND_CHARS_MAX),
            "exit": exit_code,
            "blocks": " ".join(_declarations(self._root, self._agent)),
            "at_ns": 0,  # when it is written
        }
        self.append(event)
        streak = self.state().streaks.get((session, event["family"]))
        return streak.count if streak is not None else 0

    def has_any(self, session: str) -> bool:
        """Return False where nothing of this session is in the log: nothing is open, and nothing can be closed."""
        return json.dumps(session).encode() in _read(self._root, self._agent)

    def note_unknown(self, session: str, command: str) -> None:
        """Note that a command ran of which nobody can tell how it ended.

        It ends no streak. Unless it only looked, it may have changed what commands of other families depend on.

        Raises:
            DiskError: it could not be noted.
        """
        from fleet.text import shell

        family = shell.family(command)
        others = [streak for streak in self.state().of(session) if streak.family != family]
        if not all(streak.is_open for streak in others) and not shell.only_looks(command):
            self.append({"event": "changed", "session": session, "family": family})

    def turned_green(self, session: str, command: str, cwd: str = "") -> str:
        """Return what a command that just succeeded had failed with here, "" where that was no failure of its.

        A build or test counts by its family; another command where it is the very same one and does more than look.
        """
        data = _read(self._root, self._agent)
        if not data or json.dumps(session).encode() not in data:
            return ""
        from fleet.text import shell

        family = shell.family(command)
        streak = _fold(_events(data)).streaks.get((session, family))
        if streak is None:
            return ""
        is_same = _key(command, cwd) in streak.tries and not shell.only_looks(command)
        return f"{family}: {streak.said}" if streak.said and (shell.is_build(command) or is_same) else ""

    def note_success(self, session: str, command: str) -> list[Event]:
        """Note that a command succeeded; return the declared mutations that it shows to have worked, to be recorded.

        Costs one read where nothing is open. It ends its family's streak, and opens the doors of other families unless
        it only looked.

        Raises:
            DiskError: it could not be noted.
        """
        data = _read(self._root, self._agent)
        if not data or json.dumps(session).encode() not in data:
            return []
        from fleet.text import shell

        found = _fold(_events(data))
        family = shell.family(command)
        won = found.waiting(session, family)
        changes_others = any(
            not streak.is_open for streak in found.of(session) if streak.family != family
        ) and not shell.only_looks(command)
        if won or changes_others or (session, family) in found.streaks:
            self.append({"event": "passed", "session": session, "family": family, "changes": changes_others})
        return won

    def note_edit(self, session: str, path: str = "") -> None:
        """Note that a host reported an edit: what failed before it may be tried again.

        ``path``: what was edited; fleet's own files are no change. It is not kept.

        Raises:
            DiskError: it could not be noted.
        """
        data = _read(self._root, self._agent)
        if not data or json.dumps(session).encode() not in data or (path and changes.is_own(self._root, path)):
            return
        if not all(streak.is_open for streak in _fold(_events(data)).of(session)):
            self.append({"event": "changed", "session": session})

    def state(self) -> _State:
        """Return what is open."""
        return _fold(_events(_read(self._root, self._agent)))

    def error_before(self, mutation: str) -> str:
        """Return what the failures ended with before a mutation was declared; "" where the log has none of them."""
        said: dict[str, str] = {}
        for event in _events(_read(self._root, self._agent)):
            if event.get("event") == "failed" and event.get("said"):
                said[str(event.get("session", ""))] = str(event["said"])
            elif event.get("event") == "declared" and event.get("id") == mutation:
                return said.get(str(event.get("session", "")), "")
        return ""

    def append(self, event: Event) -> None:
        """Add one event to an agent's log, a failure with its moment; shorten a log that has grown too long.

        Raises:
            ValueError: that is no agent's name.
            DiskError: it could not be noted.
        """
        from pathlib import Path

        from fleet.model.errors import BusyError, DiskError
        from fleet.store.files import Files

        name, files = _file(self._agent), Files(Path(self._root))
        path = Path(self._root, _FOLDER, name)
        try:
            with files.lock(Path(self._root, ".fleet", "locks", f"attempts-{self._agent}.lock"), LOCK_WAIT_S):
                if event["event"] == "failed":
                    files.append(path, b"", is_durable=False)
                    event["at_ns"] = _moment(path)
                files.append(path, _as_line(event), is_durable=False)
                data = _read(self._root, self._agent)
                if len(data) > FILE_BYTES_MAX:
                    files.replace(path, _shortened(data, time.time_ns(), KEPT_BYTES_MAX), is_durable=False)
                if event["event"] in ("won", "dropped"):
                    won = "".join(f"{each}\n" for each in _fold(_events(data)).won)
                    files.replace(path.with_suffix(".won"), won.encode("ascii", "replace"), is_durable=False)
        except (OSError, DiskError, BusyError) as why:
            raise DiskError(
                f"{path} was not saved ({why}). Nothing else is lost: this attempt is not counted, and nothing is "
                "stopped because of it"
            ) from why


def _judged(root: Root, session: str, command: str, cwd: str, data: bytes, settings: Attempts | None) -> Blocked | None:
    key = _key(command, cwd)
    if key.encode() not in data:  # most commands: nothing need be decoded
        return None
    from fleet.text import shell

    streak = _fold(_events(data)).streaks.get((session, shell.family(command)))
    tried = streak.tries.get(key) if streak is not None else None
    if streak is None or tried is None or tried.is_open or streak.count < 2:
        return None
    settings = read_settings(root) if settings is None else settings
    if settings.off or settings.limit < 2 or streak.count < settings.limit:
        return None
    if shell.waits(command) and not shell.is_build(command, settings.builds):
        return None
    if changes.any_since(root, cwd, tried.at_ns):
        return None
    return Blocked(streak, tried, settings.names)


def read_settings(root: Root) -> Attempts:
    """Return ``[attempts]`` of ``fleet.toml``. While something in that file is wrong, nothing is stopped."""
    from pathlib import Path

    from fleet.store import config

    found = config.load(Path(root) / config.FILE_NAME)
    return config.Attempts(off=True) if found.problems else found.attempts


# Declarations by hand


def _declared_by_hand(root: Root, agent: str, session: str, blocked: Blocked) -> bool:
    """Note a declaration that was written into a journal since the last failure; tell whether there was one."""
    if blocked.blocks is None:
        return False
    told = {_words_of(event) for event in _events(_read(root, agent)) if event.get("event") in ("declared", "won")}
    found = _declarations(root, agent).items()
    new = [fields for name, fields in found if name not in blocked.blocks.split() and _words_of(fields) not in told]
    for fields in new:
        event: Event = {"event": "declared", "id": f"m-{os.urandom(4).hex()}", "session": session}
        AttemptLog(root, agent).append({**event, "families": [blocked.family], **fields, "at_ns": time.time_ns()})
    return bool(new)


def _declarations(root: Root, agent: str) -> dict[str, Event]:
    """Return the last declarations in each journal of an agent, by a hash of their words."""
    home = os.path.join(root, homes.current(root), _file(agent).removesuffix(".jsonl"))
    try:
        with os.scandir(os.path.join(home, "journals")) as others:
            paths = sorted(each.path for each in others)[:_JOURNALS_MAX]
    except OSError:
        paths = []
    found: dict[str, Event] = {}
    for path in (os.path.join(home, "JOURNAL.md"), *paths):
        data = _read_end(path, _JOURNAL_BYTES_MAX)
        if b"MUTATION:" in data:
            for fields in _blocks_in(data.decode("utf-8", "replace"))[-_BLOCKS_MAX:]:
                found[_hash(_words_of(fields))[:8]] = fields
    return found


def _words_of(declared: Event) -> str:
    return " ".join(" ".join(str(declared.get(field, "")) for field in ("code", *_LABELS.values())).split())


def _blocks_in(page: str) -> list[Event]:
    """Return the declarations of a journal that say all three of failed, switch and why; a fence quotes."""
    found: list[Event] = []
    fields, label, is_fenced = dict[str, str](), "", False
    for row in map(str.strip, page.splitlines()):
        is_fenced ^= row.startswith(("```", "~~~"))
        if is_fenced:
            continue
        if row.startswith("#"):
            head, _, rest = row.lstrip("# ").partition(":")
            code, _, name = rest.strip().partition(" ")
            fields, label = {}, ""
            if head == "MUTATION" and code[:1] == "M" and code[1:] in _NUMBERS:
                fields = {"code": code, "name": name.strip(" ()")}
                found.append(fields)
            continue
        start, _, rest = row.partition(":")
        named = next((field for mark, field in _LABELS.items() if start.lower().startswith(mark)), "")
        label = named or (label if row else "")
        if fields and label:
            fields[label] = f"{fields.get(label, '')} {rest if named else row}".strip()
    whole = [each for each in found if all(each.get(field) for field in _LABELS.values())]
    return [{name: fitting(text[:_WORDS_CHARS_MAX], _WORDS_CHARS_MAX) for name, text in each.items()} for each in whole]


# The log


def _moment(path: os.PathLike[str]) -> int:
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return changes.moment(handle)
    finally:
        os.close(handle)


def _file(agent: str) -> str:
    """Return the name of an agent's log. No path is ever built from what is no name."""
    plain = agent.replace("-", "a").replace("_", "a")
    if not (plain.isascii() and plain.isalnum() and plain == plain.lower() and len(plain) <= _NAME_CHARS_MAX):
        raise ValueError(f"{agent[:40]!r} cannot be an agent's name")
    return f"{agent}.jsonl"


def _read(root: Root, agent: str) -> bytes:
    """Return the log, b"" when there is none. Links and devices are none."""
    return _read_end(os.path.join(root, _FOLDER, _file(agent)), READ_BYTES_MAX)


def _read_end(path: str, bytes_max: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode):
            return b""
        return os.pread(handle, bytes_max, max(seen.st_size - bytes_max, 0))
    finally:
        os.close(handle)


# The fold: lines in, a state out, and back to fewer lines


def _events(data: bytes) -> Iterator[Event]:
    """Yield the lines of a log that can be read; a broken one costs itself alone."""
    for raw in data.split(b"\n"):
        if not raw.startswith(b"{"):
            continue
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and all(isinstance(event.get(key, ""), str) for key in _TEXTS):
            yield event


def _fold(found: Iterable[Event]) -> _State:
    """Return what the events come to, in the order in which they were written."""
    state = _State()
    for event in found:
        step = _STEPS.get(event.get("event", ""))
        if step is not None:
            step(state, event)
    return state


def _failed(state: _State, event: Event) -> None:
    where = (event.get("session", ""), event.get("family", ""))
    key, error, at_ns, times = event.get("key", ""), event.get("error", ""), event.get("at_ns"), event.get("times", 1)
    if not key or type(at_ns) is not int or type(times) is not int:
        return
    streak = state.streaks.get(where)
    if streak is None or streak.error != error:
        streak = state.streaks[where] = Streak(*where, error)
    streak.count += times
    streak.said = event.get("said", "")
    streak.tries.pop(key, None)  # the newest stands last
    streak.tries[key] = _Try(event.get("command", ""), at_ns, event.get("blocks"))


def _passed(state: _State, event: Event) -> None:
    where = (event.get("session", ""), event.get("family", ""))
    state.streaks.pop(where, None)
    for mutation in state.waiting(*where):
        state.declared.pop(mutation["id"], None)
    state.pending.pop(where, None)
    state.pending.pop(("", where[1]), None)
    if event.get("changes"):
        _changed(state, event)


def _changed(state: _State, event: Event) -> None:
    for streak in state.of(event.get("session", "")):
        if streak.family != event.get("family"):  # what was run itself: it is not known to have done anything
            for each in streak.tries.values():
                each.is_open = True


def _declared(state: _State, event: Event) -> None:
    _changed(state, event)
    families = event.get("families")
    if not event.get("id"):
        return
    state.declared[event["id"]] = event
    for family in families if isinstance(families, list) else ():
        state.pending.setdefault((event.get("session", ""), str(family)), []).append(event)


def _won(state: _State, event: Event) -> None:
    if not event.get("id"):
        return
    state.won[event["id"]] = event
    state.declared.pop(event["id"], None)
    for where, waiting in list(state.pending.items()):
        left = [mutation for mutation in waiting if mutation["id"] != event["id"]]
        state.pending[where] = left
        if not left:
            del state.pending[where]


def _dropped(state: _State, event: Event) -> None:
    state.won.pop(event.get("id", ""), None)


_STEPS = {
    "failed": _failed,
    "passed": _passed,
    "changed": _changed,
    "declared": _declared,
    "won": _won,
    "dropped": _dropped,
}


def _shortened(data: bytes, now_ns: int, bytes_max: int) -> bytes:
    """Return a log that comes to the same as this one, as far as it is young enough and has room.

    Newest first in their claim on the room: what worked, then the streaks.
    """
    state = _fold(_events(data))
    oldest_ns = now_ns - DAYS_KEPT * _DAY_NS
    kept = [_as_line(event) for event in list(state.won.values())[-WON_KEPT_MAX:]]
    room = bytes_max - sum(map(len, kept))
    while kept and room < bytes_max // 2:
        room += len(kept.pop(0))
    streaks = [streak for streak in state.streaks.values() if streak.last.at_ns >= oldest_ns]
    streaks.sort(key=lambda streak: streak.last.at_ns)
    chosen: list[Streak] = []
    for streak in reversed(streaks):
        room -= sum(len(line) for lines in _lines_of(streak) for line in lines)
        if room < 0:
            break
        chosen.append(streak)
    waiting = [event for event in state.declared.values() if _at(event) >= oldest_ns]
    mutations = [_as_line(event) for event in waiting[-WON_KEPT_MAX:]]
    if sum(map(len, mutations)) > room:
        mutations = []
    return b"".join([*kept, *_in_order(chosen, mutations)])


def _in_order(streaks: list[Streak], mutations: list[bytes]) -> Iterator[bytes]:
    """Yield the lines such that what was open is open again: before what opens it, or behind."""
    lines = [_lines_of(streak) for streak in reversed(streaks)]
    for opened, _ in lines:
        yield from opened
    for session in dict.fromkeys(streak.session for streak in streaks):
        yield _as_line({"event": "changed", "session": session})
    yield from mutations
    for _, closed in lines:
        yield from closed


def _lines_of(streak: Streak) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of the tries that are open, and of those that are not."""
    found: tuple[list[bytes], list[bytes]] = ([], [])
    tries = list(streak.tries.items())[-TRIES_KEPT_MAX:]
    tries.sort(key=lambda item: not item[1].is_open)
    rest = streak.count - len(tries) + 1
    for key, each in tries:
        event = {
            "event": "failed",
            "session": streak.session,
            "family": streak.family,
            "key": key,
            "error": streak.error,
            "said": streak.said,
            "command": each.command,
            **({} if each.blocks is None else {"blocks": each.blocks}),
            "at_ns": each.at_ns,
            "times": rest,
        }
        found[not each.is_open].append(_as_line(event))
        rest = 1
    return found


def _at(event: Event) -> int:
    at_ns = event.get("at_ns")
    return at_ns if type(at_ns) is int else 0


def _as_line(event: Event) -> bytes:
    """Return an event as one line."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def fitting(text: str, chars_max: int) -> str:
    """Return a text screened and cut, in this order: half of a secret is not known as one."""
    from fleet.text.screening import one_line, screen

    clean = one_line(screen(text).text)
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + "…"


def _key(command: str, cwd: str) -> str:
    """Return what makes a command the same one: its words in order, and where it runs. No command is kept as it is."""
    return _hash(f"{' '.join(command.split())}\0{os.path.normpath(cwd) if cwd else ''}")


def _hash(text: str) -> str:
    from hashlib import blake2b  # OpenSSL behind it takes some ms

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
