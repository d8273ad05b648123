"""What was asked for, in words or in signs, and the best of what is known about it, in a line or two each.

A word that the index's tokenizer keeps whole is looked up; so is one of several parts, such as ``pre-commit``, as a
phrase. Anything else is looked for in the text itself: Chinese, Japanese, Thai, one or two characters, and words whose
signs mean something (``C++``, ``--json``, ``.env``). Nothing that is typed ever reaches SQLite as syntax.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from fleet.keep.index import KINDS, Ask, Doc, Index, clean, fold, phrase
from fleet.recall.lessons import UNREADABLE, day, readable

QUERY_CHARS_MAX = 2_000
TERMS_MAX = 32
WORD_CHARS_MIN = 3
HITS = 20
SNIPPET_CHARS = 100
_BEFORE_HIT_CHARS = 30
_PART = " · "

_TERM = re.compile(r'"([^"]*)"?|([^\s"]+)')
# The scripts that put blanks between their words, as far as the tokenizer (Unicode 6.1) knows their letters. Hebrew and
# Arabic glue prepositions to the word, so that looking in the text finds more.
_LETTER = r"[^\W_\u0590-\u1dff\u2000-\U0010ffff]"
_WORD = re.compile(rf"{_LETTER}+")
_JOINED_WORDS = re.compile(rf"{_LETTER}+(?:[-_./:@'’]{_LETTER}+)*")
_PHRASE = re.compile(rf"{_JOINED_WORDS.pattern}(?: {_JOINED_WORDS.pattern})*")
_FINAL = ".,;:!?…"


class Term(NamedTuple):
    """One thing that must be there: a word, or a quoted phrase."""

    text: str
    is_quoted: bool

    @property
    def is_word(self) -> bool:
        """Whether the tokenizer keeps all of it."""
        return bool(_PHRASE.fullmatch(self.text))

    @property
    def is_short(self) -> bool:
        """Whether it is as likely a part of a word as a word."""
        return len(self.text) < WORD_CHARS_MIN


class Hit(NamedTuple):
    """One thing found, fit to be shown.

    Attributes:
        kind: pattern, discovery, correction, journal.
        id: of a pattern or discovery, else "".
        where: the file it stands in, for a page with its line: ``agents/velma/JOURNAL.md:12``.
        text: what it says in short.
        snippet: the part of it that was asked for, in one line.
        who: whose it is.
        at: when, a stamp or a heading's date; "" if it is not known.
        seen: how often a pattern was seen.
        is_gone: whether it was retired.
    """

    kind: str
    id: str
    where: str
    text: str
    snippet: str
    who: str
    at: str
    seen: int
    is_gone: bool


class Answer(NamedTuple):
    """What was found.

    Attributes:
        hits: best first.
        is_more: whether there are further ones.
        is_near: nothing has what was asked for; these have its words, without its signs.
    """

    hits: tuple[Hit, ...] = ()
    is_more: bool = False
    is_near: bool = False


def terms(query: str) -> list[Term]:
    """Return what a query asks for. A quote that is never closed ends with the query."""
    found = []
    for quoted, word in _TERM.findall(clean(query)[:QUERY_CHARS_MAX]):
        text = clean(quoted or word)
        if text.rstrip(_FINAL) and _JOINED_WORDS.fullmatch(text.rstrip(_FINAL)):
            text = text.rstrip(_FINAL)  # a full stop behind a word says nothing
        if text:
            found.append(Term(text, bool(quoted)))
    return list(dict.fromkeys(found))[:TERMS_MAX]


def search(
    index: Index, query: str, *, kinds: tuple[str, ...] = KINDS, everything: bool = False, limit: int = HITS
) -> Answer:
    """Return what has all terms of the query.

    Args:
        index: up to date.
        query: words, and phrases in quotes; anything is safe. Beyond ``QUERY_CHARS_MAX`` and ``TERMS_MAX`` it is cut.
        kinds: only these.
        everything: retired lessons, too.
        limit: at most so many, best first.
    """
    asked = terms(query)
    if not asked or limit < 1:
        return Answer()
    blank = Ask(kinds=kinds or KINDS, gone=everything, limit=limit + 1)
    found, is_near = _exactly(index, asked, blank), False
    if not found and index.has_words:
        found = index.find(blank.but(holds=tuple(term.text for term in asked)))  # as parts of words
    if not found:
        found, is_near = _loosely(index, asked, blank), True
    looked_for = [term.text for term in asked]
    hits = tuple(_hit(index, doc, looked_for) for doc in found[:limit])
    return Answer(hits, len(found) > limit, is_near and bool(hits))


def _exactly(index: Index, asked: list[Term], blank: Ask) -> list[Doc]:
    """What has each term: by words first, then, for short ones, as part of a word."""
    holds = tuple(term.text for term in asked)
    words = [term for term in asked if term.is_word] if index.has_words else []
    if not words:
        return index.find(blank.but(holds=holds))
    last = asked[-1]
    match = " AND ".join(
        phrase(term.text, is_prefix=term is last and not term.is_quoted and not term.is_short) for term in words
    )
    found = index.find(blank.but(match=match, holds=tuple(term.text for term in asked if not term.is_word)))
    if len(found) < blank.limit and any(term.is_short for term in words):
        longer = [term for term in words if not term.is_short]
        found = _joined(
            found,
            index.find(
                blank.but(
                    match=" AND ".join(phrase(term.text) for term in longer),
                    holds=tuple(term.text for term in asked if term not in longer),
                )
            ),
        )
    return found[: blank.limit]


def _joined(first: list[Doc], more: Iterable[Doc]) -> list[Doc]:
    places = {(doc.ref, doc.path, doc.line) for doc in first}
    return first + [doc for doc in more if (doc.ref, doc.path, doc.line) not in places]


def _loosely(index: Index, asked: list[Term], blank: Ask) -> list[Doc]:
    """What has each word without the signs around it. A short one says nothing without them: ``C++`` is not ``C``."""
    words = tuple(dict.fromkeys(word for term in asked for word in _WORD.findall(term.text)))
    bare = {term.text for term in asked}
    if not words or bare == set(words) or min(map(len, words)) < WORD_CHARS_MIN:
        return []
    return index.find(blank.but(holds=words))


# --- how it is shown ------------------------------------------------------------------------------------------------


def _hit(index: Index, doc: Doc, looked_for: list[str]) -> Hit:
    text = readable(doc.head) or UNREADABLE
    # Screened whole, then cut: half of a secret is not known as one.
    rest = readable(doc.body)
    at, at_rest = _place(text, looked_for), _place(rest, looked_for)
    return Hit(
        kind=doc.kind,
        id=doc.ref,
        where=index.file_of(doc.ref) if doc.ref else f"{readable(doc.path)}:{doc.line}",
        text=text,
        snippet=snippet(rest, at_rest) if at < 0 <= at_rest else snippet(text, max(at, 0)),
        who=readable(doc.who),
        at=readable(doc.at) if doc.at != "0" else "",
        seen=doc.seen,
        is_gone=bool(doc.gone),
    )


def snippet(text: str, at: int = 0, chars: int = SNIPPET_CHARS) -> str:
    """Return at most ``chars`` characters of a text, with the place that a hit stands at."""
    if len(text) <= chars:
        return text
    start = min(max(at - _BEFORE_HIT_CHARS, 0), len(text) - chars + 1)
    if start:
        blank = text.find(" ", start, min(start + _BEFORE_HIT_CHARS // 2, at))
        start = blank + 1 if blank >= 0 else start
    opening = "…" if start else ""
    if len(text) - start <= chars - len(opening):
        return opening + text[start:]
    end = start + chars - len(opening) - 1
    blank = text.rfind(" ", end - _BEFORE_HIT_CHARS // 2, end)
    return f"{opening}{text[start : blank if blank > start else end].rstrip()}…"


def _place(text: str, looked_for: Iterable[str]) -> int:
    """Return where the first hit stands, -1 if there is none: as it was asked for, else the first of its words."""
    plain, places = _plain(text)
    wanted = ["".join(_plain(term)[0]) for term in looked_for]
    words = [word for term in wanted for word in _WORD.findall(term)]
    for chosen, edge in ((wanted, r"(?<![^\W_])"), (wanted, ""), (words, "")):
        found = [at.start() for term in chosen if term and (at := re.search(edge + re.escape(term), plain))]
        if found:
            return places[min(found)]
    return -1


def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text without case and accents, and where each of its letters stood."""
    if text.isascii():
        return text.lower(), list(range(len(text)))
    letters, places = [], []
    for at, letter in enumerate(text):
        bare = "".join(c for c in unicodedata.normalize("NFD", fold(letter)) if not unicodedata.combining(c))
        letters.append(bare)
        places += [at] * len(bare)
    return "".join(letters), places


def render(answer: Answer) -> str:
    """Return the hits for a terminal: what and where, then what it says, with the part that was asked for."""
    return "\n".join(_rendered(hit) for hit in answer.hits)


def _rendered(hit: Hit) -> str:
    often = f"{hit.seen}x" if hit.kind == "pattern" else ""
    filed = [hit.kind, often, hit.who, day(hit.at), "retired" if hit.is_gone else ""]
    said = snippet(hit.text)
    rows = [f"{hit.id or hit.where}  {_PART.join(filter(None, filed))}", f"  {said}"]
    if hit.snippet.strip("…") not in said:
        rows.append(f"  > {hit.snippet}")
    return "\n".join(rows)
