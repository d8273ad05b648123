"""One tick of a workspace's timed work, which does all that is due, once.

It runs in a process of its own (``fleet poll``), which imports the verbs, so that a sidecar stays small. An error in
one part is reported, and does not keep the other parts from their work.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from fleet.app import session_end, sharing, sleeping, starting
from fleet.model.errors import FleetError
from fleet.serve.schedule import LocalWork, Marks, Memory, Now, SyncSummary, TickResult, digest, fingerprints
from fleet.share.outgoing import Outbox
from fleet.store.workspace import Workspace

EXIT_PARTIAL = 3
ROUNDS_MAX = 4
"""Greatest number of rounds of work in one tick. A round follows if files changed during the last one."""


class Tick:
    """One tick over one workspace, as one of its agents. A simulator overrides ``_work``, ``_sync`` and ``_sleep``."""

    def __init__(self, workspace: Workspace, agent: str, rng: random.Random | None = None) -> None:
        self._workspace, self._agent = workspace, agent
        self._memory, self._settings = Memory(workspace), workspace.config.sidecar
        self._rng = rng or random.Random()  # noqa: S311 - no secret
        self._done = TickResult()

    def run(self, *, local: bool = False) -> TickResult:
        """Do what is due; with ``local``, only what concerns this machine alone."""
        self._work_if_due()
        if not local:
            self._sync_if_due()
            self._work_if_due()  # again, for what the sync brought
        self._sleep_if_due()
        marks, now = self._memory.read(), self._now()
        self._done.next_s = min(marks.work_in_s(now, self._settings), marks.sync_in_s(now, self._settings))
        return self._done

    def _now(self) -> Now:
        return Now(self._workspace.world.wall_ms(), self._digest())

    def _work_if_due(self) -> None:
        if self._memory.read().work_in_s(self._now(), self._settings):
            return
        with self._reporting(), self._workspace.lock("poll"):
            for _ in range(ROUNDS_MAX):
                now = self._now()
                if self._memory.read().work_in_s(now, self._settings):
                    return  # another process did it while we waited
                self._add(self._work())
                # The digest from before the work is noted, since the work changes files, and others may do so. The
                # loop repeats the work until nothing has changed.
                self._memory.change(partial(Marks.worked, now_ms=now.ms, digest=now.digest))

    def _sleep_if_due(self) -> None:
        if self._memory.read().sleep_in_s(self._now()):
            return
        now_ms = self._workspace.world.wall_ms()
        self._memory.change(lambda marks: msgspec.structs.replace(marks, slept_ms=now_ms))
        with self._reporting():
            self._done.slept = self._sleep()

    def _add(self, more: LocalWork) -> None:
        done = self._done.worked = self._done.worked or LocalWork()
        done.promoted += more.promoted
        done.ready = sorted({*done.ready, *more.ready})
        done.page |= more.page
        done.reflected += more.reflected

    def _sync_if_due(self) -> None:
        if self._memory.read().sync_in_s(self._now(), self._settings):
            return
        with self._reporting(), self._workspace.lock("poll-sync"):
            if self._memory.read().sync_in_s(self._now(), self._settings):
                return
            try:
                synced = self._sync()
            except FleetError as why:
                message = str(why)
                self._memory.change(lambda marks: marks.failed(self._workspace.world.wall_ms(), message, self._rng))
                raise
            if isinstance(synced, str):
                self._done.why = synced
                self._mark_synced(is_reached=False)
                return
            self._done.synced = synced
            self._mark_synced(is_reached=True)
            if synced.partial:
                self._done.exit = self._done.exit or EXIT_PARTIAL

    def _mark_synced(self, *, is_reached: bool) -> None:
        """Mark a sync. The digest is taken before the pending lines are counted: a line in between must change it."""
        digest = self._digest()
        sent = digest if not is_reached or not self._count_waiting() else ""

        def marked(marks: Marks) -> Marks:
            after = marks.synced(self._workspace.world.wall_ms(), sent, self._settings, self._rng)
            return after if is_reached else msgspec.structs.replace(after, synced_ms=marks.synced_ms)

        self._memory.change(marked)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except FleetError as why:
            self._done.errors.append(str(why))
            self._done.exit = self._done.exit or why.exit_code

    # --- what it does -----------------------------------------------------------------------------------------------

    def _digest(self) -> str:
        return digest(fingerprints(self._workspace))

    def _work(self) -> LocalWork:
        """Reflect on ended sessions, count and promote, render the page, and prepare the next starts."""
        reflected = session_end.reflect_due(self._workspace)
        promoted, page = sharing.update_here(self._workspace, self._agent)
        ready = starting.make_ready(self._workspace)
        return LocalWork(promoted=promoted, ready=ready, page=page, reflected=[each.summary() for each in reflected])

    def _sync(self) -> SyncSummary | str:
        """Exchange with the clan, or return the reason why not."""
        done = sharing.sync_if_agreed(self._workspace, self._agent)
        if done.why:
            return done.why
        records_in = done.patterns_in + done.discoveries_in
        return SyncSummary(
            lines_out=done.out, records_in=records_in, promoted=list(done.promoted), partial=done.is_partial
        )

    def _count_waiting(self) -> int:
        """Return the number of pending lines that a sync could send."""
        return Outbox(self._workspace).waiting().count

    def _sleep(self) -> str:
        """Reflect, consolidate and tidy what waits; return the id of the run, "" for none."""
        is_off = self._workspace.config.sleep.off or self._workspace.is_read_only
        return "" if is_off else sleeping.sleep(self._workspace, self._agent).run
