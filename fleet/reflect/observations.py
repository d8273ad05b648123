"""Observations: lines about single events of a session, in the format of auto-reflect. Pure.

``- 2026-03-18T14:32Z | Fixed circular import in utils/auth.ts <!-- tank 8c53a2ca -->``: minute, words, and in a comment
the agent and the mark of its session, which is short and always the same for one session. A line has under
``LINE_CHARS_MAX`` characters. Lines of other tools have no comment; those of a day are one session.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.text import apostrophed, dates, screening, tables
from fleet.text.markdown import Row

KINDS = ("commit", "fix", "reuse", "dead-end", "workaround")
LINE_CHARS_MAX = 120
"""Limit of a line's length: every line is shorter."""
GOTCHA, PATTERN, BOUNDARY = "Gotcha", "Pattern", "Boundary"
FLAG = "directive"
"""Word in the comment of an observation that reads as a directive."""

_GOTCHA_KINDS = frozenset(("fix", "dead-end", "workaround", "failed"))
_SECTIONS = {"commit": "done", "fix": "worked", "dead-end": "failed", "reuse": "learned", "workaround": "learned"}
"""Kind of the section in a daily log, by the kind of an observation."""
_WORDS_CHARS_MAX = 2_000
_MARK_CHARS_MAX = 12
_MARKS = r"\A\s*(?:[>|]\s*|[#*+-]+(?:\s+|$))*"
"""Marks of headings, lists, quotes and tables before a text; ``--option``, ``*.pyc`` and ``#12`` are none."""
_PLAIN = r"[A-Za-z0-9_-]+"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WHEN = r"\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:[ ]?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?"
_LINE = rf"(?i)[ \t]*(?:[-*+][ \t]+)?\[?(?P<when>{_WHEN})\]?[ \t]*(?:[|│:—–]|-(?=[ \t]))[ \t]*(?P<text>\S.*)"
_COMMENT = (
    rf"[ \t]*(?P<agent>[a-z0-9][a-z0-9_-]{{0,31}})(?:[ \t]+(?P<session>(?!{FLAG}\b)[A-Za-z0-9_-]{{1,40}}))?"
    rf"(?P<at>[ \t]+{_WHEN})?(?:[ \t]+{FLAG})?[ \t]*"
)


class Whose(NamedTuple):
    """Agent and session mark in a comment, and the time, "" for none."""

    agent: str
    mark: str = ""
    at: str = ""

    @classmethod
    def of(cls, agent: str, session: str, at_ms: int = 0) -> "Whose":
        """Return the name of a session by its agent and its id, with a time to the second."""
        at = f"{clock.pack(at_ms)[:19]}Z" if at_ms else ""
        return cls(agent, _session_mark(session), at)

    @classmethod
    def named_on(cls, row: Row) -> "Whose | None":
        """Return the session that a comment on a line names, or None."""
        match = next((match for each in row.comments if (match := re.fullmatch(_COMMENT, each))), None)
        return cls(match["agent"], match["session"] or "", (match["at"] or "").strip()) if match else None

    @property
    def key(self) -> str:
        """Key of the session."""
        return f"{self.agent} {self.mark}".strip()

    def comment(self, flag: str = "") -> str:
        """Return the comment that names the session."""
        return f"<!-- {' '.join(filter(None, (self.agent, self.mark, self.at, flag)))} -->"

    def line(self, at_ms: int, kind: str, text: str) -> tuple[str, bool]:
        """Return an observation of this session as a line without its end, and whether it was shortened."""
        words = clean(text)
        flag = FLAG if is_directive(words) else ""
        words = words if _kind_of(words) == kind else f"{_words()['labels'][kind][0]}: {words}"
        head, tail = f"- {minute(at_ms)} | ", f" {self._replace(at='').comment(flag)}"
        room = LINE_CHARS_MAX - 1 - len(head) - len(tail)
        short = screening.shortened(words, room)
        return f"{head}{short}{tail}", short != words


class Statement(NamedTuple):
    """Statement of an entry in a scratchpad or a log.

    ``at``: the minute, ``2026-03-18T14:32Z``, or the day alone.
    ``session``: its key: ``agent mark`` for a known session; ``@...`` for one that is known only by its time.
    ``kind``: of ``KINDS``; or done, worked, failed, decided, learned; "" for unknown.
    """

    text: str
    at: str
    session: str
    kind: str = ""

    @classmethod
    def stated(cls, text: str, at: str, session: str, section: str) -> "Statement":
        """Return a statement of a log, of the kind of its section; an observation that stands there keeps its own."""
        kind = _kind_of(text)
        return cls(text, at, session, kind if _SECTIONS.get(kind) == section else section)

    @property
    def section(self) -> str:
        """Kind of the section of a daily log that it goes to."""
        return _SECTIONS.get(self.kind, "worked")

    @property
    def is_known(self) -> bool:
        """True where the session is known by its id."""
        return not self.session.startswith("@")

    @property
    def is_cut(self) -> bool:
        """True where its end was cut off to fit one line: nobody knows what it says."""
        return self.text.endswith("…")

    @property
    def has_secret(self) -> bool:
        """True where the text holds a secret, or a mark of one that was redacted."""
        return "[REDACTED:" in self.text or bool(screening.screen(self.text).secrets)

    @classmethod
    def observed(cls, page_rows: Iterable[Row], unnamed: str = "") -> "list[Statement]":
        """Return the observations among the lines of a page, each with its session; ``unnamed``: by default its day."""
        read = list[Statement]()
        for row in page_rows:
            if (match := re.fullmatch(_LINE, row.text.rstrip())) and (ms := dates.to_ms(match["when"])) is not None:
                by, text = Whose.named_on(row), match["text"].strip()
                at = minute(ms) if ":" in match["when"] else minute(ms)[:10]
                session = by.key if by is not None and by.mark else unnamed or f"@observed {at[:10]}"
                read.append(cls(text, at, session, _kind_of(text)))
        return read


# --- writing --------------------------------------------------------------------------------------------------------


def _session_mark(session: str) -> str:
    """Return the mark of a session: its id where that is short, the end of a UUID, else a hash; "" for none."""
    if not session:
        return ""
    if re.fullmatch(_UUID, session):
        return session[-8:].lower()  # the beginning of a UUID by time is shared by those of one minute
    if len(session) <= _MARK_CHARS_MAX and re.fullmatch(_PLAIN, session) and session != FLAG:
        return session
    return blake2b(session.encode("utf-8", "replace"), digest_size=4).hexdigest()


def minute(at_ms: int) -> str:
    """Return a time to the minute, in the form of an observation."""
    return f"{clock.nearest(at_ms)[:16]}Z"


def clean(text: str) -> str:
    """Return words as one line of a page, without secrets, hidden marks, and signs of comments and tables."""
    line = screening.readable(text)[:_WORDS_CHARS_MAX]  # in this order: half of a secret is not known as one
    return re.sub(_MARKS, "", line.replace("<!--", "‹!--").replace("-->", "--›")).strip()


# --- reading --------------------------------------------------------------------------------------------------------


def _kind_of(text: str) -> str:
    """Return the kind of an observation by its first words, "" for none."""
    lower = text.casefold()
    for kind, labels in _words()["labels"].items():
        if any(re.match(rf"{re.escape(label.casefold())}\b", lower) for label in labels):
            return str(kind)
    return ""


def without_label(text: str) -> str:
    """Return an observation without the label of its kind, and without a mark of repetition."""
    labels = "|".join(re.escape(label) for label, *_ in _words()["labels"].values())
    text = re.sub(rf"\A(?:{labels}): ", "", text)
    return _again().sub("", text).strip() or text


@cache
def _again() -> re.Pattern[str]:
    phrases = "|".join(map(re.escape, _words()["again"]["ends"]))
    return re.compile(
        rf"\s*(?:\([^()]{{0,20}}\b(?:{phrases})\b[^()]{{0,30}}\)|[,;]?\s(?:{phrases}))[.!]?$", re.IGNORECASE
    )


# --- classification -------------------------------------------------------------------------------------------------


def is_directive(text: str) -> bool:
    """Return whether a text tells an agent to do something; such a text is never promoted by itself."""
    return has_phrase(text, "directives") or any(mark in _lower(text) for mark in _words()["directives"]["marks"])


def category_of(text: str, kinds: Iterable[str] = ()) -> str:
    """Return the category of a statement: by its words, else by the kinds of its occurrences."""
    for category in (BOUNDARY, GOTCHA):
        if has_phrase(text, "categories", category.casefold()):
            return category
    counted = Counter(kind in _GOTCHA_KINDS for kind in kinds)
    return GOTCHA if counted[True] > counted[False] else PATTERN


def has_phrase(text: str, table: str, phrases: str = "phrases") -> bool:
    """Return whether a text has a phrase of a list of ``data/observed.toml``, as whole words, or a pattern of it."""
    return _phrases(table, phrases).search(_lower(text)) is not None


def _lower(text: str) -> str:
    return screening.one_line(apostrophed(text.casefold()))


_words = cache(partial(tables, str(Path(__file__).with_name("data") / "observed.toml")))


_SIGNS = {r"\ \~\ ": r" (?:[^\s.]{1,40} ){0,4}?", r"\*": r"\w{0,20}"}
"""Regular expressions for the wildcards in phrases, by their escaped forms."""


@cache
def _phrases(table: str, name: str) -> re.Pattern[str]:
    """Return an expression of the phrases of a list, as whole words, and of the table's patterns; each is bounded."""
    words = "|".join(map(re.escape, _words()[table][name]))
    for sign, expression in _SIGNS.items():
        words = words.replace(sign, expression)
    return re.compile("|".join([rf"(?<!\w)(?:{words})(?!\w)", *_words()[table].get("patterns", ())]), re.IGNORECASE)
