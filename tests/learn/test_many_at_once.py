"""Who takes in many lessons at once looks through the clan once, not with every lesson."""

import json

import pytest

from fleet.keep import config
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace
from fleet.learn import corrections
from fleet.learn.corrections import log_file
from fleet.learn.importing import import_files


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path)
    yield made
    made.close()


@pytest.fixture
def looks(monkeypatch):
    """How often all records were looked through."""
    counted, real = [], Notebook.with_key
    monkeypatch.setattr(Notebook, "with_key", lambda notebook, key: counted.append(key) or real(notebook, key))
    return counted


def test_an_import_looks_for_edited_lessons_once(workspace, tmp_path, looks):
    path = tmp_path / "lessons.jsonl"
    path.write_text("".join(json.dumps({"pattern": f"Check gadget {n} first"}) + "\n" for n in range(40)))
    assert import_files(workspace, "velma", [path]).patterns_new == 40
    looks.clear()
    assert import_files(workspace, "velma", [path]).patterns_new == 0
    assert len(looks) <= 2


def test_entries_written_by_hand_are_settled_in_one_look(workspace, looks):
    log = log_file(workspace, "velma")
    log.parent.mkdir(parents=True)
    entry = "## 2026-03-15 14:30Z — {0}\n**What I got wrong:** w\n**Pattern:** Check gadget {0} first\n\n"
    log.write_text("".join(entry.format(number) for number in range(40)))
    with workspace.writing("velma"):
        pass
    corrections.settle_all(workspace)
    assert len(corrections.read_log(workspace, "velma").records) == 40
    assert len(looks) <= 3
