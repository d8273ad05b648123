"""What a process that goes on knows of a log that it wrote to last: enough to add an entry without reading the log.

Good for as long as the log looks as it did after our own last write; whoever else writes to it, the log is read again.
"""

import os
import re
from pathlib import Path

from fleet.keep.disk import Disk
from fleet.keep.unchanged import Look, look
from fleet.learn.records import Record, records_of

_ENTRY = re.compile(rb"c-[0-9a-f]{16}")
_PATTERN = re.compile(rb"p-[0-9a-f]{16}")
_MINUTE = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\dZ")


class Logbook:
    """One agent's log. The caller holds the write lock.

    Args:
        disk: reads it.
        path: of the log.

    Attributes:
        path: of the log.
        unfilled: how many entries have no pattern yet, once all that the log owed was written; else None.
        is_in_use: who wrote to it came again, and will once more.
        is_note_due: what it is like is noted when whoever uses it is done (``settled.note_later``).
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.is_note_due = False
        self.path = os.fspath(path)  # a Path is asked for its text with each call
        self.read()

    def read(self) -> None:
        """Forget what was known, and read the log."""
        self._look = _seen(self.path)
        self._known = self._disk.read(self.path)
        self.is_in_use = False
        self._entries: set[str] = set()
        self._patterns: set[str] = set()
        self._minutes: set[str] = set()
        self._written: dict[str, list[Record]] = {}
        self.unfilled: int | None = None

    def refresh(self) -> None:
        """Read the log if it is another than the one that we read, or wrote to, last."""
        if self._look is None or self._look != _seen(self.path):
            self.read()
        elif not self.is_in_use:
            # Who comes a second time will come again: from now on nothing depends on how long the log is.
            self._entries |= {found.decode() for found in _ENTRY.findall(self._known)}
            self._patterns |= {found.decode() for found in _PATTERN.findall(self._known)}
            self._minutes |= {found.decode() for found in _MINUTE.findall(self._known)}
            self.is_in_use = True

    @property
    def is_as_read(self) -> bool:
        """Whether all that is known of it was read, and nothing was written by us since."""
        return not self._written

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return not self._known and not self._written

    def has_entry(self, entry_id: str) -> bool:
        """Tell whether the id of an entry stands in it."""
        return entry_id in self._entries or (not self.is_in_use and entry_id.encode() in self._known)

    def may_say(self, pattern: str, when: str = "") -> bool:
        """Tell whether somebody else may have written this pattern, and this minute, if one is given."""
        if when and self.is_in_use and when not in self._minutes:
            return False
        return pattern.encode() in self._known and (not when or when.encode() in self._known)

    def records_of(self, pattern: str) -> list[Record]:
        """Return the records of one pattern, in file order (``records.records_of``)."""
        before = [] if self.is_in_use and pattern not in self._patterns else records_of(pattern, self._known)
        return before + self._written.get(pattern, [])

    def wrote(self, record: Record, seen: os.stat_result, length: int) -> None:
        """Note an entry that we wrote, with its record, and what the log was like then.

        Args:
            record: behind the entry.
            seen: the log, with it.
            length: of what was written, in bytes.
        """
        size = self._look[1] if self._look is not None else 0
        is_ours = seen.st_size == size + length
        self._look = look(seen) if is_ours else None
        self._entries.add(record.id)
        self._written.setdefault(record.pattern, []).append(record)

    @property
    def signature(self) -> bytes:
        """What ``settled.signature`` says of the log; b"" where that is not known."""
        return b"%d %d %d" % (self._look[1], self._look[2], self._look[0]) if self._look is not None else b""


def _seen(path: str) -> Look | None:
    try:
        return look(os.stat(path))  # noqa: PTH116 - asked for with each correction
    except OSError:
        return None
