"""Options that many commands share."""

from typing import Annotated

import typer

Directory = Annotated[
    str, typer.Option("--dir", metavar="DIR", help="Workspace; else FLEET_DIR, else the nearest fleet.toml upward.")
]
Agent = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="Agent to act as; else FLEET_AGENT, else the stored default.")
]
Session = Annotated[str, typer.Option("--session", metavar="ID", help="The host's session; else FLEET_SESSION.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
PatternId = Annotated[str, typer.Argument(metavar="ID", help="A pattern's id; a unique beginning is enough.")]
