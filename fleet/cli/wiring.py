"""Where the verbs meet: they never import each other, so the command line joins them."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.cli import desk
from fleet.cli.progress import waiting
from fleet.keep import merging, reading
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import KINDS
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace
from fleet.learn import clones, corrections
from fleet.recall.page import render_page
from fleet.recall.start import session_context
from fleet.share.exchange import Exchanged, Hooks, exchange
from fleet.share.remote import Remote
from fleet.share.tree import PAGE, kind_of


def hooks(workspace: Workspace) -> Hooks:
    """Return what an exchange needs from the other verbs."""
    return Hooks(
        settle=lambda: corrections.settle_all(workspace),
        on_clone=lambda replica, sent: clones.rehome(workspace, replica, sent),
        render=lambda notebook: page(workspace, notebook),
    )


def page(workspace: Workspace, notebook: Notebook) -> bytes:
    """Return the bytes of ``patterns.md``."""
    lessons_max = workspace.config.recall.page_lessons
    return render_page(merging.shown(notebook), members=desk.emoji_of(workspace), lessons_max=lessons_max).encode()


def session_start(workspace: Workspace, agent: str) -> str:
    """Return what this agent reads when its session starts."""
    held = workspace.load()
    undecided = []
    if unfilled := corrections.unfilled(workspace, agent):
        undecided.append(
            f"{desk.counted(unfilled, 'correction')} without a pattern yet: state the lesson in "
            f"agents/{agent}/{corrections.FILE_NAME}"
        )
    return session_context(
        agent=agent,
        memory=workspace.disk.read(workspace.home(agent) / "memory.md").decode("utf-8", "replace"),
        patterns=merging.shown(held.notebook),
        findings=held.findings,
        waiting=undecided,
        delimiter=f"fleet-{workspace.world.entropy(8).hex()}",
        chars_max=workspace.config.recall.start_chars,
        discoveries=workspace.config.recall.discoveries,
        members=desk.emoji_of(workspace),
    )


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
    compact: bool = False,
) -> Synced:
    """Bring this machine and the clan together, or, without a remote, this machine's files in order.

    With ``compact``, editions are written whether they are due or not, and shards lose what they cover.
    """
    before = workspace.load()
    done = Exchanged()
    if remote is not None:
        with waiting(f"Syncing with {remote.name}"):
            try:
                rng = rng or random.Random()  # noqa: S311
                done = exchange(workspace, remote, hooks(workspace), rng=rng, sleep=sleep, compact=compact)
            finally:
                for warning in remote.warnings:
                    workspace.warn(warning)
    else:
        corrections.settle_all(workspace)
        done.edition = _write_local_edition(workspace, always=compact)
    after = workspace.load()
    _join_own(before, done.sent)
    with workspace.locked():
        workspace.store.write(PAGE, page(workspace, after.notebook))
        workspace.admit(after.notebook)
    if remote is not None:
        workspace.state.put(last_sync=workspace.wall())
    return Synced(
        out=done.count,
        patterns_in=0 if remote is None else _changed(before.notebook.patterns, after.notebook.patterns),
        discoveries_in=len(after.findings.entries.keys() - before.findings.entries.keys()),
        withheld=len(done.withheld),
        held=len(after.notebook.held) + after.findings.held(),
        carried=len(after.notebook.carried) + len(after.findings.carried),
        # What went to quarantine on the way left its file: it was skipped all the same, and once.
        refused=max(before.read.count, after.read.count),
        lost=done.lost,
        edition=done.edition,
        skipped=remote.skipped if remote is not None else 0,
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
