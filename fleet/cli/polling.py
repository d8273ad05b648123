"""The timed work on a workspace, joined from the verbs: what ``fleet poll`` does once, a sidecar again and again."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from fleet.cli import desk, starting, syncing, wiring
from fleet.keep import pause, view
from fleet.keep.errors import UsageError
from fleet.keep.workspace import Workspace
from fleet.learn import corrections
from fleet.recall import ready
from fleet.reflect.promoting import Promoted
from fleet.serve import looks
from fleet.serve.tick import Exchanged, Jobs, Memory, NotNowError, Tick, Ticked, Worked
from fleet.share import tree
from fleet.share.tree import PAGE


def tick(workspace: Workspace, agent: str, *, local: bool = False, rng: random.Random | None = None) -> Ticked:
    """Do what is due for a workspace, as one of its agents."""
    rng = rng or random.Random()  # noqa: S311 - it spreads out who asks when
    return Tick(jobs(workspace, agent), memory(workspace), workspace.config.sidecar, rng).run(local=local)


def memory(workspace: Workspace) -> Memory:
    """Return where it is noted what was done when."""
    return Memory(workspace.disk, workspace.local)


def jobs(workspace: Workspace, agent: str) -> Jobs:
    """Return what a tick calls."""
    return Jobs(
        now_ms=workspace.world.wall_ms,
        looks=lambda: looks.taken(str(workspace.root), corrections.agents_here(workspace)),
        work=partial(_work, workspace, agent),
        sync=partial(_sync, workspace, agent),
        waiting=partial(_waiting, workspace),
        alone=_alone(workspace),
    )


def _alone(workspace: Workspace) -> Callable[[str], AbstractContextManager[None]]:
    return lambda name: workspace.disk.lock(workspace.local / "locks" / f"{name}.lock")


def _work(workspace: Workspace, agent: str) -> Worked:
    """Bring everything here up to date with what was written by hand, and with what came in."""
    workspace.waits = True  # nobody waits for us
    syncing.take_seat(workspace, agent)
    promoted: list[Promoted] = []
    wiring.hooks(workspace, promoted).settle()
    held = view.glance(workspace)
    with workspace.locked():
        is_new = workspace.store.write(PAGE, wiring.page(workspace, held.notebook))
        workspace.admit(held.notebook)
    return Worked(promoted=[each.text for each in promoted], ready=_made_ready(workspace), page=is_new)


def _made_ready(workspace: Workspace) -> list[str]:
    """Make ready what each agent's next session starts with, unless it is."""
    made = []
    for agent in corrections.agents_here(workspace):
        if ready.text(str(workspace.root), agent) is None:
            starting.session_start(workspace, agent)
            made.append(agent)
    return made


def _sync(workspace: Workspace, agent: str) -> Exchanged:
    """Exchange with the remote that somebody here agreed to.

    Raises:
        NotNowError: there is none, or sharing is paused.
    """
    syncing.take_seat(workspace, agent)
    if held := pause.current(workspace):
        raise NotNowError(f"sharing is paused {held}")
    try:
        remote = syncing.clan_remote(workspace, yes=False, may_ask=False)
    except UsageError as unconfirmed:
        raise NotNowError(str(unconfirmed)) from unconfirmed
    if remote is None:
        raise NotNowError("no remote is named")
    done = wiring.sync(workspace, remote)
    return Exchanged(
        lines_out=done.out,
        records_in=done.patterns_in + done.discoveries_in,
        promoted=list(done.promoted),
        partial=done.is_partial,
    )


def _waiting(workspace: Workspace) -> int:
    """Return how many lines would go out now: those that were written while the sync ran."""
    with workspace.locked():
        return tree.outgoing(workspace, tree.load_base(workspace), may_drop=False).count


def as_text(done: Ticked) -> str:
    """Return what a person is told of a tick."""
    told = []
    if done.worked is not None:
        told.append("brought this machine up to date")
        told += [f"promoted into memory.md: {desk.cleaned(text)}" for text in done.worked.promoted]
    if done.synced is not None:
        verb = "exchanged, in part" if done.synced.partial else "synced"
        told.append(f"{verb}: {desk.counted(done.synced.lines_out, 'line')} out, {done.synced.records_in:,} new in")
        told += [f"promoted into memory.md: {desk.cleaned(text)}" for text in done.synced.promoted]
    elif done.why:
        told.append(f"nothing was sent: {done.why}")
    return "\n".join(told) or f"nothing is due for {done.next_s:.0f} s"
