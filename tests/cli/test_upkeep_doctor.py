"""``fleet doctor``: each trouble is found and explained, and mending it loses nothing."""

import inspect
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fleet.app import doctor as app_doctor
from fleet.model import edits
from fleet.model.errors import DiskError
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.store.database import SCHEMA_NUMBER, Database
from fleet.store.ingest import Ingest
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, Writer
from tests.cli.conftest import Stage

LESSON = "Always use awk over sed for user-provided input substitution"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def doctor(stage, *more, expect=0, where="velma", **env):
    """Run the doctor; return the findings by check, the worst of each."""
    done = stage.run(where, "doctor", "--json", *more, expect=expect, **env)
    found = json.loads(done.stdout)["findings"]
    levels = ["ok", "note", "warning", "error"]
    return {f["check"]: f for f in sorted(found, key=lambda f: levels.index(f["level"]))}


def test_a_webhook_that_nobody_agreed_to_is_named(stage):
    stage.join("velma")
    assert "webhook" not in doctor(stage)
    found = doctor(stage, FLEET_WEBHOOK_URL="https://hooks.example.org/x")["webhook"]
    assert "messages to hooks.example.org are configured, and nobody on this machine agreed" in found["what"]
    assert found["do"] == "`fleet init` asks"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("synced"))
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.keep()
    return stage


@pytest.fixture
def synced(made):
    made.again()
    return made


def clan(stage):
    return stage.folder / "velma/clan-learnings"


def local(stage):
    return stage.folder / "velma/.fleet"


def database(stage):
    """Return the path of the database, all of it in the one file."""
    [path] = local(stage).glob("state-*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    return path


def everything(stage):
    files = (path for path in (stage.folder / "velma").rglob("*") if path.is_file())
    made = {"ready", "locks"}  # what a session starts with is made anew by whoever looks at it
    found = {path: path.read_bytes() for path in files if path.suffix != ".db-shm" and not made & {*path.parts}}
    return {path: data for path, data in found.items() if data or path.suffix != ".db-wal"}


def lasting(files):
    """Leave the database out: a file that had just been written is looked at once more."""
    return {path: data for path, data in files.items() if not path.name.startswith("state-")}


def test_a_healthy_workspace_has_nothing_to_mend_and_is_left_as_it_is(synced):
    before = everything(synced)
    found = doctor(synced, "--fix")
    # No host is set up here, and no extra is installed: that is worth a word, and no harm.
    noted = {"client", "hooks", "fired", "semantic"}
    assert {f["level"] for name, f in found.items() if name not in noted} == {"ok"}
    assert lasting(everything(synced)) == lasting(before)
    shown = synced.run("velma", "doctor").stdout
    assert all(line.startswith(("ok ", "note ", "  ")) for line in shown.splitlines() if line)


def test_a_damaged_database_is_made_anew_and_no_lesson_lost(synced):
    path = database(synced)
    data = bytearray(path.read_bytes())
    data[4096 + 8 :] = b"\x55" * (len(data) - 4096 - 8)
    path.write_bytes(data)
    assert doctor(synced, expect=1)["state"]["level"] == "error"
    assert path.read_bytes() == data, "looking mends nothing"
    assert doctor(synced, "--fix")["state"]["fixed"]
    assert doctor(synced)["state"]["level"] == "ok"
    assert synced.seen("velma") == {LESSON: 1}
    synced.run("velma", "sync")


def test_a_file_that_is_no_database_is_told(synced):
    database(synced).write_bytes(b"not a database at all" * 300)
    assert doctor(synced, expect=1)["state"]["level"] == "error"


@pytest.mark.parametrize("harm", ["text", "line", "missing", "more"])
def test_a_row_that_is_not_what_its_lines_say_is_found(synced, harm):
    path = database(synced)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = {
            "text": "UPDATE pattern SET seen = 7",
            "line": "UPDATE pattern SET line = replace(line, 'awk', 'AWK')",
            "missing": "DELETE FROM pattern",
            "more": "INSERT INTO outbox VALUES ('p-0000000000000000', NULL)",
        }
        connection.execute(changed[harm])
    assert doctor(synced, expect=1)["rows"]["level"] == "error"
    if harm != "line":  # whoever reads a row that bears another hash makes all of them anew
        assert doctor(synced, "--fix")["rows"]["fixed"]
    assert doctor(synced)["rows"]["level"] == "ok"
    assert synced.seen("velma") == {LESSON: 1}


def test_a_database_of_another_schema_is_left_alone(synced):
    other = local(synced) / "state-99.db"
    other.write_bytes(b"of a newer version")
    doctor(synced, "--fix")
    assert other.read_bytes() == b"of a newer version"


def test_a_damaged_local_database_is_told_and_left_where_it_is(synced):
    path = local(synced) / "local.db"
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    path.write_bytes(b"not a database at all" * 300)
    found = doctor(synced, "--fix", expect=1)["local"]
    assert found["level"] == "error"
    assert "backup" in found["do"]
    assert path.read_bytes() == b"not a database at all" * 300


def test_a_record_that_very_many_worded_is_told(synced):
    columns = {
        f"a{number}.{number:08x}": {
            "add": f"2026-11-20T00:00:00.000Z-{number:04x}",
            "first": {"text": f"{number}" * 4000},
        }
        for number in range(10, 80)
    }
    rows = [
        json.dumps({"id": "p-3f9c1a2b7d4e5f60", "w": {name: column}}, separators=(",", ":"))
        for name, column in columns.items()
    ]
    with (clan(synced) / "patterns.jsonl").open("a") as file:
        file.write("\n".join(rows) + "\n")
    assert "p-3f9c1a2b7d4e5f60" in doctor(synced, expect=None)["wide"]["what"]


def test_what_the_database_alone_has_is_put_back_before_it_is_made_anew(stage):
    stage.run("velma", "init", "--agent", "velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "discover", "--problem", "the cache lies", "--solution", "delete it")
    before = [stage.run("velma", *words, "--json").stdout for words in (("gossip",), ("patterns",))]
    shutil.rmtree(clan(stage))
    assert "doctor --fix" in doctor(stage, expect=1)["rows"]["do"]
    doctor(stage, "--fix")
    assert doctor(stage)["rows"]["level"] == "ok"
    for file in local(stage).glob(f"state-{SCHEMA_NUMBER}.db*"):
        file.unlink()
    assert [stage.run("velma", *words, "--json").stdout for words in (("gossip",), ("patterns",))] == before


def test_refused_lines_are_told(synced):
    with (clan(synced) / "patterns.jsonl").open("a") as file:
        file.write("    more = [["correct", *words, f"Lesson 0.{each}"] for each in range(5)]
    commands = [["doctor", "--json"], ["doctor", "--json"], ["doctor", "--json"], *more]
    running = [
        subprocess.Popen([sys.executable, "-m", "fleet", *command], cwd=folder, env=environment, stdout=subprocess.PIPE)
        for command in commands
    ]
    for process, command in zip(running, commands, strict=True):
        told = json.loads(process.communicate()[0]) if command[0] == "doctor" else {"findings": []}
        assert not [each for each in told["findings"] if each["level"] in ("warning", "error")]


def test_a_phrase_that_fleet_has_not_got_is_named_where_it_is_taken_out(w: Stage) -> None:
    phrases = '["you forgot", "you forgott", "signs"]'
    told = w.run("w", "config", "set", "triggers.without", phrases).stderr
    assert "no phrase of fleet's: you forgott;" in told
    found = json.loads(w.run("w", "doctor", "--json", expect=None).stdout)
    assert any("no phrase of fleet's: you forgott" in str(each) for each in found["findings"])
