"""Which part of each file here the fetched tree holds: as a rule its beginning, and what was added since follows it.

Comparing 70 MB on every sync would cost more than the sync. So what was compared is remembered, by size, time and inode
of the two files, in ``.fleet/regions.json``; a file that was touched since is compared again. Losing it costs one
comparison.
"""

from pathlib import Path

from fleet.keep import limits
from fleet.keep.disk import Disk
from fleet.keep.errors import DiskError


class Regions:
    """What is remembered of one workspace's files and of their fetched twins.

    Args:
        disk: writes the memory.
        file: where it lies.
        here: the folder that people read.
        base: the folder that mirrors the fetched tree.
    """

    def __init__(self, disk: Disk, file: Path, here: Path, base: Path) -> None:
        self._disk = disk
        self._file = file
        self._here = here
        self._base = base

    def fetched(self, path: str) -> int | None:
        """Return how many bytes at the beginning of a file are the whole of its fetched twin; None if they are not.

        A file that was never fetched begins with nothing of it: 0.
        """
        theirs, mine = _looks(self._base / path), _looks(self._here / path)
        if not theirs:
            return 0
        if not mine or mine[0] < theirs[0]:
            return None
        if self._known().get(path) == [theirs, mine]:
            return theirs[0]
        if not _begins_with(self._here / path, self._base / path):
            return None
        if theirs[0] >= limits.REGION_BYTES_MIN and [theirs, mine] == [
            _looks(self._base / path),
            _looks(self._here / path),
        ]:
            self._note(path, [theirs, mine])
        return theirs[0]

    def _known(self) -> dict[str, object]:
        import json  # only a sync compares

        try:
            found = json.loads(self._disk.read(self._file) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _note(self, path: str, pair: object) -> None:
        import json

        try:
            self._disk.replace(self._file, json.dumps({**self._known(), path: pair}).encode(), is_durable=False)
        except DiskError:
            return  # a read-only disk: compared again the next time, and as right


def _looks(file: Path) -> list[int]:
    try:
        seen = file.stat()
    except OSError:
        return []
    return [seen.st_size, seen.st_mtime_ns, seen.st_ino]


def _begins_with(file: Path, beginning: Path) -> bool:
    with file.open("rb") as long, beginning.open("rb") as short:
        while wanted := short.read(limits.BLOCK_BYTES):
            if long.read(len(wanted)) != wanted:
                return False
    return True
