"""Client of the live transport, which keeps a bridge connected to its rooms over WebSocket, as any Yjs client does.

A lost connection is opened again, with back-off and jitter. Each side then sends its state vector, and gets the updates
that it missed. Presence is sent as awareness, which is not stored.
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode

from crdt.doc import BadUpdateError, TruncatedError
from fleet.model import limits, names
from fleet.model.errors import BusyError, FleetError
from fleet.share import outgoing
from fleet.share.live import wire
from fleet.share.live.access import Access, Where
from fleet.share.live.bridge import BASE, DIGITS, Bridge, Updates
from fleet.share.live.wire import MESSAGE_BYTES_MAX, RENEWED, Presence
from fleet.share.remote import RemoteUnavailable
from fleet.store.workspace import ONLINE, Workspace

BACKOFF_S = 0.25
BACKOFF_S_MAX = 30.0
OPEN_S = 10.0
HEAL_S = 0.2
"""Limit of the random wait before a lost row is put again, so that usually one client does so for all."""
POLL_S = 2.0
"""Interval at which a pause and unwritten lines are checked."""
LARGE = "rooms"
"""Key in the state of a client whose clan needs more than one room."""

_GOING = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.SERVICE_RESTART)
"""Codes with which a server closes a connection in good order."""

_T = TypeVar("_T")


class Live:
    """One agent's connection to the rooms of its clan.

    Args:
        opened: opens the workspace; called once, in the thread in which all work with it is done.
        arrived: called after lines of others are on the disk.
        log: called with each error, in words.
        private_among: as of ``Bridge``.

    Attributes:
        bridge: set while ``run`` runs; others may only read it.
        problem: the last error, "" for none.
    """

    def __init__(
        self,
        opened: Callable[[], Workspace],
        agent: str,
        where: Where,
        arrived: Callable[[], object],
        log: Callable[[str], object],
        rng: random.Random | None = None,
        private_among: Callable[[Workspace, Sequence[str]], Collection[str]] = lambda *_: (),
    ) -> None:
        self._opened, self._agent, self._where, self._arrived, self._log = opened, agent, where, arrived, log
        self._private_among, self._rng = private_among, rng or random.Random()  # noqa: S311 - pauses, no secrets
        self._pool = ThreadPoolExecutor(1, "fleet-live")
        self._sockets: dict[str, ClientConnection] = {}
        self._synced: set[str] = set()
        self._answered: set[str] = set()  # rooms whose server got the updates that it lacked
        self._sending: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._inbox: Updates = []
        self._wakeup = asyncio.Event()
        self._since = self._on = self._key = ""
        self.bridge: Bridge
        self._presence: Presence
        self._tasks: asyncio.TaskGroup
        self._is_paused = False
        self.problem = ""

    async def run(self, changed: Callable[[], Awaitable[object]]) -> None:
        """Stay connected until cancelled; raise ``FleetError`` if this agent cannot write here.

        ``changed`` is awaited in a loop; it returns when a file of the clan may have changed.
        """
        with ExitStack() as opened:
            opened.callback(self._pool.shutdown)
            self.bridge = await self._do(self._open, opened)
            self._presence = Presence(asyncio.get_running_loop().time)
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._channel(BASE))
                self._tasks.create_task(self._follow(changed))
                self._tasks.create_task(self._poll())
                await self._work()

    def _open(self, opened: ExitStack) -> Bridge:
        workspace = self._opened()
        opened.callback(self._pool.submit, workspace.close)  # closed in the thread that uses it
        with workspace.writing(self._agent) as writer:
            replica = writer.name
        self._since, self._key = workspace.wall(), Access(workspace).key()
        self._is_paused = bool(workspace.state.paused(workspace.wall()))
        return Bridge(workspace, replica, partial(self._private_among, workspace))

    async def _do(self, act: Callable[..., _T], *given: Any) -> _T:
        """Run a function in the one thread that uses workspace and documents."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, act, *given)

    async def _follow(self, changed: Callable[[], Awaitable[object]]) -> None:
        while True:
            await changed()
            self._wakeup.set()

    async def _poll(self) -> None:
        """Renew our state, obey a pause, and retry lines that could not be written."""
        since_s, noted = 0.0, list[Online]()
        while True:
            await asyncio.sleep(POLL_S)
            # Both reads are one call, since waking the thread costs more than they do.
            self._is_paused, on = await self._do(lambda: (self._paused(), self._read_on()))
            if self._is_paused:
                for socket in list(self._sockets.values()):
                    await socket.close()
            if self.problem:
                self._wakeup.set()
            self._presence.forget_stale()
            since_s += POLL_S
            is_due = since_s >= wire.RENEWED_S
            since_s = 0.0 if is_due else since_s
            if is_due or _online(self._presence) != noted:
                noted = _online(self._presence)
                await self._do(self._note_online, noted)
            if (is_due or on != self._on) and BASE in self._sockets:
                await self._send(BASE, wire.Message(wire.AWARENESS, 0, await self._own_state()).encode())

    # --- work -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Take in updates and offer new lines, in batches."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            try:
                await self._take_in()
                if BASE in self._synced and self._synced >= self.bridge.documents.keys():
                    for room, update in await self._do(self._offer):
                        # Sent before our answer, it could arrive ahead of updates that it needs; the answer has it.
                        if room in self._answered:
                            await self._send(room, wire.Message(wire.SYNC, wire.UPDATE, update).encode())
                if self.problem:  # updates that were taken in or offered before the error may be lost
                    self.problem = ""
                    await self._renew()
            except BusyError:  # no error: a sync of a large clan holds the lock for long
                asyncio.get_running_loop().call_later(HEAL_S, self._wakeup.set)
            except FleetError as why:
                if self.problem != str(why):
                    self._log(str(why))
                self.problem = str(why)
            if BASE in self._synced and (self.bridge.is_large or self._is_clan_large()):
                for digit in await self._do(self.bridge.spread):
                    self._tasks.create_task(self._channel(digit))

    def _offer(self) -> Updates:
        # Checked right before the offer: a line that is written after `fleet pause` returned must not leave.
        self._is_paused = self._paused()
        return [] if self._is_paused else self.bridge.offer()

    async def _take_in(self) -> None:
        batch, self._inbox = self._inbox, []
        counts = self.bridge.counts
        arrived, healed = counts.arrived, counts.healed
        try:
            if batch:
                await self._do(self.bridge.receive, batch)
        finally:
            if counts.arrived > arrived:
                self._arrived()
        if self.bridge.must_renew:  # perhaps since an earlier batch, whose lines could not be written
            self._log("somebody else writes under this connection's client id; it takes another")
            await self._renew()
        if counts.healed > healed:
            await asyncio.sleep(self._rng.uniform(0, HEAL_S))
            if self._inbox:
                await self._take_in()

    async def _renew(self) -> None:
        self._synced.clear()
        await self._do(self.bridge.renew)
        for socket in list(self._sockets.values()):
            await socket.close()

    async def _send(self, room: str, message: bytes) -> None:
        """Send if there is a connection; unsent updates follow when the next connection exchanges state vectors."""
        async with self._sending[room]:
            if (socket := self._sockets.get(room)) is not None:
                with suppress(ConnectionClosed):
                    await socket.send(message)

    def _is_clan_large(self) -> bool:
        return any(state.get(LARGE) == 1 + len(DIGITS) for state in self._presence.states().values())

    def _paused(self) -> bool:
        workspace = self.bridge.workspace
        return bool(workspace.state.paused(workspace.wall()))

    def _note_online(self, found: "list[Online]") -> None:
        """Write to a file who is online, for commands that cannot wait for a server's answer."""
        workspace = self.bridge.workspace
        data = json.dumps({"at_ms": workspace.world.wall_ms(), "online": found}).encode()
        with suppress(FleetError):
            workspace.files.replace(workspace.local / ONLINE, data, is_durable=False)

    def _read_on(self) -> str:
        return self.bridge.workspace.state.get(f"on:{self._agent}")[: limits.ON_CHARS_MAX]

    async def _own_state(self) -> bytes:
        """Return the awareness update with our agent, replica, start and task."""
        bridge = self.bridge
        self._on = on = await self._do(self._read_on)
        self._presence.own = bridge.documents[BASE].client_id
        state = {
            "agent": self._agent,
            "replica": bridge.writer,
            "since": self._since,
            "on": "" if outgoing.gate_texts([on]) else on,
            **({LARGE: 1 + len(DIGITS)} if len(bridge.documents) > 1 or bridge.is_large else {}),
        }
        return self._presence.set(bridge.documents[BASE].client_id, state)

    # --- one room -------------------------------------------------------------------------------------------------

    async def _channel(self, room: str) -> None:
        """Keep a connection to one room: reconnect whenever it ends."""
        attempt = 0
        while True:
            if self._is_paused:
                await asyncio.sleep(POLL_S)
                continue
            opened_s = inf
            try:
                async with _connected(self._where, room, self.bridge.writer, self._key) as socket:
                    opened_s = asyncio.get_running_loop().time()
                    await self._converse(room, socket)
            except (OSError, WebSocketException, TruncatedError, BadUpdateError) as why:
                code = why.rcvd.code if isinstance(why, ConnectionClosed) and why.rcvd is not None else 0
                if code == RENEWED:
                    await self._renew()
                elif attempt == 0 and code not in _GOING:
                    self._log(f"live: {_reason(why)}; nothing is lost, it is tried again")
            # A connection that lasted resets the back-off, so that a restarted server is found soon. An attempt that
            # only hangs, for however long, does not reset it.
            was_well = asyncio.get_running_loop().time() - opened_s > OPEN_S
            attempt = 0 if was_well else attempt + 1
            await asyncio.sleep(self._rng.uniform(0, _pause_s_max(attempt)))

    async def _converse(self, room: str, socket: ClientConnection) -> None:
        self._sockets[room] = socket
        try:
            state = await self._do(self.bridge.documents[room].state)
            await socket.send(wire.Message(wire.SYNC, wire.STEP_1, state).encode())
            if room == BASE:
                await socket.send(wire.Message(wire.AWARENESS, 0, await self._own_state()).encode())
            async for data in socket:
                if isinstance(data, bytes):
                    await self._handle(room, socket, data)
        finally:
            if self._sockets.get(room) is socket:
                del self._sockets[room]
                self._answered.discard(room)

    async def _handle(self, room: str, socket: ClientConnection, data: bytes) -> None:
        message = wire.Message.decode(data)
        if message is None:
            return
        if message.kind == wire.AWARENESS:
            self._presence.take(message.payload)
            if self._is_clan_large() and len(self.bridge.documents) == 1:
                self._wakeup.set()
        elif message.kind == wire.QUERY_AWARENESS:
            await socket.send(wire.Message(wire.AWARENESS, 0, await self._own_state()).encode())
        elif message.step == wire.STEP_1:
            document = self.bridge.documents[room]
            lacking = await self._do(lambda: list(document.pieces_since(message.payload, wire.UPDATE_BYTES_MAX)))
            self._answered.add(room)
            async with self._sending[room]:  # nothing newer may come between: a writer's updates apply in order
                for each in wire.answer(lacking):
                    await socket.send(each)
        else:
            self._inbox.append((room, message.payload))
            if message.step == wire.STEP_2:
                self._synced.add(room)
            self._wakeup.set()


def _connected(where: Where, digit: str, replica: str, key: str = "") -> connect:
    """Return the connection to one of the clan's rooms, for a replica that writes, or "" for an observer."""
    return connect(
        where.of(digit, replica),
        additional_headers=where.headers | ({wire.KEY_HEADER: key} if key else {}),
        proxy=where.proxy,
        open_timeout=OPEN_S,
        close_timeout=1,
        max_size=MESSAGE_BYTES_MAX,
        compression=wire.COMPRESSION,
        logger=wire.quiet,
        user_agent_header=None,
    )


def _pause_s_max(attempt: int) -> float:
    """Return the longest wait after a number of failed attempts, seconds: it doubles up to a limit."""
    return min(BACKOFF_S_MAX, BACKOFF_S * 2.0 ** min(attempt, 16))  # without a limit the power overflows after hours


def _reason(why: BaseException) -> str:
    """Return a short description of a connection's error: the server's own, if it sent one."""
    if isinstance(why, InvalidStatus):
        body = (why.response.body or b"")[:200].decode("utf-8", "replace").strip()
        return f"the server answered {why.response.status_code}: {body}"
    return f"{type(why).__name__}: {str(why)[:200]}"


class Online(NamedTuple):
    """Client that is present: its agent and replica, since when, and its task."""

    agent: str
    replica: str
    since: str
    on: str


async def who(where: Where, wait_s: float = 2.0) -> list[Online]:
    """Return the clients in a room; raise ``RemoteUnavailable`` if its server does not let us in."""
    presence = Presence(asyncio.get_running_loop().time)
    try:
        async with _connected(where, BASE, "") as socket:
            await socket.send(wire.QUERY)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    async for data in socket:
                        message = wire.Message.decode(data) if isinstance(data, bytes) else None
                        if message is not None and message.kind == wire.AWARENESS:
                            presence.take(message.payload)
                            break
    except (OSError, WebSocketException, TruncatedError) as why:
        raise RemoteUnavailable(
            f"the live server did not answer ({_reason(why)}); nothing is lost. "
            "Is `fleet live serve`, or a sidecar with serve = true, running?"
        ) from why
    return _online(presence)


def _online(presence: Presence) -> list[Online]:
    found = set()
    for state in presence.states().values():
        agent, replica = state.get("agent"), state.get("replica")
        if not (isinstance(agent, str) and isinstance(replica, str) and names.is_replica(replica)):
            continue
        if names.is_agent(agent) and names.agent_of(replica) == agent:  # else it is shown as somebody else
            found.add(Online(agent, replica, _text(state.get("since")), _text(state.get("on"))))
    return sorted(found)


def _text(value: object) -> str:
    """Return the beginning of a text; "" for any other value, which could be nested too deeply to be shown."""
    return value[: limits.ON_CHARS_MAX].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
