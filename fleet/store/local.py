"""Local database: what this machine alone knows and cannot compute again (``.fleet/local.db``).

Consent, pause, sessions and exposures. Never derived, never deleted by fleet; ``fleet backup`` carries it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from crdt import clock
from fleet.model.errors import BusyError, DiskError, FleetError
from fleet.store.database import is_unwritable

T = TypeVar("T")

_BUSY_S = 20.0
_FOREVER = "forever"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS value (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS consent (kind TEXT, value TEXT, at TEXT NOT NULL, PRIMARY KEY (kind, value)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (agent TEXT PRIMARY KEY, id TEXT NOT NULL, last_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exposure (
  agent TEXT NOT NULL,
  pattern TEXT NOT NULL,
  session TEXT NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  number INTEGER NOT NULL,
  replica TEXT NOT NULL DEFAULT '', -- under which these showings are counted; empty: not yet
  total INTEGER NOT NULL DEFAULT 0, -- how many that replica has counted with them
  said INTEGER NOT NULL DEFAULT 0   -- whether that total is in the shard
);
CREATE INDEX IF NOT EXISTS exposure_by_pattern ON exposure (agent, pattern, first_ms);
CREATE INDEX IF NOT EXISTS exposure_unsaid ON exposure (agent, first_ms) WHERE said = 0;
"""
"""Values, consents and sessions; and the spans of exposures, kept by ``fleet.reflect.exposure``."""


class Pause(NamedTuple):
    """A pause of sharing that holds now. ``until`` is a stamp, or "" when only ``fleet resume`` ends it."""

    until: str

    def __str__(self) -> str:
        """Say until when."""
        return f"until {self.until[:16].replace('T', ' ')}Z" if self.until else "until `fleet resume`"


class Local:
    """The local database of one workspace, opened when it is first asked.

    Args:
        path: of the database; its folder exists when something is written.
        durable: False lets a test skip waiting for the disk.
        wait_s: how long another process is waited for.
    """

    def __init__(self, path: Path, *, durable: bool = True, wait_s: float = _BUSY_S) -> None:
        self.path = path
        self._wait_s = wait_s
        self._durable = durable
        self._connection: sqlite3.Connection | None = None

    def connection(self) -> sqlite3.Connection:
        """Return the open database, for a module that keeps tables of its own in it.

        Raises:
            BusyError: another process holds it.
            FleetError: it is damaged, or cannot be opened.
        """
        if self._connection is None:
            if self.path.is_symlink():
                raise DiskError(f"{self.path} is a symbolic link; fleet writes to plain files only, and left it alone")
            try:
                self._connection = _opened(self.path, self._wait_s, durable=self._durable)
            except sqlite3.Error as why:
                raise _told(self.path, why) from why
        return self._connection

    def in_one_go(self, act: Callable[[], object]) -> None:
        """Do some writing, all of it or nothing."""
        connection = self.connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            act()
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def get(self, key: str) -> str:
        """Return a value, or "" when there is none."""
        row = self._read("SELECT value FROM value WHERE key = ?", key)
        return str(row[0]) if row else ""

    def put(self, **values: str) -> None:
        """Set values, all or none; an empty one is removed."""
        rows = [(key, value) for key, value in values.items() if value]
        gone = [(key,) for key, value in values.items() if not value]
        self._write(
            ("INSERT INTO value VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", rows),
            ("DELETE FROM value WHERE key = ?", gone),
        )

    def agrees(self, kind: str, value: str) -> bool:
        """Tell whether somebody on this machine agreed to this very value."""
        return self._read("SELECT 1 FROM consent WHERE kind = ? AND value = ?", kind, value) is not None

    def agreed(self, kind: str) -> list[str]:
        """Return the values of a kind that somebody on this machine agreed to, newest first."""
        if not self.path.exists():
            return []
        asked = "SELECT value FROM consent WHERE kind = ? ORDER BY at DESC, value"
        return [row[0] for row in self._done(lambda: self.connection().execute(asked, (kind,)).fetchall())]

    def agree(self, kind: str, value: str, at: clock.Stamp) -> None:
        """Note a person's yes to a value."""
        self._write(("INSERT OR REPLACE INTO consent VALUES (?, ?, ?)", [(kind, value, at)]))

    def disagree(self, kind: str) -> None:
        """Withdraw every yes of a kind."""
        self._write(("DELETE FROM consent WHERE kind = ?", [(kind,)]))

    def session(self, agent: str, now_ms: int, idle_ms: int, fresh: Callable[[], str]) -> str:
        """Return the running session of an agent, or a new one when it has been idle for longer than ``idle_ms``."""
        row = self._read("SELECT id, last_ms FROM session WHERE agent = ?", agent)
        session = str(row[0]) if row and 0 <= now_ms - int(row[1]) <= idle_ms else fresh()
        connection = self.connection()
        if self._durable:
            connection.execute("PRAGMA synchronous = NORMAL")  # a session that a power failure forgets begins anew
        self._write(("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", [(agent, session, now_ms)]))
        if self._durable:
            connection.execute("PRAGMA synchronous = FULL")
        return session

    def was_shown(self, agent: str, ids: Iterable[str], before_ms: int) -> bool:
        """Tell whether one of these lessons was shown to this agent, here, before a point in time.

        False where nothing can be read: an exposure measures, and a correction does not wait for it.
        """
        wanted = list(dict.fromkeys(ids))
        asked = "SELECT 1 FROM exposure WHERE agent = ? AND first_ms < ? AND pattern IN ({}) LIMIT 1"
        try:
            return self._read(asked.format(", ".join("?" * len(wanted))), agent, before_ms, *wanted) is not None
        except FleetError:
            return False

    def paused(self, now: clock.Stamp) -> Pause | None:
        """Return the pause that holds now. A damaged value counts as one without an end: the careful answer."""
        until = self.get("paused")
        if not until:
            return None
        if not clock.is_stamp(until):
            return Pause("")
        return Pause(until) if now < until else None

    def pause(self, until: clock.Stamp) -> Pause:
        """Pause sharing until a stamp, or, with "", until ``resume``."""
        self.put(paused=until or _FOREVER)
        return Pause(until)

    def resume(self) -> None:
        """End a pause."""
        self.put(paused="")

    def close(self) -> None:
        """Close the database. It opens again when it is asked."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, asked: str, *values: str | int) -> tuple[Any, ...] | None:
        if not self.path.exists():
            return None
        found: tuple[Any, ...] | None = self._done(lambda: self.connection().execute(asked, values).fetchone())
        return found

    def _write(self, *statements: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        def write() -> None:
            for statement, rows in statements:
                self.connection().executemany(statement, rows)

        self._done(lambda: self.in_one_go(write))

    def _done(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except sqlite3.Error as why:
            raise _told(self.path, why) from why


def _opened(path: Path, wait_s: float, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.executescript(_SCHEMA)
    except sqlite3.OperationalError as why:
        connection.close()
        if not is_unwritable(why):
            raise
        return sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True, check_same_thread=False)
    except BaseException:
        connection.close()
        raise
    return connection


def _told(path: Path, why: sqlite3.Error) -> FleetError:
    if "locked" in str(why):
        return BusyError(f"{path} is used by another process; run the command again")
    return FleetError(
        f"{path} cannot be used ({why}). Lessons are safe: they lie in agents/ and clan-learnings/. Check the disk and "
        "the rights of that folder; if the file is damaged, rename it: fleet asks again for what was agreed to here"
    )
