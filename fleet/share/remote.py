"""Values that pass between the exchange and a clan's remote, which stores commits of files and does not parse them.

A transport is one class with the methods ``fetch`` and ``push`` of ``GitRemote``, and one suite,
``tests/contract/test_remote.py``, runs over all of them. Delivery at least once and in any order is enough, since the
join of lines is idempotent and commutative.
"""

import msgspec

from fleet.model.errors import FleetError
from fleet.store import tree

Files = dict[str, bytes]
"""Changed files: path under clan-learnings to content; ``b""`` removes the path."""

Mark = str
"""Commit in the tree store, for one state of the remote the same on each machine; "" for none, or no branch."""


class Moved(msgspec.Struct, frozen=True):
    """Result of a push that came after somebody else's. It is no error: the caller fetches, joins and pushes again."""

    reason: str


class RemoteUnavailable(FleetError):  # noqa: N818 - a state of the world more often than an error
    """The remote did not answer (``is_offline``: it was not reached at all); a push may have arrived nevertheless."""

    exit_code = 5
    is_offline = False


class RemoteRefused(FleetError):  # noqa: N818 - the far side's own word
    """The remote refused, by a hook or for a missing permission. Its screened words are in the message."""

    exit_code = 3


def check_outgoing(files: Files) -> None:
    """Refuse files that no other machine would read.

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
