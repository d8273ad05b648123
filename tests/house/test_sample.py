"""This repository is its own runnable example: a small, real workspace, as fleet itself would write it today."""

import shutil
from pathlib import Path

import pytest
from fleet.keep.workspace import Workspace

from fleet.cli import starting, wiring

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("cantona", "popashot", "slash", "splinter", "tank", "velma", "zerocool")


@pytest.fixture
def sample(tmp_path):
    for folder in ("agents", "clan-learnings"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "fleet.toml", tmp_path)
    return Workspace(tmp_path)


def test_the_sample_is_a_workspace_that_can_be_read(sample):
    held = sample.load()
    assert len(list(held.notebook.present())) > 50
    assert len(held.findings.newest(100)) == 24
    assert held.read.count == held.read.untidy == 0
    assert held.notebook.edition() == sample.store.read("patterns.jsonl")
    assert held.findings.edition() == sample.store.read("discoveries.jsonl")


def test_the_sample_page_is_what_fleet_renders_today(sample):
    assert wiring.page(sample, sample.load().notebook) == sample.store.read("patterns.md"), "run demo/sample.py"


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_has_its_three_files_and_a_session_starts_with_its_memory(sample, agent):
    for name in ("corrections.md", "memory.md", "JOURNAL.md"):
        assert (sample.home(agent) / name).stat().st_size > 200
    assert "## Notes" in starting.session_start(sample, agent)
