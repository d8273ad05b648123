"""The live part of a sidecar: local lines go out as they are written, and what others wrote is on disk in a moment."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from fleet.share.live.client import Live, Where, check_url
from fleet.store import config
from fleet.store.config import Live as Settings
from fleet.store.workspace import Workspace

HOST = "127.0.0.1"

log = logging.getLogger("fleet.live")


class Stop(Protocol):
    """What says that it is time to end; an ``anyio.Event`` is one."""

    async def wait(self) -> object:
        """Return once it is time to end."""


async def run(
    root: Path, agent: str, changed: Callable[[], Awaitable[object]], arrived: Callable[[], object], stop: Stop
) -> None:
    """Keep one agent connected to the live room until told to stop; returns at once when ``[live]`` asks for nothing.

    Runs on asyncio (anyio's default backend). A lost connection is made again, with back-off, and never raises. With
    ``serve``, this process is the server as well, on loopback, unless another one here is already.

    Args:
        root: the workspace.
        agent: under whose replica lines go out.
        changed: returns, each time it is awaited, once a file of the clan may have changed since the last time.
        arrived: called, on the event loop, after arrived lines are on the disk.
        stop: ends it.

    Raises:
        FleetError: the configuration is wrong, or this agent cannot write here.
    """
    settings = config.load(root / config.FILE_NAME).live
    if not settings.url and not settings.serve:
        return
    live = Live(lambda: Workspace(root), agent, where(settings), arrived)
    tasks = [asyncio.create_task(live.run(changed))]
    if settings.serve:
        tasks.append(asyncio.create_task(_serve(settings)))
    ending = asyncio.ensure_future(_waited(stop))
    try:
        done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ending}:
            task.result()
    finally:
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)


async def _waited(stop: Stop) -> None:
    await stop.wait()


def where(settings: Settings) -> Where:
    """Return the room that the configuration names.

    Raises:
        UsageError: its address is no good.
    """
    url = settings.url or f"ws://{HOST}:{settings.port}"
    return Where(check_url(url), settings.room, os.environ.get(settings.token_env, ""))


async def _serve(settings: Settings) -> None:
    """Serve on loopback; where somebody else here does already, look now and then whether they still do."""
    from fleet.serve.auth import Rules
    from fleet.serve.room import Rooms, open_server

    rooms = Rooms(Rules(HOST, os.environ.get(settings.token_env, "")), os.urandom)
    while True:
        with suppress(OSError):
            server = await open_server(rooms, HOST, settings.port)
            log.info("live: serving on %s:%d", HOST, settings.port)
            try:
                await rooms.tidy()
            finally:
                server.close()
                await server.wait_closed()
        await asyncio.sleep(_TAKEN_S)


_TAKEN_S = 2.0
