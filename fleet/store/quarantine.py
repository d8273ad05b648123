"""Quarantine of refused lines: kept with their reason, never in the way of good ones.

``.fleet/quarantine/refused.jsonl`` holds each distinct bad line once: when, where, why, and its bytes in base64.
"""

import base64
import json
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fleet.model import limits
from fleet.model.errors import DiskError
from fleet.model.line import Refused
from fleet.store.files import Files


class Kept(NamedTuple):
    """One refused line as it is kept."""

    at: str
    path: str
    number: int
    reason: str
    raw: bytes


class Quarantine:
    """The refused lines of one workspace.

    Args:
        files: writes them.
        path: the file they are kept in.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def keep(self, refused: Iterable[Refused], at: str) -> int:
        """Keep what is not there yet; return how many lines were new. A full disk or quarantine never stops reading."""
        wanted = {_key(r.path, r.raw[: limits.LINE_BYTES_MAX]): r for r in refused}  # as they are kept
        if not wanted:
            return 0
        known = {_key(kept.path, kept.raw) for kept in self.all()}
        new: list[bytes] = []
        room = limits.QUARANTINE_BYTES_MAX - self._size()
        for key, refused_line in wanted.items():
            if key not in known and len(encoded := _encode(refused_line, at)) <= room:
                new.append(encoded)
                room -= len(encoded)
        if not new:
            return 0
        try:
            self._files.append(self._path, b"".join(new))
        except DiskError:
            return 0  # the line still lies where it was read, and is counted at every load
        return len(new)

    def all(self) -> list[Kept]:
        """Return what is kept, oldest first."""
        kept = []
        for raw in self._files.read(self._path).splitlines():
            try:
                found = json.loads(raw)
                kept.append(
                    Kept(found["at"], found["path"], found["line"], found["reason"], base64.b64decode(found["bytes"]))
                )
            except (ValueError, KeyError, TypeError):
                continue  # torn by a crash; what it told of is refused anew at the next load
        return kept

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0


def _key(path: str, raw: bytes) -> bytes:
    return blake2b(path.encode() + b"\0" + raw, digest_size=16).digest()


def _encode(refused: Refused, at: str) -> bytes:
    raw = base64.b64encode(refused.raw[: limits.LINE_BYTES_MAX]).decode()
    found = {"at": at, "path": refused.path, "line": refused.number, "reason": refused.reason, "bytes": raw}
    return json.dumps(found, ensure_ascii=True, sort_keys=True).encode() + b"\n"
