"""Search: lessons, discoveries, corrections and journals that have the words of a query, best first.

Words are joined by OR and ranked by bm25; hits with all of them come first. Words are looked up by their stems and as
prefixes; scripts without blanks, and words with symbols (``C++``, ``--json``, ``.env``), as typed. If the index gives
too few hits, the texts are also searched literally, which finds symbols, and prefixes of a word that are none of its
stem. No part of a query reaches SQLite as syntax. If lessons have embeddings, both rankings are fused.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError, UsageError
from fleet.model.pattern import PRIVATE, Pattern
from fleet.recall.wording import UNREADABLE, Renderer, day
from fleet.store.query import Patterns
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace
from fleet.text import similarity
from fleet.text.dates import to_ms
from fleet.text.screening import one_line, readable, strip_controls

KINDS = PATTERN, DISCOVERY, CORRECTION, JOURNAL = ("pattern", "discovery", "correction", "journal")

QUERY_CHARS_MAX = 2_000
TERMS_MAX = 32
SNIPPET_CHARS = 100
_POOL_MIN = 100
"""Least number of hits to ask of a source, since merged records among them become one row."""
_WORD_CHARS_MIN = 3
_COSINE_MIN = 0.25
"""Least cosine between a question and a lesson that answers it; low, since a question has fewer words."""
_PREFIX_CHARS_MIN = 4
"""Least length of a word that also matches as a prefix where any word is enough: "all" is not "allocate"."""
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
    """Entry of a page, with its line, its date as it is written there, and its lesson, which is shown once."""

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
        id: id of the pattern or discovery, else "".
        where: file and line of a page's section: ``agents/velma/JOURNAL.md:12``; "" for a hit with an id.
        snippet: the part that matches, on one line; until ``_displayed`` the rest of its text.
        at: its time, a stamp; "" if unknown.
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
    contradicts: tuple[str, ...] = ()


class Answer(NamedTuple):
    """Result of a search.

    Attributes:
        hits: best first.
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

    ``query``: words, and phrases in quotes; any text is safe. It is cut at ``QUERY_CHARS_MAX`` and ``TERMS_MAX``.
    ``pages``: corrections and journals of the agents here.
    ``kinds``: of hits; none: all.

    Raises:
        UsageError: the query has no term, or a kind is unknown.
    """
    kinds = kinds or KINDS
    if unknown := [name for name in kinds if name not in KINDS]:
        raise UsageError(f"there is no kind {unknown[0][:40]!r}; --kind takes {', '.join(KINDS)}")
    terms = _terms(query)
    if not terms:
        raise UsageError("there is nothing to look for in that; give a word or a sign that can be seen")
    sections = [
        (page, section)
        for page in pages
        if page.kind in kinds
        for section in page.sections(_bytes(workspace, page.path))
    ]
    terms = [term for term in terms if term.is_quoted or not similarity.is_stop(term.text)] or terms
    kinds = [kind for kind in KINDS if kind in kinds]
    searched = closing(_Sources(workspace, sections, max(2 * limit, _POOL_MIN), everything=everything))
    with searched as sources, workspace.snapshot():  # else each lookup of a hit would refresh the database first
        all_terms, any_term = _expressions(terms)
        full = [sources.hits(kind, all_terms) for kind in kinds]
        is_enough = sum(map(len, full)) > limit
        literal = [] if is_enough else [sources.literal(kind, [term.text for term in terms]) for kind in kinds]
        near = [sources.hits(kind, any_term, query) for kind in kinds]
    hits = _deduplicated([*_interleaved(full), *_interleaved(literal), *_interleaved(near)])
    shown = tuple(_displayed(hit, [term.text for term in terms]) for hit in hits[:limit])
    return Answer(shown, len(hits) > limit, bool(hits) and not any([*full, *literal]))


_Found = tuple[str, _Hit]
"""Pair of an id, that of the lesson or discovery or else the place of the section, and the hit."""


def _interleaved(hits: Sequence[Sequence[_Found]]) -> list[_Found]:
    """Return the hits of all kinds in the order of their ranks: bm25 of two tables cannot be compared."""
    return [found for found in chain.from_iterable(zip_longest(*hits)) if found is not None]


def _deduplicated(hits: Sequence[_Found]) -> list[_Hit]:
    """Return one hit for each id, and no section of a page whose lesson is among the hits."""
    lessons = {id_ for id_, hit in hits if hit.kind == PATTERN}
    unique: dict[str, _Hit] = {}
    for id_, hit in hits:
        if hit.kind == PATTERN or id_ not in lessons:
            unique.setdefault(id_, hit)
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
    """Return two full-text expressions: one for all terms, one for any term or any word in a term with symbols.

    Both require what is quoted.
    """
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
    """Return the full-text expression of a term, "" if no part is indexed; its last word is also a prefix."""
    phrases = similarity.Words(term.text).phrases()
    if not (term.is_quoted or is_whole) and len(term.text) > 1:
        phrases = [phrase if phrase.endswith("*") else f"({phrase} OR {phrase} *)" for phrase in phrases]
    return f"({' AND '.join(phrases)})" if phrases else ""


# --- the sources ----------------------------------------------------------------------------------------------------


class _Sources:
    """Sources of hits, at most ``count`` of a kind: the records, and the sections of pages in a table in memory."""

    def __init__(
        self, workspace: Workspace, sections: Sequence[tuple[Page, Section]], count: int, *, everything: bool
    ) -> None:
        self._workspace, self._sections, self._count, self._everything = workspace, sections, count, everything
        # The clan's lessons, and the private ones of the agents here.
        self._stores = [workspace.patterns, *map(workspace.notes, workspace.agents_with_notes())]
        self._texts = sqlite3.connect(":memory:")
        self._texts.execute(
            f"CREATE VIRTUAL TABLE passage USING fts5 (kind UNINDEXED, head, body, tokenize = '{similarity.TOKENIZER}')"
        )
        texts = ((page.kind, section.head, section.body) for page, section in sections)
        rows = ((kind, *(similarity.Words(text).indexed() for text in of_section)) for kind, *of_section in texts)
        self._texts.executemany("INSERT INTO passage VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        self._texts.close()

    def hits(self, kind: str, expression: str, query: str = "") -> list[_Found]:
        """Return the hits of an expression, "" for none, best first; with ``query`` lessons of similar meaning, too."""
        if kind == PATTERN:
            stores, retired = self._stores if expression else [], self._everything
            found = (
                (store, *row) for store in stores for row in store.matching(expression, self._count, retired=retired)
            )
            return self._lessons(found, query)
        if kind == DISCOVERY:
            found_ids = self._workspace.discoveries.matching(expression, self._count) if expression else []
            entries = (self._workspace.discoveries.get(id_) for id_, _ in found_ids)
            return [(entry.id, _discovery(entry)) for entry in entries if entry is not None]
        sql = "SELECT rowid FROM passage WHERE passage MATCH ? AND kind = ? ORDER BY bm25(passage, 0, 2, 1) LIMIT ?"
        rows = self._texts.execute(sql, (expression, kind, self._count)) if expression else ()
        return self._of_pages([self._sections[number - 1] for (number,) in rows])

    def literal(self, kind: str, parts: Sequence[str]) -> list[_Found]:
        """Return the hits that have all parts literally."""
        if kind == PATTERN:
            ids = ((store, id_) for store in self._stores for id_ in store.holding(parts, retired=self._everything))
            return self._lessons((store, id_, 0.0) for store, id_ in ids)
        if kind == DISCOVERY:
            return [(each.id, _discovery(each)) for each in self._workspace.discoveries.holding(parts)]
        pairs = ((page, section) for page, section in reversed(self._sections) if page.kind == kind)
        return self._of_pages([pair for pair in pairs if Patterns.holds(f"{pair[1].head}\n{pair[1].body}", parts)])

    def _lessons(self, found: Iterable[tuple[Patterns, str, float]], query: str = "") -> list[_Found]:
        """Return the hits of lessons, given as (store, id, bm25), merged records as one; both rankings are fused."""
        lessons: dict[str, Pattern] = {}
        ranks: dict[str, float] = {}
        wordings: dict[str, list[str]] = {}
        hits = list(found)
        known = {store: store.lessons_of(id_ for source, id_, _ in hits if source is store) for store in self._stores}
        for store, id_, bm25 in hits:
            lesson = known[store].get(id_)
            if lesson is not None and (store is self._workspace.patterns or lesson.scope == PRIVATE):
                lessons[lesson.id] = lesson
                ranks[lesson.id] = min(bm25, ranks.get(lesson.id, 0.0))
                if id_ != lesson.id and (record := store.get(id_)) is not None:
                    wordings.setdefault(lesson.id, []).append(record.text)
        near = list[str]()
        similar = Embeddings(self._workspace).nearest(query, self._count, _COSINE_MIN) if query else ()
        for lesson in self._workspace.patterns.lessons_of(id_ for id_, _ in similar).values():
            if lesson.is_listed or self._everything:
                lessons.setdefault(lesson.id, lesson)
                near.append(lesson.id)
        ranked = sorted(ranks, key=lambda id_: ranks[id_])
        ids = similarity.fused(ranked, near) if query else ranked
        return [(id_, _lesson(lessons[id_], wordings.get(id_, ()))) for id_ in ids]

    def _of_pages(self, pairs: Sequence[tuple[Page, Section]]) -> list[_Found]:
        """Return the hits in sections, each with the id of its lesson; none of retired lessons, unless wanted."""
        patterns, found = self._workspace.patterns, list[_Found]()
        ids = [patterns.same_text(section.lesson) if section.lesson else "" for _, section in pairs]
        known = [store.lessons_of(filter(None, ids)) for store in self._stores]
        for (page, section), id_ in zip(pairs, ids, strict=True):
            where = f"{page.path.relative_to(self._workspace.root)}:{section.line}"
            lessons = [lessons[id_] for lessons in known if id_ in lessons]
            lesson = max(lessons, key=lambda each: each.is_present, default=None)
            is_retired = lesson is not None and not lesson.is_present
            if not is_retired or self._everything:
                ms = to_ms(section.when)
                said = section.head, section.body, page.agent, "" if ms is None else clock.pack(ms)
                hit = _Hit(page.kind, "", where, *said, retired=is_retired)
                found.append((lesson.id if lesson is not None else id_ or where, hit))
        return found


def _lesson(lesson: Pattern, wordings: Sequence[str]) -> _Hit:
    """Return the hit of a lesson. ``wordings``: texts of the records merged with it that matched."""
    details = _PART.join([*wordings, *lesson.details()])
    who, seen, edits = names.agent_of(lesson.by), lesson.count("seen"), Renderer().edits(lesson)
    return _Hit(PATTERN, lesson.id, "", lesson.text, details, who, lesson.at, seen, not lesson.is_present, edits)


def _discovery(entry: Discovery) -> _Hit:
    details = _PART.join(filter(None, (entry.solution, entry.context, entry.type, *entry.tags)))
    return _Hit(DISCOVERY, entry.id, "", entry.problem, details, names.agent_of(entry.by), entry.at)


def _bytes(workspace: Workspace, path: Path) -> bytes:
    with suppress(FleetError):
        return workspace.files.page(path)
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


def _snippet(text: str, position: int = 0) -> str:
    """Return at most ``SNIPPET_CHARS`` characters of a text around a position."""
    if len(text) <= SNIPPET_CHARS:
        return text
    start = min(max(position - _BEFORE_HIT_CHARS, 0), len(text) - SNIPPET_CHARS + 1)
    if start:
        start = 1 + max(text.find(" ", start, position), start - 1)  # not in the middle of a word
    opening = "…" if start else ""
    if len(text) - start <= SNIPPET_CHARS - len(opening):
        return opening + text[start:]
    return f"{opening}{text[start : start + SNIPPET_CHARS - len(opening) - 1].rstrip()}…"


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
    details += [f"contradicts {each}" for each in hit.contradicts]
    text = _snippet(hit.text)
    also = [] if hit.snippet.strip("…") in text else [f"  > {hit.snippet}"]
    return "\n".join([f"{hit.id or hit.where}  {_PART.join(filter(None, details))}", f"  {text}", *also])
