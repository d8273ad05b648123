"""What a message says about the agent's work: phrases found, weighed and added up (see :mod:`fleet.learn.triggers`)."""

from typing import TYPE_CHECKING, NamedTuple

from fleet.learn import phrases as known
from fleet.learn.ownwords import addressed, cut, own_words
from fleet.learn.phrasebook import Language, Phrase, Table, lower, table_of
from fleet.learn.triggers import LEVELS, PRAISE, is_letter, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.keep.config import Triggers

GUARD_CHARS = 25
"""A negation so far before a phrase turns it round."""
SHORT_CHARS = 160
"""Weak phrases count in messages up to here."""
EXCERPT_CHARS_MAX = 240
OPENING_CHARS_MAX = 2_000
"""The first word is looked for so far."""
HITS_MAX = 40
"""Of one phrase only so many places are looked at."""
_ENDS = frozenset(".!?;:\n。！？；：…")
_BREAKS = _ENDS | frozenset(",，、()（）")
_MARKS = " .,!\n。！，、"
_QUESTION = ("?", "？", "吗", "呢", "か", "の？")


class Signal(NamedTuple):
    """What was heard.

    Attributes:
        kind: frustration, knowledge, correction or validation; the last is praise and no correction.
        confidence: strong, medium or weak.
        phrase: the phrase that weighed most.
        excerpt: the sentence around it, in the sender's words, at most ``EXCERPT_CHARS_MAX`` characters.
        sender: "" for the person, else the name of the agent that the host says wrote it.
    """

    kind: str
    confidence: str
    phrase: str
    excerpt: str
    sender: str = ""


class _Hit(NamedTuple):
    """A phrase in a message, and what it is worth there."""

    phrase: Phrase
    start: int
    points: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.phrase.text)


def hear(message: str, settings: "Triggers | None") -> Signal | None:
    """Do what :func:`fleet.learn.triggers.detect` says."""
    sender, body = addressed(cut(message))
    said = own_words(body)
    table = table_of(settings)
    minimum = LEVELS.index(settings.minimum if settings is not None else "medium") + 1
    hits = _hear(lower(said), table)
    for heard in (_corrections(hits), [hit for hit in hits if hit.phrase.kind == PRAISE]):
        points = min(3, sum(hit.points for hit in heard))
        if points >= minimum:
            top = max(heard, key=lambda hit: (hit.points, -hit.start))
            kind = _first_kind(heard)
            return Signal(kind, LEVELS[points - 1], top.phrase.text.strip(), _excerpt(said, top), sender)
    return None


def _corrections(hits: "Iterable[_Hit]") -> list[_Hit]:
    return [hit for hit in hits if hit.phrase.kind != PRAISE]


def _first_kind(hits: "Iterable[_Hit]") -> str:
    """The first kind that was heard clearly, by the order of precedence; of weak ones, too, where all are weak."""
    best = [hit for hit in hits if hit.points > 1] or list(hits)
    return min((hit.phrase.kind for hit in best), key=known.PRECEDENCE.index)


def _hear(low: str, table: Table) -> list[_Hit]:
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


def _is_task(low: str, opening: int, words: Language) -> bool:
    return any(_is_at(low, word, opening) for word in words.tasks) or any(word in low for word in words.tasks_within)


def _best(low: str, phrase: Phrase, opening: int, words: Language, is_task: bool) -> _Hit | None:
    """Return the first place where a phrase is worth most."""
    best = None
    for start in _places(low, phrase, opening):
        points = _worth(low, phrase, start, words, is_task and phrase.where != "^")
        if points and (best is None or points > best.points):
            best = _Hit(phrase, start, points)
    return best


def _places(low: str, phrase: Phrase, opening: int) -> "Iterator[int]":
    if phrase.where == "^":
        if _is_at(low, phrase.text, opening):
            yield opening
        return
    at = -1
    for _ in range(HITS_MAX):
        at = low.find(phrase.text, at + 1)
        if at < 0:
            return
        if (
            _is_whole(low, at, phrase.text)
            and (not phrase.is_gerund or _is_gerund(low, at + len(phrase.text)))
            and (not phrase.where or at == opening or _starts_sentence(low, at))
        ):
            yield at


def _worth(low: str, phrase: Phrase, start: int, words: Language, is_task: bool) -> int:
    end = start + len(phrase.text)
    if phrase.kind != PRAISE and _is_negated(low, start, end, words):
        return 0
    if phrase.points == 3 or phrase.kind == PRAISE:
        return phrase.points
    begin, over = _sentence(low, start, end)
    less = is_task + _is_bare(low, phrase) + _asks(low[begin:over], words) + _supposes(low[begin:start], words)
    return max(0, phrase.points - less)


def _is_negated(low: str, start: int, end: int, words: Language) -> bool:
    floor = max(0, start - GUARD_CHARS)
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


def _asks(sentence: str, words: Language) -> bool:
    is_marked = sentence.rstrip().endswith(_QUESTION)
    if not words.asking:
        return is_marked
    opening = _opening(sentence)
    return any(_is_at(sentence, word, opening) for word in words.asking if is_marked or " " in word)


def _supposes(before: str, words: Language) -> bool:
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
    if len(low) > SHORT_CHARS:
        return firm
    is_together = len(weak) + len(_corrections(firm)) > 1
    return firm + [hit for hit in weak if is_together or hit.start == opening]


# Text.


def _opening(low: str) -> int:
    """Return where the first telling word begins: after fillers such as "ok" or "hmm"."""
    at = 0
    for _ in range(8):
        while at < min(len(low), OPENING_CHARS_MAX) and not low[at].isalnum() and low[at] != "·":
            at += 1
        end = at
        while end < len(low) and (low[end].isalnum() or low[end] == "'") and end - at < 16:
            end += 1
        word = low[at:end]
        if not word or (word not in known.FILLERS and not set(word) <= set("uhm")):
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


def _is_bare(low: str, phrase: Phrase) -> bool:
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
    for _ in range(HITS_MAX):
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
