"""Tokens of a text for the full-text index, and the lessons nearest to a text with what differs between them.

No decision is made here: the agent that logs a lesson can best judge whether similar ones say the same. The named
differences (a number, a version, a name, a negation, an opposite, an order) help to judge. They are sometimes wrong,
since no grammar is parsed. Stems are those of SQLite's full-text index.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, cached_property, partial
from itertools import islice, pairwise, product, takewhile
from types import MappingProxyType

import msgspec

from fleet.text import sections
from fleet.text.screening import strip_controls

CHARS_MAX = 800
"""Compared part of a text: the topic of a lesson is in its first sentences."""
NEAR_MAX = 3
NEAR_MIN = 0.35
"""Least score of a near lesson: below, two texts share little more than a word."""
CLOSE_MIN = 0.5
"""Least cosine of a lesson that is near whatever its words are."""
CANDIDATES_MAX = 40
_REPLACED_MAX = 2
ALIKE_MIN = 0.6
"""Least score of two texts that a hasty reader might take for one another."""
TURNS = frozenset(("negation", "opposite", "order"))
"""Differences that make opposites of two lessons with the same words."""
_FUSION = 60  # reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009)
TERMS_MAX = 60
TOKENIZER = "porter unicode61 remove_diacritics 2"
"""The tokenizer of the full-text tables, whose texts come from ``Words.indexed``."""
CONTENTLESS = f"content = '', columnsize = 0, tokenize = '{TOKENIZER}'"
"""Options of a full-text table that stores an index of words, and neither texts nor their lengths."""

# --- the words of the index -----------------------------------------------------------------------------------------

# Letters and digits of the scripts that put blanks between words and whose letters the tokenizer (Unicode 6.1) knows:
# Latin, Greek, Cyrillic, Armenian. Hebrew and Arabic glue prepositions to the word: each of their letters is a token,
# as those of scripts without blanks are. The ranges list what is in: "all letters but" takes 6 ms to compile.
_SPACED = (
    r"[0-9A-Za-zªµº²³¹¼-¾À-ÖØ-öø-ˁˆ-ˑˠ-ˤˬˮ\u0370-\u0374\u0376-\u037d\u037f\u0386\u0388-\u03f5\u03f7-\u0481\u048a-\u0556"
    r"\u0559\u0560-\u0588\u1e00-\u1fbc\u1fbe\u1fc2-\u1fcc\u1fd0-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ffc]"
)
_WORD = re.compile(rf"{_SPACED}+|[^\W_]")
# The first symbol is matched as no ASCII letter or blank, and only then as a symbol: so `re` skips words at once.
_SYMBOLS = re.compile(rf"(?P<run>[^\0-\x200-9A-Za-z](?<=[\W_])(?<!\s)(?:[^\w\s]|_)*)(?P<after>{_SPACED}*)")
_PUNCTUATION = re.compile(r"[,;!?…()\[\]{}\"'`“”‘’«»。，、；！？（）「」—–]+")
_JOINERS = frozenset("-_./:@'’")
"""Symbols that make a phrase of the words around them: ``pre-commit``, ``state.db``."""
_SYMBOLS_MAX = 4
_PRIVATE = 0xF0000
"""Symbols are indexed as letters for private use: the tokenizer keeps those."""


class Words:
    """Words and symbols of a text, as tokens of the full-text index."""

    def __init__(self, text: str) -> None:
        self._text = strip_controls(text if text.isascii() else unicodedata.normalize("NFC", text))

    def indexed(self) -> str:
        """Return the text for a full-text table: its words, then symbols with the word after them, as in ``--json``.

        Words of scripts without blanks come letter by letter: a phrase of them matches anywhere. Each end of a run of
        symbols is a token, so that ``->`` matches ``|->``.
        """
        # The tokenizer takes ASCII apart as `words` does.
        tokens = [self._text] if self._text.isascii() else self.words()
        for run, after in self._symbols():
            tokens += [run[start:] + after for start in range(min(len(run), _SYMBOLS_MAX))]
        return " ".join(tokens)

    def words(self) -> list[str]:
        """Return the words, and letters of scripts without blanks, in their order."""
        return _WORD.findall(self._text)

    def phrases(self) -> list[str]:
        """Return full-text expressions of the literal text: its words as a phrase, and each run of symbols."""
        words = self.words()
        phrase = [_quoted(" ".join(words))] if words else []
        signs = (run[:_SYMBOLS_MAX] + after * (len(run) <= _SYMBOLS_MAX) for run, after in self._symbols())
        return phrase + [f"{_quoted(sign)} *" for sign in signs]

    def terms(self) -> list[str]:
        """Return a full-text expression for each word at the beginning that is no stop word."""
        start = Words(self._text[:CHARS_MAX])
        words = [word for word in start.words() if not is_stop(word)]
        pairs = [f"{one} {other}" for one, other in pairwise(words) if _is_letter(one) and _is_letter(other)]
        alone = [word for word in words if not _is_letter(word)] or ([] if pairs else words)
        terms = dict.fromkeys([*alone, *pairs, *(run[:_SYMBOLS_MAX] + after for run, after in start._symbols())])
        return [_quoted(term) for term in terms][:TERMS_MAX]

    def _symbols(self) -> list[tuple[str, str]]:
        """Return each run of symbols with the word right after it."""
        symbols: list[tuple[str, str]] = []
        for match in _SYMBOLS.finditer(self._text):
            run, after = match["run"], match["after"]
            if after and run in _JOINERS and re.match(_SPACED, self._text[match.start() - 1 : match.start()]):
                continue
            *alone, last = _PUNCTUATION.split(run)
            if last and after:
                symbols.append((_private(last), after))
            else:
                alone.append(last)
            symbols += [(_private(core), "") for part in alone if (core := part.rstrip(".:"))]
        return symbols

    @staticmethod
    def stems(words: Iterable[str]) -> dict[str, str]:
        """Return the stem of each word in the full-text index."""
        unique = list(dict.fromkeys(words))
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE VIRTUAL TABLE word USING fts5 (text, {CONTENTLESS})")
            connection.execute("CREATE VIRTUAL TABLE stem USING fts5vocab (word, instance)")
            connection.executemany("INSERT INTO word (rowid, text) VALUES (?, ?)", enumerate(unique))
            rows = connection.execute("SELECT doc, group_concat(term, ' ') FROM stem GROUP BY doc")
            stems = {unique[doc]: str(stem) for doc, stem in rows}
        return {word: stems.get(word, word) for word in unique}


def is_stop(word: str) -> bool:
    """Return whether a word is a stop word: in most lessons, or without a meaning of its own."""
    return word.casefold() in _words("stop")


def _private(symbols: str) -> str:
    return "".join(chr(_PRIVATE + (ord(char) & 0xFFFF)) for char in symbols)


def _is_letter(word: str) -> bool:
    return len(word) == 1 and not re.match(_SPACED, word)


def _quoted(text: str) -> str:
    return f'"{text}"'


# --- the nearest ----------------------------------------------------------------------------------------------------


class Near(msgspec.Struct, frozen=True):
    """Known lesson that is close to a text, with its score from 0 to 1, and their differences, of ``DIFFERENCES``."""

    id: str
    text: str
    score: float
    differs: tuple[str, ...]

    @classmethod
    def same(cls, text: str, candidates: Sequence[tuple[str, str]], least: float) -> "Near | None":
        """Return the nearest candidate that scores at least ``least`` and surely says the same; None for none."""
        for each in near(text, candidates, len(candidates)):
            mine, theirs = ParsedText.of([text, each.text])
            if each.score >= least and not (each.differs or mine.is_doubtful(theirs) or mine.is_part(theirs)):
                return each
        return None


DIFFERENCES = ("number", "version", "name", "negation", "opposite", "order")


def near(
    text: str,
    candidates: Sequence[tuple[str, str]],
    count: int = NEAR_MAX,
    meaning: Mapping[str, float] = MappingProxyType({}),
    merged: Mapping[str, str] = MappingProxyType({}),
    least: float = NEAR_MIN,
) -> list[Near]:
    """Return the candidates closest to a text, best first, with their differences; of a merged set only the closest.

    Three rankings are fused: the order of the candidates (best first in the full-text index), which weighs rare words;
    the scores, which weigh how much two lessons share; and the cosines.

    ``meaning``: cosines of candidates with a similar meaning, best first.
    ``merged``: ids of merged candidates, to the id of their set.
    ``least``: least score of a candidate whose cosine is unknown or below ``CLOSE_MIN``.
    """
    mine, *others = ParsedText.of([text, *(candidate for _, candidate in candidates)])
    wordings = {id_: (candidate, theirs) for (id_, candidate), theirs in zip(candidates, others, strict=True)}
    scores = {id_: mine.score(theirs) for id_, (_, theirs) in wordings.items()}
    by_score = sorted(scores, key=lambda id_: -scores[id_])
    closest: dict[str, str] = {}
    for id_ in fused(scores, by_score, [id_ for id_ in meaning if id_ in scores]):
        if scores[id_] >= least or meaning.get(id_, 0.0) >= CLOSE_MIN:
            closest.setdefault(merged.get(id_, id_), id_)
    nearest = ((id_, *wordings[id_]) for id_ in islice(closest.values(), count))
    return [Near(id_, candidate, scores[id_], mine.differences(theirs)) for id_, candidate, theirs in nearest]


def fused(*rankings: Iterable[str]) -> list[str]:
    """Return the ids of some rankings in one, by reciprocal rank fusion; of equals the first of the first ranking."""
    points: dict[str, float] = {}
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, 1):
            points[id_] = points.get(id_, 0.0) + 1 / (_FUSION + rank)
    return sorted(points, key=lambda id_: -points[id_])


# --- differences ----------------------------------------------------------------------------------------------------


class _Word(msgspec.Struct, frozen=True):
    """Word or number of a lesson, with its stem and clause; an exact one, such as a path, has itself as its stem."""

    text: str
    stem: str
    clause: int
    is_exact: bool = False
    is_negator: bool = False
    is_negated: bool = False
    is_number: bool = False


class ParsedText:
    """Parsed text of a lesson. At first, only stems and their sequence are computed, as most texts are far apart.

    ``stems``: those of words that are neither stop words nor negators; if that is one at most, of stop words, too.
    """

    def __init__(self, clauses: list[list[_Word]], numbers: frozenset[tuple[str, str]]) -> None:
        stop, words = _words("stop"), [word for clause in clauses for word in clause if not word.is_number]
        self._clauses = clauses
        content = frozenset(w.stem for w in words if w.is_exact or not (w.text in stop or w.is_negator))
        self.stems = content if len(content) > 1 else frozenset(w.stem for w in words if not w.is_negator)
        self._sequence = [w.stem for w in words if w.stem in self.stems]
        self.numbers = numbers

    @classmethod
    def of(cls, texts: Sequence[str]) -> "list[ParsedText]":
        """Parse texts, all at once, since one query returns all their stems."""
        lexemes = [list(_lexemes(unicodedata.normalize("NFKC", text[:CHARS_MAX]))) for text in texts]
        words = {lexeme.casefold() for pieces in lexemes for kind, lexeme in pieces if kind in ("word", "code")}
        stems = Words.stems(words | _words("negative_verbs"))
        return [_parsed(pieces, stems) for pieces in lexemes]

    def score(self, other: "ParsedText", least: float = 0.0) -> float:
        """Return the share of their words that two texts have in common, 0 to 1; 0 where it cannot reach ``least``."""
        from rapidfuzz import fuzz

        a, b = self.stems, other.stems
        if not a or not b:
            return 0.0
        shared = len(a & b)
        words = 0.5 * 2 * shared / (len(a) + len(b)) + 0.2 * shared / min(len(a), len(b))
        if words + 0.3 < least:
            return 0.0
        return round(words + 0.3 * fuzz.token_set_ratio(" ".join(self._sequence), " ".join(other._sequence)) / 100, 3)

    def differences(self, other: "ParsedText") -> tuple[str, ...]:
        """Return what differs from another text, of ``DIFFERENCES``."""
        if self.words == other.words and self.numbers == other.numbers:
            return ()
        numbers = self.numbers ^ other.numbers
        is_version = any("." in value or value.startswith("v") for value, _ in numbers)
        is_different = {
            "number": bool(numbers) and not is_version and _other_numbers(self.numbers, other.numbers),
            "version": bool(numbers) and is_version,
            "name": bool(self.exact - other.forms) and bool(other.exact - self.forms),  # each has a name of its own
            "negation": _is_denied(self, other),
            "opposite": _is_opposed(self, other),
            "order": _is_swapped(self, other),
        }
        return tuple(name for name in DIFFERENCES if is_different[name])

    def is_doubtful(self, other: "ParsedText") -> bool:
        """Return whether another text may say another thing, though no difference has a name.

        They differ in one or two words at a single position, or words or numbers of them changed places.
        """
        one, theirs = self._decisive, other._decisive
        middles = _middles(one, theirs)
        if len(middles[0]) < len(one) and all(middles) and max(map(len, middles)) <= _REPLACED_MAX:
            return True
        exchanged = {frozenset(pair) for pair in zip(one, theirs, strict=False) if pair[0] != pair[1]}
        return (len(one) == len(theirs) and len(exchanged) == 1) or _has_moved_numbers(self, other)

    def is_part(self, other: "ParsedText") -> bool:
        """Return whether one text says all that the other says, and more: that may be a condition."""
        short, long = sorted((self._decisive, other._decisive), key=len)
        rest = iter(long)
        return len(short) < len(long) and all(each in rest for each in short)

    @cached_property
    def words(self) -> list[_Word]:
        """Words in their order."""
        return [word for clause in self._clauses for word in _with_negation(clause)]

    @cached_property
    def _decisive(self) -> list[str]:
        """Stems and numbers in their order, with the stop words that may decide what is meant."""
        stop, deciding = _words("stop"), _words("deciding")
        return [
            w.stem
            for w in self.words
            if w.is_number or w.text in deciding or (w.stem in self.stems and w.text not in stop)
        ]

    @cached_property
    def asserted(self) -> frozenset[str]:
        """Stems without a negation."""
        return self.stems.intersection(w.stem for w in self.words if not w.is_negated)

    @cached_property
    def denied(self) -> frozenset[str]:
        """Stems with a negation."""
        return self.stems.intersection(w.stem for w in self.words if w.is_negated)

    @cached_property
    def forms(self) -> frozenset[str]:
        """All words and stems."""
        return frozenset(form for w in self.words for form in (w.stem, w.text))

    @cached_property
    def exact(self) -> frozenset[str]:
        """Stems of exact words."""
        return frozenset(w.stem for w in self.words if w.is_exact)

    @cached_property
    def relations(self) -> list[tuple[set[str], set[str], bool]]:
        """The stems that come first and those that come last, around each word of ``_FIRST``, and whether in time."""
        relations = []
        for index, word in enumerate(self.words):
            if word.text not in _FIRST or word.is_exact:
                continue
            is_in_time = word.text in _TIMES
            left, right = (
                {w.stem for w in side if w.stem in self.stems and (is_in_time or w.clause == word.clause)}
                for side in (self.words[:index], self.words[index + 1 :])
            )
            if not left:  # "before the tests, run the linter"
                clause = {w.stem for w in self.words if w.clause == word.clause and w.stem in self.stems}
                left, right = right - clause, clause
            if left and right:
                relations.append((*((right, left) if _FIRST[word.text] else (left, right)), is_in_time))
        return relations


_lists = cache(partial(sections, "words.txt"))


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(" ".join(_lists()[name]).split())


@cache
def _numbers() -> dict[str, str]:
    """Return the figures of number words."""
    return dict(row.split() for row in _lists()["numbers"])


@cache
def _pairs(name: str) -> list[list[list[str]]]:
    """Return the pairs of opposites in a list, each pole with all its words."""
    return [[pole.split() for pole in row.split(" / ")] for row in _lists()[name]]


@cache
def _poles() -> dict[str, set[tuple[int, int]]]:
    """Return stem to its poles: the number of a pair of opposites, and the stem's side in it."""
    sides = [
        (word, axis, sign)
        for axis, pair in enumerate(_pairs("opposites"))
        for sign, pole in enumerate(pair)
        for word in pole
    ]
    stems, poles = Words.stems(word for word, *_ in sides), dict[str, set[tuple[int, int]]]()
    for word, axis, sign in sides:
        poles.setdefault(stems[word], set()).add((axis, sign))
    return poles


_LEXEME = r"""
      (?P<code>`+[^`]+`+)
    | (?P<date>\b\d{4}-\d\d-\d\d\b | \b\d\d?:\d\d(?::\d\d)?\b)
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


# Compiled with the first text: it takes 5 ms, and most commands compare none.
_lexeme = cache(partial(re.compile, _LEXEME, re.VERBOSE))


def _lexemes(text: str) -> Iterator[tuple[str, str]]:
    for match in _lexeme().finditer(text):
        kind, lexeme = str(match.lastgroup), match[0].replace("’", "'")
        if kind == "word" and lexeme.casefold().endswith("n't"):
            yield kind, lexeme[:-3]
            yield kind, "not"
        elif kind == "word":
            yield kind, lexeme.removesuffix("'s")
        elif kind == "cjk":
            yield from _cjk(lexeme)
        elif kind == "code":
            code = lexeme.strip("`").strip()
            inner = [("code" if part == "word" else part, word) for part, word in _lexemes(code) if part != "mark"]
            yield from inner or [(kind, code)]
        else:
            yield kind, lexeme


def _cjk(run: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers, "then" and "not" of a run, and its bigrams, since there are no blanks between words."""
    for match in re.finditer(_CJK_NUMBER, run):
        yield "number", match[1].translate(_CJK_DIGITS)
    if run.startswith(("再", "然后")):
        yield "word", "then"
    longest_first = sorted(_words("negators_unspaced"), key=len, reverse=True)
    bare, negators = re.subn("|".join(longest_first), "", run)
    if negators % 2:
        yield "word", "not"
    yield from (("cjk", bare[start : start + 2]) for start in range(max(len(bare) - 1, 1)) if bare)


def _parsed(pieces: list[tuple[str, str]], stems: Mapping[str, str]) -> ParsedText:
    negators, negative_verbs = _words("negators"), {stems[verb] for verb in _words("negative_verbs")}
    numbers: set[tuple[str, str]] = set()
    clause: list[_Word] = []
    clauses = [clause]
    number = 0
    for index, (kind, lexeme) in enumerate(pieces):
        folded = lexeme.casefold()
        is_joined = folded in ("and", "or") and any(w.casefold() in negators for _, w in pieces[index + 1 : index + 3])
        if kind == "mark" or is_joined or (kind == "word" and folded in _words("clauses")):
            number, clause = number + 1, []
            if folded == "then":  # a word of ``_FIRST``, too
                clauses.append([_Word(folded, folded, number)])
            if folded == "unless":  # "if not"
                clause.append(_Word(folded, folded, number, is_negator=True))
            clauses.append(clause)
            continue
        following, after = pieces[index + 1] if index + 1 < len(pieces) else ("", "")
        if kind in ("number", "date") or (kind == "word" and folded in _numbers()):
            value = _numbers().get(folded, lexeme).rstrip("% ").replace(",", "")
            unit = stems.get(after.casefold(), "") if following == "word" else ""
            numbers.add((value, "%" if lexeme.endswith("%") else unit))
            clause.append(_Word(value, value, number, is_number=True))
            continue
        is_name = kind == "word" and (folded in _words("names") or _is_acronym(lexeme))
        is_exact = kind in ("code", "flag", "path", "name") or is_name or folded in _words("names")
        is_word = kind == "word" or (kind == "code" and lexeme.isalpha())  # another text may have `continue` as a word
        stem = folded if is_name else stems.get(folded, folded) if is_word else lexeme
        text = folded if kind == "word" else lexeme
        clause.append(_Word(text, stem, number, is_exact, is_negator=text in negators or stem in negative_verbs))
    return ParsedText(clauses, frozenset(numbers))


def _with_negation(clause: list[_Word]) -> list[_Word]:
    """Return the words of a clause, negated in the scope of a negator: those that follow it, else those before it."""
    stop = _words("stop")
    negated = [False] * len(clause)
    for index, word in enumerate(clause):
        if not _negates(clause, index):
            continue
        content = [n for n in range(index + 1, len(clause)) if clause[n].text not in stop]
        end = len(clause)
        if content and word.text in ("over", "to", "instead", "rather"):  # "awk over sed for input" takes input
            end = next((n for n in range(content[0], end) if clause[n].text in _words("prepositions")), end)
        for n in range(index + 1, end) if content else range(index):
            negated[n] = not negated[n]
    return [msgspec.structs.replace(word, is_negated=value) for word, value in zip(clause, negated, strict=True)]


def _negates(clause: list[_Word], index: int) -> bool:
    word, following = clause[index].text, clause[index + 1].text if index + 1 < len(clause) else ""
    if word in ("over", "to"):
        return word == "over" or any(before.text == "prefer" for before in clause[:index])
    return clause[index].is_negator or (word, following) in (("instead", "of"), ("rather", "than"))


def _is_acronym(lexeme: str) -> bool:
    """Return whether a word is in capitals and not only emphasised: "POST", "EU", and not "NEVER"."""
    folded = lexeme.casefold()
    is_plain = (is_stop(folded) and folded not in _words("deciding")) or folded in _words("negators")
    return len(lexeme) > 1 and lexeme.isupper() and not is_plain


def _other_numbers(mine: frozenset[tuple[str, str]], theirs: frozenset[tuple[str, str]]) -> bool:
    """Return whether values differ, or the units of both."""
    if {value for value, _ in mine} != {value for value, _ in theirs}:
        return True
    units = [{each for each in numbers if each[1]} for numbers in (mine, theirs)]
    both = {value for value, _ in units[0]} & {value for value, _ in units[1]}
    return both != {value for value, _ in units[0] & units[1]}


def _is_denied(mine: ParsedText, theirs: ParsedText) -> bool:
    """Return whether one denies what the other asserts, while both deny nothing in common.

    Of the same words, one may deny once more than the other: "never without" and "never with".
    """
    if (mine.stems, mine.asserted, mine.denied) == (theirs.stems, theirs.asserted, theirs.denied):
        after = [_denied_first(wording) for wording in (mine, theirs)]  # "why, not what" and "what, not why"
        return bool(after[0]) and bool(after[1]) and after[0].isdisjoint(after[1])
    is_odd = sum(word.is_negator for word in mine.words + theirs.words) % 2 == 1
    if (mine.denied & theirs.denied) - mine.asserted - theirs.asserted and not (is_odd and mine.stems == theirs.stems):
        return False
    return bool((mine.denied & theirs.asserted) - mine.asserted or (theirs.denied & mine.asserted) - theirs.asserted)


def _denied_first(wording: ParsedText) -> set[str]:
    """Return the words right after "not" and the like, leaving out "use" and its like."""
    words = [word.text for word in wording.words if word.text not in _words("choosing")]
    return {after for word, after in pairwise(words) if word in ("not", "never", "no")}


def _is_opposed(mine: ParsedText, theirs: ParsedText) -> bool:
    one, other = ({w.stem for w in each.words if not w.is_exact} for each in (mine, theirs))
    only = [one - other, other - one]
    poles = [{pole for stem in stems for pole in _poles().get(stem, ())} for stems in only]
    if any((axis, 1 - sign) in poles[1] for axis, sign in poles[0]):
        return True
    if any(_negated(stem) & only[1 - n] for n in (0, 1) for stem in only[n]):
        return True
    runs = ["".join(word.text[0] for word in wording.words if not word.text.isascii()) for wording in (mine, theirs)]
    return all(runs) and any(
        any(map(a.__contains__, pole)) and any(map(b.__contains__, opposite))
        for a, b in (runs, runs[::-1])
        for pole, opposite in _pairs("opposites_unspaced")
    )


def _negated(stem: str) -> set[str]:
    """Return a stem with each negating prefix; "put" is a part of "input" and not its opposite."""
    prefixes = ("un", "non") if len(stem) < 5 else ("un", "non", "in", "im", "ir", "dis", "de", "anti", "mis", "a")
    return {prefix + stem for prefix in prefixes} if len(stem) > 2 else set()


_FIRST = {"before": False, "after": True, "into": False, "to": False, "from": True, "then": False, "than": False}
"""Words of order; True if the thing that is named after the word comes first."""
_TIMES = frozenset(("before", "after", "then"))
"""Words that order whole clauses; the others order only within their clause."""


def _is_swapped(mine: ParsedText, theirs: ParsedText) -> bool:
    """Return whether one puts first what the other puts last, or both have the same words in another order."""
    for a, b in product(mine.relations, theirs.relations):
        crossed, straight = (a[0] & b[1], a[1] & b[0]), (a[0] & b[0], a[1] & b[1])
        if a[2] == b[2] and all(crossed) and sum(map(len, crossed)) >= sum(map(len, straight)):
            return True
    # A word in backticks is exact, and as plain text it may be a stop word: sequences of other stems have no order.
    return sorted(w.text for w in mine.words) == sorted(w.text for w in theirs.words) and _has_other_order(mine, theirs)


def _has_other_order(mine: ParsedText, theirs: ParsedText) -> bool:
    """Return whether texts of the same stems, numbers and negations have another order, apart from one moved part.

    "In CI pin it" and "pin it in CI" say the same.
    """
    one, other = (
        ["not" if w.is_negator else w.stem for w in each.words if w.is_number or w.is_negator or w.stem in each.stems]
        for each in (mine, theirs)
    )
    if sorted(one) != sorted(other):
        return False
    one, other = _middles(one, other)
    return bool(one) and not any(one[cut:] + one[:cut] == other for cut in range(len(one)))


def _has_moved_numbers(mine: ParsedText, theirs: ParsedText) -> bool:
    """Return whether the same numbers are in another order, and did not just move with a part of the text."""
    one, other = ([w.stem for w in each.words if w.is_number] for each in (mine, theirs))
    return one != other and sorted(one) == sorted(other) and _has_other_order(mine, theirs)


def _middles(one: list[str], other: list[str]) -> tuple[list[str], list[str]]:
    """Return two sequences without their common beginning and end."""
    head = _shared_head(one, other)
    tail = _shared_head(one[head:][::-1], other[head:][::-1])
    return one[head : len(one) - tail], other[head : len(other) - tail]


def _shared_head(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
