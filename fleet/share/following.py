"""The clan's files as they grow: which lines are new since somebody last asked.

A file that was appended to is read on from where the last reading ended; one that was replaced, or of which the end
that was read is not there any more, is read anew. Whoever joins lines does not mind one that comes twice.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from fleet.keep.reading import KINDS, Entry, Kind, Read, entries
from fleet.keep.store import Store

_TAIL_BYTES = 256
_READ_BYTES = 128 * 1024
"""In smaller pieces than a command reads: who runs for months must not keep what one moment took."""


class _Seen(NamedTuple):
    """How far a file was read: its inode, so many bytes, and the last of them."""

    inode: int
    end: int
    tail: bytes


class Follower:
    """Reads on in the files that people see.

    Args:
        store: of one clan.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, _Seen] = {}

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._seen.clear()

    def news(self) -> Iterator[tuple[Kind, bytes, Entry]]:
        """Yield (kind, line, entry) of each good line that may be new. What is refused, every load reports."""
        paths = [(kind, path) for kind in KINDS for path in self._store.paths(kind)]
        for gone in self._seen.keys() - {path for _, path in paths}:
            del self._seen[gone]
        for kind, path in paths:
            for raw, entry in entries(kind, self._chunks(path), path, Read()):
                yield kind, raw, entry

    def _chunks(self, path: str) -> Iterator[bytes]:
        """Yield what was added to a file since the last time; a last line without an end comes again the next time."""
        try:
            with (self._store.clan / path).open("rb") as file:
                at = self._resumed(path, file)
                file.seek(at)
                end = at
                while chunk := file.read(_READ_BYTES):
                    if b"\n" in chunk:
                        end = at + chunk.rindex(b"\n") + 1
                    at += len(chunk)
                    yield chunk
                file.seek(max(end - _TAIL_BYTES, 0))
                tail = file.read(end - file.tell())
                self._seen[path] = _Seen(os.fstat(file.fileno()).st_ino, end, tail)
        except (FileNotFoundError, NotADirectoryError):
            self._seen.pop(path, None)

    def _resumed(self, path: str, file: BinaryIO) -> int:
        """Return where to go on: behind what was read, if that is still there."""
        seen, now = self._seen.get(path), os.fstat(file.fileno())
        if seen is None or seen.inode != now.st_ino or now.st_size < seen.end:
            return 0
        file.seek(seen.end - len(seen.tail))
        return seen.end if file.read(len(seen.tail)) == seen.tail else 0
