"""Plot of the figures of ``fleet stats`` for a terminal: plain text and blocks, no colour, never wider than asked."""

import textwrap
from collections.abc import Callable, Sequence
from unicodedata import combining, east_asian_width

from fleet.reflect.stats import Lesson, Rate, Stats, never_helped

_WEEKS_SHOWN = 16
_LESSONS_SHOWN = 10
WIDTH_MIN = 40
_COLUMNS_EACH_MAX = 3  # of one correction: three of them fill no screen
_FRESH, _AGAIN = "█", "░"
_WEEK_CHARS = len("2026-W47 ")
_FIGURES_CHARS = len(" 9999  100% relapses")


def render(stats: Stats, width: int, readable: Callable[[object], str]) -> str:
    """Return the text, several lines.

    Args:
        stats: the figures.
        width: columns; below 40 is drawn as 40.
        readable: makes somebody else's text fit to print.
    """
    width = max(width, WIDTH_MIN)
    parts = [
        _weeks(stats.weeks, width),
        _lessons(stats.lessons, readable),
        _listed("Not working", [(each, each.failing) for each in stats.lessons if each.failing], width, readable),
        _listed("Never helped", [(each, "") for each in stats.lessons if never_helped(each)], width, readable),
        _to_fleet(stats),
    ]
    if stats.unfilled:
        parts.append([f"{stats.unfilled:,} without a lesson yet: fleet learn --waiting"])
    if stats.weeks or stats.lessons:
        parts.append([row for each in stats.unknown for row in _wrapped(f"Not known: {each}", width)])
    return "\n\n".join("\n".join(_cut(row, width) for row in rows) for rows in parts if rows)


def _weeks(weeks: Sequence[tuple[str, int, int]], width: int) -> list[str]:
    if not weeks:
        return ["no correction was counted on this machine yet"]
    drawn = weeks[-_WEEKS_SHOWN:]
    most = max(made for _, made, _ in drawn) or 1
    room = max(min(width - _WEEK_CHARS - _FIGURES_CHARS, most * _COLUMNS_EACH_MAX), 8)
    rows = [f"Corrections per week: {_FRESH} new, {_AGAIN} relapses"]
    if len(weeks) > len(drawn):
        rows.append(f"({len(weeks) - len(drawn):,} earlier weeks: --json)")
    for week, made, again in drawn:
        length = max(round(room * made / most), 1) if made else 0
        dim = min(max(round(length * again / made), 1), length) if again else 0
        bar = _FRESH * (length - dim) + _AGAIN * dim
        rate = f"  {100 * again / made:3.0f}% relapses" if made else ""
        rows.append(f"{week} {bar:<{room}} {made:>4}{rate}".rstrip())
    return rows


def _lessons(lessons: Sequence[Lesson], readable: Callable[[object], str]) -> list[str]:
    shown = [each for each in lessons if each.pattern.count("shown") or each.before.shown or each.after is not None]
    if not shown:
        return []
    rows = ["Relapses over exposures: all, then here before > after promotion"]
    for each in shown[:_LESSONS_SHOWN]:
        all_of_it = Rate(each.pattern.count("relapsed"), each.pattern.count("shown"))
        here = _rate(each.before) + (f" > {_rate(each.after)}" if each.after is not None else "")
        rows.append(f"  {_rate(all_of_it):>9}   {here:<19} {readable(each.pattern.text)}")
    if len(shown) > _LESSONS_SHOWN:
        rows.append(f"  and {len(shown) - _LESSONS_SHOWN:,} more: --json")
    return rows


def _rate(rate: Rate) -> str:
    return f"{rate.relapsed:,}/{'?' if rate.shown is None else f'{rate.shown:,}'}"


def _listed(
    title: str, found: Sequence[tuple[Lesson, str]], width: int, readable: Callable[[object], str]
) -> list[str]:
    if not found:
        return []
    rows = [f"{title} ({len(found):,})"]
    for each, why in found[:_LESSONS_SHOWN]:
        rows.append(_cut(f"  {each.pattern.id}  {readable(each.pattern.text)}", width))
        if why:
            rows += _wrapped(why, width, "    ")
    return rows


def _to_fleet(stats: Stats) -> list[str]:
    if not stats.hours:
        return []
    hours = sorted(stats.hours.values())
    middle = (hours[(len(hours) - 1) // 2] + hours[len(hours) // 2]) / 2
    number = f"{len(hours):,} {'lesson' if len(hours) == 1 else 'lessons'}"
    return [f"From first correction to the fleet's memory: {_span(middle)} in the middle of {number}"]


def _span(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ")


def _cut(row: str, width: int) -> str:
    """Cut by columns: a Chinese character takes two."""
    if sum(map(_columns, row)) <= width:
        return row
    kept, room = 0, width - 1
    while (room := room - _columns(row[kept])) >= 0:
        kept += 1
    return row[:kept].rstrip() + "…"


def _columns(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in {"W", "F"} else 1
