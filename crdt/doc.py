"""A shared document: rows of text by key, carried by Yjs, of which nothing but the transport is used.

Yjs settles two writes to one key by client id, whatever their time, so nobody may ever need it to: a key ends in its
writer's name, and only that writer sets it (Nicolaescu et al., "YATA", 2016, is what then merges the rest). What the
rows say is the reader's to join. Values are text, so that no reader's numbers come between.

A document is made anew at each start, under a client id of its own, and never stored: two that write under one client
id each take the other's rows for rows they have, and differ for ever.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pycrdt import Doc, Map, TransactionEvent, merge_updates

from crdt import lib0

ROOT = "lines"
"""The name of the map, for any Yjs client that wants to look on."""
CLIENT_ID_BITS = 32
"""As JavaScript's Yjs draws them; a larger number than 53 bits it could not read."""
_SEPARATOR = "|"
_PANIC = "PanicException"
"""How the library ends where it did not foresee something. Known by name alone, and no ``Exception``."""


class BadUpdateError(ValueError):
    """Bytes that are no update, or one that leads nowhere. The document may hold a part of it, and still works.

    Attributes:
        changes: the keys whose rows are other ones now all the same.
        is_broken: the document holds it, and nobody can tell what it changed: it must be given up for a new one.
    """

    def __init__(self, message: str, changes: "Changes | None" = None, *, is_broken: bool = False) -> None:
        super().__init__(message)
        self.changes = changes or {}
        self.is_broken = is_broken


class Change(NamedTuple):
    """What one key held before and holds now: text; None for no row; ``NOT_TEXT`` for anything else."""

    before: str | None
    after: str | None


NOT_TEXT = "\0"
"""Stands for a value that is no text: a number, bytes, another shared type. No row of ours has a zero character."""

Changes = dict[str, Change]


class Applied(NamedTuple):
    """What an update did.

    Attributes:
        changes: the keys whose rows are other ones now.
        update: what of it was news, for others; b"" for nothing.
        is_cloned: somebody else writes under our client id: this document must be given up for a new one.
    """

    changes: Changes
    update: bytes
    is_cloned: bool


def key_of(name: str, writer: str) -> str:
    """Return the key under which a writer says something of a name."""
    return f"{name}{_SEPARATOR}{writer}"


def parts_of(key: str) -> tuple[str, str]:
    """Return (name, writer) of a key; of one without a writer, ("", "")."""
    name, separator, writer = key.rpartition(_SEPARATOR)
    return (name, writer) if separator else ("", "")


class Document:
    """One replica's copy of a shared document.

    Args:
        client_id: drawn at random for this one start, ``CLIENT_ID_BITS`` long.
    """

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id
        self._doc = Doc[Map[object]](client_id=client_id, allow_multithreading=True)
        self._map: Map[object] = self._doc.get(ROOT, type=Map)
        self._changes: Changes = {}
        self._updates: list[bytes] = []
        # Held, since a subscription ends with its handle.
        self._subscriptions = (self._doc.observe(self._note_update), self._map.observe(self._note_changes))
        self._is_filling = False

    def _note_update(self, event: TransactionEvent) -> None:
        self._updates.append(event.update)

    def _note_changes(self, event: object) -> None:
        if self._is_filling:
            return
        for key, change in event.keys.items():  # type: ignore[attr-defined]
            self._changes[key] = Change(_text(change, "oldValue"), _text(change, "newValue"))

    def get(self, key: str) -> str | None:
        """Return a row's text, ``NOT_TEXT`` for a value of another type, or None."""
        return _as_text(self._map[key]) if key in self._map else None

    def rows(self) -> dict[str, str]:
        """Return all rows."""
        return {key: _as_text(value) for key, value in self._map.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._map.keys()))

    def __len__(self) -> int:
        return len(self._map)

    def put(self, rows: Mapping[str, str | None]) -> bytes:
        """Set rows, or take away those that are None; return the update that tells others, b"" for no change."""

        def write() -> None:
            for key, text in rows.items():
                if text is not None:
                    self._map[key] = text
                elif key in self._map:
                    del self._map[key]

        return self._during(write)[1]

    def state(self) -> bytes:
        """Return the state vector: what is here, in short."""
        return self._doc.get_state()

    def since(self, state: bytes = b"\0") -> bytes:
        """Return an update with all that is here and that a state vector lacks.

        Raises:
            BadUpdateError: it is no state vector.
        """
        try:
            lib0.check_state(state)
            return self._doc.get_update(state)
        except Exception as why:
            raise BadUpdateError(f"no state vector: {why}") from why

    def pieces_since(self, state: bytes, bytes_max: int) -> Iterator[bytes]:
        """Yield what ``since`` returns in updates of about a size, to be taken in in this order.

        Raises:
            BadUpdateError: it is no state vector.
        """
        return lib0.pieces(self.since(state), bytes_max)

    def apply(self, update: bytes) -> Applied:
        """Take in an update: any order, any number of times.

        Raises:
            BadUpdateError: it is none, or one that the library could not live through.
        """
        try:
            lib0.check(update)
        except lib0.TruncatedError as why:
            raise BadUpdateError(f"no update: {why}") from why
        clock = _clocks(self.state()).get(self.client_id, 0)
        is_in = False

        def take_in() -> None:
            nonlocal is_in
            self._doc.apply_update(update)
            is_in = True

        # All that an empty document gets is new. To be told of it row by row takes as much memory again as the rows.
        self._is_filling = not len(self)
        try:
            changes, news = self._during(take_in)
        except BaseException as why:
            if not isinstance(why, Exception) and type(why).__name__ != _PANIC:
                raise
            changes, self._changes, self._updates = self._changes or self._filled(), {}, []
            raise BadUpdateError(f"no update: {str(why)[:200]}", changes, is_broken=is_in) from why
        else:
            changes = changes or self._filled()
        finally:
            self._is_filling = False
        return Applied(changes, news, _clocks(self.state()).get(self.client_id, 0) > clock)

    def _filled(self) -> Changes:
        return {key: Change(None, _as_text(value)) for key, value in self._map.items()} if self._is_filling else {}

    def _during(self, act: Callable[[], None]) -> tuple[Changes, bytes]:
        """Act in one transaction; return what changed, and the update of it."""
        with self._doc.transaction():
            act()
        changes, updates, self._changes, self._updates = self._changes, self._updates, {}, []
        return changes, _merged(updates)


def _merged(updates: list[bytes]) -> bytes:
    """Return several updates as one; b"" for none."""
    return b"" if not updates else updates[0] if len(updates) == 1 else bytes(merge_updates(*updates))


def _clocks(state: bytes) -> dict[int, int]:
    """Return how far each client's writes go, from a state vector.

    Raises:
        TruncatedError: it is none.
    """
    count, at = lib0.decode(state)
    found: dict[int, int] = {}
    for _ in range(count):
        client, at = lib0.decode(state, at)
        found[client], at = lib0.decode(state, at)
    return found


def _text(change: Mapping[str, object], which: str) -> str | None:
    if which not in change:
        return None
    return _as_text(change[which])


def _as_text(value: object) -> str:
    return value if isinstance(value, str) and NOT_TEXT not in value else NOT_TEXT
