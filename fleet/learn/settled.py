"""What is known of an agent's log for as long as nobody touches it: that all it owed is written, and what it waits for.

``.fleet/settled/<agent>`` notes size, time and inode of the log, and how many of its entries have no pattern yet. So
nobody reads a log of years to add a line to it, or to start a session. Losing the note costs one reading.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.keep.workspace import Workspace

FILE_NAME = "corrections.md"
_NOTE_BYTES = 64


class Noted(NamedTuple):
    """What the note says.

    Attributes:
        signature: what the log was like; b"" without a note.
        unfilled: how many entries waited for their pattern.
    """

    signature: bytes
    unfilled: int


def log_file(workspace: "Workspace", agent: str) -> "Path":
    """Return the path of an agent's log."""
    return workspace.home(agent) / FILE_NAME


def signature(workspace: "Workspace", agent: str) -> bytes:
    """Return what changes when an agent's log is written: size, time and inode; b"" where there is none."""
    try:
        seen = log_file(workspace, agent).stat()
    except OSError:
        return b""
    return b"%d %d %d" % (seen.st_size, seen.st_mtime_ns, seen.st_ino)


def noted(workspace: "Workspace", agent: str) -> Noted:
    """Return what was noted last.

    Whoever loses lines of the shard finds them again in the log, with the next sync, which always looks at all of it.
    """
    told, _, unfilled = workspace.disk.read(_file(workspace, agent)).strip().rpartition(b" ")
    return Noted(told, int(unfilled)) if told and unfilled.isdigit() else Noted(b"", 0)


def note(workspace: "Workspace", agent: str, unfilled: int, told: bytes = b"") -> None:
    """Note what the log is like now, all that it owed being written; who knows its signature has ``told`` it."""
    told = told or signature(workspace, agent)
    workspace.disk.note(_file(workspace, agent), (b"%b %d" % (told, unfilled) if told else b"").ljust(_NOTE_BYTES))


def unfilled(workspace: "Workspace", agent: str) -> int:
    """Return how many entries still wait for their pattern: they count for nothing until it is stated."""
    known, told = noted(workspace, agent), signature(workspace, agent)
    if not told:
        return 0
    if known.signature == told:
        return known.unfilled
    from fleet.learn import corrections

    return corrections.unfilled(workspace, agent)


def _file(workspace: "Workspace", agent: str) -> str:
    return f"{workspace.local}{os.sep}settled{os.sep}{agent}"
