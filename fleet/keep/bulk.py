"""Many canonical lines at once: the checks of ``line.is_sound``, each made for a whole block.

A first load of a large clan checks every line. Asked line by line, the checks take three times as long as decoding;
here one call of the encoder compares a block with its bytes, and a few passes look at all its stamps. What is found
sound is what ``is_sound`` finds sound: anything else gives None, and the block is read line by line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import gt, ne
from typing import NamedTuple

from crdt import clock
from fleet.keep import limits, names, reading
from fleet.keep import line as codec
from fleet.keep.line import BadLineError, Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import PATTERNS, Block, Entry, Join, Read


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


def entries(data: Iterator[bytes], path: str, read: Read) -> Iterator[tuple[bytes, Entry]]:
    """Yield what ``reading.entries`` yields of a file of patterns; blocks that are sound are checked at once."""
    for block in reading.numbered(data, path, read):
        if (found := sound(block.data, block.raws, {})) is not None:
            yield from zip(found.raws, found.lines, strict=True)
        else:
            yield from reading.of_block(PATTERNS, block, path, read)


class Fresh(NamedTuple):
    """A block and those of its lines that were not joined before."""

    block: Block
    raws: list[bytes]


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
        self._joined = Joined()

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
                self._joined = Joined(raws)
        self._joined.rewind()
        count = gathered = 0
        waiting: list[Fresh] = []  # a block of which little is new is not worth a check of its own
        for block in reading.numbered(data, path, self._read):
            raws = self._joined.others(block.raws)
            if not raws:
                count += len(block.raws)
                continue
            waiting.append(Fresh(block, raws))
            gathered += len(block.data) * len(raws) // len(block.raws)
            if gathered > limits.BLOCK_BYTES // 2:
                count += self._join(waiting, path)
                waiting, gathered = [], 0
        return count + self._join(waiting, path)

    def _join(self, waiting: list[Fresh], path: str) -> int:
        """Join what is new in some blocks, and return how many good lines these have."""
        if self._has_joined(waiting):
            return sum(len(block.raws) for block, _ in waiting)
        if len(waiting) > 1:  # most of them are sound by themselves
            return sum(self._join([each], path) for each in waiting)
        join: Join = self._notebook
        count = 0
        for block, _ in waiting:
            for _, entry in reading.of_block(PATTERNS, block, path, self._read):
                join.add(entry)
                count += 1
        return count

    def _has_joined(self, waiting: list[Fresh]) -> bool:
        """Join lines if all are sound and have no part beyond the cut."""
        if not waiting:
            return True
        raws = [raw for _, raws in waiting for raw in raws] if len(waiting) > 1 else waiting[0].raws
        data = waiting[0].block.data if raws is waiting[0].block.raws else b"\n".join(raws)
        found = sound(data, raws, self._notebook.newest_by)
        if found is None or max(found.newest_by.values(), default="") > self._notebook.cut:
            return False
        self._notebook.add_sound(found)
        self._joined.add(raws)
        return True


class Joined:
    """The lines that were joined before, to be passed over.

    Full replicas hold the same lines in the same order, so a line is first compared with the one that stands in its
    place. Only where that fails are lines hashed.

    Args:
        raws: the lines, in the order in which they are to be expected.
    """

    def __init__(self, raws: Sequence[bytes] = ()) -> None:
        self._raws = raws
        self._place = 0
        self._places: dict[bytes, int] = {}
        self._added: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._raws)

    def rewind(self) -> None:
        """Expect the lines from the first on."""
        self._place = 0

    def add(self, raws: Iterable[bytes]) -> None:
        """Note further lines, if any are looked up at all."""
        if self:
            self._added.update(raws)

    def others(self, raws: list[bytes]) -> list[bytes]:
        """Return those that were not joined before; some that were may be among them."""
        if not self:
            return raws
        there = self._raws[self._place : self._place + len(raws)]
        self._place += len(raws)
        others = [*compress(raws, map(ne, raws, there)), *raws[len(there) :]]
        if len(others) > len(raws) // 2:
            others = self._looked_up(raws)
        return [raw for raw in others if raw not in self._added]

    def _looked_up(self, raws: list[bytes]) -> list[bytes]:
        """Find lines wherever they stood, and expect what follows there."""
        if not self._places:
            self._places = {raw: place for place, raw in enumerate(self._raws)}
        places = [self._places.get(raw, -1) for raw in raws]
        last = max(places)
        if last >= 0:
            self._place = last + len(places) - places.index(last)
        return [raw for raw, place in zip(raws, places, strict=True) if place < 0]


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
