"""``AGENTS.md``: the section that a rule belongs in, and a file's text with one rule more. Pure.

Every other line stays byte for byte. Where a rule cannot be put without guessing, or the file would become longer than
it may be, nothing is written, and the reason says so.
"""

import re
from typing import NamedTuple

from fleet.reflect.observations import BOUNDARY, GOTCHA, PATTERN
from fleet.reflect.scratchpad import Entry, Page, Section, cell, entries, parse

FILE = "AGENTS.md"
LINES_MAX = 120
"""Nothing is promoted into a file that would have more lines."""
DAILY_LOG_NAME = ".agents/logs/YYYY-MM-DD.md"

_TITLES = {PATTERN: "Patterns", BOUNDARY: "Boundaries", GOTCHA: "Gotchas"}
_CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7}|\|{7})(?: |$)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w./-])(?:\./)?\.agents\.local\.md(?![\w.-]*backup)(?![\w-])")
_STAYS = ("ready to promote", "auto-promoted", "auto-reflect", "gitignore", "git-ignore", "backup")


class Added(NamedTuple):
    """The text with a rule more and the section that has it; or why there is none, in ``trouble``."""

    text: str
    section: str
    trouble: str = ""


def with_rule(text: str, rule: Entry) -> Added:
    """Return the file with one rule more in the section of its category; one that it lacks is added at the end."""
    if _CONFLICT.search(text):
        return Added(text, "", f"{FILE} holds a merge conflict")
    if "\0" in text or any("\udc80" <= char <= "\udcff" for char in text):
        return Added(text, "", f"{FILE} is no UTF-8 text")
    page, title = parse(text, level_max=6), _TITLES[rule.category]
    found = [each for each in page.sections if _is_for(each.title, title)]
    whole, section = _into(page, found[0], rule) if found else _with_section(page, title, rule)
    lines = len(whole.splitlines())
    if lines > LINES_MAX:
        return Added(text, section, f"{FILE} would have {lines} lines, and {LINES_MAX} is the most that it may have")
    return Added(whole, section)


def rules(text: str) -> list[str]:
    """Return what the rules of the file say, to know them again."""
    return [f"{each.item} {each.detail}".strip() for each in entries(parse(text).rows)]


def _is_for(heading: str, title: str) -> bool:
    said = re.sub(r"[^a-z ]+", "", heading.casefold()).strip()
    return said in (title.casefold(), title.casefold().removesuffix("s"), f"known {title.casefold()}")


def _into(page: Page, section: Section, rule: Entry) -> tuple[str, str]:
    """Return the file with the rule behind the last one of its section, in the form that those have."""
    heading = f"{'#' * section.level} {section.title}"
    listed = [row for row in page.inside(section) if row.text.strip()]
    own = [each for each in listed if each.number - 1 < _end_of_own(page, section)]
    written = [each for each in entries(own) if each.number]
    eol = page.eol
    if not written:
        lines = [*page.lines]
        at = section.heading + 1
        if not lines[at - 1].endswith("\n"):
            lines[at - 1] += eol
        gap = [eol] if at >= len(lines) or lines[at].strip() else [lines.pop(at)]
        tail = [eol] if at < len(lines) and lines[at].strip() else []
        return "".join([*lines[:at], *gap, _bullet(rule, "-", " — ") + eol, *tail, *lines[at:]]), heading
    last = written[-1].number - 1
    like = page.lines[last].rstrip("\r\n")
    lines = [*page.lines]
    if not lines[last].endswith("\n"):
        lines[last] += eol
    return "".join([*lines[: last + 1], _like(like, rule) + eol, *lines[last + 1 :]]), heading


def _end_of_own(page: Page, section: Section) -> int:
    """Return the line where a section's own rows end: at its first heading below."""
    below = [each.heading for each in page.sections if section.heading < each.heading < section.end]
    return min([*below, section.end])


def _like(line: str, rule: Entry) -> str:
    """Return the rule in the form of another line: a row of a table, a pipe line, a bullet."""
    indent, body = line[: len(line) - len(line.lstrip())], line.strip()
    if body.startswith("|"):
        columns = len(body.strip("|").replace("\\|", "").split("|"))
        told = [rule.item, rule.detail] if columns < 3 else [rule.category, rule.item, rule.detail]
        told = [*told, *([""] * (columns - len(told)))]
        return f"{indent}| {' | '.join(cell(each) for each in told)} |"
    mark = body[0] if body[0] in "-*+" and body[1:2].isspace() else ""
    joint = " | " if "|" in body else " — "
    return f"{indent}{_bullet(rule, mark, joint)}"


def _bullet(rule: Entry, mark: str, joint: str) -> str:
    said = joint.join(filter(None, (rule.item, rule.detail)))
    return f"{mark} {said}" if mark else said


def _with_section(page: Page, title: str, rule: Entry) -> tuple[str, str]:
    """Return the file with a section more: behind the last one of its kind, else at the end."""
    eol = page.eol
    lines = [*page.lines] or [f"# {FILE}{eol}"]
    kin = [each for each in page.sections if any(_is_for(each.title, other) for other in _TITLES.values())]
    level, at = (kin[-1].level, _end_of_own(page, kin[-1])) if kin else (3, len(lines))
    if lines and not lines[at - 1].endswith("\n"):
        lines[at - 1] += eol
    gap = [eol] if lines[at - 1].strip() else []
    heading = f"{'#' * level} {title}"
    tail = [eol] if at < len(lines) else []
    made = [*gap, heading + eol, eol, _bullet(rule, "-", " — ") + eol, *tail]
    return "".join([*lines[:at], *made, *lines[at:]]), heading


def with_daily_logs(text: str) -> str:
    """Return the file with the daily log named wherever its memory section names the scratchpad.

    What is about the directive, about rows that wait, or about git stays: those are in the scratchpad still.
    """
    return "".join(
        line if any(each in line.casefold() for each in _STAYS) else _NAME.sub(DAILY_LOG_NAME, line)
        for line in text.splitlines(keepends=True)
    )
