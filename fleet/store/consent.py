"""Consent to all that leaves this machine: what a file that others can write names is used only after a yes, by value.

A ``fleet.toml`` travels with a repository, so it may be anybody's. Whoever sends something asks
``workspace.state.agrees(KIND, value)`` first, where the value has in it all that decides what goes where: the address,
and the name of the variable that goes along. A yes is kept in ``local.db``, for this machine alone, by
``workspace.state.agree(KIND, value, workspace.wall())``. Another value is another question.
"""

import os
import re
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
"""Where a message goes when something waits for a person."""
AUTHOR = "author"
"""The ``Name <address>`` that commits to the clan's branch bear."""
KINDS = (REMOTE, LIVE, SEMANTIC, REFLECT, WEBHOOK, AUTHOR)

_OURS = re.compile(r"FLEET_[A-Z0-9_]{1,120}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def variable(name: str) -> str:
    """Return the value of an environment variable that a configuration names; "" unless it is one of ``FLEET_*``."""
    return os.environ.get(name, "") if _OURS.fullmatch(name) else ""


def check_endpoint(url: str) -> str:
    """Return the address of an HTTP endpoint that lessons may go to, once somebody agreed to it.

    Raises:
        UsageError: it is none, goes beyond this machine in clear text, or has a password in it.
    """
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname or "", parts.port != 0
    except ValueError:
        parts, host, has_port = urlsplit(""), "", False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not (is_safe and host and has_port and url.isprintable() and " " not in url) or "@" in parts.netloc:
        shown = url.rpartition("@")[2][:200]
        raise UsageError(
            f"{shown!r} is no address that lessons may go to: https://HOST, or http:// on this machine, and no user or "
            "password in it (a key stands in a variable FLEET_*). Nothing was sent"
        )
    return url
