"""Access to live rooms: the room that somebody on this machine agreed to, and the token of this user's own server.

A loopback port is open to every account on the machine, so a live server always has a token. ``published`` keeps it in
a file that only this user can read, and locks the file as long as the server runs. A client uses the token only while
the file is locked: otherwise another program may listen on the port, which would receive token and lessons.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from fleet.model.errors import BusyError, DiskError, UsageError
from fleet.store import consent
from fleet.store.config import Live as Settings
from fleet.store.files import Files
from fleet.store.workspace import Workspace

TOKEN_CHARS_MIN = 16
_TOKEN_BYTES_MAX = 1024
_WAIT_S = 1.0  # a client that checks a token's file locks it for a moment
_JOINED, _KEY = "live", "live key"
_DEFAULT = Settings()


# --- the room -------------------------------------------------------------------------------------------------------


class Access:
    """A workspace's consent to a live room."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._state = workspace.state
        self._configured = workspace.config.live

    def _named(self) -> Settings | None:
        """Return the room that was joined here, else the configured one, else None."""
        with suppress(ValueError):
            if joined := self._state.get(_JOINED):
                return msgspec.convert(json.loads(joined), Settings)
        return self._configured if self._configured.url or self._configured.serve else None

    def agreed(self) -> Settings | None:
        """Return the room that is joined or configured, None for none; raise ``UsageError`` if nobody agreed to it."""
        settings = self._named()
        if settings is None:
            return None
        _check(settings)
        if not self._state.agrees(consent.LIVE, _consented(settings)):
            raise UsageError(
                f"fleet.toml names the live room {settings.room} at {address(settings)}, and nobody has agreed to that "
                "on this machine. Nothing was sent. `fleet live join` asks about it, `fleet live join URL` joins others"
            )
        return settings

    def proposed(self) -> Settings | None:
        """Return the configured room, if there is one and nobody here has agreed to it; else None."""
        settings = self._configured
        if not (settings.url or settings.serve) or self._state.agrees(consent.LIVE, _consented(settings)):
            return None
        _check(settings)
        return settings

    def join(self, url: str = "", room: str = "", token_env: str = "") -> Settings:
        """Agree to a room on this machine, the given one, else the configured one; raise ``UsageError`` for none."""
        if url or room or token_env or not (self._configured.url or self._configured.serve):
            here = f"ws://127.0.0.1:{_DEFAULT.port}"
            given = {"url": url or here, "room": room or _DEFAULT.room, "token_env": token_env or _DEFAULT.token_env}
            try:
                settings = msgspec.convert(given, Settings)
            except msgspec.ValidationError as why:
                raise UsageError(f"no such room can be: {why}. Nothing was changed") from why
        else:
            settings, given = self._configured, {}
        _check(settings)
        self._state.agree(consent.LIVE, _consented(settings), self._workspace.wall(), alone=True)
        self._state.put(**{_JOINED: json.dumps(given) if given else ""})
        return settings

    def leave(self) -> bool:
        """Withdraw every consent to a live room here; return whether there was one."""
        was_in = bool(self._state.agreed(consent.LIVE))
        self._state.disagree(consent.LIVE)
        self._state.put(**{_JOINED: ""})
        return was_in

    def key(self) -> str:
        """Return the key by which a server tells this folder's replicas from others with the same names."""
        if not self._state.get(_KEY):
            row = (_KEY, self._workspace.world.entropy(16).hex())
            with self._state.transaction() as connection:  # of sidecars that start together, the first one's key stays
                connection.execute("INSERT OR IGNORE INTO value VALUES (?, ?)", row)
        return self._state.get(_KEY)


def address(settings: Settings) -> str:
    """Return the address of a room's server, by default one on this machine."""
    return settings.url or f"ws://127.0.0.1:{settings.port}"


def _check(settings: Settings) -> str:
    return consent.Endpoint(address(settings), "ws").check()


def _consented(settings: Settings) -> str:
    served = f" serve:{settings.port}" if settings.serve else ""
    return f"{settings.url} {settings.room} {settings.token_env}{served}"


@dataclass(frozen=True, slots=True)
class Where:
    """Location of a room; ``token``: "" for this user's own server, whose token is read when it is needed."""

    url: str
    room: str
    token: str = ""

    @staticmethod
    def named(settings: Settings) -> "Where":
        """Return the room of settings that somebody here agreed to. Raises as ``consent.Endpoint.check``."""
        return Where(_check(settings), settings.room, consent.variable(settings.token_env))

    def of(self, digit: str, replica: str) -> str:
        """Return the address of one of the clan's rooms, for a replica that writes, or "" for an observer."""
        name = f"{self.room}-{digit}" if digit else self.room
        return f"{self.url.rstrip('/')}/{quote(name)}" + (f"?replica={replica}" if replica else "")

    @property
    def proxy(self) -> Literal[True] | None:
        """Proxy setting of the WebSocket library: None without TLS, since a proxy would read clear text."""
        return True if self.url.startswith("wss:") else None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of each request. They have the token, which in an address would end up in logs.

        Raises ``ConnectionRefusedError`` for another user's server on this machine: nothing is sent to it.
        """
        parts = urlsplit(self.url)
        token = self.token
        if not token and consent.is_loopback(parts.hostname or "") and parts.scheme == "ws":
            token = _published_token(parts.port or 80)
            if not token:
                other = f"that of another user needs its token in {_DEFAULT.token_env}, or where --token-env says"
                raise ConnectionRefusedError(f"no live server of yours listens on port {parts.port or 80}; {other}")
        return {"Authorization": f"Bearer {token}"} if token else {}


# --- this user's own server -----------------------------------------------------------------------------------------


@contextmanager
def published(port: int, token: str) -> Iterator[None]:
    """Publish the token of the server on a port to this user's clients, while the block runs.

    Raises ``DiskError`` where the file is not this user's to write, ``BusyError`` where another server holds it.
    """
    path = _file(port)
    with ExitStack() as held:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            held.callback(os.close, handle)
            if not stat.S_ISREG(os.fstat(handle).st_mode) or os.fstat(handle).st_uid != os.geteuid():
                raise PermissionError(1, "it is not a plain file of yours")
        except OSError as why:
            raise DiskError(
                f"{path} cannot be written ({why.strerror}), so no client of yours could come in; nothing was started"
            ) from why
        os.fchmod(handle, 0o600)
        try:
            held.enter_context(Files(path.parent).lock(path, _WAIT_S))
        except BusyError as why:
            raise BusyError(f"another server of yours holds {path}; nothing was started") from why
        held.callback(os.ftruncate, handle, 0)  # once we have the lock: else another server would lose its token
        os.ftruncate(handle, 0)
        os.pwrite(handle, token.encode() + b"\n", 0)
        yield


def _published_token(port: int) -> str:
    """Return the token of the server that this user runs on a port; "" where there is none."""
    with suppress(OSError):
        handle = os.open(_file(port), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # succeeds once the server is gone
        except BlockingIOError:
            return os.read(handle, _TOKEN_BYTES_MAX).decode("utf-8", "replace").strip()
        finally:
            os.close(handle)
    return ""


def _file(port: int) -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fleet" / f"live-{port}.token"
