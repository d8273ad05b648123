"""SQLite file that holds one materialised view: the join of line files, one row for each pattern and discovery.

Everything in it can be computed again (DESIGN, section 3, The database), so what is damaged is deleted and made anew.
The number of the schema stands in the file's name: two versions of fleet never share one.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from fleet.model.errors import BusyError, FleetError
from fleet.store.files import inode

T = TypeVar("T")

SCHEMA_NUMBER = 3
BUSY_S = 20.0

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE file (path TEXT PRIMARY KEY, look TEXT NOT NULL, size INTEGER NOT NULL, rows INTEGER NOT NULL,
  hash BLOB NOT NULL, oid TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tree (path TEXT PRIMARY KEY, oid TEXT NOT NULL, size INTEGER NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE pattern (rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL, hash BLOB NOT NULL,
  text TEXT NOT NULL, alike TEXT NOT NULL, into_id TEXT NOT NULL, listed INTEGER NOT NULL, published INTEGER NOT NULL,
  retired INTEGER NOT NULL, triggered INTEGER NOT NULL, agents INTEGER NOT NULL, sessions INTEGER NOT NULL,
  seen INTEGER NOT NULL, last TEXT NOT NULL, newest TEXT NOT NULL, ripens TEXT NOT NULL, purges INTEGER NOT NULL,
  generation INTEGER NOT NULL);
CREATE INDEX pattern_sight ON pattern (published DESC, seen DESC, last DESC, id) WHERE listed;
CREATE INDEX pattern_evidence ON pattern (published DESC, agents DESC, sessions DESC, seen DESC, last DESC, id)
  WHERE listed AND NOT retired;
CREATE INDEX pattern_alike ON pattern (alike) WHERE alike != '';
CREATE INDEX pattern_into ON pattern (into_id) WHERE into_id != '';
CREATE INDEX pattern_triggered ON pattern (triggered DESC, published DESC, agents DESC, sessions DESC, seen DESC,
  last DESC, id) WHERE triggered AND listed AND NOT retired;
CREATE INDEX pattern_newest ON pattern (newest);
CREATE INDEX pattern_ripens ON pattern (ripens) WHERE ripens != '';
CREATE INDEX pattern_purges ON pattern (id) WHERE purges;
CREATE INDEX pattern_generation ON pattern (generation);
CREATE VIRTUAL TABLE words USING fts5 (text, more, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TABLE discovery (rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL, hash BLOB NOT NULL,
  base BLOB, at TEXT NOT NULL, retracts TEXT NOT NULL, generation INTEGER NOT NULL);
CREATE INDEX discovery_at ON discovery (at, id);
CREATE INDEX discovery_retracts ON discovery (retracts) WHERE retracts != '';
CREATE VIRTUAL TABLE found USING fts5 (text, more, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TABLE writer (name TEXT PRIMARY KEY, newest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE note (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (id TEXT PRIMARY KEY, base BLOB) WITHOUT ROWID;
CREATE TABLE carried (hash TEXT PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, raw BLOB NOT NULL,
  in_tree INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE purged (hash TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE refused (path TEXT NOT NULL, hash BLOB NOT NULL, number INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (path, hash)) WITHOUT ROWID;
CREATE TABLE vector (id TEXT PRIMARY KEY, model TEXT NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
"""

# A damaged file makes SQLite, and Python's module around it, raise any of these.
TROUBLE: tuple[type[Exception], ...] = (
    sqlite3.Error,
    UnicodeDecodeError,  # a damaged name in the schema
    MemoryError,  # a damaged length
    OverflowError,
    SystemError,
    TypeError,
    ValueError,
    AttributeError,  # a value of another kind than was written
    LookupError,
)
# None of these says that the file is damaged: making it anew would help nobody.
_NO_DAMAGE = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PROTOCOL),
    }
)


_UNWRITABLE = frozenset(
    {
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
        sqlite3.SQLITE_PERM,
    }
)


class DamagedError(sqlite3.DatabaseError):
    """A row is not what was written: SQLite itself does not notice that (STORE: 36 of 60 changed pages)."""


class Database:
    """One database file, or, with ``None``, one in memory.

    Args:
        path: of the file.
        durable: False lets a test skip waiting for the disk.
    """

    def __init__(self, path: Path | None, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @property
    def exists(self) -> bool:
        """Whether there is anything to open."""
        if self._connection is not None or self.path is None:
            return self._connection is not None
        return self.path.exists() and not self.path.is_symlink()

    def open(self) -> sqlite3.Connection:
        """Return the open connection; tables are made where there are none.

        A file that was replaced since is opened anew: a long-lived process must not go on with a deleted one.
        """
        if self._connection is not None and self.path is not None and inode(self.path) != self._inode:
            self.close()
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else str(self.path)
        connection = sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            if self.path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._durable else 'OFF'}")
            connection.execute("PRAGMA secure_delete = ON")
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vector'").fetchone():
                _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._inode = inode(self.path) if self.path is not None else 0
        return connection

    @contextmanager
    def transaction(self, wait_s: float = BUSY_S) -> Iterator[sqlite3.Connection]:
        """Hold the right to write while the block runs; all of it is kept, or nothing.

        Raises:
            BusyError: another process holds it for longer than ``wait_s``.
        """
        connection = self.open()
        connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as why:
            if "locked" in str(why):
                raise BusyError(f"{self.path} is used by another process; run the command again") from why
            raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        try:
            yield connection
        except BaseException:
            with suppress(sqlite3.Error):
                connection.rollback()
            raise
        connection.commit()

    def examine(self) -> str:
        """Return what SQLite finds wrong with the file, "" for nothing."""
        try:
            found = [str(row[0]) for row in self.open().execute("PRAGMA integrity_check(10)")]
        except TROUBLE as why:
            return f"{type(why).__name__}: {why}"
        return "" if found == ["ok"] else "; ".join(found)

    def close(self) -> None:
        """Close the file. It opens again when it is asked."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def delete(self) -> None:
        """Delete the file with what SQLite keeps beside it, always all three."""
        self.close()
        if self.path is not None:
            for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
                self.path.with_name(name).unlink(missing_ok=True)


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database. Its generation begins where no earlier database's ended."""
    connection.executescript(f"BEGIN; {_SCHEMA}")
    set_meta(connection, "generation", str(time.time_ns() // 1000))
    connection.commit()


def get_meta(connection: sqlite3.Connection, key: str) -> str:
    """Return a value of the table ``meta``, or ""."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Set a value of the table ``meta``."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )


def checksum(data: bytes) -> bytes:
    """Return the eight bytes that a row is checked by."""
    return blake2b(data, digest_size=8).digest()


def checked(line: object, hash_: object) -> bytes:
    """Return a row's line.

    Raises:
        DamagedError: it is not what was written.
    """
    if not isinstance(line, bytes) or checksum(line) != hash_:
        raise DamagedError("a row of the database is not what was written")
    return line


def is_unwritable(why: Exception) -> bool:
    """Tell whether a database may only be read here, or not even opened: then one in memory serves."""
    return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _UNWRITABLE


def is_damage(why: Exception) -> bool:
    """Tell whether a new file may help, and not only another time or another disk."""
    if isinstance(why, FleetError):
        return False
    return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _NO_DAMAGE
