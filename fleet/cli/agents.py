"""What agents type: log a correction, log a discovery, read at the start of a session."""

from typing import Annotated

import typer

from fleet.cli import acts, desk, options
from fleet.cli.acts import say_logged

__all__ = ["register", "say_logged"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(correct)
    app.command()(discover)
    app.command()(gossip)
    app.command()(start)


def correct(
    wrong: Annotated[str, typer.Option("--wrong", help="What went wrong.")],
    right: Annotated[str, typer.Option("--right", help="The correct approach.")],
    pattern: Annotated[str, typer.Option("--pattern", help="The lesson, so that it helps elsewhere.")],
    title: Annotated[str, typer.Option("--title", help="A heading; else the beginning of --wrong.")] = "",
    source: Annotated[str, typer.Option("--source", help="Who or what told: a person, a build, yourself.")] = "",
    told_by: Annotated[str, typer.Option("--from", metavar="AGENT", help="The agent that corrected you.")] = "",
    same: Annotated[str, typer.Option("--same", metavar="ID", help="Count it as this existing pattern.")] = "",
    category: Annotated[str, typer.Option("--category", help="What it is about: one word or two.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")] = None,
    session: options.Session = "",
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Log one correction: durable before this returns."""
    acts.correct(
        wrong,
        right,
        pattern,
        title=title,
        source=source,
        told_by=told_by,
        same=same,
        category=category,
        tag=tag,
        session=session,
        agent=agent,
        directory=directory,
        as_json=as_json,
    )


def discover(
    problem: Annotated[str, typer.Option("--problem", help="What was found.")],
    solution: Annotated[str, typer.Option("--solution", help="What to do about it.")],
    context: Annotated[str, typer.Option("--context", help="Where it holds.")] = "",
    type_: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="discovery, gotcha, tip or workaround.")
    ] = "discovery",
    confidence: Annotated[str, typer.Option("--confidence", metavar="LEVEL", help="low, medium or high.")] = "medium",
    minutes: Annotated[int | None, typer.Option("--minutes", help="What it cost; a workaround needs over 15.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")] = None,
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Log a non-obvious finding for the whole clan. No routine fixes, no secrets."""
    from fleet.learn.discoveries import Finding
    from fleet.learn.discoveries import discover as log

    with desk.opened(directory) as workspace:
        told = Finding(problem, solution, context, type_, confidence, minutes, tag or [])
        entry, is_new = log(workspace, desk.agent_in(workspace, agent), told)
        if as_json:
            desk.say_json({"id": entry.id, "new": is_new})
        else:
            desk.say(f"{entry.id} {'logged' if is_new else 'is known already'}: {entry.problem}")


def gossip(
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 20,
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Show the newest discoveries of the whole clan."""
    acts.gossip(count, as_json=as_json, directory=directory)


def start(
    as_json: options.Json = False,
    agent: options.Agent = "",
    session: options.Session = "",
    directory: options.Directory = "",
) -> None:
    """Print what an agent reads when its session starts."""
    acts.start(as_json=as_json, agent=agent, session=session, directory=directory)
