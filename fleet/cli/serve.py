"""Commands for background work: one poll, the sidecar and its service, and the timer of ``fleet sleep``."""

import os
import shlex
import shutil
import subprocess
import sys
from typing import Annotated, Any

import msgspec
import typer

from crdt import clock
from fleet.cli import output
from fleet.cli.output import EXIT_NO, echo, flag, note
from fleet.model.errors import UsageError
from fleet.serve import schedule, units
from fleet.serve.units import Service
from fleet.store.workspace import Workspace
from fleet.text.screening import counted

_MANAGER_S = 30

app = output.commands()


@app.command("poll")
def _poll(local: Annotated[bool, flag("--local", "Only what concerns this machine; no sync.")] = False) -> None:
    """Do all timed work that is due, once. A sidecar does so again and again; cron may."""
    from fleet.serve.tick import Tick  # with the verbs, which a sidecar does not import

    with output.acting() as (workspace, who):
        ticked = Tick(workspace, who).run(local=local)
    output.show(msgspec.to_builtins(ticked), _rows(ticked))
    for error in ticked.errors:
        output.hint(error)
    raise typer.Exit(ticked.exit)


def _rows(ticked: schedule.TickResult) -> list[str]:
    rows = []
    if ticked.worked is not None:
        rows.append("did what was due on this machine")
        rows += [f"promoted into memory.md: {text}" for text in ticked.worked.promoted]
        rows += [f"reflected on a session: {summary}" for summary in ticked.worked.reflected]
    if ticked.synced is not None:
        verb = "exchanged, in part" if ticked.synced.partial else "synced"
        rows.append(f"{verb}: {counted(ticked.synced.lines_out, 'line')} out, {ticked.synced.records_in:,} new in")
        rows += [f"promoted into memory.md: {text}" for text in ticked.synced.promoted]
    elif ticked.why:
        rows.append(f"nothing was sent: {ticked.why}")
    return rows if rows or ticked.errors else [f"nothing is due for {ticked.next_s:.0f} s"]


# --- the sidecar ----------------------------------------------------------------------------------------------------

sidecar_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None, name="sidecar")


@sidecar_app.callback(invoke_without_command=True)
def _sidecar(context: typer.Context) -> None:
    """Keep a workspace up to date until stopped: take in lines written by hand, render, sync."""
    if context.invoked_subcommand is not None:
        return
    from fleet.serve.sidecar import run  # with the libraries that watch files and wait

    with output.acting() as (workspace, named):
        if sys.stderr.isatty() and units.Seat(workspace.files, workspace.local, named).holder() is None:
            syncs = "syncs after a quiet moment" if workspace.is_in_a_clan else "syncs once a remote is named"
            note(f"the sidecar of {named} takes in what is written by hand, and {syncs}. Ctrl-C stops it")
        if not run(workspace, named):
            echo(f"a sidecar looks after {named} already: nothing to do. `fleet sidecar status` shows more")
        elif sys.stderr.isatty():
            note(f"the sidecar of {named} stopped; `fleet sync` sends what is logged from now on")


@sidecar_app.command("install")
def _install(dry_run: output.DryRun = False) -> None:
    """Let the system start this sidecar with every login. A systemd user unit, or a launchd agent."""
    with output.acting() as (workspace, who):
        _write(_service(workspace, who), dry_run=dry_run)


@sidecar_app.command("uninstall")
def _uninstall(dry_run: output.DryRun = False) -> None:
    """Take out what `fleet sidecar install` made, and nothing else. No lesson is touched."""
    with output.acting() as (workspace, who):
        _remove(_service(workspace, who), dry_run=dry_run)


def _service(workspace: Workspace, agent: str) -> Service:
    command = _words(workspace, agent, "sidecar")
    return Service.sidecar(sys.platform, os.environ, workspace.root, agent, os.getuid(), command)


def change_timer(workspace: Workspace, agent: str, *, remove: bool, dry_run: bool) -> None:
    """Install the timer that runs ``fleet sleep`` once a day, or remove it."""
    timer = Service.timer(sys.platform, os.environ, workspace.root, agent, _words(workspace, agent, "sleep"))
    (_remove if remove else _write)(timer, dry_run=dry_run)


def _words(workspace: Workspace, agent: str, command: str) -> list[str]:
    return [sys.executable, "-P", "-m", "fleet", command, "--agent", agent, "--dir", str(workspace.root)]


def _write(service: Service, *, dry_run: bool) -> None:
    """Write a service's files, and start it; with ``dry_run`` only show them."""
    service.check()
    if dry_run:
        for path, data in service.files.items():
            note(f"would write {path}")
            echo(data.decode().rstrip(), as_is=True)
    else:
        # A service that runs would keep its old settings, and launchd refuses to start it twice.
        for words in service.end if any(path.exists() for path in service.files) else ():
            _has_run(words)
        service.write()
        echo("\n".join(f"wrote {path}" for path in service.files))
    output.show({"files": list(map(str, service.files)), "to_run": _call(service.start, dry_run=dry_run)}, ())


def _remove(service: Service, *, dry_run: bool) -> None:
    """End a service, and remove its files; nothing else."""
    files, commands = [str(path) for path in service.files if path.exists()], list[str]()
    if files:
        service.check()
        commands = _call(service.end, dry_run=dry_run)
        if not dry_run:
            service.take_out()
    rows = [f"{'would remove' if dry_run else 'removed'} {path}" for path in files]
    none = f"{next(iter(service.files))} is not there; nothing was changed"
    output.show({"files": files, "to_run": commands}, rows or none)


def _has_run(words: list[str]) -> bool:
    """Run a command of a service manager; return whether it succeeded."""
    if not shutil.which(words[0]):
        return False
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_MANAGER_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _call(commands: list[list[str]], *, dry_run: bool) -> list[str]:
    """Run a service manager's commands; print and return those that failed, which a person has to run."""
    to_run = []
    for words in commands:
        if not dry_run and _has_run(words):
            echo(f"ran: {shlex.join(words)}")
            continue
        to_run.append(shlex.join(words))
        echo(f"run: {to_run[-1]}")
    return to_run


@sidecar_app.command("status")
def _status() -> None:
    """Show whether this sidecar runs, since when, and how the last sync went. Exits 1 when it does not run."""
    with output.acting() as (workspace, named):
        holder = units.Seat(workspace.files, workspace.local, named).holder()
        marks = schedule.Memory(workspace).read()
        document = {
            "agent": named,
            "running": holder is not None,
            "pid": holder[0] if holder else 0,
            "since": clock.moment(holder[1] if holder else 0),
            "last_sync": clock.moment(marks.synced_ms),
            "last_work": clock.moment(marks.worked_ms),
            "failures": marks.failures,
            "last_error": marks.error,
            "next_sync": clock.moment(marks.next_ms if marks.next_ms > workspace.world.wall_ms() else 0),
            "unit": _unit(workspace, named),
        }
        output.show(document, _status_rows(document))
        if holder is None:
            raise typer.Exit(EXIT_NO)


def _unit(workspace: Workspace, agent: str) -> str:
    try:
        (path,) = _service(workspace, agent).files
    except UsageError:
        return ""
    return str(path) if path.is_file() else ""


def _status_rows(status: dict[str, Any]) -> list[str]:
    since = output.when(status["since"])
    runs = f"runs as process {status['pid']}, since {since}" if status["running"] else "does not run"
    rows = [
        f"sidecar     {status['agent']}: {runs}",
        f"last sync   {output.when(status['last_sync']) or 'never'}",
        f"next sync   {output.when(status['next_sync']) or 'as soon as it runs'}",
        f"service     {status['unit'] or 'none: `fleet sidecar install` makes one'}",
    ]
    if status["last_error"]:
        rows.append(f"last error  {status['last_error']} ({counted(status['failures'], 'failure')})")
    return rows


app.add_typer(sidecar_app)
