"""Which known lessons say the same in other words, and which only look like it (DESIGN, section 4).

A text and candidates in, a score and a verdict for each out; nothing is changed by it. ``same`` is offered to whoever
logs a lesson, the best judge there is. ``conflict`` is shown beside it and never offered: similar wording that differs
in a negation, a number, a name, an opposite or an order (``contrasts``).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from fleet.keep import ratios, wording
from fleet.keep.contrasts import difference
from fleet.keep.notebook import is_present
from fleet.keep.notebook import text as said
from fleet.keep.pairing import pairing
from fleet.keep.ranking import Ranks
from fleet.keep.stemming import stem
from fleet.keep.wording import Token, Wording

if TYPE_CHECKING:  # a small clan needs no database, and its commands no milliseconds for one
    from fleet.keep.index import Index
    from fleet.keep.notebook import Notebook

Verdict = Literal["same", "conflict", ""]
Weigh = Callable[[Token], float]
_rows_decoder = msgspec.json.Decoder(list[int])

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
    mine, weigh = wording.read(text), candidates.weigh
    content = mine.content
    found = [
        judged(mine, pattern, known, weigh)
        for pattern, known in candidates.texts
        if _is_worth_a_look(content, known, weigh)
    ]
    return sorted((n for n in found if n.verdict), key=lambda n: (-n.score, n.id))[:count]


def _is_worth_a_look(mine: list[Token], known: str, weigh: Weigh) -> bool:
    """Tell at half the price whether a known lesson may get a verdict; never False for one that would.

    The other half is to find out what a negation reaches. That sets lessons apart, but pairs their words otherwise only
    where one of them is said twice: such lessons are always worth it.
    """
    theirs = wording.said(known)
    if any(len({token.stem for token in each}) < len(each) for each in (mine, theirs)):
        return True
    return _similarity(mine, theirs, pairing(mine, theirs), weigh) > min(SAME_MIN, CONFLICT_MIN) - _ROUNDING


_ROUNDING = 0.001
"""Scores are rounded to as much, and the same pairs added up in another order differ by far less."""


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
    """Return how alike two lessons are worded, 0 to 1: weighted words first, then characters and ``ratios``.

    Where those ratios could not make the score worth a look, they are left out.
    """
    return _similarity(mine.content, theirs.content, pairs, weigh)


def _similarity(
    mine: Sequence[Token], theirs: Sequence[Token], pairs: Sequence[tuple[Token, Token]], weigh: Weigh
) -> float:
    contents = [mine, theirs]
    said = [" ".join([token.stem for token in content]) for content in contents]
    if not all(said):
        return 0.0
    weights = [sum(map(weigh, content)) for content in contents]
    shared = [sum([weigh(pair[side]) * _closeness(*pair) for pair in pairs]) for side in (0, 1)]
    overlap = sum(shared) / (sum(weights) or 1.0)
    contained = max(part / (whole or 1.0) for part, whole in zip(shared, weights, strict=True))
    score = 0.55 * overlap + 0.15 * contained + 0.15 * _trigram_overlap(*said)
    if score + 0.15 < min(SAME_MIN, CONFLICT_MIN):
        return score
    return score + 0.10 * ratios.token_set_ratio(*said) / 100 + 0.05 * ratios.ratio(*said) / 100


def _closeness(one: Token, other: Token) -> float:
    return 1.0 if one.stem == other.stem else 0.9


def _trigram_overlap(one: str, other: str) -> float:
    mine, theirs = trigrams(one), trigrams(other)
    return 2 * len(mine & theirs) / (len(mine) + len(theirs) or 1)


@lru_cache(maxsize=256)
def trigrams(text: str) -> frozenset[str]:
    """Return the runs of three characters in a text, blanks around it included."""
    padded = f" {text} "
    return frozenset(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))


def candidates(text: str, known: Iterable[tuple[str, str]], count: int = CANDIDATES_MAX) -> Candidates:
    """Return the known lessons that share the most telling features with a text.

    Every lesson is looked at: 0.5 s for 100,000 of them. ``indexed`` asks the search index instead.
    """
    mine = wording.read(text)
    lessons = [(pattern, told, told.casefold()) for pattern, told in known]
    rows = {f: [at for at, lesson in enumerate(lessons) if f in lesson[2]] for f in sorted(_features(mine))}
    frequency = {feature: len(row) for feature, row in rows.items()}
    ranks = _ranks(rows, frequency, len(lessons))
    pool = sorted(ranks, key=lambda at: (-ranks[at], lessons[at][0]))[: POOL_MAX * count]
    return _shortlist(text, [lessons[at][:2] for at in pool], frequency, len(lessons), count)


def indexed(
    text: str,
    index: "Index",
    count: int = CANDIDATES_MAX,
    beside: Sequence[tuple[str, str]] = (),
    without: Container[str] = (),
) -> Candidates:
    """Return the lessons of the search index that share the most telling features with a text.

    What it costs follows how many lessons its words hit: 2 to 20 ms where 100,000 are known. The full-text index keeps
    Chinese and Japanese words in one piece with their neighbours: these are looked for in the text of every lesson,
    which takes 20 ms, or 130 ms if all of them are Chinese.

    Args:
        text: the lesson to compare. If the index holds it already, it is the first of its own candidates.
        index: up to date (``indexing.answer``).
        count: at most so many.
        beside: (id, text) of lessons that the index does not know yet, or not as they are.
        without: ids of lessons that are none of its candidates.

    Raises:
        sqlite3.Error: the index cannot be read.
    """
    from fleet.keep.index import PATTERN

    if not index.has_words:
        asked = "SELECT ref, head FROM search_doc WHERE kind = ? AND NOT gone"
        known = index.connection.execute(asked, (PATTERN,))
        return candidates(text, [*(lesson for lesson in known if lesson[0] not in without), *beside], count)
    mine = wording.read(text)
    words, parts = _asked_for(mine)
    often = index.often(words)
    frequency = {word: often[word] if word in often else _count(index, word) for word in words}
    rows = dict(_word_rows(index, frequency)) | _part_rows(index, parts)
    frequency |= {part: len(rows[part]) for part in parts}
    # Documents of every kind, as the counts are: rarity asks for no more, and to count patterns alone takes 14 ms.
    total = int(index.connection.execute("SELECT ifnull(max(id), 0) FROM search_doc").fetchone()[0])
    told = [(idf(frequency[feature], total), row) for feature, row in rows.items()]
    told += [(2 * idf(COMMON_MIN, total), both) for both in _common_rows(index, mine, frequency)]
    ranks = Ranks(told)
    pool = _texts(index, ranks.best(2 * POOL_MAX * count), POOL_MAX * count)
    if len(pool) < POOL_MAX * count < ranks.total:  # half of them are retired, or no patterns
        pool = _texts(index, ranks.best(LOOKED_UP_MAX), POOL_MAX * count)
    pool = [lesson for lesson in pool if lesson[0] not in without]
    for lesson in beside:
        folded = lesson[1].casefold()
        if shared := [feature for feature in frequency if feature in folded]:
            pool.append(lesson)
        for feature in shared:
            frequency[feature] += 1
    return _shortlist(text, pool, frequency, total + len(beside), count)


def from_index(text: str, notebook: "Notebook", is_left_out: Callable[[str], bool]) -> Candidates | None:
    """Return what ``indexed`` does, and what the index of a notebook does not know yet, but for ids that are left out.

    None where there is no index, or where it is damaged: then it is made anew.
    """
    index = notebook.index
    if index is None:
        return None
    from fleet.keep.damage import TROUBLE, is_damage

    other = notebook.unindexed()
    fresh = [line for each in sorted(other) if not is_left_out(each) and (line := notebook.get(each)) is not None]
    beside = [(line.id, said(line)) for line in fresh if is_present(line) and said(line)]
    try:
        return indexed(text, index, beside=beside, without=other)
    except TROUBLE as why:
        if is_damage(why):
            with suppress(*TROUBLE):
                index.drop()
        return None


POOL_MAX = 3
"""So many times more lessons than are asked for are compared by their characters, too."""

COMMON_MIN = 3_000
"""Above, a feature tells too little to fetch all its lessons: two words of the text must meet in one."""

ROWS_MAX = 8_000
COMMON_WORDS_MAX = 3
WORDS_MAX, PARTS_MAX = 60, 24  # a lesson has ten words; to look for a part takes 5 ms in 100,000 Chinese ones
LOOKED_UP_MAX = 3_000


def _ranks(rows: Mapping[str, Iterable[int]], frequency: Mapping[str, int], total: int) -> defaultdict[int, float]:
    """Return lesson to how telling the features are that it shares."""
    ranks: defaultdict[int, float] = defaultdict(float)
    for feature, row in rows.items():
        rarity = idf(frequency[feature], total)
        for at in row:
            ranks[at] += rarity
    return ranks


def _shortlist(
    text: str, pool: Iterable[tuple[str, str]], frequency: Mapping[str, int], total: int, count: int
) -> Candidates:
    """Return the best of a pool by features and characters, and the weights of the words that were counted."""
    said = trigrams(text.casefold())
    rarities = {feature: idf(documents, total) for feature, documents in frequency.items()}

    def rank(lesson: tuple[str, str]) -> float:
        told = lesson[1].casefold()
        shared = sum([rarity for feature, rarity in rarities.items() if feature in told])
        # How many of these trigrams it has, without making all of its own.
        return shared * (1 + sum(map(f" {told} ".__contains__, said)) / len(said))

    best = sorted(pool, key=lambda lesson: -rank(lesson))[:count]
    known = {token.stem: frequency.get(_feature(token), 0) for token in wording.read(text).content}
    return Candidates(best, weighing(lambda stem: known.get(stem, 1), total))


def _asked_for(mine: Wording) -> tuple[list[str], list[str]]:
    """Return what to ask the full-text index for, and what to look for in the text itself; said words come first."""
    said = list(dict.fromkeys(_feature(token) for token in mine.content if not token.is_light))
    features = said + sorted(_features(mine).difference(said))
    words = [feature for feature in features if _is_for_words(feature)]
    # To look into every lesson for the Chinese synonym of an English word would hardly ever find one.
    parts = list(filter(_is_unspaced, features)) if any(map(_is_unspaced, said)) else []
    return words[:WORDS_MAX], parts[:PARTS_MAX]


def _is_unspaced(feature: str) -> bool:
    """Tell what ``wording`` cuts into words by itself, and the tokenizer of the full-text index does not."""
    # A set of so many letters takes longer to compile than Python takes to look at these few.
    return not feature.isascii() and any(
        "\u3040" <= letter <= "\u30ff"
        or "\u3400" <= letter <= "\u4dbf"
        or "\u4e00" <= letter <= "\u9fff"
        or "\uac00" <= letter <= "\ud7af"
        for letter in feature
    )


def _is_for_words(feature: str) -> bool:
    return any(map(str.isalnum, feature)) and not _is_unspaced(feature)


def _heads(*alternatives: Iterable[str]) -> tuple[str, str]:
    """Return FTS5 table and expression for lessons in which a word begins with one of each of these.

    The quicker table knows no phrases, so it is asked for what is surely one word to the tokenizer.
    """
    from fleet.keep.index import phrase

    asked = [sorted(words) for words in alternatives]
    match = " AND ".join("(" + " OR ".join(phrase(word, is_prefix=True) for word in words) + ")" for words in asked)
    if all(word.isascii() and word.isalnum() for words in asked for word in words):
        return "search_head", match
    return "search_text", f"head : ({match})"


def _count(index: "Index", feature: str) -> int:
    table, match = _heads([feature])
    asked = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"  # noqa: S608 - one of two names
    return int(index.connection.execute(asked, (match,)).fetchone()[0])


def _rows(index: "Index", heads: tuple[str, str]) -> list[int]:
    table, match = heads
    # As one text: thousands of rows take twice as long to fetch one by one.
    some = f"SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT ?"  # noqa: S608 - one of two names
    asked = f"SELECT group_concat(rowid) FROM ({some})"  # noqa: S608
    found = index.connection.execute(asked, (match, COMMON_MIN)).fetchone()[0]
    return _rows_decoder.decode(f"[{found or ''}]")


def _word_rows(index: "Index", frequency: Mapping[str, int]) -> Iterator[tuple[str, list[int]]]:
    """Yield the lessons of each word, those of the rarest first, as many as are worth fetching."""
    fetched = 0
    for word in sorted(frequency, key=lambda word: (frequency[word], word)):
        fetched += frequency[word]
        if frequency[word] > COMMON_MIN or fetched > ROWS_MAX:
            return
        if frequency[word]:
            yield word, _rows(index, _heads([word]))


def _common_rows(index: "Index", mine: Wording, frequency: Mapping[str, int]) -> Iterator[list[int]]:
    """Yield the lessons in which two words meet that many lessons have: those of the text, or other words for them."""
    telling = [token for token in mine.content if not token.is_light]
    alternatives = {frozenset(filter(_is_for_words, _alternatives(token))) for token in telling or mine.content}
    often = {words: sum(frequency.get(word, 0) for word in words) for words in alternatives if words}
    common = sorted((words for words in often if often[words] > COMMON_MIN), key=lambda words: (often[words], *words))
    if len(often) == 1 and common:
        yield _rows(index, _heads(common[0]))
    for one, other in combinations(common[:COMMON_WORDS_MAX], 2):
        yield _rows(index, _heads(one, other))


def _part_rows(index: "Index", parts: Sequence[str]) -> dict[str, list[int]]:
    """Return the lessons that hold each of some parts, in one reading of all lessons that are not ASCII alone."""
    from fleet.keep.index import PATTERN

    if not parts:
        return {}
    asked = "SELECT id, head FROM search_doc WHERE kind = ? AND NOT gone AND length(head) < length(CAST(head AS BLOB))"
    lessons = index.connection.execute(asked, (PATTERN,)).fetchall()
    return {part: [row for row, told in lessons if part in told] for part in parts}


def _texts(index: "Index", rows: Sequence[int], count: int) -> list[tuple[str, str]]:
    """Return id and text of the first of these documents that are patterns, retired ones left out."""
    from fleet.keep.index import PARAMETERS_MAX, PATTERN

    found: list[tuple[str, str]] = []
    start, size = 0, min(count, PARAMETERS_MAX)  # as a rule the first so many are
    while start < len(rows) and len(found) < count:
        some = rows[start : start + size]
        marks = ",".join("?" * len(some))
        asked = f"SELECT id, ref, head FROM search_doc WHERE id IN ({marks}) AND kind = ? AND NOT gone"  # noqa: S608
        known = {row: (ref, head) for row, ref, head in index.connection.execute(asked, (*some, PATTERN))}
        found += [known[row] for row in some if row in known]
        start, size = start + size, PARAMETERS_MAX
    return found[:count]


def weighing(documents: Callable[[str], int], total: int) -> Weigh:
    """Return how to weigh a token, given in how many of the lessons a stem occurs."""

    def weigh(token: Token) -> float:
        if token.is_light:
            return LIGHT_WEIGHT
        stem = token.stem
        if stem not in known:
            known[stem] = idf(documents(stem), total)
        return known[stem]

    known: dict[str, float] = {}
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
        found |= _synonyms(token)
    return found or {_feature(token) for token in mine.content}


def _alternatives(token: Token) -> set[str]:
    return {_feature(token)} | _synonyms(token)


def _synonyms(token: Token) -> set[str]:
    return {feature for group in token.groups for feature in _beginnings(group)}


def _feature(token: Token) -> str:
    word = token.stem.casefold()
    return word[: max(4, len(word) * 2 // 3)] if word.isascii() else word


@cache
def _beginnings(group: int) -> frozenset[str]:
    from fleet.keep.vocabulary import SYNONYMS

    return frozenset(_feature(Token(word, stem(word), 0)) for word in SYNONYMS[group].split())
