"""Arrivals: what comes into the columns of writers within one transaction, and what of it a person is asked about.

- Parts of a column of ours that this machine never wrote.
- Removes and edits of others' lessons, more than ``limits.BULK_MIN`` or a tenth of what is known by one writer at once.
  New lessons are never held back for their number.

Counted together as one writer are those of whom nothing was known before, and those whose columns came in one other
writer's file. Made where rows are joined, so that it does not matter which way a line came.
"""

from collections import defaultdict
from typing import NamedTuple

from crdt import clock
from fleet.model import limits, names
from fleet.model.line import NOTHING, Column, Line
from fleet.model.pattern import Policy, first_seen
from fleet.model.withheld import BULK, OWN, Held, Withheld, is_nothing, only_edits, without

NEWCOMERS = "newcomers"
"""Group of the writers of whom nothing was known here before."""


class _Change(NamedTuple):
    """One writer's column of a lesson, as it was and as it is."""

    known: Column
    came: Column


class Arrivals:
    """What one transaction brings.

    Args:
        policy: of the folds before it.
        writers: who is known.

    Attributes:
        brought: (lesson, writer) to the writer in whose file that column came, where that is somebody else.
    """

    def __init__(self, policy: Policy, writers: set[str]) -> None:
        self._policy = policy
        self._writers = writers
        self.brought: dict[tuple[str, str], str] = {}
        self._own: dict[tuple[str, str], _Change] = {}
        self._edits: dict[str, dict[tuple[str, str], _Change]] = defaultdict(dict)

    def note(self, path: str, row: Line | None, part: Line, whole: Line, *, in_tree: bool) -> None:
        """Note what a part of a record brings.

        Args:
            path: of the file that it stands in.
            row: the record before; None for none.
            part: what is joined.
            whole: the record with it.
            in_tree: the file is one of the fetched tree.
        """
        owner = path.rpartition("/")[2].removesuffix(".jsonl") if "/" in path else ""
        for writer in part.w:
            before = row.w.get(writer, NOTHING) if row is not None else NOTHING
            after = whole.w.get(writer, NOTHING)
            if after == before:
                continue
            if writer in self._policy.mine:
                if in_tree:  # files here are ours to write
                    self._note(self._own, whole.id, writer, before, after)
                continue
            if owner and owner not in (writer, *self._policy.mine):
                self.brought.setdefault((whole.id, writer), owner)
            if row is not None and _has_edited(before, after) and _is_of_others(row, writer):
                self._note(self._edits[self._group(writer, owner)], whole.id, writer, before, after)

    def _note(
        self, noted: dict[tuple[str, str], _Change], each: str, writer: str, before: Column, after: Column
    ) -> None:
        first = noted.get((each, writer))
        noted[each, writer] = _Change(first.known if first is not None else before, after)

    def _group(self, writer: str, owner: str) -> str:
        if owner and owner != writer and owner not in self._policy.mine:
            return owner
        return writer if writer in self._writers else NEWCOMERS

    def held(self, known: int) -> list[Held]:
        """Return what a person is asked about.

        Args:
            known: how many lessons there were.
        """
        most = max(limits.BULK_MIN, int(known * limits.BULK_SHARE))
        found = [self._held(OWN, writer, each, writer, change) for (each, writer), change in self._own.items()]
        for group, changes in self._edits.items():
            if len({each for each, _ in changes}) > most:
                found += [self._held(BULK, group, each, writer, change) for (each, writer), change in changes.items()]
        return [each for each in found if not is_nothing(each.part)]

    def _held(self, kind: str, group: str, each: str, writer: str, change: _Change) -> Held:
        left = self._policy.withheld.get(each, {}).get(writer)
        known = without(change.known, left) if left is not None else change.known
        part = Withheld(known, change.came) if kind == OWN else only_edits(known, change.came)
        return Held(kind, group, writer, each, part)


def _has_edited(before: Column, after: Column) -> bool:
    """Tell whether a writer took something away, or set a field. To publish a lesson changes nothing of it."""
    if any(stamp > before.rem.get(target, "") for target, stamp in after.rem.items()):
        return True
    return any(
        edit != before.set.get(field) and not (field == "state" and edit[1] in ("published", "candidate"))
        for field, edit in after.set.items()
    )


def _is_of_others(row: Line, writer: str) -> bool:
    """Tell whether a lesson was first said by another agent."""
    said = [(first_seen(column) or clock.ZERO, each) for each, column in row.w.items() if column.add or column.first]
    return not said or names.agent_of(min(said)[1]) != names.agent_of(writer)


def has_removed(line: Line, writer: str, before: Line | None) -> bool:
    """Tell whether a writer took a lesson away, by a remove or as retired, beyond what it had said some time before."""
    column = line.w.get(writer, NOTHING)
    known = before.w.get(writer, NOTHING) if before is not None else NOTHING
    if any(stamp > known.rem.get(target, "") for target, stamp in column.rem.items()):
        return True
    edit = column.set.get("state")
    return edit is not None and edit[1] == "retired" and edit != known.set.get("state")
