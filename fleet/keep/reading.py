"""From a file's bytes to entries: block by block, so that no file and no line decides how much memory we take.

The world writes BOMs, CRLF, torn last lines, binary rubbish and conflict markers. A bad line is refused with its
reason; both sides of a conflict are read; the good lines beside them always join.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from fleet.keep import discoveries, limits
from fleet.keep import line as codec
from fleet.keep.discoveries import Discovery
from fleet.keep.line import BadLineError, Carried, Line, Refused

Entry = Line | Discovery | Carried

_MARKERS = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")
_BOM = b"\xef\xbb\xbf"


class Join(Protocol):
    """What lines are joined into: a notebook, or the findings."""

    def add(self, entry: Any, /) -> None:
        """Join one line."""

    def covers(self, entry: Any, /) -> bool:
        """Tell whether joining this line would change nothing."""

    def edition(self) -> bytes:
        """Return the canonical bytes of everything."""


class Kind(NamedTuple):
    """One of the two logs a clan shares: where it lies, and how its lines are read and joined."""

    name: str
    decode_block: Callable[[bytes], list[Any] | None]
    is_sound: Callable[[Any, bytes], bool]
    decode_slowly: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]

    @property
    def edition(self) -> str:
        """Path of the joined file."""
        return f"{self.name}.jsonl"

    def shard(self, replica: str) -> str:
        """Path of one replica's own lines."""
        return f"{self.name}.d/{replica}.jsonl"


PATTERNS = Kind("patterns", codec.decode_block, codec.is_sound, codec.decode_slowly, codec.encode)
DISCOVERIES = Kind(
    "discoveries", discoveries.decode_block, discoveries.is_sound, discoveries.decode, discoveries.encode
)
KINDS = (PATTERNS, DISCOVERIES)


class Read(msgspec.Struct):
    """What reading came upon besides good lines.

    Attributes:
        refused: lines that cannot be used: the first of them, as many as memory is spent on.
        count: how many cannot be used, all counted.
        markers: conflict-marker lines, dropped.
        untidy: lines that were not in canonical form, blank ones aside.
    """

    refused: list[Refused] = []
    count: int = 0
    markers: int = 0
    untidy: int = 0
    _bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether further refused lines are only counted."""
        return len(self.refused) >= limits.REFUSED_KEPT_MAX or self._bytes >= limits.REFUSED_BYTES_MAX

    def refuse(self, refused: Refused) -> None:
        """Note a refused line: a file full of them must not fill the memory."""
        self.count += 1
        if not self.is_full:
            self.refused.append(refused)
            self._bytes += len(refused.raw)


class Block(NamedTuple):
    """Some lines of a file.

    Attributes:
        number: of the first.
        data: the lines, a newline between each two.
        raws: the same, one by one.
    """

    number: int
    data: bytes
    raws: list[bytes]


def entries(kind: Kind, data: Iterator[bytes], path: str, read: Read) -> Iterator[tuple[bytes, Entry]]:
    """Yield (raw line, entry) of each good line; refused ones and conflict markers are noted in ``read``."""
    for block in numbered(data, path, read):
        yield from of_block(kind, block, path, read)


def numbered(data: Iterator[bytes], path: str, read: Read) -> Iterator[Block]:
    """Yield blocks of whole lines; a line beyond the limit is refused."""
    number = 1
    for block in blocks(data):
        if isinstance(block, Oversize):
            reason = f"longer than {limits.LINE_BYTES_MAX} bytes ({block.length})"
            read.refuse(Refused(path, number, reason, block.head))
            number += 1
        else:
            raws = block.split(b"\n")
            yield Block(number, block, raws)
            number += len(raws)


def of_block(kind: Kind, block: Block, path: str, read: Read) -> Iterator[tuple[bytes, Entry]]:
    """Yield (raw line, entry) of each good line of a block."""
    decoded = kind.decode_block(block.data)
    if decoded is not None and len(decoded) == len(block.raws):
        for offset, (raw, entry) in enumerate(zip(block.raws, decoded, strict=True)):
            if kind.is_sound(entry, raw):
                yield raw, entry
            else:
                yield from _one(kind, raw, path, block.number + offset, read)
    else:
        for offset, raw in enumerate(block.raws):
            yield from _one(kind, raw, path, block.number + offset, read)


def _one(kind: Kind, raw: bytes, path: str, number: int, read: Read) -> Iterator[tuple[bytes, Entry]]:
    if not raw.strip():
        return
    read.untidy += 1
    if raw.startswith(_MARKERS) and not raw.startswith(b"{"):
        read.markers += 1
        return
    if read.is_full and not codec.has_id(raw):
        read.count += 1  # nobody will be told why: finding out takes ten times as long
        return
    try:
        yield raw, kind.decode_slowly(raw)
    except BadLineError as why:
        read.refuse(Refused(path, number, str(why), raw[: limits.LINE_BYTES_MAX]))


class Oversize(NamedTuple):
    """A line too long to be one: how long, and how it begins."""

    length: int
    head: bytes


def blocks(data: Iterator[bytes]) -> Iterator[bytes | Oversize]:
    """Cut a stream at line ends, into blocks without their last newline. A line beyond the limit is never gathered."""
    rest = b""
    skipped: Oversize | None = None
    is_first = True
    for chunk in data:
        if is_first:
            chunk = chunk.removeprefix(_BOM)  # noqa: PLW2901 - the same chunk, without its mark
            is_first = False
        if skipped is not None:
            end = chunk.find(b"\n")
            if end < 0:
                skipped = Oversize(skipped.length + len(chunk), skipped.head)
                continue
            yield Oversize(skipped.length + end, skipped.head)
            skipped, chunk = None, chunk[end + 1 :]  # noqa: PLW2901 - the same chunk, past the long line
        whole, newline, rest_new = (rest + chunk).rpartition(b"\n")
        rest = rest_new
        if newline:
            yield from _without_carriage_returns(whole)
        if len(rest) > limits.LINE_BYTES_MAX + 1:
            skipped, rest = Oversize(len(rest), rest[: limits.LINE_BYTES_MAX]), b""
    if skipped is not None:
        yield skipped
    elif rest:
        yield from _without_carriage_returns(rest)


def _without_carriage_returns(block: bytes) -> Iterator[bytes]:
    yield block.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in block else block


def chunks_of(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield a file's bytes from some place on, in blocks; nothing for a file that is not there."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            while chunk := file.read(limits.BLOCK_BYTES):
                yield chunk
    except (FileNotFoundError, NotADirectoryError):
        return
