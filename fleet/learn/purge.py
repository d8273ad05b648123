"""Purge of a secret that was already sent, as far as a join can forget it.

What works. Every text of the lesson is overwritten by a redaction, and marks name each value of every column
(``model.edits.purge``): each machine that joins the marks drops the values, whatever the clocks are, and a push strips
the marked values from every path of the branch. On this machine every place that fleet writes is overwritten at once:
line files, private notes, databases, cached texts, refused lines, and the other files of ``.fleet``.

What cannot work. Pushed lines stay in the remote's git history, in each clone of it, and in its host's backups: people
must rewrite those. A machine that never syncs again keeps what it has. A discovery is immutable: it is retracted, so
that nobody is shown it, but its line stays. People's own files are not changed: their owners are told where the secret
still is. So a secret must be rotated first.
"""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fleet.learn import corrections_md
from fleet.model import edits, names
from fleet.model import line as codec
from fleet.model.errors import FleetError
from fleet.model.line import Carried, Line
from fleet.model.pattern import AUTHOR_OF_IMPORT, MERGED_INTO, REDACTED, Merges, fold
from fleet.store.ingest import clan_sources
from fleet.store.lines import DISCOVERIES, PATTERNS, LineReader
from fleet.store.tree import Paths
from fleet.store.workspace import Workspace, Writer
from fleet.text import screening
from fleet.text.screening import texts_in

_NO_TEXT = frozenset({codec.AT, MERGED_INTO, *(field.name for field in names.FIELDS if field.values)})
SECRETS_AT_ONCE_MAX = 200
"""Limit of lessons that one call purges of secrets: the next call purges more, and none is shown meanwhile."""
_NEEDLE_CHARS_MIN = 6  # shorter texts are in every file, and hide nothing
_FILE_BYTES_MAX = 100 * 1024 * 1024
_LEFT_ALONE = ("git", "locks", "replica.toml", "local.db")
"""Beginnings of the names in ``.fleet`` that have no text of a lesson, or are a repository."""


class Purge:
    """Purge in one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def lesson(self, writer: Writer, pattern: str) -> list[str]:
        """Mark and overwrite every text of a lesson, and retire it; return the purged texts.

        The log is counted already. Afterwards no line file here has a marked value.
        """
        texts = set[str]()
        shared = self._workspace.patterns.line(pattern)
        carried = self._workspace.db.carried(pattern)
        if shared is not None:
            texts |= _texts_of(shared)
            writer.append(PATTERNS, [_purged(shared, writer, [each for each in carried if _holds(each, texts)])])
        for agent in self._workspace.agents_here():
            if (mine := self._workspace.own_notes(agent, pattern)) is not None:
                texts |= _texts_of(mine)
                made = PATTERNS.encode(_purged(mine, writer, ())) + b"\n"
                self._workspace.files.append(self._workspace.notes_file(agent), made)
        self._strip([pattern])
        return sorted(texts - {REDACTED})

    def secrets(self, writer: Writer, patterns: Sequence[str]) -> tuple[dict[str, list[str]], str]:
        """Mark the texts of shared lessons that have a certain secret; the lessons and their other words stay.

        A field gets a redaction only if it has no other text. Only values on the branch are marked: others are held
        back here, and a person can still edit them. Doubtful secrets are only screened where they are shown, since a
        mark cannot be undone.

        Returns the kinds by lesson, and the last lesson that was read: it stops at ``SECRETS_AT_ONCE_MAX`` lessons.
        """
        leaks, last = dict[str, Line](), ""
        with self._workspace.snapshot():  # one refresh for all: a new clan brings many lessons
            for last, shared in self._workspace.patterns.shared(patterns):
                if shared is not None and not (leak := _leak(shared)).is_empty():
                    leaks[last] = leak
                if len(leaks) == SECRETS_AT_ONCE_MAX:
                    break
        for leak in leaks.values():
            self._mark(writer, leak, _redacted)
        if leaks:
            self._strip(leaks)
        return {
            each: sorted({kind for pair in leak.values() for kind in _kinds(*pair)}) for each, leak in leaks.items()
        }, last

    def merged_here(self, pattern: str) -> tuple[list[str], list[str]]:
        """Return a lesson's id with those that were merged with it here, and the ids that others merged with it."""
        ours, group = self._workspace.mine(), self._workspace.patterns.group(pattern)
        edges = [
            (each.id, each.merged_into)
            for each in self._workspace.patterns.some(group)
            if each.merged_into and each.edited.get(MERGED_INTO, ("", ""))[1] in ours
        ]
        near = next((each for each in Merges.connected(edges) if pattern in each), [pattern])
        here = [pattern, *(each for each in near if each != pattern)]
        return here, [each for each in group if each not in here]

    def repetitions(self, writer: Writer, patterns: Iterable[str], texts: Collection[str]) -> None:
        """Mark the values of other lessons that repeat purged texts, as merges copy them; their own words stay."""
        lines = [line for each in patterns if (line := self._workspace.patterns.line(each)) is not None]
        for line in lines:
            part = line.chosen(lambda field, value: _is_text(field, value) and value in texts)
            if not part.is_empty():
                self._mark(writer, part, _redaction)
                self._strip([line.id])

    def _mark(self, writer: Writer, part: Line, redact: Callable[[Any], Any]) -> None:
        """Mark the values in a part of a record, and redact each field that has no other value.

        The mark of an edit covers its writer's first wording, too: if that is the value to show here, it is set again.
        """
        policy, stamp = self._workspace.policy(), writer.tick()
        line = self._workspace.patterns.line(part.id) or part
        marks = edits.purge(part, {field: None for field, _ in part.values()}, writer.name, stamp)
        shown, left = fold(line, policy).fields, fold(line.without_purged(marks), policy).fields
        others, of_all = fold(line.without(part), policy).fields, fold(line.without(part)).fields
        new: dict[str, Any] = {}
        for field, _ in part.values():
            if field in others:
                new[field] = others[field] if left.get(field) != others[field] else None
            else:  # a value that only the policy here leaves out is a value, too: no redaction
                new[field] = redact(shown[field]) if field in shown and field not in of_all else None
        writer.append(PATTERNS, [edits.purge(part, new, writer.name, stamp)])

    def own_wordings(self, writer: Writer) -> None:
        """Purge the unsent wordings of purged lessons that this machine wrote before it knew of the purge."""
        workspace, ours = self._workspace, self._workspace.policy().mine
        purged = set(workspace.db.purged_ids())
        unsent = [each.id for each in workspace.db.outgoing() if isinstance(each, Line)] if purged else []
        for pattern in sorted(purged.intersection(unsent)):
            unaware = (workspace.patterns.line(pattern) or Line(pattern)).unaware_wordings(ours, REDACTED)
            if not unaware.is_empty():
                redacted = {field: _redaction(value) for field, value in unaware.items()}
                writer.append(PATTERNS, [edits.purge(unaware, redacted, writer.name, writer.tick())])
                self._strip([pattern])

    def _strip(self, patterns: Iterable[str]) -> None:
        """Strip marked values from the line files here, which does not change their join.

        The marks are durable before: a crash leaves too much, never too little. Content that only rows have is written
        to a file first, since the databases may be deleted.
        """
        self._workspace.take(self._workspace.tree.head())
        for source in clan_sources(self._workspace.clan):
            data = self._workspace.files.read(source.file)
            self._put(source.file, self._workspace.db.stripped(source.kind, data), data)
        for agent, pattern in product(self._workspace.agents_here(), patterns):
            if (record := self._workspace.own_notes(agent, pattern)) is not None:
                file = self._workspace.notes_file(agent)
                data = self._workspace.files.read(file)
                self._put(file, _without_marked(data, record), data)

    def _put(self, file: Path, data: bytes, before: bytes) -> None:
        if data != before:
            self._workspace.files.replace(file, data) if data else self._workspace.files.remove(file)

    def forget_unsent(self, discovery: str) -> None:
        """Drop a discovery's lines that never left this machine. The caller holds the write lock."""
        if any(getattr(entry, "id", "") == discovery for entry in self._workspace.db.outgoing()):
            for source in clan_sources(self._workspace.clan):
                if source.kind is DISCOVERIES:
                    data = self._workspace.files.read(source.file)
                    entries = LineReader().entries(DISCOVERIES, [data], source.path)
                    dropped = {raw for raw, entry in entries if entry.id == discovery}
                    rest = b"\n".join(raw for raw in data.split(b"\n") if raw.removesuffix(b"\r") not in dropped)
                    self._put(source.file, rest if dropped else data, data)

    def scrub(self, texts: Iterable[str]) -> None:
        """Overwrite the texts in fleet's own files, and delete the files that can be made again.

        Databases are deleted as files, since deleted words stay in a full-text index. The local database has no texts.
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
                data = self._workspace.files.read(path)  # refused lines, kept as base64
                kept = b"".join(raw + b"\n" for raw in data.split(b"\n") if raw and not _is_about(raw, needles))
                self._put(path, kept, data)
            elif any(needle in (data := path.read_bytes()) for needle in needles):
                for needle in needles:
                    data = data.replace(needle, REDACTED.encode())
                self._workspace.files.replace(path, data)

    def logged(self, purged: Sequence[str]) -> list[str]:
        """Return the texts that the logs have of lessons, also those that an earlier purge removed from the record."""
        return [text for each in purged for _, texts in self._entries_of(each) for text in texts]

    def remains(self, purged: Sequence[str], texts: Iterable[str]) -> list[tuple[str, int]]:
        """Return the places on this machine that still have the texts, sorted."""
        self._workspace.close()  # so that SQLite merges its journals: else a file may still have replaced content
        entries = [entry for each in purged for entry in self._entries_of(each)]
        needles = _needles({*texts, *(text for _, entry_texts in entries for text in entry_texts)})
        places = {place for place, _ in entries}
        for top in (self._workspace.clan, self._workspace.root / self._workspace.place, self._workspace.local):
            for path in filter(self._is_searched, sorted(top.rglob("*"))):
                place = path.relative_to(self._workspace.root).as_posix()
                if ".db" in path.name:
                    places |= {(place, 0)} if any(needle in path.read_bytes() for needle in needles) else set()
                else:
                    places |= {(place, number) for number in _lines_with(path.read_bytes(), needles)}
        tree = self._workspace.tree
        for name, blob in self._fetched().items():
            fetched = tree.read(blob.oid)
            if any(needle in fetched for needle in needles):
                places.add((f".fleet/git, {name} as last fetched", 0))
        carried = [entry for each in purged for entry in self._workspace.db.carried(each)]
        places |= {(f"carried: {each.id}", 0) for each in carried if any(needle in each.raw for needle in needles)}
        return sorted(places)

    def _is_searched(self, path: Path) -> bool:
        """Return whether a file is searched for texts; only the repository, locks, links and huge files are not."""
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _FILE_BYTES_MAX:
            return False
        return not any(path.is_relative_to(self._workspace.local / name) for name in ("git", "locks"))

    def _fetched(self) -> Paths:
        try:
            return self._workspace.tree.paths(self._workspace.tree.head())
        except FleetError:
            return {}

    def _entries_of(self, pattern: str) -> Iterator[tuple[tuple[str, int], tuple[str, str]]]:
        """Yield place and texts of the lesson's entries in the logs: the texts may differ from the lesson's."""
        for agent in self._workspace.agents_here():
            path = self._workspace.home(agent) / "corrections.md"
            log = corrections_md.Log.parse(self._workspace.files.page(path))
            for item in log.entries:
                if item.record is not None and item.record.pattern == pattern:
                    at = (path.relative_to(self._workspace.root).as_posix(), item.line)
                    yield at, (item.pattern, item.right)


def follow_marks(workspace: Workspace, fetched: Iterable[Line]) -> None:
    """Purge the copies of a value that this machine reissued under another replica before it knew of the purge.

    A machine whose clock ran ahead reissues its edits (``edits.reissue``). The caller holds the write lock, and takes
    the tree in only afterwards: that removes the value.
    """
    current = workspace.current_replicas()
    ours = {*current, *workspace.former_replicas()}
    for line in fetched if current else ():
        record = workspace.patterns.line(line.id) if any(name in ours for name, _ in line.marks("purge")) else None
        again = record.repeated_edits(line, ours) if record is not None else Line(line.id)
        if not again.is_empty():
            writer = workspace.writer(names.agent_of(current[0]))
            redacted = {field: _redaction(value) for field, value in again.items()}
            writer.append(PATTERNS, [edits.purge(again, redacted, writer.name, writer.tick())])


def _redaction(value: Any) -> Any:
    return [] if isinstance(value, list) else REDACTED


def _purged(line: Line, writer: Writer, carried: Iterable[Carried]) -> Line:
    """Return the delta that purges and retires a record."""
    redacted = {field: _redaction(value) for field, value in line.items() if _is_text(field, value)}
    made = edits.purge(line, redacted, writer.name, writer.tick(), [each.hash for each in carried])
    return codec.join(made, edits.retire(line, writer.name))


def _leak(line: Line) -> Line:
    """Return the wordings and edits of a record that have certain secrets."""
    if screening.is_harmless("\n".join(text for _, value in line.values() for text in texts_in(value))):
        return Line(line.id)  # the usual case
    return line.chosen(lambda field, value: bool(_kinds(field, value)))


def _kinds(field: str, value: Any) -> set[str]:
    """Return the kinds of certain secrets in a value; none if the field's name has one, which a mark would repeat."""
    kinds = {kind for text in texts_in(value) for kind in screening.certain(text)}
    return set() if kinds and screening.screen(field).secrets else kinds


def _redacted(value: Any) -> Any:
    if isinstance(value, list):
        return [screening.screen(each).text for each in value if isinstance(each, str)]
    return screening.screen(value).text if isinstance(value, str) else REDACTED


def _is_text(field: str, value: Any) -> bool:
    return field not in _NO_TEXT and not field.startswith(AUTHOR_OF_IMPORT) and any(texts_in(value))


def _texts_of(line: Line) -> set[str]:
    return {text for field, value in line.items() if _is_text(field, value) for text in texts_in(value)}


def _holds(carried: Carried, texts: Iterable[str]) -> bool:
    """Return whether a line of a newer version has one of the texts, as plain bytes or with JSON's escapes."""
    own = "\n".join(texts_in(json.loads(carried.raw)))
    return any(text in own for text in texts if len(text) >= _NEEDLE_CHARS_MIN) or any(
        needle in carried.raw for needle in _needles(texts)
    )


def _without_marked(data: bytes, record: Line) -> bytes:
    rows = []
    for raw in data.split(b"\n"):
        entry = LineReader().entry(PATTERNS, raw, "", 0) if record.id.encode() in raw else None
        is_ours = isinstance(entry, Line) and entry.id == record.id
        rows.append(codec.encode(entry.without_purged(record)) if isinstance(entry, Line) and is_ours else raw)
    return b"\n".join(rows)


def _is_about(raw: bytes, needles: list[bytes]) -> bool:
    try:
        refused = base64.b64decode(json.loads(raw)["bytes"])
    except (ValueError, KeyError, TypeError):
        refused = raw
    return any(needle in refused for needle in needles)


def _needles(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as bytes, plain and escaped as in JSON, the longest first."""
    long = [text for text in texts if len(text) >= _NEEDLE_CHARS_MIN]
    plain = {*long, *map(screening.one_line, long)}
    escaped = {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in plain for is_ascii in (True, False)}
    needles = {text.encode("utf-8", "replace") for text in plain | escaped}
    return sorted(needles, key=lambda each: (-len(each), each))


def _lines_with(data: bytes, needles: list[bytes]) -> Iterator[int]:
    if any(needle in data for needle in needles):
        for number, raw in enumerate(data.split(b"\n"), 1):
            if any(needle in raw for needle in needles):
                yield number
