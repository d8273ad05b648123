"""The live server: rooms, each a shared document and its connections. It stores nothing, and knows no lessons.

A request is authorised before a single message is read. Any web page may open a WebSocket to a server on this machine,
and may make its own name point here (DNS rebinding). So on loopback the Host must be a name of loopback, and an Origin,
which only browsers send, must be one that was allowed by name. A token is needed everywhere, since loopback is open to
all accounts of the machine; beyond loopback a certificate is needed, too.

A visitor may write only the keys of the replica that it connects as, and none without a replica. Any other change is
undone before it is sent on. A replica's name belongs to the key with which it came first. A connection that reads too
slowly is dropped, and fetches what it missed when it connects again.
"""

import asyncio
import hashlib
import hmac
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from crdt.doc import CLIENT_ID_BITS, Applied, BadUpdateError, Changes, Document, TruncatedError
from fleet.model import names
from fleet.model.errors import UsageError
from fleet.share.live import wire
from fleet.share.live.access import TOKEN_CHARS_MIN
from fleet.share.live.wire import MESSAGE_BYTES_MAX, RENEWED, Presence
from fleet.store import consent

QUEUE_BYTES_MAX = 8 * 1024 * 1024
"""Limit of the queue of one slow reader, besides the message that is being sent."""
SEND_S_MAX = 30.0
CONNECTIONS_MAX = 512
ADDRESS_MAX = CONNECTIONS_MAX // 2
"""Greatest number of connections from one address beyond this machine."""
REPLICA_MAX = CONNECTIONS_MAX // 8
"""Greatest number of connections of one replica, which may be in several rooms: a large clan has 17."""
ONLOOKERS_MAX = CONNECTIONS_MAX // 4
"""Greatest number of connections without a replica."""
PINS_MAX = 10_000
"""Greatest number of replicas whose key the server remembers."""
ROOMS_MAX = 64
ROOM_BYTES_MAX = 256 * 1024 * 1024
"""Received bytes after which a room is emptied, so that it does not grow for ever; clients send all lines again."""
_TIDIED_EVERY_S = 5.0

UNREADABLE = 1007

_ROOM = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_KEY_CHARS_MAX = 128


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of who may connect.

    Attributes:
        token: what a visitor must send; with "" nobody may connect.
        origins: web pages that may connect, as browsers name them: ``https://example.org``.
    """

    host: str
    token: str = ""
    origins: Collection[str] = ()

    def check(self, *, has_certificate: bool) -> None:
        """Raise ``UsageError`` for listening beyond this machine without a token and a certificate."""
        if not consent.is_loopback(self.host) and not (self.token and has_certificate):
            raise UsageError(
                f"{self.host} is beyond this machine: that takes --token-file, and --tls-cert with --tls-key, so that "
                "nobody else reads or writes the clan's lessons. Nothing was started"
            )
        if len(self.token) < TOKEN_CHARS_MIN:
            raise UsageError(f"a token must have {TOKEN_CHARS_MIN} characters or more, at random; nothing was started")

    def decide(self, path: str, headers: Mapping[str, str]) -> "_Visitor | _Refusal":
        """Return the decision about one request. ``headers`` must ignore the case of names."""
        address = urlsplit(path)
        query = parse_qs(address.query)
        if consent.is_loopback(self.host) and not consent.is_loopback(_host_of(headers.get("Host", ""))):
            return _Refusal(403, "this server answers to the names of this machine alone")
        origin = headers.get("Origin")
        if origin is not None and origin not in self.origins:
            return _Refusal(403, "web pages of this origin are not allowed in")
        if not _knows(self.token, headers.get("Authorization", ""), query):
            return _Refusal(401, "a token is needed, and this is not it")
        room = unquote(address.path).strip("/")
        if not _ROOM.fullmatch(room):
            return _Refusal(404, "there is no room of that name")
        replica = query.get("replica", [""])[0]
        if replica and not names.is_replica(replica):
            return _Refusal(400, "no replica")
        return _Visitor(room, replica, headers.get(wire.KEY_HEADER, "")[:_KEY_CHARS_MAX])


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _knows(token: str, authorization: str, query: Mapping[str, list[str]]) -> bool:
    scheme, _, value = authorization.partition(" ")
    offered = value if scheme.lower() == "bearer" else query.get("token", [""])[0]
    return bool(token) and hmac.compare_digest(offered.encode("utf-8", "replace"), token.encode())


class _Visitor(NamedTuple):
    """Visitor that may connect: its room, the replica whose keys it may write ("" for none), and its secret key."""

    room: str
    replica: str
    key: str = ""


class _Refusal(NamedTuple):
    """Refusal of a visitor: an HTTP status, and why."""

    status: int
    reason: str


class _Guest:
    """One connection: its queue, and the clients whose presence it reported."""

    def __init__(self, socket: ServerConnection, visitor: _Visitor) -> None:
        self.socket = socket
        self.visitor = visitor
        self.address = str((socket.remote_address or ("",))[0])
        self.clients: set[int] = set()
        self._waiting = asyncio.Queue[tuple[bytes, int]]()  # messages, each with its share of the limit in bytes
        self._waiting_bytes = 0
        self._is_answered = True

    def is_same(self, other: "_Guest") -> bool:
        """Return whether the other one is this guest, or another connection of its replica."""
        return other is self or (other.visitor.replica == self.visitor.replica != "")

    def send(self, message: bytes) -> None:
        """Queue a message. A reader whose queue is full is dropped."""
        if self._waiting_bytes and self._waiting_bytes + len(message) > QUEUE_BYTES_MAX:
            self.drop()
            return
        self._queue(message, len(message))

    def answer(self, pieces: list[bytes]) -> None:
        """Queue what a visitor lacks, beyond the limit of the queue, but only one such answer at a time."""
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
        self._waiting.put_nowait((message, counted))
        self._waiting_bytes += counted

    def drop(self) -> None:
        """End the connection now, and empty its queue."""
        self._waiting, self._waiting_bytes = asyncio.Queue(), 0
        self.socket.transport.abort()

    async def deliver(self) -> None:
        """Send the queue, in order, until the connection ends."""
        with suppress(ConnectionClosed):
            while True:
                message, counted = await self._waiting.get()
                self._waiting_bytes -= counted
                if not message:  # the end of an answer
                    self._is_answered = True
                    continue
                try:
                    await asyncio.wait_for(self.socket.send(message), SEND_S_MAX)
                except TimeoutError:
                    self.drop()
                    return


@dataclass
class _Room:
    """One shared document, and its connections."""

    document: Document
    presence: Presence
    guests: set[_Guest] = field(default_factory=set)
    received_bytes: int = 0


class Rooms:
    """All rooms of one server."""

    def __init__(
        self, rules: Rules, entropy: Callable[[int], bytes], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules
        self.rooms: dict[str, _Room] = {}
        self._entropy = entropy
        self._now_s = now_s
        self._pins: dict[str, bytes] = {}
        # Weak, since a visitor that may connect, and then speaks no WebSocket, is never attended to.
        self._visitors: WeakKeyDictionary[ServerConnection, _Visitor] = WeakKeyDictionary()

    def room(self, name: str) -> _Room:
        """Return the room of a name, made if there is none."""
        if name not in self.rooms:
            self.rooms[name] = _Room(self._document(), Presence(self._now_s))
        return self.rooms[name]

    def _document(self) -> Document:
        return Document(int.from_bytes(self._entropy(CLIENT_ID_BITS // 8), "big"))

    # --- authorisation ------------------------------------------------------------------------------------------

    def admit(self, socket: ServerConnection, request: Request) -> Response | None:
        """Accept a request, or return the response of a refusal."""
        try:
            decision = self.rules.decide(request.path, request.headers)
        except LookupError:  # two Hosts, or two Origins: a proxy on the way may have taken the other one
            decision = _Refusal(400, "a header that may stand once stands twice")
        if isinstance(decision, _Visitor):
            decision = self._with_space(decision, str((socket.remote_address or ("",))[0]))
        if isinstance(decision, _Refusal):
            return socket.respond(decision.status, f"{decision.reason}\n")
        self._visitors[socket] = decision
        return None

    def _with_space(self, visitor: _Visitor, address: str) -> _Visitor | _Refusal:
        guests = [guest for room in self.rooms.values() for guest in room.guests]
        if len(guests) >= CONNECTIONS_MAX:
            return _Refusal(503, "too many are connected")
        same = sum(guest.visitor.replica == visitor.replica for guest in guests)
        near = sum(guest.address == address for guest in guests)
        if same >= (REPLICA_MAX if visitor.replica else ONLOOKERS_MAX) or (
            near >= ADDRESS_MAX and not consent.is_loopback(address)
        ):
            return _Refusal(503, "too many of yours are connected")
        if not self._is_itself(visitor):
            return _Refusal(403, "somebody else came under this replica's name before")
        if visitor.room not in self.rooms and len(self.rooms) >= ROOMS_MAX:
            left = [name for name, room in self.rooms.items() if not room.guests]
            if not left:
                return _Refusal(503, "there are too many rooms")
            # Else one member could fill all rooms, and leave. Nothing is lost: clients bring their lines again.
            del self.rooms[min(left, key=lambda name: len(self.rooms[name].document))]
        return visitor

    def _is_itself(self, visitor: _Visitor) -> bool:
        """Return whether a visitor has the key with which its replica came first (trust on first use)."""
        pin = self._pins.get(visitor.replica)
        key = hashlib.sha256(visitor.key.encode("utf-8", "replace")).digest()
        if pin is not None:
            return hmac.compare_digest(pin, key)
        if visitor.replica and visitor.key and len(self._pins) < PINS_MAX:
            self._pins[visitor.replica] = key
        return True

    async def attend(self, socket: ServerConnection) -> None:
        """Serve one connection until it ends."""
        visitor = self._visitors.pop(socket)
        guest, room = _Guest(socket, visitor), self.room(visitor.room)
        room.guests.add(guest)
        delivery = asyncio.create_task(guest.deliver())
        try:
            guest.send(wire.Message(wire.SYNC, wire.STEP_1, room.document.state()).encode())
            if here := room.presence.clients():
                guest.send(wire.Message(wire.AWARENESS, 0, room.presence.encode(here)).encode())
            async for message in socket:
                if isinstance(message, str) or not self._receive(room, guest, message):
                    await socket.close(UNREADABLE, "not a message that this server knows")
                    break
        except ConnectionClosed:
            pass
        finally:
            room.guests.discard(guest)
            delivery.cancel()
            if gone := room.presence.leave(guest.clients):
                self._send(room, wire.Message(wire.AWARENESS, 0, gone).encode())

    # --- in a room ------------------------------------------------------------------------------------------------

    def _receive(self, room: _Room, guest: _Guest, data: bytes) -> bool:
        """Handle a message; return whether it was a valid one."""
        try:
            message = wire.Message.decode(data)
            if message is None:
                return True
            if message.kind == wire.AWARENESS:
                self._present(room, guest, message.payload)
            elif message.kind == wire.QUERY_AWARENESS:
                guest.send(wire.Message(wire.AWARENESS, 0, room.presence.encode(room.presence.clients())).encode())
            elif message.step == wire.STEP_1:
                guest.answer(list(room.document.pieces_since(message.payload, wire.UPDATE_BYTES_MAX)))
            else:
                self._update(room, guest, message.payload)
        except (TruncatedError, BadUpdateError):
            return False
        return True

    def _present(self, room: _Room, guest: _Guest, update: bytes) -> None:
        others = {client for other in room.guests if not guest.is_same(other) for client in other.clients}
        news = room.presence.take(update, replica=guest.visitor.replica, others=others)
        guest.clients.update(news)
        if news:  # to its sender, too, which takes silence for a dead connection
            self._send(room, wire.Message(wire.AWARENESS, 0, room.presence.encode(news)).encode())

    def _update(self, room: _Room, guest: _Guest, update: bytes) -> None:
        before = room.document.state()
        try:
            applied = room.document.apply(update)
        except BadUpdateError as why:
            if why.is_broken:  # another call of this document would hang
                self._empty(room)
            else:
                room.document.put(_not_allowed(why.changes, guest.visitor.replica))
            raise
        room.received_bytes += len(update)
        news = self._after_undoing(room, guest, before, applied)
        if applied.is_cloned:  # a client writes under the server's own client id: the server takes another
            renewed = self._document()
            for piece in room.document.pieces_since(b"\0", wire.UPDATE_BYTES_MAX):
                renewed.apply(piece)
            room.document = renewed
        if news:
            sender = guest if news is applied.update else None
            self._send(room, wire.Message(wire.SYNC, wire.UPDATE, news).encode(), sender)
        if room.received_bytes > ROOM_BYTES_MAX:
            self._empty(room)

    def _after_undoing(self, room: _Room, guest: _Guest, before: bytes, applied: Applied) -> bytes:
        """Undo the changes that this guest may not make; return the update for the others."""
        undone = _not_allowed(applied.changes, guest.visitor.replica)
        if not undone:
            return applied.update
        room.document.put(undone)
        return room.document.since(before)  # without the values that were undone: they are collected by now

    def _send(self, room: _Room, message: bytes, but: _Guest | None = None) -> None:
        for guest in room.guests:
            if guest is not but:
                guest.send(message)

    def _empty(self, room: _Room) -> None:
        """Begin anew with an empty document; clients reconnect and send what is missing."""
        room.document, room.received_bytes = self._document(), 0
        for guest in room.guests:
            asyncio.ensure_future(guest.socket.close(RENEWED, "this room begins anew"))  # noqa: RUF006 - it ends by itself

    async def tidy(self) -> None:
        """Remove the presence of silent clients, for as long as the server runs."""
        while True:
            await asyncio.sleep(_TIDIED_EVERY_S)
            for room in self.rooms.values():
                if gone := room.presence.forget_stale():
                    self._send(room, wire.Message(wire.AWARENESS, 0, room.presence.encode(gone)).encode())


def _not_allowed(changes: Changes, replica: str) -> dict[str, str | None]:
    """Return the former values of rows that this writer may not change, or may not change to such a value."""
    return {
        key: change.before if wire.is_text(change.before) else None
        for key, change in changes.items()
        if not wire.is_key_of(key, replica) or not (change.after is None or wire.is_text(change.after))
    }


@asynccontextmanager
async def serving(rooms: Rooms, port: int, certificate: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on the host of the rooms' rules while the block runs; yield the port.

    Raises:
        OSError: the port is taken, or not allowed.
    """
    async with serve(
        rooms.attend,
        rooms.rules.host,
        port,
        ssl=certificate,
        process_request=rooms.admit,
        max_size=MESSAGE_BYTES_MAX,
        compression=wire.COMPRESSION,
        close_timeout=1,
        server_header=None,
        logger=wire.quiet,
    ) as server:
        tidying = asyncio.create_task(rooms.tidy())
        try:
            yield int(next(iter(server.sockets)).getsockname()[1])
        finally:
            tidying.cancel()
