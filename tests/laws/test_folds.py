"""The folds: what a record amounts to is what was said, less what is left out here."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.line import Column, Line
from fleet.model.pattern import Policy, fold
from tests.laws import checks
from tests.laws.checks import IDS, REPLICAS, STAMPS

line = checks.lines_of_one_id()
said = st.lists(line, min_size=1, max_size=4)


@given(said, checks.policies)
def test_presence_is_the_or_set_of_what_was_said(sent, policy):
    checks.presence_is_the_or_set_of_what_was_said(fold, sent, policy)


@given(said, checks.policies)
def test_fields_are_the_registers_of_what_was_said(sent, policy):
    checks.fields_are_the_registers_of_what_was_said(fold, sent, policy)


@given(said, checks.policies)
def test_counters_are_the_sums_of_what_was_said(sent, policy):
    checks.counters_are_the_sums_of_what_was_said(fold, sent, policy)


@given(st.lists(checks.undone_lines(), min_size=1, max_size=4), checks.policies)
def test_what_a_writer_took_back_counts_nowhere(sent, policy):
    checks.counters_are_the_sums_of_what_was_said(fold, sent, policy)


@given(said, checks.policies)
def test_first_seen_is_the_smallest_time_said(sent, policy):
    checks.first_seen_is_the_smallest_time_said(fold, sent, policy)


@given(line, checks.policies, st.sampled_from(checks.FIELDS))
def test_a_first_wording_is_never_hidden_by_an_edit_from_the_future(line, policy, field):
    checks.a_first_wording_is_never_hidden_by_an_edit_from_the_future(fold, line, policy, field)


@given(line, checks.policies)
def test_a_fold_touches_nothing(line, policy):
    checks.a_fold_touches_nothing(fold, line, policy)


@given(line, checks.policies)
def test_who_is_blocked_is_as_one_who_never_wrote(line, policy):
    checks.who_is_blocked_is_as_one_who_never_wrote(fold, line, policy)


def test_an_edit_from_the_future_is_folded_when_its_time_has_come_and_not_before():
    line = Line(IDS[0], {REPLICAS[0]: Column(first={"text": "old"}, set={"text": (STAMPS[4], "new")})})
    assert fold(line, Policy(STAMPS[3])).text == "old"
    assert fold(line, Policy(STAMPS[4])).text == "new"


def test_adds_removes_and_counts_fold_whatever_their_stamp_says():
    """Cutting adds gave a wrong presence."""
    anna, bert = REPLICAS[:2]
    line = Line(IDS[0], {anna: Column(add=STAMPS[4], n={"seen": 2}), bert: Column(add=STAMPS[1])})
    pattern = fold(line, Policy(STAMPS[0]))
    assert (pattern.live, pattern.count("seen")) == ({anna: STAMPS[4], bert: STAMPS[1]}, 2)
    line.w[bert].rem = {anna: STAMPS[4]}
    assert fold(line, Policy(STAMPS[0])).live == {bert: STAMPS[1]}


def test_a_value_from_the_future_that_was_replaced_never_counts():
    anna, bert = REPLICAS[:2]
    line = Line(
        IDS[0],
        {
            anna: Column(set={"text": (STAMPS[4], "from the future")}),
            bert: Column(set={"text": (STAMPS[1], "now")}, over={anna: {"text": STAMPS[4]}}),
        },
    )
    assert fold(line, Policy(STAMPS[2])).text == fold(line).text == "now"


def test_what_a_peer_put_in_place_of_texts_reads_as_nothing():
    line = Line(
        IDS[0], {REPLICAS[0]: Column(first={"text": 7, "tags": "no list", "category": None, "importance": True})}
    )
    pattern = fold(line)
    assert (pattern.text, pattern.tags, pattern.category) == ("", [], "")
    assert not pattern.is_listed


def test_the_fields_of_a_pattern_read_as_they_were_said():
    fields = {"text": "t", "correct": "c", "category": "k", "state": "published", "scope": "private", "trigger": "git"}
    column = Column(add=STAMPS[2], first={**fields, "tags": ["a", 1], "importance": 0.5, "at": STAMPS[0]})
    pattern = fold(Line(IDS[0], {REPLICAS[0]: column}))
    assert [getattr(pattern, name) for name in fields] == list(fields.values())
    assert (pattern.tags, pattern.at, pattern.by) == (["a"], STAMPS[0], REPLICAS[0])
    assert pattern.is_listed
    assert pattern.last_seen == STAMPS[2]
    assert "at" not in pattern.fields
