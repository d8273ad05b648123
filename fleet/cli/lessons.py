"""What people type about lessons: read them, change them, say what they did."""

import heapq
import sys
from typing import Annotated, Any

import typer

from fleet.app import learning, starting
from fleet.app.learning import Shown
from fleet.cli import output
from fleet.model.errors import UsageError
from fleet.model.pattern import Pattern

ON_A_TERMINAL = 100
"""So many lessons a person is shown who asked for no number of them; into a pipe all of them go."""

app = output.commands()


@app.command()
def gossip(
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 20,
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Show the newest discoveries of the whole clan."""
    with output.opened(directory) as workspace:
        if as_json:
            found = workspace.discoveries.newest(count)
            output.say_json({"discoveries": [output.cleaned(msgspec.to_builtins(each)) for each in found]})
        else:
            output.say(starting.gossip(workspace, count).rstrip())
