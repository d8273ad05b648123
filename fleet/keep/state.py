"""Machine-local state in SQLite: ``.fleet/state.db``. All of it can be made anew, but for the sent marks.

A sent mark is the hash of a line that this machine pushed: a line under one of our replica ids that we neither hold
nor ever sent was written by a clone of us.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fleet.keep import schema
from fleet.keep.digests import blake2b
from fleet.keep.errors import BusyError, FleetError
from fleet.keep.schema import Migration

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

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
        warn: takes what a person should be told: that it was damaged, and is made anew.
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = True,
        migrations: Sequence[Migration] = schema.MIGRATIONS,
        warn: Callable[[str], object] = bool,
    ) -> None:
        self._warn = warn
        self._inode = 0
        self._migrations = migrations
        self._path = path
        self._durable = durable
        self._connection: sqlite3.Connection | None = None
        self._is_frozen = False

    def get(self, key: str) -> str:
        """Return a value, or "" when there is none."""
        if not self._path.exists():
            return ""
        row = self._done(lambda it: it.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone(), to_read=True)
        return str(row[0]) if row else ""

    def put(self, **values: str) -> None:
        """Set values, all or none."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def mark_sent(self, lines: Iterable[bytes]) -> None:
        """Note lines that were pushed."""
        self.restore_sent(line_hash(raw) for raw in lines)

    def was_sent(self, raw: bytes) -> bool:
        """Tell whether this machine pushed the line."""
        if not self._path.exists():
            return False
        asked = "SELECT 1 FROM sent WHERE hash = ?"
        return self._done(lambda it: it.execute(asked, (line_hash(raw),)).fetchone()) is not None

    def sent(self) -> list[bytes]:
        """Return the hashes of all lines that this machine pushed, sorted."""
        if not self._path.exists():
            return []
        rows = self._done(lambda it: it.execute("SELECT hash FROM sent ORDER BY hash").fetchall(), to_read=True)
        return [row[0] for row in rows if isinstance(row[0], bytes)]

    def restore_sent(self, hashes: Iterable[bytes]) -> None:
        """Note again what was pushed before, from a backup."""
        self._write("INSERT OR IGNORE INTO sent VALUES (?)", [(each,) for each in hashes])

    def connection(self) -> "sqlite3.Connection":
        """Lend the open database to a module with tables of its own in it, which mends what goes wrong with them."""
        return self._open()

    def close(self) -> None:
        """Close the database. It opens again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._is_frozen = False

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def written(connection: "sqlite3.Connection") -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(statement, rows)
            except BaseException:
                with suppress(Exception):  # what is raised says more
                    connection.rollback()
                raise
            connection.commit()

        self._done(written)

    def _done(self, act: "Callable[[sqlite3.Connection], T]", *, to_read: bool = False) -> T:
        """Do something with the database, once more with a new one if it turns out to be damaged.

        Raises:
            BusyError: another process uses it.
            FleetError: it cannot be used, and is not damaged.
        """
        from fleet.keep.damage import TROUBLE, told

        for is_last in (False, True):
            connection = self._open(to_read=to_read)
            try:
                return act(connection)
            except TROUBLE as why:
                if "locked" in str(why):
                    raise BusyError(f"{self._path} is used by another process; run the command again") from why
                if is_last or not self._is_damage(why):
                    raise FleetError(
                        f"{self._path} cannot be used ({told(why)}); lessons are safe in their files. "
                        "Check the disk and the rights of that folder"
                    ) from why
                self.put_aside(why, to_read=to_read)
        raise AssertionError("the second time returns or raises")

    def _is_damage(self, why: Exception) -> bool:
        """Tell damage from a disk that is full, or that nobody may write to."""
        from fleet.keep.damage import is_damage

        if is_damage(why):
            return True
        with suppress(OSError), self._path.open("rb") as file:
            # SQLite takes a file of a format to come for one that it may not write: ours are of 1 or 2.
            head = file.read(20)
            return len(head) == 20 and not {head[18], head[19]} <= {1, 2}
        return False

    def put_aside(self, why: Exception, *, to_read: bool = False) -> None:
        """Move a damaged database out of the way, never delete it; it is made anew when it is needed.

        What SQLite keeps beside it goes along. Nothing is done if somebody else did it before.

        Raises:
            FleetError: it cannot be moved. ``to_read``, an empty one in memory serves until this is closed.
        """
        from fleet.keep.damage import told

        inode = self._inode
        self.close()
        told_of = f"{self._path} was damaged ({told(why)})"
        try:
            if inode and self._path.stat().st_ino != inode:
                return
            aside = self._path.with_name(f"state.damaged-{time.time_ns() // 1_000_000}.db")
            for beside in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    self._path.with_name(self._path.name + beside).rename(aside.with_name(aside.name + beside))
        except FileNotFoundError:
            return
        except OSError as hindrance:
            if not to_read:
                raise FleetError(
                    f"{told_of}, and cannot be put aside ({hindrance.strerror}); lessons are safe in their files. "
                    "Check the disk and the rights of that folder"
                ) from why
            self._connection, self._is_frozen = _empty(), True
            self._warn(f"{told_of}, and cannot be made anew here; no lesson is lost")
            return
        self._warn(f"{told_of}. It lies in {aside.name} now and is made anew; no lesson is lost")

    def _open(self, *, to_read: bool = False) -> "sqlite3.Connection":
        if self._is_frozen and not to_read:
            self.close()  # there may be room again, or the right to write
        if self._connection is None:
            try:
                is_linked = self._path.is_symlink() or self._path.parent.is_symlink()
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as why:
                raise FleetError(
                    f"{self._path.parent} cannot be used ({why.strerror}); lessons are safe in their files. "
                    "Check what is there, and whose it is"
                ) from why
            if is_linked:
                raise FleetError(
                    f"{self._path} is a symbolic link, or lies in one; fleet writes to plain files only. "
                    "Take the link away: all but the sent marks is made anew"
                )
            self._connection = self._connected(to_read=to_read)
        return self._connection

    def _connected(self, *, to_read: bool) -> "sqlite3.Connection":
        from fleet.keep.damage import TROUBLE, told

        for is_last in (False, True):
            with suppress(OSError):
                self._inode = self._path.stat().st_ino
            try:
                return self._connect()
            except TROUBLE as why:
                if not is_last and self._is_damage(why):
                    self.put_aside(why, to_read=to_read)
                    if self._connection is not None:
                        return self._connection
                    continue
                if to_read and "locked" not in str(why):
                    self._is_frozen = True
                    return self._connect_frozen() or self._without(why)
                raise FleetError(
                    f"{self._path} cannot be opened ({told(why)}); lessons are safe in their files. "
                    "Check the disk and the rights of that folder"
                ) from why
        raise AssertionError("the second time returns or raises")

    def _without(self, why: Exception) -> "sqlite3.Connection":
        """Return an empty database for who only reads, and say so."""
        from fleet.keep.damage import told

        self._warn(
            f"{self._path} cannot be read ({told(why)}), and is done without: no lesson is in it alone. "
            "`fleet doctor` lists what this user may not read or write"
        )
        return _empty()

    def _connect_frozen(self) -> "sqlite3.Connection | None":
        """Open the database as it lies there: on a full or read-only disk SQLite cannot make the files it opens with.

        What a crash left beside it, in the write-ahead log, is not seen then.
        """
        import sqlite3

        from fleet.keep.damage import TROUBLE

        try:
            connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?immutable=1", uri=True)
            connection.execute("SELECT 1 FROM meta LIMIT 1")
        except TROUBLE:
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
            if version > known and not schema.is_vouched_for(connection, version):
                raise sqlite3.DatabaseError(f"its header alone says schema {version}")
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


def _empty() -> "sqlite3.Connection":
    """Return a database with nothing in it, in memory."""
    import sqlite3

    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    return connection


def _version(connection: "sqlite3.Connection") -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def line_hash(raw: bytes) -> bytes:
    """Return the 16 bytes that stand for a line."""
    return blake2b(raw, digest_size=16).digest()
