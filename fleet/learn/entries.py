"""The text of ``corrections.md``: every shape that people and tools have written it in, and the one we write.

The page is the write-ahead log of corrections (DESIGN, section 4). Reading never raises and never lets one broken entry
harm another; what is written reads back as it was, because a value's further lines are indented by four blanks, where
neither Markdown nor this module sees a heading, a field, a fence or a rule, and comment marks in it are escaped.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.learn import markdown, times
from fleet.learn.records import Record, format_record, read_record

__all__ = ["Entry", "Log", "Record", "fold", "format_entry", "format_record", "is_placeholder", "parse_log"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One correction.

    Attributes:
        line: of its heading, from 1.
        when: as the heading has it, ``2026-03-15 14:30Z``; empty if it has none.
        title: the rest of the heading.
        wrong: what went wrong; in an auto-detected entry, what the user flagged.
        right: the correct approach; in a bare entry, the paragraph under the heading.
        source: who or what told.
        pattern: the generalizable lesson; empty when it is missing or still to be inferred.
        category: what the lesson is about, one word or two; empty if it has none.
        tags: words to find it by.
        auto: a hook wrote it (User flagged, Signal, or Source: auto-detected).
        signal: what the hook heard.
        record: the first record comment between this heading and the next. By position only: a record for another
            entry, appended at the end of the page, may stand there too, so compare its id before it is believed.
        content: canonical text of when, title, wrong, right, source and pattern, to be hashed. Category and tags may
            be mended without making it another entry.
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


@dataclass(frozen=True, slots=True)
class Log:
    """A whole page: its entries, and all its records, both in file order."""

    entries: tuple[Entry, ...]
    records: tuple[Record, ...]


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

_INDENT = "    "
_NAMES = "|".join(name.replace(" ", "[ \t]+") for name in sorted(FIELDS, key=len, reverse=True))
_LABEL = re.compile(
    r" {0,3}(?:[-*+•][ \t]+)?"
    rf"(?:(?P<bold>\*{{1,3}}|_{{1,3}})[ \t]*(?P<name>{_NAMES})[ \t]*"
    r"(?:[:：][ \t]*(?P=bold)|(?P=bold)[ \t]*[:：])"
    rf"|(?P<plain>{_NAMES})[ \t]*[:：])[ \t]*(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<text>.*))?", re.DOTALL)
_DATED = re.compile(rf"[\[(]?(?P<when>{times.WHEN.pattern})[\])]?(?=[\s:：|–—―-]|$)", re.ASCII | re.IGNORECASE)
_DASH = re.compile(r"\s*(?:-{1,3}|[–—―:：|])?\s*")
_UNDATED = "—"
_PAGE_TITLE = re.compile(
    r"(?:(?:my|our|the|agent) )?(?:corrections?|lessons?|learnings?|mistakes)(?:\.md| log| learned)?"
    r"(?:\s*[-–—:(|]+\s*\S+(?:\s+\S+){0,2})?\s*",
    re.IGNORECASE,
)
_NO_MARKS = str.maketrans("", "", "*_`~")
_AROUND = " \"'()[]{}<>.…!:-–—"
_TO_BE_INFERRED = re.compile(
    r"(?:pattern )?(?:is )?(?:still |yet )?to be (?:inferred|determined|decided|filled in|extracted)"
    r"(?: (?:at|on|upon|during|before|by|later|when|after)(?: .{1,80})?)?|tbd"
)
_AUTO_DETECTED = re.compile(r"[\s(\[]*auto[- ]?detected\b", re.IGNORECASE)
_PLACEHOLDER_CHARS_MAX = 200


@dataclass(slots=True)
class _Block:
    """A heading and what stands under it, while it is being read."""

    line: int
    level: int
    when: str
    title: str
    body: list[str] = field(default_factory=list)  # what stands before the first field
    values: dict[str, list[list[str]]] = field(default_factory=dict)
    current: list[str] | None = None  # the value that further lines belong to; None: the body
    record: Record | None = None

    def take(self, row: markdown.Row) -> None:
        """Add a line of content."""
        into = self.body if self.current is None else self.current
        if row.kind == "literal":
            into.append(row.text)
        elif label := _label(row.text):
            self.current = [label["value"]]
            name = FIELDS[" ".join((label["name"] or label["plain"]).casefold().split())]
            self.values.setdefault(name, []).append(self.current)
        elif _is_rule(row.text):
            # A rule is the end of an entry: a remark under it is no part of the last field.
            self.current = None if self.current is None else []
        else:
            into.append(_dedent(row.text))

    def value(self, name: str) -> str:
        """Return a field; of several (both sides of a conflict) the first that says something."""
        for lines in self.values.get(name, ()):
            text = _joined(lines)
            if text and not (name == "pattern" and is_placeholder(text)):
                return text
        return ""


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
    after: list[_Block | None] = [*blocks[1:], None]
    entries = (_entry(block) for at, block in enumerate(blocks) if _is_entry(block, after[at], is_first=at == 0))
    return Log(tuple(entries), tuple(records))


def is_placeholder(text: str) -> bool:
    """Tell whether this is the note that a pattern is still to be inferred, and no pattern."""
    start = text[:_PLACEHOLDER_CHARS_MAX].casefold()
    if len(text) > _PLACEHOLDER_CHARS_MAX or ("to be" not in start and "tbd" not in start):
        return False
    bare = " ".join(start.translate(_NO_MARKS).split()).strip(_AROUND)
    return _TO_BE_INFERRED.fullmatch(bare) is not None


def fold(text: str) -> str:
    """Return the text as it is compared: NFC, each run of white space one blank."""
    return " ".join(unicodedata.normalize("NFC", text).split())


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
    lines = [_format_heading(when.strip(), title)]
    lines += [f"**{label}:** {_format_value(value)}".rstrip() for label, value in values.items()]
    return "\n".join(lines) + "\n"


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
    undated = text.removeprefix(_UNDATED) if text == _UNDATED or text.startswith(f"{_UNDATED} ") else text
    return _Block(row.number, level, "", undated.strip())


def _label(line: str) -> re.Match[str] | None:
    # Most lines of most pages are told by this alone, at a tenth of the price.
    return _LABEL.fullmatch(line) if ":" in line or "：" in line else None


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
    if line.startswith(_INDENT):
        return line[len(_INDENT) :]
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
    said = (block.when, block.title, wrong, right, source, pattern)
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
        # ASCII, so that it has bytes to hash even where the text holds half a surrogate pair.
        content=json.dumps([fold(part) for part in said], separators=(",", ":")),
        category=fold(block.value("category")),
        tags=tuple(tag for part in re.split("[,，、]", block.value("tags")) if (tag := fold(part).strip("#`"))),
    )


def _format_heading(when: str, title: str) -> str:
    if when and not times.WHEN.fullmatch(when):
        raise ValueError(f"no date that a heading can hold: {when[:40]!r}; leave it empty for an entry without one")
    title = markdown.escape(re.sub(r"\s*[\r\n]+\s*", " ", title).strip())
    if when:
        return f"## {when} {_UNDATED} {title}".rstrip()
    # A title that begins like a date or a dash would be read as one: a dash before it says that no date comes.
    needs_dash = not title or title.startswith(_UNDATED) or _DATED.match(title)
    return f"## {_UNDATED} {title}".rstrip() if needs_dash else f"## {title}"


def _format_value(value: str) -> str:
    """Indent a value's further lines, which makes them plain text whatever they hold, and escape comment marks."""
    lines = markdown.escape(value.replace("\r\n", "\n").replace("\r", "\n").strip()).split("\n")
    return "\n".join(_INDENT + line if number and line.strip() else line for number, line in enumerate(lines))
