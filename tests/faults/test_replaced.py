"""Fault 22 of FAULTS: files that are replaced or cut off while they are read. No line is lost, none is read half."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.test_sync import LESSON, SLOT, Bench, line

RENAMES = int(os.environ.get("FLEET_TEST_RENAMES", "1000"))
PAUSE_S = 0.004
OTHERS = [f"A lesson that nobody touches, number {number}" for number in range(200)]

# Saves one version of a file after the other as an editor does: a new file that takes the old one's place, or the old
# file emptied and written again. Each version is as long as the last, so that its size tells nothing.
EDITOR = """
import os, sys, time
path, how, count, pause_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
text = open(path + ".stencil", "rb").read()
sys.stdin.readline()
for number in range(1, count + 1):
    data = text.replace(b"@@@@@", b"%05d" % number)
    if how == "rename":
        with open(path + ".swp", "wb") as file:
            file.write(data)
        os.rename(path + ".swp", path)
    else:
        with open(path, "r+b", buffering=0) as file:
            file.truncate(0)
            for start in range(0, len(data), 4096):
                file.write(data[start:start + 4096])
    time.sleep(pause_s)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.run("w", "init", "--agent", "velma")
    return bench


@contextlib.contextmanager
def edited(path: Path, stencil: bytes, how: str, count: int = RENAMES, pause_s: float = PAUSE_S) -> Iterator[object]:
    """Let an editor save a file again and again; yields what tells whether it is still at it.

    ``@@@@@`` in the stencil stands for the number of the version.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stencil.replace(b"@@@@@", b"00000"))
    path.with_name(path.name + ".stencil").write_bytes(stencil)
    words = [sys.executable, "-I", "-c", EDITOR, str(path), how, str(count), str(pause_s)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as editor:
        assert editor.stdin is not None
        editor.stdin.write(b"\n")
        editor.stdin.flush()
        try:
            yield lambda: editor.poll() is None
        finally:
            editor.wait(60)
    assert editor.returncode == 0
    path.with_name(path.name + ".stencil").unlink()


def version_in(data: bytes, before: bytes) -> int:
    """Return the number of the version that stands behind these words, -1 for none."""
    _, found, rest = data.partition(before)
    return int(rest[:5]) if found and rest[:5].isdigit() else -1


NAMED = "The file as it was saved, version "
FILES = {"an edition": "patterns.jsonl", "a shard": f"patterns.d/{SLOT}.jsonl"}


def lines_of_everybody() -> bytes:
    rows = [line(text, slot="zerocool.00000001") for text in OTHERS]
    rows.insert(100, line(NAMED + "@@@@@", pattern="p-3f9c1a2b7d4e5f60"))
    return b"\n".join(rows) + b"\n"


@pytest.mark.parametrize("name", FILES.values(), ids=FILES.keys())
def test_whoever_reads_while_an_editor_saves_reads_one_version_whole_and_never_an_older_one(bench, name):
    path = bench.clan("w") / name
    reads = newer = 0
    bench.correct("w", LESSON)
    with edited(path, lines_of_everybody(), "rename") as is_going_on:
        last = -1
        while is_going_on() or reads == 0:
            saved = version_in(path.read_bytes(), NAMED.encode())
            found = bench.patterns("w")
            texts = {p["text"] for p in found["patterns"]}
            assert texts >= {*OTHERS, LESSON}, "a line that stood there all the time was not read"
            assert found["refused"] == 0, "a line was read half"
            [version] = [version_in(text.encode(), NAMED.encode()) for text in texts - {*OTHERS, LESSON}]
            assert version >= saved, "what was replaced was taken for what is there"
            newer += version > last
            last = version
            reads += 1
    assert newer > 5, "versions went by"
    assert bench.seen("w").keys() == {*OTHERS, LESSON, NAMED + f"{RENAMES:05}"}
    assert bench.status("w")["refused"] == 0


@pytest.mark.parametrize("name", FILES.values(), ids=FILES.keys())
def test_a_file_that_is_cut_off_and_written_again_while_it_is_read_is_read_whole_in_the_end(bench, name):
    """Whoever reads an empty file reads an empty file; but nothing breaks, and no half is believed for good."""
    path = bench.clan("w") / name
    bench.correct("w", LESSON)
    known = {*OTHERS, LESSON}
    with edited(path, lines_of_everybody(), "truncate", RENAMES // 4) as is_going_on:
        while is_going_on():
            for command in ("patterns", "start", "search", "gossip"):
                words = [command, "awk"] if command == "search" else [command]
                bench.run("w", *words)
            texts = {p["text"] for p in bench.patterns("w")["patterns"]}
            assert LESSON in texts
            assert all(version_in(text.encode(), NAMED.encode()) >= 0 for text in texts - known), "half a text"
    assert bench.seen("w").keys() == {*known, NAMED + f"{RENAMES // 4:05}"}
    assert len(bench.run("w", "search", "nobody", "--json").stdout) > 100


def test_what_is_logged_while_an_editor_saves_the_edition_counts_once_each(bench):
    path = bench.clan("w") / "patterns.jsonl"
    logged = 0
    with edited(path, lines_of_everybody(), "rename") as is_going_on:
        while is_going_on():
            logged += 1
            bench.correct("w", LESSON)
            if logged % 5 == 0:
                bench.correct("w", f"Logged as entry {logged}")
    found = bench.seen("w")
    assert found[LESSON] == logged
    assert found.keys() == {
        *OTHERS,
        LESSON,
        NAMED + f"{RENAMES:05}",
        *(f"Logged as entry {n}" for n in range(5, logged + 1, 5)),
    }
    bench.run("w", "sync")
    assert bench.seen("w") == found


# Moves one line from a shard to the edition and back, as compaction does: at every moment it stands in one of them.
MOVER = """
import os, sys, time
folder, shard, count, pause_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
line, others = (open(os.path.join(folder, name), "rb").read() for name in ("line", "others"))


def put(name, data):
    path = os.path.join(folder, name)
    with open(path + ".swp", "wb") as file:
        file.write(data)
    os.rename(path + ".swp", path)


for number in range(count):
    put("patterns.jsonl", others + line)
    os.unlink(os.path.join(folder, shard))
    time.sleep(pause_s)
    put(shard, line)
    put("patterns.jsonl", others)
    time.sleep(pause_s)
"""


def test_a_line_that_moves_from_a_shard_to_the_edition_while_both_are_read_never_falls_between(bench):
    clan, shard = bench.clan("w"), f"patterns.d/{SLOT}.jsonl"
    (clan / shard).parent.mkdir(parents=True, exist_ok=True)
    (clan / "line").write_bytes(line(LESSON) + b"\n")
    (clan / "others").write_bytes(lines_of_everybody())
    (clan / shard).write_bytes(line(LESSON) + b"\n")
    (clan / "patterns.jsonl").write_bytes(lines_of_everybody())
    reads = 0
    words = [sys.executable, "-I", "-c", MOVER, str(clan), shard, str(max(1, RENAMES // 20)), "0.05"]
    with subprocess.Popen(words) as mover:
        while mover.poll() is None:
            assert LESSON in bench.seen("w"), f"read {reads}"
            reads += 1
    assert mover.returncode == 0
    assert reads > 5


def test_two_saves_within_one_tick_of_the_clock_are_not_taken_for_one(bench):
    """The same size, perhaps the same inode, and a time that stands still: only the bytes differ."""
    path = bench.clan("w") / "patterns.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    other = path.with_name("other")
    for number in range(50):
        for half in (0, 1):
            other.write_bytes(line(f"Version {number:03} {half}", pattern="p-3f9c1a2b7d4e5f60") + b"\n")
            other.rename(path)
            assert bench.seen("w").keys() == {f"Version {number:03} {half}"}


# --- the log --------------------------------------------------------------------------------------------------------


def entry(lesson: str, wrong: str = "w") -> str:
    return f"\n## 2026-01-01 — t\n**Wrong:** {wrong}\n**Right:** r\n**Pattern:** {lesson}\n"


def test_an_editor_that_saves_its_older_copy_of_the_log_takes_no_lesson_away(bench):
    bench.correct("w", "The first lesson")
    log = bench.folder / "w/agents/velma/corrections.md"
    opened = log.read_text()
    bench.correct("w", "The second lesson")
    bench.correct("w", "The first lesson")
    swap = log.with_name(".corrections.md.swp")
    swap.write_text(opened + entry("By hand"))
    swap.rename(log)
    wanted = {"The first lesson": 2, "The second lesson": 1}
    assert wanted.items() <= bench.seen("w").items()
    bench.run("w", "sync")
    assert bench.seen("w") == wanted | {"By hand": 1}
    bench.correct("w", "The second lesson")
    bench.correct("w", "The first lesson")
    assert bench.seen("w") == {"The first lesson": 3, "The second lesson": 2, "By hand": 1}


def test_a_log_that_an_editor_saves_all_the_time_counts_each_entry_once(bench):
    """The editor holds its copy and saves it again and again, with one more word in its own entry each time."""
    bench.correct("w", LESSON)
    log = bench.folder / "w/agents/velma/corrections.md"
    stencil = log.read_bytes() + entry("By hand", wrong="x @@@@@").encode()
    with edited(log, stencil, "rename", RENAMES // 4) as is_going_on:
        while is_going_on():
            assert bench.seen("w")[LESSON] == 1
            assert bench.run("w", "start").stdout
    bench.run("w", "sync")
    assert bench.seen("w") == {LESSON: 1, "By hand": 1}


def test_a_log_that_is_gone_for_a_moment_starts_nothing_anew(bench):
    for _ in range(3):
        bench.correct("w", LESSON)
    log = bench.folder / "w/agents/velma/corrections.md"
    aside = log.with_name("aside")
    log.rename(aside)
    assert bench.seen("w") == {LESSON: 3}
    bench.run("w", "sync")
    assert bench.seen("w") == {LESSON: 3}
    bench.correct("w", LESSON, "--title", "meanwhile")
    assert bench.seen("w")[LESSON] == 4
    # Back again, with the entry that was logged meanwhile behind it: each counts once.
    aside.write_bytes(aside.read_bytes() + log.read_bytes())
    aside.rename(log)
    bench.run("w", "sync")
    assert bench.seen("w") == {LESSON: 4}


def test_a_reader_in_a_process_of_its_own_sees_what_was_replaced(bench):
    path = bench.clan("w") / "patterns.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        swap = path.with_name("swap")
        swap.write_bytes(line(f"Version {number}", pattern="p-3f9c1a2b7d4e5f60") + b"\n")
        swap.rename(path)
        words = [sys.executable, "-m", "fleet", "patterns", "--json"]
        done = subprocess.run(words, cwd=bench.folder / "w", env=bench.environment(), capture_output=True, check=True)
        assert [p["text"] for p in json.loads(done.stdout)["patterns"]] == [f"Version {number}"]


CHANGES = {
    "edit": (["edit", "{id}", "--set", "category=shell"], "category", "shell"),
    "feedback": (["feedback", "{id}", "--helped"], "helped", 1),
    "retire": (["retire", "{id}"], "state", "retired"),
    "restore": (["restore", "{id}"], "state", "candidate"),
    "merge": (["merge", "{id}", "{other}"], "seen", 2),
}


@pytest.mark.parametrize("is_read_between", [False, True])
@pytest.mark.parametrize("comes", ["nothing", "an older copy"])
@pytest.mark.parametrize("name", CHANGES)
def test_an_acknowledged_change_outlives_its_shard_that_goes_twice_before_a_sync(bench, name, comes, is_read_between):
    words, field, expected = CHANGES[name]
    ids = {"id": bench.correct("w", LESSON), "other": bench.correct("w", OTHERS[0])}
    if name == "restore":
        bench.run("w", "retire", ids["id"])
    shard = bench.shard("w")
    before = shard.read_bytes()
    bench.run("w", *(each.format(**ids) for each in words))
    for _ in range(2):
        if comes == "nothing":
            shard.unlink(missing_ok=True)
        else:
            shard.write_bytes(before)
        if is_read_between:
            bench.run("w", "patterns")
    bench.run("w", "sync")
    for database in (bench.folder / "w/.fleet").glob("state-*.db*"):  # only what a file has is sent from another folder
        database.unlink()
    assert json.loads(bench.run("w", "show", ids["id"], "--json").stdout)[field] == expected
