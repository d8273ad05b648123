"""Promotion done: into ``memory.md``, and known to the clan as ``state=published``.

The clan is told first, then the memory is written. A crash between the two leaves a lesson that is published and not
remembered here; it is still due, and enters with the next promotion. The other way round, a lesson that stands in a
memory and is no longer published could be one that another agent took out, and telling the clan again would undo that.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fleet.keep import edits, merging
from fleet.keep.errors import BusyError, NoError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, as_text, count, is_present, text
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, Writer
from fleet.reflect import hot, promotion
from fleet.reflect.hot import Memory
from fleet.reflect.promotion import CANDIDATE, PERSON, PUBLISHED, Due

Records = Callable[[str], Sequence[Line]]
"""The records that one lesson is made of; none for one that is not merged."""

_READS_MAX = 5


class Promoted(NamedTuple):
    """A lesson that entered a memory: its id and words, why, and on what evidence."""

    id: str
    text: str
    reason: str
    evidence: str


class Waiting(NamedTuple):
    """A lesson that has the evidence, and why it waits for a person all the same."""

    id: str
    text: str
    evidence: str
    why: str

    def in_one_line(self) -> str:
        """Return what a person is asked."""
        return f"{self.text} ({self.evidence}; {self.id}) waits for a choice: {self.why}"


class Outcome(NamedTuple):
    """What a promotion did.

    Attributes:
        promoted: what entered the memory now.
        waiting: everything that waits for a person.
        lines: what was written to the shard; they are to be joined into what the caller holds.
    """

    promoted: tuple[Promoted, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    lines: tuple[Line, ...] = ()


class Standing(NamedTuple):
    """How an agent's memory stands: characters as the agent reads them, their limit, lessons in it, what waits."""

    chars: int
    chars_max: int
    lessons: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    trouble: str


def memory_file(workspace: Workspace, agent: str) -> Path:
    """Return the path of an agent's memory."""
    return workspace.home(agent) / hot.FILE_NAME


def records_of(notebook: Notebook) -> Records:
    """Return how to find the records of a merged lesson. Who points to whom is worked out once, when first asked."""
    groups: list[list[str]] | None = None

    def records(pattern: str) -> Sequence[Line]:
        nonlocal groups
        if groups is None:
            groups = merging.groups(notebook.pointing())
        members = next((group for group in groups if pattern in group), [])
        return [line for member in members if (line := notebook.get(member)) is not None]

    return records


def may_be_due(workspace: Workspace, agent: str, line: Line) -> bool:
    """Tell from a lesson alone whether it is worth the lock: it has the evidence, and may be in the memory already."""
    settings = workspace.config.promotion
    return settings.mode != "off" and bool(promotion.due([line], agent, settings, set()))


def promote_due(
    writer: Writer,
    lines: Iterable[Line],
    records: Records,
    *,
    rights: Callable[[], Mapping[str, str]] = dict,
    is_all: bool = False,
) -> Outcome:
    """Bring into the agent's memory what has the evidence. Idempotent.

    What has it and cannot enter waits: there is no room, the words may not be those that were counted, the file is not
    as it should be, or ``[promotion] mode`` says so. The caller holds the write lock, has settled the log, and has
    admitted every stamp it read.

    Args:
        writer: for whose memory.
        lines: the lessons to look at, each merged set as one.
        records: the records behind a lesson.
        rights: returns the right way by pattern id, as this agent's own log tells it; asked when something is due. No
            other is written down here: anybody can set that field of a lesson, and it is no part of what was counted.
        is_all: these are all lessons there are, so what waited before and is not due any more waits no longer.

    Raises:
        DiskError: the memory is as it was; what is missing enters with the next promotion.
    """
    workspace, agent = writer.workspace, writer.agent
    looked, told_here, done = list(lines), cache(rights), list[Line]()
    by_id = {line.id: line for line in looked}
    for _ in range(_READS_MAX):
        data, memory = read_memory(workspace, agent)
        plan = _planned(workspace, agent, memory, looked, records, told_here)
        done += _published(writer, [by_id[each.id] for each in plan.promoted], done)
        if not plan.promoted or swap_memory(workspace, agent, data, plan.memory):
            waiting = _keep_waiting(workspace, agent, plan.waiting, looked, plan.memory.known(), is_all=is_all)
            return Outcome(tuple(plan.promoted), waiting, tuple(done))
    raise BusyError(
        f"{memory_file(workspace, agent)} is being written by somebody else; what is due enters with the next "
        "`fleet sync`"
    )


class _Plan(NamedTuple):
    """What a memory becomes, what enters it, and what waits."""

    memory: Memory
    promoted: list[Promoted]
    waiting: list[Waiting]


def _planned(
    workspace: Workspace,
    agent: str,
    memory: Memory,
    looked: list[Line],
    records: Records,
    rights: Callable[[], Mapping[str, str]],
) -> _Plan:
    settings, known = workspace.config.promotion, memory.known()
    plan = _Plan(memory, [], [])
    if settings.mode == "off":
        return plan
    by_id = {line.id: line for line in looked}
    for due in promotion.due(looked, agent, settings, known):
        line, parts = by_id[due.id], records(due.id)
        if known.intersection(part.id for part in parts):
            continue  # it was promoted under another record of the same lesson
        told = next(filter(None, (rights().get(part) for part in (due.id, *(p.id for p in parts)))), "")
        more = plan.memory if memory.trouble else hot.with_lesson(plan.memory, _row(line, told, due), agent)
        said = promotion.readable(text(line))
        if why := _obstacle(workspace, more, promotion.doubt(line, parts, agent), due):
            plan.waiting.append(Waiting(due.id, said, due.evidence, why))
        else:
            plan = plan._replace(memory=more)
            plan.promoted.append(Promoted(due.id, said, due.reason, due.evidence))
    return plan


def _row(line: Line, right: str, due: Due) -> str:
    return hot.lesson_row(text(line), right, due.evidence, due.id)


def _obstacle(workspace: Workspace, more: Memory, doubt: str, due: Due) -> str:
    """Return why a lesson cannot enter by itself, and what to do; "" when it can."""
    settings, yes = workspace.config.promotion, f"`fleet promote {due.id}` takes it in"
    if more.trouble:
        return more.trouble
    if doubt:
        return f"{doubt}; {yes} as it reads now"
    if settings.mode == "suggest":
        return yes
    if more.size() > settings.hot_chars:
        return _no_room(more, settings.hot_chars, due.id)
    return ""


def _no_room(more: Memory, chars_max: int, pattern: str) -> str:
    return (
        f"{hot.FILE_NAME} would have {more.size():,} of at most {chars_max:,} characters; shorten your notes, or "
        f"`fleet promote {pattern} --instead-of ID`"
    )


def promote(
    writer: Writer, line: Line, records: Records, *, right: str = "", instead_of: Sequence[str] = ()
) -> Outcome:
    """Bring one lesson into the agent's memory because a person says so.

    Args:
        writer: for whose memory.
        line: the lesson, a merged set as one.
        records: the records behind a lesson.
        right: the right way that goes with it.
        instead_of: ids that leave the memory for it.

    Raises:
        NoError: it is in already, cannot be in a memory, or there is no room; nothing was changed.
    """
    workspace, agent = writer.workspace, writer.agent
    parts = [line.id, *(part.id for part in records(line.id))]
    data, memory = read_memory(workspace, agent)
    _check(memory)
    if inside := [pattern for pattern in memory.ids() if pattern in parts]:
        raise NoError(f"{inside[0]} is in {hot.FILE_NAME} already; nothing was changed")
    if not promotion.can_be_promoted(line):
        why = "has no words that can be shown" if is_present(line) else f"is retired (`fleet restore {line.id}`)"
        raise NoError(f"{line.id} {why}: it cannot be promoted. Nothing was changed")
    for pattern in instead_of:
        if pattern not in memory.ids():
            raise NoError(f"{pattern} is not in {hot.FILE_NAME}, so nothing can stand there instead; nothing changed")
    due = Due(line.id, PERSON, f"a person's yes, seen {count(line, 'seen'):,}")
    more = hot.without_lessons(memory, list(instead_of), agent) if instead_of else memory
    more = hot.with_lesson(more, _row(line, right, due), agent)
    if more.size() > workspace.config.promotion.hot_chars:
        raise NoError(f"{_no_room(more, workspace.config.promotion.hot_chars, line.id)}. Nothing was changed")
    done = _published(writer, [line], [])
    if not swap_memory(workspace, agent, data, more):
        raise BusyError(f"{hot.FILE_NAME} was changed by somebody else just now; run the command again")
    waiting = _keep_waiting(workspace, agent, [], [line], more.known(), is_all=False)
    promoted = Promoted(line.id, promotion.readable(text(line)), due.reason, due.evidence)
    return Outcome((promoted,), waiting, tuple(done))


def demote(writer: Writer, ids: Sequence[str], known: Callable[[str], Line | None]) -> Outcome:
    """Take a lesson out of the agent's memory; the clan's state of it is candidate again.

    Args:
        writer: from whose memory.
        ids: of one lesson and the records it is made of.
        known: the record of an id.

    Raises:
        NoError: it is neither in the memory nor waiting for it; nothing was changed.
    """
    workspace, agent = writer.workspace, writer.agent
    data, memory = read_memory(workspace, agent)
    _check(memory)
    inside = [pattern for pattern in memory.ids() if pattern in ids]
    asked = [one.id for one in waiting(workspace, agent) if one.id in ids]
    if not inside and not asked:
        raise NoError(f"{ids[0]} is not in {hot.FILE_NAME}; nothing was changed")
    less = hot.without_lessons(memory, list(dict.fromkeys([*inside, *asked])), agent)
    found = [line for pattern in ids if (line := known(pattern)) is not None]
    published = [line for line in found if line.set.get("state") == PUBLISHED] if inside else []
    done = [edits.field_set(line, "state", CANDIDATE, writer.name, writer.tick()) for line in published]
    writer.append(PATTERNS, done)
    if not swap_memory(workspace, agent, data, less):
        raise BusyError(f"{hot.FILE_NAME} was changed by somebody else just now; run the command again")
    return Outcome((), _keep_waiting(workspace, agent, [], [], less.known(), is_all=False), tuple(done))


def standing(workspace: Workspace, agent: str) -> Standing:
    """Return how an agent's memory stands."""
    memory = hot.parse(workspace.disk.read(memory_file(workspace, agent)))
    chars_max = workspace.config.promotion.hot_chars
    return Standing(memory.size(), chars_max, tuple(memory.ids()), waiting(workspace, agent), memory.trouble)


def waiting(workspace: Workspace, agent: str) -> tuple[Waiting, ...]:
    """Return what waited for a person when promotion was last looked at."""
    try:
        return tuple(
            Waiting(*map(str, each))
            for each in json.loads(workspace.disk.read(waiting_file(workspace, agent)) or b"[]")
        )
    except (ValueError, TypeError):
        return ()  # it is worked out anew with the next sync


def _keep_waiting(
    workspace: Workspace, agent: str, held_up: list[Waiting], looked: list[Line], known: set[str], *, is_all: bool
) -> tuple[Waiting, ...]:
    """Note what waits now: of what was not looked at, what waited before, unless it entered since."""
    before = waiting(workspace, agent)
    judged = {line.id for line in looked}
    kept = [] if is_all else [each for each in before if each.id not in judged and each.id not in known]
    now = (*kept, *(each for each in held_up if each.id not in known))
    if now != before:
        workspace.disk.replace(waiting_file(workspace, agent), json.dumps(now, ensure_ascii=False).encode())
    return now


def waiting_file(workspace: Workspace, agent: str) -> Path:
    """Return where it is noted what waits for a person: machine-local, and worked out anew with each sync."""
    return workspace.local / "promotion" / f"{agent}.json"


def read_memory(workspace: Workspace, agent: str) -> tuple[bytes, Memory]:
    """Return a memory's bytes, and what they hold."""
    path = memory_file(workspace, agent)
    if path.is_symlink():
        # Replacing it would leave the file it points to behind, with the person's notes.
        return b"", Memory("", "", (), "", "", trouble=f"{path} is a symbolic link; fleet writes to plain files only")
    data = workspace.disk.read(path)
    return data, hot.parse(data)


def _check(memory: Memory) -> None:
    if memory.trouble:
        raise NoError(f"{memory.trouble}. Nothing was changed")


def swap_memory(workspace: Workspace, agent: str, before: bytes, after: Memory) -> bool:
    """Replace the file if it is as it was read: an editor may have saved in between. Tell whether it was."""
    path = memory_file(workspace, agent)
    if path.is_symlink() or workspace.disk.read(path) != before:
        return False
    workspace.disk.replace(path, after.render())
    return True


def _published(writer: Writer, lines: Iterable[Line], told: Iterable[Line]) -> list[Line]:
    """Tell the clan of what it does not know to be published. What is private is nobody else's affair."""
    already = {line.id for line in told}
    wanted = [
        line
        for line in lines
        if line.id not in already and line.set.get("state") != PUBLISHED and as_text(line.set.get("scope")) != "private"
    ]
    done = [edits.field_set(line, "state", PUBLISHED, writer.name, writer.tick()) for line in wanted]
    writer.append(PATTERNS, done)
    return done
