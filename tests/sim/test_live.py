"""Git and live mixed: one agent uses git alone, one live alone, one both, and in the end all hold the same lines.

The room is a document in memory that forgets everything now and then, as a restarted server does; those who were in it
bring back what is missing. The agent with both is the bridge, without any setting for that.
"""

import os
import random
from pathlib import Path

import pytest

from crdt.doc import Document
from fleet.app import learning, sharing
from fleet.learn.corrections_md import Correction
from fleet.model import edits
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.share.live.bridge import BASE, Bridge
from fleet.store import config
from fleet.store.files import Files
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, World
from tests.memory_remote import MemoryRemote, MemoryServer, MemoryTree

START_MS = 1_795_219_200_000  # 2026-11-21
HOUR_MS = 3_600_000
LESSONS = [f"Lesson number {number} of a clan" for number in range(5)]
SEEDS = 16 if "FLEET_SIM_HISTORIES" in os.environ else 6
STEPS = 40
GIT, LIVE, BOTH = "gitonly", "liveonly", "both"


class QuickFiles(Files):
    """Files that never wait for the disk."""

    def _fsync(self, handle: int) -> None:
        pass


class Mixed:
    """One history of the three."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.now_ms = START_MS
        self.server = MemoryServer()
        self.room = self.document()
        self.acknowledged = 0
        edition_bytes = self.rng.choice([0, 600, 262_144])
        for agent in (GIT, LIVE, BOTH):
            (folder / agent).mkdir()
            (folder / agent / config.FILE_NAME).write_text(f"[keep]\nedition_always_bytes = {edition_bytes}\n")
        self.bridges: dict[str, Bridge] = {}
        self.trees = {agent: MemoryTree() for agent in (GIT, LIVE, BOTH)}

    def document(self) -> Document:
        return Document(self.rng.getrandbits(32))

    def open(self, agent: str) -> Workspace:
        world = World(
            lambda: self.now_ms,
            entropy=self.rng.randbytes,
            machine=lambda: f"machine of {agent}",
            durable=False,
            tree=lambda _: self.trees[agent],
        )
        root = self.folder / agent
        return Workspace(root, world, QuickFiles(root))

    def run(self) -> None:
        acts = [self.correct] * 6 + [self.sync] * 4 + [self.exchange] * 6
        acts += [self.discover, self.discover, self.retire, self.forget, self.restart, self.late]
        for _ in range(STEPS):
            self.now_ms += self.rng.choice([1, 50, 60_000, HOUR_MS])
            self.rng.choice(acts)(self.rng.choice([GIT, LIVE, BOTH]))
        for _ in range(3):
            for agent in (GIT, LIVE, BOTH, GIT, LIVE):
                self.sync(agent)
                self.exchange(agent)

    def correct(self, agent: str) -> None:
        workspace = self.open(agent)
        given = Correction("w", "r", self.rng.choice(LESSONS))
        learning.correct(workspace, agent, given, session=str(self.now_ms))
        self.acknowledged += 1
        workspace.close()

    def discover(self, agent: str) -> None:
        workspace = self.open(agent)
        problem = f"problem {self.rng.randint(0, 9)}"
        given = Discovery(id="", problem=problem, solution="solution", type="discovery", confidence="medium")
        learning.discover(workspace, agent, given)
        workspace.close()

    def retire(self, agent: str) -> None:
        workspace = self.open(agent)
        with workspace.writing(agent) as writer:
            if lines := [
                each for each in workspace.db.entries(workspace.db.names()).values() if isinstance(each, Line)
            ]:
                chosen = self.rng.choice(sorted(lines, key=lambda line: line.id))
                writer.append(PATTERNS, [edits.retire(chosen, writer.name)])
        workspace.close()

    def late(self, agent: str) -> None:
        """Write a newer version's line, which must be kept, and passed on by git and live alike."""
        workspace = self.open(agent)
        with workspace.writing(agent) as writer:
            raw = b'{"id":"p-%016x","new":%d}\n' % (self.rng.randrange(3), self.rng.randrange(3))
            path = workspace.clan / PATTERNS.shard(writer.name)
            if raw not in workspace.files.read(path):
                workspace.files.append(path, raw)
        workspace.close()

    def sync(self, agent: str) -> None:
        if agent == LIVE:
            return
        workspace = self.open(agent)
        with workspace.writing(agent):
            pass
        sharing.sync_with(workspace, MemoryRemote(self.server, workspace.tree), rng=self.rng, sleep=lambda _: None)
        workspace.close()

    def exchange(self, agent: str) -> None:
        """Exchange lines with the room in both directions, as a connection does."""
        if agent == GIT:
            return
        bridge = self.bridge(agent)
        document = bridge.documents[BASE]
        bridge.receive([(BASE, self.room.since(document.state()))])
        assert not bridge.must_renew
        for room, update in bridge.offer():
            assert room == BASE
            self.room.apply(update)
        self.room.apply(document.since(self.room.state()))

    def bridge(self, agent: str) -> Bridge:
        if agent not in self.bridges:
            workspace = self.open(agent)
            with workspace.writing(agent) as writer:
                self.bridges[agent] = Bridge(workspace, writer.name)
        return self.bridges[agent]

    def forget(self, _: str) -> None:
        """Restart the live server, which then holds nothing."""
        self.room = self.document()

    def restart(self, agent: str) -> None:
        """Restart a sidecar, which rebuilds its document from the files."""
        if (bridge := self.bridges.pop(agent, None)) is not None:
            bridge.workspace.close()

    def known(self, agent: str) -> dict[str, object]:
        workspace = self.open(agent)
        assert not workspace.db.refused()
        assert workspace.db.differences() == []
        known = workspace.db.entries(workspace.db.names())
        workspace.close()
        return dict(known)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_git_live_and_both_end_with_the_same_lines(seed: int, tmp_path: Path):
    mixed = Mixed(seed, tmp_path)
    mixed.run()
    assert mixed.known(GIT) == mixed.known(BOTH)
    assert mixed.known(LIVE) == mixed.known(BOTH)
    workspace = mixed.open(BOTH)
    assert sum(each.count("seen") for each in workspace.patterns.records()) == mixed.acknowledged
    workspace.close()
    for agent in (GIT, LIVE, BOTH):  # nobody took its own line that came back the other way for a clone's
        assert len({r.name for r in mixed.open(agent).replicas().replicas if r.agent == agent}) <= 1
    for bridge in mixed.bridges.values():
        assert bridge.counts.refused == bridge.counts.healed == 0
        bridge.workspace.close()
