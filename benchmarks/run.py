"""Each figure with its peers or its floor, in one run: ``make bench``. Ratios count; seconds depend on the machine.

Whatever is compared is run in turns, so that noise hits both alike, and the medians are shown. A row that does not meet
its aim says so, and one that cannot be measured says why.
"""

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from websockets.exceptions import WebSocketException

from benchmarks import rows
from benchmarks.matching import report as matching
from benchmarks.processes import Clans
from benchmarks.rows import Bench, Group
from benchmarks.table import Row, render, unmeasured
from benchmarks.triggers import report as triggers
from benchmarks.workers import PROCESSOR, ROOT, UnmeasuredError

TUNING = "errors in the half for tuning"


def machine() -> str:
    """Return where, when and of what this was measured: the load tells whether the machine had other work."""
    commit = _said("git", "rev-parse", "--short", "HEAD") or "no commit"
    changed = " with changes" if _said("git", "status", "--porcelain", "--untracked-files=no") else ""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    git = _said("git", "--version").removeprefix("git version ")
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    if PROCESSOR in os.environ:
        load += ", processor time"
    return f"{system}, git {git}, {load}, {datetime.now(UTC):%Y-%m-%d}, commit {commit}{changed}"


def _said(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def measured(bench: Bench, only: str) -> Iterator[Row]:
    """Yield the rows whose first column fits, group by group."""
    for group in rows.GROUPS:
        wanted = {work for work in (_titled(each, bench.count) for each in group.works) if re.search(only, work)}
        if wanted:
            found = (row._replace(work=_titled(row.work, bench.count)) for row in _of(group, bench))
            yield from (row for row in found if row.work in wanted)


def _titled(work: str, count: int) -> str:
    return re.sub(r"\bN\b", f"{count:,}", work)


def _of(group: Group, bench: Bench) -> list[Row]:
    began = time.monotonic()
    print(f"{_titled(group.works[0], bench.count)} ...", end=" ", file=sys.stderr, flush=True)
    try:
        found = list(group.measure(bench))
    except (UnmeasuredError, subprocess.SubprocessError, OSError, WebSocketException) as why:
        found = [unmeasured(work, "", str(why)) for work in group.works]
    print(f"{time.monotonic() - began:.0f} s", *render(found)[2:], sep="\n", file=sys.stderr, flush=True)
    return found


def reports() -> list[str]:
    """Return the two reports on labelled sets, each on the half that nothing was tuned on."""
    told = triggers.lines()
    errors = next((at for at, line in enumerate(told) if line.startswith(TUNING)), len(told))
    return [*told[:errors], *matching.lines()]


def main() -> None:
    """Print the table and the reports."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=100_000, help="patterns in a large clan")
    asked.add_argument("--only", default="", metavar="REGEX", help="only the rows whose first column fits")
    asked.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a file as well")
    asked.add_argument("--processor-time", action="store_true", help="for a machine that has other work as well")
    options = asked.parse_args()
    if options.processor_time:
        os.environ[PROCESSOR] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that gigabytes of temporary files go away
    head = machine()
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        cache = Path(folder)
        table = render(measured(Bench(options.count, cache, Clans(cache)), options.only))
    print("\n".join([head, "", *table]))
    if options.markdown:
        options.markdown.write_text("\n".join([head, "", *table, ""]), "utf-8")
    if not options.only:
        print("\n".join(["", *reports()]))


if __name__ == "__main__":
    main()
