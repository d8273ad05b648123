"""Parser of Markdown pages that people, tools and git have all written into: rows of content, code and comments.

Three decisions: which lines stand in a code fence and mean nothing, what is an HTML comment, and
which lines git left behind. Each broken form (a fence or a comment that never closes, half a conflict) costs its own
line and no other. Linear in the size of the page.
"""

import re
from collections.abc import Generator, Iterator
from typing import Literal, NamedTuple

Kind = Literal["text", "literal", "comment"]


class Row(NamedTuple):
    """A piece of a page: a line outside comments, a line of a code fence, or the inside of a one-line comment."""

    number: int
    kind: Kind
    text: str


_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_PIECE = re.compile(
    r"(?P<run>`{1,8})(?!`).*?(?<!`)(?P=run)(?!`)|`+|"
    r"<!--(?P<inside>[^<-]*(?:(?!<!--|-->)[<-][^<-]*)*)(?P<end>-->)?"
)
"""A code span, a run of backticks that opens none, or a comment, or what is there of one."""
_COMMENT_EDGE = re.compile(r"<!--|-->")
_RECORD_START = re.compile(r"\s*fleet\s")
_CONFLICT_STARTS = frozenset({"<<<<<<<", ">>>>>>>", "|||||||", "======="})
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: .*)?|={7}")
# A comment torn within its very mark would otherwise become the last word of a pattern, and so another pattern.
_TORN_COMMENTS = frozenset({"<", "<!", "<!-"})
_OPENING, _OPENING_ESCAPED = re.compile(r"<(\\*)!--"), re.compile(r"<\\(\\*)!--")
_CLOSING, _CLOSING_ESCAPED = re.compile(r"--(\\*)>"), re.compile(r"--\\(\\*)>")


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of a page in order, without conflict markers and without what comments hide."""
    lines = text.split("\n")
    fences = _closed_fences(lines)
    at = 0
    while at < len(lines):
        line = lines[at]
        if at in fences:
            for number in range(at, fences[at] + 1):
                if not _is_conflict_marker(lines[number]):
                    yield Row(number + 1, "literal", lines[number])
            at = fences[at] + 1
        elif "<!--" in line:
            at = yield from _beside_comments(lines, at)
        else:
            if line not in _TORN_COMMENTS and not _is_conflict_marker(line):
                yield Row(at + 1, "text", _unescape(line) if "\\" in line else line)
            at += 1


def _is_conflict_marker(line: str) -> bool:
    """Tell whether git wrote this line between two sides of a conflict."""
    return line[:7] in _CONFLICT_STARTS and _CONFLICT.fullmatch(line.rstrip()) is not None


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


def open_fences(lines: list[str]) -> set[int]:
    """Return which lines, from 0, open a code fence that never closes."""
    inside = {at for first, last in _closed_fences(lines).items() for at in range(first, last + 1)}
    return {at for at, line in enumerate(lines) if at not in inside and _fence_mark(line)}


def _fence_mark(line: str) -> re.Match[str] | None:
    if "```" not in line and "~~~" not in line:
        return None
    found = _FENCE.fullmatch(line)
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
        if kept.strip():
            yield Row(at + 1, "text", _unescape(kept))
        for comment in comments:
            yield Row(at + 1, "comment", comment)
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
    if _RECORD_START.match(lines[at], opened + 4):
        return None
    is_own_line = opened <= _indent(lines[at])
    for later in range(at + 1, len(lines)):
        if edge := _COMMENT_EDGE.search(lines[later]):
            return (later, edge.end()) if edge[0] == "-->" else None
        if not is_own_line and not lines[later].strip():
            return None
    return None


def _is_torn(line: str, opened: int, indent: int) -> bool:
    """Tell a comment that was cut off, which is no content, from a sentence that mentions its opening mark."""
    return opened <= indent or _RECORD_START.match(line, opened + 4) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
