"""Whatever SQLite and Python's module around it raise of a damaged database: it is mended, and the answer comes."""

import sqlite3

import pytest

from fleet.keep import config, damage, indexing, limits, view
from fleet.keep.state import State
from fleet.keep.workspace import Workspace, World

RAISED = [
    MemoryError(),
    OverflowError("Python int too large to convert to SQLite INTEGER"),
    SystemError("error return without exception set"),
    sqlite3.InterfaceError("bad parameter or other API misuse"),
    sqlite3.DatabaseError("database disk image is malformed"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
]


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "VIEW_BYTES_MIN", 0)
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path, World(durable=False))
    shard = made.clan / "patterns.d/velma.00000001.jsonl"
    shard.parent.mkdir(parents=True)
    at = "2026-11-20T00:00:00.000Z-0000"
    shard.write_text(
        f'{{"add":{{"velma.00000001":"{at}"}},"at":"{at}","by":"velma.00000001","id":"p-0000000000000001",'
        '"n":{"seen":{"velma.00000001":1}},"set":{"text":"look first"}}\n'
    )
    yield made
    made.close()


def kind(why: Exception) -> str:
    return type(why).__name__


@pytest.mark.parametrize("why", RAISED, ids=kind)
def test_the_index_is_made_anew_and_asked_again_and_a_line_says_so(workspace, why):
    asked = []

    def ask(index):
        asked.append(index)
        if len(asked) == 1:
            raise why
        return "answer"

    assert indexing.answer(workspace, (), ask) == "answer"
    (told,) = workspace.warnings
    assert "the search index was damaged" in told
    assert "no lesson is lost" in told


@pytest.mark.parametrize("why", RAISED, ids=kind)
def test_what_dropping_does_not_help_is_put_aside_as_a_whole(workspace, why):
    asked = []

    def ask(index):
        asked.append(index)
        if len(asked) < 3:
            raise why
        return "answer"

    assert indexing.answer(workspace, (), ask) == "answer"
    assert len(list(workspace.local.glob("state.damaged-*.db"))) == 1


@pytest.mark.parametrize("why", [*RAISED, KeyError("2"), TypeError("not an int")], ids=kind)
def test_a_notebook_that_was_asked_for_is_read_from_the_files(workspace, why):
    held = view.glance(workspace)

    def fail(*_):
        raise why

    held.notebook.view.joined = held.notebook.view.raws = fail
    held.notebook.view.prefetch = fail
    assert held.notebook.patterns["p-0000000000000001"].set["text"] == "look first"
    assert "the search index was damaged" in " ".join(workspace.warnings)


def test_a_fault_of_our_own_does_not_pass_for_damage(workspace):
    asked = []

    def ask(index):
        asked.append(index)
        raise KeyError("a fault")

    with pytest.raises(KeyError, match="a fault"):
        indexing.answer(workspace, (), ask)
    assert len(asked) == 2
    assert not list(workspace.local.glob("state.damaged-*")), "its sent marks stay"


class Failing:
    """A connection whose statements fail."""

    def __init__(self, why: Exception, connection: sqlite3.Connection) -> None:
        self.why, self.connection = why, connection

    def execute(self, *_):
        raise self.why

    executemany = execute

    def rollback(self) -> None:
        raise self.why

    def close(self) -> None:
        self.connection.close()


@pytest.mark.parametrize("why", RAISED, ids=kind)
def test_a_damaged_state_is_put_aside_told_and_asked_again(tmp_path, why):
    said = []
    state = State(tmp_path / "state.db", durable=False, warn=said.append)
    state.put(mark="m")
    for act in (lambda: state.put(mark="n"), lambda: state.get("mark")):
        state._connection = Failing(why, state.connection())
        act()
    assert "state.damaged-" in said[0]
    assert "no lesson is lost" in said[0]
    assert state.get("mark") == "", "made anew"
    state.close()


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_CANTOPEN"])
def test_a_full_disk_is_no_damage(tmp_path, name):
    why = sqlite3.OperationalError("not now")
    why.sqlite_errorcode = getattr(sqlite3, name)
    assert not damage.is_damage(why)
    state = State(tmp_path / "state.db", durable=False)
    state.put(mark="m")
    state._connection = Failing(why, state.connection())
    with pytest.raises(Exception, match="not now"):
        state.put(mark="n")
    state.close()
    assert state.get("mark") == "m"
    assert not list(tmp_path.glob("state.damaged-*"))
    state.close()
