"""Joined lines in little memory, for who runs on for months: records lie as their canonical bytes.

A decoded record takes five times the room of its bytes, and a live sidecar knows each lesson twice: as it is here, and
as it is in the room. Mostly the two are the same bytes.
"""

from contextlib import suppress

from fleet.keep import line as codec
from fleet.keep.discoveries import Findings
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, Records
from fleet.keep.store import Held


class Packed(Records):
    """Joined records by id, as bytes. Who asks for one gets a record of their own.

    Args:
        alike: other records, of which most are the same: what they hold already is held once.
    """

    def __init__(self, alike: "Packed | None" = None) -> None:
        super().__init__()
        self._alike = alike

    def __getitem__(self, pattern_id: str) -> Line:
        return codec.decode_trusted(dict.__getitem__(self, pattern_id))  # type: ignore[arg-type]

    def __setitem__(self, pattern_id: str, line: Line) -> None:
        raw = codec.encode(line)
        self.put_raw([pattern_id], [raw if self._alike is None else self._alike.same(pattern_id, raw)])

    def same(self, pattern_id: str, raw: bytes) -> bytes:
        """Return our own copy of these bytes, if it is what we hold; else the ones given."""
        held = dict.get(self, pattern_id)
        return held if held == raw else raw  # type: ignore[comparison-overlap, return-value]


def held(cut: str, alike: Held | None = None) -> Held:
    """Return an empty join; of what it will hold, most is in ``alike`` as well."""
    notebook, other = Notebook(cut), alike.notebook.patterns if alike is not None else None
    notebook.patterns = Packed(other if isinstance(other, Packed) else None)
    return Held(notebook, Findings(cut))


def shared(held: Held, name: str, raw: bytes) -> bytes:
    """Return these bytes, or the same ones where they are held already."""
    patterns = held.notebook.patterns
    return patterns.same(name, raw) if isinstance(patterns, Packed) else raw


def give_back() -> None:
    """Give freed memory back to the system. The GNU C library keeps what one large moment took; others need no word."""
    from ctypes import CDLL

    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)
