"""A law that nothing can break proves nothing: each is shown a join broken on purpose, and must catch it.

A case names the mutation and the law that catches it. First the law is shown the real thing under the same search, so
that a law which complains of everything is no proof either.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fleet.keep.line import Carried, Line
from fleet.keep.notebook import Notebook
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from crdt import clock, gcounter, lww, orset
from crdt.lww import Register
from fleet.keep import line as codec
from tests.laws import checks
from tests.laws.checks import REPLICAS, STAMPS, Clock, broken, counts, replicas, slots
from tests.laws.test_line_model import Fleet

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
    _count("covers-always-true", checks.covers_means_that_join_changes_nothing, counts, covers=lambda _w, _p: True),
    _count("covers-never-true", checks.join_covers_both, counts, covers=lambda _w, _p: False),
    _count("covers-compares-sums", checks.covers_means_that_join_changes_nothing, counts,
           covers=lambda w, p: sum(w.values()) >= sum(p.values())),
    _count("value-is-the-largest-total", checks.value_is_the_sum_of_all_replicas,
           value=lambda c: max(c.values(), default=0)),
    _count("raised-gives-a-step", checks.a_raise_moves_only_its_own_slot, replicas, st.integers(1, 5),
           raised=lambda _c, r, by: {r: by}),
    _count("raised-raises-every-slot", checks.a_raise_moves_only_its_own_slot, replicas, st.integers(1, 5),
           raised=lambda c, r, by: {other: c.get(other, 0) + by for other in {*c, r}}),
    _count("raised-changes-its-input", checks.a_raise_moves_only_its_own_slot, replicas, st.integers(1, 5),
           raised=lambda c, r, by: c.update({r: c.get(r, 0) + by}) or {r: c[r]}),
    _count("one-slot-for-all", checks.raises_by_two_replicas_add_up, st.integers(1, 5),
           raised=lambda c, _r, by: {"all": c.get("all", 0) + by}),
    _count("takes-any-step", checks.a_counter_never_falls, st.integers(-3, 3),
           raised=lambda c, r, by: {r: c.get(r, 0) + by}),
]  # fmt: skip


@show(GCOUNTER)
def test_a_broken_gcounter_is_caught(case):
    is_caught(case)


# --- LWW-Register ---

registers = checks.registers()
maps = st.dictionaries(st.sampled_from(checks.FIELDS), registers)


def _register(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, lww, broken(lww, **changes), (registers, *more))


def _decoded(register: Register) -> Any:
    value = json.loads(register.value)
    return register.stamp, register.replica, type(value) in (int, float, bool), value if value != [] else 0


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
    Case("drops-their-new-fields", checks.fields_are_joined_one_by_one, lww,
         broken(lww, join_fields=lambda a, b: {f: lww.join(a[f], b.get(f, a[f])) for f in a}), (maps, maps)),
    Case("one-winner-for-all-fields", checks.fields_are_joined_one_by_one, lww,
         broken(lww, join_fields=lambda a, b: {**a, **b} if max(b.values(), default=()) > max(a.values(), default=())
                else {**b, **a}), (maps, maps)),
    Case("joins-fields-in-place", checks.join_touches_nothing, broken(lww, join=lww.join_fields),
         broken(lww, join=lambda a, b: a.update(b) or a), (maps, maps)),
]  # fmt: skip


@show(LWW)
def test_a_broken_lww_register_is_caught(case):
    is_caught(case)


# --- OR-Set ---


def _slots(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, orset, broken(orset, **changes), (slots, *more))


def _remove_wins(add: Any, rem: Any) -> bool:
    return bool(add) and max(add.values()) > max(rem.values(), default="") and orset.present(add, rem)


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
    _slots("covers-always-true", checks.covers_means_that_join_changes_nothing, slots, covers=lambda _w, _p: True),
    _slots("covers-by-replica-only", checks.covers_means_that_join_changes_nothing, slots,
           covers=lambda w, p: {*p} <= {*w}),
    _slots("present-uses-at-least", checks.a_remove_takes_out_all_it_saw, slots,
           present=lambda add, rem: any(s >= rem.get(r, "") for r, s in add.items())),
    _slots("present-ignores-removes", checks.a_late_old_add_stays_out, slots, slots,
           present=lambda add, _rem: bool(add)),
    _slots("present-needs-every-add-live", checks.present_while_some_add_is_unseen_by_removes, slots,
           present=lambda add, rem: bool(add) and all(s > rem.get(r, "") for r, s in add.items())),
    _slots("remove-wins", checks.an_older_add_wins_over_a_remove_that_has_not_seen_it, replicas, present=_remove_wins),
    _slots("remove-wins-for-good", checks.an_add_wins_over_a_concurrent_remove, slots, replicas,
           present=lambda add, rem: bool(add) and not rem),
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
           present=lambda add, rem: any(r not in rem for r in add)),
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


def _line(mutation: str, law: Callable[..., None], *more: st.SearchStrategy[Any], **changes: Any) -> Case:
    return Case(mutation, law, codec, broken(codec, **changes), (line, *more))


def _changed(**changes: Callable[[Line, Line], Any]) -> Callable[[Line, Line], Line]:
    """Return the join of lines in which some keys are joined otherwise."""

    def join(a: Line, b: Line) -> Line:
        joined = codec.join(a, b)
        for key, otherwise in changes.items():
            setattr(joined, key, otherwise(a, b))
        return joined

    return join


def _last_fields(a: Line, b: Line) -> Line:
    joined = codec.join(a, b)
    joined.set = {**a.set, **b.set}
    joined.when = {f: (b if f in b.set else a).when[f] for f in joined.set if f in (b if f in b.set else a).when}
    return joined


def _fields_by(beats: Callable[[Register, Register], bool]) -> Callable[[Line, Line], Line]:
    def join(a: Line, b: Line) -> Line:
        joined = _last_fields(a, b)
        for field in {*a.set} & {*b.set}:
            winner = b if beats(codec.register(b, field), codec.register(a, field)) else a
            joined.set[field] = winner.set[field]
            joined.when.pop(field, None)
            if field in winner.when:
                joined.when[field] = winner.when[field]
        return joined

    return join


def _same_to_python(b: Register, a: Register) -> bool:
    if b[:2] == a[:2] and json.loads(b.value) == json.loads(a.value):
        return False
    return b > a


def _first_of_each(pick: Callable[..., Any]) -> Callable[[Line, Line], Line]:
    return _changed(
        at=lambda a, b: pick((a.at, a.by), (b.at, b.by))[0], by=lambda a, b: pick((a.at, a.by), (b.at, b.by))[1]
    )


def _counters_by_name(a: Line, b: Line) -> Any:
    return {**a.n, **b.n}


def _covers_without(*keys: str) -> Callable[[Line, Line], bool]:
    def covers(whole: Line, part: Line) -> bool:
        rest = codec.msgspec.structs.replace(part, **{key: getattr(whole, key) for key in keys})
        return codec.covers(whole, rest)

    return covers


def _zero_kept(raw: bytes) -> Line | Carried:
    read = codec.decode(raw)
    if isinstance(read, Line) and b'"at"' in raw and read.at == clock.ZERO:
        read.at = codec.msgspec.json.decode(b'"0"')
    return read


def _untidy(line: Line) -> bytes:
    return codec.msgspec.json.encode(codec.msgspec.structs.replace(line, set=dict(reversed(line.set.items()))))


LINE = [
    _line("counters-summed", checks.idempotent, line,
          join=_changed(n=lambda a, b: {k: _summed(a.n.get(k, {}), b.n.get(k, {})) for k in {*a.n, *b.n}})),
    _line("last-counter-of-a-name-wins", checks.commutative, line, join=_changed(n=_counters_by_name)),
    _line("last-counter-of-a-name-wins", checks.join_covers_both, line, join=_changed(n=_counters_by_name)),
    _line("counters-dropped-by-a-remove", checks.join_is_monotone, line, line,
          join=_changed(n=lambda a, b: {} if b.rem else codec.join(a, b).n)),
    _line("unknown-counters-dropped", checks.the_join_is_what_the_design_says, line, line,
          join=_changed(n=lambda a, b: {k: v for k, v in codec.join(a, b).n.items() if k != "zeta"})),
    _line("removes-dropped", checks.join_covers_both, line, join=_changed(rem=lambda _a, _b: {})),
    _line("removes-collected", checks.the_join_is_what_the_design_says, line, line,
          join=_changed(rem=lambda a, b: {r: s for r, s in orset.join(a.rem, b.rem).items()
                                         if orset.join(a.add, b.add).get(r, "") <= s})),
    _line("adds-of-removed-dropped", checks.join_covers_both, line,
          join=_changed(add=lambda a, b: orset.live(orset.join(a.add, b.add), orset.join(a.rem, b.rem)))),
    _line("last-field-wins", checks.commutative, line, join=_last_fields),
    _line("earlier-field-wins", checks.the_join_is_what_the_design_says, line, line,
          join=_fields_by(lambda b, a: b < a)),
    _line("fields-ignore-the-replica-in-ties", checks.commutative, line,
          join=_fields_by(lambda b, a: b.stamp > a.stamp)),
    _line("fields-ignore-the-value-in-ties", checks.commutative, line, join=_fields_by(lambda b, a: b[:2] > a[:2])),
    Case("fields-compare-decoded-values", checks.commutative, codec,
         broken(codec, join=_fields_by(_same_to_python)), (ties, ties)),
    _line("fields-lose-their-evidence", checks.idempotent, line, join=_changed(when=lambda _a, _b: {})),
    _line("fields-lose-their-evidence", checks.the_join_is_what_the_design_says, line, line,
          join=_changed(when=lambda _a, _b: {})),
    _line("at-and-by-take-max", checks.join_covers_both, line, join=_first_of_each(max)),
    _line("at-and-by-take-max", checks.the_join_is_what_the_design_says, line, line, join=_first_of_each(max)),
    _line("at-and-by-of-the-first", checks.commutative, line, join=_first_of_each(lambda a, _b: a)),
    _line("at-and-by-each-for-itself", checks.the_join_is_what_the_design_says, line, line,
          join=_changed(at=lambda a, b: min(a.at, b.at), by=lambda a, b: min(a.by, b.by))),
    _line("absent-at-is-no-minimum", checks.the_join_is_what_the_design_says, line, line,
          join=_first_of_each(lambda a, b: min(a, b, key=lambda first: (first[0] == clock.ZERO, first)))),
    _line("tags-along-a-third-field", checks.join_adds_nothing_of_its_own, line, line,
          join=_changed(n=lambda a, b: {**codec.join(a, b).n, "joined": {REPLICAS[0]: len(codec.encode(b)) + 1}})),
    _line("joins-in-place", checks.join_touches_nothing, line,
          join=lambda a, b: a.add.update(b.add) or codec.join(a, b)),
    _line("associates-by-length", checks.associative, line, line,
          join=lambda a, b: codec.join(a, b) if len(codec.encode(a)) + len(codec.encode(b)) < 400
          else max(a, b, key=codec.encode)),
    _line("covers-always-true", checks.covers_means_that_join_changes_nothing, line, covers=lambda _w, _p: True),
    *(_line(f"covers-ignores-{'-and-'.join(keys)}", checks.covers_means_that_join_changes_nothing, line,
            covers=_covers_without(*keys))
      for keys in (("at", "by"), ("add",), ("rem",), ("n",), ("set", "when"))),
    Case("keys-not-sorted", checks.canonical_bytes_are_sorted_compact_json, codec.encode, _untidy,
         (checks.lines(checks.exact_values),)),
    Case("not-compact", checks.canonical_bytes_are_sorted_compact_json, codec.encode,
         lambda line: codec.msgspec.json.format(codec.encode(line), indent=0), (checks.lines(checks.exact_values),)),
    Case("evidence-not-read", checks.a_line_reads_back, codec.decode,
         lambda raw: codec.msgspec.structs.replace(codec.decode(raw), when={}), (checks.lines(),)),
    Case("true-read-as-1", checks.a_line_reads_back, codec.decode,
         lambda raw: codec.decode(raw.replace(b"true", b"1")), (checks.lines(),)),
    Case("a-written-zero-kept", checks.an_untidy_line_reads_as_its_canonical_form, codec.decode,
         _zero_kept,
         (checks.lines(), st.integers(0, 2**32))),
    Case("last-piece-dropped", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: codec.split(line)[:-1] or codec.split(line), (checks.wide_lines(),)),
    Case("never-split", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: [codec.encode(line)], (checks.wide_lines(),)),
    Case("slots-before-fields", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: codec.split(line)[::-1], (checks.wide_lines(),)),
    Case("pieces-without-first-sight", checks.a_long_line_is_split_and_joins_back, codec.split,
         lambda line: [codec.encode(codec.msgspec.structs.replace(codec.decode(raw), at="0", by=""))
                       for raw in codec.split(line)], (checks.wide_lines(),)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@show(LINE)
def test_a_broken_line_is_caught(case):
    is_caught(case)


# --- the notebook ---

histories = st.lists(checks.entries, max_size=6)
pattern_histories = st.lists(checks.lines(), max_size=6)
cuts = st.sampled_from((*STAMPS, checks.FOREVER))


def joining(join: Callable[[Line, Line], Line]) -> type[Notebook]:
    """Return a notebook that joins otherwise."""

    class Joining(Notebook):
        def add(self, entry: Line | Carried) -> None:
            if isinstance(entry, Line) and (known := self.patterns.get(entry.id)):
                single = Notebook(self.cut)
                single.add(entry)
                self.held |= single.held
                self.patterns[entry.id] = join(known, single.patterns[entry.id])
            else:
                super().add(entry)

    return Joining


def _editing(change: Callable[[list[bytes]], list[bytes]]) -> type[Notebook]:
    class Editing(Notebook):
        def edition(self) -> bytes:
            return b"".join(raw + b"\n" for raw in change(super().edition().split(b"\n")[:-1]))

    return Editing


class Unsorted(Notebook):
    """Writes patterns as they came."""

    def edition(self) -> bytes:
        raws = [codec.encode(line) for line in self.patterns.values()] + list(self.carried)
        return b"".join(raw + b"\n" for raw in raws)


class DropsHeld(Notebook):
    """Forgets what lies beyond the cut."""

    def edition(self) -> bytes:
        known, self.held = self.held, set()
        edition = super().edition()
        self.held = known
        return edition


class FoldsHeld(Notebook):
    """Joins what lies beyond the cut when it writes."""

    def edition(self) -> bytes:
        whole = Notebook()
        whole.add_all(self.patterns.values())
        whole.add_all(part.as_line(*_first(self, part.id)) for part in self.held)
        whole.carried = self.carried
        return whole.edition()


def _first(book: Notebook, pattern_id: str) -> tuple[str, str]:
    return book.patterns[pattern_id].at, book.patterns[pattern_id].by


class HoldsNothing(Notebook):
    """Joins whatever anybody's clock said."""

    def _hold_back(self, line: Line) -> Line:
        return line


class HoldsWholeLines(Notebook):
    """Holds back the early parts of a line with its late ones."""

    def _hold_back(self, line: Line) -> Line:
        super()._hold_back(line)
        return Line(id=line.id, at=line.at, by=line.by)


class HoldsWithoutEvidence(Notebook):
    """Forgets who wrote a held field."""

    def _hold_back(self, line: Line) -> Line:
        early = super()._hold_back(line)
        self.held = {part._replace(writer=REPLICAS[0]) if part.writer else part for part in self.held}
        return early


class HoldsOnlyTheLast(Notebook):
    """Keeps one held part a slot, whichever came last."""

    def _hold_back(self, line: Line) -> Line:
        known, self.held = self.held, set()
        early = super()._hold_back(line)
        places = {part[:3] for part in self.held}
        self.held |= {part for part in known if part[:3] not in places}
        return early


class FoldsCarried(Notebook):
    """Reads what it knows of a newer version's line, and drops the rest."""

    def add(self, entry: Line | Carried) -> None:
        if isinstance(entry, Carried) and entry.id.startswith("p-"):
            entry = Line(id=entry.id)
        super().add(entry)


class TidiesCarried(Notebook):
    """Writes a newer version's line in this version's spelling."""

    def add(self, entry: Line | Carried) -> None:
        if isinstance(entry, Carried):
            entry = Carried(entry.id, codec.encode_value(json.loads(entry.raw)))
        super().add(entry)


class DropsCarried(Notebook):
    """Takes a newer version's line for rubbish."""

    def add(self, entry: Line | Carried) -> None:
        if isinstance(entry, Line):
            super().add(entry)


class DoublesCarried(Notebook):
    """Appends a newer version's line as often as it comes."""

    def edition(self) -> bytes:
        return super().edition() + b"".join(raw + b"\n" for raw in self.carried)


class CoversEverything(Notebook):
    """Needs to read nothing any more."""

    def covers(self, entry: Line | Carried) -> bool:
        return True


class CoversHeld(Notebook):
    """Takes a held part for known."""

    def covers(self, entry: Line | Carried) -> bool:
        known, self.held = self.held, set()
        if isinstance(entry, Line):
            probe = Notebook(self.cut)
            probe.add(entry)
            self.held = probe.held
        covered = super().covers(entry)
        self.held = known
        return covered


def _by_arrival(edition: list[bytes]) -> list[bytes]:
    return sorted(edition, key=len)


def _book(mutation: str, law: Callable[..., None], false: type[Notebook], *tried_on: st.SearchStrategy[Any]) -> Case:
    return Case(mutation, law, Notebook, false, tried_on)


def _delivered(law: Callable[..., None]) -> Callable[..., None]:
    def spread(book_class: Any, both: tuple[Any, Any]) -> None:
        law(book_class, *both)

    spread.__name__ = law.__name__
    return spread


any_delivery = _delivered(checks.any_delivery_gives_the_same_edition)

NOTEBOOK = [
    _book("edition-not-sorted", any_delivery, Unsorted, checks.deliveries()),
    _book("edition-not-sorted", checks.an_edition_is_sorted_a_line_a_pattern, Unsorted, histories),
    _book("edition-sorted-by-length", checks.an_edition_is_sorted_a_line_a_pattern, _editing(_by_arrival), histories),
    _book("edition-loses-its-last-line", checks.an_edition_is_the_join_by_definition, _editing(lambda raws: raws[:-1]),
          histories),
    _book("edition-grows-at-each-reload", checks.an_edition_reloads_to_itself,
          _editing(lambda raws: [*raws, b'{"id":"z-0000000000000001","v":%d}' % len(raws)]), histories),
    _book("last-line-wins", any_delivery, joining(lambda _a, b: b), checks.deliveries()),
    _book("first-line-wins", any_delivery, joining(lambda a, _b: a), checks.deliveries()),
    _book("larger-line-wins", checks.an_edition_is_the_join_by_definition,
          joining(lambda a, b: max(a, b, key=codec.encode)), histories),
    _book("counters-summed", any_delivery,
          joining(_changed(n=lambda a, b: {k: _summed(a.n.get(k, {}), b.n.get(k, {})) for k in {*a.n, *b.n}})),
          checks.deliveries()),
    _book("fields-compare-decoded-values", any_delivery, joining(_fields_by(_same_to_python)),
          checks.deliveries(ties)),
    _book("held-parts-dropped", checks.an_edition_reloads_under_its_cut, DropsHeld, histories, cuts),
    _book("held-parts-dropped", checks.holding_loses_nothing, DropsHeld, histories, cuts, cuts),
    _book("held-parts-folded", checks.an_edition_reloads_under_its_cut, FoldsHeld, histories, cuts),
    _book("held-parts-joined", checks.no_part_beyond_the_cut_is_joined, HoldsNothing, pattern_histories, cuts),
    _book("whole-lines-held", checks.early_parts_join_beside_held_ones, HoldsWholeLines, pattern_histories, cuts),
    _book("writer-of-held-field-lost", checks.holding_loses_nothing, HoldsWithoutEvidence, histories, cuts, cuts),
    _book("one-held-part-a-slot", checks.any_delivery_under_a_cut_gives_the_same_edition, HoldsOnlyTheLast,
          checks.deliveries(checks.lines_of_one_id()), cuts),
    _book("carried-folded", checks.carried_lines_pass_byte_for_byte, FoldsCarried, histories, cuts),
    _book("carried-tidied", checks.carried_lines_pass_byte_for_byte, TidiesCarried, histories, cuts),
    _book("carried-dropped", checks.carried_lines_pass_byte_for_byte, DropsCarried, histories, cuts),
    _book("carried-doubled", checks.carried_lines_pass_byte_for_byte, DoublesCarried, histories, cuts),
    _book("covers-always-true", checks.a_notebook_covers_what_would_change_nothing, CoversEverything,
          histories, checks.entries, cuts),
    _book("covers-ignores-held-parts", checks.a_notebook_covers_what_would_change_nothing, CoversHeld,
          histories, checks.entries, cuts),
]  # fmt: skip


@show(NOTEBOOK)
def test_a_broken_notebook_is_caught(case):
    is_caught(case)


# --- the fleet against its models ---


def _fleet(**parts: Any) -> type[Fleet]:
    return type("BrokenFleet", (Fleet,), parts)


def _remove_everybody(add: Any, _rem: Any) -> Any:
    return dict.fromkeys(REPLICAS, max(add.values())) if add else {}


FLEETS = {
    "counters-summed": _fleet(
        book_class=joining(_changed(n=lambda a, b: {k: _summed(a.n.get(k, {}), b.n.get(k, {})) for k in {*a.n, *b.n}}))
    ),
    "last-line-wins": _fleet(book_class=joining(lambda _a, b: b)),
    "removes-dropped": _fleet(book_class=joining(_changed(rem=lambda _a, _b: {}))),
    "last-field-wins": _fleet(book_class=joining(_last_fields)),
    "fields-ignore-the-value-in-ties": _fleet(book_class=joining(_fields_by(lambda b, a: b[:2] > a[:2]))),
    "fields-compare-decoded-values": _fleet(book_class=joining(_fields_by(_same_to_python))),
    "at-and-by-of-the-first": _fleet(book_class=joining(_first_of_each(lambda a, _b: a))),
    "edition-not-sorted": _fleet(book_class=Unsorted),
    "edition-loses-its-last-line": _fleet(book_class=_editing(lambda raws: raws[:-1])),
    "remove-covers-everything": _fleet(removal=staticmethod(_remove_everybody)),
    "remove-wins": _fleet(is_present=staticmethod(lambda line: _remove_wins(line.add, line.rem))),
    "present-uses-at-least": _fleet(
        is_present=staticmethod(lambda line: any(s >= line.rem.get(r, "") for r, s in line.add.items()))
    ),
    "clock-of-wall-time-only": _fleet(clock_class=WallOnly),
    "clock-admits-nothing": _fleet(clock_class=Deaf),
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
    tried = {case.law.__name__ for case in (*GCOUNTER, *LWW, *ORSET, *CLOCK, *LINE, *NOTEBOOK)}
    assert laws == tried
