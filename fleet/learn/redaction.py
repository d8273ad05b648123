"""Purging a secret that already went out: as far as a join can forget.

What works. Every text field of the lesson is overwritten by an edit. A field as first logged has stamp ``0``, and any
earlier edit a smaller one, so the redaction wins on every machine that gets it. Local lines then lose the values that
it beats; a compaction takes them out of the remote's newest tree, and every machine that fetches that drops them too.

What cannot work. Lines that were pushed lie in the remote's git history, in each clone of it, and in its host's
backups: rewriting that is for people, and is told, not done. A machine that never syncs again keeps what it has. A part
stamped in the future outlives the edit until its time has come. A newer version's line is carried byte for byte. A
discovery is immutable: it is taken back, so that nobody is shown it, but its line stays and would be sent again by
whoever has it. People's own files are theirs: they are told where it still stands. So a secret must be rotated first.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fleet.keep import edits, screening
from fleet.keep import line as codec
from fleet.keep.line import Line
from fleet.keep.notebook import is_present
from fleet.keep.reading import DISCOVERIES, PATTERNS, Read
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace, Writer
from fleet.learn import corrections, reconcile

REDACTED = "[REDACTED:purged]"
_NO_TEXT = frozenset({"merged_into", "scope", "state"})
_NEEDLE_CHARS_MIN = 6  # shorter ones stand everywhere, and hide nothing
_FILE_BYTES_MAX = 100 * 1024 * 1024


class Place(NamedTuple):
    """Where a purged text still stands; ``line`` is 0 for a file without lines."""

    path: str
    line: int


def redact(writer: Writer, line: Line) -> list[str]:
    """Overwrite every text field of a lesson and retire it; return the texts that are to be gone.

    The caller has admitted every stamp it read. Afterwards no line here holds a value that the redaction beats.
    """
    fields = {field: value for field, value in line.set.items() if _is_text(field, value)}
    stamp = writer.tick()
    deltas = [
        edits.field_set(line, field, [] if isinstance(value, list) else REDACTED, writer.name, stamp)
        for field, value in sorted(fields.items())
    ]
    if is_present(line):
        deltas.append(edits.retired(line, writer.name, stamp))
    # On the disk before anything is taken out: a crash in between leaves too much, never too little.
    writer.append(PATTERNS, deltas)
    _strip(writer.workspace, line.id, fields, (stamp, writer.name))
    return sorted({text for value in fields.values() for text in _texts(value)} - {REDACTED})


def _is_text(field: str, value: Any) -> bool:
    return field not in _NO_TEXT and not field.startswith("agent.") and any(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *_texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _strip(workspace: Workspace, pattern: str, fields: Iterable[str], evidence: tuple[str, str]) -> None:
    """Take out of the files here every value that the redaction beats: the join of them stays what it is."""
    store = workspace.store
    for path in store.paths(PATTERNS):
        data = store.read(path)
        if pattern.encode() not in data:
            continue
        rows = data.split(b"\n")
        for number, raw in enumerate(rows):
            entry = _line(raw) if pattern.encode() in raw else None
            if entry is None or entry.id != pattern:
                continue
            beaten = [f for f in fields if f in entry.set and entry.when.get(f, codec.NO_EVIDENCE) < evidence]
            for field in beaten:
                del entry.set[field]
                entry.when.pop(field, None)
            if beaten:
                rows[number] = codec.encode(entry)
        store.write(path, b"\n".join(rows))


def _line(raw: bytes) -> Line | None:
    try:
        found = codec.decode(raw.removesuffix(b"\r"))
    except codec.BadLineError:
        return None
    return found if isinstance(found, Line) else None


def forget_unsent(workspace: Workspace, discovery: str) -> int:
    """Drop a discovery's lines that never left this machine; return how many. The caller holds the write lock."""
    store, dropped = workspace.store, 0
    for path in store.paths(DISCOVERIES):
        theirs = set(store.read_base(path).split(b"\n"))
        kept: list[bytes] = []
        for raw, entry in store.entries(DISCOVERIES, path, Read()):
            if entry.id == discovery and raw not in theirs and not workspace.state.was_sent(raw):
                dropped += 1
            else:
                kept.append(raw)
        if dropped:
            store.write(path, b"".join(raw + b"\n" for raw in kept))
    return dropped


def remains(workspace: Workspace, held: Held, purged: str, texts: Iterable[str]) -> list[Place]:
    """Return where the texts still stand on this machine, sorted. Nobody's own file is ever changed."""
    needles = _needles(texts)
    found = set(_entries_of(workspace, purged))
    tops = (workspace.clan, workspace.root / "agents", workspace.store.base)
    for top in tops:
        for path in sorted(top.rglob("*")) if top.is_dir() else []:
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _FILE_BYTES_MAX:
                found |= {Place(str(path.relative_to(workspace.root)), number) for number in _lines_with(path, needles)}
    quarantine = workspace.local / "quarantine" / "refused.jsonl"
    found |= {
        Place(str(quarantine.relative_to(workspace.root)), number)
        for number, kept in enumerate(workspace.quarantine.all(), 1)
        if any(needle in kept.raw for needle in needles)
    }
    for database in sorted(workspace.local.glob("state*.db*")):
        if any(needle in database.read_bytes() for needle in needles):
            found.add(Place(str(database.relative_to(workspace.root)), 0))
    found |= {
        Place(f"held or carried: {part_id}", 0)
        for part_id, raw in [
            *((part.id, part.value) for part in held.notebook.held),
            *((line_id, raw) for raw, line_id in held.notebook.carried.items()),
        ]
        if part_id == purged and any(needle in raw for needle in needles)
    }
    return sorted(found)


def _needles(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as files may hold them: as they are, and as JSON writes them."""
    wanted = {screening.one_line(text) for text in texts if len(text) >= _NEEDLE_CHARS_MIN}
    return sorted({form for text in wanted for form in (text.encode(), json.dumps(text)[1:-1].encode(), _plain(text))})


def _plain(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace")


def _lines_with(path: Path, needles: list[bytes]) -> Iterator[int]:
    data = path.read_bytes()
    if any(needle in data for needle in needles):
        for number, raw in enumerate(data.split(b"\n"), 1):
            if any(needle in raw for needle in needles):
                yield number


def _entries_of(workspace: Workspace, pattern: str) -> Iterator[Place]:
    """Yield the entries of the logs that told the lesson: their words may differ from the lesson's."""
    for agent in corrections.agents_here(workspace):
        path = corrections.log_file(workspace, agent)
        for bound in reconcile.bind(corrections.read_log(workspace, agent)):
            if bound.record is not None and bound.record.pattern == pattern:
                yield Place(str(path.relative_to(workspace.root)), bound.entry.line)
