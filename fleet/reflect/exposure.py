"""Exposures: which lesson was shown to which agent, in which session and when. A table of ``.fleet/local.db``.

So a mistake that is made after its lesson was shown, a relapse, can be told from one made before, and what came before
a promotion from what came after it. Exposures measure, they prove nothing: one that cannot be written is left out.

A row is a *span*: some showings of one lesson, from the first until the last of them. It begins as a single showing.
Once its day is over (UTC), ``roll_up`` counts it under the agent's replica and writes the new total into that replica's
column (``n.shown``). The total is in the table before it is in the shard: after a crash the same total is written
again, and a G-Counter that gets the same total twice stays as it is. Spans that are months old are joined, never across
the lesson's promotion as far as that is known: so a promotion that arrives from another machine, days late, still finds
exact times. Only where one falls inside a joined span is the share before it unknown, and said to be.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from crdt import clock
from fleet.model import limits
from fleet.model.errors import FleetError

if TYPE_CHECKING:
    from fleet.model.pattern import Pattern
    from fleet.store.database import Local
    from fleet.store.workspace import Writer

_DAY_MS = 86_400_000
_SESSION_CHARS_MAX = 200
_SEARCHES = " searches"
"""Behind an agent's name in the table: what it found, which is counted apart from what it was shown."""
_HEX = frozenset("0123456789abcdef")


class Exposure(NamedTuple):
    """Showings of one lesson to the agents here: their number, and that until its promotion; None: not known."""

    shown: int
    before: int | None


class _Span(NamedTuple):
    """Showings of one lesson: from when until when, milliseconds since 1970, and how many."""

    first: int
    last: int
    number: int


class Exposures:
    """Table of what was shown to whom, in the local database."""

    def __init__(self, state: "Local") -> None:
        self._state = state

    def note(self, agent: str, session: str, ids: Iterable[str], now_ms: int) -> bool:
        """Note that these lessons were shown to an agent; return whether it was written down."""
        named = session[:_SESSION_CHARS_MAX]
        rows = [(agent, each, named, now_ms, now_ms, 1) for each in ids if _is_pattern(each)]
        if not rows or not agent:
            return False
        try:
            self._state.in_one_go(lambda: self._state.connection().executemany(_INSERT, rows))
        except (sqlite3.Error, FleetError):
            return False
        return True

    def shown(self, agents: Iterable[str], promoted: Callable[[str], int | None]) -> dict[str, Exposure]:
        """Return how often each lesson was shown to these agents here, by pattern.

        ``promoted``: returns when a pattern was promoted for the clan, milliseconds since 1970; None if it was not.
        """
        found: dict[str, Exposure] = {}
        for agent in agents:
            for pattern, spans in _spans(self._state, agent).items():
                sofar = found.get(pattern, Exposure(0, 0))
                before = 0 if (at_ms := promoted(pattern)) is None else _before(spans, at_ms)
                both = None if sofar.before is None or before is None else sofar.before + before
                found[pattern] = Exposure(sofar.shown + sum(each.number for each in spans), both)
        return found

    def shown_to(self, agent: str, *, but: str = "") -> set[str]:
        """Return which lessons were shown to this agent here, in any session but one."""
        query = "SELECT DISTINCT pattern FROM exposure WHERE agent = ? AND (? = '' OR session != ?)"
        return {row[0] for row in _rows(self._state, query, agent, but, but)}

    def last_ms(self) -> int:
        """Return when a lesson was shown to anybody here last, milliseconds since 1970; 0 for never."""
        found = _rows(self._state, "SELECT max(last_ms) FROM exposure WHERE agent NOT LIKE ?", f"%{_SEARCHES}")
        return int(found[0][0] or 0) if found else 0

    def note_found(self, agent: str, ids: Iterable[str], now_ms: int) -> bool:
        """Note that these lessons were found by a search of an agent's: that is an access, and no showing."""
        return self.note(f"{agent}{_SEARCHES}", "", ids, now_ms)

    def accesses(self, agent: str) -> dict[str, tuple[int, int]]:
        """Return how often each lesson was shown to this agent here or found by it, and when last (ms since 1970)."""
        query = "SELECT pattern, sum(number), max(last_ms) FROM exposure WHERE agent IN (?, ?) GROUP BY pattern"
        return {row[0]: (row[1], row[2]) for row in _rows(self._state, query, agent, f"{agent}{_SEARCHES}")}

    def is_due(self, agent: str, now_ms: int) -> bool:
        """Return cheaply whether there is anything to roll up."""
        query = "SELECT 1 FROM exposure WHERE agent = ? AND said = 0 AND first_ms < ? LIMIT 1"
        return bool(_rows(self._state, query, agent, _today(now_ms)))

    def roll_up(self, writer: "Writer") -> int:
        """Count the showings of the days that are over in the replica's column; return how many lessons were written.

        The caller holds the write lock.

        Raises:
            FleetError: what is missing is written the next time.
        """
        from fleet.model import edits  # not at the top: a hook notes what it shows, and needs none of the three
        from fleet.store.lines import PATTERNS

        workspace, agent, me = writer.workspace, writer.agent, writer.name
        connection = self._state.connection()

        def own_total(pattern: str) -> int:
            line = workspace.patterns.line(pattern)
            return line.total_of(me, "shown") if line is not None else 0

        today = _today(workspace.world.wall_ms())
        self._state.in_one_go(lambda: _count(connection, agent, me, today, own_total))
        query = "SELECT pattern, max(total) FROM exposure WHERE agent = ? AND replica = ? AND said = 0 GROUP BY pattern"
        deltas = []
        for pattern, total in connection.execute(query, (agent, me)).fetchall():
            line = workspace.patterns.line(pattern)
            if line is not None and (missing := total - line.total_of(me, "shown")) > 0:
                deltas.append(edits.count(line, "shown", me, missing))
        writer.append(PATTERNS, deltas)
        connection.execute("UPDATE exposure SET said = 1 WHERE agent = ? AND replica != '' AND said = 0", (agent,))
        old = today - limits.SHOWN_EXACT_DAYS * _DAY_MS
        self._state.in_one_go(lambda: _compact(connection, agent, old, workspace.patterns.get))
        return len(deltas)


_INSERT = "INSERT INTO exposure (agent, pattern, session, first_ms, last_ms, number) VALUES (?, ?, ?, ?, ?, ?)"


def _spans(state: "Local", agent: str) -> dict[str, list[_Span]]:
    """Return when each lesson was shown to this agent here, oldest first."""
    found: dict[str, list[_Span]] = defaultdict(list)
    query = "SELECT pattern, first_ms, last_ms, number FROM exposure WHERE agent = ? ORDER BY first_ms, last_ms"
    for pattern, first, last, number in _rows(state, query, agent):
        found[pattern].append(_Span(first, last, number))
    return dict(found)


def _before(spans: Iterable[_Span], at_ms: int) -> int | None:
    """Return how many showings there were until a point in time; None where a span lies on both sides of it."""
    total = 0
    for each in spans:
        if each.last <= at_ms:
            total += each.number
        elif each.first <= at_ms:
            return None
    return total


def promoted_ms(pattern: "Pattern | None") -> int | None:
    """Return when a lesson was promoted for the clan; None if it was not, or nobody knows when."""
    if pattern is None or pattern.state != "published" or "state" not in pattern.edited:
        return None
    return clock.unpack(pattern.edited["state"][0])[0]


def _count(
    connection: sqlite3.Connection, agent: str, replica: str, today: int, own_total: Callable[[str], int]
) -> None:
    """Give whole days to a replica. Its total is never below the one in its column: this table may be younger."""
    query = "SELECT rowid, pattern, number FROM exposure WHERE agent = ? AND said = 0 AND replica = '' AND first_ms < ?"
    totals: dict[str, int] = {}
    for row, pattern, number in connection.execute(query, (agent, today)).fetchall():
        if pattern not in totals:
            most = "SELECT coalesce(max(total), 0) FROM exposure WHERE agent = ? AND pattern = ? AND replica = ?"
            counted = connection.execute(most, (agent, pattern, replica)).fetchone()[0]
            totals[pattern] = max(counted, own_total(pattern))
        totals[pattern] += number
        changed = "UPDATE exposure SET replica = ?, total = ? WHERE rowid = ?"
        connection.execute(changed, (replica, totals[pattern], row))


def _compact(
    connection: sqlite3.Connection, agent: str, old_ms: int, lesson: "Callable[[str], Pattern | None]"
) -> None:
    """Join what is old, one span before a lesson's promotion and one after it; forget what was not shown for longest.

    ``old_ms``: what ended before it; later, where the table is too large.
    """
    forgotten = "SELECT pattern FROM exposure WHERE {} GROUP BY pattern ORDER BY max(last_ms) DESC LIMIT -1 OFFSET ?"
    written = "agent = ? AND said = 1"
    gone = f"DELETE FROM exposure WHERE {written} AND pattern IN ({forgotten.format(written)})"  # noqa: S608 - our own words
    connection.execute(gone, (agent, agent, limits.SHOWN_REMEMBERED_MAX))
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


def _rows(state: "Local", query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query; none where nothing was ever noted, or where nothing can be read."""
    if not state.exists:
        return []
    try:
        return state.connection().execute(query, values).fetchall()
    except (sqlite3.Error, FleetError):
        return []


def _today(now_ms: int) -> int:
    """Return the moment at which the day of ``now_ms`` began, UTC."""
    return now_ms - now_ms % _DAY_MS


def _is_pattern(text: str) -> bool:
    return len(text) == 18 and text.startswith("p-") and _HEX.issuperset(text[2:])
