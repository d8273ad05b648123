"""Reader of foreign records: one JSON object a line, one JSON document, or a page of Markdown in any form.

A record that cannot be used becomes ``Bad`` with a reason and its bytes; one that is left out on purpose becomes
``SkippedPiece``. Neither stops the others, and nothing raises. The name of a file is a hint, its content decides.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fleet.learn import corrections_md, notes
from fleet.learn.notes import Note, SkippedPiece
from fleet.model import limits, names
from fleet.model.discovery import CONFIDENCES, TYPES, Discovery
from fleet.model.line import BadLineError, strict_object
from fleet.store.files import LEFT_OUT
from fleet.text import dates, tables
from fleet.text.advice import Passage


class Lesson(msgspec.Struct, frozen=True):
    """A foreign record that becomes a pattern.

    Attributes:
        text: the pattern, else the description, else the title.
        correct: the solution, else the rationale, else the correction; may be empty.
        title: the record's title or name, also where it is the text.
        at_ms: its time in milliseconds since 1970; None if unknown.
        replica: the replica that already counted it, for an entry of a ``corrections.md``; "" for any other record.
        identity: canonical text of title, body and time, to be hashed: copies that differ in id, file, key order or
            white space are one record.
    """

    text: str
    correct: str
    title: str
    identity: str
    category: str = ""
    tags: tuple[str, ...] = ()
    agent: str = ""
    at_ms: int | None = None
    seen: int = 1
    replica: str = ""
    line: int = 0


class Finding(msgspec.Struct, frozen=True):
    """A foreign record that becomes a discovery.

    ``entry``: all its fields, unscreened, except author, time and id. The problem is the record's problem, else its
    title; the solution is its solution, else its insight.
    """

    entry: Discovery
    agent: str
    at_ms: int | None
    identity: str
    line: int = 0


class Bad(NamedTuple):
    """A record that cannot be used: its line, the reason, and its bytes, up to ``limits.LINE_BYTES_MAX``."""

    line: int
    reason: str
    raw: bytes


Item = Lesson | Finding | Bad | SkippedPiece


_SEEN_MAX = 1_000_000
_MINUTES_MAX = 1_000_000
_DATA = str(Path(__file__).with_name("data") / "records.toml")
KEYS = {name: tuple(words.split()) for name, words in tables(_DATA).items()}
"""Names in foreign records and folders, by their meaning."""
_TO_BE_INFERRED = "its pattern is still to be inferred"
_GARBLED = "it has bytes that are no UTF-8 (they read as \ufffd); it is taken once the file is saved as UTF-8"
_UNDONE = "it was undone"
_SAID_TWICE = "its entry says something else in that field already, and an entry teaches one lesson"
_TOO_LONG = f"longer than the {limits.PAGE_LINE_BYTES_MAX // 2**20} MiB that are read of a line"
_LABEL = r"(?i)(?:learned|learning|lesson|insight|investigation|rule|memory|note)\s*[:：]\s+"
_TEXT_CHARS = 420
_WORDS_MIN = 3
_OWN_ID = re.compile(r"[pd]-[0-9a-f]{16}", re.ASCII)
_OWN_KEYS = frozenset({"add", "rem", "n", "set", "w", "retracts"})
_COMMA = r"[,，、]"
_MEDIUM_FROM, _HIGH_FROM = 0.5, 0.8

_BOM = b"\xef\xbb\xbf"
_BOMS_OF_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONFLICT = re.compile(rb"^(?:(?:<{7}|>{7}|\|{7})(?: [^\n]*)?|={7})\r?$", re.MULTILINE)
_HEADING_LINE = re.compile(rb"^ {0,3}#{1,6}[ \t]", re.MULTILINE)
_OBJECT_LINE = re.compile(rb"^[ \t]*\{", re.MULTILINE)
_PAGES = (*KEYS["pages"], *KEYS["files"])
_RENDERED = re.compile(rb"^(?:<!-- )?Rendered by `?fleet`? from ", re.MULTILINE)
_HEAD_BYTES = 2_048
_OWN_PAGE = re.compile(rb"<!-- fleet |What I got wrong|User flagged|to be inferred")


def read_records(name: str, data: bytes) -> Iterator[Item]:
    """Yield the records of a file in its order. Never raises, whatever the bytes.

    ``name``: the file's name, with or without its folder; only a hint.
    """
    base = re.split(r"[\\/]", name)[-1].casefold()
    if data.startswith(_BOMS_OF_UTF16):  # as Windows' own programs write it
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError as why:
            yield Bad(1, f"it begins as UTF-16, and is none from byte {why.start} on: save it as UTF-8", b"")
            return
    data = data.removeprefix(_BOM)
    # Both sides of a conflict are records. The lines stay, empty, so that each keeps its number.
    clean = _CONFLICT.sub(b"", data)
    if _is_page(base, clean):
        yield from _read_page(name, data)
    elif not base.endswith(KEYS["objects"]) and _records_of(clean.strip()) is None and not _OBJECT_LINE.search(clean):
        yield Bad(1, "neither Markdown nor JSON", b"")
    else:
        yield from _read_objects(_raws(clean), is_discoveries=base.startswith("discover"))


def _is_page(base: str, data: bytes) -> bool:
    """Return whether a file is a page of Markdown, by its name and its first line that is not empty."""
    first = data.lstrip().partition(b"\n")[0]
    if first[:1] in (b"{", b"["):
        return base.endswith(_PAGES) and all(_parsed(each, msgspec.Raw) is None for each in (first, data))
    if base.endswith(_PAGES) or (_HEADING_LINE.match(first) and not base.endswith(KEYS["objects"])):
        return True
    return _HEADING_LINE.search(data) is not None and _OBJECT_LINE.search(data) is None


def _raws(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield line and bytes of each record, of a JSON document or else of JSON lines."""
    records = _records_of(data.strip())
    if records is None:
        for number, line in enumerate(data.split(b"\n"), start=1):
            if raw := line.strip().removeprefix(_BOM):
                yield number, raw
        return
    number, counted = 1, 0
    for raw in records:
        start = data.index(raw, counted)
        number, counted = number + data.count(b"\n", counted, start), start
        yield number, raw


def _records_of(data: bytes) -> list[bytes] | None:
    """Return the records of an array of them, or of an object with lists of them; None for any other data."""
    document = _parsed(data, list[msgspec.Raw] | dict[str, msgspec.Raw])
    if not isinstance(document, dict):
        return None if document is None else list(map(bytes, document))
    values = (
        _records_of(bytes(value))
        for key, value in document.items()
        if key in KEYS["lists"] and bytes(value)[:1] == b"["
    )
    # A list without an object in it is a field like any other.
    lists = [records for records in values if records is not None and (not records or records[0][:1] == b"{")]
    return [raw for records in lists for raw in records] if lists else [data]


def _parsed(data: bytes, kind: Any) -> Any:
    """Return JSON decoded as a type; None for invalid JSON, or JSON of another type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


# One JSON object


def _read_objects(raws: Iterable[tuple[int, bytes]], *, is_discoveries: bool) -> Iterator[Item]:
    """Yield the records, without those that a later one supersedes."""
    items: list[tuple[int, dict[str, Any], Item]] = []
    replaced: dict[str, int] = {}
    for index, (line, raw) in enumerate(raws):
        record, item = _read_object(line, raw, is_discoveries=is_discoveries)
        items.append((line, record, item))
        if isinstance(item, Lesson | Finding):
            replaced.update((old, index) for old in _texts_of(record.get("supersedes")))
    for index, (line, record, item) in enumerate(items):
        own_ids = (*_texts_of(record.get("id")), *_texts_of(record.get("uuid")))
        is_replaced = any(replaced.get(id_, -1) > index for id_ in own_ids)
        is_taken = isinstance(item, Lesson | Finding)
        left = SkippedPiece(line, "superseded by a later record", _begin(record))
        yield left if is_replaced and is_taken else item


def _texts_of(value: object) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str) and text]


def _read_object(line: int, raw: bytes, *, is_discoveries: bool) -> tuple[dict[str, Any], Item]:
    record: dict[str, Any] = {}
    try:
        record = strict_object(_unquoted(raw))
        record = _unwrapped(record)
        if reason := _reason_to_skip(record):
            return record, SkippedPiece(line, reason, _begin(record))
        item = _finding(record) if _is_finding(record, is_discoveries=is_discoveries) else _lesson(record)
        if isinstance(item, SkippedPiece):
            return record, item._replace(line=line)
        return record, msgspec.structs.replace(item, line=line)
    except BadLineError as why:
        return record, _bad(line, str(why), raw)


def _unquoted(raw: bytes) -> bytes:
    """Return the object in a line that is a JSON string; any other line unchanged."""
    inner = _parsed(raw, str) if raw[:1] == b'"' and b"{" in raw[:8] else None
    return raw if inner is None else str(inner).encode()


def _unwrapped(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with a wrapped one, an object or a string of one, merged into it."""
    for key in KEYS["wrappers"]:
        inner = record.get(key)
        if isinstance(inner, str) and inner.lstrip()[:1] == "{":
            try:
                inner = strict_object(inner.strip().encode("utf-8", "surrogatepass"))
            except BadLineError:
                continue
        if isinstance(inner, dict) and inner:
            return {**{name: value for name, value in record.items() if name != key}, **inner}
    return record


def _reason_to_skip(record: Mapping[str, Any]) -> str:
    id_, pattern = record.get("id"), record.get("pattern")
    is_own = not _OWN_KEYS.isdisjoint(record) or names.is_replica(_text_in(record, "by"))
    if is_own and isinstance(id_, str) and _OWN_ID.fullmatch(id_):
        return "this is fleet's own line: sync it, do not import it"
    status = _text_in(record, "status").casefold()
    if record.get("retracted") is True or status in KEYS["gone"]:
        return status if status in KEYS["gone"] else "retracted"
    if "privat" in _text_in(record, "scope").casefold():
        return notes.PRIVATE
    if record.get("superseded_by"):
        return "superseded"
    is_issue = "issue_type" in record or ({"priority", "status"} <= record.keys() and "dependencies" in record)
    if is_issue and not re.search("lesson|learn", json.dumps([record.get("issue_type"), record.get("labels")])):
        return "an issue of a tracker, and no lesson"
    return _TO_BE_INFERRED if isinstance(pattern, str) and corrections_md.is_placeholder(pattern) else ""


def _begin(record: Mapping[str, Any]) -> str:
    """Return the beginning of a record's text, by which a person finds the record."""
    return _text_in(record, "title", "name", "pattern", "text", "description", "problem", "id")


def _is_finding(record: Mapping[str, Any], *, is_discoveries: bool) -> bool:
    """Return whether a record is a discovery: by its type, then its id, then its file, then its fields."""
    kind, id_ = _text_in(record, "type").casefold(), _text_in(record, "id")
    if kind in KEYS["lesson_types"]:
        return False
    if kind in TYPES or id_.startswith(("d-", "disc-")):
        return True
    if is_discoveries and not id_.startswith(("p-", "pat-")):
        return not {"problem", "solution", "insight"}.isdisjoint(record)
    return {"problem", "solution", "context"}.issubset(record) and {"title", "category"}.isdisjoint(record)


def _lesson(record: Mapping[str, Any]) -> Lesson | SkippedPiece:
    title = _first(record, "title", "name")
    text = _first(record, "pattern", "description")
    correct = _first(record, "solution", "rationale", "correction", "correct", "right")
    wrong = _first(record, "problem", "wrong")
    folded = {re.sub(r"[\s_-]", "", name).casefold(): value for name, value in record.items()}
    wrong = wrong or _text_in(folded, *KEYS["wrongs"])
    statement = re.sub(_LABEL, "", _text_in(folded, *KEYS["texts"]), count=1)
    if wrong and not title:  # `wrong` and `right` alone
        statement = statement or _first(record, "right", "correct", "correction")
    if not text and statement:
        is_template = Passage(statement).is_placeholder()
        if is_template or not (
            title or wrong or len(statement.split()) >= _WORDS_MIN or Passage(statement).is_sentence()
        ):
            return SkippedPiece(0, notes.TEMPLATE if is_template else notes.NO_SENTENCE, statement)
        text, body = Passage(statement).lead(_TEXT_CHARS)
        correct = correct or _text_in(folded, *KEYS["rights"])
        correct = " ".join(part for part in (body, correct) if part and part != statement)
        title = title or _text_in(folded, "scenario", "situation")
    text = text or title
    if not text:
        raise BadLineError("nothing to read as its text: no pattern, description or title")
    rights = (_text_in(folded, name) for name in KEYS["rights"])
    correct = correct or next((right for right in rights if right not in ("", text)), "")
    inner = record.get("metadata")
    metadata = inner if isinstance(inner, dict) else {}
    places = ("category", "domain", "area", "topic", "kind")
    kinds = (_text_in(each, name) for name in places for each in (record, metadata))
    return _lesson_of(
        (text, correct, title, wrong),
        _time(record),
        category=next((kind for kind in kinds if kind), ""),
        tags=_tags(record.get("tags") or metadata.get("tags") or record.get("categories")),
        agent=_author(record),
        seen=_seen(record),
    )


def _lesson_of(texts: tuple[str, str, str, str], at_ms: int | None, **fields: Any) -> Lesson:
    """Return a lesson of a text, the right way, a title and what went wrong; raise ``BadLineError`` for a long one."""
    names_of = ("pattern", "correct", "title", "wrong")
    text, correct, title, wrong = (_checked(name, each) for name, each in zip(names_of, texts, strict=True))
    identity = _identity("lesson", title, text, correct, wrong, at_ms=at_ms)
    return Lesson(text, correct, title, identity, at_ms=at_ms, **fields)


def _text_in(record: Mapping[str, Any], *names: str) -> str:
    """Return the first of these fields that is a text, or a list of texts."""
    for name in names:
        value = record.get(name)
        if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
            value = "; ".join(value)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())[: limits.TEXT_BYTES_MAX // 4]
    return ""


def _finding(record: Mapping[str, Any]) -> Finding:
    problem = _first(record, "problem", "title", "name", "description")
    if not problem:
        raise BadLineError("nothing to read as its text: no problem or title")
    context, solution = _first(record, "context"), _first(record, "solution", "insight")
    at_ms = _time(record)
    kind = _text_in(record, "type").casefold()
    entry = Discovery(
        id="",
        type=kind if kind in TYPES else "discovery",
        context=context,
        problem=problem,
        solution=solution,
        tags=_tags(record.get("tags")),
        confidence=_confidence(record.get("confidence")),
        minutes=_whole(record.get("minutes"), 0, _MINUTES_MAX),
    )
    identity = _identity("finding", problem, context, solution, at_ms=at_ms)
    return Finding(entry, _author(record), at_ms, identity)


def _author(record: Mapping[str, Any]) -> str:
    """Return the agent that a record names as its author; "" where it names none, or no name of an agent."""
    named = (_text_in(record, name).casefold() for name in KEYS["authors"])
    return next(filter(names.is_agent, named), "")


def _identity(kind: str, title: str, *body: str, at_ms: int | None) -> str:
    """Return the canonical text of a record's content. It is ASCII, so that it always has bytes to hash."""
    parts = [kind, corrections_md.fold(title), *(corrections_md.fold(part) for part in body), at_ms]
    return json.dumps(parts, separators=(",", ":"))


def _checked(name: str, value: object) -> str:
    """Return a text field without the white space around it; empty when it is absent or null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLineError(f"'{name}' is no text")
    text = value.strip()
    if len(text.encode("utf-8", "replace")) > limits.TEXT_BYTES_MAX:
        raise BadLineError(f"'{name}' is longer than {limits.TEXT_BYTES_MAX} bytes")
    return text


def _first(record: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these texts that is not empty. All are checked: half a record is no record."""
    return next(filter(None, [_checked(key, record.get(key)) for key in keys]), "")


def _tags(value: object) -> tuple[str, ...]:
    listed = re.split(_COMMA, value) if isinstance(value, str) else value if isinstance(value, list) else ()
    tags = (_checked("tags", tag) for tag in listed if isinstance(tag, str))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[: limits.TAGS_MAX]


def _seen(record: Mapping[str, Any]) -> int:
    counts = (_whole(record.get(name), 1, _SEEN_MAX) for name in KEYS["counts"])
    return next((count for count in counts if count is not None), 1)


def _whole(value: object, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None


def _time(record: Mapping[str, Any]) -> int | None:
    moments = (dates.to_ms(record.get(name)) for name in KEYS["times"])
    return next((moment for moment in moments if moment is not None), None)


def _confidence(value: object) -> str:
    if isinstance(value, str):
        word = value.strip().casefold()
        return word if word in CONFIDENCES else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if value < _MEDIUM_FROM:
        return "low"
    return "medium" if value < _HIGH_FROM else "high"


# A page of Markdown


def _read_page(name: str, data: bytes) -> Iterator[Item]:
    """Yield the entries of a fleet's ``corrections.md``, then the notes in the rest of the page."""
    if _RENDERED.search(data, 0, _HEAD_BYTES):
        yield SkippedPiece(1, "this is a page that fleet renders: sync its lines, do not import it", name)
        return
    lines = data.splitlines(keepends=True)
    if _OWN_PAGE.search(data):
        lines, entries = corrections_md.blank_entries(data)
        for entry, raw in entries:
            try:
                yield _from_entry(entry)
            except BadLineError as why:
                yield _bad(entry.line, str(why), raw)
    yield from _read_notes(name, lines)


def read_beside(log: bytes) -> Iterator[Item]:
    """Yield the notes of people in an agent's own log, beside the entries that are counted."""
    lines, entries = corrections_md.blank_entries(log, is_waiting_own=True)
    yield from (SkippedPiece(line, _SAID_TWICE, text) for entry, _ in entries for line, text in entry.unread)
    waiting = (entry for entry, _ in entries if entry.is_waiting)
    named = ((each, _GARBLED if each.is_garbled else each.obstacle) for each in waiting)
    yield from (SkippedPiece(entry.line, reason, entry.pattern) for entry, reason in named)
    for match in re.finditer(LEFT_OUT, log):
        yield SkippedPiece(log.count(b"\n", 0, match.start()) + 1, _TOO_LONG, f"{int(match[1]):,} bytes")
    yield from _read_notes(corrections_md.FILE_NAME, lines)


def _read_notes(name: str, lines: list[bytes]) -> Iterator[Item]:
    text = b"".join(lines).decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        yield _bad(1, "no page of text", b"".join(lines))
        return
    is_utf8 = b"".join(lines).decode("utf-8", "ignore").encode() == b"".join(lines)
    for note in notes.read_notes(text, re.split(r"[\\/]", name)[-1]):
        if isinstance(note, SkippedPiece):
            yield note
            continue
        if not is_utf8 and "\ufffd" in "".join((note.text, note.correct, note.title, note.wrong)):
            yield SkippedPiece(note.line, _GARBLED, note.text)
            continue
        try:
            yield _from_note(note)
        except BadLineError as why:
            yield _bad(note.line, str(why), b"".join(lines[note.line - 1 : note.end]))


def _from_note(note: Note) -> Lesson:
    return _lesson_of(
        (note.text, note.correct, note.title, note.wrong),
        dates.to_ms(note.when),
        category=note.category,
        tags=note.tags[: limits.TAGS_MAX],
        line=note.line,
    )


def _from_entry(entry: corrections_md.Entry) -> Lesson | SkippedPiece:
    """Return an entry as a lesson. A bare one, a heading and a paragraph, has its lesson in the heading."""
    reasons = ((entry.is_undone, _UNDONE), (entry.is_private, notes.PRIVATE), (entry.is_garbled, _GARBLED))
    if reason := next((reason for holds, reason in reasons if holds), ""):
        return SkippedPiece(entry.line, reason, entry.pattern or entry.title)
    is_bare = not (entry.wrong or entry.source or entry.auto)
    text = entry.pattern or (entry.title if is_bare else "")
    if not text:
        return SkippedPiece(entry.line, _TO_BE_INFERRED if entry.auto else "it has no pattern yet")
    record = entry.record
    return _lesson_of(
        (text, entry.right, entry.title, entry.wrong),
        dates.to_ms(entry.when),
        category=_checked("category", entry.category),
        tags=entry.tags[: limits.TAGS_MAX],
        agent=names.agent_of(record.replica) if record else "",
        replica=record.replica if record else "",
        line=entry.line,
    )


def _bad(line: int, reason: str, raw: bytes) -> Bad:
    return Bad(line, reason, raw[: limits.LINE_BYTES_MAX])
