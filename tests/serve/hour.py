"""Three machines left alone: one sleeps, one moves between networks, one is killed now and then. All for real.

Each has its own way to the git remote and to the live server. Agents correct, retire, edit, discover and write by hand
at random moments; a ledger holds what was acknowledged, and what was under way when a machine was killed.
"""

import heapq
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from fleet.store.lines import KINDS
from fleet.store.workspace import Workspace
from tests.serve.conftest import Crew, until
from tests.serve.network import AWAY, HANGING, HOST, MUTE, OPEN, GitServer, Network
from tests.sim.people import Held, held_in

SLEEPER, MOVER, MORTAL = AGENTS = ("sleeper", "mover", "mortal")
GIT, LIVE = "git", "live"
TOKEN = "a-token-of-this-hour-0123"
"""Known to all: each reaches the server by a way of its own, where no token of a server of theirs is found."""
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(8)]
EQUAL_S = 420.0
"""A clan that was not reached for long is asked again after five minutes at most, and a fifth more of the interval."""

Fate = Iterator[float]
"""Does something, and yields how many seconds pass until it goes on."""


class Hour(Crew):
    """A stage with three sidecars, their networks, the remote and the live server.

    Args:
        folder: an empty one.
        seed: decides everything but how fast the machine is.
        lasts_s: how long they are left alone.
    """

    def __init__(self, folder: Path, seed: int, lasts_s: float) -> None:
        super().__init__(folder)
        self.rng = random.Random(seed)
        self.lasts_s = lasts_s
        self.longest_s = min(max(lasts_s / 6, 2.5), 120.0)
        self.seen: Counter[str] = Counter()
        self.maybe: Counter[str] = Counter()
        self.retired: set[str] = set()
        self.discoveries: set[str] = set()
        self.categories: dict[str, set[str]] = {}
        self.happened: Counter[str] = Counter()
        self.asleep: set[str] = set()
        self._numbers = itertools.count(1)
        self.git_server = GitServer(str(folder), self.environment())
        self.server: subprocess.Popen[str]
        self.networks: dict[str, dict[str, Network]] = {}
        self.sidecars: dict[str, subprocess.Popen[str]] = {}

    # --- the stage ------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.git("init", "--quiet", "--bare", str(self.remote))
        self.serve()
        pace = max(2.0, min(self.lasts_s / 120, 20.0))
        for agent in AGENTS:
            ways = {GIT: Network(self.git_server.reach), LIVE: Network(self._reach_live)}
            self.networks[agent] = ways
            url = f"git://{HOST}:{ways[GIT].port}/clan.git"
            self.run(agent, "init", "--agent", agent, "--remote", url, "--yes")
            self.set(agent, f"interval_s = {pace}\nquiet_s = 0.2\n")
            self.set(agent, f'url = "ws://{HOST}:{ways[LIVE].port}"\n', "live")
            self.run(agent, "live", "join")
            self.set(agent, f"wait_s = {min(pace, 5.0)}\n", "share")
            self.sidecars[agent] = self.sidecar(agent, FLEET_LIVE_TOKEN=TOKEN)

    def serve(self) -> None:
        """Start a live server, which knows nothing of the one before."""
        (self.folder / "server").mkdir(exist_ok=True)
        (self.folder / "server/token").write_text(TOKEN)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "fleet", "live", "serve", "--port", "0", "--token-file", "token"],
            cwd=self.folder / "server",
            env=self.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        self._live_port = int(self.server.stdout.readline().rpartition(":")[2])

    def _kill_server(self) -> None:
        self.server.kill()
        self.server.wait()
        assert self.server.stdout is not None
        self.server.stdout.close()

    def _reach_live(self) -> socket.socket:
        return socket.create_connection((HOST, self._live_port))

    def end(self) -> None:
        for agent in list(self.asleep):
            self.wake(agent)
        super().end()
        self._kill_server()
        for network in (each for ways in self.networks.values() for each in ways.values()):
            network.end()
        self.git_server.end()

    # --- what befalls the machines ----------------------------------------------------------------------------------

    def run_story(self) -> None:
        """Let it all happen, then give every machine its network back."""
        fates = [self.sleeps(), self.moves(GIT), self.moves(LIVE), self.dies(), self.server_dies()]
        fates += [self.works(agent) for agent in AGENTS]
        began = time.monotonic()
        queue = [(next(fate), number, fate) for number, fate in enumerate(fates)]
        heapq.heapify(queue)
        while queue[0][0] < self.lasts_s:
            at_s, number, fate = heapq.heappop(queue)
            time.sleep(max(began + at_s - time.monotonic(), 0))
            heapq.heappush(queue, (time.monotonic() - began + next(fate), number, fate))
        self.wake(SLEEPER)
        for ways in self.networks.values():
            for network in ways.values():
                network.become(OPEN)
        if self.server.poll() is not None:
            self.serve()
        for agent in AGENTS:
            if self.sidecars[agent].poll() is not None:
                self.sidecars[agent] = self.sidecar(agent, FLEET_LIVE_TOKEN=TOKEN)

    def pause_s(self) -> float:
        return self.rng.uniform(0.3, self.longest_s)

    def sleeps(self) -> Fate:
        while True:
            yield self.pause_s()
            self.sleep(SLEEPER)
            yield self.pause_s()
            self.wake(SLEEPER)

    def sleep(self, agent: str) -> None:
        """Stop every process of a machine; its connections are stale when it wakes."""
        self.happened["slept"] += 1
        self.asleep.add(agent)
        for network in self.networks[agent].values():
            network.become(HANGING)
        self._signal(agent, signal.SIGSTOP)

    def wake(self, agent: str) -> None:
        self.asleep.discard(agent)
        for network in self.networks[agent].values():
            network.become(OPEN)
        self._signal(agent, signal.SIGCONT)

    def moves(self, way: str) -> Fate:
        network = self.networks[MOVER][way]
        while True:
            yield self.pause_s()
            mode = self.rng.choice([AWAY, HANGING, MUTE])
            self.happened[f"{way} {mode}"] += 1
            network.become(mode)
            yield self.pause_s()
            network.become(OPEN)

    def dies(self) -> Fate:
        while True:
            yield self.pause_s()
            self.happened["killed"] += 1
            if self.rng.random() < 0.5:
                self._begin_to_correct(MORTAL)
                time.sleep(self.rng.uniform(0, 0.3))
            everything = self.rng.random() < 0.7
            for pid in self.processes(MORTAL) if everything else [self.sidecars[MORTAL].pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.sidecars[MORTAL].wait()
            yield self.rng.uniform(0.1, min(self.longest_s / 2, 20.0))
            self.sidecars[MORTAL] = self.sidecar(MORTAL)

    def server_dies(self) -> Fate:
        while True:
            yield 2 * self.pause_s()
            self.happened["server killed"] += 1
            self._kill_server()
            yield self.rng.uniform(0.1, 1.0)
            self.serve()

    def _signal(self, agent: str, how: signal.Signals) -> None:
        for _ in range(2):  # one may have been born meanwhile
            for pid in self.processes(agent):
                with suppress(ProcessLookupError):
                    os.kill(pid, how)

    # --- what agents and people write -------------------------------------------------------------------------------

    def works(self, agent: str) -> Fate:
        acts: list[Callable[[str], None]] = [self.logs] * 5 + [self.writes] * 3 + [self.retires, self.edits] * 2
        acts += [self.restores, self.discovers]
        while True:
            yield self.rng.uniform(0.3, min(self.longest_s, 10.0))
            if agent not in self.asleep:
                act = self.rng.choice(acts)
                self.happened[act.__name__] += 1
                act(agent)

    def logs(self, agent: str) -> None:
        lesson = self.rng.choice(LESSONS)
        self.correct(agent, lesson)
        self.seen[lesson] += 1

    def _begin_to_correct(self, agent: str) -> None:
        """Log a correction; whoever starts this is about to kill it."""
        lesson = self.rng.choice(LESSONS)
        words = ["correct", "--wrong", f"w{next(self._numbers)}", "--right", "r", "--pattern", lesson]
        child = subprocess.Popen(
            [sys.executable, "-m", "fleet", *words],
            cwd=self.folder / agent,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(child)
        self.maybe[lesson] += 1

    def writes(self, agent: str) -> None:
        lesson = self.rng.choice(LESSONS)
        self.write_by_hand(agent, agent, next(self._numbers), lesson)
        self.seen[lesson] += 1

    def retires(self, agent: str) -> None:
        if (found := self._some(agent, is_present=True)) and self._done(agent, "retire", found):
            self.retired.add(found)

    def restores(self, agent: str) -> None:
        if found := self._some(agent, is_present=False):
            self._done(agent, "restore", found)

    def edits(self, agent: str) -> None:
        if found := self._some(agent, is_present=True):
            category = f"c{next(self._numbers)}"
            if self._done(agent, "edit", found, "--set", f"category={category}"):
                self.categories[found] = {category}  # one clock for all: the latest wins

    def discovers(self, agent: str) -> None:
        words = ["--problem", f"problem {next(self._numbers)}", "--solution", "s", "--json"]
        self.discoveries.add(json.loads(self.run(agent, "discover", *words).stdout)["id"])

    def _some(self, agent: str, *, is_present: bool) -> str:
        found = [fold(line) for line in self.held(agent).records.values()]
        ids = sorted(each.id for each in found if each.is_present is is_present)
        return self.rng.choice(ids) if ids else ""

    def _done(self, agent: str, *words: str) -> bool:
        done = self.run(agent, *words, expect=None)
        assert done.returncode in (0, 1, 2), done.stderr  # somebody may have been faster, which it says
        return done.returncode == 0

    # --- the end --------------------------------------------------------------------------------------------------

    def held(self, agent: str) -> Held:
        """Return what one machine holds."""
        held, workspace = Held(), Workspace(self.folder / agent)
        try:
            for entry in workspace.db.entries(workspace.db.names()).values():
                held.add(entry)
        finally:
            workspace.close()
        return held

    def waiting(self, agent: str) -> int:
        """Return of how many entries one machine believes that the branch lacks them."""
        workspace = Workspace(self.folder / agent)
        try:
            return len(workspace.db.outgoing())
        finally:
            workspace.close()

    def bytes_of(self, agent: str) -> tuple[bytes, ...]:
        return _bytes(self.held(agent))

    def in_git(self) -> tuple[bytes, ...]:
        """Return what somebody new would get."""
        names = self.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git").split()
        held = held_in({name: self.git("show", f"fleet:{name}", where="clan.git").encode() for name in names})
        return _bytes(held)

    def head(self) -> str:
        return self.git("rev-parse", "fleet", where="clan.git").strip()

    def is_equal(self) -> bool:
        """Tell whether all three, and the branch, hold the same, and all that was logged is in."""
        views = [self.bytes_of(agent) for agent in AGENTS]
        return views.count(views[0]) == len(views) and self.in_git() == views[0] and not self.missing()

    def missing(self) -> list[str]:
        """Return what was acknowledged, or counted, that a machine does not hold as it was."""
        held = self.held(SLEEPER)
        found = [f"discovery {each}" for each in sorted(self.discoveries - held.discoveries.keys())]
        for lesson in LESSONS:
            line, least = held.records.get(pattern_id(lesson)), self.seen[lesson]
            known = fold(line) if line is not None else None
            seen = known.count("seen") if known is not None else 0
            if not least <= seen <= least + self.maybe[lesson]:
                found.append(f"{lesson}: seen {seen}, acknowledged {least}, at most {least + self.maybe[lesson]}")
            if known is None:
                continue
            if known.id not in self.retired and not known.is_present:
                found.append(f"{lesson} is gone, and nobody retired it")
            if known.id in self.categories and known.category not in self.categories[known.id]:
                found.append(f"{lesson}: {known.category}, not {self.categories[known.id]}")
        return found

    def check(self) -> None:
        """Wait until all are equal and nothing moves any more, then look at everything."""
        began = time.monotonic()
        assert until(self.is_equal, EQUAL_S), self.told()
        print(f"equal after {time.monotonic() - began:.1f} s; {dict(self.happened)}")
        pause_s = 2 * max(2.0, min(self.lasts_s / 120, 20.0))
        assert until(lambda: self._is_quiet(pause_s), EQUAL_S), "it never falls quiet"
        # Who heard a line live has it before the tree that it fetched last: it asks again when its pause is over.
        assert until(lambda: not any(map(self.waiting, AGENTS)), EQUAL_S), "something waits, and would never go out"
        assert self.is_equal(), self.told()
        for agent in AGENTS:
            workspace = Workspace(self.folder / agent)
            names = [each.name for each in workspace.replicas().replicas]
            assert len(names) == 1, f"{agent} took itself for a clone: {names}"
            assert not workspace.quarantine.all(), workspace.quarantine.all()
            assert not workspace.db.differences(), "a database that is made anew is another one"
            workspace.close()

    def _is_quiet(self, pause_s: float) -> bool:
        head, views = self.head(), [self.bytes_of(agent) for agent in AGENTS]
        time.sleep(pause_s)
        return (head, views) == (self.head(), [self.bytes_of(agent) for agent in AGENTS])

    def told(self) -> str:
        """Return what whoever looks for a fault wants to know."""
        views = [self.bytes_of(agent) for agent in AGENTS]
        lines = [f"equal to the first: {[view == views[0] for view in [*views, self.in_git()]]}", *self.missing()]
        for agent in AGENTS:
            lines += [f"{agent}: {self.marks(agent)}", *(str(each) for each in self.events(agent)[-12:])]
        return "\n".join(lines)


def _bytes(held: Held) -> tuple[bytes, ...]:
    return tuple(held.edition(kind) for kind in KINDS)
