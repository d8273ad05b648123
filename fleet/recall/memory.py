"""``memory.md``: the HOT tier, which an agent reads at the start of every session."""

from fleet.keep.hot_text import CLOSE, OPEN, hot

__all__ = ["CLOSE", "OPEN", "hot"]
