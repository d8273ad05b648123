"""Commands by which an agent's notebook is put in order: ``fleet tidy``."""

import sys
from typing import Annotated, Any

import msgspec
import typer

from fleet.app import tidying
from fleet.app.tidying import Tidied
from fleet.cli import output
from fleet.model.errors import UsageError
from fleet.reflect.housekeeping import Mode

app = output.commands()

_ROWS = 40


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
