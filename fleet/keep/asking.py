"""The search index is asked: brought up to date before, and made anew where it is damaged."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fleet.keep import limits
from fleet.keep.damage import ODD, TROUBLE, is_damage, is_ruin, told
from fleet.keep.index import Index
from fleet.keep.sources import Sources, behind, is_current, seen_files
from fleet.keep.workspace import Workspace

T = TypeVar("T")


class FarBehindError(Exception):
    """More would have to be read into the index first than whoever asks may wait for."""


def asked(
    workspace: Workspace,
    sources: Sources,
    ask: Callable[[Index], T],
    as_it_is: Callable[[Index], T | None] | None = None,
    *,
    behind_max: int | None = None,
) -> T:
    """Bring the index up to date and ask it; one that is damaged is made anew first.

    ``workspace.told`` is told how far it is. Which records are other ones now is added to ``workspace.changed``.

    Args:
        workspace: where.
        sources: what the index is made of.
        ask: asked of an index that is up to date.
        as_it_is: asked first, of one that may not be; unless it returns None, that is the answer.
        behind_max: bytes. With more to be read, and where somebody else is reading, nobody waits.

    Raises:
        FarBehindError: it is not up to date, and would not be soon.
        TROUBLE: it cannot be used, or not now.
        FleetError: the database cannot, or somebody else is busy with it.
    """
    wait_s = limits.LOCK_WAIT_S if behind_max is None else limits.INDEX_WAIT_S
    for attempt in range(3):
        index = Index(workspace.state.connection())
        generation = ""
        try:
            generation = index.generation()
            if generation and as_it_is is not None and (found := as_it_is(index)) is not None:
                return found
            if not generation or not is_current(index, sources):
                if behind_max is not None and behind(index, sources) > behind_max:
                    raise FarBehindError
                with workspace.disk.lock(lock_file(workspace), wait_s):
                    workspace.changed |= _brought(workspace, index, sources)
                    generation = index.generation()
            return ask(index)
        except (*TROUBLE, *ODD) as raised:
            why = raised if isinstance(raised, TROUBLE) else _examined(index, raised)
            if not is_damage(why) or attempt == (2 if is_ruin(why) else 1):
                raise
            discard(workspace, index, why, generation, wholly=attempt == 1, wait_s=wait_s)
    raise AssertionError("the last time returns or raises")


def discard(
    workspace: Workspace,
    index: Index,
    why: Exception,
    generation: str | None = None,
    *,
    wholly: bool = False,
    wait_s: float = limits.LOCK_WAIT_S,
) -> None:
    """Drop a damaged index; put the database aside if it cannot be dropped, or was and that did not help.

    Of an index that is only another one than is wanted nobody need hear.

    Args:
        workspace: whose.
        index: the damaged one.
        why: what it raised.
        generation: what it was; nothing is done where it is another one by now, mended by somebody else.
        wholly: it was dropped before.
        wait_s: how long to wait for somebody else who is at it.
    """
    try:
        with workspace.disk.lock(lock_file(workspace), wait_s):
            if generation is not None and _generation(index) != generation:
                return
            if not wholly:
                index.drop()
    except TROUBLE as worse:
        if not is_ruin(worse):
            raise
        wholly = True
    if wholly and is_ruin(why):
        workspace.state.put_aside(why)
    elif is_ruin(why) or isinstance(why, ODD):
        workspace.warn(f"the search index was damaged ({told(why)}); it is made anew from the files, no lesson is lost")


def _examined(index: Index, why: Exception) -> Exception:
    """Return what is wrong with the database if a look at all of it shows that; else what an odd value led to."""
    try:
        said = str(index.connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except TROUBLE as worse:
        return worse if is_damage(worse) else why
    return why if said == "ok" else sqlite3.DatabaseError(said.splitlines()[0])


def _brought(workspace: Workspace, index: Index, sources: Sources) -> set[str]:
    """Bring the index up to date, by making it anew where that is most of it; return what ``refresh`` does."""
    from fleet.keep.indexing import refresh

    due = behind(index, sources)
    if due > limits.BUILD_BYTES_MIN and due > sum(size for size, _, _ in seen_files(sources).values()) // 2:
        from fleet.keep import building

        # No room for it beside the database, or an SQLite that guards its tables: there it grows in its place.
        with suppress(sqlite3.OperationalError):
            return building.build(index, sources, workspace.told)
    return refresh(index, sources, workspace.told)


def lock_file(workspace: Workspace) -> Path:
    """Return what is locked while the index is brought up to date."""
    return workspace.local / "locks" / "search.lock"


def _generation(index: Index) -> str:
    try:
        return index.generation()
    except TROUBLE:
        return ""
