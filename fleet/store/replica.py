"""Replicas, the identities of writers, and their clock.

A replica is bound to one machine and one folder, so a copy of the folder never writes under the same name.
``.fleet/replica.toml`` has the default agent and a table for each replica. Names are random; a new one is minted where
no recorded one fits machine and folder: a container and its host, which see one folder, keep one each. Old replicas
stay listed, since their log entries are ours to send.

``.fleet/clock`` has the last stamp issued here by a hybrid logical clock. The newest stamp admitted from others is not
stored: it is the largest in the database within the cut, so a peer whose clock runs ahead cannot drag this one along.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from crdt import clock
from crdt.clock import Stamp
from fleet import RELEASED_MS
from fleet.model import limits, names
from fleet.model.errors import FleetError
from fleet.store.files import Files

_IOREG_S = 5.0
_HEADER = "# Who writes in this folder on this machine. Made by fleet; copying it to another machine does no harm.\n"


class Replica(NamedTuple):
    """One agent's identity in one folder of one machine; or a lease, which is bound to neither."""

    name: str
    machine: str
    folder: str
    minted: str

    @property
    def is_lease(self) -> bool:
        """True for a replica that ``FLEET_REPLICA`` lends: any process with that name writes under it."""
        return not self.machine

    @property
    def agent(self) -> str:
        """The agent it belongs to."""
        return names.agent_of(self.name)


class Register(NamedTuple):
    """Content of ``replica.toml``, the oldest replica first. In an ``ephemeral`` folder none is ever minted."""

    default_agent: str = ""
    replicas: tuple[Replica, ...] = ()
    ephemeral: bool = False

    def current(self, agent: str, machine: str, folder: str) -> Replica | None:
        """Return the agent's newest replica of this machine, if it is this folder's.

        If the newest is of another folder of this machine, folders were swapped or a copy came back: None is returned,
        since the folder that was moved aside may still write under an older one.
        """
        own = [r for r in self.replicas if r.agent == agent and not r.is_lease and r.machine == machine]
        return own[-1] if own and own[-1].folder == folder else None

    def with_replica(self, replica: Replica) -> "Register":
        """Return the register with a further replica."""
        return self._replace(replicas=(*self.replicas, replica))

    @staticmethod
    def parse(data: bytes, path: Path) -> "Register":
        """Return the register; raise ``FleetError`` if it is damaged: a guess could give one shard two writers."""
        if not data:
            if os.path.islink(path):  # noqa: PTH114 - False where nobody may look
                raise FleetError(
                    f"{path} is a symbolic link to nothing; nothing was changed. Put back the file, or remove it"
                )
            return Register()
        try:
            tables = _tables(data)
            replicas = tuple(
                Replica(r["name"], r["machine"], r["folder"], r["minted"])
                for r in tables.get("replica", [])
                if names.is_replica(r["name"])
            )
            agent = tables.get("default_agent", "")
            is_ephemeral = tables.get("ephemeral") is True
        except (ValueError, KeyError, TypeError) as why:
            raise FleetError(
                f"{path} is damaged ({why}). No lesson is lost: they lie in the agents' logs and clan-learnings/. "
                "Rename the file and run `fleet init`: a new replica id takes over what was not sent"
            ) from why
        is_good = isinstance(agent, str) and (not agent or names.is_agent(agent))
        return Register(agent if is_good else "", replicas, is_ephemeral)

    def render(self) -> bytes:
        """Return the bytes of the file."""
        rows = [_HEADER + f'default_agent = "{self.default_agent}"', *(["ephemeral = true"] if self.ephemeral else [])]
        for each in self.replicas:
            rows += ["", "[[replica]]", *(f'{key} = "{value}"' for key, value in each._asdict().items())]
        return "".join(f"{row}\n" for row in rows).encode()


@lru_cache(maxsize=1)
def _tables(data: bytes) -> dict[str, Any]:
    """Return the parsed file. Cached, since one correction reads the register seven times."""
    return Files.toml(data.decode())


@cache
def machine_fingerprint() -> str:
    """Return a hash of this machine's id, which reveals nothing else about it."""
    return _hash(_machine_id())


def folder_fingerprint(folder: Path) -> str:
    """Return a hash of the folder's real path."""
    return _hash(os.path.realpath(folder))


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8, person=b"fleet").hexdigest()


def _machine_id() -> str:
    if sys.platform == "darwin":
        import subprocess

        command = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
        with suppress(OSError, subprocess.SubprocessError, StopIteration):  # a sandbox may refuse it
            shown = subprocess.run(command, capture_output=True, text=True, timeout=_IOREG_S, check=False).stdout
            return next(line for line in shown.splitlines() if "IOPlatformUUID" in line)
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        text = _first_line(path)
        # Containers of one image share its machine id; their host names differ.
        if text and not any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
            return text
    return os.uname().nodename


def _first_line(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


# --- its clock ------------------------------------------------------------------------------------------------------

_AHEAD_MS_MAX = limits.AHEAD_HOURS_MAX * 3_600_000
_RELEASED = clock.pack(RELEASED_MS)
_LAST_DAY = "9999-12-31"
_LENGTH = 30  # a stamp of 29 characters and a line end


class Clock:
    """Source of this machine's stamps: later than all that it issued, and the ``newest`` that the database admits."""

    def __init__(self, files: Files, path: Path, wall_ms: Callable[[], int], newest: Callable[[], Stamp]) -> None:
        self._files = files
        self._path = path
        self._wall_ms = wall_ms
        self._newest = newest

    def cut(self) -> Stamp:
        """Return the stamp one day ahead of the clock; the fold leaves out later edits.

        A wall clock before this version's release is wrong: then the last stamp issued here counts instead.
        """
        wall_ms = self._wall_ms()
        if wall_ms >= RELEASED_MS:
            return clock.nearest(wall_ms + _AHEAD_MS_MAX)
        return clock.shifted(max(self.issued(), _RELEASED), _AHEAD_MS_MAX)

    def wrong(self) -> str:
        """Return why the wall clock is wrong, or ""."""
        wall = clock.nearest(self._wall_ms())
        if wall >= _RELEASED:
            return ""
        return f"this machine's clock says {wall[:16]}Z, which is before this version of fleet was made"

    def is_ahead(self) -> bool:
        """Return whether a stamp issued here lies more than a day ahead of the wall clock, which ran ahead then."""
        return self.issued() > self.cut()

    def issued(self) -> Stamp:
        """Return the last stamp issued here; ``ZERO`` for a missing or damaged file."""
        text = self._files.read(self._path)[:_LENGTH].decode("ascii", "replace").strip()
        return text if clock.is_stamp(text) and text < _LAST_DAY else clock.ZERO

    def tick(self) -> Stamp:
        """Issue a stamp larger than all stamps issued and admitted here.

        No stamp is older than this version's release: a machine that lost its clock starts there.
        """
        with self._files.lock(self._path.with_name("clock.lock")):
            issued = clock.ticked(self._wall_ms(), max(self.issued(), self._newest(), _RELEASED))
            self._files.note(self._path, f"{issued:<29}\n".encode())
        return issued

    def forget(self) -> None:
        """Forget the last stamp issued here, after a clock that ran ahead: the admitted stamps count alone."""
        self._files.note(self._path, f"{clock.ZERO:<29}\n".encode())
