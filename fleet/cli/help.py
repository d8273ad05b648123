"""``fleet help``: the commands, the help of one, the pages of the documentation; and what ``--version`` says."""

import difflib
import json
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet import __version__
from fleet.cli import output
from fleet.cli.commands import ALL, GROUPS, MODULES
from fleet.model.errors import UsageError

app = output.commands()

_INDEX = "README"
_DISTRIBUTION = "fleet-learnings"


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
        output.chosen.put(above.get_help())
        if asked == "all":
            output.say(f"\nTopics (`fleet help TOPIC`): {', '.join(topics())}")
        return
    if (words or [""])[0] in MODULES:
        output.chosen.put(_help_of(above, words or []))
        if page := next((each for each in (asked, f"{asked}s") if each in topics()), ""):
            output.say(f"\nThe page about it: fleet help {page}.md")
        return
    name = asked.removesuffix(".md")
    if name not in topics():
        raise UsageError(f"there is no command and no topic {asked[:40]!r}. {_nearest(name)}")
    page = (_docs() / f"{name}.md").read_text("utf-8")
    for row in page.rstrip().splitlines():
        output.say_row((row, "bold" if row.startswith("#") else ""), is_own=True)


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


def version() -> str:
    """Return the version, the commit where one is known, and the Python that runs it, in one line."""
    return f"fleet {__version__} ({', '.join(filter(None, [_commit(), f'Python {platform.python_version()}']))})"


def _commit() -> str:
    """Return which commit this is: of the checkout that it runs from, else as the installer noted it; "" of a wheel."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and (root / "pyproject.toml").exists():
        with suppress(OSError, subprocess.SubprocessError):
            asked = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
            return f"commit {done.stdout.strip()}"
    with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        noted = json.loads(metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
        return f"commit {noted['vcs_info']['commit_id'][:12]}"
    return ""
