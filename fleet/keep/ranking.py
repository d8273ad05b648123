"""Which lessons share the most telling features, where thousands share one and few share several."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice


class Ranks:
    """How telling the features are that each lesson shares: the sum of their rarities, in the order they are given.

    Args:
        features: rarity of each feature, and the lessons that have it, each once.

    Attributes:
        total: how many lessons share any.
    """

    def __init__(self, features: Sequence[tuple[float, Sequence[int]]]) -> None:
        self._features = features
        seen: set[int] = set()
        several: set[int] = set()
        for _, lessons in features:
            several |= seen.intersection(lessons)
            seen.update(lessons)
        self.total = len(seen)
        self._several = dict.fromkeys(several, 0.0)
        for rarity, lessons in features:
            for lesson in several.intersection(lessons):
                self._several[lesson] += rarity

    def best(self, count: int) -> list[int]:
        """Return the lessons that rank first, and of equals the one that came first, at most so many.

        Those that share one feature rank as it does: nobody looks at them before their rank is due.
        """
        levels: defaultdict[float, list[int]] = defaultdict(list)
        for lesson, rank in self._several.items():
            levels[rank].append(lesson)
        found: list[int] = []
        for rank in sorted({*levels, *(rarity for rarity, _ in self._features)}, reverse=True):
            equals = list(levels.get(rank, ()))
            for rarity, lessons in self._features:
                if rarity == rank:
                    alone = (lesson for lesson in sorted(lessons) if lesson not in self._several)
                    equals += islice(alone, count)
            found += sorted(equals)[: count - len(found)]
            if len(found) >= count:
                break
        return found
