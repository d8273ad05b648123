"""``patterns.md``: what the clan has learned, for a person on a git host. Rendered whole, and never read back.

Every word of a record is escaped, so that a record can say anything and structure nothing. Columns are counted as
characters: a Chinese one fills two of a terminal's, but no Markdown reader minds.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from fleet.keep import limits, names, notebook
from fleet.keep.line import Line
from fleet.keep.screening import markdown_escape
from fleet.recall import lessons
from fleet.recall.lessons import counted, screened

GENERAL = "General"
INDENT = "  "
BREAK = "\\"
"""At the end of a line: the next one is a line of its own. Two blanks would do too, but editors take them away."""

NAMES_MAX = 8

HEADER = "# What this clan has learned\n"
ORIGIN = """\
Rendered by `fleet` from `patterns.jsonl` and never read back: an edit made here is lost with the next rendering.
"""
EMPTY = f"""{HEADER}
Nothing yet. The first correction that an agent logs appears here:

    {lessons.LOG_A_CORRECTION}

{ORIGIN}"""

WORD_COLUMNS_MAX = limits.PAGE_COLUMNS_MAX - len(INDENT + "****" + BREAK)
_OPENERS = frozenset("-+*=#>|~:_<[!$")
_NUMBER = re.compile(r"\d{1,9}[.)]", re.ASCII)
_CODE = re.compile(r"\\.|``+|`([^`]+(?:``+[^`]+)*)`(?!`)")
"""An escape, a longer run, or a code span: its content is the group. Runs of another length do not end a span."""
_BLANK = "\0"


def render_page(
    patterns: Iterable[Line],
    *,
    members: Mapping[str, str] = {},
    lessons_max: int = limits.PAGE_LESSONS_MAX,
    total: int | None = None,
) -> str:
    """Return ``patterns.md``: the best lessons, grouped by category. The same patterns give the same bytes.

    Args:
        patterns: the clan's records; those that are retired or have no text are passed over.
        members: agent to emoji.
        lessons_max: so many are shown, published ones first, then the most seen; the page says how many are not.
        total: how many there are, when ``patterns`` are only those that may be among the best.
    """
    shown, counted_total = lessons.best(patterns, lessons_max, lessons.by_sight)
    total = counted_total if total is None else total
    if not total:
        return EMPTY
    return "\n".join([HEADER, _summary(shown, total), ORIGIN, *_groups(shown, members)])


def _summary(shown: list[Line], total: int) -> str:
    text = f"**{counted(total, 'lesson', 'lessons')}**"
    if published := sum(map(lessons.is_published, shown)):
        text += f", {published:,} of them published. Published lessons come first, then those seen most often."
    else:
        text += ". Those seen most often come first."
    if left_out := total - len(shown):
        text += f"\nThe best {len(shown):,} are shown. {left_out:,} more: `fleet patterns`"
    return text + "\n"


def _groups(shown: list[Line], members: Mapping[str, str]) -> Iterator[str]:
    """Yield headings and list items. What comes best first, grouped in that order, has its best group first as well."""
    groups: dict[str, tuple[str, list[Line]]] = {}
    for line in shown:
        category = screened(line.set.get("category")) or GENERAL
        key = unicodedata.normalize("NFC", category.casefold())
        groups.setdefault(key, (category, []))[1].append(line)
    for category, grouped in groups.values():
        yield _heading(category, len(grouped))
        for line in grouped:
            yield _item(line, members)


def _heading(category: str, count: int) -> str:
    """Return a heading, which cannot be wrapped: a name that is too long for its line ends in an ellipsis."""
    room = limits.PAGE_COLUMNS_MAX - len(f"##  ({count})")
    kept = category if len(category) <= room else category[:room] + "…"
    while len(escaped := markdown_escape(kept)) > room:
        kept = kept[:-2].rstrip() + "…"
    return f"## {escaped} ({count})\n"


def _item(line: Line, members: Mapping[str, str]) -> str:
    """Return one lesson as one list item of up to three paragraph lines: the lesson, the right way, the evidence."""
    text = _words(notebook.text(line)) or lessons.UNREADABLE.split()
    parts = [["**" + text[0], *text[1:]]]
    parts[0][-1] += "**"
    if correct := _words(line.set.get("correct")):
        parts.append(["Right:", *correct])
    parts.append(_evidence(line, members))
    for part in parts[:-1]:
        part[-1] += BREAK
    rows = [row for number, part in enumerate(parts) for row in _wrapped(part, INDENT if number else "- ")]
    return "\n".join(rows) + "\n"


def _words(value: object) -> list[str]:
    """Return a field's words, escaped: what a line may break between.

    A code span is one word. A break inside might make a word of it begin a line as a list or a heading, and within code
    no escape helps. A span that leaves no room for that is code no more.
    """
    words: list[str] = []
    escaped = markdown_escape(screened(value))
    if "`" not in escaped:
        return escaped.split()
    for word in _CODE.sub(_whole, escaped).split():
        if _BLANK in word and len(word) > WORD_COLUMNS_MAX:
            words += _CODE.sub(_plain, word).split()
        else:
            words.append(word.replace(_BLANK, " "))
    return words


def _whole(found: re.Match[str]) -> str:
    return found[0].replace(" ", _BLANK) if found[1] else found[0]


def _plain(found: re.Match[str]) -> str:
    """Return a code span as plain text between two backticks that are only that."""
    return f"\\`{markdown_escape(found[1].replace(_BLANK, ' '))}\\`" if found[1] else found[0]


def _evidence(line: Line, members: Mapping[str, str]) -> list[str]:
    """Return how often, by whom and since when. A blank inside one of the words is not a place to wrap."""
    times = notebook.count(line, "seen")
    words = ["seen", *(("once",) if times == 1 else (f"{times:,}", "times"))] if times else ["logged"]
    if by := _logged_by(line, members):
        words += ["by", *by]
    if lessons.is_published(line):
        words = ["published", "· " + words[0], *words[1:]]
    if since := lessons.day(line.at):
        words.append(f"· since {since}")
    return [*words, f"· `{line.id}`"]


def _logged_by(line: Line, members: Mapping[str, str]) -> list[str]:
    logged_by = notebook.agents(line)
    agents = [agent for agent in logged_by if agent != names.IMPORT]
    marks = ((agent, members.get(agent)) for agent in agents[:NAMES_MAX])
    shown = [_named(agent, mark if isinstance(mark, str) else "") for agent, mark in marks]
    if len(agents) > NAMES_MAX:
        shown.append(f"{len(agents) - NAMES_MAX:,} more")
    if len(agents) < len(logged_by):
        shown.append("an import")
    return [name + "," for name in shown[:-1]] + shown[-1:]


@lru_cache(maxsize=256)  # a clan has few agents, and most lessons were logged by some of them
def _named(agent: str, mark: str) -> str:
    return markdown_escape(lessons.named(agent, {agent: mark}))


def _wrapped(words: list[str], first: str) -> list[str]:
    """Fill lines of at most ``PAGE_COLUMNS_MAX`` characters; a longer word has a line to itself."""
    whole = first + " ".join(words)
    if len(whole) <= limits.PAGE_COLUMNS_MAX:
        return [whole]
    rows, row = [], first + words[0]
    room = limits.PAGE_COLUMNS_MAX - len(row)
    for word in words[1:]:
        room -= 1 + len(word)
        if room >= 0:
            row += " " + word
        else:
            rows.append(row)
            row = INDENT + _inert(word)
            room = limits.PAGE_COLUMNS_MAX - len(row)
    return [*rows, row]


def _inert(word: str) -> str:
    """Return a word that may begin a line: what would be a list, heading, quote, rule, table or fence is escaped.

    In the middle of a line none of them means anything, so the escape only stands where a line happens to break.
    """
    if word[0] in _OPENERS:
        return "\\" + word
    return f"{word[:-1]}\\{word[-1]}" if _NUMBER.fullmatch(word) else word
