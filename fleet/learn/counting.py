"""Counting of ``corrections.md``: from the log's records to the clan's, nothing twice and nothing lost.

Every entry of a log has one record: which replica counted it, for which pattern, and when. A
replica's own totals are raised by the records that are newer than its column, whoever wrote them: a predecessor's
column is raised by its successor in the same log. An entry that somebody wrote by hand is a part, keyed by its heading
and its lesson: copies of a log count it once, and so does a log from which an editor wipes the record while the entry
is still being worded. Deleting an entry lowers no count, a lost database or a crash recounts none, and a retired lesson
does not come back by itself.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from crdt import clock
from fleet.learn import corrections_md
from fleet.learn.corrections_md import MOVED, PART, RELAPSED, Bound, Entry, Log, Record
from fleet.model import edits, limits
from fleet.model import line as lines
from fleet.model.errors import BusyError
from fleet.model.line import Line
from fleet.model.names import normalise, pattern_id
from fleet.model.pattern import PRIVATE, fold
from fleet.store.workspace import Workspace, Writer
from fleet.text import dates, screening

WAIT_S = 0.3
"""So long a correction waits for another process that counts, or brings the rows up to date."""
MINUTE_MS = 60_000
_MOVING = "moving"  # key in local.db: a row of agent, id and new scope for each that is made private, or the clan's
_SHAREABLE = ("wrong", "source")  # fields of an entry that stay here unless ``[share] fields`` names them


def _note_key(agent: str) -> str:
    """Return the name of the note that tells how far an agent's log is counted."""
    return f"log {agent}"


class _Occurrence(NamedTuple):
    """One counted entry: of which pattern, when the mistake was made, and whether the lesson had been shown before."""

    pattern: str
    at_ms: int
    is_relapse: bool


class CountedLog:
    """An agent's log of corrections, and what was counted of it."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    def log_file(self) -> Path:
        """Return the path of an agent's log."""
        return self._workspace.home(self._agent) / corrections_md.FILE_NAME

    def read_log(self) -> Log:
        """Return an agent's log; an agent without one has an empty log."""
        return corrections_md.Log.parse(self._workspace.files.read(self.log_file()))

    def unfilled(self, days: float = 0.0) -> int:
        """Return how many entries of an agent's log wait for a lesson that somebody is asked for (``Signals.waiting``).

        They count for nothing until it is stated.

        ``days``: leave out what is older; 0 leaves out nothing for its age.
        """
        page = self._workspace.files.read(self.log_file())
        if not page or not _read_since(_read_note(self._workspace, self._agent), page).waiting:
            return 0
        from fleet.learn.signals import Signals  # a correction flags nothing

        return len(Signals(self._workspace, self._agent).waiting(days=days))

    def forget_count(self) -> None:
        """Forget how far the log is counted: ``reconcile`` counts all of it again, nothing twice."""
        self._workspace.db.note(_note_key(self._agent), "")

    def move(self, each: str, scope: str) -> None:
        """Make a lesson private, or the clan's, and count it where it stands. The caller holds the write lock."""
        note_moves(self._workspace, [(self._agent, each, scope)])
        _finish_moves(self._workspace)

    def edited(self) -> list[Record]:
        """Return the records of the entries that somebody has edited since they were counted: each counts as it did."""
        return [each.record for each in self.read_log().bound() if each.record is not None and each.is_edited]

    def mark(self, entry: str, *, is_undone: bool) -> bool | None:
        """Say in an agent's log that an entry was undone, or is stated again; it counts so from the next counting on.

        Returns:
            Whether the log did not say so yet; None where the log has no record of the entry any more.
        """
        log = self.read_log()
        record = next((each for each in Record.latest(log.records) if each.id == entry), None)
        if record is None:
            return None
        line = self._workspace.record(self._agent, record.pattern) or Line(record.pattern)
        told = line.undo_count(record.replica, "seen", _part_keys(self._agent, log.records)[entry])
        path = self.log_file()
        with self._workspace.log_lock(self._agent):
            number = max(told, self.read_log().marks.get(entry, 0))
            if number % 2 == is_undone:
                return False
            row = corrections_md.format_mark(entry, number + 1, self._workspace.wall())
            self._workspace.files.append(path, f"\n{row}\n".encode())
        return True

    def rights(self) -> dict[str, str]:
        """Return the right way by pattern, as it was last told in an agent's log."""
        counted = ((bound.record, bound.entry) for bound in self.read_log().bound())
        return {record.pattern: way for record, entry in counted if record is not None and (way := _clean(entry.right))}

    def occurrences(self) -> Iterator[_Occurrence]:
        """Yield what the records of an agent's log say, in file order; a deleted entry's counts on, an undone one not.

        A mistake was made when its record was written, unless the entry tells of an earlier time: a heading is exact to
        the minute only.
        """
        log = self.read_log()
        told = {bound.record.id: bound.entry.when for bound in log.bound() if bound.record is not None}
        for record in Record.latest(log.records):
            if log.is_undone(record.id):
                continue
            at_ms = clock.unpack(record.at)[0]
            heading_ms = dates.to_ms(told.get(record.id, ""))
            if heading_ms is not None and heading_ms < at_ms - MINUTE_MS:
                at_ms = heading_ms
            yield _Occurrence(record.pattern, at_ms, RELAPSED in record.extra)

    def auto_detected(self) -> set[str]:
        """Return the lessons of an agent's log that only entries state which were detected, and not logged."""
        by_kind: dict[bool, set[str]] = {True: set(), False: set()}
        for bound in self.read_log().bound():
            if bound.record is not None:
                by_kind[bound.entry.auto].add(bound.record.pattern)
        return by_kind[True] - by_kind[False]


def reconcile(writer: Writer) -> int:
    """Count what an agent's log has and the records lack: to be done before any other add is issued.

    Entries that were written by hand get their record, at the end of the file. The caller holds the write lock.

    Returns:
        How many lines were written to the shard.

    Raises:
        BusyError: another process brings the rows up to date: a total that is issued now could be an old one.
    """
    workspace = writer.workspace
    if workspace.is_guest(writer.agent):
        return 0
    with workspace.snapshot(WAIT_S) as is_current:
        if not is_current:
            raise BusyError(
                "another process brings this clan's records up to date; the log is counted with the next command"
            )
        backlog = _Backlog(writer)
        while not backlog.append_records():
            pass
        missing = backlog.lines()
        # The log has all of it, on the disk: what a power failure takes from the shard is written anew from there.
        writer.write(missing, is_durable=False)
    backlog.note()
    return len(missing)


def reconcile_all(workspace: Workspace) -> int:
    """Count the logs of all agents that write here; return how many lines were written."""
    if workspace.is_read_only:
        return 0
    if workspace.state.get(_MOVING):
        with workspace.locked():
            _finish_moves(workspace)
    owed = 0
    default = workspace.replicas().default_agent
    for agent in sorted({*workspace.agents_here(), *([default] if default else [])}):
        page = workspace.files.read(CountedLog(workspace, agent).log_file())
        if page and not _read_note(workspace, agent).covers(page):
            with workspace.writing(agent) as writer:
                owed += reconcile(writer)
    return owed


def note_moves(workspace: Workspace, moves: Iterable[tuple[str, str, str]]) -> None:
    """Note agent, id and new scope of what becomes private, or the clan's: whoever counts next finishes it."""
    workspace.state.put(**{_MOVING: "\n".join(map(" ".join, moves))})


def _finish_moves(workspace: Workspace) -> None:
    """Make private, or the clan's, what was noted, and count it where it stands. The caller holds the write lock."""
    for row in workspace.state.get(_MOVING).splitlines():
        agent, each, scope = row.split(" ")
        writer = workspace.writer(agent)
        if scope == PRIVATE:
            writer.hide(each)
        else:
            writer.publish(each, scope)
        CountedLog(workspace, agent).forget_count()
        reconcile(writer)
    note_moves(workspace, [])


class _Counted(msgspec.Struct, frozen=True):
    """Note of how far a log is counted, kept in the database beside the rows that count it.

    Attributes:
        size: so many bytes of the log.
        hash: of these bytes.
        waiting: entries in them whose lesson is still to be stated.
    """

    size: int = 0
    hash: str = ""
    waiting: int = 0

    def is_prefix_of(self, page: bytes) -> bool:
        """Tell whether the page begins with what was counted."""
        return 0 < self.size <= len(page) and self.hash == _hash(page[: self.size])

    def covers(self, page: bytes) -> bool:
        """Tell whether all of the page is counted."""
        return self.size == len(page) and self.is_prefix_of(page)


def _hash(page: bytes) -> str:
    return hashlib.blake2b(page, digest_size=16).hexdigest()


def _read_note(workspace: Workspace, agent: str) -> _Counted:
    size, digest, waiting = [*workspace.db.noted(_note_key(agent)).split(" "), "", "", ""][:3]
    return _Counted(int(size), digest, int(waiting)) if size.isdecimal() and waiting.isdecimal() else _Counted()


class _Read(msgspec.Struct, frozen=True):
    """The part of a log that is not counted yet.

    Attributes:
        waiting: entries of the whole log whose lesson is still to be stated.
    """

    before: bytes
    log: Log
    bound: list[Bound]
    waiting: int


def _read_since(noted: _Counted, page: bytes) -> _Read:
    """Read what follows the counted part of a log, if that can be understood by itself; else all of it."""
    if noted.is_prefix_of(page) and (read := _read_rest(noted, page)) is not None:
        return read
    log = corrections_md.Log.parse(page)
    bound = log.bound()
    return _Read(b"", log, bound, _waiting(bound))


def _read_rest(noted: _Counted, page: bytes) -> _Read | None:
    """Read the entries that were appended; None where anything else was, which may belong to an earlier entry."""
    before, rest = page[: noted.size], page[noted.size :]
    if rest.strip() and not (before.endswith(b"\n") and rest.lstrip().startswith(b"#")):
        return None
    log = corrections_md.Log.parse(rest)
    bound = log.bound()
    trailing = {b.record for b in bound if b.record is not None}
    is_plain = not log.statements and not log.marks and trailing.issuperset(log.records)
    # A record that is told twice is the log's, or a part of it, once more: a person copied it.
    is_told = any(f"<!-- fleet {record.id} p-".encode() in before for record in log.records)
    has_part = any(PART in record.extra for record in log.records)  # which of several is told by those before
    if (
        not is_plain
        or is_told
        or has_part
        or _has_marks(before, log.records)
        or any(b.record is None and b.entry.pattern for b in bound)
    ):
        return None
    return _Read(before, log, bound, noted.waiting + _waiting(bound))


def _has_marks(page: bytes, records: Sequence[Record]) -> bool:
    """Tell whether an earlier entry of one of these lessons was undone: it may have taken a session with it."""
    if b"<!-- fleet undone " not in page:
        return False
    earlier = corrections_md.Record.standing_in(page, {record.pattern for record in records})
    return any(f"<!-- fleet undone {record.id} ".encode() in page for record in earlier)


def _waiting(bound: Iterable[Bound]) -> int:
    return sum(b.record is None and not b.entry.pattern for b in bound)


class _Backlog:
    """Part of an agent's log that the records lack, and how they get it.

    Args:
        writer: of the agent; the rows are up to date.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._workspace = writer.workspace
        self._path = CountedLog(writer.workspace, writer.agent).log_file()
        self._page = self._workspace.files.read(self._path)
        self._read = _read_since(_read_note(self._workspace, writer.agent), self._page)
        self._entries: dict[str, Entry] = {}
        self._keys: dict[str, str] = {}

    def append_records(self) -> bool:
        """Append a record for each usable entry without one; False where the log was written to meanwhile.

        They go to the end of the file: a person's lines stay as they are.
        """
        fresh = [
            (bound, self._counted_under(bound.entry, lesson))
            for bound in self._read.bound
            if bound.record is None and (lesson := _lesson_text(bound.entry))
        ]
        if not fresh:
            return True
        with self._workspace.log_lock(self._writer.agent):
            is_same = self._workspace.files.read(self._path) == self._page
            if is_same:
                records = [self._record(bound, pattern) for bound, pattern in fresh]
                data = "".join(record.render() + "\n" for record in records)
                self._workspace.files.append(self._path, data.encode())
            self._page = self._workspace.files.read(self._path)
        self._read = _read_since(_Counted(), self._page)
        return is_same

    def _counted_under(self, entry: Entry, lesson: str) -> str:
        """Return the record that counts an entry already, by another copy of the log; else the one with these words.

        Two that are merged read alike, and so do two of which one was given the other's words meanwhile: without this
        each would count the entry once.
        """
        patterns = self._workspace.patterns
        pattern = self._workspace.same_text(self._writer.agent, lesson)
        for each in (*patterns.group(pattern), pattern_id(lesson)):
            key, line = _part_key(self._writer.agent, entry.heading_mark, each, 0), patterns.line(each)
            if line is not None and line.part("seen", key):
                return each
        return pattern

    def _record(self, bound: Bound, pattern: str) -> Record:
        head = ("head", bound.entry.heading_mark)
        return Record(bound.id, pattern, self._writer.name, self._writer.tick(), "", (head, PART))

    def lines(self) -> list[Line]:
        """Return a line for each pattern and replica with newer records, and for each lesson whose words no column has.

        Lines of private lessons are among them: ``Writer.write`` tells them apart.
        """
        self._entries = {b.record.id: b.entry for b in self._read.bound if b.record is not None}
        slots: dict[tuple[str, str], list[Record]] = defaultdict(list)
        self._keys = _part_keys(self._writer.agent, self._read.log.records)
        for record in Record.latest(self._read.log.records):
            slots[record.pattern, record.replica].append(record)
        earlier = self._sessions_before({pattern for pattern, _ in slots})
        found = []
        for (pattern, replica), records in slots.items():
            mine = self._workspace.private(self._writer.agent, pattern)
            shared = self._workspace.patterns.line(pattern) or Line(pattern)
            newest = shared.counted_up_to(replica)
            fresh = [each for each in records if each.at > newest and not (mine and self._is_part(mine, each))]
            before = earlier[pattern, replica] | {each.session for each in records if each not in fresh}
            known = lines.join(shared, mine) if mine else shared
            if not fresh:
                made = self._lost_words(known, records)
            else:
                made = self._raise_column(known, replica, fresh, before, is_private=mine is not None)
            if self._read.log.marks:
                numbers = self._undo_numbers(records, is_private=mine is not None)
                made = lines.join(made, edits.undo(known, replica, numbers))
            if not made.is_empty():
                found.append(made)
        return [*found, *self._undo_old_names()]

    def _undo_numbers(self, records: Sequence[Record], *, is_private: bool) -> dict[str, dict[str, int]]:
        """Return the numbers of the marks on a lesson's entries, and on the sessions that they were all of."""
        marks = self._read.log.marks
        marked = [each for each in records if each.id in marks]
        seen = {self._keys[each.id]: marks[each.id] for each in marked}
        relapsed = {self._keys[each.id]: marks[each.id] for each in marked if RELAPSED in each.extra}
        met: dict[str, list[int]] = defaultdict(list)
        for each in records:
            if each.session or is_private or PART in each.extra:
                met[self._session(each)].append(marks.get(each.id, 0))
        # It rises with every mark and is odd while none of the session's entries stands, in whatever order they came.
        sessions = {key: 2 * sum(each) - all(number % 2 for number in each) for key, each in met.items() if any(each)}
        return {"relapsed": relapsed, "seen": seen, "sessions": sessions}

    def _undo_old_names(self) -> Iterator[Line]:
        """Yield the lines by which what counts under another name by now is not undone under the old one as well."""
        log, now = self._read.log, set(Record.latest(self._read.log.records))
        for each in (record for record in log.records if record.id in log.marks and record not in now):
            known = self._workspace.record(self._writer.agent, each.pattern) or Line(each.pattern)
            told = {name: known.undo_count(each.replica, name, self._keys[each.id]) for name in ("relapsed", "seen")}
            if odd := {name: {self._keys[each.id]: number + 1} for name, number in told.items() if number % 2}:
                yield edits.undo(known, each.replica, odd)

    def _is_part(self, mine: Line, record: Record) -> bool:
        """Tell whether an occurrence of a private lesson is counted."""
        # A total stands in a private record where the branch was not known, or an earlier version counted there.
        has_total = mine.total_of(record.replica, "seen") > 0
        is_total = has_total and record.at <= mine.counted_up_to(record.replica)
        return is_total or self._keys[record.id] in fold(mine).parts.get("seen", {})

    def _sessions_before(self, patterns: Collection[str]) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for record in corrections_md.Record.standing_in(self._read.before, patterns):
            found[record.pattern, record.replica].add(record.session)
        return found

    def _raise_column(
        self, known: Line, replica: str, fresh: Sequence[Record], before: set[str], *, is_private: bool
    ) -> Line:
        """Return the column that counts some more records; those of entries written by hand are parts.

        So are all of a private lesson: they add up with what the clan's record of it counts.
        """
        own = [record for record in fresh if PART not in record.extra and not is_private]
        made = edits.confirm(
            known,
            replica,
            max(record.at for record in fresh),
            seen=len(own),
            sessions=len({record.session for record in own if record.session} - before),
            relapsed=sum(RELAPSED in record.extra for record in own),
            fields=self._fields(known, fresh),
            at=min(self._when(record) for record in fresh),
        )
        for record in fresh:
            if record not in own:
                made = lines.join(made, self._part(known, replica, record))
        return made

    def _part(self, known: Line, replica: str, record: Record) -> Line:
        """Return an occurrence that no replica owns."""
        key, session = self._keys[record.id], self._session(record)
        return edits.part(known, known.id, key, {}, replica, "", seen=1, sessions=1, session_hash=session)

    def _session(self, record: Record) -> str:
        """Return the hash of an occurrence's session. An entry written by hand tells of no session, but of its day."""
        day = self._entries[record.id].when[:10] if record.id in self._entries else ""
        return _hash(f"{self._writer.agent}\0{record.session or day}".encode())[:16]

    def _lost_words(self, known: Line, records: Sequence[Record]) -> Line:
        """Return text and right way of a lesson if no column has them: they were lost, and the log still has them."""
        here = fold(known).fields
        if here.get("text") and here.get("correct"):
            return Line(known.id)
        fields = {name: said for name, said in self._fields(known, records).items() if name in ("text", "correct")}
        missing = {name: said for name, said in fields.items() if not here.get(name)}
        return edits.part(known, known.id, "0" * 16, missing, self._writer.name, "", seen=0)

    def _when(self, record: Record) -> str:
        """Return when an occurrence was: an entry written by hand may tell of an earlier day than its record."""
        entry = self._entries.get(record.id)
        if entry is None or entry.when.rstrip("Z").replace(" ", "T") == record.at[:16]:
            return record.at  # as most do: the minute of the record itself
        ms = dates.to_ms(entry.when)
        told = clock.pack(ms) if ms is not None else record.at
        return told if told < record.at[:16] else record.at

    def _fields(self, known: Line, records: Sequence[Record]) -> dict[str, object]:
        """Return the wordings that these records' entries add to a lesson.

        Of each field that the lesson lacks, what the first entry says that has it; and where an entry has the lesson's
        own words, its text and right way, though they differ.
        """
        here = fold(known).fields
        text = str(here.get("text", ""))
        found: dict[str, object] = {}
        for entry in (self._entries[record.id] for record in records if record.id in self._entries):
            said = self._said(entry)
            may_differ = ("text", "correct") if text and _is_alike(str(said["text"]), text, known.id) else ()
            for field, value in said.items():
                if value and field not in found and (field not in here or field in may_differ):
                    found[field] = value
        return found

    def _said(self, entry: Entry) -> dict[str, object]:
        more = [field for field in self._workspace.config.share.fields if field in _SHAREABLE]
        said: dict[str, object] = {"text": _lesson_text(entry), "correct": _clean(entry.right)}
        said["category"], said["trigger"] = _clean(entry.category), _clean(entry.trigger)
        said["tags"] = sorted({clean for tag in entry.tags if (clean := _clean(tag))})[: limits.TAGS_MAX]
        return said | {field: _clean(getattr(entry, field)) for field in more}

    def note(self) -> None:
        """Note how far the log is counted, once the rows have it."""
        if self._workspace.db.refresh(WAIT_S):
            noted = f"{len(self._page)} {_hash(self._page)} {self._read.waiting}"
            self._workspace.db.note(_note_key(self._writer.agent), noted)


def _part_keys(agent: str, records: Sequence[Record]) -> dict[str, str]:
    """Return the key of each record's part by its id.

    Of an entry that the command line wrote it is the entry's hash. Of one written by hand it is the hash of its heading
    and its lesson, and of which of several such it is: an editor may still be at work on the rest.
    """
    keys: dict[str, str] = {}
    times: dict[tuple[str, str], int] = defaultdict(int)
    for record in records:
        if PART not in record.extra or MOVED in record.extra:
            keys[record.id] = record.id.removeprefix("c-")
        elif record.id not in keys:
            head = dict(record.extra).get("head", "")
            keys[record.id] = _part_key(agent, head, record.pattern, times[head, record.pattern])
            times[head, record.pattern] += 1
    return keys


def _part_key(agent: str, head: str, pattern: str, number: int) -> str:
    return _hash(f"{agent}\0{head}\0{pattern}\0{number}".encode())[:16]


def _clean(text: str) -> str:
    """Return a field as it may enter a line; "" when it is too long, since nothing is cut."""
    clean = screening.one_line(screening.screen(text).text)
    is_short = len(clean) * 4 <= limits.TEXT_BYTES_MAX or len(clean.encode()) <= limits.TEXT_BYTES_MAX
    return clean if is_short else ""


def _is_alike(said: str, text: str, pattern: str) -> bool:
    """Tell whether somebody said a lesson in its own words: as it reads now, or as it was first logged."""
    return said == text or pattern_id(said) in {pattern, pattern_id(text)}


def _lesson_text(entry: Entry) -> str:
    """Return the entry's pattern as it may enter a line: screened, one line; "" when it is not usable.

    Nor is one that was copied from what fleet shows: an echo is no new observation.
    """
    clean = "" if screening.injected_id(entry.pattern) else _clean(entry.pattern)
    return clean if normalise(clean) else ""
