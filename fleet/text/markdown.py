"""Parser of Markdown pages that people, tools and git have all written into: as rows, and as a page.

Rows are lines with their comments. Lines of a code fence are literal, HTML comments are separated from the text, and
conflict markers of git are skipped. A broken form (a fence or a comment that never closes, half a conflict) affects
only its own line. Cost is linear. A ``Page`` has the rows and their sections; its text is edited by lines.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

WHEN = (
    r"(?ai:(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)"
    r"(?:(?:T|,?[ \t]{1,8})(?P<hour>\d{1,2}):(?P<minute>\d{2})(?!\d)"
    r"(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:[ \t]{0,8}(?P<zone>Z(?:-[0-9a-f]{4})?|UTC|GMT|[+-]\d{2}:?\d{2})(?!\w))?)?)"
)
"""A date on a page, with or without time and zone. ``Z-0000`` ends a fleet stamp."""

# --- rows -----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Line of a page, counted from 1: its text outside comments, and the comments that end on it.

    ``is_code``: it is a line of a code fence.
    """

    number: int
    text: str
    comments: tuple[str, ...] = ()
    is_code: bool = False

    @property
    def is_content(self) -> bool:
        """True for a line with content: all but lines of comments alone."""
        return bool(self.text) or not self.comments


_FENCE = r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>.*)"
_PIECE = re.compile(
    r"(?P<run>`{1,8})(?!`).*?(?<!`)(?P=run)(?!`)|`+|"
    r"<!--(?P<inside>[^<-]*(?:(?!<!--|-->)[<-][^<-]*)*)(?P<end>-->)?"
)
"""A code span, a run of backticks that opens none, or a comment, complete or not."""
_COMMENT_EDGE = r"<!--|-->"
_RECORD_START = re.compile(r"\s*fleet\s")
_CONFLICT_STARTS = frozenset({"<<<<<<<", ">>>>>>>", "|||||||", "======="})
_CONFLICT = r"(?:<{7}|>{7}|\|{7})(?: .*)?|={7}"
# A comment that is cut off within its opening mark must not become the last word of a lesson, which changes the id.
_TORN_COMMENTS = frozenset({"<", "<!", "<!-"})
_OPENING, _OPENING_ESCAPED = re.compile(r"<(\\*)!--"), re.compile(r"<\\(\\*)!--")
_CLOSING, _CLOSING_ESCAPED = re.compile(r"--(\\*)>"), re.compile(r"--\\(\\*)>")


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of a page in order, without conflict markers."""
    lines = text.replace("\r\n", "\n").split("\n")
    fences = _closed_fences(lines)
    index = 0
    while index < len(lines):
        line = lines[index]
        if index in fences:
            fenced = enumerate(lines[index : fences[index] + 1], index + 1)
            yield from (Row(number, each, is_code=True) for number, each in fenced if not _is_conflict_marker(each))
            index = fences[index] + 1
        elif "<!--" in line:
            index = yield from _beside_comments(lines, index)
        else:
            if line not in _TORN_COMMENTS and not _is_conflict_marker(line):
                yield Row(index + 1, _unescape(line) if "\\" in line else line)
            index += 1


def _is_conflict_marker(line: str) -> bool:
    return line[:7] in _CONFLICT_STARTS and re.fullmatch(_CONFLICT, line.rstrip()) is not None


def escape(text: str) -> str:
    r"""Return a text with escaped comment marks, ``<\!--`` and ``--\>``; escaped ones get another backslash."""
    return _CLOSING.sub(r"--\\\1>", _OPENING.sub(r"<\\\1!--", text))


def _unescape(text: str) -> str:
    return _CLOSING_ESCAPED.sub(r"--\1>", _OPENING_ESCAPED.sub(r"<\1!--", text))


def _closed_fences(lines: list[str]) -> dict[int, int]:
    """Return the first and the last line of each code fence.

    A fence whose next mark of its kind opens another was never closed: if it were paired with a later one, one torn
    entry would hide those that follow it.
    """
    marks = [(index, mark) for index, line in enumerate(lines) if (mark := _fence_mark(line))]
    following = _next_as_long([(mark["mark"][0], len(mark["mark"])) for _, mark in marks])
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


def _fence_mark(line: str) -> re.Match[str] | None:
    if "```" not in line and "~~~" not in line:
        return None
    mark = re.fullmatch(_FENCE, line)
    # ```x``` on one line is a code span.
    return None if mark is None or (mark["mark"][0] == "`" and "`" in mark["info"]) else mark


def _next_as_long(marks: list[tuple[str, int]]) -> list[int | None]:
    """Return for each (character, length) the next of that character and at least that length; one pass, by stacks."""
    following: list[int | None] = [None] * len(marks)
    stacks: dict[str, list[int]] = {"`": [], "~": []}
    for number in range(len(marks) - 1, -1, -1):
        character, length = marks[number]
        stack = stacks[character]
        while stack and marks[stack[-1]][1] < length:
            stack.pop()
        following[number] = stack[-1] if stack else None
        stack.append(number)
    return following


def _beside_comments(lines: list[str], index: int) -> Generator[Row, None, int]:
    """Yield the row of each line up to the end of the last comment. Return the next line."""
    start = 0
    while True:
        line = lines[index]
        text, comments, opened = _split_comments(line, start)
        end = None if opened is None else _end_of_comment(lines, index, opened)
        if opened is not None and end is None and not _is_torn(line, opened, _indent(line)):
            text += line[opened:]
        if text.strip() or comments:
            yield Row(index + 1, _unescape(text) if text.strip() else "", tuple(comments))
        if end is None:
            return index + 1
        index, start = end


def _split_comments(line: str, start: int) -> tuple[str, list[str], int | None]:
    """Return the text outside comments, the comments that end on this line, and the column of one that does not."""
    pieces: list[str] = []
    comments: list[str] = []
    done, indent = start, _indent(line)
    for match in _PIECE.finditer(line, start):
        if match["inside"] is None:
            continue  # a code span
        pieces.append(line[done : match.start()])
        done = match.end()
        if match["end"]:
            comments.append(match["inside"])
        elif done == len(line):
            return "".join(pieces), comments, match.start()
        elif not _is_torn(line, match.start(), indent):
            pieces.append(match[0])
    return "".join(pieces) + line[done:], comments, None


def _end_of_comment(lines: list[str], index: int, opened: int) -> tuple[int, int] | None:
    """Return line and column after a comment of several lines; None if the comment is broken.

    Broken: another one opens first, or the page ends. A record has one line, and a comment inside a paragraph ends with
    it, so that neither can hide the entries that follow.
    """
    if _RECORD_START.match(lines[index], opened + 4):
        return None
    is_own_line = opened <= _indent(lines[index])
    for later in range(index + 1, len(lines)):
        if edge := re.search(_COMMENT_EDGE, lines[later]):
            return (later, edge.end()) if edge[0] == "-->" else None
        if not is_own_line and not lines[later].strip():
            return None
    return None


def _is_torn(line: str, opened: int, indent: int) -> bool:
    """Return whether a comment was cut off, and is no sentence that mentions its opening mark."""
    return opened <= indent or _RECORD_START.match(line, opened + 4) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- the page -------------------------------------------------------------------------------------------------------

HEADING = r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*"
"""A heading's marks, and its title."""
_FRONT = r"---[ \t]*\r?\n(?:(?:[A-Za-z_][\w-]{0,40}[ \t]*:.*|[ \t#-].*|\r?)\n){0,60}?(?:---|\.\.\.)[ \t]*\r?(?:\n|$)"


class Part(NamedTuple):
    """Section of a page: its title and level, and the indexes of its heading line and of the line after it."""

    title: str
    level: int
    heading: int
    end: int


class Page(NamedTuple):
    """Parsed page of Markdown, with its sections of the levels up to ``level_max``."""

    lines: list[str]
    rows: list[Row]
    sections: list[Part]
    eol: str = "\n"
    level_max: int = 2

    @classmethod
    def parse(cls, text: str, level_max: int = 2) -> "Page":
        """Return a parsed page. Headings in code and in comments are none."""
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # no other character ends a line, as in rows
        parsed = list(rows(text))
        heads = [
            (row.number - 1, len(match[1]), match[2])
            for row in parsed
            if not row.is_code and (match := re.fullmatch(HEADING, row.text.rstrip())) and len(match[1]) <= level_max
        ]
        sections = []
        for following, (index, level, title) in enumerate(heads, 1):
            end = next((later for later, other, _ in heads[following:] if other <= level or other <= 2), len(lines))
            sections.append(Part(title, level, index, end))
        return cls(lines, parsed, sections, "\r\n" if text.partition("\n")[0].endswith("\r") else "\n", level_max)

    def inside(self, section: Part) -> list[Row]:
        """Return the rows of a section, without its heading."""
        first, end = (
            bisect_right(self.rows, at, key=lambda row: row.number) for at in (section.heading + 1, section.end)
        )
        return self.rows[first:end]

    def named(self, title: str) -> list[Part]:
        """Return the sections of this title; a page may have several."""
        return [section for section in self.sections if _key(section.title) == _key(title)]

    def with_section(self, title: str, before: Iterable[str] = ()) -> "Page":
        """Return the page with a section of this title: a new one comes before some others, else at the end."""
        if self.named(title):
            return self
        index = min((section.heading for name in before for section in self.named(name)), default=len(self.lines))
        gap = [""] if index and self.lines[index - 1].strip() else []
        new = [*gap, f"## {title}", "", *([""] if index < len(self.lines) else [])]
        return Page.parse(self.with_lines(index, new), self.level_max)

    @staticmethod
    def front_matter(text: str) -> str:
        """Return the front matter of a page, with its marks; "" for none."""
        match = re.match(_FRONT, text)
        return match[0] if match else ""

    @staticmethod
    def cells(line: str) -> list[str]:
        """Return the cells of a table's row, or of ``a | b``; a bar in code, or after a backslash, is text."""
        text = re.sub(r"^\||(?<!\\)\|$", "", line.strip())
        hidden = re.sub(r"`[^`]*`|\\\|", lambda match: "x" * len(match[0]), text)
        cuts = [-1, *(index for index, char in enumerate(hidden) if char == "|"), len(text)]
        return [text[start + 1 : end].replace("\\|", "|").strip() for start, end in pairwise(cuts)]

    def content_end(self, section: Part) -> int:
        """Return the index after the last line of a section that is not blank."""
        index = section.end
        while index > section.heading + 1 and not self.lines[index - 1].strip():
            index -= 1
        return index

    def with_lines(self, index: int, new: Iterable[str]) -> str:
        """Return the text with new lines before a line, given without their ends."""
        above = self.lines[:index]
        if above and not above[-1].endswith("\n"):
            above[-1] += self.eol
        return "".join([*above, *(f"{line}{self.eol}" for line in new), *self.lines[index:]])

    def without(self, removed: Collection[int]) -> str:
        """Return the text without some lines, by their indexes."""
        return "".join(line for index, line in enumerate(self.lines) if index not in removed)

    def inserted(self, section: Part, new: Sequence[str], end: int = 0) -> str:
        """Return the text with new lines after the content of a section, or of its part up to ``end``."""
        index = self.content_end(section._replace(end=end or section.end))
        is_bare = index == section.heading + 1
        index += is_bare and index < section.end and not self.lines[index].strip()  # the blank line under its heading
        gap = [""] if is_bare and index == section.heading + 1 else []
        tail = [""] if index < len(self.lines) and self.lines[index].lstrip().startswith("#") else []
        return self.with_lines(index, [*gap, *new, *tail])

    @staticmethod
    def content_lines(text: str, chars_max: int) -> list[str]:
        """Return the lines of a page without comments, with "" for what is no content, so that all keep their numbers.

        No content are front matter, lines of more than ``chars_max``, conflict markers, and marks of fences that never
        close, which so hide nothing but themselves.
        """
        lines = text.split("\n")
        for index in range(Page.front_matter(text).count("\n")):
            lines[index] = ""
        lines = ["" if len(line) > chars_max or _is_conflict_marker(line) else line for line in lines]
        fenced = {index for first, last in _closed_fences(lines).items() for index in range(first, last + 1)}
        for index, line in enumerate(lines):
            if index not in fenced and _fence_mark(line):
                lines[index] = ""
            elif "<!--" in line:
                shown, _, opened = _split_comments(line, 0)
                lines[index] = shown + ("" if opened is None else line[opened:])
        return lines


def _key(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", title.casefold()).strip()
    return words.removesuffix(" auto").removesuffix("s")
