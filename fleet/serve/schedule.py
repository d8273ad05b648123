"""Schedule of a workspace's timed work: what is due and when.

It is computed from marks alone, without files, clocks or waiting. A wall clock may jump, since a machine sleeps or
somebody sets the clock. So work whose time seems further away than its longest interval is due at once.
"""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from fleet.hosts.local import LocalFolder
from fleet.store import changes, homes
from fleet.store.config import Sidecar
from fleet.store.workspace import Workspace

CLAN = "clan-learnings"
LOGS = ("patterns", "discoveries")
_OWN = ("corrections.md", "memory.md", "JOURNAL.md", "notes.jsonl")

FILE_NAME = "poll.json"

SLEEP_S = 3_600.0
"""Interval at which a sleep is tried: it does nothing while its gates are closed."""
BACKOFF_S = 5.0
BACKOFF_S_MAX = 300.0
SPREAD = 0.2
"""Part of an interval that is added or subtracted at random, so that machines that started together drift apart."""

Fingerprints = dict[str, list[int]]
"""Fingerprint by path below the root; [] for a path that is not there."""


# --- fingerprints of files --------------------------------------------------------------------------------------------


def fingerprints(workspace: Workspace) -> Fingerprints:
    """Return fingerprints of all that the work depends on: logs, memories, lines, settings, a pause, ended sessions."""
    paused = workspace.state.paused(workspace.wall())
    idle_ms = workspace.config.reflect.in_environment(os.environ).idle_ms  # a session that is idle so long has ended
    ended = {f".fleet/heard/{each.session}": [1] for each in LocalFolder(str(workspace.root)).due(idle_ms)}
    return _of_files(str(workspace.root), workspace.agents_here()) | {".fleet/paused": [1] if paused else []} | ended


def _of_files(root: str, agents: Iterable[str]) -> Fingerprints:
    place = homes.Homes(root).current()
    paths = {"fleet.toml", f"{CLAN}/members.toml", f"{CLAN}/patterns.md"}
    for agent in agents:
        paths.update(f"{place}/{agent}/{name}" for name in _OWN)
        paths.add(f".fleet/promotion/{agent}.json")
        paths.add(f".fleet/attempts/{agent}.won")
    for log in LOGS:
        shards = f"{CLAN}/{log}.d"
        paths.update((f"{CLAN}/{log}.jsonl", shards))
        paths.update(f"{shards}/{path.name}" for path in (Path(root) / shards).glob("*.jsonl"))
    return changes.Changes(root).fingerprints(sorted(paths))


def digest(files: Fingerprints) -> str:
    """Return one hash of all fingerprints."""
    text = json.dumps(files, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


# --- what is due ----------------------------------------------------------------------------------------------------


class Now(NamedTuple):
    """Moment to compute for: time, digest of the files, and time of their last change; 0 if nobody watches them."""

    ms: int
    digest: str
    changed_ms: int = 0


_Number = Annotated[int, msgspec.Meta(ge=0, le=253_370_764_800_000)]
"""A number in ``.fleet/poll.json``, limited to times that a calendar can show."""


class Marks(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The content of ``.fleet/poll.json``. Times are milliseconds since 1970; 0: never.

    Attributes:
        work: digest of the files when the work on this machine was last done.
        sent: digest of the files when nothing was left to send.
        next_ms: time of the next regular sync; after a failure, of the next attempt.
        error: of the last sync, "" for none.
    """

    work: str = msgspec.field(name="worked", default="")
    worked_ms: _Number = 0
    sent: str = ""
    synced_ms: _Number = 0
    next_ms: _Number = 0
    failures: _Number = 0
    error: str = ""
    slept_ms: _Number = 0

    @staticmethod
    def parsed(data: bytes) -> "Marks":
        """Return the marks of a file; without a readable file everything is due."""
        try:
            return msgspec.json.decode(data, type=Marks) if data else Marks()
        except (msgspec.DecodeError, msgspec.ValidationError):
            return Marks()

    def work_in_s(self, now: Now, settings: Sidecar) -> float:
        """Return in how many seconds the work on this machine is due; 0: now."""
        if now.digest != self.work:
            return 0.0
        return _until(self.worked_ms + int(settings.rescan_s * 1000), now, settings.rescan_s)

    def sync_in_s(self, now: Now, settings: Sidecar) -> float:
        """Return in how many seconds a sync is due; 0: now.

        Pending lines are sent after a quiet moment, but no later than at the next regular sync. After a failure there
        is no attempt before its back-off has passed.
        """
        longest_s = max(settings.interval_s * (1 + SPREAD), BACKOFF_S_MAX)
        at_latest = _until(self.next_ms, now, longest_s)
        if self.failures or now.digest == self.sent:
            return at_latest
        moment_ms = max(now.changed_ms, self.synced_ms) + int(settings.quiet_s * 1000)
        quiet = _until(moment_ms, now, settings.quiet_s)
        return min(quiet, at_latest)

    def sleep_in_s(self, now: Now) -> float:
        """Return in how many seconds a sleep is to be tried; 0: now. The sleep itself decides whether it has work."""
        return _until(self.slept_ms + int(SLEEP_S * 1000), now, SLEEP_S)

    def worked(self, now_ms: int, digest: str) -> "Marks":
        """Return the marks after the work on this machine was done."""
        return msgspec.structs.replace(self, work=digest, worked_ms=now_ms)

    def synced(self, now_ms: int, sent: str, settings: Sidecar, rng: random.Random) -> "Marks":
        """Return the marks after the clan was reached. ``sent``: digest of the files if nothing is left, else ""."""
        pause_ms = int(settings.interval_s * rng.uniform(1 - SPREAD, 1 + SPREAD) * 1000)
        return msgspec.structs.replace(
            self, sent=sent, synced_ms=now_ms, next_ms=now_ms + pause_ms, failures=0, error=""
        )

    def failed(self, now_ms: int, why: str, rng: random.Random) -> "Marks":
        """Return the marks after the clan was not reached: the pause doubles, and half of it is random."""
        longest_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(self.failures, 16))
        pause_ms = int(rng.uniform(longest_s / 2, longest_s) * 1000)
        return msgspec.structs.replace(self, failures=self.failures + 1, next_ms=now_ms + pause_ms, error=why)


def _until(moment_ms: int, now: Now, longest_s: float) -> float:
    wait_s = max(moment_ms - now.ms, 0) / 1000
    return wait_s if wait_s <= longest_s else 0.0


# --- one tick ------------------------------------------------------------------------------------------------------


class LocalWork(msgspec.Struct, kw_only=True):
    """Work done on this machine; ``ready``: agents whose start was prepared; ``reflected``: a summary a session."""

    promoted: list[str] = []
    ready: list[str] = []
    page: bool = False
    reflected: list[str] = []


class SyncSummary(msgspec.Struct, kw_only=True):
    """Result of a sync: lines out, records new or changed in, lessons promoted, whether something was skipped."""

    lines_out: int = 0
    records_in: int = 0
    promoted: list[str] = []
    partial: bool = False


class TickResult(msgspec.Struct, kw_only=True):
    """Result of a tick; ``fleet poll --json`` prints it.

    Attributes:
        worked: result of the work on this machine; None when it was not due.
        synced: result of the sync; None when there was none.
        why: why there was no sync; "" when none was due.
        slept: id of the run of a sleep; "" where none was due, or nothing was to be done.
        exit: the exit code: the first error's, 3 for a sync in part, else 0.
        next_s: in how many seconds work or a sync is due, unless a file changes before.
    """

    worked: LocalWork | None = None
    synced: SyncSummary | None = None
    why: str = ""
    slept: str = ""
    errors: list[str] = []
    exit: int = 0
    next_s: float = 0.0


class Memory:
    """The file of a workspace's marks."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._path = workspace.local / FILE_NAME

    def read(self) -> Marks:
        """Return the marks."""
        return Marks.parsed(self._workspace.files.read(self._path))

    def change(self, how: Callable[[Marks], Marks]) -> None:
        """Change the marks under a lock: one process may work here while another one syncs."""
        with self._workspace.lock("marks"):
            marks = msgspec.json.encode(how(self.read()))
            self._workspace.files.replace(self._path, marks + b"\n", is_durable=False)
