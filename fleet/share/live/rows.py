"""Lines as rows of a live document: which key, which text, and what of a row is refused.

A row is what one writer has to say of one name: key ``name|writer``, text the joined line in canonical form, on several
lines where it is too long for one. The name is an id, or, for a newer version's line, ``#`` and the line's hash.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crdt import doc
from fleet.model import discovery, limits, line, names
from fleet.model.discovery import Discovery
from fleet.model.line import Carried, Line, Refused
from fleet.store.lines import DISCOVERIES, PATTERNS, Entry, Kind, Read, entries

ROW_BYTES_MAX = 16 * limits.LINE_BYTES_MAX
"""Thousands of replicas may confirm one lesson; more than this, nobody has to say of one."""
KEY_CHARS_MAX = 80
CARRIED = "#"

_HEX = frozenset("0123456789abcdef")


class Row(NamedTuple):
    """One row, read.

    Attributes:
        writer: whose row it is.
        kind: the log that its lines belong to.
        lines: the good ones, (line, entry) each.
        refused: why it is not used, or why a part of it is not.
    """

    writer: str
    kind: Kind
    lines: list[tuple[bytes, Entry]]
    refused: list[Refused]

    @property
    def said(self) -> Entry | None:
        """The join of its lines; None for a row without a good one."""
        found: Entry | None = None
        for _, entry in self.lines:
            found = join(found, entry)
        return found


def join(mine: Entry | None, theirs: Entry | None) -> Entry | None:
    """Return the join of what two rows of one name say."""
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    if isinstance(mine, Line) and isinstance(theirs, Line):
        return line.join(mine, theirs)
    if isinstance(mine, Discovery) and isinstance(theirs, Discovery):
        return discovery.smaller(mine, theirs)
    return mine


def lacking(there: Entry | None, here: Entry | None) -> Entry | None:
    """Return what is known here of a name and not there; None for nothing."""
    if there is None or here is None:
        return here
    if isinstance(here, Line):
        return line.minus(here, there if isinstance(there, Line) else None)
    if isinstance(here, Discovery) and isinstance(there, Discovery):
        return here if discovery.smaller(here, there) != there else None
    return None


def name_of(entry: Entry) -> str:
    """Return the name under which an entry goes: its id, or the hash of a line that cannot be joined."""
    return f"{CARRIED}{entry.hash}" if isinstance(entry, Carried) else entry.id


def digit_of(name: str) -> str:
    """Return the hex digit by which the rows of a large clan are spread over rooms: the first of an id or a hash."""
    return name[1] if name.startswith(CARRIED) else name.rpartition("-")[2][:1]


def kind_of(entry: Entry) -> Kind:
    """Return the log that an entry belongs to."""
    return DISCOVERIES if entry.id.startswith(discovery.PREFIX) else PATTERNS


def is_key_of(key: str, writer: str) -> bool:
    """Tell whether a key is one under which this writer may say something."""
    name, whose = doc.parts_of(key)
    return bool(writer) and whose == writer and len(key) <= KEY_CHARS_MAX and _is_name(name)


def _is_name(name: str) -> bool:
    return names.is_id(name) or (name.startswith(CARRIED) and len(name) == 17 and _HEX.issuperset(name[1:]))


def is_text(text: str | None) -> bool:
    """Tell whether a value can be a row's at all: text, and not too much of it."""
    return text is not None and text != doc.NOT_TEXT and len(text) <= ROW_BYTES_MAX


def parse(key: str, text: str) -> Row:
    """Read one row. Whatever it says, it is a value and no exception."""
    name, writer = doc.parts_of(key)
    path = f"live:{key[:KEY_CHARS_MAX]}"
    kind = DISCOVERIES if name.startswith(discovery.PREFIX) else PATTERNS

    def refuse(reason: str) -> Row:
        raw = b"" if text == doc.NOT_TEXT else text[: limits.LINE_BYTES_MAX].encode("utf-8", "replace")
        return Row("", kind, [], [Refused(path, 0, reason, raw)])

    if not names.is_replica(writer) or not is_key_of(key, writer):
        return refuse("a key of a live document that is no <id>|<replica>")
    if not is_text(text):
        return refuse("a row of a live document that is no text, or too long")
    raw = text.encode("utf-8", "replace")
    if name.startswith(CARRIED):
        kind = next((kind_of(entry) for _, entry in entries(PATTERNS, [raw], path, Read())), PATTERNS)
    read = Read()
    good: list[tuple[bytes, Entry]] = []
    for one, entry in entries(kind, [raw], path, read):
        if name_of(entry) == name and kind_of(entry) is kind:
            good.append((one, entry))
        else:
            read.refuse(Refused(path, 0, "a line that speaks of something else than its key", one))
    return Row(writer, kind, good, read.refused)


def render(entry: Entry) -> str:
    """Return a row's text: what an entry says, on several lines where it is too long for one."""
    return "\n".join(raw.decode() for raw in _raws(entry))


def _raws(entry: Entry) -> Iterable[bytes]:
    if isinstance(entry, Carried):
        return [entry.raw]
    if isinstance(entry, Discovery):
        return [discovery.encode(entry)]
    return line.split(entry)
