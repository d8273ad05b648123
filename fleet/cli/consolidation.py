"""Commands that keep the project's own notes in order: observations, consolidation of daily logs, migration."""

from typing import Annotated

import typer

from fleet.app import consolidating, observing
from fleet.app.consolidating import Consolidated
from fleet.cli import output
from fleet.model.errors import BusyError, NoError, UsageError
from fleet.reflect.auto_reflect import READY
from fleet.reflect.consolidation import Gates, Plan

app = output.commands()

_EXIT_CLOSED = 1


@app.command("observe")
def _observe(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="commit, fix, reuse, dead-end or workaround.",
            autocompletion=lambda: ["commit", "fix", "reuse", "dead-end", "workaround"],
        ),
    ],
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What happened, in one line.")],
    session: output.Session = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Note one thing that happened in this session: a line of .agents.local.md, on the disk before this returns."""
    if kind.casefold() == "dead" and text[:1] and text[0].casefold() == "end":
        kind, text = "dead-end", text[1:]
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent, or_guest=True)
        named = observing.session_of(workspace, who, output.chosen.session_named(session))
        done = observing.observe(workspace.root, who, named, kind, " ".join(text), workspace.world.wall_ms())
        found = {"path": done.path, "line": done.line, "cut": done.is_cut, "directive": done.is_directive}
        output.tell(output.cleaned(found), f"in {done.path}: {done.line}", as_json=as_json)
    if done.is_cut:
        output.note("cut to one line of under 120 characters")
    if done.is_directive:
        output.note("this reads as a directive: it is kept as data, and never promoted by itself")


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
    as_json: output.Json = False,
) -> None:
    """Merge what recurs in the daily logs into topics, and bring the index .agents/local.md up to date."""
    if check:
        try:
            output.chosen.root()
        except NoError as why:  # its exit code would say that a gate is closed
            raise UsageError(str(why)) from why
    with output.opened() as workspace:
        who, named = output.agent_in(workspace, agent), output.chosen.session_named(session)
        if check:
            _tell_gates(consolidating.check(workspace, who, named), as_json=as_json)
            return
        done = consolidating.consolidate(workspace, who, session=named, force=force, dry_run=dry_run, days=days)
        _tell_consolidated(done, dry_run=dry_run, as_json=as_json)
    if done.plan is None:
        if done.gates.holder:
            raise BusyError(f"the lock is held by {done.gates.holder}; nothing was done")
        raise typer.Exit(_EXIT_CLOSED)


def _tell_gates(gates: Gates, *, as_json: bool) -> None:
    """Say how the gates stand; exit 0 where all are open, 1 where one is closed, 3 where nobody can tell."""
    found = {
        "open": gates.is_open,
        "hours": None if gates.hours is None else round(gates.hours, 2),
        "sessions": gates.sessions,
        "holder": gates.holder,
        "trouble": gates.trouble,
    }
    output.tell(output.cleaned(found), f"{'open' if gates.is_open else 'closed'}: {gates.told()}", as_json=as_json)
    if gates.trouble:
        output.note(f".agents/.consolidation-lock {gates.trouble}; `fleet consolidate --force` writes it anew")
        raise typer.Exit(output.EXIT_REFUSED)
    if not gates.is_open:
        raise typer.Exit(_EXIT_CLOSED)


def _tell_consolidated(done: Consolidated, *, dry_run: bool, as_json: bool) -> None:
    plan = done.plan or Plan({}, {})
    rows = [f"{name}: {told}" for name, told in plan.phases.items()]
    if dry_run and done.diff:
        rows += ["", done.diff, "", "nothing was changed: --dry-run"]
    else:
        rows.append(done.told())
    if done.run:
        rows.append(f"undo: fleet undo {done.run}")
    found = {
        "changed": bool(done.run),
        "run": done.run,
        "dry_run": dry_run,
        "files": sorted(plan.files),
        "added": list(plan.added),
        "merged": list(plan.merged),
        "flagged": list(plan.flagged),
        "phases": [{"phase": name, "told": told} for name, told in plan.phases.items()],
        "gates": done.gates.told(),
    }
    output.tell(output.cleaned(found), output.cleaned("\n".join(rows)), as_json=as_json)


@app.command("migrate")
def _migrate(
    dry_run: output.DryRun = False,
    agents_md: Annotated[
        bool, typer.Option("--agents-md", help="Name the daily log in AGENTS.md, too, where it names the old file.")
    ] = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Move a monolithic .agents.local.md to daily logs, topics and an index; the old file is kept beside it."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        done = consolidating.migrate(workspace, who, dry_run=dry_run, with_agents_md=agents_md)
        rows = [*done.told, *([done.diff] if done.diff else [])]
        if not rows:
            rows = [f"nothing to migrate: the scratchpad holds the directive and {READY} alone"]
        elif dry_run:
            rows.append("nothing was changed: --dry-run")
        else:
            rows.append(f"undo: fleet undo {done.run}")
        found = {"files": list(done.told), "run": done.run, "diff": done.diff, "dry_run": dry_run}
        output.tell(output.cleaned(found), output.cleaned("\n".join(rows)), as_json=as_json)
