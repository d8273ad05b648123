"""Which lessons share the most telling features, where thousands share one and few share several."""

from collections.abc import Sequence


class Ranks:
    """How telling the features are that each lesson shares: the sum of their rarities, in the order they are given.

    Args:
        features: rarity of each feature, above 0, and the lessons that have it, each once.

    Attributes:
        total: how many lessons share any.
    """

    def __init__(self, features: Sequence[tuple[float, Sequence[int]]]) -> None:
        self._features = features
        self._ranks: dict[int, float] = {}
        ranks = self._ranks
        for rarity, lessons in features:
            if not ranks:
                ranks.update(dict.fromkeys(lessons, rarity))
                continue
            for lesson in lessons:
                ranks[lesson] = ranks.get(lesson, 0.0) + rarity
        self.total = len(ranks)

    def best(self, count: int) -> list[int]:
        """Return the lessons that rank first, and of equals the one that came first, at most so many.

        Where enough lessons have a feature, those that rank below it need not be looked at, and few rank above.
        """
        least = max((rarity for rarity, lessons in self._features if len(lessons) >= count), default=0.0)
        above = sorted([(-rank, lesson) for lesson, rank in self._ranks.items() if rank > least])
        found = [lesson for _, lesson in above[:count]]
        if len(found) < count:
            found += sorted([lesson for lesson, rank in self._ranks.items() if rank == least])[: count - len(found)]
        return found
