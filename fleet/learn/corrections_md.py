"""Text format of ``corrections.md``: a tolerant parser, a writer, and the binding of entries to their records.

The page is the write-ahead log of corrections, written by people, by other tools and by fleet. The parser accepts any
text, never raises, and never lets one broken entry harm another. A value that is written is parsed back unchanged: it
begins on its field's line, and its further lines are indented by four blanks, so that neither Markdown nor the parser
takes them for a heading, a field, a fence or a rule. Comment marks in it are escaped.

A page has five kinds of text: an entry; a *record*, the comment of a counted entry; a *mark*, the comment that says
that an entry was undone or stated again, or that a lesson is private or shared again; a *signal*, an entry whose
pattern is still to be inferred; and a *statement*, a heading at the end of the page with the lesson of a signal. Parser
and writer are one module, since everything that is written must be parsed back.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import count, pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from crdt import clock
from fleet.model import limits, names
from fleet.model.names import FIELDS, LOGGED, normalise, pattern_id
from fleet.text import markdown, screening

FILE_NAME = "corrections.md"
INDENT = "    "
DASH = "—"
TO_BE_INFERRED = "_to be inferred at promotion time_"
"""Placeholder of a signal's pattern, in the wording of the format's other writers."""

PART, BY_HAND = "part", "1"
"""Key of ``Record.part``, and its value for an entry that was written by hand."""
STATED = "stated"
"""Key of the ``stated_hash`` in the record of a signal whose lesson was stated later."""
RELAPSED = ("relapsed", "1")
"""Pair in the record of a mistake whose lesson the agent had been shown before."""


class Record(NamedTuple):
    """The comment ``<!-- fleet c-<16 hex> p-<16 hex> replica=... at=... session=... -->`` of a counted entry.

    Attributes:
        session: the session in which the mistake was made; may be empty.
        extra: further pairs, also those that a later version writes.
    """

    id: str
    pattern: str
    replica: str
    at: str
    session: str
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def part(self) -> str:
        """Key of its part, if copies of the log may count it under several replicas; "" if a total counts it."""
        return dict(self.extra).get(PART, "")

    @staticmethod
    def latest(records: "Iterable[Record]") -> "list[Record]":
        """Return the newest record of each entry: a replica that gets a new name records its entries again."""
        newest: dict[str, Record] = {}
        for record in records:
            previous = newest.get(record.id)
            if previous is None or (record.at, record.replica) > (previous.at, previous.replica):
                newest[record.id] = record
        return list(newest.values())

    @staticmethod
    def by_lesson(records: "Iterable[Record]") -> "defaultdict[tuple[str, str], list[Record]]":
        """Return the records by pattern and replica, each list in their order."""
        grouped: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in records:
            grouped[record.pattern, record.replica].append(record)
        return grouped

    @classmethod
    def search(cls, page: bytes, patterns: Collection[str]) -> "list[Record]":
        """Return the records of some patterns, in file order, without parsing the page.

        Records in code fences, which do not count, are returned, too.
        """
        ids = "|".join(map(re.escape, patterns)).encode()
        found = re.finditer(rb"<!--( fleet c-[^<>\s]* (?:%s) replica=[^<>\n]*)-->" % ids, page)
        records = (_read_record(match[1].decode("utf-8", "replace")) for match in found)
        return [record for record in records if record is not None]

    def render(self) -> str:
        """Return the comment that follows its entry, without a newline.

        Raises:
            ValueError: an id, replica, stamp or key could not be parsed back.
        """
        pairs = [("replica", self.replica), ("at", self.at), ("session", self.session), *self.extra]
        quoted = " ".join(f"{key}={_quote(value)}" for key, value in pairs)
        text = f" fleet {self.id} {self.pattern} {quoted} "
        if _read_record(text) != self:
            raise ValueError(f"no record that would read back: {text.strip()[:200]!r}")
        return f"<!--{text}-->"


class Statement(NamedTuple):
    """Pattern, right way or trigger of a signal, as it was stated later."""

    id: str
    field: str
    text: str

    def render(self) -> str:
        """Return its heading, one line with a newline.

        Each line names its entry, so lines may be moved and merged. An older version takes it for a heading without a
        body, which is no entry.
        """
        text = markdown.escape(" ".join(self.text.split()))
        return f"## {_STARTS[self.field]} {self.id} {DASH} {text}\n"


class Entry(NamedTuple):
    """One correction.

    Attributes:
        line: number of its heading's line, from 1.
        when: the date as in the heading, ``2026-03-15 14:30Z``; may be empty.
        wrong: what went wrong; in an auto-detected entry, what the user flagged.
        right: the correct approach; in a bare entry, the paragraph under the heading.
        pattern: the generalizable lesson; empty when it is missing or still to be inferred. Where an entry has none,
            this and ``right`` are those stated later, at the end of the page.
        is_undone: its last mark undid it.
        is_private: its lesson is: a mark says so, or, without one, the scope of an entry.
        beside: numbers of the lines below the heading that are no part of the entry: those after the end of a value,
            and those before the fields if one of these is the right way.
        unread: line and text of each value whose field has another value already.
        category: what the lesson is about, one word or two; may be empty.
        trigger: the step before which the lesson is shown; may be empty.
        scope: audience of the lesson, if a person named it; "private" for all that reads like it.
        auto: a hook wrote it (User flagged, Signal, or Source: auto-detected).
        id: the id that its content gives it.
        is_garbled: True if a text that it shares has U+FFFD, and the page has invalid UTF-8.
        record: the record that counts it, if any.
        content: canonical text of when, title, wrong, right, source and pattern in the entry itself. The id is its
            hash, so edits of category, tags or trigger, and a lesson that is stated later, do not change the id.
    """

    line: int
    when: str
    title: str
    wrong: str
    right: str
    source: str
    pattern: str
    auto: bool
    signal: str
    record: Record | None
    content: str
    category: str = ""
    tags: tuple[str, ...] = ()
    trigger: str = ""
    scope: str = ""
    id: str = ""
    is_undone: bool = False
    is_private: bool = False
    is_garbled: bool = False
    beside: tuple[int, ...] = ()
    unread: tuple[tuple[int, str], ...] = ()

    @property
    def is_bare(self) -> bool:
        """True where it has none of this format's own fields, as a paragraph of any page."""
        return not (self.pattern or self.auto or self.record or self.source)

    @property
    def is_edited(self) -> bool:
        """True where the entry, or a statement of it, was edited since it was counted."""
        if self.record is None:
            return False
        return self.record.id != self.id or dict(self.record.extra).get(STATED, self.stated_hash) != self.stated_hash

    @property
    def shared(self) -> tuple[str, ...]:
        """The texts that leave this machine."""
        return self.pattern, self.right, *(getattr(self, name) for name in LOGGED), *self.tags

    @property
    def counted_for(self) -> str:
        """Id of the lesson that its record names, else of the one with the words of its pattern."""
        return self.record.pattern if self.record is not None else pattern_id(self.pattern)

    @property
    def lesson(self) -> str:
        """The pattern as it may be stored in a line; "" if it cannot, or was copied from fleet's output."""
        clean = "" if screening.injected_id(self.pattern) else self.clean(self.pattern)
        return clean if normalise(clean) else ""

    @property
    def is_waiting(self) -> bool:
        """True where a person has to mend it before it is counted."""
        return self.record is None and bool(self.pattern) and (self.is_garbled or bool(self.obstacle))

    @property
    def obstacle(self) -> str:
        """Reason for which its texts cannot be stored; "" for none."""
        if self.scope not in _SCOPES:  # a slip would share what was meant to be private
            return f"its scope is {self.scope[:40]!r}, and private or clan can be one; it is taken once that is mended"
        if any(_clean(text) and not self.clean(text) for text in self.shared):
            return f"a text of it is longer than {limits.TEXT_BYTES_MAX:,} bytes; it is taken once it is shorter"
        return "" if self.lesson else "its lesson has no words of its own"

    @staticmethod
    def clean(text: str) -> str:
        """Return a field as it may be stored in a line; "" if it is too long, since nothing is cut."""
        clean = _clean(text)
        return clean if len(clean.encode()) <= limits.TEXT_BYTES_MAX else ""

    @property
    def heading_hash(self) -> str:
        """Hash of the heading, kept in the record in case the entry's text is edited later."""
        return _short_hash(self.when, self.title)

    @property
    def stated_hash(self) -> str:
        """Hash of lesson, right way and trigger, kept in a signal's record: they are no part of its id."""
        return _short_hash(*map(fold, (self.pattern, self.right, self.trigger)))

    def free_id(self, taken: Collection[str]) -> str:
        """Return the id that the entry gets in a log where the ids in ``taken`` are used already."""
        return next(id_ for number in count() if (id_ := _entry_id(self.content, number)) not in taken)


class Correction(NamedTuple):
    """One mistake as it was reported: what went wrong, the correct approach, the generalizable pattern."""

    wrong: str
    right: str = ""
    pattern: str = ""
    title: str = ""
    source: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    trigger: str = ""


class Draft(NamedTuple):
    """Entry that is about to be written: a correction, with values that only the log has.

    Tags and ``LOGGED`` fields are written only if they have a value. A title is one line: line breaks in it become
    blanks. A pattern that only says that it is to be inferred is parsed as none.

    Attributes:
        when: empty, or a date that a heading can hold.
        signal: kind and confidence of a signal, whose lesson is not stated yet; "" for no signal.
        label: label of the field with what went wrong.
    """

    correction: Correction
    when: str
    signal: str = ""
    label: str = "What I got wrong"

    @property
    def content(self) -> str:
        """The canonical text that its id is the hash of, as it will be read."""
        own = self.correction
        return _content(self.when, own.title, own.wrong, own.right, own.source, own.pattern)

    def render(self, comment: str = "") -> str:
        """Return its text with a final newline; ``Log.parse`` returns each value, except for white space at line ends.

        ``comment``: a line below the heading.
        """
        own = self.correction
        heading = _format_heading(self.when.strip(), own.title)
        values = {"Correct approach": own.right, "Source": own.source, "Pattern": own.pattern}
        if self.signal:
            right = {"Correct approach": own.right} if own.right else {}
            values = right | {"Signal": self.signal, "Source": own.source, "Pattern": TO_BE_INFERRED}
        more = {"tags": ", ".join(own.tags)} | {name: getattr(own, name) for name in LOGGED}
        values |= {name.capitalize(): value for name, value in sorted(more.items()) if value}
        fields = {self.label: own.wrong, **values}.items()
        lines = [heading, *(f"**{label}:** {_format_value(value)}".rstrip() for label, value in fields)]
        lines[1:1] = [comment] if comment else []
        return "\n".join(lines) + "\n"

    def appended_to(self, page: bytes, agent: str, comment: str = "") -> str:
        """Return the text to append to an agent's page; to an empty page with the page's title."""
        title = "" if page else f"# Corrections — {agent}\n"
        return f"{title}\n{self.render(comment)}"

    def id_in(self, page: bytes) -> str:
        """Return the id of the entry once it is appended to a page."""
        equal, content = page.count(self.render().encode()), self.content
        # The page is parsed only if its text does not tell how many entries have this content.
        if equal > _EQUAL_MAX or any(
            (_entry_id(content, number).encode() in page) != (number < equal) for number in range(equal + 1)
        ):
            equal = sum(entry.content == content for entry in Log.parse(page).entries)
        return _entry_id(content, equal)


class Log(NamedTuple):
    """A parsed page: its entries, all its records, and its statements, each in file order.

    ``marks`` has the number of the last mark by id. It is odd for an entry that is undone or a lesson that is private,
    even for an entry that is stated again or a lesson that is shared again.
    """

    entries: tuple[Entry, ...]
    records: tuple[Record, ...]
    statements: tuple[Statement, ...] = ()
    marks: Mapping[str, int] = {}

    @classmethod
    def parse(cls, text: str | bytes) -> "Log":
        """Return the parsed page, whatever its text. Never raises.

        Bytes are decoded as UTF-8, with U+FFFD for invalid ones.
        """
        blocks: list[_Block] = []
        records: list[Record] = []
        marks: dict[str, int] = {}
        for row in markdown.rows(_plain(text)):
            if block := _opens_block(row):
                blocks.append(block)
            elif blocks and row.is_content:
                blocks[-1].take(row)
            for comment in row.comments:
                if blocks and comment.lstrip().startswith("fleet "):
                    blocks[-1].has_gap = True
                record = _read_record(comment)
                if record is None:
                    _read_mark(comment, marks)
                    continue
                records.append(record)
                if blocks and blocks[-1].record is None:
                    blocks[-1].record = record
        stated = tuple(block.statement for block in blocks if block.statement is not None)
        if stated:
            # Text that a person wrote below a statement is an entry.
            blocks = [b for b in blocks if b.statement is None or b.values or _joined(b.body)]
        pairs = zip(blocks, [*blocks[1:], None], strict=False)
        entries = [_entry(block) for block, after in pairs if _is_entry(block, after, is_first=block is blocks[0])]
        if stated:
            entries = _with_statements(entries, _stated(stated, records))
        if isinstance(text, bytes) and text.decode("utf-8", "ignore").encode() != text:
            entries = [each._replace(is_garbled="\ufffd" in "".join(each.shared)) for each in entries]
        return cls(tuple(entries), tuple(records), stated, marks)._bound()

    @staticmethod
    def format_mark(marked: str, number: int, at: str) -> str:
        """Return the mark of an entry or a lesson, by its id, with the number as in ``marks``."""
        words = ("stated-again", "undone") if _CORRECTION_ID.fullmatch(marked) else ("shared-again", "private")
        return f"<!-- fleet {words[number % 2]} {marked} at={at} n={number} -->"

    def is_undone(self, entry: str) -> bool:
        """Return whether an entry, by the id in its record, was undone."""
        return self.marks.get(entry, 0) % 2 == 1

    def _bound(self) -> "Log":
        """Return the log with the id of each entry, and its own record instead of the first one after it.

        The record is looked up first by the id of the content. If the text was edited since, it is the record right
        after the entry; but that of a hand-written entry is at the end of the file, and found by the heading's hash. If
        two agents' logs were put into one file, an entry of both has the same id twice: each copy is counted by the
        record after it.
        """
        by_id = {record.id: record for record in self.records}
        copies = _counted_by_others(self)
        own_ids = iter(_entry_ids(entry.content for index, entry in enumerate(self.entries) if index not in copies))
        ids = [copies[index].id if index in copies else next(own_ids) for index in range(len(self.entries))]
        records = [copies.get(index) or by_id.get(entry_id) for index, entry_id in enumerate(ids)]
        if None in records:  # as a rule none is
            unbound = dict(by_id)
            for record in records:
                unbound.pop(record.id if record is not None else "", None)
            _bind_edited(self.entries, records, unbound)
        entries = [
            each._replace(id=id_, record=record, is_undone=record is not None and self.is_undone(record.id))
            for each, id_, record in zip(self.entries, ids, records, strict=True)
        ]
        named = {each.counted_for for each in entries if each.scope == _PRIVATE}
        if private := {id_ for id_ in named.union(self.marks) if id_.startswith("p-") and self.marks.get(id_, 1) % 2}:
            entries = [each._replace(is_private=each.counted_for in private) for each in entries]
        return self._replace(entries=tuple(entries))


_FIELD_BY_LABEL = {
    label: field
    for field, labels in {
        "flagged": "user flagged",
        "wrong": "what i got wrong, what went wrong, what was wrong, wrong",
        "right": "the correct approach, correct approach, right approach, correction, correct, right",
        "pattern": "generalizable pattern, generalisable pattern, generalized pattern, pattern, lesson",
        **{name: name for name in ("signal", "source", "tags", "scope", *LOGGED)},
    }.items()
    for label in labels.split(", ")
}
"""Field by label, as other writers of the format label it."""
_LONG = frozenset({"flagged", "signal", "wrong", "source"})
"""Fields that are not shared by default: their values extend to the next field, whatever is between."""

_NAME = r"[^\W\d_]+(?:[ \t]+[^\W\d_]+){0,3}"
_LABEL = (
    r"(?s) {0,3}(?:[-*+•][ \t]+)?"
    rf"(?:(?P<bold>\*{{1,3}}|_{{1,3}})[ \t]*(?P<name>{_NAME})[ \t]*"
    r"(?:[:：][ \t]*(?P=bold)|(?P=bold)[ \t]*[:：])"
    rf"|(?P<plain>{_NAME})[ \t]*[:：])[ \t]*(?P<value>.*)"
)
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<text>.*))?", re.DOTALL)
_DATED = rf"(?a)[\[(]?(?P<when>{markdown.WHEN})[\])]?(?=[\s:：|–—―-]|$)"
_ITEM = r"(?:[-*+•]|\d{1,9}[.)])(?:[ \t]|$)"
_DASH = r"\s*(?:-{1,3}|[–—―:：|])?\s*"
# Texts are compiled by `re` when one is used first, and kept: few processes need any.
_PAGE_TITLE = (
    r"(?i)(?:(?:my|our|the|agent) )?(?:corrections?|lessons?|learnings?|mistakes)(?:\.md| log| learned)?"
    r"(?:\s*[-–—:(|]+\s*\S+(?:\s+\S+){0,2})?\s*"
)
_NO_MARKS = str.maketrans("", "", "*_`~")
_AROUND = " \"'()[]{}<>.…!:-–—"
_TO_BE_INFERRED = (
    r"(?:pattern )?(?:is )?(?:still |yet )?to be (?:inferred|determined|decided|filled in|extracted)"
    r"(?: (?:at|on|upon|during|before|by|later|when|after)(?: .{1,80})?)?|tbd"
)
_AUTO_DETECTED = r"(?i)[\s(\[]*auto[- ]?detected\b"
_PLACEHOLDER_CHARS_MAX = 200
_SCOPES = next(field.values for field in FIELDS if field.name == "scope")
_PRIVATE = "private"


class _Block:
    """A heading and the lines under it, while they are parsed."""

    def __init__(self, line: int, level: int, when: str, title: str, statement: Statement | None = None) -> None:
        self.line, self.level, self.when, self.title = line, level, when, title
        self.statement = statement  # if the heading is one, it begins no entry
        self.body: list[str] = []  # lines before the first field, and their numbers
        self.body_numbers: list[int] = []
        self.values: dict[str, list[list[str]]] = {}
        self.fields: list[tuple[int, str, list[str]]] = []  # the same in order, each with the number of its line
        self.current: list[str] | None = None  # the value that further lines belong to; None: the body
        self.is_long = True  # the value extends to the next field
        self.has_gap = False  # the last line of the value is blank, or fleet's comment
        self.is_list = False
        self.is_over = False  # further lines are no part of the entry
        self.beside: list[int] = []
        self.record: Record | None = None

    def take(self, row: markdown.Row) -> None:
        is_text = not row.is_code
        if is_text and (label := _label(row.text)):
            self.current = [label[1]]
            self.values.setdefault(label[0], []).append(self.current)
            self.fields.append((row.number, label[0], self.current))
            self.is_long = label[0] in _LONG
            self.has_gap = self.is_list = self.is_over = False
        elif is_text and _is_rule(row.text):
            # A rule is the end of an entry: a remark under it is no part of the last field.
            self.is_over = self.current is not None
        else:
            if self.current is not None and not self.is_long and not self.is_over:
                self.is_over = self._is_behind(self.current, row)
            if self.is_over:
                self.beside.append(row.number)
            else:
                into = self.body if self.current is None else self.current
                self.body_numbers += [row.number] * (into is self.body)
                into.append(_dedent(row.text) if is_text else row.text)

    def _is_behind(self, value: list[str], row: markdown.Row) -> bool:
        """Return whether a line comes after the end of a value that is shared with the clan.

        A value ends at a blank line or fleet's comment, a heading, or a bullet at the margin; but a list or a piece of
        code belongs to the words that lead to it, and indented lines belong to the value.
        """
        had_gap, self.has_gap = self.has_gap, not row.text.strip() and not row.is_code
        if self.has_gap or (not had_gap if row.is_code else row.text[0] in " \t"):
            return False
        last = next((line.rstrip() for line in reversed(value) if line.strip()), "")
        is_led = last.endswith((":", "：")) or (not last and not had_gap)
        if not row.is_code and re.match(_ITEM, row.text):
            self.is_list = is_led or (self.is_list and not had_gap)
            return not self.is_list
        if row.is_code:
            return not is_led
        return had_gap or _HEADING.fullmatch(row.text) is not None

    def value(self, name: str) -> str:
        """Return a field's value; of several (both sides of a conflict) the first that is not empty."""
        for lines in self.values.get(name, ()):
            text = _joined(lines)
            is_torn = "signal" in self.values and TO_BE_INFERRED.startswith(text)  # by a crash within the placeholder
            if text and not (name == "pattern" and (is_placeholder(text) or is_torn)):
                return text
        return ""

    def unread(self) -> tuple[tuple[int, str], ...]:
        """Return line and text of the values that ``value`` skips: the field has another value already."""
        if len(self.fields) == len(self.values):
            return ()
        texts = ((number, _joined(lines), self.value(name)) for number, name, lines in self.fields)
        return tuple((line, text) for line, text, read in texts if text not in ("", read) and not is_placeholder(text))


def _with_statements(entries: list[Entry], stated: dict[str, dict[str, Any]]) -> list[Entry]:
    """Return the entries, with the fields that were stated later for entries without a pattern of their own."""
    ids = _entry_ids(entry.content for entry in entries)
    return [
        entry if entry.pattern else entry._replace(**stated.get(id_, {}))
        for entry, id_ in zip(entries, ids, strict=True)
    ]


def is_placeholder(text: str) -> bool:
    """Return whether a pattern is a note that it is still to be inferred."""
    start = text[:_PLACEHOLDER_CHARS_MAX].casefold()
    if len(text) > _PLACEHOLDER_CHARS_MAX or ("to be" not in start and "tbd" not in start):
        return False
    bare = " ".join(start.translate(_NO_MARKS).split()).strip(_AROUND)
    return re.fullmatch(_TO_BE_INFERRED, bare) is not None


_TOKEN = re.compile(r"(?P<key>[a-z][a-z0-9_-]{0,31})=(?P<value>\S*)", re.ASCII)
_CORRECTION_ID = re.compile(r"c-[0-9a-f]{16}", re.ASCII)


def _read_record(comment: str) -> Record | None:
    """Return the inside of a comment as a record; None for any other comment, and for a broken record."""
    words = comment.split()
    if len(words) < 4 or words[0] != "fleet" or not _CORRECTION_ID.fullmatch(words[1]) or not names.is_id(words[2]):
        return None
    pairs = [(match["key"], unquote(match["value"])) for word in words[3:] if (match := _TOKEN.fullmatch(word))]
    values = dict(reversed(pairs))  # the first of two equal keys counts
    replica, at = values.get("replica", ""), values.get("at", "")
    if not names.is_replica(replica) or not clock.is_stamp(at):
        return None
    extra = tuple((key, value) for key, value in pairs if key not in {"replica", "at", "session"})
    return Record(words[1], words[2], replica, at, values.get("session", ""), extra)


_MARK = (
    r"(?a)\s*fleet (?:(?:undone|stated-again) (?=c)|(?:private|shared-again) (?=p))(?P<id>[cp]-[0-9a-f]{16})"
    r" at=\S+ n=(?P<number>\d{1,6})\s*"
)


def _read_mark(comment: str, marks: dict[str, int]) -> None:
    """Add the text of a comment to ``marks`` if it is a mark; of several marks, the largest number counts."""
    if match := re.fullmatch(_MARK, comment):
        marks[match["id"]] = max(marks.get(match["id"], 0), int(match["number"]))


def session_word(named: str) -> str:
    """Return a host's session id as a comment can hold it: one word, no ``--``; any other id is hashed."""
    if re.fullmatch(_PLAIN_SESSION, named) and "--" not in named:
        return named
    return "h-" + hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


_PLAIN_SESSION = r"(?a)[A-Za-z0-9_.:@/-]{1,80}"


def _quote(text: str) -> str:
    """Percent-encode what could end a word or the comment, as host session ids may hold anything."""
    return quote(text, safe=":@/+", errors="replace")


_STARTS = {"pattern": "Learned from", "right": "Right way for", "trigger": "Trigger for"}
_STATEMENT = (
    rf"(?as)(?P<start>{'|'.join(_STARTS.values())}) (?P<id>c-[0-9a-f]{{16}})"
    r"[ \t]*(?:-{1,3}|[–—:：])[ \t]*(?P<text>\S.*)"
)


def _read_statement(heading: str) -> Statement | None:
    """Return the text of a heading as a statement; None for any other heading."""
    match = re.fullmatch(_STATEMENT, heading) if heading.startswith(tuple(_STARTS.values())) else None
    if match is None:
        return None
    field = next(field for field, start in _STARTS.items() if start == match["start"])
    return Statement(match["id"], field, match["text"].strip())


def _stated(statements: Iterable[Statement], records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Return the stated fields by the entry's id; none without a record, as the write may have been cut off.

    Where two branches stated the lesson of one entry, the record that counts decides, and not the order of the lines.
    """
    counted = {record.id: record for record in Record.latest(records)}
    grouped: dict[tuple[str, str], set[str]] = {}
    for statement in statements:
        if statement.id in counted:
            grouped.setdefault((statement.id, statement.field), set()).add(statement.text)
    fields_by_entry: dict[str, dict[str, Any]] = {}
    for (entry, field), texts in grouped.items():
        decided = counted[entry].pattern
        # A line that a crash cut off sorts before the whole line.
        fields_by_entry.setdefault(entry, {})[field] = max(texts, key=lambda each: (pattern_id(each) == decided, each))
    return fields_by_entry


def fold(text: str) -> str:
    """Return the text in the form in which texts are compared: NFC, with single blanks."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def _short_hash(*fields: str) -> str:
    return hashlib.blake2b("\0".join(fields).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _content(*fields: str) -> str:
    """Return the canonical text that an entry's id is the hash of: a JSON list of the folded fields.

    ASCII, so that it has bytes to hash even where the text holds half a surrogate pair.
    """
    return f"[{','.join(encode_basestring_ascii(fold(each)) for each in fields)}]"


def _entry_id(content: str, ordinal: int) -> str:
    """Return ``c-`` and 16 hex digits for the n-th entry with this content."""
    return "c-" + hashlib.blake2b(f"{content}\0{ordinal}".encode(), digest_size=8).hexdigest()


def _entry_ids(contents: Iterable[str]) -> list[str]:
    """Return each entry's id: the content's hash, and which of several equal entries it is."""
    ordinals: dict[str, Iterator[int]] = defaultdict(count)
    return [_entry_id(content, next(ordinals[content])) for content in contents]


_EQUAL_MAX = 100


def _bind_edited(entries: Sequence[Entry], bound: list[Record | None], unbound: dict[str, Record]) -> None:
    """Bind the entries whose text was edited since to their records, which are among the ``unbound`` ones."""
    for index, entry in enumerate(entries):
        if bound[index] is None and entry.record is not None and not _head(entry.record):
            bound[index] = unbound.pop(entry.record.id, None)
    heads = [entry.heading_hash for entry in entries]
    by_head: dict[str, list[Record]] = {}
    for record in unbound.values():
        by_head.setdefault(_head(record), []).append(record)
    # Entries and records with the same heading, such as a bare date, match in order; without a lesson last.
    open_: dict[str, list[int]] = {}
    waiting = (index for index, record in enumerate(bound) if record is None)
    for index in sorted(waiting, key=lambda index: not entries[index].pattern):
        open_.setdefault(heads[index], []).append(index)
    for head, places in open_.items():
        for index, record in zip(places, by_head.get(head, [])[-len(places) :], strict=False):
            bound[index] = unbound.pop(record.id)
    # If the heading was edited, the lesson is still the same.
    by_lesson = {record.pattern: record.id for record in unbound.values() if _head(record) not in heads}
    for index, entry in enumerate(entries):
        if bound[index] is None and entry.pattern:
            bound[index] = unbound.pop(by_lesson.pop(pattern_id(entry.pattern), ""), None)


def _head(record: Record) -> str:
    """Return the hash of the entry's heading in its record; "" for none."""
    return dict(record.extra).get("head", "")


def _counted_by_others(log: Log) -> dict[int, Record]:
    """Return index to record of each entry that copies an earlier one in the file and is counted by another agent.

    A second record by the same agent does not count: a replica that gets a new name records its entries again.
    """
    counted: dict[int, Record] = {}
    owners: dict[tuple[str, str], set[str]] = {}
    for index, entry in enumerate(log.entries):
        if entry.record is not None:
            agents = owners.setdefault((entry.content, entry.record.id), set())
            agent = names.agent_of(entry.record.replica)
            if agents and agent not in agents:
                counted[index] = entry.record
            agents.add(agent)
    return counted


def blank_entries(data: bytes, *, is_waiting_own: bool = False) -> tuple[list[bytes], list[tuple[Entry, bytes]]]:
    """Return the lines of a page with its own entries and statements blanked, and those entries, each with its bytes.

    ``is_waiting_own``: an entry without a lesson is an own entry too, if it has what went wrong.
    """
    lines = data.splitlines(keepends=True)
    log = Log.parse(data)
    starts = [row.number for row in markdown.rows(_plain(data)) if _opens_block(row)]
    ends = dict(pairwise([*starts, len(lines) + 1]))
    entries = []
    for entry in log.entries:
        end = ends[entry.line] - 1
        if not entry.is_bare or (is_waiting_own and entry.wrong):
            entries.append((entry, b"".join(lines[entry.line - 1 : end])))
            for index in {*range(entry.line - 1, end)}.difference(number - 1 for number in entry.beside):
                lines[index] = b"\n"
    if log.statements:
        stated = tuple(start.encode() for start in _STARTS.values())
        lines = [b"\n" if line.lstrip(b"# ").startswith(stated) else line for line in lines]
    return lines, entries


def _clean(text: str) -> str:
    return screening.one_line(screening.screen(text).text)


_LINE_ENDS = re.compile(r"\s*[\r\n]+\s*")


def _format_value(value: str) -> str:
    """Indent a value's further lines, which makes them plain text whatever they hold, and escape comment marks."""
    lines = markdown.escape(value.replace("\r\n", "\n").replace("\r", "\n").strip()).split("\n")
    return "\n".join(INDENT + line if number and line.strip() else line for number, line in enumerate(lines))


def _plain(text: str | bytes) -> str:
    """Return text with LF line ends and without the byte order marks that editors and ``cat`` leave."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff").replace("\n\ufeff", "\n")


def _opens_block(row: markdown.Row) -> _Block | None:
    """Return the block that a heading opens; None for a deeper heading without a date, a part of its entry."""
    if "#" not in row.text[:4] or row.is_code:
        return None
    match = _HEADING.fullmatch(row.text)
    if match is None:
        return None
    text = (match["text"] or "").strip()
    dated = re.match(_DATED, text)
    level = len(match["level"])
    if dated:
        return _Block(row.number, level, dated["when"], re.sub(rf"\A{_DASH}", "", text[dated.end() :]).strip())
    if level > 2:
        return None
    undated = text.removeprefix(DASH) if text == DASH or text.startswith(f"{DASH} ") else text
    return _Block(row.number, level, "", undated.strip(), statement=_read_statement(text))


_label_form = cache(partial(re.compile, _LABEL))  # used for every line: the cache of `re` costs a look-up each time


def _label(line: str) -> tuple[str, str] | None:
    """Return field and value of a line that begins with a field's label; None for any other line."""
    # A colon is missing in most lines, and costs a tenth of the expression.
    match = _label_form().fullmatch(line) if ":" in line or "：" in line else None
    if match is None:
        return None
    name = _FIELD_BY_LABEL.get(" ".join((match["name"] or match["plain"]).casefold().split()))
    return (name, match["value"]) if name else None


def _is_rule(line: str) -> bool:
    """Return whether a line is a thematic break, ``---`` or ``* * *``."""
    if line[:4].lstrip(" ")[:1] not in {"-", "*", "_"}:
        return False
    marks = line.replace(" ", "").replace("\t", "")
    return len(marks) >= 3 and marks == marks[0] * len(marks)


def _dedent(line: str) -> str:
    """Return a value's further line without its indent: four blanks, a tab, or all blanks of fewer."""
    if line.startswith(INDENT):
        return line[len(INDENT) :]
    return line.removeprefix("\t") if line.startswith("\t") else line.lstrip(" ")


def _joined(lines: list[str]) -> str:
    return lines[0].strip() if len(lines) == 1 else "\n".join([line.rstrip() for line in lines]).strip()


def _is_entry(block: _Block, following: _Block | None, *, is_first: bool) -> bool:
    """Return whether a block is an entry, and not the title of the page or of a section."""
    heads_section = following is not None and following.level > block.level
    if not block.when and block.level == 1:
        # Prose under a page's title may explain the four fields.
        is_page_title = is_first and re.fullmatch(_PAGE_TITLE, block.title) is not None
        if is_page_title or heads_section:
            return False
    if block.values:
        return True
    has_body = bool(_joined(block.body))
    return bool(block.title or has_body) if block.when else has_body and not heads_section


def _entry(block: _Block) -> Entry:
    wrong = block.value("wrong") or block.value("flagged")
    right = block.value("right") or _joined(block.body)
    source, pattern = block.value("source"), block.value("pattern")
    more: dict[str, Any] = {name: fold(block.value(name)) for name in LOGGED}
    scope = block.value("scope").translate(_NO_MARKS).strip(_AROUND).casefold()
    is_detected = re.match(_AUTO_DETECTED, source.translate(_NO_MARKS)) is not None
    return Entry(
        line=block.line,
        when=block.when,
        title=block.title,
        wrong=wrong,
        right=right,
        source=source,
        pattern=pattern,
        auto=is_detected or "flagged" in block.values or "signal" in block.values,
        signal=block.value("signal"),
        record=block.record,
        content=_content(block.when, block.title, wrong, right, source, pattern),
        tags=tuple(tag for part in re.split("[,，、]", block.value("tags")) if (tag := fold(part).strip("#`"))),
        **more,
        scope=_PRIVATE if "privat" in scope else scope,
        beside=(*(block.body_numbers if block.value("right") else ()), *block.beside),
        unread=block.unread(),
    )


def _format_heading(when: str, title: str) -> str:
    title = markdown.escape(_LINE_ENDS.sub(" ", title).strip())
    if when:
        return f"## {when} {DASH} {title}".rstrip()
    # A dash goes before a title that would be read as a date, a dash or a statement.
    needs_dash = not title or title.startswith(DASH) or re.match(_DATED, title) or _read_statement(title)
    return f"## {DASH} {title}".rstrip() if needs_dash else f"## {title}"
