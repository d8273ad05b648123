"""Limits of processor time, in seconds of the machine of docs/benchmarks.md at its full speed.

A shared machine may be at half of its speed for an hour, and processor time then says so, too.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOPS = 20_000
LOOPS_S = 0.18
"""Processor time in which that machine parses a lesson's line so often."""
LINE = (
    '{"id":"p-0000000000000001","w":{"slash.5e1f0a77":{"add":"2026-11-20T22:30:00.123Z-0000",'
    '"first":{"text":"Quote every shell variable"},"n":{"seen":1}}}}'
)


def slowness() -> float:
    """Return how many times slower than that machine this one parses now, at least 1."""
    begun = time.process_time()
    for _ in range(LOOPS):
        json.loads(LINE, object_pairs_hook=dict)
    return max(1.0, (time.process_time() - begun) / LOOPS_S)


def is_within(took_s: float, limit_s: float) -> bool:
    """Return whether so much processor time is less than a limit at that machine's speed."""
    return took_s < limit_s or took_s < limit_s * slowness()


@contextmanager
def within(limit_s: float, what: str = "") -> Iterator[None]:
    """Fail where what runs inside takes a limit of processor time or more."""
    begun = time.process_time()
    yield
    took_s = time.process_time() - begun
    assert is_within(took_s, limit_s), f"{took_s:.3f} s of {limit_s} {what}"
