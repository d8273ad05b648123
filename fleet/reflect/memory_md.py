"""``memory.md``: a block of lessons that fleet keeps, and around it a person's own text, which stays byte for byte.

A lesson is one line of the block, and reads as it was when it was promoted. One comment in the block holds every id
that was ever promoted here: an id without a line was taken out, by ``fleet demote`` or by hand, and does not come back
by itself. With a mark of the block missing, doubled, or inside code or a comment, nothing is written.

A reflection's note is a line ``- 2026-05-09: note`` under ``## Notes``, and so are those of the user model and the next
checks, files of their own. Beyond ``NOTES_MAX`` the oldest notes go to an archive. All of it is pure, bytes to bytes.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleet.model.names import normalise
from fleet.reflect import observations
from fleet.store import homes
from fleet.text import screening
from fleet.text.markdown import Page, Row, rows
from fleet.text.screening import for_terminal, inert, markdown_escape, readable, redact, screen
from fleet.text.similarity import Near

FILE_NAME = homes.MEMORY
OPENING = "<!-- fleet:hot: `fleet promote` and `fleet demote` keep these lines; your own text goes outside -->"
CLOSING = "<!-- /fleet:hot -->"

_OPEN, _CLOSE = "<!--", "-->"
_MARK = re.compile(r"<!--[ \t]{0,8}/?[ \t]{0,8}fleet:hot", re.IGNORECASE)
_OPENS = re.compile(r"<!--[ \t]*fleet:hot(?![\w-])(?:(?!-->).)*-->[ \t]*")
_CLOSES = re.compile(r"<!--[ \t]*/fleet:hot[ \t]*-->[ \t]*")
_PROMOTED = r"<!-- fleet:promoted((?: p-[0-9a-f]{16})*) -->[ \t]*"
_EVIDENCE = r"; (p-[0-9a-f]{16})\)[ \t]*$"
_TITLE = r"\s*# .*\n?"
_BOM = "\ufeff"
_TAG = re.compile(r"<([/!?]?[A-Za-z-][^<>]*)>")
_TAG_BEGINS = re.compile(r"<(?=[/!?A-Za-z])")


class Memory(NamedTuple):
    """Parsed memory file; rendered, it is the same bytes.

    ``head``: text before the block, or before the place where it would go; ``opening``: the line that begins the
    block, "" when there is none; ``rows``: its lines, with their ends; ``trouble``: why nothing can be written, or "".
    """

    head: str
    opening: str
    rows: tuple[str, ...]
    closing: str
    tail: str
    eol: str = "\n"
    trouble: str = ""

    @classmethod
    def parse(cls, data: bytes) -> "Memory":
        """Return a parsed memory file. Never raises: an obstacle is in ``trouble``."""
        text = data.decode("utf-8", "surrogateescape")
        eol = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
        if "\0" in text:
            return cls._troubled(text, "is no UTF-8 text")
        marks = len(_MARK.findall(text))
        if not marks:
            index = _place(text)
            return cls(text[:index], "", (), "", text[index:], eol)
        bom = _BOM if text.startswith(_BOM) else ""
        lines = re.findall(r"[^\n]*\n|[^\n]+", text.removeprefix(bom))
        opens = [index for index, line in enumerate(lines) if _OPENS.fullmatch(line.rstrip("\r\n"))]
        closes = [index for index, line in enumerate(lines) if _CLOSES.fullmatch(line.rstrip("\r\n"))]
        if len(opens) + len(closes) < marks:
            return cls._troubled(text, "has a fleet:hot mark that does not stand alone on its line")
        if (len(opens), len(closes)) != (1, 1) or opens[0] > closes[0]:
            return cls._troubled(text, "has fleet:hot marks that are no pair: one that opens, then one that closes")
        begin, end = opens[0], closes[0]
        head, code = bom + "".join(lines[:begin]), {row.number - 1 for row in rows(text) if row.is_code}
        if code & {begin, end} or _OPEN in _without_comments(head):
            return cls._troubled(text, "has a fleet:hot mark inside code, or inside a comment")
        return cls(head, lines[begin], tuple(lines[begin + 1 : end]), lines[end], "".join(lines[end + 1 :]), eol)

    @classmethod
    def _troubled(cls, text: str, why: str) -> "Memory":
        message = f"{FILE_NAME} {why}; nothing is written into it until that is mended"
        return cls(text, "", (), "", "", trouble=message)

    @staticmethod
    def row(text: str, right: str, evidence: str, pattern: str) -> str:
        """Return the line of a lesson without its end: screened, and nothing in it is Markdown or HTML."""
        lesson, correct = _inert(text), _inert(right)
        return f"- {lesson}{f' — right: {correct}' if correct else ''} ({evidence}; {pattern})"

    def render(self) -> bytes:
        """Return the file's bytes."""
        text = self.head + self.opening + "".join(self.rows) + self.closing + self.tail
        return text.encode("utf-8", "surrogateescape")

    def lessons(self) -> dict[str, str]:
        """Return the lines of the lessons in the block by id, in their order."""
        return {id_: row.rstrip("\r\n") for row in self.rows if (id_ := _id_of(row))}

    def known(self) -> set[str]:
        """Return the ids of all lessons that are in the block, or were."""
        return {*self.lessons(), *(pattern for row in self.rows for pattern in _promoted(row))}

    def size(self) -> int:
        """Return the number of characters that an agent reads."""
        return len(hot(self.render().decode("utf-8", "replace")))

    def with_lesson(self, row: str, agent: str) -> "Memory":
        """Return the memory with one more lesson, and its id remembered. A file without a block gets one."""
        memory = self._with_block(agent)
        return memory._replace(rows=(*memory.rows, row + memory.eol))._remembering([_id_of(row)])

    def without(self, ids: Sequence[str], agent: str) -> "Memory":
        """Return the memory without these lessons, which are remembered: they do not come back by themselves."""
        return self._with_block(agent)._less(ids)._remembering(ids)

    def released(self, ids: Sequence[str]) -> "Memory":
        """Return the memory without these lessons and their remembered ids."""
        return self._less(ids)._remembering([], forgotten=ids)

    def _less(self, ids: Sequence[str]) -> "Memory":
        return self._replace(rows=tuple(row for row in self.rows if _id_of(row) not in ids))

    def _remembering(self, ids: Sequence[str], forgotten: Sequence[str] = ()) -> "Memory":
        before = [pattern for row in self.rows for pattern in _promoted(row) if pattern not in forgotten]
        others = [row for row in self.rows if not re.fullmatch(_PROMOTED, row.rstrip("\r\n"))]
        listed = "".join(f" {pattern}" for pattern in dict.fromkeys([*before, *ids]))
        return self._replace(rows=(*others, f"<!-- fleet:promoted{listed} -->{self.eol}"))

    @classmethod
    def aligned(cls, agent: str, path: str, *files: bytes) -> Sequence[bytes]:
        """Return a file's versions (now, then, wanted) for a merge by lines; those of a memory get equal known ids."""
        versions = [cls.parse(each) for each in files]
        if not path.endswith(f"/{FILE_NAME}") or not all(each.opening for each in versions[:2]) or versions[2].trouble:
            return files
        versions[2] = versions[2]._with_block(agent)
        current, old, new = ([id_ for row in each.rows for id_ in _promoted(row)] for each in versions)
        kept = [id_ for id_ in [*current, *new] if id_ not in old or (id_ in current and id_ in new)]
        return [each._remembering(kept, forgotten=[*current, *old]).render() for each in versions] if kept else files

    def _with_block(self, agent: str) -> "Memory":
        if self.opening:
            return self
        eol, head, tail = self.eol, self.head, self.tail
        if not head and not tail:
            head, tail = f"# Memory — {agent}{eol}{eol}", f"{eol}## Notes{eol}"
            return Memory(head, OPENING + eol, (), CLOSING + eol, tail, eol)
        if head.strip(_BOM) and not head.endswith((f"{eol}{eol}", "\n\n")):
            head += eol
        gap = eol if tail.strip() and tail[:1] not in "\r\n" else ""
        return Memory(head, OPENING + eol, (), CLOSING + eol, gap + tail, eol)


def hot(text: str) -> str:
    """Return the HOT part of a memory: a person's text and the block, screened, without comments and dated notes.

    "" where only fleet's own headings are left.
    """
    # Redacted again, since a comment may have split a secret.
    text = redact(_without_comments(screen(_without_notes(text)).text))
    rows = [row.rstrip() for row in for_terminal(inert(text)).split("\n")]
    has_text = any(row and not row.startswith("# Memory — ") and row != "## Notes" for row in rows)
    return "\n".join(rows).strip("\n") if has_text else ""


def _without_comments(text: str) -> str:
    """Return the text without comments, and without the lines that hold only one. A comment without end stays."""
    # Behind the last end, each beginning would search for an end in vain: minutes for a file of ``<!--``.
    closed = text.rfind(_CLOSE) + len(_CLOSE) if _CLOSE in text else 0
    marked = re.sub(r"(?s)<!--.*?-->", "\0", text[:closed]) + text[closed:]
    # A blank stays, since the texts around a comment must not join into something new.
    return re.sub(r"(?m)^[^\S\n]*\0[^\S\n]*(?:\n|\Z)", "", marked).replace("\0", " ")


def _place(text: str) -> int:
    """Return the position of a first block: behind the front matter and the title, else at the top.

    Never inside an open comment: the block's marks would end it, and the text between would be hidden from the agent.
    """
    top = len(_BOM) if text.startswith(_BOM) else 0
    if _OPEN not in _without_comments(matter := Page.front_matter(text[top:])):
        top += len(matter)
    title = re.compile(_TITLE).match(text, top)
    return title.end() if title and _OPEN not in _without_comments(text[: title.end()]) else top


def _inert(words: str) -> str:
    """Return words in which no comment, tag or Markdown begins or ends."""
    clean = _TAG_BEGINS.sub("‹", _TAG.sub(r"‹\1›", readable(words))).replace("-->", "--›")
    return markdown_escape(clean)


def _id_of(row: str) -> str:
    """Return the id at the end of a lesson's line, or ""."""
    match = re.search(_EVIDENCE, row.rstrip("\r\n"))
    return match[1] if match else ""


def _promoted(row: str) -> list[str]:
    match = re.fullmatch(_PROMOTED, row.rstrip("\r\n"))
    return match[1].split() if match else []


NOTES_MAX = 50
NOTES_A_SESSION_MAX = 5
ROOM_CHARS = 1_000
"""Greatest length of the notes in a session's start."""
USER_MODEL, CHECKS = "user-model.md", "checks.md"
_SAME_MIN = 0.95
"""Similarity of notes from which on they are the same: nearly the same words, so that nothing is lost."""
_NOTE_CHARS_MAX = 300
_PEER_CHARS_MAX = 80
_OBSERVATIONS_MAX = 30
_NOTES = "Notes"
_NOTE = r"- (\d{4}-\d{2}-\d{2}): (\S.*)"
_CHECK = r"- (\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z): (\S.*)"


class _NewPage(NamedTuple):
    """Result of adding notes: the page, the lines added and archived, and a sentence for each note skipped."""

    page: bytes
    added: tuple[str, ...]
    archived: tuple[str, ...]
    skipped: tuple[str, ...]


class Notes:
    """Dated notes of a memory, given as its bytes."""

    def __init__(self, page: bytes) -> None:
        self._page = Page.parse(page.decode("utf-8", "surrogateescape"), level_max=6)

    def with_more(self, notes: Sequence[str], day: str, agent: str, most: int = NOTES_A_SESSION_MAX) -> _NewPage:
        """Return the memory with at most ``most`` more notes; what a note there says already is not added."""
        page = self._page
        known = [row.text for row in page.rows if not row.is_code]
        added, skipped = list[str](), list[str]()
        for note in filter(None, map(_note, notes)):
            if same := _same(note, [*known, *added]):
                skipped.append(f"{note[:80]!r} is there already: {same[:80]}")
            elif len(added) >= most:
                skipped.append(f"{note[:80]!r} is one more than {NOTES_A_SESSION_MAX} notes of one session")
            else:
                added.append(f"- {day}: {note}")
        if added:
            page = page if page.lines else Page.parse(f"# Memory — {agent}\n", level_max=6)
            page = page.with_section(_NOTES)
            page = Page.parse(page.inserted(page.named(_NOTES)[0], added), level_max=6)
        over = [row.number - 1 for row in _noted(page)[:-NOTES_MAX]] if added else []
        archived = tuple(page.lines[index].rstrip("\r\n") for index in over)
        return _NewPage(page.without(over).encode("utf-8", "surrogateescape"), tuple(added), archived, tuple(skipped))

    def newest(self, chars_max: int = ROOM_CHARS) -> str:
        """Return the notes for a session's start, the newest first, as many as fit; screened."""
        dated = sorted(_noted(self._page), key=lambda row: (row.text[2:12], row.number), reverse=True)
        shown = _fitting((row.text for row in dated), chars_max)
        omitted = len(dated) - len(shown)
        footer = [f"({omitted} older notes are in memory.md)"] if omitted and shown else []
        return "\n".join([*shown, *footer])


def archive(page: bytes, rows: Iterable[str], agent: str, day: str) -> bytes:
    """Return an archive with more rows at its end; every line that is there stays."""
    head = page or f"# Archive — {agent} — {day}\n\n".encode()
    lines = set(head.decode("utf-8", "replace").splitlines())
    new = [row for row in rows if row not in lines]
    return _ended(head) + "".join(f"{row}\n" for row in new).encode("utf-8", "surrogateescape")


def _without_notes(text: str) -> str:
    """Return a memory without its dated notes, and without their heading where nothing else is under it."""
    page = Page.parse(text, level_max=6)
    gone = {row.number - 1 for row in _noted(page)}
    for section in page.named(_NOTES)[:1] if gone else ():
        if not any(page.lines[at].strip() for at in range(section.heading + 1, section.end) if at not in gone):
            gone.add(section.heading)
    return page.without(gone)


def _note(text: str) -> str:
    """Return a note as one line in which nothing is Markdown or a tag; "" for nothing."""
    return screening.shortened(observations.clean(text), _NOTE_CHARS_MAX)


def _same(note: str, rows: Sequence[str]) -> str:
    """Return the row that says the same as a note, or ""."""
    texts = {row: match[2] for row in rows if (match := re.match(_NOTE, row.rstrip("\r\n")))}
    undated = {row: row.lstrip("-*+ ") for row in rows if row not in texts}  # a person's
    exact = next((row for row, text in (texts | undated).items() if normalise(text) == normalise(note)), "")
    if exact:
        return exact.strip()
    close = Near.same(note, list(texts.items()), _SAME_MIN)
    return close.id.strip() if close is not None else ""


def _noted(page: Page) -> list[Row]:
    inside = [row for section in page.named(_NOTES)[:1] for row in page.inside(section) if not row.is_code]
    return [row for row in inside if re.fullmatch(_NOTE, row.text.rstrip())]


# --- the user model, and the next checks ----------------------------------------------------------------------------


class UserModel:
    """User model: dated observations of people, under the name of each."""

    def __init__(self, page: bytes) -> None:
        self._page = Page.parse(page.decode("utf-8", "surrogateescape"))

    def with_observed(self, updates: dict[str, tuple[str, ...]], day: str) -> tuple[bytes, list[str]]:
        """Return the page with the observations that are new, and their rows."""
        page, added = self._page, list[str]()
        for peer, notes in updates.items():
            name = screening.one_line(screening.readable(peer))[:_PEER_CHARS_MAX].rstrip("# ") or "unknown"
            section = next((each for each in page.sections if each.title == name), None)
            known, new = [row.text for row in page.inside(section)] if section else [], list[str]()
            for note in filter(None, map(_note, notes)):
                new += [] if _same(note, [*known, *new]) else [f"- {day}: {note}"]
            heading = [] if section else [*([""] if page.lines else ["# User model", ""]), f"## {name}"]
            end = page.content_end(section) if section else len(page.lines)
            page = Page.parse(page.with_lines(end, [*heading, *new])) if new else page
            added += [f"{name}: {row}" for row in new]
        return "".join(page.lines).encode("utf-8", "surrogateescape"), added

    def shown(self, chars_max: int) -> str:
        """Return the newest observations of each person, a person's own rows among them, for a session's start."""
        lines: list[str] = []
        for section in self._page.sections:
            rows = [row.text for row in self._page.inside(section) if re.match(r"- \S", row.text)]
            lines += [f"- {section.title}: {row[2:]}" for row in reversed(rows[-_OBSERVATIONS_MAX:])]
        return "\n".join(_fitting(lines, chars_max))


class Checks:
    """Next checks: a line each with its time."""

    def __init__(self, page: bytes) -> None:
        self._page = page

    def with_check(self, at: str, what: str) -> bytes:
        """Return the page with one more check."""
        row = f"- {at}: {_note(what) or 'look again'}\n".encode()
        head = self._page or b"# Next checks\n\n"
        return head if row.strip() in self._page.splitlines() else _ended(head) + row

    def due(self, now: str, since: str) -> list[str]:
        """Return the checks that came due between two times, as sentences."""
        rows = (re.fullmatch(_CHECK, each.strip()) for each in self._page.decode("utf-8", "replace").splitlines())
        checks = [(row[1], row[2]) for row in rows if row]
        return [f"due since {at[:10]}: {screening.readable(what)}" for at, what in checks if since <= at <= now]


def _ended(page: bytes) -> bytes:
    return page + (b"" if page.endswith(b"\n") else b"\n")


def _fitting(rows: Iterable[str], chars_max: int) -> list[str]:
    """Return the first rows that fit, as an agent reads them."""
    fitting: list[str] = []
    for row in rows:
        shown = screening.for_terminal(screening.inert(screening.redact(screening.screen(row).text)))
        chars_max -= len(shown) + 1
        if chars_max < 0:
            break
        fitting.append(shown)
    return fitting
