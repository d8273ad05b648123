"""The far side of a clan, as the exchange sees it: it keeps commits of files, and brings them into our tree store.

It knows nothing of patterns. Each transport is one class with two calls, and one suite,
``tests/contract/test_remote.py``, runs over all of them.

At least once and in any order is enough, since what travels are lines whose join does not mind.
"""

from typing import Protocol

import msgspec

from fleet.model.errors import FleetError
from fleet.store import tree

Files = dict[str, bytes]
"""Path under clan-learnings -> its bytes; ``b""`` means that the path is gone. Only what changed."""

Mark = str
"""A commit of the workspace's tree store. ``""``: never fetched, or nothing is there."""


class Moved(msgspec.Struct, frozen=True):
    """Somebody was faster. No error: fetch, join, try again."""

    reason: str


class RemoteUnavailable(FleetError):  # noqa: N818 - a state of the world more often than an error
    """The far side could not be asked, or its answer did not arrive. A push may have got there all the same."""

    exit_code = 5


class RemoteRefused(FleetError):  # noqa: N818 - the far side's own word
    """The far side answered, and said no: a hook, a permission. Its screened words are in the message."""

    exit_code = 3


class Remote(Protocol):
    """The keeper of the clan's files for everybody."""

    name: str
    """For people; without credentials."""
    warnings: list[str]
    """Warnings for a person, for the caller to take out and say."""
    skipped: int
    """Number of files that were there and were not read: then nobody may say that all is in sync."""

    def fetch(self, since: Mark) -> Mark:
        """Bring the far side's head into the tree store and return it; warn where it does not follow from ``since``.

        Raises:
            RemoteUnavailable: nothing was read.
        """
        ...

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Lay files over the state ``on``; ``b""`` removes a path. Done whole or not at all.

        Args:
            files: what changes. None: nothing happens, and ``on`` is returned.
            on: what the far side must be at, else ``Moved``. ``""``: nothing is there yet.
            message: one line for people, where the far side keeps such.

        Raises:
            RemoteUnavailable: it may or may not have arrived; pushing it again is harmless.
            RemoteRefused: it was not taken.
            ValueError: a path is not one of the clan's.
        """
        ...


def check_outgoing(files: Files) -> None:
    """Refuse what no other machine would read.

    Raises:
        ValueError: a path is not one of the clan's; our own fault.
        RemoteRefused: a file is too large.
    """
    for path, data in files.items():
        if not tree.is_clan_path(path):
            raise ValueError(f"{path!r} has no place in the clan's tree")
        if len(data) > tree.BLOB_BYTES_MAX:
            raise RemoteRefused(
                f"{path} has {len(data) // 2**20} MiB, more than the {tree.BLOB_BYTES_MAX // 2**20} MiB "
                "that others read; nothing was sent, and nothing is lost. `fleet compact` makes it smaller"
            )
