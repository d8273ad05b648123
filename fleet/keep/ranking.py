"""Which lessons share the most telling features, where thousands share one and few share several."""

from collections import Counter
from collections.abc import Sequence


class Ranks:
    """How telling the features are that each lesson shares: the sum of their rarities, in the order they are given.

    Args:
        features: rarity of each feature, and the lessons that have it, each once.

    Attributes:
        total: how many lessons share any.
    """

    def __init__(self, features: Sequence[tuple[float, Sequence[int]]]) -> None:
        ranks: dict[int, float] = {}
        known = ranks.get
        for rarity, lessons in features:
            for lesson in lessons:
                ranks[lesson] = known(lesson, 0.0) + rarity
        self._ranks = ranks
        self.total = len(ranks)

    def best(self, count: int) -> list[int]:
        """Return the lessons that rank first, and of equals the one that came first, at most so many.

        There are few ranks, each of many lessons: counted first, they tell which lessons need not be sorted.
        """
        left, least = count, -1.0
        for rank, equals in sorted(Counter(self._ranks.values()).items(), reverse=True):
            if equals >= left:
                least = rank
                break
            left -= equals
        above = sorted([(-rank, lesson) for lesson, rank in self._ranks.items() if rank > least])
        equal = sorted([lesson for lesson, rank in self._ranks.items() if rank == least])
        return [lesson for _, lesson in above] + equal[:left]
