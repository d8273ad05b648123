"""Prefilter of messages: words of which at least one stands in every default phrase of :mod:`fleet.text.signals`.

A hook asks it on every prompt, so it imports nothing, and reads one small file.
"""

LANGUAGES = ("en", "de", "es", "fr", "zh", "ja")
LEVELS = ("weak", "medium", "strong")
PIECE_CHARS = 16 * 1024
"""Of a message longer than twice this, only the first and the last so many characters are looked at."""

_UNSPACED_FROM = 0x2E80  # scripts from here on are written without spaces


def might_signal(message: str) -> bool:
    """Return True where ``signals.detect`` could hear something with the default phrases; in doubt, True.

    Phrases that somebody added in ``fleet.toml`` must be heard too: see :func:`has_own_phrases`.
    """
    if len(message) > 2 * PIECE_CHARS:
        message = f"{message[:PIECE_CHARS]}\n{message[-PIECE_CHARS:]}"
    lower = message.lower()
    if not CUES.isdisjoint(words_of(lower)):
        return True
    return not lower.isascii() and any(cue in lower for cue in CUES_UNSPACED)


def has_own_phrases(toml: str) -> bool:
    """Return True where the text of a ``fleet.toml`` may add phrases, which :func:`might_signal` does not know."""
    lines = [line.partition("#")[0] for line in toml.splitlines() if "=" in line]
    return any(level in line for line in lines for level in LEVELS)


def words_of(text: str) -> list[str]:
    """Return the words of a text, for the languages that put spaces between them."""
    plain = text.replace("*", "")  # Markdown's emphasis may stand within a word
    return "".join([char if is_letter(char) else " " for char in plain]).split()


def is_letter(char: str) -> bool:
    """Return True for a part of a word, in scripts that set words apart by spaces."""
    return ord(char) < _UNSPACED_FROM and (char.isalnum() or char == "_")


def _read() -> list[str]:
    with open(f"{__file__.rpartition('/')[0]}/data/cues.txt", encoding="utf-8") as file:  # noqa: PTH123 - no imports
        return file.read().split()


_ALL = _read()
CUES = frozenset(cue for cue in _ALL if is_letter(cue[0]))
CUES_UNSPACED = tuple(cue for cue in _ALL if not is_letter(cue[0]))
"""The same as parts of phrases, for the languages that put no spaces between words."""
