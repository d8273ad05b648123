"""Names of agents, replicas and fields, and ids: their valid forms, and how a lesson's id is computed.

Names are validated on input, so that no path is ever built from an invalid one. A lesson's id is the hash of its
normalised text, so one lesson has one id on every machine. Normalising removes variations without a meaning: case,
emphasis, white space, a final full stop. It keeps what changes the meaning of an instruction: ``git branch -d`` is not
``-D``, ``C#`` is not ``C``. A change of the normaliser needs a new id prefix, since an id is never computed again.
"""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Literal, NamedTuple

from fleet.model.errors import NoError

_AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_REPLICA = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\.[0-9a-f]{8}", re.ASCII)
_ID = re.compile(r"[a-z][a-z0-9]{0,7}-[0-9a-f]{16}", re.ASCII)

_SHOWN_MAX = 5
_TEXT_CHARS_MAX = 80

PREFIX = "p-"
"""Beginning of a lesson's id."""
IMPORT = "import"
"""Name in place of the author of an imported record that names none; reserved, no agent may have it."""

GUEST = "guest"
"""Agent of a workspace where nobody has named one yet. Its entries stay in its log until an agent is named."""


class _Field(NamedTuple):
    """One field of a lesson.

    Attributes:
        label: its name for people, who may also use the aliases.
        shown: how ``fleet show`` prints it. ``text``: as it is. ``own``: in a special form. "": last, with its name.
        uses: ``asked``: a person is asked before another writer replaces it in many lessons. ``credited``: lists name
            whoever edited it. ``logged``: an optional text of a correction. ``searched``: a search looks in it.
        values: all that it may be set to: a slip as ``Private`` would share the lesson. A purge leaves them, since they
            are nobody's words. (): any words.
    """

    name: str
    label: str
    aliases: tuple[str, ...] = ()
    shown: Literal["", "text", "own"] = ""
    uses: str = ""
    values: tuple[str, ...] = ()


FIELDS = (
    _Field("text", "text", ("pattern", "lesson"), shown="text", uses="asked credited"),
    _Field("wrong", "wrong", uses="credited"),
    _Field("correct", "right", shown="text", uses="asked credited searched"),
    _Field("title", "title", uses="searched"),
    _Field("category", "category", shown="text", uses="asked logged searched"),
    _Field("tags", "tags", ("tag",), shown="own"),
    _Field("trigger", "trigger", shown="own", uses="asked credited logged"),
    _Field("state", "state", shown="own", values=("candidate", "published")),  # it is retired by a remove
    _Field("importance", "importance"),
    _Field("scope", "scope", values=("private", "clan", "")),
    _Field("source", "source"),
)
"""The fields that this version knows, in the order in which they are shown. Others come from newer versions."""
LABELS = {field.name: field.label for field in FIELDS}
"""Field to its name for people. A field of a newer version is not in it, and goes by its own name."""
LOGGED = tuple(field.name for field in FIELDS if "logged" in field.uses)
"""Names of the optional texts of a correction, the same in ``Correction``, in the log and in a line."""


def is_agent(name: str) -> bool:
    """Return whether this is a valid agent's name."""
    return _AGENT.fullmatch(name) is not None and name != IMPORT


def is_replica(name: str) -> bool:
    """Return whether this is a replica's name, ``<agent>.<8 hex>``."""
    return _REPLICA.fullmatch(name) is not None


def is_id(text: str) -> bool:
    """Return whether this is the id of a pattern, a discovery, or a kind of line that a newer version has."""
    return _ID.fullmatch(text) is not None


def only(matches: Mapping[str, str], prefix: str, none: str, *, is_read: bool = False) -> str:
    """Return the only id that matches a prefix; ``matches`` maps each id to a text by which a person knows it.

    Raises ``NoError`` for several matches, for a kind alone (``p-``), and for no match, with the message ``none``.
    ``is_read``: the command only reads, so the message need not say that nothing was changed.
    """
    if not matches:
        raise NoError(none)
    if len(matches) > 1 or not prefix.rpartition("-")[2]:  # an unset variable names nothing, however few there are
        rows = [f"\n  {id_}  {' '.join(text.split())[:_TEXT_CHARS_MAX]}".rstrip() for id_, text in matches.items()]
        shown = "".join(rows[:_SHOWN_MAX]) + ("\n  ..." if len(rows) > _SHOWN_MAX else "")
        changed = "" if is_read else "; nothing was changed"
        raise NoError(f"{prefix[:40]!r} is not enough of an id:{shown}\nGive more of it{changed}")
    return next(iter(matches))


def agent_of(replica: str) -> str:
    """Return the agent of a replica."""
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
    """Return the normalised text. It is a fixed point: normalising it again changes nothing."""
    original = text
    for _ in range(_ROUNDS_MAX):
        if _BARE.fullmatch(text):
            return text  # the usual case after one round: no round changes such a text
        shorter = _round(text)
        if shorter == text:
            return text
        text = shorter
    # Nested too deeply: the original stays, since a text short of the fixed point would get another id the next time.
    return _collapsed(original)


def _collapsed(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _round(text: str) -> str:
    words = _words(_collapsed(text))
    folded = " ".join(word if exact else _fold(word) for word, exact in _without_emphasis(words))
    # `git add .` is not `git add`: a last word of dots alone is an argument, no full stop.
    return folded if not folded.rpartition(" ")[2].strip(".") else folded.rstrip(_FINAL).rstrip()


def _words(text: str) -> list[tuple[str, bool]]:
    """Return the words as (word, is it exact). A code span is one exact word, with its case and marks."""
    words: list[tuple[str, bool]] = []
    end = 0
    is_adjacent = False  # a code span may touch the words beside it: `x`, or (`x`)
    for span in _CODE.finditer(text) if "`" in text else ():
        is_adjacent = _append_words(words, text[end : span.start()], is_adjacent)
        if is_adjacent and words:
            words[-1] = (words[-1][0] + span[0], True)
        else:
            words.append((span[0], True))
        is_adjacent = True
        end = span.end()
    _append_words(words, text[end:], is_adjacent)
    return words


def _append_words(words: list[tuple[str, bool]], plain: str, is_adjacent: bool) -> bool:
    """Append the words of plain text; return whether the text after it touches the last word."""
    for index, word in enumerate(plain.split()):
        if index == 0 and is_adjacent and words and not plain[0].isspace():
            words[-1] = (words[-1][0] + word, words[-1][1])
        else:
            words.append((word, False))
    return not plain[-1].isspace() if plain else is_adjacent


def _fold(word: str) -> str:
    return word.casefold() if _MEANT_EXACTLY.isdisjoint(word.strip(_AROUND) + _lead(word)) else word


def _lead(word: str) -> str:
    """Return a leading dot, which is part of a name such as ``.env``, else ""."""
    return "." if word.startswith(".") and word.strip(_AROUND) else ""


def _without_emphasis(words: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return the words without pairs of emphasis marks, which open before a word and close after it or a later one."""
    bare = list(words)
    opened: dict[str, int] = {}
    for index, (word, _) in enumerate(words):
        if not word.strip("*_"):
            continue  # a lone marker is a wildcard or a rule, no emphasis
        marker = next((m for m in _MARKERS if word.startswith(m) and len(word) > len(m)), None)
        if marker:
            opened[marker] = index
        closing = _closing(word)
        if closing is None or closing not in opened:
            continue
        start = opened.pop(closing)
        # __init__ is a name, not a bold word: two underscores need two words.
        if closing == "__" and start == index:
            continue
        bare[start] = (bare[start][0].removeprefix(closing), bare[start][1])
        bare[index] = (_without_closing(bare[index][0], closing), bare[index][1])
    return [pair for pair in bare if pair[0]]


def _closing(word: str) -> str | None:
    inner = word.rstrip(_AROUND)
    return next((m for m in _MARKERS if inner.endswith(m) and len(inner) > len(m)), None)


def _without_closing(word: str, marker: str) -> str:
    inner = word.rstrip(_AROUND)
    return inner.removesuffix(marker) + word[len(inner) :]
