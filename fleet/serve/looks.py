"""What the files looked like: so that whoever comes later can tell whether there is anything to do.

Content is never trusted to a watcher or to an offset: what differs is read again, as a whole.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.recall import ready
from fleet.recall.ready import Seen

CLAN = "clan-learnings"
BESIDE = (f"{CLAN}/patterns.md", ".fleet/paused")
"""What else the work depends on: the page, which is mended when somebody changed it, and whether sharing is paused."""
_MTIME = 1


class Looks(NamedTuple):
    """How all files looked at one moment.

    Attributes:
        digest: stands for all of it.
        newest_ms: when one of them was written last, milliseconds since 1970.
        files: size, time and inode by path below the root; nothing for one that is not there.
    """

    digest: str
    newest_ms: int
    files: dict[str, Seen]


def taken(root: str, agents: Iterable[str]) -> Looks:
    """Look at everything that the work on a workspace depends on: logs, memories, the clan's lines, the settings."""
    paths = set(BESIDE)
    for agent in agents:
        paths.update(ready.made_of(root, agent))
    files = ready.looks(root, sorted(paths))
    said = json.dumps(files, sort_keys=True, separators=(",", ":")).encode()
    newest_ns = max((seen[_MTIME] for seen in files.values() if seen), default=0)
    return Looks(hashlib.blake2b(said, digest_size=16).hexdigest(), newest_ns // 1_000_000, files)


def changed(before: Looks, after: Looks) -> set[str]:
    """Return the paths that look different, or came, or went."""
    paths = before.files.keys() | after.files.keys()
    return {path for path in paths if before.files.get(path, []) != after.files.get(path, [])}


def has_lines(paths: Iterable[str]) -> bool:
    """Tell whether one of these paths holds lines of the clan's."""
    return any(path.startswith(f"{CLAN}/") and path.endswith(".jsonl") for path in paths)


def folders(root: str, agents: Sequence[str]) -> list[str]:
    """Return the folders to watch, those that are there: the root for the settings, the homes, the clan's."""
    wanted = [".", *(f"agents/{agent}" for agent in agents), "agents", CLAN, *(f"{CLAN}/{log}.d" for log in ready.LOGS)]
    paths = (Path(root) / each for each in wanted)
    return sorted(str(path) for path in paths if path.is_dir() and not path.is_symlink())


def concerns(root: str, path: str) -> bool:
    """Tell whether a path that a watcher names may be one of ours; a file on its way to its name is not."""
    relative = os.path.relpath(path, root)
    name = Path(path).name
    if name.startswith(".") and name.endswith(".tmp"):
        return False
    return relative in ("fleet.toml", "agents", CLAN) or relative.startswith(("agents" + os.sep, CLAN + os.sep))
