"""A log of years is not read to add a line to it, and what is counted is what reading all of it would count."""

import pytest

from fleet.keep import config
from fleet.keep.notebook import count
from fleet.keep.view import glance
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections, settled
from fleet.learn.corrections import Correction, correct

NOON_MS = 1_795_176_000_000
LESSON = "Check the version first"


class Clock:
    """A wall clock that goes on by a step with each look."""

    def __init__(self, step_ms):
        self.ms, self.step_ms = NOON_MS, step_ms

    def __call__(self):
        self.ms += self.step_ms
        return self.ms


def opened(root, step_ms=1):
    (root / config.FILE_NAME).write_text(config.render("", "fleet"))
    return Workspace(root, World(wall_ms=Clock(step_ms), machine=lambda: "m", durable=False))


@pytest.fixture
def workspace(tmp_path):
    made = opened(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pages(monkeypatch):
    """How long the pages were that were read as a log."""
    read, parse = [], corrections.parse_log
    monkeypatch.setattr(corrections, "parse_log", lambda text: read.append(len(text)) or parse(text))
    return read


def tell(workspace, lesson=LESSON, session="s", wrong="w"):
    return correct(workspace, "velma", Correction(wrong, "r", lesson), session=session)


def counted(workspace):
    workspace.kept = None
    line = glance(workspace).notebook.get(corrections.reconcile.pattern_id(LESSON))
    return count(line, "seen"), count(line, "sessions")


def test_another_occurrence_is_counted_without_reading_the_log(workspace, pages):
    for session in ("s-1", "s-1", "s-2"):
        tell(workspace, session=session)
        tell(workspace, "something else", session=session)
    log = settled.log_file(workspace, "velma").stat().st_size
    pages.clear()
    assert tell(workspace, session="s-2").seen == 4
    assert max(pages, default=0) < log / 4
    assert counted(workspace) == (4, 2)
    assert corrections.settle_all(workspace).notebook.get(corrections.reconcile.pattern_id(LESSON)).n["seen"]
    assert counted(workspace) == (4, 2)


def test_equal_words_in_one_minute_are_as_many_entries(workspace):
    assert [tell(workspace).seen for _ in range(4)] == [1, 2, 3, 4]
    ids = [record.id for record in corrections.read_log(workspace, "velma").records]
    assert len(set(ids)) == 4
    assert [bound.record.id for bound in corrections.reconcile.bind(corrections.read_log(workspace, "velma"))] == ids


def test_lines_that_a_power_failure_took_from_the_shard_are_counted_with_the_next_occurrence(workspace):
    tell(workspace)
    (shard,) = (workspace.clan / "patterns.d").iterdir()
    first = shard.read_bytes()
    tell(workspace, session="s-2")
    shard.write_bytes(first)  # the log kept the second occurrence, and the note says that all is settled
    workspace.kept = None
    assert tell(workspace, session="s-3").seen == 3
    assert counted(workspace) == (3, 3)


def test_an_entry_mended_by_hand_is_no_other_occurrence(tmp_path):
    workspace = opened(tmp_path, step_ms=0)
    tell(workspace, wrong="this")
    path = settled.log_file(workspace, "velma")
    path.write_bytes(path.read_bytes().replace(b"this", b"that"))
    tell(workspace, "something else")  # settles what was mended
    assert tell(workspace, wrong="that").seen == 2
    corrections.settle_all(workspace)
    assert counted(workspace)[0] == 2
    workspace.close()


def test_what_waits_is_known_for_as_long_as_nobody_touches_the_log(workspace, pages):
    assert settled.unfilled(workspace, "velma") == 0
    tell(workspace)
    path = settled.log_file(workspace, "velma")
    path.write_bytes(path.read_bytes() + b"\n## 2026-11-20 12:00Z \xe2\x80\x94 by hand\n**Wrong:** no lesson yet\n")
    assert settled.unfilled(workspace, "velma") == 1  # read, as the note is about another page
    corrections.settle_all(workspace)
    pages.clear()
    assert settled.unfilled(workspace, "velma") == 1
    assert not pages
    tell(workspace, "something else")
    assert settled.unfilled(workspace, "velma") == corrections.unfilled(workspace, "velma") == 1


@pytest.mark.parametrize("note", [b"", b"torn", b"1 2 3", b"\xff" * 64, b"1 2 3 -4", b"1 2 3 4".ljust(64)])
def test_a_note_that_says_nothing_of_this_log_costs_one_reading(workspace, note):
    tell(workspace)
    (workspace.local / "settled" / "velma").write_bytes(note)
    assert settled.unfilled(workspace, "velma") == 0
    assert tell(workspace, session="s-2").seen == 2
    workspace.close()
    assert settled.noted(workspace, "velma").signature == settled.signature(workspace, "velma")


def test_who_goes_on_notes_it_at_the_end(tmp_path, pages):
    workspace = opened(tmp_path)
    note = tmp_path / ".fleet" / "settled" / "velma"
    for number in range(3):
        tell(workspace, session=f"s-{number}")
    noted = note.read_bytes()
    tell(workspace, session="s-3")
    assert note.read_bytes() == noted
    pages.clear()
    assert settled.unfilled(workspace, "velma") == 0
    assert not pages
    workspace.close()
    assert settled.noted(workspace, "velma").signature == settled.signature(workspace, "velma")


def test_who_was_killed_before_the_end_costs_the_next_one_a_reading(tmp_path, pages):
    killed = opened(tmp_path)
    for number in range(3):
        tell(killed, session=f"s-{number}")
    workspace = opened(tmp_path)
    pages.clear()
    assert tell(workspace, session="s-3").seen == 4
    assert max(pages) > settled.log_file(workspace, "velma").stat().st_size / 2
    assert counted(workspace) == (4, 4)
    workspace.close()


def test_a_note_that_cannot_be_written_at_the_end_is_no_fault(tmp_path):
    workspace = opened(tmp_path)
    for number in range(3):
        tell(workspace, session=f"s-{number}")
    folder = tmp_path / ".fleet" / "settled"
    (folder / "velma").unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    workspace.close()
    assert not (tmp_path / "velma").exists()


def test_records_in_a_code_fence_count_for_nothing(workspace):
    tell(workspace)
    record = corrections.read_log(workspace, "velma").records[0]
    path = settled.log_file(workspace, "velma")
    shown = corrections.format_record(record).replace(record.id, "c-00000000000000aa").replace("2026", "2027")
    path.write_bytes(path.read_bytes() + f"\n```\n{shown}\n```\n".encode())
    tell(workspace, "something else")  # settles
    assert tell(workspace, session="s-2").seen == 2
    assert counted(workspace) == (2, 2)


def test_a_log_is_taken_apart_once_for_as_long_as_it_says_the_same(workspace, pages):
    correct(workspace, "velma", Correction("w", "r", LESSON))
    path = settled.log_file(workspace, "velma")
    pages.clear()
    assert len(corrections.read_log(workspace, "velma").entries) == 1
    assert len(corrections.read_log(workspace, "velma").entries) == 1
    assert len(pages) == 1
    # The same size, and perhaps within the same tick of the file system's clock: what counts is what it says.
    path.write_bytes(path.read_bytes().replace(LESSON.encode(), LESSON[::-1].encode()))
    assert [entry.pattern for entry in corrections.read_log(workspace, "velma").entries] == [LESSON[::-1]]
