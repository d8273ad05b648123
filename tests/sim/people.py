"""People at the remote with plain git: they rewind, revert, merge an old clone, tidy up, and write lines by hand.

None of them knows fleet's rules beyond the two that hold for a file: a line is added, or it goes where another covers
it. Every result is pushed as an ordinary commit on the head, but for the rewinds.
"""

import random
from collections.abc import Callable

from fleet.keep.discoveries import Findings
from fleet.keep.line import Line, encode
from fleet.keep.notebook import Notebook, edition_cut
from fleet.keep.reading import KINDS, PATTERNS, entries
from fleet.keep.store import Held
from fleet.share.memory import MemoryServer
from fleet.share.remote import Files, Mark
from fleet.share.tree import kind_of
from tests.sim.union import merge_trees

_BACK_MAX = 6


def held_in(tree: Files, cut: str = "~") -> Held:
    """Join all lines of a tree."""
    held = Held(Notebook(cut), Findings(cut))
    for path, data in sorted(tree.items()):
        kind = kind_of(path)
        if kind is not None:
            for _, entry in entries(kind, iter([data]), path, held.read):
                held.of(kind).add(entry)
    return held


class People:
    """All who come to the server by another way than fleet.

    Args:
        server: where they push.
        rng: decides what they do.
        cut: returns the latest stamp that a sane clock believes.
    """

    def __init__(self, server: MemoryServer, rng: random.Random, cut: Callable[[], str]) -> None:
        self.server = server
        self.rng = rng
        self.cut = cut
        self.written = 0
        self._merged: dict[Mark, Mark] = {}
        """The second parent of a merge."""

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
        """`git revert`: content goes back, history goes forward. The last commits, or one that is further down."""
        line = self._line(self.server.head)
        if len(line) < 2:
            return False
        back = self.rng.randint(1, min(_BACK_MAX, len(line) - 1))
        if self.rng.random() < 0.5:
            return self._commit(self.server.tree(line[back]))
        undone, before = self.server.tree(line[back - 1]), self.server.tree(line[back])
        return self._commit(merge_trees(self.server.tree(), undone, before))

    def merge(self, lesson_id: str) -> bool:
        """Merge a clone that stayed behind, or that a force-push left beside the branch, and push."""
        if not self.server.head:
            return False
        # Whatever was ever pushed may still be somebody's clone; the newer, the likelier.
        known = self.server.marks()
        mark = known[-1 - min(int(self.rng.expovariate(0.25)), len(known) - 1)]
        theirs = self.server.tree(mark)
        side = self.rng.choice([self._tidied, self._tidied, self._with_a_line, lambda tree, _: dict(tree)])
        mine = side(theirs, lesson_id)
        base = self._base(mark, self.server.head)
        # Without .gitattributes, which comes with the first edition, git leaves markers, and people push those too.
        markers = self.rng.random() < 0.2
        merged = merge_trees(mine, self.server.tree(base), self.server.tree(), markers=markers)
        if not self._commit(merged):
            return False
        self._merged[self.server.head] = mark
        return True

    def _tidied(self, tree: Files, _: str) -> Files:
        """Join some of the files into the editions, and drop the shards that these cover, as an older fleet would."""
        cut = edition_cut(held_in(tree, self.cut()).notebook)
        taken = {path for path in tree if kind_of(path) and ("/" not in path or self.rng.random() < 0.7)}
        held = held_in({path: tree[path] for path in taken}, cut)
        kept = {path: data for path, data in tree.items() if path not in taken}
        return kept | {kind.edition: held.of(kind).edition() for kind in KINDS}

    def _with_a_line(self, tree: Files, lesson_id: str) -> Files:
        """Append a line to the edition by hand."""
        self.written += 1
        slot, stamp = f"byhand.{self.written:08x}", "2026-11-20T00:00:00.000Z-0000"
        line = Line(id=lesson_id, at=stamp, by=slot, add={slot: stamp}, n={"seen": {slot: 1}})
        return {**tree, PATTERNS.edition: tree.get(PATTERNS.edition, b"") + encode(line) + b"\n"}

    def _commit(self, tree: Files) -> bool:
        if tree == self.server.tree():
            return False
        self.server.commit(tree)
        return True

    def _line(self, mark: Mark) -> list[Mark]:
        """Return a commit and its first parents, newest first."""
        found = []
        while mark:
            found.append(mark)
            mark = self.server.parent(mark)
        return found

    def _ancestors(self, mark: Mark) -> set[Mark]:
        found: set[Mark] = set()
        waiting = [mark]
        while waiting:
            if (each := waiting.pop()) and each not in found:
                found.add(each)
                waiting += [self.server.parent(each), self._merged.get(each, "")]
        return found

    def _base(self, one: Mark, other: Mark) -> Mark:
        """Return the newest commit that both histories have."""
        common = self._ancestors(one) & self._ancestors(other)
        return next((mark for mark in reversed(self.server.marks()) if mark in common), "")
