"""Parser of Markdown pages that people, tools and git have all written into: as rows, as a page, and as an outline.

Rows are lines with their comments, for pages in fleet's own format. Three decisions: which lines stand in a code fence
and mean nothing, what is an HTML comment, and which lines git left behind. Each broken form (a fence or a comment that
never closes, half a conflict) costs its own line and no other. Linear in the size of the page. A ``Page`` is the rows,
the parts that their headings begin, and what the text becomes when lines come or go: every other line stays as it is.

The outline of any other page is its sections, and in each the paragraphs, list items and tables, with their lines:
CommonMark with tables, read by markdown-it. Besides, as people and tools write by hand: a line of a paragraph that has
a date, a label, a sign or a bullet of another kind begins a block of its own.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# --- rows -----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A line of a page as a reader sees it.

    Attributes:
        number: of the line, from 1.
        text: what stands outside comments; "" on a line that holds comments alone.
        comments: the insides of the comments that end on this line.
        is_code: it is a line of a code fence.
    """

    number: int
    text: str
    comments: tuple[str, ...] = ()
    is_code: bool = False

    @property
    def is_said(self) -> bool:
        """True for a line that is more than its comments: a blank one is content, too."""
        return bool(self.text) or not self.comments


_FENCE = r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>.*)"
_PIECE = re.compile(
    r"(?P<run>`{1,8})(?!`).*?(?<!`)(?P=run)(?!`)|`+|"
    r"<!--(?P<inside>[^<-]*(?:(?!<!--|-->)[<-][^<-]*)*)(?P<end>-->)?"
)
"""A code span, a run of backticks that opens none, or a comment, or what is there of one."""
_COMMENT_EDGE = r"<!--|-->"
_RECORD_START = r"\s*fleet\s"
_CONFLICT_STARTS = frozenset({"<<<<<<<", ">>>>>>>", "|||||||", "======="})
_CONFLICT = r"(?:<{7}|>{7}|\|{7})(?: .*)?|={7}"
# A comment torn within its very mark would otherwise become the last word of a pattern, and so another pattern.
_TORN_COMMENTS = frozenset({"<", "<!", "<!-"})
_OPENING, _OPENING_ESCAPED = re.compile(r"<(\\*)!--"), re.compile(r"<\\(\\*)!--")
_CLOSING, _CLOSING_ESCAPED = re.compile(r"--(\\*)>"), re.compile(r"--\\(\\*)>")


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of a page in order, without conflict markers and without what comments hide."""
    lines = text.replace("\r\n", "\n").split("\n")
    fences = _closed_fences(lines)
    at = 0
    while at < len(lines):
        line = lines[at]
        if at in fences:
            for number in range(at, fences[at] + 1):
                if not _is_conflict_marker(lines[number]):
                    yield Row(number + 1, lines[number], is_code=True)
            at = fences[at] + 1
        elif "<!--" in line:
            at = yield from _beside_comments(lines, at)
        else:
            if line not in _TORN_COMMENTS and not _is_conflict_marker(line):
                yield Row(at + 1, _unescape(line) if "\\" in line else line)
            at += 1


def _is_conflict_marker(line: str) -> bool:
    """Tell whether git wrote this line between two sides of a conflict."""
    return line[:7] in _CONFLICT_STARTS and re.fullmatch(_CONFLICT, line.rstrip()) is not None


def escape(text: str) -> str:
    r"""Defuse comment marks with Markdown's own backslash, ``<\!--`` and ``--\>``. One that is there gets another."""
    return _CLOSING.sub(r"--\\\1>", _OPENING.sub(r"<\\\1!--", text))


def _unescape(text: str) -> str:
    """Undo ``escape``."""
    return _CLOSING_ESCAPED.sub(r"--\1>", _OPENING_ESCAPED.sub(r"<\1!--", text))


def _closed_fences(lines: list[str]) -> dict[int, int]:
    """Return where each code fence opens and closes.

    A fence whose next mark of its kind opens another was never closed: were it paired with a later one all the same,
    one torn entry would hide those that follow it.
    """
    marks = [(at, found) for at, line in enumerate(lines) if (found := _fence_mark(line))]
    following = _next_as_long([(found["mark"][0], len(found["mark"])) for _, found in marks])
    fences: dict[int, int] = {}
    number = 0
    while number < len(marks):
        other = following[number]
        if other is None or marks[other][1]["info"].strip():
            number += 1
        else:
            fences[marks[number][0]] = marks[other][0]
            number = other + 1
    return fences


def _open_fences(lines: list[str]) -> set[int]:
    """Return which lines, from 0, open a code fence that never closes."""
    inside = {at for first, last in _closed_fences(lines).items() for at in range(first, last + 1)}
    return {at for at, line in enumerate(lines) if at not in inside and _fence_mark(line)}


def _fence_mark(line: str) -> re.Match[str] | None:
    if "```" not in line and "~~~" not in line:
        return None
    found = re.fullmatch(_FENCE, line)
    # ```x``` on one line is a code span.
    return None if found is None or (found["mark"][0] == "`" and "`" in found["info"]) else found


def _next_as_long(marks: list[tuple[str, int]]) -> list[int | None]:
    """Return for each (character, length) the next of that character and at least that length; one pass, by stacks."""
    following: list[int | None] = [None] * len(marks)
    waiting: dict[str, list[int]] = {"`": [], "~": []}
    for number in range(len(marks) - 1, -1, -1):
        character, length = marks[number]
        stack = waiting[character]
        while stack and marks[stack[-1]][1] < length:
            stack.pop()
        following[number] = stack[-1] if stack else None
        stack.append(number)
    return following


def _beside_comments(lines: list[str], at: int) -> Generator[Row, None, int]:
    """Yield what a line holds beside its comments, and its comments. Return the line to go on with."""
    start = 0
    while True:
        line = lines[at]
        kept, comments, opened = _split_comments(line, start)
        end = None if opened is None else _end_of_comment(lines, at, opened)
        if opened is not None and end is None and not _is_torn(line, opened, _indent(line)):
            kept += line[opened:]
        if kept.strip() or comments:
            yield Row(at + 1, _unescape(kept) if kept.strip() else "", tuple(comments))
        if end is None:
            return at + 1
        at, start = end


def _split_comments(line: str, start: int) -> tuple[str, list[str], int | None]:
    """Return what stands outside comments, the comments that close on this line, and where one opens that does not."""
    kept: list[str] = []
    comments: list[str] = []
    copied, indent = start, _indent(line)
    for found in _PIECE.finditer(line, start):
        if found["inside"] is None:
            continue  # what stands in a code span is about comments, and none itself
        kept.append(line[copied : found.start()])
        copied = found.end()
        if found["end"]:
            comments.append(found["inside"])
        elif copied == len(line):
            return "".join(kept), comments, found.start()
        elif not _is_torn(line, found.start(), indent):
            kept.append(found[0])
    return "".join(kept) + line[copied:], comments, None


def _end_of_comment(lines: list[str], at: int, opened: int) -> tuple[int, int] | None:
    """Return line and column behind a comment that goes on over the line's end; None when it is broken.

    Broken: another one opens first, or the page ends. A record stands on one line, and a comment inside a paragraph
    ends with it, so that neither can hide the entries that follow.
    """
    if re.compile(_RECORD_START).match(lines[at], opened + 4):
        return None
    is_own_line = opened <= _indent(lines[at])
    for later in range(at + 1, len(lines)):
        if edge := re.search(_COMMENT_EDGE, lines[later]):
            return (later, edge.end()) if edge[0] == "-->" else None
        if not is_own_line and not lines[later].strip():
            return None
    return None


def _is_torn(line: str, opened: int, indent: int) -> bool:
    """Tell a comment that was cut off, which is no content, from a sentence that mentions its opening mark."""
    return opened <= indent or re.compile(_RECORD_START).match(line, opened + 4) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- the page -------------------------------------------------------------------------------------------------------

HEADING = r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*"
"""A heading's marks, and its title."""


class Part(NamedTuple):
    """A part of a page: its title and level, the number of its heading line, and where its lines begin and end."""

    title: str
    level: int
    heading: int
    end: int


class Page(NamedTuple):
    """A page of Markdown, taken apart.

    Attributes:
        sections: of the levels up to ``level_max``, in their order.
    """

    lines: list[str]
    rows: list[Row]
    sections: list[Part]
    eol: str = "\n"
    level_max: int = 2

    @classmethod
    def parse(cls, text: str, level_max: int = 2) -> "Page":
        """Return a page, taken apart: headings in code and in comments are none."""
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # no other sign ends a line, for rows neither
        found = list(rows(text))
        heads = [
            (row.number - 1, len(match[1]), match[2])
            for row in found
            if not row.is_code and (match := re.fullmatch(HEADING, row.text.rstrip())) and len(match[1]) <= level_max
        ]
        sections = []
        for at, (number, level, title) in enumerate(heads):
            end = next((later for later, other, _ in heads[at + 1 :] if other <= level or other <= 2), len(lines))
            sections.append(Part(title, level, number, end))
        return cls(lines, found, sections, "\r\n" if text.partition("\n")[0].endswith("\r") else "\n", level_max)

    def inside(self, section: Part) -> list[Row]:
        """Return the rows of a section, without its heading."""
        first, end = (
            bisect_right(self.rows, at, key=lambda row: row.number) for at in (section.heading + 1, section.end)
        )
        return self.rows[first:end]

    def named(self, title: str) -> list[Part]:
        """Return the sections of this title; a page may have several."""
        return [each for each in self.sections if _key(each.title) == _key(title)]

    def with_section(self, title: str, before: Iterable[str] = ()) -> "Page":
        """Return the page with a section of this title, which it gets before the first of others, else at its end."""
        if self.named(title):
            return self
        at = min((section.heading for name in before for section in self.named(name)), default=len(self.lines))
        gap = [""] if at and self.lines[at - 1].strip() else []
        made = [*gap, f"## {title}", "", *([""] if at < len(self.lines) else [])]
        return Page.parse(self.with_lines(at, made), self.level_max)

    @staticmethod
    def cells(line: str) -> list[str]:
        """Return the cells of a table's row, or of ``a | b``; a bar in code, or behind a backslash, parts nothing."""
        text = re.sub(r"^\||(?<!\\)\|$", "", line.strip())
        hidden = re.sub(r"`[^`]*`|\\\|", lambda found: "x" * len(found[0]), text)
        cuts = [-1, *(at for at, one in enumerate(hidden) if one == "|"), len(text)]
        return [text[start + 1 : end].replace("\\|", "|").strip() for start, end in pairwise(cuts)]

    def content_end(self, section: Part) -> int:
        """Return the line behind the last one of a section that is not blank."""
        at = section.end
        while at > section.heading + 1 and not self.lines[at - 1].strip():
            at -= 1
        return at

    def with_lines(self, at: int, made: Iterable[str]) -> str:
        """Return the text with more lines before a line, given without their ends."""
        above = self.lines[:at]
        if above and not above[-1].endswith("\n"):
            above[-1] += self.eol
        return "".join([*above, *(f"{each}{self.eol}" for each in made), *self.lines[at:]])

    def without(self, gone: Collection[int]) -> str:
        """Return the text without some lines, by their place."""
        return "".join(each for at, each in enumerate(self.lines) if at not in gone)

    def inserted(self, section: Part, made: Sequence[str], end: int = 0) -> str:
        """Return the text with more lines behind the content of a section, or of its part up to ``end``."""
        at = self.content_end(section._replace(end=end or section.end))
        is_bare = at == section.heading + 1
        at += is_bare and at < section.end and not self.lines[at].strip()  # behind the blank line under its heading
        gap = [""] if is_bare and at == section.heading + 1 else []
        tail = [""] if at < len(self.lines) and self.lines[at].lstrip().startswith("#") else []
        return self.with_lines(at, [*gap, *made, *tail])


def _key(title: str) -> str:
    said = re.sub(r"[^a-z0-9]+", " ", title.casefold()).strip()
    return said.removesuffix(" auto").removesuffix("s")


# --- the outline ----------------------------------------------------------------------------------------------------

BlockKind = Literal["paragraph", "item", "table", "quote"]


class Block:
    """A piece of a section.

    Attributes:
        kind: paragraph, item of a list, table or quotation.
        line: on which it begins, from 1.
        end: on which it ends; an item ends where the last one below it does.
        lines: its text, line by line, without marks of lists and quotations; of a table the rows.
        items: the items below an item.
        is_task: an item with a box to tick.
    """

    def __init__(self, kind: BlockKind, line: int, *lines: str) -> None:
        self.kind, self.line, self.end = kind, line, line + max(0, len(lines) - 1)
        self.lines = list(lines)
        self.items: list[Block] = []
        self.is_task = False

    @property
    def text(self) -> str:
        """Return its text on one line."""
        return " ".join(" ".join(line.split()) for line in self.lines if line.strip())


class Section:
    """A heading and what stands under it, up to the next one of its level.

    Attributes:
        level: 1 to 6; 0 is the page itself.
        title: of the heading, without marks.
        line: of the heading; 0 for the page.
        end: line of the last thing under the heading itself.
        blocks: what stands under the heading itself.
        sections: those below it.
    """

    def __init__(self, level: int, title: str, line: int) -> None:
        self.level, self.title, self.line, self.end = level, title, line, line
        self.blocks: list[Block] = []
        self.sections: list[Section] = []

    def walk(self) -> "Iterator[Section]":
        """Yield this section and all below it, in order."""
        yield self
        for each in self.sections:
            yield from each.walk()


BLOCK_CHARS_MAX = 8_192
"""What is longer than this is no text that anybody wrote as one: it is cut, and a line of half of it left out."""
# Texts are compiled by `re` when one is used first, and kept: few processes need any.
_FRONT = r"---[ \t]*\n(?:(?:[A-Za-z_][\w-]{0,40}:.*|[ \t#-].*|[ \t]*)\n){0,60}?(?:---|\.\.\.)[ \t]*(?:\n|$)"
_ITEM = r"[ \t]*(?:(?:[•▪◦–]|\(?\d{1,3}[.)])[ \t]+(?=\S)|(?=(?:❌|✅|🚫|⛔|✗|✔|SUPERSEDES:?\s)))(?P<text>.*)"
_TASK = r"\[[ xX]\][ \t]+"
_DATED_LINE = r"\W{0,4}\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b"
_LABELLED_LINE = r"\s{0,3}(?:[^\w\s*]{1,3}\s*)?\*\*[^*\n]{1,40}?(?::\*\*|：\*\*|\*\*\s?[:：])"


def outline(text: str) -> Section:
    """Return the sections of a page. Never raises; linear in its size."""
    front = re.match(_FRONT, text)
    lines = text.split("\n")
    for at in range(text.count("\n", 0, front.end()) if front else 0):
        lines[at] = ""
    # A line keeps its number where nothing of it is read; a fence that never closes hides no more than itself.
    lines = ["" if len(each) > BLOCK_CHARS_MAX // 2 or _is_conflict_marker(each) else each for each in lines]
    for at in _open_fences(lines):
        lines[at] = ""
    page = Section(0, "", 0)
    reader = _Reader(page, lines)
    for token in _parser().parse("\n".join(lines)):
        reader.take(token)
    return page


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # 20 ms, which only a page costs

    # What is indented is text of somebody who indents, and a line of dashes below a text no heading of it.
    unwanted = ["code", "lheading", "reference", "inline", "text_join"]
    return MarkdownIt("commonmark").enable("table").disable(unwanted)


class _Reader:
    """The outline while it is being read."""

    def __init__(self, page: Section, lines: list[str]) -> None:
        self._sections, self._lines = [page], lines  # that stand open, the innermost last
        self._items: list[Block] = []  # likewise
        self._quotes = self._level = 0
        self._is_table = False

    def take(self, token: "Token") -> None:
        """Take the next token of the page."""
        first, last = token.map or (0, 0)
        if token.type in ("blockquote_open", "blockquote_close"):
            self._quotes += token.nesting
        elif token.type in ("table_open", "table_close"):
            self._is_table = token.nesting > 0
            if self._is_table:
                self._add(Block("table", first + 1, *self._lines[first:last]))
        elif token.type == "list_item_open" and not self._quotes:
            self._open_item(Block("item", first + 1))
        elif token.type == "list_item_close" and not self._quotes:
            self._items.pop()
        elif token.type in ("heading_open", "heading_close"):
            self._level = int(token.tag[1]) if token.nesting > 0 else 0
        elif token.type == "inline" and not self._is_table:
            self._text(token.content, first + 1)
        elif token.type == "html_block" and not token.content.lstrip().startswith("<!--"):
            self._text(token.content.rstrip("\n"), first + 1)
        elif token.type == "fence":
            self._extend_to(last)

    def _extend_to(self, line: int) -> None:
        for block in (*self._items, *self._sections[-1].blocks[-1:]):
            block.end = line
        self._sections[-1].end = line

    def _add(self, block: Block) -> None:
        self._sections[-1].blocks.append(block)
        self._extend_to(block.end)

    def _open_item(self, block: Block) -> None:
        (self._items[-1].items if self._items else self._sections[-1].blocks).append(block)
        self._items.append(block)

    def _text(self, text: str, line: int) -> None:
        lines = text.split("\n") if len(text) <= BLOCK_CHARS_MAX else text[:BLOCK_CHARS_MAX].split("\n")
        if self._items and not self._quotes:
            self._item_text(lines, line)
        elif self._level and not self._quotes:
            self._open_section(_unmarked(text), line)
        else:
            self._paragraph("quote" if self._quotes else "paragraph", lines, line)

    def _open_section(self, title: str, line: int) -> None:
        while self._sections[-1].level >= self._level:
            self._sections.pop()
        section = Section(self._level, title, line)
        self._sections[-1].sections.append(section)
        self._sections.append(section)

    def _item_text(self, lines: list[str], line: int) -> None:
        item = self._items[-1]
        if not item.lines and (task := re.match(_TASK, lines[0])):
            item.is_task, lines = True, [lines[0][task.end() :], *lines[1:]]
        for at, each in enumerate(lines, line):
            if (found := re.fullmatch(_ITEM, each)) and item.lines:
                item.items.append(Block("item", at, found["text"]))
            elif item.items and item.items[-1].line == at - 1:
                item.items[-1].lines.append(each)
            else:
                item.lines.append(each)
        self._extend_to(line + len(lines) - 1)

    def _paragraph(self, kind: BlockKind, lines: list[str], line: int) -> None:
        block: Block | None = None
        for at, each in enumerate(lines, line):
            if kind == "paragraph" and (found := re.fullmatch(_ITEM, each)):
                block = Block("item", at, found["text"])
                self._add(block)
            elif block is None or re.match(_DATED_LINE, each) or re.match(_LABELLED_LINE, each):
                block = Block(kind, at, each)
                self._add(block)
            else:
                block.lines.append(each)
                self._extend_to(at)


def _unmarked(title: str) -> str:
    """Return a heading without the marks around all of it."""
    text = title.strip()
    for mark in ("***", "**", "__", "*", "_"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and mark not in text[2:-2]:
            return text[len(mark) : -len(mark)].strip()
    return text
