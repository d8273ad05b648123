"""In a large clan a correction reads what the index lacks, and says what it would say if the index lacked nothing."""

import pytest

from fleet.cli import desk
from fleet.keep import config, edits, indexing, limits, view
from fleet.keep.notebook import Notebook
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction, correct

QUOTE = "Quote every path that may hold blanks"
SAME = "Always quote every path that may hold blanks"


@pytest.fixture(autouse=True)
def _every_clan_is_large(monkeypatch):
    monkeypatch.setattr(limits, "VIEW_BYTES_MIN", 0)


@pytest.fixture
def refreshed(monkeypatch):
    """How often the index was brought up to date."""
    times, refresh = [], indexing.refresh
    monkeypatch.setattr(indexing, "refresh", lambda *a: (times.append(1), refresh(*a))[1])
    return times


@pytest.fixture
def root(tmp_path, refreshed):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    for number in range(3):
        tell(tmp_path, f"Some other lesson, number {number}")
    glanced(tmp_path)
    refreshed.clear()
    return tmp_path


def opened(root) -> Workspace:
    return Workspace(root, World(machine=lambda: "m", durable=False))


def tell(root, lesson, same=""):
    """Log a correction as a process of its own does; return what it tells, and which lessons are near."""
    workspace = opened(root)
    try:
        told = correct(workspace, "velma", Correction("w", "r", lesson), session="s", same=same)
        return told, [(near.id, near.text, near.verdict) for near in told.near]
    finally:
        workspace.close()


def change(root, pattern, field, value):
    workspace = opened(root)
    try:
        with workspace.writing("velma") as writer:
            held = workspace.load().notebook
            line = edits.field_set(held.patterns[pattern], field, value, writer.name, writer.tick())
            writer.append(PATTERNS, [line])
    finally:
        workspace.close()


def glanced(root) -> Notebook:
    workspace = opened(root)
    try:
        held = view.glance(workspace).notebook
        held.edition()
        return held
    finally:
        workspace.close()


def test_a_lesson_that_the_index_lacks_is_near_and_is_counted(root, refreshed):
    first, _ = tell(root, QUOTE)
    assert tell(root, QUOTE)[0].seen == 2
    assert tell(root, SAME)[1] == [(first.id, QUOTE, "same")]
    assert not refreshed
    indexed, _ = tell(root, SAME, same=first.id)
    assert indexed.seen == 3


def test_the_same_is_near_with_and_without_the_index_being_up_to_date(root, refreshed):
    lessons = [QUOTE, "Never quote every path that may hold blanks", "Quote paths", "Retry 3 times", "Retry 5 times"]
    for lesson in lessons:
        tell(root, lesson)
    behind = tell(root, SAME)[1]
    assert not refreshed
    glanced(root)
    assert refreshed
    assert behind
    assert tell(root, SAME)[1] == behind


def test_what_was_edited_since_is_near_as_it_reads_now(root, refreshed):
    first, _ = tell(root, "Run the tests before each commit")
    glanced(root)
    refreshed.clear()
    change(root, first.id, "text", QUOTE)
    assert tell(root, SAME)[1] == [(first.id, QUOTE, "same")]
    assert tell(root, "Run all tests before each commit")[1] == []
    assert tell(root, QUOTE)[0].id == first.id
    assert not refreshed


def test_what_was_taken_out_since_is_near_no_more(root, refreshed):
    first, _ = tell(root, QUOTE)
    glanced(root)
    refreshed.clear()
    workspace = opened(root)
    with workspace.writing("velma") as writer:
        line = workspace.load().notebook.patterns[first.id]
        gone = type(line)(id=line.id, at=line.at, by=line.by, rem={writer.name: line.add[writer.name]})
        writer.append(PATTERNS, [gone])
    workspace.close()
    assert tell(root, SAME)[1] == []
    assert not refreshed


def test_a_merge_that_the_index_lacks_counts(root, refreshed):
    first, _ = tell(root, QUOTE)
    second, _ = tell(root, "Check the version first")
    glanced(root)
    refreshed.clear()
    change(root, max(first.id, second.id), "merged_into", min(first.id, second.id))
    told, _ = tell(root, QUOTE)
    assert (told.id, told.seen) == (min(first.id, second.id), 3)
    assert not refreshed


def test_every_so_often_a_correction_brings_the_index_up_to_date(root, refreshed, monkeypatch):
    monkeypatch.setattr(limits, "UNINDEXED_BYTES_MAX", 2_000)
    for number in range(40):
        tell(root, f"Lesson {number} of many")
    assert 2 <= len(refreshed) <= 10
    told = {line.set["text"] for line in glanced(root).patterns.values()}
    assert {f"Lesson {number} of many" for number in range(40)} <= told


def test_a_process_that_goes_on_counts_like_one_that_begins(root, refreshed):
    workspace = opened(root)
    for number in range(40):
        correct(workspace, "velma", Correction("w", "r", f"Lesson {number % 7}"), session="s")
    workspace.close()
    notebook = glanced(root)
    seen = {line.set["text"]: sum(line.n["seen"].values()) for line in notebook.patterns.values()}
    assert [seen[f"Lesson {number}"] for number in range(7)] == [6, 6, 6, 6, 6, 5, 5]


def test_the_beginning_of_an_id_that_the_index_lacks_names_it(root):
    first, _ = tell(root, QUOTE)
    workspace = opened(root)
    assert desk.find(view.glance(workspace, for_one=True).notebook, first.id[:9]).id == first.id
    workspace.close()


def killed(*_):
    raise KeyboardInterrupt


def test_what_stopped_before_it_was_counted_is_counted_by_the_next_one(root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(corrections._Owed, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            tell(root, QUOTE)
    assert tell(root, "Check the version first")[0].seen == 1
    assert tell(root, QUOTE)[0].seen == 2
