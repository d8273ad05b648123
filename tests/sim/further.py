"""Further histories: wider ones with more actions, between machines and around the record.

Several agents work in one folder, some under a name that is used elsewhere too. The ``.fleet`` folder is deleted. A
backup is restored into a new folder. People answer the inbox, and notebooks are tidied. A second remote is used now and
then, and a live room carries the same lines as git. All checks of the wider histories hold here too.
"""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crdt.doc import Document
from fleet.app import inbox, moving, reflecting, reviewing, setup, sharing, sleeping, tidying
from fleet.model.errors import FleetError, NoError
from fleet.model.names import GUEST
from fleet.reflect.housekeeping import Mode
from fleet.reflect.promotion import AgentMemory
from fleet.share.live.bridge import BASE, Bridge
from fleet.store.runs import Run
from fleet.store.workspace import Workspace
from tests.memory_remote import MemoryServer
from tests.sim.simulator import MACHINES_MAX, MEMORY_OFF
from tests.sim.wider import Wider
from tests.sim.world import Machine, SimTree

MEMORY_ASKS = '[promotion]\nmode = "suggest"\nown = 1\nclan_seen = 1\nclan_agents = 1\nclan_sessions = 1\n'


class Further(Wider):
    """A wider history with several agents in a folder, two remotes, and a live room."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.other_server = MemoryServer()
        self.other_server._numbers = itertools.count(1_000_001)  # no commit has a number of the first server
        self.room = self._room()
        self.demoted: set[tuple[str, str, str]] = set()
        """(folder, agent, lesson) of each lesson that a person took out of a memory."""
        self.of_guests: list[list] = []
        """Entries of ``Machine.logged`` that a guest logged."""
        self.runs_of_guests: set[str] = set()
        for machine in self.machines:
            if self.rng.random() < 0.5:
                file = machine.root / "fleet.toml"
                file.write_text(file.read_text().replace(MEMORY_OFF, MEMORY_ASKS))

    def _room(self) -> Document:
        return Document(self.rng.getrandbits(32))

    def actions(self) -> list[Callable[[Machine], object]]:
        """Return the possible actions, each as many times as its weight says."""
        further = [
            *[self.work_as_another, self.meet, self.use_other_remote] * 4,
            *[self.log_as_guest, self.name_guest, self.promote, self.demote, self.answer_inbox, self.lose_fleet] * 3,
            *[self.tidy, self.sleep, self.settle_elsewhere, self.restore_all] * 2,
            *(self.empty_room, self.leave, self.block_and_retire),
        ]
        return super().actions() + further * 4

    # --- several agents in one folder ---------------------------------------------------------------------------------

    @contextmanager
    def _as_another(self, machine: Machine) -> Iterator[None]:
        agent = machine.agent
        machine.agent = self.rng.choice(["visitor", *sorted({each.agent for each in self.machines})])
        try:
            yield
        finally:
            machine.agent = agent

    def log_as_guest(self, machine: Machine) -> bool:
        """Log while no agent is named; the entry counts here, and is sent once an agent takes it over."""
        if machine.others or machine.is_back or self.has_private:
            return False
        agent, machine.agent = machine.agent, GUEST
        known = set(self.ledger.logged)
        try:
            self.correct(machine)
        finally:
            machine.agent = agent
        self.of_guests.append(machine.logged[-1])
        self.runs_of_guests |= self.ledger.logged.keys() - known
        return True

    def undo(self, machine: Machine) -> bool:
        """Undo a correction; the copy of a guest's that an agent took over from a backup may still count."""
        logged = dict(self.ledger.logged)
        is_done = super().undo(machine)
        for run in self.runs_of_guests:
            if run in logged and self.ledger.logged.get(run) != logged[run]:
                self.of_guests.append(machine.logged[-1])
                self.ledger.maybe[logged[run][1]] += bool(self.promised.saved)
        return is_done

    def _sync(self, machine: Machine, meanwhile: Callable[[], None], *, compact: bool = False) -> None:
        super()._sync(machine, meanwhile, compact=compact)
        if any(each.agent == GUEST for each in self.open(machine).replicas().replicas):
            for each in machine.logged:
                each[1] = each[1] and not any(each is one for one in self.of_guests)

    def name_guest(self, machine: Machine) -> bool:
        """Name the agent of a folder, who then takes over what the guest logged."""
        workspace = self.open(machine)
        if not workspace.is_guest(GUEST) or not workspace.home(GUEST).is_dir():
            return False
        setup._add_agent(workspace, machine.agent, [])
        return True

    def powered(self) -> list[Callable[[Machine], object]]:
        """Return the actions in which power may fail."""
        acts = [self.name_guest, self.promote, self.demote, self.answer_inbox, self.restore_all, self.sleep, self.tidy]
        return [*super().powered(), *acts, *acts]

    def work_as_another(self, machine: Machine) -> bool:
        """Work in a folder as another agent, perhaps one that has its own folder."""
        with self._as_another(machine):
            act = self.rng.choice([self.correct, self.correct, self.edit, self.discover, self.retire, self.sync])
            return act(machine) is not False

    def settle_elsewhere(self, _: Machine) -> bool:
        """Restore a backup into a new folder, where its agent works too."""
        fresh = [each for each in self.promised.saved if each.hidden == self.promised.hidden]
        if not fresh or len(self.machines) >= MACHINES_MAX or self.has_private:
            return False
        saved = self.rng.choice(fresh)
        machine = Machine(self.folder / f"settled{self.new_number()}", saved.agent)
        moving.prepare(machine.root, saved.path, lambda: None)
        self.machines.append(machine)
        moving.restore_backup(self.open(machine), saved.path)
        return True

    def lose_fleet(self, machine: Machine) -> bool:
        """Delete the ``.fleet`` folder, so that only the logs and the clan's files are left.

        Only that folder knows earlier places of the homes. So the files there are moved to the present place first.
        """
        if machine.is_hurt or machine.others or machine.is_back:
            return False
        self.open(machine)
        self.shut(machine)
        if not (machine.root / ".fleet").exists() or (machine.root / "agents" / GUEST).exists():
            return False
        if not self._is_in_files(machine):
            return False
        shutil.rmtree(machine.root / ".fleet")
        machine.tree, machine.old_database = SimTree(), None
        self.promised.unfinished.discard(machine.root)
        return True

    def _is_in_files(self, machine: Machine) -> bool:
        """Return whether the clan's files have what other agents logged here.

        They lack it if power failed before the shard was durable. Then only that agent's next command here counts it.
        """
        files = [path.read_text("utf-8") for path in (machine.root / "clan-learnings").rglob("*.jsonl")]
        known = [row for each in files for row in each.splitlines()]
        for path in (machine.root / "agents").glob("*/corrections.md"):
            for lesson, writer in re.findall(r"<!-- fleet c-\w+ (p-\w+) replica=(\S+)", path.read_text("utf-8")):
                if path.parent.name != machine.agent and not any(lesson in row and writer in row for row in known):
                    return False
        return True

    # --- memories and what waits for a person -------------------------------------------------------------------------

    def promote(self, machine: Machine) -> bool:
        """Enter a lesson into a memory, as a person's yes does."""
        lesson = self._some_lesson(machine)
        if not lesson:
            return False
        self.demoted = {each for each in self.demoted if each[0] != str(machine.root)}
        try:
            reflecting.promote(self.open(machine), machine.agent, lesson)
        except FleetError:
            return False
        return True

    def demote(self, machine: Machine) -> bool:
        """Take a lesson out of a memory, to which it must not come back by itself.

        Two machines of one image have one path and a memory each, and the other one keeps the lesson.
        """
        workspace = self.open(machine)
        rows = sorted(AgentMemory(workspace, machine.agent).rows())
        if not rows:
            return False
        lesson = self.rng.choice(rows)
        reflecting.demote(workspace, machine.agent, lesson)
        assert lesson not in AgentMemory(workspace, machine.agent).rows(), f"{lesson} was demoted, and is there"
        if not machine.others:
            self._note_done(machine, self.demoted, (str(machine.root), machine.agent, lesson))
        return True

    def answer_inbox(self, machine: Machine) -> bool:
        """Answer an entry of the inbox with yes or no."""
        workspace = self.open(machine)
        waiting = inbox.listing(workspace, count=0).entries
        if not waiting:
            return False
        entry, purged = self.rng.choice(waiting), self._purged_here(machine)
        pair = tuple(str(entry.item.body.get("pair", "")).split(":"))
        if entry.item.kind in {"merge", "contradiction"}:
            self.ledger.merged.add((pair[0], pair[1]))
            self.ledger.retired.update(pair)
        self.demoted = {each for each in self.demoted if each[0] != str(machine.root)}
        try:
            if self.rng.random() < 0.6:
                inbox.approve(workspace, machine.agent, entry.item.id, self.rng.choice(["first", "second", ""]))
            else:
                inbox.reject(workspace, machine.agent, entry.item.id)
        except FleetError as why:
            self.note("not answered", type(why).__name__)
            return False
        finally:
            self._note_words_anew(machine, purged)
        self.happened[f"answered {entry.item.kind}"] += 1
        return True

    def block_and_retire(self, machine: Machine) -> bool:
        """Block a writer here, and retire for all what nobody else said."""
        name = self.rng.choice(self.machines).agent
        try:
            done = reviewing.block(self.open(machine), machine.agent, name, retire=True)
        except FleetError:  # it writes here
            return False
        self.ledger.retired.update(done.retired)
        return bool(done.retired)

    def restore_all(self, machine: Machine) -> bool:
        """Restore all lessons that some agent retired."""
        try:
            done = reviewing.restore_all(self.open(machine), machine.agent, self.rng.choice(self.machines).agent)
        except NoError:
            return False
        self.ledger.retired.update(each for each, _ in done)
        return True

    def tidy(self, machine: Machine) -> bool:
        """Tidy the agent's notebook."""
        return bool(tidying.tidy(self.open(machine), machine.agent, Mode.ALWAYS, confirm=bool).run)

    def sleep(self, machine: Machine) -> bool:
        """Run all phases of an agent's sleep."""
        return bool(sleeping.sleep(self.open(machine), machine.agent).phases)

    def _loosen(self, machine: Machine, run: Run) -> None:
        super()._loosen(machine, run)
        self.demoted = {each for each in self.demoted if each[0] != str(machine.root)}

    # --- other ways ---------------------------------------------------------------------------------------------------

    def use_other_remote(self, machine: Machine) -> bool:
        """Sync once with a second remote, as after `fleet init --remote`."""
        # What a folder had sent before it was restored is only in the remote that it was sent to.
        if self.has_private or self.is_busy or machine.is_back or machine.is_unsure:
            return False
        sent = [each[1] for each in machine.logged]
        self.server, self.other_server, self.is_busy = self.other_server, self.server, True
        sharing.Membership(self.open(machine))._forget_tree()
        try:
            self.sync(machine)
        finally:
            sharing.Membership(self.open(machine))._forget_tree()
            self.server, self.other_server, self.is_busy = self.other_server, self.server, False
            for each, was_sent in zip(machine.logged, sent, strict=False):
                each[1] = was_sent
        return True

    def leave(self, machine: Machine) -> bool:
        """Forget the fetched tree, as one does who leaves the clan and comes back later."""
        if machine.is_hurt:
            return False
        sharing.Membership(self.open(machine))._forget_tree()
        return True

    def meet(self, machine: Machine) -> bool:
        """Exchange lines with the live room, in both directions."""
        workspace = self.open(machine)
        with workspace.writing(machine.agent) as writer:
            name = writer.name
        bridge = Bridge(workspace, name)
        if self.has_private:  # an old room may hold what became private later, so only the offer is checked
            offered = b"".join(update for _, update in bridge.offer())
            leaked = [words for words in self.ledger.private if words.encode() in offered]
            assert not leaked, f"{leaked} are offered to the room"
            return False
        bridge.receive([(BASE, self.room.since(bridge.documents[BASE].state()))])
        for room, update in bridge.offer():
            assert room == BASE
            self.room.apply(update)
        self.room.apply(bridge.documents[BASE].since(self.room.state()))
        return True

    def empty_room(self, _: Machine) -> None:
        """Restart the live server, which then holds nothing."""
        self.room = self._room()

    # --- the end ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Name every folder's agent, and then heal."""
        for machine in self.machines:
            setup._add_agent(self.open(machine), machine.agent, [])
        super().heal()

    def check_machine(self, machine: Machine) -> None:
        """Check also that what a person took out of a memory stays out of it."""
        super().check_machine(machine)
        workspace: Workspace = self.open(machine)
        for agent in workspace.agents_here():
            rows = AgentMemory(workspace, agent).rows()
            back = [each for each in rows if (str(machine.root), agent, each) in self.demoted]
            loose = self.ledger.retired | {each for pair in self.ledger.merged for each in pair}
            assert not {*back} - loose, f"{back} were demoted, and are back in the memory of {agent}"
