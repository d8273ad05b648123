"""Fault 26 of FAULTS: shallow and partial clones, as the remote and around a workspace; far sides that say no."""

import hashlib
import os
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.faults.test_full_disk import fill, mounted
from tests.faults.test_sync import LESSON, Bench

SHALLOW = ("--depth=1",)
BLOBLESS = ("--filter=blob:none",)
TREELESS = ("--filter=tree:0",)
BOTH = (*SHALLOW, *BLOBLESS)
KINDS = {"shallow": SHALLOW, "without blobs": BLOBLESS, "without trees": TREELESS, "both": BOTH}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def clan_with_a_history(bench: Bench) -> None:
    """Two agents have said things for some commits, so that there is something to leave out of a clone."""
    for agent in ("velma", "tank"):
        bench.join(agent)
        for number in range(2):
            bench.correct(agent, f"Lesson {number} of {agent}")
            bench.run(agent, "discover", "--problem", f"finding {number} of {agent}", "--solution", "s")
            bench.sync(agent)
    bench.sync("velma")
    assert int(bench.git("rev-list", "--count", "fleet", where="clan.git")) > 3
    bench.git("config", "uploadpack.allowFilter", "true", where="clan.git")
    bench.git("config", "uploadpack.allowAnySHA1InWant", "true", where="clan.git")


KNOWN = {f"Lesson {number} of {agent}": 1 for number in range(2) for agent in ("velma", "tank")}


def clone(bench: Bench, target: str, *how: str) -> str:
    """Clone the clan's repository as git does over a network; return the address of the copy."""
    bench.git("clone", "--quiet", *how, f"file://{bench.remote}", target)
    return str(bench.folder / target)


def missing(bench: Bench, where: str, branch: str) -> list[str]:
    """Return the objects that a partial clone lacks."""
    shown = bench.git("rev-list", "--objects", "--missing=print", branch, where=where)
    return [row for row in shown.splitlines() if row.startswith("?")]


# --- as the remote --------------------------------------------------------------------------------------------------


def test_a_shallow_clone_is_as_good_a_remote_as_any(bench):
    clan_with_a_history(bench)
    url = clone(bench, "mirror.git", "--bare", "--branch=fleet", *SHALLOW)
    assert bench.git("rev-parse", "--is-shallow-repository", where="mirror.git").strip() == "true"
    for agent in ("slash", "popashot"):
        bench.run(agent, "init", "--agent", agent, "--remote", url, "--yes")
        bench.correct(agent, LESSON)
        bench.run(agent, "sync")
    bench.sync("slash")
    assert bench.seen("slash") == bench.seen("popashot") == KNOWN | {LESSON: 2}
    # Whoever shared with the full repository before goes on with the shallow one, and the other way round.
    for remote in (url, str(bench.remote)):
        bench.run("velma", "init", "--agent", "velma", "--remote", remote, "--yes")
        bench.correct("velma", LESSON)
        bench.sync("velma", "velma")
    assert bench.seen("velma") == KNOWN | {LESSON: 4}
    bench.sync("tank")
    assert bench.seen("tank") == KNOWN | {LESSON: 4}


@pytest.mark.parametrize("how", [TREELESS, BOTH], ids=["without trees", "both"])
def test_a_partial_clone_as_the_remote_works_or_says_why_and_loses_nothing(bench, how):
    clan_with_a_history(bench)
    url = clone(bench, "mirror.git", "--bare", "--branch=fleet", *how)
    assert missing(bench, "mirror.git", "fleet"), "something is left out"
    joined = bench.run("slash", "init", "--agent", "slash", "--remote", url, "--yes", expect=None)
    bench.correct("slash", LESSON)
    done = bench.run("slash", "sync", expect=None)
    assert done.returncode in (0, 5), done.stderr
    assert joined.returncode == done.returncode, joined.stderr
    if done.returncode:
        # A newer git's server fetches nothing that it lacks on behalf of others.
        assert "nothing is lost" in done.stderr
        assert not done.stdout
        assert bench.status("slash")["waiting"]["lines"] == 1
    else:
        assert bench.seen("slash") == KNOWN | {LESSON: 1}
        bench.run("popashot", "init", "--agent", "popashot", "--remote", url, "--yes")
        bench.sync("popashot")
        assert bench.seen("popashot") == KNOWN | {LESSON: 1}
    bench.run("slash", "init", "--agent", "slash", "--remote", str(bench.remote), "--yes")
    bench.sync("slash", "tank")
    assert bench.seen("slash") == bench.seen("tank") == KNOWN | {LESSON: 1}


def bomb(count: int) -> bytes:
    """Return a pack of under 2 kB with a number of blobs of 96 MiB: each is a delta on one, which is one on another."""

    def entry(kind: int, size: int, base: bytes, data: bytes) -> bytes:
        head = bytes([0x80 | kind << 4 | size & 15]) if size > 15 else bytes([kind << 4 | size])
        return head + (number(size >> 4) if size > 15 else b"") + base + zlib.compress(data, 9)

    def number(value: int) -> bytes:
        return (bytes([value & 127 | 128]) + number(value >> 7)) if value > 127 else bytes([value])

    def back(distance: int) -> bytes:
        found = [distance & 127]
        while distance := distance >> 7:
            distance -= 1
            found.append(distance & 127 | 128)
        return bytes(reversed(found))

    small, large = 0x10000, 0xFF0000
    pack = b"PACK" + (2).to_bytes(4, "big") + (2 + count).to_bytes(4, "big")
    first = len(pack)
    pack += entry(3, small, b"", b"\0" * small)
    second = len(pack)
    delta = number(small) + number(large) + b"\x80" * (large // small)  # each copies all of it
    pack += entry(6, len(delta), back(second - first), delta)
    for each in range(count):
        delta = number(large) + number(6 * large + 4) + b"\xc0\xff" * 6 + b"\x04%04d" % each
        pack += entry(6, len(delta), back(len(pack) - second), delta)
    return pack + hashlib.sha1(pack).digest()


def test_what_takes_too_long_to_fetch_is_told_and_leaves_no_half_pack(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma")
    subprocess.run(["git", "index-pack", "--stdin"], cwd=bench.remote, input=bomb(8), check=True, capture_output=True)
    every = ("cat-file", "--batch-all-objects", "--batch-check=%(objectsize) %(objectname)")
    sizes = [row.split() for row in bench.git(*every, where="clan.git").splitlines()]
    blobs = [oid for size, oid in sizes if int(size) > 10**8]
    assert len(blobs) == 8
    listed = "".join(f"100644 blob {oid}\tf{number}\n" for number, oid in enumerate(blobs))
    tree = subprocess.run(["git", "mktree"], cwd=bench.remote, input=listed, check=True, capture_output=True, text=True)
    made = bench.git(
        "-c",
        "user.name=m",
        "-c",
        "user.email=m@x",
        "commit-tree",
        "-m",
        "x",
        "-p",
        "fleet",
        tree.stdout.strip(),
        where="clan.git",
    ).strip()
    before = bench.git("rev-parse", "fleet", where="clan.git").strip()
    bench.git("update-ref", "refs/heads/fleet", made, where="clan.git")
    bench.run("tank", "config", "set", "share.wait_s", "1")
    packs = bench.folder / "tank/.fleet/git/objects/pack"
    for _ in range(2):
        said = bench.run("tank", "sync", expect=5).stderr
        assert "nothing is lost" in said
        assert "the branch brings more than fits into that time" in said
    assert [*packs.glob("tmp_*")]
    bench.git("update-ref", "refs/heads/fleet", before, where="clan.git")
    bench.run("tank", "config", "set", "share.wait_s", "60")
    bench.sync("tank")
    assert not [*packs.glob("tmp_*")]
    assert bench.seen("tank") == {LESSON: 1}


# --- around the workspace -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", KINDS.values(), ids=KINDS.keys())
def test_a_workspace_in_a_shallow_or_partial_clone_shares_as_in_any(bench, how):
    project(bench)
    clone(bench, "work", "--branch=main", *how)
    clone(bench, "whole", "--branch=main")
    before = state_of(bench, "work")
    for where, agent in (("work", "velma"), ("whole", "tank")):
        bench.run(where, "init", "--agent", agent)
        bench.correct(where, LESSON)
        bench.run(where, "sync", "--yes")
    bench.sync("work", "whole")
    assert bench.seen("work") == bench.seen("whole") == {LESSON: 2}
    # What git left out is still left out, and what the project has is as it was.
    assert state_of(bench, "work") == before
    bench.git("fsck", where="clan.git")
    bench.git("fetch", "--quiet", "--unshallow" if how in (SHALLOW, BOTH) else "origin", where="work")
    bench.correct("work", "Another lesson")
    bench.sync("work", "whole")
    assert bench.seen("whole") == {LESSON: 2, "Another lesson": 1}


def test_a_clone_of_one_branch_alone_shares_as_any(bench):
    project(bench)
    clone(bench, "work", "--branch=main", "--single-branch", "--no-tags", *SHALLOW)
    bench.run("work", "init", "--agent", "velma")
    bench.correct("work", LESSON)
    bench.run("work", "sync", "--yes")
    assert [found.text for found in bench.edition()] == [LESSON]


def project(bench: Bench) -> None:
    """A project with a history lies in the bare repository, and nothing of the clan's yet."""
    bench.git("init", "--quiet", "--bare", "--initial-branch=main", str(bench.remote))
    bench.git("config", "uploadpack.allowFilter", "true", where="clan.git")
    script = b"".join(
        b"commit refs/heads/main\nmark :%d\ncommitter a <a@localhost> %d +0000\ndata 0\n%bM 100644 inline code/%d.py\n"
        b"data 8\nprint()\n\n" % (number, 1795219200 + number, b"from :%d\n" % (number - 1) * (number > 1), number)
        for number in range(1, 5)
    )
    words = ["git", "fast-import", "--quiet"]
    subprocess.run(words, cwd=bench.remote, env=bench.environment(), input=script, capture_output=True, check=True)


def state_of(bench: Bench, where: str) -> tuple[str, str, str]:
    """Return what fleet has no business with: the branches, how shallow it is, and how the work tree stands."""
    shallow = bench.folder / where / ".git/shallow"
    refs = bench.git("for-each-ref", where=where)
    changed = bench.git("status", "--porcelain", "--untracked-files=no", where=where)
    return refs, shallow.read_text() if shallow.exists() else "", changed


# --- a far side that says no ----------------------------------------------------------------------------------------


HOOKS = {
    "pre-receive": "echo 'lessons only on weekdays' >&2\nexit 1\n",
    "update": 'echo "lessons only on weekdays: $1" >&2\nexit 1\n',
    "pre-receive, without a word": "exit 1\n",
    "reference-transaction": '[ "$1" = prepared ] && { echo "lessons only on weekdays" >&2; exit 1; }\nexit 0\n',
    "reference-transaction, without a word": '[ "$1" != prepared ]\n',
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("clan"))
    bench.join("velma")
    bench.correct("velma", "The first lesson")
    bench.sync("velma")
    bench.correct("velma", LESSON)
    bench.keep()
    return bench


@pytest.fixture
def waiting(made):
    """Velma, who has sent a lesson and has another one that waits."""
    made.again()
    return made


@pytest.mark.parametrize(("name", "command"), [*((name, "sync") for name in HOOKS), (next(iter(HOOKS)), "compact")])
def test_a_hook_that_says_no_is_reported_with_exit_3_and_all_waits(waiting, name, command):
    bench, code = waiting, 3  # of a hook on transactions, too, of which git's own server dies instead of answering
    head = bench.git("rev-parse", "fleet", where="clan.git")
    path = hook(bench, name.split(",")[0], HOOKS[name])
    done = bench.run("velma", command, expect=code)
    assert done.stdout == "", "nobody says synced"
    assert "nothing is lost" in done.stderr
    assert "once whoever runs it allows that" in done.stderr
    assert "hung up" not in done.stderr, "a refusal is no trouble with the line"
    if "without" not in name:
        assert "weekdays" in done.stderr
    assert bench.git("rev-parse", "fleet", where="clan.git") == head
    assert bench.status("velma")["waiting"]["lines"] == 1
    assert bench.seen("velma") == {"The first lesson": 1, LESSON: 1}
    bench.run("velma", command, expect=code)
    path.unlink()
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0
    assert sorted(found.text for found in bench.edition()) == sorted(bench.seen("velma"))


def test_a_hook_that_refuses_editions_alone_lets_the_lines_through_and_counts_nothing_twice(bench):
    """The lines are a push of their own: what a server has against pages of Markdown must not hold them up."""
    bench.join("velma")
    bench.join("tank")
    script = 'while read old new ref; do git ls-tree -r --name-only "$new" | grep -q "\\.md$" && exit 1; done\nexit 0\n'
    path = hook(bench, "pre-receive", script)
    for agent in ("velma", "tank", "velma"):
        bench.correct(agent, LESSON)
        bench.run(agent, "sync", expect=3)
    assert "patterns.jsonl" not in bench.tree()
    bench.run("tank", "sync", expect=3)
    assert bench.seen("tank") == {LESSON: 3}
    path.unlink()
    bench.sync("velma", "tank")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 3}
    assert [found.count("seen") for found in bench.edition()] == [3]


def test_a_server_that_denies_this_branch_to_everybody_is_reported_with_exit_3(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.git("config", "receive.denyDeletes", "true", where="clan.git")
    bench.git("config", "transfer.hideRefs", "refs/heads/fleet", where="clan.git")
    done = bench.run("velma", "sync", expect=3)
    assert "nothing is lost" in done.stderr
    assert bench.seen("velma") == {LESSON: 1}
    bench.git("config", "--unset", "transfer.hideRefs", where="clan.git")
    bench.sync("velma")
    assert [found.text for found in bench.edition()] == [LESSON]


@pytest.mark.parametrize("harm", ["hidden", "locked"])
def test_a_branch_that_stands_still_and_takes_no_push_is_a_refusal_and_not_a_race(bench, harm, monkeypatch):
    """Nobody was faster: trying for minutes, and saying that somebody was, would help no one."""
    bench.join("velma")
    bench.correct("velma", "The first lesson")
    bench.sync("velma")
    bench.correct("velma", LESSON)
    paused = []
    monkeypatch.setattr("fleet.share.exchange._pause", lambda *_: paused.append(1) or 0.0)
    lock = bench.remote / "refs/heads/fleet.lock"
    if harm == "locked":
        lock.touch()
    else:
        bench.git("config", "receive.hideRefs", "refs/heads/fleet", where="clan.git")
    done = bench.run("velma", "sync", expect=3)
    assert len(paused) == 4
    assert "though nobody was faster" in done.stderr
    assert "nothing is lost" in done.stderr
    assert ("fleet.lock" if harm == "locked" else "stale info") in done.stderr
    assert bench.status("velma")["waiting"]["lines"] == 1
    if harm == "locked":
        lock.unlink()
    else:
        bench.git("config", "--unset", "receive.hideRefs", where="clan.git")
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0


def test_a_renamed_branch_is_brought_back_and_its_new_name_can_be_given(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.git("branch", "-m", "fleet", "lessons", where="clan.git")
    done = bench.run("velma", "sync")
    assert "the branch fleet is gone" in done.stderr
    assert "[share] branch" in done.stderr
    config = bench.folder / "velma/fleet.toml"
    config.write_text(config.read_text().replace('branch = "fleet"', 'branch = "lessons"'))
    bench.run("velma", "sync", "--yes")
    assert bench.seen("velma") == {LESSON: 1}
    assert bench.status("velma")["waiting"]["lines"] == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("harm", ["full", "read-only"])
def test_a_far_side_without_room_or_the_right_to_write_is_a_refusal_that_says_so(bench, harm):
    bench.join("velma")
    bench.correct("velma", "The first lesson")
    bench.sync("velma")
    bench.correct("velma", LESSON)
    kept = bench.remote.rename(bench.folder / "kept.git")
    bench.remote.mkdir()
    if not mounted(bench.remote):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        shutil.copytree(kept, bench.remote, dirs_exist_ok=True)
        if harm == "full":
            fill(bench.remote, 0)
        else:
            subprocess.run(["mount", "-o", "remount,ro", bench.remote], check=True, capture_output=True)
        done = bench.run("velma", "sync", expect=3)
    finally:
        subprocess.run(["umount", "--lazy", bench.remote], check=True)
    assert "unpacker error" in done.stderr
    assert "--author" not in done.stderr
    assert "nothing is lost" in done.stderr
    assert "once whoever runs it has put that right" in done.stderr
    assert bench.status("velma")["waiting"]["lines"] == 1
    bench.remote.rmdir()
    kept.rename(bench.remote)
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0


def hook(bench: Bench, name: str, script: str) -> Path:
    """Put a hook into the bare repository."""
    path = bench.remote / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path
