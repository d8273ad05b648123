"""The exchange: fetch, join, push, and again when somebody was faster.

Lines go first, alone; an edition is a push of its own, put unchanged on a newer head while that head's edition is the
one it was made from, else dropped (DESIGN, section 3, Files). A thin shell around ``tree``, which decides.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from fleet.keep.errors import BusyError
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace
from fleet.share import tree
from fleet.share.remote import Files, Mark, Moved, Remote, RemoteRefused, Whole
from fleet.share.tree import Outgoing, Withheld

if TYPE_CHECKING:
    from random import Random

BACKOFF_S = 0.05
BACKOFF_S_MAX = 120.0
STILL_MAX = 5
"""So many pushes in a row that are not taken though nobody moved the far side are no race, but its refusal."""


class Hooks(msgspec.Struct, frozen=True):
    """What the exchange needs done and does not know how: the verbs never import each other.

    Attributes:
        settle: writes what the agents' logs owe to the shards, after the last fetched tree was read.
        on_clone: gives up a replica id under which somebody else writes.
        render: makes the page that goes with an edition.
        pulled: does what must be done before anything of a fetched tree is taken in.
    """

    settle: Callable[[], object]
    on_clone: Callable[[str, set[tuple[str, str]]], None]
    render: Callable[[Notebook], bytes]
    pulled: Callable[[], object] = bool


class Exchanged(msgspec.Struct):
    """What an exchange did.

    Attributes:
        sent: lines that the remote did not have, by path.
        withheld: lines that stay here, and why.
        lost: lines that the remote had lost, and that were sent again.
        attempts: pulls that were needed.
        edition: whether a new edition was pushed.
        waiting: lines that only an edition can carry, of which this machine writes none while its clock is wrong.
    """

    sent: dict[str, list[bytes]] = msgspec.field(default_factory=dict)
    withheld: list[Withheld] = msgspec.field(default_factory=list)
    lost: int = 0
    attempts: int = 0
    edition: bool = False
    waiting: int = 0

    @property
    def count(self) -> int:
        """How many lines went out."""
        return sum(len(lines) for lines in self.sent.values())


def exchange(
    workspace: Workspace,
    remote: Remote,
    hooks: Hooks,
    *,
    rng: "Random | None",
    sleep: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
    compact: bool = False,
) -> Exchanged:
    """Bring this machine and the remote together. The caller holds the workspace's sync lock.

    With ``compact``, the edition is written whether it is due or not, and afterwards every shard loses what it covers.

    Raises:
        RemoteUnavailable: no answer; everything waits here.
        RemoteRefused: the far side said no; everything waits here.
        BusyError: others were faster as often as we may try.
    """
    done = Exchanged()
    attempts_max = workspace.config.share.attempts
    out = _push_lines(workspace, remote, hooks, done, rng=rng, sleep=sleep, clock=clock)
    _push_edition(workspace, remote, hooks, done, attempts_max, always=compact)
    if workspace.timekeeper.reading().wrong:
        done.waiting = sum(len(lines) for path, lines in out.lines.items() if path not in out.files)
    if done.edition:
        done.sent |= {path: lines for path, lines in out.lines.items() if path not in out.files}
    if compact:
        # Only now: what an edition covers is dropped when that edition is what the remote holds, never before.
        _push_lines(workspace, remote, hooks, done, rng=rng, sleep=sleep, clock=clock, drop_alone=True)
    return done


def _push_lines(
    workspace: Workspace,
    remote: Remote,
    hooks: Hooks,
    done: Exchanged,
    *,
    rng: "Random | None",
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    drop_alone: bool = False,
) -> Outgoing:
    """Pull, and push what waits here, until nobody was faster; return what went out."""
    attempts_max = workspace.config.share.attempts
    at, still = None, 0
    for attempt in range(attempts_max):
        done.attempts += 1
        began_s = clock()
        mark = _pull(workspace, remote, hooks, done)
        hooks.settle()
        out = _plan(workspace, drop_alone=drop_alone)
        done.withheld = out.withheld
        if not out.files:
            return out
        # Noted before they go: a line that is out there and not known as ours would look like a clone's.
        workspace.state.mark_sent(raw for lines in out.lines.values() for raw in lines)
        pushed = remote.push(out.files, mark)
        if not isinstance(pushed, Moved):
            _confirm(workspace, out.files, pushed)
            workspace.state.put(gone_through=out.gone_through)
            for path, lines in out.lines.items():
                if path in out.files:
                    done.sent.setdefault(path, []).extend(lines)
            return out
        at, still = mark, still + 1 if mark == at else 1
        if still == STILL_MAX:
            raise RemoteRefused(
                f"{remote.name} did not take the push {still} times though nobody was faster: {pushed.reason}; "
                "nothing is lost: what waits here goes out with the next `fleet sync` once whoever runs it has looked "
                "whether the branch is hidden from pushes or locked there"
            )
        sleep(_pause(attempt, rng, clock() - began_s))
    raise BusyError(
        f"{remote.name}: others were faster {attempts_max} times in a row; "
        "nothing is lost, your lines wait here and go out with the next `fleet sync`"
    )


def preview(workspace: Workspace, hooks: Hooks) -> Outgoing:
    """Return what an exchange would send now, going by the tree as last fetched. Asks nobody."""
    hooks.settle()
    return _plan(workspace)


def _plan(workspace: Workspace, *, drop_alone: bool = False) -> Outgoing:
    with workspace.locked():
        base = tree.load_base(workspace)
        may_drop = not workspace.timekeeper.reading().wrong
        return tree.outgoing(workspace, base, may_drop=may_drop, drop_alone=drop_alone)


def _pull(workspace: Workspace, remote: Remote, hooks: Hooks, done: Exchanged) -> Mark:
    since = workspace.state.get("mark")
    files, mark = remote.pull(since)
    hooks.pulled()
    if files or mark != since or not since:
        with workspace.locked():
            done.lost += _take(workspace, files, mark, everything=isinstance(files, Whole), on_clone=hooks.on_clone)
    if workspace.lease() and not workspace.state.get("pulled"):
        workspace.state.put(pulled=workspace.lease())  # from here on it is known what was written under the lease
    return mark


def _take(
    workspace: Workspace,
    files: Files,
    mark: Mark,
    *,
    everything: bool,
    on_clone: Callable[[str, set[tuple[str, str]]], None],
) -> int:
    # Without a mark the next pull brings the whole tree: half of a tree that a crash left is never believed.
    workspace.state.put(mark="")
    lost = tree.take(workspace, files, everything=everything, on_clone=on_clone)
    workspace.state.put(mark=mark)
    return lost


def _confirm(workspace: Workspace, files: Files, mark: Mark) -> None:
    """Note what the remote holds now: what it covers leaves our shards, what was appended meanwhile stays."""
    with workspace.locked():
        _take(workspace, files, mark, everything=False, on_clone=lambda _, __: None)


def _push_edition(
    workspace: Workspace, remote: Remote, hooks: Hooks, done: Exchanged, attempts_max: int, *, always: bool
) -> None:
    if workspace.timekeeper.reading().wrong:
        return
    with workspace.locked():
        files = tree.edition(workspace, tree.load_base(workspace), hooks.render, always=always)
    for _ in range(attempts_max if files else 0):
        mark = workspace.state.get("mark")
        pushed = remote.push(files, mark)
        if not isinstance(pushed, Moved):
            _confirm(workspace, files, pushed)
            done.edition = True
            return
        before = {path: workspace.store.read_base(path) for path in files}
        _pull(workspace, remote, hooks, done)
        if any(workspace.store.read_base(path) != data for path, data in before.items()):
            return  # made from an edition that is not there any more: whoever replaced it saw at least as much


def _pause(attempt: int, rng: "Random | None", took_s: float) -> float:
    """Full jitter: those who met once must not meet again in step (Brooker, "Exponential Backoff And Jitter", 2015).

    Measured by how long an attempt takes: who needs a second for one meets others twenty times as often as who needs
    50 ms, and of a hundred each gets through only when they spread over minutes.
    """
    if rng is None:
        from random import Random  # most often nobody was faster

        rng = Random()  # noqa: S311
    return rng.uniform(0, min(BACKOFF_S_MAX, max(BACKOFF_S, 2 * took_s) * 2**attempt))
