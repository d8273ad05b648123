"""Pages of auto-reflect in every known form: the scratchpad, the daily logs, and ``AGENTS.md``. Pure.

A change returns a new text in which every other line is as it was. Lines that fleet did not write are never moved or
removed. Where the place of a rule in ``AGENTS.md`` would be a guess, or the file would become too long, nothing is
written, and the error has the reason.

A daily log, ``.agents/logs/YYYY-MM-DD.md``, is append-only, with a block for each session, which a comment under its
heading names (docs/adr/0024). A block without one is a session of its own, told apart by its day and heading.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fleet.model.errors import RefusedError
from fleet.reflect.observations import BOUNDARY, GOTCHA, PATTERN, Statement, Whose, category_of
from fleet.text import dates
from fleet.text.markdown import HEADING, Page, Part, Row, rows

FILE = ".agents.local.md"
LINES_MAX = 300
"""Lines above which the scratchpad's observations are compressed."""
LINES_LEFT = 200
SUGGEST, AUTO, OFF = "suggest", "auto", "off"
OBSERVATIONS = "Session Observations (auto)"
READY = "Ready to Promote"
PROMOTED = "Auto-Promoted"
SESSION_LOG = "Session Log"
COMPRESSION_LOG = "Compression Log"
DAILY = "<!-- fleet: observations and session entries go to .agents/logs -->"
"""The line of a scratchpad that was migrated."""
TEMPLATE = Path(__file__).with_name("data").joinpath("scratchpad.md").read_text("utf-8")

_DIRECTIVE = r"(?i)\s*auto-reflect\s*:\s*promote\s*=\s*[\"']?([^\"'\s]*)[\"']?\s*"
_DIRECTIVE_LINES = 10
_DAY = r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})"
_ENTRY = rf"(?i)(?:session[ \t:]+)?\[?{_DAY}\]?(?!\d)[ \t]*[—–:|-]*[ \t]*(?P<topic>.*)"
_LABEL = (
    r"(?i)[*_]{0,2}(?P<label>done|worked|did(?:n['’]?t| not) work|decided|learned)"
    r"(?:[ \t]{0,4}[*_]{0,2}[ \t]{0,4}:[*_]{0,2}(?P<rest>.*)|[*_]{0,2})"
)
_BULLET = r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)"
_RULE = r"\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?"
_READY_HEAD = ("| Category | Item | Detail |", "|----------|------|--------|")
_PROMOTED_HEAD = ("| Date | Category | Item | AGENTS.md section | Evidence |", "|---|---|---|---|---|")
_TEMPLATES = frozenset(
    {
        *(("pattern", "where-to-see-it"), ("pattern", "where to see it"), ("pattern", "where")),
        *((("rule", "reason"), ("trap", "fix"), ("a", "b"), ("category", "item"), ("item", "detail"), ("what", "why"))),
        *((("approach", "why it failed"), ("approach", "why"), ("attempt", "why it failed"), ("preference", "detail"))),
    }
)


class Entry(NamedTuple):
    """Row that may be promoted, with the number of its line."""

    category: str
    item: str
    detail: str = ""
    number: int = 0

    @property
    def rule(self) -> str:
        """Text of the rule, without the evidence."""
        return f"{self.item} {re.sub(_EVIDENCE, '', self.detail)}".strip()

    @property
    def on_page(self) -> "Entry":
        """The row as it reads once it was written into the scratchpad's table."""
        return _entry(_as_row(self.category, self.item, self.detail), "") or self

    @classmethod
    def listed(cls, page: Page, *titles: str) -> "list[Entry]":
        """Return the rows of tables, pipe lines and bullets of the sections of these titles, or of the whole page."""
        entries: list[Entry] = []
        category, is_categorised = "", False
        parts = (page.inside(section) for title in titles for section in page.named(title))
        candidates = [row for part in parts for row in part] if titles else page.rows
        for index, row in enumerate(candidates):
            text = row.text.strip()
            if heading := re.fullmatch(HEADING, text) if not row.is_code else None:
                category = _NAMED.get(re.sub(r"[^a-z]+", "", heading[2].casefold()).rstrip("s"), "")
                is_categorised = False
                continue
            after = candidates[index + 1].text.strip() if index + 1 < len(candidates) else ""
            if is_header := bool("|" in text and "-" in after and re.fullmatch(_RULE, after)):
                is_categorised = _plain(Page.cells(text)[0]) == "category"
            # An observation is no entry: it is here if a person deleted the heading above it.
            is_observation = Whose.named_on(row) is not None and Statement.observed([row])
            if not text or is_header or is_observation or re.fullmatch(rf"```.*|~~~.*|{_RULE}", text):
                continue
            if (entry := _entry(text, category, has_own=is_categorised and text[0] == "|")) is not None:
                entries.append(entry._replace(number=row.number))
        return entries


# --- reading --------------------------------------------------------------------------------------------------------


class Scratchpad:
    """Scratchpad, given as its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def directive(self) -> tuple[str, str]:
        """Return the mode of promotion, and a remark on an unknown mode, which counts as "suggest"; "" for none."""
        first = rows("\n".join(self._text.splitlines()[:_DIRECTIVE_LINES]))
        directives = (re.fullmatch(_DIRECTIVE, comment) for row in first for comment in row.comments)
        mode = next((match[1].lower() for match in directives if match), SUGGEST)
        if mode in (SUGGEST, AUTO, OFF):
            return mode, ""
        return SUGGEST, f"`promote={mode[:20]}` in {FILE} is none of {SUGGEST}, {AUTO}, {OFF}: it counts as {SUGGEST}"

    def is_daily(self) -> bool:
        """Return whether the page was migrated: observations go to the daily logs alone."""
        return DAILY in self._text

    def statements(self) -> list[Statement]:
        """Return the observations, and the entries of the session log."""
        page = Page.parse(self._text)
        observed = Statement.observed(row for section in page.named(OBSERVATIONS) for row in page.inside(section))
        logged = (block for section in page.named(SESSION_LOG) for block in _logged(page.inside(section)))
        return [*observed, *(each for block in logged for each in block.statements)]

    def ready(self) -> list[Entry]:
        """Return the rows under ``## Ready to Promote``, in any known form."""
        return Entry.listed(Page.parse(self._text), READY)

    def appended_observation(self, line: str) -> str:
        """Return the text to append for an observation; for the first one, the page itself."""
        if not self._text:
            return f"{TEMPLATE}{line}\n"
        page = Page.parse(self._text)
        addition = "" if page.lines[-1].endswith("\n") else page.eol
        if not any(each.end == len(page.lines) for each in page.named(OBSERVATIONS)):
            gap = page.eol if page.lines[-1].strip() else ""
            addition += f"{gap}## {OBSERVATIONS}{page.eol}{page.eol}"
        return f"{addition}{line}{page.eol}"

    def with_rows(self, fresh_rows: Iterable[Entry]) -> str:
        """Return the page with more rows under ``## Ready to Promote``."""
        lines = [_as_row(each.category, each.item, each.detail) for each in fresh_rows]
        return _with_rows(self._text or TEMPLATE, READY, _READY_HEAD, lines)

    def without(self, entry: Entry) -> str:
        """Return the page without one row of ``## Ready to Promote``; the page as it is without such a row."""
        page = Page.parse(self._text)
        same = (each.number - 1 for each in Entry.listed(page, READY) if each[:-1] == entry[:-1])
        return page.without([*islice(same, 1)])

    def with_promoted(self, day: str, entry: Entry, section: str, evidence: str) -> str:
        """Return the page with the row moved from ``## Ready to Promote`` to ``## Auto-Promoted``."""
        row = _as_row(day, entry.category, entry.item, section, evidence)
        return _with_rows(self.without(entry), PROMOTED, _PROMOTED_HEAD, [row])

    def promoted_items(self) -> list[str]:
        """Return the items of the rows under ``## Auto-Promoted``."""
        page = Page.parse(self._text)
        lines = [row.text.strip() for section in page.named(PROMOTED) for row in page.inside(section)]
        table = [Page.cells(line) for line in lines if line.startswith("|") and not re.fullmatch(_RULE, line)]
        return [cells[2] for cells in table if len(cells) >= 3 and cells[0].casefold() != "date"]

    def compressed(self, day: str, kept: Collection[str] = ()) -> tuple[str, list[str]]:
        """Return the page without its oldest observations, and their lines; unchanged with ``LINES_MAX`` or fewer.

        Only lines with fleet's comment are removed. The lines of ``kept`` stay, and do not count.
        """
        page = Page.parse(self._text)
        kept_rows = {at for at, line in enumerate(page.lines) if line.rstrip("\r\n") in kept}
        if (count := len(page.lines) - len(kept_rows)) <= LINES_MAX:
            return self._text, []
        ours = [
            row.number - 1
            for section in page.named(OBSERVATIONS)
            for row in page.inside(section)
            if row.number - 1 not in kept_rows and Whose.named_on(row) is not None and Statement.observed([row])
        ]
        moved = ours[: count - LINES_LEFT]
        if not moved:
            return self._text, []
        taken = [page.lines[at].rstrip("\r\n") for at in moved]
        days = sorted(each.at[:10] for each in Statement.observed(rows("\n".join(taken))))
        summary = f"- {day} — {len(taken)} observations of {days[0]} to {days[-1]} moved to .agents/logs"
        left = Page.parse(page.without(set(moved))).with_section(COMPRESSION_LOG, before=(OBSERVATIONS,))
        return left.inserted(left.named(COMPRESSION_LOG)[-1], [summary]), taken


def session_entry(row: Row) -> tuple[str, str] | None:
    """Return the day and the topic of the heading that begins an entry of a session log; None for another row."""
    heading = re.fullmatch(HEADING, row.text.rstrip()) if not row.is_code else None
    entry = re.fullmatch(_ENTRY, heading[2].strip()) if heading else None
    if entry is None:
        return None
    return f"{entry['year']}-{int(entry['month']):02}-{int(entry['day']):02}", entry["topic"].strip()


def _logged(page_rows: Iterable[Row]) -> "Iterator[Block]":
    entries: list[tuple[tuple[str, str], list[Row]]] = []
    for row in page_rows:
        if entry := session_entry(row):
            entries.append((entry, [row]))
        elif entries:
            entries[-1][1].append(row)
    for (at, topic), inside in entries:
        yield Block.of(inside, at, f"@log {at} {topic}")


def _labelled(line: str) -> tuple[str, str]:
    """Return the kind that labels a line of a session's entry, "" for none, and the rest of the line."""
    match = re.fullmatch(_BULLET, line.rstrip())
    text = (match["text"] if match else line).strip()
    if (label := re.fullmatch(_LABEL, text)) is None:
        return "", text
    kind = label["label"].casefold()
    return kind if kind in _LOG_TITLES else "failed", (label["rest"] or "").strip()


def _entry(text: str, category: str, *, has_own: bool = False) -> Entry | None:
    """Return a row's entry; None for prose and a template.

    ``has_own``: the first of three or more cells is the category, even if it is an unknown one.
    """
    match = re.fullmatch(_BULLET, text)
    body = (match["text"] if match else text).strip()
    if not match and "|" not in body:
        return None  # prose
    if body.startswith("[") and body.endswith("]") and "](" not in body and body.count("[") == body.count("]"):
        body = body[1:-1] if body.count("[") == 1 else body
    cells = [re.sub(r"^\[([^][]*)\]$", r"\1", each).strip() for each in Page.cells(body)]
    if not any(cells) or tuple(each.casefold() for each in cells[:2]) in _TEMPLATES:
        return None
    own = _NAMED.get(_plain(cells[0]).rstrip("s"), "") if len(cells) >= 2 else ""
    rest = cells[1:] if own or (has_own and len(cells) >= 3) else cells
    if len(rest) == 1 and " — " in rest[0]:
        rest = rest[0].split(" — ", 1)
    return Entry(own or category or category_of(" ".join(rest)), rest[0], " | ".join(filter(None, rest[1:])))


def _plain(cell: str) -> str:
    return cell.strip("*`_ ").casefold()


_NAMED = {"gotcha": GOTCHA, "pattern": PATTERN, "boundary": BOUNDARY, "boundarie": BOUNDARY}


# --- changing -------------------------------------------------------------------------------------------------------


def _as_row(*cells: str) -> str:
    lines = (" ".join(each.split()).replace("|", "\\|") for each in cells)
    # A single backtick would pair with one of a later cell, and hide the bars between them.
    clean = (each.replace("`", "'") if each.count("`") % 2 else each for each in lines)
    return f"| {' | '.join(clean)} |"


def _with_rows(text: str, title: str, head: Sequence[str], lines: Sequence[str]) -> str:
    """Return the page with more rows in the table under a title, or in a new one there."""
    page = Page.parse(text).with_section(title, before=(SESSION_LOG, COMPRESSION_LOG, OBSERVATIONS))
    section = page.named(title)[-1]
    last = page.content_end(section) - 1
    is_table = page.lines[last].lstrip().startswith("|")
    gap = [""] if last > section.heading and not is_table else []
    return page.inserted(section, lines if is_table else [*gap, *head, *lines])


AGENTS_FILE = "AGENTS.md"
AGENTS_LINES_MAX = 120
"""Nothing is promoted into a file that would have more lines."""
DAILY_LOG_NAME = ".agents/logs/YYYY-MM-DD.md"

_TITLES = {PATTERN: "Patterns", BOUNDARY: "Boundaries", GOTCHA: "Gotchas"}
_FLAG = "reads as a directive: a person decides; "
_EVIDENCE = rf"\(?(?:{_FLAG})?\d+ sessions, [-\d]{{10}}(?: to [-\d]{{10}})?\)?$"
"""End of a detail (``app/consolidating``): how often the row came up, and when. The flag is for a person's decision."""
_CONFLICT = r"(?m)^(?:<{7}|>{7}|={7}|\|{7})(?: |$)"
_NAME = r"(?<![\w./-])(?:\./)?\.agents\.local\.md(?![\w.-]*backup)(?![\w-])"
_STAYS = ("ready to promote", "auto-promoted", "auto-reflect", "gitignore", "git-ignore", "backup")


class AgentsFile:
    """``AGENTS.md``, given as its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def with_rule(self, rule: Entry) -> tuple[str, str]:
        """Return the file with one more rule in the section of its category, and the heading of that.

        A missing section is added behind the last one of its kind, else at the end.

        Raises:
            RefusedError: the file holds a conflict, is no text, or would become too long.
        """
        text = self._text
        if re.search(_CONFLICT, text):
            raise _refused("holds a merge conflict", rule)
        if "\0" in text or any("\udc80" <= char <= "\udcff" for char in text):
            raise _refused("is no UTF-8 text", rule)
        page, title = Page.parse(text or f"# {AGENTS_FILE}\n", level_max=6), _TITLES[rule.category]
        line = f"- {' — '.join(filter(None, (rule.item, rule.detail.replace(_FLAG, ''))))}"
        section = next((each for each in page.sections if _is_for(each.title, title)), None)
        if section is None:
            kin = [each for each in page.sections if any(_is_for(each.title, other) for other in _TITLES.values())]
            last = kin[-1] if kin else Part("", 3, -1, len(page.lines))
            heading = f"{'#' * last.level} {title}"
            after = page.inserted(last, ["", heading, "", line], _end_of_own(page, last) if kin else 0)
        else:
            heading, end = f"{'#' * section.level} {section.title}", _end_of_own(page, section)
            last_line = page.lines[page.content_end(section._replace(end=end)) - 1].lstrip()
            gap = [] if last_line[:1] in ("-", "*", "+", "#") else [""]  # else it would continue the paragraph there
            after = page.inserted(section, [*gap, line], end)
        if (lines := len(after.splitlines())) > AGENTS_LINES_MAX:
            raise _refused(f"would have {lines} lines, and {AGENTS_LINES_MAX} is the most that it may have", rule)
        return after, heading

    def rules(self) -> list[str]:
        """Return the texts of the rules, without how often each came up."""
        return [each.rule for each in Entry.listed(Page.parse(self._text))]

    def with_daily_logs(self) -> str:
        """Return the file with the daily log named instead of the scratchpad.

        Lines about the directive, rows that wait, or git are unchanged, since all of that is still in the scratchpad.
        """
        return "".join(
            line if any(each in line.casefold() for each in _STAYS) else re.sub(_NAME, DAILY_LOG_NAME, line)
            for line in self._text.splitlines(keepends=True)
        )


def _refused(why: str, rule: Entry) -> RefusedError:
    return RefusedError(f"{AGENTS_FILE} {why}: {rule.item!r} waits under {READY}")


def _is_for(heading: str, title: str) -> bool:
    words = re.sub(r"[^a-z ]+", "", heading.casefold()).strip()
    return words in (title.casefold(), title.casefold().removesuffix("s"), f"known {title.casefold()}")


def _end_of_own(page: Page, section: Part) -> int:
    """Return the line where a section's own rows end, at its first subheading."""
    below = [each.heading for each in page.sections if section.heading < each.heading < section.end]
    return min([*below, section.end])


# --- daily logs -----------------------------------------------------------------------------------------------------

LOGS = ".agents/logs"
LOG_DAYS = 7
LOG_BYTES_MAX = 1024 * 1024
"""Bytes of one day's log that are read."""

_LOG_TITLES = {
    "done": "What Changed",
    "worked": "What Worked",
    "failed": "What Didn't",
    "learned": "Patterns Learned",
    "decided": "Decisions Made",
    "observed": "Observations (auto)",
}
"""Heading of each kind of statement of a block, in their order."""
_GATHERED = "## Session 00:00 UTC"
"""Heading of a block of lines that were moved here: of no session, at an unknown time."""
_RUN = r"\s*run: (\S+)\s*"
_LOG_FILE = r"(\d{4}-\d{2}-\d{2})\.md"
_LOG_SESSION = r"(?i)##[ \t]+(?=session\b|\d{1,2}:\d{2})\D{0,16}(?P<time>\d{1,2}:\d{2})?.*"
_NOTHING = frozenset({"", "none", "nothing", "n/a", "na", "-", "—", "(none)", "none."})


class Block(NamedTuple):
    """One session's block of a daily log. ``is_whole``: it has more than observations.

    ``at``: its time to the minute, or its day; ``stamp``: to the second; ``run``: the reflection behind it, or "".
    """

    session: str
    at: str
    statements: tuple[Statement, ...]
    stamp: str = ""
    is_whole: bool = False
    run: str = ""

    @classmethod
    def of(cls, entry: Sequence[Row], at: str, unnamed: str) -> "Block":
        """Return the block of a heading and the rows below it; ``unnamed``: the session's key if none is named."""
        marks = [row for row in entry if row is entry[0] or not row.text.strip()]
        by = next((each for row in marks if (each := Whose.named_on(row)) is not None), None)
        named = (re.fullmatch(_RUN, each) for row in marks for each in row.comments)
        run = next((match[1] for match in named if match), "")
        session = by.key if by and by.mark else unnamed
        stated, observed, kind = list[Statement](), list[Row](), ""
        for row in entry[1:]:
            if row.is_code or row.text.strip() in ("", "---", "***"):
                continue
            if heading := re.fullmatch(HEADING, row.text.rstrip()):
                kind = _kind_titled(heading[2]) or kind
            elif kind == "observed":
                observed.append(row)
            else:
                own, words = _labelled(row.text)
                kind = own or kind
                if words.casefold() not in _NOTHING:
                    stated.append(Statement.stated(words, at, session, kind))
        statements = (*stated, *Statement.observed(observed, session))
        return cls(session, at, statements, by.at if by else "", bool(stated), run)

    @property
    def ends_ms(self) -> int:
        """Latest possible time of writing, milliseconds since 1970; 0 for unknown."""
        latest = f"{self.at[:-1]}:59Z" if ":" in self.at else f"{self.at}T23:59:59Z"
        return dates.to_ms(self.stamp or latest) or 0


class DailyLog:
    """One day's log, given as its text."""

    def __init__(self, day: str, text: str = "") -> None:
        self.path = f"{LOGS}/{day}.md"
        self._day, self._text = day, text

    @staticmethod
    def day_of(path: str) -> str:
        """Return the day in the name of a log's file; "" for another file."""
        match = re.fullmatch(_LOG_FILE, path.rpartition("/")[2])
        return match[1] if match and dates.to_ms(match[1]) is not None else ""

    def appended_block(self, whose: Whose, by_kind: Mapping[str, Iterable[str]], run: str = "") -> str:
        """Return the text to append for a session's block.

        ``whose``: with the time, in UTC, to the second.
        ``by_kind``: texts of done, worked, failed, learned, decided; of observed, whole lines.
        ``run``: id of the reflection that they are from; "" for none.
        """
        mark = f"{whose.comment()} <!-- run: {run} -->" if run else whose.comment()
        lines = [f"## Session {whose.at[11:16]} UTC", "", mark, ""]
        for kind, title in _LOG_TITLES.items():
            if rows := [each if kind == "observed" else f"- {each}" for each in by_kind.get(kind, ())]:
                lines += [f"### {title}", "", *rows, ""]
        return self._title_or_gap() + "\n".join(lines)

    def appended_observation(self, whose: Whose, line: str) -> str:
        """Return the text to append for an observation: the line alone where its session's observations are last."""
        last = self._text[self._text.rfind("\n## ") + 1 :]
        is_of_session = last.startswith("## ") and f"<!-- {whose.key} " in last
        if is_of_session and last.rfind("\n### ") == last.rfind(f"\n### {_LOG_TITLES['observed']}\n") > 0:
            return f"{line}\n" if last.endswith("\n") else f"\n{line}\n"
        return self.appended_block(whose, {"observed": (line,)})

    def appended_lines(self, lines: Iterable[str], *, is_observed: bool) -> str:
        """Return the text to append for lines that are moved here unchanged."""
        title = [f"### {_LOG_TITLES['observed']}", ""] if is_observed else []
        return self._title_or_gap() + "\n".join([_GATHERED, "", *title, *lines, ""]) + "\n"

    def _title_or_gap(self) -> str:
        if not self._text.strip():
            return f"# Daily Log — {self._day}\n\n"
        return "" if self._text.endswith("\n\n") else "\n" if self._text.endswith("\n") else "\n\n"

    def blocks(self) -> list[Block]:
        """Return the sessions' blocks."""
        page = Page.parse(self._text[:LOG_BYTES_MAX])
        blocks: list[Block] = []
        by_place = {row.number - 1: row for row in page.rows}
        for section in page.sections:
            heading = by_place[section.heading]
            if (match := re.fullmatch(_LOG_SESSION, heading.text.strip())) is None:
                continue
            unnamed = f"@block {self._day} {heading.text.strip().lstrip('# ')}"
            is_timed = match["time"] and dates.to_ms(f"{self._day}T{match['time']}Z") is not None
            at = f"{self._day}T{match['time']:0>5}Z" if is_timed else self._day
            blocks.append(Block.of([heading, *page.inside(section)], at, unnamed))
        return blocks


def _kind_titled(title: str) -> str:
    wanted = _letters(title)
    titled = (kind for kind, name in _LOG_TITLES.items() if wanted.startswith(_letters(name)))
    return next(titled, "") or _labelled(title)[0]


def _letters(title: str) -> str:
    return re.sub(r"[^a-z]+", "", title.casefold()).removesuffix("auto")
