"""Editions that this machine has checked line by line: they need not be decoded again before somebody asks.

``.fleet/trusted.json`` remembers size, time and inode of such a file, and the newest stamp of each replica in it. A
file that was touched since is read and checked anew. Nothing here is needed: losing it costs one slow load.
"""

from pathlib import Path

from fleet.keep.disk import Disk
from fleet.keep.errors import DiskError
from fleet.keep.notebook import Notebook

# In a canonical line "id" stands before every part that may hold text of somebody's choice.
_ID = b'"id":"'
_ID_LENGTH = 18


def signature(path: Path) -> list[int]:
    """Return what changes when a file is written: its size, time and inode."""
    seen = path.stat()
    return [seen.st_size, seen.st_mtime_ns, seen.st_ino]


class Trusted:
    """What is remembered of the editions of one workspace.

    Args:
        disk: writes the memory.
        path: where it lies.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def put_raw(self, file: Path, notebook: Notebook) -> bool:
        """Put a trusted file's lines into an empty notebook, undecoded; tell whether it could be done."""
        found = self._all().get(str(file))
        if not isinstance(found, dict) or found.get("signature") != signature(file):
            return False
        newest = found["newest_by"]
        if max(newest.values(), default="") > notebook.cut:
            return False  # some part must be held: that takes a closer look
        data = file.read_bytes()
        raws = data.removesuffix(b"\n").split(b"\n")
        ids = [raw[(at := raw.find(_ID) + len(_ID)) : at + _ID_LENGTH].decode() for raw in raws]
        if found.get("signature") != signature(file):
            return False
        notebook.patterns.put_raw(ids, raws)
        notebook.newest_by.update(newest)
        return True

    def note(self, file: Path, notebook: Notebook) -> None:
        """Remember a file that was read whole: canonical, one line an id, nothing held, nothing carried."""
        import json

        entry = {"signature": signature(file), "newest_by": notebook.newest_by}
        try:
            self._disk.replace(self._path, json.dumps({**self._all(), str(file): entry}).encode())
        except DiskError:
            return  # a read-only disk: the next load is slow again, and as right

    def _all(self) -> dict[str, object]:
        import json  # only of large editions is anything remembered

        try:
            found = json.loads(self._disk.read(self._path) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
