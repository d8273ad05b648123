"""What is known of an agent's log for as long as nobody touches it: that all it owed is written, and what it waits for.

``.fleet/settled/<agent>`` notes size, time and inode of the log, and how many of its entries have no pattern yet. So
nobody reads a log of years to add a line to it, or to start a session. Losing the note costs one reading.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fleet.keep.errors import DiskError

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.keep.workspace import Workspace
    from fleet.learn.logbook import Logbook

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


def note_later(workspace: "Workspace", agent: str, log: "Logbook") -> None:
    """Note at once what the log is like now if it may be the last time; whoever goes on notes it when he is done.

    A process that is killed before costs the next one a reading of the log, as any loss of the note does.
    """
    if not log.is_in_use:
        note(workspace, agent, log.unfilled or 0, log.signature)
    elif not log.is_note_due:
        log.is_note_due = True
        workspace.closing.append(lambda: _note_at_the_end(workspace, agent, log))


def _note_at_the_end(workspace: "Workspace", agent: str, log: "Logbook") -> None:
    log.is_note_due = False
    if log.unfilled is not None and log.signature:
        with suppress(DiskError):  # what cannot be noted is read again
            note(workspace, agent, log.unfilled, log.signature)


def unfilled(workspace: "Workspace", agent: str) -> int:
    """Return how many entries still wait for their pattern: they count for nothing until it is stated."""
    told = signature(workspace, agent)
    if not told:
        return 0
    log: Logbook | None = workspace.logbooks.get(agent)
    if log is not None and log.unfilled is not None and log.signature == told:
        return log.unfilled
    known = noted(workspace, agent)
    if known.signature == told:
        return known.unfilled
    from fleet.learn import corrections

    return corrections.unfilled(workspace, agent)


def _file(workspace: "Workspace", agent: str) -> str:
    return f"{workspace.local}{os.sep}settled{os.sep}{agent}"
