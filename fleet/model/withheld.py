"""Withheld: a part of one writer's column that this machine leaves out of its folds until somebody here decided.

The join takes everything in, and what is joined cannot be told apart any more. So two states of the column are kept:
as it counted here before that part came, and as it was when the part had come. What the column says beyond the second
is news, and counts; what it says up to the second reads as it did in the first.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fleet.model import limits
from fleet.model.line import NOTHING, BadLineError, Column, Line, decode, encode, is_larger

OWN, BULK = "own", "bulk"
"""Kinds of what is left out: parts of a column of ours that were never written here; many removes or edits at once."""


class Withheld(NamedTuple):
    """One part that is left out.

    Attributes:
        known: the column as it counted before.
        came: the column with the part.
    """

    known: Column
    came: Column


class Held(NamedTuple):
    """A part of one writer's column of one lesson that is left out here.

    Attributes:
        kind: ``OWN`` or ``BULK``.
        group: by whom it is asked about: the replica, or the one in whose file it came.
        writer: whose column.
        id: of the lesson.
        part: what counts of it, and what came.
        is_asked: nobody decided yet.
    """

    kind: str
    group: str
    writer: str
    id: str
    part: Withheld
    is_asked: bool = True

    def texts(self) -> tuple[str, str]:
        """Return what counts and what came as lines, for keeping."""
        return _text(self.id, self.writer, self.part.known), _text(self.id, self.writer, self.part.came)


def kept(each: str, writer: str, known: str, came: str) -> Withheld:
    """Return a part as it was kept; what cannot be read is nothing."""
    return Withheld(_column(each, writer, known), _column(each, writer, came))


def _text(each: str, writer: str, column: Column) -> str:
    return encode(Line(each, {writer: column} if column != NOTHING else {})).decode()


def _column(each: str, writer: str, text: str) -> Column:
    try:
        found = decode(text.encode(), limits.RECORD_BYTES_MAX)
    except BadLineError:
        return NOTHING
    return found.w.get(writer, NOTHING) if isinstance(found, Line) and found.id == each else NOTHING


def without(column: Column, left: Withheld) -> Column:
    """Return a column as it reads without the part that is left out of it."""
    known, came = left
    return Column(
        add=column.add if column.add > came.add else known.add,
        first=_values(column.first, known.first, came.first),
        later=_values(column.later, known.later, came.later),
        n=_totals(column.n, known.n, came.n),
        over=_nested_stamps(column.over, known.over, came.over),
        parts={
            name: kept
            for name, counts in column.parts.items()
            if (kept := _counts(counts, known.parts.get(name, {}), came.parts.get(name, {})))
        },
        purge=column.purge,  # the join has dropped what it covers: there is nothing to bring back
        rem=_stamps(column.rem, known.rem, came.rem),
        set={
            field: kept_edit
            for field, edit in column.set.items()
            if (kept_edit := edit if edit[0] > came.set.get(field, ("",))[0] else known.set.get(field))
        },
    )


def only_edits(known: Column, came: Column) -> Withheld:
    """Return what leaves removes and edits of a column out, and keeps the rest of it."""
    kept = Column(
        add=came.add, first=came.first, later=came.later, n=came.n, parts=came.parts, purge=came.purge,
        over=known.over, rem=known.rem, set=known.set,
    )  # fmt: skip
    return Withheld(kept, came)


def is_nothing(left: Withheld) -> bool:
    """Tell whether nothing is left out: the column counted just so before."""
    return left.known == left.came or without(left.came, left) == left.came


def _values(now: Mapping[str, Any], known: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
    """Return texts without those that came; a wording has no stamp, and is told by its bytes."""
    found = {}
    for field, value in now.items():
        if field not in came or _differs(value, came[field]):
            found[field] = value
        elif field in known:
            found[field] = known[field]
    return found


def _differs(value: object, other: object) -> bool:
    return is_larger(value, other) or is_larger(other, value)


def _totals(now: Mapping[str, int], known: Mapping[str, int], came: Mapping[str, int]) -> dict[str, int]:
    """Return totals less what came at once: whoever goes on counts on from it."""
    found = {}
    for name, total in now.items():
        before, reached = known.get(name, 0), came.get(name, 0)
        value = before + total - reached if total >= reached else min(total, before)
        if value > 0:
            found[name] = value
    return found


def _counts(now: Mapping[str, int], known: Mapping[str, int], came: Mapping[str, int]) -> dict[str, int]:
    found = {part: count if count > came.get(part, 0) else known.get(part, 0) for part, count in now.items()}
    return {part: count for part, count in found.items() if count}


def _stamps(now: Mapping[str, str], known: Mapping[str, str], came: Mapping[str, str]) -> dict[str, str]:
    found = {key: stamp if stamp > came.get(key, "") else known.get(key, "") for key, stamp in now.items()}
    return {key: stamp for key, stamp in found.items() if stamp}


def _nested_stamps(
    now: Mapping[str, Mapping[str, str]], known: Mapping[str, Mapping[str, str]], came: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    found = {key: _stamps(marks, known.get(key, {}), came.get(key, {})) for key, marks in now.items()}
    return {key: marks for key, marks in found.items() if marks}
