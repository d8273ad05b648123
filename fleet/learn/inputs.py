"""Validation of the words that people and agents give: cleaned, screened for secrets, held to the limits."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fleet.model import limits
from fleet.model.errors import RefusedError, UsageError
from fleet.model.names import normalise
from fleet.text import apostrophed, screening, tables


class Text(NamedTuple):
    """A screened text, and the kinds of secrets that were removed from it."""

    text: str
    secrets: tuple[str, ...] = ()

    @classmethod
    def enter(cls, name: str, text: str, *, lines: bool = False) -> "Text":
        """Return one field, screened: secrets become ``[REDACTED:kind]``, and without ``lines`` it becomes one line.

        Raises:
            RefusedError: it is longer than a field may be.
        """
        text = _UNREAD.sub(lambda found: found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), text)
        screened = screening.screen(text, home=str(Path.home())) if text else screening.ScreenedText("", ())
        clean = screened.text.strip() if lines else screening.one_line(screened.text)
        if len(clean.encode()) > limits.TEXT_BYTES_MAX:
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
        if not entered.has_words():
            raise UsageError("--pattern has no words in it: state the lesson, e.g. --pattern 'Check the version first'")
        return entered

    def has_words(self) -> bool:
        """Return whether the text has more than punctuation and marks."""
        return bool(normalise(self.text).strip("*_`~#-=|<>[](){}.,;:!?'\" "))

    def is_story(self) -> bool:
        """Return whether the text tells what somebody did, instead of a rule for the next time."""
        words = _PLAIN_WORD.findall(apostrophed(_CODE_SPAN.sub(" x ", self.text).casefold()))
        if _phrases()["rules"].intersection(words):
            return False
        return _reports_deed(words) or _reports_deed_unspaced(self.text)

    def is_routine(self) -> bool:
        """Return whether the text is nothing but a solution that anybody would have found."""
        words = self.text.casefold().rstrip(".!。！ ").split()
        return len(words) <= _phrases()["routine_words_max"] and " ".join(words).startswith(
            tuple(_phrases()["routine"])
        )


def secrets_in(entered: Iterable[Text]) -> tuple[str, ...]:
    """Return the kinds of secrets that were removed from several texts, sorted, each once."""
    return tuple(sorted({kind for each in entered for kind in each.secrets}))


# --- stories and routine fixes ----------------------------------------------------------------------------------------

_PLAIN_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_CODE_SPAN = re.compile(r"`[^`]*`")
_UNREAD = re.compile("[\udc80-\udcff]+")
"""Bytes of the command line that were not decoded: UTF-8 in a plain C locale, or Latin-1."""
_FIRST_WORDS_MAX = 6
"""Number of words at a text's beginning in which "somebody did something" is searched for."""
_ED_CHARS_MIN = 5


@cache
def _phrases() -> dict[str, Any]:
    """Return the content of ``data/telling.toml``, words as sets of them."""
    raw = tables(str(Path(__file__).with_name("data") / "telling.toml"))
    return {name: frozenset(value.split()) if isinstance(value, str) else value for name, value in raw.items()}


def _reports_deed(words: list[str]) -> bool:
    """Return whether the words begin with what somebody did: "I just used", or "Used the wrong"."""
    phrases = _phrases()
    first, second, *_ = [*(word for word in words[:_FIRST_WORDS_MAX] if word not in phrases["between"]), "", ""]
    if first in phrases["tellers"]:
        return second in phrases["pasts"] or (second.endswith("ed") and len(second) >= _ED_CHARS_MIN)
    return first in phrases["bare_pasts"] and second in phrases["objects"]


def _reports_deed_unspaced(text: str) -> bool:
    """Return the same as ``_reports_deed`` for a language without blanks between words."""
    phrases, text = _phrases(), text.strip()
    if not text.startswith(tuple(phrases["tellers_unspaced"])):
        return False
    is_over, is_rule = (any(word in text for word in phrases[f"{name}_unspaced"]) for name in ("over", "rules"))
    return is_over and not is_rule
