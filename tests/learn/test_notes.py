"""Pages of notes in the wild: whatever they hold, they cost time in proportion, and raise nothing."""

import time

import pytest

from fleet.learn.notes_md import Left, Note, read_notes


def seconds(line: str, count: int) -> float:
    """The best of three, in CPU time."""
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        list(read_notes(line * count, "lessons.md"))
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize(
    "line", ["#\n", "- a\n", "# a\n## Fix\nx\n", "**a**: b\n", "- **Mistake:** a **Rule:** b\n", "[ "]
)
def test_time_grows_with_the_page_and_not_faster(line):
    assert seconds(line, 4_000) < 30 * seconds(line, 400) + 0.02


def test_lists_within_lists_without_end_are_read():
    page = "".join("  " * depth + "- Always look one level deeper\n" for depth in range(3_000))
    assert any(isinstance(each, Note) for each in read_notes(page, "lessons.md"))


def test_nothing_is_dropped_without_a_word():
    page = "# Lessons\n\nIntro.\n\n## Format\n- x\n\n## A\n- Always pin the image\n- short\n- [ ] todo\n" + "y" * 9_000
    found = list(read_notes(page, "lessons.md"))
    assert [each.line for each in found if isinstance(each, Note)] == [9]
    assert {each.line for each in found if isinstance(each, Left)} == {3, 6, 10, 11, 12}
