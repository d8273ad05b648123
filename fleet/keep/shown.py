"""What was shown to an agent, and when: so that what happens afterwards can be told from what happened before.

A note is one line in the file of its day, ``.fleet/shown/<agent>.<day>.jsonl``: a hook writes it and waits for nothing.
Once a day is over (UTC), ``roll_up`` folds its file into ``.fleet/shown/<agent>.json``, and writes each lesson's total
to the shard as this replica's own ``n.shown``. That total is worked out and on the disk first, then it is said, then
the day's file goes. A crash in between leaves a total that is said again, and a G-Counter that is told the same total
twice stays as it is: nothing is counted double. What nobody folded yet is in the day files alone, and waits there.
When each showing was goes to a file of its own beforehand (``exposures``).

Notes measure, they prove nothing: one that cannot be written is left out. Standard library only at import, and little
of it: a hook has no time.
"""

import json
import os
import time

from fleet.keep import limits

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fleet.keep.line import Line
    from fleet.keep.workspace import Workspace, Writer

FOLDER = (".fleet", "shown")
RELAPSED = "relapsed"
GRACE_MS = 10 * 60 * 1000  # a process that saw the old day may still be writing its line
_HEX = frozenset("0123456789abcdef")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_SESSION_CHARS_MAX = 200


def note(root: "str | Path", agent: str, session: str, ids: "Iterable[str]", now_ms: int) -> bool:
    """Note that these lessons were shown to an agent. Returns whether it was written down.

    Args:
        root: of the workspace.
        agent: who read them.
        session: the host's id of the session, or "".
        ids: of the patterns; what is no pattern's id is passed over.
        now_ms: milliseconds since 1970.
    """
    shown = [each for each in ids if is_pattern(each)]
    if not shown or not agent or not _NAME.issuperset(agent):
        return False
    told = {"at": now_ms, "session": session[:_SESSION_CHARS_MAX], "ids": shown}
    line = json.dumps(told, separators=(",", ":")).encode("ascii") + b"\n"
    folder = os.path.join(root, *FOLDER)  # noqa: PTH118 - pathlib takes longer to import than the note to write
    path = os.path.join(folder, f"{agent}.{_day(now_ms)}.jsonl")  # noqa: PTH118
    try:
        return _append(folder, path, line)
    except OSError:
        return False


def _append(folder: str, path: str, line: bytes) -> bool:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):  # noqa: PTH114, PTH120
        return False
    try:
        handle = os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        handle = os.open(path, flags, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size + len(line) > limits.SHOWN_BYTES_MAX:
            return False
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line  # a line that a crash tore off harms itself alone
        return os.write(handle, line) == len(line)
    finally:
        os.close(handle)


def was_shown(root: "str | Path", agent: str, pattern_id: str, before_ms: int) -> bool:
    """Tell whether a lesson was shown to this agent, here, before a point in time."""
    if not agent or not _NAME.issuperset(agent):
        return False
    folder = f"{os.fspath(root)}{os.sep}{FOLDER[0]}{os.sep}{FOLDER[1]}"
    # To whom nothing was ever shown has no folder: that is told in a quarter of the time that an exception takes.
    names = _names(folder) if os.access(folder, os.F_OK) else []
    if not names:
        return False
    wanted = f'"{pattern_id}"'.encode("utf-8", "replace")  # most are not there: no JSON is read for them
    folded = read(totals_file(root, agent)) if f"{agent}.json" in names else b""
    if wanted in folded and Totals(folded).first.get(pattern_id, before_ms) < before_ms:
        return True
    for path in _days(folder, names, agent).values():
        for raw in read(path).split(b"\n"):
            if wanted in raw and (told := _told(raw)) is not None and told[0] < before_ms and pattern_id in told[1]:
                return True
    return False


def relapse_extra(
    root: "str | Path", agent: str, pattern_id: str, before_ms: int, also: "Iterable[str]" = ()
) -> tuple[tuple[str, str], ...]:
    """Return what the record of an occurrence says when the lesson had been shown before: then it is a relapse.

    Args:
        root: of the workspace.
        agent: who made the mistake.
        pattern_id: of the lesson.
        before_ms: when it was made, milliseconds since 1970.
        also: ids under which the same lesson is shown, where it is merged.
    """
    for each in dict.fromkeys((pattern_id, *also)):
        if was_shown(root, agent, each, before_ms):
            return ((RELAPSED, "1"),)
    return ()


def is_due(workspace: "Workspace", agent: str) -> bool:
    """Tell at little cost whether there is anything to roll up."""
    today = _day(workspace.world.wall_ms() - GRACE_MS)
    if any(day < today for day in day_files(workspace.root, agent)):
        return True
    folded = read(totals_file(workspace.root, agent))
    return b'"unsaid":["' in folded


def roll_up(writer: "Writer", known: "Callable[[str], Line | None]") -> "list[Line]":
    """Fold the days that are over, and write the totals that the shard lacks. Returns the lines written.

    The caller holds the write lock, and has admitted every stamp it read.

    Args:
        writer: whose notes, and under which replica they count.
        known: the record of a pattern, with this replica's own slot in it.

    Raises:
        DiskError: what is missing is written the next time.
    """
    workspace, agent = writer.workspace, writer.agent
    path = workspace.local / FOLDER[1] / f"{agent}.json"
    totals = Totals(read(path))
    today = _day(workspace.world.wall_ms() - GRACE_MS)
    over = {day: file for day, file in sorted(day_files(workspace.root, agent).items()) if day < today}
    fresh = {day: file for day, file in over.items() if day > totals.through}
    if over:
        _keep_times(writer, totals, over, known)
    if fresh:
        totals.fold(fresh, writer.name, lambda pattern: _slot(known(pattern), writer.name))
        workspace.disk.replace(path, totals.encoded())
    done = _say(writer, totals, known)
    if totals.unsaid:
        totals.unsaid = []
        workspace.disk.replace(path, totals.encoded())
    for file in over.values():
        workspace.disk.remove(type(path)(file))
    return done


def _keep_times(
    writer: "Writer", totals: "Totals", over: dict[str, str], known: "Callable[[str], Line | None]"
) -> None:
    """Note when it was, before the days' files go. It has its own mark of how far it is, and so may be ahead."""
    from fleet.keep import exposures

    workspace = writer.workspace
    path = workspace.local / FOLDER[1] / f"{writer.agent}.when.json"
    before = read(path)
    seen = exposures.Seen(before)
    seen.fill(totals)
    seen.fold(over)
    seen.shorten(lambda pattern: exposures.promoted_ms(known(pattern)))
    if (after := seen.encoded()) != before:
        workspace.disk.replace(path, after)


class Totals:
    """What is folded. Damaged text begins anew: the shard's own slots tell what was said before.

    Args:
        data: the file's bytes.

    Attributes:
        through: the last day that is folded.
        first: id to when the lesson was first shown, milliseconds since 1970.
        shown: replica to id to total.
        unsaid: ids whose total may not be in the shard yet.
    """

    def __init__(self, data: bytes) -> None:
        try:
            found = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            found = {}
        found = found if isinstance(found, dict) else {}
        shown, unsaid, through = found.get("shown"), found.get("unsaid"), found.get("through")
        self.through: str = through if isinstance(through, str) else ""
        self.first = _numbers(found.get("first"))
        self.shown = {name: _numbers(mine) for name, mine in shown.items()} if isinstance(shown, dict) else {}
        self.unsaid: list[str] = [each for each in unsaid if is_pattern(each)] if isinstance(unsaid, list) else []

    def counts(self) -> dict[str, int]:
        """Return how often each lesson was shown until the last day that is folded, under whichever replica."""
        found: dict[str, int] = {}
        for mine in self.shown.values():
            for pattern, total in mine.items():
                found[pattern] = found.get(pattern, 0) + total
        return found

    def encoded(self) -> bytes:
        """Return the file's bytes."""
        told = {"through": self.through, "first": self.first, "shown": self.shown, "unsaid": self.unsaid}
        return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()

    def fold(self, days: dict[str, str], replica: str, slot: "Callable[[str], int]") -> None:
        """Add whole days to the totals of one replica, never below what its slot says: notes may have been lost."""
        added: dict[str, int] = {}
        for path in days.values():
            for at, ids in notes(path):
                for pattern in ids:
                    added[pattern] = added.get(pattern, 0) + 1
                    self.first[pattern] = min(at, self.first.get(pattern, at))
        mine = self.shown.setdefault(replica, {})
        for pattern, number in added.items():
            mine[pattern] = max(mine.get(pattern, 0), slot(pattern)) + number
        self.through = max(days)
        self.unsaid = sorted({*self.unsaid, *added})
        if len(self.first) > limits.SHOWN_REMEMBERED_MAX:
            newest = sorted(self.first.items(), key=lambda one: (-one[1], one[0]))
            self.first = dict(newest[: limits.SHOWN_REMEMBERED_MAX])


def _say(writer: "Writer", totals: Totals, known: "Callable[[str], Line | None]") -> "list[Line]":
    from fleet.keep.line import Line
    from fleet.keep.reading import PATTERNS

    done: list[Line] = []
    mine = totals.shown.get(writer.name, {})
    for pattern in totals.unsaid:
        line, total = known(pattern), mine.get(pattern, 0)
        if line is None or line.set.get("scope") == "private" or _slot(line, writer.name) >= total:
            continue
        at = done[0].at if done else writer.tick()
        done.append(Line(id=pattern, at=at, by=writer.name, n={"shown": {writer.name: total}}))
    writer.append(PATTERNS, done)
    return done


def _slot(line: "Line | None", replica: str) -> int:
    return line.n.get("shown", {}).get(replica, 0) if line is not None else 0


def _day(ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(ms // 1000))


def is_pattern(text: object) -> bool:
    """Tell whether this is the id of a pattern."""
    return isinstance(text, str) and len(text) == 18 and text.startswith("p-") and _HEX.issuperset(text[2:])


def totals_file(root: "str | Path", agent: str) -> str:
    """Return the path of the totals."""
    return os.path.join(root, *FOLDER, f"{agent}.json")  # noqa: PTH118


def day_files(root: "str | Path", agent: str) -> dict[str, str]:
    """Return the notes that are not folded: day to path."""
    folder = os.path.join(root, *FOLDER)  # noqa: PTH118
    return _days(folder, _names(folder), agent)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _days(folder: str, names: "Iterable[str]", agent: str) -> dict[str, str]:
    head, tail = f"{agent}.", ".jsonl"
    days = {name: name[len(head) : -len(tail)] for name in names if name.startswith(head) and name.endswith(tail)}
    return {day: os.path.join(folder, name) for name, day in days.items() if len(day) == 10}  # noqa: PTH118


def read(path: "str | Path") -> bytes:
    """Return what a file holds, b"" when it is not there."""
    try:
        with open(path, "rb", opener=_without_links) as file:
            return file.read(2 * limits.SHOWN_BYTES_MAX)
    except OSError:
        return b""


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def notes(path: str) -> "Iterable[tuple[int, list[str]]]":
    """Yield the notes of a day: when, and of which lessons. A torn line is passed over."""
    for raw in read(path).split(b"\n"):
        if raw and (told := _told(raw)) is not None:
            yield told


def _told(raw: bytes) -> tuple[int, list[str]] | None:
    """Read one note; None for what is none, as a torn line."""
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or type(told.get("at")) is not int or not isinstance(told.get("ids"), list):
        return None
    return told["at"], [each for each in told["ids"] if is_pattern(each)]


def _numbers(found: object) -> dict[str, int]:
    return {k: v for k, v in found.items() if is_pattern(k) and type(v) is int} if isinstance(found, dict) else {}
