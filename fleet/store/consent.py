"""Consent to what a shared file asks for: only after a person's yes here is text sent, or others' lessons remembered.

A ``fleet.toml`` travels with a repository, so anybody may have written it. Before something is sent,
``workspace.state.agrees(KIND, value)`` is checked, where the value has everything that decides what goes where: the
address, and the name of the variable with the key. ``workspace.state.agree(KIND, value, workspace.wall())`` stores a
yes in ``local.db``, for this machine alone. Another value needs another yes.
"""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from fleet.model.errors import UsageError

REMOTE = "remote"
"""The git remote of the clan, and its branch if that is not the default."""
REMOTE_BEFORE = "remote before"
"""The remote that the present one replaced, in the same form: an undo may restore the consent to it."""
LIVE = "live"
"""A live room: address, room, and the variable with its token."""
SEMANTIC = "semantic"
"""The endpoint that computes embeddings, and the variable with its key."""
REFLECT = "reflect"
"""The endpoint or command that reflects."""
WEBHOOK = "webhook"
"""The address of messages about what waits for a person."""
AUTHOR = "author"
"""The ``Name <address>`` of commits to the clan's branch."""
OTHERS = "others"
"""The thresholds from which on others' lessons enter a memory without a question."""

_OURS = r"FLEET_[A-Z0-9_]{1,120}"


def variable(name: str) -> str:
    """Return the value of an environment variable that a configuration names; "" for a name other than ``FLEET_*``."""
    return os.environ.get(name, "") if re.fullmatch(_OURS, name) else ""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Endpoint:
    """Address that lessons may be sent to, over HTTP, or with the scheme ``ws`` to a live server."""

    def __init__(self, url: str, scheme: Literal["http", "ws"] = "http") -> None:
        self.url = url
        self._scheme = scheme

    def check(self) -> str:
        """Return the address; raise ``UsageError`` for an invalid one, clear text beyond this machine, or a login."""
        url, scheme = self.url, self._scheme
        try:
            parts = urlsplit(url)
            host, has_port = parts.hostname or "", parts.port != 0
            host.encode("idna")  # an invalid name fails here, and not in the lookup
        except ValueError:
            parts, host, has_port = urlsplit(""), "", False
        is_safe = parts.scheme == f"{scheme}s" or (parts.scheme == scheme and is_loopback(host))
        is_whole = scheme == "http" or not (parts.query or parts.fragment)  # the name of a room is appended to it
        is_plain = url.isprintable() and " " not in url and "@" not in parts.netloc
        if not (is_safe and host and has_port and is_whole and is_plain):
            start = f"{parts.scheme}://" if url.lower().startswith(f"{parts.scheme}://") else ""
            rest = url[len(start) :].rpartition("@")[2]
            place = re.split(r"[?#]", rest, maxsplit=1)[0]
            shown = f"{start}{'***@' * ('@' in url)}{place}"[:200] + "?***" * (place != rest)
            raise UsageError(
                f"{shown!r} is no address that fleet sends to: {scheme}s://HOST, or {scheme}:// on this machine, and "
                "no user or password in it (a key stands in a variable FLEET_*). Nothing was sent"
            )
        return url

    def post(self, body: bytes, headers: Mapping[str, str], wait_s: float, bytes_max: int) -> bytes:
        """Return the answer to a JSON body; the caller has checked consent. Raises ``OSError``, or as ``check``."""
        import urllib.request  # late: it is slow, and most commands send nothing

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """Handler that follows no redirect, whose target nobody agreed to."""

            def redirect_request(self, *_: object, **__: object) -> None:
                """Follow none."""

        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.check(), body, headers)  # noqa: S310 - https, or this machine
        with urllib.request.build_opener(NoRedirect).open(request, timeout=wait_s) as answer:
            return bytes(answer.read(bytes_max))
