"""What fleet does within a process, each piece of work prepared by a function that returns it."""

import os
import shutil
import tempfile
import time
from itertools import count as counting
from pathlib import Path

from benchmarks.data import FULL_REPLICAS, cached, full_replicas, patterns
from benchmarks.workers import Prepared, UnmeasuredError, Work
from fleet.keep.disk import Disk
from fleet.keep.store import Store


def _folder(cache: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="inside-", dir=cache))


def _store_with(cache: Path, edition: Path) -> Store:
    root = _folder(cache)
    (root / "clan").mkdir()
    shutil.copy(edition, root / "clan" / "patterns.jsonl")
    return Store(Disk(root), root / "clan", root / ".fleet" / "base")


def _workspace(cache: Path, edition: Path | None = None):
    from fleet.keep import config
    from fleet.keep.workspace import Workspace

    root = _folder(cache)
    (root / "fleet.toml").write_text(config.render("", "fleet"))
    if edition is not None:
        (root / "clan-learnings").mkdir()
        shutil.copy(edition, root / "clan-learnings" / "patterns.jsonl")
    return Workspace(root)


def _indexed(cache: Path, count: int):
    """Return a workspace whose search index is up to date, as after a sync."""
    from fleet.keep import view

    workspace = _workspace(cache, cached(count, cache))
    workspace.waits = True
    view.opened(workspace)
    workspace.waits = False
    return workspace


def load_first(cache: Path, count: int) -> Work:
    """Load an edition that nobody has checked yet: every line is decoded, checked and joined."""
    store = _store_with(cache, cached(count, cache))

    def work() -> object:
        (store.base.parent / "trusted.json").unlink(missing_ok=True)
        return store.load("~")

    return work


def load_again(cache: Path, count: int) -> Work:
    """Load an edition that was checked before: a record stays bytes until somebody asks for it."""
    store = _store_with(cache, cached(count, cache))
    store.load("~")
    return lambda: store.load("~")


def join_seven_first(cache: Path, count: int) -> Work:
    """Load seven editions of the same patterns that nobody has checked yet, one as the edition and six as shards."""
    return _join_seven(cache, count, is_first=True)


def join_seven_again(cache: Path, count: int) -> Work:
    """The same where this machine's own edition was checked before, and the six others are new."""
    return _join_seven(cache, count, is_first=False)


def _join_seven(cache: Path, count: int, *, is_first: bool) -> Work:
    paths = full_replicas(count, cache)
    store = _store_with(cache, paths[0])
    (store.clan / "patterns.d").mkdir()
    for name, path in zip(FULL_REPLICAS[1:], paths[1:], strict=True):
        os.link(path, store.clan / "patterns.d" / f"{name}.jsonl")

    def work() -> object:
        if is_first:
            (store.base.parent / "trusted.json").unlink(missing_ok=True)
        held = store.load("~")
        assert len(held.notebook.patterns) == count
        assert held.read.count == 0
        return held

    work()
    return work


def load_for_memory(cache: Path, count: int) -> Work:
    """Load an edition for the first time, in a process that has done nothing else."""
    root = _folder(cache)
    (root / "clan").mkdir()
    os.link(cache / f"edition-{count}.jsonl", root / "clan" / "patterns.jsonl")
    store = Store(Disk(root), root / "clan", root / ".fleet" / "base")

    def work() -> object:
        held = store.load("~")
        assert len(held.notebook.patterns) == count
        return held

    return work


def log_in_process(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Log a correction, as a program does that goes on: until it returns, when it is durable and counted.

    Lessons that are near are looked for when somebody asks for them (``near_lookup``).
    """
    from fleet.keep import unchanged
    from fleet.learn.corrections import Correction, correct

    workspace, numbers = _workspace(cache), counting()

    def work() -> object:
        return correct(workspace, "velma", Correction("w", "r", f"lesson {next(numbers)}"), session="s")

    work()
    time.sleep(1.1 * unchanged.SETTLED_NS / 1e9)  # folders made this moment are listed again each time
    return work


def append_bare(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Append and fsync as many bytes as the entry of one correction has."""
    from fleet.learn.corrections import Correction, correct

    workspace = _workspace(cache)
    correct(workspace, "velma", Correction("w", "r", "lesson 1"), session="s")
    log = workspace.home("velma") / "corrections.md"
    before = log.stat().st_size
    correct(workspace, "velma", Correction("w", "r", "lesson 2"), session="s")
    entry, path = b"x" * (log.stat().st_size - before), log.with_name("bare")

    def work() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, entry)
        os.fsync(handle)
        os.close(handle)

    work()
    return work


def page_after_change(cache: Path, count: int) -> Work:
    """Render ``patterns.md`` and replace it on the disk. Logging the change and loading the clan are not counted."""
    from fleet.cli import wiring
    from fleet.keep import view
    from fleet.keep.workspace import Workspace
    from fleet.learn.corrections import Correction, correct
    from fleet.share.tree import PAGE

    workspace = _indexed(cache, count)
    first = max(patterns(count), key=lambda line: sum(line.n["seen"].values())).id  # it stands in the page

    def change() -> object:
        correct(workspace, "velma", Correction("w", "r", "once more"), session="s", same=first)
        fresh = Workspace(workspace.root)  # as the next process sees it
        return fresh, view.glance(fresh)

    def work(made: tuple) -> None:
        fresh, held = made
        assert fresh.store.write(PAGE, wiring.page(fresh, held.notebook))

    return Prepared(change, work)


def near_lookup(cache: Path, count: int) -> Work:
    """Find the lessons nearest to a new one, as ``fleet correct`` does, the search index being up to date."""
    from fleet.keep import matching, view

    workspace = _indexed(cache, count)
    shown = view.opened(workspace)
    if shown is None:
        raise UnmeasuredError(f"with {count} patterns the index is not asked")
    numbers = counting()

    def work() -> object:
        lesson = f"Validate the input of a deploy script before the rollback {next(numbers)}"
        return matching.near(lesson, matching.indexed(lesson, shown.index))

    work()
    return work
