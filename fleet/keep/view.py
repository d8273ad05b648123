"""The clan as it is wanted: all of it where it is small, and where it is large what is asked for.

A clan of 100,000 lessons must feel like one of 100, so whoever asks for few of them pays for few. ``glance`` gives what
``Workspace.load`` gives, a notebook and findings, of which in a large clan nothing is in memory yet (``glimpse``).

The index serves only what is plain (``sources.is_plain``): as long as a line is refused, held back or carried, and
wherever the index cannot be used, all of it is loaded. So it is where the index is missing or far behind: to make it
takes ten times as long as to load. Whoever can wait makes it (``Workspace.waits``): a sync, a search, and what runs in
the background.
"""

import heapq
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fleet.keep import limits, merging
from fleet.keep import notebook as notes
from fleet.keep.discoveries import Findings
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, Order, is_listed
from fleet.keep.reading import DISCOVERIES, KINDS
from fleet.keep.store import Held, without_cyclic_collection
from fleet.keep.workspace import Kept, Links, Workspace

if TYPE_CHECKING:  # a small clan needs no database, and its commands no milliseconds for one
    from fleet.keep.glimpse import View
    from fleet.keep.index import Index


def glance(workspace: Workspace, *, for_one: bool = False) -> Held:
    """Return what ``workspace.load`` returns, read when it is asked for wherever that is quicker.

    Who wants no more than one lesson, and those near it, says so: a few lines that the index lacks are read then and
    left to the next one (``appended``).
    """
    return _kept(workspace) or _glimpsed(workspace, for_one=for_one) or _loaded(workspace)


def findings(workspace: Workspace) -> Findings:
    """Return the discoveries that are here; where the index does not serve, no pattern is read for them."""
    held = _kept(workspace) or _glimpsed(workspace)
    return (held or workspace.load((DISCOVERIES,))).findings


def _kept(workspace: Workspace) -> Held | None:
    kept = workspace.kept
    if (
        kept is not None
        and kept.cut <= workspace.timekeeper.reading().cut
        and kept.signature == workspace.looks.signature()
    ):
        return kept.held
    return None


def _glimpsed(workspace: Workspace, *, for_one: bool = False) -> Held | None:
    view = opened(workspace, for_one=for_one)
    if view is None:
        return None
    from fleet.keep.glimpse import Glimpse, GlimpsedFindings

    cut = workspace.timekeeper.reading().cut
    return Held(
        Glimpse(cut, view, lambda: workspace.load().notebook),
        GlimpsedFindings(cut, view, lambda: workspace.load().findings),
    )


def _loaded(workspace: Workspace) -> Held:
    """Load all of it; of a large clan once for as long as no file changes, since a command glances more than once."""
    loaded, cut = workspace.loaded, workspace.timekeeper.reading().cut
    before = workspace.looks.signature()
    if loaded is not None and loaded.cut <= cut and loaded.signature == before:
        return loaded.held
    workspace.loaded = None
    held = workspace.load()
    if not is_small(workspace) and _is_plain(held) and workspace.looks.signature() == before:
        workspace.loaded = Kept(before, held.notebook.cut, held)
    return held


def _is_plain(held: Held) -> bool:
    """Tell whether all that was read joined: what is held may do so at any later time."""
    return not (held.notebook.held or held.read.count or held.read.markers or held.findings.held())


def remember(
    workspace: Workspace, held: Held, links: Links | None = None, *, wrote: tuple[str, os.stat_result] | None = None
) -> None:
    """Keep what was read and has been written since, for the next one to glance. The caller holds the write lock.

    Only what is plain: a held part may join at any later time.

    Args:
        workspace: where.
        held: what was read.
        links: what was worked out from it.
        wrote: the one file that we have written to since ``held`` was looked up, and what it was like then; None if
            there may be more.
    """
    kept, workspace.kept = workspace.kept, None
    if not _is_plain(held):
        return
    if wrote is not None and kept is not None and kept.held is held:
        signature = workspace.looks.again(kept.signature, *wrote)
    else:
        signature = workspace.looks.signature()
    workspace.kept = Kept(signature, held.notebook.cut, held, links)


def links(workspace: Workspace, held: Held) -> Links | None:
    """Return what was worked out from all records of a notebook that is in memory as a whole; None for any other.

    Looked up for as long as nothing was read anew. An index answers that quickly by itself.
    """
    if held.notebook.index is not None:
        return None
    kept = workspace.kept
    if kept is not None and kept.held is held and kept.links is not None:
        return kept.links
    notebook = held.notebook
    return Links(notebook.pointing(), tuple(notebook.edited()))


def opened(workspace: Workspace, *, for_one: bool = False) -> "View | None":
    """Bring the index up to date and return a view of it; None where the files must be read as a whole.

    ``for_one``: as for ``glance``; the view has what the index lacks then.

    Which records are other ones than before is added to ``workspace.changed``.
    """
    if is_small(workspace) or workspace.timekeeper.reading().wrong:
        return None
    from fleet.keep import appended
    from fleet.keep.asking import FarBehindError, asked, discard
    from fleet.keep.damage import UNUSABLE
    from fleet.keep.glimpse import View
    from fleet.keep.sources import Sources, is_plain

    sources = Sources(workspace.root, workspace.store, workspace.timekeeper.reading().cut, None)

    def seen(index: "Index", lines: Sequence[Line] = ()) -> View | None:
        if not is_plain(index):
            return None
        return View(index, sources, lines, lambda why: discard(workspace, index, why))

    def seen_as_it_is(index: "Index") -> View | None:
        lines = appended.since(index, sources)
        return seen(index, lines) if lines is not None else None

    behind_max = None if workspace.waits else limits.START_BYTES_MAX
    try:
        view = asked(workspace, sources, seen, seen_as_it_is if for_one else None, behind_max=behind_max)
    except FarBehindError:
        return None
    except UNUSABLE:
        workspace.state.close()
        return None  # `fleet search` and `fleet doctor` say what is wrong with it
    if view is not None:
        workspace.closing.append(view.close)
    return view


def is_far_behind(workspace: Workspace) -> bool:
    """Tell whether so much would have to be read into the index first that nobody waits for it."""
    return behind(workspace) > limits.START_BYTES_MAX


def behind(workspace: Workspace) -> int:
    """Return how many bytes would have to be read into the index first; 0 where it is not asked, or cannot be."""
    if is_small(workspace) or workspace.timekeeper.reading().wrong:
        return 0
    from fleet.keep import sources
    from fleet.keep.damage import UNUSABLE
    from fleet.keep.index import Index

    made_of = sources.Sources(workspace.root, workspace.store, workspace.timekeeper.reading().cut, None)
    try:
        return sources.behind(Index(workspace.state.connection()), made_of)
    except UNUSABLE:
        workspace.state.close()
        return 0


def is_small(workspace: Workspace) -> bool:
    """Tell whether reading all of it is quicker than to ask the index."""
    store, size = workspace.store, 0
    for path in (path for kind in KINDS for path in store.paths(kind)):
        with suppress(OSError):
            size += (store.clan / path).stat().st_size
    return size < limits.VIEW_BYTES_MIN


CHANGED_MANY = 5_000
"""So many lessons are read as a whole faster than they are asked for one by one."""


def promising(workspace: Workspace, notebook: Notebook, count: int) -> tuple[list[Line], bool]:
    """Return the lessons that may have come by evidence: of a small clan all, and whether these are all there are.

    Of a large one the ``count`` best-evidenced, and those whose record changed while this process looked on.
    """
    found = notebook.best("evidence", count) if len(workspace.changed) < CHANGED_MANY else None
    if found is None:
        return list(merging.shown(notebook)), True
    lessons = {line.id: line for line in found[0]}
    groups = {member: group for group in merging.groups(notebook.pointing()) for member in group}
    for changed in sorted(each for each in workspace.changed if each.startswith("p-")):
        members = [line for each in groups.get(changed, [changed]) if (line := notebook.get(each)) is not None]
        if members and is_listed(whole := merging.united_of(members), "evidence"):
            lessons[whole.id] = whole
    return list(lessons.values()), False


def best(notebook: Notebook, order: Order, count: int) -> tuple[list[Line], int]:
    """Return records among which the best ``count`` lessons are, merged ones as one, and how many lessons there are.

    How to rank them is the caller's affair.
    """
    found = notebook.best(order, count)
    if found is not None:
        return found
    groups = merging.groups(notebook.pointing())
    grouped = {member for group in groups for member in group}
    with without_cyclic_collection():
        if not count and order == "sight":  # how many there are is told by less than half of a record
            ranks, total = [], sum(each not in grouped for each, _ in merging.texts(notebook))
        else:
            ranks = [
                _rank(line, order)
                for line in notebook.patterns.passing()
                if is_listed(line, order) and line.id not in grouped
            ]
            total = len(ranks)
    lines = [notebook.patterns[rank[-1]] for rank in heapq.nsmallest(count, ranks)]
    for group in groups:
        members = [notebook.patterns[member] for member in group if member in notebook.patterns]
        if members and is_listed(united := merging.united_of(members), order):
            lines.append(united)
            total += 1
    return lines, total


def _rank(line: Line, order: Order) -> tuple[bool, int, int, int, str]:
    """Rank as the index does: published first, then by what the order goes by, then by id."""
    seen, is_unpublished = notes.count(line, "seen"), line.set.get("state") != "published"
    if order == "sight":
        return is_unpublished, -seen, 0, 0, line.id
    return is_unpublished, -notes.witnesses(line), -notes.count(line, "sessions"), -seen, line.id
