"""Files that a reflection keeps notes in, as pure functions from bytes to bytes: memory, archive, user model, checks.

A note of the memory is a line ``- 2026-05-09: note`` under ``## Notes`` of memory.md. There are at most ``NOTES_MAX``
of them; what is beyond goes, oldest first, to an archive of its day. Every line that is none stays where it is, byte
for byte: the page is a person's. Notes have a room of their own at a session's start, and take none from a lesson.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleet.model.names import normalise
from fleet.text import screening
from fleet.text.similarity import near

NOTES_MAX = 50
NOTES_A_SESSION_MAX = 5
ROOM_CHARS = 1_000
"""Of a session's start, for the notes."""
USER_MODEL, CHECKS = "user-model.md", "checks.md"
_SAME_MIN = 0.95
"""A note in nearly the same words is the same. Two that only resemble each other are two: nothing is lost."""
_NOTE_CHARS_MAX = 300
_PEER_CHARS_MAX = 80
_OBSERVATIONS_MAX = 30
_NOTE = re.compile(r"- (\d{4}-\d{2}-\d{2}): (\S.*)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CHECK = re.compile(r"- (\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z): (\S.*)")


class Noted(NamedTuple):
    """Outcome of adding notes.

    Attributes:
        page: the file afterwards.
        added: the notes that were added, as lines.
        archived: the lines that left it.
        skipped: what was not added, each with the reason, in a sentence.
    """

    page: bytes
    added: tuple[str, ...]
    archived: tuple[str, ...]
    skipped: tuple[str, ...]


def add(page: bytes, said: Sequence[str], day: str, agent: str, limit: int = NOTES_A_SESSION_MAX) -> Noted:
    """Return a memory with more notes, each once; what says the same as one that is there is not added.

    Args:
        page: ``memory.md``.
        said: the notes, screened.
        day: of today, YYYY-MM-DD.
        agent: whose memory, for the heading of a new page.
        limit: how many may be added.
    """
    text = page.decode("utf-8", "surrogateescape")
    eol = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    rows = text.splitlines(keepends=True)
    known = [rows[at] for at in _note_rows(rows)]
    added: list[str] = []
    skipped: list[str] = []
    for each in said:
        note = _note(each)
        if not note:
            continue
        if same := _same(note, [*known, *added]):
            skipped.append(f"{note[:80]!r} is there already: {same[:80]}")
        elif len(added) >= limit:
            skipped.append(f"{note[:80]!r} is one more than {NOTES_A_SESSION_MAX} notes of one session")
        else:
            added.append(f"- {day}: {note}")
    if not added:
        return Noted(page, (), (), tuple(skipped))
    if not text.strip():
        rows = [f"# Memory — {agent}{eol}", eol]
    rows = _inserted(rows, [f"{row}{eol}" for row in added], eol)
    over = _note_rows(rows)[: max(0, len(_note_rows(rows)) - NOTES_MAX)]
    archived = tuple(rows[at].rstrip("\r\n") for at in over)
    kept = "".join(row for at, row in enumerate(rows) if at not in set(over))
    return Noted(kept.encode("utf-8", "surrogateescape"), tuple(added), archived, tuple(skipped))


def archive(page: bytes, rows: Iterable[str], agent: str, day: str) -> bytes:
    """Return an archive with more rows at its end; its heading, and every line that is there, stay."""
    head = page or f"# Archive — {agent} — {day}\n\n".encode()
    known = set(head.decode("utf-8", "replace").splitlines())
    fresh = [row for row in rows if row not in known]
    gap = b"" if head.endswith(b"\n") else b"\n"
    return head + gap + "".join(f"{row}\n" for row in fresh).encode("utf-8", "surrogateescape")


def without_notes(text: str) -> str:
    """Return a memory without its dated notes, and without their heading where nothing else is under it."""
    rows = text.splitlines(keepends=True)
    gone = set(_note_rows(rows))
    return "".join(row for at, row in enumerate(rows) if at not in gone)


def newest(text: str, chars_max: int = ROOM_CHARS) -> str:
    """Return the notes of a memory for a session's start, the newest first, as many as there is room for; screened."""
    rows = text.splitlines()
    dated = sorted(((rows[at], at) for at in _note_rows(rows)), key=lambda each: (each[0][2:12], each[1]), reverse=True)
    kept: list[str] = []
    for row, _ in dated:
        shown = _shown(row)
        if len(shown) + 1 > chars_max:
            break
        kept.append(shown)
        chars_max -= len(shown) + 1
    left = len(dated) - len(kept)
    more = [f"({left} older notes are in memory.md)"] if left and kept else []
    return "\n".join([*kept, *more])


def _shown(row: str) -> str:
    """Return a row as an agent reads it."""
    return screening.for_terminal(screening.inert(screening.redact(screening.screen(row).text)))


def _note(said: str) -> str:
    """Return a note as one line in which nothing is Markdown or a tag; "" for nothing."""
    line = screening.one_line(screening.readable(said)).lstrip("-*# ")
    line = line.replace("<!--", "‹!--").replace("-->", "--›")
    return line if len(line) <= _NOTE_CHARS_MAX else f"{line[: _NOTE_CHARS_MAX - 1].rstrip()}…"


def _same(note: str, known: Sequence[str]) -> str:
    """Return the row that says the same as a note, or ""."""
    said = {row: found[2] for row in known if (found := _NOTE.match(row.rstrip("\r\n")))}
    exact = next((row for row, text in said.items() if normalise(text) == normalise(note)), "")
    if exact:
        return exact.strip()
    close = near(note, list(said.items()), 1)
    return close[0].id.strip() if close and close[0].score >= _SAME_MIN and not close[0].differs else ""


def _note_rows(rows: Sequence[str]) -> list[int]:
    """Return where the dated notes are, in the order of the page."""
    begin, end = _section(rows)
    return [at for at in range(begin, end) if _NOTE.fullmatch(rows[at].rstrip("\r\n"))]


def _section(rows: Sequence[str]) -> tuple[int, int]:
    """Return where the notes begin and end: the lines below ``## Notes``, up to the next heading; (0, 0) for none."""
    fence, begin, level = "", 0, 0
    for at, row in enumerate(rows):
        bare = row.rstrip("\r\n")
        if found := _FENCE.match(bare):
            if not fence:
                fence = found[1][:3]
            elif bare.strip().startswith(fence):
                fence = ""
            continue
        heading = None if fence else _HEADING.fullmatch(bare)
        if heading is None:
            continue
        if begin and len(heading[1]) <= level:
            return begin, at
        if not begin and heading[2].strip().lower() == "notes":
            begin, level = at + 1, len(heading[1])
    return (begin, len(rows)) if begin else (0, 0)


def _inserted(rows: list[str], fresh: list[str], eol: str) -> list[str]:
    begin, end = _section(rows)
    if not begin:
        if rows and not rows[-1].endswith("\n"):
            rows[-1] += eol
        gap = [eol] if rows and rows[-1].strip() else []
        return [*rows, *gap, f"## Notes{eol}", *fresh]
    at = end
    while at > begin and not rows[at - 1].strip():  # before the blank lines that end the section
        at -= 1
    if not rows[at - 1].endswith("\n"):
        rows[at - 1] += eol
    return [*rows[:at], *fresh, *rows[at:]]


# --- the user model ---------------------------------------------------------------------------------------------------


def observed(page: bytes, updates: dict[str, tuple[str, ...]], day: str) -> tuple[bytes, list[str]]:
    """Return a user model with more observations, each once, and the rows that were added.

    Args:
        page: ``user-model.md``: a heading for each person, dated lines below it.
        updates: observations by person, screened.
        day: of today.
    """
    rows = page.decode("utf-8", "surrogateescape").splitlines()
    added: list[str] = []
    for peer, said in updates.items():
        name = screening.one_line(screening.readable(peer))[:_PEER_CHARS_MAX] or "unknown"
        head = f"## {name}"
        if head not in rows:
            rows += [*([""] if rows else ["# User model", ""]), head]
        at = rows.index(head) + 1
        end = next((n for n in range(at, len(rows)) if rows[n].startswith("## ")), len(rows))
        known = rows[at:end]
        while end > at and not rows[end - 1].strip():
            end -= 1
        fresh = [f"- {day}: {note}" for each in said if (note := _note(each)) and not _same(note, known)]
        rows[end:end] = fresh
        added += [f"{name}: {row}" for row in fresh]
    return ("\n".join(rows) + "\n").encode("utf-8", "surrogateescape") if added else page, added


def known_of_people(text: str, chars_max: int) -> str:
    """Return the user model for a session's start: the newest observations of each person, screened."""
    kept: list[str] = []
    for part in re.split(r"(?m)^## ", text)[1:]:
        name, *rows = part.splitlines()
        said = [row for row in rows if _NOTE.fullmatch(row)][-_OBSERVATIONS_MAX:]
        for row in reversed(said):
            line = _shown(f"- {name}: {row[2:]}")
            if len(line) + 1 > chars_max:
                return "\n".join(kept)
            kept.append(line)
            chars_max -= len(line) + 1
    return "\n".join(kept)


# --- the next check ---------------------------------------------------------------------------------------------------


def with_check(page: bytes, at: str, what: str) -> bytes:
    """Return the checks with one more."""
    head = page or b"# Next checks\n\n"
    row = f"- {at}: {_note(what) or 'look again'}\n".encode()
    return head if row.strip() in page.splitlines() else head + (b"" if head.endswith(b"\n") else b"\n") + row


def due(text: str, now: str, since: str) -> list[str]:
    """Return the checks that are due.

    Args:
        text: ``checks.md``.
        now: a moment, as ISO 8601 in UTC.
        since: what was due before it is told no more.
    """
    found = [(row[1], row[2]) for each in text.splitlines() if (row := _CHECK.fullmatch(each.strip()))]
    return [f"due since {at[:10]}: {screening.readable(what)}" for at, what in found if since <= at <= now]
