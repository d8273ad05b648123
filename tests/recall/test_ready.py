"""The text that a session starts with lies ready, and is never older than what it was made of."""

import json
import re

import pytest

from fleet.cli.starting import session_start
from fleet.keep import config
from fleet.keep.workspace import Workspace, World
from fleet.learn.corrections import Correction, correct
from fleet.recall import ready


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path, World(durable=False))
    made.disk.replace(made.home("velma") / "memory.md", b"- remembered\n")
    correct(made, "velma", Correction("w", "r", "the first lesson"), session="s")
    yield made
    made.close()


def text(workspace) -> str | None:
    return ready.text(str(workspace.root), "velma")


def bare(context: str) -> str:
    return re.sub("fleet-[0-9a-f]{16}", "MARK", context)


def test_it_is_what_was_made_under_another_delimiter(workspace):
    assert text(workspace) is None
    made = session_start(workspace, "velma")
    first, second = text(workspace), text(workspace)
    assert bare(first) == bare(second) == bare(made)
    assert "the first lesson" in first
    assert "- remembered" in first
    assert len({context.splitlines()[0] for context in (made, first, second)}) == 3
    assert all(context.splitlines()[0] == context.splitlines()[-1] for context in (first, second))


@pytest.mark.parametrize(
    "path",
    [
        "agents/velma/memory.md",
        "agents/velma/corrections.md",
        "agents/velma/JOURNAL.md",
        "clan-learnings/members.toml",
        "clan-learnings/patterns.jsonl",
        "clan-learnings/patterns.d/tank.00000001.jsonl",
        "clan-learnings/discoveries.d/tank.00000001.jsonl",
        "fleet.toml",
    ],
)
def test_it_is_none_once_a_file_is_another(workspace, path):
    session_start(workspace, "velma")
    assert text(workspace)
    file = workspace.root / path
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as handle:
        handle.write(b"\n")
    assert text(workspace) is None
    session_start(workspace, "velma")
    assert text(workspace)


def test_a_mutation_that_worked_is_noticed_and_a_failure_changes_nothing(workspace):
    from fleet.learn import attempts, mutations

    session_start(workspace, "velma")
    attempts.note_failure(workspace, "velma", "s", "ls nowhere", "no such file", 1)
    assert text(workspace)
    mutations.record_success(workspace, "velma", {"event": "declared", "id": "m-0000000000000001", "code": "M1"}, "")
    assert text(workspace) is None
    assert "worked and is no lesson yet" in session_start(workspace, "velma")
    assert text(workspace)
    mutations.drop(workspace, "velma", "m-0000000000000001")
    assert text(workspace) is None
    assert "worked and is no lesson yet" not in session_start(workspace, "velma")


def test_what_cannot_be_made_ready_any_more_goes_away(workspace):
    session_start(workspace, "velma")
    assert not ready.is_stale(str(workspace.root), "velma")
    shard = workspace.clan / "patterns.d" / "tank.00000001.jsonl"
    shard.write_text('{"add":{"tank.00000001":"2999-01-01T00:00:00.000Z-0000"},"id":"p-0000000000000001"}\n')
    assert ready.is_stale(str(workspace.root), "velma")
    session_start(workspace, "velma")
    assert not ready.is_stale(str(workspace.root), "velma")


def test_a_file_that_went_away_is_noticed(workspace):
    session_start(workspace, "velma")
    next((workspace.clan / "patterns.d").iterdir()).unlink()
    assert text(workspace) is None


def test_what_is_read_while_it_is_made_is_looked_at_before(workspace, monkeypatch):
    """A lesson that arrives while the text is made: no text without it counts as up to date."""
    from fleet.cli import starting

    load = starting.view.glance

    def glance(where):
        held = load(where)
        correct(where, "velma", Correction("w", "r", "a lesson in between"), session="s")
        return held

    monkeypatch.setattr(starting.view, "glance", glance)
    session_start(workspace, "velma")
    assert text(workspace) is None


@pytest.mark.parametrize("data", [b"", b"{}\nx", b"[]\nx", b"rubbish", b'{"seen":{},"delimiter":3}\nx', b"\xff\xfe\n"])
def test_a_damaged_file_is_none(workspace, data):
    session_start(workspace, "velma")
    (workspace.root / ready.file_of("velma")).write_bytes(data)
    assert text(workspace) is None


def test_a_foreign_delimiter_never_stands_in_the_text(workspace):
    session_start(workspace, "velma")
    file = workspace.root / ready.file_of("velma")
    delimiter = json.loads(file.read_text().splitlines()[0])["delimiter"]
    assert file.read_text().count(delimiter) == 3  # in the head, and at the two ends


def test_what_is_held_is_not_made_ready(workspace):
    shard = workspace.clan / "patterns.d" / "tank.00000001.jsonl"
    late = '{"add":{"tank.00000001":"2999-01-01T00:00:00.000Z-0000"},"id":"p-0000000000000001","set":{"text":"late"}}\n'
    shard.write_text(late)
    session_start(workspace, "velma")
    assert text(workspace) is None


def test_a_folder_that_cannot_be_written_is_no_obstacle(workspace):
    (workspace.root / ready.file_of("velma")).mkdir(parents=True)  # a folder where the file belongs
    assert "the first lesson" in session_start(workspace, "velma")
