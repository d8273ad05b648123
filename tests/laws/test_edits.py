"""All that can happen to a lesson: each edit says what it is to say, whatever the record it meets."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.model import edits
from fleet.model.line import Column, Line
from fleet.model.pattern import fold
from tests.laws import checks
from tests.laws.checks import IDS, REPLICAS, STAMPS, replicas

line = checks.lines_of_one_id()
cuts = checks.stamps
ANNA, BERT = REPLICAS[:2]


@given(line, replicas)
def test_a_delta_says_something_of_its_writer_alone(line, me):
    checks.a_delta_says_something_of_its_writer_alone(edits, line, me)


@given(line, replicas, st.integers(1, 3))
def test_a_log_is_in_and_counts_what_it_says(line, me, seen):
    checks.a_log_is_in_and_counts_what_it_says(edits, line, me, seen)


@given(line, replicas, st.sampled_from(("", *STAMPS)))
def test_a_log_never_moves_the_time_when_it_was_first_seen(line, me, at):
    checks.a_log_never_moves_the_time_when_it_was_first_seen(edits, line, me, at)


@given(line, replicas, st.sampled_from(checks.FIELDS), checks.values)
def test_a_log_says_what_nobody_has_said(line, me, field, value):
    checks.a_log_says_what_nobody_has_said(edits, line, me, field, value)


@given(line, replicas, replicas)
def test_a_part_counts_once_whoever_tells_it(line, me, other):
    checks.a_part_counts_once_whoever_tells_it(edits, line, me, other)


@given(line, replicas)
def test_an_undo_takes_one_back_until_it_is_stated_again(line, me):
    checks.an_undo_takes_one_back_until_it_is_stated_again(edits, line, me)


@given(line, replicas)
def test_who_imports_is_no_witness(line, me):
    checks.who_imports_is_no_witness(edits, line, me)


@given(line, replicas, checks.policies)
def test_a_retire_takes_out_all_that_it_saw(line, me, policy):
    checks.a_retire_takes_out_all_that_it_saw(edits, line, me, policy)


@given(line, replicas)
def test_a_retire_covers_only_what_it_saw(line, me):
    checks.a_retire_covers_only_what_it_saw(edits, line, me)


@given(line, replicas)
def test_a_restore_is_in_and_counts_nothing(line, me):
    checks.a_restore_is_in_and_counts_nothing(edits, line, me)


@given(line, replicas, cuts)
def test_an_edit_wins_for_good(line, me, cut):
    checks.an_edit_wins_for_good(edits, line, me, cut)


@given(line, replicas, replicas, cuts)
def test_an_edit_leaves_later_ones_to_win(line, me, other, cut):
    checks.an_edit_leaves_later_ones_to_win(edits, line, me, other, cut)


@given(line, replicas, cuts)
def test_a_new_replica_says_its_edits_again(line, old, cut):
    checks.a_new_replica_says_its_edits_again(edits, line, old, cut)


@given(line, line, replicas)
def test_a_purged_value_stays_gone(line, late, me):
    checks.a_purged_value_stays_gone(edits, line, late, me)


@given(line, replicas, replicas)
def test_an_honest_edit_outlives_a_purge(line, me, other):
    checks.an_honest_edit_outlives_a_purge(edits, line, me, other)


@given(line, replicas)
def test_a_purge_marks_only_what_is_there(line, me):
    checks.a_purge_marks_only_what_is_there(edits, line, me)


def test_the_first_log_is_a_line_of_its_own():
    made = edits.confirm(Line(IDS[0]), ANNA, STAMPS[2], seen=2, sessions=1, fields={"text": "x"}, at=STAMPS[0])
    pattern = fold(made)
    assert (pattern.text, pattern.count("seen"), pattern.count("sessions")) == ("x", 2, 1)
    assert (pattern.at, pattern.by, pattern.last_seen) == (STAMPS[0], ANNA, STAMPS[2])


def test_what_is_said_already_is_not_said_again():
    known = edits.confirm(Line(IDS[0]), ANNA, STAMPS[0], fields={"text": "x"})
    assert edits.confirm(known, BERT, STAMPS[1], fields={"text": "x"}).w[BERT].first == {}
    assert edits.confirm(known, BERT, STAMPS[1], fields={"text": "y"}).w[BERT].first == {"text": "y"}


def test_edits_of_a_field_and_feedback_are_what_they_say():
    line = edits.confirm(Line(IDS[0]), ANNA, STAMPS[0], fields={"text": "x"})
    edit = edits.set_field(line, "merged_into", IDS[1], BERT, STAMPS[1], "~")
    assert edit == Line(IDS[0], {BERT: Column(set={"merged_into": (STAMPS[1], IDS[1])})})
    assert edits.count(line, "helped", ANNA).w[ANNA].n == {"helped": 1}
    assert edits.count(line, "shown", BERT, 3).w[BERT].n == {"shown": 3}
    assert edits.count(line, "seen", ANNA).w[ANNA].n == {"seen": 2}
    assert edits.count(line, "seen", ANNA, 0) == Line(IDS[0])


def test_an_import_that_leaves_presence_alone_keeps_its_date():
    told = edits.part(Line(IDS[0]), checks.HASHES[0], {"text": "x"}, ANNA, "", seen=1, at=STAMPS[0], author="")
    assert (fold(told).at, fold(told).is_present, fold(told).agents()) == (STAMPS[0], False, ["import"])
