"""Durable files: an acknowledged write survives a crash, a full disk and a failed fsync.

All writes of a workspace go through one ``Files``, so that a test can replace it: fail, tear or record a write. Files
lie below one root, and no link is followed on the way to them.
"""

import errno
import fcntl
import os
import stat
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from fleet.model import limits
from fleet.model.errors import BusyError, DiskError
from fleet.store import homes

_POLL_S = 0.01
_TICK_NS = 20_000_000  # more than the tick of a file system's clock ...
_COARSE_TICK_NS = 1_100_000_000  # ... and of one that counts seconds
_PRIVATE = ".fleet"  # consent, exposures and the replica concern this user alone
_PUBLIC = 0o644
_TOML_STEPS_MAX = 1_000_000
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_CREAT | _PLAIN
_NO_SUCH_FSYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF})
"""Errors of a file system that keeps a folder's entries itself, such as SMB and virtiofs."""
LEFT_OUT = rb"<!-- a line of (\d+) bytes is not read -->"
"""Comment in a page in place of a line that is too long."""
_ADVICE = "`fleet doctor` lists what this user may not read or write"


class Files:
    """The files below one root folder; nothing outside it is ever written.

    Attributes:
        homes: folder of the agents' own files: logs, notes, memories.
        is_private: True if those get permissions for this user alone.
        written: number of durable writes that succeeded.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.homes = homes.DEFAULT
        self.is_private = True
        self.written = 0

    def read(self, path: Path) -> bytes:
        """Return a file's bytes; b"" for a missing file, a link, and a file behind a link.

        A clone may have links to anywhere: their targets would be shown to a model, or taken for files of fleet.
        """
        return self._read(path, lambda file: file.read() or b"")  # a pipe without a writer reads as None

    @staticmethod
    def toml(text: str) -> dict[str, Any]:
        """Return the tables of a file in TOML that anybody may have written; raise ``ValueError`` for no such file.

        A name of n parts takes tomllib n * n steps, and as much memory: one of 64 KiB takes 15 s and 4 GB.
        """
        if sum(line.count(".") ** 2 for line in text.split("\n")) > _TOML_STEPS_MAX:
            raise ValueError("it has names of far too many parts")
        try:
            return tomllib.loads(text.removeprefix("\ufeff"))
        except RecursionError as why:
            raise ValueError("nested too deeply") from why

    def page(self, path: Path) -> bytes:
        """Return a page's bytes as ``read``, with a comment in place of each line of over ``PAGE_LINE_BYTES_MAX``."""
        return self._read(path, lambda file: b"".join(_lines(file)))

    def _read(self, path: Path, read: Callable[[IO[bytes]], bytes]) -> bytes:
        with self.open(path) as file:
            try:
                return read(file)
            except OSError as why:
                raise _unreadable(path, why) from why

    def open(self, path: Path) -> IO[bytes]:
        """Return a file open for reading, an empty one where ``read`` returns b"". Raises as ``read``."""
        if self._has_link_above(path):
            return BytesIO()
        try:
            return open(path, "rb", opener=_opened)
        except OSError as why:
            if why.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return BytesIO()
            raise _unreadable(path, why) from why

    def _has_link_above(self, path: Path) -> bool:
        try:
            return any(map(os.path.islink, self._folders_to(path)))
        except (ValueError, OSError):  # a file outside the root, which a person named
            return False

    def is_linked(self, path: Path) -> bool:
        """Return whether a path is, or lies behind, a link."""
        return path.is_symlink() or self._has_link_above(path)

    def append(self, path: Path, data: bytes, *, is_durable: bool = True) -> None:
        """Append to a file and return once the data is on the disk; unless ``is_durable``, once it is written.

        A last line that a crash tore off gets its line end first, so that only that line is damaged. The caller holds
        the file's lock. It raises ``DiskError`` where the data is not in the file.
        """
        with self._writing(path):
            self._prepare(path)
            handle = os.open(path, _WRITE | os.O_APPEND, self._mode(path))
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = b"\n" + data
                try:
                    self._write_all(handle, data)
                    if is_durable:
                        self._fsync(handle)
                    _check_written(handle, size + len(data))
                    if not size:  # a new file, even if not durable: a later durable line needs it
                        self._fsync_folder(path.parent)
                except OSError:
                    self._truncate(handle, size, data)
                    raise
            finally:
                os.close(handle)
        self.written += is_durable

    def replace(self, path: Path, data: bytes, *, is_durable: bool = True) -> bool:
        """Replace a file atomically if its bytes differ, or raise ``DiskError``; return whether they did.

        Unless ``is_durable``, without fsync: for files that can be derived again.
        """
        if self._same(path, data):
            return False
        self.write(path, [data], is_durable=is_durable)
        return True

    def write(self, path: Path, blocks: Iterable[bytes], *, is_durable: bool = True, mode: int = 0) -> None:
        """Replace a file atomically by blocks, which need not be in memory at once. Raises as ``replace``."""
        with self._writing(path):
            self._prepare(path)
            temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")  # containers may have equal pids
            try:
                self._write_new(temporary, blocks, mode or self._mode(path), is_durable=is_durable)
                self._rename(temporary, path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            if is_durable:
                self._fsync_folder(path.parent)
        self.written += is_durable

    def check(self, path: Path) -> None:
        """Check that a file can be replaced or removed; its folder is made. Raises as ``replace``."""
        with self._writing(path):
            self._prepare(path)
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def folder(self, path: Path) -> None:
        """Create a folder and its parents, none of them a link."""
        with self._writing(path):
            self._prepare(path / "in it")

    def note(self, path: Path, data: bytes) -> None:
        """Overwrite a small file of fixed size without fsync: for values that can be derived again."""
        with self._writing(path):
            self._prepare(path)
            handle = os.open(path, _WRITE, self._mode(path))
            try:
                os.pwrite(handle, data, 0)
            finally:
                os.close(handle)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with self._writing(path), suppress(FileNotFoundError):
            path.unlink()

    @contextmanager
    def lock(self, path: Path, wait_s: float = limits.LOCK_WAIT_S) -> Iterator[None]:
        """Hold an exclusive lock while a ``with`` block runs. It ends with its process, so it is never stale.

        Raises ``BusyError`` after ``wait_s``, ``DiskError`` if its file cannot be made, or the disk knows no locks.
        """
        if path.parent != self.root and is_no_folder(path.parent):  # every process then locks a file beside it
            path = path.parent.with_name(path.name)
        with self._writing(path):
            self._prepare(path)
            handle = os.open(path, _WRITE, self._mode(path))
        try:
            _wait_for(handle, path, wait_s)
            yield
        finally:
            os.close(handle)

    def _prepare(self, path: Path) -> None:
        """Create the parents of a file, none of them a link: a hostile repository may have links to anywhere."""
        for folder in map(Path, self._folders_to(path)):
            try:
                mode = folder.lstat().st_mode
            except FileNotFoundError:
                folder.mkdir(0o700 if folder.name == _PRIVATE else 0o777, exist_ok=True)
                self._fsync_folder(folder.parent)
                continue
            if folder.name == _PRIVATE and mode & 0o077 and stat.S_ISDIR(mode):
                with suppress(OSError):  # another user's
                    folder.chmod(0o700)
            if not stat.S_ISDIR(mode):
                raise DiskError(f"{folder} is a link or a file where a folder belongs; nothing was written through it")

    def _folders_to(self, path: Path) -> list[str]:
        """Return the folders from the root to a file, the outermost first; raise ``ValueError`` for one outside."""
        root, below = os.path.join(self.root, ""), str(path)  # noqa: PTH118 - for each file that is read or written
        if not below.startswith(root):
            raise ValueError(f"{path} is not below {self.root}")
        return [below[:end] for end in range(len(root), len(below)) if below[end] == "/"]

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Turn an ``OSError`` of the block into a ``DiskError`` with advice."""
        try:
            yield
        except OSError as why:
            raise _unwritten(path, why) from why

    def _same(self, path: Path, data: bytes) -> bool:
        try:
            return is_plain(path) and path.stat().st_size == len(data) and path.read_bytes() == data
        except OSError:
            return False

    def _mode(self, path: Path) -> int:
        """Return the permissions for a file: its present ones, else the default of its folder."""
        with suppress(OSError):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                return mode & 0o777
        with suppress(ValueError):
            below = path.relative_to(self.root)
            is_own = self.is_private and (below.is_relative_to(self.homes) or any(map(below.match, homes.NOTES)))
            return 0o600 if is_own or below.parts[:1] == (_PRIVATE,) else _PUBLIC
        return _PUBLIC

    def _write_new(self, path: Path, blocks: Iterable[bytes], mode: int = _PUBLIC, *, is_durable: bool = True) -> None:
        with suppress(FileNotFoundError):
            path.unlink()  # whoever made it would own what is written
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if mode != _PUBLIC:  # permissions that a person set hold whatever the umask
                with suppress(PermissionError):  # a Windows disk inside WSL knows none
                    os.fchmod(handle, mode)
            size = 0
            for data in blocks:
                self._write_all(handle, data)
                size += len(data)
            if is_durable:
                self._fsync(handle)
            _check_written(handle, size)
        finally:
            os.close(handle)

    def _write_all(self, handle: int, data: bytes) -> None:
        """Write all data: one write(2), and further ones after a short write."""
        rest = memoryview(data)
        while rest:
            written = os.write(handle, rest)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]

    def _truncate(self, handle: int, size: int, data: bytes) -> None:
        """Remove data that was written but not acknowledged: half a line would be refused at every load.

        The file must end with a beginning of the data, or with an end of it if the system claimed to have written more
        than it had. Otherwise an editor has appended to it meanwhile, and everything stays.
        """
        with suppress(OSError):
            written = os.pread(handle, len(data) + 1, size)
            if data.startswith(written) or data.endswith(written):
                os.ftruncate(handle, size)

    def _fsync(self, handle: int) -> None:
        if full := getattr(fcntl, "F_FULLFSYNC", None):  # macOS, where fsync(2) leaves data in the drive's own cache
            with suppress(OSError):  # a file system that cannot
                fcntl.fcntl(handle, full)
                return
        os.fsync(handle)

    def _rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def _fsync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._fsync(handle)
        except OSError as why:
            if why.errno not in _NO_SUCH_FSYNC:
                raise
        finally:
            os.close(handle)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a page in pieces of many lines; of an overlong line, at most the limit of a line is in memory."""
    note, most = b"<!-- a line of %d bytes is not read -->", limits.PAGE_LINE_BYTES_MAX
    line, size = b"", 0  # what is read of the present line
    while block := file.read(limits.BLOCK_BYTES):
        first, end, rest = block.partition(b"\n")
        line, size = (line + first)[: most + 1], size + len(first)
        if end:
            next_line = rest.rpartition(b"\n")[2]
            yield (line if size <= most else note % size) + end + rest[: len(rest) - len(next_line)]
            line, size = next_line, len(next_line)
    yield line if size <= most else note % size


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | _PLAIN)


def _unreadable(path: Path, why: OSError) -> DiskError:
    return DiskError(f"cannot read {path}: {why.strerror}; it was not changed. {_ADVICE}")


def _check_written(handle: int, size: int) -> None:
    if os.fstat(handle).st_size < size:
        raise OSError(errno.EIO, "less was written than the system said")


def _wait_for(handle: int, path: Path, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BusyError(
                    f"another fleet process has held {Path(path).name} for {wait_s:.3g} s; nothing is lost",
                    ", run the command again when it has finished",
                ) from None
            time.sleep(_POLL_S)
        except OSError as why:
            raise DiskError(
                f"{path} cannot be locked ({why.strerror}), and nothing is written without a lock: two processes could "
                "overwrite each other. Put the workspace on a local disk, or mount this one with locks"
            ) from why
        else:
            return


def _unwritten(path: Path, why: OSError) -> DiskError:
    if why.errno == errno.ELOOP:
        return DiskError(
            f"{path} is a symbolic link; fleet writes to plain files only, and left what it points to alone"
        )
    if why.errno == errno.ENOSPC:
        return DiskError(f"no space left for {path}; it was not changed. Free some space", " and run the command again")
    if why.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        means = "it is as it was, and what needs it was not done. Reading still works"
        return DiskError(f"this user may not write {path} ({why.strerror}): {means}. {_ADVICE}")
    return DiskError(f"{path} was not saved ({why.strerror}). Check the disk", " and run the command again")


def is_no_folder(path: Path) -> bool:
    """Return whether a file or a link is where a folder belongs."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def is_plain(path: Path) -> bool:
    """Return whether a path is a plain file, and no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def file_fingerprint(path: "Path | os.DirEntry[str]") -> str:
    """Return the fingerprint of the file at a path; "" for no file, or one too young to have a fingerprint."""
    try:
        return fingerprint(os.lstat(path))
    except OSError:
        return ""


def fingerprint(status: os.stat_result) -> str:
    """Return the fingerprint of a file's state: size, times, device and inode; "" for a file that is too young.

    A file written within the last tick of its file system's clock may be written again within the same tick, unseen.
    Inodes are reused at once: size, mtime and inode alone missed lines in 233 of 400 histories.
    """
    newest = max(status.st_mtime_ns, status.st_ctime_ns)
    tick = _TICK_NS if status.st_mtime_ns % 1_000_000_000 else _COARSE_TICK_NS
    if not stat.S_ISREG(status.st_mode) or time.time_ns() - newest < tick:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_dev} {status.st_ino}"


def modified_ms(path: Path) -> int:
    """Return when a file was last written, in milliseconds since 1970; raise ``OSError`` if it cannot be seen."""
    return int(path.stat().st_mtime * 1000)


def inode(path: Path) -> int:
    """Return the inode of the file or link at a path; 0 for none."""
    try:
        return path.lstat().st_ino
    except OSError:
        return 0
