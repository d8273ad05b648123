"""Commands about sharing: sync, whole editions and their page, a pause, and leaving a clan."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fleet.app import pages, sharing
from fleet.app.sharing import ConsentNeededError, SyncResult
from fleet.cli import output
from fleet.cli.output import EXIT_REFUSED, echo, flag, note
from fleet.model.errors import UsageError
from fleet.share.outgoing import Outgoing
from fleet.store.tree import PAGE
from fleet.store.workspace import Workspace
from fleet.text import tables
from fleet.text.screening import counted

app = output.commands()


@app.command("sync")
def _sync(
    dry_run: Annotated[bool, flag("--dry-run", "Print every outgoing line; send nothing.")] = False,
    yes: output.Confirmed = False,
) -> None:
    """Pull, join, push and render. Afterwards this machine and the clan have the same lessons."""
    with output.acting() as (workspace, who):
        if dry_run:
            out, paused = sharing.dry_run(workspace, who), workspace.state.paused(workspace.wall())
            none = "" if sharing.Membership(workspace).shown() else "no remote is named here"
            _show_outgoing(out, workspace.doubt, f"sharing is paused {paused}" if paused else none)
            return
        if _is_paused(workspace, "synced"):
            return
        synced = _synced(workspace, who, yes=yes)
        output.show(msgspec.to_builtins(synced), [*_synced_rows(synced), *synced.review])
        _note_synced(synced)
        if synced.is_partial or not workspace.config.is_read:
            raise typer.Exit(EXIT_REFUSED)


def _synced(workspace: Workspace, agent: str, *, yes: bool, compact: bool = False) -> SyncResult:
    """Sync; if nobody has agreed to the remote yet, ask a person, and sync again."""
    try:
        with output.progress("Syncing"):
            return sharing.sync(workspace, agent, yes=yes, compact=compact)
    except ConsentNeededError as needed:
        if not output.can_ask():
            raise
        if not output.is_agreed(f"Share this clan's {needed.lessons} with {needed.shown} ({needed.origin})?"):
            raise UsageError("nothing was sent. Name another remote with `fleet init --remote URL`") from needed
    return _synced(workspace, agent, yes=True, compact=compact)


def _is_paused(workspace: Workspace, verb: str) -> bool:
    """Return whether sharing is paused here; if so, show that the command did nothing."""
    paused = workspace.state.paused(workspace.wall())
    if paused:
        text = f"not {verb}: sharing is paused {paused}. Everything is kept here; `fleet resume` ends the pause"
        output.show({"paused": paused}, text)
    return bool(paused)


def _show_outgoing(out: Outgoing, doubt: str, obstacle: str) -> None:
    # The lines alone on stdout, as they would go out: `fleet sync --dry-run | jq .id`.
    withheld = [each._asdict() for each in out.withheld]
    for path, lines in out.lines.items():
        note(f"{path}: {counted(len(lines), 'line')}")
    for raw in () if output.chosen.as_json else chain.from_iterable(out.lines.values()):
        output.chosen.put(output.cleaned(raw))
    output.show({"lines": out.lines, "withheld": withheld})
    for line in out.withheld:
        note(f"stays here: a line of {line}")
    but = f", but {obstacle}" if obstacle else f" at most: {doubt}" if doubt and out.count else ""
    note(f"{counted(out.count, 'line')} would go out{but}; nothing was sent")
    if out.withheld:
        raise typer.Exit(EXIT_REFUSED)


def _synced_rows(synced: SyncResult) -> list[str]:
    if not synced.remote:
        rows = [f"nothing was sent: {synced.why}. All is kept here"]
    else:
        verb = "exchanged, in part," if synced.is_partial else "put back and synced" if synced.put_back else "synced"
        records = [counted(synced.patterns_in, "lesson")] if synced.patterns_in else []
        records += [counted(synced.discoveries_in, "discovery")] if synced.discoveries_in else []
        records_in = f"{' and '.join(records)} new or changed in" if records else "nothing new came in"
        rows = [f"{verb} with {synced.remote}: {counted(synced.out, 'line')} out; {records_in}"]
    rows += ["wrote a new edition of patterns.jsonl and patterns.md"] if synced.edition else []
    return [*rows, *(f"promoted into memory.md: {text}" for text in synced.promoted)]


def _note_synced(synced: SyncResult) -> None:
    numbers = msgspec.to_builtins(synced) | {"refused": synced.refused - synced.refused_before}
    for name, what in tables(str(Path(__file__).with_name("data") / "synced.toml")).items():
        if numbers[name]:
            note(f"{counted(numbers[name], 'line')} {what}")
    if synced.put_back:
        note(
            f"{counted(len(synced.put_back), 'file')} here lacked lines of the clan's tree: deleted, or an older copy "
            f"came back; they were put back ({', '.join(synced.put_back[:3])}). To take a lesson out: `fleet retire`"
        )


@app.command("compact")
def _compact(yes: output.Confirmed = False) -> None:
    """Write a whole edition now, drop what it covers from the shards, and sync."""
    with output.acting() as (workspace, who):
        if _is_paused(workspace, "compacted"):
            return
        synced = _synced(workspace, who, yes=yes, compact=True)
        text = "wrote a new edition" if synced.edition else "the edition is whole already"
        if not synced.remote:
            text += "\nthe shards stay as they are: no remote is named that would hold what they say"
        output.show({"edition": synced.edition, "sent": synced.out}, text)
        if synced.is_partial:
            note("something was held back or could not be read: `fleet status` shows what and why")
            raise typer.Exit(EXIT_REFUSED)


@app.command("render-patterns")
def _render_patterns() -> None:
    """Write patterns.md anew, without a sync."""
    with output.opened() as workspace:
        pages.write_page(workspace)
        path = str(workspace.clan / PAGE)
        output.show({"page": path}, f"wrote {path}")


@app.command("pause")
def _pause(
    minutes: Annotated[
        int | None, typer.Option("--minutes", min=1, max=527_040, help="Minutes after which it ends by itself.")
    ] = None,
) -> None:
    """Share nothing until `fleet resume`. Logging and reading go on; what is logged waits here."""
    with output.opened() as workspace:
        paused = sharing.Membership(workspace).pause(minutes)
        output.show({"paused": paused}, f"sharing is paused {paused}; lessons are still logged, and wait here")


@app.command("resume")
def _resume() -> bool:
    """End a pause. The next sync sends what waited."""
    with output.opened() as workspace:
        was_paused = workspace.state.paused(workspace.wall())
        workspace.state.resume()
        text = "sharing goes on with the next `fleet sync`" if was_paused else "sharing was not paused"
        output.show({"paused": ""}, text)
        return bool(was_paused)


@app.command("leave")
def _leave(yes: output.Yes = False) -> None:
    """Take this machine out of the clan. It forgets the remote and keeps every line it has."""
    with output.opened() as workspace:
        notices = sharing.Membership(workspace).what_stays()
        echo("\n".join(notices))
        output.confirm("Leave?", yes=yes)
        messages = sharing.Membership(workspace).leave()
        output.show({"stays": notices, "did": messages}, messages)
