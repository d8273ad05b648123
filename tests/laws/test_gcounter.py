"""G-Counter: its join is a lattice, its value a sum, and only the owner raises a slot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import gcounter
from tests.laws import checks
from tests.laws.checks import counts, replicas


@given(counts, counts)
def test_join_is_commutative(a, b):
    checks.commutative(gcounter, a, b)


@given(counts, counts, counts)
def test_join_is_associative(a, b, c):
    checks.associative(gcounter, a, b, c)


@given(counts, counts)
def test_join_is_idempotent(a, b):
    checks.idempotent(gcounter, a, b)


@given(counts, counts, counts)
def test_join_is_monotone_and_the_least_upper_bound(a, b, c):
    checks.join_covers_both(gcounter, a, b)
    checks.join_is_monotone(gcounter, a, b, c)
    checks.join_adds_nothing_of_its_own(gcounter, a, b, c)


@given(counts, counts)
def test_a_counter_covers_what_would_change_nothing(whole, part):
    checks.covers_means_that_join_changes_nothing(gcounter, whole, part)


@given(counts, counts)
def test_join_touches_neither_side(a, b):
    checks.join_touches_nothing(gcounter, a, b)


@given(counts, counts)
def test_each_replica_keeps_its_largest_total(a, b):
    checks.each_replica_keeps_its_largest_total(gcounter, a, b)


@given(counts)
def test_the_value_is_the_sum_of_all_replicas(a):
    checks.value_is_the_sum_of_all_replicas(gcounter, a)


@given(counts, replicas, st.integers(1, 5))
def test_only_the_own_slot_is_raised(a, replica, by):
    checks.a_raise_moves_only_its_own_slot(gcounter, a, replica, by)


@given(counts, st.integers(1, 5))
def test_raises_by_two_replicas_add_up(a, by):
    checks.raises_by_two_replicas_add_up(gcounter, a, by)


@given(counts, st.integers(-3, 3))
def test_a_counter_never_falls(a, step):
    checks.a_counter_never_falls(gcounter, a, step)


@given(counts, st.lists(replicas))
def test_a_zero_is_not_kept(a, zeros):
    checks.a_zero_is_not_kept(gcounter, a, zeros)


def test_a_step_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="only grows: 0"):
        gcounter.raised({}, "anna.00000001", 0)
