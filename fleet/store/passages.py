"""Full-text table in memory for texts that have no row in a database: the pages of agents, during one search."""

import sqlite3
from collections.abc import Iterable

from fleet.text import similarity


class Passages:
    """Passages of some kinds, each with a head and a body.

    Args:
        passages: kind, head and body of each; they are numbered from 0.
    """

    def __init__(self, passages: Iterable[tuple[str, str, str]]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            f"CREATE VIRTUAL TABLE passage USING fts5 (kind UNINDEXED, head, body, tokenize = '{similarity.TOKENIZER}')"
        )
        self._connection.executemany(
            "INSERT INTO passage VALUES (?, ?, ?)",
            ((kind, similarity.indexed(head), similarity.indexed(body)) for kind, head, body in passages),
        )

    def matching(self, kind: str, expression: str, count: int) -> list[int]:
        """Return the numbers of the passages of a kind that an FTS5 expression finds, best first."""
        asked = "SELECT rowid FROM passage WHERE passage MATCH ? AND kind = ? ORDER BY bm25(passage, 0, 2, 1) LIMIT ?"
        return [row[0] - 1 for row in self._connection.execute(asked, (expression, kind, count))]

    def close(self) -> None:
        """Forget them all."""
        self._connection.close()
