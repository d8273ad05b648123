"""Small files below ``.fleet`` that hooks write: the log, marks of when a hook fired, what a session was told.

Standard library only. None of it is a lesson: what cannot be written is left out, and nobody waits for the disk. No
link is followed, since a hostile repository may hold a ``.fleet`` of its own.
"""

import errno
import json
import os
import stat
import time

FOLDER = ".fleet"
LOG = "log"
LOG_BYTES_MAX = 256 * 1024
_WORD_CHARS_MAX = 80
_WHAT_CHARS_MAX = 600


def path_of(root: str, *names: str) -> str:
    """Return the path of a file below ``.fleet``."""
    return os.path.join(root, FOLDER, *names)


def read(root: str, *names: str, bytes_max: int) -> bytes:
    """Return the beginning of a file, b"" when it is not there or cannot be read."""
    try:
        handle = os.open(path_of(root, *names), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, bytes_max)
    except OSError:
        return b""
    finally:
        os.close(handle)


def append(root: str, *names: str, data: bytes, bytes_max: int) -> bool:
    """Add to a file in one write; tell whether it was. A file of ``bytes_max`` or more takes nothing."""
    try:
        handle = _opened(root, names, os.O_APPEND)
    except OSError:
        return False
    try:
        return os.fstat(handle).st_size < bytes_max and os.write(handle, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(handle)


def mark(root: str, *names: str, data: bytes) -> None:
    """Write a file anew: its time says when this happened last."""
    try:
        handle = _opened(root, names, os.O_TRUNC)
    except OSError:
        return
    try:
        os.write(handle, data)
    except OSError:
        return
    finally:
        os.close(handle)


def log(root: str, *, event: str, host: str, session: str, what: str) -> None:
    """Add a JSON line to ``.fleet/log``."""
    told = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "event": event[:_WORD_CHARS_MAX],
        "host": host,
        "session": session,
        "what": what[:_WHAT_CHARS_MAX],
    }
    add_line(root, LOG, told)


def add_line(root: str, name: str, told: dict[str, str]) -> None:
    """Add a JSON line to a log. A full one becomes ``<name>.1``, and the one before that is gone."""
    line = json.dumps(told).encode() + b"\n"  # escaped: whatever it says, it stays one line, and no terminal stumbles
    if append(root, name, data=line, bytes_max=LOG_BYTES_MAX):
        return
    try:
        if os.lstat(path_of(root, name)).st_size >= LOG_BYTES_MAX:  # else somebody else has just moved it
            os.rename(path_of(root, name), path_of(root, f"{name}.1"))
    except OSError:
        return
    append(root, name, data=line, bytes_max=LOG_BYTES_MAX)


def _opened(root: str, names: tuple[str, ...], how: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    path = path_of(root, *names)
    _check_folders(root, names[:-1])
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o644)


def _check_folders(root: str, names: tuple[str, ...]) -> None:
    path = root
    for name in (FOLDER, *names):
        path = os.path.join(path, name)
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link or a file where a folder belongs", path)
