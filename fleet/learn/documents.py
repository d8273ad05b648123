"""A JSON document that holds many records, cut into the text of each, so that one bad record costs no other."""

import json
import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

LISTS = frozenset({"patterns", "lessons", "discoveries", "corrections", "records"})
"""Keys under which an object may hold its records."""

# Numbers stay text: this only cuts, and an integer of 5,000 digits must not stop it.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\r\n]*")


class Piece(NamedTuple):
    """The text of one record and the line that it begins on, from 1."""

    line: int
    text: str


def is_one_value(text: str) -> bool:
    """Tell whether the whole text is one JSON value, and not a value a line."""
    try:
        _, end = _decoder.raw_decode(text, _skip(text, 0))
    except (ValueError, RecursionError):
        return False
    return _skip(text, end) == len(text)


def holds_list(text: str) -> bool:
    """Tell whether a text begins as a list of records or as an object that holds one, even if it is torn later."""
    start = _skip(text, 0)
    return text.startswith("[", start) or (text.startswith("{", start) and bool(_lists(text, start)))


def pieces(text: str) -> Iterator[Piece]:
    """Yield each record of a document: an object, an array of them, or an object with a list of them.

    A document that is torn gives the records before the tear, and the rest as one last piece.
    """
    line, counted = 1, 0
    for start, end in _spans(text):
        line += text.count("\n", counted, start)
        counted = start
        yield Piece(line, text[start:end])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = _skip(text, 0)
    if text.startswith("[", start):
        yield from _array(text, start)
    elif text.startswith("{", start) and (lists := _lists(text, start)):
        for at in lists:
            yield from _array(text, at)
    else:
        yield start, len(text.rstrip())


def _array(text: str, start: int) -> Generator[tuple[int, int], None, None]:
    """Yield where each element stands. A missing or double comma, as a merge leaves it, is forgiven."""
    at = start + 1
    while (at := _skip_commas(text, at)) < len(text) and text[at] != "]":
        try:
            _, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield at, len(text.rstrip())
            return
        yield at, end
        at = end


def _lists(text: str, start: int) -> list[int]:
    """Return where an object's lists of records begin; a list without an object in it is a field like any other."""
    found: list[int] = []
    at = start + 1
    try:
        while (at := _skip_commas(text, at)) < len(text) and text[at] == '"':
            key, at = _decoder.raw_decode(text, at)
            at = _skip(text, at)
            if not text.startswith(":", at):
                break
            begin = at = _skip(text, at + 1)
            is_list = key in LISTS and text.startswith("[", begin)
            if is_list and text.startswith(("{", "]"), _skip(text, begin + 1)):
                found.append(begin)
            _, at = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        pass  # torn: what was found up to here is read up to the tear
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _skip_commas(text: str, at: int) -> int:
    at = _skip(text, at)
    while text.startswith(",", at):
        at = _skip(text, at + 1)
    return at
