"""Workspace: the folder with ``fleet.toml``, its files and databases by name, and the only way to write there.

Wall clock, random source, machine and fetched tree are passed in (``World``), so that a simulator can replace them.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property, partial, reduce
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from crdt import clock
from fleet.model import edits, limits, names
from fleet.model.errors import DiskError, FleetError, NoError, UsageError
from fleet.model.line import Line, difference, is_version_1, join
from fleet.model.pattern import MERGED_FROM, PRIVATE, SCOPE, STAGE, Policy, fold
from fleet.store import config, homes, ingest, replica
from fleet.store.changes import Changes
from fleet.store.config import Config
from fleet.store.database import BUSY_S, DECIDED, SCHEMA_NUMBER, Database, Local
from fleet.store.files import Files, is_no_folder, is_plain
from fleet.store.ingest import Ingest, Source, Taken
from fleet.store.lines import PATTERNS, Kind, Quarantine
from fleet.store.query import Discoveries, Patterns
from fleet.store.replica import Clock, Replica
from fleet.store.tree import FORMAT, MEMBERS, GitTree, Members

if TYPE_CHECKING:
    from fleet.model.withheld import Held
    from fleet.store.trust import Trust

VERSION_1_FILES = (
    *("base", "state.db", "consent", "paused", "shown", "sessions"),
    *("settled", "trusted.json", "regions.json"),
)
"""Files in ``.fleet`` that only fleet 0.1 makes."""

ONLINE = "online.json"
"""File below ``.fleet`` with who is in the live room, as the sidecar last heard, and when."""


class World(msgspec.Struct, frozen=True):
    """Environment of a workspace.

    Attributes:
        wall_ms: returns the wall clock, milliseconds since 1970.
        lent: returns the replica that ``FLEET_REPLICA`` lends to a short-lived job, which mints none; "" for none.
        durable: False to skip fsync in a test.
        tree: opens the fetched tree in the folder of fleet's own repository.
    """

    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    entropy: Callable[[int], bytes] = os.urandom
    machine: Callable[[], str] = replica.machine_fingerprint
    lent: Callable[[], str] = lambda: os.environ.get("FLEET_REPLICA", "")
    durable: bool = True
    tree: Callable[[Path], GitTree] = GitTree


class Workspace:
    """One folder in which one or more agents of a clan work.

    Attributes:
        place: folder of the agents' homes, relative to the root.
        warnings: messages for a person, collected during a command.
        reports: messages for a person on what was done beside the command.
        has_changed: True once a command changed something that a retry would change again.
        runs: ids of the runs made through this object, oldest first, without those that it finished after a crash.
        recorded: files that a command's run changed so far, before and after; None where no run is recorded.
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
        self.reports: list[str] = []
        self.has_changed = False
        self.runs: list[str] = []
        self.recorded: dict[str, tuple[bytes | None, bytes | None]] | None = None
        if register := homes.Homes(root).noted(self.place):
            with suppress(FleetError):
                self.files.replace(root / homes.FILE, register)
        self._old_places = [place for place in homes.Homes(root).known() if place != self.place]
        self.state = Local(self.local / "local.db", durable=self.world.durable, machine=self.world.machine)
        self._policy = Policy()
        self.tree = self.world.tree(self.local / "git")
        self.tree.is_current = self._is_tree_current
        self.db = self._ingest(f"state-{SCHEMA_NUMBER}.db", self._sources, self.tree)
        self.clock = Clock(self.files, self.local / "clock", self.world.wall_ms, self.db.newest)
        self.patterns = Patterns(self.db)
        self.discoveries = Discoveries(self.db)
        self._notes: dict[str, Ingest] = {}
        if is_no_folder(self.local / "locks"):
            self.warn(f"{self.local / 'locks'} is a link or a file where a folder belongs; remove it. Nothing is lost")
        if wrong := self.clock.wrong():
            self.warn(f"{wrong}. Lessons are kept and shared all the same; set the clock")

    def _ingest(self, name: str, sources: Callable[[], list[Source]], tree: GitTree | None) -> Ingest:
        return Ingest(
            database=Database(self.local / name, durable=self.world.durable),
            files=self.files,
            sources=sources,
            policy=self.policy,
            tree=tree,
            clan=self.clan,
            locks=self.local / "locks",
            quarantine=lambda refused: self.quarantine.keep(refused, self.wall()),
            aside=lambda: {refused.raw for refused in self.quarantine.all()},
            warn=self.warn,
            changed=self._note_generation if tree is not None else bool,
            withhold=self._withhold if tree is not None else None,
        )

    def _sources(self) -> list[Source]:
        return ingest.clan_sources(self.clan, lambda: [found.name for found in self.replicas().replicas])

    @cached_property
    def trust(self) -> "Trust":
        """Decisions on trust that were made here."""
        from fleet.store.trust import Trust  # most workspaces block nobody, and withhold nothing

        return Trust(self.state)

    @cached_property
    def quarantine(self) -> Quarantine:
        """Quarantine of the refused lines that were read here."""
        return Quarantine(self.files, self.local / "quarantine" / "refused.jsonl")

    def _note_generation(self, generation: int) -> None:
        """Write the generation to a file, where a hook reads it without a database."""
        with suppress(DiskError):
            self.files.note(self.local / "generation", f"{generation:<20}\n".encode())

    # --- names and places --------------------------------------------------------------------------------------------

    def home(self, agent: str) -> Path:
        """Return the folder of one agent's own files."""
        return self.root / self.place / agent

    def homes(self) -> list[str]:
        """Return the agents that have a home here, sorted. No link is followed."""
        parent = self.root / self.place
        if parent.is_symlink() or not parent.is_dir():
            return []
        folders = (path for path in parent.iterdir() if names.is_agent(path.name) and not path.is_symlink())
        return sorted(path.name for path in folders if path.is_dir())

    def own_path(self, agent: str, *parts: str) -> str:
        """Return the path of an agent's home, or of a file in it, relative to the root."""
        return PurePosixPath(self.place, agent, *parts).as_posix()

    def files_of(self, home: Path) -> list[Path]:
        """Return the plain files in a home, sorted; none if it lies behind a link."""
        if self.files.is_linked(home):
            return []
        return [path for path in sorted(home.rglob("*")) if is_plain(path)]

    def files_in_old_homes(self) -> list[tuple[str, Path, list[Path]]]:
        """Return agent, home and fleet's files of each home in an earlier place that still has such files."""
        homes_ = []
        with suppress(FleetError):  # a damaged register is reported wherever it is needed
            places = [self.root / place for place in self._old_places if (self.root / place).is_dir()]
            agents = (*self.agents_here(), names.GUEST) if places else ()
            for agent, home in ((agent, place / agent) for place in places for agent in agents):
                files = [path for path in self.files_of(home) if homes.is_own(path.relative_to(home).parts)]
                # On a disk that ignores case, `agents` is `Agents`: a file moved there would be removed from there.
                is_present = files and self.home(agent).exists() and home.samefile(self.home(agent))
                homes_ += [(agent, home, files)] if files and not is_present else []
        return homes_

    def current_path(self, path: str) -> str:
        """Return the present path of a file in a home, if the homes were moved since the path was recorded."""
        for place in self._old_places:
            below = path.removeprefix(f"{place}/")
            if below != path and ".." not in below.split("/") and not os.path.lexists(self.root / path):
                moved = f"{self.place}/{below}"
                is_moved = os.path.lexists(self.root / moved) or not path.startswith(f"{self.place}/")
                return moved if is_moved else path
        return path

    def notes_file(self, agent: str) -> Path:
        """Return the path of an agent's private lessons."""
        return self.home(agent) / "notes.jsonl"

    def notes(self, agent: str) -> Patterns:
        """Return an agent's private lessons, from a file and a database that no sharing code ever opens."""
        if agent not in self._notes:
            sources = partial(ingest.Source.found, "notes.jsonl", PATTERNS, self.notes_file(agent))
            self._notes[agent] = self._ingest(f"private-{agent}-{SCHEMA_NUMBER}.db", sources, None)
        return Patterns(self._notes[agent])

    def has_notes(self, agent: str) -> bool:
        """Return whether an agent has private lessons: a file of them, or a database of a file that was deleted."""
        # ``os.path``: in a folder that may not be read there is none.
        return any(map(os.path.isfile, (self.notes_file(agent), self.local / f"private-{agent}-{SCHEMA_NUMBER}.db")))

    def agents_with_notes(self) -> list[str]:
        """Return the agents here that have private lessons; none if the register of writers is damaged."""
        with suppress(FleetError):  # the clan's lessons can be read all the same
            return [agent for agent in self.agents_here() if self.has_notes(agent)]
        return []

    def own_notes(self, agent: str, id_: str) -> Line | None:
        """Return the record of a lesson in the agent's private file, whether the lesson is private or not."""
        return self.notes(agent).line(id_) if self.has_notes(agent) else None

    def private(self, agent: str, id_: str) -> Line | None:
        """Return an agent's private record of a lesson; None for a lesson that is not private."""
        line = self.own_notes(agent, id_)
        return line if line is not None and fold(line).scope == PRIVATE else None

    def record(self, agent: str, id_: str) -> Line | None:
        """Return the record of a lesson: the join of the clan's and the agent's private one; None for neither."""
        shared, own = self.patterns.line(id_), self.private(agent, id_)
        return join(shared, own) if shared is not None and own is not None else own or shared

    def same_text(self, agent: str, text: str) -> str:
        """Return the id under which an agent logs a lesson: that of a lesson that has this text, else its hash."""
        if self.has_notes(agent):
            id_ = self.notes(agent).same_text(text)
            if self.private(agent, id_) is not None:
                return id_
        return self.patterns.same_text(text)

    def agent(self, named: str = "", *, or_guest: bool = False) -> str:
        """Return the agent to act as: the one named, else the stored default; with ``or_guest``, else the guest.

        Raises ``UsageError`` for none, and for an invalid name.
        """
        agent = named or names.agent_of(self.lease()) or self.default_agent() or names.GUEST
        if self.is_guest(agent) and not or_guest:
            other = self.replicas().default_agent
            came = f" ({other} came with the repository)" if other else ""
            raise UsageError(f"no agent is named here yet{came}. Run `fleet init --agent NAME`, or pass --agent NAME")
        if not names.is_agent(agent):
            raise UsageError(
                f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
                "and not 'import'. `--agent` names it, else FLEET_AGENT"
            )
        return agent

    def is_guest(self, agent: str) -> bool:
        """Return whether this is the guest, who works until an agent is named: its log is neither counted nor sent."""
        return agent == names.GUEST

    def agents_here(self) -> list[str]:
        """Return the agents whose replicas write in this workspace, sorted, without a guest."""
        register = self.replicas()
        return sorted(agent for agent in {found.agent for found in register.replicas} if self._is_here(agent, register))

    def default_agent(self) -> str:
        """Return the agent to act as where none is named; "" for none."""
        register = self.replicas()
        return register.default_agent if self._is_here(register.default_agent, register) else ""

    def _is_here(self, agent: str, register: replica.Register) -> bool:
        """Return whether an agent of the register was named by somebody here, not by the author of the repository."""
        if agent in ("", names.GUEST):
            return False
        machine, lent = self.world.machine(), self.world.lent()
        is_own = any(r.agent == agent and (r.machine == machine or r.name == lent) for r in register.replicas)
        return is_own or agent in Changes(self.root).named() or not self._is_tracked(self.replica_file)

    def _is_tracked(self, path: Path) -> bool:
        from fleet.store import git  # off the way of most commands

        return self.is_in_git() and git.may_track(self.root, path.relative_to(self.root).as_posix())

    def emoji(self) -> Mapping[str, str]:
        """Return agent to emoji, as ``members.toml`` has them."""
        return Members.parse(self.files.read(self.clan / MEMBERS)).emoji

    # --- identity ----------------------------------------------------------------------------------------------------

    def replicas(self) -> replica.Register:
        """Return the register of writers here."""
        return replica.Register.parse(self.files.read(self.replica_file), self.replica_file)

    def current_replicas(self) -> list[str]:
        """Return the replicas under which agents write here now, without those of the folder that this one copies."""
        register = self.replicas()
        current = (self._current(agent, register) for agent in {r.agent for r in register.replicas})
        # Until the first pull of this folder, the lines of an earlier job under the same lease are unknown here.
        lease = [name for name in [self.lease()] if name and self.state.get("pulled")]
        return sorted({*lease, *(r.name for r in current if r is not None)})

    def agents_writing(self) -> list[str]:
        """Return the agents as which this process may write: all that are here, under a lease its agent alone."""
        if lease := "" if self.is_read_only else self.lease():
            return [] if self._is_lease_unread() else [names.agent_of(lease)]
        return [] if self.is_read_only else self.agents_here()

    def former_replicas(self) -> list[str]:
        """Return the replicas under which no agent writes here any more, but perhaps elsewhere.

        Their entries in the logs are ours to send.
        """
        register, current = self.replicas(), self.current_replicas()
        listed = [] if register.ephemeral else register.replicas
        return sorted(r.name for r in listed if not r.is_lease and r.name not in current)

    def lease(self) -> str:
        """Return the replica that is lent to this process, or ""; raise ``UsageError`` for an invalid name."""
        lent = self.world.lent()
        if lent and not _is_lease(lent):
            raise UsageError(
                f"FLEET_REPLICA={lent[:60]!r} is no replica's name: <agent>.<8 hex digits>, such as ci.0a1b2c3d. "
                "Name one, or unset it"
            )
        return lent

    @property
    def is_read_only(self) -> bool:
        """True where nobody may write here: an ephemeral folder, no valid lease. False if the register is damaged."""
        with suppress(FleetError):
            return self.replicas().ephemeral and not _is_lease(self.world.lent())
        return False

    @property
    def is_of_version_1(self) -> bool:
        """True where fleet 0.1 made this workspace, and it is not converted yet."""
        try:
            check_version(self.root)
        except NoError:
            return True
        return False

    @property
    def is_in_a_clan(self) -> bool:
        """True where a remote is named, or agreed to, and this machine did not leave it."""
        return bool(self.config.share.remote or self.state.agreed("remote")) and not self.state.get("left")

    @property
    def doubt(self) -> str:
        """Reason why fewer lines may be sent than are pending: nothing of the clan was read yet. Else ""."""
        is_unread = self.is_in_a_clan and not self.tree.head()
        return "what the clan has is not known until a sync has read it" if is_unread else ""

    def check_lease(self) -> None:
        """Raise ``NoError`` if earlier jobs' lines under this lease were not read: totals would start at zero again."""
        if (lease := self.lease()) and self._is_lease_unread():
            raise NoError(
                f"{lease} is lent, and what was written under it before is not read yet, so no line is written under "
                "it here. Run `fleet sync` first"
            )

    def _is_lease_unread(self) -> bool:
        return self.is_in_a_clan and not self.state.get("pulled")

    def mint(self, agent: str) -> Replica:
        """Mint a new replica for an agent. The caller holds the write lock."""
        name = f"{agent}.{self.world.entropy(4).hex()}"  # a collision is detected when the lines of both meet
        fresh = Replica(name, self.world.machine(), replica.folder_fingerprint(self.root), self.clock.tick())
        self.files.replace(self.replica_file, self.replicas().with_replica(fresh).render())
        return fresh

    def session(self, agent: str) -> str:
        """Return the agent's own session: the running one, or a new one after ``session_idle_minutes``."""
        path = self.local / "session" / agent
        with self.lock("session"):  # so that commands which begin together are in one session
            name, _, last = self.files.read(path).decode("ascii", "replace").strip().partition(" ")
            idle_ms = self.world.wall_ms() - int(last) if last.isdecimal() else -1
            if not 0 <= idle_ms <= self.config.recall.session_idle_minutes * 60_000:
                name = f"s-{self.world.entropy(6).hex()}"
            self.files.note(path, f"{name} {self.world.wall_ms()}\n".encode())
        return name

    # --- reading -----------------------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """Return the policy of folds on this machine, which changes nothing that is joined or sent."""
        mine = self.mine()
        with suppress(FleetError):  # the decisions cannot be read: the last known policy holds
            self._policy = self.trust.policy(mine) if self.state.get(DECIDED) else Policy.of(mine)
        return self._policy._replace(cut=self.clock.cut())

    def is_in_git(self) -> bool:
        """Return whether a repository is around the folder: then anybody may have written ``fleet.toml``."""
        root = self.root.resolve()
        return any((folder / ".git").exists() for folder in (root, *root.parents))

    def shared_fields(self) -> list[str]:
        """Return the fields in ``[share] fields`` that are shared: in a repository, those that a person agreed to.

        The consent to a remote covers the fields that are named at the time. Before that, nothing is sent.
        """
        fields = self.config.share.fields
        if not fields or not self.is_in_git():
            return [*fields]
        from fleet.store import consent  # off the way of most corrections

        is_asked = any(map(self.state.agreed, (_FIELD, consent.REMOTE, consent.LIVE)))
        return [each for each in fields if not is_asked or self.state.agrees(_FIELD, each)]

    def kept_fields(self) -> list[str]:
        """Return the fields that stay on this machine unless they are shared, and are not."""
        shared = self.shared_fields()
        return [each for each in ("wrong", "source") if each not in shared]

    def agree_to_fields(self) -> None:
        """Record a person's consent to the fields in ``[share] fields``, in place of any other."""
        self.state.disagree(_FIELD)
        for each in ("", *self.config.share.fields):  # "" records that somebody was asked, even if about no field
            self.state.agree(_FIELD, each, self.wall())

    def mine(self) -> frozenset[str]:
        """Return the replicas that were minted for this machine and this folder: nobody else writes under them.

        A lease is lent to many processes, and the replicas in a backup or a copied folder may write elsewhere, too.
        """
        here = self.world.machine(), replica.folder_fingerprint(self.root)
        with suppress(FleetError):  # a damaged register is reported wherever it is needed
            return frozenset(r.name for r in self.replicas().replicas if (r.machine, r.folder) == here)
        return frozenset()

    def _withhold(self, parts: list["Held"], brought: dict[tuple[str, str], str], purged: dict[str, int]) -> Policy:
        """Withhold the parts that a person is asked about, with a warning; return the policy from now on."""
        if parts:
            self.trust.withhold(parts, self.wall())
        self.trust.note_brought(brought, self.wall())
        self.trust.note_purged(purged)
        for text in self.trust.sentences(parts):
            self.warn(text)
        return self.policy()

    @contextmanager
    def snapshot(self, wait_s: float = BUSY_S) -> Iterator[bool]:
        """Refresh once; while the block runs, queries answer from the rows as they are then.

        Yields whether they are up to date: False if another process held the lock for all of ``wait_s``.
        """
        with ExitStack() as stack:
            current = [stack.enter_context(db.snapshot(wait_s)) for db in (self.db, *self._notes.values())]
            yield all(current)

    def take(self, commit: str) -> Taken:
        """Move to another fetched tree and update the files here. The caller holds the write lock."""
        if not self._is_tree_current():
            self.tree.move("")  # first: after a crash the other remote's tree must not count as this one's
        if self.config.is_read and self.state.get(_TREE_OF) != self._remote_named():
            self.state.put(**{_TREE_OF: self._remote_named()})
        current = self.current_replicas()
        return self.db.take(commit, current[0] if current else "")

    def _is_tree_current(self) -> bool:
        """Return whether the tree is of the remote that is configured now; True if the configuration is unreadable."""
        return not self.config.is_read or self.state.get(_TREE_OF) in ("", self._remote_named())

    def _remote_named(self) -> str:
        share = self.config.share
        return f"{share.remote or 'origin'} {share.branch}"

    # --- time and warnings -------------------------------------------------------------------------------------------

    def wall(self) -> str:
        """Return the wall clock as a stamp."""
        return clock.nearest(self.world.wall_ms())

    def warn(self, message: str) -> None:
        """Add a warning for a person, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    @contextmanager
    def warned(self, trouble: str) -> Iterator[None]:
        """Turn an error in the block into a warning, which begins with ``trouble``: the block is not what was asked."""
        try:
            yield
        except FleetError as why:
            self.warn(f"{trouble}: {why}")

    # --- writing -----------------------------------------------------------------------------------------------------

    def locked(self, wait_s: float = limits.LOCK_WAIT_S) -> AbstractContextManager[None]:
        """Hold the workspace's write lock. Raises as ``lock``."""
        return self.lock("write", wait_s)

    def lock(self, name: str, wait_s: float = limits.LOCK_WAIT_S) -> AbstractContextManager[None]:
        """Hold one of the workspace's locks, by its name; raise ``BusyError`` where another process holds it."""
        return self.files.lock(self.local / "locks" / f"{name}.lock", wait_s)

    @contextmanager
    def writing(self, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> Iterator["Writer"]:
        """Hold the workspace's write lock as one agent's replica; at the end the database has what was written."""
        with self.locked(wait_s):
            yield self.writer(agent)
            # A file that was deleted, or set back, is restored from the rows: else a private lesson would be shared.
            self.db.catch_up(_REFRESH_WAIT_S)
            if self.has_notes(agent) and self.notes(agent).generation and self._notes[agent].lacks_lines():
                self._notes[agent].put_back(lambda _: self.notes_file(agent))

    def log_lock(self, agent: str, wait_s: float = limits.LOCK_WAIT_S) -> AbstractContextManager[None]:
        """Hold the lock of one agent's ``corrections.md``; with the write lock, that one is taken first."""
        return self.lock(f"log-{agent}", wait_s)

    def replica_name(self, agent: str) -> str:
        """Return the replica under which the agent writes here; "" if it must first be minted, or a lease fetched."""
        if lease := self.lease():
            return lease if names.agent_of(lease) == agent and self.state.get("pulled") else ""
        register = self.replicas()
        if register.ephemeral or self.clock.is_ahead():
            return ""
        current = self._current(agent, register)
        return current.name if current is not None and not self._is_ahead(current.name) else ""

    def _current(self, agent: str, register: replica.Register) -> Replica | None:
        """Return the agent's replica that belongs to this machine and this folder."""
        return register.current(agent, self.world.machine(), replica.folder_fingerprint(self.root))

    def writer(self, agent: str) -> "Writer":
        """Return the writer of one agent's replica. The caller holds the write lock, or the log's.

        Raises ``NoError`` where fleet 0.1 made this workspace, and it is not converted.
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
            register = self.replicas()
        current = self._current(agent, register)
        if current is not None and not self._is_ahead(current.name):
            return Writer(self, current.name)
        if current is not None:
            self.warn(
                f"stamps of the future came back under {current.name}, as after this folder was put back to before its "
                f"clock ran ahead: {agent} writes under a new replica id from now on, so that it counts"
            )
        elif any(r.agent == agent and not r.is_lease for r in register.replicas):
            self.warn(
                f"this folder is a copy, or came from another machine: {agent} writes under a new replica id from now "
                "on; nothing is lost or counted twice"
            )
        return Writer(self, self.mint(agent).name)

    def _is_ahead(self, name: str) -> bool:
        """Return whether a replica has a stamp in the future: what it states today would lose against that."""
        return self.db.ahead_of(name) > self.clock.cut()

    def _leased(self, agent: str, lease: str) -> "Writer":
        """Return the writer of a lent replica, and register it. The write lock separates two jobs of one folder."""
        if names.agent_of(lease) != agent:
            raise UsageError(f"FLEET_REPLICA={lease} belongs to {names.agent_of(lease)}, not to {agent}")
        register = self.replicas()
        if not any(r.name == lease for r in register.replicas):
            register = register.with_replica(Replica(lease, "", "", self.wall()))
            self.files.replace(self.replica_file, register.render())
        if self._is_ahead(lease):
            self.warn(
                f"{lease} has stamps of the future, from a clock that ran ahead: of the lessons with such a stamp, "
                "nothing that is written today counts under it. Lend this job another name (FLEET_REPLICA)"
            )
        return Writer(self, lease)

    def _start_again_after_running_ahead(self) -> None:
        """Reissue, under new replicas, the edits that were stamped when the clock ran ahead."""
        self.warn("this machine's clock ran ahead and was set back; its lessons were stamped anew, none is lost")
        old = sorted({found.name for found in self.replicas().replicas if not found.is_lease})
        self.state.put(**{_SET_BACK: clock.shifted(self.wall(), -1)})  # just before the present command
        late = self.db.future_ids()  # before a stamp is issued: it is larger than all that the rows admit
        fresh = {agent: self.mint(agent).name for agent in sorted({names.agent_of(name) for name in old})}
        self.clock.forget()  # after minting: under an old replica, which a crash would leave, smaller stamps are lost
        for id_, name in ((id_, name) for id_ in late for name in old):
            line, me = self.patterns.line(id_) or Line(id_), fresh[names.agent_of(name)]
            withheld = self.policy().withheld.get(id_, {}).get(name)
            delta = edits.reissue(line, name, me, self.clock.tick(), self.clock.cut(), withheld)
            if delta is not None:
                self.files.append(self.clan / PATTERNS.shard(me), PATTERNS.encode(delta) + b"\n")

    def made_at(self, at: str) -> str:
        """Return when something was done here; a date of a clock that ran ahead becomes the time of its correction."""
        return at if at <= self.wall() else self.state.get(_SET_BACK) or at

    def close(self) -> None:
        """Close the databases. The next query opens them again."""
        self.db.close()
        self.state.close()
        for notes in self._notes.values():
            notes.close()


def _is_lease(name: str) -> bool:
    return names.is_replica(name) and names.is_agent(names.agent_of(name))


_REFRESH_WAIT_S = 0.3
_SET_BACK = "set_back"
_TREE_OF = "tree_of"
"""Key of the remote and branch, as ``fleet.toml`` had them, that the tree was fetched from."""
_FIELD = "field"  # kind of consent: a field of ``[share] fields``
_MOVED = ("add", "first", "n", "parts", "rem", "set", "over")  # parts of a column that ``hide`` moves


class Writer:
    """Writer of the lines of one replica, which may be lent to this process, while the lock is held."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.workspace = workspace
        self.name = name

    @property
    def agent(self) -> str:
        """The agent of the replica."""
        return names.agent_of(self.name)

    def tick(self) -> str:
        """Issue the next stamp."""
        self.workspace.check_lease()
        return self.workspace.clock.tick()

    def append(self, kind: Kind, lines: Sequence[Any], *, is_durable: bool = True) -> None:
        """Append lines to the own shard, durably unless they can be derived again.

        Lines that only the rows have are written first, since a remove refers to an add, a mark to an occurrence.
        """
        if data := b"".join([kind.encode(line) + b"\n" for line in lines]):
            if self.workspace.db.lacks_lines():
                self.workspace.db.put_back(self.workspace.db.shards(self.name))
            self.workspace.files.append(self.workspace.clan / kind.shard(self.name), data, is_durable=is_durable)
            self.workspace.db.invalidate()

    def line(self, id_: str) -> Line:
        """Return the record of a lesson, the agent's private part included; an empty one for none."""
        return self.workspace.record(self.agent, id_) or Line(id_)

    def edit(self, line: Line, field: str, value: Any, stamp: str = "") -> Line:
        """Return the edit of one field of a record (``edits.set_field``), under the next stamp unless one is given."""
        return edits.set_field(line, field, value, self.name, stamp or self.tick(), self.workspace.clock.cut())

    def write(self, deltas: Sequence[Line], *, is_durable: bool = True) -> None:
        """Write each delta that says something to the file of its lesson: the private file, or the shared shard."""
        deltas = [delta for delta in deltas if not delta.is_empty()]
        private = {delta.id for delta in deltas if fold(delta).scope == PRIVATE}  # from now on
        private |= {delta.id for delta in deltas if self.workspace.private(self.agent, delta.id) is not None}
        self.append_private([delta for delta in deltas if delta.id in private])
        self.append(PATTERNS, [delta for delta in deltas if delta.id not in private], is_durable=is_durable)

    def unsent(self, ids: Iterable[str]) -> list[str]:
        """Return the ids of those records in whose shared columns the agent has a part that no sync has sent."""
        patterns, found = self.workspace.patterns, []
        records = {id_: record for id_ in sorted(ids) if (record := patterns.line(id_)) is not None}
        for id_, sent in patterns.shared(list(records)):
            delta = difference(records[id_], sent)
            own = (name for name in delta.by_writer() if names.agent_of(name) == self.agent) if delta else ()
            if delta and any(delta.split_column(name, _MOVED)[1] is not None for name in own):
                found.append(id_)
        return found

    def hide(self, id_: str, stamp: str) -> None:
        """Make a lesson private: unsent parts leave the shared files, the rest stays with the clan.

        The agent's columns move unchanged, so each total counts once. Words of others are copied as theirs, so that
        they do not become the agent's own. The caller has counted what was logged before ``stamp``, as for ``publish``.
        """
        workspace, line = self.workspace, self.line(id_)
        lesson = fold(line, workspace.policy())
        shared = workspace.patterns.line(id_) or Line(id_)
        own_writers = [name for name in shared.by_writer() if names.agent_of(name) == self.agent]
        words = workspace.policy().counted(line).without_field(SCOPE).shown(lesson.by, lesson.edited)
        moved = (shared.without_field(SCOPE).split_column(name, _MOVED)[1] for name in own_writers)
        delta = join(words, *filter(None, moved))
        private = workspace.own_notes(self.agent, id_) or Line(id_)
        delta = join(delta, edits.restore(delta, self.name, stamp), self.edit(private, SCOPE, PRIVATE))
        if not lesson.is_present:
            delta = join(delta, edits.retire(join(private, delta), self.name))
        self.append_private([delta])
        for name in own_writers:
            workspace.db.remove_unsent(id_, name, _MOVED)

    def publish(self, id_: str, scope: str, stamp: str) -> None:
        """Make a private lesson the clan's: what the agent stated of it goes to the shared shard.

        The agent's add goes there only if it logged the lesson, or nobody else's add is left. The private record is
        retired.
        """
        private = self.workspace.private(self.agent, id_)
        if private is None:
            return
        shared = self.workspace.patterns.line(id_) or Line(id_)
        kept = (SCOPE, STAGE, MERGED_FROM, *self.workspace.kept_fields())
        going = reduce(Line.without_field, kept, private).by_writer()
        own, known = [name for name in going if names.agent_of(name) == self.agent], shared.by_writer()
        delta = join(Line(id_), *(part for name, part in going.items() if name in own or name not in known))
        if fold(private).is_present:
            is_logged = any(shared.add_of(name) or going[name].is_logged() for name in own)
            delta = delta if is_logged else delta.split_column(self.name, ("add", "rem"))[0]
            if is_logged or not fold(join(shared, delta), self.workspace.policy()).is_present:
                delta = join(delta, edits.restore(join(shared, delta), self.name, stamp))
        self.append(PATTERNS, [] if delta.is_empty() else [delta])
        self.append_private([join(self.edit(private, SCOPE, scope), edits.retire(private, self.name))])

    def set_own(self, values: Sequence[tuple[str, str, Any]]) -> None:
        """Set fields of clan lessons for this agent alone, as (id, field, value): its file has them without a text."""
        own = self.workspace.own_notes
        lines = [(own(self.agent, id_) or Line(id_), field, value) for id_, field, value in values]
        self.append_private([self.edit(line, field, value) for line, field, value in lines])

    def append_private(self, lines: Sequence[Any]) -> None:
        """Append lines to the agent's private file."""
        if data := b"".join([PATTERNS.encode(line) + b"\n" for line in lines]):
            self.workspace.files.append(self.workspace.notes_file(self.agent), data)


def check_version(root: Path) -> None:
    """Raise ``NoError`` for a workspace of fleet 0.1 that is not converted yet; a few of its files tell."""
    clan = root / "clan-learnings"
    if (clan / FORMAT).is_file():
        return
    local = root / ".fleet"
    names_here = [path.name for path in local.iterdir()] if local.is_dir() else []
    shards = sorted((clan / "patterns.d").glob("*.jsonl"))[:8]
    if not set(VERSION_1_FILES).isdisjoint(names_here) or any(
        is_version_1(homes.read(str(path), limits.LINE_BYTES_MAX + 1).partition(b"\n")[0])
        for path in (clan / "patterns.jsonl", *shards)
    ):
        raise NoError(f"{root} was made by fleet 0.1; run `fleet upgrade`. Nothing was changed")
