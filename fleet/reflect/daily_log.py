"""Daily logs: ``.agents/logs/YYYY-MM-DD.md``, append-only, a block for each session, read in every known form. Pure.

A block of ours names its session, and the moment, in a comment under its heading. A block without one is a session of
its own, as it says: told apart by its day and heading, never by counting files.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fleet.reflect.observations import Row, Said, Whose
from fleet.reflect.scratchpad import Page, labelled
from fleet.text import dates

FOLDER = ".agents/logs"
DAYS = 7
BYTES_MAX = 1024 * 1024
"""So much of one day's log is read."""

_TITLES = {
    "done": "What Changed",
    "worked": "What Worked",
    "failed": "What Didn't",
    "learned": "Patterns Learned",
    "decided": "Decisions Made",
    "observed": "Observations (auto)",
}
"""Heading of each kind of thing that a block says, in their order."""
_GATHERED = "## Session 00:00 UTC"
"""Heading of a block of lines that were moved here: of no session of its own, at no time that is known."""
_FILE = re.compile(r"(\d{4}-\d{2}-\d{2})\.md")
_SESSION = re.compile(r"##[ \t]+(?=session\b|\d{1,2}:\d{2})\D{0,16}(?P<time>\d{1,2}:\d{2})?.*", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}(#{3,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_NOTHING = frozenset({"none", "nothing", "n/a", "na", "-", "—", "(none)", "none."})


class Block(NamedTuple):
    """One session's block of a daily log.

    Attributes:
        at: the minute, or the day where it tells no time.
        stamp: the moment to the second, "" in a block that fleet did not write.
        is_whole: it says more than what was observed.
    """

    session: str
    at: str
    said: tuple[Said, ...]
    stamp: str = ""
    is_whole: bool = False

    @property
    def sessions(self) -> frozenset[str]:
        """Keys of the sessions that it is about: its own, or in one that only gathers observations, theirs."""
        if not self.session.startswith("@") or self.is_whole:
            return frozenset((self.session,))
        return frozenset(each.session for each in self.said)

    @property
    def ends_ms(self) -> int:
        """The moment it was written at the latest, milliseconds since 1970; 0 when it is not known."""
        if self.stamp:
            return dates.to_ms(self.stamp) or 0
        found = dates.to_ms(self.at) or 0
        return found + (59_999 if ":" in self.at else 86_399_999) if found else 0


class DailyLog:
    """One day's log: its blocks, and what is appended for another."""

    def __init__(self, day: str, text: str = "") -> None:
        self.path = f"{FOLDER}/{day}.md"
        self._day, self._text = day, text

    @staticmethod
    def day_of(path: str) -> str:
        """Return the day of a log, by its file's name; "" for another file."""
        found = _FILE.fullmatch(path.rpartition("/")[2])
        return found[1] if found and dates.to_ms(found[1]) is not None else ""

    # --- writing ------------------------------------------------------------------------------------------------------

    def more_for(self, whose: Whose, told: Mapping[str, Iterable[str]]) -> str:
        """Return what is appended for a session's block.

        ``whose``: with the moment, in UTC, to the second.
        ``told``: kind (done, worked, failed, learned, decided) to texts; observed: lines as they are to stand.
        """
        lines = [f"## Session {whose.at[11:16]} UTC", "", whose.comment(), ""]
        for kind, title in _TITLES.items():
            if said := [each if kind == "observed" else f"- {each}" for each in told.get(kind, ())]:
                lines += [f"### {title}", "", *said, ""]
        return self._begun() + "\n".join(lines) + "\n"

    def more_observed(self, whose: Whose, line: str) -> str:
        """Return what is appended for an observation: the line alone where its session's observations are the last."""
        last = self._text[self._text.rfind("\n## ") + 1 :]
        at = last.rfind("\n### ")
        if (
            last.startswith("## ")
            and f"<!-- {whose.key} " in last
            and at == last.rfind(f"\n### {_TITLES['observed']}\n") > 0
        ):
            return f"{line}\n" if last.endswith("\n") else f"\n{line}\n"
        return self.more_for(whose, {"observed": (line,)})

    def more_gathered(self, lines: Iterable[str], *, is_observed: bool) -> str:
        """Return what is appended for lines that were moved here, as they stood."""
        title = [f"### {_TITLES['observed']}", ""] if is_observed else []
        return self._begun() + "\n".join([_GATHERED, "", *title, *lines, ""]) + "\n"

    def _begun(self) -> str:
        if not self._text.strip():
            return f"# Daily Log — {self._day}\n\n"
        return "" if self._text.endswith("\n\n") else "\n" if self._text.endswith("\n") else "\n\n"

    # --- reading ------------------------------------------------------------------------------------------------------

    def blocks(self) -> list[Block]:
        """Return the sessions' blocks, in their order."""
        page = Page.parse(self._text[:BYTES_MAX])
        found: list[Block] = []
        met = Counter[str]()
        rows = {row.number - 1: row for row in page.rows}
        for section in page.sections:
            heading = rows[section.heading]
            if (match := _SESSION.fullmatch(heading.text.strip())) is None:
                continue
            met[title := heading.text.strip().lstrip("# ")] += 1
            unnamed = f"@block {self._day} {title}{f' {met[title]}' if met[title] > 1 else ''}"
            found.append(self._block(unnamed, match["time"] or "", [heading, *page.inside(section)]))
        return found

    def _block(self, unnamed: str, time: str, inside: list[Row]) -> Block:
        ms = dates.to_ms(f"{self._day}T{time}Z") if time else None
        at = self._day if ms is None else f"{self._day}T{time:0>5}Z"
        marks = (row.whose for row in inside if row is inside[0] or not row.text.strip())
        by = next((each for each in marks if each is not None), None)
        session = by.key if by and by.mark else unnamed
        said, kinds = _said(inside[1:], at, session)
        return Block(session, at, tuple(said), by.at if by else "", bool(kinds - {"observed"}))


def _said(inside: Iterable[Row], at: str, session: str) -> tuple[list[Said], set[str]]:
    """Return what the rows of a block say, and of what kinds that is."""
    said: list[Said] = []
    kinds: set[str] = set()
    kind, watched = "", list[Row]()
    for row in inside:
        if row.is_code or row.text.strip() in ("", "---", "***"):
            continue
        if heading := _HEADING.fullmatch(row.text.rstrip()):
            kind = _kind(heading[2]) or kind
            continue
        if kind == "observed":
            watched.append(row)
            continue
        own, words = labelled(row.text)
        if words and words.casefold() not in _NOTHING:
            kinds.add(own or kind or "done")
            said.append(Said(words, at, session, own or kind))
    if watched:
        kinds.add("observed")
        # What fleet put there names its session; what others did is of the block's.
        said += [each if each.is_known else each._replace(session=session) for each in Said.observed(watched)]
    return said, kinds


def _kind(title: str) -> str:
    wanted = _letters(title)
    return next((kind for kind, name in _TITLES.items() if wanted.startswith(_letters(name))), "")


def _letters(title: str) -> str:
    return re.sub(r"[^a-z]+", "", title.casefold()).removesuffix("auto")
