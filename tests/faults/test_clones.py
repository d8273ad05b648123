"""Fault 18: one replica id on two machines, or a restored one. Nothing lost, nothing counted twice, a warning."""

import random
import shutil
import time

import pytest

from fleet.cli import wiring
from fleet.keep import notebook
from fleet.keep.normal import pattern_id
from fleet.keep.workspace import Workspace, World
from fleet.learn.corrections import Correction, correct
from fleet.share.memory import MemoryRemote, MemoryServer
from tests.faults.test_sync import LESSON, Bench
from tests.sim.simulator import SimDisk, SimRemote

START_MS = 1_795_219_200_000


class Clan:
    """Workspaces on one server, with a clock of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.server = MemoryServer()
        self.now_ms = START_MS

    def open(self, name):
        root = self.folder / name
        root.mkdir(exist_ok=True)
        (root / "fleet.toml").touch()
        world = World(wall_ms=lambda: self.now_ms, machine=lambda: "one-machine", durable=False)
        return Workspace(root, world, SimDisk(root))

    def log(self, name, lesson, agent="velma"):
        self.now_ms += 1_000
        return correct(self.open(name), agent, Correction("w", "r", lesson), session=str(self.now_ms))

    def sync(self, name, agent="velma", remote=None):
        self.now_ms += 1_000
        workspace = self.open(name)
        with workspace.writing(agent):
            pass
        done = wiring.sync(workspace, remote or MemoryRemote(self.server), rng=random.Random(1), sleep=lambda _: None)
        return workspace, done

    def seen(self, name, lesson):
        line = self.open(name).load().notebook.get(pattern_id(lesson))
        return notebook.count(line, "seen") if line else 0


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


def test_a_copied_folder_takes_a_new_id_and_both_count(clan):
    clan.log("velma", "lesson")
    shutil.copytree(clan.folder / "velma", clan.folder / "copy")
    clan.log("velma", "lesson")
    clan.log("copy", "lesson")
    for name in ("velma", "copy", "velma", "copy"):
        clan.sync(name)
    assert clan.seen("velma", "lesson") == clan.seen("copy", "lesson") == 3
    assert clan.open("velma").current_replicas() != clan.open("copy").current_replicas()


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

    _, done = clan.sync("velma", remote=SimRemote(clan.server, somebody_is_faster))
    assert not done.edition
    edition = clan.server.tree()["patterns.jsonl"]
    for lesson in ("first", "second", "third"):
        assert pattern_id(lesson).encode() in edition
    for name in ("velma", "tank"):
        assert [clan.seen(name, lesson) for lesson in ("first", "second", "third")] == [1, 1, 1]


def test_two_live_clones_that_look_the_same_each_count(clan):
    clan.log("velma", "lesson")
    clan.sync("velma")
    shutil.copytree(clan.folder / "velma", clan.folder / "twin")

    def swap():
        """Let the other twin stand at the path that both believe is theirs."""
        (clan.folder / "velma").rename(clan.folder / "aside")
        (clan.folder / "twin").rename(clan.folder / "velma")
        (clan.folder / "aside").rename(clan.folder / "twin")

    clan.log("velma", "lesson")  # one twin logs first, and is heard last
    swap()
    clan.log("velma", "lesson")
    clan.sync("velma")
    swap()
    clan.sync("velma")
    assert clan.seen("velma", "lesson") == 3
    swap()
    clan.sync("velma")
    assert clan.seen("velma", "lesson") == 3


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
