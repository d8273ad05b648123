"""Kill -9 and a full disk under the inbox, the records and ``fleet undo``: what was said is there, once and whole."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.app import learning, undoing
from fleet.learn.corrections_md import Correction
from fleet.model.errors import DiskError
from fleet.reflect import inbox, records
from fleet.reflect.inbox import Inbox, Item
from fleet.reflect.records import Record, Records, Written
from fleet.store.files import Files
from fleet.store.runs import Run, Runs
from fleet.store.workspace import Workspace
from tests.faults import test_kill as kills
from tests.faults.test_full_disk import fill, mounted
from tests.faults.test_kill import CALLS, PAGES_STEPS, Stock, killed
from tests.faults.test_sync import LESSON, Bench

bench, nursery, parent, strace = kills.bench, kills.nursery, kills.parent, kills.strace
DRAFT = "agents/velma/skills/lint/SKILL.md"
TARGET = ".claude/skills/lint/SKILL.md"
MEMORY = "agents/velma/memory.md"


def begin(bench: Bench) -> str:
    """Make a workspace in which a skill waits; return the item's id."""
    bench.run("w", "init", "--agent", "velma")
    root = bench.folder / "w"
    (root / DRAFT).parent.mkdir(parents=True)
    (root / DRAFT).write_text("Run the linter.\n")
    workspace = Workspace(root)
    item = Item(kind="skill", title="Lint before a push", key="lint", body={"draft": DRAFT, "target": TARGET})
    done = Inbox(workspace, "velma").put([item])[0]
    workspace.close()
    return done.id


def lines(path: Path) -> list[dict]:
    """Return the lines of a file; each is whole."""
    return [json.loads(row) for row in path.read_bytes().splitlines()] if path.exists() else []


@pytest.mark.parametrize("calls", ["data", "fsync", "rename", "unlink"])
@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_decision_that_is_killed_anywhere_is_made_whole_by_the_next_one(bench, nursery, tmp_path, word, calls):
    item = begin(bench)
    root = bench.folder / "w"
    stock = Stock(bench, tmp_path / "aside")
    for ended in killed(nursery, stock, "w", "inbox", word, item, calls=CALLS[calls]):
        known = lines(root / "agents/velma/inbox.jsonl")
        if f" {word}" in ended.said and ended.code == 0:
            assert known[-1]["said"].startswith(word)
        waiting = json.loads(bench.run("w", "inbox", "--json").stdout)["waiting"]
        if waiting:
            bench.run("w", "inbox", word, item, expect=None)
        assert json.loads(bench.run("w", "inbox", "--json").stdout)["waiting"] == []
        if word == "approve":
            assert (root / TARGET).read_text() == "Run the linter.\n"
        else:
            assert not (root / TARGET).exists()
            assert not (root / DRAFT).exists()
        assert not [path for path in root.rglob("*.plan") if path.is_file()], "no plan is left half done"


@pytest.mark.parametrize("calls", ["data", "fsync", "rename", "unlink", "pwrite"])
def test_an_undo_that_is_killed_anywhere_is_finished_by_the_next_command(bench, nursery, tmp_path, calls):
    bench.run("w", "init", "--agent", "velma")
    root = bench.folder / "w"
    (root / MEMORY).write_text("# Mine\n\n## Notes\n")
    before = (root / MEMORY).read_bytes()
    pattern = bench.correct("w", LESSON)
    run = reflect(root, pattern)
    stock = Stock(bench, tmp_path / "aside")
    for ended in killed(nursery, stock, "w", "undo", run, calls=CALLS[calls], step=PAGES_STEPS.get(calls, 1)):
        told = "taken back: " in ended.said
        # A sync finishes what was begun; what was not begun stands, and is taken back by the same words again.
        bench.run("w", "sync")
        found = {each["id"]: each for each in json.loads(bench.run("w", "undo", "--list", "--json").stdout)["runs"]}
        assert bool(found[run]["undone_by"]) or not told
        if not found[run]["undone_by"]:
            bench.run("w", "undo", run)
        assert (root / MEMORY).read_bytes() == before
        assert bench.seen("w") == {}
        said = [each.get("line", "ran") for each in lines(root / "agents/velma/reflections.jsonl")]
        assert said == ["ran", "undone"]
        assert json.loads(bench.run("w", "inbox", "--json").stdout)["waiting"] == []
        assert bench.run("w", "undo", run, expect=1).stderr.count("taken back already") == 1


def reflect(root: Path, pattern: str) -> str:
    """Do what a reflection does: a note, a lesson, something that waits, a record."""
    workspace = Workspace(root)
    run = Runs(workspace).name("reflection")
    edit = Runs(workspace).page(MEMORY).to((root / MEMORY).read_bytes() + b"- 2026-05-09: a note\n")
    at = workspace.wall()
    Runs(workspace).apply(Run(id=run, kind="reflection", agent="velma", at=at, edits=(edit,), lessons=(pattern,)))
    Inbox(workspace, "velma").put([Item(kind="persona", title="Prefers short answers", run=run)])
    written = (Written(name="notes", count=1),)
    Records(workspace, "velma").append(Record(run=run, session="s1", outcome="success", writers=written))
    workspace.close()
    return run


class _Full(Files):
    """Files on a disk that has no room from the Nth write on; what is appended is torn in the middle."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self.writes = writes

    def _write_all(self, handle: int, data: bytes) -> None:
        if self.writes == 0:
            super()._write_all(handle, data[: len(data) // 2])
            raise OSError(28, os.strerror(28))
        self.writes -= 1
        super()._write_all(handle, data)


@pytest.mark.parametrize("writes", range(12))
def test_an_undo_without_room_leaves_all_or_nothing_and_is_done_once_there_is_some(bench, writes):
    bench.folder.mkdir()
    bench.run("w", "init", "--agent", "velma")
    root = bench.folder / "w"
    (root / MEMORY).write_text("# Mine\n\n## Notes\n")
    before = (root / MEMORY).read_bytes()
    run = reflect(root, bench.correct("w", LESSON))
    after = (root / MEMORY).read_bytes()
    workspace = Workspace(root, files=_Full(root, writes))
    with suppress(DiskError):
        undoing.undo(workspace, run)
    workspace.close()
    assert (root / MEMORY).read_bytes() in (before, after), "no file is half a file"
    bench.run("w", "sync")
    bench.run("w", "undo", run, expect=None)
    assert (root / MEMORY).read_bytes() == before
    assert bench.seen("w") == {}
    assert [each.get("line", "ran") for each in lines(root / "agents/velma/reflections.jsonl")] == ["ran", "undone"]


class _NoRoomFor(Files):
    """Files on a disk that has no room for files in one folder."""

    def __init__(self, root: Path, folder: str) -> None:
        super().__init__(root)
        self.folder = folder

    def _write_all(self, handle: int, data: bytes) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().parent.name == self.folder:
            raise OSError(28, os.strerror(28))
        super()._write_all(handle, data)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a descriptor stands for is not seen here")
@pytest.mark.parametrize(("folder", "then"), [("patterns.d", "do not log it again"), ("runs", "is done")])
def test_a_warning_about_a_correction_that_is_logged_never_has_it_logged_again(bench, folder, then):
    bench.folder.mkdir()
    bench.run("w", "init", "--agent", "velma")
    workspace = Workspace(bench.folder / "w", files=_NoRoomFor(bench.folder / "w", folder))
    learning.correct(workspace, "velma", Correction("w", "r", LESSON))
    [warning] = [each for each in workspace.warnings if "no space left" in each]
    workspace.close()
    assert "Free some space" in warning
    assert then in warning
    assert "run the command again" not in warning, "it would count twice"
    assert bench.seen("w") == {LESSON: 1}


@pytest.mark.parametrize("what", ["put", "decide", "record", "reserve"])
def test_what_does_not_fit_on_the_disk_is_not_acknowledged_and_harms_no_line(tmp_path, what):
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("tmpfs cannot be mounted here")
    folder = tmp_path / "small"
    folder.mkdir()
    if not mounted(folder):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        (folder / "fleet.toml").write_text("")
        workspace = Workspace(folder)
        first = Inbox(workspace, "velma").put([Item(kind="persona", title="Prefers short answers")])[0]
        Records(workspace, "velma").append(Record(run="r1", usd=0.5))
        path = workspace.home("velma") / ("inbox.jsonl" if what in ("put", "decide") else "reflections.jsonl")
        known = path.read_bytes()
        fill(folder, 0)
        long = "x" * 6_000  # the last page of a file has room on a disk that has none
        with pytest.raises(DiskError, match="space"):
            act(workspace, what, first.id, long)
        assert path.read_bytes() == known
        (folder / "filler").unlink()
        act(workspace, what, first.id, long)
        assert len(path.read_bytes().splitlines()) == len(known.splitlines()) + 1
        assert records.spent(workspace, workspace.wall()[:10]) == (1.0 if what in ("record", "reserve") else 0.5)
        workspace.close()
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def act(workspace: Workspace, what: str, item: str, long: str) -> None:
    """Append one long line."""
    if what == "put":
        Inbox(workspace, "velma").put([Item(kind="persona", title="Works at night", diff=long)])
    elif what == "decide":
        Inbox(workspace, "velma").decide([inbox.Decision(id=item, outcome="rejected", why=long)])
    elif what == "record":
        Records(workspace, "velma").append(Record(run="r2", usd=0.5, raw=long))
    else:
        Records(workspace, "velma").reserve(Record(run="r2", usd=0.5, why=long), 5.0)
