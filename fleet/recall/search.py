"""Search: lessons, discoveries, corrections and journals that have the words of a query, best first.

Words are joined by OR and ranked by bm25; what has all of them comes first. They are looked up by their stems and as
beginnings of words; scripts without blanks, and words with signs (``C++``, ``--json``, ``.env``), as they are typed.
Nothing that is typed ever reaches SQLite as syntax. Where lessons have embeddings, both orders are fused.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

from crdt import clock
from fleet.model import names
from fleet.model.errors import UsageError
from fleet.model.pattern import Pattern
from fleet.recall.wording import UNREADABLE, Renderer, day
from fleet.store.query import Passages, Patterns
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace
from fleet.text import similarity
from fleet.text.screening import one_line, readable, strip_controls

KINDS = PATTERN, DISCOVERY, CORRECTION, JOURNAL = ("pattern", "discovery", "correction", "journal")

QUERY_CHARS_MAX = 2_000
TERMS_MAX = 32
SNIPPET_CHARS = 100
_POOL_MIN = 100  # of so many the merged ones become one
_WORD_CHARS_MIN = 3
_MEANT_MIN = 0.25
"""Cosine from which on a lesson answers a question: a question says less than a lesson that says the same again."""
_BEGINNING_CHARS_MIN = 4
"""Least length of a word that finds longer ones, where any word will do: "all" is not "allocate"."""
_BEFORE_HIT_CHARS = 30
_PART = " · "
_FINAL = ".,;:!?…"
_TERM = re.compile(r'"([^"]*)("?)|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")


class _Term(NamedTuple):
    """One thing to look for: a word, or a quoted phrase."""

    text: str
    is_quoted: bool


class Section(NamedTuple):
    """One entry of a page.

    Attributes:
        line: where it stands in the page.
        head: its title.
        body: the rest of it.
        when: its date, as it is written there; "" for none.
        lesson: the text of the lesson that it tells, so that a lesson is shown once; "" for none.
    """

    line: int
    head: str
    body: str
    when: str
    lesson: str = ""


class Page(NamedTuple):
    """A file of an agent that is searched as it is; ``sections`` cuts its bytes."""

    path: Path
    kind: str
    agent: str
    sections: Callable[[bytes], Iterable[Section]]


class _Hit(NamedTuple):
    """One thing found.

    Attributes:
        kind: one of ``KINDS``.
        id: of a pattern or discovery, else "".
        where: of a page the file and line: ``agents/velma/JOURNAL.md:12``; "" for what has an id.
        text: what it says in short.
        snippet: the part of it that was asked for, in one line; at first the rest of what it says.
        who: whose it is.
        at: when, a stamp or a heading's date; "" if it is not known.
        seen: how often a pattern was seen.
        retired: whether it was.
        changed: what somebody else than its author made of a pattern, in words.
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
        """Return the hits for a terminal: what and where, then what it says, with the part that was asked for."""
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
        workspace: whose lessons and discoveries are searched.
        query: words, and phrases in quotes; anything is safe. Beyond ``QUERY_CHARS_MAX`` and ``TERMS_MAX`` it is cut.
        pages: corrections and journals of the agents here.
        kinds: only these; none: all.
        everything: retired lessons, too.
        limit: at most so many hits.

    Raises:
        UsageError: there is nothing to look for in it, or no such kind.
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
        sources.append(_Findings(workspace))
    sections = [(page, each) for page in pages if page.kind in kinds for each in page.sections(_bytes(page.path))]
    with closing(Passages((page.kind, section.head, section.body) for page, section in sections)) as texts:
        sources += [_Pages(workspace, kind, sections, texts) for kind in (CORRECTION, JOURNAL) if kind in kinds]
        with workspace.snapshot():  # else each find that is looked up would look at all files first
            return _answer(sources, terms, limit)


def _answer(sources: "Sequence[_Source]", terms: list[_Term], limit: int) -> Answer:
    every, some = _expressions(terms)
    count = max(2 * limit, _POOL_MIN)
    full = [source.matching(every, count) if every else [] for source in sources]
    near = [source.nearest(some, count) for source in sources]
    found = _once(sources, [*_interleaved(full), *_interleaved(near)])
    looked_for = [term.text for term in terms]
    hits = tuple(_fit(sources[at].show(key), looked_for) for at, key in found[:limit])
    return Answer(hits, len(found) > limit, bool(hits) and not any(full))


_Place = tuple[int, str]
"""Number of a source, and the key of what it found."""


def _interleaved(found: Sequence[Sequence[str]]) -> list[_Place]:
    """Return the finds of all sources in the order of their ranks: bm25 of two tables cannot be compared."""
    rows = zip_longest(*([(at, key) for key in keys] for at, keys in enumerate(found)))
    return [place for place in chain.from_iterable(rows) if place is not None]


def _once(sources: "Sequence[_Source]", found: Sequence[_Place]) -> list[_Place]:
    """Return the finds without those that tell a lesson that is among them: one row a lesson."""
    lessons = {key for at, key in found if sources[at].kind == PATTERN}
    kept: dict[str, _Place] = {}
    for at, key in found:
        lesson = sources[at].lesson(key)
        if sources[at].kind == PATTERN or lesson not in lessons:
            kept.setdefault(lesson or f"{at} {key}", (at, key))
    return list(kept.values())


# --- what is asked --------------------------------------------------------------------------------------------------


def _terms(query: str) -> list[_Term]:
    """Return the words and phrases of a query. A quote that is never closed ends with the query."""
    found = []
    for quoted, closed, word in _TERM.findall(_clean(query)[:QUERY_CHARS_MAX]):
        text = _clean(quoted or word)
        if _WORD.search(text):
            text = text.rstrip(_FINAL)  # a full stop behind a word says nothing
        if text:
            found.append(_Term(text, bool(closed)))
    return list(dict.fromkeys(found))[:TERMS_MAX]


def _clean(text: str) -> str:
    return one_line(strip_controls(text if text.isascii() else unicodedata.normalize("NFC", text)))


def _expressions(terms: list[_Term]) -> tuple[str, str]:
    """Return the full-text expression of what has all terms, and of what has any, or a word of one without its signs.

    What is quoted is wanted in both.
    """
    telling = [term for term in terms if term.is_quoted or not similarity.is_stop(term.text)] or terms
    each = [found for term in telling if (found := _expression(term))]
    quoted = [found for term in telling if term.is_quoted and (found := _expression(term))]
    some = [_expression(term, is_whole=len(term.text) < _BEGINNING_CHARS_MIN) for term in telling]
    signed = [
        term.text for term in telling if not term.is_quoted and not _WORD.fullmatch(term.text) and " " not in term.text
    ]
    words = {word for text in signed for word in _WORD.findall(text) if len(word) >= _WORD_CHARS_MIN}
    some += [phrase for word in sorted(words) for phrase in similarity.Words(word).phrases()]
    either = " OR ".join(filter(None, some))
    return " AND ".join(each), " AND ".join([*quoted, f"({either})"] if either else quoted)


def _expression(term: _Term, *, is_whole: bool = False) -> str:
    """Return the full-text expression of a term, "" when there is nothing in it that is indexed."""
    found = similarity.Words(term.text).phrases()
    if not found:
        return ""
    if not (term.is_quoted or is_whole) and found[0].endswith('"') and len(term.text) > 1:
        found[0] = f"({found[0]} OR {found[0]} *)"
    return f"({' AND '.join(found)})"


# --- where is looked ------------------------------------------------------------------------------------------------


class _Source(Protocol):
    """One kind of what can be found. Keys stand for single finds."""

    kind: str

    def matching(self, expression: str, count: int) -> list[str]:
        """Return the keys of what an expression finds, best first."""

    def nearest(self, expression: str, count: int) -> list[str]:
        """Return the keys of what an expression finds, "" for nothing, or of what means much the same, best first."""

    def lesson(self, key: str) -> str:
        """Return the id of the lesson that a find tells, "" for none."""

    def show(self, key: str) -> _Hit:
        """Return a find, not screened yet."""


class _Lessons:
    """Lessons of the clan, and the private ones of the agents here; merged records as one."""

    kind = PATTERN

    def __init__(self, workspace: Workspace, *, everything: bool, query: str) -> None:
        self._workspace = workspace
        self._everything = everything
        self._query = query
        private = [workspace.notes(agent) for agent in workspace.agents_with_notes()]
        self._stores: list[Patterns] = [workspace.patterns, *private]
        self._grouped = workspace.patterns.groups()
        self._known: dict[str, Pattern] = {}

    def matching(self, expression: str, count: int) -> list[str]:
        ranked: dict[str, float] = {}
        for store in self._stores:
            for each, bm25 in store.matching(expression, count, retired=self._everything):
                if found := self._pattern(store, each):
                    ranked[found.id] = min(bm25, ranked.get(found.id, 0.0))
        return sorted(ranked, key=lambda each: ranked[each])

    def nearest(self, expression: str, count: int) -> list[str]:
        by_words = self.matching(expression, count) if expression else []
        by_meaning = [
            found.id
            for each, _ in Embeddings(self._workspace).nearest(self._query, count, _MEANT_MIN)
            if (found := self._pattern(self._workspace.patterns, each)) and (found.is_listed or self._everything)
        ]
        return similarity.fused(by_words, by_meaning)

    def _pattern(self, store: Patterns, each: str) -> Pattern | None:
        found = store.lesson(each) if each in self._grouped else store.get(each)
        if found is not None:
            self._known[found.id] = found
        return found

    def lesson(self, key: str) -> str:
        return key

    def show(self, key: str) -> _Hit:
        each = self._known[key]
        rest = _PART.join(filter(None, (each.correct, each.value("title"), each.category, *each.tags)))
        who, seen = names.agent_of(each.by), each.count("seen")
        return _Hit(PATTERN, key, "", each.text, rest, who, each.at, seen, not each.is_present, Renderer().edits(each))


class _Findings:
    """Discoveries of the clan."""

    kind = DISCOVERY

    def __init__(self, workspace: Workspace) -> None:
        self._discoveries = workspace.discoveries

    def matching(self, expression: str, count: int) -> list[str]:
        return [each for each, _ in self._discoveries.matching(expression, count)] if expression else []

    nearest = matching

    def lesson(self, key: str) -> str:  # noqa: ARG002 - no discovery tells a lesson
        return ""

    def show(self, key: str) -> _Hit:
        each = self._discoveries.get(key)
        if each is None:
            return _Hit(DISCOVERY, key, "", "", "", "", "")  # it was taken out since it was found
        rest = _PART.join(filter(None, (each.solution, each.context, each.type, *each.tags)))
        return _Hit(DISCOVERY, key, "", each.problem, rest, names.agent_of(each.by), each.at)


class _Pages:
    """The sections of all pages of one kind."""

    def __init__(self, workspace: Workspace, kind: str, sections: list[tuple[Page, Section]], texts: Passages) -> None:
        self.kind = kind
        self._workspace = workspace
        self._sections = sections
        self._texts = texts

    def matching(self, expression: str, count: int) -> list[str]:
        return [str(number) for number in self._texts.matching(self.kind, expression, count)] if expression else []

    nearest = matching

    def lesson(self, key: str) -> str:
        told = self._sections[int(key)][1].lesson
        return self._workspace.patterns.same_text(told) if told else ""

    def show(self, key: str) -> _Hit:
        page, section = self._sections[int(key)]
        where = f"{page.path.relative_to(self._workspace.root)}:{section.line}"
        return _Hit(self.kind, "", where, section.head, section.body, page.agent, section.when)


def _bytes(path: Path) -> bytes:
    try:
        return b"" if path.is_symlink() else path.read_bytes()
    except OSError:
        return b""


# --- how it is shown ------------------------------------------------------------------------------------------------


def _fit(found: _Hit, looked_for: Sequence[str]) -> _Hit:
    """Return a find fit to be shown: screened whole, then cut, since half of a secret is not known as one."""
    text, rest = readable(found.text) or UNREADABLE, readable(found.snippet)
    at, at_rest = _place(text, looked_for), _place(rest, looked_for)
    return found._replace(
        where=readable(found.where),
        text=text,
        snippet=_snippet(rest, at_rest) if at < 0 <= at_rest else _snippet(text, max(at, 0)),
        who=readable(found.who),
        at=readable(found.at) if found.at != clock.ZERO else "",
        changed=readable(found.changed),
    )


def _snippet(text: str, at: int = 0, chars: int = SNIPPET_CHARS) -> str:
    """Return at most ``chars`` characters of a text, with the place that a hit stands at."""
    if len(text) <= chars:
        return text
    start = min(max(at - _BEFORE_HIT_CHARS, 0), len(text) - chars + 1)
    if start:
        start = 1 + max(text.find(" ", start, at), start - 1)  # not in the middle of a word
    opening = "…" if start else ""
    if len(text) - start <= chars - len(opening):
        return opening + text[start:]
    return f"{opening}{text[start : start + chars - len(opening) - 1].rstrip()}…"


def _place(text: str, looked_for: Iterable[str]) -> int:
    """Return where the first hit stands, -1 if there is none: as it was asked for, else the first of its words."""
    plain, wanted = _plain(text), [_plain(term) for term in looked_for]
    for chosen in (wanted, [word for term in wanted for word in _WORD.findall(term)]):
        if found := [at for term in chosen if (at := plain.find(term)) >= 0]:
            return min(found)
    return -1


def _plain(text: str) -> str:
    """Return a text without case and accents, letter by letter: each has its place still."""
    if text.isascii():
        return text.lower()
    return "".join(unicodedata.normalize("NFD", letter)[0].casefold()[:1] or letter for letter in text)


def _rendered(hit: _Hit) -> str:
    often = f"{hit.seen}x" if hit.kind == PATTERN else ""
    filed = [hit.kind, often, hit.who, hit.changed, day(hit.at), "retired" if hit.retired else ""]
    said = _snippet(hit.text)
    rows = [f"{hit.id or hit.where}  {_PART.join(filter(None, filed))}", f"  {said}"]
    if hit.snippet.strip("…") not in said:
        rows.append(f"  > {hit.snippet}")
    return "\n".join(rows)
