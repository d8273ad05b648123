"""Values that pass between the exchange and a clan's remote, which keeps commits of files and knows no patterns.

A transport is one class with the methods ``fetch`` and ``push`` of ``GitRemote``, and one suite,
``tests/contract/test_remote.py``, runs over all of them. Delivery at least once and in any order is enough, since the
join of lines is idempotent and commutative.
"""

import msgspec

from fleet.model.errors import FleetError
from fleet.store import tree

Files = dict[str, bytes]
"""Changed files: path under clan-learnings to content; ``b""``: the path is removed."""

Mark = str
"""A commit of the workspace's tree store. ``""``: nothing was fetched, or the branch does not exist."""


class Moved(msgspec.Struct, frozen=True):
    """Result of a push that somebody else's preceded. No error: fetch, join, push again."""

    reason: str


class RemoteUnavailable(FleetError):  # noqa: N818 - a state of the world more often than an error
    """The far side gave no answer (``is_offline``: nothing did, as without a network); a push may have arrived."""

    exit_code = 5
    is_offline = False


class RemoteRefused(FleetError):  # noqa: N818 - the far side's own word
    """The far side refused: a hook, a permission. Its screened words are in the message."""

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
