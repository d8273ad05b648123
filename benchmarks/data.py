"""A clan of any size: patterns as a real one would have them, the same for every run."""

import random
from collections.abc import Iterator
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.model.line import Column, Line, encode, join

AGENTS = ["popashot", "cantona", "splinter", "velma", "tank", "zerocool", "slash"]
REPLICAS = [f"{agent}.{n:08x}" for agent in AGENTS for n in range(3)]
COMMON = """
always never the a in when check before use with for and of on version flag input comes from user quote every path
shell scripts pin image digest retry jitter timeout read first error log build cache key migration index transaction
lock test fixture port token secret rotate deploy rollback schema parse validate boundary
""".split()
START_MS = 1_760_000_000_000
CHANGED = 10  # each replica has changed every tenth pattern, drawn by itself
FULL_REPLICAS = [f"{agent}.f0f0f0f0" for agent in AGENTS]


def _vocabulary() -> tuple[list[str], list[float]]:
    """Return words and their weights, summed up: the n-th is said 1/n as often as the first, as in any language."""
    syllables = "ka te ru po mi zo la fe gu ni sha tor vel dun pri sto".split()
    words = COMMON + ["".join(parts) for parts in product(syllables, repeat=3)]
    return words, list(accumulate(1 / rank for rank in range(1, len(words) + 1)))


WORDS, WEIGHTS = _vocabulary()


def patterns(count: int, seed: int = 1) -> list[Line]:
    """Return so many joined records, sorted by id: about 700 bytes each."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        at_ms = START_MS + number * 997
        writers = {
            writer: Column(add=clock.pack(at_ms + rng.randrange(10_000_000)), n=_counted(rng.randint(1, 9)))
            for writer in rng.sample(REPLICAS, rng.randint(1, 4))
        }
        first = min(writers, key=lambda writer: (writers[writer].add, writer))
        writers[first].first = {
            "text": f"{_said(rng, 12)} {number}",
            "correct": _said(rng, 16),
            "category": rng.choice(["shell", "ci", "git", "databases", "testing"]),
            "tags": rng.sample(COMMON, 2),
        }
        made.append(Line(f"p-{rng.getrandbits(64):016x}", writers))
    return sorted(made, key=lambda line: line.id)


def _counted(seen: int) -> dict[str, int]:
    return {"seen": seen, "sessions": max(1, seen // 2)}


def _said(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=words))


def sentences(count: int, words: int, seed: int = 2) -> list[str]:
    """Return so many texts, no two the same."""
    rng = random.Random(seed)
    return [f"{_said(rng, words)} {number}" for number in range(count)]


def edition(count: int, seed: int = 1) -> bytes:
    """Return the bytes of an edition of so many patterns."""
    return b"".join(encode(line) + b"\n" for line in patterns(count, seed))


def cached(count: int, folder: Path) -> Path:
    """Return a file with such an edition, made once."""
    path = folder / f"edition-{count}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(edition(count))
    return path


class Change(NamedTuple):
    """What one full replica has done to one pattern: where it stands, and the pattern as this replica has it."""

    number: int
    line: Line


def changes(base: list[Line], replica: int) -> Iterator[Change]:
    """Yield what the n-th of the seven replicas has changed: a tenth of the patterns, so that some meet by chance.

    By turns it has seen a lesson once more, seen it in another session as well, or edited its category: a counter and
    an add, two counters and an add, a field with its stamp.
    """
    rng, me = random.Random(1_000 + replica), FULL_REPLICAS[replica]
    for turn, number in enumerate(sorted(rng.sample(range(len(base)), len(base) // CHANGED))):
        known = base[number]
        stamp = clock.pack(START_MS + 2_000_000_000 + turn * 1_000 + replica)
        if turn % 3 == 2:
            said = Column(set={"category": (stamp, rng.choice(COMMON))})
        else:
            said = Column(add=stamp, n={"seen": rng.randint(1, 9)} | ({"sessions": 1} if turn % 3 else {}))
        yield Change(number, join(known, Line(known.id, {me: said})))


def full_replicas(count: int, folder: Path) -> list[Path]:
    """Return the files of seven editions of the same patterns, each with its own changes, made once."""
    paths = [folder / f"replica-{replica}-{count}.jsonl" for replica in range(len(AGENTS))]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        base = patterns(count)
        plain = [encode(line) for line in base]
        for replica, path in enumerate(paths):
            lines = list(plain)
            for number, line in changes(base, replica):
                lines[number] = encode(line)
            path.write_bytes(b"".join(line + b"\n" for line in lines))
    return paths
