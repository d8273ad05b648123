"""Figures for Prometheus: counted here, shown as plain text to whoever asks on loopback.

The ``Host`` must be this machine by a name of its own: else a page in somebody's browser could read them, once its name
points here (DNS rebinding).
"""

from dataclasses import dataclass

import anyio
from anyio.abc import SocketStream

ADDRESS = "127.0.0.1"
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S = 5.0
CLIENTS_MAX = 16
HOSTS = frozenset({"127.0.0.1", "localhost"})

_PREFIX = "fleet_sidecar_"
_SAID = {
    "syncs_total": ("counter", "Syncs that reached the clan."),
    "sync_failures_total": ("counter", "Syncs that failed; they are tried again."),
    "lines_out_total": ("counter", "Lines sent."),
    "records_in_total": ("counter", "Lessons and discoveries that came in, new or changed."),
    "works_total": ("counter", "Times that this machine's files were brought up to date."),
    "restarts_total": ("counter", "Tasks that died and were started again."),
    "last_success_timestamp_seconds": ("gauge", "When the clan was last reached, seconds since 1970; 0: never."),
    "start_timestamp_seconds": ("gauge", "When this sidecar started, seconds since 1970."),
}


@dataclass
class Figures:
    """What is counted. Each is named as it is shown, without the prefix."""

    syncs_total: int = 0
    sync_failures_total: int = 0
    lines_out_total: int = 0
    records_in_total: int = 0
    works_total: int = 0
    restarts_total: int = 0
    last_success_timestamp_seconds: float = 0.0
    start_timestamp_seconds: float = 0.0


def _exposition(figures: Figures, agent: str) -> str:
    """Return the figures in Prometheus' text format, version 0.0.4. An agent's name needs no escaping."""
    rows = []
    for name, (kind, told) in _SAID.items():
        rows += [f"# HELP {_PREFIX}{name} {told}", f"# TYPE {_PREFIX}{name} {kind}"]
        value = getattr(figures, name)
        rows.append(f'{_PREFIX}{name}{{agent="{agent}"}} {value if isinstance(value, int) else format(value, ".3f")}')
    return "\n".join(rows) + "\n"


def _answer(request: bytes, port: int, figures: Figures, agent: str) -> bytes:
    """Return the whole HTTP answer to the head of a request."""
    try:
        first, *headers = request.decode("ascii").split("\r\n")
        method, path, version = first.split(" ")
    except (UnicodeDecodeError, ValueError):
        return _reply(400, "Bad Request", "this is no HTTP request\n")
    hosts = [value.strip().lower() for name, _, value in (each.partition(":") for each in headers)
             if name.lower() == "host"]  # fmt: skip
    if not version.startswith("HTTP/1."):
        return _reply(400, "Bad Request", "HTTP/1.1 is spoken here\n")
    if len(hosts) != 1 or hosts[0] not in {f"{name}:{port}" for name in HOSTS}:
        return _reply(403, "Forbidden", "this answers to 127.0.0.1 and localhost only\n")
    if path.partition("?")[0] != "/metrics":
        return _reply(404, "Not Found", "the figures are at /metrics\n")
    if method != "GET":
        return _reply(405, "Method Not Allowed", "GET, and nothing else\n")
    return _reply(200, "OK", _exposition(figures, agent))


def _reply(code: int, reason: str, body: str) -> bytes:
    head = (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return f"{head}{body}".encode()


async def serve(figures: Figures, agent: str, port: int) -> None:
    """Answer on loopback until cancelled.

    Raises:
        OSError: the port is taken.
    """
    limiter = anyio.CapacityLimiter(CLIENTS_MAX)

    async def handle(client: SocketStream) -> None:
        async with client:
            try:
                limiter.acquire_nowait()
            except anyio.WouldBlock:
                return
            try:
                with anyio.move_on_after(REQUEST_S):
                    await client.send(_answer(await _head(client), port, figures, agent))
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return
            finally:
                limiter.release()

    listener = await anyio.create_tcp_listener(local_host=ADDRESS, local_port=port)
    async with listener:
        await listener.serve(handle)


async def _head(client: SocketStream) -> bytes:
    """Return the head of a request, or what there is of one that is too long."""
    found = b""
    while b"\r\n\r\n" not in found and len(found) <= REQUEST_BYTES_MAX:
        found += await client.receive(REQUEST_BYTES_MAX)
    head, is_whole, _ = found.partition(b"\r\n\r\n")
    return head if is_whole else b""
