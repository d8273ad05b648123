"""Progress for long work: on stderr, on a terminal only. Without one, nothing is drawn and nothing imported."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.keep.workspace import Workspace

_DRAWN_MIN = 5_000  # fewer are done before a bar could be seen
_spinners: list[Any] = []
"""What turns now: a terminal draws one thing at a time, so it stops for a bar."""


@contextmanager
def each(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Draw a bar while the block works through ``total`` things; call the step with the name of each."""
    if total < 2 or not _is_drawn():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        def step(name: str) -> None:
            progress.update(task, advance=1, description=f"{what} {name[:40]}")

        yield step


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Draw a spinner while the block waits for somebody."""
    if not _is_drawn():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as spinner:
        _spinners.append(spinner)
        try:
            yield
        finally:
            _spinners.pop()


@contextmanager
def patient(workspace: "Workspace") -> Iterator[None]:
    """Let what the block reads wait until the search index is up to date, and draw a bar when that takes long.

    An interrupt loses nothing: the index is missing then, as it was, and the next one makes it.
    """
    before = workspace.waits, workspace.told
    with _bar("Indexing the clan's lessons") as told:
        workspace.waits, workspace.told = True, told
        try:
            yield
        finally:
            workspace.waits, workspace.told = before


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], object] | None]:
    """Draw a bar from when its step is told how much of how much is done until all is."""
    if not _is_drawn():
        yield None
        return
    drawn: list[Any] = []

    def step(done: int, total: int) -> None:
        if not drawn and done < total and total >= _DRAWN_MIN:
            from rich.console import Console
            from rich.progress import Progress

            for spinner in _spinners:
                spinner.stop()
            drawn.append(Progress(console=Console(stderr=True), transient=True))
            drawn[0].start()
            drawn[0].add_task(what)
        if drawn:
            drawn[0].update(drawn[0].task_ids[0], completed=done, total=total)
            if done >= total:
                end()

    def end() -> None:
        if drawn:
            drawn.pop().stop()
            for spinner in _spinners:
                spinner.start()

    try:
        yield step
    finally:
        end()


def _is_drawn() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
