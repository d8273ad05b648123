"""Use cases: search, the declaration of a mutation, and the handover of a branch's open work."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleet.app import observing
from fleet.app.finding import first_stamp
from fleet.learn.corrections_md import Log
from fleet.learn.counting import CountedLog
from fleet.learn.journal import Declaration, Journal
from fleet.recall import search as recall
from fleet.recall.search import CORRECTION, JOURNAL, PATTERN, Answer, Page, Section
from fleet.reflect.clusters import Weighing
from fleet.reflect.exposure import Exposures
from fleet.store.workspace import Workspace
from fleet.text import markdown

__all__ = ["Answer", "declare", "handover", "search"]

_FILTERED_MAX = 200
"""Greatest number of hits that an author and a day select from."""
_ORACLE, _ORACLE_HITS = "M7", 5
_DAY_CHARS = 10


def search(
    workspace: Workspace,
    query: str,
    *,
    kinds: Sequence[str] = (),
    everything: bool = False,
    limit: int = 20,
    agent: str = "",
    by: str = "",
    since: str = "",
) -> Answer:
    """Return what is known about a query: lessons, discoveries, corrections and journals, best first.

    As ``recall.search``, and besides:

    ``agent``: who searches; the hits count as exposures of this agent. "": unknown.
    ``by``: author of the hits, of the best ``_FILTERED_MAX``; "": any.
    ``since``: first day of the hits; "": any, and hits without a date.

    Raises:
        UsageError: the query has no term, or a kind or the day is unknown.
    """
    first, is_filtered = first_stamp(since)[:_DAY_CHARS], bool(by or since)
    most = max(limit, _FILTERED_MAX) if is_filtered else limit
    answer = recall.search(workspace, query, _pages(workspace), kinds=kinds, everything=everything, limit=most)
    if is_filtered:
        narrowed = [hit for hit in answer.hits if by in ("", hit.who) and hit.at[:_DAY_CHARS] >= first]
        answer = answer._replace(hits=tuple(narrowed[:limit]), is_more=len(narrowed) > limit)
    against = Weighing(workspace).contradicted()
    hits = (hit._replace(contradicts=against[hit.id]) if hit.id in against else hit for hit in answer.hits)
    answer = answer._replace(hits=tuple(hits))
    if agent:
        ids = [hit.id for hit in answer.hits if hit.kind == PATTERN]
        Exposures(workspace.state).note_found(agent, ids, workspace.world.wall_ms())
    return answer


def _pages(workspace: Workspace) -> list[Page]:
    """Return the pages of every agent here: corrections and journals."""
    agents = workspace.homes()
    logs = [Page(CountedLog(workspace, agent).log_file(), CORRECTION, agent, _corrections) for agent in agents]
    journals = [Page(path, JOURNAL, agent, _sections) for agent in agents for path in Journal(workspace, agent).all()]
    return logs + journals


def _corrections(data: bytes) -> Iterator[Section]:
    for entry in Log.parse(data).entries:
        fields = (entry.pattern, entry.wrong, entry.right, entry.source, entry.category, *entry.tags)
        head = entry.title or entry.pattern or entry.wrong or entry.right
        yield Section(entry.line, head, " · ".join(filter(None, fields)), entry.when, entry.pattern)


def _sections(data: bytes) -> Iterator[Section]:
    """Yield the sections of a page; the text above the first heading is one without a title."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    page = markdown.Page.parse(text, level_max=6)
    ends = [section.heading for section in page.sections] + [len(page.lines)]
    for part, end in zip((markdown.Part("", 1, -1, 0), *page.sections), ends, strict=True):
        body = "\n".join(row.text for row in page.inside(part._replace(end=end)) if row.is_content).strip()
        if body or part.level > 1:  # a title with nothing under it is the page's own
            date = re.match(markdown.WHEN, part.title)
            yield Section(max(part.heading, 0) + 1, part.title, body, date[0] if date else "")


# --- mutations and handover -------------------------------------------------------------------------------------------


def declare(
    workspace: Workspace, agent: str, session: str, code: str, failed: str, switch: str, why: str
) -> tuple[Declaration, Answer | None]:
    """Declare another strategy; return the declaration, and for an oracle what is known about the failed approach.

    Raises:
        UsageError: no such mutation, or an argument is missing; nothing was written.
    """
    # The search comes first: else the declaration itself would be its best hit.
    is_oracle = bool(failed) and Journal(workspace, agent).strategy(code).code == _ORACLE
    answer = search(workspace, failed, limit=_ORACLE_HITS) if is_oracle else None
    declared = Journal(workspace, agent).declare(session, code, failed, switch, why)
    observing.try_observe(workspace, agent, session, "dead-end", f"Dead end: {declared.failed} — {switch}")
    return declared, answer


def handover(workspace: Workspace, agent: str, session: str) -> dict[str, Any]:
    """Return the end of this branch's journal, and its open work, as ``fleet handover --json`` shows it."""
    journal_of = Journal(workspace, agent)
    path, branch = journal_of.of_branch()
    return {
        "agent": agent,
        "branch": branch,
        "journal": path.relative_to(workspace.root).as_posix(),
        "lines": journal_of.last_lines(),
        "open": {
            "attempts": journal_of.open_attempts(session),
            "unfilled": len(CountedLog(workspace, agent).to_state()),
            "proposals": [proposal._asdict() for proposal in journal_of.proposals()],
        },
    }
