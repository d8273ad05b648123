"""What can be wrong with the files of a workspace: found, explained, and mended where mending can lose nothing.

Nothing here deletes what anybody wrote: a damaged database is put aside, a left-over temporary file was never
acknowledged, and all other advice is to look.
"""

import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from fleet.keep import bulk, discoveries, limits, replica, view
from fleet.keep.damage import TROUBLE, told
from fleet.keep.errors import DiskError, FleetError
from fleet.keep.reading import KINDS, PATTERNS, Kind, Read, chunks_of
from fleet.keep.state import SCHEMA_VERSION
from fleet.keep.store import without_cyclic_collection
from fleet.keep.workspace import Workspace

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")

TEMPORARY = re.compile(r"\..+\.(?P<pid>[0-9]+)\.tmp", re.DOTALL)
TEMPORARY_AGE_S = 3600  # a process of another container has a pid that looks dead from here
_FILES_MAX = 200_000
_SHOWN_MAX = 5
_BUSY_S = 2.0


@dataclass(slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at, one word.
        level: ok, note (nothing to do, or nothing harmed), warning (something stays undone), error (something fails).
        what: what was found.
        means: what follows from it.
        do: what a person can do about it; never a step that could lose something.
        fixed: it was mended just now.
    """

    check: str
    level: Level
    what: str
    means: str = ""
    do: str = ""
    fixed: bool = False


def worst(findings: list[Finding]) -> Level:
    """Return the worst level of what is still as it was found."""
    return max((f.level for f in findings if not f.fixed), key=LEVELS.index, default="ok")


def checks(workspace: Workspace, *, fix: bool) -> Iterator[Iterator[Finding]]:
    """Yield each check of the files on this machine, as yet undone. With ``fix``, they mend what is safe to mend."""
    files = list(_files(workspace))
    look = cache(lambda: _look_at_lines(workspace))  # one look serves two checks
    yield _access(workspace, files)
    yield _clock(workspace)
    yield _lines(look, workspace)
    yield _quarantine(workspace)
    yield _temporary(workspace, files, fix=fix)
    yield _locks(workspace)
    yield _database(workspace, fix=fix)
    yield _identity(workspace)
    yield _edition(look)


def _database(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    found = list(_state(workspace, fix=fix))
    yield from found
    if all(each.level == "ok" for each in found):  # else asking might put it aside
        yield from _index(workspace)


def _files(workspace: Workspace) -> Iterator[Path]:
    """Yield the files and links of the workspace, the copy of the remote left out: git looks after that."""
    for top in (workspace.clan, workspace.root / "agents", workspace.local):
        for folder, folders, names_ in os.walk(top):
            if Path(folder) == workspace.local:
                folders[:] = [name for name in folders if name != "git"]
            yield from (Path(folder) / name for name in sorted(names_))
            yield from (Path(folder) / name for name in folders if (Path(folder) / name).is_symlink())


def _named(workspace: Workspace, paths: list[Path]) -> str:
    shown = [os.path.relpath(path, workspace.root) for path in paths[:_SHOWN_MAX]]
    return ", ".join(shown) + (f" and {len(paths) - _SHOWN_MAX} more" if len(paths) > _SHOWN_MAX else "")


def _access(workspace: Workspace, files: list[Path]) -> Iterator[Finding]:
    files = [workspace.config_file, *files[:_FILES_MAX]]
    links = [path for path in files if path.is_symlink()]
    plain = [path for path in files if not path.is_symlink()]
    folders = {path.parent for path in plain} | {workspace.root}
    unread = [path for path in plain if not os.access(path, os.R_OK)]
    tops = (workspace.clan, workspace.root / "agents", workspace.local)
    unread += [top for top in tops if top.is_dir() and not os.access(top, os.R_OK | os.X_OK)]
    unwritten = [path for path in (*plain, *sorted(folders)) if not os.access(path, os.W_OK)]
    if links:
        yield Finding(
            "links",
            "warning",
            f"symbolic links: {_named(workspace, links)}",
            "fleet writes to plain files only, and reads no shard through a link",
            "put the file itself there, if fleet is meant to use it",
        )
    if unread:
        yield Finding(
            "rights",
            "error",
            f"cannot be read: {_named(workspace, unread)}",
            "what stands in them does not count here",
            "give yourself the right to read them, for instance with `chmod u+r`",
        )
    if unwritten:
        yield Finding(
            "rights",
            "error",
            f"cannot be written: {_named(workspace, unwritten)}",
            "reading works; logging and syncing fail, and say so",
            "give yourself the right to write, or mount the file system for writing",
        )
    if not unread and not unwritten:
        yield Finding("rights", "ok", f"{len(plain):,} files can be read and written")


def _clock(workspace: Workspace) -> Iterator[Finding]:
    reading = workspace.timekeeper.reading()
    if reading.wrong:
        yield Finding(
            "clock",
            "error",
            reading.wrong,
            "lessons are logged and sent; no edition is written and nothing is dropped: what only an edition can carry "
            "waits here",
            "set the clock of this machine, best by NTP, and run `fleet sync`",
        )
    elif reading.is_ahead:
        yield Finding(
            "clock",
            "warning",
            "stamps that were issued here lie more than a day ahead of the clock",
            "the clock ran ahead once; with the next write, replicas are minted anew and say those lines again",
            "nothing, if the clock is right now",
        )
    else:
        yield Finding("clock", "ok", f"{workspace.wall()[:16].replace('T', ' ')}Z agrees with all that was read")


class _Lines(NamedTuple):
    """What one look at every line found.

    Attributes:
        read: what cannot be read.
        torn: files without a line end at their end.
        untidy: editions that are not in their canonical form.
    """

    read: Read
    torn: list[Path]
    untidy: list[str]


def _look_at_lines(workspace: Workspace) -> _Lines:
    found = _Lines(Read(), [], [])
    with without_cyclic_collection():
        for kind in KINDS:
            for path in workspace.store.paths(kind):
                try:
                    is_canonical = _read_through(workspace, kind, path, found.read)
                    if _is_torn(workspace.clan / path):
                        found.torn.append(workspace.clan / path)
                except OSError:
                    continue  # told under "rights"
                if path == kind.edition and not is_canonical:
                    found.untidy.append(path)
    return found


def _read_through(workspace: Workspace, kind: Kind, path: str, read: Read) -> bool:
    """Read a file; tell whether it is sorted, a canonical line each: what any compaction would have written."""
    file, before = workspace.clan / path, (read.count, read.markers)
    is_canonical, last = True, ("", "")
    some = bulk.entries(chunks_of(file), path, read) if kind is PATTERNS else workspace.store.entries(kind, path, read)
    for raw, entry in some:
        if kind is not PATTERNS and isinstance(entry, discoveries.Discovery):
            key = (entry.at, entry.id)
        else:
            key = ("" if kind is PATTERNS else "~", entry.id)
        if is_canonical and path == kind.edition:
            is_canonical = key >= last and _is_written_so(kind, raw, entry)
        last = key
    if path != kind.edition or not is_canonical or before != (read.count, read.markers):
        return False
    return not any(b"\r" in chunk for chunk in chunks_of(file))


def _lines(look: Callable[[], _Lines], workspace: Workspace) -> Iterator[Finding]:
    read, torn, _ = look()
    if read.count:
        first = read.refused[0]
        yield Finding(
            "lines",
            "warning",
            f"{read.count:,} lines cannot be read; first {first.path}, line {first.number}: {first.reason}",
            "they are kept and do no harm to the lines beside them, but they do not count",
            "`fleet status` lists them; a line that a person wrote can be mended in its file",
        )
    else:
        yield Finding("lines", "ok", "every line can be read")
    if read.markers:
        yield Finding(
            "markers",
            "warning",
            f"{read.markers} conflict-marker lines",
            "both sides are read and the markers passed over",
            "take the marker lines out of the file with an editor; leave the lines between them",
        )
    if torn:
        yield Finding(
            "torn",
            "note",
            f"no line end at the end of {_named(workspace, torn)}",
            "a write was cut off, or an editor leaves it out; the next line is set apart from it",
            "nothing",
        )


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"


def _quarantine(workspace: Workspace) -> Iterator[Finding]:
    path = workspace.local / "quarantine" / "refused.jsonl"
    size = path.stat().st_size if path.exists() else 0
    if size > limits.QUARANTINE_BYTES_MAX * 0.8:
        yield Finding(
            "quarantine",
            "warning",
            f"{size:,} of {limits.QUARANTINE_BYTES_MAX:,} bytes are used",
            "when it is full, further bad lines are counted but not kept aside; they stay where they were read",
            f"move {os.path.relpath(path, workspace.root)} to a place where you can look through it",
        )
    else:
        yield Finding("quarantine", "ok", f"{size:,} bytes")


def _temporary(workspace: Workspace, files: list[Path], *, fix: bool) -> Iterator[Finding]:
    stale = [path for path in files if _is_stale(path)]
    if not stale:
        return
    fixed = False
    if fix:
        with workspace.locked():
            for path in stale:
                if _is_stale(path):
                    workspace.disk.remove(path)
        fixed = True
    yield Finding(
        "temporary",
        "note",
        f"left over by a process that died: {_named(workspace, stale)}",
        "it never became a file, so it was never acknowledged",
        "`fleet doctor --fix` clears it away",
        fixed,
    )


def _is_stale(path: Path) -> bool:
    found = TEMPORARY.fullmatch(path.name)
    if found is None or path.is_symlink():
        return False
    try:
        if time.time() - path.stat().st_mtime < TEMPORARY_AGE_S:
            return False
        os.kill(int(found["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return path.is_file()
    except OSError:
        return False
    return False


def _locks(workspace: Workspace) -> Iterator[Finding]:
    held = [path for path in sorted((workspace.local / "locks").glob("*")) if _is_held(path)]
    if held:
        yield Finding(
            "locks",
            "note",
            f"held right now: {_named(workspace, held)}",
            "another fleet process is at work; a lock ends with its process, so none is ever stale",
            "nothing; a lock file may lie there unlocked, and does no harm",
        )
    else:
        yield Finding("locks", "ok", "none is held")


def _is_held(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _state(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    path = workspace.local / "state.db"
    if not path.exists():
        yield Finding("state", "ok", "no state.db yet; it is made when it is needed")
        return
    version, trouble = _examine(path)
    if trouble:
        aside = ""
        if fix:
            workspace.state.close()
            with workspace.locked():
                aside = _put_aside(path)
        yield Finding(
            "state",
            "error",
            f"state.db is damaged: {trouble}" + (f"; it lies in {aside} now" if aside else ""),
            "no lesson is in it alone: the next sync fetches everything anew",
            "`fleet doctor --fix` puts it aside, and a new one is made",
            bool(aside),
        )
    elif version > SCHEMA_VERSION:
        yield Finding(
            "state",
            "error",
            f"state.db was made by a newer fleet (schema {version}; this one knows {SCHEMA_VERSION})",
            "this version leaves it alone, and cannot sync",
            "upgrade fleet on this machine",
        )
    else:
        yield Finding("state", "ok", f"state.db is whole (schema {version})")


def _index(workspace: Workspace) -> Iterator[Finding]:
    if view.is_far_behind(workspace):
        yield Finding(
            "index",
            "note",
            "the search index is not made yet, or far behind the files",
            "every command reads all of the clan's files meanwhile, which takes up to a second",
            "nothing: the next `fleet sync` or `fleet search` makes it",
        )


def _examine(path: Path) -> tuple[int, str]:
    """Return the schema's version, and what SQLite finds wrong. Changes nothing."""
    try:
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=_BUSY_S)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            said = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.OperationalError as why:
        # Busy or unreadable is not damaged: "rights" and "locks" tell of those.
        return 0, str(why) if "malformed" in str(why) else ""
    except TROUBLE as why:
        return 0, told(why)
    return version, "" if said == "ok" else said.splitlines()[0]


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _put_aside(path: Path) -> str:
    """Rename the database, its journal with it: what a hand could still read out of it stays."""
    aside = path.with_name(f"state.damaged-{time.time_ns() // 1_000_000}.db")
    for end in ("", "-wal", "-shm"):
        part = path.with_name(path.name + end)
        if part.exists():
            part.rename(aside.with_name(aside.name + end))
    return aside.name


def _identity(workspace: Workspace) -> Iterator[Finding]:
    try:
        register = workspace.replicas()
    except (FleetError, DiskError) as why:
        yield Finding(
            "identity",
            "error",
            str(why),
            "nothing is written until it is clear who writes",
            "as it says: rename the file, keep it, and run `fleet init`",
        )
        return
    folder = replica.folder_fingerprint(workspace.root)
    agents = sorted({r.agent for r in register.replicas if not r.is_lease})
    strange = [agent for agent in agents if register.current(agent, workspace.world.machine(), folder) is None]
    if strange:
        yield Finding(
            "identity",
            "note",
            f"the replica ids of {', '.join(strange)} belong to another folder or machine",
            "this is a copy, or was moved: each gets a new id with its next write; nothing is lost or counted twice",
            "nothing",
        )
    elif not agents:
        yield Finding("identity", "note", "nobody writes here yet", "reading works", "`fleet init --agent NAME`")
    else:
        yield Finding("identity", "ok", f"{', '.join(agents)} writes here; default agent {register.default_agent}")


def _edition(look: Callable[[], _Lines]) -> Iterator[Finding]:
    if untidy := look().untidy:
        yield Finding(
            "edition",
            "note",
            f"{', '.join(untidy)} is not in its canonical form",
            "somebody wrote into it by hand, or merged it with plain git; it is read all the same",
            "nothing: the next edition puts it in order",
        )
    else:
        yield Finding("edition", "ok", "editions are in their canonical form")


def _is_written_so(kind: Kind, raw: bytes, entry: object) -> bool:
    return hasattr(entry, "raw") or kind.encode(entry) == raw
