"""A pause: nothing is shared from here until it ends. Logging and reading go on, since no lesson may wait.

``.fleet/paused`` holds the stamp at which the pause ends by itself, or nothing for one that ``fleet resume`` ends. A
file, and not a row in the database: that is made anew when it is damaged, and sharing must not begin again by itself.
"""

from typing import NamedTuple

from crdt import clock
from fleet.keep.workspace import Workspace

FILE_NAME = "paused"


class Pause(NamedTuple):
    """A pause that holds now. ``until`` is a stamp, or "" when only ``fleet resume`` ends it."""

    until: str

    def __str__(self) -> str:
        """Say until when."""
        return f"until {self.until[:16].replace('T', ' ')}Z" if self.until else "until `fleet resume`"


def current(workspace: Workspace) -> Pause | None:
    """Return the pause that holds now. A damaged file counts as one without an end: the careful answer."""
    path = workspace.local / FILE_NAME
    if not path.exists():
        return None
    until = workspace.disk.read(path).decode("ascii", "replace").strip()
    if not clock.is_stamp(until):
        return Pause("")
    return Pause(until) if workspace.wall() < until else None


def begin(workspace: Workspace, minutes: int | None) -> Pause:
    """Pause sharing, for so many minutes or until it is ended."""
    until = "" if minutes is None else clock.shifted(workspace.wall(), minutes * 60_000)
    with workspace.locked():
        workspace.disk.replace(workspace.local / FILE_NAME, f"{until}\n".encode())
    return Pause(until)


def end(workspace: Workspace) -> bool:
    """End a pause; tell whether one held."""
    was_paused = current(workspace) is not None
    with workspace.locked():
        workspace.disk.remove(workspace.local / FILE_NAME)
    return was_paused
