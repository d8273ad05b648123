"""A remote and a tree store in memory: the promises of git's, deterministic, with every fault at hand."""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from threading import Lock
from typing import IO

from fleet.share.remote import Files, Mark, Moved, RemoteRefused, RemoteUnavailable, check_outgoing
from fleet.store.git import Bare
from fleet.store.tree import GitTree, Paths, TreeGoneError, is_clan_path
from fleet.store.tree import _Blob as Blob
from tests.pulling import Whole

_SAFE = "nothing is lost; what was to go out goes out with the next sync"


@dataclass(frozen=True, slots=True)
class _Commit:
    parents: tuple[Mark, ...]
    tree: Files


class MemoryServer:
    """The far side of several remotes: commits with their trees, and the head.

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
            self.head = self.parent(self.head)

    def delete(self) -> None:
        """Remove the branch."""
        self.head = ""

    def marks(self) -> list[Mark]:
        """Return the marks of all commits ever made, oldest first."""
        return list(self._commits)

    def parent(self, mark: Mark) -> Mark:
        """Return the first mark before one, or "" before the first."""
        return next(iter(self._commits[mark].parents), "")

    def commit(self, tree: Files, merged: Mark = "") -> Mark:
        """Put a whole tree on top of the head, as somebody with plain git does: a revert, or a merge with a mark."""
        with self._lock:
            parents = [mark for mark in (self.head, merged) if mark]
            self.head = self._commit(parents, {path: data for path, data in tree.items() if data})
            return self.head

    def replace(self, files: Files) -> Mark:
        """Force a history that has nothing to do with the one before."""
        self.head = self._commit([], dict(files))
        return self.head

    def change(self, files: Files, on: Mark) -> Mark | Moved:
        """Lay files over the head if it is where the caller thinks."""
        with self._lock:
            if self.head != on:
                return Moved(f"the head is at {self.head or 'nothing'}, not at {on or 'nothing'}")
            tree = self.tree() | files
            self.head = self._commit([on] if on else [], {path: data for path, data in tree.items() if data})
            return self.head

    def ancestors(self, mark: Mark) -> set[Mark]:
        """Return a mark and all in its history."""
        found: set[Mark] = set()
        waiting = [mark]
        while waiting:
            if (each := waiting.pop()) and each not in found:
                found.add(each)
                waiting += self._commits[each].parents
        return found

    def copy_to(self, tree: "MemoryTree", mark: Mark) -> None:
        """Bring a mark and its history into a tree store, as a fetch does."""
        for each in self.ancestors(mark):
            if not tree.knows(each):
                tree.add(each, self._commits[each].parents, self._commits[each].tree)

    def _commit(self, parents: Sequence[Mark], tree: Files) -> Mark:
        mark = f"m{next(self._numbers)}"
        self._commits[mark] = _Commit(tuple(parents), tree)
        return mark


class MemoryRemote:
    """The way of one machine to a ``MemoryServer`` whose commits come into the machine's own tree store, as git's do.

    Args:
        server: the far side.
        tree: the machine's tree store.
        name: for people.
    """

    def __init__(self, server: MemoryServer, tree: "MemoryTree | GitTree", name: str = "memory") -> None:
        self.name = name
        self.warnings: list[str] = []
        self.skipped = 0
        self._server = server
        self._tree = tree
        self._commits: dict[Mark, Mark] = {"": ""}
        """Where the tree store is git's: mark to the commit that was made of it, always the same one."""

    def fetch(self, since: Mark) -> Mark:
        """Bring the head into the tree store and return it."""
        return self._brought(self.pull(self._mark_of(since))[1])

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
        elif since not in server.ancestors(head):
            self.warnings.append(f"{self.name}: the remote's history was rewritten; nothing that was read goes back")
        gone = {path: b"" for path in old if path not in new}
        return gone | {path: data for path, data in new.items() if old.get(path) != data}, head

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Lay files over the state ``on``. The message goes nowhere."""
        check_outgoing(files)
        if not files:
            return on
        server = self._up()
        if server.refusal:
            raise RemoteRefused(f"{self.name} refused the push: {server.refusal}; {_SAFE}")
        done = server.change(files, self._mark_of(on))
        if server.drops_next_reply:
            server.drops_next_reply = False
            raise RemoteUnavailable(f"{self.name}: no answer; {_SAFE}")
        return self._brought(done) if isinstance(done, str) else done

    def _brought(self, mark: Mark) -> Mark:
        """Bring a mark and its history into the tree store; return the commit that it is there."""
        if isinstance(self._tree, MemoryTree):
            self._server.copy_to(self._tree, mark)
            return mark
        if mark not in self._commits:
            parent = self._server.parent(mark)
            on, old, new = self._brought(parent), self._server.tree(parent), self._server.tree(mark)
            bare = Bare(self._tree.folder, listings=self._tree.listings)
            with bare.locked():
                self._commits[mark] = bare.commit(dict.fromkeys(old, b"") | new, on, message=mark)
        return self._commits[mark]

    def _mark_of(self, commit: Mark) -> Mark:
        if isinstance(self._tree, MemoryTree):
            return commit
        for mark in self._server.marks():
            self._brought(mark)
        return next((mark for mark, known in self._commits.items() if known == commit), "unknown")

    def _up(self) -> MemoryServer:
        if self._server.is_down:
            raise RemoteUnavailable(f"{self.name}: not reachable; {_SAFE}")
        return self._server


class MemoryTree:
    """A tree store in memory: the promises of ``GitTree``."""

    def __init__(self) -> None:
        self._head = ""
        self._commits: dict[str, tuple[tuple[str, ...], Paths]] = {}
        self._blobs: dict[str, bytes] = {}

    def head(self) -> str:
        """Return the commit that is taken in."""
        return self._head

    def paths(self, commit: str) -> Paths:
        """Return the clan's files in a commit's tree."""
        if not commit:
            return {}
        if commit not in self._commits:
            raise TreeGoneError(f"the commit {commit} is not here")
        return dict(self._commits[commit][1])

    def read(self, oid: str) -> bytes:
        """Return the bytes behind one id."""
        if oid not in self._blobs:
            raise TreeGoneError(f"the content {oid} is not here")
        return self._blobs[oid]

    def open(self, oid: str) -> AbstractContextManager[IO[bytes]]:
        """Hold the bytes behind one id open for reading."""
        return BytesIO(self.read(oid))

    def reading(self) -> AbstractContextManager[None]:
        """Return a block in which much is read."""
        return nullcontext()

    def move(self, commit: str) -> None:
        """Take a commit for the one that is taken in."""
        self._head = commit

    def descends(self, new: str, old: str) -> bool:
        """Tell whether a commit is another one or has it in its history."""
        seen, waiting = set[str](), [new]
        while old and waiting:
            if (commit := waiting.pop()) == old:
                return True
            if commit not in seen and commit in self._commits:
                seen.add(commit)
                waiting += self._commits[commit][0]
        return not old

    def before(self, at_s: float) -> str:
        """Return the commit that was taken in as of a moment: all were made in the first second of 1970."""
        return self._head if at_s > 1 else ""

    def pushers(self, folder: str, since: str = "") -> dict[str, set[str]] | None:
        """Return who committed to each file of a folder; None where a commit is not in the tree's history."""
        if not self.descends(self._head, since):
            return None
        return {path: {"fleet@localhost"} for path in self.paths(self._head) if path.startswith(f"{folder}/")}

    def forget_history(self) -> None:
        """Let go of every commit behind the one that is taken in."""
        if self._head:
            self._commits = {self._head: ((), self._commits[self._head][1])}
            kept = {oid for oid, _ in self._commits[self._head][1].values()}
            self._blobs = {oid: data for oid, data in self._blobs.items() if oid in kept}

    def put(self, files: Mapping[str, bytes], on: str) -> str:
        """Make a commit of files over the tree of another one."""
        whole = {path: self.read(oid) for path, (oid, _) in self.paths(on).items()} | {**files}
        names = [on, *(f"{path} {_id(data)}" for path, data in sorted(whole.items()) if data)]
        return self.add(_id("\n".join(names).encode()), [on] if on else [], whole)

    def add(self, commit: str, parents: Sequence[str], files: Mapping[str, bytes]) -> str:
        """Take in a commit that somebody else made, with its whole tree."""
        paths = {path: Blob(_id(data), len(data)) for path, data in files.items() if data and is_clan_path(path)}
        self._blobs |= {oid: files[path] for path, (oid, _) in paths.items()}
        self._commits[commit] = (tuple(parents), paths)
        return commit

    def has(self, path: str) -> bool:
        """Tell whether anything stands at a path of the tree that is taken in."""
        return path in self.paths(self._head)

    def knows(self, commit: str) -> bool:
        """Tell whether a commit is here."""
        return commit in self._commits


def _id(data: bytes) -> str:
    return blake2b(data, digest_size=20).hexdigest()
