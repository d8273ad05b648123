"""Import of foreign records: each counts once, on however many machines and however often it is imported.

A record's count is a part without an owner (``model.line``), under the hash of the record's content: two machines that
import the same record each have the part in their own column, and the fold counts it once.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crdt import clock
from fleet.learn import corrections_md, notes
from fleet.learn.counting import CountedLog, add_stamp
from fleet.learn.formats import KEYS, Bad, Finding, Item, Lesson, read_beside, read_records
from fleet.learn.notes import SkippedPiece
from fleet.model import edits, limits, names
from fleet.model.discovery import Discovery
from fleet.model.line import BadLineError, Line, Refused, check_value, join
from fleet.model.pattern import fold
from fleet.store.files import LEFT_OUT, modified_ms
from fleet.store.lines import DISCOVERIES
from fleet.store.runs import Draft, Field
from fleet.store.workspace import Workspace, Writer
from fleet.text import screening

UNDATED_MS = 0
"""Date of a discovery without one: 1970, the same everywhere, shown as undated. A lesson gets its file's date."""

FILE_BYTES_MAX = 256 * 1024 * 1024
_WINDOW, _SAMPLE_CHARS = limits.SIGNAL_WINDOW_CHARS, 80
_NOT_LISTED = frozenset({notes.HEADING, notes.ABOUT, notes.TEMPLATE})


class Piece(msgspec.Struct, frozen=True):
    """A piece of a file that was imported, or left out for a ``reason``; then ``text`` is only its beginning.

    ``category``: the category of a lesson, or the type of a finding.
    """

    path: str
    line: int
    text: str
    reason: str = ""
    category: str = ""


class ImportResult(msgspec.Struct):
    """Outcome of an import.

    Attributes:
        patterns: lessons read, and how many of those records had not been counted here.
        discoveries: findings read, and how many were new here.
        skipped: number of records that were understood, and left out on purpose, by reason.
        redacted: number of records from which a secret was removed.
        stated: ids of the lessons and findings that this import made present.
        retired: ids of lessons that were read again and stay retired here.
        parts: for each new part: the lesson's id, hash and writer's digits of the part, and the earlier count.
        pieces: all pieces in order, file by file.
        files: number of imported records, by file.
    """

    patterns: int = 0
    patterns_new: int = 0
    discoveries: int = 0
    discoveries_new: int = 0
    skipped: dict[str, int] = {}
    refused: list[Refused] = []
    redacted: int = 0
    stated: list[str] = []
    retired: list[str] = []
    parts: list[tuple[str, str, int]] = []
    pieces: list[Piece] = []
    files: dict[str, int] = {}

    @classmethod
    def preview(cls, files: list[Path]) -> "ImportResult":
        """Return the outcome that an import of these files would have; nothing is written."""
        imported = cls(files={str(path): 0 for path in files})
        for path in files:
            for item in _items(path):
                imported.add(item, str(path))
        return imported

    def add(self, item: Item, path: str) -> None:
        """Add a piece of a file."""
        self.files.setdefault(path, 0)
        if isinstance(item, SkippedPiece | Bad):
            text = item.text if isinstance(item, SkippedPiece) else item.raw[:_WINDOW].decode("utf-8", "replace")
            # Screened before it is cut, since half of a secret would not be recognised.
            begins = screening.screened(text[:_WINDOW])[:_SAMPLE_CHARS]
            self.pieces.append(Piece(path, item.line, begins, item.reason))
        else:
            is_lesson = isinstance(item, Lesson)
            named = (item.text, item.category) if isinstance(item, Lesson) else (item.entry.problem, item.entry.type)
            self.pieces.append(Piece(path, item.line, named[0], category=named[1]))
            self.patterns, self.discoveries = self.patterns + is_lesson, self.discoveries + (not is_lesson)
            self.files[path] += 1
        if isinstance(item, SkippedPiece):
            self.skipped[item.reason] = self.skipped.get(item.reason, 0) + 1
        elif isinstance(item, Bad):
            self.refused.append(Refused(path, item.line, item.reason, item.raw))

    @property
    def left_out(self) -> list[Piece]:
        """Pieces that were left out, except headings, templates and remarks on the page."""
        return [each for each in self.pieces if each.reason and each.reason not in _NOT_LISTED]

    def note(self, draft: Draft) -> None:
        """Add the outcome to a run's draft: an undo of the run removes the parts and retires the lessons."""
        taken = {*self.stated, *(each for each, _, _ in self.parts)}
        number = screening.counted(len(taken), "lesson or finding", "lessons and findings")
        draft.summary, draft.lessons = f"imported {number}", self.stated
        draft.fields = [Field(each, "part", None, part) for each, part, _ in self.parts]
        draft.fields += [Field(each, "seen", seen, None) for each, _, seen in self.parts if each in self.stated]


def files_in(workspace: Workspace, paths: list[Path]) -> list[Path]:
    """Return the files to read: the given files, and of given folders the files with a known suffix or name, in order.

    In a project's folder, only files count whose names are about lessons. The files of fleet (its pages, and the homes
    of the agents), of git and of package managers are left out.
    """
    homes = map(workspace.home, workspace.agents_here())
    own_folders = [folder.resolve() for folder in (workspace.clan, workspace.local, *homes)]
    files: list[Path] = []
    for path in paths:
        files += _files_below(path, own_folders) if path.is_dir() else [path]
    return files


def _files_below(root: Path, own_folders: list[Path]) -> Iterator[Path]:
    is_project = any((root / name).exists() for name in (".git", "fleet.toml", ".fleet"))
    paths, real_root, of_a_project = [], root.resolve(), f"(?i){'|'.join(KEYS['project'])}"
    for folder, names_below, files in os.walk(root):
        names_below[:] = [name for name in names_below if name not in KEYS["never"]]
        paths += [Path(folder, name) for name in files]
    for path in sorted(paths):
        if path.suffix.casefold() not in KEYS["objects"] + KEYS["pages"] and path.name.casefold() not in KEYS["files"]:
            continue
        if is_project and not re.search(of_a_project, path.relative_to(root).as_posix()):
            continue
        try:
            real = path.resolve(strict=True)
            is_own = any(map(real.is_relative_to, own_folders))
            if not is_own and real.is_relative_to(real_root) and real.is_file():
                yield path  # links out of the folder are not followed: they could have a private file sent
        except FileNotFoundError:
            continue  # a link to nothing, such as the lock of an editor
        except (OSError, RuntimeError):  # a loop of links raises one or the other, depending on Python's version
            yield path  # the attempt to read it reports the reason


def import_files(writer: Writer, files: list[Path], progress: Callable[[Path], object] = bool) -> ImportResult:
    """Read files and write the new records to the agent's shard. The log is counted already.

    A lesson without an author gets the importer as its author; one without a date gets the file's.

    Raises:
        DiskError: nothing of it was acknowledged.
    """
    run = _Import(writer)
    for path in files:
        progress(path)
        run.take(_items(path), path)
    run.write()
    return run.done


class LogPage:
    """Log of an agent as a page, which may have lessons in any other form beside its own entries."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent
        self._path = CountedLog(workspace, agent).log_file()

    def take(self) -> ImportResult:
        """Import the lessons in an agent's log that are not in the log's own form, each once.

        The log is counted already, and is not changed. Raises as ``import_files``.
        """
        page, key = self._workspace.files.page(self._path), f"beside {self._agent}"
        known, imported = self._workspace.db.noted(key), ImportResult()
        size, page_hash, rest_hash = known.split(" ") if known.count(" ") == 2 else ("0", "", "")
        # The part that was read before is parsed again only if it changed, or if anything but own entries follows it.
        if page and (_digest(page[: int(size)]) != page_hash or _without_own(page[int(size) :])):
            rest_hash_before, rest_hash = rest_hash, _digest(_without_own(page))
            if rest_hash != rest_hash_before:
                with self._workspace.writing(self._agent) as writer:
                    run = _Import(writer)
                    run.take(_beside(page), self._path)
                    run.write()
                    imported = run.done
        if (noted := f"{len(page)} {_digest(page)} {rest_hash}") != known:
            self._workspace.db.note(key, noted)
        return imported

    def left_out(self) -> list[Piece]:
        """Return the pieces in an agent's log that are neither entries nor lessons."""
        imported = ImportResult()
        for item in _beside(self._workspace.files.page(self._path)):
            imported.add(item, self._path.relative_to(self._workspace.root).as_posix())
        return imported.left_out


def _without_own(page: bytes) -> bytes:
    """Return what a sync may have to name: the lines of a page outside its own entries, and what is wrong in these."""
    lines, entries = corrections_md.blank_entries(page, is_waiting_own=True)
    lines += [entry.content.encode() for entry, _ in entries if entry.unread or entry.is_waiting]
    lines += [match[0] for match in re.finditer(LEFT_OUT, page)]
    return b"".join(line for line in lines if line.strip() and not line.startswith(b"<!-- fleet "))


def _beside(page: bytes) -> Iterator[Item]:
    for item in read_beside(page):
        if isinstance(item, Lesson) and screening.injected_id(item.text):
            yield SkippedPiece(item.line, "fleet showed it, and an echo is no new lesson", item.text)
        else:
            yield item


def _items(path: Path) -> Iterator[Item]:
    try:
        is_large = path.stat().st_size > FILE_BYTES_MAX
        if is_large or not path.is_file():
            yield Bad(0, f"larger than {FILE_BYTES_MAX >> 20} MiB" if is_large else "no plain file", b"")
            return
        data = path.read_bytes()
    except OSError as why:
        yield Bad(0, f"cannot be read: {why.strerror}", b"")
        return
    yield from read_records(path.name, data)


class _Import:
    """One import while it runs."""

    def __init__(self, writer: Writer) -> None:
        self.done = ImportResult()
        self._writer = writer
        self._workspace: Workspace = writer.workspace
        self._records: dict[tuple[str, str], tuple[Lesson, dict[str, object]]] = {}
        self._findings: dict[str, Discovery] = {}

    def take(self, items: Iterable[Item], path: Path) -> None:
        """Add the records of a file."""
        self.done.files[str(path)] = 0
        file_ms = UNDATED_MS
        with suppress(OSError):
            file_ms = modified_ms(path)
        for original in items:
            item = original
            try:
                if isinstance(item, Lesson):
                    item = self._take_lesson(item if self._is_date(item.at_ms) else replace(item, at_ms=file_ms))
                elif isinstance(item, Finding):
                    item = self._take_finding(item)
            except BadLineError as why:
                item = Bad(original.line, str(why), getattr(original, "identity", "").encode())
            self.done.add(item, str(path))

    def _take_lesson(self, item: Lesson) -> Lesson | SkippedPiece:
        fields, had_secret = _fields(item)
        pattern = self._workspace.same_text(self._writer.agent, str(fields["text"]))
        # A correction of another fleet's log may be counted here, under the replica that logged it.
        counted = self._workspace.patterns.get(pattern) if item.replica else None
        if counted is not None and counted.own("seen", item.replica) > 0:
            return SkippedPiece(item.line, "already counted by fleet", item.text)
        self.done.redacted += had_secret
        key = (pattern, _hash(item.identity))
        previous = self._records.get(key)
        # Of two copies of a record with different counts, the larger count is taken, never the sum.
        if previous is None or item.seen > previous[0].seen:
            self._records[key] = (item, fields)
        return item

    def _take_finding(self, item: Finding) -> Finding | SkippedPiece:
        screened = {name: _clean(getattr(item.entry, name)) for name in ("context", "problem", "solution")}
        self.done.redacted += any(was_secret for _, was_secret in screened.values())
        texts: dict[str, object] = {name: text for name, (text, _) in screened.items()}
        _checked(texts)
        author = item.agent if names.is_agent(item.agent) else names.IMPORT
        entry = replace(item.entry, **texts, at=self._stamp(item.at_ms), tags=tuple(_tags(item.entry.tags)))
        entry = replace(entry, id=entry.own_id(), by=entry.imported_by(author))
        if entry.id in self._workspace.discoveries.retracted():
            return SkippedPiece(item.line, "a discovery that was taken back, which is for good", entry.problem)
        previous = self._findings.get(entry.id)
        if previous is None or entry.at < previous.at:
            self._findings[entry.id] = entry
        return item

    def write(self) -> None:
        """Write the records that are new here."""
        new = [entry for entry in self._findings.values() if self._workspace.discoveries.get(entry.id) is None]
        lines = self._lines()
        self.done.patterns_new, self.done.discoveries_new = len(lines), len(new)
        self.done.stated += [each.id for each in new]
        self._writer.write(lines)
        self._writer.append(DISCOVERIES, new)
        self._workspace.quarantine.keep(self.done.refused, self._workspace.wall())

    def _lines(self) -> list[Line]:
        """Return the records that are new here, as lines with one stamp. A larger count alone restores no lesson."""
        lines: list[Line] = []
        stamp = add_stamp(self._writer) if self._records else ""
        records_here: dict[str, Line] = {}
        for (pattern, hash_), (item, fields) in self._records.items():
            if pattern not in records_here:
                records_here[pattern] = self._workspace.record(self._writer.agent, pattern) or Line(pattern)
            record = records_here[pattern]
            counted, lesson = record.part("seen", hash_), fold(record)
            if counted and not lesson.is_present and pattern not in self.done.retired:
                self.done.retired.append(pattern)
            if counted >= item.seen:
                continue
            line = edits.part(
                record,
                hash_,
                fields,
                self._writer.name,
                "" if counted else stamp,
                seen=item.seen,
                at=self._stamp(item.at_ms),
                author=item.agent if names.is_agent(item.agent) else self._writer.agent,
            )
            part = f"{hash_} {self._writer.name.rpartition('.')[2]}"
            self.done.parts.append((pattern, part, lesson.count("seen")))
            if not counted and not lesson.is_present and pattern not in self.done.stated:
                self.done.stated.append(pattern)
            records_here[pattern] = join(record, line)
            lines.append(line)
        return lines

    def _stamp(self, at_ms: int | None) -> str:
        """Return a record's date as a stamp. One from the future counts as undated."""
        return clock.pack(at_ms if at_ms is not None and self._is_date(at_ms) else UNDATED_MS)

    def _is_date(self, at_ms: int | None) -> bool:
        """Return whether a record may have been made at that time: not in the future, and not before 1970."""
        latest = self._workspace.world.wall_ms() + limits.AHEAD_HOURS_MAX * 3_600_000
        return at_ms is not None and UNDATED_MS <= at_ms <= latest


def _fields(item: Lesson) -> tuple[dict[str, object], bool]:
    """Return the fields of a record, screened, and whether one had a secret."""
    text, had_secret = _clean(item.text)
    fields: dict[str, object] = {"text": text}
    for name, value in (("correct", item.correct), ("title", item.title), ("category", item.category)):
        clean, was_secret = _clean(value)
        had_secret = had_secret or was_secret
        if clean and clean != text:
            fields[name] = clean
    if tags := _tags(item.tags):
        fields["tags"] = tags
    return _checked(fields), had_secret


def _clean(text: str) -> tuple[str, bool]:
    # The home folder is not replaced here: every machine must make the same line of this record.
    screened = screening.screen(text)
    return screening.one_line(screened.text), bool(screened.secrets)


def _tags(tags: tuple[str, ...]) -> list[str]:
    return sorted({clean for tag in tags if (clean := _clean(tag)[0])})[: limits.TAGS_MAX]


def _checked(fields: dict[str, object]) -> dict[str, object]:
    for name, value in fields.items():
        check_value(name, value)
    if not (fields.get("text") or fields.get("problem")):
        raise BadLineError("nothing is left of its text after screening")
    return fields


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _hash(identity: str) -> str:
    """Return the hash of a record as 16 hex digits: 8 of its content's hash, as in ``agent.<8 hex>``, and 8 zeros.

    fleet 0.1 used 8 digits: a record that it imported must give the same part again (``model.version_1``).
    """
    return hashlib.blake2b(identity.encode(), digest_size=4).hexdigest() + "00000000"
