"""The world that a simulation holds: disks that tear, ways to the server that are slow, machines, and the ledger."""

import functools
import gc
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet.keep import limits
from fleet.keep.disk import Disk
from fleet.keep.line import Line
from fleet.keep.store import raw_lines
from fleet.share.memory import MemoryRemote, MemoryServer
from fleet.share.remote import Files, Mark, Moved
from tests.sim.people import held_in

START_MS = 1_795_219_200_000  # 2026-11-21
_LARGE = [name for name in ("VIEW_BYTES_MIN", "TRUST_BYTES_MIN", "REGION_BYTES_MIN") if hasattr(limits, name)]
_parsed = functools.lru_cache(maxsize=1_024)(tomllib.loads)


@contextmanager
def large_from(size: int) -> Iterator[None]:
    """Call a clan large from a size on: then the index is asked, and what was checked once is trusted."""
    before = {name: getattr(limits, name) for name in _LARGE}
    for name, normal in before.items():
        setattr(limits, name, min(normal, size))
    try:
        yield
    finally:
        for name, normal in before.items():
            setattr(limits, name, normal)


@contextmanager
def hurried() -> Iterator[None]:
    """Take a seventh of the time away: the same few files are parsed thousands of times, and cycles are few."""
    loads, was_on = tomllib.loads, gc.isenabled()
    tomllib.loads = _parsed
    gc.disable()
    try:
        yield
    finally:
        tomllib.loads = loads
        if was_on:
            gc.enable()


class CrashError(Exception):
    """The machine lost its power: nothing of ours may catch this."""


class SimDisk(Disk):
    """A disk that needs no waiting for, and that can fail in the middle of the n-th write from now."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writes_left = -1
        self.torn_share = 0.0

    def _fsync(self, handle: int) -> None:
        pass

    def _write_all(self, handle: int, data: bytes) -> None:
        if self.writes_left == 0:
            self.writes_left = -1
            os.write(handle, data[: int(len(data) * self.torn_share)])
            raise CrashError
        self.writes_left -= self.writes_left > 0
        super()._write_all(handle, data)


class SimRemote(MemoryRemote):
    """A way to the server on which others may be faster, and on which no push may take anything out of the tree."""

    def __init__(self, server: MemoryServer, meanwhile: Callable[[], None]) -> None:
        super().__init__(server)
        self.meanwhile = meanwhile

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Push; whatever the answer, what arrived must cover what was there."""
        self.meanwhile()
        server = self._server
        head, before = server.head, server.tree()
        try:
            return super().push(files, on, message=message)
        finally:
            if server.head != head:
                assert_covers(server.tree(), before)


def assert_covers(tree: Files, before: Files) -> None:
    """Check that whoever reads only the new tree knows all that the old one said."""
    kept = {raw for data in tree.values() for raw in raw_lines(data)}
    lines = {path: b"\n".join(raw for raw in raw_lines(data) if raw not in kept) for path, data in before.items()}
    if not any(lines.values()):
        return
    now, then = held_in(tree), held_in(lines)
    for join, old in ((now.notebook, then.notebook.patterns), (now.findings, then.findings.entries)):
        gone = [key for key, entry in old.items() if not join.covers(entry)]
        assert not gone, f"a push took out what nothing else says: {gone}"


@dataclass
class Machine:
    """One agent's folder, its clock's error, and whether it is cut off."""

    root: Path
    agent: str
    skew_ms: int = 0
    is_cut_off: bool = False
    snapshot: Path | None = None
    since_snapshot: list[str] = field(default_factory=list)
    known: dict[str, Line] = field(default_factory=dict)


@dataclass
class Ledger:
    """What was acknowledged, and what may have happened before a crash."""

    seen: Counter[str] = field(default_factory=Counter)
    maybe: Counter[str] = field(default_factory=Counter)
    retired: set[str] = field(default_factory=set)
    discoveries: set[str] = field(default_factory=set)
