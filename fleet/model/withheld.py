"""Withheld parts: parts of a writer's column that this machine leaves out of its folds until a person here decides.

The join accepts every part, and joined parts cannot be separated again. So two states of the column are stored, before
the part and with it (docs/adr/0020): what the column has beyond the second counts, the rest is read as in the first.

A person is asked about two kinds of parts. They are detected where rows are joined, whichever way a line came:

- Parts of a column of this folder that this machine never wrote.
- Removes, edits and rewordings of others' lessons, and retractions of their discoveries, if one writer brings many of
  them at once or within an hour: more than ``limits.BULK_MIN`` and than a tenth of the known lessons. New lessons are
  never withheld for their number. Writers unknown until now form one group, and so do all writers whose columns came in
  the file of one other writer. The changes of such a group count whatever the lesson, its own or others'.

A purge mark removes words from the join itself and cannot be withheld. A person is told if one writer purges words of
as many lessons, or if a mark arrives in a column of this folder, but was not written here.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from crdt import clock
from crdt.clock import Stamp
from fleet.model import limits
from fleet.model.line import NOTHING, BadLineError, Column, Line, canonical, decode, encode
from fleet.model.names import FIELDS

OWN, BULK = "own", "bulk"
"""Kinds of withheld parts: of a column of this folder, but not written here; many removes or edits at once."""
NEWCOMERS = "newcomers"
"""Group of the writers of whom nothing was known here before."""
_COUNTED_MS = 3_600_000
_RETRACTED = "~"  # a remove later than any stamp
_WORDS = frozenset(field.name for field in FIELDS if "asked" in field.uses)


class Withheld(NamedTuple):
    """Withheld part of a column: the column as it counted without the part (``before``), and as it is with it."""

    before: Column
    after: Column

    def removed_from(self, column: Column) -> Column:
        """Return a later state of the column without the part."""
        before, after = self
        rest = before.joined(column.difference(after))
        return replace(
            rest,
            n=_totals(column.n, before.n, after.n),
            purge=column.purge,  # the join has dropped what it covers; it cannot be brought back
            first={field: value for field, value in rest.first.items() if field in column.first},
            set={field: edit for field, edit in rest.set.items() if field in column.set},
        )


class Held(NamedTuple):
    """Withheld part with what a person is asked about it.

    Attributes:
        kind: ``OWN`` or ``BULK``.
        group: the replica that is asked about, or the one in whose file the part came.
        is_asked: True until a person decides.
    """

    kind: str
    group: str
    writer: str
    id: str
    part: Withheld
    is_asked: bool = True

    @classmethod
    def decode(cls, kind: str, writer: str, id_: str, text: str, *, is_asked: bool = True) -> "Held":
        """Return a part from its stored text; a damaged text gives one without a group, which withholds nothing."""
        try:
            group, before, after = map(str, json.loads(text))
        except (ValueError, TypeError):
            group = before = after = ""
        part = Withheld(_column(id_, writer, before), _column(id_, writer, after))
        return cls(kind, group, writer, id_, part, is_asked)

    def encode(self) -> str:
        """Return the text to store."""
        lines = (Line(self.id, {self.writer: column} if column != NOTHING else {}) for column in self.part)
        return json.dumps([self.group, *(encode(each).decode() for each in lines)])


def _column(id_: str, writer: str, text: str) -> Column:
    try:
        line = decode(text.encode(), limits.RECORD_BYTES_MAX)
    except BadLineError:
        return NOTHING
    return line.w.get(writer, NOTHING) if isinstance(line, Line) and line.id == id_ else NOTHING


def _totals(column: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return totals minus the withheld step; what the writer counts later starts from the larger total."""
    totals = {}
    for name, total in column.items():
        low, high = before.get(name, 0), after.get(name, 0)
        value = low + total - high if total >= high else min(total, low)
        if value > 0:
            totals[name] = value
    return totals


# --- detection ------------------------------------------------------------------------------------------------------


class Arrivals:
    """Changes to others' columns in one transaction, and which of them a person has to be asked about.

    Args:
        mine: the replicas that write in this folder.
        withheld: parts that are withheld already: lesson to writer to part.
        writers: the writers that were known before.

    Attributes:
        brought: (lesson, writer) to the other writer in whose file that column came.
    """

    def __init__(self, mine: frozenset[str], withheld: Mapping[str, Mapping[str, Withheld]], writers: set[str]) -> None:
        self._mine = mine
        self._withheld = withheld
        self._writers = writers
        self.brought: dict[tuple[str, str], str] = {}
        self._own: dict[tuple[str, str], Withheld] = {}
        self._edits: dict[str, dict[tuple[str, str], Withheld]] = defaultdict(dict)
        self._purged: dict[str, set[str]] = defaultdict(set)

    def note(self, path: str, row: Line | None, part: Line, joined: Line, *, in_tree: bool) -> None:
        """Note what a line of a file changes in a row, which is ``joined`` with it."""
        owner = _owner(path)
        is_ours = not in_tree and owner in ("", *self._mine)  # anybody may have put another writer's shard here
        for writer in part.w:
            before = row.w.get(writer, NOTHING) if row is not None else NOTHING
            after = joined.w.get(writer, NOTHING)
            is_own = writer in self._mine
            if after == before or (is_own and is_ours):
                continue
            group = writer if is_own else self._group(writer, owner)
            if row is not None and _has_purged(before, after, "" if is_own or group != writer else writer):
                self._purged[group].add(joined.id)
            if is_own:
                _extend(self._own, joined.id, writer, before, after)
                continue
            if owner and owner not in (writer, *self._mine):
                self.brought.setdefault((joined.id, writer), owner)
            has_changed = row is not None and (_has_edited(before, after) or self._has_reworded(row, before, after))
            if row is not None and has_changed and (group != writer or _is_of_others(row, writer)):
                _extend(self._edits[group], joined.id, writer, before, after)

    def note_retraction(self, path: str, id_: str, writer: str, author: str, *, in_tree: bool) -> None:
        """Note the retraction of a discovery: a remove, under the id of the retraction."""
        owner = _owner(path)
        group = self._group(writer, owner)
        is_ours = not in_tree and owner in ("", *self._mine)
        if not is_ours if writer in self._mine else (group != writer or author != writer):
            _extend(self._edits[group], id_, writer, NOTHING, Column(rem={author: _RETRACTED}))

    def _has_reworded(self, row: Line, before: Column, after: Column) -> bool:
        """Return whether a column has a new wording with larger bytes than all that count, so that it would win."""
        new = [each for each in after.first.items() if each[0] in _WORDS and each not in before.first.items()]
        return any(self._is_largest(row, field, canonical(value)) for field, value in new)

    def _is_largest(self, row: Line, field: str, data: bytes) -> bool:
        """Return whether no wording of a field that counts has larger bytes, or the same."""
        rivals = ((w, c) for w, c in row.w.items() if field in c.first and canonical(c.first[field]) >= data)
        counting = (self._counting(row.id, writer, column).first for writer, column in rivals)
        return not any(field in first and canonical(first[field]) >= data for first in counting)

    def _counting(self, id_: str, writer: str, column: Column) -> Column:
        """Return a column without its withheld part, and without what was noted here and may become withheld."""
        noted = next((each[id_, writer].before for each in self._edits.values() if (id_, writer) in each), column)
        withheld = self._withheld.get(id_, {}).get(writer)
        return noted if withheld is None else withheld.removed_from(noted)

    def _group(self, writer: str, owner: str) -> str:
        if owner and owner != writer and owner not in self._mine:
            return owner
        return writer if writer in self._writers else NEWCOMERS

    def held(self, lessons: int, counted: dict[str, tuple[Stamp, list[str]]], now: Stamp) -> list[Held]:
        """Return the parts that a person is asked about; ``lessons`` is the number of known lessons.

        ``counted``: group to a time, and the lessons with edits that counted since. Edits that count now are added.
        """
        parts = [self._held(OWN, writer, id_, writer, change) for (id_, writer), change in self._own.items()]
        for group in [each for each, (at, _) in counted.items() if not at <= now <= clock.shifted(at, _COUNTED_MS)]:
            del counted[group]
        for group, changes in self._edits.items():
            since, ids = counted.get(group, (now, []))
            ids = sorted({*ids, *(id_ for id_, _ in changes)})
            if not _is_bulk(len(ids), lessons):
                counted[group] = since, ids
            else:
                parts += [self._held(BULK, group, id_, writer, change) for (id_, writer), change in changes.items()]
        differing = (each for each in parts if each.part.before != each.part.after)
        return [each for each in differing if each.part.removed_from(each.part.after) != each.part.after]

    def purged(self, lessons: int) -> dict[str, int]:
        """Return the groups that purged words of many lessons at once, with their number; of ours also for one."""
        purged = {group: len(ids) for group, ids in self._purged.items()}
        return {group: number for group, number in purged.items() if group in self._mine or _is_bulk(number, lessons)}

    def _held(self, kind: str, group: str, id_: str, writer: str, change: Withheld) -> Held:
        before = self._counting(id_, writer, change.before)
        if kind == BULK:  # what is no remove, edit or wording counts
            before = replace(change.after, first=before.first, over=before.over, rem=before.rem, set=before.set)
        return Held(kind, group, writer, id_, Withheld(before, change.after))


def _is_bulk(number: int, lessons: int) -> bool:
    return number > max(limits.BULK_MIN, int(lessons * limits.BULK_SHARE))


def _extend(changes: dict[tuple[str, str], Withheld], id_: str, writer: str, before: Column, after: Column) -> None:
    """Note a change of a column; several changes of one column are one."""
    first = changes.get((id_, writer))
    changes[id_, writer] = Withheld(first.before if first is not None else before, after)


def _owner(path: str) -> str:
    """Return the replica whose file this is, "" for the edition, which has none."""
    return path.rpartition("/")[2].removesuffix(".jsonl") if "/" in path else ""


def _has_edited(before: Column, after: Column) -> bool:
    """Return whether a writer removed a lesson, set a field, or marked others' edits as replaced.

    To publish a lesson, or to make it a candidate, is no edit.
    """
    edits = (each for each in after.set.items() if each[1] != before.set.get(each[0]))
    return (
        any(stamp > before.rem.get(target, "") for target, stamp in after.rem.items())
        or any(marks != before.over.get(target) for target, marks in after.over.items())
        or any(field != "state" or edit[1] not in ("published", "candidate") for field, edit in edits)
    )


def _has_purged(before: Column, after: Column, own: str) -> bool:
    """Return whether a column purges words anew, other than those of the replica ``own``.

    Another replica of one agent may be anybody's: lines are not signed.
    """
    return any(target != own and marks != before.purge.get(target) for target, marks in after.purge.items())


def _is_of_others(row: Line, writer: str) -> bool:
    """Return whether a lesson is not one writer's alone. Who was first does not count: anybody can claim that."""
    return [name for name, column in row.w.items() if column.add or column.first] != [writer]
