"""This repository is its own runnable example: a small, real workspace, as fleet itself would write it today."""

import shutil
from pathlib import Path

import pytest

from fleet.app import pages, starting
from fleet.store.ingest import clan_sources
from fleet.store.lines import LineReader
from fleet.store.workspace import Workspace, check_version

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("cantona", "popashot", "slash", "splinter", "tank", "velma", "zerocool")


@pytest.fixture
def sample(tmp_path):
    for folder in ("agents", "clan-learnings"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "fleet.toml", tmp_path)
    found = Workspace(tmp_path)
    yield found
    found.close()


def test_the_sample_is_a_workspace_that_can_be_read(sample):
    check_version(sample.root)
    assert sample.patterns.count() > 50
    assert sample.discoveries.count() == 24
    for source in clan_sources(sample.clan):
        read, data = LineReader(), source.file.read_bytes()
        raws = [raw for raw, entry in read.entries(source.kind, [data], source.path)]
        assert (read.refused, read.markers) == ([], {})
        assert raws == [source.kind.encode(entry) for _, entry in read.entries(source.kind, [data], source.path)]
        assert data == b"".join(raw + b"\n" for raw in raws), "each line in its canonical form"
        assert len({raw[:30] for raw in raws}) == len(raws), "one line for each id"
        if source.kind.name == "patterns":
            assert raws == sorted(raws)


def test_the_sample_page_is_what_fleet_renders_today(sample):
    assert pages.rendered_page(sample) == (sample.clan / "patterns.md").read_bytes(), "run demo/sample.py"


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_has_its_three_files_and_a_session_starts_with_its_memory(sample, agent):
    for name in ("corrections.md", "memory.md", "JOURNAL.md"):
        assert (sample.home(agent) / name).stat().st_size > 200
    assert "## Notes" in starting.SessionStart(sample, agent).make().text
