"""Topic files of ``.agents/topics``, the index ``.agents/local.md`` that points to them, and migration to them. Pure.

A topic file is front matter, a title, and What, Where, Why, Example, History. Of one that is there, only its History
grows and its day of change moves; everything else is as its writers left it. The index is one line for each topic,
between the lines that people put there.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.reflect import auto_reflect
from fleet.reflect.auto_reflect import DailyLog, Page, Scratchpad, Section
from fleet.reflect.clusters import Recurrence
from fleet.reflect.observations import BOUNDARY, GOTCHA, Row, Said, fitting, says

FOLDER = ".agents/topics"
INDEX = ".agents/local.md"
INDEX_LINES_MAX = 200
INDEX_BYTES_MAX = 25_000
POINTER_CHARS_MAX = 150
FILE_BYTES_MAX = 256 * 1024
"""A larger file is no topic: it is left alone."""

_INDEX_HEAD = "# Project Memory\n\nPointers to topic files, one line each. Content is in `topics/`.\n"
_FIELD = re.compile(r"(?P<key>type|created|updated)[ \t]*:[ \t]*[\"']?(?P<value>[^\"'\s#]+)[\"']?[ \t]*(?:#.*)?")
_FRONT_LINES_MAX = 60
_TITLE = re.compile(r"#[ \t]+(.*?)[ \t]*#*[ \t]*")
_MERGED = re.compile(r"merged from session[ \t]+(?P<session>[^)\s](?:[^)]*[^)\s])?)[ \t]*\)")
_FIRST = re.compile(r"[ \t]*(?P<session>\S+(?:[ \t]\S+)+)[ \t]*")
_POINTER = re.compile(r"[ \t]*[-*+][ \t]+\[(?P<title>(?:[^\]\\]|\\.)+)\]\((?P<path>[^)#\s]+)(?:#[^)\s]*)?\).*")
_SEEN = re.compile(r"\(seen \d{1,5} sessions?\)")
_SPAN = re.compile(r"`([^`\n]{3,80})`")
_SLUG_CHARS_MAX = 60
_TITLE_CHARS_MAX = 80
_WHERE_MAX = 8
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

    @classmethod
    def read(cls, path: str, data: bytes) -> "Topic":
        """Return a topic file, taken apart. Never raises: what stands in the way is in ``trouble``."""
        if len(data) > FILE_BYTES_MAX:
            return cls(path, trouble=f"is larger than the {FILE_BYTES_MAX:,} bytes that are read")
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if "\0" in text or "\ufffd" in text:
            return cls(path, trouble="is no UTF-8 text")
        fields, body = _front_matter(text)
        if fields is None:
            return cls(path, trouble="has front matter that cannot be read")
        page = Page.parse(body, level_max=6)
        title = next((m[1] for row in page.rows if not row.is_code and (m := _TITLE.fullmatch(row.text.rstrip()))), "")
        what = [row for section in page.named("What") for row in page.inside(section)]
        listed = [" ".join(filter(None, (each.item, each.detail))) for each in page.entries("What")]
        prose = " ".join(row.text.strip() for row in what if row.text.strip())
        return cls(
            path,
            fields.get("type", "").casefold(),
            title or path.rpartition("/")[2].removesuffix(".md"),
            tuple(listed if len(listed) > 1 else filter(None, (title, prose))),
            tuple(dict.fromkeys(_sessions(page))),
            fields.get("updated", fields.get("created", "")),
        )

    @property
    def seen(self) -> str:
        """In how many sessions, as a pointer says it; "" where none is named."""
        count = len(self.sessions)
        return f"(seen {count} session{'' if count == 1 else 's'})" if count else ""

    @staticmethod
    def fresh(found: Recurrence, absolute: Callable[[str], str], taken: Collection[str]) -> tuple[str, str]:
        """Return the path and the text of a new topic file about something that recurred.

        ``absolute``: returns a wording with its relative dates made absolute.
        ``taken``: paths of the others.
        """
        said, *others = map(absolute, (found.text, *found.others))
        spans = dict.fromkeys(span[0] for each in (found.text, *found.others) for span in _SPAN.finditer(each))
        first, *later = found.sessions
        days = {each.session: each.at[:10] for each in reversed(found.said)}
        text = "\n".join(
            [
                *_front(_type_of(found), days[first], max(days[each] for each in found.sessions)),
                *(f"# {_title_of(said)}", "", "## What", "", said, ""),
                *("## Where", "", ", ".join([*spans][:_WHERE_MAX]) or "Not said.", ""),
                *("## Why", "", f"It came up in {len(found.sessions)} separate sessions.", ""),
                *("## Example", "", *([f"- {each}" for each in others] or ["None in other words."]), ""),
                *("## History", "", f"- Added: {days[first]} (first seen) <!-- {_mark(first)} -->"),
                *(_merged(days[each], each) for each in later),
                "",
            ]
        )
        return _free_path(_title_of(found.text), taken), text

    def merged(self, text: str, said: Iterable[Said]) -> str:
        """Return the file's text with a History line for each session that it does not name yet."""
        firsts: dict[str, str] = {}
        for each in sorted(said, key=lambda each: (each.at, each.session)):
            firsts.setdefault(_mark(each.session), each.at[:10])
        fresh = {session: day for session, day in firsts.items() if session not in {*map(_mark, self.sessions)}}
        if not fresh:
            return text
        page = Page.parse(text, level_max=6)
        if not page.named("History"):
            page = Page.parse(page.with_lines(len(page.lines), ["", "## History", ""]), level_max=6)
        made = [_merged(day, session) for session, day in fresh.items()]
        whole = page.inserted(page.named("History")[-1], made).splitlines(keepends=True)
        return "".join(_with_updated(whole, max(fresh.values())))


def _front_matter(text: str) -> tuple[dict[str, str] | None, str]:
    """Return the fields of the front matter, None where it never ends, and the rest of the text."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:_FRONT_LINES_MAX], 1) if line.rstrip() in ("---", "...")), None)
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


def _free_path(title: str, taken: Collection[str]) -> str:
    """Return the path of a new topic file, which none of the others has."""
    words = re.sub(r"[^\w]+", "-", title.casefold()).strip("-_")
    name = words if len(words) <= _SLUG_CHARS_MAX else words[:_SLUG_CHARS_MAX].rpartition("-")[0] or words[:20]
    path, number = f"{FOLDER}/{name or 'topic'}.md", 2
    while path in taken:
        path, number = f"{FOLDER}/{name or 'topic'}-{number}.md", number + 1
    return path


def _title_of(text: str) -> str:
    """Return the title of what a text says: its first clause."""
    first = re.split(r"\s[—–]\s|;\s", text, maxsplit=1)[0].strip().rstrip(".")
    return fitting(first[:1].upper() + first[1:] if "`" not in first[:2] else first, _TITLE_CHARS_MAX)


def _type_of(found: Recurrence) -> str:
    """Return the type of the topic that something recurring becomes."""
    kinds = {each.kind for each in found.said}
    likes = says(found.text, "categories", "preference") and not kinds & {"failed", "dead-end", "fix"}
    if "decided" in kinds or likes:
        return "preference"
    return "gotcha" if found.category in (GOTCHA, BOUNDARY) else "pattern"


def _front(kind: str, created: str, updated: str) -> list[str]:
    return ["---", f"type: {kind}", f"created: {created}", f"updated: {updated}", "---", ""]


def _mark(session: str) -> str:
    """Return a session's key as a History line has it."""
    return session.replace("--", "-").replace(">", "").replace("(", "[").replace(")", "]")


def _merged(day: str, session: str) -> str:
    return f"- Updated: {day} (merged from session {_mark(session)})"


def _with_updated(lines: list[str], day: str) -> list[str]:
    if lines[0].rstrip() != "---":
        return lines
    for at, line in enumerate(lines[1:_FRONT_LINES_MAX], 1):
        match = _FIELD.fullmatch(line.strip())
        if line.rstrip() == "---":
            break
        if match and match["key"] == "updated" and match["value"] < day:
            return [*lines[:at], line.replace(match["value"], day, 1), *lines[at + 1 :]]
    return lines


# --- the index ------------------------------------------------------------------------------------------------------


class _Indexed(NamedTuple):
    """The index as it is to be, and its pointers that went: stale, contradicted, or for lack of room."""

    text: str
    dropped: tuple[str, ...] = ()
    left_out: int = 0


def index(text: str, topics: Sequence[Topic], contradicted: Collection[str]) -> _Indexed:
    """Return the index with one pointer for each topic, within its limits.

    ``topics``: all of them; those in trouble keep the pointer they have.
    ``contradicted``: paths of the topics that a newer one says the opposite of.
    """
    known = {each.path.removeprefix(".agents/"): each for each in topics if each.path not in contradicted}
    kept: list[str] = []
    dropped: list[str] = []
    pointed: set[str] = set()
    for line in (text or _INDEX_HEAD).splitlines(keepends=True):
        title, path = _pointed_to(line)
        if path.startswith("topics/") and path not in known:
            dropped.append(title)
            continue
        pointed.add(path)
        # The words of a pointer are as somebody wrote them; only the number is as it is now.
        seen = known[path].seen if path in known else ""
        kept.append(_SEEN.sub(seen, line, count=1) if seen else line)
    while not _has_room(kept) and (at := _least(kept, known)) is not None:
        dropped.append(_pointed_to(kept.pop(at))[0])
    # Those that more sessions met are first in line where there is no room for all.
    rest = [each for path, each in known.items() if path not in pointed and not each.trouble]
    left_out = 0
    for each in sorted(rest, key=lambda each: (-len(each.sessions), each.path)):
        if not left_out and _has_room(wanted := _with_pointer(kept, each)):
            kept = wanted
        else:
            left_out += 1
    return _Indexed("".join(kept), tuple(dropped), left_out)


def _has_room(lines: list[str]) -> bool:
    return len(lines) <= INDEX_LINES_MAX and sum(len(line.encode()) for line in lines) <= INDEX_BYTES_MAX


def _pointed_to(line: str) -> tuple[str, str]:
    """Return the title and the path of a pointer, "" for another line."""
    match = _POINTER.fullmatch(line.rstrip("\r\n"))
    return (match["title"], match["path"].removeprefix("./").removeprefix(".agents/")) if match else ("", "")


def _pointer(topic: Topic) -> str:
    """Return the line of the index that points to a topic."""
    anchor = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", topic.title.casefold().strip()))
    title = topic.title.replace("[", "(").replace("]", ")")
    head = f"- [{title}]({topic.path.removeprefix('.agents/')}#{anchor})"
    hook = next((each for each in topic.texts if each != topic.title), "")
    start = topic.title.rstrip("…")
    if hook.casefold().startswith(start.casefold()):
        hook = hook[len(start) :].lstrip(" —–-;:,.")
    room = POINTER_CHARS_MAX - len(head) - len(topic.seen) - 4
    said = fitting(hook, room) if hook and room > 15 else topic.type or "topic"
    return " ".join(filter(None, (head, "—", said, topic.seen)))


def _with_pointer(lines: list[str], topic: Topic) -> list[str]:
    title = _SECTIONS.get(topic.type, _SECTIONS["pattern"])
    page = Page.parse("".join(lines))
    if not page.named(title):
        gap = [""] if lines and lines[-1].strip() else []
        page = Page.parse(page.with_lines(len(lines), [*gap, f"## {title}", ""]))
    return page.inserted(page.named(title)[0], [_pointer(topic)]).splitlines(keepends=True)


def _least(lines: list[str], known: Mapping[str, Topic]) -> int | None:
    """Return the pointer to drop first: the one that the fewest sessions met, the oldest of equals."""
    found = [(at, known.get(_pointed_to(line)[1])) for at, line in enumerate(lines)]
    told = [(len(each.sessions), each.updated, -at, at) for at, each in found if each is not None]
    return min(told)[-1] if told else None


# --- migration ------------------------------------------------------------------------------------------------------

BACKUP = ".agents.local.md.backup"

_STAYS = (auto_reflect.READY, auto_reflect.PROMOTED)
_ENTRY = re.compile(r"#{1,6}[ \t]+(?:session[ \t:]+)?\[?(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\]?(?!\d).*", re.IGNORECASE)
_TYPE_OF = {"preference": "preference", "gotcha": "gotcha", "dead end": "gotcha", "boundarie": "gotcha"}


class Migration:
    """Migration of a monolithic scratchpad.

    Attributes:
        files: path to the text that it is to have; none where it was migrated already, and holds nothing more to move.
        told: what goes where, a line each.
    """

    def __init__(self, text: str, now: Mapping[str, str], today: str) -> None:
        """Plan it.

        ``now``: path to text of the daily logs, the topic files and the index that are there.
        """
        self._page, self._now, self._today = Page.parse(text), now, today
        self.files: dict[str, str] = {}
        self.told: list[str] = []
        first = self._page.sections[0].heading if self._page.sections else len(self._page.lines)
        stays, moved = self._page.lines[:first], list[Section]()
        for section in self._page.sections:
            if self._is_to_move(section):
                moved.append(section)
            else:
                stays += self._page.lines[section.heading : section.end]
        pointers = [self._moved(section) for section in moved]
        if not self.files and Scratchpad(text).is_daily():
            return
        self._put(INDEX, "\n".join([(now.get(INDEX) or _INDEX_HEAD).rstrip("\n"), *dict.fromkeys(pointers)]) + "\n")
        self._put(auto_reflect.FILE, _short("".join(stays), self._page.eol))

    def lost(self) -> list[str]:
        """Return the lines of the old file that are in no new one: of a plan that may be carried out, none."""
        new = {line.strip() for text in self.files.values() for line in text.splitlines()}
        return [each.strip() for each in self._page.lines if each.strip() and each.strip() not in new]

    def _put(self, path: str, text: str) -> None:
        self.files[path] = text
        self.told.append(f"{path}: {len(text.splitlines())} lines")

    def _is_to_move(self, section: Section) -> bool:
        """Tell whether a section goes elsewhere: all but a page's title, and the rows that wait or were promoted."""
        if any(section in self._page.named(title) for title in _STAYS):
            return False
        logs = (auto_reflect.SESSION_LOG, auto_reflect.OBSERVATIONS)
        return section.level > 1 or any(section in self._page.named(title) for title in logs)

    def _moved(self, section: Section) -> str:
        """Put the lines of a section where they go; return its heading for the index, and a pointer to them."""
        lines = [line.rstrip("\r\n") for line in self._page.lines[section.heading : section.end]]
        rest, days = lines[1:], list[str]()
        for title, part in ((auto_reflect.SESSION_LOG, _by_entry), (auto_reflect.OBSERVATIONS, _by_day)):
            if section in self._page.named(title):
                rest, logged = part(rest)
                days = [self._log(day, found, is_observed=part is _by_day) for day, found in logged]
        title = section.title or "Notes"
        pointer = f"- [Daily logs](logs/) — {min(days)} to {max(days)}" if days else "- nothing was in here"
        if any(line.strip() for line in rest):
            path = _free_path(title, {*self._now, *self.files})
            self._put(path, _as_it_stood(title, rest, self._today))
            pointer = f"- [{title}]({path.removeprefix('.agents/')}#what) — as it stood in {auto_reflect.FILE}"
        return f"\n{lines[0].strip()}\n\n{pointer}"

    def _log(self, day: str, lines: list[str], *, is_observed: bool) -> str:
        path = DailyLog(day).path
        before = self.files.get(path, self._now.get(path, ""))
        self.files[path] = before + DailyLog(day, before).more_gathered(lines, is_observed=is_observed)
        self.told.append(f"{path}: {sum(bool(line.strip()) for line in lines)} lines more")
        return day


_Parted = tuple[list[str], list[tuple[str, list[str]]]]


def _by_entry(lines: list[str]) -> _Parted:
    """Return the lines of a session log that belong to no entry, and its entries, each with its day."""
    code = {row.number - 1 for row in Row.read("\n".join(lines)) if row.is_code}
    rest, found = list[str](), list[tuple[str, list[str]]]()
    for at, line in enumerate(lines):
        match = _ENTRY.fullmatch(line.strip()) if at not in code else None
        if match:
            found.append((f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}", []))
        (found[-1][1] if found else rest).append(line)
    return rest, found


def _by_day(lines: list[str]) -> _Parted:
    """Return the lines that are no observations, and the observations of each day."""
    rest, found = list[str](), dict[str, list[str]]()
    for line in lines:
        seen = Said.observed(Row.read(line))
        (found.setdefault(seen[0].at[:10], []) if seen else rest).append(line)
    return rest, sorted(found.items())


def _as_it_stood(title: str, lines: list[str], today: str) -> str:
    """Return a topic file with these lines as they stood."""
    key = re.sub(r"[^a-z ]+", "", title.casefold()).strip().removesuffix("s")
    top = _front(_TYPE_OF.get(key, "pattern"), today, today)
    body = "\n".join(lines).strip("\n")
    history = f"- Added: {today} (from {auto_reflect.FILE})"
    return "\n".join([*top, f"# {title}", "", "## What", "", body, "", "## History", "", history, ""])


def _short(text: str, eol: str) -> str:
    """Return the scratchpad that stays: the directive, the rows that wait, and those that were promoted."""
    if not Scratchpad(text).is_daily():
        page = Page.parse(text)
        at = next((at for at, line in enumerate(page.lines) if not line.lstrip().startswith("<!--")), len(page.lines))
        text = page.with_lines(at, [auto_reflect.DAILY])
    for title in _STAYS:
        if not Page.parse(text).named(title):
            text = f"{text}{'' if text.endswith(eol * 2) else eol}## {title}{eol}"
    return text
