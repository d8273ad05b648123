"""The world of a simulation: disks on which power fails, remotes that others may push to, machines, and the ledger."""

import copy
import functools
import gc
import os
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleet.app import moving
from fleet.share.remote import Files as Sent
from fleet.share.remote import Mark, Moved
from fleet.store.database import SCHEMA_NUMBER, Database
from fleet.store.files import Files
from fleet.store.workspace import Workspace
from tests.memory_remote import MemoryRemote, MemoryServer, MemoryTree
from tests.sim.people import Held, held_in

START_MS = 1_795_219_200_000  # 2026-11-21
_parsed = functools.lru_cache(maxsize=1_024)(tomllib.loads)
_transaction = Database.transaction


class CrashError(BaseException):
    """The machine lost its power; none of fleet's code may catch this."""


class Power:
    """The power of one machine, which can be set to fail at the n-th durable step from now."""

    def __init__(self) -> None:
        self.steps_left = -1
        self.torn_share = 0.0

    def step(self, tear: Callable[[float], object] = bool) -> None:
        """Count a durable step, or fail at it: then ``tear`` does a part of it."""
        if self.steps_left == 0:
            self.steps_left = -1
            tear(self.torn_share)
            raise CrashError
        self.steps_left -= self.steps_left > 0


POWERS: dict[Path, Power] = {}
"""The power of each workspace, by its root; a database finds its own here, since it is handed none."""


@contextmanager
def _powered_transaction(self: Database, *rest: object, **more: object) -> Iterator[object]:
    power = POWERS.get(self.path.parent.parent) if self.path is not None else None
    with _transaction(self, *rest, **more) as connection:
        before = _contents(connection) if power is not None else None
        yield connection
        # A file that is young by the real clock is read again. That depends on the test's speed, so no power fails.
        if power is not None and _contents(connection) == before:
            power = None
        if power is not None:
            power.step()
    if power is not None:
        power.step()


def _contents(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return what a transaction can change, except for the fingerprints of files."""
    asked = "SELECT key, value FROM meta UNION ALL SELECT path, oid FROM tree UNION ALL SELECT id, base FROM outbox"
    return [*connection.execute(asked), *connection.execute("SELECT path, size, hash, oid FROM file")]


@contextmanager
def simulated() -> Iterator[None]:
    """Let power fail at transactions too, let purge ask no remote, and parse each of a few TOML files once."""
    loads, share, was_on = tomllib.loads, moving._compact_remote, gc.isenabled()
    tomllib.loads, moving._compact_remote = _parsed, lambda *_, **__: "it is simulated"
    Database.transaction = _powered_transaction
    gc.disable()
    try:
        yield
    finally:
        tomllib.loads, moving._compact_remote, Database.transaction = loads, share, _transaction
        POWERS.clear()
        if was_on:
            gc.enable()


class SimFiles(Files):
    """Files that never wait for the disk, and on which power can fail at each durable step."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.power = POWERS.setdefault(root, Power())
        self.unsure: dict[Path, int] = {}
        """Size that is surely on the disk, by file, of files that were appended to without waiting for the disk."""

    def append(self, path: Path, data: bytes, *, is_durable: bool = True) -> None:
        """Append; without ``is_durable`` the data may be gone after a crash."""
        before = path.stat().st_size if path.exists() else 0
        super().append(path, data, is_durable=is_durable)
        if is_durable:
            self.unsure.pop(path, None)
        else:
            self.unsure.setdefault(path, before)

    def forget_unsure(self) -> None:
        """Cut off what nobody waited for, as a power failure may."""
        for path, size in self.unsure.items():
            with suppress(FileNotFoundError):
                os.truncate(path, min(size, path.stat().st_size))
        self.unsure.clear()

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.power.step()
        super().remove(path)

    def _fsync(self, handle: int) -> None:
        pass

    def _write_all(self, handle: int, data: bytes) -> None:
        self.power.step(lambda share: os.write(handle, data[: int(len(data) * share)]))
        super()._write_all(handle, data)

    def _rename(self, source: Path, target: Path) -> None:
        self.power.step()
        super()._rename(source, target)
        self.unsure.pop(target, None)
        self.power.step()


class SimTree(MemoryTree):
    """A tree store on which power can fail before and after the head is moved."""

    power = Power()

    def move(self, commit: str) -> None:
        """Move the head."""
        self.power.step()
        super().move(commit)
        self.power.step()

    def copied(self) -> "SimTree":
        """Return a copy, as a copied folder holds it."""
        twin = copy.copy(self)
        twin._commits, twin._blobs, twin.power = dict(self._commits), dict(self._blobs), Power()
        return twin


class SimRemote(MemoryRemote):
    """A remote to which others may push first; it checks that no push loses knowledge or leaks private words.

    Args:
        server: the server behind it.
        tree: the machine's tree store.
        meanwhile: called between a pull and the push; lets others sync first.
        secret: returns the words that must never leave the machine.
        superseded: hashes of carried lines that somebody took out on purpose.
    """

    def __init__(
        self,
        server: MemoryServer,
        tree: MemoryTree,
        meanwhile: Callable[[], None] = lambda: None,
        secret: Callable[[], Iterable[str]] = list,
        superseded: Iterable[str] = (),
    ) -> None:
        super().__init__(server, tree)
        self.meanwhile = meanwhile
        self.secret = secret
        self.superseded = superseded

    def push(self, files: Sent, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Push; even if the reply gets lost, what arrived must cover what was there."""
        self.meanwhile()
        for path, data in files.items():
            leaked = [word for word in self.secret() if word.encode() in data]
            assert not leaked, f"{leaked} leave in {path}"
        server = self._server
        head, before = server.head, server.tree()
        try:
            return super().push(files, on, message=message)
        finally:
            if server.head != head:
                assert_covers(server.tree(), before, self.superseded)


def assert_covers(tree: Sent, before: Sent, superseded: Iterable[str] = ()) -> None:
    """Check that a reader of the new tree alone knows all that the old one said."""
    if all(tree.get(path) == data for path, data in before.items()):
        return
    now, then = held_in(tree), held_in(before)
    gone = [entry for entry in then.entries() if not now.covers(entry) and getattr(entry, "hash", "") not in superseded]
    assert not gone, f"a push took out what nothing else says: {gone}"


@dataclass
class Machine:
    """One agent's folder, with its clock's error and the state of the simulation's faults.

    Attributes:
        root: the folder.
        agent: the agent that works in it.
        tree: its tree store.
        workspace: the open workspace, if a process goes on.
        skew_ms: the error of its clock.
        is_cut_off: it cannot reach the server.
        is_hurt: somebody took lines out of its files by hand, and no sync has put them back from the rows yet.
        is_unsure: it was restored from a snapshot after a clock had jumped, and has not synced yet.
        is_back: it was restored from a snapshot, and has not synced yet.
        schema: the number of its database's schema.
        kept: what its rows said when they were last checked.
        others: the other machines of the same image, whose folders lie elsewhere while this one runs.
        apart: where its own folder lies while another of its image runs.
        logged: what it did since its snapshot, as pairs of a thing and whether the clan surely has it. A thing is a
            lesson that it logged, ``("undone", lesson)``, or a set of the ledger and what was added to that.
    """

    root: Path
    agent: str
    tree: SimTree = field(default_factory=SimTree)
    workspace: Workspace | None = None
    skew_ms: int = 0
    is_cut_off: bool = False
    is_hurt: bool = False
    is_unsure: bool = False
    is_back: bool = False
    schema: int = SCHEMA_NUMBER
    kept: Held = field(default_factory=Held)
    others: list["Machine"] = field(default_factory=list)
    apart: Path | None = None
    snapshot: "Snapshot | None" = None
    logged: list[list] = field(default_factory=list)
    old_clan: Path | None = None
    old_database: bytes | None = None


@dataclass
class Snapshot:
    """A copy of a machine's folder, with its tree store."""

    folder: Path
    tree: SimTree
    is_hurt: bool
    schema: int


@dataclass
class Ledger:
    """What was acknowledged, and what may count besides.

    Attributes:
        seen: acknowledged occurrences by lesson.
        maybe: further occurrences by lesson that may count, as after a crash.
        logged: by run of a correction: the folder it was logged in, its lesson, and whether it is undone now.
        merged: pairs of ids that somebody merged.
        retired: ids of lessons that somebody retired.
        discoveries: ids of acknowledged discoveries.
        private: words that only private lessons have.
        replaced: (id, field, writer, stamp) of each edit that a later one replaced.
        purged: (id, field, writer, stamp) of each mark that a purge left.
        words: (words, id, field, writer, stamp) of each place where a secret was written.
        purged_carried: hashes of the lines of a newer version that a purge covered.
        superseded: hashes of carried lines that a newer version took out.
    """

    seen: Counter[str] = field(default_factory=Counter)
    maybe: Counter[str] = field(default_factory=Counter)
    logged: dict[str, tuple[str, str, bool]] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    retired: set[str] = field(default_factory=set)
    discoveries: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    replaced: set[tuple[str, str, str, str]] = field(default_factory=set)
    purged: set[tuple[str, str, str, str]] = field(default_factory=set)
    words: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    purged_carried: set[str] = field(default_factory=set)
    superseded: set[str] = field(default_factory=set)
