"""Virtual time for real asyncio code: loops that never wait, and a conductor that sets the time and runs them.

Each machine has a loop of its own, so that one may sleep while the others go on.
"""

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

STEPS_MAX = 400_000
"""In a history that takes more steps, some task does something again and again without a pause."""


class _Instant(selectors.SelectSelector):
    """A selector that polls and never waits."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock is handed in."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__(_Instant())
        self._now_s = now_s

    def time(self) -> float:
        return self._now_s() + 1e-6  # converting between clocks loses the last digits, and nothing may be too early

    def due_s(self) -> float:
        """Return when it next has something to do."""
        now_s = self._now_s()
        if self._ready:  # type: ignore[attr-defined]
            return now_s
        return max(self._scheduled[0].when(), now_s) if self._scheduled else float("inf")  # type: ignore[attr-defined]

    def step(self) -> None:
        """Do what is due now."""
        self.call_soon(self.stop)
        self.run_forever()

    def kill(self) -> None:
        """Cancel all tasks and close the loop."""
        for _ in range(200):
            if not (left := asyncio.all_tasks(self)):
                break
            for task in left:
                task.cancel()
            self.step()
        for task in asyncio.all_tasks(self):
            raise AssertionError(f"a task cannot be ended: {task}")
        self.close()


class Inline(Executor):
    """An executor that does everything at once, in the caller's thread."""

    def submit(self, act: Callable[..., Any], /, *given: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(act(*given, **named))
        except BaseException as why:
            future.set_exception(why)
        return future


class Conductor:
    """Runs loops and events in the order of their time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.loops: dict[str, tuple[Loop, Callable[[], float]]] = {}
        """By name: a loop that is awake, and a function that says how many seconds its clock is behind ours."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._steps = 0

    def at(self, when_s: float, act: Callable[[], None]) -> None:
        """Call something at a time, or now if that has passed."""
        heapq.heappush(self._events, (max(when_s, self.now_s), next(self._numbers), act))

    def after(self, wait_s: float, act: Callable[[], None]) -> None:
        self.at(self.now_s + wait_s, act)

    def run_until(self, end_s: float) -> None:
        """Run all that is due, in order, until a time."""
        while True:
            due = [(loop.due_s() + behind(), name) for name, (loop, behind) in self.loops.items()]
            event_s = self._events[0][0] if self._events else float("inf")
            when_s, name = min(due, default=(float("inf"), ""))
            if min(when_s, event_s) > end_s:
                break
            self._steps += 1
            assert self._steps < STEPS_MAX, f"busy without end, at {self.now_s} s"
            self.now_s = max(self.now_s, min(when_s, event_s))
            if event_s <= when_s:
                heapq.heappop(self._events)[2]()
            else:
                self.loops[name][0].step()
        self.now_s = end_s
