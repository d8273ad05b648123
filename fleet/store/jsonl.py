"""Append-only files of JSON lines: what was decided, paid or said, one line each, kept for good.

A line that was said stays said: what changes it is a later line. The file is a person's to read. A line that a crash
tore, that somebody spoiled, or that a newer version wrote is passed over and costs nothing but itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fleet.store.workspace import Workspace
from fleet.text.screening import screen

_TEXT_CHARS_MAX = 32_000
_CUT = " … (cut)"

T = TypeVar("T")


def read(workspace: Workspace, path: Path, line: type[T]) -> Iterator[T]:
    """Yield the lines of a file that are of this type (a struct, or a union of tagged ones), oldest first."""
    decoder = msgspec.json.Decoder(line)
    for raw in workspace.files.read(path).splitlines():
        try:
            yield decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            continue


def append(workspace: Workspace, path: Path, lines: Iterable[msgspec.Struct]) -> None:
    """Add lines, screened, in one write that is on the disk when this returns. The caller holds the file's lock.

    Raises:
        DiskError: none of them is there.
    """
    encoded = b"".join(msgspec.json.encode(screened(msgspec.to_builtins(each))) + b"\n" for each in lines)
    if encoded:
        workspace.files.append(path, encoded)


@contextmanager
def locked(workspace: Workspace, name: str) -> Iterator[None]:
    """Hold the lock of the files of one kind while the block runs."""
    with workspace.files.lock(workspace.local / "locks" / f"{name}.lock"):
        yield


def screened(value: Any) -> Any:
    """Return a JSON value with every text in it screened, and cut where it is longer than anybody reads."""
    if isinstance(value, str):
        clean = screen(value).text
        return clean if len(clean) <= _TEXT_CHARS_MAX else clean[:_TEXT_CHARS_MAX] + _CUT
    if isinstance(value, dict):
        return {str(key): screened(each) for key, each in value.items()}
    return [screened(each) for each in value] if isinstance(value, list | tuple) else value
