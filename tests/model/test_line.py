"""What one writer said: read from a record without a look at its inner shape."""

import pytest
from hypothesis import given

from crdt import clock
from fleet.model import edits
from fleet.model import line as codec
from fleet.model.line import Column, Line
from fleet.model.pattern import Policy, fold
from fleet.model.withheld import Withheld
from tests.laws import checks
from tests.laws.checks import HASHES, IDS, REPLICAS, STAMPS

line = checks.lines_of_one_id()
ANNA, BERT, CLEO = REPLICAS


@given(line)
def test_a_line_is_the_join_of_what_each_writer_said(whole):
    parts = whole.by_writer()
    assert list(parts) == sorted(whole.w)
    joined = Line(whole.id)
    for writer, part in parts.items():
        assert set(part.w) == {writer}
        joined = codec.join(joined, part)
    assert codec.encode(joined) == codec.encode(whole)


@given(line)
def test_all_that_anybody_said_is_told(whole):
    """A gate that missed a part would let a secret through."""
    told = repr(list(whole.items()))
    for (_, part, *keys), value in checks._atoms(whole):
        if part in {"first", "set", "later"}:
            assert repr(value[1] if part == "set" else value) in told
        if part not in {"add", "rem"}:
            name = keys[0] if part not in {"over", "purge"} else keys[1]
            assert repr(name) in told or keys[0] == codec.CARRIED


def test_what_a_writer_logged_is_counted_up_to_its_add_and_every_remove_of_it():
    """A remove copies an add that somebody has seen, so that what it names was in the writer's total then."""
    whole = Line(IDS[0], {ANNA: Column(add=STAMPS[1], n={"seen": 2}), BERT: Column(rem={ANNA: STAMPS[2]})})
    assert whole.counted_up_to(ANNA) == STAMPS[2]
    assert whole.counted_up_to(BERT) == ""
    assert (whole.total_of(ANNA, "seen"), whole.total_of(CLEO, "seen")) == (2, 0)


@given(line)
def test_parts_that_are_taken_and_what_is_left_are_the_whole(whole):
    rest, taken = whole.split_column(ANNA, ("add", "n"))
    assert codec.encode(codec.join(rest, taken) if taken else rest) == codec.encode(whole)
    if taken is None:
        assert whole.w.get(ANNA, codec.NOTHING).add == ""
    else:
        assert set(taken.w) == {ANNA}
        assert all(not column.add and not column.n for w, column in rest.w.items() if w == ANNA)


@given(line, line)
def test_a_line_without_what_anothers_marks_cover_joins_to_the_same(whole, marked):
    bare = whole.without_purged(marked)
    assert codec.encode(codec.join(bare, marked)) == codec.encode(codec.join(whole, marked))


@given(line)
def test_the_newest_stamp_of_each_writer_is_of_its_add_or_an_edit(whole):
    newest = whole.newest_stamps()
    for writer, column in whole.w.items():
        own = [column.add, *(stamp for stamp, _ in column.set.values())]
        assert newest.get(writer, "") == max(own)
    assert set(whole.stamps()) >= set(newest.values())


def test_what_an_edit_from_the_future_had_replaced_does_not_come_back_when_that_is_said_again():
    cut, now = STAMPS[0], STAMPS[0]
    late = {ANNA: (STAMPS[2], "anna's"), BERT: (STAMPS[3], "bert's")}
    known = Line(IDS[0], {who: Column(add=now, set={"category": edit}) for who, edit in late.items()})
    said = edits.reissue(known, BERT, CLEO, now, cut)
    assert said is not None
    assert fold(codec.join(known, said)).value("category") == "bert's"
    said = edits.reissue(known, ANNA, CLEO, now, cut)
    assert said is not None
    assert fold(codec.join(known, said)).value("category") == "bert's", "it was later, and stays so"


def test_an_edit_from_the_future_that_is_withheld_is_not_said_again():
    late = Column(set={"category": (STAMPS[3], "somebody's"), "trigger": (STAMPS[2], "own")})
    withheld = Withheld(Column(), Column(set={"category": late.set["category"]}))
    said = edits.reissue(Line(IDS[0], {ANNA: late}), ANNA, BERT, STAMPS[0], STAMPS[0], withheld)
    assert said is not None
    assert {field: value for field, (_, value) in said.w[BERT].set.items()} == {"trigger": "own"}


@pytest.mark.parametrize("me", [ANNA, BERT, CLEO])
def test_nobody_tells_a_purged_wording_behind_the_words_that_stand_in_its_place(me):
    known = Line(IDS[0], {ANNA: Column(add=STAMPS[0], first={"text": "secret"})})
    purged = codec.join(known, edits.purge(known, {"text": "[REDACTED]"}, BERT, STAMPS[1]))
    again = codec.join(purged, edits.confirm(purged, me, STAMPS[2], fields={"text": "secret", "correct": "r"}))
    assert b"secret" not in codec.encode(again)
    assert fold(again).count("seen") == 1
    assert fold(again).fields == {"text": "[REDACTED]", "correct": "r"}


def test_who_was_purged_words_it_again_as_an_edit_where_nobody_else_has():
    known = edits.confirm(Line(IDS[0]), ANNA, STAMPS[0], fields={"text": "secret", "correct": "c"})
    purged = codec.join(known, edits.purge(known, {"text": "[REDACTED]"}, BERT, STAMPS[1]))
    again = codec.join(purged, edits.confirm(purged, ANNA, STAMPS[2], fields={"text": "secret"}))
    assert fold(again).text == "[REDACTED]"
    marked = Line(IDS[0], {BERT: Column(purge={ANNA: {"text": clock.ZERO}})})
    again = edits.confirm(marked, ANNA, STAMPS[2], fields={"text": "clean"})
    assert fold(codec.join(marked, again)).edited == {"text": (STAMPS[2], ANNA)}


def test_entries_written_by_hand_are_their_agents_and_imports_nobodys():
    by_hand = edits.part(Line(IDS[0]), HASHES[0], {"text": "x"}, ANNA, STAMPS[0], seen=1)
    imported = edits.part(by_hand, HASHES[1], {"text": "x"}, ANNA, STAMPS[1], seen=5, author="dora")
    copied = edits.part(Line(IDS[0]), HASHES[0], {"text": "x"}, "anna.0000000f", STAMPS[2], seen=1)
    here = Policy(mine=frozenset({ANNA, BERT, "anna.0000000f"}))
    pattern = fold(codec.join(codec.join(by_hand, imported), copied), here)
    assert (pattern.count("seen"), pattern.seen_by("anna"), pattern.witnesses()) == (6, 1, 1)
    assert pattern.agents() == ["anna", "dora"]
    logged = fold(codec.join(by_hand, edits.confirm(by_hand, BERT, STAMPS[3], seen=2)), here)
    assert (logged.seen_by("anna"), logged.seen_by("bert"), logged.own("seen", BERT)) == (1, 2, 2)


def test_a_column_of_an_old_import_is_no_agents():
    column = Column(add=STAMPS[0], first={"text": "x"}, parts={"seen": {"0a1b2c3d00000000": 2}})
    unnamed = fold(Line(IDS[0], {"import.0a1b2c3d": column}))
    assert (unnamed.agents(), unnamed.witnesses(), unnamed.by_hand) == (["import"], 0, {})
    named = Column(add=STAMPS[0], first={"agent.0a1b2c3d": "dora"}, parts={"seen": {"0a1b2c3d00000000": 2}})
    assert fold(Line(IDS[0], {"import.0a1b2c3d": named})).agents() == ["dora"]


def test_the_pieces_of_an_over_long_column_have_one_order_whatever_its_attributes_are_called():
    totals = {f"counter-{number:04}": 1 for number in range(4_000)}
    raw = codec.canonical({"id": "p-" + "0" * 16, "w": {"velma.00000001": {"invented": "x", "n": totals}}})
    line = codec.decode(raw, bytes_max=len(raw))
    assert isinstance(line, Line)
    assert codec.covers(line, Line(line.id, {"velma.00000001": Column(n=totals)}))
    first, *rest = codec.split(line)
    assert b'"invented"' in first
    assert rest
    assert all(b'"invented"' not in each for each in rest)
    assert set(Column.__struct_fields__) == set(codec._CUT_ORDER)
