"""Checks of a workspace's own files: what is wrong, what follows from it, and what a person can do.

Nothing here deletes what anybody wrote. The databases are folds of line files and are made anew; a left-over temporary
file was never acknowledged; all other advice is to look.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from fleet.model import limits
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError
from fleet.model.line import Carried
from fleet.store import replica
from fleet.store.database import TROUBLE, is_damage
from fleet.store.files import age_s
from fleet.store.ingest import clan_sources
from fleet.store.lines import Entry, Read, entries
from fleet.store.tree import TreeGoneError
from fleet.store.workspace import Workspace

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")

WIDE_BYTES = 256 * 1024
"""A lesson whose joined record is longer was worded anew by very many: it costs time with every sync."""

_TEMPORARY = re.compile(r"\..+\.(?P<pid>[0-9]+)\.tmp", re.DOTALL)
_TEMPORARY_AGE_S = 3600  # a process of another container has a pid that looks dead from here
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


def databases(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    """Yield what is wrong with the database files. Comes first: any question to a damaged one makes it anew."""
    path = workspace.db.database.path
    if path is None or not path.exists():
        yield Finding("state", "ok", "no database yet; it is made when it is needed")
    elif trouble := _examined(path):
        if fix:
            _make_anew(workspace)
        yield Finding(
            "state",
            "error",
            f"{path.name} is damaged: {trouble}",
            "no lesson is in it alone: it is made anew from the line files",
            "`fleet doctor --fix` does so, and so does the next command that needs it",
            fix,
        )
    else:
        yield Finding("state", "ok", f"{path.name} is whole")
    if trouble := _examined(workspace.state.path) if workspace.state.path.exists() else "":
        yield Finding(
            "local",
            "error",
            f"local.db is damaged: {trouble}",
            "what was agreed to here, a pause and what was shown to whom cannot be read; no lesson is in it",
            "rename .fleet/local.db, or put back the one of a `fleet backup`; fleet asks again for what was agreed to",
        )


def checks(workspace: Workspace, *, fix: bool) -> Iterator[Iterator[Finding]]:
    """Yield each other check of the files here, as yet undone. With ``fix`` they mend what is safe to mend."""
    files = list(_files(workspace))
    look = cache(lambda: _look_at_lines(workspace))  # one look serves several checks
    yield _access(workspace, files)
    yield _configuration(workspace)
    yield _homes(workspace)
    yield _clock(workspace)
    yield _lines(look, workspace)
    yield _quarantine(workspace)
    yield _temporary(workspace, files, fix=fix)
    yield _locks(workspace)
    yield _tree(workspace)
    yield _rows(workspace, fix=fix)
    yield _identity(workspace)
    yield _edition(look)


def _files(workspace: Workspace) -> Iterator[Path]:
    """Yield the files and links of the workspace but for fleet's own repository: git looks after that."""
    for top in (workspace.clan, workspace.root / workspace.place, workspace.local):
        for folder, folders, names in os.walk(top):
            if Path(folder) == workspace.local:
                folders[:] = [name for name in folders if name != "git"]
            yield from (Path(folder) / name for name in sorted(names))
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
    tops = (workspace.clan, workspace.root / workspace.place, workspace.local)
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


def _configuration(workspace: Workspace) -> Iterator[Finding]:
    for problem in workspace.config.problems:
        means = "what stands there is not followed; lessons are logged and kept all the same"
        yield Finding("config", "warning", problem, means, "mend that line of fleet.toml")


def _homes(workspace: Workspace) -> Iterator[Finding]:
    for agent, _, files in workspace.left_behind():
        yield Finding(
            "homes",
            "warning",
            f"{_named(workspace, files)}: left where the agents' homes were before {workspace.place}/",
            f"{agent} does not read {'them' if len(files) > 1 else 'it'}",
            f"any command brings them; else put them into {workspace.own_path(agent)}/ by hand",
        )


def _clock(workspace: Workspace) -> Iterator[Finding]:
    if wrong := workspace.clock.wrong():
        yield Finding(
            "clock",
            "error",
            wrong,
            "lessons are logged and sent, stamped with the time of this version's release",
            "set the clock of this machine, best by NTP",
        )
    elif workspace.clock.is_ahead():
        yield Finding(
            "clock",
            "warning",
            "stamps that were issued here lie more than a day ahead of the clock",
            "the clock ran ahead once; with the next write, replicas are minted anew and say those edits again",
            "nothing, if the clock is right now; else set it, best by NTP",
        )
    else:
        yield Finding("clock", "ok", f"{workspace.wall()[:16].replace('T', ' ')}Z agrees with all that was read")


class _Lines(NamedTuple):
    """Result of one look at every line.

    Attributes:
        read: what cannot be read.
        torn: files without a line end at their end.
        untidy: editions that are not in their canonical form.
        wide: lessons whose record is very long, and its bytes.
    """

    read: Read
    torn: list[Path]
    untidy: list[str]
    wide: dict[str, int]


def _look_at_lines(workspace: Workspace) -> _Lines:
    found = _Lines(Read(), [], [], {})
    for source in clan_sources(workspace.clan):
        try:
            is_edition = source.path == source.kind.edition
            before = found.read.count, found.read.markers
            some = entries(source.kind, _chunks_of(source.file), source.path, found.read)
            is_canonical = _is_canonical(some, source.kind.encode, found.wide if is_edition else {})
            is_canonical = is_canonical and before == (found.read.count, found.read.markers)
            if is_edition and not (is_canonical and not any(b"\r" in chunk for chunk in _chunks_of(source.file))):
                found.untidy.append(source.path)
            if _is_torn(source.file):
                found.torn.append(source.file)
        except OSError:
            continue  # told under "rights"
    return found


def _chunks_of(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes in blocks; nothing for a file that is not there."""
    try:
        with path.open("rb") as file:
            while chunk := file.read(limits.BLOCK_BYTES):
                yield chunk
    except (FileNotFoundError, NotADirectoryError):
        return


def _is_canonical(some: Iterator[tuple[bytes, Entry]], encode: Callable[[Entry], bytes], wide: dict[str, int]) -> bool:
    """Read all entries; tell whether they are sorted, and each as any edition would have written it."""
    is_canonical, last, before, size = True, ("", ""), "", 0
    for raw, entry in some:
        size, before = len(raw) + (size if entry.id == before else 0), entry.id
        if size > WIDE_BYTES:
            wide[entry.id] = size
        # What a newer version wrote may stand anywhere: its order is that version's.
        if is_canonical and not isinstance(entry, Carried):
            key = (entry.at, entry.id) if isinstance(entry, Discovery) else ("", entry.id)
            is_canonical, last = key >= last and encode(entry) == raw, key
    return is_canonical


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"


def _lines(look: Callable[[], _Lines], workspace: Workspace) -> Iterator[Finding]:
    found = look()
    if found.read.count:
        first = found.read.refused[0]
        yield Finding(
            "lines",
            "warning",
            f"{found.read.count:,} lines cannot be read; first {first.path}, line {first.number}: {first.reason}",
            "they are kept and do no harm to the lines beside them, but they do not count",
            "`fleet status` lists them; a line that a person wrote can be mended in its file",
        )
    else:
        yield Finding("lines", "ok", "every line can be read")
    if found.read.markers:
        yield Finding(
            "markers",
            "warning",
            f"{found.read.markers} conflict-marker lines",
            "both sides are read and the markers passed over",
            "take the marker lines out of the file with an editor; leave the lines between them",
        )
    if found.torn:
        yield Finding(
            "torn",
            "note",
            f"no line end at the end of {_named(workspace, found.torn)}",
            "a write was cut off, or an editor leaves it out; the next line is set apart from it",
            "nothing",
        )
    for each, size in sorted(found.wide.items())[:_SHOWN_MAX]:
        yield Finding(
            "wide",
            "note",
            f"the record of {each} takes {size:,} bytes: very many have worded it anew",
            "each machine that takes the edition in reads all of it",
            "`fleet edit` words a lesson once for all; the old wordings stay in the record",
        )


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
    if fix:
        with workspace.locked():
            for path in stale:
                if _is_stale(path):
                    workspace.files.remove(path)
    yield Finding(
        "temporary",
        "note",
        f"left over by a process that died: {_named(workspace, stale)}",
        "it never became a file, so it was never acknowledged",
        "`fleet doctor --fix` clears it away",
        fix,
    )


def _is_stale(path: Path) -> bool:
    found = _TEMPORARY.fullmatch(path.name)
    if found is None or path.is_symlink() or age_s(path) < _TEMPORARY_AGE_S:
        return False
    try:
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


def _examined(path: Path) -> str:
    """Return what SQLite finds wrong with a database file, "" for nothing. Changes nothing."""
    try:
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=_BUSY_S)) as connection:
            said = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except TROUBLE as why:
        # Busy or unreadable is not damaged: "rights" and "locks" tell of those.
        return (str(why) or type(why).__name__) if is_damage(why) else ""
    return "" if said == "ok" else said.splitlines()[0]


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _make_anew(workspace: Workspace) -> None:
    with workspace.locked():
        workspace.db.database.delete()


def _tree(workspace: Workspace) -> Iterator[Finding]:
    """Read every file of the fetched tree: git checks each object's hash."""
    commit = workspace.tree.head()
    if not commit:
        yield Finding("tree", "ok", "nothing is fetched yet; the next sync fetches the whole tree")
        return
    try:
        paths = workspace.tree.paths(commit)
        for _ in workspace.tree.contents(oid for oid, _ in paths.values()):
            pass
    except TreeGoneError as why:
        yield Finding(
            "tree",
            "warning",
            f"what was fetched of the remote cannot be read: {why}",
            "what the remote holds is unknown until the next fetch; no lesson is lost",
            "`fleet sync` fetches it anew",
        )
        return
    yield Finding("tree", "ok", f"{len(paths):,} files as fetched")


def _rows(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    """Make the database anew in a second file, and compare."""
    path = workspace.db.database.path
    if path is None or not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return  # told under "rights"
    try:
        wrong = workspace.db.differences()
    except TROUBLE as why:
        if not is_damage(why):
            raise
        wrong = [str(why) or type(why).__name__]
    if not wrong:
        yield Finding("rows", "ok", "every row is what its lines say")
        return
    if fix:
        _make_anew(workspace)
    shown = ", ".join(wrong[:_SHOWN_MAX]) + (f" and {len(wrong) - _SHOWN_MAX} more" if len(wrong) > _SHOWN_MAX else "")
    yield Finding(
        "rows",
        "error",
        f"rows of {path.name} are not what their lines say: {shown}",
        "these lessons read wrongly here; their lines are whole",
        "`fleet doctor --fix` makes the database anew",
        fix,
    )


def _identity(workspace: Workspace) -> Iterator[Finding]:
    try:
        register = workspace.replicas()
    except FleetError as why:
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
