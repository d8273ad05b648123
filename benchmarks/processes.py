"""Whole processes, as an agent or its host starts them, taken in turns: A B C A B C."""

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count as counting
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import cached
from benchmarks.workers import ROOT, UnmeasuredError
from fleet.keep.index import Index

PYTHON = [sys.executable, "-I", "-c", "pass"]
MODULE = [sys.executable, "-m", "fleet"]
SCRIPT = [str(Path(sys.executable).with_name("fleet"))]
RUNS = 21
LESSON = "Check the build cache key before a deploy"
_numbers = counting()


class Call(NamedTuple):
    """One process to start.

    Attributes:
        words: its command line.
        folder: where it runs.
        more: words that are others each time.
        stdin: what it reads.
        before: what is done first, outside the time.
    """

    words: Sequence[str]
    folder: Path
    more: Callable[[], Sequence[str]] = tuple
    stdin: Callable[[], bytes] = bytes
    before: Callable[[], object] = bool


def environment() -> dict[str, str]:
    """Return the environment of each: nothing of the fleet that whoever measures belongs to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "CLAUDE"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def run(call: Call) -> float:
    """Run one process to its end and return the seconds.

    Raises:
        UnmeasuredError: it failed; its last words.
    """
    call.before()
    words, said = [*call.words, *call.more()], call.stdin()
    began = time.perf_counter()
    done = subprocess.run(words, cwd=call.folder, env=environment(), input=said, capture_output=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise UnmeasuredError(last[0] if last else f"{words[-1]}: exit code {done.returncode}")
    return took


def alternated(calls: dict[str, Call], runs: int = RUNS, unused: int = 1) -> dict[str, float]:
    """Return the median seconds of each call by name; the first runs of each do not count."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(unused + runs):
        for name, call in calls.items():
            seconds = run(call)
            if number >= unused:
                took[name].append(seconds)
    return {name: statistics.median(times) for name, times in took.items()}


def fleet(folder: Path, *words: str) -> float:
    """Run one fleet command."""
    return run(Call([*MODULE, *words], folder))


class Clans:
    """Workspaces of several sizes, each made once: two agents' folders that have synced with one bare repository.

    Args:
        cache: the folder for them.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._made: dict[int, Path] = {}

    def of(self, count: int) -> Path:
        """Return the folder with so many patterns: ``velma``, ``tank``, ``clan.git``."""
        if count not in self._made:
            self._made[count] = self._make(count)
        return self._made[count]

    def _make(self, count: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"clan-{count}-", dir=self._cache))
        subprocess.run(["git", "init", "--quiet", "--bare", "clan.git"], cwd=folder, check=True)
        for agent in ("velma", "tank"):
            (folder / agent).mkdir()
            fleet(folder / agent, "init", "--agent", agent, "--remote", str(folder / "clan.git"), "--yes")
        shutil.copy(cached(count, self._cache), folder / "velma" / "clan-learnings" / "patterns.jsonl")
        for agent in ("velma", "tank", "velma"):
            fleet(folder / agent, "sync")
        for command in ("start", "gossip"):
            fleet(folder / "velma", command)
        return folder


def correct(folder: Path) -> Call:
    """Return the call that logs a correction, each time a lesson that nobody has."""
    words = [*MODULE, "correct", "--wrong", "w", "--right", "r", "--pattern"]
    return Call(words, folder, lambda: [f"{LESSON} {next(_numbers)}"])


def command(name: str, folder: Path) -> Call:
    """Return the call of a command that takes no words, or of ``correct``."""
    return correct(folder) if name == "correct" else Call([*MODULE, name], folder)


def without_index(call: Call) -> Call:
    """Return the same call where the search index is missing; what else the database knows stays."""
    local = call.folder / ".fleet"

    def forget() -> None:
        with closing(sqlite3.connect(local / "state.db", isolation_level=None)) as connection:
            Index(connection).drop()
        for path in local.glob("ready/*"):
            path.unlink()

    return call._replace(before=forget)


def hook(program: Sequence[str], event: str, folder: Path, **fields: object) -> Call:
    """Return the call of one hook as Claude Code makes it, with a payload of the shape that it sends.

    Each run is a session of its own: within one, what repeats within a minute counts once.
    """

    def payload() -> bytes:
        told = {
            "session_id": f"00000000-0000-4000-8000-{next(_numbers):012x}",
            "transcript_path": str(folder / "transcript.jsonl"),
            "cwd": str(folder),
            "permission_mode": "default",
            "hook_event_name": event,
        }
        return json.dumps(told | fields).encode()

    return Call([*program, "hook", event], folder, stdin=payload)
