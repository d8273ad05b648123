"""Fault 7 of FAULTS: a file system that cannot be written. Reading works; what would write gives one clear error."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.test_full_disk import mounted
from tests.faults.test_sync import LESSON, Bench

AGAIN = "Take awk for substitution in templates"
READS = {
    "patterns": ("patterns",),
    "patterns --json": ("patterns", "--json"),
    "show": ("show", "{id}"),
    "search": ("search", "awk"),
    "start": ("start",),
    "start --json": ("start", "--json"),
    "gossip": ("gossip",),
    "gossip --json": ("gossip", "--json"),
    "dashboard": (),
    "dashboard --json": ("--json",),
    "status": ("status",),
    "status --json": ("status", "--json"),
    "export": ("export", "--json"),
}
SHOWN = {
    "dashboard": "velma",
    "dashboard --json": "velma",
    "gossip": "a finding",
    "gossip --json": "a finding",
    "status": "velma",
    "status --json": "velma",
}
WRITES = {
    "correct": ("correct", "--wrong", "w", "--right", "r", "--pattern", "Another lesson"),
    "discover": ("discover", "--problem", "another finding", "--solution", "s"),
    "sync": ("sync",),
    "retire": ("retire", "{id}"),
    "compact": ("compact",),
    "edit": ("edit", "{id}", "--set", "category=shell"),
}


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Bench]:
    """A bench whose workspace ``disk/w`` can only be read, until ``thaw``. Its last sync is older than its last line.

    Root may write everywhere but on what is mounted read-only; nobody else may mount, and is held back by modes.
    """
    bench, disk = Bench(tmp_path), tmp_path / "disk"
    disk.mkdir()
    is_mount = os.geteuid() == 0
    if is_mount and not mounted(disk):
        pytest.skip("tmpfs cannot be mounted here")
    prepare(bench)
    allow(disk, may_write=False, is_mount=is_mount)
    bench.thaw = lambda: allow(disk, may_write=True, is_mount=is_mount)  # type: ignore[attr-defined]
    yield bench
    allow(disk, may_write=True, is_mount=is_mount)
    if is_mount:
        subprocess.run(["umount", "--lazy", disk], check=True)


def prepare(bench: Bench) -> None:
    """Make a workspace with everything in it, some of it not sent yet, and its index as old as the first search."""
    bench.join("velma", "disk/w")
    bench.correct("disk/w", LESSON)
    bench.run("disk/w", "search", "awk")
    bench.run("disk/w", "discover", "--problem", "a finding", "--solution", "s")
    bench.run("disk/w", "sync")
    bench.correct("disk/w", AGAIN)


def allow(disk: Path, *, may_write: bool, is_mount: bool) -> None:
    """Let the files below a folder be written, or not."""
    if is_mount:
        mode = "rw" if may_write else "ro"
        subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True, capture_output=True)
        return
    write = 0o200 if may_write else 0
    for path in [disk, *disk.rglob("*")]:
        path.chmod((0o555 if path.is_dir() else 0o444) | write)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def named(bench: Bench, words: tuple[str, ...]) -> list[str]:
    """Put a lesson's id where it belongs."""
    found = next((p["id"] for p in bench.patterns("disk/w")["patterns"] if p["text"] == LESSON), "")
    return [word.replace("{id}", found) for word in words]


@pytest.mark.parametrize("name", READS)
def test_what_reads_works_where_nothing_can_be_written(frozen, name):
    before = files(frozen.folder / "disk/w")
    done = frozen.run("disk/w", *named(frozen, READS[name]))
    assert SHOWN.get(name, LESSON) in done.stdout
    assert AGAIN in done.stdout or name not in ("patterns", "search", "start", "export")
    assert not done.stderr or name.startswith("search"), "a search without its index says that it is slower"
    assert files(frozen.folder / "disk/w") == before


def test_the_inbox_lists_what_waited_before_and_says_that_what_came_since_is_missing(frozen):
    for words, told in ((("inbox",), "nothing waits"), (("inbox", "--json"), '"waiting":[]')):
        done = frozen.run("disk/w", *words)
        assert told in done.stdout
        assert "what came since is missing" in done.stderr
    frozen.thaw()
    done = frozen.run("disk/w", "inbox")
    assert "one lesson?" in done.stdout
    assert "missing" not in done.stderr


@pytest.mark.parametrize("name", WRITES)
def test_what_writes_gives_one_clear_error_and_works_when_it_may(frozen, name):
    words = named(frozen, WRITES[name])
    before = files(frozen.folder / "disk/w")
    done = frozen.run("disk/w", *words, expect=6)
    assert done.stdout == "", "nothing is acknowledged"
    [told] = done.stderr.splitlines()
    assert told.startswith("fleet: ")
    assert "Read-only file system" in told or "Permission denied" in told or "read-only" in told
    assert files(frozen.folder / "disk/w") == before
    frozen.thaw()
    frozen.run("disk/w", *words)
    frozen.run("disk/w", "sync")
    counts = frozen.seen("disk/w")
    assert counts == {
        **({} if name == "retire" else {LESSON: 1}),
        **({"Another lesson": 1} if name == "correct" else {}),
        AGAIN: 1,
    }


def test_a_folder_that_cannot_be_written_is_made_no_workspace(frozen):
    done = frozen.run("disk", "init", "--agent", "tank", expect=6)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
