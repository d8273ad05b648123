"""Fault 10 of FAULTS: many writers push to one real repository at once, and nothing is lost; FLEET_TEST_WRITERS=100.

They are threads, each with a workspace and a git of its own: a hundred processes on two cores would mostly wait for
their interpreters to start. What they meet at is the same: one bare repository, its lock, and its answers.
"""

import json
import os
import random
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from fleet.app import sharing
from fleet.learn import corrections
from fleet.learn.corrections_md import Correction
from fleet.share.git import GitRemote
from fleet.share.remote import Files, Mark, Moved
from fleet.store import config
from fleet.store.tree import GitTree
from fleet.store.workspace import Workspace, World
from tests.pulling import PullingRemote

WRITERS = int(os.environ.get("FLEET_TEST_WRITERS", "12"))
ATTEMPTS_MAX = 15
HELD_S = 0.3  # git itself waits 0.1 s for the lock of a ref
LESSON = "Always use awk over sed for user-provided input substitution"
BEHIND = re.compile(r"non-fast-forward|fetch first|stale info")
LOCKED = re.compile(r"cannot lock ref|failed to lock|failed to update ref|incorrect old value|already exists")


class Noted(GitRemote):
    """A remote that remembers how often it was asked and why it refused."""

    pulls = 0

    def fetch(self, since: Mark) -> Mark:
        self.pulls += 1
        return super().fetch(since)

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        done = super().push(files, on, message=message)
        if isinstance(done, Moved):
            self.refusals = [*getattr(self, "refusals", []), done.reason]
        return done


class Writer:
    """An agent on a machine of its own, with a lesson of its own and one that all share."""

    def __init__(self, folder: Path, number: int, bare: Path) -> None:
        root = folder / f"w{number}"
        root.mkdir()
        (root / config.FILE_NAME).write_text("")
        self.agent, self.rng = f"agent{number}", random.Random(number)
        world = World(entropy=self.rng.randbytes, machine=lambda: f"machine {number}", durable=False)
        self.workspace = Workspace(root, world)
        self.remote = Noted(self.workspace.tree, str(bare), "fleet", timeout_s=300)
        self.refusals: list[str] = []
        self.trouble: BaseException | None = None
        for lesson in (LESSON, f"The lesson of agent {number}"):
            corrections.Corrections(self.workspace, self.agent).log(Correction("w", "r", lesson))
        self.workspace.close()  # another thread will open it

    def sync(self, start: threading.Barrier) -> None:
        """Sync together with all others."""
        start.wait()
        try:
            sharing.sync_with(self.workspace, self.remote, rng=self.rng)
        except BaseException as why:  # shown by the test, which waits for all of them
            self.trouble = why
        finally:
            self.refusals = getattr(self.remote, "refusals", [])
            self.workspace.close()


def hold_the_ref(lock: Path, writers: list[Writer], over: threading.Event) -> None:
    """Hold the branch's lock now and then, as somebody's slow git would, until a writer has been turned away by it."""
    while not over.is_set():
        if any(LOCKED.search(reason) for writer in writers for reason in getattr(writer.remote, "refusals", [])):
            return
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        time.sleep(HELD_S)
        lock.unlink()
        over.wait(HELD_S)


@pytest.fixture
def bare(tmp_path, monkeypatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("GIT_", "FLEET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "clan.git")], check=True)
    return tmp_path / "clan.git"


def test_many_push_at_once_and_each_gets_through_within_fifteen_attempts(bare, tmp_path):
    writers = [Writer(tmp_path, number, bare) for number in range(WRITERS)]
    start, over = threading.Barrier(WRITERS), threading.Event()
    threads = [threading.Thread(target=writer.sync, args=(start,)) for writer in writers]
    holder = threading.Thread(target=hold_the_ref, args=(bare / "refs/heads/fleet.lock", writers, over))
    for thread in (holder, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    holder.join()
    assert [writer.trouble for writer in writers if writer.trouble] == []
    pulls = sorted(writer.remote.pulls for writer in writers)
    refusals = [reason for writer in writers for reason in writer.refusals]
    print(f"pulls {pulls}, refused {len(refusals)}")
    assert pulls[-1] <= ATTEMPTS_MAX
    assert any(BEHIND.search(reason) for reason in refusals)
    assert any(LOCKED.search(reason) for reason in refusals)
    assert_everything_is_there(bare)


def assert_everything_is_there(bare: Path) -> None:
    """Check that a newcomer finds each lesson once, and the common one as often as it was logged."""
    remote = PullingRemote(GitTree(bare.parent / "newcomer.git"), str(bare), "fleet")
    files, _ = remote.pull("")
    found: dict[str, dict[str, int]] = {}
    for path, data in files.items():
        for line in map(json.loads, data.splitlines() if path.endswith(".jsonl") else []):
            seen = found.setdefault(line["id"], {})
            for replica, said in line["w"].items():
                seen[replica] = max(said["n"]["seen"], seen.get(replica, 0))
    assert sorted(sum(seen.values()) for seen in found.values()) == [1] * WRITERS + [WRITERS]
