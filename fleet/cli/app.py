"""The commands, grouped by who types them. Every module of ours that a command needs is imported by the command."""

from typing import Annotated

import typer

from fleet.cli import (
    agents,
    care,
    completion,
    edit,
    hosts,
    journal,
    learn,
    leaving,
    live,
    merge,
    options,
    people,
    reflect,
    search,
    serve,
    stats,
    upkeep,
)
from fleet.cli.desk import chosen

app = typer.Typer(
    name="fleet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Every correction one agent gets becomes knowledge for all of them.",
    epilog="Exit codes: 0 ok, 1 no, 2 usage, 3 refused or quarantined, 4 busy, 5 remote unavailable, 6 other error.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fleet import __version__

        print(f"fleet {__version__}")
        raise typer.Exit


@app.callback()
def before(
    directory: options.Directory = "",
    agent: options.Agent = "",
    session: options.Session = "",
    version: Annotated[  # noqa: ARG001 - read by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Every correction one agent gets becomes knowledge for all of them."""
    chosen.directory, chosen.agent, chosen.session = directory, agent, session


GROUPS = (
    agents,
    learn,
    journal,
    people,
    search,
    stats,
    edit,
    merge,
    reflect,
    upkeep,
    care,
    leaving,
    hosts,
    serve,
    live,
    completion,
)

for commands in GROUPS:
    commands.register(app)
