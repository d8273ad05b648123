"""``.gitignore`` of the project: what fleet adds to it, behind what a person wrote."""

from collections.abc import Sequence
from pathlib import Path

from fleet.store.files import Files

NOTE = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
LOCAL = (
    *(
        "/.fleet/",
        "/.agents.local.md",
        "/.agents.local.md.backup*",
        "/.agents/local.md",
        "/.agents/.consolidation-lock",
    ),
    *("/.agents/logs/*.md", "/.agents/topics/*.md"),
)
"""What is one machine's own: its state, and the files of auto-reflect and consolidation, file by file."""


def lacking(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return which of these patterns the folder's ``.gitignore`` lacks. A whole folder in it covers its files."""
    known = {line.strip("/") for line in lines(root)}
    return [each for each in patterns if not {each.strip("/"), each.strip("/").split("/")[0]} & known]


def add(files: Files, patterns: Sequence[str]) -> list[str]:
    """Add what is missing to ``.gitignore``; return what was added."""
    missing = lacking(files.root, patterns)
    if missing:
        head = [] if NOTE in lines(files.root) else [NOTE]
        text = "".join(f"{line}\n" for line in [*head, *missing])
        files.append(files.root / ".gitignore", text.encode())
    return missing


def lines(root: Path) -> set[str]:
    """Return the lines of the folder's ``.gitignore``, without what stands around them."""
    path = root / ".gitignore"
    if not path.is_file():
        return set()
    return {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}
