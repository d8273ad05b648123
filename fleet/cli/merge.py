"""Two records of one lesson made one, and taken apart again: ``fleet merge``, ``fleet unmerge``."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.line import Line


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(merge)
    app.command()(unmerge)


def merge(
    one: Annotated[str, typer.Argument(metavar="A", help="A pattern's id; a unique beginning is enough.")],
    other: Annotated[str, typer.Argument(metavar="B", help="The id of the same lesson in other words.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also if the two texts seem to differ in what they say.")
    ] = False,
    agent: options.Agent = "",
    directory: options.Directory = "",
) -> None:
    """Make two patterns one lesson. Both records are kept, counts add up, `fleet unmerge` undoes it."""
    from fleet.keep import merging
    from fleet.keep import notebook as notes
    from fleet.keep.reading import PATTERNS
    from fleet.learn import corrections

    with desk.opened(directory) as workspace:
        # What the logs owe goes first: the stamp of this edit is then larger than all that was read.
        held = corrections.settle_all(workspace)
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            lines = desk.find(held.notebook, one), desk.find(held.notebook, other)
            done = merging.merge(held.notebook, lines[0].id, lines[1].id, writer.name, writer.tick)
            if not force:
                _refuse_conflict(*lines)
            writer.append(PATTERNS, done)
        held.notebook.add_all(done)
        whole = merging.whole(held.notebook, lines[0].id)
        others = [member for member in merging.group_of(held.notebook, whole.id) if member != whole.id]
        desk.say(
            f"{whole.id} seen {desk.counted(notes.count(whole, 'seen'), 'time')}, with {', '.join(others)}: "
            f"{desk.cleaned(notes.text(whole))}\n`fleet unmerge {done[0].id}` undoes it"
        )


def _refuse_conflict(one: "Line", other: "Line") -> None:
    from fleet.keep import matching, wording
    from fleet.keep import notebook as notes
    from fleet.keep.errors import NoError

    weigh = matching.weighing(lambda _: 1, 0)
    found = matching.judged(wording.read(notes.text(one)), other.id, notes.text(other), weigh)
    if found.verdict == "conflict":
        raise NoError(
            f"the two read alike and differ ({found.why}); nothing was changed:\n"
            f"  {one.id} {desk.cleaned(notes.text(one))}\n  {other.id} {desk.cleaned(found.text)}\n"
            f"If they are one lesson all the same: fleet merge --force {one.id} {other.id}"
        )


def unmerge(pattern: options.PatternId, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Undo a merge. Either of the two ids will do."""
    from fleet.keep import merging
    from fleet.keep import notebook as notes
    from fleet.keep.reading import PATTERNS
    from fleet.learn import corrections

    with desk.opened(directory) as workspace:
        held = corrections.settle_all(workspace)
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            line = desk.find(held.notebook, pattern)
            done = merging.unmerge(held.notebook, line.id, writer.name, writer.tick)
            writer.append(PATTERNS, done)
        held.notebook.add_all(done)
        rest = [member for member in merging.group_of(held.notebook, line.id) if member != line.id]
        stays = f"; still merged with {', '.join(rest)}" if rest else ""
        whole = merging.whole(held.notebook, line.id)
        desk.say(
            f"{line.id} is a lesson of its own again{stays}, seen {desk.counted(notes.count(whole, 'seen'), 'time')}: "
            f"{desk.cleaned(notes.text(line))}"
        )
