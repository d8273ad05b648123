"""Does it learn? Figures, a plot of them, and what whoever used a lesson says of it."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.keep.line import Line
    from fleet.keep.workspace import Workspace
    from fleet.reflect.stats import Exposure, Stats

WIDTH_MAX = 120
WIDTH_PIPED = 100


TOLD_BY = (b'"published"', b'"shown":', b'"relapsed":', b'"hurt":')
"""Of a lesson in whose record none of these stands, and that was not shown here, the figures tell nothing."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(stats)
    app.command()(feedback)


def stats(as_json: options.Json = False, directory: options.Directory = "") -> None:
    """Show whether the fleet learns: corrections per week, relapses, lessons that do not work."""
    from fleet.recall.lessons import readable
    from fleet.reflect import plot
    from fleet.reflect.stats import as_found

    with desk.opened(directory) as workspace:
        found = _measured(workspace)
        if as_json:
            desk.say_json(desk.cleaned(as_found(found)))
        else:
            desk.say(plot.render(found, _width(), readable))


def _width() -> int:
    """Whoever pipes gets the same width everywhere."""
    return min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stdout.isatty() else WIDTH_PIPED


def _measured(workspace: "Workspace") -> "Stats":
    from fleet.keep import exposures, merging
    from fleet.keep.store import without_cyclic_collection
    from fleet.learn import corrections
    from fleet.learn.occurrences import occurrences
    from fleet.recall.lessons import not_working
    from fleet.reflect.stats import Happened, measure

    agents = corrections.agents_here(workspace)
    notebook = workspace.load().notebook
    happened = [Happened(*each) for agent in agents for each in occurrences(corrections.read_log(workspace, agent))]
    noted = {pattern for agent in agents for pattern in exposures.known(str(workspace.root), agent)}
    with without_cyclic_collection():
        told = {pattern for mark in TOLD_BY for pattern in notebook.with_key(mark)}
        lines = list(merging.shown_among(notebook, sorted(told | noted)))
    groups = {line.id: merging.group_of(notebook, line.id) for line in lines} if notebook.pointing() else {}
    return measure(
        lines,
        happened,
        _exposures(workspace, agents, lines, groups),
        failing=not_working,
        members=lambda pattern: groups.get(pattern, (pattern,)),
        unfilled=sum(corrections.unfilled(workspace, agent) for agent in agents),
    )


def _exposures(
    workspace: "Workspace", agents: "list[str]", lines: "Iterable[Line]", groups: "dict[str, list[str]]"
) -> "dict[str, Exposure]":
    """Return what was shown to the agents here, by pattern."""
    from fleet.keep import exposures
    from fleet.reflect.stats import Exposure

    promoted = {
        member: at_ms
        for line in lines
        if (at_ms := exposures.promoted_ms(line)) is not None
        for member in groups.get(line.id, (line.id,))
    }
    found: dict[str, Exposure] = {}
    for agent in agents:
        for pattern, spans in exposures.known(str(workspace.root), agent).items():
            known = found.get(pattern, Exposure(0, 0))
            before = exposures.before(spans, promoted[pattern]) if pattern in promoted else 0
            both = None if known.before is None or before is None else known.before + before
            found[pattern] = Exposure(known.shown + sum(each.number for each in spans), both)
    return found


def feedback(
    pattern: options.PatternId,
    helped: Annotated[bool, typer.Option("--helped", help="The lesson kept you from a mistake.")] = False,
    hurt: Annotated[bool, typer.Option("--hurt", help="The lesson led you astray.")] = False,
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Say that a lesson helped, or hurt: what hurts more often than it helps is shown as not working."""
    from fleet.keep import merging
    from fleet.keep.errors import UsageError
    from fleet.keep.notebook import count, text
    from fleet.keep.view import glance
    from fleet.learn.feedback import rate
    from fleet.recall.lessons import not_working

    if helped == hurt:
        raise UsageError("say one of --helped and --hurt; nothing was counted")
    with desk.opened(directory) as workspace:
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            notebook = glance(workspace).notebook
            workspace.admit(notebook)
            asked = desk.find(notebook, pattern)
            notebook.add(rate(writer, asked, "helped" if helped else "hurt"))
        line = merging.whole(notebook, asked.id)
        totals = {name: count(line, name) for name in ("helped", "hurt", "shown", "relapsed")}
        why = not_working(line)
        if as_json:
            desk.say_json({"id": line.id, **totals, "not_working": why})
            return
        desk.say(f"{line.id} helped {totals['helped']:,}, hurt {totals['hurt']:,}: {desk.cleaned(text(line))}")
        if why:
            desk.say(
                f"  not working: {why}. `fleet edit {line.id} --set text=...` words it better, "
                f"`fleet retire {line.id}` takes it out"
            )
