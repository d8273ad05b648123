"""The whole line format and the notebook: one rule, the join of lines is the truth (DESIGN, section 3)."""

import json
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdt import clock
from fleet.keep import limits, notebook
from fleet.keep import line as codec
from fleet.keep.line import BadLineError, Carried, Line
from fleet.keep.notebook import Notebook
from tests.laws import checks
from tests.laws.checks import FOREVER, IDS, REPLICAS, STAMPS

line = checks.lines_of_one_id()
histories = st.lists(checks.entries, max_size=6)
pattern_histories = st.lists(checks.lines(), max_size=6)
cuts = st.sampled_from((*STAMPS, FOREVER))

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
def test_join_is_monotone_and_the_least_upper_bound(a, b, c):
    checks.join_covers_both(codec, a, b)
    checks.join_is_monotone(codec, a, b, c)
    checks.join_adds_nothing_of_its_own(codec, a, b, c)


@given(line, line)
def test_a_line_covers_what_would_change_nothing(whole, part):
    checks.covers_means_that_join_changes_nothing(codec, whole, part)


@given(line, line)
def test_join_touches_neither_side(a, b):
    checks.join_touches_nothing(codec, a, b)


@given(line, line, line)
def test_the_join_is_what_the_design_says(a, b, c):
    checks.the_join_is_what_the_design_says(codec, a, b, c)


# --- bytes ---


@given(checks.lines(checks.exact_values))
def test_canonical_bytes_are_sorted_compact_json(line):
    checks.canonical_bytes_are_sorted_compact_json(codec.encode, line)


@given(checks.lines())
def test_a_line_reads_back(line):
    checks.a_line_reads_back(codec.decode, line)
    checks.a_line_reads_back(codec.decode_slowly, line)


@given(checks.lines(), st.integers(0, 2**32))
def test_an_untidy_line_reads_as_its_canonical_form(line, seed):
    checks.an_untidy_line_reads_as_its_canonical_form(codec.decode, line, seed)
    checks.an_untidy_line_reads_as_its_canonical_form(codec.decode_slowly, line, seed)


def test_a_written_zero_stamp_reads_as_none():
    """Found: `"at":"0"` passed as canonical, so that two peers could write two bytes of one record."""
    raw = b'{"at":"0","id":"p-0000000000000001"}'
    assert codec.encode(codec.decode(raw)) == b'{"id":"p-0000000000000001"}'
    assert not codec.is_sound(codec.decode_block(raw)[0], raw)


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from((*STAMPS, *REPLICAS)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from((*REPLICAS, "seen", "text", "")), inner, max_size=3)
    ),
    max_leaves=6,
)
_objects = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS)},
    optional=dict.fromkeys(("add", "at", "by", "n", "rem", "set", "v", "when", "more"), _json),
)


@given(_objects, st.binary(max_size=3), st.integers(0, 400))
def test_whatever_comes_is_read_refused_or_carried_and_both_ways_alike(found, rubbish, at):
    good = json.dumps(found).encode()
    for raw in (good, codec.encode_value(found), good[:at] + rubbish + good[at:]):
        quick, slow = _outcome(codec.decode, raw), _outcome(codec.decode_slowly, raw)
        assert quick == slow


def _outcome(decode, raw):
    try:
        entry = decode(raw)
    except BadLineError:
        return "refused"
    return entry if isinstance(entry, Carried) else codec.encode(entry)


# --- long lines ---


@settings(max_examples=max(12, settings.default.max_examples // 100))
@given(checks.wide_lines())
@example(checks._wide_line(fields=12, field_bytes=8192, replicas=1500, names=700, has_first=True))
def test_a_long_line_is_split_and_joins_back(line):
    checks.a_long_line_is_split_and_joins_back(codec.split, line)
    edition = checks.edition_of(Notebook, [line])
    assert checks.edition_of(Notebook, reversed(checks.read_edition(edition))) == edition


def test_one_replica_with_more_counters_than_fit_a_line_is_split():
    """Found: the totals of one replica went on one line, however long, which no peer would have read."""
    many = Line(id=IDS[0], n={f"counter {number:04} {'x' * 50}": {REPLICAS[0]: 1} for number in range(2_000)})
    checks.a_long_line_is_split_and_joins_back(codec.split, many)


def test_a_value_that_would_not_fit_a_line_with_the_longest_names_is_refused():
    """Found: one long field fits its own line, and then not the joined one, under a longer writer's name."""
    field = '"' * limits.NAME_CHARS_MAX
    longest = "a" * 32 + ".00000001"
    room = ["x" * 8_000] * 7 + ["x" * 4_000] * 2
    room[-1] = "x" * (4_000 - len(codec.encode_value(room)) + limits.VALUE_BYTES_MAX)
    assert len(codec.encode_value(room)) == limits.VALUE_BYTES_MAX
    joined = Line(id=IDS[0], at=STAMPS[0], by=longest, set={field: room}, when={field: (STAMPS[1], longest)})
    filler = Line(id=IDS[0], at=STAMPS[0], by=longest, set={"text": "y" * 8_000})
    checks.a_long_line_is_split_and_joins_back(codec.split, codec.join(joined, filler))
    room[-1] += "x"
    with pytest.raises(BadLineError, match="'note' is longer than 64512 bytes"):
        codec.decode(codec.encode(Line(id=IDS[0], set={"note": room})))


def test_a_list_of_numbers_that_grows_when_written_canonically_is_refused():
    raw = b'{"id":"p-0000000000000001","set":{"x":[' + b",".join([b"1e15"] * 6_000) + b"]}}"
    assert len(raw) < limits.LINE_BYTES_MAX
    with pytest.raises(BadLineError, match="'x' is longer"):
        codec.decode(raw)


# --- many lines, any order, any number of times ---


@given(checks.deliveries())
def test_any_delivery_gives_the_same_edition(sent_and_received):
    checks.any_delivery_gives_the_same_edition(Notebook, *sent_and_received)


@given(checks.deliveries(), cuts)
def test_any_delivery_under_a_cut_gives_the_same_edition(sent_and_received, cut):
    checks.any_delivery_under_a_cut_gives_the_same_edition(Notebook, sent_and_received, cut)


@given(histories)
def test_an_edition_reloads_to_itself(sent):
    checks.an_edition_reloads_to_itself(Notebook, sent)


@given(histories)
def test_an_edition_is_sorted_with_one_line_a_pattern(sent):
    checks.an_edition_is_sorted_a_line_a_pattern(Notebook, sent)


@given(histories)
def test_an_edition_is_the_join_by_definition(sent):
    checks.an_edition_is_the_join_by_definition(Notebook, sent)


@given(histories, cuts)
def test_carried_lines_pass_byte_for_byte(sent, cut):
    checks.carried_lines_pass_byte_for_byte(Notebook, sent, cut)


@given(histories, checks.entries, cuts)
def test_a_notebook_covers_what_would_change_nothing(sent, entry, cut):
    checks.a_notebook_covers_what_would_change_nothing(Notebook, sent, entry, cut)


@given(st.lists(histories, min_size=2, max_size=3))
def test_editions_of_editions_are_the_edition_of_all_lines(groups):
    """Two compactions at once, and one of both, lose and double nothing."""
    editions = b"".join(checks.edition_of(Notebook, group) for group in groups)
    assert checks.edition_of(Notebook, checks.read_edition(editions)) == checks.edition_of(Notebook, chain(*groups))


def test_a_carried_line_with_a_line_break_is_refused():
    """Found: byte for byte, it would have been read back as two lines."""
    for end in (b"\n", b"\r", b"\r\n"):
        with pytest.raises(BadLineError, match="line break"):
            codec.decode(b'{"id":"p-0000000000000001",' + end + b'"more":1}')


# --- held parts ---


@given(pattern_histories, cuts)
def test_no_part_beyond_the_cut_is_joined(sent, cut):
    checks.no_part_beyond_the_cut_is_joined(Notebook, sent, cut)


@given(pattern_histories, cuts)
def test_early_parts_join_beside_held_ones(sent, cut):
    checks.early_parts_join_beside_held_ones(Notebook, sent, cut)


@given(histories, cuts)
def test_an_edition_reloads_under_its_cut(sent, cut):
    checks.an_edition_reloads_under_its_cut(Notebook, sent, cut)


@given(histories, cuts, cuts)
def test_holding_loses_nothing(sent, cut, later):
    checks.holding_loses_nothing(Notebook, sent, cut, later)


def test_a_part_that_nobody_else_comes_near_is_not_folded_into_an_edition():
    far = clock.shifted(STAMPS[-1], 25 * notebook.MS_AN_HOUR)
    book = checks.book_of(
        Notebook,
        [
            Line(id=IDS[0], add={REPLICAS[0]: far}),
            Line(id=IDS[0], add={REPLICAS[1]: STAMPS[-1]}),
            Line(id=IDS[0], set={"text": "imported"}, when={"text": (far, "import.00000009")}),
        ],
    )
    assert notebook.edition_cut(book) == clock.shifted(STAMPS[-1], 24 * notebook.MS_AN_HOUR)
    assert notebook.edition_cut(checks.book_of(Notebook, [])) == FOREVER
