"""Order of lessons, and the words in which their evidence is told: shared by the page and by a session's start."""

from collections.abc import Iterable, Mapping

from crdt import clock
from fleet.model import names
from fleet.model.pattern import Pattern
from fleet.store.query import Order
from fleet.text.screening import readable

LOG_A_CORRECTION = 'fleet correct --wrong "..." --right "..." --pattern "..."'
UNREADABLE = "(nothing that can be shown)"

_EMOJI_CHARS_MAX = 8
_FIRST_DAY = "2000"


def ranked(patterns: Iterable[Pattern], order: Order, *, everything: bool = False) -> list[Pattern]:
    """Return the lessons that are listed, best first: the same order as ``Patterns.best`` of the store.

    Published lessons come first. Behind them ``sight`` counts occurrences, as a page does; ``evidence`` counts agents,
    then sessions, then occurrences. Of two alike the newest comes first; the id only makes the order the same
    everywhere. With ``everything``, lessons that are not listed are among them.
    """
    found = sorted((each for each in patterns if everything or each.is_listed), key=lambda pattern: pattern.id)
    found.sort(key=lambda pattern: pattern.last_seen, reverse=True)
    found.sort(key=_by_sight if order == "sight" else _by_evidence)
    return found


def _by_sight(pattern: Pattern) -> tuple[int, ...]:
    return (pattern.state != "published", -pattern.count("seen"))


def _by_evidence(pattern: Pattern) -> tuple[int, ...]:
    sessions, seen = pattern.count("sessions"), pattern.count("seen")
    return (pattern.state != "published", -pattern.witnesses(), -sessions, -seen)


def not_working(pattern: Pattern) -> str:
    """Return the reason why a lesson does not work, in words, or "" when nothing says so.

    It does not work when it hurt more often than it helped, as its users say (``fleet feedback``). Nor does it when,
    since it was published, a replica that had seen the lesson made the mistake again. Counters bear no time: a relapse
    is dated by the replica's newest occurrence, so one from before the promotion, as the third occurrence may be, does
    not count until another follows.
    """
    hurt, helped = pattern.count("hurt"), pattern.count("helped")
    if hurt > helped:
        return f"hurt {counted(hurt, 'time', 'times')}, helped {helped:,}"
    if pattern.state != "published":
        return ""
    since = pattern.edited["state"][0] if "state" in pattern.edited else ""
    relapsed = pattern.totals.get("relapsed", {})
    replicas = [replica for replica, total in relapsed.items() if total and pattern.adds.get(replica, "") > since]
    again = sorted({names.agent_of(replica) for replica in replicas})
    return f"the mistake was made again since it was promoted, by {', '.join(again)}" if again else ""


def day(stamp: str) -> str:
    """Return the date of a stamp, "" when it is not known: a record without a date is stamped 1970."""
    return stamp[:10] if stamp >= _FIRST_DAY and clock.is_stamp(stamp) else ""


def named(agent: str, members: Mapping[str, str]) -> str:
    """Return an agent's name with its emoji before it, when that is known and short enough to be one."""
    mark = readable(members.get(agent))
    return f"{mark if len(mark) <= _EMOJI_CHARS_MAX else ''} {readable(agent)}".strip()


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun: ``1 lesson``, ``1,200 lessons``."""
    return f"{number:,} {one if number == 1 else many}"
