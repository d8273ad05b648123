"""A JSON text in which some values are others now, and every other byte is as it was.

A person's file may be laid out as no program would do it, with numbers written as no program would write them. So what
is the same stays in its own words; what is added takes the layout of its neighbours, and takes nothing with it when it
goes again.
"""

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class _Member(NamedTuple):
    """A member of an object or a list: where it begins, where its value does, and where it ends."""

    start: int
    value: int
    end: int


class _Layout(NamedTuple):
    """How a text is laid out: the unit of indentation ("" for one line), and its line end."""

    unit: str
    newline: str


def spliced(text: str, before: Any, after: Any, *, unit: str, newline: str) -> str:
    """Return a JSON text with its value changed.

    Args:
        text: valid JSON.
        before: its value.
        after: the value wanted.
        unit: what new lines are indented by, once a level; "" puts what is new on the same line.
        newline: how lines end.
    """
    at = _skip(text, 0)
    end = _end(text, at)
    return text[:at] + _changed(text, at, before, after, _Layout(unit, newline), "") + text[end:]


def _changed(text: str, at: int, before: Any, after: Any, layout: _Layout, base: str) -> str:
    """Return the words for ``after``, where the value at a place is ``before``. ``base``: the indentation there."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = list(before)
        keys = [name for name in names if name in after] + [name for name in after if name not in before]
        whole = [(names.index(key) if key in before else None, key, after[key]) for key in keys]
        return _container(text, at, list(before.values()), whole, layout, base)
    if isinstance(before, list) and isinstance(after, list):
        return _container(text, at, before, _aligned(before, after), layout, base)
    return _fresh(after, layout, base)


def _aligned(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int | None, str, Any]]:
    """Return for each item which one of before it is, or has become."""
    mine, theirs = ([json.dumps(each, sort_keys=True) for each in items] for items in (before, after))
    found: list[tuple[int | None, str, Any]] = []
    for what, i1, i2, j1, j2 in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        is_paired = what == "equal" or (what == "replace" and i2 - i1 == j2 - j1)
        found += [(i1 + j - j1 if is_paired else None, "", after[j]) for j in range(j1, j2)]
    return found


def _container(
    text: str, at: int, old: Sequence[Any], items: Sequence[tuple[int | None, str, Any]], layout: _Layout, base: str
) -> str:
    """Return the words of an object or list. ``items``: which member each was, its key, its value."""
    members, end = _members(text, at)
    opening, closing = text[at], text[end - 1]
    if not items:
        return opening + closing if members else text[at:end]
    lead = text[at + 1 : members[0].start] if members else ""
    is_in_lines = "\n" in lead if members else bool(layout.unit)
    inner = lead.rpartition("\n")[2] if members and is_in_lines else base + layout.unit
    mine = layout if is_in_lines else layout._replace(unit="")
    line = layout.newline + inner if is_in_lines else ""
    words = [opening + (lead if members else line)]
    for number, (which, key, value) in enumerate(items):
        if number:
            is_next = which is not None and which > 0
            words.append(text[members[which - 1].end : members[which].start] if is_next else "," + (line or " "))  # type: ignore[operator, index]
        if which is None:
            name = f"{json.dumps(key)}: " if opening == "{" else ""
            words.append(name + _fresh(value, mine, inner))
        elif old[which] == value:
            words.append(text[members[which].start : members[which].end])
        else:
            member = members[which]
            words.append(text[member.start : member.value])
            words.append(_changed(text, member.value, old[which], value, mine, inner))
    words.append(text[members[-1].end : end] if members else (layout.newline + base if is_in_lines else "") + closing)
    return "".join(words)


def _fresh(value: Any, layout: _Layout, base: str) -> str:
    words = json.dumps(value, indent=layout.unit or None)
    return words.replace("\n", layout.newline + base)


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """Return the members of the object or list that begins at a place, and where it ends."""
    found = []
    pos = _skip(text, at + 1)
    while text[pos] not in "}]":
        start = pos
        if text[at] == "{":
            pos = _skip(text, _skip(text, _end(text, pos)) + 1)
        end = _end(text, pos)
        found.append(_Member(start, pos, end))
        pos = _skip(text, end)
        if text[pos] == ",":
            pos = _skip(text, pos + 1)
    return found, pos + 1


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
