"""One tick of all timed work: what is due is done, and it is noted when the rest will be.

Whoever calls it hands in what is to be done: a sidecar, cron and a simulator are alike here. What goes wrong with one
part is told, and keeps no other from its work.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from fleet.keep.config import Sidecar
from fleet.keep.disk import Disk
from fleet.keep.errors import FleetError
from fleet.serve import due
from fleet.serve.due import Marks, Now
from fleet.serve.looks import Looks

EXIT_PARTIAL = 3
FILE_NAME = "poll.json"
ROUNDS_MAX = 4
"""So often in a row is work done that finds the files changed since; then it waits for the next tick."""


class Worked(msgspec.Struct, kw_only=True):
    """What the work on this machine came to.

    Attributes:
        promoted: lessons that entered a memory.
        ready: agents whose session start was made ready.
        page: whether ``patterns.md`` changed.
    """

    promoted: list[str] = []
    ready: list[str] = []
    page: bool = False


class Exchanged(msgspec.Struct, kw_only=True):
    """What a sync came to: lines out, records new or changed in, lessons promoted, whether something was skipped."""

    lines_out: int = 0
    records_in: int = 0
    promoted: list[str] = []
    partial: bool = False


class Ticked(msgspec.Struct, kw_only=True):
    """What a tick did; ``fleet poll --json`` prints it.

    Attributes:
        worked: what the work on this machine came to; None when it was not due.
        synced: what the sync came to; None when there was none.
        why: why there was none; "" when it was not due yet.
        errors: what went wrong, in words for people.
        exit: the exit code: the first error's, 3 for a sync in part, else 0.
        next_s: in how many seconds there will be something to do, unless somebody writes before.
    """

    worked: Worked | None = None
    synced: Exchanged | None = None
    why: str = ""
    errors: list[str] = []
    exit: int = 0
    next_s: float = 0.0


class NotNowError(Exception):
    """There is nobody to sync with, or it is not wanted now. The message says why; no error of anybody's."""


@dataclass(frozen=True)
class Jobs:
    """What a tick needs done and does not know how.

    Attributes:
        now_ms: reads the wall clock.
        looks: looks at the files.
        work: settles, promotes, renders, makes ready.
        sync: exchanges with the clan; raises ``NotNowError`` when that is not to be done.
        waiting: tells how many lines wait to go out and could.
        alone: holds the lock of the given name, so that no two processes do the same at once.
    """

    now_ms: Callable[[], int]
    looks: Callable[[], Looks]
    work: Callable[[], Worked]
    sync: Callable[[], Exchanged]
    waiting: Callable[[], int]
    alone: Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Memory:
    """Where it is noted what was done when.

    Attributes:
        disk: how it is written.
        local: the machine-local folder.
    """

    disk: Disk
    local: Path

    def read(self) -> Marks:
        """Return what was noted."""
        return due.parse(self.disk.read(self.local / FILE_NAME))

    def change(self, how: Callable[[Marks], Marks]) -> None:
        """Note something more. Two processes may: one works here while another one syncs."""
        with self.disk.lock(self.local / "locks" / "marks.lock"):
            marks = msgspec.json.encode(how(self.read()))
            self.disk.replace(self.local / FILE_NAME, marks + b"\n", is_durable=False)


@dataclass
class Tick:
    """One tick over one workspace."""

    jobs: Jobs
    memory: Memory
    settings: Sidecar
    rng: random.Random
    done: Ticked = field(default_factory=Ticked)

    def run(self, *, local: bool = False) -> Ticked:
        """Do what is due; with ``local``, only what concerns this machine alone."""
        self._work_if_due()
        if not local:
            self._sync_if_due()
            self._work_if_due()  # on what came in
        marks, now = self.memory.read(), self._now()
        self.done.next_s = min(due.work_in_s(marks, now, self.settings), due.sync_in_s(marks, now, self.settings))
        return self.done

    def _now(self) -> Now:
        looks = self.jobs.looks()
        return Now(self.jobs.now_ms(), looks.digest, looks.newest_ms)

    def _work_if_due(self) -> None:
        if due.work_in_s(self.memory.read(), self._now(), self.settings):
            return
        with self._telling(), self.jobs.alone("poll"):
            for _ in range(ROUNDS_MAX):
                now = self._now()
                if due.work_in_s(self.memory.read(), now, self.settings):
                    return  # somebody else did it while we waited
                self._add(self.jobs.work())
                # Noted is how the files looked before. The work changes them itself, and somebody else may have, too:
                # then all is done once more, until it finds nothing changed.
                self.memory.change(partial(due.worked, now_ms=now.ms, looks=now.looks))

    def _add(self, more: Worked) -> None:
        known = self.done.worked or Worked()
        self.done.worked = Worked(
            promoted=[*known.promoted, *more.promoted],
            ready=sorted({*known.ready, *more.ready}),
            page=known.page or more.page,
        )

    def _sync_if_due(self) -> None:
        if due.sync_in_s(self.memory.read(), self._now(), self.settings):
            return
        with self._telling(), self.jobs.alone("sync"):
            if due.sync_in_s(self.memory.read(), self._now(), self.settings):
                return
            try:
                self.done.synced = self.jobs.sync()
            except NotNowError as why:
                self.done.why = str(why)
                self._note_synced(is_reached=False)
            except FleetError as why:
                told = str(why)
                self.memory.change(lambda marks: due.failed(marks, self.jobs.now_ms(), told, self.rng))
                raise
            else:
                self._note_synced(is_reached=True)
                if self.done.synced.partial:
                    self.done.exit = self.done.exit or EXIT_PARTIAL

    def _note_synced(self, *, is_reached: bool) -> None:
        """Note the look of the files before it is counted what waits: what is written in between shows at the next."""
        looks = self.jobs.looks().digest
        sent = looks if not is_reached or not self.jobs.waiting() else ""

        def noted(marks: Marks) -> Marks:
            after = due.synced(marks, self.jobs.now_ms(), sent, self.settings, self.rng)
            return after if is_reached else msgspec.structs.replace(after, synced_ms=marks.synced_ms)

        self.memory.change(noted)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except FleetError as why:
            self.done.errors.append(str(why))
            self.done.exit = self.done.exit or why.exit_code
