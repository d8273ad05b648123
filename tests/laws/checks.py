"""The laws, as plain functions of the join that must keep them, and the small universe they are tried in.

Each check takes the implementation first: a module of `crdt` or of `fleet.model`, or a deliberately broken copy of one
(`test_broken_joins.py`). So the same code that praises the real join is known to catch the false. The universe is small
on purpose: three replicas and five stamps meet in every kind of tie.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
from hypothesis import strategies as st

from crdt import clock, lww
from fleet.model import edits, limits, names
from fleet.model import line as codec
from fleet.model.line import Carried, Column, Line, canonical
from fleet.model.pattern import Pattern, Policy, fold

REPLICAS = ("anna.00000001", "bert.00000002", "cleo.00000003")
NOW_MS = 1_790_000_000_000
STAMPS = tuple(clock.pack(NOW_MS + ms, counter) for ms, counter in ((0, 0), (0, 1), (5, 0), (900, 0), (86_400_000, 0)))
FOREVER = "~"
IDS = ("p-0000000000000001", "p-00000000000000ff")
HASHES = ("aaaaaaaa00000000", "bbbbbbbb00000000")
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


@st.composite
def columns(draw: st.DrawFn, values: st.SearchStrategy[Any] = values) -> Column:
    """Draw what one writer may have said, as if decoded."""
    column = Column()
    for part in draw(_some_parts):
        match part:
            case "add":
                column.add = draw(stamps)
            case "rem":
                column.rem = draw(slots)
            case "n":
                column.n = {name: draw(_totals) for name in draw(_some_counters)}
            case "parts":
                column.parts = draw(_part_maps)
            case "first":
                column.first = {field: draw(values) for field in draw(_some_fields)}
                if draw(st.booleans()):
                    column.first[codec.AT] = draw(stamps)
            case "set":
                column.set = {field: (draw(stamps), draw(values)) for field in draw(_some_fields)}
            case "over":
                column.over = draw(_marks)
            case "purge":
                column.purge = draw(_purge_marks)
            case "unknown":
                column.unknown = {"zz": draw(values)}
    return column


_some_parts = st.sampled_from(
    [
        *((part,) for part in ("add", "rem", "n", "parts", "first", "set", "over", "purge", "unknown")),
        *product(("add", "rem"), ("first", "set"), ("n", "parts", "unknown")),
        *product(("over", "purge"), ("set", "first")),
        ("first", "set"),
        (),
    ]
)
_totals = st.integers(1, 4)


def _nested_maps(
    outer: Sequence[str], inner: Sequence[str], leaves: Sequence[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw maps of maps, none of them empty but the outer one."""
    one = [{key: {name: leaf}} for key, name, leaf in product(outer, inner, leaves)]
    two = [{key: dict.fromkeys(inner, leaf)} for key, leaf in product(outer, leaves)]
    both = [{outer[0]: {inner[0]: leaf}, outer[1]: {inner[1]: leaf}} for leaf in leaves]
    return st.sampled_from([*one, *two, *both]).map(lambda found: {key: dict(each) for key, each in found.items()})


_part_maps = _nested_maps(COUNTERS, HASHES, (1, 2, 3))
_undone_maps = _nested_maps([f"{name}{codec.UNDONE}" for name in COUNTERS], HASHES, (1, 2, 3))
_marks = _nested_maps(REPLICAS, FIELDS, STAMPS)
_purge_marks = _nested_maps(REPLICAS, FIELDS, (clock.ZERO, *STAMPS[:3])) | _nested_maps(
    (codec.CARRIED, codec.CARRIED), HASHES, (clock.ZERO, STAMPS[0])
)


@st.composite
def lines(draw: st.DrawFn, values: st.SearchStrategy[Any] = values, line_ids: Sequence[str] = IDS) -> Line:
    """Draw any valid line of the universe, as if decoded: without empty columns and without what its marks cover."""
    writers = draw(_some_of(REPLICAS))
    line = Line(draw(st.sampled_from(line_ids)), {writer: draw(columns(values)) for writer in writers})
    return settled(line)


def lines_of_one_id(values: st.SearchStrategy[Any] = values) -> st.SearchStrategy[Line]:
    """Draw lines that may be joined: of all kinds, or about the same few things."""
    return st.one_of(lines(values, IDS[:1]), disputes(values), disputes(values))


def disputes(values: st.SearchStrategy[Any], parts: Sequence[str] = ()) -> st.SearchStrategy[Line]:
    """Draw lines in which two writers dispute the same few things: a field, a counter, whether the lesson is in."""

    def line(claims: list[tuple[str, str, str, int]], value: Any, other: Any) -> Line:
        made = Line(IDS[0])
        for writer, part, stamp, number in claims:
            column = made.w.setdefault(writer, Column())
            match part:
                case "add":
                    column.add = stamp
                case "rem":
                    column.rem = {REPLICAS[0]: stamp}
                case "set":
                    column.set = {"text": (stamp, value)}
                case "first":
                    column.first = {"text": other, "at": stamp} if number == 1 else {"text": other}
                case "over" | "purge":
                    setattr(column, part, {REPLICAS[0]: {FIELDS[number % 2]: stamp}})
                case "n":
                    column.n["seen"] = number
                case "parts":
                    column.parts = {"seen": {HASHES[number % 2]: number}}
                case "unknown":
                    column.unknown = {"zz": value}
        return settled(made)

    parts = parts or ("add", "add", "rem", "set", "set", "first", "over", "purge", "n", "parts", "unknown")
    claims = st.sampled_from([*product(REPLICAS[:2], parts, STAMPS[1:4], (1, 2, 3))])
    return st.builds(line, st.lists(claims, min_size=1, max_size=6), values, values)


def settled(line: Line) -> Line:
    """Return the line without what its own purge marks cover, naively."""
    marks = [
        (writer, field, stamp)
        for column in line.w.values()
        for writer, fields in column.purge.items()
        for field, stamp in fields.items()
    ]
    for writer, field, stamp in marks:
        column = line.w.get(writer, Column())
        column.first.pop(field, None)
        if field in column.set and column.set[field][0] <= stamp:
            del column.set[field]
    return Line(
        line.id,
        {
            writer: column
            for writer, column in line.w.items()
            if codec.encode(Line("", {"": column})) != b'{"id":"","w":{"":{}}}'
        },
    )


@st.composite
def undone_lines(draw: st.DrawFn) -> Line:
    """Draw a line in which writers took something back of what they counted, or of what they did not."""
    line = draw(lines_of_one_id())
    told = {writer: draw(_undone_maps) for writer in draw(_some_of(REPLICAS))}
    return codec.join(line, Line(line.id, {writer: Column(parts=parts) for writer, parts in told.items()}))


@st.composite
def carried_lines(draw: st.DrawFn) -> Carried:
    """Draw a line of a newer version, in whatever spelling that version likes."""
    line_id = draw(st.sampled_from((*IDS, "d-0000000000000001", "q9-0000000000000001")))
    found: dict[str, Any] = {"zz": draw(exact_values), "id": line_id}
    if draw(st.booleans()):
        found["v"] = draw(st.sampled_from((0, 3, "1")))
    blank = draw(st.sampled_from(("", " ")))
    return Carried(line_id, json.dumps(found, separators=("," + blank, ":" + blank)).encode())


entries = lines() | carried_lines()


@st.composite
def deliveries(draw: st.DrawFn, of: st.SearchStrategy[Any] = entries) -> tuple[list[Any], list[Any]]:
    """Draw some entries, and the same once more: in another order, some of them repeated."""
    sent = draw(st.lists(of, max_size=6))
    repeats = draw(st.lists(st.sampled_from(sent), max_size=3)) if sent else []
    return sent, draw(st.permutations(sent + repeats))


policies = st.builds(
    lambda cut, blocked: Policy(cut, dict.fromkeys(sorted(blocked), "")),
    st.sampled_from((*STAMPS, FOREVER)),
    st.sampled_from(
        [frozenset(some) for size in (0, 1, 2) for some in combinations((*REPLICAS[:2], "cleo", "nobody"), size)]
    ),
)


def registers() -> st.SearchStrategy[Any]:
    """Draw LWW-Registers that tie often."""
    return st.builds(
        lww.Register, stamps | st.just(clock.ZERO), st.sampled_from(("", *REPLICAS)), values.map(canonical)
    )


def wide_lines() -> st.SearchStrategy[Line]:
    """Draw joined lines of many bytes: long texts, many replicas, many counters."""
    return st.builds(
        wide_line,
        fields=st.integers(0, 12),
        field_bytes=st.sampled_from((10, 4_000, limits.TEXT_BYTES_MAX)),
        replicas=st.sampled_from((0, 3, 400, 700, 1_500)),
        names=st.sampled_from((1, 2, 700)),
    )


def wide_line(fields: int, field_bytes: int, replicas: int, names: int) -> Line:
    line = Line(IDS[0])
    for number in range(replicas):
        column = Column(add=STAMPS[number % len(STAMPS)], n={"seen": number + 1})
        if number % 3 == 0:
            column.rem = {REPLICAS[0]: STAMPS[0]}
        line.w[f"agent{number % 7}.{number * 7919:08x}"] = column
    if fields:
        wordy = line.w[REPLICAS[0]] = Column()
        for number in range(fields):
            name = f"field {number:02} " + "ß" * 50
            wordy.first[name] = "x" * field_bytes
            wordy.set[name] = (STAMPS[number % len(STAMPS)], "y" * field_bytes)
    if replicas:
        counting = line.w["agent0.00000000"]
        for number in range(names):
            name = f"counter {number:04} " + "ß" * 48
            counting.n[name] = number + 1
            counting.parts[name] = {HASHES[0]: 1}
            counting.over.setdefault(REPLICAS[1], {})[name] = STAMPS[1]
            counting.purge.setdefault(REPLICAS[2], {})[name] = clock.ZERO
            counting.unknown[name] = number
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


def _covers(t: Any, whole: Any, part: Any) -> bool:
    """Tell whether a state has all of another; of maps, whether it is at least as large at each key."""
    if isinstance(part, dict):
        return all(key in whole and whole[key] >= each for key, each in part.items())
    return bool(t.covers(whole, part))


def join_covers_both(t: Any, a: Any, b: Any) -> None:
    joined = t.join(a, b)
    assert _covers(t, joined, a)
    assert _covers(t, joined, b)


def join_is_monotone(t: Any, a: Any, b: Any, c: Any) -> None:
    """A state that has more, joined with anything, still has more."""
    assert _covers(t, t.join(t.join(a, b), c), t.join(a, c))


def join_adds_nothing_of_its_own(t: Any, a: Any, b: Any, c: Any) -> None:
    """The join is the least upper bound: whatever covers both covers it."""
    joined = t.join(a, b)
    for above in (a, b, c):
        if _covers(t, above, a) and _covers(t, above, b):
            assert _covers(t, above, joined)


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


# --- OR-Set ---------------------------------------------------------------------------------------------------------


def each_replica_keeps_its_latest_stamp(t: Any, a: dict[str, str], b: dict[str, str]) -> None:
    assert t.join(a, b) == {replica: max(a.get(replica, ""), b.get(replica, "")) for replica in {*a, *b}}


def live_are_the_adds_that_no_remove_has_seen(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    alive = {replica: stamp for replica, stamp in add.items() if replica not in rem or stamp > rem[replica]}
    assert t.live(add, rem) == alive


def a_remove_takes_out_all_it_saw(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    assert not t.live(add, t.join(rem, t.removal(add, rem)))


def a_remove_covers_only_what_it_saw(t: Any, add: dict[str, str], rem: dict[str, str]) -> None:
    for replica, stamp in t.removal(add, rem).items():
        assert add.get(replica) == stamp


def an_add_wins_over_a_concurrent_remove(t: Any, add: dict[str, str], rem: dict[str, str], replica: str) -> None:
    removed = t.join(rem, t.removal(add, rem))  # there, at the same time as
    fresh = {replica: clock.after(max([*add.values(), *rem.values()], default=STAMPS[0]))}  # here
    for joined in (t.join(t.join(add, fresh), add), t.join(fresh, add)):
        assert t.live(joined, removed)
        assert t.live(joined, t.join(removed, rem))


def an_older_add_wins_over_a_remove_that_has_not_seen_it(t: Any, add: dict[str, str], replica: str) -> None:
    """Whose clock is behind says nothing about who has seen what."""
    others = {other: stamp for other, stamp in add.items() if other != replica}
    removed = t.removal(others, {})
    assert t.live(t.join(others, {replica: STAMPS[0]}), removed)


def a_re_add_after_a_remove_is_in(t: Any, add: dict[str, str], rem: dict[str, str], replica: str) -> None:
    removed = t.join(rem, t.removal(add, rem))
    fresh = {replica: clock.after(max([*add.values(), *removed.values()], default=STAMPS[0]))}
    again = t.join(add, fresh)
    assert t.live(again, removed)
    assert t.live(again, removed) == fresh


def a_late_old_add_stays_out(t: Any, add: dict[str, str], rem: dict[str, str], late: dict[str, str]) -> None:
    removed = t.join(rem, t.removal(add, rem))
    late = {replica: min(stamp, add[replica]) for replica, stamp in late.items() if replica in add}
    assert not t.live(t.join(add, late), removed)


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


Atom = tuple[str, ...]


def _atoms(line: Line) -> Iterator[tuple[Atom, Any]]:
    """Yield what a line says, key by key: (writer, part, keys...) and the value."""
    for writer, column in line.w.items():
        if column.add:
            yield (writer, "add"), column.add
        for part in ("first", "n", "rem", "set"):
            for key, value in getattr(column, part).items():
                yield (writer, part, key), value
        for part in ("over", "parts", "purge"):
            for outer, inner in getattr(column, part).items():
                for key, value in inner.items():
                    yield (writer, part, outer, key), value
        for name, value in column.unknown.items():
            yield (writer, "unknown", name), value


def _order(atom: Atom, value: Any) -> Any:
    """Return what the largest of is what the join keeps, as the table of the design says."""
    if atom[1:] == ("first", "at"):
        return [-ord(mark) for mark in value]
    if atom[1] in {"first", "unknown"}:
        return canonical(value)
    return (value[0], canonical(value[1])) if atom[1] == "set" else value


def joined_by_definition(lines: Iterable[Line]) -> dict[Atom, Any]:
    """Return the join of lines of one id as the specification says it, written without the code."""
    said: dict[Atom, Any] = {}
    for line in lines:
        for atom, value in _atoms(line):
            if atom not in said or _order(atom, value) > _order(atom, said[atom]):
                said[atom] = value
    for (_, part, *keys), mark in list(said.items()):
        if part == "purge":
            said.pop((keys[0], "first", keys[1]), None)
            if said.get((keys[0], "set", keys[1]), (FOREVER,))[0] <= mark:
                del said[keys[0], "set", keys[1]]
    return said


def bytes_by_definition(lines: Sequence[Line]) -> bytes:
    found: dict[str, Any] = {}
    for (writer, part, *keys), value in joined_by_definition(lines).items():
        inner = found.setdefault(writer, {})
        for key in ((part, *keys) if part != "unknown" else keys)[:-1]:
            inner = inner.setdefault(key, {})
        inner[(part, *keys)[-1]] = value
    return canonical({"id": lines[0].id} | ({"w": found} if found else {}))


def the_join_is_what_the_design_says(t: Any, a: Line, b: Line, c: Line) -> None:
    assert codec.encode(t.join(t.join(a, b), c)) == bytes_by_definition([a, b, c])


def what_a_line_has_beyond_another_is_all_that_it_brings(t: Any, whole: Line, base: Line) -> None:
    news = t.difference(whole, base)
    assert (news is None) == (bytes_by_definition([base, whole]) == codec.encode(base))
    if news is not None:
        assert codec.encode(codec.join(base, news)) == bytes_by_definition([base, whole])


def what_a_line_has_beyond_another_is_the_smallest(t: Any, whole: Line, base: Line) -> None:
    """Each key of it is needed: without it, something would be missing."""
    news = t.difference(whole, base)
    said = dict(_atoms(news)) if news is not None else {}
    known, everything = joined_by_definition([base]), joined_by_definition([base, whole])
    for atom, value in said.items():
        assert _order(atom, everything.get(atom, value)) == _order(atom, value)
        assert atom in everything
        assert atom not in known or _order(atom, known[atom]) != _order(atom, value)


def canonical_bytes_are_sorted_compact_json(encode: Callable[[Line], bytes], line: Line) -> None:
    found: dict[str, Any] = {"id": line.id}
    for writer, column in line.w.items():
        said = {key: getattr(column, key) for key in Column.__struct_fields__ if key != "unknown"}
        found.setdefault("w", {})[writer] = {key: value for key, value in said.items() if value} | column.unknown
    as_json = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode(line) == as_json.encode()


def a_line_reads_back(decode: Callable[[bytes], Line | Carried], line: Line) -> None:
    raw = codec.encode(line)
    read = decode(raw)
    assert type(read) is Line
    assert codec.encode(read) == raw
    assert dict_form(read) == dict_form(line)


def dict_form(line: Line) -> Any:
    """Return a line as texts that are equal where the line is, whatever the order of its keys; 1 is not true."""
    return sorted((atom, repr(canonical(value))) for atom, value in _atoms(line))


def an_untidy_line_reads_as_its_canonical_form(decode: Callable[[bytes], Any], line: Line, seed: int) -> None:
    """Any key order, blanks, escapes, and what says nothing written out: the same record, the same bytes."""
    luck = random.Random(seed)
    found = msgspec.json.decode(codec.encode(line))
    if luck.random() < 0.5:
        found["v"] = 2
    for column in found.setdefault("w", {}).values():
        for part in ("first", "n", "over", "parts", "purge", "rem", "set"):
            if luck.random() < 0.3:
                column.setdefault(part, {})
        if "n" in column and luck.random() < 0.5:
            column["n"].setdefault("empty", 0)
        if luck.random() < 0.3:
            column.setdefault("parts", {}).setdefault("empty", luck.choice(({}, {HASHES[0]: 0})))
        for part in ("over", "purge"):
            if luck.random() < 0.3:
                column.setdefault(part, {}).setdefault(REPLICAS[0], {})
    if luck.random() < 0.5:
        found["w"].setdefault("dora.00000004", luck.choice(({}, {"n": {}}, {"n": {"seen": 0}})))
    ordered = _shuffled(found, luck)
    raw = json.dumps(ordered, ensure_ascii=luck.random() < 0.5, indent=luck.choice((None, 1)))
    read = decode(raw.replace("\n", " ").encode())
    assert codec.encode(read) == codec.encode(line)


def what_a_mark_covers_is_not_read(decode: Callable[[bytes], Any], column: Column, mark: Column) -> None:
    """A line with both, as a careless writer may make it, reads as the join of the two."""
    both = {REPLICAS[0]: column, REPLICAS[1]: mark}
    unsettled = canonical({"id": IDS[0], "w": {w: codec._as_json(c) for w, c in both.items()}})
    assert codec.encode(decode(unsettled)) == bytes_by_definition([Line(IDS[0], {w: c}) for w, c in both.items()])


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
    assert all(isinstance(part, Line) and part.id == line.id for part in parts)
    whole = codec.encode(line)
    assert (len(raws) == 1) == (len(whole) <= limits.LINE_BYTES_MAX)
    joined = parts[0]
    for part in parts[1:]:
        joined = codec.join(part, joined)
    assert codec.encode(joined) == whole


def a_long_line_is_split_in_writer_order(split: Callable[[Line], list[bytes]], line: Line) -> None:
    writers = [writer for raw in split(line) for writer in msgspec.json.decode(raw).get("w", {})]
    assert writers == sorted(writers)
    for writer, column in line.w.items():
        if len(codec.encode(Line(line.id, {writer: column}))) < limits.LINE_BYTES_MAX - 64:
            assert writers.count(writer) == 1, "a column that fits a line stays whole"


# --- many lines -----------------------------------------------------------------------------------------------------


def edition_of(t: Any, entries: Iterable[Line | Carried]) -> bytes:
    """Return the canonical dump of everything: sorted by id, carried lines beside their records."""
    records: dict[str, Line] = {}
    carried: dict[str, set[bytes]] = {}
    for entry in entries:
        if isinstance(entry, Carried):
            carried.setdefault(entry.id, set()).add(entry.raw)
        else:
            records[entry.id] = t.join(records[entry.id], entry) if entry.id in records else entry
    raws: list[bytes] = []
    for line_id in sorted(records.keys() | carried.keys()):
        raws += t.split(records[line_id]) if line_id in records else []
        raws += sorted(carried.get(line_id, ()))
    return b"".join(raw + b"\n" for raw in raws)


def read_edition(t: Any, edition: bytes) -> list[Line | Carried]:
    """Read an edition as any peer would."""
    return [t.decode(raw) for raw in edition.split(b"\n") if raw]


def any_delivery_gives_the_same_edition(t: Any, both: tuple[list[Any], list[Any]]) -> None:
    assert edition_of(t, both[0]) == edition_of(t, both[1])


def an_edition_reloads_to_itself(t: Any, sent: list[Any]) -> None:
    edition = edition_of(t, sent)
    assert edition_of(t, read_edition(t, edition)) == edition


def editions_of_editions_are_the_edition_of_all_lines(t: Any, groups: list[list[Any]]) -> None:
    """Two compactions at once, and one of both, lose and double nothing."""
    editions = b"".join(edition_of(t, group) for group in groups)
    assert edition_of(t, read_edition(t, editions)) == edition_of(t, [entry for group in groups for entry in group])


def carried_lines_pass_byte_for_byte(t: Any, sent: list[Any]) -> None:
    raws = edition_of(t, sent).split(b"\n")
    for entry in sent:
        if isinstance(entry, Carried):
            read = t.decode(entry.raw)
            assert (type(read), read) == (Carried, entry)
            assert raws.count(entry.raw) == 1


# --- folds ----------------------------------------------------------------------------------------------------------


def _allowed(writer: str, policy: Policy) -> bool:
    return writer not in policy.blocked and writer.split(".")[0] not in policy.blocked


def _of(said: Mapping[Atom, Any], part: str, policy: Policy) -> Iterator[tuple[Any, ...]]:
    """Yield (writer, keys..., value) of one part of all the columns that are not blocked."""
    for (writer, kind, *keys), value in said.items():
        if kind == part and _allowed(writer, policy):
            yield (writer, *keys, value)


def the_adds_that_are_in(lines: Sequence[Line], policy: Policy) -> dict[str, str]:
    """OR-Set: every add of every line that no remove has seen, the newest of each writer."""
    said = [(atom, value) for line in lines for atom, value in _atoms(line) if _allowed(atom[0], policy)]
    removes = [(atom[2], value) for atom, value in said if atom[1] == "rem"]
    adds = [(atom[0], value) for atom, value in said if atom[1] == "add"]
    live = sorted(add for add in adds if all(add[1] > stamp for writer, stamp in removes if writer == add[0]))
    return dict(live)


def the_fields_that_show(lines: Sequence[Line], policy: Policy) -> dict[str, bytes]:
    """LWW-Registers: the latest edit that is neither in the future nor replaced, else the largest first wording."""
    said = joined_by_definition(lines)
    over: dict[tuple[str, str], str] = {}
    for _, writer, field, stamp in _of(said, "over", policy):
        over[writer, field] = max(stamp, over.get((writer, field), ""))
    shown: dict[str, tuple[str, str, bytes]] = {}
    for _, field, value in _of(said, "first", policy):
        shown[field] = max(shown.get(field, ("", "", b"")), ("", "", canonical(value)))
    for writer, field, (stamp, value) in _of(said, "set", policy):
        if stamp <= policy.cut and stamp > over.get((writer, field), ""):
            shown[field] = max(shown.get(field, ("", "", b"")), (stamp, writer, canonical(value)))
    return {field: value for field, (_, _, value) in shown.items() if field != "at"}


def the_counts(lines: Sequence[Line], policy: Policy) -> dict[str, int]:
    """G-Counters: each writer's largest total, and each part once; less what a writer took back of its own."""
    said = joined_by_definition(lines)
    parts = {tuple(atom): count for *atom, count in _of(said, "parts", policy)}
    odd = [atom for atom, number in parts.items() if number % 2 and atom[1].endswith(codec.UNDONE)]
    gone = [(writer, name.removesuffix(codec.UNDONE), key) for writer, name, key in odd]
    slots = {(name, writer): total for writer, name, total in _of(said, "n", policy)}
    for writer, name, key in gone:
        if (name, writer) in slots and (writer, name, key) not in parts:
            slots[name, writer] = max(0, slots[name, writer] - 1)
    for (writer, name, key), count in parts.items():
        if not name.endswith(codec.UNDONE) and (writer, name, key) not in gone:
            slots[name, key] = max(count, slots.get((name, key), 0))
    counts = {name: sum(count for (each, _), count in slots.items() if each == name) for name, _ in slots}
    return {name: count for name, count in counts.items() if count}


def _joined(lines: Sequence[Line]) -> Line:
    joined = lines[0]
    for line in lines[1:]:
        joined = codec.join(joined, line)
    return joined


def presence_is_the_or_set_of_what_was_said(fold: Callable[..., Pattern], sent: list[Line], policy: Policy) -> None:
    pattern = fold(_joined(sent), policy)
    assert pattern.live == the_adds_that_are_in(sent, policy)
    assert pattern.is_present == bool(pattern.live)


def fields_are_the_registers_of_what_was_said(fold: Callable[..., Pattern], sent: list[Line], policy: Policy) -> None:
    pattern = fold(_joined(sent), policy)
    assert {field: canonical(value) for field, value in pattern.fields.items()} == the_fields_that_show(sent, policy)


def counters_are_the_sums_of_what_was_said(fold: Callable[..., Pattern], sent: list[Line], policy: Policy) -> None:
    pattern = fold(_joined(sent), policy)
    found = {name: pattern.count(name) for name in pattern.totals.keys() | pattern.parts.keys()}
    assert {name: count for name, count in found.items() if count} == the_counts(sent, policy)


def first_seen_is_the_smallest_time_said(fold: Callable[..., Pattern], sent: list[Line], policy: Policy) -> None:
    said = joined_by_definition(sent)
    times = [(value, writer) for writer, value in _of(said, "add", policy)]
    times += [(value, writer) for writer, field, value in _of(said, "first", policy) if field == "at"]
    pattern = fold(_joined(sent), policy)
    assert (pattern.at, pattern.by) == min(times, default=(clock.ZERO, ""))


def a_first_wording_is_never_hidden_by_an_edit_from_the_future(
    fold: Callable[..., Pattern], line: Line, policy: Policy, field: str
) -> None:
    if field in fold(Line(line.id, {w: Column(first=column.first) for w, column in line.w.items()}), policy).fields:
        assert field in fold(line, policy).fields


def a_fold_touches_nothing(fold: Callable[..., Pattern], line: Line, policy: Policy) -> None:
    """Policy never reaches what is joined and pushed."""
    before = repr(line)
    fold(line, policy)
    assert repr(line) == before


def who_is_blocked_is_as_one_who_never_wrote(fold: Callable[..., Pattern], line: Line, policy: Policy) -> None:
    others = Line(line.id, {writer: column for writer, column in line.w.items() if _allowed(writer, policy)})
    assert fold(line, policy) == fold(others, Policy(policy.cut))


# --- edits ----------------------------------------------------------------------------------------------------------


def after(line: Line, cut: str = FOREVER) -> str:
    """Return a stamp as a replica issues it that has read the line: larger than all that is within its cut."""
    return clock.after(max((stamp for stamp in line.stamps() if STAMPS[0] < stamp <= cut), default=STAMPS[0]))


def a_delta_says_something_of_its_writer_alone(t: Any, line: Line, me: str) -> None:
    stamp = after(line)
    deltas = [
        t.confirm(line, me, stamp, fields={"text": "new"}),
        t.part(line, HASHES[0], {"text": "new"}, me, stamp, seen=1),
        t.retire(line, me),
        t.restore(line, me, stamp),
        t.set_field(line, "text", "new", me, stamp, FOREVER),
        t.count(line, "zeta", me),
        t.purge(line, {"text": "gone"}, me, stamp),
    ]
    for delta in deltas:
        assert delta.id == line.id
        assert set(delta.w) <= {me}
        assert codec.encode(codec.decode(codec.encode(delta))) == codec.encode(delta)


def a_log_is_in_and_counts_what_it_says(t: Any, line: Line, me: str, seen: int) -> None:
    before = fold(line)
    delta = t.confirm(line, me, after(line), seen=seen, sessions=1, marks={"relapsed": seen - 1})
    now = fold(codec.join(line, delta))
    assert now.is_present
    for name, step in (("seen", seen), ("sessions", 1), ("relapsed", seen - 1), ("zeta", 0)):
        assert now.count(name) == before.count(name) + step
        assert now.own(name, me) == before.own(name, me) + step


def a_log_never_moves_the_time_when_it_was_first_seen(t: Any, line: Line, me: str, at: str) -> None:
    known, stamp = fold(line).at, after(line)
    told = codec.join(line, t.confirm(line, me, stamp, at=at))
    assert fold(told).at == min(each for each in (known, at, stamp) if each not in {"", clock.ZERO})


def a_log_says_what_nobody_has_said(t: Any, line: Line, me: str, field: str, value: Any) -> None:
    """Unless its writer's words were purged: then it says them only where nobody else has any."""
    known = fold(line).fields
    told = codec.join(line, t.confirm(line, me, after(line), fields={field: value}))
    firsts = [canonical(column.first[field]) for column in told.w.values() if field in column.first]
    shown = canonical(fold(told).fields[field])
    if (me, field) not in line.marks("purge"):
        mine = [canonical(column.first[field]) for column in [told.w[me]] if field in column.first]
        assert canonical(value) in {shown, *firsts} or canonical(value) < max(mine, default=b"")
    elif field in known:
        assert shown == canonical(known[field])


def a_part_counts_once_whoever_tells_it(t: Any, line: Line, me: str, other: str) -> None:
    part, stamp = "cccccccc00000000", after(line)
    mine = t.part(line, part, {}, me, stamp, seen=3, sessions=1)
    theirs = t.part(line, part, {}, other, stamp, seen=3, sessions=1)
    told = codec.join(codec.join(line, mine), codec.join(theirs, mine))
    for name, step in (("seen", 3), ("sessions", 1)):
        assert fold(told).count(name) == fold(line).count(name) + step


def an_undo_takes_one_back_until_it_is_stated_again(t: Any, line: Line, me: str) -> None:
    line = codec.join(line, t.confirm(line, me, after(line), seen=2))
    gone = codec.join(line, t.undo(line, me, {"seen": {"cccccccc00000000": 1}}))
    back = codec.join(gone, t.undo(gone, me, {"seen": {"cccccccc00000000": 2}}))
    assert fold(gone).count("seen") == fold(line).count("seen") - 1
    assert fold(back).count("seen") == fold(codec.join(back, gone)).count("seen") == fold(line).count("seen")
    assert (fold(gone).is_present, fold(gone).fields) == (fold(line).is_present, fold(line).fields)


def who_imports_is_no_witness(t: Any, line: Line, me: str) -> None:
    imported = t.part(Line(line.id), HASHES[0], {"text": "x"}, me, after(line), seen=1, author="dora")
    assert fold(imported).is_present
    assert fold(imported).witnesses() == 0
    assert fold(imported).agents() == ["dora"]
    by_hand = t.part(Line(line.id), HASHES[1], {}, me, after(line), seen=1)
    assert fold(codec.join(imported, by_hand)).witnesses() == 1
    assert fold(codec.join(imported, by_hand)).agents() == sorted(["dora", names.agent_of(me)])


def a_retire_takes_out_all_that_it_saw(t: Any, line: Line, me: str, policy: Policy) -> None:
    """Also what somebody removed who is blocked here, so that it stays out."""
    retired = codec.join(line, t.retire(line, me))
    assert not fold(retired).is_present
    assert not fold(retired, policy).is_present or not _allowed(me, policy)


def a_retire_covers_only_what_it_saw(t: Any, line: Line, me: str) -> None:
    """Whose clock is behind says nothing about who has seen what."""
    delta = t.retire(line, me)
    for target, stamp in delta.w.get(me, Column()).rem.items():
        assert line.w.get(target, Column()).add == stamp
    unseen = Line(line.id, {"dora.00000004": Column(add=STAMPS[0])})
    assert fold(codec.join(codec.join(line, delta), unseen)).is_present


def a_restore_is_in_and_counts_nothing(t: Any, line: Line, me: str) -> None:
    retired = codec.join(line, edits.retire(line, me))
    restored = codec.join(retired, t.restore(retired, me, after(retired)))
    assert fold(restored).is_present
    assert fold(restored).totals == fold(line).totals
    assert fold(restored).at == min(at for at in (fold(line).at, after(retired)) if at != clock.ZERO)


def an_edit_wins_for_good(t: Any, line: Line, me: str, cut: str) -> None:
    """Over first wordings, over all that is known, and over values from the future when their time has come."""
    line = _as_known_to(line, me, cut)
    stamp = after(line, cut)
    edited = codec.join(line, t.set_field(line, "text", "new", me, stamp, cut))
    for later in (stamp, *STAMPS, FOREVER):
        if later >= stamp:
            pattern = fold(edited, Policy(later))
            assert (pattern.value("text"), pattern.edited["text"]) == ("new", (stamp, me))


def an_edit_leaves_later_ones_to_win(t: Any, line: Line, me: str, other: str, cut: str) -> None:
    """What it replaces are values from the future that it saw, and nothing that comes later."""
    line = _as_known_to(_as_known_to(line, me, cut), other, cut)
    stamp = after(line, cut)
    delta = t.set_field(line, "text", "new", me, stamp, cut)
    for fields in delta.w[me].over.values():
        assert set(fields) == {"text"}
        assert fields["text"] > cut, "an honest value needs no mark"
    edited = codec.join(line, delta)
    again = codec.join(edited, t.set_field(edited, "text", "newer", other, clock.after(stamp), cut))
    assert fold(again).value("text") == "newer"


def _as_known_to(line: Line, me: str, cut: str) -> Line:
    """Return the line without own edits from the future, and marks on them: such a replica is minted anew."""

    def honest(marks: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        return {
            writer: fields
            for writer, fields in marks.items()
            if writer != me or max(fields.values(), default="") <= cut
        }

    columns = {
        writer: msgspec.structs.replace(column, over=honest(column.over), purge=honest(column.purge))
        for writer, column in line.w.items()
    }
    own = columns.get(me, Column())
    columns[me] = msgspec.structs.replace(own, set={f: edit for f, edit in own.set.items() if edit[0] <= cut})
    return settled(Line(line.id, columns))


def a_new_replica_says_its_edits_again(t: Any, line: Line, old: str, cut: str) -> None:
    """What it had written is seen now, under a stamp of today, and does not come back as from the future."""
    me, stamp = "dora.00000004", after(line, cut)
    delta = t.reissue(line, old, me, stamp, cut)
    marks = line.marks("over")
    own = line.w.get(old, Column()).set
    ahead = {f: edit for f, edit in own.items() if edit[0] > max(cut, marks.get((old, f), ""))}
    assert (delta is None) == (not ahead)
    if delta is None:
        return
    assert set(delta.w) == {me}
    assert not any((delta.w[me].add, delta.w[me].n, delta.w[me].rem, delta.w[me].first))
    assert {f: canonical(value) for f, (_, value) in delta.w[me].set.items()} == {
        f: canonical(value) for f, (_, value) in ahead.items()
    }
    alone = Line(line.id, {old: line.w[old]})
    for later in (stamp, FOREVER):
        shown = fold(codec.join(alone, delta), Policy(later))
        assert all(shown.edited[f] == (stamp, me) for f in ahead)


def a_purged_value_stays_gone(t: Any, line: Line, late: Line, me: str) -> None:
    """Whatever comes late that was known when it was purged."""
    line = codec.join(line, late)
    redacted = dict.fromkeys(("category", "text"), "gone")
    delta = t.purge(line, redacted, me, after(line), HASHES)
    for purged in (codec.join(line, delta), codec.join(codec.join(delta, late), line)):
        for column in purged.w.values():
            assert not column.first.keys() & redacted.keys()
            assert all(column.set[f][1] == "gone" for f in redacted if f in column.set)
        assert all(fold(purged).value(field) == "gone" for field in redacted)
        assert purged.purged_carried() >= set(HASHES)


def an_honest_edit_outlives_a_purge(t: Any, line: Line, me: str, other: str) -> None:
    """A mark bears the stamp of what it covers: what its writer says later, by whatever clock, lives."""
    honest = edits.set_field(line, "text", "honest", other, after(line), FOREVER)
    later = clock.after(clock.after(after(line)))
    purged = codec.join(line, t.purge(line, {"text": "gone"}, me, later))
    told = codec.join(purged, honest)
    assert told.w.get(other, Column()).set.get("text", ("", ""))[1] == ("honest" if other != me else "gone")


def a_purge_marks_only_what_is_there(t: Any, line: Line, me: str) -> None:
    delta = t.purge(line, {"text": "gone"}, me, after(line))
    for writer, fields in delta.w[me].purge.items():
        column = line.w.get(writer, Column())
        assert set(fields) == {"text"}
        assert fields["text"] == (column.set["text"][0] if "text" in column.set else clock.ZERO)
        assert "text" in column.set or "text" in column.first
