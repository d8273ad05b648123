"""A workspace: the folder with ``fleet.toml``, everything in it by name, and the one way to write.

The world is handed in (disk, wall clock, random source), so that a simulator can hold it.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crdt import clock
from fleet.keep import config, consent, limits, names, replica
from fleet.keep.config import Config
from fleet.keep.discoveries import Discovery
from fleet.keep.disk import Disk
from fleet.keep.errors import NoError, UsageError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook, Part
from fleet.keep.quarantine import Quarantine
from fleet.keep.reading import KINDS, PATTERNS, Kind
from fleet.keep.replica import Replica
from fleet.keep.state import State
from fleet.keep.store import Held, Store
from fleet.keep.timekeeper import Timekeeper
from fleet.keep.unchanged import Looks, Unchanged

_READS_MAX = 5


def lent_by_environment() -> str:
    """Return the replica that ``FLEET_REPLICA`` lends, or "": a short-lived job mints none of its own."""
    return os.environ.get("FLEET_REPLICA", "")


def wall_clock_ms() -> int:
    """Read the wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class World(msgspec.Struct, frozen=True):
    """What a workspace takes from outside.

    Attributes:
        wall_ms: reads the wall clock.
        entropy: returns so many random bytes.
        machine: a fingerprint of this machine.
        lent: returns the replica that this process may write under, or "".
        durable: False lets a test skip waiting for the disk.
    """

    wall_ms: Callable[[], int] = wall_clock_ms
    entropy: Callable[[int], bytes] = os.urandom
    machine: Callable[[], str] = replica.machine_fingerprint
    lent: Callable[[], str] = lent_by_environment
    durable: bool = True


class Kept(NamedTuple):
    """What was read, for a process that goes on: good for as long as no file of the clan changes.

    Attributes:
        signature: what the files were like.
        cut: what was read with.
        held: what they join to.
        links: what is worked out from all records, once (``view.links``).
    """

    signature: list[tuple[str, int, int, int]]
    cut: str
    held: Held
    links: "Links | None" = None


class Links(NamedTuple):
    """What only a look at every record tells, and what no correction changes.

    Attributes:
        pointing: which record is merged into which.
        edited: ids of the records whose text was set after they were first logged.
    """

    pointing: dict[str, str]
    edited: tuple[str, ...]


class Workspace:
    """One folder in which one or more agents of a clan work.

    Attributes:
        root: the folder with ``fleet.toml``.
        world: clock, random source, machine.
        disk: all writes below the root.
        warnings: what a person should be told, collected while we work.
    """

    def __init__(self, root: Path, world: World | None = None, disk: Disk | None = None) -> None:
        self.root = root
        self.world = World() if world is None else world
        self.disk = Disk(root) if disk is None else disk
        self.warnings: list[str] = []
        self.config: Config = config.load(self.config_file)
        self.store = Store(self.disk, self.clan, self.local / "base")
        self.state = State(self.local / "state.db", durable=self.world.durable, warn=self.warn)
        self.quarantine = Quarantine(self.disk, self.local / "quarantine" / "refused.jsonl")
        self.timekeeper = Timekeeper(self.disk, self.local / "clock", self.world.wall_ms)
        self.kept: Kept | None = None
        self.loaded: Kept | None = None  # the same where nobody has written to it, nor admitted its stamps
        self.looks = Looks(self.store)
        self._register = Unchanged(self.replica_file, self._read_register)
        self._lock_file = os.fspath(self.local / "locks" / "write.lock")
        self._root = os.fspath(root)
        self._folder: tuple[tuple[int, int], str] | None = None
        self.logbooks: dict[str, Any] = {}  # what the verbs know of each agent's log
        self.logs: dict[str, Any] = {}  # each agent's log as it was read last, and what it says
        self.changed: set[str] = set()  # ids that the index found changed, since somebody asked
        self.waits = False  # for a search index that is missing or far behind: seconds in a large clan
        self.told: Callable[[int, int], object] | None = None  # is told how much of how much of that is done
        self.closing: list[Callable[[], None]] = []  # what others opened for as long as this is open

    @cached_property
    def config_file(self) -> Path:
        """``fleet.toml``."""
        return self.root / config.FILE_NAME

    @cached_property
    def clan(self) -> Path:
        """The folder of the clan's shared files."""
        return self.root / "clan-learnings"

    @cached_property
    def local(self) -> Path:
        """The machine-local folder."""
        return self.root / ".fleet"

    def home(self, agent: str) -> Path:
        """Return the folder of one agent's own files."""
        return self.root / "agents" / agent

    @cached_property
    def replica_file(self) -> Path:
        """``replica.toml``."""
        return self.local / "replica.toml"

    def replicas(self) -> replica.Register:
        """Return who writes here."""
        return self._register.get()

    def _read_register(self) -> replica.Register:
        return replica.parse(self.disk.read(self.replica_file), self.replica_file)

    def _folder_fingerprint(self) -> str:
        """Return the fingerprint of this folder, worked out once for as long as the path leads to the same one."""
        seen = os.stat(self._root)  # noqa: PTH116 - asked for with each correction
        there = seen.st_dev, seen.st_ino
        if self._folder is None or self._folder[0] != there:
            self._folder = there, replica.folder_fingerprint(self.root)
        return self._folder[1]

    def current_replicas(self) -> list[str]:
        """Return the ids under which agents write here now; those of a folder we are a copy of are not among them."""
        register, folder = self.replicas(), self._folder_fingerprint()
        found = (
            register.current(agent, self.world.machine(), folder) for agent in {r.agent for r in register.replicas}
        )
        # Until the first pull of this folder, what an earlier job wrote under our lease is news to us.
        lease = [name for name in [self.lease()] if name and self.state.get("pulled")]
        return sorted({*lease, *(r.name for r in found if r is not None)})

    def lease(self) -> str:
        """Return the replica that this process was lent, or "".

        Raises:
            UsageError: ``FLEET_REPLICA`` names none.
        """
        lent = self.world.lent()
        if lent and (not names.is_replica(lent) or not names.is_agent(names.agent_of(lent))):
            raise UsageError(
                f"FLEET_REPLICA={lent[:60]!r} is no replica's name: <agent>.<8 hex digits>, such as ci.0a1b2c3d. "
                "Nothing was written"
            )
        return lent

    @property
    def is_read_only(self) -> bool:
        """Whether nobody may write here: an ephemeral folder, and no lease."""
        return self.replicas().ephemeral and not self.lease()

    def agent(self, named: str = "") -> str:
        """Return the agent to act as: the one named, or the stored default.

        Raises:
            UsageError: none is named and none stored, or the name cannot be one.
        """
        agent = named or names.agent_of(self.lease()) or self.replicas().default_agent
        if not agent:
            raise UsageError("no agent is named here yet. Run `fleet init --agent NAME`, or pass --agent NAME")
        if not names.is_agent(agent):
            raise UsageError(
                f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
                "and not 'import'"
            )
        return agent

    def load(self, kinds: Sequence[Kind] = KINDS) -> Held:
        """Join everything here, or all of some kinds; what is refused goes to quarantine."""
        reading = self.timekeeper.reading()
        if reading.wrong:
            self.warn(f"{reading.wrong}. Lessons are kept; no edition is written until the clock is set right")
        held = self._load_between_writes(reading.cut, kinds)
        self.note_refused(held)
        return held

    def _load_between_writes(self, cut: str, kinds: Sequence[Kind]) -> Held:
        """Readers take no lock: what was replaced while we read is read again, so that no line falls between files."""
        for _ in range(_READS_MAX):
            before = self.store.signature()
            held = self.store.load(cut, kinds=kinds)
            if self.store.signature() == before:
                break
        return held

    def admit(self, notebook: Notebook) -> None:
        """Note how late it is for others: every stamp issued from now on is larger."""
        mine = {r.name for r in self.replicas().replicas}
        for note, stamps in (
            (self.timekeeper.admit, [s for r, s in notebook.newest_by.items() if r not in mine]),
            (self.timekeeper.resume, [s for r, s in notebook.newest_by.items() if r in mine]),
        ):
            note(max(stamps, default=clock.ZERO))

    def note_refused(self, held: Held) -> None:
        """Keep refused lines with their reasons, and say so."""
        if held.read.markers:
            self.warn(f"{held.read.markers} conflict-marker lines were dropped; both sides were read")
        if held.read.refused:
            self.quarantine.keep(held.read.refused, self.wall())

    def wall(self) -> str:
        """Return the wall clock as a stamp."""
        return clock.nearest(self.world.wall_ms())

    def warn(self, message: str) -> None:
        """Collect something that a person should be told, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def writing(self, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> "_Writing":
        """Hold the workspace's write lock as one agent's replica.

        Raises:
            BusyError: another process holds it.
        """
        return _Writing(self, agent, wait_s)

    def locked(self, wait_s: float = limits.LOCK_WAIT_S) -> "_Locked":
        """Hold the workspace's write lock."""
        return _Locked(self, wait_s)

    def lock(self, wait_s: float) -> AbstractContextManager[None]:
        """Return the write lock itself: whoever holds it says so to the timekeeper (``locked``)."""
        return self.disk.lock(self._lock_file, wait_s)

    def writer(self, agent: str) -> "Writer":
        """Return the right to write as one agent's replica. The caller holds the write lock."""
        if lease := self.lease():
            return self._leased(agent, lease)
        register = self.replicas()
        if register.ephemeral:
            raise UsageError(
                "this workspace is ephemeral: it is only read, so no job leaves a replica behind. To write, lend it "
                "one that all runs of this job share: FLEET_REPLICA=<agent>.<8 hex digits>. Nothing was written"
            )
        if self.timekeeper.reading().is_ahead:
            self._start_again_after_running_ahead()
            register = self.replicas()
        found = register.current(agent, self.world.machine(), self._folder_fingerprint())
        if found is None:
            if any(r.agent == agent and not r.is_lease for r in register.replicas):
                self.warn(
                    f"this folder is a copy, or came from another machine: {agent} writes under a new replica id "
                    "from now on; nothing is lost or counted twice"
                )
            found = self.mint(agent)
        return Writer(self, found.name, is_leased=False)

    def _leased(self, agent: str, lease: str) -> "Writer":
        """Write under a lent replica: noted, bound to nothing. The write lock keeps two jobs of one folder apart."""
        if names.agent_of(lease) != agent:
            raise UsageError(f"FLEET_REPLICA={lease} belongs to {names.agent_of(lease)}, not to {agent}")
        register = self.replicas()
        if not any(r.name == lease for r in register.replicas):
            noted = register.with_replica(Replica(lease, "", "", self.wall()))
            self.disk.replace(self.replica_file, noted.render())
        return Writer(self, lease, is_leased=True)

    def check_lease(self) -> None:
        """Check that what earlier jobs wrote under our lease was read: else its counts would be taken for zero.

        Raises:
            NoError: it was not.
        """
        if not self.lease():
            return
        has_remote = bool(self.config.share.remote or consent.is_given_to_any(self))
        if has_remote and not self.state.get("pulled"):
            raise NoError(
                f"{self.lease()} is lent, and what was written under it before is not read yet: nothing was logged. "
                "Run `fleet sync` first"
            )

    def mint(self, agent: str) -> Replica:
        """Give the agent a new replica id. The caller holds the write lock."""
        fresh = replica.mint(
            agent,
            self.world.machine(),
            self._folder_fingerprint(),
            self.timekeeper.tick(),
            self.world.entropy,
        )
        self.disk.replace(self.replica_file, self.replicas().with_replica(fresh).render())
        return fresh

    def _start_again_after_running_ahead(self) -> None:
        """This clock ran more than a day ahead once: new replicas say again, now, what nobody would believe yet."""
        self.warn("this machine's clock ran ahead and was set back; its lessons were stamped anew, none is lost")
        old = {r.name for r in self.replicas().replicas}
        self.timekeeper.forget_issued()
        held = self.store.load(self.timekeeper.reading().cut)
        self.admit(held.notebook)
        fresh = {agent: self.mint(agent).name for agent in sorted({names.agent_of(name) for name in old})}
        for part in sorted(held.notebook.held):
            owner = part.key if part.kind == "add" else part.writer
            if part.kind == "rem" or owner not in old or _is_removed(part, held):
                continue
            name = fresh[names.agent_of(owner)]
            stamp = self.timekeeper.tick()
            line = part.as_line(stamp, name)
            if part.kind == "add":
                line.add = {name: stamp}
            else:
                line.when = {part.key: (stamp, name)}
            self.store.append(PATTERNS, name, [line])

    def close(self) -> None:
        """Let go of the state database, and of all that was opened with this workspace."""
        while self.closing:
            self.closing.pop()()
        self.disk.close()
        self.state.close()


def _is_removed(part: Part, held: Held) -> bool:
    return any(
        p.kind == "rem" and (p.id, p.key) == (part.id, part.key) and p.stamp >= part.stamp for p in held.notebook.held
    )


class _Locked:
    """The write lock is held while the block runs. No generator: those take longer to run."""

    __slots__ = ("_lock", "_workspace")

    def __init__(self, workspace: Workspace, wait_s: float) -> None:
        self._workspace = workspace
        self._lock = workspace.lock(wait_s)

    def __enter__(self) -> None:
        """Wait for it."""
        self._begin()

    def _begin(self) -> None:
        self._lock.__enter__()
        try:
            self._workspace.timekeeper.begin()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        try:
            self._workspace.timekeeper.end()
        finally:
            self._lock.__exit__(None, None, None)

    def __exit__(self, kind: object, why: object, trace: object) -> None:
        """Let go of it."""
        self._end()


class _Writing(_Locked):
    """The write lock is held as one agent's replica while the block runs."""

    __slots__ = ("_agent",)

    def __init__(self, workspace: Workspace, agent: str, wait_s: float) -> None:
        super().__init__(workspace, wait_s)
        self._agent = agent

    def __enter__(self) -> "Writer":  # type: ignore[override]
        """Wait for it."""
        self._begin()
        try:
            return self._workspace.writer(self._agent)
        except BaseException:
            self._end()
            raise


class Writer:
    """The right to write, as one replica, while the lock is held.

    Args:
        workspace: where.
        name: the replica.
        is_leased: it may have been lent to this process.
    """

    def __init__(self, workspace: Workspace, name: str, *, is_leased: bool = True) -> None:
        self.workspace = workspace
        self.name = name
        self._is_leased = is_leased

    @property
    def agent(self) -> str:
        """Whose replica this is."""
        return names.agent_of(self.name)

    def tick(self) -> str:
        """Issue the next stamp."""
        if self._is_leased:
            self.workspace.check_lease()
        return self.workspace.timekeeper.tick()

    def append(
        self, kind: Kind, lines: Sequence[Line | Discovery], *, is_durable: bool = True
    ) -> os.stat_result | None:
        """Add lines to our shard; they are on the disk when this returns, unless they can be made anew.

        Returns what the shard was like then; None when there were no lines.
        """
        return self.workspace.store.append(kind, self.name, lines, is_durable=is_durable)


def find_root(named: str, environment: Mapping[str, str], start: Path) -> Path:
    """Return the workspace's root: ``--dir``, else ``FLEET_DIR``, else the nearest ``fleet.toml`` upward.

    Raises:
        NoError: there is none.
    """
    chosen = named or environment.get("FLEET_DIR", "")
    if chosen:
        root = Path(chosen).expanduser().absolute()
        if not (root / config.FILE_NAME).is_file():
            raise NoError(f"{root} is no fleet workspace: it has no {config.FILE_NAME}. Run `fleet init` there")
        return root
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / config.FILE_NAME).is_file():
            return folder
    raise NoError(f"there is no {config.FILE_NAME} in {start} or above. Run `fleet init` in your project's folder")
