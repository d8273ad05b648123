"""The whole search index made anew: beside the database, where it disturbs nobody, and then put into it at once.

Made in its place, it would take many commits, each of which writes what the next one changes again, or a single one
that keeps everybody else from writing for seconds. So it grows in a database of its own, of which SQLite unlinks the
file as it makes it: whoever is killed leaves nothing behind, and what is in ``state.db`` is whole or missing.
"""

import re
import sqlite3
from contextlib import closing

from fleet.keep import limits
from fleet.keep.index import WORD_TABLES, Index
from fleet.keep.indexing import Told, refresh
from fleet.keep.sources import Sources

_CREATE = re.compile(r"CREATE (?:VIRTUAL TABLE|TABLE|UNIQUE INDEX|INDEX|TRIGGER) ")
_BEFORE_ROWS = ("table", "index")
_CACHE_KB = 32 * 1024
_HASH_BYTES = 8 * 1024 * 1024
# A full-text table is written out in large pieces then, and merged once, in the end.
_WHILE_BUILT = {"hashsize": _HASH_BYTES, "automerge": 0, "crisismerge": 1_000}
_AFTERWARDS = {"hashsize": 1024 * 1024, "automerge": 4, "crisismerge": 16}  # what SQLite does by itself


def build(index: Index, sources: Sources, told: Told | None = None) -> set[str]:
    """Make the index anew from all there is; return what ``refresh`` does. The caller holds its lock.

    Args:
        index: the one to be replaced. Nobody can write to its database for about 0.5 s with 100,000 patterns.
        sources: what it is made of.
        told: is told how far it is.

    Raises:
        sqlite3.OperationalError: there is no room, or the database cannot be written to. What was there is there.
    """
    path = index.connection.execute("PRAGMA database_list").fetchone()[2]
    with closing(sqlite3.connect("", timeout=limits.LOCK_WAIT_S, isolation_level=None)) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KB}"):
            connection.execute(f"PRAGMA {pragma}")
        made = Index(connection)
        made.prepare()
        connection.execute("BEGIN")
        _configure(connection, _WHILE_BUILT)
        refresh(made, sources, told)
        _merge(connection)
        _configure(connection, _AFTERWARDS)
        connection.commit()
        before = _marks(index) if index.generation() else {}
        index.drop()
        connection.execute("ATTACH ? AS state", (path,))
        connection.execute("PRAGMA state.synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        _copy(connection)
        connection.commit()
        return {ref for ref, mark in _marks(made).items() if before.get(ref) != mark}


def _marks(index: Index) -> dict[str, int]:
    return dict(index.connection.execute("SELECT ref, mark FROM search_doc WHERE ref != ''"))


def _configure(connection: sqlite3.Connection, values: dict[str, int]) -> None:
    for table in WORD_TABLES:
        for name, value in values.items():
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))  # noqa: S608


def _merge(connection: sqlite3.Connection) -> None:
    """Make one piece of the hundred that were written out: each question looks into every piece."""
    for table in WORD_TABLES:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608


def _copy(connection: sqlite3.Connection) -> None:
    """Copy all tables, page by page as far as SQLite can: it does so between tables that are alike and empty."""
    words = [f"{table}_" for table in WORD_TABLES]
    made = [
        (kind, name, sql)
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM main.sqlite_master")
        if sql and name.startswith("search_") and not name.startswith(tuple(words))
    ]
    for wanted in _BEFORE_ROWS:
        for kind, _, sql in made:
            if kind == wanted:
                connection.execute(_elsewhere(sql))
    asked = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name GLOB 'search_*'"
    for name in [str(row[0]) for row in connection.execute(asked)]:
        if name not in WORD_TABLES:
            connection.execute(f"DELETE FROM state.{name}")  # noqa: S608 - a full-text table is not made empty
            connection.execute(f"INSERT INTO state.{name} SELECT * FROM main.{name}")  # noqa: S608
    for kind, _, sql in made:
        if kind == "trigger":
            connection.execute(_elsewhere(sql))


def _elsewhere(sql: str) -> str:
    return _CREATE.sub(r"\g<0>state.", sql, count=1)
