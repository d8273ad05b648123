"""Lines of fleet 0.1, converted. Nothing else reads the lines of that version.

A line of fleet 0.1 had one map for each kind of statement (``add``, ``rem``, ``n``, ``set``, ``when``), with a slot for
each replica, and ``at`` and ``by`` for the first sight of the lesson. Its parts go where their writer's column is now:
a slot into that of its replica, an edit into that of ``when``'s writer, first wordings, removals and ``at`` into that
of ``by``, else of the smallest slot, else of ``NOBODY``.

The slot ``import.<8 hex>`` of an imported record stays a column under that name, which is no agent's; its counts become
parts under the record's hash (those 8 digits and 8 zeros), and the field ``agent.<8 hex>`` says that it is an import.

Each line is converted by itself and reads nothing but its own bytes, so two machines of a clan convert in any order and
their lines join without doubling. All other lines stay byte for byte: lines of this version, lines of a
newer one, and what cannot be read.
"""

import sys
from collections import defaultdict
from typing import Any

import msgspec

from crdt import clock
from fleet.model import line as codec
from fleet.model import names
from fleet.model.line import AT, BadLineError, Column, Line, is_version_1, strict_object
from fleet.model.pattern import author_field

NOBODY = "import.00000000"
"""Column of statements whose writer is unknown."""


class _Old(msgspec.Struct, kw_only=True):
    """One line of fleet 0.1."""

    add: dict[str, str] = {}
    at: str = clock.ZERO
    by: str = ""
    id: str
    n: dict[str, dict[str, int]] = {}
    rem: dict[str, str] = {}
    set: dict[str, Any] = {}
    when: dict[str, tuple[str, str]] = {}


def converted(raw: bytes) -> Line | None:
    """Return a line of fleet 0.1 as a line of this version; None for any other line, and for a broken one."""
    if not is_version_1(raw):
        return None
    try:
        parsed = strict_object(raw)
        line = _as_line(msgspec.convert({key: value for key, value in parsed.items() if key != "v"}, _Old))
        codec.decode(codec.encode(line), sys.maxsize)  # an invalid line stays as it is
    except (BadLineError, msgspec.ValidationError):
        return None
    return line


def _as_line(old: _Old) -> Line:
    columns: defaultdict[str, Column] = defaultdict(lambda: Column(first={}, n={}, parts={}, rem={}, set={}))
    slots = {*old.add, *(writer for counts in old.n.values() for writer in counts)}
    owner = old.by or min(slots, default=NOBODY)
    for writer, stamp in old.add.items():
        columns[writer].add = stamp
    for name, counts in old.n.items():
        for writer, total in counts.items():
            if total and _is_import(writer):
                columns[writer].parts.setdefault(name, {})[_part_of(writer)] = total
            elif total:
                columns[writer].n[name] = total
    if old.rem:
        columns[owner].rem = dict(old.rem)
    for field, value in old.set.items():
        stamp, writer = old.when.get(field, (clock.ZERO, ""))
        if writer:
            columns[writer].set[field] = (stamp, value)
        elif field != AT:
            columns[owner].first[field] = value
    for writer in sorted(slots):
        if _is_import(writer):
            field = author_field(_part_of(writer))
            columns[writer].first.setdefault(field, old.set.get(field, "") if field not in old.when else "")
    if slots and old.at != clock.ZERO:
        # Stored even if it equals the add, which another line may replace.
        columns[owner].first[AT] = min(old.at, columns[owner].add or "~")
    return Line(old.id, dict(sorted(columns.items())))


def _is_import(writer: str) -> bool:
    return names.agent_of(writer) == names.IMPORT


def _part_of(slot: str) -> str:
    """Return the hash of an imported record, by the slot that it had in fleet 0.1."""
    return f"{slot.rpartition('.')[2]:0<16}"
