"""What a sidecar costs that has nothing to do: memory and processor time, over a minute, in a process of its own."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import environment
from benchmarks.workers import UnmeasuredError

SETTLED_S = 8.0
"""By then the first work and the first sync are done."""
WATCHED_S = 60.0
UP_S = 30.0


def idle(cache: Path, watched_s: float = WATCHED_S) -> tuple[float, float]:
    """Return what an idle sidecar takes: MB of memory (resident), per cent of one core.

    The workspace has a remote and one lesson. Ticks that fall into the time count, with the processes they start.

    Args:
        cache: a folder for the workspace, which is gone afterwards.
        watched_s: for how long it is watched, seconds.

    Raises:
        UnmeasuredError: this machine does not tell, or the sidecar did not start.
    """
    if not Path("/proc/self/statm").exists():
        raise UnmeasuredError("memory and time of a process are read from /proc")
    with tempfile.TemporaryDirectory(prefix="sidecar-", dir=cache) as folder:
        remote, place = Path(folder) / "clan.git", Path(folder) / "work"
        place.mkdir()
        env = environment() | {"HOME": folder}
        fleet = [sys.executable, "-m", "fleet"]
        for words in (
            ["git", "init", "--quiet", "--bare", str(remote)],
            [*fleet, "init", "--agent", "ann", "--remote", str(remote), "--yes"],
            [*fleet, "correct", "--wrong", "w", "--right", "r", "--pattern", "Check the version first"],
        ):
            subprocess.run(words, cwd=place, env=env, capture_output=True, check=True)
        child = subprocess.Popen([*fleet, "sidecar"], cwd=place, env=env, stdout=subprocess.DEVNULL)
        try:
            _wait_for_first_sync(place / ".fleet" / "poll.json")
            time.sleep(SETTLED_S)
            began, before = time.monotonic(), _cpu_s(child.pid)
            time.sleep(watched_s)
            took, lasted = _cpu_s(child.pid) - before, time.monotonic() - began
            return _rss_mb(child.pid), 100 * took / lasted
        except FileNotFoundError as why:
            raise UnmeasuredError("the sidecar ended by itself") from why
        finally:
            child.terminate()
            child.wait(10)


def _wait_for_first_sync(marks: Path) -> None:
    until = time.monotonic() + UP_S
    while not (marks.exists() and b"synced_ms" in marks.read_bytes()):
        if time.monotonic() > until:
            raise UnmeasuredError(f"no sync within {UP_S:.0f} s")
        time.sleep(0.1)


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process and of the children that it waited for, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
