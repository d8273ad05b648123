"""What is glanced is what would be loaded: the same records, the same ranking, whatever the files went through."""

import os
import random

import pytest

from crdt import clock
from fleet.keep import config, limits, merging, view
from fleet.keep import line as codec
from fleet.keep.discoveries import Discovery, discovery_id, retraction_id
from fleet.keep.glimpse import Glimpse, GlimpsedFindings
from fleet.keep.line import Line
from fleet.keep.normal import normalise
from fleet.keep.notebook import Notebook, Order
from fleet.keep.reading import DISCOVERIES, PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.recall import lessons
from fleet.share import tree

NOW_MS = 1_795_000_000_000
REPLICAS = ("velma.00000001", "tank.00000002", "slash.00000003")


@pytest.fixture(autouse=True)
def _every_clan_is_large(monkeypatch):
    monkeypatch.setattr(limits, "VIEW_BYTES_MIN", 0)
    monkeypatch.setattr(limits, "REGION_BYTES_MIN", 0)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path, World(wall_ms=lambda: NOW_MS, machine=lambda: "machine", durable=False))
    yield made
    made.close()


def pattern(number: int) -> str:
    return f"p-{number:016x}"


def stamp(number: int) -> str:
    return clock.pack(NOW_MS - 10_000_000 + number)


def some_lines(rng: random.Random, count: int, patterns: int = 12) -> list[Line]:
    """Adds, removes, counters, edits, merges and states, of a few patterns and replicas."""
    made = []
    for number in range(count):
        by, at = rng.choice(REPLICAS), stamp(rng.randrange(1_000_000))
        line = Line(id=pattern(rng.randrange(patterns)), at=at, by=by)
        kind = rng.choice(("add", "add", "add", "rem", "edit", "merge", "state", "count"))
        if kind == "add":
            line.add, line.n = {by: at}, {"seen": {by: rng.randrange(1, 9)}, "sessions": {by: rng.randrange(1, 4)}}
            line.set = {"text": f"lesson {line.id[-2:]}"}
        elif kind == "rem":
            line.rem = {rng.choice(REPLICAS): at}
        elif kind == "count":
            line.n = {"seen": {by: rng.randrange(1, 30)}}
        else:
            field, value = {
                "edit": ("text", f"edited {number % 5}"),
                "merge": (merging.FIELD, pattern(rng.randrange(patterns))),
                "state": ("state", rng.choice(("published", "candidate", "retired"))),
            }[kind]
            line.set, line.when = {field: value}, {field: (at, by)}
        made.append(line)
    return made


def finding(number: int, **more) -> Discovery:
    problem = f"problem {number}"
    made = discovery_id("tip", "", problem, "")
    return Discovery(id=made, at=stamp(number), by=REPLICAS[0], type="tip", problem=problem, **more)


def glanced(workspace: Workspace):
    held = view.glance(workspace)
    assert isinstance(held.notebook, Glimpse)
    assert held.notebook.view is not None
    assert isinstance(held.findings, GlimpsedFindings)
    return held


def best(notebook: Notebook, order: Order, count: int) -> tuple[list[bytes], int]:
    rank = lessons.by_sight if order == "sight" else lessons.by_evidence
    found, total = view.best(notebook, order, count)
    return [codec.encode(line) for line in lessons.best(found, count, rank)[0]], total


@pytest.mark.parametrize("seed", range(12))
def test_a_glance_says_what_a_load_says(workspace, seed):
    rng = random.Random(seed)
    for _ in range(4):  # the index is brought up to date from one state to the next
        for line in some_lines(rng, rng.randrange(1, 25)):
            workspace.store.append(PATTERNS, rng.choice(REPLICAS), [line])
        if rng.random() < 0.5:
            workspace.store.write(PATTERNS.edition, workspace.load().notebook.edition())
        for order in ("sight", "evidence"):
            for count in (1, 3, 100):
                assert best(glanced(workspace).notebook, order, count) == best(workspace.load().notebook, order, count)
        whole, held = workspace.load().notebook, glanced(workspace)
        assert held.notebook.newest_by == whole.newest_by
        assert held.notebook.pointing() == whole.pointing()
        assert held.notebook.beginning("p-") == whole.beginning("p-")
        for number in range(14):
            mine, theirs = held.notebook.get(pattern(number)), whole.get(pattern(number))
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert codec.encode(mine) == codec.encode(theirs)
                one, other = (merging.whole(n, pattern(number)) for n in (held.notebook, whole))
                assert codec.encode(one) == codec.encode(other)
        for text in [f"edited {n}" for n in range(5)] + ["lesson 01"]:
            wanted = normalise(text)
            assert {line.id for line in held.notebook.reading_alike(wanted)} == {
                line.id for line in whole.reading_alike(wanted)
            }
        assert held.notebook.view is not None  # nothing of this went over everything
        assert held.notebook.edition() == whole.edition()


def test_what_is_joined_afterwards_counts(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 20))
    held, whole = glanced(workspace), workspace.load()
    for line in some_lines(random.Random(2), 20):
        held.notebook.add(line)
        whole.notebook.add(line)
        assert held.notebook.pointing() == whole.notebook.pointing()
    for text in [normalise(f"edited {n}") for n in range(5)]:
        assert {line.id for line in held.notebook.reading_alike(text)} == {
            line.id for line in whole.notebook.reading_alike(text)
        }
    assert best(held.notebook, "sight", 5) == best(whole.notebook, "sight", 5)
    assert held.notebook.edition() == whole.notebook.edition()


def test_discoveries_are_the_newest_without_the_retracted(workspace):
    lines = [finding(number) for number in range(30)]
    workspace.store.append(DISCOVERIES, REPLICAS[0], lines)
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 2))
    gone = lines[27].id
    undone = Discovery(id=retraction_id(gone), at=stamp(50), by=REPLICAS[1], retracts=gone)
    assert glanced(workspace).findings.newest(3) == workspace.load().findings.newest(3)
    workspace.store.append(DISCOVERIES, REPLICAS[1], [undone])
    held, whole = glanced(workspace).findings, workspace.load().findings
    assert [entry.problem for entry in held.newest(3)] == ["problem 26", "problem 28", "problem 29"]
    assert held.newest(100) == whole.newest(100)
    for entry in (lines[3], undone, finding(99)):
        assert held.covers(entry) == whole.covers(entry)
    assert held.get(lines[3].id) == lines[3]
    assert held.get(finding(99).id) is None
    assert held.edition() == whole.edition()


TOMORROW = Line(id="p-0000000000000001", add={"old.0000000a": clock.pack(NOW_MS + 90_000_000)})
ODD = {
    "rubbish": b"no line at all\n",
    "a bad value": b'{"id":"p-0000000000000001","at":"when"}\n',
    "a newer version": b'{"id":"p-0000000000000001","v":2}\n',
    "a marker": b"<<<<<<< ours\n",
    "torn": b'{"id":"p-00000000000',
    "too long": b'{"id":"p-0000000000000001","set":{"text":"' + b"x" * 70_000 + b'"}}\n',
    "from tomorrow": codec.encode(TOMORROW) + b"\n",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_odd_is_read_as_a_whole(workspace, odd):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    assert glanced(workspace).notebook.view is not None
    file = workspace.clan / PATTERNS.shard(REPLICAS[1])
    file.write_bytes(odd)
    held = view.glance(workspace)
    assert not isinstance(held.notebook, Glimpse)
    assert held.notebook.edition() == workspace.load().notebook.edition()
    file.unlink()
    glanced(workspace)


def test_a_file_that_is_replaced_meanwhile_is_read_as_a_whole(workspace):
    lines = some_lines(random.Random(1), 20)
    workspace.store.append(PATTERNS, REPLICAS[0], lines)
    held, whole = glanced(workspace), workspace.load().notebook
    shard = workspace.clan / PATTERNS.shard(REPLICAS[0])
    workspace.disk.replace(shard, b"".join(reversed(shard.read_bytes().splitlines(keepends=True))))
    assert {line.id for line in lines} == {line.id for line in lines if held.notebook.get(line.id)}
    assert held.notebook.edition() == whole.edition()


def test_many_are_asked_for_of_a_file_that_is_replaced_meanwhile(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 20))
    held, whole = glanced(workspace), workspace.load().notebook
    shard = workspace.clan / PATTERNS.shard(REPLICAS[0])
    workspace.disk.replace(shard, b"".join(reversed(shard.read_bytes().splitlines(keepends=True))))
    held.notebook.ask_for(list(whole.patterns))
    assert held.notebook.view is None
    assert held.notebook.edition() == whole.edition()


def test_many_that_are_asked_for_at_once_are_checked_like_each_one(workspace):
    """A line that is sound and not plain is looked at once more; what the index saw of it is what is believed."""
    lines = some_lines(random.Random(1), 20)
    lines.append(Line(id=lines[0].id, by=REPLICAS[0], add={REPLICAS[0]: stamp(1)}, set={"more": {"a": [1, 2.5, None]}}))
    workspace.store.append(PATTERNS, REPLICAS[0], lines)
    held, whole = glanced(workspace), workspace.load().notebook
    held.notebook.ask_for(list(whole.patterns))
    assert held.notebook.view is not None
    assert [held.notebook.patterns[each] for each in whole.patterns] == list(whole.patterns.values())
    assert held.notebook.newest_by == whole.newest_by


def test_an_index_that_cannot_be_used_is_no_obstacle(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    (workspace.local / "state.db").parent.mkdir(exist_ok=True)
    (workspace.local / "state.db").write_bytes(b"rubbish" * 1000)
    assert view.glance(workspace).notebook.edition() == workspace.load().notebook.edition()


def test_a_small_clan_is_read_as_a_whole(workspace, monkeypatch):
    monkeypatch.setattr(limits, "VIEW_BYTES_MIN", 1_000_000)
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    assert not isinstance(view.glance(workspace).notebook, Glimpse)
    assert not (workspace.local / "state.db").exists()


def test_what_changed_is_told(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    view.opened(workspace)
    workspace.changed.clear()
    before = workspace.load().notebook
    news = some_lines(random.Random(3), 10)
    workspace.store.append(PATTERNS, REPLICAS[1], [*news, *some_lines(random.Random(1), 10)])
    view.opened(workspace)
    after = workspace.load().notebook
    differ = {each for each in after.patterns if before.get(each) != after.patterns[each]}
    assert workspace.changed == differ
    assert differ


# --- a few lines that the index lacks -------------------------------------------------------------------------------


def remembered(workspace: Workspace) -> list[tuple]:
    """What the index remembers of the files: another one once it was brought up to date."""
    return workspace.state.connection().execute("SELECT * FROM search_file ORDER BY id").fetchall()


def as_it_is(workspace: Workspace):
    """What is glanced for one lesson. The index must be left as it was, although it lacks something."""
    before = remembered(workspace)
    held = view.glance(workspace, for_one=True)
    assert held.notebook.view is not None
    assert held.notebook.unindexed()
    assert remembered(workspace) == before
    return held.notebook


@pytest.mark.parametrize("seed", range(12))
def test_lines_that_the_index_lacks_are_read_beside_it(workspace, seed):
    rng = random.Random(seed)
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(rng, 25))
    glanced(workspace)
    for _ in range(4):
        for line in some_lines(rng, rng.randrange(1, 6)):
            workspace.store.append(PATTERNS, rng.choice(REPLICAS), [line])
        whole, notebook = workspace.load().notebook, as_it_is(workspace)
        assert notebook.newest_by == whole.newest_by, f"seed {seed}"
        assert notebook.pointing() == whole.pointing()
        assert notebook.beginning("p-") == whole.beginning("p-")
        for number in range(14):
            mine, theirs = notebook.get(pattern(number)), whole.get(pattern(number))
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert codec.encode(mine) == codec.encode(theirs)
                one, other = (merging.whole(n, pattern(number)) for n in (notebook, whole))
                assert codec.encode(one) == codec.encode(other)
        for text in [normalise(f"edited {n}") for n in range(5)]:
            assert {line.id for line in notebook.reading_alike(text)} == {line.id for line in whole.reading_alike(text)}
        assert notebook.view is not None
        assert best(notebook, "sight", 5) == best(whole, "sight", 5)
        assert notebook.edition() == whole.edition()
    assert glanced(workspace).notebook.unindexed() == set()
    assert best(glanced(workspace).notebook, "evidence", 5) == best(workspace.load().notebook, "evidence", 5)


def shard_of(workspace: Workspace, replica: str = REPLICAS[0]):
    return workspace.clan / PATTERNS.shard(replica)


def replaced(workspace: Workspace) -> None:
    """The file is longer than it was, and begins with something else."""
    shard = shard_of(workspace)
    lines = shard.read_bytes().splitlines(keepends=True)
    workspace.disk.replace(shard, b"".join([*reversed(lines), *(codec.encode(line) + b"\n" for line in NEWS)]))


def overwritten(workspace: Workspace) -> None:
    """The file has the same inode and length, and begins with something else."""
    shard = shard_of(workspace)
    shard.write_bytes(b"".join(reversed(shard.read_bytes().splitlines(keepends=True))))


def cut_short(workspace: Workspace) -> None:
    shard = shard_of(workspace)
    shard.write_bytes(b"".join(shard.read_bytes().splitlines(keepends=True)[:5]))


def gone(workspace: Workspace) -> None:
    shard_of(workspace, REPLICAS[1]).unlink()


def much(workspace: Workspace) -> None:
    lines = some_lines(random.Random(3), 200)
    assert sum(len(codec.encode(line)) for line in lines) > limits.UNINDEXED_BYTES_MAX
    workspace.store.append(PATTERNS, REPLICAS[0], lines)


def a_little_in_many_files(workspace: Workspace) -> None:
    lines = some_lines(random.Random(3), 200)
    for number in range(20):
        workspace.store.append(PATTERNS, f"velma.{number:08x}", lines[10 * number :][:10])


def a_discovery(workspace: Workspace) -> None:
    workspace.store.append(DISCOVERIES, REPLICAS[0], [finding(1)])


def untidy(workspace: Workspace) -> None:
    """A line that is read, though not in its canonical form."""
    with shard_of(workspace).open("ab") as file:
        file.write(codec.encode(NEWS[0]).replace(b":", b": ", 1) + b"\n")


def waiting(workspace: Workspace) -> None:
    workspace.state.connection().execute("INSERT INTO search_stale VALUES ('p-0000000000000001')")


NEWS = some_lines(random.Random(2), 5)


@pytest.mark.parametrize(
    "change",
    [replaced, overwritten, cut_short, gone, much, a_little_in_many_files, a_discovery, untidy, waiting],
)
def test_an_index_that_lacks_more_than_a_few_lines_is_brought_up_to_date(workspace, change):
    for replica in REPLICAS[:2]:
        workspace.store.append(PATTERNS, replica, some_lines(random.Random(1), 20))
    glanced(workspace)
    change(workspace)
    held = view.glance(workspace, for_one=True).notebook
    assert held.view is not None
    assert held.unindexed() == set()
    whole = workspace.load().notebook
    assert held.newest_by == whole.newest_by or change in (cut_short, gone)  # it only ever rises
    assert {each: held.get(each) for each in whole.patterns} == dict(whole.patterns.items())
    assert held.view is not None  # nothing of the index led astray
    assert not workspace.state.connection().execute("SELECT * FROM search_stale").fetchall()
    assert held.edition() == whole.edition()


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_line_that_the_index_lacks_is_not_passed_over(workspace, odd):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    glanced(workspace)
    with shard_of(workspace).open("ab") as file:
        file.write(odd)
    held = view.glance(workspace, for_one=True)
    assert not isinstance(held.notebook, Glimpse)
    assert held.notebook.edition() == workspace.load().notebook.edition()


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_good_lines_beside_an_index_of_odd_ones_do_not_hide_those(workspace, odd):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    shard_of(workspace, REPLICAS[1]).write_bytes(odd)
    view.glance(workspace)
    workspace.store.append(PATTERNS, REPLICAS[0], NEWS)
    held = view.glance(workspace, for_one=True)
    assert not isinstance(held.notebook, Glimpse)
    assert held.notebook.edition() == workspace.load().notebook.edition()


def test_the_records_of_a_few_lines_are_looked_up_at_once(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 20))
    glanced(workspace)
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(2), 20))
    asked = []
    workspace.state.connection().set_trace_callback(asked.append)
    as_it_is(workspace)
    assert len([sql for sql in asked if "FROM search_line" in sql]) == 1


def test_what_stands_before_a_few_lines_is_not_read_again_and_again_where_it_is_much(workspace, monkeypatch):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 20))
    glanced(workspace)
    workspace.store.append(PATTERNS, REPLICAS[0], NEWS)
    as_it_is(workspace)
    monkeypatch.setattr(limits, "UNINDEXED_BEHIND_BYTES_MAX", 1_000)
    before = remembered(workspace)
    assert view.glance(workspace, for_one=True).notebook.unindexed() == set()
    assert remembered(workspace) != before


def test_a_line_without_an_end_is_not_read_on_from(workspace):
    workspace.store.append(PATTERNS, REPLICAS[0], some_lines(random.Random(1), 10))
    shard = shard_of(workspace)
    shard.write_bytes(shard.read_bytes() + codec.encode(NEWS[0]))  # whole, but for the newline
    glanced(workspace)
    with shard.open("ab") as file:
        file.write(codec.encode(NEWS[1]) + b"\n")  # now neither of them is a line
    notebook = view.glance(workspace, for_one=True).notebook
    assert notebook.edition() == workspace.load().notebook.edition()


# --- the fetched part of what is here -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_fetched_tree_is_glanced_as_it_would_be_loaded(workspace, seed):
    rng = random.Random(seed)
    store = workspace.store
    fetched = some_lines(rng, 30)
    edition = Notebook()
    edition.add_all(fetched[:15])
    files = {PATTERNS.edition: edition.edition()}
    for line in fetched[15:]:
        path = PATTERNS.shard(rng.choice(REPLICAS))
        files[path] = files.get(path, b"") + codec.encode(line) + b"\n"
    for path, data in files.items():
        store.write(path, data)
        store.write_base(path, data)
    new = some_lines(rng, 10)
    for line in new:
        store.append(PATTERNS, rng.choice(REPLICAS), [line])
    base, whole = tree.load_base(workspace), tree._load_whole_base(workspace)
    assert isinstance(base.whole.notebook, Glimpse)
    for line in [*fetched, *new, *some_lines(rng, 20)]:
        assert base.whole.notebook.covers(line) == whole.whole.notebook.covers(line)
        assert base.edition.notebook.covers(line) == whole.edition.notebook.covers(line)
    assert base.whole.notebook.view is not None
    assert {raw for path in store.paths(PATTERNS) for raw in store.unsent(path)} == {
        raw for raw in map(codec.encode, new) if raw not in b"".join(files.values()).split(b"\n")
    }
    assert base.whole.notebook.edition() == whole.whole.notebook.edition()


def test_a_file_that_does_not_begin_with_what_was_fetched_is_compared_line_by_line(workspace):
    store, lines = workspace.store, some_lines(random.Random(5), 6)
    path = PATTERNS.shard(REPLICAS[0])
    store.write_base(path, b"".join(codec.encode(line) + b"\n" for line in lines[:4]))
    store.write(path, b"".join(codec.encode(line) + b"\n" for line in reversed(lines)))
    assert store.fetched() is None
    assert sorted(store.unsent(path)) == sorted(map(codec.encode, lines[4:]))
    assert not isinstance(tree.load_base(workspace).whole.notebook, Glimpse)


def test_a_change_within_what_was_fetched_is_noticed(workspace):
    """The comparison is remembered by what the files look like: a file that was touched is compared again."""
    store = workspace.store
    path, data = PATTERNS.edition, b"".join(codec.encode(line) + b"\n" for line in some_lines(random.Random(5), 30))
    store.write(path, data)
    store.write_base(path, data)
    assert store.fetched() == {path: len(data)}
    file = workspace.clan / path
    before = file.stat()
    file.write_bytes(data.replace(b"lesson", b"wesson", 1))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert store.fetched() is None
