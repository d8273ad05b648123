"""Use cases of recall: the text that a session starts with, and guards, which stop a step or put it to a person.

The text is cached (``recall.ready``), and rendered again when its sources have changed. A guard is a lesson with a
consent in the local database: the decision, the step, the last day, and the words. Others' lines never make a guard,
nor change its step or words; only an edit made here changes its words. Retiring the lesson here lifts the guard.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import islice, zip_longest
from typing import NamedTuple, TypeVar

import msgspec

from crdt import clock
from fleet.app import finding, reflecting
from fleet.app.finding import find, sources
from fleet.hosts.local import LocalFolder
from fleet.learn import counting
from fleet.learn.attempts import AttemptLog
from fleet.learn.counting import CountedLog
from fleet.learn.journal import Journal
from fleet.model import limits, names
from fleet.model.discovery import Discovery
from fleet.model.errors import DiskError, FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.model.pattern import Pattern
from fleet.recall import ready, triggers
from fleet.recall.ready import Ready, Start
from fleet.recall.wording import LESSONS_MAX, ROW_CHARS_MAX, STANDING, Renderer, session_context
from fleet.reflect import evidence, housekeeping, memory_md
from fleet.reflect.clusters import Weighing, Wordings
from fleet.reflect.exposure import Exposures
from fleet.reflect.inbox import Inbox
from fleet.reflect.memory_md import Memory
from fleet.reflect.promotion import AgentMemory
from fleet.store import consent, git, homes
from fleet.store.query import Patterns, ranked
from fleet.store.relevant import relevant
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace
from fleet.text import mentions
from fleet.text.screening import counted, readable

_NOT_READ = "The clan's lessons and discoveries were not read, .fleet/log says why; `fleet start` prints all of it."
_OF_VERSION_1 = (
    "fleet: this workspace was made by fleet 0.1, and a person's `fleet upgrade` converts it. Until then what the clan "
    "knows is not here; what is logged counts afterwards"
)
_ARRIVED_MAX = 2_000
"""Limit of the new lessons that are considered: many, so that a flood of one writer's does not hide those of others."""
_LOOKED_AT = 10
"""Factor of discoveries that are read for those that are shown: one author may have written most of the newest."""
_MOMENTS_MAX = 20
"""Limit of the changed files, and of the failed commands, for which relevant lessons are looked up."""
_GIT_S = 0.5
_BRANCH_S = 0.1
_HEAD_BYTES_MAX = 1_000
_REFTABLES = "ref: refs/heads/.invalid"
"""Content of the file HEAD where git keeps all refs in tables instead (``git help gitrepository-layout``)."""
_PEOPLE_CHARS = 600
_CHECK_MS = 7 * 86_400_000
"""Time after its date for which a check is shown."""
_COUNT_S = 0.3
"""Limit for counting a log in which somebody wrote by hand, seconds: the next command counts it, too."""
_TIDY_S = 2.0
"""Time that a session's start waits for the lock of the memory, and of the guards: no retired lesson is shown."""

_Triggered = tuple[Pattern, str]
"""Lesson and its trigger, given or derived from its words."""
_Item = TypeVar("_Item", Pattern, Discovery)


class SessionStart:
    """Text that an agent reads when its session starts."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent
        self._ready = Ready(os.fspath(workspace.root), agent)
        self._memory = AgentMemory(workspace, agent)
        self._exposures = Exposures(workspace.state)

    def text(self, session: str = "") -> str:
        """Return the text, and note that it was shown; in a named session, also note which lessons were shown."""
        start = self.cached() or self.make(may_tidy=True)
        with suppress(FleetError):  # in a read-only workspace
            self._workspace.state.put(started=self._workspace.wall())
        if session:
            self._ready.note_seen(start.mark if start.news else "")
            self._exposures.note(self._agent, session, start.ids, self._workspace.world.wall_ms())
        idle_ms = self._workspace.config.reflect.in_environment(os.environ).idle_ms
        running = partial(LocalFolder(os.fspath(self._workspace.root)).flagged_meanwhile, idle_ms, session)
        question = self._ready.question(start, running, is_shown=bool(session))
        return "\n\n".join(filter(None, [start.text, question]))

    def cached(self) -> Start | None:
        """Return the cached text if it is up to date with all that was written, else None."""
        generation = str(self._workspace.patterns.generation)
        return self._ready.start() if self._ready.generation() == generation else None

    def make(self, *, may_tidy: bool = False, seen: Sequence[str] = (), sessions: Sequence[str] = ()) -> Start:
        """Build, cache and return the text. Lessons that the clan retired are not in it.

        ``may_tidy``: the logs may be counted first, and what the clan retired may be taken out of the memory.
        ``seen``: the generation from which on a lesson is new, and the ids of earlier news that had no room then; none:
            what the agent was shown last.
        ``sessions``: sessions whose contexts were lost by a compaction or a clear: what they were shown is new again.
            With them, the text is not cached.
        """
        workspace = self._workspace
        if may_tidy and not workspace.is_read_only:
            with suppress(FleetError):
                counting.reconcile_all(workspace, _COUNT_S)
            reflecting.take_out_retired(workspace, self._agent, _TIDY_S)
        LocalFolder(os.fspath(workspace.root)).bind()
        # Before anything is read: a write meanwhile makes the text outdated.
        files, generation = self._ready.sums(), str(workspace.patterns.generation)
        since, *left = seen or self._ready.seen()
        delimiter, lessons = f"fleet-{workspace.world.entropy(8).hex()}", _Lessons(workspace, self._agent)
        start, short = self._texts(delimiter, lessons, int(since), left, sessions)
        start.generation, start.warning = generation, self._warning()
        with suppress(FleetError):  # a read-only disk, a damaged database: the cached table stays valid
            Guards(workspace).write_table(_TIDY_S)
        if not sessions:
            with suppress(DiskError):  # on a read-only disk it is made each time
                _put(workspace, self._ready.start_file, start.rendered(delimiter, files))
                remarks = Weighing(workspace).contradicted()
                rows = _trigger_table(lessons.table, Renderer(workspace.emoji(), short), remarks)
                _put(workspace, self._ready.triggers_file, self._ready.rendered_rows(rows, generation))
        return start

    def _texts(
        self, delimiter: str, lessons: "_Lessons", since: int, left: Sequence[str], sessions: Sequence[str]
    ) -> tuple[Start, Mapping[str, str]]:
        """Return the texts, and the short ids of the lessons in them and in the table of triggers."""
        workspace = self._workspace
        parsed = Memory.parse(self._own(memory_md.FILE_NAME))
        without_retired = reflecting.records_of(workspace, self._agent).without_retired(parsed)
        memory = self._with_notes(without_retired.render().decode("utf-8", "replace"))
        remembered = set(Start.ids_in(memory))  # each lesson is shown once
        opposed = workspace.patterns.some([*(lessons.contested - remembered)])
        known = remembered | self._exposures.shown_to(self._agent, but=sessions)
        news = [group.lesson for group in lessons.grouped(lessons.news(since, left, known))]
        left_out = remembered | lessons.contested | {each.id for each in news}
        groups = lessons.grouped(lessons.standing())
        standing = [group.lesson for group in groups if left_out.isdisjoint(group.ids)]
        entries, finders = _newest_fairly(workspace)
        new_ids = {*workspace.discoveries.changed(since), *left}
        short = workspace.discoveries.short([each.id for each in entries])
        triggered = [each for each, _ in lessons.table]
        short |= finding.short(lessons.stores, [each.id for each in (*news, *standing, *triggered)])
        render = partial(
            session_context, agent=self._agent, delimiter=delimiter, members=workspace.emoji(), short=short
        )
        context = render(
            memory=memory,
            news=news,
            patterns=standing,
            total=lessons.number(remembered) - len(news),
            opposed=len({min(lessons.compared.of(each.id)) for each in opposed if each.is_listed}),
            discoveries=entries,
            fresh=new_ids,
            waiting=() if workspace.is_of_version_1 else self._undecided(),  # its commands would fail
            note=self._unasked(),
            rest_max=workspace.config.recall.start_chars,
            by=_authors(workspace, [*news, *standing]) | finders,
            standing=STANDING,
        )
        unseen = [each for each in entries if each.id in new_ids]
        news_text = render(memory="", news=news, patterns=(), discoveries=unseen, waiting=()) if news or unseen else ""
        shown = [*sorted(remembered), *(each.id for each in (*news, *standing) if short[each.id] in context)]
        start = Start(context, news_text, shown, [each.id for each in news if short[each.id] in news_text])
        is_asked = not workspace.is_of_version_1
        start.asked = CountedLog(workspace, self._agent).to_state(workspace.config.hook.ask_days) if is_asked else []
        new_here = [*(each.id for each in news), *(each.id for each in unseen)]
        start.left = [each for each in new_here if short[each] not in context]
        return start, short

    def _warning(self) -> str:
        """Return what is wrong with this workspace, for the person; "" for nothing."""
        if self._workspace.is_of_version_1:
            return _OF_VERSION_1
        if self._workspace.config.is_read:
            return ""
        name, problems = self._workspace.config_file.name, "; ".join(self._workspace.config.problems)
        return f"fleet: nothing is shared until {name} is mended: {problems}"

    def _unasked(self) -> str:
        """Return why lessons of the clan are missing here, and who can change that; "" if none are missing."""
        if self._workspace.is_of_version_1:
            return _OF_VERSION_1
        if not is_unasked(self._workspace):
            left_out = self._workspace.patterns.count_left_out()
            left_out = 0 if left_out and self._workspace.patterns.count() else left_out
            who = "their writers are blocked, which a person's `fleet status` names, or wait for a `fleet review`"
            return f"{counted(left_out, 'lesson is', 'lessons are')} left out here: {who}." if left_out else ""
        first = "`fleet init --agent NAME` names who works here, and then " if self._agent == names.GUEST else ""
        was, how = "was never asked", "a person's `fleet sync` names it, and asks"
        if self._workspace.state.agreed(consent.REMOTE):
            was, how = "never answered", "`fleet sync` asks, and says why if no answer comes"
        return f"The clan's remote {was} yet, so what the clan knows is not here: {first}{how}."

    def _due(self) -> list[str]:
        """Return the number of lessons that are due for the memory, in a sentence; none for 0."""
        if number := len(self._memory.waiting()):
            return [f"{counted(number, 'lesson')} due for the memory, for a person to decide: fleet inbox"]
        return []

    def at_once(self) -> Start:
        """Return a text without the clan's lessons, made of small files: the memory, and how many are due for it."""
        workspace = self._workspace
        text = session_context(
            agent=self._agent,
            memory=self._with_notes(self._own(memory_md.FILE_NAME).decode("utf-8", "replace")),
            delimiter=f"fleet-{workspace.world.entropy(8).hex()}",
            members=workspace.emoji(),
            waiting=self._due(),
            note=_NOT_READ,
            standing=STANDING,
        )
        return Start(text, ids=Start.ids_in(text))

    def _with_notes(self, memory: str) -> str:
        """Return a memory as the agent reads it: its hot part, its newest notes, and what is known of people."""
        people_text = memory_md.UserModel(self._own(memory_md.USER_MODEL)).shown(_PEOPLE_CHARS)
        notes = memory_md.Notes(memory.encode("utf-8", "replace")).newest()
        parts = [memory_md.hot(memory), notes and f"Notes:\n{notes}", people_text and f"Of people:\n{people_text}"]
        return "\n\n".join(filter(None, parts))

    def _own(self, name: str) -> bytes:
        """Return a file of the agent's own; b"" for a guest, who has none: a repository must have brought it."""
        is_guest = self._workspace.is_guest(self._agent)
        return b"" if is_guest else self._workspace.files.read(self._workspace.home(self._agent) / name)

    def _undecided(self) -> list[str]:
        """Return a line for each thing that waits for a decision."""
        workspace, agent, lines = self._workspace, self._agent, list[str]()
        now = workspace.wall()
        span = (f"{each[:19]}Z" for each in (now, clock.shifted(now, -_CHECK_MS)))
        lines += memory_md.Checks(self._own(memory_md.CHECKS)).due(*span)
        lines += self._due()
        pending = Inbox(workspace, agent).count(with_mirrored=False)  # mirrored items have lines of their own here
        lines += [pending.summary()] if pending.number else []
        if gone := len(Inbox(workspace, agent).dropped()):
            lines.append(f"{counted(gone, 'draft')} dropped, since nobody decided in time: fleet inbox")
        lines += workspace.trust.sentences()
        lines += workspace.trust.purge_sentences(workspace.trust.purged(), workspace.mine())
        compared = Weighing(workspace).last_clusters()
        lines += reflecting.to_review(len(compared.opposed), len(compared.likely)) + Weighing(workspace).overruled()
        for proposal in [] if workspace.is_guest(agent) else Journal(workspace, agent).proposals():
            lines.append(f"{proposal.code} ({proposal.name}) worked and is no lesson yet: {proposal.command}")
        return lines


class _Lessons:
    """Lessons that a session's start may show, as they are while it is made."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace, self._agent = workspace, agent
        self._at_rest = housekeeping.resting(workspace, agent)
        self.stores = sources(workspace, agent)
        self.table = _triggered(self.stores)
        # The last comparison: the next sync compares anew, and a session's start does not wait for that.
        self.compared = Weighing(workspace).last_clusters()
        self.contested = self._contested()

    def _contested(self) -> set[str]:
        """Return the lessons that contradict each other, except the agent's own that contradict none of its own."""
        pairs = [pair.ids for pair in self.compared.opposed]
        ids = {each for pair in pairs for each in pair}
        own = {each.id for each in self._workspace.patterns.some([*ids]) if each.seen_by(self._agent)}
        return {each for pair in pairs for each in pair if each not in own or own.issuperset(pair)}

    def grouped(self, lessons: Collection[Pattern]) -> list[Wordings]:
        """Return lessons with each cluster as one. A wording that rests does not represent its cluster."""
        lookup, at_rest = self._workspace.patterns.lessons_of, self._at_rest
        return self.compared.grouped(lessons, lambda ids: lookup(each for each in ids if each not in at_rest))

    def number(self, remembered: Collection[str]) -> int:
        """Return the number of lessons outside of the memory. One in several wordings or stores counts once."""
        clan, *private = self.stores
        shared = [each.id for store in private for each in clan.some(store.beginning("p-")) if each.is_listed]
        known = {each.id for store in self.stores for each in store.some([*remembered]) if each.is_listed}
        twice = sum(each.is_listed for store in private for each in store.some(shared))
        twice += sum(len(group) - 1 for group in self.compared.groups)
        return sum(store.count() for store in self.stores) - len(known) - twice

    def news(self, since: int, left: Sequence[str], known: Iterable[str]) -> list[Pattern]:
        """Return the lessons added since a generation, then those that had no room before; none of a known cluster."""
        kept_out = {member for each in known for member in self.compared.of(each)} | self.contested
        patterns = self._workspace.patterns
        earlier = [each for each in patterns.lessons_of(left).values() if each.state != "retired"]
        new = {each.id: each for each in (*patterns.since(since, _ARRIVED_MAX), *earlier)}
        arrived = [each for id_, each in new.items() if id_ not in self._at_rest]
        shared = _fairly(arrived, _authors(self._workspace, arrived), LESSONS_MAX)
        return [each for each in shared if each.id not in kept_out and each.is_listed]

    def standing(self) -> list[Pattern]:
        """Return the lessons of every start: the three best that are relevant now, then the published ones.

        A private lesson is among them however often it was seen: it is the agent's own.
        """
        clan, *private = self.stores
        due = set(self._due())
        relevant_now = [*(each for each, _ in self.table if each.id in due), *self._about_branch()]
        near = [each for each in relevant_now if each.is_listed and each.id not in self._at_rest][: triggers.SHOWN_MAX]
        own = [each for one in private for each in one.best("evidence", LESSONS_MAX) if each.id not in self._at_rest]
        published = ranked([*clan.best("published", LESSONS_MAX), *own], "evidence")
        return list({each.id: each for each in (*near, *published)}.values())

    def _due(self) -> list[str]:
        """Return the ids of lessons about the files that are changed here, and the commands that failed here last."""
        rows = [[each.id, trigger, ""] for each, trigger in self.table]
        streaks = AttemptLog(self._workspace.root, self._agent).state().of("")
        commands = [tried.command for streak in streaks for tried in streak.tries.values()][-_MOMENTS_MAX:]
        files = git.changed_files(self._workspace.root, _GIT_S)[:_MOMENTS_MAX] if rows else []
        steps = [("Bash", command, "") for command in commands] + [("Edit", "", path) for path in files]
        ids: list[str] = []
        for step in steps:
            ids += [each for each, _ in triggers.due(rows, ids, *step)]
        return ids

    def _about_branch(self) -> list[Pattern]:
        """Return the lessons about the name of the checked-out branch, which is searched for like a prompt."""
        root = self._workspace.root
        head = homes.read(os.fspath(root / ".git/HEAD"), _HEAD_BYTES_MAX).decode("utf-8", "replace")
        if head.startswith(_REFTABLES):
            head = git.output(root, "symbolic-ref", "HEAD", wait_s=_GIT_S)
        branch = head.removeprefix("ref: ").removeprefix("refs/heads/")
        found = [hit.id for hit in relevant(root, self._agent, branch, _BRANCH_S)]
        lessons = {id_: each for store in self.stores for id_, each in store.lessons_of(found).items()}
        return [lessons[each] for each in found if each in lessons]


def _triggered(stores: Sequence[Patterns]) -> list[_Triggered]:
    """Return lessons and their triggers; those logged here and those of others alternate.

    So a flood of others' lessons cannot crowd out those logged here. On each side, lessons with a trigger of their own
    come before those whose words name a step, and among these the best-evidenced come first.
    """
    halves = []
    for is_own in (True, False):
        lessons = [each for source in stores for each in source.triggered(triggers.TABLE_MAX, is_own=is_own)]
        halves.append(sorted(ranked(lessons, "evidence"), key=lambda each: not each.trigger))
    mixed = (each for pair in zip_longest(*halves) for each in pair if each)
    return [(each, mentions.trigger(each.trigger, each.text, each.correct, each.value("wrong"))) for each in mixed]


def _trigger_table(
    table: Iterable[_Triggered], rows: Renderer, against: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Return ``[id, trigger, row]`` of the lessons that have a trigger, each row fit to show.

    ``against``: ids of the contradicting lessons, by a lesson's id. The lesson's row names them. A further row without
    a trigger names them, too: no step matches it, and ``fleet hook`` reads it when a prompt is about the lesson.
    """
    remarks = {each: f" [contradicted by {', '.join(ids)}: ask a person which holds]" for each, ids in against.items()}
    fit = islice(((each, trigger) for each, trigger in table if triggers.parse(trigger)), triggers.TABLE_MAX)
    made = [[each.id, trigger, rows.lesson(each, ROW_CHARS_MAX) + remarks.get(each.id, "")] for each, trigger in fit]
    return made + [[each, "", remark] for each, remark in remarks.items()]


def _authors(workspace: Workspace, lessons: Sequence[Pattern]) -> dict[str, str]:
    """Return the authors of lessons from elsewhere: the group of the replica that pushed each, else its agent."""
    groups, brought = evidence.Witnesses(workspace).last_groups(), workspace.trust.brought()
    authors = {}
    for lesson in lessons:
        if lesson.by and lesson.by not in lesson.mine:
            carrier = brought.get((lesson.id, lesson.by), lesson.by)
            authors[lesson.id] = groups.get(carrier, names.agent_of(carrier))
    return authors


def _fairly(items: Iterable[_Item], by: Mapping[str, str], count: int) -> list[_Item]:
    """Return ``count`` items: first at most a third of each author elsewhere, then the rest. ``by``: author by id."""
    taken, share, rest = Counter[str](), list[_Item](), list[_Item]()
    for item in items:
        taken.update([by[item.id]] if item.id in by else [])
        is_fair = item.id not in by or taken[by[item.id]] <= max(count // 3, 1)
        (share if is_fair else rest).append(item)
    return (share + rest)[:count]


def _newest_fairly(workspace: Workspace) -> tuple[list[Discovery], dict[str, str]]:
    """Return the newest discoveries, and their authors elsewhere by id.

    A discovery only claims its author, so all replicas whose lessons nobody is known to have pushed are one author.
    """
    groups, mine = evidence.Witnesses(workspace).last_groups(), workspace.mine()
    count = workspace.config.recall.discoveries
    newest = workspace.discoveries.newest(count * _LOOKED_AT)[::-1]
    by = {entry.id: groups.get(entry.by, "") for entry in newest if entry.by not in mine}
    return _fairly(newest, by, count), by


def is_unasked(workspace: Workspace) -> bool:
    """Return whether a remote is named that never answered here: then an empty clan means nothing."""
    return workspace.is_in_a_clan and not (workspace.state.get("last_sync") or workspace.state.get("fetched"))


def make_ready(workspace: Workspace) -> list[str]:
    """Render the outdated texts of the agents here; return these agents."""
    outdated = [agent for agent in workspace.agents_here() if SessionStart(workspace, agent).cached() is None]
    for agent in outdated:
        SessionStart(workspace, agent).make()
    return outdated


def forget(workspace: Workspace) -> None:
    """Delete the cached texts and triggers of the agents here; the next session's start or step renders them again."""
    for agent in workspace.agents_here():
        ready = Ready(os.fspath(workspace.root), agent)
        for file in (ready.start_file, ready.triggers_file):
            _put(workspace, file, b"")


def _put(workspace: Workspace, name: str, data: bytes) -> None:
    workspace.files.replace(workspace.root / name, data, is_durable=False)


# --- guards -----------------------------------------------------------------------------------------------------------

_CHOICES = ("ask", "deny")
_GUARD = "guard"


class _Guard(NamedTuple):
    """One decision about a step.

    Attributes:
        decision: "ask" or "deny".
        until: the last day on which it holds, YYYY-MM-DD; "" for no end.
        trigger: the step, as it was when it was decided.
        lesson: its words, fit to be shown; "" where it was retired here or is gone, and guards nothing.
    """

    id: str
    decision: str
    until: str
    trigger: str
    lesson: str


class Guards:
    """Guards of steps on this machine: lessons with a decision, which is a consent of ``local.db``."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def all(self) -> list[_Guard]:
        """Return the guards that hold today, by the lesson's id."""
        today, guards = self._workspace.wall()[:10], dict[str, _Guard]()
        for _, guard in self._decisions():
            if guard.id not in guards and (not guard.until or guard.until >= today):
                guards[guard.id] = guard._replace(lesson=self._words(guard))
        return [guards[pattern] for pattern in sorted(guards)]

    def decide(self, prefix: str, decision: str, until: str = "") -> _Guard:
        """Make a lesson guard its step; return the guard.

        Raises:
            NoError: there is no such lesson, or it names no step.
            UsageError: no such decision, or no day that is still to come.
        """
        workspace = self._workspace
        _check_decision(decision, until, workspace.wall()[:10])
        lesson = find(workspace, prefix)
        step = mentions.guardable(lesson.trigger, lesson.text, lesson.correct, lesson.value("wrong"))
        if not lesson.is_present:
            raise NoError(f"{lesson.id} is retired, and guards nothing. Nothing was changed; fleet restore {lesson.id}")
        if not triggers.parse(step):
            raise NoError(
                f"{lesson.id} names no command and no file but those of the right way: there is no step to guard. "
                f'Nothing was changed; give it one: fleet edit {lesson.id} --set trigger="Bash:git push*"'
            )
        before = next((raw for raw, each in self._decisions() if each.id == lesson.id), None)
        consent_text = msgspec.json.encode(_Guard(lesson.id, decision, until, step, _words_of(lesson))).decode()
        with Runs(workspace).recording("", "guard") as draft:
            self._set(lesson.id, consent_text)
            draft.summary = f"{lesson.id} guards its step: {decision}"
            draft.fields = [Field(lesson.id, _GUARD, before, consent_text)] if before != consent_text else []
        return next(each for each in self.all() if each.id == lesson.id)

    def lift(self, prefix: str) -> str:
        """Lift the guard of the lesson whose id begins with ``prefix``; return the id.

        Raises:
            NoError: there is none, or more than one.
        """
        guards = {
            each.id: raw
            for raw, each in reversed([*self._decisions()])
            if each.id.startswith(f"p-{prefix.removeprefix('p-')}")
        }
        none = f"{prefix[:40]} guards nothing here; nothing was changed. `fleet guard` lists what does"
        lifted = names.only(dict.fromkeys(sorted(guards), ""), prefix, none)
        with Runs(self._workspace).recording("", "guard") as draft:
            self._set(lifted, "")
            draft.summary = f"{lifted} guards nothing any more"
            draft.fields = [Field(lifted, _GUARD, guards[lifted], None)]
        return lifted

    def put_back(self, pattern: str, was: str, decision: str) -> bool:
        """Restore the decision that a lesson had before another one, "" for none; return False where it has a third."""
        is_due = next((raw for raw, each in self._decisions() if each.id == pattern), "") in (was, decision)
        if is_due:
            self._set(pattern, decision)
        return is_due

    def _set(self, pattern: str, decision: str) -> None:
        """Store the decision on a lesson, or "" for none, in place of any other, and cache the table of guards."""
        state = self._workspace.state
        if decision:  # stored first, since until the others are gone the newest counts
            state.agree(_GUARD, decision, self._workspace.wall())
        for raw in [raw for raw, each in self._decisions() if each.id == pattern and raw != decision]:
            state.disagree(_GUARD, raw)
        self.make_ready()

    def make_ready(self) -> None:
        """Cache the table of guards after a change; a warning says that it could not be written."""
        with self._workspace.warned("hooks go by the guards before this until a session starts"):
            self.write_table()

    def write_table(self, wait_s: float = limits.LOCK_WAIT_S) -> None:
        """Write the table that a hook reads before each step; ``wait_s``: for another process that does.

        Raises:
            FleetError: it could not be written; the one before it stays valid.
        """
        with self._workspace.lock(_GUARD, wait_s):  # so that no older table replaces it
            rows = [
                [each.id, each.trigger, each.lesson, each.decision, each.until] for each in self.all() if each.lesson
            ]
            if rows or (self._workspace.root / ready.GUARDS_FILE).exists():
                LocalFolder(os.fspath(self._workspace.root)).bind()
                table = Ready(os.fspath(self._workspace.root), "").rendered_rows(rows, "")
                _put(self._workspace, ready.GUARDS_FILE, table)

    def _decisions(self) -> Iterator[tuple[str, _Guard]]:
        """Yield the decisions, newest first, as stored and as parsed. What cannot be parsed is left out."""
        for raw in self._workspace.state.agreed(_GUARD):
            with suppress(msgspec.DecodeError):
                yield raw, msgspec.json.decode(raw, type=_Guard)

    def _words(self, guard: _Guard) -> str:
        """Return the words of a guard: those of the decision, unless they were edited here since.

        A lesson that others retired still guards: that was decided here. "" for one that was retired here, or is gone.
        """
        try:
            lesson = find(self._workspace, guard.id, is_worded=False)
        except NoError:
            return ""
        if not lesson.is_present:
            raw = self._workspace.patterns.line(guard.id)
            line = self._workspace.policy().counted(raw or Line(guard.id))
            is_ours = raw is None or any(line.has_removed(each, None) for each in self._workspace.mine())
            is_retired = any(line.has_removed(each, None) for each in line.by_writer())
            since = "others have retired it since" if is_retired else "who said it is blocked here"
            return "" if is_ours else f"{guard.lesson}; {since}"
        editors = {lesson.edited[field][1] for field in ("text", "correct") if field in lesson.edited}
        is_ours = bool(editors) and editors <= lesson.mine and lesson.words.redacted.isdisjoint(("text", "correct"))
        return _words_of(lesson) if is_ours else guard.lesson


def _check_decision(decision: str, until: str, today: str) -> None:
    if decision not in _CHOICES:
        unknown = f", not {decision[:40]!r}" if decision else ""
        raise UsageError(f"say what it does: fleet guard ID ask, deny or off{unknown}. Nothing was changed")
    with suppress(ValueError):
        if not until or (date.fromisoformat(until).isoformat() == until and until >= today):
            return
    raise UsageError(f"--until is a day from {today} on, such as {today}; not {until[:40]!r}. Nothing was changed")


def _words_of(lesson: Pattern) -> str:
    right = readable(lesson.correct)
    credits_ = ", ".join(filter(None, [Renderer().author(lesson.by), Renderer().edits(lesson), lesson.id]))
    return f"{readable(lesson.text)}{f' — right: {right}' if right else ''} ({credits_})"
