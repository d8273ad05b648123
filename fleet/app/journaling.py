"""Being stuck and handing over as use cases: mutations with what is known already, and what a branch leaves open."""

from pathlib import Path
from typing import NamedTuple

from fleet.app import observing
from fleet.app.searching import search
from fleet.learn import journal
from fleet.learn.counting import CountedLog
from fleet.learn.journal import Declared, Journal, Open, Proposal
from fleet.recall.search import Answer
from fleet.store.workspace import Workspace

ORACLE = "M7"
ORACLE_HITS = 5


class Handover(NamedTuple):
    """What the next one who works on a branch should read.

    Attributes:
        agent: whose.
        branch: of the project's git.
        journal: its file.
        lines: the end of it.
        attempts: commands that failed in a row.
        unfilled: corrections without a lesson.
        proposals: mutations that worked and are no lesson yet.
    """

    agent: str
    branch: str
    journal: Path
    lines: list[str]
    attempts: list[Open]
    unfilled: int
    proposals: list[Proposal]


def declare(
    workspace: Workspace, agent: str, session: str, code: str, failed: str, switch: str, why: str
) -> tuple[Declared, Answer | None]:
    """Declare another strategy; return it, and for an oracle what is known about what failed.

    Raises:
        UsageError: no such mutation, or something is missing; nothing was written.
    """
    # Asked before it is declared: else the declaration itself would be the best answer.
    is_oracle = bool(failed) and journal.find(workspace, code).code == ORACLE
    known = search(workspace, failed, limit=ORACLE_HITS) if is_oracle else None
    declared = Journal(workspace, agent).declare(session, code, failed, switch, why)
    observing.noted(workspace, agent, session, "dead-end", f"Dead end: {declared.failed} — {switch}")
    return declared, known


def handover(workspace: Workspace, agent: str, session: str) -> Handover:
    """Return the end of this branch's journal, and what is open."""
    path, branch = Journal(workspace, agent).of_branch()
    return Handover(
        agent,
        branch,
        path,
        Journal(workspace, agent).last_lines(),
        Journal(workspace, agent).open_attempts(session),
        CountedLog(workspace, agent).unfilled(),
        Journal(workspace, agent).proposals(),
    )
