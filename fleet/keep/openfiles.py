"""Files that stay open between two writes: to open one takes longer than to write a line to it.

A file is good for as long as its path leads to it. Whoever replaced it, or a folder above it, has put another file
there, and that one is opened anew, with every check.
"""

import os
from collections.abc import Callable

_FILES_MAX = 8


class OpenFile:
    """A file that is open for as long as somebody holds this.

    Attributes:
        handle: its descriptor.
        size: what it was when it was opened, in bytes.
    """

    __slots__ = ("_which", "handle", "size")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        seen = os.fstat(handle)
        self.size = seen.st_size
        self._which = seen.st_ino, seen.st_dev

    def size_if_at(self, path: str) -> int | None:
        """Return its size if it is what lies there. For as long as it is open, no other file has its number."""
        try:
            seen = os.lstat(path)  # a link is another file than the one that it leads to
        except OSError:
            return None
        return seen.st_size if (seen.st_ino, seen.st_dev) == self._which else None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close it. Whoever writes to it just now, in another thread, still holds it."""
        close(self.handle)  # a name of its own: at the very end of a process, modules have none any more


class OpenFiles:
    """Files that are opened alike.

    Args:
        flags: of open(2).
        prepare: called with a path before it is opened; raises for one that must not be written to.
    """

    def __init__(self, flags: int, prepare: Callable[[str], None]) -> None:
        self._flags = flags
        self._prepare = prepare
        self._files: dict[str, OpenFile | None] = {}  # None: opened once, and who comes again will come often

    def get(self, path: str, *, may_make: bool = True) -> tuple[OpenFile, int, bool]:
        """Return the file that lies there, its size, and whether it was made just now.

        Raises:
            OSError: it cannot be opened.
        """
        known = self._files.get(path)
        if known is not None and (size := known.size_if_at(path)) is not None:
            return known, size, False
        self._prepare(path)
        is_new = False
        try:
            handle = os.open(path, self._flags)  # most files are there: they are asked for first
        except FileNotFoundError:
            if not may_make:
                raise
            handle, is_new = os.open(path, self._flags | os.O_CREAT, 0o644), True
        file = OpenFile(handle)
        if path not in self._files and len(self._files) >= _FILES_MAX:
            self._files.clear()
        self._files[path] = file if path in self._files else None
        return file, file.size, is_new

    def forget(self, path: str) -> None:
        """Let go of a file, if it stayed open."""
        self._files.pop(path, None)

    def clear(self) -> None:
        """Let go of all that stayed open."""
        self._files.clear()
