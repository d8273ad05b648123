"""Ingest: the join of line files and the fetched tree into the database, and the files that follow from a tree.

The inputs are the line files of one folder and the fetched tree. ``refresh`` joins what was added since the last
refresh; ``take`` moves to another tree and updates the files here to match it. Two rules (docs/adr/0017):

- Reading of a file or blob continues at the last offset only if the bytes before it still have the recorded hash.
- Content that the tree does not cover is written to a line file before the transaction that records it.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, wraps
from hashlib import blake2b
from io import BytesIO
from itertools import chain
from pathlib import Path
from sqlite3 import Connection
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import msgspec

from fleet.model import limits, line, names
from fleet.model.errors import BusyError, DiskError
from fleet.model.line import Carried, Line, Refused
from fleet.model.pattern import Policy
from fleet.store.database import (
    BUSY_S,
    TROUBLE,
    Database,
    get_meta,
    is_damage,
    is_unwritable,
    set_meta,
    without_indexes,
)
from fleet.store.files import Files, file_fingerprint, fingerprint, is_no_folder, is_plain
from fleet.store.lines import KINDS, PATTERNS, Entry, Kind, LineReader
from fleet.store.rows import Contents, FileTail, Rows
from fleet.store.tree import BLOB_BYTES_MAX, GitTree, TreeGoneError

if TYPE_CHECKING:
    from fleet.model.withheld import Held

T = TypeVar("T")
P = ParamSpec("P")

_QUICK_BUILD_BYTES_MAX = 8 * 1024 * 1024  # a first build of more than this is left to a caller who can wait
_FSYNC_FILES_MAX = 256  # more files than this are synced together, by sync(2)
_NAMED_MAX = 3  # files with conflict markers that a warning names
_REFUSED = "SELECT path, hash FROM refused ORDER BY path, hash"
_PUT_FILE = "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)"
_PUT_BLOB = "INSERT OR REPLACE INTO tree VALUES (?, ?, ?, ?)"


class Source(msgspec.Struct, frozen=True, order=True):
    """One line file: its path in the clan's folder, its kind, the file itself, and its fingerprint."""

    path: str
    kind: Kind
    file: Path
    look: str

    @classmethod
    def found(cls, path: str, kind: Kind, file: Path) -> "list[Source]":
        """Return the line file at a path as a list, which is empty if the file is missing or a link."""
        return [cls(path, kind, file, file_fingerprint(file))] if is_plain(file) else []


class Taken(msgspec.Struct):
    """Result of taking in a tree.

    Attributes:
        lost: entries that the tree before had and this one lacks; they are sent again.
        put_back: paths of files that lacked lines which the tree before had: deleted, or replaced by an older state.
        refused: path and checksum of the unreadable lines, of the files as they were and of those that were fetched.
        changed_ids: ids of records and discoveries that are new or changed here, and names of carried lines.
    """

    lost: list[Entry] = []
    put_back: list[str] = []
    refused: set[tuple[str, bytes]] = msgspec.field(default_factory=set)
    changed_ids: set[str] = msgspec.field(default_factory=set)


def clan_sources(clan: Path, own: Callable[[], Collection[str]] = tuple) -> list[Source]:
    """Return the line files of a clan's folder: editions first, then shards in order. Links are left out.

    Of more than ``limits.SHARDS_MAX`` shards, only the first ones and those of ``own`` replicas are returned.
    """
    sources = [each for kind in KINDS for each in Source.found(kind.edition, kind, clan / kind.edition)]
    for kind in KINDS:
        shards = _shards(clan / f"{kind.name}.d", kind)
        if len(shards) > limits.SHARDS_MAX:
            ours = {kind.shard(name) for name in own()}
            shards = [each for index, each in enumerate(shards) if index < limits.SHARDS_MAX or each.path in ours]
        sources += shards
    return sources


def _shards(folder: Path, kind: Kind) -> list[Source]:
    """Return the shards in a folder, sorted; none if the folder is missing or a link."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            plain = [each for each in entries if each.name[-6:] == ".jsonl" and each.is_file(follow_symlinks=False)]
            shards = [(entry, file_fingerprint(entry)) for entry in plain if names.is_replica(entry.name[:-6])]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(Source(f"{kind.name}.d/{entry.name}", kind, Path(entry.path), mark) for entry, mark in shards)


class _Plan(msgspec.Struct, frozen=True):
    """New content of a file here: the content of the tree at its path, then the lines that the tree does not cover.

    Attributes:
        oid: id of the tree's content at the path, "" for none; ``gains``: that has lines which the file here lacks.
        kept, leaving: the other lines of the file: those that stay, and those that the tree or a purge mark covers.
    """

    path: str
    oid: str
    kept: bytes
    leaving: bytes
    gains: bool


def _asked(query: Callable[Concatenate[Contents, P], T]) -> "Callable[Concatenate[Ingest, P], T]":
    """Return a query of the rows as a method of ``Ingest``, which refreshes them first."""

    @wraps(query)
    def ask(ingest: "Ingest", /, *args: P.args, **options: P.kwargs) -> T:
        return ingest.ask(lambda connection: query(Contents(connection), *args, **options))

    return ask


class Ingest(msgspec.Struct, kw_only=True, eq=False):
    """The database of one set of line files, kept up to date.

    Attributes:
        tree: the fetched tree; None for lines that never leave this machine.
        aside: returns the unreadable lines that are in quarantine, so that files need not keep them.
        changed: called with the generation after each change.
        withhold: stores the changes that a person must decide on, whose file each column came in, and who purged many
            lessons; returns the policy that leaves the changes out. None for lines that nobody else writes.
    """

    database: Database
    files: Files
    sources: Callable[[], list[Source]]
    policy: Callable[[], Policy]
    tree: GitTree | None
    clan: Path
    locks: Path
    quarantine: Callable[[list[Refused]], object] = bool
    aside: Callable[[], set[bytes]] = set
    warn: Callable[[str], object] = bool
    changed: Callable[[int], object] = bool
    withhold: Callable[[list["Held"], dict[tuple[str, str], str], dict[str, int]], Policy] | None = None
    _generation: int = 0
    _snapshot: bool | None = None  # inside a snapshot, whether it is up to date
    _is_behind: bool = False  # lines were written since the last refresh

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, act: Callable[[Connection], T]) -> T:
        """Refresh the rows and return what ``act`` reads from them; damaged rows are rebuilt and read again.

        Inside a ``snapshot`` the rows are not refreshed.
        """
        if self._snapshot is None:
            self.refresh()
        return self._read(act)

    def _read(self, act: Callable[[Connection], T]) -> T:
        try:
            return act(self.database.open() if self.database.exists else Database(None).open())
        except TROUBLE as why:
            self._mend(why)
        self.refresh()
        return act(self.database.open())

    def snapshot(self, wait_s: float = BUSY_S) -> AbstractContextManager[bool]:
        """Refresh once; while the block runs, queries answer from the rows as they are then.

        A snapshot within another is that one. Yields whether it is up to date (``refresh``).
        """
        return self._holding(self.refresh(wait_s) if self._snapshot is None else self._snapshot)

    def without_refresh(self) -> AbstractContextManager[bool]:
        """Let queries answer from the rows as they are while the block runs."""
        return self._holding(is_current=False)

    @contextmanager
    def _holding(self, is_current: bool) -> Iterator[bool]:
        before, self._snapshot = self._snapshot, is_current
        try:
            yield is_current
        finally:
            self._snapshot = before

    def refresh(self, wait_s: float = BUSY_S) -> bool:
        """Join what was written since the last refresh.

        Returns False, with the rows unchanged, if another process holds the write lock for all of ``wait_s``; also if a
        large clan's database is missing and ``wait_s`` is too short to build it.
        """
        try:
            return self._refreshed(wait_s)
        except TROUBLE as why:
            self._mend(why)
        return self._refreshed(wait_s)

    def _mend(self, why: Exception) -> None:
        """Delete a damaged database; answer from memory where it cannot be written; raise where neither helps."""
        if self.database.path is None:
            raise why
        if not is_damage(why):
            if not is_unwritable(why):
                raise why
            self._use_memory()
            return
        self.warn(f"{self.database.path} was damaged ({why}) and is made anew from the line files; nothing is lost")
        try:
            self.database.delete()
        except OSError:
            self._use_memory()

    def _refreshed(self, wait_s: float) -> bool:
        if not self._ensure_database(wait_s):
            return False
        connection = self.database.open()
        if self._is_stale(connection, self.sources()):
            try:
                with self.database.transaction(wait_s) as connection:
                    sources = self.sources()  # another process may have joined lines meanwhile
                    if self._is_stale(connection, sources):
                        self._join_all(connection, sources)
            except BusyError:
                return False
        self._notify()
        return True

    def _ensure_database(self, wait_s: float) -> bool:
        """Build the database where it is missing and may be written; return whether there is one."""
        path = self.database.path
        if path is None or self.database.is_open:
            return True
        if self._is_in_the_way(path):
            self._use_memory()
        elif not path.exists():
            folder = path.parent if path.parent.exists() else path.parent.parent
            if os.access(folder, os.W_OK):
                return self._build(wait_s)
            self._use_memory()
        return True

    def _is_in_the_way(self, path: Path) -> bool:
        """Return whether something else lies where the database belongs, or above it: links are never followed."""
        try:
            return is_no_folder(path.parent) or path.is_symlink() or path.is_dir()
        except OSError:
            return True

    def _use_memory(self) -> None:
        """Answer from memory: a folder that may only be read cannot open a database in WAL mode."""
        self.database.close()
        self.database = Database(None)

    def _build(self, wait_s: float) -> bool:
        """Build the database in a second file, so that nobody reads an incomplete one; return whether it was built."""
        path = self.database.path
        assert path is not None  # noqa: S101 - one in memory always exists
        if wait_s < BUSY_S and sum(_size(source.file) for source in self.sources()) > _QUICK_BUILD_BYTES_MAX:
            return False
        try:
            with self.files.lock(self.locks / f"{path.stem}.lock", wait_s):
                if not path.exists():
                    with self._made(".new") as fresh:
                        fresh.close()
                        Database(path).delete()  # the rest of one that was deleted in part
                        path.with_name(f"{path.name}.new").replace(path)
        except BusyError:
            return False
        return True

    @contextmanager
    def _made(self, suffix: str, *, is_searched: bool = True) -> Iterator[Database]:
        """Hold a new database built from all inputs, in a file beside ours that is deleted afterwards."""
        path = self.database.path
        assert path is not None  # noqa: S101 - asked of a file
        fresh = Database(path.with_name(path.name + suffix), durable=False)
        fresh.delete()
        try:
            fresh.open().execute("PRAGMA journal_mode = OFF")
            with fresh.transaction() as connection, without_indexes(connection, are_made=is_searched):
                self._join_all(connection, self.sources(), is_searched=is_searched)
            yield fresh
        finally:
            fresh.delete()

    def _notify(self) -> None:
        generation = int(get_meta(self.database.open(), "generation"))
        if generation != self._generation:
            self._generation = generation
            self.changed(generation)

    def invalidate(self) -> None:
        """Make every generation outdated until the next refresh, since lines were written that no row includes."""
        self._generation, self._is_behind = 0, True
        self.changed(0)

    def catch_up(self, wait_s: float) -> None:
        """Join the lines that were written since the last refresh, if there are any."""
        if self._is_behind:
            self._is_behind = not self.refresh(wait_s)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    @contextmanager
    def _changing(self) -> Iterator[Rows]:
        """Hold the rows in a transaction. If it fails, the next refresh joins the same lines."""
        try:
            with self.database.transaction() as connection:
                yield self._rows(connection)
        except sqlite3.Error as why:
            if not is_unwritable(why):
                raise
            raise DiskError(
                f"no space left for {self.database.path}, or it cannot be written ({why}); nothing is lost. "
                "Free some space",
                " and run the command again",
            ) from why

    def _rows(self, connection: Connection, *, is_searched: bool = True) -> Rows:
        is_watched = self.withhold is not None and self.database.path is not None
        return Rows(connection, self.policy(), is_watched=is_watched, is_searched=is_searched)

    # --- changes -----------------------------------------------------------------------------------------------------

    def _is_stale(self, connection: Connection, sources: Sequence[Source]) -> bool:
        known = dict(connection.execute("SELECT path, look FROM file"))
        return (
            known != {source.path: source.look for source in sources}
            or "" in known.values()
            or self._head() != get_meta(connection, "head")
            or Contents(connection).is_outdated(self.policy())
        )

    def _head(self) -> str:
        return self.tree.head() if self.tree is not None else ""

    def _join_all(self, connection: Connection, sources: Sequence[Source], *, is_searched: bool = True) -> None:
        """Join all that is new into the rows. The caller holds the transaction."""
        rows = self._rows(connection, is_searched=is_searched)
        rows.refold()
        if self.tree is not None and self._head() != get_meta(connection, "head"):
            # A person was asked about this tree before the ref moved to it. These rows only catch up: nobody is asked.
            is_watched, rows.is_watched = rows.is_watched, False
            self._join_tree(rows, self.tree, self._head())
            rows.is_watched = is_watched
        self._join_files(rows, sources)
        self._end(rows)

    def _end(self, rows: Rows) -> None:
        """End a transaction's joins; keep the lines that cannot be read, and what a person is asked about."""
        self._ask_about(rows)
        rows.end()
        if markers := rows.read.markers:
            paths = ", ".join(list(markers)[:_NAMED_MAX]) + ", ..." * (len(markers) > _NAMED_MAX)
            self.warn(
                f"{sum(markers.values())} conflict-marker lines were skipped in {paths}, and both sides were read: "
                "they do no harm, and whose file it is can delete them"
            )
        if rows.read.refused:
            self.quarantine(rows.read.refused)

    def _ask_about(self, rows: Rows) -> None:
        """Withhold what a person has to decide on. That is stored in another database, whatever this one commits."""
        if rows.arrivals is not None and self.withhold is not None:
            lessons = int(rows.connection.execute("SELECT count(*) FROM pattern WHERE listed").fetchone()[0])
            # Edits are counted over some time: in a live room, many messages may bring what one large one does.
            counted = json.loads(get_meta(rows.connection, "edited") or "{}")
            parts, purged = rows.arrivals.held(lessons, counted, self.policy().cut), rows.arrivals.purged(lessons)
            set_meta(rows.connection, "edited", json.dumps(counted))
            if parts or purged or rows.arrivals.brought:
                rows.refold(self.withhold(parts, rows.arrivals.brought, purged))
        rows.is_watched, rows.arrivals = False, None

    def _join_files(self, rows: Rows, sources: Sequence[Source]) -> None:
        connection = rows.connection
        noted = {row[0]: row[1:] for row in connection.execute("SELECT path, look, size, hash, oid FROM file")}
        for path in noted.keys() - {source.path for source in sources}:
            connection.execute("DELETE FROM file WHERE path = ?", (path,))
            rows.forget_refused(path)
            set_meta(connection, "shrunk", "1")
        changed = [each for each in sources if not each.look or each.look != noted.get(each.path, ("",))[0]]
        for kind in KINDS:
            with ExitStack() as stack:
                opened = (self._open(rows, each, noted.get(each.path), stack) for each in changed if each.kind is kind)
                rows.join(kind, (file.rest(connection) for file in opened if file is not None))

    def _open(
        self, rows: Rows, source: Source, noted: tuple[Any, ...] | None, stack: ExitStack
    ) -> "_FileReader | None":
        """Open a file at the offset read so far, or at its start if the bytes before changed; None for no file."""
        try:
            file = stack.enter_context(open(source.file, "rb", opener=_plainly))  # noqa: SIM115 - the stack does
        except OSError:
            return None
        look = fingerprint(os.fstat(file.fileno()))
        size, hash_, oid = noted[1:] if noted is not None else (0, b"", "")
        reader = _FileReader(file, source.path, look, oid)
        if size and not reader.skip(size, hash_):
            set_meta(rows.connection, "shrunk", "1")
            file.seek(0)
            reader = _FileReader(file, source.path, look)
        rows.forget_refused(source.path, behind=reader.rows)
        return reader

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _join_tree(self, rows: Rows, tree: GitTree, head: str) -> list[Entry]:
        """Join a tree; return the entries that the tree before it had and that it lacks.

        If shards of the tree only grew, their new lines are joined; otherwise the whole tree is compared with the rows.
        """
        connection = rows.connection
        lost: list[Entry] = []
        try:
            paths = _oids(tree, head)
            if (grown := _grown(connection, tree, paths)) is not None:
                for kind in KINDS:
                    tails = (FileTail(path, [data[start:]]) for path, data, start in grown if _kind(path) is kind)
                    rows.join(kind, tails, in_tree=True)
                blobs = [(path, paths[path], len(data), _hash(data)) for path, data, _ in grown]
                connection.executemany(_PUT_BLOB, blobs)
            else:
                old = get_meta(connection, "head")
                lost = rows.compare(_contents(connection, tree, paths), goes_on=bool(old) and tree.descends(head, old))
        except TreeGoneError as why:
            self.warn(str(why))
            if isinstance(why.__cause__, FileNotFoundError):
                return []  # git is missing, not the tree: that is read once git is there again
            head = ""
            lost = rows.compare(_contents(connection, tree, {}), goes_on=False)
            tree.move("")
        set_meta(connection, "head", head)
        return lost

    def take(self, commit: str, writer: str = "") -> Taken:
        """Move to another fetched tree, and bring the files here in step with it. The caller holds the write lock.

        In this order: questions to a person are stored, the ref moves, files gain lines, files lose lines, the commit.
        Content that only rows have is appended to the shards of ``writer``, a replica of our own.
        """
        assert self.tree is not None  # noqa: S101 - lines that never leave have no tree
        before = self.tree.head()
        try:
            self._ensure_database(BUSY_S)
            return self._taken(self.tree, commit, writer)
        except TROUBLE as why:
            self.tree.move(before)  # else the second try cannot tell what the old tree had and this one lacks
            self._mend(why)
        self.refresh()
        return self._taken(self.tree, commit, writer)

    def _taken(self, tree: GitTree, commit: str, writer: str) -> Taken:
        taken = Taken()
        with self._changing() as opened:
            connection, sources = opened.connection, self.sources()
            if self._is_stale(connection, sources):
                self._join_all(connection, sources)
            generation = int(get_meta(connection, "generation"))
            rows = self._rows(connection)  # those that were opened do not know what was just joined
            before = dict(connection.execute("SELECT path, oid FROM tree"))
            taken.lost = self._move(rows, tree, commit)
            oids = _oids(tree, self._head())
            plans = self._plans(rows, oids, {each.path: each.look for each in sources})
            taken.put_back = [each.path for each in plans if each.gains and before.get(each.path) == each.oid]
            lacks_lines = bool(get_meta(connection, "shrunk"))
            taken.refused.update(connection.execute(_REFUSED))
            self._follow(rows, plans)
            taken.refused.update(connection.execute(_REFUSED))
            if lacks_lines and writer:
                self._spill(rows, self.shards(writer))
            if writer:  # else the next writer puts it back
                set_meta(connection, "shrunk", "")
            self._end(rows)
            taken.changed_ids.update(Contents(connection).names(generation))
        self._notify()
        return taken

    def _move(self, rows: Rows, tree: GitTree, commit: str) -> list[Entry]:
        """Join a tree, store what a person is asked about, and move the ref; return the entries that the tree lacks."""
        lost = self._join_tree(rows, tree, commit) if commit != get_meta(rows.connection, "head") else []
        self._ask_about(rows)
        if get_meta(rows.connection, "head") == commit:
            tree.move(commit)
        return lost

    def _follow(self, rows: Rows, plans: Sequence[_Plan]) -> None:
        """Write the files that differ from the tree, and read them like any others: their bad lines are noted."""
        self._write(rows, plans)
        if plans:
            self._join_files(rows, self.sources())
        oids_by_path = [("" if plan.kept else plan.oid, plan.path) for plan in plans]
        rows.connection.executemany("UPDATE file SET oid = ? WHERE path = ?", oids_by_path)

    def _plans(self, rows: Rows, oids: dict[str, str], fingerprints: dict[str, str]) -> list[_Plan]:
        """Return a plan for each path, of the tree or of a file here, where the file differs from the tree's."""
        unchanged = set(rows.connection.execute("SELECT path, oid, look FROM file WHERE oid != '' AND look != ''"))
        compared = []
        for path in sorted(oids.keys() | fingerprints.keys(), key=lambda path: ("/" in path, path)):  # editions first
            oid = oids.get(path, "")
            if (path, oid, fingerprints.get(path, "")) in unchanged:
                continue
            if _size(self.clan / path) > BLOB_BYTES_MAX:
                self.warn(f"{path} is larger than {BLOB_BYTES_MAX:,} bytes: it is read, and left as it is")
                continue
            compared.append((path, oid, *self._compared(rows, path, oid)))
        aside, wanted = cache(self.aside), set[bytes]()  # the quarantine is only read if needed
        for kind in KINDS:
            lines = chain.from_iterable(own for path, _, own, _ in compared if _kind(path) is kind)
            wanted |= rows.wanted(kind, lines, aside)
        return [
            _Plan(
                path,
                oid,
                kept=_joined(raw for raw in own if raw in wanted),
                leaving=_joined(raw for raw in own if raw not in wanted),
                gains=gains,
            )
            for path, oid, own, gains in compared
        ]

    def _compared(self, rows: Rows, path: str, oid: str) -> tuple[dict[bytes, None], bool]:
        """Return the lines that a file here has and the tree's has not, and whether the tree's has others."""
        # Hashes are compared: the lines of two editions, or of one, would take several times the memory.
        with self._theirs(rows, _kind(path), oid) as theirs:
            is_here = {_hash(raw): False for raw in _raws(theirs)}
        own_lines: dict[bytes, None] = {}
        with self.files.open(self.clan / path) as mine:
            for raw in _raws(mine):
                if (hash_ := _hash(raw)) in is_here:
                    is_here[hash_] = True
                else:
                    own_lines[raw] = None
        return own_lines, not all(is_here.values())

    def _theirs(self, rows: Rows, kind: Kind, oid: str) -> AbstractContextManager[IO[bytes]]:
        """Hold open the tree's content at a path, without what purge marks cover."""
        if self.tree is None or not oid:
            return BytesIO()
        return BytesIO(rows.stripped(kind, self.tree.read(oid))) if rows.has_marks() else self.tree.open(oid)

    def _blocks(self, rows: Rows, plan: _Plan, leaving: bytes = b"") -> Iterator[bytes]:
        """Yield the new content of a file, followed by the lines in ``leaving``, block by block."""
        last = b"\n"
        with self._theirs(rows, _kind(plan.path), plan.oid) as theirs:
            while block := theirs.read(limits.BLOCK_BYTES):
                yield block
                last = block[-1:]
        if plan.kept or leaving:
            yield (b"" if last == b"\n" else b"\n") + plan.kept + leaving

    def shards(self, writer: str) -> Callable[[Kind], Path]:
        """Return what gives the path of a writer's shard of each kind."""
        return lambda kind: self.clan / kind.shard(writer)

    def _spill(self, rows: Rows, file: Callable[[Kind], Path]) -> None:
        """Append content of rows that neither the tree nor a file has to the file of its kind."""
        for kind in KINDS:
            contents = ([self.files.read(source.file)] for source in self.sources() if source.kind is kind)
            if missing := rows.missing(kind, contents):
                self.files.append(file(kind), missing)
        self._join_files(rows, self.sources())

    def lacks_lines(self) -> bool:
        """Return whether the last refresh found a file deleted or cut: rows may have content that no file has."""
        return bool(self._read(lambda db: get_meta(db, "shrunk")))

    def put_back(self, file: Callable[[Kind], Path]) -> None:
        """Add content of rows that neither tree nor file has to the file of its kind, which is our own.

        The caller holds the write lock. Lines that were deleted by hand come back: to remove a lesson, retire it.
        """
        self.refresh()
        with self._changing() as rows:
            self._spill(rows, file)
            set_meta(rows.connection, "shrunk", "")
            self._end(rows)

    def _write(self, rows: Rows, plans: Sequence[_Plan]) -> None:
        """Write the files that gain lines, and only then those that lose some."""
        gaining = [plan for plan in plans if plan.gains]
        is_durable = len(gaining) <= _FSYNC_FILES_MAX
        for plan in gaining:
            self._put(self.clan / plan.path, self._blocks(rows, plan, plan.leaving), is_durable=is_durable)
        if not is_durable:
            os.sync()  # for all files at once: an fsync of each takes a minute for ten thousand
        for plan in plans:
            if plan.leaving:
                self._put(self.clan / plan.path, self._blocks(rows, plan))

    def _put(self, file: Path, blocks: Iterator[bytes], *, is_durable: bool = True) -> None:
        if first := next(blocks, b""):
            self.files.write(file, chain([first], blocks), is_durable=is_durable)
        else:
            self.files.remove(file)

    def remove_unsent(self, id_: str, writer: str, parts: Sequence[str]) -> None:
        """Remove parts of one writer's column from files and rows, as far as the tree does not have them.

        The caller holds the write lock, and writes the parts elsewhere.
        """
        self.refresh()
        if self.lacks_lines():  # else parts that only rows have would stay there, and be sent
            self.put_back(self.shards(writer))
        with self._changing() as rows:
            base, is_changed = rows.base(id_), False
            for source in self.sources():
                if source.kind is PATTERNS and id_.encode() in (data := self.files.read(source.file)):
                    kept = _parted(data, id_, base, writer, parts)
                    if kept != data:
                        is_changed = True
                        self._put(source.file, iter([kept]))
                    rows.connection.execute("DELETE FROM file WHERE path = ?", (source.path,))  # it is read again
            if is_changed:
                rows.set_back(id_)
            rows.end()
        self.refresh()

    # --- queries -----------------------------------------------------------------------------------------------------

    outgoing = _asked(Contents.outgoing)
    undone_unsent = _asked(Contents.undone_unsent)
    names = _asked(Contents.names)
    entries = _asked(Contents.entries)
    edition = _asked(Contents.edition)
    carried = _asked(Contents.carried)

    def purged_ids(self) -> list[str]:
        """Return the ids of records with purge marks."""
        return self._column("SELECT id FROM pattern WHERE purges ORDER BY id")

    def stripped(self, kind: Kind, data: bytes) -> bytes:
        """Return a file's bytes without what purge marks cover; the same bytes where they cover nothing in it."""
        return self.ask(lambda db: Rows(db, self.policy()).stripped(kind, data))

    def differences(self) -> list[str]:
        """Return the ids of rows that differ from those of a new database: none, unless something is wrong."""
        self.refresh()
        with self._made(".check", is_searched=False) as fresh:
            return sorted(set(Contents(self.database.open()).differences(Contents(fresh.open()))))

    def refused(self) -> list[tuple[str, bytes]]:
        """Return path and checksum of each unreadable line that is kept, sorted."""
        return self.ask(lambda db: list(db.execute(_REFUSED)))

    def has_carried(self, entry: Carried) -> bool:
        """Return whether a line of a newer version is kept here, or was purged."""
        query = "SELECT 1 FROM carried WHERE hash = ? UNION ALL SELECT 1 FROM purged WHERE hash = ?"
        return bool(self._column(query, entry.hash, entry.hash))

    def future_ids(self) -> list[str]:
        """Return the ids of records with an edit from the future, which is left out until the clock reaches it."""
        return self._column("SELECT id FROM pattern WHERE held ORDER BY id")

    def newest_by(self) -> dict[str, str]:
        """Return the largest stamp of each writer that is not in the future; "" for none."""
        query = "SELECT name, iif(newest > ?, '', newest) FROM writer"
        return self.ask(lambda db: dict(db.execute(query, [self.policy().cut])))

    def ahead_of(self, name: str) -> str:
        """Return the largest stamp of a writer that ever had one in the future, else "", without a refresh."""
        query = "SELECT max(ahead) FROM writer WHERE name = ?"
        return str(self._read(lambda db: db.execute(query, [name]).fetchone()[0]) or "")

    def newest(self) -> str:
        """Return the largest stamp that this machine admits, "" for none, without a refresh."""
        return str(self._read(lambda db: db.execute("SELECT max(newest) FROM pattern").fetchone()[0]) or "")

    def noted(self, key: str) -> str:
        """Return a derived value that is stored in the database, "" for none. An open database is not refreshed."""
        read = self._read if self.database.is_open else self.ask
        return read(lambda db: get_meta(db, key))

    def note(self, key: str, value: str) -> None:
        """Store a derived value in the database."""
        if self.database.exists:
            self._read(lambda db: set_meta(db, key, value))

    def _column(self, query: str, *values: str) -> list[Any]:
        return self.ask(lambda db: [row[0] for row in db.execute(query, values)])


class _FileReader:
    """Reader of the unread end of an open file, with size, number and hash of the file's whole lines so far.

    ``oid``: id of the tree's content, if the part that was read before was equal to that.
    """

    def __init__(self, file: IO[bytes], path: str = "", look: str = "", oid: str = "") -> None:
        self._file, self._path, self._look, self._oid = file, path, look, oid
        self.rows = 0
        self._running = blake2b(digest_size=16)
        self._offset = 0
        self.size = 0
        self.hash = b""

    def skip(self, size: int, hash_: bytes) -> bool:
        """Skip what was read before; return False where that changed."""
        unread = size
        while unread:
            block = self._file.read(min(unread, limits.BLOCK_BYTES))
            if not block:
                return False
            self._running.update(block)
            self.rows += block.count(b"\n")
            unread -= len(block)
        self.size, self.hash = size, hash_
        return self._running.digest() == hash_

    def rest(self, connection: Connection) -> FileTail:
        """Return the unread end. Once that is consumed, the file is closed and the new offset is recorded."""
        return FileTail(self._path, self._rest(connection), self.rows + 1)

    def _rest(self, connection: Connection) -> Iterator[bytes]:
        yield from self.chunks()
        self._file.close()
        connection.execute(_PUT_FILE, (self._path, self._look, self.size, self.hash, self._oid))

    def read_whole(self) -> tuple[int, bytes]:
        """Return size and hash of all that was read, a last line without an end included."""
        return self._offset, self._running.digest()

    def chunks(self) -> Iterator[bytes]:
        offset = self.size
        while block := self._file.read(limits.BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            self._running.update(block[:end])
            if end:
                self.size, self.hash = offset + end, self._running.digest()
                self.rows += block.count(b"\n")
                self._oid = ""
            self._running.update(block[end:])
            offset += len(block)
            yield block
        self._offset = offset


def _grown(connection: Connection, tree: GitTree, paths: dict[str, str]) -> list[tuple[str, bytes, int]] | None:
    """Return (path, content, size before) of each shard of the tree that grew; None where anything else changed."""
    sizes = {row[0]: row[1:] for row in connection.execute("SELECT path, oid, size, hash FROM tree")}
    if not sizes or sizes.keys() - paths.keys():
        return None
    grown = []
    for path, oid in paths.items():
        had, size, hash_ = sizes.get(path, ("", 0, b""))
        if had == oid:
            continue
        if "/" not in path:
            return None
        data = tree.read(oid)
        if size and not (_hash(data[:size]) == hash_ and data[size - 1 : size] == b"\n"):
            return None
        grown.append((path, data, size))
    return grown


def _contents(
    connection: Connection, tree: GitTree, paths: dict[str, str]
) -> Iterator[tuple[Kind, str, Iterator[bytes]]]:
    """Yield kind, path and blocks of each file of a tree, and record each as read."""
    connection.execute("DELETE FROM tree")
    for path, oid in paths.items():
        with tree.open(oid) as content:
            reader = _FileReader(content)
            yield _kind(path), path, reader.chunks()
            connection.execute(_PUT_BLOB, (path, oid, *reader.read_whole()))


def _parted(data: bytes, id_: str, base: Line | None, writer: str, parts: Sequence[str]) -> bytes:
    """Return a file's bytes without parts of one writer's column of a record; lines that ``base`` has stay."""
    kept = []
    for raw in data.split(b"\n"):
        entry = LineReader().entry(PATTERNS, raw, "", 0) if raw else None
        if not isinstance(entry, Line) or entry.id != id_ or (base is not None and line.covers(base, entry)):
            kept.append(raw)
        elif not (rest := entry.split_column(writer, parts)[0]).is_empty():
            kept.append(line.encode(rest))
    return b"\n".join(kept)


def _oids(tree: GitTree, commit: str) -> dict[str, str]:
    """Return path -> id of the content of the line files in a tree, shards first: the edition is by far the longest."""
    paths = {path: oid for path, (oid, _) in tree.paths(commit).items() if Kind.of(path)}
    return dict(sorted(paths.items(), key=lambda item: ("/" not in item[0], item[0])))


def _kind(path: str) -> Kind:
    kind = Kind.of(path)
    assert kind is not None, path  # noqa: S101 - paths were sorted before
    return kind


def _plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _size(file: Path) -> int:
    """Return how many bytes a file has, 0 for one that is not there."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _raws(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that are not empty, without line ends."""
    for number, row in enumerate(file):
        raw = row.removesuffix(b"\n").removesuffix(b"\r")
        if raw := raw if number else raw.removeprefix(b"\xef\xbb\xbf"):
            yield raw


def _joined(raws: Iterable[bytes]) -> bytes:
    return b"".join(raw + b"\n" for raw in raws)
