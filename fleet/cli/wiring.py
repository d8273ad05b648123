"""Where the verbs meet: they never import each other, so the command line joins them."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.cli import desk, remembering, starting
from fleet.cli.progress import waiting
from fleet.keep import reading, shown, view
from fleet.keep.errors import FleetError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import KINDS
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace
from fleet.learn import clones, corrections
from fleet.recall.page import render_page
from fleet.reflect import retiring
from fleet.reflect.promoting import Promoted
from fleet.share import freshness
from fleet.share.exchange import Exchanged, Hooks, exchange
from fleet.share.remote import Remote
from fleet.share.tree import PAGE, kind_of

session_start = starting.session_start

PROMISING = 100
"""How many of the best-evidenced lessons of a large clan are looked at with each sync: far more than a memory holds."""


def hooks(workspace: Workspace, promoted: list[Promoted] | None = None) -> Hooks:
    """Return what an exchange needs from the other verbs; with ``promoted``, lessons are promoted on the way.

    That happens where what was fetched is known and nothing went out yet: so the clan hears of it in the same sync.
    """

    def settle() -> None:
        corrections.settle_all(workspace)
        if promoted is not None:
            promoted.extend(promote_all(workspace))

    return Hooks(
        settle=settle,
        on_clone=lambda replica, sent: clones.rehome(workspace, replica, sent),
        render=lambda notebook: page(workspace, notebook),
    )


def page(workspace: Workspace, notebook: Notebook) -> bytes:
    """Return the bytes of ``patterns.md``."""
    lessons_max = workspace.config.recall.page_lessons
    shown, total = view.best(notebook, "sight", lessons_max)
    members = desk.emoji_of(workspace)
    return render_page(shown, members=members, lessons_max=lessons_max, total=total).encode()


def promote_all(workspace: Workspace) -> list[Promoted]:
    """Take into each agent's memory here what there is the evidence for by now, out of it what the clan retired.

    The clan is told what was shown, too.

    What goes wrong with one agent's memory is a warning: lessons are safe, and the next sync tries again.
    """
    promoted: list[Promoted] = []
    if workspace.is_read_only:
        return promoted
    held, settings = view.glance(workspace), workspace.config.promotion
    lessons, is_all = view.promising(workspace, held.notebook, PROMISING)
    lesson = remembering.lesson_of(held.notebook)
    for agent in corrections.agents_here(workspace):
        try:
            with workspace.writing(agent) as writer:
                workspace.admit(held.notebook)
                remembering.tell_left(workspace, agent, retiring.take_out(workspace, agent, lesson))
                if settings.mode != "off":
                    promoted += remembering.promote(writer, held, lessons, is_all=is_all).promoted
                if shown.is_due(workspace, agent):
                    held.notebook.add_all(shown.roll_up(writer, held.notebook.get))
        except FleetError as why:
            workspace.warn(f"{agent}'s memory is as it was: {why}")
    return promoted


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync did, in numbers.

    Attributes:
        out: lines sent.
        patterns_in: patterns that are new or changed here.
        discoveries_in: discoveries that are new here.
        withheld: lines that the gate kept here.
        held: parts stamped beyond the cut.
        carried: lines of newer versions.
        refused: lines that could not be read.
        lost: lines that the remote had lost.
        edition: whether a new edition was written.
        skipped: files of the remote's that were not read: links, or too large.
        promoted: lessons that entered a memory here.
    """

    out: int
    patterns_in: int
    discoveries_in: int
    withheld: int
    held: int
    carried: int
    refused: int
    lost: int
    edition: bool
    skipped: int
    promoted: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether something was skipped: then nobody may say that all is in sync."""
        return bool(self.withheld or self.held or self.refused or self.skipped)


def sync(
    workspace: Workspace,
    remote: Remote | None,
    *,
    rng: random.Random | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    compact: bool = False,
) -> Synced:
    """Bring this machine and the clan together, or, without a remote, this machine's files in order.

    With ``compact``, editions are written whether they are due or not, and shards lose what they cover.
    """
    news = _News(workspace)
    done, promoted = Exchanged(), list[Promoted]()
    if remote is not None:
        with waiting(f"Syncing with {remote.name}"):
            try:
                rng = rng or random.Random()  # noqa: S311
                needs = hooks(workspace, promoted)
                done = exchange(workspace, remote, needs, rng=rng, sleep=sleep, clock=clock, compact=compact)
            finally:
                for warning in remote.warnings:
                    workspace.warn(warning)
    else:
        hooks(workspace, promoted).settle()
        done.edition = _write_local_edition(workspace, always=compact)
    after = view.glance(workspace)
    patterns_in, discoveries_in = news.since(after, done.sent)
    with workspace.locked():
        workspace.store.write(PAGE, page(workspace, after.notebook))
        workspace.admit(after.notebook)
    if remote is not None:
        workspace.state.put(last_sync=workspace.wall())
        freshness.note(workspace, after.notebook.newest_by, done.sent, done.lost)
    return Synced(
        out=done.count,
        patterns_in=0 if remote is None else patterns_in,
        discoveries_in=discoveries_in,
        withheld=len(done.withheld),
        held=len(after.notebook.held) + after.findings.held(),
        carried=len(after.notebook.carried) + len(after.findings.carried),
        # What went to quarantine on the way left its file: it was skipped all the same, and once.
        refused=max(news.refused, after.read.count),
        lost=done.lost,
        edition=done.edition,
        skipped=remote.skipped if remote is not None else 0,
        promoted=tuple(each.text for each in promoted),
    )


class _News:
    """What is new here since it was made, but for what we sent ourselves.

    Where the index serves, it tells which records are other ones now; else all of them are compared.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._before: Held | None = None
        corrections.settle_all(workspace)  # our own words are no news
        if view.opened(workspace) is None:
            self._before = workspace.load()
        workspace.changed.clear()

    @property
    def refused(self) -> int:
        """How many lines could not be read."""
        return self._before.read.count if self._before is not None else 0

    def since(self, after: Held, sent: dict[str, list[bytes]]) -> tuple[int, int]:
        """Return how many patterns are new or changed, and how many discoveries are new."""
        if self._before is None and after.notebook.index is not None:
            kinds = [key[:2] for key in self._workspace.changed]
            return kinds.count("p-"), kinds.count("d-")
        before = self._before
        if before is None:
            return 0, 0
        _join_own(before, sent)
        return (
            _changed(before.notebook.patterns, after.notebook.patterns),
            len(after.findings.entries.keys() - before.findings.entries.keys()),
        )


def _join_own(before: Held, sent: dict[str, list[bytes]]) -> None:
    """What we sent ourselves did not come in."""
    for path, raws in sent.items():
        kind = kind_of(path)
        if kind is not None:
            for _, entry in reading.entries(kind, iter([b"\n".join(raws)]), path, reading.Read()):
                before.of(kind).add(entry)


def _changed(before: dict[str, Line], after: dict[str, Line]) -> int:
    return sum(before.get(pattern) != line for pattern, line in after.items())


def _write_local_edition(workspace: Workspace, *, always: bool = False) -> bool:
    """Write the joined files where nobody is asked: a small clan's are always whole. Shards stay as they are.

    They are not emptied, since no remote holds what they say: an edition that was never fetched covers nothing.
    """
    if workspace.timekeeper.reading().wrong:
        return False
    written = False
    with workspace.locked():
        held = workspace.load()
        for kind in KINDS:
            data = held.of(kind).edition()
            if always or len(data) < workspace.config.keep.edition_always_bytes:
                written = (bool(data) and workspace.store.write(kind.edition, data)) or written
    return written
