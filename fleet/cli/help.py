"""``fleet help``: the commands in their groups, the help of one, and the pages of the documentation."""

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import output
from fleet.cli.commands import ALL, GROUPS, MODULES
from fleet.model.errors import UsageError

app = output.commands()

_INDEX = "README"


@app.command("help")
def _help(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND|TOPIC|all]",
            help="A command, a group of them, a page of the documentation, or all commands.",
            autocompletion=lambda: ["all", *MODULES, *GROUPS, *topics()],
        ),
    ] = None,
) -> None:
    """Show the commands, the help of one, or a page of the documentation."""
    asked, above = " ".join(words or ()), ctx.find_root()
    if asked in ("", "all") or (asked in GROUPS and asked not in MODULES):
        above.meta[ALL] = asked
        print(above.get_help())
        if asked == "all":
            output.say(f"\nTopics (`fleet help TOPIC`): {', '.join(topics())}")
        return
    if (words or [""])[0] in MODULES:
        print(_help_of(above, words or []))
        if asked in topics():
            output.say(f"\nThe page about it: fleet help {asked}.md")
        return
    name = asked.removesuffix(".md")
    if name not in topics():
        raise UsageError(f"there is no command and no topic {asked[:40]!r}. {_nearest(name)}")
    page = (_docs() / f"{name}.md").read_text("utf-8")
    for row in page.rstrip().splitlines():
        output.say_row((row, "bold" if row.startswith("#") else ""))


def _nearest(name: str) -> str:
    """Return what to ask for instead: what is spelt alike, else the pages that speak of it."""
    known = dict.fromkeys(["all", *MODULES, *GROUPS, *topics()])
    if close := difflib.get_close_matches(name, known, n=3, cutoff=0.75):
        return f"Did you mean {' or '.join(close)}?"
    word = name.casefold()
    told = {topic: (_docs() / f"{topic}.md").read_text("utf-8").casefold().count(word) for topic in topics()}
    if most := sorted((topic for topic in told if told[topic]), key=lambda topic: -told[topic])[:3]:
        return f"These pages speak of it: {', '.join(f'`fleet help {topic}`' for topic in most)}"
    return "`fleet help all` lists the commands and the topics."


def topics() -> list[str]:
    """Return the names of the pages of the documentation."""
    return sorted(each.stem for each in _docs().glob("*.md") if each.stem != _INDEX)


def _help_of(above: Any, words: list[str]) -> str:
    """Return the help of a command, or of a command of a group, such as ``live serve``."""
    command = above.command
    for at, word in enumerate(words):
        found = command.get_command(above, word) if hasattr(command, "get_command") else None
        if found is None:
            raise UsageError(f"`fleet {' '.join(words[:at])}` has no command {word[:40]!r}")
        command = found
        above = typer.Context(command, info_name=word, parent=above)
    return str(command.get_help(above))


def _docs() -> Path:
    """Return the folder of the documentation: in the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parents[1] / "docs"
    return inside if inside.is_dir() else inside.parents[1] / "docs"
