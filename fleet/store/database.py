"""The two SQLite files of a workspace: one is derived from other files, the other is not.

``Database`` holds one materialised view: the join of line files, one row for each pattern and discovery. Everything in
it can be computed again, so a damaged file is deleted and rebuilt. The number of the schema is part of the file's name,
so two versions of fleet never share a file. Lessons are looked up by their words here, too, by queries that refresh the
rows first and by a hook that cannot wait for that.

``Local`` holds what only this machine knows and cannot compute again (``.fleet/local.db``): consent, pause and
exposures. Fleet never deletes it; ``fleet backup`` includes it.
"""

import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crdt import clock
from fleet.model.errors import BusyError, DiskError, FleetError
from fleet.store import homes, replica
from fleet.store.files import inode

SCHEMA_NUMBER = 13
BUSY_S = 20.0
_LOCKED_S = 0.005
_SQLITE_MIN = (3, 32)  # `iif`
_SCHEMA, _LOCAL_SCHEMA = (
    Path(__file__).with_name("data").joinpath(name).read_text("utf-8") for name in ("state.sql", "local.sql")
)

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""End of a journal that names another file: SQLite deletes that file after it has rolled back by the journal."""

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
_UNWRITABLE = {getattr(sqlite3, f"SQLITE_{name}") for name in ("READONLY", "FULL", "IOERR", "CANTOPEN", "PERM")}
_HINDERED = ("BUSY", "LOCKED", "NOMEM", "INTERRUPT", "AUTH", "PROTOCOL")
# None of these means that the file is damaged, so a new one would not help.
_NO_DAMAGE = _UNWRITABLE | {getattr(sqlite3, f"SQLITE_{name}") for name in _HINDERED}


class _DamagedError(sqlite3.DatabaseError):
    """Error of a row with a wrong checksum: SQLite itself misses such damage (in 36 of 60 changed pages)."""


class Database:
    """One database file, or without a path one in memory. ``durable``: False to skip fsync for a temporary one."""

    def __init__(self, path: Path | None, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @property
    def is_open(self) -> bool:
        """True where the file is open, and still the one at its path."""
        return self._connection is not None and (self.path is None or inode(self.path) == self._inode)

    @property
    def exists(self) -> bool:
        """True where there is anything to open."""
        return self.is_open or (self.path is not None and self.path.exists() and not self.path.is_symlink())

    def open(self) -> sqlite3.Connection:
        """Return the open connection; tables are made where there are none.

        A file that was replaced since is opened again: a long-lived process must not go on with a deleted one.
        """
        if not self.is_open:
            self.close()
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < _SQLITE_MIN:
            raise FleetError(
                f"SQLite {sqlite3.sqlite_version}, which this Python brings, is older than 3.32, so no lesson can be "
                "looked up; what was logged is kept. Install fleet with a Python that brings a newer one"
            )
        with _connected(self.path, BUSY_S, "NORMAL" if self._durable else "OFF") as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vector'").fetchone():
                _make_tables(connection)
        self._inode = inode(self.path) if self.path is not None else 0
        return connection

    @contextmanager
    def transaction(self, wait_s: float = BUSY_S) -> Iterator[sqlite3.Connection]:
        """Hold a write transaction: the block's writes are committed all or not at all. Raises ``BusyError``."""
        connection = self.open()
        connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as why:
            if "locked" in str(why):
                raise BusyError(f"{self.path} is used by another process", "; run the command again") from why
            raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        with _all_or_nothing(connection):
            yield connection

    def close(self) -> None:
        """Close the file. It opens again when it is asked."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def integrity_error(self) -> str:
        """Return the first error that SQLite finds in the file, "" for none, or for no file. Changes nothing."""
        if self.path is None or not self.exists:
            return ""
        try:
            uri = f"file:{quote(bytes(self.path))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=2.0)) as connection:
                result = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        except TROUBLE as why:
            return (str(why) or type(why).__name__) if is_damage(why) else ""  # busy or unreadable is not damaged
        return "" if result == "ok" else result.splitlines()[0]

    def delete(self) -> None:
        """Delete the file with all that SQLite keeps beside it."""
        self.close()
        if self.path is not None:
            for end in ("", "-wal", "-shm", "-journal"):
                self.path.with_name(f"{self.path.name}{end}").unlink(missing_ok=True)


def _check_journal(path: Path) -> None:
    """Raise ``DatabaseError`` for a journal beside a database that names another file, as fleet's never do.

    A repository may bring one along, and SQLite would delete whatever file it names.
    """
    journal = path.with_name(f"{path.name}-journal")
    if homes.read(str(journal), len(_SUPER_JOURNAL), from_end=True) == _SUPER_JOURNAL:
        raise _DamagedError(f"{journal.name} beside it names another file, which SQLite would delete; remove it")


@contextmanager
def _all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes in an open transaction, or roll it back."""
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(sqlite3.Error):
            connection.rollback()
        raise


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database. Its generation begins where no earlier database's ended."""
    connection.executescript(f"BEGIN; {_SCHEMA}")
    set_meta(connection, "generation", str(time.time_ns() // 1000))
    connection.commit()


@contextmanager
def without_indexes(connection: sqlite3.Connection, *, are_made: bool) -> Iterator[None]:
    """Hold a new database without its indexes while the block fills it; then, if ``are_made``, each is made in one go.

    To update an index row by row, in no order, costs more than all other work of SQLite.
    """
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = connection.execute(query).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    yield
    for _, sql in indexes if are_made else ():
        connection.execute(sql)


def get_meta(connection: sqlite3.Connection, key: str) -> str:
    """Return a value of the table ``meta``, or ""."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Set a value of the table ``meta``."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def checksum(data: bytes) -> bytes:
    """Return the eight bytes that a row is checked by."""
    return blake2b(data, digest_size=8).digest()


def checked(line: object, hash_: object) -> bytes:
    """Return a row's line; raise ``DatabaseError`` if it does not have this checksum."""
    if not isinstance(line, bytes) or checksum(line) != hash_:
        raise _DamagedError("a row of the database is not what was written")
    return line


def is_unwritable(why: Exception) -> bool:
    """Return whether a database may only be read here, or not even opened: then one in memory serves."""
    return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _UNWRITABLE


def is_damage(why: Exception) -> bool:
    """Return whether the error means a damaged file, which a new one replaces, and not a busy or full disk."""
    if isinstance(why, FleetError):
        return False
    return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _NO_DAMAGE


# --- lessons by their words -----------------------------------------------------------------------------------------

_HOLDERS_MAX = 10_000
_LOOKED_UP_MIN = 2


def sharing(connection: sqlite3.Connection, holders: Mapping[str, int], count: int, where: str) -> list[int]:
    """Return the row numbers of the lessons whose texts share most of some words, those that share rare ones first.

    Only the rarest words are looked up. Of lessons that share the same words the shortest comes first, then the newest.

    ``holders``: a full-text term for each word, and how many lessons have it.
    ``where``: the condition that a row of the table ``pattern`` has to fit.
    """
    lessons = connection.execute("SELECT ifnull(max(rowid), 0) FROM pattern").fetchone()[0]
    points: dict[int, float] = {}
    for term in _rarest(holders):
        weight = math.log((lessons + 1) / (holders[term] + 0.5))  # inverse document frequency
        for (number,) in connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (f"{{text}} : {term}",)):
            points[number] = points.get(number, 0.0) + weight
    query = f"""
        SELECT rowid FROM pattern WHERE rowid IN (SELECT value FROM json_each(?)) AND {where}
        ORDER BY length(text), last DESC, id DESC LIMIT ?"""  # noqa: S608
    found: list[int] = []
    for _, equals in groupby(sorted(points, key=points.__getitem__, reverse=True), points.__getitem__):
        found += [number for (number,) in connection.execute(query, (str(list(equals)), count - len(found)))]
        if len(found) >= count:
            break
    return found


def _rarest(holders: Mapping[str, int]) -> list[str]:
    """Return the rarest terms: until ``_HOLDERS_MAX`` lessons have them, and ``_LOOKED_UP_MIN`` at least.

    Frequent words separate lessons least, and cost most.
    """
    known = sorted((count, term) for term, count in holders.items() if count)
    sums = list(accumulate(count for count, _ in known))
    return [term for at, (_, term) in enumerate(known) if at < _LOOKED_UP_MIN or sums[at] <= _HOLDERS_MAX]


# --- what this machine alone knows ----------------------------------------------------------------------------------

DECIDED = "trust"
"""Key of the number of decisions about who and what is left out (``store.trust``), among the values."""

_FOREVER = "forever"
_WITHDRAWN = "DELETE FROM consent WHERE kind = ? AND value GLOB ? || '*'"
"""Statement that ends every consent of a kind on one machine: another may use the same folder, as a container does."""


class Local:
    """The local database of one workspace, opened when it is first asked.

    Attributes:
        written: number of transactions that were committed.
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = True,
        wait_s: float = BUSY_S,
        machine: Callable[[], str] = replica.machine_fingerprint,
    ) -> None:
        self.path = path
        self._machine = machine
        self._wait_s = wait_s
        self._durable = durable
        self._connection: sqlite3.Connection | None = None
        self.written = 0

    def connection(self) -> sqlite3.Connection:
        """Return the open database, for a module with tables of its own in it; or raise ``FleetError``."""
        if self._connection is None:
            if link := _link_on(self.path):
                raise DiskError(f"{link} is a symbolic link; fleet writes to plain files only, and left it alone")
            with self._explained():
                self._connection = _opened(self.path, self._wait_s, durable=self._durable)
        return self._connection

    @property
    def exists(self) -> bool:
        """True if there is a file to read; False for a link, and in a folder that may not be entered."""
        try:
            return self.path.stat().st_size > 0 and not _link_on(self.path)
        except OSError:
            return False

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold a write transaction: the block's writes are committed all or not at all."""
        connection = self.connection()
        with self._explained():
            connection.execute("BEGIN IMMEDIATE")
            with _all_or_nothing(connection):
                yield connection
        self.written += 1

    def get(self, key: str) -> str:
        """Return a value, or "" when there is none."""
        return next((str(value) for (value,) in self.rows("SELECT value FROM value WHERE key = ?", key)), "")

    def note_look(self, generation: int, at: str) -> None:
        """Record that a person looked, or joined: what comes later counts as new."""
        self.put(looked=f"{generation} {at}")

    def last_look(self) -> tuple[str, str]:
        """Return the generation of the rows, and the time, of a person's last look; "" for none."""
        generation, _, at = self.get("looked").partition(" ")
        return generation, at

    def put(self, **values: str) -> None:
        """Set values, all or none; an empty one is removed."""
        rows = [(key, value) for key, value in values.items() if value]
        gone = [(key,) for key, value in values.items() if not value]
        self._write(
            ("INSERT OR REPLACE INTO value VALUES (?, ?)", rows),
            ("DELETE FROM value WHERE key = ?", gone),
        )

    def agrees(self, kind: str, value: str) -> bool:
        """Return whether somebody on this machine agreed to this value; the kinds are in ``fleet.store.consent``."""
        return bool(self.rows("SELECT 1 FROM consent WHERE kind = ? AND value = ?", kind, self.here(value)))

    def agreed(self, kind: str) -> list[str]:
        """Return the values of a kind that somebody on this machine agreed to, newest first."""
        if not self.exists:  # deleted while it was open: nobody agrees any more
            return []
        rows, here = self.rows("SELECT value FROM consent WHERE kind = ? ORDER BY at DESC, value", kind), self.here("")
        return [value.removeprefix(here) for (value,) in rows if value.startswith(here)]

    def agree(self, kind: str, value: str, at: clock.Stamp, *, alone: bool = False) -> None:
        """Record a person's consent to a value, with ``alone`` in place of any other of its kind on this machine."""
        replaced = [(kind, self.here(""))] if alone else []
        row = (kind, self.here(value), at)
        self._write((_WITHDRAWN, replaced), ("INSERT OR REPLACE INTO consent VALUES (?, ?, ?)", [row]))

    def disagree(self, kind: str, value: str = "") -> None:
        """Withdraw the consent to one value, or every consent of a kind, on this machine."""
        one = "DELETE FROM consent WHERE kind = ? AND value = ?"
        self._write((one if value else _WITHDRAWN, [(kind, self.here(value))]))

    def here(self, value: str) -> str:
        """Return a value or key as it is stored if it holds on this machine alone: after the machine's fingerprint.

        A repository may bring a ``.fleet`` along, but its author does not know this fingerprint.
        """
        return f"{self._machine()} {value}"

    def was_shown(self, agent: str, ids: Iterable[str], before_ms: int) -> bool:
        """Return whether one of these lessons was shown to this agent, here, before a point in time.

        False if the database cannot be read: exposures are statistics, which must not stop a correction.
        """
        wanted = list(dict.fromkeys(ids))
        query = "SELECT 1 FROM exposure WHERE agent = ? AND first_ms < ? AND pattern IN ({}) LIMIT 1"
        try:
            return bool(self.rows(query.format(", ".join("?" * len(wanted))), agent, before_ms, *wanted))
        except FleetError:
            return False

    def paused(self, now: clock.Stamp) -> str:
        """Return until when sharing is paused, for a message; "" where it is not.

        A damaged value counts as a pause without an end: the careful answer.
        """
        until = self.get("paused")
        if clock.is_stamp(until):
            return f"until {until[:16].replace('T', ' ')}Z" if now < until else ""
        return "until `fleet resume`" if until else ""

    def pause(self, until: clock.Stamp) -> None:
        """Pause sharing until a stamp, or, with "", until ``resume``."""
        self.put(paused=until or _FOREVER)

    def resume(self) -> None:
        """End a pause."""
        self.put(paused="")

    def close(self) -> None:
        """Close the database. It opens again when it is asked."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query; none where there is no file. Raises ``FleetError`` where it cannot be read."""
        if self._connection is None and not self.exists:
            return []
        with self._explained():
            return self.connection().execute(query, values).fetchall()

    def _write(self, *statements: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        with self.transaction() as connection:
            for statement, rows in statements:
                connection.executemany(statement, rows)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of SQLite's in the block into one that tells a person what to do."""
        try:
            yield
        except sqlite3.Error as why:
            raise _error(self.path, why) from why


def _link_on(path: Path) -> Path | None:
    """Return the link that is in the place of a file, or of its folder; None for no link, or an unreadable folder.

    SQLite follows links: a hostile repository's link would make it create a database wherever the link leads.
    """
    with suppress(OSError):
        return next((each for each in (path.parent, path) if each.is_symlink()), None)
    return None


@contextmanager
def _connected(path: Path | None, wait_s: float, synchronous: str) -> Iterator[sqlite3.Connection]:
    """Open a file, or without a path a database in memory, for more than the block; close it if the block fails."""
    if path is not None:
        _check_journal(path)
    connection = sqlite3.connect(path or ":memory:", timeout=wait_s, isolation_level=None, check_same_thread=False)
    try:
        if path is not None:
            _use_wal(connection, wait_s)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        yield connection
    except BaseException:
        connection.close()
        raise


def _use_wal(connection: sqlite3.Connection, wait_s: float) -> None:
    """Switch a database to a write-ahead log. SQLite's own timeout does not apply to the lock that this takes."""
    until = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as why:
            if "locked" not in str(why) or time.monotonic() >= until:
                raise
            time.sleep(_LOCKED_S)


def _opened(path: Path, wait_s: float, *, durable: bool) -> sqlite3.Connection:
    try:
        with _connected(path, wait_s, "FULL" if durable else "OFF") as connection:
            connection.execute("PRAGMA fullfsync = ON")  # as in ``Files``; only macOS knows it
            _check_schema(connection)
            connection.executescript(_LOCAL_SCHEMA)
        return connection
    except sqlite3.OperationalError as why:
        if not is_unwritable(why) or not path.is_file() or not path.stat().st_size:
            raise
        return sqlite3.connect(f"file:{quote(bytes(path))}?immutable=1", uri=True, check_same_thread=False)


def _check_schema(connection: sqlite3.Connection) -> None:
    """Raise ``DatabaseError`` for a local database with a trigger or a view, or with a table that is not as fleet's.

    A repository may bring one along in which a trigger turns the consent to one value into consent to all.
    """
    ours = _LOCAL_SCHEMA.replace(" IF NOT EXISTS", "")
    query = "SELECT type, lower(tbl_name), name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    for kind, table, name, sql in connection.execute(query):
        is_known = f"CREATE TABLE {table} (" in ours
        if kind not in ("table", "index") or (is_known and f"{sql};" not in ours):
            raise _DamagedError(f"its {kind} {str(name)[:60]!r} was not made by fleet")


def _error(path: Path, why: sqlite3.Error) -> FleetError:
    """Return the error that tells a person why the local database cannot be used."""
    if "locked" in str(why):
        return BusyError(f"{path} is used by another process", "; run the command again")
    message = f"{path} cannot be used ({why}). Lessons are safe: they lie in the agents' logs and clan-learnings/"
    if is_unwritable(why) or "no such table" in str(why):  # there was no room to make it
        return DiskError(
            f"{message}. The disk is full, or this user may not read and write there: `fleet doctor` shows which"
        )
    return FleetError(f"{message}. If the file is damaged, rename it: fleet asks again for what was agreed to")
