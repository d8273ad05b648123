"""How well matching tells lessons apart: the labelled pairs, tuned on one half, reported on the other.

python benchmarks/matching/report.py            the held-out half
python benchmarks/matching/report.py --all      both halves, and each pair that went wrong in the half for tuning
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.keep import matching
from fleet.keep.matching import Near

PAIRS = Path(__file__).with_name("pairs.jsonl")
LABELS = ("same", "opposite", "other-number", "other-tool", "unrelated")


class Pair(NamedTuple):
    """Two lessons and what a person says of them."""

    a: str
    b: str
    label: str
    source: str

    @property
    def is_held_out(self) -> bool:
        """Whether it belongs to the half that no threshold was tuned on."""
        return hashlib.blake2b(f"{self.a}\0{self.b}".encode(), digest_size=8).digest()[-1] % 2 == 1


class Judged(NamedTuple):
    """A pair, the verdict on it, and whether b was among the candidates for a."""

    pair: Pair
    near: Near
    was_candidate: bool


class Figures(NamedTuple):
    """Precision and recall of what is offered as the same."""

    precision: float
    recall: float


def pairs() -> list[Pair]:
    """Return the labelled set."""
    return [Pair(**json.loads(line)) for line in PAIRS.read_text("utf-8").splitlines()]


def judge(chosen: Sequence[Pair], known: Iterable[str]) -> list[Judged]:
    """Judge pairs as ``fleet correct`` would in a notebook that holds all of ``known``: a is logged, b is there."""
    lessons = [(text, text) for text in sorted(set(known))]
    found = []
    for pair in chosen:
        others = matching.candidates(pair.a, [lesson for lesson in lessons if lesson[0] != pair.a])
        near = matching.judged(matching.wording.read(pair.a), pair.b, pair.b, others.weigh)
        found.append(Judged(pair, near, any(pattern == pair.b for pattern, _ in others.texts)))
    return found


def figures(judged: Sequence[Judged]) -> Figures:
    """Return precision and recall on ``same``: a pair that is no candidate is not offered."""
    offered = [j for j in judged if j.near.verdict == "same" and j.was_candidate]
    right = sum(j.pair.label == "same" for j in offered)
    wanted = sum(j.pair.label == "same" for j in judged)
    return Figures(right / (len(offered) or 1), right / (wanted or 1))


def table(judged: Sequence[Judged]) -> str:
    """Return the table, a row a label."""
    rows = ["| label | pairs | offered as same | shown as conflict | nothing |", "|---|---|---|---|---|"]
    for label in LABELS:
        verdicts = [j.near.verdict if j.was_candidate else "" for j in judged if j.pair.label == label]
        rows.append(f"| {label} | {len(verdicts)} | " + " | ".join(str(verdicts.count(v)) for v in _VERDICTS) + " |")
    found = figures(judged)
    wanted = [j for j in judged if j.pair.label == "same"]
    met = sum(j.was_candidate for j in wanted)
    rows.append(
        f"\nprecision on same {found.precision:.3f}, recall {found.recall:.3f}; "
        f"{met} of {len(wanted)} same pairs among the {matching.CANDIDATES_MAX} candidates"
    )
    return "\n".join(rows)


_VERDICTS = ("same", "conflict", "")


def stray_offers(chosen: Sequence[Pair], known: Iterable[str]) -> tuple[int, int]:
    """Return how many questions there were, and how many lessons were offered that are not the pair's other one."""
    lessons = [(text, text) for text in sorted(set(known))]
    mates = {frozenset((pair.a, pair.b)) for pair in pairs()}
    asked = sorted({pair.a for pair in chosen})
    stray = 0
    for text in asked:
        found = matching.near(text, matching.candidates(text, [n for n in lessons if n[0] != text]))
        stray += sum(n.verdict == "same" and frozenset((text, n.text)) not in mates for n in found)
    return len(asked), stray


def main(words: Sequence[str]) -> int:
    """Print the report."""
    everything = pairs()
    known = [text for pair in everything for text in (pair.a, pair.b)]
    halves = {
        "tuning": [pair for pair in everything if not pair.is_held_out],
        "held out": [pair for pair in everything if pair.is_held_out],
    }
    for name, half in halves.items():
        if name == "tuning" and "--all" not in words:
            continue
        judged = judge(half, known)
        asked, stray = stray_offers(half, known)
        print(f"## Matching, the half {name}: {len(half)} pairs\n\n{table(judged)}")
        print(f"{stray} stray offers in answer to {asked} lessons, {len(set(known))} being known\n")
        if name == "tuning":
            for j in judged:
                if (j.near.verdict == "same") != (j.pair.label == "same") or not j.was_candidate:
                    print(f"{j.pair.label:<13}{j.near.score:.2f} {j.near.verdict or '-'} {j.near.why} "
                          f"{'' if j.was_candidate else 'NO CANDIDATE'}\n    {j.pair.a}\n    {j.pair.b}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
