"""Fault 18: one replica id on two machines, or a restored one. Nothing lost, nothing counted twice, a warning."""

import itertools
import json
import random
import shutil
import time

import pytest

from fleet.app import moving, reviewing, sharing
from fleet.learn.corrections import Corrections
from fleet.learn.corrections_md import Correction
from fleet.learn.restore import _is_foreign
from fleet.model.names import pattern_id
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World
from tests.faults.test_sync import LESSON, Bench
from tests.memory_remote import MemoryRemote, MemoryServer

START_MS = 1_795_219_200_000


class Unsynced(Files):
    """Files that wait for nothing."""

    def _fsync(self, handle):
        pass


class Interrupted(MemoryRemote):
    """A way to the server on which somebody else may be faster."""

    def __init__(self, server, tree, meanwhile):
        super().__init__(server, tree)
        self.meanwhile = meanwhile

    def push(self, *arguments, **more):
        self.meanwhile()
        return super().push(*arguments, **more)


class Clan:
    """Workspaces on one server, with a clock of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.server = MemoryServer()
        self.now_ms = START_MS
        self.machine = "one-machine"

    def open(self, name):
        root = self.folder / name
        root.mkdir(exist_ok=True)
        (root / "fleet.toml").touch()
        world = World(wall_ms=lambda: self.now_ms, machine=lambda: self.machine, durable=False)
        return Workspace(root, world, Unsynced(root))

    def log(self, name, lesson, agent="velma"):
        self.now_ms += 1_000
        return Corrections(self.open(name), agent).log(Correction("w", "r", lesson), session=str(self.now_ms))

    def bring(self, name, lesson):
        """Import a page with a lesson that was seen twice."""
        self.now_ms += 1_000
        page = self.folder / "page.jsonl"
        page.write_text(json.dumps({"pattern": lesson, "correction": "r", "seen": 2, "date": "2026-11-19"}) + "\n")
        moving.import_files(self.open(name), "velma", [page])

    def swap(self):
        """Let the twin stand at the path that both it and velma believe is theirs."""
        (self.folder / "velma").rename(self.folder / "aside")
        (self.folder / "twin").rename(self.folder / "velma")
        (self.folder / "aside").rename(self.folder / "twin")

    def sync(self, name, agent="velma", remote=None):
        self.now_ms += 1_000
        workspace = self.open(name)
        with workspace.writing(agent):
            pass
        remote = remote(workspace.tree) if remote else MemoryRemote(self.server, workspace.tree)
        done = sharing.sync_with(workspace, remote, rng=random.Random(1), sleep=lambda _: None)
        for each in reviewing.questions(workspace):  # what came back under a name of ours is ours
            reviewing.answer(workspace, "velma", each.name, reviewing.TAKE)
        return workspace, done

    def seen(self, name, lesson):
        pattern = self.open(name).patterns.get(pattern_id(lesson))
        return pattern.count("seen") if pattern else 0


@pytest.fixture
def clan(tmp_path):
    return Clan(tmp_path)


def test_a_restored_machine_that_goes_on_counts_each_occurrence_once(clan):
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "backup")
    for _ in range(2):
        clan.log("velma", "lesson")
        clan.sync("velma")
    shutil.rmtree(clan.folder / "velma")
    (clan.folder / "backup").rename(clan.folder / "velma")
    # It was seen three times; the restored machine knows of one, and sees it twice more before it hears of the others.
    for _ in range(2):
        clan.log("velma", "lesson")
    before = clan.open("velma").current_replicas()
    workspace, _ = clan.sync("velma")
    assert clan.seen("velma", "lesson") == 5
    assert workspace.current_replicas() != before
    assert any("restored or copied" in warning for warning in workspace.warnings)
    clan.sync("velma")
    clan.sync("other", "tank")
    assert clan.seen("velma", "lesson") == clan.seen("other", "lesson") == 5


def test_a_restored_machine_with_nothing_new_counts_nothing_twice(clan):
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "backup")
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.rmtree(clan.folder / "velma")
    (clan.folder / "backup").rename(clan.folder / "velma")
    for _ in range(2):
        clan.sync("velma")
    assert clan.seen("velma", "lesson") == 2


def test_a_restored_machine_that_was_told_of_its_count_keeps_its_name_when_it_returns_to_a_remote(clan):
    """Its log lacks what was lost with it, and its total has it: an older line of its own is nobody else's."""
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "backup")
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.rmtree(clan.folder / "velma")
    (clan.folder / "backup").rename(clan.folder / "velma")
    clan.sync("velma")
    clan.log("velma", "lesson")
    other = MemoryServer()
    other._numbers = itertools.count(1_000)
    for server in (other, clan.server, other):
        sharing.Membership(clan.open("velma"))._forget_tree()
        workspace, _ = clan.sync("velma", remote=lambda tree, server=server: MemoryRemote(server, tree))
        assert not [each for each in workspace.warnings if "somebody else writes as" in each]
        assert clan.seen("velma", "lesson") == 2


def test_a_copied_folder_takes_a_new_id_and_both_count(clan):
    clan.log("velma", "lesson")
    shutil.copytree(clan.folder / "velma", clan.folder / "copy")
    clan.log("velma", "lesson")
    clan.log("copy", "lesson")
    for name in ("velma", "copy", "velma", "copy"):
        clan.sync(name)
    assert clan.seen("velma", "lesson") == clan.seen("copy", "lesson") == 3
    assert clan.open("velma").current_replicas() != clan.open("copy").current_replicas()


def test_a_copy_of_a_restored_machine_sends_nothing_under_the_name_of_both(clan):
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "backup")
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.rmtree(clan.folder / "velma")
    (clan.folder / "backup").rename(clan.folder / "velma")
    clan.log("velma", "lesson")
    shutil.copytree(clan.folder / "velma", clan.folder / "copy")
    for name in ("copy", "velma", "copy"):
        workspace, _ = clan.sync(name)
        if name == "copy":
            assert len(workspace.current_replicas()) == 1
    assert clan.seen("velma", "lesson") == clan.seen("copy", "lesson") == 2


def test_nothing_is_said_of_a_former_name_under_which_another_machine_goes_on(clan):
    clan.log("velma", "lesson")
    shutil.copytree(clan.folder / "velma", clan.folder / "copy")
    clan.log("velma", "lesson")
    clan.sync("velma")
    workspace, _ = clan.sync("copy")
    assert not [each for each in workspace.warnings if "somebody else writes as" in each]
    assert clan.seen("velma", "lesson") == clan.seen("copy", "lesson") == 2


def test_an_edition_is_dropped_when_another_took_its_place(clan):
    clan.log("velma", "first")
    clan.sync("velma")
    clan.log("velma", "second")
    calls = []

    def somebody_is_faster():
        calls.append(1)
        if len(calls) == 2:  # between our lines and our edition, somebody else brings lines and an edition
            clan.log("tank", "third", "tank")
            clan.sync("tank", "tank")

    _, done = clan.sync("velma", remote=lambda tree: Interrupted(clan.server, tree, somebody_is_faster))
    assert not done.edition
    edition = clan.server.tree()["patterns.jsonl"]
    for lesson in ("first", "second", "third"):
        assert pattern_id(lesson).encode() in edition
    for name in ("velma", "tank"):
        assert [clan.seen(name, lesson) for lesson in ("first", "second", "third")] == [1, 1, 1]


def test_two_live_clones_that_look_the_same_are_told_apart_and_count_from_then_on(clan):
    """Until they are told apart the smaller of their totals may be swallowed: an image that runs twice is no backup."""
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "twin")

    clan.log("velma", "lesson")  # one twin logs first, and is heard last
    clan.swap()
    clan.log("velma", "lesson")
    clan.sync("velma")
    clan.swap()
    workspace, _ = clan.sync("velma")
    assert any("restored or copied" in warning for warning in workspace.warnings)
    before = clan.seen("velma", "lesson")
    assert before in (2, 3)
    clan.log("velma", "lesson")
    clan.swap()
    clan.log("velma", "lesson")
    clan.sync("velma")
    clan.swap()
    clan.sync("velma")
    clan.swap()
    clan.sync("velma")
    assert clan.seen("velma", "lesson") == before + 2
    clan.swap()
    clan.sync("velma")
    assert clan.seen("velma", "lesson") == before + 2


def test_of_two_live_clones_no_more_is_swallowed_than_the_smaller_one_counted(clan):
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "twin")
    for _ in range(3):
        clan.log("velma", "lesson")
    clan.swap()
    clan.log("velma", "lesson")
    clan.sync("velma")
    for _ in range(3):
        clan.swap()
        clan.sync("velma")
        assert clan.seen("velma", "lesson") in (4, 5)


def test_what_one_live_clone_logged_counts_though_the_other_imported_the_lesson_later(clan):
    """An import under the name of both raises no total, so it swallows none."""
    clan.log("velma", "another lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "twin")
    clan.log("velma", "lesson")
    clan.swap()
    clan.bring("velma", "lesson")
    clan.sync("velma")
    for _ in range(3):
        clan.swap()
        workspace, _ = clan.sync("velma")
        assert clan.seen("velma", "lesson") == 3
        assert not [each for each in workspace.warnings if "somebody else writes as" in each]


def test_an_import_that_a_copy_of_the_folder_sends_first_makes_nobody_give_up_a_name(clan):
    clan.log("velma", "another lesson")
    clan.sync("velma")
    clan.bring("velma", "lesson")
    shutil.copytree(clan.folder / "velma", clan.folder / "copy")
    clan.log("velma", "lesson")
    shutil.rmtree(clan.folder / "velma/clan-learnings")  # its lines come back joined: of two adds the later one is left
    clan.sync("copy")
    workspace, _ = clan.sync("velma")
    assert not [each for each in workspace.warnings if "somebody else writes as" in each]
    clan.sync("copy")
    assert clan.seen("velma", "lesson") == clan.seen("copy", "lesson") == 3


def test_a_torn_line_that_is_in_quarantine_is_refused_once_and_not_at_every_sync(clan):
    clan.log("velma", "lesson")
    clan.sync("velma")
    workspace = clan.open("velma")
    [replica] = workspace.current_replicas()
    with (workspace.clan / f"patterns.d/{replica}.jsonl").open("ab") as file:
        file.write(b'{"id":"p-torn')
    clan.log("velma", "another lesson")
    _, first = clan.sync("velma")
    assert (first.refused, first.is_partial) == (1, True)
    _, second = clan.sync("velma")
    assert (second.refused, second.is_partial) == (0, False)
    assert [kept.raw for kept in clan.open("velma").quarantine.all()] == [b'{"id":"p-torn']
    assert clan.seen("velma", "lesson") == clan.seen("velma", "another lesson") == 1


def test_unreadable_lines_of_others_are_told_when_they_come_and_are_known_from_then_on(clan):
    """Who can push can put them there for good, in a shard of nobody's: no sync may say no for ever."""
    clan.log("velma", "lesson")
    clan.sync("velma")
    pushed, told = b"", list[tuple[int, int, bool]]()
    for data in (b'{"broken\nno json\n', b"one more\n"):
        pushed += data
        clan.server.commit({**clan.server.tree(), "patterns.d/mallory.deadbeef.jsonl": pushed})
        for _ in range(2):
            workspace, done = clan.sync("velma")
            told.append((done.refused, done.refused_before, done.is_partial))
    assert told == [(2, 0, True), (2, 2, False), (3, 2, True), (3, 3, False)]
    (workspace.local / f"state-{SCHEMA_NUMBER}.db").unlink()
    assert not clan.sync("velma")[1].is_partial
    assert len(clan.open("velma").db.refused()) == 3, "they are still listed"


# --- two logs in one file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["behind", "before"])
def test_two_agents_logs_put_into_one_file_by_hand_count_an_equal_entry_once_for_each(tmp_path, how):
    bench = Bench(tmp_path)
    bench.now_ms = time.time_ns() // 1_000_000
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, LESSON)
    bench.sync("velma", "tank", "velma")
    assert bench.seen("velma") == {LESSON: 2}
    mine, theirs = (bench.folder / agent / "agents" / agent / "corrections.md" for agent in ("velma", "tank"))
    both = mine.read_bytes() + theirs.read_bytes() if how == "behind" else theirs.read_bytes() + mine.read_bytes()
    mine.write_bytes(both)
    bench.sync("velma", "tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 2}
    bench.correct("velma", LESSON)
    bench.sync("velma", "tank")
    assert bench.seen("tank") == {LESSON: 3}, "what is new counts"


def test_an_entry_that_a_person_copied_within_one_log_counts_again(tmp_path):
    """It says that it happened twice, and no other agent has counted the second."""
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.correct("velma", LESSON)
    log = bench.folder / "velma/agents/velma/corrections.md"
    log.write_bytes(log.read_bytes() + log.read_bytes())
    bench.sync("velma")
    assert bench.seen("velma") == {LESSON: 2}


# --- a folder that was put back from a snapshot -----------------------------------------------------------------------


def take_own(bench: Bench, replica: str) -> None:
    """Say that what came back under a name of the folder is its own."""
    bench.run("velma", "review", "--answer", f"own:{replica}=take")


def test_a_correction_that_others_folded_meanwhile_is_counted_after_the_folder_was_put_back(tmp_path):
    bench = Bench(tmp_path)
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.sync("velma")
    shutil.copytree(bench.folder / "velma", bench.folder / "snapshot", symlinks=True)
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.correct("tank", "Another lesson")
    bench.sync("tank")
    shutil.rmtree(bench.folder / "velma")
    (bench.folder / "snapshot").rename(bench.folder / "velma")
    before = bench.replica("velma")
    bench.correct("velma", LESSON)
    told = bench.run("velma", "sync", expect=3).stderr
    assert "restored or copied" in told
    take_own(bench, before)
    assert bench.replica("velma") != before
    bench.sync("tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 2, "Another lesson": 1}
    assert "restored or copied" not in bench.run("velma", "sync").stderr


def test_a_folder_put_back_twice_to_before_its_records_went_to_another_name_counts_each_once(tmp_path):
    bench = Bench(tmp_path)
    for agent in ("velma", "tank"):
        bench.join(agent)
    shutil.copytree(bench.folder / "velma", bench.folder / "first", symlinks=True)
    bench.correct("velma", "the lesson")
    bench.sync("velma", "tank")
    shutil.rmtree(bench.folder / "velma")
    (bench.folder / "first").rename(bench.folder / "velma")
    bench.correct("velma", "the lesson")  # under the old name, before anything was fetched
    shutil.copytree(bench.folder / "velma", bench.folder / "second", symlinks=True)
    for _ in range(2):
        bench.run("velma", "sync", expect=None)
        bench.sync("tank")
        shutil.rmtree(bench.folder / "velma")
        shutil.copytree(bench.folder / "second", bench.folder / "velma", symlinks=True)
    bench.run("velma", "sync", expect=None)
    bench.sync("tank")
    assert bench.seen("tank") == {"the lesson": 2}


def test_a_folder_put_back_counts_on_from_what_it_had_sent(tmp_path):
    bench = Bench(tmp_path)
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma")
    shutil.copytree(bench.folder / "velma", bench.folder / "snapshot", symlinks=True)
    for _ in range(2):
        bench.correct("velma", LESSON)
        bench.sync("velma", "tank")
    bench.correct("tank", LESSON)
    bench.sync("tank")
    shutil.rmtree(bench.folder / "velma")
    (bench.folder / "snapshot").rename(bench.folder / "velma")
    before = bench.replica("velma")
    for _ in range(2):
        bench.correct("velma", LESSON)
    bench.run("velma", "sync", expect=3)
    take_own(bench, before)
    bench.sync("tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 6}


@pytest.mark.parametrize(
    ("fetched", "known", "before", "records", "is_news"),
    [
        ("5", {"2"}, "2", {"2", "6"}, True),  # a snapshot of stamp 2 went on, and somebody had written 5 meanwhile
        ("5", {"2"}, "2", {"2", "5", "6"}, False),  # (a) it is a record of our log
        ("5", {"2", "5"}, "2", {"2", "6"}, False),  # (b) we know it: a restore, an import
        ("2", {"3"}, "2", {"3"}, False),  # (c) the clan had it before
        ("5", {"2"}, "2", {"2"}, False),  # (d) we have nothing that could be swallowed: one stray line renames nobody
        ("", set(), "", {"6"}, False),
        ("5", set(), "", {"6"}, True),
    ],
)
def test_who_writes_under_our_name_is_told_by_an_add_that_we_never_issued(fetched, known, before, records, is_news):
    assert _is_foreign(fetched, known, before, records) is is_news


# --- entries written by hand ------------------------------------------------------------------------------------------

BY_HAND = "\n## 2026-03-15 14:30Z — by hand\n**What I got wrong:** w\n**Pattern:** A lesson written by hand\n"


def test_an_entry_that_nothing_had_read_yet_counts_once_however_often_its_log_is_copied(tmp_path):
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.correct("velma", LESSON)
    log = bench.folder / "velma/agents/velma/corrections.md"
    log.write_text(log.read_text() + BY_HAND)
    shutil.copytree(bench.folder / "velma", bench.folder / "copy")
    bench.join("velma", "clone")
    (bench.folder / "clone/agents/velma").mkdir(parents=True, exist_ok=True)
    shutil.copy(log, bench.folder / "clone/agents/velma/corrections.md")  # agents/ in the project's own git
    bench.sync("velma", "copy", "clone", "velma", "copy", "clone")
    for where in ("velma", "copy", "clone"):
        assert bench.seen(where) == {LESSON: 1, "A lesson written by hand": 1}
        found = bench.patterns(where)["patterns"]
        assert {each["sessions"] for each in found} == {1}
    assert "part=1" in log.read_text()


def test_a_hand_written_entry_that_came_back_from_a_backup_counts_once(tmp_path):
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.correct("velma", LESSON)
    log = bench.folder / "velma/agents/velma/corrections.md"
    log.write_text(log.read_text() + BY_HAND)
    bench.run("velma", "backup", str(bench.folder / "backup.tar.gz"))
    bench.join("velma", "new")
    bench.run("new", "restore-backup", "--yes", str(bench.folder / "backup.tar.gz"))
    bench.sync("velma", "new", "velma")
    assert bench.seen("velma") == bench.seen("new") == {LESSON: 1, "A lesson written by hand": 1}


# --- a broken configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("colour = true\n", "colour"),
        ("[share\n", "fleet.toml"),
        ("[promotion]\nown = 'many'\n", "own"),
        ("[files]\nhome =\n", "fleet.toml"),
        ("[files]\nhome\n", "fleet.toml"),
        (f"x = {'[' * 5_000}{']' * 5_000}\n", "fleet.toml"),
    ],
    ids=["an unknown key", "no TOML", "a value of the wrong kind", "half a line", "a key alone", "nested too deeply"],
)
def test_a_broken_configuration_costs_no_correction(tmp_path, toml, told):
    bench = Bench(tmp_path)
    bench.run("velma", "init", "--agent", "velma")
    (bench.folder / "velma/fleet.toml").write_text(toml)
    done = bench.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)
    assert "seen 1 time" in done.stdout
    assert told in done.stderr
    assert LESSON in (bench.folder / "velma/agents/velma/corrections.md").read_text()
    assert bench.seen("velma") == {LESSON: 1}


def test_a_container_and_its_host_on_one_folder_keep_one_name_each(clan):
    """A bind mount: one folder, two machines. A folder that was swapped with a copy of it still takes a new name."""
    for number in range(3):
        for clan.machine in ("host", "container"):
            clan.log("velma", f"lesson {number}")
    assert len(clan.open("velma").replicas().replicas) == 2
    clan.sync("velma")
    assert clan.seen("velma", "lesson 2") == 2
