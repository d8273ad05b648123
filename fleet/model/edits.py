"""Everything that can happen to a lesson. Each function returns its delta: a line with what changes, and nothing else.

A delta says something in the column of its writer ``me`` alone. The writer's own totals, wordings and adds are read
from the joined record that is handed in, so that record must hold all that ``me`` ever wrote. A stamp must be larger
than every stamp that this machine has admitted; whoever appends the delta issues it (``crdt.clock``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from crdt import clock, orset
from fleet.model.line import AT, CARRIED, NOTHING, UNDONE, Column, Line, canonical
from fleet.model.pattern import MERGED_INTO, author_field, fold

PUBLISHED = "published"
CANDIDATE = "candidate"
UNDATED = ""


# --- it occurs ------------------------------------------------------------------------------------------------------


def confirm(
    line: Line,
    me: str,
    stamp: str,
    *,
    seen: int = 1,
    sessions: int = 0,
    relapsed: int = 0,
    fields: Mapping[str, Any] | None = None,
    at: str = UNDATED,
) -> Line:
    """Return one more log of a lesson, or its first: the add moves on and the writer's totals grow, together.

    A wording that no column has yet is told in the writer's own. Where the writer's wording was purged, it words the
    field again as an edit, and only while nobody else has words for it: else the old words would beat the redaction.

    ``seen``, ``sessions`` and ``relapsed`` say how many are new; ``at`` when it occurred, if that is before the stamp.
    """
    own = line.w.get(me, NOTHING)
    first, edits = _worded(line, fields or {}, me, stamp)
    return _delta(
        line,
        me,
        Column(
            add=stamp if stamp > own.add else "",
            first=first | _at(own, stamp, at),
            n=_raised(own, {"relapsed": relapsed, "seen": seen, "sessions": sessions}),
            set=edits,
        ),
    )


def part(
    line: Line | None,
    id: str,  # noqa: A002 - the record's own word
    hash: str,  # noqa: A002 - the record's own word
    fields: Mapping[str, Any],
    me: str,
    stamp: str,
    *,
    seen: int,
    sessions: int = 0,
    session_hash: str = "",
    at: str = UNDATED,
    author: str | None = None,
) -> Line:
    """Return a log without an owner, an imported record or a hand-written entry: whoever tells it, it counts once.

    ``hash`` is that of what was imported or written; its sessions count once under ``session_hash``, by default the
    same. A stamp of "" leaves it alone whether the lesson is in. ``author`` is that of an imported record, "" where it
    names none, and None for an entry that ``me`` wrote by hand: whoever imports a record is no witness of it.
    """
    line = line or Line(id)
    own = line.w.get(me, NOTHING)
    first, edits = _worded(line, fields, me, stamp or own.add)
    if author is not None:
        first[author_field(hash)] = author
    told = {"seen": {hash: seen}, "sessions": {session_hash or hash: sessions}}
    return _delta(
        line,
        me,
        Column(
            add=stamp if stamp > own.add else "",
            first=first | _at(own, stamp, at),
            parts={name: counts for name, counts in told.items() if any(counts.values())},
            set=edits,
        ),
    )


def _at(own: Column, add: str, at: str) -> dict[str, str]:
    """Return the time at which the writer first saw the lesson, where its column's add no longer says it."""
    known = own.first_seen()
    earliest = min((each for each in (known, at) if each), default="")
    said = own.first.get(AT) or max(own.add, add)
    return {AT: earliest} if earliest and (not said or earliest < said) else {}


def _worded(
    line: Line, fields: Mapping[str, Any], me: str, stamp: str
) -> tuple[dict[str, Any], dict[str, tuple[str, Any]]]:
    """Return the wordings that no column has, as first wordings; where they were purged, as edits.

    Where anybody's were purged, and other words stand in their place, none is told: it would not be shown, and stay.
    """
    first: dict[str, Any] = {}
    edits: dict[str, tuple[str, Any]] = {}
    marks, shown = line.purges(), fold(line).fields
    purged = {field for _, field in marks}
    for field, value in fields.items():
        said = [column.first[field] for column in line.w.values() if field in column.first]
        said += [shown[field]] if field in shown else []
        if (me, field) in marks:
            if not said:
                edits[field] = (stamp, value)
        elif (field not in purged or field not in shown) and canonical(value) not in map(canonical, said):
            first[field] = value
    return first, edits


def count(line: Line, name: str, me: str, by: int = 1) -> Line:
    """Return the writer's total of a counter, raised: ``shown``, ``helped`` or ``hurt``. The add stays as it is."""
    return _delta(line, me, Column(n=_raised(line.w.get(me, NOTHING), {name: by})))


def undo(line: Line, me: str, numbers: Mapping[str, Mapping[str, int]]) -> Line:
    """Return that occurrences in the writer's own column were taken back, or stand again. None of them is forgotten.

    Args:
        line: the record.
        me: the writer.
        numbers: counter to key to number, odd for what was taken back. The key is the hash of a part, or that of an
            occurrence or session in the writer's total.
    """
    news = {
        f"{name}{UNDONE}": {key: n for key, n in keys.items() if n > line.undo_count(me, name, key)}
        for name, keys in numbers.items()
    }
    return _delta(line, me, Column(parts={name: keys for name, keys in news.items() if keys}))


def undo_part(line: Line, me: str, hash: str, *, is_undone: bool) -> Line:  # noqa: A002 - the record's own word
    """Return that a count without an owner is taken back, or stands again, as far as the writer told it."""
    number = line.undo_count(me, "seen", hash)
    is_told = hash in line.w.get(me, NOTHING).parts.get("seen", {})
    return undo(line, me, {"seen": {hash: number + 1}} if is_told and number % 2 != is_undone else {})


def _raised(own: Column, steps: Mapping[str, int]) -> dict[str, int]:
    return {name: own.n.get(name, 0) + step for name, step in steps.items() if step > 0}


# --- it goes and comes back -----------------------------------------------------------------------------------------


def retire(line: Line, me: str) -> Line:
    """Return the observed remove of a lesson: it names every add that is known here, and covers no other.

    Adds that somebody else removed already are named as well: whoever blocks that other writer has retired it, too.
    """
    adds = {writer: column.add for writer, column in line.w.items() if column.add}
    return _delta(line, me, Column(rem=orset.removal(adds, line.w.get(me, NOTHING).rem)))


def restore(line: Line, me: str, stamp: str) -> Line:
    """Return the re-add of a lesson. It leaves the counters alone: nothing happened again."""
    own = line.w.get(me, NOTHING)
    return _delta(line, me, Column(add=stamp, first=_at(own, stamp, UNDATED)))


# --- it is edited ---------------------------------------------------------------------------------------------------


def set_field(line: Line, field: str, value: Any, me: str, stamp: str, cut: str) -> Line:
    """Return the edit of one field: it beats the first wordings, and every edit that this machine knows.

    An edit from the future, stamped beyond the cut, is named in ``over``: else it would come back when the clock
    reaches it, and beat this one.

    ``cut`` is up to which stamp edits are folded here. None of the writer's own edits is stamped later than this one.
    """
    over = {
        writer: {field: column.set[field][0]}
        for writer, column in sorted(line.w.items())
        if writer != me and field in column.set and column.set[field][0] > min(cut, stamp)
    }
    return _delta(line, me, Column(set={field: (stamp, value)}, over=over))


def merge_into(line: Line, into: str, me: str, stamp: str, cut: str) -> Line:
    """Return the edit that makes this record one lesson with another (``merged``)."""
    return set_field(line, MERGED_INTO, into, me, stamp, cut)


def unmerge(line: Line, me: str, stamp: str, cut: str) -> Line:
    """Return the edit that undoes a merge: an empty text, since a reader expects text in this field."""
    return set_field(line, MERGED_INTO, "", me, stamp, cut)


def promote(line: Line, me: str, stamp: str, cut: str) -> Line:
    """Return the edit that publishes a lesson."""
    return set_field(line, "state", PUBLISHED, me, stamp, cut)


def demote(line: Line, me: str, stamp: str, cut: str) -> Line:
    """Return the edit that makes a published lesson a candidate again."""
    return set_field(line, "state", CANDIDATE, me, stamp, cut)


def reissue(line: Line, old: str, me: str, stamp: str, cut: str) -> Line | None:
    """Return the edits of a replica whose clock ran ahead, said again by the one that replaces it; None for none.

    Only its edits beyond the cut, and no add and no count: those are folded whatever their stamp says. What it had
    replaced, and is stamped later than they are now, is named in ``over`` with them.
    """
    ahead = {field: edit for field, edit in line.w.get(old, NOTHING).set.items() if edit[0] > cut}
    if not ahead:
        return None
    over: dict[str, dict[str, str]] = {}
    for writer, column in sorted(line.w.items()):
        edited = {field: column.set[field][0] for field in ahead.keys() & column.set.keys()}
        replaced = {field: at for field, at in edited.items() if min(cut, stamp) < at <= ahead[field][0]}
        over |= {writer: replaced} if replaced and writer != me else {}
    return _delta(line, me, Column(set={field: (stamp, value) for field, (_, value) in ahead.items()}, over=over))


# --- it is purged ---------------------------------------------------------------------------------------------------


def purge(line: Line, redacted: Mapping[str, Any], me: str, stamp: str, carried: Iterable[str] = ()) -> Line:
    """Return marks on every writer's values of some fields, and the redactions in their place.

    A mark bears the stamp of the value that it covers, never the purger's: later honest edits live. A first wording has
    no stamp of its own, and any mark of its writer and field covers it.

    ``redacted`` stands in place of each purged field; ``carried`` are hashes of carried lines to be purged with it.
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
    return _delta(line, me, Column(purge=marks, set={field: (stamp, value) for field, value in redacted.items()}))


def _delta(line: Line, me: str, column: Column) -> Line:
    return Line(line.id, {me: column} if column != NOTHING else {})
