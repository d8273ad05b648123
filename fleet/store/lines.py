"""Parser of line files: bytes to entries, block by block, so that memory does not grow with a file or a line.

Files may have BOMs, CRLF, torn last lines, binary rubbish and conflict markers. A bad line is refused with its reason,
and stored in quarantine; both sides of a conflict are read; the good lines of a file are always joined.

``JsonLines`` are append-only files of an agent's own, with a JSON line for each decision, cost or note.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fleet.model import discovery, limits, line, names
from fleet.model.discovery import Discovery
from fleet.model.errors import DiskError
from fleet.model.line import BadLineError, Carried, Line, Refused
from fleet.store.files import Files
from fleet.text.screening import screen

Entry = Line | Discovery | Carried
T = TypeVar("T")

_MARKERS = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")
_BOM = b"\xef\xbb\xbf"


class Kind(msgspec.Struct, frozen=True):
    """One of the two logs that a clan shares: where it lies, and how its lines are read and written."""

    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]

    @property
    def edition(self) -> str:
        """Path of the joined file."""
        return f"{self.name}.jsonl"

    def shard(self, replica: str) -> str:
        """Path of one replica's own lines."""
        return f"{self.name}.d/{replica}.jsonl"

    @classmethod
    def of(cls, path: str) -> "Kind | None":
        """Return the kind of log that a path of the clan's tree belongs to."""
        for kind in KINDS:
            folder, _, name = path.rpartition("/")
            is_shard = folder == f"{kind.name}.d" and name.endswith(".jsonl")
            if path == kind.edition or (is_shard and names.is_replica(name.removesuffix(".jsonl"))):
                return kind
        return None

    @classmethod
    def of_id(cls, id_: str) -> "Kind":
        """Return the kind of log that the lines of an id belong to."""
        return DISCOVERIES if id_.startswith(discovery.PREFIX) else PATTERNS


PATTERNS = Kind("patterns", line.decode, line.encode)
DISCOVERIES = Kind("discoveries", discovery.decode, discovery.encode)
KINDS = (PATTERNS, DISCOVERIES)


class LineReader(msgspec.Struct):
    """Reader of lines, which also collects the bad ones.

    Attributes:
        refused: the first of the lines that cannot be used, up to a limit of memory.
        markers: number of conflict-marker lines, which are skipped, by the file's path.
    """

    refused: list[Refused] = []
    markers: dict[str, int] = {}
    _bytes: int = 0

    def refuse(self, refused: Refused) -> None:
        """Keep a refused line, as far as memory allows: a file full of them must not fill it."""
        if len(self.refused) < limits.REFUSED_KEPT_MAX and self._bytes < limits.REFUSED_BYTES_MAX:
            self.refused.append(refused)
            self._bytes += len(refused.raw)

    def raw_lines(self, data: Iterable[bytes], path: str, first: int = 1) -> Iterator[tuple[int, bytes]]:
        """Yield (number, bytes) of each line that is neither blank, too long, nor a conflict marker."""
        number = first - 1
        for block in _blocks(data):
            if isinstance(block, _Oversize):
                number += 1
                reason = f"longer than {limits.LINE_BYTES_MAX} bytes ({block.length})"
                self.refuse(Refused(path, number, reason, block.head))
                continue
            if not block.strip():
                number += block.count(b"\n") + 1
                continue
            for raw in block.split(b"\n"):
                number += 1
                if raw.startswith(b"{"):
                    yield number, raw
                elif raw.startswith(_MARKERS):
                    self.markers[path] = self.markers.get(path, 0) + 1
                elif raw.strip():
                    # `cat` leaves a BOM between two files; bytes that are no line of ours stay as they are
                    yield number, raw.removeprefix(_BOM) if raw.startswith(_BOM + b'{"') else raw

    def entry(self, kind: Kind, raw: bytes, path: str, number: int) -> Entry | None:
        """Return the entry that one line holds; None for one that is refused, which is noted."""
        try:
            entry: Entry = kind.decode(raw)
        except BadLineError as why:
            self.refuse(Refused(path, number, str(why), raw[: limits.LINE_BYTES_MAX]))
            return None
        return entry

    def entries(self, kind: Kind, data: Iterable[bytes], path: str) -> Iterator[tuple[bytes, Entry]]:
        """Yield (raw line, entry) of each good line; refused ones and conflict markers are noted."""
        for number, raw in self.raw_lines(data, path):
            entry = self.entry(kind, raw, path, number)
            if entry is not None:
                yield raw, entry


def lesson_lines(data: Iterable[bytes]) -> Iterator[Line]:
    """Yield the good lines of lessons, without those of newer versions."""
    for _, entry in LineReader().entries(PATTERNS, data, ""):
        if isinstance(entry, Line):
            yield entry


def raws_of(entry: Entry) -> list[bytes]:
    """Return the lines of an entry; a record that is too long for one line has several."""
    if isinstance(entry, Line):
        return line.split(entry)
    return [entry.raw if isinstance(entry, Carried) else discovery.encode(entry)]


class _Oversize(msgspec.Struct, frozen=True):
    """A line beyond the limit: its length, and its first bytes."""

    length: int
    head: bytes


def _blocks(data: Iterable[bytes]) -> Iterator[bytes | _Oversize]:
    """Cut a stream at line ends, into blocks without their last newline. A line beyond the limit is never gathered."""
    rest = b""
    skipped: _Oversize | None = None
    is_first = True
    for chunk in data:
        if is_first:
            chunk = chunk.removeprefix(_BOM)  # noqa: PLW2901 - the same chunk, without its mark
            is_first = False
        if skipped is not None:
            end = chunk.find(b"\n")
            if end < 0:
                skipped = _Oversize(skipped.length + len(chunk), skipped.head)
                continue
            yield _Oversize(skipped.length + end, skipped.head)
            skipped, chunk = None, chunk[end + 1 :]  # noqa: PLW2901 - the same chunk, past the long line
        whole, newline, rest_new = (rest + chunk).rpartition(b"\n")
        rest = rest_new
        if newline:
            yield _without_carriage_returns(whole)
        if len(rest) > limits.LINE_BYTES_MAX + 1:
            skipped, rest = _Oversize(len(rest), rest[: limits.LINE_BYTES_MAX]), b""
    if skipped is not None:
        yield skipped
    elif rest:
        yield _without_carriage_returns(rest)


def _without_carriage_returns(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in block else block


def name_of(entry: Entry) -> str:
    """Return the name of an entry: its id, or the hash of a line of a newer version, which cannot be joined."""
    return f"#{entry.hash}" if isinstance(entry, Carried) else entry.id


def joined_entries(mine: Entry | None, theirs: Entry | None) -> Entry | None:
    """Return the join of two entries of one name; None for neither."""
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    if isinstance(mine, Line) and isinstance(theirs, Line):
        return line.join(mine, theirs)
    if isinstance(mine, Discovery) and isinstance(theirs, Discovery):
        return mine.joined(theirs)
    return mine


def missing_of(theirs: Entry | None, ours: Entry | None) -> Entry | None:
    """Return the part of our entry that their entry of the same name lacks; None if it lacks nothing."""
    if theirs is None or ours is None:
        return ours
    if isinstance(ours, Line):
        return line.difference(ours, theirs if isinstance(theirs, Line) else None)
    if isinstance(ours, Discovery) and isinstance(theirs, Discovery):
        return ours if ours.joined(theirs) != theirs else None
    return None


# --- quarantine ----------------------------------------------------------------------------------------------------


class _Kept(msgspec.Struct):
    """One refused line as it is kept; its bytes in base64."""

    at: str
    path: str
    number: int = msgspec.field(name="line")
    reason: str
    raw: bytes = msgspec.field(name="bytes")

    def key(self) -> bytes:
        """Return the key of a refused line: a hash of the file's path and the bytes."""
        return blake2b(self.path.encode() + b"\0" + self.raw, digest_size=16).digest()


class Quarantine:
    """The refused lines of one workspace, kept with their reason, and never in the way of good ones.

    ``.fleet/quarantine/refused.jsonl`` holds each distinct one once: when, where, why, and its bytes in base64.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def keep(self, refused: Iterable[Refused], at: str) -> None:
        """Keep the lines that are new. A full disk or quarantine never stops reading."""
        wanted: dict[bytes, _Kept] = {}
        for each in refused:
            path, reason = (text.encode(errors="replace").decode() for text in (each.path, each.reason))
            kept = _Kept(at, path, each.number, reason, each.raw[: limits.LINE_BYTES_MAX])
            wanted[kept.key()] = kept
        known = {kept.key() for kept in self.all()} if wanted else set[bytes]()
        new = bytearray()
        room = limits.QUARANTINE_BYTES_MAX - (self._path.stat().st_size if self._path.exists() else 0)
        for encoded in (msgspec.json.encode(kept) + b"\n" for key, kept in wanted.items() if key not in known):
            new += encoded if len(new) + len(encoded) <= room else b""
        with suppress(DiskError):  # the lines still lie where they were read, and are counted at every load
            if new:
                self._files.append(self._path, bytes(new))

    def all(self) -> list[_Kept]:
        """Return the lines that are kept, oldest first."""
        # A line that a crash tore is refused again at the next load.
        return list(JsonLines(self._files, self._path).read(_Kept))


# --- an agent's own append-only files -------------------------------------------------------------------------------

_TEXT_CHARS_MAX = 32_000
_CUT = " … (cut)"


class JsonLines:
    """An append-only file of an agent's own, with a JSON line for each decision, cost or note."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._path = files, path

    def read(self, line: type[T]) -> Iterator[T]:
        """Yield the lines that are of this type (a struct, or a union of tagged ones), oldest first.

        A line that a crash tore, somebody spoiled, or a newer version wrote is passed over.
        """
        decoder = msgspec.json.Decoder(line)
        for raw in self._files.read(self._path).splitlines():
            try:
                yield decoder.decode(raw)
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                continue

    def add(self, lines: Iterable[msgspec.Struct]) -> None:
        """Add lines, screened, in one durable write, or raise ``DiskError``. The caller holds the file's lock."""
        encoded = b"".join(msgspec.json.encode(screened(msgspec.to_builtins(each))) + b"\n" for each in lines)
        if encoded:
            self._files.append(self._path, encoded)


def screened(value: Any, home: str | None = None) -> Any:
    """Return a JSON value with every text in it, keys too, screened and cut to a length that people read.

    ``home``: the folder that becomes ``~``; None where that is for others to do.
    """
    if isinstance(value, str):
        clean = screen(value, home=home).text
        return clean if len(clean) <= _TEXT_CHARS_MAX else clean[:_TEXT_CHARS_MAX] + _CUT
    if isinstance(value, dict):
        return {screened(str(key), home): screened(each, home) for key, each in value.items()}
    return [screened(each, home) for each in value] if isinstance(value, list | tuple) else value
