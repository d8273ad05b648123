"""Lessons that become memory: here the command line joins what was corrected with what is promoted.

Apart from ``wiring``, since whoever logs a correction waits for it, and has nothing to send meanwhile.
"""

from collections.abc import Mapping

from fleet.keep import limits, merging, view
from fleet.keep.errors import FleetError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace, Writer
from fleet.learn import corrections, reconcile
from fleet.reflect import hot, promoting, retiring
from fleet.reflect.promoting import Outcome
from fleet.reflect.retiring import Left, Lesson


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
    """Take a lesson out of the memory of every agent here, and of the notes about it: sessions would read it again."""
    notebook = view.glance(workspace).notebook
    for agent in corrections.agents_here(workspace):
        if pattern in promoting.standing(workspace, agent).lessons:
            with workspace.writing(agent) as writer:
                promoting.demote(writer, [pattern], notebook.get)
        with workspace.locked():
            retiring.forget(workspace, agent, pattern)


def lesson_of(notebook: Notebook) -> Lesson:
    """Return how to find the lesson of an id, a merged set as one."""
    records = promoting.records_of(notebook)

    def lesson(pattern: str) -> Line | None:
        parts = records(pattern) or [line for line in [notebook.get(pattern)] if line is not None]
        return merging.united_of(parts) if parts else None

    return lesson


def take_out_retired(
    workspace: Workspace, agent: str, notebook: Notebook, wait_s: float = limits.LOCK_WAIT_S
) -> tuple[Left, ...]:
    """Take out of an agent's memory what the clan retired, and warn of it. What goes wrong is a warning, too."""
    lesson = lesson_of(notebook)
    inside = promoting.standing(workspace, agent).lessons
    if not retiring.retired(inside, lesson) and not retiring.left(workspace, agent):
        return ()
    try:
        with workspace.locked(wait_s):
            return tell_left(workspace, agent, retiring.take_out(workspace, agent, lesson))
    except FleetError as why:
        workspace.warn(f"{agent}'s memory still holds what the clan retired: {why}")
        return ()


def tell_left(workspace: Workspace, agent: str, left: tuple[Left, ...]) -> tuple[Left, ...]:
    """Warn of what left a memory."""
    for each in left:
        workspace.warn(
            f"the clan retired {each.id}, so it left {agent}'s {hot.FILE_NAME}: {each.text}. `fleet status` says how "
            "to keep it"
        )
    return left


def promote(writer: Writer, held: Held, lessons: list[Line], *, is_all: bool = False) -> Outcome:
    """Take into an agent's memory which of these lessons have the evidence; what that says to the clan is joined."""

    def rights() -> Mapping[str, str]:
        return reconcile.rights(corrections.read_log(writer.workspace, writer.agent))

    records = promoting.records_of(held.notebook)
    done = promoting.promote_due(writer, lessons, records, rights=rights, is_all=is_all)
    held.notebook.add_all(done.lines)
    return done
