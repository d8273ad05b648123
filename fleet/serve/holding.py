"""One sidecar for each agent and workspace: who holds the lock is it. The lock dies with its process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fleet.keep.disk import Disk
from fleet.keep.errors import BusyError

WAIT_S = 0.3
"""Long enough for whoever only asks who holds the lock, and holds it for that moment."""
_BYTES = 80


class Holder(msgspec.Struct, kw_only=True):
    """Who holds a lock: the process, and since when, milliseconds since 1970; 0 while it has not said so yet."""

    pid: int = 0
    since_ms: int = 0


def lock_file(local: Path, agent: str) -> Path:
    """Return the path of an agent's lock."""
    return local / "locks" / f"sidecar-{agent}.lock"


@contextmanager
def held(disk: Disk, local: Path, agent: str, now_ms: int) -> Iterator[None]:
    """Be the agent's sidecar while the block runs.

    Raises:
        BusyError: there is one.
    """
    path = lock_file(local, agent)
    with disk.lock(path, WAIT_S):
        disk.note(path, msgspec.json.encode(Holder(pid=os.getpid(), since_ms=now_ms)).ljust(_BYTES))
        yield


def holder(disk: Disk, local: Path, agent: str) -> Holder | None:
    """Return who is the agent's sidecar; None when nobody is."""
    path = lock_file(local, agent)
    if not path.is_file():
        return None
    try:
        with disk.lock(path, 0.0):
            return None
    except BusyError:
        try:
            return msgspec.json.decode(disk.read(path), type=Holder)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return Holder()
