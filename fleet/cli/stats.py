"""``fleet stats``: does the fleet learn?"""

import shutil
import sys

from fleet.app import reflecting
from fleet.cli import output
from fleet.reflect.stats import as_found, render
from fleet.text.screening import readable

WIDTH_MAX = 120
WIDTH_PIPED = 100

app = output.commands()


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
