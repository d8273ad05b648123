"""What another process wrote just now is near, counts, and is named by its id, like what was there before."""

import pytest

from fleet.app import lessons
from fleet.app.finding import find
from fleet.app.learning import correct
from fleet.learn import corrections
from fleet.learn.corrections_md import Correction
from fleet.model import edits
from fleet.store import config
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, World

QUOTE = "Quote every path that may hold blanks"
SAME = "Always quote every path that may hold blanks"


@pytest.fixture
def root(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    for number in range(3):
        tell(tmp_path, f"Some other lesson, number {number}")
    return tmp_path


def opened(root) -> Workspace:
    return Workspace(root, World(machine=lambda: "m", durable=False))


def tell(root, lesson, same=""):
    """Log a correction as a process of its own does; return what it tells, and which lessons are near."""
    workspace = opened(root)
    try:
        told = correct(workspace, "velma", Correction("w", "r", lesson), session="s", same=same)
        return told, [(near.id, near.text) for near in told.near]
    finally:
        workspace.close()


def change(root, pattern, field, value):
    """Edit a lesson as somebody does whose line comes in by a plain pull."""
    workspace = opened(root)
    with workspace.writing("tank") as writer:
        line, cut = workspace.patterns.line(pattern), workspace.policy().cut
        writer.append(PATTERNS, [edits.set_field(line, field, value, writer.name, writer.tick(), cut)])
    workspace.close()


def test_a_lesson_is_near_and_counts_with_and_without_the_database(root):
    first, _ = tell(root, QUOTE)
    assert tell(root, QUOTE)[0].seen == 2
    for path in (root / ".fleet").glob("state-*.db*"):
        path.unlink()
    told, near = tell(root, SAME)
    assert near[0] == (first.id, QUOTE)
    assert tell(root, SAME, same=first.id)[0].seen == 3
    assert told.seen == 1


def test_what_was_edited_since_is_near_as_it_reads_now(root):
    first, _ = tell(root, "Run the tests before each commit")
    change(root, first.id, "text", QUOTE)
    assert tell(root, SAME)[1][0] == (first.id, QUOTE)
    assert first.id not in dict(tell(root, "Run all tests before each commit")[1])
    assert tell(root, QUOTE)[0].id == first.id


def test_what_was_taken_out_since_is_near_no_more(root):
    first, _ = tell(root, QUOTE)
    workspace = opened(root)
    lessons.retire(workspace, "velma", first.id)
    workspace.close()
    assert tell(root, SAME)[1] == []


def test_a_merge_by_somebody_else_counts(root):
    first, _ = tell(root, QUOTE)
    second, _ = tell(root, "Check the version first")
    change(root, max(first.id, second.id), "merged_into", min(first.id, second.id))
    told, near = tell(root, QUOTE)
    assert (told.id, told.seen) == (min(first.id, second.id), 3)
    assert not {first.id, second.id} & dict(near).keys()


def test_a_process_that_goes_on_counts_like_one_that_begins(root):
    workspace = opened(root)
    for number in range(40):
        correct(workspace, "velma", Correction("w", "r", f"Lesson {number % 7}"), session="s")
    workspace.close()
    workspace = opened(root)
    seen = {each.text: each.count("seen") for each in workspace.patterns.lessons()}
    assert [seen[f"Lesson {number}"] for number in range(7)] == [6, 6, 6, 6, 6, 5, 5]
    workspace.close()


def test_the_beginning_of_a_new_id_names_it(root):
    first, _ = tell(root, QUOTE)
    workspace = opened(root)
    assert find(workspace, first.id[:9]).id == first.id
    workspace.close()


def killed(*_):
    raise KeyboardInterrupt


def test_what_stopped_before_it_was_counted_is_counted_by_the_next_one(root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(corrections, "reconcile", killed)
        with pytest.raises(KeyboardInterrupt):
            tell(root, QUOTE)
    assert tell(root, "Check the version first")[0].seen == 1
    assert tell(root, QUOTE)[0].seen == 2
