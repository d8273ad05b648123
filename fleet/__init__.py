"""fleet: every correction one agent gets becomes knowledge for all of them."""

__version__ = "0.2.0"

RELEASED_MS = 1_793_491_200_000
"""2026-11-01T00:00:00Z. A clock behind the release of this version is wrong, whatever else it says."""

YES = frozenset({"1", "true", "yes", "on"})
"""Values, in lower case, of a variable of the environment that turn on what it names."""
