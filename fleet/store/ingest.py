"""Fold of line files and the fetched tree into the database, and what the tree lacks of it.

Inputs are the line files of one folder and the tree as last fetched. ``refresh`` joins what came since; ``take`` moves
on to another tree and brings the files here in step with it. The rules (docs/adr/0016):

- A row is the join of all inputs. The *outbox* names the rows of which the tree does not have all, each with what the
  tree does have of it (its *base*): so a row minus its base is what goes out, and the tree's own join is the base where
  there is one, else the row.
- A file, or a blob of the tree, is read on from where it was read to only if its beginning has the hash that it had.
- What the tree does not cover stands in a line file before the transaction that says so.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar

import msgspec

from fleet.model import limits, line, names, pattern
from fleet.model.discovery import Discovery
from fleet.model.errors import BusyError
from fleet.model.lesson_id import normalise, pattern_id
from fleet.model.line import Carried, Line, Refused
from fleet.model.pattern import Policy
from fleet.store import lines
from fleet.store.database import (
    BUSY_S,
    TROUBLE,
    Database,
    checked,
    checksum,
    get_meta,
    is_damage,
    is_unwritable,
    set_meta,
)
from fleet.store.files import Files, fingerprint, look
from fleet.store.lines import DISCOVERIES, KINDS, PATTERNS, Entry, Kind, Read, kind_of
from fleet.store.tree import TreeGoneError, TreeStore
from fleet.text.similarity import indexed

T = TypeVar("T")

_AT_ONCE = 500
_WAITED_BYTES_MAX = 8 * 1024 * 1024  # a first build of more than this is left to somebody who can wait
_NO_HASH = b""


class Source(NamedTuple):
    """One line file: its path as the clan names it, its kind, and where it lies."""

    path: str
    kind: Kind
    file: Path


class Taken(msgspec.Struct):
    """What taking in a tree came to.

    Attributes:
        lost: what the tree had and no longer has: it goes out again.
        put_back: paths of files here that lacked what the tree held already: they were deleted, or set back.
    """

    lost: list[Entry] = []
    put_back: list[str] = []


class _Batch(NamedTuple):
    """Rows as they are, of some ids: id -> (row number, line); and the bases of those in the outbox."""

    rows: dict[str, tuple[int, bytes]]
    bases: dict[str, bytes | None]


def clan_sources(clan: Path) -> list[Source]:
    """Return the line files of a clan's folder: editions first, then shards in order. Links are no files."""
    found = [
        Source(kind.edition, kind, file)
        for kind in KINDS
        if (file := clan / kind.edition).is_file() and not file.is_symlink()
    ]
    for kind in KINDS:
        try:
            with os.scandir(clan / f"{kind.name}.d") as entries:
                names_ = sorted(
                    entry.name
                    for entry in entries
                    if entry.name.endswith(".jsonl")
                    and names.is_replica(entry.name.removesuffix(".jsonl"))
                    and entry.is_file(follow_symlinks=False)
                )
        except (FileNotFoundError, NotADirectoryError):
            continue
        if (clan / f"{kind.name}.d").is_symlink():
            continue
        found += [Source(f"{kind.name}.d/{name}", kind, clan / f"{kind.name}.d" / name) for name in names_]
    return found


class Ingest:
    """The database of one set of line files, kept up to date.

    Args:
        database: the rows.
        files: writes line files.
        sources: returns the line files there are now.
        policy: returns the policy of folds, as of now.
        tree: the fetched tree; None for lines that never leave this machine.
        clan: the folder that the tree's files are written to.
        locks: the folder of locks.
        quarantine: keeps refused lines.
        warn: takes what a person should be told.
        changed: is told the generation after each change.
    """

    def __init__(
        self,
        database: Database,
        files: Files,
        sources: Callable[[], list[Source]],
        policy: Callable[[], Policy],
        *,
        tree: TreeStore | None,
        clan: Path,
        locks: Path,
        quarantine: Callable[[list[Refused]], object] = bool,
        warn: Callable[[str], object] = bool,
        changed: Callable[[int], object] = bool,
    ) -> None:
        self.database = database
        self.tree = tree
        self.progress: Callable[[int, int], object] | None = None
        self.wait_s = BUSY_S
        self._files = files
        self._sources = sources
        self._policy = policy
        self._clan = clan
        self._locks = locks
        self._quarantine = quarantine
        self._warn = warn
        self._changed = changed
        self._generation = 0
        self._done_bytes = self._all_bytes = 0

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, act: Callable[[Connection], T]) -> T:
        """Bring the rows up to date and return what ``act`` finds in them; once more with new ones if they are damaged.

        Another process that is at it is waited for ``wait_s``; then the rows answer as they are.
        """
        self.refresh(self.wait_s)
        try:
            return act(self.database.open() if self.database.exists else Database(None).open())
        except TROUBLE as why:
            self._mend(why)
        self.refresh(self.wait_s)
        return act(self.database.open())

    def refresh(self, wait_s: float = BUSY_S) -> bool:
        """Join what was written since the last refresh.

        Returns False where another process does so and is not done within ``wait_s``: then the rows are as they were.
        A first build of a large clan is left to whoever can wait for it.
        """
        try:
            return self._refreshed(wait_s)
        except TROUBLE as why:
            self._mend(why)
        return self._refreshed(wait_s)

    def _mend(self, why: Exception) -> None:
        """Delete a damaged database; answer from memory where it cannot be written.

        Raises:
            Exception: what was raised, where neither helps.
        """
        if self.database.path is None:
            raise why
        if not is_damage(why):
            if not is_unwritable(why):
                raise why
            self._use_memory()
            return
        self._warn(f"{self.database.path} was damaged ({why}) and is made anew from the line files; nothing is lost")
        try:
            self.database.delete()
        except OSError:
            self._use_memory()

    def _refreshed(self, wait_s: float) -> bool:
        if not self.database.exists and self.database.path is not None:
            if self._may_write():
                return self._build(wait_s)
            self._use_memory()
        connection = self.database.open()
        if self._is_stale(connection):
            try:
                with self.database.transaction(wait_s) as connection:
                    if self._is_stale(connection):
                        self._fold_all(connection)
            except BusyError:
                return False
        self._tell()
        return True

    def _may_write(self) -> bool:
        folder = self.database.path.parent if self.database.path is not None else Path()
        return os.access(folder if folder.exists() else folder.parent, os.W_OK)

    def _use_memory(self) -> None:
        """Answer from memory: a folder that may only be read cannot open a database in WAL mode."""
        self.database.close()
        self.database = Database(None)

    def _build(self, wait_s: float) -> bool:
        """Make the database in a second file, and put it into its place: nobody ever reads half of it."""
        path = self.database.path
        assert path is not None  # noqa: S101 - one in memory always exists
        if wait_s < BUSY_S and sum(_size(source.file) for source in self._sources()) > _WAITED_BYTES_MAX:
            return False
        try:
            with self._files.lock(self._locks / f"{path.stem}.lock", wait_s):
                if not path.exists():
                    self._build_at(path)
        except BusyError:
            return False
        return self._refreshed(wait_s)

    def _build_at(self, path: Path) -> None:
        fresh = Database(path.with_name(f"{path.name}.new"), durable=False)
        fresh.delete()
        try:
            self.fold_into(fresh)
            fresh.close()
            for suffix in ("-wal", "-shm"):  # of a database that was deleted in part
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            assert fresh.path is not None  # noqa: S101
            fresh.path.replace(path)
        finally:
            fresh.delete()

    def fold_into(self, fresh: Database) -> None:
        """Fold all inputs into an empty database."""
        connection = fresh.open()
        connection.execute("PRAGMA journal_mode = OFF")
        with fresh.transaction() as connection:
            self._fold_all(connection)

    def _tell(self) -> None:
        generation = int(get_meta(self.database.open(), "generation"))
        if generation != self._generation:
            self._generation = generation
            self._changed(generation)

    # --- what changed ------------------------------------------------------------------------------------------------

    def _is_stale(self, connection: Connection) -> bool:
        known = dict(connection.execute("SELECT path, look FROM file"))
        sources = self._sources()
        if known.keys() != {source.path for source in sources}:
            return True
        if not all(known[source.path] and known[source.path] == look(source.file) for source in sources):
            return True
        if self._head() != get_meta(connection, "head"):
            return True
        policy = self._policy()
        return get_meta(connection, "blocked") != _blocked(policy) or bool(_ripe(connection, policy.cut))

    def _head(self) -> str:
        return self.tree.head() if self.tree is not None else ""

    def _fold_all(self, connection: Connection) -> None:
        """Join all that is new into the rows. The caller holds the transaction."""
        fold = _Fold(connection, self._policy(), lambda raw: self._step(len(raw)))
        sources = self._sources()
        self._done_bytes, self._all_bytes = 0, sum(_size(source.file) for source in sources)
        fold.refold()
        if self.tree is not None and self._head() != get_meta(connection, "head"):
            self._fold_tree(fold, self._head())
        self._fold_files(fold, sources)
        fold.end()
        if fold.read.markers:
            self._warn(f"{fold.read.markers} conflict-marker lines were dropped; both sides were read")
        if fold.read.refused:
            self._quarantine(fold.read.refused)

    def _step(self, count: int) -> None:
        self._done_bytes += count
        if self.progress is not None:
            self.progress(min(self._done_bytes, self._all_bytes), self._all_bytes)

    def _fold_files(self, fold: "_Fold", sources: Sequence[Source]) -> None:
        connection = fold.connection
        known = {row[0]: row[1:] for row in connection.execute("SELECT path, look, size, rows, hash, oid FROM file")}
        for path in known.keys() - {source.path for source in sources}:
            connection.execute("DELETE FROM file WHERE path = ?", (path,))
            fold.forget_refused(path)
            set_meta(connection, "shrunk", "1")
        for source in sources:
            before = known.get(source.path)
            if before is None or not before[0] or before[0] != look(source.file):
                self._fold_file(fold, source, before)

    def _fold_file(self, fold: "_Fold", source: Source, before: tuple[Any, ...] | None) -> None:
        """Read a file on from where it was read to, or, where its beginning is another, from the start."""
        try:
            handle = os.open(source.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        with os.fdopen(handle, "rb") as file:
            seen = os.fstat(handle)
            size, rows, hash_, oid = before[1:] if before is not None else (0, 0, _NO_HASH, "")
            reader = _Reader(file, rows)
            if size and not reader.skip(size, hash_):
                size, rows, oid = 0, 0, ""
                set_meta(fold.connection, "shrunk", "1")
                file.seek(0)
                reader = _Reader(file)
            fold.forget_refused(source.path, behind=rows)
            fold.lines(source.kind, source.path, reader.chunks(), first=rows + 1)
        if reader.size != size:
            oid = ""
        fold.connection.execute(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?)",
            (source.path, fingerprint(seen), reader.size, reader.rows, reader.hash, oid),
        )

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _fold_tree(self, fold: "_Fold", head: str) -> list[Entry]:
        """Join a tree; return what the one before had and it has not.

        Where files of the tree only grew, what they grew by is joined; else all of it is compared with the rows.
        """
        assert self.tree is not None  # noqa: S101 - asked by the callers
        connection = fold.connection
        known = {row[0]: row[1:] for row in connection.execute("SELECT path, oid, size, hash FROM tree")}
        try:
            paths = {path: oid for path, (oid, _) in self.tree.paths(head).items() if kind_of(path)}
            grown = self._grown(known, paths)
            if grown is None:
                old = get_meta(connection, "head")
                lost = self._fold_whole(fold, paths, goes_on=bool(old) and self.tree.descends(head, old))
            else:
                lost = []
                for path, data, start in grown:
                    fold.lines(_kind(path), path, [data[start:]], origin=_TREE)
                    _note_blob(connection, path, paths[path], data)
        except TreeGoneError as why:
            self._warn(str(why))
            lost = self._fold_whole(fold, {}, goes_on=False)
            head = ""
            self.tree.move("")
        set_meta(connection, "head", head)
        return lost

    def _grown(self, known: dict[str, tuple[Any, ...]], paths: dict[str, str]) -> list[tuple[str, bytes, int]] | None:
        """Return (path, content, size before) of each file of the tree that grew; None where anything else changed."""
        assert self.tree is not None  # noqa: S101
        if not known or known.keys() - paths.keys():
            return None
        grown = []
        for path, oid in paths.items():
            before = known.get(path, ("", 0, _NO_HASH))
            if before[0] == oid:
                continue
            if "/" not in path:
                return None
            data, size = self.tree.read(oid), before[1]
            is_grown = not size or (_hash(data[:size]) == before[2] and data[size - 1 : size] == b"\n")
            if not is_grown:
                return None
            grown.append((path, data, size))
        return grown

    def _fold_whole(self, fold: "_Fold", paths: dict[str, str], *, goes_on: bool) -> list[Entry]:
        """Compare all of a tree with the rows: afterwards the outbox names just the rows that it has not all of."""
        assert self.tree is not None  # noqa: S101
        connection = fold.connection
        connection.execute("DELETE FROM tree")
        whole = _Whole(fold, goes_on=goes_on)
        for path, oid in sorted(paths.items(), key=lambda item: ("/" not in item[0], item[0])):
            data = self.tree.read(oid)
            whole.file(_kind(path), path, data)
            _note_blob(connection, path, oid, data)
        return whole.end()

    def take(self, commit: str, shard: str = "") -> Taken:
        """Go on to another fetched tree, and bring the files here in step with it. The caller holds the write lock.

        In this order: the ref, the files that gain lines, those that lose lines, then the transaction.

        Args:
            commit: of the tree.
            shard: path of a shard of our own: what rows know and no file does is written there.
        """
        assert self.tree is not None  # noqa: S101 - lines that never leave have no tree
        self.ask(lambda _: None)
        self.tree.move(commit)
        taken = Taken()
        with self.database.transaction() as connection:
            fold = _Fold(connection, self._policy(), bool)
            self._fold_files(fold, self._sources())
            before = dict(connection.execute("SELECT path, oid FROM tree"))
            if commit != get_meta(connection, "head"):
                taken.lost = self._fold_tree(fold, commit)
            self._write_files(fold, before, shard, taken)
            fold.end()
        self._tell()
        return taken

    def _write_files(self, fold: "_Fold", before: dict[str, str], shard: str, taken: Taken) -> None:
        assert self.tree is not None  # noqa: S101
        connection = fold.connection
        plans = []
        tree = {path: oid for path, (oid, _) in self.tree.paths(self._head()).items() if kind_of(path)}
        known = {row[0]: row[1:] for row in connection.execute("SELECT path, oid, look FROM file")}
        for path in sorted(tree.keys() | {source.path for source in self._sources()}, key=lambda p: ("/" in p, p)):
            oid, (had, seen) = tree.get(path, ""), known.get(path, ("", ""))
            if oid and had == oid and seen and seen == look(self._clan / path):
                continue
            plan = self._plan(fold, path, self.tree.read(oid) if oid else b"")
            if plan.gains and before.get(path) == oid:
                taken.put_back.append(path)
            plans.append((path, oid, plan))
        if get_meta(connection, "shrunk"):
            self._spill(fold, shard, plans)
            set_meta(connection, "shrunk", "")
        for path, _, plan in plans:
            if plan.gains:
                self._put(path, plan.data + plan.leaving)
        for path, _, plan in plans:
            if plan.leaving:
                self._put(path, plan.data)
        for path, oid, plan in plans:
            if not plan.data:
                connection.execute("DELETE FROM file WHERE path = ?", (path,))
                continue
            size = plan.data.rfind(b"\n") + 1
            connection.execute(
                "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(path, look(self._clan / path), size, plan.data.count(b"\n", 0, size)),
                    *(_hash(plan.data[:size]), oid if plan.is_tree else ""),
                ),
            )

    def _plan(self, fold: "_Fold", path: str, theirs: bytes) -> "_Plan":
        """Return what a file here becomes: the tree's lines, and those here that the tree does not cover."""
        kind, mine = _kind(path), self._files.read(self._clan / path)
        theirs = fold.purged(kind, theirs)
        if mine == theirs:
            return _Plan(theirs, b"", gains=False, is_tree=True)
        have, there = _raws(mine), _raws(theirs)
        kept = [raw for raw in have if raw not in there and fold.is_wanted(kind, path, raw)]
        data = theirs
        if kept:
            data += b"" if not data or data.endswith(b"\n") else b"\n"
            data += b"".join(raw + b"\n" for raw in kept)
        stay = {*kept, *there}
        leaving = b"".join(raw + b"\n" for raw in have if raw not in stay)
        return _Plan(data, leaving, gains=any(raw not in have for raw in there), is_tree=not kept)

    def _spill(self, fold: "_Fold", shard: str, plans: list[tuple[str, str, "_Plan"]]) -> None:
        """Put what rows know, and neither the tree nor a file says, into the own shard: a file was cut or deleted."""
        if not shard:
            return
        said = fold.said_in(plan.data for path, _, plan in plans if _kind(path) is PATTERNS)
        missing = list(fold.unsaid(said))
        if not missing:
            return
        at = next((at for at, (path, _, _) in enumerate(plans) if path == shard), None)
        more = b"".join(raw + b"\n" for raw in missing)
        if at is None:
            mine = self._files.read(self._clan / shard)
            plans.append((shard, "", _Plan(mine + more, b"", gains=True, is_tree=False)))
        else:
            path, oid, plan = plans[at]
            plans[at] = (path, oid, plan._replace(data=plan.data + more, gains=True, is_tree=False))

    def _put(self, path: str, data: bytes) -> None:
        if data:
            self._files.replace(self._clan / path, data)
        else:
            self._files.remove(self._clan / path)

    # --- what goes out -----------------------------------------------------------------------------------------------

    def outgoing(self) -> list[Entry]:
        """Return what the rows have and the tree has not: deltas of patterns, discoveries, carried lines."""
        return self.ask(_outgoing)

    def names(self, since: int = 0) -> list[str]:
        """Return the ids of records and discoveries that changed after a generation, and ``#hash`` of carried lines."""
        return self.ask(lambda it: [row[0] for row in it.execute(_NAMES, (since, since))])

    def said(self, names: Sequence[str]) -> dict[str, Entry]:
        """Return what is here under some of these names, which are as ``names`` gives them."""
        return self.ask(lambda it: dict(_entries(it, list(names))))

    def edition(self, kind: Kind) -> bytes:
        """Return the canonical bytes of all that the tree says: sorted, a record on as many lines as it takes."""
        return self.ask(_pattern_edition if kind is PATTERNS else _discovery_edition)

    def purged_ids(self) -> list[str]:
        """Return the ids of records with purge marks: what these cover must leave every path of the tree."""
        return self.ask(lambda it: [row[0] for row in it.execute("SELECT id FROM pattern WHERE purges ORDER BY id")])

    def stripped(self, kind: Kind, data: bytes) -> bytes:
        """Return a file's bytes without what purge marks cover; the same bytes where they cover nothing in it."""
        return self.ask(lambda it: _Fold(it, self._policy(), bool).purged(kind, data))

    def differences(self) -> list[str]:
        """Return the ids of rows that are not what a database made anew would have: none, unless something is wrong."""
        assert self.database.path is not None  # noqa: S101 - asked of a file
        self.refresh()
        fresh = Database(self.database.path.with_name(f"{self.database.path.name}.check"), durable=False)
        fresh.delete()
        try:
            self.fold_into(fresh)
            mine, made = (_contents(each.open()) for each in (self.database, fresh))
        finally:
            fresh.delete()
        return sorted({key for key, _ in mine ^ made})

    # --- counts ------------------------------------------------------------------------------------------------------

    def refused(self) -> list[tuple[str, int, str]]:
        """Return (path, line number, reason) of the lines that cannot be read, as many as are kept."""
        asked = "SELECT path, number, reason FROM refused ORDER BY path, number"
        return self.ask(lambda it: [(row[0], row[1], row[2]) for row in it.execute(asked)])

    def refused_count(self) -> int:
        """Return how many lines here cannot be read, as far as they are kept."""
        return self.ask(lambda it: int(it.execute("SELECT count(*) FROM refused").fetchone()[0]))

    def carried_count(self) -> int:
        """Return how many lines of a newer version are kept and passed on."""
        return self.ask(lambda it: int(it.execute("SELECT count(*) FROM carried").fetchone()[0]))

    def carried(self, each: str = "") -> list[Carried]:
        """Return the lines of a newer version that are kept, under an id or all of them."""
        asked = "SELECT id, raw FROM carried WHERE ? IN (id, '') ORDER BY id, raw"
        return self.ask(lambda it: [Carried(*row) for row in it.execute(asked, (each,))])

    def has_carried(self, entry: Carried) -> bool:
        """Tell whether a line of a newer version is kept here, or was purged."""
        asked = "SELECT 1 FROM carried WHERE hash = ? UNION ALL SELECT 1 FROM purged WHERE hash = ?"
        return self.ask(lambda it: it.execute(asked, (entry.hash, entry.hash)).fetchone() is not None)

    def late(self) -> list[str]:
        """Return the ids of records with a part from the future, which is left out until the clock reaches it."""
        return self.ask(
            lambda it: [row[0] for row in it.execute("SELECT id FROM pattern WHERE ripens != '' ORDER BY id")]
        )

    def newest_by(self) -> dict[str, str]:
        """Return the largest stamp that is here of each writer."""
        return self.ask(lambda it: dict(it.execute("SELECT name, newest FROM writer")))

    def noted(self, key: str) -> str:
        """Return a note that can be found out again: it goes with the database. "" for none."""
        row = self.ask(lambda it: it.execute("SELECT value FROM note WHERE key = ?", (key,)).fetchone())
        return str(row[0]) if row else ""

    def note(self, key: str, value: str) -> None:
        """Keep a note for as long as the database is kept."""
        if self.database.exists:
            self.database.open().execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))

    def take_back(self, each: str, writer: str, parts: Sequence[str]) -> Line | None:
        """Take parts of one writer's column, as far as the tree has not got them, out of files and rows; return them.

        The caller holds the write lock, and says them again elsewhere.
        """
        self.ask(lambda _: None)
        taken: list[Line] = []
        with self.database.transaction() as connection:
            fold = _Fold(connection, self._policy(), bool)
            base = fold.base(each) if fold.batch([each]).bases else None
            if base is None and not fold.batch([each]).bases:
                return None
            for source in self._sources():
                if source.kind is PATTERNS:
                    self._take_from(fold, source, each, writer, parts, base, taken)
            row = fold.batch([each]).rows[each]
            if taken and base is not None:
                fold.put(base, line.encode(base), row)
            elif taken:
                fold.remove(each, row[0])
            fold.changed = fold.changed or bool(taken)
            fold.end()
        self.refresh()
        found = None
        for piece in taken:
            found = piece if found is None else line.join(found, piece)
        return found

    def _take_from(
        self,
        fold: "_Fold",
        source: Source,
        each: str,
        writer: str,
        parts: Sequence[str],
        base: Line | None,
        taken: list[Line],
    ) -> None:
        """Take parts out of one file, which is read anew afterwards if it says anything of the record."""
        data = self._files.read(source.file)
        if each.encode() not in data:
            return
        kept = []
        for raw in data.split(b"\n"):
            entry = lines.entry(PATTERNS, raw, source.path, 0, Read()) if raw else None
            if not isinstance(entry, Line) or entry.id != each or (base is not None and line.covers(base, entry)):
                kept.append(raw)
                continue
            rest, gone = line.parted(entry, writer, parts)
            if gone is not None:
                taken.append(gone)
            kept += [] if line.is_empty(rest) else [line.encode(rest)]
        self._put_source(source, b"\n".join(kept))
        fold.connection.execute("DELETE FROM file WHERE path = ?", (source.path,))

    def _put_source(self, source: Source, data: bytes) -> None:
        if data:
            self._files.replace(source.file, data)
        else:
            self._files.remove(source.file)

    def newest(self) -> str:
        """Return the largest stamp that this machine admits, "" for none."""
        row = (
            self.database.open().execute("SELECT max(newest) FROM pattern").fetchone() if self.database.exists else None
        )
        return str(row[0] or "") if row else ""

    def close(self) -> None:
        """Close the database."""
        self.database.close()


class _Plan(NamedTuple):
    """What a file becomes, what leaves it, whether it gains lines, and whether it is just what the tree has."""

    data: bytes
    leaving: bytes
    gains: bool
    is_tree: bool


_FILE, _TREE = "file", "tree"


class _Fold:
    """One transaction's joins."""

    def __init__(self, connection: Connection, policy: Policy, step: Callable[[bytes], object]) -> None:
        self.connection = connection
        self.read = Read()
        self._policy = policy
        self._step = step
        self.changed = False
        self._writers: dict[str, str] = dict(connection.execute("SELECT name, newest FROM writer"))
        self.generation = int(get_meta(connection, "generation")) + 1

    def lines(self, kind: Kind, path: str, data: Iterable[bytes], origin: str = _FILE, first: int = 1) -> None:
        """Join the lines of one file, or of what it grew by, of which the first has the number ``first``."""
        read = self.read if origin is _FILE else Read()
        before = len(read.refused)
        for batch in _batches(lines.raw_lines(data, path, read, first)):
            if kind is PATTERNS:
                self.patterns(path, batch, origin, read)
            else:
                self.discoveries(path, batch, origin, read)
        if origin is _FILE:
            rows = [(path, checksum(each.raw), each.number, each.reason) for each in read.refused[before:]]
            self.connection.executemany("INSERT OR IGNORE INTO refused VALUES (?, ?, ?, ?)", rows)

    def patterns(self, path: str, batch: list[tuple[int, bytes]], origin: str, read: Read) -> None:
        """Join some lines of patterns."""
        found = self.batch(_quick_id(raw) for _, raw in batch)
        pending: dict[str, Line] = {}
        for number, raw in batch:
            self._step(raw)
            quick = _quick_id(raw)
            row = found.rows.get(quick)
            if row is not None and row[1] == raw and quick not in pending:
                if origin is _TREE and quick in found.bases:
                    self._set_base(quick, None, is_covered=True)
                    del found.bases[quick]
                continue
            entry = lines.entry(PATTERNS, raw, path, number, read)
            if isinstance(entry, Carried):
                self.carry(PATTERNS, entry, in_tree=origin is _TREE)
            elif isinstance(entry, Line):
                known = pending.get(entry.id)
                pending[entry.id] = entry if known is None else line.join(known, entry)
        more = self.batch(each for each in pending if each not in found.rows and each not in found.bases)
        found.rows.update(more.rows)
        found.bases.update(more.bases)
        for each, part in pending.items():
            self._join(each, part, found, origin)

    def _join(self, each: str, part: Line, found: _Batch, origin: str) -> None:
        row = found.rows.get(each)
        mine = None if row is None else _decoded(row[1])
        whole = part if mine is None else line.join(mine, part)
        data = line.encode(whole)
        if origin is _TREE:
            base = _decoded(raw) if (raw := found.bases.get(each)) else (None if each in found.bases else mine)
            base = part if base is None else line.join(base, part)
            base_data = line.encode(base)
            if base_data == data:
                if each in found.bases:
                    self._set_base(each, None, is_covered=True)
            else:
                self._set_base(each, base_data)
        elif (row is None or data != row[1]) and each not in found.bases:
            self._set_base(each, row[1] if row is not None else None)
        if row is None or data != row[1]:
            self.put(whole, data, row)

    def put(self, whole: Line, data: bytes, row: tuple[int, bytes] | None) -> None:
        """Write one row, and its words."""
        self.changed = True
        folded = pattern.fold(whole, self._policy)
        alike = pattern_id(folded.text) if folded.text and normalise(folded.text) else ""
        newest, ripens = _newest_and_next(whole, self._policy.cut)
        for writer, stamp in line.newest_by(whole).items():
            if stamp > self._writers.get(writer, ""):
                self._writers[writer] = stamp
        marks = line.purges(whole)
        gone = line.purged_carried(whole)
        values = (
            *(whole.id, data, checksum(data), folded.text, "" if alike == whole.id else alike, folded.merged_into),
            *(int(folded.is_listed), int(folded.state == "published"), int(folded.state == "retired")),
            *(int(bool(folded.trigger)), folded.witnesses(), folded.count("sessions"), folded.count("seen")),
            *(folded.last_seen, newest, ripens, int(bool(marks or gone)), self.generation),
        )
        text = indexed(folded.text)
        more = indexed("\n".join([folded.correct, folded.value("title"), folded.category, *folded.tags]))
        if row is None:
            cursor = self.connection.execute(_INSERT, values)
            self.connection.execute(
                "INSERT INTO words (rowid, text, more) VALUES (?, ?, ?)", (cursor.lastrowid, text, more)
            )
        else:
            self.connection.execute(_UPDATE, (*values[1:], row[0]))
            self._put_words("words", row[0], text, more)
        for hash_ in gone:
            self.connection.execute("INSERT OR IGNORE INTO purged VALUES (?)", (hash_,))
            self.connection.execute("DELETE FROM carried WHERE hash = ?", (hash_,))

    def remove(self, each: str, number: int) -> None:
        """Remove a row that its lines are taken back of."""
        self.changed = True
        self.connection.execute("DELETE FROM words WHERE rowid = ?", (number,))
        self.connection.execute("DELETE FROM pattern WHERE rowid = ?", (number,))
        self.connection.execute("DELETE FROM outbox WHERE id = ?", (each,))

    def _put_words(self, table: str, number: int, text: str, more: str) -> None:
        known = self.connection.execute(f"SELECT text, more FROM {table} WHERE rowid = ?", (number,)).fetchone()  # noqa: S608
        if known != (text, more):
            self.connection.execute(f"UPDATE {table} SET text = ?, more = ? WHERE rowid = ?", (text, more, number))  # noqa: S608

    def discoveries(self, path: str, batch: list[tuple[int, bytes]], origin: str, read: Read) -> None:
        """Join some lines of discoveries: of two with one id the smaller."""
        for number, raw in batch:
            self._step(raw)
            entry = lines.entry(DISCOVERIES, raw, path, number, read)
            if isinstance(entry, Carried):
                self.carry(DISCOVERIES, entry, in_tree=origin is _TREE)
            elif isinstance(entry, Discovery):
                self.discovery(entry, origin)

    def discovery(self, entry: Discovery, origin: str) -> None:
        """Join one discovery."""
        data = DISCOVERIES.encode(entry)
        asked = "SELECT rowid, line, base FROM discovery WHERE id = ?"
        row = self.connection.execute(asked, (entry.id,)).fetchone()
        least = data if row is None else min(row[1], data)
        base = row[2] if row is not None else None
        if origin is _TREE:
            base = data if base is None else min(base, data)
        if row is not None and (least, base) == (row[1], row[2]):
            return
        if row is None or least != row[1]:
            self.changed = True
        told = DISCOVERIES.decode(least)
        values = (least, checksum(least), base, told.at, told.retracts, self.generation)
        text, more = indexed(told.problem), indexed("\n".join([told.solution, told.context, told.type, *told.tags]))
        if row is None:
            cursor = self.connection.execute(
                "INSERT INTO discovery (line, hash, base, at, retracts, generation, id) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values, entry.id),
            )
            self.connection.execute(
                "INSERT INTO found (rowid, text, more) VALUES (?, ?, ?)", (cursor.lastrowid, text, more)
            )
        else:
            self.connection.execute(_UPDATE_DISCOVERY, (*values, row[0]))
            self._put_words("found", row[0], text, more)

    def carry(self, kind: Kind, entry: Carried, *, in_tree: bool) -> None:
        """Keep a line of a newer version, unless a mark says that it was purged."""
        if self.connection.execute("SELECT 1 FROM purged WHERE hash = ?", (entry.hash,)).fetchone():
            return
        asked = "SELECT in_tree FROM carried WHERE hash = ?"
        known = self.connection.execute(asked, (entry.hash,)).fetchone()
        if known is None:
            self.changed = True
            row = (entry.hash, kind.name, entry.id, entry.raw, int(in_tree))
            self.connection.execute("INSERT INTO carried VALUES (?, ?, ?, ?, ?)", row)
        elif in_tree and not known[0]:
            self.connection.execute("UPDATE carried SET in_tree = 1 WHERE hash = ?", (entry.hash,))

    def batch(self, ids: Iterable[str]) -> _Batch:
        """Return the rows and bases of some ids."""
        wanted = [each for each in dict.fromkeys(ids) if each]
        rows: dict[str, tuple[int, bytes]] = {}
        bases: dict[str, bytes | None] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            marks = ",".join("?" * len(some))
            asked = f"SELECT id, rowid, line, hash FROM pattern WHERE id IN ({marks})"  # noqa: S608
            rows.update({row[0]: (row[1], checked(row[2], row[3])) for row in self.connection.execute(asked, some)})
            bases.update(self.connection.execute(f"SELECT id, base FROM outbox WHERE id IN ({marks})", some))  # noqa: S608
        return _Batch(rows, bases)

    def _set_base(self, each: str, base: bytes | None, *, is_covered: bool = False) -> None:
        if is_covered:
            self.connection.execute("DELETE FROM outbox WHERE id = ?", (each,))
        else:
            self.connection.execute("INSERT OR REPLACE INTO outbox VALUES (?, ?)", (each, base))

    def base(self, each: str) -> Line | None:
        """Return what the tree has of a record."""
        found = self.batch([each])
        raw = found.bases[each] if each in found.bases else found.rows.get(each, (0, None))[1]
        return _decoded(raw) if raw else None

    # --- policy, refused lines, the end ------------------------------------------------------------------------------

    def refold(self) -> None:
        """Fold again what another policy, or another time, folds differently."""
        blocked = _blocked(self._policy)
        if blocked != get_meta(self.connection, "blocked"):
            ids = [row[0] for row in self.connection.execute("SELECT id FROM pattern")]
            set_meta(self.connection, "blocked", blocked)
        else:
            ids = _ripe(self.connection, self._policy.cut)
        for start in range(0, len(ids), _AT_ONCE):
            for row in self.batch(ids[start : start + _AT_ONCE]).rows.values():
                self.put(_decoded(row[1]), row[1], row)

    def forget_refused(self, path: str, behind: int = 0) -> None:
        """Forget the refused lines of a file behind one that stays read."""
        self.connection.execute("DELETE FROM refused WHERE path = ? AND number > ?", (path, behind))

    def end(self) -> None:
        """Count the generation on, if any row changed."""
        if self.changed:
            set_meta(self.connection, "generation", str(self.generation))
            self.connection.executemany("INSERT OR REPLACE INTO writer VALUES (?, ?)", self._writers.items())

    # --- lines of files ----------------------------------------------------------------------------------------------

    def is_wanted(self, kind: Kind, path: str, raw: bytes) -> bool:
        """Tell whether a line of a file here must stay: the tree does not cover it, and no mark covers all of it."""
        entry = lines.entry(kind, raw, path, 0, Read())
        if entry is None:
            return True  # what cannot be read stays where it is
        if isinstance(entry, Carried):
            asked = "SELECT in_tree FROM carried WHERE hash = ?"
            known = self.connection.execute(asked, (entry.hash,)).fetchone()
            return known is not None and not known[0]
        if isinstance(entry, Discovery):
            asked = "SELECT base FROM discovery WHERE id = ?"
            known = self.connection.execute(asked, (entry.id,)).fetchone()
            return known is None or known[0] is None or known[0] > DISCOVERIES.encode(entry)
        base = self.base(entry.id)
        return base is None or not line.covers(base, entry)

    def purged(self, kind: Kind, data: bytes) -> bytes:
        """Return a file's bytes without what purge marks cover."""
        marked = {row[0] for row in self.connection.execute("SELECT id FROM pattern WHERE purges")}
        hashes = {row[0] for row in self.connection.execute("SELECT hash FROM purged")}
        if not data or not (marked or hashes):
            return data
        kept, is_other = [], False
        for raw in data.split(b"\n"):
            stripped = self._stripped(kind, raw, marked, hashes) if raw else raw
            is_other = is_other or stripped != raw
            if stripped is not None:
                kept.append(stripped)
        return b"\n".join(kept) if is_other else data

    def _stripped(self, kind: Kind, raw: bytes, marked: set[str], hashes: set[str]) -> bytes | None:
        quick = _quick_id(raw)
        if kind is PATTERNS and quick and quick not in marked and not hashes:
            return raw
        entry = lines.entry(kind, raw, "", 0, Read())
        if isinstance(entry, Carried):
            return None if entry.hash in hashes else raw
        if not isinstance(entry, Line) or entry.id not in marked:
            return raw
        row = self.batch([entry.id]).rows[entry.id]
        return line.encode(line.without_purged(entry, _decoded(row[1])))

    def said_in(self, contents: Iterable[bytes]) -> dict[str, Line]:
        """Return what files say of the records in the outbox."""
        wanted = {row[0] for row in self.connection.execute("SELECT id FROM outbox")}
        said: dict[str, Line] = {}
        for data in contents:
            for _, entry in lines.entries(PATTERNS, [data], "", Read()):
                if isinstance(entry, Line) and entry.id in wanted:
                    said[entry.id] = line.join(said[entry.id], entry) if entry.id in said else entry
        return said

    def unsaid(self, said: dict[str, Line]) -> Iterator[bytes]:
        """Yield lines with what rows know of the outbox's records, and neither the tree nor ``said`` does."""
        ids = [row[0] for row in self.connection.execute("SELECT id FROM outbox ORDER BY id")]
        for each in ids:
            base, row = self.base(each), self.batch([each]).rows[each]
            known = said.get(each)
            both = known if base is None else base if known is None else line.join(base, known)
            delta = line.minus(_decoded(row[1]), both)
            if delta is not None:
                yield from line.split(delta)


class _Whole:
    """Comparison of all of a tree with the rows. Shards come first, then the edition, which is by far the longest."""

    def __init__(self, fold: _Fold, *, goes_on: bool) -> None:
        self._fold = fold
        self._goes_on = goes_on
        self._shards: dict[str, Line] = {}
        self._done: set[str] = set()
        connection = fold.connection
        self._is_first = not get_meta(connection, "head")
        self._before: dict[str, bytes | None] = dict(connection.execute("SELECT id, base FROM outbox"))
        self._bases = dict(connection.execute("SELECT id, base FROM discovery WHERE base IS NOT NULL"))
        self._carried = {row[0] for row in connection.execute("SELECT hash FROM carried WHERE in_tree")}
        connection.execute("UPDATE discovery SET base = NULL WHERE base IS NOT NULL")
        connection.execute("UPDATE carried SET in_tree = 0 WHERE in_tree")

    def file(self, kind: Kind, path: str, data: bytes) -> None:
        """Compare one file of the tree."""
        if kind is DISCOVERIES:
            self._fold.lines(kind, path, [data], origin=_TREE)
            return
        for batch in _batches(lines.raw_lines(_chunks(data), path, Read())):
            if "/" in path:
                self._shard(path, batch)
            else:
                self._edition(path, batch)

    def _shard(self, path: str, batch: list[tuple[int, bytes]]) -> None:
        for _, raw in batch:
            entry = self._entry(path, raw)
            if entry is not None:
                known = self._shards.get(entry.id)
                self._shards[entry.id] = entry if known is None else line.join(known, entry)

    def _edition(self, path: str, batch: list[tuple[int, bytes]]) -> None:
        found = self._fold.batch(_quick_id(raw) for _, raw in batch)
        for _, raw in batch:
            quick = _quick_id(raw)
            row = found.rows.get(quick)
            if row is not None and row[1] == raw and quick not in self._done and quick not in self._shards:
                self._is_covered(quick)
            elif (entry := self._entry(path, raw)) is not None:
                self._compare(entry)

    def _entry(self, path: str, raw: bytes) -> Line | None:
        entry = lines.entry(PATTERNS, raw, path, 0, Read())
        if isinstance(entry, Carried):
            self._fold.carry(PATTERNS, entry, in_tree=True)
            return None
        return entry if isinstance(entry, Line) else None

    def _compare(self, theirs: Line) -> None:
        """Join what the tree has of a record, and note what it lacks of it."""
        each = theirs.id
        if each in self._done:  # on several lines, or not sorted: what was noted so far is joined
            base = self._fold.base(each)
            theirs = theirs if base is None else line.join(base, theirs)
        elif each in self._shards:
            theirs = line.join(theirs, self._shards.pop(each))
        row = self._fold.batch([each]).rows.get(each)
        mine = None if row is None else _decoded(row[1])
        whole = theirs if mine is None else line.join(mine, theirs)
        data, base_data = line.encode(whole), line.encode(theirs)
        if row is None or data != row[1]:
            self._fold.put(whole, data, row)
        if data == base_data:
            self._is_covered(each)
        else:
            self._done.add(each)
            self._fold.connection.execute("INSERT OR REPLACE INTO outbox VALUES (?, ?)", (each, base_data))

    def _is_covered(self, each: str) -> None:
        self._done.add(each)
        self._fold.connection.execute("DELETE FROM outbox WHERE id = ?", (each,))

    def end(self) -> list[Entry]:
        """Note what the tree has nothing of; return what the tree before had and it has not."""
        for each in list(self._shards):
            self._compare(self._shards.pop(each))
        connection = self._fold.connection
        missing = [row[0] for row in connection.execute("SELECT id FROM pattern") if row[0] not in self._done]
        connection.executemany("INSERT OR REPLACE INTO outbox VALUES (?, NULL)", [(each,) for each in missing])
        if self._goes_on:  # whoever understands a carried line has taken it out
            gone = connection.execute("SELECT hash FROM carried WHERE NOT in_tree").fetchall()
            superseded = [row for row in gone if row[0] in self._carried]
            connection.executemany("DELETE FROM carried WHERE hash = ?", superseded)
        return list(self._lost(connection))

    def _lost(self, connection: Connection) -> Iterator[Entry]:
        for each, base in connection.execute("SELECT id, base FROM outbox ORDER BY id").fetchall():
            if each not in self._before:
                row = self._fold.batch([each]).rows[each]
                had = None if self._is_first else _decoded(row[1])  # the tree before had all of it
            else:
                had = _decoded(raw) if (raw := self._before[each]) else None
            delta = line.minus(had, _decoded(base) if base else None) if had is not None else None
            if delta is not None:
                yield delta
        bases = dict(connection.execute("SELECT id, base FROM discovery WHERE base IS NOT NULL"))
        for each, base in self._bases.items():
            if each not in bases or bases[each] > base:
                yield DISCOVERIES.decode(base)
        for hash_, each, raw in connection.execute("SELECT hash, id, raw FROM carried WHERE NOT in_tree").fetchall():
            if hash_ in self._carried:
                yield Carried(each, raw)


class _Reader:
    """Blocks of an open file; size, number and hash of its whole lines so far."""

    def __init__(self, file: Any, rows: int = 0) -> None:
        self._file = file
        self.rows = rows
        self._running = blake2b(digest_size=16)
        self.size = 0
        self.hash = _NO_HASH

    def skip(self, size: int, hash_: bytes) -> bool:
        """Pass over what was read before; False where it is not what it was."""
        left = size
        while left:
            block = self._file.read(min(left, limits.BLOCK_BYTES))
            if not block:
                return False
            self._running.update(block)
            left -= len(block)
        self.size, self.hash = size, hash_
        return bool(self._running.digest() == hash_)

    def chunks(self) -> Iterator[bytes]:
        """Yield the rest of the file."""
        at = self.size
        while block := self._file.read(limits.BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            self._running.update(block[:end])
            if end:
                self.size, self.hash = at + end, self._running.digest()
                self.rows += block.count(b"\n")
            self._running.update(block[end:])
            at += len(block)
            yield block


_INSERT_WORDS = "INSERT INTO words (rowid, text, more) VALUES (?, ?, ?)"
_INSERT_FOUND = "INSERT INTO found (rowid, text, more) VALUES (?, ?, ?)"
_UPDATE_DISCOVERY = (
    "UPDATE discovery SET line = ?, hash = ?, base = ?, at = ?, retracts = ?, generation = ? WHERE rowid = ?"
)
_COLUMNS = (
    "line, hash, text, alike, into_id, listed, published, retired, triggered, agents, sessions, seen, last, newest, "
    "ripens, purges, generation"
)
_INSERT = f"INSERT INTO pattern (id, {_COLUMNS}) VALUES ({', '.join('?' * 18)})"  # noqa: S608
_UPDATE = f"UPDATE pattern SET {', '.join(f'{each.strip()} = ?' for each in _COLUMNS.split(','))} WHERE rowid = ?"  # noqa: S608


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _note_blob(connection: Connection, path: str, oid: str, data: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO tree VALUES (?, ?, ?, ?)", (path, oid, len(data), _hash(data)))


def _kind(path: str) -> Kind:
    found = kind_of(path)
    assert found is not None, path  # noqa: S101 - paths were sorted before
    return found


def _chunks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + limits.BLOCK_BYTES] for start in range(0, len(data), limits.BLOCK_BYTES))


def _raws(data: bytes) -> dict[bytes, None]:
    """Return the distinct lines of a file, in order, without line ends."""
    found = dict.fromkeys(raw.removesuffix(b"\r") for raw in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    found.pop(b"", None)
    return found


def _batches(items: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        yield some


def _quick_id(raw: bytes) -> str:
    """Return the id that a canonical line begins with, "" for any other. Only ever used to find a row to compare."""
    if raw.startswith(b'{"id":"p-') and raw[25:26] == b'"':
        return raw[7:25].decode("latin-1")
    return ""


def _decoded(raw: bytes) -> Line:
    found = line.decode(raw)
    assert isinstance(found, Line)  # noqa: S101 - rows are written by us
    return found


def _blocked(policy: Policy) -> str:
    return " ".join(sorted(policy.blocked))


def _newest_and_next(whole: Line, cut: str) -> tuple[str, str]:
    """Return the largest stamp within the cut, and the smallest beyond it."""
    newest, ripens = "", ""
    for stamp in line.stamps(whole):
        if stamp <= cut:
            newest = max(newest, stamp)
        elif not ripens or stamp < ripens:
            ripens = stamp
    return newest, ripens


def _ripe(connection: Connection, cut: str) -> list[str]:
    """Return the ids of records that are folded otherwise by now: a part has become due, or the clock was set back."""
    asked = "SELECT id FROM pattern WHERE ripens != '' AND ripens <= ? UNION SELECT id FROM pattern WHERE newest > ?"
    return [row[0] for row in connection.execute(asked, (cut, cut))]


_NAMES = (
    "SELECT id FROM pattern WHERE generation > ? UNION ALL SELECT id FROM discovery WHERE generation > ? "
    "UNION ALL SELECT '#' || hash FROM carried"
)


def _entries(connection: Connection, wanted: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        asked = f"SELECT id, line, hash FROM pattern WHERE id IN ({marks})"  # noqa: S608
        yield from ((each, _decoded(checked(raw, hash_))) for each, raw, hash_ in connection.execute(asked, some))
        asked = f"SELECT id, line, hash FROM discovery WHERE id IN ({marks})"  # noqa: S608
        for each, raw, hash_ in connection.execute(asked, some):
            yield each, DISCOVERIES.decode(checked(raw, hash_))
        asked = f"SELECT hash, id, raw FROM carried WHERE '#' || hash IN ({marks})"  # noqa: S608
        yield from ((f"#{hash_}", Carried(each, raw)) for hash_, each, raw in connection.execute(asked, some))


def _outgoing(connection: Connection) -> list[Entry]:
    found: list[Entry] = []
    asked = "SELECT p.line, p.hash, o.base FROM outbox o JOIN pattern p ON p.id = o.id ORDER BY o.id"
    for raw, hash_, base in connection.execute(asked):
        delta = line.minus(_decoded(checked(raw, hash_)), _decoded(base) if base else None)
        if delta is not None:
            found.append(delta)
    asked = "SELECT line, hash FROM discovery WHERE base IS NULL OR base != line ORDER BY at, id"
    found += [DISCOVERIES.decode(checked(raw, hash_)) for raw, hash_ in connection.execute(asked)]
    asked = "SELECT id, raw FROM carried WHERE NOT in_tree ORDER BY id, hash"
    found += [Carried(each, raw) for each, raw in connection.execute(asked)]
    return found


def _pattern_edition(connection: Connection) -> bytes:
    asked = "SELECT p.id, p.line, p.hash, o.id, o.base FROM pattern p LEFT JOIN outbox o ON o.id = p.id ORDER BY p.id"
    carried: dict[str, list[bytes]] = {}
    for each, raw in connection.execute(
        "SELECT id, raw FROM carried WHERE kind = 'patterns' AND in_tree ORDER BY id, raw"
    ):
        carried.setdefault(each, []).append(raw)
    written: list[tuple[str, list[bytes]]] = []
    for each, raw, hash_, waits, base in connection.execute(asked):
        data = base if waits is not None else checked(raw, hash_)
        if data:
            written.append((each, [data] if len(data) <= limits.LINE_BYTES_MAX else line.split(_decoded(data))))
    known = {each: at for at, (each, _) in enumerate(written)}
    for each, raws in carried.items():
        if each in known:
            written[known[each]][1].extend(raws)
        else:
            written.append((each, raws))
    if carried:
        written.sort(key=lambda item: item[0])
    return b"".join(raw + b"\n" for _, raws in written for raw in raws)


def _discovery_edition(connection: Connection) -> bytes:
    keyed = []
    for (base,) in connection.execute("SELECT base FROM discovery WHERE base IS NOT NULL"):
        told = DISCOVERIES.decode(base)
        keyed.append(((told.at, told.id), base))
    asked = "SELECT id, raw FROM carried WHERE kind = 'discoveries' AND in_tree"
    keyed += [(("~", each), raw) for each, raw in connection.execute(asked)]
    return b"".join(raw + b"\n" for _, raw in sorted(keyed))


def _contents(connection: Connection) -> set[tuple[str, tuple[Any, ...]]]:
    """Return what a database says, but for what may differ: row numbers, generations, fingerprints."""
    columns = ", ".join(each.strip() for each in _COLUMNS.split(",") if each.strip() != "generation")
    found = {(row[0], row) for row in connection.execute(f"SELECT id, {columns} FROM pattern")}  # noqa: S608
    found |= {(row[0], row) for row in connection.execute("SELECT id, line, hash, base, at, retracts FROM discovery")}
    found |= {(row[0], row) for row in connection.execute("SELECT id, base, 'outbox' FROM outbox")}
    return found | {(row[0], row) for row in connection.execute("SELECT hash, kind, id, raw, in_tree FROM carried")}
