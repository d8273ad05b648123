"""What sidecars cost that have nothing to do: memory and processor time, over a minute, each a process of its own.

One has a remote and a lesson; another one has a live room besides, with as many patterns as one room holds.
"""

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import WEIGHTS, WORDS
from benchmarks.processes import MODULE, environment, name_live_room
from benchmarks.table import Row, under
from benchmarks.workers import UnmeasuredError
from fleet.model.line import Column, Line
from fleet.share.live.bridge import ROOM_PATTERNS
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace

SETTLED_S = 12.0
"""By then the first work and the first sync are done, and the room is filled."""
WATCHED_S = 60.0
UP_S = 60.0
MEMORY, SHARE = "sidecar, idle: memory", "sidecar, idle: share of one core"
LIVE_MEMORY = "sidecar, idle in a live room of 10,000 patterns: memory"
LIVE_SHARE = "sidecar, idle in a live room of 10,000 patterns: share of one core"
WORKS = (MEMORY, SHARE, LIVE_MEMORY, LIVE_SHARE)


class Idle(NamedTuple):
    """What an idle sidecar takes.

    Attributes:
        memory_mb: resident, MB.
        share: per cent of one core, the ticks included that fell into the time, with the processes they started.
    """

    memory_mb: float
    share: float


def idle(cache: Path, watched_s: float = WATCHED_S) -> tuple[Idle, Idle]:
    """Return what an idle sidecar takes, without a live room and in one.

    Args:
        cache: a folder for the workspaces, which are gone afterwards.
        watched_s: for how long they are watched, seconds, both at once.

    Raises:
        UnmeasuredError: this machine does not tell, or a sidecar did not start.
    """
    if not Path("/proc/self/statm").exists():
        raise UnmeasuredError("memory and time of a process are read from /proc")
    with tempfile.TemporaryDirectory(prefix="sidecar-", dir=cache) as folder, ExitStack() as stack:
        env = environment() | {"HOME": folder}
        _run(["git", "init", "--quiet", "--bare", f"{folder}/clan.git"], Path(folder), env)
        url = stack.enter_context(_server(Path(folder), env))
        places = [_workspace(Path(folder) / name, env, live) for name, live in (("plain", ""), ("live", url))]
        _fill(places[1])
        pids = [stack.enter_context(_sidecar(place, env)) for place in places]
        for place in places:
            _wait_for_first_sync(place / ".fleet" / "poll.json")
        time.sleep(SETTLED_S)
        try:
            began, before = time.monotonic(), [_cpu_s(pid) for pid in pids]
            time.sleep(watched_s)
            took = [_cpu_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
            lasted = time.monotonic() - began
            plain, live = (Idle(_rss_mb(pid), 100 * each / lasted) for pid, each in zip(pids, took, strict=True))
        except FileNotFoundError as why:
            raise UnmeasuredError("a sidecar ended by itself") from why
    return plain, live


def rows_of(plain: Idle, live: Idle) -> Iterator[Row]:
    """Yield the figures as rows of the table."""
    yield under(MEMORY, plain.memory_mb, 60, "MB")
    yield under(SHARE, plain.share, 0.5, "%")
    yield under(LIVE_MEMORY, live.memory_mb, 60, "MB")
    yield under(LIVE_SHARE, live.share, 0.5, "%")


def _run(words: list[str], folder: Path, env: dict[str, str]) -> None:
    subprocess.run(words, cwd=folder, env=env, capture_output=True, check=True)


def _workspace(place: Path, env: dict[str, str], live: str) -> Path:
    place.mkdir()
    remote = str(place.parent / "clan.git")
    _run([*MODULE, "init", "--agent", place.name, "--remote", remote, "--yes"], place, env)
    _run([*MODULE, "correct", "--wrong", "w", "--right", "r", "--pattern", "Check the version first"], place, env)
    if live:
        name_live_room(place, live)
    return place


def _fill(place: Path) -> None:
    """Write as many patterns as one room holds."""
    rng, workspace = random.Random("idle"), Workspace(place)

    def said() -> str:
        return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=10))

    with workspace.writing(place.name) as writer:
        me, stamp = writer.name, writer.tick()
        lines = [
            Line(
                f"p-{rng.getrandbits(64):016x}",
                {me: Column(add=stamp, first={"text": said(), "correct": said()}, n={"seen": 1})},
            )
            for _ in range(ROOM_PATTERNS - 1)
        ]
        writer.append(PATTERNS, lines)
    workspace.close()


@contextmanager
def _server(folder: Path, env: dict[str, str]) -> Iterator[str]:
    words = [*MODULE, "live", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            told = child.stdout.readline().split()
            if not told:
                raise UnmeasuredError("the live server did not start")
            yield told[-1]
        finally:
            child.terminate()


@contextmanager
def _sidecar(place: Path, env: dict[str, str]) -> Iterator[int]:
    with subprocess.Popen([*MODULE, "sidecar"], cwd=place, env=env, stdout=subprocess.DEVNULL) as child:
        try:
            yield child.pid
        finally:
            child.terminate()


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
