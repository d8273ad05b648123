"""Hybrid logical clock of one machine over many runs (DESIGN, section 3, Clocks).

``.fleet/clock`` keeps the last stamp issued here. The newest stamp admitted from others is never stored: it is the
largest in the database within the cut, so that a peer ten years ahead cannot drag this machine along.
"""

from collections.abc import Callable
from pathlib import Path

from crdt import clock
from crdt.clock import Stamp
from fleet import RELEASED_MS
from fleet.model import limits
from fleet.store.files import Files

AHEAD_MS_MAX = limits.AHEAD_HOURS_MAX * 3_600_000

_RELEASED = clock.pack(RELEASED_MS)
_LAST_DAY = "9999-12-31"
_LENGTH = 30  # a stamp of 29 characters and a line end


class Clock:
    """Source of this machine's stamps.

    Args:
        files: where the clock file lies.
        path: the clock file.
        wall_ms: reads the wall clock, milliseconds since 1970.
        newest: returns the largest stamp that the database admits, or ``clock.ZERO``.
    """

    def __init__(self, files: Files, path: Path, wall_ms: Callable[[], int], newest: Callable[[], Stamp]) -> None:
        self._files = files
        self._path = path
        self._wall_ms = wall_ms
        self._newest = newest

    def cut(self) -> Stamp:
        """Return the stamp a day ahead of the clock: an edit beyond it is left out of the fold.

        A wall clock from before this version was made says nothing: the last stamp issued here is later than it.
        """
        now = clock.nearest(self._wall_ms())
        if now < _RELEASED:
            now = max(self.issued(), _RELEASED)
        return clock.shifted(now, AHEAD_MS_MAX)

    def wrong(self) -> str:
        """Return why the wall clock cannot be believed, or ""."""
        wall = clock.nearest(self._wall_ms())
        if wall >= _RELEASED:
            return ""
        return f"this machine's clock says {wall[:16]}Z, which is before this version of fleet was made"

    def is_ahead(self) -> bool:
        """Tell whether stamps issued here lie more than a day ahead of the wall clock: it ran ahead once."""
        return self.issued() > self.cut()

    def issued(self) -> Stamp:
        """Return the last stamp issued here; a damaged file counts as none."""
        text = self._files.read(self._path)[:_LENGTH].decode("ascii", "replace").strip()
        return text if clock.is_stamp(text) and text < _LAST_DAY else clock.ZERO

    def tick(self, after: Stamp = clock.ZERO) -> Stamp:
        """Issue a stamp larger than all issued and admitted here, and than ``after``.

        No stamp is ever older than this version: a machine that lost its clock starts from there.
        """
        with self._files.lock(self._path.with_name("clock.lock")):
            issued = clock.ticked(self._wall_ms(), max(self.issued(), self._newest(), after, _RELEASED))
            self._files.note(self._path, f"{issued:<29}\n".encode())
        return issued

    def forget(self) -> None:
        """Start again from what is admitted: the stamps issued here came from a clock that ran ahead."""
        self._files.note(self._path, f"{clock.ZERO:<29}\n".encode())
