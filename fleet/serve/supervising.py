"""A task that dies is reported and started again; the pause before that grows while it keeps dying."""

import random
import time
from collections.abc import Awaitable, Callable

import anyio

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
WELL_S = 60.0
"""Who has run for so long was well: the next pause is a short one again."""

Task = Callable[[], Awaitable[None]]
Died = Callable[[str, BaseException, float], None]


def pause_s(deaths: int, rng: random.Random) -> float:
    """Return how long to wait after so many deaths in a row, seconds: doubling, half of it left to chance."""
    longest = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(deaths - 1, 16))
    return rng.uniform(longest / 2, longest)


async def keep_up(name: str, task: Task, died: Died, rng: random.Random) -> None:
    """Run a task until it returns by itself or we are cancelled.

    Args:
        name: what it is called in the log.
        task: started anew each time.
        died: told each time it died: the name, of what, and how long the pause is.
        rng: so that all who lost the same neighbour do not come back in step.
    """
    deaths = 0
    while True:
        began = time.monotonic()
        try:
            await task()
        except Exception as why:  # noqa: BLE001 - whatever it died of, the others live on
            deaths = 1 if time.monotonic() - began >= WELL_S else deaths + 1
            wait_s = pause_s(deaths, rng)
            died(name, why, wait_s)
            await anyio.sleep(wait_s)
        else:
            return
