"""Does the fleet learn? The figures are what the records say, and what cannot be known is said to be unknown."""

import json

import msgspec
import pytest

from crdt import clock
from fleet.learn.counting import _Occurrence as Happened
from fleet.reflect import stats as plot
from fleet.reflect.stats import SHOWN_MIN, Exposure, _Lesson, _Rate, measure
from tests.records import pattern

DAY = 86_400_000
NOON = 1_795_262_400_000  # 2026-11-21 12:00:00 UTC, a Saturday: 2026-W47
PROMOTED = NOON


def pid(number):
    return f"p-{number:016x}"


def lesson(number=1, words="Use pnpm", *, published=PROMOTED, first=NOON - 10 * DAY, state="", **counters):
    me = "velma.00000001"
    edits = {"state": (clock.pack(published), me, "published")} if published else {}
    told = {"text": words} | ({"state": state} if state else {})
    counts = {name: {me: total} for name, total in counters.items() if total}
    return pattern(pid(number), {}, add={me: clock.pack(first)}, edits=edits, counters=counts, **told)


def stats_of(lines=(), happened=(), exposures=None, **more):
    return measure(lines, happened, exposures or {}, failing=lambda pattern: "", **more)


def at(day):
    """Milliseconds at noon of an ISO date."""
    return clock.unpack(f"{day}T12:00:00.000Z-0000")[0]


# Weeks


def test_weeks_are_iso_weeks_in_utc_and_none_is_left_out():
    happened = [
        Happened(pid(1), at("2026-12-28"), False),
        Happened(pid(1), at("2027-01-03"), True),
        Happened(pid(2), at("2027-01-04"), False),
        Happened(pid(2), at("2027-01-18"), True),
    ]
    assert stats_of(happened=happened).weeks == [
        ("2026-W53", 2, 1),
        ("2027-W01", 1, 0),
        ("2027-W02", 0, 0),
        ("2027-W03", 1, 1),
    ]


@pytest.mark.parametrize(
    ("moment", "week"),
    [
        ("2026-11-15T23:59:59.999Z-0000", "2026-W46"),
        ("2026-11-16T00:00:00.000Z-0000", "2026-W47"),
        ("2024-12-30T00:00:00.000Z-0000", "2025-W01"),
        ("2021-01-03T12:00:00.000Z-0000", "2020-W53"),
        ("1970-01-01T00:00:00.000Z-0000", "1970-W01"),
    ],
)
def test_a_week_begins_on_monday_at_midnight(moment, week):
    (found,) = stats_of(happened=[Happened(pid(1), clock.unpack(moment)[0], False)]).weeks
    assert found == (week, 1, 0)


def test_an_entry_of_long_ago_does_not_draw_out_the_list():
    happened = [Happened(pid(1), 0, False), Happened(pid(1), NOON, False)]
    weeks = stats_of(happened=happened).weeks
    assert len(weeks) == 520
    assert weeks[-1] == ("2026-W47", 1, 0)


def test_without_anything_there_is_nothing():
    found = stats_of().as_json()
    assert (found["weeks"], found["lessons"], found["to_fleet"]) == ([], [], {"median_hours": None, "lessons": []})
    assert stats_of().render(80, str) == "no correction was counted on this machine yet"


# Relapses over exposures


def relapses(*days):
    return [Happened(pid(1), PROMOTED + day * DAY, True) for day in days]


def only(*args, **more):
    (found,) = stats_of(*args, **more).lessons
    return found


def test_before_and_after_promotion_when_it_was_shown_only_since():
    found = only([lesson(shown=9, relapsed=3)], relapses(-2, 1, 2), {pid(1): Exposure(8, before=0)})
    assert (found.before, found.after) == (_Rate(1, 0), _Rate(2, 8))
    assert found.before.value is None
    assert found.after.value == 0.25


def test_before_and_after_promotion_when_it_was_shown_at_both_times():
    stats = stats_of([lesson(shown=9, relapsed=3)], relapses(-2, 1, 2), {pid(1): Exposure(8, before=5)})
    assert (stats.lessons[0].before, stats.lessons[0].after) == (_Rate(1, 5), _Rate(2, 3))


def test_where_it_is_not_known_when_it_was_shown_no_number_is_told():
    stats = stats_of([lesson(shown=9)], relapses(-2, 1), {pid(1): Exposure(8, before=None)})
    (found,) = stats.lessons
    assert (found.before, found.after) == (_Rate(1, None), _Rate(1, None))


def test_a_lesson_that_was_not_promoted_has_no_after():
    found = only([lesson(published=None, shown=4)], relapses(-2, 1), {pid(1): Exposure(4, before=0)})
    assert (found.before, found.after) == (_Rate(2, 4), None)


def test_a_lesson_that_was_published_when_nobody_knows_has_only_an_after():
    told = lesson(shown=4, published=None, state="published")
    told = msgspec.structs.replace(told, edited={})  # as if it had been logged so
    stats = stats_of([told], relapses(-2, 1), {pid(1): Exposure(4, before=0)})
    assert (stats.lessons[0].before, stats.lessons[0].after) == (_Rate(0, 0), _Rate(2, 4))
    assert stats.hours == {}


def test_an_occurrence_that_is_no_relapse_is_none():
    found = only([lesson(shown=1)], [Happened(pid(1), PROMOTED + DAY, False)], {pid(1): Exposure(3, before=0)})
    assert found.after == _Rate(0, 3)


def test_a_merged_lesson_has_the_relapses_and_exposures_of_its_records():
    happened = [Happened(pid(1), PROMOTED + DAY, True), Happened(pid(2), PROMOTED + DAY, True)]
    exposures = {pid(1): Exposure(3, before=0), pid(2): Exposure(4, before=None)}
    found = only([lesson(shown=1)], happened, exposures, members=lambda pattern: [pid(1), pid(2)])
    assert (found.before, found.after) == (_Rate(0, None), _Rate(2, None))


def test_the_figure_of_the_clan_is_never_smaller_than_the_part_of_this_machine():
    found = only([lesson(shown=1, relapsed=2)], relapses(1, 2), {pid(1): Exposure(3, before=0, uncounted=2)})
    assert (found.whole, found.as_json()["shown"]) == (_Rate(2, 3), 3)


def test_a_lesson_that_nobody_was_shown_and_nobody_met_again_is_not_listed():
    assert stats_of([lesson(seen=3)]).lessons == []


# Lessons that do not work


def judged(*, before=None, after=None, **counters):
    return _Lesson(lesson(**counters), PROMOTED, before or _Rate(0, 0), after, "").never_helped


def test_a_lesson_never_helped_when_it_was_read_often_and_its_mistake_goes_on():
    assert judged(shown=SHOWN_MIN, relapsed=2)
    assert judged(shown=SHOWN_MIN, relapsed=2, before=_Rate(1, 10), after=_Rate(1, 10))
    assert not judged(shown=SHOWN_MIN - 1, relapsed=2)
    assert not judged(shown=SHOWN_MIN, relapsed=2, helped=1)
    assert not judged(shown=SHOWN_MIN, relapsed=0)
    assert not judged(shown=SHOWN_MIN, relapsed=2, before=_Rate(2, 10), after=_Rate(1, 10))


def test_json_says_all_of_it():
    stats = measure(
        [lesson(seen=4, shown=40, relapsed=2, hurt=1)],
        relapses(1, 9),
        {pid(1): Exposure(40, before=0)},
        failing=lambda pattern: "hurt 1 time, helped 0",
        unfilled=2,
    )
    found = json.loads(json.dumps(stats.as_json()))
    assert found == {
        "weeks": [
            {"week": "2026-W47", "corrections": 1, "relapses": 1},
            {"week": "2026-W48", "corrections": 0, "relapses": 0},
            {"week": "2026-W49", "corrections": 1, "relapses": 1},
        ],
        "unfilled": 2,
        "lessons": [
            {
                "id": pid(1), "text": "Use pnpm", "seen": 4, "shown": 40, "relapsed": 2, "helped": 0, "hurt": 1,
                "rate": 0.05, "published": "2026-11-21T12:00Z",
                "before": {"relapsed": 0, "shown": 0, "rate": None},
                "after": {"relapsed": 2, "shown": 40, "rate": 0.05},
            }
        ],
        "not_working": [{"id": pid(1), "text": "Use pnpm", "reason": "hurt 1 time, helped 0"}],
        "never_helped": [pid(1)],
        "to_fleet": {"median_hours": 240.0, "lessons": [{"id": pid(1), "hours": 240.0}]},
    }  # fmt: skip


# Time to the fleet's memory


def test_hours_run_from_the_first_correction_to_the_publication():
    lines = [
        lesson(1, first=NOON - 2 * DAY),
        lesson(2, first=NOON - 4 * DAY),
        lesson(3, first=NOON + DAY),
        lesson(4, published=None),
    ]
    lines.append(lesson(5, first=0))
    stats = stats_of(lines)
    assert stats.hours == {pid(1): 48.0, pid(2): 96.0, pid(3): 0.0}
    assert stats.as_json()["to_fleet"]["median_hours"] == 48.0
    assert "fleet's memory: 2.0 days in the middle of 3 lessons" in stats.render(80, str)
    soon = stats_of([lesson(1, first=NOON - 90_000)])
    assert "fleet's memory: 2 min in the middle of 1 lesson" in soon.render(80, str)


# The plot


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200])
def test_no_line_is_wider_than_asked(width):
    happened = [Happened(pid(1), NOON - week * 7 * DAY, week % 3 == 0) for week in range(40) for _ in range(week)]
    stats = measure(
        [lesson(number, "Use pnpm " * 40, shown=100, relapsed=3) for number in range(30)],
        happened,
        {pid(1): Exposure(40, before=None)},
        failing=lambda pattern: "the mistake was made again " * 10,
    )
    drawn = stats.render(width, str)
    assert max(map(len, drawn.split("\n"))) <= max(width, plot._WIDTH_MIN)
    assert "earlier weeks" in drawn
    assert "and 20 more" in drawn


def test_the_bars_show_how_many_and_how_many_of_them_again():
    happened = [Happened(pid(1), NOON, number < 2) for number in range(8)] + [Happened(pid(1), NOON - 14 * DAY, False)]
    rows = stats_of(happened=happened).render(80, str).split("\n")[1:4]
    assert [row.split()[0] for row in rows] == ["2026-W45", "2026-W46", "2026-W47"]
    assert [row.count("█") + row.count("░") for row in rows] == [3, 0, 24]
    assert rows[2].count("░") == 6
    assert rows[2].endswith("8   25% relapses")
    assert rows[1].split() == ["2026-W46", "0"]


def test_other_peoples_words_are_made_readable():
    stats = stats_of([lesson(words="\x1b[31m", shown=3)])
    assert "SHOWN" in stats.render(80, lambda words: "SHOWN")
