"""How ``state.db`` grows from one version of fleet to the next.

A migration is one function that takes a database from version n to n + 1, inside one transaction: all of it or none.
Before the first, the database is copied beside itself, so that a person can go back with an older fleet.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.keep.errors import FleetError

if TYPE_CHECKING:
    import sqlite3

Migration = Callable[["sqlite3.Connection"], None]

MIGRATIONS: tuple[Migration, ...] = ()
"""The n-th takes version n to n + 1, counted from 1. Only ever added to: somebody has every version."""

_BUSY_S = 20.0
_VOUCHER = "schema"
"""In ``meta``, from every fleet on that has a migration: the version once more."""


def version_after(migrations: Sequence[Migration]) -> int:
    """Return the schema's version once all migrations were made."""
    return 1 + len(migrations)


def migrate(connection: "sqlite3.Connection", path: Path, version: int, migrations: Sequence[Migration]) -> Path | None:
    """Bring a database up to date; return where the old one was copied to, None for a new one.

    The caller holds a write transaction, in which nothing was written yet unless the database is new, and commits it.

    Args:
        connection: holds the transaction.
        path: the database file.
        version: what it is at; 0 for one that was made just now.
        migrations: all there are.

    Raises:
        FleetError: a migration failed. The caller rolls back, and nothing was changed.
    """
    import sqlite3

    copied = _copy(path, version) if version else None
    for number, step in enumerate(migrations[max(version, 1) - 1 :], max(version, 1)):
        try:
            step(connection)
        except sqlite3.Error as why:
            raise FleetError(
                f"{path} could not be brought from schema {number} to {number + 1} ({why}); it is as it was, and "
                "lessons are safe in their files. Go back to the fleet you had, and please report this"
            ) from why
    after = version_after(migrations)
    connection.execute(f"PRAGMA user_version = {after}")
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_VOUCHER, str(after)))
    return copied


def is_vouched_for(connection: "sqlite3.Connection", version: int) -> bool:
    """Tell whether a fleet wrote this version, as it does twice: a header that says so alone is damaged."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_VOUCHER,)).fetchone()
    return row is not None and row[0] == str(version)


def _copy(path: Path, version: int) -> Path:
    """Copy a database that others may be reading. SQLite's own way: what its journal still holds comes along."""
    import sqlite3

    target = path.with_name(f"{path.stem}.schema-{version}.db")
    temporary = path.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        # A connection of its own: one that holds a write transaction cannot be copied from.
        with (
            closing(sqlite3.connect(path, timeout=_BUSY_S)) as source,
            closing(sqlite3.connect(temporary)) as copy,
        ):
            source.backup(copy)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except (OSError, sqlite3.Error) as why:
        raise FleetError(
            f"{path} must be brought up to date, and could not be copied first ({why}); it is as it was. "
            "Free some space, or check the rights of that folder"
        ) from why
    finally:
        with suppress(OSError):
            temporary.unlink()
    return target
