"""Outline of a Markdown page: its sections, and in each the paragraphs, list items and tables, with their lines.

CommonMark with tables, read by markdown-it. Besides, as people and tools write by hand: a line of a paragraph that has
a date, a label, a sign or a bullet of another kind begins a block of its own.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal

from fleet.text import markdown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Kind = Literal["paragraph", "item", "table", "quote"]


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

    def __init__(self, kind: Kind, line: int, *lines: str) -> None:
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
"""Limit of a text that somebody wrote as one: a longer one is cut, and a line of half of it left out."""
_FRONT = re.compile(r"---[ \t]*\n(?:(?:[A-Za-z_][\w-]{0,40}:.*|[ \t#-].*|[ \t]*)\n){0,60}?(?:---|\.\.\.)[ \t]*(?:\n|$)")
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: .*)?|={7}")
_ITEM = re.compile(
    r"[ \t]*(?:(?:[•▪◦–]|\(?\d{1,3}[.)])[ \t]+(?=\S)|(?=(?:❌|✅|🚫|⛔|✗|✔|SUPERSEDES:?\s)))(?P<text>.*)"
)
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_DATED_LINE = re.compile(r"\W{0,4}\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b")
_LABELLED_LINE = re.compile(r"\s{0,3}(?:[^\w\s*]{1,3}\s*)?\*\*[^*\n]{1,40}?(?::\*\*|：\*\*|\*\*\s?[:：])")


def outline(text: str) -> Section:
    """Return the sections of a page. Never raises; linear in its size."""
    front = _FRONT.match(text)
    lines = text.split("\n")
    for at in range(text.count("\n", 0, front.end()) if front else 0):
        lines[at] = ""
    # A line keeps its number where nothing of it is read; a fence that never closes hides no more than itself.
    lines = ["" if len(each) > BLOCK_CHARS_MAX // 2 or _CONFLICT.fullmatch(each.rstrip()) else each for each in lines]
    for at in markdown.open_fences(lines):
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
        if not item.lines and (task := _TASK.match(lines[0])):
            item.is_task, lines = True, [lines[0][task.end() :], *lines[1:]]
        for at, each in enumerate(lines, line):
            if (found := _ITEM.fullmatch(each)) and item.lines:
                item.items.append(Block("item", at, found["text"]))
            elif item.items and item.items[-1].line == at - 1:
                item.items[-1].lines.append(each)
            else:
                item.lines.append(each)
        self._extend_to(line + len(lines) - 1)

    def _paragraph(self, kind: Kind, lines: list[str], line: int) -> None:
        block: Block | None = None
        for at, each in enumerate(lines, line):
            if kind == "paragraph" and (found := _ITEM.fullmatch(each)):
                block = Block("item", at, found["text"])
                self._add(block)
            elif block is None or _DATED_LINE.match(each) or _LABELLED_LINE.match(each):
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
