"""Faults 3, 4, 13 to 16, 24 and 29 to 31 of FAULTS: whatever befalls the log and the shards, good lines stay good."""

import base64
import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from fleet.app import lessons
from fleet.learn import corrections, counting
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog
from fleet.model import edits
from fleet.model import line as codec
from fleet.model.errors import DiskError
from fleet.model.names import pattern_id
from fleet.store import lines
from fleet.store.files import Files
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, World
from tests.faults.test_sync import LESSON, SLOT, STAMP, TOKEN, Bench, line

PROCESSES = 25
APPENDS = int(os.environ.get("FLEET_TEST_APPENDS", "20"))
HUGE_BYTES = int(os.environ.get("FLEET_TEST_HUGE_BYTES", str(2**30)))
MEMORY_MB_MAX = 200
V2 = b'{"id":"p-3f9c1a2b7d4e5f60","v":3,"text":"from the future","at":  7}'
V3 = b'{"id":"p-3f9c1a2b7d4e5f60","zz":{"new":[1]},"w":{}}'


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "fleet.toml").write_text("")
    return tmp_path


class Unsynced(Files):
    """A disk that waits for nothing."""

    def _fsync(self, handle: int) -> None:
        pass


def opened(root: Path) -> Workspace:
    return Workspace(root, World(durable=False), Unsynced(root))


def log(root: Path, lesson: str) -> str:
    workspace = opened(root)
    logged = corrections.Corrections(workspace, "velma").log(Correction("w", "r", lesson))
    workspace.close()
    return logged.id


def counts(root: Path) -> dict[str, int]:
    """Settle, and return text to count."""
    workspace = opened(root)
    counting.reconcile_all(workspace)
    found = {each.text: each.count("seen") for each in workspace.patterns.lessons()}
    workspace.close()
    return found


def forget(root: Path) -> None:
    """Delete the database, as a crash before the count leaves it."""
    workspace = opened(root)
    workspace.db.database.delete()
    workspace.close()


def shard_of(root: Path) -> Path:
    [shard] = (root / "clan-learnings/patterns.d").iterdir()
    return shard


def cuts(start: int, end: int) -> list[int]:
    """Return where to cut what stands between two places: next to both of them at every byte, else at every fifth."""
    return sorted({*range(start, start + 8), *range(start, end, 5), *range(end - 8, end + 1)})


# --- 3: a torn last line --------------------------------------------------------------------------------------------


def test_a_shard_torn_at_any_byte_keeps_its_earlier_lines_and_takes_new_ones(root):
    for number in range(3):
        log(root, f"lesson {number}")
    shard, log_file = shard_of(root), root / "agents/velma/corrections.md"
    whole = shard.read_bytes()
    log_file.unlink()  # alone, so that nothing is healed from the log
    start = whole.rindex(b"\n", 0, -1) + 1
    for end in cuts(start, len(whole)):
        shutil.rmtree(root / ".fleet/quarantine", ignore_errors=True)
        shard.write_bytes(whole[:end])
        workspace = opened(root)
        workspace.db.database.delete()  # alone, so that nothing is healed from the rows
        tail = whole[start:end]
        is_whole = end >= len(whole) - 1
        assert workspace.patterns.get(pattern_id("lesson 0")).count("seen") == 1
        assert workspace.patterns.get(pattern_id("lesson 1")).count("seen") == 1
        assert (workspace.patterns.get(pattern_id("lesson 2")) is not None) is is_whole
        assert [kept.raw for kept in workspace.quarantine.all()] == ([] if is_whole or not tail else [tail])
        with workspace.writing("velma") as writer:
            writer.append(
                PATTERNS, [edits.confirm(codec.Line(pattern_id("x")), writer.name, writer.tick(), fields={"text": "x"})]
            )
        assert shard.read_bytes().startswith(whole[:end].removesuffix(b"\n") + (b"\n" if tail else b""))
        assert workspace.patterns.get(pattern_id("x")) is not None, "the next line is read"
        workspace.close()


@pytest.mark.parametrize("left_bytes", [0, 20])
def test_a_count_that_the_database_alone_still_knows_is_in_a_file_before_its_lesson_is_retired(root, left_bytes):
    each = log(root, "lesson")
    shard = shard_of(root)
    os.truncate(shard, left_bytes)  # a power failure took what was never waited for
    workspace = opened(root)
    lessons.retire(workspace, "velma", each)
    workspace.close()
    forget(root)
    assert counts(root) == {}
    workspace = opened(root)
    assert workspace.patterns.get(each).count("seen") == 1
    workspace.close()


def test_a_log_torn_at_any_byte_keeps_its_earlier_entries_and_takes_new_ones(root):
    log(root, "lesson 0")
    log_file, shard = root / "agents/velma/corrections.md", shard_of(root)
    before, shard_before = log_file.read_bytes(), shard.read_bytes()
    log(root, "lesson 1")
    whole = log_file.read_bytes()
    for end in cuts(len(before), len(whole)):
        log_file.write_bytes(whole[:end])
        shard.write_bytes(shard_before)  # torn while it was written: what was logged had not been counted yet
        forget(root)
        log(root, "lesson 2")
        assert log_file.read_bytes().startswith(whole[:end] + (b"" if whole[:end].endswith(b"\n") else b"\n"))
        found = counts(root)
        assert found.pop("lesson 0") == 1
        assert found.pop("lesson 2") == 1
        # What is left is the torn entry: as much of it as there is, once at most.
        assert all("lesson 1".startswith(text) and seen == 1 for text, seen in found.items()), (end, found)
        is_whole = whole[end:].strip() == b"" or whole[:end].count(b"lesson 1") == 1
        assert ("lesson 1" in found) is is_whole, (end, found)


# --- 4: short writes ------------------------------------------------------------------------------------------------


def test_a_short_write_is_finished(root, monkeypatch):
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:3])))
        log(root, LESSON)
        log(root, LESSON)
    assert counts(root) == {LESSON: 2}
    assert len((root / "agents/velma/corrections.md").read_text().split("<!-- fleet ")) == 3
    assert all(codec.decode(raw) for raw in shard_of(root).read_bytes().splitlines())


@pytest.mark.parametrize("works", range(8))
@pytest.mark.parametrize("then", ["fails", "says nothing was written", "lies"])
def test_a_write_that_ends_too_soon_is_not_acknowledged(root, monkeypatch, works, then):
    log(root, LESSON)
    path, known = root / "agents/velma/corrections.md", (root / "agents/velma/corrections.md").read_bytes()
    real, left = os.write, [works]

    def write(handle: int, data: bytes) -> int:
        left[0] -= 1
        if left[0] >= 0:
            return real(handle, bytes(data[:3]))
        if then == "fails":
            raise OSError(errno.ENOSPC, "No space left on device")
        return 3 if then == "lies" else 0

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(DiskError):
            log(root, "Another lesson")
    assert path.read_bytes().startswith(known)
    log(root, "The next lesson")
    found = counts(root)
    assert found[LESSON] == found["The next lesson"] == 1


def test_a_page_that_was_not_written_whole_replaces_nothing(tmp_path, monkeypatch):
    disk, path = Files(tmp_path), tmp_path / "page"
    disk.replace(path, b"the old page\n")
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:3])) and len(data))
    with pytest.raises(DiskError):
        disk.replace(path, b"the new page\n")
    assert path.read_bytes() == b"the old page\n"
    assert [file.name for file in tmp_path.iterdir()] == ["page"]


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("there is no strace here")
    probe = [found, "-f", "-e", "trace=write", "-e", "inject=write:retval=3:when=1", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace or inject here")
    return found


@pytest.mark.parametrize("number", [1, 2])
def test_what_the_system_only_claims_to_have_written_is_not_acknowledged(bench, strace, number):
    """The first write of a correction is the log's, the second the shard's."""
    bench.run("w", "init", "--agent", "velma")
    bench.correct("w", LESSON)
    where = bench.folder / "w"
    log_file = where / "agents/velma/corrections.md"
    known = log_file.read_bytes()
    inject = ["-e", "trace=write", "-e", f"inject=write:retval=3:when={number}"]
    words = ["correct", "--wrong", "w", "--right", "r", "--pattern", "Another lesson"]
    done = subprocess.run(
        [strace, "-f", "-o", str(bench.folder / "trace"), *inject, sys.executable, "-m", "fleet", *words],
        cwd=where,
        env=bench.environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    trace = (bench.folder / "trace").read_text()
    assert "INJECTED" in trace
    if number == 1:
        assert done.returncode == 6, done.stdout + done.stderr
        assert not done.stdout, "not acknowledged"
        assert log_file.read_bytes() == known, "nor left there, to count after all"
    else:
        # The log has it, and the log is what counts.
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not counted yet" in done.stderr
        assert "run the command again" not in done.stderr, "it would count twice"
    bench.correct("w", "The next lesson")
    bench.run("w", "sync", expect=None)
    found = bench.seen("w")
    assert found[LESSON] == found["The next lesson"] == 1
    assert found.get("Another lesson", 0) == number - 1


# --- 13, 14: bad lines ----------------------------------------------------------------------------------------------


BAD = {
    "binary": b"\x00\xff\xfe\x80 rubbish \x1b[31m",
    "no object": b"[1, 2]",
    "torn": line("torn")[:-9],
    "no id": b'{"w":{}}',
    "of fleet 0.1": b'{"add":{"zerocool.00000001":"%b"},"id":"p-3f9c1a2b7d4e5f60","set":{}}' % STAMP.encode(),
    "not utf-8": line("caf\u00e9").replace("\u00e9".encode(), b"\xe9"),
    "a forged total": line("x").replace(b'"seen":1', b'"seen":-1'),
    "a path for a replica": line("x").replace(SLOT.encode(), b"../../etc/passwd"),
    "too long": line("x" * 70_000),
}
UNWRITABLE = {
    "NaN": line("x", set={"score": 1}).replace(b'"score":1', b'"score":NaN'),
    "infinity": line("x", set={"score": 1}).replace(b'"score":1', b'"score":-Infinity'),
    "an overflow": line("x", set={"score": 1}).replace(b'"score":1', b'"score":1e999'),
    "half a surrogate": line("x", set={"s": 1}).replace(b'"s":1', rb'"s":"\ud800"'),
    "half a surrogate as a key": line("x", set={"s": 1}).replace(b'"s":1', rb'"\udc00":1'),
    "a giant integer": line("x", set={"score": 2**53}),
    "an integer of 5000 digits": line("x", set={"s": 1}).replace(b'"s":1', b'"s":' + b"9" * 5000),
    "a key twice": line("x", set={"s": 1}).replace(b'"s":1', b'"s":1,"s":2'),
    "an id twice": line("x")[:-1] + b',"id":"p-3f9c1a2b7d4e5f60"}',
    "a million deep": b'{"id":"p-3f9c1a2b7d4e5f60","set":{"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
}


@pytest.mark.parametrize("where", ["a shard", "the edition"])
def test_bad_lines_are_quarantined_whole_counted_and_stop_no_good_line(bench, where):
    bench.run("w", "init", "--agent", "velma")
    bench.correct("w", LESSON)
    folder = bench.clan("w")
    path = folder / "patterns.jsonl" if where == "the edition" else folder / f"patterns.d/{SLOT}.jsonl"
    good = [line(f"good {number}") for number in range(len(BAD) + 1)]
    rows = [row for pair in zip(good, BAD.values(), strict=False) for row in pair] + good[-1:]
    bench.by_hand(path, *rows)
    found = bench.patterns("w")
    assert {p["text"] for p in found["patterns"]} == {LESSON, *(f"good {number}" for number in range(len(good)))}
    assert found["refused"] == len(BAD)
    status = bench.status("w")
    assert status["refused"] == len(status["quarantined"]) == len(BAD)
    assert {kept["path"] for kept in status["quarantined"]} == {str(path.relative_to(folder))}
    assert sorted(kept["line"] for kept in status["quarantined"]) == [2 * number + 2 for number in range(len(BAD))]
    assert all(kept["reason"] for kept in status["quarantined"])
    kept = (bench.folder / "w/.fleet/quarantine/refused.jsonl").read_bytes().splitlines()
    raws = {base64.b64decode(json.loads(row)["bytes"]) for row in kept}
    assert raws == {raw[:65_536] for raw in BAD.values()}
    bench.status("w")
    assert len(bench.status("w")["quarantined"]) == len(BAD), "kept once, however often it is read"
    assert path.read_bytes().splitlines() == b"\n".join(rows).splitlines(), "reading changes nothing"


def test_the_json_test_suite_as_lines_of_a_shard_stops_no_good_line(bench, shared):
    suite = (shared / "corpora/json/json-test-suite.jsonl").read_text().splitlines()
    cases = [base64.b64decode(json.loads(row)["base64"]) for row in suite]
    assert len(cases) == 318
    bench.run("w", "init", "--agent", "velma")
    bench.correct("w", LESSON)
    path = bench.clan("w") / f"patterns.d/{SLOT}.jsonl"
    for number, case in enumerate(cases):
        bench.by_hand(path, line(f"before {number}"), case)
    bench.by_hand(path, line("the last"))
    found = bench.patterns("w")
    assert {p["text"] for p in found["patterns"]} == {LESSON, "the last", *(f"before {n}" for n in range(len(cases)))}
    status = bench.status("w")
    assert status["refused"] == found["refused"] >= 250
    kept = {
        base64.b64decode(json.loads(row)["bytes"])
        for row in (bench.folder / "w/.fleet/quarantine/refused.jsonl").read_bytes().splitlines()
    }
    assert len(kept) == len(status["quarantined"])
    for case in cases:
        for raw in case.replace(b"\r\n", b"\n").split(b"\n"):
            wanted = raw.removesuffix(b"\r")[:65_536]
            assert wanted in kept or not wanted.strip() or wanted.startswith((b"<<<<<<<", b"=======")), wanted[:80]


@pytest.mark.parametrize("raw", UNWRITABLE.values(), ids=UNWRITABLE.keys())
@pytest.mark.parametrize("kind", lines.KINDS, ids=lambda kind: kind.name)
def test_json_that_cannot_be_written_back_is_refused_at_input(kind, raw):
    read = lines.LineReader()
    assert list(read.entries(kind, iter([raw + b"\n"]), "x")) == []
    assert len(read.refused) == 1
    assert read.refused[0].raw == raw[:65_536]


def test_what_is_refused_is_never_written_into_an_edition(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bad = [*BAD.values(), *UNWRITABLE.values()]
    bench.by_hand(bench.shard("velma"), *bad)
    bench.run("velma", "sync", expect=3)
    assert [found.text for found in bench.edition()] == [LESSON]


# --- 15: conflict markers -------------------------------------------------------------------------------------------


def test_of_a_committed_conflict_both_sides_are_read_and_the_markers_go_with_the_next_edition(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma")
    edition = bench.blob("patterns.jsonl")
    conflict = b"<<<<<<< HEAD\n%b\n||||||| base\n=======\n%b\n>>>>>>> theirs\n" % (line("mine"), line("theirs"))
    bench.push_tree({"patterns.jsonl": ("100644", edition + conflict)})
    done = bench.run("tank", "sync")
    assert "4 conflict-marker lines were skipped in patterns.jsonl," in done.stderr
    assert bench.seen("tank") == {LESSON: 1, "mine": 1, "theirs": 1}
    assert bench.patterns("tank")["refused"] == 0
    for path, data in bench.tree().items():
        assert not any(raw.startswith((b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")) for raw in data.splitlines()), (
            path
        )
    bench.sync("velma")
    assert bench.seen("velma") == bench.seen("tank")
    assert "conflict" not in bench.run("velma", "sync").stderr


def test_of_a_conflict_in_a_log_both_sides_count(root):
    log(root, LESSON)
    path = root / "agents/velma/corrections.md"
    with path.open("a") as file:
        file.write("<<<<<<< HEAD\n## 2026-01-01 — a\n**Pattern:** mine\n=======\n## 2026-01-01 — b\n")
        file.write("**Pattern:** theirs\n>>>>>>> theirs\n")
    assert counts(root) == counts(root) == {LESSON: 1, "mine": 1, "theirs": 1}


# --- 16: a huge line ------------------------------------------------------------------------------------------------


def peak_mb(bench, where: str, *words: str) -> tuple[int, subprocess.CompletedProcess]:
    """Run a command in a process of its own; return its peak of resident memory, git's not counted."""
    run = (
        "import resource, sys\nfrom fleet.cli.main import run\nsys.argv = ['fleet', *sys.argv[1:]]\ncode = run()\n"
        # Not ru_maxrss on Linux: there it begins with what the process was forked from.
        "linux = sys.platform == 'linux'\n"
        "told = [row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')] if linux else []\n"
        "peak = int(told[0]) if told else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(peak // (1024 if linux else 2**20), file=sys.stderr)\nsys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", run, *words],
        cwd=bench.folder / where,
        env=bench.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return int(done.stderr.splitlines()[-1]), done


@pytest.mark.parametrize("words", [["patterns"], ["sync"], ["start"]], ids=lambda words: words[0])
def test_a_line_of_a_gigabyte_does_not_fill_the_memory(bench, words):
    bench.join("velma")
    bench.correct("velma", LESSON)
    path = bench.clan("velma") / f"patterns.d/{SLOT}.jsonl"
    bench.by_hand(path, line("before"))
    if words == ["sync"]:
        bench.sync(
            "velma"
        )  # what goes out is rewritten whole: a file with new lines in it, and a huge one, is not for a sync
    path.touch()  # the sync took its line into the edition, and the file away
    with path.open("r+b") as file:
        # Sparse: it costs no disk. A quarter is enough to see that a command does not gather it either.
        file.truncate(HUGE_BYTES if words == ["patterns"] else HUGE_BYTES // 4)
        if words != ["sync"]:
            file.seek(0, os.SEEK_END)
            file.write(b"\n" + line("behind") + b"\n")
    peak, done = peak_mb(bench, "velma", *words)
    assert done.returncode == (3 if words == ["sync"] else 0), done.stderr
    assert peak < MEMORY_MB_MAX, f"{peak} MB"
    if words == ["patterns"]:
        assert all(text in done.stdout for text in (LESSON, "before", "behind"))
        assert "could not be read" in done.stderr


def test_a_huge_line_in_a_log_does_not_fill_the_memory_and_is_told_once(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    with (bench.folder / "velma/agents/velma/corrections.md").open("r+b") as file:
        file.truncate(HUGE_BYTES // 4)
    commands = (
        ["sync"],
        ["correct", "--wrong", "w", "--right", "r", "--pattern", "behind"],
        ["status"],
        ["search", "behind"],
    )
    ran = [peak_mb(bench, "velma", *words) for words in (*commands, ["sync"])]
    assert [done.returncode for _, done in ran] == [0] * 5, [done.stderr for _, done in ran]
    assert max(peak for peak, _ in ran) < MEMORY_MB_MAX, [peak for peak, _ in ran]
    told = "longer than the 1 MiB that are read of a line"
    assert [told in done.stdout + done.stderr for _, done in ran] == [True, False, True, False, False]
    assert bench.seen("velma") == {LESSON: 1, "behind": 1}


# --- 24: the world's ways of writing text ---------------------------------------------------------------------------


CAFE = "Füge `café-cli` hinzu, bevor du den Bericht öffnest"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("bom", ["", "\ufeff"], ids=["", "bom"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_however_a_page_is_encoded_its_lesson_has_one_id_and_its_bytes_stay(root, form, bom, end):
    wanted = log(root, CAFE)
    path = root / "agents/velma/corrections.md"
    page = f"## 2026-03-15 14:30Z — by hand\n**Wrong:** a\n**Correct:** b\n**Pattern:** {CAFE}\n"
    original = (bom + unicodedata.normalize(form, page).replace("\n", end)).encode()
    path.write_bytes(original)
    found = counts(root)
    assert found == {CAFE: 2}
    assert path.read_bytes().startswith(original), "a person's bytes stay as they are"
    assert counts(root) == found
    assert f" {wanted} replica=" in path.read_text("utf-8")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_shard_with_a_bom_and_crlf_has_the_same_lines(bench, form):
    bench.run("w", "init", "--agent", "velma")
    text = unicodedata.normalize(form, CAFE)
    path = bench.clan("w") / f"patterns.d/{SLOT}.jsonl"
    bench.by_hand(path, b"\xef\xbb\xbf" + line(text, pattern=pattern_id(CAFE)) + b"\r", line("second") + b"\r")
    bench.by_hand(path, b"\xef\xbb\xbf" + line("of another file, behind it"))
    bench.correct("w", unicodedata.normalize("NFD", CAFE))
    found = bench.patterns("w")
    assert found["refused"] == 0
    assert {p["text"]: p["seen"] for p in found["patterns"] if p["text"] != text} == {
        "second": 1,
        "of another file, behind it": 1,
    }
    assert {p["id"]: p["seen"] for p in found["patterns"]}[pattern_id(CAFE)] == 2


# --- 29: many at once -----------------------------------------------------------------------------------------------


def append_many(root: Path, me: int, appends: int) -> None:
    workspace = opened(root)
    for number in range(appends):
        with workspace.writing("velma", wait_s=120) as writer:
            text = f"lesson {me} {number}"
            writer.append(
                PATTERNS,
                [edits.confirm(codec.Line(pattern_id(text)), writer.name, writer.tick(), fields={"text": text})],
            )
    corrections.Corrections(workspace, "velma").log(Correction("w", "r", LESSON))
    workspace.close()


def test_of_what_many_processes_append_at_once_every_line_is_whole_and_none_is_lost(root):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append_many, args=(root, me, APPENDS)) for me in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    workspace = opened(root)
    counting.reconcile_all(workspace)
    assert not workspace.db.refused()
    assert len(workspace.replicas().replicas) == 1
    found = {each.text: each.count("seen") for each in workspace.patterns.lessons()}
    assert found.pop(LESSON) == PROCESSES
    assert found == {f"lesson {me} {number}": 1 for me in range(PROCESSES) for number in range(APPENDS)}
    raws = shard_of(root).read_bytes().splitlines()
    assert PROCESSES * APPENDS < len(raws) <= PROCESSES * APPENDS + PROCESSES, (
        "one line may count what several processes logged"
    )
    stamps = [codec.decode(raw).w[writer].add for raw in raws for writer in workspace.current_replicas()]
    assert len(set(stamps)) == len(stamps), "no stamp was issued twice"
    records = CountedLog(workspace, "velma").read_log().records
    assert len({record.at for record in records}) == len(records) == PROCESSES
    assert [record.at for record in records] == sorted(record.at for record in records)
    workspace.close()


def test_real_corrections_at_once_in_one_workspace_all_count(bench):
    bench.join("velma")
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "fleet", "correct", "--wrong", f"w{me}", "--right", "r", "--pattern", LESSON],
            cwd=bench.folder / "velma",
            env=bench.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(6)
    ]
    said = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 6, said
    assert {int(out.split(" seen ")[1].split(" ")[0]) for out, _ in said} == set(range(1, 7)), "each was told its turn"
    assert "wordings" not in "".join(out for out, _ in said), "it has one, whatever others count meanwhile"
    assert bench.seen("velma") == {LESSON: 6}
    bench.sync("velma")
    [found] = bench.edition()
    assert found.count("seen") == 6


# --- 30: another version's lines ------------------------------------------------------------------------------------


def test_a_newer_versions_lines_go_through_sync_and_edition_byte_for_byte(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.by_hand(bench.shard("velma"), V2, line("of this version"), V3)
    bench.sync("velma", "tank")
    bench.correct("tank", "Another lesson")
    bench.sync("tank", "velma")
    for rows in (
        bench.blob("patterns.jsonl"),
        *((bench.clan(a) / "patterns.jsonl").read_bytes() for a in ("velma", "tank")),
    ):
        assert rows.splitlines().count(V2) == 1
        assert rows.splitlines().count(V3) == 1
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 1, "of this version": 1, "Another lesson": 1}
    assert bench.status("tank")["carried"] == 2
    assert "2 lines carried" in bench.run("tank", "sync").stderr


def test_a_newer_versions_line_is_gone_everywhere_when_that_version_took_it_out(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.by_hand(bench.shard("velma"), V2, V3)
    bench.sync("velma", "tank", "velma")
    bench.push_tree(
        {path: ("100644", data.replace(V2 + b"\n", b"")) for path, data in bench.tree().items() if V2 in data}
    )
    bench.sync("tank", "velma")
    bench.correct("tank", LESSON)
    bench.sync("tank", "velma")
    for path, data in bench.tree().items():
        assert V2 not in data, path
    for agent in ("velma", "tank"):
        assert bench.status(agent)["carried"] == 1
        assert not any(V2 in file.read_bytes() for file in bench.clan(agent).rglob("*.jsonl"))
    assert V3 in bench.blob("patterns.jsonl").splitlines()


# --- 31: nothing is skipped in silence ------------------------------------------------------------------------------


SKIPPED = {
    "rubbish": (b"rubbish", "could not be read"),
    "unwritable": (line("x", set={"s": 1}).replace(b'"s":1', b'"s":NaN'), "could not be read"),
    "secret": (line("x", set={"correct": TOKEN}), "held back"),
    "private": (line("x", set={"scope": "private"}), "held back"),
}


# Without a remote nothing is held back from one.
@pytest.mark.parametrize(
    ("name", "with_remote"),
    [(name, True) for name in SKIPPED] + [(name, False) for name, (_, told) in SKIPPED.items() if told != "held back"],
)
def test_whatever_is_skipped_is_told_and_the_exit_code_says_so(bench, name, with_remote):
    raw, told = SKIPPED[name]
    if with_remote:
        bench.join("velma")
    else:
        bench.run("velma", "init", "--agent", "velma")
    bench.correct("velma", LESSON)
    bench.by_hand(bench.shard("velma"), raw)
    done = bench.run("velma", "sync", expect=3)
    assert told in done.stderr
    assert "synced" not in done.stdout
    if told == "could not be read" and with_remote:
        # It went to quarantine and left our shard: told once, kept for good, counted by status.
        assert "synced" in bench.run("velma", "sync", expect=0).stdout
        assert len(bench.status("velma")["quarantined"]) == 1
    else:
        assert told in bench.run("velma", "sync", expect=3).stderr


def test_what_a_peer_sent_and_cannot_be_read_is_told_to_everybody(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.push_tree({f"patterns.d/{SLOT}.jsonl": ("100644", b"rubbish\n" + line("good") + b"\n")})
    done = bench.run("tank", "sync", expect=3)
    assert "could not be read" in done.stderr
    assert "synced" not in done.stdout
    assert bench.seen("tank") == {LESSON: 1, "good": 1}
