"""A live server in memory, and sockets to it, which deliver in order, late, and sometimes not at all.

The server handles messages with the real code. A socket behaves as one of the WebSocket library does: an end that
hears nothing from the other side ends the connection after two pings.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from fleet.serve import room as rooms
from fleet.serve.room import Rooms, Rules, _Visitor
from fleet.share.live import wire
from tests.sim.virtual import Conductor

OPEN, AWAY, HANGING, MUTE = "open", "away", "hanging", "mute"
LATE_S = 0.02
DEAD_S = 40.0
"""The WebSocket library pings every 20 s, and waits as long again for the answer."""


class Socket:
    """The client's end of a connection, which also stands for the server's end."""

    def __init__(self, server: "Server", way: "Way", visitor: _Visitor) -> None:
        self.server, self.way, self.visitor = server, way, visitor
        self.clients: set[int] = set()
        self.is_dead = self.is_mute = self.is_closed = False
        self._heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._why: Close | None = None

    # --- what the client calls --------------------------------------------------------------------------------------

    async def send(self, message: bytes) -> None:
        if self.is_closed:
            raise ConnectionClosedError(self._why, None)
        if not self.is_dead:
            self.server.conductor.after(LATE_S, lambda: self.server.hear(self, message))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.cut()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._heard.get()) is not None:
            yield message
        raise ConnectionClosedError(self._why, None)

    # --- what the server calls --------------------------------------------------------------------------------------

    def send_down(self, message: bytes) -> None:
        if not (self.is_dead or self.is_mute):
            self.server.conductor.after(LATE_S, lambda: self._arrive(message))

    def drop(self) -> None:
        self.cut()

    def _arrive(self, message: bytes) -> None:
        if not (self.is_dead or self.is_mute or self.is_closed):
            self._heard.put_nowait(message)

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End the connection, so that both ends know at once."""
        self.server.leave(self)
        self._end()

    def hang(self, *, only_replies: bool = False) -> None:
        """Let the connection go dead: each end finds out by its own pings, a client's only while its machine runs."""
        self.is_mute = True
        self.is_dead = self.is_dead or not only_replies
        self.server.conductor.after(DEAD_S, lambda: self.server.leave(self))
        self.way.later(DEAD_S, self._end)

    def _end(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._heard.put_nowait(None)


class _Guest:
    """A socket, as the server sees it."""

    is_same = rooms._Guest.is_same

    def __init__(self, socket: Socket) -> None:
        self.socket, self.visitor, self.clients = socket, socket.visitor, set[int]()
        self.send, self.drop = socket.send_down, socket.drop

    def answer(self, pieces: list[bytes]) -> None:
        for message in wire.answer(pieces):
            self.send(message)


class Server:
    """The live server, which forgets everything when it restarts."""

    def __init__(self, conductor: Conductor, entropy: Callable[[int], bytes]) -> None:
        self.conductor = conductor
        self._entropy = entropy
        self.guests: dict[Socket, tuple[Any, Any]] = {}
        self.rooms = self._rooms()

    def _rooms(self) -> Rooms:
        return Rooms(Rules("127.0.0.1", "a-token-that-nobody-asks-for"), self._entropy, lambda: self.conductor.now_s)

    def restart(self) -> None:
        for socket in list(self.guests):
            socket.cut()
        self.rooms = self._rooms()

    def join(self, socket: Socket) -> None:
        room, guest = self.rooms.room(socket.visitor.room), _Guest(socket)
        room.guests.add(guest)  # type: ignore[arg-type]
        self.guests[socket] = (room, guest)
        guest.send(wire.Message(wire.SYNC, wire.STEP_1, room.document.state()).encode())

    def hear(self, socket: Socket, message: bytes) -> None:
        if socket in self.guests and not socket.is_dead:
            room, guest = self.guests[socket]
            assert self.rooms._receive(room, guest, message)

    def leave(self, socket: Socket) -> None:
        if found := self.guests.pop(socket, None):
            room, guest = found
            room.guests.discard(guest)
            room.presence.leave(guest.clients)


class Way:
    """One machine's connection to the live server.

    Args:
        server: the live server.
        later: calls something after a number of seconds of the machine's own time.
    """

    def __init__(self, server: Server, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._server, self.later = server, later
        self.mode = OPEN
        self.sockets: list[Socket] = []

    def become(self, mode: str) -> None:
        self.mode = mode
        for socket in [each for each in self.sockets if not each.is_closed]:
            if mode == AWAY:
                socket.cut()
            elif mode != OPEN:
                socket.hang(only_replies=mode == MUTE)
        if mode != OPEN:
            self.sockets.clear()

    @asynccontextmanager
    async def connect(self, url: str, *, open_timeout: float, **_: Any) -> AsyncIterator[Socket]:
        """Stand in for the WebSocket library's ``connect``."""
        await asyncio.sleep(LATE_S)
        if self.mode == AWAY:
            raise OSError("connection refused")
        if self.mode != OPEN:
            await asyncio.sleep(open_timeout)
            raise TimeoutError
        asked = urlsplit(url)
        replica = parse_qs(asked.query).get("replica", [""])[0]
        socket = Socket(self._server, self, _Visitor(asked.path.strip("/"), replica))
        self.sockets.append(socket)
        self._server.join(socket)
        try:
            yield socket
        finally:
            socket.cut()
