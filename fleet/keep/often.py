"""How many documents have a word that begins so, for beginnings that many have: to count these is most of a lookup.

The numbers are exact. They are counted once the index has grown, and follow each change within its transaction; what is
not kept here is counted by whoever asks. Words are cut as the full-text index cuts them.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache

OFTEN_MIN = 1_000
"""Fewer documents than this are counted in 0.04 ms."""

DOCUMENTS_MIN = 3_000
CHARS_MIN, CHARS_MAX = 3, 8
SHORT_CHARS = 4
ENDING_CHARS_MAX = 4
"""Of a word people look for its first four letters, or for two thirds of its stem (``matching``)."""

TOKENIZER = "unicode61 remove_diacritics 2"

_ASCII_WORD = re.compile("[0-9a-z]+")  # nothing else is part of a word to the tokenizer


def follow(connection: sqlite3.Connection, heads: Sequence[str], step: int) -> None:
    """Note that documents with these heads came (1) or went (-1). In the transaction in which they do."""
    known = {row[0] for row in connection.execute("SELECT beginning FROM search_often")} if heads else set()
    if not known:
        return
    counts: Counter[str] = Counter()
    for words in _words_of(heads):
        counts.update(
            {word[:size] for word in words for size in range(CHARS_MIN, min(len(word), CHARS_MAX) + 1)} & known
        )
    changed = [(step * documents, beginning) for beginning, documents in counts.items()]
    connection.executemany("UPDATE search_often SET documents = documents + ? WHERE beginning = ?", changed)


def is_due(connection: sqlite3.Connection) -> bool:
    """Tell whether there are twice as many documents as when it was chosen what is kept."""
    before = connection.execute("SELECT value FROM search_meta WHERE key = 'counted'").fetchone()
    return _documents(connection) >= max(DOCUMENTS_MIN, 2 * int(before[0]) if before else 0)


def _documents(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT ifnull(max(id), 0) FROM search_doc").fetchone()[0])


def recount(connection: sqlite3.Connection) -> None:
    """Choose anew what is kept, and count it. In a transaction of the caller's."""
    connection.execute("DELETE FROM search_often")
    counted = "SELECT count(*) FROM search_head WHERE search_head MATCH ?"
    rows = []
    for beginning in _candidates(connection):
        documents = connection.execute(counted, (f'"{beginning}"*',)).fetchone()[0]
        if documents >= OFTEN_MIN:
            rows.append((beginning, documents))
    connection.executemany("INSERT INTO search_often VALUES (?, ?)", rows)
    connection.execute("INSERT OR REPLACE INTO search_meta VALUES ('counted', ?)", (str(_documents(connection)),))


def _candidates(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the beginnings that enough documents may have: a document with two such words is counted twice here."""
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.search_terms USING fts5vocab(main, search_head, row)")
    often: Counter[str] = Counter()
    for word, documents in connection.execute("SELECT term, doc FROM temp.search_terms"):
        for size in _sizes(len(word)):
            often[word[:size]] += documents
    connection.execute("DROP TABLE temp.search_terms")
    return (each for each, documents in often.items() if documents >= OFTEN_MIN)


@cache
def _sizes(chars: int) -> tuple[int, ...]:
    """Return how many letters of a word somebody may ask for who looks for it, or for one of which it is a form."""
    stems = range(max(chars - ENDING_CHARS_MAX, 1), chars + 1)
    asked = {max(min(stem, SHORT_CHARS), stem * 2 // 3) for stem in stems}
    return tuple(sorted(size for size in asked if CHARS_MIN <= size <= CHARS_MAX))


def _words_of(heads: Sequence[str]) -> Iterator[Iterable[str]]:
    """Yield the words of each head."""
    beyond = [head for head in heads if not head.isascii()]
    for head in heads:
        if head.isascii():
            yield _ASCII_WORD.findall(head.lower())
    if beyond:
        yield from _cut(beyond)


def _cut(heads: Sequence[str]) -> Iterator[Iterable[str]]:
    """Yield the words of heads with letters of which the tokenizer alone knows what becomes."""
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(f"CREATE VIRTUAL TABLE told USING fts5(head, content='', tokenize='{TOKENIZER}')")
        memory.execute("CREATE VIRTUAL TABLE words USING fts5vocab(told, instance)")
        memory.executemany("INSERT INTO told (rowid, head) VALUES (?, ?)", enumerate(heads))
        found: dict[int, list[str]] = {}
        for word, head in memory.execute("SELECT term, doc FROM words"):
            found.setdefault(head, []).append(word)
    yield from found.values()
