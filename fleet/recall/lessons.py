"""Which lessons come first, and how their evidence reads: shared by the page and by what a session starts with.

Choosing looks at every lesson of the clan and must stay cheap; screening is dear, and is left to what is shown.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from crdt import clock
from fleet.keep import names, notebook
from fleet.keep.line import Line
from fleet.keep.screening import for_terminal, is_harmless, one_line, redact, screen

LOG_A_CORRECTION = 'fleet correct --wrong "..." --right "..." --pattern "..."'
EMOJI_CHARS_MAX = 8
_FIRST_DAY = "2000"
UNREADABLE = "(nothing that can be shown)"

Rank = tuple[bool, int, int, int, str]


def day(stamp: str) -> str:
    """Return the date of a stamp, "" when it is not known: a record without a date is stamped 1970."""
    return stamp[:10] if stamp >= _FIRST_DAY and clock.is_stamp(stamp) else ""


def screened(value: object) -> str:
    """Return a field as one line that is fit to leave; what is no text, as a peer may send it, is empty."""
    return _screened(value) if isinstance(value, str) else ""


@lru_cache(maxsize=256)  # a page repeats its categories and agents on every second line
def _screened(text: str) -> str:
    if is_harmless(text):
        return one_line(text)  # no hint has a blank in it, so none comes up where a line ended
    found = screen(text)
    line = one_line(found.text)
    if line == text and not found.secrets:
        return line  # as most texts are that only hint at a secret: one line already, and just searched for one
    # Redacted once more as one line: a line end may have stood between a name and its secret.
    return redact(line)


def readable(value: object) -> str:
    """Return a field as one line for a terminal or an agent."""
    return for_terminal(screened(value))


def is_published(line: Line) -> bool:
    """Tell whether the lesson was promoted: logging never writes a state."""
    return bool(line.set.get("state") == "published")


def not_working(line: Line) -> str:
    """Return why a lesson does not work, in words, or "" when nothing says so.

    It does not work when it hurt more often than it helped, as whoever used it says (``fleet feedback``). Nor does it
    when, since it was published, a replica met its mistake again that is known to have met it with the lesson before
    its eyes. Counters bear no time: a relapse is dated by the replica's newest occurrence, so one from before the
    promotion, as the third occurrence may be, does not count until another follows.
    """
    hurt, helped = notebook.count(line, "hurt"), notebook.count(line, "helped")
    if hurt > helped:
        return f"hurt {counted(hurt, 'time', 'times')}, helped {helped:,}"
    if not is_published(line):
        return ""
    since = line.when["state"][0] if "state" in line.when else ""
    relapsed = line.n.get("relapsed", {})
    replicas = [replica for replica, total in relapsed.items() if total and line.add.get(replica, "") > since]
    again = sorted({names.agent_of(replica) for replica in replicas})
    return f"the mistake was made again since it was promoted, by {', '.join(again)}" if again else ""


def by_sight(line: Line) -> Rank:
    """Rank for a page: published first, then most seen, then id."""
    return (line.set.get("state") != "published", -notebook.count(line, "seen"), 0, 0, line.id)


def by_evidence(line: Line) -> Rank:
    """Rank for a session: published first, then by independent evidence: agents, sessions, occurrences, then id."""
    seen, sessions = notebook.count(line, "seen"), notebook.count(line, "sessions")
    return (line.set.get("state") != "published", -notebook.witnesses(line), -sessions, -seen, line.id)


def best(lessons: Iterable[Line], count: int, rank: Callable[[Line], Rank]) -> tuple[list[Line], int]:
    """Return the best ``count`` of the lessons that are in and have a text, best first, and how many such there are."""
    total = 0

    def present() -> Iterator[Line]:
        nonlocal total
        for line in lessons:
            # No remove at all is the common case, and a call less for each of 100,000.
            if ((line.add and not line.rem) or notebook.is_present(line)) and notebook.text(line):
                total += 1
                yield line

    chosen = heapq.nsmallest(max(count, 0), present(), key=rank)
    if count <= 0:  # then nothing was read yet, and so nothing counted
        total = sum(1 for _ in present())
    return chosen, total


def emoji(agent: str, members: Mapping[str, str]) -> str:
    """Return the agent's emoji, or "": what is too long to be one is none."""
    mark = readable(members.get(agent))
    return mark if len(mark) <= EMOJI_CHARS_MAX else ""


def named(agent: str, members: Mapping[str, str]) -> str:
    """Return how an agent is shown: its emoji, when known, and its name."""
    return f"{emoji(agent, members)} {readable(agent)}".strip()


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun: ``1 lesson``, ``1,200 lessons``."""
    return f"{number:,} {one if number == 1 else many}"
