"""The promises of every tree store, over git's and the one in memory."""

import shutil
from pathlib import Path

import pytest

from fleet.store.git import Bare, Entry
from fleet.store.tree import FETCHED, NOT_PLAIN, GitTree, TreeGoneError, _gone, sort_entries
from tests.memory_remote import MemoryTree

ONE = "patterns.d/popashot.7f3a91c2.jsonl"
TWO = "patterns.d/tank.c0ffee42.jsonl"


class FilledTree(GitTree):
    """A tree store into which a test puts commits, as a fetch does."""

    def put(self, files: dict[str, bytes], on: str) -> str:
        with _gone(), self._bare.locked():
            return self._bare.commit(files, on, message="what a fetch brings")


@pytest.fixture(params=["memory", "git"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> FilledTree | MemoryTree:
    return MemoryTree() if request.param == "memory" else FilledTree(tmp_path / ".fleet/git")


def files(tree: FilledTree, commit: str) -> dict[str, bytes]:
    paths = tree.paths(commit)
    with tree.reading():
        found = {path: tree.read(oid) for path, (oid, _) in paths.items()}
    assert {path: len(data) for path, data in found.items()} == {path: size for path, (_, size) in paths.items()}
    assert all(tree.read(oid) == found[path] for path, (oid, _) in paths.items())
    return found


def test_a_new_store_has_nothing_and_makes_nothing(tree: FilledTree, tmp_path: Path):
    assert tree.head() == ""
    assert tree.paths("") == {}
    tree.move("")
    assert tree.descends("", "")
    assert not [*tmp_path.iterdir()]


def test_what_is_put_is_read_and_files_are_laid_over_what_was_there(tree: FilledTree):
    first = tree.put({ONE: b"1\n", "patterns.jsonl": bytes(range(256))}, "")
    second = tree.put({ONE: b"", TWO: b"2\n"}, first)
    assert files(tree, first) == {ONE: b"1\n", "patterns.jsonl": bytes(range(256))}
    assert files(tree, second) == {TWO: b"2\n", "patterns.jsonl": bytes(range(256))}
    assert tree.paths(first)["patterns.jsonl"] == tree.paths(second)["patterns.jsonl"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({ONE: b"1\n", "patterns.jsonl": b"e\n"}, {ONE: b"", TWO: b"2\n"}),
        ({"patterns.d": b"a file\n", "kept/deep/x": b"x\n"}, {ONE: b"1\n"}),
        ({"patterns.jsonl/deep/x": b"x\n", f"{ONE}/y": b"y\n"}, {"patterns.jsonl": b"e\n", ONE: b"1\n"}),
        ({f"{ONE}/y": b"y\n", "patterns.jsonl/x": b"x\n"}, {ONE: b"", "patterns.jsonl": b"", TWO: b"2\n"}),
        ({"patterns.d": b"a file\n"}, {ONE: b""}),
    ],
)
def test_what_a_commit_is_known_to_hold_is_what_git_lists(before: dict[str, bytes], after: dict[str, bytes], tmp_path):
    bare = Bare(tmp_path / ".fleet/git")
    with bare.locked():
        first = bare.commit(before, "", message="before")
        second = bare.commit(after, first, message="after")
        third = bare.commit({TWO: b"3\n"}, "", message="kept", kept=bare.listing(first))
    for commit in (first, second, third):
        assert bare.listing(commit) == Bare(tmp_path / ".fleet/git").listing(commit)


def test_the_head_is_what_it_was_moved_to(tree: FilledTree):
    first = tree.put({ONE: b"1\n"}, "")
    assert tree.head() == ""
    tree.move(first)
    assert tree.head() == first
    tree.move("")
    assert tree.head() == ""


def test_a_commit_descends_of_what_it_was_put_on_and_of_nothing_unknown(tree: FilledTree):
    first = tree.put({ONE: b"1\n"}, "")
    second = tree.put({TWO: b"2\n"}, first)
    third = tree.put({TWO: b"3\n"}, second)
    other = tree.put({TWO: b"4\n"}, first)
    assert tree.descends(third, first)
    assert tree.descends(first, first)
    assert tree.descends(first, "")
    assert not tree.descends(first, third)
    assert not tree.descends(other, second)
    assert not tree.descends("", first)
    assert not tree.descends(first, "0" * 40)
    assert not tree.descends("0" * 40, first)


def test_the_history_tells_who_committed_to_what_and_what_was_there_when(tree: FilledTree):
    assert (tree.before(9e9), tree.pushers("patterns.d")) == ("", {})
    shard = "patterns.d/velma.09ab12cd.jsonl"
    tree.move(tree.put({"patterns.jsonl": b"a\n", shard: b"b\n"}, ""))
    assert tree.pushers("patterns.d") == {shard: {"fleet@localhost"}}
    assert (tree.before(9e9), tree.before(1)) == (tree.head(), "")


def test_who_committed_since_is_told_where_the_history_goes_on_from_there(tree: FilledTree):
    first = tree.put({ONE: b"1\n"}, "")
    second = tree.put({"patterns.jsonl": b"2\n"}, first)
    third = tree.put({TWO: b"3\n"}, second)
    tree.move(third)
    assert tree.pushers("patterns.d", second)[TWO] == {"fleet@localhost"}
    assert tree.pushers("patterns.d", first)[TWO] == {"fleet@localhost"}
    tree.move(tree.put({TWO: b"4\n"}, first))
    assert tree.pushers("patterns.d", third) is None
    tree.move("")
    assert tree.pushers("patterns.d", third) is None


def test_what_is_read_in_part_is_in_the_way_of_nothing_that_is_read_meanwhile_or_next(tree: FilledTree):
    large = b"".join(b"%d\n" % number for number in range(100_000))
    paths = tree.paths(tree.put({ONE: large, TWO: b"2\n"}, ""))
    one, two = paths[ONE][0], paths[TWO][0]
    with tree.reading():
        with tree.open(one) as content:
            assert content.readline() == b"0\n"
            with tree.open(two) as other:
                assert other.read() == b"2\n"
            assert tree.read(one) == large
            assert content.readline() == b"1\n"
        assert tree.read(two) == b"2\n"
    with tree.open(one) as content:
        assert b"".join(content) == large
    with pytest.raises(TreeGoneError), tree.open("1" * 40) as content:
        content.read()


def test_what_is_not_here_is_gone_and_not_empty(tree: FilledTree):
    first = tree.put({ONE: b"1\n"}, "")
    for unknown in ("1" * 40, "m1"):
        with pytest.raises(TreeGoneError, match=r"fleet sync|not here"):
            tree.paths(unknown)
        with pytest.raises(TreeGoneError):
            tree.put({TWO: b"2\n"}, unknown)
    with pytest.raises(TreeGoneError):
        tree.read("1" * 40)
    with tree.reading():
        assert tree.read(tree.paths(first)[ONE][0]) == b"1\n"
        with pytest.raises(TreeGoneError):
            tree.read("1" * 40)


def test_a_reading_that_is_given_up_leaves_the_store_in_order(tree: FilledTree):
    first = tree.put({ONE: b"1\n" * 100_000, TWO: b"2\n"}, "")
    paths = tree.paths(first)
    with tree.reading():
        with tree.open(paths[ONE].oid) as content:
            assert content.read(1)
        assert files(tree, first)[TWO] == b"2\n"


def test_a_head_that_gc_has_packed_is_read_and_moved(tmp_path: Path):
    tree, bare = FilledTree(tmp_path / "git"), Bare(tmp_path / "git")
    first = tree.put({ONE: b"1\n"}, "")
    second = tree.put({ONE: b"2\n"}, first)
    tree.move(first)
    assert bare.git("gc", "--quiet", "--prune=now").code == 0
    assert not (tmp_path / "git" / FETCHED).exists()
    assert tree.head() == first
    assert files(tree, first) == {ONE: b"1\n"}
    tree.move(second)
    assert tree.head() == second
    tree.move("")
    assert tree.head() == ""


def test_a_repository_that_is_deleted_has_no_head_and_one_of_somebody_elses_is_not_used(tmp_path: Path):
    made, tree = FilledTree(tmp_path / "git"), GitTree(tmp_path / "git")
    first = made.put({ONE: b"1\n"}, "")
    made.move(first)
    config = tmp_path / "git/config"
    config.write_bytes(config.read_bytes() + b"[core]\n\tfsmonitor = touch ran\n")
    with pytest.raises(TreeGoneError, match="not as fleet made it"):
        tree.paths(first)
    shutil.rmtree(tmp_path / "git")
    assert tree.head() == ""
    with pytest.raises(TreeGoneError):
        tree.paths(first)


def test_of_a_tree_only_plain_files_at_the_clans_paths_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fleet.store.tree.BLOB_BYTES_MAX", 100)
    monkeypatch.setattr("fleet.store.tree.TREE_BYTES_MAX", 150)
    listing = {
        ONE: Entry("100644", "a", 60),
        TWO: Entry("100644", "b", 60),
        "patterns.jsonl": Entry("100644", "c", 50),
        "members.toml": Entry("100755", "d", 1),
        "discoveries.jsonl": Entry("100644", "e", 101),
        "link": Entry("120000", "f", 1),
        "NOTES.md": Entry("100644", "g", 1),
    }
    found = sort_entries(listing, {})
    assert found.files == {ONE: ("a", 60), "patterns.jsonl": ("c", 50)}
    assert found.unread.keys() == {"members.toml", "link", "discoveries.jsonl", TWO}
    assert found.unread["members.toml"] == found.unread["link"] == NOT_PLAIN
