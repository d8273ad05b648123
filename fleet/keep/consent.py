"""A person's yes to a remote, and a machine's leave of its clan.

``.fleet/consent`` holds one line: ``agreed MACHINE URL``, or ``left STAMP``. A file, and not a row in the database:
that is made anew when it is damaged, and then a sidecar that nobody watches would stop to share without a word.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.keep.workspace import Workspace

FILE_NAME = "consent"
AGREED, LEFT = "agreed", "left"


def is_given(workspace: "Workspace", url: str) -> bool:
    """Tell whether somebody on this machine agreed to this remote: a repository may bring a ``.fleet`` along."""
    return _said(workspace) == _yes(workspace, url)


def is_given_to_any(workspace: "Workspace") -> bool:
    """Tell whether somebody agreed to a remote here, whichever it was."""
    return _said(workspace).startswith(f"{AGREED} ")


def has_left(workspace: "Workspace") -> bool:
    """Tell whether this machine left its clan, and came back to none."""
    return _said(workspace).startswith(f"{LEFT} ")


def give(workspace: "Workspace", url: str) -> None:
    """Note a person's yes to a remote."""
    _say(workspace, _yes(workspace, url))


def withdraw(workspace: "Workspace") -> None:
    """Note that this machine left."""
    _say(workspace, f"{LEFT} {workspace.wall()}")


def _yes(workspace: "Workspace", url: str) -> str:
    return f"{AGREED} {workspace.world.machine()} {url}"


def _said(workspace: "Workspace") -> str:
    path = workspace.local / FILE_NAME
    if path.exists():
        return workspace.disk.read(path).decode("utf-8", "replace").strip()
    # Workspaces that were made before this file was have it in the database: their sharing must not end unheard.
    if agreed := workspace.state.get("confirmed"):
        return f"{AGREED} {agreed}"
    since = workspace.state.get("left")
    return f"{LEFT} {since}" if since else ""


def _say(workspace: "Workspace", words: str) -> None:
    with workspace.locked():
        workspace.disk.replace(workspace.local / FILE_NAME, f"{words}\n".encode())
