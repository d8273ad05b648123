"""Fifty agents that compact at once, or a hundred with FLEET_FAULTS=all, settle within the attempts of one sync.

Time is simulated: every call to the remote and every pause takes some, and the thread that is due first runs first. So
the test is of the back-off alone, and each run is the same.
"""

import heapq
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.app import sharing
from fleet.learn import corrections
from fleet.learn.corrections_md import Correction
from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from fleet.share.remote import Files, Mark, Moved
from fleet.store import config
from fleet.store.workspace import Workspace, World
from tests.memory_remote import MemoryRemote, MemoryServer, MemoryTree
from tests.sim.people import held_in
from tests.sim.world import START_MS, SimFiles

EVERY = os.environ.get("FLEET_FAULTS") == "all"
AGENTS = 100 if EVERY else 50
ATTEMPTS_MAX = 15
COMMON = "A lesson that everybody logged"


class Schedule:
    """Simulated time: only the thread that is due first runs; of equal ones, the one that began to wait first."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._turns: list[tuple[float, int, threading.Event]] = []
        self._numbers = itertools.count()
        self._done = threading.Event()
        self._errors: list[BaseException] = []

    def run(self, tasks: list[Callable[[], None]]) -> None:
        """Run all tasks to their end, all starting at time 0."""
        threads = [threading.Thread(target=self._live, args=(task, self._turn(0.0)), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        self._wake_next()
        self._done.wait()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def clock(self) -> float:
        """Return the time, in seconds."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let the calling thread wait so long."""
        turn = self._turn(self.now_s + seconds)
        self._wake_next()
        turn.wait()

    def _turn(self, at_s: float) -> threading.Event:
        turn = threading.Event()
        heapq.heappush(self._turns, (at_s, next(self._numbers), turn))
        return turn

    def _live(self, task: Callable[[], None], turn: threading.Event) -> None:
        turn.wait()
        try:
            task()
        except BaseException as why:  # ``run`` raises it again
            self._errors.append(why)
        self._wake_next()

    def _wake_next(self) -> None:
        if not self._turns:
            self._done.set()
            return
        self.now_s, _, turn = heapq.heappop(self._turns)
        turn.set()


class SlowRemote(MemoryRemote):
    """A remote that counts its calls, each of which takes time."""

    def __init__(
        self, server: MemoryServer, tree: MemoryTree, schedule: Schedule, rng: random.Random, call_s: float
    ) -> None:
        super().__init__(server, tree)
        self._schedule, self._rng, self._call_s = schedule, rng, call_s
        self.happened: Counter[str] = Counter()

    def fetch(self, since: Mark) -> Mark:
        """Fetch; the answer takes time."""
        self.happened["pulls"] += 1
        found = super().fetch(since)
        self._travel()
        return found

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Push; the way there takes time."""
        self._travel()
        done = super().push(files, on, message=message)
        self.happened["refused" if isinstance(done, Moved) else "pushed"] += 1
        return done

    def _travel(self) -> None:
        self._schedule.wait(self._call_s * self._rng.uniform(0.5, 1.5))


def agent(root: Path, number: int) -> Workspace:
    """Make an agent's workspace with a lesson to be sent, the same for all, since different ones would take longer."""
    root.mkdir()
    (root / config.FILE_NAME).write_text("[keep]\nedition_always_bytes = 0\n")
    entropy = random.Random(number).randbytes
    tree = MemoryTree()
    world = World(
        wall_ms=lambda: START_MS + number,
        entropy=entropy,
        machine=lambda: "m",
        durable=False,
        tree=lambda _: tree,
    )
    workspace = Workspace(root, world, SimFiles(root))
    corrections.Corrections(workspace, f"agent{number}").log(Correction("w", "r", COMMON), session=str(number))
    return workspace


def compact_at_once(folder: Path, agents: int, call_s: float) -> tuple[MemoryServer, list[SlowRemote], Schedule]:
    """Let so many agents compact at the same moment; return the server, their remotes and the schedule."""
    server, schedule = MemoryServer(), Schedule()
    workspaces = [agent(folder / f"a{number}", number) for number in range(agents)]
    remotes = [
        SlowRemote(server, each.tree, schedule, random.Random(number), call_s) for number, each in enumerate(workspaces)
    ]

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            workspace, rng = workspaces[number], random.Random(1_000 + number)
            workspace.close()  # the database was opened by another thread
            how = {"rng": rng, "sleep": schedule.wait, "monotonic": schedule.clock}
            sharing.sync_with(workspace, remotes[number], compact=True, **how)
            workspace.close()

        return run

    schedule.run([task(number) for number in range(agents)])
    return server, remotes, schedule


# A quick remote makes no difference but for the time, so it is tested only with FLEET_FAULTS=all.
@pytest.mark.parametrize("call_s", [0.02, 0.2] if EVERY else [0.2])
def test_all_that_compact_at_once_settle_within_fifteen_attempts(call_s, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sharing, "_count_and_promote", lambda _, **__: []
    )  # takes no simulated time, so it would add nothing
    server, remotes, schedule = compact_at_once(tmp_path, AGENTS, call_s)
    pulls = sorted(remote.happened["pulls"] for remote in remotes)
    refused = sum(remote.happened["refused"] for remote in remotes)
    print(f"pulls {pulls}, refused {refused}, {schedule.now_s:.1f} s")
    assert refused >= AGENTS, "they did not meet"
    assert pulls[-1] <= ATTEMPTS_MAX
    held = held_in(server.tree())
    assert list(held.records) == [pattern_id(COMMON)]
    assert fold(held.records[pattern_id(COMMON)]).count("seen") == AGENTS
