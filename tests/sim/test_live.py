"""Git and live mixed: one agent on git alone, one on live alone, one on both; in the end all hold the same lines.

The room is a document in memory that forgets everything now and then, as a server that starts anew does; who was in it
brings what is missing. The agent on both is the bridge, and nobody had to be told to be one.
"""

import random
from pathlib import Path

import pytest

from crdt.doc import Document
from fleet.cli import wiring
from fleet.keep import config, edits
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.learn.discoveries import Finding, discover
from fleet.share.bridge import BASE, Bridge
from fleet.share.memory import MemoryRemote, MemoryServer
from tests.sim.simulator import HOUR_MS, LESSONS, START_MS, SimDisk

SEEDS = 25
STEPS = 40
GIT, LIVE, BOTH = "gitonly", "liveonly", "both"


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

    def document(self) -> Document:
        return Document(self.rng.getrandbits(32))

    def open(self, agent: str) -> Workspace:
        world = World(
            lambda: self.now_ms, entropy=self.rng.randbytes, machine=lambda: f"machine of {agent}", durable=False
        )
        root = self.folder / agent
        return Workspace(root, world, SimDisk(root))

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
        told = Correction("w", "r", self.rng.choice(LESSONS))
        corrections.correct(workspace, agent, told, session=str(self.now_ms))
        self.acknowledged += 1
        workspace.close()

    def discover(self, agent: str) -> None:
        workspace = self.open(agent)
        discover(workspace, agent, Finding(f"problem {self.rng.randint(0, 9)}", "solution"))
        workspace.close()

    def retire(self, agent: str) -> None:
        workspace = self.open(agent)
        with workspace.writing(agent) as writer:
            held = workspace.load()
            workspace.admit(held.notebook)
            if lines := sorted(held.notebook.patterns.values(), key=lambda line: line.id):
                writer.append(PATTERNS, [edits.retired(self.rng.choice(lines), writer.name, writer.tick())])
        workspace.close()

    def late(self, agent: str) -> None:
        """A newer version's line: kept and passed on, whatever way it takes."""
        workspace = self.open(agent)
        with workspace.writing(agent) as writer:
            raw = b'{"id":"p-%016x","new":%d}\n' % (self.rng.randrange(3), self.rng.randrange(3))
            path = workspace.clan / PATTERNS.shard(writer.name)
            if raw not in workspace.disk.read(path):
                workspace.disk.append(path, raw)
        workspace.close()

    def sync(self, agent: str) -> None:
        if agent == LIVE:
            return
        workspace = self.open(agent)
        with workspace.writing(agent):
            pass
        wiring.sync(workspace, MemoryRemote(self.server), rng=self.rng, sleep=lambda _: None)
        workspace.close()

    def exchange(self, agent: str) -> None:
        """Meet in the room, as a connection does: each side says what it has, and gets the rest."""
        if agent == GIT:
            return
        bridge = self.bridge(agent)
        document = bridge.documents[BASE]
        assert not bridge.receive([(BASE, self.room.since(document.state()))])
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
        """The live server starts anew, with nothing."""
        self.room = self.document()

    def restart(self, agent: str) -> None:
        """A sidecar starts anew: a fresh document, rebuilt from the files."""
        if (bridge := self.bridges.pop(agent, None)) is not None:
            bridge.workspace.close()

    def held(self, agent: str) -> tuple[bytes, bytes]:
        workspace = self.open(agent)
        held = workspace.load()
        assert held.read.count == 0
        workspace.close()
        return held.notebook.edition(), held.findings.edition()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_git_live_and_both_end_with_the_same_lines(seed: int, tmp_path: Path):
    mixed = Mixed(seed, tmp_path)
    mixed.run()
    assert mixed.held(GIT) == mixed.held(BOTH)
    assert mixed.held(LIVE) == mixed.held(BOTH)
    workspace = mixed.open(BOTH)
    lines = workspace.load().notebook.patterns.values()
    assert sum(total for line in lines for total in line.n.get("seen", {}).values()) == mixed.acknowledged
    for agent in (GIT, LIVE, BOTH):  # a line that came back by the other way was never taken for a clone's
        assert len({r.name for r in mixed.open(agent).replicas().replicas if r.agent == agent}) <= 1
    for bridge in mixed.bridges.values():
        assert bridge.counts.refused == bridge.counts.healed == 0
        bridge.workspace.close()
