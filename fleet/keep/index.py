"""The search index: one table of texts in ``.fleet/state.db``, and a full-text index (SQLite's FTS5) over it.

Everything in it can be made anew from files, so whatever is wrong with it (missing, older, damaged, half built) is
mended by dropping the tables, and where even that fails the same tables are made in memory for one question.

One tokenizer, ``unicode61``, and no trigram index beside it. What words cannot serve (one or two characters, Chinese,
Japanese, Thai, ``C++``, ``--json``) is looked for in the stored text itself. A trigram index could not replace that: it
serves nothing below three characters, and most Chinese words have two. Measured on 100,000 patterns, 60 MB: looking in
the text takes 20 to 50 ms, with trigrams 15 ms or less; they take 2.4 s and 73 MB to make, words 0.5 s and 14 MB.
"""

import math
import os
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from fleet.keep.damage import TROUBLE
from fleet.keep.lazily import compiled
from fleet.keep.screening import one_line, strip_controls

VERSION = "5"
PATTERN, DISCOVERY, CORRECTION, JOURNAL = KINDS = ("pattern", "discovery", "correction", "journal")

HEAD_WEIGHT = 2.0  # a hit in a lesson itself says more than one in its tags
PUBLISHED_BOOST = 0.25
SEEN_BOOST, SEEN_BOOST_MAX = 0.05, 0.25  # a doubling of the occurrences, and all of them
LIKE_CHARS_MAX = 5_000  # SQLite refuses patterns of 50,000 bytes
PARAMETERS_MAX = 900

_TABLES = """
CREATE TABLE search_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE search_file (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, read INTEGER NOT NULL, torn INTEGER NOT NULL,
  digest BLOB NOT NULL, is_log INTEGER NOT NULL, is_odd INTEGER NOT NULL);
CREATE TABLE search_line (file INTEGER NOT NULL, at INTEGER NOT NULL, length INTEGER NOT NULL, hash INTEGER NOT NULL,
  key TEXT NOT NULL, PRIMARY KEY (file, at)) WITHOUT ROWID;
CREATE INDEX search_line_key ON search_line (key);
CREATE TABLE search_stale (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE search_due (key TEXT PRIMARY KEY, stamp TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE search_odd (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE search_tally (sight INTEGER NOT NULL, evidence INTEGER NOT NULL);
CREATE TABLE search_often (beginning TEXT PRIMARY KEY, documents INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE search_newest (replica TEXT PRIMARY KEY, stamp TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE search_doc (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, ref TEXT NOT NULL, path TEXT NOT NULL,
  line INTEGER NOT NULL, head TEXT NOT NULL, body TEXT NOT NULL, who TEXT NOT NULL, at TEXT NOT NULL,
  seen INTEGER NOT NULL, gone INTEGER NOT NULL, boost REAL NOT NULL, published INTEGER NOT NULL,
  withdrawn INTEGER NOT NULL, witnesses INTEGER NOT NULL, sessions INTEGER NOT NULL, points_to TEXT NOT NULL,
  alike TEXT NOT NULL, is_timed INTEGER NOT NULL, mark INTEGER NOT NULL);
CREATE UNIQUE INDEX search_doc_ref ON search_doc (ref) WHERE ref != '';
CREATE UNIQUE INDEX search_doc_place ON search_doc (path, line) WHERE path != '';
CREATE INDEX search_doc_sight ON search_doc (published DESC, seen DESC, ref) WHERE kind = 'pattern' AND gone = 0;
CREATE INDEX search_doc_evidence ON search_doc (published DESC, witnesses DESC, sessions DESC, seen DESC, ref)
  WHERE kind = 'pattern' AND gone = 0 AND withdrawn = 0;
INSERT INTO search_tally VALUES (0, 0);
CREATE TRIGGER search_doc_added AFTER INSERT ON search_doc WHEN new.kind = 'pattern' AND new.gone = 0
  BEGIN UPDATE search_tally SET sight = sight + 1, evidence = evidence + (new.withdrawn = 0); END;
CREATE TRIGGER search_doc_removed AFTER DELETE ON search_doc WHEN old.kind = 'pattern' AND old.gone = 0
  BEGIN UPDATE search_tally SET sight = sight - 1, evidence = evidence - (old.withdrawn = 0); END;
CREATE TRIGGER search_doc_changed AFTER UPDATE OF gone, withdrawn ON search_doc WHEN new.kind = 'pattern'
  BEGIN UPDATE search_tally SET sight = sight + (new.gone = 0) - (old.gone = 0),
  evidence = evidence + (new.gone = 0 AND new.withdrawn = 0) - (old.gone = 0 AND old.withdrawn = 0); END;
CREATE INDEX search_doc_newest ON search_doc (at DESC, ref DESC) WHERE kind = 'discovery' AND gone = 0;
CREATE INDEX search_doc_timed ON search_doc (ref) WHERE is_timed = 1;
CREATE INDEX search_doc_points ON search_doc (points_to) WHERE points_to != '';
CREATE INDEX search_doc_alike ON search_doc (alike) WHERE alike != '';
"""
_WORDS = """
CREATE VIRTUAL TABLE search_text USING fts5(head, body, content='search_doc', content_rowid='id',
  tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE search_head USING fts5(head, content='', detail=none, columnsize=0, prefix='3 4 5',
  tokenize='unicode61 remove_diacritics 2');
"""
WORD_TABLES = ("search_head", "search_text")
"""``search_head`` holds the lessons' own words alone, and which documents have one that begins so, ready to be counted:
three times as fast as the other, for 6 MB and 0.5 s more with 100,000 patterns.
"""
_MAKING = ("CREATE TABLE ", "CREATE VIRTUAL TABLE ")
_NAMES = frozenset(
    line.removeprefix(made).split()[0]
    for line in (_TABLES + _WORDS).splitlines()
    for made in _MAKING
    if line.startswith(made)
)
_SHADOWS = frozenset(
    {
        *(f"search_text_{part}" for part in ("config", "data", "docsize", "idx")),
        *(f"search_head_{part}" for part in ("config", "data", "idx")),
    }
)
_COLUMNS = (
    "kind, ref, path, line, head, body, who, at, seen, gone, boost, "
    "published, withdrawn, witnesses, sessions, points_to, alike, is_timed, mark"
)
_LIKE_SPECIAL = compiled(r"[\\%_]")


class Doc(msgspec.Struct, frozen=True):
    """One thing that can be found.

    Attributes:
        kind: one of ``KINDS``.
        ref: the id of a pattern or discovery, else "".
        path: the file of a correction or journal section, below the root, else "".
        line: its line in that file.
        head: what it says in short, as ``clean`` returns it.
        body: the rest of it.
        who: whose it is.
        at: when, as it is told there: a stamp, or a heading's date.
        seen: how often a pattern was seen.
        gone: 1 for a retired pattern, 2 for what has nothing to show.
        boost: how much better than by its words alone it ranks.
        published, withdrawn: what a pattern's ``state`` says.
        witnesses, sessions: a pattern's evidence, as ``notebook.witnesses`` counts it.
        points_to: the pattern it is merged into, or "".
        alike: ``alike`` of a text that was edited and may differ from the one its id was made of, else "".
        is_timed: 1 for a pattern with a ``trigger``: it is shown at a moment of its own.
        mark: stands for the joined record: another one, another mark.
    """

    kind: str
    ref: str
    path: str
    line: int
    head: str
    body: str
    who: str
    at: str
    seen: int = 0
    gone: int = 0
    boost: float = 0.0
    published: int = 0
    withdrawn: int = 0
    witnesses: int = 0
    sessions: int = 0
    points_to: str = ""
    alike: str = ""
    is_timed: int = 0
    mark: int = 0


class Ask(msgspec.Struct, frozen=True):
    """What to look for.

    Attributes:
        match: an FTS5 expression made by ``phrase``; "" looks at the text alone.
        holds: what the text must hold, each, whatever its case.
        kinds: of these.
        gone: retired patterns too.
        limit: at most so many.
    """

    match: str = ""
    holds: tuple[str, ...] = ()
    kinds: tuple[str, ...] = KINDS
    gone: bool = False
    limit: int = 20

    def but(self, **fields: Any) -> "Ask":
        """Return the same with other fields."""
        return replace(self, **fields)


def clean(text: str) -> str:
    """Return a text as it is stored and looked for: NFC, one line, no hidden marks. Secrets are still in it."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    elif text.isprintable():
        return " ".join(text.split())  # as below, where there is nothing to take out
    return one_line(strip_controls(text))


def phrase(text: str, *, is_prefix: bool = False) -> str:
    """Return the FTS5 expression for words in this order, the last one perhaps cut short. Any text is safe in it."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"' + ("*" if is_prefix else "")


def boost(seen: int, *, is_published: bool) -> float:
    """Return how much better a lesson ranks for what the clan thinks of it."""
    often = min(SEEN_BOOST * math.log2(seen), SEEN_BOOST_MAX) if seen > 1 else 0.0
    return often + (PUBLISHED_BOOST if is_published else 0.0)


class Index:
    """The tables of the index in one database. ``indexing`` fills them.

    Args:
        connection: in autocommit mode; transactions are begun here.
        has_words: False makes no full-text index, for an SQLite without FTS5: then only ``Ask.holds`` is of use.
    """

    def __init__(self, connection: sqlite3.Connection, *, has_words: bool = True) -> None:
        self.connection = connection
        self.has_words = has_words
        connection.create_function("fleet_holds", 3, _holds, deterministic=True)

    # --- the tables ---

    def generation(self) -> str:
        """Return the mark of these tables, "" unless they are complete and of this version."""
        wanted = _NAMES if self.has_words else _NAMES.difference(WORD_TABLES)
        there = self.connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'search_*' AND type = 'table'")
        if not wanted <= {row[0] for row in there}:
            return ""
        meta = dict(self.connection.execute("SELECT key, value FROM search_meta"))
        return str(meta.get("generation", "")) if meta.get("version") == VERSION else ""

    def prepare(self) -> None:
        """Make the tables, unless they are there."""
        if self.generation():
            return
        self.drop()
        with self.transaction():
            for statement in (_TABLES + (_WORDS if self.has_words else "")).split(";\n"):
                if statement.strip():
                    self.connection.execute(statement)
            self.connection.executemany(
                "INSERT INTO search_meta VALUES (?, ?)", [("version", VERSION), ("generation", os.urandom(8).hex())]
            )

    def drop(self) -> None:
        """Take all tables of the index away, damaged ones too, and nothing else."""
        with self.transaction():
            found = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            there = {str(row[0]) for row in found}
            for name in sorted((there & _NAMES).difference(WORD_TABLES)):
                self.connection.execute(f"DROP TABLE {name}")
        for name in there.intersection(WORD_TABLES):
            try:
                self.connection.execute(f"DROP TABLE {name}")
            except TROUBLE:
                self._drop_broken_words(name, there)

    def _drop_broken_words(self, table: str, there: set[str]) -> None:
        """A full-text table that cannot be opened cannot be dropped: its own tables go first, then its entry."""
        self.connection.execute("PRAGMA writable_schema = ON")
        try:
            with self.transaction():
                self.connection.execute("DELETE FROM sqlite_master WHERE name = ?", (table,))
                for name in sorted(there & {shadow for shadow in _SHADOWS if shadow.startswith(f"{table}_")}):
                    self.connection.execute(f"DROP TABLE {name}")
        finally:
            self.connection.execute("PRAGMA writable_schema = RESET")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do all of it or nothing; within another one, it is a part of that."""
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(*TROUBLE):
                self.connection.rollback()
            raise
        self.connection.commit()

    # --- writing, inside a transaction of the caller's ---

    def replace_refs(self, docs: Sequence[Doc], refs: Sequence[str]) -> list[str]:
        """Make ``docs`` all that is known under these ids; return those whose record is another now."""
        known = {row[2]: row for row in self._rows("ref", refs)}
        changed = [doc.ref for doc in docs if doc.ref not in known or known[doc.ref][-1] != doc.mark]
        self._replace([(known.pop(doc.ref, None), doc) for doc in docs])
        self._remove(known.values())
        return changed

    def replace_page(self, path: str, docs: Iterable[Doc]) -> None:
        """Make ``docs`` all that is known of one file."""
        known = {row[4]: row for row in self._rows("path", [path])}
        self._replace([(known.pop(line, None), doc) for line, doc in {doc.line: doc for doc in docs}.items()])
        self._remove(known.values())

    def _rows(self, column: str, values: Sequence[str]) -> list[tuple[object, ...]]:
        marks = ",".join("?" * len(values))
        wanted = f"SELECT id, {_COLUMNS} FROM search_doc WHERE {column} IN ({marks}) AND {column} != ''"  # noqa: S608
        return self.connection.execute(wanted, values).fetchall()

    def _replace(self, pairs: Iterable[tuple[tuple[object, ...] | None, Doc]]) -> None:
        inserted, unlisted, listed = [], [], []
        for old, doc in pairs:
            if old is None:
                inserted.append(doc)
            elif old[1:] != (row := astuple(doc)):
                self.connection.execute(
                    f"UPDATE search_doc SET ({_COLUMNS}) = ({','.join('?' * len(row))}) WHERE id = ?",  # noqa: S608
                    (*row, old[0]),
                )
                if (old[5], old[6]) != (doc.head, doc.body):
                    unlisted.append((old[0], old[5], old[6]))
                    listed.append((old[0], doc.head, doc.body))
        self._unlist(unlisted)
        first = self.connection.execute("SELECT ifnull(max(id), 0) + 1 FROM search_doc").fetchone()[0]
        rows = [(first + number, *astuple(doc)) for number, doc in enumerate(inserted)]
        self.connection.executemany(
            f"INSERT INTO search_doc (id, {_COLUMNS}) VALUES (?, {','.join('?' * len(Doc.__struct_fields__))})",  # noqa: S608
            rows,
        )
        listed += [(row[0], row[5], row[6]) for row in rows]
        if self.has_words:
            self.connection.executemany("INSERT INTO search_text (rowid, head, body) VALUES (?, ?, ?)", listed)
            heads = ((row[0], row[1]) for row in listed)
            self.connection.executemany("INSERT INTO search_head (rowid, head) VALUES (?, ?)", heads)
            self._follow([str(row[1]) for row in listed], 1)

    def _remove(self, rows: Iterable[tuple[object, ...]]) -> None:
        gone = list(rows)
        self._unlist([(row[0], row[5], row[6]) for row in gone])
        self.connection.executemany("DELETE FROM search_doc WHERE id = ?", [(row[0],) for row in gone])

    def _unlist(self, rows: Sequence[tuple[object, object, object]]) -> None:
        """The full-text index keeps no text of its own: it must be told the very words that it forgets."""
        if self.has_words:
            forget = "INSERT INTO search_text (search_text, rowid, head, body) VALUES ('delete', ?, ?, ?)"
            self.connection.executemany(forget, rows)
            forget = "INSERT INTO search_head (search_head, rowid, head) VALUES ('delete', ?, ?)"
            self.connection.executemany(forget, [(row[0], row[1]) for row in rows])
            self._follow([str(row[1]) for row in rows], -1)

    def _follow(self, heads: Sequence[str], step: int) -> None:
        from fleet.keep import often  # who only asks needs none of it

        often.follow(self.connection, heads, step)

    # --- asking ---

    def find(self, ask: Ask) -> list[Doc]:
        """Return what fits, best first: what was typed as it stands, then by bm25 and boost, or by boost alone."""
        source, where, order = "search_doc d", ["d.gone <= ?"], ""
        values: list[object] = [int(ask.gone)]
        where.append(f"d.kind IN ({','.join('?' * len(ask.kinds))})")
        values += ask.kinds
        if ask.match:
            source = "search_text JOIN search_doc d ON d.id = search_text.rowid"
            where.append("search_text MATCH ?")
            values.append(ask.match)
        for needle in ask.holds:
            condition, parameters = _holding(needle)
            where.append(condition)
            values += parameters
        for needle in ask.holds:
            order += "(instr(d.head, ?) > 0 OR instr(d.body, ?) > 0) DESC, "
            values += (needle, needle)
        if ask.match:
            order += f"bm25(search_text, {HEAD_WEIGHT}, 1.0) * (1.0 + d.boost), "
        elif ask.holds:
            order += "instr(d.head, ?) > 0 DESC, "
            values.append(ask.holds[0])
        columns = ", ".join(f"d.{field}" for field in Doc.__struct_fields__)
        found = self.connection.execute(
            f"SELECT {columns} FROM {source} WHERE {' AND '.join(where)} "  # noqa: S608 - names of our own
            f"ORDER BY {order}d.boost DESC, d.at DESC, d.ref, d.path, d.line LIMIT ?",
            (*values, ask.limit),
        )
        return [Doc(*row) for row in found]

    def often(self, beginnings: Sequence[str]) -> dict[str, int]:
        """Return how many documents have a word in their head that begins so, of those of which it is kept (``often``).

        Args:
            beginnings: at most ``PARAMETERS_MAX``.
        """
        some = ",".join("?" * len(beginnings))
        asked = f"SELECT beginning, documents FROM search_often WHERE beginning IN ({some})"  # noqa: S608
        return dict(self.connection.execute(asked, beginnings))

    def file_of(self, ref: str) -> str:
        """Return a file, below the root, that holds a line of this id: the first by name."""
        found = self.connection.execute(
            "SELECT min(f.path) FROM search_line l JOIN search_file f ON f.id = l.file WHERE l.key = ?", (ref,)
        ).fetchone()
        return str(found[0] or "")


def fold(text: str) -> str:
    """Return a text as it is compared when its case means nothing."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def _holding(needle: str) -> tuple[str, tuple[str, str] | tuple[str]]:
    """Return an SQL condition and its values. LIKE knows no letter case but that of ASCII."""
    beyond = "".join(letter for letter in needle if not letter.isascii())
    if beyond.casefold() == beyond == beyond.upper() and len(needle) <= LIKE_CHARS_MAX:
        like = "%" + _LIKE_SPECIAL.sub(r"\\\g<0>", needle) + "%"
        return r"(d.head LIKE ? ESCAPE '\' OR d.body LIKE ? ESCAPE '\')", (like, like)
    return "fleet_holds(?, d.head, d.body)", (fold(needle),)


def _holds(needle: str, head: str, body: str) -> bool:
    return needle in fold(head) or needle in fold(body)
