"""Exposures: the lessons shown to each agent, with session and time. A table of ``.fleet/local.db``.

They tell relapses (mistakes after their lesson was shown) from other occurrences, and relapses before a promotion from
those after it. Exposures are statistics and prove nothing, so one that cannot be written is left out.

A row is a *span* of showings of one lesson, from the first to the last; a new row has a single one. When its day is
over (UTC), ``roll_up`` writes the new total into the column of the agent's replica (``n.shown``). The total is in the
table before it is in the shard: after a crash the same total is written again, which does not change a G-Counter. Spans
that are months old are merged, but not across the lesson's promotion. If a later promotion falls inside a merged span,
the number of showings before it is unknown.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from crdt import clock
from fleet.model import limits, names
from fleet.model.errors import FleetError

if TYPE_CHECKING:
    from fleet.model.pattern import Pattern
    from fleet.store.database import Local
    from fleet.store.workspace import Writer

_DAY_MS = 86_400_000
_SESSION_CHARS_MAX = 200
_SEARCHES = " searches"
"""Suffix of an agent's name in the table for lessons that it found, which are counted apart."""


class Exposure(NamedTuple):
    """Number of showings of one lesson to the agents here.

    Attributes:
        before: those before its promotion; None: unknown.
        uncounted: those that no column has yet: they are counted once their day is over.
    """

    shown: int
    before: int | None
    uncounted: int = 0


class Exposures:
    """Table of exposures in the local database."""

    def __init__(self, state: "Local") -> None:
        self._state = state

    def note(self, agent: str, session: str, ids: Iterable[str], now_ms: int) -> None:
        """Note that these lessons were shown to an agent, unless the database refuses: nobody waits for it."""
        named = session[:_SESSION_CHARS_MAX]
        rows = [(agent, each, named, now_ms, now_ms, 1) for each in ids if each.startswith("p-") and names.is_id(each)]
        if rows and agent:
            with suppress(sqlite3.Error, FleetError), self._state.transaction() as connection:
                connection.executemany(_INSERT, rows)

    def shown(self, agents: Iterable[str], promoted: Callable[[str], int | None]) -> dict[str, Exposure]:
        """Return the exposure of each lesson to these agents here, by pattern.

        ``promoted``: returns the time of a pattern's promotion, milliseconds since 1970, or None.
        """
        query = "SELECT pattern, first_ms, last_ms, number, said FROM exposure WHERE agent = ?"
        rows = [row for agent in agents for row in self._rows(query, agent)]
        promoted_at = {pattern: promoted(pattern) for pattern in {row[0] for row in rows}}
        exposures: dict[str, Exposure] = {}
        for pattern, first, last, number, is_counted in rows:
            sofar = exposures.get(pattern, Exposure(0, 0))
            before = _before(promoted_at[pattern], first, last, number)
            both = None if sofar.before is None or before is None else sofar.before + before
            uncounted = sofar.uncounted + (0 if is_counted else number)
            exposures[pattern] = Exposure(sofar.shown + number, both, uncounted)
        return exposures

    def shown_to(self, agent: str, *, but: Iterable[str] = ()) -> set[str]:
        """Return the ids of the lessons shown to this agent here, without those shown in the sessions ``but``."""
        query = (
            "SELECT pattern FROM exposure WHERE agent = ?1 EXCEPT SELECT pattern FROM exposure WHERE agent = ?1"
            " AND session IN (SELECT value FROM json_each(?2)) AND session != ''"
        )
        named = json.dumps([each[:_SESSION_CHARS_MAX] for each in but])
        return {row[0] for row in self._rows(query, agent, named)}

    def last_ms(self) -> int:
        """Return the time of the last showing here, milliseconds since 1970; 0 for none."""
        rows = self._rows("SELECT max(last_ms) FROM exposure WHERE agent NOT LIKE ?", f"%{_SEARCHES}")
        return int(rows[0][0] or 0) if rows else 0

    def note_found(self, agent: str, ids: Iterable[str], now_ms: int) -> None:
        """Note that a search of an agent found these lessons: an access, but no showing."""
        self.note(f"{agent}{_SEARCHES}", "", ids, now_ms)

    def accesses(self, agent: str) -> dict[str, tuple[int, int]]:
        """Return the number of accesses of each lesson by this agent here, and the last one (ms since 1970)."""
        query = "SELECT pattern, sum(number), max(last_ms) FROM exposure WHERE agent IN (?, ?) GROUP BY pattern"
        return {row[0]: (row[1], row[2]) for row in self._rows(query, agent, f"{agent}{_SEARCHES}")}

    def _rows(self, query: str, *values: object) -> list[Any]:
        with suppress(FleetError):  # nobody waits for an exposure
            return self._state.rows(query, *values)
        return []

    def is_due(self, agent: str, now_ms: int) -> bool:
        """Return cheaply whether there is anything to roll up."""
        query = "SELECT 1 FROM exposure WHERE agent = ? AND said = 0 AND first_ms < ? LIMIT 1"
        return bool(self._rows(query, agent, _today(now_ms)))

    def roll_up(self, writer: "Writer") -> int:
        """Count the showings of past days in the replica's column; return the number of lessons written.

        The caller holds the write lock. After an error the next call writes the rest.
        """
        from fleet.model import edits  # not at the top: a hook, which only notes what it shows, needs neither
        from fleet.store.lines import PATTERNS

        workspace, agent, me = writer.workspace, writer.agent, writer.name

        def own_total(pattern: str) -> int:
            line = workspace.patterns.line(pattern)
            return line.total_of(me, "shown") if line is not None else 0

        today = _today(workspace.world.wall_ms())
        with self._state.transaction() as connection:
            _count(connection, agent, me, today, own_total)
        query = "SELECT pattern, max(total) FROM exposure WHERE agent = ? AND replica = ? AND said = 0 GROUP BY pattern"
        deltas = []
        for pattern, total in connection.execute(query, (agent, me)).fetchall():
            line = workspace.patterns.line(pattern)
            if line is not None and (missing := total - line.total_of(me, "shown")) > 0:
                deltas.append(edits.count(line, "shown", me, missing))
        writer.append(PATTERNS, deltas)
        connection.execute("UPDATE exposure SET said = 1 WHERE agent = ? AND replica != '' AND said = 0", (agent,))
        old = today - limits.SHOWN_EXACT_DAYS * _DAY_MS
        with self._state.transaction():
            _compact(connection, agent, old, workspace.patterns.get)
        return len(deltas)


_INSERT = "INSERT INTO exposure (agent, pattern, session, first_ms, last_ms, number) VALUES (?, ?, ?, ?, ?, ?)"


def _before(at_ms: int | None, first_ms: int, last_ms: int, number: int) -> int | None:
    """Return the number of a span's showings until a point in time; None where the span lies on both sides of it."""
    if at_ms is None or at_ms < first_ms:
        return 0
    return number if last_ms <= at_ms else None


def promoted_ms(pattern: "Pattern | None") -> int | None:
    """Return the time of a lesson's promotion for the clan; None if it has none or an unknown one."""
    if pattern is None or pattern.state != "published" or "state" not in pattern.edited:
        return None
    return clock.unpack(pattern.edited["state"][0])[0]


def _count(
    connection: sqlite3.Connection, agent: str, replica: str, today: int, own_total: Callable[[str], int]
) -> None:
    """Assign past days to a replica. The total is at least that of its column, since this table may be newer."""
    new = "agent = ? AND first_ms < ? AND said = 0 AND replica = ''"
    numbers = f"SELECT pattern, sum(number) FROM exposure WHERE {new} GROUP BY pattern"  # noqa: S608 - our own words
    most = "SELECT coalesce(max(total), 0) FROM exposure WHERE agent = ? AND pattern = ? AND replica = ?"
    changed = f"UPDATE exposure SET replica = ?, total = ? WHERE {new} AND pattern = ?"  # noqa: S608
    for pattern, number in connection.execute(numbers, (agent, today)).fetchall():
        counted = connection.execute(most, (agent, pattern, replica)).fetchone()[0]
        total = max(counted, own_total(pattern)) + number
        connection.execute(changed, (replica, total, agent, today, pattern))


def _compact(
    connection: sqlite3.Connection, agent: str, old_ms: int, lesson: "Callable[[str], Pattern | None]"
) -> None:
    """Merge spans that ended before ``old_ms`` (later, where the table is too large), and drop the oldest lessons.

    One span remains before a lesson's promotion, and one after it.
    """
    forgotten = "SELECT pattern FROM exposure WHERE {} GROUP BY pattern ORDER BY max(last_ms) DESC LIMIT -1 OFFSET ?"
    written = "agent = ? AND said = 1"
    deletion = f"DELETE FROM exposure WHERE {written} AND pattern IN ({forgotten.format(written)})"  # noqa: S608 - our own words
    connection.execute(deletion, (agent, agent, limits.SHOWN_REMEMBERED_MAX))
    query = f"SELECT last_ms FROM exposure WHERE {written} ORDER BY last_ms DESC LIMIT 1 OFFSET ?"  # noqa: S608
    for (over,) in connection.execute(query, (agent, limits.SHOWN_SPANS_MAX)).fetchall():
        old_ms = max(old_ms, over + 1)
    many = f"SELECT pattern FROM exposure WHERE {written} AND last_ms < ? GROUP BY pattern HAVING count(*) > 2"  # noqa: S608
    for (pattern,) in connection.execute(many, (agent, old_ms)).fetchall():
        old = f"FROM exposure WHERE {written} AND last_ms < ? AND pattern = ?"
        span = "min(first_ms), max(last_ms), sum(number), replica, max(total)"
        joined = connection.execute(
            f"SELECT {span} {old} GROUP BY replica, first_ms > ?",
            (agent, old_ms, pattern, promoted_ms(lesson(pattern)) or 0),
        ).fetchall()
        connection.execute(f"DELETE {old}", (agent, old_ms, pattern))
        put = "INSERT INTO exposure VALUES (?, ?, '', ?, ?, ?, ?, ?, 1)"
        connection.executemany(put, [(agent, pattern, *each) for each in joined])


def _today(now_ms: int) -> int:
    """Return the beginning of the day of ``now_ms``, UTC."""
    return now_ms - now_ms % _DAY_MS
