"""Fault 17 of FAULTS: a million lines load within the budget, and right.

A minute and 2.5 GB of memory: only with FLEET_BIG=1.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = int(os.environ.get("FLEET_BIG_LINES", "1000000"))
CONFIRMED = LINES // 100
BYTES_A_LINE_MAX = 500  # of the process's memory: half a gigabyte for a million
INTERPRETER_BYTES = 40_000_000
REPLICAS = [f"agent{n}.{n:08x}" for n in range(20)]
SAID = "always pin the image digest by hash before the build and quote every path that comes from user input"
WORDS = SAID.split()

pytestmark = pytest.mark.skipif(os.environ.get("FLEET_BIG") != "1", reason="a million lines take a minute: FLEET_BIG=1")

LOAD = """
import json, resource, sys
from pathlib import Path
from fleet.store.workspace import Workspace

workspace = Workspace(Path(sys.argv[1]))
count = workspace.patterns.count()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
asked = [workspace.patterns.get(f"p-{number:016x}") for number in map(int, sys.argv[2].split())]
found = [(each.text, each.count("seen")) for each in asked]
print(json.dumps({"count": count, "refused": len(workspace.db.refused()), "peak": peak, "found": found}))
"""


def stamp(number: int) -> str:
    return (
        f"2026-{1 + number % 10:02}-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00.{number % 1000:03}Z-0000"
    )


def text(number: int) -> str:
    return f"{' '.join(WORDS[(number + n) % len(WORDS)] for n in range(12))} {number}"


def confirmations(number: int) -> dict[str, int]:
    """Return who has seen a lesson how often: one to four replicas."""
    return {REPLICAS[(number * 7 + n * 3) % 20]: 1 + (number + n) % 9 for n in range(1 + number % 4)}


def edition() -> Iterator[bytes]:
    """Yield the lines of an edition, some 700 bytes each, as fleet would write them."""
    for number in range(LINES):
        seen = sorted(confirmations(number).items())
        said = {"category": "ci", "correct": SAID, "tags": ["build", "image"], "text": text(number)}
        columns = {
            replica: {"add": stamp(number), **({} if at else {"first": said}), "n": {"seen": count, "sessions": count}}
            for at, (replica, count) in enumerate(seen)
        }
        line = {"id": f"p-{number:016x}", "w": columns}
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def shard(replica: str) -> Iterator[bytes]:
    """Yield lines with which a newcomer confirms every hundredth lesson."""
    for number in range(0, LINES, 100):
        line = {"id": f"p-{number:016x}", "w": {replica: {"add": stamp(number), "n": {"seen": 1}}}}
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def test_a_million_lines_load_within_the_budget_and_right(tmp_path):
    clan, newcomer = tmp_path / "clan-learnings", "newcomer.000000ff"
    (clan / "patterns.d").mkdir(parents=True)
    (tmp_path / "fleet.toml").write_text("")
    for path, lines in ((clan / "patterns.jsonl", edition()), (clan / f"patterns.d/{newcomer}.jsonl", shard(newcomer))):
        with path.open("wb") as file:
            file.writelines(lines)
    asked = [number * (LINES // 500) for number in range(500)] + [LINES - 1]
    words = [sys.executable, "-c", LOAD, str(tmp_path), " ".join(map(str, asked))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(f"{LINES:,} lines: {found['peak'] / 1e6:,.0f} MB")
    assert found["count"] == LINES
    assert found["refused"] == 0
    for number, (said, seen) in zip(asked, found["found"], strict=True):
        assert said == text(number)
        assert seen == sum(confirmations(number).values()) + (number % 100 == 0)
    assert found["peak"] < INTERPRETER_BYTES + LINES * BYTES_A_LINE_MAX
