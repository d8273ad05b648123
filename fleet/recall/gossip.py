"""Gossip: the newest discoveries of the clan, for a terminal and for an agent."""

from collections.abc import Iterable, Mapping

from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.recall.ranking import UNREADABLE, day, named
from fleet.text.screening import readable

EMPTY = """No discoveries yet. Log what took you long to find out, or stands in no manual:
  fleet discover --problem "..." --solution "..." """.rstrip()


def newest_first(discoveries: Iterable[Discovery]) -> list[Discovery]:
    """Return discoveries by their time, newest first."""
    return sorted(discoveries, key=lambda entry: (entry.at, entry.id), reverse=True)


def render_gossip(discoveries: Iterable[Discovery], *, members: Mapping[str, str] = {}) -> str:
    """Return discoveries, newest first, in two or three lines each, or how to log the first.

    Args:
        discoveries: the newest of the clan, as many as are to be shown.
        members: agent to emoji.
    """
    return "\n".join(_paragraph(entry, members) for entry in newest_first(discoveries)) or EMPTY


def in_one_line(entry: Discovery, members: Mapping[str, str]) -> str:
    """Return a discovery as one list line: when, who, what, and in brackets what it is filed under."""
    filed = "; ".join(filter(None, [_tags(entry), _confidence(entry), entry.id]))
    opening = " ".join(filter(None, [day(entry.at), _author(entry, members), readable(entry.type)]))
    told = ": ".join(filter(None, [opening, readable(entry.context), _finding(entry)]))
    return f"- {told} ({filed})"


def _paragraph(entry: Discovery, members: Mapping[str, str]) -> str:
    filed = [day(entry.at), _author(entry, members), readable(entry.type), _confidence(entry), _tags(entry), entry.id]
    rows = [" · ".join(filter(None, filed))]
    if context := readable(entry.context):
        rows.append(f"  in: {context}")
    rows.append(f"  {_finding(entry)}")
    return "\n".join(rows)


def _finding(entry: Discovery) -> str:
    return " -> ".join(filter(None, [readable(entry.problem), readable(entry.solution)])) or UNREADABLE


def _author(entry: Discovery, members: Mapping[str, str]) -> str:
    agent = names.agent_of(entry.by)
    return "an import" if agent == names.IMPORT else named(agent, members)


def _tags(entry: Discovery) -> str:
    return ", ".join(filter(None, map(readable, entry.tags)))


def _confidence(entry: Discovery) -> str:
    level = readable(entry.confidence)
    return f"{level} confidence" if level else ""
