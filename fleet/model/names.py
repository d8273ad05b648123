"""Names: of agents, replicas and ids, checked as they enter, so that no path is built from others; a lesson's id.

A lesson's id is the hash of its normalised text, so that one lesson has one id on every machine. What people vary
without meaning anything by it goes: case, emphasis, white space, a final full stop. What changes the meaning of an
instruction stays: ``git branch -d`` is not ``-D``, ``C#`` is not ``C``. A changed normaliser takes
a new id prefix, since ids are computed once and never again.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from fleet.model.errors import NoError

_AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_REPLICA = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\.[0-9a-f]{8}", re.ASCII)
_ID = re.compile(r"[a-z][a-z0-9]{0,7}-[0-9a-f]{16}", re.ASCII)

_SHOWN_MAX = 5

PREFIX = "p-"
"""Beginning of a lesson's id."""
IMPORT = "import"
"""Stands for the author of an imported record that names none: no real agent may bear it."""

GUEST = "guest"
"""Works where nobody has named an agent yet. What it logs stays in its log, on this machine, until one is named."""


def is_agent(name: str) -> bool:
    """Tell whether this can be an agent's name."""
    return _AGENT.fullmatch(name) is not None and name != IMPORT


def is_replica(name: str) -> bool:
    """Tell whether this is a replica's name, ``<agent>.<8 hex>``."""
    return _REPLICA.fullmatch(name) is not None


def is_id(text: str) -> bool:
    """Tell whether this is the id of a pattern, a discovery, or of something that a later version knows."""
    return _ID.fullmatch(text) is not None


def only(found: Sequence[str], prefix: str, none: str) -> str:
    """Return the only id of those that begin with a prefix.

    Raises:
        NoError: there are several; or there is none, and ``none`` is the message.
    """
    if not found:
        raise NoError(none)
    if len(found) > 1:
        shown = ", ".join(found[:_SHOWN_MAX]) + (", ..." if len(found) > _SHOWN_MAX else "")
        raise NoError(f"{prefix[:40]} is not unique: {shown}. Give more of the id; nothing was changed")
    return found[0]


def agent_of(replica: str) -> str:
    """Return the agent whose install this replica is."""
    return replica.rpartition(".")[0]


# --- the id of a lesson ---------------------------------------------------------------------------------------------

_CODE = re.compile(r"(?<!`)(`+)([^`]+)\1(?!`)")  # without the look-behind, a run of backticks takes quadratic time
_BARE = re.compile(r"[a-z0-9-]++(?: [a-z0-9-]++)*+")
_MEANT_EXACTLY = frozenset("-_./#+*0123456789")
_FINAL = ".!?…"
_AROUND = ".,;:!?…()[]{}\"'“”‘’«»"
_MARKERS = ("***", "**", "*", "__", "_")
_ROUNDS_MAX = 64  # each round only shortens or folds; more than a few are never needed


def pattern_id(text: str) -> str:
    """Return ``p-`` and 16 hex digits of BLAKE2b over the normalised text."""
    return PREFIX + hashlib.blake2b(normalise(text).encode(), digest_size=8).hexdigest()


def normalise(text: str) -> str:
    """Return the text without what does not change its meaning. Idempotent: repeated until nothing changes."""
    given = text
    for _ in range(_ROUNDS_MAX):
        if _BARE.fullmatch(text):
            return text  # as most are once their case is folded: nothing in it could change
        shorter = _round(text)
        if shorter == text:
            return text
        text = shorter
    # Nested deeper than anybody means: left as it is, since a half-done text would get another id the next time.
    return _collapsed(given)


def _collapsed(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _round(text: str) -> str:
    words = _words(_collapsed(text))
    folded = " ".join(word if exact else _fold(word) for word, exact in _without_emphasis(words))
    # `git add .` is not `git add`: a last word of dots alone is an argument, no full stop.
    return folded if not folded.rpartition(" ")[2].strip(".") else folded.rstrip(_FINAL).rstrip()


def _words(text: str) -> list[tuple[str, bool]]:
    """Split at blanks into (word, exact). A code span stays in one piece, with its case and marks."""
    words: list[tuple[str, bool]] = []
    at = 0
    glued = False  # a code span may touch the words beside it: `x`, or (`x`)
    for span in _CODE.finditer(text) if "`" in text else ():
        glued = _put(words, text[at : span.start()], glued)
        if glued and words:
            words[-1] = (words[-1][0] + span[0], True)
        else:
            words.append((span[0], True))
        glued = True
        at = span.end()
    _put(words, text[at:], glued)
    return words


def _put(words: list[tuple[str, bool]], plain: str, glued: bool) -> bool:
    """Append the words of plain text; tell whether what follows it touches the last of them."""
    for number, word in enumerate(plain.split()):
        if number == 0 and glued and words and not plain[0].isspace():
            words[-1] = (words[-1][0] + word, words[-1][1])
        else:
            words.append((word, False))
    return bool(plain) and not plain[-1].isspace() if plain else glued


def _fold(word: str) -> str:
    return word.casefold() if _MEANT_EXACTLY.isdisjoint(word.strip(_AROUND) + _lead(word)) else word


def _lead(word: str) -> str:
    """A dot in front counts (``.env``), one behind is a full stop."""
    return "." if word.startswith(".") and word.strip(_AROUND) else ""


def _without_emphasis(words: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Drop pairs of emphasis marks that open before one word and close behind the same or a later one."""
    bare = list(words)
    opened: dict[str, int] = {}
    for at, (word, _) in enumerate(words):
        if not word.strip("*_"):
            continue  # a lone marker is a wildcard or a rule, no emphasis
        marker = next((m for m in _MARKERS if word.startswith(m) and len(word) > len(m)), None)
        if marker:
            opened[marker] = at
        closing = _closing(word)
        if closing is None or closing not in opened:
            continue
        start = opened.pop(closing)
        # __init__ is a name, not a bold word: two underscores need two words.
        if closing == "__" and start == at:
            continue
        first = bare[start][0].removeprefix(closing)
        bare[start] = (first, bare[start][1])
        bare[at] = (_cut_closing(bare[at][0], closing), bare[at][1])
    return [pair for pair in bare if pair[0]]


def _closing(word: str) -> str | None:
    inner = word.rstrip(_AROUND)
    return next((m for m in _MARKERS if inner.endswith(m) and len(inner) > len(m)), None)


def _cut_closing(word: str, marker: str) -> str:
    inner = word.rstrip(_AROUND)
    return inner.removesuffix(marker) + word[len(inner) :]
