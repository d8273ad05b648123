"""An hour of three real sidecars, with real ticks, live client and server, in virtual time and a simulated world.

One machine sleeps, and its monotonic clock may stand still meanwhile. One moves between networks, and loses the remote
and the live server at separate times. One loses power, maybe during a write, and starts again with what was durable.
"""

import hashlib
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fleet.app import learning, sharing
from fleet.learn import counting
from fleet.learn.corrections_md import Correction
from fleet.model import edits
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from fleet.serve import schedule, sidecar
from fleet.serve.schedule import Fingerprints, Memory, SyncSummary, TickResult
from fleet.serve.sidecar import _next, _Sidecar
from fleet.serve.tick import Tick
from fleet.share.live import client as living
from fleet.share.live.access import Where
from fleet.share.live.client import Live
from fleet.store import changes, config, files
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.lines import KINDS, PATTERNS
from fleet.store.workspace import Workspace, World, Writer
from tests.memory_remote import MemoryServer
from tests.sim.people import Held, held_in
from tests.sim.virtual import Conductor, Inline, Loop
from tests.sim.wires import AWAY, HANGING, MUTE, OPEN, Server, Way
from tests.sim.world import POWERS, START_MS, CrashError, Ledger, Power, SimFiles, SimRemote, SimTree

HOUR_S = 3_600.0
HOUR_NS = 3_600_000_000_000
HEALED_S = 900.0
"""The longest pause after failures and the longest interval together, and a little more."""
QUIET_S = 800.0
IDLE_TICKS_MAX = 10
"""Most ticks of one machine while nothing happens: a look and a sync every five minutes, and what a sync sets off."""
LOOK_S = 20.0
"""Seconds between polls, instead of one or two as in reality, which would be much work and find nothing more."""
SLEEPER, MOVER, MORTAL = AGENTS = ("sleeper", "mover", "mortal")
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(6)]

Change = Callable[[Line, Writer, str], Line]
"""An edit of a record, by a writer, up to a cut."""


class Mains(Power):
    """The power of a machine whose processes run on for a while after it has failed, and can write nothing then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_off = False

    def step(self, tear: Callable[[float], object] = bool) -> None:
        """Count a durable step, or fail at it."""
        if self.is_off:
            raise CrashError
        try:
            super().step(tear)
        except CrashError:
            self.is_off = True
            raise


class HourFiles(SimFiles):
    """Files of which each write has its own modification time, since real times would depend on the test's speed.

    Args:
        machine: the machine that they are on.
    """

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine.root)
        self.unsure = machine.unsure
        self._numbers = machine.hour.numbers

    def _write_all(self, handle: int, data: bytes) -> None:
        super()._write_all(handle, data)
        os.utime(handle, ns=(number := next(self._numbers), number))


class SimSidecar(_Sidecar):
    """A sidecar that gets no signals."""

    async def _until_a_signal(self) -> None:
        await self._stop.wait()

    def hear(self) -> None:
        """Do what happens when the watcher reports a change."""
        self._news.set()


class Machine:
    """One agent's machine."""

    def __init__(self, hour: "Hour", agent: str, root: Path) -> None:
        self.hour, self.agent, self.root = hour, agent, root
        self.power = Mains()
        self.tree = SimTree()
        self.unsure: dict[Path, int] = {}
        self.is_remote_away = False
        self.behind_s = 0.0
        self.slept_at_s: float | None = None
        self.way = Way(hour.server, self.later)
        self.open_way()
        self.loop: Loop | None = None
        self.ticks = 0
        self.sidecar: SimSidecar
        self.workspace: Workspace

    def now_s(self) -> float:
        """Return the time of its monotonic clock, which may stand still while the machine sleeps."""
        return self.hour.conductor.now_s - self.behind_s

    def later(self, wait_s: float, act: Callable[[], None]) -> None:
        if self.loop is not None:
            self.loop.call_later(wait_s, act)

    def open(self) -> Workspace:
        hour = self.hour
        world = World(
            hour.now_ms,
            entropy=hour.rng.randbytes,
            machine=lambda: f"machine of {self.agent}",
            durable=False,
            tree=lambda _: self.tree,
        )
        return Workspace(self.root, world, HourFiles(self))

    def start(self) -> None:
        """Start the sidecar."""
        hour = self.hour
        POWERS[self.root] = self.tree.power = self.power = Mains()
        self.loop = Loop(self.now_s)
        self.workspace = self.open()
        self.sidecar = SimSidecar(
            root=str(self.root),
            agent=self.agent,
            fingerprints=partial(schedule.fingerprints, self.workspace),
            configured=lambda: config.load(self.root / config.FILE_NAME),
            marks=Memory(self.workspace).read,
            now_ms=hour.now_ms,
            tick=self._tick,
            log=lambda event, what: hour.note(self.agent, event, what),
            background={"live": self._live},
            rng=hour.rng,
        )
        self.loop.create_task(self.sidecar.run())
        self.awake()

    async def _tick(self, local: bool) -> TickResult:
        """Do what a tick's process does, after a while that stands for its start."""
        import anyio

        await anyio.sleep(self.hour.rng.uniform(0.1, 1.0))
        self.ticks += 1
        with self.hour.opened(self) as workspace:
            tick = Tick(workspace, self.agent, self.hour.rng)
            tick._sync = lambda: self._sync(workspace)
            return tick.run(local=local)

    def _sync(self, workspace: Workspace) -> SyncSummary:
        git, rng = self.hour.git, self.hour.rng
        git.is_down = self.is_remote_away
        git.drops_next_reply = self.agent == MOVER and rng.random() < 0.2
        try:
            with workspace.writing(self.agent):
                pass
            remote = SimRemote(git, self.tree)
            done = sharing.sync_with(workspace, remote, rng=rng, sleep=lambda _: None, monotonic=self.now_s)
            return SyncSummary(lines_out=done.out, records_in=done.patterns_in + done.discoveries_in)
        finally:
            git.is_down = git.drops_next_reply = False

    async def _live(self, changed: Any, arrived: Callable[[], None], stop: Any) -> None:
        def counted() -> None:
            self.hour.happened["arrived live"] += 1
            arrived()

        live = Live(self.open, self.agent, Where(f"ws://{self.agent}", "clan"), counted, lambda _: None, self.hour.rng)
        live._pool.shutdown()
        live._pool = Inline()  # type: ignore[assignment]
        await live.run(partial(_next, changed))

    # --- faults -------------------------------------------------------------------------------------------------------

    def open_way(self) -> None:
        self.way.become(AWAY if self.hour.is_live_away else OPEN)

    def awake(self) -> None:
        if self.slept_at_s is not None:
            if self.hour.is_clock_stopped:
                self.behind_s += self.hour.conductor.now_s - self.slept_at_s
            self.slept_at_s = None
            self.open_way()
        if self.loop is not None:
            loop = self.loop
            self.hour.conductor.loops[self.agent] = (loop, lambda: self.behind_s)

    def asleep(self) -> None:
        self.slept_at_s = self.hour.conductor.now_s
        self.way.become(HANGING)
        self.hour.conductor.loops.pop(self.agent, None)

    def kill(self) -> None:
        """End its processes without warning; what was not waited for may be lost."""
        if self.loop is None:
            return
        self.power.is_off = True
        self.hour.conductor.loops.pop(self.agent, None)
        self.way.become(AWAY)
        synced = self._database.read_bytes() if self._database.exists() else b""
        self.loop.kill()
        self.workspace.close()
        self._lose(synced)
        self.open_way()
        self.loop = None

    @property
    def _database(self) -> Path:
        return self.root / ".fleet" / f"state-{SCHEMA_NUMBER}.db"

    def _lose(self, synced: bytes) -> None:
        """Lose, by chance, lines that nobody waited for, and the database's last transactions or all of it."""
        rng = self.hour.rng
        if rng.random() < 0.5:
            for path, size in self.unsure.items():
                with suppress(FileNotFoundError):
                    os.truncate(path, min(size, path.stat().st_size))
        self.unsure.clear()
        fate = rng.choice(["database whole", "database back", "database gone"])
        self.hour.happened[fate] += 1
        if fate != "database whole":
            for each in self._database.parent.glob(f"{self._database.name}*"):
                each.unlink()
        if fate == "database back" and synced:
            self._database.write_bytes(synced)


class Hour:
    """One history.

    Args:
        seed: decides everything.
        folder: an empty folder.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.conductor = Conductor()
        self.numbers = itertools.count(1)
        self.git = MemoryServer()
        self.server = Server(self.conductor, self.rng.randbytes)
        self.is_clock_stopped = self.rng.random() < 0.5
        self.is_live_away = self.rng.random() < 0.3  # for all machines and for good, so that git alone must do
        self.ledger = Ledger()
        self.acknowledged: list[Line] = []
        """Changes that every machine must cover in the end."""
        self.happened: Counter[str] = Counter()
        self.trace: list[str] = []
        edition_bytes = self.rng.choice([0, 600, 262_144])
        self.machines = {agent: Machine(self, agent, folder / agent) for agent in AGENTS}
        for machine in self.machines.values():
            machine.root.mkdir()
            settings = f"[keep]\nedition_always_bytes = {edition_bytes}\n[sidecar]\npolling = true\n"
            (machine.root / config.FILE_NAME).write_text(settings)
            workspace = machine.open()
            with workspace.writing(machine.agent):
                workspace.close()

    def now_ms(self) -> int:
        return START_MS + int(self.conductor.now_s * 1000)

    def note(self, *words: object) -> None:
        self.trace.append(" ".join(map(str, (f"{self.conductor.now_s:.3f}", *words))))

    def run(self) -> str:
        """Run the hour, heal and check; return the hash of the trace."""
        with self.simulated_world():
            try:
                for machine in self.machines.values():
                    machine.start()
                self.plan()
                self.conductor.run_until(HOUR_S)
                self.heal()
                self.conductor.run_until(self.conductor.now_s + HEALED_S)
                self.check()
                head, ticks = self.git.head, {each.agent: each.ticks for each in self.machines.values()}
                self.conductor.run_until(self.conductor.now_s + QUIET_S)
                assert self.git.head == head, "it never falls quiet"
                ticks = {each.agent: each.ticks - ticks[each.agent] for each in self.machines.values()}
                assert max(ticks.values()) <= IDLE_TICKS_MAX, f"work where nothing happens: {ticks}"
                self.check()
            finally:
                for machine in self.machines.values():
                    machine.kill()
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    @contextmanager
    def simulated_world(self) -> Iterator[None]:
        """Fingerprint files by their content, since a virtual second shows in no file's time; replace the sockets.

        No file counts as too young for its times to be trusted, which would depend on how fast the tests run.
        """
        look, connect, poll_s, look_s = changes.Changes.fingerprints, living.connect, sidecar.POLL_S, living.POLL_S
        ticks = files._TICK_NS, files._COARSE_TICK_NS

        def read(found: changes.Changes, paths: Iterable[str]) -> Fingerprints:
            return {path: self._content(Path(found._root) / path) for path in paths}

        changes.Changes.fingerprints, sidecar.POLL_S, living.POLL_S = read, LOOK_S, LOOK_S
        files._TICK_NS = files._COARSE_TICK_NS = -HOUR_NS
        living.connect = lambda url, **more: self.machines[url.split("/")[2]].way.connect(url, **more)
        try:
            yield
        finally:
            changes.Changes.fingerprints, living.connect, sidecar.POLL_S, living.POLL_S = look, connect, poll_s, look_s
            files._TICK_NS, files._COARSE_TICK_NS = ticks

    @staticmethod
    def _content(path: Path) -> list[int]:
        if not path.is_file():
            return [int(path.exists())]
        return list(hashlib.sha256(path.read_bytes()).digest())

    # --- the story ------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        acts: list[Callable[[Machine], object]] = [self.correct] * 5 + [self.write_by_hand] * 3
        acts += [self.retire, self.retire, self.restore, self.edit, self.edit, self.discover]
        for _ in range(self.rng.randint(15, 35)):
            machine, act = self.machines[self.rng.choice(AGENTS)], self.rng.choice(acts)
            self.conductor.at(self.rng.uniform(0, HOUR_S), lambda m=machine, a=act: self.do(m, a))
        self.spans(120, 1_800, self.machines[SLEEPER].asleep, self.machines[SLEEPER].awake, "sleep")
        mover = self.machines[MOVER]
        self.spans(5, 900, lambda: self._remote(mover, True), lambda: self._remote(mover, False), "remote away")
        self.spans(5, 600, lambda: self._move(mover), mover.open_way, "live away")
        for _ in range(self.rng.randint(1, 4)):
            self.conductor.at(self.rng.uniform(0, HOUR_S), self.crash)
        if self.rng.random() < 0.5:
            self.conductor.at(self.rng.uniform(0, HOUR_S), self.server.restart)
            self.happened["server restarts"] += 1

    def spans(
        self, least_s: float, most_s: float, begin: Callable[[], None], end: Callable[[], None], what: str
    ) -> None:
        at_s = self.rng.uniform(0, 900)
        while at_s < HOUR_S:
            lasts_s = self.rng.uniform(least_s, most_s)
            self.conductor.at(at_s, begin)
            self.conductor.at(at_s + lasts_s, end)
            self.happened[what] += 1
            at_s += lasts_s + self.rng.uniform(30, 900)

    def _remote(self, machine: Machine, is_away: bool) -> None:
        machine.is_remote_away = is_away

    def _move(self, machine: Machine) -> None:
        machine.way.become(mode := self.rng.choice([AWAY, HANGING, MUTE]))
        self.happened[mode] += 1

    def crash(self) -> None:
        """Let the power of the mortal machine fail, now or during one of its next writes."""
        machine = self.machines[MORTAL]
        if machine.loop is None:
            return
        self.happened["crash"] += 1
        if self.rng.random() < 0.3:
            machine.power.is_off = True
        else:
            machine.power.steps_left, machine.power.torn_share = self.rng.randint(0, 24), self.rng.random()
            self.do(machine, self.correct)
        self.conductor.after(self.rng.uniform(0.5, 60), self._bury)

    def _bury(self) -> None:
        machine = self.machines[MORTAL]
        self.happened["torn"] += machine.power.is_off and machine.power.torn_share > 0
        machine.kill()
        self.conductor.after(self.rng.uniform(1, 120), lambda: machine.start() if machine.loop is None else None)

    def heal(self) -> None:
        for machine in self.machines.values():
            machine.is_remote_away = False
            machine.open_way()
            if machine.slept_at_s is not None:
                machine.awake()
            if machine.power.is_off or machine.power.steps_left >= 0:
                machine.kill()
            if machine.loop is None:
                machine.start()

    # --- what agents and people do ----------------------------------------------------------------------------------

    def do(self, machine: Machine, act: Callable[[Machine], object]) -> None:
        if machine.slept_at_s is not None or machine.power.is_off:
            return
        try:
            self.happened[act.__name__] += act(machine) is not False
        except CrashError:
            self.note(machine.agent, "lost its power")
        except FleetError:
            if not machine.power.is_off:
                raise
        self.note(machine.agent, act.__name__)
        if machine.loop is not None and self.rng.random() < 0.9:  # a watcher may miss a change
            self.conductor.after(0.1, machine.sidecar.hear)

    @contextmanager
    def opened(self, machine: Machine) -> Iterator[Workspace]:
        workspace = machine.open()
        try:
            yield workspace
        finally:
            workspace.close()

    def correct(self, machine: Machine) -> None:
        lesson = self.rng.choice(LESSONS)
        self.ledger.maybe[lesson] += 1
        with self.opened(machine) as workspace:
            given = Correction("w", "r", lesson)
            learning.correct(workspace, machine.agent, given, session=str(self.now_ms()))
        self.ledger.maybe[lesson] -= 1
        self.ledger.seen[lesson] += 1

    def write_by_hand(self, machine: Machine) -> None:
        lesson = self.rng.choice(LESSONS)
        path = machine.root / "agents" / machine.agent / "corrections.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:  # the blank line first, since the last line may be torn
            file.write(
                f"\n\n## 2026-11-21 — by hand {self.now_ms()}\n**Pattern:** {lesson}{self.rng.choice(['', chr(10)])}"
            )
        self.ledger.seen[lesson] += 1

    def discover(self, machine: Machine) -> None:
        with self.opened(machine) as workspace:
            problem = f"problem {self.rng.randint(0, 9)}"
            given = Discovery(id="", problem=problem, solution="solution", type="discovery", confidence="medium")
            entry, _ = learning.discover(workspace, machine.agent, given)
        self.ledger.discoveries.add(entry.id)

    def retire(self, machine: Machine) -> bool:
        def retired(line: Line, by: Writer, _: str) -> Line:
            self.ledger.retired.add(line.id)
            return edits.retire(line, by.name)

        return self._change(machine, retired, is_present=True)

    def restore(self, machine: Machine) -> bool:
        def restored(line: Line, by: Writer, _: str) -> Line:
            return edits.restore(line, by.name, by.tick())

        return self._change(machine, restored, is_present=False)

    def edit(self, machine: Machine) -> bool:
        category = f"c{self.rng.randint(0, 99)}"

        def edited(line: Line, by: Writer, cut: str) -> Line:
            return edits.set_field(line, "category", category, by.name, by.tick(), cut)

        return self._change(machine, edited, is_present=True)

    def _change(self, machine: Machine, how: Change, *, is_present: bool) -> bool:
        with self.opened(machine) as workspace:
            counting.reconcile_all(workspace)
            found = sorted(each.id for each in workspace.patterns.records() if each.is_present is is_present)
            if not found:
                return False
            line = workspace.patterns.line(self.rng.choice(found))
            assert line is not None
            with workspace.writing(machine.agent) as writer:
                writer.append(PATTERNS, [change := how(line, writer, workspace.policy().cut)])
            self.acknowledged.append(change)
        return True

    # --- the end --------------------------------------------------------------------------------------------------

    def held(self, machine: Machine) -> Held:
        held = Held()
        with self.opened(machine) as workspace:
            for entry in workspace.db.entries(workspace.db.names()).values():
                held.add(entry)
        return held

    def check(self) -> None:
        views = [_bytes(self.held(machine)) for machine in self.machines.values()]
        assert all(view == views[0] for view in views), "machines differ"
        branch = held_in(self.git.tree())
        assert _bytes(branch) == views[0], "the branch differs"
        self.note(hashlib.sha256(b"".join(views[0])).hexdigest())
        for lesson in LESSONS:
            line = branch.records.get(pattern_id(lesson))
            seen, least = fold(line).count("seen") if line else 0, self.ledger.seen[lesson]
            most = least + self.ledger.maybe[lesson]
            assert least <= seen <= most, f"{lesson}: seen {seen}, acknowledged {least}, at most {most}"
            gone = line is not None and line.id not in self.ledger.retired and not fold(line).is_present
            assert not gone, f"{lesson} is gone, and nobody retired it"
        assert self.ledger.discoveries <= branch.discoveries.keys()
        for line in self.acknowledged:
            assert branch.covers(line), f"a change of {line.id} is lost: {line}"
        for machine in self.machines.values():
            with self.opened(machine) as workspace:
                self.check_machine(machine, workspace, views[0])

    def check_machine(self, machine: Machine, workspace: Workspace, edition: tuple[bytes, ...]) -> None:
        """Check that nothing waits to be sent here, and that a rebuilt database has the same rows."""
        names = [replica.name for replica in workspace.replicas().replicas]
        assert len(names) == 1, f"{machine.agent} took itself for a clone: {names}"
        assert not workspace.db.outgoing(), "something waits, and would never go out"
        assert not workspace.db.differences(), "a rebuilt database differs"
        assert tuple(workspace.db.edition(kind) for kind in KINDS) == edition, "the fetched tree differs"
        refused = [each for each in workspace.quarantine.all() if MORTAL not in each.path]  # its lines may be torn
        assert not refused, refused


def _bytes(held: Held) -> tuple[bytes, ...]:
    return tuple(held.edition(kind) for kind in KINDS)
