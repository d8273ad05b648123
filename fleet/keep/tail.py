"""The lines of a log, read on from where the last reading ended, and the digest that tells whether that is possible.

A log is appended to, and now and then replaced. Only when the bytes that were read are still there, at its beginning,
does what follows them say all that is new.
"""

from collections.abc import Iterator
from typing import BinaryIO

from fleet.keep import limits
from fleet.keep.digests import blake2b

_BOM = b"\xef\xbb\xbf"


class Lines:
    """The lines of a log, and how far it was read.

    Args:
        handle: the open file.
        end: where to stop: what is written behind it while we read belongs to the next time.

    Attributes:
        read: so many bytes are in the digest.
        torn: where the last line begins that has no end yet; ``read`` when there is none.
        hasher: of all that was read.
        has_oversize: a line beyond the limit was passed over.
    """

    def __init__(self, handle: BinaryIO, end: int) -> None:
        self._handle = handle
        self._end = end
        self.read = self.torn = 0
        self.has_oversize = False
        self.hasher = hasher()

    def resume(self, read: int, torn: int, digest: bytes) -> None:
        """Go on where the last reading ended, if what was read then is still there, byte for byte."""
        if read > self._end:
            return
        seen, left = hasher(), read
        self._handle.seek(0)
        while left and (chunk := self._handle.read(min(limits.BLOCK_BYTES, left))):
            seen.update(chunk)
            left -= len(chunk)
        if not left and seen.digest() == digest:
            self.hasher, self.read, self.torn = seen, read, torn

    def blocks(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield (where, line) of many lines at once. A line beyond the limit is passed over and never gathered."""
        at = position = self.torn
        rest, is_skipping = b"", False
        self._handle.seek(position)
        while position < self._end and (chunk := self._handle.read(min(limits.BLOCK_BYTES, self._end - position))):
            position += len(chunk)
            if position > self.read:
                self.hasher.update(chunk[len(chunk) - (position - self.read) :])
                self.read = position
            whole, newline, rest_new = (rest + chunk).rpartition(b"\n")
            if newline:
                at = position - len(rest_new)
                first, lines = at - len(whole) - 1, whole.split(b"\n")
                if is_skipping:  # what stands here is only the end of a line that is too long
                    first += len(lines.pop(0)) + 1
                    is_skipping = False
                self.torn = at
                yield self._placed(first, lines)
            rest = rest_new
            if len(rest) > limits.LINE_BYTES_MAX + 1:
                rest, is_skipping, self.has_oversize = b"", True, True
        if rest and not is_skipping:
            yield self._placed(at, [rest])

    def _placed(self, at: int, lines: list[bytes]) -> list[tuple[int, bytes]]:
        placed = []
        for line in lines:
            mark = len(_BOM) if at == 0 and line.startswith(_BOM) else 0
            raw = line[mark:].removesuffix(b"\r")
            if len(raw) > limits.LINE_BYTES_MAX:
                self.has_oversize = True
            elif raw.strip():
                placed.append((at + mark, raw))
            at += len(line) + 1
        return placed


def hasher(data: bytes = b"") -> blake2b:
    """Return what makes the digest of a file."""
    return blake2b(data, digest_size=16)


def mark(raw: bytes) -> int:
    """Return 64 bits that stand for a line."""
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big", signed=True)
