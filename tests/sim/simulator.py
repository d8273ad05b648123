"""Seeded random histories of a clan: agents at work on real workspaces, over a remote in memory.

The world is held: clocks jump, power fails at any durable step, remotes are cut off, rewound, reverted, merged by hand
or lose a reply, folders are copied and put back, databases and git folders are lost, people edit and delete the
clan's files. Beside it stands a ledger of what was acknowledged. After healing, every machine must hold the same, what
was acknowledged must be there once, what is private or purged nowhere, and a database that is made anew must be the
one that is there.
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
# One long history finds what ten short ones do not, and costs as much as three: one in five is long.
LONG_SHARE = 0.2
SHORT_STEPS, LONG_STEPS = (6, 18), (25, 60)
SHORT_MACHINES, LONG_MACHINES = (2, 3), (3, 5)
MACHINES_MAX = 6
LESSONS = [f"Lesson number {n} about `tool-{n % 3}`" for n in range(6)]
UNDER_THE_MAT = "The code of the {} is written under the mat"
THEMES = ("anything", "secrets", "clocks", "snapshots", "hands", "remotes", "losses")
WIDER_FROM = 1_000_000
"""Seeds from here on are those of wider histories (``wider.py``): what older ones stand for stays as it is."""
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
        remote_class: a machine's way to the server; a broken fleet has a broken one.
        theme: what this history is about: that happens three times as often. Drawn, unless it is named.
        happened: how often each thing came to pass.
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
        self.is_busy = False  # somebody syncs: a faster one must not start a third
        self.number = 0
        self.has_jumped = False
        # What became private stands in older copies of the shared files; nobody brings those back in such a history.
        self.has_private = self.rng.random() < 0.5
        # Small limits make editions and dropping happen within a few lines.
        self.edition_bytes = self.rng.choice([0, 600, 2_000, 262_144])
        self.edition_share = self.rng.choice([0.25, 0.25, 4.0])
        is_long = self.rng.random() < LONG_SHARE
        self.steps = self.rng.randint(*(LONG_STEPS if is_long else SHORT_STEPS))
        machines = self.rng.randint(*(LONG_MACHINES if is_long else SHORT_MACHINES))
        self.again: set[str] = set()  # minute and lesson of what a machine that was put back logged once more
        self.only_sent: list[Any] = []  # what a machine that was put back had logged, and the remote alone has
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
        """Return what may happen, as often as it does."""
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
        """Live through a history and heal; return a hash of all that happened."""
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
        """Let something happen; tell whether it came to pass."""
        self.note(action.__name__, machine.root.name)
        is_done = action(machine) is not False
        self.happened[action.__name__] += is_done
        return is_done

    def begin(self) -> None:
        """Let most machines know something that most others know as well."""
        for machine in self.machines:
            if self.rng.random() < 0.7:
                self.correct(machine)
                self.sync(machine)

    def note(self, *words: object) -> None:
        """Add to the trace."""
        self.trace.append(" ".join(map(str, words)))

    def new_number(self) -> int:
        """Return a number that no other thing has."""
        self.number += 1
        return self.number

    # --- a machine and its workspace ---------------------------------------------------------------------------------

    def open(self, machine: Machine) -> Workspace:
        """Open a machine's workspace, as each command does; or go on, as a sidecar does."""
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
        """Of machines of one image, let this one run: they have one path."""
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
        """Return what the rows of a machine say."""
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
        """Whatever came to pass: what a machine knows covers all that it ever knew.

        But adds and totals under a name that it gave up: what of them is its own counts under another one by then.
        """
        warnings = machine.workspace.warnings if machine.workspace is not None else []  # what is opened anew has none
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
        """What is private stands in none of the files that the clan shares, and that a project may track."""
        for path in sorted((machine.root / "clan-learnings").rglob("*")):
            data = path.read_bytes() if path.is_file() else b""
            leaked = [word for word in self.ledger.private if word.encode() in data]
            assert not leaked, f"{leaked} stand in {path.name} of {machine.root.name}"

    # --- what agents do ----------------------------------------------------------------------------------------------

    def correct(self, machine: Machine, lesson: str = "") -> None:
        """Log a correction."""
        lesson = lesson or self.rng.choice(LESSONS)
        self.ledger.maybe[lesson] += 1
        # FULL: the entry is acknowledged when this returns.
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
            return False  # two live machines of one image count inexactly, and so does one whose clock did not go on
        self.ledger.maybe[lesson] -= 1
        self.ledger.seen[lesson] += 1
        machine.logged.append([lesson, False])
        return True

    def undo(self, machine: Machine) -> bool:
        """Take back a correction that was logged here; or take that back, so that it counts again."""
        if machine.others or machine.is_back:
            return False
        workspace = self.open(machine)
        gone = {each.id: by for each, by in undoing.History(workspace).listed()}
        found = sorted(each for each in gone if self.ledger.logged.get(each, ("",))[0] == str(machine.root))
        if not found:
            return False
        run = self.rng.choice(found)
        _, lesson, was_undone = self.ledger.logged[run]
        is_undone = not gone[run]
        change = was_undone - is_undone
        self.ledger.retired.add(pattern_id(lesson))
        self.ledger.seen[lesson] += min(0, change)
        self.ledger.maybe[lesson] += 1  # if the power fails
        try:
            undoing.undo(workspace, gone[run] or run)
        except NoError:  # the power had failed in this very one, which is done now
            return False
        self.ledger.maybe[lesson] -= 1
        self.ledger.seen[lesson] += max(0, change)
        self.ledger.logged[run] = (str(machine.root), lesson, is_undone)
        machine.logged.append([("undone", lesson) if is_undone else lesson, False])
        self.note("undone" if is_undone else "stated again", lesson)
        return True

    def write_by_hand(self, machine: Machine) -> None:
        """Write an entry with an editor, maybe without the final newline."""
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
        """Return where a person finds an agent's log."""
        return machine.root / "agents" / machine.agent / "corrections.md"

    def discover(self, machine: Machine) -> None:
        """Log a discovery."""
        problem = f"problem {self.rng.randint(0, 9)}"
        told = Discovery(id="", problem=problem, solution="solution", type="discovery", confidence="medium")
        entry, _ = learning.discover(self.open(machine), machine.agent, told)
        self._do(machine, self.ledger.discoveries, entry.id)

    def retire(self, machine: Machine) -> bool:
        """Retire a lesson that is in."""
        return self._turn(machine, lessons.retire, is_in=True)

    def restore(self, machine: Machine) -> bool:
        """Bring a retired lesson back."""
        return self._turn(machine, lessons.restore, is_in=False)

    def _turn(self, machine: Machine, change: Callable[..., object], *, is_in: bool) -> bool:
        lesson = self._some_lesson(machine, is_in=is_in)
        if not lesson:
            return False
        try:
            change(self.open(machine), machine.agent, lesson)
        except NoError:  # a merged set is in while any of its records is
            return False
        self.ledger.retired.update(self.open(machine).patterns.group(lesson))
        return True

    def _some_lesson(self, machine: Machine, *, is_in: bool = True) -> str:
        found = [each.id for each in self.open(machine).patterns.records() if each.is_present is is_in and each.text]
        secrets = {words[1] for words in self.ledger.words}
        found = [each for each in found if each not in secrets]
        return self.rng.choice(found) if found else ""

    def edit(self, machine: Machine) -> bool:
        """Set a field of a lesson: on this machine it reads so from now on, and what it replaced is gone for good."""
        lesson = self._some_lesson(machine)
        if not lesson:
            return False
        workspace, value = self.open(machine), f"category {self.new_number()}"
        late = [
            each for each in workspace.db.future_ids() if (found := workspace.patterns.get(each)) and found.is_listed
        ]
        if late and self.rng.random() < 0.5:
            lesson = self.rng.choice(late)
        before = workspace.patterns.line(lesson)
        lessons.edit(workspace, machine.agent, lesson, [f"category={value}"])
        if workspace.private(machine.agent, lesson) is not None:
            return True  # a crash left it on its way to where it is private: there it reads so
        after = workspace.patterns.get(lesson)
        assert after is not None
        assert after.value("category") == value, f"an edit does not read as it was made: {after.value('category')}"
        for writer, said in before.by_writer().items() if before is not None else ():
            for field, (stamp, _) in said.w[writer].set.items():
                if field == "category":
                    self._do(machine, self.ledger.replaced, (lesson, field, writer, stamp))
        return True

    def _do(self, machine: Machine, done: set, what: object) -> None:
        """Note what was done, until the machine is put back as it was before that went out."""
        if what not in done:
            done.add(what)
            machine.logged.append([(done, what), False])

    def merge_lessons(self, machine: Machine) -> bool:
        """Call two lessons one."""
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
        """Log a lesson that never leaves, or once more one that is there."""
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
        """Log a lesson with a secret in it, or word another one into it."""
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
            except NoError:  # after a snapshot all that it says waits for an answer
                return False
            self._note_words(machine, each, "correct", words, words)
            self.sync(machine)
        return True

    def _note_words(self, machine: Machine, each: str, field: str, words: str, value: str) -> None:
        record = self.open(machine).patterns.line(each)
        for writer, said in record.by_writer().items() if record is not None else ():
            column = said.w[writer]
            if column.set.get(field, ("", ""))[1] == value:
                self.ledger.words.append((words, each, field, writer, column.set[field][0]))
            elif column.first.get(field) == value:
                self.ledger.words.append((words, each, field, writer, clock.ZERO))

    def purge(self, machine: Machine) -> bool:
        """Purge a secret: all that this machine knows of it."""
        workspace = self.open(machine)
        worded = sorted({words[1] for words in self.ledger.words})
        known = [each for each in worded if workspace.patterns.line(each) is not None]
        if not known:
            return False
        each = self.rng.choice(known)
        moving.purge(workspace, machine.agent, each, yes=True)
        machine.is_hurt = True  # the databases were deleted, and rows alone may have known what people took out
        record = workspace.patterns.line(each)
        assert record is not None
        marks = record.marks("purge")
        self.ledger.retired.add(each)
        for (writer, field), stamp in marks.items():
            self._do(machine, self.ledger.purged, (each, field, writer, stamp))
        for part in record.purged_carried():
            self._do(machine, self.ledger.purged_carried, part)
        return True

    # --- sync --------------------------------------------------------------------------------------------------------

    def sync(self, machine: Machine, *, compact: bool = False) -> None:
        """Sync, perhaps with somebody faster, a lost reply, or no way to the remote."""
        self.server.is_down = machine.is_cut_off
        self.server.drops_next_reply = self.rng.random() < 0.1
        try:
            self._sync(machine, self.somebody_is_faster, compact=compact)
        except RemoteUnavailable:
            self.note("no answer")
            if machine.tree.head():
                machine.is_hurt = False  # what the rows alone knew stands in a file again, whatever became of the rest
        finally:
            self.server.is_down = self.server.drops_next_reply = False

    def compact(self, machine: Machine) -> None:
        """`fleet compact`: an edition, due or not, and every shard without what it covers."""
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
        """Tell whether a sync sent what was done: what was undone before it was sent stays here, with its undo."""
        if not isinstance(what, tuple) or what[0] != "undone":
            return True
        tree, record = machine.tree, self.open(machine).patterns.line(pattern_id(what[1]))
        sent = held_in({path: tree.read(oid) for path, (oid, _) in tree.paths(tree.head()).items()})
        return record is not None and sent.covers(record)

    def _covers_tree(self, machine: Machine) -> bool:
        """Tell whether the files here say all that the fetched tree does."""
        tree, head = machine.tree, machine.tree.head()
        if not tree.knows(head):
            return True
        fetched = held_in({path: tree.read(oid) for path, (oid, _) in tree.paths(head).items()})
        here = held_in(self.files_of(machine))
        known = held_in({})
        known.records = machine.kept.records  # what marks cover is taken out of files
        return all(here.covers(entry) or not self._is_due(machine, here, entry) for entry in fetched.entries())

    def _is_due(self, machine: Machine, here: Held, entry: object) -> bool:
        """Tell whether an entry of the tree must stand in the files here: it need not, where a mark covers it.

        The mark's own file may have been deleted here: the rows know it, which are not looked at.
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
        """Return the files that a machine shares."""
        clan = machine.root / "clan-learnings"
        paths = [path for path in sorted(clan.rglob("*")) if path.is_file()]
        return {str(path.relative_to(clan)): path.read_bytes() for path in paths}

    def somebody_is_faster(self) -> None:
        """Another machine syncs between our pull and our push."""
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
        """Lose or find the way to the remote."""
        machine.is_cut_off = not machine.is_cut_off

    def jump(self, machine: Machine) -> None:
        """A clock jumps: a little, a day back, ten years ahead; or it is set right."""
        machine.skew_ms = self.rng.choice([0, 0, -HOUR_MS, HOUR_MS, -26 * HOUR_MS, 30 * HOUR_MS, 87_600 * HOUR_MS])
        self.has_jumped = True
        self.note("skew", machine.skew_ms)

    def copy(self, machine: Machine) -> bool:
        """Copy a folder: two machines with one replica's state."""
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
        """Start a second machine of one image: the same path, the same replica."""
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
        """Take a snapshot of a machine."""
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
        """Put the machine, or another one, back as it was: same path, same replica id, older state."""
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
        # What it logs before it has read the clan's stamps may be older than what it sent in its other life.
        machine.is_unsure, machine.is_back = self.has_jumped, True
        machine.kept = Held()
        # What was logged since is there only if the clan has it.
        for what, is_sent in machine.logged:
            # An edit that was stamped while the clock ran ahead is said again by the folder as it was, and by no other.
            if is_sent and not (self.has_jumped and what[0] is self.ledger.replaced):
                self.only_sent.append(what)
            else:
                self._undo(what)
        sent = [what for what, is_sent in machine.logged if isinstance(what, str) and is_sent]
        machine.logged = []
        if sent and self.rng.random() < 0.5:
            again = f"{self.now_ms // 60_000} {sent[-1]}"
            if again not in self.again:  # one entry of one minute, in two folders that were put back, counts once
                self.again.add(again)
                self.correct(machine, sent[-1])  # the same mistake again, before anything was fetched
        return True

    def forget_what_was_sent(self) -> None:
        """After somebody took something out of the remote, nobody knows what it has for sure."""
        for machine in self.machines:
            for each in machine.logged:
                each[1] = False
        for what in self.only_sent:
            self._undo(what)
        self.only_sent.clear()

    def _undo(self, what: Any) -> None:
        """Take back what may be gone with a machine that was put back."""
        if isinstance(what, str):
            self.ledger.seen[what] -= 1
            self.ledger.maybe[what] += 1
        elif what[0] == "undone":
            self.ledger.maybe[what[1]] += 1
        else:
            what[0].discard(what[1])

    def crash(self, machine: Machine) -> None:
        """Lose power at some durable step of the next command."""
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
        """Delete the database; or note it, for a power failure that takes its last transactions back."""
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
        """Go on with another version of fleet, whose database has another number; then again with this one."""
        if machine.is_hurt:
            return False
        self._put_in_place(machine)
        self.shut(machine)
        machine.schema = OTHER_SCHEMA if machine.schema == SCHEMA_NUMBER else SCHEMA_NUMBER
        machine.old_database = None
        return True

    # --- people at a machine -----------------------------------------------------------------------------------------

    def hurt(self, machine: Machine) -> Path:
        """Let people change the shared files: what an agent said is in the rows by now."""
        self.open(machine).db.refresh()
        machine.is_hurt = True
        self.shut(machine)
        return machine.root / "clan-learnings"

    def delete_by_hand(self, machine: Machine) -> bool:
        """Delete a file of the clan's here, or all of them."""
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
        """Delete files, sync in vain, and lose the database: what was never sent stands in a file by then."""
        self.discover(machine)
        if not self.delete_by_hand(machine):
            return False
        was, machine.is_cut_off = machine.is_cut_off, True
        self.sync(machine)
        machine.is_cut_off = was
        return self.lose_database(machine)

    def remember_clan(self, machine: Machine) -> bool:
        """Keep a copy of the clan's files, as a commit of the project's does."""
        clan = machine.root / "clan-learnings"
        self._put_in_place(machine)
        if not clan.exists() or self.has_private:
            return False
        machine.old_clan = self.folder / f"clan{self.new_number()}"
        shutil.copytree(clan, machine.old_clan)
        return True

    def bring_old_clan_back(self, machine: Machine) -> bool:
        """Put an older copy of the clan's files back, as a checkout does."""
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
                said = {"add": stamp, "n": {"seen": 1}, "first": {"text": lesson}}
                found = {"id": pattern_id(lesson), "w": {writer: said}}
                raws.insert(at, json.dumps(found, sort_keys=True, separators=(",", ":")).encode())
                self.ledger.maybe[lesson] += 1  # another edit may take it out before it was read
        path.write_bytes(b"".join(raw + b"\n" for raw in raws))
        return True

    # --- people at the remote ----------------------------------------------------------------------------------------

    def rewind(self, _: Machine) -> bool:
        """The remote is forced back to an older commit, or deleted."""
        self.forget_what_was_sent()
        return self.people.rewind()

    def revert(self, _: Machine) -> bool:
        """The remote's content goes back in a new commit."""
        self.forget_what_was_sent()
        return self._noting_what_goes(self.people.revert)

    def merge(self, _: Machine) -> bool:
        """Somebody merges an old clone with plain git, and pushes."""
        lesson = self.rng.choice(LESSONS)
        self.forget_what_was_sent()
        self.ledger.maybe[lesson] += 1  # they may write a line; a revert may take it out before anybody has read it
        return self._noting_what_goes(lambda: self.people.merge(pattern_id(lesson)))

    def _noting_what_goes(self, act: Callable[[], bool]) -> bool:
        """Note which lines of a newer version an ordinary commit takes out, as one does that understands them."""
        before = held_in(self.server.tree()).carried
        is_done = act()
        self.ledger.superseded |= before.keys() - held_in(self.server.tree()).carried.keys()
        return is_done

    def carry(self, _: Machine) -> bool:
        """A newer version pushes a line that nobody here understands, maybe one with a secret in it."""
        gone = {purged[0] for purged in self.ledger.purged}
        secrets = [words for words in self.ledger.words if words[1] not in gone and words[2] == "text"]
        about, text = pattern_id(self.rng.choice(LESSONS)), f"newer {self.new_number()}"
        if secrets and self.rng.random() < 0.5:
            words, about, *_ = self.rng.choice(secrets)
            text = f"Log in with {words} {text}"
        raw = json.dumps({"id": about, "text": text, "v": 3}, sort_keys=True, separators=(",", ":")).encode()
        return self.people.carry(raw)

    def supersede(self, _: Machine) -> bool:
        """A newer version takes such a line out, since it says the same in another one."""
        carried = sorted(held_in(self.server.tree()).carried.items())
        if not carried:
            return False
        _, raw = self.rng.choice(carried)
        return self._noting_what_goes(lambda: self.people.supersede(raw))

    # --- the end -----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Set the clocks, mend the ways, and sync until nothing moves any more; then compare everybody."""
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
        """Sync in turn until everybody has seen the same head. Those who believe the same then see the same."""
        # What a sync promotes goes out with the next one.
        is_settled = self._sync_in_turn() or self._sync_in_turn()
        assert is_settled, "the clan does not settle: every sync pushes something"

    def _sync_in_turn(self) -> bool:
        """Sync until everybody has seen the same head, and once more; tell whether nothing was pushed by that."""
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
        """Nothing waits, and a database that is made anew is the one that is there."""
        workspace = self.open(machine)
        assert len(workspace.db.outgoing()) == len(self.staying(machine)), "something waits, and would never go out"
        assert not workspace.db.differences(), "a database that is made anew is another one"
        self.check_private(machine)

    def staying(self, machine: Machine) -> list[Entry]:
        """Return what was stated and undone on a machine before any of it left."""
        workspace = self.open(machine)
        gone = workspace.db.undone_unsent()
        waits = [each for each in workspace.db.outgoing() if isinstance(each, Line) and each.id in gone]
        assert {each.id for each in waits} <= self.ledger.retired
        return waits

    def check_counts(self, held: Held) -> None:
        """Compare with the ledger: nothing acknowledged is missing, nothing is counted twice."""
        # Two that were called one lesson may read alike: what is said in those words counts for either.
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
        missing = self.ledger.discoveries - held.told.keys()
        assert not missing, f"discoveries lost: {missing}"

    def _alike(self) -> list[list[str]]:
        """Return the lessons, those together that were called one."""
        sets = {pattern_id(each): [each] for each in LESSONS}
        for one, other in sorted(self.ledger.merged & {(a, b) for a in sets for b in sets}):
            if sets[one] is not sets[other]:
                both = sets[one] + sets[other]
                sets |= {pattern_id(each): both for each in both}
        return list({id(each): each for each in sets.values()}.values())

    def _cut(self) -> str:
        return clock.shifted(clock.pack(self.now_ms, 0), limits.AHEAD_HOURS_MAX * HOUR_MS)

    def check_edits(self, held: Held) -> None:
        """An edit that somebody saw and replaced never reads again: not now, and not when its time has come."""
        for cut in (self._cut(), clock.shifted(self._cut(), 12 * YEAR_MS)):
            for each, line in held.records.items():
                stamp, writer = fold(line, Policy(cut)).edited.get("category", ("", ""))
                assert (each, "category", writer, stamp) not in self.ledger.replaced, f"{each}: an old edit is back"

    def check_purged(self, tree: dict[str, bytes]) -> None:
        """What was purged stands nowhere: in no path of the tree, and in nobody's shared files."""
        worded: dict[str, bool] = {}
        for words, *said in self.ledger.words:
            worded[words] = worded.get(words, True) and self._is_purged(*said)
        purged = sorted(words for words, is_purged in worded.items() if is_purged)
        places = [("the tree", tree)]
        places += [(each.root.name, self.files_of(each)) for each in self.machines if not each.apart]
        for where, files in places:
            carried = held_in(files).carried
            for path, data in files.items():
                # A newer version's line that came after the purge was not known to whoever purged.
                lines = [raw for raw in data.splitlines() if raw not in carried.values()]
                found = [words for words in purged if _holds(b"\n".join(lines), words)]
                assert not found, f"{found} were purged, and stand in {path} of {where}"
            back = carried.keys() & self.ledger.purged_carried
            assert not back, f"carried lines were purged, and stand in {where}: {back}"

    def _is_purged(self, each: str, field: str, writer: str, stamp: str) -> bool:
        return any(purged[:3] == (each, field, writer) and stamp <= purged[3] for purged in self.ledger.purged)


def _holds(data: bytes, words: str) -> bool:
    """Tell whether words stand in a file, and not only as the beginning of others."""
    at = data.find(words.encode())
    while at >= 0:
        if data[at + len(words) : at + len(words) + 1] not in b"v0123456789":
            return True
        at = data.find(words.encode(), at + 1)
    return False


def history(seed: int, folder: Path, kind: Callable[[int, Path], Simulation] | None = None) -> str:
    """Run one seed in a fresh folder, of the kind that it is of by its number; return the hash of its trace."""
    from tests.sim.further import Further  # which are built on this
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
