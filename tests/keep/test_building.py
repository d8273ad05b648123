"""An index that is missing or far behind: who did not ask for it does not wait, and who makes it disturbs nobody."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from crdt import clock
from fleet.cli import stats as cli_stats
from fleet.keep import (
    asking,
    building,
    bulk,
    checkup,
    config,
    indexing,
    limits,
    merging,
    notebook,
    reading,
    shown,
    sources,
    view,
)
from fleet.keep import line as codec
from fleet.keep.discoveries import Discovery, discovery_id
from fleet.keep.errors import BusyError
from fleet.keep.glimpse import Glimpse, View
from fleet.keep.index import _COLUMNS, Ask, Index
from fleet.keep.line import Line
from fleet.keep.reading import DISCOVERIES, PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.recall import lessons
from fleet.reflect import stats

ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_795_000_000_000
REPLICAS = ("velma.00000001", "tank.00000002", "import.00000003")
WORDS = ("never always check the deploy cache key before a rollback café 部署 naïve quote every path").split()  # noqa: SIM905
SOON_S = 10.0  # as a rule 10 ms; whoever waits does so for twice as long


@pytest.fixture(autouse=True)
def _every_clan_is_large(monkeypatch):
    monkeypatch.setattr(limits, "VIEW_BYTES_MIN", 0)
    monkeypatch.setattr(limits, "BUILD_BYTES_MIN", 0)
    monkeypatch.setattr(limits, "START_BYTES_MAX", 2_000)
    monkeypatch.setattr(limits, "BULK_BYTES_MIN", 0)  # so that a record stays bytes until somebody asks for it


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = opened(tmp_path)
    fill(made, random.Random(1), 60)
    yield made
    made.close()


def opened(root: Path) -> Workspace:
    return Workspace(root, World(wall_ms=lambda: NOW_MS, machine=lambda: "machine", durable=False))


def fill(workspace: Workspace, rng: random.Random, count: int) -> None:
    """Add lessons with all that one can have, some of them in several lines, and findings."""
    for number in range(count):
        by, at = rng.choice(REPLICAS), clock.pack(NOW_MS - 10_000_000 + rng.randrange(1_000_000))
        line = Line(id=f"p-{rng.randrange(count):016x}", at=at, by=by)
        line.add, line.n = {by: at}, {"seen": {by: rng.randrange(1, 9)}, "sessions": {by: rng.randrange(1, 4)}}
        said = " ".join(rng.choices(WORDS, k=6))
        line.set = {"text": f" {said}  {number}" if number % 5 == 0 else said, "category": "ci\n", "tags": ["a", "b b"]}
        if number % 4 == 0:
            field, value = rng.choice(
                [("state", "published"), ("state", "retired"), ("merged_into", f"p-{3:016x}"), ("trigger", "git")]
            )
            line.set[field], line.when[field] = value, (at, by)
        if number % 7 == 0:
            line.when["text"] = (at, by)
        if by.startswith("import") and number % 2:
            line.set["agent.00000003"] = "slash"
        if number % 9 == 0:
            line.rem = {by: at}
        if number % 3 == 0:
            line.n[rng.choice(("shown", "relapsed", "hurt", "helped"))] = {by: 30}
        workspace.store.append(PATTERNS, by, [line])
    for number in range(5):
        problem = f"problem {number} {rng.choice(WORDS)}"
        found = Discovery(id=discovery_id("tip", "", problem, ""), at=at, by=by, type="tip", problem=problem)
        workspace.store.append(DISCOVERIES, "velma.00000001", [found])


def sources_of(workspace: Workspace) -> sources.Sources:
    return sources.Sources(workspace.root, workspace.store, workspace.timekeeper.reading().cut, None)


def rows_of(connection: sqlite3.Connection) -> dict[str, list[tuple]]:
    """Return all that the index holds, but for its own mark and for how it numbers what it holds."""
    asked = {
        "file": "SELECT path, size, inode, read, torn, digest, is_log, is_odd FROM search_file",
        "line": "SELECT f.path, l.at, l.length, l.hash, l.key FROM search_line l JOIN search_file f ON f.id = l.file",
        "doc": f"SELECT {_COLUMNS} FROM search_doc",
        **{name: f"SELECT * FROM search_{name}" for name in ("stale", "due", "odd", "tally", "newest")},
        "schema": "SELECT type, name, sql FROM sqlite_master WHERE name GLOB 'search_*'",
        "head": "SELECT d.ref FROM search_head h JOIN search_doc d ON d.id = h.rowid WHERE search_head MATCH 'depl*'",
    }
    return {name: sorted(connection.execute(each).fetchall(), key=repr) for name, each in asked.items()}


def answers_of(index: Index) -> list[object]:
    asks = [Ask(match=f'"{word}"', gone=True, limit=1_000) for word in ("deploy", "cafe", "naive", "b", "ci")]
    return [index.find(each) for each in [*asks, Ask(holds=("部",)), Ask(match='"ro"*')]]


def build(workspace: Workspace) -> View | None:
    workspace.waits = True
    try:
        return view.opened(workspace)
    finally:
        workspace.waits = False


def whole_index(workspace: Workspace) -> Index:
    index = Index(workspace.state.connection())
    assert index.generation()
    for table in ("search_text", "search_head"):
        index.connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    return index


def is_answered_in_full(workspace: Workspace) -> bool:
    """Tell whether what is glanced, in whatever way, is what is loaded; and check that nobody waited for it."""
    began = time.monotonic()
    held = view.glance(workspace)
    assert time.monotonic() - began < SOON_S
    assert held.notebook.edition() == workspace.load().notebook.edition()
    assert view.findings(workspace).edition() == workspace.load().findings.edition()
    return isinstance(held.notebook, Glimpse)


# --- who waits -------------------------------------------------------------------------------------------------------


def test_a_missing_index_is_not_waited_for_and_whoever_waits_makes_it(workspace):
    assert not is_answered_in_full(workspace)
    assert Index(workspace.state.connection()).generation() == ""
    assert view.is_far_behind(workspace)
    assert build(workspace) is not None
    assert is_answered_in_full(workspace)
    assert not view.is_far_behind(workspace)
    one = codec.encode(Line(id="p-0000000000000001", n={"seen": {REPLICAS[0]: 99}}))
    (workspace.clan / PATTERNS.shard(REPLICAS[0])).open("ab").write(one + b"\n")
    assert is_answered_in_full(workspace)  # what is little is read at once


def test_a_whole_load_serves_a_command_until_a_file_changes(workspace, monkeypatch):
    loads = []
    monkeypatch.setattr(workspace, "load", lambda load=workspace.load: loads.append(1) or load())
    first = view.glance(workspace)
    assert view.glance(workspace) is first
    fill(workspace, random.Random(2), 1)
    second = view.glance(workspace)
    assert second is not first
    assert len(loads) == 2
    assert workspace.kept is None  # nobody has admitted its stamps yet


def test_what_is_not_plain_is_loaded_each_time(workspace):
    (workspace.clan / PATTERNS.shard(REPLICAS[0])).open("ab").write(b"rubbish\n")
    assert view.glance(workspace) is not view.glance(workspace)


def test_what_a_run_that_was_cut_short_left_to_do_counts_as_far_behind(workspace):
    build(workspace)
    index = whole_index(workspace)
    with index.transaction():
        index.connection.execute("INSERT INTO search_stale SELECT ref FROM search_doc WHERE ref != ''")
    assert view.is_far_behind(workspace)
    assert not is_answered_in_full(workspace)
    build(workspace)
    assert is_answered_in_full(workspace)


def test_an_index_that_is_damaged_is_made_anew_by_whoever_waits(workspace):
    build(workspace)
    fill(workspace, random.Random(2), 1)
    workspace.state.connection().execute("UPDATE search_line SET key = 'p-0'")  # not what the files say
    workspace.state.connection().execute("DROP TABLE search_doc")
    assert not is_answered_in_full(workspace)
    build(workspace)
    assert is_answered_in_full(workspace)
    whole_index(workspace)


def test_nobody_waits_for_somebody_else_who_brings_the_index_up_to_date(workspace, monkeypatch):
    monkeypatch.setattr(limits, "INDEX_WAIT_S", 0.05)
    with workspace.disk.lock(asking.lock_file(workspace)):
        assert not is_answered_in_full(opened(workspace.root))
    build(workspace)
    fill(workspace, random.Random(2), 1)
    with workspace.disk.lock(asking.lock_file(workspace)):
        other = opened(workspace.root)
        assert not is_answered_in_full(other)
        other.close()
    assert is_answered_in_full(workspace)


def test_nobody_waits_for_a_database_in_which_somebody_writes(workspace):
    workspace.state.put(one="thing")
    with closing(sqlite3.connect(workspace.local / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not is_answered_in_full(workspace)
        other.rollback()


# --- what is made ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_what_is_made_beside_the_database_is_what_grows_within_it(workspace, monkeypatch, seed):
    fill(workspace, random.Random(seed), 200)
    made_of = sources_of(workspace)
    index = Index(workspace.state.connection())
    found = building.build(index, made_of)
    made, said = rows_of(index.connection), answers_of(whole_index(workspace))
    index.drop()
    assert indexing.refresh(index, made_of) == found
    grown = rows_of(index.connection)
    for table in grown:
        assert made[table] == grown[table], table
    assert said == answers_of(index)
    assert any(said)
    who = {line.id: indexing._shown_agents(notebook.agents(line)) for line in workspace.load().notebook.present()}
    told = dict(index.connection.execute("SELECT ref, who FROM search_doc WHERE kind = 'pattern' AND gone = 0"))
    assert told == who
    # Looked at one by one, as what is not plain is, records say the same.
    monkeypatch.setattr(bulk, "sound", lambda *_: None)
    index.drop()
    indexing.refresh(index, made_of)
    assert rows_of(index.connection) == grown


def test_what_is_stamped_tomorrow_is_not_among_what_is_looked_at_at_once(workspace):
    tomorrow = clock.pack(NOW_MS + 90_000_000)
    late = Line(id="p-00000000000000aa", at=tomorrow, by=REPLICAS[0], add={REPLICAS[0]: tomorrow})
    late.set = {"text": "from tomorrow"}
    (workspace.clan / PATTERNS.shard(REPLICAS[0])).open("ab").write(codec.encode(late) + b"\n")
    assert build(workspace) is None
    assert not sources.is_plain(whole_index(workspace))
    assert not is_answered_in_full(workspace)


def test_an_index_that_was_made_anew_grows_like_any_other(workspace):
    build(workspace)
    for table in ("search_text", "search_head"):
        told = dict(workspace.state.connection().execute(f"SELECT k, v FROM {table}_config"))
        # What a full-text table does by itself, https://www.sqlite.org/fts5.html
        assert (told["automerge"], told["crisismerge"], told["hashsize"]) == (4, 16, 1024 * 1024)
    fill(workspace, random.Random(2), 30)
    indexing.refresh(whole_index(workspace), sources_of(workspace))
    grown, said = rows_of(workspace.state.connection()), answers_of(whole_index(workspace))
    building.build(Index(workspace.state.connection()), sources_of(workspace))
    assert rows_of(workspace.state.connection())["doc"] == grown["doc"]
    assert rows_of(workspace.state.connection())["tally"] == grown["tally"]
    assert [sorted(each, key=repr) for each in said] == [
        sorted(each, key=repr) for each in answers_of(whole_index(workspace))
    ]


def test_what_is_told_of_an_index_that_is_made_anew_is_what_changed(workspace):
    build(workspace)
    workspace.changed.clear()
    before = workspace.load().notebook
    fill(workspace, random.Random(5), 200)
    assert sources.behind(Index(workspace.state.connection()), sources_of(workspace)) > 10_000
    build(workspace)
    after = workspace.load().notebook
    differ = {each for each in after.patterns if before.get(each) != after.patterns[each]}
    assert {each for each in workspace.changed if each.startswith("p-")} == differ
    assert len(differ) < len(after.patterns)


def test_while_it_is_made_others_write_to_the_database(workspace):
    written = []

    def told(done: int, total: int) -> None:
        with closing(sqlite3.connect(workspace.local / "state.db", timeout=0)) as other:
            other.execute("INSERT OR REPLACE INTO meta VALUES ('one', ?)", (str(done),))
            other.commit()
        written.append((done, total))

    workspace.told = told
    build(workspace)
    assert written
    assert written[-1][0] == written[-1][1]
    assert workspace.state.get("one") == str(written[-1][0])
    assert is_answered_in_full(workspace)


def test_without_room_beside_the_database_it_grows_within_it(workspace, monkeypatch):
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(building, "_copy", full)
    build(workspace)
    assert is_answered_in_full(workspace)
    whole_index(workspace)


def test_an_interrupt_leaves_no_half_of_an_index(workspace):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    workspace.told = interrupted
    with pytest.raises(KeyboardInterrupt):
        build(workspace)
    workspace.told = None
    assert Index(workspace.state.connection()).generation() == ""
    assert not is_answered_in_full(workspace)
    build(workspace)
    assert is_answered_in_full(workspace)


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
import test_building as tests
from fleet.keep import building, limits
limits.VIEW_BYTES_MIN = limits.BUILD_BYTES_MIN = 0
workspace = tests.opened(Path({folder!r}))
def stop(*_):
    print("here", flush=True)
    time.sleep(600)
if {moment!r} == "while it is made":
    workspace.told = stop
else:
    copy = building._copy
    building._copy = lambda connection: (copy(connection), stop())
tests.build(workspace)
"""


@pytest.mark.parametrize("moment", ["while it is made", "while it is put in"])
def test_a_build_that_is_killed_leaves_nothing_behind(workspace, moment):
    workspace.state.put(one="thing")
    workspace.close()
    before = {path.name for path in workspace.local.rglob("*")}
    code = KILLED.format(tests=str(Path(__file__).parent), root=str(ROOT), folder=str(workspace.root), moment=moment)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        os.kill(process.pid, signal.SIGKILL)
    assert Index(workspace.state.connection()).generation() == ""
    assert workspace.state.get("one") == "thing"
    assert not is_answered_in_full(workspace)
    workspace.close()
    left = {path.name for path in workspace.local.rglob("*")} - before
    assert left <= {"search.lock", "locks", "state.db-wal", "state.db-shm"}
    build(workspace)
    assert is_answered_in_full(workspace)
    whole_index(workspace)


def test_each_table_of_words_is_made_of_one_piece(workspace, monkeypatch):
    """A question looks into every piece."""
    monkeypatch.setattr(indexing, "PARAMETERS_MAX", 7)
    build(workspace)
    connection = whole_index(workspace).connection
    for table in ("search_text", "search_head"):
        assert connection.execute(f"SELECT count(DISTINCT segid) FROM {table}_idx").fetchone() == (1,)


def test_two_at_once_make_one_index(workspace):
    code = KILLED.replace("workspace.told = stop", "pass").format(
        tests=str(Path(__file__).parent), root=str(ROOT), folder=str(workspace.root), moment="while it is made"
    )
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert is_answered_in_full(workspace)
    whole_index(workspace)


def test_a_look_for_what_is_wrong_leaves_a_damaged_database_alone(workspace):
    build(workspace)
    workspace.close()
    rubbish = b"rubbish" * 1_000
    (workspace.local / "state.db").write_bytes(rubbish)
    found = {each.check: each.level for each in chain.from_iterable(checkup.checks(workspace, fix=False))}
    assert found["state"] == "error"
    assert "index" not in found
    assert (workspace.local / "state.db").read_bytes() == rubbish


@pytest.mark.parametrize("harm", ["order", "form", "an end of another system", "none"])
def test_an_edition_is_in_its_canonical_form_or_not(workspace, harm):
    lines = workspace.load().notebook.edition().splitlines()
    if harm == "order":
        lines[20:22] = [lines[21], lines[20]]
    elif harm == "form":
        lines[20] = lines[20].replace(b'":', b'": ', 1)
    elif harm != "none":
        lines[20] += b"\r"
    workspace.store.write(PATTERNS.edition, b"\n".join(lines) + b"\n")
    found = {each.check: each for each in chain.from_iterable(checkup.checks(workspace, fix=False))}
    assert found["lines"].level == "ok"
    assert (found["edition"].level, PATTERNS.edition in found["edition"].what) == (
        ("ok", False) if harm == "none" else ("note", True)
    )


# --- what is answered meanwhile --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_a_whole_load_are_the_best_of_all(workspace, seed):
    fill(workspace, random.Random(seed), 120)
    whole = workspace.load().notebook
    every = list(merging.shown(workspace.load().notebook))
    for order, rank in (("sight", lessons.by_sight), ("evidence", lessons.by_evidence)):
        listed = [line for line in every if order == "sight" or line.set.get("state") != "retired"]
        for count in (0, 1, 7, 1_000):
            found, total = view.best(whole, order, count)
            assert total == len(listed)
            wanted = [codec.encode(line) for line in sorted(listed, key=rank)[:count]]
            assert [codec.encode(line) for line in sorted(found, key=rank)[:count]] == wanted


@pytest.mark.parametrize("seed", range(10))
def test_the_lessons_that_some_records_are_a_part_of(workspace, seed):
    rng = random.Random(seed)
    fill(workspace, rng, 120)
    every = {line.id: codec.encode(line) for line in merging.shown(workspace.load().notebook)}
    whole = workspace.load().notebook
    sets = merging.sets(whole)
    some = rng.sample(sorted(whole.patterns), 30)
    found = {line.id: codec.encode(line) for line in merging.shown_among(whole, some)}
    assert found == {each: every[each] for each in {sets.get(one, one) for one in some} if each in every}


@pytest.mark.parametrize("seed", range(10))
def test_texts_are_those_of_the_records_that_are_in(workspace, seed):
    fill(workspace, random.Random(seed), 60)
    whole = workspace.load().notebook
    wanted = {line.id: line.set["text"] for line in workspace.load().notebook.present()}
    for pattern in random.Random(seed).sample(sorted(whole.patterns), 20):
        whole.get(pattern)  # some are decoded by now
    assert dict(merging.texts(whole)) == wanted
    build(workspace)
    assert dict(merging.texts(view.glance(workspace).notebook)) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_lines_that_are_checked_at_once_are_read_as_one_by_one(workspace, seed):
    rng = random.Random(seed)
    fill(workspace, rng, 40)
    lines = b"".join(file.read_bytes() for file in sorted(workspace.clan.rglob("patterns.d/*.jsonl"))).splitlines()
    for odd in (
        b"rubbish",
        b'{"id":"p-1"}',
        b'{"v":9,"id":"p-0000000000000001"}',
        b"<<<<<<< ours",
        b"",
        lines[3] + b" ",
    ):
        if rng.random() < 0.5:
            lines.insert(rng.randrange(len(lines)), odd)
    data = b"\n".join(lines)
    one, other = reading.Read(), reading.Read()
    found = [(raw, PATTERNS.encode(entry)) for raw, entry in bulk.entries(iter([data]), "patterns.jsonl", one)]
    wanted = reading.entries(PATTERNS, iter([data]), "patterns.jsonl", other)
    assert found == [(raw, PATTERNS.encode(entry)) for raw, entry in wanted]
    assert one == other


@pytest.mark.parametrize("seed", range(10))
def test_figures_are_those_of_every_lesson(workspace, monkeypatch, seed):
    rng = random.Random(seed)
    fill(workspace, rng, 120)
    ids = sorted(workspace.load().notebook.patterns)
    with workspace.writing("velma"):
        pass
    shown.note(workspace.root, "velma", "s1", rng.sample(ids, 3), NOW_MS)
    found = stats.as_found(cli_stats._measured(workspace))
    monkeypatch.setattr(merging, "shown_among", lambda notebook, _: merging.shown(notebook))
    assert found == stats.as_found(cli_stats._measured(workspace))
    assert found["lessons"]
    assert found["to_fleet"]["lessons"]


def test_a_reader_of_a_locked_workspace_is_told_of_no_index(workspace):
    """Whoever waits for the index waits for the lock, and is answered without it where that takes too long."""
    with workspace.disk.lock(asking.lock_file(workspace)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LOCK_WAIT_S", 0.05)
        other = opened(workspace.root)
        assert build(other) is None
        with pytest.raises(BusyError):
            asking.asked(other, sources_of(other), lambda index: index)
        other.close()
