"""Validation of the words that people and agents give: cleaned, screened for secrets, held to the limits."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fleet.model import limits
from fleet.model.errors import RefusedError, UsageError
from fleet.model.names import normalise
from fleet.text import screening


class Text(NamedTuple):
    """A screened text and the kinds of secrets that were taken out of it."""

    text: str
    secrets: tuple[str, ...]


def enter(name: str, text: str, *, lines: bool = False) -> Text:
    """Return one field, screened: secrets become ``[REDACTED:kind]``, and unless ``lines`` is set it becomes one line.

    Raises:
        RefusedError: it is longer than a field may be. Nothing is ever cut silently.
    """
    screened = screening.screen(text, home=str(Path.home())) if text else screening.Screened("", (), 0)
    clean = screened.text.strip() if lines else screening.one_line(screened.text)
    # A character takes at most four bytes: only long texts need to be encoded to know.
    if len(clean) * 4 > limits.TEXT_BYTES_MAX and len(clean.encode()) > limits.TEXT_BYTES_MAX:
        raise RefusedError(
            f"--{name} is {len(clean.encode())} bytes long; the limit is {limits.TEXT_BYTES_MAX}. Nothing was written. "
            "Say the lesson in fewer words, and keep the evidence in a file"
        )
    return Text(clean, screened.secrets)


def lesson(text: str) -> Text:
    """Return a pattern, screened: a lesson of at least one word.

    Raises:
        RefusedError: too long.
        UsageError: no word is left.
    """
    entered = enter("pattern", text)
    if not has_words(entered.text):
        raise UsageError("--pattern has no words in it: state the lesson, e.g. --pattern 'Check the version first'")
    return entered


def has_words(text: str) -> bool:
    """Tell whether a text says something, and is not marks alone."""
    return bool(normalise(text).strip("*_`~#-=|<>[](){}.,;:!?'\" "))


def kinds(entered: Iterable[Text]) -> tuple[str, ...]:
    """Return the kinds of secrets that were taken out of several texts, sorted, each once."""
    return tuple(sorted({kind for each in entered for kind in each.secrets}))
