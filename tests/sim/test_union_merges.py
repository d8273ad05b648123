"""Histories of append, compact and real `git merge-file --union` lose nothing, whoever keeps the files.

People may merge the branch with plain git. Its union merge repeats lines, reorders them, and keeps lines that one side
compacted away. The join does not mind; an arbitrary copy kept by a compaction would.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

from fleet.keep.line import Line, decode, encode
from fleet.keep.notebook import Notebook

HISTORIES = int(os.environ.get("FLEET_UNION_HISTORIES", "60"))
STAMP = "2026-11-21T00:00:{:02d}.{:03d}Z-0000"


def line_of(rng: random.Random, step: int, replica: str, totals: dict) -> Line:
    """Return the next line of a replica: an add with its count, a remove of what stands, or an edit."""
    pattern = f"p-{rng.randrange(3):016x}"
    stamp = STAMP.format(step // 1000, step % 1000)
    match rng.randrange(4):
        case 0:
            return Line(id=pattern, at=stamp, by=replica, rem={replica: stamp})
        case 1:
            return Line(
                id=pattern, set={"category": f"c{step}"}, when={"category": (stamp, replica)}, at=stamp, by=replica
            )
        case _:
            totals[pattern, replica] = totals.get((pattern, replica), 0) + 1
            seen = {"seen": {replica: totals[pattern, replica]}}
            return Line(id=pattern, at=stamp, by=replica, add={replica: stamp}, n=seen, set={"text": pattern})


def joined(*files: bytes) -> Notebook:
    """Return the join of all lines of some files."""
    notebook = Notebook()
    for file in files:
        notebook.add_all(decode(raw) for raw in file.splitlines() if raw)
    return notebook


def union(folder: Path, mine: bytes, base: bytes, theirs: bytes) -> bytes:
    """Merge three versions as `merge=union` does."""
    for name, data in (("mine", mine), ("base", base), ("theirs", theirs)):
        (folder / name).write_bytes(data)
    done = subprocess.run(
        ["git", "merge-file", "--union", "-p", "mine", "base", "theirs"], cwd=folder, capture_output=True, check=True
    )
    return done.stdout


def keeps_everything(seed: int, folder: Path, compact=lambda file: joined(file).edition()) -> bool:
    """Run one history on one file with three writers; tell whether the last merge has all that was ever written."""
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
            merged = union(folder, merged, base, side)
        base = compact(merged) if rng.random() < 0.5 else merged
    return joined(base).edition() == joined(b"\n".join(written)).edition()


@pytest.mark.parametrize("start", range(0, HISTORIES, 20))
def test_append_compact_and_union_merge_lose_nothing(start, tmp_path):
    lost = [seed for seed in range(start, min(start + 20, HISTORIES)) if not keeps_everything(seed, tmp_path)]
    assert not lost, f"seeds {lost}"


def test_a_compaction_that_keeps_an_arbitrary_copy_is_caught(tmp_path):
    def last_copy(file: bytes) -> bytes:
        kept = {decode(raw).id: raw for raw in file.splitlines() if raw}
        return b"".join(raw + b"\n" for raw in kept.values())

    assert not all(keeps_everything(seed, tmp_path, last_copy) for seed in range(10))
