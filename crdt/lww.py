"""LWW-Register: a value with the stamp at which it was set.

The larger (stamp, replica, value) wins, so that every tie ends alike everywhere. Source: RR-7506, specification 8.
Values are compared as bytes, never as decoded values: to Python ``1 == True``, to a peer it is not.
"""

from typing import NamedTuple


class Register(NamedTuple):
    """One write: the value as canonical bytes, with the stamp and the replica by which writes are ordered."""

    stamp: str
    replica: str
    value: bytes


def join(mine: Register, theirs: Register) -> Register:
    """Return the later write; between equal stamps the larger replica, then the larger bytes."""
    return max(mine, theirs)


def covers(register: Register, other: Register) -> bool:
    """Return whether joining ``other`` leaves ``register`` as it is."""
    return other <= register
