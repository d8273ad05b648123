"""The edits that a person can make to a pattern. Each returns its delta, of the same shape as the whole."""

from typing import Any

from crdt import orset
from fleet.keep.line import Line


def retired(line: Line, replica: str, stamp: str) -> Line:
    """Return the observed remove of a pattern: it covers the adds that are known here, and no other."""
    return Line(id=line.id, at=stamp, by=replica, rem=orset.removal(line.add, line.rem))


def restored(line: Line, replica: str, stamp: str) -> Line:
    """Return the re-add of a pattern. It raises ``add`` and leaves ``seen`` alone: nothing happened again."""
    return Line(id=line.id, at=stamp, by=replica, add={replica: stamp})


def field_set(line: Line, field: str, value: Any, replica: str, stamp: str) -> Line:
    """Return the edit of one field: it beats the field as first logged, and every edit with a smaller stamp."""
    return Line(id=line.id, at=stamp, by=replica, set={field: value}, when={field: (stamp, replica)})


def counted(line: Line, counter: str, replica: str, stamp: str) -> Line:
    """Return one more of a counter in the replica's own slot. The add stays: the lesson did not occur again."""
    own = line.n.get(counter, {}).get(replica, 0)
    return Line(id=line.id, at=stamp, by=replica, n={counter: {replica: own + 1}})
