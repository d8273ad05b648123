"""What the table holds, group by group: a group measures what its rows compare, in turns, at one time."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import live, processes, sidecar, syncing, workers
from benchmarks.data import cached
from benchmarks.processes import MODULE, PYTHON, SCRIPT, Call, Clans
from benchmarks.table import Row, at_most, faster, only_told, told, under, unmeasured
from benchmarks.workers import UnmeasuredError

PEERS = {"Loro": "loro", "Automerge 0.1": "automerge", "pycrdt": "pycrdt"}
MESSAGE = "Please look at the parser and tell me how it reads a line"
FAILED = "Exit code 1\nFAILED tests/test_parser.py::test_reads_a_line - AssertionError\n1 failed in 0.03s"


class Bench(NamedTuple):
    """What every group is measured with.

    Attributes:
        count: how many patterns a large clan has.
        cache: the folder for whatever is made.
        clans: workspaces by size.
    """

    count: int
    cache: Path
    clans: Clans


class Group(NamedTuple):
    """Rows that are measured together.

    Attributes:
        works: what stands in the first column of each; ``N`` for the number of patterns.
        measure: yields the rows.
    """

    works: tuple[str, ...]
    measure: Callable[[Bench], Iterator[Row]]


LOAD_FIRST, LOAD_AGAIN = "load and join an edition of N, first time", "load and join an edition of N, checked before"
JOIN_FIRST = "join seven full replicas of N that differ in 10%, first time"
JOIN_AGAIN = "join seven full replicas of N that differ in 10%, own edition checked before"
MEMORY, MEMORY_TENFOLD = "peak memory, N", "peak memory, ten times N"
PAGE, NEAR = "`patterns.md` after one change, beyond loading, N", "the nearest known lessons, index up to date, N"
LOGGING = "log one correction, in process"
COMMANDS = ("correct", "start", "gossip")
ABOUT_ALL = ("patterns -n 20", "stats", "doctor")
SOON_MS_MAX = 1_000
MAKING = "`fleet sync`, N, which makes the search index that is missing"
SYNC_LARGE, SYNC_SMALL = "sync of one line each way, N", "sync of one line each way, 1,000"
AFTER_CHANGE = "`fleet hook`, session start, N, after a change"
HOOKS = ("nothing to do", "session start, N", "logging a failure")


def loading(bench: Bench) -> Iterator[Row]:
    """Fleet against msgspec's decoding alone, and against the peers: to values, from bytes in memory."""
    names = ["load_first", "load_again", "msgspec_decodes", *(f"{name}_reads" for name in PEERS.values())]
    took = workers.alternated(names, bench.cache, bench.count, 5)
    for work, ours in ((LOAD_FIRST, took["load_first"]), (LOAD_AGAIN, took["load_again"])):
        yield _against(at_most, work, ours, took["msgspec_decodes"], "msgspec decodes", 2.5)
        for peer, name in PEERS.items():
            yield _against(faster, work, ours, took[f"{name}_reads"], peer, 3)


def joining(bench: Bench) -> Iterator[Row]:
    """Fleet against the peers; Automerge's package gives no saved bytes away, so there is nothing to join."""
    names = ["join_seven_first", "join_seven_again", "loro_joins", "pycrdt_joins"]
    took = workers.alternated(names, bench.cache, bench.count, 3)
    for work, ours in ((JOIN_FIRST, took["join_seven_first"]), (JOIN_AGAIN, took["join_seven_again"])):
        for peer, name in (("Loro", "loro_joins"), ("pycrdt", "pycrdt_joins")):
            yield _against(faster, work, ours, took[name], peer, 2)


def _against(
    compared: Callable[..., Row],
    work: str,
    ours: float | UnmeasuredError,
    other: float | UnmeasuredError,
    of: str,
    aim: float,
) -> Row:
    for found in (ours, other):
        if isinstance(found, UnmeasuredError):
            return unmeasured(work, f"{aim:g}x", f"{of}: {found}")
    return compared(work, ours, other, of, aim)


def memory(bench: Bench, *, work: str, times: int, most_mb: int) -> Iterator[Row]:
    """The peak of a process that loads an edition for the first time."""
    cached(times * bench.count, bench.cache)
    yield under(work, workers.peak_mb("load_for_memory", bench.cache, times * bench.count), most_mb, "MB")


def in_process(bench: Bench) -> Iterator[Row]:
    """Logging against the disk's own time."""
    took = workers.alternated(["log_in_process", "append_bare"], bench.cache, 1, 101)
    yield _against(at_most, LOGGING, took["log_in_process"], took["append_bare"], "append and fsync", 2)


def alone(bench: Bench, *, work: str, name: str, most_ms: int) -> Iterator[Row]:
    """One piece of work against a figure."""
    took = workers.alternated([name], bench.cache, bench.count, 21)[name]
    if isinstance(took, UnmeasuredError):
        yield unmeasured(work, f"under {most_ms} ms", str(took))
    else:
        yield under(work, took * 1000, most_ms, "ms")


def command(bench: Bench, *, name: str) -> Iterator[Row]:
    """A command in a large clan against a small one, and in the small one against an interpreter that does nothing."""
    small, large = (bench.clans.of(size) / "velma" for size in (100, bench.count))
    calls = {
        "small": processes.command(name, small),
        "large": processes.command(name, large),
        "python": Call(PYTHON, small),
    }
    took = processes.alternated(calls)
    yield at_most(_work_of(name), took["large"], took["small"], "with 100", 1.2)
    if name != "gossip":
        yield at_most(f"{_work_of(name)}, whole process", took["large"], took["python"], "python -I -c pass", 8)
        yield at_most(f"fleet {name}, 100, whole process", took["small"], took["python"], "python -I -c pass", 8)


def missing_index(bench: Bench, *, name: str) -> Iterator[Row]:
    """A command when the search index and what is made ready from it are gone: in a large clan, and in a small one."""
    folders = {size: bench.clans.of(size) / "velma" for size in (100, bench.count)}
    calls = {size: processes.without_index(processes.command(name, folder)) for size, folder in folders.items()}
    took = processes.alternated({"small": calls[100], "large": calls[bench.count]}, 5)
    of = f"with 100, index missing too {told(took['small'])}"
    yield _soon(_missing(name), took["large"], took["small"], of)


def making_the_index(bench: Bench) -> Iterator[Row]:
    """How long it takes until a missing index is there: whoever syncs makes it."""
    call = processes.command("sync", bench.clans.of(bench.count) / "velma")
    took = processes.alternated({"with": call, "without": processes.without_index(call)}, 3, unused=0)
    yield only_told(MAKING, took["without"], took["with"], "index up to date")


def reading_all(bench: Bench, *, words: str) -> Iterator[Row]:
    """A command that is about all lessons of a large clan."""
    folders = {size: bench.clans.of(size) / "velma" for size in (100, bench.count)}
    calls = {str(size): Call([*MODULE, *words.split()], folder) for size, folder in folders.items()}
    took = processes.alternated(calls, 5)
    large, small = took[str(bench.count)], took["100"]
    yield _soon(_work_of(words), large, small, f"with 100 {told(small)}")


def _soon(work: str, large: float, small: float, of: str) -> Row:
    """Return a row of what a person waits for: under a second, and told beside what it takes in a small clan."""
    return under(work, large * 1000, SOON_MS_MAX, "ms", of)._replace(ratio=f"{large / small:.2f}x")


def _work_of(name: str) -> str:
    return f"fleet {name}, N"


def _missing(name: str) -> str:
    return f"fleet {name}, N, the first time after the index is missing"


def sync_large(bench: Bench) -> Iterator[Row]:
    """A sync in a large clan against one in a small clan."""
    took = syncing.alternated(
        {"small": syncing.Synced(bench.clans.of(1_000)), "large": syncing.Synced(bench.clans.of(bench.count))}
    )
    yield at_most(SYNC_LARGE, took["large"], took["small"], "with 1,000", 1.5)


def sync_small(bench: Bench) -> Iterator[Row]:
    """A sync in a small clan against the plumbing that it needs."""
    clan = syncing.Synced(bench.clans.of(1_000))
    clan.once()  # now both have a shard in the tree
    took = syncing.alternated({"fleet": clan, "git": syncing.Bare(bench.clans.of(1_000), bench.cache)})
    yield at_most(SYNC_SMALL, took["fleet"], took["git"], "fetch, diff-tree, cat-file, fast-import, push", 4)


def hook(bench: Bench, *, work: str) -> Iterator[Row]:
    """A hook as the host starts it, and by the module, against an interpreter that does nothing."""
    made = {
        HOOKS[0]: (1_000, "UserPromptSubmit", {"prompt": MESSAGE}, 3),
        HOOKS[1]: (bench.count, "SessionStart", {"source": "startup"}, 5),
        HOOKS[2]: (
            1_000,
            "PostToolUseFailure",
            {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}, "error": FAILED, "is_interrupt": False},
            6,
        ),
    }
    size, event, fields, most = made[work]
    folder = bench.clans.of(size) / "velma"
    log = folder / "agents" / "velma" / "corrections.md"
    before = log.stat().st_size if log.exists() else 0
    calls = {
        "script": processes.hook(SCRIPT, event, folder, **fields),
        "module": processes.hook(MODULE, event, folder, **fields),
        "python": Call(PYTHON, folder),
    }
    took = processes.alternated(calls)
    grown = (log.stat().st_size if log.exists() else 0) > before
    if grown != (work == HOOKS[2]):
        raise UnmeasuredError("something was logged" if grown else "nothing was logged")
    for words, name in (("fleet hook", "script"), ("python -m fleet hook", "module")):
        yield at_most(f"`{words}`, {work}", took[name], took["python"], "python -I -c pass", most)


def start_after_change(bench: Bench) -> Iterator[Row]:
    """A session's start where what it shows must be made anew, against one that finds it ready."""
    folder = bench.clans.of(bench.count) / "velma"
    call = processes.hook(SCRIPT, "SessionStart", folder, source="startup")
    change = partial(processes.run, processes.correct(folder))
    took = processes.alternated({"ready": call, "changed": call._replace(before=change)}, 7)
    yield only_told(AFTER_CHANGE, took["changed"], took["ready"], "nothing changed")


def live_sync(bench: Bench) -> Iterator[Row]:
    """Live sync over loopback: a server, seven sidecars, and one of them corrects."""
    with tempfile.TemporaryDirectory(prefix="live-", dir=bench.cache) as folder:
        yield from live.rows_of(live.measure(Path(folder)))


def idling(bench: Bench) -> Iterator[Row]:
    """Sidecars that have nothing to do."""
    yield from sidecar.rows_of(*sidecar.idle(bench.cache))


GROUPS = (
    Group((LOAD_FIRST, LOAD_AGAIN), loading),
    Group((JOIN_FIRST, JOIN_AGAIN), joining),
    Group((MEMORY,), partial(memory, work=MEMORY, times=1, most_mb=350)),
    Group((MEMORY_TENFOLD,), partial(memory, work=MEMORY_TENFOLD, times=10, most_mb=2_500)),
    Group((LOGGING,), in_process),
    Group((PAGE,), partial(alone, work=PAGE, name="page_after_change", most_ms=50)),
    Group((NEAR,), partial(alone, work=NEAR, name="near_lookup", most_ms=10)),
    *(
        Group(
            (_work_of(name), f"{_work_of(name)}, whole process", f"fleet {name}, 100, whole process"),
            partial(command, name=name),
        )
        for name in COMMANDS
    ),
    Group((SYNC_LARGE,), sync_large),
    Group((SYNC_SMALL,), sync_small),
    Group((AFTER_CHANGE,), start_after_change),
    *(Group((_missing(name),), partial(missing_index, name=name)) for name in COMMANDS),
    Group((MAKING,), making_the_index),
    *(Group((_work_of(words),), partial(reading_all, words=words)) for words in ABOUT_ALL),
    *(Group((f"`fleet hook`, {work}", f"`python -m fleet hook`, {work}"), partial(hook, work=work)) for work in HOOKS),
    Group(sidecar.WORKS, idling),
    Group(live.WORKS, live_sync),
)
