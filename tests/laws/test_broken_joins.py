"""A law that nothing can break proves nothing: each is shown a join broken on purpose, and must catch it.

A case names the mutation and the law that catches it. First the law is shown the real thing under the same search, so
that a law which complains of everything is no proof either.
"""

import inspect
import json
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from crdt import clock, gcounter, lww, orset
from crdt.lww import Register
from fleet.model import edits, pattern
from fleet.model import line as codec
from fleet.model.line import NOTHING, Carried, Column, Line, canonical
from fleet.model.pattern import Pattern, Policy, fold
from tests.laws import checks
from tests.laws.checks import DAY_MS, NOW_MS, REPLICAS, STAMPS, Clock, broken, counts, replicas, slots
from tests.laws.test_line_model import Fleet

NEVER = clock.pack(NOW_MS + 50 * 365 * DAY_MS)
QUIET = {
    "database": None,
    "deadline": None,
    "derandomize": True,
    "phases": [Phase.generate],
    "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}


class Case(NamedTuple):
    """One mutation: what it is, the law that catches it, the real and the false thing, and what to try it on."""

    mutation: str
    law: Callable[..., None]
    real: Any
    false: Any
    tried_on: tuple[st.SearchStrategy[Any], ...]


def holds(law: Callable[..., None], thing: Any, tried_on: tuple[st.SearchStrategy[Any], ...], examples: int) -> None:
    @settings(max_examples=examples, **QUIET)
    @given(st.tuples(*tried_on))
    def tried(drawn: tuple[Any, ...]) -> None:
        law(thing, *drawn)

    tried()


def show(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.mutation}-{c.law.__name__}") for c in cases])


def is_caught(case: Case) -> None:
    holds(case.law, case.real, case.tried_on, examples=10)
    with pytest.raises(AssertionError):
        holds(case.law, case.false, case.tried_on, examples=2_000)


# --- G-Counter ---


def _count(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, gcounter, broken(gcounter, **changes), (counts, *more))


def _summed(a: Any, b: Any) -> Any:
    return {replica: a.get(replica, 0) + b.get(replica, 0) for replica in {*a, *b}}


def _smallest(a: Any, b: Any) -> Any:
    return {replica: min(side[replica] for side in (a, b) if replica in side) for replica in {*a, *b}}


def _common(a: Any, b: Any) -> Any:
    return {replica: max(a[replica], b[replica]) for replica in {*a} & {*b}}


def _in_place(a: Any, b: Any) -> Any:
    joined = gcounter.join(a, b)
    a.update(joined)
    return joined


def _with_zeros(a: Any, b: Any) -> Any:
    return {replica: max(a.get(replica, 0), b.get(replica, 0)) for replica in {*a, *b}}


def _halves(a: Any, b: Any) -> Any:
    """Rounded means: commutative, idempotent, and nothing else."""
    return {replica: -(-(a.get(replica, 0) + b.get(replica, 0)) // 2) for replica in {*a, *b}}


GCOUNTER = [
    _count("sum-instead-of-max", checks.idempotent, counts, join=_summed),
    _count("sum-instead-of-max", checks.each_replica_keeps_its_largest_total, counts, join=_summed),
    _count("first-value-instead-of-max", checks.commutative, counts, join=lambda a, b: {**b, **a}),
    _count("last-value-instead-of-max", checks.commutative, counts, join=lambda a, b: {**a, **b}),
    _count("mean-instead-of-max", checks.associative, counts, counts, join=_halves),
    _count("min-instead-of-max", checks.join_covers_both, counts, join=_smallest),
    _count("min-instead-of-max", checks.join_is_monotone, counts, counts, join=_smallest),
    _count("only-common-replicas", checks.join_covers_both, counts, join=_common),
    _count("one-more-than-max", checks.join_adds_nothing_of_its_own, counts, counts,
           join=lambda a, b: {r: t + (a != b) for r, t in gcounter.join(a, b).items()}),
    _count("joins-in-place", checks.join_touches_nothing, counts, join=_in_place),
    _count("keeps-zeros", checks.a_zero_is_not_kept, st.lists(replicas), join=_with_zeros),
    _count("value-is-the-largest-total", checks.value_is_the_sum_of_all_replicas,
           value=lambda c: max(c.values(), default=0)),
]  # fmt: skip


@show(GCOUNTER)
def test_a_broken_gcounter_is_caught(case):
    is_caught(case)


# --- LWW-Register ---

registers = checks.registers()


def _register(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, lww, broken(lww, **changes), (registers, *more))


def _by_decoded_value(a: Register, b: Register) -> Register:
    if (a.stamp, a.replica) != (b.stamp, b.replica):
        return max(a, b)
    one, two = json.loads(a.value), json.loads(b.value)
    if one == two:
        return a
    try:
        return b if two > one else a
    except TypeError:
        return max(a, b)


def _covers_decoded(whole: Register, part: Register) -> bool:
    if (whole.stamp, whole.replica) != (part.stamp, part.replica):
        return part <= whole
    return json.loads(whole.value) == json.loads(part.value) or part <= whole


LWW = [
    _register("mine-always-wins", checks.commutative, registers, join=lambda a, _b: a),
    _register("theirs-always-wins", checks.commutative, registers, join=lambda _a, b: b),
    _register("earlier-wins", checks.the_later_write_wins, registers, join=min),
    _register("earlier-wins", checks.join_covers_both, registers, join=min),
    _register("ignores-the-stamp", checks.the_later_write_wins, registers,
              join=lambda a, b: max(a, b, key=lambda r: r[1:])),
    _register("ignores-the-replica-in-ties", checks.a_tie_goes_to_the_larger_replica, registers,
              join=lambda a, b: max(a, b, key=lambda r: (r.stamp, r.value, r.replica))),
    _register("first-wins-ties-of-stamp", checks.commutative, registers,
              join=lambda a, b: max(a, b, key=lambda r: r.stamp)),
    _register("first-wins-ties-of-replica", checks.commutative, registers,
              join=lambda a, b: max(a, b, key=lambda r: r[:2])),
    _register("smaller-bytes-win-ties", checks.a_tie_of_one_replica_goes_to_the_larger_bytes, registers,
              join=lambda a, b: min(a, b) if a[:2] == b[:2] else max(a, b)),
    _register("compares-decoded-values", checks.commutative, registers, join=_by_decoded_value),
    _register("compares-decoded-values", checks.a_tie_of_one_replica_goes_to_the_larger_bytes, registers,
              join=_by_decoded_value),
    _register("covers-compares-decoded-values", checks.covers_means_that_join_changes_nothing, registers,
              covers=_covers_decoded),
    _register("mixes-two-writes", checks.idempotent, registers,
              join=lambda a, b: Register(max(a.stamp, b.stamp), max(a.replica, b.replica), a.value + b.value)),
    _register("a-cycle-of-ties", checks.associative, registers, registers,
              join=lambda a, b: max(a, b) if a.stamp != b.stamp or (len(a.value) + len(b.value)) % 2 else min(a, b)),
    _register("later-than-both", checks.join_adds_nothing_of_its_own, registers, registers,
              join=lambda a, b: max(a, b) if a == b else max(a, b)._replace(stamp=clock.after(max(a, b).stamp))),
    _register("larger-stamp-of-a-larger-one", checks.join_is_monotone, registers, registers,
              join=lambda a, b: a if a.replica > b.replica else max(a, b)),
    _register("covers-always-true", checks.covers_means_that_join_changes_nothing, registers,
              covers=lambda _w, _p: True),
    _register("covers-only-what-is-smaller", checks.join_covers_both, registers, covers=lambda w, p: p < w),
]  # fmt: skip


@show(LWW)
def test_a_broken_lww_register_is_caught(case):
    is_caught(case)


# --- OR-Set ---


def _slots(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, orset, broken(orset, **changes), (slots, *more))


def _remove_wins(add: Any, rem: Any) -> Any:
    return orset.live(add, rem) if max(add.values(), default="") > max(rem.values(), default="") else {}


def _remove_everything(add: Any, rem: Any) -> Any:
    return dict.fromkeys(REPLICAS, max([*add.values(), *rem.values()], default=STAMPS[0]))


ORSET = [
    _slots("first-stamp-wins", checks.commutative, slots, join=lambda a, b: {**b, **a}),
    _slots("smaller-stamp-wins", checks.join_covers_both, slots, join=_smallest),
    _slots("smaller-stamp-wins", checks.each_replica_keeps_its_latest_stamp, slots, join=_smallest),
    _slots("only-common-replicas", checks.join_is_monotone, slots, slots, join=_common),
    _slots("smaller-stamp-of-two-else-larger", checks.associative, slots, slots,
           join=lambda a, b: _smallest(a, b) if {*a} == {*b} else orset.join(a, b)),
    _slots("one-stamp-for-all-replicas", checks.idempotent, slots,
           join=lambda a, b: dict.fromkeys({*a, *b}, max([*a.values(), *b.values()], default=""))),
    _slots("one-stamp-for-all-replicas", checks.join_adds_nothing_of_its_own, slots, slots,
           join=lambda a, b: dict.fromkeys({*a, *b}, max([*a.values(), *b.values()], default=""))),
    _slots("joins-in-place", checks.join_touches_nothing, slots, join=lambda a, b: a.update(orset.join(a, b)) or a),
    _slots("live-uses-at-least", checks.a_remove_takes_out_all_it_saw, slots,
           live=lambda add, rem: {r: s for r, s in add.items() if s >= rem.get(r, "")}),
    _slots("live-ignores-removes", checks.a_late_old_add_stays_out, slots, slots, live=lambda add, _rem: dict(add)),
    _slots("live-needs-every-add-live", checks.live_are_the_adds_that_no_remove_has_seen, slots,
           live=lambda add, rem: dict(add) if all(s > rem.get(r, "") for r, s in add.items()) else {}),
    _slots("remove-wins", checks.an_older_add_wins_over_a_remove_that_has_not_seen_it, replicas, live=_remove_wins),
    _slots("remove-wins-for-good", checks.an_add_wins_over_a_concurrent_remove, slots, replicas,
           live=lambda add, rem: {} if rem else dict(add)),
    _slots("remove-covers-everything", checks.a_remove_covers_only_what_it_saw, slots, removal=_remove_everything),
    _slots("remove-covers-everything", checks.an_older_add_wins_over_a_remove_that_has_not_seen_it, replicas,
           removal=_remove_everything),
    _slots("remove-of-the-future", checks.an_add_wins_over_a_concurrent_remove, slots, replicas,
           removal=lambda _add, _rem: dict.fromkeys(REPLICAS, checks.FOREVER)),
    _slots("remove-forgets-a-replica", checks.a_remove_takes_out_all_it_saw, slots,
           removal=lambda add, rem: dict(sorted(orset.live(add, rem).items())[1:])),
    _slots("remove-empties-the-adds", checks.a_re_add_after_a_remove_is_in, slots, replicas,
           live=lambda add, _rem: dict(add)),
    _slots("removed-for-good", checks.a_re_add_after_a_remove_is_in, slots, replicas,
           live=lambda add, rem: {r: s for r, s in add.items() if r not in rem}),
]  # fmt: skip


@show(ORSET)
def test_a_broken_orset_is_caught(case):
    is_caught(case)


# --- clock ---


class WallOnly(Clock):
    """The wall clock, as it is."""

    def tick(self) -> str:
        self.last = self.wall()
        return self.last


class NoWall(Clock):
    """A Lamport clock: nobody can tell when anything was."""

    def tick(self) -> str:
        self.last = clock.after(self.last)
        return self.last


class Deaf(Clock):
    """Admits nothing."""

    def admit(self, stamp: str) -> None:
        pass


class Gullible(Clock):
    """Takes the last stamp admitted for the largest."""

    def admit(self, stamp: str) -> None:
        self.last = stamp


class NoCarry(Clock):
    """A counter that wraps round."""

    def tick(self) -> str:
        ms, counter = clock.unpack(self.last)
        self.last = max(self.wall(), clock.pack(ms, (counter + 1) & clock.COUNTER_MAX))
        return self.last


class Stays(Clock):
    """Issues one stamp twice within a millisecond."""

    def tick(self) -> str:
        self.last = max(self.wall(), self.last)
        return self.last


def _stamp(mutation: str, law: Callable[..., None], *tried_on: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, clock, broken(clock, **changes), tried_on)


def _wrapping(stamp: str) -> str:
    ms, counter = clock.unpack(stamp)
    return clock.pack(ms, (counter + 1) & clock.COUNTER_MAX)


CLOCK = [
    Case("wall-time-only", checks.stamps_rise_whatever_the_wall_does, Clock, WallOnly, (checks.events,)),
    Case("admits-nothing", checks.stamps_rise_whatever_the_wall_does, Clock, Deaf, (checks.events,)),
    Case("admits-the-last-and-smaller", checks.stamps_rise_whatever_the_wall_does, Clock, Gullible, (checks.events,)),
    Case("counter-overflow-not-carried", checks.stamps_rise_whatever_the_wall_does, Clock, NoCarry, (checks.events,)),
    Case("same-stamp-twice", checks.stamps_rise_whatever_the_wall_does, Clock, Stays, (checks.events,)),
    Case("ignores-the-wall", checks.stamps_follow_the_wall, Clock, NoWall, (checks.events,)),
    _stamp("counter-overflow-not-carried", checks.nothing_lies_between_a_stamp_and_the_next, checks.readings,
           after=_wrapping),
    _stamp("next-is-the-next-millisecond", checks.nothing_lies_between_a_stamp_and_the_next, checks.readings,
           after=lambda s: clock.pack(min(clock.unpack(s)[0] + 1, clock.MS_MAX))),
    _stamp("counter-not-padded", checks.text_sorts_as_readings_do, checks.readings, checks.readings,
           pack=lambda ms, c: clock.pack(ms)[:25] + f"{c:x}"),
    _stamp("counter-in-front", checks.text_sorts_as_readings_do, checks.readings, checks.readings,
           pack=lambda ms, c: f"{c:04x}" + clock.pack(ms)),
    _stamp("milliseconds-since-1970-as-text", checks.text_sorts_as_readings_do, checks.readings, checks.readings,
           pack=lambda ms, c: f"{ms}-{c:04x}"),
    _stamp("upper-case-hex", checks.a_stamp_reads_back, checks.readings,
           pack=lambda ms, c: clock.pack(ms)[:25] + f"{c:04X}"),
    _stamp("counter-dropped-in-reading", checks.a_stamp_reads_back, checks.readings,
           unpack=lambda s: (clock.unpack(s)[0], 0)),
    _stamp("shape-without-calendar", checks.no_malformed_stamp_is_taken, st.sampled_from(checks.NO_STAMPS),
           is_stamp=lambda text: clock._SHAPE.fullmatch(text) is not None),
    _stamp("match-instead-of-fullmatch", checks.no_malformed_stamp_is_taken, st.sampled_from(checks.NO_STAMPS),
           is_stamp=lambda text: clock.is_stamp(text[:29])),
    _stamp("any-case", checks.no_malformed_stamp_is_taken, st.sampled_from(checks.NO_STAMPS),
           is_stamp=lambda text: clock.is_stamp(text) or clock.is_stamp(text[:25] + text[25:].lower())),
    _stamp("any-digits", checks.no_malformed_stamp_is_taken, st.sampled_from(checks.NO_STAMPS),
           is_stamp=lambda text: clock.is_stamp("".join(str(int(c)) if c.isdecimal() else c for c in text))),
]  # fmt: skip


@show(CLOCK)
def test_a_broken_clock_is_caught(case):
    is_caught(case)


# --- the line ---

line = checks.lines_of_one_id()
ties = checks.lines_of_one_id(st.sampled_from((1, True, 1.0)))
histories = st.lists(checks.entries, max_size=6)
any_line = checks.lines()


def disputes(*parts: str) -> st.SearchStrategy[Line]:
    """Draw lines that dispute some parts alone: what a mutation needs to show is rare among all that can be said."""
    return checks.disputes(st.sampled_from(("a", "b")), parts)


def _line(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, codec, broken(codec, **changes), (line, *more))


def joining(**changes: Callable[[Column, Column], Any]) -> Callable[[Line, Line], Line]:
    """Return the join of lines in which some parts of a column are joined otherwise."""

    def join(a: Line, b: Line) -> Line:
        columns = dict(codec.join(a, b).w)
        for writer in {*a.w, *b.w}:
            mine, theirs = a.w.get(writer, NOTHING), b.w.get(writer, NOTHING)
            parts = {part: otherwise(mine, theirs) for part, otherwise in changes.items()}
            columns[writer] = msgspec.structs.replace(columns.get(writer, NOTHING), **parts)
        return Line(a.id, {writer: column for writer, column in columns.items() if column != NOTHING})

    return join


def _edits_by(beats: Callable[[tuple[str, Any], tuple[str, Any]], bool]) -> Callable[[Line, Line], Line]:
    def otherwise(a: Column, b: Column) -> dict[str, Any]:
        return {**a.set, **{f: edit for f, edit in b.set.items() if f not in a.set or beats(edit, a.set[f])}}

    return joining(set=otherwise)


def _same_to_python(edit: tuple[str, Any], than: tuple[str, Any]) -> bool:
    if edit[0] != than[0]:
        return edit[0] > than[0]
    return bool(edit[1] != than[1]) and canonical(edit[1]) > canonical(than[1])


def _wordings_by_value(a: Column, b: Column) -> dict[str, Any]:
    said = {f: v for f, v in b.first.items() if f not in a.first or _same_to_python(("", v), ("", a.first[f]))}
    return {**a.first, **said}


def _purging(
    marks_of: Callable[[Line, Line], Line], is_covered: Callable[[str, str], bool]
) -> Callable[[Line, Line], Line]:
    """Return the join whose marks cover edits otherwise."""
    unmarked = _without("purge")

    def join(a: Line, b: Line) -> Line:
        marks = marks_of(a, b).marks("purge")
        columns = dict(codec.join(_marks_alone(a), _marks_alone(b)).w)
        for writer, column in codec.join(unmarked(a), unmarked(b)).w.items():
            columns[writer] = msgspec.structs.replace(
                column,
                first={f: value for f, value in column.first.items() if (writer, f) not in marks},
                set={f: e for f, e in column.set.items() if not is_covered(e[0], marks.get((writer, f), ""))},
                purge=columns.get(writer, NOTHING).purge,
            )
        return Line(a.id, {writer: column for writer, column in columns.items() if column != NOTHING})

    return join


def _marks_alone(line: Line) -> Line:
    return Line(line.id, {writer: Column(purge=column.purge) for writer, column in line.w.items() if column.purge})


def _all_marks(a: Line, b: Line) -> Line:
    return codec.join(_marks_alone(a), _marks_alone(b))


def _by_wall_clock(a: Line, b: Line) -> Line:
    """A join that leaves out what is from the future."""
    joined = codec.join(a, b)
    columns = {
        writer: msgspec.structs.replace(column, set={f: e for f, e in column.set.items() if e[0] < STAMPS[-1]})
        for writer, column in joined.w.items()
    }
    return Line(a.id, {writer: column for writer, column in columns.items() if column != NOTHING})


def _over_in_the_join(a: Line, b: Line) -> Line:
    """A join that drops what an edit replaced: only a fold may leave it out."""
    joined = codec.join(a, b)
    marks = joined.marks("over")
    columns = {
        writer: msgspec.structs.replace(
            column, set={f: e for f, e in column.set.items() if e[0] != marks.get((writer, f), "")}
        )
        for writer, column in joined.w.items()
    }
    return Line(a.id, {writer: column for writer, column in columns.items() if column != NOTHING})


def _larger_wordings(a: Column, b: Column) -> dict[str, Any]:
    new = {f: value for f, value in b.first.items() if f not in a.first or codec._is_larger(value, a.first[f])}
    return {**a.first, **new}


def _summed_nested(a: Any, b: Any) -> Any:
    return {name: _summed(a.get(name, {}), b.get(name, {})) for name in {*a, *b}}


def _removes_collected(a: Line, b: Line) -> Line:
    """A join that forgets a remove whose add is gone."""
    joined = codec.join(a, b)
    columns = {
        writer: msgspec.structs.replace(
            column, rem={w: s for w, s in column.rem.items() if joined.w.get(w, NOTHING).add > s}
        )
        for writer, column in joined.w.items()
    }
    return Line(a.id, {writer: column for writer, column in columns.items() if column != NOTHING})


def _line_in_place(a: Line, b: Line) -> Line:
    joined = codec.join(a, b)
    a.w.update(b.w)
    return joined


def _without(*parts: str) -> Callable[[Line], Line]:
    def trimmed(line: Line) -> Line:
        nothing = {part: getattr(NOTHING, part) for part in parts}
        columns = {writer: msgspec.structs.replace(column, **nothing) for writer, column in line.w.items()}
        return Line(line.id, {writer: column for writer, column in columns.items() if column != NOTHING})

    return trimmed


def _covers_without(part: str) -> Callable[[Line, Line], bool]:
    return lambda whole, some: codec.covers(whole, _without(part)(some))


def _minus_without(part: str) -> Callable[[Line, Line], Line | None]:
    def difference(whole: Line, base: Line) -> Line | None:
        news = codec.difference(whole, base)
        return None if news is None else _without(part)(news)

    return difference


def _whole_columns(whole: Line, base: Line) -> Line | None:
    """A delta of whole columns, where a key would do."""
    news = codec.difference(whole, base)
    return None if news is None else Line(whole.id, {writer: whole.w[writer] for writer in news.w})


def _unread(*parts: str) -> Callable[[bytes], Line | Carried]:
    def decode(raw: bytes) -> Line | Carried:
        read = codec.decode(raw)
        return _without(*parts)(read) if isinstance(read, Line) else read

    return decode


def _kept_zeros(raw: bytes) -> Line | Carried:
    read = codec.decode(raw)
    if isinstance(read, Line):
        for writer, said in json.loads(raw).get("w", {}).items():
            if 0 in said.get("n", {}).values():
                read.w.setdefault(writer, Column(n={})).n["empty"] = 0
    return read


def _with_covered(raw: bytes) -> Line | Carried:
    """A reader that does not apply a line's marks to the line itself."""
    found = json.loads(raw)
    return Line(found["id"], {writer: codec._as_column(writer, said) for writer, said in found.get("w", {}).items()})


def _untidy(line: Line) -> bytes:
    found = {writer: dict(reversed(codec._as_json(column).items())) for writer, column in line.w.items()}
    return msgspec.json.encode({"w": found, "id": line.id})


def _cut_anywhere(line: Line) -> list[bytes]:
    """Every writer's column in two."""
    lines = []
    for raw in codec.split(line):
        part = codec.decode(raw)
        lines += [codec.encode(_without("first", "n")(part)), codec.encode(_without("add", "rem", "set")(part))]
    return lines if len(codec.split(line)) > 1 else codec.split(line)


LINE = [
    _line("totals-summed", checks.idempotent, line,
          join=joining(n=lambda a, b: _summed(a.n, b.n))),
    Case("last-total-of-a-name-wins", checks.commutative, codec,
         broken(codec, join=joining(n=lambda a, b: {**a.n, **b.n})), (disputes("n"),) * 2),
    _line("parts-summed", checks.idempotent, line, join=joining(parts=lambda a, b: _summed_nested(a.parts, b.parts))),
    _line("one-part-a-counter", checks.join_covers_both, line,
          join=joining(parts=lambda a, b: {**a.parts, **b.parts})),
    _line("unknown-counters-dropped", checks.the_join_is_what_the_design_says, line, line,
          join=joining(n=lambda a, b: {k: v for k, v in gcounter.join(a.n, b.n).items() if k != "zeta"})),
    _line("newer-parts-dropped", checks.join_covers_both, line, join=joining(unknown=lambda _a, _b: {})),
    _line("newer-parts-of-the-last", checks.commutative, line,
          join=joining(unknown=lambda a, b: {**a.unknown, **b.unknown})),
    _line("removes-dropped", checks.join_covers_both, line, join=joining(rem=lambda _a, _b: {})),
    _line("removes-collected", checks.the_join_is_what_the_design_says, line, line, join=_removes_collected),
    _line("totals-dropped-by-a-remove", checks.join_is_monotone, line, line,
          join=joining(n=lambda a, b: {} if b.rem else gcounter.join(a.n, b.n))),
    _line("smaller-add-wins", checks.the_join_is_what_the_design_says, line, line,
          join=joining(add=lambda a, b: min(filter(None, (a.add, b.add)), default=""))),
    _line("last-edit-wins", checks.commutative, line, join=_edits_by(lambda _b, _a: True)),
    _line("earlier-edit-wins", checks.the_join_is_what_the_design_says, line, line,
          join=_edits_by(lambda b, a: b[0] < a[0])),
    Case("edits-ignore-the-value-in-ties", checks.commutative, codec,
         broken(codec, join=_edits_by(lambda b, a: b[0] > a[0])), (ties, ties)),
    Case("edits-compare-decoded-values", checks.commutative, codec,
         broken(codec, join=_edits_by(_same_to_python)), (ties, ties)),
    Case("wordings-compare-decoded-values", checks.commutative, codec,
         broken(codec, join=joining(first=_wordings_by_value)), (ties, ties)),
    _line("last-wording-wins", checks.commutative, line, join=joining(first=lambda a, b: {**a.first, **b.first})),
    _line("time-of-first-sight-joins-as-a-wording", checks.the_join_is_what_the_design_says, line, line,
          join=joining(first=_larger_wordings)),
    Case("one-field-a-writer-in-marks", checks.join_covers_both, codec,
         broken(codec, join=joining(over=lambda a, b: {**a.over, **b.over})), (disputes("over"),) * 2),
    _line("marks-dropped", checks.join_covers_both, line, join=joining(over=lambda _a, _b: {})),
    _line("purge-marks-collected", checks.the_join_is_what_the_design_says, line, line,
          join=joining(purge=lambda _a, _b: {})),
    _line("purge-covers-nothing", checks.the_join_is_what_the_design_says, line, line,
          join=_purging(_all_marks, lambda _stamp, _mark: False)),
    Case("purge-covers-an-exact-stamp", checks.associative, codec,
         broken(codec, join=_purging(_all_marks, lambda stamp, mark: stamp == mark)),
         (disputes("set", "purge"),) * 3),
    _line("purge-covers-whatever-comes", checks.the_join_is_what_the_design_says, line, line,
          join=_purging(_all_marks, lambda _stamp, mark: bool(mark))),
    _line("purge-by-my-marks-alone", checks.commutative, line,
          join=_purging(lambda a, _b: a, lambda stamp, mark: stamp <= mark)),
    _line("joins-by-the-wall-clock", checks.join_covers_both, line, join=_by_wall_clock),
    _line("joins-by-the-wall-clock", checks.the_join_is_what_the_design_says, line, line, join=_by_wall_clock),
    Case("what-was-replaced-leaves-the-join", checks.join_is_monotone, codec, broken(codec, join=_over_in_the_join),
         (disputes("set", "over"),) * 3),
    _line("tags-along-a-third-counter", checks.join_adds_nothing_of_its_own, line, line,
          join=joining(n=lambda a, b: {**gcounter.join(a.n, b.n), "joined": len(repr(a)) + len(repr(b))})),
    _line("joins-in-place", checks.join_touches_nothing, line, join=_line_in_place),
    _line("associates-by-length", checks.associative, line, line,
          join=lambda a, b: codec.join(a, b) if len(codec.encode(a)) + len(codec.encode(b)) < 300
          else max(a, b, key=codec.encode)),
    _line("covers-always-true", checks.covers_means_that_join_changes_nothing, line, covers=lambda _w, _p: True),
    *(_line(f"covers-ignores-{part}", checks.covers_means_that_join_changes_nothing, line, covers=_covers_without(part))
      for part in Column.__struct_fields__),
    *(_line(f"delta-lacks-{part}", checks.what_a_line_has_beyond_another_is_all_that_it_brings, line,
            difference=_minus_without(part))
      for part in Column.__struct_fields__),
    _line("delta-of-everything", checks.what_a_line_has_beyond_another_is_all_that_it_brings, line,
          difference=lambda whole, _base: whole),
    _line("delta-of-whole-columns", checks.what_a_line_has_beyond_another_is_the_smallest, line,
          difference=_whole_columns),
    Case("keys-not-sorted", checks.canonical_bytes_are_sorted_compact_json, codec.encode, _untidy,
         (checks.lines(checks.exact_values),)),
    Case("not-compact", checks.canonical_bytes_are_sorted_compact_json, codec.encode,
         lambda line: msgspec.json.format(codec.encode(line), indent=0), (checks.lines(checks.exact_values),)),
    *(Case(f"{part}-not-read", checks.a_line_reads_back, codec.decode, _unread(part), (any_line,))
      for part in Column.__struct_fields__),
    Case("true-read-as-1", checks.a_line_reads_back, codec.decode,
         lambda raw: codec.decode(raw.replace(b"true", b"1")), (any_line,)),
    Case("zeros-kept", checks.an_untidy_line_reads_as_its_canonical_form, codec.decode, _kept_zeros,
         (any_line, st.integers(0, 2**32))),
    Case("marks-not-applied-to-their-own-line", checks.what_a_mark_covers_is_not_read, codec.decode, _with_covered,
         (checks.columns(), checks.columns())),
    Case("last-piece-dropped", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: codec.split(line)[:-1] or codec.split(line), (checks.wide_lines(),)),
    Case("never-split", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: [codec.encode(line)], (checks.wide_lines(),)),
    Case("split-backwards", checks.a_long_line_is_split_in_writer_order, codec.split,
         lambda line: codec.split(line)[::-1], (checks.wide_lines(),)),
    Case("columns-cut-that-fit", checks.a_long_line_is_split_in_writer_order, codec.split,
         _cut_anywhere, (checks.wide_lines(),)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@show(LINE)
def test_a_broken_line_is_caught(case):
    is_caught(case)


# --- many lines ---


def _tidied(raw: bytes) -> Line | Carried:
    read = codec.decode(raw)
    return Carried(read.id, canonical(json.loads(raw))) if isinstance(read, Carried) else read


def _folded(raw: bytes) -> Line | Carried:
    read = codec.decode(raw)
    return Line(read.id) if isinstance(read, Carried) else read


def _many(mutation: str, law: Callable[..., None], *tried_on: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, codec, broken(codec, **changes), tried_on)


MANY = [
    _many("last-line-wins", checks.any_delivery_gives_the_same_edition, checks.deliveries(line), join=lambda _a, b: b),
    _many("first-line-wins", checks.any_delivery_gives_the_same_edition, checks.deliveries(line), join=lambda a, _b: a),
    _many("totals-summed", checks.any_delivery_gives_the_same_edition, checks.deliveries(line),
          join=joining(n=lambda a, b: _summed(a.n, b.n))),
    _many("edits-compare-decoded-values", checks.any_delivery_gives_the_same_edition, checks.deliveries(ties),
          join=_edits_by(_same_to_python)),
    _many("first-sight-not-read", checks.an_edition_reloads_to_itself, histories, decode=_unread("first")),
    _many("newer-parts-not-read", checks.editions_of_editions_are_the_edition_of_all_lines,
          st.lists(histories, min_size=2, max_size=3), decode=_unread("unknown")),
    _many("carried-tidied", checks.carried_lines_pass_byte_for_byte, histories, decode=_tidied),
    _many("carried-folded", checks.carried_lines_pass_byte_for_byte, histories, decode=_folded),
]  # fmt: skip


@show(MANY)
def test_a_broken_edition_is_caught(case):
    is_caught(case)


# --- folds ---

said = st.lists(line, min_size=1, max_size=4)
Fold = Callable[[Line, Policy], Pattern]


def _fold(mutation: str, law: Callable[..., None], false: Fold, *more: st.SearchStrategy[Any]) -> Case:
    return Case(mutation, law, fold, false, more or (said, checks.policies))


def _changing(**changes: Callable[[Line, Policy], Any]) -> Fold:
    """Return a fold some of whose results are made otherwise."""

    def changed(line: Line, policy: Policy = pattern.NO_POLICY) -> Pattern:
        return msgspec.structs.replace(
            fold(line, policy), **{name: otherwise(line, policy) for name, otherwise in changes.items()}
        )

    return changed


def _of(change: Callable[[Column, Policy], Column]) -> Fold:
    """Return a fold of columns that are not what they are."""

    def folded(line: Line, policy: Policy = pattern.NO_POLICY) -> Pattern:
        return fold(Line(line.id, {writer: change(column, policy) for writer, column in line.w.items()}), policy)

    return folded


def _cut_adds(column: Column, policy: Policy) -> Column:
    return msgspec.structs.replace(column, add=column.add if column.add <= policy.cut else "")


def _cut_removes(column: Column, policy: Policy) -> Column:
    return msgspec.structs.replace(column, rem={w: s for w, s in column.rem.items() if s <= policy.cut})


def _hidden_by_the_future(column: Column, policy: Policy) -> Column:
    late = {field for field, edit in column.set.items() if edit[0] > policy.cut}
    return msgspec.structs.replace(column, first={f: v for f, v in column.first.items() if f not in late})


def _fields_by_writer(line: Line, policy: Policy) -> dict[str, Any]:
    """First wordings of the largest writer, whatever their bytes."""
    fields = dict(fold(line, policy).fields)
    for writer in sorted(line.w):
        if checks._allowed(writer, policy):
            firsts = line.w[writer].first
            fields |= {f: v for f, v in firsts.items() if f not in fold(line, policy).edited and f != "at"}
    return fields


def _fields_without_over(line: Line, policy: Policy) -> dict[str, Any]:
    return fold(_without("over")(line), policy).fields


def _fields_of_smaller_writers(line: Line, policy: Policy) -> dict[str, Any]:
    """Edits by stamp alone: between equal ones the writer that sorts first."""
    fields = dict(fold(line, policy).fields)
    for field, (stamp, _) in fold(line, policy).edited.items():
        equal = [w for w, c in line.w.items() if c.set.get(field, ("",))[0] == stamp and checks._allowed(w, policy)]
        fields[field] = line.w[min(equal)].set[field][1] if len(equal) > 1 else fields[field]
    return fields


def _parts_of_all(line: Line, policy: Policy) -> dict[str, dict[str, int]]:
    parts: dict[str, dict[str, int]] = {}
    for writer, column in line.w.items():
        if checks._allowed(writer, policy):
            parts = _summed_nested(parts, column.parts)
    return parts


def _live_whoever_removed(line: Line, policy: Policy) -> dict[str, str]:
    """Who is blocked here removes all the same."""
    return orset.live(fold(line, policy).adds, _removed(line))


def _removed(line: Line) -> dict[str, str]:
    return reduce(orset.join, (column.rem for column in line.w.values()), {})


def _remove_wins_live(line: Line, policy: Policy) -> dict[str, str]:
    removed = _removed(line)
    return {w: s for w, s in fold(line, policy).live.items() if s > max(removed.values(), default="")}


def _emptying(line: Line, policy: Policy = pattern.NO_POLICY) -> Pattern:
    """A fold that tidies up what it was given."""
    folded = fold(line, policy)
    for column in line.w.values():
        column.rem = {w: s for w, s in column.rem.items() if w in folded.live}
    return folded


undone = st.lists(checks.undone_lines(), min_size=1, max_size=3)


def _undone_as(number: int) -> Callable[[Column, Policy], Column]:
    def changed(column: Column, _: Policy) -> Column:
        parts = {
            name: dict.fromkeys(counts, number) if name.endswith(codec.UNDONE) else counts
            for name, counts in column.parts.items()
        }
        return msgspec.structs.replace(column, parts=parts)

    return changed


def _undone_by_anybody(line: Line, policy: Policy = pattern.NO_POLICY) -> Pattern:
    """What one writer takes back is gone from the columns of all."""
    marks: dict[str, dict[str, int]] = {}
    for column in line.w.values():
        for name, numbers in column.parts.items():
            if name.endswith(codec.UNDONE):
                marks[name] = gcounter.join(marks.get(name, {}), numbers)
    return fold(codec.join(line, Line(line.id, {writer: Column(parts=marks) for writer in line.w})), policy)


FOLDS = [
    _fold("adds-cut", checks.presence_is_the_or_set_of_what_was_said, _of(_cut_adds)),
    _fold("removes-cut", checks.presence_is_the_or_set_of_what_was_said, _of(_cut_removes)),
    _fold("removes-of-the-blocked-count", checks.presence_is_the_or_set_of_what_was_said,
          _changing(live=_live_whoever_removed), st.lists(disputes("add", "rem"), min_size=1), checks.policies),
    _fold("remove-wins", checks.presence_is_the_or_set_of_what_was_said, _changing(live=_remove_wins_live)),
    _fold("first-wordings-by-writer", checks.fields_are_the_registers_of_what_was_said,
          _changing(fields=_fields_by_writer)),
    _fold("edits-ignore-the-writer-in-ties", checks.fields_are_the_registers_of_what_was_said,
          _changing(fields=_fields_of_smaller_writers), st.lists(disputes("set"), min_size=1), checks.policies),
    _fold("what-was-replaced-comes-back", checks.fields_are_the_registers_of_what_was_said,
          _changing(fields=_fields_without_over), st.lists(disputes("set", "over"), min_size=1), checks.policies),
    _fold("edits-from-the-future-count", checks.fields_are_the_registers_of_what_was_said,
          lambda line, policy=pattern.NO_POLICY: fold(line, policy._replace(cut=checks.FOREVER))),
    _fold("time-of-first-sight-is-a-field", checks.fields_are_the_registers_of_what_was_said,
          _changing(fields=lambda line, policy: {**fold(line, policy).fields,
                                                 **({"at": "x"} if fold(line, policy).at < STAMPS[1] else {})})),
    _fold("parts-summed", checks.counters_are_the_sums_of_what_was_said, _changing(parts=_parts_of_all)),
    _fold("what-was-undone-counts", checks.counters_are_the_sums_of_what_was_said, _of(_undone_as(2)),
          undone, checks.policies),
    _fold("undone-for-good", checks.counters_are_the_sums_of_what_was_said, _of(_undone_as(1)),
          undone, checks.policies),
    _fold("undone-by-anybody", checks.counters_are_the_sums_of_what_was_said, _undone_by_anybody,
          undone, checks.policies),
    _fold("one-total-for-all", checks.counters_are_the_sums_of_what_was_said,
          _changing(totals=lambda line, policy: {name: {"all": max(counts.values())}
                                                 for name, counts in fold(line, policy).totals.items()})),
    _fold("first-seen-by-adds-alone", checks.first_seen_is_the_smallest_time_said, _of(
        lambda column, _policy: msgspec.structs.replace(
            column, first={f: v for f, v in column.first.items() if f != "at" or not column.add}))),
    _fold("first-seen-by-the-last", checks.first_seen_is_the_smallest_time_said,
          _changing(at=lambda line, policy: max(fold(line, policy).adds.values(), default="0"))),
    _fold("hidden-by-the-future", checks.a_first_wording_is_never_hidden_by_an_edit_from_the_future,
          _of(_hidden_by_the_future), disputes("set", "first"), checks.policies, st.just("text")),
    _fold("tidies-the-record", checks.a_fold_touches_nothing, _emptying, line, checks.policies),
    _fold("counts-of-the-blocked-kept", checks.who_is_blocked_is_as_one_who_never_wrote,
          _changing(totals=lambda line, _p: fold(line).totals), line, checks.policies),
    _fold("marks-of-the-blocked-kept", checks.who_is_blocked_is_as_one_who_never_wrote,
          lambda line, policy=pattern.NO_POLICY: fold(
              Line(line.id, {w: c if checks._allowed(w, policy) else Column(over=c.over) for w, c in line.w.items()}),
              Policy(policy.cut)),
          disputes("set", "over"), checks.policies),
    _fold("bare-agents-not-blocked", checks.who_is_blocked_is_as_one_who_never_wrote,
          lambda line, policy=pattern.NO_POLICY: fold(
              line, policy._replace(blocked={w: "" for w in policy.blocked if w in REPLICAS})), line, checks.policies),
]  # fmt: skip


@show(FOLDS)
def test_a_broken_fold_is_caught(case):
    is_caught(case)


# --- edits ---


def _edit(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, edits, broken(edits, **changes), (line, *more))


def _said_of(edit: Callable[..., Line], **changes: Callable[..., Any]) -> Callable[..., Line]:
    """Return an edit whose delta says some parts otherwise, given the writer's column and the edit's own arguments."""

    def changed(line: Line, me: str, *rest: Any, **more: Any) -> Line:
        delta = edit(line, me, *rest, **more)
        column = delta.w.get(me, NOTHING)
        parts = {part: otherwise(column, line, me) for part, otherwise in changes.items()}
        return Line(line.id, {me: msgspec.structs.replace(column, **parts)})

    return changed


def _in_anybodys_column(line: Line, me: str) -> Line:
    """A remove that takes the adds away in their own columns."""
    return Line(line.id, {writer: Column(rem={writer: column.add}) for writer, column in line.w.items() if column.add})


def _retire_forever(line: Line, me: str) -> Line:
    return Line(line.id, {me: Column(rem=dict.fromkeys((*line.w, "dora.00000004"), NEVER))})


def _retire_live(line: Line, me: str) -> Line:
    """A remove of what is live for everybody: whoever blocks another remover has not retired it."""
    return Line(line.id, {me: Column(rem=fold(line).live)})


def _set_without_over(line: Line, field: str, value: Any, me: str, stamp: str, _cut: str) -> Line:
    return Line(line.id, {me: Column(set={field: (stamp, value)})})


def _set_over_everything(line: Line, field: str, value: Any, me: str, stamp: str, cut: str) -> Line:
    delta = edits.set_field(line, field, value, me, stamp, cut)
    over = {writer: {field: column.set[field][0]} for writer, column in line.w.items() if field in column.set}
    return Line(line.id, {me: msgspec.structs.replace(delta.w[me], over=over)})


def _set_over_for_good(line: Line, field: str, value: Any, me: str, stamp: str, cut: str) -> Line:
    delta = edits.set_field(line, field, value, me, stamp, cut)
    over = {writer: {field: NEVER} for writer in REPLICAS if writer != me}
    return Line(line.id, {me: msgspec.structs.replace(delta.w[me], over=over)})


def _part_as_total(line: Line, part: str, fields: Any, me: str, stamp: str, **more: Any) -> Line:
    return edits.confirm(line, me, stamp, seen=more["seen"], sessions=more.get("sessions", 0), fields=fields)


def _part_by_nobody(line: Line, part: str, fields: Any, me: str, stamp: str, **more: Any) -> Line:
    return edits.part(line, part, fields, me, stamp, **{**more, "author": None})


def _purge_by_the_clock(line: Line, redacted: Any, me: str, stamp: str, carried: Any = ()) -> Line:
    delta = edits.purge(line, redacted, me, stamp, carried)
    purge = {w: dict.fromkeys(fields, stamp) for w, fields in delta.w[me].purge.items() if w != me}
    return Line(line.id, {me: msgspec.structs.replace(delta.w[me], purge=purge)})


def _purge_all_writers(line: Line, redacted: Any, me: str, stamp: str, carried: Any = ()) -> Line:
    delta = edits.purge(line, redacted, me, stamp, carried)
    purge = {w: dict.fromkeys(redacted, clock.ZERO) for w in line.w} | delta.w[me].purge
    return Line(line.id, {me: msgspec.structs.replace(delta.w[me], purge=purge)})


def _purge_by_overwriting(line: Line, redacted: Any, me: str, stamp: str, carried: Any = ()) -> Line:
    return Line(line.id, {me: Column(set={field: (stamp, value) for field, value in redacted.items()})})


def _purge_forgets_wordings(line: Line, redacted: Any, me: str, stamp: str, carried: Any = ()) -> Line:
    return edits.purge(_without("first")(line), redacted, me, stamp, carried)


def _confirm_as_edit(line: Line, me: str, stamp: str, *, fields: Any = None, **more: Any) -> Line:
    """A log whose words beat whatever was edited meanwhile, a redaction too."""
    delta = edits.confirm(line, me, stamp, **more)
    column = msgspec.structs.replace(delta.w[me], set={f: (stamp, v) for f, v in (fields or {}).items()})
    return Line(line.id, {me: column})


def _say_adds_again(line: Line, old: str, me: str, stamp: str, cut: str) -> Line | None:
    delta = edits.reissue(line, old, me, stamp, cut)
    return delta and Line(line.id, {me: msgspec.structs.replace(delta.w[me], add=stamp)})


def _say_again_without_over(line: Line, old: str, me: str, stamp: str, cut: str) -> Line | None:
    delta = edits.reissue(line, old, me, stamp, cut)
    return delta and _without("over")(delta)


EDITS = [
    _edit("removes-in-anybodys-column", checks.a_delta_says_something_of_its_writer_alone, replicas,
          retire=_in_anybodys_column),
    _edit("counts-a-step", checks.a_log_is_in_and_counts_what_it_says, replicas, st.integers(1, 3),
          confirm=_said_of(edits.confirm, n=lambda _c, _l, _me: {"seen": 1, "sessions": 1})),
    _edit("counts-what-all-counted", checks.a_log_is_in_and_counts_what_it_says, replicas, st.integers(1, 3),
          confirm=_said_of(edits.confirm, n=lambda c, line, _me: {k: v + fold(line).count(k) for k, v in c.n.items()})),
    _edit("log-leaves-presence-alone", checks.a_log_is_in_and_counts_what_it_says, replicas, st.integers(1, 3),
          confirm=_said_of(edits.confirm, add=lambda _c, _l, _me: "")),
    _edit("first-sight-moves-on", checks.a_log_never_moves_the_time_when_it_was_first_seen, replicas,
          st.sampled_from(("", *STAMPS)),
          confirm=_said_of(edits.confirm, first=lambda _c, _l, _me: {})),
    _edit("wordings-not-repeated", checks.a_log_says_what_nobody_has_said, replicas,
          st.sampled_from(checks.FIELDS), checks.values,
          confirm=lambda line, me, stamp, *, fields=None, **more: edits.confirm(line, me, stamp, **more)
          if fold(line).fields.keys() >= fields.keys() else edits.confirm(line, me, stamp, fields=fields, **more)),
    Case("a-log-is-an-edit", checks.a_log_says_what_nobody_has_said, edits, broken(edits, confirm=_confirm_as_edit),
         (disputes("set", "first", "purge"), st.just(REPLICAS[0]), st.just("text"), checks.values)),
    _edit("parts-are-totals", checks.a_part_counts_once_whoever_tells_it, replicas, replicas, part=_part_as_total),
    _edit("undo-lowers-the-total", checks.an_undo_takes_one_back_until_it_is_stated_again, replicas,
          undo=lambda line, me, _: Line(line.id, {me: Column(n={"seen": line.w[me].n["seen"] - 1})})),
    _edit("who-imports-has-logged", checks.who_imports_is_no_witness, replicas, part=_part_by_nobody),
    Case("retires-what-is-live", checks.a_retire_takes_out_all_that_it_saw, edits,
         broken(edits, retire=_retire_live), (disputes("add", "rem"), replicas, checks.policies)),
    _edit("retires-nothing", checks.a_retire_takes_out_all_that_it_saw, replicas, checks.policies,
          retire=lambda line, _me: Line(line.id)),
    _edit("retires-for-good", checks.a_retire_covers_only_what_it_saw, replicas, retire=_retire_forever),
    _edit("restore-counts", checks.a_restore_is_in_and_counts_nothing, replicas, restore=edits.confirm),
    _edit("restore-forgets-first-sight", checks.a_restore_is_in_and_counts_nothing, replicas,
          restore=lambda line, me, stamp: Line(line.id, {me: Column(add=stamp)})),
    _edit("edit-without-over", checks.an_edit_wins_for_good, replicas, checks.stamps, set_field=_set_without_over),
    _edit("edit-over-honest-values", checks.an_edit_leaves_later_ones_to_win, replicas, replicas, checks.stamps,
          set_field=_set_over_everything),
    _edit("edit-over-what-is-to-come", checks.an_edit_leaves_later_ones_to_win, replicas, replicas, checks.stamps,
          set_field=_set_over_for_good),
    _edit("adds-said-again", checks.a_new_replica_says_its_edits_again, replicas, checks.stamps,
          reissue=_say_adds_again),
    _edit("said-again-without-over", checks.a_new_replica_says_its_edits_again, replicas, checks.stamps,
          reissue=_say_again_without_over),
    _edit("purge-overwrites-alone", checks.a_purged_value_stays_gone, line, replicas, purge=_purge_by_overwriting),
    _edit("purge-forgets-first-wordings", checks.a_purged_value_stays_gone, line, replicas,
          purge=_purge_forgets_wordings),
    _edit("purge-by-the-purgers-clock", checks.an_honest_edit_outlives_a_purge, replicas, replicas,
          purge=_purge_by_the_clock),
    _edit("purge-marks-everybody", checks.a_purge_marks_only_what_is_there, replicas, purge=_purge_all_writers),
]  # fmt: skip


@show(EDITS)
def test_a_broken_edit_is_caught(case):
    is_caught(case)


# --- the fleet against its models ---


def _fleet(**parts: Any) -> type[Fleet]:
    return type("BrokenFleet", (Fleet,), {name: staticmethod(part) for name, part in parts.items()})


FLEETS = {
    "totals-summed": _fleet(join=joining(n=lambda a, b: _summed(a.n, b.n))),
    "last-line-wins": _fleet(join=lambda _a, b: b),
    "removes-dropped": _fleet(join=joining(rem=lambda _a, _b: {})),
    "removes-collected": _fleet(join=_removes_collected),
    "last-edit-wins": _fleet(join=_edits_by(lambda _b, _a: True)),
    "last-wording-wins": _fleet(join=joining(first=lambda a, b: {**a.first, **b.first})),
    "first-wordings-by-writer": _fleet(fold=_changing(fields=_fields_by_writer)),
    "remove-covers-everything": _fleet(retire=_retire_forever),
    "remove-wins": _fleet(fold=_changing(live=_remove_wins_live)),
    "clock-of-wall-time-only": type("BrokenFleet", (Fleet,), {"clock_class": WallOnly}),
    "clock-admits-nothing": type("BrokenFleet", (Fleet,), {"clock_class": Deaf}),
}


@pytest.mark.parametrize("mutation", FLEETS)
def test_a_broken_fleet_is_caught_by_its_models(mutation):
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            FLEETS[mutation], settings=settings(max_examples=1_000, stateful_step_count=20, **QUIET)
        )


def test_each_law_has_a_mutation_that_it_catches():
    laws = {
        name
        for name, law in vars(checks).items()
        if inspect.isfunction(law) and not name.startswith("_") and inspect.signature(law).return_annotation is None
    }
    tried = {case.law.__name__ for case in (*GCOUNTER, *LWW, *ORSET, *CLOCK, *LINE, *MANY, *FOLDS, *EDITS)}
    assert laws == tried
