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

_BYTES_MAX = 64 * 1024 * 1024
_TABLE_BYTES_MAX = 1024 * 1024
_HEX = frozenset("0123456789abcdef")


class Ready:
    """What lies ready for one agent.

    Args:
        root: the workspace's folder.
        agent: whose session.

    Attributes:
        start_file: path of the text, below the root.
        triggers_file: path of the trigger table, below the root.
    """

    def __init__(self, root: str, agent: str) -> None:
        self._root = root
        self._agent = agent
        self.start_file = f".fleet/ready/start-{agent}.txt"
        self.triggers_file = f".fleet/ready/triggers-{agent}.json"

    def text(self) -> str | None:
        """Return the start of the agent's session, under a fresh delimiter; None unless it is up to date."""
        head, _, made = self._own(self.start_file, _BYTES_MAX).partition(b"\n")
        try:
            told = json.loads(head)
            delimiter, context = told["delimiter"], made.decode()
            if not (isinstance(delimiter, str) and delimiter):
                return None
            if told["generation"] != self.generation() or told["files"] != self.sums():
                return None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        while (fresh := f"fleet-{os.urandom(8).hex()}") in context:
            pass
        return context.replace(delimiter, fresh)

    def is_stale(self) -> bool:
        """Tell whether an outdated text lies ready where a new one can be written."""
        path = os.path.join(self._root, self.start_file)
        return os.path.exists(path) and self.text() is None and os.access(os.path.dirname(path), os.W_OK)

    def has_rows(self) -> bool:
        """Tell whether there is a trigger table."""
        return os.path.exists(os.path.join(self._root, self.triggers_file))

    def rows(self) -> object:
        """Return the trigger table as it lies ready, whatever its generation; an empty list when there is none."""
        try:
            return json.loads(self._own(self.triggers_file, _TABLE_BYTES_MAX).partition(b"\n")[2] or b"[]")
        except (ValueError, RecursionError):
            return []

    def generation(self) -> str:
        """Return the generation of the records, as the last refresh noted it."""
        return self._own(".fleet/generation", 80).decode("ascii", "replace").strip()

    def sums(self) -> dict[str, str]:
        """Return size and checksum of each file that the text is made of, "" for a file that is not there."""
        found: dict[str, str] = {}
        for path in self._made_of():
            data = self._read(path, _BYTES_MAX)
            found[path] = f"{len(data)}-{zlib.crc32(data):08x}" if data else ""
        return found

    def _made_of(self) -> list[str]:
        own = ("memory.md", "corrections.md", "JOURNAL.md", "notes.jsonl")
        local = (f"promotion/{self._agent}.json", f"promotion/{self._agent}.left.json", f"attempts/{self._agent}.won")
        return [
            "fleet.toml",
            "clan-learnings/members.toml",
            *(f"agents/{self._agent}/{name}" for name in own),
            *(f".fleet/{name}" for name in local),
        ]

    def _own(self, path: str, bytes_max: int) -> bytes:
        """Return what a file below ``.fleet`` holds. No link is followed: a hostile repository may bring a folder."""
        return self._read(path, bytes_max, os.O_NOFOLLOW)

    def _read(self, path: str, bytes_max: int, flags: int = 0) -> bytes:
        try:
            handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_CLOEXEC | flags)
            with open(handle, "rb") as file:
                return file.read(bytes_max)
        except OSError:
            return b""


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


def ids(context: str) -> list[str]:
    """Return the ids of the lessons that a text shows, sorted."""
    found = {part[:16] for part in context.split("p-")[1:]}
    return sorted(f"p-{digits}" for digits in found if len(digits) == 16 and _HEX.issuperset(digits))
