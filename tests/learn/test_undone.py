"""What was undone does not count, wherever it is counted: live, from the log, from lines, or by whoever reads them."""

import json
import random
import shutil

import pytest

from fleet.app import learning, lessons, moving, undoing
from fleet.learn import counting
from fleet.learn.corrections_md import Correction
from fleet.model import line as codec
from fleet.model.line import Line
from fleet.model.pattern import Pattern, fold
from fleet.reflect.evidence import Evidence
from fleet.store import config
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace, World

LESSON, OTHER = "Quote every variable in a shell script", "Pin the version of every action"
AGENT = "velma"


class Here:
    """A folder in which an agent logs and undoes."""

    def __init__(self, root):
        self.root = root
        self.now_ms = 1_795_219_200_000
        if not (root / config.FILE_NAME).exists():
            (root / config.FILE_NAME).write_text(config.render("", "fleet"))
        self.open()

    def open(self):
        self.workspace = Workspace(self.root, World(machine=lambda: "m", durable=False, wall_ms=lambda: self.now_ms))

    def correct(self, session="s", lesson=LESSON):
        self.now_ms += 1_000
        logged = learning.correct(self.workspace, AGENT, Correction("w", "r", lesson), session=session)
        self.id = logged.id
        return undoing.History(self.workspace).listed()[0][0].id

    def undo(self, run=None):
        self.now_ms += 1_000
        return undoing.undo(self.workspace, run).undone_by

    def known(self) -> Pattern:
        found = self.workspace.patterns.get(self.id)
        assert found is not None
        return found

    def counts(self):
        known = self.known()
        return (
            *(known.count("seen"), known.seen_by(AGENT), known.weight("seen"), known.count("sessions")),
            *(known.witnesses(), known.is_present),
        )

    def again(self):
        """Count everything anew, from the log and the shards."""
        self.workspace.db.note(f"log {AGENT}", "")
        assert counting.reconcile_all(self.workspace) == 0, "the log says what the lines say"
        assert self.workspace.db.differences() == []
        self.workspace.close()
        shutil.rmtree(self.root / "clan-learnings")
        for path in (self.root / ".fleet").glob("state-*"):
            path.unlink()
        self.open()
        counting.reconcile_all(self.workspace)


@pytest.fixture
def here(tmp_path):
    made = Here(tmp_path)
    yield made
    made.workspace.close()


NOBODY = (0, 0, 0, 0, 0, False)


def test_three_that_were_each_undone_do_not_promote_with_the_fourth(here):
    for number in range(3):
        here.correct(f"s{number}")
        here.undo()
        assert here.counts() == NOBODY
    here.correct("s3")
    assert here.counts() == (1, 1, 1, 1, 1, True)
    assert not (here.root / f"agents/{AGENT}/memory.md").exists()
    assert Evidence(AGENT, here.workspace.config.promotion).due([here.known()]) == []
    for number in range(4, 6):
        here.correct(f"s{number}")
    assert LESSON in (here.root / f"agents/{AGENT}/memory.md").read_text()
    page = (here.root / f"agents/{AGENT}/corrections.md").read_text()
    assert page.count("**Pattern:**") == 6, "the log keeps what was told"
    assert page.count("<!-- fleet undone c-") == 3


@pytest.mark.parametrize("sessions", ["aaa", "aab", "aba", "abc"])
def test_to_undo_each_in_reverse_order_ends_where_it_began_and_to_redo_each_where_it_was(here, sessions):
    states, backs = [], []
    for session in sessions:
        here.correct(session)
        states.append(here.counts())
    for _ in sessions:
        assert here.counts() == states[len(sessions) - len(backs) - 1]
        backs.append(here.undo())
    assert here.counts() == NOBODY
    for number, back in enumerate(reversed(backs)):
        here.undo(back)
        assert here.counts() == states[number]


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_the_log_and_the_lines_come_to_what_stands(here, seed):
    rng = random.Random(seed)
    standing, gone = {}, {}
    for _ in range(14):
        if standing and rng.random() < 0.4:
            run, session = rng.choice(sorted(standing.items()))
            gone[here.undo(run)] = (run, standing.pop(run))
        elif gone and rng.random() < 0.4:
            back, (run, session) = rng.choice(sorted(gone.items()))
            here.undo(back)
            del gone[back]
            standing[run] = session
        else:
            session = rng.choice("abc")
            standing[here.correct(session)] = session
        sessions = len(set(standing.values()))
        # To take a redo back is to undo the run again.
        assert here.counts()[:2] == (len(standing), len(standing))
        assert here.counts()[3:] == (sessions, int(bool(standing)), bool(standing))
    before = here.counts()
    here.again()
    # Whether a lesson was retired is in the lines alone: a log that has lost them all states it anew.
    assert here.counts()[:5] == before[:5]


def test_to_undo_a_confirmation_takes_back_the_one_and_leaves_the_lesson(here):
    here.correct("a")
    second = here.correct("b")
    here.correct("c")
    here.undo(second)
    assert here.counts() == (2, 2, 2, 2, 1, True)


@pytest.mark.parametrize(("is_entry_copied", "seen"), [(False, 0), (True, 1)])
def test_what_was_undone_stays_undone_when_its_record_stands_in_the_log_twice(here, is_entry_copied, seen):
    here.correct()
    here.undo()
    path = counting.CountedLog(here.workspace, AGENT).log_file()
    page = path.read_text()
    entry = page[page.index("## ") : page.index("<!-- fleet undone")]
    path.write_text(page + "\n" + (entry if is_entry_copied else entry[entry.index("<!-- fleet c-") :]))
    counting.reconcile_all(here.workspace)
    assert here.known().count("seen") == seen


def test_out_of_order_the_last_word_that_is_undone_takes_the_lesson_along(here):
    first, second = here.correct("a"), here.correct("b")
    here.undo(first)
    assert here.counts() == (1, 1, 1, 1, 1, True)
    back = here.undo(second)
    assert here.counts() == NOBODY
    here.undo(back)
    assert here.counts() == (1, 1, 1, 1, 1, True)


def test_what_a_person_restored_without_a_word_for_it_stays_when_a_later_one_is_undone(here):
    here.correct("a")
    here.undo()
    lessons.restore(here.workspace, AGENT, here.id)
    before = here.counts()
    assert before[0] == 0
    assert before[-1]
    here.correct("b")
    here.undo()
    assert here.counts() == before


def test_what_stood_before_it_was_retired_is_retired_again(here):
    for session in "abc":
        here.correct(session)
    lessons.retire(here.workspace, AGENT, here.id)
    before = here.counts()
    here.correct("d")
    assert here.known().is_present
    here.undo()
    assert here.counts() == before


def test_an_imported_record_that_was_undone_counts_no_more_until_that_is_undone(here, tmp_path):
    here.correct("a")
    run = here.workspace
    page = tmp_path / "x" / "lessons.jsonl"
    page.parent.mkdir()
    told = [{"pattern": LESSON, "count": 2}, {"pattern": OTHER, "count": 3}]
    page.write_text("".join(json.dumps(each) + "\n" for each in told))
    before = here.counts()
    moving.import_files(run, AGENT, [page])
    assert here.known().count("seen") == 3
    other = next(each.id for each in run.patterns.records() if each.text == OTHER)
    back = here.undo()
    assert here.counts() == before
    found = run.patterns.get(other)
    assert (found.count("seen"), found.is_present, found.witnesses()) == (0, False, 0)
    moving.import_files(run, AGENT, [page])
    assert run.patterns.get(other).count("seen") == 0, "it was read before"
    here.undo(back)
    assert run.patterns.get(other).count("seen") == here.known().count("seen") == 3
    assert run.patterns.get(other).is_present


def test_a_private_lesson_is_undone_where_it_is_kept(here):
    here.correct("a")
    here.correct("b")
    lessons.edit(here.workspace, AGENT, here.id, ["scope=private"])

    def seen():
        return here.known().count("seen") if here.workspace.patterns.get(here.id) else private()

    def private():
        return fold(here.workspace.notes(AGENT).line(here.id)).count("seen")

    last = here.correct("c")
    assert private() == 3
    here.undo(last)
    assert private() == 2
    first = [each.id for each in Runs(here.workspace).listed() if each.kind == "correct"][-1]
    back = here.undo(first)
    assert private() == 1
    lessons.edit(here.workspace, AGENT, here.id, ["scope=clan"])
    assert seen() == 1
    here.undo(back)
    assert seen() == 2


def test_a_copy_of_the_folder_that_undoes_the_same_takes_back_one(here, tmp_path):
    first = here.correct("a")
    here.correct("b")
    here.workspace.close()
    copy = tmp_path / "copy"
    shutil.copytree(here.root, copy, ignore=shutil.ignore_patterns("copy"))
    here.open()
    twin = Here(copy)
    twin.id = here.id
    for each in (here, twin):
        each.undo(first)
    both = codec.join(*(each.workspace.patterns.line(here.id) for each in (here, twin)))
    assert fold(both).count("seen") == 1
    twin.workspace.close()


def test_an_older_fleet_counts_it_and_keeps_what_it_does_not_know(here):
    here.correct("a")
    here.undo()
    line = here.workspace.patterns.line(here.id)
    [column] = line.w.values()
    assert column.n["seen"] == 1, "a G-Counter never falls"
    assert codec.decode(codec.encode(line)) == line
    assert set(column.parts) == {"seen.undone", "sessions.undone"}


def test_another_writer_takes_nothing_back_of_mine():
    stamp = "2026-11-20T22:30:00.123Z-0000"
    mine = codec.Column(add=stamp, n={"seen": 2})
    theirs = codec.Column(parts={"seen.undone": {"0" * 16: 1, "1" * 16: 1}})
    assert fold(Line("p-3f9c1a2b7d4e5f60", {"a.11111111": mine, "b.22222222": theirs})).count("seen") == 2
