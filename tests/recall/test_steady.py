"""No write is missed because a file system's clock had not ticked since the look before it."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fleet.cli.starting import session_start
from fleet.keep import config
from fleet.keep.workspace import Workspace, World
from fleet.recall import ready, steady
from tests.cli.conftest import Stage

MARK = "tick"
LOG = "agents/velma/memory.md"
FINE = 1_795_219_200_123_456_789
COARSE = 1_795_219_200_000_000_000


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path, World(durable=False))
    made.disk.replace(tmp_path / LOG, b"- version A\n")
    yield made
    made.close()


class Stopped:
    """A file system whose clock stands still: what is written bears ``at``, and the mark ``at`` and what is ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *ahead_ns: int) -> None:
        self.at = at
        self.ahead = list(ahead_ns)
        self.asked = 0
        self._stat = os.stat
        monkeypatch.setattr(os, "stat", self.stat)

    def stat(self, path, *arguments, **named):
        seen = self._stat(path, *arguments, **named)
        at = self.at
        if str(path).endswith(f"/{MARK}"):
            self.asked += 1
            at += self.ahead[min(self.asked, len(self.ahead)) - 1]
        return _Stamped(seen, at)


class _Stamped:
    def __init__(self, seen: os.stat_result, at: int) -> None:
        self._seen = seen
        self.st_mtime_ns = self.st_ctime_ns = at

    def __getattr__(self, name: str) -> object:
        return getattr(self._seen, name)


def looks(workspace):
    return steady.looks(workspace, lambda: [LOG, "nothing/there"])


def test_a_rewrite_within_the_tick_of_the_look_is_never_missed(workspace, monkeypatch):
    clock = Stopped(monkeypatch, COARSE, 0)
    assert "version A" in session_start(workspace, "velma")
    (workspace.root / LOG).open("r+").write("- version B\n")
    assert ready.text(str(workspace.root), "velma") is None, "it would still say version A"
    clock.ahead = [2_000_000_000]
    session_start(workspace, "velma")
    assert "version B" in ready.text(str(workspace.root), "velma")


def test_what_was_made_before_the_tick_stays_good_while_nothing_changes(workspace, monkeypatch):
    Stopped(monkeypatch, COARSE, 2_000_000_000)
    session_start(workspace, "velma")
    monkeypatch.undo()
    Stopped(monkeypatch, COARSE, 0)
    assert ready.text(str(workspace.root), "velma")


def test_the_next_tick_of_a_fine_clock_is_waited_for_and_that_of_a_coarse_one_is_not(workspace, monkeypatch):
    clock = Stopped(monkeypatch, FINE, 0, 0, 4_000_000)
    assert looks(workspace)[LOG][1] == FINE
    assert looks(workspace)["nothing/there"] == []
    monkeypatch.undo()
    clock = Stopped(monkeypatch, COARSE, 0)
    assert looks(workspace) is None
    assert clock.asked == 1


def test_a_clock_that_never_ticks_is_not_waited_for_for_ever(workspace, monkeypatch):
    Stopped(monkeypatch, FINE, 0)
    began = time.monotonic()
    assert looks(workspace) is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("ahead_s", [0.001, 2.0])
def test_a_stamp_a_little_ahead_of_the_clock_is_in_doubt(workspace, monkeypatch, ahead_s):
    Stopped(monkeypatch, COARSE, -int(ahead_s * 1e9))
    assert looks(workspace) is None


def test_a_stamp_far_ahead_was_set_and_keeps_nobody_from_starting_quickly(workspace, monkeypatch):
    Stopped(monkeypatch, COARSE, -3600 * 10**9)
    assert looks(workspace)[LOG]


def test_a_file_that_comes_while_the_others_are_looked_at_is_looked_at_too(workspace):
    lists = [[LOG], [LOG, "fleet.toml"], [LOG, "fleet.toml"], [LOG, "fleet.toml"]]
    assert looks(workspace).keys() == {LOG, "nothing/there"}
    assert steady.looks(workspace, lambda: lists.pop(0)).keys() == {LOG, "fleet.toml"}


def test_where_nothing_can_be_written_nothing_counts_as_seen(workspace):
    folder = workspace.root / ready.FOLDER
    folder.mkdir(parents=True)
    (folder / MARK).mkdir()
    assert looks(workspace) is None


def test_a_time_that_a_program_set_back_hides_no_write(workspace):
    memory = workspace.root / LOG
    before = memory.stat()
    session_start(workspace, "velma")
    assert ready.text(str(workspace.root), "velma")
    with memory.open("r+") as file:
        file.write("- version B\n")
    os.utime(memory, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ready.text(str(workspace.root), "velma") is None


def test_on_a_disk_that_counts_in_seconds_a_session_starts_with_what_the_memory_says(tmp_path: Path):
    stage = Stage(tmp_path)
    disk = tmp_path / "slow"
    if not mounted(disk, tmp_path / "slow.img"):
        pytest.skip("no file system that counts in seconds can be mounted here")
    try:
        stage.run("slow/w", "init", "--agent", "velma")
        memory = disk / "w" / LOG
        memory.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(5):
            memory.write_text("- version A\n")
            time.sleep(1.02 - time.time() % 1)
            with memory.open("r+") as file:
                file.write("- version B\n")
            stage.run("slow/w", "start")
            with memory.open("r+") as file:
                file.write("- version C\n")
            if int(time.time()) == int(memory.stat().st_mtime) and time.time() % 1 < 0.9:
                break
        time.sleep(1.2)
        assert "version C" in stage.run("slow/w", "start").stdout
        assert "version C" in ready.text(str(disk / "w"), "velma")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def mounted(folder: Path, image: Path) -> bool:
    """Mount a small ext2 with short inodes, which have no room for parts of a second, if this machine lets us."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext2") is None:
        return False
    folder.mkdir()
    image.write_bytes(bytes(8 * 2**20))
    for words in (["mkfs.ext2", "-q", "-I", "128", image], ["mount", "-o", "loop", image, folder]):
        if subprocess.run(words, capture_output=True, check=False).returncode:
            return False
    return True
