"""Use cases of recall: the text that a session starts with, and guards, which stop a step or put it to a person.

What hooks wait for is made ready beforehand (``recall.ready``), and made anew when what it was made of has changed.
A guard is a lesson with a consent in the local database: what was decided, at which step, until when, and in which
words. A line of somebody else's never makes one, nor moves the step, nor puts words into it: only what was edited here
shows. To retire the lesson lifts the guard.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fleet.app import finding, reflecting
from fleet.app.finding import find, sources
from fleet.learn.attempts import AttemptLog
from fleet.learn.counting import CountedLog
from fleet.learn.journal import Journal
from fleet.model import names
from fleet.model.errors import DiskError, FleetError, NoError, UsageError
from fleet.model.pattern import Pattern
from fleet.recall import ready, triggers
from fleet.recall.ready import Ready, Start
from fleet.recall.session_context import CHARS_MIN, LESSONS_MAX, session_context, trigger_table
from fleet.recall.wording import STANDING, author, counted, edits
from fleet.reflect import evidence, housekeeping, inbox, memory_md, promotion
from fleet.reflect.clusters import Weighing, grouped
from fleet.reflect.exposure import Exposures
from fleet.reflect.memory_md import Memory
from fleet.reflect.promotion import AgentMemory
from fleet.store import git, trust
from fleet.store.query import Patterns, ranked
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace
from fleet.text import mentions
from fleet.text.screening import readable

_NOT_YET = (
    "The clan's lessons and discoveries are being made ready, which takes a while in a large clan, once. "
    "`fleet start` prints all of it as soon as it is; the next session starts with it."
)
_NOT_ASKED = "The clan's remote was never asked yet, so what the clan knows is not here: `fleet sync` asks."
_ARRIVED_MAX = 2_000
"""So many new lessons are looked at: a flood of one writer's must not hide those of others."""
_MOMENTS_MAX = 20
"""So many changed files, and so many commands that failed, are looked at for what is relevant."""
_GIT_S = 0.5
_PEOPLE_CHARS = 600
_CHECK_S = 7 * 86_400
"""So long after its time a check is told of."""
_TIDY_S = 2.0
"""How long a session's start waits to write: what it could not take out is not shown, and leaves with the next sync."""


def start(workspace: Workspace, agent: str, *, session: str = "") -> str:
    """Return what an agent reads when its session starts; in a named session, note that it was shown."""
    made = _ready(workspace, agent).start() if is_ready(workspace, agent) else None
    if made is None:
        made = session_start(workspace, agent, may_tidy=True)
    if session:
        _ready(workspace, agent).note_seen(made.generation if made.news else "")
        Exposures(workspace.state).note(agent, session, made.ids, workspace.world.wall_ms())
    return made.text


def is_ready(workspace: Workspace, agent: str) -> bool:
    """Tell whether the agent's text lies ready and is up to date with all that was written by now."""
    generation, lies_ready = str(workspace.patterns.generation), _ready(workspace, agent)
    return lies_ready.generation() == generation and lies_ready.start() is not None


def _ready(workspace: Workspace, agent: str) -> Ready:
    return Ready(os.fspath(workspace.root), agent)


def session_start(
    workspace: Workspace, agent: str, *, may_tidy: bool = False, since: int | None = None, session: str = ""
) -> Start:
    """Return what an agent reads when its session starts, and make it ready for the next time.

    What the clan retired is not in it; with ``may_tidy``, it is taken out of the memory, too.

    Args:
        workspace: where.
        agent: whose session.
        may_tidy: the memory may be written.
        since: the generation from which on a lesson is new; None: what the agent has not been told of.
        session: whose earlier start is lost, after a compaction: what was shown in it is new again. Nothing is made
            ready then.
    """
    if may_tidy and not workspace.is_read_only:
        reflecting.take_out_retired(workspace, agent, _TIDY_S)
    # Asked before anything is read: what is written meanwhile makes the text outdated.
    lies_ready = _ready(workspace, agent)
    files, generation = lies_ready.sums(), str(workspace.patterns.generation)
    since = lies_ready.seen() if since is None else since
    delimiter, known = f"fleet-{workspace.world.entropy(8).hex()}", sources(workspace, agent)
    memory = _memory(workspace, agent)
    remembered = set(ready.ids(memory))  # once is enough
    shown = Exposures(workspace.state).shown_to(agent, but=session)
    arrived = _shared_out(workspace, workspace.patterns.since(since, _ARRIVED_MAX))
    # As they were compared last: the next sync compares them anew, and a session's start does not wait for that.
    compared = Weighing(workspace).last_weighed()
    against = {each for pair in compared.opposed for each in pair.ids}
    kept_out = {said for each in remembered | shown for said in compared.of(each)} | against
    news = [each for each in arrived if each.id not in kept_out and each.is_listed]
    table = [pattern for source in known for pattern in source.triggered(triggers.TABLE_MAX)]
    standing = _standing(workspace, agent, known, table)
    inside = len({each.id for each in standing} & remembered)
    left_out = remembered | against | {each.id for each in news}
    said = grouped(standing, compared, workspace.patterns.lesson)
    rest = [each.lesson for each in said if left_out.isdisjoint(each.ids)]
    found = workspace.discoveries.newest(workspace.config.recall.discoveries)
    fresh = set(workspace.discoveries.changed(since))
    short = workspace.discoveries.short([each.id for each in found])
    short |= finding.short(known, [each.id for each in (*news, *rest, *table)])
    told = partial(session_context, agent=agent, delimiter=delimiter, members=workspace.emoji(), short=short)
    context = told(
        memory=memory,
        news=news,
        patterns=rest,
        total=sum(source.count() for source in known) - inside - len(news),
        discoveries=found,
        fresh=fresh,
        waiting=_undecided(workspace, agent),
        note=_NOT_ASKED if is_unasked(workspace) else "",
        rest_max=max(workspace.config.recall.start_chars, CHARS_MIN),
        by=_by(workspace, [*news, *rest]),
        standing=STANDING,
    )
    new_found = [each for each in found if each.id in fresh]
    again = told(memory="", news=news, patterns=(), discoveries=new_found, waiting=()) if news or new_found else ""
    made = Start(
        context,
        again,
        [*sorted(remembered), *(each.id for each in (*news, *rest) if short[each.id] in context)],
        [each.id for each in news if short[each.id] in again],
        generation,
    )
    make_guards_ready(workspace)
    if session:
        return made
    with suppress(DiskError):  # a read-only disk: it is made each time
        _put(workspace, lies_ready.start_file, ready.rendered(made, delimiter, files))
        rows = trigger_table(table, workspace.emoji(), short)
        _put(workspace, lies_ready.triggers_file, ready.rendered_rows(rows, generation) if rows else b"")
    return made


def _by(workspace: Workspace, lessons: Sequence[Pattern]) -> dict[str, str]:
    """Return who said each of some lessons, those of this folder apart: whoever pushed it, else the agent."""
    groups, brought = evidence.known_groups(workspace), workspace.trust.brought()
    found = {}
    for each in lessons:
        if each.by and each.by not in each.mine:
            carrier = brought.get((each.id, each.by), each.by)
            found[each.id] = groups.get(carrier, names.agent_of(carrier))
    return found


def _shared_out(workspace: Workspace, lessons: Sequence[Pattern]) -> list[Pattern]:
    """Return as many new lessons as are looked at, a third of them at most of each who said some."""
    by, taken = _by(workspace, lessons), defaultdict[str, int](int)
    found: list[Pattern] = []
    for each in lessons:
        who = by.get(each.id, "")
        taken[who] += 1
        if not who or taken[who] <= LESSONS_MAX // 3:
            found.append(each)
    return found[:LESSONS_MAX]


def is_unasked(workspace: Workspace) -> bool:
    """Tell whether a remote is named that never answered here: nothing being known means nothing then."""
    state = workspace.state
    return bool(workspace.config.share.remote and not (state.get("last_sync") or state.get("fetched")))


def forget(workspace: Workspace) -> None:
    """Delete what lies ready for the agents here: it is made anew when a session starts."""
    for agent in workspace.agents_here():
        _put(workspace, _ready(workspace, agent).start_file, b"")


def _standing(workspace: Workspace, agent: str, known: Sequence[Patterns], table: Sequence[Pattern]) -> list[Pattern]:
    """Return the lessons that have a place in every start: what is relevant now, then what is published, best first.

    A private lesson has one however often it was seen: it is the agent's own.
    """
    clan, *private = known
    relevant = set(_relevant(workspace, agent, table))
    at_rest = housekeeping.resting(workspace, agent)
    near = [each for each in table if each.id in relevant and each.is_listed]
    published = [
        *clan.best("published", LESSONS_MAX),
        *(each for one in private for each in one.best("evidence", LESSONS_MAX) if each.id not in at_rest),
    ]
    return list({each.id: each for each in (*near, *ranked(published, "evidence"))}.values())


def _relevant(workspace: Workspace, agent: str, table: Sequence[Pattern]) -> list[str]:
    """Return the ids of lessons about the files that are changed here, and the commands that failed here last."""
    rows = [[each.id, mentions.trigger(each.trigger, each.text, each.correct), ""] for each in table]
    streaks = AttemptLog(workspace.root, agent).state().of("")
    commands = [tried.command for streak in streaks for tried in streak.tries.values()][-_MOMENTS_MAX:]
    files = git.changed_files(workspace.root, _GIT_S)[:_MOMENTS_MAX] if rows else []
    steps = [("Bash", command, "") for command in commands] + [("Edit", "", path) for path in files]
    found: list[str] = []
    for step in steps:
        found += [each for each, _ in triggers.due(rows, found, *step)]
    return found


def at_once(workspace: Workspace, agent: str) -> Start:
    """Return what can be told without the clan's lessons: the memory, and what waits. It reads some small files."""
    whole = workspace.files.read(AgentMemory(workspace, agent).memory_file()).decode("utf-8", "replace")
    text = session_context(
        agent=agent,
        memory=_with_notes(workspace, agent, whole),
        patterns=(),
        discoveries=(),
        waiting=[each.in_one_line() for each in AgentMemory(workspace, agent).waiting()],
        delimiter=f"fleet-{workspace.world.entropy(8).hex()}",
        members=workspace.emoji(),
        note=_NOT_YET,
        standing=STANDING,
    )
    return Start(text, ids=ready.ids(text))


def _memory(workspace: Workspace, agent: str) -> str:
    """Return the memory as the agent reads it, without the lessons that the clan retired."""
    whole = Memory.parse(workspace.files.read(AgentMemory(workspace, agent).memory_file()))
    kept = promotion.without_retired(whole, reflecting.known(workspace, agent))
    return _with_notes(workspace, agent, kept.render().decode("utf-8", "replace"))


def _with_notes(workspace: Workspace, agent: str, memory: str) -> str:
    """Return a memory as the agent reads it: its hot part, its newest notes, and what is known of people."""
    people = workspace.files.read(workspace.home(agent) / memory_md.USER_MODEL)
    known = memory_md.UserModel(people).shown(_PEOPLE_CHARS)
    kept = memory_md.newest(memory)
    parts = [memory_md.hot(memory), kept and f"Notes:\n{kept}", known and f"Of people:\n{known}"]
    return "\n\n".join(filter(None, parts))


def _due_checks(workspace: Workspace, agent: str) -> list[str]:
    """Return what is to be looked at again by now, a line each."""
    page = workspace.files.read(workspace.home(agent) / memory_md.CHECKS)
    now_s = workspace.world.wall_ms() // 1000
    now, since = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each)) for each in (now_s, now_s - _CHECK_S))
    return memory_md.Checks(page).due(now, since)


def _undecided(workspace: Workspace, agent: str) -> list[str]:
    """Return what waits for a decision, a line each."""
    lines = []
    if unfilled := CountedLog(workspace, agent).unfilled(workspace.config.hook.ask_days):
        lines.append(
            f"{counted(unfilled, 'correction', 'corrections')} without a lesson yet: `fleet learn --waiting` lists "
            'them, and `fleet learn ID --pattern "..."` states one'
        )
    lines += _due_checks(workspace, agent)
    lines += [each.in_one_line() for each in AgentMemory(workspace, agent).waiting()]
    asked = inbox.count(workspace, [agent])
    lines += [asked.told()] if asked.number else []
    if asked.kinds.keys().isdisjoint(("merge", "contradiction")):
        lines += trust.sentences(each for each in workspace.trust.held() if each.is_asked)
    lines += reflecting.to_review(Weighing(workspace).last_weighed())
    for each in Journal(workspace, agent).proposals():
        lines.append(f"{each.code} ({each.name}) worked and is no lesson yet: {each.command}")
    return lines


def _put(workspace: Workspace, name: str, data: bytes) -> None:
    path: Path = workspace.root / name
    if data:
        workspace.files.replace(path, data, is_durable=False)
    elif path.exists():
        workspace.files.remove(path)


# --- guards -----------------------------------------------------------------------------------------------------------

_DECISIONS = ("ask", "deny")
_GUARD = "guard"


class Guard(NamedTuple):
    """One decision.

    Attributes:
        id: of the lesson.
        decision: "ask" or "deny".
        until: the last day on which it holds, YYYY-MM-DD; "" for no end.
        trigger: the step, as it was when it was decided.
        lesson: its words, fit to be shown; "" where it is retired or gone, and guards nothing.
    """

    id: str
    decision: str
    until: str
    trigger: str
    lesson: str


def guard(workspace: Workspace, prefix: str, decision: str, until: str = "") -> Guard:
    """Let a lesson decide about its step from now on.

    Raises:
        NoError: there is no such lesson, or it names no step.
        UsageError: no such decision, or no day that is still to come.
    """
    if decision not in _DECISIONS:
        raise UsageError(
            f"a guard can {' or '.join(_DECISIONS)}, or be off; not {decision[:40]!r}. Nothing was changed"
        )
    today = workspace.wall()[:10]
    if until and (not _is_day(until) or until < today):
        raise UsageError(f"--until is a day from {today} on, such as {today}; not {until[:40]!r}. Nothing was changed")
    known = find(workspace, prefix)
    step = mentions.trigger(known.trigger, known.text, known.correct)
    if not triggers.parse(step) or not known.is_present:
        raise NoError(
            f"{known.id} names no command and no file, or is retired: there is no step to guard. Nothing was changed; "
            f'give it one: fleet edit {known.id} --set trigger="Bash:git push*"'
        )
    before = [raw for raw, each in _decided(workspace) if each[0] == known.id]
    made = json.dumps([known.id, decision, until, step, _guard_said(known)])
    with Runs(workspace).noting("", "guard") as noted:
        workspace.state.agree(_GUARD, made, workspace.wall())  # first: between the two, the newest counts
        _forget(workspace, [raw for raw in before if raw != made])
        noted.told = f"{known.id} guards its step: {decision}"
        noted.fields = [Field(known.id, _GUARD, before[0] if before else None, made)] if before[:1] != [made] else []
    return next(each for each in guards(workspace) if each.id == known.id)


def lift_guard(workspace: Workspace, prefix: str) -> list[str]:
    """Lift the guards whose lesson's id begins so; return their ids.

    Raises:
        NoError: there is none.
    """
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    found = {raw: each[0] for raw, each in _decided(workspace) if each[0].startswith(wanted)}
    if not found:
        raise NoError(f"{prefix[:40]} guards nothing here; nothing was changed. `fleet guard` lists what does")
    with Runs(workspace).noting("", "guard") as noted:
        _forget(workspace, list(found))
        noted.told = f"{', '.join(sorted(set(found.values())))} guards nothing any more"
        noted.fields = [Field(each, _GUARD, raw, None) for raw, each in reversed(found.items())]
    return sorted(set(found.values()))


def put_guard_back(workspace: Workspace, pattern: str, decided: str) -> None:
    """Let a lesson guard what it did before, as its decision was kept then; "" for nothing."""
    before = [raw for raw, each in _decided(workspace) if each[0] == pattern]
    if decided:
        workspace.state.agree(_GUARD, decided, workspace.wall())
    _forget(workspace, [raw for raw in before if raw != decided])


def guards(workspace: Workspace) -> list[Guard]:
    """Return the guards that hold today, by the lesson's id."""
    found: dict[str, Guard] = {}
    for _, (pattern, decision, until, trigger, said) in _decided(workspace):
        if pattern not in found and (not until or until >= workspace.wall()[:10]):
            found[pattern] = Guard(pattern, decision, until, trigger, _guard_words(workspace, pattern, said))
    return [found[pattern] for pattern in sorted(found)]


def make_guards_ready(workspace: Workspace) -> None:
    """Make ready what a hook asks before each step."""
    path = workspace.root / ready.GUARDS_FILE
    with suppress(FleetError):  # a read-only disk, a damaged database: what lies ready holds on
        held = [each for each in guards(workspace) if each.lesson]
        table = [[each.id, each.trigger, each.lesson, each.decision, each.until] for each in held]
        if table:
            workspace.files.replace(path, ready.rendered_rows(table, ""))
        elif path.exists():
            workspace.files.remove(path)


def _decided(workspace: Workspace) -> Iterator[tuple[str, list[str]]]:
    """Yield what was decided, newest first, as it is kept and as it is read. What cannot be one is passed over."""
    for raw in workspace.state.agreed(_GUARD):
        with suppress(ValueError, RecursionError):
            told: Any = json.loads(raw)
            if isinstance(told, list) and len(told) in (4, 5) and all(isinstance(each, str) for each in told):
                yield raw, [*told, ""][:5]


def _forget(workspace: Workspace, consents: list[str]) -> None:
    for raw in consents:
        workspace.state.disagree(_GUARD, raw)
    make_guards_ready(workspace)


def _guard_words(workspace: Workspace, pattern: str, said: str) -> str:
    """Return the words of a guard: as they were when it was decided, unless they were edited here since."""
    try:
        known = find(workspace, pattern)
    except NoError:
        return ""
    if not known.is_present:
        return ""
    editors = {known.edited[field][1] for field in ("text", "correct") if field in known.edited}
    if editors and editors <= known.mine:
        return _guard_said(known)
    return said or f"a lesson that others worded since: `fleet show {known.id}` ({known.id})"


def _guard_said(known: Pattern) -> str:
    right = readable(known.correct)
    filed = ", ".join(filter(None, [author(known.by, {}), edits(known, {}), known.id]))
    return f"{readable(known.text)}{f' — right: {right}' if right else ''} ({filed})"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
