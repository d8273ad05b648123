"""Looks at files that tell of every later write.

A file system's clock ticks: every few milliseconds, each second, or every two. Two writes within a tick may leave the
same size, times and inode, so a file that bears the very tick of the look proves nothing. What the tick is now is
asked of the file system itself, by a write: its clock is the one that counts, of whatever machine and step. Git does
the same with its index ("racy git").
"""

import os
import time
from collections.abc import Callable

from fleet.keep.errors import DiskError
from fleet.keep.unchanged import SETTLED_NS
from fleet.keep.workspace import Workspace
from fleet.recall import ready
from fleet.recall.ready import Seen

WAIT_S = 0.025
"""How long the next tick is waited for: the slowest of Linux' own take 10 ms."""

_MARK = f"{ready.FOLDER}/tick"
_COARSE_NS = 1_000_000_000


def looks(workspace: Workspace, paths: Callable[[], list[str]]) -> dict[str, Seen] | None:
    """Return what ``ready.looks`` does, of files none of which can be written from now on and look the same.

    None where that cannot be told: a file was written just now, and the file system counts in seconds; or the tick
    cannot be asked for, as nothing can be written here.

    Args:
        workspace: where.
        paths: lists the files, below the root: asked again, since one may come while they are looked at.
    """
    until, root = time.monotonic() + WAIT_S, os.fspath(workspace.root)
    mark = f"{root}{os.sep}{_MARK}"
    while True:
        named = paths()
        stats = {path: _stat(f"{root}{os.sep}{path}") for path in named}
        try:
            workspace.disk.note(mark, b"\n")
        except DiskError:
            return None
        now = os.stat(mark)  # noqa: PTH116
        if paths() == named and not any(seen is not None and _is_in_doubt(seen, now) for seen in stats.values()):
            return {path: [] if seen is None else ready.look_of(path, seen) for path, seen in stats.items()}
        if time.monotonic() >= until or now.st_mtime_ns % _COARSE_NS == 0:
            return None
        time.sleep(0.001)


def _is_in_doubt(seen: os.stat_result, now: os.stat_result) -> bool:
    """Tell whether the next write may leave the same times. A stamp far ahead was set by hand, or by another clock."""
    if seen.st_dev != now.st_dev:  # another file system, another clock
        return abs(time.time_ns() - seen.st_ctime_ns) < SETTLED_NS
    return any(
        0 <= ahead < SETTLED_NS for ahead in (seen.st_ctime_ns - now.st_ctime_ns, seen.st_mtime_ns - now.st_mtime_ns)
    )


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except OSError:
        return None
