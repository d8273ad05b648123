"""Use cases of learning: log a correction, state a lesson, log a discovery."""

from collections.abc import Iterable

from fleet.learn import corrections
from fleet.learn.corrections import LogResult
from fleet.learn.corrections_md import Correction
from fleet.model import edits
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError
from fleet.model.pattern import Pattern
from fleet.store.runs import Draft, Field, Runs
from fleet.store.workspace import Workspace
from fleet.text.similarity import TURNS


def correct(
    workspace: Workspace, agent: str, correction: Correction, *, session: str = "", same: str = ""
) -> LogResult:
    """Log one correction, durable before this returns; promote its lesson if this occurrence makes it due.

    ``same``: the beginning of a lesson's id; the correction is then another occurrence of that lesson.

    Raises:
        UsageError: a trigger that fits nothing.
        RefusedError: a field is too long.
        NoError: there is no lesson ``same``.
        DiskError: it did not reach the disk.
    """
    _check_trigger(workspace, correction.trigger)
    lesson_id = ""
    if same:
        lesson = _find(workspace, same)
        lesson_id, pattern = lesson.id, correction.pattern or lesson.text
        correction = correction._replace(pattern=pattern)
    with Runs(workspace).recording(agent, "correct") as draft:
        return _log(workspace, agent, correction, draft, session=session, same=lesson_id)


def correct_all(workspace: Workspace, agent: str, entries: Iterable[tuple[Correction, str]]) -> list[LogResult]:
    """Log corrections, each with its session, as one run that one ``fleet undo`` takes back.

    Raises:
        RefusedError, DiskError: as ``correct``. The corrections before the failed one are logged, and in the run.
    """
    logged: list[LogResult] = []
    error: FleetError | None = None
    with Runs(workspace).recording(agent, "import") as draft:
        try:
            for correction, session in entries:
                logged.append(_log(workspace, agent, correction, draft, session=session))
        except FleetError as why:
            error = why
        draft.summary = f"logged {len(logged):,} proposal{'s' * (len(logged) != 1)} of past sessions"
        if draft.problem and draft.fields:
            workspace.warn("`fleet undo` takes back only what is counted of this: the rest is logged, and counts later")
            draft.problem = ""
    if error is not None:
        raise error
    return logged


def _log(
    workspace: Workspace, agent: str, correction: Correction, draft: Draft, *, session: str, same: str = ""
) -> LogResult:
    logged = corrections.Corrections(workspace, agent).log(correction, session=session, same=same, is_own=True)
    _promote(workspace, agent, logged)
    _note_logged(draft, logged)
    return logged


def _check_trigger(workspace: Workspace, trigger: str) -> None:
    if trigger:
        from fleet.recall import triggers  # most corrections name none

        if remark := triggers.check(trigger, "logged"):
            workspace.warn(remark)


def _find(workspace: Workspace, prefix: str) -> Pattern:
    from fleet.app.finding import find  # 45 ms that most corrections need not spend

    return find(workspace, prefix)


def _note_logged(draft: Draft, logged: LogResult) -> None:
    if logged.entry:
        draft.summary = f"logged {logged.entry}"
        draft.lessons += [logged.id] if logged.is_first else []
        draft.fields += logged.fields(logged.entry)
        draft.fields += [Field(logged.id, "state", "", edits.PUBLISHED)] if logged.promoted else []
    elif not logged.is_echo:
        draft.problem = "it is logged, and not counted yet"


def _promote(workspace: Workspace, agent: str, logged: LogResult) -> None:
    """Promote a lesson into memory at once where this occurrence makes it due."""
    if not logged.entry or workspace.is_guest(agent):
        return
    # The correction is durable, whatever is wrong with the memory.
    with workspace.warned(f"{logged.id} is logged, and was not looked at for the memory"):
        # Lessons of the same meaning count with it, and one of the opposite meaning keeps it out.
        alike = [each.id for each in logged.near if TURNS.issuperset(each.differs)]
        if alike or logged.seen >= workspace.config.promotion.least_seen:
            from fleet.app import reflecting  # 40 ms that most corrections need not spend

            # Lessons are compared now, so that two opposites are known: no hook has the time for that.
            if any(each.differs for each in logged.near if each.id in alike):
                reflecting.current_clusters(workspace)
            logged.promoted, logged.whole = reflecting.promote_logged(workspace, agent, logged.id, logged.seen, alike)


def state_lesson(
    workspace: Workspace, agent: str, entry: str, taught: Correction, *, same: str = "", session: str = ""
) -> LogResult:
    """State what a signal teaches, durable before this returns: from then on it counts like any correction.

    The entry is named by the beginning of its id, with or without ``c-``. With ``same``, the beginning of an id, it is
    another occurrence of that lesson, in its own words if the pattern is "". The session in which the signal was
    flagged comes before the one that is named.
    """
    _check_trigger(workspace, taught.trigger)
    lesson_id = _find(workspace, same).id if same else ""
    with Runs(workspace).recording(agent, "learn") as draft:
        logged = corrections.Corrections(workspace, agent).state(
            entry, taught, same=lesson_id, session=session, is_own=True
        )
        _promote(workspace, agent, logged)
        _note_logged(draft, logged)
    return logged


def discover(workspace: Workspace, agent: str, finding: Discovery, session: str = "") -> tuple[Discovery, bool]:
    """Log a discovery; return it, and whether it was new. Raises as ``Findings.log``."""
    from fleet.learn.discoveries import Findings  # 3 ms that a correction need not spend

    with Runs(workspace).recording(agent, "discover") as draft:
        entry, is_new = Findings(workspace, agent).log(finding)
        draft.summary, draft.lessons = f"logged {entry.id}", [entry.id] if is_new and entry.by else []
        draft.problem = "it waits, and is not logged yet" if is_new and not entry.by else ""
    if is_new and entry.type == "workaround":
        from fleet.app import observing  # 35 ms that a correction need not spend

        text = f"Workaround: {entry.problem} — {entry.solution}"
        observing.try_observe(workspace, agent, session, "workaround", text)
    return entry, is_new
