"""Corrections: durable in ``corrections.md`` first, counted in the clan's records afterwards (DESIGN, section 4).

The log is the write-ahead log of every correction: one write, one fsync, and only then success. What a replica's column
says of its own occurrences is worked out from the records in the log, so that nothing is counted twice and nothing is
lost: deleting an entry lowers no count, a lost database or a crash recounts none, and a retired lesson does not come
back by itself.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from crdt import clock
from fleet.learn import corrections_md, echoes, inputs, signals
from fleet.learn.corrections_md import PART, RELAPSED, Bound, Entry, Log, Record, Statement
from fleet.model import edits, limits, merged, names
from fleet.model import line as lines
from fleet.model.errors import BusyError, FleetError, NoError, RefusedError, UsageError
from fleet.model.lesson_id import normalise, pattern_id
from fleet.model.line import Line
from fleet.model.pattern import Pattern, fold
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, Writer
from fleet.text import dates, screening
from fleet.text.similarity import NEAR_MAX, Near, near

FILE_NAME = signals.FILE_NAME
log_file = signals.log_file

WasShown = Callable[[Collection[str], int], bool]
"""Tells whether one of some lessons was shown to the agent before a moment, milliseconds since 1970."""

SHAREABLE = ("wrong", "source")
"""Fields of an entry that stay here unless ``[share] fields`` names them."""

WAIT_S = 0.3
"""So long a correction waits for another process that counts, or brings the rows up to date."""
MINUTE_MS = 60_000
_SHOWN_MAX = 5


class Correction(NamedTuple):
    """One mistake, as it was told: what went wrong, the correct approach, the source, the generalizable pattern."""

    wrong: str
    right: str
    pattern: str
    title: str = ""
    source: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()


class Logged:
    """What became of a correction.

    Attributes:
        id: of the lesson.
        text: of the lesson, as the clan knows it.
        seen: occurrences in the whole clan, this one included.
        secrets: kinds of secrets that were taken out.
        is_echo: it told nothing but a lesson that this agent was shown, so nothing was logged.
        promoted: the file where the lesson stands from now on, if this was the occurrence that it takes.
    """

    def __init__(
        self,
        lesson: str,
        text: str,
        seen: int,
        secrets: tuple[str, ...],
        *,
        look: Callable[[], list[Near]] = list,
        is_echo: bool = False,
    ) -> None:
        self.id = lesson
        self.text = text
        self.seen = seen
        self.secrets = secrets
        self.is_echo = is_echo
        self.promoted = ""
        self._look = look

    @cached_property
    def near(self) -> list[Near]:
        """The lessons nearest to this one, and what differs. Looked for when somebody asks: it takes longer than
        logging."""  # noqa: D205, D209
        return self._look()


class Stated(NamedTuple):
    """What became of a signal whose lesson was stated: the id of its entry, and the rest as for any correction."""

    entry: str
    logged: Logged


class Occurrence(NamedTuple):
    """One counted entry: of which pattern, when the mistake was made, and whether the lesson had been shown before."""

    pattern: str
    at_ms: int
    is_relapse: bool


def never_shown(_ids: Collection[str], _before_ms: int) -> bool:
    """Return False: for a caller that keeps no exposures."""
    return False


def read_log(workspace: Workspace, agent: str) -> Log:
    """Return an agent's log; an agent without one has an empty log."""
    return corrections_md.parse_log(workspace.files.read(log_file(workspace, agent)))


# --- logging --------------------------------------------------------------------------------------------------------


def correct(
    workspace: Workspace,
    agent: str,
    told: Correction,
    *,
    session: str = "",
    same: str = "",
    was_shown: WasShown = never_shown,
) -> Logged:
    """Log one correction, durable before this returns.

    Args:
        workspace: where.
        agent: whose correction.
        told: the correction, unscreened.
        session: the host's session, if there is one.
        same: id of an existing pattern that this is another occurrence of.
        was_shown: tells of exposures.

    Raises:
        RefusedError: a field is too long.
        NoError: there is no pattern ``same``.
        DiskError: it did not reach the disk.
    """
    entry, secrets = _screened(told)
    target = _target(workspace, agent, entry.pattern, same)
    now_ms = workspace.world.wall_ms()
    if echo := _echoed(entry, target, was_shown, now_ms):
        return _as_echo(workspace, agent, echo, entry.pattern, secrets)
    extra = (RELAPSED,) if was_shown(target.members, now_ms) else ()
    named = _session(workspace, agent, session)
    writer = _writer(workspace, agent)
    path = log_file(workspace, agent)
    with workspace.log_lock(agent):
        page, at = workspace.files.read(path), writer.tick()
        body, content = _written(entry, workspace.wall())
        record = Record(corrections_md.next_id(page, body, content), target.id, writer.name, at, named, extra)
        head = "" if page else f"# Corrections — {agent}\n"
        block = f"{head}\n{body.rstrip()}\n{corrections_md.format_record(record)}\n"
        workspace.files.append(path, block.encode())
    _count_now(workspace, agent)
    return _answered(workspace, target, page, entry.pattern, secrets)


def state_lesson(
    workspace: Workspace,
    agent: str,
    prefix: str,
    pattern: str,
    right: str = "",
    *,
    same: str = "",
    session: str = "",
    was_shown: WasShown = never_shown,
) -> Stated:
    """State what a signal teaches, durable before this returns: from then on it counts like any correction.

    Append-only: the entry stays as it was written. Its lesson goes to the end of the log, with the record that counts
    it, in one write.

    Args:
        workspace: where.
        agent: whose log it is in.
        prefix: the entry's id, or the beginning of it, with or without ``c-``.
        pattern: the lesson, unscreened. "" with ``same``: that pattern's own words.
        right: the correct approach, unscreened.
        same: id of an existing pattern that this is another occurrence of.
        session: the host's session; the one in which the signal was flagged comes first.
        was_shown: tells of exposures.

    Raises:
        NoError: no entry, or more than one, begins like that; or its lesson is stated already.
        RefusedError: a text is too long.
        DiskError: it did not reach the disk.
    """
    said = inputs.lesson(pattern) if pattern or not same else inputs.Text("", ())
    way = inputs.enter("right", right)
    path = log_file(workspace, agent)
    bound = _unfilled_entry(workspace, agent, prefix)
    target = _target(workspace, agent, said.text, same)
    text = said.text or (target.lesson.text if target.lesson else "")
    flagged_in, flagged_ms = signals.origin(workspace.files.read(path), bound.id)
    # Whether it is a relapse was decided when the mistake was made, not when somebody said what it teaches.
    when_ms = flagged_ms if flagged_ms is not None else workspace.world.wall_ms()
    extra = (RELAPSED,) if was_shown(target.members, when_ms) else ()
    named = flagged_in or _session(workspace, agent, session)
    writer = _writer(workspace, agent)
    statements = [Statement(bound.id, "pattern", text)]
    if way.text:
        statements.append(Statement(bound.id, "right", way.text))
    head = ("head", corrections_md.heading_mark(bound.entry))
    with workspace.log_lock(agent):
        page = workspace.files.read(path)
        if f"<!-- fleet {bound.id} p-".encode() in page:
            raise NoError(f"{bound.id} was filled just now by another process; nothing was logged")
        record = Record(bound.id, target.id, writer.name, writer.tick(), named, (head, *extra))
        block = "".join(map(corrections_md.format_statement, statements)) + corrections_md.format_record(record)
        workspace.files.append(path, f"\n{block}\n".encode())
    _count_now(workspace, agent)
    return Stated(bound.id, _answered(workspace, target, page, text, inputs.kinds([said, way])))


class _Target(NamedTuple):
    """The pattern that an occurrence counts for.

    Attributes:
        id: of the record.
        members: the record, and those that it is merged with, by id.
        lesson: all of them as one; None for a new lesson.
        is_same: the caller named it: there is nothing near to look for.
    """

    id: str
    members: dict[str, Line]
    lesson: Pattern | None
    is_same: bool


def _target(workspace: Workspace, agent: str, lesson: str, same: str) -> _Target:
    """Return what an occurrence counts for, by what is known here: nobody waits long for another process."""
    patterns = workspace.patterns
    with workspace.patient(WAIT_S):
        found = same or patterns.same_text(lesson)
        if same and patterns.get(same) is None:
            raise NoError(f"there is no pattern {same}; nothing was logged. `fleet patterns` lists them")
        members = [line for each in patterns.group(found) if (line := patterns.line(each)) is not None]
    policy = workspace.policy()
    whole = merged.united([fold(line, policy) for line in members]) if members else None
    return _Target(found, {found: Line(found)} | {line.id: line for line in members}, whole, bool(same))


def _writer(workspace: Workspace, agent: str) -> Writer:
    """Return the agent's writer for the log alone. Only where a replica has to be minted the write lock is taken."""
    name = next((each for each in workspace.current_replicas() if names.agent_of(each) == agent), "")
    if name and not workspace.clock.reading().is_ahead and not workspace.is_read_only:
        return Writer(workspace, name)
    with workspace.writing(agent) as writer:
        return writer


def _session(workspace: Workspace, agent: str, named: str) -> str:
    """Return the session of an occurrence: the host's, else the replica's own until it has been idle for a while."""
    if named:
        return corrections_md.session_word(named)
    idle_ms = workspace.config.recall.session_idle_minutes * 60_000
    fresh: Callable[[], str] = lambda: "s-" + workspace.world.entropy(6).hex()  # noqa: E731
    return workspace.state.session(agent, workspace.world.wall_ms(), idle_ms, fresh)


def _screened(told: Correction) -> tuple[Correction, tuple[str, ...]]:
    """Return the correction as it may be kept, and what was taken out."""
    pattern = inputs.lesson(told.pattern)
    wrong = inputs.enter("wrong", told.wrong, lines=True)
    right = inputs.enter("right", told.right, lines=True)
    title, source = inputs.enter("title", told.title), inputs.enter("source", told.source, lines=True)
    category, tags = inputs.enter("category", told.category), [inputs.enter("tag", tag) for tag in told.tags]
    entry = Correction(
        wrong=wrong.text,
        right=right.text,
        pattern=pattern.text,
        title=title.text or _short(wrong.text or pattern.text),
        source=source.text,
        category=category.text,
        # A comma would make two of one in the log.
        tags=tuple(tag.text.replace(",", " ") for tag in tags if tag.text),
    )
    return entry, inputs.kinds([pattern, wrong, right, title, source, category, *tags])


def _short(wrong: str) -> str:
    first = wrong.splitlines()[0] if wrong else ""
    return first if len(first) <= 80 else first[:79].rstrip() + "…"


def _written(entry: Correction, now: str) -> tuple[str, str]:
    """Return an entry's text, and its content as it will be read.

    Raises:
        RefusedError: it would not be read as one.
    """
    body = corrections_md.format_entry(
        when=f"{now[:10]} {now[11:16]}Z",
        title=entry.title,
        wrong=entry.wrong,
        right=entry.right,
        source=entry.source,
        pattern=entry.pattern,
        category=entry.category,
        tags=entry.tags,
    )
    parsed = corrections_md.parse_log(body).entries
    if len(parsed) != 1:
        raise RefusedError(
            "this text cannot be kept as one entry; nothing was written. Please report it, with the text"
        )
    return body, parsed[0].content


def _echoed(entry: Correction, target: _Target, was_shown: WasShown, now_ms: int) -> str:
    """Return the id of the lesson that was shown, and that this correction only repeats; "" for a correction."""
    if copied := echoes.injected_id(entry.pattern):
        return copied
    lesson = target.lesson
    if lesson is None or not echoes.is_echo(entry.wrong, entry.right, entry.pattern, [(lesson.text, lesson.correct)]):
        return ""
    return target.id if was_shown([target.id], now_ms) else ""


def _as_echo(workspace: Workspace, agent: str, lesson: str, text: str, secrets: tuple[str, ...]) -> Logged:
    found = workspace.patterns.lesson(lesson)
    if found is None:
        return Logged(lesson, text, 0, secrets, is_echo=True)
    return Logged(found.id, found.text, found.count("seen"), secrets, is_echo=True)


def _answered(workspace: Workspace, target: _Target, page: bytes, text: str, secrets: tuple[str, ...]) -> Logged:
    """Return what is told of an occurrence that was just logged.

    Args:
        workspace: where.
        target: what it counts for, as it was known before.
        page: the log before it: what stands in there and is not counted in ``target`` came earlier.
        text: of the lesson, as it was told.
        secrets: that were taken out.
    """
    whole, seen = target.lesson, 1
    if whole is not None:
        earlier = corrections_md.latest(corrections_md.records_of(target.members, page))
        seen += whole.count("seen")
        seen += sum(r.at > lines.counted(target.members[r.pattern], r.replica) for r in earlier)
    lesson, known_as = (whole.id, whole.text or text) if whole is not None else (target.id, text)
    if target.is_same:
        return Logged(lesson, known_as, seen, secrets)
    return Logged(lesson, known_as, seen, secrets, look=lambda: _near(workspace, target.members, text))


def _near(workspace: Workspace, ids: Collection[str], text: str) -> list[Near]:
    """Return the lessons nearest to a text, other than the one that it was logged under; of a merged set only one."""
    stands_for = {member: group[0] for group in merged.groups(workspace.patterns.pointing()) for member in group}
    found = [each for each in workspace.patterns.candidates(text) if each.id not in ids]
    closest: dict[str, Near] = {}
    for each in near(text, [(found_.id, found_.text) for found_ in found], len(found)):
        closest.setdefault(stands_for.get(each.id, each.id), each)
    return list(closest.values())[:NEAR_MAX]


def _unfilled_entry(workspace: Workspace, agent: str, prefix: str) -> Bound:
    """Return the entry that an id, or the unique beginning of one, names: it waits for its lesson.

    Raises:
        UsageError: a beginning of no characters.
        NoError: no entry, or more than one; or its lesson is stated.
    """
    wanted = prefix if prefix.startswith("c-") else f"c-{prefix}"
    if wanted == "c-":
        raise UsageError("name the correction: `fleet learn --waiting` lists those that wait for their lesson")
    bound = corrections_md.bind(read_log(workspace, agent))
    # An entry whose text was mended since it was counted is known by what it was called then, too.
    found = [b for b in bound if b.id.startswith(wanted) or (b.record is not None and b.record.id.startswith(wanted))]
    if not found:
        raise NoError(
            f"no correction of {agent}'s begins with {prefix[:40]!r}; nothing was logged. `fleet learn --waiting` "
            "lists those that wait for their lesson"
        )
    if len(found) > 1:
        some = ", ".join(b.id for b in found[:_SHOWN_MAX]) + (", ..." if len(found) > _SHOWN_MAX else "")
        raise NoError(f"{prefix[:40]} is not unique: {some}. Give more of the id; nothing was logged")
    _check_unfilled(workspace, found[0])
    return found[0]


def _check_unfilled(workspace: Workspace, bound: Bound) -> None:
    if bound.record is not None:
        pattern = bound.record.pattern
        known = workspace.patterns.get(pattern)
        told = (known.text if known is not None else "") or bound.entry.pattern
        raise NoError(
            f"{bound.id} is filled already, and counted as {pattern}: {told[:200]}. Nothing was logged. To say it "
            f"better: `fleet edit {pattern} --set text=...`; if it is the same lesson as another: "
            f"`fleet merge {pattern} OTHER`"
        )
    if bound.entry.pattern:
        raise NoError(
            f"{bound.id} is filled already, by hand: {bound.entry.pattern[:200]}. Nothing was logged; it counts with "
            "the next `fleet correct` or `fleet sync`"
        )


# --- counting -------------------------------------------------------------------------------------------------------


def _count_now(workspace: Workspace, agent: str) -> None:
    """Count what was just logged, if nobody else is at work. It has succeeded either way: the log is what counts."""
    try:
        with workspace.writing(agent, WAIT_S) as writer:
            reconcile(writer)
    except BusyError:
        pass  # the next command counts it
    except FleetError as why:
        workspace.warn(f"the correction is logged, but not counted yet: {why}")


def reconcile(writer: Writer) -> int:
    """Count what an agent's log has and the records lack: to be done before any other add is issued.

    Entries that were written by hand get their record, at the end of the file. The caller holds the write lock.

    Returns:
        How many lines were written to the shard.

    Raises:
        BusyError: another process brings the rows up to date: a total that is issued now could be an old one.
    """
    workspace, agent = writer.workspace, writer.agent
    if not workspace.refresh(WAIT_S):
        raise BusyError(
            "another process brings this clan's records up to date; the log is counted with the next command"
        )
    owes = _Owing(writer)
    while not owes.is_recorded():
        pass
    owed = owes.lines()
    # The log has all of it, on the disk: what a power failure takes from the shard is written anew from there.
    writer.append(PATTERNS, owed, is_durable=False)
    owes.note()
    return len(owed)


def reconcile_all(workspace: Workspace) -> int:
    """Count the logs of all agents that write here; return how many lines were written."""
    if workspace.is_read_only:
        return 0
    owed = 0
    for agent in workspace.agents_here():
        page = workspace.files.read(log_file(workspace, agent))
        if page and not _noted(workspace, agent).is_whole(page):
            with workspace.writing(agent) as writer:
                owed += reconcile(writer)
    return owed


def unfilled(workspace: Workspace, agent: str) -> int:
    """Return how many entries of an agent's log wait for their lesson: they count for nothing until it is stated."""
    page = workspace.files.read(log_file(workspace, agent))
    return _read_since(_noted(workspace, agent), page).waiting if page else 0


class _Counted(NamedTuple):
    """Note of how far a log is counted, kept in the database beside the rows that count it.

    Attributes:
        size: so many bytes of the log.
        hash: of these bytes.
        waiting: entries in them whose lesson is still to be stated.
    """

    size: int = 0
    hash: str = ""
    waiting: int = 0

    @classmethod
    def of(cls, page: bytes, waiting: int) -> "_Counted":
        """Return the note of a page all of which is counted."""
        return cls(len(page), _hash(page), waiting)

    def is_about(self, page: bytes) -> bool:
        """Tell whether the page begins with what was counted."""
        return 0 < self.size <= len(page) and self.hash == _hash(page[: self.size])

    def is_whole(self, page: bytes) -> bool:
        """Tell whether all of the page is counted."""
        return self.size == len(page) and self.is_about(page)


def _hash(page: bytes) -> str:
    return hashlib.blake2b(page, digest_size=16).hexdigest()


def _noted(workspace: Workspace, agent: str) -> _Counted:
    size, digest, waiting = (workspace.db.noted(f"log {agent}").split(" ") + ["", "", ""])[:3]
    return _Counted(int(size), digest, int(waiting)) if waiting else _Counted()


class _Read(NamedTuple):
    """The part of a log that is not counted yet.

    Attributes:
        before: what stands before it.
        log: the part.
        bound: its entries.
        waiting: entries of the whole log whose lesson is still to be stated.
    """

    before: bytes
    log: Log
    bound: list[Bound]
    waiting: int


def _read_since(noted: _Counted, page: bytes) -> _Read:
    """Read what follows the counted part of a log, if that can be understood by itself; else all of it."""
    if noted.is_about(page) and (read := _read_rest(noted, page)) is not None:
        return read
    log = corrections_md.parse_log(page)
    bound = corrections_md.bind(log)
    return _Read(b"", log, bound, _waiting(bound))


def _read_rest(noted: _Counted, page: bytes) -> _Read | None:
    """Read the entries that were appended; None where anything else was, which may belong to an earlier entry."""
    before, rest = page[: noted.size], page[noted.size :]
    if rest.strip() and not (before.endswith(b"\n") and rest.lstrip().startswith(b"#")):
        return None
    log = corrections_md.parse_log(rest)
    bound = corrections_md.bind(log)
    trailing = {b.record for b in bound if b.record is not None}
    is_plain = not log.statements and trailing.issuperset(log.records)
    if not is_plain or any(b.record is None and b.entry.pattern for b in bound):
        return None
    return _Read(before, log, bound, noted.waiting + _waiting(bound))


def _waiting(bound: Iterable[Bound]) -> int:
    return sum(b.record is None and not b.entry.pattern for b in bound)


class _Owing:
    """What one agent's log owes to the records.

    Args:
        writer: of the agent; the rows are up to date.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._workspace = writer.workspace
        self._path = log_file(writer.workspace, writer.agent)
        self._page = self._workspace.files.read(self._path)
        self._read = _read_since(_noted(self._workspace, writer.agent), self._page)
        self._entries: dict[str, Entry] = {}

    def is_recorded(self) -> bool:
        """Append a record for each usable entry without one; False where the log was written to meanwhile.

        They go to the end of the file: a person's lines stay as they are.
        """
        fresh = [
            (bound, self._workspace.patterns.same_text(lesson))
            for bound in self._read.bound
            if bound.record is None and (lesson := _lesson_text(bound.entry))
        ]
        if not fresh:
            return True
        with self._workspace.log_lock(self._writer.agent):
            is_same = self._workspace.files.read(self._path) == self._page
            if is_same:
                records = [self._record(bound, pattern) for bound, pattern in fresh]
                data = "".join(corrections_md.format_record(record) + "\n" for record in records)
                self._workspace.files.append(self._path, data.encode())
            self._page = self._workspace.files.read(self._path)
        self._read = _read_since(_Counted(), self._page)
        return is_same

    def _record(self, bound: Bound, pattern: str) -> Record:
        head = ("head", corrections_md.heading_mark(bound.entry))
        return Record(bound.id, pattern, self._writer.name, self._writer.tick(), "", (head, PART))

    def lines(self) -> list[Line]:
        """Return one line for each pattern and replica that has newer records, and for what no column words."""
        self._entries = {b.record.id: b.entry for b in self._read.bound if b.record is not None}
        slots: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in corrections_md.latest(self._read.log.records):
            slots[record.pattern, record.replica].append(record)
        earlier = self._sessions_before({pattern for pattern, _ in slots})
        found = []
        for (pattern, replica), records in slots.items():
            known = self._workspace.patterns.line(pattern) or Line(pattern)
            counted = lines.counted(known, replica)
            fresh = [record for record in records if record.at > counted]
            before = earlier[pattern, replica] | {record.session for record in records if record.at <= counted}
            made = self._raised(known, replica, fresh, before) if fresh else self._reworded(known, records)
            if made.w:
                found.append(made)
        return found

    def _sessions_before(self, patterns: Collection[str]) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for record in corrections_md.records_of(patterns, self._read.before):
            found[record.pattern, record.replica].add(record.session)
        return found

    def _raised(self, known: Line, replica: str, fresh: Sequence[Record], before: set[str]) -> Line:
        """Return the column that counts some more records; those of entries written by hand are parts."""
        own = [record for record in fresh if PART not in record.extra]
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
            if PART in record.extra:
                made = lines.join(made, self._part(known, replica, record))
        return made

    def _part(self, known: Line, replica: str, record: Record) -> Line:
        day = self._entries[record.id].when[:10] if record.id in self._entries else ""
        session = hashlib.blake2b(f"{self._writer.agent}\0{day}".encode(), digest_size=8).hexdigest()
        hash_ = record.id.removeprefix("c-")
        return edits.part(known, known.id, hash_, {}, replica, "", seen=1, sessions=1, session_hash=session)

    def _reworded(self, known: Line, records: Sequence[Record]) -> Line:
        """Return text and right way of a lesson that no column words: they were lost, and the log still has them."""
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
        alike = {known.id, pattern_id(str(here.get("text", "")))}
        found: dict[str, object] = {}
        for entry in (self._entries[record.id] for record in records if record.id in self._entries):
            said = self._said(entry)
            may_differ = ("text", "correct") if pattern_id(str(said["text"])) in alike else ()
            for field, value in said.items():
                if value and field not in found and (field not in here or field in may_differ):
                    found[field] = value
        return found

    def _said(self, entry: Entry) -> dict[str, object]:
        more = [field for field in self._workspace.config.share.fields if field in SHAREABLE]
        said: dict[str, object] = {"text": _lesson_text(entry), "correct": _clean(entry.right)}
        said["category"] = _clean(entry.category)
        said["tags"] = sorted({clean for tag in entry.tags if (clean := _clean(tag))})[: limits.TAGS_MAX]
        return said | {field: _clean(getattr(entry, field)) for field in more}

    def note(self) -> None:
        """Note how far the log is counted, once the rows have it."""
        if self._workspace.refresh(WAIT_S):
            noted = _Counted.of(self._page, self._read.waiting)
            self._workspace.db.note(f"log {self._writer.agent}", f"{noted.size} {noted.hash} {noted.waiting}")


def _clean(text: str) -> str:
    """Return a field as it may enter a line; "" when it is too long, since nothing is cut."""
    clean = screening.one_line(screening.screen(text).text)
    is_short = len(clean) * 4 <= limits.TEXT_BYTES_MAX or len(clean.encode()) <= limits.TEXT_BYTES_MAX
    return clean if is_short else ""


def _lesson_text(entry: Entry) -> str:
    """Return the entry's pattern as it may enter a line: screened, one line; "" when it is not usable.

    Nor is one that was copied from what fleet shows: an echo is no new observation.
    """
    clean = "" if echoes.injected_id(entry.pattern) else _clean(entry.pattern)
    return clean if normalise(clean) else ""


# --- what a log tells -----------------------------------------------------------------------------------------------


def rights(workspace: Workspace, agent: str) -> dict[str, str]:
    """Return the right way by pattern, as it was last told in an agent's log."""
    counted = ((bound.record, bound.entry) for bound in corrections_md.bind(read_log(workspace, agent)))
    return {record.pattern: way for record, entry in counted if record is not None and (way := _clean(entry.right))}


def occurrences(workspace: Workspace, agent: str) -> Iterator[Occurrence]:
    """Yield what the records of an agent's log say, in file order; a deleted entry's record counts on.

    A mistake was made when its record was written, unless the entry tells of an earlier time: a heading is exact to the
    minute only.
    """
    log = read_log(workspace, agent)
    told = {bound.record.id: bound.entry.when for bound in corrections_md.bind(log) if bound.record is not None}
    for record in corrections_md.latest(log.records):
        at_ms = clock.unpack(record.at)[0]
        heading_ms = dates.to_ms(told.get(record.id, ""))
        if heading_ms is not None and heading_ms < at_ms - MINUTE_MS:
            at_ms = heading_ms
        yield Occurrence(record.pattern, at_ms, RELAPSED in record.extra)
