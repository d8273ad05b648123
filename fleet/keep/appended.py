"""What was appended to the clan's logs since the index was made, read from there: a little is not worth a transaction.

To bring the index up to date takes as long as all else that a correction does, and waits for the disk. Whoever logs one
lesson reads the few lines that the index lacks, as a small clan is read. Whoever comes next and asks for more than one
lesson, or finds more lines than are read so fast, brings it up to date.
"""

from fleet.keep import limits, tail
from fleet.keep.index import Index
from fleet.keep.line import Line
from fleet.keep.notebook import is_beyond
from fleet.keep.reading import PATTERNS
from fleet.keep.sources import Known, Look, Sources, is_due, known_files, seen_files


def since(index: Index, sources: Sources) -> list[Line] | None:
    """Return the lines of patterns that the index lacks, in any order.

    None where that is not all that it lacks: a file was replaced or went away, a line is not one that this version
    reads and believes whole, something else waits, or there is too much to read.
    """
    known, seen = known_files(index, sources), seen_files(sources)
    if not known.keys() <= seen.keys() or is_due(index, sources.cut):
        return None
    found: list[Line] = []
    left = limits.UNINDEXED_BYTES_MAX
    for path, look in seen.items():
        before = known.get(path)
        if before is not None and look == before.look:
            continue
        read = _read(sources, path, look, before, left)
        if read is None:
            return None
        left -= read[0]
        found += read[1]
    return found


def _read(sources: Sources, path: str, look: Look, before: Known | None, most: int) -> tuple[int, list[Line]] | None:
    """Return how many bytes were appended to a file, and the lines; None for anything else, and for too many."""
    size, start = look[0], before.read if before is not None else 0
    # What a line without an end will be, nobody knows.
    if size > start + most or (before is not None and before.torn != start):
        return None
    if start > limits.UNINDEXED_BEHIND_BYTES_MAX:
        return None
    try:
        handle = (sources.root / path).open("rb")
    except OSError:
        return None
    with handle:
        lines = tail.Lines(handle, size)
        if before is not None:
            lines.resume(start, start, before.digest)
            if lines.read != start:  # it does not begin with what was read, or is shorter
                return None
        raws = [raw for block in lines.blocks() for _, raw in block]
    found = _sound(raws, sources.cut)  # none was passed over: so little holds no line that is too long
    return None if found is None else (size - start, found)


def _sound(raws: list[bytes], cut: str) -> list[Line] | None:
    """Return lines if each is a pattern's, in canonical form, and has no part beyond the cut."""
    if not raws:
        return []
    found: list[Line] | None = PATTERNS.decode_block(b"\n".join(raws))
    if found is None or len(found) != len(raws):
        return None
    is_sound = all(map(PATTERNS.is_sound, found, raws)) and not any(is_beyond(cut, line) for line in found)
    return found if is_sound else None
