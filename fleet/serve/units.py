"""Service of a sidecar, so that it starts with the login: a systemd user unit, a launchd agent.

The file is ours alone, named after agent and folder. What was made for it is in its first lines, so that taking it out
leaves the disk as it was. A running sidecar tells systemd how it is: readiness, a sign of life, the end (sd_notify(3));
elsewhere nothing happens.
"""

import hashlib
import os
import plistlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from fleet.model.errors import BusyError, RefusedError, UsageError
from fleet.store.files import Files

READY = "READY=1"
ALIVE = "WATCHDOG=1"
STOPPING = "STOPPING=1"

MARK = "made by `fleet sidecar install`"
WATCHDOG_S = 60

HOLDER_WAIT_S = 0.3
"""Long enough for whoever only asks who holds the lock, and holds it for that moment."""
_HOLDER_BYTES = 80

_MADE = re.compile(r"folders made for it: (\d{1,2})")


class Unit(NamedTuple):
    """One service.

    Attributes:
        path: of its file.
        name: what the service manager calls it.
        start: the commands that put it to work.
        end: those that take it out of work.
        manager: the program that they call.
    """

    path: Path
    name: str
    start: list[list[str]]
    end: list[list[str]]
    manager: str


def unit(platform: str, environment: Mapping[str, str], root: Path, agent: str, user: int) -> Unit:
    """Return the unit of an agent's sidecar.

    Args:
        platform: as ``sys.platform`` says.
        environment: where ``XDG_CONFIG_HOME`` and ``HOME`` are.
        root: the workspace.
        agent: whose sidecar.
        user: the id of the user.

    Raises:
        UsageError: there is no home, or no service manager that we know.
    """
    mark = hashlib.blake2b(str(root).encode(), digest_size=4).hexdigest()
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("HOME names no folder, so there is no place for a service's file. Nothing was changed")
    if platform == "darwin":
        name = f"fleet.sidecar.{agent}.{mark}"
        path = Path(home) / "Library" / "LaunchAgents" / f"{name}.plist"
        domain = f"gui/{user}"
        return Unit(
            path, name, [["launchctl", "bootstrap", domain, str(path)]],
            [["launchctl", "bootout", f"{domain}/{name}"]], "launchctl",
        )  # fmt: skip
    if platform.startswith("linux"):
        name = f"fleet-sidecar-{agent}-{mark}.service"
        named = environment.get("XDG_CONFIG_HOME", "")
        folder = Path(named) if named.startswith("/") else Path(home) / ".config"
        reload = ["systemctl", "--user", "daemon-reload"]
        return Unit(
            folder / "systemd" / "user" / name, name,
            [reload, ["systemctl", "--user", "enable", "--now", name]],
            [["systemctl", "--user", "disable", "--now", name]], "systemctl",
        )  # fmt: skip
    raise UsageError(f"no service manager is known here ({platform}): let yours run `fleet sidecar`")


def content(found: Unit, command: Sequence[str], root: Path, agent: str, folders: int) -> bytes:
    """Return the bytes of the file.

    Args:
        found: the unit.
        command: the program and its arguments.
        root: where it runs.
        agent: whose sidecar it is.
        folders: how many folders above the file had to be made.

    Raises:
        UsageError: a path has a line end or another control mark in it.
    """
    if any(ord(char) < 32 or ord(char) == 127 for word in (*command, str(root)) for char in word):
        raise UsageError(f"{str(root)!r} or the path to Python has a control mark in it; no service was made of that")
    made = f"{MARK}; folders made for it: {folders}"
    if found.manager == "launchctl":
        return _plist(found, command, root, made)
    return f"""\
# {made}
[Unit]
Description=fleet sidecar of {agent} in {_escaped(str(root))}

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(_quoted(word) for word in command)}
WorkingDirectory={_escaped(str(root))}
WatchdogSec={WATCHDOG_S}
Restart=on-failure
RestartSec=5
TimeoutStopSec=5

[Install]
WantedBy=default.target
""".encode()


def _plist(found: Unit, command: Sequence[str], root: Path, made: str) -> bytes:
    said = plistlib.dumps(
        {
            "Label": found.name,
            "ProgramArguments": list(command),
            "WorkingDirectory": str(root),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 5,
            "ProcessType": "Background",
        }
    )
    head, line_end, rest = said.partition(b"\n")
    return head + line_end + f"<!-- {made} -->\n".encode() + rest


def _quoted(word: str) -> str:
    """Return a word as systemd reads it back: quoted, its specifiers and variables taken for what they are."""
    return '"' + _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$") + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def write(found: Unit, data: bytes) -> None:
    """Write the file, and the folders above it that are not there.

    Raises:
        RefusedError: another file has its name.
    """
    check(found.path)
    found.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = found.path.with_name(f".{found.path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(found.path)


def missing_folders(path: Path) -> int:
    """Return how many folders above a file are not there; when the file is, how many had to be made for it."""
    if path.is_file():
        return _made_for(path)
    return sum(not folder.exists() for folder in path.parents)


def take_out(found: Unit) -> bool:
    """Remove the file, and the folders that were made for it and hold nothing else; tell whether there was one.

    Raises:
        RefusedError: somebody else made it.
    """
    if not found.path.exists():
        return False
    check(found.path)
    made = _made_for(found.path)
    found.path.unlink()
    for folder in list(found.path.parents)[:made]:
        try:
            folder.rmdir()
        except OSError:
            break
    return True


def check(path: Path) -> None:
    """Check that a file is ours, or none.

    Raises:
        RefusedError: it is somebody else's.
    """
    if path.is_symlink() or (path.exists() and MARK not in _head(path)):
        raise RefusedError(f"{path} is not one that `fleet sidecar install` made; it was left alone")


def _made_for(path: Path) -> int:
    found = _MADE.search(_head(path))
    return int(found[1]) if found else 0


def _head(path: Path) -> str:
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[:2])


# --- one sidecar for each agent and workspace -------------------------------------------------------------------------


class Holder(msgspec.Struct, kw_only=True):
    """Who holds a lock: the process, and since when, milliseconds since 1970; 0 while it has not said so yet."""

    pid: int = 0
    since_ms: int = 0


def _lock_file(local: Path, agent: str) -> Path:
    """Return the path of an agent's lock."""
    return local / "locks" / f"sidecar-{agent}.lock"


@contextmanager
def held(files: Files, local: Path, agent: str, now_ms: int) -> Iterator[None]:
    """Be the agent's sidecar while the block runs.

    Raises:
        BusyError: there is one.
    """
    path = _lock_file(local, agent)
    with files.lock(path, HOLDER_WAIT_S):
        files.note(path, msgspec.json.encode(Holder(pid=os.getpid(), since_ms=now_ms)).ljust(_HOLDER_BYTES))
        yield


def holder(files: Files, local: Path, agent: str) -> Holder | None:
    """Return who is the agent's sidecar; None when nobody is."""
    path = _lock_file(local, agent)
    if not path.is_file():
        return None
    try:
        with files.lock(path, 0.0):
            return None
    except BusyError:
        try:
            return msgspec.json.decode(files.read(path), type=Holder)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return Holder()


# --- telling the manager ----------------------------------------------------------------------------------------------


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
