"""Fault 1 of FAULTS: kill -9 at every write, sync, rename, unlink: what was acknowledged is there, restart converges.

A process that has everything imported forks one child per point; the child waits until strace holds it, and strace
kills it on the way into the Nth call of a kind. N rises until the command gets through. Between the write of a file and
its rename the folder looks the same to the next process, so of the long commands ``make test`` takes the calls of
``BRIEFLY`` alone; ``FLEET_FAULTS=all`` takes every call of every command, and every call of every git.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Stage
from tests.faults.test_sync import LESSON, Bench

EVERY = os.environ.get("FLEET_FAULTS") == "all"
CALLS = {
    "data": "write,pwritev,pwritev2,writev",
    "fsync": "fsync",
    "fdatasync": "fdatasync",
    "pwrite": "pwrite64",
    "rename": "rename,renameat,renameat2",
    "unlink": "unlink,unlinkat",
    "mkdir": "mkdir,mkdirat",
    "truncate": "truncate,ftruncate",
}
POINTS_MAX = 400
WAIT_S = 60.0

NURSERY = """
import ctypes, json, os, sys, time, traceback
from fleet.cli import main
from tests import commands

out = os.dup(1)
os.dup2(2, 1)  # what is said to get ready is said to nobody
commands.get_ready()
os.dup2(out, 1)
os.close(out)

PR_SET_PTRACER, PR_SET_CHILD_SUBREAPER = 0x59616D61, 36
prctl = ctypes.CDLL(None).prctl
prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a killed child leaves behind is waited for, too


def is_held():
    with open("/proc/self/status") as status:
        return any(row.startswith("TracerPid:") and row.split()[1] != "0" for row in status)


def live(order):
    prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    until = time.monotonic() + 60
    while order["held"] and not is_held():
        if time.monotonic() > until:
            os._exit(99)
        time.sleep(0.001)
    time.sleep(0.005)  # strace seizes first and stops a moment later
    sys.argv = ["fleet", *order["words"]]
    main.main()


for raw in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 98
        try:
            live(json.loads(raw))
        except SystemExit as left:
            code = left.code or 0
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        print(code, flush=True)
"""


class Ended(NamedTuple):
    """How a child ended: its exit code (negative: the signal), and all it had said."""

    code: int
    said: str


class Nursery:
    """Runs fleet commands in forked children, each killed where it is told to be."""

    def __init__(self, bench: Bench, strace: str, parent: "subprocess.Popen[str]") -> None:
        self.bench = bench
        self._strace = strace
        self._parent = parent

    def run(self, where: str, *words: str, calls: str, number: int, follow: bool = False) -> Ended:
        """Run a command that is killed on its way into the Nth of these calls; ``follow``: its children's as well."""
        out = self.bench.folder / "said"
        order = {
            "cwd": str(self.bench.folder / where),
            "env": self.bench.environment(),
            "out": str(out),
            "words": words,
            "held": True,
        }
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        child = int(self._parent.stdout.readline())
        inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={number}"]
        log = self.bench.folder / "strace.log"
        tracer = subprocess.Popen(
            [self._strace, "-q", *(["-f"] if follow else []), "-o", str(log), *inject, "-p", str(child)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = int(self._parent.stdout.readline())
        finally:
            tracer.wait(WAIT_S)
        said = out.read_text()
        assert code not in (98, 99), said
        assert "Traceback" not in said, said
        return Ended(code, said)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "stage")


@pytest.fixture(scope="module")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed here")
    if not _can_kill(found):
        pytest.skip("strace cannot trace here")
    return found


@pytest.fixture(scope="module")
def parent(strace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """The process that forks; it has no children between two tests."""
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        env=Stage(tmp_path_factory.mktemp("nursery")).environment(PYTHONDONTWRITEBYTECODE="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started


@pytest.fixture
def nursery(bench: Bench, strace: str, parent: "subprocess.Popen[str]") -> Nursery:
    bench.folder.mkdir()
    return Nursery(bench, strace, parent)


def _can_kill(strace: str) -> bool:
    """Tell whether strace may hold a running process of ours, and inject a signal into it."""
    script = (
        "import ctypes, os, time; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)\n"
        "print(flush=True)\nwhile True: os.fsync(os.open('.', 0)); time.sleep(0.01)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        words = [strace, "-q", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:signal=KILL:when=1"]
        try:
            subprocess.run([*words, "-p", str(child.pid)], capture_output=True, timeout=30, check=False)
            return child.wait(10) == -9
        except subprocess.TimeoutExpired:
            return False
        finally:
            child.kill()


class Stock:
    """The stage as it was, to begin each point from: at the same place, for a replica is bound to it."""

    def __init__(self, bench: Bench, aside: Path) -> None:
        self.bench = bench
        self._aside = aside
        shutil.copytree(bench.folder, aside, symlinks=True)

    def restore(self) -> None:
        """Put everything back."""
        shutil.rmtree(self.bench.folder)
        shutil.copytree(self._aside, self.bench.folder, symlinks=True)


def killed(
    nursery: Nursery, stock: Stock, where: str, *words: str, calls: str, follow: bool = False, step: int = 1
) -> Iterator[Ended]:
    """Kill a command at its first, second, third ... call of a kind; yield after each until one gets through.

    The run that got through is the last one yielded.
    """
    for number in range(1, POINTS_MAX, step):
        stock.restore()
        ended = nursery.run(where, *words, calls=calls, number=number, follow=follow)
        yield ended
        if ended.code != -9 and not (follow and ended.code):
            assert ended.code == 0, ended.said
            return
    pytest.fail(f"no end after {POINTS_MAX} kills")


def numbers(bench: Bench, where: str) -> dict[str, int]:
    """Return text to count, of all patterns: retired ones count 0."""
    found = bench.patterns(where, "--all")["patterns"]
    assert len({p["id"] for p in found}) == len(found)
    return {p["text"]: 0 if p["state"] == "retired" else p["seen"] for p in found}


def findings(bench: Bench, where: str) -> list[str]:
    """Return the problems of all discoveries."""
    return sorted(d["problem"] for d in json.loads(bench.run(where, "gossip", "--json").stdout)["discoveries"])


def pages(folder: Path) -> dict[str, bytes]:
    """Return the shared files by path; nothing that was half made may lie among them for good."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- append: the log, a shard ---------------------------------------------------------------------------------------

CORRECT = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Another lesson")
APPENDS = {"the first ever": False, "one more": True}
PAGES_STEPS = {} if EVERY else {"pwrite": 16, "fdatasync": 2, "unlink": 3}
"""SQLite writes a new database by its pages, and each looks like the one before."""


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("is_settled", APPENDS.values(), ids=APPENDS.keys())
def test_a_correction_that_was_acknowledged_survives_a_kill_at_any_call_and_counts_once(
    bench, nursery, tmp_path, calls, is_settled
):
    bench.run("w", "init", "--agent", "velma")
    if is_settled:
        bench.correct("w", LESSON)
        bench.run("w", "sync")
    stock = Stock(bench, tmp_path / "aside")
    before = {LESSON: 1} if is_settled else {}
    log = bench.folder / "w/agents/velma/corrections.md"
    points = 0
    step = PAGES_STEPS.get(calls, 1)
    for ended in killed(nursery, stock, "w", *CORRECT, calls=CALLS[calls], step=step):
        points += ended.code == -9
        is_logged = log.exists() and log.read_text().count("**Pattern:** Another lesson") == 1
        if "seen 1 time" in ended.said:
            assert is_logged
        bench.run("w", "sync")
        assert numbers(bench, "w") == before | ({"Another lesson": 1} if is_logged else {})
        # Whoever was not answered says it again: then it was said once more, and not three times.
        bench.correct("w", "Another lesson")
        bench.correct("w", "The next lesson")
        bench.run("w", "sync")
        assert numbers(bench, "w") == before | {"Another lesson": 1 + is_logged, "The next lesson": 1}
        assert bench.patterns("w")["refused"] == 0
    assert points >= {"data": 2, "fsync": 1}.get(calls, 0), "the kills hit something"


@pytest.mark.parametrize("calls", ["data", "fsync", "mkdir"])
@pytest.mark.parametrize("command", ["discover", "retire", "edit"])
def test_a_line_that_was_acknowledged_survives_a_kill_at_any_call(bench, nursery, tmp_path, command, calls):
    bench.run("w", "init", "--agent", "velma")
    pattern = bench.correct("w", LESSON)
    words = {
        "discover": ("discover", "--problem", "a finding", "--solution", "s"),
        "retire": ("retire", pattern),
        "edit": ("edit", pattern, "--set", "category=shell"),
    }[command]
    stock = Stock(bench, tmp_path / "aside")
    for ended in killed(nursery, stock, "w", *words, calls=CALLS[calls]):
        is_there = _is_done(bench, command, pattern)
        assert is_there or not ended.said.strip() or ended.code, f"acknowledged and gone: {ended.said}"
        bench.run("w", "sync")
        assert _is_done(bench, command, pattern) == is_there
        bench.run("w", *words, expect=None if is_there else 0)
        assert _is_done(bench, command, pattern)
        bench.correct("w", "The next lesson")
        assert numbers(bench, "w") == {LESSON: 0 if command == "retire" else 1, "The next lesson": 1}
        assert findings(bench, "w") == ["a finding"] * (command == "discover")


def _is_done(bench: Bench, command: str, pattern: str) -> bool:
    if command == "discover":
        return findings(bench, "w") == ["a finding"]
    [found] = [p for p in bench.patterns("w", "--all")["patterns"] if p["id"] == pattern]
    return found["state"] == "retired" if command == "retire" else found["category"] == "shell"


# --- sync, edition, truncate, render --------------------------------------------------------------------------------


def clan_of_two(bench: Bench) -> None:
    """Both have lines that wait here, velma's fetched edition is old, and holds what stands nowhere else."""
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, f"The first of {agent}")
        bench.run(agent, "discover", "--problem", f"the first of {agent}", "--solution", "s")
    bench.sync("velma")
    bench.run("tank", "compact")
    bench.sync("velma")
    pattern = bench.correct("velma", LESSON)
    bench.correct("tank", LESSON)
    bench.correct("tank", "The second of tank")
    bench.run("tank", "discover", "--problem", "a finding", "--solution", "s")
    bench.sync("tank")
    bench.correct("velma", LESSON)
    bench.run("velma", "discover", "--problem", "another finding", "--solution", "s")
    bench.run("velma", "edit", pattern, "--set", "category=shell")


def covered_lines(bench: Bench) -> None:
    """The remote's edition covers lines that still stand in two shards: compaction drops them."""
    clan_of_two(bench)
    bench.sync("velma", "tank", "velma")
    shards = [name for name, data in bench.tree().items() if ".d/" in name and data]
    assert shards, "there is something to drop"


def compacted_by_others(bench: Bench) -> None:
    """What velma knows from tank's shard moves, in one step of the remote's, into an edition."""
    for agent in ("velma", "tank"):
        bench.join(agent)
        config = bench.folder / agent / "fleet.toml"
        never = "[keep]\nedition_always_bytes = 0\nedition_uncovered_share = 1000000\n"
        config.write_text(config.read_text().replace("[keep]\n", never, 1))
        bench.correct(agent, f"The first of {agent}")
        bench.sync(agent)
    bench.correct("tank", "The second of tank")
    bench.run("tank", "discover", "--problem", "a finding", "--solution", "s")
    bench.sync("tank", "velma")
    assert b"second" not in pages(bench.clan("velma"))["patterns.jsonl"]
    bench.run("tank", "compact")


def offline(bench: Bench) -> None:
    """Nobody is asked: the edition and the page are rendered here."""
    bench.run("velma", "init", "--agent", "velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.correct("velma", "The second of velma")
    bench.run("velma", "discover", "--problem", "a finding", "--solution", "s")


LONG = {
    "sync": (clan_of_two, ("sync",)),
    "edition and truncate": (covered_lines, ("compact",)),
    "edition of others": (compacted_by_others, ("sync",)),
    "edition at once": (clan_of_two, ("compact",)),
    "render": (offline, ("sync",)),
}


BRIEFLY = {
    "sync": ["data", "rename"],
    "edition and truncate": ["data", "rename", "unlink", "fsync"],
    "edition of others": ["data", "rename", "unlink"],
    "edition at once": [],
    "render": ["data", "rename", "fsync"],
}
STEPS = {
    ("sync", "data"): 7,
    ("sync", "rename"): 2,
    ("edition of others", "data"): 2,
    ("edition of others", "rename"): 2,
}
STEPS |= {("edition and truncate", "data"): 4, ("edition and truncate", "unlink"): 4}
"""Where the calls are many, and most of them alike."""
LONG_POINTS = [(name, calls) for name in LONG for calls in (CALLS if EVERY else BRIEFLY[name])]
STATE = re.compile(rb'"state":\["[^"]*"')
POINTS_MIN = {"data": 3, "rename": 1}


class Outcome(NamedTuple):
    """What must be the same whether a command was killed on the way or not."""

    seen: dict[str, int]
    findings: list[str]
    editions: dict[str, bytes]


def settled(bench: Bench, words: tuple[str, ...], *, peer: bool) -> Outcome:
    """Run a command again after its crash, and say what is here then; and, if asked, that a peer has the same."""
    bench.run("velma", *words)
    here = Outcome(bench.seen("velma"), findings(bench, "velma"), _editions(pages(bench.clan("velma"))))
    assert bench.status("velma")["refused"] == 0
    assert bench.status("velma")["waiting"]["lines"] == 0 or not bench.remote.exists()
    if bench.remote.exists():
        assert _editions(bench.tree()) == here.editions
    if peer and bench.remote.exists():
        bench.sync("tank")
        assert _editions(pages(bench.clan("tank"))) == here.editions
        assert bench.seen("tank") == here.seen
    # What a sync says itself, of a lesson's state, bears the time of that sync.
    return here._replace(editions={name: STATE.sub(b"", data) for name, data in here.editions.items()})


def _editions(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: files.get(name, b"") for name in ("patterns.jsonl", "discoveries.jsonl", "patterns.md")}


@pytest.mark.parametrize(("name", "calls"), LONG_POINTS)
def test_a_sync_that_is_killed_at_any_call_and_run_again_ends_as_if_it_had_not_been(
    bench, nursery, tmp_path, name, calls
):
    prepare, words = LONG[name]
    prepare(bench)
    stock = Stock(bench, tmp_path / "aside")
    before, known = bench.seen("velma"), findings(bench, "velma")
    wanted = settled(bench, words, peer=True)
    number = 0
    step = 1 if EVERY else STEPS.get((name, calls), 1)
    for number, ended in enumerate(killed(nursery, stock, "velma", *words, calls=CALLS[calls], step=step)):
        found = bench.seen("velma")
        assert before.keys() <= found.keys(), "what was there is there, before anything is mended"
        assert all(found[text] >= count for text, count in before.items())
        assert set(known) <= set(findings(bench, "velma"))
        assert settled(bench, words, peer=number % 5 == 0 or EVERY or ended.code == 0) == wanted
    assert number >= POINTS_MIN.get(calls, 0) * (name != "edition and truncate"), "the kills hit something"


GIT_CALLS = {"sync": "write", "edition and truncate": "rename,link,unlink"}
GIT_POINTS = [(name, calls) for name in GIT_CALLS for calls in (GIT_CALLS.values() if EVERY else [GIT_CALLS[name]])]


@pytest.mark.parametrize(("name", "calls"), GIT_POINTS)
def test_a_git_that_is_killed_at_any_call_costs_another_try_and_no_line(bench, nursery, tmp_path, name, calls):
    prepare, words = LONG[name]
    prepare(bench)
    stock = Stock(bench, tmp_path / "aside")
    wanted = settled(bench, words, peer=True)
    step = 1 if EVERY else 12
    until = time.monotonic() + (WAIT_S * 60 if EVERY else 4)
    for ended in killed(nursery, stock, "velma", *words, calls=calls, follow=True, step=step):
        assert "Traceback" not in ended.said
        assert settled(bench, words, peer=False) == wanted
        if time.monotonic() > until:
            break
