"""Ready texts: a session's start and the trigger table, made beforehand for a hook that has some tens of milliseconds.

``.fleet/ready/start-<agent>.txt`` holds the text; its first line names the generation of the records and a checksum of
each small file that it was made of. A text is good while both are the same, and is made anew otherwise.
``.fleet/ready/triggers-<agent>.json`` holds the generation and, in its second line, the table (``recall.triggers``).
Little of the standard library, and nothing else: a hook imports this.
"""

# ruff: noqa: PTH110, PTH118, PTH120, PTH123
# Paths are texts here: pathlib alone would take 5 ms of a hook's time.
import json
import os
import zlib

FOLDER = ".fleet/ready"
GENERATION = ".fleet/generation"

_BYTES_MAX = 64 * 1024 * 1024
_TABLE_BYTES_MAX = 1024 * 1024
_HEX = frozenset("0123456789abcdef")


def start_file(agent: str) -> str:
    """Return the path of an agent's ready text, below the root."""
    return f"{FOLDER}/start-{agent}.txt"


def triggers_file(agent: str) -> str:
    """Return the path of an agent's trigger table, below the root."""
    return f"{FOLDER}/triggers-{agent}.json"


def _made_of(agent: str) -> list[str]:
    """Return the small files that an agent's text is made of beside the records, below the root."""
    own = ("memory.md", "corrections.md", "JOURNAL.md", "notes.jsonl")
    local = (f"promotion/{agent}.json", f"promotion/{agent}.left.json", f"attempts/{agent}.won")
    return [
        "fleet.toml",
        "clan-learnings/members.toml",
        *(f"agents/{agent}/{name}" for name in own),
        *(f".fleet/{name}" for name in local),
    ]


def text(root: str, agent: str) -> str | None:
    """Return the start of an agent's session, under a fresh delimiter; None unless it is up to date.

    Args:
        root: the workspace's folder.
        agent: whose session.
    """
    head, _, made = _own(root, start_file(agent), _BYTES_MAX).partition(b"\n")
    try:
        told = json.loads(head)
        delimiter, context = told["delimiter"], made.decode()
        if not (isinstance(delimiter, str) and delimiter):
            return None
        if told["generation"] != generation(root) or told["files"] != sums(root, agent):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    while (fresh := f"fleet-{os.urandom(8).hex()}") in context:
        pass
    return context.replace(delimiter, fresh)


def is_stale(root: str, agent: str) -> bool:
    """Tell whether an outdated text lies ready where a new one can be written."""
    path = os.path.join(root, start_file(agent))
    return os.path.exists(path) and text(root, agent) is None and os.access(os.path.dirname(path), os.W_OK)


def rows(root: str, agent: str) -> object:
    """Return the trigger table as it lies ready, whatever its generation; an empty list when there is none."""
    try:
        return json.loads(_own(root, triggers_file(agent), _TABLE_BYTES_MAX).partition(b"\n")[2] or b"[]")
    except (ValueError, RecursionError):
        return []


def ids(context: str) -> list[str]:
    """Return the ids of the lessons that a text shows, sorted."""
    found = {part[:16] for part in context.split("p-")[1:]}
    return sorted(f"p-{digits}" for digits in found if len(digits) == 16 and _HEX.issuperset(digits))


def generation(root: str) -> str:
    """Return the generation of the records, as the last refresh noted it."""
    return _own(root, GENERATION, 80).decode("ascii", "replace").strip()


def sums(root: str, agent: str) -> dict[str, str]:
    """Return size and checksum of each file that an agent's text is made of, "" for a file that is not there."""
    found: dict[str, str] = {}
    for path in _made_of(agent):
        data = _read(root, path, _BYTES_MAX)
        found[path] = f"{len(data)}-{zlib.crc32(data):08x}" if data else ""
    return found


def rendered(context: str, delimiter: str, made_at: str, files: dict[str, str]) -> bytes:
    """Return the content of a ready text's file.

    Args:
        context: the text, under ``delimiter``.
        delimiter: as it stands in the text, at its two ends alone.
        made_at: the generation of the records, asked before anything was read.
        files: the ``sums`` of what else the text was made of, taken before anything was read.
    """
    head = json.dumps({"delimiter": delimiter, "generation": made_at, "files": files}, separators=(",", ":"))
    return f"{head}\n{context}".encode()


def rendered_rows(table: list[list[str]], made_at: str) -> bytes:
    """Return the content of a trigger table's file."""
    return f"{json.dumps({'generation': made_at})}\n{json.dumps(table)}\n".encode()


def _own(root: str, path: str, bytes_max: int) -> bytes:
    """Return what a file below ``.fleet`` holds. No link is followed: a hostile repository may bring such a folder."""
    return _read(root, path, bytes_max, os.O_NOFOLLOW)


def _read(root: str, path: str, bytes_max: int, flags: int = 0) -> bytes:
    try:
        handle = os.open(os.path.join(root, path), os.O_RDONLY | os.O_CLOEXEC | flags)
        with open(handle, "rb") as file:
            return file.read(bytes_max)
    except OSError:
        return b""
