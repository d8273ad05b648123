"""Lines as rows of a live document: which key, which text, and what of a row is refused.

A row says what one writer has to say of one id: key ``id|writer``, text the joined line in canonical form; where that
takes several lines (too long for one, or a part is held), with a newline between them. A newer version's line, which
cannot be joined, has a row of its own: ``#hash|writer``.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crdt import doc
from fleet.keep import limits, names
from fleet.keep.digests import blake2b
from fleet.keep.discoveries import PREFIX, Findings
from fleet.keep.line import Carried, Refused
from fleet.keep.notebook import Notebook
from fleet.keep.reading import DISCOVERIES, PATTERNS, Entry, Kind, Read, entries
from fleet.keep.store import Held

ROW_BYTES_MAX = 16 * limits.LINE_BYTES_MAX
"""Thousands of replicas may confirm one lesson; more than this, nobody has to say of one."""
KEY_CHARS_MAX = 80
_CARRIED = "#"

Good = list[tuple[bytes, Entry]]
"""(line, entry) of each line in a row."""


class Row(NamedTuple):
    """What a row says.

    Attributes:
        writer: whose row it is.
        kind: the log that its lines belong to.
        lines: the good ones.
        refused: why it is not used, or why a part of it is not.
    """

    writer: str
    kind: Kind
    lines: Good
    refused: list[Refused]


def name_of(entry: Entry) -> str:
    """Return the name under which an entry goes: its id, or the hash of a line that cannot be joined."""
    return f"{_CARRIED}{blake2b(entry.raw, digest_size=8).hexdigest()}" if isinstance(entry, Carried) else entry.id


def digit_of(name: str) -> str:
    """Return the hex digit by which the rows of a large clan are spread over rooms: the first of an id or a hash."""
    return name[1] if name.startswith(_CARRIED) else name.rpartition("-")[2][:1]


def kind_of(entry: Entry) -> Kind:
    """Return the log that an entry belongs to."""
    return DISCOVERIES if entry.id.startswith(PREFIX) else PATTERNS


def is_key_of(key: str, writer: str) -> bool:
    """Tell whether a key is one under which this writer may say something."""
    name, whose = doc.parts_of(key)
    return bool(writer) and whose == writer and len(key) <= KEY_CHARS_MAX and _is_name(name)


def _is_name(name: str) -> bool:
    return names.is_id(name) or (name.startswith(_CARRIED) and len(name) == 17 and _is_hex(name[1:]))


def _is_hex(text: str) -> bool:
    return all(char in "0123456789abcdef" for char in text)


def is_text(text: str | None) -> bool:
    """Tell whether a value can be a row's at all: text, and not too much of it."""
    return text is not None and text != doc.NOT_TEXT and len(text) <= ROW_BYTES_MAX


def parse(key: str, text: str) -> Row:
    """Read one row. Whatever it says, it is a value and no exception."""
    name, writer = doc.parts_of(key)
    path = f"live:{key[:KEY_CHARS_MAX]}"
    kind = DISCOVERIES if name.startswith(PREFIX) else PATTERNS

    def refuse(reason: str) -> Row:
        raw = b"" if text == doc.NOT_TEXT else text[: limits.LINE_BYTES_MAX].encode("utf-8", "replace")
        return Row("", kind, [], [Refused(path, 0, reason, raw)])

    if not names.is_replica(writer) or not is_key_of(key, writer):
        return refuse("a key of a live document that is no <id>|<replica>")
    if not is_text(text):
        return refuse("a row of a live document that is no text, or too long")
    raw = text.encode("utf-8", "replace")
    if name.startswith(_CARRIED):
        kind = next((kind_of(entry) for _, entry in entries(PATTERNS, iter([raw]), path, Read())), PATTERNS)
    read = Read()
    good: Good = []
    for line, entry in entries(kind, iter([raw]), path, read):
        if name_of(entry) == name and kind_of(entry) is kind:
            good.append((line, entry))
        else:
            read.refuse(Refused(path, 0, "a line that speaks of something else than its key", line))
    return Row(writer, kind, good, read.refused)


def render(name: str, told: Iterable[Entry], cut: str) -> str:
    """Return a row's text: all that is told of one name, joined; parts beyond the cut on lines of their own."""
    held = joined(told, cut)
    kind = DISCOVERIES if name.startswith(PREFIX) else PATTERNS
    if name.startswith(_CARRIED):
        return "\n".join(sorted(raw.decode() for each in (held.notebook, held.findings) for raw in each.carried))
    return held.of(kind).edition().decode().removesuffix("\n")


def joined(told: Iterable[Entry], cut: str) -> Held:
    """Join entries of either log."""
    held = Held(Notebook(cut), Findings(cut))
    for entry in told:
        held.of(kind_of(entry)).add(entry)
    return held


def forget(held: Held, name: str) -> None:
    """Take all that is known of one name out of what was joined."""
    notebook, findings = held.notebook, held.findings
    for found in (notebook.carried, findings.carried):
        for raw in [raw for raw in found if f"{_CARRIED}{blake2b(raw, digest_size=8).hexdigest()}" == name]:
            del found[raw]
    notebook.patterns.pop(name, None)
    notebook.held = {part for part in notebook.held if part.id != name}
    findings.lines.pop(name, None)
    findings.entries.pop(name, None)


def told_of(held: Held, name: str, cut: str) -> list[Entry]:
    """Return, as entries, all that was joined of one name."""
    notebook, findings = held.notebook, held.findings
    if name.startswith(_CARRIED):
        pairs = [*notebook.carried.items(), *findings.carried.items()]
        return [entry for raw, id_ in pairs if name_of(entry := Carried(id_, raw)) == name]
    if name in findings.entries:
        return [findings.entries[name]]
    only = Notebook(cut)
    if (line := notebook.get(name)) is not None:
        only.patterns[name] = line
    only.held = {part for part in notebook.held if part.id == name}
    return [entry for _, entry in entries(PATTERNS, iter([only.edition()]), "", Read())]
