"""The first commands in a large clan whose database is missing: they say what they always say, and lose nothing."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.faults.test_full_disk import mounted
from tests.faults.test_read_only import allow

LESSON = "Quote every path that comes from user input before a shell script reads it"
SIMILAR = "Quote each path which comes from user input before some shell script reads it"
PATTERNS = 1_600  # 11 MB: so much that nobody waits for it who is in a hurry
SOME = 120  # enough where it is all the same how long the database takes
DELIMITER = re.compile(r"fleet-[0-9a-f]{16}")


def edition(patterns: int) -> bytes:
    """Return an edition of so many patterns of other machines."""
    rows = []
    for number in range(patterns):
        first = {
            "correct": f"Do it the other way, {number}. And look twice.",
            "log": "x" * 6_800,
            "text": f"Lesson {number} of many",
        }
        column = {"add": f"2026-11-20T00:00:00.{number % 1000:03d}Z-0000", "first": first, "n": {"seen": 1}}
        line = {"id": f"p-{number:016x}", "w": {f"tank.{number % 7:08x}": column}}
        rows.append(json.dumps(line, separators=(",", ":"), sort_keys=True))
    return ("\n".join(rows) + "\n").encode()


def clan(folder: Path, patterns: int) -> Shell:
    """Return a clan in ``w`` with its database, and a lesson that another one is near to."""
    stage = Shell(folder)
    stage.run("w", "init", "--agent", "velma")
    (stage.folder / "w/clan-learnings/patterns.jsonl").write_bytes(edition(patterns))
    stage.correct("w", LESSON)
    stage.run("w", "discover", "--type", "tip", "--problem", "a finding", "--solution", "s")
    stage.run("w", "sync")
    assert databases(stage)
    return stage


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Shell:
    return clan(tmp_path_factory.mktemp("large"), PATTERNS)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Shell:
    return clan(tmp_path_factory.mktemp("small"), SOME)


@pytest.fixture
def unindexed(large) -> Shell:
    forget(large)
    return large


def databases(stage: Shell) -> list:
    return list((stage.folder / "w/.fleet").glob("state-*.db"))


def forget(stage: Shell) -> None:
    """Take the database away, and what was made ready from it."""
    for path in [*(stage.folder / "w/.fleet").glob("state-*"), *(stage.folder / "w/.fleet/ready").glob("*")]:
        path.unlink()


def lesson_id(stage: Shell) -> str:
    return json.loads(stage.run("w", "search", LESSON, "--json", "-n", "1").stdout)["results"][0]["id"]


def said(stage: Shell, *words: str) -> str:
    return DELIMITER.sub("fleet-", stage.run("w", *words).stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("start",),
        ("gossip", "--json"),
        ("show", "ID", "--json"),
        ("edit", "ID"),
        ("status", "--json"),
        ("stats",),
        ("patterns", "-n", "7", "--json"),
        ("patterns", "--all", "-n", "3"),
        ("search", "twice", "-n", "5"),
        ("handover",),
        ("learn", "--waiting"),
    ],
    ids=" ".join,
)
def test_what_is_read_without_a_database_is_what_is_read_with_one(small, words):
    pattern = lesson_id(small)
    asked = [pattern if word == "ID" else word for word in words]
    with_it = said(small, *asked)
    forget(small)
    assert said(small, *asked) == with_it


def test_what_is_written_is_written_and_near_lessons_are_told(small):
    lesson = lesson_id(small)
    words = ("correct", "--wrong", "w", "--right", "r", "--json", "--pattern")
    before = json.loads(small.run("w", *words, f"{SIMILAR}, always").stdout)
    forget(small)
    after = json.loads(small.run("w", *words, f"{SIMILAR}, ever").stdout)
    assert before["near"][0]["id"] == lesson
    assert before["near"][0]["text"] == LESSON
    one = after["id"]
    for done in (
        ("feedback", one, "--helped"),
        ("edit", one, "--set", "category=shell"),
        ("merge", one, before["id"], "--force"),
        ("unmerge", one),
        ("retire", one),
        ("retire", before["id"]),
        ("restore", one),
        ("retire", one),
        ("discover", "--type", "tip", "--problem", "another", "--solution", "s"),
    ):
        forget(small)
        small.run("w", *done)
    forget(small)
    shown = json.loads(small.run("w", "show", one, "--json").stdout)
    assert (shown["state"], shown["category"], shown["helped"], shown["seen"]) == ("retired", "shell", 1, 1)


def test_a_session_starts_with_all_of_it(unindexed):
    payload = {"session_id": "s1", "hook_event_name": "SessionStart", "source": "startup"}
    payload |= {"cwd": str(unindexed.folder / "w"), "transcript_path": str(unindexed.folder / "t.jsonl")}
    done = unindexed.run("w", "hook", "SessionStart", text=json.dumps(payload))
    assert "Quote every path" in done.stdout
    until = time.monotonic() + 60
    while not list((unindexed.folder / "w/.fleet/ready").glob("start-*")) and time.monotonic() < until:
        time.sleep(0.05)
    assert databases(unindexed)
    assert "Quote every path" in said(unindexed, "search", LESSON)


def test_a_sync_and_everyday_commands_at_once(unindexed):
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "sync"],
        cwd=unindexed.folder / "w",
        env=unindexed.environment(),
        stdout=subprocess.DEVNULL,
    ) as sync:
        logged = [unindexed.correct("w", f"Logged while somebody reads it all, {number}") for number in range(4)]
        unindexed.run("w", "status")
        assert sync.wait(60) == 0
    counts = {each["id"]: each["seen"] for each in unindexed.patterns("w")["patterns"]}
    assert [counts[each] for each in logged] == [1] * len(logged)
    [path] = databases(unindexed)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_disk_that_can_only_be_read(large, tmp_path):
    disk, stage = tmp_path / "disk", Shell(tmp_path)
    disk.mkdir()
    is_mount = os.geteuid() == 0
    if is_mount and not mounted(disk, "20m"):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        stage.run("disk/w", "init", "--agent", "velma")
        (disk / "w/clan-learnings/patterns.jsonl").write_bytes(edition(SOME))
        stage.correct("disk/w", LESSON)
        stage.run("disk/w", "sync")
        for path in (disk / "w/.fleet").glob("state-*"):
            path.unlink()
        allow(disk, may_write=False, is_mount=is_mount)
        one = json.loads(stage.run("disk/w", "patterns", "-n", "1", "--json").stdout)["patterns"][0]["id"]
        assert json.loads(stage.run("disk/w", "show", one, "--json").stdout)["id"] == one
        assert stage.run("disk/w", "start").stdout
        assert f"{SOME + 1} lessons" in stage.run("disk/w", "status").stdout
        assert LESSON in stage.run("disk/w", "search", LESSON).stdout
    finally:
        allow(disk, may_write=True, is_mount=is_mount)
        if is_mount:
            subprocess.run(["umount", "--lazy", disk], check=True)


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_terminal_is_not_flooded(large):
    shown = large.on_a_terminal("patterns", NO_COLOR="1")
    assert len(shown.splitlines()) == 100
    assert len(large.on_a_terminal("patterns", "-n", "120", stream="stdout").splitlines()) == 120
    piped = large.run("w", "patterns").stdout.splitlines()
    assert len(piped) > PATTERNS
    assert shown.splitlines() == piped[:100]
    few = large.run("w", "patterns", "-n", "5")
    assert few.stdout.splitlines() == piped[:5]
    assert f"{len(piped) - 5:,} more" in few.stderr
