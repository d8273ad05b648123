"""The C library's heap, for a process that runs for months: what one large moment took is given back.

The GNU C library keeps freed memory, and gives each thread an arena of its own, of which it gives back even less. Other
C libraries need no word, and have no such functions.
"""

from collections.abc import Callable
from contextlib import suppress

_ARENA_MAX = -8
"""``M_ARENA_MAX`` in malloc.h."""


def share_one() -> None:
    """Let all threads that begin from here on share one arena."""
    _call(lambda libc: libc.mallopt(_ARENA_MAX, 1))


def give_back() -> None:
    """Give freed memory back to the system."""
    _call(lambda libc: libc.malloc_trim(0))


def _call(act: Callable[..., object]) -> None:
    from ctypes import CDLL

    with suppress(OSError, AttributeError):
        act(CDLL(None))
