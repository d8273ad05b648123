"""Topic files of ``.agents/topics`` and the index ``.agents/local.md``, which points to them. Pure.

A topic file is front matter, a title, and What, Where, Why, Example, History. Of one that is there, only its History
grows and its day of change moves; everything else is as its writers left it. The index is one line for each topic,
between the lines that people put there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.reflect import scratchpad
from fleet.reflect.clusters import Recurrence
from fleet.reflect.daily_log import CHANGED, DECIDED, FAILED, LEARNED, OBSERVED, WORKED, head, path_of
from fleet.reflect.observations import BOUNDARY, GOTCHA, Row, Said, fitting, is_preference, observed, rows
from fleet.reflect.scratchpad import Entry, Page, Scratchpad, Section, entries, parse

FOLDER = ".agents/topics"
INDEX = ".agents/local.md"
INDEX_LINES_MAX = 200
INDEX_BYTES_MAX = 25_000
POINTER_CHARS_MAX = 150
FILE_BYTES_MAX = 256 * 1024
"""A larger file is no topic: it is left alone."""
TYPES = ("pattern", "gotcha", "preference")

_FIELD = re.compile(r"(?P<key>type|created|updated)[ \t]*:[ \t]*[\"']?(?P<value>[^\"'\s#]+)[\"']?[ \t]*(?:#.*)?")
_TITLE = re.compile(r"#[ \t]+(.*?)[ \t]*#*[ \t]*")
_MERGED = re.compile(r"merged from session[ \t]+(?P<session>[^)\s](?:[^)]*[^)\s])?)[ \t]*\)")
_FIRST = re.compile(r"[ \t]*(?P<session>\S+(?:[ \t]\S+)+)[ \t]*")
_POINTER = re.compile(
    r"[ \t]*[-*+][ \t]+\[(?P<title>(?:[^\]\\]|\\.)+)\]\((?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)(?P<hook>.*)"
)
_SEEN = re.compile(r"\(seen (\d{1,5}) sessions?\)")
_SLUG_CHARS_MAX = 60
_TITLE_CHARS_MAX = 80
_SECTIONS = {"pattern": "Patterns", "gotcha": "Gotchas", "preference": "Preferences"}


class Topic(NamedTuple):
    """A topic file as it was read.

    Attributes:
        type: pattern, gotcha or preference; "" where the front matter does not say.
        texts: what it says, a text for each thing: its title and What; or the entries of a list.
        sessions: keys of the sessions that its History names.
        trouble: why it is left as it is, "" for nothing.
    """

    path: str
    type: str = ""
    title: str = ""
    texts: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    updated: str = ""
    trouble: str = ""

    @property
    def seen(self) -> int:
        """In how many sessions."""
        return len(self.sessions)


def read(path: str, data: bytes) -> Topic:
    """Return a topic file, taken apart. Never raises: what stands in the way is in ``trouble``."""
    if len(data) > FILE_BYTES_MAX:
        return Topic(path, trouble=f"is larger than the {FILE_BYTES_MAX:,} bytes that are read")
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return Topic(path, trouble="is no UTF-8 text")
    if "\0" in text:
        return Topic(path, trouble="is no text")
    fields, body = _front_matter(text)
    page = parse(body, level_max=6)
    title = next((m[1] for row in page.rows if not row.is_code and (m := _TITLE.fullmatch(row.text.rstrip()))), "")
    what = [row for section in page.named("What") for row in page.inside(section)]
    listed = [" ".join(filter(None, (each.item, each.detail))) for each in entries(what)]
    prose = " ".join(row.text.strip() for row in what if row.text.strip())
    texts = listed if len(listed) > 1 else [each for each in (title, prose) if each]
    sessions = _sessions(page)
    trouble = "" if fields is not None else "has front matter that cannot be read"
    known = fields or {}
    return Topic(
        path,
        known.get("type", "").casefold(),
        title or path.rpartition("/")[2].removesuffix(".md"),
        tuple(texts),
        tuple(dict.fromkeys(sessions)),
        known.get("updated", known.get("created", "")),
        trouble,
    )


def _front_matter(text: str) -> tuple[dict[str, str] | None, str]:
    """Return the fields of the front matter, None where it never ends, and the rest of the text."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:60], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return None, text
    found = {m["key"]: m["value"] for line in lines[1:end] if (m := _FIELD.fullmatch(line.strip()))}
    return found, "\n".join(lines[end + 1 :])


def _sessions(page: Page) -> list[str]:
    found = []
    for section in page.named("History"):
        for row in page.inside(section):
            if match := _MERGED.search(row.text):
                found.append(match["session"])
            elif "first seen" in row.text:
                found += [m["session"] for each in row.comments if (m := _FIRST.fullmatch(each))]
    return found


# --- writing --------------------------------------------------------------------------------------------------------


def _slug(text: str) -> str:
    """Return a text as the name of a file."""
    words = re.sub(r"[^\w]+", "-", text.casefold()).strip("-_")
    cut = words[:_SLUG_CHARS_MAX]
    return (cut[: cut.rfind("-")] if len(words) > _SLUG_CHARS_MAX and "-" in cut[20:] else cut).strip("-") or "topic"


def free_path(title: str, taken: Iterable[str]) -> str:
    """Return the path of a new topic file, which none of the others has."""
    known, name, number = set(taken), _slug(title), 2
    path = f"{FOLDER}/{name}.md"
    while path in known:
        path, number = f"{FOLDER}/{name}-{number}.md", number + 1
    return path


def title_of(text: str) -> str:
    """Return the title of what a text says: its first clause."""
    first = re.split(r"\s[—–]\s|;\s", text, maxsplit=1)[0].strip().rstrip(".")
    return fitting(
        first[:1].upper() + first[1:] if first[:1].isalpha() and "`" not in first[:2] else first, _TITLE_CHARS_MAX
    )


def _type_of(found: Recurrence) -> str:
    """Return the type of the topic that something recurring becomes."""
    kinds = {each.kind for each in found.said}
    if "decided" in kinds or (is_preference(found.text) and not kinds & {"failed", "dead-end", "fix"}):
        return "preference"
    return "gotcha" if found.category in (GOTCHA, BOUNDARY) else "pattern"


def fresh(found: Recurrence, absolute: Mapping[str, str], where: Sequence[str]) -> str:
    """Return a new topic file about something that recurred.

    ``absolute``: its wordings, with their relative dates made absolute.
    """
    said = absolute.get(found.text, found.text)
    others = [absolute.get(each, each) for each in found.others]
    first, *later = found.sessions
    firsts = {each.session: each.at[:10] for each in reversed(found.said)}
    history = [f"- Added: {firsts[first]} (first seen) <!-- {_mark(first)} -->"]
    history += [_merged(firsts[each], each) for each in later]
    updated = max(firsts[each] for each in found.sessions)
    return "\n".join(
        [
            "---",
            f"type: {_type_of(found)}",
            f"created: {firsts[first]}",
            f"updated: {updated}",
            "---",
            "",
            f"# {title_of(said)}",
            "",
            "## What",
            "",
            said,
            "",
            "## Where",
            "",
            ", ".join(f"`{each}`" for each in where) or "Not said.",
            "",
            "## Why",
            "",
            f"It came up in {len(found.sessions)} separate sessions.",
            "",
            "## Example",
            "",
            *([f"- {each}" for each in others] or ["None in other words."]),
            "",
            "## History",
            "",
            *history,
            "",
        ]
    )


def _mark(session: str) -> str:
    return session.replace("--", "-").replace(">", "")


def _merged(day: str, session: str) -> str:
    return f"- Updated: {day} (merged from session {_mark(session).replace('(', '[').replace(')', ']')})"


def _history_name(session: str) -> str:
    """Return a session's key as a History line has it."""
    return _mark(session).replace("(", "[").replace(")", "]")


def merged(text: str, said: Iterable[Said], known: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return a topic file with a History line for each session that it does not name yet; and those sessions."""
    page = parse(text, level_max=6)
    eol = page.eol
    firsts: dict[str, str] = {}
    for each in sorted(said, key=lambda each: (each.at, each.session)):
        firsts.setdefault(_history_name(each.session), each.at[:10])
    fresh_ones = {session: day for session, day in firsts.items() if session not in {_history_name(k) for k in known}}
    if not fresh_ones:
        return text, ()
    made = [_merged(day, session) + eol for session, day in fresh_ones.items()]
    found = page.named("History")
    at = page.content_end(found[-1]) if found else len(page.lines)
    if not found:
        made = [eol, f"## History{eol}", eol, *made]
    elif at == found[-1].heading + 1:
        made = [eol, *made]
    whole = page.with_lines(at, made).splitlines(keepends=True)
    return "".join(_with_updated(whole, max(fresh_ones.values()))), tuple(fresh_ones)


def _with_updated(lines: list[str], day: str) -> list[str]:
    if not lines or lines[0].rstrip() != "---":
        return lines
    for at, line in enumerate(lines[1:60], 1):
        if line.rstrip() == "---":
            break
        match = _FIELD.fullmatch(line.strip())
        if match and match["key"] == "updated" and match["value"] < day:
            return [*lines[:at], line.replace(match["value"], day, 1), *lines[at + 1 :]]
    return lines


# --- the index ------------------------------------------------------------------------------------------------------


class _Indexed(NamedTuple):
    """The index as it is to be, and its pointers that went: stale, contradicted, or for lack of room."""

    text: str
    dropped: tuple[str, ...] = ()
    left_out: int = 0


def index(text: str, topics: Sequence[Topic], contradicted: Mapping[str, str]) -> _Indexed:
    """Return the index with one pointer for each topic, within its limits.

    ``topics``: all of them; those in trouble keep the pointer they have.
    ``contradicted``: path of a topic to that of the newer one that says the opposite.
    """
    known = {each.path.removeprefix(".agents/"): each for each in topics}
    gone = {path.removeprefix(".agents/") for path in contradicted}
    lines = (
        text or "# Project Memory\n\nPointers to topic files, one line each. Content is in `topics/`.\n"
    ).splitlines(keepends=True)
    kept: list[str] = []
    dropped: list[str] = []
    pointed: set[str] = set()
    for line in lines:
        title, path = _pointed_to(line)
        if not path.startswith("topics/"):
            kept.append(line)
        elif path not in known or path in gone:
            dropped.append(title)
        else:
            pointed.add(path)
            kept.append(_counted(line, known[path]))
    rest = [each for path, each in known.items() if path not in pointed and path not in gone and not each.trouble]
    # Those that more sessions met are first in line where there is no room for all.
    rest.sort(key=lambda each: (-each.seen, each.path))
    left_out = 0
    for each in rest:
        wanted = _with_pointer(kept, each)
        if _has_room("".join(wanted)):
            kept = wanted
        else:
            left_out += 1
    while not _has_room("".join(kept)):
        at = _least(kept, known)
        if at is None:
            break  # what is left is a person's own
        dropped.append(_pointed_to(kept[at])[0])
        del kept[at]
    return _Indexed("".join(kept), tuple(dropped), left_out)


def _has_room(text: str) -> bool:
    return len(text.splitlines()) <= INDEX_LINES_MAX and len(text.encode()) <= INDEX_BYTES_MAX


def _pointed_to(line: str) -> tuple[str, str]:
    """Return the title and the path of a pointer, "" for another line."""
    match = _POINTER.fullmatch(line.rstrip("\r\n"))
    return (match["title"], match["path"].removeprefix("./").removeprefix(".agents/")) if match else ("", "")


def _counted(line: str, topic: Topic) -> str:
    """Return a pointer with the number of sessions as it is now; the words are as somebody wrote them."""
    if topic.seen < 1 or not _SEEN.search(line):
        return line
    return _SEEN.sub(f"(seen {_sessions_said(topic.seen)})", line, count=1)


def _sessions_said(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _pointer(topic: Topic) -> str:
    """Return the line of the index that points to a topic."""
    path = topic.path.removeprefix(".agents/")
    seen = f" (seen {_sessions_said(topic.seen)})" if topic.seen else ""
    title = topic.title.replace("[", "(").replace("]", ")")
    head = f"- [{title}]({path}#{_anchor(topic.title)})"
    hook = next((each for each in topic.texts if each != topic.title), "")
    for start in (topic.title.rstrip("…"), ""):
        if start and hook.casefold().startswith(start.casefold()):
            hook = hook[len(start) :].lstrip(" —–-;:,.")
    room = POINTER_CHARS_MAX - len(head) - len(seen) - 3
    said = fitting(hook, room) if hook and room > 15 else _SECTIONS.get(topic.type, "Topic")[:-1].lower()
    return f"{head} — {said}{seen}"


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as Markdown viewers make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.casefold().strip()))


def _with_pointer(lines: list[str], topic: Topic) -> list[str]:
    title = _SECTIONS.get(topic.type, _SECTIONS["pattern"])
    page = parse("".join(lines))
    found = page.named(title)
    eol = page.eol
    made = [_pointer(topic) + eol]
    if not found:
        at, gap = len(lines), [eol] if lines and lines[-1].strip() else []
        made = [*gap, f"## {title}{eol}", eol, *made]
    else:
        at = page.content_end(found[0])
        if at == found[0].heading + 1:
            has_gap = at < len(lines) and not lines[at].strip()
            at, made = (at + 1, made) if has_gap else (at, [eol, *made])
        if at < len(lines) and lines[at].lstrip().startswith("#"):
            made = [*made, eol]
    return page.with_lines(at, made).splitlines(keepends=True)


def _least(lines: list[str], known: Mapping[str, Topic]) -> int | None:
    """Return the pointer to drop first: the one that the fewest sessions met, the oldest of equals."""
    found = []
    for at, line in enumerate(lines):
        path = _pointed_to(line)[1]
        if path in known:
            found.append((known[path].seen, known[path].updated, -at, at))
    return min(found)[-1] if found else None


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


class _Plan(NamedTuple):
    """What a migration would do.

    Attributes:
        files: path to the text that it is to have.
        told: what goes where, a line each.
    """

    files: dict[str, str]
    told: tuple[str, ...] = ()


def planned(text: str, now: Mapping[str, str], index: str) -> _Plan:
    """Return what becomes of a scratchpad; an empty plan where it was migrated already, and holds nothing more to move.

    ``now``: path to text of the daily logs and topic files that are there.
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
    if not logs and not moved and Scratchpad(text).is_daily():
        return _Plan({})
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
) -> _Plan:
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
        path = free_path(title, {*now, *files})
        days = sorted(logs)
        files[path] = _topic(title, lines, days[0] if days else "", days[-1] if days else "")
        told.append(f"{path}: {sum(bool(line.strip()) for line in lines)} lines of {title!r}")
        made.append((read(path, files[path].encode()), scratchpad.entries(_shown(lines))))
    files[INDEX] = _indexed(index, made, headings, sorted(logs))
    files[scratchpad.FILE] = _short(page, stays)
    told.append(f"{INDEX}: {len(files[INDEX].splitlines())} lines")
    told.append(f"{scratchpad.FILE}: {len(files[scratchpad.FILE].splitlines())} lines stay")
    return _Plan(files, tuple(told))


def _shown(lines: Iterable[str]) -> list[Row]:
    return rows("".join(lines))


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
            wanted = [_entry_pointer(path, each) for each in found or [Entry("", topic.title, topic.type)]]
            short = [f"- [{topic.title}]({path}#what) — {len(found)} entries"]
        whole = "\n".join([text.rstrip("\n"), "", heading, "", *wanted]) + "\n"
        text = whole if _has_room(whole) else "\n".join([text.rstrip("\n"), "", heading, "", *short]) + "\n"
    return text


def _entry_pointer(path: str, entry: Entry) -> str:
    start = f"- [{fitting(entry.item.replace('[', '(').replace(']', ')'), 80)}]({path}#what)"
    room = POINTER_CHARS_MAX - len(start) - 3
    return f"{start} — {fitting(entry.detail, room)}" if entry.detail and room > 15 else start


def _short(page: Page, stays: list[str]) -> str:
    """Return the scratchpad that stays: the directive, the rows that wait, and those that were promoted."""
    eol = page.eol
    text = "".join(stays)
    if stays and not stays[-1].endswith("\n"):
        text += eol
    short = scratchpad.parse(text)
    if not Scratchpad(text).is_daily():
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
