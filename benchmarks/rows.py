"""What the table holds, group by group: a group measures what its rows compare, in turns, at one time."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import live, processes, sidecar, syncing, workers
from benchmarks.data import cached
from benchmarks.processes import MODULE, PYTHON, SCRIPT, Call, Clans
from benchmarks.table import Row, at_most, only_told, told, under, unmeasured
from benchmarks.workers import UnmeasuredError

PEERS = {"Loro": "loro", "Automerge 0.1": "automerge", "pycrdt": "pycrdt"}
MESSAGE = "Go on"
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


YEAR = "consolidation of 365 daily logs"
DATES, TIDY = "relative dates of 10,000 notes", "housekeeping of 10,000 notes without embeddings"
IDLE = "a sleep with nothing to do, 10,000 notes"
PREPARED = "a transcript of 10 MB made a digest of"
PREPARED_MEMORY = f"{PREPARED}: peak memory"
REPLAYED = "142 recorded sessions reflected on by the rules"
BUILD, BEST = "the database of N, from nothing", "open the database of N and answer the best 30"
SEVEN = "seven full replicas of N that differ in 10 %, taken in"
MEMORY = "peak memory, the database of N from nothing"
TAKE_IN, NEAR = "one line taken in and searchable, N", "the nearest known lessons, N"
LOGGING = "log one correction, in process"
COMMANDS = ("correct", "start", "gossip")
BYTECODE, NO_BYTECODE = "`fleet correct`, 100, whole process", "`fleet correct`, 100, whole process without bytecode"
ABOUT_ALL = ("patterns -n 20", "stats", "doctor")
SOON_MS_MAX = 1_000
SYNC_LARGE, SYNC_SMALL = "sync of one line each way, N", "sync of one line each way, 1,000"
SYNC_SHARDS = "sync of one line each way, 1,000 in the edition and 1,000 in as many shards"
REWRITTEN = "another's rewritten edition of N that brings nothing new, `fleet sync`"
REWRITTEN_MEMORY = f"{REWRITTEN}: peak memory"
AFTER_CHANGE = "`fleet hook`, session start, N, after a change"
HOOKS = ("nothing to do", "session start, N", "logging a failure")
DASHBOARD_SMALL, DASHBOARD = "`fleet` alone, whole process, 100", "`fleet` alone, whole process, N"
PASS = "`python -I -c pass`"


def database(bench: Bench) -> Iterator[Row]:
    """The database from nothing, and its first answer, against the peers: from bytes in memory to all values."""
    peers = [f"{name}_reads" for name in PEERS.values()]
    took = workers.alternated(["build", "best", "msgspec_decodes", *peers], bench.cache, bench.count, 3)
    yield _against(BUILD, took["build"], took["loro_reads"], "Loro imports and reads", 2)
    for peer, name in PEERS.items():
        if peer != "Loro":
            yield _against(BUILD, took["build"], took[f"{name}_reads"], peer)
    yield _against(BUILD, took["build"], took["msgspec_decodes"], "msgspec decodes")
    yield _against(BEST, took["best"], took["loro_reads"], "Loro imports and reads", 0.01)


def joining(bench: Bench) -> Iterator[Row]:
    """Fleet against the peers; Automerge's package gives no saved bytes away, so there is nothing to join."""
    took = workers.alternated(["build_of_seven", "loro_joins", "pycrdt_joins"], bench.cache, bench.count, 3)
    for peer in ("Loro", "pycrdt"):
        yield _against(SEVEN, took["build_of_seven"], took[f"{peer.lower()}_joins"], peer, 1)


def _against(work: str, ours: float | UnmeasuredError, other: float | UnmeasuredError, of: str, most: float = 0) -> Row:
    for found in (ours, other):
        if isinstance(found, UnmeasuredError):
            return unmeasured(work, f"at most {most:g}x" if most else "", f"{of}: {found}")
    return at_most(work, ours, other, of, most) if most else only_told(work, ours, other, of)


def memory(bench: Bench) -> Iterator[Row]:
    """The peak of a process that makes the database."""
    cached(bench.count, bench.cache)
    yield under(MEMORY, workers.peak_mb_of("build_for_memory", bench.cache, bench.count), 100, "MB")


def preparing(bench: Bench) -> Iterator[Row]:
    """What a session's end needs before anybody is asked, in time and memory; and the rules over many sessions."""
    yield from alone(bench, work=PREPARED, name="prepare_transcript", most_ms=1_000)
    yield under(PREPARED_MEMORY, workers.peak_mb_of("prepare_transcript", bench.cache, bench.count), 150, "MB")
    took = workers.alternated(["reflect_replay"], bench.cache, bench.count, 1)["reflect_replay"]
    if isinstance(took, UnmeasuredError):
        yield unmeasured(REPLAYED, "under 60 s", str(took))
    else:
        yield under(REPLAYED, took, 60, "s")


def in_process(bench: Bench) -> Iterator[Row]:
    """Logging against the disk's own time."""
    took = workers.alternated(["log_in_process", "append_bare"], bench.cache, 100, 101)
    yield _against(LOGGING, took["log_in_process"], took["append_bare"], "append and fsync", 2)


def alone(bench: Bench, *, work: str, name: str, most_ms: int) -> Iterator[Row]:
    """One piece of work against a figure."""
    took = workers.alternated([name], bench.cache, bench.count, 21)[name]
    if isinstance(took, UnmeasuredError):
        yield unmeasured(work, f"under {most_ms} ms", str(took))
    else:
        yield under(work, took * 1000, most_ms, "ms")


def command(bench: Bench, *, name: str) -> Iterator[Row]:
    """A command in clans of other sizes, and in one with odd lines, against a small one."""
    sizes = dict.fromkeys([300, 3_000, bench.count])
    folders = {f"{size:,}": bench.clans.of(size) / "velma" for size in sizes}
    small, odd = bench.clans.of(100) / "velma", bench.clans.odd(bench.count)
    calls = {label: processes.command(name, folder) for label, folder in {"100": small, **folders, "odd": odd}.items()}
    took = processes.alternated(calls)
    for label in folders:
        yield at_most(_work_of(name, label), took[label], took["100"], "with 100", 1.2)
    yield at_most(_odd(name), took["odd"], took[f"{bench.count:,}"], "without", 1.1)


def whole_process(bench: Bench) -> Iterator[Row]:
    """A correction in a process of its own, with and without bytecode, against an interpreter that does nothing."""
    small = bench.clans.of(100) / "velma"
    call = processes.correct(small)
    calls = {
        "with": call,
        "without": processes.without_bytecode(call, bench.cache),
        "python": Call(PYTHON, small),
    }
    took = processes.alternated(calls)
    yield at_most(BYTECODE, took["with"], took["python"], PASS, 12)
    yield at_most(NO_BYTECODE, took["without"], took["python"], PASS, 18)


def dashboard(bench: Bench) -> Iterator[Row]:
    """``fleet`` alone, as a person types it, in a large clan and in a small one."""
    folders = {size: bench.clans.of(size) / "velma" for size in (100, bench.count)}
    calls = {f"{size}": Call(SCRIPT, folder) for size, folder in folders.items()}
    took = processes.alternated(calls | {"python": Call(PYTHON, folders[100])})
    for size, work in ((100, DASHBOARD_SMALL), (bench.count, DASHBOARD)):
        yield under(work, took[f"{size}"] * 1000, 200, "ms", f"{PASS} {told(took['python'])}")


def missing_database(bench: Bench, *, name: str) -> Iterator[Row]:
    """A command when the database was deleted: in a large clan, and in a small one."""
    folders = {size: bench.clans.of(size) / "velma" for size in (100, bench.count)}
    calls = {str(size): processes.without_database(processes.command(name, folder)) for size, folder in folders.items()}
    took = processes.alternated(calls, 3)
    yield only_told(_missing(name), took[str(bench.count)], took["100"], "with 100, database missing too")


def reading_all(bench: Bench, *, words: str) -> Iterator[Row]:
    """A command that is about all lessons of a large clan."""
    folders = {size: bench.clans.of(size) / "velma" for size in (100, bench.count)}
    calls = {str(size): Call([*MODULE, *words.split()], folder) for size, folder in folders.items()}
    took = processes.alternated(calls, 5)
    large, small = took[str(bench.count)], took["100"]
    row = under(_work_of(words), large * 1000, SOON_MS_MAX, "ms", f"with 100 {told(small)}")
    yield row._replace(ratio=f"{large / small:.2f}x")


def _work_of(name: str, label: str = "N") -> str:
    return f"`fleet {name}`, {label}"


def _odd(name: str) -> str:
    return f"`fleet {name}`, N, with an unreadable line and one of a newer version"


def _missing(name: str) -> str:
    return f"`fleet {name}`, N, the first time after the database was deleted"


def sync_large(bench: Bench) -> Iterator[Row]:
    """A sync in a large clan, and in one with many shards, against one in a small clan."""
    clans = {
        "small": bench.clans.of(1_000),
        "large": bench.clans.of(bench.count),
        "whole": bench.clans.of(2_000),
        "shards": bench.clans.of(1_000, 1_000),
    }
    took = syncing.alternated({name: syncing.SyncResult(clan) for name, clan in clans.items()})
    yield at_most(SYNC_LARGE, took["large"], took["small"], "with 1,000", 1.5)
    yield at_most(SYNC_SHARDS, took["shards"], took["whole"], "2,000 in the edition", 1.5)


def sync_small(bench: Bench) -> Iterator[Row]:
    """A sync in a small clan against the plumbing that it needs."""
    clan = syncing.SyncResult(bench.clans.of(1_000))
    clan.once()  # now both have a shard in the tree
    took = syncing.alternated({"fleet": clan, "git": syncing.Bare(bench.clans.of(1_000), bench.cache)})
    yield at_most(SYNC_SMALL, took["fleet"], took["git"], "fetch, diff-tree, cat-file, fast-import, push", 4)


def rewritten(bench: Bench) -> Iterator[Row]:
    """A sync that finds a new edition of what this machine knows already."""
    took_s, peak_mb = syncing.rewritten(bench.clans.of(bench.count))
    yield under(REWRITTEN, took_s * 1000, 3_000, "ms")
    yield under(REWRITTEN_MEMORY, peak_mb, 100, "MB")


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
        yield at_most(f"`{words}`, {work}", took[name], took["python"], PASS, most)


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
    *(
        Group((*(_work_of(name, size) for size in ("300", "3,000", "N")), _odd(name)), partial(command, name=name))
        for name in COMMANDS
    ),
    Group((SYNC_LARGE, SYNC_SHARDS), sync_large),
    Group((SYNC_SMALL,), sync_small),
    Group((BYTECODE, NO_BYTECODE), whole_process),
    Group((DASHBOARD_SMALL, DASHBOARD), dashboard),
    *(Group((f"`fleet hook`, {work}", f"`python -m fleet hook`, {work}"), partial(hook, work=work)) for work in HOOKS),
    Group((AFTER_CHANGE,), start_after_change),
    Group((LOGGING,), in_process),
    Group((BUILD, BEST), database),
    Group((SEVEN,), joining),
    Group((MEMORY,), memory),
    Group((TAKE_IN,), partial(alone, work=TAKE_IN, name="take_in", most_ms=20)),
    Group((NEAR,), partial(alone, work=NEAR, name="nearest", most_ms=20)),
    Group((PREPARED, PREPARED_MEMORY, REPLAYED), preparing),
    Group((YEAR,), partial(alone, work=YEAR, name="consolidate_year", most_ms=3_000)),
    Group((DATES,), partial(alone, work=DATES, name="absolute_dates", most_ms=1_000)),
    Group((TIDY,), partial(alone, work=TIDY, name="tidy_notes", most_ms=5_000)),
    Group((IDLE,), partial(alone, work=IDLE, name="sleep_idle", most_ms=200)),
    Group((REWRITTEN, REWRITTEN_MEMORY), rewritten),
    *(Group((_missing(name),), partial(missing_database, name=name)) for name in COMMANDS),
    *(Group((_work_of(words),), partial(reading_all, words=words)) for words in ABOUT_ALL),
    Group(sidecar.WORKS, idling),
    Group(live.WORKS, live_sync),
)
