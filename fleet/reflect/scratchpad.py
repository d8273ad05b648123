"""``.agents.local.md``, the scratchpad of auto-reflect: its directive and sections, read in every known form. Pure.

A change gives a new text in which every other line is as it was. Lines that fleet did not write are never moved or
taken out; of those it wrote, rows that were promoted leave their table, and observations go to the daily logs when the
page grows beyond ``LINES_MAX``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleet.reflect.observations import BOUNDARY, GOTCHA, PATTERN, Row, Said, category_of, observed, rows, whose

FILE = ".agents.local.md"
LINES_MAX = 300
"""Above so many lines the scratchpad's auto part is compressed."""
LINES_LEFT = 200
SUGGEST, AUTO, OFF = "suggest", "auto", "off"
OBSERVATIONS = "Session Observations (auto)"
READY = "Ready to Promote"
PROMOTED = "Auto-Promoted"
SESSION_LOG = "Session Log"
COMPRESSION_LOG = "Compression Log"
DAILY = "<!-- fleet: observations and session entries go to .agents/logs -->"
"""The line of a scratchpad that was migrated."""
TEMPLATE = """\
<!-- auto-reflect: promote=suggest -->
# Agent Scratchpad

## Ready to Promote

## Session Observations (auto)

"""
READY_HEAD = ("| Category | Item | Detail |", "|----------|------|--------|")
PROMOTED_HEAD = ("| Date | Category | Item | AGENTS.md section | Evidence |", "|---|---|---|---|---|")

_DIRECTIVE = re.compile(r"\s*auto-reflect\s*:\s*promote\s*=\s*[\"']?(\w+)[\"']?\s*", re.IGNORECASE)
_DIRECTIVE_LINES = 10
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_DAY = r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})"
_ENTRY = re.compile(rf"(?:session[ \t:]+)?\[?{_DAY}\]?(?:[ \t]*(?:[—–:|-]+)[ \t]*(?P<topic>.*))?", re.IGNORECASE)
_LABEL = re.compile(r"(?P<label>done|worked|did(?:n['’]?t| not) work|decided|learned)[ \t]*:?", re.IGNORECASE)
_BULLET = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)")
_RULE = re.compile(r"\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?")
_SUGGESTED = re.compile(r"\s*auto-reflect: suggested((?: [0-9a-f]{8})*)\s*")
_SUGGESTED_KEPT_MAX = 400
_TEMPLATES = frozenset(
    {
        *(("pattern", "where-to-see-it"), ("pattern", "where to see it"), ("pattern", "where")),
        *((("rule", "reason"), ("trap", "fix"), ("a", "b"), ("category", "item"), ("item", "detail"), ("what", "why"))),
        *((("approach", "why it failed"), ("approach", "why"), ("attempt", "why it failed"), ("preference", "detail"))),
    }
)
_KINDS = {"done": "done", "worked": "worked", "decided": "decided", "learned": "learned"}


class Section(NamedTuple):
    """A part of a page: its title and level, the number of its heading line, and where its lines begin and end."""

    title: str
    level: int
    heading: int
    end: int


class Entry(NamedTuple):
    """A row of a section that somebody may promote: what it is, what more is to say, its category, and its line."""

    category: str
    item: str
    detail: str = ""
    number: int = 0


class Page(NamedTuple):
    """A page of Markdown, taken apart.

    Attributes:
        lines: with their ends.
        rows: what a reader sees of them.
        sections: of the second level and above, in their order.
        eol: the page's line end.
    """

    lines: list[str]
    rows: list[Row]
    sections: list[Section]
    eol: str = "\n"

    def inside(self, section: Section) -> list[Row]:
        """Return the rows of a section, without its heading."""
        return [row for row in self.rows if section.heading < row.number - 1 < section.end]

    def named(self, title: str) -> list[Section]:
        """Return the sections of this title; a page may have several."""
        return [each for each in self.sections if _key(each.title) == _key(title)]


def parse(text: str, level_max: int = 2) -> Page:
    """Return a page, taken apart: headings in code and in comments are none."""
    lines = (
        text.splitlines(keepends=True) if "\r" not in text.replace("\r\n", "") else re.findall(r"[^\n]*\n|[^\n]+", text)
    )
    found = rows(text)
    heads = [
        (row.number - 1, len(match[1]), match[2])
        for row in found
        if not row.is_code and (match := _HEADING.fullmatch(row.text.rstrip())) and len(match[1]) <= level_max
    ]
    sections = []
    for at, (number, level, title) in enumerate(heads):
        end = next((later for later, other, _ in heads[at + 1 :] if other <= level or other <= 2), len(lines))
        sections.append(Section(title, level, number, end))
    return Page(lines, found, sections, "\r\n" if text.partition("\n")[0].endswith("\r") else "\n")


def _key(title: str) -> str:
    said = re.sub(r"[^a-z0-9]+", " ", title.casefold()).strip()
    return said.removesuffix(" auto").removesuffix("s")


# --- reading --------------------------------------------------------------------------------------------------------


def mode(text: str) -> str:
    """Return how promotion works here, as the first lines say: "suggest" (where none is said), "auto" or "off"."""
    first = (row for row in rows("\n".join(text.splitlines()[:_DIRECTIVE_LINES])))
    found = (match[1].lower() for row in first for each in row.comments if (match := _DIRECTIVE.fullmatch(each)))
    wanted = next(found, SUGGEST)
    return wanted if wanted in (SUGGEST, AUTO, OFF) else SUGGEST


def is_daily(text: str) -> bool:
    """Tell whether the page was migrated: what happens goes to the daily logs alone."""
    return DAILY in text


def said(text: str) -> list[Said]:
    """Return what sessions said: observations, and the entries of the session log."""
    page = parse(text)
    seen = [row for section in page.named(OBSERVATIONS) for row in page.inside(section)]
    return [*observed(seen), *(each for section in page.named(SESSION_LOG) for each in _logged(page.inside(section)))]


def _logged(found: Iterable[Row]) -> list[Said]:
    """Return what the entries of a session log say, line by line."""
    told: list[Said] = []
    session = at = kind = ""
    for row in found:
        heading = _HEADING.fullmatch(row.text.rstrip()) if not row.is_code else None
        entry = _ENTRY.fullmatch((heading[2] if heading else "").strip())
        if entry:
            at = f"{entry['year']}-{int(entry['month']):02}-{int(entry['day']):02}"
            by = whose(row.comments)
            session = f"{by.agent} {by.session}" if by and by.session else f"@log {at} {(entry['topic'] or '').strip()}"
            kind = ""
        elif heading:
            kind = _labelled(heading[2])[0] or kind
        elif at and (by := whose(row.comments)) and by.session and not row.text.strip():
            session = f"{by.agent} {by.session}"
        elif at and row.text.strip() and not row.is_code:
            text = match["text"] if (match := _BULLET.fullmatch(row.text.rstrip())) else row.text.strip()
            own, rest = _labelled(text)
            kind = own or (kind if row.text[:1].isspace() or match else "")
            if rest:
                told.append(Said(rest, at, session, kind))
    return told


def _labelled(text: str) -> tuple[str, str]:
    """Return the kind that a line is labelled with, "" for none, and the rest of it."""
    bare = text.strip().lstrip("*_ ")
    match = _LABEL.match(bare)
    if not match:
        return "", text.strip()
    rest = bare[match.end() :].lstrip()
    marked = text.strip().startswith(("*", "_"))
    if not (
        match[0].rstrip().endswith(":") or (marked and rest.lstrip("*_ ").startswith(":")) or not rest.strip("*_: ")
    ):
        return "", text.strip()
    label = match["label"].casefold()
    return _KINDS.get(label, "failed"), rest.lstrip("*_: ").strip()


def ready(text: str) -> list[Entry]:
    """Return the rows that wait under ``## Ready to Promote``, in whatever form they stand."""
    page = parse(text)
    return [each for section in page.named(READY) for each in entries(page.inside(section))]


def entries(found: Iterable[Row]) -> list[Entry]:
    """Return the rows of a section: of a table, pipe lines, bullets; in a code fence and in brackets or not."""
    told: list[Entry] = []
    category = ""
    listed = list(found)
    for at, row in enumerate(listed):
        text = row.text.strip()
        if heading := _HEADING.fullmatch(text) if not row.is_code else None:
            category = _category(heading[2])
            continue
        after = listed[at + 1].text.strip() if at + 1 < len(listed) else ""
        if (
            not text
            or text.startswith(("```", "~~~"))
            or _RULE.fullmatch(text)
            or ("|" in text and "-" in after and _RULE.fullmatch(after))
        ):
            continue  # a table's header row is no entry
        if (entry := _entry(text, category)) is not None:
            told.append(entry._replace(number=row.number))
    return told


def _entry(text: str, category: str) -> Entry | None:
    match = _BULLET.fullmatch(text)
    body = (match["text"] if match else text).strip()
    if not match and "|" not in body:
        return None  # prose
    if body.startswith("[") and body.endswith("]") and "](" not in body and body.count("[") == body.count("]"):
        body = body[1:-1] if body.count("[") == 1 else body
    cells = [cell.strip().removeprefix("[").removesuffix("]").strip() for cell in _cells(body)]
    if not any(cells) or tuple(cell.casefold() for cell in cells[:2]) in _TEMPLATES:
        return None
    own = _category(cells[0]) if len(cells) >= 2 and cells[0].casefold().rstrip("s") in {*_NAMED, "gotcha"} else ""
    if own and len(cells) == 2 and " — " in cells[1]:
        cells = [cells[0], *cells[1].split(" — ", 1)]
    if own:
        return Entry(own, cells[1], " | ".join(filter(None, cells[2:])))
    if len(cells) == 1 and " — " in cells[0]:
        cells = cells[0].split(" — ", 1)
    return Entry(category or category_of(" ".join(cells)), cells[0], " | ".join(filter(None, cells[1:])))


_NAMED = {"gotcha": GOTCHA, "pattern": PATTERN, "boundary": BOUNDARY, "boundarie": BOUNDARY}


def _category(title: str) -> str:
    return _NAMED.get(re.sub(r"[^a-z]+", "", title.casefold()).rstrip("s"), "")


def _cells(text: str) -> list[str]:
    """Return the cells of a row; a bar behind a backslash, or in a code span, parts nothing."""
    body = text.strip()
    body = body.removeprefix("|")
    if body.endswith("|") and not body.endswith("\\|"):
        body = body[:-1]
    cells, is_code, has_spans = [""], False, body.count("`") % 2 == 0
    for char in body:
        if char == "`" and has_spans:
            is_code = not is_code
        if char == "|" and not is_code and not cells[-1].endswith("\\"):
            cells.append("")
        else:
            cells[-1] += char
    return [each.replace("\\|", "|").strip() for each in cells]


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")


def suggested(text: str) -> frozenset[str]:
    """Return the ids of all that was ever suggested here: what a person took out does not come back."""
    found = (match for row in rows(text) for each in row.comments if (match := _SUGGESTED.fullmatch(each)))
    return frozenset(one for match in found for one in match[1].split())


# --- changing -------------------------------------------------------------------------------------------------------


def fresh(eol: str = "\n") -> str:
    """Return a scratchpad in which nothing is noted yet."""
    return TEMPLATE.replace("\n", eol)


def with_observation(text: str, line: str) -> tuple[str, str]:
    """Return the page with one more observation, and what has to be appended for that; "" where that is not enough."""
    page = parse(text or fresh())
    found = page.named(OBSERVATIONS)
    if not found:
        gap = "" if not page.lines or _is_blank(page.lines[-1]) else page.eol
        more = f"{_closing(page)}{gap}## {OBSERVATIONS}{page.eol}{page.eol}{line}{page.eol}"
        return "".join(page.lines) + more, more if text else ""
    section = found[-1]
    at = _content_end(page, section)
    is_last = section.end == len(page.lines) and at == len(page.lines)
    more = f"{_closing(page) if is_last else ''}{line}{page.eol}"
    whole = "".join([*page.lines[:at], more, *page.lines[at:]])
    return whole, more if text and is_last else ""


def _closing(page: Page) -> str:
    return page.eol if page.lines and not page.lines[-1].endswith("\n") else ""


def _is_blank(line: str) -> bool:
    return not line.strip()


def _content_end(page: Page, section: Section) -> int:
    """Return the line behind the last one of a section that is not blank; behind a blank line under a bare heading."""
    at = section.end
    while at > section.heading + 1 and _is_blank(page.lines[at - 1]):
        at -= 1
    if at == section.heading + 1 and at < section.end:
        return at + 1
    return at


def with_rows(text: str, fresh_rows: Sequence[Entry], ids: Iterable[str]) -> str:
    """Return the page with more rows under ``## Ready to Promote``, and the ids of what was suggested remembered."""
    page = _with_table(parse(text or fresh()), READY, READY_HEAD, before=(SESSION_LOG, COMPRESSION_LOG, OBSERVATIONS))
    section = page.named(READY)[-1]
    at = _table_end(page, section)
    made = [f"| {each.category} | {cell(each.item)} | {cell(each.detail)} |{page.eol}" for each in fresh_rows]
    return _remembering("".join([*page.lines[:at], *made, *page.lines[at:]]), ids)


def _remembering(text: str, ids: Iterable[str]) -> str:
    page = parse(text)
    known = [
        one for row in page.rows for each in row.comments if (m := _SUGGESTED.fullmatch(each)) for one in m[1].split()
    ]
    every = list(dict.fromkeys([*known, *ids]))[-_SUGGESTED_KEPT_MAX:]
    line = f"<!-- auto-reflect: suggested {' '.join(every)} -->{page.eol}"
    kept, is_put = [], False
    marked = {row.number - 1 for row in page.rows for each in row.comments if _SUGGESTED.fullmatch(each)}
    for at, each in enumerate(page.lines):
        if at not in marked:
            kept.append(each)
        elif not is_put:
            kept.append(line)
            is_put = True
    if is_put or not every:
        return "".join(kept)
    section = page.named(READY)[-1]
    at = _table_end(page, section)
    return "".join([*page.lines[:at], page.eol, line, *page.lines[at:]])


def _with_table(page: Page, title: str, head: Sequence[str], before: Sequence[str]) -> Page:
    """Return the page with this section, and a table in it."""
    eol = page.eol
    found = page.named(title)
    if not found:
        behind = [section.heading for name in before for section in page.named(name)]
        at = min(behind) if behind else len(page.lines)
        gap = [] if at == 0 or _is_blank(page.lines[at - 1]) else [eol]
        closed = [*page.lines[:at]]
        if closed and not closed[-1].endswith("\n"):
            closed[-1] += eol
        whole = [*closed, *gap, f"## {title}{eol}", eol, *(f"{each}{eol}" for each in head), eol, *page.lines[at:]]
        return parse("".join(whole))
    section = found[-1]
    if any(_RULE.fullmatch(row.text.strip()) and "|" in row.text for row in page.inside(section)):
        return page
    at = _content_end(page, section)
    lines = [*page.lines]
    if at > 0 and not lines[at - 1].endswith("\n"):
        lines[at - 1] += eol
    gap = [] if at == 0 or _is_blank(lines[at - 1]) else [eol]
    tail = [] if at < len(lines) and _is_blank(lines[at]) else [eol]
    return parse("".join([*lines[:at], *gap, *(f"{each}{eol}" for each in head), *tail, *lines[at:]]))


def _table_end(page: Page, section: Section) -> int:
    """Return the line behind a section's last table."""
    rules = [row.number for row in page.inside(section) if _RULE.fullmatch(row.text.strip()) and "|" in row.text]
    at = rules[-1]
    while at < section.end and page.lines[at].lstrip().startswith("|"):
        at += 1
    if page.lines[at - 1 : at] and not page.lines[at - 1].endswith("\n"):
        page.lines[at - 1] += page.eol
    return at


def without(text: str, entry: Entry) -> str:
    """Return the page without one row of ``## Ready to Promote``; as it is where the row is not there."""
    page = parse(text)
    wanted = entry._replace(number=0)
    listed = (each for section in page.named(READY) for each in entries(page.inside(section)))
    gone = next((each.number - 1 for each in listed if each._replace(number=0) == wanted), None)
    return text if gone is None else "".join([*page.lines[:gone], *page.lines[gone + 1 :]])


def with_promoted(text: str, day: str, entry: Entry, section: str, evidence: str) -> str:
    """Return the page with a row under ``## Auto-Promoted``, and without that of ``## Ready to Promote``."""
    less = without(text, entry)
    page = _with_table(parse(less), PROMOTED, PROMOTED_HEAD, before=(SESSION_LOG, COMPRESSION_LOG, OBSERVATIONS))
    at = _table_end(page, page.named(PROMOTED)[-1])
    cells = (day, entry.category, entry.item, section, evidence)
    made = f"| {' | '.join(cell(each) for each in cells)} |{page.eol}"
    return "".join([*page.lines[:at], made, *page.lines[at:]])


def promoted_items(text: str) -> list[str]:
    """Return the items of the rows under ``## Auto-Promoted``."""
    page = parse(text)
    listed = [
        row for section in page.named(PROMOTED) for row in page.inside(section) if row.text.strip().startswith("|")
    ]
    cells = [_cells(row.text) for row in listed if not _RULE.fullmatch(row.text.strip())]
    return [each[2] for each in cells if len(each) >= 3 and each[0].casefold() != "date"]


def compressed(text: str, day: str) -> tuple[str, list[str]]:
    """Return the page with its oldest observations moved out, and those lines; as it is at ``LINES_MAX`` or below.

    Only lines whose comment says that fleet wrote them: a person's own stay.
    """
    page = parse(text)
    if len(page.lines) <= LINES_MAX:
        return text, []
    ours = [
        row.number - 1
        for section in page.named(OBSERVATIONS)
        for row in page.inside(section)
        if whose(row.comments) is not None and observed([row])
    ]
    moved = ours[: max(len(page.lines) - LINES_LEFT, 0)]
    if not moved:
        return text, []
    gone = set(moved)
    taken = [page.lines[at].rstrip("\r\n") for at in moved]
    kept = parse("".join(each for at, each in enumerate(page.lines) if at not in gone))
    days = sorted(observed(rows("\n".join(taken))), key=lambda each: each.at)
    line = f"- {day} — {len(taken)} observations of {days[0].at[:10]} to {days[-1].at[:10]} moved to .agents/logs"
    found = kept.named(COMPRESSION_LOG)
    if found:
        at = _content_end(kept, found[-1])
        whole = [*kept.lines[:at], line + kept.eol, *kept.lines[at:]]
    else:
        behind = kept.named(OBSERVATIONS)[0].heading
        head = [f"## {COMPRESSION_LOG}{kept.eol}", kept.eol, line + kept.eol, kept.eol]
        whole = [*kept.lines[:behind], *head, *kept.lines[behind:]]
    return "".join(whole), taken


def as_list(found: Iterable[Entry]) -> list[dict[str, str]]:
    """Return rows as JSON shows them."""
    return [{"category": each.category, "item": each.item, "detail": each.detail} for each in found]
