"""Use cases of reflection: lessons that enter and leave the memories of the agents here, and the figures of it all."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fleet.app.finding import find, sources
from fleet.learn import counting
from fleet.learn.counting import CountedLog
from fleet.model import edits, limits, names
from fleet.model.errors import FleetError, NoError
from fleet.model.pattern import Pattern
from fleet.recall.wording import not_working
from fleet.reflect import evidence, exposure
from fleet.reflect.clusters import Clusters, Weighing
from fleet.reflect.evidence import Due, Evidence
from fleet.reflect.exposure import Exposures
from fleet.reflect.inbox import Inboxes
from fleet.reflect.memory_md import FILE_NAME
from fleet.reflect.promotion import AgentMemory, Lessons, Outcome, Promotions, Standing
from fleet.reflect.stats import Stats, measure
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace, Writer
from fleet.text.screening import counted

_PROMISING = 100
"""So many of the best-evidenced lessons are looked at with each sync: far more than a memory holds."""


class _Decided(NamedTuple):
    """Result of a person's decision about a memory.

    Attributes:
        id: of the lesson.
        memory: how the memory stands now.
        text: the lesson's words, where it entered.
        reason: why it entered.
        evidence: on what evidence.
        left: ids of the lessons that left the memory for it.
    """

    id: str
    memory: Standing
    text: str = ""
    reason: str = ""
    evidence: str = ""
    left: tuple[str, ...] = ()


def records_of(workspace: Workspace, agent: str) -> Lessons:
    """Return the records that an agent may have in its memory: the clan's, and its private ones."""
    return Lessons(sources(workspace, agent))


def current_clusters(workspace: Workspace) -> Clusters:
    """Return which of the clan's lessons say the same, and which the opposite, as of now."""

    def own() -> list[str]:
        logged = [each for agent in workspace.agents_here() for each in CountedLog(workspace, agent).occurrences()]
        return list(dict.fromkeys(each.pattern for each in sorted(logged, key=lambda each: -each.at_ms)))

    return Weighing(workspace).clusters(own)


def to_review(found: Clusters) -> list[str]:
    """Return what waits for ``fleet review``, a line for each kind."""
    lines = []
    if number := len(found.opposed):
        lines.append(f"{counted(number, 'pair')} of lessons contradict each other: fleet review")
    if number := len(found.likely):
        lines.append(f"{counted(number, 'pair')} of lessons may be one lesson: fleet review")
    return lines


def _compared(workspace: Workspace, agent: str) -> Lessons:
    return Lessons(sources(workspace, agent), current_clusters(workspace))


def promote(workspace: Workspace, agent: str, prefix: str, *, instead_of: Sequence[str] = ()) -> _Decided:
    """Take a lesson into an agent's memory, instead of others, because a person says so; ids by their beginnings.

    Raises:
        NoError: it is in already, cannot be in a memory, or there is no room; nothing was changed.
    """
    counting.reconcile_all(workspace)  # the stamp of this edit is then larger than all that was logged
    with workspace.writing(agent) as writer:
        inside = AgentMemory(workspace, agent).standing().lessons
        leaving = tuple(_in_memory(each, inside) for each in instead_of)
        lessons, asked = records_of(workspace, agent), find(workspace, prefix)
        lesson = lessons.lesson(asked.id) or asked
        with Runs(workspace).recording(agent, "promote", [AgentMemory(workspace, agent).memory_file()]) as draft:
            done = Promotions(writer, lessons).enter(lesson, right=lesson.correct, instead_of=leaving)
            draft.summary = f"promoted {done.id} into {agent}'s memory"
            draft.fields = [Field(lesson.id, "state", lesson.state, edits.PUBLISHED)]
    Inboxes(workspace, [agent]).settle("promotion", done.id, f"{done.id} was promoted")
    return _Decided(done.id, AgentMemory(workspace, agent).standing(), done.text, done.reason, done.evidence, leaving)


def demote(workspace: Workspace, agent: str, prefix: str) -> _Decided:
    """Take a lesson out of an agent's memory. It does not come back by itself.

    Raises:
        NoError: it is neither in the memory nor waiting for it; nothing was changed.
    """
    counting.reconcile_all(workspace)
    with workspace.writing(agent) as writer:
        lessons = records_of(workspace, agent)
        try:
            first = _in_memory(prefix, AgentMemory(workspace, agent).standing().lessons)
        except NoError:  # a memory may hold a lesson that this clan does not know, and a lesson may only wait for it
            first = find(workspace, prefix).id
        ids = list(dict.fromkeys([first, *lessons.group(first)]))
        with Runs(workspace).recording(agent, "demote", [AgentMemory(workspace, agent).memory_file()]) as draft:
            before = {each: found.state for each in ids if (found := lessons.get(each)) is not None}
            Promotions(writer, lessons).leave(ids)
            draft.summary = f"demoted {first} from {agent}'s memory"
            published = [each for each, state in before.items() if state == edits.PUBLISHED]
            draft.fields = [Field(each, "state", edits.PUBLISHED, edits.CANDIDATE) for each in published]
    for each in ids:
        Inboxes(workspace, [agent]).settle("promotion", each, f"{first} was demoted, and stays out")
    return _Decided(first, AgentMemory(workspace, agent).standing())


def _in_memory(prefix: str, inside: Sequence[str]) -> str:
    """Return the lesson of a memory that the beginning of an id names."""
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    found = [each for each in inside if each.startswith(wanted)] if len(wanted) > len("p-") else []
    listed = f"it holds {', '.join(inside)}" if inside else "it holds no lesson"
    none = f"no lesson in {FILE_NAME} begins with {prefix[:40]!r}: {listed}. Nothing was changed"
    return names.only(found, prefix, none)


def promote_logged(workspace: Workspace, agent: str, pattern_id: str, seen: int, near: Collection[str] = ()) -> str:
    """Take a lesson into memory at once if the occurrence just logged is the one that it takes; return the file, or "".

    ``near`` are the ids of lessons that may say the same in other words.
    """
    settings = workspace.config.promotion
    least = settings.least_seen
    lessons = Lessons(sources(workspace, agent), Weighing(workspace).last_clusters())
    if settings.mode == "off" or seen + _seen_near(lessons, pattern_id, near) < least:
        return ""
    if near:
        lessons = _compared(workspace, agent)
    lesson = _whole(lessons, pattern_id, agent)
    if lesson is None or not Evidence(agent, settings).due([lesson]):
        return ""
    try:
        with workspace.writing(agent) as writer:
            again = _whole(lessons, pattern_id, agent)
            done = _promote_due(writer, [again] if again is not None else [], lessons)
    except FleetError as why:
        workspace.warn(f"the correction is logged, but {FILE_NAME} is as it was: {why}")
        return ""
    return workspace.own_path(agent, FILE_NAME) if done.promoted else ""


def _seen_near(lessons: Lessons, pattern_id: str, near: Collection[str]) -> int:
    """Return how often lessons were seen that may be one with this: those near it, and what was one with them."""
    ids = {each for one in near for each in lessons.clusters.of(one)} - {pattern_id}
    return sum(found.count("seen") for each in ids if (found := lessons.lesson(each)) is not None)


def _whole(lessons: Lessons, pattern_id: str, agent: str) -> Pattern | None:
    """Return a lesson with the evidence of its cluster; None for an unknown one."""
    lesson = lessons.lesson(pattern_id)
    wordings = lessons.wordings(lesson.id) if lesson is not None else []
    return Clusters.spoken_for(wordings, agent) if len(wordings) > 1 else lesson


def promote_all(workspace: Workspace) -> list[Due]:
    """Bring each agent's memory here up to date with what was logged and with what came in; return what entered.

    What has the evidence by now enters, what the clan retired leaves, and what was shown is counted. Each log has been
    counted before. What goes wrong with one agent's memory is a warning: lessons are safe, and the next sync tries
    again.
    """
    promoted: list[Due] = []
    if workspace.is_read_only:
        return promoted
    for agent in workspace.agents_here():
        try:
            with workspace.writing(agent) as writer:
                with workspace.snapshot():  # nobody else writes meanwhile
                    lessons = _compared(workspace, agent)
                    _tell_left(workspace, agent, AgentMemory(workspace, agent).take_out_retired(lessons))
                    if workspace.config.promotion.mode != "off":
                        promoted += _promote_promising(writer, lessons).promoted
                if Exposures(workspace.state).is_due(agent, workspace.world.wall_ms()):
                    Exposures(writer.workspace.state).roll_up(writer)
        except FleetError as why:
            workspace.warn(f"{agent}'s memory is as it was: {why}")
    return promoted


def _promote_promising(writer: Writer, lessons: Lessons) -> Outcome:
    """Look at the best-evidenced lessons, at those that wait, and at those that changed since this was done last."""
    workspace, noted = writer.workspace, f"promoted.{writer.agent}"
    since = workspace.state.get(noted)
    generation, is_all = workspace.patterns.generation, workspace.patterns.count() <= _PROMISING
    changed = workspace.patterns.changed(int(since)) if since.isdigit() and not is_all else []
    lessons_due = _promising(writer, lessons, changed, is_all=is_all)
    done = _promote_due(writer, lessons_due, lessons, is_all=is_all)
    if str(generation) != since:
        workspace.state.put(**{noted: str(generation)})
    return done


def _promising(writer: Writer, lessons: Lessons, changed: Sequence[str], *, is_all: bool) -> list[Pattern]:
    workspace, agent = writer.workspace, writer.agent
    looked = {each.id: each for source in sources(workspace, agent) for each in source.best("evidence", _PROMISING)}
    if not is_all:
        waiting = [each.id for each in AgentMemory(workspace, agent).waiting()]
        looked |= {each.id: each for each in _lessons_of([*waiting, *changed], workspace)}
    for group in lessons.clusters.groups:
        if (whole := _whole(lessons, group[0], agent)) is not None:
            looked = {each: one for each, one in looked.items() if each not in group} | {whole.id: whole}
    return list(looked.values())


def _lessons_of(ids: Sequence[str], workspace: Workspace) -> list[Pattern]:
    """Return the lessons of some records that were seen often enough to be looked at."""
    least, patterns = workspace.config.promotion.least_seen, workspace.patterns
    grouped = patterns.groups()
    found = [patterns.lesson(each) if each in grouped else patterns.get(each) for each in ids]
    return [each for each in found if each is not None and each.count("seen") >= least]


def _promote_due(writer: Writer, looked: Sequence[Pattern], lessons: Lessons, *, is_all: bool = False) -> Outcome:
    def rights() -> Mapping[str, str]:
        return CountedLog(writer.workspace, writer.agent).rights()

    witness = evidence.Witnesses(writer.workspace).witness()
    return Promotions(writer, lessons).enter_due(looked, rights=rights, is_all=is_all, witness=witness)


def take_out_retired(workspace: Workspace, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> None:
    """Take out of an agent's memory what the clan retired, and warn of it. What goes wrong is a warning, too."""
    lessons, stands = records_of(workspace, agent), AgentMemory(workspace, agent).standing()
    if not lessons.retired(stands.lessons):
        return
    try:
        with workspace.locked(wait_s):
            _tell_left(workspace, agent, AgentMemory(workspace, agent).take_out_retired(lessons))
    except FleetError as why:
        workspace.warn(f"{agent}'s memory still holds what the clan retired: {why}")


def loses_ground(workspace: Workspace, agent: str, before: Pattern, after: Pattern) -> bool:
    """Return whether a lesson of a memory would not have entered it, had some writer not said what it said."""
    if not after.is_listed:
        return before.is_listed
    settings, who = workspace.config.promotion, evidence.Witnesses(workspace).witness()
    stood, stands = (bool(Evidence(agent, settings, who).due([each])) for each in (before, after))
    return stood and not stands


def _tell_left(workspace: Workspace, agent: str, left: Mapping[str, str]) -> None:
    for each, text in left.items():
        workspace.warn(
            f"the clan retired {each}, so it left {agent}'s {FILE_NAME}: {text}. `fleet restore {each}`, then `fleet "
            f"promote {each}`, keeps it for all; your own words under ## Notes stay for this agent"
        )


def leave(workspace: Workspace, agent: str, pattern_id: str) -> None:
    """Take a lesson out of an agent's memory, where it is in it."""
    if pattern_id in AgentMemory(workspace, agent).standing().lessons:
        with workspace.writing(agent) as writer:
            Promotions(writer, records_of(workspace, agent)).leave([pattern_id])


def forget(workspace: Workspace, pattern_id: str) -> None:
    """Take a lesson out of the memory of every agent here, and of the notes about it: sessions would read it again."""
    for agent in workspace.agents_here():
        leave(workspace, agent, pattern_id)
        with workspace.locked():
            AgentMemory(workspace, agent).note_waiting([], [pattern_id], ())


def stats(workspace: Workspace) -> Stats:
    """Return the figures of what was logged and shown here: corrections, relapses, lessons that do not work."""
    agents, patterns, compared = workspace.agents_here(), workspace.patterns, current_clusters(workspace)
    groups = patterns.groups()

    def lesson(each: str) -> Pattern | None:
        return patterns.lesson(each) if each in groups else patterns.get(each)

    shown = Exposures(workspace.state).shown(agents, lambda each: exposure.promoted_ms(lesson(each)))
    here = (found for each in shown if (found := lesson(each)) is not None and found.is_listed)
    listed = {each.id: each for each in (*patterns.used(), *here)}
    grouped = compared.grouped((listed[each] for each in sorted(listed)), lesson)
    wordings = {each.lesson.id: each.ids for each in grouped}
    return measure(
        [each.lesson for each in grouped],
        [each for agent in agents for each in CountedLog(workspace, agent).occurrences()],
        shown,
        failing=not_working,
        members=lambda each: {one for part in wordings.get(each, (each,)) for one in groups.get(part, (part,))},
        unfilled=sum(CountedLog(workspace, agent).unfilled() for agent in agents),
    )


def decisions(workspace: Workspace) -> tuple[int, float]:
    """Return the number of decisions in the inboxes here, and the median of days that one took."""
    return Inboxes(workspace).days_to_decide()
