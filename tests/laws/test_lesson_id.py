"""One lesson, one id: what people vary without meaning it goes, and what changes an instruction stays."""

import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.model.limits import TEXT_BYTES_MAX
from fleet.model.names import normalise, pattern_id
from tests.pace import is_within

MARKS = (
    "*",
    "**",
    "***",
    "_",
    "__",
    "`",
    "``",
    "a",
    "B",
    "#",
    ".",
    "!",
    " ",
    "(",
    ")",
    "é",
    "İ",
    "ß",
    "1",
    "-",
    "…",
    "\u0301",
)
marked_texts = st.lists(st.sampled_from(MARKS), max_size=12).map("".join)
words = st.text(st.sampled_from("abcdefghijkmnoprstuvwxyzäéñößж汉"), min_size=1, max_size=6)
sentences = st.lists(words, min_size=1, max_size=6)
blanks = st.sampled_from((" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", " \n "))


@given(st.text())
def test_normalising_twice_is_normalising_once(text):
    assert normalise(normalise(text)) == normalise(text)


@given(marked_texts)
def test_normalising_marks_twice_is_normalising_once(text):
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize("depth", [1, 30, 64, 65, 500, 2_000])
@pytest.mark.parametrize(("opening", "closing"), [("*", "*"), ("***", "***"), ("_*", "*_"), ("_**", "**_")])
def test_marks_nested_deeper_than_the_rounds_keep_one_id(opening, closing, depth):
    """Found: beyond 64 rounds the text was left half done, and had another id the next time."""
    text = opening * depth + "Nested" + closing * depth
    assert normalise(normalise(text)) == normalise(text)


@given(st.text() | marked_texts)
def test_composed_and_decomposed_characters_give_one_id(text):
    assert pattern_id(unicodedata.normalize("NFD", text)) == pattern_id(unicodedata.normalize("NFC", text))


@given(sentences, st.lists(blanks, min_size=8, max_size=8))
def test_white_space_gives_one_id(sentence, blanks):
    spaced = blanks[6] + "".join(word + blank for word, blank in zip(sentence, blanks, strict=False)) + blanks[7]
    assert pattern_id(spaced) == pattern_id(" ".join(sentence))


@given(sentences, st.integers(0, 5), st.integers(0, 5), st.sampled_from(("*", "**", "***", "_", "__")))
def test_emphasis_gives_one_id(sentence, start, end, marker):
    start, end = sorted((min(start, len(sentence) - 1), min(end, len(sentence) - 1)))
    assume(marker != "__" or start < end)
    marked = list(sentence)
    marked[start] = marker + marked[start]
    marked[end] += marker
    assert pattern_id(" ".join(marked)) == pattern_id(" ".join(sentence))
    assert pattern_id(" ".join(marked) + ".") == pattern_id(" ".join(sentence))


@given(sentences)
def test_case_gives_one_id(sentence):
    text = " ".join(sentence)
    assert pattern_id(text.upper()) == pattern_id(text) == pattern_id(text.title())


def test_a_last_word_of_dots_is_an_argument_and_stays():
    assert pattern_id("Never run git add .") != pattern_id("Never run git add")
    assert pattern_id("Leave it with cd ..") != pattern_id("Leave it with cd")


@given(sentences, st.text(st.sampled_from(".!?…"), max_size=4) | st.text(st.sampled_from("!?… "), max_size=4))
def test_final_marks_give_one_id(sentence, end):
    assert pattern_id(" ".join(sentence) + end) == pattern_id(" ".join(sentence))


@given(words, sentences)
def test_code_spans_keep_case_and_marks(word, sentence):
    assume(word.upper() != word)
    text = " ".join(sentence)
    for upper, lower in (
        (f"`{word.upper()}`", f"`{word}`"),
        (f"`*{word}*`", f"`{word}`"),
        (f"``{word.upper()}``", f"``{word}``"),
        (f"`{word}.`", f"`{word}`"),
    ):
        assert pattern_id(f"{text} {upper} {text}") != pattern_id(f"{text} {lower} {text}")
        assert pattern_id(f"{text} {upper}") != pattern_id(f"{text} {lower}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("git branch -d", "git branch -D"),
        ("use `git branch -d`", "use `git branch -D`"),
        ("tar -x", "tar -X"),
        ("write C#", "write C"),
        ("write C++", "write C"),
        ("read .env", "read env"),
        ("read .env", "read .ENV"),
        ("edit src/Main.py", "edit src/main.py"),
        ("pin numpy 1.26", "pin numpy 126"),
        ("pin v2", "pin V2"),
        ("__init__ first", "init first"),
        ("use snake_case", "use snakecase"),
        ("never use pnpm", "use pnpm"),
        ("use awk, not sed", "use awk not sed"),
        ("delete *.py", "delete .py"),
        ("`a b`", "a b"),
    ],
)
def test_what_changes_an_instruction_changes_the_id(one, other):
    assert pattern_id(one) != pattern_id(other)


ADVERSARIES = {
    "opening marks": "*a ",
    "closed marks": "*a* ",
    "bold": "**a** ",
    "backticks": "`",
    "single backticks": "`a",
    "backticks of many lengths": "``a`",
    "lone backticks": "` ",
    "underscores": "_",
    "underscored words": "_a_ ",
    "stars": "*",
    "full stops": ".",
    "blanks": " \t",
    "combining marks": "\u0301",
    "quotes": '"(',
}


@pytest.mark.parametrize("unit", ADVERSARIES.values(), ids=ADVERSARIES)
def test_the_longest_text_takes_linear_time(unit):
    """Found: a run of 8 KiB of backticks took a quarter of a second."""
    short, long = (_best_s(unit * (size // len(unit.encode()))) for size in (TEXT_BYTES_MAX, 8 * TEXT_BYTES_MAX))
    assert long < 8 * 3 * short + 0.005, "eight times the text, sixty-four times the time"
    assert is_within(short, 0.25)


def test_the_deepest_nesting_takes_little_time():
    for text in ("*" * 4_000 + "a" + "*" * 4_000, "_*" * 1_000 + "a " * 2_000 + "b" + "*_" * 1_000):
        assert is_within(_best_s(text), 2)


def _best_s(text: str) -> float:
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        normalise(text)
        best = min(best, time.process_time() - start)
    return best
