"""Use cases of background work: a sleep, and the work that hooks leave to a process of its own.

A sleep is the upkeep of an agent's notes and logs, in phases, under one lock, as one run. Each phase reports what it
read, what it changed, what it left and why; the others run even if one fails. The runs of the phases are parts of the
sleep's run: ``fleet undo sleep-...`` takes back exactly those. After a crash at any point the next sleep finishes what
is half written; what the interrupted one had finished stays, as separate runs.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from fleet.app import consolidating, inbox, learning, reflecting, session_end, sharing, starting, tidying
from fleet.app.events import PROMOTED, opened
from fleet.hosts import local
from fleet.hosts.local import GUEST, Call, LocalFolder
from fleet.learn.corrections_md import Correction
from fleet.learn.journal import Journal
from fleet.model.errors import BusyError, FleetError, UsageError
from fleet.reflect import inbox as waiting
from fleet.reflect import memory_md, records
from fleet.reflect.housekeeping import Mode
from fleet.reflect.records import Record, Records, Written
from fleet.store import changes
from fleet.store.runs import PART, Draft, Field, Runs
from fleet.store.workspace import Workspace
from fleet.text.screening import counted

KIND = "sleep"
PARTS = frozenset({tidying.KIND, consolidating.KIND, consolidating.REFLECTED, "correct", "publish"})
"""Kinds of the runs that phases leave."""
_HOLDER = "sleeping"
"""Key in ``local.db`` of a sentence about the last sleep that began: its id, its agent, and when."""
_IDLE = "slept"
"""Key in ``local.db`` of the fingerprint at which a sleep found nothing to do, by agent."""
_UNSHOWN = frozenset({"compaction", "pages"})
"""Phases that only render what the others changed: a dry run passes over them."""
_DERIVED = _UNSHOWN | {"review"}
"""Phases that write only derived files: they are no reason for a record."""
_IDLE_MS = 3_600_000
"""Time after which a sleep runs though nothing was written: some work comes due by time alone."""
_DIFF_ROWS = 200
_LOCK_WAIT_S = 0.5
_PROMOTED_CHARS_MAX = 120


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one phase.

    Attributes:
        read: its input, in words.
        changed: number of things that it changed, or in a dry run would change.
        summary: what it did, in a sentence; "" for nothing.
        left: what it did not do, and why, a sentence each.
        pending: id of the inbox's item that its plan waits as; "" where it does not.
        error: why it failed; nothing of it is half done.
    """

    name: str = ""
    read: str = ""
    changed: int = 0
    summary: str = msgspec.field(default="", name="told")
    left: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    pending: str = msgspec.field(default="", name="waits")
    error: str = ""


class Slept(NamedTuple):
    """Result of a sleep, and its run, "" where there is nothing to take back.

    ``phases``: none where nothing was written since the last sleep found nothing to do.
    """

    run: str
    phases: tuple[Phase, ...]

    @property
    def changed(self) -> int:
        """Number of changed things."""
        return sum(each.changed for each in self.phases)

    @property
    def has_changed(self) -> bool:
        """True if the sleep changed or proposed anything; the phases that only render do not count."""
        return any(each.changed or each.pending for each in self.phases if each.name not in _UNSHOWN)


def sleep(workspace: Workspace, agent: str, *, dry_run: bool = False, only: Sequence[str] = ()) -> Slept:
    """Run the phases, or some of them alone; a dry run plans them, and changes nothing.

    Raises:
        UsageError: there is no such phase.
        BusyError: another sleep runs; the record says so.
    """
    if unknown := next((name for name in only if name not in PHASES), ""):
        raise UsageError(f"there is no phase {unknown[:40]!r}: {', '.join(PHASES)}. Nothing was changed")
    chosen = {name: act for name, act in PHASES.items() if name in (only or PHASES)}
    if dry_run:
        return Slept("", tuple(_run_phase(name, act, workspace, agent, dry_run=True) for name, act in chosen.items()))
    # Taken before the phases, so that the next sleep looks at what comes while they run, and at what they changed.
    before = "" if only else _fingerprint(workspace, agent)
    if before and workspace.state.get(f"{_IDLE}.{agent}") == before:
        return Slept("", ())
    with _hold_lock(workspace, agent):
        Runs(workspace).recover()
        draft, phases = Draft(Runs(workspace).name(KIND)), list[Phase]()
        began = f"{draft.run} of {agent} is at work here since {workspace.wall()[:16]}Z"
        workspace.state.put(**{_HOLDER: began})
        for name, act in chosen.items():
            known, phase = len(workspace.runs), _run_phase(name, act, workspace, agent, dry_run=False)
            left = tuple(each for each in workspace.runs[known:] if each.split("-")[0] in PARTS)
            phases.append(msgspec.structs.replace(phase, runs=left))
        draft.summary = _summary(phases)
        draft.fields = [Field(part, PART, None, part) for each in phases for part in each.runs]
        if draft.fields:
            Runs(workspace).apply(Runs(workspace).fresh(KIND, agent, draft))
        if any(each.changed for each in phases if each.name not in _DERIVED):
            Records(workspace, agent).append(_record(draft.run, phases))
        if before and not draft.fields and not any(each.error for each in phases):
            workspace.state.put(**{f"{_IDLE}.{agent}": before})
    return Slept(draft.run if draft.fields else "", tuple(phases))


@contextmanager
def _hold_lock(workspace: Workspace, agent: str) -> Iterator[None]:
    """Hold the lock of a checkout's sleeps; where another sleep holds it, record whose it is."""
    with ExitStack() as stack:
        try:
            stack.enter_context(workspace.lock("sleep", _LOCK_WAIT_S))
        except BusyError as why:
            holder = workspace.state.get(_HOLDER) or "another sleep is at work here"
            record = Record(run=Runs(workspace).name(KIND), kind=KIND, outcome="skipped", why=f"busy: {holder}")
            Records(workspace, agent).append(record)
            raise BusyError(f"{holder}; nothing was changed by this one. Run it again when that one is done") from why
        yield


def _summary(phases: Sequence[Phase]) -> str:
    return "; ".join(f"{each.name}: {each.summary}" for each in phases if each.changed) or "nothing to do"


def _run_phase(name: str, act: "_PhaseFunction", workspace: Workspace, agent: str, *, dry_run: bool) -> Phase:
    if dry_run and name in _UNSHOWN:
        return Phase(name=name, left=("a dry run does not show it: it renders what is there, and adds nothing",))
    try:
        phase = act(workspace, agent, dry_run)
    except FleetError as why:
        phase = Phase(error=str(why))
    return msgspec.structs.replace(phase, name=name, diff=phase.diff[:_DIFF_ROWS])


def _record(run_id: str, phases: Sequence[Phase]) -> Record:
    written = tuple(
        Written(name=each.name, ids=each.runs, count=each.changed, skipped=each.left, error=each.error)
        for each in phases
        if each.changed or each.error or each.left
    )
    outcome = "partial" if any(each.error for each in phases) else "success"
    return Record(run=run_id, kind=KIND, outcome=outcome, why=_summary(phases), writers=written)


def _fingerprint(workspace: Workspace, agent: str) -> str:
    """Return a fingerprint of the files that phases read; it changes once an hour, too."""
    root, agents = workspace.root, sorted({agent, *workspace.agents_here()})
    own = ("corrections.md", "memory.md", "JOURNAL.md", "notes.jsonl", records.FILE_NAME, waiting.FILE_NAME)
    paths = [workspace.own_path(name, file) for name in agents for file in own]
    paths += [f".fleet/attempts/{name}.won" for name in agents]
    paths += ["fleet.toml", ".agents.local.md", "AGENTS.md", ".agents/.consolidation-lock"]
    for folder in ("clan-learnings/patterns.d", "clan-learnings/discoveries.d", ".agents/logs", ".agents/topics"):
        paths += [each.relative_to(root).as_posix() for each in (root / folder).glob("*") if each.is_file()]
    paths += ["clan-learnings/patterns.jsonl", "clan-learnings/discoveries.jsonl"]
    heard = [[each.session, each.at_ms] for each in LocalFolder(str(root)).heard()]
    parts = [workspace.world.wall_ms() // _IDLE_MS, heard, changes.Changes(str(root)).fingerprints(sorted(paths))]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


# --- phases -----------------------------------------------------------------------------------------------------


def _reflections(workspace: Workspace, agent: str, dry_run: bool) -> Phase:
    """Reflect on the sessions that have ended, deferred ones included."""
    results = session_end.reflect_due(workspace, dry_run=dry_run)
    read = counted(len(results), "session that has ended", "sessions that have ended")
    ran = [each.record for each in results if not each.why and each.record and each.record.outcome != "skipped"]
    left = [f"session {each.session}: {each.summary()}" for each in results if each.record not in ran]
    seen, deferred = {each.session for each in results}, Records(workspace, agent).deferred()
    left += [f"session {each.session} waits: {each.why}" for each in deferred if each.session not in seen]
    summary = f"reflected on {counted(len(ran), 'session')}" if ran else ""
    if ran and dry_run:
        cost = sum(each.usd or 0.0 for each in ran)
        summary = f"{counted(len(ran), 'session')} to reflect on, by {ran[0].reflector} for at most ${cost:.2f}"
        left += dict.fromkeys(each.why for each in ran if each.why)
    return Phase(read=read, changed=len(ran), summary=summary, left=tuple(left))


def _observations(workspace: Workspace, agent: str, dry_run: bool) -> Phase:
    """Suggest what came up in three separate sessions or more."""
    result = consolidating.suggest(workspace, agent, dry_run=dry_run)
    number = len(result.rows) + len(result.promoted) + result.compressed
    return Phase(read=f"observations ({result.mode})", changed=number, summary=result.summary(), left=result.left)


def _consolidation(workspace: Workspace, agent: str, dry_run: bool) -> Phase:
    """Merge the daily logs into topics, where the gates are open."""
    gates = consolidating.check(workspace, agent)
    # A lock that a crash left is no closed gate: the consolidation tells a dead holder from a living one.
    if gates.trouble or not gates.is_due:
        return Phase(read="the gates", left=(f"a gate is closed: {gates.summary()}",))
    preview = consolidating.consolidate(workspace, agent, dry_run=True)
    number = preview.number
    total = sum(1 for _ in (workspace.root / ".agents/topics").glob("*.md"))
    read, diff = f"daily logs, {counted(total, 'topic')}", tuple(preview.diff.splitlines())
    if dry_run:
        return Phase(read=read, changed=number, summary=preview.summary(), diff=diff)
    if number > (most := workspace.config.sleep.changes_max(total)):
        pending, where = tidying.put_aside(workspace, agent, question := preview.question(), most)
        return Phase(read=read, left=(f"{question.title}, more than {most:,}. {where}",), pending=pending)
    try:
        result = consolidating.consolidate(workspace, agent)
    except BusyError as why:
        return Phase(read=read, left=(str(why),))
    return Phase(read=read, changed=number if result.run else 0, summary=result.summary(), diff=diff)


def _tidy(workspace: Workspace, agent: str, dry_run: bool) -> Phase:
    """Put the notebook in order, when there is enough to do."""
    tidied = tidying.tidy(workspace, agent, Mode.COORDINATED, dry_run=dry_run, is_logged=False)
    left = [f"{one} and {other} contradict each other: fleet review" for one, other in tidied.plan.contradictions]
    if tidied.left:
        left.append(f"the plan changes too much. {tidied.left}")
    if tidied.report.skipped is not None:
        left.append(tidied.report.summary())
    number, facts = tidied.plan.notes_changed if tidied.run or dry_run else 0, tidied.report.dreamed_accepted
    summary = [tidied.report.summary()] if number or not facts else []
    summary += [f"{counted(facts, 'fact')} of the host's memory: fleet inbox"] if facts else []
    return Phase(
        read=counted(tidied.report.total_scanned, "note"),
        changed=number + facts,
        summary="; ".join(summary),
        left=tuple(left),
        diff=tuple(tidied.plan.diff()) if number else (),
        pending=tidied.pending,
    )


def _publish(workspace: Workspace, agent: str, dry_run: bool) -> Phase:
    """Log lessons of mutations that worked, and promote what has the evidence."""
    mutations = Journal(workspace, agent).proposals()
    read = counted(len(mutations), "mutation that worked", "mutations that worked")
    if dry_run:
        left = ("a dry run does not show which lessons would enter a memory",)
        texts = "; ".join(each.pattern for each in mutations)
        return Phase(read=read, changed=len(mutations), summary=texts, left=left)
    logged = list[str]()
    for each in mutations:
        source = f"mutation {each.code} ({each.name}) {each.id}"
        correction = Correction(each.failed, each.switch, each.pattern, source=source)
        if not learning.correct(workspace, agent, correction).is_echo:
            logged.append(each.pattern)
    with Runs(workspace).recording(agent, "publish") as draft:
        promoted = reflecting.promote_all(workspace)
        draft.summary = f"{counted(len(promoted), 'lesson')} entered a memory"
    lines = [*(f"+ {text}" for text in logged), *(f"+ {memory_md.FILE_NAME}: {each.text}" for each in promoted)]
    what = f"{counted(len(logged), 'mutation')} logged, {draft.summary}"
    return Phase(read=read, changed=len(lines), summary=what if lines else "", diff=tuple(lines))


def _review(workspace: Workspace, agent: str, dry_run: bool) -> Phase:  # noqa: ARG001 - as all of them
    """Put lessons that may be one, or contradict each other, into the inbox."""
    clusters, (new, dropped) = reflecting.current_clusters(workspace), inbox.refresh(workspace, dry_run=dry_run)
    left = reflecting.to_review(len(clusters.opposed), len(clusters.likely))
    left += [f"dropped, since nobody decided it in time: {each.dropped()}" for each in dropped]
    summary = f"{counted(new, 'thing')} more to decide: fleet inbox" if new else ""
    return Phase(read=counted(len(clusters.groups), "cluster"), changed=new, summary=summary, left=tuple(left))


def _compaction(workspace: Workspace, agent: str, dry_run: bool) -> Phase:  # noqa: ARG001 - as all of them
    """Join the shards into one edition, where there is no remote; with one a sync does that."""
    if sharing.Membership(workspace).shown():
        return Phase(read="shards", left=("a sync joins them, with what the clan has",))
    is_written = sharing.write_edition_here(workspace)
    return Phase(read="shards", changed=int(is_written), summary="the edition was written" if is_written else "")


def _pages(workspace: Workspace, agent: str, dry_run: bool) -> Phase:  # noqa: ARG001 - as all of them
    """Render the clan's page, and the text of the next session's start."""
    _, is_new = sharing.update_here(workspace, agent)
    starting.make_ready(workspace)
    return Phase(read="pages", changed=int(is_new), summary="rendered patterns.md" if is_new else "")


_PhaseFunction = Callable[[Workspace, str, bool], Phase]

PHASES: dict[str, _PhaseFunction] = {
    each.__name__.removeprefix("_"): each
    for each in (_reflections, _observations, _consolidation, _tidy, _publish, _review, _compaction, _pages)
}
"""Phases of a sleep, in this order."""


# --- after a host's events ------------------------------------------------------------------------------------------


def make_ready(call: Call) -> str:
    """Fetch from the clan, and make the next session's start ready; return a line for the log."""
    with opened(call) as workspace:
        with call.guarded("the clan was not asked for news"):
            fetched = sharing.fetch_if_agreed(workspace, call.agent)
            _note_promoted(call, fetched.promoted)
            if fetched.patterns_in or fetched.discoveries_in:
                call.notes.add(f"came {fetched.patterns_in + fetched.discoveries_in}")
        try:
            with workspace.lock("ready", 0):
                size = len(starting.SessionStart(workspace, call.agent).make(may_tidy=True).text)
        except BusyError:
            return "another process is making the next session's start ready"
    return f"the next session's start is ready: {size:,} characters"


def end_session(call: Call) -> str:
    """Reflect on the session, log it, promote, and sync with an agreed remote; return a line for the log."""
    with call.guarded("old sessions are still remembered"):
        LocalFolder(call.root).prune()
    if call.agent == GUEST:
        _close_session(call)
        return "nothing was sent: no agent is named here, see `fleet init --agent NAME`"
    with opened(call) as workspace, call.guarded("the session was not reflected on"):
        for result in session_end.reflect_due(workspace, only=call.session):
            call.log(f"reflected on {result.session}: {result.summary()}")
    _close_session(call)
    with opened(call) as workspace:
        synced = sharing.SyncResult(why="[hook] sync_at_end is false in fleet.toml")
        if workspace.config.hook.sync_at_end:
            synced = sharing.sync_if_agreed(workspace, call.agent)
        _note_promoted(call, sharing.update_here(workspace, call.agent)[0] if synced.why else synced.promoted)
        with call.guarded("the next session's start is not ready"):
            starting.SessionStart(workspace, call.agent).make()
    if synced.why:
        return f"settled; nothing was sent: {synced.why}"
    part = ", in part" if synced.is_partial else ""
    return f"synced{part}: {counted(synced.out, 'line')} out, {counted(synced.patterns_in, 'lesson')} in"


def _note_promoted(call: Call, texts: Iterable[str]) -> None:
    """Note lessons that entered a memory while nobody looked: the next session's start names them to the person."""
    notes = local.SessionNotes(call.root, f"{PROMOTED}-{call.agent}")
    for text in texts:
        notes.add(f"{PROMOTED} {json.dumps(text[:_PROMOTED_CHARS_MAX])}")


def _close_session(call: Call) -> None:
    """Log what the session did, unless a reflection has done so; suggest, promote and consolidate what recurs."""
    with call.guarded("what this session did is in no daily log"), opened(call) as workspace:
        if summary := consolidating.close_session(workspace, call.agent, call.session).summary():
            call.log(summary)
