"""fleet: every correction one agent gets becomes knowledge for all of them."""

__version__ = "0.2.0"

RELEASED_MS = 1_793_491_200_000
"""2026-11-01T00:00:00Z. A clock behind the release of this version is wrong, whatever else it says."""


def is_yes(value: str) -> bool:
    """Return whether the value of a variable of the environment turns on what that names: ``1``, ``true``, ``yes``."""
    return value.strip().lower() in ("1", "true", "yes", "on")
