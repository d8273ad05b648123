"""A sync that sends one line and receives one, and the bare git plumbing that it needs, taken in turns.

The floor is what git must do for such a sync, with the settings of ``fleet.share.git`` (all is fsynced, all that comes
is checked) and without anything of fleet's around it: fetch, diff-tree, cat-file, fast-import,
push. It starts from a process that is running already, and neither joins nor keeps anything.
"""

import re
import statistics
import subprocess
import tempfile
from itertools import count as counting
from pathlib import Path

from benchmarks import processes
from benchmarks.workers import UnmeasuredError, now
from fleet.store.git import GIT

RUNS = 9
_BRANCH = "refs/heads/fleet"
_FETCHED = "refs/fleet/fetched"
_WHO = "bench <bench@localhost> 1760000000 +0000"
_numbers = counting()


class SyncResult:
    """A clan in which velma's syncs are measured; tank sends a line before each.

    Args:
        clan: the folder of ``processes.Clans``.
    """

    def __init__(self, clan: Path) -> None:
        self._clan = clan
        for agent in ("velma", "tank"):  # what other rows have logged goes out first
            processes.fleet(clan / agent, "sync")

    def once(self) -> float:
        """Return the seconds of one sync that sends one line and receives one."""
        for agent in ("velma", "tank"):
            processes.run(processes.correct(self._clan / agent))
        before = self._git("rev-parse", _BRANCH).strip()
        processes.fleet(self._clan / "tank", "sync")
        took = processes.fleet(self._clan / "velma", "sync")
        changed = self._git("diff", "--numstat", before, _BRANCH)
        if any(not re.search(rf"^1\t0\tpatterns\.d/{agent}\.", changed, re.MULTILINE) for agent in ("velma", "tank")):
            raise UnmeasuredError(f"the syncs sent something else than a line each: {changed.split()}")
        return took

    def _git(self, *words: str) -> str:
        far = self._clan / "clan.git"
        return subprocess.run(["git", *words], cwd=far, capture_output=True, check=True, text=True).stdout


class Bare:
    """The same exchange by git alone, on copies of the clan's repositories.

    Args:
        clan: the folder of ``processes.Clans``, synced at least once.
        cache: the folder for the copies.
    """

    def __init__(self, clan: Path, cache: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="bare-", dir=cache))
        self._far, self._near = folder / "far.git", folder / "near.git"
        self._env = processes.environment() | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        for path in (self._far, self._near):
            subprocess.run(["git", "clone", "--quiet", "--bare", str(clan / "clan.git"), str(path)], check=True)
        shards = self._git(self._far, "ls-tree", "--name-only", _BRANCH, "patterns.d/").decode().split()
        lines = {path: self._git(self._far, "show", f"{_BRANCH}:{path}") for path in shards}
        if len(lines) < 2:
            raise UnmeasuredError("the clan has no two shards to exchange")
        self._theirs, self._mine = sorted(lines)[:2]
        self._lines = lines
        self._head = self._git(self._near, "rev-parse", _BRANCH).decode().strip()

    def _git(self, where: Path, *words: str, stdin: bytes = b"") -> bytes:
        call = [*GIT, f"--git-dir={where}", *words]
        done = subprocess.run(call, env=self._env, input=stdin, capture_output=True, check=False)
        if done.returncode:
            raise UnmeasuredError(done.stderr.decode("utf-8", "replace").strip())
        return done.stdout

    def _commit(self, where: Path, path: str, on: str, ref: str) -> str:
        """Add a line to a shard, and return the commit."""
        last = self._lines[path].splitlines()[-1]
        self._lines[path] += last.replace(b'"text":"', b'"text":"%d ' % next(_numbers)) + b"\n"
        data = self._lines[path]
        script = f"commit {ref}\nmark :1\nauthor {_WHO}\ncommitter {_WHO}\ndata 5\nbench\nfrom {on}\n".encode()
        script += b"M 100644 inline %b\ndata %d\n%b\n\nget-mark :1\ndone\n" % (path.encode(), len(data), data)
        return self._git(where, "fast-import", "--quiet", "--force", "--done", stdin=script).decode().strip()

    def once(self) -> float:
        """Return the seconds of one exchange."""
        self._commit(self._far, self._theirs, self._head, _BRANCH)
        near, before = self._near, self._head
        url, options = str(self._far), ("--quiet", "--no-tags", "--no-auto-maintenance", "--no-write-fetch-head")
        began = now()
        self._git(near, "fetch", *options, "--", url, f"+{_BRANCH}:{_FETCHED}")
        head = (near / _FETCHED).read_text("ascii").strip()
        changed = self._git(near, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", before, head, "--")
        blobs = [fields.split()[3] for fields in changed.split(b"\0")[:-1:2]]
        self._git(near, "cat-file", "--batch", "--buffer", stdin=b"\n".join(blobs) + b"\n")
        mine = self._commit(near, self._mine, head, "refs/fleet/next")
        lease = f"--force-with-lease={_BRANCH}:{head}"
        self._git(near, "push", "--porcelain", "--no-verify", lease, "--", url, f"+{mine}:{_BRANCH}")
        took = now() - began
        self._head = mine
        return took


def rewritten(clan: Path, runs: int = 3) -> tuple[float, float]:
    """Return the median seconds, and the largest peak of memory in MB, of a sync that finds an edition made anew.

    Velma has synced all that she knows, and tank has folded it into the edition: nothing in it is new to her.
    """
    took, peaks = [], []
    for _ in range(runs):
        processes.run(processes.correct(clan / "velma"))
        processes.fleet(clan / "velma", "sync")
        processes.fleet(clan / "tank", "compact")
        call = processes.with_peak(processes.Call([*processes.MODULE, "sync"], clan / "velma"))
        seconds, peak = processes.ran(call)
        took.append(seconds)
        peaks.append(float(peak))
    return statistics.median(took), max(peaks)


def alternated(works: dict[str, SyncResult | Bare], runs: int = RUNS) -> dict[str, float]:
    """Return the median seconds of each; the first run of each does not count."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for number in range(runs + 1):
        for name, work in works.items():
            seconds = work.once()
            if number:
                took[name].append(seconds)
    return {name: statistics.median(times) for name, times in took.items()}
