"""Promotion: lessons enter an agent's ``memory.md``, are ``state=published`` for the clan, and leave again.

The clan is told first, then the memory is written. A crash between the two leaves a lesson that is published and not
remembered here; it is still due, and enters with the next promotion. The other way round, a lesson that stands in a
memory and is no longer published could be one that another agent took out, and telling the clan again would undo that.

A lesson that the clan retired leaves every memory. Its line is kept in ``.fleet/promotion/<agent>.left.json``, so that
``fleet status`` can say what left and how to keep it. The block forgets that it was ever promoted: once it is restored
it may come back, by the evidence that any other lesson takes. What a person took out by ``fleet demote`` stays out.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleet.model import edits, names
from fleet.model.errors import BusyError, NoError
from fleet.model.line import Line
from fleet.model.pattern import Pattern
from fleet.reflect import evidence, memory_md
from fleet.reflect.clusters import NOT_COMPARED, Clusters
from fleet.reflect.evidence import CLAN, PERSON, RETIRED, Due, Witness, by_agent
from fleet.reflect.memory_md import FILE_NAME, Memory
from fleet.store.lines import PATTERNS
from fleet.store.query import Patterns
from fleet.store.workspace import Workspace, Writer
from fleet.text.screening import readable

LEFT_MAX = 50
"""So many lessons that left are remembered: far more than a memory holds."""

_READS_MAX = 5
_APPROVED = re.compile(r"\((?:[a-z0-9_-]{1,32}: )?a person's yes, seen [\d,]+; p-[0-9a-f]{16}\)[ \t]*$")


class Lessons:
    """All records that an agent may have in its memory."""

    def __init__(self, sources: Sequence[Patterns], clusters: Clusters = NOT_COMPARED) -> None:
        self._sources = sources
        self.clusters = clusters

    def get(self, pattern_id: str) -> Pattern | None:
        """Return a folded record."""
        return next((found for each in self._sources if (found := each.get(pattern_id)) is not None), None)

    def lesson(self, pattern_id: str) -> Pattern | None:
        """Return the lesson that a record is, or is a part of: a merged set as one."""
        return next((found for each in self._sources if (found := each.lesson(pattern_id)) is not None), None)

    def group(self, pattern_id: str) -> list[str]:
        """Return the ids of the merged set that a record belongs to, itself included."""
        return next((found for each in self._sources if (found := each.group(pattern_id))), [])

    def wordings(self, pattern_id: str) -> list[Pattern]:
        """Return the lessons of a lesson's cluster, itself among them."""
        found = (self.lesson(each) for each in self.clusters.of(pattern_id))
        return [each for each in found if each is not None]


class Waiting(NamedTuple):
    """A lesson that has the evidence, and why it waits for a person all the same."""

    id: str
    text: str
    evidence: str
    why: str

    def in_one_line(self) -> str:
        """Return what a person is asked."""
        return f"{self.text} ({self.evidence}; {self.id}) waits for a choice: {self.why}"


class Left(NamedTuple):
    """A lesson that left a memory: its id and words, its line there, and when it left (a stamp's wall time)."""

    id: str
    text: str
    row: str
    at: str


T = TypeVar("T", Waiting, Left)


class Outcome(NamedTuple):
    """Result of a promotion: what entered the memory now, and everything that waits for a person."""

    promoted: tuple[Due, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class Standing(NamedTuple):
    """State of an agent's memory.

    Attributes:
        waiting: what waited for a person when promotion was last looked at.
        trouble: why nothing can be written, or "".
        left: what left it and was still retired when that was last looked at; newest last.
    """

    chars: int
    chars_max: int
    lessons: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    trouble: str
    left: tuple[Left, ...]


class AgentMemory:
    """An agent's memory.md, and what is noted beside it of what waits for it and of what left it."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    def memory_file(self) -> Path:
        """Return the path of an agent's memory."""
        return self._workspace.home(self._agent) / FILE_NAME

    def standing(self) -> Standing:
        """Return how an agent's memory stands."""
        memory = memory_md.parse(self._workspace.files.read(self.memory_file()))
        return Standing(
            memory.size(),
            self._workspace.config.promotion.hot_chars,
            tuple(memory.lessons()),
            _noted(self._workspace, self._agent, Waiting),
            memory.trouble,
            _noted(self._workspace, self._agent, Left),
        )

    def rows(self) -> dict[str, str]:
        """Return the lines of the lessons in an agent's memory, by id."""
        return _read_memory(self._workspace, self._agent)[1].lessons()

    def release(self, ids: Sequence[str]) -> None:
        """Take lessons out of an agent's memory as if they had never been in it. The caller holds the write lock.

        Raises:
            BusyError: somebody else is writing the memory.
            DiskError: the memory is as it was.
        """
        for _ in range(_READS_MAX):
            data, memory = _read_memory(self._workspace, self._agent)
            _check(memory)
            if _swap_memory(self._workspace, self._agent, data, memory.released(ids)):
                return
        raise BusyError(
            f"{self._workspace.own_path(self._agent, FILE_NAME)} is being written by somebody else; "
            "run the command again"
        )

    def take_out_retired(self, lessons: Lessons) -> tuple[Left, ...]:
        """Take out of an agent's memory what is retired; return what left. The caller holds the write lock.

        Raises:
            BusyError: somebody else is writing the memory; it leaves the next time.
            DiskError: the memory is as it was.
        """
        for _ in range(_READS_MAX):
            data, memory = _read_memory(self._workspace, self._agent)
            rows = memory.lessons()
            found = {each: lessons.lesson(each) for each in rows}
            gone = {each: pattern for each, pattern in found.items() if pattern is not None and is_retired(pattern)}
            fresh = tuple(Left(each, readable(gone[each].text), rows[each], self._workspace.wall()) for each in gone)
            # First it is noted: a crash in between leaves a note about a lesson that is still there.
            _keep_left(self._workspace, self._agent, fresh, lessons, rows)
            if not fresh or _swap_memory(self._workspace, self._agent, data, memory.released(list(gone))):
                return fresh
        raise BusyError(
            f"{self._workspace.own_path(self._agent, FILE_NAME)} is being written by somebody else; "
            "what is retired leaves later"
        )

    def forget(self, pattern_id: str) -> None:
        """Drop the words of a lesson that left a memory, or waits for one. The caller holds the write lock."""
        _forget(self._workspace, self._agent, Waiting, pattern_id)
        _forget(self._workspace, self._agent, Left, pattern_id)


def _noted_file(workspace: Workspace, agent: str, kind: type[T]) -> Path:
    """Return the path of the list of what waits for a person, or of what left: machine-local."""
    return workspace.local / "promotion" / f"{agent}{'.left' if kind is Left else ''}.json"


def _noted(workspace: Workspace, agent: str, kind: type[T]) -> tuple[T, ...]:
    try:
        found = json.loads(workspace.files.read(_noted_file(workspace, agent, kind)) or b"[]")
        return tuple(kind(*map(str, each)) for each in found)
    except (ValueError, TypeError):
        return ()  # what waits is worked out anew with the next sync; on what left, nothing else depends


def _note(workspace: Workspace, agent: str, kind: type[T], noted: Sequence[T]) -> None:
    said = json.dumps(noted, ensure_ascii=False).encode()
    workspace.files.replace(_noted_file(workspace, agent, kind), said)


def promote_due(
    writer: Writer,
    looked: Iterable[Pattern],
    lessons: Lessons,
    *,
    rights: Callable[[], Mapping[str, str]] = dict,
    is_all: bool = False,
    witness: Witness = by_agent,
) -> Outcome:
    """Bring into the agent's memory what has the evidence. Idempotent.

    What has it and cannot enter waits: there is no room, the words may not be those that were counted, the file is not
    as it should be, or ``[promotion] mode`` says so. The caller holds the write lock and has counted the log.

    ``rights``: returns the right way by pattern id, as this agent's own log tells it; asked when something is due. No
    other is written down here: anybody can set that field of a lesson, and it is no part of what was counted.
    ``is_all``: these are all lessons there are, so what waited before and is not due any more waits no longer.

    Raises:
        DiskError: the memory is as it was; what is missing enters with the next promotion.
    """
    workspace, agent = writer.workspace, writer.agent
    by_id, own_rights, told = {pattern.id: pattern for pattern in looked}, cache(rights), set[str]()
    for _ in range(_READS_MAX):
        data, memory = _read_memory(workspace, agent)
        plan = _planned(workspace, agent, memory, by_id, lessons, own_rights, witness)
        _publish(writer, [by_id[each.id] for each in plan.promoted if each.id not in told])
        told |= {each.id for each in plan.promoted}
        if not plan.promoted or _swap_memory(workspace, agent, data, plan.memory):
            waits = _keep_waiting(workspace, agent, plan.waiting, by_id, plan.memory.known(), is_all=is_all)
            return Outcome(tuple(plan.promoted), waits)
    raise BusyError(
        f"{AgentMemory(workspace, agent).memory_file()} is being written by somebody else; what is due enters with the "
        "next `fleet sync`"
    )


class _Plan(NamedTuple):
    memory: Memory
    promoted: list[Due]
    waiting: list[Waiting]


def _planned(
    workspace: Workspace,
    agent: str,
    memory: Memory,
    by_id: Mapping[str, Pattern],
    lessons: Lessons,
    rights: Callable[[], Mapping[str, str]],
    witness: Witness,
) -> _Plan:
    settings, known = workspace.config.promotion, memory.known()
    plan = _Plan(memory, [], [])
    if settings.mode == "off":
        return plan
    for found in evidence.due(by_id.values(), agent, settings, known, witness):
        said = lessons.wordings(found.id)
        due = _in_wordings(found, len(said))
        parts = _records(lessons, due.id)
        kin = list(dict.fromkeys(part for each in (by_id[due.id], *said) for part in _ids(lessons, each)))
        if known.intersection(kin) or lessons.clusters.opposite(kin):
            continue  # it was promoted under another record or in other words; or `fleet review` asks which one holds
        right = next(filter(None, (rights().get(part) for part in kin)), "")
        more = plan.memory if memory.trouble else plan.memory.with_lesson(_row(by_id[due.id], right, due, agent), agent)
        words = next((each for each in said if each.id == due.id), by_id[due.id])
        doubt = evidence.doubt(words, parts, agent)
        if not doubt and len(said) > 1:
            doubt = evidence.borrowed(words, agent, settings, witness)
        if why := _obstacle(workspace, more, doubt, due):
            plan.waiting.append(Waiting(due.id, due.text, due.evidence, why))
        else:
            plan = plan._replace(memory=more)
            plan.promoted.append(due)
    return plan


def _in_wordings(due: Due, number: int) -> Due:
    return due._replace(evidence=f"{due.evidence} in {number} wordings") if number > 1 else due


def _ids(lessons: Lessons, lesson: Pattern) -> list[str]:
    return [lesson.id, *lessons.group(lesson.id)]


def _records(lessons: Lessons, pattern_id: str) -> list[Pattern]:
    """Return the records of a merged lesson; none for one that is not merged."""
    members = lessons.group(pattern_id)
    if len(members) < 2:
        return []
    return [pattern for member in members if (pattern := lessons.get(member)) is not None]


def _row(pattern: Pattern, right: str, due: Due, agent: str) -> str:
    """Return a lesson's line, with its author where that is another than whose memory it enters."""
    author = names.agent_of(pattern.by)
    told = due.evidence if author in ("", agent) else f"{author}: {due.evidence}"
    return memory_md.lesson_row(pattern.text, right, told, due.id)


def _obstacle(workspace: Workspace, more: Memory, doubt: str, due: Due) -> str:
    """Return why a lesson cannot enter by itself, and what to do; "" when it can."""
    settings, yes = workspace.config.promotion, f"`fleet promote {due.id}` takes it in"
    if more.trouble:
        return more.trouble
    if doubt:
        return f"{doubt}; {yes} as it reads now"
    if settings.mode == "suggest":
        return yes
    if due.reason == CLAN and settings.others == "suggest":
        return f"others say so; {yes}"
    if more.size() > settings.hot_chars:
        return _no_room(more, settings.hot_chars, due.id)
    return ""


def _no_room(more: Memory, chars_max: int, pattern_id: str) -> str:
    return (
        f"{FILE_NAME} would have {more.size():,} of at most {chars_max:,} characters; shorten your notes, or "
        f"`fleet promote {pattern_id} --instead-of ID`"
    )


def promote(
    writer: Writer, pattern: Pattern, lessons: Lessons, *, right: str = "", instead_of: Sequence[str] = ()
) -> Due:
    """Bring one lesson into the agent's memory because a person says so.

    ``instead_of``: ids that leave the memory for it.

    Raises:
        NoError: it is in already, cannot be in a memory, or there is no room; nothing was changed.
    """
    workspace, agent = writer.workspace, writer.agent
    chars_max = workspace.config.promotion.hot_chars
    data, memory = _read_memory(workspace, agent)
    _check(memory)
    parts = [pattern.id, *lessons.group(pattern.id)]
    if inside := [each for each in memory.lessons() if each in parts]:
        raise NoError(f"{inside[0]} is in {FILE_NAME} already; nothing was changed")
    if not evidence.can_be_promoted(pattern):
        why = "has no words that can be shown" if pattern.is_present else f"is retired (`fleet restore {pattern.id}`)"
        raise NoError(f"{pattern.id} {why}: it cannot be promoted. Nothing was changed")
    for each in instead_of:
        if each not in memory.lessons():
            raise NoError(f"{each} is not in {FILE_NAME}, so nothing can stand there instead; nothing changed")
    due = Due(pattern.id, readable(pattern.text), PERSON, f"a person's yes, seen {pattern.count('seen'):,}")
    more = memory.without(instead_of, agent) if instead_of else memory
    more = more.with_lesson(_row(pattern, right, due, agent), agent)
    if more.size() > chars_max:
        raise NoError(f"{_no_room(more, chars_max, pattern.id)}. Nothing was changed")
    _publish(writer, [pattern])
    if not _swap_memory(workspace, agent, data, more):
        raise BusyError(f"{FILE_NAME} was changed by somebody else just now; run the command again")
    _keep_waiting(workspace, agent, [], [pattern.id], more.known(), is_all=False)
    return due


def demote(writer: Writer, ids: Sequence[str], lessons: Lessons) -> None:
    """Take a lesson out of the agent's memory; the clan's state of it is candidate again.

    ``ids``: of one lesson and the records it is made of.

    Raises:
        NoError: it is neither in the memory nor waiting for it; nothing was changed.
    """
    workspace, agent = writer.workspace, writer.agent
    data, memory = _read_memory(workspace, agent)
    _check(memory)
    inside = [each for each in memory.lessons() if each in ids]
    asked = [one.id for one in _noted(workspace, agent, Waiting) if one.id in ids]
    if not inside and not asked:
        raise NoError(f"{ids[0]} is not in {FILE_NAME}; nothing was changed")
    less = memory.without([*inside, *asked], agent)
    found = [pattern for each in ids if (pattern := lessons.get(each)) is not None] if inside else []
    _append(writer, [pattern.id for pattern in found if pattern.state == edits.PUBLISHED], edits.demote)
    if not _swap_memory(workspace, agent, data, less):
        raise BusyError(f"{FILE_NAME} was changed by somebody else just now; run the command again")
    _keep_waiting(workspace, agent, [], [], less.known(), is_all=False)


def is_approved(row: str) -> bool:
    """Tell whether a memory's line says that a person took the lesson in."""
    return _APPROVED.search(row) is not None


def without_retired(memory: Memory, lessons: Lessons) -> Memory:
    """Return a memory without the lessons that are retired; with nothing to take out, or in trouble, as it is."""
    gone = [each for each in memory.lessons() if is_retired(lessons.lesson(each))]
    return memory.released(gone) if gone else memory


def _forget(workspace: Workspace, agent: str, kind: type[T], pattern_id: str) -> None:
    noted = _noted(workspace, agent, kind)
    kept = [each for each in noted if each.id != pattern_id]
    if len(kept) < len(noted):
        _note(workspace, agent, kind, kept)


def is_retired(pattern: Pattern | None) -> bool:
    """Tell whether the clan took a lesson out. One that nobody ever logged here is not known to be."""
    if pattern is None:
        return False
    return pattern.state == RETIRED or (bool(pattern.adds) and not pattern.is_present)


def _keep_left(
    workspace: Workspace, agent: str, fresh: tuple[Left, ...], lessons: Lessons, inside: Iterable[str]
) -> None:
    noted = _noted(workspace, agent, Left)
    going = {each.id for each in fresh}
    stays = {*inside} - going
    kept = [each for each in noted if each.id not in going | stays and is_retired(lessons.lesson(each.id))]
    now = (*kept, *fresh)[-LEFT_MAX:]
    if now != noted:
        _note(workspace, agent, Left, now)


def _keep_waiting(
    workspace: Workspace, agent: str, held_up: list[Waiting], looked: Iterable[str], known: set[str], *, is_all: bool
) -> tuple[Waiting, ...]:
    """Note what waits now: of what was not looked at, what waited before, unless it entered since."""
    noted, judged = _noted(workspace, agent, Waiting), set(looked)
    kept = [] if is_all else [each for each in noted if each.id not in judged and each.id not in known]
    now = (*kept, *(each for each in held_up if each.id not in known))
    if now != noted:
        _note(workspace, agent, Waiting, now)
    return now


def _read_memory(workspace: Workspace, agent: str) -> tuple[bytes, Memory]:
    """Return a memory's bytes, and what they hold."""
    path = AgentMemory(workspace, agent).memory_file()
    if path.is_symlink():
        # Replacing it would leave the file it points to behind, with the person's notes.
        return b"", Memory("", "", (), "", "", trouble=f"{path} is a symbolic link; fleet writes to plain files only")
    data = workspace.files.read(path)
    return data, memory_md.parse(data)


def _check(memory: Memory) -> None:
    if memory.trouble:
        raise NoError(f"{memory.trouble}. Nothing was changed")


def _swap_memory(workspace: Workspace, agent: str, before: bytes, after: Memory) -> bool:
    """Replace the file if it is as it was read: an editor may have saved in between. Tell whether it was."""
    path = AgentMemory(workspace, agent).memory_file()
    if path.is_symlink() or workspace.files.read(path) != before:
        return False
    workspace.files.replace(path, after.render())
    return True


def _publish(writer: Writer, patterns: Iterable[Pattern]) -> None:
    """Tell the clan of what it does not know to be published. What is private is nobody else's affair."""
    _append(writer, [each.id for each in patterns if each.state != edits.PUBLISHED], edits.promote)


def _append(writer: Writer, ids: Iterable[str], edit: Callable[[Line, str, str, str], Line]) -> None:
    workspace, cut = writer.workspace, writer.workspace.policy().cut
    lines = [line for each in ids if (line := workspace.patterns.line(each)) is not None]
    writer.append(PATTERNS, [edit(line, writer.name, writer.tick(), cut) for line in lines])
