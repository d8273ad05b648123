"""The line format: one rule, the join of lines is the truth."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdt import clock
from fleet.model import limits
from fleet.model import line as codec
from fleet.model.line import BadLineError, Carried, Column, Line, canonical
from tests.laws import checks
from tests.laws.checks import IDS, REPLICAS, STAMPS

line = checks.lines_of_one_id()
histories = st.lists(checks.entries, max_size=6)

# --- one line and another ---


@given(line, line)
def test_join_is_commutative(a, b):
    checks.commutative(codec, a, b)


@given(line, line, line)
def test_join_is_associative(a, b, c):
    checks.associative(codec, a, b, c)


@given(line, line)
def test_join_is_idempotent(a, b):
    checks.idempotent(codec, a, b)


@given(line, line, line)
def test_join_covers_both_and_adds_nothing_of_its_own(a, b, c):
    checks.join_covers_both(codec, a, b)
    checks.join_adds_nothing_of_its_own(codec, a, b, c)


@given(line, line, line)
def test_join_is_monotone(a, b, c):
    checks.join_is_monotone(codec, a, b, c)


@given(line, line)
def test_a_line_covers_what_would_change_nothing(whole, part):
    checks.covers_means_that_join_changes_nothing(codec, whole, part)


@given(line, line)
def test_join_touches_neither_side(a, b):
    checks.join_touches_nothing(codec, a, b)


@given(line, line, line)
def test_the_join_is_what_the_design_says(a, b, c):
    checks.the_join_is_what_the_design_says(codec, a, b, c)


@given(line, line)
def test_what_a_line_has_beyond_another_is_all_that_it_brings_and_no_more(whole, base):
    checks.what_a_line_has_beyond_another_is_all_that_it_brings(codec, whole, base)
    checks.what_a_line_has_beyond_another_is_the_smallest(codec, whole, base)


@given(line)
def test_a_line_has_all_of_itself_beyond_none(whole):
    news = codec.difference(whole, None)
    assert (news is None) == (not whole.w)
    assert news is None or codec.encode(news) == codec.encode(whole)


def test_the_time_when_a_writer_first_saw_it_joins_by_the_smaller():
    """As any other first wording, by the larger bytes, an older record that is imported later would change nothing."""
    early, late = (Line(IDS[0], {REPLICAS[0]: Column(first={"at": stamp})}) for stamp in STAMPS[:2])
    assert codec.encode(codec.join(early, late)) == codec.encode(codec.join(late, early)) == codec.encode(early)
    assert codec.covers(early, late)
    assert not codec.covers(late, early)


def test_marks_of_the_carried_are_kept_and_cover_no_column():
    mark = Line(IDS[0], {REPLICAS[0]: Column(purge={"carried": {"00000000000000aa": clock.ZERO}})})
    said = Line(IDS[0], {REPLICAS[1]: Column(first={"00000000000000aa": "x"})})
    joined = codec.join(mark, said)
    assert joined.purged_carried() == {"00000000000000aa"}
    assert joined.marks("purge") == {}
    assert joined.w[REPLICAS[1]].first == {"00000000000000aa": "x"}


def test_a_carried_line_is_named_by_the_hash_of_its_bytes():
    carried = codec.decode(b'{"id":"p-0000000000000001","v":3}')
    assert carried.hash == "4ee482ccc6d3bdd4"


@given(line)
def test_the_stamps_of_a_line_are_all_that_stand_in_it(whole):
    stamps = {value for atom, value in checks._atoms(whole) if atom[1] in {"add", "rem", "over", "purge"}}
    stamps |= {value[0] for atom, value in checks._atoms(whole) if atom[1] == "set"}
    assert set(whole.stamps()) == stamps


# --- bytes ---


@given(checks.lines(checks.exact_values))
def test_canonical_bytes_are_sorted_compact_json(line):
    checks.canonical_bytes_are_sorted_compact_json(codec.encode, line)


@given(checks.lines())
def test_a_line_reads_back(line):
    checks.a_line_reads_back(codec.decode, line)
    checks.a_line_reads_back(codec._decode_strictly, line)


@given(checks.lines(), st.integers(0, 2**32))
def test_an_untidy_line_reads_as_its_canonical_form(line, seed):
    checks.an_untidy_line_reads_as_its_canonical_form(codec.decode, line, seed)
    checks.an_untidy_line_reads_as_its_canonical_form(codec._decode_strictly, line, seed)


@given(checks.columns(), checks.columns())
def test_what_a_mark_covers_is_not_read(column, mark):
    checks.what_a_mark_covers_is_not_read(codec.decode, column, mark)


def test_a_part_that_a_newer_version_calls_unknown_is_read_as_any_other_name():
    """It is the name under which a column keeps such parts in memory."""
    raw = b'{"id":"p-0000000000000001","w":{"anna.00000001":{"unknown":{"x":1},"zz":2}}}'
    read = codec.decode(raw)
    assert read.w["anna.00000001"].unknown == {"unknown": {"x": 1}, "zz": 2}
    assert codec.encode(read) == raw


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from((*STAMPS, *REPLICAS, *checks.HASHES)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from((*REPLICAS, "seen", "text", "at", "", "carried")), inner, max_size=3)
    ),
    max_leaves=6,
)
_columns = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("add", "first", "unknown", "n", "over", "parts", "purge", "rem", "set", "more"), _json)
)
_objects = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS)},
    optional={"w": st.dictionaries(st.sampled_from((*REPLICAS, "anna")), _columns, max_size=2) | _json}
    | dict.fromkeys(("add", "v", "more"), _json),
)


@given(_objects, st.binary(max_size=3), st.integers(0, 400))
def test_whatever_comes_is_read_refused_or_carried_and_both_ways_alike(found, rubbish, at):
    good = json.dumps(found).encode()
    for raw in (good, canonical(found), good[:at] + rubbish + good[at:]):
        quick, slow = _outcome(codec.decode, raw), _outcome(codec._decode_strictly, raw)
        assert quick == slow
        if isinstance(quick, bytes):
            assert _outcome(codec.decode, quick) == quick
            read = codec.decode(quick)
            assert codec.encode(codec.join(read, read)) == quick


def _outcome(decode, raw):
    try:
        entry = decode(raw)
    except BadLineError:
        return "refused"
    return entry if isinstance(entry, Carried) else codec.encode(entry)


def test_a_carried_line_with_a_line_break_is_refused():
    """Found: byte for byte, it would have been read back as two lines."""
    for end in (b"\n", b"\r", b"\r\n"):
        with pytest.raises(BadLineError, match="line break"):
            codec.decode(b'{"id":"p-0000000000000001",' + end + b'"more":1}')


@pytest.mark.parametrize("key", ["add", "at", "by", "n", "rem", "set", "when"])
def test_a_line_of_version_1_is_refused_with_what_to_do(key):
    raw = json.dumps({"id": IDS[0], key: {}}).encode()
    with pytest.raises(BadLineError, match=r"written by fleet 0\.1: run `fleet upgrade`"):
        codec.decode(raw)
    assert isinstance(codec.decode(raw[:-1] + b',"w":{}}'), Carried), "a newer version may use the name again"


# --- long lines ---


@settings(max_examples=max(12, settings.default.max_examples // 100))
@given(checks.wide_lines())
@example(checks.wide_line(fields=12, field_bytes=8192, replicas=1500, names=700))
def test_a_long_line_is_split_and_joins_back(line):
    checks.a_long_line_is_split_and_joins_back(codec.split, line)
    checks.a_long_line_is_split_in_writer_order(codec.split, line)
    edition = checks.edition_of(codec, [line])
    assert checks.edition_of(codec, reversed(checks.read_edition(codec, edition))) == edition


def test_one_replica_with_more_counters_than_fit_a_line_is_split():
    """Found: the totals of one replica went on one line, however long, which no peer would have read."""
    many = Line(IDS[0], {REPLICAS[0]: Column(n={f"counter {number:04} {'x' * 50}": 1 for number in range(2_000)})})
    checks.a_long_line_is_split_and_joins_back(codec.split, many)


@pytest.mark.parametrize("part", ["first", "set", "unknown"])
def test_a_value_that_would_not_fit_a_line_with_the_longest_names_is_refused(part):
    """Found: one long field fits its own line, and then not the joined one, under a longer writer's name."""
    field = '"' * limits.NAME_CHARS_MAX
    longest = "a" * 32 + ".00000001"
    room = ["x" * 8_000] * 7 + ["x" * 4_000] * 2
    room[-1] = "x" * (4_000 - len(canonical(room)) + limits.VALUE_BYTES_MAX)
    assert len(canonical(room)) == limits.VALUE_BYTES_MAX

    def said(field, value):
        return Line(IDS[0], {longest: Column(**{part: {field: (STAMPS[1], value) if part == "set" else value}})})

    filler = Line(IDS[0], {longest: Column(first={"text": "y" * 8_000})})
    checks.a_long_line_is_split_and_joins_back(codec.split, codec.join(said(field, room), filler))
    room[-1] += "x"
    with pytest.raises(BadLineError, match="'note' is longer than 64512 bytes"):
        codec.decode(codec.encode(said("note", room)))


def test_a_list_of_numbers_that_grows_when_written_canonically_is_refused():
    start = b'{"id":"p-0000000000000001","w":{"anna.00000001":{"first":{"x":['
    raw = start + b",".join([b"1e15"] * 6_000) + b"]}}}}"
    assert len(raw) < limits.LINE_BYTES_MAX
    with pytest.raises(BadLineError, match="'x' is longer"):
        codec.decode(raw)


# --- many lines, any order, any number of times ---


@given(checks.deliveries())
def test_any_delivery_gives_the_same_edition(sent_and_received):
    checks.any_delivery_gives_the_same_edition(codec, sent_and_received)


@given(histories)
def test_an_edition_reloads_to_itself(sent):
    checks.an_edition_reloads_to_itself(codec, sent)


@given(histories)
def test_carried_lines_pass_byte_for_byte(sent):
    checks.carried_lines_pass_byte_for_byte(codec, sent)


@given(st.lists(histories, min_size=2, max_size=3))
def test_editions_of_editions_are_the_edition_of_all_lines(groups):
    checks.editions_of_editions_are_the_edition_of_all_lines(codec, groups)
