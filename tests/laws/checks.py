"""The laws, as plain functions of the join that must keep them, and the small universe they are tried in.

Each check takes the implementation first: a module of `crdt`, the line codec, a `Notebook` class, or a deliberately
broken copy of one (`test_broken_joins.py`). So the same code that praises the real join is known to catch the false.
The universe is small on purpose: three replicas and five stamps meet in every kind of tie.
"""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from types import ModuleType, SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from crdt import clock, lww
from fleet.keep import limits
from fleet.keep import line as codec
from fleet.keep.line import Carried, Line

REPLICAS = ("anna.00000001", "bert.00000002", "cleo.00000003")
NOW_MS = 1_790_000_000_000
STAMPS = tuple(clock.pack(NOW_MS + ms, counter) for ms, counter in ((0, 0), (0, 1), (5, 0), (900, 0), (86_400_000, 0)))
FOREVER = "~"
IDS = ("p-0000000000000001", "p-00000000000000ff")
COUNTERS = ("seen", "sessions", "zeta")
FIELDS = ("category", "text", "ω")


class Clock:
    """A clock that somebody holds, as the timekeeper does: it issues what ``clock.ticked`` gives."""

    def __init__(self, wall_ms: Callable[[], int], last: str = clock.ZERO) -> None:
        self._wall_ms = wall_ms
        self.last = last

    def wall(self) -> str:
        return clock.nearest(self._wall_ms())

    def admit(self, stamp: str) -> None:
        self.last = max(self.last, stamp)

    def tick(self) -> str:
        self.last = clock.ticked(self._wall_ms(), self.last)
        return self.last


def broken(module: ModuleType, **changes: Any) -> SimpleNamespace:
    """Return a copy of a module in which some functions are replaced."""
    return SimpleNamespace(**{**vars(module), **changes})


# --- the universe ---------------------------------------------------------------------------------------------------

replicas = st.sampled_from(REPLICAS)
stamps = st.sampled_from(STAMPS)


def _maps_to(choices: Sequence[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a map of some replicas to some of these, each map equally likely: one draw, where a dictionary takes ten."""
    slots = product((None, *choices), repeat=len(REPLICAS))
    maps = [{r: found for r, found in zip(REPLICAS, slot, strict=True) if found is not None} for slot in slots]
    return st.sampled_from(maps).map(dict)


counts = _maps_to(range(1, 5))
slots = _maps_to(STAMPS)

# Values that are equal, or nearly so, to Python and to nobody else.
VALUES = (
    1,
    True,
    1.0,
    "1",
    0,
    False,
    0.0,
    -0.0,
    None,
    "",
    "true",
    [],
    {},
    [1],
    [True],
    {"a": 1},
    {"a": True},
    "é",
    "e\u0301",
)
EXACT_VALUES = tuple(value for value in VALUES if not isinstance(value, float))


def _some_of(names: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([some for size in range(len(names) + 1) for some in combinations(names, size)])


_some_counters = _some_of(COUNTERS)
_some_fields = _some_of(FIELDS)


def _nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)

    return st.recursive(leaves, wrap, max_leaves=5)


_integers = st.integers(-limits.INTEGER_MAX, limits.INTEGER_MAX)
exact_values = st.sampled_from(EXACT_VALUES) | _nested(st.none() | st.booleans() | _integers | st.text(max_size=5))
values = st.sampled_from(VALUES) | exact_values | st.floats(allow_nan=False, allow_infinity=False)


_evidence = st.sampled_from((codec.NO_EVIDENCE,) * 5 + tuple(product(STAMPS, REPLICAS)))


@st.composite
def lines(draw: st.DrawFn, values: st.SearchStrategy[Any] = values) -> Line:
    """Draw any valid line of the universe, as if decoded."""
    line = Line(
        id=draw(st.sampled_from(IDS)),
        at=draw(st.sampled_from((clock.ZERO, *STAMPS))),
        by=draw(st.sampled_from(("", *REPLICAS))),
        add=draw(slots),
        rem=draw(slots),
    )
    for name in draw(_some_counters):
        if totals := draw(counts):
            line.n[name] = totals
    for field in draw(_some_fields):
        line.set[field] = draw(values)
        if (proof := draw(_evidence)) != codec.NO_EVIDENCE:
            line.when[field] = proof
    return line


def lines_of_one_id(values: st.SearchStrategy[Any] = values) -> st.SearchStrategy[Line]:
    """Draw lines that may be joined."""

    def named(line: Line) -> Line:
        line.id = IDS[0]
        return line

    return lines(values).map(named)


@st.composite
def carried_lines(draw: st.DrawFn) -> Carried:
    """Draw a line of a newer version, in whatever spelling that version likes."""
    line_id = draw(st.sampled_from((*IDS, "d-0000000000000001", "q9-0000000000000001")))
    found: dict[str, Any] = {"zz": draw(exact_values), "id": line_id}
    if draw(st.booleans()):
        found["v"] = draw(st.sampled_from((0, 2, "1")))
    blank = draw(st.sampled_from(("", " ")))
    return Carried(line_id, json.dumps(found, separators=("," + blank, ":" + blank)).encode())


entries = lines() | carried_lines()


@st.composite
def deliveries(draw: st.DrawFn, of: st.SearchStrategy[Any] = entries) -> tuple[list[Any], list[Any]]:
    """Draw some entries, and the same once more: in another order, some of them repeated."""
    sent = draw(st.lists(of, max_size=6))
    repeats = draw(st.lists(st.sampled_from(sent), max_size=3)) if sent else []
    return sent, draw(st.permutations(sent + repeats))


def registers() -> st.SearchStrategy[Any]:
    """Draw LWW-Registers that tie often."""
    return st.builds(
        lww.Register, stamps | st.just(clock.ZERO), st.sampled_from(("", *REPLICAS)), values.map(codec.encode_value)
    )


def wide_lines() -> st.SearchStrategy[Line]:
    """Draw joined lines of many bytes: long texts, many replicas, many counters."""
    return st.builds(
        _wide_line,
        fields=st.integers(0, 12),
        field_bytes=st.sampled_from((10, 4_000, limits.TEXT_BYTES_MAX)),
        replicas=st.sampled_from((0, 3, 400, 700, 1_500)),
        names=st.sampled_from((1, 2, 700)),
        has_first=st.booleans(),
    )


def _wide_line(fields: int, field_bytes: int, replicas: int, names: int, has_first: bool) -> Line:
    line = Line(id=IDS[0])
    if has_first:
        line.at, line.by = STAMPS[0], "a" * 32 + ".00000001"
    for number in range(fields):
        name = f"field {number:02} " + "ß" * 50
        line.set[name] = "x" * field_bytes
        line.when[name] = (STAMPS[number % len(STAMPS)], REPLICAS[0])
    for number in range(replicas):
        replica = f"agent{number % 7}.{number * 7919:08x}"
        line.add[replica] = STAMPS[number % len(STAMPS)]
        if number % 3:
            line.rem[replica] = STAMPS[0]
        line.n.setdefault("seen", {})[replica] = number + 1
    for number in range(names if replicas else 0):
        line.n.setdefault(f"counter {number:04} " + "ß" * 48, {})["agent0.00000000"] = number + 1
    return line


# --- the lattice laws, for every join -------------------------------------------------------------------------------


def form(state: Any) -> Any:
    """Return what two equal states have in common. Lines are compared as bytes, since to Python 1 == True."""
    return codec.encode(state) if isinstance(state, Line) else state


def commutative(t: Any, a: Any, b: Any) -> None:
    assert form(t.join(a, b)) == form(t.join(b, a))


def associative(t: Any, a: Any, b: Any, c: Any) -> None:
    assert form(t.join(t.join(a, b), c)) == form(t.join(a, t.join(b, c)))


def idempotent(t: Any, a: Any, b: Any) -> None:
    assert form(t.join(a, a)) == form(a)
    joined = t.join(a, b)
    assert form(t.join(joined, b)) == form(joined)


def join_covers_both(t: Any, a: Any, b: Any) -> None:
    joined = t.join(a, b)
    assert t.covers(joined, a)
    assert t.covers(joined, b)


def join_is_monotone(t: Any, a: Any, b: Any, c: Any) -> None:
    """A state that has more, joined with anything, still has more."""
    assert t.covers(t.join(t.join(a, b), c), t.join(a, c))


def join_adds_nothing_of_its_own(t: Any, a: Any, b: Any, c: Any) -> None:
    """The join is the least upper bound: whatever covers both covers it."""
    joined = t.join(a, b)
    for above in (a, b, c):
        if t.covers(above, a) and t.covers(above, b):
            assert t.covers(above, joined)


def covers_means_that_join_changes_nothing(t: Any, whole: Any, part: Any) -> None:
    assert t.covers(whole, part) == (form(t.join(whole, part)) == form(whole))


def join_touches_nothing(t: Any, a: Any, b: Any) -> None:
    before = repr(a), repr(b)
    t.join(a, b)
    assert (repr(a), repr(b)) == before


# --- G-Counter ------------------------------------------------------------------------------------------------------


def each_replica_keeps_its_largest_total(t: Any, a: dict[str, int], b: dict[str, int]) -> None:
    assert t.join(a, b) == {replica: max(a.get(replica, 0), b.get(replica, 0)) for replica in {*a, *b}}


def value_is_the_sum_of_all_replicas(t: Any, a: dict[str, int]) -> None:
    assert t.value(a) == sum(a.get(replica, 0) for replica in REPLICAS)


def a_raise_moves_only_its_own_slot(t: Any, a: dict[str, int], replica: str, by: int) -> None:
    before = dict(a)
    delta = t.raised(a, replica, by)
    assert set(delta) == {replica}
    assert a == before
    assert t.join(a, delta) == {**before, replica: before.get(replica, 0) + by}


def raises_by_two_replicas_add_up(t: Any, a: dict[str, int], by: int) -> None:
    one, two = t.raised(a, REPLICAS[0], by), t.raised(a, REPLICAS[1], by)
    assert t.value(t.join(t.join(a, one), two)) == t.value(a) + 2 * by


def a_counter_never_falls(t: Any, a: dict[str, int], step: int) -> None:
    try:
        delta = t.raised(a, REPLICAS[0], step)
    except ValueError:
        assert step < 1
        return
    assert delta[REPLICAS[0]] > a.get(REPLICAS[0], 0)


def a_zero_is_not_kept(t: Any, a: dict[str, int], zeros: Sequence[str]) -> None:
    nothing = dict.fromkeys(zeros, 0)
    assert t.join(nothing, a) == t.join(a, nothing) == a


# --- LWW-Register ---------------------------------------------------------------------------------------------------


def the_later_write_wins(t: Any, a: Any, b: Any) -> None:
    later = max(a, b, key=lambda register: register.stamp)
    if a.stamp != b.stamp:
        assert t.join(a, b) == later
        assert t.join(b, a) == later


def a_tie_goes_to_the_larger_replica(t: Any, a: Any, b: Any) -> None:
    b = b._replace(stamp=a.stamp)
    if a.replica != b.replica:
        assert t.join(a, b) == max(a, b, key=lambda register: register.replica)


def a_tie_of_one_replica_goes_to_the_larger_bytes(t: Any, a: Any, b: Any) -> None:
    b = b._replace(stamp=a.stamp, replica=a.replica)
    assert t.join(a, b).value == max(a.value, b.value)
    assert t.covers(a, b) == (b.value <= a.value)


def fields_are_joined_one_by_one(t: Any, a: dict[str, Any], b: dict[str, Any]) -> None:
    joined = t.join_fields(a, b)
    assert set(joined) == {*a, *b}
    for field, register in joined.items():
        assert register == max(side[field] for side in (a, b) if field in side)


# --- OR-Set ---------------------------------------------------------------------------------------------------------


def each_replica_keeps_its_latest_stamp(t: Any, a: dict[str, str], b: dict[str, str]) -> None:
    assert t.join(a, b) == {replica: max(a.get(replica, ""), b.get(replica, "")) for replica in {*a, *b}}


def present_while_some_add_is_unseen_by_removes(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    alive = {replica: stamp for replica, stamp in add.items() if replica not in rem or stamp > rem[replica]}
    assert t.live(add, rem) == alive
    assert t.present(add, rem) == bool(alive)


def a_remove_takes_out_all_it_saw(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    assert not t.present(add, t.join(rem, t.removal(add, rem)))


def a_remove_covers_only_what_it_saw(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    for replica, stamp in t.removal(add, rem).items():
        assert add.get(replica) == stamp


def an_add_wins_over_a_concurrent_remove(t: Any, add: dict[str, str], rem: dict[str, str], replica: str) -> None:
    removed = t.join(rem, t.removal(add, rem))  # there, at the same time as
    fresh = {replica: clock.after(max([*add.values(), *rem.values()], default=STAMPS[0]))}  # here
    for joined in (t.join(t.join(add, fresh), add), t.join(fresh, add)):
        assert t.present(joined, removed)
        assert t.present(joined, t.join(removed, rem))


def an_older_add_wins_over_a_remove_that_has_not_seen_it(t: Any, add: dict[str, str], replica: str) -> None:
    """Whose clock is behind says nothing about who has seen what."""
    others = {other: stamp for other, stamp in add.items() if other != replica}
    removed = t.removal(others, {})
    assert t.present(t.join(others, {replica: STAMPS[0]}), removed)


def a_re_add_after_a_remove_is_in(t: Any, add: dict[str, str], rem: dict[str, str], replica: str) -> None:
    removed = t.join(rem, t.removal(add, rem))
    fresh = {replica: clock.after(max([*add.values(), *removed.values()], default=STAMPS[0]))}
    again = t.join(add, fresh)
    assert t.present(again, removed)
    assert t.live(again, removed) == fresh


def a_late_old_add_stays_out(t: Any, add: dict[str, str], rem: dict[str, str], late: dict[str, str]) -> None:
    removed = t.join(rem, t.removal(add, rem))
    late = {replica: min(stamp, add[replica]) for replica, stamp in late.items() if replica in add}
    assert not t.present(t.join(add, late), removed)


# --- hybrid logical clock -------------------------------------------------------------------------------------------

DAY_MS = 86_400_000
events = st.lists(
    st.tuples(st.just("wall"), st.sampled_from((-3650 * DAY_MS, -DAY_MS, -1, 0, 1, 60_000, 3650 * DAY_MS)))
    | st.tuples(st.just("admit"), st.sampled_from((0, 1, DAY_MS)))
    | st.tuples(st.just("admit full"), st.sampled_from((0, 1, 5)))
    | st.tuples(st.just("tick"), st.just(0)),
    max_size=12,
).map(lambda drawn: [*drawn, ("tick", 0)])


def _history(clock_class: Any, events: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str, str]]:
    """Play events; yield (issued stamp, wall at that time, largest stamp before) for each tick."""
    now = [NOW_MS]
    ticking = clock_class(lambda: now[0])
    largest = clock.ZERO
    for kind, ms in events:
        if kind == "wall":
            now[0] = max(now[0] + ms, 0)
        elif kind == "tick":
            issued = ticking.tick()
            yield issued, clock.pack(now[0]), largest
            largest = max(largest, issued)
        else:
            admitted = clock.pack(NOW_MS + ms, clock.COUNTER_MAX if kind == "admit full" else 3)
            ticking.admit(admitted)
            largest = max(largest, admitted)


def stamps_rise_whatever_the_wall_does(clock_class: Any, events: Iterable[tuple[str, int]]) -> None:
    for issued, _, largest in _history(clock_class, events):
        assert issued > largest
        assert clock.is_stamp(issued)


def stamps_follow_the_wall(clock_class: Any, events: Iterable[tuple[str, int]]) -> None:
    """The wall's reading when it leads, and else the very next one, so that no clock drifts off by itself."""
    for issued, wall, largest in _history(clock_class, events):
        ms, counter = clock.unpack(largest)
        following = clock.pack(ms, counter + 1) if counter < clock.COUNTER_MAX else clock.pack(ms + 1)
        assert issued == max(wall, following)


readings = st.tuples(
    st.integers(0, clock.MS_MAX) | st.integers(NOW_MS, NOW_MS + 3),
    st.integers(0, clock.COUNTER_MAX) | st.sampled_from((0, 1, 9, 10, 15, 16, clock.COUNTER_MAX)),
)


def text_sorts_as_readings_do(t: Any, a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (t.pack(*a) < t.pack(*b)) == (a < b)
    assert (t.pack(*a) == t.pack(*b)) == (a == b)


def a_stamp_reads_back(t: Any, reading: tuple[int, int]) -> None:
    stamp = t.pack(*reading)
    assert t.is_stamp(stamp)
    assert t.unpack(stamp) == reading
    assert clock.ZERO < stamp < FOREVER


def nothing_lies_between_a_stamp_and_the_next(t: Any, reading: tuple[int, int]) -> None:
    if reading == (clock.MS_MAX, clock.COUNTER_MAX):
        return
    ms, counter = t.unpack(t.after(t.pack(*reading)))
    assert ms * (clock.COUNTER_MAX + 1) + counter == reading[0] * (clock.COUNTER_MAX + 1) + reading[1] + 1


NO_STAMPS = (
    "",
    "0",
    "2026-02-30T10:00:00.000Z-0000",
    "2025-02-29T10:00:00.000Z-0000",
    "2026-13-01T10:00:00.000Z-0000",
    "2026-00-10T10:00:00.000Z-0000",
    "2026-11-00T10:00:00.000Z-0000",
    "0000-01-01T00:00:00.000Z-0000",
    "1969-12-31T23:59:59.999Z-0000",
    "2026-11-20T24:00:00.000Z-0000",
    "2026-11-20T23:60:00.000Z-0000",
    "2026-11-20T23:59:60.000Z-0000",
    "2026-11-20T22:30:00.123Z",
    "2026-11-20T22:30:00.123Z-000",
    "2026-11-20T22:30:00.123Z-00000",
    "2026-11-20T22:30:00.12Z-0000",
    "2026-11-20T22:30:00.1234Z-000",
    "2026-11-20T22:30:00.123Z-00AF",
    "2026-11-20T22:30:00.123Z-000g",
    "2026-11-20t22:30:00.123z-0000",
    "2026-11-20 22:30:00.123Z-0000",
    "2026-11-20T22:30:00,123Z-0000",
    "2026-11-20T22:30:00.123+0000",
    "2026-11-20T22:30:00.123Z-0000\n",
    " 2026-11-20T22:30:00.123Z-0000",
    "+026-11-20T22:30:00.123Z-0000",
    "2026-W47-5T22:30:00.123Z-0000",
    "٢٠٢٦-11-20T22:30:00.123Z-0000",
    "2026-11-20T22:30:00.123Z-00٠0",
    "２026-11-20T22:30:00.123Z-0000",
)


def no_malformed_stamp_is_taken(t: Any, text: str) -> None:
    assert not t.is_stamp(text)


# --- the line -------------------------------------------------------------------------------------------------------


def by_definition(lines: Sequence[Line]) -> bytes:
    """Return the join of lines of one id as the table of DESIGN, section 3, says it, written without the code."""
    found: dict[str, Any] = {"id": lines[0].id, "add": {}, "rem": {}, "n": {}, "set": {}, "when": {}}
    for kind in ("add", "rem"):
        for line in lines:
            for replica, stamp in getattr(line, kind).items():
                found[kind][replica] = max(stamp, found[kind].get(replica, ""))
    for line in lines:
        for name, totals in line.n.items():
            for replica, total in totals.items():
                slot = found["n"].setdefault(name, {})
                slot[replica] = max(total, slot.get(replica, 0))
    writes: dict[str, list[tuple[str, str, bytes, Any]]] = {}
    for line in lines:
        for field, value in line.set.items():
            stamp, writer = line.when.get(field, ("0", ""))
            writes.setdefault(field, []).append((stamp, writer, codec.encode_value(value), value))
    for field, candidates in writes.items():
        stamp, writer, _, value = max(candidates, key=lambda write: write[:3])
        found["set"][field] = value
        if stamp != "0":
            found["when"][field] = [stamp, writer]
    at, by = min((line.at, line.by) for line in lines)
    found |= ({"at": at} if at != "0" else {}) | ({"by": by} if by else {})
    return codec.encode_value({key: found[key] for key in sorted(found) if found[key]})


def the_join_is_what_the_design_says(t: Any, a: Line, b: Line, c: Line) -> None:
    assert codec.encode(t.join(t.join(a, b), c)) == by_definition([a, b, c])


def canonical_bytes_are_sorted_compact_json(encode: Callable[[Line], bytes], line: Line) -> None:
    found = {key: getattr(line, key) for key in Line.__struct_fields__}
    found = {key: value for key, value in found.items() if value and not (key == "at" and value == "0")}
    as_json = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode(line) == as_json.encode()


def a_line_reads_back(decode: Callable[[bytes], Line | Carried], line: Line) -> None:
    raw = codec.encode(line)
    read = decode(raw)
    assert type(read) is Line
    assert codec.encode(read) == raw
    assert repr(read) == repr(codec.msgspec.convert(codec.msgspec.json.decode(raw), Line))


def an_untidy_line_reads_as_its_canonical_form(decode: Callable[[bytes], Any], line: Line, seed: int) -> None:
    """Any key order, blanks, escapes, and what says nothing written out: the same record, the same bytes."""
    luck = random.Random(seed)
    found = codec.msgspec.json.decode(codec.encode(line))
    nothing = {"at": "0", "by": "", "add": {}, "rem": {}, "n": {}, "set": {}, "when": {}, "v": 1}
    for key, value in nothing.items():
        if luck.random() < 0.5:
            found.setdefault(key, value)
    if "n" in found and luck.random() < 0.5:
        found["n"].setdefault("empty", {})
        found["n"].setdefault("seen", {}).setdefault(REPLICAS[0], 0)
    if "when" in found:
        for field in line.set:
            if luck.random() < 0.5:
                found["when"].setdefault(field, ["0", ""])
    ordered = _shuffled(found, luck)
    raw = json.dumps(ordered, ensure_ascii=luck.random() < 0.5, indent=luck.choice((None, 1)))
    read = decode(raw.replace("\n", " ").encode())
    assert codec.encode(read) == codec.encode(line)


def _shuffled(value: Any, luck: random.Random) -> Any:
    if isinstance(value, dict):
        pairs = [(key, _shuffled(inner, luck)) for key, inner in value.items()]
        luck.shuffle(pairs)
        return dict(pairs)
    return [_shuffled(inner, luck) for inner in value] if isinstance(value, list) else value


def a_long_line_is_split_and_joins_back(split: Callable[[Line], list[bytes]], line: Line) -> None:
    raws = split(line)
    assert max(len(raw) for raw in raws) <= limits.LINE_BYTES_MAX, "a line that no peer would read"
    parts = [codec.decode(raw) for raw in raws]
    whole = codec.encode(line)
    assert (len(raws) == 1) == (len(whole) <= limits.LINE_BYTES_MAX)
    assert [(part.id, part.at, part.by) for part in parts] == [(line.id, line.at, line.by)] * len(parts)
    kinds = [bool(part.set) for part in parts]
    assert kinds == sorted(kinds, reverse=True), "fields first"
    joined = parts[0]
    for part in parts[1:]:
        joined = codec.join(part, joined)
    assert codec.encode(joined) == whole


# --- the notebook ---------------------------------------------------------------------------------------------------


def book_of(book_class: Any, entries: Iterable[Line | Carried], cut: str = FOREVER) -> Any:
    """Return a notebook that has read the entries."""
    book = book_class(cut)
    book.add_all(entries)
    return book


def edition_of(book_class: Any, entries: Iterable[Line | Carried], cut: str = FOREVER) -> bytes:
    """Return the edition of a notebook that has read the entries."""
    return bytes(book_of(book_class, entries, cut).edition())


def read_edition(edition: bytes) -> list[Line | Carried]:
    """Read an edition as any peer would."""
    return [codec.decode(raw) for raw in edition.split(b"\n") if raw]


def any_delivery_gives_the_same_edition(book_class: Any, sent: list[Any], received: list[Any]) -> None:
    assert edition_of(book_class, sent) == edition_of(book_class, received)


def any_delivery_under_a_cut_gives_the_same_edition(book_class: Any, both: tuple[Any, Any], cut: str) -> None:
    assert edition_of(book_class, both[0], cut) == edition_of(book_class, both[1], cut)


def an_edition_reloads_to_itself(book_class: Any, sent: list[Any]) -> None:
    edition = edition_of(book_class, sent)
    assert edition_of(book_class, read_edition(edition)) == edition


def an_edition_is_sorted_a_line_a_pattern(book_class: Any, sent: list[Any]) -> None:
    read = read_edition(edition_of(book_class, sent))
    ids = [entry.id for entry in read]
    assert ids == sorted(ids)
    patterns = [entry.id for entry in read if isinstance(entry, Line)]
    assert patterns == sorted({entry.id for entry in sent if isinstance(entry, Line)})


def an_edition_is_the_join_by_definition(book_class: Any, sent: list[Any]) -> None:
    by_id: dict[str, list[Line]] = {}
    for entry in sent:
        if isinstance(entry, Line):
            by_id.setdefault(entry.id, []).append(entry)
    raws = edition_of(book_class, sent).split(b"\n")
    for lines in by_id.values():
        assert by_definition(lines) in raws


def carried_lines_pass_byte_for_byte(book_class: Any, sent: list[Any], cut: str) -> None:
    raws = edition_of(book_class, sent, cut).split(b"\n")
    for entry in sent:
        if isinstance(entry, Carried):
            assert raws.count(entry.raw) == 1


def a_notebook_covers_what_would_change_nothing(book_class: Any, sent: list[Any], entry: Any, cut: str) -> None:
    before, after = book_of(book_class, sent, cut), book_of(book_class, [*sent, entry], cut)
    assert before.covers(entry) == (before.edition() == after.edition())
    assert after.covers(entry)


def no_part_beyond_the_cut_is_joined(book_class: Any, sent: list[Any], cut: str) -> None:
    for line in book_of(book_class, sent, cut).patterns.values():
        assert all(stamp <= cut for stamp in (*line.add.values(), *line.rem.values()))
        assert all(stamp <= cut for stamp, _ in line.when.values())


def early_parts_join_beside_held_ones(book_class: Any, sent: list[Any], cut: str) -> None:
    """What is held takes nothing along: the counters, the early slots and the early fields of its line count."""
    early = [_early(entry, cut) for entry in sent if isinstance(entry, Line)]
    by_id = {line.id: [other for other in early if other.id == line.id] for line in early}
    joined = {line_id: codec.encode(line) for line_id, line in book_of(book_class, sent, cut).patterns.items()}
    assert joined == {line_id: by_definition(lines) for line_id, lines in by_id.items()}


def _early(line: Line, cut: str) -> Line:
    kept = {f: v for f, v in line.set.items() if line.when.get(f, codec.NO_EVIDENCE)[0] <= cut}
    return Line(
        id=line.id,
        at=line.at,
        by=line.by,
        add={r: stamp for r, stamp in line.add.items() if stamp <= cut},
        rem={r: stamp for r, stamp in line.rem.items() if stamp <= cut},
        n=line.n,
        set=kept,
        when={f: proof for f, proof in line.when.items() if f in kept},
    )


def an_edition_reloads_under_its_cut(book_class: Any, sent: list[Any], cut: str) -> None:
    book = book_of(book_class, sent, cut)
    again = book_of(book_class, read_edition(book.edition()), cut)
    assert again.edition() == book.edition()
    assert again.held == book.held
    assert {k: codec.encode(v) for k, v in again.patterns.items()} == {
        k: codec.encode(v) for k, v in book.patterns.items()
    }


def holding_loses_nothing(book_class: Any, sent: list[Any], cut: str, later: str) -> None:
    """An edition written under a cut, read under a later one or none, is the join of the lines it was made from."""
    cut, later = sorted((cut, later))
    edition = edition_of(book_class, sent, cut)
    assert edition_of(book_class, read_edition(edition), later) == edition_of(book_class, sent, later)
    assert edition_of(book_class, read_edition(edition)) == edition_of(book_class, sent)
