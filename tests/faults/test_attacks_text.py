"""Attacks 10 to 14 of FAULTS: slow patterns, split secrets, hidden marks, terminal escapes, live Markdown."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.text.screening import for_terminal, markdown_escape, screen, strip_controls
from tests.pace import within

SHARED = Path(__file__).resolve().parents[3] / "shared"
TOKEN = "gh" + "p_" + "a1B2c3" * 6
SIZE = 64 * 1024
SLOW_S = 1.0
"""The goal is 0.05. A pattern that is not linear takes minutes; one that is only just so: tests/text/test_screening."""


def _naughty() -> list[str]:
    path = SHARED / "corpora" / "strings" / "blns.json"
    if not path.is_file():
        pytest.skip(f"no corpus at {path}")
    strings: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return strings


# --- 10: ReDoS ------------------------------------------------------------------------------------------------------

DASHES = "-" * 5
REPEATED = [
    *"aA0_-=/:@`*~[]<>|#&$\"'\\.!+ \n\t",
    *("\u200b", "\u200c", "م\u200c", "\x1b", "\x1b[", "\u00a0", "中", "\ud800", "\U000e0041"),
    *(DASHES + "BEGIN", DASHES + "BEGIN PRIVATE KEY" + DASHES, DASHES + "END PRIVATE KEY" + DASHES, DASHES),
    *(
        DASHES + "BEGIN RSA PRIVATE KEY" + DASHES + "\nAAAA",
        "eyJ",
        "-eyJ",
        "eyJ.",
        "eyJaaaaaaaaaaa.",
        "eyJaaaaaaaaaaa.bbb ",
    ),
    *("sk-", "sk-ant-", "xoxb-", "xoxb-a", "xoxe.", "ghp_", "ghs_.", ".ghs_", "github_pat_", "glpat-.", "npm_", "hch-"),
    *("AKIA", "AKIA0123456789ABCDE", "AIza", "aB3/", "aws_secret_key=", "secret_access_key: AAAA"),
    *(
        "A_KEY=",
        "A_KEY:",
        "A_KEY: a ",
        "A_KEY=$",
        "A_KEY=<",
        'A_KEY="',
        'A_KEY=\\"',
        "A_KEY='",
        "A_KEY=\\",
        'A_KEY="\\\\',
    ),
    *("KEY", "KEY=", "SECRET", "A_SECRET_", "password=", "api_key:", "A_TOKEN=none ", "KEYSECRETTOKEN_PASSWORD"),
    *(
        "https://a:",
        "https://",
        "://a:",
        "://:{",
        "://a:<",
        "://a:b@",
        "Authorization: Bearer ",
        "bearer a.",
        "bearer ......",
    ),
    *(
        "[REDACTED:",
        "A_KEY=[REDACTED:a]",
        "www.",
        "a@b",
        "`a` ",
        "``",
        "`` ",
        "`a``",
        "` `` ",
        "- ",
        "~~",
        "__",
        "a_",
        "))",
    ),
]
# So that no pre-check spares the text the search for any kind of secret.
EVERY_HINT = "xox sk- eyj akia secret token key hf_ gh" + "p_ :// @ bearer " + DASHES + "BEGIN "


@pytest.mark.parametrize("unit", REPEATED, ids=ascii)
def test_64_kib_of_anything_repeated_is_screened_at_once(unit: str) -> None:
    rest = f"\n!{EVERY_HINT}"  # behind it, so that the pre-checks have to read all of it, too
    text = (unit * (SIZE // len(unit) + 1))[: SIZE - len(rest)] + rest
    for step in (screen, for_terminal, markdown_escape):  # a screening redacts
        with within(SLOW_S, step.__name__):
            step(text)


# --- 11: a secret split by what nobody sees -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark",
    [
        *("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u061c", "\u180e", "\u202e", "\u2066"),
        *("\U000e0041", "\U000e007f", "\ufe0f", "\U000e0100", "\x00", "\x1b", "\x9b", "\x7f", "\r", "\ufff9", "\ud800"),
        *("\ufffe", "\ufdd0", "\U0010ffff", "\u3164", "\x1b[31m", "\x1b[01;31m\x1b[K", "\x1b[m", "\u200b\u200b\u202a"),
    ],
    ids=ascii,
)
def test_a_secret_split_by_a_hidden_mark_is_found(mark: str) -> None:
    for split in (mark.join(TOKEN), TOKEN[:2] + mark + TOKEN[2:], TOKEN[:20] + mark + TOKEN[20:]):
        assert screen(split).secrets == ("github-classic",)
        assert screen(f"see {split}.").text == "see [REDACTED:github-classic]."
        assert TOKEN[4:12] not in screen(split).text


def test_a_screened_text_never_repeats_the_secret() -> None:
    screened = screen(f"a {TOKEN}\nDB_PASSWORD=hunter2")
    assert "hunter2" not in repr(screened)
    assert TOKEN not in repr(screened)


# --- 12: every code point -------------------------------------------------------------------------------------------

HIDDEN = sorted(
    {
        *(code for code in range(0x20) if code not in {0x09, 0x0A}),
        *range(0x7F, 0xA0),
        *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
        *range(0xFFF0, 0xFFFC),
        *range(0xD800, 0xE000),
        *range(0xFDD0, 0xFDF0),
        *(plane << 16 | last for plane in range(17) for last in (0xFFFE, 0xFFFF)),
        *range(0x1BCA0, 0x1BCA4),
        *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE1000),
    }
)


def test_every_hidden_code_point_goes() -> None:
    left = [hex(code) for code in HIDDEN if strip_controls(f"a{chr(code)}b") != "ab"]
    assert left == []


def test_every_hidden_code_point_is_shown_on_a_terminal() -> None:
    for code in HIDDEN:
        shown = for_terminal(f"a{chr(code)}b")
        assert chr(code) not in shown
        assert re.fullmatch(r"a\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})b", shown)


def test_line_separators_become_line_ends() -> None:
    assert strip_controls("a\u2028b\u2029c") == "a\nb\nc"


def test_every_other_letter_mark_number_and_sign_stays() -> None:
    hidden = set(HIDDEN)
    for code in range(0x110000):
        if code not in hidden and unicodedata.category(chr(code))[0] in "LMNPSZ" and code not in {0x2028, 0x2029}:
            assert strip_controls(chr(code)) == chr(code), hex(code)


@given(st.text(alphabet=st.characters() | st.sampled_from([chr(code) for code in HIDDEN if code < 0x10000])))
@settings(max_examples=100, deadline=None)
def test_no_format_character_hides_a_direction(text: str) -> None:
    screened = screen(text).text
    assert not any(unicodedata.bidirectional(letter) in {"LRE", "RLE", "LRO", "RLO", "PDF"} for letter in screened)
    assert not any(unicodedata.bidirectional(letter) in {"LRI", "RLI", "FSI", "PDI"} for letter in screened)
    assert not any(unicodedata.category(letter) in {"Cc", "Cs"} and letter not in "\n\t" for letter in screened)


# --- 13: terminal escapes -------------------------------------------------------------------------------------------

ESCAPES = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31mred",
    "\x1bP1$tx\x1b\\",
    "over\rwritten",
    "back\x08\x08\x08space",
    "\udc9b31m",  # a byte 0x9b that was read with surrogateescape, and would be written as that byte again
    "remote: \x1b[2J\x1b[H",
]


@pytest.mark.parametrize("text", ESCAPES, ids=ascii)
def test_no_escape_reaches_the_terminal(text: str) -> None:
    for shown in (for_terminal(text), screen(text).text, markdown_escape(text)):
        raw = shown.encode("utf-8", "surrogateescape")
        assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", raw)
        assert not re.search("[\x7f-\x9f\ud800-\udfff]", shown)


def test_an_escape_is_shown_for_what_it_is() -> None:
    assert for_terminal("\x1b[31mred\n\tend\x9b") == "\\x1b[31mred\n\tend\\x9b"
    assert for_terminal("a\u202eb\U000e0041") == "a\\u202eb\\U000e0041"


# --- 14: Markdown and HTML ------------------------------------------------------------------------------------------

BREAK_OUTS = [
    "```\ncode\n```",
    "~~~\ncode",
    "``` js",
    "# heading",
    "###### six",
    "#",
    "title\n===",
    "title\n---",
    "---\ntitle: x\n---",
    "+++\ntitle = 1\n+++",
    *("---", "***", "___", "- - -", "===", "+++", "* * *", ":--", "::", "-", "+", "*", "1.", "1)"),
    *(
        "- item",
        "+ item",
        "* item",
        "1. item",
        "12) item",
        "- [ ] task",
        "> quote",
        ">quote",
        "    indented",
        "\tindented",
    ),
    *(
        "<b>x</b>",
        "<script>alert(1)</script>",
        "<!-- c -->",
        "<img src=x onerror=y>",
        "<https://x.y>",
        "<a@b.c>",
        "<?x?>",
    ),
    *("&lt;b&gt;", "&#60;b>", "&copy;", "&amp;lt;"),
    *("![i](x.png)", "[l](x)", "[l][r]", "[r]: https://x.y", "[^1]", "[^1]: foot", "[x](javascript:alert(1))", "a](b)"),
    *(
        "*em*",
        "**strong**",
        "_em_",
        "__strong__",
        "***both***",
        "a*b*c",
        "(_em_)",
        "~~gone~~",
        "~gone~",
        "~/a x`y`~/b~",
    ),
    *("a | b", "| a | b |", "|---|---|", "`a|b` | c", "a\n|-|"),
    *(
        "https://x.y",
        "see http://x.y/z?a=b_c_d.",
        "www.x.y",
        "WWW.X.Y",
        "HTTPS://X.Y",
        "ftp://x.y",
        "a@b.co",
        "mailto:a@b.co",
    ),
    *("xmpp:a@b.co", "(https://x.y)", "_https://x.y_", "*www.x.y*", "`a`https://x.y", "https://x.y`a`", "`https://x.y"),
    *("https://x.y|www.x.y", "git@github.com:o/r.git", "@scope/pkg@1.2.3", "https://x.y`", "``https://x.y` <b>"),
    *(
        "`code`",
        "``co`de``",
        "`",
        "``",
        "`a``b`",
        "\\`a`",
        "\\",
        "\\\\",
        "a\\",
        "`\\`",
        "`a` `b",
        "``` `a` ```",
        "` `",
        "`a\nb`",
    ),
    *("\\*a\\*", "\\<b>", "\\[a](b)", "`<b>`", "`a`<b>`c`", "x `` <b> ` </b>", "hard  \nbreak", "hard\\\nbreak"),
]
INERT = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "code_inline", "softbreak"}


def _kinds_of_tokens(page: str) -> set[str]:
    markdown_it = pytest.importorskip("markdown_it")
    try:
        import linkify_it  # noqa: F401

        parser = markdown_it.MarkdownIt("gfm-like")
        parser.linkify.set({"fuzzy_link": False})  # GitHub links no bare name.py; markdown-it would
    except ImportError:
        parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found: set[str] = set()
    for token in parser.parse(page):
        found |= {token.type, *(child.type for child in token.children or ())}
    return found


def _words_of_page(page: str) -> str:
    """Return what a reader sees of it, without white space."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    inline = "".join(child.content for token in parser.parse(page) for child in token.children or ())
    return "".join(inline.split())


_PIPE_IN_CODE = re.compile(r"`[^`]*(?<!\\)\|[^`]*`")


def _assert_inert(text: str) -> None:
    line = markdown_escape(text)
    assert len(line.splitlines()) <= 1, ascii(text)
    assert _kinds_of_tokens(line) <= INERT, line
    assert _kinds_of_tokens(f"para\n{line}\npara") <= INERT, line
    listed = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}
    assert _kinds_of_tokens(f"- {line}\n- {line}\n") <= INERT | listed, line
    cells = _kinds_of_tokens(f"| a | b |\n|---|---|\n| {line} | z |\n")
    assert not cells & {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open"}, line
    if line and not _PIPE_IN_CODE.search(line):  # what has one goes into paragraphs and lists alone
        assert _cells(f"| a | b |\n|---|---|\n| {line} | z |\n") == 4, line
    if line:
        assert _kinds_of_tokens(f"# {line}\n") <= INERT | {"heading_open", "heading_close"}, line


def _cells(page: str) -> int:
    from markdown_it import MarkdownIt

    rows = MarkdownIt("commonmark").enable("table").parse(page)
    assert rows[-1].type == "table_close"
    last = [token.content for token in rows if token.type == "inline"]
    assert last[-1] == "z"  # else a pipe in the lesson moved the cells behind it
    return len(last)


def test_nothing_in_an_escaped_line_is_markdown() -> None:
    for text in BREAK_OUTS:
        _assert_inert(text)


def test_a_reader_still_sees_every_word() -> None:
    pytest.importorskip("markdown_it")
    without_marks = re.compile(r"[`\s]")  # code spans take their backticks with them
    for text in BREAK_OUTS:
        seen = without_marks.sub("", _words_of_page(markdown_escape(text)))
        assert seen == without_marks.sub("", text), ascii(text)


MARKUP = st.lists(
    st.sampled_from(
        [
            *BREAK_OUTS,
            *"`*_~[]()<>|#&-+=:!\\. \na1",
            "://",
            "www.",
            "@b.c",
            "http",
            "&lt;",
            "**",
            "__",
            "``",
            "~~",
            "](",
            "<a>",
        ]
    ),
    max_size=10,
).map("".join)


@given(MARKUP)
@settings(max_examples=100, deadline=None)
def test_no_mixture_of_marks_becomes_markdown(text: str) -> None:
    _assert_inert(text)


# --- the big list of naughty strings --------------------------------------------------------------------------------


def test_naughty_strings_are_harmless_on_every_way() -> None:
    for text in _naughty():
        screened = screen(text)
        assert screen(screened.text) == type(screened)(screened.text, ())
        assert for_terminal(for_terminal(text)) == for_terminal(text)
        _assert_inert(text)
        for out in (screened.text, for_terminal(text), markdown_escape(text)):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
