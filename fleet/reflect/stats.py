"""Statistics of whether the fleet learns, and their plot: pure, from records and from what the logs counted.

Counters have no times, so those of exposures and relapses are known for this machine alone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any, NamedTuple

from crdt import clock
from fleet.model.pattern import Pattern
from fleet.reflect.exposure import Exposure, promoted_ms
from fleet.text.screening import counted, shortened

SHOWN_MIN = 20
"""Least number of showings of a lesson that is said to have never helped."""

_HOUR_MS = 3_600_000
_FIRST_MS = 946_684_800_000  # 2000: an earlier stamp is no date
_WEEKS_SHOWN = 16
_LESSONS_SHOWN = 10
_WIDTH_MIN = 40
_COLUMNS_EACH_MAX = 3
_FRESH, _AGAIN = "█", "░"
_FIGURES_CHARS = len("2026-W47  9999  100% relapses")
_WEEKS_MAX = 520  # ten years: an older date stretches no plot


_Happened = tuple[str, int, bool]
"""Correction that this machine counted: its lesson, its time, and whether the lesson had been shown before."""


class _Rate(NamedTuple):
    """Relapses over exposures in a period; None: unknown."""

    relapsed: int
    shown: int | None

    @property
    def value(self) -> float | None:
        """Relapses per exposure."""
        return self.relapsed / self.shown if self.shown else None

    def as_json(self) -> dict[str, Any]:
        return {"relapsed": self.relapsed, "shown": self.shown, "rate": _rounded(self.value)}

    def __str__(self) -> str:
        return f"{self.relapsed:,}/{'?' if self.shown is None else f'{self.shown:,}'}"


class _Lesson(NamedTuple):
    """Lesson that was shown or relapsed, a merged set as one.

    Attributes:
        published_ms: time of its promotion; None for none, or an unknown one.
        before: the rate here until then, or of all times; ``after``: since then, None without a promotion.
        failing: why it does not work, or "".
        uncounted: its showings here that its record does not have yet.
    """

    pattern: Pattern
    published_ms: int | None
    before: _Rate
    after: _Rate | None
    failing: str
    uncounted: int = 0

    @property
    def whole(self) -> _Rate:
        """Relapses over exposures of the clan; this machine's uncounted exposures are included, like its relapses."""
        return _Rate(self.pattern.count("relapsed"), self.pattern.count("shown") + self.uncounted)

    @property
    def never_helped(self) -> bool:
        """True where it was shown often, helped nobody, and left its mistake as frequent as before.

        A lesson without relapses is never among these, since it may have prevented all of them.
        """
        relapsed, shown = self.whole
        if (shown or 0) < SHOWN_MIN or self.pattern.count("helped") or not relapsed:
            return False
        before, after = self.before.value, self.after.value if self.after is not None else None
        return before is None or after is None or after >= before

    def as_json(self) -> dict[str, Any]:
        pattern = self.pattern
        published = None if self.published_ms is None else clock.pack(self.published_ms)[:16] + "Z"
        return {
            "id": pattern.id,
            "text": pattern.text,
            "seen": pattern.count("seen"),
            "shown": self.whole.shown,
            **{name: pattern.count(name) for name in ("relapsed", "helped", "hurt")},
            "rate": self.whole.as_json()["rate"],
            "published": published,
            "before": self.before.as_json(),
            "after": self.after.as_json() if self.after is not None else None,
        }


class Stats(NamedTuple):
    """Statistics of ``fleet stats``.

    Attributes:
        weeks: (ISO week, corrections, relapses among them), every week from the first to the last, UTC.
        hours: from the first correction anywhere to the promotion, by id of the lesson.
        unfilled: corrections here whose lesson is not stated.
    """

    weeks: Sequence[tuple[str, int, int]]
    lessons: Sequence[_Lesson]
    hours: Mapping[str, float]
    unfilled: int

    def as_json(self) -> dict[str, Any]:
        """Return the output of ``fleet stats --json`` (docs/formats.md)."""
        return {
            "weeks": [{"week": week, "corrections": made, "relapses": again} for week, made, again in self.weeks],
            "unfilled": self.unfilled,
            "lessons": [each.as_json() for each in self.lessons],
            "not_working": [
                {"id": each.pattern.id, "text": each.pattern.text, "reason": each.failing}
                for each in self.lessons
                if each.failing
            ],
            "never_helped": [each.pattern.id for each in self.lessons if each.never_helped],
            "to_fleet": {
                "median_hours": _rounded(median(self.hours.values())) if self.hours else None,
                "lessons": [{"id": each, "hours": _rounded(hours)} for each, hours in sorted(self.hours.items())],
            },
        }

    def render(self, width: int, readable: Callable[[object], str]) -> str:
        """Return the statistics as text."""
        width = max(width, _WIDTH_MIN)
        parts = [
            _drawn_weeks(self.weeks, width),
            _drawn_lessons(self.lessons, readable),
            _listed("Not working", [(each, each.failing) for each in self.lessons if each.failing], readable),
            _listed("Never helped", [(each, "") for each in self.lessons if each.never_helped], readable),
        ]
        if self.hours:
            middle, number = _span(median(self.hours.values())), counted(len(self.hours), "lesson")
            parts.append([f"From first correction to the fleet's memory: {middle} in the middle of {number}"])
        if self.unfilled:
            parts.append([f"{self.unfilled:,} without a lesson yet: fleet learn --waiting"])
        return "\n\n".join("\n".join(shortened(row, width) for row in rows) for rows in parts if rows)


def measure(
    patterns: Iterable[Pattern],
    happened: Sequence[_Happened],
    exposures: Mapping[str, Exposure],
    *,
    failing: Callable[[Pattern], str],
    members: Callable[[str], Iterable[str]] = lambda pattern_id: (pattern_id,),
    unfilled: int = 0,
) -> Stats:
    """Return the statistics.

    ``failing``: returns why a lesson does not work, or "".
    ``members``: returns the records of a lesson.
    """
    by_pattern: dict[str, list[_Happened]] = defaultdict(list)
    for each in happened:
        by_pattern[each[0]].append(each)
    lessons, hours = [], {}
    for pattern in patterns:
        published_ms = _dated(promoted_ms(pattern))
        first_ms = _dated(clock.unpack(pattern.at)[0])
        if published_ms is not None and first_ms is not None:
            hours[pattern.id] = max(0.0, (published_ms - first_ms) / _HOUR_MS)
        ids = list(members(pattern.id))
        mine = [each for member in ids for each in by_pattern.get(member, ())]
        exposed = [exposures[member] for member in ids if member in exposures]
        why = failing(pattern)
        if exposed or why or pattern.count("shown") or pattern.count("relapsed"):
            rates, uncounted = _rates(pattern, mine, exposed, published_ms), sum(each.uncounted for each in exposed)
            lessons.append(_Lesson(pattern, published_ms, *rates, why, uncounted))
    lessons.sort(key=lambda lesson: (lesson.pattern.count("shown"), lesson.pattern.last_seen), reverse=True)
    return Stats(_weeks(happened), lessons, hours, unfilled)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _rates(
    pattern: Pattern, mine: Sequence[_Happened], exposed: Sequence[Exposure], published_ms: int | None
) -> tuple[_Rate, _Rate | None]:
    """Return relapses over exposures here, before and after the promotion."""
    shown = sum(each.shown for each in exposed)
    relapses = [at_ms for _, at_ms, is_relapse in mine if is_relapse]
    if pattern.state != "published":
        return _Rate(len(relapses), shown), None
    if published_ms is None:  # published before it came here, at an unknown time
        return _Rate(0, 0), _Rate(len(relapses), shown)
    before = sum(at_ms <= published_ms for at_ms in relapses)
    after = len(relapses) - before
    earlier = [each.before for each in exposed if each.before is not None]
    if len(earlier) < len(exposed):
        return _Rate(before, None), _Rate(after, None)
    return _Rate(before, sum(earlier)), _Rate(after, shown - sum(earlier))


def _dated(ms: int | None) -> int | None:
    """Return a wall time; None for an impossible one."""
    return ms if ms is not None and ms >= _FIRST_MS else None


def _weeks(happened: Sequence[_Happened]) -> list[tuple[str, int, int]]:
    """Return every week from the first correction to the last, the empty ones too."""
    made, again = Counter[date](), Counter[date]()
    for _, at_ms, is_relapse in happened:
        day = datetime.fromtimestamp(at_ms / 1000, UTC).date()
        monday = day - timedelta(days=day.weekday())
        made[monday] += 1
        again[monday] += is_relapse
    if not made:
        return []
    last = max(made)
    number = min((last - min(made)).days // 7 + 1, _WEEKS_MAX)
    mondays = (last - timedelta(weeks=weeks) for weeks in reversed(range(number)))
    return [(f"{each:%G-W%V}", made[each], again[each]) for each in mondays]


# --- for a terminal: plain text and blocks, no colour ---------------------------------------------------------------


def _drawn_weeks(weeks: Sequence[tuple[str, int, int]], width: int) -> list[str]:
    if not weeks:
        return ["no correction was counted on this machine yet"]
    drawn = weeks[-_WEEKS_SHOWN:]
    most = max(corrections for _, corrections, _ in drawn) or 1
    room = max(min(width - _FIGURES_CHARS, most * _COLUMNS_EACH_MAX), 8)
    rows = [f"Corrections per week on this machine: {_FRESH} new, {_AGAIN} relapses"]
    if len(weeks) > len(drawn):
        rows.append(f"({len(weeks) - len(drawn):,} earlier weeks: --json)")
    for week, corrections, again in drawn:
        length = max(round(room * corrections / most), 1) if corrections else 0
        dim = min(max(round(length * again / corrections), 1), length) if again else 0
        bar = _FRESH * (length - dim) + _AGAIN * dim
        rate = f"  {100 * again / corrections:3.0f}% relapses" if corrections else ""
        rows.append(f"{week} {bar:<{room}} {corrections:>4}{rate}".rstrip())
    return rows


def _drawn_lessons(lessons: Sequence[_Lesson], readable: Callable[[object], str]) -> list[str]:
    if not lessons:
        return []
    rows = ["Relapses over exposures: of the clan, then here before > after promotion"]
    for lesson in lessons[:_LESSONS_SHOWN]:
        figures = str(lesson.before) + (f" > {lesson.after}" if lesson.after is not None else "")
        rows.append(f"  {lesson.whole!s:>9}   {figures:<19} {readable(lesson.pattern.text)}")
    if len(lessons) > _LESSONS_SHOWN:
        rows.append(f"  and {len(lessons) - _LESSONS_SHOWN:,} more: --json")
    return rows


def _listed(title: str, entries: Sequence[tuple[_Lesson, str]], readable: Callable[[object], str]) -> list[str]:
    rows = [f"{title} ({len(entries):,})"] if entries else []
    for each, why in entries[:_LESSONS_SHOWN]:
        rows += [f"  {each.pattern.id}  {readable(each.pattern.text)}", *([f"    {why}"] if why else [])]
    return rows


def _span(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
