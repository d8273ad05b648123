"""What runs in the background, and what a person asks about it: ``fleet poll``, ``fleet sidecar``."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from pathlib import Path

    from fleet.keep.workspace import Workspace
    from fleet.serve.sidecar import Background, Hands
    from fleet.serve.units import Unit

LOG = "sidecar.log"
EXIT_NO = 1
EXTRA = "fleet-learnings[{extra}]"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(poll)
    group = typer.Typer(no_args_is_help=False, rich_markup_mode=None)
    group.callback(invoke_without_command=True)(sidecar)
    group.command()(install)
    group.command()(uninstall)
    group.command()(status)
    app.add_typer(group, name="sidecar")


def poll(
    local: Annotated[bool, typer.Option("--local", help="Only what concerns this machine; no sync.")] = False,
    as_json: options.Json = False,
    agent: options.Agent = "",
    directory: options.Directory = "",
) -> None:
    """Do all timed work that is due, once. A sidecar does so again and again; cron may."""
    from fleet.cli import polling

    with desk.opened(directory) as workspace:
        done = polling.tick(workspace, desk.agent_in(workspace, agent), local=local)
    if as_json:
        import msgspec

        desk.say_json(desk.cleaned(msgspec.to_builtins(done)))
    else:
        desk.say(polling.as_text(done))
        for told in done.errors:
            desk.note(told)
    raise typer.Exit(done.exit)


def sidecar(
    context: typer.Context,
    agent: options.Agent = "",
    directory: options.Directory = "",
) -> None:
    """Look after a workspace until stopped. Takes in what is written by hand, renders, syncs."""
    if context.invoked_subcommand is not None:
        desk.chosen.agent, desk.chosen.directory = agent or desk.chosen.agent, directory or desk.chosen.directory
        return
    from fleet.keep.errors import BusyError
    from fleet.serve import holding, notify

    with desk.opened(directory) as workspace:
        named = desk.agent_in(workspace, agent)
        hands = _hands(workspace, named)
        from fleet.serve.sidecar import run

        try:
            with holding.held(workspace.disk, workspace.local, named, workspace.world.wall_ms()):
                run(hands)
        except BusyError:
            # systemd takes one that ends without a word for broken, and starts it again and again.
            notify.notify(f"{notify.READY}\nSTATUS=another one looks after {named} already")
            desk.say(f"a sidecar looks after {named} already: nothing to do. `fleet sidecar status` tells more")


def _hands(workspace: "Workspace", agent: str) -> "Hands":
    """Return what a sidecar works with.

    Raises:
        UsageError: the libraries are not installed.
    """
    from fleet.keep import config
    from fleet.keep.errors import UsageError

    try:
        from fleet.serve import process
        from fleet.serve.sidecar import Hands
        from fleet.serve.tick import Memory
    except ModuleNotFoundError as why:
        raise UsageError(f"a sidecar needs {why.name}: {_how_to_install('sidecar')}. Nothing was started") from why
    log = partial(_log, workspace.root, agent)
    return Hands(
        root=str(workspace.root),
        agent=agent,
        # Not through the verbs: they work in processes of their own, and would stay in the memory of this one.
        agents=lambda: sorted({agent, *(each.agent for each in workspace.replicas().replicas)}),
        settings=lambda: config.load(workspace.config_file),
        marks=Memory(workspace.disk, workspace.local).read,
        now_ms=workspace.world.wall_ms,
        tick=partial(process.tick, workspace.root, agent),
        log=log,
        background=_background(workspace, agent, log),
    )


def _background(workspace: "Workspace", agent: str, log: "Callable[[str, str], None]") -> "dict[str, Background]":
    """Return what else runs: live sync where a room is named."""
    if not (workspace.config.live.url or workspace.config.live.serve):
        return {}
    try:
        from fleet.serve import live_task
    except ModuleNotFoundError as why:
        log("no live sync", f"it needs {why.name}: {_how_to_install('live')}. Lines travel with the next sync")
        return {}

    async def run(changed: Any, arrived: Any, stop: Any) -> None:
        await live_task.run(workspace.root, agent, changed.wait, arrived, stop)

    _listen_to(live_task.log, "live", log)
    return {"live": run}


def _listen_to(logger: "logging.Logger", event: str, log: "Callable[[str, str], None]") -> None:
    """Write what a library-like part of fleet logs into our own log."""
    import logging

    class Into(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log(event, record.getMessage())

    logger.addHandler(Into())
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _how_to_install(extra: str) -> str:
    return f"run `uv tool install '{EXTRA.format(extra=extra)}'`, or pipx, or pip, with the same words"


def _log(root: "Path", agent: str, event: str, what: str) -> None:
    import time

    from fleet.hosts import local
    from fleet.keep import screening

    if not root.is_dir():  # whoever took the folder away does not want it back for a log
        return
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = screening.redact(screening.strip_controls(what))[:600]
    local.add_line(str(root), LOG, {"at": at, "event": event, "agent": agent, "pid": str(os.getpid()), "what": told})


def install(dry_run: DryRun = False, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Let the system start this sidecar with every login. A systemd user unit, or a launchd agent."""
    from fleet.serve import units

    with desk.opened(directory) as workspace:
        named = desk.agent_in(workspace, agent)
        found = _unit(workspace, named)
        command = [sys.executable, "-P", "-m", "fleet", "sidecar", "--agent", named, "--dir", str(workspace.root)]
        folders = units.missing_folders(found.path)
        data = units.content(found, command, workspace.root, named, folders)
        if dry_run:
            desk.note(f"would write {found.path}")
            desk.say(data.decode().rstrip())
            _call(found.start, dry_run=True)
            return
        units.write(found, data)
        desk.say(f"wrote {found.path}")
        _call(found.start)


def uninstall(dry_run: DryRun = False, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Take out what `fleet sidecar install` made, and nothing else. No lesson is touched."""
    from fleet.serve import units

    with desk.opened(directory) as workspace:
        found = _unit(workspace, desk.agent_in(workspace, agent))
        if not found.path.exists():
            desk.say(f"{found.path} is not there; nothing was changed")
            return
        units.check(found.path)
        _call(found.end, dry_run=dry_run)
        if dry_run:
            desk.note(f"would remove {found.path}")
            return
        units.take_out(found)
        desk.say(f"removed {found.path}")


def _unit(workspace: "Workspace", agent: str) -> "Unit":
    from fleet.serve import units

    return units.unit(sys.platform, os.environ, workspace.root, agent, os.getuid())


def _call(commands: list[list[str]], *, dry_run: bool = False) -> None:
    """Run a service manager's commands; where there is none that answers, say what to run."""
    import shlex
    import shutil
    import subprocess

    for words in commands:
        if not dry_run and shutil.which(words[0]):
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
            except (OSError, subprocess.TimeoutExpired):
                done = None
            if done is not None and done.returncode == 0:
                desk.say(f"ran: {shlex.join(words)}")
                continue
        desk.say(f"run: {shlex.join(words)}")


def status(as_json: options.Json = False, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Tell whether this sidecar runs, since when, and how the last sync went. Exits 1 when it does not run."""
    from fleet.cli import polling
    from fleet.serve import holding

    with desk.opened(directory) as workspace:
        named = desk.agent_in(workspace, agent)
        holder, marks = holding.holder(workspace.disk, workspace.local, named), polling.memory(workspace).read()
        found = {
            "agent": named,
            "running": holder is not None,
            "pid": holder.pid if holder else 0,
            "since": _when(holder.since_ms) if holder else "",
            "last_sync": _when(marks.synced_ms),
            "last_work": _when(marks.worked_ms),
            "failures": marks.failures,
            "last_error": marks.error,
            "next_sync": _when(marks.next_ms),
            "unit": str(path) if (path := _unit_path(workspace, named)) else "",
        }
        if as_json:
            desk.say_json(desk.cleaned(found))
        else:
            desk.say(_as_text(found))
        if holder is None:
            raise typer.Exit(EXIT_NO)


def _unit_path(workspace: "Workspace", agent: str) -> "Path | None":
    from fleet.keep.errors import UsageError

    try:
        path = _unit(workspace, agent).path
    except UsageError:
        return None
    return path if path.is_file() else None


def _when(at_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else ""


def _as_text(found: dict[str, Any]) -> str:
    runs = f"runs as process {found['pid']}, since {found['since']}" if found["running"] else "does not run"
    rows = [
        f"sidecar     {found['agent']}: {runs}",
        f"last sync   {found['last_sync'] or 'never'}",
        f"next sync   {found['next_sync'] or 'as soon as it runs'}",
        f"service     {found['unit'] or 'none: `fleet sidecar install` makes one'}",
    ]
    if found["last_error"]:
        rows.append(f"last error  {desk.cleaned(found['last_error'])} ({desk.counted(found['failures'], 'failure')})")
    return "\n".join(rows)
