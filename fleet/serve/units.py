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
        root: the workspace, where it runs.
    """

    path: Path
    name: str
    root: Path
    agent: str
    start: list[list[str]]
    end: list[list[str]]

    @staticmethod
    def of(platform: str, environment: Mapping[str, str], root: Path, agent: str, user: int) -> "Unit":
        """Return the unit of an agent's sidecar.

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
            start, end = ["launchctl", "bootstrap", domain, str(path)], ["launchctl", "bootout", f"{domain}/{name}"]
            return Unit(path, name, root, agent, [start], [end])
        if platform.startswith("linux"):
            name = f"fleet-sidecar-{agent}-{mark}.service"
            named = environment.get("XDG_CONFIG_HOME", "")
            folder = Path(named) if named.startswith("/") else Path(home) / ".config"
            ctl = ["systemctl", "--user"]
            start, end = [*ctl, "enable", "--now", name], [*ctl, "disable", "--now", name]
            return Unit(folder / "systemd" / "user" / name, name, root, agent, [[*ctl, "daemon-reload"], start], [end])
        raise UsageError(f"no service manager is known here ({platform}): let yours run `fleet sidecar`")

    def content(self, command: Sequence[str]) -> bytes:
        """Return the bytes of the file, for a program and its arguments.

        Raises:
            UsageError: a path has a line end or another control mark in it.
        """
        root = str(self.root)
        if any(ord(char) < 32 or ord(char) == 127 for word in (*command, root) for char in word):
            raise UsageError(f"{root!r} or the path to Python has a control mark in it; no service was made of that")
        made = f"{MARK}; folders made for it: {_folders_made(self.path)}"
        if self.path.suffix == ".plist":
            return _plist(self, command, made)
        return f"""\
# {made}
[Unit]
Description=fleet sidecar of {self.agent} in {_escaped(root)}

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(_quoted(word) for word in command)}
WorkingDirectory={_escaped(root)}
WatchdogSec={WATCHDOG_S}
Restart=on-failure
RestartSec=5
TimeoutStopSec=5

[Install]
WantedBy=default.target
""".encode()

    def timed_content(self, command: Sequence[str]) -> bytes:
        """Return the bytes of a timer's file, or of the service that it starts, for a program and its arguments.

        Raises:
            UsageError: a path has a line end or another control mark in it.
        """
        made = self.content(command).split(b"\n", 1)[0].decode()
        about = f"sleep of {self.agent} in {_escaped(str(self.root))}"
        if self.path.suffix == ".timer":
            return f"""\
{made}
[Unit]
Description=fleet {about}, once a day

[Timer]
OnCalendar=daily
RandomizedDelaySec=1h
Persistent=true

[Install]
WantedBy=timers.target
""".encode()
        return f"""\
{made}
[Unit]
Description=fleet {about}

[Service]
Type=oneshot
ExecStart={" ".join(_quoted(word) for word in command)}
WorkingDirectory={_escaped(str(self.root))}
Nice=10
""".encode()

    def write(self, data: bytes) -> None:
        """Write the file, and the folders above it that are not there.

        Raises:
            RefusedError: another file has its name.
        """
        self.check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_bytes(data)
        temporary.replace(self.path)

    def take_out(self) -> None:
        """Remove the file, and the folders that were made for it and hold nothing else.

        Raises:
            RefusedError: somebody else made it.
        """
        self.check()
        made = _folders_made(self.path)
        self.path.unlink()
        for folder in list(self.path.parents)[:made]:
            try:
                folder.rmdir()
            except OSError:
                break

    def check(self) -> None:
        """Check that the file is ours, or none.

        Raises:
            RefusedError: it is somebody else's.
        """
        if self.path.is_symlink() or (self.path.exists() and MARK not in _head(self.path)):
            raise RefusedError(f"{self.path} is not one that `fleet sidecar install` made; it was left alone")


def timer_of(platform: str, environment: Mapping[str, str], root: Path, agent: str) -> tuple[Unit, Unit]:
    """Return the service and the timer by which systemd sleeps once a day.

    Raises:
        UsageError: there is no home, or no systemd here.
    """
    if not platform.startswith("linux"):
        raise UsageError("timers are systemd's; elsewhere let cron run `fleet sleep` once a day. Nothing was changed")
    sidecar = Unit.of(platform, environment, root, agent, 0)
    name = sidecar.name.replace("fleet-sidecar-", "fleet-sleep-", 1).removesuffix(".service")
    ctl = ["systemctl", "--user"]
    start = [[*ctl, "daemon-reload"], [*ctl, "enable", "--now", f"{name}.timer"]]
    end = [[*ctl, "disable", "--now", f"{name}.timer"]]
    service, timer = (
        Unit(sidecar.path.with_name(f"{name}{suffix}"), f"{name}{suffix}", root, agent, start, end)
        for suffix in (".service", ".timer")
    )
    return service, timer


def _plist(found: Unit, command: Sequence[str], made: str) -> bytes:
    said = plistlib.dumps(
        {
            "Label": found.name,
            "ProgramArguments": list(command),
            "WorkingDirectory": str(found.root),
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


def _folders_made(path: Path) -> int:
    """Return how many folders above a file are not there; when the file is, how many had to be made for it."""
    if path.is_file():
        found = _MADE.search(_head(path))
        return int(found[1]) if found else 0
    return sum(not folder.exists() for folder in path.parents)


def _head(path: Path) -> str:
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[:2])


# --- one sidecar for each agent and workspace -------------------------------------------------------------------------


class _Holder(msgspec.Struct, kw_only=True):
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
        files.note(path, msgspec.json.encode(_Holder(pid=os.getpid(), since_ms=now_ms)).ljust(_HOLDER_BYTES))
        yield


def holder(files: Files, local: Path, agent: str) -> _Holder | None:
    """Return who is the agent's sidecar; None when nobody is."""
    path = _lock_file(local, agent)
    if not path.is_file():
        return None
    try:
        with files.lock(path, 0.0):
            return None
    except BusyError:
        try:
            return msgspec.json.decode(files.read(path), type=_Holder)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return _Holder()


# --- telling the manager ----------------------------------------------------------------------------------------------


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send one state to the service manager; tell whether there is one that took it.

    ``environment``: where ``NOTIFY_SOCKET`` names a path, or an abstract address after an ``@``.
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
