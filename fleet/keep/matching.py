"""Which known lessons say the same in other words, and which only look like it (DESIGN, section 4).

A text and candidates in, a score and a verdict for each out; nothing is changed by it. ``same`` is offered to whoever
logs a lesson, the best judge there is. ``conflict`` is shown beside it and never offered: similar wording that differs
in a negation, a number, a name, an opposite or an order (``contrasts``).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from fleet.keep import wording
from fleet.keep.contrasts import difference, pairing
from fleet.keep.wording import Token, Wording

Verdict = Literal["same", "conflict", ""]
Weigh = Callable[[Token], float]

SAME_MIN = 0.47
"""Tuned on one half of benchmarks/matching/pairs.jsonl, among 620 lessons. Of the lessons about something else that no
rule of ``contrasts`` tells apart, the closest scores 0.45; of the same ones in other words that share words at all, the
remotest 0.53. A lower one would find no more of them, and offer what is not the same.
"""

CONFLICT_MIN = 0.50
"""A conflict is worth showing where a hasty reader might take the one for the other. On the same half every opposite
and every other number scores 0.6 or more, every other tool but one 0.56; below, the rest speaks of something else, too.
"""

NEAR_MAX = 3
CANDIDATES_MAX = 40
"""On the same half the other wording of a lesson is always among the first 30 of 620, nine in ten times among three."""


class Near(NamedTuple):
    """A known lesson that is close to a text.

    Attributes:
        id: of the pattern.
        text: of the pattern.
        score: 0 to 1.
        verdict: ``same`` may be offered, ``conflict`` only be shown.
        why: what differs, for a conflict: number, name, negation, opposite, order, word.
    """

    id: str
    text: str
    score: float
    verdict: Verdict
    why: str


class Candidates(NamedTuple):
    """What may be worth a closer look, and how telling each word is: what any index can supply, FTS5 too.

    Attributes:
        texts: (id, text), best first, at most ``CANDIDATES_MAX``.
        weigh: a token's weight, 0 to 1: rare words tell lessons apart.
    """

    texts: Sequence[tuple[str, str]]
    weigh: Weigh


def near(text: str, candidates: Candidates, count: int = NEAR_MAX) -> list[Near]:
    """Return the lessons closest to a text, best first; what is neither the same nor in conflict is left out."""
    mine = wording.read(text)
    found = [judged(mine, pattern, known, candidates.weigh) for pattern, known in candidates.texts]
    return sorted((n for n in found if n.verdict), key=lambda n: (-n.score, n.id))[:count]


def judged(mine: Wording, pattern: str, known: str, weigh: Weigh) -> Near:
    """Return how close one known lesson is, and the verdict."""
    theirs = wording.read(known)
    pairs = pairing(mine.content, theirs.content)
    score = round(similarity(mine, theirs, pairs, weigh), 3)
    if score < min(SAME_MIN, CONFLICT_MIN):
        return Near(pattern, known, score, "", "")
    if why := difference(mine, theirs, pairs):
        return Near(pattern, known, score, "conflict" if score >= CONFLICT_MIN else "", why)
    return Near(pattern, known, score, "same" if score >= SAME_MIN else "", "")


def similarity(mine: Wording, theirs: Wording, pairs: Sequence[tuple[Token, Token]], weigh: Weigh) -> float:
    """Return how alike two lessons are worded, 0 to 1: weighted words first, then characters and rapidfuzz's ratios."""
    from rapidfuzz import fuzz

    said = [" ".join(token.stem for token in lesson.content) for lesson in (mine, theirs)]
    if not all(said):
        return 0.0
    weights = [sum(weigh(token) for token in lesson.content) for lesson in (mine, theirs)]
    shared = [sum(weigh(pair[side]) * _closeness(*pair) for pair in pairs) for side in (0, 1)]
    overlap = sum(shared) / (sum(weights) or 1.0)
    contained = max(part / (whole or 1.0) for part, whole in zip(shared, weights, strict=True))
    return (
        0.55 * overlap
        + 0.15 * contained
        + 0.10 * fuzz.token_set_ratio(*said) / 100
        + 0.05 * fuzz.ratio(*said) / 100
        + 0.15 * _trigram_overlap(*said)
    )


def _closeness(one: Token, other: Token) -> float:
    return 1.0 if one.stem == other.stem else 0.9


def _trigram_overlap(one: str, other: str) -> float:
    mine, theirs = trigrams(one), trigrams(other)
    return 2 * len(mine & theirs) / (len(mine) + len(theirs) or 1)


def trigrams(text: str) -> set[str]:
    """Return the runs of three characters in a text, blanks around it included."""
    padded = f" {text} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}


def candidates(text: str, known: Iterable[tuple[str, str]], count: int = CANDIDATES_MAX) -> Candidates:
    """Return the known lessons that share the most telling features with a text.

    An inverted index of which only the rows that this one question asks for are made: a process asks once, and to read
    every word of 100,000 lessons would take longer than to look for ten in them.
    """
    mine = wording.read(text)
    features = sorted(_features(mine))
    lessons = [(pattern, told, told.casefold()) for pattern, told in known]
    rows = {feature: [at for at, lesson in enumerate(lessons) if feature in lesson[2]] for feature in features}
    total = len(lessons)
    ranks: defaultdict[int, float] = defaultdict(float)
    for row in rows.values():
        rarity = idf(len(row), total)
        for at in row:
            ranks[at] += rarity
    pool = [at for at, _ in sorted(ranks.items(), key=lambda item: (-item[1], lessons[item[0]][0]))[: 5 * count]]
    said = trigrams(text.casefold())
    best = sorted(pool, key=lambda at: -ranks[at] * (1 + len(said & trigrams(lessons[at][2])) / len(said)))[:count]
    frequency = {token.stem: len(rows.get(_feature(token), ())) for token in mine.content}
    return Candidates([lessons[at][:2] for at in best], weighing(lambda stem: frequency.get(stem, 1), total))


def weighing(documents: Callable[[str], int], total: int) -> Weigh:
    """Return how to weigh a token, given in how many of the lessons a stem occurs."""

    def weigh(token: Token) -> float:
        if token.is_light:
            return LIGHT_WEIGHT
        return idf(documents(token.stem), total)

    return weigh


LIGHT_WEIGHT = 0.15
_IDF_PRIOR = 50  # a notebook of ten lessons knows nothing about rarity: as if fifty more held none of the words


def idf(documents: int, total: int) -> float:
    """Return how telling a feature is, 0 to 1: 1 if no lesson has it."""
    return math.log(1 + (total + _IDF_PRIOR) / (documents + 1)) / math.log(1 + total + _IDF_PRIOR)


def _features(mine: Wording) -> set[str]:
    """Return the beginnings of words to look for: a beginning survives endings and most slips."""
    found = {_feature(token) for token in mine.content if not token.is_light}
    for token in mine.content:
        for group in token.groups:
            found |= _beginnings(group)
    return found or {_feature(token) for token in mine.content}


def _feature(token: Token) -> str:
    word = token.stem.casefold()
    return word[: max(4, len(word) * 2 // 3)] if word.isascii() else word


def _beginnings(group: int) -> set[str]:
    from fleet.keep.vocabulary import SYNONYMS

    return {_feature(Token(word, wording.stem(word), 0)) for word in SYNONYMS[group].split()}
