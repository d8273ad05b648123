"""Fault 5 of FAULTS: a full disk, of 1 MB. Nothing is acknowledged that is not there, and old files stay whole."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import commands
from tests.faults.test_sync import LESSON, Bench

EVERY = os.environ.get("FLEET_FAULTS") == "all"
MIB = 2**20
FILLER = "filler"
PAGE = "x" * 5000
"""The last page of a file has room on a disk that has none: what must not fit needs more."""
COMMANDS = {
    "correct": ("correct", "--wrong", PAGE, "--right", "r", "--pattern", "Another lesson"),
    "discover": ("discover", "--problem", "a finding", "--solution", PAGE),
    "sync": ("sync",),
    "retire": ("retire", "p-"),
    "compact": ("compact",),
}


def mounted(folder: Path, size: str = "1m") -> bool:
    """Mount so much of memory at a folder, if this machine lets us."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", folder]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of 1 MB of its own."""
    folder.mkdir()
    if not mounted(folder):
        pytest.skip("tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with disk(tmp_path / "small") as found:
        yield found


@pytest.fixture(scope="module")
def clan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Velma works on a small disk, tank and the remote beside it; each has a lesson that the other has not."""
    bench = Bench(tmp_path_factory.mktemp("clan"))
    with disk(bench.folder / "small"):
        bench.join("velma", "small/w")
        bench.join("tank")
        bench.correct("small/w", LESSON)
        bench.correct("small/w", LESSON)
        bench.run("small/w", "sync")
        bench.correct("tank", "The first lesson of tank")
        bench.run("tank", "compact")  # from now on it stands in the edition alone
        bench.run("small/w", "sync")
        bench.correct("tank", "The lesson of tank")
        bench.run("tank", "sync")
        bench.correct("small/w", "The lesson of velma")
        bench.keep("small", "tank", "clan.git")
        yield bench


@pytest.fixture
def bench(clan: Bench) -> Bench:
    clan.again()
    return clan


def fill(folder: Path, left_bytes: int) -> None:
    """Leave so much room on a small disk, and no more."""
    path = folder / FILLER
    with path.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(2 * MIB // 4096):
            file.write(b"x" * 4096)
    assert path.stat().st_size <= MIB
    os.truncate(path, max(0, path.stat().st_size - left_bytes))


def kept(folder: Path) -> dict[str, bytes]:
    """Return what agents and people read, and what the exchange goes by."""
    roots = [folder / "agents", folder / "clan-learnings", folder / ".fleet/replica.toml"]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("left_kib", [0, 4, 8, 16, 32, 64] if EVERY else [0, 32])
@pytest.mark.parametrize("command", COMMANDS)
def test_on_a_full_disk_nothing_is_acknowledged_and_with_room_again_all_goes_on(bench, command, left_kib):
    where, small, root = "small/w", bench.folder / "small", bench.folder / "small/w"
    before, known = kept(root), bench.seen(where)
    fill(small, left_kib * 1024)
    words = COMMANDS[command]
    if command == "retire":
        words = ("retire", next(p["id"] for p in bench.patterns(where)["patterns"] if p["text"] == LESSON))
    done = bench.run(where, *words, expect=None)
    if left_kib == 0 and command != "retire":
        assert done.returncode not in (0, 1, 2), done.stdout + done.stderr
    if done.returncode:
        assert done.stderr.startswith("fleet: ")
        assert done.stdout == "", "nothing is acknowledged"
        for name, data in kept(root).items():
            assert command in ("sync", "compact") or data.startswith(before.get(name, b"")), name
    else:
        known = bench.seen(where)
        assert "run the command again" not in done.stderr, "what is done would be done twice"
    for name in before:
        assert command in ("sync", "compact") or (root / name).exists(), name
    whole = bench.patterns(where)
    assert whole["refused"] == 0, "no file is half a file"
    assert bench.seen(where).items() >= known.items() or (command == "retire" and not done.returncode)
    (small / FILLER).unlink()
    bench.run(where, "sync")
    bench.run("tank", "sync")
    bench.run(where, *words, expect=None)
    bench.run(where, "sync")
    bench.run("tank", "sync")
    found = bench.seen(where)
    assert found == bench.seen("tank")
    assert found["The lesson of velma"] == found["The lesson of tank"] == 1
    assert found.get(LESSON, 2) == 2
    assert (LESSON in found) == (command != "retire")
    if command == "correct":
        assert found["Another lesson"] == 1 + (done.returncode == 0)
    assert bench.edition()
    assert not [path for path in root.rglob("*.tmp") if ".fleet/git" not in str(path)], "nothing is left behind"


@pytest.mark.parametrize("left_kib", [0, 4, 16])
def test_a_workspace_that_begins_on_a_full_disk_says_so_and_begins_when_there_is_room(tmp_path, small, left_kib):
    bench = Bench(tmp_path)
    fill(small, left_kib * 1024)
    done = bench.run("small", "init", "--agent", "velma", expect=None)
    assert done.returncode in (0, 6)
    if left_kib == 0:
        assert done.returncode == 6
    assert not done.returncode or "space" in done.stderr
    (small / FILLER).unlink()
    bench.run("small", "init", "--agent", "velma")
    bench.correct("small", LESSON)
    assert bench.seen("small") == {LESSON: 1}


@pytest.mark.parametrize("command", ["patterns", "start", "gossip", "status", "search"])
def test_a_full_disk_is_no_hindrance_to_reading(bench, command):
    fill(bench.folder / "small", 0)
    words = [command, "awk"] if command == "search" else [command]
    done = bench.run("small/w", *words)
    assert command not in ("patterns", "start", "search") or LESSON[:20] in done.stdout


def test_a_session_starts_with_all_that_is_known_though_the_disk_is_full(bench):
    root = bench.folder / "small/w"
    fill(bench.folder / "small", 0)
    payload = json.dumps({"session_id": "s", "cwd": str(root), "source": "startup"}).encode()
    done = commands.hook(["SessionStart"], root, bench.environment(), payload)
    assert LESSON.encode() in done.stdout


@pytest.mark.parametrize("left_kib", [0, 8, 16, 32])
def test_a_local_database_without_room_for_its_tables_is_told_as_a_full_disk_and_made_later(tmp_path, small, left_kib):
    bench = Bench(tmp_path)
    bench.run("small", "init", "--agent", "velma")
    (small / ".fleet/local.db").unlink(missing_ok=True)
    fill(small, left_kib * 1024)
    done = bench.run("small", "pause", expect=None)
    assert done.returncode in (0, 6)
    assert not done.returncode or "The disk is full" in done.stderr
    (small / FILLER).unlink()
    bench.run("small", "pause")
