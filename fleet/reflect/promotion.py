"""What evidence makes a lesson permanent: rules over records, without a file or a clock (DESIGN, section 7).

Two ways lead into an agent's memory without a person. Its *own* third occurrence, relapses included: whoever makes a
mistake again although the lesson stood before it needs the lesson most. And, for a lesson of *others*, independent
evidence: an occurrence that came after the lesson had been shown says that the lesson is read, not that it is true, so
relapses count nothing there; nor do slots of imported records, which are no agent.

What is counted is a record, and what enters a memory is its words. So the words must be those that were counted:
``doubt`` says when somebody may have put other words in their place.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from fleet.keep import names
from fleet.keep.config import Promotion
from fleet.keep.line import Line
from fleet.keep.normal import normalise, pattern_id
from fleet.keep.notebook import MERGED_INTO, as_text, is_present, merged_into, text
from fleet.keep.screening import for_terminal, one_line, redact, screen

OWN, CLAN, PERSON = "own", "clan", "person"
PUBLISHED, CANDIDATE, RETIRED = "published", "candidate", "retired"

_NO_WORDS = "*_`~#-=|<>[](){}.,;:!?'\" "


DUE_MAX = 50


class Due(NamedTuple):
    """A lesson that belongs into an agent's memory.

    Attributes:
        id: of the pattern.
        reason: ``own``, ``clan`` or ``person``.
        evidence: what speaks for it now, in words.
    """

    id: str
    reason: str
    evidence: str


class Independent(NamedTuple):
    """What speaks for a lesson apart from those who had read it.

    Attributes:
        seen: occurrences without relapses.
        agents: of how many agents. Many replicas of one agent are one.
        sessions: in how many sessions. Counted by each replica, since session ids never travel; an agent without any
            counts one, and none counts more than its occurrences.
    """

    seen: int
    agents: int
    sessions: int


def due(lines: Iterable[Line], agent: str, settings: Promotion, known: set[str]) -> list[Due]:
    """Return what belongs into this agent's memory and is not there: its own first, then the best-evidenced.

    Args:
        lines: lessons, each merged set as one (``merging.shown``, ``merging.whole``).
        agent: whose memory.
        settings: the thresholds.
        known: ids that are in that memory, or were and were taken out.

    Returns:
        At most ``DUE_MAX``: no memory holds more, and the others are due again when there is room.
    """
    found: list[tuple[tuple[int, int, int, str], Line, str, str]] = []
    least = least_seen(settings)
    for line in lines:
        seen = line.n.get("seen", {})
        if sum(seen.values()) < least or line.id in known:
            continue
        own = own_count(line, agent)
        is_own = own >= settings.own
        if not is_own and len(seen) < settings.clan_agents:
            continue  # most lessons are one agent's
        if is_own:
            found.append(((0, -own, 0, line.id), line, OWN, f"seen {own:,} by {agent}"))
        elif _is_enough(others := independent(line), settings):
            evidence = f"seen {others.seen:,} by {others.agents:,} {'agent' if others.agents == 1 else 'agents'}"
            found.append(((1, -others.agents, -others.seen, line.id), line, CLAN, evidence))
    found.sort(key=lambda each: each[0])
    # Screening is dear, and is left to those that have the numbers.
    standing = (Due(line.id, why, told) for _, line, why, told in found if can_be_promoted(line))
    return list(islice(standing, DUE_MAX))


def least_seen(settings: Promotion) -> int:
    """Return below how many occurrences in all no lesson is ever due: others need not be looked at."""
    return min(settings.own, settings.clan_seen)


def own_count(line: Line, agent: str) -> int:
    """Return how often this agent met it, on any machine, relapses included."""
    return sum(total for replica, total in line.n.get("seen", {}).items() if names.agent_of(replica) == agent)


def independent(line: Line) -> Independent:
    """Return the evidence that does not lean on the lesson itself."""
    relapsed, met_in = line.n.get("relapsed", {}), line.n.get("sessions", {})
    seen: dict[str, int] = defaultdict(int)
    sessions: dict[str, int] = defaultdict(int)
    for replica, total in line.n.get("seen", {}).items():
        agent, fresh = names.agent_of(replica), total - relapsed.get(replica, 0)
        if fresh > 0 and names.is_agent(agent):
            seen[agent] += fresh
            sessions[agent] += min(met_in.get(replica, 0), fresh)
    return Independent(sum(seen.values()), len(seen), sum(max(1, sessions[agent]) for agent in seen))


def _is_enough(found: Independent, settings: Promotion) -> bool:
    return (
        found.seen >= settings.clan_seen
        and found.agents >= settings.clan_agents
        and found.sessions >= settings.clan_sessions
    )


def can_be_promoted(line: Line) -> bool:
    """Tell whether a lesson can stand in a memory at all: it is in, stands for itself, and has words."""
    if not is_present(line) or line.set.get("state") == RETIRED or merged_into(line):
        return False
    return bool(normalise(readable(text(line))).strip(_NO_WORDS))


def readable(value: object) -> str:
    """Return a field as one line that is fit for an agent, "" for what is no text."""
    return _readable(as_text(value))


@lru_cache(maxsize=2 * DUE_MAX)
def _readable(words: str) -> str:
    """A lesson that is due is looked at four times over before it stands in a memory."""
    return for_terminal(redact(one_line(screen(words).text)))


def doubt(line: Line, records: Sequence[Line], agent: str) -> str:
    """Return why the counts do not vouch for the words of a lesson, or "".

    An id is the hash of the words that were counted. Other words under it were set later, and a merge gives one record
    the counts of another: each takes a single writer. So words that this agent set are its own affair; any others
    must have been met by somebody beside those who merged them in.

    Args:
        line: the lesson, a merged set as one.
        records: the set's own records; none when it is not merged.
        agent: whose memory it would enter.
    """
    editor = _writer(line, "text")
    if pattern_id(text(line)) != line.id and editor != agent:
        return f"its words were changed{f' by {editor}' if editor else ''} after they were logged"
    mergers = {_writer(record, MERGED_INTO) for record in records if merged_into(record)}
    shown = next((record for record in records if record.id == line.id), line)
    witnesses = {
        names.agent_of(replica)
        for replica, total in shown.n.get("seen", {}).items()
        if total > shown.n.get("relapsed", {}).get(replica, 0) or names.agent_of(replica) == agent
    } - {names.IMPORT}
    # A merge without a writer may be anybody's: then nobody but ourselves is known to be somebody else.
    others = set() if "" in mergers else witnesses - mergers
    if mergers - {agent} and agent not in witnesses and not others:
        return f"{' and '.join(sorted(filter(None, mergers))) or 'somebody'} merged it, and nobody else met these words"
    return ""


def _writer(line: Line, field: str) -> str:
    """Return the agent that set a field, "" for a field as first logged."""
    return names.agent_of(line.when[field][1]) if field in line.when else ""
