"""Who may come in: decided from the request alone, before a single message is read.

A web page anywhere may open a WebSocket to a server on this machine, and a name of its own may be made to point here
(DNS rebinding). So on loopback the Host must be one of loopback's names, and an Origin, which only browsers send, must
be one that was allowed by name. Beyond loopback a token is asked for, and a certificate.
"""

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from fleet.model import names
from fleet.model.errors import UsageError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ROOM = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_TOKEN_CHARS_MIN = 16


@dataclass(frozen=True, slots=True)
class Rules:
    """Whom to let in.

    Attributes:
        host: where the server listens.
        token: what a visitor must know; "" for none, on loopback alone.
        origins: web pages that may connect, as browsers name them: ``https://example.org``.
    """

    host: str
    token: str = ""
    origins: Collection[str] = ()


class Visitor(NamedTuple):
    """Who was let in: to which room, and under which replica's keys it may write; "" for one that only looks on."""

    room: str
    replica: str


class Turned(NamedTuple):
    """Who was not let in: an HTTP status, and why."""

    status: int
    reason: str


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check(host: str, token: str, *, has_certificate: bool) -> None:
    """Refuse to listen to the world without a token and a certificate.

    Raises:
        UsageError: what is missing.
    """
    if token and len(token) < _TOKEN_CHARS_MIN:
        raise UsageError(f"a token must have {_TOKEN_CHARS_MIN} characters or more, at random; nothing was started")
    if not is_loopback(host) and not (token and has_certificate):
        raise UsageError(
            f"{host} is beyond this machine: that takes --token-file, and --tls-cert with --tls-key, so that nobody "
            "else reads or writes the clan's lessons. Nothing was started"
        )


def ask(rules: Rules, path: str, headers: Mapping[str, str]) -> Visitor | Turned:
    """Decide about one request. Header names are looked up as ``Mapping`` does, which must not mind their case."""
    address = urlsplit(path)
    asked = parse_qs(address.query)
    if is_loopback(rules.host) and _host_of(headers.get("Host", "")) not in (*_LOOPBACK, rules.host.lower()):
        return Turned(403, "this server answers to the names of this machine alone")
    origin = headers.get("Origin")
    if origin is not None and origin not in rules.origins:
        return Turned(403, "web pages of this origin are not allowed in")
    if rules.token and not _knows(rules.token, headers.get("Authorization", ""), asked):
        return Turned(401, "a token is needed, and this is not it")
    room = unquote(address.path).strip("/")
    if not _ROOM.fullmatch(room):
        return Turned(404, "there is no room of that name")
    replica = asked.get("replica", [""])[0]
    if replica and not names.is_replica(replica):
        return Turned(400, "no replica")
    return Visitor(room, replica)


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _knows(token: str, authorization: str, asked: Mapping[str, list[str]]) -> bool:
    scheme, _, told = authorization.partition(" ")
    offered = told if scheme.lower() == "bearer" else asked.get("token", [""])[0]
    return hmac.compare_digest(offered.encode("utf-8", "replace"), token.encode())
