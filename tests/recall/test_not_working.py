"""A lesson that does not work is shown as one: it hurts more than it helps, or its mistake goes on."""

import pytest

from fleet.recall.wording import not_working
from tests.records import pattern

EARLY, PROMOTED, LATE = (f"2026-11-2{day}T12:00:00.000Z-0000" for day in (0, 1, 2))
MINE, OTHER = "velma.00000001", "tank.00000002"


def lesson(*, state="published", add=None, **counters):
    edits = {"state": (PROMOTED, MINE, state)}
    return pattern("p-0123456789abcdef", {}, add=add or {MINE: EARLY}, edits=edits, counters=counters, text="Use pnpm")


@pytest.mark.parametrize(
    ("hurt", "helped", "why"),
    [
        ({}, {}, ""),
        ({MINE: 1}, {}, "hurt 1 time, helped 0"),
        ({MINE: 2, OTHER: 1}, {OTHER: 2}, "hurt 3 times, helped 2"),
        ({MINE: 1}, {OTHER: 1}, ""),
        ({}, {OTHER: 1}, ""),
    ],
)
@pytest.mark.parametrize("state", ["candidate", "published"])
def test_hurt_over_helped(hurt, helped, why, state):
    assert not_working(lesson(state=state, hurt=hurt, helped=helped)) == why


def test_a_relapse_since_the_promotion():
    assert "by velma" in not_working(lesson(add={MINE: LATE}, relapsed={MINE: 1}))


def test_the_relapse_that_led_to_the_promotion_is_none():
    assert not_working(lesson(add={MINE: EARLY}, relapsed={MINE: 1})) == ""


def test_an_occurrence_where_it_was_never_shown_is_no_relapse():
    assert not_working(lesson(add={MINE: EARLY, OTHER: LATE}, relapsed={MINE: 1})) == ""


def test_a_candidate_has_no_promotion_to_fail_after():
    assert not_working(lesson(state="candidate", add={MINE: LATE}, relapsed={MINE: 1})) == ""


def test_where_nobody_knows_when_it_was_published_each_relapse_counts():
    told = {"text": "Use pnpm", "state": "published"}  # as if it had been logged so
    found = pattern("p-0123456789abcdef", {}, add={MINE: EARLY}, counters={"relapsed": {MINE: 1}}, **told)
    assert not_working(found) != ""
