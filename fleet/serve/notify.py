"""Telling systemd how we are: readiness, a sign of life, the end (sd_notify(3)). Elsewhere nothing happens."""

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
ALIVE = "WATCHDOG=1"
STOPPING = "STOPPING=1"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send one state to the service manager; tell whether there is one that took it.

    Args:
        state: ``READY``, ``ALIVE``, ``STOPPING`` or ``STATUS=...``; several on lines of their own.
        environment: where ``NOTIFY_SOCKET`` names a path, or an abstract address after an ``@``.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as manager:
            manager.connect(address)
            manager.sendall(state.encode())
    except OSError:
        return False
    return True


def alive_every_s(environment: Mapping[str, str] = os.environ, pid: int | None = None) -> float:
    """Return how often a sign of life is due, seconds: half of ``WATCHDOG_USEC``; 0 when nobody listens for one."""
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid() if pid is None else pid):
        return 0.0
    try:
        wanted = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return 0.0
    return max(wanted, 0) / 2_000_000
