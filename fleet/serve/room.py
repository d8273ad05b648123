"""The live server: rooms, each a shared document and who is in it. It keeps nothing, and knows nothing of lessons.

A visitor writes under the keys of the replica that it came as, and one that came as none only looks on: whatever else
it changes is undone before anybody hears of it. Who reads too slowly is dropped, and comes back for what it missed.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from crdt.doc import CLIENT_ID_BITS, Applied, BadUpdateError, Changes, Document
from crdt.varint import TruncatedError
from fleet.model.errors import UsageError
from fleet.serve import auth
from fleet.serve.auth import Rules, Turned, Visitor
from fleet.share.live import rows, wire
from fleet.share.live.wire import MESSAGE_BYTES_MAX, RENEWED, Presence

QUEUE_BYTES_MAX = 8 * 1024 * 1024
"""What waits for one slow reader at most, besides the message that is on its way."""
SEND_S_MAX = 30.0
CONNECTIONS_MAX = 512
ROOMS_MAX = 64
ROOM_BYTES_MAX = 256 * 1024 * 1024
"""A room that has received so much is emptied, and everybody brings what they have: nothing piles up for ever."""
PING_S = 20.0
_TIDIED_EVERY_S = 5.0

UNREADABLE, TOO_SLOW = 1007, 1013


class Guest:
    """One connection: what waits to be sent to it, and who it said is there.

    Args:
        socket: the open connection.
        visitor: who it is.
    """

    def __init__(self, socket: ServerConnection, visitor: Visitor) -> None:
        self.socket = socket
        self.visitor = visitor
        self.clients: set[int] = set()
        self._waiting: deque[tuple[bytes, int]] = deque()  # each with what it counts
        self._waiting_bytes = 0
        self._is_answered = True
        self._bell = asyncio.Event()

    def send(self, message: bytes) -> None:
        """Queue a message. A reader for whom too much waits already is dropped."""
        if self._waiting and self._waiting_bytes + len(message) > QUEUE_BYTES_MAX:
            self.drop()
            return
        self._queue(message, len(message))

    def answer(self, pieces: list[bytes]) -> None:
        """Queue what a visitor lacks: as large as it is, but only one such answer waits at a time."""
        messages = wire.answer(pieces)
        if not self._is_answered:
            for message in messages:
                self.send(message)
            return
        self._is_answered = False
        for message in messages:
            self._queue(message, 0)
        self._queue(b"", 0)

    def _queue(self, message: bytes, counted: int) -> None:
        self._waiting.append((message, counted))
        self._waiting_bytes += counted
        self._bell.set()

    def drop(self) -> None:
        """End the connection now, and let go of what waits for it."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self.socket.transport.abort()

    async def deliver(self) -> None:
        """Send what waits, in order, until the connection ends."""
        with suppress(ConnectionClosed):
            while True:
                await self._bell.wait()
                self._bell.clear()
                while self._waiting:
                    message, counted = self._waiting.popleft()
                    self._waiting_bytes -= counted
                    if not message:  # the end of an answer
                        self._is_answered = True
                        continue
                    try:
                        await asyncio.wait_for(self.socket.send(message), SEND_S_MAX)
                    except TimeoutError:
                        self.drop()
                        return


@dataclass(slots=True)
class Counts:
    """What happened since the start.

    Attributes:
        undone: rows that somebody changed who may not, and that are as they were.
        unreadable: messages that were none.
        turned: requests that were not let in.
    """

    undone: int = 0
    unreadable: int = 0
    turned: int = 0


@dataclass
class Room:
    """One shared document, and who is in it."""

    document: Document
    presence: Presence
    guests: set[Guest] = field(default_factory=set)
    received_bytes: int = 0


class Rooms:
    """All rooms of one server.

    Args:
        rules: whom to let in.
        entropy: returns so many random bytes.
        now_s: a monotonic clock, seconds.
    """

    def __init__(
        self, rules: Rules, entropy: Callable[[int], bytes], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules
        self.counts = Counts()
        self.rooms: dict[str, Room] = {}
        self._entropy = entropy
        self._now_s = now_s
        # Weak: who was let in and then spoke no WebSocket is never attended to.
        self._visitors: WeakKeyDictionary[ServerConnection, Visitor] = WeakKeyDictionary()

    def room(self, name: str) -> Room:
        """Return a room, made if there is none of that name."""
        if name not in self.rooms:
            self.rooms[name] = Room(self._document(), Presence(self._now_s))
        return self.rooms[name]

    def _document(self) -> Document:
        return Document(int.from_bytes(self._entropy(CLIENT_ID_BITS // 8), "big"))

    # --- authorisation ------------------------------------------------------------------------------------------

    def admit(self, socket: ServerConnection, request: Request) -> Response | None:
        """Let a request in, or answer it with a refusal."""
        try:
            asked = auth.ask(self.rules, request.path, request.headers)
        except LookupError:  # two Hosts, or two Origins: whichever we took, somebody on the way took the other
            asked = Turned(400, "a header that may stand once stands twice")
        if isinstance(asked, Visitor):
            asked = self._with_space(asked)
        if isinstance(asked, Turned):
            self.counts.turned += 1
            return socket.respond(asked.status, f"{asked.reason}\n")
        self._visitors[socket] = asked
        return None

    def _with_space(self, visitor: Visitor) -> Visitor | Turned:
        if sum(len(room.guests) for room in self.rooms.values()) >= CONNECTIONS_MAX:
            return Turned(503, "too many are connected")
        if visitor.room not in self.rooms and len(self.rooms) >= ROOMS_MAX:
            empty = [name for name, room in self.rooms.items() if not room.guests and not len(room.document)]
            if not empty:
                return Turned(503, "there are too many rooms")
            del self.rooms[empty[0]]
        return visitor

    async def attend(self, socket: ServerConnection) -> None:
        """Serve one connection until it ends."""
        visitor = self._visitors.pop(socket)
        guest, room = Guest(socket, visitor), self.room(visitor.room)
        room.guests.add(guest)
        delivery = asyncio.create_task(guest.deliver())
        try:
            guest.send(wire.sync(wire.STEP_1, room.document.state()))
            if here := room.presence.clients():
                guest.send(wire.awareness(room.presence.encode(here)))
            async for message in socket:
                if isinstance(message, str) or not self._hear(room, guest, message):
                    self.counts.unreadable += 1
                    await socket.close(UNREADABLE, "not a message that this server knows")
                    break
        except ConnectionClosed:
            pass
        finally:
            room.guests.discard(guest)
            delivery.cancel()
            if gone := room.presence.leave(guest.clients):
                self._tell(room, wire.awareness(gone))

    # --- in a room ------------------------------------------------------------------------------------------------

    def _hear(self, room: Room, guest: Guest, data: bytes) -> bool:
        """Do what a message asks; tell whether it was one."""
        try:
            message = wire.decode(data)
            if message is None:
                return True
            if message.kind == wire.AWARENESS:
                self._present(room, guest, message.payload)
            elif message.kind == wire.QUERY_AWARENESS:
                guest.send(wire.awareness(room.presence.encode(room.presence.clients())))
            elif message.step == wire.STEP_1:
                guest.answer(list(room.document.pieces_since(message.payload, wire.UPDATE_BYTES_MAX)))
            else:
                self._update(room, guest, message.payload)
        except (TruncatedError, BadUpdateError):
            return False
        return True

    def _present(self, room: Room, guest: Guest, update: bytes) -> None:
        news = room.presence.take(update)
        guest.clients.update(news)
        if news:  # to its sender, too, who takes silence for a dead connection
            self._tell(room, wire.awareness(room.presence.encode(news)))

    def _update(self, room: Room, guest: Guest, update: bytes) -> None:
        before = room.document.state()
        try:
            applied = room.document.apply(update)
        except BadUpdateError as why:
            if why.is_broken:  # whoever touches it again waits for ever
                self._empty(room)
            else:
                room.document.put(_not_allowed(why.changes, guest.visitor.replica))
            raise
        room.received_bytes += len(update)
        news = self._after_undoing(room, guest, before, applied)
        if applied.is_cloned:  # somebody writes under the server's own client id: it takes another
            renewed = self._document()
            for piece in room.document.pieces_since(b"\0", wire.UPDATE_BYTES_MAX):
                renewed.apply(piece)
            room.document = renewed
        if news:
            self._tell(room, wire.sync(wire.UPDATE, news), guest if news is applied.update else None)
        if room.received_bytes > ROOM_BYTES_MAX:
            self._empty(room)

    def _after_undoing(self, room: Room, guest: Guest, before: bytes, applied: Applied) -> bytes:
        """Undo what this guest may not do; return what others are to hear."""
        undone = _not_allowed(applied.changes, guest.visitor.replica)
        if not undone:
            return applied.update
        self.counts.undone += len(undone)
        room.document.put(undone)
        return room.document.since(before)  # without the words that were undone: they are collected by now

    def _tell(self, room: Room, message: bytes, but: Guest | None = None) -> None:
        for guest in room.guests:
            if guest is not but:
                guest.send(message)

    def _empty(self, room: Room) -> None:
        """Begin anew with an empty document; whoever comes back brings what is missing."""
        room.document, room.received_bytes = self._document(), 0
        for guest in room.guests:
            asyncio.ensure_future(guest.socket.close(RENEWED, "this room begins anew"))  # noqa: RUF006 - it ends by itself

    async def tidy(self) -> None:
        """Take for away who is silent, for as long as the server runs."""
        while True:
            await asyncio.sleep(_TIDIED_EVERY_S)
            for room in self.rooms.values():
                if gone := room.presence.forget_stale():
                    self._tell(room, wire.awareness(room.presence.encode(gone)))


def _not_allowed(changes: Changes, replica: str) -> dict[str, str | None]:
    """Return what the rows held before that this writer may not set, or not to this."""
    return {
        key: change.before if rows.is_text(change.before) else None
        for key, change in changes.items()
        if not rows.is_key_of(key, replica) or not (change.after is None or rows.is_text(change.after))
    }


async def open_server(rooms: Rooms, host: str, port: int, certificate: ssl.SSLContext | None = None) -> Server:
    """Listen; the server closes with ``close()`` and ``wait_closed()``.

    Raises:
        OSError: the port is taken, or not ours to take.
    """
    return await serve(
        rooms.attend,
        host,
        port,
        ssl=certificate,
        process_request=rooms.admit,
        max_size=MESSAGE_BYTES_MAX,
        compression=wire.COMPRESSION,
        ping_interval=PING_S,
        ping_timeout=PING_S,
        close_timeout=1,
        server_header=None,
        logger=wire.quiet,
    )


def certificate_of(cert: str, key: str) -> ssl.SSLContext | None:
    """Return what TLS needs, from two files; None for no files.

    Raises:
        UsageError: they cannot be used.
    """
    if not cert and not key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as why:
        raise UsageError(f"{cert} and {key} are no certificate with its key ({why}); nothing was started") from why
    return context


def token_in(path: str) -> str:
    """Return the token that a file holds, "" for no file.

    Raises:
        UsageError: it cannot be read, or is empty.
    """
    if not path:
        return ""
    try:
        token = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as why:
        raise UsageError(f"{path} cannot be read ({why}); nothing was started") from why
    if not token:
        raise UsageError(f"{path} is empty: a token is one line of random text. Nothing was started")
    return token


def port_of(server: Server) -> int:
    """Return the port that a server listens on."""
    address: Any = next(iter(server.sockets)).getsockname()
    return int(address[1])
