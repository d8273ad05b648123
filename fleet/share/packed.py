"""Joined lines in little memory, for who runs on for months: records lie as their canonical bytes.

A decoded record takes five times the room of its bytes, and a live sidecar knows each lesson twice: as it is here, and
as it is in the room. Mostly the two are the same bytes.
"""

from sys import intern

from fleet.keep import line as codec
from fleet.keep.discoveries import Findings
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, Records
from fleet.keep.store import Held


class Packed(Records):
    """Joined records by id, as bytes. Who asks for one gets a record of their own.

    Attributes:
        alike: other records, of which most are the same: what they hold already is held once.
    """

    alike: "Packed | None" = None

    def __getitem__(self, pattern_id: str) -> Line:
        return codec.decode_trusted(dict.__getitem__(self, pattern_id))  # type: ignore[arg-type]

    def __setitem__(self, pattern_id: str, line: Line) -> None:
        raw = codec.encode(line)
        self.put_raw([intern(pattern_id)], [raw if self.alike is None else self.alike.same(pattern_id, raw)])

    def same(self, pattern_id: str, raw: bytes) -> bytes:
        """Return our own copy of these bytes, if it is what we hold; else the ones given."""
        held = dict.get(self, pattern_id)
        return held if held == raw else raw  # type: ignore[comparison-overlap, return-value]


def held_twice(cut: str) -> tuple[Held, Held]:
    """Return two empty joins, which will hold much the same."""
    one, other = Packed(), Packed()
    one.alike, other.alike = other, one
    return _held(cut, one), _held(cut, other)


def _held(cut: str, records: Packed) -> Held:
    notebook = Notebook(cut)
    notebook.patterns = records
    return Held(notebook, Findings(cut))


def shared(held: Held, name: str, raw: bytes) -> bytes:
    """Return these bytes, or the same ones where they are held already."""
    patterns = held.notebook.patterns
    return patterns.same(name, raw) if isinstance(patterns, Packed) else raw
