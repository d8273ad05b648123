"""Work of fleet's that is measured within a process, each piece prepared by a function that returns it."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count as counting
from pathlib import Path

from benchmarks.data import FULL_REPLICAS, WEIGHTS, WORDS, cached, full_replicas
from benchmarks.replay import sessions as replayed
from benchmarks.workers import Prepared, UnmeasuredError, Work
from crdt import clock
from fleet.app import consolidating, learning, sleeping, tidying
from fleet.hosts import sessions, transcripts
from fleet.learn.corrections import Correction
from fleet.model.line import Column, Line, encode
from fleet.reflect import digest, rules
from fleet.reflect.housekeeping import Mode
from fleet.store import config
from fleet.store.tree import FORMAT, FORMAT_TEXT
from fleet.store.workspace import Workspace
from fleet.text import dates, prompts

BEST = 30
SHARD = "zerocool.0a0a0a0a"


def _folder(cache: Path, editions: list[Path]) -> Path:
    """Return a workspace's folder: the first file is its edition, the others are shards."""
    root = Path(tempfile.mkdtemp(prefix="inside-", dir=cache))
    (root / "fleet.toml").write_text(config.render("", "fleet"))
    shards = root / "clan-learnings" / "patterns.d"
    shards.mkdir(parents=True)
    shards.with_name(FORMAT).write_bytes(FORMAT_TEXT)
    names = [Path("../patterns.jsonl"), *(Path(f"{name}.jsonl") for name in FULL_REPLICAS[1:])]
    for name, edition in zip(names, editions, strict=False):
        os.link(edition, shards / name)
    return root


def _workspace(cache: Path, count: int = 0) -> Workspace:
    """Return a workspace with so many lessons and an up-to-date database."""
    workspace = Workspace(_folder(cache, [cached(count, cache)] if count else []))
    workspace.db.refresh()
    return workspace


def _built(root: Path, count: int) -> Workspace:
    workspace = Workspace(root)
    workspace.db.refresh()
    assert workspace.patterns.count() == count
    assert not workspace.db.refused()
    workspace.close()
    return workspace


def _without_database(root: Path) -> None:
    shutil.rmtree(root / ".fleet", ignore_errors=True)


def build(cache: Path, count: int) -> Work:
    """Make the database from an edition."""
    root = _folder(cache, [cached(count, cache)])
    return Prepared(lambda: _without_database(root), lambda _: _built(root, count))


def build_of_seven(cache: Path, count: int) -> Work:
    """Make the database from seven editions of the same patterns, one as the edition and six as shards."""
    root = _folder(cache, full_replicas(count, cache))
    return Prepared(lambda: _without_database(root), lambda _: _built(root, count))


def build_for_memory(cache: Path, count: int) -> Work:
    """Make the database in a process that has done nothing else: the edition must be there already."""
    root = _folder(cache, [cache / f"edition-{count}.jsonl"])
    return lambda: _built(root, count)


def best(cache: Path, count: int) -> Work:
    """Open the database, as a new process does, and return the best lessons."""
    root = _workspace(cache, count).root

    def work() -> object:
        found = Workspace(root).patterns.best("evidence", BEST)
        assert len(found) == BEST
        return found

    return work


def take_in(cache: Path, count: int) -> Work:
    """Take in one line that somebody else's shard gained, until a search finds it."""
    workspace, rng, numbers = _workspace(cache, count), random.Random("take in"), counting()
    shard = workspace.clan / "patterns.d" / f"{SHARD}.jsonl"

    def written() -> str:
        word = f"zzword{next(numbers)}"
        text = " ".join([*rng.choices(WORDS, cum_weights=WEIGHTS, k=11), word])
        said = Column(add=clock.nearest(workspace.world.wall_ms()), first={"text": text}, n={"seen": 1})
        with shard.open("ab") as file:
            file.write(encode(Line(f"p-{rng.getrandbits(64):016x}", {SHARD: said})) + b"\n")
        return word

    def work(word: object) -> object:
        found = workspace.patterns.matching(str(word), 1)
        assert len(found) == 1
        return found

    return Prepared(written, work)


def nearest(cache: Path, count: int) -> Work:
    """Find the lessons nearest to a new one, as ``fleet correct`` does."""
    from fleet.text import similarity

    workspace, numbers = _workspace(cache, count), counting()

    def work() -> object:
        lesson = f"Validate the input of a deploy script before the rollback {next(numbers)}"
        return similarity.near(lesson, list(workspace.patterns.candidates(lesson).items()))

    work()
    return work


def log_in_process(cache: Path, count: int) -> Work:
    """Log a correction, as a program does that goes on: until it returns, when it is durable and counted."""
    workspace, numbers = _workspace(cache, count), counting()

    def work() -> object:
        return _log(workspace, f"lesson {next(numbers)}")

    work()
    return work


def consolidate_year(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Plan the consolidation of a year: three sessions a day, five things each that are its own, one that recurs."""
    workspace, rng = _workspace(cache), random.Random(15)
    begin = datetime.now(UTC) - timedelta(days=364)
    often = [_words(rng) for _ in range(100)]
    for day in (begin + timedelta(days=number) for number in range(365)):
        text = f"# Daily Log — {day:%Y-%m-%d}\n"
        for number in range(3):
            lines = "".join(f"- {said}\n" for said in [*(_words(rng) for _ in range(5)), rng.choice(often)])
            mark = f"<!-- velma {day:%m%d}{number} -->"
            text += f"\n## Session {9 + number:02}:00 UTC\n\n{mark}\n\n### Patterns Learned\n\n{lines}"
        path = workspace.root / ".agents" / "logs" / f"{day:%Y-%m-%d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def work() -> object:
        return consolidating.consolidate(workspace, "velma", force=True, dry_run=True, days=366)

    work()
    return work


def absolute_dates(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Make the dates of 10,000 notes absolute: every third one has a phrase of time, or what looks like one."""
    said, at = _notes(random.Random(4)), datetime.now(UTC)
    return lambda: [dates.absolutize(text, at) for text in said]


def tidy_notes(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Plan the housekeeping of 10,000 private notes without embeddings: a tenth of them says what another one says."""
    workspace = _with_notes(cache)
    return lambda: tidying.tidy(workspace, "velma", Mode.ALWAYS, dry_run=True)


def sleep_idle(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Sleep with 10,000 private notes, when nothing was written since the last sleep found nothing to do."""
    workspace = _with_notes(cache)
    for _ in range(3):
        sleeping.sleep(workspace, "velma")
    return lambda: sleeping.sleep(workspace, "velma")


def _with_notes(cache: Path) -> Workspace:
    workspace, rng = _workspace(cache), random.Random(4)
    begin_ms = workspace.world.wall_ms() - 3_600_000
    with workspace.writing("velma") as writer:
        columns = (
            Column(add=clock.pack(begin_ms + number), first={"scope": "private", "text": text})
            for number, text in enumerate(_notes(rng))
        )
        writer.append_private([Line(f"p-{at:016x}", {writer.name: each}) for at, each in enumerate(columns)])
    workspace.notes("velma").count()
    return workspace


def _notes(rng: random.Random) -> list[str]:
    timed = ("broke yesterday", "was moved 3 days ago", "is today's standard", "took two weeks", "ends next month")
    found = [f"{_words(rng)} {rng.choice(timed)}" if number % 3 == 0 else _words(rng) for number in range(9_000)]
    return [*found, *(f"{text}." for text in rng.sample(found, 1_000))]


def prepare_transcript(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Make the digest of a transcript of 10 MB: prompts, calls, failures, and mostly the output of tools."""
    path, rng = Path(tempfile.mkdtemp(prefix="inside-", dir=cache)) / "transcript.jsonl", random.Random(14)
    with path.open("w") as file:
        for number in counting():
            text = " ".join(rng.choices(WORDS, k=rng.randint(50, 900)))
            call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"make part{number}"}}
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text, "is_error": number % 9 == 0}
            said = [{"type": "text", "text": text[:200]}]
            for role, blocks in (("user", said), ("assistant", [*said, call]), ("user", [result])):
                file.write(json.dumps({"type": role, "message": {"role": role, "content": blocks}}) + "\n")
            if file.tell() > 10_000_000:
                break

    def work() -> object:
        return digest.Digest.of(sessions.read(path).events)

    return work


def reflect_replay(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Ask the rules about the recorded sessions of a team.

    Raises:
        UnmeasuredError: they are not here.
    """
    corpus = Path(__file__).resolve().parents[2] / "shared" / "corpora" / "replay" / "sessions.jsonl"
    if not corpus.is_file():
        raise UnmeasuredError("no shared corpora here")
    read = []
    for each in replayed.load(corpus):
        read.append(prompts.Session(name=each.id))
        read[-1].cwd, read[-1].events = each.cwd, list(_events(each))

    def work() -> object:
        return [rules.reflect(each) for each in read]

    return work


def _events(session: replayed.Session) -> Iterator[prompts.Event]:
    """Yield a recorded session's events as the reader of transcripts does."""
    for number, told in enumerate(session.events, 1):
        kind, name, text = told["e"], told.get("id", ""), told.get("text", "")
        if kind == "call":
            event = prompts.Event("call", name, tool=told["tool"], about=transcripts.about(told["input"]))
        elif kind == "result":
            how = "refused" if told.get("rejected") else "result"
            event = prompts.Event(how, name, text, is_ok=told["ok"])
        elif kind in ("prompt", "interrupt"):
            event = prompts.Event("prompt" if kind == "prompt" else "stopped", name, text)
        else:
            continue
        event.at, event.line = told["t"], number
        yield event


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=10))


def _log(workspace: Workspace, lesson: str) -> object:
    return learning.correct(workspace, "velma", Correction("w", "r", lesson), session="s")


def append_bare(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Append and fsync as many bytes as the entry of one correction has."""
    workspace = _workspace(cache)
    _log(workspace, "lesson 1")
    log = workspace.home("velma") / "corrections.md"
    before = log.stat().st_size
    _log(workspace, "lesson 2")
    entry, path = b"x" * (log.stat().st_size - before), log.with_name("bare")

    def work() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, entry)
        os.fsync(handle)
        os.close(handle)

    work()
    return work
