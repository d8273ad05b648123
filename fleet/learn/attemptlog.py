"""The log of attempts as a file: read whole, added to in one write, shortened when it has grown too long.

``.fleet/attempts/<agent>.jsonl``. Whoever adds holds a shared lock, whoever shortens an exclusive one, both on the
file itself, and both look whether it is still the file of that name. No link is followed. Imports ``os`` alone until
there is something to write: hooks read it before every command.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Rooted(Protocol):
        """A workspace."""

        @property
        def root(self) -> os.PathLike[str]:
            """Its folder."""

    Where = str | os.PathLike[str] | Rooted

FOLDER = "attempts"
WON = ".won"
FILE_BYTES_MAX = 128 * 1024
KEPT_BYTES_MAX = FILE_BYTES_MAX // 2
READ_BYTES_MAX = 4 * FILE_BYTES_MAX  # a log that was not rotated in time is read from its end
LOCK_WAIT_S = 1.0
_POLL_S = 0.002
_NAME_CHARS_MAX = 32


def root_of(where: Where) -> str:
    """Return the root of a workspace, or the path as it is."""
    if isinstance(where, str | os.PathLike):
        return os.fspath(where)
    return os.fspath(where.root)


def join(*parts: str) -> str:
    """Return a path."""
    return os.path.join(*parts)  # noqa: PTH118 - pathlib costs a hook 3 ms


def _file(agent: str) -> str:
    """Return the name of an agent's log. No path is ever built from what is no name."""
    plain = agent.replace("-", "a").replace("_", "a")
    if not (plain.isascii() and plain.isalnum() and plain == plain.lower() and len(plain) <= _NAME_CHARS_MAX):
        raise ValueError(f"{agent[:40]!r} cannot be an agent's name")
    return f"{agent}.jsonl"


def read(root: str, agent: str) -> bytes:
    """Return the log, b"" when there is none. Links and devices are none."""
    path = join(root, ".fleet", FOLDER, _file(agent))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode):
            return b""
        return os.pread(handle, READ_BYTES_MAX, max(seen.st_size - READ_BYTES_MAX, 0))
    finally:
        os.close(handle)


def append(root: str, agent: str, line: Callable[[int], bytes]) -> None:
    """Add a line in one write, and shorten the log when it has grown too long.

    Args:
        root: of the workspace.
        agent: whose log.
        line: makes the line, given the open file.

    Raises:
        ValueError: that is no agent's name.
        DiskError: it could not be noted.
    """
    from fleet.keep.errors import DiskError

    name = _file(agent)
    path = join(root, ".fleet", FOLDER, name)
    try:
        folder = _folder(root)
        try:
            handle = _opened(folder, name)
            try:
                data = line(handle)
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = b"\n" + data  # what a crash tore off harms itself alone
                if os.write(handle, data) != len(data):
                    raise OSError(5, "less was written than was asked for")
            finally:
                os.close(handle)
            if size + len(data) > FILE_BYTES_MAX:
                _rotate(folder, name)
        finally:
            os.close(folder)
    except OSError as why:
        raise DiskError(
            f"{path} was not saved ({why.strerror or why}). Nothing else is lost: this attempt is not counted, and "
            "nothing is stopped because of it"
        ) from why


def mark(root: str, agent: str) -> None:
    """Note that what worked is another now: whoever tells of it need not look at every failure.

    Raises:
        DiskError: it could not be noted.
    """
    from fleet.keep.errors import DiskError

    name = _file(agent).removesuffix(".jsonl") + WON
    try:
        folder = _folder(root)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o600, dir_fd=folder))
            os.utime(name, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
    except OSError as why:
        raise DiskError(f"{join(root, '.fleet', FOLDER, name)} was not saved ({why.strerror or why})") from why


def _folder(root: str) -> int:
    """Open the folder of the logs, none of the folders down to it a link."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in (".fleet", FOLDER):
        try:
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            except FileNotFoundError:
                try:  # noqa: SIM105 - contextlib costs a hook a ms
                    os.mkdir(name, 0o755, dir_fd=handle)
                except FileExistsError:  # somebody was faster
                    pass
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _opened(folder: int, name: str) -> int:
    """Open a log for appending, under a shared lock, and be sure that it was not replaced meanwhile."""
    import fcntl
    import time

    until = time.monotonic() + LOCK_WAIT_S
    while True:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mine, there = os.fstat(handle), os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev):
                return handle
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(handle)
            raise
        if time.monotonic() >= until:
            return handle  # a rotation that hangs: this line may be lost, and no promise with it
        os.close(handle)
        time.sleep(_POLL_S)


def _rotate(folder: int, name: str) -> None:
    """Replace a log by a shorter one that comes to the same. Whoever finds it locked leaves it to the other."""
    import fcntl
    import time

    from fleet.learn import streaks

    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    temporary = f".{name}.{os.getpid()}.tmp"
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(handle).st_size
        if size <= FILE_BYTES_MAX or os.stat(name, dir_fd=folder).st_ino != os.fstat(handle).st_ino:
            return
        data = os.pread(handle, READ_BYTES_MAX, max(size - READ_BYTES_MAX, 0))
        kept = streaks.shortened(data, time.time_ns(), KEPT_BYTES_MAX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fresh = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            if os.write(fresh, kept) != len(kept):
                raise OSError(5, "less was written than was asked for")
        finally:
            os.close(fresh)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)
