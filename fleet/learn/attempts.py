"""Log of failed commands, and the door that closes on a fourth try of the same: the mutation protocol.

``.fleet/attempts/<agent>.json`` is one JSON object that is replaced whole. It is local to this machine and may be lost:
then nothing is stopped. Hooks ask before every command, so this module imports only a little of the standard library
until there is something to judge.

A *streak* is a sequence of failures of one command family with one normalised error in one session. A success of the
family ends it, another error begins a new one, other families do not affect it. A *try* is the last failure of exactly
one command within a streak. A command whose outcome is unknown is neither failure nor success.

**The door.** After ``limit`` failures in a streak, each command that failed in it is stopped, as long as nothing has
changed since its failure. The door is opened when

1. a file changed below the workspace or the working folder (``store.changes``), or a host reported an edit;
2. another command succeeded that may have changed something outside (an install, a killed process), or it went into the
   background, as a service does, or a task there ended, or a tool of an MCP server was called that does not only read;
3. a person typed a prompt: that person may know of a change elsewhere, or want the command run again;
4. a mutation was declared, by ``fleet mutate`` or by hand, as a ``## MUTATION:`` block in a journal: that opens the
   door for one more try, since the next failure is later than the declaration.

Other commands are never stopped. A command that sleeps before it looks is a poll, and is not stopped unless it builds
or tests. A sleep also opens the doors of all families but builds and tests: the awaited thing may be there by then.
"""

# ruff: noqa: PTH118
# Paths are texts here: pathlib alone would take 5 ms, on every tool call.
from __future__ import annotations

import json
import os
import re
import time

from fleet.store import changes, homes

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from fleet.store.config import Attempts
    from fleet.text.shell import Command

    Event = dict[str, Any]
    Root = str | os.PathLike[str]

COMMAND_CHARS_MAX = 200
OUTPUT_CHARS_MAX = 200
FILE_BYTES_MAX = 1024 * 1024
LOCK_WAIT_S = 1.0
STREAKS_KEPT_MAX = 40
TRIES_KEPT_MAX = 20
MUTATIONS_KEPT_MAX = 50
DAYS_KEPT = 7

_FOLDER = os.path.join(".fleet", "attempts")
_DAY_NS = 24 * 3600 * 1_000_000_000
_JOURNALS_MAX = 20
_JOURNAL_BYTES_MAX = 64 * 1024
_BLOCKS_MAX = 5
_LABELS = {"failed": "failed", "switching to": "switch", "rationale": "why"}
_LABEL = rf"[ \t*_-]*(?i:(?P<label>{'|'.join(_LABELS)}))[^:\n]*:[*_]*"  # emphasised, or in a list
_FENCE = r"(?ms)^[ \t]*(?:```|~~~).*?(?:^[ \t]*(?:```|~~~)[^\n]*|\Z)"
_BLOCK = r"(?m)^[ \t]*#[# ]*MUTATION:[ \t]*(?P<code>M[1-8])(?!\S)(?P<name>.*)\n?(?P<rows>(?:(?![ \t]*#)(?:.+\n?|\n))*)"
_VALUE = rf"(?m)^{_LABEL}(?P<value>.*(?:\n(?!{_LABEL.replace('?P<label>', '?:')})[ \t]*\S.*)*)"
"""A label and its value, which ends at a blank line or the next label."""
_WORDS_CHARS_MAX = 1_000
_OF_MUTATION = ("id", "session", "code", "name", "failed", "switch", "why", "error", "superseded")


class _Try:
    """The last failure of one command.

    Attributes:
        command: the command as it was typed, screened and cut.
        at_ns: when it failed, in ns, by the clock of the file system (see ``changes.moment``).
        blocks: the declarations in the journals at that time, by the keys of ``_declarations``.
        is_open: True if something was changed or declared since.
    """

    def __init__(self, command: str, at_ns: int, blocks: str, is_open: bool = False) -> None:
        self.command = command
        self.at_ns = at_ns
        self.blocks = blocks
        self.is_open = is_open


class _Streak:
    """Consecutive failures with one error: each command's last one (``tries``), by its key, oldest first."""

    def __init__(self, session: str, family: str, error: str) -> None:
        self.session = session
        self.family = family
        self.error = error
        self.output = ""
        self.count = 0
        self.tries: dict[str, _Try] = {}

    @property
    def last(self) -> _Try:
        return next(reversed(self.tries.values()))

    @property
    def is_open(self) -> bool:
        """True where every command in it may be tried again, whatever the count."""
        return all(each.is_open for each in self.tries.values())

    def is_closed(self, limit: int) -> bool:
        """Return whether another try without a change is stopped, given the ``limit`` of failures."""
        return self.count >= limit and not self.is_open


class BlockedCommand:
    """A command that is stopped, with its streak and the names of strategies; ``journal.message`` is its text."""

    def __init__(self, streak: _Streak, tried: _Try, names: dict[str, str]) -> None:
        self.streak = streak
        self.tried = tried
        self.names = names


class _State:
    """State of an agent's attempts.

    Attributes:
        streaks: by session and family; the one with the latest failure is the last.
        declared: mutations whose success is pending, oldest first.
        won: mutations that worked, oldest first.
    """

    def __init__(self) -> None:
        self.streaks: dict[tuple[str, str], _Streak] = {}
        self.declared: dict[str, Event] = {}
        self.won: dict[str, Event] = {}

    def of(self, session: str) -> list[_Streak]:
        """Return the streaks of a session and its subagents, ``<session>/<subagent>``; of all of them for ""."""
        subagents = f"{session}/"
        return [
            streak
            for streak in self.streaks.values()
            if session in ("", streak.session) or streak.session.startswith(subagents)
        ]

    def open(self, session: str, but: Collection[str] = ()) -> None:
        """Open the doors of all families in a session, except those in ``but``."""
        for streak in self.of(session):
            if streak.family not in but:
                for each in streak.tries.values():
                    each.is_open = True

    def declare(self, event: Event) -> None:
        """Add a mutation, with the last error, and open the doors for one more try.

        It supersedes earlier ones about the same failures: these did not work, else no other would have been declared.
        """
        session, families = event["session"], event["families"]
        for earlier in [m for m in self.declared.values() if not session or m["session"] in _sessions(session)]:
            left = [family for family in earlier["families"] if family not in families]
            if not left and (earlier["families"] or not families):
                earlier["superseded"] = event["id"]
            earlier["families"] = left
        self.declared[event["id"]] = {"error": next((each.output for each in reversed(self.of(session))), ""), **event}
        self.open(session)

    def succeed(self, session: str, family: str) -> list[Event]:
        """End the streak of a family that succeeded; return the declared mutations that have worked by this."""
        self.streaks.pop((session, family), None)
        events = [each for each in self.declared.values() if each["session"] in _sessions(session)]
        return [self.declared.pop(each["id"]) for each in events if family in each["families"]]

    def win(self, event: Event) -> None:
        """Add a mutation that worked."""
        self.declared.pop(event["id"], None)
        self.won[event["id"]] = event


def _sessions(session: str) -> tuple[str, ...]:
    """Return the sessions whose declarations count in one: itself, its parent (for a subagent), and "" for all."""
    return session, session.partition("/")[0], ""


class AttemptLog:
    """Log of an agent's attempts: read before a command runs, written when it has ended.

    The methods that note something raise ``DiskError`` if it could not be saved.
    """

    def __init__(self, root: Root, agent: str) -> None:
        self._root = root
        self._agent = agent

    def settings(self) -> Attempts:
        """Return ``[attempts]`` of ``fleet.toml``."""
        from pathlib import Path

        from fleet.store import config

        return config.load(Path(self._root) / config.FILE_NAME).attempts

    def verdict(self, session: str, command: str, cwd: str = "") -> BlockedCommand | None:
        """Return the reason if a command is stopped, or None if it may run. Never raises: in doubt, it may run."""
        try:
            blocked = self._block(session, command, cwd)
            return None if blocked is None or self._is_declared_by_hand(session, blocked) else blocked
        except (OSError, ValueError):
            return None

    def _block(self, session: str, command: str, cwd: str) -> BlockedCommand | None:
        key, data = _key(command, cwd), _read(self._root, self._agent)
        if key.encode() not in data:  # as for most commands; then nothing need be decoded
            return None
        ran = _parsed_command(command)
        streak = _parsed(data).streaks.get((session, ran.family))
        tried = streak.tries.get(key) if streak is not None else None
        if streak is None or tried is None or tried.is_open or streak.count < 2:
            return None
        settings = self.settings()
        if settings.off or streak.count < settings.limit:
            return None
        if ran.waits and not ran.is_build(settings.builds):
            return None
        has_changed = changes.Changes(self._root).any_since(cwd, tried.at_ns)
        return None if has_changed else BlockedCommand(streak, tried, settings.names)

    def _is_declared_by_hand(self, session: str, blocked: BlockedCommand) -> bool:
        """Note a declaration that was written into a journal since the last failure; return whether there was one."""
        state, known_hashes = self.state(), blocked.tried.blocks.split()
        declared = {_words_of(each) for each in (*state.declared.values(), *state.won.values())}
        declarations = _declarations(self._root, self._agent).items()
        unknown = (fields for hash_, fields in declarations if hash_ not in known_hashes)
        whole = (fields for fields in unknown if all(map(fields.get, _LABELS.values())))
        new = [fields for fields in whole if _words_of(fields) not in declared]
        for fields in new:
            about = {"id": f"m-{os.urandom(4).hex()}", "session": session, "families": [blocked.streak.family]}
            self.note_declared({**about, **fields})
        return bool(new)

    def note_failure(
        self, session: str, command: str, error: str = "", exit_code: int | None = None, cwd: str = ""
    ) -> int:
        """Note that a command failed; return how many failures in a row this makes.

        The caller does not note a command that a person stopped.
        """
        from fleet.text import shell

        where = (session, shell.Command(command).family)
        failure = shell.Failure(error)
        fingerprint = _hash(failure.fingerprint or f"{exit_code}")
        output = failure.line or (f"exit {exit_code}" if exit_code is not None else "")
        shown, key = fitting(command[: 4 * COMMAND_CHARS_MAX], COMMAND_CHARS_MAX), _key(command, cwd)
        blocks = " ".join(_declarations(self._root, self._agent))

        def failed(state: _State) -> int:
            streak = state.streaks.pop(where, None)
            if streak is None or streak.error != fingerprint:
                streak = _Streak(*where, fingerprint)
            streak.count, streak.output = streak.count + 1, fitting(output, OUTPUT_CHARS_MAX)
            streak.tries.pop(key, None)  # so that the newest is the last
            streak.tries[key] = _Try(shown, _moment(self._lock), blocks)
            state.streaks[where] = streak
            return streak.count

        return int(self._change(failed))

    def has_any(self, session: str) -> bool:
        """Return whether the log has anything of this session."""
        return json.dumps(session).encode() in _read(self._root, self._agent)

    def note_unknown(self, session: str, command: str) -> None:
        """Note that a command ran whose outcome is unknown.

        It ends no streak. Unless it is read-only, it may have changed something that other families depend on.
        """
        ran = _parsed_command(command)
        if not ran.is_read_only:
            self._open(session, but=[ran.family])

    def note_change(self, session: str, path: str = "") -> None:
        """Note that a host reported a possible change: commands that failed before it may be tried once more.

        ``path``: the file that was edited, which is not stored; fleet's own files do not count as a change.
        """
        if self.has_any(session) and not (path and changes.Changes(self._root).is_own(path)):
            self._open(session)

    def _open(self, session: str, but: Collection[str] = ()) -> None:
        if not all(streak.is_open for streak in self.state().of(session) if streak.family not in but):
            self._change(lambda state: state.open(session, but))

    def turned_green(self, session: str, command: str, cwd: str = "") -> str:
        """Return the error with which a command that just succeeded had failed in this session; "" for none.

        A build or test counts by its family; any other only if exactly this command failed, and it is not read-only.
        """
        if not self.has_any(session):
            return ""
        ran = _parsed_command(command)
        streak = self.state().streaks.get((session, ran.family))
        if streak is None or not streak.output:
            return ""
        is_same = _key(command, cwd) in streak.tries and not ran.is_read_only
        return f"{ran.family}: {streak.output}" if ran.is_build() or is_same else ""

    def note_success(self, session: str, command: str) -> list[Event]:
        """Note that a command succeeded; return the declared mutations that it shows to have worked, to be recorded.

        It ends the family's streak, and opens the doors of other families unless it is read-only; a sleep opens those
        of all families but builds and tests. Costs one read if the log has nothing of the session.
        """
        if not self.has_any(session):
            return []
        ran, known = _parsed_command(command), self.state()  # a copy, which tells what a success would change
        won: list[Event] = []
        if (session, ran.family) in known.streaks or known.succeed(session, ran.family):
            won = self._change(lambda state: state.succeed(session, ran.family))
        if not ran.is_read_only:
            self._open(session, but=[ran.family])
        elif ran.waits:
            builds, families = self.settings().builds, [streak.family for streak in known.of(session)]
            self._open(session, but=[each for each in families if _parsed_command(each).is_build(builds)])
        return won

    def note_declared(self, mutation: Event) -> None:
        """Note a declared mutation: id, session, families, code, name, and its words."""
        self._change(lambda state: state.declare(mutation))

    def note_won(self, mutation: Event) -> None:
        """Note that a mutation worked."""
        self._change(lambda state: state.win(mutation))

    def state(self) -> _State:
        """Return the state: streaks, declared mutations, and those that worked."""
        return _parsed(_read(self._root, self._agent))

    @property
    def _lock(self) -> str:
        return os.path.join(self._root, ".fleet", "locks", f"attempts-{self._agent}.lock")

    def _change(self, act: Callable[[_State], Any]) -> Any:
        """Change the state under its lock, and save it; return what ``act`` returns."""
        from pathlib import Path

        from fleet.model.errors import BusyError, DiskError
        from fleet.store.files import Files

        path, files = Path(self._root, _FOLDER, f"{self._agent}.json"), Files(Path(self._root))
        try:
            with files.lock(Path(self._lock), LOCK_WAIT_S):
                state = self.state()
                won = list(state.won)
                result = act(state)
                files.replace(path, _encoded(state, time.time_ns()), is_durable=False)
                if list(state.won) != won:  # a change of this file makes the cached start of a session invalid
                    rows = "".join(f"{each}\n" for each in state.won)
                    files.replace(path.with_suffix(".won"), rows.encode("ascii", "replace"), is_durable=False)
                return result
        except (OSError, DiskError, BusyError) as why:
            raise DiskError(
                f"{path} was not saved ({why}). Nothing else is lost: this attempt is not counted, and nothing is "
                "stopped because of it"
            ) from why


def _parsed_command(command: str) -> Command:
    from fleet.text.shell import Command  # most hooks ask about nothing that failed

    return Command(command)


# Declarations by hand


def _declarations(root: Root, agent: str) -> dict[str, Event]:
    """Return the last declarations in each journal of an agent, by a hash of their words."""
    home = os.path.join(root, homes.Homes(root).current(), agent)
    try:
        with os.scandir(os.path.join(home, "journals")) as entries:
            paths = sorted(each.path for each in entries)[:_JOURNALS_MAX]
    except OSError:
        paths = []
    declarations: dict[str, Event] = {}
    for path in (os.path.join(home, "JOURNAL.md"), *paths):
        data = homes.read(path, _JOURNAL_BYTES_MAX, from_end=True)
        if b"MUTATION:" in data:
            for fields in _blocks_in(data.decode("utf-8", "replace")):
                declarations[_hash(_words_of(fields))[:8]] = fields
    return declarations


def _words_of(declared: Event) -> str:
    return " ".join(" ".join(str(declared.get(field, "")) for field in ("code", *_LABELS.values())).split())


def _blocks_in(page: str) -> list[Event]:
    """Return the last declarations of a journal with their fields failed, switch and why; none in a code fence."""
    blocks: list[Event] = []
    for block in re.finditer(_BLOCK, re.sub(_FENCE, "", page)):
        values = {_LABELS[each["label"].lower()]: each["value"] for each in re.finditer(_VALUE, block["rows"])}
        blocks.append({"code": block["code"], "name": block["name"].strip(" ()"), **values})
    return [
        {name: fitting(" ".join(text.split()), _WORDS_CHARS_MAX) for name, text in block.items()}
        for block in blocks[-_BLOCKS_MAX:]
    ]


# The file


def _moment(path: str) -> int:
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return changes.moment(handle)
    finally:
        os.close(handle)


def _read(root: Root, agent: str) -> bytes:
    """Return the file's bytes, b"" when there is none, or a link or a device."""
    return homes.read(os.path.join(root, _FOLDER, f"{agent}.json"), FILE_BYTES_MAX)


def _parsed(data: bytes) -> _State:
    """Return the state that a file has; an empty one where it cannot be parsed."""
    state = _State()
    try:
        document = json.loads(data or b"{}")
        for each in document.get("streaks", ()):
            streak = _Streak(str(each["session"]), str(each["family"]), str(each["error"]))
            streak.output, streak.count = str(each["said"]), int(each["count"])
            for key, (command, at_ns, blocks, is_open) in each["tries"].items():
                streak.tries[key] = _Try(str(command), int(at_ns), str(blocks), bool(is_open))
            if streak.tries:
                state.streaks[streak.session, streak.family] = streak
        state.declared, state.won = (_mutations(document.get(name, ())) for name in ("declared", "won"))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
        return _State()
    return state


def _mutations(events: Iterable[Event]) -> dict[str, Event]:
    return {
        str(each["id"]): {name: str(each.get(name, "")) for name in _OF_MUTATION}
        | {"families": [str(family) for family in each.get("families", ())]}
        for each in events
    }


def _encoded(state: _State, now_ns: int) -> bytes:
    """Return the file of a state: its newest streaks and mutations, and no streak that is too old."""
    young = [each for each in state.streaks.values() if each.last.at_ns >= now_ns - DAYS_KEPT * _DAY_NS]
    streaks = []
    for each in young[-STREAKS_KEPT_MAX:]:
        newest = list(each.tries.items())[-TRIES_KEPT_MAX:]
        fields = {"session": each.session, "family": each.family, "error": each.error, "said": each.output}
        tries = {key: [*vars(tried).values()] for key, tried in newest}
        streaks.append({**fields, "count": each.count, "tries": tries})
    declared, won = (list(each.values())[-MUTATIONS_KEPT_MAX:] for each in (state.declared, state.won))
    return json.dumps({"streaks": streaks, "declared": declared, "won": won}, separators=(",", ":")).encode()


def fitting(text: str, chars_max: int) -> str:
    """Return a text screened and then cut, in this order, since half of a secret would not be recognised."""
    from fleet.text.screening import one_line, screen, shortened

    return shortened(one_line(screen(text).text), chars_max)


def _key(command: str, cwd: str) -> str:
    """Return the key of a command: a hash of its words and its folder, so that commands are not stored."""
    return _hash(f"{' '.join(command.split())}\0{os.path.normpath(cwd) if cwd else ''}")


def _hash(text: str) -> str:
    from hashlib import blake2b  # late: it loads OpenSSL, which takes some ms

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
