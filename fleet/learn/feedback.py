"""Whether a lesson helps, as whoever used it says: a counter of its own, raised in the writer's slot."""

from typing import Literal

from fleet.keep import edits
from fleet.keep.line import Line
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Writer

Verdict = Literal["helped", "hurt"]


def rate(writer: Writer, line: Line, verdict: Verdict) -> Line:
    """Raise one of the two counters, durable before this returns; return the delta.

    The caller has read the lesson while it held the lock, so that our slot in it is our own newest total.
    """
    delta = edits.counted(line, verdict, writer.name, writer.tick())
    writer.append(PATTERNS, [delta])
    return delta
