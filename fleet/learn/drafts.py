"""The border where people's and agents' words enter: cleaned, screened for secrets, held to the limits. Once."""

from pathlib import Path
from typing import NamedTuple

from fleet.keep import limits, screening
from fleet.keep.errors import RefusedError, UsageError
from fleet.keep.normal import normalise


class Text(NamedTuple):
    """A screened text and the kinds of secrets that were taken out of it."""

    text: str
    secrets: tuple[str, ...]


_NOTHING = Text("", ())


def enter(name: str, text: str, *, lines: bool = False, is_harmless: bool = False) -> Text:
    """Screen one field. Secrets become ``[REDACTED:kind]``, unless ``lines`` is set it becomes one line.

    Who knows already that it ``is_harmless`` says so.

    Raises:
        RefusedError: it is longer than a field may be. Nothing is ever cut silently.
    """
    if not text:
        return _NOTHING
    if is_harmless or screening.is_harmless(text):
        screened = screening.Screened(text, (), 0)
    else:
        screened = screening.screen(text, home=str(Path.home()))
    clean = screened.text.strip() if lines else screening.one_line(screened.text)
    # A character takes at most four bytes: only long texts need to be encoded to know.
    if len(clean) * 4 > limits.TEXT_BYTES_MAX and len(clean.encode()) > limits.TEXT_BYTES_MAX:
        raise RefusedError(
            f"--{name} is {len(clean.encode())} bytes long; the limit is {limits.TEXT_BYTES_MAX}. Nothing was written. "
            "Say the lesson in fewer words, and keep the evidence in a file"
        )
    return Text(clean, screened.secrets)


def pattern(text: str, *, is_harmless: bool = False) -> Text:
    """Screen a pattern: a lesson of at least one word; ``is_harmless`` as for ``enter``.

    Raises:
        RefusedError: too long.
        UsageError: no word is left.
    """
    entered = enter("pattern", text, is_harmless=is_harmless)
    check_words(entered.text)
    return entered


def check_words(pattern: str) -> None:
    """Check that a pattern that was screened says something.

    Raises:
        UsageError: no word is left.
    """
    if not normalise(pattern).strip("*_`~#-=|<>[](){}.,;:!?'\" "):
        raise UsageError("--pattern has no words in it: state the lesson, e.g. --pattern 'Check the version first'")
