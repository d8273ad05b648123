"""The text of ``corrections.md``: every shape that people and tools have written it in, and the one we write.

The page is the write-ahead log of corrections (DESIGN, section 4). Reading never raises and never lets one broken entry
harm another; what is written reads back as it was (see ``writing``).
"""

import re
from collections.abc import Sequence

import msgspec

from fleet.keep.lazily import compiled
from fleet.learn import lessons, markdown, times, writing
from fleet.learn.lessons import Lesson
from fleet.learn.records import Record, format_record, read_record
from fleet.learn.writing import fold

__all__ = ["Entry", "Log", "Record", "fold", "format_entry", "format_record", "is_placeholder", "parse_log"]


class Entry(msgspec.Struct, frozen=True):
    """One correction.

    Attributes:
        line: of its heading, from 1.
        when: as the heading has it, ``2026-03-15 14:30Z``; empty if it has none.
        title: the rest of the heading.
        wrong: what went wrong; in an auto-detected entry, what the user flagged.
        right: the correct approach; in a bare entry, the paragraph under the heading.
        source: who or what told.
        pattern: the generalizable lesson; empty when it is missing or still to be inferred. Where an entry has none,
            this and ``right`` are what was stated later, at the end of the page.
        category: what the lesson is about, one word or two; empty if it has none.
        tags: words to find it by.
        auto: a hook wrote it (User flagged, Signal, or Source: auto-detected).
        signal: what the hook heard.
        record: the first record comment between this heading and the next. By position only: a record for another
            entry, appended at the end of the page, may stand there too, so compare its id before it is believed.
        content: canonical text of when, title, wrong, right, source and pattern as the entry itself has them, to be
            hashed. Category and tags may be mended without making it another entry, and a lesson stated later makes
            none either.
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


class Log(msgspec.Struct, frozen=True):
    """A whole page: its entries, all its records, and the lessons that were stated later, each in file order."""

    entries: tuple[Entry, ...]
    records: tuple[Record, ...]
    lessons: tuple[Lesson, ...] = ()


FIELDS = {
    "user flagged": "flagged",
    "signal": "signal",
    "what i got wrong": "wrong",
    "what went wrong": "wrong",
    "what was wrong": "wrong",
    "wrong": "wrong",
    "the correct approach": "right",
    "correct approach": "right",
    "right approach": "right",
    "correction": "right",
    "correct": "right",
    "right": "right",
    "source": "source",
    "generalizable pattern": "pattern",
    "generalisable pattern": "pattern",
    "generalized pattern": "pattern",
    "pattern": "pattern",
    "lesson": "pattern",
    "category": "category",
    "tags": "tags",
}
"""Field labels in the wild, and what they are here."""

_NAME = r"[^\W\d_]+(?:[ \t]+[^\W\d_]+){0,3}"
_LABEL = compiled(
    r" {0,3}(?:[-*+•][ \t]+)?"
    rf"(?:(?P<bold>\*{{1,3}}|_{{1,3}})[ \t]*(?P<name>{_NAME})[ \t]*"
    r"(?:[:：][ \t]*(?P=bold)|(?P=bold)[ \t]*[:：])"
    rf"|(?P<plain>{_NAME})[ \t]*[:：])[ \t]*(?P<value>.*)",
    re.DOTALL,
)
_HEADING = compiled(r" {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<text>.*))?", re.DOTALL)
_DATED = compiled(rf"[\[(]?(?P<when>{times.WHEN.pattern})[\])]?(?=[\s:：|–—―-]|$)", re.ASCII | re.IGNORECASE)
_DASH = compiled(r"\s*(?:-{1,3}|[–—―:：|])?\s*")
_PAGE_TITLE = compiled(
    r"(?:(?:my|our|the|agent) )?(?:corrections?|lessons?|learnings?|mistakes)(?:\.md| log| learned)?"
    r"(?:\s*[-–—:(|]+\s*\S+(?:\s+\S+){0,2})?\s*",
    re.IGNORECASE,
)
_NO_MARKS = str.maketrans("", "", "*_`~")
_AROUND = " \"'()[]{}<>.…!:-–—"
_TO_BE_INFERRED = compiled(
    r"(?:pattern )?(?:is )?(?:still |yet )?to be (?:inferred|determined|decided|filled in|extracted)"
    r"(?: (?:at|on|upon|during|before|by|later|when|after)(?: .{1,80})?)?|tbd"
)
_AUTO_DETECTED = compiled(r"[\s(\[]*auto[- ]?detected\b", re.IGNORECASE)
_PLACEHOLDER_CHARS_MAX = 200


class _Block(msgspec.Struct):
    """A heading and what stands under it, while it is being read."""

    line: int
    level: int
    when: str
    title: str
    body: list[str] = []  # what stands before the first field
    values: dict[str, list[list[str]]] = {}
    current: list[str] | None = None  # the value that further lines belong to; None: the body
    record: Record | None = None
    lesson: Lesson | None = None  # the heading is no entry's, but what was learned from one

    def take(self, row: markdown.Row) -> None:
        """Add a line of content."""
        into = self.body if self.current is None else self.current
        if row.kind == "literal":
            into.append(row.text)
        elif label := _label(row.text):
            self.current = [label[1]]
            self.values.setdefault(label[0], []).append(self.current)
        elif _is_rule(row.text):
            # A rule is the end of an entry: a remark under it is no part of the last field.
            self.current = None if self.current is None else []
        else:
            into.append(_dedent(row.text))

    def value(self, name: str) -> str:
        """Return a field; of several (both sides of a conflict) the first that says something."""
        for lines in self.values.get(name, ()):
            text = _joined(lines)
            if text and not (name == "pattern" and (is_placeholder(text) or self._is_torn(text))):
                return text
        return ""

    def _is_torn(self, pattern: str) -> bool:
        """Tell a signal's placeholder of which a crash left the beginning: as a lesson, it would be everybody's."""
        return "signal" in self.values and writing.TO_BE_INFERRED.startswith(pattern)


def parse_log(text: str | bytes) -> Log:
    """Read a page of corrections, in any shape. Never raises.

    Bytes are read as UTF-8, with U+FFFD for what is none.
    """
    blocks: list[_Block] = []
    records: list[Record] = []
    for row in markdown.rows(_plain(text)):
        if row.kind == "comment":
            record = read_record(row.text, row.number)
            if record is None:
                continue
            records.append(record)
            if blocks and blocks[-1].record is None:
                blocks[-1].record = record
        elif block := _opens_block(row):
            blocks.append(block)
        elif blocks:
            blocks[-1].take(row)
    stated = tuple(block.lesson for block in blocks if block.lesson is not None)
    if stated:
        # What somebody wrote below such a heading is an entry of theirs.
        blocks = [b for b in blocks if b.lesson is None or b.values or _joined(b.body)]
    after: list[_Block | None] = [*blocks[1:], None]
    entries = [_entry(block) for at, block in enumerate(blocks) if _is_entry(block, after[at], is_first=at == 0)]
    if stated:
        entries = _with_lessons(entries, lessons.stated(stated, records))
    return Log(tuple(entries), tuple(records), stated)


def _with_lessons(entries: list[Entry], stated: dict[str, dict[lessons.Field, str]]) -> list[Entry]:
    """Return the entries, each that has no pattern of its own with the one that was stated later."""
    ids = writing.entry_ids(entry.content for entry in entries)
    return [
        msgspec.structs.replace(entry, pattern=said.get("pattern", ""), right=said.get("right", entry.right))
        if not entry.pattern and (said := stated.get(found))
        else entry
        for entry, found in zip(entries, ids, strict=True)
    ]


def is_placeholder(text: str) -> bool:
    """Tell whether this is the note that a pattern is still to be inferred, and no pattern."""
    start = text[:_PLACEHOLDER_CHARS_MAX].casefold()
    if len(text) > _PLACEHOLDER_CHARS_MAX or ("to be" not in start and "tbd" not in start):
        return False
    bare = " ".join(start.translate(_NO_MARKS).split()).strip(_AROUND)
    return _TO_BE_INFERRED.fullmatch(bare) is not None


def format_entry(
    *,
    when: str,
    title: str,
    wrong: str,
    right: str,
    source: str,
    pattern: str,
    category: str = "",
    tags: Sequence[str] = (),
) -> str:
    """Write one entry, newline at its end, so that ``parse_log`` gives back each value up to white space at line ends.

    Category and tags are written only where there are any. A title is one line: line breaks in it become blanks. A
    pattern that only says it is to be inferred reads as none.

    Raises:
        ValueError: ``when`` is neither empty nor a date that a heading can hold.
    """
    values = {"What I got wrong": wrong, "Correct approach": right, "Source": source, "Pattern": pattern}
    values |= {label: said for label, said in (("Category", category), ("Tags", ", ".join(tags))) if said}
    return writing.format_block(_format_heading(when.strip(), title), values)


_NOT_PLAIN = frozenset("\\<>`~")
_ENDS_A_TAG = frozenset("#,，、")


def written_plainly(
    *,
    when: str,
    title: str,
    wrong: str,
    right: str,
    source: str,
    pattern: str,
    category: str = "",
    tags: Sequence[str] = (),
) -> tuple[str, Entry] | None:
    """Return what ``format_entry`` writes, and what ``parse_log`` reads from it, where both are plain to see.

    That is where each value is one line, in which no mark opens a comment, a code span or a fence, or escapes one; most
    are. None for any other: write it, read it, and see whether it comes back.
    """
    values = (title, wrong, right, source, pattern, category, *tags)
    said = "".join(values)
    if not (when and title and pattern and said.isprintable() and _NOT_PLAIN.isdisjoint(said)):
        return None
    if tuple(map(str.strip, values)) != values or "" in tags or not times.WHEN.fullmatch(when):
        return None
    if is_placeholder(pattern) or "auto" in source.casefold() or not _ENDS_A_TAG.isdisjoint("".join(tags)):
        return None
    if title[0] in "-–—―:：|" or title.rstrip("#") != title:
        return None
    body = (
        f"## {when} {writing.DASH} {title}\n{_field('What I got wrong', wrong)}{_field('Correct approach', right)}"
        f"{_field('Source', source)}{_field('Pattern', pattern)}"
        f"{_field('Category', category) if category else ''}{_field('Tags', ', '.join(tags)) if tags else ''}"
    )
    told = [title, wrong, right, source, pattern]
    if not said.isascii() or "  " in said:  # else folding changes none of them: as a rule
        told, category, tags = list(map(fold, told)), fold(category), list(map(fold, tags))
    return body, Entry(
        line=1,
        when=when,
        title=title,
        wrong=wrong,
        right=right,
        source=source,
        pattern=pattern,
        auto=False,
        signal="",
        record=None,
        content=writing.content_of([fold(when), *told]),
        category=category,
        tags=tuple(tags),
    )


def _field(label: str, value: str) -> str:
    return f"**{label}:** {value}\n" if value else f"**{label}:**\n"


def _plain(text: str | bytes) -> str:
    """Return text with LF line ends and without the byte order marks that editors and ``cat`` leave."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff").replace("\n\ufeff", "\n")


def _opens_block(row: markdown.Row) -> _Block | None:
    """Read a heading; a deeper one without a date is a part of the entry it stands in."""
    if "#" not in row.text[:4] or row.kind == "literal":
        return None
    found = _HEADING.fullmatch(row.text)
    if found is None:
        return None
    text = (found["text"] or "").strip()
    dated = _DATED.match(text)
    level = len(found["level"])
    if dated:
        rest = text[dated.end() :]
        return _Block(row.number, level, dated["when"], rest[_dash_length(rest) :].strip())
    if level > 2:
        return None
    undated = text.removeprefix(writing.DASH) if text == writing.DASH or text.startswith(f"{writing.DASH} ") else text
    return _Block(row.number, level, "", undated.strip(), lesson=lessons.read_lesson(text))


def _label(line: str) -> tuple[str, str] | None:
    """Read a line that begins with a field's label: which field, and what stands behind it."""
    # Most lines of most pages are told by this alone, at a tenth of the price.
    found = _LABEL.fullmatch(line) if ":" in line or "：" in line else None
    if found is None:
        return None
    name = FIELDS.get(" ".join((found["name"] or found["plain"]).casefold().split()))
    return (name, found["value"]) if name else None


def _dash_length(text: str) -> int:
    found = _DASH.match(text)
    return found.end() if found else 0


def _is_rule(line: str) -> bool:
    """Tell a thematic break, ``---`` or ``* * *``."""
    if line[:4].lstrip(" ")[:1] not in {"-", "*", "_"}:
        return False
    marks = line.replace(" ", "").replace("\t", "")
    return len(marks) >= 3 and marks == marks[0] * len(marks)


def _dedent(line: str) -> str:
    """Undo the indent of a value's further lines: ours exactly, a hand's slight one whole."""
    if line.startswith(writing.INDENT):
        return line[len(writing.INDENT) :]
    return line.removeprefix("\t") if line.startswith("\t") else line.lstrip(" ")


def _joined(lines: list[str]) -> str:
    return lines[0].strip() if len(lines) == 1 else "\n".join([line.rstrip() for line in lines]).strip()


def _is_entry(block: _Block, after: _Block | None, *, is_first: bool) -> bool:
    """Tell an entry from the title of the page, or of a section of it."""
    heads_section = after is not None and after.level > block.level
    if not block.when and block.level == 1:
        # Prose under a page's title may well explain the four fields.
        is_page_title = is_first and _PAGE_TITLE.fullmatch(block.title) is not None
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
    is_detected = _AUTO_DETECTED.match(source.translate(_NO_MARKS)) is not None
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
        content=writing.content(
            when=block.when, title=block.title, wrong=wrong, right=right, source=source, pattern=pattern
        ),
        category=fold(block.value("category")),
        tags=tuple(tag for part in re.split("[,，、]", block.value("tags")) if (tag := fold(part).strip("#`"))),
    )


def _format_heading(when: str, title: str) -> str:
    if when and not times.WHEN.fullmatch(when):
        raise ValueError(f"no date that a heading can hold: {when[:40]!r}; leave it empty for an entry without one")
    title = writing.format_title(title)
    if when:
        return f"## {when} {writing.DASH} {title}".rstrip()
    # A title that begins like a date, a dash or a lesson would be read as one: a dash before it says that none comes.
    needs_dash = not title or title.startswith(writing.DASH) or _DATED.match(title) or lessons.read_lesson(title)
    return f"## {writing.DASH} {title}".rstrip() if needs_dash else f"## {title}"
