"""The fast path that host hooks call, ``fleet hook EVENT``: standard library only until there is work."""

from fleet.hook.entry import main

__all__ = ["main"]
