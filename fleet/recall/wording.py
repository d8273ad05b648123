"""Words in which lessons and discoveries are told: a date, a name, the evidence, a discovery in one line or three."""

from collections.abc import Iterable, Mapping

from crdt import clock
from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.pattern import Pattern
from fleet.text.screening import readable

LOG_A_CORRECTION = 'fleet correct --wrong "..." --right "..." --pattern "..."'
STANDING = (
    "When somebody corrects you, or a mistake is yours, log it before you go on: "
    f"`{LOG_A_CORRECTION}`; what nobody would guess: `fleet discover --problem ... --solution ...`. "
    "To look up: `fleet search WORDS`, `fleet show ID`."
)
UNREADABLE = "(nothing that can be shown)"

_NO_DISCOVERY = """No discoveries yet. Log what took you long to find out, or stands in no manual:
  fleet discover --problem "..." --solution "..." """.rstrip()
_EMOJI_CHARS_MAX = 8
_FIRST_DAY = "2000"


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


def newest_first(discoveries: Iterable[Discovery]) -> list[Discovery]:
    """Return discoveries by their time, newest first."""
    return sorted(discoveries, key=lambda entry: (entry.at, entry.id), reverse=True)


def render_gossip(discoveries: Iterable[Discovery], *, members: Mapping[str, str] = {}) -> str:
    """Return discoveries, newest first, in two or three lines each, or how to log the first.

    Args:
        discoveries: the newest of the clan, as many as are to be shown.
        members: agent to emoji.
    """
    return "\n".join(_paragraph(entry, members) for entry in newest_first(discoveries)) or _NO_DISCOVERY


def in_one_line(entry: Discovery, members: Mapping[str, str], short: str = "") -> str:
    """Return a discovery as one list line: when, who, what, and in brackets what it is filed under.

    Args:
        entry: the discovery.
        members: agent to emoji.
        short: the form of its id that stands for it; "" for the whole.
    """
    filed = "; ".join(filter(None, [_tags(entry), _confidence(entry), short or entry.id]))
    opening = " ".join(filter(None, [day(entry.at), author(entry.by, members), readable(entry.type)]))
    told = ": ".join(filter(None, [opening, readable(entry.context), _finding(entry)]))
    return f"- {told} ({filed})"


def _paragraph(entry: Discovery, members: Mapping[str, str]) -> str:
    filed = [day(entry.at), author(entry.by, members), readable(entry.type), _confidence(entry), _tags(entry), entry.id]
    rows = [" · ".join(filter(None, filed))]
    if context := readable(entry.context):
        rows.append(f"  in: {context}")
    rows.append(f"  {_finding(entry)}")
    return "\n".join(rows)


def _finding(entry: Discovery) -> str:
    return " -> ".join(filter(None, [readable(entry.problem), readable(entry.solution)])) or UNREADABLE


def author(replica: str, members: Mapping[str, str]) -> str:
    """Return the name of whose replica wrote a record, with its emoji; "" where nobody knows."""
    agent = names.agent_of(replica)
    return "an import" if agent == names.IMPORT else named(agent, members)


_SHOWN_FIELDS = (("text", "text"), ("wrong", "wrong"), ("correct", "right"), ("trigger", "trigger"))
"""The fields whose words an agent acts on, and what they are called."""


def edits(pattern: Pattern, members: Mapping[str, str]) -> str:
    """Return what somebody else than its author made of a lesson: "right: edited by slash"; "" where nobody did."""
    by = names.agent_of(pattern.by)
    told: dict[str, list[str]] = {}
    for field, shown in _SHOWN_FIELDS:
        writer = pattern.edited.get(field, ("", ""))[1]
        if writer and names.agent_of(writer) != by and field not in pattern.kept:
            told.setdefault(author(writer, members), []).append(shown)
    return "; ".join(f"{' and '.join(fields)}: edited by {who}" for who, fields in told.items())


def _tags(entry: Discovery) -> str:
    return ", ".join(filter(None, map(readable, entry.tags)))


def _confidence(entry: Discovery) -> str:
    level = readable(entry.confidence)
    return f"{level} confidence" if level else ""
