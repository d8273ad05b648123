"""The database: rows are a fold of line files and of the fetched tree, and may be deleted at any time."""

import os
import sqlite3
from pathlib import Path

import pytest

from fleet.model import edits
from fleet.model.errors import FleetError
from fleet.model.line import Line, Refused
from fleet.model.names import pattern_id
from fleet.store import ingest
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.lines import DISCOVERIES, PATTERNS, Kind
from fleet.store.tree import is_clan_path
from fleet.store.workspace import Workspace, World
from tests.memory_remote import MemoryTree

DAY_MS = 86_400_000
TANK = "tank.11111111"
OTHER = PATTERNS.shard(TANK)
NEWER = b'{"id":"p-00000000000000aa","v":3,"wheels":4}'


class Here:
    """A workspace with a tree in memory and a clock that a test sets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ms = 1_795_305_600_000
        self.tree = MemoryTree()
        (root / "fleet.toml").write_text("")
        self.open()

    def open(self) -> None:
        self.workspace = Workspace(
            self.root, World(wall_ms=lambda: self.now_ms, durable=False, tree=lambda _: self.tree, lent=lambda: "")
        )

    def log(self, text: str, agent: str = "velma") -> Line:
        with self.workspace.writing(agent) as writer:
            line = edits.confirm(Line(pattern_id(text)), writer.name, writer.tick(), sessions=1, fields={"text": text})
            writer.append(PATTERNS, [line])
        self.mine = PATTERNS.shard(writer.name)
        return line

    def take(self, commit: str):
        with self.workspace.locked():
            return self.workspace.take(commit)

    def push(self, on: str = "") -> str:
        """Put what goes out into our own shard of the tree, as a sync does."""
        out = self.workspace.db.outgoing()
        head = on or self.tree.head()
        paths = self.tree.paths(head)
        old = self.tree.read(paths[self.mine][0]) if self.mine in paths else b""
        commit = self.tree.put({self.mine: old + b"".join(PATTERNS.encode(each) + b"\n" for each in out)}, head)
        self.take(commit)
        return commit

    def seen(self, line: Line) -> int:
        found = self.workspace.patterns.get(line.id)
        return found.count("seen") if found is not None else 0


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def logged(text: str, writer: str = TANK, at: str = "2026-11-21T08:00:00.000Z-0000") -> Line:
    return edits.confirm(Line(pattern_id(text)), writer, at, fields={"text": text})


def confirmed(line: Line, writer: str = TANK, seen: int = 1, at: str = "2026-11-21T08:00:00.000Z-0000") -> bytes:
    return PATTERNS.encode(edits.confirm(line, writer, at, seen=seen, sessions=1)) + b"\n"


def written_by_hand(here: Here) -> None:
    """Write a file of the clan before any command made a database."""
    (here.workspace.clan / OTHER).parent.mkdir(parents=True)
    (here.workspace.clan / OTHER).write_bytes(PATTERNS.encode(logged("Check the cache key")) + b"\n")


def test_a_logged_line_is_found_and_goes_out_until_the_tree_has_it(here: Here) -> None:
    line = here.log("Check the cache key")
    assert [each.id for each in here.workspace.patterns.best("sight", 5)] == [line.id]
    assert here.workspace.db.outgoing() == [line]
    here.push()
    assert here.workspace.db.outgoing() == []
    assert here.workspace.db.edition(PATTERNS) == PATTERNS.encode(line) + b"\n"


def test_an_edition_is_what_the_tree_says_and_not_what_waits_here(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    with here.workspace.writing("velma") as writer:
        writer.append(PATTERNS, [edits.confirm(line, writer.name, writer.tick(), seen=1, sessions=0)])
    assert here.seen(line) == 2
    assert here.workspace.db.edition(PATTERNS) == PATTERNS.encode(line) + b"\n"


def test_deleting_the_database_at_any_moment_loses_nothing_and_changes_no_answer(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    here.take(here.tree.put({OTHER: confirmed(line)}, here.tree.head()))
    here.log("Pin the version")
    before = (here.workspace.db.edition(PATTERNS), here.workspace.db.outgoing(), here.seen(line))
    assert here.workspace.db.differences() == []
    here.workspace.close()
    for file in (here.root / ".fleet").glob(f"state-{SCHEMA_NUMBER}.db*"):
        file.unlink()
    here.open()
    assert (here.workspace.db.edition(PATTERNS), here.workspace.db.outgoing(), here.seen(line)) == before


def test_a_sqlite_that_is_too_old_is_named_and_no_database_called_damaged(here: Here, monkeypatch) -> None:
    written_by_hand(here)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(FleetError, match=r"older than 3\.32"):
        list(here.workspace.patterns.lessons())
    assert here.workspace.warnings == []


def test_what_the_tree_lost_goes_out_again(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    taken = here.take(here.tree.put({here.mine: b""}, here.tree.head()))
    assert taken.lost == [line]
    assert here.workspace.db.outgoing() == [line]
    assert (here.workspace.clan / here.mine).read_bytes() == PATTERNS.encode(line) + b"\n"


def test_a_lost_tree_makes_all_of_it_go_out_again(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    here.tree.move("")
    assert here.workspace.db.outgoing() == [line]
    assert here.workspace.db.differences() == []


def test_deleted_files_are_put_back_and_told(here: Here) -> None:
    line = here.log("Check the cache key")
    head = here.push()
    head = here.tree.put({OTHER: confirmed(line)}, head)
    here.take(head)
    (here.workspace.clan / OTHER).unlink()
    taken = here.take(head)
    assert taken.put_back == [OTHER]
    assert (here.workspace.clan / OTHER).read_bytes() == confirmed(line)


def test_an_older_copy_that_came_back_is_mended_and_told(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    head = here.tree.put({OTHER: confirmed(line)}, here.tree.head())
    here.take(head)
    later = confirmed(line, seen=2, at="2026-11-21T09:00:00.000Z-0000")
    head = here.tree.put({OTHER: confirmed(line) + later}, head)
    here.take(head)
    (here.workspace.clan / OTHER).write_bytes(confirmed(line))
    assert here.take(head).put_back == [OTHER]
    assert (here.workspace.clan / OTHER).read_bytes() == confirmed(line) + later


def test_an_own_line_whose_file_was_deleted_unsent_is_put_back_into_a_file(here: Here) -> None:
    line = here.log("Check the cache key")
    assert here.seen(line) == 1
    (here.workspace.clan / here.mine).unlink()
    here.take("")
    assert (here.workspace.clan / here.mine).read_bytes() == PATTERNS.encode(line) + b"\n"
    assert here.workspace.db.differences() == []


def test_a_file_replaced_within_one_tick_of_the_clock_is_read(here: Here) -> None:
    """Size, time and inode may all be those of before: 62 of 250 checkouts were never read in a trial."""
    (here.workspace.clan / "patterns.d").mkdir(parents=True)
    file = here.workspace.clan / OTHER
    first, second = (logged(t) for t in ("A b", "C d"))
    for line in (first, second):
        file.write_bytes(PATTERNS.encode(line) + b"\n")
        os.utime(file, ns=(1, 1))
        assert here.workspace.patterns.get(line.id) is not None


def test_a_file_with_another_beginning_of_the_same_size_is_read_from_the_start(here: Here) -> None:
    (here.workspace.clan / "patterns.d").mkdir(parents=True)
    file = here.workspace.clan / OTHER
    one, two, three = (PATTERNS.encode(logged(t)) + b"\n" for t in ("Aaa bbb", "Ccc ddd", "Eee fff"))
    file.write_bytes(one)
    assert here.workspace.patterns.count() == 1
    with file.open("r+b") as handle:  # the same inode
        handle.write(two + three)
    assert {each.text for each in here.workspace.patterns.lessons()} == {"Aaa bbb", "Ccc ddd", "Eee fff"}


def test_one_bad_line_and_one_of_a_newer_version_cost_their_own_rows(here: Here) -> None:
    line = here.log("Check the cache key")
    with (here.workspace.clan / here.mine).open("ab") as file:
        file.write(b"rubbish\n" + NEWER + b"\n")
    assert here.workspace.patterns.count() == 1
    assert (len(here.workspace.db.refused()), len(here.workspace.db.carried())) == (1, 1)
    assert [(kept.path, kept.number) for kept in here.workspace.quarantine.all()] == [(here.mine, 2)]
    assert [getattr(each, "raw", each) for each in here.workspace.db.outgoing()] == [line, NEWER]


@pytest.mark.parametrize("also", [b"", b"rubbish\n"])
def test_a_good_line_that_lies_in_quarantine_too_stays_in_its_file_until_the_tree_has_it(here: Here, also) -> None:
    """Anyone in a live room may put a line under a key that is not its own."""
    here.log("Check the cache key")
    head = here.push()
    raw = PATTERNS.encode(here.log("Pin the version"))
    file = here.workspace.clan / here.mine
    file.write_bytes(file.read_bytes() + also)
    assert len(here.workspace.db.refused()) == bool(also)
    here.workspace.quarantine.keep([Refused("live:x|y", 0, "a line that speaks of something else", raw)], "")
    here.take(here.tree.put({OTHER: confirmed(logged("B"))}, head))
    assert raw in file.read_bytes().splitlines()
    assert b"rubbish" not in file.read_bytes(), "it is in quarantine"


def test_the_quarantine_is_not_read_where_every_line_can_be(here: Here) -> None:
    here.log("Check the cache key")
    head = here.push()
    raw = PATTERNS.encode(here.log("Pin the version"))
    here.workspace.db.aside = lambda: pytest.fail("it may be large, or unreadable")
    here.take(here.tree.put({OTHER: confirmed(logged("B"))}, head))
    assert raw in (here.workspace.clan / here.mine).read_bytes()


def test_a_bad_line_is_forgotten_when_it_is_mended(here: Here) -> None:
    here.log("Check the cache key")
    file = here.workspace.clan / here.mine
    good = file.read_bytes()
    file.write_bytes(good + b"torn")
    assert len(here.workspace.db.refused()) == 1
    file.write_bytes(good + PATTERNS.encode(logged("B")))
    assert not here.workspace.db.refused()
    assert here.workspace.patterns.count() == 2


def test_a_carried_line_leaves_only_with_a_tree_that_descends_from_the_one_that_had_it(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    head = here.tree.put({OTHER: NEWER + b"\n"}, here.tree.head())
    here.take(head)
    assert len(here.workspace.db.carried()) == 1
    rewound = here.tree.put({here.mine: PATTERNS.encode(line) + b"\n"}, "")
    here.take(rewound)
    assert len(here.workspace.db.carried()) == 1
    assert [getattr(each, "raw", b"") for each in here.workspace.db.outgoing()] == [NEWER]
    head = here.tree.put({OTHER: NEWER + b"\n"}, rewound)
    here.take(head)
    here.take(here.tree.put({OTHER: b""}, head))
    assert not here.workspace.db.carried()
    assert not (here.workspace.clan / OTHER).exists()


def test_purged_values_leave_every_file_here_and_every_row(here: Here) -> None:
    line = here.log("the password is hunter2")
    here.push()
    with here.workspace.writing("velma") as writer:
        record = here.workspace.patterns.line(line.id)
        assert record is not None
        writer.append(PATTERNS, [edits.purge(record, {"text": "[REDACTED]"}, writer.name, writer.tick())])
    here.push()
    here.take(here.tree.head())
    assert b"hunter2" not in b"".join(file.read_bytes() for file in here.workspace.clan.rglob("*.jsonl"))
    assert b"hunter2" not in here.workspace.db.edition(PATTERNS)
    theirs = here.tree.read(here.tree.paths(here.tree.head())[here.mine][0])
    assert b"hunter2" in theirs
    assert b"hunter2" not in here.workspace.db.stripped(PATTERNS, theirs)
    assert here.workspace.db.differences() == []


def test_an_edit_from_the_future_waits_until_the_clock_reaches_it_and_hides_no_first_wording(here: Here) -> None:
    line = here.log("Check the cache key")
    ahead = edits.set_field(line, "text", "Later", TANK, "2026-12-24T00:00:00.000Z-0000", "~")
    here.push()
    here.take(here.tree.put({OTHER: PATTERNS.encode(ahead) + b"\n"}, here.tree.head()))
    assert here.workspace.patterns.get(line.id).text == "Check the cache key"
    assert here.workspace.db.future_ids() == [line.id]
    edition = here.workspace.db.edition(PATTERNS)
    here.now_ms += 40 * DAY_MS
    assert here.workspace.patterns.get(line.id).text == "Later"
    assert here.workspace.patterns.best("sight", 1)[0].text == "Later"
    assert here.workspace.db.edition(PATTERNS) == edition, "an edition reads no clock"
    here.now_ms -= 40 * DAY_MS
    assert here.workspace.patterns.get(line.id).text == "Check the cache key"
    assert here.workspace.db.differences() == []


def test_a_stamp_is_larger_than_what_was_admitted_and_no_peer_from_the_future_drags_it_along(here: Here) -> None:
    line = here.log("Check the cache key")
    here.push()
    soon, never = "2026-11-22T20:00:00.000Z-0000", "2036-01-01T00:00:00.000Z-0000"
    here.take(
        here.tree.put({OTHER: confirmed(line, at=soon) + confirmed(line, "slash.22222222", at=never)}, here.tree.head())
    )
    with here.workspace.writing("velma") as writer:
        assert soon < writer.tick() < "2026-11-23"


def test_private_lessons_are_a_file_and_a_database_that_nothing_shared_opens(here: Here) -> None:
    here.log("Check the cache key")
    with here.workspace.writing("velma") as writer:
        writer.append_private([logged("Secret way", writer.name, writer.tick())])
    assert [each.text for each in here.workspace.notes("velma").lessons()] == ["Secret way"]
    assert [each.text for each in here.workspace.patterns.lessons()] == ["Check the cache key"]
    assert all(b"Secret" not in PATTERNS.encode(each) for each in here.workspace.db.outgoing())
    assert b"Secret" not in b"".join(file.read_bytes() for file in here.workspace.clan.rglob("*.jsonl"))


@pytest.mark.parametrize("where", [5000, 20000])
def test_a_damaged_database_is_made_anew_and_told(here: Here, where: int) -> None:
    lines = [here.log(f"Check the cache key number {n}") for n in range(60)]
    here.workspace.patterns.count()
    here.workspace.close()
    path = here.root / ".fleet" / f"state-{SCHEMA_NUMBER}.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    data[where : where + 16] = b"\xff" * 16
    path.write_bytes(data)
    here.open()
    assert [here.seen(line) for line in lines] == [1] * 60
    assert here.workspace.patterns.count() == 60
    assert here.workspace.db.differences() == []


def test_a_database_in_a_folder_whose_name_is_no_text_is_looked_into(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9?%20#")
    try:
        root.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    here = Here(root)
    here.log("Check the cache key")
    assert here.workspace.patterns.count() == 1
    assert here.workspace.db.database.integrity_error() == ""


def test_a_changed_row_is_noticed_though_sqlite_finds_nothing_wrong_with_it(here: Here) -> None:
    line = here.log("Check the cache key")
    here.workspace.patterns.count()
    here.workspace.db.database.open().execute("UPDATE pattern SET line = replace(line, 'cache', 'hacks')")
    assert here.workspace.patterns.get(line.id).text == "Check the cache key"
    assert "made anew" in here.workspace.warnings[0]


def test_the_first_of_two_that_make_the_database_is_waited_for_and_a_correction_waits_for_neither(here: Here) -> None:
    written_by_hand(here)
    with here.workspace.files.lock(here.workspace.local / "locks" / f"state-{SCHEMA_NUMBER}.lock"):
        other = Workspace(here.root, here.workspace.world)
        assert not other.db.refresh(0.05)
        with other.snapshot(0.05):
            assert other.patterns.count() == 0
    assert not (here.root / ".fleet" / f"state-{SCHEMA_NUMBER}.db").exists()
    assert other.patterns.count() == 1


def test_a_reader_that_cannot_write_answers_from_memory(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    written_by_hand(here)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert here.workspace.patterns.count() == 1
    assert not (here.root / ".fleet" / f"state-{SCHEMA_NUMBER}.db").exists()


def test_a_link_that_took_the_place_of_an_open_database_is_not_followed(here: Here, tmp_path: Path) -> None:
    here.log("Check the cache key")
    assert here.workspace.patterns.count() == 1
    path, elsewhere = here.root / ".fleet" / f"state-{SCHEMA_NUMBER}.db", tmp_path / "elsewhere.db"
    path.unlink()
    path.symlink_to(elsewhere)
    assert here.workspace.patterns.count() == 1
    assert path.is_symlink()
    assert not elsewhere.exists()


def test_what_is_taken_back_leaves_files_and_rows_and_nothing_that_was_sent_does(here: Here) -> None:
    line = here.log("Check the cache key")
    me = next(iter(line.w))
    here.push()
    with here.workspace.writing("velma") as writer:
        more = edits.confirm(line, writer.name, writer.tick(), seen=1, sessions=0)
        writer.append(PATTERNS, [more])
    with here.workspace.locked():
        here.workspace.db.remove_unsent(line.id, me, ("add", "n"))
    assert here.seen(line) == 1
    assert all((each.w[me].n, each.w[me].add) == ({}, "") for each in here.workspace.db.outgoing())
    assert here.workspace.db.differences() == []


def test_a_merged_set_is_one_lesson_that_adds_up(here: Here) -> None:
    one, two = here.log("Check the cache key"), here.log("Look at the key of the cache")
    with here.workspace.writing("velma") as writer:
        large, small = sorted([one, two], key=lambda each: each.id, reverse=True)
        writer.append(PATTERNS, [writer.edit(large, "merged_into", small.id)])
    assert here.workspace.patterns.count() == 1
    (best,) = here.workspace.patterns.best("evidence", 5)
    assert (best.id, best.count("seen")) == (small.id, 2)
    assert [each.id for each in here.workspace.patterns.lessons()] == [small.id]
    assert here.workspace.patterns.lesson(large.id).count("seen") == 2
    third = here.log("Pin the image")
    assert here.workspace.patterns.best_texts(5) == {small.id: best.text, third.id: "Pin the image"}
    assert here.workspace.patterns.best_texts(1) == {small.id: best.text}


def test_a_lesson_logged_again_in_its_edited_words_is_the_same_one(here: Here) -> None:
    line = here.log("Check the cache key")
    with here.workspace.writing("velma") as writer:
        writer.append(PATTERNS, [edits.set_field(line, "text", "Hash the inputs.", writer.name, writer.tick(), "~")])
    assert here.workspace.patterns.same_text("hash the **inputs**") == line.id
    assert here.workspace.patterns.same_text("Check the cache key") == line.id


def test_ties_are_broken_by_time_and_not_by_the_hash_of_the_text(here: Here) -> None:
    texts = [f"Lesson number {n}" for n in range(6)]
    for text in texts:
        here.now_ms += 60_000
        here.log(text)
    assert [each.text for each in here.workspace.patterns.best("evidence", 3)] == texts[:-4:-1]
    assert [*here.workspace.patterns.best_texts(3).values()] == texts[:-4:-1]


def test_to_find_the_few_edits_from_the_future_or_published_lessons_costs_no_more_among_many(here: Here) -> None:
    ahead = edits.set_field(here.log("Pin it"), "text", "Later", TANK, "2026-12-24T00:00:00.000Z-0000", "~")
    lessons = [logged(f"Lesson number {n}") for n in range(2_000)]
    with here.workspace.writing("velma") as writer:
        writer.append(PATTERNS, [writer.edit(here.workspace.patterns.line(ahead.id), "state", "published")])
    costs = []
    for known in ([ahead], [ahead, *lessons]):
        here.take(here.tree.put({OTHER: b"".join(PATTERNS.encode(each) + b"\n" for each in known)}, here.tree.head()))
        steps: list[int] = []
        here.workspace.db.refresh()
        here.workspace.db.database.open().set_progress_handler(lambda steps=steps: steps.append(1), 1)
        here.workspace.db.refresh()
        with here.workspace.db.without_refresh():
            assert here.workspace.db.future_ids() == [ahead.id]
            assert [each.id for each in here.workspace.patterns.best("published", 5)] == [ahead.id]
        here.workspace.db.database.open().set_progress_handler(None, 0)
        costs.append(len(steps))
    assert costs[1] <= 2 * costs[0]


def test_a_config_with_mistakes_costs_what_they_are_about_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('[share]\nbranch = "b"\nnonsense = 1\n[promotion]\nown = "x"\n[what]\na = 1\n')
    workspace = Workspace(tmp_path)
    assert workspace.config.share.branch == "b"
    assert workspace.config.promotion.own == 3
    assert len(workspace.warnings) == 3
    (tmp_path / "fleet.toml").write_text("[share\n")
    assert "cannot be read" in Workspace(tmp_path).warnings[0]


def test_the_smaller_of_two_lines_of_one_discovery_stays_and_both_kinds_of_editions_are_sorted(here: Here) -> None:
    from fleet.model.discovery import Discovery, discovery_id

    here.log("Check the cache key")
    each = discovery_id("fix", "ci", "slow", "cache")
    late, early = (
        Discovery(id=each, at=at, by=TANK, type="fix", context="ci", problem="slow", solution="cache")
        for at in ("2026-11-21T09:00:00.000Z-0000", "2026-11-21T08:00:00.000Z-0000")
    )
    shard = DISCOVERIES.shard(TANK)
    here.take(here.tree.put({shard: DISCOVERIES.encode(late) + b"\n"}, here.tree.head()))
    with (here.workspace.clan / shard).open("ab") as file:
        file.write(DISCOVERIES.encode(early) + b"\n")
    assert [found.at for found in here.workspace.discoveries.newest(5)] == [early.at]
    assert here.workspace.db.edition(DISCOVERIES) == DISCOVERIES.encode(late) + b"\n"
    assert early in here.workspace.db.outgoing()


def test_a_tree_is_taken_in_at_two_looks_at_the_line_files(here: Here, monkeypatch: pytest.MonkeyPatch):
    """With a thousand shards a look costs as much as a git process: one before the files change, and one after."""
    here.log("Check the version first")
    looked = []
    find = ingest.clan_sources
    monkeypatch.setattr(ingest, "clan_sources", lambda *given: looked.append(given) or find(*given))
    here.workspace.db.refresh()
    looked.clear()
    here.take(here.tree.put({OTHER: PATTERNS.encode(logged("Use a lock")) + b"\n"}, ""))
    assert len(looked) == 2
    assert (here.root / "clan-learnings" / OTHER).exists()
    assert {each.text for each in here.workspace.patterns.best("sight", 9)} == {"Check the version first", "Use a lock"}


@pytest.mark.parametrize("path", ["patterns.d/ada.0a1b2c3d", "patterns.d/ada.jsonl", "x/patterns.jsonl", "patterns.d"])
def test_what_is_no_path_of_the_clans_is_of_no_kind(path: str) -> None:
    assert Kind.of(path) is None
    assert not is_clan_path(path)
    assert Kind.of("patterns.d/ada.0a1b2c3d.jsonl") is PATTERNS
