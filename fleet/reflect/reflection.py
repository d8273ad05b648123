"""Reflection on a session: the JSON of the seed as a strict type, recovered from whatever a model wrote around it.

Beside the seed's fields there is ``lessons``: each with the quotation that supports it, and how. Recovery knows
strings: a brace inside one opens and closes nothing. Of several objects the largest valid one counts; of an object
that breaks off, what was said until then.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from fleet.store.config import BANNED

ANSWER_CHARS_MAX = 512 * 1024
_OBJECTS_MAX = 60
_MENDED_MAX = 3
_DEPTH_MAX = 32
_LIST_MAX = 50
_NOTE_CHARS_MAX = 500
_SLUG = re.compile(r"[a-z][a-z0-9-]{1,49}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]]|"', re.DOTALL)
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
    """Outcome of reading an answer.

    Attributes:
        reflection: None where there is none in it.
        trouble: why there is none, or what of it was lost; "" where all is well.
    """

    reflection: Reflection | None
    trouble: str = ""
    banned: str = ""


def parse(answer: str, banned: Sequence[str] = BANNED) -> _Parsed:
    """Return the reflection that an answer holds.

    ``banned``: words of which one, anywhere in the reflection, rejects all of it.
    """
    why = "there is no JSON object in the answer"
    best: tuple[int, Reflection, str] | None = None
    if len(answer) > ANSWER_CHARS_MAX:
        answer = answer[-ANSWER_CHARS_MAX:]
    for found, size, trouble in _objects(answer):
        try:
            reflection = _validated(found)
        except ValueError as fault:
            if best is None:
                why = str(fault)
            continue
        # The largest whole one; one that breaks off only where there is no whole one.
        if best is None or (not trouble, size) > (not best[2], best[0]):
            best = (size, reflection, trouble)
    if best is None:
        return _Parsed(None, why)
    if word := _banned_word(best[1], banned):
        return _Parsed(None, f"the banned word {word!r} is in it: all of it is rejected", word)
    return _Parsed(best[1], best[2])


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
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


# --- recovery ---------------------------------------------------------------------------------------------------------


def _objects(answer: str) -> Iterator[tuple[dict[str, Any], int, str]]:
    """Yield the outermost JSON objects of a text, with their sizes, and what was lost of one that breaks off."""
    at, mending = 0, _MENDED_MAX
    for _ in range(_OBJECTS_MAX):
        at = answer.find("{", at)
        if at < 0:
            return
        end, closers = _span(answer, at)
        if end:
            found = _loaded(answer[at:end])
            if isinstance(found, dict):
                yield found, end - at, ""
                at = end
                continue
        elif closers and mending:
            mending -= 1
            if (mended := _mended(answer[at:], closers)) is not None:
                yield mended, len(answer) - at, "the answer breaks off; what was said until then was read"
        at += 1


def _span(text: str, at: int) -> tuple[int, str]:
    """Return where the object that begins here ends, 0 if it does not; and what would close it where the text ends."""
    stack: list[str] = []
    for found in _TOKEN.finditer(text, at):
        sign = found[0]
        if sign == '"':  # of a string that has no end
            return 0, '"' + "".join(reversed(stack))
        if sign in "{[":
            stack.append("}" if sign == "{" else "]")
            if len(stack) > _DEPTH_MAX:
                return 0, ""
        elif sign in "}]":
            if not stack or stack.pop() != sign:
                return 0, ""
            if not stack:
                return found.end(), ""
    return 0, "".join(reversed(stack))


def _mended(text: str, closers: str) -> dict[str, Any] | None:
    """Return an object that breaks off, closed where it does; else without its last member."""
    found = _loaded(text + closers)
    if isinstance(found, dict):
        return found
    cut = text
    for _ in range(8):
        at = max(cut.rfind(","), cut.rfind("{"), cut.rfind("["))
        if at <= 0:
            break
        cut = cut[:at] if cut[at] == "," else cut[: at + 1]
        _, closers = _span(cut, 0)
        found = _loaded(cut + closers)
        if isinstance(found, dict):
            return found or None
        cut = cut[:at]
    return None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:  # trailing commas are what models write most
        return json.loads(re.sub(r",(\s*[}\]])", r"\1", text), strict=False)
    except (ValueError, RecursionError):
        return None


# --- validation -------------------------------------------------------------------------------------------------------


def _validated(found: dict[str, Any]) -> Reflection:
    """Return the reflection that an object is, normalised.

    Raises:
        ValueError: it is none.
    """
    outcome = found.get("outcome")
    if outcome not in _OUTCOMES:
        raise ValueError(f"outcome is {str(outcome)[:40]!r}, not one of {', '.join(_OUTCOMES)}")
    should_skill = found.get("should_skill", False)
    if not isinstance(should_skill, bool):
        raise ValueError(f"should_skill is {str(should_skill)[:40]!r}, neither true nor false")
    slug = _text(found, "skill_slug")
    if should_skill and (slug is None or not _SLUG.fullmatch(slug)):
        raise ValueError(f"skill_slug {str(slug)[:60]!r} is none: a-z, then a-z, 0-9 and '-', 2 to 50 characters")
    return Reflection(
        outcome=outcome,
        what_worked=_text(found, "what_worked"),
        what_didnt=_text(found, "what_didnt"),
        should_skill=should_skill,
        skill_slug=slug,
        skill_description=_text(found, "skill_description"),
        skill_body=_text(found, "skill_body"),
        memory_notes=_list(found.get("memory_notes"), "memory_notes"),
        persona_observations=_list(found.get("persona_observations"), "persona_observations"),
        next_check_at=_moment(found.get("next_check_at")),
        user_model_updates=_updates(found.get("user_model_updates")),
        lessons=tuple(_lessons(found.get("lessons"))),
    )


def _text(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return _clean(value).strip() or None


def _list(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} is no list of texts")
    return tuple(said for each in value[:_LIST_MAX] if (said := _clean(each).strip()))


def _updates(value: Any) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("user_model_updates is no object")
    found = {_clean(str(peer)).strip(): _list(said, "user_model_updates") for peer, said in value.items()}
    return {peer: said for peer, said in found.items() if peer and said}


def _moment(value: Any) -> str | None:
    """Return a moment in ISO 8601, UTC; None for what is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return None


def _lessons(value: Any) -> Iterator[Lesson]:
    """Yield the lessons of a reflection; one without words is none. The seed knows no such field: nothing rejects."""
    for each in value[:_LIST_MAX] if isinstance(value, list) else ():
        if isinstance(each, str):
            each = {"text": each}  # noqa: PLW2901 - a model's short form
        if not isinstance(each, dict):
            continue
        said = {
            name: _clean(given).strip()
            for name in ("text", "wrong", "right", "quote")
            if isinstance(given := each.get(name), str)
        }
        if said.get("text"):
            line = each.get("line")
            by: _By = PERSON if each.get("by") == PERSON else FAILURE if each.get("by") == FAILURE else ""
            yield Lesson(**said, by=by, line=line if isinstance(line, int) and 0 < line < 10**9 else 0)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
