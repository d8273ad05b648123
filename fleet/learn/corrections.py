"""``corrections.md``: the write-ahead log of every correction. One write(2), one fsync, and only then success."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from fleet.keep import merging, shown
from fleet.keep.errors import DiskError, NoError, RefusedError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, count, text
from fleet.keep.reading import PATTERNS
from fleet.keep.store import Held
from fleet.keep.view import glance, remember
from fleet.keep.workspace import Workspace, Writer
from fleet.learn import drafts, echoes, reconcile, sessions, settled
from fleet.learn.entries import Log, Record, format_entry, format_record, parse_log
from fleet.learn.records import records_of

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


class Logged(NamedTuple):
    """What became of a correction.

    Attributes:
        id: of the pattern.
        text: of the pattern, as the clan knows it.
        seen: occurrences in the whole clan, this one included.
        secrets: kinds of secrets that were taken out.
        near: other patterns that may be the same lesson in other words, or look like it and differ.
        is_echo: it told nothing but a lesson that this agent was shown, so nothing was logged.
    """

    id: str
    text: str
    seen: int
    secrets: tuple[str, ...]
    near: tuple["Near", ...] = ()
    is_echo: bool = False


def read_log(workspace: Workspace, agent: str) -> Log:
    """Read an agent's log; an agent without one has an empty log."""
    return parse_log(workspace.disk.read(log_file(workspace, agent)))


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
    entry, secrets = _screened(told)
    with workspace.writing(agent) as writer:
        held = glance(workspace)
        workspace.admit(held.notebook)
        pattern = _known(held.notebook, same) if same else reconcile.find_pattern(held.notebook, entry.pattern)
        if echo := _echoed(writer, entry, held.notebook.get(pattern)):
            return _as_echo(held.notebook, echo, entry.pattern, secrets)
        before, noted = settled.signature(workspace, agent), settled.noted(workspace, agent)
        extra = _relapse(writer, held.notebook, pattern)
        named = sessions.session_of(workspace, agent, session)
        is_settled = before == noted.signature
        log = _append_entry(writer, entry, pattern, named, extra, is_settled=is_settled)
        try:
            if is_settled and reconcile.is_counted(log.records[:-1], held.notebook):
                _append_owed(writer, held, log)
                settled.note(workspace, agent, noted.unfilled)
            else:
                settle(writer, held)
            remember(workspace, held)
        except DiskError as why:
            # The log has it, and the log is what counts: the next command takes it from there.
            workspace.warn(f"the correction is logged, but not counted yet: {why}")
    return answered(held.notebook, pattern, entry.pattern, secrets, is_same=bool(same))


def answered(notebook: Notebook, pattern: str, lesson: str, secrets: tuple[str, ...], *, is_same: bool) -> Logged:
    """Return what is told of a lesson that was just logged as this pattern."""
    if notebook.get(pattern) is None:
        return Logged(pattern, lesson, 1, secrets)
    line = merging.whole(notebook, pattern)
    # Whoever says --same has looked already.
    close = () if is_same else _near(notebook, line.id, lesson)
    return Logged(line.id, text(line), count(line, "seen"), secrets, close)


def _near(notebook: Notebook, lesson_id: str, lesson: str) -> tuple["Near", ...]:
    """Return the patterns closest to a lesson, other than those that it is merged with; of a merged set only one."""
    from fleet.keep import matching  # tables of words and rapidfuzz: 25 ms that most commands need not spend

    stands_for = {member: group[0] for group in merging.groups(notebook.pointing()) for member in group}
    mine = stands_for.get(lesson_id, lesson_id)
    if notebook.index is not None:
        candidates = matching.indexed(lesson, notebook.index)
    else:
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


def _screened(told: Correction) -> tuple[Correction, tuple[str, ...]]:
    pattern = drafts.pattern(told.pattern)
    fields = {
        "wrong": drafts.enter("wrong", told.wrong, lines=True),
        "right": drafts.enter("right", told.right, lines=True),
        "title": drafts.enter("title", told.title),
        "source": drafts.enter("source", told.source, lines=True),
        "category": drafts.enter("category", told.category),
    }
    tags = [drafts.enter("tag", tag) for tag in told.tags]
    if not fields["title"].text:
        fields["title"] = drafts.Text(_short(fields["wrong"].text or pattern.text), ())
    kinds = {kind for entered in (pattern, *tags, *fields.values()) for kind in entered.secrets}
    texts = {name: entered.text for name, entered in fields.items()}
    # A comma would make two tags of one in the log.
    words = tuple(tag.text.replace(",", " ") for tag in tags if tag.text)
    entry = Correction(pattern=pattern.text, tags=words, **texts)
    return entry, tuple(sorted(kinds))


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


def _relapse(writer: Writer, notebook: Notebook, pattern: str) -> tuple[tuple[str, str], ...]:
    """Return what a record says of an occurrence whose lesson the agent had been shown: under its own id or another."""
    workspace = writer.workspace
    also = [merging.whole(notebook, pattern).id] if notebook.get(pattern) is not None else []
    return shown.relapse_extra(workspace.root, writer.agent, pattern, workspace.world.wall_ms(), also)


def _append_entry(
    writer: Writer,
    entry: Correction,
    pattern: str,
    session: str,
    extra: tuple[tuple[str, str], ...],
    *,
    is_settled: bool,
) -> Log:
    """Append the entry and its record in one write.

    Returns the part of the log that is about this pattern: this entry, and all records, the new one last.
    """
    workspace, at = writer.workspace, writer.tick()
    when = datetime.fromtimestamp(workspace.world.wall_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    body = format_entry(
        when=when,
        title=entry.title,
        wrong=entry.wrong,
        right=entry.right,
        source=entry.source,
        pattern=entry.pattern,
        category=entry.category,
        tags=entry.tags,
    )
    path = log_file(workspace, writer.agent)
    known = workspace.disk.read(path)
    parsed = parse_log(body).entries
    if len(parsed) != 1:
        raise RefusedError(
            "this text cannot be kept as one entry; nothing was written. Please report it, with the text"
        )
    content = parsed[0].content
    is_told = entry.pattern.encode() in known and (not is_settled or when.encode() in known)
    record = Record(
        id=reconcile.entry_id(content, _told_before(content, known, is_settled=is_settled, may_be=is_told)),
        pattern=pattern,
        replica=writer.name,
        at=at,
        session=session,
        extra=extra,
        line=0,
    )
    head = "" if known else f"# Corrections — {writer.agent}\n"
    workspace.disk.append(path, f"{head}\n{body.rstrip()}\n{format_record(record)}\n".encode())
    return Log(parsed, (*records_of(pattern, known), record))


def _told_before(content: str, known: bytes, *, is_settled: bool, may_be: bool) -> int:
    """Return how many entries of a log have this content. Reading all of it is the last resort.

    In a settled log each has its record, under the id that it had then: what was mended since may be another's by now.
    """
    ordinal = 0
    while reconcile.entry_id(content, ordinal).encode() in known:
        ordinal += 1
    if (ordinal and is_settled) or not (ordinal or may_be):
        return ordinal
    return sum(entry.content == content for entry in parse_log(known).entries)


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
    for bound in reconcile.bind(log):
        lesson = "" if bound.record is not None else reconcile.lesson_text(bound.entry)
        if not lesson:
            continue
        session = session or sessions.session_of(workspace, writer.agent, "")
        pattern = reconcile.find_pattern(notebook, lesson)
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
