"""Keeping a clan's files in order: ``fleet compact``, ``fleet doctor``, a pause."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.workspace import Workspace

EXIT_NO = 1
EXIT_REFUSED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compact)
    app.command()(doctor)
    app.command()(pause)
    app.command()(resume)


def compact(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Confirm a remote that was guessed.")] = False,
    agent: options.Agent = "",
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Write a whole edition now. Drops from the shards what it covers, and syncs at the same time."""
    from fleet.cli import syncing, wiring
    from fleet.keep.errors import NoError

    with desk.opened(directory) as workspace:
        if wrong := workspace.timekeeper.reading().wrong:
            raise NoError(f"{wrong}: nothing was compacted, nothing is lost. Set the clock right and try again")
        syncing.take_seat(workspace, agent)
        if syncing.is_paused(workspace, "compacted"):
            return
        remote = syncing.clan_remote(workspace, yes=yes)
        with workspace.disk.lock(workspace.local / "locks" / "sync.lock"):
            before = sizes(workspace)
            outcome = wiring.sync(workspace, remote, compact=True)
            after = sizes(workspace)
        if as_json:
            desk.say_json({"before": before, "after": after, "edition": outcome.edition, "sent": outcome.out})
        else:
            desk.say(f"{'wrote a new edition' if outcome.edition else 'the edition is whole already'}")
            for name in before:
                desk.say(f"  {name + ':':<10}{_shown(before[name])} before, {_shown(after[name])} now")
            if remote is None:
                desk.say("the shards stay as they are: no remote is named that would hold what they say")
        if outcome.is_partial:
            desk.note("something was held back or could not be read: `fleet status` tells what and why")
            raise typer.Exit(EXIT_REFUSED)


def sizes(workspace: "Workspace") -> dict[str, dict[str, int]]:
    """Return files and bytes of the editions and of the shards, as people see them."""
    from fleet.keep.reading import KINDS

    found = {"editions": {"files": 0, "bytes": 0}, "shards": {"files": 0, "bytes": 0}}
    for kind in KINDS:
        for path in workspace.store.paths(kind):
            of = found["editions" if path == kind.edition else "shards"]
            of["files"] += 1
            of["bytes"] += (workspace.clan / path).stat().st_size
    return found


def _shown(size: dict[str, int]) -> str:
    return f"{size['bytes']:,} bytes in {desk.counted(size['files'], 'file')}"


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without losing anything.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Ask the remote whether it answers, too.")] = False,
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Look for what is wrong here. Tells what it means and what to do; exits with 1 if anything is."""
    import msgspec

    from fleet.cli.checkup import examine
    from fleet.keep import checkup

    with desk.opened(directory) as workspace:
        found = examine(workspace, fix=fix, online=online)
        worst = checkup.worst(found)
        if as_json:
            desk.say_json(desk.cleaned({"worst": worst, "findings": msgspec.to_builtins(found)}))
        else:
            for each in found:
                desk.say(f"{'mended' if each.fixed else each.level:<8}{each.check + ':':<12}{each.what}")
                if each.level != "ok":
                    desk.say("".join(f"{'':<20}{part}\n" for part in (each.means, each.do) if part).rstrip("\n"))
    if checkup.LEVELS.index(worst) > checkup.LEVELS.index("note"):
        raise typer.Exit(EXIT_NO)


def pause(
    minutes: Annotated[
        int | None, typer.Option("--minutes", min=1, max=527_040, help="It ends by itself after so many.")
    ] = None,
    directory: options.Directory = "",
) -> None:
    """Share nothing until `fleet resume`. Logging and reading go on; what is logged waits here."""
    from fleet.keep.pause import begin

    with desk.opened(directory) as workspace:
        desk.say(f"sharing is paused {begin(workspace, minutes)}; lessons are still logged, and wait here")


def resume(directory: options.Directory = "") -> None:
    """End a pause. Nothing is sent by this itself."""
    from fleet.keep.pause import end

    with desk.opened(directory) as workspace:
        was_paused = end(workspace)
        desk.say("sharing goes on with the next `fleet sync`" if was_paused else "sharing was not paused")
