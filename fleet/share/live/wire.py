"""Wire format of live sync over a WebSocket: the messages of Yjs (y-protocols, as y-websocket speaks it), and rows.

A message is a type and what it carries: 0 sync (0 what do you have, 1 here is what you lack, 2 an update), 1 awareness
(who is here), 3 who is here? A type that is not known is passed over: a newer client may speak of more.

A row is what one writer has to say of one name: key ``name|writer``, text the joined line in canonical form, on several
lines where it is too long for one. The name is an id, or, for a newer version's line, ``#`` and the line's hash.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from crdt import doc
from fleet.model import limits, names

SYNC, AWARENESS, QUERY_AWARENESS = 0, 1, 3
STEP_1, STEP_2, UPDATE = 0, 1, 2
KEY_HEADER = "Fleet-Key"
"""The header with what tells a replica from another that comes under its name."""
QUERY = bytes((QUERY_AWARENESS,))
"""The question who is here."""

RENEWED = 4009
"""The code with which a server closes a room that it has emptied: its visitors come back with new documents."""
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""A longer message is not read: its connection is closed."""
UPDATE_BYTES_MAX = 1024 * 1024
"""Rows are put in updates of about this size, so that a large room comes and goes in pieces."""
COMPRESSION = "deflate"
"""Lines repeat their keys: a third of the bytes are left. What a message unpacks to counts for the limit."""
STATE_BYTES_MAX = 4 * 1024
STATES_MAX = 1_000
NUMBER_MAX = 2**53 - 1
"""Clients and clocks beyond it no JavaScript client can read; and a clock has to have one after it."""
RENEWED_S = 15.0
STALE_S = 30.0
"""Silence after which a client counts as away; one that is here says so every ``RENEWED_S``."""

ROW_BYTES_MAX = 16 * limits.LINE_BYTES_MAX
"""Thousands of replicas may confirm one lesson; more than this, nobody has to say of one."""
KEY_CHARS_MAX = 80
CARRIED = "#"

_HEX = frozenset("0123456789abcdef")

quiet = logging.getLogger("fleet.live.socket")
"""For the WebSocket library, which tells of each odd client with a stack trace: what matters, we say ourselves."""
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


class Message(NamedTuple):
    """One message: its type, for a sync the step (else 0), and what it carries."""

    kind: int
    step: int
    payload: bytes

    @classmethod
    def decode(cls, data: bytes) -> "Message | None":
        """Read one message; None for one of a type that is not known.

        Raises:
            TruncatedError: it is none.
        """
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
    """Return the messages that answer a state vector, in order: all updates but the last come as ordinary ones."""
    *first, last = pieces
    return [*(Message(SYNC, UPDATE, piece).encode() for piece in first), Message(SYNC, STEP_2, last).encode()]


class _Known(NamedTuple):
    clock: int
    text: str
    seen_s: float


class Presence:
    """Awareness of those who are here: a state by client id, each with a clock, the higher clock winning.

    Args:
        now_s: a monotonic clock, seconds.

    Attributes:
        own: the client that nobody else can tell us anything of: ourselves; None for a server.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.own: int | None = None
        self._now_s = now_s
        self._known: dict[int, _Known] = {}

    def states(self) -> dict[int, dict[str, Any]]:
        """Return what is known of each that is here; what is no JSON object is nobody."""
        found = {client: _object(known.text) for client, known in sorted(self._known.items())}
        return {client: state for client, state in found.items() if state is not None}

    def clients(self) -> list[int]:
        """Return the ids of those that are here."""
        return sorted(client for client, known in self._known.items() if known.text != "null")

    def set(self, client: int, state: dict[str, Any] | None) -> bytes:
        """Say something of one client, or that it is away; return the update that tells others."""
        step = 2 if client == self.own else 1  # ahead of who took us for away meanwhile, one further
        clock = min(self._known[client].clock + step, NUMBER_MAX) if client in self._known else 0
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        self._known[client] = _Known(clock, text, self._now_s())
        return self.encode([client])

    def take(self, update: bytes) -> list[int]:
        """Take in what somebody says; return the clients of whom it was news.

        Raises:
            TruncatedError: it is no such update.
        """
        reader = doc.Reader(update)
        news: list[int] = []
        for _ in range(reader.number()):
            client, clock, raw = reader.number(), reader.number(), reader.chunk()
            if self._is_news(client, clock, raw):
                self._known[client] = _Known(clock, raw.decode("utf-8", "replace"), self._now_s())
                news.append(client)
        return news

    def _is_news(self, client: int, clock: int, raw: bytes) -> bool:
        if client == self.own:  # else somebody's largest clock would leave us none to say anything with
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
        """Take those for away that have not been heard of for long; return who they are."""
        until = self._now_s() - STALE_S
        stale = {client: known for client, known in self._known.items() if known.seen_s < until and client != self.own}
        gone = [client for client, known in stale.items() if known.text != "null"]
        for client in gone:
            self.set(client, None)
        for client in [client for client, known in stale.items() if known.seen_s < until - STALE_S]:
            del self._known[client]
        return gone

    def leave(self, clients: Collection[int]) -> bytes:
        """Take clients for away whose connection ended; return the update that tells others, b"" for nobody."""
        here = [client for client in clients if client in self._known and self._known[client].text != "null"]
        for client in here:
            self.set(client, None)
        return self.encode(here) if here else b""

    def encode(self, clients: Iterable[int]) -> bytes:
        """Return an update that says what is known of some clients."""
        told = [(client, self._known[client]) for client in clients if client in self._known]
        found = [doc.encode(len(told))]
        for client, known in told:
            text = doc.encode_bytes(known.text.encode())
            found += [doc.encode(client), doc.encode(known.clock), text]
        return b"".join(found)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# --- rows -----------------------------------------------------------------------------------------------------------


def is_key_of(key: str, writer: str) -> bool:
    """Tell whether a key is one under which this writer may say something."""
    name, whose = doc.parts_of(key)
    return bool(writer) and whose == writer and len(key) <= KEY_CHARS_MAX and _is_name(name)


def _is_name(name: str) -> bool:
    return names.is_id(name) or (name.startswith(CARRIED) and len(name) == 17 and _HEX.issuperset(name[1:]))


def is_text(text: str | None) -> bool:
    """Tell whether a value can be a row's at all: text, and not too much of it."""
    return text is not None and text != doc.NOT_TEXT and len(text) <= ROW_BYTES_MAX
