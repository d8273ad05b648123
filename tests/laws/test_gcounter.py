"""G-Counter: its join is a lattice, and its value a sum."""

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
def test_join_touches_neither_side(a, b):
    checks.join_touches_nothing(gcounter, a, b)


@given(counts, counts)
def test_each_replica_keeps_its_largest_total(a, b):
    checks.each_replica_keeps_its_largest_total(gcounter, a, b)


@given(counts)
def test_the_value_is_the_sum_of_all_replicas(a):
    checks.value_is_the_sum_of_all_replicas(gcounter, a)


@given(counts, st.lists(replicas))
def test_a_zero_is_not_kept(a, zeros):
    checks.a_zero_is_not_kept(gcounter, a, zeros)
