"""Work that is measured in a process of its own, taken in turns so that noise hits whatever is compared alike.

``python -m benchmarks.workers NAME`` prepares its work, says so, and then does it once for every line on stdin; after
each it prints the seconds that it took and the peak of its memory.
"""

import argparse
import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
READY = "ready"
PROCESSOR = "FLEET_BENCH_PROCESSOR"
"""Set in the environment, everything is measured in processor time: for a machine that others use as well."""

Work = Callable[[], object]


def now() -> float:
    """Return the time, seconds; or how much processor time this process and its ended children have taken."""
    if PROCESSOR not in os.environ:
        return time.perf_counter()
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Prepared:
    """Work of which a part is not counted.

    Args:
        before: done first, each time.
        work: what counts; it gets what ``before`` returned.
    """

    def __init__(self, before: Work, work: Callable[[object], object]) -> None:
        self._before = before
        self._work = work
        self._made: object = None

    def prepare(self) -> None:
        """Do the part that does not count."""
        self._made = self._before()

    def __call__(self) -> object:
        """Do the part that counts."""
        return self._work(self._made)


class UnmeasuredError(Exception):
    """Why there is no figure."""


class Sample(NamedTuple):
    """One run: seconds, and the peak of the process's memory so far in MB."""

    seconds: float
    peak_mb: float


class Worker:
    """A process that has prepared one piece of work.

    Args:
        name: of the work, in ``inside`` or ``peers``.
        cache: the folder for whatever it makes.
        count: how many patterns.

    Raises:
        UnmeasuredError: it cannot do it; its last words.
    """

    def __init__(self, name: str, cache: Path, count: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process
        command = [sys.executable, "-m", "benchmarks.workers", name, "--count", str(count), "--cache", str(cache)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        if self._answer() != READY:
            raise UnmeasuredError(f"{name} is not ready")

    def _answer(self) -> str:
        answer = self._process.stdout.readline().strip()
        if not answer:
            self.close()
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            raise UnmeasuredError(said[-1] if said else f"ended with {self._process.returncode}")
        return answer

    def run(self) -> Sample:
        """Do the work once."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return Sample(*map(float, self._answer().split()))

    def close(self) -> None:
        """Let the process end."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def alternated(names: Sequence[str], cache: Path, count: int, runs: int) -> dict[str, float | UnmeasuredError]:
    """Return the median seconds of each, A B C A B C, or why there are none."""
    found: dict[str, float | UnmeasuredError] = {}
    with ExitStack() as stack:
        ready: dict[str, Worker] = {}
        for name in names:
            try:
                ready[name] = Worker(name, cache, count)
                stack.callback(ready[name].close)
            except UnmeasuredError as why:
                found[name] = why
        took: dict[str, list[float]] = {name: [] for name in ready}
        for _ in range(runs):
            for name, worker in ready.items():
                try:
                    took[name].append(worker.run().seconds)
                except UnmeasuredError as why:
                    found[name] = why
    return found | {name: statistics.median(times) for name, times in took.items() if name not in found}


def peak_mb_of(name: str, cache: Path, count: int) -> float:
    """Return the peak memory of one run."""
    worker = Worker(name, cache, count)
    try:
        return worker.run().peak_mb
    finally:
        worker.close()


def serve(work: Work) -> None:
    """Do the work whenever a line comes. What it made is gone, and the memory collected, before the next run.

    Nothing is collected meanwhile, for nobody: how long looking for cycles takes depends on what else is in memory,
    and it would slow msgspec's decoding, the floor, to a quarter.
    """
    gc.disable()
    print(READY, flush=True)
    for _ in sys.stdin:
        if isinstance(work, Prepared):
            work.prepare()
        gc.collect()
        began = now()
        made = work()
        took = now() - began
        del made
        print(took, peak_mb(), flush=True)


def peak_mb() -> float:
    """Return the most memory that this process had. Not ``ru_maxrss``: a child begins with what its parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise UnmeasuredError("the kernel does not tell the peak of memory")


def main() -> None:
    """Prepare one piece of work, and do it when told."""
    from benchmarks import inside, peers, workers

    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("name")
    asked.add_argument("--count", type=int, required=True)
    asked.add_argument("--cache", type=Path, required=True)
    options = asked.parse_args()
    prepare = getattr(inside, options.name, None) or getattr(peers, options.name)
    workers.serve(prepare(options.cache, options.count))


if __name__ == "__main__":  # as a module of that name, too: its classes are imported by the work
    main()
