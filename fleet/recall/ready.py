"""Cache of what a hook needs within some tens of milliseconds: the text of a session's start, and the trigger table.

``.fleet/ready/start-<agent>.txt`` holds the text. Its first line has the generation of the records, and a checksum of
each small file that the text was made of; the text is valid while all of these are the same. One of the small files is
``.fleet/seen/<agent>``, which is written when a text is shown. It has the generation up to which the agent has seen the
news, and the ids of news for which there was no room. So news are shown once, and a start without news renders nothing.
``.fleet/seen/<agent>.asked`` has the ids of the corrections whose lessons a start has asked for.
``.fleet/ready/triggers-<agent>.json`` has the generation in its first line and the table (``recall.triggers``) in its
second one. A row without a trigger is a remark on a lesson, which is added when the lesson is shown for a prompt.
The first line of each also has the mark of this very folder, so that a cached file which was cloned or copied is made
anew. A hook imports this module, so it imports little of the standard library, and of fleet only two small modules.
"""

# ruff: noqa: PTH102, PTH110, PTH112, PTH118, PTH120, PTH123
# Paths are texts here: pathlib alone would take 5 ms of a hook's time.
import json
import os
import time
import zlib
from collections.abc import Callable, Collection, Sequence

from fleet.store import homes
from fleet.store.changes import Changes

_BYTES_MAX = 64 * 1024 * 1024
_TABLE_BYTES_MAX = 1024 * 1024
_SEEN_BYTES_MAX = 64 * 1024
_GENERATION_CHARS_MAX = 18
_HEX = frozenset("0123456789abcdef")
_FILES = ("fleet.toml", ".git/HEAD", ".git/reftable/tables.list", "clan-learnings/members.toml")
_OWN_FILES = ("memory.md", "corrections.md", "JOURNAL.md", "notes.jsonl", "inbox.jsonl", "user-model.md")

GUARDS_FILE = ".fleet/ready/guards.json"
"""Path of the table of guards, below the root: one for all agents of a machine."""


class Start:
    """Text of a session's start.

    Attributes:
        news: the part that is new to the agent, for a session that has the rest; "" for none.
        generation: of the records in it; "" where they were not read.
        left: ids of the news that are not in the text.
        warning: what is wrong with this workspace, for the person; "" for nothing.
        asked: ids of the corrections without a lesson, whose number a line behind the text may tell.
    """

    def __init__(
        self,
        text: str,
        news: str = "",
        ids: Sequence[str] = (),
        new_ids: Sequence[str] = (),
        generation: str = "",
        left: Sequence[str] = (),
        warning: str = "",
        asked: Sequence[str] = (),
    ) -> None:
        self.text, self.news, self.ids, self.new_ids = text, news, ids, new_ids
        self.generation, self.left, self.warning, self.asked = generation, left, warning, asked

    def rendered(self, delimiter: str, files: dict[str, str]) -> bytes:
        """Return the content of the file of a cached text.

        ``delimiter``: the random mark at both ends of the texts, which is nowhere else in them.
        ``files``: the ``sums`` of the files, taken before any of them was read.
        """
        head = {"delimiter": delimiter, "files": files, **vars(self)}
        del head["text"]
        return f"{json.dumps(head, separators=(',', ':'))}\n{self.text}".encode()

    @property
    def mark(self) -> str:
        """Content of ``.fleet/seen`` once the text was shown; "" where the records were not read."""
        return " ".join([self.generation, *self.left]) if self.generation else ""

    @staticmethod
    def ids_in(context: str) -> list[str]:
        """Return the full ids of lessons in a text, sorted."""
        candidates = {part[:16] for part in context.split("p-")[1:]}
        return sorted(f"p-{digits}" for digits in candidates if len(digits) == 16 and _HEX.issuperset(digits))


class Ready:
    """Cached files of one agent. Their paths are below the root."""

    def __init__(self, root: str, agent: str) -> None:
        self._root = root
        self._agent = agent
        self.start_file = f".fleet/ready/start-{agent}.txt"
        self.triggers_file = f".fleet/ready/triggers-{agent}.json"
        self.seen_file = f".fleet/seen/{agent}"
        self._asked_file = f"{self.seen_file}.asked"

    def start(self) -> Start | None:
        """Return the cached start of the agent's session, with a new delimiter; None unless it is valid."""
        first_line, _, body = self._own(self.start_file, _BYTES_MAX).partition(b"\n")
        try:
            head = json.loads(first_line)
            delimiter, files = head.pop("delimiter"), head.pop("files")
            start = Start(body.decode(), **head)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if start.generation != self.generation() or files != self.sums() or not Changes(self._root).mark():
            return None
        while (new := f"fleet-{os.urandom(8).hex()}") in start.text:
            pass
        start.text, start.news = start.text.replace(delimiter, new), start.news.replace(delimiter, new)
        return start

    def is_stale(self) -> bool:
        """Return whether there is an outdated text, and a new one can be written in its place."""
        path = os.path.join(self._root, self.start_file)
        return os.path.exists(path) and self.start() is None and os.access(os.path.dirname(path), os.W_OK)

    def seen(self) -> list[str]:
        """Return the generation up to which the agent has seen what is new, and ids of news that had no room yet.

        The generation is "-1" if it is unknown.
        """
        made_at, *ids = self._own(self.seen_file, _SEEN_BYTES_MAX).decode("ascii", "replace").split() or [""]
        left = [each for each in ids if each[:2] in ("p-", "d-") and len(each) == 18 and _HEX.issuperset(each[2:])]
        return [made_at if made_at.isdigit() and len(made_at) <= _GENERATION_CHARS_MAX else "-1", *left]

    def note_seen(self, mark: str) -> None:
        """Record what the agent has seen, a text's ``mark``; nothing is written if it is recorded already."""
        if mark and self._own(self.seen_file, _SEEN_BYTES_MAX).strip() != mark.encode():
            self._note(self.seen_file, mark)

    def asked(self) -> set[str]:
        """Return the ids of the corrections for whose lessons a start has asked the agent."""
        return set(self._own(self._asked_file, _TABLE_BYTES_MAX).decode("ascii", "replace").split())

    def question(self, start: Start, running: Callable[[], Collection[str]], *, is_shown: bool) -> str:
        """Return the line about the corrections without a lesson, each once; "" for none.

        ``running``: returns the ids of sessions that go on, which state them by themselves. ``is_shown``: record it.
        """
        asked = self.asked()
        if not (new := {*start.asked} - asked) or not (new := new.difference(running())):
            return ""
        if is_shown:
            self._note(self._asked_file, "\n".join(asked.intersection(start.asked) | new))
        return f"{len(new):,} correction{'' if len(new) == 1 else 's'} without a lesson yet: fleet learn --waiting"

    def _note(self, name: str, text: str) -> None:
        path = os.path.join(self._root, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            if not os.path.isdir(os.path.dirname(path)):
                os.mkdir(os.path.dirname(path))  # and none above: a workspace that was taken away is not made again
            handle = os.open(path, flags, 0o644)
            with open(handle, "wb") as file:
                file.write(f"{text}\n".encode())
        except OSError:
            return  # the disk is full, or read-only: it is shown again, and twice is better than never

    def has_rows(self) -> bool:
        """Return whether the trigger table has rows, or may get some when it is rendered again."""
        return self.is_table_old() or bool(self.rows())

    def is_table_old(self) -> bool:
        """Return whether the records have changed since the trigger table was rendered."""
        made_at = self.generation()
        return bool(made_at) and not self._own(self.triggers_file, 160).startswith(self._first_line(made_at))

    def rows(self) -> list[list[str]]:
        """Return the rows of the trigger table, ``[id, trigger, row]``, whatever its generation."""
        return self._table(self.triggers_file, 3)

    def has_guards(self) -> bool:
        """Return whether the table of guards has rows, or may get some when it is rendered again."""
        return self.are_guards_old() or bool(self._table(GUARDS_FILE, 5))

    def are_guards_old(self) -> bool:
        """Return whether there is a table of guards that was not made in this folder."""
        first = self._own(GUARDS_FILE, 160)
        return bool(first) and not first.startswith(self._first_line(""))

    def guards(self, today: str) -> dict[str, list[list[str]]]:
        """Return the rows of the guards that are valid on a day, in the form of triggers, by decision."""
        guards: dict[str, list[list[str]]] = {}
        for row in self._table(GUARDS_FILE, 5):
            if not row[4] or row[4] >= today:
                guards.setdefault(row[3], []).append(row[:3])
        return guards

    def _table(self, path: str, width: int) -> list[list[str]]:
        """Return the rows of ``width`` texts from the JSON behind a file's first line; other rows are ignored."""
        first, _, rest = self._own(path, _TABLE_BYTES_MAX).partition(b"\n")
        try:
            is_ours = bool(rest) and json.loads(first)["mark"] == Changes(self._root).mark() != ""
            table = json.loads(rest) if is_ours else []
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        rows = [row for row in table if isinstance(row, list)] if isinstance(table, list) else []
        return [row for row in rows if len(row) == width and all(isinstance(part, str) for part in row)]

    def generation(self) -> str:
        """Return the generation of the records at the last refresh."""
        return self._own(".fleet/generation", 80).decode("ascii", "replace").strip()

    def sums(self) -> dict[str, str]:
        """Return size and checksum of each file that the text is made from, "" for a missing one."""
        agent = self._agent
        home = f"{homes.Homes(self._root).current()}/{agent}"
        sums = {".fleet/ready/here": Changes(self._root).mark()}
        marks = f".fleet/promotion/{agent}.json", f".fleet/attempts/{agent}.won", self.seen_file
        for path in (*_FILES, *(f"{home}/{name}" for name in _OWN_FILES), *marks):
            data = homes.read(os.path.join(self._root, path), _BYTES_MAX, follows=True)
            sums[path] = f"{len(data)}-{zlib.crc32(data):08x}" if data else ""
        checks = homes.read(os.path.join(self._root, home, "checks.md"), _BYTES_MAX, follows=True)
        if checks:  # with the hour, since another check may be due in the next one
            sums["checks.md"] = f"{zlib.crc32(checks):08x}-{time.strftime('%Y-%m-%dT%H', time.gmtime())}"
        return sums

    def _own(self, path: str, bytes_max: int) -> bytes:
        """Return the content of a file below ``.fleet``. No link is followed: a hostile repository may have one."""
        return homes.read(os.path.join(self._root, path), bytes_max)

    def rendered_rows(self, table: list[list[str]], made_at: str) -> bytes:
        """Return the content of a table's file."""
        return self._first_line(made_at) + f"{json.dumps(table)}\n".encode()

    def _first_line(self, made_at: str) -> bytes:
        return f"{json.dumps({'generation': made_at, 'mark': Changes(self._root).mark()})}\n".encode()
