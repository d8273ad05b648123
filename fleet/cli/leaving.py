"""What takes lessons out of here, or this machine out of its clan: export, backup, purge, leave."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.store import Held

EXIT_REFUSED = 3
EXPORT_FORMAT = "fleet-export"
EXPORT_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(export)
    app.command()(backup)
    app.command("restore-backup")(restore_backup)
    app.command()(purge)
    app.command()(leave)


def export(
    as_json: options.Json = False,
    as_page: Annotated[bool, typer.Option("--md", help="One Markdown page for people.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    directory: options.Directory = "",
) -> None:
    """Print everything this machine knows. All lessons, retired ones too, and all discoveries; JSON unless told."""
    from fleet.keep.disk import Disk
    from fleet.keep.errors import UsageError
    from fleet.recall.export import render_all

    if as_json and as_page:
        raise UsageError("--json and --md are two forms of one export: name one of them")
    with desk.opened(directory) as workspace:
        held = workspace.load()
        if as_page:
            patterns = held.notebook.present()
            text = render_all(patterns, held.findings, members=desk.emoji_of(workspace)).rstrip("\n")
        else:
            text = desk.as_large_json(exported(held))
        if output is None:
            desk.say(text) if as_page else print(text)
            return
        path = output.expanduser().absolute()
        Disk(path.parent).replace(path, f"{text}\n".encode())
        desk.say(
            f"{desk.counted(len(held.notebook.patterns), 'lesson')} and "
            f"{desk.counted(len(held.findings.entries), 'discovery', 'discoveries')} written to {path}"
        )


def exported(held: "Held") -> dict[str, Any]:
    """Return the whole joined notebook and all discoveries, the same for the same lines; lessons one after another."""
    import msgspec

    from fleet.cli.people import as_found

    notebook, findings = held.notebook, held.findings
    retracted = findings.retracted()
    return {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "patterns": (
            {**as_found(line), "record": msgspec.to_builtins(line)}
            for line in (notebook.patterns[each] for each in sorted(notebook.patterns))
        ),
        "discoveries": [
            {**msgspec.to_builtins(entry), "retracted": entry.id in retracted}
            for entry in sorted(findings.entries.values(), key=lambda entry: (entry.at, entry.id))
            if not entry.retracts
        ],
        "retractions": sorted(retracted),
        "held": [msgspec.to_builtins(part.as_line("0", "")) for part in sorted(notebook.held)],
        "carried": sorted(raw.decode("utf-8", "backslashreplace") for raw in (*notebook.carried, *findings.carried)),
    }


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A .tar.gz file to write.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace a file that is there.")] = False,
    directory: options.Directory = "",
) -> None:
    """Write a backup file. It holds all that can neither be fetched nor computed again."""
    from fleet.keep.backup import backup as write

    with desk.opened(directory) as workspace:
        done = write(workspace, target, overwrite=yes)
        desk.say(f"{desk.counted(done.files, 'file')} in {target}, {done.size:,} bytes; only you can read it")
        for path in done.left:
            desk.note(f"left out, since it is no plain file, too large or oddly named: {path}")
        if done.left:
            raise typer.Exit(EXIT_REFUSED)


def restore_backup(
    source: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Made by fleet backup.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    directory: options.Directory = "",
) -> None:
    """Join a backup into the workspace here. Nothing newer is overwritten; an empty folder becomes a workspace."""
    from fleet.cli.progress import patient
    from fleet.cli.setup import root_for
    from fleet.keep import view
    from fleet.learn.restoring import restore

    root = root_for(directory)
    confirm(f"Join {source} into {root}? Nothing that is there will be overwritten.", yes=yes)
    _make_from(source, root)
    with desk.opened(str(root)) as workspace:
        done = restore(workspace, source)
        with patient(workspace):
            view.opened(workspace)  # what came back is indexed now, and not before somebody's next command
        for number, one, many in (
            (done.lines, "line", "lines"),
            (done.entries, "correction", "corrections"),
            (len(done.files), "file", "files"),
        ):
            desk.say(f"{desk.counted(number, one, many)} came back")
        for path in done.beside:
            desk.say(f"another version is here; the one of the backup lies beside it: {path}")
        for refused in done.refused[:10]:
            desk.note(f"not taken: {refused.path}: {refused.reason}")
        if done.refused:
            desk.note(f"{desk.counted(len(done.refused), 'part')} kept in .fleet/quarantine/; all else is restored")
            raise typer.Exit(EXIT_REFUSED)


def _make_from(source: Path, root: Path) -> None:
    """Where there is no workspace yet, the backup says what it was like."""
    from fleet.keep import archive, config
    from fleet.keep.disk import Disk
    from fleet.keep.errors import NoError

    if (root / config.FILE_NAME).exists():
        return
    with source.open("rb") as file:
        found = [member.data for member in archive.read(file) if member.path == config.FILE_NAME and not member.refused]
    if not found:
        raise NoError(
            f"{root} is no workspace, and {source} does not say how to make one. Run `fleet init` there first"
        )
    root.mkdir(parents=True, exist_ok=True)
    Disk(root).replace(root / config.FILE_NAME, found[0])


def purge(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="Of a lesson or a discovery; a beginning is enough.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    agent: options.Agent = "",
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Overwrite a secret that already went out. Reaches as far as a sync does, and tells what is left to do."""
    from fleet.cli import purging

    with desk.opened(directory) as workspace:
        confirm(f"Overwrite every text of {wanted} for the whole clan? This cannot be undone.", yes=yes)
        done = purging.purge(workspace, desk.agent_in(workspace, agent), wanted, yes=yes)
        if as_json:
            desk.say_json(done.as_json())
        else:
            desk.say(f"{done.id} is {'taken back' if done.id.startswith('d-') else 'overwritten and retired'}")
            for row in purging.advice(workspace, done):
                desk.say(row)
        if not done.shared and done.why_not != "no remote is named":
            raise typer.Exit(EXIT_REFUSED)


def leave(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    directory: options.Directory = "",
) -> None:
    """Take this machine out of the clan. It forgets the remote and keeps every line it has."""
    from fleet.cli import parting
    from fleet.keep.errors import NoError

    with desk.opened(directory) as workspace:
        stays = parting.what_stays(workspace)
        if stays is None:
            raise NoError("this machine is in no clan: no remote is named, or it left before. Nothing was changed")
        for line in stays.told():
            desk.say(line)
        confirm("Leave?", yes=yes)
        for line in parting.part(workspace):
            desk.say(line)


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person, or be told before.

    Raises:
        UsageError: there is nobody to ask, or the answer is no.
    """
    from fleet.keep.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask here: nothing was changed. Pass --yes if you are sure")
    if not typer.confirm(question, default=False):
        raise UsageError("nothing was changed")
