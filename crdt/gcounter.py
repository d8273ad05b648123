"""G-Counter: how often, by whom.

A map of replica to that replica's own total, never a step. Source: RR-7506, specification 6.
"""

from collections.abc import Mapping

Counts = dict[str, int]


def join(mine: Mapping[str, int], theirs: Mapping[str, int]) -> Counts:
    """Return the pointwise maximum. A replica that is missing counts 0, so a 0 is not kept."""
    joined = {replica: total for replica, total in mine.items() if total > 0}
    for replica, total in theirs.items():
        if total > joined.get(replica, 0):
            joined[replica] = total
    return joined


def value(counts: Mapping[str, int]) -> int:
    """Return the sum over all replicas."""
    return sum(counts.values())


def raised(counts: Mapping[str, int], replica: str, by: int = 1) -> Counts:
    """Return the delta that raises one replica's total. Only that replica may issue it.

    Raises:
        ValueError: the step is not positive: the counter only grows.
    """
    if by < 1:
        raise ValueError(f"a G-Counter only grows: {by}")
    return {replica: counts.get(replica, 0) + by}


def covers(whole: Mapping[str, int], part: Mapping[str, int]) -> bool:
    """Tell whether joining ``part`` would leave ``whole`` as it is."""
    return all(total <= whole.get(replica, 0) for replica, total in part.items())
