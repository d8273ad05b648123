"""Each figure with its peers or its floor, in one run: ``make bench``. Ratios count; seconds depend on the machine.

Every measurement runs in a process of its own (peak memory is that process's), the median of several runs is shown, and
a row that does not meet its aim says so.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    """One line of the table."""

    work: str
    ours: str
    against: str
    ratio: str
    aim: str
    is_met: bool | None


# What is measured, each in a process of its own: ``python -m benchmarks.run --measure NAME``.


def timed(work: Callable[[], object], runs: int = 5) -> float:
    """Return the median seconds of some work."""
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        kept = work()
        took.append(time.perf_counter() - began)
        del kept
    return statistics.median(took)


def store_with(count: int, cache: Path):
    """Return a store in a fresh folder that holds an edition of so many patterns."""
    from benchmarks.data import cached
    from fleet.keep.disk import Disk
    from fleet.keep.store import Store

    root = Path(tempfile.mkdtemp(prefix="fleet-bench-", dir=cache))
    (root / "clan").mkdir()
    shutil.copy(cached(count, cache), root / "clan" / "patterns.jsonl")
    return Store(Disk(root), root / "clan", root / ".fleet" / "base")


def load_first(cache: Path, count: int) -> float:
    """Load an edition that nobody has checked yet."""

    def work() -> object:
        (store.base.parent / "trusted.json").unlink(missing_ok=True)
        return store.load("~")

    store = store_with(count, cache)
    return timed(work, 3)


def load_again(cache: Path, count: int) -> float:
    """Load an edition that this machine has checked before."""
    store = store_with(count, cache)
    store.load("~")
    return timed(lambda: store.load("~"))


def msgspec_decodes(cache: Path, count: int) -> float:
    """Decode the same bytes into the same records, and nothing else."""
    import msgspec

    from benchmarks.data import cached
    from fleet.keep.line import Line

    data = cached(count, cache).read_bytes()
    decoder = msgspec.json.Decoder(Line)
    return timed(lambda: decoder.decode_lines(data))


def as_values(cache: Path, count: int) -> list[dict]:
    """Return the patterns as plain values, for the peers."""
    from benchmarks.data import cached

    return [json.loads(line) for line in cached(count, cache).read_bytes().splitlines()]


def loro_reads(cache: Path, count: int) -> float:
    """Read the same patterns from a Loro snapshot, to values."""
    import loro

    made = loro.LoroDoc()
    patterns = made.get_map("patterns")
    for value in as_values(cache, count):
        patterns.insert(value["id"], value)
    made.commit()
    snapshot = made.export(loro.ExportMode.Snapshot())

    def work() -> object:
        doc = loro.LoroDoc()
        doc.import_(snapshot)
        return doc.get_deep_value()

    return timed(work, 3)


def pycrdt_reads(cache: Path, count: int) -> float:
    """Read the same patterns from a Yjs update, to values."""
    import pycrdt

    made = pycrdt.Doc()
    patterns = made.get("patterns", type=pycrdt.Map)
    with made.transaction():
        for value in as_values(cache, count):
            patterns[value["id"]] = value
    update = made.get_update()

    def work() -> object:
        doc = pycrdt.Doc()
        doc.apply_update(update)
        return doc.get("patterns", type=pycrdt.Map).to_py()

    return timed(work, 3)


def peak_of_load(cache: Path, count: int) -> float:
    """Load once, checking every line, and return this process's peak in MB."""
    from fleet.keep.disk import Disk
    from fleet.keep.store import Store

    root = Path(tempfile.mkdtemp(prefix="fleet-bench-", dir=cache))
    (root / "clan").mkdir()
    os.link(cache / f"edition-{count}.jsonl", root / "clan" / "patterns.jsonl")
    held = Store(Disk(root), root / "clan", root / ".fleet" / "base").load("~")
    assert len(held.notebook.patterns) == count
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def log_in_process(cache: Path, count: int) -> float:  # noqa: ARG001
    """Log one correction in a running process."""
    from fleet.keep import config
    from fleet.keep.workspace import Workspace
    from fleet.learn.corrections import Correction, correct

    root = Path(tempfile.mkdtemp(prefix="fleet-bench-", dir=cache))
    (root / "fleet.toml").write_text(config.render("", "fleet"))
    workspace = Workspace(root)
    numbers = iter(range(1_000_000))

    def work() -> None:
        correct(workspace, "velma", Correction("w", "r", f"lesson {next(numbers)}"), session="s")

    work()
    return timed(work, 51)


def append_bare(cache: Path, count: int) -> float:  # noqa: ARG001
    """Append and fsync as many bytes as one entry has."""
    path = Path(tempfile.mkdtemp(prefix="fleet-bench-", dir=cache)) / "log"
    entry = b"x" * 330

    def work() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, entry)
        os.fsync(handle)
        os.close(handle)

    return timed(work, 51)


MEASURES = {
    work.__name__: work
    for work in (
        load_first,
        load_again,
        msgspec_decodes,
        loro_reads,
        pycrdt_reads,
        peak_of_load,
        log_in_process,
        append_bare,
    )
}


def measure(name: str, cache: Path, count: int) -> float:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--measure", name, "--count", str(count), "--cache", str(cache)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)


def whole(words: list[str], folder: Path, runs: int = 21) -> float:
    """Return the median seconds of a whole process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}

    def work() -> None:
        subprocess.run(words, cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)

    return timed(work, runs)


def clan_of(count: int, cache: Path) -> Path:
    """Return a workspace with so many patterns that has synced once with a bare repository."""
    from benchmarks.data import cached

    folder = Path(tempfile.mkdtemp(prefix=f"fleet-bench-{count}-", dir=cache))
    subprocess.run(["git", "init", "--quiet", "--bare", "clan.git"], cwd=folder, check=True)
    for agent in ("velma", "tank"):
        (folder / agent).mkdir()
        fleet(folder / agent, "init", "--agent", agent, "--remote", str(folder / "clan.git"), "--yes")
    shutil.copy(cached(count, cache), folder / "velma" / "clan-learnings" / "patterns.jsonl")
    for agent in ("velma", "tank", "velma"):
        fleet(folder / agent, "sync")
    return folder


def fleet(folder: Path, *words: str) -> None:
    """Run one fleet command."""
    whole([sys.executable, "-m", "fleet", *words], folder, runs=1)


def sync_of_one_line(folder: Path) -> float:
    """Return the median seconds of a sync that sends one line and receives one."""
    took = []
    for number in range(7):
        for agent in ("velma", "tank"):
            lesson = f"bench {agent} {number} {time.time_ns()}"
            fleet(folder / agent, "correct", "--wrong", "w", "--right", "r", "--pattern", lesson)
        fleet(folder / "tank", "sync")
        began = time.perf_counter()
        fleet(folder / "velma", "sync")
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def ms(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2f} ms"


def against(work: str, ours: float, floor: float, of: str, most: float) -> Row:
    """Return a row that must not be more than so many times a floor."""
    ratio = ours / floor
    return Row(work, ms(ours), f"{of} {ms(floor)}", f"{ratio:.1f}x", f"at most {most:g}x", ratio <= most)


def faster(work: str, ours: float, peer: float, of: str, least: float) -> Row:
    """Return a row that must be so many times faster than a peer."""
    ratio = peer / ours
    return Row(work, ms(ours), f"{of} {ms(peer)}", f"{ratio:.1f}x faster", f"at least {least:g}x", ratio >= least)


def rows(cache: Path, count: int) -> list[Row]:
    """Measure everything."""
    table = []
    first, again, decoded = (measure(name, cache, count) for name in ("load_first", "load_again", "msgspec_decodes"))
    what = f"load and join {count:,} patterns"
    table.append(against(f"{what}, first time", first, decoded, "msgspec decodes", 2.5))
    table.append(against(f"{what}, checked before", again, decoded, "msgspec decodes", 2.5))
    for peer, name in (("Loro", "loro_reads"), ("pycrdt", "pycrdt_reads")):
        try:
            table.append(faster(f"{what}, checked before", again, measure(name, cache, count), peer, 3))
        except RuntimeError as why:
            table.append(Row(what, ms(again), f"{peer}: {why}", "", "at least 3x", None))
    for number, most in ((count, 350), (10 * count, 2_500)):
        from benchmarks.data import cached

        cached(number, cache)
        peak = measure("peak_of_load", cache, number)
        what = f"peak memory, {number:,} patterns"
        table.append(Row(what, f"{peak:,.0f} MB", "", "", f"under {most:,} MB", peak < most))
    table.append(
        against(
            "log one correction, in process",
            measure("log_in_process", cache, 1),
            measure("append_bare", cache, 1),
            "append and fsync",
            2,
        )
    )
    return table + process_rows(cache, count)


def process_rows(cache: Path, count: int) -> list[Row]:
    """Measure whole processes, in a small clan and in a large one."""
    table = []
    clans = {size: clan_of(size, cache) for size in (100, 1_000, count)}
    python = whole([sys.executable, "-I", "-c", "pass"], cache)
    correct = [sys.executable, "-m", "fleet", "correct", "--wrong", "w", "--right", "r", "--pattern", "bench"]
    commands = {"correct": correct, **{n: [sys.executable, "-m", "fleet", n] for n in ("start", "gossip")}}
    for name, words in commands.items():
        small, large = whole(words, clans[100] / "velma"), whole(words, clans[count] / "velma", 7)
        table.append(against(f"fleet {name}, {count:,} patterns", large, small, "with 100", 1.2))
        if name != "gossip":
            table.append(against(f"fleet {name}, whole process", small, python, "python -I -c pass", 8))
    small, large = sync_of_one_line(clans[1_000]), sync_of_one_line(clans[count])
    table.append(against(f"sync of one line each way, {count:,} patterns", large, small, "with 1,000", 1.5))
    return table


def render(table: list[Row]) -> str:
    """Return the table as Markdown."""
    lines = ["| work | fleet | against | ratio | aim | |", "|---|---|---|---|---|---|"]
    for row in table:
        met = {True: "met", False: "**not met**", None: "not measured"}[row.is_met]
        lines.append(f"| {row.work} | {row.ours} | {row.against} | {row.ratio} | {row.aim} | {met} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or one measurement."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--measure", choices=sorted(MEASURES))
    asked.add_argument("--count", type=int, default=100_000)
    asked.add_argument("--cache", type=Path)
    options = asked.parse_args()
    if options.measure:
        print(MEASURES[options.measure](options.cache, options.count))
        return
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
        print(render(rows(options.cache or Path(name), options.count)))


if __name__ == "__main__":
    main()
