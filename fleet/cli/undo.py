"""Command that takes back what a command or a pass of fleet's own did: ``fleet undo``."""

from typing import Annotated

import typer

from fleet.app import undoing
from fleet.app.undoing import Listed, Undone
from fleet.cli import completing, output
from fleet.model.errors import UsageError
from fleet.text.screening import one_line

app = output.commands()

_LISTED = 20


@app.command("undo")
def _undo(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run's id; none: the last command here.",
            autocompletion=completing.of(
                lambda workspace, _: [(each.run.id, each.run.told) for each in undoing.listed(workspace)]
            ),
        ),
    ] = "",
    listing: Annotated[bool, typer.Option("--list", help="List the runs that can be taken back.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --list: all of them.")] = False,
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Take back the last command, or any run of fleet's own. What a person wrote since stays; undo it to redo."""
    if listing and (run or dry_run):
        raise UsageError("--list lists, and takes nothing else; nothing was changed")
    with output.opened(directory) as workspace:
        if listing:
            found = undoing.listed(workspace)
            shown = found if everything else found[:_LISTED]
            _list(shown, [undoing.about(workspace, each.run) for each in shown], len(found), as_json=as_json)
            return
        done = undoing.undo(workspace, run, is_trial=dry_run)
        if as_json:
            output.say_json(output.cleaned(_as_json(done)))
        else:
            output.say("\n".join(output.cleaned(_rows(done))))


def _list(found: list[Listed], about: list[str], total: int, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"id": each.run.id, "kind": each.run.kind, "agent": each.run.agent, "at": each.run.at}
            | {"told": each.run.told, "about": text, "files": [edit.path for edit in each.run.edits]}
            | {"undone_by": each.undone_by}
            for each, text in zip(found, about, strict=True)
        ]
        output.say_json({"runs": output.cleaned(rows), "total": total})
        return
    for each, text in zip(found, about, strict=True):
        state = f"  (taken back by {each.undone_by})" if each.undone_by else ""
        said = output.cleaned(": ".join(filter(None, (each.run.told, one_line(text)))))
        style = "dim" if each.undone_by else ""
        output.say_row(
            (f"{each.run.id:<26}  ", style), (f"{output.when(each.run.at)}  ", style), (f"{said}{state}", style)
        )
    if not found:
        output.say("no run is noted here yet")
    elif total > len(found):
        output.say(f"and {total - len(found):,} older; --all lists them")


def _as_json(done: Undone) -> dict[str, object]:
    return {
        "run": done.run.id,
        "kind": done.run.kind,
        "told": done.run.told,
        "undone_by": done.by,
        "restored": list(done.restored),
        "merged": list(done.merged),
        "did": list(done.did),
        "left": list(done.left),
    }


def _rows(done: Undone) -> list[str]:
    head = f"{done.run.id}: {done.run.told or done.run.kind}"
    rows = [f"taken back: {head}" if done.by else f"would be taken back: {head}"]
    rows += [f"  {path} is as it was" for path in done.restored]
    rows += [f"  {path} keeps what was written since; the run's own lines are out" for path in done.merged]
    rows += _some([f"  {each}" for each in done.did])
    rows += _some([f"  left: {each}" for each in done.left])
    if done.by and not any(each.startswith("d-") for each in done.run.lessons):  # a discovery does not come back
        rows.append(f"`fleet undo {done.by}` does it again")
    return rows


def _some(rows: list[str]) -> list[str]:
    more = len(rows) - _LISTED
    return [*rows[:_LISTED], f"  ... and {more:,} more: --json names them"] if more > 0 else rows
