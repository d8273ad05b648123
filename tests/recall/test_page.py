"""patterns.md: what a git host shows. A record can say anything and structure nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fleet.model.discovery import Discovery
from fleet.model.pattern import Pattern
from fleet.recall.wording import Pages
from fleet.text import screening
from fleet.text.screening import one_line, redact, screen, screened
from tests.records import AT, pattern

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
NAUGHTY = SHARED / "corpora/strings/blns.json"
LESSONS = SHARED / "corpora/lessons/lessons.jsonl"
MEMBERS = {"popashot": "🎯", "tank": "📡", "velma": "🔍"}


def render_page(patterns, *, members=None, **more):
    return Pages(members or {}).lessons(patterns, **more)


GOLDEN = r"""# What this clan has learned

**4 lessons**, 1 of them published. Published lessons come first, then those seen most often.

Rendered by `fleet` from `patterns.jsonl` and never read back: an edit made here is lost with the next rendering.

## cli (1)

- **Check the CLI version before using --json**\
  published · seen once by 🔍 velma · since 2026-03-15 · `p-0000000000000003`

## Shell (2)

- **Always use awk over sed for user-provided input**\
  Right: awk with -v\
  seen 5 times by 🎯 popashot, 📡 tank · since 2026-03-15 · `p-0000000000000001`

- **Quote \* and \<b> in `grep -e`**\
  seen once by 📡 tank · since 2026-03-15 · `p-0000000000000004`

## General (1)

- **No category**\
  seen once by an import · since 2026-04-01 · `p-0000000000000005`
"""

BREAKOUTS = [
    "```\nrm -rf /\n```",
    "~~~ sh\ncode\n~~~",
    "# a heading",
    "a heading\n===",
    "a heading\n---",
    "---\ntitle: front matter\n---",
    "+++\ntitle = 'toml'\n+++",
    "<script>alert(1)</script>",
    "<!-- hidden --> shown",
    "<!-- never closed",
    "</li></ul><h1>out</h1>",
    "<details><summary>x</summary>",
    "<https://evil.example>",
    "https://evil.example and www.evil.example and mail@evil.example",
    "![pixel](https://evil.example/p.png)",
    "[click](javascript:alert(1))",
    "[click][ref]\n\n[ref]: https://evil.example",
    "[^1]\n\n[^1]: note",
    "- item\n- item\n  - nested",
    "* item",
    "+ item",
    "1. item\n2. item",
    "1) item",
    "> quote",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "a | b\n--|--\n1 | 2",
    "**bold** __bold__ *em* _em_ ~~gone~~ `code`",
    "**",
    "*** ***",
    "closes **early** and opens **",
    "`",
    "`code` and `- more code` `` `` and `unclosed",
    "`" + "- # 1. > " * 50 + "`",
    "x" * 110 + " `" + "- # 1. > " * 6 + "` " + "y" * 50,
    "``<b>``https://evil.example`<i>`www.evil.example",
    "``` ``` ```",
    "\\",
    "ends with a backslash \\",
    "\\*not escaped twice\\*",
    "&lt;script&gt; &#60;b&#62; &copy;",
    "$a$ and $$b$$",
    ": definition",
    "- [ ] task",
    "tag \U000e0041\U000e0042 characters",
    "\x1b[31mred\x1b[0m \x9b31m",
    "\u202etxet idib\u202c",
    "zero\u200bwidth",
    "\u2028line\u2029separators\x85here",
    "\n\n\n",
    "    indented code",
    "\tindented code",
    "x" * 300,
    "- " * 200,
    "# " * 200,
    "1. " * 150,
    "> " * 200,
    "=== " * 80,
    "--- " * 80,
    "+ " * 200,
    "| --- | " * 80,
    "``` " * 100,
    "~~~ " * 100,
    "* " * 200,
    "$$ " * 100,
    "中文。" * 100,
    "中文 " * 100,
]


def lesson(
    number: int, text: object, *, seen: int = 1, by: str = "tank.c0ffee42", at: str = AT, **more: object
) -> Pattern:
    return pattern(f"p-{number:016x}", {by: seen}, **{"add": {by: at}, "text": text, **more})


def parsed(page: str) -> list[Token]:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)


def inlines(tokens: list[Token]) -> list[Token]:
    return [child for token in tokens for child in token.children or []]


def assert_only_our_structure(page: str, lessons: int) -> None:
    tokens = parsed(page)
    kinds = [token.type for token in tokens]
    assert set(kinds) <= {
        *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline"),
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
    }
    assert kinds.count("list_item_open") == lessons
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == ["h1"] + ["h2"] * page.count("\n## ")
    assert kinds.count("bullet_list_open") == len(headings) - 1
    found = [token.type for token in inlines(tokens)]
    ours = {"text", "softbreak", "hardbreak", "strong_open", "strong_close", "code_inline"}
    assert set(found) <= ours
    assert found.count("strong_open") == lessons + 1  # a lesson's text, and the number of them
    items = [tokens[at + 2].children or [] for at, kind in enumerate(kinds) if kind == "list_item_open"]
    assert all(item[-1].type == "code_inline" and item[-1].content.startswith("p-") for item in items)


def assert_sound(page: str, lessons: int) -> None:
    assert_only_our_structure(page, lessons)
    assert page.endswith("\n")
    assert not any(c == "\x7f" or (c < " " and c != "\n") or "\x80" <= c <= "\x9f" for c in page)


def strong_texts(page: str) -> list[str]:
    """What a reader of the rendered page sees in bold, a blank for each line break."""
    texts, inside = [], False
    for token in inlines(parsed(page)):
        if token.type == "strong_open":
            inside = True
            texts.append("")
        elif token.type == "strong_close":
            inside = False
        elif inside:
            texts[-1] += " " if token.type in ("softbreak", "hardbreak") else token.content
    return texts[1:]


def letters(text: str) -> str:
    """All but blanks and backticks, which come and go with code spans."""
    return "".join(text.replace("`", "").split())


def order(page: str) -> list[int]:
    return [int(row.rpartition("`p-")[2][:16], 16) for row in page.splitlines() if "`p-" in row]


def test_a_small_page_is_golden():
    seen = {"tank.c0ffee42": 4, "popashot.7f3a91c2": 1}
    awk = {"text": "Always use awk over sed for user-provided input", "correct": "awk with -v", "category": "Shell"}
    undated = {"imported": {"0a0b0c0d00000000": 1}, "add": {"porter.0a0b0c0d": "2026-04-01T00:00:00.000Z-0000"}}
    patterns = [
        pattern(f"p-{1:016x}", seen, **awk),
        lesson(2, "Retired", rem={"tank.c0ffee42": AT}),
        lesson(3, "Check the CLI version before using --json", category="cli", state="published", by="velma.09ab12cd"),
        lesson(4, "Quote * and <b> in `grep -e`", category="shell"),
        pattern(f"p-{5:016x}", {}, text="No category", **undated),
        lesson(6, None, category="shell"),
    ]
    assert render_page(patterns, members=MEMBERS) == GOLDEN


def test_an_empty_clan_gets_a_friendly_page():
    page = render_page([])
    assert "Nothing yet" in page
    assert page.startswith("# What this clan has learned\n")
    assert "fleet correct" in page


def test_the_order_of_the_lines_does_not_matter():
    patterns = [lesson(n, f"lesson {n}", seen=n % 3 + 1, category="ab"[n % 2]) for n in range(30)]
    assert render_page(patterns) == render_page(patterns[::-1]) == render_page(iter(patterns))


def test_published_first_then_most_seen_then_the_newest():
    patterns = [
        lesson(4, "a"),
        lesson(5, "b", at="2026-03-16T14:30:00.000Z-0000"),
        lesson(3, "c", seen=7),
        lesson(2, "d", state="published"),
        lesson(9, "e", seen=2, state="published"),
    ]
    assert order(render_page(patterns)) == order(render_page(patterns[::-1])) == [9, 2, 3, 5, 4]


def test_categories_come_in_the_order_of_their_best_lesson_and_merge_whatever_their_case():
    patterns = [
        lesson(1, "a", category="git", seen=3),
        lesson(2, "b", category="CLI", seen=9),
        lesson(3, "c", category="cli", seen=1),
        lesson(4, "d", category=" Git ", seen=2),
        lesson(5, "e"),
        lesson(6, "f", category="general", state="published"),
    ]
    page = render_page(patterns)
    headings = [row for row in page.splitlines() if row.startswith("## ")]
    assert headings == ["## general (2)", "## CLI (2)", "## git (2)"]
    assert order(page) == [6, 5, 2, 3, 1, 4]


@pytest.mark.parametrize(("limit", "shown"), [(500, 500), (3, 3), (0, 0), (512, 512), (1000, 512)])
def test_the_best_are_shown_and_the_page_says_how_many_more_there_are(limit, shown):
    sessions = {"tank.c0ffee42": 100}
    patterns = [lesson(n, f"lesson {n}", seen=n + 1, counters={"sessions": sessions}) for n in range(512)]
    page = render_page(patterns, lessons_max=limit)
    assert order(page) == list(range(511, 511 - shown, -1))
    assert "**512 lessons**" in page
    assert (f"{512 - shown} more: `fleet patterns`" in page) == (shown < 512)
    assert "more: `fleet patterns`" in page or shown == 512


def test_500_are_shown_unless_told_otherwise():
    assert len(order(render_page(lesson(n, "x") for n in range(501)))) == 500


def test_a_retired_lesson_stays_off_the_page_and_a_confirmed_one_on_it():
    retired = lesson(1, "gone", rem={"tank.c0ffee42": AT})
    again = {"tank.c0ffee42": AT, "velma.09ab12cd": "2026-03-16T00:00:00.000Z-0000"}
    confirmed = lesson(2, "kept", rem={"tank.c0ffee42": AT}, add=again)
    assert order(render_page([retired, confirmed])) == [2]


def test_a_thousand_confirming_agents_do_not_fill_the_page():
    found = pattern(f"p-{1:016x}", {f"agent{n}.00000000": 1 for n in range(1000)}, text="popular")
    page = render_page([found])
    assert "seen 1,000 times by agent0," in page
    assert "992 more" in " ".join(page.split())
    assert_sound(page, 1)


@pytest.mark.parametrize("value", [None, 1, True, 1.5, [], ["a"], {}, {"a": 1}, [["deep"]]])
def test_a_value_that_is_no_text_never_raises(value):
    odd = lesson(1, "odd", correct=value, category=value, state=value, tags=value)
    page = render_page([odd, lesson(2, value)], members={"tank": value})
    assert order(page) == [1]
    assert "## General (1)" in page


@pytest.mark.parametrize("text", BREAKOUTS)
def test_no_record_breaks_out(text):
    hostile = [
        lesson(1, text),
        lesson(2, "x", correct=text),
        lesson(3, "x", category=text, state="published"),
        lesson(4, f"word {text} word", correct=f"word\n{text}\nword", category=f"{text} {text}"),
        lesson(5, "plain", category="plain"),
    ]
    page = render_page(hostile, members={"tank": text})
    assert_sound(page, 5)
    assert render_page(hostile, members={"tank": text}) == page


def test_a_secret_is_redacted_even_when_something_invisible_splits_it():
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    for text in (secret, secret[:9] + "\u200b" + secret[9:]):
        page = render_page([lesson(1, f"token {text}", correct=text, category=text)])
        assert secret not in page
        assert "REDACTED" in page


def test_a_long_category_is_cut_and_its_heading_says_so():
    for category in ("long * " * 100, "x" * 300, "*" * 110, "`" + "c" * 113 + "`" + "d" * 9):
        page = render_page([lesson(1, "x", category=category)])
        heading = next(row for row in page.splitlines() if row.startswith("## "))
        assert heading.endswith("… (1)")


texts = st.text() | st.text("-+*=#>|~:`_<[!$&\\1.) \n\tab", max_size=400) | st.sampled_from(BREAKOUTS)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(texts, texts, texts, st.sampled_from(["published", "candidate", None])), max_size=8), texts)
def test_any_text_gives_one_list_item_a_lesson_and_nothing_else(fields, mark):
    patterns = [
        lesson(n, text, correct=correct, category=category, state=state)
        for n, (text, correct, category, state) in enumerate(fields)
        if text
    ]
    page = render_page(patterns, members={"tank": mark})
    assert render_page(patterns[::-1], members={"tank": mark}) == page
    if patterns:
        assert_sound(page, len(patterns))


@settings(max_examples=100, deadline=None)
@given(texts)
def test_a_reader_sees_the_words_that_were_logged(text):
    seen = letters(redact(one_line(screen(text).text)))
    if seen:
        assert [letters(shown) for shown in strong_texts(render_page([lesson(1, text)]))] == [seen]


def test_the_naughty_strings_structure_nothing():
    if not NAUGHTY.exists():
        pytest.skip(f"no {NAUGHTY}: the shared corpora are not beside this tree")
    strings = json.loads(NAUGHTY.read_text())
    patterns = [lesson(n, text, correct=strings[-n], category=text) for n, text in enumerate(strings) if text]
    page = render_page(patterns, lessons_max=1000, members={"tank": "🎯"})
    assert_sound(page, len(patterns))


def test_real_lessons_in_two_languages():
    if not LESSONS.exists():
        pytest.skip(f"no {LESSONS}: the shared corpora are not beside this tree")
    records = [json.loads(row) for row in LESSONS.read_text().splitlines()]
    patterns = [
        lesson(n, r["title"], correct=r["description"], category=r["domain"], state=r["status"], tags=r["tags"])
        for n, r in enumerate(records)
    ]
    page = render_page(patterns, members=MEMBERS)
    assert len(records) == 194
    assert_sound(page, 194)


def code_of(tokens: list[Token]) -> list[str]:
    return [token.content for token in inlines(tokens) if token.type == "code_inline"]


def test_code_spans_survive_with_a_pipe_in_them_too():
    """Each text of the corpora is put into a code span with a pipe: a CommonMark parser finds it again, as it stood."""
    if not NAUGHTY.exists():
        pytest.skip(f"no {NAUGHTY}: the shared corpora are not beside this tree")
    records = [json.loads(row) for row in LESSONS.read_text().splitlines()]
    texts = [each[key] for each in records for key in ("title", "description")] + json.loads(NAUGHTY.read_text())
    plain = [" ".join(screening.inert(screened(text)).split()).replace("`", "'") for text in texts]
    spans = [f"git log | grep {text} | wc -l" for text in plain if text]
    # What is cut, masked or made inert together with its surroundings is another text, and no matter of Markdown.
    spans = [span for span in spans if " ".join(screening.inert(screened(f"`{span}`")).split()) == f"`{span}`"]
    assert len(spans) > 850
    page = render_page([lesson(n, f"Use `{span}` here") for n, span in enumerate(spans)], lessons_max=len(spans))
    found = [each for each in code_of(parsed(page)) if each.startswith("git log")]
    assert sorted(found) == sorted(spans)


def test_a_lesson_without_a_date_shows_none():
    zero = "1970-01-01T00:00:00.000Z-0000"
    page = render_page([pattern(f"p-{1:016x}", {}, imported={"0a0b0c0d00000000": 1}, at=zero, text="undated")])
    assert "undated" in page
    assert "1970" not in page
    assert "since" not in page


def test_a_page_of_everything_leaves_no_lesson_and_no_discovery_out():
    lessons = [lesson(n, f"lesson {n}") for n in range(501)]
    found = [Discovery(id=f"d-{n:016x}", at=AT, by="tank.c0ffee42", problem=f"# problem {n}") for n in range(30)]
    told = Pages(MEMBERS).everything(lessons, found)
    assert len(order(told.partition("# What was found out")[0])) == 501
    assert [row for row in told.splitlines() if "**\\# problem" in row] == [
        f"- 2026-03-15 · 📡 tank: **\\# problem {n}** · `d-{n:016x}`" for n in range(29, -1, -1)
    ]


@pytest.mark.parametrize(
    "text", ["password:\ncorrecthorse9x", "GITHUB_TOKEN=\nabcdef1234567890XYZ", "a\nbearer\nabcdefgh123456xyz789"]
)
def test_a_secret_that_a_line_end_cut_from_its_name_is_not_shown(text):
    """Only as one line do they read as a secret."""
    assert screening.screen(text).text == text
    assert "REDACTED" in screened(text)
    assert text.split("\n")[-1] not in screened(text)
