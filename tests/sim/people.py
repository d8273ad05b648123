"""People at the remote with plain git: they rewind, revert, merge an old clone, tidy up, and write lines by hand.

Of fleet's rules they keep two: a line may be added, and it may be taken out if another line covers it. All but a
rewind is pushed as an ordinary commit on the head.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.line import Carried, Line
from fleet.share.remote import Files, Mark
from fleet.store.lines import DISCOVERIES, KINDS, PATTERNS, Entry, Kind, LineReader
from tests.memory_remote import MemoryServer
from tests.sim.union import merge_trees

_BACK_MAX = 6
BY_HAND = "byhand"
"""The agent in the writer's name of the lines that people write."""


@dataclass
class Held:
    """The join of some lines: all that a reader of exactly these lines knows."""

    records: dict[str, Line] = field(default_factory=dict)
    discoveries: dict[str, Discovery] = field(default_factory=dict)
    carried: dict[str, bytes] = field(default_factory=dict)
    """The lines of a newer version, each under its hash."""

    def add(self, entry: Entry) -> None:
        """Join one entry."""
        if isinstance(entry, Line):
            known = self.records.get(entry.id)
            self.records[entry.id] = entry if known is None else codec.join(known, entry)
        elif isinstance(entry, Discovery):
            known = self.discoveries.get(entry.id)
            self.discoveries[entry.id] = entry if known is None else known.joined(entry)
        else:
            self.carried[entry.hash] = entry.raw

    def without_purged(self) -> "Held":
        """Return the same without the carried lines that were purged."""
        gone = {part for record in self.records.values() for part in record.purged_carried()}
        carried = {part: raw for part, raw in self.carried.items() if part not in gone}
        return Held(self.records, self.discoveries, carried)

    def covers(self, entry: Entry) -> bool:
        """Return whether an entry is known or purged here."""
        if isinstance(entry, Line):
            return entry.id in self.records and codec.covers(self.records[entry.id], entry)
        if isinstance(entry, Discovery):
            known = self.discoveries.get(entry.id)
            return known is not None and known.joined(entry) == known
        purged = (record.purged_carried() for record in self.records.values())
        return entry.hash in self.carried or any(entry.hash in each for each in purged)

    def entries(self) -> Iterable[Entry]:
        """Return all that is known."""
        carried = (Carried("", raw) for raw in self.carried.values())
        return [*self.records.values(), *self.discoveries.values(), *carried]

    def edition(self, kind: Kind) -> bytes:
        """Return the canonical bytes of one kind."""
        if kind is DISCOVERIES:
            found = sorted((each.at, each.id, DISCOVERIES.encode(each)) for each in self.discoveries.values())
            raws = [raw for *_, raw in found] + sorted(raw for raw in self.carried.values() if _is_about_it(raw))
        else:
            parts = [(each, raw) for each, record in self.records.items() for raw in codec.split(record)]
            parts += [(json.loads(raw)["id"], raw) for raw in self.carried.values() if not _is_about_it(raw)]
            raws = [raw for _, raw in sorted(parts)]
        return b"".join(raw + b"\n" for raw in raws)

    def canonical(self) -> bytes:
        """Return bytes that are equal just when two know the same."""
        lines = [codec.encode(record) for _, record in sorted(self.records.items())]
        lines += [DISCOVERIES.encode(each) for _, each in sorted(self.discoveries.items())]
        return b"\n".join([*lines, *sorted(self.carried.values())])


def _is_about_it(raw: bytes) -> bool:
    return json.loads(raw)["id"].startswith("d-")


def held_in(tree: Files) -> Held:
    """Join all lines of a tree."""
    held = Held()
    for path, data in sorted(tree.items()):
        kind = Kind.of(path)
        if kind is not None:
            for _, entry in LineReader().entries(kind, [data], path):
                held.add(entry)
    return held.without_purged()


class People:
    """All who push to the server without fleet.

    Args:
        server: the git server they push to.
        rng: decides what they do.
    """

    def __init__(self, server: MemoryServer, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.written = 0

    def rewind(self) -> bool:
        """Force the head back, or delete the branch."""
        if not self.server.head:
            return False
        if self.rng.random() < 0.2:
            self.server.delete()
        else:
            self.server.rewind(self.rng.randint(1, min(3, len(self._line(self.server.head)))))
        return True

    def revert(self) -> bool:
        """Undo the last commits, or a single older one, with a new commit, as `git revert` does."""
        line = self._line(self.server.head)
        if len(line) < 2:
            return False
        back = self.rng.randint(1, min(_BACK_MAX, len(line) - 1))
        if self.rng.random() < 0.5:
            return self._commit(self.server.tree(line[back]))
        undone, before = self.server.tree(line[back - 1]), self.server.tree(line[back])
        return self._commit(merge_trees(self.server.tree(), undone, before))

    def merge(self, lesson_id: str) -> bool:
        """Merge an old clone, maybe one that a force-push left beside the branch, and push."""
        if not self.server.head:
            return False
        # Any commit ever pushed may still be somebody's clone; a newer one is likelier.
        known = self.server.marks()
        mark = known[-1 - min(int(self.rng.expovariate(0.25)), len(known) - 1)]
        theirs = self.server.tree(mark)
        side = self.rng.choice([self._tidied, self._tidied, self._with_a_line, lambda tree, _: dict(tree)])
        mine = side(theirs, lesson_id)
        base = self._base(mark, self.server.head)
        # The first edition brings .gitattributes. Before it git leaves conflict markers, and people push those too.
        markers = self.rng.random() < 0.2
        merged = merge_trees(mine, self.server.tree(base), self.server.tree(), markers=markers)
        return self._commit(merged, mark)

    def carry(self, raw: bytes) -> bool:
        """Push a line of a newer version, in a shard of its own or in the edition."""
        path = self.rng.choice([PATTERNS.edition, f"patterns.d/{BY_HAND}.{self.rng.getrandbits(32):08x}.jsonl"])
        tree = self.server.tree()
        return self._commit(tree | {path: _ended(tree.get(path, b"")) + raw + b"\n"})

    def supersede(self, raw: bytes) -> bool:
        """Take a line of a newer version out of the whole tree, as a fleet that understands it may."""
        tree = self.server.tree()
        return self._commit({path: _without(data, raw) for path, data in tree.items()})

    def _tidied(self, tree: Files, _: str) -> Files:
        """Join some of the files into the editions and drop the shards among them, as an older fleet would."""
        taken = {path for path in tree if Kind.of(path) and ("/" not in path or self.rng.random() < 0.7)}
        held = held_in({path: tree[path] for path in taken})
        kept = {path: data for path, data in tree.items() if path not in taken}
        return kept | {kind.edition: held.edition(kind) for kind in KINDS}

    def _with_a_line(self, tree: Files, lesson_id: str) -> Files:
        """Append a line to the edition by hand."""
        self.written += 1
        slot, stamp = f"{BY_HAND}.{self.written:08x}", "2026-11-20T00:00:00.000Z-0000"
        column = {"add": stamp, "n": {"seen": 1}}
        raw = json.dumps({"id": lesson_id, "w": {slot: column}}, sort_keys=True, separators=(",", ":")).encode()
        return {**tree, PATTERNS.edition: _ended(tree.get(PATTERNS.edition, b"")) + raw + b"\n"}

    def _commit(self, tree: Files, merged: Mark = "") -> bool:
        tree = {path: data for path, data in tree.items() if data}
        if tree == self.server.tree():
            return False
        self.server.commit(tree, merged)
        return True

    def _line(self, mark: Mark) -> list[Mark]:
        """Return a commit and its first parents, newest first."""
        found = []
        while mark:
            found.append(mark)
            mark = self.server.parent(mark)
        return found

    def _base(self, one: Mark, other: Mark) -> Mark:
        """Return the newest commit that is in both histories."""
        common = self.server.ancestors(one) & self.server.ancestors(other)
        return next((mark for mark in reversed(self.server.marks()) if mark in common), "")


def _ended(data: bytes) -> bytes:
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _without(data: bytes, raw: bytes) -> bytes:
    return b"".join(each for each in data.splitlines(keepends=True) if each.rstrip(b"\n") != raw)
