"""What every remote promises. One suite over all of them; a new transport joins by a ``Far`` of its own.

That many push at once, that a reply is lost, that a branch is rewound, unrelated or deleted: here as laws.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from fleet.model import limits
from fleet.model import line as codec
from fleet.share.git import GitRemote
from fleet.share.remote import Files, Moved, RemoteRefused, RemoteUnavailable
from fleet.store.git import Bare
from fleet.store.tree import GitTree
from tests.memory_remote import MemoryRemote, MemoryServer, MemoryTree
from tests.pulling import Pulling, PullingRemote, Whole

ONE = "patterns.d/popashot.7f3a91c2.jsonl"
TWO = "patterns.d/tank.c0ffee42.jsonl"
Remote = GitRemote | MemoryRemote


def line(number: int, seen: int = 1) -> bytes:
    """Return a canonical line of the replica in ``ONE``."""
    return (
        b'{"id":"p-%016x","w":{"popashot.7f3a91c2":{"add":"2026-11-20T22:30:00.123Z-0000",'
        b'"first":{"text":"%d"},"n":{"seen":%d}}}}\n' % (number, number, seen)
    )


class Far(Protocol):
    """A far side, and the faults that the suite needs of it."""

    def remote(self) -> Remote: ...
    def drops_reply(self) -> Remote:
        """Give a remote that has pulled, and whose next push lands without its hearing of it."""
        ...

    def refuse(self, words: str) -> None: ...
    def down(self) -> None: ...
    def rewind(self) -> None: ...
    def delete(self) -> None: ...
    def replace(self, files: Files) -> None: ...


class MemoryFar:
    def __init__(self) -> None:
        self.server = MemoryServer()

    def remote(self) -> Remote:
        return MemoryRemote(self.server, MemoryTree())

    def rewind(self) -> None:
        self.server.rewind()

    def delete(self) -> None:
        self.server.delete()

    def replace(self, files: Files) -> None:
        self.server.replace(files)

    def drops_reply(self) -> Remote:
        remote = self.remote()
        remote.pull("")
        self.server.drops_next_reply = True
        return remote

    def refuse(self, words: str) -> None:
        self.server.refusal = words

    def down(self) -> None:
        self.server.is_down = True


# Stands in for ssh: runs the command here, and of a push passes on what the server says first, but not its verdict.
DEAF_SSH = """\
import subprocess, sys
if "receive-pack" not in sys.argv[-1]:
    sys.exit(subprocess.call(sys.argv[-1], shell=True))
server = subprocess.Popen(sys.argv[-1], shell=True, stdout=subprocess.PIPE)
out = sys.stdout.buffer
while (head := server.stdout.read(4)) != b"0000":
    out.write(head + server.stdout.read(int(head, 16) - 4))
out.write(head)
out.flush()
server.stdout.read()
sys.exit(255)
"""


class GitFar:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.server = folder / "server.git"
        self.monkeypatch = monkeypatch
        self.count = 0
        subprocess.run(["git", "init", "-q", "--bare", self.server], check=True)

    def git(self, *arguments: str) -> str:
        command = ["git", f"--git-dir={self.server}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def remote(self, url: str | None = None) -> PullingRemote:
        self.count += 1
        return PullingRemote(GitTree(self.folder / f"machine{self.count}/git"), url or str(self.server), "fleet")

    def rewind(self) -> None:
        self.git("update-ref", "refs/heads/fleet", "refs/heads/fleet~1")

    def delete(self) -> None:
        self.git("update-ref", "-d", "refs/heads/fleet")

    def replace(self, files: Files) -> None:
        self.delete()
        assert isinstance(self.remote().push(files, ""), str)

    def drops_reply(self) -> Remote:
        script = self.folder / "deaf_ssh.py"
        script.write_text(DEAF_SSH)
        self.monkeypatch.setenv("GIT_SSH_COMMAND", f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}")
        self.monkeypatch.setenv("GIT_SSH_VARIANT", "simple")
        remote = self.remote(f"ssh://far{self.server}")
        remote.pull("")
        return remote

    def refuse(self, words: str) -> None:
        hook = self.server / "hooks/pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {shlex.quote(words)} >&2\nexit 1\n")
        hook.chmod(0o755)

    def down(self) -> None:
        self.server.rename(self.folder / "elsewhere.git")


class Machine:
    """A machine's tree store, and its way to a far side whose commits come into it."""

    def __init__(self, remote: Remote, tree: GitTree) -> None:
        self.remote = remote
        self.tree = tree

    def files(self, commit: str) -> Files:
        """Return what the tree store has of a commit."""
        paths = self.tree.paths(commit)
        return {path: self.tree.read(oid) for path, (oid, _) in paths.items()}


def machine(far: Far) -> Machine:
    if isinstance(far, MemoryFar):
        tree = MemoryTree()
        return Machine(MemoryRemote(far.server, tree), tree)
    remote = far.remote()
    assert isinstance(remote, Pulling)
    return Machine(remote, GitTree(remote._copy.folder))


@pytest.fixture(params=["memory", "git"])
def far(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    return _far(request.param, tmp_path, monkeypatch)


def _far(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    if which == "memory":
        return MemoryFar()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # a machine without any git configuration
    return GitFar(tmp_path, monkeypatch)


def pushed(remote: Remote, files: Files, on: str) -> str:
    mark = remote.push(files, on)
    assert isinstance(mark, str), mark
    return mark


def test_an_empty_remote_has_nothing_and_an_empty_mark(far: Far):
    files, mark = far.remote().pull("")
    assert (files, mark) == ({}, "")
    assert isinstance(files, Whole)


def test_what_one_pushes_first_another_pulls_whole(far: Far):
    told = {"patterns.jsonl": line(1), ONE: line(2)}
    mark = pushed(far.remote(), told, "")
    files, seen = far.remote().pull("")
    assert files == told
    assert seen == mark
    assert isinstance(files, Whole)


def test_files_of_every_kind_come_back(far: Far):
    told = {"patterns.jsonl": b"{}\n", ONE: b"1\n", ".gitattributes": b"x", "patterns.md": b"# page\n"}
    pushed(far.remote(), told, "")
    assert far.remote().pull("")[0] == told


def test_only_what_changed_comes(far: Far):
    writer, other, reader = far.remote(), far.remote(), far.remote()
    first = pushed(writer, {"patterns.jsonl": line(0), ONE: line(1)}, "")
    assert reader.pull("")[1] == first
    assert other.pull("")[1] == first
    second = pushed(other, {TWO: line(2)}, first)
    files, mark = reader.pull(first)
    assert (files, mark) == ({TWO: line(2)}, second)
    assert not isinstance(files, Whole)
    assert not reader.warnings


def test_an_old_mark_gives_all_that_changed_since_then(far: Far):
    writer, still, reader = far.remote(), far.remote(), far.remote()
    first = pushed(still, {TWO: line(9)}, "")
    reader.pull("")
    mark = first
    writer.pull("")
    for number in range(1, 4):
        mark = pushed(writer, {ONE: line(1, number)}, mark)
        reader.pull(mark)
    files, seen = reader.pull(first)
    assert (files, seen) == ({ONE: line(1, 3)}, mark)
    assert not reader.warnings


def test_without_a_change_the_mark_stays_and_nothing_comes(far: Far):
    writer = far.remote()
    mark = pushed(writer, {ONE: line(1)}, "")
    assert writer.pull(mark) == ({}, mark)
    assert writer.pull(mark) == ({}, mark)
    assert writer.push({}, mark) == mark


def test_a_mark_that_nobody_knows_gives_the_whole_tree(far: Far):
    mark = pushed(far.remote(), {ONE: line(1)}, "")
    for unknown in ("0" * 40, "m999", "--output=x"):
        files, seen = far.remote().pull(unknown)
        assert (files, seen) == ({ONE: line(1)}, mark)
        assert isinstance(files, Whole)


def test_of_two_that_push_at_once_nothing_is_lost(far: Far):
    fast, slow = far.remote(), far.remote()
    base = pushed(fast, {"patterns.jsonl": line(0)}, "")
    slow.pull("")
    pushed(fast, {ONE: line(1)}, base)
    if isinstance(slow.push({TWO: line(2)}, base), Moved):
        pushed(slow, {TWO: line(2)}, slow.pull(base)[1])
    files, _ = far.remote().pull("")
    assert files == {"patterns.jsonl": line(0), ONE: line(1), TWO: line(2)}


def test_the_slower_of_two_is_told_and_gets_through_after_a_pull(far: Far):
    fast, slow = far.remote(), far.remote()
    base = pushed(fast, {"patterns.jsonl": b"{}\n"}, "")
    slow.pull("")
    pushed(fast, {ONE: b"1\n"}, base)
    moved = slow.push({TWO: b"2\n"}, base)
    assert isinstance(moved, Moved)
    assert moved.reason
    files, mark = slow.pull(base)
    assert files == {ONE: b"1\n"}
    pushed(slow, {TWO: b"2\n"}, mark)
    assert far.remote().pull("")[0] == {"patterns.jsonl": b"{}\n", ONE: b"1\n", TWO: b"2\n"}


def test_of_two_that_create_it_at_once_one_is_told(far: Far):
    fast, slow = far.remote(), far.remote()
    assert fast.pull("")[1] == slow.pull("")[1] == ""
    pushed(fast, {ONE: b"1\n"}, "")
    assert isinstance(slow.push({TWO: b"2\n"}, ""), Moved)
    assert far.remote().pull("")[0] == {ONE: b"1\n"}


def test_a_path_is_removed_and_others_see_it_go(far: Far):
    writer, reader = far.remote(), far.remote()
    mark = pushed(writer, {ONE: b"1\n", TWO: b"2\n"}, "")
    reader.pull("")
    after = pushed(writer, {ONE: b""}, mark)
    assert reader.pull(mark) == ({ONE: b""}, after)
    assert far.remote().pull("")[0] == {TWO: b"2\n"}


def test_removing_what_is_not_there_is_harmless(far: Far):
    remote = far.remote()
    mark = pushed(remote, {TWO: b"2\n"}, "")
    pushed(remote, {ONE: b"", "patterns.jsonl": b"x\n"}, mark)
    assert far.remote().pull("")[0] == {TWO: b"2\n", "patterns.jsonl": b"x\n"}


def test_what_is_told_of_one_id_later_takes_nothing_back(far: Far):
    remote = far.remote()
    mine, theirs = line(1), line(1).replace(b"popashot.7f3a91c2", b"tank.c0ffee42")
    mark = pushed(remote, {ONE: mine}, "")
    pushed(remote, {TWO: theirs}, mark)
    room = codec.Line(id=codec.decode(mine.rstrip()).id)
    for data in far.remote().pull("")[0].values():
        for raw in data.splitlines():
            room = codec.join(room, codec.decode(raw))
    assert codec.covers(room, codec.decode(mine.rstrip()))
    assert codec.covers(room, codec.decode(theirs.rstrip()))


def test_a_retry_after_a_lost_reply_is_harmless(far: Far):
    first = pushed(far.remote(), {"patterns.jsonl": line(0)}, "")
    unlucky = far.drops_reply()
    with pytest.raises(RemoteUnavailable, match="nothing is lost"):
        unlucky.push({ONE: line(1)}, first)
    retry = far.remote()
    files, mark = retry.pull(first)
    assert line(1).rstrip() in b"".join(files.values())  # it had arrived
    pushed(retry, {ONE: line(1)}, mark)
    assert far.remote().pull("")[0] == {"patterns.jsonl": line(0), ONE: line(1)}


def test_a_rewound_remote_gives_its_older_files_and_a_warning(far: Far):
    remote = far.remote()
    first = pushed(remote, {ONE: b"1\n"}, "")
    second = pushed(remote, {ONE: b"1\n2\n", TWO: b"2\n"}, first)
    far.rewind()
    assert isinstance(remote.push({ONE: b"3\n"}, second), Moved)
    assert remote.pull(second) == ({ONE: b"1\n", TWO: b""}, first)
    assert "rewritten" in remote.warnings.pop()
    pushed(remote, {ONE: b"1\n2\n", TWO: b"2\n"}, first)
    assert far.remote().pull("")[0] == {ONE: b"1\n2\n", TWO: b"2\n"}
    assert not remote.warnings


def test_an_unrelated_history_gives_the_difference_and_a_warning(far: Far):
    remote = far.remote()
    mark = pushed(remote, {ONE: b"1\n", "patterns.jsonl": b"{}\n"}, "")
    far.replace({TWO: b"2\n", "patterns.jsonl": b"{}\n"})
    files, new = remote.pull(mark)
    assert files == {ONE: b"", TWO: b"2\n"}
    assert "rewritten" in remote.warnings.pop()
    pushed(remote, {ONE: b"1\n"}, new)


def test_of_a_deleted_remote_all_is_gone_and_the_next_push_brings_it_back(far: Far):
    remote = far.remote()
    mark = pushed(remote, {ONE: b"1\n", "patterns.jsonl": b"{}\n"}, "")
    far.delete()
    assert isinstance(remote.push({ONE: b"2\n"}, mark), Moved)
    assert remote.pull(mark) == ({ONE: b"", "patterns.jsonl": b""}, "")
    assert remote.warnings
    remote.warnings.clear()
    again = pushed(remote, {ONE: b"1\n"}, "")
    assert remote.pull(again) == ({}, again)
    assert not remote.warnings


def test_bytes_come_back_byte_for_byte(far: Far):
    strange = {
        ONE: bytes(range(256)) * 3 + b"\r\n\xef\xbb\xbf\r",
        TWO: "naïve 日本語 🦀 e\u0301\n".encode(),
        "patterns.md": b"\n",
        "members.toml": b"no newline at the end",
        "discoveries.jsonl": b"\ndata 5\nM 100644 inline x\n\ndone\n",
        "discoveries.d/a.00000000.jsonl": b"\0",
    }
    pushed(far.remote(), strange, "")
    assert far.remote().pull("")[0] == strange


def test_a_large_file_comes_back_whole(far: Far):
    large = os.urandom(1 << 20) * 24
    mark = pushed(far.remote(), {"patterns.jsonl": large, ONE: b"1\n"}, "")
    files, seen = far.remote().pull("")
    assert files == {"patterns.jsonl": large, ONE: b"1\n"}
    assert seen == mark


def test_many_files_come_in_one_pull(far: Far):
    many = {f"patterns.d/agent{number}.{number:08x}.jsonl": line(number) for number in range(300)}
    pushed(far.remote(), many, "")
    assert far.remote().pull("")[0] == many


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "/etc/passwd", "patterns.d/../../x", "patterns.d/x.jsonl", "patterns.d/A.7f3a91c2.jsonl", "x", ""),
        *(
            "patterns.jsonl/x",
            "patterns.d",
            f"{ONE}\n",
            f"patterns.d/sub/{Path(ONE).name}",
            ".git/config",
            ".gitmodules",
        ),
        *("patterns.e/tank.c0ffee42.jsonl", f"./{ONE}", f"{ONE} ", "Patterns.jsonl"),
    ],
)
def test_a_path_that_is_not_the_clans_is_our_own_fault(far: Far, path: str):
    with pytest.raises(ValueError, match="no place"):
        far.remote().push({path: b"x"}, "")
    assert far.remote().pull("") == ({}, "")


def test_a_file_that_others_would_not_read_is_not_sent(far: Far, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fleet.store.tree.BLOB_BYTES_MAX", 10)
    with pytest.raises(RemoteRefused, match="nothing is lost"):
        far.remote().push({ONE: b"12345678901"}, "")


def test_a_refusal_is_told_in_the_far_sides_words(far: Far):
    far.refuse("not on a Friday")
    with pytest.raises(RemoteRefused, match=r"not on a Friday.*nothing is lost"):
        far.remote().push({ONE: line(1)}, "")
    assert far.remote().pull("") == ({}, "")


def test_a_remote_that_is_down_is_unavailable_and_nothing_is_lost(far: Far):
    remote = far.remote()
    mark = pushed(remote, {ONE: line(1)}, "")
    far.down()
    with pytest.raises(RemoteUnavailable, match="nothing is lost"):
        remote.pull(mark)
    with pytest.raises(RemoteUnavailable, match="nothing is lost"):
        remote.push({ONE: line(2)}, mark)


# --- remotes whose marks are commits of the machine's tree store -----------------------------------------------------


def test_one_git_reads_what_a_fetch_counts_and_what_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    far, started, start = GitFar(tmp_path, monkeypatch), [], Bare._start_reader
    pushed(far.remote(), {"patterns.jsonl": b"".join(map(line, range(100)))}, "")
    monkeypatch.setattr(Bare, "_start_reader", lambda bare: started.append(bare) or start(bare))
    tree = GitTree(tmp_path / "here/git")
    (tmp_path / "here").mkdir()
    with tree.reading():
        head = GitRemote(tree, str(far.server), "fleet").fetch("")
        assert tree.paths(head)["patterns.jsonl"].size > limits.UNREADABLE_MAX
        assert tree.read(tree.paths(head)["patterns.jsonl"].oid).startswith(line(0))
    assert len(started) == 1


def test_fleets_own_repository_keeps_a_commit_of_its_own_as_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Four loose objects would be synced one by one, by a process of their own."""
    remote = GitFar(tmp_path, monkeypatch).remote()
    pushed(remote, {"patterns.jsonl": line(1)}, "")
    assert {each.parent.name for each in remote._copy.folder.glob("objects/*/*")} == {"pack"}


def test_what_is_fetched_and_what_is_pushed_is_in_the_tree_store(far: Far):
    writer, reader = machine(far), machine(far)
    assert reader.remote.fetch("") == ""
    first = pushed(writer.remote, {"patterns.jsonl": b"{}\n", ONE: b"1\n"}, "")
    assert writer.files(first) == {"patterns.jsonl": b"{}\n", ONE: b"1\n"}
    assert reader.remote.fetch("") == first
    assert reader.files(first) == writer.files(first)
    second = pushed(reader.remote, {ONE: b"", TWO: b"2\n"}, first)
    assert writer.remote.fetch(first) == second
    assert writer.files(second) == reader.files(second) == {"patterns.jsonl": b"{}\n", TWO: b"2\n"}
    assert writer.tree.descends(second, first)
    assert writer.tree.head() == "", "only who takes a tree in moves the head"


def test_a_fetched_head_that_was_rewound_does_not_descend_and_is_warned_of(far: Far):
    one = machine(far)
    first = pushed(one.remote, {ONE: b"1\n"}, "")
    second = pushed(one.remote, {ONE: b"1\n2\n"}, first)
    far.rewind()
    assert one.remote.fetch(second) == first
    assert "rewritten" in one.remote.warnings.pop()
    assert not one.tree.descends(first, second)
    assert one.files(second) == {ONE: b"1\n2\n"}, "what was taken in stays readable"
    far.delete()
    assert one.remote.fetch(first) == ""
    assert one.remote.warnings
    assert not one.tree.descends("", first)
