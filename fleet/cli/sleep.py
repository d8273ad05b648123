"""Commands by which notes and logs are put in order: ``fleet tidy``, and ``fleet sleep`` with its timer."""

import sys
from typing import Annotated, Any

import msgspec
import typer

from fleet.app import sleeping, tidying
from fleet.app.sleeping import Phase, Slept
from fleet.app.tidying import Tidied
from fleet.cli import output
from fleet.cli.serve import install_timer_of, take_out_timer
from fleet.model.errors import UsageError
from fleet.reflect.housekeeping import Mode

app = output.commands()

_ROWS = 40
EXIT_PARTIAL = 3


@app.command("tidy")
def _tidy(
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="coordinated: when there is enough to do; always: now.")
    ] = Mode.COORDINATED.value,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; change nothing.")] = False,
    report: Annotated[
        str, typer.Option("--report", metavar="FILE", help="The host's own organization report; - reads it from stdin.")
    ] = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Put an agent's notebook in order: dates, duplicates, contradictions, what is stale."""
    if mode not in set(Mode):
        raise UsageError(f"--mode is {' or '.join(Mode)}, not {mode[:40]!r}; nothing was changed")
    text = tidying.read_report(report, sys.stdin) if report else ""
    with output.opened(directory) as workspace:
        done = tidying.tidy(workspace, output.agent_in(workspace, agent), Mode(mode), is_trial=dry_run, report=text)
        output.tell(
            output.cleaned(_as_json(done)), "\n".join(output.cleaned(_rows(done, is_trial=dry_run))), as_json=as_json
        )


def _as_json(done: Tidied) -> dict[str, Any]:
    changes = [msgspec.to_builtins(each._asdict()) for each in done.plan.changes]
    report: dict[str, Any] = msgspec.to_builtins(done.report)
    return report | {
        "run": done.run,
        "waits": done.waits,
        "changes": changes,
        "contradictions": [list(each) for each in done.plan.contradictions],
    }


def _rows(done: Tidied, *, is_trial: bool) -> list[str]:
    rows = [tidying.told(done.report)]
    if done.report.dream_report_ingested is not None:
        told = done.report.dream_report_ingested
        rows.append(
            f"the host's own report: {told.consolidated:,} consolidated, {told.removed:,} removed, "
            f"{told.reindexed:,} reindexed"
        )
    if done.report.dreamed_accepted:
        rows.append(f"{output.counted(done.report.dreamed_accepted, 'fact')} of the host's memory: fleet inbox")
    if is_trial or done.waits:
        diff = done.diff()
        rows += diff[:_ROWS]
        rows += (
            [f"... and {output.counted(len(diff) - _ROWS, 'line')} more: --json has all"] if len(diff) > _ROWS else []
        )
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    only: Annotated[
        str, typer.Option("--only", metavar="PHASE", help=f"One phase: {', '.join(sleeping.PHASES)}.")
    ] = "",
    install_timer: Annotated[
        bool, typer.Option("--install-timer", help="Let systemd sleep once a day; with --dry-run, show the units.")
    ] = False,
    remove_timer: Annotated[bool, typer.Option("--remove-timer", help="Take that timer out.")] = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Reflect, consolidate, tidy, publish, compact and render what waits, as one run."""
    with output.opened(directory) as workspace:
        named = output.agent_in(workspace, agent)
        if install_timer or remove_timer:
            (take_out_timer if remove_timer else install_timer_of)(workspace, named, dry_run=dry_run)
            return
        done = sleeping.sleep(workspace, named, is_trial=dry_run, only=only)
        output.tell(
            output.cleaned(_slept_as_json(done)),
            "\n".join(output.cleaned(_slept_rows(done, is_trial=dry_run))),
            as_json=as_json,
        )
    if any(each.error for each in done.phases):
        raise typer.Exit(EXIT_PARTIAL)


def _slept_as_json(done: Slept) -> dict[str, Any]:
    return {
        "run": done.run,
        "changed": done.changed,
        "phases": [msgspec.to_builtins(each) for each in done.phases],
        "recovered": done.recovered,
    }


def _slept_rows(done: Slept, *, is_trial: bool) -> list[str]:
    rows = [f"a sleep was cut short; its parts are one run now: fleet undo {done.recovered}"] if done.recovered else []
    for each in done.phases:
        rows += _phase_rows(each, is_trial=is_trial)
    if is_trial:
        rows.append("nothing was changed")
    elif done.run:
        rows.append(f"`fleet undo {done.run}` takes it back")
    else:
        rows.append("nothing to do" if not done.phases else "nothing was changed")
    return rows


def _phase_rows(phase: Phase, *, is_trial: bool) -> list[str]:
    """Return a phase as lines: what it read, what it did or would do, and what it left and why."""
    verb = "would change" if is_trial else "changed"
    said = f"{verb} {phase.changed:,}: {phase.told}" if phase.changed else (phase.error or "nothing to change")
    rows = [f"{phase.name:<14} read {phase.read or 'nothing'}; {said}"]
    rows += [f"    {row}" for row in phase.diff[:_ROWS]]
    rows += [f"    left: {why}" for why in phase.left]
    return rows
