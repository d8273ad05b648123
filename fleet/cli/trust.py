"""Commands about whose word counts on this machine: ``fleet block`` and ``fleet unblock``."""

from typing import Annotated, Any

import typer

from fleet.app import trusting
from fleet.app.trusting import Changes
from fleet.cli import output
from fleet.cli.output import counted

app = output.commands()

_SHOWN_MAX = 5

Name = Annotated[str, typer.Argument(metavar="AGENT|REPLICA", help="An agent, or one replica: <agent>.<8 hex digits>.")]


@app.command("block")
def _block(
    name: Name,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="What the branch held before still counts: 2026-11-20.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="Retire for the whole clan, too, what that writer alone had said.")
    ] = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Leave out here what a writer said: lessons, counts, edits, removes. Memories and pages follow at once.

    Nothing that is pushed changes, and `fleet unblock` undoes it. What a person had approved stays, and is listed.
    """
    with output.opened(directory) as workspace:
        who = output.agent_in(workspace, agent)
        done = trusting.block(workspace, who, name, since=since, dry_run=dry_run, retire=retire)
        if as_json:
            output.say_json(output.cleaned(_as_json(done, dry_run=dry_run)))
            return
        for row in _as_rows(done, dry_run=dry_run):
            output.say(row)


@app.command("unblock")
def _unblock(name: Name, as_json: output.Json = False, directory: output.Directory = "") -> None:
    """Let a writer count again that was blocked here."""
    with output.opened(directory) as workspace:
        done = trusting.unblock(workspace, name)
        if as_json:
            output.say_json(output.cleaned(_as_json(done, dry_run=False)))
            return
        output.say(
            f"{name} counts again: {counted(len(done.gone), 'lesson')} back, {len(done.other):,} read or count "
            f"otherwise, {counted(done.discoveries, 'discovery', 'discoveries')}"
        )


def _as_rows(done: Changes, *, dry_run: bool) -> list[str]:
    since = f" since {done.since[:16]}Z" if done.since else ""
    rows = [
        f"{done.name} would be blocked here{since}; nothing was changed"
        if dry_run
        else f"{done.name} is blocked here{since}; `fleet unblock {done.name}` undoes it",
        _sum_of(done),
        *(f"    {each}  {output.cleaned(text)}" for each, text in list(done.gone.items())[:_SHOWN_MAX]),
    ]
    if (more := len(done.gone) - _SHOWN_MAX) > 0:
        rows.append(f"    and {more:,} more: --json")
    verb = "would leave" if dry_run else "left"
    rows += [f"  {verb} {agent}'s memory.md: {output.cleaned(row)}" for agent, _, row in done.left]
    rows += [
        f"  stays in {agent}'s memory.md by a person's yes: {output.cleaned(row)}\n"
        f"    `fleet demote {each}` takes it out"
        for agent, each, row in done.kept
    ]
    if done.retired:
        rows.append(f"  {counted(len(done.retired), 'lesson')} retired for everybody; the next `fleet sync` says so")
    return rows


def _sum_of(done: Changes) -> str:
    found = counted(done.discoveries, "discovery", "discoveries")
    return f"  {counted(len(done.gone), 'lesson')} out, {len(done.other):,} read or count otherwise, {found} out"


def _as_json(done: Changes, *, dry_run: bool) -> dict[str, Any]:
    return {
        "name": done.name,
        "since": done.since,
        "dry_run": dry_run,
        "lessons": [{"id": each, "text": text} for each, text in done.gone.items()],
        "changed": done.other,
        "discoveries": done.discoveries,
        "left": [{"agent": agent, "id": each, "row": row} for agent, each, row in done.left],
        "approved": [{"agent": agent, "id": each, "row": row} for agent, each, row in done.kept],
        "retired": list(done.retired),
    }
