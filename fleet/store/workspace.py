"""A workspace: the folder with ``fleet.toml``, everything in it by name, and the one way to write.

The world is handed in (wall clock, random source, machine, tree store), so that a simulator can hold it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from crdt import clock
from fleet.model import edits, limits, names
from fleet.model.errors import DiskError, FleetError, NoError, UsageError
from fleet.model.line import Line, Refused, is_version_1, join
from fleet.model.pattern import PRIVATE, SCOPE, Policy, fold
from fleet.model.withheld import Held
from fleet.store import config, homes, ingest, replica
from fleet.store.config import Config
from fleet.store.database import BUSY_S, DECIDED, SCHEMA_NUMBER, Database, Local
from fleet.store.files import Files, file_fingerprint, is_no_folder, is_plain
from fleet.store.ingest import Ingest, Source, Taken
from fleet.store.lines import PATTERNS, Kind, Quarantine
from fleet.store.query import Discoveries, Patterns
from fleet.store.replica import Clock, Replica
from fleet.store.tree import FORMAT, MEMBERS, GitTree, Members

if TYPE_CHECKING:
    from fleet.store.trust import Trust

VERSION_1_FILES = (
    *("base", "state.db", "consent", "paused", "shown", "sessions"),
    *("settled", "trusted.json", "regions.json"),
)
"""Files in ``.fleet`` of fleet 0.1 and of no later version."""

ONLINE = "online.json"
"""Below ``.fleet``: who is in the live room, as the sidecar heard it last, with the time."""


def _lent_by_environment() -> str:
    """Return the replica that ``FLEET_REPLICA`` lends, or "": a short-lived job mints none of its own."""
    return os.environ.get("FLEET_REPLICA", "")


def _wall_clock_ms() -> int:
    """Return the time of the wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class World(msgspec.Struct, frozen=True):
    """The outside of a workspace.

    Attributes:
        lent: returns the replica that this process may write under, or "".
        durable: False lets a test skip waiting for the disk.
        tree: opens the fetched tree, given the folder of fleet's own repository.
    """

    wall_ms: Callable[[], int] = _wall_clock_ms
    entropy: Callable[[int], bytes] = os.urandom
    machine: Callable[[], str] = replica.machine_fingerprint
    lent: Callable[[], str] = _lent_by_environment
    durable: bool = True
    tree: Callable[[Path], GitTree] = GitTree


class Workspace:
    """One folder in which one or more agents of a clan work.

    Attributes:
        files: all writes below the root.
        place: of the agents' homes, relative to the root.
        warnings: what a person should be told, collected while we work.
        has_changed: whether a command changed something here that a second try would do again.
        db: the database of the clan's lines.
        state: what this machine alone knows.
    """

    def __init__(self, root: Path, world: World | None = None, files: Files | None = None) -> None:
        self.root = root
        self.world = World() if world is None else world
        self.files = Files(root) if files is None else files
        self.clan = root / "clan-learnings"
        self.local = root / ".fleet"
        self.config_file = root / config.FILE_NAME
        self.replica_file = self.local / "replica.toml"
        self.config: Config = config.load(self.config_file)
        self.place = self.files.homes = self.config.files.home or homes.Homes(root).current()
        self.files.is_private = self.config.keep.private
        self.warnings: list[str] = list(self.config.problems)
        self.has_changed = False
        if noted := homes.Homes(root).noted(self.place):
            with suppress(FleetError):
                self.files.replace(root / homes.FILE, noted)
        self._places_before = [each for each in homes.Homes(root).known() if each != self.place]
        self.state = Local(self.local / "local.db", durable=self.world.durable, machine=self.world.machine)
        self._policy = Policy()
        self._mine: tuple[str, frozenset[str]] = ("", frozenset())
        self.tree = self.world.tree(self.local / "git")
        self.db = self._ingest(f"state-{SCHEMA_NUMBER}.db", self._sources, self.tree)
        self.clock = Clock(self.files, self.local / "clock", self.world.wall_ms, self.db.newest)
        self.patterns = Patterns(self.db, self.policy)
        self.discoveries = Discoveries(self.db, self.clock.cut)
        self._notes: dict[str, Ingest] = {}
        if is_no_folder(self.local / "locks"):
            self.warn(f"{self.local / 'locks'} is a link or a file where a folder belongs; remove it. Nothing is lost")
        if wrong := self.clock.wrong():
            self.warn(f"{wrong}. Lessons are kept and shared all the same; set the clock")

    def _ingest(self, name: str, sources: Callable[[], list[Source]], tree: GitTree | None) -> Ingest:
        return Ingest(
            Database(self.local / name, durable=self.world.durable),
            self.files,
            sources,
            self.policy,
            tree=tree,
            clan=self.clan,
            locks=self.local / "locks",
            quarantine=self._keep_refused,
            aside=lambda: {each.raw for each in self.quarantine.all()},
            warn=self.warn,
            changed=self._note_generation if tree is not None else bool,
            withhold=self._withhold if tree is not None else None,
        )

    def _sources(self) -> list[Source]:
        return ingest.clan_sources(self.clan, lambda: [each.name for each in self.replicas().replicas])

    @cached_property
    def trust(self) -> "Trust":
        """Trust as it was decided here."""
        from fleet.store.trust import Trust  # most workspaces block nobody, and hold nothing back

        return Trust(self.state)

    @cached_property
    def quarantine(self) -> Quarantine:
        """The refused lines that were read here."""
        return Quarantine(self.files, self.local / "quarantine" / "refused.jsonl")

    def _keep_refused(self, refused: list[Refused]) -> None:
        self.quarantine.keep(refused, self.wall())

    def _note_generation(self, generation: int) -> None:
        """Note the generation where a hook finds it without a database."""
        with suppress(DiskError):
            self.files.note(self.local / "generation", f"{generation:<20}\n".encode())

    # --- names and places --------------------------------------------------------------------------------------------

    def home(self, agent: str) -> Path:
        """Return the folder of one agent's own files."""
        return self.root / self.place / agent

    def homes(self) -> list[str]:
        """Return the agents that have a home here, sorted. Links are left alone."""
        above = self.root / self.place
        if above.is_symlink() or not above.is_dir():
            return []
        found = (each for each in above.iterdir() if names.is_agent(each.name) and not each.is_symlink())
        return sorted(each.name for each in found if each.is_dir())

    def own_path(self, agent: str, *parts: str) -> str:
        """Return the path of an agent's home, or of a file in it, relative to the root."""
        return PurePosixPath(self.place, agent, *parts).as_posix()

    def files_of(self, home: Path) -> list[Path]:
        """Return the plain files in a home, sorted; none where it lies behind a link."""
        if any(each.is_symlink() for each in (home, *home.parents) if self.root in each.parents):
            return []
        return [each for each in sorted(home.rglob("*")) if is_plain(each)]

    def files_in_old_homes(self) -> list[tuple[str, Path, list[Path]]]:
        """Return agent, home and files of what fleet wrote into homes in an earlier place."""
        found = []
        with suppress(FleetError):  # a damaged register is told wherever it is needed
            before = [self.root / each for each in self._places_before if (self.root / each).is_dir()]
            agents = (*self.agents_here(), names.GUEST) if before else ()
            for agent, home in ((agent, place / agent) for place in before for agent in agents):
                files = [each for each in self.files_of(home) if homes.is_own(each.relative_to(home).parts)]
                found += [(agent, home, files)] if files else []
        return found

    def current_path(self, path: str) -> str:
        """Return where a file is now of which a record of earlier says that it lies in an agent's home."""
        for place in self._places_before:
            below = path.removeprefix(f"{place}/")
            if below != path and ".." not in below.split("/") and not os.path.lexists(self.root / path):
                moved = f"{self.place}/{below}"
                return moved if os.path.lexists(self.root / moved) else path
        return path

    def notes_file(self, agent: str) -> Path:
        """Return the path of an agent's private lessons."""
        return self.home(agent) / "notes.jsonl"

    def notes(self, agent: str) -> Patterns:
        """Return an agent's private lessons: a file and a database of their own, which nothing shared ever opens."""
        if agent not in self._notes:
            sources = partial(ingest.Source.found, "notes.jsonl", PATTERNS, self.notes_file(agent))
            self._notes[agent] = self._ingest(f"private-{agent}-{SCHEMA_NUMBER}.db", sources, None)
        return Patterns(self._notes[agent], self.policy)

    def agents_with_notes(self) -> list[str]:
        """Return the agents here that have private lessons; none where nobody knows who writes here."""
        with suppress(FleetError):  # what the clan has can be read all the same
            return [each for each in self.agents_here() if self.notes_file(each).is_file()]
        return []

    def private(self, agent: str, each: str) -> Line | None:
        """Return an agent's private record of a lesson; None for a lesson that is not private."""
        found = self.notes(agent).line(each) if self.notes_file(agent).is_file() else None
        return found if found is not None and fold(found).scope == PRIVATE else None

    def record(self, agent: str, each: str) -> Line | None:
        """Return all that is known of a lesson here: the clan's record and the agent's private one as one."""
        shared, mine = self.patterns.line(each), self.private(agent, each)
        return join(shared, mine) if shared is not None and mine is not None else mine or shared

    def same_text(self, agent: str, text: str) -> str:
        """Return the id that an agent's lesson is logged under: of one that reads alike now, else the text's hash."""
        if self.notes_file(agent).is_file():
            found = self.notes(agent).same_text(text)
            if self.private(agent, found) is not None:
                return found
        return self.patterns.same_text(text)

    def agent(self, named: str = "", *, or_guest: bool = False) -> str:
        """Return the agent to act as: the one named, or the stored default.

        A guest may be it where nobody is named, if what is asked for only reads, or logs (``or_guest``).

        Raises:
            UsageError: none is named and none stored, or the name cannot be one.
        """
        agent = named or names.agent_of(self.lease()) or self.replicas().default_agent or names.GUEST
        if self.is_guest(agent) and not or_guest:
            raise UsageError("no agent is named here yet. Run `fleet init --agent NAME`, or pass --agent NAME")
        if not names.is_agent(agent):
            raise UsageError(
                f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
                "and not 'import'"
            )
        return agent

    def is_guest(self, agent: str) -> bool:
        """Tell whether this is who works here until an agent is named: its log is not counted, and nothing is sent."""
        return agent == names.GUEST and self.replicas().default_agent != agent

    def agents_here(self) -> list[str]:
        """Return the agents whose replicas write in this workspace, sorted; a guest is none."""
        return sorted({each.agent for each in self.replicas().replicas if not self.is_guest(each.agent)})

    def emoji(self) -> Mapping[str, str]:
        """Return agent to emoji, as ``members.toml`` has them."""
        return Members.parse(self.files.read(self.clan / MEMBERS)).emoji

    # --- identity ----------------------------------------------------------------------------------------------------

    def replicas(self) -> replica.Register:
        """Return the register of writers here."""
        return replica.Register.parse(self.files.read(self.replica_file), self.replica_file)

    def current_replicas(self) -> list[str]:
        """Return the ids under which agents write here now; those of a folder we are a copy of are not among them."""
        found = (self._current(agent) for agent in {r.agent for r in self.replicas().replicas})
        # Until the first pull of this folder, what an earlier job wrote under our lease is news to us.
        lease = [name for name in [self.lease()] if name and self.state.get("pulled")]
        return sorted({*lease, *(r.name for r in found if r is not None)})

    def former_replicas(self) -> list[str]:
        """Return the ids under which no agent writes here any more: what the logs here say under them is ours to send.

        Whoever the folder was copied from, or a backup was made by, may still write under them.
        """
        register, current = self.replicas(), self.current_replicas()
        found = [] if register.ephemeral else register.replicas
        return sorted(each.name for each in found if not each.is_lease and each.name not in current)

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
        """True where nobody may write here: an ephemeral folder, and no lease. A damaged register is another matter."""
        with suppress(FleetError):
            return self.replicas().ephemeral and not self.lease()
        return False

    def check_lease(self) -> None:
        """Check that what earlier jobs wrote under our lease was read: else its counts would be taken for zero.

        Raises:
            NoError: it was not.
        """
        if not self.lease():
            return
        has_remote = bool(self.config.share.remote or self.state.agreed("remote"))
        if has_remote and not self.state.get("pulled"):
            raise NoError(
                f"{self.lease()} is lent, and what was written under it before is not read yet: nothing was logged. "
                "Run `fleet sync` first"
            )

    def mint(self, agent: str) -> Replica:
        """Give the agent a new replica id. The caller holds the write lock."""
        name = f"{agent}.{self.world.entropy(4).hex()}"  # two that draw the same are told apart when their lines meet
        fresh = Replica(name, self.world.machine(), replica.folder_fingerprint(self.root), self.clock.tick())
        self.files.replace(self.replica_file, self.replicas().with_replica(fresh).render())
        return fresh

    def session(self, agent: str) -> str:
        """Return the agent's own session: the running one, or a new one after ``session_idle_minutes``.

        It is noted in a file, and nobody waits for the disk: a session that a power failure forgets begins anew.
        """
        path = self.local / "session" / agent
        name, _, last = self.files.read(path).decode("ascii", "replace").strip().partition(" ")
        idle_ms = self.world.wall_ms() - int(last) if last.isdecimal() else -1
        if not 0 <= idle_ms <= self.config.recall.session_idle_minutes * 60_000:
            name = f"s-{self.world.entropy(6).hex()}"
        self.files.note(path, f"{name} {self.world.wall_ms()}\n".encode())
        return name

    # --- reading -----------------------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """Return the policy of folds on this machine: what is left out of them, never what is joined or sent."""
        mine = self.mine()
        with suppress(FleetError):  # what was decided cannot be read: it is as it was known last
            self._policy = self.trust.policy(mine) if self.state.get(DECIDED) else Policy.of(mine)
        return self._policy._replace(cut=self.clock.cut())

    def mine(self) -> frozenset[str]:
        """Return the replicas that were minted for this machine and this folder: nobody else writes under them.

        A lease is lent to many; and under the names that a backup, or a copy of a folder, brought along others may
        still write.
        """
        now = file_fingerprint(self.replica_file)
        if not now or now != self._mine[0]:
            machine, folder = self.world.machine(), replica.folder_fingerprint(self.root)
            try:
                found = (r.name for r in self.replicas().replicas if (r.machine, r.folder) == (machine, folder))
                self._mine = (now, frozenset(found))
            except FleetError:  # a damaged register is told wherever it is needed
                self._mine = (now, frozenset())
        return self._mine[1]

    def _withhold(self, held: list[Held], brought: dict[tuple[str, str], str]) -> Policy:
        """Leave out of the folds what a person is asked about, and say so; return the policy from now on."""
        if held:
            self.trust.withhold(held, self.wall())
        self.trust.note_brought(brought, self.wall())
        for text in self.trust.sentences(held):
            self.warn(text)
        return self.policy()

    @contextmanager
    def snapshot(self, wait_s: float = BUSY_S) -> Iterator[bool]:
        """Refresh once; while the block runs, queries answer from the rows as they are then.

        Yields whether they are up to date: False where another process is at it and not done within ``wait_s``.
        """
        with ExitStack() as held:
            current = [held.enter_context(each.snapshot(wait_s)) for each in (self.db, *self._notes.values())]
            yield all(current)

    def take(self, commit: str) -> Taken:
        """Go on to another fetched tree and bring the files here in step. The caller holds the write lock."""
        mine = self.current_replicas()
        return self.db.take(commit, mine[0] if mine else "")

    # --- telling -----------------------------------------------------------------------------------------------------

    def wall(self) -> str:
        """Return the wall clock as a stamp."""
        return clock.nearest(self.world.wall_ms())

    def warn(self, message: str) -> None:
        """Collect something that a person should be told, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    # --- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, wait_s: float = limits.LOCK_WAIT_S) -> Iterator[None]:
        """Hold the workspace's write lock.

        Raises:
            BusyError: another process holds it.
        """
        with self.files.lock(self.local / "locks" / "write.lock", wait_s):
            yield

    @contextmanager
    def writing(self, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> Iterator["Writer"]:
        """Hold the workspace's write lock as one agent's replica."""
        with self.locked(wait_s):
            yield self.writer(agent)

    @contextmanager
    def log_lock(self, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> Iterator[None]:
        """Hold the lock of one agent's ``corrections.md``. Whoever wants the write lock, too, takes that one first."""
        with self.files.lock(self.local / "locks" / f"log-{agent}.lock", wait_s):
            yield

    def replica_name(self, agent: str) -> str:
        """Return the id that the agent writes under here; "" where one must be minted first, or a lease read."""
        if lease := self.lease():
            return lease if names.agent_of(lease) == agent and self.state.get("pulled") else ""
        if self.replicas().ephemeral or self.clock.is_ahead():
            return ""
        found = self._current(agent)
        return found.name if found is not None else ""

    def _current(self, agent: str) -> Replica | None:
        """Return the agent's replica that belongs to this machine and this folder."""
        return self.replicas().current(agent, self.world.machine(), replica.folder_fingerprint(self.root))

    def writer(self, agent: str) -> "Writer":
        """Return the right to write as one agent's replica. The caller holds the write lock, or the log's.

        Raises:
            NoError: fleet 0.1 made this workspace: what it wrote is converted before anything is counted.
        """
        check_version(self.root)
        if lease := self.lease():
            return self._leased(agent, lease)
        register = self.replicas()
        if register.ephemeral:
            raise UsageError(
                "this workspace is ephemeral: it is only read, so no job leaves a replica behind. To write, lend it "
                "one that all runs of this job share: FLEET_REPLICA=<agent>.<8 hex digits>. Nothing was written"
            )
        if self.clock.is_ahead():
            self._start_again_after_running_ahead()
        found = self._current(agent)
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
            self.files.replace(self.replica_file, noted.render())
        return Writer(self, lease, is_leased=True)

    def _start_again_after_running_ahead(self) -> None:
        """Say again, under new replicas, the edits that were stamped when the clock ran ahead."""
        self.warn("this machine's clock ran ahead and was set back; its lessons were stamped anew, none is lost")
        old = sorted({each.name for each in self.replicas().replicas if not each.is_lease})
        late = self.db.future_ids()  # before a stamp is issued: it is larger than all that the rows admit
        self.clock.forget()
        fresh = {agent: self.mint(agent).name for agent in sorted({names.agent_of(name) for name in old})}
        for each in late:
            record = self.patterns.line(each)
            for name in old:
                me = fresh[names.agent_of(name)]
                if record is not None and (
                    said := edits.reissue(record, name, me, self.clock.tick(), self.clock.cut())
                ):
                    self.files.append(self.clan / PATTERNS.shard(me), PATTERNS.encode(said) + b"\n")

    def close(self) -> None:
        """Let go of the databases. They open again when they are asked."""
        self.db.close()
        self.state.close()
        for notes in self._notes.values():
            notes.close()


_NOT_LOGGED = ("shown", "helped", "hurt")  # no log tells of these: whoever takes them out of a file says them elsewhere
_TAKEN_BACK = ("add", "first", "n", "parts", "rem", "set", "over")


class Writer:
    """The right to write, as one replica, while the lock is held.

    Args:
        is_leased: it may have been lent to this process.
    """

    def __init__(self, workspace: Workspace, name: str, *, is_leased: bool = True) -> None:
        self.workspace = workspace
        self.name = name
        self._is_leased = is_leased

    @property
    def agent(self) -> str:
        """Agent of the replica."""
        return names.agent_of(self.name)

    def tick(self, after: str = clock.ZERO) -> str:
        """Issue the next stamp, larger than ``after``."""
        if self._is_leased:
            self.workspace.check_lease()
        return self.workspace.clock.tick(after)

    def append(self, kind: Kind, lines: Sequence[Any], *, is_durable: bool = True) -> None:
        """Add lines to our shard; they are on the disk when this returns, unless they can be made anew.

        A remove speaks of an add, and a mark of an occurrence: what rows alone know goes to the files before them.
        """
        if data := b"".join([kind.encode(line) + b"\n" for line in lines]):
            if self.workspace.db.lacks_lines():
                self.workspace.db.put_back(self.name)
            self.workspace.files.append(self.workspace.clan / kind.shard(self.name), data, is_durable=is_durable)
            self.workspace.db.invalidate()

    def line(self, each: str) -> Line:
        """Return all that is known of a lesson here, the agent's private record included; empty for nothing."""
        return self.workspace.record(self.agent, each) or Line(each)

    def write(self, deltas: Sequence[Line], *, is_durable: bool = True) -> None:
        """Write each change to where its lesson is kept: what belongs to a private one never enters a shared file."""
        is_mine = {each.id: self.workspace.private(self.agent, each.id) is not None for each in deltas}
        self.append_private([each for each in deltas if is_mine[each.id]])
        self.append(PATTERNS, [each for each in deltas if not is_mine[each.id]], is_durable=is_durable)

    def hide(self, each: str) -> None:
        """Make a lesson private: what did not go out yet leaves the shared files, what did stays with the clan.

        The caller counts the log again afterwards: occurrences that leave with it are parts from now on.
        """
        workspace, me = self.workspace, self.name
        known = fold(self.line(each), workspace.policy())
        shared = workspace.patterns.line(known.id) or Line(known.id)
        fields: dict[str, Any] = {field: value for field, value in known.fields.items() if field != SCOPE}
        stamp = self.tick() if known.is_present else ""
        mine = self._own(known.id) or Line(known.id)
        made = edits.part(mine, known.id, "0" * 16, fields, me, stamp, seen=0, at=known.at)
        made = join(made, edits.set_field(mine, SCOPE, PRIVATE, me, self.tick(), workspace.policy().cut))
        own = [name for name in shared.by_writer() if names.agent_of(name) == self.agent]
        # Where the branch is not known, totals stay totals: beside those that the clan has they count once.
        totals = () if workspace.tree.head() else ("n", "add") if known.is_present else ("n",)
        for name in own:
            kept = shared.split_column(name, ("parts", "rem", *totals))[1]
            made = join(made, kept) if kept is not None else made
            for counter in _NOT_LOGGED:
                made = join(made, edits.count(Line(known.id), counter, name, shared.total_of(name, counter)))
        self.append_private([made])
        for name in own:
            workspace.db.take_back(known.id, name, _TAKEN_BACK)

    def publish(self, pattern: str, scope: str) -> None:
        """Make a private lesson the clan's: its record is said again in the shared shard, and is private no more."""
        mine = self.workspace.private(self.agent, pattern)
        if mine is None:
            return
        shared = self.workspace.patterns.line(pattern) or Line(pattern)
        said = mine.without_field(SCOPE)
        if fold(mine).is_present:
            said = join(said, edits.restore(join(shared, said), self.name, self.tick()))
        self.append(PATTERNS, [said])
        away = edits.set_field(mine, SCOPE, scope, self.name, self.tick(), self.workspace.policy().cut)
        self.append_private([join(away, edits.retire(mine, self.name))])

    def set_own(self, deltas: Sequence[tuple[str, str, Any]]) -> None:
        """Set fields that are this agent's alone, as (id, field, value): of the clan's lessons, too.

        They stand in the private file beside its lessons, on a record without a text where the lesson is the clan's.
        """
        cut = self.workspace.policy().cut
        self.append_private(
            [
                edits.set_field(self._own(each) or Line(each), field, value, self.name, self.tick(), cut)
                for each, field, value in deltas
            ]
        )

    def _own(self, each: str) -> Line | None:
        """Return what the agent's own file says of a lesson, private or not."""
        workspace = self.workspace
        return workspace.notes(self.agent).line(each) if workspace.notes_file(self.agent).is_file() else None

    def append_private(self, lines: Sequence[Any]) -> None:
        """Add lines to this agent's private lessons."""
        if data := b"".join([PATTERNS.encode(line) + b"\n" for line in lines]):
            self.workspace.files.append(self.workspace.notes_file(self.agent), data)


def check_version(root: Path) -> None:
    """Check that a workspace is of this version, as far as a few looks tell.

    Raises:
        NoError: fleet 0.1 made it, and nothing has converted it yet.
    """
    clan = root / "clan-learnings"
    if (clan / FORMAT).is_file():
        return
    local = root / ".fleet"
    names_here = [each.name for each in local.iterdir()] if local.is_dir() else []
    shards = sorted((clan / "patterns.d").glob("*.jsonl"))[:8]
    if not set(VERSION_1_FILES).isdisjoint(names_here) or any(
        is_version_1(_first_line(path)) for path in (clan / "patterns.jsonl", *shards)
    ):
        raise NoError(f"{root} was made by fleet 0.1; run `fleet upgrade`. Nothing was changed")


def _first_line(path: Path) -> bytes:
    """Return the first line of a file that is one, as far as a line goes."""
    if path.is_symlink():
        return b""
    with suppress(OSError), path.open("rb") as file:
        return file.readline(limits.LINE_BYTES_MAX + 1).removeprefix(b"\xef\xbb\xbf").strip()
    return b""
