"""How a lesson is worded: its tokens, which of them are negated, its numbers, and what is said to come before what.

No grammar is parsed: a clause ends at a mark or at a word like "because", and a negation reaches to the end of its
clause. That is wrong now and then. It is used where being wrong is cheap: two lessons that differ by it are shown as
differing, and nothing is ever joined without somebody's word.
"""

# ruff: noqa: SIM905 - a text of words is easier to read than a list of strings

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec

from fleet.keep import stems
from fleet.keep import vocabulary as words
from fleet.keep.lazily import compiled
from fleet.keep.stemming import stem

CHARS_MAX = 800
"""So much of a text is looked at: a lesson says what it is about in its first sentences."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"


def _lexeme(cjk: str, marks: str, flags: re.RegexFlag) -> re.Pattern[str]:
    # "plain" is a word, too: most are, and for these none of the others need be tried.
    return compiled(
        rf"""
          (?P<plain>[a-z]++(?![\w'’/-]|\.[A-Za-z_]))
        | (?P<code>`+[^`]+`+)
        | (?P<flag>(?<![\w`-])--?[A-Za-z][\w-]*)
        | (?P<path>(?<![\w.])(?:~|\.{{1,2}})?/[\w.@-]+(?:/[\w.@-]+)*/? | (?<!\w)[\w-]+(?:/[\w.-]+)+\.[A-Za-z]\w*)
        | (?P<dotfile>(?<![\w.])\.[A-Za-z][\w.-]*[\w])
        | (?P<name>[A-Za-z]\w*(?:\.[A-Za-z_]\w+)+ | [A-Za-z]*_\w+ | [A-Za-z]+_\w*
            | [a-z]+[A-Z][A-Za-z]* | [A-Z][a-z]+[A-Z][A-Za-z]*)
        | (?P<number>(?:(?<![\w)\]}}-])-)?\d+(?:[.,]\d+)*\s?%?)
        | (?P<cjk>{f"[{cjk}]+" if cjk else "(?!)"})
        | (?P<word>[^\W\d_{cjk}]+(?:['’][^\W\d_]+)?)
        | (?P<mark>[{marks}])
        | (?P<operator>[=!<>&|+*^]{{1,3}})
        """,
        re.VERBOSE | flags,
    )


_MARKS = ".;:!?,()"
_LEXEME = _lexeme(_CJK, _MARKS + "—–…、。，；：！？（）", re.NOFLAG)
# The same for texts without such letters, as most are: compiled in a tenth of the time.
_SPACED_LEXEME = _lexeme("", _MARKS + "—–…", re.NOFLAG)
_ASCII_LEXEME = _lexeme("", _MARKS, re.ASCII)
_ENDS = frozenset(".;:!?…。；：！？")
_NO_GROUP: frozenset[int] = frozenset()
_NO_AXIS: dict[int, int] = {}
_PHRASE_STARTS = frozenset(phrase[0] for phrase in stems.PHRASES)
_NEGATED_PHRASES = frozenset(words.NEGATED_PHRASES)
_NEGATED_STARTS = frozenset(phrase[0] for phrase in words.NEGATED_PHRASES)
_WHOLE = frozenset(
    ("cannot", "禁止", "严禁", "不要", "不能", "不得", "不可", "不可以", "不允许", "不准", "不应", "不应该")
)
"""Behind its subject, each of these negates the subject's clause: 密钥禁止提交到仓库."""
_COMPARATIVES = frozenset(
    "more less longer shorter larger bigger greater smaller later earlier older newer fewer higher".split()
)
_WHEREABOUTS = frozenset("in on at during across between".split())
_PREPOSITIONS = frozenset("for in on at by with from to inside".split())
_TIME = {"before": 1, "after": -1, "afterwards": -1}
_BEFORE = frozenset(("之前", "以前", "前"))
_AFTER = frozenset(("之后", "以后", "后"))
_WHEN = frozenset(("when", "whenever", "once", "if", "时", "就", "一旦", "如果", "若"))
_TIME_WORDS = frozenset((*_TIME, *_BEFORE, *_AFTER, "先", "再", "然后", "最后"))
_TO = frozenset("to into onto from by with over than".split())


@cache
def _groups(word: str) -> frozenset[int]:
    return frozenset(stems.GROUPS[word]) if word in stems.GROUPS else _NO_GROUP


@cache
def _axes(word: str) -> dict[int, int]:
    return dict(stems.AXES[word])


class Token(msgspec.Struct):
    """One word of a lesson.

    Attributes:
        surface: as written, without marks around it.
        stem: what its forms share; an exact token's own text.
        clause: number of its clause.
        exact: code, flag, path or name: nothing else will do in its place.
        sign: -1 where it is negated, 0 where it only stands beside: a subject, a place.
    """

    surface: str
    stem: str
    clause: int
    exact: bool = False
    is_flag: bool = False
    sign: int = 1

    @property
    def groups(self) -> frozenset[int]:
        """The groups of synonyms it stands in."""
        return _NO_GROUP if self.exact else _groups(self.stem)

    @property
    def axes(self) -> dict[int, int]:
        """The pairs of opposites it stands in, and at which pole."""
        return _axes(self.stem) if self.stem in stems.AXES else _NO_AXIS

    @property
    def is_stop(self) -> bool:
        """Whether it carries no lesson."""
        return not self.exact and self.stem in stems.STOP

    @property
    def is_light(self) -> bool:
        """Whether most lessons have it."""
        return not self.exact and self.stem in stems.LIGHT

    @property
    def is_time(self) -> bool:
        """Whether it only says what comes first; ``Wording.relations`` knows what."""
        return self.surface.casefold() in _TIME_WORDS


class Quantity(NamedTuple):
    """A number, and what it counts if that is known: "" for none."""

    value: str
    unit: str


class Wording(msgspec.Struct):
    """A lesson taken apart.

    Attributes:
        text: as given, at most ``CHARS_MAX`` of it.
        tokens: all words but negators, in order.
        quantities: the numbers, in order.
        weak_ones: how often "one" or the like is said: a number only if the other text has one there.
        relations: by kind, ("time", "to" ...): the tokens on one side, and those on the other.
        negations: how many there are.
        says_when: whether there is a word like "when".
        bounds: 1 for "at least", -1 for "at most".
        openers: the words that begin clauses, "because" and the like, in order.
    """

    text: str
    tokens: list[Token] = []
    quantities: list[Quantity] = []
    weak_ones: int = 0
    relations: dict[str, list[tuple[list[Token], list[Token]]]] = {}
    negations: int = 0
    says_when: bool = False
    bounds: set[int] = set()
    openers: list[str] = []

    @property
    def is_timed(self) -> bool:
        """Whether it says when: by what comes before what, or by a word like "when"."""
        return self.says_when or "time" in self.relations

    @property
    def content(self) -> list[Token]:
        """The tokens that carry the lesson, light ones included."""
        return [token for token in self.tokens if not token.is_stop]


class _Lexeme(NamedTuple):
    kind: str
    text: str


class _Apart(msgspec.Struct):
    """A lesson cut into words and clauses. What is negated, and what comes before what, is not known until ``read``."""

    wording: Wording
    clauses: list[list[Token]]
    openers: list[str]
    ends: list[bool]
    is_understood: bool = False


def read(text: str) -> Wording:
    """Take a lesson apart. The result is shared: it must not be changed."""
    apart = _cut(text)
    wording = apart.wording
    if not apart.is_understood:
        _understand(wording, apart.clauses, apart.openers, apart.ends)
        wording.bounds = _bounds(wording.text.casefold())
        wording.openers = [stem(opener) for opener in apart.openers if opener.isalpha()]
        apart.is_understood = True
    return wording


def said(text: str) -> list[Token]:
    """Return what ``Wording.content`` of a lesson is, at half the price: its signs mean nothing yet."""
    clauses = _cut(text).clauses
    return [token for clause in clauses for token in clause if not (token.is_stop or _is_negator(token))]


@lru_cache(maxsize=2_000)
def _cut(text: str) -> _Apart:
    given = unicodedata.normalize("NFKC", text[:CHARS_MAX])
    wording = Wording(given)
    lexemes = _joined(list(_lexemes(given)))
    has_cjk = any(lexeme.kind == "cjk" for lexeme in lexemes)
    clause, at = 0, 0
    clauses: list[list[Token]] = [[]]
    openers: list[str] = [""]
    ends: list[bool] = [False]

    def begin(opener: str, *, ends_sentence: bool) -> None:
        nonlocal clause
        if clauses[-1] or openers[-1]:
            clause += 1
            clauses.append([])
            openers.append(opener)
            ends.append(False)
        else:
            openers[-1] = opener or openers[-1]
        if len(ends) > 1:
            ends[-2] = ends[-2] or ends_sentence

    while at < len(lexemes):
        kind, said = lexemes[at]
        folded = said.casefold()
        wording.says_when = wording.says_when or folded in _WHEN
        if kind == "mark":
            begin(":" if said in ":：" else "", ends_sentence=said in _ENDS)
        elif kind == "number":
            at += _number(wording, lexemes, at)
            continue
        elif kind not in ("word", "cjk"):
            for exact in _exact(kind, said, clause):
                clauses[-1].append(exact)
                _digits(wording, exact)
        elif kind == "word" and folded in words.BOUNDARIES and _splits(lexemes, at):
            begin(folded, ends_sentence=False)
        else:
            root = stem(said)
            if (folded in words.NUMBER_WORDS if kind == "word" else _is_chinese_number(lexemes, at)) or (
                said in ("one", "One", "一") and _unit(lexemes, at + 1)[0]
            ):
                at += _number_word(wording, lexemes, at)
                continue
            if root in _ONES:
                wording.weak_ones += 1
            # In a Chinese sentence a capitalised word is a name.
            is_name = kind == "word" and said[0].isupper() and (has_cjk or _is_a_letter(lexemes, at))
            clauses[-1].append(Token(said, root if kind == "word" else said, clause, exact=is_name))
        at += 1
    return _Apart(wording, clauses, openers, ends)


def _is_a_letter(lexemes: list[_Lexeme], at: int) -> bool:
    """Tell whether a capital stands for itself, as in "branch A"."""
    return len(lexemes[at].text) == 1 and lexemes[at].text != "I" and at > 0 and lexemes[at - 1].kind != "mark"


_BOUND = compiled(
    r"""
    (?P<no>\b(?:no|not|never|n't|cannot)\b[^.,;:!?]*?\s|不)?
    (?:
      (?P<upper>\bat\ most|\bmaximum|\bmax\b|\bbelow|\blimit|\b(?:under|within|up\ to)\ (?=\d)
        |\b(?:less|fewer|shorter|smaller|earlier|older)\ than|\bor\ (?:less|fewer|older|earlier)
        |以内|以下|最多|至多|少于|低于|小于)
      |(?P<lower>\bat\ least|\bminimum|\babove|\bexceed|\b(?:over|past)\ (?=\d)
        |\b(?:more|longer|larger|bigger|greater|higher|later|newer)\ than|\bor\ (?:more|higher|later|newer|above)
        |以上|至少|超过|多于|高于|大于)
    )""",
    re.VERBOSE,
)


_BOUND_HINTS = (
    "up to",
    *"most max below limit under within than less fewer older earlier".split(),
    *"least minimum above exceed over past more higher later newer".split(),
    *"以内 以下 最多 至多 少于 低于 小于 以上 至少 超过 多于 高于 大于".split(),
)
"""Without one of these no text bounds a number."""


def _bounds(text: str) -> set[int]:
    """Return in which directions a text bounds its numbers."""
    if not any(hint in text for hint in _BOUND_HINTS):
        return set()  # so it is as a rule, and no expression is compiled to find out
    if not _DIGITS.search(text) and words.NUMBER_WORDS.keys().isdisjoint(text.split()):
        return set()
    return {(1 if found["lower"] else -1) * (-1 if found["no"] else 1) for found in _BOUND.finditer(text)}


def _found(text: str) -> Iterator[re.Match[str]]:
    if text.isascii():
        return _ASCII_LEXEME.finditer(text)
    return (_SPACED_LEXEME if max(text) < "\u3000" else _LEXEME).finditer(text)


def _lexemes(text: str) -> Iterator[_Lexeme]:
    for found in _found(text):
        kind = found.lastgroup or ""
        if kind == "plain":
            yield _Lexeme("word", found[0])
        elif kind == "cjk":
            yield from (_Lexeme("cjk", word) for word in _segmented(found[0]))
        elif kind == "word" and "'" in found[0].replace("’", "'") and found[0].replace("’", "'").endswith("n't"):
            bare = found[0].replace("’", "'").casefold().replace("'", "")
            yield _Lexeme("word", {"cant": "can"}.get(bare, bare.removesuffix("nt")) or bare)
            yield _Lexeme("word", "not")
        else:
            yield _Lexeme(kind, found[0])


@cache
def _cjk_word() -> re.Pattern[str]:
    """Return what matches a word that is known, the longest first. Made when the first such text comes."""
    known = {
        *words.CJK_NEGATORS,
        *words.CJK_NOT_NEGATORS,
        *words.CJK_LIGHT,
        *words.CJK_STOP,
        *words.CJK_WORDS,
        *_TIME_WORDS,
        *(word for row in words.SYNONYMS for word in row.split()),
        *(word for pair in words.OPPOSITES for row in pair for word in row.split()),
        *words.UNITS,
    }
    chosen = sorted((word for word in known if word >= "\u3000"), key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, chosen)))


_CJK_COUNT = compiled(rf"([零一二两三四五六七八九十百千万]+)(?=[{words.CJK_MEASURES}])(?!一)")


def _segmented(run: str) -> Iterator[str]:
    """Cut a run of Chinese or Japanese at the words that are known; the rest becomes pairs of characters."""
    at = 0
    rest = 0
    while at < len(run):
        found = _CJK_COUNT.match(run, at) or _cjk_word().match(run, at)
        if found is None:
            at += 1
            continue
        yield from _pairs(run[rest:at])
        yield found[0]
        at = rest = found.end()
    yield from _pairs(run[rest:])


def _pairs(rest: str) -> Iterator[str]:
    if len(rest) == 1:
        yield rest
    yield from (rest[n : n + 2] for n in range(len(rest) - 1))


def _joined(lexemes: list[_Lexeme]) -> list[_Lexeme]:
    """Replace phrases that mean something else than their words; join ``non-`` and its like to what follows."""
    found: list[_Lexeme] = []
    said = [stem(lexeme.text) if lexeme.kind == "word" else "" for lexeme in lexemes]
    at = 0
    while at < len(lexemes):
        for length in (3, 2) if said[at] in _PHRASE_STARTS else ():
            part = tuple(said[at : at + length])
            if len(part) == length and (meant := stems.PHRASES.get(part)):
                found += [_Lexeme("word", word) for word in meant]
                at += length
                break
        else:
            head = lexemes[at]
            if head.kind == "word" and head.text.casefold() in ("non", "re", "un", "de") and at + 1 < len(lexemes):
                found.append(_Lexeme("word", head.text.casefold() + lexemes[at + 1].text))
                at += 2
                continue
            found.append(head)
            at += 1
    return found


def _splits(lexemes: list[_Lexeme], at: int) -> bool:
    """Tell whether a word begins a clause: "as" only where it means "because", not in "as root" and "as a list"."""
    said = lexemes[at].text.casefold()
    if said != "as":
        return True
    return any(lexeme == _Lexeme("mark", ",") for lexeme in lexemes[max(at - 1, 0) : at])


def _exact(kind: str, said: str, clause: int) -> Iterator[Token]:
    if kind == "code":
        inner = said.strip("`").strip()
        if not any(char.isalnum() for char in inner):
            bare = "".join(inner.split())
            yield Token(bare, bare, clause, exact=True)
            return
        for found in _found(inner):
            if found.lastgroup == "cjk":
                yield from (Token(word, word, clause, exact=True) for word in _segmented(found[0]))
            elif found.lastgroup not in ("mark", "number"):
                yield _exact_token(found.lastgroup or "", found[0], clause)
            elif found.lastgroup == "number":
                yield Token(found[0], found[0], clause, exact=True)
        return
    yield _exact_token(kind, said, clause)


def _exact_token(kind: str, said: str, clause: int) -> Token:
    if kind == "flag":
        return Token(said, said, clause, exact=True, is_flag=True)
    return Token(said, said.casefold() if len(said) > 1 else said, clause, exact=True)


_DIGITS = compiled(r"\d+(?:\.\d+)*")


def _digits(wording: Wording, token: Token) -> None:
    wording.quantities += [Quantity(_plain(digits), "") for digits in _DIGITS.findall(token.surface)]


def _plain(digits: str) -> str:
    return digits.replace(",", "").lstrip("0") or "0"


def _number(wording: Wording, lexemes: list[_Lexeme], at: int) -> int:
    """Note a number and its unit; return how many lexemes they took."""
    said = lexemes[at].text
    value = _plain(said.rstrip("% "))
    unit, taken = ("%", 1) if said.endswith("%") else _unit(lexemes, at + 1)
    _note(wording, value, unit)
    return taken if unit else 1


def _unit(lexemes: list[_Lexeme], at: int) -> tuple[str, int]:
    if at < len(lexemes) and lexemes[at].kind in ("word", "cjk", "operator"):
        said = lexemes[at].text.casefold()
        if said in words.UNITS:
            return said, 2
    return "", 1


def _note(wording: Wording, value: str, unit: str) -> None:
    if not unit:
        wording.quantities.append(Quantity(value, ""))
        return
    measured, one = words.UNITS[unit]
    try:
        amount = f"{float(value) * one:g}"
    except ValueError:  # a version has no unit: "1.2.3 s" is nobody's duration
        amount = value
    wording.quantities.append(Quantity(amount, measured))


_ONES = frozenset(("one", "onc", "singl", "一"))
"""Words that are a number only where the other text has one in their place."""

_CJK_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2}


def _is_chinese_number(lexemes: list[_Lexeme], at: int) -> bool:
    said = lexemes[at].text
    return said != "一" and all(char in "零一二两三四五六七八九十百千万" for char in said) and at + 1 < len(lexemes)


def _number_word(wording: Wording, lexemes: list[_Lexeme], at: int) -> int:
    kind, said = lexemes[at]
    value = words.NUMBER_WORDS.get(said.casefold(), 1) if kind == "word" else _chinese(said)
    unit, taken = _unit(lexemes, at + 1)
    if said.casefold() in ("twice", "thrice"):
        unit, taken = "times", 1
    _note(wording, str(value), unit)
    return taken


def _chinese(said: str) -> int:
    total, last = 0, 0
    for char in said:
        scale = {"十": 10, "百": 100, "千": 1000, "万": 10_000}.get(char)
        if scale:
            total += (last or 1) * scale
            last = 0
        else:
            last = _CJK_DIGITS[char]
    return total + last


# What is negated, and what comes before what.


def _understand(wording: Wording, clauses: list[list[Token]], openers: list[str], ends: list[bool]) -> None:
    for number, clause in enumerate(clauses):
        _negate(wording, clause)
        if number and openers[number] and _is_cut_short(clauses[number - 1]):
            for token in clause:
                token.sign = -token.sign
        _relate(wording, clauses, number, openers, ends)
    wording.tokens = [token for clause in clauses for token in clause if not _is_negator(token)]


def _is_cut_short(clause: list[Token]) -> bool:
    """Tell whether a clause ends in a negation that is about the next one: "..., not where it is defined"."""
    said = next((token for token in reversed(clause) if _is_negator(token) or not token.is_stop), None)
    return said is not None and (_is_negator(said) or (said.stem in stems.NEGATIVE_VERBS and not said.exact))


def _is_negator(token: Token) -> bool:
    return not token.exact and (token.surface.casefold() in words.NEGATORS or token.surface in words.CJK_NEGATORS)


def _negate(wording: Wording, clause: list[Token]) -> None:
    """Turn the sign of what each negation of a clause reaches."""
    said = [token.surface.casefold() if not token.exact else "" for token in clause]
    negations = list(_negations(clause, said))
    if len(negations) > 1 or "before" in said:
        negations = _without_double(clause, said, negations)
    for start, length, whole in negations:
        if _limits(said, start):
            continue
        wording.negations += 1
        end = _end_of_reach(said, start, length)
        circumstances = _circumstances(clause, said, start + length, end)
        for at in range(start + length, end):
            clause[at].sign *= 0 if at in circumstances else -1
        if whole:
            says_more = any(
                not (t.is_stop or t.is_light or t.stem in stems.PERMITTING) for t in clause[start + length : end]
            )
            for token in clause[:start]:
                token.sign *= 0 if says_more else -1


def _limits(said: list[str], start: int) -> bool:
    """Tell whether a negation only makes a limit of a number: "no line longer than 79". ``Wording.bounds`` has it."""
    rest = said[start + 1 :]
    return said[start] in ("no", "not", "never", "不") and (
        ("than" in rest and bool(_COMPARATIVES.intersection(rest))) or "exceed" in rest or "超过" in rest
    )


def _circumstances(clause: list[Token], said: list[str], start: int, end: int) -> set[int]:
    """Return where a negation meets what it is not about: in "never log tokens in CI" the tokens are denied, not CI."""
    found: set[int] = set()
    for at in range(start, end):
        if said[at] in _WHEREABOUTS and any(not token.is_stop for token in clause[start:at]):
            found.update(range(at, end))
            break
        if said[at] == "在":
            closing = next((n for n in range(at + 1, end) if said[n] in ("里", "中", "上", "内", "时")), at)
            found.update(range(at, closing + 1))
    return found


def _end_of_reach(said: list[str], start: int, length: int) -> int:
    """What is not chosen ends at the next preposition: "awk over sed for input" says nothing against input."""
    if length > 1 or said[start] in ("over", "to") or (said[start] == "not" and start > 1):
        for at in range(start + length + 1, len(said)):
            if said[at] in _PREPOSITIONS:
                return at
    return len(said)


def _negations(clause: list[Token], said: list[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield (where, how many words, whether the whole clause is meant) of each negation."""
    for at, word in enumerate(said):
        may_begin = word in _NEGATED_STARTS
        phrase = next((p for p in _NEGATED_PHRASES if may_begin and tuple(said[at : at + len(p)]) == p), None)
        before = said[at - 1] if at else ""
        if phrase:
            yield at, len(phrase), False
        elif word in words.CONDEMNING or (clause[at].stem in stems.NEGATIVE_VERBS and before in ("be", "is", "are")):
            yield at, 1, True
        elif word == "not" and said[at + 1 : at + 2] == ["only"]:
            continue
        elif word in words.NEGATORS or clause[at].surface in words.CJK_NEGATORS:
            whole = (at > 0 and word in _WHOLE) or (word in ("not", "never") and before in words.AUXILIARIES and at > 1)
            yield at, 1, whole
        elif _declines(clause, at, word):
            yield at, 1, False


def _declines(clause: list[Token], at: int, word: str) -> bool:
    """Tell whether a word says no in another way: "avoid", "prefer awk over sed", "prefer awk to sed"."""
    if word in ("over", "to"):
        chosen = {token.stem for token in clause[:at]}
        return "prefer" in chosen or (word == "over" and not chosen.isdisjoint(stems.CHOOSING))
    return clause[at].stem in stems.NEGATIVE_VERBS and not clause[at].exact


def _without_double(
    clause: list[Token], said: list[str], negations: list[tuple[int, int, bool]]
) -> list[tuple[int, int, bool]]:
    """Return the negations that count: "never deploy without tests" asks for tests and forbids no deploying."""
    if (
        not negations
        or said[negations[0][0]] in words.EXCEPTING
        or clause[negations[0][0]].stem in stems.NEGATIVE_VERBS
    ):
        return negations
    head, rest = negations[0], negations[1:]
    without = next((n for n in rest if said[n[0]] in words.EXCEPTING), None)
    if without is not None:
        return [n for n in rest if n is not without]
    if "before" in said[head[0] :]:
        return rest
    return negations


def _relate(wording: Wording, clauses: list[list[Token]], number: int, openers: list[str], ends: list[bool]) -> None:
    clause = clauses[number]
    before = clauses[number - 1] if number and not ends[number - 1] else []
    after = clauses[number + 1] if number + 1 < len(clauses) and not ends[number] else []
    if openers[number] == "then" and number:
        _put(wording, "time", clauses[number - 1], clause)
    said = [token.surface.casefold() if not token.exact else "" for token in clause]
    negated = any(word in words.NEGATORS for word in said)
    for at, word in enumerate(said):
        if word in _TIME:
            left, right = clause[:at], clause[at + 1 :]
            if not any(not token.is_stop for token in left):
                left, right = (after, right) if after and not before else (before, right)
            direction = -_TIME[word] if negated and _TIME[word] > 0 else _TIME[word]
            _put(wording, "time", left, right) if direction > 0 else _put(wording, "time", right, left)
        elif word in _BEFORE | _AFTER and at:
            left, right = clause[:at], clause[at + 1 :] or after
            left = [token for token in left if token.surface != "先"]
            _put(wording, "time", right, left) if word.endswith("前") else _put(wording, "time", left, right)
        elif word in ("再", "然后"):
            if any(token.surface == "先" for token in clause[:at]):
                _put(wording, "time", clause[:at], clause[at + 1 :])
            elif any(token.surface == "先" for token in before):
                _put(wording, "time", before, clause[at + 1 :])
        elif word in _TO and at:
            _put(wording, word, clause[:at], clause[at + 1 :])


def _put(wording: Wording, kind: str, left: list[Token], right: list[Token]) -> None:
    sides = [[token for token in side if not token.is_stop] for side in (left, right)]
    if all(sides):
        wording.relations.setdefault(kind, []).append((sides[0], sides[1]))
