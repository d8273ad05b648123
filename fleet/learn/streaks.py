"""From the log of attempts to what is open: who failed how often at what, which door is closed, which mutation worked.

Pure: lines in, a state out, and back to fewer lines. A *streak* is consecutive failures of one command family with one
normalised error in one session. A success of the family ends it, another error begins a new one, other families do not
touch it. A *try* is the last failure of one very command within a streak; it is open again once something has changed,
or a mutation was declared, after it.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Event = dict[str, Any]
    Where = tuple[str, str]  # session, family

TRIES_KEPT_MAX = 50
WON_KEPT_MAX = 50
DAYS_KEPT = 7
_DAY_NS = 24 * 3600 * 1_000_000_000
_TEXTS = (
    "event",
    "session",
    "family",
    "key",
    "error",
    "said",
    "command",
    "id",
    "code",
    "name",
    "failed",
    "switch",
    "why",
)


class Try:
    """The last failure of one command.

    Attributes:
        command: as it was typed, screened and cut.
        at_ns: when it failed, by the clock of the file system (see ``changes.moment``).
        is_open: whether something was changed or declared since.
    """

    __slots__ = ("at_ns", "command", "is_open")

    def __init__(self, command: str, at_ns: int) -> None:
        self.command = command
        self.at_ns = at_ns
        self.is_open = False


class Streak:
    """Consecutive failures with one error.

    Attributes:
        session: whose.
        family: of the commands.
        error: a hash of the normalised error.
        said: the line that a person is shown.
        count: how many.
        tries: each command's last failure, by its key, oldest first.
    """

    __slots__ = ("count", "error", "family", "said", "session", "tries")

    def __init__(self, session: str, family: str, error: str) -> None:
        self.session = session
        self.family = family
        self.error = error
        self.said = ""
        self.count = 0
        self.tries: dict[str, Try] = {}

    @property
    def last(self) -> Try:
        """The newest failure."""
        return next(reversed(self.tries.values()))

    def is_closed(self, limit: int) -> bool:
        """Tell whether some command would be stopped if no file has changed since."""
        return self.count >= limit and not all(each.is_open for each in self.tries.values())


class State:
    """What a log of attempts comes to.

    Attributes:
        streaks: the open ones by session and family.
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
        """Return the open streaks of a session; of all of them for ""."""
        return [streak for streak in self.streaks.values() if session in ("", streak.session)]

    def waiting(self, session: str, family: str) -> list[Event]:
        """Return the declared mutations that a success of this family would crown."""
        return [*self.pending.get((session, family), ()), *(self.pending.get(("", family), ()) if session else ())]


def events(data: bytes) -> Iterator[Event]:
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


def fold(found: Iterable[Event]) -> State:
    """Return what the events come to, in the order in which they were written."""
    state = State()
    for event in found:
        step = _STEPS.get(event.get("event", ""))
        if step is not None:
            step(state, event)
    return state


def _failed(state: State, event: Event) -> None:
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
    streak.tries[key] = Try(event.get("command", ""), at_ns)


def _passed(state: State, event: Event) -> None:
    where = (event.get("session", ""), event.get("family", ""))
    state.streaks.pop(where, None)
    for mutation in state.waiting(*where):
        state.declared.pop(mutation["id"], None)
    state.pending.pop(where, None)
    state.pending.pop(("", where[1]), None)
    if event.get("changes"):
        _changed(state, event)


def _changed(state: State, event: Event) -> None:
    for streak in state.of(event.get("session", "")):
        for each in streak.tries.values():
            each.is_open = True


def _declared(state: State, event: Event) -> None:
    _changed(state, event)
    families = event.get("families")
    if not event.get("id"):
        return
    state.declared[event["id"]] = event
    for family in families if isinstance(families, list) else ():
        state.pending.setdefault((event.get("session", ""), str(family)), []).append(event)


def _won(state: State, event: Event) -> None:
    if not event.get("id"):
        return
    state.won[event["id"]] = event
    state.declared.pop(event["id"], None)
    for where, waiting in list(state.pending.items()):
        left = [mutation for mutation in waiting if mutation["id"] != event["id"]]
        state.pending[where] = left
        if not left:
            del state.pending[where]


def _dropped(state: State, event: Event) -> None:
    state.won.pop(event.get("id", ""), None)


_STEPS = {
    "failed": _failed,
    "passed": _passed,
    "changed": _changed,
    "declared": _declared,
    "won": _won,
    "dropped": _dropped,
}


def shortened(data: bytes, now_ns: int, bytes_max: int) -> bytes:
    """Return a log that comes to the same as this one, as far as it is young enough and has room.

    Newest first in their claim on the room: what worked, then the streaks.
    """
    state = fold(events(data))
    oldest_ns = now_ns - DAYS_KEPT * _DAY_NS
    kept = [as_line(event) for event in list(state.won.values())[-WON_KEPT_MAX:]]
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
    mutations = [as_line(event) for event in waiting[-WON_KEPT_MAX:]]
    if sum(map(len, mutations)) > room:
        mutations = []
    return b"".join([*kept, *_in_order(chosen, mutations)])


def _in_order(streaks: list[Streak], mutations: list[bytes]) -> Iterator[bytes]:
    """Yield the lines such that what was open is open again: before what opens it, or behind."""
    lines = [_lines_of(streak) for streak in reversed(streaks)]
    for opened, _ in lines:
        yield from opened
    for session in dict.fromkeys(streak.session for streak in streaks):
        yield as_line({"event": "changed", "session": session})
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
            "at_ns": each.at_ns,
            "times": rest,
        }
        found[not each.is_open].append(as_line(event))
        rest = 1
    return found


def _at(event: Event) -> int:
    at_ns = event.get("at_ns")
    return at_ns if type(at_ns) is int else 0


def as_line(event: Event) -> bytes:
    """Return an event as one line."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
