"""Merged lessons: whoever points to whom, in whatever order it was said and heard, the records form the same sets."""

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import clock
from fleet.keep import edits, merging
from fleet.keep.errors import NoError
from fleet.keep.line import Line, encode
from fleet.keep.notebook import Notebook, agents, count, is_present, last_seen

IDS = [f"p-{n:016x}" for n in range(1, 8)]
A, B, C, D = IDS[:4]
VELMA, TANK = "velma.00000001", "tank.00000002"


class Ticks:
    """A clock that goes on by itself."""

    def __init__(self) -> None:
        self.ms = 1_760_000_000_000

    def __call__(self) -> str:
        self.ms += 1
        return clock.pack(self.ms)


def record(pattern: str, seen: dict[str, int] | None = None, at_ms: int = 1_750_000_000_000, **fields: object) -> Line:
    seen = {VELMA: 1} if seen is None else seen
    at = clock.pack(at_ms)
    return Line(
        id=pattern,
        at=at,
        by=min(seen, default=VELMA),
        add=dict.fromkeys(seen, at),
        n={"seen": seen} if seen else {},
        set={"text": f"lesson {pattern[-1]}", **fields},
    )


def notebook_of(*lines: Line) -> Notebook:
    made = Notebook()
    made.add_all(lines)
    return made


def pointing(pattern: str, into: object, stamp: str = "", by: str = VELMA) -> Line:
    return edits.field_set(Line(id=pattern), "merged_into", into, by, stamp or clock.pack(1_760_000_000_000))


def partition(notebook: Notebook) -> set[frozenset[str]]:
    under = merging.sets(notebook)
    groups: dict[str, set[str]] = {}
    for member in notebook.patterns:
        groups.setdefault(under.get(member, member), set()).add(member)
    return {frozenset(group) for group in groups.values()}


def told(notebook: Notebook) -> dict[str, int]:
    return {line.id: count(line, "seen") for line in merging.shown(notebook)}


def test_the_larger_id_points_to_the_smaller_whichever_is_named_first():
    for one, other in ((A, B), (B, A)):
        notebook = notebook_of(record(A), record(B))
        [line] = merging.merge(notebook, one, other, VELMA, Ticks())
        assert (line.id, line.set) == (B, {"merged_into": A})
        assert line.when == {"merged_into": (clock.pack(1_760_000_000_001), VELMA)}


def test_a_merged_lesson_is_shown_once_with_the_counts_added_up():
    notebook = notebook_of(record(A, {VELMA: 2}), record(B, {VELMA: 3, TANK: 1}), pointing(B, A))
    assert told(notebook) == {A: 6}
    [line] = merging.shown(notebook)
    assert line.n["seen"] == {VELMA: 5, TANK: 1}


def test_both_records_are_kept_as_they_are():
    notebook = notebook_of(record(A), record(B, {TANK: 4}), pointing(B, A))
    before = [encode(line) for line in notebook.patterns.values()]
    list(merging.shown(notebook))
    list(merging.everything(notebook))
    assert [encode(line) for line in notebook.patterns.values()] == before


def test_the_smallest_present_id_stands_for_the_set():
    notebook = notebook_of(record(A), record(B), record(C), pointing(C, B), pointing(B, A))
    assert set(merging.sets(notebook).values()) == {A}
    notebook.add(edits.retired(notebook.patterns[A], TANK, Ticks()()))
    assert set(merging.sets(notebook).values()) == {B}
    assert told(notebook) == {B: 3}  # history is kept: the retired record's occurrences count on


def test_a_record_without_a_text_stands_for_nobody():
    bare = Line(id=A, at=clock.pack(1_750_000_000_000), by=TANK, add={TANK: clock.pack(1_750_000_000_000)})
    notebook = notebook_of(bare, record(B), pointing(B, A))
    assert merging.sets(notebook) == {A: B, B: B}
    assert told(notebook) == {B: 1}


def test_a_set_that_is_retired_as_a_whole_is_not_shown_and_keeps_one_id():
    notebook = notebook_of(record(A), record(B), pointing(B, A))
    for pattern in (A, B):
        notebook.add(edits.retired(notebook.patterns[pattern], TANK, Ticks()()))
    assert told(notebook) == {}
    assert merging.whole(notebook, B).id == A
    assert not is_present(merging.whole(notebook, B))


def test_a_set_is_in_while_one_record_is_though_the_same_replica_retired_a_newer_one():
    older, newer = record(A, at_ms=1_750_000_000_000), record(B, at_ms=1_750_000_009_000)
    notebook = notebook_of(older, newer, pointing(B, A))
    notebook.add(edits.retired(notebook.patterns[B], TANK, Ticks()()))
    [line] = merging.shown(notebook)
    assert is_present(line)
    assert last_seen(line) == older.add[VELMA]


def test_two_opposite_merges_at_once_are_one_set():
    notebook = notebook_of(record(A), record(B), pointing(B, A, by=VELMA), pointing(A, B, by=TANK))
    assert told(notebook) == {A: 2}


def test_a_cycle_of_three_is_one_set_and_can_be_merged_further():
    notebook = notebook_of(*map(record, (A, B, C, D)), pointing(A, B), pointing(B, C), pointing(C, A))
    assert told(notebook) == {A: 3, D: 1}
    notebook.add_all(merging.merge(notebook, D, B, TANK, Ticks()))
    assert told(notebook) == {A: 4}


@pytest.mark.parametrize("into", [B, "p-00000000000000ff", "", "no id", "d-0000000000000001", None, 7, ["x"], {}])
def test_what_points_to_itself_to_nobody_or_to_no_id_harms_nothing(into):
    notebook = notebook_of(record(A), record(B), pointing(B, into))
    assert told(notebook) == {A: 1, B: 1}
    assert merging.sets(notebook) == {}


def test_records_that_point_to_one_that_is_not_here_yet_are_one_set_now_and_later():
    lines = [record(B), record(C), pointing(B, A), pointing(C, A)]
    notebook = notebook_of(*lines)
    assert told(notebook) == {B: 2}
    notebook.add(record(A))
    assert told(notebook) == {A: 3}


def test_a_merge_never_takes_a_third_record_out():
    for order in permutations([(A, B), (B, C), (C, D)]):
        notebook = notebook_of(*map(record, (A, B, C, D)))
        ticks = Ticks()
        for one, other in order:
            notebook.add_all(merging.merge(notebook, one, other, VELMA, ticks))
        assert told(notebook) == {A: 4}


def test_what_is_merged_is_not_merged_again():
    notebook = notebook_of(record(A), record(B), record(C), pointing(B, A), pointing(C, B))
    for one, other in combinations((A, B, C), 2):
        with pytest.raises(NoError, match="merged already; nothing was changed"):
            merging.merge(notebook, one, other, VELMA, Ticks())
    with pytest.raises(NoError):
        merging.merge(notebook, A, A, VELMA, Ticks())


@pytest.mark.parametrize("named", [A, B])
def test_unmerge_undoes_a_merge_whichever_of_the_two_is_named(named):
    notebook = notebook_of(record(A), record(B))
    ticks = Ticks()
    notebook.add_all(merging.merge(notebook, A, B, VELMA, ticks))
    [line] = merging.unmerge(notebook, named, TANK, ticks)
    assert line.set == {"merged_into": ""}
    notebook.add(line)
    assert told(notebook) == {A: 1, B: 1}


def test_unmerge_of_opposite_merges_takes_them_apart():
    for named in (A, B):
        notebook = notebook_of(record(A), record(B), pointing(B, A), pointing(A, B))
        notebook.add_all(merging.unmerge(notebook, named, TANK, Ticks()))
        assert told(notebook) == {A: 1, B: 1}


def test_unmerge_of_what_is_not_merged_says_so():
    with pytest.raises(NoError, match="not merged"):
        merging.unmerge(notebook_of(record(A)), A, VELMA, Ticks())


def test_a_merge_can_be_made_again_after_it_was_undone():
    notebook = notebook_of(record(A), record(B))
    ticks = Ticks()
    for _ in range(2):
        notebook.add_all(merging.merge(notebook, A, B, VELMA, ticks))
        assert told(notebook) == {A: 2}
        notebook.add_all(merging.unmerge(notebook, B, VELMA, ticks))
        assert told(notebook) == {A: 1, B: 1}


def test_fields_are_the_representatives_and_what_it_lacks_comes_from_the_others():
    one = record(A, tags=["ci", "sh"], at_ms=1_750_000_005_000)
    two = record(
        B, {TANK: 1}, category="shell", correct="b", tags=["sh", "git"], state="published", **{"agent.ab": "x"}
    )
    notebook = notebook_of(one, two, record(C, correct="c", tags="no list"), pointing(B, A), pointing(C, A))
    [line] = merging.shown(notebook)
    assert line.set == {
        "text": "lesson 1",
        "correct": "b",
        "category": "shell",
        "state": "published",
        "tags": ["ci", "sh", "git"],
        "agent.ab": "x",
    }
    assert (line.at, line.by) == min((one.at, one.by), (two.at, two.by))
    assert agents(line) == ["tank", "velma"]


def test_everything_lists_each_record_and_under_which_id_it_is_shown():
    notebook = notebook_of(record(A), record(B, {TANK: 2}), record(C), pointing(B, A))
    listed = {line.id: (count(line, "seen"), under) for line, under in merging.everything(notebook)}
    assert listed == {A: (3, ""), B: (2, A), C: (1, "")}


def test_texts_of_records_that_nobody_asked_for_are_found_without_decoding_them():
    notebook = Notebook()
    gone = record(B)
    gone.rem = dict(gone.add)
    odd = record(C, text=["no", "text"])
    notebook.patterns.put_raw([A, B, C], [encode(record(A)), encode(gone), encode(odd)])
    assert list(merging.texts(notebook)) == [(A, "lesson 1")]
    assert all(notebook.patterns.raw(pattern) is not None for pattern in (A, B, C))
    assert merging.sets(notebook) == {}


def test_merges_in_records_that_are_still_bytes_count():
    notebook = Notebook()
    merged = record(B)
    merged.set["merged_into"] = A
    notebook.patterns.put_raw([A, B], [encode(record(A)), encode(merged)])
    assert merging.sets(notebook) == {A: A, B: A}


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
        notebook = notebook_of(*map(record, IDS))
        ticks = Ticks()
        for one, other in pairs:
            if merging.group_of(notebook, one) != merging.group_of(notebook, other):
                notebook.add_all(merging.merge(notebook, one, other, VELMA, ticks))
        found.append(partition(notebook))
    assert found[0] == found[1] == closure(pairs)


pointers = st.lists(
    st.tuples(st.sampled_from(IDS), st.sampled_from([*IDS, "", "p-00000000000000ff"]), st.integers(1, 5)), max_size=10
)
retirements = st.sets(st.sampled_from(IDS))


@given(pointers, retirements, st.randoms(use_true_random=False))
def test_deliveries_in_any_order_and_any_number_of_times_show_the_same(pointed, retired, random):
    lines = [record(pattern, {VELMA: number, TANK: 1}) for number, pattern in enumerate(IDS, 1)]
    lines += [pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed]
    lines += [edits.retired(record(pattern, {VELMA: 1, TANK: 1}), TANK, Ticks()()) for pattern in sorted(retired)]
    shown = []
    for _ in range(2):
        random.shuffle(lines)
        notebook = notebook_of(*lines, *lines[:3])
        shown.append(sorted(encode(line) for line in merging.shown(notebook)))
    assert shown[0] == shown[1]


@given(pointers, retirements)
def test_no_occurrence_is_lost_or_counted_twice(pointed, retired):
    lines = [record(pattern, {VELMA: 10**number}) for number, pattern in enumerate(IDS)]
    notebook = notebook_of(
        *lines, *(pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed)
    )
    for pattern in sorted(retired):
        notebook.add(edits.retired(notebook.patterns[pattern], TANK, Ticks()()))
    under = merging.sets(notebook)
    for group in partition(notebook):
        whole = merging.whole(notebook, min(group))
        assert count(whole, "seen") == sum(count(notebook.patterns[member], "seen") for member in group)
        assert is_present(whole) == any(is_present(notebook.patterns[member]) for member in group)
    assert sum(told(notebook).values()) == sum(
        10**number
        for number, pattern in enumerate(IDS)
        if any(under.get(other, other) == under.get(pattern, pattern) for other in set(IDS) - retired)
    )


@given(merges, st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)))
def test_unmerging_what_was_just_merged_restores_all_sets(pairs, last):
    notebook, ticks = notebook_of(*map(record, IDS)), Ticks()
    for one, other in pairs:
        if merging.group_of(notebook, one) != merging.group_of(notebook, other):
            notebook.add_all(merging.merge(notebook, one, other, VELMA, ticks))
    before = partition(notebook)
    if merging.group_of(notebook, last[0]) == merging.group_of(notebook, last[1]):
        return
    [line] = merging.merge(notebook, *last, VELMA, ticks)
    notebook.add(line)
    assert partition(notebook) != before
    notebook.add_all(merging.unmerge(notebook, line.id, TANK, ticks))
    assert partition(notebook) == before


@given(pointers, st.sampled_from(IDS))
def test_unmerge_always_parts_a_record_from_what_it_pointed_to(pointed, named):
    notebook = notebook_of(*map(record, IDS))
    notebook.add_all(pointing(one, into, clock.pack(1_760_000_000_000 + at)) for one, into, at in pointed)
    edges = notebook.pointing()
    partners = {edges[named]} if named in edges else {one for one, into in edges.items() if into == named}
    try:
        lines = merging.unmerge(notebook, named, TANK, Ticks())
    except NoError:
        assert not partners
        return
    notebook.add_all(
        edits.field_set(Line(id=line.id), "merged_into", "", TANK, clock.pack(1_770_000_000_000)) for line in lines
    )
    assert not partners & set(merging.group_of(notebook, named))
