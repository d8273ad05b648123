"""Daily logs: ``.agents/logs/YYYY-MM-DD.md``, append-only, a block for each session, read in every known form. Pure.

A block of ours names its session, and the moment, in a comment under its heading. A block without one is a session of
its own, as it says: told apart by its day and heading, never by counting files.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleet.reflect.observations import Row, Said, comment, observed, session_key, whose
from fleet.reflect.reflection import Reflection
from fleet.reflect.scratchpad import parse
from fleet.text import dates

FOLDER = ".agents/logs"
DAYS = 7
BYTES_MAX = 1024 * 1024
"""So much of one day's log is read."""
CHANGED, WORKED, FAILED, LEARNED, DECIDED, OBSERVED = (
    *("What Changed", "What Worked", "What Didn't", "Patterns Learned", "Decisions Made", "Observations (auto)"),
)

_FILE = re.compile(r"(\d{4}-\d{2}-\d{2})\.md")
_BLOCK = re.compile(
    r"##[ \t]+(?:Session\b[ \t:—–-]*)?(?P<time>\d{1,2}:\d{2}(?::\d{2})?)?[ \t]*"
    r"(?P<zone>[A-Za-z]{1,5}|[+-]\d{2}:?\d{2})?\b.*",
    re.IGNORECASE,
)
_SESSION = re.compile(r"##[ \t]+(?:session\b|\d{1,2}:\d{2})", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}(#{3,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_BULLET = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)")
_LABELLED = re.compile(
    r"\*{0,2}(?:done|worked|did(?:n['’]?t| not) work|decided|learned)\*{0,2}[ \t]*:\*{0,2}[ \t]*", re.IGNORECASE
)
_NOTHING = frozenset({"none", "nothing", "n/a", "na", "-", "—", "(none)", "none."})
_KINDS = {
    **dict.fromkeys(("whatchanged", "changes", "done"), "done"),
    **dict.fromkeys(("whatworked", "worked"), "worked"),
    **dict.fromkeys(("whatdidnt", "whatdidntwork", "whatdidnotwork", "deadends"), "failed"),
    **dict.fromkeys(("patternslearned", "patterns", "learned", "gotchas"), "learned"),
    **dict.fromkeys(("decisionsmade", "decisions", "preferences"), "decided"),
    **dict.fromkeys(("observationsauto", "observations"), "observed"),
}


class Told(NamedTuple):
    """What a session's block says, a text for each line."""

    changed: Sequence[str] = ()
    worked: Sequence[str] = ()
    failed: Sequence[str] = ()
    learned: Sequence[str] = ()
    decided: Sequence[str] = ()
    observed: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not any(self)


def told_of(said: Reflection) -> Told:
    """Return what a reflection on a session says, as the lines of a block."""
    return Told(
        worked=tuple(filter(None, [said.what_worked])),
        failed=tuple(filter(None, [said.what_didnt])),
        learned=(*(each.text for each in said.lessons), *said.memory_notes),
    )


class Block(NamedTuple):
    """One session's block of a daily log.

    Attributes:
        at: the minute, or the day where it tells no time.
        stamp: the moment to the second, "" in a block that fleet did not write.
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


def day_of(path: str) -> str:
    """Return the day of a log, by its file's name; "" for another file."""
    found = _FILE.fullmatch(path.rpartition("/")[2])
    return found[1] if found and dates.to_ms(found[1]) is not None else ""


def path_of(day: str) -> str:
    """Return the path of a day's log, below the project's root."""
    return f"{FOLDER}/{day}.md"


# --- writing --------------------------------------------------------------------------------------------------------


def head(day: str) -> str:
    """Return the first line of a day's log, and a blank one."""
    return f"# Daily Log — {day}\n\n"


def block(stamp: str, agent: str, session: str, told: Told) -> str:
    """Return a session's block, as it is appended.

    ``stamp``: the moment, ``2026-03-18T14:32:05Z``, in UTC.
    """
    lines = [f"## Session {stamp[11:16]} UTC", "", comment(agent, session, stamp), ""]
    for title, said in zip((CHANGED, WORKED, FAILED, LEARNED, DECIDED), told[:5], strict=True):
        if said:
            lines += [f"### {title}", "", *(f"- {each}" for each in said), ""]
    if told.observed:
        lines += [f"### {OBSERVED}", "", *told.observed, ""]
    return "\n".join(lines) + "\n"


def with_block(text: str, day: str, block: str) -> str:
    """Return a day's log with a block more, behind all that is there."""
    gap = "" if text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{block}" if text else f"{head(day)}{block}"


def with_observation(text: str, day: str, stamp: str, agent: str, session: str, line: str) -> str:
    """Return what has to be appended to a day's log, for one more observation of a session."""
    more = "" if not text or text.endswith("\n") else "\n"
    if not text.strip():
        return head(day) + block(stamp, agent, session, Told(observed=(line,)))
    page = parse(text)
    last = page.sections[-1] if page.sections else None
    found = page.inside(last) if last is not None else []
    titles = [_kind(match[2]) for row in found if (match := _HEADING.fullmatch(row.text.rstrip()))]
    by = next((by for row in found if not row.text.strip() and (by := whose(row.comments))), None)
    if (
        titles[-1:] == ["observed"]
        and by is not None
        and session_key(agent, session) == f"{by.agent} {by.session}".strip()
    ):
        is_gap = text.endswith("\n\n")
        return f"{more}{line}\n" if not is_gap else f"{line}\n"
    gap = "" if text.endswith("\n\n") else "\n"
    return more + gap + block(stamp, agent, session, Told(observed=(line,)))


# --- reading --------------------------------------------------------------------------------------------------------


def blocks(text: str, day: str) -> list[Block]:
    """Return the sessions' blocks of a day's log, in their order."""
    page = parse(text[:BYTES_MAX])
    heads = [each for each in page.sections if each.level == 2 and _SESSION.match(page.lines[each.heading].lstrip())]
    found = []
    for at, section in enumerate(heads):
        end = heads[at + 1].heading if at + 1 < len(heads) else len(page.lines)
        inside = [row for row in page.rows if section.heading < row.number - 1 < end]
        heading = next(row for row in page.rows if row.number - 1 == section.heading)
        found.append(_block(heading, inside, day))
    return found


def _block(heading: Row, inside: list[Row], day: str) -> Block:
    match = _BLOCK.fullmatch(heading.text.strip())
    time, zone = (match["time"] or "", match["zone"] or "") if match else ("", "")
    at = day
    if time:
        offset = zone if zone[:1] in ("+", "-") else "Z"
        ms = dates.to_ms(f"{day}T{time}{offset}")
        at = f"{day}T{int(time.partition(':')[0]):02}:{time.split(':')[1]}Z" if ms is not None else day
    marked = [heading.comments, *(row.comments for row in inside if not row.text.strip())]
    by = next((by for each in marked if (by := whose(each))), None)
    topic = next((m[2] for row in inside if (m := _HEADING.fullmatch(row.text.rstrip())) and m[2][:1].isdigit()), "")
    unnamed = f"@block {day} {heading.text.strip()[2:].strip()} {topic}".rstrip()
    session = f"{by.agent} {by.session}" if by and by.session else unnamed
    stamp = by.at if by else ""
    said, kinds = _said(inside, at, session)
    return Block(session, at, tuple(said), stamp, bool(kinds - {"observed"}))


def _said(inside: Iterable[Row], at: str, session: str) -> tuple[list[Said], set[str]]:
    said: list[Said] = []
    kinds: set[str] = set()
    kind, watched = "", list[Row]()
    for row in inside:
        text = row.text.strip()
        if row.is_code or not text or text in ("---", "***"):
            continue
        if heading := _HEADING.fullmatch(row.text.rstrip()):
            kind = _kind(heading[2]) or kind
            continue
        if kind == "observed":
            watched.append(row)
            continue
        match = _BULLET.fullmatch(row.text.rstrip())
        words = _LABELLED.sub("", match["text"] if match else text).strip()
        if words and words.casefold() not in _NOTHING:
            kinds.add(kind or "done")
            said.append(Said(words, at, session, kind))
    if watched:
        kinds.add("observed")
        # What fleet put there names its session; what others did is of the block's.
        said += [each if each.is_known else each._replace(session=session) for each in observed(watched)]
    return said, kinds


def _kind(title: str) -> str:
    return _KINDS.get(re.sub(r"[^a-z]+", "", title.casefold()), "")
