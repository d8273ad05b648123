"""A sidecar as a service of a real systemd user manager: ready when it is, back when it was killed, gone at the end.

The manager is one of the test's own, with a runtime folder of its own. It starts only where systemd started the
machine, or where somebody made ``/run/systemd/system`` in a container; so this runs when it is asked for.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.conftest import Crew, until

MANAGER = shutil.which("systemd") or "/lib/systemd/systemd"
pytestmark = pytest.mark.skipif(
    not os.environ.get("FLEET_TEST_SYSTEMD") or not Path("/run/systemd/system").is_dir() or not Path(MANAGER).exists(),
    reason="starts a systemd user manager; FLEET_TEST_SYSTEMD=1 runs it where systemd started the machine",
)
WATCHED_S = 4


class Manager:
    """A systemd user manager, and what it knows of the one service that is not its own."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.runtime = crew.folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.process = subprocess.Popen([MANAGER, "--user"], env=self.environment, stderr=subprocess.DEVNULL)
        assert until(lambda: self.ctl("is-system-running") == "running")

    @property
    def environment(self) -> dict[str, str]:
        return self.crew.environment(XDG_RUNTIME_DIR=str(self.runtime))

    def ctl(self, *words: str) -> str:
        asked = ["systemctl", "--user", *words]
        done = subprocess.run(asked, env=self.environment, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        return self.ctl("show", "--property", name, "--value", unit)


@pytest.fixture
def manager(crew: Crew) -> Iterator[Manager]:
    started = Manager(crew)
    yield started
    started.ctl("stop", "fleet-*")
    started.process.terminate()
    assert started.process.wait(20) is not None


def test_it_is_ready_comes_back_after_a_kill_and_after_a_hang_and_is_gone_at_the_end(crew: Crew, manager: Manager):
    crew.join("tank")
    said = crew.run("tank", "sidecar", "install", XDG_RUNTIME_DIR=str(manager.runtime)).stdout
    (path,) = (crew.folder / ".config/systemd/user").glob("*.service")
    unit = path.name
    assert f"enable --now {unit}" in said
    assert (manager.show(unit, "Type"), manager.show(unit, "ActiveState")) == ("notify", "active")
    path.with_name(f"{unit}.d").mkdir()
    path.with_name(f"{unit}.d").joinpath("quick.conf").write_text(
        f"[Service]\nWatchdogSec={WATCHED_S}\nRestartSec=0\nTimeoutAbortSec=1\n"
    )
    manager.ctl("daemon-reload")
    manager.ctl("restart", unit)

    for harm in (signal.SIGKILL, signal.SIGSTOP):  # a process that hangs says nothing: the watchdog ends it
        before = int(manager.show(unit, "MainPID"))
        assert until(lambda unit=unit: "runs as process" in crew.run("tank", "sidecar", "status").stdout)
        os.kill(before, harm)
        assert until(lambda before=before: int(manager.show(unit, "MainPID")) not in (0, before))
        assert until(lambda: manager.show(unit, "ActiveState") == "active")
    assert int(manager.show(unit, "NRestarts")) == 2
    alive = int(manager.show(unit, "MainPID"))
    assert not until(lambda: int(manager.show(unit, "MainPID")) != alive, 1.5 * WATCHED_S), "it gives its signs of life"

    manager.ctl("stop", unit)
    assert (manager.show(unit, "Result"), manager.show(unit, "ExecMainStatus")) == ("success", "0")
    shutil.rmtree(path.with_name(f"{unit}.d"))
    crew.run("tank", "sidecar", "uninstall", XDG_RUNTIME_DIR=str(manager.runtime))
    assert not (crew.folder / ".config").exists()
    assert manager.ctl("list-units", "--all", "--no-legend", "fleet-*") == ""
