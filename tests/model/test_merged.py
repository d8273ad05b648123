"""Merged lessons: both records stay, the view joins them, and whatever the order, everybody sees the same."""

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import clock
from fleet.model import edits, line
from fleet.model.errors import NoError
from fleet.model.line import Line
from fleet.model.pattern import Merges, Pattern, Policy, fold, merged

IDS = [f"p-{n:016x}" for n in range(1, 8)]
A, B, C, D = IDS[:4]
VELMA, TANK = "velma.00000001", "tank.00000002"
FOREVER = "~"


class Ticks:
    """A clock that goes on by itself."""

    def __init__(self) -> None:
        self.ms = 1_760_000_000_000

    def __call__(self) -> str:
        self.ms += 1
        return clock.pack(self.ms)


def record(pattern: str, seen: dict[str, int] | None = None, at_ms: int = 1_750_000_000_000, **fields: object) -> Line:
    made = Line(pattern)
    for writer, times in ({VELMA: 1} if seen is None else seen).items():
        said = {"text": f"lesson {pattern[-1]}", **fields}
        made = line.join(made, edits.confirm(made, writer, clock.pack(at_ms), seen=times, fields=said))
    return made


class Book:
    """The joined records, as a store answers from them."""

    def __init__(self, *lines: Line) -> None:
        self.records: dict[str, Line] = {}
        self.add(*lines)

    def add(self, *lines: Line) -> None:
        for each in lines:
            self.records[each.id] = line.join(self.records[each.id], each) if each.id in self.records else each

    def pointing(self) -> dict[str, str]:
        return {each: into for each, found in self.records.items() if (into := fold(found).merged_into)}

    def group(self, pattern: str) -> list[str]:
        found = next((group for group in Merges(self.pointing()).groups() if pattern in group), [pattern])
        return [member for member in found if member in self.records]

    def whole(self, pattern: str) -> Pattern:
        here = Policy(mine=frozenset(writer for each in self.records.values() for writer in each.w))
        return merged([fold(self.records[member], here) for member in self.group(pattern)])

    def partition(self) -> set[frozenset[str]]:
        return {frozenset(self.group(pattern)) for pattern in self.records}

    def shown(self) -> list[Pattern]:
        wholes = {whole.id: whole for whole in map(self.whole, self.records)}
        return [whole for _, whole in sorted(wholes.items()) if whole.is_listed]

    def told(self) -> dict[str, int]:
        return {pattern.id: pattern.count("seen") for pattern in self.shown()}

    def merge(self, one: str, other: str, by: str, tick: Ticks) -> Line:
        source, into = Merges(self.pointing()).merging(self.records, one, other)
        known = self.records.get(source, Line(source))
        delta = edits.set_field(known, "merged_into", into, by, tick(), FOREVER)
        self.add(delta)
        return delta

    def unmerge(self, pattern: str, by: str, tick: Ticks) -> list[Line]:
        cleared = Merges(self.pointing()).unmerging(pattern)
        deltas = [edits.set_field(self.records[each], "merged_into", "", by, tick(), FOREVER) for each in cleared]
        self.add(*deltas)
        return deltas

    def retire(self, pattern: str) -> None:
        self.add(edits.retire(self.records[pattern], TANK))


def pointing(pattern: str, into: object, stamp: str = "", by: str = VELMA) -> Line:
    return edits.set_field(Line(pattern), "merged_into", into, by, stamp or clock.pack(1_760_000_000_000), FOREVER)


def test_the_larger_id_points_to_the_smaller_whichever_is_named_first():
    for one, other in ((A, B), (B, A)):
        delta = Book(record(A), record(B)).merge(one, other, VELMA, Ticks())
        assert (delta.id, fold(delta).fields) == (B, {"merged_into": A})
        assert fold(delta).edited == {"merged_into": (clock.pack(1_760_000_000_001), VELMA)}


def test_a_merged_lesson_is_shown_once_with_the_counts_added_up():
    book = Book(record(A, {VELMA: 2}), record(B, {VELMA: 3, TANK: 1}), pointing(B, A))
    assert book.told() == {A: 6}
    [whole] = book.shown()
    assert whole.totals["seen"] == {VELMA: 5, TANK: 1}
    assert (whole.seen_by("velma"), whole.witnesses()) == (5, 2)


def test_a_part_that_two_records_know_counts_once():
    """The session of a hand-written entry is a part of every lesson that it taught."""
    parts = [
        edits.part(
            Line(each),
            f"aaaaaaaa0000000{n}",
            {"text": "x"},
            VELMA,
            clock.pack(n),
            seen=1,
            sessions=1,
            session_hash="cc" * 8,
        )
        for n, each in enumerate((A, B))
    ]
    [whole] = Book(*parts, pointing(B, A)).shown()
    assert (whole.count("seen"), whole.count("sessions"), whole.seen_by("velma")) == (2, 1, 2)


def test_both_records_are_kept_as_they_are():
    book = Book(record(A), record(B, {TANK: 4}), pointing(B, A))
    before = [line.encode(each) for each in book.records.values()]
    book.shown()
    assert [line.encode(each) for each in book.records.values()] == before


def test_the_smallest_present_id_stands_for_the_set():
    book = Book(record(A), record(B), record(C), pointing(C, B), pointing(B, A))
    assert book.whole(C).id == A
    book.retire(A)
    assert book.whole(C).id == B
    assert book.told() == {B: 3}  # history is kept: the retired record's occurrences count on


def test_a_record_without_a_text_stands_for_nobody():
    bare = edits.restore(Line(A), TANK, clock.pack(1_750_000_000_000))
    book = Book(bare, record(B), pointing(B, A))
    assert book.whole(A).id == book.whole(B).id == B
    assert book.told() == {B: 1}


def test_a_set_that_is_retired_as_a_whole_is_not_shown_and_keeps_one_id():
    book = Book(record(A), record(B), pointing(B, A))
    for pattern in (A, B):
        book.retire(pattern)
    assert book.told() == {}
    assert book.whole(B).id == A
    assert not book.whole(B).is_present


def test_a_set_is_in_while_one_record_is_though_the_same_replica_retired_a_newer_one():
    older, newer = record(A, at_ms=1_750_000_000_000), record(B, at_ms=1_750_000_009_000)
    book = Book(older, newer, pointing(B, A))
    book.retire(B)
    [whole] = book.shown()
    assert whole.is_present
    assert whole.last_seen == clock.pack(1_750_000_000_000)
    assert whole.adds == {VELMA: clock.pack(1_750_000_009_000)}


def test_two_opposite_merges_at_once_are_one_set():
    book = Book(record(A), record(B), pointing(B, A, by=VELMA), pointing(A, B, by=TANK))
    assert book.told() == {A: 2}


def test_a_cycle_of_three_is_one_set_and_can_be_merged_further():
    book = Book(*map(record, (A, B, C, D)), pointing(A, B), pointing(B, C), pointing(C, A))
    assert book.told() == {A: 3, D: 1}
    book.merge(D, B, TANK, Ticks())
    assert book.told() == {A: 4}


@pytest.mark.parametrize("into", [B, "p-00000000000000ff", "", "no id", "d-0000000000000001", None, 7, ["x"], {}])
def test_what_points_to_itself_to_nobody_or_to_no_id_harms_nothing(into):
    book = Book(record(A), record(B), pointing(B, into))
    assert book.told() == {A: 1, B: 1}
    assert book.partition() == {frozenset([A]), frozenset([B])}


def test_records_that_point_to_one_that_is_not_here_yet_are_one_set_now_and_later():
    book = Book(record(B), record(C), pointing(B, A), pointing(C, A))
    assert book.told() == {B: 2}
    book.add(record(A))
    assert book.told() == {A: 3}


def test_a_merge_with_one_that_is_not_here_points_from_the_one_that_is():
    assert Merges({}).merging({A}, A, B) == (A, B)
    assert Merges({}).merging({A, B}, A, B) == (B, A)


def test_a_merge_never_takes_a_third_record_out():
    for order in permutations([(A, B), (B, C), (C, D)]):
        book, ticks = Book(*map(record, (A, B, C, D))), Ticks()
        for one, other in order:
            book.merge(one, other, VELMA, ticks)
        assert book.told() == {A: 4}


def test_what_is_merged_is_not_merged_again():
    book = Book(record(A), record(B), record(C), pointing(B, A), pointing(C, B))
    for one, other in combinations((A, B, C), 2):
        with pytest.raises(NoError, match="merged already; nothing was changed"):
            book.merge(one, other, VELMA, Ticks())
    with pytest.raises(NoError):
        book.merge(A, A, VELMA, Ticks())


@pytest.mark.parametrize("named", [A, B])
def test_unmerge_undoes_a_merge_whichever_of_the_two_is_named(named):
    book, ticks = Book(record(A), record(B)), Ticks()
    book.merge(A, B, VELMA, ticks)
    [delta] = book.unmerge(named, TANK, ticks)
    assert fold(delta).fields == {"merged_into": ""}
    assert book.told() == {A: 1, B: 1}


def test_unmerge_of_opposite_merges_takes_them_apart():
    for named in (A, B):
        book = Book(record(A), record(B), pointing(B, A), pointing(A, B))
        book.unmerge(named, TANK, Ticks())
        assert book.told() == {A: 1, B: 1}


def test_unmerge_of_what_is_not_merged_says_so():
    with pytest.raises(NoError, match="not merged"):
        Book(record(A), record(B)).unmerge(A, VELMA, Ticks())


def test_a_merge_can_be_made_again_after_it_was_undone():
    book, ticks = Book(record(A), record(B)), Ticks()
    for _ in range(2):
        book.merge(A, B, VELMA, ticks)
        assert book.told() == {A: 2}
        book.unmerge(B, VELMA, ticks)
        assert book.told() == {A: 1, B: 1}


def test_fields_are_the_representatives_and_what_it_lacks_comes_from_the_others():
    one = record(A, tags=["ci", "sh"], at_ms=1_750_000_005_000)
    two = record(
        B, {TANK: 1}, category="shell", correct="b", tags=["sh", "git"], state="published", **{"agent.ab": "x"}
    )
    book = Book(one, two, record(C, correct="c", tags="no list"), pointing(B, A), pointing(C, A))
    [whole] = book.shown()
    assert whole.fields == {
        "text": "lesson 1",
        "correct": "b",
        "category": "shell",
        "state": "published",
        "tags": ["ci", "sh", "git"],
        "agent.ab": "x",
    }
    assert (whole.at, whole.by) == (clock.pack(1_750_000_000_000), TANK)
    assert whole.agents() == ["tank", "velma"]


def test_the_evidence_of_a_field_comes_with_it():
    edit = edits.set_field(record(B), "category", "shell", TANK, clock.pack(1_755_000_000_000), FOREVER)
    [whole] = Book(record(A), record(B), edit, pointing(B, A)).shown()
    assert whole.edited == {"category": (clock.pack(1_755_000_000_000), TANK)}


def test_a_set_of_one_record_is_that_record():
    alone = fold(record(A))
    assert merged([alone]) is alone


merges = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=8)


def closure(pairs: list[tuple[str, str]]) -> set[frozenset[str]]:
    """The naive way: merge whole groups until nothing changes."""
    groups = [{pattern} for pattern in IDS]
    for one, other in pairs:
        mine = next(group for group in groups if one in group)
        theirs = next(group for group in groups if other in group)
        if mine is not theirs:
            groups.remove(theirs)
            mine |= theirs
    return {frozenset(group) for group in groups}


@given(merges, st.randoms(use_true_random=False))
def test_merges_give_the_same_sets_in_any_order(pairs, random):
    found = []
    for _ in range(2):
        random.shuffle(pairs)
        book, ticks = Book(*map(record, IDS)), Ticks()
        for one, other in pairs:
            if book.group(one) != book.group(other):
                book.merge(one, other, VELMA, ticks)
        found.append(book.partition())
    assert found[0] == found[1] == closure(pairs)


pointers = st.lists(
    st.tuples(st.sampled_from(IDS), st.sampled_from([*IDS, "", "p-00000000000000ff"]), st.integers(1, 5)), max_size=10
)
retirements = st.sets(st.sampled_from(IDS))


@given(pointers, retirements, st.randoms(use_true_random=False))
def test_deliveries_in_any_order_and_any_number_of_times_show_the_same(pointed, retired, random):
    lines = [record(pattern, {VELMA: number, TANK: 1}) for number, pattern in enumerate(IDS, 1)]
    lines += [pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed]
    lines += [edits.retire(record(pattern, {VELMA: 1, TANK: 1}), TANK) for pattern in sorted(retired)]
    shown = []
    for _ in range(2):
        random.shuffle(lines)
        shown.append(Book(*lines, *lines[:3]).shown())
    assert shown[0] == shown[1]


@given(pointers, retirements)
def test_no_occurrence_is_lost_or_counted_twice(pointed, retired):
    lines = [record(pattern, {VELMA: 10**number}) for number, pattern in enumerate(IDS)]
    book = Book(*lines, *(pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed))
    for pattern in sorted(retired):
        book.retire(pattern)
    for group in book.partition():
        whole = book.whole(min(group))
        members = [fold(book.records[member]) for member in group]
        assert whole.count("seen") == sum(member.count("seen") for member in members)
        assert whole.is_present == any(member.is_present for member in members)
    in_sight = {member for pattern in set(IDS) - retired for member in book.group(pattern)}
    assert sum(book.told().values()) == sum(10 ** IDS.index(member) for member in in_sight)


@given(merges, st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)))
def test_unmerging_what_was_just_merged_restores_all_sets(pairs, last):
    book, ticks = Book(*map(record, IDS)), Ticks()
    for one, other in pairs:
        if book.group(one) != book.group(other):
            book.merge(one, other, VELMA, ticks)
    before = book.partition()
    if book.group(last[0]) == book.group(last[1]):
        return
    delta = book.merge(*last, VELMA, ticks)
    assert book.partition() != before
    book.unmerge(delta.id, TANK, ticks)
    assert book.partition() == before


@given(pointers, st.sampled_from(IDS))
def test_unmerge_always_parts_a_record_from_what_it_pointed_to(pointed, named):
    book = Book(*map(record, IDS))
    book.add(*(pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed))
    edges = book.pointing()
    partners = {edges[named]} if named in edges else {one for one, into in edges.items() if into == named}
    ticks = Ticks()
    ticks.ms = 1_770_000_000_000
    try:
        book.unmerge(named, TANK, ticks)
    except NoError:
        assert not partners
        return
    assert not partners & set(book.group(named))
