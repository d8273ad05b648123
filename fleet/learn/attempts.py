"""What was tried and failed, and whether the same may be tried again: the mutation protocol's memory.

``.fleet/attempts/<agent>.jsonl``, append-only, one line one ``write(2)``. Local to this machine, and no promise hangs
on it: without it nothing is stopped. Hooks ask before every command, so this imports ``os`` alone until a log is there.

**The door.** After ``limit`` consecutive failures of one command family with one normalised error, a command that
failed among them is stopped, as long as nothing has changed since that failure. It is open when

1. a file changed below the workspace or the working folder (``changes``), or a host reported an edit;
2. another command succeeded that may have changed something outside: an install, a service started, a process killed;
3. a mutation was declared; that opens it for one more try, since the next failure is later than it.

Another command is never stopped; one that sleeps before it looks is a poll, and is not, unless it builds or tests.
"""

from __future__ import annotations

import os

from fleet.learn import attemptlog
from fleet.learn.attemptlog import root_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    from fleet.learn.attemptlog import Where
    from fleet.learn.streaks import Event, State, Streak

    class Settings(Protocol):
        """``[attempts]`` of ``fleet.toml``."""

        @property
        def limit(self) -> int:
            """After so many failures the door closes."""

        @property
        def off(self) -> bool:
            """Whether nothing is ever stopped."""

        @property
        def builds(self) -> Iterable[str]:
            """Which commands are builds and tests."""

        @property
        def names(self) -> Mapping[str, str]:
            """What the mutations are called here."""


COMMAND_CHARS_MAX = 200
SAID_CHARS_MAX = 200
WAY_OUT = 'fleet mutate M5 --failed "what does not work" --switch "what you do instead" --why "why it should work"'


class Blocked:
    """A command that is stopped.

    Attributes:
        command: as it was typed last time, screened and cut.
        family: what it is about.
        count: consecutive failures.
        said: the last line of the error that says something.
    """

    __slots__ = ("command", "count", "family", "names", "said")

    def __init__(self, streak: Streak, command: str, names: Mapping[str, str]) -> None:
        self.command = command
        self.family = streak.family
        self.count = streak.count
        self.said = streak.said
        self.names = names

    def message(self) -> str:
        """Return what the agent is told: what happened, what it means, and the ways out. Fit for a terminal."""
        from fleet.keep.screening import for_terminal, redact
        from fleet.learn.strategies import named

        rows = [
            f"fleet: stopped before another try of `{self.command}`",
            f"{self.count} failures in a row had the same error, and no file has changed since its last one:",
            f"    {self.said or '(no output)'}",
            "The same again would fail the same way. Nothing is lost, and any other command is free.",
            "Either change something first: an edit opens this command again.",
            "Or declare another strategy, which allows one more try:",
            f"    {WAY_OUT}",
            *(f"  {each.code} {each.name}: {each.when}" for each in named(self.names)),
        ]
        return redact(for_terminal("\n".join(rows)))


def verdict(
    where: Where, agent: str, session: str, command: str, cwd: str = "", *, settings: Settings | None = None
) -> Blocked | None:
    """Return why a command is stopped, or None: it may run. Never raises: in doubt, it may.

    Args:
        where: the workspace, or the path of its root.
        agent: whose session.
        session: the host's id of it.
        command: what is about to run.
        cwd: where.
        settings: ``[attempts]``; read from ``fleet.toml`` when it is needed and not given.
    """
    try:
        root = root_of(where)
        data = attemptlog.read(root, agent)
        return _judged(root, session, command, cwd, data, settings) if data else None
    except (OSError, ValueError):
        return None


def _judged(root: str, session: str, command: str, cwd: str, data: bytes, settings: Settings | None) -> Blocked | None:
    key = _key(command, cwd)
    if key.encode() not in data:  # most commands: nothing need be decoded
        return None
    from fleet.learn import changes, commands, streaks

    streak = streaks.fold(streaks.events(data)).streaks.get((session, commands.family(command)))
    tried = streak.tries.get(key) if streak is not None else None
    if streak is None or tried is None or tried.is_open or streak.count < 2:
        return None
    settings = settings if settings is not None else read_settings(root)
    if settings.off or streak.count < settings.limit:
        return None
    if commands.waits(command) and not commands.is_build(command, settings):
        return None
    if changes.any_since(root, cwd, tried.at_ns):
        return None
    return Blocked(streak, tried.command, settings.names)


def note_failure(
    where: Where, agent: str, session: str, command: str, error: str = "", exit_code: int | None = None, cwd: str = ""
) -> int:
    """Note that a command failed; return how many failures in a row this makes. A failure on a person's stop is none.

    Raises:
        DiskError: it could not be noted.
    """
    from fleet.learn import changes, commands, streaks, symptoms

    normal = symptoms.normalised(error) or f"exit {exit_code}"
    event: Event = {
        "event": "failed",
        "session": session,
        "family": commands.family(command),
        "key": _key(command, cwd),
        "error": _hash(normal),
        "said": _fit(
            symptoms.last_line(error) or (f"exit {exit_code}" if exit_code is not None else ""), SAID_CHARS_MAX
        ),
        "command": _fit(commands.one_line(command[: 4 * COMMAND_CHARS_MAX]), COMMAND_CHARS_MAX),
        "exit": exit_code,
        "at_ns": 0,
    }

    def at_its_moment(handle: int) -> bytes:
        event["at_ns"] = changes.moment(handle)
        return streaks.as_line(event)

    root = root_of(where)
    attemptlog.append(root, agent, at_its_moment)
    streak = state(root, agent).streaks.get((session, event["family"]))
    return streak.count if streak is not None else 0


def note_success(where: Where, agent: str, session: str, command: str, cwd: str = "") -> list[str]:  # noqa: ARG001
    """Note that a command succeeded; return the ids of the mutations that it shows to have worked.

    Costs a ``stat`` where nothing is open. It ends its family's streak, and opens the doors of other families unless it
    only looked. A mutation that worked is written into the journal, too.

    Raises:
        DiskError: it could not be noted.
    """
    root = root_of(where)
    data = attemptlog.read(root, agent)
    if not data or _quoted(session) not in data:
        return []
    from fleet.learn import commands, streaks

    found = streaks.fold(streaks.events(data))
    family = commands.family(command)
    won = found.waiting(session, family)
    is_end = (session, family) in found.streaks
    changes_others = any(
        not each.is_open for streak in found.of(session) if streak.family != family for each in streak.tries.values()
    ) and not commands.only_looks(command)
    if not (won or is_end or changes_others):
        return []
    event: Event = {"event": "passed", "session": session, "family": family, "changes": changes_others}
    attemptlog.append(root, agent, lambda _: streaks.as_line(event))
    if won:
        from fleet.learn import mutations

        for mutation in won:
            mutations.record_success(where, agent, mutation, _fit(commands.one_line(command), COMMAND_CHARS_MAX))
    return [mutation["id"] for mutation in won]


def note_edit(where: Where, agent: str, session: str, path: str = "") -> None:
    """Note that a host reported an edit: what failed before it may be tried again.

    Args:
        where: the workspace, or the path of its root.
        agent: whose session.
        session: the host's id of it.
        path: what was edited; fleet's own files are no change. It is not kept.

    Raises:
        DiskError: it could not be noted.
    """
    from fleet.learn import changes

    root = root_of(where)
    data = attemptlog.read(root, agent)
    if not data or _quoted(session) not in data or (path and changes.is_own(root, path)):
        return
    if any(not each.is_open for streak in state(root, agent).of(session) for each in streak.tries.values()):
        append(root, agent, {"event": "changed", "session": session})


def family(command: str) -> str:
    """Return what a command is about (``commands.family``)."""
    from fleet.learn import commands

    return commands.family(command)


def normalised(error: str) -> str:
    """Return what stays the same from one run of a failure to the next (``symptoms.normalised``)."""
    from fleet.learn import symptoms

    return symptoms.normalised(error)


def is_build(command: str, settings: Settings | None = None) -> bool:
    """Tell whether a command builds or tests (``commands.is_build``)."""
    from fleet.learn import commands

    return commands.is_build(command, settings)


def state(where: Where, agent: str) -> State:
    """Return what is open."""
    from fleet.learn import streaks

    return streaks.fold(streaks.events(attemptlog.read(root_of(where), agent)))


def append(where: Where, agent: str, event: Event) -> None:
    """Add one event to an agent's log.

    Raises:
        DiskError: it could not be noted.
    """
    from fleet.learn import streaks

    line = streaks.as_line(event)
    attemptlog.append(root_of(where), agent, lambda _: line)
    if event["event"] in ("won", "dropped"):
        attemptlog.mark(root_of(where), agent)


class _Read:
    """``[attempts]`` as it stands in the file, without the library that checks it: a hook has no time for that."""

    __slots__ = ("builds", "limit", "names", "off")

    def __init__(self, told: object) -> None:
        from fleet.keep.builds import BUILDS
        from fleet.keep.limits import ATTEMPTS_MAX

        table: dict[str, object] = told if isinstance(told, dict) else {}
        limit, builds, names = table.get("limit", ATTEMPTS_MAX), table.get("builds", BUILDS), table.get("names", {})
        self.limit = limit if isinstance(limit, int) else ATTEMPTS_MAX
        self.off = table.get("off", False) is not False or self.limit < 2
        self.builds = tuple(build for build in builds if isinstance(build, str)) if isinstance(builds, list) else BUILDS
        self.names = {code: str(name) for code, name in names.items()} if isinstance(names, dict) else {}


def read_settings(where: Where) -> Settings:
    """Read ``[attempts]`` with the standard library alone. A file that cannot be read stops nothing."""
    import tomllib

    try:
        with open(attemptlog.join(root_of(where), "fleet.toml"), encoding="utf-8-sig") as file:  # noqa: PTH123
            return _Read(tomllib.loads(file.read()).get("attempts"))
    except FileNotFoundError:
        return _Read({})
    except (OSError, ValueError):
        return _Read({"off": True})


def _quoted(session: str) -> bytes:
    """Return a session as it stands in a line."""
    import json

    return json.dumps(session).encode()


def _key(command: str, cwd: str) -> str:
    """Return what makes a command the same one: its words in order, and where it runs. No command is kept as it is."""
    return _hash(f"{' '.join(command.split())}\0{os.path.normpath(cwd) if cwd else ''}")


def _hash(text: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _fit(text: str, chars_max: int) -> str:
    """Screen a text and cut it, in this order: half of a secret is not known as one."""
    from fleet.keep.screening import one_line, screen

    clean = one_line(screen(text).text)
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + "…"
