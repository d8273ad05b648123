"""Out of the memory again: a lesson that the clan retired leaves every ``memory.md``, whoever had put it there.

Its line is kept in ``.fleet/promotion/<agent>.left.json``, so that ``fleet status`` can say what left and how to keep
it. The block forgets that it was ever promoted: once it is restored it may come back, by the evidence that any other
lesson takes. What a person took out by ``fleet demote`` stays out.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fleet.keep.errors import BusyError
from fleet.keep.line import Line
from fleet.keep.notebook import is_present, text
from fleet.keep.workspace import Workspace
from fleet.reflect import hot, promoting, promotion

Lesson = Callable[[str], Line | None]
"""The lesson of an id, a merged set as one; None for one that this clan does not know."""

LEFT_MAX = 50
"""So many are remembered: far more than a memory holds."""

_READS_MAX = 5


class Left(NamedTuple):
    """A lesson that left a memory: its id and words, its line there, and when it left (a stamp's wall time)."""

    id: str
    text: str
    row: str
    at: str


def is_retired(line: Line | None) -> bool:
    """Tell whether the clan took a lesson out. One that nobody ever logged here is not known to be."""
    if line is None:
        return False
    return line.set.get("state") == promotion.RETIRED or (bool(line.rem) and not is_present(line))


def retired(ids: Iterable[str], lesson: Lesson) -> list[str]:
    """Return which of these are retired."""
    return [pattern for pattern in ids if is_retired(lesson(pattern))]


def without_retired(memory: hot.Memory, lesson: Lesson) -> hot.Memory:
    """Return a memory without the lessons that are retired; with nothing to take out, or in trouble, as it is."""
    gone = retired(memory.ids(), lesson)
    return hot.released(memory, gone) if gone else memory


def take_out(workspace: Workspace, agent: str, lesson: Lesson) -> tuple[Left, ...]:
    """Take out of an agent's memory what is retired; return what left. The caller holds the write lock.

    Raises:
        BusyError: somebody else is writing the memory; it leaves the next time.
        DiskError: the memory is as it was.
    """
    for _ in range(_READS_MAX):
        data, memory = promoting.read_memory(workspace, agent)
        gone = retired(memory.ids(), lesson)
        rows = {hot.id_of(row): row.rstrip("\r\n") for row in memory.rows}
        left = tuple(Left(each, _words(lesson(each)), rows[each], workspace.wall()) for each in gone)
        # First it is noted: a crash in between leaves a note about a lesson that is still there, and leaves next time.
        _note(workspace, agent, left, lesson, memory.ids())
        if not left or promoting.swap_memory(workspace, agent, data, hot.released(memory, gone)):
            return left
    raise BusyError(f"agents/{agent}/{hot.FILE_NAME} is being written by somebody else; what is retired leaves later")


def _words(line: Line | None) -> str:
    return promotion.readable(text(line)) if line is not None else ""


def left(workspace: Workspace, agent: str) -> tuple[Left, ...]:
    """Return what left an agent's memory and is still retired, as of when that was last looked at; newest last."""
    try:
        found = json.loads(workspace.disk.read(left_file(workspace, agent)) or b"[]")
        return tuple(Left(*map(str, each)) for each in found)
    except (ValueError, TypeError):
        return ()  # it told what was; nothing else depends on it


def forget(workspace: Workspace, agent: str, pattern: str) -> None:
    """Drop the words of a lesson that left a memory, or waits for one. The caller holds the write lock."""
    for path, noted in (
        (left_file(workspace, agent), left(workspace, agent)),
        (promoting.waiting_file(workspace, agent), promoting.waiting(workspace, agent)),
    ):
        kept = [each for each in noted if each.id != pattern]
        if len(kept) < len(noted):
            workspace.disk.replace(path, json.dumps(kept, ensure_ascii=False).encode())


def left_file(workspace: Workspace, agent: str) -> Path:
    """Return where it is noted what left: machine-local."""
    return workspace.local / "promotion" / f"{agent}.left.json"


def _note(workspace: Workspace, agent: str, fresh: tuple[Left, ...], lesson: Lesson, inside: Iterable[str]) -> None:
    before = left(workspace, agent)
    if not before and not fresh:
        return
    going = {each.id for each in fresh}
    stays = {*inside} - going
    kept = [each for each in before if each.id not in going | stays and is_retired(lesson(each.id))]
    now = (*kept, *fresh)[-LEFT_MAX:]
    if now != before:
        workspace.disk.replace(left_file(workspace, agent), json.dumps(now, ensure_ascii=False).encode())
