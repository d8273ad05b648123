"""Completion in a shell: ids, agents, categories, tags, types. Where nothing can be read, nothing is offered."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from sqlite3 import Error

import typer

from fleet.hosts.calls import root_around
from fleet.model import names
from fleet.model.discovery import TYPES
from fleet.model.errors import FleetError
from fleet.store.workspace import Workspace
from fleet.text.screening import readable

Offer = tuple[str, str]
"""A word, and what stands beside it in shells that show that."""
Complete = Callable[[typer.Context, str], list[Offer]]

_MAX = 100


def of(ask: Callable[[Workspace, str], Iterable[Offer]]) -> Complete:
    """Return the function that a shell's completion calls; it never fails, and writes nothing."""

    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        named = next((str(each) for each in (ctx.params.get("directory"), os.environ.get("FLEET_DIR")) if each), "")
        root = named or root_around(os.getcwd())  # noqa: PTH109 - as a shell has it
        workspace = Workspace(Path(root)) if root and (Path(root) / "fleet.toml").is_file() else None
        if workspace is None:
            return []
        try:
            return [each for each in ask(workspace, incomplete) if each[0].startswith(incomplete)][:_MAX]
        except (FleetError, OSError, Error):  # who presses a key wants no message in the middle of a line
            return []
        finally:
            workspace.close()

    return complete


def _words(*words: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _lessons(workspace: Workspace, beginning: str) -> Iterable[Offer]:
    if "p-".startswith(beginning):
        return [(each.id, readable(each.text)) for each in workspace.patterns.best("sight", _MAX)]
    found = workspace.patterns.beginning(beginning)[:_MAX]
    return [(each.id, readable(each.text)) for each in workspace.patterns.some(found)]


def _retired(workspace: Workspace, beginning: str) -> Iterable[Offer]:
    found = workspace.patterns.some(workspace.patterns.beginning(beginning if len(beginning) > 2 else "p-"))
    return [(each.id, readable(each.text)) for each in found if not each.is_present]


def _entries(workspace: Workspace) -> Iterable[Offer]:
    return [(each.id, readable(each.problem)) for each in workspace.discoveries.newest(_MAX)[::-1]]


def _any(workspace: Workspace, beginning: str) -> Iterable[Offer]:
    return [*_lessons(workspace, beginning), *_entries(workspace)]


def _writers(workspace: Workspace) -> Iterable[Offer]:
    return [(each, "") for each in sorted({*workspace.agents_here(), *map(names.agent_of, workspace.db.newest_by())})]


def _categories(workspace: Workspace) -> Iterable[Offer]:
    return [(each, "") for each in sorted({each.category for each in workspace.patterns.best("sight", 1_000)} - {""})]


def _tags(workspace: Workspace) -> Iterable[Offer]:
    used = {tag for each in workspace.patterns.best("sight", 1_000) for tag in each.tags}
    return [(each, "") for each in sorted(used.union(*(each.tags for each in workspace.discoveries.newest(1_000))))]


lessons = of(_lessons)
retired = of(_retired)
entries = of(_any)
agents = of(lambda workspace, _: _writers(workspace))
categories = of(lambda workspace, _: _categories(workspace))
tags = of(lambda workspace, _: _tags(workspace))
types = _words(*TYPES)
hosts = _words("claude-code")
shells = _words("bash", "zsh", "fish")
