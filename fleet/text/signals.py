"""Detection of corrections: phrases in a message, weighed and added up. A table and a few features, nothing learned.

Only the sender's own words count (:mod:`fleet.text.prompts`), and within them the phrases of ``data/phrases.toml``. A
phrase is worth 3 (strong), 2 (medium) or 1 (weak) points, and

* nothing, when it is negated in its clause (25 characters back: "not wrong");
* 1 less, when it is not strong and its sentence asks, or describes a case ("if it is wrong"), or the message opens with
  a task's word ("add", "can you").

Weak phrases count in a short message only, and there only together with another or as its first words. Points of
different phrases add up: 3 make a strong signal, 2 a medium one, 1 a weak one. A message that opens with an exclusion
("no problem") is none, unless a strong phrase follows. The kind is the first of frustration, knowledge, correction that
was heard; only where these together miss the minimum does praise come back, as ``validation``, which corrects nothing.

Everything is plain text search, so time is linear in the message and no phrase of a configuration can change that.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fleet.text.prompts import (
    LANGUAGES,
    LEVELS,
    SAID_CHARS_MAX,
    Event,
    Objection,
    is_letter,
    is_typed,
    own_words,
    words_of,
)

PRECEDENCE = ("frustration", "knowledge", "correction", "validation")
"""Kinds of signals; where a message holds several, the first of these is told."""
PRAISE = "validation"

_GUARD_CHARS = 25
"""A negation so far before a phrase turns it round."""
_SHORT_CHARS = 160
"""Weak phrases count in messages up to here."""
EXCERPT_CHARS_MAX = 240
_OPENING_CHARS_MAX = 2_000
"""The first word is looked for so far."""
_HITS_MAX = 40
"""Of one phrase only so many places are looked at."""
_GERUND = "*ing"
"""At the end of a phrase: any word that ends so."""
_ENDS = frozenset(".!?;:\n。！？；：…")
_BREAKS = _ENDS | frozenset(",，、()（）")
_MARKS = " .,!\n。！，、"
_QUESTION = ("?", "？", "吗", "呢", "か", "の？")


class _Settings(Protocol):
    """Section ``[triggers]`` of ``fleet.toml``."""

    @property
    def off(self) -> bool:
        """True where nothing is to be heard."""

    @property
    def minimum(self) -> str:
        """The least confidence that counts: weak, medium or strong."""

    @property
    def languages(self) -> Sequence[str]:
        """Languages whose default phrases count."""

    @property
    def strong(self) -> Sequence[str]:
        """A person's own strong phrases."""

    @property
    def medium(self) -> Sequence[str]:
        """A person's own medium phrases."""

    @property
    def weak(self) -> Sequence[str]:
        """A person's own weak phrases."""

    @property
    def exclusions(self) -> Sequence[str]:
        """A person's own exclusions."""

    @property
    def without(self) -> Sequence[str]:
        """Default phrases that do not count."""


class _Signal(NamedTuple):
    """A sign of a correction in a message.

    Attributes:
        kind: frustration, knowledge, correction or validation; the last is praise and no correction.
        confidence: strong, medium or weak.
        excerpt: the sentence around it, in the sender's words, at most ``EXCERPT_CHARS_MAX`` characters.
        sender: "" for the person, else the name of the agent that the host says wrote it.
    """

    kind: str
    confidence: str
    phrase: str
    excerpt: str
    sender: str = ""


class _Phrase(NamedTuple):
    """A row of the table.

    Attributes:
        text: what is looked for, in lower case.
        cue: its longest word: where that is missing, so is the phrase. "" for scripts without spaces.
        where: "^" for the first words of a message, "~" for the start of a sentence, else "".
        is_gerund: a word that ends in "ing" must go on from it.
        kind: one of ``PRECEDENCE``.
        points: 1 to 3.
        language: "" for a person's own.
    """

    text: str
    cue: str
    where: str
    is_gerund: bool
    kind: str
    points: int
    language: str


class _Language(NamedTuple):
    """The words of one language that change what a phrase is worth: see ``data/phrases.toml``."""

    negators: tuple[str, ...] = ()
    negated_after: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    tasks_within: tuple[str, ...] = ()
    asking: tuple[str, ...] = ()
    supposing: tuple[str, ...] = ()


class _Table(NamedTuple):
    """Everything that is looked for, for one configuration."""

    phrases: tuple[_Phrase, ...]
    exclusions: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    languages: dict[str, _Language]


class _Hit(NamedTuple):
    """A phrase in a message, and what it is worth there."""

    phrase: _Phrase
    start: int
    points: int

    @property
    def end(self) -> int:
        return self.start + len(self.phrase.text)


def detect(message: str, settings: _Settings | None = None) -> _Signal | None:
    """Return the correction, or the praise, that a message holds, or None.

    ``settings``: ``[triggers]`` of ``fleet.toml``; None means the defaults.
    """
    if settings is not None and settings.off:
        return None
    sender, said = own_words(message)
    minimum = LEVELS.index(settings.minimum if settings is not None else "medium") + 1
    hits = _hear(_lower(said), _table_of(settings))
    for heard in (_corrections(hits), [hit for hit in hits if hit.phrase.kind == PRAISE]):
        points = min(3, sum(hit.points for hit in heard))
        if points >= minimum:
            top = max(heard, key=lambda hit: (hit.points, -hit.start))
            kind = _first_kind(heard)
            return _Signal(kind, LEVELS[points - 1], top.phrase.text.strip(), _excerpt(said, top), sender)
    return None


# The table.


@cache
def _phrase_lists() -> dict[str, Any]:
    """Return the content of ``data/phrases.toml``."""
    with Path(__file__).with_name("data").joinpath("phrases.toml").open("rb") as file:
        return tomllib.load(file)


def _table_of(settings: _Settings | None) -> _Table:
    """Return the table for ``[triggers]``; None means the defaults."""
    if settings is None:
        return _table(LANGUAGES, (), (), (), (), ())
    own = (tuple(each) for each in (settings.strong, settings.medium, settings.weak))
    return _table(tuple(settings.languages), *own, tuple(settings.exclusions), tuple(settings.without))


@lru_cache(maxsize=4)
def _table(
    languages: tuple[str, ...],
    strong: tuple[str, ...],
    medium: tuple[str, ...],
    weak: tuple[str, ...],
    exclusions: tuple[str, ...],
    without: tuple[str, ...],
) -> _Table:
    known = {name: _phrase_lists()[name] for name in languages if name in LANGUAGES}
    rows = [
        _row(text, kind, level, language)
        for language, lists in known.items()
        for kind in PRECEDENCE
        for level, texts in lists[kind].items()
        for text in texts
    ]
    dropped = {_lower(text.strip()).lstrip("^~").removesuffix(_GERUND) for text in without}
    rows = [row for row in rows if row.text not in dropped]
    for level, own in (("strong", strong), ("medium", medium), ("weak", weak)):
        rows += [_row(_lower(text.strip()), "correction", level, "") for text in own if text.strip()]
    excluded = {text for lists in known.values() for text in lists["exclusions"]}
    excluded |= {_lower(text.strip()) for text in exclusions if text.strip()}
    alike = {text for lists in known.values() for text in lists["lookalikes"]} | excluded
    return _Table(
        phrases=tuple(row for row in rows if row.text),
        exclusions=tuple(sorted(excluded, key=lambda text: (-len(text), text))),
        hidden=tuple((text, _cue_of(text)) for text in sorted(alike, key=lambda text: (-len(text), text))),
        languages={name: _language(lists) for name, lists in known.items()} | {"": _Language()},
    )


def _row(text: str, kind: str, level: str, language: str) -> _Phrase:
    where = text[0] if text[0] in "^~" else ""
    bare = text[len(where) :]
    text = bare.removesuffix(_GERUND).replace("*", "")  # messages come without Markdown's emphasis
    return _Phrase(text, _cue_of(text), where, bare.endswith(_GERUND), kind, LEVELS.index(level) + 1, language)


def _cue_of(text: str) -> str:
    return max(words_of(text), key=len, default="")


def _language(lists: dict[str, list[str]]) -> _Language:
    return _Language(*(tuple(lists.get(name, ())) for name in _Language._fields))


def _lower(text: str) -> str:
    """Lower case of the same length, so that places are those of the original."""
    changed = text.lower()
    return changed if len(changed) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


# The search.


def _corrections(hits: Iterable[_Hit]) -> list[_Hit]:
    return [hit for hit in hits if hit.phrase.kind != PRAISE]


def _first_kind(hits: Iterable[_Hit]) -> str:
    """The first kind that was heard clearly, by the order of precedence; of weak ones, too, where all are weak."""
    best = [hit for hit in hits if hit.points > 1] or list(hits)
    return min((hit.phrase.kind for hit in best), key=PRECEDENCE.index)


def _hear(low: str, table: _Table) -> list[_Hit]:
    """Return the phrases of a message that count, each once, none within another."""
    opening = _opening(low)
    excluded = next((text for text in table.exclusions if _is_at(low, text, opening)), "")
    words = {"", *words_of(low)}
    for text, cue in table.hidden:
        if cue in words and text in low:
            low = _hide(low, text)
    opening = _opening(low)
    tasks = {name for name, language in table.languages.items() if _is_task(low, opening, language)}
    hits = [
        hit
        for phrase in table.phrases
        if phrase.cue in words and phrase.text in low
        for hit in [_best(low, phrase, opening, table.languages[phrase.language], phrase.language in tasks)]
        if hit
    ]
    if excluded:
        hits = [hit for hit in hits if hit.phrase.points == 3 or hit.phrase.kind == PRAISE]
    return _counting(_apart(hits), low, opening)


def _is_task(low: str, opening: int, words: _Language) -> bool:
    return any(_is_at(low, word, opening) for word in words.tasks) or any(word in low for word in words.tasks_within)


def _best(low: str, phrase: _Phrase, opening: int, words: _Language, is_task: bool) -> _Hit | None:
    """Return the first place where a phrase is worth most."""
    best = None
    for start in _places(low, phrase, opening):
        points = _worth(low, phrase, start, words, is_task and phrase.where != "^")
        if points and (best is None or points > best.points):
            best = _Hit(phrase, start, points)
    return best


def _places(low: str, phrase: _Phrase, opening: int) -> Iterator[int]:
    if phrase.where == "^":
        if _is_at(low, phrase.text, opening):
            yield opening
        return
    at = -1
    for _ in range(_HITS_MAX):
        at = low.find(phrase.text, at + 1)
        if at < 0:
            return
        if (
            _is_whole(low, at, phrase.text)
            and (not phrase.is_gerund or _is_gerund(low, at + len(phrase.text)))
            and (not phrase.where or at == opening or _starts_sentence(low, at))
        ):
            yield at


def _worth(low: str, phrase: _Phrase, start: int, words: _Language, is_task: bool) -> int:
    end = start + len(phrase.text)
    if phrase.kind != PRAISE and _is_negated(low, start, end, words):
        return 0
    if phrase.points == 3 or phrase.kind == PRAISE:
        return phrase.points
    begin, over = _sentence(low, start, end)
    less = is_task + _is_bare(low, phrase) + _asks(low[begin:over], words) + _supposes(low[begin:start], words)
    return max(0, phrase.points - less)


def _is_negated(low: str, start: int, end: int, words: _Language) -> bool:
    floor = max(0, start - _GUARD_CHARS)
    begin = start
    while begin > floor and low[begin - 1] not in _BREAKS:
        begin -= 1
    before = low[begin:start]
    for negator in words.negators:
        at = before.find(negator)
        if at >= 0 and _is_whole(before, at, negator):
            is_answer = negator == "no" and (at == 0 or not before[:at].strip())
            if not is_answer:
                return True
    return low.startswith(words.negated_after, end)


def _asks(sentence: str, words: _Language) -> bool:
    is_marked = sentence.rstrip().endswith(_QUESTION)
    if not words.asking:
        return is_marked
    opening = _opening(sentence)
    return any(_is_at(sentence, word, opening) for word in words.asking if is_marked or " " in word)


def _supposes(before: str, words: _Language) -> bool:
    return any(_is_whole(before, at, word) for word in words.supposing if (at := before.find(word)) >= 0)


def _apart(hits: list[_Hit]) -> list[_Hit]:
    """Of phrases that overlap keep the one worth more, then the longer."""
    kept: list[_Hit] = []
    for hit in sorted(hits, key=lambda hit: (-hit.points, -len(hit.phrase.text), hit.start)):
        if all(hit.end <= other.start or other.end <= hit.start for other in kept):
            kept.append(hit)
    return kept


def _counting(hits: list[_Hit], low: str, opening: int) -> list[_Hit]:
    """Drop weak phrases that stand alone or in a long message."""
    firm = [hit for hit in hits if hit.phrase.points > 1 or hit.phrase.kind == PRAISE]
    weak = [hit for hit in hits if hit.phrase.points == 1 and hit.phrase.kind != PRAISE]
    if len(low) > _SHORT_CHARS:
        return firm
    is_together = len(weak) + len(_corrections(firm)) > 1
    return firm + [hit for hit in weak if is_together or hit.start == opening]


# Text.


def _opening(low: str) -> int:
    """Return where the first telling word begins: after fillers such as "ok" or "hmm"."""
    at = 0
    for _ in range(8):
        while at < min(len(low), _OPENING_CHARS_MAX) and not low[at].isalnum() and low[at] != "·":
            at += 1
        end = at
        while end < len(low) and (low[end].isalnum() or low[end] == "'") and end - at < 16:
            end += 1
        word = low[at:end]
        if not word or (word not in _phrase_lists()["fillers"] and not set(word) <= set("uhm")):
            return at
        at = end
    return at


def _is_at(low: str, text: str, at: int) -> bool:
    return low.startswith(text, at) and _is_whole(low, at, text)


def _is_whole(low: str, at: int, text: str) -> bool:
    """Tell whether the text stands there as whole words; in scripts without spaces everything does."""
    end = at + len(text)
    is_cut_before = at > 0 and is_letter(text[0]) and is_letter(low[at - 1])
    return not is_cut_before and not (end < len(low) and is_letter(text[-1]) and is_letter(low[end]))


def _is_bare(low: str, phrase: _Phrase) -> bool:
    """Tell whether the message is this one short word: an answer, most likely."""
    return len(phrase.text) <= 5 and low.strip(_MARKS) == phrase.text.strip(_MARKS)


def _is_gerund(low: str, at: int) -> bool:
    end = at
    while end < len(low) and end - at < 24 and is_letter(low[end]):
        end += 1
    return end - at > 4 and low.startswith("ing", end - 3)


def _starts_sentence(low: str, at: int) -> bool:
    before = at - 1
    while before >= 0 and low[before] == " ":
        before -= 1
    return before < 0 or low[before] in _ENDS


def _sentence(low: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the sentence around a phrase, at most 300 characters to either side."""
    begin = start
    while begin > max(0, start - 300) and low[begin - 1] not in _ENDS:
        begin -= 1
    over = end
    while over < min(len(low), end + 300) and low[over] not in _ENDS:
        over += 1
    return begin, min(len(low), over + 1)


def _hide(low: str, text: str) -> str:
    """Blank a text wherever it stands as whole words."""
    kept, at = [], 0
    for _ in range(_HITS_MAX):
        start = low.find(text, at)
        if start < 0:
            break
        is_whole = _is_whole(low, start, text)
        kept += [low[at:start], "\x00" * len(text) if is_whole else text]
        at = start + len(text)
    return "".join([*kept, low[at:]])


def _excerpt(said: str, hit: _Hit) -> str:
    begin, over = _sentence(said, hit.start, min(hit.end, len(said)))
    begin = max(begin, hit.start - EXCERPT_CHARS_MAX // 2)
    return said[begin : min(over, begin + EXCERPT_CHARS_MAX)].replace("·", "…").strip()


# --- refusals ---------------------------------------------------------------------------------------------------------

_GO_ON = frozenset(str.split("sorry ok okay yes yeah please go on ahead continue proceed resume keep going carry and"))
_GO_ON_WORDS_MAX = 6


def objections(found: Iterable[Event], prompt: str = "") -> tuple[list[Objection], Objection | None]:
    """Return what a person objected to, and what still waits for its words: the next reading has to begin there.

    A refusal without words, and a stopped turn, get those of the next prompt; unless it only says to go on, was typed
    by nobody, or is the prompt before it, mended before the agent had done anything.

    ``prompt``: what was typed after them; "" for nothing yet.
    """
    done: list[Objection] = []
    waits: Objection | None = None
    calls: dict[str, Event] = {}
    before, last = "", None
    for event in (*found, *([Event("prompt", text=prompt)] if prompt.strip() else ())):
        if event.kind == "call":
            calls[event.id] = last = event
        elif event.kind == "refused" and event.text:
            done.append(Objection("rejection", event, calls.get(event.id)))
        elif event.kind == "refused" and waits is None:  # of calls refused together, the first one stands for all
            waits = Objection("rejection", event, calls.get(event.id))
        elif event.kind == "stopped" and waits is None:
            waits = Objection("interruption", event, last)
        elif event.kind == "prompt":
            if waits is not None and _objects(event.text, mended="" if last is not None else before):
                waits.words = event.text.strip()[:SAID_CHARS_MAX]
                done.append(waits)
            waits, before, last = None, event.text, None
    return done, waits


def _objects(said: str, mended: str) -> bool:
    """Tell a prompt that says something from one that says to go on, that a host wrote, or that is a mended one."""
    words = _telling_words(said)
    if not words or not is_typed(said) or (len(words) <= _GO_ON_WORDS_MAX and _GO_ON.issuperset(words)):
        return False
    known = _telling_words(mended)
    return not known or 10 * len(known & words) < 7 * len(known)


def _telling_words(said: str) -> set[str]:
    return set("".join([char if char.isalnum() else " " for char in said.lower()[:SAID_CHARS_MAX]]).split())
