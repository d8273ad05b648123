"""Consolidation of daily logs into topics: the lock file, the three gates, and the four phases of a plan. Pure.

A plan has the new texts of files. Nothing is written here, no file is ever removed, and the same input gives the same
plan; after a plan was applied, the next one is empty. In an existing topic file of ``.agents/topics`` only the History
and the day of change are updated. The index, ``.agents/local.md``, has one line for each topic, beside the lines of
people. A monolithic scratchpad can be migrated to all of these.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import chain, count
from typing import NamedTuple

from fleet.reflect import auto_reflect
from fleet.reflect.auto_reflect import Block, DailyLog, Entry, Scratchpad
from fleet.reflect.clusters import Recurrence, alike
from fleet.reflect.observations import BOUNDARY, GOTCHA, Statement, has_phrase
from fleet.store import homes
from fleet.text import dates
from fleet.text.markdown import Page, Part, rows
from fleet.text.screening import counted, shortened

LOCK = homes.LOCK
HOURS_MIN = 24
GATE_SESSIONS_MIN = 5
STALE_MINUTES = 30
"""A lock that is older is stale."""
RECURRED_MIN = 2
"""Least number of separate sessions of a recurrence that becomes a topic."""
AUTO, FORCE = "auto-consolidation", "force-consolidation"

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_FIELDS = ("last_consolidated_at", "locked_by", "locked_at")
_LOCK_BYTES_MAX = 64 * 1024
_SNIPPET_SHARE = 0.5
_SNIPPET_CHARS_MIN = 25
_CODE = re.compile(r"`[^`]+`")
_CODE_LINE = (
    r"[;{}]\s*$|^\s*(?:import|from|def|class|const|let|var|func|fn|return|if|for)\b.*[({:;]|=>|\$ \w+|\w+\(.*\)\s*;?$"
)

FOLDER = ".agents/topics"
INDEX = ".agents/local.md"
INDEX_LINES_MAX = 200
INDEX_BYTES_MAX = 25_000
POINTER_CHARS_MAX = 150
FILE_BYTES_MAX = 256 * 1024
"""A larger file is no topic: it is left alone."""

_INDEX_HEAD = "# Project Memory\n\nPointers to topic files, one line each. Content is in `topics/`.\n"
_FIELD = r"(?m)^[ \t]*(?P<key>type|created|updated)[ \t]*:[ \t]*[\"']?(?P<value>[^\"'\s#]+)"
_UPDATED = r"(?m)^([ \t]*updated[ \t]*:[ \t]*[\"']?)([\d-]{10})"
_MERGED = re.compile(r"merged from session[ \t]+(?P<session>[^)\s](?:[^)]*[^)\s])?)[ \t]*\)")
_FIRST = re.compile(r"[ \t]*(?P<session>\S+(?:[ \t]\S+)+)[ \t]*")
_POINTER = r"[ \t]*[-*+][ \t]+\[(?P<title>(?:[^\]\\]|\\.)+)\]\((?P<path>[^)#\s]+)(?:#[^)\s]*)?\).*"
_SEEN = re.compile(r"\(seen (?P<count>\d{1,5}) sessions?\)")
_SPAN = re.compile(r"`[^`\n]{3,80}`")
_DATE = re.compile(r"(?<![\w=:/@.-])\(?\d{4}-\d\d(?:-\d\d)?\)?(?![\w-])", re.ASCII)
_SLUG_CHARS_MAX = 60
_TITLE_CHARS_MAX = 80
_POINTER_TITLE_MIN = 20
"""Least number of characters that a pointer's title has room for, however long the name of a person's file is."""
_WHERE_MAX = 8
_SECTIONS = {"pattern": "Patterns", "gotcha": "Gotchas", "preference": "Preferences"}


# --- the lock file --------------------------------------------------------------------------------------------------


class Lock(NamedTuple):
    """Content of a lock file.

    Attributes:
        last_ms: time of the last consolidation, milliseconds since 1970; 0: never, or unknown.
        by: its holder, "" for nobody; ``at_ms``: since when, 0 for unknown.
        trouble: why it cannot be read, "" where it can.
    """

    last_ms: int = 0
    by: str = ""
    at_ms: int = 0
    trouble: str = ""

    @classmethod
    def read(cls, data: bytes) -> "Lock":
        """Return a lock file in any known form: milliseconds or seconds, floats, times, keys left out.

        Never raises: why a file cannot be read is in ``trouble``, and only force passes that.
        """
        if not data:
            return cls()
        with suppress(ValueError, RecursionError, AttributeError):
            fields = json.loads(data[:_LOCK_BYTES_MAX].decode("utf-8-sig"))
            last, by, at = (fields.get(name) for name in _FIELDS)
            # An object without these fields is another tool's, and nobody can tell whether that holds it.
            if not (fields and fields.keys().isdisjoint(_FIELDS)) and (not last or dates.to_ms(last)):
                return cls(dates.to_ms(last) or 0, str(by or "")[:120], dates.to_ms(at) or 0)
        return cls(trouble=f"is no JSON object with {', '.join(_FIELDS)} in a known form")

    @property
    def is_taken(self) -> bool:
        """True where it was taken and not released."""
        return bool(self.by or self.at_ms)

    def last_before(self, now_ms: int) -> int:
        """Return the time of the last consolidation; 0 for never, and for one over a day ahead, which is a mistake."""
        return self.last_ms if 0 < self.last_ms <= now_ms + HOURS_MIN * _HOUR_MS else 0

    def is_live(self, now_ms: int) -> bool:
        """Return whether its holder may still be at work. A lock from the future is as stale as an old one."""
        return self.is_taken and abs(now_ms - self.at_ms) <= STALE_MINUTES * _MINUTE_MS

    def render(self) -> bytes:
        """Return the bytes of the file."""
        fields = zip(_FIELDS, (self.last_ms or None, self.by or None, self.at_ms or None), strict=True)
        return json.dumps(dict(fields)).encode() + b"\n"


class Gates(NamedTuple):
    """The three gates of a consolidation.

    ``hours``: hours since the last consolidation, None for none; ``holder``, ``trouble``: those of the lock, or "".
    """

    hours: float | None
    sessions: int
    holder: str = ""
    trouble: str = ""

    @classmethod
    def of(cls, lock: Lock, blocks: Iterable[Block], now_ms: int, own: str = "") -> "Gates":
        """Return the gates. The session with the key ``own`` has not ended yet, and does not count."""
        last = lock.last_before(now_ms)
        sessions = {one.session for each in blocks if each.ends_ms > last for one in each.statements} - {own}
        holder = (lock.by or "somebody") if lock.is_live(now_ms) else ""
        return cls(max(0, now_ms - last) / _HOUR_MS if last else None, len(sessions), holder, lock.trouble)

    @property
    def is_due(self) -> bool:
        """True where enough time has passed, with enough sessions."""
        return (self.hours is None or self.hours >= HOURS_MIN) and self.sessions >= GATE_SESSIONS_MIN

    @property
    def is_open(self) -> bool:
        """True where all three are open."""
        return not self.trouble and self.is_due and not self.holder

    def summary(self) -> str:
        """Return the three gates as one line."""
        hours = "no consolidation yet" if self.hours is None else f"{int(self.hours * 10) / 10} of {HOURS_MIN} h"
        lock = f"held by {self.holder}" if self.holder else "unreadable" if self.trouble else "free"
        return f"time: {hours}; sessions since: {self.sessions} of {GATE_SESSIONS_MIN}; lock: {lock}"


# --- topics ---------------------------------------------------------------------------------------------------------


class Topic(NamedTuple):
    """Parsed topic file.

    Attributes:
        type: pattern, gotcha, preference, or "".
        texts: its title and What, or what stands below the title; or the entries of a list.
        sessions: keys of the sessions in its History.
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
        """Return a parsed topic file. Never raises: an obstacle is in ``trouble``."""
        if len(data) > FILE_BYTES_MAX:
            return cls(path, trouble=f"is larger than the {FILE_BYTES_MAX:,} bytes that are read")
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if "\0" in text or "\ufffd" in text:
            return cls(path, trouble="is no plain file of UTF-8 text")
        front = Page.front_matter(text)
        if not front and text.startswith("---"):
            return cls(path, trouble="has front matter that cannot be read")
        fields = {match["key"]: match["value"] for match in re.finditer(_FIELD, front)}
        page = Page.parse(text[len(front) :], level_max=6)
        title = next((each.title for each in page.sections if each.level == 1), "")
        # A person's page may have no such section, and no title.
        top = Part("", 1, -1, min([each.heading for each in page.sections], default=len(page.lines)))
        own = page.named("What") or [each for each in page.sections if each.level == 1][:1] or [top]
        what = [row for section in own for row in page.inside(section)]
        entries = Entry.listed(page._replace(rows=what))
        listed = [" ".join(filter(None, (each.item, each.detail))) for each in entries]
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
        """Number of sessions as a pointer shows it; "" for none."""
        number = len(self.sessions)  # without a comma: the pointer is read again, by other tools, too
        return f"(seen {number} session{'' if number == 1 else 's'})" if number else ""

    @staticmethod
    def fresh(recurrence: Recurrence, taken: Collection[str]) -> tuple[str, str]:
        """Return the path and the text of a new topic file for a recurrence; ``taken``: paths of the others."""
        spans = dict.fromkeys(_SPAN.findall("\n".join((recurrence.text, *recurrence.others))))
        first, *later = recurrence.sessions
        days = {each.session: each.at[:10] for each in reversed(recurrence.statements)}
        has_failed = {each.kind for each in recurrence.statements} <= {"failed", "dead-end"}
        why = "It did not work" if has_failed else "It came up"
        text = "\n".join(
            [
                *_front(_type_of(recurrence), days[first], max(days[each] for each in recurrence.sessions)),
                *(f"# {_title_of(recurrence.text)}", "", "## What", "", recurrence.text, ""),
                *("## Where", "", ", ".join([*spans][:_WHERE_MAX]) or "Not said.", ""),
                *("## Why", "", f"{why} in {len(recurrence.sessions)} separate sessions.", ""),
                *("## Example", "", *([f"- {each}" for each in recurrence.others] or ["None in other words."]), ""),
                *("## History", "", f"- Added: {days[first]} (first seen) <!-- {_mark(first)} -->"),
                *(_merged_row(days[each], each) for each in later),
                "",
            ]
        )
        return _free_path(_title_of(recurrence.text), taken), text

    def merged(self, text: str, statements: Sequence[Statement]) -> str:
        """Return the file's text with a History line for each new session."""
        separate, known = Recurrence.separate_sessions(statements), {*map(_mark, self.sessions)}
        new: dict[str, str] = {}
        for each in sorted(statements, key=lambda each: (each.at, each.session)):
            if each.session in separate and (session := _mark(each.session)) not in known:
                new.setdefault(session, each.at[:10])
        if not new:
            return text
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        page = Page.parse(text.removeprefix(mark), level_max=6).with_section("History")
        rows = [_merged_row(day, session) for session, day in new.items()]
        text, day = page.inserted(page.named("History")[-1], rows), max(new.values())
        front = Page.front_matter(text)
        return mark + re.sub(_UPDATED, lambda match: match[1] + max(match[2], day), front, count=1) + text[len(front) :]


def _sessions(page: Page) -> list[str]:
    sessions = []
    for section in page.named("History"):
        for row in page.inside(section):
            if match := _MERGED.search(row.text):
                sessions.append(match["session"])
            elif "first seen" in row.text:
                named = [m["session"] for each in row.comments if (m := _FIRST.fullmatch(each))]
                sessions += named or [f"@first {row.text.strip()}"]  # another tool names no session there
    return sessions


# --- writing --------------------------------------------------------------------------------------------------------


def _free_path(title: str, taken: Collection[str]) -> str:
    words = re.sub(r"[^\w]+", "-", title.casefold()).strip("-_") or "topic"
    name = words if len(words) <= _SLUG_CHARS_MAX else words[:_SLUG_CHARS_MAX].rpartition("-")[0] or words[:20]
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(path for each in names if (path := f"{FOLDER}/{each}.md") not in taken)


def _title_of(text: str) -> str:
    """Return the first clause of a text as a title."""
    first = re.split(r"\s[—–]\s|;\s", text, maxsplit=1)[0].strip().rstrip(".")
    return shortened(first[:1].upper() + first[1:] if "`" not in first[:2] else first, _TITLE_CHARS_MAX)


def _type_of(recurrence: Recurrence) -> str:
    kinds = {each.kind for each in recurrence.statements}
    likes = has_phrase(recurrence.text, "categories", "preference") and not kinds & {"failed", "dead-end", "fix"}
    if "decided" in kinds or likes:
        return "preference"
    return "gotcha" if recurrence.category in (GOTCHA, BOUNDARY) else "pattern"


def _front(kind: str, created: str, updated: str) -> list[str]:
    return ["---", f"type: {kind}", f"created: {created}", f"updated: {updated}", "---", ""]


def _mark(session: str) -> str:
    """Return a session's key as a History line has it."""
    return re.sub(r"^@\w+ ", "", session).replace("--", "-").replace(">", "").replace("(", "[").replace(")", "]")


def _merged_row(day: str, session: str) -> str:
    return f"- Updated: {day} (merged from session {_mark(session)})"


# --- the index ------------------------------------------------------------------------------------------------------


def _with_pointers(text: str, topics: Sequence[Topic], contradicted: Collection[str]) -> tuple[str, list[str], int]:
    """Return the index with one pointer for each topic, its dropped pointers, and the number of topics without room.

    Topics with trouble keep their pointer; ``contradicted`` ones get none. If there is no room for all, a person's
    pointers come first, then those with more sessions; of equals those that are in the index already.
    """
    topic_at = {each.path.removeprefix(".agents/"): each for each in topics if each.path not in contradicted}
    before = (text or _INDEX_HEAD).splitlines(keepends=True)
    lines, ranked = _ranked(before, topic_at)

    def index(number: int) -> str:
        """Return the index with the first ``number`` of the ranked pointers."""
        dropped, by_section = {each.at for each in ranked[number:]}, dict[str, list[str]]()
        for each in (each for each in ranked[:number] if each.at < 0):
            by_section.setdefault(_SECTIONS.get(each.topic.type, _SECTIONS["pattern"]), []).append(_pointer(each.topic))
        page = Page.parse("".join(line for at, line in enumerate(lines) if at not in dropped))
        for title, pointers in by_section.items():
            page = page.with_section(title)
            page = Page.parse(page.inserted(page.named(title)[0], pointers))
        return "".join(page.lines)

    text = index(bisect_left(range(1, len(ranked) + 1), True, key=lambda number: not _has_room(index(number))))
    pointed = {_pointed_to(line)[1] for line in text.splitlines()}
    dropped = [title for title, path in map(_pointed_to, before) if path not in pointed]
    return text, dropped, sum(path not in pointed and not each.trouble for path, each in topic_at.items())


class _Ranked(NamedTuple):
    """Pointer that may be dropped, with its rank, its line in the index (-1: it is new) and its topic."""

    rank: tuple[bool, int, bool, str, int]
    at: int
    topic: Topic


def _ranked(before: Iterable[str], topic_at: Mapping[str, Topic]) -> tuple[list[str], list[_Ranked]]:
    """Return the lines of an index that may stay, brought up to date, and all pointers, the best first."""
    lines, ranked, pointed = list[str](), list[_Ranked](), set[str]()
    for line in before:
        path = _pointed_to(line)[1]
        topic, seen = topic_at.get(path), _SEEN.search(line)
        is_bare = seen is None or not line[seen.end() :].strip()  # else a person wrote something behind it
        # A pointer of fleet's own has an anchor; one without is a person's, and stays.
        has_anchor = "#" in line.partition("](")[2].partition(")")[0]
        if path.startswith("topics/") and topic is None and has_anchor and is_bare:
            continue
        # Only the number of a pointer is updated, and never to a lower one: its words may be a person's, and another
        # tool's number may count sessions that are in no History.
        number = max(len(topic.sessions) if topic else 0, int(seen["count"]) if seen else 0)
        if topic and is_bare:
            ranked.append(_Ranked((seen is None, number, True, topic.updated, -len(lines)), len(lines), topic))
        lines.append(_SEEN.sub(topic.seen, line, count=1) if topic and number == len(topic.sessions) > 0 else line)
        pointed.add(path)
    new = [each for path, each in sorted(topic_at.items()) if path not in pointed and not each.trouble]
    ranked += [_Ranked((False, len(each.sessions), False, "", -place), -1, each) for place, each in enumerate(new)]
    return lines, sorted(ranked, key=lambda each: each.rank, reverse=True)


def _has_room(text: str) -> bool:
    return len(text.splitlines()) <= INDEX_LINES_MAX and len(text.encode("utf-8", "surrogateescape")) <= INDEX_BYTES_MAX


def _pointed_to(line: str) -> tuple[str, str]:
    """Return the title and the path of a pointer, "" for another line."""
    match = re.fullmatch(_POINTER, line.rstrip("\r\n"))
    return (match["title"], match["path"].removeprefix("./").removeprefix(".agents/")) if match else ("", "")


def _pointer(topic: Topic) -> str:
    target, kind = f"({topic.path.removeprefix('.agents/')}#what)", topic.type or "topic"
    room = POINTER_CHARS_MAX - len(f"- []{target} — {kind} {topic.seen}")
    title = shortened(topic.title, max(room, _POINTER_TITLE_MIN)).replace("[", "(").replace("]", ")")
    head = f"- [{title}]{target}"
    hook = next((each for each in topic.texts if each != topic.title), "")
    start = topic.title.rstrip("…")
    if hook.casefold().startswith(start.casefold()):
        hook = hook[len(start) :].lstrip(" —–-;:,.")
    room = POINTER_CHARS_MAX - len(head) - len(topic.seen) - 4
    summary = shortened(hook, room) if hook and room > 15 else kind
    return " ".join(filter(None, (head, "—", summary, topic.seen)))


# --- the phases -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Plan of a consolidation: the new text of each changed file, the report of each phase, and titles of topics.

    ``merged``: of those that get more sessions; ``flagged``: recurrences that read as directives, and become no topics.
    """

    files: dict[str, str]
    phases: Mapping[str, str]
    added: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        index: str,
        files: Mapping[str, bytes],
        blocks: Sequence[Block],
        taken_back: Sequence[str] = (),
        *,
        zone: tzinfo | None = UTC,
        keep_words: bool = False,
    ) -> "Plan":
        """Return the plan of the changes that daily logs bring to the topics and the index.

        ``taken_back``: texts of topics that were undone: a recurrence that says the same becomes no topic again.
        ``zone``, ``keep_words``: those of dates, as ``housekeeping.Plan.of`` has them.
        """
        known = {path: Topic.read(path, data) for path, data in sorted(files.items())}
        numbered = [(path, text) for path, each in known.items() for text in each.texts]
        troubled = [f"{each.path} {each.trouble}" for each in known.values() if each.trouble]

        judged = [(each, _skip_reason(each)) for block in blocks for each in block.statements]
        kept, skipped = [each for each, why in judged if not why], Counter(why for _, why in judged if why)
        # Before texts are compared: else a topic would be new each time.
        dated = [_with_absolute_dates(each, zone, keep_words=keep_words) for each in kept]
        texts = [*(text for _, text in numbered), *taken_back]
        # Dates are left out of the comparison, since the same thing on another day is one recurrence.
        recurrences, matched = Recurrence.among(dated, texts, partial(_DATE.sub, " "))
        recurred = [each for each in recurrences if len(each.sessions) >= RECURRED_MIN]
        flagged = tuple(each.text for each in recurred if each.is_directive)
        sessions = {one.session for each in blocks for one in each.statements}
        apart = [f"{number} skipped: {why}" for why, number in sorted(skipped.items())]
        apart += [f"{len(flagged)} read as directives, and stay data"] if flagged else []

        changed = _merged(known, numbered, matched, files)
        merged = tuple(known[path].title for path in changed)
        for recurrence in recurred:
            if not recurrence.is_directive:
                path, text = Topic.fresh(recurrence, {*files, *changed})
                changed[path] = text

        known |= {path: Topic.read(path, text.encode()) for path, text in changed.items()}
        added = tuple(each.title for path, each in known.items() if path not in files)
        topics = [known[path] for path in sorted(known)]
        text, dropped, left_out = _with_pointers(index, topics, _contradicted(topics))
        if known and text != index:
            changed[INDEX] = text
        indexed = [counted(len(text.splitlines()), "line") if known else "no topics"]
        indexed += [f"dropped the pointer to {title!r}" for title in dropped]
        indexed += [f"{left_out} topics have no room in the index"] if left_out else []
        phases = {
            "orient": [counted(len(files), "topic"), *troubled],
            "gather": [f"{counted(len(kept), 'entry', 'entries')} of {counted(len(sessions), 'session')}", *apart],
            "consolidate": [f"{counted(len(added), 'new topic')}, {len(merged)} merged into"],
            "prune and index": indexed,
        }
        return cls(changed, {name: "; ".join(parts) for name, parts in phases.items()}, added, merged, flagged)


def _merged(
    topics: Mapping[str, Topic],
    numbered: Sequence[tuple[str, str]],
    matched: Mapping[int, Sequence[Statement]],
    files: Mapping[str, bytes],
) -> dict[str, str]:
    """Return the new texts of the topics that have more sessions now."""
    by_topic: dict[str, list[Statement]] = {}
    for number, statements in matched.items():
        if number < len(numbered):
            by_topic.setdefault(numbered[number][0], []).extend(statements)
    texts = {
        path: topics[path].merged(files[path].decode(), statements) for path, statements in sorted(by_topic.items())
    }
    return {path: text for path, text in texts.items() if text.encode() != files[path]}


def _contradicted(topics: Iterable[Topic]) -> set[str]:
    """Return the paths of the topics that a newer one contradicts."""
    single = sorted((each for each in topics if 0 < len(each.texts) <= 2), key=lambda each: each.updated)
    pairs = ((single[one], single[other], close) for one, other, close in alike([each.texts[-1] for each in single]))
    return {old.path for old, new, close in pairs if close.is_turned and old.updated < new.updated}


# --- gathering ------------------------------------------------------------------------------------------------------


def _with_absolute_dates(statement: Statement, zone: tzinfo | None, *, keep_words: bool) -> Statement:
    if (ms := dates.to_ms(statement.at)) is None:
        return statement
    written = datetime.fromtimestamp(ms / 1000, UTC)
    written = written.astimezone(zone) if "T" in statement.at else written  # a mere day is that of its writer
    return statement._replace(text=dates.absolutize(statement.text, written, keep_words=keep_words))


def _skip_reason(statement: Statement) -> str:
    """Return why an entry of a daily log becomes no topic; "" for one that may."""
    if statement.has_secret:
        return "a secret"
    if statement.kind in ("done", "commit") or (
        has_phrase(statement.text, "once") and not has_phrase(statement.text, "transient")
    ):
        return "a one-time event"
    if has_phrase(statement.text, "transient"):
        return "a transient state"
    if _is_snippet(statement.text):
        return "a code snippet"
    return "cut to fit into a line" if statement.is_cut else ""


def _is_snippet(text: str) -> bool:
    """Return whether a text is code, rather than words about it."""
    spans = sum(len(match[0]) for match in _CODE.finditer(text))
    if spans >= _SNIPPET_CHARS_MIN and spans > _SNIPPET_SHARE * len(text):
        return True
    bare = _CODE.sub("", text)
    return re.search(_CODE_LINE, bare) is not None and len(re.findall(r"[A-Za-z]{2,} [A-Za-z]{2,}", bare)) < 3


# --- migration ------------------------------------------------------------------------------------------------------

BACKUP = ".agents.local.md.backup"

_STAYS = (auto_reflect.READY, auto_reflect.PROMOTED)
_TYPE_OF = {"preference": "preference", "gotcha": "gotcha", "dead end": "gotcha", "boundarie": "gotcha"}


class Migration:
    """Plan of the migration of a monolithic scratchpad.

    ``files``: new text of each file, by path; none where there is nothing to move.
    """

    def __init__(self, text: str, now: Mapping[str, str], today: str) -> None:
        """Plan the new files; ``now``: texts of the daily logs, the topic files and the index, by path."""
        self._page, self._now, self._today = Page.parse(text), now, today
        self.files: dict[str, str] = {}
        first = self._page.sections[0].heading if self._page.sections else len(self._page.lines)
        stays, pointers = self._page.lines[:first], list[str]()
        for section in self._page.sections:
            if self._is_to_move(section):
                pointers.append(self._move(section))
            else:
                stays += self._page.lines[section.heading : section.end]
        if not self.files and Scratchpad(text).is_daily():
            return
        self.files[INDEX] = "\n".join([(now.get(INDEX) or _INDEX_HEAD).rstrip("\n"), *dict.fromkeys(pointers)]) + "\n"
        self.files[auto_reflect.FILE] = _short("".join(stays), self._page.eol)

    @property
    def report(self) -> list[str]:
        """Report: the number of lines of each file."""
        return [f"{path}: {len(text.splitlines())} lines" for path, text in self.files.items()]

    def lost(self) -> list[str]:
        """Return the lines of the old file that are in no new one; a plan with such lines must not be applied."""
        new = {line.strip() for text in self.files.values() for line in text.splitlines()}
        return [each.strip() for each in self._page.lines if each.strip() and each.strip() not in new]

    def _is_to_move(self, section: Part) -> bool:
        """Return whether a section moves: all but a page's title, and the rows that wait or were promoted."""
        if any(section in self._page.named(title) for title in _STAYS):
            return False
        logs = (auto_reflect.SESSION_LOG, auto_reflect.OBSERVATIONS)
        return section.level > 1 or any(section in self._page.named(title) for title in logs)

    def _move(self, section: Part) -> str:
        """Put the lines of a section into their files; return its heading for the index, and a pointer to them."""
        lines = [line.rstrip("\r\n") for line in self._page.lines[section.heading : section.end]]
        rest, days = lines[1:], list[str]()
        for title, part in ((auto_reflect.SESSION_LOG, _by_entry), (auto_reflect.OBSERVATIONS, _by_day)):
            if section in self._page.named(title):
                rest, logged = part(rest)
                days = [self._log(day, entry_lines, is_observed=part is _by_day) for day, entry_lines in logged]
        title = section.title or "Notes"
        pointer = f"- [Daily logs](logs/) — {min(days)} to {max(days)}" if days else "- nothing was in here"
        if any(line.strip() for line in rest):
            path = _free_path(title, {*self._now, *self.files})
            self.files[path] = _as_it_stood(title, rest, self._today)
            pointer = f"- [{title}]({path.removeprefix('.agents/')}#what) — as it stood in {auto_reflect.FILE}"
        return f"\n{lines[0].strip()}\n\n{pointer}"

    def _log(self, day: str, lines: list[str], *, is_observed: bool) -> str:
        path = DailyLog(day).path
        before = self.files.get(path, self._now.get(path, ""))
        self.files[path] = before + DailyLog(day, before).appended_lines(lines, is_observed=is_observed)
        return day


_Parted = tuple[list[str], list[tuple[str, list[str]]]]


def _by_entry(lines: list[str]) -> _Parted:
    """Return the lines of a session log that belong to no entry, and its entries, each with its day."""
    begins = {row.number - 1: entry[0] for row in rows("\n".join(lines)) if (entry := auto_reflect.session_entry(row))}
    rest, entries = list[str](), list[tuple[str, list[str]]]()
    for index, line in enumerate(lines):
        if index in begins:
            entries.append((begins[index], []))
        (entries[-1][1] if entries else rest).append(line)
    return rest, entries


def _by_day(lines: list[str]) -> _Parted:
    """Return the lines that are no observations, and the observations of each day."""
    rest, by_day = list[str](), dict[str, list[str]]()
    for line in lines:
        observed = Statement.observed(rows(line))
        (by_day.setdefault(observed[0].at[:10], []) if observed else rest).append(line)
    return rest, sorted(by_day.items())


def _as_it_stood(title: str, lines: list[str], today: str) -> str:
    """Return a topic file with these lines unchanged."""
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
