"""Use cases of being stuck and handing over: search, mutations with what is known, and what a branch left open."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleet.app import observing
from fleet.app.finding import first_stamp
from fleet.learn.corrections_md import Log
from fleet.learn.counting import CountedLog
from fleet.learn.journal import Declared, Journal
from fleet.recall import search as recall
from fleet.recall.search import CORRECTION, JOURNAL, PATTERN, Answer, Page, Section
from fleet.reflect.exposure import Exposures
from fleet.store.workspace import Workspace
from fleet.text import markdown
from fleet.text.dates import WHEN

__all__ = ["Answer", "declare", "handover", "search"]

_NARROWED = 200
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

    Args:
        workspace: where.
        query: words, and phrases in quotes; anything is safe.
        kinds: only these; none: all.
        everything: retired lessons, too.
        limit: at most so many.
        agent: who searches, as far as it is known: what it found counts as looked at.
        by: only what this agent wrote, of the best ``_NARROWED``; "": anybody's.
        since: only what is of this day or later; "": of any, and what bears no date.

    Raises:
        UsageError: there is nothing to look for in it, or no such kind or day.
    """
    first, is_narrowed = first_stamp(since)[:_DAY_CHARS], bool(by or since)
    most = max(limit, _NARROWED) if is_narrowed else limit
    found = recall.search(workspace, query, _pages(workspace), kinds=kinds, everything=everything, limit=most)
    if is_narrowed:
        hits = [hit for hit in found.hits if by in ("", hit.who) and (not since or hit.at[:_DAY_CHARS] >= first)]
        found = found._replace(hits=tuple(hits[:limit]), is_more=len(hits) > limit)
    if agent:
        ids = [hit.id for hit in found.hits if hit.kind == PATTERN]
        Exposures(workspace.state).note_found(agent, ids, workspace.world.wall_ms())
    return found


def _pages(workspace: Workspace) -> list[Page]:
    """Return the pages of every agent here: corrections and journals. Links are left alone."""
    here = workspace.homes()

    def corrections_of(data: bytes) -> Iterator[Section]:
        for entry in Log.parse(data).entries:
            said = (entry.pattern, entry.wrong, entry.right, entry.source, entry.category, *entry.tags)
            text = " · ".join(filter(None, said))
            head = entry.title or entry.pattern or entry.wrong or entry.right
            yield Section(entry.line, head, text, entry.when, entry.pattern)

    logs = [Page(CountedLog(workspace, agent).log_file(), CORRECTION, agent, corrections_of) for agent in here]
    journals = [Page(path, JOURNAL, agent, _sections) for agent in here for path in Journal(workspace, agent).all()]
    return logs + journals


def _sections(data: bytes) -> Iterator[Section]:
    """Yield the sections of a page, each with its heading; what stands above the first one has none."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    page = markdown.Page.parse(text, level_max=6)
    starts = [each.heading for each in page.sections] + [len(page.lines)]
    for part, end in zip((markdown.Part("", 1, -1, 0), *page.sections), starts, strict=True):
        said = "\n".join(row.text for row in page.inside(part._replace(end=end)) if row.is_said).strip()
        if said or part.level > 1:  # a title with nothing under it is the page's own
            found = re.match(WHEN, part.title)
            yield Section(max(part.heading, 0) + 1, part.title, said, found[0] if found else "")


# --- stuck, and handing over ------------------------------------------------------------------------------------------


def declare(
    workspace: Workspace, agent: str, session: str, code: str, failed: str, switch: str, why: str
) -> tuple[Declared, Answer | None]:
    """Declare another strategy; return it, and for an oracle what is known about what failed.

    Raises:
        UsageError: no such mutation, or something is missing; nothing was written.
    """
    # Asked before it is declared: else the declaration itself would be the best answer.
    is_oracle = bool(failed) and Journal(workspace, agent).strategy(code).code == _ORACLE
    known = search(workspace, failed, limit=_ORACLE_HITS) if is_oracle else None
    declared = Journal(workspace, agent).declare(session, code, failed, switch, why)
    observing.try_observe(workspace, agent, session, "dead-end", f"Dead end: {declared.failed} — {switch}")
    return declared, known


def handover(workspace: Workspace, agent: str, session: str) -> dict[str, Any]:
    """Return the end of this branch's journal, and what is open, as ``fleet handover --json`` shows it."""
    journal_of = Journal(workspace, agent)
    path, branch = journal_of.of_branch()
    return {
        "agent": agent,
        "branch": branch,
        "journal": path.relative_to(workspace.root).as_posix(),
        "lines": journal_of.last_lines(),
        "open": {
            "attempts": [each._asdict() for each in journal_of.open_attempts(session)],
            "unfilled": CountedLog(workspace, agent).unfilled(),
            "proposals": [each._asdict() for each in journal_of.proposals()],
        },
    }
