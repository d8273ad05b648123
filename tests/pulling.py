"""What a fetch brings, as files: how a test asks a remote what changed."""

import re
from abc import ABC, abstractmethod
from contextlib import suppress

from fleet.share.git import GitRemote
from fleet.share.remote import Files, Mark
from fleet.store.git import Bare
from fleet.store.tree import NOT_PLAIN, GitTree, Paths, TreeGoneError, sort_entries


class Whole(Files):
    """Files that are the whole tree, since the mark was empty or is not known: what is not in it is gone."""


class Pulling(ABC):
    """A transport of which a test reads what came with a fetch: a base beside its class, which has its ``Bare``."""

    _copy: Bare

    @abstractmethod
    def fetch(self, since: Mark) -> Mark:
        """Fetch, as the class beside this one does."""

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        """Fetch; return what changed since a mark, b"" for what is gone, and the mark of the state it leads to."""
        head = self.fetch(since)
        tree = GitTree(self._copy.folder)
        old = _paths(tree, since)
        if head == since:
            return (Files() if since else Whole()), since
        entries = sort_entries(tree._bare.listing(head), tree._bare.ignored())
        new = entries.files
        # What is there and is not read is not gone.
        there = {*new, *(path for path, why in entries.unread.items() if why != NOT_PLAIN)}
        files = {path: b"" for path in old or () if path not in there}
        files |= {path: tree.read(oid) for path, (oid, _) in new.items() if (old or {}).get(path, ("",))[0] != oid}
        return (Whole(files) if old is None else files), head


class PullingRemote(GitRemote, Pulling):
    """A git branch of which a test reads what came with a fetch."""


def _paths(tree: GitTree, mark: Mark) -> Paths | None:
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", mark):
        with suppress(TreeGoneError):
            return tree.paths(mark)
    return None
