"""Shared document: rows of text by key, synchronised by Yjs, whose conflict resolution is not used.

Yjs resolves two concurrent writes to one key by client id, not by time. So two clients must never write one key: a key
ends in its writer's name, and only that writer sets it. Yjs merges rows of different keys (Nicolaescu et al., "YATA",
2016); whoever reads the rows joins them. Values are text, so that no library changes the form of a number.

A document is never stored. Each start creates a new one, with a new client id: two documents with the same client id
would take each other's rows for their own, and never converge.

The library applies some updates recursively, some in quadratic time: a deeply nested value ends the process (measured
with pycrdt 0.14: 20,000 nested lists, 40 KB), and many concurrent writes to one key take minutes. So each update is
parsed first, without recursion, and refused if no document of rows could produce it. The parser knows where each write
begins, so it also splits a large state into messages. The format is version 1, as Yjs writes it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pycrdt import Doc, Map, write_message, write_var_uint

ROOT = "lines"
"""Name of the map, for any Yjs client that wants to watch."""
CLIENT_ID_BITS = 32
"""Size of a client id, as in JavaScript's Yjs, which reads at most 53 bits."""
_SEPARATOR = "|"
_PANIC = "PanicException"
"""Name of the library's panic, which is no ``Exception``."""


class BadUpdateError(ValueError):
    """Bytes that are no update, or an update that is refused. The document still works, unless ``is_broken``.

    Attributes:
        changes: the rows that changed nevertheless, by key.
        is_broken: True if the update was applied, with unknown changes: the document must be replaced by a new one.
    """

    def __init__(self, message: str, changes: "Changes | None" = None, *, is_broken: bool = False) -> None:
        super().__init__(message)
        self.changes = changes or {}
        self.is_broken = is_broken


class Change(NamedTuple):
    """Change of one key, its value before and after: text; None for no row; ``NOT_TEXT`` for anything else."""

    before: str | None
    after: str | None


NOT_TEXT = "\0"
"""Stands for any value that is not text: a number, bytes, another shared type. No row contains a zero character."""

Changes = dict[str, Change]


class Applied(NamedTuple):
    """Effect of an update.

    Attributes:
        changes: the rows that changed, by key.
        update: the part of the update that was new here, to be passed on; b"" for none.
        is_cloned: True if another document writes under this client id: this one must be replaced.
    """

    changes: Changes
    update: bytes
    is_cloned: bool


def key_of(name: str, writer: str) -> str:
    """Return the key of a writer's row of a name."""
    return f"{name}{_SEPARATOR}{writer}"


def parts_of(key: str) -> tuple[str, str]:
    """Return (name, writer) of a key; ("", "") for one without a writer."""
    name, separator, writer = key.rpartition(_SEPARATOR)
    return (name, writer) if separator else ("", "")


class Document:
    """One replica's copy of a shared document. Its client id is random, ``CLIENT_ID_BITS`` long, never used before."""

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id
        self._doc = Doc[Map[object]](client_id=client_id, allow_multithreading=True)
        self._map: Map[object] = self._doc.get(ROOT, type=Map)
        self._changes: Changes = {}
        self._updates: list[bytes] = []
        # Both handles are stored, since a subscription ends when its handle is deleted.
        updates = self._doc.observe(lambda event: self._updates.append(event.update))
        self._subscriptions = (updates, self._map.observe(self._note_changes))

    def _note_changes(self, event: object) -> None:
        for key, change in event.keys.items():  # type: ignore[attr-defined]
            self._changes[key] = Change(_text(change, "oldValue"), _text(change, "newValue"))

    def get(self, key: str) -> str | None:
        """Return a row's text, ``NOT_TEXT`` for a value of another type, or None."""
        return _as_text(self._map[key]) if key in self._map else None

    def rows(self) -> dict[str, str]:
        """Return all rows."""
        return {key: _as_text(value) for key, value in self._map.items()}

    def __len__(self) -> int:
        return len(self._map)

    def put(self, rows: Mapping[str, str | None]) -> bytes:
        """Set rows, or delete those that are None; return the update for others, b"" for no change."""

        def write() -> None:
            for key, text in rows.items():
                if text is not None:
                    self._map[key] = text
                elif key in self._map:
                    del self._map[key]

        return self._during(write)[1]

    def state(self) -> bytes:
        """Return the state vector."""
        return self._doc.get_state()

    def since(self, state: bytes = b"\0") -> bytes:
        """Return an update with all that a state vector lacks; raise ``BadUpdateError`` for an invalid state vector."""
        try:
            _check_state(state)
            return self._doc.get_update(state)
        except Exception as why:
            raise BadUpdateError(f"no state vector: {why}") from why

    def pieces_since(self, state: bytes, bytes_max: int) -> Iterator[bytes]:
        """Yield the update of ``since`` as several updates of about ``bytes_max`` each, to be applied in this order."""
        return _pieces(self.since(state), bytes_max)

    def apply(self, update: bytes) -> Applied:
        """Apply an update, in any order, any number of times; an invalid or harmful one raises ``BadUpdateError``."""
        try:
            _check(update)
        except TruncatedError as why:
            raise BadUpdateError(f"no update: {why}") from why
        clock = _clocks(self.state()).get(self.client_id, 0)
        is_applied = False

        def take_in() -> None:
            nonlocal is_applied
            self._doc.apply_update(update)
            is_applied = True

        try:
            changes, new = self._during(take_in)
        except BaseException as why:
            if not isinstance(why, Exception) and type(why).__name__ != _PANIC:
                raise
            changes, self._changes, self._updates = self._changes, {}, []
            raise BadUpdateError(f"no update: {str(why)[:200]}", changes, is_broken=is_applied) from why
        return Applied(changes, new, _clocks(self.state()).get(self.client_id, 0) > clock)

    def _during(self, act: Callable[[], None]) -> tuple[Changes, bytes]:
        """Act in one transaction; return its changes and its update, b"" for none."""
        with self._doc.transaction():
            act()
        changes, updates, self._changes, self._updates = self._changes, self._updates, {}, []
        return changes, next(iter(updates), b"")


def _clocks(state: bytes) -> dict[int, int]:
    """Return the clock of each client in a state vector."""
    reader = Reader(state)
    return {reader.number(): reader.number() for _ in range(reader.number())}


def _text(change: Mapping[str, object], which: str) -> str | None:
    return _as_text(change[which]) if which in change else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) and NOT_TEXT not in value else NOT_TEXT


# --- lib0, the encoding of Yjs: numbers of variable length, seven bits a byte, lowest first; and updates -------------

_BITS_MAX = 63  # no honest count is larger
DEPTH_MAX = 32
"""Limit of nested lists and maps in one value."""
STRUCTS_MAX = 300_000
"""Limit of writes in one update: a write of one or two bytes costs a few microseconds."""
CLIENTS_MAX = 20_000
"""Limit of clients with writes in one update."""
RIVALS_MAX = 10_000
"""Limit of concurrent writes at one place in one update."""
NESTED_MAX = 10_000
"""Limit of nested shared types in one update."""

_GC, _DELETED, _JSON, _BINARY, _STRING, _EMBED, _FORMAT, _TYPE, _ANY, _DOC, _SKIP = range(11)
_HAS_ORIGIN, _HAS_RIGHT, _HAS_SUB = 0x80, 0x40, 0x20
_NAMED_TYPES = (3, 5)
_FIXED = {127: 0, 126: 0, 121: 0, 120: 0, 124: 4, 123: 8, 122: 8}
_INTEGER, _TEXT, _MAP, _LIST, _BYTES = 125, 119, 118, 117, 116

_Place = tuple[object, ...]


class TruncatedError(ValueError):
    """The bytes end too early, are invalid, or exceed a limit."""


encode = write_var_uint
"""Encoding of a number that is not negative."""
encode_bytes = write_message
"""Encoding of bytes, with their length before them. Reading is ours: the library's has no limits."""


class Reader:
    """Reader of the numbers and bytes of a message, from ``position`` on. Its end raises ``TruncatedError``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def byte(self) -> int:
        """Read one byte."""
        if self.position >= len(self._data):
            raise TruncatedError("it ends too early")
        self.position += 1
        return self._data[self.position - 1]

    def number(self) -> int:
        """Read a number."""
        data, position, number, shift = self._data, self.position, 0, 0
        while position < len(data) and shift < _BITS_MAX:
            byte = data[position]
            number |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                self.position = position
                return number
        raise TruncatedError("no whole number here")

    def chunk(self) -> bytes:
        """Read bytes with their length before them."""
        length = self.number()
        if self.position + length > len(self._data):
            raise TruncatedError("fewer bytes than announced")
        self.position += length
        return self._data[self.position - length : self.position]

    def counted(self, bytes_each: int) -> int:
        """Read a count of items that take at least ``bytes_each`` each; raise ``TruncatedError`` if they cannot fit."""
        count = self.number()
        if count * bytes_each > len(self._data) - self.position:
            raise TruncatedError("more is announced than there are bytes")
        return count


class _Struct(NamedTuple):
    """One write: its bytes, the number of clocks it takes, and the writes (client, clock) that it refers to."""

    start: int
    end: int
    length: int
    after: tuple[tuple[int, int], ...]


class _Run(NamedTuple):
    """Consecutive writes of one client, the first of them at ``clock``."""

    client: int
    clock: int
    structs: list[_Struct]


def _check(update: bytes) -> None:
    """Check an update; raise ``TruncatedError`` for one that must not be applied."""
    walk = _Walk(update)
    walk.runs(is_kept=False)
    walk.deletions()


def _check_state(state: bytes) -> None:
    """Check a state vector: the library allocates as many clients as it announces, whatever follows."""
    reader = Reader(state)
    count = reader.counted(2)
    if count > CLIENTS_MAX:
        raise TruncatedError("a state of too many clients")
    for _ in range(2 * count):
        reader.number()


def _pieces(update: bytes, bytes_max: int) -> Iterator[bytes]:
    """Yield an update as several of about ``bytes_max`` each, to be applied in this order. A small one stays whole."""
    if len(update) <= bytes_max:
        yield update
        return
    walk = _Walk(update)
    runs = walk.runs()
    deleted = update[walk.position :]
    piece: list[bytes] = []
    size = 0
    for client, clock, structs in _in_order(runs):
        index, known = 0, clock
        while index < len(structs):
            begin, first = index, known
            while index < len(structs) and (index == begin or size < bytes_max):
                size += structs[index].end - structs[index].start
                known += structs[index].length
                index += 1
            data = update[structs[begin].start : structs[index - 1].end]
            piece.append(b"".join(map(encode, (index - begin, client, first))) + data)
            if size >= bytes_max:
                yield _update(piece, b"\0")
                piece, size = [], 0
    yield _update(piece, deleted)  # last, since deletions refer to writes


def _update(runs: list[bytes], deleted: bytes) -> bytes:
    return encode(len(runs)) + b"".join(runs) + deleted


def _in_order(runs: list[_Run]) -> Iterator[_Run]:
    """Yield the runs in pieces, in topological order: no write refers to a later one."""
    ends = {run.client: run.clock + sum(struct.length for struct in run.structs) for run in runs}
    done = {run.client: run.clock for run in runs}
    pending = {run.client: (run, 0) for run in runs}
    while pending:
        is_stuck = True
        for client, (run, begin) in list(pending.items()):
            index, clock = begin, done[client]
            while index < len(run.structs) and all(
                done.get(other, known + 1) > known or ends[other] <= known or other == client
                for other, known in run.structs[index].after
            ):
                clock += run.structs[index].length
                index += 1
            if index > begin:
                yield _Run(client, done[client], run.structs[begin:index])
                done[client], is_stuck = clock, False
            if index == len(run.structs):
                del pending[client]
            else:
                pending[client] = (run, index)
        if is_stuck:  # a cycle, which no document has: any order will do
            yield from (_Run(client, done[client], run.structs[index:]) for client, (run, index) in pending.items())
            return


class _Walk(Reader):
    """Parser of an update: call ``runs``, then ``deletions``. A harmful update raises ``TruncatedError``."""

    def __init__(self, update: bytes) -> None:
        super().__init__(update)
        self._rivals: Counter[_Place] = Counter()
        self._nested = self._structs = 0

    def runs(self, *, is_kept: bool = True) -> list[_Run]:
        """Return the writes of each client; unless ``is_kept``, only check them against the limits."""
        count = self.number()
        if count > CLIENTS_MAX and not is_kept:
            raise TruncatedError("writes of too many clients")
        return [self._run(is_kept=is_kept) for _ in range(count)]

    def deletions(self) -> None:
        """Skip the deletions."""
        for _ in range(self.counted(2)):
            self.number()
            for _ in range(self.counted(2)):
                self.number(), self.number()

    def _run(self, *, is_kept: bool) -> _Run:
        count, client, clock = self.number(), self.number(), self.number()
        self._structs += count
        if self._structs > STRUCTS_MAX and not is_kept:
            raise TruncatedError("too many writes")
        structs = []
        for _ in range(count):
            struct = self._struct()
            if is_kept:
                structs.append(struct)
        return _Run(client, clock, structs)

    def _struct(self) -> _Struct:
        start = self.position
        info = self.byte()
        kind = info & 0x1F
        after: list[tuple[int, int]] = []
        if kind in (_GC, _SKIP):
            length = self.number()
        else:
            after = self._place(info, kind)
            length = self._content(kind)
        return _Struct(start, self.position, length, tuple(after))

    def _place(self, info: int, kind: int) -> list[tuple[int, int]]:
        """Skip the place of a write; return the writes that it refers to."""
        after = [(self.number(), self.number()) for flag in (_HAS_ORIGIN, _HAS_RIGHT) if info & flag]
        is_in_root = False
        if after:
            place: _Place = after[0]
        else:
            is_in_root = self.number() == 1
            if is_in_root:
                place = (self.chunk(),)
            else:
                after = [(self.number(), self.number())]
                place = (*after[0], "")
            if info & _HAS_SUB:
                place = (*place, self.chunk())
        self._rivals[place] += 1
        if self._rivals[place] > RIVALS_MAX:
            raise TruncatedError("too many writes at one place")
        if kind == _TYPE and not is_in_root:
            self._nested += 1
            if self._nested > NESTED_MAX:
                raise TruncatedError("too many shared types in one another")
        return after

    def _content(self, kind: int) -> int:
        """Skip the content of a write; return the number of clocks it takes."""
        if kind == _DELETED:
            return self.number()
        if kind == _STRING:
            return len(self.chunk().decode("utf-8", "replace").encode("utf-16-le")) // 2
        if kind in (_JSON, _ANY):
            count = self.number()
            for _ in range(count):
                self.chunk() if kind == _JSON else self._any()
            return count
        if kind in (_BINARY, _EMBED):
            self.chunk()
        elif kind == _FORMAT:
            self.chunk(), self.chunk()
        elif kind == _TYPE:
            if self.number() in _NAMED_TYPES:
                self.chunk()
        elif kind == _DOC:
            self.chunk()
            self._any()
        else:
            raise TruncatedError("a kind of write that is not known")
        return 1

    def _any(self) -> None:
        """Skip one value, with the values nested in it."""
        open_: list[list[int]] = [[1, 0]]  # for each open list or map: values left, whether they have keys
        while open_:
            if not open_[-1][0]:
                open_.pop()
                continue
            open_[-1][0] -= 1
            if open_[-1][1]:
                self.chunk()
            kind = self.byte()
            if kind in (_TEXT, _BYTES):
                self.chunk()
            elif kind == _INTEGER:
                while self.byte() & 0x80:
                    pass
            elif kind in (_LIST, _MAP):
                if len(open_) > DEPTH_MAX:
                    raise TruncatedError("a value that is nested too deeply")
                open_.append([self.number(), kind == _MAP])
            elif kind in _FIXED:
                self.position += _FIXED[kind]
            else:
                raise TruncatedError("a kind of value that is not known")
