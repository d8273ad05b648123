"""Noticing that something changed. What it was is found out by looking: a watcher may miss, merge and invent.

A queue that overflows is no loss: whoever hears anything at all looks at everything. And everything is looked at when
watching begins, and every so often, with a fresh watcher each time, so that a folder it never heard of is found.
"""

import threading
import time
from collections.abc import Callable

import anyio
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

STEP_MS = 20
"""Between two looks at the queue: a change is heard after one to two of them. Shorter costs an idle machine more."""
GROUP_MS = 60
POLL_S = 1.0
SLICE_S = 30.0
"""Nothing waits longer than this at once: a machine that slept must notice soon after."""

Hear = Callable[[], None]
Say = Callable[[str, str], None]


class Watch:
    """Watches the folders of one workspace.

    Args:
        folders: returns those to watch, as they are there now.
        concerns: tells whether a path may be one of ours.
        hear: called, on the event loop, when something may have changed.
        say: logs an event and what about it.
        rescan_s: returns how often everything is to be looked at.
        is_polling: returns whether a person wants no watcher at all.
    """

    def __init__(
        self,
        folders: Callable[[], list[str]],
        concerns: Callable[[str], bool],
        hear: Hear,
        say: Say,
        rescan_s: Callable[[], float],
        is_polling: Callable[[], bool],
    ) -> None:
        self._folders = folders
        self._concerns = concerns
        self._hear = hear
        self._say = say
        self._rescan_s = rescan_s
        self._is_polling = is_polling
        self.how = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            until = time.monotonic() + self._rescan_s()
            folders = self._folders()
            watcher = None if self._is_polling() else self._watcher(folders)
            if watcher is None:
                self._tell("polling")
                await self._poll(until)
                continue
            self._tell("watching")
            try:
                self._hear()  # only what changes from here on is heard of
                await self._listen(watcher, folders, until)
            finally:
                watcher.close()

    def _watcher(self, folders: list[str]) -> RustNotify | None:
        """Return a watcher, or None where the system has none to give: too many, not allowed, not there."""
        try:
            return RustNotify(folders, False, False, 0, False, True)
        except (OSError, WatchfilesRustInternalError) as why:
            self._say("no watcher", f"{why}; files are looked at every {POLL_S:g} s instead, no change is lost")
            return None

    def _tell(self, how: str) -> None:
        if how != self.how:
            self.how = how
            self._say(how, "")

    async def _poll(self, until: float) -> None:
        while time.monotonic() < until:
            self._hear()
            await anyio.sleep(POLL_S)

    async def _listen(self, watcher: RustNotify, folders: list[str], until: float) -> None:
        while (left_s := until - time.monotonic()) > 0:
            stop = threading.Event()
            try:
                found = await anyio.to_thread.run_sync(
                    watcher.watch, GROUP_MS, STEP_MS, max(int(min(left_s, SLICE_S) * 1000), 1), stop,
                    abandon_on_cancel=True,
                )  # fmt: skip
            finally:
                stop.set()
            if isinstance(found, str):
                continue
            if any(self._concerns(path) for _, path in found):
                self._hear()
            if self._folders() != folders:
                return
