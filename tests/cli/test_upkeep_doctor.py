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
        file.write("<<<<<<< ours\nnot json\n{}")
    assert "2 lines" in doctor(synced, expect=1)["lines"]["what"]


def test_a_line_in_quarantine_is_told_by_the_doctor_as_by_the_status(synced):
    synced.git("clone", "--quiet", "--branch", "fleet", str(synced.remote), "raw")
    with (synced.folder / "raw/patterns.jsonl").open("a") as file:
        file.write('{"id": broken\n')
    synced.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "-q", "-a", "-m", "x", where="raw")
    synced.git("push", "--quiet", "origin", "fleet", where="raw")
    synced.run("velma", "sync", expect=None)
    assert len(json.loads(synced.run("velma", "status", "--json").stdout)["quarantined"]) == 1
    told = doctor(synced)["lines"]
    assert told["level"] == "note"
    assert "1 line that could not lie in quarantine" in told["what"]
    assert "fleet status" in told["do"]


def test_a_wrong_clock_and_a_damaged_register_are_told(synced):
    (local(synced) / "replica.toml").write_text("= nonsense")
    assert "replica.toml" in doctor(synced, expect=1)["checkup"]["what"]
    (local(synced) / "clock").write_text(f"{'2099-01-01T00:00:00.000Z-0000':<29}\n")
    assert "NTP" in doctor(synced, expect=1)["clock"]["do"]


def test_what_git_would_publish_is_told_and_gitignore_is_only_added_to(synced):
    synced.git("init", "--quiet", where="velma")
    ignored = synced.folder / "velma/.gitignore"
    ignored.write_text("mine\n")
    assert doctor(synced, expect=1)["ignore"]["level"] == "warning"
    doctor(synced, "--fix")
    assert ignored.read_text().startswith("mine\n")
    assert "/.fleet/" in ignored.read_text().splitlines()
    (synced.folder / "velma/agents/reviewer.py").write_text("the project's own source")
    synced.git("add", "--force", "agents", ".fleet/clock", where="velma")
    found = json.loads(synced.run("velma", "doctor", "--json", expect=1).stdout)["findings"]
    told = {f["what"]: f["do"] for f in found if f["check"] == "ignore"}
    assert [what.split(",")[0] for what in told] == [
        "git tracks .fleet/clock",
        "git tracks agents/velma/corrections.md",
    ]
    assert not [do for do in told.values() if " -r " in do]
    assert "reviewer" not in json.dumps(told)


def test_a_folder_that_an_earlier_fleet_hid_from_git_is_not_hidden_any_more(synced):
    synced.git("init", "--quiet", where="velma")
    ignored = synced.folder / "velma/.gitignore"
    note = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
    ignored.write_text(f"{note}\n/.fleet/\n/agents/\n/clan-learnings/\n")
    ignored.write_text(f"{note}\n/.fleet/\n")
    synced.run("velma", "init")
    assert "ignore" not in doctor(synced)
    (synced.folder / "velma/agents/reviewer.py").write_text("the project's own source")
    synced.git("add", ".", where="velma")
    staged = synced.git("diff", "--cached", "--name-only", where="velma").split()
    assert set(staged) == {".gitignore", "agents/reviewer.py", "fleet.toml"}


def test_withheld_lines_are_told(synced):
    shard = json.loads(synced.run("velma", "status", "--json").stdout)["replica"]
    path = clan(synced) / f"patterns.d/{shard}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        column = {"first": {"text": f"use {TOKEN}"}}
        file.write(json.dumps({"id": "p-3f9c1a2b7d4e5f60", "w": {shard: column}}) + "\n")
    done = synced.run("velma", "doctor", "--json", expect=1)
    assert "secret" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


def test_the_extra_for_search_by_meaning_is_named_and_its_endpoint_asked_for(stage):
    stage.join("velma")
    assert "`fleet doctor` says how" in stage.run("other", "init", "--agent", "tank").stdout
    assert "'.[semantic]'" in doctor(stage)["semantic"]["do"]
    config = stage.folder / "velma/fleet.toml"
    config.write_text(
        config.read_text().replace("[semantic]\n", '[semantic]\nurl = "https://user:word@example.org/v1"\n')
    )
    found = doctor(stage, expect=1)["semantic"]  # no address may have a login in it
    assert "nobody on this machine agreed" in found["what"]
    assert "word" not in found["what"].replace("words", "")
    stage.run("velma", "init", "--yes")
    assert "agreed" not in doctor(stage, expect=1)["semantic"]["what"]
    config.write_text(config.read_text().replace("[semantic]\n", "[semantic]\noff = true\n"))
    assert doctor(stage, expect=1)["semantic"]["level"] == "ok"


def test_without_git_the_doctor_still_works(synced):
    assert doctor(synced, expect=1, PATH="/nonexistent")["git"]["level"] == "error"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ("exit 1", "git does not run: `git --version` shows why"),
        ("echo git version 2.25.1", "git version 2.25.1 lacks what a sync needs"),
        ("echo git version 2.29.0", ""),
        ("echo git version 3.0", ""),
    ],
)
def test_a_git_that_does_not_run_or_is_too_old_is_told(synced, answer, what):
    git = synced.folder / "bin/git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\n{answer}\n")
    git.chmod(0o755)
    told = doctor(synced, expect=None, PATH=f"{git.parent}:/usr/bin:/bin")["git"]
    assert (told["what"], told["level"]) == ((what, "error") if what else (answer[5:], "ok"))


def test_files_that_cannot_be_read_or_written_are_told(synced, monkeypatch):
    # Root may do everything, so the system's answer is held instead.
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "patterns.jsonl")
    workspace = Workspace(synced.folder / "velma")
    found = {each.check: each for each in app_doctor._access(workspace)}
    workspace.close()
    assert found["rights"].level == "error"
    assert "patterns.jsonl" in found["rights"].what


def test_a_file_that_another_command_removes_meanwhile_is_no_trouble(synced, monkeypatch):
    passing = synced.folder / "velma/.fleet/state-8.db.check-wal"
    passing.write_bytes(b"")

    def gone_by_then(path: Path, mode: int) -> bool:
        passing.unlink(missing_ok=True)
        return path != passing

    monkeypatch.setattr(os, "access", gone_by_then)
    workspace = Workspace(synced.folder / "velma")
    found = {each.check: each for each in app_doctor._access(workspace)}
    workspace.close()
    assert found["rights"].level == "ok"


def test_a_full_disk_is_told(synced, monkeypatch):
    # No test can fill a disk, so the system's answer is held instead.
    monkeypatch.setattr(app_doctor.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 4096, 4096))
    workspace = Workspace(synced.folder / "velma")
    found = {each.check: each for each in app_doctor._access(workspace)}
    workspace.close()
    assert found["space"].level == "error"
    assert "4,096 bytes are free" in found["space"].what


def test_a_disk_with_room_for_all_that_fleet_writes_is_not_called_full(synced, monkeypatch):
    free = 3_800_000
    monkeypatch.setattr(app_doctor.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(4 * 10**6, 2 * 10**5, free))
    found = {each["check"]: each for each in json.loads(synced.run("velma", "doctor", "--json").stdout)["findings"]}
    assert "space" not in found


def test_a_local_database_on_a_full_disk_is_called_that_and_not_damaged(synced):
    workspace = Workspace(synced.folder / "velma")
    workspace.state.connection().execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskError, match=r"Lessons are safe.* The disk is full, or") as told:
        workspace.state.put(note="x" * 100_000)
    workspace.close()
    assert "rename" not in str(told.value)


def test_a_sync_that_failed_is_told_until_one_succeeds(synced):
    assert "sync" not in doctor(synced)
    hook = synced.remote / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho protected >&2\nexit 1\n")
    hook.chmod(0o755)
    synced.correct("velma", "Pin the version of every action")
    synced.run("velma", "sync", expect=3)
    found = doctor(synced, expect=1)["sync"]
    assert found["level"] == "warning"
    assert "protected" in found["what"]
    hook.unlink()
    synced.run("velma", "sync")
    assert "sync" not in doctor(synced)


def test_a_missing_configuration_is_told_as_that_and_not_as_a_lack_of_rights(synced):
    (synced.folder / "velma/fleet.toml").unlink()
    found = doctor(synced, expect=1)
    assert found["rights"]["level"] == "ok"
    assert "fleet.toml is not there" in found["config"]["what"]


def test_a_link_is_told(synced):
    (clan(synced) / "members.toml").symlink_to("/etc/hostname")
    assert "members.toml" in doctor(synced, expect=1)["links"]["what"]


@pytest.mark.parametrize(
    ("switches", "which"),
    [
        ({"w/settings.json": True}, "the project's settings"),
        ({"w/settings.local.json": True, "w/settings.json": False}, "the project's local settings"),
        ({"user/settings.json": True}, "the user's settings"),
        ({"w/settings.local.json": False, "user/settings.json": True}, ""),
    ],
)
def test_settings_that_turn_every_hook_off_are_told(synced, switches, which):
    at = {"w": synced.folder / "velma/.claude", "user": synced.folder / ".claude"}
    synced.run("velma", "install", "claude-code")
    for name, is_off in switches.items():
        folder, _, file = name.partition("/")
        at[folder].mkdir(exist_ok=True)
        path = at[folder] / file
        settings = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(settings | {"disableAllHooks": is_off}))
    told = doctor(synced, expect=None)["hooks"]
    assert ("turns every hook off" in told["what"]) is bool(which)
    assert which in told["what"]
    assert told["level"] == "warning" or not which


def test_no_advice_destroys_anything():
    told = inspect.getsource(app_doctor) + json.dumps(app_doctor._texts())
    for word in ("rm -r", "`rm ", "reset --hard", "clean -f", "delete the", "remove the file"):
        assert word not in told, word


def test_nobody_waits_while_the_database_is_compared_and_what_is_written_meanwhile_is_no_fault(synced, monkeypatch):
    made, written = Ingest._made, list[str]()

    @contextmanager
    def and_somebody_writes(self: Ingest, suffix: str, **how) -> Iterator[Database]:
        with made(self, suffix, **how) as fresh:
            if suffix == ".check" and not written:
                with closing(Workspace(synced.folder / "velma")) as other, other.locked(0):
                    written.append(other.replica_name("velma"))
                    line = edits.confirm(Line(pattern_id("Quote")), written[0], other.wall(), fields={"text": "Quote"})
                    Writer(other, written[0]).append(PATTERNS, [line])
                    other.db.refresh()
            yield fresh

    monkeypatch.setattr(Ingest, "_made", and_somebody_writes)
    assert doctor(synced)["rows"]["level"] == "ok"
    assert written


def test_what_is_written_and_looked_at_meanwhile_is_no_fault(stage):
    stage.join("velma", "w")
    for number in range(20):
        stage.correct("w", f"Lesson {number} is about {number * number} things")
    folder, environment = stage.folder / "w", stage.environment()
    words = ("--wrong", "w", "--right", "r", "--pattern")
    for number in range(2):
        more = [["correct", *words, f"Lesson {number}.{each}"] for each in range(5)]
        commands = [["doctor", "--json"], ["doctor", "--json"], ["doctor", "--json"], *more]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "fleet", *command], cwd=folder, env=environment, stdout=subprocess.PIPE
            )
            for command in commands
        ]
        for process, command in zip(running, commands, strict=True):
            told = json.loads(process.communicate()[0]) if command[0] == "doctor" else {"findings": []}
            assert not [each for each in told["findings"] if each["level"] in ("warning", "error")]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("share", "branch", "a b"),
        ("sleep", "zone", "Europe/Berlim"),
        ("live", "url", "http://x"),
        ("notify", "webhook", "notanurl"),
        ("reflect", "url", "nope"),
    ],
)
def test_a_value_that_config_set_refuses_is_named_where_the_file_has_it(stage, section, key, value):
    stage.join("velma")
    stage.correct("velma", "Quote every path")
    toml = stage.folder / "velma/fleet.toml"
    lines = [each for each in toml.read_text().splitlines() if not each.startswith(f"{key} =")]
    toml.write_text("\n".join(lines).replace(f"[{section}]", f'[{section}]\n{key} = "{value}"') + "\n")
    assert f"{section}.{key} cannot be that" in stage.run("velma", "doctor", expect=1).stdout
    if key == "branch":
        assert "'a b' is no name of a branch" in stage.run("velma", "sync", expect=2).stderr


def test_status_names_the_replica_of_this_machine_in_a_folder_of_two(synced):
    """As where a folder is used in a container and outside of it, in turns."""
    mine = json.loads(synced.run("velma", "status", "--json").stdout)["replica"]
    with (synced.folder / "velma/.fleet/replica.toml").open("a") as register:
        minted = "2026-03-15T14:30:00.000Z-0000"
        register.write(
            f'\n[[replica]]\nname = "velma.0badc0de"\nmachine = "f00"\nfolder = "f00"\nminted = "{minted}"\n'
        )
    assert json.loads(synced.run("velma", "status", "--json").stdout)["replica"] == mine
