"""Wider histories: plain ones with more that people and agents do to a record.

They undo any run, import pages, unmerge lessons, share private ones, block each other, restore older backups, purge
merged lessons, state the lessons of signals, move their files, and retract discoveries. The ledger of the plain
histories goes on; ``Promises`` is one for these actions.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crdt import clock
from fleet.app import learning, lessons, moving, reviewing, undoing
from fleet.learn import corrections, counting, restore
from fleet.learn.corrections_md import Correction
from fleet.learn.signals import Flag, Signals
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError, NoError, RefusedError
from fleet.model.line import Line
from fleet.model.names import agent_of, pattern_id
from fleet.model.pattern import MERGED_INTO, SCOPE, Merges, fold, merged
from fleet.store.lines import Entry
from fleet.store.runs import UNDO, Run, Runs
from fleet.store.workspace import Workspace
from tests.sim.people import Held
from tests.sim.simulator import LESSONS, MACHINES_MAX, MEMORY_OFF, UNDER_THE_MAT, Simulation, _holds
from tests.sim.world import POWERS, CrashError, Machine, SimFiles

PAGES = 3
IMPORTED = 2
"""How often each lesson of a page was seen, by that page."""
MEMORY_ON = '[promotion]\nmode = "auto"\nown = 2\nclan_seen = 2\nclan_agents = 1\nclan_sessions = 1\nothers = "auto"\n'
PLACES = ("agents", "tools/agents", "notes")
_SECRETS = [
    UNDER_THE_MAT.format(f"qzprivateagent{agent}{number}") for agent in range(MACHINES_MAX) for number in (0, 1)
]
TORN = {pattern_id(lesson[:length]) for lesson in (*LESSONS, *_SECRETS) for length in range(1, len(lesson))}
"""Ids of the lessons that a crash may leave: the beginning of a torn entry counts, like an entry written by hand. A
private lesson is logged first, and only then made private, so it may leave such a one too."""


class Saved(NamedTuple):
    """A backup, the folder and the agent that it is of, and how often anything had become private by then."""

    path: Path
    root: Path
    agent: str
    hidden: int


@dataclass
class Promises:
    """What was acknowledged of the wider actions, in addition to the ledger of the plain ones.

    Attributes:
        worded: the texts in which somebody may log a lesson.
        imported: (folder, page) of each import that is not undone.
        pages: numbers of the pages that anybody ever imported.
        runs: by run of an import, its folder and page.
        helped: (id of a lesson, number) of each feedback that it helped.
        retracted: ids of the discoveries that were retracted.
        public: words that only private lessons had once, and that may stand anywhere by now.
        hidden: how often anything became private.
        saved: the backups.
        unfinished: folders in which the power failed during an undo, which the next sync finishes.
        uncounted: ids of the runs that counted entries written by hand, and were undone at least once.
    """

    worded: list[str] = field(default_factory=lambda: list(LESSONS))
    imported: set[tuple[str, int]] = field(default_factory=set)
    pages: set[int] = field(default_factory=set)
    runs: dict[str, tuple[str, int]] = field(default_factory=dict)
    helped: set[tuple[str, int]] = field(default_factory=set)
    retracted: set[str] = field(default_factory=set)
    public: set[str] = field(default_factory=set)
    hidden: int = 0
    saved: list[Saved] = field(default_factory=list)
    unfinished: set[Path] = field(default_factory=set)
    uncounted: set[str] = field(default_factory=set)


class Wider(Simulation):
    """A history with all that the program can do to a record.

    Attributes:
        about: names of the actions that come much more often.
        torn: ids of the lessons that a crash may leave.
    """

    about: tuple[str, ...] = ()
    torn = TORN

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.promised = Promises()

    def actions(self) -> list[Callable[[Machine], object]]:
        """Return the possible actions, each as many times as its weight says."""
        wider = [
            *[self.undo_any] * 5,
            *[self.import_page, self.turn_scope, self.restore_saved, self.crash_in] * 3,
            *[self.unmerge, self.merge_lessons, self.merge_secret, self.retract, self.block, self.save] * 2,
            *[self.flag, self.state, self.reword, self.word_a_secret, self.keep_private] * 2,
            *(self.give_feedback, self.unblock, self.set_memory, self.move_homes, self.decide),
            *(self.purge, self.purge_discovery),
        ]
        return super().actions() + wider * 2 + [getattr(self, each) for each in self.about] * 40

    def step(self, action: Callable[[Machine], object], machine: Machine) -> bool:
        """Do an action, or another one if that did nothing."""
        return super().step(action, machine) or super().step(self.rng.choice(self.actions()), machine)

    def open(self, machine: Machine) -> Workspace:
        """Open a machine's workspace, and move files there from earlier places of the homes."""
        workspace = super().open(machine)
        if workspace.files_in_old_homes():
            restore.bring(workspace)
        return workspace

    # --- the plain actions, extended ----------------------------------------------------------------------------------

    def correct(self, machine: Machine, lesson: str = "") -> None:
        """Log a correction, perhaps in a wording that somebody gave a lesson later."""
        super().correct(machine, lesson or self.rng.choice(self.promised.worded))

    def discover(self, machine: Machine) -> bool:
        """Log a discovery; a retracted one is refused, and an undo that is still unfinished may retract this one."""
        before = set(self.ledger.discoveries)
        try:
            super().discover(machine)
        except RefusedError:
            return False
        if machine.root in self.promised.unfinished:
            self.ledger.discoveries &= before
        return True

    def word_a_secret(self, machine: Machine) -> bool:
        """Log a lesson with a secret in it, or edit another secret into the one that is there."""
        self.ledger.maybe[f"Log in with qzsecret{machine.agent}"] += 1
        return super().word_a_secret(machine)

    def purge(self, machine: Machine) -> bool:
        """Purge a lesson with secrets, together with all lessons that it was merged with."""
        machine.is_hurt = True
        secrets = {words[1] for words in self.ledger.words}
        groups = self.open(machine).patterns.groups()
        before = {each: record.marks("purge") for each, record in self.known_by(machine).records.items()}
        self.ledger.retired.update(each for one in secrets for each in groups.get(one, [one]))
        is_done = super().purge(machine)
        self._note_marks(machine)
        known = self.known_by(machine).records
        for one in sorted(each for each in secrets & known.keys() if known[each].marks("purge") != before.get(each)):
            words = sorted({place[0] for place in self.ledger.words if place[1] == one})
            lines = [(each, known[each]) for each in groups.get(one, [one]) if each in known]
            left = [place for each, line in lines for place in _places_of(each, line, words)]
            assert not left, f"{one} was purged, and one lesson with it has its words: {left}"
        return is_done

    def _some_lesson(self, machine: Machine, *, is_in: bool = True) -> str:
        lesson, workspace = super()._some_lesson(machine, is_in=is_in), self.open(machine)
        return lesson if lesson and workspace.private(machine.agent, lesson) is None else ""

    def log_of(self, machine: Machine) -> Path:
        """Return the path of an agent's log."""
        return self.open(machine).home(machine.agent) / "corrections.md"

    def _note_marks(self, machine: Machine) -> None:
        for each, record in self.known_by(machine).records.items():
            for (writer, name), stamp in record.marks("purge").items():
                self._note_done(machine, self.ledger.purged, (each, name, writer, stamp))

    def merge_lessons(self, machine: Machine) -> bool:
        """Merge two lessons."""
        purged = self._purged_here(machine)
        is_done = super().merge_lessons(machine)
        self._note_words_anew(machine, purged)
        return is_done

    def keep_private(self, machine: Machine) -> bool:
        """Log a lesson that stays private until somebody shares it, maybe one that is already there."""
        if machine.others or not self.has_private:
            return False
        words = f"qzprivate{machine.agent}{self.rng.randint(0, 1)}"
        lesson, known = _private(words), words in self.ledger.private
        workspace, each = self.open(machine), pattern_id(lesson)
        self.ledger.maybe[lesson] += 1
        corrections.Corrections(workspace, machine.agent).log(Correction("w", "r", lesson), session=str(self.now_ms))
        if sum(each.agent == machine.agent for each in self.machines) == 1:
            self._acknowledge(machine, lesson)  # the same entry of one minute in two copies would count once
        if words in self.promised.public:
            return False
        if workspace.private(machine.agent, each) is None:
            self.ledger.retired.add(each)
            lessons.edit(workspace, machine.agent, each, ["scope=private"])
            machine.kept.records.pop(each, None)
            self.promised.hidden += 1
        self.ledger.private.add(words)
        counting.reconcile_all(workspace)  # finishes what a crash cut short in an earlier call
        self.check_private(machine)
        return not known

    def _sync(self, machine: Machine, meanwhile: Callable[[], None], *, compact: bool = False) -> None:
        is_unfinished = machine.root in self.promised.unfinished
        purged = self._purged_here(machine) if is_unfinished else set[str]()
        super()._sync(machine, meanwhile, compact=compact)
        if is_unfinished:
            self._note_words_anew(machine, purged)
            self.promised.unfinished.discard(machine.root)
        notes = self.open(machine).notes(machine.agent)
        hidden = {each.id for each in notes.records()} if self.has_private else set()
        for each in machine.logged:
            about = self._lessons_of(each[0]) if hidden else []
            if any(hidden.intersection(self._one_with(one)) for one in about):
                each[1] = False  # a private lesson was not sent

    def _has_left(self, machine: Machine, what: Any) -> bool:
        """Return whether the last sync sent something; a discovery that was retracted unsent stays here.

        Its retraction stays too, and both are lost if the machine is restored from a snapshot older than they.
        """
        if isinstance(what, tuple) and what[0] is self.promised.retracted:
            assert machine.workspace is not None
            waits = machine.workspace.db.outgoing()
            return not any(isinstance(each, Discovery) and each.retracts == what[1] for each in waits)
        return super()._has_left(machine, what)

    def _lessons_of(self, what: Any) -> list[str]:
        """Return the ids of the lessons that something done here was about."""
        if isinstance(what, str):
            return [pattern_id(what)]
        if what[0] is self.promised.imported:
            return [pattern_id(each) for each in _page_lessons(what[1][1])]
        return [what[1][0]] if what[0] is self.promised.helped else []

    # --- a run is undone ----------------------------------------------------------------------------------------------

    def undo_any(self, machine: Machine) -> bool:
        """Undo a run of any kind and age, or undo its undo."""
        if machine.others or machine.is_back:
            return False
        workspace = self.open(machine)
        runs = {run.id: (run, by) for run, by in undoing.History(workspace).listed() if run.kind != UNDO}
        corrections_here = {each for each, (root, *_) in self.ledger.logged.items() if root == str(machine.root)}
        others = sorted(runs.keys() - corrections_here)
        if not others:
            return False
        run, by = runs[self.rng.choice(others)]
        self._loosen(machine, run)
        purged = self._purged_here(machine)
        try:
            done = undoing.undo(workspace, by or run.id)
        except NoError:
            return False
        self.note("undone", done.run.kind, bool(by))
        self.happened[f"undone {run.kind}"] += 1
        if run.id in self.promised.runs and by:
            self._note_done(machine, self.promised.imported, self.promised.runs[run.id])
        for each in (each for each in run.fields if each.name == "part"):
            part, _, digits = str(each.after).partition(" ")
            record = workspace.record(run.agent, each.id)
            undone = record.undo_count(f"{run.agent}.{digits}", "seen", part) if record is not None else not by
            assert undone % 2 != bool(by), f"an import is taken back, and {each.id} counts, or the other way round"
        for each in (*run.lessons, *run.retired):
            if each.startswith("d-"):
                self._note_done(machine, self.promised.retracted, each)
        self._note_words_anew(machine, purged)
        return True

    def _loosen(self, machine: Machine, run: Run) -> None:
        """Expect no more what may change as soon as the undo of a run begins."""
        if run.id in self.ledger.logged:  # logged in another folder, of which this one is a copy
            _, lesson, is_undone = self.ledger.logged.pop(run.id)
            self.ledger.seen[lesson] -= not is_undone
            self.ledger.maybe[lesson] += 1
        if run.id in self.promised.runs:
            self.promised.imported.discard(self.promised.runs[run.id])
        if run.kind == "count" and run.id not in self.promised.uncounted:
            self.promised.uncounted.add(run.id)
            for each in (each.after for each in run.fields if each.name == "entry"):
                for text in [one for one in self.ledger.seen if pattern_id(one) == each]:
                    self.ledger.seen[text] -= 1
                    self.ledger.maybe[text] += 1
        touched = {*run.lessons, *run.retired, *(each.id for each in run.fields)}
        self.ledger.discoveries -= touched
        for each in touched:
            self.ledger.retired.update(self._one_with(each))
        for each in run.fields:
            if each.name == MERGED_INTO:
                self.ledger.merged.update((each.id, str(into)) for into in (each.before, each.after) if into)
            if each.name == SCOPE:
                self._make_public(each.id)
                self.promised.hidden += 1
                machine.kept.records.pop(each.id, None)

    def _one_with(self, each: str) -> list[str]:
        """Return the ids of all lessons that this one was ever merged with, and its own."""
        return next((group for group in Merges.connected(self.ledger.merged) if each in group), [each])

    # --- what comes from elsewhere ------------------------------------------------------------------------------------

    def import_page(self, machine: Machine) -> bool:
        """Import a page, whose records count once even if others import it as well."""
        number = self.rng.randrange(PAGES)
        page = self.folder / f"page{number}.jsonl"
        record = {"correction": "r", "seen": IMPORTED, "date": "2026-11-19"}
        page.write_text("".join(json.dumps({"pattern": each} | record) + "\n" for each in _page_lessons(number)))
        self.promised.pages.add(number)
        workspace = self.open(machine)
        before = {each.id for each in Runs(workspace).listed()}
        done = moving.import_files(workspace, machine.agent, [page])
        runs = [each.id for each in Runs(workspace).listed() if each.id not in before]
        self.promised.runs |= dict.fromkeys(runs, (str(machine.root), number))
        # An import that somebody undid stays undone, and then fewer records are new.
        if not machine.others and done.patterns_new == len(_page_lessons(number)):
            self._note_done(machine, self.promised.imported, (str(machine.root), number))
        self.note("imported", done.patterns_new)
        return bool(done.patterns_new)

    def save(self, machine: Machine) -> bool:
        """Write a backup."""
        if machine.others:
            return False
        path = self.folder / f"backup{self.new_number()}.tar.gz"
        moving.backup(self.open(machine), path)
        self.promised.saved.append(Saved(path, machine.root, machine.agent, self.promised.hidden))
        return True

    def restore_saved(self, machine: Machine) -> bool:
        """Restore a backup into a folder, perhaps an old one or another agent's."""
        if not self.promised.saved or machine.others:
            return False
        saved = self.rng.choice(self.promised.saved)
        if saved.hidden < self.promised.hidden and saved.root != machine.root:
            return False  # it holds as public what became private since, and only that folder knows of the change
        purged = self._purged_here(machine)
        moving.restore_backup(self.open(machine), saved.path)
        # A discovery's id comes from its words. So a retraction holds for the copy in a backup, too, even one unsent.
        self.ledger.discoveries -= self.open(machine).discoveries.retracted()
        self.happened["restored another's"] += saved.agent != machine.agent
        self._note_words_anew(machine, purged)
        return True

    # --- lessons change -----------------------------------------------------------------------------------------------

    def unmerge(self, machine: Machine) -> bool:
        """Unmerge two lessons."""
        workspace = self.open(machine)
        pointing = sorted(workspace.patterns.merge_targets())
        if not pointing:
            return False
        purged = self._purged_here(machine)
        try:
            lessons.unmerge(workspace, machine.agent, self.rng.choice(pointing))
        except NoError:
            return False
        self._note_words_anew(machine, purged)
        return True

    def merge_secret(self, machine: Machine) -> bool:
        """Merge a lesson with a secret and another one, which may have its words from then on."""
        secrets = {words[1] for words in self.ledger.words}
        workspace = self.open(machine)
        known = [each.id for each in workspace.patterns.records() if each.id in secrets and each.is_listed]
        other = self._some_lesson(machine)
        if not known or not other:
            return False
        pair = [self.rng.choice(known), other]
        self.rng.shuffle(pair)
        self.ledger.merged.add((pair[0], pair[1]))
        purged = self._purged_here(machine)
        try:
            lessons.merge(workspace, machine.agent, *pair, force=True)
        except NoError:
            return False
        self._note_words_anew(machine, purged)
        return True

    def reword(self, machine: Machine) -> bool:
        """Give a lesson another text, which may be that of another lesson."""
        lesson = self._some_lesson(machine)
        if not lesson:
            return False
        text = self.rng.choice([f"Reworded {self.new_number()} about `tool-x`", self.rng.choice(LESSONS)])
        self.ledger.merged.add((lesson, pattern_id(text)))
        self.promised.worded.append(text)
        lessons.edit(self.open(machine), machine.agent, lesson, [f"text={text}"])
        return True

    def turn_scope(self, machine: Machine) -> bool:
        """Share a private lesson, or make one of the clan's private."""
        alike = [each for each in self.machines if each.agent == machine.agent]
        if machine.others or machine.is_back or not self.has_private or len(alike) > 1:
            return False
        workspace = self.open(machine)
        hidden = [each.id for each in workspace.notes(machine.agent).records() if each.scope == "private"]
        if hidden and self.rng.random() < 0.5:
            each, scope = self.rng.choice(hidden), "clan"
            self._make_public(each)
        else:
            each, scope = self._some_lesson(machine), "private"
            self.promised.hidden += 1
            machine.kept.records.pop(each, None)
            # An unsent edit becomes private with it. After a restore nobody knows which edits were sent.
            sent = {what[1] for what, is_sent in machine.logged if what[0] is self.ledger.replaced and is_sent}
            self.ledger.replaced -= {what for what in self.ledger.replaced if what[0] == each} - sent
        if not each:
            return False
        self.ledger.retired.update(self._one_with(each))
        for text, seen in self.ledger.seen.items():
            if pattern_id(text) in self._one_with(each):  # the remote may have what counts as unsent here
                self.ledger.maybe[text] += seen
        try:
            lessons.edit(workspace, machine.agent, each, [f"scope={scope}"])
        except NoError:  # after a restore all that it says may wait for an answer
            return False
        self.happened[f"scope {scope}"] += 1
        return True

    def _make_public(self, each: str) -> None:
        # A crash may have come after the words became private, and before the ledger noted it.
        secrets = (f"qzprivate{machine.agent}{number}" for machine in self.machines for number in range(2))
        shared = {words for words in secrets if pattern_id(_private(words)) == each}
        self.ledger.private -= shared
        self.promised.public |= shared

    def give_feedback(self, machine: Machine) -> bool:
        """Give the feedback that a lesson helped."""
        lesson = self._some_lesson(machine)
        if not lesson or machine.others or machine.is_back:
            return False
        lessons.feedback(self.open(machine), machine.agent, lesson, is_helped=True)
        self._note_done(machine, self.promised.helped, (lesson, self.new_number()))
        return True

    def flag(self, machine: Machine) -> None:
        """Log a signal, whose lesson somebody has still to state."""
        signal, workspace = Flag("human", f"no, not like this: {self.new_number()}"), self.open(machine)
        Signals(workspace.files, machine.agent, workspace.wall).flag(signal, session=str(self.now_ms))

    def state(self, machine: Machine) -> bool:
        """State the lesson of a signal, which counts like a correction."""
        workspace = self.open(machine)
        waiting = Signals(workspace.files, machine.agent, workspace.wall).waiting(everything=True)
        if not waiting:
            return False
        entry, lesson = self.rng.choice(waiting).id, self.rng.choice(self.promised.worded)
        self.ledger.maybe[lesson] += 1
        before = {each.id for each in Runs(workspace).listed()}
        learning.state_lesson(workspace, machine.agent, entry, Correction("", "r", lesson), session=str(self.now_ms))
        if self._acknowledge(machine, lesson):
            fresh = {each.id for each in Runs(workspace).listed()} - before
            self.ledger.logged |= dict.fromkeys(fresh, (str(machine.root), lesson, False))
        return True

    def decide(self, machine: Machine) -> bool:
        """Answer what waits for a person: whether to take what is left out here, or about a pair of lessons."""
        workspace = self.open(machine)
        left_out = sorted({f"{each.kind}:{each.group}" for each in workspace.trust.asked()})
        if left_out:
            reviewing.answer(workspace, machine.agent, self.rng.choice(left_out), self.rng.choice(["take", "leave"]))
            self.happened["answered what is left out"] += 1
            return True
        pairs = reviewing.undecided_pairs(workspace)
        if not pairs:
            return False
        asked = self.rng.choice(pairs)
        self.ledger.merged.add((asked.one.id, asked.other.id))
        self.ledger.retired.update((asked.one.id, asked.other.id))
        purged = self._purged_here(machine)
        reviewing.answer(workspace, machine.agent, asked.pair, self.rng.choice(reviewing.ANSWERS[asked.kind]))
        self._note_words_anew(machine, purged)
        return True

    # --- discoveries --------------------------------------------------------------------------------------------------

    def _some_discovery(self, machine: Machine) -> str:
        discoveries = self.open(machine).discoveries
        gone = discoveries.retracted()
        known = [each.id for each in discoveries.all() if not each.retracts and each.id not in gone]
        return self.rng.choice(known) if known else ""

    def retract(self, machine: Machine) -> bool:
        """Retract a discovery, for good."""
        found = self._some_discovery(machine)
        self.ledger.discoveries.discard(found)  # one that was never sent stays here with its retraction
        if found:
            lessons.retract(self.open(machine), machine.agent, found)
            self._note_done(machine, self.promised.retracted, found)
        return bool(found)

    def purge_discovery(self, machine: Machine) -> bool:
        """Purge a discovery, which retracts it, and deletes it if it was not sent."""
        found = self._some_discovery(machine)
        if found:
            machine.is_hurt = True
            self.ledger.discoveries.discard(found)
            machine.kept.discoveries.pop(found, None)
            moving.purge(self.open(machine), machine.agent, found, yes=True)
            self._note_done(machine, self.promised.retracted, found)
        return bool(found)

    # --- a machine's own settings -------------------------------------------------------------------------------------

    def block(self, machine: Machine) -> bool:
        """Block a writer here, from the beginning or a day on; the record itself does not change."""
        workspace = self.open(machine)
        writers = {each for record in self.known_by(machine).records.values() for each in record.by_writer()}
        names = sorted(writers | {each.partition(".")[0] for each in writers})
        if not names:
            return False
        try:
            since = self.rng.choice(["", "2026-11-21", "2026-11-22"])
            reviewing.block(workspace, machine.agent, self.rng.choice(names), since=since)
        except FleetError:  # it writes here
            return False
        return True

    def unblock(self, machine: Machine) -> bool:
        """Unblock a writer."""
        workspace = self.open(machine)
        blocked = [each.name for each in workspace.trust.blocked()]
        if blocked:
            reviewing.unblock(workspace, self.rng.choice(blocked))
        return bool(blocked)

    def set_memory(self, machine: Machine) -> None:
        """Switch whether lessons enter memories by themselves."""
        self._configure(
            machine,
            lambda text: text.replace(*((MEMORY_OFF, MEMORY_ON) if MEMORY_OFF in text else (MEMORY_ON, MEMORY_OFF))),
        )

    def move_homes(self, machine: Machine) -> bool:
        """Configure another place for the agents' homes, in a folder where somebody has worked."""
        self._put_in_place(machine)
        if not (machine.root / ".fleet" / "replica.toml").exists():
            return False
        place = self.rng.choice(PLACES)
        self._configure(machine, lambda text: f'[files]\nhome = "{place}"\n' + text[text.index("[keep]") :])
        return True

    def _configure(self, machine: Machine, change: Callable[[str], str]) -> None:
        self._put_in_place(machine)
        self.shut(machine)
        file = machine.root / "fleet.toml"
        file.write_text(change(file.read_text()))

    # --- power fails --------------------------------------------------------------------------------------------------

    def powered(self) -> list[Callable[[Machine], object]]:
        """Return the actions in which power may fail."""
        acts = [self.undo_any, self.import_page, self.turn_scope, self.restore_saved, self.unmerge, self.retract]
        acts += [self.merge_lessons, self.state, self.purge, self.purge_discovery, self.keep_private, self.move_homes]
        return acts

    def crash_in(self, machine: Machine) -> bool:
        """Let the power fail at some durable step of one of the ``powered`` actions."""
        act = self.rng.choice(self.powered())
        purged = self._purged_here(machine)
        files, power = self.open(machine).files, POWERS[machine.root]
        assert isinstance(files, SimFiles)
        power.steps_left, power.torn_share = self.rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 16, 24]), self.rng.random()
        try:
            act(machine)
        except CrashError:
            self.note("crashed in", act.__name__)
            self.happened[f"crashed in {act.__name__}"] += 1
            self.shut(machine)
            if self.rng.random() < 0.5:
                files.forget_unsure()
            power.steps_left = -1
            self._note_words_anew(machine, purged)
            self._note_marks(machine)
            if act == self.undo_any:
                self.promised.unfinished.add(machine.root)
            if act == self.keep_private:  # its lesson may be logged and not private yet, or not private any more
                workspace, words = self.open(machine), [f"qzprivate{machine.agent}{n}" for n in range(2)]
                known = {each for each in words if workspace.private(machine.agent, pattern_id(_private(each)))}
                self.promised.public |= {*words} - known
                self.ledger.private -= {*words} - known
            return True
        finally:
            power.steps_left = -1
        return False

    # --- words --------------------------------------------------------------------------------------------------------

    def _purged_here(self, machine: Machine) -> set[str]:
        """Return the secret words all of whose places are purged, as far as this machine knows."""
        known = self.known_by(machine).records
        marks = {each: record.marks("purge") for each, record in known.items()}
        found: dict[str, bool] = {}
        for words, each, name, writer, stamp in self.ledger.words:
            is_gone = marks.get(each, {}).get((writer, name), "") >= stamp
            found[words] = found.get(words, True) and is_gone
        return {words for words, is_gone in found.items() if is_gone}

    def _note_words_anew(self, machine: Machine, purged: set[str]) -> None:
        """Note the new places of secret words; words that were purged before must have none."""
        words, known = {each[0] for each in self.ledger.words}, set(self.ledger.words)
        for each, record in self.known_by(machine).records.items() if words else ():
            for place in _places_of(each, record, sorted(words)):
                if place not in known:
                    assert place[0] not in purged, f"purged words are said again: {place}"
                    self.ledger.words.append(place)

    # --- the end ------------------------------------------------------------------------------------------------------

    def staying(self, machine: Machine) -> list[Entry]:
        """Return the entries that stay on a machine: undone lessons, and discoveries that were retracted unsent."""
        workspace = self.open(machine)
        gone, waits = workspace.discoveries.retracted(), workspace.db.outgoing()
        retracted = [each for each in waits if isinstance(each, Discovery) and {each.id, each.retracts} & gone]
        return [*super().staying(machine), *retracted]

    def check_machine(self, machine: Machine) -> None:
        """Check also that no retracted discovery is shown."""
        super().check_machine(machine)
        workspace = self.open(machine)
        for each in workspace.trust.blocked():  # a blocked writer's retractions do not count here
            workspace.trust.unblock(each.name)
        shown = {each.id for each in workspace.discoveries.all()} - workspace.discoveries.retracted()
        back = self.promised.retracted & shown
        assert not back, f"discoveries were taken back, and are shown on {machine.root.name}: {back}"

    def check_counts(self, held: Held) -> None:
        """Compare the clan's lines and all private notes with the ledger."""
        whole, private = Held(dict(held.records), dict(held.discoveries), held.carried), set[tuple[str, str, str]]()
        for machine in self.machines:
            workspace = self.open(machine)
            for each in self.staying(machine):
                whole.add(each)
            for agent in workspace.agents_here():
                if workspace.notes_file(agent).is_file():
                    for each in workspace.notes(agent).records():
                        if (line := workspace.private(agent, each.id)) is not None:  # the clan may have it by now
                            whole.add(line)
                            private |= {(each.id, part, agent) for part in each.parts.get("seen", ())}
        # The same words of the same minute are one part in the joined record. But each agent's private one counts for
        # itself, and so does one that came to the clan from a restored folder.
        lines = [(each, line.by_writer()) for each, line in held.records.items()]
        clan = {
            (each, part, agent_of(by)) for each, of in lines for by in of for part in of[by].w[by].parts.get("seen", ())
        }
        private |= {part for part in clan if part[:2] in {each[:2] for each in private}}
        apart = Counter(each for each, _, _ in private)
        apart.subtract(each for each, _ in {(each, part) for each, part, _ in private})
        least, most = self._expected()
        for ids in [*Merges.connected([*self.ledger.merged, *((each, each) for each in (*least, *most))])]:
            found = [fold(line) for each in ids if (line := whole.records.get(each)) is not None]
            seen = merged(found).count("seen") if found else 0
            low, high = sum(least[each] for each in ids), sum(most[each] for each in ids)
            high += sum(sum(each.parts.get("seen", {}).values()) for each in found if each.id in self.torn)
            assert low <= seen + sum(apart[each] for each in ids), f"{ids}: seen {seen}, acknowledged {low}"
            assert seen <= high, f"{ids}: seen {seen}, at most {high}"
        for each, _ in self.promised.helped:
            line, times = whole.records.get(each), sum(one == each for one, _ in self.promised.helped)
            helped = fold(line).count("helped") if line is not None else 0
            assert helped >= times, f"{each} helped {times} times, and {helped} are known"
        self._check_presence(held)

    def _expected(self) -> tuple[Counter[str], Counter[str]]:
        least, most = Counter[str](), Counter[str]()
        for text, seen in self.ledger.seen.items():
            least[pattern_id(text)] += seen
        for text, seen in self.ledger.maybe.items():
            most[pattern_id(text)] += seen
        for number in self.promised.pages:
            stands = number in {page for _, page in self.promised.imported}
            for text in _page_lessons(number):
                least[pattern_id(text)] += IMPORTED * stands
                most[pattern_id(text)] += IMPORTED * (not stands)
        for each, seen in least.items():
            most[each] += seen
        return least, most


def _private(words: str) -> str:
    return f"The code of the {words} is written under the mat"


def _page_lessons(number: int) -> list[str]:
    """Return the lessons of a page."""
    return LESSONS[2 * number : 2 * number + 2]


def _places_of(each: str, record: Line, words: list[str]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield (word, id, field, writer, stamp) of each place where a record has one of some words."""
    for writer, part in record.by_writer().items():
        column = part.w[writer]
        fields = [(name, clock.ZERO, value) for name, value in column.first.items()]
        fields += [(name, stamp, value) for name, (stamp, value) in column.set.items()]
        for name, stamp, value in fields:
            for each_word in words if isinstance(value, str) else ():
                if _holds(value.encode() + b" ", each_word):
                    yield each_word, each, name, writer, stamp
