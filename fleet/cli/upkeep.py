"""What whoever keeps the clan types: make a workspace, sync it, see how it stands."""

import os
import sys
from typing import Annotated

import typer

from fleet.cli import desk, options, syncing

EXIT_REFUSED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(init)
    app.command()(sync)
    app.command()(status)


def init(
    agent: options.Agent = "",
    remote: Annotated[str, typer.Option("--remote", metavar="URL", help="The clan's git remote.")] = "",
    branch: Annotated[str, typer.Option("--branch", help="Its branch; 'fleet' unless told otherwise.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")] = False,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="For a short-lived job: reads, or writes as FLEET_REPLICA.")
    ] = False,
    directory: options.Directory = "",
) -> None:
    """Make a workspace here, or join the one that is here. Doing it twice changes nothing."""
    from fleet.cli import setup

    named = agent or desk.chosen.agent or os.environ.get("FLEET_AGENT", "")
    setup.check_agent(named)
    root = setup.root_for(directory)
    workspace, done = setup.make(root, named, remote, branch, ephemeral=ephemeral)
    done += [f".gitignore: {line}" for line in setup.ignore(workspace.disk, root, setup.LOCAL_IGNORES)]
    question = f"Keep {' and '.join(setup.OWN_IGNORES)} out of this folder's own git commits?"
    known = {line.strip("/") for line in setup.ignored(root)}
    is_new = any(line.strip("/") not in known for line in setup.OWN_IGNORES)
    # Without a terminal the careful answer holds: `git add .` publishes nothing that nobody asked for.
    if is_new and (yes or not sys.stdin.isatty() or typer.confirm(question, default=True)):
        done += [f".gitignore: {line}" for line in setup.ignore(workspace.disk, root, setup.OWN_IGNORES)]
    for line in done:
        desk.say(line)
    if not remote and not workspace.config.share.remote:
        desk.say("no remote is named: fleet works offline until `fleet init --remote URL`, or an origin is confirmed")
    for warning in workspace.warnings:
        desk.note(f"warning: {warning}")
    workspace.close()


def sync(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every outgoing line; send nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Confirm a remote that was guessed.")] = False,
    agent: options.Agent = "",
    directory: options.Directory = "",
) -> None:
    """Pull, join, push and render. Afterwards this machine and the clan have the same lessons."""
    syncing.sync(dry_run=dry_run, yes=yes, agent=agent, directory=directory)


def status(as_json: options.Json = False, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Tell how this workspace stands. What waits to go out, what was quarantined and why, who is in the clan."""
    from fleet.cli.standing import as_text, standing

    with desk.opened(directory) as workspace:
        named = agent or desk.chosen.agent or os.environ.get("FLEET_AGENT", "")
        found = standing(workspace, named or workspace.replicas().default_agent)
        if as_json:
            desk.say_json(found)
        else:
            desk.say(as_text(found))
