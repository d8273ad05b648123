"""What is due, and when: decided here from what was noted, done elsewhere. No file, no clock, no waiting.

A wall clock may jump: a machine sleeps, somebody sets it. So no moment that was noted is ever waited for longer than
it may lie ahead.
"""

import random
from typing import NamedTuple

import msgspec

from fleet.keep.config import Sidecar

BACKOFF_S = 5.0
BACKOFF_S_MAX = 300.0
SPREAD = 0.2
"""Of an interval, so much more or less: whoever started together must not ask together for ever."""


class Marks(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``.fleet/poll.json`` remembers. Times are milliseconds since 1970; 0: never.

    Attributes:
        worked: how the files looked when the work on this machine was last done.
        worked_ms: when that was.
        sent: how they looked when nothing waited to go out.
        synced_ms: when the clan was last reached.
        next_ms: when it is to be asked next; after a failure, not before.
        failures: failed syncs in a row.
        error: what went wrong with the last one, "" for nothing.
    """

    worked: str = ""
    worked_ms: int = 0
    sent: str = ""
    synced_ms: int = 0
    next_ms: int = 0
    failures: int = 0
    error: str = ""


def parse(data: bytes) -> Marks:
    """Read what was noted; nothing, or nothing readable, makes everything due."""
    try:
        return msgspec.json.decode(data, type=Marks) if data else Marks()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Marks()


class Now(NamedTuple):
    """The moment at which it is asked what is due.

    Attributes:
        ms: milliseconds since 1970.
        looks: how the files look.
        newest_ms: when one of them was last written.
    """

    ms: int
    looks: str
    newest_ms: int


def work_in_s(marks: Marks, now: Now, settings: Sidecar) -> float:
    """Return in how many seconds the work on this machine is due; 0: now."""
    if now.looks != marks.worked:
        return 0.0
    return _until(marks.worked_ms + int(settings.rescan_s * 1000), now, settings.rescan_s)


def sync_in_s(marks: Marks, now: Now, settings: Sidecar) -> float:
    """Return in how many seconds the clan is to be asked; 0: now.

    What waits to go out goes after a quiet moment, but no later than the next look for news; after a failure nothing
    is tried before its time.
    """
    longest_s = max(settings.interval_s * (1 + SPREAD), BACKOFF_S_MAX)
    at_latest = _until(marks.next_ms, now, longest_s)
    if marks.failures or now.looks == marks.sent:
        return at_latest
    moment_ms = max(now.newest_ms, marks.synced_ms) + int(settings.quiet_s * 1000)
    quiet = _until(moment_ms, now, settings.quiet_s)
    return min(quiet, at_latest)


def worked(marks: Marks, now_ms: int, looks: str) -> Marks:
    """Return the marks after the work on this machine was done."""
    return msgspec.structs.replace(marks, worked=looks, worked_ms=now_ms)


def synced(marks: Marks, now_ms: int, looks: str, settings: Sidecar, rng: random.Random) -> Marks:
    """Return the marks after the clan was reached. ``looks``: of the files while nothing waited, else ""."""
    pause_ms = int(settings.interval_s * rng.uniform(1 - SPREAD, 1 + SPREAD) * 1000)
    return msgspec.structs.replace(marks, sent=looks, synced_ms=now_ms, next_ms=now_ms + pause_ms, failures=0, error="")


def failed(marks: Marks, now_ms: int, why: str, rng: random.Random) -> Marks:
    """Return the marks after the clan was not reached: the pause doubles, and half of it is left to chance."""
    longest_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(marks.failures, 16))
    pause_ms = int(rng.uniform(longest_s / 2, longest_s) * 1000)
    return msgspec.structs.replace(marks, failures=marks.failures + 1, next_ms=now_ms + pause_ms, error=why)


def _until(moment_ms: int, now: Now, longest_s: float) -> float:
    wait_s = max(moment_ms - now.ms, 0) / 1000
    return wait_s if wait_s <= longest_s else 0.0
