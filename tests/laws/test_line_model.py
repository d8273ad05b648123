"""A fleet of three replicas against textbook models: whatever is logged, retired, edited, sent and compacted.

The models keep every operation ever made, by its own name, and know no stamps beyond what a register needs: an OR-Set
with unique tags, an LWW register, and a tally of who counted how often. A line stands for the operations whose effect
it carries, so the models can be asked at every moment what a replica that has read these lines ought to see.
"""

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleet.model import edits
from fleet.model import line as codec
from fleet.model.line import NOTHING, Line, canonical
from fleet.model.pattern import fold
from tests.laws.checks import DAY_MS, FIELDS, FOREVER, IDS, NOW_MS, REPLICAS, Clock

VALUES = (1, True, "1", None, "a", "b")


class Added(NamedTuple):
    """An add of the OR-Set. A replica's own newer add takes the place of its older ones."""

    tag: int
    id: str
    replaces: frozenset[int]


class Removed(NamedTuple):
    """An observed remove: the tags that were in sight, and what those had replaced."""

    tag: int
    id: str
    tags: frozenset[int]


class Wrote(NamedTuple):
    """A write to a field; the stamp is "0" when it was only logged."""

    tag: int
    id: str
    field: str
    stamp: str
    replica: str
    value: Any


Operation = Added | Removed | Wrote


class Model:
    """The textbook: sets of operations, and a tally beside them."""

    def __init__(self) -> None:
        self.issued = 0
        self.seen: dict[tuple[str, str], int] = {}
        self.undone: dict[tuple[str, str], int] = {}

    def tag(self) -> int:
        """Return a name that no other operation bears."""
        self.issued += 1
        return self.issued

    @staticmethod
    def alive(known: frozenset[Operation], pattern_id: str) -> set[int]:
        """Return the tags that nothing known has taken out."""
        adds = [op for op in known if isinstance(op, Added) and op.id == pattern_id]
        gone = {tag for op in adds for tag in op.replaces}
        gone |= {tag for op in known if isinstance(op, Removed) for tag in op.tags}
        return {op.tag for op in adds} - gone

    @staticmethod
    def value(known: frozenset[Operation], pattern_id: str, field: str) -> bytes | None:
        """Return the canonical bytes of the latest write: by stamp, then replica, then bytes."""
        writes = [op for op in known if isinstance(op, Wrote) and (op.id, op.field) == (pattern_id, field)]
        latest = max(((op.stamp, op.replica, canonical(op.value)) for op in writes), default=None)
        return None if latest is None else latest[2]


class Sent(NamedTuple):
    """A line on its way, and the operations it stands for."""

    raw: bytes
    operations: frozenset[Operation]


class Peer:
    """One replica: its records, a clock on a wall that jumps, its lines, and what the models say it knows."""

    def __init__(self, name: str, clock_class: Any, join: Any) -> None:
        self.name = name
        self.wall_ms = NOW_MS
        self.clock = clock_class(lambda: self.wall_ms)
        self.join = join
        self.records: dict[str, Line] = {}
        self.lines: list[Sent] = []
        self.known: frozenset[Operation] = frozenset()
        self.largest = ""
        self.tags: dict[str, set[int]] = {}

    def tick(self) -> str:
        """Issue a stamp, larger than whatever was read here."""
        stamp = self.clock.tick()
        assert stamp > self.largest
        self.largest = stamp
        return str(stamp)

    def write(self, line: Line, *operations: Operation) -> None:
        """Append an own line and join it."""
        sent = Sent(codec.encode(line), frozenset(operations))
        self.read(sent)
        self.lines.append(sent)

    def read(self, sent: Sent) -> None:
        """Join a line, admitting all its stamps."""
        line = codec.decode(sent.raw)
        assert isinstance(line, Line)
        newest = max(line.stamps(), default="")
        self.clock.admit(newest)
        self.largest = max(self.largest, newest)
        self.records[line.id] = self.join(self.records[line.id], line) if line.id in self.records else line
        self.known |= sent.operations

    def record(self, pattern_id: str) -> Line:
        """Return the joined record, or an empty one."""
        return self.records.get(pattern_id) or Line(pattern_id)

    def edition(self) -> bytes:
        """Return the canonical dump of all records."""
        return b"".join(raw + b"\n" for _, line in sorted(self.records.items()) for raw in codec.split(line))


peers = st.integers(0, len(REPLICAS) - 1)
ids = st.sampled_from(IDS)
fields = st.sampled_from(FIELDS)
values = st.sampled_from(VALUES)


class Fleet(RuleBasedStateMachine):
    """The machine. Its parts are attributes, so that a broken one can be put in (`test_broken_joins.py`)."""

    clock_class: Any = Clock
    join: Any = staticmethod(codec.join)
    fold: Any = staticmethod(fold)
    retire: Any = staticmethod(edits.retire)

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.peers = [Peer(name, self.clock_class, self.join) for name in REPLICAS]

    def is_present(self, peer: Peer, pattern_id: str) -> bool:
        return bool(self.fold(peer.record(pattern_id)).is_present)

    @rule(at=peers, pattern_id=ids, field=fields, value=values, times=st.integers(1, 2))
    def log(self, at: int, pattern_id: str, field: str, value: Any, times: int) -> None:
        """A lesson is learned: an add and a count together, and a wording where it is a new one."""
        peer, stamp = self.peers[at], self.peers[at].tick()
        total = self.model.seen.get((pattern_id, peer.name), 0) + times
        self.model.seen[pattern_id, peer.name] = total
        line = edits.confirm(peer.record(pattern_id), peer.name, stamp, seen=times, fields={field: value})
        own = line.w[peer.name]
        said = [Wrote(self.model.tag(), pattern_id, field, "0", "", value)] if field in own.first else []
        # Where all its occurrences were undone, it is stated anew: what it holds now is edited.
        said += [Wrote(self.model.tag(), pattern_id, field, stamp, peer.name, value)] if field in own.set else []
        peer.write(line, self._add(peer, pattern_id), *said)
        assert self.is_present(peer, pattern_id), "what was just logged is in"
        assert peer.record(pattern_id).w[peer.name].n["seen"] == total

    @rule(at=peers, pattern_id=ids)
    def undo(self, at: int, pattern_id: str) -> None:
        """One of the peer's own counts is taken back."""
        peer, undone = self.peers[at], self.model.undone.get((pattern_id, self.peers[at].name), 0)
        if undone < self.model.seen.get((pattern_id, peer.name), 0):
            self.model.undone[pattern_id, peer.name] = undone + 1
            peer.write(edits.undo(peer.record(pattern_id), peer.name, {"seen": {f"{undone:016x}": 1}}))

    @rule(at=peers, pattern_id=ids)
    def restore(self, at: int, pattern_id: str) -> None:
        """A retired lesson is put back: an add, and nothing counted."""
        peer, stamp = self.peers[at], self.peers[at].tick()
        peer.write(edits.restore(peer.record(pattern_id), peer.name, stamp), self._add(peer, pattern_id))
        assert self.is_present(peer, pattern_id), "what was just put back is in"

    def _add(self, peer: Peer, pattern_id: str) -> Added:
        own = peer.tags.setdefault(pattern_id, set())
        added = Added(self.model.tag(), pattern_id, frozenset(own))
        own.add(added.tag)
        return added

    @rule(at=peers, pattern_id=ids)
    def remove(self, at: int, pattern_id: str) -> None:
        """What is in sight is taken out."""
        peer = self.peers[at]
        seen = {op for op in peer.known if isinstance(op, Added) and op.id == pattern_id}
        tags = frozenset({op.tag for op in seen} | {tag for op in seen for tag in op.replaces})
        line = self.retire(peer.record(pattern_id), peer.name)
        peer.write(line, Removed(self.model.tag(), pattern_id, tags))
        assert not self.is_present(peer, pattern_id), "what was just retired is out"

    @rule(at=peers, pattern_id=ids, field=fields, value=values)
    def edit(self, at: int, pattern_id: str, field: str, value: Any) -> None:
        """A field is set, knowing what it held."""
        peer, stamp = self.peers[at], self.peers[at].tick()
        line = edits.set_field(peer.record(pattern_id), field, value, peer.name, stamp, FOREVER)
        peer.write(line, Wrote(self.model.tag(), pattern_id, field, stamp, peer.name, value))
        written = canonical(self.fold(peer.record(pattern_id)).fields[field])
        assert written == canonical(value), "an edit wins over all that its writer had read"

    @rule(writer=peers, reader=peers, data=st.data())
    def deliver(self, writer: int, reader: int, data: st.DataObject) -> None:
        """Some of the lines of one reach another, in any order, some of them twice."""
        lines = self.peers[writer].lines
        if lines:
            for number in data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=6)):
                self.peers[reader].read(lines[number])

    @rule(at=peers)
    def compact(self, at: int) -> None:
        """The edition takes the place of the replica's own lines."""
        peer = self.peers[at]
        peer.lines = [
            Sent(raw, frozenset(op for op in peer.known if op.id == codec.decode(raw).id))
            for raw in peer.edition().splitlines()
        ]

    @rule(writer=peers, reader=peers)
    def send_what_is_missing(self, writer: int, reader: int) -> None:
        """The delta that one record has beyond another stands for all that its writer knows."""
        mine, theirs = self.peers[writer], self.peers[reader]
        for pattern_id, line in mine.records.items():
            news = codec.difference(line, theirs.records.get(pattern_id))
            known = frozenset(op for op in mine.known if op.id == pattern_id)
            if news is not None:
                theirs.read(Sent(codec.encode(news), known))
            theirs.known |= known

    @rule(at=peers, ms=st.sampled_from((-3650 * DAY_MS, -DAY_MS, -1, 1, 60_000, DAY_MS, 3650 * DAY_MS)))
    def jump(self, at: int, ms: int) -> None:
        """A wall clock is set."""
        self.peers[at].wall_ms = max(self.peers[at].wall_ms + ms, 0)

    @rule()
    def deliver_everything(self) -> None:
        """All lines reach all replicas: now they must agree, byte for byte."""
        everything = [sent for peer in self.peers for sent in peer.lines]
        for number, peer in enumerate(self.peers):
            for sent in everything[:: -1 if number == 1 else 1]:
                peer.read(sent)
        assert len({peer.edition() for peer in self.peers}) == 1
        for peer in self.peers:
            for pattern_id in IDS:
                for name in REPLICAS:
                    counted = peer.record(pattern_id).w.get(name, NOTHING).n.get("seen", 0)
                    assert counted == self.model.seen.get((pattern_id, name), 0)
                    stands = self.fold(peer.record(pattern_id)).own("seen", name)
                    assert stands == counted - self.model.undone.get((pattern_id, name), 0)

    @invariant()
    def every_replica_sees_what_the_models_say(self) -> None:
        for peer in self.peers:
            for pattern_id in IDS:
                pattern = self.fold(peer.record(pattern_id))
                assert pattern.is_present == bool(self.model.alive(peer.known, pattern_id))
                for field in FIELDS:
                    value = canonical(pattern.fields[field]) if field in pattern.fields else None
                    assert value == self.model.value(peer.known, pattern_id, field)
                for name, total in pattern.totals.get("seen", {}).items():
                    assert total <= self.model.seen[pattern_id, name], "nobody counts what nobody saw"

    def teardown(self) -> None:
        self.deliver_everything()
        self.every_replica_sees_what_the_models_say()


TestFleet = Fleet.TestCase
TestFleet.settings = settings(stateful_step_count=30)
