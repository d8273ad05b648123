"""Bugs of this kind of system, put back one at a time: each must make a test fail.

    python tests/mutants/run.py [NAME ...]

Works on a private copy of the tree, never on the tree itself. No pytest module on purpose: it takes minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SIM = ("tests/sim/test_histories.py",)
CLONES = ("tests/faults/test_clones.py",)
STORE = ("tests/store/test_ingest.py",)


class Mutant(NamedTuple):
    """One bug: where it is put, what it replaces, and the tests that should tell."""

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]


MUTANTS = [
    # --- what reaches a model ---
    Mutant(
        "a host's frame reaches a model as it stands",
        "fleet/text/screening.py",
        "    if _MAY_FRAME.isdisjoint(text):\n",
        "    if text is not None:\n",
        ("tests/cli/test_frames.py",),
    ),
    Mutant(
        "a peer's certain secret is left to who shows it",
        "fleet/app/sharing.py",
        "        _purge_received_secrets(workspace)\n",
        "        _purge_received_secrets(workspace) if promoted is None else None\n",
        ("tests/cli/test_sync_secrets.py",),
    ),
    Mutant(
        "a value behind a name in small letters is no secret",
        "fleet/text/credentials.py",
        "(_assigned, _loose, _compared, _signed, _typed, _translated)",
        "(_assigned, _signed, _typed, _translated)",
        ("tests/text/test_screening.py",),
    ),
    # --- the record ---
    Mutant(
        "a counter joins by sum",
        "crdt/gcounter.py",
        "            joined[replica] = total\n",
        "            joined[replica] = joined.get(replica, 0) + total\n",
        ("tests/laws/test_gcounter.py",),
    ),
    Mutant(
        "a remove covers what it has not seen",
        "crdt/orset.py",
        "    return live(add, rem)\n",
        '    return dict.fromkeys(live(add, rem), "9000-01-01T00:00:00.000Z-0000")\n',
        ("tests/laws/test_orset.py",),
    ),
    Mutant(
        "a tie between two edits ends differently here and there",
        "fleet/model/line.py",
        "or (edit[0] == than[0] and _is_larger(edit[1], than[1]))",
        "or edit[0] == than[0]",
        ("tests/laws/test_line_laws.py",),
    ),
    Mutant(
        "the time when a lesson was first seen moves on",
        "fleet/model/line.py",
        "    return bool(value < than) if field == AT else _is_larger(value, than)",
        "    return _is_larger(value, than)",
        ("tests/laws/test_line_laws.py",),
    ),
    Mutant(
        "a join brings a purged value back",
        "fleet/model/line.py",
        "    return Line(mine.id, _without_purged(columns, marks)) if marks else joined",
        "    return joined",
        ("tests/laws/test_line_laws.py",),
    ),
    Mutant(
        "a delta forgets what was retired",
        "fleet/model/line.py",
        '        rem={writer: stamp for writer, stamp in self.rem.items() if stamp > base.rem.get(writer, "")},\n',
        "",
        ("tests/laws/test_line_laws.py",),
    ),
    Mutant(
        "an add beyond the cut is left out of the fold",
        "fleet/model/pattern.py",
        "for writer, column in columns.items() if column.add}",
        "for writer, column in columns.items() if column.add and column.add <= policy.cut}",
        ("tests/laws/test_folds.py",),
    ),
    Mutant(
        "a replaced edit from the future comes back when its time has come",
        "fleet/model/pattern.py",
        '    replaced = line.marks("over")\n',
        '    replaced = Line(line.id).marks("over")\n',
        ("tests/laws/test_folds.py",),
    ),
    Mutant(
        "an edit names no edit from the future that it replaces",
        "fleet/model/edits.py",
        "column.set[field][0] > min(cut, stamp)",
        'column.set[field][0] > "~"',
        ("tests/laws/test_edits.py",),
    ),
    Mutant(
        "a purge covers later honest edits",
        "fleet/model/edits.py",
        "column.set[field][0] if field in column.set else clock.ZERO",
        "stamp if field in column.set else clock.ZERO",
        ("tests/laws/test_edits.py",),
    ),
    Mutant(
        "an own total begins anew with each log",
        "fleet/model/edits.py",
        "own.n.get(name, 0) + step",
        "step",
        ("tests/laws/test_edits.py",),
    ),
    # --- counting the log ---
    Mutant(
        "the newest record is counted again at every counting",
        "fleet/learn/counting.py",
        "record.at > line.counted_up_to(replica)",
        "record.at >= line.counted_up_to(replica)",
        ("tests/learn", "tests/cli"),
    ),
    Mutant(
        "only one of several new records is counted",
        "fleet/learn/counting.py",
        "            seen=len(own),\n",
        "            seen=min(len(own), 1),\n",
        ("tests/learn", *SIM),
    ),
    Mutant(
        "an entry written by hand counts once for each copy of its log",
        "fleet/learn/counting.py",
        "if not record.part and not is_private]",
        "if not is_private]",
        CLONES,
    ),
    Mutant(
        "the same record imported on two machines counts twice",
        "fleet/learn/importer.py",
        "hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()",
        "os.urandom(4).hex()",
        ("tests/cli/test_import.py",),
    ),
    # --- files and clock ---
    Mutant(
        "a torn last line swallows the next one",
        "fleet/store/files.py",
        'data = b"\\n" + data',
        "pass",
        ("tests/faults/test_log_and_shard.py",),
    ),
    Mutant(
        "a short write is acknowledged",
        "fleet/store/files.py",
        "rest = rest[written:]",
        "break",
        ("tests/faults/test_log_and_shard.py", "tests/faults/test_durability.py"),
    ),
    Mutant(
        "a lesson is acknowledged before it is on the disk",
        "fleet/store/files.py",
        "                    if is_durable:\n",
        "                    if False:\n",
        ("tests/faults/test_durability.py",),
    ),
    Mutant(
        "two processes hold a lock at once",
        "fleet/store/files.py",
        "            _wait_for(handle, path, wait_s)\n            yield\n",
        "            yield\n",
        ("tests/faults/test_log_and_shard.py", "tests/faults/test_many_writers.py", "tests/cli/test_during_a_sync.py"),
    ),
    Mutant(
        "a clock that went back issues old stamps",
        "fleet/store/replica.py",
        "clock.ticked(self._wall_ms(), max(self.issued(), self._newest(), _RELEASED))",
        "clock.nearest(self._wall_ms())",
        ("tests/faults/test_clocks.py",),
    ),
    Mutant(
        "a peer's clock that runs years ahead is believed",
        "fleet/store/replica.py",
        "            return clock.nearest(wall_ms + _AHEAD_MS_MAX)",
        '            return "~"',
        ("tests/faults/test_clocks.py",),
    ),
    Mutant(
        "a copied folder goes on writing under the original's id",
        "fleet/store/replica.py",
        "return own[-1] if own and own[-1].folder == folder else None",
        "return own[-1] if own else None",
        CLONES,
    ),
    # --- the database ---
    Mutant(
        "a file with another beginning is read on from where it was read to",
        "fleet/store/ingest.py",
        "return self._running.digest() == hash_",
        "return True",
        STORE,
    ),
    Mutant(
        "a file that is written twice within a tick of its clock is read once",
        "fleet/store/files.py",
        "or time.time_ns() - newest < tick:",
        "or newest < 0:",
        ("tests/store/test_fingerprint.py",),
    ),
    Mutant(
        "a changed row of the database is believed",
        "fleet/store/database.py",
        "if not isinstance(line, bytes) or checksum(line) != hash_:",
        "if not isinstance(line, bytes):",
        ("tests/store/test_fingerprint.py",),
    ),
    Mutant(
        "what is written here never goes out",
        "fleet/store/rows.py",
        "            batch.new_bases[record_id] = None if row is None else row.data\n",
        "            batch.new_bases[record_id] = data\n",
        STORE,
    ),
    Mutant(
        "a carried line leaves with a tree that does not descend from the one that had it",
        "fleet/store/rows.py",
        "        if goes_on:",
        "        if True:",
        STORE,
    ),
    Mutant(
        "files lose lines before others gain them",
        "fleet/store/ingest.py",
        "self._put(self.clan / plan.path, self._blocks(rows, plan, plan.leaving), ",
        "self._put(self.clan / plan.path, self._blocks(rows, plan), ",
        ("tests/sim/test_found.py",),
    ),
    # --- what goes out ---
    Mutant(
        "a shard line is dropped though no edition covers it",
        "fleet/share/outgoing.py",
        "if missing_of(edition.get(name_of(entry)), entry) is None}",
        "if name_of(entry) in edition}",
        SIM,
    ),
    Mutant(
        "a private lesson leaves",
        "fleet/share/outgoing.py",
        'is_private = isinstance(entry, Line) and fold(entry).scope == "private"',
        "is_private = False",
        ("tests/faults/test_sync.py", *SIM),
    ),
    Mutant(
        "a secret in a hand-written line is sent",
        "fleet/share/outgoing.py",
        '    found = [f"holds a secret',
        '    found = [] if kinds else [f"holds a secret',
        ("tests/faults/test_sync.py",),
    ),
    Mutant(
        "a clone goes on writing under our id",
        "fleet/share/exchange.py",
        "if news := _new_lines_of_ours(workspace, before, after):",
        "if news := []:",
        CLONES,
    ),
    Mutant(
        "an edition is pushed over one that it was not made from",
        "fleet/share/exchange.py",
        "if any(now.get(path) != paths.get(path) for path in files):",
        "if False:",
        CLONES,
    ),
    Mutant(
        "lessons are sent to a remote that nobody here agreed to",
        "fleet/app/sharing.py",
        "if not self._state.agrees(consent.REMOTE, share.consented(address.bare)):",
        "if False:",
        ("tests/cli/test_consent.py",),
    ),
    # --- what becomes permanent ---
    Mutant(
        "those who had read a lesson are evidence for it",
        "fleet/reflect/evidence.py",
        "total - relapsed.get(writer, 0)",
        "total",
        ("tests/reflect/test_evidence.py",),
    ),
    Mutant(
        "an entry copied to another agent's log is evidence twice",
        "fleet/reflect/evidence.py",
        "        counted_entries |= entries.keys()\n",
        "",
        ("tests/reflect/test_evidence.py",),
    ),
]


def caught_by(mutant: Mutant, folder: Path) -> str:
    """Put one bug into a copy of the tree; return the test that notices, "" for none."""
    path = folder / mutant.path
    text = path.read_text()
    if text.count(mutant.right) != 1:
        sys.exit(f"{mutant.name}: {mutant.path} has {text.count(mutant.right)} places like that; mend the mutant")
    changed = text.replace(mutant.right, mutant.wrong)
    path.write_text("import os\n" + changed if "os.urandom" in mutant.wrong else changed)
    try:
        return failure_of(mutant.tests, folder)
    finally:
        path.write_text(text)


def failure_of(tests: Sequence[str], folder: Path) -> str:
    """Run tests until one fails; return it, "" where all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    told = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return told[0] if told else "" if done.returncode == 0 else f"pytest ended with {done.returncode}"


def main() -> int:
    """Try all mutants, or those named; 0 when every one was caught, and by nothing that fails without it."""
    chosen = [m for m in MUTANTS if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    os.environ.setdefault("FLEET_SIM_HISTORIES", "150")
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="fleet-mutants-") as name:
        folder = Path(name) / "fleet"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        if (ROOT.parent / "shared").is_dir():
            (Path(name) / "shared").symlink_to(ROOT.parent / "shared")
        if failure := failure_of(sorted({test for mutant in chosen for test in mutant.tests}), folder):
            sys.exit(f"without any mutant: {failure}")
        for mutant in chosen:
            failure = caught_by(mutant, folder)
            survivors += not failure
            print(f"{'caught  ' if failure else 'SURVIVED'}  {mutant.name}  {failure}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
