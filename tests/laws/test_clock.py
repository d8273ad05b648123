"""Hybrid logical clock: stamps rise whatever the wall does, and sort as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import clock
from tests.laws import checks
from tests.laws.checks import DAY_MS, NOW_MS, Clock


@given(checks.events)
def test_stamps_rise_whatever_the_wall_does(events):
    checks.stamps_rise_whatever_the_wall_does(Clock, events)


@given(checks.events)
def test_stamps_follow_the_wall_and_never_run_ahead_by_themselves(events):
    checks.stamps_follow_the_wall(Clock, events)


@pytest.mark.parametrize("back_ms", [1, DAY_MS, 3650 * DAY_MS, NOW_MS, 10**18])
def test_stamps_rise_when_the_wall_goes_back(back_ms):
    checks.stamps_rise_whatever_the_wall_does(Clock, [("tick", 0), ("wall", -back_ms), ("tick", 0), ("tick", 0)])


def test_the_counter_carries_into_the_milliseconds():
    full = clock.pack(NOW_MS, clock.COUNTER_MAX)
    assert Clock(lambda: 0, last=full).tick() == clock.pack(NOW_MS + 1, 0)


def test_a_wall_out_of_range_is_kept_within_the_text():
    assert Clock(lambda: -5).wall() == clock.pack(0)
    assert Clock(lambda: 10**18).wall() == clock.pack(clock.MS_MAX)


def test_the_end_of_time_is_an_error_and_not_an_older_stamp():
    ticking = Clock(lambda: NOW_MS, last=clock.pack(clock.MS_MAX, clock.COUNTER_MAX))
    with pytest.raises(OverflowError):
        ticking.tick()
    assert ticking.last == clock.pack(clock.MS_MAX, clock.COUNTER_MAX)


@given(checks.readings, checks.readings)
def test_text_sorts_as_readings_do(a, b):
    checks.text_sorts_as_readings_do(clock, a, b)


@given(checks.readings)
def test_a_stamp_reads_back(reading):
    checks.a_stamp_reads_back(clock, reading)


@given(checks.readings)
def test_nothing_lies_between_a_stamp_and_the_next(reading):
    checks.nothing_lies_between_a_stamp_and_the_next(clock, reading)


@pytest.mark.parametrize("text", checks.NO_STAMPS)
def test_no_malformed_stamp_is_taken(text):
    checks.no_malformed_stamp_is_taken(clock, text)
    if text != clock.ZERO:
        with pytest.raises(ValueError, match="not a stamp"):
            clock.unpack(text)


@pytest.mark.parametrize("date", ["2026-02-28", "2024-02-29", "1999-12-31", "1970-01-01", "9999-12-31"])
def test_a_day_that_is_one_is_taken(date):
    assert clock.is_stamp(f"{date}T23:59:59.999Z-ffff")


@given(
    st.text(max_size=40) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z-[0-9a-fA-F]{4}\n?", fullmatch=True)
)
def test_what_is_taken_for_a_stamp_can_be_read_and_exceeded(text):
    """Found: stamps before 1970 were taken, and the first tick after one of them raised."""
    if clock.is_stamp(text) and text < clock.pack(clock.MS_MAX, clock.COUNTER_MAX):
        assert clock.pack(*clock.unpack(text)) == text
        ticking = Clock(lambda: 0)
        ticking.admit(text)
        assert ticking.tick() > text


@given(checks.readings, st.integers(-(10**15), 10**15))
def test_a_shifted_stamp_stays_within_the_text(reading, ms):
    moved, counter = clock.unpack(clock.shifted(clock.pack(*reading), ms))
    assert moved == min(max(reading[0] + ms, 0), clock.MS_MAX)
    assert counter == reading[1]


@pytest.mark.parametrize(("ms", "counter"), [(-1, 0), (clock.MS_MAX + 1, 0), (0, -1), (0, clock.COUNTER_MAX + 1)])
def test_a_reading_that_no_stamp_can_say_is_refused(ms, counter):
    with pytest.raises(OverflowError):
        clock.pack(ms, counter)


def test_the_zero_stamp_reads_as_zero_and_is_none():
    assert clock.unpack(clock.ZERO) == (0, 0)
    assert not clock.is_stamp(clock.ZERO)
