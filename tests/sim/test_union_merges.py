"""Histories of append, compact and `git merge-file --union` lose nothing.

People may merge the branch with plain git. Its union merge repeats lines, reorders them, and keeps lines that one side
compacted away. Joining the lines loses nothing then; a compaction that kept any one copy would. ``union.py`` merges as
git does, without a process for each merge, and is compared with git itself here.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

from fleet.model.line import Column, Line, decode, encode
from fleet.store.lines import PATTERNS
from tests.sim.people import Held
from tests.sim.union import merge_trees, union

HISTORIES = int(os.environ.get("FLEET_UNION_HISTORIES", "1000"))
BATCH = 100
COMPARED = 60
STAMP = "2026-11-21T00:00:{:02d}.{:03d}Z-0000"


def line_of(rng: random.Random, step: int, replica: str, totals: dict) -> Line:
    """Return the next line of a replica: an add with its count, a remove, or an edit."""
    pattern = f"p-{rng.randrange(3):016x}"
    stamp = STAMP.format(step // 1000, step % 1000)
    match rng.randrange(4):
        case 0:
            column = Column(rem={replica: stamp})
        case 1:
            column = Column(set={"category": (stamp, f"c{step}")})
        case _:
            totals[pattern, replica] = totals.get((pattern, replica), 0) + 1
            column = Column(add=stamp, n={"seen": totals[pattern, replica]}, first={"text": pattern})
    return Line(pattern, {replica: column})


def joined(*files: bytes) -> bytes:
    """Return the edition of all lines of some files."""
    held = Held()
    for file in files:
        for raw in file.splitlines():
            if raw:
                held.add(decode(raw))
    return held.edition(PATTERNS)


def git_union(folder: Path, mine: bytes, base: bytes, theirs: bytes) -> bytes:
    """Merge three versions as `merge=union` does."""
    for name, data in (("mine", mine), ("base", base), ("theirs", theirs)):
        (folder / name).write_bytes(data)
    done = subprocess.run(
        ["git", "merge-file", "--union", "-p", "mine", "base", "theirs"], cwd=folder, capture_output=True, check=True
    )
    return done.stdout


def keeps_everything(seed: int, compact=joined, merge=union) -> bool:
    """Run a history of one file with three writers; return whether the last merge has all that was ever written."""
    rng = random.Random(seed)
    totals: dict = {}
    written: list[bytes] = []
    base = b""
    for _round in range(4):
        sides = []
        for replica in ("a.00000001", "b.00000002", "c.00000003"):
            side = base
            for step in range(rng.randrange(4)):
                if rng.random() < 0.4:
                    side = compact(side)
                else:
                    raw = encode(line_of(rng, len(written) * 7 + step, replica, totals))
                    written.append(raw)
                    side += raw + b"\n"
            sides.append(side)
        merged = sides[0]
        for side in sides[1:]:
            merged = merge(merged, base, side)
        base = compact(merged) if rng.random() < 0.5 else merged
    return joined(base) == joined(b"\n".join(written))


@pytest.mark.parametrize("start", range(0, HISTORIES, BATCH))
def test_append_compact_and_union_merge_lose_nothing(start):
    lost = [seed for seed in range(start, min(start + BATCH, HISTORIES)) if not keeps_everything(seed)]
    assert not lost, f"seeds {lost}"


def test_append_compact_and_gits_own_union_merge_lose_nothing(tmp_path):
    def merge(*files: bytes) -> bytes:
        return git_union(tmp_path, *files)

    assert all(keeps_everything(seed, merge=merge) for seed in range(COMPARED // 6))


def test_a_compaction_that_keeps_an_arbitrary_copy_is_caught():
    def last_copy(file: bytes) -> bytes:
        kept = {decode(raw).id: raw for raw in file.splitlines() if raw}
        return b"".join(raw + b"\n" for raw in kept.values())

    assert not all(keeps_everything(seed, last_copy) for seed in range(10))


# --- union.py against git -------------------------------------------------------------------------------------------


def sorted_sides(rng: random.Random) -> list[bytes]:
    """Return three versions of a sorted file without repeats, as an edition is, some with a torn last line."""
    size = rng.choice([4, 8, 20, 40])
    base = {n for n in range(size) if rng.random() < 0.5}
    sides = []
    for version in (base, *(base ^ {rng.randrange(size) for _ in range(rng.randrange(6))} for _ in range(2))):
        data = b"".join(b"line %d\n" % n for n in sorted(version))
        sides.append(data[:-1] if data and rng.random() < 0.1 else data)
    base, mine, theirs = sides
    return [mine, base, theirs]


def test_a_union_merge_of_sorted_files_is_gits_byte_for_byte(tmp_path):
    for seed in range(COMPARED):
        files = sorted_sides(random.Random(seed))
        assert union(*files) == git_union(tmp_path, *files), f"seed {seed}"


def test_a_union_merge_of_any_files_keeps_what_either_side_wrote_as_gits_does(tmp_path):
    for seed in range(COMPARED // 2):
        rng = random.Random(seed)
        mine, base, theirs = (b"".join(b"%d\n" % rng.randrange(9) for _ in range(rng.randrange(9))) for _ in range(3))
        written = {*mine.split(), *theirs.split()} - {*base.split()}
        for merged in (union(mine, base, theirs), git_union(tmp_path, mine, base, theirs)):
            assert written <= {*merged.split()} <= {*mine.split(), *theirs.split()}, f"seed {seed}"


def test_a_merge_of_trees_keeps_what_one_side_took_out_and_the_other_changed():
    base = {"a": b"1\n", "b": b"1\n", "c": b"1\n"}
    mine = {"a": b"2\n", "b": b"1\n"}
    theirs = {"a": b"3\n", "c": b"2\n"}
    assert merge_trees(mine, base, theirs) == {"a": b"2\n3\n", "c": b"2\n"}
