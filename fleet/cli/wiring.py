"""Where the verbs meet: they never import each other, so the command line joins them."""

from fleet.cli import desk, exchanging, remembering
from fleet.keep import shown, view
from fleet.keep.errors import FleetError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace
from fleet.learn import clones, corrections
from fleet.recall.page import render_page
from fleet.reflect import retiring
from fleet.reflect.promoting import Promoted
from fleet.share.exchange import Hooks

sync = exchanging.sync

PROMISING = 100
"""How many of the best-evidenced lessons of a large clan are looked at with each sync: far more than a memory holds."""


def hooks(workspace: Workspace, promoted: list[Promoted] | None = None) -> Hooks:
    """Return what an exchange needs from the other verbs; with ``promoted``, lessons are promoted on the way.

    That happens where what was fetched is known and nothing went out yet: so the clan hears of it in the same sync.
    """

    def settle() -> None:
        corrections.settle_all(workspace)
        if promoted is not None:
            promoted.extend(promote_all(workspace))

    return Hooks(
        settle=settle,
        on_clone=lambda replica, sent: clones.rehome(workspace, replica, sent),
        render=lambda notebook: page(workspace, notebook),
    )


def page(workspace: Workspace, notebook: Notebook) -> bytes:
    """Return the bytes of ``patterns.md``."""
    return page_of(workspace, *page_lessons(workspace, notebook))


def page_lessons(workspace: Workspace, notebook: Notebook) -> tuple[list[Line], int]:
    """Return the lessons among which those of ``patterns.md`` are, and how many there are in all."""
    return view.best(notebook, "sight", workspace.config.recall.page_lessons)


def page_of(workspace: Workspace, lessons: list[Line], total: int) -> bytes:
    """Return the bytes of ``patterns.md``, made of ``page_lessons``."""
    members, lessons_max = desk.emoji_of(workspace), workspace.config.recall.page_lessons
    return render_page(lessons, members=members, lessons_max=lessons_max, total=total).encode()


def promote_all(workspace: Workspace) -> list[Promoted]:
    """Take into each agent's memory here what there is the evidence for by now, out of it what the clan retired.

    The clan is told what was shown, too.

    What goes wrong with one agent's memory is a warning: lessons are safe, and the next sync tries again.
    """
    promoted: list[Promoted] = []
    if workspace.is_read_only:
        return promoted
    held, settings = view.glance(workspace), workspace.config.promotion
    lessons, is_all = view.promising(workspace, held.notebook, PROMISING)
    lesson = remembering.lesson_of(held.notebook)
    for agent in corrections.agents_here(workspace):
        try:
            with workspace.writing(agent) as writer:
                workspace.admit(held.notebook)
                remembering.tell_left(workspace, agent, retiring.take_out(workspace, agent, lesson))
                if settings.mode != "off":
                    promoted += remembering.promote(writer, held, lessons, is_all=is_all).promoted
                if shown.is_due(workspace, agent):
                    held.notebook.add_all(shown.roll_up(writer, held.notebook.get))
        except FleetError as why:
            workspace.warn(f"{agent}'s memory is as it was: {why}")
    return promoted
