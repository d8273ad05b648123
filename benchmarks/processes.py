"""Whole processes, as an agent or its host starts them, taken in turns: A B C A B C."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count as counting
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import START_MS, cached, sentences
from benchmarks.workers import ROOT, UnmeasuredError, now
from crdt import clock
from fleet.model.line import Column, Line, encode
from fleet.model.names import pattern_id

PYTHON = [sys.executable, "-I", "-c", "pass"]
MODULE = [sys.executable, "-m", "fleet"]
SCRIPT = [str(Path(sys.executable).with_name("fleet"))]
RUNS = 15
_PEAK = """
import runpy, sys
from benchmarks.workers import peak_mb
try:
    runpy.run_module("fleet", run_name="__main__", alter_sys=True)
finally:
    print(peak_mb(), file=sys.stderr)
"""
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
        env: what stands in its environment besides.
    """

    words: Sequence[str]
    folder: Path
    more: Callable[[], Sequence[str]] = tuple
    stdin: Callable[[], bytes] = bytes
    before: Callable[[], object] = bool
    env: Mapping[str, str] = {}


def environment() -> dict[str, str]:
    """Return the environment of each: nothing of the fleet that whoever measures belongs to, nor for Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "CLAUDE", "PYTHON"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def run(call: Call) -> float:
    """Run one process to its end and return the seconds.

    Raises:
        UnmeasuredError: it failed; its last words.
    """
    return ran(call)[0]


def ran(call: Call) -> tuple[float, str]:
    """Run one process to its end and return the seconds, and its last line of stderr."""
    call.before()
    words, said, env = [*call.words, *call.more()], call.stdin(), environment() | call.env
    began = now()
    done = subprocess.run(words, cwd=call.folder, env=env, input=said, capture_output=True, check=False)
    took = now() - began
    last = "".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:])
    if done.returncode:
        raise UnmeasuredError(last or f"{words[-1]}: exit code {done.returncode}")
    return took, last


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
        self._made: dict[tuple[int, int], Path] = {}
        self._odd: dict[int, Path] = {}

    def of(self, count: int, shards: int = 0) -> Path:
        """Return the folder with so many patterns, and other agents' shards: ``velma``, ``tank``, ``clan.git``."""
        if (count, shards) not in self._made:
            self._made[count, shards] = self._make(count, shards)
        return self._made[count, shards]

    def odd(self, count: int) -> Path:
        """Return a copy of velma's folder with an unreadable line and one of a newer version in another's shard."""
        if count not in self._odd:
            folder = Path(tempfile.mkdtemp(prefix=f"odd-{count}-", dir=self._cache)) / "velma"
            shutil.copytree(self.of(count) / "velma", folder)
            shard = folder / "clan-learnings" / "patterns.d" / "slash.0d0d0d0d.jsonl"
            shard.parent.mkdir(exist_ok=True)
            shard.write_text('{"id":"p-00000000000000\n{"id":"p-0000000000000001","v":3,"w":{}}\n')
            self._odd[count] = _warmed(folder)
        return self._odd[count]

    def _make(self, count: int, shards: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"clan-{count}-{shards}-", dir=self._cache))
        _git(folder, "init", "--quiet", "--bare", "clan.git")
        for agent in ("velma", "tank"):
            (folder / agent).mkdir()
            fleet(folder / agent, "init", "--agent", agent, "--remote", str(folder / "clan.git"), "--yes")
        run(correct(folder / "velma"))
        fleet(folder / "velma", "sync")
        self._fill(folder, count, shards)
        for agent in ("velma", "tank"):
            run(correct(folder / agent))  # its page and its edition are written now, not when it is measured
            fleet(folder / agent, "sync")
        fleet(folder / "velma", "sync")
        _warmed(folder / "velma")
        return folder

    def _fill(self, folder: Path, count: int, shards: int) -> None:
        """Put an edition, and shards of others with a line each, into the remote, as if it had grown for long."""
        near = folder / "near"
        _git(folder, "clone", "--quiet", "--branch", "fleet", "clan.git", near.name)
        edition = near / "patterns.jsonl"
        lines = {*edition.read_bytes().splitlines(), *cached(count, self._cache).read_bytes().splitlines()}
        edition.write_bytes(b"".join(line + b"\n" for line in sorted(lines)))
        (near / "patterns.d").mkdir(exist_ok=True)
        for number, text in enumerate(sentences(shards, words=3)):  # so short that no edition is due of them
            writer, stamp = f"slash.{number:08x}", clock.pack(START_MS + number)
            line = Line(pattern_id(text), {writer: Column(add=stamp, first={"text": text})})
            (near / "patterns.d" / f"{writer}.jsonl").write_bytes(encode(line) + b"\n")
        _git(near, "add", "--all")
        _git(near, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "-m", "fill")
        _git(near, "push", "--quiet")
        shutil.rmtree(near)


def _git(folder: Path, *words: str) -> None:
    run(Call(["git", *words], folder))


def _warmed(folder: Path) -> Path:
    for command in ("start", "gossip"):
        fleet(folder, command)
    return folder


def name_live_room(folder: Path, url: str) -> None:
    """Let a workspace be in the room of a live server."""
    fleet(folder, "live", "join", url)


def correct(folder: Path) -> Call:
    """Return the call that logs a correction, each time a lesson that nobody has."""
    words = [*MODULE, "correct", "--wrong", "w", "--right", "r", "--pattern"]
    return Call(words, folder, lambda: [f"{LESSON} {next(_numbers)}"])


def command(name: str, folder: Path) -> Call:
    """Return the call of a command that takes no words, or of ``correct``."""
    return correct(folder) if name == "correct" else Call([*MODULE, name], folder)


def without_database(call: Call) -> Call:
    """Return the same call where the database is missing, and what is made ready from it; other state stays."""
    local = call.folder / ".fleet"

    def forget() -> None:
        for path in (*local.glob("state-*.db*"), *local.glob("ready/*")):
            path.unlink()

    return call._replace(before=forget)


def without_bytecode(call: Call, cache: Path) -> Call:
    """Return the same call of a fleet that is compiled each time, as on a disk that may only be read."""
    sources = cache / "sources"
    if not sources.exists():
        for package in ("crdt", "fleet"):
            shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    return call._replace(env={"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"})


def with_peak(call: Call) -> Call:
    """Return the same call of the module, which tells the peak of its memory, in MB, in its last line of stderr."""
    return call._replace(words=[sys.executable, "-c", _PEAK, *call.words[len(MODULE) :]])


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
