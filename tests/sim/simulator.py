"""Seeded random histories of a clan: agents at work on real workspaces, over a remote in memory.

The world is simulated: clocks jump, power fails at any durable step, and remotes are cut off, rewound, reverted, merged
by hand or lose a reply. Folders are copied and put back, databases and git folders are lost, and people edit and
delete the clan's files. A ledger notes what was acknowledged. After healing, every machine must hold the same.
Whatever was acknowledged must be there once; whatever is private or purged must be nowhere. A database that is
rebuilt from the files must equal the one that was there.
"""

import hashlib
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crdt import clock
from fleet.app import learning, lessons, moving, sharing, undoing
from fleet.learn import corrections
from fleet.learn.corrections_md import Correction
from fleet.model import limits
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError, NoError
from fleet.model.line import Carried, Line
from fleet.model.names import pattern_id
from fleet.model.pattern import Policy, fold
from fleet.share.remote import Mark, RemoteUnavailable
from fleet.store import config
from fleet.store import workspace as workspaces
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.lines import KINDS, Entry
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace, World
from tests.memory_remote import MemoryServer
from tests.sim.people import Held, People, held_in
from tests.sim.world import (
    POWERS,
    START_MS,
    CrashError,
    Ledger,
    Machine,
    SimFiles,
    SimRemote,
    SimTree,
    Snapshot,
    simulated,
)

HOUR_MS = 3_600_000
YEAR_MS = 8_766 * HOUR_MS
SETTLING_ROUNDS_MAX = 5
# A long history finds what ten short ones do not, and costs as much as three. So one in five is long.
LONG_SHARE = 0.2
SHORT_STEPS, LONG_STEPS = (6, 18), (25, 60)
SHORT_MACHINES, LONG_MACHINES = (2, 3), (3, 5)
MACHINES_MAX = 6
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(6)]
UNDER_THE_MAT = "The code of the {} is written under the mat"
THEMES = ("anything", "secrets", "clocks", "snapshots", "hands", "remotes", "losses")
WIDER_FROM = 1_000_000
"""Seeds from here on are those of wider histories (``wider.py``); what a smaller seed stands for never changes."""
FURTHER_FROM = 10_000_000
"""Seeds from here on are those of further histories (``further.py``)."""
TENDED_FROM = 20_000_000
"""Seeds from here on are those of tended histories (``tended.py``)."""
ALONE_FROM = 30_000_000
"""Seeds from here on are those of tended histories of one folder (``tended.py``)."""
OTHER_SCHEMA = SCHEMA_NUMBER + 1
MEMORY_OFF = '[promotion]\nmode = "off"\n'


class Simulation:
    """One history.

    Args:
        seed: decides everything.
        folder: an empty folder to work in.

    Attributes:
        remote_class: class of a machine's remote; tests of a broken fleet put in a broken one.
        theme: the key of ``themes`` whose actions come more often in this history; drawn, unless a test sets it.
        happened: how often each action did anything.
    """

    remote_class = SimRemote
    theme = ""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.now_ms = START_MS
        self.server = MemoryServer()
        self.ledger = Ledger()
        self.people = People(self.server, self.rng)
        self.trace: list[str] = []
        self.happened: Counter[str] = Counter()
        self.is_busy = False  # somebody's faster sync is under way, and must not start a third one in turn
        self.number = 0
        self.has_jumped = False
        # Older copies of the shared files hold what became private later, so such a history brings no copy back.
        self.has_private = self.rng.random() < 0.5
        # Small limits make editions and dropping happen within a few lines.
        self.edition_bytes = self.rng.choice([0, 600, 2_000, 262_144])
        self.edition_share = self.rng.choice([0.25, 0.25, 4.0])
        is_long = self.rng.random() < LONG_SHARE
        self.steps = self.rng.randint(*(LONG_STEPS if is_long else SHORT_STEPS))
        machines = self.rng.randint(*(LONG_MACHINES if is_long else SHORT_MACHINES))
        self.again: set[str] = set()  # minute and lesson of each entry that a restored machine logged once more
        self.only_sent: list[Any] = []  # what a machine logged before it was restored, and only the remote has
        self.machines = [self._machine(f"agent{n}") for n in range(machines)]
        self.theme = self.theme or self.rng.choice(THEMES)

    def _machine(self, agent: str) -> Machine:
        root = self.folder / agent
        root.mkdir()
        (root / config.FILE_NAME).write_text(
            f"[keep]\nedition_always_bytes = {self.edition_bytes}\nedition_uncovered_share = {self.edition_share}\n"
            + MEMORY_OFF
        )
        return Machine(root, agent)

    def actions(self) -> list[Callable[[Machine], object]]:
        """Return the possible actions, each as many times as its weight says."""
        usual = [
            *[self.correct] * 9,
            *[self.sync] * 8,
            *[self.edit] * 4,
            *[self.word_a_secret, self.crash] * 3,
            *[self.write_by_hand, self.discover, self.retire, self.keep_private, self.purge, self.jump] * 2,
            *[self.merge, self.edit_by_hand, self.restore, self.merge_lessons, self.back_up, self.bring_back] * 2,
            *[self.undo] * 3,
            *(self.carry, self.cut_off, self.copy, self.run_twice, self.compact, self.rewind, self.revert),
            *(self.supersede, self.lose_database, self.lose_git, self.change_schema, self.delete_by_hand),
            *(self.remember_clan, self.bring_old_clan_back, self.bring_old_clan_back),
        ]
        themes = {
            "secrets": [self.word_a_secret, self.purge, self.sync, self.merge, self.carry],
            "clocks": [self.jump, self.edit, self.retire, self.restore, self.sync],
            "snapshots": [self.back_up, self.bring_back, self.correct, self.undo, self.sync, self.compact],
            "hands": [
                *(self.edit_by_hand, self.delete_by_hand, self.remember_clan, self.bring_old_clan_back, self.sync),
                *(self.cut_off, self.discover, self.edit, self.lose_database, self.lose_files_and_database),
            ],
            "remotes": [self.rewind, self.revert, self.merge, self.carry, self.supersede, self.sync],
            "losses": [self.lose_database, self.lose_git, self.change_schema, self.crash, self.copy, self.sync],
        }
        return usual + themes.get(self.theme, []) * 6

    def run(self) -> str:
        """Run the history, heal and check; return the hash of its trace."""
        self.begin()
        actions = self.actions()
        for _ in range(self.steps):
            self.now_ms += self.rng.choice([1, 1, 50, 1_000, 60_000, HOUR_MS])
            machine = self.rng.choice(self.machines)
            self.step(self.rng.choice(actions), machine)
        self.heal()
        self.close()
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def step(self, action: Callable[[Machine], object], machine: Machine) -> bool:
        """Do an action on a machine; return whether it did anything."""
        self.note(action.__name__, machine.root.name)
        is_done = action(machine) is not False
        self.happened[action.__name__] += is_done
        return is_done

    def begin(self) -> None:
        """Let most machines log a correction and sync, so that they have something in common."""
        for machine in self.machines:
            if self.rng.random() < 0.7:
                self.correct(machine)
                self.sync(machine)

    def note(self, *words: object) -> None:
        """Add to the trace."""
        self.trace.append(" ".join(map(str, words)))

    def new_number(self) -> int:
        """Return the next unused number."""
        self.number += 1
        return self.number

    # --- a machine and its workspace ---------------------------------------------------------------------------------

    def open(self, machine: Machine) -> Workspace:
        """Open a machine's workspace anew, as each command does, or go on with the open one, as a sidecar does."""
        self._put_in_place(machine)
        if machine.workspace is not None and self.rng.random() < 0.5:
            return machine.workspace
        self.shut(machine)
        world = World(
            wall_ms=lambda: self.now_ms + machine.skew_ms,
            entropy=self.entropy,
            machine=lambda: "one-machine",
            durable=False,
            tree=lambda _: machine.tree,
        )
        workspaces.SCHEMA_NUMBER = machine.schema
        machine.workspace = Workspace(machine.root, world, SimFiles(machine.root))
        machine.tree.power = POWERS[machine.root]
        return machine.workspace

    def entropy(self, length: int) -> bytes:
        """Return random bytes."""
        return self.rng.randbytes(length)

    def _put_in_place(self, machine: Machine) -> None:
        """Move a machine's folder to the path that it shares with the other machines of its image."""
        if machine.apart is not None:
            running = next(each for each in machine.others if each.apart is None)
            self.shut(running)
            running.apart = self.folder / f"apart{self.new_number()}"
            running.root.rename(running.apart)
            machine.apart.rename(machine.root)
            machine.apart = None

    def shut(self, machine: Machine) -> None:
        """Close a machine's workspace."""
        if machine.workspace is not None:
            machine.workspace.close()
            machine.workspace = None

    def close(self) -> None:
        """Close all workspaces."""
        for machine in self.machines:
            self.shut(machine)

    def known_by(self, machine: Machine) -> Held:
        """Return what the rows of a machine's database say."""
        workspace = self.open(machine)
        held = Held()
        asked = "SELECT line FROM pattern", "SELECT line FROM discovery", "SELECT raw FROM carried"
        found = workspace.db.ask(lambda it: [[row[0] for row in it.execute(each)] for each in asked])
        for kind, raws in zip(KINDS, found, strict=False):
            for raw in raws:
                held.add(kind.decode(raw))
        for raw in found[2]:
            held.add(Carried("", raw))
        return held

    def check_nothing_went_back(self, machine: Machine) -> None:
        """Check that a machine's rows still cover all that they covered before.

        Adds and totals under a name that it gave up are left out: its own share of them is under a new name by then.
        """
        warnings = machine.workspace.warnings if machine.workspace is not None else []  # a fresh workspace has none
        given_up = re.findall(r"somebody else writes as (\S+):", "\n".join(warnings))
        now = self.known_by(machine)
        for entry in machine.kept.entries():
            kept = entry
            for name in given_up if isinstance(kept, Line) else ():
                kept, _ = kept.split_column(name, ("add", "n"))
            is_taken_out = isinstance(entry, Carried) and entry.hash in self.ledger.superseded
            assert is_taken_out or now.covers(kept), f"{machine.root.name} went back on {kept}"
        machine.kept = now

    def check_private(self, machine: Machine) -> None:
        """Check that no private words stand in the files that the clan shares and a project may track."""
        for path in sorted((machine.root / "clan-learnings").rglob("*")):
            data = path.read_bytes() if path.is_file() else b""
            leaked = [word for word in self.ledger.private if word.encode() in data]
            assert not leaked, f"{leaked} stand in {path.name} of {machine.root.name}"

    # --- what agents do ----------------------------------------------------------------------------------------------

    def correct(self, machine: Machine, lesson: str = "") -> None:
        """Log a correction."""
        lesson = lesson or self.rng.choice(LESSONS)
        self.ledger.maybe[lesson] += 1
        # The entry is on the disk when this returns, and so it counts as acknowledged.
        workspace = self.open(machine)
        before = {each.id for each in Runs(workspace).listed()}
        logged = learning.correct(workspace, machine.agent, Correction("w", "r", lesson), session=str(self.now_ms))
        if self._acknowledge(machine, lesson):
            # A run that a crash cut short may be finished by this command, and is none of its own.
            fresh = (each for each in Runs(workspace).listed() if each.id not in before and each.kind == "correct")
            self.ledger.logged |= {each.id: (str(machine.root), lesson, False) for each in fresh}
        self.note("logged", logged.id, logged.seen)

    def _acknowledge(self, machine: Machine, lesson: str) -> bool:
        if machine.others or machine.is_unsure:
            return False  # two live machines of one image count inexactly, and so does one whose clock may be behind
        self.ledger.maybe[lesson] -= 1
        self.ledger.seen[lesson] += 1
        machine.logged.append([lesson, False])
        return True

    def undo(self, machine: Machine) -> bool:
        """Undo a correction that was logged here, or undo its undo, so that it counts again."""
        if machine.others or machine.is_back:
            return False
        workspace = self.open(machine)
        undone_by = {each.id: by for each, by in undoing.History(workspace).listed()}
        runs = sorted(each for each in undone_by if self.ledger.logged.get(each, ("",))[0] == str(machine.root))
        if not runs:
            return False
        run = self.rng.choice(runs)
        _, lesson, was_undone = self.ledger.logged[run]
        is_undone = not undone_by[run]
        change = was_undone - is_undone
        self.ledger.retired.add(pattern_id(lesson))
        self.ledger.seen[lesson] += min(0, change)
        self.ledger.maybe[lesson] += 1  # in case the power fails
        try:
            undoing.undo(workspace, undone_by[run] or run)
        except NoError:  # an earlier undo of this run was cut short, and is finished first
            return False
        self.ledger.maybe[lesson] -= 1
        self.ledger.seen[lesson] += max(0, change)
        self.ledger.logged[run] = (str(machine.root), lesson, is_undone)
        machine.logged.append([("undone", lesson) if is_undone else lesson, False])
        self.note("undone" if is_undone else "stated again", lesson)
        return True

    def write_by_hand(self, machine: Machine) -> None:
        """Append an entry as an editor would, maybe without the final newline."""
        self._put_in_place(machine)
        lesson = self.rng.choice(LESSONS)
        path = self.log_of(machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        end = self.rng.choice(["", "\n", "\n\n"])
        old = path.read_bytes() if path.exists() else b""
        with path.open("a") as file:
            file.write(
                ("" if not old or old.endswith(b"\n") else "\n")
                + f"\n## 2026-11-21 — by hand {self.new_number()}\n**Pattern:** {lesson}{end}"
            )
        self.ledger.maybe[lesson] += 1
        self._acknowledge(machine, lesson)

    def log_of(self, machine: Machine) -> Path:
        """Return the path of an agent's log."""
        return machine.root / "agents" / machine.agent / "corrections.md"

    def discover(self, machine: Machine) -> None:
        """Log a discovery."""
        problem = f"problem {self.rng.randint(0, 9)}"
        given = Discovery(id="", problem=problem, solution="solution", type="discovery", confidence="medium")
        entry, _ = learning.discover(self.open(machine), machine.agent, given)
        self._note_done(machine, self.ledger.discoveries, entry.id)

    def retire(self, machine: Machine) -> bool:
        """Retire a lesson that is present."""
        return self._retire_or_restore(machine, lessons.retire, is_in=True)

    def restore(self, machine: Machine) -> bool:
        """Restore a retired lesson."""
        return self._retire_or_restore(machine, lessons.restore, is_in=False)

    def _retire_or_restore(self, machine: Machine, change: Callable[..., object], *, is_in: bool) -> bool:
        lesson = self._some_lesson(machine, is_in=is_in)
        if not lesson:
            return False
        try:
            change(self.open(machine), machine.agent, lesson)
        except NoError:  # a merged set is present while any of its records is
            return False
        self.ledger.retired.update(self.open(machine).patterns.group(lesson))
        return True

    def _some_lesson(self, machine: Machine, *, is_in: bool = True) -> str:
        found = [each.id for each in self.open(machine).patterns.records() if each.is_present is is_in and each.text]
        secrets = {words[1] for words in self.ledger.words}
        found = [each for each in found if each not in secrets]
        return self.rng.choice(found) if found else ""

    def edit(self, machine: Machine) -> bool:
        """Set a field of a lesson, which must read so here at once; the value that it replaced must never come back."""
        lesson = self._some_lesson(machine)
        if not lesson:
            return False
        workspace, value = self.open(machine), f"category {self.new_number()}"
        late = [
            each for each in workspace.db.future_ids() if (found := workspace.patterns.get(each)) and found.is_listed
        ]
        if late and self.rng.random() < 0.5:
            lesson = self.rng.choice(late)
        if workspace.private(machine.agent, lesson) is None:
            lesson = lessons.show(workspace, lesson)[1].id  # of a merged lesson the record that speaks for it
        before = workspace.patterns.line(lesson)
        lessons.edit(workspace, machine.agent, lesson, [f"category={value}"])
        if workspace.private(machine.agent, lesson) is not None:
            return True  # a crash had cut short its move to the private notes, and the edit stands in those
        after = workspace.patterns.get(lesson)
        assert after is not None
        assert after.value("category") == value, f"an edit does not read as it was made: {after.value('category')}"
        for writer, line in before.by_writer().items() if before is not None else ():
            for field, (stamp, _) in line.w[writer].set.items():
                if field == "category":
                    self._note_done(machine, self.ledger.replaced, (lesson, field, writer, stamp))
        return True

    def _note_done(self, machine: Machine, done: set, what: object) -> None:
        """Add to a set of the ledger; the machine's log lets it be taken out again when the machine is restored."""
        if what not in done:
            done.add(what)
            machine.logged.append([(done, what), False])

    def merge_lessons(self, machine: Machine) -> bool:
        """Merge two lessons."""
        one, other = self._some_lesson(machine), self._some_lesson(machine)
        if not one or one == other:
            return False
        self.ledger.merged.add((one, other))
        try:
            lessons.merge(self.open(machine), machine.agent, one, other, force=True)
        except NoError:
            return False
        return True

    def keep_private(self, machine: Machine) -> bool:
        """Log a private lesson, maybe one that is already there."""
        if machine.others or not self.has_private:
            return False
        words = f"qzprivate{machine.agent}{self.rng.randint(0, 1)}"
        lesson = UNDER_THE_MAT.format(words)
        workspace = self.open(machine)
        known = words in self.ledger.private
        corrections.Corrections(workspace, machine.agent).log(Correction("w", "r", lesson), session=str(self.now_ms))
        if workspace.notes(machine.agent).line(pattern_id(lesson)) is None:
            lessons.edit(workspace, machine.agent, pattern_id(lesson), ["scope=private"])
            machine.kept.records.pop(pattern_id(lesson), None)
        self.ledger.private.add(words)
        self.check_private(machine)
        return not known

    def word_a_secret(self, machine: Machine) -> bool:
        """Log a lesson with a secret in it, or edit another secret into the one that is there."""
        lesson = f"Log in with qzsecret{machine.agent}"
        each = pattern_id(lesson)
        workspace = self.open(machine)
        record = workspace.patterns.line(each)
        if each in {purged[0] for purged in self.ledger.purged}:
            return False
        if record is None:
            corrections.Corrections(workspace, machine.agent).log(
                Correction("w", "r", lesson), session=str(self.now_ms)
            )
            self._note_words(machine, each, "text", f"qzsecret{machine.agent}", lesson)
            return True
        for _ in range(self.rng.choice([1, 2])):
            words = f"qzsecret{machine.agent}v{self.new_number()}"
            try:
                lessons.edit(self.open(machine), machine.agent, each, [f"correct={words}"])
            except NoError:  # after a restore all that it says may wait for an answer
                return False
            self._note_words(machine, each, "correct", words, words)
            self.sync(machine)
        return True

    def _note_words(self, machine: Machine, each: str, field: str, words: str, value: str) -> None:
        record = self.open(machine).patterns.line(each)
        for writer, line in record.by_writer().items() if record is not None else ():
            column = line.w[writer]
            if column.set.get(field, ("", ""))[1] == value:
                self.ledger.words.append((words, each, field, writer, column.set[field][0]))
            elif column.first.get(field) == value:
                self.ledger.words.append((words, each, field, writer, clock.ZERO))

    def purge(self, machine: Machine) -> bool:
        """Purge a lesson with secrets, as far as this machine knows it."""
        workspace = self.open(machine)
        worded = sorted({words[1] for words in self.ledger.words})
        known = [each for each in worded if workspace.patterns.line(each) is not None]
        if not known:
            return False
        each = self.rng.choice(known)
        moving.purge(workspace, machine.agent, each, yes=True)
        machine.is_hurt = True  # the purge deleted the databases, and people may have taken lines out of the files
        record = workspace.patterns.line(each)
        assert record is not None
        marks = record.marks("purge")
        self.ledger.retired.add(each)
        for (writer, field), stamp in marks.items():
            self._note_done(machine, self.ledger.purged, (each, field, writer, stamp))
        for part in record.purged_carried():
            self._note_done(machine, self.ledger.purged_carried, part)
        return True

    # --- sync --------------------------------------------------------------------------------------------------------

    def sync(self, machine: Machine, *, compact: bool = False) -> None:
        """Sync, perhaps while another machine pushes first, the reply gets lost, or the remote is down."""
        self.server.is_down = machine.is_cut_off
        self.server.drops_next_reply = self.rng.random() < 0.1
        try:
            self._sync(machine, self.somebody_is_faster, compact=compact)
        except RemoteUnavailable:
            self.note("no answer")
            if machine.tree.head():
                machine.is_hurt = False  # the sync failed after it had written what only the rows knew to a file
        finally:
            self.server.is_down = self.server.drops_next_reply = False

    def compact(self, machine: Machine) -> None:
        """Sync as `fleet compact` does: write an edition, due or not, and drop what it covers from every shard."""
        self.sync(machine, compact=True)

    def _sync(self, machine: Machine, meanwhile: Callable[[], None], *, compact: bool = False) -> None:
        workspace = self.open(machine)
        lacks = not self._covers_tree(machine)
        with workspace.writing(machine.agent):
            pass
        remote = self.remote_class(
            self.server, machine.tree, meanwhile, lambda: self.ledger.private, self.ledger.superseded
        )
        done = sharing.sync_with(workspace, remote, rng=self.rng, sleep=lambda _: None, compact=compact)
        self.note("synced", done.out, done.patterns_in, done.lost, done.edition)
        self.happened["sent again"] += bool(done.lost)
        self.happened["put back"] += bool(done.put_back)
        assert done.put_back or not lacks, "files here lacked what the tree holds, and nobody was told"
        assert self._covers_tree(machine), "after a sync files here lack what the tree holds"
        machine.is_hurt = machine.is_unsure = machine.is_back = False
        for each in machine.logged:
            each[1] = self._has_left(machine, each[0])
        self.check_nothing_went_back(machine)
        self.check_private(machine)

    def _has_left(self, machine: Machine, what: Any) -> bool:
        """Return whether the last sync sent something; a lesson that was undone before it was sent stays here."""
        if not isinstance(what, tuple) or what[0] != "undone":
            return True
        tree, record = machine.tree, self.open(machine).patterns.line(pattern_id(what[1]))
        sent = held_in({path: tree.read(oid) for path, (oid, _) in tree.paths(tree.head()).items()})
        return record is not None and sent.covers(record)

    def _covers_tree(self, machine: Machine) -> bool:
        """Return whether the files here say all that the fetched tree does."""
        tree, head = machine.tree, machine.tree.head()
        if not tree.knows(head):
            return True
        fetched = held_in({path: tree.read(oid) for path, (oid, _) in tree.paths(head).items()})
        here = held_in(self.files_of(machine))
        return all(here.covers(entry) or not self._is_due(machine, here, entry) for entry in fetched.entries())

    def _is_due(self, machine: Machine, here: Held, entry: object) -> bool:
        """Return whether an entry of the tree must stand in the files here: not if the mark of a purge covers it.

        Somebody may have deleted the mark's file here. So the rows as they were last seen count too.
        """
        if isinstance(entry, Line) and any(entry.id == each for each, *_ in self.ledger.purged):
            return False
        if isinstance(entry, Line) and entry.id in machine.kept.records and entry.id in here.records:
            both = codec.join(here.records[entry.id], machine.kept.records[entry.id])
            return not codec.covers(here.records[entry.id], entry.without_purged(both))
        if isinstance(entry, Carried):
            return machine.kept.covers(entry) and entry.hash not in self.ledger.purged_carried
        return True

    def files_of(self, machine: Machine) -> dict[str, bytes]:
        """Return the clan's files on a machine."""
        clan = machine.root / "clan-learnings"
        paths = [path for path in sorted(clan.rglob("*")) if path.is_file()]
        return {str(path.relative_to(clan)): path.read_bytes() for path in paths}

    def somebody_is_faster(self) -> None:
        """Sync another machine now and then; runs between one machine's pull and its push."""
        if self.is_busy or self.rng.random() > 0.2:
            return
        self.is_busy = True
        down, drops = self.server.is_down, self.server.drops_next_reply
        syncing = {id(machine) for machine in self.machines if machine.workspace is not None}
        try:
            others = [each for each in self.machines if not each.others and id(each) not in syncing]
            if others:
                self.sync(self.rng.choice(others))
        finally:
            self.is_busy = False
            self.server.is_down, self.server.drops_next_reply = down, drops

    # --- faults of machines ------------------------------------------------------------------------------------------

    def cut_off(self, machine: Machine) -> None:
        """Cut the machine off from the remote, or connect it again."""
        machine.is_cut_off = not machine.is_cut_off

    def jump(self, machine: Machine) -> None:
        """Let the machine's clock jump an hour, a day or ten years, or set it right."""
        machine.skew_ms = self.rng.choice([0, 0, -HOUR_MS, HOUR_MS, -26 * HOUR_MS, 30 * HOUR_MS, 87_600 * HOUR_MS])
        self.has_jumped = True
        self.note("skew", machine.skew_ms)

    def copy(self, machine: Machine) -> bool:
        """Copy a machine's folder, so that two machines have the state of one replica."""
        if len(self.machines) >= MACHINES_MAX:
            return False
        self._put_in_place(machine)
        self.shut(machine)
        root = self.folder / f"copy{self.new_number()}"
        shutil.copytree(machine.root, root)
        twin = Machine(root, machine.agent, machine.tree.copied(), is_hurt=machine.is_hurt, schema=machine.schema)
        twin.kept = machine.kept
        self.machines.append(twin)
        return True

    def run_twice(self, machine: Machine) -> bool:
        """Start a second machine of one image, with the same path and the same replica id."""
        if len(self.machines) >= MACHINES_MAX or machine.others or self.has_private:
            return False
        self.shut(machine)
        apart = self.folder / f"apart{self.new_number()}"
        shutil.copytree(machine.root, apart)
        twin = Machine(
            machine.root, machine.agent, machine.tree.copied(), is_hurt=machine.is_hurt, schema=machine.schema
        )
        twin.kept, twin.apart = machine.kept, apart
        twin.others, machine.others = [machine], [twin]
        machine.snapshot = None
        for lesson, is_sent in machine.logged:
            if isinstance(lesson, str) and not is_sent:
                self.ledger.maybe[lesson] += 1
        self.machines.append(twin)
        return True

    def back_up(self, machine: Machine) -> bool:
        """Take a snapshot of a machine, and sometimes do more after it."""
        if machine.others:
            return False
        self.shut(machine)
        folder = self.folder / f"snapshot-{machine.root.name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(machine.root, folder)
        machine.snapshot = Snapshot(folder, machine.tree.copied(), machine.is_hurt, machine.schema)
        machine.logged = []
        if self.rng.random() < 0.5:
            self.correct(machine)
            self.sync(machine)
        return True

    def bring_back(self, machine: Machine) -> bool:
        """Restore a machine from its snapshot: the same path and replica id, with an older state."""
        kept = [each for each in self.machines if each.snapshot is not None and not each.others]
        if not kept:
            return False
        machine = machine if machine in kept else self.rng.choice(kept)
        self.shut(machine)
        shutil.rmtree(machine.root)
        shutil.copytree(machine.snapshot.folder, machine.root)
        machine.tree = machine.snapshot.tree.copied()
        machine.is_hurt, machine.schema = machine.snapshot.is_hurt, machine.snapshot.schema
        machine.old_clan = machine.old_database = None
        # Until it has read the clan's stamps, its new entries may be stamped older than those it had sent before.
        machine.is_unsure, machine.is_back = self.has_jumped, True
        machine.kept = Held()
        # What was logged since the snapshot survives only if the clan has it.
        for what, is_sent in machine.logged:
            # A replaced edit that a wrong clock stamped ahead comes back with the restored folder.
            if is_sent and not (self.has_jumped and what[0] is self.ledger.replaced):
                self.only_sent.append(what)
            else:
                self._make_unsure(what)
        sent = [what for what, is_sent in machine.logged if isinstance(what, str) and is_sent]
        machine.logged = []
        if sent and self.rng.random() < 0.5:
            again = f"{self.now_ms // 60_000} {sent[-1]}"
            if again not in self.again:  # the same entry of one minute, from two restored folders, counts once
                self.again.add(again)
                self.correct(machine, sent[-1])  # it makes the same mistake again before it has fetched anything
        return True

    def forget_what_was_sent(self) -> None:
        """Count nothing as surely sent any more, since somebody takes something out of the remote."""
        for machine in self.machines:
            for each in machine.logged:
                each[1] = False
        for what in self.only_sent:
            self._make_unsure(what)
        self.only_sent.clear()

    def _make_unsure(self, what: Any) -> None:
        """Note in the ledger that something may be lost, since its machine was restored."""
        if isinstance(what, str):
            self.ledger.seen[what] -= 1
            self.ledger.maybe[what] += 1
        elif what[0] == "undone":
            self.ledger.maybe[what[1]] += 1
        else:
            what[0].discard(what[1])

    def crash(self, machine: Machine) -> None:
        """Let the power fail at some durable step of a command."""
        workspace = self.open(machine)
        files = workspace.files
        assert isinstance(files, SimFiles)
        power = POWERS[machine.root]
        power.steps_left, power.torn_share = self.rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 16, 24]), self.rng.random()
        lesson = self.rng.choice(LESSONS)
        act = self.rng.choice(["correct", "sync", "sync", "compact", "undo"])
        try:
            if act == "correct":
                self.correct(machine, lesson)
            elif act == "undo":
                self.undo(machine)
            else:
                self._sync(machine, lambda: None, compact=act == "compact")
        except CrashError:
            self.note("crashed")
            self.happened["crashed"] += 1
            self.shut(machine)
            if self.rng.random() < 0.5:
                files.forget_unsure()
            if machine.old_database is not None and not machine.is_hurt and self.rng.random() < 0.3:
                self._bring_database_back(machine)
        except FleetError as why:
            self.note("failed", type(why).__name__)
        finally:
            power.steps_left = -1

    def database(self, machine: Machine) -> Path:
        """Return the path of a machine's database."""
        return machine.root / ".fleet" / f"state-{machine.schema}.db"

    def lose_database(self, machine: Machine) -> bool:
        """Delete the database, or keep a copy, so that a later power failure can take its last transactions back."""
        if machine.is_hurt:
            return False
        self._put_in_place(machine)
        self.shut(machine)
        path = self.database(machine)
        if self.rng.random() < 0.3 and path.exists():
            machine.old_database = path.read_bytes()
            return True
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        machine.old_database = None
        return True

    def _bring_database_back(self, machine: Machine) -> None:
        path = self.database(machine)
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        path.write_bytes(machine.old_database or b"")
        self.happened["database back"] += 1

    def lose_git(self, machine: Machine) -> None:
        """Delete fleet's own repository."""
        self.shut(machine)
        machine.tree = SimTree()

    def change_schema(self, machine: Machine) -> bool:
        """Switch to a version of fleet with another database schema, or back to this one."""
        if machine.is_hurt:
            return False
        self._put_in_place(machine)
        self.shut(machine)
        machine.schema = OTHER_SCHEMA if machine.schema == SCHEMA_NUMBER else SCHEMA_NUMBER
        machine.old_database = None
        return True

    # --- people at a machine -----------------------------------------------------------------------------------------

    def hurt(self, machine: Machine) -> Path:
        """Prepare a change of the shared files by hand, and return their folder; all in them is in the rows by then."""
        self.open(machine).db.refresh()
        machine.is_hurt = True
        self.shut(machine)
        return machine.root / "clan-learnings"

    def delete_by_hand(self, machine: Machine) -> bool:
        """Delete one of the clan's files here, or all of them."""
        clan = self.hurt(machine)
        files = sorted(clan.rglob("*.jsonl"))
        if not files:
            return False
        if self.rng.random() < 0.3:
            shutil.rmtree(clan)
        else:
            self.rng.choice(files).unlink()
        return True

    def lose_files_and_database(self, machine: Machine) -> bool:
        """Delete files, fail to sync, and lose the database; the sync must have put in a file what was never sent."""
        self.discover(machine)
        if not self.delete_by_hand(machine):
            return False
        was, machine.is_cut_off = machine.is_cut_off, True
        self.sync(machine)
        machine.is_cut_off = was
        return self.lose_database(machine)

    def remember_clan(self, machine: Machine) -> bool:
        """Keep a copy of the clan's files, as a commit of the project would."""
        clan = machine.root / "clan-learnings"
        self._put_in_place(machine)
        if not clan.exists() or self.has_private:
            return False
        machine.old_clan = self.folder / f"clan{self.new_number()}"
        shutil.copytree(clan, machine.old_clan)
        return True

    def bring_old_clan_back(self, machine: Machine) -> bool:
        """Put an older copy of the clan's files back, as a checkout would."""
        if machine.old_clan is None:
            return False
        clan = self.hurt(machine)
        shutil.rmtree(clan, ignore_errors=True)
        shutil.copytree(machine.old_clan, clan)
        return True

    def edit_by_hand(self, machine: Machine) -> bool:
        """Take a line out of a file, put one into it, cut it, or break it."""
        clan = self.hurt(machine)
        files = sorted(clan.rglob("*.jsonl"))
        if not files:
            return False
        path = self.rng.choice(files)
        raws = path.read_bytes().splitlines()
        at = self.rng.randrange(len(raws) + 1)
        match self.rng.randrange(6):
            case 0:
                raws = raws[:at] + raws[at + 1 :]
            case 1:
                raws = raws[:at]
            case 2:
                raws.insert(at, self.rng.choice([b"<<<<<<< ours", b"rubbish", b"\xff\xfe", b'{"id":"p-']))
            case 3:
                self.rng.shuffle(raws)
            case 4:
                raws = [raw + b"\r" for raw in raws]
            case _:
                if path.parent.name == "discoveries.d" or path.name == "discoveries.jsonl":
                    return False
                lesson = self.rng.choice(LESSONS)
                writer, stamp = f"editor.{self.new_number():08x}", "2026-11-20T00:00:00.000Z-0000"
                column = {"add": stamp, "n": {"seen": 1}, "first": {"text": lesson}}
                line = {"id": pattern_id(lesson), "w": {writer: column}}
                raws.insert(at, json.dumps(line, sort_keys=True, separators=(",", ":")).encode())
                self.ledger.maybe[lesson] += 1  # another edit may take it out before anybody reads it
        path.write_bytes(b"".join(raw + b"\n" for raw in raws))
        return True

    # --- people at the remote ----------------------------------------------------------------------------------------

    def rewind(self, _: Machine) -> bool:
        """Force the remote back to an older commit, or delete it."""
        self.forget_what_was_sent()
        return self.people.rewind()

    def revert(self, _: Machine) -> bool:
        """Bring older content of the remote back with a new commit."""
        self.forget_what_was_sent()
        return self._noting_what_goes(self.people.revert)

    def merge(self, _: Machine) -> bool:
        """Merge an old clone with plain git, and push."""
        lesson = self.rng.choice(LESSONS)
        self.forget_what_was_sent()
        self.ledger.maybe[lesson] += 1  # the merge may add a line, and a revert may take it out before it is read
        return self._noting_what_goes(lambda: self.people.merge(pattern_id(lesson)))

    def _noting_what_goes(self, act: Callable[[], bool]) -> bool:
        """Commit something, and note the carried lines that the commit takes out, as a newer fleet might."""
        before = held_in(self.server.tree()).carried
        is_done = act()
        self.ledger.superseded |= before.keys() - held_in(self.server.tree()).carried.keys()
        return is_done

    def carry(self, _: Machine) -> bool:
        """Push a line of a newer version that nobody here understands, maybe with a secret in it."""
        gone = {purged[0] for purged in self.ledger.purged}
        secrets = [words for words in self.ledger.words if words[1] not in gone and words[2] == "text"]
        about, text = pattern_id(self.rng.choice(LESSONS)), f"newer {self.new_number()}"
        if secrets and self.rng.random() < 0.5:
            words, about, *_ = self.rng.choice(secrets)
            text = f"Log in with {words} {text}"
        raw = json.dumps({"id": about, "text": text, "v": 3}, sort_keys=True, separators=(",", ":")).encode()
        return self.people.carry(raw)

    def supersede(self, _: Machine) -> bool:
        """Take such a line out, as a newer version does that says the same in another line."""
        carried = sorted(held_in(self.server.tree()).carried.items())
        if not carried:
            return False
        _, raw = self.rng.choice(carried)
        return self._noting_what_goes(lambda: self.people.supersede(raw))

    # --- the end -----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Set the clocks right, connect all, sync until nothing moves any more, and run all checks."""
        self.now_ms += 40 * HOUR_MS
        for machine in self.machines:
            machine.skew_ms, machine.is_cut_off = 0, False
        self.is_busy = True
        self.settle()
        everybody = [self.known_by(machine) for machine in self.machines]
        tree = self.server.tree()
        for machine, held in zip(self.machines, everybody, strict=True):
            shared = held_in(tree)
            for each in self.staying(machine):
                shared.add(each)
            assert held.canonical() == shared.canonical(), "machines differ, or a newcomer would miss some"
        self.note(hashlib.sha256(held_in(tree).canonical()).hexdigest())
        for machine in self.machines:
            self.check_machine(machine)
        self.check_counts(held_in(tree))
        self.check_edits(held_in(tree))
        self.check_purged(tree)

    def settle(self) -> None:
        """Sync all machines in turn until each has seen the same head, so that all should hold the same."""
        # A sync may promote lessons, and these go out with the next one.
        is_settled = self._sync_in_turn() or self._sync_in_turn()
        assert is_settled, "the clan does not settle: every sync pushes something"

    def _sync_in_turn(self) -> bool:
        """Sync until all have seen the same head, and one once more; return whether that one pushed nothing."""
        seen: dict[int, Mark] = {}
        for _ in range(SETTLING_ROUNDS_MAX):
            for machine in self.machines:
                if seen.get(id(machine), "none") != self.server.head:
                    self.note("heals", machine.root.name)
                    self._sync(machine, lambda: None)
                    seen[id(machine)] = self.server.head
        head, last = self.server.head, self.rng.choice(self.machines)
        self._sync(last, lambda: None)
        return {head} == {self.server.head, *seen.values()}

    def check_machine(self, machine: Machine) -> None:
        """Check that nothing waits to be sent, and that a rebuilt database equals the one that is there."""
        workspace = self.open(machine)
        assert len(workspace.db.outgoing()) == len(self.staying(machine)), "something waits, and would never go out"
        assert not workspace.db.differences(), "a rebuilt database differs"
        self.check_private(machine)

    def staying(self, machine: Machine) -> list[Entry]:
        """Return the lines that stay on a machine: those of lessons stated and undone before anything was sent."""
        workspace = self.open(machine)
        gone = workspace.db.undone_unsent()
        waits = [each for each in workspace.db.outgoing() if isinstance(each, Line) and each.id in gone]
        assert {each.id for each in waits} <= self.ledger.retired
        return waits

    def check_counts(self, held: Held) -> None:
        """Compare with the ledger: nothing acknowledged may be missing or counted twice."""
        # Merged lessons may have one wording, and a new correction in it counts for either.
        for alike in self._alike():
            seen = sum(fold(line).count("seen") for each in alike if (line := held.records.get(pattern_id(each))))
            least = sum(self.ledger.seen[each] for each in alike)
            most = least + sum(self.ledger.maybe[each] for each in alike)
            assert least <= seen <= most, f"{alike}: seen {seen}, acknowledged {least}, at most {most}"
        self._check_presence(held)

    def _check_presence(self, held: Held) -> None:
        for lesson in LESSONS:
            line, least = held.records.get(pattern_id(lesson)), self.ledger.seen[lesson]
            if least and line is not None and line.id not in self.ledger.retired:
                is_present = fold(line, Policy(self._cut())).is_present
                assert is_present, f"{lesson} is gone, and nobody retired it"
        missing = self.ledger.discoveries - held.discoveries.keys()
        assert not missing, f"discoveries lost: {missing}"

    def _alike(self) -> list[list[str]]:
        """Return the lessons in groups, of those that were merged with each other."""
        sets = {pattern_id(each): [each] for each in LESSONS}
        for one, other in sorted(self.ledger.merged & {(a, b) for a in sets for b in sets}):
            if sets[one] is not sets[other]:
                both = sets[one] + sets[other]
                sets |= {pattern_id(each): both for each in both}
        return list({id(each): each for each in sets.values()}.values())

    def _cut(self) -> str:
        return clock.shifted(clock.pack(self.now_ms, 0), limits.AHEAD_HOURS_MAX * HOUR_MS)

    def check_edits(self, held: Held) -> None:
        """Check that no replaced edit reads again, now or once a stamp ahead of time has come due."""
        for cut in (self._cut(), clock.shifted(self._cut(), 12 * YEAR_MS)):
            for each, line in held.records.items():
                stamp, writer = fold(line, Policy(cut)).edited.get("category", ("", ""))
                assert (each, "category", writer, stamp) not in self.ledger.replaced, f"{each}: an old edit is back"

    def check_purged(self, tree: dict[str, bytes]) -> None:
        """Check that no purged words stand in the tree or in a machine's shared files."""
        everywhere: dict[str, bool] = {}
        for words, *place in self.ledger.words:
            everywhere[words] = everywhere.get(words, True) and self._is_purged(*place)
        purged = sorted(words for words, is_everywhere in everywhere.items() if is_everywhere)
        places = [("the tree", tree)]
        places += [(each.root.name, self.files_of(each)) for each in self.machines if not each.apart]
        for where, files in places:
            carried = held_in(files).carried
            for path, data in files.items():
                # Whoever purged could not know a line that a newer version pushed later.
                lines = [raw for raw in data.splitlines() if raw not in carried.values()]
                found = [words for words in purged if _holds(b"\n".join(lines), words)]
                assert not found, f"{found} were purged, and stand in {path} of {where}"
            back = carried.keys() & self.ledger.purged_carried
            assert not back, f"carried lines were purged, and stand in {where}: {back}"

    def _is_purged(self, each: str, field: str, writer: str, stamp: str) -> bool:
        return any(purged[:3] == (each, field, writer) and stamp <= purged[3] for purged in self.ledger.purged)


def _holds(data: bytes, words: str) -> bool:
    """Return whether words stand in a file, other than as the beginning of another secret."""
    at = data.find(words.encode())
    while at >= 0:
        if data[at + len(words) : at + len(words) + 1] not in b"v0123456789":
            return True
        at = data.find(words.encode(), at + 1)
    return False


def history(seed: int, folder: Path, kind: Callable[[int, Path], Simulation] | None = None) -> str:
    """Run a seed's history in a fresh folder and return the hash of its trace; the seed's range selects the kind."""
    from tests.sim.further import Further  # imported here, since these build on this module
    from tests.sim.tended import Alone, Tended
    from tests.sim.wider import Wider

    tended = (ALONE_FROM, Alone), (TENDED_FROM, Tended)
    kinds = (*tended, (FURTHER_FROM, Further), (WIDER_FROM, Wider), (0, Simulation))
    kind = kind or next(each for begin, each in kinds if seed >= begin)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with simulated():
        simulation = kind(seed, folder)
        try:
            return simulation.run()
        finally:
            simulation.close()
            shutil.rmtree(folder, ignore_errors=True)
