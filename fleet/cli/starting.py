"""What a session starts with: here the command line joins what learn, recall and reflect have to say to an agent.

Apart from ``wiring``, since a host waits for it, and has nothing to send meanwhile.
"""

import json
from contextlib import suppress

from fleet.cli import desk, remembering
from fleet.keep import view
from fleet.keep.discoveries import Findings
from fleet.keep.errors import DiskError
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace
from fleet.learn import attempts, settled
from fleet.recall import moments, ready, steady
from fleet.recall.start import LESSON_CHARS_MIN, session_context
from fleet.reflect import hot, promoting, retiring

NOT_YET = (
    "The clan's lessons and discoveries are being made ready, which takes a while in a large clan, once. "
    "`fleet start` prints all of it as soon as it is; the next session starts with it."
)
TIDY_S = 2.0
"""How long a session's start waits to write: what it could not take out is not shown, and leaves with the next sync."""


def session_start(workspace: Workspace, agent: str, *, may_tidy: bool = False) -> str:
    """Return what this agent reads when its session starts, and make it ready for the next time.

    What the clan retired is not in it; with ``may_tidy``, it is taken out of the memory, too.
    """
    root = str(workspace.root)
    seen = steady.looks(workspace, lambda: ready.made_of(root, agent))
    held = view.glance(workspace)
    if (
        may_tidy
        and not workspace.is_read_only
        and remembering.take_out_retired(workspace, agent, held.notebook, TIDY_S)
    ):
        again = steady.looks(workspace, lambda: ready.memory_files(agent))
        seen = None if seen is None or again is None else seen | again
    chars_max, delimiter = workspace.config.recall.start_chars, f"fleet-{workspace.world.entropy(8).hex()}"
    standing, total = view.best(held.notebook, "evidence", chars_max // LESSON_CHARS_MIN)
    whole = hot.parse(workspace.disk.read(promoting.memory_file(workspace, agent)))
    memory = retiring.without_retired(whole, remembering.lesson_of(held.notebook)).render().decode("utf-8", "replace")
    remembered = set(ready.ids(memory))  # said once is enough
    fresh = [line for line in standing if line.id not in remembered]
    undecided = []
    if unfilled := settled.unfilled(workspace, agent):
        undecided.append(
            f"{desk.counted(unfilled, 'correction')} without a lesson yet: `fleet learn --waiting` lists them, "
            'and `fleet learn ID --pattern "..."` states one'
        )
    undecided += [each.in_one_line() for each in promoting.waiting(workspace, agent)]
    if left := retiring.left(workspace, agent):
        undecided.append(
            f"{desk.counted(len(left), 'lesson')} left this memory, since the clan retired "
            f"{'it' if len(left) == 1 else 'them'}: `fleet status` says which, and how to keep one"
        )
    undecided += _proposed(workspace, agent)
    context = session_context(
        agent=agent,
        memory=memory,
        patterns=fresh,
        total=total - (len(standing) - len(fresh)),
        findings=held.findings,
        waiting=undecided,
        delimiter=delimiter,
        chars_max=chars_max,
        discoveries=workspace.config.recall.discoveries,
        members=desk.emoji_of(workspace),
    )
    if held.notebook.held or held.findings.held():  # what is held may be believed at any later time
        _make_unready(workspace, agent)
    else:
        with suppress(DiskError):  # a read-only disk: it is made each time
            if seen is not None:  # else a file may be another one soon, and look the same
                text = ready.rendered(context, delimiter, seen)
                workspace.disk.replace(workspace.root / ready.file_of(agent), text, is_durable=False)
            _make_moments_ready(workspace, held.notebook)
    return context


def at_once(workspace: Workspace, agent: str) -> str:
    """Return what can be told without the clan's lessons: the memory, and what waits. It reads some small files."""
    memory = workspace.disk.read(promoting.memory_file(workspace, agent)).decode("utf-8", "replace")
    return session_context(
        agent=agent,
        memory=memory,
        patterns=(),
        findings=Findings(),
        waiting=[each.in_one_line() for each in promoting.waiting(workspace, agent)],
        delimiter=f"fleet-{workspace.world.entropy(8).hex()}",
        chars_max=workspace.config.recall.start_chars,
        members=desk.emoji_of(workspace),
        note=NOT_YET,
    )


def _proposed(workspace: Workspace, agent: str) -> list[str]:
    if not attempts.state(workspace, agent).won:  # most agents are not stuck, and need nothing of what comes then
        return []
    from fleet.learn import mutations

    found = mutations.proposals(workspace, agent)
    return [f"{each.code} ({each.name}) worked and is no lesson yet: {each.command}" for each in found]


def _make_unready(workspace: Workspace, agent: str) -> None:
    if (path := workspace.root / ready.file_of(agent)).exists():
        with suppress(DiskError):
            workspace.disk.remove(path)


def _make_moments_ready(workspace: Workspace, notebook: Notebook) -> None:
    """Write down which lessons are shown right before what they are about, for a hook that has no time to look."""
    path, rows = workspace.root / ready.moments_file(), moments.table(notebook.timed())
    if rows:
        workspace.disk.replace(path, json.dumps(rows).encode(), is_durable=False)
    elif path.exists():
        workspace.disk.remove(path)
