"""Bugs of this kind of system, put back one at a time: each must make a test fail.

    python tests/mutants/run.py [NAME ...]

Works on a private copy of the tree, never on the tree itself. No pytest module on purpose: it takes minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SIM = ("tests/sim/test_histories.py",)
CLONES = ("tests/faults/test_clones.py",)


class Mutant(NamedTuple):
    """One bug: where it is put, what it replaces, and the tests that should tell."""

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]


MUTANTS = [
    Mutant(
        "a shard line is dropped though only other shards cover it",
        "fleet/share/tree.py",
        "not _is_covered(path, raw, base.edition)",
        "not _is_covered(path, raw, base.whole)",
        SIM,
    ),
    Mutant(
        "what a rewound remote lost is not kept",
        "fleet/share/tree.py",
        "held is None or not _is_covered(path, raw, held)]",
        "False]",
        SIM,
    ),
    Mutant(
        "a fetched tree is believed though it was taken in half",
        "fleet/share/exchange.py",
        '    workspace.state.put(mark="")\n',
        "    workspace.state.put(mark=mark)\n",
        SIM,
    ),
    Mutant(
        "the newest record is counted again at every settling",
        "fleet/learn/reconcile.py",
        "if record.at > newest]",
        "if record.at >= newest]",
        SIM,
    ),
    Mutant(
        "only one of several new records is counted",
        "fleet/learn/reconcile.py",
        ".get(replica, 0) + len(fresh)}}",
        ".get(replica, 0) + 1}}",
        (*SIM, "tests/cli", "tests/learn"),
    ),
    Mutant(
        "held parts are forgotten when the log is settled",
        "fleet/learn/reconcile.py",
        "    counted += [part.stamp for part in notebook.held if (part.id, part.key) == (pattern, replica)]\n",
        "",
        (*SIM, "tests/faults/test_clocks.py"),
    ),
    Mutant(
        "the oldest record of an entry counts, not the newest",
        "fleet/learn/reconcile.py",
        "if known is None or (record.at, record.replica) > (known.at, known.replica):",
        "if known is None:",
        CLONES,
    ),
    Mutant(
        "a torn last line swallows the next one",
        "fleet/keep/disk.py",
        'data = b"\\n" + data',
        "pass",
        (*SIM, "tests/faults/test_log_and_shard.py"),
    ),
    Mutant(
        "a short write is acknowledged",
        "fleet/keep/disk.py",
        "rest = rest[written:]",
        "break",
        ("tests/faults/test_log_and_shard.py",),
    ),
    Mutant(
        "a clock that went back issues old stamps",
        "fleet/keep/timekeeper.py",
        "clock.ticked(self._wall_ms(), max(self.issued, self.admitted))",
        "clock.nearest(self._wall_ms())",
        ("tests/faults/test_clocks.py", *SIM),
    ),
    Mutant(
        "a peer's clock that runs years ahead is believed",
        "fleet/keep/timekeeper.py",
        "        return Reading(limit, ",
        '        return Reading("~", ',
        ("tests/faults/test_clocks.py", *SIM),
    ),
    Mutant(
        "an edition folds what is far ahead of everybody else",
        "fleet/keep/notebook.py",
        "    return min(notebook.cut, clock.shifted(stamps[-2], 24 * MS_AN_HOUR))",
        "    return notebook.cut",
        ("tests/laws", "tests/faults/test_clocks.py", *SIM),
    ),
    Mutant(
        "a clone goes on writing under our id",
        "fleet/share/tree.py",
        "for replica in workspace.current_replicas():",
        "for replica in []:",
        CLONES,
    ),
    Mutant(
        "a copied folder goes on writing under the original's id",
        "fleet/keep/replica.py",
        "if mine and (mine[-1].machine, mine[-1].folder) == (machine, folder):",
        "if mine:",
        SIM,
    ),
    Mutant(
        "an edition is pushed over one that it was not made from",
        "fleet/share/exchange.py",
        "if any(workspace.store.read_base(path) != data for path, data in before.items()):",
        "if False:",
        CLONES,
    ),
    Mutant(
        "a secret in a hand-written line is sent",
        "fleet/share/gate.py",
        'found = [f"holds a secret',
        'found = [] if kinds else [f"holds a secret',
        ("tests/faults/test_sync.py",),
    ),
    Mutant(
        "lines of a newer version are lost by an edition",
        "fleet/keep/notebook.py",
        "            written += carried.get(pattern_id, [])\n",
        "",
        ("tests/laws/test_line_laws.py", "tests/faults/test_log_and_shard.py"),
    ),
    Mutant(
        "the same record imported on two machines counts twice",
        "fleet/learn/importing.py",
        "mark = hashlib.blake2b(item.identity.encode(), digest_size=4).hexdigest()\n    slot",
        "mark = os.urandom(4).hex()\n    slot",
        ("tests/cli/test_import.py",),
    ),
    Mutant(
        "a remove covers what it has not seen",
        "crdt/orset.py",
        "    return live(add, rem)\n\n\ndef covers",
        '    return dict.fromkeys(live(add, rem), "9000-01-01T00:00:00.000Z-0000")\n\n\ndef covers',
        ("tests/laws/test_orset.py", *SIM),
    ),
    Mutant(
        "a counter joins by sum",
        "crdt/gcounter.py",
        "            joined[replica] = total\n",
        "            joined[replica] = joined.get(replica, 0) + total\n",
        ("tests/laws/test_gcounter.py", *SIM),
    ),
    Mutant(
        "a tie between two writers ends differently here and there",
        "fleet/keep/line.py",
        "    return not lww.covers(register(mine, field), register(theirs, field))",
        "    return False",
        ("tests/laws/test_line_laws.py",),
    ),
    Mutant(
        "a lesson is acknowledged before it is on the disk",
        "fleet/keep/disk.py",
        "if is_durable:\n                    self._fsync(handle)\n                seen = _checked",
        "seen = _checked",
        ("tests/faults",),
    ),
]


def is_caught(mutant: Mutant, folder: Path) -> bool:
    """Put one bug into a copy of the tree; tell whether its tests notice."""
    path = folder / mutant.path
    text = path.read_text()
    if text.count(mutant.right) != 1:
        sys.exit(f"{mutant.name}: {mutant.path} has {text.count(mutant.right)} places like that; mend the mutant")
    changed = text.replace(mutant.right, mutant.wrong)
    path.write_text("import os\n" + changed if "os.urandom" in mutant.wrong else changed)
    try:
        tests = [test for test in mutant.tests if (folder / test).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode == 1
    finally:
        path.write_text(text)


def main() -> int:
    """Try all mutants, or those named; 0 when every one was caught."""
    chosen = [m for m in MUTANTS if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    os.environ.setdefault("FLEET_SIM_HISTORIES", "150")
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="fleet-mutants-") as name:
        folder = Path(name) / "fleet"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        if (ROOT.parent / "shared").is_dir():
            (Path(name) / "shared").symlink_to(ROOT.parent / "shared")
        for mutant in chosen:
            caught = is_caught(mutant, folder)
            survivors += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
