"""The first commands in a large clan whose search index is missing: they say what they always say, and nobody waits."""

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import pytest

from benchmarks.data import edition
from fleet.keep.index import Index
from tests.cli.conftest import Stage
from tests.faults.test_full_disk import mounted
from tests.faults.test_read_only import allow

LESSON = "Quote every path that comes from user input before a shell script reads it"
SIMILAR = "Quote each path which comes from user input before some shell script reads it"
PATTERNS = 16_000  # 11 MB: so much that nobody waits for it
DELIMITER = re.compile(r"fleet-[0-9a-f]{16}")


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Stage:
    """A large clan in ``w``, indexed, with a lesson that another one is near to."""
    stage = Stage(tmp_path_factory.mktemp("large"))
    stage.run("w", "init", "--agent", "velma")
    (stage.folder / "w/clan-learnings").mkdir(exist_ok=True)
    (stage.folder / "w/clan-learnings/patterns.jsonl").write_bytes(edition(PATTERNS))
    stage.correct("w", LESSON)
    stage.run("w", "discover", "--type", "tip", "--problem", "a finding", "--solution", "s")
    stage.run("w", "sync")
    assert is_indexed(stage)
    return stage


@pytest.fixture
def unindexed(large) -> Stage:
    forget(large)
    return large


def database(stage: Stage, where: str = "w"):
    return closing(sqlite3.connect(stage.folder / where / ".fleet/state.db", isolation_level=None))


def forget(stage: Stage, where: str = "w") -> None:
    """Take the index away, and what was made ready from it."""
    with database(stage, where) as connection:
        Index(connection).drop()
    for path in (stage.folder / where / ".fleet/ready").glob("*"):
        path.unlink()


def is_indexed(stage: Stage, where: str = "w") -> bool:
    with database(stage, where) as connection:
        return bool(Index(connection).generation())


def lesson_id(stage: Stage) -> str:
    return json.loads(stage.run("w", "search", LESSON, "--json", "-n", "1").stdout)["results"][0]["id"]


def said(stage: Stage, *words: str) -> str:
    return DELIMITER.sub("fleet-", stage.run("w", *words).stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("start",),
        ("start", "--json"),
        ("gossip",),
        ("gossip", "--json"),
        ("show", "ID"),
        ("show", "ID", "--json"),
        ("edit", "ID"),
        ("status",),
        ("status", "--json"),
        ("stats",),
        ("stats", "--json"),
        ("patterns", "-n", "7"),
        ("patterns", "-n", "7", "--json"),
        ("patterns", "--all", "-n", "3"),
        ("handover",),
        ("learn", "--waiting"),
    ],
    ids=" ".join,
)
def test_what_is_read_is_what_the_index_says(large, words):
    pattern = lesson_id(large)
    asked = [pattern if word == "ID" else word for word in words]
    assert is_indexed(large)
    for path in (large.folder / "w/.fleet/ready").glob("*"):
        path.unlink()
    with_it = said(large, *asked)
    forget(large)
    assert said(large, *asked) == with_it
    assert not is_indexed(large)


def test_what_is_written_is_written_and_near_lessons_are_told(large):
    lesson = lesson_id(large)
    assert is_indexed(large)
    words = ("correct", "--wrong", "w", "--right", "r", "--json", "--pattern")
    before = json.loads(large.run("w", *words, f"{SIMILAR}, always").stdout)
    forget(large)
    after = json.loads(large.run("w", *words, f"{SIMILAR}, ever").stdout)
    assert before["near"][0] == {"id": lesson, "text": LESSON, "score": before["near"][0]["score"], "verdict": "same"}
    assert [each["id"] for each in after["near"][:2]] == [before["id"], lesson]
    one = after["id"]
    large.run("w", "feedback", one, "--helped")
    large.run("w", "edit", one, "--set", "category=shell")
    large.run("w", "merge", one, before["id"], "--force")
    large.run("w", "unmerge", one)
    for each in (one, before["id"]):
        large.run("w", "retire", each)
    large.run("w", "restore", one)
    large.run("w", "retire", one)
    large.run("w", "discover", "--type", "tip", "--problem", "another", "--solution", "s")
    assert not is_indexed(large)
    large.run("w", "sync")
    assert is_indexed(large)
    shown = json.loads(large.run("w", "show", one, "--json").stdout)
    assert (shown["state"], shown["category"], shown["helped"]) == ("retired", "shell", 1)


def test_an_oracle_does_not_wait_either_and_says_so(unindexed):
    done = unindexed.run("w", "mutate", "M7", "--failed", LESSON, "--switch", "ask", "--why", "stuck")
    assert "was not looked for" in done.stderr
    assert "`fleet sync`" in done.stderr
    assert not is_indexed(unindexed)


def test_doctor_tells_of_an_index_that_is_missing(unindexed):
    assert "the search index is not made yet" in unindexed.run("w", "doctor").stdout
    unindexed.run("w", "search", "deploy")
    assert "search index" not in unindexed.run("w", "doctor").stdout


@pytest.mark.parametrize(
    "words", [("sync",), ("search", "deploy"), ("import", "lessons.jsonl"), ("poll", "--local")], ids=" ".join
)
def test_who_is_expected_to_take_a_while_makes_it(unindexed, words):
    line = {"id": "p-00000000000000aa", "set": {"text": "an imported lesson"}}
    (unindexed.folder / "w/lessons.jsonl").write_text(json.dumps(line) + "\n")
    with suppress(FileNotFoundError):
        (unindexed.folder / "w/.fleet/sidecar.json").unlink()
    unindexed.correct("w", "Something is due")
    unindexed.run("w", *words)
    assert is_indexed(unindexed)


def test_a_hook_does_not_wait_and_leaves_it_to_the_background(unindexed):
    payload = {"session_id": "s1", "hook_event_name": "SessionStart", "source": "startup"}
    payload |= {"cwd": str(unindexed.folder / "w"), "transcript_path": str(unindexed.folder / "t.jsonl")}
    done = unindexed.run("w", "hook", "SessionStart", text=json.dumps(payload))
    assert "are being made ready" in done.stdout
    until = time.monotonic() + 60
    while not list((unindexed.folder / "w/.fleet/ready").glob("start-*")) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_indexed(unindexed)
    assert "Quote every path" in said(unindexed, "search", LESSON)


def test_a_sync_and_everyday_commands_at_once(unindexed):
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "sync"],
        cwd=unindexed.folder / "w",
        env=unindexed.environment(),
        stdout=subprocess.DEVNULL,
    ) as sync:
        logged = [unindexed.correct("w", f"Logged while somebody makes the index, {number}") for number in range(4)]
        unindexed.run("w", "status")
        assert sync.wait(60) == 0
    assert is_indexed(unindexed)
    for each in logged:
        assert json.loads(unindexed.run("w", "show", each, "--json").stdout)["seen"] == 1
    with database(unindexed) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_disk_that_can_only_be_read(large, tmp_path):
    disk, stage = tmp_path / "disk", Stage(tmp_path)
    disk.mkdir()
    is_mount = os.geteuid() == 0
    if is_mount and not mounted(disk, "80m"):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        stage.run("disk/w", "init", "--agent", "velma")
        (disk / "w/clan-learnings").mkdir(exist_ok=True)
        (disk / "w/clan-learnings/patterns.jsonl").write_bytes(edition(PATTERNS))
        stage.correct("disk/w", LESSON)
        allow(disk, may_write=False, is_mount=is_mount)
        one = json.loads(stage.run("disk/w", "patterns", "-n", "1", "--json").stdout)["patterns"][0]["id"]
        assert json.loads(stage.run("disk/w", "show", one, "--json").stdout)["id"] == one
        assert "LESSON" not in stage.run("disk/w", "start").stdout
        assert "16,001 lessons" in stage.run("disk/w", "status").stdout
        assert LESSON in stage.run("disk/w", "search", LESSON).stdout
    finally:
        allow(disk, may_write=True, is_mount=is_mount)
        if is_mount:
            subprocess.run(["umount", "--lazy", disk], check=True)


# --- on a terminal ---------------------------------------------------------------------------------------------------


def on_a_terminal(stage: Stage, *words: str, stream: str) -> str:
    """Run a command with one of its streams on a terminal; return what it wrote there."""
    ours, theirs = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # nobody writes to it any more
            while part := os.read(ours, 65_536):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    done = subprocess.run(
        [sys.executable, "-m", "fleet", *words],
        cwd=stage.folder / "w",
        env=stage.environment(TERM="xterm", COLUMNS="120"),
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
        **streams,
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert done.returncode == 0
    return b"".join(parts).decode()


@pytest.mark.parametrize("words", [("sync",), ("search", "deploy")], ids=" ".join)
def test_a_bar_tells_that_lessons_are_indexed(unindexed, words):
    assert "Indexing the clan's lessons" in on_a_terminal(unindexed, *words, stream="stderr")
    assert "Indexing" not in on_a_terminal(unindexed, *words, stream="stderr")


def test_a_terminal_is_not_flooded(large):
    shown = on_a_terminal(large, "patterns", stream="stdout")
    assert len(shown.splitlines()) == 100
    assert len(on_a_terminal(large, "patterns", "-n", "120", stream="stdout").splitlines()) == 120
    piped = large.run("w", "patterns").stdout.splitlines()
    assert len(piped) > PATTERNS
    assert shown.splitlines() == piped[:100]
    few = large.run("w", "patterns", "-n", "5")
    assert few.stdout.splitlines() == piped[:5]
    assert f"{len(piped) - 5:,} more" in few.stderr
