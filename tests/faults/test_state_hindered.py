"""What is machine-local cannot be written, or not even read: reading answers from the files, writing says why not."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fleet.model.errors import BusyError, FleetError
from fleet.model.line import NOTHING, Column
from fleet.model.withheld import BULK, Held, Withheld
from fleet.store import replica
from fleet.store.database import Database, Local
from fleet.store.trust import Trust
from tests.cli.conftest import Stage
from tests.faults.test_full_disk import fill, mounted
from tests.faults.test_sync import Bench

LESSON = "Look at the log before the code"
READING = (("search", "log"), ("patterns",), ("status",), ("start",))
AS_NOBODY_SPECIAL = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Root may read and write everywhere; without its capabilities it is a user like any other."""


class Plain(Stage):
    """Commands without root's rights to files of whatever mode."""

    before = AS_NOBODY_SPECIAL if os.geteuid() == 0 else ()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root's rights cannot be given up here")
    stage = Plain(tmp_path_factory.mktemp("plain"))
    stage.before = ()
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.run("velma", "search", "log")
    stage.keep()
    del stage.before
    return stage


@pytest.fixture
def plain(made: Plain) -> Plain:
    made.again()
    return made


def log_of(stage: Stage) -> bytes:
    return (stage.folder / "velma/agents/velma/corrections.md").read_bytes()


def test_a_database_that_may_not_be_read_is_done_without(plain):
    [state] = (plain.folder / "velma/.fleet").glob("state-*.db")
    state.chmod(0)
    for words in READING:
        done = plain.run("velma", *words)
        assert LESSON in done.stdout or words == ("status",)
    plain.correct("velma", "Logged all the same")
    assert f"cannot be read: .fleet/{state.name}" in plain.run("velma", "doctor", expect=1).stdout
    state.chmod(0o644)
    plain.run("velma", "sync")
    assert plain.seen("velma") == {LESSON: 1, "Logged all the same": 1}


def test_a_local_database_that_may_not_be_read_shares_nothing_and_logs_all_the_same(plain):
    state = plain.folder / "velma/.fleet/local.db"
    state.chmod(0)
    plain.correct("velma", "Logged all the same")
    done = plain.run("velma", "sync", expect=None)
    assert done.returncode
    assert "local.db" in done.stderr
    assert "Lessons are safe" in done.stderr
    state.chmod(0o644)
    plain.run("velma", "sync")
    assert plain.seen("velma") == {LESSON: 1, "Logged all the same": 1}


def test_a_folder_of_another_users_is_told_and_what_needs_it_not_still_works(plain):
    local, before = plain.folder / "velma/.fleet", log_of(plain)
    local.chmod(0)
    try:
        assert LESSON in plain.run("velma", "patterns").stdout
        assert LESSON in plain.run("velma", "search", "log").stdout
        for words in (("correct", "--wrong", "w", "--right", "r", "--pattern", "p"), ("sync",), ("compact",)):
            done = plain.run("velma", *words, expect=6)
            assert "Permission denied" in done.stderr
            assert "`fleet doctor`" in done.stderr
            assert not done.stdout
        assert "cannot be read: .fleet\n" in plain.run("velma", "doctor", expect=1).stdout
    finally:
        local.chmod(0o755)
    assert log_of(plain) == before
    plain.run("velma", "sync")
    assert plain.seen("velma") == {LESSON: 1}


def test_a_file_in_the_place_of_the_folder_hinders_no_search(plain):
    local = plain.folder / "velma/.fleet"
    local.rename(plain.folder / "kept")
    local.write_text("not a folder")
    assert LESSON in plain.run("velma", "search", "log").stdout
    local.unlink()
    (plain.folder / "kept").rename(local)
    plain.run("velma", "sync")


def test_where_macos_may_not_be_asked_for_its_id_the_host_name_serves(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(replica, "_first_line", lambda _: "")
    monkeypatch.setattr(subprocess, "run", refuse)
    assert replica._machine_id() == os.uname().nodename
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 1, "", ""))
    assert replica._machine_id() == os.uname().nodename


def test_no_command_needs_a_folder_for_temporary_files(plain, monkeypatch):
    monkeypatch.setattr(plain, "before", ())
    monkeypatch.setattr(plain, "in_processes", True)
    for words in (*READING, ("sync",), ("compact",), ("doctor",)):
        done = plain.run("velma", *words, TMPDIR=str(plain.folder / "nowhere"))
        assert "nowhere" not in done.stderr


@pytest.mark.parametrize("harm", ["full", "read-only"])
def test_an_index_that_cannot_be_brought_up_to_date_is_done_without(tmp_path, harm):
    bench, disk = Bench(tmp_path), tmp_path / "small"
    disk.mkdir()
    if not mounted(disk):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        bench.join("velma", "small/w")
        bench.correct("small/w", LESSON)
        bench.run("small/w", "search", "log")
        log = disk / "w/agents/velma/corrections.md"
        log.write_text(log.read_text() + "\n## 2026-11-21 — by hand\n**Pattern:** Another lesson\n")
        before = log.read_bytes()
        if harm == "full":
            fill(disk, 0)
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True, capture_output=True)
        for words in READING:
            done = bench.run("small/w", *words)
            assert LESSON in done.stdout or words == ("status",)
        if harm == "full":
            (disk / "filler").unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True, capture_output=True)
        assert log.read_bytes().startswith(before)  # a record may find room behind it
        bench.run("small/w", "sync")
        assert bench.seen("small/w") == {LESSON: 1, "Another lesson": 1}
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_local_database_that_a_full_disk_left_empty_is_read_as_none(tmp_path: Path) -> None:
    path = tmp_path / "local.db"
    path.touch()  # SQLite made the file, and had no room for its first page
    state = Local(path)
    assert state.get("sync_failed") == ""
    assert state.agreed("remote") == []
    assert path.stat().st_size == 0, "reading made no table"


def test_who_is_blocked_stays_so_when_the_decisions_cannot_be_read_for_a_moment(tmp_path: Path, monkeypatch) -> None:
    trust = Trust(Local(tmp_path / "local.db"))
    trust.block("mallory", "", [], "2026-11-20T00:00:00.000Z-0000")
    with monkeypatch.context() as broken:
        broken.setattr(Local, "connection", lambda _: Failing())
        with pytest.raises(FleetError, match="Lessons are safe"):
            Trust(Local(tmp_path / "local.db")).blocked()
    assert [each.name for each in trust.blocked()] == ["mallory"]


class Failing:
    """A connection whose disk fails."""

    def execute(self, *_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")


def test_a_decision_while_another_process_holds_the_database_is_told_to_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "local.db"
    Local(path).put(on="x")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(BusyError) as told:
        Trust(Local(path, wait_s=0.05)).block("mallory", "", [], "2026-11-20T00:00:00.000Z-0000")
    assert "run the command again" in told.value.again
    holder.close()


def test_of_however_many_parts_none_counts_that_is_left_out(tmp_path: Path) -> None:
    trust = Trust(Local(tmp_path / "local.db", durable=False))
    add = "2026-11-20T00:00:00.000Z-0000"
    part = Withheld(NOTHING, Column(rem={"tank.0000beef": add}))
    by = "mallory.0000000f"
    trust.withhold((Held(BULK, by, by, f"p-{n:016x}", part) for n in range(20_003)), add)
    assert len(trust.asked()) == 20_003


@pytest.mark.parametrize("kind", ["local", "state"])
def test_of_several_that_open_a_new_database_at_once_none_is_refused(tmp_path: Path, kind: str) -> None:
    failed: list[Exception] = []

    def opens(path: Path, together: threading.Barrier) -> None:
        together.wait()
        try:
            if kind == "local":
                Local(path, durable=False).put(on="x")
            else:
                Database(path, durable=False).open()
        except (FleetError, sqlite3.Error) as why:
            failed.append(why)

    for number in range(60):
        together = threading.Barrier(3)
        given = (tmp_path / f"{number}.db", together)
        if kind == "state":  # it is made aside, and comes without a log
            made = Database(given[0], durable=False)
            made.open().execute("PRAGMA journal_mode = DELETE")
            made.close()
        threads = [threading.Thread(target=opens, args=given) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
