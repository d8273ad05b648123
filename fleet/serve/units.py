"""Services of systemd and launchd, such as a sidecar that starts with the login; and the lock of an agent's sidecar.

Each service has files of its own, named after agent and folder.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from fleet.model.errors import BusyError, RefusedError, UsageError
from fleet.store.files import Files

MARK = "made by `fleet "
"""Beginning of the mark by which a file is known as ours."""
_DATA = Path(__file__).with_name("data")
_SYSTEMCTL = ["systemctl", "--user"]
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MARK_IN_PATH = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

HOLDER_WAIT_S = 0.3
"""Time to wait for the lock of a sidecar, longer than ``Seat.holder`` holds it for its check."""
_HOLDER_BYTES = 80


class Service(NamedTuple):
    """Files of a service by path, which a service manager reads, and the commands that start and end the service."""

    files: Mapping[Path, bytes]
    start: list[list[str]]
    end: list[list[str]]

    @classmethod
    def sidecar(
        cls, platform: str, environment: Mapping[str, str], root: Path, agent: str, user: int, command: Sequence[str]
    ) -> "Service":
        """Return the service that runs a program with its arguments as the sidecar of an agent.

        Raises:
            UsageError: there is no home, no service manager that we know, or a path has a control mark in it.
        """
        if platform != "darwin":
            name = f"fleet-sidecar-{agent}-{_hash(root)}.service"
            return _systemd(platform, environment, root, agent, command, {name: "sidecar.service"})
        name = f"fleet.sidecar.{agent}.{_hash(root)}"
        path = _home(environment) / "Library" / "LaunchAgents" / f"{name}.plist"
        start = ["launchctl", "bootstrap", f"gui/{user}", str(path)]
        _check_words(root, command)
        files = {path: _plist(name, root, command, _path(environment))}
        return cls(files, [start], [["launchctl", "bootout", f"gui/{user}/{name}"]])

    @classmethod
    def timer(
        cls, platform: str, environment: Mapping[str, str], root: Path, agent: str, command: Sequence[str]
    ) -> "Service":
        """Return the service by which systemd runs a program with its arguments once a day.

        Raises:
            UsageError: there is no home, no systemd here, or a path has a control mark in it.
        """
        name = f"fleet-sleep-{agent}-{_hash(root)}"
        files = {f"{name}.timer": "sleep.timer", f"{name}.service": "sleep.service"}
        return _systemd(platform, environment, root, agent, command, files)

    def check(self) -> None:
        """Raise ``RefusedError`` if one of the files exists and was not made by fleet."""
        for path in self.files:
            if path.is_symlink() or (path.exists() and MARK.encode() not in path.read_bytes()):
                raise RefusedError(f"{path} is not one that fleet made; it was left alone")

    def write(self) -> None:
        """Write the files, and the folders above them that are not there."""
        for path, data in self.files.items():
            above = next(each for each in path.parents if each.exists())
            Files(above).replace(path, data)

    def take_out(self) -> None:
        """Remove the files, and their folders where these hold nothing else."""
        for path in self.files:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()
                path.parent.parent.rmdir()


def _systemd(
    platform: str, environment: Mapping[str, str], root: Path, agent: str, command: Sequence[str], names: dict[str, str]
) -> Service:
    """Return systemd units, made of templates by name; the first one is enabled."""
    if not platform.startswith("linux"):
        raise UsageError(
            f"systemd is not here ({platform}): let your service manager run `fleet sidecar`, or cron `fleet poll` "
            "and once a day `fleet sleep`. Nothing was changed"
        )
    _check_words(root, command)
    config = environment.get("XDG_CONFIG_HOME", "")
    folder = (Path(config) if config.startswith("/") else _home(environment) / ".config") / "systemd" / "user"
    values = {
        "agent": agent,
        "root": _escaped(str(root)),
        "command": " ".join(map(_quoted, command)).replace("$", "$$"),
        "path": _quoted(f"PATH={_path(environment)}"),
    }
    files = {
        folder / name: _DATA.joinpath(template).read_text("utf-8").format(**values).encode()
        for name, template in names.items()
    }
    first = next(iter(names))
    start = [[*_SYSTEMCTL, "daemon-reload"], [*_SYSTEMCTL, "enable", "--now", first]]
    return Service(files, start, [[*_SYSTEMCTL, "disable", "--now", first]])


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("HOME names no folder, so there is no place for a service's file. Nothing was changed")
    return Path(home)


def _hash(root: Path) -> str:
    return hashlib.blake2b(os.fsencode(root), digest_size=4).hexdigest()


def _path(environment: Mapping[str, str]) -> str:
    """Return the PATH for a service: the installer's, since a manager's own lacks the folders of models' clients.

    Relative folders are left out: they would be in the workspace, where others may put programs.
    """
    folders = environment.get("PATH", os.defpath).split(":")
    return ":".join(each for each in folders if each.startswith("/") and not _MARK_IN_PATH.search(each))


def _check_words(root: Path, command: Sequence[str]) -> None:
    if _MARK_IN_PATH.search("".join([*command, str(root)])):
        mark = "has a control mark in it, or is no UTF-8"
        raise UsageError(f"{str(root)!r} or the path to Python {mark}; no service was made of that")


def _plist(name: str, root: Path, command: Sequence[str], path: str) -> bytes:
    words = "\n".join(f"\t\t<string>{each.translate(_XML)}</string>" for each in command)
    values = {"name": name, "root": str(root).translate(_XML), "path": path.translate(_XML), "words": words}
    return _DATA.joinpath("sidecar.plist").read_text("utf-8").format(**values).encode()


def _quoted(word: str) -> str:
    """Return a word quoted for systemd, its specifiers escaped."""
    return '"' + _escaped(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


# --- one sidecar for each agent and workspace -------------------------------------------------------------------------


class Seat(NamedTuple):
    """The lock of an agent's one sidecar; its file names the holder."""

    files: Files
    local: Path
    agent: str

    @property
    def _path(self) -> Path:
        return self.local / "locks" / f"sidecar-{self.agent}.lock"

    @contextmanager
    def held(self, now_ms: int) -> Iterator[None]:
        """Hold the lock while the block runs.

        Raises:
            BusyError: the agent has a sidecar.
        """
        with self.files.lock(self._path, HOLDER_WAIT_S):
            self.files.note(self._path, msgspec.json.encode((os.getpid(), now_ms)).ljust(_HOLDER_BYTES))
            yield

    def holder(self) -> tuple[int, int] | None:
        """Return the process of the agent's sidecar and its start, ms since 1970; None when there is none.

        Both are 0 if the holder has not written them yet.
        """
        if not self._path.is_file():
            return None
        try:
            with self.files.lock(self._path, 0.0):
                return None
        except BusyError:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(self.files.read(self._path), type=tuple[int, int])
            return 0, 0
