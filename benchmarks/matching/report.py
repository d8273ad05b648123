"""How well matching tells lessons apart: the labelled pairs, tuned on one half, reported on the other.

python -m benchmarks.matching.report            the held-out half
python -m benchmarks.matching.report --all      both halves, and each pair that went wrong in the half for tuning
"""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.keep import matching
from fleet.keep.index import PATTERN, Doc, Index
from fleet.keep.matching import Candidates, Near

Source = Callable[[str], Candidates]
"""From a lesson to the candidates for it among all that are known, itself left out."""

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


def reading_all(known: Iterable[str]) -> Source:
    """Return candidates by looking at every known lesson."""
    lessons = [(text, text) for text in sorted(set(known))]
    return lambda text: matching.candidates(text, [lesson for lesson in lessons if lesson[0] != text])


def search_index(known: Iterable[str]) -> Source:
    """Return candidates from a search index of the known lessons, as ``fleet correct`` takes them."""
    index = Index(sqlite3.connect(":memory:", isolation_level=None))
    index.prepare()
    with index.transaction():
        for text in sorted(set(known)):
            index.replace_refs([Doc(PATTERN, text, "", 0, text, "", "", "")], [text])

    def source(text: str) -> Candidates:
        found = matching.indexed(text, index, matching.CANDIDATES_MAX + 1)
        others = [lesson for lesson in found.texts if lesson[0] != text]
        return found._replace(texts=others[: matching.CANDIDATES_MAX])

    return source


def judge(chosen: Sequence[Pair], source: Source) -> list[Judged]:
    """Judge pairs as ``fleet correct`` would in a notebook that holds all of them: a is logged, b is there."""
    found = []
    for pair in chosen:
        others = source(pair.a)
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


def stray_offers(chosen: Sequence[Pair], source: Source) -> tuple[int, int]:
    """Return how many questions there were, and how many lessons were offered that are not the pair's other one."""
    mates = {frozenset((pair.a, pair.b)) for pair in pairs()}
    asked = sorted({pair.a for pair in chosen})
    stray = 0
    for text in asked:
        found = matching.near(text, source(text))
        stray += sum(n.verdict == "same" and frozenset((text, n.text)) not in mates for n in found)
    return len(asked), stray


def half(name: str) -> list[str]:
    """Return the report on one half, ``tuning`` or ``held out``, as lines of Markdown."""
    everything = pairs()
    known = {text for pair in everything for text in (pair.a, pair.b)}
    chosen = [pair for pair in everything if pair.is_held_out == (name == "held out")]
    source = search_index(known)
    judged = judge(chosen, source)
    asked, stray = stray_offers(chosen, source)
    told = [f"## The same lesson in other words, the half {name}: {len(chosen)} pairs", "", *table(judged).split("\n")]
    told.append(f"{stray} stray offers in answer to {asked} lessons, {len(known)} being known")
    read = figures(judge(chosen, reading_all(known)))
    told.append(
        f"with every lesson read instead of the index: precision {read.precision:.3f}, recall {read.recall:.3f}"
    )
    if name == "tuning":
        told += [line for j in judged for line in _went_wrong(j)]
    return told


def _went_wrong(j: Judged) -> list[str]:
    if (j.near.verdict == "same") == (j.pair.label == "same") and j.was_candidate:
        return []
    missed = "" if j.was_candidate else "NO CANDIDATE"
    told = f"{j.pair.label:<13}{j.near.score:.2f} {j.near.verdict or '-'} {j.near.why} {missed}"
    return [told.rstrip(), f"    {j.pair.a}", f"    {j.pair.b}"]


def lines() -> list[str]:
    """Return the report on the half that no threshold was tuned on, as lines of Markdown."""
    return half("held out")


def main(words: Sequence[str]) -> int:
    """Print the report."""
    for name in ("tuning", "held out") if "--all" in words else ("held out",):
        print("\n".join(half(name)), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
