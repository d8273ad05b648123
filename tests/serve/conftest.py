"""A stage with sidecars on it, each a process of its own; none of them outlives its test."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

QUICK = "interval_s = 2.0\nquiet_s = 0.2\n"
WAIT_S = 45.0
"""Nobody waits so long but on a busy machine; less than the minute of the tests in which nobody looks by himself."""

ENTRY = """
## 2026-01-01 — by hand {number}

**What I got wrong:** case {number}
**Correct approach:** the right way
**Pattern:** {pattern}
"""


def until(happened: Callable[[], object], wait_s: float = WAIT_S) -> bool:
    """Wait for something; tell whether it happened."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.05)
    return False


class Crew(Shell):
    """The stage, and the sidecars on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started: list[subprocess.Popen[str]] = []

    def quick(self, agent: str, settings: str = QUICK) -> str:
        """Make a workspace that shares the bare repository and syncs quickly."""
        where = self.join(agent)
        self.set(where, settings)
        return where

    def set(self, where: str, settings: str, table: str = "sidecar") -> None:
        """Set values of a table of the configuration."""
        path = self.folder / where / "fleet.toml"
        path.write_text(path.read_text().replace(f"[{table}]\n", f"[{table}]\n{settings}"))

    def sidecar(self, where: str, *words: str, before: tuple[str, ...] = (), **env: str) -> "subprocess.Popen[str]":
        """Start a sidecar as a terminal does: what these tests were started with (nohup) does not reach it."""
        child = subprocess.Popen(
            [*before, sys.executable, "-m", "fleet", "sidecar", *words],
            cwd=self.folder / where,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - nobody holds a lock here
        )
        self.started.append(child)
        return child

    def up(self, where: str, **env: str) -> "subprocess.Popen[str]":
        """Start a sidecar and wait until it looks on, its first work done."""
        known = len(self.events(where, "watching"))
        child = self.sidecar(where, **env)
        assert until(lambda: len(self.events(where, "watching")) > known), child.poll()
        assert until(lambda: self.marks(where).get("worked"))
        return child

    def events(self, where: str, name: str = "") -> list[dict[str, str]]:
        """Return what the log says."""
        path = self.folder / where / ".fleet" / "sidecar.log"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [each for each in found if not name or each["event"] == name]

    def marks(self, where: str) -> dict[str, object]:
        """Return what was noted of the last ticks."""
        path = self.folder / where / ".fleet" / "poll.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def write_by_hand(self, where: str, agent: str, number: int, pattern: str) -> None:
        """Add an entry to an agent's log as a person does."""
        with (self.folder / where / "agents" / agent / "corrections.md").open("a") as file:
            file.write(ENTRY.format(number=number, pattern=pattern))

    def lines(self, where: str) -> str:
        """Return all lines of patterns on one machine, read without a command."""
        clan = self.folder / where / "clan-learnings"
        return "".join(path.read_text() for path in [*clan.glob("patterns.jsonl"), *clan.glob("patterns.d/*.jsonl")])

    def taught(self) -> list[str]:
        """Return the texts of the lessons in the newest edition."""
        return [each.text for each in self.edition()]

    def processes(self, where: str = ".") -> list[int]:
        """Return the processes that work below the stage, or below one folder on it."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                place = (entry / "cwd").readlink()
                is_gone = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if place.is_relative_to(self.folder / where) and not is_gone:
                found.append(int(entry.name))
        return found

    def end(self) -> None:
        """End every sidecar; what they had begun ends by itself."""
        for child in self.started:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.started:
            try:
                child.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path)
    yield made
    made.end()
    assert until(lambda: not made.processes()), made.processes()
