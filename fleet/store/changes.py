"""Search of a folder tree for files that changed since a moment, with a limit on entries and on time; fingerprints.

Each file's *change* time (ctime) is compared, not its modification time: it moves with every write, and also with
commands that keep the modification time: ``chmod +x``, ``mv``, ``cp -p``, ``tar x``. Nobody can set it back. A folder's
time moves when something in it is deleted. Beyond a limit the answer is yes, which is the safe one: no attempt is
stopped. The module uses only the standard library, since hooks import it.
"""

# ruff: noqa: PTH113, PTH116, PTH118, PTH120, PTH206
# Paths are texts here: pathlib alone would take 5 ms, on every tool call.
from __future__ import annotations

import os
import stat
import time

from fleet.store import homes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRIES_MAX = 30_000
SECONDS_MAX = 0.6
CLOCK_TICK_S_MAX = 0.012  # the kernels that stamp files by a coarse clock move it every 1 to 10 ms
MADE_TOGETHER_NS = 20_000_000  # a folder is stamped as late after the one it is made in
_POLL_S = 0.0005
_NAMES_BYTES_MAX = 64 * 1024

SKIPPED = frozenset(
    str.split(
        ".git .hg .svn .jj .fleet node_modules bower_components __pycache__ .venv venv .tox .nox .eggs .mypy_cache "
        ".ruff_cache .pytest_cache .hypothesis .cache .gradle .next .nuxt .svelte-kit .turbo .parcel-cache .angular "
        ".dart_tool .terraform .bazel target build dist out coverage htmlcov .nyc_output .idea .vscode .claude .codex "
        ".gemini .copilot .opencode .cursor"
    )
)
"""Folders that version control, builds, tests, editors and hosts write for themselves: changes there do not count."""

_CLAN = "clan-learnings"
_OWN_AT_THE_ROOT = frozenset(str.split(".agents.local.md .agents"))


class Changes:
    """The files of a workspace, and which of them changed, by their times."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = root

    def mark(self) -> str:
        """Return the mark of this very folder; "" where it has none yet.

        It is the time at which ``.fleet/ready/here`` was made, in nanoseconds. Nobody can set that time, so whoever
        wrote a ``.fleet`` that a repository brings along cannot know it.
        """
        try:
            status = os.lstat(os.path.join(self._root, ".fleet", "ready", "here"))
        except OSError:
            return ""
        return str(status.st_ctime_ns) if stat.S_ISREG(status.st_mode) else ""

    def named(self) -> list[str]:
        """Return the agents that were named in this very folder; none where the file of their names lacks its mark."""
        data = homes.read(os.path.join(self._root, ".fleet", "ready", "named"), _NAMES_BYTES_MAX)
        mark, *agents = data.decode("ascii", "replace").split() or [""]
        return agents if mark == self.mark() != "" else []

    def any_since(self, cwd: str, since_ns: int) -> bool:
        """Return whether a file below the workspace's root, or below ``cwd``, changed at or after a moment.

        ``cwd``: where the command runs; "" when it is not known.
        ``since_ns``: as ``moment`` gave it. A change in that very tick of the file system's clock counts.
        """
        walk = _Walk(os.fspath(os.path.realpath(self._root)), since_ns, time.monotonic() + SECONDS_MAX)
        folders = [walk.root]
        if cwd:
            inside = os.path.realpath(cwd)
            below = os.path.relpath(inside, walk.root).split(os.sep)
            if below[0] == os.pardir:
                folders.append(_worktree(inside, walk.root) or inside)
            elif not SKIPPED.isdisjoint(below) and (worktree := _worktree(inside, walk.root)):
                folders.append(worktree)
        return any(walk.has_change(folder) for folder in folders)

    def is_own(self, path: str) -> bool:
        """Return whether a path is fleet's own: to write a log there does not fix a failure."""
        below = os.path.relpath(os.path.realpath(path), os.path.realpath(self._root))
        parts = below.split(os.sep)
        if parts[0] in (".fleet", _CLAN) or parts[0] in _OWN_AT_THE_ROOT:
            return True
        above = homes.Homes(self._root).current().split("/")
        names = parts[len(above) + 1 :]
        return parts[: len(above)] == above and bool(names) and homes.is_own(names)

    def fingerprints(self, paths: Iterable[str]) -> dict[str, list[int]]:
        """Return the fingerprint of each path below the root: size (0 of a folder), times, inode; [] for none."""
        by_path: dict[str, list[int]] = {}
        for path in paths:
            try:
                status = os.stat(os.path.join(self._root, path))
            except OSError:
                by_path[path] = []
            else:
                size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
                by_path[path] = [size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]
        return by_path


def _worktree(folder: str, root: str) -> str:
    """Return the git worktree that a folder is in, outside the root or in a folder that is skipped; "" for none."""
    while folder not in (root, os.path.dirname(folder)):
        if os.path.isfile(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def moment(handle: int) -> int:
    """Return the file system's clock in ns: everything that was written before the call has an earlier time.

    The clock is read by touching an open file of ours, since the system's own clock may run ahead of the one that
    stamps files. The function waits for the next tick, at most ``CLOCK_TICK_S_MAX``, so that what a build wrote is
    earlier. Where ticks are longer (seconds, on some file systems), a file of the same tick counts as changed.
    """
    first = _touched(handle)
    until = time.monotonic() + CLOCK_TICK_S_MAX
    while (now := _touched(handle)) == first and time.monotonic() < until:
        time.sleep(_POLL_S)
    # A file server's clock may be ahead of ours; of both, the earlier is the safe one.
    return min(now, time.time_ns())


def _touched(handle: int) -> int:
    os.utime(handle)
    return os.fstat(handle).st_mtime_ns


class _Walk:
    def __init__(self, root: str, since_ns: int, until: float) -> None:
        self.root = root
        self.homes = os.path.join(root, *homes.Homes(root).current().split("/"))
        self.since_ns = since_ns
        self.until = until
        self.left = ENTRIES_MAX

    def has_change(self, folder: str) -> bool:
        """Walk down from a folder; unreadable entries are skipped."""
        pending = [folder]
        while pending:
            path = pending.pop()
            if time.monotonic() > self.until:
                return True
            try:
                if os.lstat(path).st_ctime_ns >= self.since_ns and not self._is_our_doing(path):
                    return True
                with os.scandir(path) as entries:
                    for entry in entries:
                        self.left -= 1
                        if self.left < 0:
                            return True
                        if self._is_skipped(path, entry.name):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        elif entry.stat(follow_symlinks=False).st_ctime_ns >= self.since_ns:
                            return True
            except OSError:
                continue
        return False

    def _is_skipped(self, folder: str, name: str) -> bool:
        if name in SKIPPED or (folder == self.root and (name == _CLAN or name in _OWN_AT_THE_ROOT)):
            return True
        return os.path.dirname(folder) == self.homes and homes.is_own([name])

    def _is_our_doing(self, folder: str) -> bool:
        """Return whether a folder's time moved by fleet alone: it replaces files there, or made a folder in it."""
        if self.homes in (folder, os.path.dirname(folder)):
            return True
        ours = [_CLAN, ".fleet", *_OWN_AT_THE_ROOT] if folder == self.root else []
        if self.homes.startswith(folder + os.sep):
            ours.append(os.path.relpath(self.homes, folder).split(os.sep)[0])
        return any(_was_made_last(folder, name) for name in ours)


def _was_made_last(folder: str, name: str) -> bool:
    """Return whether the last entry that came to a folder, or left it, was this one."""
    try:
        made = os.lstat(os.path.join(folder, name)).st_ctime_ns
    except OSError:
        return False
    return abs(os.lstat(folder).st_ctime_ns - made) <= MADE_TOGETHER_NS
