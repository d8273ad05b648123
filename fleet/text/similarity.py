"""Words of a text for the full-text index, and the lessons nearest to a text with what differs between them.

No verdict is given: of lessons that read alike, the agent that logs one is the best judge. What is named (a number, a
version, a name, a negation, an opposite, an order) helps to judge, and is wrong now and then: no grammar is parsed.

Stems are SQLite's: the same as in its full-text index.
"""

import heapq
import re
import sqlite3
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from hashlib import blake2b
from itertools import islice, pairwise
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fleet import __version__
from fleet.text import sections
from fleet.text.screening import strip_controls

CHARS_MAX = 800
"""So much of a text is compared: a lesson says what it is about in its first sentences."""
NEAR_MAX = 3
NEAR_MIN = 0.35
"""Below, two texts share little more than a word."""
CLOSE_MIN = 0.5
"""Cosine from which on a lesson is near whatever its words are."""
CANDIDATES_MAX = 40
ALIKE_MIN = 0.6
"""From here on two texts read alike: a hasty reader might take the one for the other."""
_REPLACED_MAX = 2
TURNS = frozenset(("negation", "opposite", "order"))
"""Differences by which two lessons with the same words say the opposite."""
_FUSION = 60  # reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009)
TERMS_MAX = 60
PARTNERS_MAX = 20
"""With so many others a text is compared, where many texts are compared with each other."""
_BESIDE = 12
"""So many texts before and behind one in the list of a word are looked at."""
LOOKED_MAX = 1_000
"""So many places are looked up to find them."""
TOKENIZER = "porter unicode61 remove_diacritics 2"
"""The tokenizer of the full-text tables that hold texts as ``Words.indexed`` gives them."""
_ASKED_ONLY = f"content = '', columnsize = 0, tokenize = '{TOKENIZER}'"
"""Options of a table that nobody reads a text or its length from, but only which words it has."""

# --- the words of the index -----------------------------------------------------------------------------------------

# Letters and digits of the scripts that put blanks between words and whose letters the tokenizer (Unicode 6.1) knows:
# Latin, Greek, Cyrillic, Armenian. Hebrew and Arabic glue prepositions to the word: each of their letters is a token,
# as those of scripts without blanks are. Ranges of what is in: to compile "all letters but" those took 6 ms.
_SPACED = (
    r"[0-9A-Za-zªµº²³¹¼-¾À-ÖØ-öø-ˁˆ-ˑˠ-ˤˬˮ\u0370-\u0374\u0376-\u037d\u037f\u0386\u0388-\u03f5\u03f7-\u0481\u048a-\u0556"
    r"\u0559\u0560-\u0588\u1e00-\u1fbc\u1fbe\u1fc2-\u1fcc\u1fd0-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ffc]"
)
_WORD = re.compile(rf"{_SPACED}+|[^\W_]")
# The first mark is asked for as what is no letter, and then as no blank: so `re` passes over words at once.
_SIGN = re.compile(rf"(?P<said>[\W_](?<!\s)(?:[^\w\s]|_)*)(?P<after>{_SPACED}*)")
_MARKS = re.compile(r"[,;!?…()\[\]{}\"'`“”‘’«»。，、；！？（）「」—–]+")
"""Marks that say nothing, wherever they stand."""
_JOINERS = frozenset("-_./:@'’")
"""Between two words each of them makes a phrase: ``pre-commit``, ``state.db``."""
_SIGNS_MAX = 4
_PRIVATE = 0xF0000
"""Signs are indexed as letters for private use: the tokenizer keeps those."""


class Words:
    """The words of a text, and its signs, as the full-text index has them."""

    def __init__(self, text: str) -> None:
        self.text = text

    def indexed(self) -> str:
        """Return the text as the full-text tables get it: the words in order, then those with signs, as in ``--json``.

        Words of scripts without blanks come letter by letter: a phrase of them is found wherever it stands. Of a run of
        signs each end is a token, so that ``->`` is found in ``|->``.
        """
        words, signed = _cut(self.text)
        for sign, word in signed:
            words += [sign[start:] + word for start in range(min(len(sign), _SIGNS_MAX))]
        return " ".join(words)

    def phrases(self) -> list[str]:
        """Return the expressions that find the text literally: a phrase of its words, and each of its signs."""
        words, signed = _cut(self.text)
        found = [_quoted(" ".join(words))] if words else []
        return found + [
            f"{_quoted(said[:_SIGNS_MAX] + (after if len(said) <= _SIGNS_MAX else ''))} *" for said, after in signed
        ]

    def terms(self) -> list[str]:
        """Return a full-text expression for each of the words that tell something."""
        words, signed = _cut(self.text[:CHARS_MAX])
        told = [word for word in words if not is_stop(word)]
        pairs = [f"{one} {other}" for one, other in pairwise(told) if _is_letter(one) and _is_letter(other)]
        alone = [word for word in told if not _is_letter(word)] or ([] if pairs else told)
        terms = dict.fromkeys([*alone, *pairs, *(said[:_SIGNS_MAX] + after for said, after in signed)])
        return [_quoted(term) for term in terms][:TERMS_MAX]


def is_stop(word: str) -> bool:
    """Return True for a word that most lessons have, or that carries no lesson."""
    return word.casefold() in _lists().stop


def _cut(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the words of a text, and each run of signs with the word that follows it at once."""
    given = strip_controls(text if text.isascii() else unicodedata.normalize("NFC", text))
    signed: list[tuple[str, str]] = []
    for found in _SIGN.finditer(given):
        said, after = found["said"], found["after"]
        if after and said in _JOINERS and found.start() and re.match(_SPACED, given[found.start() - 1]):
            continue
        *alone, last = _MARKS.split(said)
        if last and after:
            signed.append((_private(last), after))
        else:
            alone.append(last)
        signed += [(_private(core), "") for each in alone if (core := each.rstrip(".:"))]
    return _WORD.findall(given), signed


def _private(said: str) -> str:
    return "".join(chr(_PRIVATE + (ord(char) & 0xFFFF)) for char in said)


def _is_letter(word: str) -> bool:
    return len(word) == 1 and not re.match(_SPACED, word)


def _quoted(said: str) -> str:
    return f'"{said}"'


# --- the nearest ----------------------------------------------------------------------------------------------------


class Near(msgspec.Struct, frozen=True):
    """A known lesson that is close to a text.

    Attributes:
        score: 0 to 1.
        differs: what differs, of ``DIFFERENCES``; empty when nothing of that was seen.
    """

    id: str
    text: str
    score: float
    differs: tuple[str, ...]


DIFFERENCES = ("number", "version", "name", "negation", "opposite", "order")


def near(
    text: str,
    candidates: Sequence[tuple[str, str]],
    count: int = NEAR_MAX,
    meaning: Mapping[str, float] = MappingProxyType({}),
    merged: Mapping[str, str] = MappingProxyType({}),
    least: float = NEAR_MIN,
) -> list[Near]:
    """Return the candidates closest to a text, best first, with what differs; of a merged set only the closest.

    The order of the candidates, which knows how rare words are, and that of the scores, which knows how much of each
    lesson is shared, are fused; where there is one, so is the order by meaning.

    ``candidates``: id and text of known lessons, best first, as the full-text index supplies them.
    ``meaning``: cosines of candidates that mean much the same, best first.
    ``merged``: of a candidate that is merged with others, the id that stands for all of them.
    ``least``: the smallest score of a candidate whose meaning is not known to be close.
    """
    mine, *known = _read([text, *(said for _, said in candidates)])
    read = {each: (said, theirs) for (each, said), theirs in zip(candidates, known, strict=True)}
    scores = {each: _score(mine, theirs) for each, (_, theirs) in read.items()}
    orders = list(scores), sorted(scores, key=lambda each: -scores[each]), [each for each in meaning if each in scores]
    closest: dict[str, str] = {}
    for each in fused(*orders):
        if scores[each] >= least or meaning.get(each, 0.0) >= CLOSE_MIN:
            closest.setdefault(merged.get(each, each), each)
    wanted = islice(closest.values(), count)
    return [Near(each, read[each][0], scores[each], _differences(mine, read[each][1])) for each in wanted]


def fused(*orders: Iterable[str]) -> list[str]:
    """Return what stands in any of these orders, by reciprocal rank fusion; of equals the first of the first order."""
    points: dict[str, float] = {}
    for order in orders:
        for rank, each in enumerate(order, 1):
            points[each] = points.get(each, 0.0) + 1 / (_FUSION + rank)
    return sorted(points, key=lambda each: -points[each])


class Alike(NamedTuple):
    """Two of many texts that are close, by their numbers in the list.

    Attributes:
        score: by their words, 0 to 1.
        differs: what differs, of ``DIFFERENCES``.
        is_replaced: they say the same words in the same order, but for other ones at a single place, or for two that
            changed places: a thing or a tool that is another one, as often as it is the same in another word.
        is_turned: they say the same words, but for one at most or for opposites, and one of them the other way round.
    """

    one: int
    other: int
    score: float
    differs: tuple[str, ...]
    is_replaced: bool
    is_turned: bool


class _Closeness(NamedTuple):
    """Closeness of two texts: the fields of ``Alike`` that are the same wherever the two stand."""

    score: float
    differs: tuple[str, ...]
    is_replaced: bool
    is_turned: bool


_Kept = tuple[str, dict[str, frozenset[str]], list[tuple[int, int, _Closeness | None]]]


class Compared:
    """Outcome of a comparison, by the names of the texts: hashes, so that it holds wherever they stand.

    Attributes:
        told: text to its stems that tell something.
        close: two texts, in the order of their numbers, to how close they are; None for two that are not.
    """

    def __init__(
        self, told: Mapping[str, frozenset[str]] = {}, close: Mapping[tuple[str, str], _Closeness | None] = {}
    ) -> None:
        self.told = told
        self.close = close

    def encoded(self) -> str:
        """Return it as it is kept: a pair by the numbers of its texts."""
        number = {name: at for at, name in enumerate(self.told)}
        close = [(number[one], number[other], how) for (one, other), how in self.close.items()]
        return msgspec.json.encode((__version__, self.told, close)).decode()

    @classmethod
    def decoded(cls, kept: str) -> "Compared":
        """Return a comparison that was kept; an empty one for another version's, which may compare otherwise."""
        with suppress(msgspec.MsgspecError):
            version, told, close = msgspec.json.decode(kept, type=_Kept)
            names = list(told)
            if version == __version__:
                return cls(told, {(names[one], names[other]): how for one, other, how in close})
        return cls()


def alike(
    texts: Sequence[str],
    also: Iterable[tuple[int, int]] = (),
    least: float = NEAR_MIN,
    among: Iterable[tuple[int, int]] | None = None,
    known: Compared | None = None,
) -> list[Alike]:
    """Return the pairs among texts that share enough of their words, in the order of their numbers.

    A text is compared with the ``PARTNERS_MAX`` that share most of its words: texts that are all alike cost no more
    than others. The same texts in the same order give the same pairs.

    ``also``: pairs to be compared whatever their words are, each as (smaller number, larger).
    ``least``: score below which a pair of the first kind is left out.
    ``among``: the pairs that are looked at; None: any that share a third of the words of one.
    ``known``: the comparison before, with the same ``least``; what it says is not found out again. Afterwards this one.
    """
    known, names, asked = known or Compared(), [*map(_name, texts)], frozenset(also)
    read: dict[int, _Wording] = {}
    if among is None:
        read = _read_at(texts, [at for at, name in enumerate(names) if name not in known.told])
        told = {**known.told, **{names[at]: wording.told for at, wording in read.items()}}
        known.told = {name: told[name] for name in names}
        among = _partners([told[name] for name in names])
    both = {pair: (names[pair[0]], names[pair[1]]) for pair in sorted({*among, *asked})}
    exact = {both[pair] for pair in asked}
    fresh = [
        pair for pair, two in both.items() if known.close.get(two) is None and (two in exact or two not in known.close)
    ]
    read |= _read_at(texts, {each for pair in fresh for each in pair} - read.keys())
    news = {both[a, b]: _closeness(read[a], read[b], 0.0 if both[a, b] in exact else least) for a, b in fresh}
    known.close = {two: news[two] if two in news else known.close[two] for two in both.values()}
    found = ((pair, known.close[two]) for pair, two in both.items())
    return [Alike._make((*pair, *how)) for pair, how in found if how and (how.score >= least or pair in asked)]


def _closeness(mine: "_Wording", theirs: "_Wording", least: float) -> _Closeness | None:
    score = _score(mine, theirs, least)
    if score < least:
        return None
    differs = _differences(mine, theirs)
    return _Closeness(score, differs, _is_replaced(mine, theirs), _is_turned(mine, theirs, differs))


def likely_pairs(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs among many texts that may say much the same, as (smaller number, larger), in order.

    A full-text index tells which texts hold a word. Each text is paired with those beside it in the lists of the rarer
    half of its words, at most ``PARTNERS_MAX``, where they have half of their words in common. The cost is that of the
    index, whatever the texts are.
    """
    holders: dict[str, list[int]] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE said USING fts5 (text, {_ASKED_ONLY})")
        connection.execute("CREATE VIRTUAL TABLE word USING fts5vocab (said, instance)")
        rows = ((at, Words(text[:CHARS_MAX]).indexed()) for at, text in enumerate(texts))
        connection.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", rows)
        for word, at in connection.execute("SELECT DISTINCT term, doc FROM word ORDER BY term, doc"):
            holders.setdefault(word, []).append(at)
    words: list[list[str]] = [[] for _ in texts]
    for word in sorted(holders, key=lambda word: (len(holders[word]), word)):
        for at in holders[word]:
            words[at].append(word)
    found: set[tuple[int, int]] = set()
    for at, own in enumerate(words):
        shared: Counter[int] = Counter()
        for word in own[: len(own) // 2 + 1]:
            places = holders[word]
            here = bisect_left(places, at)
            shared.update(places[max(here - _BESIDE, 0) : here + _BESIDE + 1])
        del shared[at]
        mine = frozenset(own)
        for each in heapq.nlargest(PARTNERS_MAX, shared, key=lambda each: (shared[each], -each)):
            if 2 * len(mine.intersection(words[each])) >= max(len(own), len(words[each])):
                found.add(_pair(at, each))
    return sorted(found)


def _is_turned(mine: "_Wording", theirs: "_Wording", differs: tuple[str, ...]) -> bool:
    if not differs or not TURNS.issuperset(differs):
        return False
    only = len(mine.told - theirs.told), len(theirs.told - mine.told)
    return sum(only) <= 1 or ("opposite" in differs and max(only) <= 1)


def _is_replaced(mine: "_Wording", theirs: "_Wording") -> bool:
    """Tell whether two texts differ in one or two words at one place, or in two words that changed places."""
    one, other = mine.telling, theirs.telling
    head = _shared_head(one, other)
    tail = _shared_head(one[head:][::-1], other[head:][::-1])
    left = len(one) - head - tail, len(other) - head - tail
    if head + tail > 0 and min(left) >= 1 and max(left) <= _REPLACED_MAX:
        return True
    exchanged = {frozenset(pair) for pair in zip(one, other, strict=False) if pair[0] != pair[1]}
    return len(one) == len(other) and len(exchanged) == 1


def _shared_head(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many words two texts have in common at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _partners(told: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of texts that share a third of the words of one, at most ``PARTNERS_MAX`` for each."""
    holders: dict[str, list[int]] = {}
    for at, stems in enumerate(told):
        for stem in stems:
            holders.setdefault(stem, []).append(at)

    @cache
    def closest(stems: frozenset[str]) -> list[int]:
        """Return the texts that share most of some stems, of equals the first: one more, since one may be asking."""
        looked, enough = list[int](), -(-len(stems) // 3)
        # The rarest words first: what everybody says tells little, and is looked up only while there is room.
        for stem in sorted(stems, key=lambda stem: (len(holders[stem]), stem)):
            looked += holders[stem][: LOOKED_MAX - len(looked)]
        shared = (count * len(told) - each for each, count in Counter(looked).items() if count >= enough)
        return [-each % len(told) for each in heapq.nlargest(PARTNERS_MAX + 1, shared)]

    for at, stems in enumerate(told):
        yield from islice((_pair(at, each) for each in closest(stems) if each != at), PARTNERS_MAX)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _score(mine: "_Wording", theirs: "_Wording", least: float = 0.0) -> float:
    """Return how much of their words two texts share, from 0 to 1; 0 where that cannot reach ``least``."""
    from rapidfuzz import fuzz

    a, b = mine.told, theirs.told
    if not a or not b:
        return 0.0
    shared = len(a & b)
    words = 0.5 * 2 * shared / (len(a) + len(b)) + 0.2 * shared / min(len(a), len(b))
    if words + 0.3 < least:
        return 0.0
    return round(words + 0.3 * fuzz.token_set_ratio(" ".join(mine.telling), " ".join(theirs.telling)) / 100, 3)


# --- what differs ---------------------------------------------------------------------------------------------------


class _Word(msgspec.Struct, frozen=True):
    """A word of a lesson: its stem, or itself where nothing else will do; its clause; True where it is negated."""

    said: str
    stem: str
    clause: int
    is_exact: bool
    is_negated: bool


class _Wording(msgspec.Struct, frozen=True):
    """A lesson taken apart, once for all that it is compared with.

    Attributes:
        words: in their order.
        told: the stems that tell something.
        telling: the same in their order, as often as they are said.
        asserted, denied: those that are said without a negation, and with one.
        said: all words and stems.
        exact, plain: the stems of what is exact, and of the other words.
        numbers: with their units.
        relations: what comes first and what comes last, around each word that tells.
    """

    words: list[_Word]
    told: frozenset[str]
    telling: list[str]
    asserted: frozenset[str]
    denied: frozenset[str]
    said: frozenset[str]
    exact: frozenset[str]
    plain: frozenset[str]
    numbers: frozenset[tuple[str, str]]
    relations: list[tuple[set[str], set[str]]]


class _Lists(msgspec.Struct, frozen=True):
    """The content of ``data/words.txt``; ``poles`` says of a stem at which poles of which opposites it stands."""

    stop: frozenset[str]
    negators: frozenset[str]
    negative_verbs: frozenset[str]
    faults: frozenset[str]
    clauses: frozenset[str]
    names: frozenset[str]
    numbers: Mapping[str, int]
    poles: Mapping[str, frozenset[tuple[int, int]]]
    unspaced: tuple[tuple[list[str], list[str]], ...]
    negators_unspaced: str


@cache
def _lists() -> _Lists:
    known = sections("words.txt")
    words = {name: " ".join(rows).split() for name, rows in known.items()}
    spaced, unspaced = (
        [[pole.split() for pole in row.split(" / ")] for row in known[name]]
        for name in ("opposites", "opposites_unspaced")
    )
    verbs, faults = words["negative_verbs"], words["faults"]
    stems = _stems([*verbs, *faults, *(word for poles in spaced for pole in poles for word in pole)])
    poles: dict[str, set[tuple[int, int]]] = {}
    for axis, pair in enumerate(spaced):
        for sign, pole in enumerate(pair):
            for word in pole:
                poles.setdefault(stems[word], set()).add((axis, sign))
    stop, negators, clauses, names = (frozenset(words[name]) for name in ("stop", "negators", "clauses", "names"))
    return _Lists(
        stop=stop,
        negators=negators,
        negative_verbs=frozenset(stems[verb] for verb in verbs),
        faults=frozenset(stems[fault] for fault in faults),
        clauses=clauses,
        names=names,
        numbers={name: int(value) for name, value in map(str.split, known["numbers"])},
        poles={stem: frozenset(found) for stem, found in poles.items()},
        unspaced=tuple((one, other) for one, other in unspaced),
        negators_unspaced="|".join(sorted(words["negators_unspaced"], key=len, reverse=True)),
    )


def _stems(words: Iterable[str]) -> dict[str, str]:
    """Return the stem of each word, as the full-text index has it."""
    given = sorted(set(words))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE word USING fts5 (said, {_ASKED_ONLY})")
        connection.execute("CREATE VIRTUAL TABLE stem USING fts5vocab (word, instance)")
        connection.executemany("INSERT INTO word (rowid, said) VALUES (?, ?)", enumerate(given))
        rows = connection.execute("SELECT doc, group_concat(term, ' ') FROM stem GROUP BY doc")
        found = {given[doc]: str(stem) for doc, stem in rows}
    return {word: found.get(word, word) for word in given}


_LEXEME = r"""
      (?P<code>`+[^`]+`+)
    | (?P<flag>(?<![\w`-])--?[A-Za-z][\w-]*)
    | (?P<path>(?<![\w.])(?:~|\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)*/? | (?<!\w)[\w-]+(?:/[\w.-]+)+\.[A-Za-z]\w*
        | (?<![\w.])\.[A-Za-z][\w.-]*\w)
    | (?P<name>[A-Za-z]\w*(?:\.[A-Za-z_]\w+)+ | [A-Za-z]*_\w+ | [a-z]+[A-Z][A-Za-z]* | [A-Z][a-z]+[A-Z][A-Za-z]*)
    | (?P<number>(?:(?<![\w)\]}-])-)?v?\d+(?:[.,]\d+)*\s?%?)
    | (?P<cjk>[^\W\d_\0-\u2e7f]+)  # beyond are the scripts without blanks; few ranges compile quickly
    | (?P<word>(?:(?=[\0-\u2e7f])[^\W\d_])+(?:['’-][^\W\d_]+)*)
    | (?P<mark>[.;:!?,()—–…、。，；：！？（）])
    """
_CJK_NUMBER = "([一二两三四五六七八九十百千]+)[次秒分小天个张行层位倍遍轮条周月年级]"
_CJK_DIGITS = str.maketrans("一二两三四五六七八九", "1223456789")
_CHOOSING = frozenset(
    ("prefer", "prefers", "choose", "favor", "favour", "pick", "recommend", "recommends", "use", "uses", "using")
)
_PREPOSITIONS = frozenset(("for", "in", "on", "at", "by", "with", "from", "to", "inside"))


def _name(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read_at(texts: Sequence[str], numbers: Collection[int]) -> dict[int, _Wording]:
    """Take some of the lessons apart."""
    return dict(zip(numbers, _read([texts[at] for at in numbers]), strict=True)) if numbers else {}


def _read(texts: Sequence[str]) -> list[_Wording]:
    """Take lessons apart. All at once, since their stems are asked for together."""
    cut = [list(_lexemes(unicodedata.normalize("NFKC", text[:CHARS_MAX]))) for text in texts]
    stems = _stems({said.casefold() for pieces in cut for kind, said in pieces if kind in ("word", "code")})
    return [_wording(pieces, stems) for pieces in cut]


@cache  # compiled with the first text: it takes 5 ms, and most commands compare none
def _lexeme() -> re.Pattern[str]:
    return re.compile(_LEXEME, re.VERBOSE)


def _lexemes(text: str) -> Iterator[tuple[str, str]]:
    for found in _lexeme().finditer(text):
        kind, said = str(found.lastgroup), found[0].replace("’", "'")
        if kind == "word" and said.casefold().endswith("n't"):
            yield kind, said[:-3]
            yield kind, "not"
        elif kind == "word":
            yield kind, said.removesuffix("'s")
        elif kind == "cjk":
            yield from _cjk(said)
        elif kind == "code":
            inside = said.strip("`").strip()
            inner = [(each if each != "word" else kind, word) for each, word in _lexemes(inside) if each != "mark"]
            yield from inner or [(kind, inside)]
        else:
            yield kind, said


def _cjk(run: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of letters of a run, behind its negators: there are no blanks to tell words by."""
    for found in re.finditer(_CJK_NUMBER, run):
        yield "number", found[1].translate(_CJK_DIGITS)
    if run.startswith(("再", "然后")):
        yield "word", "then"
    bare, negators = re.subn(_lists().negators_unspaced, "", run)
    if negators % 2:
        yield "word", "not"
    yield from (("cjk", bare[at : at + 2]) for at in range(max(len(bare) - 1, 1)) if bare)


def _wording(pieces: list[tuple[str, str]], stems: Mapping[str, str]) -> _Wording:
    lists = _lists()
    words: list[_Word] = []
    numbers: set[tuple[str, str]] = set()
    clause: list[_Word] = []
    number = 0
    for at, (kind, said) in enumerate(pieces):
        folded = said.casefold()
        if kind == "mark" or (kind == "word" and folded in lists.clauses):
            words += _signed_clause(clause)
            number, clause = number + 1, []
            if folded == "then":  # it says what comes first, too
                words.append(_Word(folded, folded, number, is_exact=False, is_negated=False))
            continue
        if kind == "number" or (kind == "word" and folded in lists.numbers):
            value = str(lists.numbers.get(folded, said)).rstrip("% ").replace(",", "")
            following = pieces[at + 1][1].casefold() if at + 1 < len(pieces) and pieces[at + 1][0] == "word" else ""
            numbers.add((value, "%" if said.endswith("%") else stems.get(following, "")))
            continue
        is_exact = kind in ("code", "flag", "path", "name") or folded in lists.names
        is_word = kind == "word" or (kind == "code" and said.isalpha())  # `continue` is the word that others write bare
        stem = stems.get(folded, folded) if is_word else said
        clause.append(_Word(folded if kind == "word" else said, stem, number, is_exact, is_negated=False))
    words += _signed_clause(clause)
    told = frozenset(w.stem for w in words if w.is_exact or not (w.said in lists.stop or _is_negator(w)))
    telling = [w for w in words if w.stem in told]
    return _Wording(
        words=words,
        told=told,
        telling=[w.stem for w in telling],
        asserted=frozenset(w.stem for w in telling if not w.is_negated),
        denied=frozenset(w.stem for w in telling if w.is_negated),
        said=frozenset(said for w in words for said in (w.stem, w.said)),
        exact=frozenset(w.stem for w in words if w.is_exact),
        plain=frozenset(w.stem for w in words if not w.is_exact),
        numbers=frozenset(numbers),
        relations=list(_relations(words, told)),
    )


def _signed_clause(clause: list[_Word]) -> list[_Word]:
    """Return the words of a clause with those negated that a negator reaches: what follows, else what precedes."""
    lists = _lists()
    turned = [False] * len(clause)
    is_turned_already = False
    for at, word in enumerate(clause):
        is_fault = word.stem in lists.faults and not word.is_exact
        if not (is_fault or _negates(clause, at)) or (is_fault and is_turned_already):
            continue
        is_turned_already = True
        telling = [n for n in range(at + 1, len(clause)) if clause[n].said not in lists.stop]
        end = len(clause)
        if telling and word.said in ("over", "to", "instead", "rather"):  # "awk over sed for input" takes input
            end = next((n for n in range(telling[0], end) if clause[n].said in _PREPOSITIONS), end)
        for n in range(at + 1, end) if telling else range(at):
            turned[n] = not turned[n]
    return [msgspec.structs.replace(word, is_negated=is_turned) for word, is_turned in zip(clause, turned, strict=True)]


def _negates(clause: list[_Word], at: int) -> bool:
    said, following = clause[at].said, clause[at + 1].said if at + 1 < len(clause) else ""
    before = {word.said for word in clause[:at]}
    if clause[at].is_exact:
        return False
    if said in ("over", "to"):
        return "prefer" in before or (said == "over" and not before.isdisjoint(_CHOOSING))
    return _is_negator(clause[at]) or (said, following) in (("instead", "of"), ("rather", "than"))


def _is_negator(word: _Word) -> bool:
    return word.said in _lists().negators or word.stem in _lists().negative_verbs


def _differences(mine: _Wording, theirs: _Wording) -> tuple[str, ...]:
    numbers = mine.numbers ^ theirs.numbers
    is_version = any("." in value or value.startswith("v") for value, _ in numbers)
    seen = {
        "number": bool(numbers) and not is_version and _other_numbers(mine.numbers, theirs.numbers),
        "version": bool(numbers) and is_version,
        "name": bool(mine.exact - theirs.said) and bool(theirs.exact - mine.said),  # each names what the other does not
        "negation": _is_denied(mine, theirs),
        "opposite": _is_opposed(mine, theirs),
        "order": _is_swapped(mine, theirs),
    }
    return tuple(name for name in DIFFERENCES if seen[name])


def _other_numbers(mine: frozenset[tuple[str, str]], theirs: frozenset[tuple[str, str]]) -> bool:
    """Tell whether values differ, or the units that both name."""
    if {value for value, _ in mine} != {value for value, _ in theirs}:
        return True
    units = dict(theirs)
    return any(unit and units[value] and unit != units[value] for value, unit in mine)


def _is_denied(mine: _Wording, theirs: _Wording) -> bool:
    """Tell whether one denies what the other says, while they deny nothing together."""
    if (mine.told, mine.asserted, mine.denied) == (theirs.told, theirs.asserted, theirs.denied):
        after = [_denied_first(wording) for wording in (mine, theirs)]  # "why, not what" and "what, not why"
        return bool(after[0]) and bool(after[1]) and after[0].isdisjoint(after[1])
    if (mine.denied & theirs.denied) - mine.asserted - theirs.asserted:
        return False
    return bool((mine.denied & theirs.asserted) - mine.asserted or (theirs.denied & mine.asserted) - theirs.asserted)


def _denied_first(wording: _Wording) -> set[str]:
    """Return the words that follow "not" and the like at once, but for those that only say to do something."""
    said = [word.said for word in wording.words if word.said not in _CHOOSING]
    return {after for word, after in pairwise(said) if word in ("not", "never", "no")}


def _is_opposed(mine: _Wording, theirs: _Wording) -> bool:
    lists = _lists()
    only = [mine.plain - theirs.plain, theirs.plain - mine.plain]
    poles = [{pole for stem in each for pole in lists.poles.get(stem, ())} for each in only]
    if any((axis, 1 - sign) in poles[1] for axis, sign in poles[0]):
        return True
    if any(_turned(stem) & only[1 - n] for n in (0, 1) for stem in only[n]):
        return True
    said = ["".join(word.said[0] for word in wording.words if not word.said.isascii()) for wording in (mine, theirs)]
    return all(said) and any(
        _has(a, one) and _has(b, other) and not _has(a, other) and not _has(b, one)
        for a, b in (said, said[::-1])
        for one, other in lists.unspaced
    )


def _turned(stem: str) -> set[str]:
    """Return a stem with what turns its meaning round; "put" is a part of "input" and not its opposite."""
    prefixes = ("un", "non") if len(stem) < 5 else ("un", "non", "in", "im", "ir", "dis", "de", "anti", "mis", "a")
    return {prefix + stem for prefix in prefixes} if len(stem) > 2 else set()


def _has(text: str, words: list[str]) -> bool:
    return any(word in text for word in words)


_FIRST = {"before": False, "after": True, "into": False, "to": False, "from": True, "then": False, "than": False}
"""Words that say what comes first; True where it stands behind them."""


def _is_swapped(mine: _Wording, theirs: _Wording) -> bool:
    """Tell whether what the one puts first the other puts last, or they say the same words in another order."""
    pairs = [(a, b) for a in mine.relations for b in theirs.relations]
    straight = sum(len(a[0] & b[0]) + len(a[1] & b[1]) for a, b in pairs)
    crossed = sum(len(a[0] & b[1]) + len(a[1] & b[0]) for a, b in pairs)
    if crossed and crossed >= straight:
        return True
    if straight or mine.told != theirs.told:
        return False
    if sorted(w.said for w in mine.words) != sorted(w.said for w in theirs.words):
        return False
    one, other = mine.telling, theirs.telling
    return not any(one[at:] + one[:at] == other for at in range(len(one)))  # "in CI pin it", "pin it in CI"


def _relations(words: Sequence[_Word], told: Container[str]) -> Iterator[tuple[set[str], set[str]]]:
    """Yield what comes first and what comes last, around each word of ``_FIRST``."""
    for at, word in enumerate(words):
        if word.said not in _FIRST or word.is_exact:
            continue
        left = {w.stem for w in words[:at] if w.stem in told}
        right = {w.stem for w in words[at + 1 :] if w.stem in told}
        if not left:  # "before the tests, run the linter"
            clause = [w.stem for w in words if w.clause == word.clause and w.stem in told]
            left, right = right - set(clause), set(clause)
        if left and right:
            yield (right, left) if _FIRST[word.said] else (left, right)
