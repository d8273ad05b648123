"""What the search index is made of, and what it remembers of it: what did not change costs a stat."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from fleet.keep.index import Index
from fleet.keep.reading import KINDS, Kind
from fleet.keep.store import Store

Look = tuple[int, int, int]
"""Size, time of the content and inode of a file."""
LINE_BYTES = 700  # about, of a line


class Section(msgspec.Struct, frozen=True):
    """A piece of a page: the line of its heading, the heading, what stands under it, and when, if it says so."""

    line: int
    title: str
    text: str
    at: str


class Page(msgspec.Struct, frozen=True):
    """A file of an agent's own that people read: who it belongs to, and how it is taken apart."""

    path: Path
    kind: str
    who: str
    sections: Callable[[bytes], Iterable[Section]]


class Sources(msgspec.Struct, frozen=True):
    """Everything that is searched: the clan's files up to a cut, and pages, all below one root.

    Without ``pages`` (None), what is known of pages is left as it is.
    """

    root: Path
    store: Store
    cut: str
    pages: tuple[Page, ...] | None


class Known(msgspec.Struct, frozen=True):
    """What is remembered of a file. ``torn``: where its last line, which has no end yet, begins; else ``read``."""

    id: int
    size: int
    mtime_ns: int
    inode: int
    read: int
    torn: int
    digest: bytes
    is_log: bool
    is_odd: bool

    @property
    def look(self) -> Look:
        """What the file looked like."""
        return self.size, self.mtime_ns, self.inode


class File(msgspec.Struct, frozen=True):
    """A file as it is seen now: a log's ``kind``, or a page."""

    path: Path
    kind: Kind | None
    page: Page | None


def is_current(index: Index, sources: Sources) -> bool:
    """Tell whether nothing has changed since the last refresh."""
    return seen_files(sources) == {
        path: known.look for path, known in known_files(index, sources).items()
    } and not is_due(index, sources.cut)


def behind(index: Index, sources: Sources) -> int:
    """Return how many bytes of files are not in the index yet, about."""
    known = known_files(index, sources) if index.generation() else {}
    total = 0
    for path, (size, mtime_ns, inode) in seen_files(sources).items():
        before = known.get(path)
        if before is None or before.inode != inode:
            total += size
        elif (before.size, before.mtime_ns) != (size, mtime_ns):
            total += max(size - before.read, 0)
    if known:
        stale = index.connection.execute("SELECT count(*) FROM search_stale").fetchone()[0]
        total += int(stale) * LINE_BYTES
    return total


def is_plain(index: Index) -> bool:
    """Tell whether every line of the logs is one that this version reads and believes whole.

    Only then do the joined records say all there is to say: nothing is refused, held back or carried.
    """
    asked = (
        "SELECT EXISTS (SELECT 1 FROM search_odd) OR EXISTS (SELECT 1 FROM search_due) "
        "OR EXISTS (SELECT 1 FROM search_file WHERE is_odd)"
    )
    return not index.connection.execute(asked).fetchone()[0]


def is_due(index: Index, cut: str) -> bool:
    """Tell whether ids wait to be looked at again, or more of what was held may be believed by now."""
    asked = "SELECT EXISTS (SELECT 1 FROM search_stale) OR EXISTS (SELECT 1 FROM search_due WHERE stamp <= ?)"
    return bool(index.connection.execute(asked, (cut,)).fetchone()[0])


def files_of(sources: Sources) -> dict[str, File]:
    """Return path below the root to file, logs first. Links are left alone: they may lead anywhere."""
    found: dict[str, File] = {}
    clan = sources.store.clan
    below = clan.relative_to(sources.root).as_posix()
    for kind in KINDS:
        for name in sources.store.paths(kind):
            found[f"{below}/{name}"] = File(clan / name, kind, None)
    for page in sources.pages or ():
        if page.path.is_file() and not page.path.is_symlink():
            found[page.path.relative_to(sources.root).as_posix()] = File(page.path, None, page)
    return found


def seen_files(sources: Sources) -> dict[str, Look]:
    """Return what each file looks like now, by its path below the root."""
    found = {}
    for path, file in files_of(sources).items():
        try:
            seen = file.path.stat()
        except OSError:
            continue
        found[path] = (seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return found


def known_files(index: Index, sources: Sources) -> dict[str, Known]:
    """Return what is remembered of each file, by its path below the root."""
    asked = "SELECT path, id, size, mtime_ns, inode, read, torn, digest, is_log, is_odd FROM search_file"
    rows = index.connection.execute(asked if sources.pages is not None else f"{asked} WHERE is_log")
    return {row[0]: Known(*row[1:]) for row in rows}
