"""Figures of whether the fleet learns: pure, from records and from what the logs counted.

Only what can be known is told. Counters bear no time, so when a lesson was shown and when its mistake was made again is
known of the notes and logs on this machine.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, NamedTuple

from crdt import clock
from fleet.model.pattern import Pattern
from fleet.reflect.exposure import promoted_ms

SHOWN_MIN = 20
"""A lesson that was shown less often cannot be said to have failed."""

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_FIRST_MS = 946_684_800_000  # 2000: what is stamped earlier bears no date
_WEEKS_MAX = 520  # ten years: an entry that tells of an older time is not drawn out to it


class Happened(NamedTuple):
    """One correction that this machine counted: of which lesson, when, and whether the lesson had been shown before."""

    pattern: str
    at_ms: int
    is_relapse: bool


class Exposure(NamedTuple):
    """Showings of one lesson to the agents here: their number, and that until its promotion; None: not known."""

    shown: int
    before: int | None


class Rate(NamedTuple):
    """Relapses over exposures in one stretch of time; None: not known."""

    relapsed: int
    shown: int | None

    @property
    def value(self) -> float | None:
        """Relapses per exposure."""
        return self.relapsed / self.shown if self.shown else None


class Lesson(NamedTuple):
    """One lesson that was ever shown or met again.

    Attributes:
        pattern: its record, a merged set as one.
        published_ms: when it was promoted for the fleet; None if it was not, or nobody knows when.
        before: here, until then; all of it where it was not promoted.
        after: here, since then; None where it was not promoted.
        failing: why it does not work, or "".
    """

    pattern: Pattern
    published_ms: int | None
    before: Rate
    after: Rate | None
    failing: str


class Stats(NamedTuple):
    """Everything that ``fleet stats`` tells.

    Attributes:
        weeks: (ISO week, corrections, relapses among them), every week from the first to the last, UTC.
        lessons: those that were shown or met again, most shown first.
        hours: per promoted lesson, id to hours from its first correction anywhere to the fleet's memory.
        unfilled: corrections here whose lesson is not stated.
        unknown: what these figures cannot tell, in words.
    """

    weeks: Sequence[tuple[str, int, int]]
    lessons: Sequence[Lesson]
    hours: Mapping[str, float]
    unfilled: int
    unknown: Sequence[str]


def measure(
    patterns: Iterable[Pattern],
    happened: Sequence[Happened],
    exposures: Mapping[str, Exposure],
    *,
    failing: Callable[[Pattern], str],
    members: Callable[[str], Iterable[str]] = lambda pattern_id: (pattern_id,),
    unfilled: int = 0,
) -> Stats:
    """Return the figures.

    Args:
        patterns: the clan's lessons, each merged set as one.
        happened: what the logs on this machine counted, in any order.
        exposures: by pattern, what was shown here.
        failing: says why a lesson does not work, or "".
        members: the records that a lesson stands for.
        unfilled: corrections whose lesson is not stated.
    """
    by_pattern: dict[str, list[Happened]] = defaultdict(list)
    for each in happened:
        by_pattern[each.pattern].append(each)
    lessons, hours = [], {}
    for pattern in patterns:
        published_ms = _dated(promoted_ms(pattern))
        first_ms = _dated(clock.unpack(pattern.at)[0])
        if published_ms is not None and first_ms is not None:
            hours[pattern.id] = max(0.0, (published_ms - first_ms) / _HOUR_MS)
        ids = list(members(pattern.id))
        mine = [each for member in ids for each in by_pattern.get(member, ())]
        seen = [exposures[member] for member in ids if member in exposures]
        why = failing(pattern)
        if seen or why or pattern.count("shown") or pattern.count("relapsed"):
            lessons.append(Lesson(pattern, published_ms, *_rates(pattern, mine, seen, published_ms), why))
    lessons.sort(key=lambda lesson: lesson.pattern.last_seen, reverse=True)
    lessons.sort(key=lambda lesson: -lesson.pattern.count("shown"))
    return Stats(_weeks(happened), lessons, hours, unfilled, _unknown(lessons))


def never_helped(lesson: Lesson) -> bool:
    """Tell whether a lesson was shown often, helped nobody, and left its mistake as frequent as it was.

    A lesson whose mistake was not made again is not among them: that is what help looks like from outside.
    """
    pattern = lesson.pattern
    shown, relapsed = pattern.count("shown"), pattern.count("relapsed")
    if shown < SHOWN_MIN or pattern.count("helped") or not relapsed:
        return False
    before, after = lesson.before.value, lesson.after.value if lesson.after is not None else None
    return before is None or after is None or after >= before


def as_found(stats: Stats) -> dict[str, Any]:
    """Return what ``fleet stats --json`` prints.

    ``weeks``: list of ``week`` (ISO, UTC: ``2026-W47``), ``corrections``, ``relapses``, from the logs on this machine,
    no week left out. ``unfilled``: corrections here without a lesson. ``lessons``: list of ``id``, ``text``, the clan's
    counters ``seen``, ``shown``, ``relapsed``, ``helped``, ``hurt`` and ``rate`` (relapsed over shown, null if never
    shown), ``published`` (a stamp's date and time, or null), and ``before`` and ``after`` its promotion, on this
    machine: ``relapsed``, ``shown`` (null: not known), ``rate``; ``after`` is null for a lesson that was not promoted.
    ``not_working``: list of ``id``, ``text``, ``reason``. ``never_helped``: list of ids. ``to_fleet``: ``median_hours``
    from the first correction to the fleet's memory (null without any), and ``lessons``: list of ``id``, ``hours``.
    ``unknown``: what the figures cannot tell.
    """
    return {
        "weeks": [{"week": week, "corrections": made, "relapses": again} for week, made, again in stats.weeks],
        "unfilled": stats.unfilled,
        "lessons": [_lesson_found(lesson) for lesson in stats.lessons],
        "not_working": [
            {"id": lesson.pattern.id, "text": lesson.pattern.text, "reason": lesson.failing}
            for lesson in stats.lessons
            if lesson.failing
        ],
        "never_helped": [lesson.pattern.id for lesson in stats.lessons if never_helped(lesson)],
        "to_fleet": {
            "median_hours": _rounded(median(stats.hours.values())) if stats.hours else None,
            "lessons": [{"id": each, "hours": _rounded(hours)} for each, hours in sorted(stats.hours.items())],
        },
        "unknown": list(stats.unknown),
    }


def _lesson_found(lesson: Lesson) -> dict[str, Any]:
    pattern = lesson.pattern
    counters = {name: pattern.count(name) for name in ("seen", "shown", "relapsed", "helped", "hurt")}
    return {
        "id": pattern.id,
        "text": pattern.text,
        **counters,
        "rate": _rounded(Rate(counters["relapsed"], counters["shown"]).value),
        "published": _iso(lesson.published_ms),
        "before": _rate_found(lesson.before),
        "after": _rate_found(lesson.after) if lesson.after is not None else None,
    }


def _rate_found(rate: Rate) -> dict[str, Any]:
    return {"relapsed": rate.relapsed, "shown": rate.shown, "rate": _rounded(rate.value)}


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _rates(
    pattern: Pattern, mine: Sequence[Happened], seen: Sequence[Exposure], published_ms: int | None
) -> tuple[Rate, Rate | None]:
    """Return relapses over exposures here, before and after the promotion."""
    shown = sum(each.shown for each in seen)
    relapses = [each.at_ms for each in mine if each.is_relapse]
    if pattern.state != "published":
        return Rate(len(relapses), shown), None
    if published_ms is None:  # published before it came here, nobody knows when
        return Rate(0, 0), Rate(len(relapses), shown)
    before = sum(at_ms <= published_ms for at_ms in relapses)
    after = len(relapses) - before
    earlier = [each.before for each in seen if each.before is not None]
    if len(earlier) < len(seen):
        return Rate(before, None), Rate(after, None)
    return Rate(before, sum(earlier)), Rate(after, shown - sum(earlier))


def _dated(ms: int | None) -> int | None:
    """Return a wall time, None for one that is no date."""
    return ms if ms is not None and ms >= _FIRST_MS else None


def _iso(ms: int | None) -> str | None:
    return None if ms is None else clock.pack(ms)[:16] + "Z"


def _weeks(happened: Sequence[Happened]) -> list[tuple[str, int, int]]:
    """Return every week from the first correction to the last, the empty ones too."""
    made: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for each in happened:
        monday = _monday(each.at_ms)
        made[monday][0] += 1
        made[monday][1] += each.is_relapse
    if not made:
        return []
    last = max(made)
    first = max(min(made), last - _WEEKS_MAX * 7 + 7)
    return [(_week(day), *made[day]) if day in made else (_week(day), 0, 0) for day in range(first, last + 1, 7)]  # type: ignore[misc]


def _monday(ms: int) -> int:
    """Return the day, counted from 1970, on which the moment's week began: 1970 began on a Thursday."""
    day = ms // _DAY_MS
    return day - (day + 3) % 7


def _week(day: int) -> str:
    year, week, _ = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).isocalendar()
    return f"{year}-W{week:02d}"


def _unknown(lessons: Sequence[Lesson]) -> list[str]:
    found = ["when other machines' relapses happened: their counters bear no time"]
    mixed = sum(lesson.before.shown is None for lesson in lessons)
    if mixed:
        found.append(
            f"how often {mixed} lesson{'s were' if mixed > 1 else ' was'} shown before and after promotion: of "
            "that time, only the sum is kept"
        )
    undated = sum(lesson.pattern.state == "published" and lesson.published_ms is None for lesson in lessons)
    if undated:
        found.append(f"when {undated} lesson{'s were' if undated > 1 else ' was'} promoted")
    return found
