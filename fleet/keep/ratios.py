"""How alike two texts are by their characters, 0 to 100: what ``rapidfuzz.fuzz`` says, to the last bit.

One lesson is compared with forty, and importing rapidfuzz takes longer than to do that here. Whoever compares many gets
rapidfuzz after the first ``FEW_MAX``.
"""

from itertools import count
from typing import Protocol

FEW_MAX = 1_000
"""So many comparisons take 15 ms here, and importing rapidfuzz 20."""


class _Fuzz(Protocol):
    def ratio(self, one: str, other: str, /) -> float: ...
    def token_set_ratio(self, one: str, other: str, /) -> float: ...


_asked = count()
_rapidfuzz: _Fuzz | None = None


def ratio(one: str, other: str) -> float:
    """Return how much of two texts is in both, in the same order: twice that, of all their characters."""
    fuzz = _for_many()
    if fuzz is not None:
        return fuzz.ratio(one, other)
    length = len(one) + len(other)
    return (1.0 - _apart(one, other) / length) * 100 if length else 100.0


def token_set_ratio(one: str, other: str) -> float:
    """Return how alike two sets of words are: 100 where one holds the other."""
    fuzz = _for_many()
    if fuzz is not None:
        return fuzz.token_set_ratio(one, other)
    mine, theirs = set(one.split()), set(other.split())
    if not mine or not theirs:
        return 0.0
    both = len(" ".join(mine & theirs))
    if mine <= theirs or theirs <= mine:
        return 100.0
    only = [" ".join(sorted(rest)) for rest in (mine - theirs, theirs - mine)]
    blank = int(both > 0)
    whole = [both + blank + len(rest) for rest in only]
    found = _share(_apart(*only), sum(whole))
    return max(found, *(_share(blank + len(rest), 2 * both + blank + len(rest)) for rest in only)) if both else found


def _for_many() -> _Fuzz | None:
    global _rapidfuzz  # noqa: PLW0603 - imported at most once
    if _rapidfuzz is None and next(_asked) >= FEW_MAX:
        from rapidfuzz import fuzz

        _rapidfuzz = fuzz
    return _rapidfuzz


def _share(apart: int, length: int) -> float:
    return 100.0 - 100 * apart / length if length else 100.0


def _apart(one: str, other: str) -> int:
    """Return how many characters stand outside the longest subsequence that both texts have.

    Bit-parallel: each step takes one character of ``other`` against all of ``one`` (Hyyrö, "Bit-parallel LCS-length
    computation revisited", AWOCA 2004).
    """
    if one == other:
        return 0
    places: dict[str, int] = {}
    for at, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << at
    every = (1 << len(one)) - 1
    free = every
    for letter in other:
        met = free & places.get(letter, 0)
        free = ((free + met) | (free - met)) & every
    return free.bit_count() * 2 - len(one) + len(other)
