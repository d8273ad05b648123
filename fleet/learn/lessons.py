"""The lesson of a signal, stated later: a heading with nothing under it, at the end of ``corrections.md``.

``## Learned from c-<16 hex> — the pattern``, and ``## Right way for c-<16 hex> — the correct approach`` where one was
given. Each line says by itself which entry it belongs to, so lines may be moved and merged; the entry above stays as it
was written. A reader that knows nothing of this sees a heading without a body, which was never an entry.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from fleet.keep.lazily import compiled
from fleet.keep.normal import pattern_id
from fleet.learn import markdown, writing
from fleet.learn.records import Record

Field = Literal["pattern", "right"]
_STARTS: dict[Field, str] = {"pattern": "Learned from", "right": "Right way for"}
_HEADING = compiled(
    r"(?P<start>Learned from|Right way for) (?P<id>c-[0-9a-f]{16})[ \t]*(?:-{1,3}|[–—:：])[ \t]*(?P<text>\S.*)",
    re.ASCII | re.DOTALL,
)


class Lesson(NamedTuple):
    """What was said later about one entry: its pattern, or the right way."""

    id: str
    field: Field
    text: str


def read_lesson(heading: str) -> Lesson | None:
    """Read the text of a heading; None for any other heading."""
    found = _HEADING.fullmatch(heading) if heading.startswith(tuple(_STARTS.values())) else None
    if found is None:
        return None
    field: Field = "pattern" if found["start"] == _STARTS["pattern"] else "right"
    return Lesson(found["id"], field, found["text"].strip())


def format_lesson(lesson: Lesson) -> str:
    """Write the heading, one line, newline at its end."""
    text = markdown.escape(" ".join(lesson.text.split()))
    return f"## {_STARTS[lesson.field]} {lesson.id} {writing.DASH} {text}\n"


def stated(lessons: Iterable[Lesson], records: Sequence[Record]) -> dict[str, dict[Field, str]]:
    """Return what was stated, by the entry's id: only what was counted, since a write may have been torn off.

    Where one entry was filled in twice, in two branches, the record that counts decides; the order of the lines never
    does.
    """
    counted: dict[str, Record] = {}
    for record in records:
        known = counted.get(record.id)
        if known is None or (record.at, record.replica) > (known.at, known.replica):
            counted[record.id] = record
    grouped: dict[tuple[str, Field], set[str]] = {}
    for lesson in lessons:
        if lesson.id in counted:
            grouped.setdefault((lesson.id, lesson.field), set()).add(lesson.text)
    found: dict[str, dict[Field, str]] = {}
    for (entry, field), texts in grouped.items():
        found.setdefault(entry, {})[field] = _chosen(texts, counted[entry].pattern)
    return found


def _chosen(texts: set[str], pattern: str) -> str:
    if len(texts) == 1:
        return next(iter(texts))
    return max(texts, key=lambda text: (pattern_id(text) == pattern, text))  # a torn line sorts before the whole one
