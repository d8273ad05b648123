"""The clan's files on this machine: editions and shards, and what the remote was last seen to hold.

``clan-learnings/`` is what people and agents read; ``.fleet/base/`` holds the same paths as last fetched. The two
together tell which lines are still to be sent: those here that the fetched tree does not cover.
"""

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fleet.keep import limits, names, reading
from fleet.keep.bulk import Bulk
from fleet.keep.discoveries import Findings
from fleet.keep.disk import Disk
from fleet.keep.notebook import Notebook
from fleet.keep.reading import KINDS, PATTERNS, Entry, Join, Kind, Read
from fleet.keep.regions import Regions
from fleet.keep.trusted import Trusted, signature


class Held(msgspec.Struct):
    """Everything that one folder's files join to.

    Attributes:
        notebook: the patterns.
        findings: the discoveries.
        read: refused lines and conflict markers met on the way.
    """

    notebook: Notebook
    findings: Findings
    read: Read = msgspec.field(default_factory=Read)

    def of(self, kind: Kind) -> Join:
        """Return what the lines of a kind were joined into."""
        return self.notebook if kind is PATTERNS else self.findings


class Store:
    """Reads and writes the files of one clan. The caller holds the workspace's lock for writes.

    Args:
        disk: all writes go through it.
        clan: the folder that people read.
        base: the folder that mirrors the fetched tree.
    """

    def __init__(self, disk: Disk, clan: Path, base: Path) -> None:
        self.disk = disk
        self.clan = clan
        self.base = base
        self._shards: dict[str, Path] = {}
        self._trusted = Trusted(disk, base.parent / "trusted.json")
        self._regions = Regions(disk, base.parent / "regions.json", clan, base)

    def load(
        self, cut: str, folder: Path | None = None, *, joined_only: bool = False, kinds: Iterable[Kind] = KINDS
    ) -> Held:
        """Join all lines of a folder, ``clan`` unless told otherwise, or those of its editions, or of some kinds."""
        held = Held(Notebook(cut), Findings(cut))
        many = Bulk(held.notebook, held.read)
        with without_cyclic_collection():
            for kind in kinds:
                for path in self.paths(kind, folder):
                    if path == kind.edition or not joined_only:
                        self._load_file(kind, path, held, many, folder)
        return held

    def _load_file(self, kind: Kind, path: str, held: Held, many: Bulk, folder: Path | None) -> None:
        """Join the lines of one file. A large edition that was checked before is not decoded until asked for."""
        file = (self.clan if folder is None else folder) / path
        is_large = kind is PATTERNS and _size(file) >= limits.BULK_BYTES_MIN
        may_trust = path == PATTERNS.edition and not held.notebook.patterns and _size(file) >= limits.TRUST_BYTES_MIN
        if may_trust and self._trusted.put_raw(file, held.notebook):
            return
        untidy, refused = held.read.untidy, held.read.count
        before = signature(file) if may_trust else None
        if is_large:
            count = many.load(reading.chunks_of(file), path, _size(file))
        else:
            count = _add_all(held.of(kind), self.entries(kind, path, held.read, folder))
        is_plain = (held.read.untidy, held.read.count) == (untidy, refused) and not held.notebook.held
        if may_trust and is_plain and count == len(held.notebook.patterns) and before == signature(file):
            self._trusted.note(file, held.notebook)

    def paths(self, kind: Kind, folder: Path | None = None) -> list[str]:
        """Return the paths of a kind's files below a folder: the edition, then the shards in order."""
        root = os.fspath(self.clan if folder is None else folder)
        found = [kind.edition] if os.path.isfile(f"{root}{os.sep}{kind.edition}") else []  # noqa: PTH113 - so often asked
        return found + [path for path, _ in shards(kind.name, f"{root}{os.sep}{kind.name}.d")]

    def signature(self) -> list[tuple[str, int, int, int]]:
        """Return what changes when any file of the clan is written: path, inode, size and time of each."""
        found = []
        for path in (path for kind in KINDS for path in self.paths(kind)):
            try:
                seen = (self.clan / path).stat()
            except FileNotFoundError:
                continue
            found.append((path, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        return found

    def entries(self, kind: Kind, path: str, read: Read, folder: Path | None = None) -> Iterator[tuple[bytes, Entry]]:
        """Yield (raw line, entry) of one file."""
        root = self.clan if folder is None else folder
        return reading.entries(kind, reading.chunks_of(root / path), path, read)

    def append(
        self, kind: Kind, replica: str, lines: Iterable[Any], *, is_durable: bool = True
    ) -> os.stat_result | None:
        """Add lines to a replica's shard and return once they are on the disk, or, not ``is_durable``, written.

        Returns what the shard was like then; None when there were no lines.
        """
        data = b"".join([kind.encode(line) + b"\n" for line in lines])
        return self.append_encoded(kind, replica, data, is_durable=is_durable) if data else None

    def append_encoded(self, kind: Kind, replica: str, data: bytes, *, is_durable: bool = True) -> os.stat_result:
        """Add lines that are bytes already, as ``append`` does."""
        path = kind.shard(replica)
        if path not in self._shards:
            self._shards[path] = self.clan / path
        return self.disk.append(self._shards[path], data, is_durable=is_durable)

    def read(self, path: str) -> bytes:
        """Return a file's bytes as people see it."""
        return self.disk.read(self.clan / path)

    def unsent(self, path: str) -> list[bytes]:
        """Return the distinct lines that people see in a file and that the fetched one lacks, in order.

        A line that is too long to be one is passed over, and never in memory as a whole.
        """
        file = self.clan / path
        if _size(file) == 0:
            return []
        start = self._regions.fetched(path)
        known: set[bytes] = set()
        if start is None or not self._ends_a_line(path, start):
            start, known = 0, set(raw_lines(self.read_base(path)))
        found: dict[bytes, None] = {}
        for block in reading.blocks(reading.chunks_of(file, start)):
            if isinstance(block, bytes):
                found.update((raw, None) for raw in block.split(b"\n") if raw and raw not in known)
        return list(found)

    def fetched(self) -> dict[str, int] | None:
        """Return how much of each file, by path, is what was fetched; None when that is not each one's beginning."""
        found: dict[str, int] = {}
        for kind in KINDS:
            for path in self.paths(kind, self.base):
                size = self._regions.fetched(path)
                if size is None or not self._ends_a_line(path, size):
                    return None
                found[path] = size
        return found

    def _ends_a_line(self, path: str, size: int) -> bool:
        """Whether what follows the first so many bytes begins a line of its own."""
        if size in (0, _size(self.clan / path)):
            return True
        with (self.clan / path).open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def base_signature(self, path: str) -> list[int]:
        """Return what changes when a fetched file is written: its size, time and inode; nothing for none."""
        return signature(self.base / path) if (self.base / path).is_file() else []

    def read_base(self, path: str) -> bytes:
        """Return a file's bytes as last fetched."""
        return self.disk.read(self.base / path)

    def write(self, path: str, data: bytes) -> bool:
        """Replace a file that people see; an empty shard goes away."""
        return self._put(self.clan / path, data)

    def write_base(self, path: str, data: bytes) -> bool:
        """Note what the remote holds under a path."""
        return self._put(self.base / path, data)

    def _put(self, path: Path, data: bytes) -> bool:
        if data:
            return self.disk.replace(path, data)
        if path.exists():
            self.disk.remove(path)
            return True
        return False


def shards(name: str, folder: str) -> list[tuple[str, str]]:
    """Return path and file of each shard of a kind, in order."""
    try:
        if os.path.islink(folder):  # noqa: PTH114 - asked for with each correction
            return []
        with os.scandir(folder) as entries:
            return sorted(
                (f"{name}.d/{entry.name}", entry.path)
                for entry in entries
                if entry.name.endswith(".jsonl")
                and names.is_replica(entry.name[: -len(".jsonl")])
                and entry.is_file(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _add_all(join: Join, entries: Iterable[tuple[bytes, Entry]]) -> int:
    count = 0
    for _, entry in entries:
        join.add(entry)
        count += 1
    return count


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def without_cyclic_collection() -> Iterator[None]:
    """Run a block that makes a great many objects and no cycles: looking for cycles would take most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def raw_lines(data: bytes) -> list[bytes]:
    """Return the distinct lines of a file, in order, without line ends."""
    found = dict.fromkeys(line.removesuffix(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    found.pop(b"", None)
    return list(found)
