"""Many canonical lines at once: the checks of ``line.is_sound``, each made for a whole block.

A first load of a large clan checks every line. Asked line by line, the checks take three times as long as decoding;
here one call of the encoder compares a block with its bytes, and a few passes look at all its stamps. What is found
sound is what ``is_sound`` finds sound: anything else gives None, and the block is read line by line.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import gt
from typing import NamedTuple

from crdt import clock
from fleet.keep import limits, names, reading
from fleet.keep import line as codec
from fleet.keep.line import BadLineError, Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import PATTERNS, Block, Join, Read


class Sound(NamedTuple):
    """Lines that were checked.

    Attributes:
        lines: the records.
        raws: the canonical bytes of each.
        newest_by: the newest stamp of each replica in them, or one known before that is newer.
    """

    lines: Sequence[Line]
    raws: list[bytes]
    newest_by: dict[str, str]


LOOKED_UP_MOST = 8
"""Hashing a line takes an eighth of the time that decoding and checking it takes."""


class Bulk:
    """Joins the lines of large files, those that were joined before, byte for byte, without decoding them.

    A record stays bytes until another line of its id comes, or until somebody asks for it.

    Args:
        notebook: what they are joined into.
        read: what was met on the way.
    """

    def __init__(self, notebook: Notebook, read: Read) -> None:
        self._notebook = notebook
        self._read = read
        self._joined: set[bytes] = set()

    def load(self, data: Iterator[bytes], path: str, size: int) -> int:
        """Join the lines of a file, and return how many good ones there were.

        Args:
            data: the file's bytes.
            path: the file's name, for what is refused.
            size: bytes in the file. Where much more was joined before, looking it up costs more than it saves.
        """
        if not self._joined:
            raws = list(self._notebook.patterns.raws())
            if sum(map(len, raws)) < LOOKED_UP_MOST * size:
                self._joined.update(raws)
        join: Join = self._notebook
        count = 0
        for block in reading.numbered(data, path, self._read):
            if self._has_joined(block):
                count += len(block.raws)
            else:
                for _, entry in reading.of_block(PATTERNS, block, path, self._read):
                    join.add(entry)
                    count += 1
        return count

    def _has_joined(self, block: Block) -> bool:
        """Join lines if all are sound and have no part beyond the cut."""
        data, raws, joined = block.data, block.raws, self._joined
        if joined:
            raws = [raw for raw in raws if raw not in joined]
            if not raws:
                return True
            data = b"\n".join(raws)
        found = sound(data, raws, self._notebook.newest_by)
        if found is None or max(found.newest_by.values(), default="") > self._notebook.cut:
            return False
        self._notebook.add_sound(found)
        if self._joined:
            self._joined.update(raws)
        return True


def sound(block: bytes, raws: list[bytes], known: Mapping[str, str]) -> Sound | None:
    """Decode and check lines; None when any of them needs a closer look.

    Args:
        block: the lines, a newline between each two.
        raws: the same, one by one.
        known: the newest stamp of each replica so far.
    """
    longest = max(map(len, raws))
    # A value takes no more bytes than its line: in a short one, only what is no text can be out of bounds.
    are_short = longest <= limits.TEXT_BYTES_MAX
    plain = codec.decode_plain_block(block) if are_short else None
    lines = plain if plain is not None else codec.decode_block(block)
    if lines is None or len(lines) != len(raws) or longest > limits.LINE_BYTES_MAX:
        return None
    encoded = codec.encode_lines(lines)
    if len(encoded) != len(block) + 1 or not encoded.startswith(block):
        return None
    if not names.are_pattern_ids([line.id for line in lines]) or not _are_named(lines):
        return None
    newest_by = _newest_by(lines, known)
    if newest_by is None or (plain is None and not _are_bounded(lines)):
        return None
    return Sound(lines, raws, newest_by)


def _newest_by(lines: Sequence[Line], known: Mapping[str, str]) -> dict[str, str] | None:
    """Return the newest stamp of each replica; None where a stamp or a replica is none."""
    counts = list(chain.from_iterable(map(dict.values, [line.n for line in lines])))
    if not all(counts):  # a counter that counts nothing is left out of a canonical line
        return None
    slots = [line.add for line in lines]
    slots += filter(None, [line.rem for line in lines])
    writers = list(chain.from_iterable(slots))
    stamps = list(chain.from_iterable(map(dict.values, slots)))
    for line in lines:
        if line.when:
            if not line.when.keys() <= line.set.keys():
                return None
            stamps += [stamp for stamp, _ in line.when.values()]
            writers += [writer for _, writer in line.when.values()]
    newest = {writer: known.get(writer, "") for writer in set(writers)}
    firsts = {line.by for line in lines}
    firsts.discard("")  # what has no first writer says so by an empty name
    if not all(map(names.is_replica, firsts.union(newest, *counts))):
        return None
    # Each is compared with what the ones before it have left: ``update`` takes them one at a time.
    newest.update(compress(zip(writers, stamps, strict=True), map(gt, stamps, map(newest.__getitem__, writers))))
    # An explicit "0" is another object, and not canonical.
    stamps += [at for line in lines if (at := line.at) is not clock.ZERO]
    return newest if clock.are_stamps(stamps) else None


def _are_named(lines: Sequence[Line]) -> bool:
    """Tell whether the names of counters and fields are within their limits."""
    try:
        for name in set().union(*[line.set for line in lines], *[line.n for line in lines]):
            codec.check_name(name)
    except BadLineError:
        return False
    return True


def _are_bounded(lines: Sequence[Line]) -> bool:
    """Tell whether values are within their limits."""
    try:
        for line in lines:
            for field, value in line.set.items():
                codec.check_value(field, value)
    except BadLineError:
        return False
    return True
