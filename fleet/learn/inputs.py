"""Validation of the words that people and agents give: cleaned, screened for secrets, held to the limits."""

import difflib
import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fleet.model import limits
from fleet.model.errors import RefusedError, UsageError
from fleet.model.line import BadLineError, canonical, check_value
from fleet.model.names import normalise
from fleet.model.pattern import Pattern
from fleet.text import screening


class Text(NamedTuple):
    """A screened text and the kinds of secrets that were taken out of it."""

    text: str
    secrets: tuple[str, ...] = ()

    @classmethod
    def enter(cls, name: str, text: str, *, lines: bool = False) -> "Text":
        """Return one field, screened: secrets become ``[REDACTED:kind]``, and without ``lines`` it becomes one line.

        Raises:
            RefusedError: it is longer than a field may be.
        """
        text = _UNREAD.sub(lambda found: found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), text)
        screened = screening.screen(text, home=str(Path.home())) if text else screening.ScreenedText("", (), 0)
        clean = screened.text.strip() if lines else screening.one_line(screened.text)
        # A character takes at most four bytes: only long texts need to be encoded to know.
        if len(clean) * 4 > limits.TEXT_BYTES_MAX and len(clean.encode()) > limits.TEXT_BYTES_MAX:
            raise RefusedError(
                f"--{name} is {len(clean.encode())} bytes long; the limit is {limits.TEXT_BYTES_MAX}. Nothing was "
                "written. Say the lesson in fewer words, and keep the evidence in a file"
            )
        return cls(clean, screened.secrets)

    @classmethod
    def lesson(cls, text: str) -> "Text":
        """Return a pattern, screened: a lesson of at least one word.

        Raises:
            RefusedError: too long.
            UsageError: no word is left.
        """
        entered = cls.enter("pattern", text)
        if not _has_words(entered.text):
            raise UsageError("--pattern has no words in it: state the lesson, e.g. --pattern 'Check the version first'")
        return entered

    def is_story(self) -> bool:
        """Return whether the text says what somebody did, and no rule for the next time."""
        words = [word.replace("’", "'") for word in _PLAIN_WORD.findall(_CODE_SPAN.sub(" x ", self.text).casefold())]
        if _phrases()["rules"].intersection(words):
            return False
        return _reports_deed(words) or _reports_deed_unspaced(self.text)

    def is_routine(self) -> bool:
        """Return whether the text is nothing but a solution that anybody would have found."""
        words = self.text.casefold().rstrip(".!。！ ").split()
        return len(words) <= _phrases()["routine_words_max"] and " ".join(words).startswith(
            tuple(_phrases()["routine"])
        )


def _has_words(text: str) -> bool:
    """Return whether a text has more than marks."""
    return bool(normalise(text).strip("*_`~#-=|<>[](){}.,;:!?'\" "))


def secrets_in(entered: Iterable[Text]) -> tuple[str, ...]:
    """Return the kinds of secrets that were removed from several texts, sorted, each once."""
    return tuple(sorted({kind for each in entered for kind in each.secrets}))


STATES = ("candidate", "published")
"""Values that ``state`` may be set to; a retired lesson is removed, which is no state."""

ALIASES = {"right": "correct", "pattern": "text", "lesson": "text", "tag": "tags"}
"""Name in a record by name of the field in `fleet correct`."""
KNOWN = frozenset(
    {"category", "correct", "importance", "scope", "source", "state", "tags", "text", "title", "trigger", "wrong"}
)
"""Fields that this version knows. Others come from newer versions, and can be changed where a lesson has them."""
_RESERVED = {
    "merged_into": "`fleet merge A B` sets it, `fleet unmerge A` clears it",
    "id": "an id is computed once, from the first text, and never again",
    "v": "it says which version wrote a line",
}
_ATTRIBUTION = r"(?a)agent\.[0-9a-f]{8}"
_NAME = r"(?a)[a-z][a-z0-9_.-]*"


class Change(NamedTuple):
    """One field, its new value, and the kinds of secrets that were removed from it."""

    field: str
    value: Any
    secrets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, assignment: str) -> "Change":
        """Parse ``field=value``, screened and within the limits.

        A value is text; ``importance`` is a number, and ``tags`` are words between commas.

        Raises:
            UsageError: no ``field=value``, a field that is not set this way, or a value that it cannot have.
            RefusedError: beyond a limit.
        """
        field, equals, given = assignment.partition("=")
        field = ALIASES.get(field.strip(), field.strip())
        if not equals or not field:
            raise UsageError(f"--set takes field=value, not {assignment[:60]!r}. Nothing was changed")
        _check_name(field)
        change = _tags(given) if field == "tags" else cls(field, *Text.enter(f"set {field}", given))
        change = change._replace(value=_importance(given)) if field == "importance" else change
        _check_meaning(change)
        try:
            check_value(field, change.value)
        except BadLineError as why:
            raise RefusedError(f"{why}; nothing was changed. Say it shorter") from why
        return change

    def check_known(self, known: Pattern) -> None:
        """Check that this version knows the field, or the lesson has it.

        Raises:
            UsageError: neither; the nearest known field is named.
        """
        if self.field in KNOWN or self.field in known.fields:
            return
        near = difflib.get_close_matches(self.field, sorted({*KNOWN, *ALIASES, *known.fields}), n=1)
        meant = f"; did you mean '{near[0]}'?" if near else f": one of {', '.join(sorted(KNOWN))}."
        raise UsageError(f"a lesson has no field '{self.field}'{meant} Nothing was changed")

    def differs(self, known: Pattern) -> bool:
        """Return whether it would change anything: compared as canonical bytes, ``1`` is not ``true``."""
        return self.field not in known.fields or canonical(known.fields[self.field]) != canonical(self.value)


def _check_name(field: str) -> None:
    if why := _RESERVED.get(field):
        raise UsageError(f"'{field}' is not edited: {why}. Nothing was changed")
    if re.fullmatch(_ATTRIBUTION, field):
        raise UsageError(f"'{field}' tells who logged an imported record, and is not edited. Nothing was changed")
    if len(field) > limits.NAME_CHARS_MAX or not re.fullmatch(_NAME, field):
        raise UsageError(
            f"{field[:60]!r} cannot be a field's name: up to {limits.NAME_CHARS_MAX} of a-z, 0-9, '.', '_' and '-'. "
            "Nothing was changed"
        )


def _tags(given: str) -> Change:
    if re.search(r'["\[\]{}]', given):
        raise UsageError("tags are words with commas between: --set tags=ci,git. Nothing was changed")
    screened = [Text.enter("set tags", tag) for tag in given.split(",")]
    return Change("tags", sorted({tag.text for tag in screened if tag.text}), secrets_in(screened))


def _importance(given: str) -> float:
    with suppress(ValueError):
        if 0 <= (found := float(given)) <= 1:
            return found
    raise UsageError("importance is a number from 0 to 1. Nothing was changed")


def _check_meaning(change: Change) -> None:
    field, value = change.field, change.value
    if field == "text" and not _has_words(value):
        raise UsageError("a lesson needs a text with words in it; `fleet retire` takes one out. Nothing was changed")
    if field == "state" and value not in STATES:
        raise UsageError(
            f"state is {' or '.join(STATES)}, not {value[:40]!r}; `fleet retire` takes one out. Nothing was changed"
        )


# --- stories and routine fixes ----------------------------------------------------------------------------------------

_PLAIN_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?")
_CODE_SPAN = re.compile(r"`[^`]*`")
_UNREAD = re.compile("[\udc80-\udcff]+")
"""Bytes of the command line that were not decoded: UTF-8 in a plain C locale, or Latin-1."""
_FIRST_WORDS_MAX = 6
"""Number of words at a text's beginning that are searched for who did what."""
_ED_CHARS_MIN = 5


@cache
def _phrases() -> dict[str, Any]:
    """Return the content of ``data/telling.toml``, words as sets of them."""
    with Path(__file__).with_name("data").joinpath("telling.toml").open("rb") as file:
        raw = tomllib.load(file)
    return {name: frozenset(value.split()) if isinstance(value, str) else value for name, value in raw.items()}


def _reports_deed(words: list[str]) -> bool:
    """Return whether the words begin with what somebody did: "I just used", or "Used the wrong"."""
    phrases = _phrases()
    first, second, *_ = [*(word for word in words[:_FIRST_WORDS_MAX] if word not in phrases["between"]), "", ""]
    if first in phrases["tellers"]:
        return second in phrases["pasts"] or (second.endswith("ed") and len(second) >= _ED_CHARS_MIN)
    return first in phrases["bare_pasts"] and second in phrases["objects"]


def _reports_deed_unspaced(text: str) -> bool:
    """Return the same for a language without blanks between words."""
    phrases, text = _phrases(), text.strip()
    if not text.startswith(tuple(phrases["tellers_unspaced"])):
        return False
    return _has_any(text, phrases["over_unspaced"]) and not _has_any(text, phrases["rules_unspaced"])


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)
