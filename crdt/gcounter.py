"""G-Counter: a counter that only grows.

A map of replica to that replica's own total, never an increment. Source: RR-7506, specification 6.
"""

from collections.abc import Mapping
from itertools import chain

Counts = dict[str, int]


def join(*states: Mapping[str, int]) -> Counts:
    """Return the pointwise maximum. A replica that is missing counts 0, so a 0 is not kept."""
    joined: Counts = {}
    for replica, total in chain.from_iterable(each.items() for each in states):
        if total > joined.get(replica, 0):
            joined[replica] = total
    return joined


def value(counts: Mapping[str, int]) -> int:
    """Return the sum over all replicas."""
    return sum(counts.values())
