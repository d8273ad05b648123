"""Promotion: lessons enter an agent's ``memory.md``, are ``state=published`` for the clan, and leave again.

A lesson is published first, then the memory is written: after a crash between the two it is still due (docs/adr/0013).
A lesson that the clan retired leaves every memory, and the block forgets its promotion: restored, it may come back by
the evidence that any other lesson needs. A lesson that a person took out by ``fleet demote`` stays out.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec

from fleet.model import edits, names
from fleet.model.errors import BusyError, DiskError, NoError
from fleet.model.pattern import PRIVATE, SCOPE, Pattern
from fleet.reflect.clusters import NOT_COMPARED, Clusters
from fleet.reflect.evidence import CLAN, NAMESAKE, PERSON, RETIRED, Due, Evidence, Witnesses
from fleet.reflect.memory_md import FILE_NAME, Memory
from fleet.store.lines import PATTERNS
from fleet.store.query import Patterns
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace, Writer
from fleet.text.screening import readable

_TRIES_MAX = 5  # so often a memory is read again, where an editor saved it meanwhile
_APPROVED = (
    r"\((?:[a-z0-9_-]{1,32}: )?a person's yes, seen [\d,]+(?: in \d+ wordings)?(?:, [^()]*)?; p-[0-9a-f]{16}\)[ \t]*$"
)

_Rights = Callable[[], Mapping[str, Sequence[str]]]


class Lessons:
    """Records that an agent may have in its memory: its own record of a private lesson, else the clan's."""

    def __init__(self, sources: Sequence[Patterns], clusters: Clusters = NOT_COMPARED) -> None:
        self._clan, *self._own = sources
        self.clusters = clusters

    def _source(self, pattern_id: str) -> Patterns:
        notes = ((each, each.get(pattern_id)) for each in self._own)
        return next((each for each, record in notes if record is not None and record.scope == PRIVATE), self._clan)

    def get(self, pattern_id: str) -> Pattern | None:
        """Return a folded record."""
        return self._source(pattern_id).get(pattern_id)

    def lesson(self, pattern_id: str) -> Pattern | None:
        """Return the lesson that a record is, or is a part of: a merged set as one."""
        return self._source(pattern_id).lesson(pattern_id)

    def group(self, pattern_id: str) -> list[str]:
        """Return the ids of the merged set that a record belongs to, itself included."""
        return self._source(pattern_id).group(pattern_id)

    def records(self, pattern_id: str) -> list[Pattern]:
        """Return the records of a merged lesson; none for one that is not merged."""
        members = self.group(pattern_id)
        records = (self.get(member) for member in members if len(members) > 1)
        return [each for each in records if each is not None]

    def kin(self, lessons: Iterable[Pattern]) -> list[str]:
        """Return the ids of lessons and of the records that they are made of."""
        return list(dict.fromkeys(part for each in lessons for part in (each.id, *self.group(each.id))))

    def retired(self, ids: Collection[str]) -> dict[str, Pattern]:
        """Return by id the lessons that the clan retired, without lessons that nobody ever logged."""
        sources = {each: self._source(each) for each in ids}
        found = (each.lessons_of([id_ for id_ in ids if sources[id_] is each]) for each in {*sources.values()})
        lessons = {id_: each for lessons in found for id_, each in lessons.items()}
        return {id_: each for id_, each in lessons.items() if each.state == RETIRED or (each.adds and not each.live)}

    def without_retired(self, memory: Memory) -> Memory:
        """Return a memory without the lessons that are retired."""
        retired = self.retired(memory.lessons())
        return memory.released(list(retired)) if retired else memory

    def wordings(self, pattern_id: str) -> list[Pattern]:
        """Return the wordings of a lesson, itself among them; none of a lesson with a single one."""
        ids = self.clusters.of(pattern_id)
        lessons = [lesson for each in ids if len(ids) > 1 and (lesson := self.lesson(each)) is not None]
        return lessons if len(lessons) > 1 else []


class Waiting(NamedTuple):
    """Lesson that has the evidence, and the reason why it waits for a person."""

    id: str
    text: str
    evidence: str
    why: str


class Standing(NamedTuple):
    """State of an agent's memory; ``trouble``: why nothing can be written, or ""."""

    chars: int
    chars_max: int
    lessons: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    trouble: str

    def as_json(self) -> dict[str, Any]:
        """Return the state as ``--json`` has it."""
        return self._asdict() | {"waiting": [each._asdict() for each in self.waiting]}


class AgentMemory:
    """Agent's memory.md at ``path``, and the lessons that wait for it: ``.fleet/promotion/<agent>.json``."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._files, self._runs = workspace.files, Runs(workspace)
        self._chars_max = workspace.config.promotion.hot_chars
        self._is_off = workspace.config.promotion.mode == "off"
        self.path = workspace.home(agent) / FILE_NAME
        self._noted = workspace.local / "promotion" / f"{agent}.json"

    def standing(self) -> Standing:
        """Return the state of the memory."""
        memory = Memory.parse(self._files.read(self.path))
        return Standing(memory.size(), self._chars_max, tuple(memory.lessons()), self.waiting(), memory.trouble)

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the lessons that waited for a person at the last promotion; none where it is off since."""
        return () if self._is_off else self._read_noted()

    def _read_noted(self) -> tuple[Waiting, ...]:
        with suppress(msgspec.DecodeError, DiskError):
            return msgspec.json.decode(self._files.read(self._noted), type=tuple[Waiting, ...])
        return ()  # the next sync computes it anew

    def rows(self) -> dict[str, str]:
        """Return the lines of the lessons in the memory, by id."""
        return self._read()[1].lessons()

    def release(self, ids: Sequence[str]) -> None:
        """Take lessons out of the memory as if they had never been in it. The caller holds the write lock."""
        self.rewrite(lambda memory: _without_trouble(memory).released(ids))

    def take_out_retired(self, lessons: Lessons) -> dict[str, str]:
        """Take the retired lessons out of the memory; return their texts by id. The caller holds the write lock."""
        retired = {each: readable(one.text) for each, one in lessons.retired(self.rows()).items()}
        if retired:
            self.rewrite(lessons.without_retired)
        return retired

    def rewrite(self, change: Callable[[Memory], Memory]) -> Memory:
        """Replace the memory by what ``change`` returns; where an editor saves meanwhile, it is read again. Return it.

        Raises:
            BusyError: somebody else is writing it all the time.
            DiskError: the memory is as it was.
        """
        for _ in range(_TRIES_MAX):
            data, memory = self._read()
            after = change(memory)
            if after is memory or self._runs.swap(self.path, data, after.render()):
                return after
        raise BusyError(
            f"{self.path} is being written by somebody else; wait for the next `fleet sync`",
            ", or run the command again",
        )

    def note_waiting(
        self, held_up: Sequence[Waiting], judged_ids: Iterable[str], known: Collection[str], *, is_all: bool = False
    ) -> None:
        """Note the lessons that wait now, with those not judged that waited before and did not enter."""
        before, judged = self._read_noted(), {*known, *judged_ids}
        unjudged = [] if is_all else [each for each in before if each.id not in judged]
        now = (*unjudged, *(each for each in held_up if each.id not in known))
        if now != before:
            self._files.replace(self._noted, msgspec.json.encode(now))

    def _read(self) -> tuple[bytes, Memory]:
        if self.path.is_symlink():
            why = f"{self.path} is a symbolic link; fleet writes to plain files only"
            return b"", Memory("", "", (), "", "", trouble=why)
        data = self._files.read(self.path)
        return data, Memory.parse(data)

    @staticmethod
    def is_approved(row: str) -> bool:
        """Return whether a memory's line says that a person took the lesson in."""
        return re.search(_APPROVED, row) is not None


class Promotions:
    """Promotion into an agent's memory and out of it, published to the clan. The caller holds the write lock."""

    def __init__(self, writer: Writer, lessons: Lessons) -> None:
        self._writer = writer
        self._lessons = lessons
        self._settings = writer.workspace.config.promotion
        self._witnesses = Witnesses(writer.workspace)
        self._memory = AgentMemory(writer.workspace, writer.agent)
        self._published: set[str] = set()

    def enter_due(
        self,
        patterns: Iterable[Pattern],
        *,
        rights: _Rights = dict,
        is_all: bool = False,
    ) -> list[Due]:
        """Bring the lessons with enough evidence into the memory; return them. Idempotent. The log was counted before.

        A lesson that cannot enter waits: there is no room, its words may not be those that were counted, the file has
        trouble, or ``[promotion] mode`` says so.

        ``rights``: returns the right ways by pattern id, the last first, of this agent's own log. Anybody can set a
        lesson's right way, which is no part of what was counted. So it enters only if this log has it, too, else the
        log's last one.
        ``is_all``: ``patterns`` are all lessons, so that one which waited and is not due any more waits no longer.
        """
        by_id, own_rights = {pattern.id: pattern for pattern in patterns}, cache(rights)
        promoted, waiting = list[Due](), list[Waiting]()

        def with_due(memory: Memory) -> Memory:
            after, promoted[:], waiting[:] = self._entered(memory, by_id, own_rights)
            self._publish([by_id[each.id] for each in promoted])
            return after

        memory = self._memory.rewrite(with_due)
        self._memory.note_waiting(waiting, by_id, memory.known(), is_all=is_all)
        return promoted

    def _entered(
        self, memory: Memory, by_id: Mapping[str, Pattern], rights: _Rights
    ) -> tuple[Memory, list[Due], list[Waiting]]:
        """Return a memory with all lessons that are due and may enter it, these, and those that wait."""
        promoted, waiting = list[Due](), list[Waiting]()
        with self._writer.workspace.snapshot():  # many lessons are looked up, and nothing is written meanwhile
            for due, kin, why in self._judged(memory, by_id):
                larger = memory if why else self._with_due(memory, by_id[due.id], due, kin, rights)
                if obstacle := why or self._no_room(larger, due.id):
                    waiting.append(Waiting(due.id, due.text, due.evidence, obstacle))
                else:
                    memory = larger
                    promoted.append(due)
        return memory, promoted, waiting

    def _judged(self, memory: Memory, by_id: Mapping[str, Pattern]) -> Iterator[tuple[Due, list[str], str]]:
        """Yield the lessons that are due, each with its kin and why it cannot enter by itself, or ""."""
        agent, lessons, known = self._writer.agent, self._lessons, memory.known()
        if self._settings.mode == "off":
            return
        weighed = Evidence(agent, self._settings, self._witnesses.witness())
        due_now = weighed.due(by_id.values(), known)
        enough = {each.id for each in due_now}
        if self._settings.others == "auto":  # what is not enough by itself is proposed, like anything with "suggest"
            proposed = Evidence(agent, self._settings).due(by_id.values(), known)
            due_now += [each for each in proposed if each.id not in enough]
        for due in due_now:
            wordings = lessons.wordings(due.id)
            kin = lessons.kin([by_id[due.id], *wordings])
            if known.intersection(kin) or self._is_contested(kin):
                continue  # it was promoted under another record or in other words; or `fleet review` asks which holds
            words = next((each for each in wordings if each.id == due.id), by_id[due.id])
            doubt = weighed.doubt(words, lessons.records(due.id))
            if not doubt and wordings:
                doubt = weighed.doubt_of_wording(words)
            why = self._obstacle(memory, doubt, due, is_enough=due.id in enough)
            yield due._replace(evidence=f"{due.evidence}{_in_wordings(wordings)}"), kin, why

    def _with_due(self, memory: Memory, pattern: Pattern, due: Due, kin: Sequence[str], rights: _Rights) -> Memory:
        """Return the memory with one more lesson. The log is read only here, when a lesson enters."""
        own = [each for part in kin for each in rights().get(part, ())]
        right = pattern.correct if pattern.correct in own else next(iter(own), "")
        return memory.with_lesson(self._row(pattern, right, due), self._writer.agent)

    def _is_contested(self, kin: Sequence[str]) -> bool:
        """Return whether another lesson contradicts these. Lessons of the agent are contested only by its own ones."""
        agent, opposites = self._writer.agent, self._lessons.clusters.opposites(kin)
        own, against = (
            [each for each in map(self._lessons.get, ids) if each is not None and each.seen_by(agent)]
            for ids in (kin if opposites else (), opposites)
        )
        return bool(against if own else opposites)

    def _row(self, pattern: Pattern, right: str, due: Due) -> str:
        """Return a lesson's line, with its author where that is another agent."""
        author = names.agent_of(pattern.by)
        evidence = due.evidence if author in ("", self._writer.agent) else f"{author}: {due.evidence}"
        return Memory.row(pattern.text, right, evidence, due.id)

    def _obstacle(self, memory: Memory, doubt: str, due: Due, *, is_enough: bool) -> str:
        """Return why a lesson cannot enter by itself, and what to do; "" where it can, if there is room."""
        yes = f"`fleet promote {due.id}` takes it in"
        if memory.trouble:
            return memory.trouble
        if doubt:
            return f"{doubt}; {yes} as it reads now"
        if self._settings.mode == "suggest":
            return yes
        if due.reason == NAMESAKE:
            return f"some of it was counted elsewhere, under this agent's name, which may be anybody; {yes}"
        if due.reason != CLAN or (is_enough and self._witnesses.are_enough):
            return ""
        if not is_enough:
            return f"others say so, and they may all be one who pushes; {yes}"
        if self._settings.others == "suggest":
            return f"others say so; {yes}"
        return (
            f'others say so, and git tracks the fleet.toml that has others = "auto": {yes}, and '
            "`fleet config set promotion.others auto` agrees to it on this machine"
        )

    def _no_room(self, memory: Memory, pattern_id: str) -> str:
        """Return that a memory would be too large, and what to do; "" where it would not."""
        if memory.size() <= self._settings.hot_chars:
            return ""
        return (
            f"{FILE_NAME} would have {memory.size():,} of at most {self._settings.hot_chars:,} characters; shorten "
            f"your notes, or `fleet demote ID` of another lesson, and then `fleet promote {pattern_id}`"
        )

    def enter(self, pattern: Pattern, *, right: str = "", edits_by: str = "") -> Due:
        """Bring one lesson into the memory by a person's decision.

        ``edits_by``: the fields that others than its author set, and who did, in words.

        Raises:
            NoError: it is in already, cannot be in a memory, or there is no room; nothing was changed.
        """
        if not Evidence.admits(pattern):
            why = "has no words to show" if pattern.is_present else f"is retired (`fleet restore {pattern.id}`)"
            raise NoError(f"{pattern.id} {why}: it cannot be promoted. Nothing was changed")
        wordings = self._lessons.wordings(pattern.id)
        seen = f"seen {sum(each.count('seen') for each in wordings or [pattern]):,}{_in_wordings(wordings)}"
        yes = ", ".join(filter(None, ("a person's yes", seen, edits_by)))
        due = Due(pattern.id, readable(pattern.text), PERSON, yes, readable(right))

        def with_lesson(memory: Memory) -> Memory:
            if inside := [each for each in _without_trouble(memory).lessons() if each in self._lessons.kin([pattern])]:
                raise NoError(f"{inside[0]} is in {FILE_NAME} already; nothing was changed")
            more = memory.with_lesson(self._row(pattern, right, due), self._writer.agent)
            if why := self._no_room(more, pattern.id):
                raise NoError(f"{why}. Nothing was changed")
            self._publish([pattern])
            return more

        self._memory.rewrite(with_lesson)
        self._memory.note_waiting([], [pattern.id], ())
        return due

    def leave(self, ids: Sequence[str]) -> None:
        """Take a lesson out of the memory; its state for the clan is candidate again.

        ``ids``: of the lesson and the records it is made of.

        Raises:
            NoError: it is neither in the memory nor waiting for it; nothing was changed.
        """
        waiting = [each.id for each in self._memory.waiting() if each.id in ids]

        def without(memory: Memory) -> Memory:
            inside = [each for each in _without_trouble(memory).lessons() if each in ids]
            if not inside and not waiting:
                raise NoError(f"{ids[0]} is not in {FILE_NAME}; nothing was changed")
            records = [pattern for each in ids if (pattern := self._lessons.get(each)) is not None] if inside else []
            self._set_state([each.id for each in records if each.state == edits.PUBLISHED], edits.CANDIDATE)
            return memory.without([*inside, *waiting], self._writer.agent)

        self._memory.rewrite(without)
        self._memory.note_waiting([], ids, ())

    def leave_undue(self, pattern: Pattern) -> list[str]:
        """Take a lesson out as if it had never been in, where its evidence is not enough any more; return its ids.

        One that a person took in stays.
        """
        rows = self._memory.rows()
        kin = self._lessons.kin([pattern, *self._lessons.wordings(pattern.id)])
        ids = [each for each in kin if each in rows and not self._memory.is_approved(rows[each])]
        if not ids or Evidence(self._writer.agent, self._settings).due([pattern]):
            return []
        records = [each for each in map(self._lessons.get, ids) if each is not None]
        self._set_state([each.id for each in records if each.is_published], edits.CANDIDATE)
        self._memory.release(ids)
        return ids

    def _publish(self, patterns: Iterable[Pattern]) -> None:
        """Publish the lessons that are not published yet; private ones are no lines of the clan's."""
        shared = (each for each in patterns if each.value(SCOPE) != PRIVATE)
        self._set_state([each.id for each in shared if each.state != edits.PUBLISHED], edits.PUBLISHED)

    def _set_state(self, ids: Iterable[str], state: str) -> None:
        """Set the state of each record of the clan's, once, however often the memory is read again."""
        writer = self._writer
        new = [each for each in ids if each not in self._published]
        lines = [line for each in new if (line := writer.workspace.patterns.line(each)) is not None]
        writer.append(PATTERNS, [writer.edit(line, "state", state) for line in lines])
        self._published.update(new)


def _in_wordings(wordings: Sequence[Pattern]) -> str:
    return f" in {len(wordings)} wordings" if wordings else ""


def _without_trouble(memory: Memory) -> Memory:
    if memory.trouble:
        raise NoError(f"{memory.trouble}. Nothing was changed")
    return memory
