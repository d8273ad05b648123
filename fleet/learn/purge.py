"""Purge of a secret that already went out: as far as a join can forget.

What works. Every text of the lesson is overwritten by a redaction, and marks name each value that anybody's column held
(``model.edits.purge``): whoever joins the marks drops the values, whatever the clocks say, and a push strips what marks
cover from every path of the branch. On this machine every place that fleet writes is overwritten at once: line files,
private notes, databases, ready-made texts, what was refused, and what lies in ``.fleet`` for other reasons.

What cannot work. Lines that were pushed lie in the remote's git history, in each clone of it, and in its host's
backups: rewriting that is for people, and is told, not done. A machine that never syncs again keeps what it has. A
discovery is immutable: it is taken back, so that nobody is shown it, but its line stays and would be sent again by
whoever has it. People's own files are theirs: they are told where it still stands. So a secret must be rotated first.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fleet.learn import corrections_md
from fleet.model import edits, names
from fleet.model import line as codec
from fleet.model.errors import FleetError
from fleet.model.line import Carried, Line
from fleet.model.pattern import AUTHOR_OF_IMPORT, REDACTED, fold
from fleet.store.ingest import clan_sources
from fleet.store.lines import DISCOVERIES, PATTERNS, Read
from fleet.store.tree import Paths
from fleet.store.workspace import Workspace, Writer
from fleet.text import screening
from fleet.text.screening import texts_in

_NO_TEXT = frozenset({codec.AT, "merged_into", "scope", "state"})
SECRETS_AT_ONCE_MAX = 200
"""So many lessons are purged of secrets by one look: the others by the next one, and none is shown meanwhile."""
_NEEDLE_CHARS_MIN = 6  # shorter ones stand everywhere, and hide nothing
_FILE_BYTES_MAX = 100 * 1024 * 1024
_LEFT_ALONE = ("git", "locks", "replica.toml", "local.db")
"""Beginnings of what in ``.fleet`` holds no text of a lesson, or is not made of files."""


class Purge:
    """Purge in one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def lesson(self, writer: Writer, pattern: str) -> list[str]:
        """Mark and overwrite every text of a lesson, and retire it; return the texts that are to be gone.

        The log is counted already. Afterwards no line file here holds a value that is marked.
        """
        texts = set[str]()
        shared = self._workspace.patterns.line(pattern)
        carried = self._workspace.db.carried(pattern)
        if shared is not None:
            texts |= _said_in(shared)
            gone = [each for each in carried if _holds(each, texts)]
            writer.append(PATTERNS, [_purged(shared, writer, gone)])
        for agent in self._workspace.agents_here():
            mine = self._workspace.notes(agent).line(pattern) if self._workspace.notes_file(agent).is_file() else None
            if mine is not None:
                texts |= _said_in(mine)
                made = PATTERNS.encode(_purged(mine, writer, ())) + b"\n"
                self._workspace.files.append(self._workspace.notes_file(agent), made)
        # On the disk before anything is taken out: a crash in between leaves too much, never too little. What rows
        # alone know goes into a file first, since the databases will be deleted.
        self._workspace.take(self._workspace.tree.head())
        self._strip(pattern)
        return sorted(texts - {REDACTED})

    def secrets(self, writer: Writer, patterns: Sequence[str]) -> tuple[dict[str, list[str]], str]:
        """Mark, for everybody, the texts of shared lessons that carry a certain secret as it stands.

        What the branch does not have yet is not marked: it is held back here, and a person can still mend it.

        Returns the kinds by lesson, and the last lesson that was looked at: after ``SECRETS_AT_ONCE_MAX`` finds it
        stops. What is left of each text is said instead, with the secret redacted; the lesson stays in. Doubtful
        secrets are left to the screening of whoever shows them: a mark cannot be taken back.
        """
        found, last = dict[str, dict[str, list[str]]](), ""
        with self._workspace.snapshot():  # a clan that comes for the first time brings many
            for last, shared in self._workspace.patterns.shared(patterns):
                if shared is not None and (kinds := _secrets(shared)):
                    found[last] = kinds
                if len(found) == SECRETS_AT_ONCE_MAX:
                    break
        for pattern, kinds in found.items():
            if (line := self._workspace.patterns.line(pattern)) is not None:
                shown = fold(line).fields
                redacted = {field: _redacted(shown.get(field)) for field in kinds}
                writer.append(PATTERNS, [edits.purge(line, redacted, writer.name, writer.tick())])
        if found:
            self._workspace.take(self._workspace.tree.head())
            for pattern in found:
                self._strip(pattern)
        marked = {each: sorted({kind for told in kinds.values() for kind in told}) for each, kinds in found.items()}
        return marked, last

    def _strip(self, pattern: str) -> None:
        """Take out of the line files here what marks cover: the join of them stays what it is."""
        for source in clan_sources(self._workspace.clan):
            data = self._workspace.files.read(source.file)
            self._put(source.file, self._workspace.db.stripped(source.kind, data), data)
        for agent in self._workspace.agents_here():
            file = self._workspace.notes_file(agent)
            whole = self._workspace.notes(agent).line(pattern) if file.is_file() else None
            if whole is not None:
                data = self._workspace.files.read(file)
                self._put(file, _without_marked(data, whole), data)

    def _put(self, file: Path, data: bytes, before: bytes) -> None:
        if data != before:
            self._workspace.files.replace(file, data) if data else self._workspace.files.remove(file)

    def forget_unsent(self, discovery: str) -> None:
        """Drop a discovery's lines that never left this machine. The caller holds the write lock."""
        if any(getattr(entry, "id", "") == discovery for entry in self._workspace.db.outgoing()):
            for source in clan_sources(self._workspace.clan):
                if source.kind is DISCOVERIES:
                    data = self._workspace.files.read(source.file)
                    found = Read().entries(DISCOVERIES, [data], source.path)
                    gone = {raw for raw, entry in found if entry.id == discovery}
                    kept = b"\n".join(raw for raw in data.split(b"\n") if raw.removesuffix(b"\r") not in gone)
                    self._put(source.file, kept if gone else data, data)

    def scrub(self, texts: Iterable[str]) -> None:
        """Overwrite the texts in what fleet keeps for itself, and delete what it can make anew.

        The databases go as files, all three of each: words that were deleted stay in a full-text index, whatever is
        rebuilt. The local database holds ids, and no text.
        """
        needles = _needles(texts)
        self._workspace.close()
        for path in sorted(self._workspace.local.rglob("*")):
            top = path.relative_to(self._workspace.local).parts[0]
            if top.startswith(_LEFT_ALONE) or path.is_symlink() or not path.is_file():
                continue
            if ".db" in path.name or top == "ready":
                path.unlink(missing_ok=True)
            elif top == "quarantine":
                self._scrub_refused(path, needles)
            elif any(needle in (data := path.read_bytes()) for needle in needles):
                for needle in needles:
                    data = data.replace(needle, REDACTED.encode())
                self._workspace.files.replace(path, data)

    def _scrub_refused(self, path: Path, needles: list[bytes]) -> None:
        """Drop the refused lines that hold a purged text: they are kept as base64."""
        data = self._workspace.files.read(path)
        kept = b"".join(raw + b"\n" for raw in data.split(b"\n") if raw and not _is_about(raw, needles))
        self._put(path, kept, data)

    def remains(self, purged: Sequence[str], texts: Iterable[str]) -> list[tuple[str, int]]:
        """Return where the texts still stand on this machine, sorted. Nobody's own file is ever changed."""
        entries = [entry for each in purged for entry in self._entries_of(each)]
        # What the logs told is known even where a purge before this one took it out of the record.
        needles = _needles({*texts, *(text for _, told in entries for text in told)})
        found = {place for place, _ in entries}
        for top in (self._workspace.clan, self._workspace.root / self._workspace.place, self._workspace.local):
            for path in sorted(top.rglob("*")) if top.is_dir() else []:
                if not self._is_looked_at(path):
                    continue
                at = path.relative_to(self._workspace.root).as_posix()
                if ".db" in path.name:
                    found |= {(at, 0)} if any(needle in path.read_bytes() for needle in needles) else set()
                else:
                    found |= {(at, number) for number in _lines_with(path.read_bytes(), needles)}
        tree = self._workspace.tree
        for name, blob in self._fetched().items():
            fetched = tree.read(blob.oid)
            if any(needle in fetched for needle in needles):
                found.add((f".fleet/git, {name} as last fetched", 0))
        carried = [entry for each in purged for entry in self._workspace.db.carried(each)]
        found |= {(f"carried: {each.id}", 0) for each in carried if any(needle in each.raw for needle in needles)}
        return sorted(found)

    def _is_looked_at(self, path: Path) -> bool:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _FILE_BYTES_MAX:
            return False
        if path.is_relative_to(self._workspace.local):
            return path.relative_to(self._workspace.local).parts[0] not in ("git", "locks")
        return True

    def _fetched(self) -> Paths:
        try:
            return self._workspace.tree.paths(self._workspace.tree.head())
        except FleetError:
            return {}

    def _entries_of(self, pattern: str) -> Iterator[tuple[tuple[str, int], tuple[str, str]]]:
        """Yield the entries of the logs that told the lesson, and their words: these may differ from the lesson's."""
        for agent in self._workspace.agents_here():
            path = self._workspace.home(agent) / "corrections.md"
            log = corrections_md.Log.parse(self._workspace.files.read(path))
            for bound in log.bound():
                if bound.record is not None and bound.record.pattern == pattern:
                    at = (path.relative_to(self._workspace.root).as_posix(), bound.entry.line)
                    yield at, (bound.entry.pattern, bound.entry.right)


def follow_marks(workspace: Workspace, fetched: Iterable[Line]) -> None:
    """Purge what we said again of a value that somebody else purged under the name by which we said it first.

    A replica whose clock ran ahead says its edits again under another name (``edits.reissue``), and may not know of
    the purge by then. The caller holds the write lock, and takes the tree in afterwards: then the value is gone.
    """
    current = workspace.current_replicas()
    ours = {*current, *workspace.former_replicas()}
    for line in fetched if current else ():
        is_about_ours = any(name in ours for name, _ in line.purges())
        known = workspace.patterns.line(line.id) if is_about_ours else None
        again = known.repeated_edits(line, ours) if known is not None else Line(line.id)
        if not again.is_empty():
            writer = workspace.writer(names.agent_of(current[0]))
            redacted = {field: _redaction(value) for field, value in again.items()}
            writer.append(PATTERNS, [edits.purge(again, redacted, writer.name, writer.tick())])


def _redaction(value: Any) -> Any:
    return [] if isinstance(value, list) else REDACTED


def _purged(line: Line, writer: Writer, carried: Iterable[Carried]) -> Line:
    """Return the delta that purges and retires a record."""
    redacted: dict[str, Any] = {}
    for field, value in line.items():
        if _is_text(field, value):
            redacted[field] = _redaction(value)
    made = edits.purge(line, redacted, writer.name, writer.tick(), [each.hash for each in carried])
    return codec.join(made, edits.retire(line, writer.name)) if fold(line).is_present else made


def _secrets(line: Line) -> dict[str, list[str]]:
    """Return the kinds of certain secrets in what a record says, by field."""
    said = list(line.items())
    if screening.is_harmless("\n".join(text for _, value in said for text in texts_in(value))):
        return {}  # as most are: one look at all of it
    found = ((field, {kind for text in texts_in(value) for kind in screening.certain(text)}) for field, value in said)
    return {field: sorted(kinds) for field, kinds in found if kinds}


def _redacted(value: Any) -> Any:
    if isinstance(value, list):
        return [screening.screen(each).text for each in value if isinstance(each, str)]
    return screening.screen(value).text if isinstance(value, str) else REDACTED


def _is_text(field: str, value: Any) -> bool:
    return field not in _NO_TEXT and not field.startswith(AUTHOR_OF_IMPORT) and any(texts_in(value))


def _said_in(line: Line) -> set[str]:
    return {text for field, value in line.items() if _is_text(field, value) for text in texts_in(value)}


def _holds(carried: Carried, texts: Iterable[str]) -> bool:
    """Tell whether a line of a newer version holds one of the texts, as bytes or behind JSON's escapes."""
    said = "\n".join(texts_in(json.loads(carried.raw)))
    return any(text in said for text in texts if len(text) >= _NEEDLE_CHARS_MIN) or any(
        needle in carried.raw for needle in _needles(texts)
    )


def _without_marked(data: bytes, whole: Line) -> bytes:
    rows = []
    for raw in data.split(b"\n"):
        entry = Read().entry(PATTERNS, raw, "", 0) if whole.id.encode() in raw else None
        is_ours = isinstance(entry, Line) and entry.id == whole.id
        rows.append(codec.encode(entry.without_purged(whole)) if isinstance(entry, Line) and is_ours else raw)
    return b"\n".join(rows)


def _is_about(raw: bytes, needles: list[bytes]) -> bool:
    try:
        refused = base64.b64decode(json.loads(raw)["bytes"])
    except (ValueError, KeyError, TypeError):
        refused = raw
    return any(needle in refused for needle in needles)


def _needles(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as files may hold them, as they are and as JSON writes them, the longest first."""
    forms: list[Callable[[str], bytes]] = [
        lambda text: text.encode("utf-8", "replace"),
        lambda text: json.dumps(text)[1:-1].encode(),
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace"),
    ]
    long = [text for text in texts if len(text) >= _NEEDLE_CHARS_MIN]
    wanted = {*long, *map(screening.one_line, long)}
    return sorted({form(text) for text in wanted for form in forms}, key=lambda each: (-len(each), each))


def _lines_with(data: bytes, needles: list[bytes]) -> Iterator[int]:
    if any(needle in data for needle in needles):
        for number, raw in enumerate(data.split(b"\n"), 1):
            if any(needle in raw for needle in needles):
                yield number
