"""One record as other fleets write it, a JSON object, read as a lesson or a finding."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.keep import limits, names
from fleet.learn import entries, times


@dataclass(frozen=True, slots=True)
class Lesson:
    """What becomes a pattern.

    Attributes:
        text: the pattern, else the description, else the title.
        correct: the solution, else the rationale, else the correction; may be empty.
        title: title or name as the record has it, also where it is the text.
        category: category, else domain.
        tags: at most ``limits.TAGS_MAX``.
        agent: who wrote it, as the record says.
        at_ms: when, in milliseconds since 1970; None if unknown.
        seen: occurrences, 1 to ``SEEN_MAX``.
        source: where it comes from, as the record says.
        extra: what else it says, sorted by key: id, status, domain, ``wrong``, ...; ``record`` and ``replica`` for an
            entry of ``corrections.md`` that a fleet has already counted.
        identity: canonical text of title, body and time, to be hashed; ids, file, key order and white space play no
            part in it, so that a record met twice is one.
    """

    text: str
    correct: str
    title: str
    category: str
    tags: tuple[str, ...]
    agent: str
    at_ms: int | None
    seen: int
    source: str
    extra: tuple[tuple[str, str], ...]
    identity: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What becomes a discovery.

    Attributes:
        type: one of ``FINDING_TYPES``.
        context: where it was found; may be empty.
        problem: the problem, else the title.
        solution: the solution, else the insight; may be empty.
        tags: at most ``limits.TAGS_MAX``.
        confidence: low, medium, high, or empty.
        minutes: what it cost to find out; None if unknown.
        agent: who found it, as the record says.
        at_ms: when, in milliseconds since 1970; None if unknown.
        identity: as for a lesson.
    """

    type: str
    context: str
    problem: str
    solution: str
    tags: tuple[str, ...]
    confidence: str
    minutes: int | None
    agent: str
    at_ms: int | None
    identity: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that was understood and rightly not taken: on which line, and why."""

    line: int
    reason: str


class UnusableError(ValueError):
    """Why a record cannot be used. ``shapes`` turns it into a value."""


SEEN_MAX = 1_000_000
MINUTES_MAX = 1_000_000
FINDING_TYPES = frozenset({"discovery", "gotcha", "tip", "workaround"})
LESSON_TYPES = frozenset({"lesson", "pattern", "correction"})
TO_BE_INFERRED = "its pattern is still to be inferred"

_TIMES = ("ts", "timestamp", "created", "created_at", "date", "at")
_COUNTS = ("occurrences", "count", "seen")
_EXTRAS = ("clan", "domain", "harness", "id", "path", "platform", "status", "uuid")
_GONE = frozenset({"retracted", "superseded"})
_OWN_ID = re.compile(r"[pd]-[0-9a-f]{16}", re.ASCII)
_OWN_KEYS = frozenset({"add", "rem", "n", "set", "retracts"})
_COMMA = re.compile(r"[,，、]")
_CONFIDENCES = frozenset({"low", "medium", "high"})
_MEDIUM_FROM, _HIGH_FROM = 0.5, 0.8


def read_object(found: Mapping[str, Any], line: int, *, is_discoveries: bool) -> Lesson | Finding | Skipped:
    """Read one record.

    Args:
        found: a JSON object that every reader reads alike.
        line: where it stands.
        is_discoveries: the file's name says that it holds discoveries: a hint, for what does not say itself.

    Raises:
        UnusableError: a text is missing, of another type, or longer than ``limits.TEXT_BYTES_MAX``.
    """
    if reason := _reason_to_skip(found):
        return Skipped(line, reason)
    return _finding(found) if _is_finding(found, is_discoveries=is_discoveries) else _lesson(found)


def identity(kind: str, title: str, *body: str, at_ms: int | None) -> str:
    """Return the canonical text of what a record means. ASCII, so that it always has bytes to hash."""
    said = [kind, entries.fold(title), *(entries.fold(part) for part in body), at_ms]
    return json.dumps(said, separators=(",", ":"))


def checked(name: str, value: object) -> str:
    """Return a text field without the white space around it; empty when it is absent or null.

    Raises:
        UnusableError: it is no text, or too long.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnusableError(f"'{name}' is no text")
    text = value.strip()
    if len(text) * 4 > limits.TEXT_BYTES_MAX and len(text.encode("utf-8", "replace")) > limits.TEXT_BYTES_MAX:
        raise UnusableError(f"'{name}' is longer than {limits.TEXT_BYTES_MAX} bytes")
    return text


def supersedes(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids that a record says it takes the place of."""
    said = found.get("supersedes")
    return frozenset(one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str) and one)


def ids(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids that other records may call this one by."""
    return frozenset(one for one in (found.get("id"), found.get("uuid")) if isinstance(one, str) and one)


def _reason_to_skip(found: Mapping[str, Any]) -> str:
    known_as, pattern = found.get("id"), found.get("pattern")
    if isinstance(known_as, str) and _OWN_ID.fullmatch(known_as) and _is_own(found):
        return "this is fleet's own line: sync it, do not import it"
    status = _word(found, "status").casefold()
    if found.get("retracted") is True or status in _GONE:
        return status if status in _GONE else "retracted"
    if found.get("superseded_by"):
        return "superseded"
    return TO_BE_INFERRED if isinstance(pattern, str) and entries.is_placeholder(pattern) else ""


def _is_own(found: Mapping[str, Any]) -> bool:
    return not _OWN_KEYS.isdisjoint(found) or names.is_replica(_word(found, "by"))


def _is_finding(found: Mapping[str, Any], *, is_discoveries: bool) -> bool:
    """Tell a discovery: by its type, then its id, then the file it is in, then its fields."""
    kind, known_as = _word(found, "type").casefold(), _word(found, "id")
    if kind in LESSON_TYPES:
        return False
    if kind in FINDING_TYPES or known_as.startswith(("d-", "disc-")):
        return True
    if is_discoveries and not known_as.startswith(("p-", "pat-")):
        return not {"problem", "solution", "insight"}.isdisjoint(found)
    return {"problem", "solution", "context"}.issubset(found) and {"title", "category"}.isdisjoint(found)


def _lesson(found: Mapping[str, Any]) -> Lesson:
    title = _first(found, "title", "name")
    text = _first(found, "pattern", "description") or title or _first(found, "lesson", "text")
    if not text:
        raise UnusableError("nothing to read as its text: no pattern, description or title")
    correct = _first(found, "solution", "rationale", "correction", "correct", "right")
    wrong = _first(found, "problem", "wrong")
    at_ms = _time(found)
    extra = {name: _word(found, name) for name in _EXTRAS} | {"wrong": wrong}
    return Lesson(
        text=text,
        correct=correct,
        title=title,
        category=_word(found, "category") or _word(found, "domain"),
        tags=_tags(found.get("tags")),
        agent=_word(found, "agent"),
        at_ms=at_ms,
        seen=_seen(found),
        source=_word(found, "source"),
        extra=tuple(sorted((name, value) for name, value in extra.items() if value)),
        identity=identity("lesson", title, text, correct, wrong, at_ms=at_ms),
    )


def _finding(found: Mapping[str, Any]) -> Finding:
    problem = _first(found, "problem", "title", "name", "description")
    if not problem:
        raise UnusableError("nothing to read as its text: no problem or title")
    context, solution = _first(found, "context"), _first(found, "solution", "insight")
    at_ms = _time(found)
    kind = _word(found, "type").casefold()
    return Finding(
        type=kind if kind in FINDING_TYPES else "discovery",
        context=context,
        problem=problem,
        solution=solution,
        tags=_tags(found.get("tags")),
        confidence=_confidence(found.get("confidence")),
        minutes=_whole(found.get("minutes"), 0, MINUTES_MAX),
        agent=_word(found, "agent"),
        at_ms=at_ms,
        identity=identity("finding", problem, context, solution, at_ms=at_ms),
    )


def _first(found: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these texts that says something. All are checked: half a record is no record."""
    texts = [checked(key, found.get(key)) for key in keys]
    return next((text for text in texts if text), "")


def _word(found: Mapping[str, Any], key: str) -> str:
    """Return a field that a record can do without: one of another type, or too long, is left out."""
    try:
        return checked(key, found.get(key))
    except UnusableError:
        return ""


def _tags(value: object) -> tuple[str, ...]:
    said = _COMMA.split(value) if isinstance(value, str) else value if isinstance(value, list) else ()
    tags = (checked("tags", tag) for tag in said if isinstance(tag, str))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[: limits.TAGS_MAX]


def _seen(found: Mapping[str, Any]) -> int:
    counts = (_whole(found.get(name), 1, SEEN_MAX) for name in _COUNTS)
    return next((count for count in counts if count is not None), 1)


def _whole(value: object, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None


def _time(found: Mapping[str, Any]) -> int | None:
    moments = (times.to_ms(found.get(name)) for name in _TIMES)
    return next((moment for moment in moments if moment is not None), None)


def _confidence(value: object) -> str:
    if isinstance(value, str):
        word = value.strip().casefold()
        return word if word in _CONFIDENCES else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if value < _MEDIUM_FROM:
        return "low"
    return "medium" if value < _HIGH_FROM else "high"
