"""OR-Set element: an add wins over a concurrent remove, and a remove covers only what it saw."""

from hypothesis import given

from crdt import orset
from tests.laws import checks
from tests.laws.checks import replicas, slots


@given(slots, slots)
def test_join_is_commutative(a, b):
    checks.commutative(orset, a, b)


@given(slots, slots, slots)
def test_join_is_associative(a, b, c):
    checks.associative(orset, a, b, c)


@given(slots, slots)
def test_join_is_idempotent(a, b):
    checks.idempotent(orset, a, b)


@given(slots, slots, slots)
def test_join_is_monotone_and_the_least_upper_bound(a, b, c):
    checks.join_covers_both(orset, a, b)
    checks.join_is_monotone(orset, a, b, c)
    checks.join_adds_nothing_of_its_own(orset, a, b, c)


@given(slots, slots)
def test_join_touches_neither_side(a, b):
    checks.join_touches_nothing(orset, a, b)


@given(slots, slots)
def test_each_replica_keeps_its_latest_stamp(a, b):
    checks.each_replica_keeps_its_latest_stamp(orset, a, b)


@given(slots, slots)
def test_an_element_is_in_while_some_add_is_unseen_by_removes(add, rem):
    checks.live_are_the_adds_that_no_remove_has_seen(orset, add, rem)


@given(slots, slots)
def test_a_remove_takes_out_all_it_saw(add, rem):
    checks.a_remove_takes_out_all_it_saw(orset, add, rem)


@given(slots, slots)
def test_a_remove_covers_only_what_it_saw(add, rem):
    checks.a_remove_covers_only_what_it_saw(orset, add, rem)


@given(slots, slots, replicas)
def test_an_add_survives_a_concurrent_remove(add, rem, replica):
    checks.an_add_wins_over_a_concurrent_remove(orset, add, rem, replica)


@given(slots, replicas)
def test_an_add_by_a_slow_clock_survives_a_concurrent_remove(add, replica):
    checks.an_older_add_wins_over_a_remove_that_has_not_seen_it(orset, add, replica)


@given(slots, slots, replicas)
def test_a_re_add_after_a_remove_is_in(add, rem, replica):
    checks.a_re_add_after_a_remove_is_in(orset, add, rem, replica)


@given(slots, slots, slots)
def test_a_late_old_add_stays_out(add, rem, late):
    checks.a_late_old_add_stays_out(orset, add, rem, late)
