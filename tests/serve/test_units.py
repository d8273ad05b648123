"""A sidecar as a service: the files that service managers read, what they are told, and that nothing of it stays."""

import os
import plistlib
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.model.errors import RefusedError, UsageError
from fleet.serve import sidecar, units
from tests.serve.conftest import until

COMMAND = ["/opt/py thon/bin/python3", "-P", "-m", "fleet", "sidecar", "--agent", "ann", "--dir", '/w/100% "$HOME" \\x']
ROOT = Path('/w/100% "$HOME" \\x')


def linux(root: Path = ROOT, command: list[str] = COMMAND, **environment: str) -> units.Service:
    return units.Service.sidecar("linux", {"HOME": "/home/ann"} | environment, root, "ann", 1000, command)


def path_of(service: units.Service) -> Path:
    (path,) = service.files
    return path


def text_of(service: units.Service) -> str:
    return service.files[path_of(service)].decode()


def tree(folder: Path) -> dict[str, str]:
    """Return every path below a folder, with what is in the files."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))
    }


# --- the files --------------------------------------------------------------------------------------------------------


def test_the_unit_lies_where_systemd_looks_for_a_users_own():
    assert path_of(linux()).parent == Path("/home/ann/.config/systemd/user")
    assert path_of(linux(XDG_CONFIG_HOME="/x")).parent == Path("/x/systemd/user")
    assert path_of(linux(XDG_CONFIG_HOME="relative")).parent == Path("/home/ann/.config/systemd/user")
    assert path_of(linux(Path("/w/other"))) != path_of(linux()), "two workspaces have two services"


def test_the_unit_says_ready_is_watched_and_comes_back():
    text = text_of(linux())
    for line in ("Type=notify", "WatchdogSec=60", "Restart=on-failure", "WantedBy=default.target", "NotifyAccess=main"):
        assert f"\n{line}\n" in text
    assert "\nWorkingDirectory=/w/100%% " in text


def test_no_path_means_anything_else_to_systemd():
    text = text_of(linux())
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    read = line.removeprefix("ExecStart=")
    assert "$" not in read.replace("$$", "")
    assert "%" not in read.replace("%%", "")
    assert shlex.split(read.replace("$$", "$").replace("%%", "%")) == COMMAND


@pytest.mark.parametrize("mark", ["\n[Service]\nExecStart=/bin/evil", "\r", "\x7f", "\udcff"])
def test_a_path_with_a_control_mark_makes_no_service(mark):
    with pytest.raises(UsageError):
        linux(command=[*COMMAND, mark])
    with pytest.raises(UsageError):
        linux(Path(f"/w{mark}"))


def test_a_service_has_the_path_of_whoever_installed_it_but_for_folders_of_the_workspace():
    path = "/home/ann/.local/bin::bin:/opt/100% $x \\y:/evil\n[Service]:/usr/bin"
    (line,) = [each for each in text_of(linux(PATH=path)).splitlines() if each.startswith('Environment="PATH')]
    assert line == 'Environment="PATH=/home/ann/.local/bin:/opt/100%% $x \\\\y:/usr/bin"'
    found = units.Service.sidecar("darwin", {"HOME": "/Users/ann", "PATH": path}, ROOT, "ann", 501, COMMAND)
    assert plistlib.loads(text_of(found).encode())["EnvironmentVariables"] == {
        "PATH": "/home/ann/.local/bin:/opt/100% $x \\y:/usr/bin"
    }


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_itself_finds_nothing_wrong_with_it(tmp_path):
    command = [sys.executable, "-P", "-m", "fleet", "sidecar", "--dir", str(tmp_path)]
    found = linux(tmp_path, command, HOME=str(tmp_path))
    found.write()
    words = ["systemd-analyze", "verify", "--user", "--man=no", str(path_of(found))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    about_it = [line for line in done.stderr.splitlines() if path_of(found).name in line]
    assert about_it == []


def test_launchd_gets_a_property_list():
    found = units.Service.sidecar("darwin", {"HOME": "/Users/ann"}, ROOT, "ann", 501, COMMAND)
    path, said = path_of(found), plistlib.loads(text_of(found).encode())
    assert path.parent == Path("/Users/ann/Library/LaunchAgents")
    assert (said["Label"], said["ProgramArguments"], said["RunAtLoad"]) == (path.stem, COMMAND, True)
    assert said["KeepAlive"] == {"SuccessfulExit": False}, "a second one exits 0, and is not started again"
    assert found.start == [["launchctl", "bootstrap", "gui/501", str(path)]]


def test_where_no_service_manager_is_known_it_says_so():
    with pytest.raises(UsageError, match="service manager"):
        units.Service.sidecar("freebsd14", {"HOME": "/home/ann"}, ROOT, "ann", 1000, COMMAND)
    with pytest.raises(UsageError, match="HOME"):
        units.Service.sidecar("linux", {}, ROOT, "ann", 1000, COMMAND)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_install_and_uninstall_leave_nothing_behind(crew):
    crew.join("ann")
    home = crew.folder / "home"
    (home / ".config").mkdir(parents=True)
    (home / ".config/mine").write_text("mine")
    before = tree(home)
    env = {"HOME": str(home), "XDG_CONFIG_HOME": "", "PATH": "/nonexistent"}
    dry = crew.run("ann", "sidecar", "install", "--dry-run", **env)
    assert "ExecStart=" in dry.stdout
    assert tree(home) == before
    done = crew.run("ann", "sidecar", "install", **env)
    assert "run: systemctl --user enable --now fleet-sidecar-ann-" in done.stdout, (
        "without systemctl it says what to run"
    )
    (path,) = (home / ".config/systemd/user").glob("*.service")
    assert dry.stdout.startswith(path.read_text().rstrip())
    first = path.read_bytes()
    crew.run("ann", "sidecar", "install", **env)
    assert path.read_bytes() == first, "doing it twice changes nothing"
    crew.run("ann", "sidecar", "uninstall", "--dry-run", **env)
    assert path.exists()
    assert "disable --now" in crew.run("ann", "sidecar", "uninstall", **env).stdout
    assert tree(home) == before
    assert "nothing was changed" in crew.run("ann", "sidecar", "uninstall", **env).stdout


def test_folders_that_hold_something_else_by_now_stay(tmp_path):
    found = linux(HOME=str(tmp_path))
    found.write()
    (tmp_path / ".config/systemd/other").write_text("")
    found.take_out()
    assert tree(tmp_path) == {".config": "", ".config/systemd": "", ".config/systemd/other": ""}


def test_a_file_of_somebody_elses_is_neither_overwritten_nor_removed(crew):
    crew.join("ann")
    env = {"HOME": str(crew.folder), "XDG_CONFIG_HOME": "", "PATH": "/nonexistent"}
    crew.run("ann", "sidecar", "install", **env)
    (path,) = (crew.folder / ".config/systemd/user").glob("*.service")
    path.write_text("[Unit]\nDescription=mine\n")
    crew.run("ann", "sidecar", "install", expect=3, **env)
    crew.run("ann", "sidecar", "uninstall", expect=3, **env)
    assert path.read_text() == "[Unit]\nDescription=mine\n"
    elsewhere = crew.folder / "elsewhere"
    elsewhere.write_text(f"# {units.MARK}\n")
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(RefusedError):
        linux()._replace(files={path: b""}).check()


def test_where_systemctl_answers_it_is_run(crew):
    crew.join("ann")
    programs = crew.folder / "bin"
    programs.mkdir()
    fake = programs / "systemctl"
    fake.write_text('#!/bin/sh\necho "$@" >> "$SAID"\n')
    fake.chmod(0o755)
    said = crew.folder / "said"
    env = {"HOME": str(crew.folder), "XDG_CONFIG_HOME": "", "PATH": f"{programs}:/usr/bin:/bin", "SAID": str(said)}
    crew.run("ann", "sidecar", "install", **env)
    crew.run("ann", "sidecar", "install", **env)
    crew.run("ann", "sidecar", "uninstall", **env)
    reload, enable, disable, *again = said.read_text().splitlines()
    assert reload == "--user daemon-reload"
    assert enable.startswith("--user enable --now fleet-sidecar-ann-")
    assert disable.startswith("--user disable --now fleet-sidecar-ann-")
    assert again[:3] == [reload, enable, disable], "what runs is ended before it starts as it is installed now"


# --- telling the manager ----------------------------------------------------------------------------------------------


def test_a_state_is_one_datagram_to_whoever_is_named(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "s"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "s"))
        sidecar._notify(sidecar._READY)
        assert manager.recv(100) == b"READY=1"
    if sys.platform == "linux":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"\0fleet-test-{os.getpid()}")
            monkeypatch.setenv("NOTIFY_SOCKET", f"@fleet-test-{os.getpid()}")
            sidecar._notify(sidecar._ALIVE)
            assert manager.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "relative", "/not/there", "vsock:2:1"])
def test_where_nobody_listens_nothing_happens(address, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    sidecar._notify(sidecar._READY)


@pytest.mark.parametrize(
    ("environment", "every_s"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "60000000"}, 30),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid() + 1)}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({"WATCHDOG_USEC": "-5"}, 0),
    ],
)
def test_a_sign_of_life_is_due_twice_as_often_as_asked_for(environment, every_s, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sidecar._alive_every_s() == every_s


def test_a_sidecar_tells_its_manager_that_it_is_ready_alive_and_at_its_end(crew):
    crew.join("ann")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        manager.bind(str(crew.folder / "s"))
        env = {"NOTIFY_SOCKET": str(crew.folder / "s"), "WATCHDOG_USEC": "400000"}
        child = crew.sidecar("ann", **env)
        heard = [manager.recv(200) for _ in range(4)]
        assert heard.count(b"READY=1") == 1
        assert heard.count(b"WATCHDOG=1") == 3
        second = crew.sidecar("ann", **env)
        # Heard while it runs: who tells a manager that does not listen waits.
        assert until(lambda: b"another one" in manager.recv(200)), "systemd must not take the second one for broken"
        assert second.wait(20) == 0
        child.terminate()
        assert until(lambda: manager.recv(200) == b"STOPPING=1")
