"""Use cases of reflection: lessons that enter and leave the memories of the agents here, and the statistics."""

from collections.abc import Collection, Mapping, Sequence

from fleet.app.finding import find, sources
from fleet.learn import counting
from fleet.learn.counting import CountedLog
from fleet.model import edits, limits, names
from fleet.model.errors import BusyError, FleetError
from fleet.model.pattern import REDACTED, Pattern
from fleet.recall.wording import Renderer, not_working
from fleet.reflect import exposure
from fleet.reflect.clusters import NOT_COMPARED, Clusters, Weighing
from fleet.reflect.evidence import Due, Evidence
from fleet.reflect.exposure import Exposures
from fleet.reflect.inbox import Inbox
from fleet.reflect.memory_md import FILE_NAME
from fleet.reflect.promotion import AgentMemory, Lessons, Promotions, Standing
from fleet.reflect.stats import Stats, measure
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace, Writer
from fleet.text.screening import counted

_PROMISING = 100
"""Number of best-evidenced lessons, of all and of those that changed, that each sync weighs: more than memory holds."""


def records_of(workspace: Workspace, agent: str, clusters: Clusters = NOT_COMPARED) -> Lessons:
    """Return the records that an agent may have in its memory: its private ones, and the clan's."""
    return Lessons(sources(workspace, agent), clusters)


def current_clusters(workspace: Workspace) -> Clusters:
    """Return the clusters of the clan's lessons, as of now."""

    def own() -> list[str]:
        logged = [each for agent in workspace.agents_here() for each in CountedLog(workspace, agent).occurrences()]
        return list(dict.fromkeys(each.pattern for each in sorted(logged, key=lambda each: -each.at_ms)))

    return Weighing(workspace).clusters(own)


def to_review(opposed: int, likely: int, inbox: Mapping[str, int] | None = None) -> list[str]:
    """Return the numbers of pairs for ``fleet review``, a line for each kind, without those that an inbox counts."""
    kinds = ((opposed, "contradiction", "that contradict each other"), (likely, "merge", "may be one lesson"))
    rest = ((number - (inbox or {}).get(kind, 0), what) for number, kind, what in kinds)
    return [f"{counted(number, 'pair')} of lessons {what}: fleet review" for number, what in rest if number > 0]


def promote(workspace: Workspace, agent: str, prefix: str) -> tuple[Due, Standing]:
    """Promote a lesson into an agent's memory by a person's decision; return it, and the memory's new state.

    ``prefix``: the beginning of its id.

    Raises:
        NoError: it is in already, cannot be in a memory, or there is no room; nothing was changed.
    """
    counting.reconcile_all(workspace)  # the stamp of this edit is then larger than all that was logged
    with workspace.writing(agent) as writer:
        lessons, record = records_of(workspace, agent, current_clusters(workspace)), find(workspace, prefix)
        lesson = lessons.lesson(record.id) or record
        with Runs(workspace).recording(agent, "promote") as draft:
            due = Promotions(writer, lessons).enter(lesson, right=lesson.correct, edits_by=Renderer().edits(lesson))
            draft.summary = f"promoted {due.id} into {agent}'s memory"
            draft.fields = [Field(lesson.id, "state", lesson.state, edits.PUBLISHED)]
    Inbox(workspace, agent).settle("promotion", due.id, f"{due.id} was promoted", draft.run)
    return due, AgentMemory(workspace, agent).standing()


def demote(workspace: Workspace, agent: str, prefix: str) -> tuple[str, Standing]:
    """Take a lesson out of an agent's memory; return its id, and the memory. It does not come back by itself.

    Raises:
        NoError: it is neither in the memory nor waiting for it; nothing was changed.
    """
    counting.reconcile_all(workspace)
    with workspace.writing(agent) as writer:
        lessons, begin = records_of(workspace, agent), f"p-{prefix.removeprefix('p-')}"
        inside = [each for each in AgentMemory(workspace, agent).standing().lessons if each.startswith(begin)]
        # The memory comes first: it may have a lesson that this clan does not know. "p-" alone names nothing.
        is_named = len(inside) == 1 and begin != "p-"
        first = inside[0] if is_named else find(workspace, prefix, is_worded=False).id
        ids = list(dict.fromkeys([first, *lessons.group(first)]))
        with Runs(workspace).recording(agent, "demote") as draft:
            published = [each for each in ids if (found := lessons.get(each)) and found.state == edits.PUBLISHED]
            Promotions(writer, lessons).leave(ids)
            draft.summary = f"demoted {first} from {agent}'s memory"
            draft.fields = [Field(each, "state", edits.PUBLISHED, edits.CANDIDATE) for each in published]
    for each in ids:
        Inbox(workspace, agent).settle("promotion", each, f"{first} was demoted, and stays out", draft.run)
    return first, AgentMemory(workspace, agent).standing()


def promote_logged(
    workspace: Workspace, agent: str, pattern_id: str, seen: int, near: Collection[str] = ()
) -> tuple[str, int]:
    """Promote a lesson at once if what was just logged or merged makes it due.

    Returns the memory's path, or "", and the number of the lesson's occurrences in all wordings; 0: of one, or unknown.

    ``near``: ids of lessons that may say the same in other words.
    """
    settings = workspace.config.promotion
    least = settings.least_seen
    lessons = records_of(workspace, agent, Weighing(workspace).last_clusters())
    if settings.mode == "off" or seen + _seen_near(lessons, pattern_id, near) < least:
        return "", 0
    if near:
        lessons = records_of(workspace, agent, current_clusters(workspace))
    lesson = _whole(lessons, pattern_id, agent)
    whole = lesson.count("seen") if lesson is not None and lessons.wordings(lesson.id) else 0
    if lesson is None or not Evidence(agent, settings).due([lesson]):
        return "", whole
    try:
        with workspace.writing(agent, counting.WAIT_S) as writer:
            current = _whole(lessons, pattern_id, agent)
            promoted = _promote_due(writer, [current] if current is not None else [], lessons)
    except BusyError:
        return "", whole  # the next sync promotes it
    except FleetError as why:
        workspace.warn(f"what was logged or merged counts, but {FILE_NAME} is as it was: {why}")
        return "", whole
    return workspace.own_path(agent, FILE_NAME) if promoted else "", whole


def _seen_near(lessons: Lessons, pattern_id: str, near: Collection[str]) -> int:
    """Return the count of the lessons that may be one with this: those near it, and their clusters."""
    ids = {each for one in near for each in lessons.clusters.of(one)} - {pattern_id}
    return sum(lesson.count("seen") for each in ids if (lesson := lessons.lesson(each)) is not None)


def _whole(lessons: Lessons, pattern_id: str, agent: str) -> Pattern | None:
    """Return a lesson with the evidence of its cluster; None for an unknown one."""
    lesson = lessons.lesson(pattern_id)
    wordings = lessons.wordings(lesson.id) if lesson is not None else []
    return Clusters.as_one(wordings, agent) if len(wordings) > 1 else lesson


def promote_all(workspace: Workspace) -> list[Due]:
    """Bring each agent's memory here up to date; return what entered.

    Lessons with enough evidence enter, those that the clan retired leave, and exposures are counted. A failure with one
    agent's memory is a warning: lessons are safe, and the next sync tries again.
    """
    promoted: list[Due] = []
    for agent in workspace.agents_writing():
        with workspace.warned(f"{agent}'s memory was not updated"), workspace.writing(agent) as writer:
            with workspace.snapshot():  # nobody else writes meanwhile
                lessons = records_of(workspace, agent, current_clusters(workspace))
                _tell_left(workspace, agent, AgentMemory(workspace, agent).take_out_retired(lessons))
                if workspace.config.promotion.mode != "off":
                    promoted += _promote_promising(writer, lessons)
            if Exposures(workspace.state).is_due(agent, workspace.world.wall_ms()):
                Exposures(writer.workspace.state).roll_up(writer)
    return promoted


def _promote_promising(writer: Writer, lessons: Lessons) -> list[Due]:
    """Promote what is due of the best-evidenced lessons, those that wait, and those changed since the last time."""
    workspace, key = writer.workspace, f"promoted.{writer.agent}"
    last = workspace.state.get(key)
    generation, is_all = workspace.patterns.generation, len(workspace.patterns.best_texts(_PROMISING + 1)) <= _PROMISING
    own = [name for name in workspace.mine() if names.agent_of(name) == writer.agent]
    changed = workspace.patterns.promising(int(last), own, _PROMISING) if last.isdigit() and not is_all else []
    lessons_due = _promising(writer, lessons, changed, is_all=is_all)
    promoted = _promote_due(writer, lessons_due, lessons, is_all=is_all)
    if str(generation) != last:
        workspace.state.put(**{key: str(generation)})
    return promoted


def _promising(writer: Writer, lessons: Lessons, changed: Sequence[str], *, is_all: bool) -> list[Pattern]:
    workspace, agent = writer.workspace, writer.agent
    best = (each for source in sources(workspace, agent) for each in source.best("evidence", _PROMISING))
    found = {each.id: each for each in best}
    if not is_all:
        waiting, least = AgentMemory(workspace, agent).waiting(), workspace.config.promotion.least_seen
        some = workspace.patterns.lessons_of([*(each.id for each in waiting), *changed]).values()
        found |= {each.id: each for each in some if each.count("seen") >= least}
    for group in lessons.clusters.groups:
        if (lesson := _whole(lessons, group[0], agent)) is not None:
            found = {each: one for each, one in found.items() if each not in group}
            found[lesson.id] = lesson
    return list(found.values())


def _promote_due(writer: Writer, patterns: Sequence[Pattern], lessons: Lessons, *, is_all: bool = False) -> list[Due]:
    rights = CountedLog(writer.workspace, writer.agent).rights
    return Promotions(writer, lessons).enter_due(patterns, rights=rights, is_all=is_all)


def take_out_retired(workspace: Workspace, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> None:
    """Take the lessons that the clan retired out of an agent's memory, with warnings; a failure is only a warning."""
    lessons, standing = records_of(workspace, agent), AgentMemory(workspace, agent).standing()
    if not lessons.retired(standing.lessons):
        return
    with workspace.warned(f"{agent}'s memory still holds what the clan retired"), workspace.locked(wait_s):
        _tell_left(workspace, agent, AgentMemory(workspace, agent).take_out_retired(lessons))


def _tell_left(workspace: Workspace, agent: str, left: Mapping[str, str]) -> None:
    for id_, text in left.items():
        if text == REDACTED:
            workspace.warn(f"the clan purged {id_} of its words, so it left {agent}'s {FILE_NAME}")
            continue
        workspace.warn(
            f"the clan retired {id_}, so it left {agent}'s {FILE_NAME}: {text}. `fleet restore {id_}`, then `fleet "
            f"promote {id_}`, keeps it for all; your own words under ## Notes stay for this agent"
        )


def leave(workspace: Workspace, agent: str, pattern_id: str) -> None:
    """Take a lesson out of an agent's memory, where it is in it."""
    if pattern_id in AgentMemory(workspace, agent).standing().lessons:
        with workspace.writing(agent) as writer:
            Promotions(writer, records_of(workspace, agent)).leave([pattern_id])


def weigh_anew(workspace: Workspace, agent: str, pattern_id: str, *, may_enter: bool) -> list[str]:
    """Take a lesson whose counts an undo changed out of the memory if its evidence is too little; return its ids.

    ``may_enter``: the undo is a redo of one that took it out, so that it enters again if it is due.
    """
    with workspace.writing(agent) as writer:
        lessons = records_of(workspace, agent, Weighing(workspace).last_clusters())
        lesson = _whole(lessons, pattern_id, agent)
        if lesson is None:
            return []
        if may_enter:
            _promote_due(writer, [lesson], lessons)
        return Promotions(writer, lessons).leave_undue(lesson)


def forget(workspace: Workspace, pattern_id: str) -> None:
    """Take a lesson out of the memory of every agent here, and of the list of those that wait for it."""
    for agent in workspace.agents_here():
        leave(workspace, agent, pattern_id)
        with workspace.locked():
            AgentMemory(workspace, agent).note_waiting([], [pattern_id], ())


def stats(workspace: Workspace) -> Stats:
    """Return the statistics of what was logged and shown here: corrections, relapses, lessons that do not work."""
    agents, patterns, compared = workspace.agents_here(), workspace.patterns, current_clusters(workspace)
    groups = patterns.groups()

    def lesson(each: str) -> Pattern | None:
        return patterns.lesson(each) if each in groups else patterns.get(each)

    shown = Exposures(workspace.state).shown(agents, lambda each: exposure.promoted_ms(lesson(each)))
    listed_here = (record for each in shown if (record := lesson(each)) is not None and record.is_listed)
    listed = {each.id: each for each in (*patterns.used(), *listed_here)}
    grouped = compared.grouped([listed[each] for each in sorted(listed)], patterns.lessons_of)
    wordings = {each.lesson.id: each.ids for each in grouped}
    counted = (each for agent in agents for each in CountedLog(workspace, agent).occurrences())
    now_ms = workspace.world.wall_ms()
    return measure(
        [each.lesson for each in grouped],
        [each for each in counted if each.at_ms <= now_ms],  # a clock that ran ahead would draw weeks that are to come
        shown,
        failing=not_working,
        members=lambda each: {one for part in wordings.get(each, (each,)) for one in groups.get(part, (part,))},
        unfilled=sum(len(CountedLog(workspace, agent).to_state()) for agent in agents),
    )


def decisions(workspace: Workspace) -> tuple[int, float]:
    """Return the number of decisions in the inboxes here, and the median of days that one took."""
    return Inbox(workspace).days_to_decide()
