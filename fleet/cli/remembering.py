"""Lessons that become memory: here the command line joins what was corrected with what is promoted.

Apart from ``wiring``, since whoever logs a correction waits for it, and has nothing to send meanwhile.
"""

from collections.abc import Mapping

from fleet.keep import merging, view
from fleet.keep.errors import FleetError
from fleet.keep.line import Line
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace, Writer
from fleet.learn import corrections, reconcile
from fleet.reflect import hot, promoting
from fleet.reflect.promoting import Outcome


def promote_one(workspace: Workspace, agent: str, pattern: str) -> str:
    """Take a lesson that has the evidence into the agent's memory; return the file where it stands now, or ""."""
    if not promoting.may_be_due(workspace, agent, merging.whole(view.glance(workspace).notebook, pattern)):
        return ""
    try:
        with workspace.writing(agent) as writer:
            held = view.glance(workspace)
            workspace.admit(held.notebook)
            done = promote(writer, held, [merging.whole(held.notebook, pattern)])
            view.remember(workspace, held)
    except FleetError as why:
        workspace.warn(f"the correction is logged, but memory.md is as it was: {why}")
        return ""
    return f"agents/{agent}/{hot.FILE_NAME}" if done.promoted else ""


def forget(workspace: Workspace, pattern: str) -> None:
    """Take a lesson out of the memory of every agent here: every session would read it again."""
    notebook = view.glance(workspace).notebook
    for agent in corrections.agents_here(workspace):
        if pattern in promoting.standing(workspace, agent).lessons:
            with workspace.writing(agent) as writer:
                promoting.demote(writer, [pattern], notebook.get)


def promote(writer: Writer, held: Held, lessons: list[Line], *, is_all: bool = False) -> Outcome:
    """Take into an agent's memory which of these lessons have the evidence; what that says to the clan is joined."""

    def rights() -> Mapping[str, str]:
        return reconcile.rights(corrections.read_log(writer.workspace, writer.agent))

    records = promoting.records_of(held.notebook)
    done = promoting.promote_due(writer, lessons, records, rights=rights, is_all=is_all)
    held.notebook.add_all(done.lines)
    return done
