"""Reflection on a session: the JSON of the seed as a strict type, recovered from whatever a model wrote around it.

Beside the seed's fields there is ``lessons``: each with the quotation that supports it, and how. Recovery knows
strings: a brace inside one opens and closes nothing. Of several objects the largest valid one counts; of an object
that breaks off, what was said until then.
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from fleet.store.config import BANNED

ANSWER_CHARS_MAX = 512 * 1024
_OBJECTS_MAX = 60
_MENDED_MAX = 3
_CUTS_MAX = 9
_DEPTH_MAX = 32
_LIST_MAX = 50
_SLUG = re.compile(r"[a-z][a-z0-9-]{1,49}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],]|"', re.DOTALL)
_TEXTS = ("what_worked", "what_didnt", "skill_slug", "skill_description", "skill_body")
_OUTCOMES = ("success", "partial", "failure")

PERSON: Literal["person"] = "person"
FAILURE: Literal["failure"] = "failure"
_By = Literal["person", "failure", ""]
Outcome = Literal["success", "partial", "failure"]


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson that a session taught.

    Attributes:
        text: the lesson, so that it helps elsewhere.
        wrong: what was done, refused or failing.
        quote: words of the session that support it.
        by: ``person`` where a person said so, ``failure`` where a command failed and then worked; "" for neither.
        line: number of the transcript's line with the quotation; 0 for unknown.
    """

    text: str
    wrong: str = ""
    right: str = ""
    quote: str = ""
    by: _By = ""
    line: int = 0


class Reflection(msgspec.Struct, frozen=True, kw_only=True):
    """What a reflector says of a session: the seed's fields, and ``lessons``."""

    outcome: Outcome
    what_worked: str | None = None
    what_didnt: str | None = None
    should_skill: bool = False
    skill_slug: str | None = None
    skill_description: str | None = None
    skill_body: str | None = None
    memory_notes: tuple[str, ...] = ()
    persona_observations: tuple[str, ...] = ()
    next_check_at: str | None = None
    user_model_updates: dict[str, tuple[str, ...]] = {}
    lessons: tuple[Lesson, ...] = ()


class _Parsed(NamedTuple):
    """Outcome of reading an answer: the reflection in it, if there is one; why there is none, or what was lost."""

    reflection: Reflection | None
    trouble: str = ""


def parse(answer: str, banned: Sequence[str] = BANNED) -> _Parsed:
    """Return the reflection that an answer holds.

    ``banned``: words of which one, anywhere in the reflection, rejects all of it.
    """
    answer, why = answer[-ANSWER_CHARS_MAX:], "there is no JSON object in the answer"
    # The largest whole one; one with commas too many, or that breaks off, only where there is no whole one.
    for found, trouble in _readings(answer):
        valid = list[tuple[int, Reflection]]()
        for size, told in found:
            try:
                valid.append((size, _validated(told)))
            except ValueError as fault:
                why = str(fault)
        if valid:
            _, best = max(valid, key=lambda each: each[0])
            if word := _banned_word(best, banned):
                return _Parsed(None, f"the banned word {word!r} is in it: all of it is rejected")
            return _Parsed(best, trouble)
    return _Parsed(None, why)


def _banned_word(reflection: Reflection, banned: Sequence[str]) -> str:
    """Return the first banned word in a reflection, as a whole word in any case; "" for none."""
    words = [re.escape(word.strip()) for word in banned if word.strip()]
    if not words:
        return ""
    said = "\n".join(_texts(msgspec.to_builtins(reflection)))
    found = re.search(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", said, re.IGNORECASE)
    return found[0] if found else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(each)


# --- recovery ---------------------------------------------------------------------------------------------------------

_Objects = list[tuple[int, dict[str, Any]]]
"""JSON objects, each with its size."""


def _readings(answer: str) -> Iterator[tuple[_Objects, str]]:
    """Yield what an answer may hold, the best reading first, and what was lost in it."""
    yield _objects(answer), ""
    yield _objects(re.sub(r",(\s*[}\]])", r"\1", answer)), ""  # what models write most
    begins = islice(re.finditer(r"\{", answer), _MENDED_MAX)
    broken = [(len(answer) - each.start(), _broken_off(answer[each.start() :])) for each in begins]
    told = "the answer breaks off; what was said until then was read"
    yield [(size, found) for size, found in broken if found is not None], told


def _objects(answer: str) -> _Objects:
    """Return the outermost JSON objects of a text."""
    decoder, found, at = json.JSONDecoder(strict=False), _Objects(), answer.find("{")
    for _ in range(_OBJECTS_MAX):
        if at < 0:
            break
        end = at + 1
        with suppress(ValueError, RecursionError):
            told, end = decoder.raw_decode(answer, at)
            found.append((end - at, told))
        at = answer.find("{", end)
    return found


def _broken_off(text: str) -> dict[str, Any] | None:
    """Return an object that does not end, closed where the text does; else before one of its last members."""
    stack, cuts = list[str](), deque[tuple[int, str]](maxlen=_CUTS_MAX)
    closers = ""
    for found in _TOKEN.finditer(text):
        sign = found[0]
        if sign in "{[":
            stack.append("}" if sign == "{" else "]")
            if len(stack) > _DEPTH_MAX:
                return None
            cuts.append((found.end(), "".join(reversed(stack))))
        elif sign in "}]" and (not stack or stack.pop() != sign or not stack):
            return None
        elif sign == ",":
            cuts.append((found.start(), "".join(reversed(stack))))
        elif sign == '"':  # of a string that has no end
            closers = sign
            break
    cuts.append((len(text), closers + "".join(reversed(stack))))
    for end, closing in reversed(cuts):
        with suppress(ValueError, RecursionError):
            return json.loads(text[:end] + closing, strict=False) or None
    return None


# --- validation -------------------------------------------------------------------------------------------------------


def _validated(found: dict[str, Any]) -> Reflection:
    """Return the reflection that an object is, normalised.

    Raises:
        ValueError: it is none.
    """
    outcome, should_skill = found.get("outcome"), found.get("should_skill", False)
    if outcome not in _OUTCOMES:
        raise ValueError(f"outcome is {str(outcome)[:40]!r}, not one of {', '.join(_OUTCOMES)}")
    if not isinstance(should_skill, bool):
        raise ValueError(f"should_skill is {str(should_skill)[:40]!r}, neither true nor false")
    texts = {name: _text(found.get(name), name) for name in _TEXTS}
    slug = texts["skill_slug"]
    if should_skill and (slug is None or not _SLUG.fullmatch(slug)):
        raise ValueError(f"skill_slug {str(slug)[:60]!r} is none: a-z, then a-z, 0-9 and '-', 2 to 50 characters")
    lists = {name: _list(found.get(name), name) for name in ("memory_notes", "persona_observations")}
    more = {
        "next_check_at": _moment(found.get("next_check_at")),
        "user_model_updates": _updates(found.get("user_model_updates")),
        "lessons": list(_lessons(found.get("lessons"))),
    }
    return msgspec.convert({"outcome": outcome, "should_skill": should_skill, **texts, **lists, **more}, Reflection)


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return _clean(value or "") or None


def _list(value: Any, name: str) -> list[str]:
    if value is not None and (not isinstance(value, list) or not all(isinstance(each, str) for each in value)):
        raise ValueError(f"{name} is no list of texts")
    return [said for each in (value or ())[:_LIST_MAX] if (said := _clean(each))]


def _updates(value: Any) -> dict[str, list[str]]:
    if value is not None and not isinstance(value, dict):
        raise ValueError("user_model_updates is no object")
    found = {_clean(str(peer)): _list(said, "user_model_updates") for peer, said in (value or {}).items()}
    return {peer: said for peer, said in found.items() if peer and said}


def _moment(value: Any) -> str | None:
    """Return a moment in ISO 8601, UTC; None for what is none."""
    try:
        moment = datetime.fromisoformat(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, AttributeError):
        return None


def _lessons(value: Any) -> Iterator[Lesson]:
    """Yield the lessons of a reflection; one without words is none. The seed knows no such field: nothing rejects."""
    for each in value[:_LIST_MAX] if isinstance(value, list) else ():
        told = each if isinstance(each, dict) else {"text": each}  # a model's short form
        given = {name: told.get(name) for name in ("text", "wrong", "right", "quote")}
        said = {name: _clean(text) for name, text in given.items() if isinstance(text, str)}
        if said.get("text"):
            by, line = told.get("by"), told.get("line")
            said_by: _By = PERSON if by == PERSON else FAILURE if by == FAILURE else ""
            yield Lesson(**said, by=said_by, line=line if isinstance(line, int) and 0 < line < 10**9 else 0)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().strip()
