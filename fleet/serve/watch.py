"""Watch over the files of a workspace: a signal when one of them may have changed.

A watcher may miss, merge and invent, so what changed is found out by looking: everything is looked at when watching
begins, whenever anything at all is heard, and every so often, with a fresh watcher each time, so that a folder it never
heard of is found. A queue that overflows is no loss.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path, PurePath

import anyio
from watchfiles import awatch

from fleet.serve.schedule import CLAN, LOGS
from fleet.store import homes
from fleet.store.config import Sidecar

STEP_MS = 20
"""Between two looks at the queue: a change is heard after one to two of them. Shorter costs an idle machine more."""
GROUP_MS = 60
FIRST_MS = 300
"""A watcher that has heard nothing for so long is known to have begun."""
POLL_S = 1.0
SLICE_S = 30.0
"""Nothing waits longer than this at once: a machine that slept must notice soon after."""


class Bell:
    """Signal that many set and one waits for. What was rung while nobody waited is heard at the next wait, once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Ring."""
        self._event.set()

    async def wait(self) -> None:
        """Return once it was rung since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()


class Watch:
    """Watcher of the folders of one workspace.

    Args:
        settings: returns how often everything is to be looked at, and whether a person wants no watcher at all.
    """

    def __init__(
        self,
        root: str,
        agents: Callable[[], Iterable[str]],
        hear: Callable[[], None],
        say: Callable[[str, str], None],
        settings: Callable[[], Sidecar],
        stop: anyio.Event,
    ) -> None:
        self._root = root
        self._agents = agents
        self._hear = hear
        self._say = say
        self._settings = settings
        self._stop = stop
        self.how = ""

    async def run(self) -> None:
        """Watch until told to stop, or cancelled."""
        while not self._stop.is_set():
            until = time.monotonic() + self._settings().rescan_s
            if not self._settings().polling:
                try:
                    await self._listen(until)
                    continue
                except (OSError, RuntimeError) as why:  # too many watchers, not allowed, not there
                    told = f"{why}; files are looked at every {POLL_S:g} s instead, no change is lost"
                    self._say("no watcher", told)
            self._tell("polling")
            await self._poll(until)

    def _tell(self, how: str) -> None:
        if how != self.how:
            self.how = how
            self._say(how, "")

    async def _poll(self, until: float) -> None:
        while time.monotonic() < until and not self._stop.is_set():
            self._hear()
            await anyio.sleep(POLL_S)

    async def _listen(self, until: float) -> None:
        watched, has_begun = _folders(self._root, self._agents()), False
        heard = awatch(
            *watched,
            watch_filter=None,
            debounce=GROUP_MS,
            step=STEP_MS,
            stop_event=self._stop,
            rust_timeout=FIRST_MS,
            yield_on_timeout=True,
            force_polling=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        async with aclosing(heard):
            async for found in heard:
                self._tell("watching")
                # The first time, whatever was heard: only what changed since the watcher began is heard of.
                if not has_begun or any(_concerns(self._root, path) for _, path in found):
                    has_begun = True
                    self._hear()
                if time.monotonic() >= until or (found and _folders(self._root, self._agents()) != watched):
                    return


def _folders(root: str, agents: Iterable[str]) -> list[str]:
    """Return the folders to watch, those that are there: the root for the settings, the homes, the clan's."""
    above = PurePath(homes.current(root))
    wanted: list[PurePath | str] = [*above.parents, above, *(above / agent for agent in agents)]
    paths = (Path(root) / each for each in (*wanted, CLAN, *(f"{CLAN}/{log}.d" for log in LOGS)))
    return sorted(str(path) for path in paths if path.is_dir() and not path.is_symlink())


def _concerns(root: str, path: str) -> bool:
    """Return True where a path that a watcher names may be one of ours; a file on its way to its name is not."""
    relative = os.path.relpath(path, root)
    name = Path(path).name
    if name.startswith(".") and name.endswith(".tmp"):
        return False
    place = Path(relative)
    above = PurePath(homes.current(root))
    return (
        relative == "fleet.toml" or place in above.parents or place.is_relative_to(above) or place.is_relative_to(CLAN)
    )
