"""Machine-local state in SQLite: ``.fleet/state.db``. All of it can be made anew, but for the sent marks.

A sent mark is the hash of a line that this machine pushed: a line under one of our replica ids that we neither hold
nor ever sent was written by a clone of us.
"""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.keep.errors import FleetError

SCHEMA_VERSION = 1
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
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> str:
        """Return a value, or "" when there is none."""
        if not self._path.exists():
            return ""
        row = self._open().execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
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
        found = self._open().execute("SELECT 1 FROM sent WHERE hash = ?", (line_hash(raw),)).fetchone()
        return found is not None

    def session(self, agent: str, now_ms: int, idle_ms: int, new_id: Callable[[], str]) -> str:
        """Return the agent's running session; after an idle time a new one begins."""
        with self._transaction() as connection:
            row = connection.execute("SELECT id, last_ms FROM session WHERE agent = ?", (agent,)).fetchone()
            is_running = row is not None and 0 <= now_ms - row[1] <= idle_ms
            session_id = str(row[0]) if row is not None and is_running else new_id()
            connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", (agent, session_id, now_ms))
        return session_id

    def close(self) -> None:
        """Close the database. It opens again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._connect()
            except sqlite3.DatabaseError as why:
                if isinstance(why, sqlite3.OperationalError):
                    raise FleetError(
                        f"{self._path} cannot be opened ({why}); lessons are safe in their files. "
                        "Check the disk and the rights of that folder"
                    ) from why
                # Not a database any more. It is put aside, never deleted, and made anew.
                self._path.rename(self._path.with_name(f"state.damaged-{int(time.time())}.db"))
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._durable else 'OFF'}")
            connection.execute("BEGIN IMMEDIATE")
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        if version > SCHEMA_VERSION:
            connection.close()
            raise FleetError(
                f"{self._path} was made by a newer fleet (schema {version}, this one knows {SCHEMA_VERSION}); "
                "nothing was changed. Upgrade fleet on this machine"
            )
        return connection


def line_hash(raw: bytes) -> bytes:
    """Return the 16 bytes that stand for a line."""
    return hashlib.blake2b(raw, digest_size=16).digest()
