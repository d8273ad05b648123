"""Edits: everything that can happen to a lesson, each as a function that returns its delta.

A delta is a line that has only what changes, and only the column of its writer ``me``. The writer's own totals,
wordings and adds are read from the joined record that is passed in, so that record must have all that ``me`` ever
wrote. A stamp must be larger than every stamp that this machine has admitted; the caller issues it (``crdt.clock``).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crdt import clock, orset
from fleet.model.line import AT, CARRIED, NOTHING, UNDONE, Column, Line, canonical
from fleet.model.pattern import author_field, fold

if TYPE_CHECKING:
    from fleet.model.withheld import Withheld

PUBLISHED = "published"
CANDIDATE = "candidate"
UNDATED = ""


# --- occurrences ----------------------------------------------------------------------------------------------------


def confirm(
    line: Line,
    me: str,
    stamp: str,
    *,
    seen: int = 1,
    sessions: int = 0,
    marks: Mapping[str, int] = {},
    fields: Mapping[str, Any] | None = None,
    at: str = UNDATED,
) -> Line:
    """Return the delta of an occurrence, the first or a further one: a new add, and larger totals of the writer.

    A value that no column has for its field becomes a first wording of the writer. Where the writer's own wording was
    purged, it becomes an edit, and only if the field has no value at all: otherwise it would replace the redaction.

    ``marks``: the steps of further counters. ``at`` is the time of the occurrence, if that is earlier than the stamp.
    """
    counts = Column(n=_raised(line.w.get(me, NOTHING), {**marks, "seen": seen, "sessions": sessions}))
    return _occurrence(line, me, stamp, counts, fields or {}, at)


def part(
    line: Line,
    hash: str,  # noqa: A002 - the record's own word
    fields: Mapping[str, Any],
    me: str,
    stamp: str,
    *,
    seen: int,
    sessions: int = 0,
    marks: Mapping[str, int] = {},
    session_hash: str = "",
    at: str = UNDATED,
    author: str | None = None,
) -> Line:
    """Return the delta of an imported record or hand-written entry: it has no owner, and counts once in a clan.

    ``hash`` is that of the record or entry; its sessions count once under ``session_hash``, by default the same hash.
    With the stamp "" there is no add: the lesson stays present or absent. ``author`` is the author of an imported
    record, "" if it names none, and None for an entry that ``me`` wrote by hand; an import is no confirmation.
    """
    parts = {name: {hash: number} for name, number in {**marks, "seen": seen}.items()}
    parts["sessions"] = {session_hash or hash: sessions}
    counts = Column(
        first={author_field(hash): author} if author is not None else {},
        parts={name: each for name, each in parts.items() if any(each.values())},
    )
    return _occurrence(line, me, stamp, counts, fields, at)


def _occurrence(line: Line, me: str, stamp: str, counts: Column, fields: Mapping[str, Any], at: str) -> Line:
    """Return the delta of an occurrence: its counts, with an add and wordings."""
    own = line.w.get(me, NOTHING)
    first, edits = _new_wordings(line, fields, me, stamp or own.add)
    first |= counts.first | _at(own, stamp, at)
    return _delta(line, me, replace(counts, add=stamp if stamp > own.add else "", first=first, set=edits))


def _at(own: Column, add: str, at: str) -> dict[str, str]:
    """Return the first wording ``at``, if the writer saw the lesson earlier than its column would say without it."""
    earliest = min((stamp for stamp in (own.first_seen(), at) if stamp), default="")
    implied = own.first.get(AT) or max(own.add, add)
    return {AT: earliest} if earliest and (not implied or earliest < implied) else {}


def _new_wordings(
    line: Line, fields: Mapping[str, Any], me: str, stamp: str
) -> tuple[dict[str, Any], dict[str, tuple[str, Any]]]:
    """Return the values that no column has: as first wordings, and as edits where the writer's wording was purged.

    A field gets none if another writer's wording was purged and replaced: it would be stored for ever, never shown.
    Values that replace those of a lesson whose occurrences were all undone are edits: it is stated anew.
    """
    first: dict[str, Any] = {}
    edits: dict[str, tuple[str, Any]] = {}
    lesson = fold(line)
    marks, shown = line.marks("purge"), lesson.fields
    purged = {field for _, field in marks}
    for field, value in fields.items():
        if lesson.is_undone and field in shown and (me, field) not in marks:
            edits[field] = (stamp, value)
            continue
        known = [column.first[field] for column in line.w.values() if field in column.first]
        known += [shown[field]] if field in shown else []
        if (me, field) in marks:
            if not known:
                edits[field] = (stamp, value)
        elif (field not in purged or field not in shown) and canonical(value) not in map(canonical, known):
            first[field] = value
    return first, edits


def count(line: Line, name: str, me: str, by: int = 1) -> Line:
    """Return the delta that raises the writer's counter ``shown``, ``helped`` or ``hurt``, without an add."""
    return _delta(line, me, Column(n=_raised(line.w.get(me, NOTHING), {name: by})))


def undo(line: Line, me: str, numbers: Mapping[str, Mapping[str, int]]) -> Line:
    """Return the delta that undoes, or redoes, occurrences of the writer's own column. Their counts stay stored.

    ``numbers``: counter to key to number, odd for an undo. The key is the hash of a part, or of an occurrence or
    session that is counted in the writer's total.
    """
    parts = {
        f"{name}{UNDONE}": {key: n for key, n in keys.items() if n > line.undo_count(me, name, key)}
        for name, keys in numbers.items()
    }
    return _delta(line, me, Column(parts={name: keys for name, keys in parts.items() if keys}))


def undo_part(line: Line, me: str, hash: str, *, is_undone: bool) -> Line:  # noqa: A002 - the record's own word
    """Return the undo, or redo, of a count without an owner in the writer's column; an empty delta if it has none."""
    number = line.undo_count(me, "seen", hash)
    is_own = hash in line.w.get(me, NOTHING).parts.get("seen", {})
    return undo(line, me, {"seen": {hash: number + 1}} if is_own and number % 2 != is_undone else {})


def _raised(own: Column, steps: Mapping[str, int]) -> dict[str, int]:
    return {name: own.n.get(name, 0) + step for name, step in steps.items() if step > 0}


# --- presence -------------------------------------------------------------------------------------------------------


def retire(line: Line, me: str, adds: Mapping[str, str] | None = None) -> Line:
    """Return the observed remove of a lesson: it covers only the adds that are known here, or those given.

    It also covers adds that others removed already: a machine that blocks those others must see the lesson retired.
    """
    if adds is None:
        adds = {writer: column.add for writer, column in line.w.items() if column.add}
    return _delta(line, me, Column(rem=orset.removal(adds, line.w.get(me, NOTHING).rem)))


def restore(line: Line, me: str, stamp: str) -> Line:
    """Return a new add of a lesson. The counters stay: it did not occur again."""
    own = line.w.get(me, NOTHING)
    return _delta(line, me, Column(add=stamp, first=_at(own, stamp, UNDATED)))


# --- fields ---------------------------------------------------------------------------------------------------------


def set_field(line: Line, field: str, value: Any, me: str, stamp: str, cut: str) -> Line:
    """Return the edit of one field: it beats the first wordings, and every edit that this machine knows.

    An edit from the future, stamped beyond the cut, gets a mark in ``over``: else it would beat this one when the clock
    reaches it. The writer's own edits must all be stamped earlier.
    """
    over = {
        writer: {field: column.set[field][0]}
        for writer, column in sorted(line.w.items())
        if writer != me and field in column.set and column.set[field][0] > min(cut, stamp)
    }
    return _delta(line, me, Column(set={field: (stamp, value)}, over=over))


def reissue(line: Line, old: str, me: str, stamp: str, cut: str, withheld: "Withheld | None" = None) -> Line | None:
    """Return the edits of a replica whose clock ran ahead, under the replica that replaces it; None for none.

    These are its edits beyond the cut, except those that are withheld, since others may have made them, and those that
    somebody has replaced. Adds and counts are not repeated, because folds include them whatever their stamp. Edits that
    the old replica had replaced, and that are later than the new stamp, get a mark in ``over``.
    """
    theirs = withheld.after.set if withheld is not None else {}
    own, marks = line.w.get(old, NOTHING).set.items(), line.marks("over")
    ahead = {f: e for f, e in own if e[0] > max(cut, marks.get((old, f), "")) and e != theirs.get(f)}
    if not ahead:
        return None
    over: dict[str, dict[str, str]] = {}
    for writer, column in sorted(line.w.items()):
        stamps = {field: column.set[field][0] for field in ahead.keys() & column.set.keys()}
        replaced = {field: at for field, at in stamps.items() if min(cut, stamp) < at <= ahead[field][0]}
        over |= {writer: replaced} if replaced and writer != me else {}
    return _delta(line, me, Column(set={field: (stamp, value) for field, (_, value) in ahead.items()}, over=over))


# --- purges ---------------------------------------------------------------------------------------------------------


def purge(line: Line, redacted: Mapping[str, Any], me: str, stamp: str, carried: Iterable[str] = ()) -> Line:
    """Return purge marks on all writers' values of some fields, and edits that replace those values.

    A mark has the stamp of the value that it covers, never the purger's, so that later honest edits survive. A first
    wording has no stamp, and any mark on its writer and field covers it.

    ``redacted`` maps each field to its new value, or to None if the field keeps a value that is not purged.
    ``carried`` has the hashes of carried lines that are purged as well.
    """
    marks: dict[str, dict[str, str]] = {}
    for writer, column in sorted(line.w.items()):
        fields = {
            field: column.set[field][0] if field in column.set else clock.ZERO
            for field in redacted
            if field in column.set or field in column.first
        }
        if fields:
            marks[writer] = fields
    hashes = dict.fromkeys(sorted(carried), clock.ZERO)
    if hashes:
        marks[CARRIED] = hashes
    new = {field: (stamp, value) for field, value in redacted.items() if value is not None}
    return _delta(line, me, Column(purge=marks, set=new))


def _delta(line: Line, me: str, column: Column) -> Line:
    return Line(line.id, {me: column} if column != NOTHING else {})
