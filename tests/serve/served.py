"""A live server in a thread of its own, on a free port of loopback, and nothing of it left afterwards."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleet.serve.room import Rooms, Rules, serving
from fleet.share.live.access import Where

HOST = "127.0.0.1"
TOKEN = "a-token-of-this-test-0123"


class Served:
    """The running server.

    Attributes:
        rooms: its rooms; look at them, or call into the server's thread with ``do``.
        port: where it listens.
    """

    def __init__(self, rooms: Rooms, port: int = 0, certificate: Any = None) -> None:
        self.rooms = rooms
        self.port = port
        self._certificate = certificate
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ending: asyncio.Event
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(20)
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as why:
            self._failed = why
        finally:
            self._loop.close()
            self._up.set()

    async def _serve(self) -> None:
        self._ending = asyncio.Event()
        async with serving(self.rooms, self.port, self._certificate) as self.port:
            self._up.set()
            await self._ending.wait()

    def where(self, room: str = "clan", token: str = TOKEN) -> Where:
        return Where(f"ws://{HOST}:{self.port}", room, token)

    def do(self, act: Callable[[], Any]) -> Any:
        """Run something in the server's thread, and return what it returns."""

        async def acted() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(acted(), self._loop).result(20)

    def rows(self, room: str = "clan") -> dict[str, str]:
        return self.do(lambda: self.rooms.room(room).document.rows())  # noqa: PLW0108 - the room may be another one by then

    def guests(self, room: str = "clan") -> int:
        return self.do(lambda: len(self.rooms.room(room).guests))

    def end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def served(rules: Rules | None = None, rooms: Rooms | None = None, **more: Any) -> Iterator[Served]:
    found = Served(rooms or Rooms(rules or Rules(HOST, TOKEN), os.urandom), **more)
    try:
        yield found
    finally:
        found.end()
