"""What a process that goes on has made of a file, good for as long as a look at the file shows no other one.

A look is one ``stat``. A file system's clock ticks every few milliseconds, the worst every two seconds, and two
writes within a tick may look alike: nothing is kept of a file that was written just before it was looked at.
"""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from fleet.keep.reading import KINDS
from fleet.keep.store import Store, shards

SETTLED_NS = 2_500_000_000
"""A file that was written longer ago than this looks other when it is written again: FAT counts in two seconds."""

Made = TypeVar("Made")

Look = tuple[int, int, int, int]
"""Inode, size, time of the content, time of the entry."""


Signed = tuple[str, int, int, int]
"""Path, inode, size and time of the content."""


def look(seen: os.stat_result) -> Look:
    """Return what changes when a file is written, replaced or renamed."""
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def is_settled(seen: os.stat_result) -> bool:
    """Tell whether the next write must give the file another look. A time to come, of whatever clock, settles never."""
    return _is_settled(look(seen))


def _is_settled(seen: Look) -> bool:
    return 0 <= max(seen[2:]) <= time.time_ns() - SETTLED_NS


class Unchanged(Generic[Made]):
    """Something made of one file, made anew when the file is another.

    Args:
        path: of the file.
        make: reads it.
    """

    def __init__(self, path: Path, make: Callable[[], Made]) -> None:
        self._path = os.fspath(path)
        self._make = make
        self._known: tuple[Look, Made] | None = None

    def get(self) -> Made:
        """Return what the file makes now."""
        try:
            seen = os.stat(self._path)  # noqa: PTH116 - asked for with each correction
        except OSError:
            self._known = None
            return self._make()
        now = look(seen)
        if self._known is not None and self._known[0] == now:
            return self._known[1]
        self._known = None
        made = self._make()
        if is_settled(seen):
            self._known = now, made
        return made


class Looks:
    """What ``Store.signature`` returns, without listing folders in which nothing was added or taken away.

    Args:
        store: whose files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clan = clan = os.fspath(store.clan)
        self._folders = [(kind.name, f"{clan}{os.sep}{kind.name}.d") for kind in KINDS]
        self._editions = {kind.name: (kind.edition, f"{clan}{os.sep}{kind.edition}") for kind in KINDS}
        self._listed: tuple[list[tuple[str, Look]], list[tuple[str, str]]] | None = None

    def signature(self) -> list[Signed]:
        """Return path, inode, size and time of each of the clan's files."""
        found = []
        for path, file in self._files():
            try:
                seen = os.stat(file)  # noqa: PTH116
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode):
                found.append((path, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        return found

    def _files(self) -> list[tuple[str, str]]:
        """Return path and file of whatever may be one of the clan's, in order; the editions may be missing.

        Folders in which nothing was added, taken away or renamed hold what they held: what was not there is not asked
        for again.
        """
        if self._listed is not None:
            there, kept = self._listed
            if there == [(folder, self._look(folder)) for folder, _ in there]:
                return kept
        before = [(folder, self._look(folder)) for folder in (self._clan, *(folder for _, folder in self._folders))]
        files = []
        for name, folder in self._folders:
            files += [self._editions[name], *shards(name, folder)]
        there = [(folder, seen) for folder, seen in before if seen is not None]
        is_settled_all = before[0] in there and all(_is_settled(seen) for _, seen in there)
        self._listed = (there, [file for file in files if os.path.lexists(file[1])]) if is_settled_all else None
        return files

    def _look(self, folder: str) -> Look | None:
        """Return what a folder looks like; None for none."""
        try:
            seen = os.stat(folder) if folder == self._clan else os.lstat(folder)  # noqa: PTH116
        except OSError:
            return None
        return look(seen)

    def again(self, signature: list[Signed], path: str, seen: os.stat_result) -> list[Signed]:
        """Return a signature in which one file is as it was ``seen``; a file that was not in it costs a look at all."""
        at = next((at for at, signed in enumerate(signature) if signed[0] == path), None)
        if at is None:
            return self.signature()
        return [*signature[:at], (path, seen.st_ino, seen.st_size, seen.st_mtime_ns), *signature[at + 1 :]]
