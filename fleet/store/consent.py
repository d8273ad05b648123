"""Consent to all that leaves this machine: what a file that others can write names is used only after a yes, by value.

A ``fleet.toml`` travels with a repository, so it may be anybody's. Whoever sends something asks
``workspace.state.agrees(KIND, value)`` first, where the value has in it all that decides what goes where: the address,
and the name of the variable that goes along. A yes is kept in ``local.db``, for this machine alone, by
``workspace.state.agree(KIND, value, workspace.wall())``. Another value is another question.
"""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from fleet.model.errors import UsageError

REMOTE = "remote"
"""The git remote of the clan, and its branch where that is not the usual one."""
LIVE = "live"
"""A live room: address, room, and the variable with its token."""
SEMANTIC = "semantic"
"""The endpoint that computes embeddings, and the variable with its key."""
REFLECT = "reflect"
"""The endpoint or command that reflects."""
WEBHOOK = "webhook"
"""Address of messages about what waits for a person."""
AUTHOR = "author"
"""The ``Name <address>`` that commits to the clan's branch bear."""

_OURS = r"FLEET_[A-Z0-9_]{1,120}"


def variable(name: str) -> str:
    """Return the value of an environment variable that a configuration names; "" unless it is one of ``FLEET_*``."""
    return os.environ.get(name, "") if re.fullmatch(_OURS, name) else ""


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Endpoint:
    """An address of HTTP that lessons may go to."""

    def __init__(self, url: str) -> None:
        self.url = url

    def check(self) -> str:
        """Return the address, if lessons may go there once somebody agreed to it.

        Raises:
            UsageError: it is none, goes beyond this machine in clear text, or has a password in it.
        """
        url = self.url
        try:
            parts = urlsplit(url)
            host, has_port = parts.hostname or "", parts.port != 0
        except ValueError:
            parts, host, has_port = urlsplit(""), "", False
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
        if not (is_safe and host and has_port and url.isprintable() and " " not in url) or "@" in parts.netloc:
            shown = url.rpartition("@")[2][:200]
            raise UsageError(
                f"{shown!r} is no address that lessons may go to: https://HOST, or http:// on this machine, and no "
                "user or password in it (a key stands in a variable FLEET_*). Nothing was sent"
            )
        return url

    def post(self, body: bytes, headers: Mapping[str, str], wait_s: float, bytes_max: int) -> bytes:
        """Return what it answers to some JSON; somebody agreed to it.

        Raises:
            UsageError: it is no address that anything may go to.
            OSError: it cannot be reached, or answers with an error.
        """
        import urllib.request  # only whoever sends something pays for it

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """A redirection would take it to an address that nobody agreed to."""

            def redirect_request(self, *_: object, **__: object) -> None:
                """Follow none."""

        told = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.check(), body, told)  # noqa: S310 - https, or this machine
        with urllib.request.build_opener(NoRedirect).open(request, timeout=wait_s) as answer:
            return bytes(answer.read(bytes_max))
