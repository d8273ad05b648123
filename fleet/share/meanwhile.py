"""What this machine has to do anyway, done while it would only wait for the far side."""

from collections.abc import Callable


class Meanwhile:
    """Tasks that a remote may do while it waits, in the order in which they were added, each once.

    Nothing depends on when they are done but the time it takes: who needs them done calls ``finish``.
    """

    def __init__(self) -> None:
        self._tasks: list[Callable[[], object]] = []
        self._why: Exception | None = None

    def add(self, task: Callable[[], object]) -> None:
        """Add what is to be done by the next ``finish``."""
        self._tasks.append(task)

    def one(self) -> None:
        """Do the next task. What goes wrong with it is told by ``finish``: whoever waits is not to blame."""
        if self._why is None and self._tasks:
            try:
                self._tasks.pop(0)()
            except Exception as why:  # noqa: BLE001 - raised by whoever needs the task done
                self._why = why

    def spend(self) -> None:
        """Do all there is to do, likewise."""
        while self._why is None and self._tasks:
            self.one()

    def finish(self) -> None:
        """Do what is left; raise what went wrong with any of it."""
        if (why := self.trouble()) is not None:
            raise why

    def trouble(self) -> Exception | None:
        """Do what is left; return what went wrong with any of it, for who has trouble of another kind to tell."""
        self.spend()
        why, self._why = self._why, None
        return why
