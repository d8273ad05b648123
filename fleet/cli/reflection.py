"""Commands that look back and keep notes in order: reflect on sessions, end the one that runs, tidy, sleep.

They merge daily logs into topics, too, and migrate a scratchpad to such logs.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fleet.app import consolidating, session_end, sleeping, tidying
from fleet.app.consolidating import Consolidated
from fleet.app.session_end import Reflected
from fleet.app.sleeping import Phase, Slept
from fleet.app.tidying import Tidied
from fleet.cli import output, serve
from fleet.cli.output import EXIT_NO, EXIT_REFUSED, echo, note
from fleet.model.errors import BusyError, NoError, UsageError
from fleet.reflect.auto_reflect import READY
from fleet.reflect.consolidation import Gates, Plan
from fleet.reflect.housekeeping import Mode
from fleet.reflect.reflection import Reflection
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, for_terminal

app = output.commands()

_ROWS = 40
_REPORT_CHARS_MAX = 256 * 1024

Reflector = Annotated[
    str, typer.Option("--use", metavar="NAME", help="From now on here: claude, codex, gemini, or rules again.")
]
Agree = Annotated[bool, typer.Option("--agree", help="Yes: the reflector that fleet.toml names may be asked.")]


@app.command("reflect")
def _reflect(
    transcript: Annotated[Path | None, typer.Option("--transcript", help="Of the session; any host's.")] = None,
    last: Annotated[bool, typer.Option("--last", help="The newest session of this project.")] = False,
    since: Annotated[str, typer.Option("--all-since", metavar="DAYS", help="All sessions of so many days: 7d.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="What would be read and written, and what it may cost.")
    ] = False,
    use: Reflector = "",
    agrees: Agree = False,
    session: output.Session = "",
    agent: output.Agent = "",
) -> None:
    """Look back on a session: lessons, notes, a skill, each where it belongs. `fleet undo` takes it back."""
    wanted = session or output.chosen.session
    with output.acting(agent) as (workspace, who):
        if use or agrees:
            _choose(workspace, use, agrees=agrees)
            if not (transcript or wanted or last or since):
                return
        if since:
            _all(workspace, who, _days(since), [transcript] if transcript else [], dry_run=dry_run)
            return
        if transcript is None and not wanted and not last:
            raise UsageError(
                "name a session: --last, --transcript PATH, --session ID, or --all-since 7d. Nothing was done"
            )
        if transcript is not None and not transcript.is_file():
            raise UsageError(f"{transcript} is no file; nothing was done")
        path = transcript or session_end.transcript_of(workspace, wanted)
        _tell([session_end.reflect(workspace, who, path, is_trial=dry_run, by_hand=True)])


@app.command("done")
def _done(session: output.Session = "", agent: output.Agent = "") -> None:
    """End the session that runs here: reflect on it now, and log it in the day's log. `/done` runs this."""
    with output.acting(agent) as (workspace, who):
        named = output.chosen.session_named(session)
        try:
            path = session_end.transcript_of(workspace, session or output.chosen.session)
        except NoError:  # a session without a transcript has been observed, perhaps
            if not (named and _close(workspace, who, named, None)):
                raise
            _tell([])
            return
        done = session_end.reflect(workspace, who, path, by_hand=True)
        _tell([done])
        said = done.plan.reflection if done.plan is not None else None
        _close(workspace, who, done.session, said)


def _close(workspace: Workspace, agent: str, session: str, said: Reflection | None) -> str:
    """Log what a session did; return what came of it, "" for nothing."""
    told = consolidating.close_session(workspace, agent, session, said).summary()
    if told:
        output.note(told)
    return told


def _choose(workspace: Workspace, use: str, *, agrees: bool) -> None:
    if use:
        session_end.Choice(workspace).choose(use)
        cap = session_end.Choice(workspace).settings
        costs = f", for at most ${cap.max_usd:g} a session and ${cap.daily_usd:g} a day" if use != "rules" else ""
        echo(f"{use} reflects on this machine from now on{costs}")
    if agrees:
        named = session_end.Choice(workspace).agree()
        echo(f"agreed: {for_terminal('; '.join(named))}" if named else "nothing waits for a yes")


def _days(given: str) -> float:
    try:
        return float(given.strip().removesuffix("d"))
    except ValueError:
        raise UsageError(f"--all-since {given[:20]!r}: a number of days belongs there, such as 7d") from None


def _all(workspace: Workspace, agent: str, days: float, paths: list[Path], *, dry_run: bool) -> None:
    found = session_end.history(workspace, agent, days, paths)
    for trouble in found.troubles:
        note(for_terminal(trouble))
    tokens = sum(each.tokens for each in found.waiting)
    told = (
        f"{counted(len(found.waiting), 'session')} to reflect on, {found.done:,} reflected on earlier; about "
        f"{tokens:,} tokens, at most ${found.usd:.2f} with {session_end.Choice(workspace).named}"
    )
    if dry_run:
        rows = [{"session": each.session, "at": each.at, "tokens": each.tokens} for each in found.waiting]
        asked = {"sessions": rows, "done": found.done, "tokens": tokens, "usd": found.usd}
        output.show(asked, told)
        return
    echo(told)
    done: list[Reflected] = []
    with output.progress("Reflecting", len(found.waiting)) as step:
        for each in session_end.reflect_all(workspace, agent, found.waiting):
            done.append(each)
            step(each.session[:36])
    _tell(done, none="nothing was left to reflect on")


def _tell(done: list[Reflected], none: str = "") -> None:
    rows = [] if done or not none else [none]
    for each in done:
        is_run = each.record is None or each.record.run
        rows.append(for_terminal(f"{each.session}: {each.summary()}" if is_run else _plan_told(each)))
        if each.record is not None and each.record.run:
            undo = f"`fleet undo {each.record.run}` takes it back, " if each.record.saved else ""
            rows.append(for_terminal(f"  {each.record.run}: {undo}`fleet records` shows it"))
    output.show([_as_found(each) for each in done], rows)
    for why in dict.fromkeys(each.record.why for each in done if each.record is not None and each.record.saved):
        if why:  # of what saved nothing the reason is told above
            output.hint(for_terminal(why))


def _plan_told(each: Reflected) -> str:
    """Return what a dry run would do."""
    if each.record is None or each.plan is None:
        return f"{each.session}: {each.summary()}"
    record, plan = each.record, each.plan
    head = (
        f"{each.session} ({record.host}): {record.reflector} would read about {record.tokens_in:,} tokens, for at most "
        f"${record.usd or 0:.2f}. {record.left_out}".rstrip()
    )
    rows = [f"  lesson: {it.lesson.text}{f' (again {it.same})' if it.same else ''}" for it in plan.lessons]
    rows += [f"  file: {it.path}" for it in plan.edits]
    rows += [f"  waits in the inbox: {it.kind}: {it.title}" for it in plan.items]
    kept = rows or ["  by the rules: nothing to keep"]
    return "\n".join([head, "by the rules alone, this would be kept:" if rows else "", *kept]).replace("\n\n", "\n")


def _as_found(each: Reflected) -> dict[str, object]:
    found: dict[str, object] = {"session": each.session, "told": each.summary(), "deferred": each.is_deferred}
    if each.record is not None:
        found["record"] = each.record.as_found()
    if each.plan is not None:
        said = [(it.lesson, it.same) for it in each.plan.lessons]
        found["lessons"] = [{"text": it.text, "by": it.by, "line": it.line, "same": same} for it, same in said]
        found["files"] = [it.path for it in each.plan.edits]
        found["inbox"] = [{"kind": it.kind, "title": it.title} for it in each.plan.items]
    return found


# --- tidying, and sleep -----------------------------------------------------------------------------------------------


@app.command("tidy")
def _tidy(
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="coordinated: when there is enough to do; always: now.")
    ] = Mode.COORDINATED.value,
    dry_run: output.DryRun = False,
    report: Annotated[
        typer.FileText | None,
        typer.Option(
            "--report",
            metavar="FILE",
            errors="replace",
            help="The host's own organization report; - reads it from stdin.",
        ),
    ] = None,
    agent: output.Agent = "",
) -> None:
    """Put an agent's notebook in order: dates, duplicates, contradictions, what is stale."""
    if mode not in set(Mode):
        raise UsageError(f"--mode is {' or '.join(Mode)}, not {mode[:40]!r}; nothing was changed")
    text = report.read(_REPORT_CHARS_MAX) if report else ""
    with output.opened() as workspace:
        done = tidying.tidy(workspace, output.agent_in(workspace, agent), Mode(mode), is_trial=dry_run, report=text)
        output.show(_tidied_as_json(done), _tidied_rows(done, is_trial=dry_run))


def _tidied_as_json(done: Tidied) -> dict[str, Any]:
    report: dict[str, Any] = msgspec.to_builtins(done.report)
    changes = [msgspec.to_builtins(each._asdict()) for each in done.plan.changes]
    return report | {
        "run": done.run,
        "waits": done.waits,
        "changes": changes,
        "contradictions": done.plan.contradictions,
    }


def _tidied_rows(done: Tidied, *, is_trial: bool) -> list[str]:
    rows = [done.report.summary()]
    if done.report.dream_report_ingested is not None:
        told = done.report.dream_report_ingested
        rows.append(
            f"the host's own report: {told.consolidated:,} consolidated, {told.removed:,} removed, "
            f"{told.reindexed:,} reindexed"
        )
    if done.report.dreamed_accepted:
        rows.append(f"{counted(done.report.dreamed_accepted, 'fact')} of the host's memory: fleet inbox")
    if is_trial or done.waits:
        diff = done.plan.diff()
        rows += diff[:_ROWS]
        rows += [f"... and {counted(len(diff) - _ROWS, 'line')} more: --json has all"] if len(diff) > _ROWS else []
    for one, other in done.plan.contradictions:
        rows.append(f"{one} and {other} contradict each other: fleet review, or fleet retire")
    if done.waits:
        rows.append(
            f"that is more than a run changes by itself; nothing was changed. It waits as {done.waits}: fleet inbox"
        )
    elif is_trial:
        rows.append("nothing was changed")
    elif done.run:
        rows.append(f"`fleet undo {done.run}` takes it back")
    return rows


@app.command("sleep")
def _sleep(
    dry_run: output.DryRun = False,
    only: Annotated[
        str, typer.Option("--only", metavar="PHASE", help=f"One phase: {', '.join(sleeping.PHASES)}.")
    ] = "",
    install_timer: Annotated[
        bool, typer.Option("--install-timer", help="Let systemd sleep once a day; with --dry-run, show the units.")
    ] = False,
    remove_timer: Annotated[bool, typer.Option("--remove-timer", help="Take that timer out.")] = False,
    agent: output.Agent = "",
) -> None:
    """Reflect, consolidate, tidy, publish, compact and render what waits, as one run."""
    with output.acting(agent) as (workspace, named):
        if install_timer or remove_timer:
            act = serve.uninstall if remove_timer else serve.install
            act(serve.timer(workspace, named), dry_run=dry_run)
            return
        done = sleeping.sleep(workspace, named, is_trial=dry_run, only=only)
        found = {"run": done.run, "changed": done.changed, "phases": msgspec.to_builtins(done.phases)}
        found["recovered"] = done.recovered
        output.show(found, _slept_rows(done, is_trial=dry_run))
    if any(each.error for each in done.phases):
        raise typer.Exit(EXIT_REFUSED)


def _slept_rows(done: Slept, *, is_trial: bool) -> list[str]:
    rows = [f"a sleep was cut short; its parts are one run now: fleet undo {done.recovered}"] if done.recovered else []
    for each in done.phases:
        rows += _phase_rows(each, is_trial=is_trial)
    if is_trial:
        rows.append("nothing was changed")
    elif done.run:
        rows.append(f"`fleet undo {done.run}` takes it back")
    elif done.changed:
        rows.append("nothing of it needs taking back")
    else:
        rows.append("nothing to do" if not done.phases else "nothing was changed")
    return rows


def _phase_rows(phase: Phase, *, is_trial: bool) -> list[str]:
    """Return a phase as lines: what it read, what it did or would do, and what it left and why."""
    verb = "would change" if is_trial else "changed"
    said = f"{verb} {phase.changed:,}: {phase.summary}" if phase.changed else (phase.error or "nothing to change")
    rows = [f"{phase.name:<14} read {phase.read or 'nothing'}; {said}"]
    rows += [f"    {row}" for row in phase.diff[:_ROWS]]
    rows += [f"    left: {why}" for why in phase.left]
    return rows


# --- topics ---------------------------------------------------------------------------------------------------------


@app.command("consolidate")
def _consolidate(
    check: Annotated[bool, typer.Option("--check", help="Only say whether the gates are open: exit 0, or 1.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Pass the gates of time and sessions; never a live lock.")
    ] = False,
    dry_run: output.DryRun = False,
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, max=366, help="Look at so many days of logs.")
    ] = None,
    session: output.Session = "",
    agent: output.Agent = "",
) -> None:
    """Merge what recurs in the daily logs into topics, and bring the index .agents/local.md up to date."""
    if check:
        try:
            output.chosen.root()
        except NoError as why:  # its exit code would say that a gate is closed
            raise UsageError(str(why)) from why
    with output.acting(agent) as (workspace, who):
        named = output.chosen.session_named(session)
        if check:
            _tell_gates(consolidating.check(workspace, who, named))
            return
        done = consolidating.consolidate(workspace, who, session=named, force=force, dry_run=dry_run, days=days)
        _tell_consolidated(done, dry_run=dry_run)
    if done.plan is None:
        if done.gates.holder:
            raise BusyError(f"the lock is held by {done.gates.holder}; nothing was done")
        raise typer.Exit(EXIT_NO)


def _tell_gates(gates: Gates) -> None:
    """Say how the gates stand; exit 0 where all are open, 1 where one is closed, 3 where nobody can tell."""
    found = {"open": gates.is_open, "hours": None if gates.hours is None else round(gates.hours, 2)}
    found |= {name: getattr(gates, name) for name in ("sessions", "holder", "trouble")}
    output.show(found, f"{'open' if gates.is_open else 'closed'}: {gates.summary()}")
    if gates.trouble:
        note(f".agents/.consolidation-lock {gates.trouble}; `fleet consolidate --force` writes it anew")
        raise typer.Exit(EXIT_REFUSED)
    if not gates.is_open:
        raise typer.Exit(EXIT_NO)


def _tell_consolidated(done: Consolidated, *, dry_run: bool) -> None:
    plan = done.plan or Plan({}, {})
    rows = [f"{name}: {told}" for name, told in plan.phases.items()]
    if dry_run and done.diff:
        rows += ["", done.diff, "", "nothing was changed: --dry-run"]
    else:
        rows.append(done.summary())
    if done.run:
        rows.append(f"undo: fleet undo {done.run}")
    found = {"changed": bool(done.run), "run": done.run, "dry_run": dry_run, "gates": done.gates.summary()}
    found |= {"files": sorted(plan.files), "added": plan.added, "merged": plan.merged, "flagged": plan.flagged}
    phases = [{"phase": name, "told": told} for name, told in plan.phases.items()]
    output.show(found | {"phases": phases}, rows)


@app.command("migrate")
def _migrate(
    dry_run: output.DryRun = False,
    agents_md: Annotated[
        bool, typer.Option("--agents-md", help="Name the daily log in AGENTS.md, too, where it names the old file.")
    ] = False,
    agent: output.Agent = "",
) -> None:
    """Move a monolithic .agents.local.md to daily logs, topics and an index; the old file is kept beside it."""
    with output.acting(agent) as (workspace, who):
        done = consolidating.migrate(workspace, who, dry_run=dry_run, with_agents_md=agents_md)
        rows = [*done.files, *([done.diff] if done.diff else [])]
        if not rows:
            rows = [f"nothing to migrate: the scratchpad holds the directive and {READY} alone"]
        elif dry_run:
            rows.append("nothing was changed: --dry-run")
        else:
            rows.append(f"undo: fleet undo {done.run}")
        found = {"files": list(done.files), "run": done.run, "diff": done.diff, "dry_run": dry_run}
        output.show(found, rows)
