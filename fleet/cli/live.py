"""Commands for live rooms: serve one, join or leave one, and see who is online. Imports the libraries of live sync."""

import asyncio
import os
import secrets
import signal
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fleet.cli import output
from fleet.cli.output import argument, echo, flag, note, option
from fleet.model import limits
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.serve.room import Rooms, Rules, serving
from fleet.share.live import access
from fleet.share.live.access import Access, Where
from fleet.share.live.client import Online, who
from fleet.share.remote import RemoteUnavailable
from fleet.store import config, consent
from fleet.store.workspace import Workspace
from fleet.text import screening

app = output.commands()

live_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Serve live sync.", name="live")


@live_app.command("serve")
def _serve(
    host: Annotated[str, option("--host", "TEXT", "Where to listen; beyond this machine, a token and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = limits.LIVE_PORT,
    token_file: Annotated[str, option("--token-file", "FILE", "The token of all clients.")] = "",
    tls_cert: Annotated[str, option("--tls-cert", "FILE", "The certificate, with its chain.")] = "",
    tls_key: Annotated[str, option("--tls-key", "FILE", "Its private key.")] = "",
    origin: Annotated[
        list[str] | None, option("--origin", "URL", "Origin of a web page that may connect; may be repeated.")
    ] = None,
) -> None:
    """Serve live rooms until interrupted. Nothing is kept: clients bring what they have."""
    token = _token_in(token_file) or (secrets.token_hex(24) if consent.is_loopback(host) else "")
    rules, certificate = Rules(host, token, tuple(origin or ())), _certificate_of(tls_cert, tls_key)
    rules.check(has_certificate=certificate is not None)
    asyncio.run(_served(rules, port, certificate))


@live_app.command("join")
def _join(
    url: Annotated[str, argument("[URL]", "wss://HOST, or ws:// here; none: fleet.toml's, or your own server.")] = "",
    room: Annotated[str, option("--room", "NAME", "The clan's room there; 'clan'.")] = "",
    token_env: Annotated[str, option("--token-env", "NAME", "The variable FLEET_* with its token.")] = "",
    yes: Annotated[bool, flag("--yes", "-y", "Agree to the room that fleet.toml names.")] = False,
) -> None:
    """Agree to a live room on this machine: lessons go there as they are logged, and come from there."""
    with output.opened() as workspace:
        if not (url or room or token_env) and (proposed := Access(workspace).proposed()):
            _ask_about(proposed, yes=yes)
        joined = Access(workspace).join(url, room, token_env)
        url, served = access.address(joined), ", which the sidecar serves itself" if joined.serve else ""
        echo(f"this folder is in room {joined.room} at {url}{served}")
        next_ = "`fleet sidecar` connects to it, `fleet who` shows who is there; `fleet live leave` withdraws it"
        output.show({"url": url, "room": joined.room, "serve": joined.serve}, next_)
        if not joined.serve:
            try:
                asyncio.run(who(Where.named(joined), wait_s=1.0))
            except RemoteUnavailable as why:
                note(f"nobody answers there now; the sidecar tries again by itself: {why}")


def _ask_about(proposed: config.Live, *, yes: bool) -> None:
    """Show the room in ``fleet.toml`` before anything goes there; a person must agree to one on another machine."""
    address = access.address(proposed)
    token = f"the token in {proposed.token_env}, if it is set"
    note(f"fleet.toml names the live room {proposed.room} at {address}, with {token}")
    is_here = consent.is_loopback(urlsplit(address).hostname or "")
    output.confirm("Send lessons there as they are logged, and take in those that come?", yes=yes or is_here)


@live_app.command("leave")
def _leave() -> None:
    """Leave the live room on this machine. What was sent stays with the clan."""
    with output.opened() as workspace:
        if not Access(workspace).leave():
            raise NoError("this folder is in no live room. Nothing was changed")
        output.show({"left": True}, "this folder is in no live room any more; what was sent stays with the clan")


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
    """Return the TLS context of two files; None for no files."""
    if not cert and not key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None)
    except OSError as why:
        raise UsageError(f"{cert} and {key} are no certificate with its key ({why}); nothing was started") from why
    return context


async def _served(rules: Rules, port: int, certificate: ssl.SSLContext | None) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(serving(Rooms(rules, os.urandom), port, certificate))
        except OSError as why:
            raise FleetError(
                f"cannot listen on {rules.host}:{port} ({why.strerror}); nothing was started. "
                "Another one may run already; else name another --port"
            ) from why
        stack.enter_context(access.published(bound, rules.token))
        scheme = "ws" if certificate is None else "wss"
        shown = f"[{rules.host}]" if ":" in rules.host else rules.host
        print(f"serving on {scheme}://{shown}:{bound}", flush=True)
        await stopped.wait()


app.add_typer(live_app)


@app.command("who")
def _who(on: Annotated[str | None, option("--on", "TEXT", "Show others what you work on.")] = None) -> None:
    """Show who is online, since when, and on what."""
    with output.opened() as workspace:
        agent = "" if on is None else output.agent_in(workspace)
        if on is not None:
            topic = screening.one_line(screening.screen(on).text)[: limits.ON_CHARS_MAX]
            workspace.state.put(**{f"on:{agent}": topic})
        here = {replica.name for replica in workspace.replicas().replicas}
        online = [each._asdict() | {"here": each.replica in here} for each in _online(workspace)]
        if on is not None:
            runs = any(each["here"] and each["agent"] == agent for each in online)
            note(f"others see that {'in a moment' if runs else 'once `fleet sidecar` runs here'}")
        rows = [
            f"{each['agent']:<16} since {output.when(each['since'])}  {each['on'] or '-'}{' (here)' * each['here']}"
            for each in online
        ]
        output.show({"online": online}, rows or "nobody is online. `fleet sidecar` joins the room")


def _online(workspace: Workspace) -> list[Online]:
    settings = Access(workspace).agreed()
    if settings is None:
        raise UsageError(
            "no live room is named: `fleet live join URL` joins one, for instance that of `fleet live serve`"
        )
    return asyncio.run(who(Where.named(settings)))
