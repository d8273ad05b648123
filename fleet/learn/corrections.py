"""``corrections.md``: the write-ahead log of every correction. One write(2), one fsync, and only then success."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleet.keep import merging
from fleet.keep.errors import DiskError, NoError, RefusedError
from fleet.keep.notebook import Notebook, count, text
from fleet.keep.reading import PATTERNS
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace, Writer
from fleet.learn import drafts, reconcile, sessions
from fleet.learn.entries import Log, Record, format_entry, format_record, parse_log

if TYPE_CHECKING:
    from fleet.keep.matching import Near

FILE_NAME = "corrections.md"


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
    """

    id: str
    text: str
    seen: int
    secrets: tuple[str, ...]
    near: tuple["Near", ...] = ()


def log_file(workspace: Workspace, agent: str) -> Path:
    """Return the path of an agent's log."""
    return workspace.home(agent) / FILE_NAME


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
        held = workspace.load()
        workspace.admit(held.notebook)
        pattern = _known(held.notebook, same) if same else reconcile.find_pattern(held.notebook, entry.pattern)
        _append_entry(writer, entry, pattern, sessions.session_of(workspace, agent, session))
        try:
            settle(writer, held)
        except DiskError as why:
            # The log has it, and the log is what counts: the next command takes it from there.
            workspace.warn(f"the correction is logged, but not counted yet: {why}")
    if held.notebook.get(pattern) is None:
        return Logged(pattern, entry.pattern, 1, secrets)
    line = merging.whole(held.notebook, pattern)
    # Whoever says --same has looked already.
    close = () if same else _near(held.notebook, pattern, entry.pattern)
    return Logged(line.id, text(line), count(line, "seen"), secrets, close)


def _near(notebook: Notebook, pattern: str, lesson: str) -> tuple["Near", ...]:
    """Return the patterns closest to a lesson, other than those that it is merged with; of a merged set only one."""
    under = merging.sets(notebook)
    mine = under.get(pattern, pattern)
    known = [(known, told) for known, told in merging.texts(notebook) if under.get(known, known) != mine]
    if not known:
        return ()
    from fleet.keep import matching  # tables of words and rapidfuzz: 25 ms that most commands need not spend

    found: dict[str, Near] = {}
    for near in matching.near(lesson, matching.candidates(lesson, known), count=matching.CANDIDATES_MAX):
        found.setdefault(under.get(near.id, near.id), near)
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


def _append_entry(writer: Writer, entry: Correction, pattern: str, session: str) -> None:
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
    # Only an entry with this very heading can have the same content.
    heading = body.split("\n", 1)[0].encode()
    same = [e for e in parse_log(known).entries if e.content == parsed[0].content] if heading in known else []
    record = Record(
        id=reconcile.entry_id(parsed[0].content, len(same)),
        pattern=pattern,
        replica=writer.name,
        at=at,
        session=session,
        extra=(),
        line=0,
    )
    head = "" if known else f"# Corrections — {writer.agent}\n"
    workspace.disk.append(path, f"{head}\n{body.rstrip()}\n{format_record(record)}\n".encode())


def settle(writer: Writer, held: Held) -> int:
    """Record hand-written entries, and write to the shard what the log has and the notebook lacks.

    Returns the number of lines written; they are joined into ``held`` as well.
    """
    log = _record_all(writer, held.notebook)
    owed = list(reconcile.lines_owed(log, held.notebook, writer.workspace.config.share.fields))
    writer.append(PATTERNS, owed)
    held.notebook.add_all(owed)
    return len(owed)


def settle_all(workspace: Workspace) -> Held:
    """Settle the logs of every agent that has one here, and return everything joined."""
    held = workspace.load()
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
        records.append(
            Record(
                id=bound.id,
                pattern=reconcile.find_pattern(notebook, lesson),
                replica=writer.name,
                at=writer.tick(),
                session=session,
                extra=(("head", reconcile.heading_mark(bound.entry)),),
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
    return sum(bound.record is None and not bound.entry.pattern for bound in reconcile.bind(read_log(workspace, agent)))
