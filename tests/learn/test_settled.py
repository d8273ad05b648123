"""A log of years is not parsed to add an entry to it, and what is counted is what reading all of it would count."""

import pytest

from fleet.learn import corrections_md, counting
from fleet.learn.corrections import Corrections
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog
from fleet.model.names import pattern_id
from fleet.store import config
from fleet.store.workspace import Workspace, World

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
    """How long the pages were that were parsed as a log."""
    read, parse = [], corrections_md.Log.parse
    monkeypatch.setattr(corrections_md.Log, "parse", lambda text: read.append(len(text)) or parse(text))
    return read


def tell(workspace, lesson=LESSON, session="s", wrong="w"):
    return Corrections(workspace, "velma").log(Correction(wrong, "r", lesson), session=session)


def counted(workspace):
    pattern = workspace.patterns.get(pattern_id(LESSON))
    return pattern.count("seen"), pattern.count("sessions")


def forget(workspace):
    """Delete the database, as anybody may at any moment."""
    workspace.db.database.delete()


def test_another_occurrence_is_counted_without_parsing_the_log(workspace, pages):
    for session in ("s-1", "s-1", "s-2"):
        tell(workspace, session=session)
        tell(workspace, "something else", session=session)
    size = CountedLog(workspace, "velma").log_file().stat().st_size
    pages.clear()
    assert tell(workspace, session="s-2").seen == 4
    assert max(pages, default=0) < size / 4
    assert counted(workspace) == (4, 2)
    forget(workspace)
    assert counting.reconcile_all(workspace) == 0
    assert max(pages) > size
    assert counted(workspace) == (4, 2)


def test_once_an_entry_was_undone_the_log_is_not_parsed_for_other_lessons(workspace, pages):
    for lesson in ("not so", LESSON, "something else", LESSON, "one more"):
        tell(workspace, lesson)
    log = CountedLog(workspace, "velma").log_file()
    undone = corrections_md.Log.parse(log.read_bytes()).records[0]
    log.write_text(f"{log.read_text()}\n{corrections_md.Log.format_mark(undone.id, 1, undone.at)}\n")
    tell(workspace)
    size = log.stat().st_size
    pages.clear()
    assert tell(workspace).seen == 4
    assert max(pages, default=0) < size / 4
    assert tell(workspace, "not so").seen == 1
    assert max(pages) > size


def test_equal_words_in_one_minute_are_as_many_entries(workspace):
    assert [tell(workspace).seen for _ in range(4)] == [1, 2, 3, 4]
    log = CountedLog(workspace, "velma").read_log()
    ids = [record.id for record in log.records]
    assert len(set(ids)) == 4
    assert [bound.record.id for bound in log.entries] == ids


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["rows stay", "rows go, too"])
def test_lines_that_a_power_failure_took_from_the_shard_are_counted_with_the_next_occurrence(workspace, is_forgotten):
    tell(workspace)
    (shard,) = (workspace.clan / "patterns.d").iterdir()
    first = shard.read_bytes()
    tell(workspace, session="s-2")
    shard.write_bytes(first)  # the log kept the second occurrence
    if is_forgotten:
        forget(workspace)
    assert tell(workspace, session="s-3").seen == 3
    assert counted(workspace) == (3, 3)


def test_an_entry_mended_by_hand_is_no_other_occurrence(tmp_path):
    workspace = opened(tmp_path, step_ms=0)
    tell(workspace, wrong="this")
    path = CountedLog(workspace, "velma").log_file()
    path.write_bytes(path.read_bytes().replace(b"this", b"that"))
    tell(workspace, "something else")
    assert tell(workspace, wrong="that").seen == 2
    counting.reconcile_all(workspace)
    assert counted(workspace)[0] == 2
    workspace.close()


def test_that_nothing_waits_is_known_for_as_long_as_nobody_touches_the_log(workspace, pages):
    assert len(CountedLog(workspace, "velma").to_state()) == 0
    tell(workspace)
    pages.clear()
    assert len(CountedLog(workspace, "velma").to_state()) == 0
    assert not any(pages)
    path = CountedLog(workspace, "velma").log_file()
    path.write_bytes(path.read_bytes() + b"\n## 2026-11-20 12:00Z \xe2\x80\x94 by hand\n**Wrong:** no lesson yet\n")
    assert len(CountedLog(workspace, "velma").to_state()) == 1  # read, as the note is about less
    counting.reconcile_all(workspace)
    assert len(CountedLog(workspace, "velma").to_state()) == 1
    tell(workspace, "something else")
    assert len(CountedLog(workspace, "velma").to_state()) == 1
    forget(workspace)
    assert len(CountedLog(workspace, "velma").to_state()) == 1


@pytest.mark.parametrize("note", ["torn", "1 2 3", "\xff", "1 2 3 -4", "a b c"])
def test_a_note_that_says_nothing_of_this_log_costs_one_parsing(workspace, note):
    tell(workspace)
    workspace.db.note(counting._note_key("velma"), note)
    assert len(CountedLog(workspace, "velma").to_state()) == 0
    assert tell(workspace, session="s-2").seen == 2
    assert counted(workspace) == (2, 2)


@pytest.mark.parametrize(
    "more",
    [
        "**Pattern:** A lesson in words that end an entry\n",
        "\n## 2026-11-20 12:00Z — by hand\n**Pattern:** A lesson in words that end an entry\n",
        "\n## A heading\n\n**Pattern:** A lesson in words that end an entry\n",
    ],
)
def test_what_a_person_appends_counts_with_the_next_correction(workspace, more):
    path = CountedLog(workspace, "velma").log_file()
    path.parent.mkdir(parents=True)
    path.write_text("## 2026-11-20 12:00Z — mine\n**What I got wrong:** w\n")
    tell(workspace)
    path.write_text(path.read_text() + "\n## 2026-11-20 12:00Z — mine, too\n**What I got wrong:** w\n")
    counting.reconcile_all(workspace)
    path.write_text(path.read_text() + more)
    tell(workspace, "something else")
    assert {each.text: each.count("seen") for each in workspace.patterns.lessons()} == {
        LESSON: 1,
        "something else": 1,
        "A lesson in words that end an entry": 1,
    }


def test_records_in_a_code_fence_count_for_nothing(workspace):
    tell(workspace)
    record = CountedLog(workspace, "velma").read_log().records[0]
    path = CountedLog(workspace, "velma").log_file()
    shown = record.render().replace(record.id, "c-00000000000000aa").replace("2026", "2027")
    path.write_bytes(path.read_bytes() + f"\n```\n{shown}\n```\n".encode())
    tell(workspace, "something else")
    assert tell(workspace, session="s-2").seen == 2
    assert counted(workspace) == (2, 2)
