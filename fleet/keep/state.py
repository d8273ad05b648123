"""Machine-local state in SQLite: ``.fleet/state.db``. All of it can be made anew, but for the sent marks.

A sent mark is the hash of a line that this machine pushed: a line under one of our replica ids that we neither hold
nor ever sent was written by a clone of us.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.keep import schema
from fleet.keep.digests import blake2b
from fleet.keep.errors import BusyError, FleetError
from fleet.keep.schema import Migration

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION = schema.version_after(schema.MIGRATIONS)
_BUSY_S = 20.0

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sent (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE session (agent TEXT PRIMARY KEY, id TEXT NOT NULL, last_ms INTEGER NOT NULL) WITHOUT ROWID;
"""


class State:
    """The state database of one workspace. Opened late: a command that needs none pays nothing.

    Args:
        path: the database file; its folder exists when something is written.
        durable: False lets a test skip waiting for the disk.
        migrations: what brings an older database up to date.
    """

    def __init__(
        self, path: Path, *, durable: bool = True, migrations: Sequence[Migration] = schema.MIGRATIONS
    ) -> None:
        self._migrations = migrations
        self._path = path
        self._durable = durable
        self._connection: sqlite3.Connection | None = None
        self._is_frozen = False

    def get(self, key: str) -> str:
        """Return a value, or "" when there is none."""
        if not self._path.exists():
            return ""
        with self._guarded(to_read=True) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def put(self, **values: str) -> None:
        """Set values, all or none."""
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def mark_sent(self, lines: Iterable[bytes]) -> None:
        """Note lines that were pushed."""
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO sent VALUES (?)", [(line_hash(raw),) for raw in lines])

    def was_sent(self, raw: bytes) -> bool:
        """Tell whether this machine pushed the line."""
        if not self._path.exists():
            return False
        with self._guarded() as connection:
            found = connection.execute("SELECT 1 FROM sent WHERE hash = ?", (line_hash(raw),)).fetchone()
        return found is not None

    def sent(self) -> list[bytes]:
        """Return the hashes of all lines that this machine pushed, sorted."""
        if not self._path.exists():
            return []
        with self._guarded(to_read=True) as connection:
            return [bytes(row[0]) for row in connection.execute("SELECT hash FROM sent ORDER BY hash")]

    def restore_sent(self, hashes: Iterable[bytes]) -> None:
        """Note again what was pushed before, from a backup."""
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO sent VALUES (?)", [(each,) for each in hashes])

    def connection(self) -> "sqlite3.Connection":
        """Lend the open database to a module with tables of its own in it, which mends what goes wrong with them."""
        return self._open()

    def close(self) -> None:
        """Close the database. It opens again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._is_frozen = False

    @contextmanager
    def _transaction(self) -> "Iterator[sqlite3.Connection]":
        with self._guarded() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _guarded(self, *, to_read: bool = False) -> "Iterator[sqlite3.Connection]":
        """Turn what SQLite may complain of into what a person can act on."""
        import sqlite3

        connection = self._open(to_read=to_read)
        try:
            yield connection
        except sqlite3.OperationalError as why:
            if "locked" in str(why):
                raise BusyError(f"{self._path} is used by another process; run the command again") from why
            raise FleetError(f"{self._path} cannot be used ({why}); lessons are safe in their files") from why
        except sqlite3.DatabaseError as why:
            self.close()
            self._put_aside()
            raise FleetError(
                f"{self._path} was damaged ({why}). It was put aside and is made anew; no lesson is lost. "
                "Run the command again"
            ) from why

    def _open(self, *, to_read: bool = False) -> "sqlite3.Connection":
        if self._is_frozen and not to_read:
            self.close()  # there may be room again, or the right to write
        if self._connection is None:
            import sqlite3

            if self._path.is_symlink() or self._path.parent.is_symlink():
                raise FleetError(
                    f"{self._path} is a symbolic link, or lies in one; fleet writes to plain files only. "
                    "Take the link away: all but the sent marks is made anew"
                )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._connect()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as why:
                if isinstance(why, sqlite3.OperationalError):
                    if to_read and "locked" not in str(why) and (frozen := self._connect_frozen()):
                        self._connection, self._is_frozen = frozen, True
                        return frozen
                    raise FleetError(
                        f"{self._path} cannot be opened ({why}); lessons are safe in their files. "
                        "Check the disk and the rights of that folder"
                    ) from why
                self._put_aside()  # not a database any more
                self._connection = self._connect()
        return self._connection

    def _put_aside(self) -> None:
        """Move a damaged database out of the way, never delete it. What SQLite keeps beside it goes along."""
        aside = self._path.with_name(f"state.damaged-{int(time.time())}.db")
        for beside in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._path.with_name(self._path.name + beside).rename(aside.with_name(aside.name + beside))

    def _connect_frozen(self) -> "sqlite3.Connection | None":
        """Open the database as it lies there: on a full or read-only disk SQLite cannot make the files it opens with.

        What a crash left beside it, in the write-ahead log, is not seen then.
        """
        import sqlite3

        try:
            connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?immutable=1", uri=True)
            connection.execute("SELECT 1 FROM meta LIMIT 1")
        except sqlite3.Error:
            return None
        return connection

    def _connect(self) -> "sqlite3.Connection":
        import sqlite3

        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._durable else 'OFF'}")
            known = schema.version_after(self._migrations)
            version = _version(connection)
            if version < known:
                connection.execute("BEGIN IMMEDIATE")
                version = _version(connection)  # somebody may have been faster
                if version == 0:
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                if version < known:
                    schema.migrate(connection, self._path, version, self._migrations)
                connection.commit()
        except BaseException:
            connection.close()
            raise
        if version > known:
            connection.close()
            raise FleetError(
                f"{self._path} was made by a newer fleet (schema {version}, this one knows {known}); "
                "nothing was changed. Upgrade fleet on this machine"
            )
        return connection


def _version(connection: "sqlite3.Connection") -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def line_hash(raw: bytes) -> bytes:
    """Return the 16 bytes that stand for a line."""
    return blake2b(raw, digest_size=16).digest()
