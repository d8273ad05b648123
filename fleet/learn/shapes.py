"""What ``fleet import`` reads: the files of other fleets, in every shape seen in the wild.

A record that cannot be used becomes ``Bad`` with its reason and its bytes, one that is rightly left out ``Skipped``;
neither stops the others, and nothing raises. The name of a file is a hint, its content decides.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fleet.keep import limits, names
from fleet.keep.line import BadLineError, strict_object
from fleet.learn import documents, entries, times, wild
from fleet.learn.wild import Finding, Lesson, Skipped, UnusableError

__all__ = ["Bad", "Finding", "Item", "Lesson", "Skipped", "read_records"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that cannot be used: on which line, why, and its bytes, up to ``limits.LINE_BYTES_MAX``."""

    line: int
    reason: str
    raw: bytes


Item = Lesson | Finding | Bad | Skipped
Raw = tuple[int, bytes]

_BOM = b"\xef\xbb\xbf"
_CONFLICT = re.compile(rb"^(?:(?:<{7}|>{7}|\|{7})(?: [^\n]*)?|={7})\r?$", re.MULTILINE)
_HEADING_LINE = re.compile(rb"^ {0,3}#{1,6}[ \t]", re.MULTILINE)
_OBJECT_LINE = re.compile(rb"^[ \t]*\{", re.MULTILINE)
_PAGES = (".md", ".markdown", ".mdx")
_LINES = (".jsonl", ".ndjson")


def read_records(name: str, data: bytes) -> Iterator[Item]:
    """Yield what a file holds, in its order. Never raises, whatever the bytes.

    Args:
        name: of the file, with or without its folder. Only a hint.
        data: all of it: one JSON object a line, one JSON document, or a page of corrections.
    """
    base = re.split(r"[\\/]", name)[-1].casefold()
    data = data.removeprefix(_BOM)
    if _is_page(base, data):
        yield from _read_page(data)
        return
    # Both sides of a conflict are records. The lines stay, empty, so that each keeps its number.
    data = _CONFLICT.sub(b"", data)
    text = _document(base, data)
    raws = _lines(data) if text is None else ((piece.line, piece.text.encode()) for piece in documents.pieces(text))
    yield from _read_objects(raws, is_discoveries=base.startswith("discover"))


def _is_page(base: str, data: bytes) -> bool:
    """Tell a page of Markdown from JSON."""
    first = _first_line(data)
    if first[:1] in (b"{", b"["):
        return base.endswith(_PAGES) and not _is_json(first) and not _is_json(data)
    if base.endswith(_PAGES) or (_HEADING_LINE.match(first) and not base.endswith((*_LINES, ".json"))):
        return True
    return _HEADING_LINE.search(data) is not None and _OBJECT_LINE.search(data) is None


def _document(base: str, data: bytes) -> str | None:
    """Return the text of a file that is one document, whole or torn; None when it has one record a line."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if documents.is_one_value(text):
        return text
    # A first line that is complete in itself does not begin a document of several.
    is_torn = not base.endswith(_LINES) and not _is_json(_first_line(data)) and documents.holds_list(text)
    return text if is_torn else None


def _first_line(data: bytes) -> bytes:
    """Return the first line that says something."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:end]
        if line.strip() and not _CONFLICT.fullmatch(line):
            return line.strip()
        at = end + 1
    return b""


def _is_json(raw: bytes) -> bool:
    return documents.is_one_value(raw.decode("utf-8", "replace"))


def _lines(data: bytes) -> Iterator[Raw]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if raw := line.strip().removeprefix(_BOM):
            yield number, raw


def _read_objects(raws: Iterable[Raw], *, is_discoveries: bool) -> Iterator[Item]:
    """Read records one by one; then leave out those that a later one of them takes the place of."""
    read: list[tuple[int, dict[str, Any], Item]] = []
    replaced: dict[str, int] = {}
    for at, (line, raw) in enumerate(raws):
        found, item = _read_object(line, raw, is_discoveries=is_discoveries)
        read.append((line, found, item))
        if isinstance(item, Lesson | Finding):
            replaced.update((old, at) for old in wild.supersedes(found))
    for at, (line, found, item) in enumerate(read):
        is_replaced = any(replaced.get(known_as, -1) > at for known_as in wild.ids(found))
        is_taken = isinstance(item, Lesson | Finding)
        yield Skipped(line, "superseded by a later record") if is_replaced and is_taken else item


def _read_object(line: int, raw: bytes, *, is_discoveries: bool) -> tuple[dict[str, Any], Item]:
    found: dict[str, Any] = {}
    try:
        found = strict_object(raw)
        if _is_deep(found):
            raise UnusableError(f"nested deeper than {limits.DEPTH_MAX}")
        return found, wild.read_object(found, line, is_discoveries=is_discoveries)
    except (BadLineError, UnusableError) as why:
        return found, _bad(line, str(why), raw)


def _is_deep(found: dict[str, Any]) -> bool:
    """Tell whether objects and lists stand in each other more than ``limits.DEPTH_MAX`` deep, by level."""
    level: list[Any] = [found]
    for _ in range(limits.DEPTH_MAX):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _read_page(data: bytes) -> Iterator[Item]:
    """Read the entries of a ``corrections.md``."""
    log = entries.parse_log(data)
    if not log.entries and data.strip() and not _HEADING_LINE.search(data):
        yield _bad(1, "no correction in this page: it has no heading", data)
        return
    lines = data.splitlines(keepends=True)
    ends = [entry.line - 1 for entry in log.entries[1:]] + [len(lines)]
    for entry, end in zip(log.entries, ends, strict=False):
        try:
            yield _from_entry(entry)
        except UnusableError as why:
            yield _bad(entry.line, str(why), b"".join(lines[entry.line - 1 : end]))


def _from_entry(entry: entries.Entry) -> Lesson | Skipped:
    """Read an entry as a lesson. A bare one, a heading and a paragraph, has its lesson in the heading."""
    is_bare = not (entry.wrong or entry.source or entry.auto)
    text = wild.checked("pattern", entry.pattern) or (wild.checked("title", entry.title) if is_bare else "")
    if not text:
        return Skipped(entry.line, wild.TO_BE_INFERRED if entry.auto else "it has no pattern yet")
    wrong, right = wild.checked("wrong", entry.wrong), wild.checked("correct", entry.right)
    at_ms = times.to_ms(entry.when)
    record = entry.record
    extra = {"wrong": wrong} | ({"record": record.id, "replica": record.replica} if record else {})
    return Lesson(
        text=text,
        correct=right,
        title=wild.checked("title", entry.title),
        category=wild.checked("category", entry.category),
        tags=entry.tags[: limits.TAGS_MAX],
        agent=names.agent_of(record.replica) if record else "",
        at_ms=at_ms,
        seen=1,
        source=wild.checked("source", entry.source),
        extra=tuple(sorted((name, value) for name, value in extra.items() if value)),
        identity=wild.identity("lesson", entry.title, text, right, wrong, at_ms=at_ms),
    )


def _bad(line: int, reason: str, raw: bytes) -> Bad:
    return Bad(line, reason, raw[: limits.LINE_BYTES_MAX])
