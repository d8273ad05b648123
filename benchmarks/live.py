"""Live sync over loopback, with the real processes: a server, seven sidecars, and `fleet correct` on one of them.

Alone: ``python -m benchmarks.live``.
"""

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks import processes
from benchmarks.data import WEIGHTS, WORDS
from benchmarks.table import Row, render, under
from benchmarks.table import told as in_ms
from benchmarks.workers import UnmeasuredError
from fleet.app import learning
from fleet.learn.corrections import Correction
from fleet.model.line import Column, Line
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace

AGENTS = 7
SINGLES = 40
WIRED = 200
BURST = 1_000
CLIENTS = 100
WAIT_S = 60.0
LAG = "live: from `fleet correct` returning to the line on disk at six others, p95"
BURST_WORK = "live: 1,000 corrections in a burst, until the last is on disk at six others"
AT_ONCE_WORK = "live: 1,000 lines written at once, until the last is on disk at six others"
WIRE = "live: bytes on the wire per correction and reader"
MEMORY_7, MEMORY_100 = "live: memory of the server, 7 clients", "live: memory of the server, 100 clients"
WORKS = (LAG, BURST_WORK, AT_ONCE_WORK, WIRE, MEMORY_7, MEMORY_100)
PEER_BYTES = 211


class Figures(NamedTuple):
    """What was measured.

    Attributes:
        lag_p50_s: median lag of a correction, seconds.
        lag_p95_s: its 95th percentile.
        lag_max_s: the worst.
        append_p50_s: median time from the append of its line on the first one's disk: it does not depend on what
            `fleet correct` has still to do before it returns.
        burst_s: from the first of the burst logged to the last on disk at six others.
        logging_s: how much of that it took to log them.
        at_once_s: from 1,000 lines that one write brought to the last on disk at six others.
        wire_bytes: what one reader received for one correction, frames, presence and all.
        memory_7_mib: of the server, with the seven sidecars.
        memory_100_mib: with as many clients as make a hundred.
    """

    lag_p50_s: float
    lag_p95_s: float
    lag_max_s: float
    append_p50_s: float
    burst_s: float
    logging_s: float
    at_once_s: float
    wire_bytes: float
    memory_7_mib: float
    memory_100_mib: float


class Stage:
    """The processes, in one folder. ``end`` ends them all.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.roots = [folder / f"agent{number}" for number in range(AGENTS)]
        self.started: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()
        self.server = self._start(folder, "live", "serve", "--port", "0")
        try:
            self._open()
        except BaseException:
            self.end()
            raise

    def _open(self) -> None:
        assert self.server.stdout is not None
        told = self.server.stdout.readline().split()
        if not told:
            raise UnmeasuredError("the live server did not start")
        self.url = told[-1]
        for root in self.roots:
            root.mkdir()
            words = [*processes.MODULE, "init", "--agent", root.name, "--yes"]
            subprocess.run(words, cwd=root, env=processes.environment(), capture_output=True, check=True)
            processes.name_live_room(root, self.url)
            self._start(root, "sidecar")
        until(lambda: len(self.online()) == AGENTS, "the sidecars did not all come online")

    def _start(self, folder: Path, *words: str) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [*processes.MODULE, *words],
            cwd=folder,
            env=processes.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.started.append(child)
        return child

    def online(self) -> list[object]:
        """Return who is in the room."""
        words = [*processes.MODULE, "who", "--json"]
        done = subprocess.run(
            words, cwd=self.roots[0], env=processes.environment(), capture_output=True, text=True, check=False
        )
        return list(json.loads(done.stdout)["online"]) if done.returncode == 0 else []

    def shard_sizes(self) -> list[int]:
        """Return how much of the first agent's shard each of the others has."""
        found = []
        for root in self.roots[1:]:
            shards = (root / "clan-learnings/patterns.d").glob("agent0.*.jsonl")
            found.append(sum(shard.stat().st_size for shard in shards))
        return found

    def missing(self, pattern: str) -> list[Path]:
        """Return the others that have no line of a pattern yet."""
        mark = pattern.encode()
        shards = {root: (root / "clan-learnings/patterns.d").glob("agent0.*.jsonl") for root in self.roots[1:]}
        return [root for root, found in shards.items() if not any(mark in shard.read_bytes() for shard in found)]

    def correct(self, lesson: str) -> str:
        """Log one correction at the first agent, as an agent does; return the pattern's id."""
        words = ["correct", "--wrong", "w", "--right", "Look at the key first", "--pattern", lesson, "--json"]
        done = subprocess.run(
            [*processes.MODULE, *words],
            cwd=self.roots[0],
            env=processes.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return str(json.loads(done.stdout)["id"])

    def end(self) -> None:
        """End every process."""
        self._stack.close()
        for child in self.started:
            child.send_signal(signal.SIGTERM)
        for child in self.started:
            try:
                child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()

    def joined(self) -> "Reader":
        """Let one more client join, that only reads."""
        return self._stack.enter_context(Reader(self.url))


class _Counting(socket.socket):
    """A socket that knows how many bytes came."""

    received = 0

    def recv(self, *given: int) -> bytes:
        data = super().recv(*given)
        self.received += len(data)
        return data


class Reader:
    """A client that only reads, and counts what comes.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        from websockets.sync.client import connect

        from fleet.share.live.access import Where

        address = urlsplit(url)
        self._counting = _Counting()
        self._counting.connect((address.hostname, address.port))
        headers = Where(url, "clan").headers
        self._context = connect(
            f"{url}/clan", sock=self._counting, additional_headers=headers, max_size=None, ping_interval=None
        )
        self._socket = self._context.__enter__()

    def received(self) -> int:
        """Return how many bytes came so far, frames and all, once nothing has come for a moment."""
        while True:
            try:
                self._socket.recv(timeout=0.3)
            except TimeoutError:
                return self._counting.received

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def until(happened: object, otherwise: str) -> float:
    """Wait for something; return when it had happened."""
    end = time.perf_counter() + WAIT_S
    while not happened():  # type: ignore[operator]
        if time.perf_counter() > end:
            raise UnmeasuredError(otherwise)
        time.sleep(0.001)
    return time.perf_counter()


def measure(folder: Path) -> Figures:
    """Measure all of it, in an empty folder.

    Raises:
        UnmeasuredError: something did not start, or a line did not arrive.
    """
    stage = Stage(folder)
    try:
        reader = stage.joined()
        stage.correct("The first one makes folders and is not measured")
        time.sleep(2)
        singles = [lag for number in range(SINGLES) for lag in _lags(stage, number)]
        before = reader.received()
        _log(stage, "Wired", WIRED, pause_s=0.05)
        wire = (reader.received() - before) / WIRED
        memory_7 = _memory_mib(stage.server.pid)
        burst_s, logging_s = _burst(stage)
        at_once_s = _at_once(stage)
        for _ in range(CLIENTS - AGENTS - 1):
            stage.joined()
        time.sleep(2)
        memory_100 = _memory_mib(stage.server.pid)
    finally:
        stage.end()
    lags, appends = zip(*singles, strict=True)
    told = statistics.median(lags), statistics.quantiles(lags, n=20)[-1], max(lags), statistics.median(appends)
    return Figures(*told, burst_s, logging_s, at_once_s, wire, memory_7, memory_100)


def _lags(stage: Stage, number: int) -> list[tuple[float, float]]:
    """Return the lag of one correction at each of the others: from its return, and from the append of its line."""
    time.sleep(0.3)
    pattern = stage.correct(f"Check the build cache key before deploy number {number}")
    returned = time.time()
    (shard,) = (stage.roots[0] / "clan-learnings/patterns.d").glob("agent0.*.jsonl")
    appended = shard.stat().st_mtime
    waiting, lags = set(stage.roots[1:]), []
    while waiting:
        left, now = set(stage.missing(pattern)), time.time()
        lags += [(now - returned, now - appended)] * len(waiting - left)
        waiting &= left
        if now - returned > WAIT_S:
            raise UnmeasuredError("a correction did not arrive")
        time.sleep(0.001)
    return lags


def _burst(stage: Stage) -> tuple[float, float]:
    """Log many in one process; return how long until the last is everywhere, and how long the logging took."""
    began = time.perf_counter()
    ids = _log(stage, "Burst", BURST)
    logged = time.perf_counter()
    done = until(lambda: not stage.missing(ids[-1]), "the burst did not arrive")
    if any(stage.missing(pattern) for pattern in ids[:: BURST // 20]):
        raise UnmeasuredError("a correction of the burst is missing")
    return done - began, logged - began


def _at_once(stage: Stage) -> float:
    """Write many lines with one write, as a sync or an import does; return how long until they are everywhere."""
    workspace, rng = Workspace(stage.roots[0]), random.Random("at once")
    time.sleep(2)
    with workspace.writing("agent0") as writer:
        stamp = writer.tick()
        ids = [f"p-{rng.getrandbits(64):016x}" for _ in range(BURST)]
        lines = [
            Line(each, {writer.name: Column(add=stamp, first={"text": _said(rng, 8)}, n={"seen": 1})}) for each in ids
        ]
        writer.append(PATTERNS, lines)
    began = time.perf_counter()
    workspace.close()
    return until(lambda: not stage.missing(ids[-1]), "the lines did not arrive") - began


def _log(stage: Stage, lesson: str, count: int, *, pause_s: float = 0.0) -> list[str]:
    """Log so many corrections at the first agent, in this process; return the ids of their patterns."""
    workspace = Workspace(stage.roots[0])
    ids, rng = [], random.Random(lesson)
    for number in range(count):
        text, right = f"{lesson} {number}: {_said(rng, 8)}", _said(rng, 10)
        told = Correction("w", right, text)
        ids.append(learning.correct(workspace, "agent0", told, session="bench").id)
        time.sleep(pause_s)
    workspace.close()
    return ids


def _said(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=words))


def _memory_mib(pid: int) -> float:
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def rows_of(found: Figures) -> Iterator[Row]:
    """Yield the figures as rows of the table."""
    shown = f"p50 {found.lag_p50_s * 1000:,.0f} ms, worst {found.lag_max_s * 1000:,.0f} ms"
    shown += f"; from the append p50 {found.append_p50_s * 1000:,.0f} ms"
    yield under(LAG, found.lag_p95_s * 1000, 150, "ms", shown)
    peer = "a known peer 3.0 to 5.1 s"
    yield Row(BURST_WORK, f"{found.burst_s:.1f} s", f"{peer}; logging them alone {found.logging_s:.1f} s")
    yield Row(AT_ONCE_WORK, in_ms(found.at_once_s), peer)
    yield Row(
        WIRE, f"{found.wire_bytes:,.0f} B", f"a known peer {PEER_BYTES} B", f"{found.wire_bytes / PEER_BYTES:.1f}x"
    )
    yield Row(MEMORY_7, f"{found.memory_7_mib:.0f} MiB")
    yield Row(MEMORY_100, f"{found.memory_100_mib:.0f} MiB")


def main() -> None:
    """Measure, and print the rows."""
    with tempfile.TemporaryDirectory(prefix="fleet-live-") as folder:
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        print("\n".join(render(rows_of(measure(Path(folder))))))


if __name__ == "__main__":
    main()
