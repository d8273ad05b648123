"""Wire format of live sync over a WebSocket: the messages of Yjs (y-protocols, as y-websocket speaks it), and rows.

A message is a type and a payload: 0 sync (step 0 state vector, 1 answer, 2 update), 1 awareness, 3 query of awareness.
An unknown type is passed over: a newer client may send it.

A row is one writer's record of one name: its key is ``name|writer``, its text the joined line in canonical form, on
several lines where it is too long for one. The name is an id, or, for a newer version's line, ``#`` and its hash.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from crdt import doc
from crdt.doc import TruncatedError
from fleet.model import limits, names

SYNC, AWARENESS, QUERY_AWARENESS = 0, 1, 3
STEP_1, STEP_2, UPDATE = 0, 1, 2
KEY_HEADER = "Fleet-Key"
"""Header with a folder's key, by which a server tells a replica from another one with the same name."""
QUERY = bytes((QUERY_AWARENESS,))
"""Message that queries awareness."""

RENEWED = 4009
"""Code with which a server closes a room that it has emptied, so that clients come back with new documents."""
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""A longer message closes the connection."""
UPDATE_BYTES_MAX = 1024 * 1024
"""Approximate size of an update: a large room travels in several."""
COMPRESSION = "deflate"
"""Compression of messages: since lines repeat their keys, a third of the bytes is left. Limits are on the original."""
STATE_BYTES_MAX = 4 * 1024
STATES_MAX = 1_000
NUMBER_MAX = 2**53 - 1
"""Limit of client ids and clocks: JavaScript reads no larger integers."""
RENEWED_S = 15.0
STALE_S = 30.0
"""Silence after which a client counts as away; a client renews its state every ``RENEWED_S``."""

ROW_BYTES_MAX = 16 * limits.LINE_BYTES_MAX
"""Limit of a row: thousands of replicas may confirm one lesson."""
KEY_CHARS_MAX = 80
CARRIED = "#"

_HEX = frozenset("0123456789abcdef")

quiet = logging.getLogger("fleet.live.socket")
"""Logger for the WebSocket library, which logs a stack trace for each odd client; we log what matters."""
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


class Message(NamedTuple):
    """One message: its type, the step of a sync (else 0), and the payload."""

    kind: int
    step: int
    payload: bytes

    @classmethod
    def decode(cls, data: bytes) -> "Message | None":
        """Return the message in some bytes, None for an unknown type; raise ``TruncatedError`` for invalid bytes."""
        reader = doc.Reader(data)
        kind = reader.number()
        if kind == QUERY_AWARENESS:
            return cls(kind, 0, b"")
        if kind == AWARENESS:
            return cls(kind, 0, reader.chunk())
        step = reader.number() if kind == SYNC else UPDATE + 1
        return cls(kind, step, reader.chunk()) if step <= UPDATE else None

    def encode(self) -> bytes:
        """Return its bytes."""
        return bytes((SYNC, self.step) if self.kind == SYNC else (self.kind,)) + doc.encode_bytes(self.payload)


def answer(pieces: Iterable[bytes]) -> list[bytes]:
    """Return the messages that answer a state vector, in order: the last piece as the answer, the others as updates."""
    *first, last = pieces
    return [*(Message(SYNC, UPDATE, piece).encode() for piece in first), Message(SYNC, STEP_2, last).encode()]


class _Known(NamedTuple):
    clock: int
    text: str
    updated_s: float


class Presence:
    """Awareness: a state by client id, each with a clock; the state with the higher clock wins.

    ``own``: our own client id, whose state nobody else can set; None for a server.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.own: int | None = None
        self._now_s = now_s
        self._known: dict[int, _Known] = {}

    def states(self) -> dict[int, dict[str, Any]]:
        """Return the states that are JSON objects, by client."""
        found = {client: _object(known.text) for client, known in sorted(self._known.items())}
        return {client: state for client, state in found.items() if state is not None}

    def clients(self) -> list[int]:
        """Return the ids of the clients that are present."""
        return sorted(client for client, known in self._known.items() if known.text != "null")

    def set(self, client: int, state: dict[str, Any] | None) -> bytes:
        """Set the state of a client, None for away; return the update for others."""
        step = 2 if client == self.own else 1  # others may have set us away meanwhile, which takes the next clock
        clock = min(self._known[client].clock + step, NUMBER_MAX) if client in self._known else 0
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        self._known[client] = _Known(clock, text, self._now_s())
        return self.encode([client])

    def take(self, update: bytes, *, replica: str | None = None, others: Collection[int] = ()) -> list[int]:
        """Apply an update; return the clients whose state changed.

        ``replica``: the sender, which may report only its own presence; None if the server has checked that.
        ``others``: clients of other senders, whose states in the update are ignored.

        Raises ``TruncatedError`` for an invalid update, and for more states than ``STATES_MAX``.
        """
        reader = doc.Reader(update)
        if (number := reader.number()) > STATES_MAX:
            raise TruncatedError(f"{number} states are more than {STATES_MAX}")
        changed = set[int]()  # one update may name a client several times
        for _ in range(number):
            client, clock, raw = reader.number(), reader.number(), reader.chunk()
            if client in others or not self._is_news(client, clock, raw):
                continue
            text = raw.decode("utf-8", "replace")
            if replica is None or (_object(text) or {}).get("replica", replica) == replica:
                self._known[client] = _Known(clock, text, self._now_s())
                changed.add(client)
        return sorted(changed)

    def _is_news(self, client: int, clock: int, raw: bytes) -> bool:
        if client == self.own:  # else somebody could set our clock to its maximum
            return False
        known = self._known.get(client)
        if (
            len(raw) > STATE_BYTES_MAX
            or max(client, clock) >= NUMBER_MAX
            or (known is None and len(self._known) >= STATES_MAX)
        ):
            return False
        return known is None or clock > known.clock or (clock == known.clock and raw == b"null" != known.text.encode())

    def forget_stale(self) -> list[int]:
        """Set those clients away that have not renewed their state for ``STALE_S``; return them."""
        until = self._now_s() - STALE_S
        silent = {client: known.updated_s for client, known in self._known.items() if client != self.own}
        gone = [client for client in self.clients() if silent.get(client, until) < until]
        for client in gone:
            self.set(client, None)
        for client in (client for client, updated_s in silent.items() if updated_s < until - STALE_S):
            del self._known[client]
        return gone

    def leave(self, clients: Collection[int]) -> bytes:
        """Set those clients away whose connection ended; return the update for others, b"" for none."""
        here = [client for client in self.clients() if client in clients]
        for client in here:
            self.set(client, None)
        return self.encode(here) if here else b""

    def encode(self, clients: Iterable[int]) -> bytes:
        """Return an update with the states of some clients."""
        states = [(client, self._known[client]) for client in clients if client in self._known]
        parts = [doc.encode(len(states))]
        for client, known in states:
            parts += [doc.encode(client), doc.encode(known.clock), doc.encode_bytes(known.text.encode())]
        return b"".join(parts)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# --- rows -----------------------------------------------------------------------------------------------------------


def is_key_of(key: str, writer: str) -> bool:
    """Return whether a key is one that this writer may use."""
    name, whose = doc.parts_of(key)
    is_name = names.is_id(name) or (name.startswith(CARRIED) and len(name) == 17 and _HEX.issuperset(name[1:]))
    return is_name and bool(writer) and whose == writer and len(key) <= KEY_CHARS_MAX


def is_text(text: str | None) -> bool:
    """Return whether a value can be a row: text within the limit."""
    return text is not None and text != doc.NOT_TEXT and len(text) <= ROW_BYTES_MAX
