"""``fleet help``: the commands, the help of one, the pages of the documentation; and the text of ``--version``."""

import difflib
import json
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from fleet import __version__
from fleet.cli import output
from fleet.cli.commands import ALL, GROUPS, MODULES, TRAITS
from fleet.cli.commands import app as commands
from fleet.cli.output import argument
from fleet.model.errors import UsageError
from fleet.store import git

app = output.commands()

_INDEX = "README"
_PAGES_SHOWN = 3
_DISTRIBUTION = "fleet-learnings"


@app.command("help")
def _help(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        argument(
            "[COMMAND|TOPIC|all]",
            "A command, a group of them, a page of the documentation, or all commands.",
            lambda: ["all", *MODULES, *GROUPS, *topics()],
        ),
    ] = None,
) -> None:
    """Show the commands, the help of one, or a page of the documentation."""
    words = [word.lower() for word in words or ()]
    topic, root = " ".join(words), ctx.find_root()
    if topic in ("", "all") or (topic in GROUPS and topic not in MODULES):
        root.meta[ALL] = topic
        output.chosen.put(root.get_help())
        if topic == "all":
            output.echo(f"\nTopics (`fleet help TOPIC`): {', '.join(topics())}")
        return
    if words[0] in MODULES:
        if topic not in TRAITS:
            raise UsageError(f"`fleet {words[0]}` has no command {' '.join(words[1:])[:40]!r}")
        commands([*words, "--help"], prog_name="fleet", standalone_mode=False)
        if page := next((each for each in (topic, f"{topic}s") if each in topics()), ""):
            output.echo(f"\nThe page about it: fleet help {page}.md")
        return
    name = topic.removesuffix(".md")
    if name not in topics():
        raise UsageError(f"there is no command and no topic {topic[:40]!r}. {_nearest(name)}")
    page = (_docs() / f"{name}.md").read_text("utf-8")
    for row in page.rstrip().splitlines():
        output.echo_row((row, "bold" if row.startswith("#") else ""), is_own=True)


def _nearest(name: str) -> str:
    """Return a suggestion for an unknown name: the names that are spelt alike, else the pages that speak of it."""
    names = dict.fromkeys(["all", *MODULES, *GROUPS, *topics()])
    if close := difflib.get_close_matches(name, names, n=3, cutoff=0.75):
        return f"Did you mean {' or '.join(close)}?"
    number = {topic: (_docs() / f"{topic}.md").read_text("utf-8").lower().count(name) for topic in topics()}
    if most := sorted(filter(number.get, number), key=lambda topic: -number[topic])[:_PAGES_SHOWN]:
        return f"These pages speak of it: {', '.join(f'`fleet help {topic}.md`' for topic in most)}"
    return "`fleet help all` lists the commands and the topics."


def topics() -> list[str]:
    """Return the names of the pages of the documentation."""
    return sorted(each.stem for each in _docs().glob("*.md") if each.stem != _INDEX)


def _docs() -> Path:
    """Return the folder of the documentation: in the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parents[1] / "docs"
    return inside if inside.is_dir() else inside.parents[1] / "docs"


def version() -> str:
    """Return the version, the commit where one is known, and the Python that runs it, in one line."""
    return f"fleet {__version__} ({', '.join(filter(None, [_commit(), f'Python {platform.python_version()}']))})"


def _commit() -> str:
    """Return the commit: of the checkout that this runs from, else as the installer noted it; "" for a wheel."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and (root / "pyproject.toml").exists():
        commit = git.output(root, "rev-parse", "--short=12", "HEAD")
        return f"commit {commit}" if commit else ""
    with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        origin = json.loads(metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
        return f"commit {origin['vcs_info']['commit_id'][:12]}"
    return ""
