"""Migration of a monolithic ``.agents.local.md`` to daily logs, topics and an index: a plan, as texts of files. Pure.

Every line of the old file is in one of the new ones, as it stood: entries of the session log and observations in the
daily log of their day, the other sections in a topic file each. What auto-reflect needs stays in a short scratchpad.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fleet.reflect import scratchpad, topics
from fleet.reflect.daily_log import CHANGED, DECIDED, FAILED, LEARNED, OBSERVED, WORKED, head, path_of
from fleet.reflect.observations import Row, fitting, observed, rows
from fleet.reflect.scratchpad import Entry, Page, Section
from fleet.reflect.topics import Topic

BACKUP = ".agents.local.md.backup"

_ENTRY = re.compile(r"#{1,6}[ \t]+(?:session[ \t:]+)?\[?(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\]?(?!\d).*", re.IGNORECASE)
_LABELS = {"done": CHANGED, "worked": WORKED, "didn": FAILED, "did": FAILED, "decided": DECIDED, "learned": LEARNED}
_LABEL = re.compile(r"[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?(done|worked|didn|did|decided|learned)\b", re.IGNORECASE)
_STAYS = (scratchpad.READY, scratchpad.PROMOTED)
_TYPES = {
    "preference": "preference",
    "pattern": "pattern",
    "gotcha": "gotcha",
    "dead end": "gotcha",
    "boundarie": "gotcha",
}


class Plan(NamedTuple):
    """What a migration would do.

    Attributes:
        files: path to the text that it is to have.
        told: what goes where, a line each.
    """

    files: dict[str, str]
    told: tuple[str, ...] = ()


def planned(text: str, now: Mapping[str, str], index: str) -> Plan:
    """Return what becomes of a scratchpad; an empty plan where it was migrated already, and holds nothing more to move.

    Args:
        text: of ``.agents.local.md``.
        now: path to text of the daily logs and topic files that are there.
        index: text of ``.agents/local.md``, "" for none.
    """
    page = scratchpad.parse(text)
    stays: list[str] = []
    logs: dict[str, list[str]] = {}
    moved: dict[str, list[str]] = {}
    first = page.sections[0].heading if page.sections else len(page.lines)
    stays += page.lines[:first]
    headings: list[str] = []
    for section in page.sections:
        lines = page.lines[section.heading : section.end]
        if any(section in page.named(title) for title in _STAYS):
            stays += lines
            continue
        is_log, is_observed = (section in page.named(t) for t in (scratchpad.SESSION_LOG, scratchpad.OBSERVATIONS))
        if section.level < 2 and not is_log and not is_observed and _key(section.title) not in _TYPES:
            stays += lines
            continue
        headings.append(lines[0].strip())
        rest = lines[1:]
        if is_log:
            rest = _into_logs(page, section, logs)
        elif is_observed:
            rest = _observed_into_logs(page, section, logs)
        if any(line.strip() for line in rest):
            moved.setdefault(section.title or "Notes", []).extend(rest)
    if not logs and not moved and scratchpad.is_daily(text):
        return Plan({})
    return _plan(page, stays, logs, moved, headings, now, index)


def _key(title: str) -> str:
    return re.sub(r"[^a-z ]+", "", title.casefold()).strip().removesuffix("s")


def _into_logs(page: Page, section: Section, logs: dict[str, list[str]]) -> list[str]:
    """Put the entries of a session log into the logs of their days; return the lines that belong to no entry."""
    rest: list[str] = []
    code = {row.number - 1 for row in page.rows if row.is_code}
    day, entry = "", list[str]()
    for at in range(section.heading + 1, section.end):
        line = page.lines[at].rstrip("\r\n")
        match = _ENTRY.fullmatch(line.strip()) if at not in code else None
        if match:
            _close(logs, day, entry)
            day, entry = f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}", [line]
        elif day:
            entry.append(line)
        elif line.strip():
            rest.append(line + "\n")
    _close(logs, day, entry)
    return rest


def _close(logs: dict[str, list[str]], day: str, entry: list[str]) -> None:
    """Put one entry of a session log into a day's, with the sections of a daily log above what they are about."""
    if not day:
        return
    made = ["## Session 00:00 UTC", "", entry[0], ""]
    under = ""
    for line in entry[1:]:
        match = _LABEL.match(line)
        title = _LABELS[match[1].casefold()] if match else ""
        if title and title != under:
            if made[-1]:
                made.append("")
            made += [f"### {title}", ""]
            under = title
        if line.strip() or made[-1]:
            made.append(line)
    logs.setdefault(day, []).extend(_trimmed(made))


def _observed_into_logs(page: Page, section: Section, logs: dict[str, list[str]]) -> list[str]:
    """Put observations into the logs of their days; return the lines that are none."""
    rest: list[str] = []
    days: dict[str, list[str]] = {}
    known = {row.number - 1: row for row in page.inside(section)}
    for at in range(section.heading + 1, section.end):
        line = page.lines[at].rstrip("\r\n")
        found = observed([known[at]]) if at in known else []
        if found:
            days.setdefault(found[0].at[:10], []).append(line)
        elif line.strip():
            rest.append(line + "\n")
    for day, lines in days.items():
        logs.setdefault(day, []).extend(["## Session 00:00 UTC", "", f"### {OBSERVED}", "", *lines, ""])
    return rest


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines.pop()
    return [*lines, ""]


def _plan(
    page: Page,
    stays: list[str],
    logs: Mapping[str, list[str]],
    moved: Mapping[str, list[str]],
    headings: list[str],
    now: Mapping[str, str],
    index: str,
) -> Plan:
    files: dict[str, str] = {}
    told = []
    for day in sorted(logs):
        path = path_of(day)
        before = now.get(path, "")
        gap = "" if not before or before.endswith("\n\n") else "\n" if before.endswith("\n") else "\n\n"
        files[path] = f"{before or head(day)}{gap}" + "\n".join(logs[day]) + "\n"
        told.append(f"{path}: {sum(bool(line.strip()) for line in logs[day])} lines")
    made: list[tuple[Topic, list[Entry]]] = []
    for title, lines in moved.items():
        path = _path(title, {*now, *files})
        days = sorted(logs)
        files[path] = _topic(title, lines, days[0] if days else "", days[-1] if days else "")
        told.append(f"{path}: {sum(bool(line.strip()) for line in lines)} lines of {title!r}")
        made.append((topics.read(path, files[path].encode()), scratchpad.entries(_shown(lines))))
    files[topics.INDEX] = _indexed(index, made, headings, sorted(logs))
    files[scratchpad.FILE] = _short(page, stays)
    told.append(f"{topics.INDEX}: {len(files[topics.INDEX].splitlines())} lines")
    told.append(f"{scratchpad.FILE}: {len(files[scratchpad.FILE].splitlines())} lines stay")
    return Plan(files, tuple(told))


def _shown(lines: Iterable[str]) -> list[Row]:
    return rows("".join(lines))


def _path(title: str, taken: Iterable[str]) -> str:
    known, name, number = set(taken), topics.slug(title), 2
    path = f"{topics.FOLDER}/{name}.md"
    while path in known:
        path, number = f"{topics.FOLDER}/{name}-{number}.md", number + 1
    return path


def _topic(title: str, lines: list[str], created: str, updated: str) -> str:
    """Return a topic file with these lines as they stood."""
    kind = _TYPES.get(_key(title), "preference" if _key(title).startswith("prefer") else "pattern")
    dated = [f"created: {created}", f"updated: {updated}"] if created else []
    body = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).replace("\r\n", "\n")
    head_lines = ["---", f"type: {kind}", *dated, "---", "", f"# {title}", "", "## What", ""]
    return "\n".join([*head_lines, body.strip("\n"), "", "## History", "", "- Added: from `.agents.local.md`", ""])


def _indexed(index: str, made: Iterable[tuple[Topic, list[Entry]]], headings: Iterable[str], days: list[str]) -> str:
    """Return the index with each heading of the old file, and below it a pointer for each entry it had."""
    text = index or "# Project Memory\n\nPointers to topic files, one line each. Content is in `topics/`.\n"
    by_title = {topic.title: (topic, found) for topic, found in made}
    for heading in dict.fromkeys(headings):
        title = heading.lstrip("#").strip().rstrip("#").strip()
        topic, found = by_title.get(title or "Notes", (None, []))
        if topic is None:
            said = f"- [Daily logs](logs/) — {days[0]} to {days[-1]}" if days else "- nothing was in here"
            wanted, short = [said], [said]
        else:
            path = topic.path.removeprefix(".agents/")
            wanted = [_pointer(path, each) for each in found or [Entry("", topic.title, topic.type)]]
            short = [f"- [{topic.title}]({path}#what) — {len(found)} entries"]
        whole = "\n".join([text.rstrip("\n"), "", heading, "", *wanted]) + "\n"
        fits = len(whole.splitlines()) <= topics.INDEX_LINES_MAX and len(whole.encode()) <= topics.INDEX_BYTES_MAX
        text = whole if fits else "\n".join([text.rstrip("\n"), "", heading, "", *short]) + "\n"
    return text


def _pointer(path: str, entry: Entry) -> str:
    start = f"- [{fitting(entry.item.replace('[', '(').replace(']', ')'), 80)}]({path}#what)"
    room = topics.POINTER_CHARS_MAX - len(start) - 3
    return f"{start} — {fitting(entry.detail, room)}" if entry.detail and room > 15 else start


def _short(page: Page, stays: list[str]) -> str:
    """Return the scratchpad that stays: the directive, the rows that wait, and those that were promoted."""
    eol = page.eol
    text = "".join(stays)
    if stays and not stays[-1].endswith("\n"):
        text += eol
    short = scratchpad.parse(text)
    if not scratchpad.is_daily(text):
        behind = 0
        while behind < len(short.lines) and short.lines[behind].lstrip().startswith("<!--"):
            behind += 1
        text = "".join([*short.lines[:behind], scratchpad.DAILY + eol, *short.lines[behind:]])
    missing = [title for title in _STAYS if not scratchpad.parse(text).named(title)]
    for title in missing:
        text += f"{'' if not text or text.endswith(eol * 2) else eol}## {title}{eol}"
    return text


def lost(old: str, files: Mapping[str, str]) -> list[str]:
    """Return the lines of the old file that are in none of the new ones: of a plan that may be carried out, none."""
    new = {line.strip() for text in files.values() for line in text.splitlines()}
    return [line for line in (each.strip() for each in old.splitlines()) if line and line not in new]
