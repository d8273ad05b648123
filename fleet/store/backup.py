"""Backup of a workspace: the files that can neither be fetched nor computed again, as one ``.tar.gz``.

The same files give the same bytes. A backup is untrusted input: its headers are parsed one by one, and a member is
accepted only as a plain file at one of the paths that a backup has, in ustar form without extensions, so that links,
devices, long names and sparse maps are never interpreted. Limits on size apply while reading.

The local database is in it as text, ``.fleet/local.jsonl``, one line for each row. A consent names its machine.
"""

import gzip
import io
import json
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from fleet.model import limits, names
from fleet.model.errors import DiskError, NoError, RefusedError
from fleet.store import homes
from fleet.store.database import Local
from fleet.store.files import Files, is_plain
from fleet.store.tree import is_clan_path
from fleet.store.workspace import Workspace

MEMBER_BYTES_MAX = 100 * 1024 * 1024
TOTAL_BYTES_MAX = 2 * 1024 * 1024 * 1024
MEMBERS_MAX = 100_000
PARTS_MAX = 16

REPLICAS = ".fleet/replica.toml"
LOCAL = ".fleet/local.jsonl"
CLAN = "clan-learnings"
HOMES = homes.DEFAULT
"""First part of the paths of the homes in a backup, wherever they are in a workspace."""

SENT = ".fleet/sent"
"""File in the backups of fleet 0.1, with the lines that were sent."""

_SINGLE = frozenset({homes.CONFIG, REPLICAS, LOCAL, SENT})
_BLOCK = tarfile.BLOCKSIZE
_UNSAFE = r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]"
_TEMPORARY = re.compile(r"\..+\.tmp", re.DOTALL)

_TABLES: dict[str, tuple[str, ...]] = {
    "value": ("key", "value"),
    "consent": ("kind", "value", "at"),
    "trust": ("kind", "name", "id", "value", "at"),
    "exposure": ("agent", "pattern", "session", "first_ms", "last_ms", "number", "replica", "total", "said"),
}
"""Tables of the local database that a backup has, each with its columns."""
_VALUES = frozenset({"paused", "left", "last_sync"})
"""Keys of the table ``value`` that a backup has; the others concern the fetched tree, which is no part of it."""


class BackedUp(NamedTuple):
    """Result of a backup; ``left``: paths of links, special or too large files, and of names that do not fit."""

    files: int
    size: int
    left: list[str]


class Member(NamedTuple):
    """One entry of an archive: its path and bytes, or the reason why it is refused."""

    path: str
    data: bytes
    refused: str = ""

    def local_rows(self) -> Iterator[list[str | int]]:
        """Yield the rows of the local database in it, without lines that are no row."""
        for raw in self.data.split(b"\n"):
            with suppress(ValueError, RecursionError):
                row = json.loads(raw)
                if isinstance(row, list) and row and all(map(_is_storable, row)):
                    yield row


def backup(workspace: Workspace, target: Path, *, overwrite: bool = False) -> BackedUp:
    """Write a backup, atomically; raise ``NoError`` where there is such a file and ``overwrite`` is False."""
    target = Path(os.path.expanduser(target)).absolute()  # noqa: PTH111 - `~nosuchuser` raises in pathlib
    if target.exists() and not target.is_file():
        raise NoError(f"{target} is no plain file: no backup was made. Name another one")
    if target.exists() and not overwrite:
        raise NoError(f"{target} is there already, and stays. Name another file, or pass --yes to replace it")
    try:
        with tempfile.TemporaryFile(dir=target.parent) as file:
            # Under the lock, so that log and shards are of one moment.
            with workspace.locked():
                files, left = _collect(workspace)
                rows = _local_rows(workspace.state)
                _write(file, files, {LOCAL: rows} if rows else {})
            file.seek(0)
            blocks = iter(partial(file.read, limits.BLOCK_BYTES), b"")
            Files(target.parent).write(target, blocks, mode=0o600)
    except (OSError, DiskError) as why:
        reason = getattr(why, "strerror", "") or why
        raise DiskError(f"{target} was not written ({reason}); no backup was made") from why
    return BackedUp(len(files) + bool(rows), target.stat().st_size, left)


# --- content --------------------------------------------------------------------------------------------------------


def _is_place(path: str) -> bool:
    """Return whether a backup may have a file at this path. No path is ever built from an invalid one."""
    if path in _SINGLE:
        return True
    if re.search(_UNSAFE, path) or len(path.encode()) > 255:
        return False
    if any(path.count("/") == note.count("/") and PurePosixPath(path).match(note) for note in homes.NOTES):
        return True
    top, *rest = path.split("/")
    if top == CLAN:
        return is_clan_path("/".join(rest))
    if top != HOMES or not 2 <= len(rest) <= PARTS_MAX or not names.is_agent(rest[0]):
        return False
    # A repository among an agent's files could bring hooks along.
    return all(part not in ("", ".", "..") and part.casefold().rstrip(". ") != ".git" for part in rest)


def _collect(workspace: Workspace) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a workspace by their path in a backup, and the paths that are left out.

    No link is followed.
    """
    root = workspace.root
    files = {path: root / path for path in _SINGLE - {LOCAL, SENT} if is_plain(root / path)}
    left: list[str] = []
    for note in sorted(file for name in homes.NOTES for file in root.glob(name)):
        _add(files, left, note, note.relative_to(root).as_posix(), root)
    for top, start in ((CLAN, workspace.clan), (HOMES, root / workspace.place)):
        if start.is_symlink():
            left.append(os.path.relpath(start, root))
            continue
        for folder, folders, file_names in os.walk(start):
            links = [Path(folder) / name for name in folders if (Path(folder) / name).is_symlink()]
            left += [os.path.relpath(link, root) for link in links]
            for file in (Path(folder) / name for name in file_names if not _TEMPORARY.fullmatch(name)):
                _add(files, left, file, f"{top}/{os.path.relpath(file, start)}", root)
    return files, sorted(left)


def _add(files: dict[str, Path], left: list[str], file: Path, path: str, root: Path) -> None:
    """Add a file to ``files`` if a backup may have it, else its path to ``left``."""
    is_behind_link = any(parent.is_symlink() for parent in file.parents if root in parent.parents)
    is_fit = _is_place(path) and is_plain(file) and _fits(path) and not is_behind_link
    if is_fit and file.stat().st_size <= MEMBER_BYTES_MAX:
        files[path] = file
    else:
        left.append(os.path.relpath(file, root))


def _fits(path: str) -> bool:
    try:
        _header(path, 0).tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except (ValueError, UnicodeEncodeError):
        return False
    return True


def _header(path: str, size: int) -> tarfile.TarInfo:
    """Return a header without anything of this machine: no owner, no time, a constant mode."""
    info = tarfile.TarInfo(path)
    info.size, info.mode = size, 0o600
    return info


def _write(target: IO[bytes], files: Mapping[str, Path], more: Mapping[str, bytes]) -> None:
    """Write files, and the bytes in ``more`` by path, in path order: the same content gives the same bytes."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT, encoding="utf-8") as archive,
    ):
        for path in sorted({*files, *more}):
            data = more[path] if path in more else files[path].read_bytes()
            archive.addfile(_header(path, len(data)), io.BytesIO(data))


# --- the local database ---------------------------------------------------------------------------------------------


def _local_rows(state: Local) -> bytes:
    """Return the rows of a local database for a backup, as JSON lines, sorted; b"" for none."""
    if not state.path.exists():
        return b""
    lines: list[str] = []
    for table, columns in _TABLES.items():
        query = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - our own names
        rows = state.connection().execute(query)
        lines += [f"{json.dumps([table, *row])}\n" for row in rows if table != "value" or row[0] in _VALUES]
    return "".join(sorted(lines)).encode()


def join_local(state: Local, rows: Iterable[Sequence[str | int]]) -> None:
    """Insert rows, each after the name of its table, into a local database unless they are there already.

    Rows of other tables than those of a backup are left out.
    """
    with state.transaction() as connection:
        for table, *values in rows:
            names_ = _TABLES.get(str(table), ())
            if len(values) != len(names_) or (table == "value" and values[0] not in _VALUES):
                continue
            columns, marks = ", ".join(names_), ", ".join("?" * len(values))
            same = " AND ".join(f"{column} = ?" for column in names_)
            unless = f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608 - our own names
            put = f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {marks} {unless}"
            if connection.execute(put, (*values, *values)).rowcount and table == "trust":  # folds follow
                bump = "INSERT INTO value VALUES ('trust', '1') ON CONFLICT (key) DO UPDATE SET value = value + 1"
                connection.execute(bump)


def _is_storable(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and value.bit_length() < 64)


# --- reading --------------------------------------------------------------------------------------------------------


def members(source: Path) -> Iterator[Member]:
    """Yield the members of an archive, good and refused; raise ``RefusedError`` for a damaged or foreign archive."""
    if not source.is_file():  # a pipe may never end, and cannot be read twice
        raise RefusedError(f"{source} is no plain file: nothing was restored from it")
    try:
        with source.open("rb") as file:
            yield from _members(gzip.GzipFile(fileobj=file, mode="rb"))
    except (EOFError, gzip.BadGzipFile, zlib.error) as why:
        raise RefusedError(f"this backup is damaged ({why}): nothing was restored from it") from why


def _members(packed: gzip.GzipFile) -> Iterator[Member]:
    total = count = 0
    seen: set[str] = set()
    while len(block := packed.read(_BLOCK)) == _BLOCK and block.strip(b"\0"):
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as why:
            raise RefusedError(f"this is no backup of fleet ({why}): nothing was restored from it") from why
        count, total = count + 1, total + max(0, info.size)
        if count > MEMBERS_MAX or total > TOTAL_BYTES_MAX or info.size < 0:
            raise RefusedError("this archive holds more than any backup would: nothing was restored from it")
        reason = _reason(info, seen)
        seen.add(info.name)
        data = _take(packed, info.size, limits.LINE_BYTES_MAX if reason else info.size)
        yield Member(info.name, data, reason)
    # Read on to the end, where gzip has its checksum.
    if not block.startswith(b"\0"):
        raise EOFError("it ends too early")
    while rest := packed.read(limits.BLOCK_BYTES):
        total += len(rest)
        if total > TOTAL_BYTES_MAX:
            raise RefusedError("this archive holds more than any backup would: nothing was restored from it")


def _reason(info: tarfile.TarInfo, seen: Iterable[str]) -> str:
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return "no plain file: a link, a device, a folder or an extension"
    if not _is_place(info.name):
        return "no place of a backup"
    if info.name in seen:
        return "the same path twice"
    return f"larger than {MEMBER_BYTES_MAX} bytes" if info.size > MEMBER_BYTES_MAX else ""


def _take(packed: gzip.GzipFile, size: int, kept: int) -> bytes:
    """Read a member with its padding; return its first ``kept`` bytes."""
    data = packed.read(min(size, kept))
    rest = size - len(data)
    while rest and (block := packed.read(min(rest, limits.BLOCK_BYTES))):
        rest -= len(block)
    if rest:
        raise EOFError("it ends within a file")
    packed.read(-size % _BLOCK)
    return data
