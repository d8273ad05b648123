"""Counting of ``corrections.md``: the log's entries raise the counts in the clan's records, each exactly once.

Every entry of a log has one record, a comment that says which replica counted it, for which pattern, and when. The
records that are newer than a replica's column raise its totals, whoever wrote them: so in one log, a successor also
raises the column of its predecessor. An entry that a person wrote by hand becomes a part, with a key of its heading and
its lesson. So several copies of a log count it once, even if an editor wipes the record while the entry is still being
worded. Deleting an entry lowers no count, a lost database or a crash counts none again, and a retired lesson does not
come back by itself.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from crdt import clock
from fleet.learn import corrections_md
from fleet.learn.corrections_md import BY_HAND, PART, RELAPSED, Entry, Log, Record
from fleet.model import edits, limits
from fleet.model import line as lines
from fleet.model.errors import BusyError, NoError
from fleet.model.line import Line
from fleet.model.names import LOGGED, normalise, pattern_id
from fleet.model.pattern import PRIVATE, SCOPE, fold
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace, Writer
from fleet.text import screening

WAIT_S = 0.3
"""Time that a correction waits for another process that counts or refreshes the database."""
_MOVING = "moves"  # key in local.db: agent, id and new scope of each lesson that changes its scope, as JSON
_MARKS = (RELAPSED,)
"""Pairs in a record, each of which raises the counter of its name."""
_TAIL_BYTES = 256 * 1024  # of a log's end, where the newest entry is looked for
_LOGGED_AT = rb"<!-- fleet (?:flagged )?c-[0-9a-f]{16} [^<>]*?\bat=(\S{24})"


def _note_key(agent: str) -> str:
    return f"log {agent}"


class _Occurrence(NamedTuple):
    """One counted entry: its pattern, the time of the mistake, and whether the lesson had been shown before."""

    pattern: str
    at_ms: int
    is_relapse: bool


class CountedLog:
    """Log of an agent's corrections, with the offset up to which it is counted."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    def log_file(self) -> Path:
        """Return the path of an agent's log."""
        return self._workspace.home(self._agent) / corrections_md.FILE_NAME

    def read_log(self) -> Log:
        """Return an agent's log, parsed; an empty log if there is no file."""
        return corrections_md.Log.parse(self._workspace.files.page(self.log_file()))

    def to_state(self, days: float = 0.0) -> list[str]:
        """Return the ids of the entries whose lesson is not stated yet (``Signals.waiting``).

        ``days``: leave out older entries; 0 for no limit of age.
        """
        page = self._workspace.files.page(self.log_file())
        if not page or not _read_since(_read_note(self._workspace, self._agent), page).waiting:
            return []
        from fleet.learn.signals import Signals  # a correction flags nothing

        waiting = Signals(self._workspace.files, self._agent, self._workspace.wall).waiting(days=days)
        return [each.id for each in waiting]

    def last_ms(self) -> int:
        """Return when fleet logged the newest entry, with a lesson or not, in milliseconds since 1970; 0 for never."""
        tail = self._workspace.files.page(self.log_file())[-_TAIL_BYTES:]
        return max(
            (clock.ms_of(f"{at.decode('ascii', 'replace')}-0000") for at in re.findall(_LOGGED_AT, tail)), default=0
        )

    def forget_count(self) -> None:
        """Forget the checkpoint: ``reconcile`` reads the whole log again, and counts nothing twice."""
        self._workspace.db.note(_note_key(self._agent), "")

    def move(self, pattern: str, scope: str) -> None:
        """Change the scope of a lesson. The caller holds the write lock."""
        _finish_moves(self._workspace)  # one that was cut short while the caller waited would be forgotten
        _note_moves(self._workspace, [(self._agent, pattern, scope)])
        _finish_moves(self._workspace)

    def check_alone(self, pattern: str) -> None:
        """Raise ``NoError`` for a merged lesson, which cannot be private: other records may have its words."""
        if others := [each for each in self._workspace.patterns.group(pattern) if each != pattern]:
            raise NoError(
                f"{pattern} is merged with {screening.listed(others)}, which may have its words and is the clan's. "
                f"Nothing was changed; `fleet unmerge {pattern}` parts them, then make it private"
            )

    def keep_private(self) -> None:
        """Keep private what the private file says is, where shared files or the log came from before it said so.

        A backup, a checkout or an older copy may have brought them. Parts that were not sent leave the shared files,
        and the log gets its mark. Only records that changed since the last call are looked at.
        """
        workspace, agent, key = self._workspace, self._agent, f"private {self._agent}"
        notes, shared, noted = workspace.notes(agent), workspace.patterns, workspace.db.noted(key)
        now = f"{notes.generation} {shared.generation}"
        if noted == now:
            return
        own, clans = map(int, (noted or "0 0").split())
        changed = {*notes.changed(own), *shared.changed(clans)}.intersection(notes.changed(0))
        private = {note.id for note in notes.some(sorted(changed)) if note.scope == PRIVATE}
        if private:
            with workspace.writing(agent) as writer:
                self._mark_private(private)
                for id_ in writer.unsent(private):
                    writer.hide(id_, add_stamp(writer))
        workspace.db.note(key, now)

    def _mark_private(self, ids: set[str]) -> None:
        with self._workspace.log_lock(self._agent):
            log, wall = self.read_log(), self._workspace.wall()
            numbers = {id_: log.marks.get(id_, 0) for id_ in sorted(ids & {record.pattern for record in log.records})}
            rows = [Log.format_mark(id_, number + 1, wall) for id_, number in numbers.items() if number % 2 == 0]
            if rows:
                self._workspace.files.append(self.log_file(), "\n{}\n".format("\n".join(rows)).encode())

    def edited(self) -> list[Record]:
        """Return the records of the entries that were edited since they were counted, which changes no count.

        Entries whose lesson was edited in the same way are left out.
        """
        edited = (each for each in self.read_log().entries if each.is_edited and not self._has_followed(each))
        return [each.record for each in edited if each.record is not None]

    def newly_edited(self) -> int:
        """Return how many entries ``edited`` returns; 0 if the log is unchanged since the last call."""
        page, key = self._workspace.files.page(self.log_file()), f"edited {self._agent}"
        if not page or self._workspace.db.noted(key) == _hash(page):
            return 0
        self._workspace.db.note(key, _hash(page))
        return len(self.edited())

    def _has_followed(self, entry: Entry) -> bool:
        """Return whether the lesson of an edited entry has the words that the entry has now."""
        id_ = entry.record.pattern if entry.record is not None else ""
        private = self._workspace.private(self._agent, id_)
        lesson = self._workspace.patterns.lesson(id_) if private is None else fold(private)
        if lesson is None or normalise(Entry.clean(entry.pattern)) != normalise(lesson.text):
            return False
        # If the lesson is unchanged, another field was edited; each of several entries may have its own right way.
        rest = {"correct": entry.right, "trigger": entry.trigger} if pattern_id(entry.pattern) == id_ else {}
        return all(not text or lesson.fields.get(name) == Entry.clean(text) for name, text in rest.items())

    def mark(self, entry: str, *, is_undone: bool) -> bool | None:
        """Mark an entry in the log as undone, or as stated again; the next ``reconcile`` counts it accordingly.

        Returns whether a mark was written; None if the log has no record of the entry any more.
        """
        log = self.read_log()
        record = next((each for each in Record.latest(log.records) if each.id == entry), None)
        if record is None:
            return None
        line = self._workspace.record(self._agent, record.pattern) or Line(record.pattern)
        counted = line.undo_count(record.replica, "seen", _part_keys(self._agent, log.records)[entry])
        return self._append_mark(entry, counted, is_odd=is_undone)

    def mark_scope(self, pattern: str, scope: str) -> None:
        """Mark a lesson of the log as private, or as shared again, for readers that have no private file."""
        if Record.search(self._workspace.files.page(self.log_file()), {pattern}):
            self._append_mark(pattern, 0, is_odd=scope == PRIVATE)

    def _append_mark(self, marked: str, least: int, *, is_odd: bool) -> bool:
        """Append a mark with a number above ``least``; return False if the last mark says the same."""
        with self._workspace.log_lock(self._agent):
            number = max(least, self.read_log().marks.get(marked, 0))
            if number % 2 == is_odd:
                return False
            row = Log.format_mark(marked, number + 1, self._workspace.wall())
            self._workspace.files.append(self.log_file(), f"\n{row}\n".encode())
        return True

    def rights(self) -> dict[str, list[str]]:
        """Return the right ways in the log by pattern, the last one first."""
        rights: dict[str, list[str]] = {}
        for entry in reversed(self.read_log().entries):
            if entry.record is not None and (right := Entry.clean(entry.right)):
                rights.setdefault(entry.record.pattern, []).append(right)
        return rights

    def occurrences(self) -> Iterator[_Occurrence]:
        """Yield the occurrences in file order, including those of deleted entries, without those of undone entries."""
        log = self.read_log()
        headings = {each.record.id: each.when for each in log.entries if each.record is not None}
        for record in Record.latest(log.records):
            if log.is_undone(record.id):
                continue
            at = _occurred(record, headings.get(record.id, ""))
            yield _Occurrence(record.pattern, clock.unpack(at)[0], RELAPSED in record.extra)

    def auto_detected(self) -> set[str]:
        """Return the lessons that are stated only by automatically detected entries, and by no logged one."""
        by_kind: dict[bool, set[str]] = {True: set(), False: set()}
        for entry in self.read_log().entries:
            if entry.record is not None:
                by_kind[entry.auto].add(entry.record.pattern)
        return by_kind[True] - by_kind[False]


def reconcile(writer: Writer, wait_s: float = limits.LOCK_WAIT_S) -> int:
    """Count the entries of an agent's log that its columns lack; return how many lines were written to the shard.

    Entries written by hand get their record at the end of the file. The caller holds the write lock.
    ``wait_s``: how long to wait for the lock of the log.

    Raises:
        BusyError: another process is refreshing the database, so a total computed now could be outdated.
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
        while not backlog.append_records(wait_s):
            pass
        missing = _Owed(writer, backlog.read).lines()
        # Not durable: lines that a power failure takes from the shard are written again from the log.
        writer.write(missing, is_durable=False)
    backlog.note()
    return len(missing)


def add_stamp(writer: Writer) -> str:
    """Return the stamp for an add, after counting everything logged before it. The caller holds the write lock."""
    with writer.workspace.log_lock(writer.agent):  # under the lock: entries that are logged later get later stamps
        stamp = writer.tick()
    reconcile(writer)
    return stamp


def reconcile_all(workspace: Workspace, wait_s: float = limits.LOCK_WAIT_S) -> int:
    """Count the logs of all agents as which this process writes; return how many lines were written."""
    if workspace.is_read_only:
        return 0
    if workspace.state.get(_MOVING):
        with workspace.locked(wait_s):
            _finish_moves(workspace)
    written = 0
    default = "" if workspace.lease() else workspace.default_agent()
    for agent in sorted({*workspace.agents_writing(), *([default] if default else [])}):
        page = workspace.files.page(CountedLog(workspace, agent).log_file())
        if page and not _read_note(workspace, agent).covers(page):
            with workspace.writing(agent, wait_s) as writer:
                written += reconcile(writer, wait_s)
    return written


def keep_private(workspace: Workspace) -> None:
    """Keep private what the agents' private files say is (``CountedLog.keep_private``).

    What was sent is known from the fetched tree: without it, what the clan has would leave the files here.
    """
    for agent in workspace.agents_with_notes() if not workspace.is_read_only else ():
        CountedLog(workspace, agent).keep_private()


def _note_moves(workspace: Workspace, moves: list[tuple[str, str, str]]) -> None:
    """Store which lessons change their scope, as (agent, id, new scope): the next ``reconcile_all`` moves them."""
    workspace.state.put(**{_MOVING: msgspec.json.encode(moves).decode() if moves else ""})


def _finish_moves(workspace: Workspace) -> None:
    """Change the scope of the lessons stored by ``_note_moves``. The caller holds the write lock."""
    noted = workspace.state.get(_MOVING) or "[]"
    for agent, pattern, scope in msgspec.json.decode(noted, type=list[tuple[str, str, str]]):
        writer = workspace.writer(agent)
        stamp = add_stamp(writer)
        if scope == PRIVATE:
            writer.hide(pattern, stamp)
        else:
            writer.publish(pattern, scope, stamp)
        CountedLog(workspace, agent).mark_scope(pattern, scope)
    _note_moves(workspace, [])


class _Checkpoint(msgspec.Struct, frozen=True):
    """Offset up to which a log is counted, hash of the bytes before it, and number of entries there without a lesson.

    It is stored in the database, beside the rows with these counts.
    """

    size: int = 0
    hash: str = ""
    waiting: int = 0

    def is_prefix_of(self, page: bytes) -> bool:
        """Return whether the page still begins with the counted bytes."""
        return 0 < self.size <= len(page) and self.hash == _hash(page[: self.size])

    def covers(self, page: bytes) -> bool:
        """Return whether all of the page is counted."""
        return self.size == len(page) and self.is_prefix_of(page)


def _hash(page: bytes) -> str:
    return hashlib.blake2b(page, digest_size=16).hexdigest()


def _read_note(workspace: Workspace, agent: str) -> _Checkpoint:
    size, digest, waiting = [*workspace.db.noted(_note_key(agent)).split(" "), "", "", ""][:3]
    return _Checkpoint(int(size), digest, int(waiting)) if size.isdecimal() and waiting.isdecimal() else _Checkpoint()


class _UncountedPart(msgspec.Struct, frozen=True):
    """Uncounted end of a log, parsed, with the ``counted`` bytes before it; ``waiting`` is that of the whole log."""

    counted: bytes
    log: Log
    waiting: int


def _read_since(noted: _Checkpoint, page: bytes) -> _UncountedPart:
    """Parse the uncounted end of a log, or the whole log if the end cannot be parsed by itself."""
    if noted.is_prefix_of(page) and (read := _read_rest(noted, page)) is not None:
        return read
    log = corrections_md.Log.parse(page)
    return _UncountedPart(b"", log, _waiting(log))


def _read_rest(noted: _Checkpoint, page: bytes) -> _UncountedPart | None:
    """Parse appended entries; None if anything else was appended, which may belong to an earlier entry."""
    counted, appended = page[: noted.size], page[noted.size :]
    if appended.strip() and not (counted.endswith(b"\n") and appended.lstrip().startswith(b"#")):
        return None
    log = corrections_md.Log.parse(appended)
    trailing = {each.record for each in log.entries if each.record is not None}
    # The key of a part depends on the parts before it.
    is_plain = not (log.statements or log.marks or any(record.part for record in log.records))
    is_counted = trailing.issuperset(log.records) and not any(
        each.record is None and each.pattern for each in log.entries
    )
    # A person may have copied the log, or a part of it, to its end.
    is_repeated = any(f"<!-- fleet {record.id} p-".encode() in counted for record in log.records)
    if not is_plain or not is_counted or is_repeated or _has_marks(counted, log.records):
        return None
    return _UncountedPart(counted, log, noted.waiting + _waiting(log))


def _has_marks(page: bytes, records: Sequence[Record]) -> bool:
    """Return whether one of these lessons was made private, or an earlier entry undone, perhaps of its session."""
    if any(f"<!-- fleet private {record.pattern} ".encode() in page for record in records):
        return True
    if b"<!-- fleet undone " not in page:
        return False
    earlier = Record.search(page, {record.pattern for record in records})
    return any(f"<!-- fleet undone {record.id} ".encode() in page for record in earlier)


def _waiting(log: Log) -> int:
    return sum(each.record is None and not each.pattern for each in log.entries)


class _Backlog:
    """Uncounted end of an agent's log. The caller has refreshed the database."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._workspace = writer.workspace
        self._path = CountedLog(writer.workspace, writer.agent).log_file()
        self._page = self._workspace.files.page(self._path)
        self.read = _read_since(_read_note(self._workspace, writer.agent), self._page)

    def append_records(self, wait_s: float) -> bool:
        """Append a record to the log for each usable entry without one; return False if the log changed meanwhile."""
        fresh = [
            (entry, self._counted_under(entry, entry.lesson))
            for entry in self.read.log.entries
            if entry.record is None and entry.pattern and not entry.is_waiting
        ]
        if not fresh:
            return True
        with self._workspace.log_lock(self._writer.agent, wait_s):
            is_same = self._workspace.files.page(self._path) == self._page
            if is_same:
                records = [self._record(entry, pattern) for entry, pattern in fresh]
                data = "".join(record.render() + "\n" for record in records)
                self._workspace.files.append(self._path, data.encode())
            self._page = self._workspace.files.page(self._path)
        self.read = _read_since(_Checkpoint(), self._page)
        if is_same:
            self._report(records)
        return is_same

    def _report(self, records: Sequence[Record]) -> None:
        """Report the hand-written entries that got their records, and record a run, for `fleet undo`."""
        number = screening.counted(len(records), "entry", "entries")
        path = self._path.relative_to(self._workspace.root).as_posix()
        self._workspace.reports.append(f"counted {number} written by hand in {path}; the ids were added at its end")
        ids = dict.fromkeys(record.pattern for record in records)
        known = {id_: self._workspace.record(self._writer.agent, id_) for id_ in ids}
        with Runs(self._workspace).recording(self._writer.agent, "count") as draft:
            draft.summary = f"counted {number} written by hand"
            draft.fields = [Field(record.id, "entry", None, record.pattern) for record in records]
            draft.lessons = [id_ for id_, line in known.items() if line is None or not fold(line).is_present]

    def _counted_under(self, entry: Entry, lesson: str) -> str:
        """Return the pattern that already counts an entry, from another copy of the log; else the one with this text.

        Merged patterns have the same text, and so has a pattern that was edited to another's text: without this lookup,
        each of them would count the entry once.
        """
        patterns = self._workspace.patterns
        alike = self._workspace.same_text(self._writer.agent, lesson)
        for pattern in (*patterns.group(alike), pattern_id(lesson)):
            key, line = _part_key(self._writer.agent, entry.heading_hash, pattern, 0), patterns.line(pattern)
            if line is not None and line.part("seen", key):
                return pattern
        return alike

    def _record(self, entry: Entry, pattern: str) -> Record:
        head = ("head", entry.heading_hash)
        return Record(entry.id, pattern, self._writer.name, self._writer.tick(), "", (head, (PART, BY_HAND)))

    def note(self) -> None:
        """Store the checkpoint of the counted log, once the database has the lines."""
        if self._workspace.db.refresh(WAIT_S):
            noted = f"{len(self._page)} {_hash(self._page)} {self.read.waiting}"
            self._workspace.db.note(_note_key(self._writer.agent), noted)


class _Owed:
    """Lines that the counted records' columns lack, of a log in which every usable entry has its record.

    The end of a log is enough, with the ``counted`` bytes before it. The caller has refreshed the database.
    """

    def __init__(self, writer: Writer, read: _UncountedPart) -> None:
        self._writer, self._workspace = writer, writer.workspace
        self._log, self._counted = read.log, read.counted
        stated = [(entry.record, entry) for entry in read.log.entries if entry.record is not None]
        self._entries = {record.id: entry for record, entry in stated}
        private = (record.pattern for record, entry in stated if entry.scope == PRIVATE)
        self._named_private = frozenset(private)
        self._keys = _part_keys(writer.agent, read.log.records)

    def lines(self) -> list[Line]:
        """Return a line for each pattern and replica with newer records, and for each lesson whose text was lost.

        ``Writer.write`` puts those of private lessons into the private file.
        """
        slots = Record.by_lesson(Record.latest(self._log.records))
        counted = Record.by_lesson(Record.search(self._counted, {pattern for pattern, _ in slots}))
        deltas = [self._delta(*slot, records, counted[slot]) for slot, records in slots.items()]
        return [*(delta for delta in deltas if not delta.is_empty()), *self._undo_old_names()]

    def _delta(self, pattern: str, replica: str, records: Sequence[Record], counted: Sequence[Record]) -> Line:
        """Return what a replica's column of a lesson lacks; ``counted``: the earlier records of both."""
        line = self._workspace.record(self._writer.agent, pattern) or Line(pattern)
        is_known = self._workspace.private(self._writer.agent, pattern) is not None
        is_private = is_known or self._becomes_private(pattern)
        fresh = [record for record in records if record.at > line.counted_up_to(replica)]
        if fresh:
            sessions = {record.session for record in (*counted, *records) if record not in fresh}
            delta = self._raise_column(line, replica, fresh, sessions, is_private=is_private)
        else:
            delta = self._lost_words(line, records)
        if self._log.marks:
            delta = lines.join(delta, edits.undo(line, replica, self._undo_numbers(records, is_private=is_private)))
        if is_private and not is_known:
            delta = lines.join(delta, self._writer.edit(Line(pattern), SCOPE, PRIVATE))
        return delta

    def _becomes_private(self, pattern: str) -> bool:
        """Return whether a person called a lesson private that the clan lacks, or made it so and its file is gone."""
        if pattern in self._named_private and self._workspace.patterns.line(pattern) is None:
            return True
        if self._log.marks.get(pattern, 0) % 2 == 0:
            return False
        own = self._workspace.own_notes(self._writer.agent, pattern)  # its scope has priority over the log's mark
        return own is None or SCOPE not in fold(own).edited

    def _undo_numbers(self, records: Sequence[Record], *, is_private: bool) -> dict[str, dict[str, int]]:
        """Return the undo counts of a lesson's entries, and of the sessions to which they belong."""
        marks = self._log.marks
        seen = {record: (self._keys[record.id], marks[record.id]) for record in records if record.id in marks}
        marked = {pair[0]: dict(seen[record] for record in seen if pair in record.extra) for pair in _MARKS}
        by_session: dict[str, list[int]] = defaultdict(list)
        for record in records:
            if record.session or is_private or record.part:
                by_session[self._session(record)].append(marks.get(record.id, 0))
        # The number grows with every mark, and is odd while all entries of the session are undone, in any order.
        marked_sessions = {key: numbers for key, numbers in by_session.items() if any(numbers)}
        sessions = {key: 2 * sum(undos) - all(undo % 2 for undo in undos) for key, undos in marked_sessions.items()}
        return {**marked, "seen": dict(seen.values()), "sessions": sessions}

    def _undo_old_names(self) -> Iterator[Line]:
        """Yield lines that revoke an entry's undo under a pattern that no longer counts the entry."""
        log, latest = self._log, set(Record.latest(self._log.records))
        for record in (record for record in log.records if record.id in log.marks and record not in latest):
            line = self._workspace.record(self._writer.agent, record.pattern) or Line(record.pattern)
            key = self._keys[record.id]
            counts = {name: line.undo_count(record.replica, name, key) for name in (*dict(_MARKS), "seen")}
            if odd := {name: {key: number + 1} for name, number in counts.items() if number % 2}:
                yield edits.undo(line, record.replica, odd)

    def _raise_column(
        self, line: Line, replica: str, fresh: Sequence[Record], earlier_sessions: set[str], *, is_private: bool
    ) -> Line:
        """Return the column that counts some more records.

        Records of hand-written entries become parts, and so do all records of a private lesson: parts add up with the
        counts in the clan's record of it.
        """
        own = [record for record in fresh if not record.part and not is_private]
        delta = edits.confirm(
            line,
            replica,
            max(record.at for record in fresh),
            seen=len(own),
            sessions=len({record.session for record in own if record.session} - earlier_sessions),
            marks=_marked(own),
            fields=self._fields(line, fresh),
            at=min(_occurred(record, self._heading(record)) for record in fresh),
        )
        for record in fresh:
            if record not in own:
                key, session, marks = self._keys[record.id], self._session(record), _marked([record])
                part = edits.part(line, key, {}, replica, "", seen=1, sessions=1, marks=marks, session_hash=session)
                delta = lines.join(delta, part)
        return delta

    def _heading(self, record: Record) -> str:
        """Return the time in the heading of a record's entry; "" for an entry that is not there."""
        return self._entries[record.id].when if record.id in self._entries else ""

    def _session(self, record: Record) -> str:
        """Return the hash of an occurrence's session; for a hand-written entry, its day stands for the session."""
        agent = self._writer.agent if record.part in {"", BY_HAND} else ""  # copies may name another
        return _hash(f"{agent}\0{record.session or self._heading(record)[:10]}".encode())[:16]

    def _lost_words(self, line: Line, records: Sequence[Record]) -> Line:
        """Return text and right way of a lesson if no column has them any more, and the log still does."""
        fields = fold(line).fields
        lost = [name for name in ("text", "correct") if name not in fields]  # one that was emptied is not lost
        if not lost:
            return Line(line.id)
        missing = {name: value for name, value in self._fields(line, records).items() if name in lost}
        return edits.part(line, "0" * 16, missing, self._writer.name, "", seen=0)

    def _fields(self, line: Line, records: Sequence[Record]) -> dict[str, object]:
        """Return the fields that these records' entries add to a lesson.

        For each field that the lesson lacks, the value of the first entry with one. From an entry whose text is the
        lesson's own, also text and right way that differ from the lesson's. A lesson whose occurrences were all undone
        is stated anew: it gets all values of the first entry, and loses the others that it had.
        """
        lesson, entries = fold(line), [self._entries[record.id] for record in records if record.id in self._entries]
        if lesson.is_undone:
            values = self._values(entries[0]) if entries else {}
            return {field: value for field, value in values.items() if value != lesson.fields.get(field, type(value)())}
        text = str(lesson.fields.get("text", ""))
        added: dict[str, object] = {}
        for values in map(self._values, entries):
            is_alike = text and pattern_id(str(values["text"])) in {line.id, pattern_id(text)}
            may_differ = ("text", "correct") if is_alike else ()
            for field, value in values.items():
                if value and (field not in lesson.fields or field in may_differ):
                    added.setdefault(field, value)
        return added

    def _values(self, entry: Entry) -> dict[str, object]:
        """Return the fields of an entry that may enter a line."""
        extra = self._workspace.shared_fields()
        values: dict[str, object] = {"text": entry.lesson, "correct": Entry.clean(entry.right)}
        values["tags"] = sorted({clean for tag in entry.tags if (clean := Entry.clean(tag))})[: limits.TAGS_MAX]
        return values | {field: Entry.clean(getattr(entry, field)) for field in (*LOGGED, *extra)}


def _marked(records: Sequence[Record]) -> dict[str, int]:
    """Return how many of some records have each of the pairs that raise a counter, by the counter."""
    return {pair[0]: sum(pair in record.extra for record in records) for pair in _MARKS}


def _occurred(record: Record, heading: str) -> str:
    """Return the stamp of a mistake: its record's, unless the entry's heading, exact to the minute, is earlier."""
    if not heading or heading.rstrip("Z").replace(" ", "T") == record.at[:16]:
        return record.at
    from fleet.text import dates  # late: an entry that was logged has the time of its record

    ms = dates.to_ms(heading)
    at = clock.pack(ms) if ms is not None else record.at
    return at if at < record.at[:16] else record.at


def _part_keys(agent: str, records: Sequence[Record]) -> dict[str, str]:
    """Return the key of each record's part by the record's id.

    For an entry written by a command, it is the entry's hash. For one that a person wrote, it is a hash of the heading,
    the lesson and a number among equal ones, since the rest may still be edited.
    """
    keys: dict[str, str] = {}
    times: dict[tuple[str, str], int] = defaultdict(int)
    for record in records:
        if record.part != BY_HAND:
            keys[record.id] = record.part or record.id.removeprefix("c-")
        elif record.id not in keys:
            head = dict(record.extra).get("head", "")
            keys[record.id] = _part_key(agent, head, record.pattern, times[head, record.pattern])
            times[head, record.pattern] += 1
    return keys


def _part_key(agent: str, head: str, pattern: str, number: int) -> str:
    return _hash(f"{agent}\0{head}\0{pattern}\0{number}".encode())[:16]
