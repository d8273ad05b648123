"""Writing files so that what was acknowledged is there: after a crash, a full disk, a failed fsync.

All writes of a workspace go through one ``Disk``, so that a test can hold it: fail it, tear it, record it. Files lie
below one root; no link is followed on the way down to them.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleet.keep import limits
from fleet.keep.errors import BusyError, DiskError
from fleet.keep.openfiles import OpenFile, OpenFiles

_POLL_S = 0.01
_HAS_ADVICE = hasattr(os, "posix_fadvise")  # not on a Mac
_READ_BYTES = 4096
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | _PLAIN
_NOTE = os.O_RDWR | _PLAIN
_LOCK = os.O_RDWR | _PLAIN
_WHOSE = "`fleet doctor` lists what this user may not read or write"


class Disk:
    """The files below one root folder.

    Args:
        root: nothing outside it is ever written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._above: dict[str, tuple[str, ...]] = {}
        self._logs = OpenFiles(_APPEND, self._prepare)
        self._notes = OpenFiles(_NOTE, self._prepare)

    def read(self, path: Path | str) -> bytes:
        """Return a file's bytes, or b"" when it is not there."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                pieces, wanted = [], max(os.fstat(handle).st_size + 1, _READ_BYTES)
                while piece := os.read(handle, wanted):
                    pieces.append(piece)
            finally:
                os.close(handle)
            return b"".join(pieces)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as why:
            raise DiskError(f"cannot read {path}: {why.strerror}; it is as it was. {_WHOSE}") from why

    def append(
        self, path: Path | str, data: bytes, *, is_durable: bool = True, meanwhile: Callable[[], object] | None = None
    ) -> os.stat_result:
        """Add to the end of a file and return once it is on the disk; not ``is_durable``, once it is written.

        A last line that a crash tore off is closed first, so that it harms itself alone. The caller holds the file's
        lock. Returns what the file was like when all of it was written.

        Args:
            path: of the file.
            data: whole lines.
            is_durable: wait for the disk.
            meanwhile: what the caller has to do anyway, and may do before the disk has it. It touches no file.

        Raises:
            DiskError: it is not there, and must not be acknowledged.
        """
        name = os.fspath(path)
        try:
            file, size, is_new = self._logs.get(name)
            handle = file.handle
            if size and os.pread(handle, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                self._write_all(handle, data)
                if meanwhile is not None:
                    _start_writing(handle, size, len(data))
                    meanwhile()
                if is_durable:
                    self._fsync(handle)
                seen = _checked(handle, size + len(data))
            except OSError:
                self._logs.forget(name)
                self._take_back(handle, size, data)
                raise
            if is_new:
                self._fsync_folder(Path(name).parent)
        except OSError as why:
            raise DiskError(_explain(path, why)) from why
        return seen

    def replace(self, path: Path, data: bytes, *, is_durable: bool = True) -> bool:
        """Write a whole file anew, atomically, and only if it changed. Returns whether it did.

        Not ``is_durable``, nobody waits for the disk: for what can be made anew.

        Raises:
            DiskError: the old file is still whole.
        """
        if self._same(path, data):
            return False
        with self._writing(path):
            self._prepare(path)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            try:
                self._write_new(temporary, data, is_durable=is_durable)
                self._rename(temporary, path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            if is_durable:
                self._fsync_folder(path.parent)
        return True

    def folder(self, path: Path) -> None:
        """Make a folder and those above it, none of them a link."""
        with self._writing(path):
            self._prepare(path / "in it")

    def note(self, path: Path | str, data: bytes) -> None:
        """Overwrite a small file of fixed size, without waiting for the disk: what can be found out again."""
        try:
            file = self._notes.get(os.fspath(path))[0]
        except OSError as why:
            raise DiskError(_explain(path, why)) from why
        self.note_in(file, path, data)

    def open_note(self, path: Path | str) -> OpenFile | None:
        """Return a small file that is open, to be read and then overwritten while its lock is held.

        None where it is missing or may not be written.
        """
        try:
            return self._notes.get(os.fspath(path), may_make=False)[0]
        except (OSError, DiskError):
            return None  # reading it, and writing it, say what is wrong with it

    def note_in(self, file: OpenFile, path: Path | str, data: bytes) -> None:
        """Overwrite a small file as ``note`` does, one that is open."""
        try:
            os.pwrite(file.handle, data, 0)
        except OSError as why:
            self._notes.forget(os.fspath(path))
            raise DiskError(_explain(path, why)) from why

    def close(self) -> None:
        """Let go of the files that stayed open. Whatever is written next opens its own anew."""
        self._logs.clear()
        self._notes.clear()

    def remove(self, path: Path) -> None:
        """Remove a file of our own that is not needed any more. A missing one is fine."""
        with self._writing(path), suppress(FileNotFoundError):
            path.unlink()

    def lock(self, path: Path | str, wait_s: float = limits.LOCK_WAIT_S) -> "_Lock":
        """Hold an exclusive lock while a ``with`` block runs. It dies with its process, so that none is ever stale.

        Raises:
            BusyError: another process held it for longer than ``wait_s``.
        """
        return _Lock(self, path, wait_s)

    def open_lock(self, path: Path | str) -> int:
        """Return a handle of a lock's file. Nothing is ever written to it, so one that is there is taken as it is.

        Raises:
            DiskError: it can be neither opened nor made.
        """
        try:
            try:
                return os.open(path, _LOCK)
            except FileNotFoundError:
                self._prepare(path)
                return os.open(path, _LOCK | os.O_CREAT, 0o644)
        except OSError as why:
            raise DiskError(_explain(path, why)) from why

    def _prepare(self, path: Path | str) -> None:
        """Make the folders down to a file, none of them a link: a hostile repository may hold links to anywhere."""
        # Looked at before each write, also within one lock: who plants a link asks for no lock.
        for folder in self._folders_to(path):
            try:
                mode = os.lstat(folder).st_mode
            except FileNotFoundError:
                Path(folder).mkdir(exist_ok=True)
                self._fsync_folder(Path(folder).parent)
                continue
            if not stat.S_ISDIR(mode):
                raise DiskError(f"{folder} is a link or a file where a folder belongs; nothing was written through it")

    def _folders_to(self, path: Path | str) -> tuple[str, ...]:
        """Return the folders between the root and a file, from above. Which these are follows from the names alone."""
        below = (path if isinstance(path, str) else os.fspath(path)).rpartition(os.sep)[0]
        known = self._above.get(below)
        if known is None:
            names = Path(path).parent.relative_to(self.root).parts
            known = tuple(str(self.root.joinpath(*names[: at + 1])) for at in range(len(names)))
            self._above[below] = known
        return known

    def _writing(self, path: Path) -> "_Explained":
        return _Explained(path)

    def _same(self, path: Path, data: bytes) -> bool:
        try:
            return not path.is_symlink() and path.stat().st_size == len(data) and path.read_bytes() == data
        except OSError:
            return False

    def _write_new(self, path: Path, data: bytes, *, is_durable: bool = True) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self._write_all(handle, data)
            if is_durable:
                self._fsync(handle)
            _checked(handle, len(data))
        finally:
            os.close(handle)

    def _write_all(self, handle: int, data: bytes) -> None:
        """One write(2). A short one is finished by further ones, or fails and is not acknowledged."""
        rest = memoryview(data)
        while rest:
            written = os.write(handle, rest)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]

    def _take_back(self, handle: int, size: int, data: bytes) -> None:
        """Cut off what is not acknowledged: else half a line stays, and is refused at every load.

        Only what we wrote: an editor may have put something behind it.
        """
        with suppress(OSError):
            if data.startswith(os.pread(handle, len(data) + 1, size)):
                os.ftruncate(handle, size)

    def _fsync(self, handle: int) -> None:
        os.fsync(handle)

    def _rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def _fsync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._fsync(handle)
        finally:
            os.close(handle)


def _start_writing(handle: int, at: int, length: int) -> None:
    """Let the system begin with what fsync will wait for. Only whole pages would leave its cache, once written."""
    if _HAS_ADVICE:
        with suppress(OSError):  # it is a hint: fsync says whether it worked
            os.posix_fadvise(handle, at, length, os.POSIX_FADV_DONTNEED)


def _checked(handle: int, wanted: int) -> os.stat_result:
    """Return what a file is like that was written to its end: at least so many bytes, or the system was wrong."""
    seen = os.fstat(handle)
    if seen.st_size < wanted:
        raise OSError(errno.EIO, "less was written than the system said")
    return seen


class _Lock:
    """A lock that is held while the block runs. Neither this nor the next is a generator: those take longer to run."""

    __slots__ = ("_disk", "_handle", "_path", "_wait_s")

    def __init__(self, disk: Disk, path: Path | str, wait_s: float) -> None:
        self._disk = disk
        self._path = path
        self._wait_s = wait_s
        self._handle = -1

    def __enter__(self) -> None:
        """Wait for it."""
        self._handle = self._disk.open_lock(self._path)
        try:
            _wait_for(self._handle, self._path, self._wait_s)
        except BaseException:
            os.close(self._handle)
            raise

    def __exit__(self, kind: object, why: object, trace: object) -> None:
        """Let go of it."""
        os.close(self._handle)


class _Explained:
    """What the system refuses while the block runs is told as what a person can act on."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> None:
        """Explain what went wrong, if it did."""
        if isinstance(why, OSError):
            raise DiskError(_explain(self._path, why)) from why


def _wait_for(handle: int, path: Path | str, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BusyError(
                    f"another fleet process has held {Path(path).name} for {wait_s:g} s; "
                    "nothing is lost, run the command again when it has finished"
                ) from None
            time.sleep(_POLL_S)
        else:
            return


def _explain(path: Path | str, why: OSError) -> str:
    if why.errno == errno.ELOOP:
        return f"{path} is a symbolic link; fleet writes to plain files only, and left what it points to alone"
    if why.errno == errno.ENOSPC:
        return f"no space left for {path}; it is as it was. Free some space and run the command again"
    if why.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{path} cannot be written ({why.strerror}); it is as it was. Reading still works. {_WHOSE}"
    return f"{path} was not saved ({why.strerror}); do not count on it. Check the disk and run the command again"
