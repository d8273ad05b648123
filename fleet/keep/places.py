"""Where the lines stand that speak of an id, and what they join to."""

import os
from collections.abc import Sequence
from typing import cast

import msgspec

from fleet.keep import tail
from fleet.keep.discoveries import Discovery, Findings
from fleet.keep.index import Index
from fleet.keep.line import BadLineError, Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import Entry, Kind
from fleet.keep.sources import File, Sources, files_of

HANDLES_MAX = 64


class Place(msgspec.Struct, frozen=True):
    """Where a line stands: what it speaks of, its file, where in it, its length, and the hash that it has."""

    key: str
    path: str
    at: int
    length: int
    hash: int


def places(index: Index, keys: Sequence[str]) -> list[Place]:
    """Return where the lines stand that speak of some ids, at most ``PARAMETERS_MAX``."""
    some = f"({','.join('?' * len(keys))})"
    rows = index.connection.execute(
        "SELECT l.key, f.path, l.at, l.length, l.hash FROM search_line l JOIN search_file f ON f.id = l.file "  # noqa: S608
        f"WHERE l.key IN {some} ORDER BY l.key",
        keys,
    )
    return [Place(*row) for row in rows]


class Joined(msgspec.Struct):
    """All lines that speak of one id, joined. ``is_odd``: one of them is not for this version to read."""

    notebook: Notebook
    findings: Findings
    is_odd: bool = False

    def due(self) -> str:
        """Return when more of it may be believed than now, or ""."""
        held = [part.stamp for part in self.notebook.held]
        held += [entry.at for entry in self.findings.entries.values() if entry.at > self.findings.cut]
        return min(held, default="")


class Reader:
    """Reads single lines of logs by where they stand. A file stays open for as long as it is likely to be needed."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._files: dict[str, File] | None = None
        self._handles: dict[str, int] = {}

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def _logs(self) -> dict[str, File]:
        """Return the files, listed when the first of them is needed: most lessons that are logged are new."""
        if self._files is None:
            self._files = {path: file for path, file in files_of(self._sources).items() if file.kind is not None}
        return self._files

    def raw(self, path: str, at: int, length: int) -> bytes:
        """Return the bytes that stand there now, b"" when the file is gone."""
        handle = self._handles.get(path)
        if handle is None:
            if len(self._handles) >= HANDLES_MAX:
                self.close()
            try:
                handle = os.open(self._logs()[path].path, os.O_RDONLY | os.O_CLOEXEC)
            except (KeyError, FileNotFoundError, NotADirectoryError):
                return b""
            self._handles[path] = handle
        return os.pread(handle, length, at)

    def kind_of(self, place: Place) -> Kind | None:
        """Return what kind of log a place is in; None when the file is gone."""
        file = self._logs().get(place.path)
        return None if file is None else file.kind

    def still(self, place: Place) -> bytes | None:
        """Return the line that stands at a place, None when it stands there no more."""
        raw = self.raw(place.path, place.at, place.length)
        return raw if tail.mark(raw) == place.hash else None

    def join(self, place: Place, into: Joined) -> bool:
        """Join the line that stands at a place; tell whether it still stands there."""
        raw = self.still(place)
        if raw is None:
            return False
        kind = self.kind_of(place)
        entry = None if kind is None else _decoded(kind, raw)
        if isinstance(entry, Line):
            into.notebook.add(entry)
        elif isinstance(entry, Discovery):
            into.findings.add(entry)
        else:
            into.is_odd = True
        return True


def _decoded(kind: Kind, raw: bytes) -> Entry | None:
    found = kind.decode_block(raw)
    if found is not None and len(found) == 1 and kind.is_sound(found[0], raw):
        return cast("Entry", found[0])
    try:
        return cast("Entry", kind.decode_slowly(raw))
    except BadLineError:
        return None


def mark_of(normalised: str) -> str:
    """Return what stands for a normalised text."""
    return f"{tail.mark(normalised.encode()):x}"
