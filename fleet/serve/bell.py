"""A bell: whoever waits for news wakes up, however often it was rung meanwhile."""

import anyio


class Bell:
    """Rung by many, waited for by one. What was rung while nobody waited is heard at the next wait, once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Ring."""
        self._event.set()

    def is_set(self) -> bool:
        """Tell whether it was rung and nobody has heard it yet."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return once it was rung since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()
