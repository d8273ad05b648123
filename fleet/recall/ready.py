"""What a session starts with, made ready beforehand: a hook has some tens of milliseconds, whatever the clan's size.

``.fleet/ready/start-<agent>.txt`` holds the text and, in its first line, what each file looked like that it was made
of. Is one of them another by now, the text is none any more, and is made anew. Standard library only: a hook imports
this.
"""

import json
import os
from collections.abc import Iterable

FOLDER = ".fleet/ready"
LOGS = ("patterns", "discoveries")

Seen = list[int]


def file_of(agent: str) -> str:
    """Return the path of an agent's ready text, below the root."""
    return f"{FOLDER}/start-{agent}.txt"


def text(root: str, agent: str) -> str | None:
    """Return what the agent's session starts with, under a fresh delimiter; None unless it is up to date.

    Args:
        root: the workspace's folder.
        agent: whose session.
    """
    try:
        with open(os.path.join(root, file_of(agent)), encoding="utf-8") as file:
            head = json.loads(file.readline())
            made = file.read()
        delimiter = head["delimiter"]
        if not isinstance(delimiter, str) or not head["seen"] or head["seen"] != looks(root, head["seen"]):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    while (fresh := f"fleet-{os.urandom(8).hex()}") in made:
        pass
    return made.replace(delimiter, fresh)


def is_stale(root: str, agent: str) -> bool:
    """Tell whether a text lies ready that is of before, and another can be written."""
    path = os.path.join(root, file_of(agent))
    return os.path.exists(path) and text(root, agent) is None and os.access(os.path.dirname(path), os.W_OK)


def moments_file() -> str:
    """Return the path of the lessons that have a moment of their own, below the root: ``moments.table`` as JSON."""
    return f"{FOLDER}/triggers.json"


def ids(text: str) -> list[str]:
    """Return the ids of the lessons that a text shows, sorted."""
    found = {part[:16] for part in text.split("p-")[1:]}
    return sorted(f"p-{digits}" for digits in found if len(digits) == 16 and not digits.strip("0123456789abcdef"))


def made_of(root: str, agent: str) -> list[str]:
    """Return the files and folders, below the root, that an agent's text is made of, whether they are there or not."""
    clan = "clan-learnings"
    found = ["fleet.toml", f"{clan}/members.toml", f".fleet/attempts/{agent}.won", f".fleet/promotion/{agent}.json"]
    found += [*memory_files(agent), *(f"agents/{agent}/{name}" for name in ("corrections.md", "JOURNAL.md"))]
    for log in LOGS:
        shards = f"{clan}/{log}.d"
        found += [f"{clan}/{log}.jsonl", shards]
        found += [f"{shards}/{name}" for name in _names(os.path.join(root, shards)) if name.endswith(".jsonl")]
    return found


def memory_files(agent: str) -> list[str]:
    """Return the agent's memory and what left it, below the root."""
    return [f"agents/{agent}/memory.md", f".fleet/promotion/{agent}.left.json"]


def looks(root: str, paths: Iterable[str]) -> dict[str, Seen]:
    """Return ``look_of`` each path, nothing for one that is not there; a folder's size says nothing."""
    found: dict[str, Seen] = {}
    for path in paths:
        try:
            found[path] = look_of(path, os.stat(os.path.join(root, path)))
        except OSError:
            found[path] = []
    return found


def look_of(path: str, seen: os.stat_result) -> Seen:
    """Return size, times and inode. The time of the entry is the one that no program can set back."""
    return [seen.st_size if not path.endswith(".d") else 0, seen.st_mtime_ns, seen.st_ino, seen.st_ctime_ns]


def rendered(context: str, delimiter: str, seen: dict[str, Seen]) -> bytes:
    """Return the content of a ready file.

    Args:
        context: the text, under ``delimiter``.
        delimiter: as it stands in the text, at its two ends alone.
        seen: what ``steady.looks`` said before anything was read for it.
    """
    head = json.dumps({"delimiter": delimiter, "seen": seen}, separators=(",", ":"))
    return f"{head}\n{context}".encode()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
