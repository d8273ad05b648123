"""Lessons about a prompt, looked up in a database as it is: read-only, in bounded time.

A hook asks at every prompt, so nothing is refreshed, no lock is waited for, and any failure finds nothing.

Candidates are the lessons that share most of the rarest words of a prompt. Their rank has no scale: it depends on the
length of the prompt and the number of lessons. So a candidate counts only if it meets two conditions. It shares at
least two words with the prompt, besides general ones (``data/general.txt``), that are rare enough together. And its
score reaches ``SCORE_MIN``: the geometric mean of the shares that the common words have of all words of either text,
weighted by rarity. Only the best are shown, and those about as good. docs/evaluation.md measures rule and threshold.
"""

import math
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from itertools import chain, islice
from pathlib import Path
from urllib.parse import quote

import msgspec

from fleet.store.database import SCHEMA_NUMBER, TROUBLE, sharing
from fleet.text import similarity

SCORE_MIN = 0.25
"""Below, fewer than seven in ten of what would be shown is about the prompt."""
PROMPT_CHARS_MAX = 2_000
_AS_GOOD = 0.95
_WORDS_MAX = 160
_CANDIDATES_MAX = 20
_SHARED_MIN = 2
_RARE_MIN = 1.6
"""Least rarity of the shared words together. A word that only one lesson has counts for a little less than 1."""
_ASIDE = frozenset(
    str.split("after because before between both but instead next not other over than under without yes yet")
)
"""Words that mean nothing in a prompt, besides those that mean nothing in a lesson."""
_GENERAL_WEIGHT = 0.25
_WORD_CHARS_MIN = 3
_STEPS = 1_000  # of SQLite's machine, between two looks at the clock


class Relevant(msgspec.Struct, frozen=True):
    """A lesson that is about a prompt: its id and line, and how much so, from 0 to 1."""

    id: str
    line: bytes
    score: float


def relevant(root: Path, agent: str, prompt: str, limit_s: float) -> list[Relevant]:
    """Return the lessons of the clan and the agent that are about a prompt and found in time, best first."""
    until, words = time.monotonic() + limit_s, _telling(prompt[:PROMPT_CHARS_MAX])[:_WORDS_MAX]
    files = (f"state-{SCHEMA_NUMBER}.db", f"private-{agent}-{SCHEMA_NUMBER}.db")
    found = (hit for name in files for hit in _in(root / ".fleet" / name, words, until))
    return sorted(found, key=lambda hit: -hit.score)


def _in(path: Path, words: list[str], until: float) -> list[Relevant]:
    """Return the lessons of a database that are about these words; none if the search fails or takes too long."""
    if len(words) < _SHARED_MIN or not path.is_file() or path.is_symlink():
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            return _found(connection, words)
    except TROUBLE:
        return []


def _found(connection: sqlite3.Connection, words: list[str]) -> list[Relevant]:
    connection.execute("CREATE VIRTUAL TABLE temp.known USING fts5vocab ('main', 'words', 'col')")
    lessons = connection.execute("SELECT ifnull(max(rowid), 0) FROM pattern").fetchone()[0]
    stems = similarity.Words.stems([*words, *_general()])
    prompt = frozenset(stems[word] for word in words)
    weights = _Weights(_frequency(connection, prompt), frozenset(stems[word] for word in _general()), lessons)
    telling = prompt - weights.general
    terms = {stem: f'"{word}"' for word, stem in stems.items() if stem in telling}
    holders = {term: weights.frequency.get(stem, 0) for stem, term in terms.items()}
    query = "SELECT p.id, p.line, w.text FROM pattern p JOIN words w ON w.rowid = p.rowid WHERE p.rowid = ?"
    chosen = sharing(connection, holders, _CANDIDATES_MAX, "listed AND NOT retired")
    rows = [connection.execute(query, (each,)).fetchone() for each in chosen]
    lesson_words = [_telling(text) for _, _, text in rows]
    stems = similarity.Words.stems(chain.from_iterable(lesson_words))
    documents = [frozenset(stems[word] for word in each) for each in lesson_words]
    weights.frequency.update(_frequency(connection, frozenset().union(*documents) - prompt))
    scored = [Relevant(row[0], row[1], weights.score(prompt, each)) for row, each in zip(rows, documents, strict=True)]
    best = max((hit.score for hit in scored), default=0.0)
    least = max(SCORE_MIN, best * _AS_GOOD)
    return sorted((hit for hit in scored if hit.score >= least), key=lambda hit: -hit.score)


class _Weights(msgspec.Struct, frozen=True):
    """Weights of the words of a clan: stem to the number of lessons that have it, general ones, number of lessons."""

    frequency: dict[str, int]
    general: frozenset[str]
    lessons: int

    def of(self, stems: Iterable[str]) -> float:
        """Return the sum of inverse document frequencies, with that of a general word times ``_GENERAL_WEIGHT``."""
        return sum(
            (_GENERAL_WEIGHT if stem in self.general else 1.0)
            * max(math.log((self.lessons + 1) / (self.frequency.get(stem, 0) + 0.5)), 0.0)
            for stem in stems
        )

    def score(self, prompt: frozenset[str], document: frozenset[str]) -> float:
        """Return the similarity of a prompt and a lesson by their stems, from 0 to 1."""
        shared = prompt & document
        common = self.of(shared)
        if len(shared - self.general) < _SHARED_MIN or common < _RARE_MIN * math.log(self.lessons + 1):
            return 0.0
        return common / math.sqrt(self.of(prompt) * self.of(document))


def _telling(text: str) -> list[str]:
    """Return the words of a text that tell something, as the index has them, each once."""
    return list(dict.fromkeys(word.casefold() for word in similarity.Words(text).words() if _is_telling(word)))


def _is_telling(word: str) -> bool:
    is_long = len(word) >= _WORD_CHARS_MIN if word.isascii() else word[:1].isalpha()
    return is_long and not word.isdigit() and not similarity.is_stop(word) and word.casefold() not in _ASIDE


def _frequency(connection: sqlite3.Connection, stems: Iterable[str]) -> dict[str, int]:
    query = "SELECT doc FROM temp.known WHERE term = ? AND col = 'text'"
    rows = ((stem, connection.execute(query, (stem,)).fetchone()) for stem in islice(stems, 2_000))
    return {stem: int(row[0]) for stem, row in rows if row}


@cache
def _general() -> tuple[str, ...]:
    return tuple(Path(similarity.__file__).with_name("data").joinpath("general.txt").read_text("utf-8").split())
