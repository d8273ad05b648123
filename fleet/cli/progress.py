"""Progress for long work: on stderr, on a terminal only. Without one, nothing is drawn and nothing imported."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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

    with Console(stderr=True).status(what):
        yield


def _is_drawn() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
