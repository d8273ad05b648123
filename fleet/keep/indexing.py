"""From files to the search index: what did not change costs a stat, what was appended its tail.

Of each file the index remembers size, time and inode, and the digest of what was read; of each line of the clan's logs
where it stands, its hash, and the id that it speaks of. So a changed file tells which ids to look at again, and those
are joined from their lines alone, wherever they stand. Which ids those are is written down before the first of them is
looked at: a run that is killed goes on where it was.
"""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO, TypeVar

import msgspec

from fleet.keep import bulk, names, notebook, often, places, tail
from fleet.keep import line as codec
from fleet.keep.asking import asked
from fleet.keep.damage import UNUSABLE, told
from fleet.keep.discoveries import Discovery, Findings
from fleet.keep.errors import FleetError
from fleet.keep.index import DISCOVERY, PARAMETERS_MAX, PATTERN, Doc, Index, boost, clean
from fleet.keep.line import Line
from fleet.keep.normal import normalise
from fleet.keep.notebook import Notebook
from fleet.keep.places import Joined, Place, Reader
from fleet.keep.reading import PATTERNS
from fleet.keep.sources import Known, Page, Section, Sources, files_of, known_files, seen_files
from fleet.keep.store import without_cyclic_collection
from fleet.keep.workspace import Workspace

T = TypeVar("T")

PASSES_MAX = 5
SETTLED_NS = 2_000_000_000  # some file systems tell times in steps of two seconds
AGENTS_SHOWN_MAX = 8
_PART = " · "
Told = Callable[[int, int], object]
"""Is told how many of how many ids were looked at."""


class _Key(msgspec.Struct, gc=False):
    """What a line speaks of: a retraction of what it retracts."""

    id: str = ""
    retracts: str = ""


_key_decoder = msgspec.json.Decoder(_Key)


def answer(workspace: Workspace, pages: Iterable[Page], ask: Callable[[Index], T]) -> T:
    """Bring the index up to date and ask it; where it cannot be used, tables in memory are asked instead.

    Args:
        workspace: where. It gets a warning when the index could not be used.
        pages: what is searched beside the clan's files.
        ask: asked once; once more where the first time showed that the index was damaged.
    """
    sources = Sources(workspace.root, workspace.store, workspace.timekeeper.reading().cut, tuple(pages))
    try:
        return asked(workspace, sources, ask)
    except UNUSABLE as why:
        workspace.state.close()
        said = str(why).rstrip(".") if isinstance(why, FleetError) else told(why)
        workspace.warn(f"the search index cannot be used ({said}); the files themselves were searched, which is slower")
    index = Index(sqlite3.connect(":memory:", isolation_level=None), has_words=False)
    try:
        refresh(index, sources)
        return ask(index)
    finally:
        index.connection.close()


# --- which files changed --------------------------------------------------------------------------------------------


def refresh(index: Index, sources: Sources, told: Told | None = None) -> set[str]:
    """Bring the index up to date; return the ids whose joined record is another now.

    The caller sees to it that nobody else does so at the same time.
    """
    index.prepare()
    changed: set[str] = set()
    with without_cyclic_collection():
        for _ in range(PASSES_MAX):  # what was replaced while we read is looked at again
            before = seen_files(sources)
            _refresh_files(index, sources)
            _refresh_refs(index, sources, changed, told)
            if seen_files(sources) == before:
                break
        if index.has_words and often.is_due(index.connection):
            with index.transaction():
                often.recount(index.connection)
    return changed


def _refresh_files(index: Index, sources: Sources) -> None:
    known, files = known_files(index, sources), files_of(sources)
    for path, file in files.items():
        before = known.get(path)
        try:
            handle = file.path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            files = {name: kept for name, kept in files.items() if name != path}
            continue
        with handle:
            seen = os.fstat(handle.fileno())
            if before is not None and before.look == (seen.st_size, seen.st_mtime_ns, seen.st_ino):
                continue
            # A file that was written just now may be written again within the same tick of its clock.
            is_settled = abs(time.time_ns() - seen.st_mtime_ns) > SETTLED_NS
            stamp = (seen.st_size, seen.st_mtime_ns if is_settled else 0, seen.st_ino)
            if file.page is not None:
                _read_page(index, path, before, file.page, handle, stamp)
            else:
                _read_log(index, path, before, handle, stamp)
    for path in known.keys() - files.keys():
        with index.transaction():
            index.replace_page(path, ())
            _forget_lines(index, known[path].id)
            index.connection.execute("DELETE FROM search_file WHERE id = ?", (known[path].id,))


def _note_file(
    index: Index,
    path: str,
    stamp: tuple[int, int, int],
    read: tuple[int, int, bytes],
    *,
    is_log: bool = False,
    is_odd: bool = False,
) -> int:
    """Remember a file as it was read; return its number."""
    found = index.connection.execute(
        "INSERT INTO search_file (path, size, mtime_ns, inode, read, torn, digest, is_log, is_odd) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET (size, mtime_ns, inode, read, torn, "
        "digest, is_odd) = (excluded.size, excluded.mtime_ns, excluded.inode, excluded.read, excluded.torn, "
        "excluded.digest, excluded.is_odd) RETURNING id",
        (path, *stamp, *read, is_log, is_odd),
    ).fetchall()
    return int(found[0][0])


# --- pages ----------------------------------------------------------------------------------------------------------


def _read_page(
    index: Index, path: str, before: Known | None, page: Page, handle: BinaryIO, stamp: tuple[int, int, int]
) -> None:
    data = handle.read()
    digest = tail.hasher(data).digest()
    is_new = before is None or before.digest != digest
    docs = [_doc_of_section(path, page, section) for section in page.sections(data)] if is_new else []
    with index.transaction():
        if is_new:
            index.replace_page(path, docs)
        _note_file(index, path, stamp, (len(data), len(data), digest))


def _doc_of_section(path: str, page: Page, section: Section) -> Doc:
    return Doc(page.kind, "", path, section.line, clean(section.title), clean(section.text), page.who, section.at)


# --- logs -----------------------------------------------------------------------------------------------------------


def _read_log(index: Index, path: str, known: Known | None, handle: BinaryIO, stamp: tuple[int, int, int]) -> None:
    """Note where each line of a log stands, and of which ids the difference to what was known speaks."""
    lines = tail.Lines(handle, stamp[0])
    if known is not None:
        lines.resume(known.read, known.torn, known.digest)
    start = lines.torn
    # A last line without an end is read again, and may be whole by now; so is what made a file odd before it.
    was_odd = known is not None and known.is_odd and start > 0
    before: dict[int, str] = {}
    if known is not None:
        asked = "SELECT hash, key FROM search_line WHERE file = ? AND at >= ?"
        before = dict(index.connection.execute(asked, (known.id, start)))
    every = [row for block in lines.blocks() for row in _keyed(block, before)]
    rows = [row for row in every if row[3]]
    is_odd = was_odd or lines.has_oversize or len(rows) < len(every)
    now = {row[2]: row[3] for row in rows}
    stale = {key for mark, key in before.items() if mark not in now}
    stale.update(key for mark, key in now.items() if mark not in before)
    with index.transaction():
        read = (lines.read, lines.torn, lines.hasher.digest())
        number = _note_file(index, path, stamp, read, is_log=True, is_odd=is_odd)
        index.connection.execute("DELETE FROM search_line WHERE file = ? AND at >= ?", (number, start))
        index.connection.executemany("INSERT INTO search_line VALUES (?, ?, ?, ?, ?)", ((number, *row) for row in rows))
        index.connection.executemany("INSERT OR IGNORE INTO search_stale VALUES (?)", ((key,) for key in sorted(stale)))


def _keyed(block: list[tuple[int, bytes]], known: dict[int, str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield (where, length, hash, key) of each line; one that speaks of nothing has no key. New ones are decoded."""
    marks = [tail.mark(raw) for _, raw in block]
    new = [raw for mark, (_, raw) in zip(marks, block, strict=True) if mark not in known]
    keys = iter(_keys_of(new))
    for mark, (at, raw) in zip(marks, block, strict=True):
        yield at, len(raw), mark, known[mark] if mark in known else next(keys)


def _keys_of(raws: list[bytes]) -> list[str]:
    """Return what each line speaks of, "" for one that cannot be read."""
    try:
        found = _key_decoder.decode_lines(b"\n".join(raws))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        found = []
    if len(found) != len(raws):  # one bad line fails them all
        found = [_key_of(raw) for raw in raws]
    keys = [key.retracts or key.id for key in found]
    return [key if names.is_id(key) else "" for key in keys]


def _key_of(raw: bytes) -> _Key:
    try:
        return _key_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _Key()


def _forget_lines(index: Index, number: int) -> None:
    forgotten = "FROM search_line WHERE file = ?"
    index.connection.execute(f"INSERT OR IGNORE INTO search_stale SELECT key {forgotten}", (number,))
    index.connection.execute(f"DELETE {forgotten}", (number,))


# --- what lines say -------------------------------------------------------------------------------------------------


def _refresh_refs(index: Index, sources: Sources, changed: set[str], told: Told | None) -> None:
    """Join again what changed lines speak of, some hundred ids at a time: others write to this database, too."""
    with index.transaction():
        due = "INSERT OR IGNORE INTO search_stale SELECT key FROM search_due WHERE stamp <= ?"
        index.connection.execute(due, (sources.cut,))
    total = int(index.connection.execute("SELECT count(*) FROM search_stale").fetchone()[0])
    last, done = "", 0
    with Reader(sources) as reader:
        while True:
            asked = "SELECT key FROM search_stale WHERE key > ? ORDER BY key LIMIT ?"
            keys = [str(row[0]) for row in index.connection.execute(asked, (last, PARAMETERS_MAX))]
            if not keys:
                return
            last = keys[-1]
            changed.update(_refresh_some(index, sources.cut, keys, reader))
            done += len(keys)
            if told is not None:
                told(done, total)


def _refresh_some(index: Index, cut: str, keys: list[str], reader: Reader) -> list[str]:
    docs, newest, where = _at_once(places.places(index, keys), cut, reader)
    at_once = {doc.ref for doc in docs}
    joined = {key: Joined(Notebook(cut), Findings(cut)) for key in keys if key not in at_once}
    missed = set()
    for place in where:
        if not reader.join(place, joined[place.key]):
            missed.add(place.key)  # replaced while we read: the next pass knows where it stands now
    done = [key for key in keys if key not in missed]
    docs += [doc for key in joined if key not in missed and (doc := _doc_of(joined[key], key)) is not None]
    due = [(key, stamp) for key in joined if key not in missed and (stamp := joined[key].due())]
    odd = [(key,) for key in joined if key not in missed and joined[key].is_odd]
    for key in joined.keys() - missed:
        for replica, stamp in joined[key].notebook.newest_by.items():
            newest[replica] = max(stamp, newest.get(replica, ""))
    some = f"({','.join('?' * len(done))})"
    with index.transaction():
        changed = index.replace_refs(docs, done)
        for table in ("search_due", "search_odd"):
            index.connection.execute(f"DELETE FROM {table} WHERE key IN {some}", done)  # noqa: S608
        index.connection.executemany("INSERT INTO search_due VALUES (?, ?)", due)
        index.connection.executemany("INSERT INTO search_odd VALUES (?)", odd)
        index.connection.executemany(
            "INSERT INTO search_newest VALUES (?, ?) ON CONFLICT (replica) DO UPDATE "
            "SET stamp = max(stamp, excluded.stamp)",
            newest.items(),
        )
        index.connection.execute(f"DELETE FROM search_stale WHERE key IN {some}", done)  # noqa: S608
    return changed


def _at_once(where: list[Place], cut: str, reader: Reader) -> tuple[list[Doc], dict[str, str], list[Place]]:
    """Look at the patterns of which one line speaks, all of them at once, if nothing about any needs a closer look.

    Returns what is known of them, the newest stamp of each replica in them, and the places that are left.
    """
    lines = Counter(place.key for place in where)
    alone = [place for place in where if lines[place.key] == 1 and reader.kind_of(place) is PATTERNS]
    raws = [raw for place in alone if (raw := reader.still(place)) is not None]
    found = bulk.sound(b"\n".join(raws), raws, {}) if raws and len(raws) == len(alone) else None
    if found is None or max(found.newest_by.values(), default="") > cut:
        return [], {}, where
    # The one line is the joined record, and canonical: its hash is the one that the record would have.
    docs = [_doc_of_pattern(line, place.hash) for line, place in zip(found.lines, alone, strict=True)]
    return (
        docs,
        found.newest_by,
        [place for place in where if lines[place.key] > 1 or reader.kind_of(place) is not PATTERNS],
    )


def _doc_of(joined: Joined, key: str) -> Doc | None:
    """Return what is known under an id."""
    if line := joined.notebook.get(key):
        return _doc_of_pattern(line, tail.mark(codec.encode(line)))
    told = joined.findings.entries.get(key)
    if told is None or told.retracts:
        return None
    return _doc_of_discovery(told, is_shown=bool(joined.findings.newest(1)))


def _doc_of_pattern(line: Line, mark: int) -> Doc:
    text, state = notebook.text(line), line.set.get("state")
    said = [clean(notebook.as_text(line.set.get("correct"))), _clean_again(notebook.as_text(line.set.get("category")))]
    said.append(clean(title) if (title := notebook.as_text(line.set.get("title"))) else "")
    tags = line.set.get("tags")
    said += [_clean_again(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    seen, is_published = notebook.count(line, "seen"), state == "published"
    return Doc(
        kind=PATTERN,
        ref=line.id,
        path="",
        line=0,
        head=clean(text),
        body=_PART.join(filter(None, said)),
        who=_who(line),
        at=notebook.last_seen(line),
        seen=seen,
        gone=int(not notebook.is_present(line)) if text else 2,
        boost=boost(seen, is_published=is_published),
        published=int(is_published),
        withdrawn=int(state == "retired"),
        witnesses=notebook.witnesses(line),
        sessions=notebook.count(line, "sessions"),
        points_to=notebook.merged_into(line) if notebook.MERGED_INTO in line.set else "",
        alike=places.mark_of(normalise(text)) if "text" in line.when else "",
        is_timed=int("trigger" in line.set),
        mark=mark,
    )


_clean_again = lru_cache(maxsize=1 << 12)(clean)
"""The same for categories and tags, which come again and again; of lessons, none does."""


def _who(line: Line) -> str:
    slots = frozenset(line.add).union(line.n.get("seen", ()))
    if any(slot.startswith(names.IMPORT) for slot in slots):  # who logged it first stands in a field
        return _shown_agents(notebook.agents(line))
    return _shown_writers(slots)


@lru_cache(maxsize=1 << 12)
def _shown_writers(slots: frozenset[str]) -> str:
    return _shown_agents(sorted({names.agent_of(replica) for replica in slots}))


def _shown_agents(agents: list[str]) -> str:
    shown = ["an import" if agent == names.IMPORT else agent for agent in agents[:AGENTS_SHOWN_MAX]]
    more = len(agents) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _doc_of_discovery(entry: Discovery, *, is_shown: bool) -> Doc:
    said = [entry.solution, entry.context, entry.type, *entry.tags] if entry.problem else [entry.context, *entry.tags]
    return Doc(
        kind=DISCOVERY,
        ref=entry.id,
        path="",
        line=0,
        head=clean(entry.problem or entry.solution),
        body=_PART.join(filter(None, map(clean, said))),
        who=_shown_agents([agent] if (agent := names.agent_of(entry.by)) else []),
        at=entry.at,
        gone=0 if is_shown else 2,
    )
