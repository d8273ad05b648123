"""Outline of a Markdown page: its sections, and in each the paragraphs, list items and tables, with their lines.

Enough of CommonMark to tell what belongs to what in pages that people and tools write by hand: an item with the lines
that go on with it and the items below it; a paragraph; a table with its header; code as a part of what stands before.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from fleet.text import markdown

Kind = Literal["paragraph", "item", "table", "quote"]


class Block:
    """A piece of a section.

    Attributes:
        kind: paragraph, item of a list, table or quotation.
        line: on which it begins, from 1.
        end: on which it ends; an item ends where the last one below it does.
        lines: its text, line by line, without marks of lists and quotations; of a table the rows.
        items: the items below an item, or the list that follows a line which ends with a colon.
        is_task: an item with a box to tick.
    """

    def __init__(self, kind: Kind, line: int, text: str, *, indent: int = 0, is_task: bool = False) -> None:
        self.kind, self.line, self.end = kind, line, line
        self.lines = [text]
        self.chars = len(text)
        self.items: list[Block] = []
        self.indent, self.is_task = indent, is_task

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
        end: line of the last thing in it.
        blocks: what stands under the heading itself.
        sections: those below it.
        above: the one that it stands in.
    """

    def __init__(self, level: int, title: str, line: int, above: "Section | None") -> None:
        self.level, self.title, self.line, self.end, self.above = level, title, line, line, above
        self.blocks: list[Block] = []
        self.sections: list[Section] = []

    def walk(self) -> "Iterator[Section]":
        """Yield this section and all below it, in order."""
        yield self
        for each in self.sections:
            yield from each.walk()


class Outline(NamedTuple):
    """A page: what its front matter says, and its sections."""

    front: dict[str, str]
    page: Section


_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<text>.*?))?(?:[ \t]+#+)?[ \t]*")
_ITEM = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•▪◦–]|\(?\d{1,3}[.)])[ \t]+(?P<task>\[[ xX]\][ \t]+)?(?P<text>\S.*)")
_SIGN = re.compile(r"(?P<indent>[ \t]*)(?P<task>)(?P<text>(?:❌|✅|🚫|⛔|✗|✔|SUPERSEDES:?\s).*)")
_TABLE_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*")
_RULE = re.compile(r" {0,3}(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}")
_FRONT_FIELD = re.compile(r"(?P<name>[A-Za-z_][\w-]{0,40}):[ \t]*(?P<value>.*)")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_DATED_LINE = re.compile(r"\W{0,4}\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b")
_LABELLED_LINE = re.compile(r"\s{0,3}(?:[^\w\s*]{1,3}\s*)?\*\*[^*\n]{1,40}?(?::\*\*|：\*\*|\*\*\s?[:：])")
_FRONT_LINES_MAX = 60
DEPTH_MAX = 8
"""Items stand in each other no deeper than this."""
BLOCK_CHARS_MAX = 8_192
"""What is longer than this is no text that anybody wrote as one: it is cut, and a longer line left out."""


def outline(text: str) -> Outline:
    """Return the outline of a page. Never raises; linear in its size."""
    front, skipped = _front_matter(text)
    page = Section(0, "", 0, None)
    reader = _Reader(page)
    for row in markdown.rows(text):
        if row.number > skipped:
            reader.take(row)
    return Outline(front, page)


def _front_matter(text: str) -> tuple[dict[str, str], int]:
    """Return what stands between two lines ``---`` at the very start, and on which line that ends."""
    lines = text.split("\n", _FRONT_LINES_MAX)[:_FRONT_LINES_MAX]
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    found: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() in ("---", "..."):
            return found, number
        if field := _FRONT_FIELD.fullmatch(line.rstrip()):
            found[field["name"].casefold()] = field["value"].strip().strip("\"'")
        elif line.strip() and not line.startswith((" ", "\t", "-", "#")):
            return {}, 0
    return {}, 0


class _Reader:
    """The outline while it is being read."""

    def __init__(self, page: Section) -> None:
        self._section = page
        self._block: Block | None = None  # that the next line may go on with
        self._stack: list[Block] = []  # items that stand open, the innermost last
        self._is_after_blank = False
        self._is_code = False

    def take(self, row: markdown.Row) -> None:
        line = row.text
        if row.kind == "comment" or len(line) > BLOCK_CHARS_MAX // 2:
            return
        if row.kind == "literal" or self._is_code or _FENCE.match(line):
            if row.kind != "literal" and _FENCE.match(line):
                self._is_code = not self._is_code
            self._extend_to(row.number)
            return
        if not line.strip():
            self._is_after_blank = True
            return
        if heading := _HEADING.fullmatch(line):
            self._open_section(len(heading["level"]), _unmarked(heading["text"] or ""), row.number)
        elif _RULE.fullmatch(line):
            self._close()
        elif item := _ITEM.fullmatch(line) or _SIGN.fullmatch(line):
            self._open_item(item, row.number)
        elif _TABLE_ROW.fullmatch(line):
            self._table_row(line, row.number)
        else:
            self._text(line, row.number)
        self._is_after_blank = False

    def _close(self) -> None:
        self._block, self._stack = None, []

    def _extend_to(self, number: int) -> None:
        for block in (*self._stack, *([self._block] if self._block else [])):
            block.end = number
        section: Section | None = self._section
        while section is not None:
            section.end, section = number, section.above

    def _open_section(self, level: int, title: str, number: int) -> None:
        self._close()
        above = self._section
        while above.level >= level and above.above is not None:
            above = above.above
        self._section = Section(level, title, number, above)
        above.sections.append(self._section)
        self._extend_to(number)

    def _add(self, block: Block) -> None:
        self._section.blocks.append(block)
        self._block = block
        self._extend_to(block.end)

    def _open_item(self, found: re.Match[str], number: int) -> None:
        indent = len(found["indent"].expandtabs(4))
        block = Block("item", number, found["text"], indent=indent, is_task=bool(found["task"]))
        while self._stack and (self._stack[-1].indent >= indent or len(self._stack) >= DEPTH_MAX):
            self._stack.pop()
        if self._stack:
            self._stack[-1].items.append(block)
            self._block = block
        else:
            self._section.blocks.append(block)
            self._block = block
        self._stack.append(block)
        self._extend_to(number)

    def _table_row(self, line: str, number: int) -> None:
        self._stack = []
        if self._block is not None and self._block.kind == "table" and not self._is_after_blank:
            self._go_on(self._block, line, number)
        else:
            self._add(Block("table", number, line))

    def _text(self, line: str, number: int) -> None:
        indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        is_quote = line.lstrip().startswith(">")
        text = re.sub(r"^(?:\s*>\s?)+", "", line) if is_quote else line
        if not text.strip():
            self._is_after_blank = True
            return
        if self._stack and not is_quote and (not self._is_after_blank or indent > self._stack[-1].indent):
            if self._is_after_blank:
                while len(self._stack) > 1 and self._stack[-1].indent >= indent:
                    self._stack.pop()
            self._go_on(self._stack[-1], text.strip(), number)
            return
        if self._stack:
            self._close()
        kind: Kind = "quote" if is_quote else "paragraph"
        if self._block is None or self._is_after_blank or self._block.kind != kind or self._begins_anew(text):
            self._add(Block(kind, number, text))
        else:
            self._go_on(self._block, text, number)

    def _go_on(self, block: Block, text: str, number: int) -> None:
        block.chars += len(text)
        if block.chars <= BLOCK_CHARS_MAX:
            block.lines.append(text)
        self._extend_to(number)

    def _begins_anew(self, text: str) -> bool:
        """Tell whether a line of a paragraph is an entry of its own: it has a date or a label, as the one before."""
        return _DATED_LINE.match(text) is not None or _LABELLED_LINE.match(text) is not None


def _unmarked(title: str) -> str:
    """Return a heading without the marks around all of it."""
    text = title.strip()
    for mark in ("***", "**", "__", "*", "_"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and mark not in text[2:-2]:
            return text[len(mark) : -len(mark)].strip()
    return text
