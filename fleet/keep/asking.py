"""The search index is asked: brought up to date before, and made anew where it is damaged."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fleet.keep.index import Index, is_damage
from fleet.keep.sources import Sources, is_current
from fleet.keep.workspace import Workspace

T = TypeVar("T")


def asked(
    workspace: Workspace,
    sources: Sources,
    ask: Callable[[Index], T],
    as_it_is: Callable[[Index], T | None] | None = None,
) -> T:
    """Bring the index up to date and ask it; one that is damaged is made anew first.

    Which records are other ones than before is added to ``workspace.changed``.

    Args:
        workspace: where.
        sources: what the index is made of.
        ask: asked of an index that is up to date.
        as_it_is: asked first, of one that may not be; unless it returns None, that is the answer.

    Raises:
        sqlite3.Error: it cannot be used, or not now.
        FleetError: the database cannot, or somebody else is busy with it.
    """
    lock = lock_file(workspace)
    for is_last in (False, True):
        index = Index(workspace.state.connection())
        generation = ""
        try:
            generation = index.generation()
            if generation and as_it_is is not None and (found := as_it_is(index)) is not None:
                return found
            if not generation or not is_current(index, sources):
                from fleet.keep.indexing import refresh

                with workspace.disk.lock(lock):
                    workspace.changed |= refresh(index, sources)
                    generation = index.generation()
            return ask(index)
        except (sqlite3.Error, UnicodeDecodeError) as why:
            if is_last or not is_damage(why):
                raise
        with workspace.disk.lock(lock):
            if _generation(index) == generation:  # else somebody else has mended it meanwhile
                index.drop()
    raise AssertionError("the second time returns or raises")


def lock_file(workspace: Workspace) -> Path:
    """Return what is locked while the index is brought up to date."""
    return workspace.local / "locks" / "search.lock"


def _generation(index: Index) -> str:
    try:
        return index.generation()
    except (sqlite3.Error, UnicodeDecodeError):
        return ""
