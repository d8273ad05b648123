"""A remote in memory: the promises of git's, deterministic, with every fault at hand. For simulation and tests."""

import itertools
from dataclasses import dataclass
from threading import Lock

from fleet.share.remote import Files, Mark, Moved, RemoteRefused, RemoteUnavailable, Whole, check_outgoing

_SAFE = "nothing is lost; what was to go out goes out with the next sync"


@dataclass(frozen=True, slots=True)
class _Commit:
    parent: Mark
    tree: Files


class MemoryServer:
    """What several remotes share: a line of trees and its head.

    The attributes are the faults: set one, and the next calls meet it.
    """

    def __init__(self) -> None:
        self.is_down = False
        self.drops_next_reply = False
        """The next push lands, but whoever pushed does not hear of it."""
        self.refusal = ""
        """Not empty: pushes are refused with these words."""
        self.head: Mark = ""
        self._commits: dict[Mark, _Commit] = {}
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def tree(self, mark: Mark | None = None) -> Files:
        """Return the files at a mark, by default at the head. Unknown and empty marks have none."""
        commit = self._commits.get(self.head if mark is None else mark)
        return dict(commit.tree) if commit else {}

    def knows(self, mark: Mark) -> bool:
        """Tell whether there is a commit of that mark."""
        return mark in self._commits

    def rewind(self, steps: int = 1) -> None:
        """Force the head back to an older commit."""
        for _ in range(steps):
            self.head = self._commits[self.head].parent

    def delete(self) -> None:
        """Remove the branch."""
        self.head = ""

    def marks(self) -> list[Mark]:
        """Return the marks of all commits ever made, oldest first."""
        return list(self._commits)

    def parent(self, mark: Mark) -> Mark:
        """Return the mark before one, or "" before the first."""
        return self._commits[mark].parent

    def commit(self, tree: Files) -> Mark:
        """Put a whole tree on top of the head, as somebody with plain git does: a revert, a merge."""
        with self._lock:
            self.head = self._commit(self.head, {path: data for path, data in tree.items() if data})
            return self.head

    def replace(self, files: Files) -> Mark:
        """Force a history that has nothing to do with the one before."""
        self.head = self._commit("", dict(files))
        return self.head

    def change(self, files: Files, on: Mark) -> Mark | Moved:
        """Lay files over the head if it is where the caller thinks."""
        with self._lock:
            if self.head != on:
                return Moved(f"the head is at {self.head or 'nothing'}, not at {on or 'nothing'}")
            tree = self.tree() | files
            self.head = self._commit(on, {path: data for path, data in tree.items() if data})
            return self.head

    def is_ancestor(self, older: Mark, newer: Mark) -> bool:
        """Tell whether a history contains a commit."""
        while newer and newer != older:
            newer = self._commits[newer].parent
        return newer == older

    def _commit(self, parent: Mark, tree: Files) -> Mark:
        mark = f"m{next(self._numbers)}"
        self._commits[mark] = _Commit(parent, tree)
        return mark


class MemoryRemote:
    """One machine's way to a ``MemoryServer``."""

    def __init__(self, server: MemoryServer, name: str = "memory") -> None:
        self.name = name
        self.warnings: list[str] = []
        self.skipped = 0
        self._server = server

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        """Return what changed since a mark, and the mark of the state it leads to."""
        server = self._up()
        head = server.head
        if not server.knows(since):
            return Whole(server.tree(head)), head
        if head == since:
            return {}, head
        old, new = server.tree(since), server.tree(head)
        if not head:
            self.warnings.append(f"{self.name}: nothing is there any more; the next push brings it back")
        elif not server.is_ancestor(since, head):
            self.warnings.append(f"{self.name}: the remote's history was rewritten; nothing that was read goes back")
        gone = {path: b"" for path in old if path not in new}
        return gone | {path: data for path, data in new.items() if old.get(path) != data}, head

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:  # noqa: ARG002
        """Lay files over the state ``on``. The message goes nowhere."""
        check_outgoing(files)
        if not files:
            return on
        server = self._up()
        if server.refusal:
            raise RemoteRefused(f"{self.name} refused the push: {server.refusal}; {_SAFE}")
        done = server.change(files, on)
        if server.drops_next_reply:
            server.drops_next_reply = False
            raise RemoteUnavailable(f"{self.name}: no answer; {_SAFE}")
        return done

    def _up(self) -> MemoryServer:
        if self._server.is_down:
            raise RemoteUnavailable(f"{self.name}: not reachable; {_SAFE}")
        return self._server
