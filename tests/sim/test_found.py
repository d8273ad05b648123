"""Bugs that the histories found, each as short as it could be made."""

import random
from contextlib import suppress

import pytest

from fleet.cli import wiring
from fleet.keep import config
from fleet.keep.normal import pattern_id
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.share.memory import MemoryRemote, MemoryServer
from tests.sim.world import START_MS, CrashError, SimDisk

LESSON = "Quote every path"


class Agent:
    """One agent's folder on a simulated disk."""

    def __init__(self, folder, name: str, server: MemoryServer) -> None:
        self.root, self.name, self.server = folder / name, name, server
        self.root.mkdir()
        (self.root / config.FILE_NAME).write_text("")

    def open(self) -> Workspace:
        entropy = random.Random(self.name).randbytes
        world = World(wall_ms=lambda: START_MS, entropy=entropy, machine=lambda: "m", durable=False)
        return Workspace(self.root, world, SimDisk(self.root))

    def correct(self, lesson: str) -> None:
        workspace = self.open()
        corrections.correct(workspace, self.name, Correction("w", "r", lesson), session="s")
        workspace.close()

    def sync(self, *, crash_at: int = -1, torn_share: float = 0.0) -> None:
        workspace = self.open()
        workspace.disk.writes_left, workspace.disk.torn_share = crash_at, torn_share
        try:
            wiring.sync(workspace, MemoryRemote(self.server), rng=random.Random(1), sleep=lambda _: None)
        finally:
            workspace.close()

    def lessons(self) -> set[str]:
        held = self.open().store.load("~").notebook
        return {str(line.set.get("text")) for line in held.patterns.values()}


@pytest.mark.parametrize("torn_share", [0.0, 1.0])
@pytest.mark.parametrize("crash_at", range(12))
def test_a_crash_while_a_reverted_tree_is_taken_in_loses_nothing(crash_at, torn_share, tmp_path):
    """A revert moves a line from the edition back into a shard. Taken in edition first, it stood in neither for a
    moment; a crash then, and a second revert that takes the shard as well, and the line was gone from this machine."""
    server = MemoryServer()
    tank, velma = Agent(tmp_path, "tank", server), Agent(tmp_path, "velma", server)
    tank.correct("Something else")
    tank.sync()
    before = server.tree()
    velma.correct(LESSON)
    velma.sync()
    line_in_shard = next(server.tree(mark) for mark in server.marks() if _holds(server.tree(mark), "patterns.d/"))
    velma.correct("Something new")
    velma.sync()  # drops from her shard what the edition covers
    assert not _holds(server.tree(), "patterns.d/")
    tank.sync()
    server.commit(line_in_shard)
    with suppress(CrashError):
        tank.sync(crash_at=crash_at, torn_share=torn_share)
    server.commit(before)
    tank.sync()
    assert LESSON in tank.lessons()


def _holds(tree: dict[str, bytes], folder: str) -> bool:
    return any(path.startswith(folder) and pattern_id(LESSON).encode() in data for path, data in tree.items())
