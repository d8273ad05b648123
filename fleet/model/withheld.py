"""Withheld: a part of one writer's column that this machine leaves out of its folds until somebody here decided.

The join takes everything in, and what is joined cannot be told apart any more. So two states of the column are kept:
as it counted here before that part came, and as it was when the part had come. What the column says beyond the second
is news, and counts; what it says up to the second reads as it did in the first.

A person is asked about two things. Looked for where rows are joined, so that it does not matter which way a line came:

- Parts of a column of ours that this machine never wrote.
- Removes, edits and rewordings of others' lessons, and retractions of their discoveries, more than ``limits.BULK_MIN``
  or a tenth of what is known by one writer at once. New lessons are never held back for their number. Counted
  together as one writer are those of whom nothing was known before, and those whose columns came in one other
  writer's file: what these change is others', whatever their name.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from fleet.model import limits
from fleet.model.line import NOTHING, BadLineError, Column, Line, canonical, decode, encode, is_larger

T = TypeVar("T", str, int)

OWN, BULK = "own", "bulk"
"""Kinds of what is left out: parts of a column of ours that were never written here; many removes or edits at once."""
NEWCOMERS = "newcomers"
"""Group of the writers of whom nothing was known here before."""
_TAKEN_BACK = "~"  # whatever the stamp
_WORDS = ("text", "correct", "category", "trigger")


class Withheld(NamedTuple):
    """One part that is left out.

    Attributes:
        known: the column as it counted before.
        came: the column with the part.
    """

    known: Column
    came: Column

    def removed_from(self, column: Column) -> Column:
        """Return a column as it reads without the part."""
        known, came = self
        return Column(
            add=column.add if column.add > came.add else known.add,
            first=_values(column.first, known.first, came.first),
            unknown=_values(column.unknown, known.unknown, came.unknown),
            n=_totals(column.n, known.n, came.n),
            over=_nested(column.over, known.over, came.over, ""),
            parts=_nested(column.parts, known.parts, came.parts, 0),
            purge=column.purge,  # the join has dropped what it covers: there is nothing to bring back
            rem=_larger(column.rem, known.rem, came.rem, ""),
            set={
                field: kept_edit
                for field, edit in column.set.items()
                if (kept_edit := edit if edit[0] > came.set.get(field, ("",))[0] else known.set.get(field))
            },
        )


class Held(NamedTuple):
    """A part of one writer's column of one lesson that is left out here.

    Attributes:
        kind: ``OWN`` or ``BULK``.
        group: by whom it is asked about: the replica, or the one in whose file it came.
        part: what counts of it, and what came.
        is_asked: nobody decided yet.
    """

    kind: str
    group: str
    writer: str
    id: str
    part: Withheld
    is_asked: bool = True

    @classmethod
    def read(cls, kind: str, writer: str, each: str, kept: str, *, is_asked: bool = True) -> "Held":
        """Return a part as it was kept; one that cannot be read has no group, and holds nothing back."""
        try:
            group, known, came = map(str, json.loads(kept))
        except (ValueError, TypeError):
            group = known = came = ""
        part = Withheld(_column(each, writer, known), _column(each, writer, came))
        return cls(kind, group, writer, each, part, is_asked)

    def kept(self) -> str:
        """Return it as text, for keeping."""
        return json.dumps([self.group, *(_text(self.id, self.writer, column) for column in self.part)])


def _text(each: str, writer: str, column: Column) -> str:
    return encode(Line(each, {writer: column} if column != NOTHING else {})).decode()


def _column(each: str, writer: str, text: str) -> Column:
    try:
        found = decode(text.encode(), limits.RECORD_BYTES_MAX)
    except BadLineError:
        return NOTHING
    return found.w.get(writer, NOTHING) if isinstance(found, Line) and found.id == each else NOTHING


def _only_edits(known: Column, came: Column) -> Withheld:
    """Return what leaves removes and edits of a column out, and keeps the rest of it."""
    kept = Column(
        add=came.add, unknown=came.unknown, n=came.n, parts=came.parts, purge=came.purge,
        first=known.first, over=known.over, rem=known.rem, set=known.set,
    )  # fmt: skip
    return Withheld(kept, came)


def _is_nothing(left: Withheld) -> bool:
    """Tell whether nothing is left out: the column counted just so before."""
    return left.known == left.came or left.removed_from(left.came) == left.came


def _values(now: Mapping[str, Any], known: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
    """Return texts without those that came; a wording has no stamp, and is told by its bytes."""
    found = {}
    for field, value in now.items():
        if field not in came or is_larger(value, came[field]) or is_larger(came[field], value):
            found[field] = value
        elif field in known:
            found[field] = known[field]
    return found


def _totals(now: Mapping[str, int], known: Mapping[str, int], came: Mapping[str, int]) -> dict[str, int]:
    """Return totals less what came at once: whoever goes on counts on from it."""
    found = {}
    for name, total in now.items():
        before, reached = known.get(name, 0), came.get(name, 0)
        value = before + total - reached if total >= reached else min(total, before)
        if value > 0:
            found[name] = value
    return found


def _larger(now: Mapping[str, T], known: Mapping[str, T], came: Mapping[str, T], none: T) -> dict[str, T]:
    """Return stamps or counts that are larger than what came; of the others, what was known before."""
    found = {key: value if value > came.get(key, none) else known.get(key, none) for key, value in now.items()}
    return {key: value for key, value in found.items() if value}


def _nested(
    now: Mapping[str, Mapping[str, T]],
    known: Mapping[str, Mapping[str, T]],
    came: Mapping[str, Mapping[str, T]],
    none: T,
) -> dict[str, dict[str, T]]:
    found = {key: _larger(inner, known.get(key, {}), came.get(key, {}), none) for key, inner in now.items()}
    return {key: inner for key, inner in found.items() if inner}


# --- what comes in --------------------------------------------------------------------------------------------------


class Arrivals:
    """Content of one transaction.

    Args:
        left: what was left out before: lesson to writer to part.

    Attributes:
        brought: (lesson, writer) to the writer in whose file that column came, where that is somebody else.
    """

    def __init__(self, mine: frozenset[str], left: Mapping[str, Mapping[str, Withheld]], writers: set[str]) -> None:
        self._mine = mine
        self._left = left
        self._writers = writers
        self.brought: dict[tuple[str, str], str] = {}
        self._own: dict[tuple[str, str], Withheld] = {}
        self._edits: dict[str, dict[tuple[str, str], Withheld]] = defaultdict(dict)

    def note(self, path: str, row: Line | None, part: Line, whole: Line, *, in_tree: bool) -> None:
        """Note what a part of a record brings."""
        owner = _owner(path)
        for writer in part.w:
            before = row.w.get(writer, NOTHING) if row is not None else NOTHING
            after = whole.w.get(writer, NOTHING)
            if after == before:
                continue
            if writer in self._mine:
                if in_tree:  # files here are ours to write
                    self._note(self._own, whole.id, writer, before, after)
                continue
            if owner and owner not in (writer, *self._mine):
                self.brought.setdefault((whole.id, writer), owner)
            group = self._group(writer, owner)
            has_changed = row is not None and (_has_edited(before, after) or _has_reworded(row, whole, writer))
            if row is not None and has_changed and (group != writer or _is_of_others(row, writer)):
                self._note(self._edits[group], whole.id, writer, before, after)

    def note_retraction(self, path: str, each: str, writer: str, author: str, *, in_tree: bool) -> None:
        """Note that a discovery is taken back: a remove, kept under the id of the retraction."""
        group = self._group(writer, _owner(path))
        if in_tree if writer in self._mine else (group != writer or author != writer):  # files here are ours to write
            self._note(self._edits[group], each, writer, NOTHING, Column(rem={author: _TAKEN_BACK}))

    def _note(
        self, noted: dict[tuple[str, str], Withheld], each: str, writer: str, before: Column, after: Column
    ) -> None:
        first = noted.get((each, writer))
        noted[each, writer] = Withheld(first.known if first is not None else before, after)

    def _group(self, writer: str, owner: str) -> str:
        if owner and owner != writer and owner not in self._mine:
            return owner
        return writer if writer in self._writers else NEWCOMERS

    def held(self, known: int) -> list[Held]:
        """Return what a person is asked about.

        ``known`` is how many lessons there were.
        """
        most = max(limits.BULK_MIN, int(known * limits.BULK_SHARE))
        found = [self._held(OWN, writer, each, writer, change) for (each, writer), change in self._own.items()]
        for group, changes in self._edits.items():
            if len({each for each, _ in changes}) > most:
                found += [self._held(BULK, group, each, writer, change) for (each, writer), change in changes.items()]
        return [each for each in found if not _is_nothing(each.part)]

    def _held(self, kind: str, group: str, each: str, writer: str, change: Withheld) -> Held:
        left = self._left.get(each, {}).get(writer)
        known = left.removed_from(change.known) if left is not None else change.known
        part = Withheld(known, change.came) if kind == OWN else _only_edits(known, change.came)
        return Held(kind, group, writer, each, part)


def _owner(path: str) -> str:
    """Return the replica whose file this is, "" for the edition, which has none."""
    return path.rpartition("/")[2].removesuffix(".jsonl") if "/" in path else ""


def _has_edited(before: Column, after: Column) -> bool:
    """Tell whether a writer took something away, or set a field. To publish a lesson changes nothing of it."""
    if any(stamp > before.rem.get(target, "") for target, stamp in after.rem.items()):
        return True
    return any(
        edit != before.set.get(field) and not (field == "state" and edit[1] in ("published", "candidate"))
        for field, edit in after.set.items()
    )


def _has_reworded(row: Line, whole: Line, writer: str) -> bool:
    """Tell whether a writer's first wording of a field counts where another's did, or none did."""
    known = {field: canonical(row.w[who].first[field]) for field, who in row.wording_writers().items()}
    now = [field for field, who in whole.wording_writers().items() if who == writer and field in _WORDS]
    return any(known.get(field) != canonical(whole.w[writer].first[field]) for field in now)


def _is_of_others(row: Line, writer: str) -> bool:
    """Tell whether a lesson is not a writer's alone: who said it first is anybody's claim."""
    said = [each for each, column in row.w.items() if column.add or column.first]
    return said != [writer]
