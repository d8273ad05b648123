"""Gossip: the newest discoveries of the clan, for a terminal and for an agent."""

from collections.abc import Mapping

from fleet.keep import names
from fleet.keep.discoveries import Discovery, Findings
from fleet.recall.lessons import UNREADABLE, day, named, readable

EMPTY = """No discoveries yet. Log what took you long to find out, or stands in no manual:
  fleet discover --problem "..." --solution "..." """.rstrip()


def render_gossip(findings: Findings, count: int, *, members: Mapping[str, str] = {}) -> str:
    """Return the newest ``count`` discoveries, newest first, in two or three lines each, or how to log the first.

    Args:
        findings: the clan's discoveries; the retracted are passed over.
        count: how many to show.
        members: agent to emoji.
    """
    newest = findings.newest(count)
    if not newest:
        return EMPTY
    return "\n".join(_told(entry, members) for entry in reversed(newest))


def in_one_line(entry: Discovery, members: Mapping[str, str]) -> str:
    """Return a discovery as one list line: when, who, what, and in brackets what it is filed under."""
    filed = "; ".join(filter(None, [_tags(entry), _confidence(entry), entry.id]))
    opening = " ".join(filter(None, [day(entry.at), _who(entry, members), readable(entry.type)]))
    told = ": ".join(filter(None, [opening, readable(entry.context), _finding(entry)]))
    return f"- {told} ({filed})"


def _told(entry: Discovery, members: Mapping[str, str]) -> str:
    filed = [day(entry.at), _who(entry, members), readable(entry.type), _confidence(entry), _tags(entry), entry.id]
    rows = [" · ".join(filter(None, filed))]
    if context := readable(entry.context):
        rows.append(f"  in: {context}")
    rows.append(f"  {_finding(entry)}")
    return "\n".join(rows)


def _finding(entry: Discovery) -> str:
    return " -> ".join(filter(None, [readable(entry.problem), readable(entry.solution)])) or UNREADABLE


def _who(entry: Discovery, members: Mapping[str, str]) -> str:
    agent = names.agent_of(entry.by)
    return "an import" if agent == names.IMPORT else named(agent, members)


def _tags(entry: Discovery) -> str:
    return ", ".join(filter(None, map(readable, entry.tags)))


def _confidence(entry: Discovery) -> str:
    level = readable(entry.confidence)
    return f"{level} confidence" if level else ""
