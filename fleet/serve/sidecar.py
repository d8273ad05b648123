"""A sidecar: it looks on while agents work in one workspace, brings what they wrote to its place, and syncs.

It holds nothing in memory that would have to be saved. What it has not done when it is killed is found out anew, from
the files and from ``poll.json``, by the next one. The work is done by ticks, each in a process of its own: the memory
that a large clan takes is free again afterwards, and a fetch that hangs can be ended at any moment.
"""

import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from fleet.keep import config
from fleet.keep.errors import FleetError
from fleet.serve import due, looks, metrics, notify
from fleet.serve.bell import Bell
from fleet.serve.due import Marks, Now
from fleet.serve.looks import Looks
from fleet.serve.metrics import Figures
from fleet.serve.supervising import keep_up, pause_s
from fleet.serve.tick import Ticked
from fleet.serve.watching import SLICE_S, Watch

DEBOUNCE_S = 0.2
SPREAD_S = 0.3
"""Of several sidecars in one workspace, one does the work: whoever comes a little later finds it done."""
LAST_WORK_S = 1.2
"""How long the end may wait for work that has begun or is due: all in all it takes less than two seconds."""

Background = Callable[[Bell, Callable[[], None], anyio.Event], Awaitable[None]]
"""A task beside the others: told when local lines changed; tells when others arrived; ends when it is time."""


class TickFailedError(Exception):
    """The process that was to do a tick could not. Nothing is lost: the next one does it."""


@dataclass(frozen=True)
class Hands:
    """What a sidecar is given to work with.

    Attributes:
        root: the workspace.
        agent: whose sidecar it is.
        agents: returns the agents that work here.
        settings: reads ``fleet.toml``.
        marks: reads what was done when.
        now_ms: reads the wall clock.
        tick: does what is due; with True, only what concerns this machine alone.
        log: writes an event and what about it.
        background: by name, what else runs.
        rng: for jitter.
    """

    root: str
    agent: str
    agents: Callable[[], Sequence[str]]
    settings: Callable[[], config.Config]
    marks: Callable[[], Marks]
    now_ms: Callable[[], int]
    tick: Callable[[bool], Awaitable[Ticked]]
    log: Callable[[str, str], None]
    background: dict[str, Background] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.Random)


class Sidecar:
    """One agent's sidecar.

    Args:
        hands: what it works with.
    """

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.figures = Figures(start_timestamp_seconds=hands.now_ms() / 1000)
        self.settings = hands.settings().sidecar
        self._seen = Looks("", 0, {})
        self._news = Bell()  # something may have changed
        self._lines = Bell()  # lines of the clan's did
        self._todo = Bell()  # it is worth asking whether there is work
        self._due = Bell()  # it is worth asking when the next sync is
        self._stop = anyio.Event()
        self._is_working = False
        self._why_not = ""  # why the last sync that was due was none

    async def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP, or until ``stop`` is called."""
        self._look()
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_a_signal)
            watch = Watch(
                folders=lambda: looks.folders(self.hands.root, self.hands.agents()),
                concerns=partial(looks.concerns, self.hands.root),
                hear=self._news.set,
                say=self.hands.log,
                rescan_s=lambda: self.settings.rescan_s,
                is_polling=lambda: self.settings.polling,
            )
            tasks: dict[str, Callable[[], Awaitable[None]]] = {
                "watch": watch.run,
                "notice": self._notice,
                "work": self._work,
                "sync": self._sync,
            }
            if self.settings.metrics_port:
                port = self.settings.metrics_port
                tasks["metrics"] = lambda: metrics.serve(self.figures, self.hands.agent, port)
            if every_s := notify.alive_every_s():
                tasks["alive"] = partial(_show_life, every_s)
            for name, background in self.hands.background.items():
                tasks[name] = partial(background, self._lines, self._news.set, self._stop)
            for name, task in tasks.items():
                group.start_soon(keep_up, name, task, self._died, self.hands.rng)
            self.hands.log("started", "")
            notify.notify(notify.READY)
            await self._stop.wait()
            notify.notify(notify.STOPPING)
            await self._finish()
            group.cancel_scope.cancel()
        self.hands.log("stopped", "")

    def stop(self) -> None:
        """End it: what has begun is finished if that takes no longer than a moment."""
        self._stop.set()

    async def _until_a_signal(self) -> None:
        heard = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # who started it with nohup wants it to stay
            heard.append(signal.SIGHUP)
        with anyio.open_signal_receiver(*heard) as signals:
            async for _ in signals:
                self.stop()

    def _died(self, name: str, why: BaseException, wait_s: float) -> None:
        self.figures.restarts_total += 1
        self.hands.log("restarted", f"{name} died ({type(why).__name__}: {why}); it starts again in {wait_s:.1f} s")

    # --- this machine -----------------------------------------------------------------------------------------------

    async def _notice(self) -> None:
        """Look at everything whenever something is said to have changed, and every so often, while it is there."""
        while True:
            with anyio.move_on_after(SLICE_S):
                await self._news.wait()
            if not Path(self.hands.root).is_dir():
                self.hands.log("gone", "the workspace is not there any more; there is nothing left to look after")
                self.stop()
                return
            self._look()

    def _look(self) -> None:
        """Look at all files; who waits for lines is told at once."""
        found = looks.taken(self.hands.root, self.hands.agents())
        changed = looks.changed(self._seen, found)
        self._seen = found
        if looks.has_lines(changed):
            self._lines.set()
        if config.FILE_NAME in changed:
            self._read_settings()
        self._todo.set()
        self._due.set()

    async def _work(self) -> None:
        """Do the work on this machine whenever the files differ from what they were when it was last done."""
        failures = 0
        while True:
            if (wait_s := self._work_in_s()) > 0:
                with anyio.move_on_after(min(wait_s, SLICE_S)):
                    await self._todo.wait()
                continue
            await anyio.sleep(DEBOUNCE_S + self.hands.rng.uniform(0, SPREAD_S))
            if self._work_in_s() > 0:
                continue
            self._is_working = True
            try:
                done = await self._tick(local=True)
            finally:
                self._is_working = False
            self._look()
            failures = 0 if done is not None and self._work_in_s() > 0 else failures + 1
            if failures > 1:  # once is somebody who wrote meanwhile
                await anyio.sleep(pause_s(failures - 1, self.hands.rng))

    def _read_settings(self) -> None:
        try:
            self.settings = self.hands.settings().sidecar
        except FleetError as why:
            self.hands.log("settings", f"{why}. The former ones hold until then")

    def _now(self) -> Now:
        return Now(self.hands.now_ms(), self._seen.digest, self._seen.newest_ms)

    def _work_in_s(self) -> float:
        return due.work_in_s(self.hands.marks(), self._now(), self.settings)

    # --- the clan ---------------------------------------------------------------------------------------------------

    async def _sync(self) -> None:
        """Ask the clan when that is due: after a quiet moment, at an interval, later after a failure."""
        idle = 0
        while True:
            if (wait_s := due.sync_in_s(self.hands.marks(), self._now(), self.settings)) > 0:
                idle = 0
                with anyio.move_on_after(min(wait_s + self.hands.rng.uniform(0, SPREAD_S), SLICE_S)):
                    await self._due.wait()
                continue
            failures = self.hands.marks().failures
            done = await self._tick(local=False)
            if done is not None:
                self._count(done, is_failed=self.hands.marks().failures > failures)
            self._look()
            idle += 1
            if idle > 1:  # what was due is due still: nobody may ask again and again without a pause
                await anyio.sleep(pause_s(idle - 1, self.hands.rng))

    def _count(self, done: Ticked, *, is_failed: bool) -> None:
        if done.synced is not None:
            self.figures.syncs_total += 1
            self.figures.lines_out_total += done.synced.lines_out
            self.figures.records_in_total += done.synced.records_in
            self.figures.last_success_timestamp_seconds = self.hands.now_ms() / 1000
            self.hands.log("synced", f"{done.synced.lines_out} lines out, {done.synced.records_in} records in")
        if is_failed:
            self.figures.sync_failures_total += 1
            self.hands.log("not synced", "; ".join(done.errors))

    async def _tick(self, *, local: bool) -> Ticked | None:
        """Do a tick; None when it could not be done at all."""
        try:
            done = await self.hands.tick(local)
        except TickFailedError as why:
            self.hands.log("tick failed", str(why))
            return None
        if done.worked is not None:
            self.figures.works_total += 1
        if done.errors and (local or done.synced is not None):
            self.hands.log("told", "; ".join(done.errors))
        if done.why not in ("", self._why_not):
            self.hands.log("not shared", done.why)
        if done.why or done.synced is not None:
            self._why_not = done.why
        return done

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Let work end that has begun, and do what is due. All that was acknowledged is on the disk either way."""
        until = time.monotonic() + LAST_WORK_S
        with anyio.move_on_after(LAST_WORK_S):
            while self._is_working:
                await anyio.sleep(0.02)
            self._look()
            if self._work_in_s() <= 0:
                await self._tick(local=True)
        if time.monotonic() >= until:
            self.hands.log("cut short", "what was not done is done by the next sidecar, or by `fleet sync`")


async def _show_life(every_s: float) -> None:
    while True:
        notify.notify(notify.ALIVE)
        await anyio.sleep(every_s)


def run(hands: Hands) -> None:
    """Run a sidecar until it is told to end."""
    anyio.run(Sidecar(hands).run)
