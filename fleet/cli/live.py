"""Live: serve a room, and see who is in it."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options
from fleet.keep import limits

if TYPE_CHECKING:
    from ssl import SSLContext

    from fleet.keep.workspace import Workspace
    from fleet.serve.door import Rules
    from fleet.share.live import Online

ON_CHARS_MAX = 120
EXTRA = "`uv tool install 'fleet-learnings[live]'`, or pipx, or pip, with the same words"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Serve live sync.")
    group.callback()(live)
    group.command()(serve)
    app.add_typer(group, name="live")
    app.command()(who)


def live() -> None:
    """Serve live sync: neighbours hear of a lesson in a moment."""


def serve(
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
    from fleet.keep.errors import UsageError

    try:
        from fleet.serve import door, room
    except ModuleNotFoundError as why:
        raise UsageError(f"a live server needs {why.name}: {EXTRA}. Nothing was started") from why
    token, certificate = room.token_in(token_file), room.certificate_of(tls_cert, tls_key)
    door.check(host, token, has_certificate=certificate is not None)
    _serve(door.Rules(host, token, tuple(origin or ())), port, certificate)


def _serve(rules: "Rules", port: int, certificate: "SSLContext | None") -> None:
    import asyncio
    import os
    import signal

    from fleet.keep.errors import FleetError
    from fleet.serve.room import Rooms, open_server, port_of

    async def run() -> None:
        ending = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, ending.set)
        rooms = Rooms(rules, os.urandom)
        try:
            server = await open_server(rooms, rules.host, port, certificate)
        except OSError as why:
            raise FleetError(
                f"cannot listen on {rules.host}:{port} ({why.strerror}); nothing was started. "
                "Another one may run already; else name another --port"
            ) from why
        tidying = asyncio.create_task(rooms.tidy())
        scheme = "ws" if certificate is None else "wss"
        shown = f"[{rules.host}]" if ":" in rules.host else rules.host
        print(f"serving on {scheme}://{shown}:{port_of(server)}", flush=True)
        await ending.wait()
        tidying.cancel()
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def who(
    on: Annotated[str | None, typer.Option("--on", metavar="TEXT", help="Say what you are on, for others.")] = None,
    as_json: options.Json = False,
    agent: options.Agent = "",
    directory: options.Directory = "",
) -> None:
    """Show who is online, since when, and on what."""
    with desk.opened(directory) as workspace:
        told_on = "" if on is None else _say_on(workspace, desk.agent_in(workspace, agent), on)
        here = {replica.name: replica.agent for replica in workspace.replicas().replicas}
        found = [each._asdict() | {"here": each.replica in here} for each in _online(workspace)]
        for each in found:  # our own sidecar tells the others in a moment
            if on is not None and here.get(str(each["replica"])) == desk.agent_in(workspace, agent):
                each["on"] = told_on
        if as_json:
            desk.say_json({"online": desk.cleaned(found)})
            return
        for each in found:
            told = desk.cleaned(each)
            mine = " (here)" if told["here"] else ""
            since = told["since"][:16].replace("T", " ") + "Z"
            desk.say(f"{told['agent']:<16} since {since}  {told['on'] or '-'}{mine}")
        if not found:
            desk.say("nobody is online. `fleet sidecar` joins the room")


def _say_on(workspace: "Workspace", agent: str, text: str) -> str:
    """Note what an agent is on, for its sidecar to tell; return it as it is told."""
    from fleet.keep import screening

    told = screening.one_line(screening.screen(text).text)[:ON_CHARS_MAX]
    workspace.state.put(**{f"on:{agent}": told})
    return told


def _online(workspace: "Workspace") -> "list[Online]":
    """Ask the room that the configuration names.

    Raises:
        UsageError: it names none, or the libraries are not installed.
        RemoteUnavailable: no answer.
    """
    import asyncio

    from fleet.keep.errors import UsageError
    from fleet.share.remote import RemoteUnavailable

    settings = workspace.config.live
    if not settings.url and not settings.serve:
        raise UsageError("no live room is named: set url in [live] of fleet.toml, or serve = true")
    try:
        from fleet.serve.live_task import where
        from fleet.share import live
    except ModuleNotFoundError as why:
        raise UsageError(f"live sync needs {why.name}: {EXTRA}. Nothing was asked") from why
    try:
        return asyncio.run(live.who(where(settings)))
    except live.UNREACHABLE as why:
        raise RemoteUnavailable(
            f"the live server did not answer ({live.told(why)}); nothing is lost. "
            "Is `fleet live serve`, or a sidecar with serve = true, running?"
        ) from why
