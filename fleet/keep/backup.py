"""Making a backup of a workspace: everything that can neither be fetched nor computed again."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fleet.keep import archive
from fleet.keep.errors import DiskError, NoError
from fleet.keep.workspace import Workspace


class BackedUp(NamedTuple):
    """What a backup holds, and what it does not.

    Attributes:
        files: how many files are in it.
        size: its bytes.
        left: paths that are left out: links, and what is no plain file, too large or too oddly named.
    """

    files: int
    size: int
    left: list[str]


def backup(workspace: Workspace, target: Path, *, overwrite: bool = False) -> BackedUp:
    """Write a backup, atomically: the file is there whole, or as it was before.

    Raises:
        NoError: there is a file of that name, and it is not to be overwritten.
        DiskError: it was not written.
    """
    target = target.expanduser().absolute()
    if target.exists() and not overwrite:
        raise NoError(f"{target} is there already, and stays. Name another file, or pass --yes to replace it")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            # Nothing of ours is written meanwhile, so that log, shards and marks are of one moment.
            with workspace.locked():
                taken, left = archive.collect(workspace.root)
                marks = "".join(f"{each.hex()}\n" for each in workspace.state.sent()).encode()
                archive.write(file, workspace.root, taken, {archive.SENT: marks} if marks else {})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        _fsync_folder(target.parent)
    except OSError as why:
        raise DiskError(f"{target} was not written ({why.strerror or why}); no backup was made") from why
    finally:
        with suppress(OSError):
            temporary.unlink()
    return BackedUp(len(taken) + bool(marks), target.stat().st_size, left)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
