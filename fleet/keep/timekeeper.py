"""This machine's clock over many runs: what it issued, what it admitted, and whether it can be believed.

``.fleet/clock`` keeps two stamps: the last one issued here and the newest one admitted from others. Nothing beyond the
*cut* is ever admitted, so a peer ten years ahead cannot drag us along (DESIGN, section 3, Clocks).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from crdt.clock import Stamp
from fleet import RELEASED_MS
from fleet.keep import limits
from fleet.keep.disk import Disk
from fleet.keep.errors import DiskError
from fleet.keep.openfiles import OpenFile

AHEAD_MS_MAX = limits.AHEAD_HOURS_MAX * 3_600_000

_LAST_DAY = "9999-12-31"
_FILE_BYTES_MAX = 4096  # of which we write 60; a file that is longer is damaged


class Reading(NamedTuple):
    """What the clock says of itself.

    Attributes:
        cut: parts stamped later are held.
        wrong: why the wall clock cannot be believed, or "".
        is_ahead: stamps issued here lie more than a day ahead of the wall clock: it ran ahead once.
    """

    cut: Stamp
    wrong: str
    is_ahead: bool


class Timekeeper:
    """Issues this machine's stamps and judges its clock.

    Args:
        disk: where the clock file lies.
        path: the clock file.
        wall_ms: reads the wall clock, milliseconds since 1970.
    """

    def __init__(self, disk: Disk, path: Path, wall_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._path = os.fspath(path)
        self._wall_ms = wall_ms
        self._data = b""
        self._read: tuple[tuple[int, Stamp, Stamp], Reading] | None = None
        self._is_alone = False
        self._file: OpenFile | None = None
        self.issued, self.admitted = clock.ZERO, clock.ZERO
        with suppress(DiskError):  # who only reads does without; who issues a stamp reads it again, or fails
            self._catch_up()

    def begin(self) -> None:
        """The write lock is held from here on, so the file is opened and read once: nobody else issues a stamp."""
        self._is_alone = False
        self._file = self._disk.open_note(self._path)
        self._catch_up()
        self._is_alone = True

    def end(self) -> None:
        """The write lock is let go of."""
        self._is_alone = False
        self._file = None

    def reading(self) -> Reading:
        """Judge the wall clock."""
        seen = self._wall_ms(), self.admitted, self.issued
        if self._read is None or self._read[0] != seen:
            self._read = seen, self._judged(seen[0])
        return self._read[1]

    def _judged(self, wall_ms: int) -> Reading:
        limit = clock.pack(min(max(wall_ms, 0) + AHEAD_MS_MAX, clock.MS_MAX))
        wrong = wall = ""
        if wall_ms < RELEASED_MS or self.admitted > limit or limit >= _LAST_DAY:  # else nothing can be wrong
            wall = clock.nearest(wall_ms)
            wrong = self._wrong(wall_ms, wall)
        if wrong:
            return Reading(max(self.admitted, self.issued, wall), wrong, is_ahead=False)
        return Reading(limit, "", is_ahead=self.issued > limit)

    def _wrong(self, wall_ms: int, wall: Stamp) -> str:
        if wall_ms < RELEASED_MS:
            return f"this machine's clock says {wall[:16]}Z, which is before this version of fleet was made"
        if self.admitted > wall and clock.shifted(self.admitted, -AHEAD_MS_MAX) > wall:
            return f"this machine's clock says {wall[:16]}Z, a day or more behind what others wrote"
        return ""

    def admit(self, stamp: Stamp) -> None:
        """Note the newest stamp read from others, none beyond the cut. The caller holds the write lock."""
        self._catch_up()
        if stamp > self.admitted:
            self.admitted = stamp
            self._save()

    def resume(self, stamp: Stamp) -> None:
        """Note a stamp of our own that was read: the clock file may have been lost, the lines were not."""
        self._catch_up()
        if stamp > self.issued:
            self.issued = stamp
            self._save()

    def tick(self) -> Stamp:
        """Issue a stamp larger than all issued and admitted. The caller holds the workspace's write lock."""
        self._catch_up()
        self.issued = clock.ticked(self._wall_ms(), max(self.issued, self.admitted))
        self._save()
        return self.issued

    def forget_issued(self) -> None:
        """Start again from what others wrote: the stamps issued here came from a clock that ran ahead."""
        self.issued = self.admitted
        self._save()

    def _catch_up(self) -> None:
        """Another process of this workspace may have issued stamps since we read the file."""
        if self._is_alone:
            return
        file = self._file
        data = self._disk.read(self._path) if file is None else os.pread(file.handle, _FILE_BYTES_MAX, 0)
        if data != self._data:
            issued, admitted = _parse(data)
            self.issued, self.admitted = max(issued, self.issued), max(admitted, self.admitted)
            self._data = data

    def _save(self) -> None:
        data = f"{self.issued:<29}\n{self.admitted:<29}\n".encode()
        if self._file is None:
            self._disk.note(self._path, data)
        else:
            self._disk.note_in(self._file, self._path, data)
        self._data = data


def _parse(data: bytes) -> tuple[Stamp, Stamp]:
    """A damaged file counts as none: the wall clock and the lines themselves say the rest.

    So does a stamp of the last day that the text can say: nothing could be issued after it.
    """
    stamps = [line.strip() for line in data.decode("ascii", "replace").splitlines()]
    good = [stamp if clock.is_stamp(stamp) and stamp < _LAST_DAY else clock.ZERO for stamp in [*stamps, "", ""][:2]]
    return good[0], good[1]
