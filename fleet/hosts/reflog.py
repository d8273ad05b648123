"""Commits of a session, as git's own reflog tells of them. Standard library only, and little of it.

A hook looks after each command at the size of one file. What it grew by is read once, by whoever comes first: a mark
below ``.fleet/reflog`` has the size that was read, and when.
"""

import os
import time
from binascii import crc32

from fleet.hosts import local

_FOLDER = "reflog"
_READ_MAX = 256 * 1024
_LINK_BYTES_MAX = 4096
_SLACK_S = 5
_LOOK_AGAIN_S = 12 * 3600
"""What lies further back than the last look by so much was nobody's session."""


def file_of(cwd: str) -> str:
    """Return the path of the reflog of HEAD in the checkout that a folder is in, a worktree's own; "" for none."""
    top = cwd
    while top:
        mark = os.path.join(top, ".git")
        try:
            with open(mark, "rb") as file:
                told = os.fsdecode(file.read(_LINK_BYTES_MAX)).strip()
        except IsADirectoryError:
            return os.path.join(mark, "logs", "HEAD")
        except OSError:
            above = os.path.dirname(top)
            top = above if above != top else ""
            continue
        own = os.path.join(top, told.removeprefix("gitdir: ")) if told.startswith("gitdir: ") else ""
        return os.path.join(own, "logs", "HEAD") if own else ""
    return ""


def has_grown(root: str, cwd: str) -> bool:
    """Tell whether the reflog is longer than when somebody looked last. Two looks at files, and nothing read."""
    path = file_of(cwd)
    size = _size(path)
    return size >= 0 and size != _marked(root, path)[0]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else -1
    except OSError:
        return -1


def skip(root: str, cwd: str) -> None:
    """Note the reflog as read: what is in it by now was before this session."""
    path = file_of(cwd)
    if (size := _size(path)) >= 0:
        local.mark(root, _FOLDER, _name(path), word=str(size))


def fresh(root: str, cwd: str) -> list[tuple[str, str]]:
    """Return what the reflog grew by, as (what was done, the subject), oldest first, and note it as read.

    Nothing where nobody looked before: those commits are older than any session that fleet knows of.
    """
    path = file_of(cwd)
    size, (known, at_ms) = _size(path), _marked(root, path)
    if size < 0 or size == known:
        return []
    data = b""
    if 0 <= known < size:
        try:
            with open(path, "rb") as file:
                file.seek(max(known, size - _READ_MAX))
                data = file.read(_READ_MAX)
        except OSError:
            return []
    local.mark(root, _FOLDER, _name(path), word=str(size))
    since = max(at_ms / 1000 - _SLACK_S, time.time() - _LOOK_AGAIN_S)
    return [found for line in data.decode("utf-8", "replace").splitlines() if (found := _parsed(line, since))]


def _parsed(line: str, since_s: float) -> tuple[str, str] | None:
    """Return what a line of a reflog tells: ``old new Name <mail> seconds zone<TAB>what: subject``."""
    head, tab, said = line.partition("\t")
    at = head.rsplit(" ", 2)[-2:-1]
    if not tab or not at or not at[0].isdigit() or int(at[0]) < since_s:
        return None
    what, _, subject = said.partition(": ")
    return (what.strip(), subject.strip()) if subject.strip() else None


def _name(path: str) -> str:
    return f"{crc32(os.path.realpath(path).encode('utf-8', 'surrogateescape')):08x}"


def _marked(root: str, path: str) -> tuple[int, int]:
    """Return the size that was read last, -1 for never, and when."""
    if not path:
        return -1, 0
    size, _, at = local.read(root, _FOLDER, _name(path), bytes_max=200).decode("ascii", "replace").partition(" ")
    return (int(size), int(at)) if size.isdigit() and at.strip().isdigit() else (-1, 0)
