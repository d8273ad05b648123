"""Shell completion: a script that asks ``fleet`` itself. Printed, never installed: a shell's files are a person's."""

from typing import Annotated

import typer

from fleet.cli import desk

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FLEET_COMPLETE"
"""The script sets it when it asks; ``main`` then loads typer's completion, which costs other commands nothing."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(completion)


def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a completion script. In bash: `source <(fleet completion bash)`, best in ~/.bashrc."""
    from typer._completion_shared import get_completion_script

    from fleet.keep.errors import UsageError

    if shell not in SHELLS:
        raise UsageError(f"there is a script for {', '.join(SHELLS)}, not for {shell[:40]!r}")
    desk.say(get_completion_script(prog_name="fleet", complete_var=VARIABLE, shell=shell))
