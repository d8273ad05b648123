"""LWW-Register: the later write wins, and every tie ends alike everywhere."""

from hypothesis import given

from crdt import lww
from crdt.lww import Register
from fleet.model.line import canonical
from tests.laws import checks

registers = checks.registers()


@given(registers, registers)
def test_join_is_commutative(a, b):
    checks.commutative(lww, a, b)


@given(registers, registers, registers)
def test_join_is_associative(a, b, c):
    checks.associative(lww, a, b, c)


@given(registers, registers)
def test_join_is_idempotent(a, b):
    checks.idempotent(lww, a, b)


@given(registers, registers, registers)
def test_join_is_monotone_and_the_least_upper_bound(a, b, c):
    checks.join_covers_both(lww, a, b)
    checks.join_is_monotone(lww, a, b, c)
    checks.join_adds_nothing_of_its_own(lww, a, b, c)


@given(registers, registers)
def test_a_register_covers_what_would_change_nothing(whole, part):
    checks.covers_means_that_join_changes_nothing(lww, whole, part)


@given(registers, registers)
def test_the_later_write_wins(a, b):
    checks.the_later_write_wins(lww, a, b)


@given(registers, registers)
def test_a_tie_goes_to_the_larger_replica(a, b):
    checks.a_tie_goes_to_the_larger_replica(lww, a, b)


@given(registers, registers)
def test_a_tie_of_one_replica_goes_to_the_larger_bytes(a, b):
    checks.a_tie_of_one_replica_goes_to_the_larger_bytes(lww, a, b)


def test_1_and_true_differ():
    one, true = (Register(checks.STAMPS[0], "anna.00000001", canonical(value)) for value in (1, True))
    assert lww.join(one, true) == lww.join(true, one) == true
    assert not lww.covers(one, true)
