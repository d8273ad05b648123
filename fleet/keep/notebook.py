"""The notebook: the join of all lines, in memory.

Parts stamped beyond the *cut* are held: they wait beside the records, are written out again with them, and join at
the first load whose cut has passed them. So a peer's clock that runs years ahead never wins, and nothing late is lost
(DESIGN, section 3, Clocks).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from crdt import clock, gcounter, orset
from fleet.keep import line as codec
from fleet.keep import names
from fleet.keep.line import Carried, Line
from fleet.keep.normal import normalise

if TYPE_CHECKING:
    from fleet.keep.bulk import Sound
    from fleet.keep.index import Index

MS_AN_HOUR = 3_600_000
Order = Literal["sight", "evidence"]
"""How lessons are ranked: as a page shows them, or for a session's start."""
MERGED_INTO = "merged_into"
"""The field by which one record says that it is the same lesson as another."""


class Part(NamedTuple):
    """One slot or field that is held, or that an edition must not fold yet."""

    id: str
    kind: Literal["add", "rem", "set"]
    key: str
    stamp: str
    writer: str
    value: bytes

    def as_line(self, at: str, by: str) -> Line:
        """Return the part as a line of its own, under the first sight of its pattern."""
        line = Line(id=self.id, at=at, by=by)
        if self.kind == "set":
            line.set = {self.key: msgspec.json.decode(self.value)}
            line.when = {self.key: (self.stamp, self.writer)}
        else:
            setattr(line, self.kind, {self.key: self.stamp})
        return line


class Records(dict[str, Line]):
    """Joined records by id. One that came as a single line, and that nobody has asked for, is still bytes.

    Decoding 100,000 records costs ten times what it costs to find their ids, and most commands ask for few of them.
    """

    def __getitem__(self, pattern_id: str) -> Line:
        found: Line | bytes = super().__getitem__(pattern_id)
        if type(found) is bytes:
            found = codec.decode_trusted(found)
            super().__setitem__(pattern_id, found)
        return found  # type: ignore[return-value]

    def get(self, pattern_id: str, default: Line | None = None) -> Line | None:  # type: ignore[override]
        """Return one record, or the default."""
        return self[pattern_id] if pattern_id in self else default  # noqa: SIM401 - that would be ourselves

    def values(self) -> Iterator[Line]:  # type: ignore[override]
        """Yield all records, in the order they came."""
        return (self[pattern_id] for pattern_id in list(self))

    def items(self) -> Iterator[tuple[str, Line]]:  # type: ignore[override]
        """Yield all ids and records, in the order they came."""
        return ((pattern_id, self[pattern_id]) for pattern_id in list(self))

    def put_raw(self, ids: Iterable[str], raws: Iterable[bytes]) -> None:
        """Take canonical lines that were checked before, one an id, as they are."""
        self.update(zip(ids, raws, strict=True))  # type: ignore[arg-type]

    def put_sound(self, lines: Sequence[Line], raws: Sequence[bytes]) -> None:
        """Join lines that were checked: the only one of its id stays bytes, and so does one that came before."""
        held: dict[str, Line | bytes] = self  # type: ignore[assignment]
        as_held = dict.__getitem__  # ours would decode them one by one
        found: Sequence[Line | bytes] = list(map(held.setdefault, [line.id for line in lines], raws))
        if found == raws:
            return
        clashing = [
            line for line, raw, known in zip(lines, raws, found, strict=True) if known is not raw and known != raw
        ]
        asleep = {line.id: known for line in clashing if type(known := as_held(held, line.id)) is bytes}
        held.update(zip(asleep, codec.decode_trusted_block(b"\n".join(asleep.values())), strict=True))
        for line in clashing:
            held[line.id] = codec.join(as_held(held, line.id), line)  # type: ignore[arg-type]

    def passing(self) -> Iterator[Line]:
        """Yield all records for one look. What nobody has asked for yet is decoded for this look alone."""
        held: dict[str, Line | bytes] = self  # type: ignore[assignment]
        return (codec.decode_trusted(each) if type(each) is bytes else each for each in list(dict.values(held)))  # type: ignore[misc]

    def awake(self) -> Iterator[Line]:
        """Yield the records that somebody has asked for, or that came in pieces."""
        held: dict[str, Line | bytes] = self  # type: ignore[assignment]
        return (each for each in list(dict.values(held)) if type(each) is not bytes)  # type: ignore[misc]

    def raws(self) -> Iterator[bytes]:
        """Yield the canonical bytes of the records that nobody has asked for yet."""
        held: dict[str, Line | bytes] = self  # type: ignore[assignment]
        return (raw for raw in dict.values(held) if type(raw) is bytes)

    def raw(self, pattern_id: str) -> bytes | None:
        """Return the canonical bytes of a record that nobody has asked for yet."""
        found: Line | bytes = super().__getitem__(pattern_id)
        return found if type(found) is bytes else None


class Notebook:
    """Joined records by id, and what could not be joined.

    Args:
        cut: parts with a later stamp are held. Without one, nothing is.

    Attributes:
        patterns: id to joined record. Records that came as one line are kept as decoded.
        held: parts beyond the cut.
        carried: lines of newer versions, byte for byte.
        newest_by: the largest stamp joined, of each replica.
    """

    def __init__(self, cut: str = "~") -> None:
        self.cut = cut
        self.patterns = Records()
        self.held: set[Part] = set()
        self.carried: dict[bytes, str] = {}
        self.newest_by: dict[str, str] = {}

    @property
    def newest(self) -> str:
        """The largest stamp joined."""
        return max(self.newest_by.values(), default=clock.ZERO)

    def add(self, entry: Line | Carried) -> None:
        """Join one line. Any order, any number of times."""
        if isinstance(entry, Carried):
            self.carried[entry.raw] = entry.id
            return
        if is_beyond(self.cut, entry):
            entry = self._hold_back(entry)
        self._note_stamps(entry)
        known = self.patterns.get(entry.id)
        self.patterns[entry.id] = entry if known is None else codec.join(known, entry)

    def add_sound(self, found: "Sound") -> None:
        """Join many lines that were checked, none of which has a part beyond the cut."""
        for replica, stamp in found.newest_by.items():
            if stamp > self.newest_by.get(replica, ""):
                self.newest_by[replica] = stamp
        self.patterns.put_sound(found.lines, found.raws)

    def add_all(self, entries: Iterable[Line | Carried]) -> None:
        """Join many lines."""
        for entry in entries:
            self.add(entry)

    def _hold_back(self, line: Line) -> Line:
        """Return the line without the parts beyond the cut, which are held."""
        early = Line(id=line.id, at=line.at, by=line.by, n=line.n)
        for kind, slots, kept in (("add", line.add, early.add), ("rem", line.rem, early.rem)):
            for replica, stamp in slots.items():
                if stamp <= self.cut:
                    kept[replica] = stamp
                else:
                    self.held.add(Part(line.id, kind, replica, stamp, "", b""))  # type: ignore[arg-type]
        for field in line.set:
            register = codec.register(line, field)
            if register.stamp <= self.cut:
                early.set[field] = line.set[field]
                if field in line.when:
                    early.when[field] = line.when[field]
            else:
                self.held.add(Part(line.id, "set", field, *register))
        return early

    def _note_stamps(self, line: Line) -> None:
        newest = self.newest_by
        for slots in (line.add, line.rem):
            for replica, stamp in slots.items():
                if stamp > newest.get(replica, ""):
                    newest[replica] = stamp
        for stamp, writer in line.when.values():
            if stamp > newest.get(writer, ""):
                newest[writer] = stamp

    def reading_alike(self, normalised: str) -> Iterator[Line]:
        """Yield the records whose text now normalises to this, but was another when it was first logged."""
        for pattern_id in self.edited():
            line = self.patterns[pattern_id]
            if normalise(text(line)) == normalised:
                yield line

    def edited(self) -> list[str]:
        """Return the ids of the records whose text is another than when it was first logged."""
        return [pattern_id for pattern_id in self.with_key(b'"when":{') if "text" in self.patterns[pattern_id].when]

    def with_key(self, key: bytes) -> list[str]:
        """Return the ids of records in whose bytes a key stands, and of all that are decoded."""
        # Not through the methods of ``Records``: they would decode it all, and 100,000 calls take longer than the look.
        held: dict[str, Line | bytes] = self.patterns  # type: ignore[assignment]
        return [pattern_id for pattern_id, line in dict.items(held) if type(line) is not bytes or key in line]

    def pointing(self) -> dict[str, str]:
        """Return which record is merged into which."""
        return {
            pattern_id: into
            for pattern_id in self.with_key(f'"{MERGED_INTO}":'.encode())
            if (into := merged_into(self.patterns[pattern_id]))
        }

    def timed(self) -> list[Line]:
        """Return the records that are in and have a trigger."""
        found = [self.patterns[pattern_id] for pattern_id in self.with_key(b'"trigger":')]
        return sorted((line for line in found if "trigger" in line.set and is_present(line)), key=lambda line: line.id)

    def beginning(self, prefix: str) -> list[str]:
        """Return the ids that begin so, sorted."""
        return sorted(pattern_id for pattern_id in self.patterns if pattern_id.startswith(prefix))

    def covers(self, entry: Line | Carried) -> bool:
        """Tell whether joining this line would change nothing, held parts included."""
        if isinstance(entry, Carried):
            return entry.raw in self.carried
        probe = Notebook(self.cut)
        probe.add(entry)
        mine = self.patterns.get(entry.id)
        return mine is not None and codec.covers(mine, probe.patterns[entry.id]) and probe.held <= self.held

    def get(self, pattern_id: str) -> Line | None:
        """Return the record of one pattern."""
        return self.patterns.get(pattern_id)

    @property
    def index(self) -> "Index | None":
        """The search index, where this notebook is asked from one."""
        return None

    def unindexed(self) -> set[str]:
        """Return the ids of the records of which that index does not know all."""
        return set()

    def best(self, order: Order, count: int) -> tuple[list[Line], int] | None:  # noqa: ARG002
        """Return the records among which the best lessons are, and how many there are; None where nobody knows yet."""
        return None

    def present(self) -> Iterator[Line]:
        """Yield the records that are in and can be read: some add is live, and there is a text."""
        for line in self.patterns.values():
            if is_present(line) and text(line):
                yield line

    def edition(self) -> bytes:
        """Return the canonical bytes of everything here: sorted by id, a line each, held and carried lines kept.

        A part beyond the cut is written into its record where nothing stands in its place, and on a line of its own
        where it would displace something (docs/adr/0004).
        """
        beside: dict[str, list[Part]] = {}
        for part in sorted(self.held):
            beside.setdefault(part.id, []).append(part)
        carried: dict[str, list[bytes]] = {}
        for raw, line_id in sorted(self.carried.items()):
            carried.setdefault(line_id, []).append(raw)
        written: list[bytes] = []
        for pattern_id in sorted(self.patterns.keys() | carried.keys()):
            if pattern_id in self.patterns:
                untouched, parts = self.patterns.raw(pattern_id), beside.get(pattern_id, [])
                if untouched is not None and not parts:
                    written.append(untouched)
                else:
                    written += _with_parts(self.patterns[pattern_id], parts)
            written += carried.get(pattern_id, [])
        return b"".join(raw + b"\n" for raw in written)


def is_beyond(cut: str, line: Line) -> bool:
    """Tell whether a part of a line is stamped later than a cut."""
    for slots in (line.add, line.rem):
        for stamp in slots.values():
            if stamp > cut:
                return True
    return any(stamp > cut for stamp, _ in line.when.values())


def _with_parts(line: Line, parts: list[Part]) -> list[bytes]:
    if not parts:
        return codec.split(line)
    whole = Line(id=line.id, at=line.at, by=line.by, n=line.n)
    whole.add, whole.rem, whole.set, whole.when = dict(line.add), dict(line.rem), dict(line.set), dict(line.when)
    alone: list[bytes] = []
    for part in parts:
        if part.key in getattr(whole, part.kind):
            alone.append(codec.encode(part.as_line(line.at, line.by)))
        else:
            piece = part.as_line(line.at, line.by)
            getattr(whole, part.kind).update(getattr(piece, part.kind))
            whole.when.update(piece.when)
    return codec.split(whole) + sorted(alone)


def edition_cut(notebook: Notebook) -> str:
    """Return the cut for an edition: no part later than 24 h after the newest stamp of another replica is folded.

    Only the replica with the very newest stamp can be that far ahead, so one cut says it all. Slots of imported
    records are no witness of anybody's clock.
    """
    stamps = sorted(stamp for replica, stamp in notebook.newest_by.items() if names.agent_of(replica) != names.IMPORT)
    if len(stamps) < 2:
        return notebook.cut
    return min(notebook.cut, clock.shifted(stamps[-2], 24 * MS_AN_HOUR))


def is_listed(line: Line, order: Order) -> bool:
    """Tell whether a lesson is shown: in, with words; and for a session's start, whatever its evidence, not retired."""
    return is_present(line) and bool(text(line)) and (order == "sight" or line.set.get("state") != "retired")


def is_present(line: Line) -> bool:
    """Tell whether the pattern is in: some add is not covered by a remove."""
    return orset.present(line.add, line.rem)


def count(line: Line, counter: str) -> int:
    """Return the value of one of the pattern's counters."""
    return gcounter.value(line.n.get(counter, {}))


def text(line: Line) -> str:
    """Return the lesson, or "" for a pattern whose text has not arrived."""
    return as_text(line.set.get("text"))


def as_text(value: object) -> str:
    """Return a field's value as text: a peer may have put anything there."""
    return value if isinstance(value, str) else ""


def agents(line: Line) -> list[str]:
    """Return the names of the agents that logged this pattern, sorted.

    The slot of an imported record says who imported nothing; a field ``agent.<8 hex>`` may name who logged it first.
    """
    found = set()
    for replica in line.add.keys() | line.n.get("seen", {}).keys():
        agent, _, mark = replica.rpartition(".")
        told = as_text(line.set.get(f"agent.{mark}")) if agent == names.IMPORT else ""
        found.add(told if names.is_agent(told) else agent)
    return sorted(found)


def merged_into(line: Line) -> str:
    """Return the id that a record is merged into, or ""; one that points to itself, or to no id, points nowhere."""
    into = as_text(line.set.get(MERGED_INTO))
    return into if into != line.id and into.startswith("p-") and names.is_id(into) else ""


def witnesses(line: Line) -> int:
    """Return how many agents logged this lesson. Imported records sit in a slot of their own: they are no agent."""
    seen = line.n.get("seen", line.add)
    if len(line.add) == 1 and seen.keys() == line.add.keys():
        return int(not next(iter(line.add)).startswith(f"{names.IMPORT}."))  # most have one: no set, no sorting
    return len({names.agent_of(replica) for replica in line.add.keys() | seen.keys()} - {names.IMPORT})


def last_seen(line: Line) -> str:
    """Return the newest add stamp, or when it was first seen."""
    return max(line.add.values(), default=line.at)
