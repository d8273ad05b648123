"""What carries lessons into this machine and out of it: import, export, backups, upgrade, purge."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.app import moving, starting
from fleet.cli import output
from fleet.cli.output import EXIT_REFUSED, counted, note, say
from fleet.model.errors import UsageError
from fleet.store.files import Files

REFUSED_SHOWN = 10

app = output.commands()


@app.command("import")
def _import(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", exists=True, help="Files, or folders of them.")],
    agent: output.Agent = "",
    directory: output.Directory = "",
    as_json: output.Json = False,
) -> None:
    """Take in what other tools wrote. Lessons, discoveries and corrections; doing it twice changes nothing."""
    with output.opened(directory) as workspace:
        files = moving.files_in(paths)
        with output.progress("Importing", len(files)) as step:
            done = moving.import_files(
                workspace, output.agent_in(workspace, agent), files, lambda path: step(path.name)
            )
        if as_json:
            output.say_json(
                {
                    "patterns": done.patterns,
                    "patterns_new": done.patterns_new,
                    "discoveries": done.discoveries,
                    "discoveries_new": done.discoveries_new,
                    "skipped": dict(sorted(done.skipped.items())),
                    "refused": len(done.refused),
                }
            )
        else:
            say(
                f"{counted(done.patterns, 'lesson')} read, {done.patterns_new:,} new; "
                f"{counted(done.discoveries, 'discovery', 'discoveries')} read, {done.discoveries_new:,} new"
            )
            for reason, number in sorted(done.skipped.items()):
                say(f"{number:,} left out: {reason}")
        if done.redacted:
            note(f"a secret was taken out of {counted(done.redacted, 'record')}")
        _tell_refused(
            [f"{each.path}, line {each.number}: {each.reason}" for each in done.refused], "bad line", "are in"
        )


def _tell_refused(told: list[str], what: str, others: str) -> None:
    """Tell of what was not taken, and exit with the code for that."""
    for each in told[:REFUSED_SHOWN]:
        note(each)
    if told:
        note(f"{counted(len(told), what)} kept in .fleet/quarantine/; the others {others}")
        raise typer.Exit(EXIT_REFUSED)


@app.command("export")
def _export(
    as_json: output.Json = False,
    as_page: Annotated[bool, typer.Option("--md", help="One Markdown page for people.")] = False,
    output_file: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    directory: output.Directory = "",
) -> None:
    """Print everything this machine knows. All lessons, retired ones too, and all discoveries; JSON unless told."""
    if as_json and as_page:
        raise UsageError("--json and --md are two forms of one export: name one of them")
    with output.opened(directory) as workspace:
        text = starting.everything(workspace).rstrip("\n") if as_page else _as_json(moving.exported(workspace))
        if output_file is None:
            say(text) if as_page else print(text)
            return
        path = output_file.expanduser().absolute()
        Files(path.parent).replace(path, f"{text}\n".encode())
        lessons, discoveries = moving.sizes(workspace)
        say(f"{counted(lessons, 'lesson')} and {counted(discoveries, 'discovery', 'discoveries')} written to {path}")


def _as_json(parts: Mapping[str, Any]) -> str:
    """Return one line of clean JSON; what an iterator yields is never in memory all at once."""
    return "{" + ",".join(f"{output.as_json(name)}:{_one_part(value)}" for name, value in parts.items()) + "}"


def _one_part(value: Any) -> str:
    if isinstance(value, Iterator):
        return "[" + ",".join(output.as_json(output.cleaned(each)) for each in value) + "]"
    return output.as_json(output.cleaned(value))


@app.command("backup")
def _backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A .tar.gz file to write.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace a file that is there.")] = False,
    directory: output.Directory = "",
) -> None:
    """Write a backup file. It holds all that can neither be fetched nor computed again."""
    with output.opened(directory) as workspace:
        done = moving.backup(workspace, target, overwrite=yes)
        say(f"{counted(done.files, 'file')} in {target}, {done.size:,} bytes; only you can read it")
        for path in done.left:
            note(f"left out, since it is no plain file, too large or oddly named: {path}")
        if done.left:
            raise typer.Exit(EXIT_REFUSED)


@app.command("restore-backup")
def _restore_backup(
    source: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Made by fleet backup.")],
    yes: output.Yes = False,
    directory: output.Directory = "",
) -> None:
    """Join a backup into the workspace here. Nothing newer is overwritten; an empty folder becomes a workspace."""
    root = output.root_for(directory)
    output.confirm(f"Join {source} into {root}? Nothing that is there will be overwritten.", yes=yes)
    moving.prepare(root, source)
    with output.opened(str(root)) as workspace:
        done = moving.restore_backup(workspace, source)
        parts = ((done.lines, "line"), (done.entries, "correction"), (len(done.files), "file"))
        came = " and ".join(counted(number, one) for number, one in parts if number)
        say(f"{came} came back" if came else "no line, correction or file of it was missing here")
        for path in done.beside:
            say(f"another version is here; the one of the backup lies beside it: {path}")
        for refused in done.refused[:REFUSED_SHOWN]:
            note(f"not taken: {refused.path}: {refused.reason}")
        if done.refused:
            note(f"{counted(len(done.refused), 'part')} kept in .fleet/quarantine/; all else is restored")
            raise typer.Exit(EXIT_REFUSED)


@app.command("upgrade")
def _upgrade(yes: output.Confirmed = False, directory: output.Directory = "") -> None:
    """Convert a workspace that fleet 0.1 made, and its branch. Once; doing it again changes nothing."""
    with output.opened(directory, of_any_version=True) as workspace:
        for line in moving.upgrade(workspace, yes=yes):
            say(line)


@app.command("purge")
def _purge(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="Of a lesson or a discovery; a beginning is enough.")],
    yes: output.Yes = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Overwrite a secret that already went out. Reaches as far as a sync does, and tells what is left to do."""
    with output.opened(directory) as workspace:
        output.confirm(f"Overwrite every text of {wanted} for the whole clan? This cannot be undone.", yes=yes)
        done = moving.purge(workspace, output.agent_in(workspace, agent), wanted, yes=yes)
        if as_json:
            output.say_json(done.as_json())
        else:
            say(f"{done.id} is {'taken back' if done.id.startswith('d-') else 'overwritten and retired'}")
            for row in moving.advice(workspace, done):
                say(row)
        if not done.shared and done.why_not != "no remote is named":
            raise typer.Exit(EXIT_REFUSED)
