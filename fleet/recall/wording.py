"""Renderers of lessons and discoveries: as list lines, as the pages of a clan, and as the context of a session.

The context is data between two marks that no record can predict, and it says what it left out.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.model import limits, names
from fleet.model.discovery import Discovery
from fleet.model.names import FIELDS
from fleet.model.pattern import Pattern
from fleet.recall.triggers import OPENING, framed
from fleet.store.query import ranked
from fleet.store.tree import DISCOVERIES_PAGE, FRONT_MARK, PAGE
from fleet.text.screening import counted, inert, markdown_escape, readable, screened, shortened

LOG_A_CORRECTION = 'fleet correct --wrong "..." --right "..." --pattern "..."'
STANDING, _NO_DISCOVERY, _ORIGIN, _EMPTY, _FRONT = (
    each.format(command=LOG_A_CORRECTION)
    for each in Path(__file__).with_name("data").joinpath("pages.txt").read_text("utf-8").split("\n---\n")
)
"""Request to every agent at the end of a start, and texts of pages: no discovery yet, origin of a page, no lesson yet,
and the beginning of the branch's front page."""
UNREADABLE = "(nothing that can be shown)"

_EMOJI_CHARS_MAX = 8
_FIRST_DAY, _LAST_DAY = "2000", "2100"  # a page of the branch is made without a clock


def not_working(pattern: Pattern) -> str:
    """Return the reason why a lesson does not work, in words, or "" for a lesson without one.

    It does not work if it hurt more often than it helped (``fleet feedback``), or if a replica that was shown it has
    relapsed since it was published. Counters bear no time, so a relapse is dated by the replica's newest occurrence: a
    relapse from before the promotion, as the third occurrence may be, does not count until another occurrence follows.
    """
    hurt, helped = pattern.count("hurt"), pattern.count("helped")
    if hurt > helped:
        return f"hurt {counted(hurt, 'time')}, helped {helped:,}"
    if pattern.state != "published":
        return ""
    since = pattern.edited["state"][0] if "state" in pattern.edited else ""
    relapsed = pattern.totals.get("relapsed", {})
    replicas = [replica for replica, total in relapsed.items() if total and pattern.adds.get(replica, "") > since]
    again = sorted({names.agent_of(replica) for replica in replicas})
    return f"the mistake was made again since it was promoted, by {', '.join(again)}" if again else ""


def day(stamp: str) -> str:
    """Return the date of a stamp, "" where it can be none: a record without a date is stamped 1970."""
    return stamp[:10] if _FIRST_DAY <= stamp < _LAST_DAY and clock.is_stamp(stamp) else ""


def _newest_first(discoveries: Iterable[Discovery]) -> list[Discovery]:
    return sorted(discoveries, key=lambda entry: (entry.at, entry.id), reverse=True)


class Renderer:
    """Renderer of lessons and discoveries as list lines, with the names of their authors behind their emoji.

    ``short``: shortened ids by their full ones; the others are shown in full.
    """

    def __init__(self, members: Mapping[str, str] = {}, short: Mapping[str, str] = {}) -> None:
        self._members = members
        self._short = short
        self.named = cache(self._named)  # a few agents wrote all of a page

    def _named(self, agent: str) -> str:
        """Return an agent's name behind its emoji, if there is one and it is short enough."""
        mark = readable(self._members.get(agent))
        return f"{mark if len(mark) <= _EMOJI_CHARS_MAX else ''} {readable(agent)}".strip()

    def author(self, replica: str) -> str:
        """Return the name of a replica's agent, with its emoji; "" where it is unknown."""
        agent = names.agent_of(replica)
        return "an import" if agent == names.IMPORT else self.named(agent)

    def edits(self, pattern: Pattern) -> str:
        """Return the edits of a lesson by others than its author: "right: edited by slash"; "" for none."""
        by = names.agent_of(pattern.by)
        edits: dict[str, list[str]] = {}
        for field, label, *_ in (each for each in FIELDS if "credited" in each.uses):
            writer = pattern.edited.get(field, ("", ""))[1]
            how = "redacted" if field in pattern.words.redacted else "edited"
            if not writer:
                how, writer = "said", pattern.words.writers.get(field, "")
            if writer and names.agent_of(writer) != by and field not in pattern.words.kept:
                edits.setdefault(f"{how} by {self.author(writer)}", []).append(label)
        return "; ".join(f"{' and '.join(labels)}: {edit}" for edit, labels in edits.items())

    def lesson(self, pattern: Pattern, chars_max: int | None = None) -> str:
        """Return a lesson as one list line: its text, author, evidence and id."""
        right, id_ = readable(pattern.correct), self._short.get(pattern.id, pattern.id)
        text = f"- {readable(pattern.text) or UNREADABLE}{f' — right: {right}' if right else ''}"
        if chars_max is not None and len(text) > chars_max:
            text = f"{text[:chars_max]} … (it goes on: `fleet show {id_}`)"
        agents, seen = pattern.witnesses(), pattern.count("seen")
        by = f" by {counted(agents, 'agent')}" if agents > 1 else ""
        count = f"seen {seen:,}{by}" if seen > 1 else ""
        details = ", ".join(filter(None, [self.author(pattern.by), count, self.edits(pattern)]))
        return f"{text} ({details}; {id_})" if details else f"{text} ({id_})"

    def discovery(self, entry: Discovery) -> str:
        """Return a discovery as one list line: date, author, content, and in brackets its tags, confidence and id."""
        tags, level = ", ".join(filter(None, map(readable, entry.tags))), readable(entry.confidence)
        id_ = self._short.get(entry.id, entry.id)
        details = "; ".join(filter(None, [tags, f"{level} confidence" if level else "", id_]))
        opening = " ".join(filter(None, [day(entry.at), self.author(entry.by), readable(entry.type)]))
        finding = " -> ".join(filter(None, [readable(entry.problem), readable(entry.solution)])) or UNREADABLE
        return f"- {': '.join(filter(None, [opening, readable(entry.context), finding]))} ({details})"

    def gossip(self, discoveries: Iterable[Discovery]) -> str:
        """Return discoveries, newest first, a line each, or how to log the first."""
        return "\n".join(map(self.discovery, _newest_first(discoveries))) or _NO_DISCOVERY


_GENERAL = "General"
_INDENT = "  "
_BREAK = "\\"
"""Hard line break. Two blanks would do too, but editors remove them."""

_NAMES_MAX = 8
_CATEGORY_CHARS_MAX = 100

_HEADER = "# What this clan has learned\n"
_FRONT_LESSONS_MAX = 10
_FRONT_DISCOVERIES_MAX = 5
_FRONT_PAIRS_MAX = 5
_FRONT_AGENTS_MAX = 50


class Share(NamedTuple):
    """Contribution of one agent: its numbers of lessons and discoveries, and its newest stamp."""

    lessons: int
    discoveries: int
    newest: str


class Pages:
    """Pages of a clan, in Markdown. The same records give the same bytes; no record can add structure."""

    def __init__(self, members: Mapping[str, str] = {}) -> None:
        self._rows = Renderer(members)
        self._named = cache(lambda agent: markdown_escape(self._rows.named(agent)))

    def lessons(
        self,
        patterns: Iterable[Pattern],
        *,
        lessons_max: int = limits.PAGE_LESSONS_MAX,
        total: int | None = None,
        wordings: Mapping[str, Sequence[Pattern]] = {},
        opposed: Sequence[tuple[Pattern, Pattern]] = (),
    ) -> str:
        """Return ``patterns.md``: the best lessons, grouped by category, and the number of the others.

        ``patterns``: the clan's lessons; retired ones and those without a text are left out.
        ``total``: their number, those of ``opposed`` included, when ``patterns`` are only candidates for the best.
        ``wordings``: the other wordings of a lesson, by its id.
        ``opposed``: pairs of contradicting lessons: shown as contradictions, and not as rules.
        """
        in_pairs = {lesson.id for pair in opposed for lesson in pair}
        listed = ranked((lesson for lesson in patterns if lesson.is_listed and lesson.id not in in_pairs), "sight")
        shown = listed[: max(lessons_max, 0)]
        total = len(listed) + len(in_pairs) if total is None else total
        if not total:
            return "\n".join([_HEADER, _EMPTY, _ORIGIN])
        parts = [_HEADER, _summary(shown, total, len(in_pairs)), _ORIGIN]
        for heading, grouped in _groups(shown):
            parts += [heading, *(self._item(lesson, wordings.get(lesson.id, ())) for lesson in grouped)]
        return "\n".join([*parts, *self._contradictions(opposed, wordings)])

    def everything(self, patterns: Sequence[Pattern], discoveries: Iterable[Discovery]) -> str:
        """Return a page with every lesson, and behind them every discovery, newest first."""
        page, entries = self.lessons(patterns, lessons_max=max(1, len(patterns))), _newest_first(discoveries)
        heading = f"# What was found out ({counted(len(entries), 'discovery')})\n"
        return "\n".join([page, heading, "".join(map(self._discovery, entries))]) if entries else page

    def discoveries(self, discoveries: Iterable[Discovery]) -> str:
        """Return ``discoveries.md``: the newest discoveries, a list item each, and the number of the others."""
        entries, count_max = _newest_first(discoveries), limits.PAGE_LESSONS_MAX
        summary = f"**{counted(len(entries), 'discovery')}**, newest first."
        if (left_out := len(entries) - count_max) > 0:
            summary += f"\nThe newest {count_max:,} are shown. {left_out:,} more: `fleet gossip`"
        origin = _ORIGIN.replace("patterns.jsonl", "discoveries.jsonl")
        items = map(self._discovery, entries[:count_max])
        return "\n".join(["# What this clan has found out\n", summary + "\n", origin, *items])

    def front(
        self,
        newest: Sequence[Pattern],
        discoveries: Sequence[Discovery],
        shares: Mapping[str, Share],
        *,
        total: int,
        opposed: Sequence[tuple[Pattern, Pattern]] = (),
    ) -> str:
        """Return ``README.md`` of the branch: how to join, the newest records, contradictions, the share of agents."""
        entries = _newest_first(discoveries)
        pages = [f"[{counted(total, 'lesson')}]({PAGE})"] if total else []
        pages += [f"[{counted(len(entries), 'discovery')}]({DISCOVERIES_PAGE})"] if entries else []
        parts = [f"{FRONT_MARK}\n{_FRONT}", f"All of it: {' · '.join(pages)}\n" if pages else "Nothing yet.\n"]
        if newest:
            parts += ["## Newest lessons\n", *map(self._item, newest[:_FRONT_LESSONS_MAX])]
        if entries:
            parts += ["## Newest discoveries\n", *map(self._discovery, entries[:_FRONT_DISCOVERIES_MAX])]
        parts += self._contradictions(opposed[:_FRONT_PAIRS_MAX])
        if shares:
            most = sorted(shares.items(), key=lambda row: (-row[1].lessons, -row[1].discoveries, row[0]))
            rows = [self._share(agent, share) for agent, share in most[:_FRONT_AGENTS_MAX]]
            left = [f"- {len(most) - len(rows):,} more\n"] if len(most) > len(rows) else []
            parts += ["## By agent\n", "".join([*rows, *left])]
        return "\n".join(parts)

    def _share(self, agent: str, share: Share) -> str:
        counts = [counted(share.lessons, "lesson")] if share.lessons else []
        counts += [counted(share.discoveries, "discovery")] if share.discoveries else []
        counts += [f"newest of {newest}"] if (newest := day(share.newest)) else []
        name = "imports" if agent == names.IMPORT else self._named(agent)
        return f"- {name}: {', '.join(counts)}\n"

    def _discovery(self, entry: Discovery) -> str:
        """Return a discovery as a list item of one line, without any structure of its own."""
        author = self._named(names.agent_of(entry.by))
        where, problem = _escaped(entry.context), _escaped(entry.problem)
        parts = [
            " · ".join(filter(None, [day(entry.at), author, _escaped(entry.type)])),
            f"in {where}" if where else "",
            f"**{problem}**" if problem else "",
            _escaped(entry.solution),
        ]
        tags = ", ".join(filter(None, map(_escaped, entry.tags)))
        return f"- {': '.join(filter(None, parts))}{f' ({tags})' if tags else ''} · `{entry.id}`\n"

    def _contradictions(
        self, opposed: Sequence[tuple[Pattern, Pattern]], wordings: Mapping[str, Sequence[Pattern]] = {}
    ) -> Iterator[str]:
        """Yield a heading and the contradicting pairs: two items each, and a line between them."""
        if opposed:
            yield _heading("Contradictions: `fleet review` decides", len(opposed))
        for one, other in opposed:
            yield f"{self._item(one, wordings.get(one.id, ()))}{_INDENT}\n{_INDENT}or the opposite:\n"
            yield self._item(other, wordings.get(other.id, ()))

    def _item(self, pattern: Pattern, wordings: Sequence[Pattern] = ()) -> str:
        """Return a lesson as a list item: its text, the right way, its other wordings, the evidence, a line each."""
        parts = [f"**{_escaped(pattern.text) or UNREADABLE}**"]
        if correct := _escaped(pattern.correct):
            parts.append(f"Right: {correct}")
        parts += [f"Also said: {text} · `{other.id}`" for other in wordings if (text := _escaped(other.text))]
        return "- " + f"{_BREAK}\n{_INDENT}".join([*parts, self._evidence(pattern)]) + "\n"

    def _evidence(self, pattern: Pattern) -> str:
        """Return the count, the authors and the first date."""
        times, by = pattern.count("seen"), self._authors(pattern)
        seen = ("seen once" if times == 1 else f"seen {times:,} times") if times else "logged"
        parts = [
            "published" if pattern.is_published else "",
            f"{seen} by {by}" if by else seen,
            _escaped(self._rows.edits(pattern)),
            f"since {since}" if pattern.at <= pattern.cut and (since := day(pattern.at)) else "",
            f"`{pattern.id}`",
        ]
        return " · ".join(filter(None, parts))

    def _authors(self, pattern: Pattern) -> str:
        logged_by = pattern.agents()
        agents = [agent for agent in logged_by if agent != names.IMPORT]
        shown = [self._named(agent) for agent in agents[:_NAMES_MAX]]
        if len(agents) > _NAMES_MAX:
            shown.append(f"{len(agents) - _NAMES_MAX:,} more")
        if len(agents) < len(logged_by):
            shown.append("an import")
        return ", ".join(shown)


def _escaped(value: object) -> str:
    return markdown_escape(inert(screened(value)))


def _summary(shown: list[Pattern], total: int, opposed: int) -> str:
    text = f"**{counted(total, 'lesson')}**"
    if published := sum(pattern.is_published for pattern in shown):
        text += f", {published:,} of them published. Published lessons come first, then those seen most often."
    else:
        text += ". Those seen most often come first."
    if left_out := total - opposed - len(shown):
        text += f"\nThe best {len(shown):,} are shown. {left_out:,} more: `fleet patterns`"
    return text + "\n"


def _groups(shown: list[Pattern]) -> Iterator[tuple[str, list[Pattern]]]:
    """Yield headings and lessons. The lessons are best first, and so are the groups."""
    groups: dict[str, tuple[str, list[Pattern]]] = {}
    categories = {each: inert(screened(each)) or _GENERAL for each in {pattern.category for pattern in shown}}
    for pattern in shown:
        category = categories[pattern.category]
        key = unicodedata.normalize("NFC", category.casefold())
        groups.setdefault(key, (category, []))[1].append(pattern)
    for category, grouped in groups.values():
        yield _heading(category, len(grouped)), grouped


def _heading(category: str, count: int) -> str:
    return f"## {markdown_escape(shortened(category, _CATEGORY_CHARS_MAX))} ({count})\n"


# --- the context of a session ---------------------------------------------------------------------------------------

_NOTHING_KNOWN = "No lesson and no discovery stands here."

_LESSON_CHARS_LONG = 1_000
LESSONS_MAX = 200
"""Greatest number of lessons that are rendered for a section."""
ROW_CHARS_MAX = 1_200

_GAP = "\n\n"


class _Section(NamedTuple):
    """List of records under a heading, best first, a line each.

    ``total`` counts those without a row, too, and ``opposed`` those of them that contradict each other.
    """

    heading: str
    rows: Sequence[str]
    total: int
    noun: str
    command: str
    opposed: int = 0

    def shown(self, rows: Sequence[str]) -> str:
        """Return the section with some of its rows, and the number of the others; "" for an empty one."""
        left_out = self.total - len(rows)
        opposed = min(self.opposed, max(left_out, 0))
        why = "contradicts another" if opposed == 1 else "contradict each other"
        note = [f"{counted(opposed, self.noun)} left out that {why}; `fleet review`"] if opposed else []
        left_out -= opposed
        note += [f"{counted(left_out, self.noun)} left out; `{self.command}`"] if left_out > 0 else []
        lines = [*([self.heading] if rows else []), *rows, *note]
        return _GAP + "\n".join(lines) if lines else ""


def session_context(
    *,
    agent: str,
    memory: str,
    delimiter: str,
    patterns: Iterable[Pattern] = (),
    discoveries: Iterable[Discovery] = (),
    waiting: Sequence[str] = (),
    news: Sequence[Pattern] = (),
    fresh: Collection[str] = (),
    chars_max: int = limits.START_CHARS_MAX,
    rest_max: int = limits.START_REST_CHARS_MAX,
    members: Mapping[str, str] = {},
    short: Mapping[str, str] = {},
    total: int | None = None,
    opposed: int = 0,
    note: str = "",
    standing: str = "",
    by: Mapping[str, str] = {},
) -> str:
    """Return the context of a session's start, in at most ``chars_max`` characters.

    The memory has the first claim on the room, up to its own limit. Pending decisions, new lessons, other lessons and
    discoveries share at most ``rest_max`` characters. A memory beyond its limit gets what these leave. A record is
    shown whole or left out; lessons longer than ``_LESSON_CHARS_LONG`` come last.

    ``memory``: the hot part of its ``memory.md``, screened.
    ``patterns``: the clan's lessons for the context, best first; ``news`` are new since the agent's last session.
    ``delimiter``: the mark at both ends, random: no record may predict it.
    ``fresh``: ids of the new discoveries, which come before the others.
    ``total``: number of lessons besides the new ones, when ``patterns`` are only some of them.
    ``opposed``: number of lessons in ``total`` that contradict each other, and so are not in ``patterns``.
    ``standing``: fleet's request to every agent, which stands behind the second mark, since it is no record.
    ``by``: authors of others' records, by id. The lessons of one author fill at most a third of the room, and so do
        its discoveries.
    """
    remark = _GAP + note if note else ""
    request = f"\n{standing}" if standing else ""
    room = chars_max - 2 * len(delimiter + "\n") - len(OPENING) - len(remark) - len(request)
    listed = [lesson for lesson in patterns if lesson.is_listed and lesson.state != "retired"]
    shares = _Shares(by, rest_max // 3)
    rows = Renderer(members, short)
    sections = (
        _decisions(waiting),
        _lessons("New since your last session:", news, None, rows, shares)._replace(noun="new lesson"),
        _lessons("Lessons of the clan:", listed, total, rows, shares)._replace(opposed=opposed),
        _newest(discoveries, fresh, rows, _Shares(by, rest_max // 3)),
    )
    least = sum(len(section.shown(())) for section in sections)
    heading = f"{_GAP}Memory of {rows.named(agent)}:\n"
    claim = len(_memory_block(memory, heading, min(room - least, len(heading) + limits.HOT_CHARS_MAX)))
    decisions, *others = _blocks(sections, min(room - claim, max(rest_max - len(request), least)))
    block = _memory_block(memory, heading, room - sum(map(len, [decisions, *others])))
    body = "".join([block, *others, decisions]) + remark or _GAP + _NOTHING_KNOWN
    return framed([body.removeprefix("\n")], delimiter) + request


def _blocks(sections: Sequence[_Section], room: int) -> list[str]:
    """Return the sections as texts within ``room`` characters. The section with the fewest gets the next row."""
    shown = [list[str]() for _ in sections]
    room -= sum(len(section.shown(())) for section in sections)
    turns = [(0, number, 0) for number, section in enumerate(sections) if section.rows]
    while turns:
        used, number, index = heappop(turns)
        section, rows = sections[number], shown[number]
        more = len(section.shown([*rows, section.rows[index]])) - len(section.shown(rows))
        if more <= room:
            rows.append(section.rows[index])
            used, room = used + more, room - more
        if index + 1 < len(section.rows):
            heappush(turns, (used, number, index + 1))
    return [section.shown(rows) for section, rows in zip(sections, shown, strict=True)]


def _memory_block(memory: str, heading: str, room: int) -> str:
    """Return the memory, as far as there is room, with a line when it has outgrown its limit."""
    if not memory.strip():
        return ""
    over = ""
    if len(memory) > limits.HOT_CHARS_MAX:
        over = f"\nmemory.md has {len(memory):,} characters, over {limits.HOT_CHARS_MAX:,}: choose what stays in it"
    block = f"{heading}{memory}{over}"
    if len(block) <= room:
        return block
    cut = memory[: max(room - len(f"{heading}{over}{_goes_on(len(memory), len(memory))}"), 0)]
    if "\n" in cut:
        cut = cut[: cut.rindex("\n")]  # not in the middle of a note
    return f"{heading}{cut}{over}{_goes_on(len(memory) - len(cut), len(memory))}"


def _goes_on(left_out: int, size: int) -> str:
    return f"\nmemory.md goes on: {left_out:,} of its {size:,} characters left out; read the rest in the file"


def _decisions(lines: Sequence[str]) -> _Section:
    rows = [f"- {text}" for text in map(readable, lines) if text]
    return _Section("Waiting for a decision:", rows, len(rows), "decision", "fleet status")


class _Shares:
    """Room that is left for the lessons, or the discoveries, of each author elsewhere, characters."""

    def __init__(self, by: Mapping[str, str], chars_max: int) -> None:
        self._by = by
        self._left: dict[str, int] = defaultdict(lambda: chars_max)

    def takes(self, id_: str, row: str) -> bool:
        """Return whether there is room for a row, and reserve it."""
        author = self._by.get(id_)
        if author is None:
            return True
        is_fit = len(row) + 1 <= self._left[author]
        self._left[author] -= (len(row) + 1) * is_fit
        return is_fit


def _lessons(
    heading: str,
    best: Sequence[Pattern],
    total: int | None,
    renderer: Renderer,
    shares: _Shares,
) -> _Section:
    # Long lessons come last, each group in its order: one page of text must not crowd out ten lessons.
    in_order = sorted(best[:LESSONS_MAX], key=lambda each: len(each.text) + len(each.correct) > _LESSON_CHARS_LONG)
    listed = ((lesson.id, renderer.lesson(lesson)) for lesson in in_order)
    rows = [row for id_, row in listed if shares.takes(id_, row)]
    return _Section(heading, rows, len(best) if total is None else total, "lesson", "fleet patterns")


def _newest(discoveries: Iterable[Discovery], fresh: Collection[str], renderer: Renderer, shares: _Shares) -> _Section:
    newest = sorted(_newest_first(discoveries), key=lambda entry: entry.id not in fresh)
    rows = [row for entry in newest if shares.takes(entry.id, row := renderer.discovery(entry))]
    return _Section("Newest discoveries:", rows, len(newest), "discovery", "fleet gossip")
