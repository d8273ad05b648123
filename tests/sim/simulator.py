"""Seeded random histories of a clan: agents at work on real workspaces, over a remote in memory.

The world is held: clocks jump, disks crash in the middle of a write, remotes are cut off, rewound, reverted, merged by
hand or lose a reply, folders are copied. Beside it stands a ledger of what was acknowledged. After healing, every
machine must hold the same bytes, and nothing acknowledged may be missing or counted twice.
"""

import hashlib
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from crdt import clock
from fleet.cli import wiring
from fleet.keep import config, edits, limits, notebook
from fleet.keep import line as codec
from fleet.keep.errors import FleetError
from fleet.keep.normal import pattern_id
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.learn.discoveries import Finding, discover
from fleet.share.meanwhile import Meanwhile
from fleet.share.memory import MemoryServer
from fleet.share.remote import Mark, RemoteUnavailable
from fleet.share.tree import PAGE
from tests.sim.people import People, held_in
from tests.sim.world import START_MS, CrashError, Ledger, Machine, SimDisk, SimRemote, hurried, large_from

HOUR_MS = 3_600_000
YEAR_MS = 8_766 * HOUR_MS
SETTLING_ROUNDS_MAX = 5
# One long history finds what ten short ones do not, and costs as much as three: one in five is long.
LONG_SHARE = 0.2
SHORT_STEPS, LONG_STEPS = (5, 14), (18, 45)
SHORT_MACHINES, LONG_MACHINES = (2, 3), (3, 5)
MACHINES_MAX = 6
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(6)]


class Simulation:
    """One history.

    Args:
        seed: decides everything.
        folder: an empty folder to work in.

    Attributes:
        remote_class: a machine's way to the server; a broken fleet has a broken one.
        happened: how often each thing came to pass.
    """

    remote_class = SimRemote

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.patience = random.Random(f"patience {seed}")
        self.folder = folder
        self.now_ms = START_MS
        self.server = MemoryServer()
        self.ledger = Ledger()
        self.people = People(self.server, self.rng, self.latest_believed)
        self.trace: list[str] = []
        self.happened: Counter[str] = Counter()
        self.is_busy = False  # somebody syncs: a faster one must not start a third
        # Small limits make editions, dropping and large clans happen within a few lines.
        self.edition_bytes = self.rng.choice([0, 600, 2_000, 262_144])
        # From this size on a clan is large: then the index is asked, and what was checked once is trusted.
        self.large_bytes = self.rng.choice([0, 2_000, 1_048_576, 1_048_576, 1_048_576])
        is_long = self.rng.random() < LONG_SHARE
        self.steps = self.rng.randint(*(LONG_STEPS if is_long else SHORT_STEPS))
        machines = self.rng.randint(*(LONG_MACHINES if is_long else SHORT_MACHINES))
        self.machines = [self._machine(f"agent{n}") for n in range(machines)]

    def _machine(self, agent: str) -> Machine:
        root = self.folder / agent
        root.mkdir()
        (root / config.FILE_NAME).write_text(f"[keep]\nedition_always_bytes = {self.edition_bytes}\n")
        return Machine(root, agent)

    def run(self) -> str:
        """Live through a history and heal; return a hash of all that happened."""
        actions = [self.correct] * 8 + [self.sync] * 8 + [self.write_by_hand] * 2 + [self.discover] * 2
        actions += [self.retire] * 2 + [self.restore, self.cut_off, self.jump, self.copy, self.crash, self.compact]
        actions += [self.back_up, self.bring_back, self.rewind, self.revert, self.merge, self.merge]
        for _ in range(self.steps):
            self.now_ms += self.rng.choice([1, 1, 50, 1_000, 60_000, HOUR_MS])
            machine = self.rng.choice(self.machines)
            action = self.rng.choice(actions)
            self.note(action.__name__, machine.agent)
            self.happened[action.__name__] += action(machine) is not False
        self.heal()
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def note(self, *words: object) -> None:
        """Add to the trace."""
        self.trace.append(" ".join(map(str, words)))

    def open(self, machine: Machine) -> Workspace:
        """Open a machine's workspace, as each command does."""
        world = World(
            wall_ms=lambda: self.now_ms + machine.skew_ms,
            entropy=self.rng.randbytes,
            machine=lambda: "one-machine",
            durable=False,
        )
        return Workspace(machine.root, world, SimDisk(machine.root))

    def correct(self, machine: Machine, workspace: Workspace | None = None) -> None:
        """Log a correction."""
        lesson = self.rng.choice(LESSONS)
        ours = workspace or self.open(machine)
        self.ledger.maybe[lesson] += 1
        try:
            # FULL: the entry is acknowledged when this returns.
            logged = corrections.correct(ours, machine.agent, Correction("w", "r", lesson), session=str(self.now_ms))
            self.ledger.maybe[lesson] -= 1
            self.ledger.seen[lesson] += 1
            machine.since_snapshot.append(lesson)
            self.note("logged", logged.id, logged.seen)
        finally:
            ours.close()

    def write_by_hand(self, machine: Machine) -> None:
        """Write an entry with an editor, maybe without the final newline."""
        lesson = self.rng.choice(LESSONS)
        path = machine.root / "agents" / machine.agent / "corrections.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        end = self.rng.choice(["", "\n", "\n\n"])
        old = path.read_bytes() if path.exists() else b""
        with path.open("a") as file:
            file.write(
                ("" if not old or old.endswith(b"\n") else "\n")
                + f"\n## 2026-11-21 — by hand {self.now_ms}\n**Pattern:** {lesson}{end}"
            )
        self.ledger.seen[lesson] += 1
        machine.since_snapshot.append(lesson)

    def discover(self, machine: Machine) -> None:
        """Log a discovery."""
        workspace = self.open(machine)
        entry, _ = discover(workspace, machine.agent, Finding(f"problem {self.rng.randint(0, 9)}", "solution"))
        self.ledger.discoveries.add(entry.id)
        machine.since_snapshot.append(entry.id)
        workspace.close()

    def retire(self, machine: Machine) -> None:
        """Retire a lesson that is in."""
        self._edit(machine, edits.retired, wanted=True)

    def restore(self, machine: Machine) -> None:
        """Bring a retired lesson back."""
        self._edit(machine, edits.restored, wanted=False)

    def _edit(self, machine: Machine, change: Callable, *, wanted: bool) -> None:
        workspace = self.open(machine)
        with workspace.writing(machine.agent):
            pass
        held = corrections.settle_all(workspace)
        lines = [line for line in held.notebook.patterns.values() if notebook.is_present(line) is wanted]
        if lines:
            line = self.rng.choice(sorted(lines, key=lambda line: line.id))
            with workspace.writing(machine.agent) as writer:
                writer.append(PATTERNS, [change(line, writer.name, writer.tick())])
            self.ledger.retired.add(line.id)
            self.note("edited", line.id)
        workspace.close()

    def sync(self, machine: Machine, *, compact: bool = False) -> None:
        """Sync, perhaps with somebody faster, a lost reply, or no way to the remote."""
        self.server.is_down = machine.is_cut_off
        self.server.drops_next_reply = self.rng.random() < 0.1
        try:
            self._sync(machine, self.open(machine), self.somebody_is_faster, compact=compact)
        except RemoteUnavailable:
            self.note("no answer")
        finally:
            self.server.is_down = self.server.drops_next_reply = False

    def compact(self, machine: Machine) -> None:
        """`fleet compact`: an edition, due or not, and every shard without what it covers."""
        self.sync(machine, compact=True)

    def _sync(
        self, machine: Machine, workspace: Workspace, meanwhile: Callable[[], None], *, compact: bool = False
    ) -> None:
        try:
            with workspace.writing(machine.agent):
                pass
            # What there is to do meanwhile is done in time, too late, or in its turn.
            work = self.patience.choice([None, Meanwhile(), Meanwhile()])
            is_waiting = self.patience.random() < 0.8

            def at_push() -> None:
                if work is not None and is_waiting:
                    work.spend()
                meanwhile()

            remote = self.remote_class(self.server, at_push)
            rng, sleep = self.rng, lambda _: None
            done = wiring.sync(workspace, remote, rng=rng, sleep=sleep, compact=compact, meanwhile=work)
            assert workspace.store.read(PAGE) == wiring.page(workspace, workspace.load().notebook)
            self.note("synced", done.out, done.patterns_in, done.lost, done.edition)
            self.happened["sent again"] += bool(done.lost)
        finally:
            workspace.close()
            self.check_nothing_went_back(machine)

    def check_nothing_went_back(self, machine: Machine) -> None:
        """Whatever the remote did: what a machine holds covers all it ever held."""
        held = self.open(machine).store.load("~").notebook
        for known in machine.known.values():
            now = held.get(known.id)
            assert now is not None, f"{machine.root.name} forgot {known.id}"
            assert codec.covers(now, known), f"{machine.root.name} went back on {known.id}"
        machine.known = dict(held.patterns.items())

    def somebody_is_faster(self) -> None:
        """Another machine syncs between our pull and our push."""
        if self.is_busy or self.rng.random() > 0.2:
            return
        self.is_busy = True
        down, drops = self.server.is_down, self.server.drops_next_reply
        try:
            self.sync(self.rng.choice(self.machines))
        finally:
            self.is_busy = False
            self.server.is_down, self.server.drops_next_reply = down, drops

    def cut_off(self, machine: Machine) -> None:
        """Lose or find the way to the remote."""
        machine.is_cut_off = not machine.is_cut_off

    def jump(self, machine: Machine) -> None:
        """A clock jumps: a little, a day back, or ten years ahead."""
        machine.skew_ms = self.rng.choice([0, 0, -HOUR_MS, HOUR_MS, -26 * HOUR_MS, 30 * HOUR_MS, 87_600 * HOUR_MS])
        self.note("skew", machine.skew_ms)

    def copy(self, machine: Machine) -> None:
        """Copy a folder: two machines with one replica's state."""
        if len(self.machines) >= MACHINES_MAX:
            return
        root = self.folder / f"copy{len(self.machines)}"
        shutil.copytree(machine.root, root)
        # Entries that were written by hand and never recorded are in both folders now: each will count its own.
        for entry in corrections.reconcile.bind(corrections.read_log(self.open(machine), machine.agent)):
            if entry.record is None and entry.entry.pattern:
                self.ledger.maybe[entry.entry.pattern] += 1
        if machine.snapshot is not None:
            # A copy of a machine that was brought back: one says its entries anew, the other under the old id.
            for lesson in self.unsent(machine):
                self.ledger.maybe[lesson] += 1
        self.machines.append(Machine(root, machine.agent, known=dict(machine.known)))

    def back_up(self, machine: Machine) -> None:
        """Take a snapshot of a machine."""
        machine.snapshot = self.folder / f"snapshot-{machine.root.name}"
        shutil.rmtree(machine.snapshot, ignore_errors=True)
        shutil.copytree(machine.root, machine.snapshot)
        machine.since_snapshot = []

    def bring_back(self, machine: Machine) -> None:
        """Put the machine back as it was: same path, same replica id, older state."""
        if machine.snapshot is None:
            return
        shutil.rmtree(machine.root)
        shutil.copytree(machine.snapshot, machine.root)
        machine.known = {}
        # What was logged since is there only if it had been sent.
        for what in machine.since_snapshot:
            if what in LESSONS:
                self.ledger.seen[what] -= 1
                self.ledger.maybe[what] += 1
            self.ledger.discoveries.discard(what)
        # ADR 6: an entry that was logged before the snapshot and sent after it may count again.
        for lesson in self.unsent(machine):
            self.ledger.maybe[lesson] += 1
        machine.since_snapshot = []

    def unsent(self, machine: Machine) -> list[str]:
        """Return the lessons of the entries that the machine, as it is now, has not sent."""
        workspace = self.open(machine)
        base = workspace.store.load("~", workspace.store.base).notebook
        found = []
        for bound in corrections.reconcile.bind(corrections.read_log(workspace, machine.agent)):
            record = bound.record
            line = base.get(record.pattern) if record else None
            if record is None or line is None or line.add.get(record.replica, "") < record.at:
                found.append(bound.entry.pattern)
        workspace.close()
        return [lesson for lesson in found if lesson]

    def rewind(self, _: Machine) -> bool:
        """The remote is forced back to an older commit, or deleted."""
        return self.people.rewind()

    def revert(self, _: Machine) -> bool:
        """The remote's content goes back in a new commit."""
        return self.people.revert()

    def merge(self, _: Machine) -> bool:
        """Somebody merges an old clone with plain git, and pushes."""
        lesson = self.rng.choice(LESSONS)
        self.ledger.maybe[lesson] += 1  # they may write a line; a revert may take it out before anybody has read it
        return self.people.merge(pattern_id(lesson))

    def latest_believed(self) -> str:
        """Return the latest stamp that a machine whose clock is right believes."""
        return clock.shifted(clock.pack(self.now_ms, 0), limits.AHEAD_HOURS_MAX * HOUR_MS)

    def crash(self, machine: Machine) -> None:
        """Lose power in the middle of a write of the next command."""
        workspace = self.open(machine)
        assert isinstance(workspace.disk, SimDisk)
        workspace.disk.writes_left = self.rng.randint(0, 6)
        workspace.disk.torn_share = self.rng.random()
        try:
            if self.rng.random() < 0.5:
                self.correct(machine, workspace)
            else:
                self._sync(machine, workspace, lambda: None, compact=self.rng.random() < 0.3)
        except CrashError:
            self.note("crashed")
        except FleetError as why:
            self.note("failed", type(why).__name__)
        finally:
            workspace.close()

    def heal(self) -> None:
        """Set the clocks, mend the ways, and sync until nothing moves any more; then compare everybody."""
        self.now_ms += 40 * HOUR_MS
        for machine in self.machines:
            machine.skew_ms, machine.is_cut_off = 0, False
        self.is_busy = True
        self.settle()
        if any(self.open(machine).timekeeper.reading().wrong for machine in self.machines):
            # Clocks that ran ten years ahead together believe each other: who has seen them writes no edition until
            # the day has come, and what a revert took out of one waits so long.
            self.check(self.open(self.machines[0]))
            self.now_ms += 11 * YEAR_MS
            self.settle()
        states = [self.editions(machine) for machine in self.machines]
        assert all(state == states[0] for state in states), "machines differ after healing"
        newcomer = held_in(self.server.tree())
        assert states[0] == (newcomer.notebook.edition(), newcomer.findings.edition()), "a newcomer would miss some"
        self.note(hashlib.sha256(b"".join(states[0])).hexdigest())
        self.check(self.open(self.machines[0]))

    def settle(self) -> None:
        """Sync in turn until everybody has seen the same head. Those who believe the same then see the same."""
        seen: dict[Path, Mark] = {}
        for _ in range(SETTLING_ROUNDS_MAX):
            for machine in self.machines:
                if seen.get(machine.root, "none") != self.server.head:
                    self.note("heals", machine.root.name)
                    self._sync(machine, self.open(machine), lambda: None)
                    seen[machine.root] = self.server.head
        head, last = self.server.head, self.rng.choice(self.machines)
        self._sync(last, self.open(last), lambda: None)
        assert {head} == {self.server.head, *seen.values()}, "the clan does not settle: every sync pushes something"
        # Those whose clocks are right hold back the same parts, and so have the same notebook.
        cuts = [self.open(machine).timekeeper.reading() for machine in self.machines]
        views = [self.editions(m, cut.cut) for m, cut in zip(self.machines, cuts, strict=True) if not cut.wrong]
        assert all(view == views[0] for view in views), "machines that hold back the same differ after healing"

    def editions(self, machine: Machine, cut: str = "~") -> tuple[bytes, bytes]:
        """Return everything a machine holds, as canonical bytes, seen under a cut."""
        held = self.open(machine).store.load(cut)
        return held.notebook.edition(), held.findings.edition()

    def check(self, workspace: Workspace) -> None:
        """Compare with the ledger: nothing acknowledged is missing, nothing is counted twice."""
        held = workspace.load()
        for lesson in LESSONS:
            line = held.notebook.get(pattern_id(lesson))
            seen = notebook.count(line, "seen") if line else 0
            least, most = self.ledger.seen[lesson], self.ledger.seen[lesson] + self.ledger.maybe[lesson]
            assert least <= seen <= most, f"{lesson}: seen {seen}, acknowledged {least}, at most {most}"
            if least and line.id not in self.ledger.retired:
                # Two clocks that ran ten years ahead together believe each other; what they wrote waits for the day.
                is_held = any(part.id == line.id for part in held.notebook.held)
                assert notebook.is_present(line) or is_held, f"{lesson} is gone, and nobody retired it"
        missing = self.ledger.discoveries - held.findings.entries.keys()
        assert not missing, f"discoveries lost: {missing}"


def history(seed: int, folder: Path, kind: Callable[[int, Path], Simulation] = Simulation) -> str:
    """Run one seed in a fresh folder; return the hash of its trace."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        simulation = kind(seed, folder)
        with hurried(), large_from(simulation.large_bytes):
            return simulation.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
