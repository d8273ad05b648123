"""Use cases of recall: the text that a session starts with, gossip, and the page of all lessons.

The texts that hooks wait for are made ready beforehand (``recall.ready``), and made anew when what they were made of
has changed.
"""

import os
from contextlib import suppress
from pathlib import Path

from fleet.app import reflecting
from fleet.app.finding import sources
from fleet.learn import counting, mutations
from fleet.model.discovery import Discovery
from fleet.model.errors import DiskError
from fleet.recall import page, ready, triggers
from fleet.recall.ready import Ready
from fleet.recall.session_context import LESSON_CHARS_MIN, session_context, trigger_table
from fleet.recall.wording import counted, newest_first, render_gossip
from fleet.reflect import exposure, memory_md, promotion
from fleet.store.workspace import Workspace

_NOT_YET = (
    "The clan's lessons and discoveries are being made ready, which takes a while in a large clan, once. "
    "`fleet start` prints all of it as soon as it is; the next session starts with it."
)
_TIDY_S = 2.0
"""How long a session's start waits to write: what it could not take out is not shown, and leaves with the next sync."""


def start(workspace: Workspace, agent: str, *, session: str = "") -> str:
    """Return what an agent reads when its session starts; in a named session, note that it was shown."""
    context = _ready(workspace, agent).text() if is_ready(workspace, agent) else None
    if context is None:
        context = session_start(workspace, agent, may_tidy=True)
    if session:
        exposure.note(workspace.state, agent, session, ready.ids(context), workspace.world.wall_ms())
    return context


def is_ready(workspace: Workspace, agent: str) -> bool:
    """Tell whether the agent's text lies ready and is up to date with all that was written by now."""
    generation, lies_ready = str(workspace.patterns.generation), _ready(workspace, agent)
    return lies_ready.generation() == generation and lies_ready.text() is not None


def _ready(workspace: Workspace, agent: str) -> Ready:
    return Ready(os.fspath(workspace.root), agent)


def session_start(workspace: Workspace, agent: str, *, may_tidy: bool = False) -> str:
    """Return what an agent reads when its session starts, and make it ready for the next time.

    What the clan retired is not in it; with ``may_tidy``, it is taken out of the memory, too.
    """
    if may_tidy and not workspace.is_read_only:
        reflecting.take_out_retired(workspace, agent, _TIDY_S)
    # Asked before anything is read: what is written meanwhile makes the text outdated.
    lies_ready = _ready(workspace, agent)
    files, generation = lies_ready.sums(), str(workspace.patterns.generation)
    chars_max, delimiter = workspace.config.recall.start_chars, f"fleet-{workspace.world.entropy(8).hex()}"
    known = sources(workspace, agent)
    standing = [each for source in known for each in source.best("evidence", chars_max // LESSON_CHARS_MIN)]
    memory = _memory(workspace, agent)
    remembered = set(ready.ids(memory))  # once is enough
    fresh = [pattern for pattern in standing if pattern.id not in remembered]
    context = session_context(
        agent=agent,
        memory=memory,
        patterns=fresh,
        total=sum(source.count() for source in known) - (len(standing) - len(fresh)),
        discoveries=workspace.discoveries.newest(workspace.config.recall.discoveries),
        waiting=_undecided(workspace, agent),
        delimiter=delimiter,
        chars_max=chars_max,
        members=workspace.emoji(),
    )
    with suppress(DiskError):  # a read-only disk: it is made each time
        made = ready.rendered(context, delimiter, generation, files)
        _put(workspace, lies_ready.start_file, made)
        table = trigger_table(pattern for source in known for pattern in source.triggered(triggers.TABLE_MAX))
        _put(workspace, lies_ready.triggers_file, ready.rendered_rows(table, generation) if table else b"")
    return context


def at_once(workspace: Workspace, agent: str) -> str:
    """Return what can be told without the clan's lessons: the memory, and what waits. It reads some small files."""
    whole = workspace.files.read(promotion.memory_file(workspace, agent)).decode("utf-8", "replace")
    return session_context(
        agent=agent,
        memory=memory_md.hot(whole),
        patterns=(),
        discoveries=(),
        waiting=[each.in_one_line() for each in promotion.standing(workspace, agent).waiting],
        delimiter=f"fleet-{workspace.world.entropy(8).hex()}",
        chars_max=workspace.config.recall.start_chars,
        members=workspace.emoji(),
        note=_NOT_YET,
    )


def gossip(workspace: Workspace, count: int) -> str:
    """Return the clan's newest discoveries as text, newest first, or how to log the first."""
    return render_gossip(newest(workspace, count), members=workspace.emoji())


def newest(workspace: Workspace, count: int) -> list[Discovery]:
    """Return the clan's newest discoveries, newest first."""
    return newest_first(workspace.discoveries.newest(count))


def rendered_page(workspace: Workspace) -> bytes:
    """Return ``patterns.md``: the best lessons, and how many more there are."""
    count = workspace.config.recall.page_lessons
    best, total = workspace.patterns.best("sight", count), workspace.patterns.count()
    return page.render_page(best, members=workspace.emoji(), lessons_max=count, total=total).encode()


def everything(workspace: Workspace) -> str:
    """Return a page with every lesson and every discovery of the clan."""
    lessons, found = list(workspace.patterns.lessons()), workspace.discoveries.shown()
    return page.render_all(lessons, found, members=workspace.emoji())


def _memory(workspace: Workspace, agent: str) -> str:
    """Return the memory as the agent reads it, without the lessons that the clan retired."""
    whole = memory_md.parse(workspace.files.read(promotion.memory_file(workspace, agent)))
    kept = promotion.without_retired(whole, reflecting.known(workspace, agent))
    return memory_md.hot(kept.render().decode("utf-8", "replace"))


def _undecided(workspace: Workspace, agent: str) -> list[str]:
    """Return what waits for a decision, a line each."""
    lines = []
    if unfilled := counting.unfilled(workspace, agent):
        lines.append(
            f"{counted(unfilled, 'correction', 'corrections')} without a lesson yet: `fleet learn --waiting` lists "
            'them, and `fleet learn ID --pattern "..."` states one'
        )
    stands = promotion.standing(workspace, agent)
    lines += [each.in_one_line() for each in stands.waiting]
    if left := stands.left:
        lines.append(
            f"{counted(len(left), 'lesson', 'lessons')} left this memory, since the clan retired "
            f"{'it' if len(left) == 1 else 'them'}: `fleet status` says which, and how to keep one"
        )
    for each in mutations.proposals(workspace, agent):
        lines.append(f"{each.code} ({each.name}) worked and is no lesson yet: {each.command}")
    return lines


def _put(workspace: Workspace, name: str, data: bytes) -> None:
    path: Path = workspace.root / name
    if data:
        workspace.files.replace(path, data, is_durable=False)
    elif path.exists():
        workspace.files.remove(path)
