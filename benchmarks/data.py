"""A clan of any size: patterns as a real one would have them, the same for every run."""

import random
from pathlib import Path

from crdt import clock
from fleet.keep.line import Line, encode

AGENTS = ["popashot", "cantona", "splinter", "velma", "tank", "zerocool", "slash"]
REPLICAS = [f"{agent}.{n:08x}" for agent in AGENTS for n in range(3)]
WORDS = """
always never check the version before using a flag when input comes from user quote every path in shell scripts pin
image digest retry with jitter on timeout read first error log build cache key migration index transaction lock test
fixture port token secret rotate deploy rollback schema parse validate boundary
""".split()
START_MS = 1_760_000_000_000


def patterns(count: int, seed: int = 1) -> list[Line]:
    """Return so many joined records, sorted by id: about 700 bytes each."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        at_ms = START_MS + number * 997
        seen = {replica: rng.randint(1, 9) for replica in rng.sample(REPLICAS, rng.randint(1, 4))}
        add = {replica: clock.pack(at_ms + rng.randrange(10_000_000)) for replica in seen}
        first = min((stamp, replica) for replica, stamp in add.items())
        made.append(
            Line(
                id=f"p-{rng.getrandbits(64):016x}",
                at=first[0],
                by=first[1],
                add=add,
                n={"seen": seen, "sessions": {replica: max(1, total // 2) for replica, total in seen.items()}},
                set={
                    "text": f"{' '.join(rng.choices(WORDS, k=12))} {number}",
                    "correct": " ".join(rng.choices(WORDS, k=16)),
                    "category": rng.choice(["shell", "ci", "git", "databases", "testing"]),
                    "tags": rng.sample(WORDS, 2),
                },
            )
        )
    return sorted(made, key=lambda line: line.id)


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
