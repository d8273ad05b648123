"""How near lessons are found, and what is said to differ: the labelled pairs.

python -m benchmarks.matching.report            the held-out half
python -m benchmarks.matching.report --all      both halves, and each pair that went wrong in the other half

The pairs are a regression set: nothing is tuned to them. Among all the lessons of the set, each pair's first is asked
for as ``fleet correct`` asks. A pair of the label ``same`` is met when its second is among the nearest that are shown.
No verdict is given, so what counts beside it is what a reader sees: of the same ones, how many bear a difference that
is none, and of the others, how many bear the one that there is.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import REPLICAS, START_MS
from crdt import clock
from fleet.model.line import Column, Line, encode
from fleet.store import config
from fleet.store.workspace import Workspace
from fleet.text import similarity
from fleet.text.similarity import Near, ParsedText

PAIRS = Path(__file__).with_name("pairs.jsonl")
LABELS = ("same", "opposite", "other-number", "other-tool", "unrelated")


Source = Callable[[str], list[tuple[str, str]]]
"""From a lesson to the candidates for it among all that are known, itself left out."""


class Pair(NamedTuple):
    """Two lessons and what a person says of them."""

    a: str
    b: str
    label: str
    source: str

    @property
    def is_held_out(self) -> bool:
        """Whether it belongs to the half of which no pair is listed."""
        return hashlib.blake2b(f"{self.a}\0{self.b}".encode(), digest_size=8).digest()[-1] % 2 == 1


class Asked(NamedTuple):
    """A pair, what was shown for its first lesson, and whether its second was a candidate."""

    pair: Pair
    shown: list[Near]
    differs: tuple[str, ...]
    was_candidate: bool

    @property
    def rank(self) -> int:
        """The place of the second lesson among those shown, 0 for none."""
        return next((at for at, near in enumerate(self.shown, 1) if near.id == self.pair.b), 0)


def pairs() -> list[Pair]:
    """Return the labelled set."""
    return [Pair(**json.loads(line)) for line in PAIRS.read_text("utf-8").splitlines()]


def full_text(known: Iterable[str]) -> Source:
    """Return candidates from the database of a workspace that has the known lessons, for each of these."""
    texts = sorted(set(known))
    said = [Column(add=clock.pack(START_MS + at), first={"text": text}) for at, text in enumerate(texts)]
    records = [Line(f"p-{at:016x}", {REPLICAS[0]: column}) for at, column in enumerate(said)]
    with tempfile.TemporaryDirectory() as folder, closing(Workspace(Path(folder))) as workspace:
        (workspace.root / config.FILE_NAME).write_text(config.render("", "fleet"))
        workspace.clan.mkdir()
        (workspace.clan / "patterns.jsonl").write_bytes(b"".join(encode(each) + b"\n" for each in records))
        found = {text: workspace.patterns.candidates(text).values() for text in texts}
    return lambda text: [(each, each) for each in found[text] if each != text]


def ask(chosen: Sequence[Pair], source: Source) -> list[Asked]:
    """Ask for each pair as ``fleet correct`` does where all lessons are known: a is logged, b is there."""
    found = []
    for pair in chosen:
        candidates = source(pair.a)
        shown = similarity.near(pair.a, candidates)
        mine, theirs = ParsedText.of((pair.a, pair.b))
        found.append(Asked(pair, shown, mine.differences(theirs), any(each == pair.b for each, _ in candidates)))
    return found


def met(asked: Sequence[Asked], best: int = similarity.NEAR_MAX) -> float:
    """Return the share of the same lessons that are among the best that are shown."""
    wanted = [each for each in asked if each.pair.label == "same"]
    return sum(0 < each.rank <= best for each in wanted) / (len(wanted) or 1)


def told(asked: Sequence[Asked], label: str) -> float:
    """Return the share of pairs of a label that bear a difference."""
    chosen = [each for each in asked if each.pair.label == label]
    return sum(bool(each.differs) for each in chosen) / (len(chosen) or 1)


def table(asked: Sequence[Asked]) -> list[str]:
    """Return the table, a row a label."""
    rows = [
        "| label | pairs | candidate | among the three | first | a difference is named |",
        "|---|---|---|---|---|---|",
    ]
    for label in LABELS:
        chosen = [each for each in asked if each.pair.label == label]
        counts = (
            sum(each.was_candidate for each in chosen),
            sum(each.rank > 0 for each in chosen),
            sum(each.rank == 1 for each in chosen),
            sum(bool(each.differs) for each in chosen),
        )
        rows.append(f"| {label} | {len(chosen)} | " + " | ".join(map(str, counts)) + " |")
    return rows


def half(name: str) -> list[str]:
    """Return the report on one half, ``other`` or ``held out``, as lines of Markdown."""
    everything = pairs()
    known = {text for pair in everything for text in (pair.a, pair.b)}
    chosen = [pair for pair in everything if pair.is_held_out == (name == "held out")]
    asked = ask(chosen, full_text(known))
    lines_ = [f"## The same lesson in other words, the half {name}: {len(chosen)} pairs among {len(known)} lessons", ""]
    lines_ += table(asked)
    lines_ += [
        "",
        f"of the same lessons {met(asked):.2f} are among the three nearest, {met(asked, 1):.2f} are the first",
    ]
    if name == "other":
        lines_ += [line for each in asked for line in _went_wrong(each)]
    return lines_


def _went_wrong(asked: Asked) -> list[str]:
    is_same = asked.pair.label == "same"
    if (asked.rank > 0 and not asked.differs) if is_same else (asked.differs or not asked.rank):
        return []
    missed = "" if asked.was_candidate else "NO CANDIDATE"
    head = f"{asked.pair.label:<13} rank {asked.rank} {' '.join(asked.differs)} {missed}"
    return [head.rstrip(), f"    {asked.pair.a}", f"    {asked.pair.b}"]


def lines() -> list[str]:
    """Return the report on the held-out half, as lines of Markdown."""
    return half("held out")


def main(words: Sequence[str]) -> int:
    """Print the report."""
    for name in ("other", "held out") if "--all" in words else ("held out",):
        print("\n".join(half(name)), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
