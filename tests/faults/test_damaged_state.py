"""A damaged database: no command fails, loses a line or counts one twice, and a person is told.

Seeded: bits turned over in the header and in pages, pages zeroed, swapped or full of rubbish, files cut short.
One of each; ``FLEET_FAULTS=all`` takes 300.
"""

import json
import os
import random

import pytest

from tests.faults.test_sync import Bench

SEEDS = range(300 if os.environ.get("FLEET_FAULTS") == "all" else 7)
PAGE = 4096
LESSONS = {f"Lesson {number} says look at the {word} first": 1 for number, word in enumerate(["log", "disk", "clock"])}
MORE = "One more lesson"
COMMANDS = {
    "correct": ("correct", "--wrong", "w", "--right", "r", "--pattern", MORE),
    "search": ("search", "lesson look"),
    "patterns": ("patterns",),
    "status": ("status",),
    "sync": ("sync",),
    "start": ("start",),
}


def turned_in_header(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(100)] ^= 1 << rng.randrange(8)


def turned(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 5, 40, 400])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def turned_in_page_heads(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 4, 16])):
        data[rng.randrange(len(data) // PAGE) * PAGE + rng.randrange(16)] ^= 1 << rng.randrange(8)


def zeroed(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 3, 10])):
        at = rng.randrange(len(data) // PAGE) * PAGE
        data[at : at + PAGE] = bytes(PAGE)


def rubbish(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = rng.randbytes(PAGE)


def swapped(rng: random.Random, data: bytearray) -> None:
    one, two = (rng.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]


def cut(rng: random.Random, data: bytearray) -> None:
    size = rng.choice([rng.randrange(len(data)), rng.randrange(len(data) // PAGE) * PAGE, rng.randrange(200)])
    del data[size:]


HARMS = (turned_in_header, turned, turned_in_page_heads, zeroed, rubbish, swapped, cut)


@pytest.fixture(scope="module")
def clan(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Velma's workspace, and another one, and the remote, as they were before anything was damaged."""
    made = Bench(tmp_path_factory.mktemp("damaged"))
    made.join("velma")
    made.join("tank")
    for number, lesson in enumerate(LESSONS):
        made.correct("velma" if number else "tank", lesson)
    made.sync("tank", "velma")
    made.run("velma", "search", "lesson")
    made.keep("velma", "tank", "clan.git")
    return made


@pytest.fixture
def damaged(clan: Bench) -> Bench:
    clan.again()
    return clan


@pytest.mark.parametrize("seed", SEEDS)
def test_every_command_answers_and_nothing_is_lost(damaged: Bench, seed: int):
    rng = random.Random(seed)
    [path] = (damaged.folder / "velma/.fleet").glob("state-*.db")
    data = bytearray(path.read_bytes())
    harm = HARMS[seed % len(HARMS)]
    harm(rng, data)
    path.write_bytes(data)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    names = list(COMMANDS)
    rng.shuffle(names)
    told = ""
    for name in names:
        done = damaged.run("velma", *COMMANDS[name], expect=None)
        assert done.returncode == 0, f"{harm.__name__}, {name} of {names}: {done.stdout}{done.stderr}"
        assert name not in ("search", "patterns") or all(text in done.stdout for text in LESSONS), name
        told += done.stderr
    everything = LESSONS | {MORE: 1}
    assert damaged.seen("velma") == everything
    damaged.sync("velma", "tank")
    assert damaged.seen("tank") == everything
    damaged.run("velma", "correct", "--wrong", "w2", "--right", "r", "--pattern", MORE)
    damaged.sync("velma", "tank")
    assert damaged.seen("velma") == damaged.seen("tank") == LESSONS | {MORE: 2}


@pytest.mark.parametrize("harm", ["all", "gone", "newest .idx", "oldest .pack"])
def test_a_damaged_copy_of_the_branch_is_fetched_anew_by_the_next_sync(damaged: Bench, harm: str):
    damaged.correct("tank", MORE)
    damaged.sync("tank")
    objects = [each for each in (damaged.folder / "velma/.fleet/git/objects").rglob("*") if each.is_file()]
    age, _, suffix = harm.partition(" ")
    by_age = sorted((each for each in objects if suffix in each.suffix), key=lambda each: each.stat().st_mtime_ns)
    for each in [by_age[0]] if age == "oldest" else [by_age[-1]] if age == "newest" else objects:
        each.chmod(0o644)
        if harm == "gone":
            each.unlink()
        else:
            each.write_bytes(b"")
    (damaged.folder / "velma/clan-learnings/patterns.jsonl").unlink()
    damaged.sync("velma")
    assert damaged.seen("velma") == LESSONS | {MORE: 1}
    damaged.correct("velma", MORE)
    damaged.sync("velma", "tank")
    assert damaged.seen("tank") == LESSONS | {MORE: 2}


def test_a_sync_without_git_says_so_and_what_the_remote_holds_stays_known(damaged: Bench, tmp_path, monkeypatch):
    damaged.sync("velma")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert "is git installed?" in damaged.run("velma", "sync", expect=5).stderr
        assert "without git" in damaged.run("velma", "status").stdout
        checks = json.loads(damaged.run("velma", "doctor", "--json", expect=None).stdout)["findings"]
        assert [each["what"] for each in checks if each["check"] == "rows"] == []
    assert json.loads(damaged.run("velma", "status", "--json").stdout)["waiting"]["lines"] == 0


def test_a_tree_that_must_be_read_anew_waits_for_git_and_is_not_dropped(damaged: Bench, tmp_path, monkeypatch):
    damaged.sync("velma")
    for each in (damaged.folder / "velma/.fleet").glob("state-*"):
        each.unlink()
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        damaged.correct("velma", MORE)
        assert damaged.seen("velma") == LESSONS | {MORE: 1}
    assert json.loads(damaged.run("velma", "status", "--json").stdout)["waiting"]["lines"] == 1
