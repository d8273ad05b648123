"""``corrections.md``: the write-ahead log of every correction. One write(2), one fsync, and only then success."""

import os
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from fleet.keep import limits, merging, screening, shown
from fleet.keep.errors import DiskError, NoError, RefusedError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, count, text
from fleet.keep.reading import PATTERNS
from fleet.keep.store import Held
from fleet.keep.view import glance, links, remember
from fleet.keep.workspace import Links, Workspace, Writer
from fleet.learn import drafts, echoes, reconcile, sessions, settled
from fleet.learn.entries import Entry, Log, Record, format_entry, format_record, parse_log, written_plainly
from fleet.learn.logbook import Logbook

if TYPE_CHECKING:
    from fleet.keep.matching import Near

FILE_NAME = settled.FILE_NAME
log_file = settled.log_file


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
        id: of the pattern.
        text: of the pattern, as the clan knows it.
        seen: occurrences in the whole clan, this one included.
        secrets: kinds of secrets that were taken out.
        is_echo: it told nothing but a lesson that this agent was shown, so nothing was logged.
    """

    def __init__(
        self,
        pattern: str,
        lesson: str,
        seen: int,
        secrets: tuple[str, ...],
        *,
        close: Callable[[], tuple["Near", ...]] = tuple,
        is_echo: bool = False,
    ) -> None:
        self.id = pattern
        self.text = lesson
        self.seen = seen
        self.secrets = secrets
        self.is_echo = is_echo
        self._close = close

    @cached_property
    def near(self) -> tuple["Near", ...]:
        """Other patterns that may be the same lesson in other words, or look like it and differ.

        Looked for when somebody asks, for as long as the workspace is open, among what it knows by then: that takes
        longer than logging.
        """
        return self._close()


def read_log(workspace: Workspace, agent: str) -> Log:
    """Read an agent's log; an agent without one has an empty log.

    The same bytes say the same: a sync looks at a log three times, and takes it apart once.
    """
    data = workspace.disk.read(log_file(workspace, agent))
    known: tuple[bytes, Log] | None = workspace.logs.get(agent)
    if known is None or known[0] != data:
        known = workspace.logs[agent] = data, parse_log(data)
    return known[1]


def correct(workspace: Workspace, agent: str, told: Correction, *, session: str = "", same: str = "") -> Logged:
    """Log one correction, durable before this returns.

    Args:
        workspace: where.
        agent: whose correction.
        told: the correction, unscreened.
        session: the host's session, if there is one.
        same: id of an existing pattern that this is another occurrence of.

    Raises:
        RefusedError: a field is too long.
        NoError: there is no pattern ``same``.
        DiskError: it did not reach the disk.
    """
    entry, secrets, is_harmless = _screened(told)
    with workspace.writing(agent) as writer:
        kept = workspace.kept
        held = glance(workspace, for_one=True)
        if kept is None or held is not kept.held:
            workspace.admit(held.notebook)  # else all that was read was admitted then, and we hold the lock
        known = links(workspace, held)
        pattern = _known(held.notebook, same) if same else _pattern_of(held.notebook, entry.pattern, known)
        if echo := _echoed(writer, entry, held.notebook.get(pattern)):
            return _as_echo(held.notebook, echo, entry.pattern, secrets)
        log = _logbook(workspace, agent)
        extra = _relapse(writer, held.notebook, pattern, known)
        named = sessions.session_of(workspace, agent, session)
        fresh = _fresh_entry(writer, log, entry, pattern, named, extra)
        owed = _owed_by(writer, log, held, fresh, is_clean=is_harmless and fresh.is_plain)
        log.wrote(fresh.record, workspace.disk.append(log.path, fresh.data, meanwhile=owed), len(fresh.data))
        unfilled, log.unfilled = log.unfilled, None  # until what is owed is written, whatever stops us
        try:
            if owed is not None:
                seen = owed.write()
                log.unfilled = unfilled
                settled.note_later(workspace, agent, log)
                wrote = (PATTERNS.shard(writer.name), seen) if seen is not None else None
                remember(workspace, held, known, wrote=wrote)
            else:
                settle(writer, held)
                remember(workspace, held, known)
        except DiskError as why:
            # The log has it, and the log is what counts: the next command takes it from there.
            workspace.warn(f"the correction is logged, but not counted yet: {why}")
    return answered(held.notebook, pattern, entry.pattern, secrets, is_same=bool(same), known=known)


def answered(
    notebook: Notebook,
    pattern: str,
    lesson: str,
    secrets: tuple[str, ...],
    *,
    is_same: bool,
    known: Links | None = None,
) -> Logged:
    """Return what is told of a lesson that was just logged as this pattern."""
    line = notebook.get(pattern)
    if line is None:
        return Logged(pattern, lesson, 1, secrets)
    if known is None or known.pointing:
        line = merging.whole(notebook, pattern, known.pointing if known is not None else None)
    told = (line.id, text(line), count(line, "seen"), secrets)
    # Whoever says --same has looked already.
    return Logged(*told) if is_same else Logged(*told, close=lambda: _near(notebook, line.id, lesson))


def _pattern_of(notebook: Notebook, lesson: str, known: Links | None) -> str:
    return reconcile.find_pattern(notebook, lesson, known.edited if known is not None else None)


def _logbook(workspace: Workspace, agent: str) -> Logbook:
    """Return what is known of an agent's log, and whether it owes nothing. The caller holds the write lock."""
    found = workspace.logbooks.get(agent)
    if found is None:
        found = workspace.logbooks[agent] = Logbook(workspace.disk, log_file(workspace, agent))
    else:
        found.refresh()
    if found.unfilled is None:
        noted = settled.noted(workspace, agent)
        if noted.signature == found.signature:
            found.unfilled = noted.unfilled
        elif not found.is_as_read:
            found.read()
    return found


def _near(notebook: Notebook, lesson_id: str, lesson: str) -> tuple["Near", ...]:
    """Return the patterns closest to a lesson, other than those that it is merged with; of a merged set only one."""
    from fleet.keep import matching  # tables of words and rapidfuzz: 25 ms that most commands need not spend

    stands_for = {member: group[0] for group in merging.groups(notebook.pointing()) for member in group}
    mine = stands_for.get(lesson_id, lesson_id)
    candidates = matching.from_index(lesson, notebook, lambda member: stands_for.get(member, member) == mine)
    if candidates is None:
        known = [known for known in merging.texts(notebook) if stands_for.get(known[0], known[0]) != mine]
        if not known:
            return ()
        candidates = matching.candidates(lesson, known)
    found: dict[str, Near] = {}
    for near in matching.near(lesson, candidates, count=matching.CANDIDATES_MAX):
        if (one := stands_for.get(near.id, near.id)) != mine:
            found.setdefault(one, near)
    return tuple(found.values())[: matching.NEAR_MAX]


def _known(notebook: Notebook, pattern: str) -> str:
    if notebook.get(pattern) is None:
        raise NoError(f"there is no pattern {pattern}; nothing was logged. `fleet patterns` lists them")
    return pattern


def _screened(told: Correction) -> tuple[Correction, tuple[str, ...], bool]:
    """Return the correction as it may be kept, what was taken out, and whether all of it is harmless, and short."""
    said = "\n".join([told.pattern, told.wrong, told.right, told.title, told.source, told.category, *told.tags])
    # No hint of a secret goes over the end of a line: one look tells it of all fields.
    is_harmless = screening.is_harmless(said)
    if not is_harmless or len(said) * 4 > limits.TEXT_BYTES_MAX:
        return *_screened_closely(told, is_harmless=is_harmless), False
    line = screening.one_line  # nothing to take out, and no field can be too long
    drafts.check_words(pattern := line(told.pattern))
    wrong = told.wrong.strip()
    title = line(told.title) or _short(wrong or pattern)
    tags = _tags([line(tag) for tag in told.tags])
    entry = Correction(wrong, told.right.strip(), pattern, title, told.source.strip(), line(told.category), tags)
    return entry, (), True


def _screened_closely(told: Correction, *, is_harmless: bool) -> tuple[Correction, tuple[str, ...]]:
    enter = partial(drafts.enter, is_harmless=is_harmless)
    pattern = drafts.pattern(told.pattern, is_harmless=is_harmless)
    fields = {
        "wrong": enter("wrong", told.wrong, lines=True),
        "right": enter("right", told.right, lines=True),
        "title": enter("title", told.title),
        "source": enter("source", told.source, lines=True),
        "category": enter("category", told.category),
    }
    tags = [enter("tag", tag) for tag in told.tags]
    if not fields["title"].text:
        fields["title"] = drafts.Text(_short(fields["wrong"].text or pattern.text), ())
    kinds = {kind for entered in (pattern, *tags, *fields.values()) for kind in entered.secrets}
    texts = {name: entered.text for name, entered in fields.items()}
    entry = Correction(pattern=pattern.text, tags=_tags([tag.text for tag in tags]), **texts)
    return entry, tuple(sorted(kinds))


def _tags(words: list[str]) -> tuple[str, ...]:
    """Return the tags that say something. A comma would make two of one in the log."""
    return tuple([word.replace(",", " ") for word in words if word])


def _short(wrong: str) -> str:
    first = wrong.splitlines()[0] if wrong else ""
    return first if len(first) <= 80 else first[:79].rstrip() + "…"


def _echoed(writer: Writer, entry: Correction, lesson: Line | None) -> str:
    """Return the id of the lesson that was shown, and that this correction only repeats; "" for a correction."""
    workspace = writer.workspace
    return echoes.echoed(
        workspace.root,
        writer.agent,
        wrong=entry.wrong,
        right=entry.right,
        pattern=entry.pattern,
        lesson=lesson,
        now_ms=workspace.world.wall_ms(),
    )


def _as_echo(notebook: Notebook, pattern: str, told: str, secrets: tuple[str, ...]) -> Logged:
    if notebook.get(pattern) is None:
        return Logged(pattern, told, 0, secrets, is_echo=True)
    line = merging.whole(notebook, pattern)
    return Logged(line.id, text(line), count(line, "seen"), secrets, is_echo=True)


def _relapse(
    writer: Writer, notebook: Notebook, pattern: str, known: Links | None = None
) -> tuple[tuple[str, str], ...]:
    """Return what a record says of an occurrence whose lesson the agent had been shown: under its own id or another."""
    workspace = writer.workspace
    pointing = known.pointing if known is not None else None
    also = [merging.whole(notebook, pattern, pointing).id] if notebook.get(pattern) is not None else []
    return shown.relapse_extra(workspace.root, writer.agent, pattern, workspace.world.wall_ms(), also)


class _Fresh(NamedTuple):
    """An entry that is to be written.

    Attributes:
        entry: as it will be read.
        record: behind it.
        is_first: no entry of the log had this content.
        is_plain: each of its values is one line, as it was told.
        before: the other records of its pattern, in file order.
        data: what is appended to the log, in one write.
    """

    entry: Entry
    record: Record
    is_first: bool
    is_plain: bool
    before: list[Record]
    data: bytes


def _fresh_entry(
    writer: Writer,
    log: Logbook,
    entry: Correction,
    pattern: str,
    session: str,
    extra: tuple[tuple[str, str], ...],
) -> _Fresh:
    """Issue the stamp of an entry, and work out what is written of it: the entry, and its record."""
    workspace, at = writer.workspace, writer.tick()
    now = workspace.wall()
    when = f"{now[:10]} {now[11:16]}Z"
    body, parsed, is_plain = _written(entry, when)
    entry_id, is_first = _id_of(workspace, log, parsed.content, entry.pattern, when)
    record = Record(entry_id, pattern, writer.name, at, session, extra, 0)
    head = f"# Corrections — {writer.agent}\n" if log.is_empty else ""
    data = f"{head}\n{body.rstrip()}\n{format_record(record)}\n".encode()
    return _Fresh(parsed, record, is_first, is_plain, log.records_of(pattern), data)


class _Owed:
    """The line that a settled log owes after one more entry: worked out while the disk writes the entry.

    Args:
        writer: who writes it.
        held: what it is joined into.
        fresh: the entry.
        is_clean: each field of the entry was screened, is one line, and short.
    """

    def __init__(self, writer: Writer, held: Held, fresh: _Fresh, *, is_clean: bool) -> None:
        self._writer = writer
        self._held = held
        self._fresh = fresh
        self._is_clean = is_clean
        self._line: Line | None = None
        self._data = b""

    def __call__(self) -> None:
        """Work it out."""
        fresh, fields = self._fresh, self._writer.workspace.config.share.fields
        entry = fresh.entry if fresh.is_first else None
        self._line = line = reconcile.line_owed(
            entry, fresh.record, fresh.before, self._held.notebook, fields, is_clean=self._is_clean
        )
        self._data = PATTERNS.encode(line) + b"\n" if line is not None else b""

    def write(self) -> os.stat_result | None:
        """Write it, once the entry is on the disk. Returns what the shard was like then; None where nothing is owed."""
        if self._line is None:
            return None
        # As in ``_append_owed``: the log has it, on the disk.
        store, name = self._writer.workspace.store, self._writer.name
        seen = store.append_encoded(PATTERNS, name, self._data, is_durable=False)
        self._held.notebook.add(self._line)
        return seen


def _owed_by(writer: Writer, log: Logbook, held: Held, fresh: _Fresh, *, is_clean: bool) -> _Owed | None:
    """Return what a settled log owes after one more entry; None for any other log."""
    if log.unfilled is None or not reconcile.is_counted(fresh.before, held.notebook):
        return None
    return _Owed(writer, held, fresh, is_clean=is_clean)


def _written(entry: Correction, when: str) -> tuple[str, Entry, bool]:
    """Return an entry's text, the entry as it will be read, and whether that is plain to see (``written_plainly``).

    Raises:
        RefusedError: it would not be read as one.
    """
    said = {
        "title": entry.title,
        "wrong": entry.wrong,
        "right": entry.right,
        "source": entry.source,
        "pattern": entry.pattern,
        "category": entry.category,
    }
    if plain := written_plainly(when=when, tags=entry.tags, **said):
        return *plain, True
    body = format_entry(when=when, tags=entry.tags, **said)
    parsed = parse_log(body).entries
    if len(parsed) != 1:
        raise RefusedError(
            "this text cannot be kept as one entry; nothing was written. Please report it, with the text"
        )
    return body, parsed[0], False


def _id_of(workspace: Workspace, log: Logbook, content: str, pattern: str, when: str) -> tuple[str, bool]:
    """Return the id of a new entry, and whether no entry of the log has its content. Reading it is the last resort.

    In a settled log each has its record, under the id that it had then: what was mended since may be another's by now.
    """
    is_settled = log.unfilled is not None
    ordinal = 0
    while log.has_entry(found := reconcile.entry_id(content, ordinal)):
        ordinal += 1
    if is_settled and (ordinal or not log.may_say(pattern, when)):
        return found, ordinal == 0
    if not ordinal and not log.may_say(pattern):
        return found, True
    told = sum(entry.content == content for entry in parse_log(workspace.disk.read(log.path)).entries)
    return reconcile.entry_id(content, told), told == 0


def settle(writer: Writer, held: Held) -> int:
    """Record hand-written entries, and write to the shard what the log has and the notebook lacks.

    Returns the number of lines written; they are joined into ``held`` as well.
    """
    log = _record_all(writer, held.notebook)
    owed = _append_owed(writer, held, log)
    settled.note(writer.workspace, writer.agent, _unfilled(log))
    return owed


def _append_owed(writer: Writer, held: Held, log: Log) -> int:
    owed = list(reconcile.lines_owed(log, held.notebook, writer.workspace.config.share.fields))
    # The log has all of it, on the disk: what a power failure takes from the shard is written anew from there.
    writer.append(PATTERNS, owed, is_durable=False)
    held.notebook.add_all(owed)
    return len(owed)


def settle_all(workspace: Workspace) -> Held:
    """Settle the logs of every agent that has one here, and return everything joined."""
    held = glance(workspace)
    with workspace.locked():
        workspace.admit(held.notebook)
    for agent in agents_here(workspace):
        if not workspace.disk.read(log_file(workspace, agent)):
            continue
        with workspace.writing(agent) as writer:
            settle(writer, held)
    return held


def agents_here(workspace: Workspace) -> list[str]:
    """Return the agents whose replicas write in this workspace, sorted."""
    return sorted({replica.agent for replica in workspace.replicas().replicas})


def _record_all(writer: Writer, notebook: Notebook) -> Log:
    """Append, at the end of the file, a record for each usable entry without one: a person's lines stay as they are."""
    workspace = writer.workspace
    log = read_log(workspace, writer.agent)
    session = ""
    records = []
    edited: list[str] | None = None
    for bound in reconcile.bind(log):
        lesson = "" if bound.record is not None else reconcile.lesson_text(bound.entry)
        if not lesson:
            continue
        session = session or sessions.session_of(workspace, writer.agent, "")
        if edited is None and notebook.index is None:  # an index answers that quickly by itself
            edited = notebook.edited()
        pattern = reconcile.find_pattern(notebook, lesson, edited)
        records.append(
            Record(
                id=bound.id,
                pattern=pattern,
                replica=writer.name,
                at=writer.tick(),
                session=session,
                extra=(("head", reconcile.heading_mark(bound.entry)), *_relapse(writer, notebook, pattern)),
                line=0,
            )
        )
    if not records:
        return log
    path = log_file(workspace, writer.agent)
    workspace.disk.append(path, "".join(format_record(record) + "\n" for record in records).encode())
    return read_log(workspace, writer.agent)


def unfilled(workspace: Workspace, agent: str) -> int:
    """Return how many entries still wait for their pattern: they count for nothing until it is stated."""
    return _unfilled(read_log(workspace, agent))


def _unfilled(log: Log) -> int:
    return sum(bound.record is None and not bound.entry.pattern for bound in reconcile.bind(log))
