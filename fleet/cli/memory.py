"""An agent's memory: what a session starts with, what a person decides about ``memory.md``, and whether it helps."""

import shutil
import sys
from typing import Annotated

import typer

from fleet.app import reflecting, starting
from fleet.cli import output
from fleet.reflect.stats import as_found, render
from fleet.text.screening import readable

WIDTH_MAX = 120
WIDTH_PIPED = 100

app = output.commands()


@app.command("start")
def _start(
    as_json: output.Json = False,
    agent: output.Agent = "",
    session: output.Session = "",
    directory: output.Directory = "",
) -> None:
    """Print what an agent reads when its session starts."""
    with output.opened(directory) as workspace:
        who = output.agent_in(workspace, agent)
        context = starting.start(workspace, who, session=output.session_named(session))
        output.tell({"context": context}, context, as_json=as_json)


@app.command("promote")
def _promote(
    pattern: output.PatternId,
    instead_of: Annotated[
        list[str] | None,
        typer.Option("--instead-of", metavar="ID", help="A lesson that leaves the memory for it; may be repeated."),
    ] = None,
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Take a lesson into an agent's memory, which it reads at the start of every session."""
    with output.opened(directory) as workspace:
        who = output.agent_in(workspace, agent)
        done = reflecting.promote(workspace, who, pattern, instead_of=instead_of or [])
        if as_json:
            told = {"id": done.id, "promoted": True, "reason": done.reason, "evidence": done.evidence}
            memory = output.cleaned(reflecting.as_found(done.memory))
            output.say_json(told | {"instead_of": list(done.left), "memory": memory})
            return
        output.say(f"{done.id} is in {who}'s memory: {output.cleaned(done.text)}")
        if done.left:
            output.say(f"instead of {', '.join(done.left)}")
        output.say(f"`fleet demote {done.id}` takes it out again")


@app.command("demote")
def _demote(
    pattern: output.PatternId,
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Take a lesson out of an agent's memory. It does not come back by itself; `fleet promote` brings it back."""
    with output.opened(directory) as workspace:
        who = output.agent_in(workspace, agent)
        done = reflecting.demote(workspace, who, pattern)
        if as_json:
            memory = output.cleaned(reflecting.as_found(done.memory))
            output.say_json({"id": done.id, "demoted": True, "memory": memory})
        else:
            output.say(f"{done.id} is out of {who}'s memory, and stays out\n`fleet promote {done.id}` brings it back")


@app.command("stats")
def _stats(as_json: output.Json = False, directory: output.Directory = "") -> None:
    """Show whether the fleet learns: corrections per week, relapses, lessons that do not work."""
    with output.opened(directory) as workspace:
        found = reflecting.stats(workspace)
        if as_json:
            output.say_json(output.cleaned(as_found(found)))
        else:
            output.say(render(found, _width(), readable))


def _width() -> int:
    """Return the terminal's width; into a pipe the same everywhere."""
    return min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stdout.isatty() else WIDTH_PIPED
