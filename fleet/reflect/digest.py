"""Digest of a session: what a reflector reads of a transcript, screened, within a budget of tokens.

The first and the last tenth are whole. Of what is between, the person's words come first, then what was refused and
stopped, failures with the success that came next, what the agent concluded, what else it said, what it called; the
output of tools is dropped first. What was left out is said. Every row has the number of its line in the transcript.

All of it is somebody else's text: nothing here acts on it, and no host's frame in it is left alive.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fleet.text import screening, shell
from fleet.text.prompts import is_typed

TOKENS_MAX = 24_000
_EDGE_SHARE = 0.1
_EDGE_BUDGET_SHARE = 0.3
"""So much of the budget the first tenth may take, and the last one."""
_HEAD_TOKENS = 120
_CHARS_MAX = {"person": 2_000, "host": 300, "refused": 2_000, "failed": 800, "agent": 800, "call": 300, "output": 400}
_WHOLE_CHARS_MAX = 6_000
_RANKS = ("person", "refused", "failed", "solved", "concluded", "agent", "call", "host", "output")
_NAMES = {
    "person": "words of the person",
    "refused": "refusals",
    "failed": "failures",
    "solved": "calls that worked after a failure",
    "concluded": "conclusions of the agent",
    "agent": "other words of the agent",
    "call": "calls",
    "host": "messages of the host",
    "output": "outputs of tools",
}


class Told(Protocol):
    """One thing that a transcript tells of."""

    @property
    def kind(self) -> str:
        """Is prompt, said, call, result, refused or stopped."""

    @property
    def id(self) -> str:
        """Names the call."""

    @property
    def text(self) -> str:
        """What was typed, said or printed."""

    @property
    def tool(self) -> str:
        """What was called."""

    @property
    def about(self) -> str:
        """The part of the call that says most."""

    @property
    def is_ok(self) -> bool:
        """False for a result that is an error."""

    @property
    def at(self) -> str:
        """When, as the client writes it."""

    @property
    def line(self) -> int:
        """The number of its line, from 1."""


class Digest(NamedTuple):
    """What a reflector reads.

    Attributes:
        text: rows of ``[line] who: what``.
        tokens: about so many.
        left_out: what there was no room for, in a sentence; "" where all of it is there.
        lines: numbers of the transcript's lines that are in it.
        secrets: kinds of secrets that were taken out.
    """

    text: str
    tokens: int
    left_out: str
    lines: tuple[int, ...]
    secrets: tuple[str, ...]


class _Row(NamedTuple):
    rank: str
    label: str
    text: str
    line: int


def digest(events: Sequence[Told], tokens_max: int = TOKENS_MAX) -> Digest:
    """Return the digest of a session.

    Args:
        events: in order.
        tokens_max: how long it may be, about.
    """
    rows = _rows(events)
    edge = max(1, round(len(rows) * _EDGE_SHARE)) if rows else 0
    room, kept, secrets = tokens_max - _HEAD_TOKENS, dict[int, str](), set[str]()
    begin, end = range(edge), range(max(edge, len(rows) - edge), len(rows))
    for part in (begin, end):
        left = _take(rows, part, int(tokens_max * _EDGE_BUDGET_SHARE), kept, secrets, is_whole=True)
        room -= int(tokens_max * _EDGE_BUDGET_SHARE) - left
    between = [number for number in range(len(rows)) if number not in kept]
    for rank in _RANKS:
        # The newest first: what a session came to stands near its end.
        wanted = [number for number in reversed(between) if rows[number].rank == rank]
        room = _take(rows, wanted, room, kept, secrets, is_whole=False)
    left_out = Counter(row.rank for number, row in enumerate(rows) if number not in kept)
    said = ", ".join(f"{left_out[rank]:,} {_NAMES[rank]}" for rank in _RANKS if left_out[rank])
    told = f"Left out for want of room: {said}." if said else ""
    text = "\n".join([*(kept[number] for number in sorted(kept)), *filter(None, [told])])
    lines = tuple(sorted({rows[number].line for number in kept}))
    return Digest(text, tokens(text), told, lines, tuple(sorted(secrets)))


def tokens(text: str) -> int:
    """Return about how many tokens a text is: four letters each, and one for each sign beyond ASCII."""
    if text.isascii():
        return len(text) // 4 + 1
    wide = sum(char > "\x7f" for char in text)
    return (len(text) - wide) // 4 + wide + 1


def _take(
    rows: Sequence[_Row], wanted: Sequence[int], room: int, kept: dict[int, str], secrets: set[str], *, is_whole: bool
) -> int:
    """Keep what there is room for; return the room that is left. In a part that is to be whole, output goes first."""
    ranked = sorted(wanted, key=lambda number: _RANKS.index(rows[number].rank)) if is_whole else wanted
    for number in ranked:
        if room < 8:
            break
        row = rows[number]
        text, kinds = _shown(row, _WHOLE_CHARS_MAX if is_whole else _CHARS_MAX.get(row.rank, 800))
        cost = tokens(text) + 1
        if cost <= room:
            kept[number] = text
            secrets.update(kinds)
            room -= cost
    return room


def _shown(row: _Row, chars_max: int) -> tuple[str, tuple[str, ...]]:
    """Return a row as it is read, and the kinds of secrets that were in it. Screened first, then cut."""
    clean = screening.screen(row.text, home=str(Path.home()))
    text = "\n    ".join(line.rstrip() for line in clean.text.strip().split("\n") if line.strip())
    if len(text) > chars_max:
        text = f"{text[: chars_max * 2 // 3].rstrip()} […] {text[-chars_max // 3 :].lstrip()}"
    return f"[{row.line}] {row.label}: {screening.inert(text)}".rstrip(": "), clean.secrets


def _rows(events: Sequence[Told]) -> list[_Row]:
    rows: list[_Row] = []
    calls: dict[str, Told] = {}
    failing: set[str] = set()
    for event in events:
        if event.kind == "prompt":
            is_theirs = is_typed(event.text)
            _conclude(rows)
            rows.append(_Row(*(("person", "person") if is_theirs else ("host", "host")), event.text, event.line))
        elif event.kind == "said":
            rows.append(_Row("agent", "agent", event.text, event.line))
        elif event.kind == "call":
            calls[event.id] = event
            rows.append(_Row("call", f"call {event.tool}", event.about, event.line))
        elif event.kind in ("refused", "stopped"):
            rows.append(_Row("refused", f"person {event.kind}", _objected(event, calls), event.line))
        elif event.kind == "result":
            rows.append(_result(event, calls.get(event.id), failing))
    _conclude(rows)
    return rows


def _conclude(rows: list[_Row]) -> None:
    """Mark the last thing that the agent said before a person speaks: what it concluded."""
    if rows and rows[-1].rank == "agent":
        rows[-1] = rows[-1]._replace(rank="concluded")


def _objected(event: Told, calls: dict[str, Told]) -> str:
    call = calls.get(event.id)
    about = f"`{call.tool} {call.about}`" if call is not None else ""
    return " ".join(filter(None, [about, f"saying: {event.text}" if event.text else ""]))


def _result(event: Told, call: Told | None, failing: set[str]) -> _Row:
    command = call.about if call is not None and call.tool == "Bash" else ""
    what = f"{call.tool} {call.about}" if call is not None else ""
    family = shell.family(command) if command else what
    if not event.is_ok:
        failing.add(family)
        return _Row("failed", "failed", f"`{what}`\n{event.text}", event.line)
    if family in failing:
        failing.discard(family)
        return _Row("solved", "worked now", f"`{what}`\n{event.text[-200:]}", event.line)
    return _Row("output", "output", event.text, event.line)
