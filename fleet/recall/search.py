"""Search: lessons, discoveries, corrections and journals that have the words of a query, best first.

Words are joined by OR and ranked by bm25; what has all of them comes first. They are looked up by their stems and as
prefixes; scripts without blanks, and words with symbols (``C++``, ``--json``, ``.env``), as they are typed. No part of
a query ever reaches SQLite as syntax. Where lessons have embeddings, both rankings are fused.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.model import names
from fleet.model.errors import UsageError
from fleet.model.pattern import Pattern
from fleet.recall.wording import UNREADABLE, Renderer, day
from fleet.store.files import is_plain
from fleet.store.query import Patterns
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace
from fleet.text import similarity
from fleet.text.screening import one_line, readable, strip_controls

KINDS = PATTERN, DISCOVERY, CORRECTION, JOURNAL = ("pattern", "discovery", "correction", "journal")

QUERY_CHARS_MAX = 2_000
TERMS_MAX = 32
SNIPPET_CHARS = 100
_POOL_MIN = 100
"""Least number of hits asked of a source: merged records among them become one row."""
_WORD_CHARS_MIN = 3
_COSINE_MIN = 0.25
"""Least cosine of a lesson that answers a question: a question says less than a lesson in other words."""
_PREFIX_CHARS_MIN = 4
"""Least length of a word that finds longer ones, where any word will do: "all" is not "allocate"."""
_BEFORE_HIT_CHARS = 30
_PART = " · "
_FINAL = ".,;:!?…"
_TERM = re.compile(r'"([^"]*)("?)|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")


class _Term(NamedTuple):
    """Term of a query: a word, or a quoted phrase."""

    text: str
    is_quoted: bool


class Section(NamedTuple):
    """Entry of a page.

    Attributes:
        line: its line number in the page.
        head: its title.
        body: the rest of it.
        when: its date, as it is written there; "" for none.
        lesson: the text of its lesson, so that a lesson is shown once; "" for none.
    """

    line: int
    head: str
    body: str
    when: str
    lesson: str = ""


class Page(NamedTuple):
    """File of an agent that is searched without an index; ``sections`` parses its bytes."""

    path: Path
    kind: str
    agent: str
    sections: Callable[[bytes], Iterable[Section]]


class _Hit(NamedTuple):
    """Hit of a search.

    Attributes:
        kind: one of ``KINDS``.
        id: of a pattern or discovery, else "".
        where: file and line of a page's section: ``agents/velma/JOURNAL.md:12``; "" for a hit with an id.
        text: its main sentence.
        snippet: the part that matches, on one line; until ``_displayed`` the rest of its text.
        who: name of its author.
        at: its time, a stamp or a heading's date; "" if unknown.
        seen: how often a pattern was seen.
        retired: True for a retired pattern.
        changed: who edited which field of a pattern, in words.
    """

    kind: str
    id: str
    where: str
    text: str
    snippet: str
    who: str
    at: str
    seen: int = 1
    retired: bool = False
    changed: str = ""


class Answer(NamedTuple):
    """Result of a search.

    Attributes:
        hits: best first.
        is_more: there are further ones.
        is_near: nothing has all words; these are the nearest.
    """

    hits: tuple[_Hit, ...] = ()
    is_more: bool = False
    is_near: bool = False

    def rendered(self) -> str:
        """Return the hits for a terminal: kind and place, then the text, with the snippet."""
        return "\n".join(map(_rendered, self.hits))


def search(
    workspace: Workspace,
    query: str,
    pages: Sequence[Page] = (),
    *,
    kinds: Sequence[str] = (),
    everything: bool = False,
    limit: int = 20,
) -> Answer:
    """Return the hits of a query, those with all its words first.

    Args:
        workspace: its lessons and discoveries are searched.
        query: words, and phrases in quotes; any text is safe. It is cut at ``QUERY_CHARS_MAX`` and ``TERMS_MAX``.
        pages: corrections and journals of the agents here.
        kinds: of hits; none: all.
        everything: include retired lessons.
        limit: greatest number of hits.

    Raises:
        UsageError: the query has no term, or a kind is unknown.
    """
    kinds = kinds or KINDS
    if unknown := [name for name in kinds if name not in KINDS]:
        raise UsageError(f"there is no kind {unknown[0][:40]!r}; --kind takes {', '.join(KINDS)}")
    terms = _terms(query)
    if not terms:
        raise UsageError("there is nothing to look for in that; give a word or a sign that can be seen")
    sources: list[_Source] = []
    if PATTERN in kinds:
        sources.append(_Lessons(workspace, everything=everything, query=query))
    if DISCOVERY in kinds:
        sources.append(_Discoveries(workspace))
    sections = [(page, section) for page in pages if page.kind in kinds for section in page.sections(_bytes(page.path))]
    with closing(_Passages((page.kind, section.head, section.body) for page, section in sections)) as texts:
        sources += [_Pages(workspace, kind, sections, texts) for kind in (CORRECTION, JOURNAL) if kind in kinds]
        with workspace.snapshot():  # else each lookup of a hit would refresh the database first
            return _answer(sources, terms, limit)


def _answer(sources: "Sequence[_Source]", terms: list[_Term], limit: int) -> Answer:
    all_terms, any_term = _expressions(terms)
    count = max(2 * limit, _POOL_MIN)
    full = [source.matching(all_terms, count) for source in sources]
    near = [source.nearest(any_term, count) for source in sources]
    keys = _deduplicated(sources, [*_interleaved(full), *_interleaved(near)])
    words = [term.text for term in terms]
    hits = tuple(_displayed(sources[number].hit(key), words) for number, key in keys[:limit])
    return Answer(hits, len(keys) > limit, bool(hits) and not any(full))


_Key = tuple[int, str]
"""Number of a source, and the key of a hit in it."""


def _interleaved(keys: Sequence[Sequence[str]]) -> list[_Key]:
    """Return the keys of all sources in the order of their ranks: bm25 of two tables cannot be compared."""
    ranks = zip_longest(*([(number, key) for key in of_source] for number, of_source in enumerate(keys)))
    return [key for key in chain.from_iterable(ranks) if key is not None]


def _deduplicated(sources: "Sequence[_Source]", keys: Sequence[_Key]) -> list[_Key]:
    """Return the keys without page sections whose lesson is among them: one row a lesson."""
    lessons = {key for number, key in keys if sources[number].kind == PATTERN}
    unique: dict[str, _Key] = {}
    for number, key in keys:
        lesson = sources[number].lesson(key)
        if sources[number].kind == PATTERN or lesson not in lessons:
            unique.setdefault(lesson or f"{number} {key}", (number, key))
    return list(unique.values())


# --- the query ------------------------------------------------------------------------------------------------------


def _terms(query: str) -> list[_Term]:
    """Return the words and phrases of a query. A quote that is never closed ends with the query."""
    terms = []
    for quoted, closed, word in _TERM.findall(_clean(query)[:QUERY_CHARS_MAX]):
        text = _clean(quoted or word)
        if _WORD.search(text):
            text = text.rstrip(_FINAL)
        if text:
            terms.append(_Term(text, bool(closed)))
    return list(dict.fromkeys(terms))[:TERMS_MAX]


def _clean(text: str) -> str:
    return one_line(strip_controls(text if text.isascii() else unicodedata.normalize("NFC", text)))


def _expressions(terms: list[_Term]) -> tuple[str, str]:
    """Return two full-text expressions: one of all terms, and one of any term, or a word of one without its symbols.

    Both require what is quoted.
    """
    terms = [term for term in terms if term.is_quoted or not similarity.is_stop(term.text)] or terms
    required = [_expression(term) for term in terms]
    quoted = [_expression(term) for term in terms if term.is_quoted]
    any_of = [_expression(term, is_whole=len(term.text) < _PREFIX_CHARS_MIN) for term in terms]
    with_symbols = [
        term.text for term in terms if not term.is_quoted and not _WORD.fullmatch(term.text) and " " not in term.text
    ]
    words = {word for text in with_symbols for word in _WORD.findall(text) if len(word) >= _WORD_CHARS_MIN}
    any_of += [phrase for word in sorted(words) for phrase in similarity.Words(word).phrases()]
    either = " OR ".join(filter(None, any_of))
    return " AND ".join(filter(None, required)), " AND ".join(filter(None, [*quoted, f"({either})" if either else ""]))


def _expression(term: _Term, *, is_whole: bool = False) -> str:
    """Return the full-text expression of a term, "" when no part of it is indexed."""
    phrases = similarity.Words(term.text).phrases()
    if not phrases:
        return ""
    if not (term.is_quoted or is_whole) and phrases[0].endswith('"') and len(term.text) > 1:
        phrases[0] = f"({phrases[0]} OR {phrases[0]} *)"
    return f"({' AND '.join(phrases)})"


# --- the sources ----------------------------------------------------------------------------------------------------


class _Source:
    """Source of hits of one kind; each hit has a key."""

    kind: str

    def matching(self, expression: str, count: int) -> list[str]:
        """Return the keys of the hits of an expression, "" for none, best first."""
        raise NotImplementedError

    def nearest(self, expression: str, count: int) -> list[str]:
        """Return the keys of the hits of an expression, and of records of similar meaning, best first."""
        return self.matching(expression, count)

    def lesson(self, key: str) -> str:  # noqa: ARG002 - a discovery has none
        """Return the id of the lesson of a hit, "" for none."""
        return ""

    def hit(self, key: str) -> _Hit:
        """Return a hit, not screened yet."""
        raise NotImplementedError


class _Lessons(_Source):
    """Lessons of the clan, and the private ones of the agents here; merged records as one."""

    kind = PATTERN

    def __init__(self, workspace: Workspace, *, everything: bool, query: str) -> None:
        self._workspace = workspace
        self._everything = everything
        self._query = query
        private = [workspace.notes(agent) for agent in workspace.agents_with_notes()]
        self._stores: list[Patterns] = [workspace.patterns, *private]
        self._grouped = workspace.patterns.groups()
        self._patterns: dict[str, Pattern] = {}

    def matching(self, expression: str, count: int) -> list[str]:
        ranks: dict[str, float] = {}
        for store in self._stores if expression else ():
            for id_, bm25 in store.matching(expression, count, retired=self._everything):
                if pattern := self._pattern(store, id_):
                    ranks[pattern.id] = min(bm25, ranks.get(pattern.id, 0.0))
        return sorted(ranks, key=lambda id_: ranks[id_])

    def nearest(self, expression: str, count: int) -> list[str]:
        by_meaning = [
            pattern.id
            for id_, _ in Embeddings(self._workspace).nearest(self._query, count, _COSINE_MIN)
            if (pattern := self._pattern(self._workspace.patterns, id_)) and (pattern.is_listed or self._everything)
        ]
        return similarity.fused(self.matching(expression, count), by_meaning)

    def _pattern(self, store: Patterns, id_: str) -> Pattern | None:
        pattern = store.lesson(id_) if id_ in self._grouped else store.get(id_)
        if pattern is not None:
            self._patterns[pattern.id] = pattern
        return pattern

    def lesson(self, key: str) -> str:
        return key

    def hit(self, key: str) -> _Hit:
        lesson = self._patterns[key]
        details = _PART.join(filter(None, (lesson.correct, lesson.value("title"), lesson.category, *lesson.tags)))
        who, seen, edits = names.agent_of(lesson.by), lesson.count("seen"), Renderer().edits(lesson)
        return _Hit(PATTERN, key, "", lesson.text, details, who, lesson.at, seen, not lesson.is_present, edits)


class _Discoveries(_Source):
    """Discoveries of the clan."""

    kind = DISCOVERY

    def __init__(self, workspace: Workspace) -> None:
        self._discoveries = workspace.discoveries

    def matching(self, expression: str, count: int) -> list[str]:
        return [id_ for id_, _ in self._discoveries.matching(expression, count)] if expression else []

    def hit(self, key: str) -> _Hit:
        entry = self._discoveries.get(key)
        if entry is None:
            return _Hit(DISCOVERY, key, "", "", "", "", "")  # it was retracted after the match
        details = _PART.join(filter(None, (entry.solution, entry.context, entry.type, *entry.tags)))
        return _Hit(DISCOVERY, key, "", entry.problem, details, names.agent_of(entry.by), entry.at)


class _Passages:
    """Full-text table in memory for texts that have no row in a database: the pages of agents, during one search.

    Args:
        passages: kind, head and body of each; they are numbered from 0.
    """

    def __init__(self, passages: Iterable[tuple[str, str, str]]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            f"CREATE VIRTUAL TABLE passage USING fts5 (kind UNINDEXED, head, body, tokenize = '{similarity.TOKENIZER}')"
        )
        rows = ((kind, *(similarity.Words(text).indexed() for text in texts)) for kind, *texts in passages)
        self._connection.executemany("INSERT INTO passage VALUES (?, ?, ?)", rows)

    def matching(self, kind: str, expression: str, count: int) -> list[int]:
        """Return the numbers of the passages of a kind that an FTS5 expression finds, best first."""
        query = "SELECT rowid FROM passage WHERE passage MATCH ? AND kind = ? ORDER BY bm25(passage, 0, 2, 1) LIMIT ?"
        return [row[0] - 1 for row in self._connection.execute(query, (expression, kind, count))]

    def close(self) -> None:
        """Close the table, which drops it."""
        self._connection.close()


class _Pages(_Source):
    """Sections of all pages of one kind."""

    def __init__(self, workspace: Workspace, kind: str, sections: list[tuple[Page, Section]], texts: _Passages) -> None:
        self.kind = kind
        self._workspace = workspace
        self._sections = sections
        self._texts = texts

    def matching(self, expression: str, count: int) -> list[str]:
        return [str(number) for number in self._texts.matching(self.kind, expression, count)] if expression else []

    def lesson(self, key: str) -> str:
        text = self._sections[int(key)][1].lesson
        return self._workspace.patterns.same_text(text) if text else ""

    def hit(self, key: str) -> _Hit:
        page, section = self._sections[int(key)]
        where = f"{page.path.relative_to(self._workspace.root)}:{section.line}"
        return _Hit(self.kind, "", where, section.head, section.body, page.agent, section.when)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes() if is_plain(path) else b""
    except OSError:
        return b""


# --- display --------------------------------------------------------------------------------------------------------


def _displayed(hit: _Hit, words: Sequence[str]) -> _Hit:
    """Return a hit fit for display: screened whole, then cut, since half of a secret is not recognised as one."""
    text, details = readable(hit.text) or UNREADABLE, readable(hit.snippet)
    in_text, in_details = _position(text, words), _position(details, words)
    return hit._replace(
        where=readable(hit.where),
        text=text,
        snippet=_snippet(details, in_details) if in_text < 0 <= in_details else _snippet(text, max(in_text, 0)),
        who=readable(hit.who),
        at=readable(hit.at) if hit.at != clock.ZERO else "",
        changed=readable(hit.changed),
    )


def _snippet(text: str, position: int = 0, chars: int = SNIPPET_CHARS) -> str:
    """Return at most ``chars`` characters of a text around a position."""
    if len(text) <= chars:
        return text
    start = min(max(position - _BEFORE_HIT_CHARS, 0), len(text) - chars + 1)
    if start:
        start = 1 + max(text.find(" ", start, position), start - 1)  # not in the middle of a word
    opening = "…" if start else ""
    if len(text) - start <= chars - len(opening):
        return opening + text[start:]
    return f"{opening}{text[start : start + chars - len(opening) - 1].rstrip()}…"


def _position(text: str, terms: Iterable[str]) -> int:
    """Return the position of the first term in a text, else of the first word of one, else -1."""
    plain, plain_terms = text.lower(), [term.lower() for term in terms]
    for candidates in (plain_terms, [word for term in plain_terms for word in _WORD.findall(term)]):
        if positions := [position for term in candidates if (position := plain.find(term)) >= 0]:
            return min(positions)
    return -1


def _rendered(hit: _Hit) -> str:
    count = f"{hit.seen}x" if hit.kind == PATTERN else ""
    details = [hit.kind, count, hit.who, hit.changed, day(hit.at), "retired" if hit.retired else ""]
    text = _snippet(hit.text)
    rows = [f"{hit.id or hit.where}  {_PART.join(filter(None, details))}", f"  {text}"]
    if hit.snippet.strip("…") not in text:
        rows.append(f"  > {hit.snippet}")
    return "\n".join(rows)
