"""The fetched tree: the clan's files as the remote last showed them.

It is an input of the fold beside the files of the workspace, and git stores it: ``.fleet/git`` has its objects, and a
ref names the commit that the workspace has taken in. This module guards against a hostile remote: an entry of a tree is
read only if it is a plain file at one of the clan's own paths, and not too large.

One of these files is ``members.toml``: the agents of a clan, a table each with a display name, an emoji, and later
their public keys.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from fleet.model import limits, names
from fleet.model.errors import DiskError, FleetError
from fleet.store.files import Files
from fleet.store.lines import KINDS, Kind
from fleet.text import screening

if TYPE_CHECKING:
    from fleet.store.git import Bare, Entry

FETCHED = "refs/fleet/fetched"
"""Ref of the commit whose tree is taken in."""
MEMBERS = "members.toml"
PAGE = "patterns.md"
DISCOVERIES_PAGE = "discoveries.md"
FRONT_PAGE = "README.md"
FRONT_MARK = (
    "<!-- Rendered by fleet from the lines of this branch. Without this comment the page is yours, and stays. -->"
)
"""First line of the front page that fleet writes. One without it is a person's, and is never replaced."""
ATTRIBUTES = ".gitattributes"
FORMAT = ".fleet-format"
"""File with the number of the lines' format, so that an older fleet knows that it must not write."""
FORMAT_NUMBER = 2
FORMAT_TEXT = b"%d\n" % FORMAT_NUMBER

BLOB_BYTES_MAX = 100 * 1024 * 1024
"""A larger file is neither read nor sent."""
TREE_BYTES_MAX = 512 * 1024 * 1024
"""Limit of all files of a tree together, so that many just below the limit of one do not fill the memory either."""

_NO_LINES = frozenset({PAGE, DISCOVERIES_PAGE, FRONT_PAGE, MEMBERS, ATTRIBUTES, FORMAT})
_NAMING = (b'"id":"', b'"id": "')
_PLAIN = "100644"
_LINKS = ("120000", "160000")
NOT_PLAIN = "no plain file: who committed it puts one there, or takes the x bit away (git update-index --chmod=-x)"
_LARGE = f"larger than the {limits.SHARD_BYTES_MAX // 2**20} MiB that are read of one replica"
_TOO_LARGE = f"larger than {BLOB_BYTES_MAX // 2**20} MiB, or behind {TREE_BYTES_MAX // 2**20} MiB of other files"
MISNAMED = "no name of a replica's file, `<agent>.<8 hex digits>.jsonl`: whoever writes it gives it one"
"""Reason why a file of lines among the shards is not read."""
_FOLDERS = tuple(f"{kind.name}.d/" for kind in KINDS)


class _Blob(NamedTuple):
    """Content of a file in the tree: its id, and its size in bytes."""

    oid: str
    size: int


Paths = dict[str, _Blob]
"""Path under clan-learnings to its content."""

_EMOJI_CHARS = range(1, 9)


class TreeGoneError(FleetError):
    """Error of a tree that is gone or unreadable: what the remote holds is unknown until the next fetch."""


class _SortedEntries(msgspec.Struct, frozen=True):
    """The entries of a tree: the files that are read, and the reason for each clan path or link that is not."""

    files: Paths
    unread: dict[str, str]


def sort_entries(listing: "Mapping[str, Entry]", known: Mapping[str, str]) -> _SortedEntries:
    """Return which entries of a tree are read, editions first.

    ``known``: id of each content that is ignored, with the reason (see ``too_much``).
    """
    entries = _SortedEntries({}, {})
    room = TREE_BYTES_MAX
    for path in sorted(listing, key=lambda path: ("/" in path, path)):
        entry = listing[path]
        if why := _why_unread(path, entry, known, room):
            entries.unread[path] = why
        elif is_clan_path(path):
            room -= entry.size
            entries.files[path] = _Blob(entry.oid, entry.size)
    shards = [path for path in entries.files if "/" in path]
    if len(shards) > limits.SHARDS_MAX:
        # A flood consists of many small shards: the largest ones are read, if they can hold a line at all.
        long = [path for path in shards if entries.files[path].size >= limits.SHARD_BYTES_MIN]
        long.sort(key=lambda path: (-entries.files[path].size, path))
        for path in {*shards} - {*long[: limits.SHARDS_MAX]}:
            del entries.files[path]
            entries.unread[path] = f"beyond the {limits.SHARDS_MAX:,} shards of a clan that are read"
    return entries


def _why_unread(path: str, entry: "Entry", known: Mapping[str, str], room: int) -> str:
    """Return why an entry is not read, by its path, mode and size; "" if it is. ``room``: bytes left for the tree."""
    is_ours = is_clan_path(path)
    if entry.mode in _LINKS or (is_ours and (entry.mode != _PLAIN or entry.size < 0)):
        return NOT_PLAIN
    if not is_ours:
        return MISNAMED if path.startswith(_FOLDERS) and path.endswith(".jsonl") else ""
    if entry.oid in known:
        return known[entry.oid]
    if "/" in path and entry.size > limits.SHARD_BYTES_MAX:
        return _LARGE
    return _TOO_LARGE if entry.size > min(BLOB_BYTES_MAX, room) else ""


def too_much(path: str, content: IO[bytes]) -> str:
    """Return why a file of the tree is ignored, going by its lines; "" where it is read."""
    if path in _NO_LINES:
        return ""
    is_edition, is_lessons = "/" not in path, path.startswith("patterns")
    most = limits.SHARD_LINES_MAX if is_lessons else limits.SHARD_DISCOVERIES_MAX
    most = limits.EDITION_LINES_MAX if is_edition else most
    unreadable, unreadable_max = 0, limits.SHARD_LINES_MAX if is_edition else limits.UNREADABLE_MAX
    for count, raw in enumerate(iter(partial(content.readline, limits.LINE_BYTES_MAX), b""), 1):
        unreadable += not (raw.startswith(b"{") and any(mark in raw for mark in _NAMING))
        if count > most:
            return f"more than the {most:,} lines that are read of {'an edition' if is_edition else 'one replica'}"
        if unreadable > unreadable_max:
            return f"more than {unreadable_max:,} lines that are none"
    return ""


def is_clan_path(path: str) -> bool:
    """Return whether a path is one that the clan's tree may hold. No other is ever read or written."""
    return path in _NO_LINES or Kind.of(path) is not None


class GitTree:
    """The trees that were fetched, in fleet's own bare repository ``folder``, and which of them is taken in.

    Methods that read a tree raise ``TreeGoneError`` if it is not in the repository.

    Attributes:
        listings: commit to the entries of its tree, shared with a remote that works in the same repository.
        is_current: returns whether the tree is of the remote that is configured now; if not, ``head`` is "".
    """

    places = (*sorted(_NO_LINES), *(place for kind in KINDS for place in (kind.edition, f"{kind.name}.d/")))

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listings: dict[str, dict[str, Entry]] = {}
        self.is_current: Callable[[], bool] = lambda: True

    @cached_property
    def _bare(self) -> "Bare":
        from fleet.store.git import Bare  # processes and temporary files: most commands need none

        return Bare(self.folder, listings=self.listings, places=self.places)

    def head(self) -> str:
        """Return the commit that is taken in; "" for none. Costs a read of one small file, and no process."""
        if not self.is_current():
            return ""
        with suppress(DiskError, ValueError):
            if commit := Files(self.folder).read(self.folder / FETCHED).decode("ascii").strip():
                return commit
        with suppress(OSError):  # a folder of another user's
            return self._bare.ref(FETCHED) if (self.folder / "packed-refs").exists() else ""
        return ""

    def paths(self, commit: str) -> Paths:
        """Return the clan's files in a commit's tree; none for ""."""
        return self._sorted(commit).files

    def _sorted(self, commit: str) -> _SortedEntries:
        with _gone():
            return sort_entries(self._bare.listing(commit), self._bare.ignored())

    def ignored(self) -> dict[str, str]:
        """Return the clan's paths that are not read, of the tree that is taken in, each with the reason."""
        with suppress(TreeGoneError):
            unread = self._sorted(self.head()).unread
            return {path: why for path, why in unread.items() if why == MISNAMED or is_clan_path(path)}
        return {}

    def has(self, path: str) -> bool:
        """Return whether anything is at a path of the tree that is taken in, readable or not."""
        with _gone():
            return path in self._bare.listing(self.head())

    def reading(self) -> AbstractContextManager[None]:
        """Use one git process for all reads while the block runs."""
        return self._bare.reading()

    @contextmanager
    def open(self, oid: str) -> Iterator[IO[bytes]]:
        """Open the content with an id as a stream, so that it need not be in memory as a whole."""
        with _gone(), self._bare.open(oid) as content:
            yield content

    def read(self, oid: str) -> bytes:
        """Return the content with an id."""
        with self.open(oid) as content:
            return content.read()

    def move(self, commit: str) -> None:
        """Record a commit as the one that is taken in, durably; "" for none."""
        self._bare.set_ref(FETCHED, commit)

    def descends(self, new: str, old: str) -> bool:
        """Return whether ``new`` is ``old`` or has it in its history; True if ``old`` is "", False if it is unknown."""
        if not old or new == old:
            return True
        with _gone():
            return bool(new) and self._bare.is_ancestor(old, new)

    def before(self, at_s: float) -> str:
        """Return the commit that was taken in as of a moment, seconds since 1970, by the branch's own history."""
        with _gone():
            return self._bare.before(self.head(), at_s) if self.head() else ""

    def pushers(self, folder: str, since: str = "") -> dict[str, set[str]] | None:
        """Return who committed to each file of a folder of the tree, by their addresses.

        ``since``: only later commits are read; None is returned if it is not in the tree's history.
        """
        if not (head := self.head()):
            return None if since else {}
        with _gone():
            return self._bare.pushers(head, folder, since)

    def forget_history(self) -> None:
        """Delete every object that only the history before the taken-in commit has."""
        if self.head():
            with _gone(), self._bare.locked():
                self._bare.forget_history()


@contextmanager
def _gone() -> Iterator[None]:
    from fleet.store.git import GitFailed

    try:
        yield
    except (GitFailed, FileNotFoundError) as why:
        reason = why if isinstance(why, GitFailed) else "git is not on the PATH"
        raise TreeGoneError(
            f"the fetched tree cannot be read ({reason}); nothing is lost: `fleet sync` reads it again"
        ) from why


# --- its members ----------------------------------------------------------------------------------------------------


class Members(dict[str, dict[str, str]]):
    """The agents of a clan, each with its table of ``members.toml``."""

    @classmethod
    def parse(cls, data: bytes) -> "Members":
        """Read ``members.toml``. Unusable tables and values are left out: they are others', and only decorate."""
        try:
            tables = Files.toml(data.decode())
        except ValueError:
            return cls()
        return cls(
            {
                agent: {key: screening.one_line(value)[:200] for key, value in table.items() if isinstance(value, str)}
                for agent, table in sorted(tables.items())
                if names.is_agent(agent) and isinstance(table, dict)
            }
        )

    def render(self) -> bytes:
        """Return the bytes of ``members.toml``, agents and keys sorted."""
        tables = []
        for agent, table in sorted(self.items()):
            keys = [key for key in sorted(table) if key.isascii() and key.replace("_", "").replace("-", "").isalnum()]
            lines = [f"{key} = {msgspec.json.encode(table[key]).decode()}" for key in keys]
            tables.append("\n".join([f"[{agent}]", *lines]) + "\n")
        return "\n".join(tables).encode()

    @property
    def emoji(self) -> Mapping[str, str]:
        """Agent to emoji, of those that have a short one."""
        marks = {agent: screening.strip_controls(table.get("emoji", "")) for agent, table in self.items()}
        return {agent: mark for agent, mark in marks.items() if mark.isprintable() and len(mark) in _EMOJI_CHARS}
