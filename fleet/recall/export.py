"""Everything at once, for a person or another tool: all lessons and all discoveries, none left out.

The same lines give the same bytes. Every text passes the gate at the way out.
"""

from collections.abc import Iterable, Mapping

from fleet.keep.discoveries import Discovery, Findings
from fleet.keep.line import Line
from fleet.keep.screening import markdown_escape
from fleet.recall.lessons import counted, day, named, screened
from fleet.recall.page import render_page


def render_all(patterns: Iterable[Line], findings: Findings, *, members: Mapping[str, str] = {}) -> str:
    """Return ``patterns.md`` with every lesson in it, and behind them every discovery, newest first."""
    lessons = list(patterns)
    page = render_page(lessons, members=members, lessons_max=max(1, len(lessons)))
    newest = findings.newest(len(findings.entries))
    if not newest:
        return page
    heading = f"\n# What was found out ({counted(len(newest), 'discovery', 'discoveries')})\n\n"
    return page + heading + "".join(_item(entry, members) for entry in reversed(newest))


def _item(entry: Discovery, members: Mapping[str, str]) -> str:
    """Return a discovery as one list item of one line: whatever it says, it structures nothing."""
    who = named(entry.by.rpartition(".")[0], members)
    filed = [day(entry.at), markdown_escape(who), _escaped(entry.type)]
    where = _escaped(entry.context)
    said = [
        " · ".join(filter(None, filed)),
        f"in {where}" if where else "",
        f"**{_escaped(entry.problem)}**" if _escaped(entry.problem) else "",
        _escaped(entry.solution),
    ]
    tags = ", ".join(filter(None, map(_escaped, entry.tags)))
    return f"- {': '.join(filter(None, said))}{f' ({tags})' if tags else ''} · `{entry.id}`\n"


def _escaped(value: object) -> str:
    return markdown_escape(screened(value))
