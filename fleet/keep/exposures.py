"""When lessons were shown to an agent here: so that what came before a promotion can be told from what came after it.

``.fleet/shown/<agent>.when.json`` holds spans by lesson: ``[first, last, number]``, milliseconds since 1970. What was
shown lately is told showing by showing; the oldest spans are joined once a lesson has many, never across its promotion
as far as that is known. So a promotion that arrives from another machine, days late, still finds exact times. Only
where one falls inside a joined span is the share before it unknown, and is said to be.

Apart from ``shown``, since hooks read that, and nobody waits for this.
"""

import calendar
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from crdt import clock
from fleet.keep import limits, shown
from fleet.keep.line import Line

SPANS_MIN = 2
_DAY_MS = 86_400_000
_NEVER_MS = 2**53


class Span(NamedTuple):
    """Showings of one lesson: from when until when, milliseconds since 1970, and how many."""

    first: int
    last: int
    number: int


class Seen:
    """When each lesson was shown. Damaged text begins anew: the totals tell how much is missing.

    Args:
        data: the file's bytes.

    Attributes:
        through: the last day that is folded.
        spans: id to spans, oldest first.
    """

    def __init__(self, data: bytes = b"") -> None:
        try:
            found = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            found = {}
        found = found if isinstance(found, dict) else {}
        through, spans = found.get("through"), found.get("spans")
        self.through: str = through if isinstance(through, str) else ""
        self.spans: dict[str, list[Span]] = {}
        for pattern, each in spans.items() if isinstance(spans, dict) else ():
            if shown.is_pattern(pattern) and isinstance(each, list):
                self.spans[pattern] = sorted(filter(None, map(_span, each)))

    def encoded(self) -> bytes:
        """Return the file's bytes."""
        return json.dumps({"through": self.through, "spans": self.spans}, separators=(",", ":")).encode()

    def fill(self, totals: shown.Totals) -> None:
        """Add what was counted and has no time: one span from when it may have been until when it was folded."""
        until_ms = _end_of(totals.through)
        self.through = max(self.through, totals.through)
        for pattern, total in totals.counts().items():
            known = self.spans.get(pattern, [])
            if (missing := total - sum(each.number for each in known)) > 0:
                # Where some have a time and others have not, notes were lost, and the first showing with them.
                first_ms = 0 if known else min(totals.first.get(pattern, 0), until_ms)
                self.spans[pattern] = sorted([Span(first_ms, until_ms, missing), *known])

    def fold(self, days: Mapping[str, str]) -> None:
        """Add whole days, showing by showing: day to the path of its notes. A day that is folded is passed over."""
        fresh = {day: path for day, path in days.items() if day > self.through}
        added: dict[str, list[Span]] = {}
        for path in fresh.values():
            for at_ms, ids in shown.notes(path):
                for pattern in ids:
                    added.setdefault(pattern, []).append(Span(at_ms, at_ms, 1))
        for pattern, spans in added.items():
            self.spans[pattern] = sorted([*self.spans.get(pattern, ()), *spans])
        self.through = max([self.through, *fresh])

    def shorten(self, promoted_ms: Callable[[str], int | None]) -> None:
        """Join the oldest spans of lessons that have too many.

        Args:
            promoted_ms: when a lesson was promoted, as far as that is known: nothing is joined across it.
        """
        if len(self.spans) > limits.SHOWN_REMEMBERED_MAX:
            newest = sorted(self.spans.items(), key=lambda one: (-one[1][-1].last, one[0]))
            self.spans = dict(newest[: limits.SHOWN_REMEMBERED_MAX])
        each_max = limits.SHOWN_SPANS_EACH_MAX
        if sum(map(len, self.spans.values())) > limits.SHOWN_SPANS_MAX:
            each_max = max(SPANS_MIN, min(each_max, limits.SHOWN_SPANS_MAX // len(self.spans)))
        for pattern, spans in self.spans.items():
            if len(spans) > each_max:
                self.spans[pattern] = _fewer(spans, each_max, promoted_ms(pattern))


def _fewer(spans: Sequence[Span], most: int, cut_ms: int | None) -> list[Span]:
    found = list(spans)
    at = 0
    while len(found) > most:
        one, next_one = found[at : at + 2]
        if cut_ms is not None and one.last <= cut_ms < next_one.first and at + 2 < len(found):
            at += 1  # there is one such place at most: what follows is joined instead
            continue
        found[at : at + 2] = [Span(one.first, max(one.last, next_one.last), one.number + next_one.number)]
    return found


def known(root: str, agent: str) -> dict[str, list[Span]]:
    """Return when each lesson was shown to this agent here: what is folded, and the days that are not."""
    seen = Seen(shown.read(when_file(root, agent)))
    seen.fill(shown.Totals(shown.read(shown.totals_file(root, agent))))
    seen.fold(shown.day_files(root, agent))
    return seen.spans


def before(spans: Iterable[Span], at_ms: int) -> int | None:
    """Return how many showings there were until a point in time; None where a span lies on both sides of it."""
    total = 0
    for each in spans:
        if each.last <= at_ms:
            total += each.number
        elif each.first <= at_ms:
            return None
    return total


def promoted_ms(line: Line | None) -> int | None:
    """Return when a lesson was promoted for the clan; None if it was not, or nobody knows when."""
    if line is None or line.set.get("state") != "published" or "state" not in line.when:
        return None
    return clock.unpack(line.when["state"][0])[0]


def when_file(root: str, agent: str) -> str:
    """Return the path of the file."""
    return shown.totals_file(root, agent).removesuffix(".json") + ".when.json"


def _span(found: object) -> Span | None:
    if not isinstance(found, list) or len(found) != len(Span._fields) or any(type(each) is not int for each in found):
        return None
    span = Span(*found)
    return span if span.first <= span.last and span.number > 0 else None


def _end_of(day: str) -> int:
    try:
        return calendar.timegm(time.strptime(day, "%Y-%m-%d")) * 1000 + _DAY_MS - 1
    except ValueError:
        return _NEVER_MS
