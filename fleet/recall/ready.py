"""Ready texts: a session's start and the trigger table, made beforehand for a hook that has some tens of milliseconds.

``.fleet/ready/start-<agent>.txt`` holds the text; its first line names the generation of the records and a checksum of
each small file that it was made of. A text is good while both are the same, and is made anew otherwise. One of these
files is ``.fleet/seen/<agent>``: the generation up to which the agent has been told what is new. Whoever shows a text
writes the generation of that text into it; so what was new is new once, and a start with no news makes nothing anew.
``.fleet/ready/triggers-<agent>.json`` holds the generation and, in its second line, the table (``recall.triggers``).
Little of the standard library, and nothing else: a hook imports this.
"""

# ruff: noqa: PTH102, PTH110, PTH112, PTH118, PTH120, PTH123
# Paths are texts here: pathlib alone would take 5 ms of a hook's time.
import json
import os
import stat
import time
import zlib
from collections.abc import Sequence

from fleet.store import homes

_BYTES_MAX = 64 * 1024 * 1024
_TABLE_BYTES_MAX = 1024 * 1024
_GENERATION_CHARS_MAX = 18
_HEX = frozenset("0123456789abcdef")


GUARDS_FILE = ".fleet/ready/guards.json"
"""Path of the table of guards, below the root: one for all agents of a machine."""


class Start:
    """Text that an agent reads when its session starts.

    Attributes:
        news: what of it came since the agent was told last, for a session that holds the rest; "" for nothing.
        ids: of the lessons in ``text``.
        new_ids: of the lessons in ``news``.
        generation: of the records that it was made of; "" where they were not read.
    """

    __slots__ = ("generation", "ids", "new_ids", "news", "text")

    def __init__(
        self, text: str, news: str = "", ids: Sequence[str] = (), new_ids: Sequence[str] = (), generation: str = ""
    ) -> None:
        self.text, self.news, self.ids, self.new_ids, self.generation = text, news, ids, new_ids, generation

    def rendered(self, delimiter: str, files: dict[str, str]) -> bytes:
        """Return the content of a ready text's file.

        Args:
            delimiter: as it stands in the texts, at their two ends alone.
            files: the ``sums`` of what else the text was made of, taken before anything was read.
        """
        told = {"delimiter": delimiter, "generation": self.generation, "files": files}
        told |= {"ids": self.ids, "new_ids": self.new_ids, "news": self.news}
        return f"{json.dumps(told, separators=(',', ':'))}\n{self.text}".encode()

    @staticmethod
    def ids_in(context: str) -> list[str]:
        """Return the whole ids of lessons that stand in a text, sorted."""
        found = {part[:16] for part in context.split("p-")[1:]}
        return sorted(f"p-{digits}" for digits in found if len(digits) == 16 and _HEX.issuperset(digits))


class Ready:
    """Files that lie ready for one agent.

    Attributes:
        start_file: path of the text, below the root.
        triggers_file: path of the trigger table, below the root.
        seen_file: path of the generation that the agent has been told of, below the root.
    """

    def __init__(self, root: str, agent: str) -> None:
        self._root = root
        self._agent = agent
        self.start_file = f".fleet/ready/start-{agent}.txt"
        self.triggers_file = f".fleet/ready/triggers-{agent}.json"
        self.seen_file = f".fleet/seen/{agent}"

    def start(self) -> Start | None:
        """Return the start of the agent's session, under a fresh delimiter; None unless it is up to date."""
        head, _, made = self._own(self.start_file, _BYTES_MAX).partition(b"\n")
        try:
            told = json.loads(head)
            delimiter, news, context = told["delimiter"], told["news"], made.decode()
            if not (isinstance(delimiter, str) and delimiter and isinstance(news, str)):
                return None
            if told["generation"] != self.generation() or told["files"] != self.sums():
                return None
            while (fresh := f"fleet-{os.urandom(8).hex()}") in context:
                pass
            texts = context.replace(delimiter, fresh), news.replace(delimiter, fresh)
            return Start(*texts, _only_ids(told["ids"]), _only_ids(told["new_ids"]), told["generation"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def is_stale(self) -> bool:
        """Tell whether an outdated text lies ready where a new one can be written."""
        path = os.path.join(self._root, self.start_file)
        return os.path.exists(path) and self.start() is None and os.access(os.path.dirname(path), os.W_OK)

    def seen(self) -> int:
        """Return the generation up to which the agent has been told what is new; -1 where nobody knows."""
        said = self._own(self.seen_file, 80).strip()
        return int(said) if said.isdigit() and len(said) <= _GENERATION_CHARS_MAX else -1

    def note_seen(self, generation: str) -> None:
        """Note that the agent has been told all up to a generation; nothing is written where that is known."""
        if not generation or self._own(self.seen_file, 80).strip() == generation.encode():
            return
        path = os.path.join(self._root, self.seen_file)
        try:
            if not os.path.isdir(os.path.dirname(path)):
                os.mkdir(os.path.dirname(path))  # and none above: a workspace that was taken away is not made again
            handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
            )
            with open(handle, "wb") as file:
                file.write(f"{generation}\n".encode())
        except OSError:
            return  # the disk is full, or read-only: what is new is told again, and twice is better than never

    def has_rows(self) -> bool:
        """Tell whether there is a trigger table."""
        return os.path.exists(os.path.join(self._root, self.triggers_file))

    def rows(self) -> object:
        """Return the trigger table as it lies ready, whatever its generation; an empty list when there is none."""
        try:
            return json.loads(self._own(self.triggers_file, _TABLE_BYTES_MAX).partition(b"\n")[2] or b"[]")
        except (ValueError, RecursionError):
            return []

    def has_guards(self) -> bool:
        """Tell whether a lesson guards anything here."""
        return os.path.exists(os.path.join(self._root, GUARDS_FILE))

    def guards(self, today: str) -> dict[str, list[list[str]]]:
        """Return the rows of the guards that hold on a day, as triggers are asked, by what was decided.

        The file may hold anything: what is no row is passed over.
        """
        found: dict[str, list[list[str]]] = {}
        try:
            rows = json.loads(self._own(GUARDS_FILE, _TABLE_BYTES_MAX).partition(b"\n")[2] or b"[]")
        except (ValueError, RecursionError):
            return found
        for row in rows if isinstance(rows, list) else ():
            is_row = isinstance(row, list) and len(row) == 5 and all(isinstance(part, str) for part in row)
            if is_row and (not row[4] or row[4] >= today):
                found.setdefault(row[3], []).append(row[:3])
        return found

    def generation(self) -> str:
        """Return the generation of the records, as the last refresh noted it."""
        return self._own(".fleet/generation", 80).decode("ascii", "replace").strip()

    def sums(self) -> dict[str, str]:
        """Return size and checksum of each file that the text is made of, "" for a file that is not there."""
        found: dict[str, str] = {}
        for path in self._made_of():
            data = self._read(path, _BYTES_MAX)
            found[path] = f"{len(data)}-{zlib.crc32(data):08x}" if data else ""
        if checks := self._read(f"{self._home()}/checks.md", _BYTES_MAX):  # one may be due by the next hour
            found["checks.md"] = f"{zlib.crc32(checks):08x}-{time.strftime('%Y-%m-%dT%H', time.gmtime())}"
        return found

    def _home(self) -> str:
        return f"{homes.Homes(self._root).current()}/{self._agent}"

    def _made_of(self) -> list[str]:
        home = self._home()
        own = ("memory.md", "corrections.md", "JOURNAL.md", "notes.jsonl", "inbox.jsonl", "user-model.md")
        local = (
            f"promotion/{self._agent}.json",
            *(f"attempts/{self._agent}.won", f"seen/{self._agent}"),
        )
        return [
            "fleet.toml",
            ".git/HEAD",
            "clan-learnings/members.toml",
            *(f"{home}/{name}" for name in own),
            *(f".fleet/{name}" for name in local),
        ]

    def _own(self, path: str, bytes_max: int) -> bytes:
        """Return what a file below ``.fleet`` holds. No link is followed: a hostile repository may bring a folder."""
        return self._read(path, bytes_max, os.O_NOFOLLOW)

    def _read(self, path: str, bytes_max: int, flags: int = 0) -> bytes:
        try:
            handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
            with open(handle, "rb") as file:
                # A pipe never ends, nor does a device that a link leads to.
                return file.read(bytes_max) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
        except OSError:
            return b""

    @staticmethod
    def rendered_rows(table: list[list[str]], made_at: str) -> bytes:
        """Return the content of a trigger table's file."""
        return f"{json.dumps({'generation': made_at})}\n{json.dumps(table)}\n".encode()


def _only_ids(found: object) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
