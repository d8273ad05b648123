"""Seeded random histories of a clan: agents at work on real workspaces, over a remote in memory.

The world is held: clocks jump, disks crash in the middle of a write, remotes are cut off, rewound or lose a reply,
folders are copied. Beside it stands a ledger of what was acknowledged. After healing, every machine must hold the same
bytes, and nothing acknowledged may be missing or counted twice.
"""

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.cli import wiring
from fleet.keep import config, edits, notebook
from fleet.keep.disk import Disk
from fleet.keep.errors import FleetError
from fleet.keep.normal import pattern_id
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.learn.discoveries import Finding, discover
from fleet.share.memory import MemoryRemote, MemoryServer
from fleet.share.remote import Files, Mark, Moved, RemoteUnavailable

START_MS = 1_795_219_200_000  # 2026-11-21
HOUR_MS = 3_600_000
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(6)]


class CrashError(Exception):
    """The machine lost its power: nothing of ours may catch this."""


class SimDisk(Disk):
    """A disk that needs no waiting for, and that can fail in the middle of the n-th write from now."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writes_left = -1
        self.torn_share = 0.0

    def _fsync(self, handle: int) -> None:
        pass

    def _write_all(self, handle: int, data: bytes) -> None:
        if self.writes_left == 0:
            self.writes_left = -1
            os.write(handle, data[: int(len(data) * self.torn_share)])
            raise CrashError
        self.writes_left -= self.writes_left > 0
        super()._write_all(handle, data)


class SimRemote(MemoryRemote):
    """A way to the server on which others may be faster."""

    def __init__(self, server: MemoryServer, meanwhile: Callable[[], None]) -> None:
        super().__init__(server)
        self.meanwhile = meanwhile

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        self.meanwhile()
        return super().push(files, on, message=message)


@dataclass
class Machine:
    """One agent's folder, its clock's error, and whether it is cut off."""

    root: Path
    agent: str
    skew_ms: int = 0
    is_cut_off: bool = False
    snapshot: Path | None = None
    since_snapshot: list[str] = field(default_factory=list)


@dataclass
class Ledger:
    """What was acknowledged, and what may have happened before a crash."""

    seen: Counter[str] = field(default_factory=Counter)
    maybe: Counter[str] = field(default_factory=Counter)
    retired: set[str] = field(default_factory=set)
    discoveries: set[str] = field(default_factory=set)


class Simulation:
    """One history.

    Args:
        seed: decides everything.
        folder: an empty folder to work in.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.now_ms = START_MS
        self.server = MemoryServer()
        self.ledger = Ledger()
        self.trace: list[str] = []
        self.is_busy = False  # somebody syncs: a faster one must not start a third
        # Small limits make editions, dropping and large clans happen within a few lines.
        self.edition_bytes = self.rng.choice([0, 600, 2_000, 262_144])
        self.machines = [self._machine(f"agent{n}") for n in range(self.rng.randint(2, 5))]

    def _machine(self, agent: str) -> Machine:
        root = self.folder / agent
        root.mkdir()
        (root / config.FILE_NAME).write_text(f"[keep]\nedition_always_bytes = {self.edition_bytes}\n")
        return Machine(root, agent)

    def run(self, steps: int) -> str:
        """Live through a history and heal; return a hash of all that happened."""
        actions = [self.correct] * 8 + [self.sync] * 8 + [self.write_by_hand] * 2 + [self.discover] * 2
        actions += [self.retire] * 2 + [self.restore, self.cut_off, self.jump, self.copy, self.rewind, self.crash]
        actions += [self.back_up, self.bring_back]
        for _ in range(steps):
            self.now_ms += self.rng.choice([1, 1, 50, 1_000, 60_000, HOUR_MS])
            machine = self.rng.choice(self.machines)
            action = self.rng.choice(actions)
            self.note(action.__name__, machine.agent)
            action(machine)
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

    def sync(self, machine: Machine) -> None:
        """Sync, perhaps with somebody faster, a lost reply, or no way to the remote."""
        workspace = self.open(machine)
        with workspace.writing(machine.agent):
            pass
        remote = SimRemote(self.server, self.somebody_is_faster)
        self.server.is_down = machine.is_cut_off
        self.server.drops_next_reply = self.rng.random() < 0.1
        try:
            done = wiring.sync(workspace, remote, rng=self.rng, sleep=lambda _: None)
            self.note("synced", done.out, done.patterns_in, done.lost, done.edition)
        except RemoteUnavailable:
            self.note("no answer")
        finally:
            self.server.is_down = self.server.drops_next_reply = False
            workspace.close()

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
        if len(self.machines) >= 6:
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
        self.machines.append(Machine(root, machine.agent))

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

    def rewind(self, machine: Machine) -> None:
        """The remote is forced back to an older commit, or deleted."""
        if self.rng.random() < 0.2:
            self.server.delete()
        elif self.server.head:
            self.server.rewind()

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
                with workspace.writing(machine.agent):
                    pass
                wiring.sync(workspace, SimRemote(self.server, lambda: None), rng=self.rng, sleep=lambda _: None)
        except CrashError:
            self.note("crashed")
        except FleetError as why:
            self.note("failed", type(why).__name__)
        finally:
            workspace.close()

    def heal(self) -> None:
        """Set the clocks, mend the ways, and sync until nothing moves any more."""
        self.now_ms += 40 * HOUR_MS
        for machine in self.machines:
            machine.skew_ms, machine.is_cut_off = 0, False
        self.is_busy = True
        for _ in range(3):
            for machine in self.machines:
                self.note("heals", machine.root.name)
                self._sync_in_peace(machine)
        states = [self.editions(machine, "~") for machine in self.machines]
        assert all(state == states[0] for state in states), "machines differ after healing"
        # Those whose clocks are right hold back the same parts, and so have the same notebook.
        cuts = [self.open(machine).timekeeper.reading() for machine in self.machines]
        views = [self.editions(m, cut.cut) for m, cut in zip(self.machines, cuts, strict=True) if not cut.wrong]
        assert all(view == views[0] for view in views), "machines that hold back the same differ after healing"
        self.note(hashlib.sha256(b"".join(states[0])).hexdigest())
        self.check(self.open(self.machines[0]))

    def _sync_in_peace(self, machine: Machine) -> None:
        workspace = self.open(machine)
        with workspace.writing(machine.agent):
            pass
        wiring.sync(workspace, MemoryRemote(self.server), rng=self.rng, sleep=lambda _: None)
        workspace.close()

    def editions(self, machine: Machine, cut: str) -> tuple[bytes, bytes]:
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


def history(seed: int, folder: Path) -> str:
    """Run one seed in a fresh folder; return the hash of its trace."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        simulation = Simulation(seed, folder)
        return simulation.run(steps=simulation.rng.randint(15, 45))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
