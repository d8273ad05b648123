"""What runs in the background, and what a person asks about it: polls, the sidecar, live rooms, who is online."""

import asyncio
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fleet.cli import output
from fleet.cli.output import EXIT_NO, counted, note, say
from fleet.model import limits
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.serve import schedule, units
from fleet.serve.units import Unit
from fleet.store.workspace import Workspace
from fleet.text import screening

if TYPE_CHECKING:
    from fleet.serve.room import Rules
    from fleet.share.live.client import Online

_MANAGER_S = 30

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]

app = output.commands()


@app.command("poll")
def _poll(
    local: Annotated[bool, typer.Option("--local", help="Only what concerns this machine; no sync.")] = False,
    as_json: output.Json = False,
    agent: output.Agent = "",
    directory: output.Directory = "",
) -> None:
    """Do all timed work that is due, once. A sidecar does so again and again; cron may."""
    with output.opened(directory) as workspace:
        done = schedule.tick(workspace, output.agent_in(workspace, agent)).run(local=local)
    if as_json:
        output.say_json(output.cleaned(msgspec.to_builtins(done)))
    else:
        say(_as_text(done))
        for told in done.errors:
            note(told)
    raise typer.Exit(done.exit)


def _as_text(done: schedule.Ticked) -> str:
    told = []
    if done.worked is not None:
        told += ["brought this machine up to date", *map(_promoted, done.worked.promoted)]
        told += [f"reflected on a session: {output.cleaned(each)}" for each in done.worked.reflected]
    if done.synced is not None:
        verb = "exchanged, in part" if done.synced.partial else "synced"
        told.append(f"{verb}: {counted(done.synced.lines_out, 'line')} out, {done.synced.records_in:,} new in")
        told += map(_promoted, done.synced.promoted)
    elif done.why:
        told.append(f"nothing was sent: {done.why}")
    return "\n".join(told) or f"nothing is due for {done.next_s:.0f} s"


def _promoted(text: str) -> str:
    return f"promoted into memory.md: {output.cleaned(text)}"


# --- the sidecar ----------------------------------------------------------------------------------------------------

sidecar_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None, name="sidecar")


@sidecar_app.callback(invoke_without_command=True)
def _sidecar(context: typer.Context, agent: output.Agent = "", directory: output.Directory = "") -> None:
    """Look after a workspace until stopped. Takes in what is written by hand, renders, syncs."""
    if context.invoked_subcommand is not None:
        output.chosen.agent = agent or output.chosen.agent
        output.chosen.directory = directory or output.chosen.directory
        return
    from fleet.serve.sidecar import run  # with the libraries that look on and wait

    with output.opened(directory) as workspace:
        named = output.agent_in(workspace, agent)
        if not run(workspace, named):
            say(f"a sidecar looks after {named} already: nothing to do. `fleet sidecar status` tells more")


@sidecar_app.command("install")
def _install(dry_run: DryRun = False, agent: output.Agent = "", directory: output.Directory = "") -> None:
    """Let the system start this sidecar with every login. A systemd user unit, or a launchd agent."""
    with output.opened(directory) as workspace:
        named = output.agent_in(workspace, agent)
        found = _unit(workspace, named)
        command = [sys.executable, "-P", "-m", "fleet", "sidecar", "--agent", named, "--dir", str(workspace.root)]
        data = found.content(command)
        if dry_run:
            note(f"would write {found.path}")
            say(data.decode().rstrip())
        else:
            found.write(data)
            say(f"wrote {found.path}")
        _call(found.start, dry_run=dry_run)


@sidecar_app.command("uninstall")
def _uninstall(dry_run: DryRun = False, agent: output.Agent = "", directory: output.Directory = "") -> None:
    """Take out what `fleet sidecar install` made, and nothing else. No lesson is touched."""
    with output.opened(directory) as workspace:
        found = _unit(workspace, output.agent_in(workspace, agent))
        if not found.path.exists():
            say(f"{found.path} is not there; nothing was changed")
            return
        found.check()
        _call(found.end, dry_run=dry_run)
        if dry_run:
            note(f"would remove {found.path}")
            return
        found.take_out()
        say(f"removed {found.path}")


def _unit(workspace: Workspace, agent: str) -> Unit:
    return Unit.of(sys.platform, os.environ, workspace.root, agent, os.getuid())


def _call(commands: list[list[str]], *, dry_run: bool = False) -> None:
    """Run a service manager's commands; where there is none that answers, say what to run."""
    for words in commands:
        if not dry_run and shutil.which(words[0]):
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=_MANAGER_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                done = None
            if done is not None and done.returncode == 0:
                say(f"ran: {shlex.join(words)}")
                continue
        say(f"run: {shlex.join(words)}")


def install_timer_of(workspace: Workspace, agent: str, *, dry_run: bool) -> None:
    """Write the two units, and put the timer to work; with ``dry_run`` only show them."""
    service, timer = units.timer_of(sys.platform, os.environ, workspace.root, agent)
    command = [sys.executable, "-P", "-m", "fleet", "sleep", "--agent", agent, "--dir", str(workspace.root)]
    for each in (service, timer):
        data = each.timed_content(command)
        if dry_run:
            note(f"would write {each.path}")
            say(data.decode().rstrip())
        else:
            each.write(data)
            say(f"wrote {each.path}")
    _call(timer.start, dry_run=dry_run)


def take_out_timer(workspace: Workspace, agent: str, *, dry_run: bool) -> None:
    """Take out what was installed, and nothing else."""
    service, timer = units.timer_of(sys.platform, os.environ, workspace.root, agent)
    found = [each for each in (timer, service) if each.path.exists()]
    if not found:
        say(f"{timer.path} is not there; nothing was changed")
        return
    for each in found:
        each.check()
    _call(timer.end, dry_run=dry_run)
    for each in found:
        if not dry_run:
            each.take_out()
        say(f"{'would remove' if dry_run else 'removed'} {each.path}")


@sidecar_app.command("status")
def _status(as_json: output.Json = False, agent: output.Agent = "", directory: output.Directory = "") -> None:
    """Tell whether this sidecar runs, since when, and how the last sync went. Exits 1 when it does not run."""
    with output.opened(directory) as workspace:
        named = output.agent_in(workspace, agent)
        holder = units.holder(workspace.files, workspace.local, named)
        marks = schedule.Memory(workspace.files, workspace.local).read()
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
            output.say_json(output.cleaned(found))
        else:
            say("\n".join(_as_rows(found)))
        if holder is None:
            raise typer.Exit(EXIT_NO)


def _unit_path(workspace: Workspace, agent: str) -> Path | None:
    try:
        path = _unit(workspace, agent).path
    except UsageError:
        return None
    return path if path.is_file() else None


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else ""


def _as_rows(found: dict[str, Any]) -> list[str]:
    runs = f"runs as process {found['pid']}, since {found['since']}" if found["running"] else "does not run"
    rows = [
        f"sidecar     {found['agent']}: {runs}",
        f"last sync   {found['last_sync'] or 'never'}",
        f"next sync   {found['next_sync'] or 'as soon as it runs'}",
        f"service     {found['unit'] or 'none: `fleet sidecar install` makes one'}",
    ]
    if found["last_error"]:
        rows.append(f"last error  {output.cleaned(found['last_error'])} ({counted(found['failures'], 'failure')})")
    return rows


app.add_typer(sidecar_app)


# --- live -----------------------------------------------------------------------------------------------------------

live_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Serve live sync.", name="live")


@live_app.callback()
def _live() -> None:
    """Serve live sync: neighbours hear of a lesson in a moment."""


@live_app.command("serve")
def _serve(
    host: Annotated[str, typer.Option("--host", help="Where to listen; beyond this machine, a token and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = limits.LIVE_PORT,
    token_file: Annotated[str, typer.Option("--token-file", metavar="FILE", help="What clients must know.")] = "",
    tls_cert: Annotated[str, typer.Option("--tls-cert", metavar="FILE", help="The certificate, with its chain.")] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = "",
    origin: Annotated[
        list[str] | None, typer.Option("--origin", metavar="URL", help="A web page that may connect; several times.")
    ] = None,
) -> None:
    """Serve live rooms until interrupted. Nothing is kept: clients bring what they have."""
    from fleet.serve.room import Rules  # with the libraries of live sync
    from fleet.share.live import access, wire

    token = _token_in(token_file) or (access.fresh_token() if wire.is_loopback(host) else "")
    rules, certificate = Rules(host, token, tuple(origin or ())), _certificate_of(tls_cert, tls_key)
    rules.check(has_certificate=certificate is not None)
    asyncio.run(_served(rules, port, certificate))


@live_app.command("join")
def _join(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="wss://HOST, or ws:// here; none: fleet.toml's, or your own server.")
    ] = "",
    room: Annotated[str, typer.Option("--room", metavar="NAME", help="The clan's room there; 'clan'.")] = "",
    token_env: Annotated[
        str, typer.Option("--token-env", metavar="NAME", help="The variable FLEET_* with its token.")
    ] = "",
    directory: output.Directory = "",
) -> None:
    """Agree to a live room on this machine: lessons go there as they are logged, and come from there."""
    from fleet.share.live import access

    with output.opened(directory) as workspace:
        joined = access.join(workspace, url, room, token_env)
        served = ", which the sidecar serves itself" if joined.serve else ""
        say(f"this folder is in room {joined.room} at {access.address(joined)}{served}")
        say("`fleet sidecar` goes there, and `fleet who` shows who is there; `fleet live leave` withdraws it")


@live_app.command("leave")
def _leave(directory: output.Directory = "") -> None:
    """Withdraw the yes to a live room on this machine. What was sent stays with the clan."""
    from fleet.share.live import access

    with output.opened(directory) as workspace:
        if not access.leave(workspace):
            raise NoError("this folder is in no live room. Nothing was changed")
        say("this folder is in no live room any more; what was sent stays with the clan")


def _token_in(path: str) -> str:
    """Return the token that a file holds, "" for no file."""
    if not path:
        return ""
    try:
        token = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as why:
        raise UsageError(f"{path} cannot be read ({why}); nothing was started") from why
    if not token:
        raise UsageError(f"{path} is empty: a token is one line of random text. Nothing was started")
    return token


def _certificate_of(cert: str, key: str) -> ssl.SSLContext | None:
    """Return what TLS needs, from two files; None for no files."""
    if not cert and not key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None)
    except OSError as why:
        raise UsageError(f"{cert} and {key} are no certificate with its key ({why}); nothing was started") from why
    return context


async def _served(rules: "Rules", port: int, certificate: ssl.SSLContext | None) -> None:
    from fleet.serve.room import Rooms, serving

    ending = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ending.set)
    async with AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(serving(Rooms(rules, os.urandom), port, certificate))
        except OSError as why:
            raise FleetError(
                f"cannot listen on {rules.host}:{port} ({why.strerror}); nothing was started. "
                "Another one may run already; else name another --port"
            ) from why
        from fleet.share.live import access

        stack.enter_context(access.published(found, rules.token))
        scheme = "ws" if certificate is None else "wss"
        shown = f"[{rules.host}]" if ":" in rules.host else rules.host
        print(f"serving on {scheme}://{shown}:{found}", flush=True)
        await ending.wait()


app.add_typer(live_app)


@app.command("who")
def _who(
    on: Annotated[str | None, typer.Option("--on", metavar="TEXT", help="Say what you are on, for others.")] = None,
    as_json: output.Json = False,
    agent: output.Agent = "",
    directory: output.Directory = "",
) -> None:
    """Show who is online, since when, and on what."""
    with output.opened(directory) as workspace:
        told_on = "" if on is None else _say_on(workspace, output.agent_in(workspace, agent), on)
        here = {replica.name: replica.agent for replica in workspace.replicas().replicas}
        found = [each._asdict() | {"here": each.replica in here} for each in _online(workspace)]
        for each in found:  # our own sidecar tells the others in a moment
            if on is not None and here.get(str(each["replica"])) == output.agent_in(workspace, agent):
                each["on"] = told_on
        if as_json:
            output.say_json({"online": output.cleaned(found)})
            return
        for each in found:
            told = output.cleaned(each)
            mine = " (here)" if told["here"] else ""
            say(f"{told['agent']:<16} since {output.when(told['since'])}  {told['on'] or '-'}{mine}")
        if not found:
            say("nobody is online. `fleet sidecar` joins the room")


def _say_on(workspace: Workspace, agent: str, text: str) -> str:
    """Note what an agent is on, for its sidecar to tell; return it as it is told."""
    told = screening.one_line(screening.screen(text).text)[: limits.ON_CHARS_MAX]
    workspace.state.put(**{f"on:{agent}": told})
    return told


def _online(workspace: Workspace) -> "list[Online]":
    """Ask the room that the configuration names.

    Raises:
        UsageError: it names none.
        RemoteUnavailable: no answer.
    """
    from fleet.share.live import access
    from fleet.share.live.client import Where, who  # with the libraries of live sync

    settings = access.agreed(workspace)
    if settings is None:
        raise UsageError(
            "no live room is named: `fleet live join URL` joins one, for instance that of `fleet live serve`"
        )

    return asyncio.run(who(Where.named(settings)))
