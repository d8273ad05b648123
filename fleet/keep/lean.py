"""msgspec without ``typing_extensions``, which it prefers to ``typing`` where both are installed.

On the Pythons that fleet runs on, ``typing`` has all that msgspec looks for there, and msgspec takes it where the other
is not to be had. Importing the other takes as long as half of Python's own start, and brings ``inspect`` along.
"""

import sys

_SPARED = "typing_extensions"


def import_msgspec() -> None:
    """Import msgspec, unless somebody did; whoever wants ``typing_extensions`` afterwards gets it."""
    if "msgspec" in sys.modules or _SPARED in sys.modules:
        return
    sys.modules[_SPARED] = None  # type: ignore[assignment]  # to the import system: there is none
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[_SPARED]
