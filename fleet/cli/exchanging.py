"""A sync, done: the exchange, what came of it here, and the page for people.

What it needs of the other verbs is imported and done while the far side is waited for, as far as it can be.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from fleet.cli.progress import patient, waiting
from fleet.keep import reading, view
from fleet.keep.errors import FleetError
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.reading import KINDS
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace
from fleet.share.exchange import Exchanged, Hooks, exchange
from fleet.share.meanwhile import Meanwhile
from fleet.share.remote import Remote
from fleet.share.tree import MEMBERS, PAGE, kind_of

if TYPE_CHECKING:
    from random import Random

    from fleet.reflect.promoting import Promoted


class Synced(msgspec.Struct, frozen=True):
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
        waiting: lines that wait for the next edition, since this machine's clock is wrong.
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
    waiting: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether something was skipped or stays here: then nobody may say that all is in sync."""
        return bool(self.withheld or self.held or self.refused or self.skipped or self.waiting)


def sync(
    workspace: Workspace,
    remote: Remote | None,
    *,
    rng: "Random | None" = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    compact: bool = False,
    meanwhile: Meanwhile | None = None,
) -> Synced:
    """Bring this machine and the clan together, or, without a remote, this machine's files in order.

    Whoever syncs expects it to take a while, so it waits for the search index where that is missing or far behind.

    Args:
        workspace: where.
        remote: whom with; None for nobody.
        rng: draws how long to wait for others.
        sleep: waits so many seconds.
        clock: tells for how long an attempt went on, seconds.
        compact: editions are written whether they are due or not, and shards lose what they cover.
        meanwhile: what the remote does while it waits. Without one, all is done in its turn.
    """
    with patient(workspace):
        return _synced(workspace, remote, rng, sleep, clock, compact=compact, meanwhile=meanwhile)


def _synced(
    workspace: Workspace,
    remote: Remote | None,
    rng: "Random | None",
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    *,
    compact: bool,
    meanwhile: Meanwhile | None,
) -> Synced:
    news, page = _News(workspace), _Page(workspace)
    done, promoted = Exchanged(), list["Promoted"]()
    if remote is None or meanwhile is None:
        news.begin()
    else:
        meanwhile.add(news.begin)
    if remote is not None:
        needs = _needs(workspace, promoted, page, meanwhile)
        with waiting(f"Syncing with {remote.name}"):
            try:
                done = exchange(workspace, remote, needs, rng=rng, sleep=sleep, clock=clock, compact=compact)
            except FleetError as theirs:
                # Our own words are settled, whatever became of the exchange.
                ours = meanwhile.trouble() if meanwhile is not None else None
                _tell_both(workspace, theirs, ours)
                raise
            finally:
                for warning in remote.warnings:
                    workspace.warn(warning)
    else:
        _needs(workspace, promoted, page, None).settle()
        done.edition = _write_local_edition(workspace, always=compact)
    after = view.glance(workspace)
    patterns_in, discoveries_in = news.since(after, done.sent)
    with workspace.locked():
        workspace.store.write(PAGE, page.of(after))
        workspace.admit(after.notebook)
    if remote is not None:
        from fleet.share import freshness

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
        waiting=done.waiting,
    )


def _tell_both(workspace: Workspace, theirs: FleetError, ours: Exception | None) -> None:
    """See to it that of two troubles, the exchange's and our own while it ran, a person hears of both.

    Raises:
        Exception: ours, if it is a fault in fleet: then the exchange's is the one that is warned of.
    """
    if isinstance(ours, FleetError):
        workspace.warn(f"meanwhile, on this machine: {ours}")
    elif isinstance(ours, OSError):
        workspace.warn(f"meanwhile, on this machine: {ours.filename or 'a file'}: {ours.strerror or ours}")
    elif ours is not None:
        workspace.warn(str(theirs))
        raise ours from theirs


def _needs(workspace: Workspace, promoted: "list[Promoted]", page: "_Page", meanwhile: Meanwhile | None) -> Hooks:
    """Return what an exchange needs from the other verbs, none of which is imported until then."""

    def settle() -> None:
        from fleet.cli import wiring

        wiring.hooks(workspace, promoted).settle()
        if meanwhile is not None:
            meanwhile.add(page.gather)  # what goes out now changes nothing of what is read here
            meanwhile.add(page.make)

    def on_clone(replica: str, sent: set[tuple[str, str]]) -> None:
        from fleet.cli import wiring

        wiring.hooks(workspace).on_clone(replica, sent)

    return Hooks(
        settle=settle,
        on_clone=on_clone,
        render=lambda notebook: _rendered(workspace, notebook),
        pulled=bool if meanwhile is None else meanwhile.finish,
    )


def _rendered(workspace: Workspace, notebook: Notebook) -> bytes:
    from fleet.cli import wiring

    return wiring.page(workspace, notebook)


class _Page:
    """The page for people, made before it is needed where nothing of what it is made of changes any more."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._looks: object = None
        self._found: tuple[list[Line], int] | None = None
        self._made: bytes | None = None

    def gather(self) -> None:
        """Look up what is on it now."""
        from fleet.cli import wiring

        self._looks, self._made = self._look(), None
        self._found = wiring.page_lessons(self._workspace, view.glance(self._workspace).notebook)

    def make(self) -> None:
        """Make it of what was looked up."""
        from fleet.cli import wiring

        if self._found is not None:
            self._made = wiring.page_of(self._workspace, *self._found)

    def of(self, held: Held) -> bytes:
        """Return the page of what is here: the one that was made, if no file that it comes from is another one now."""
        if self._made is not None and self._looks == self._look():
            return self._made
        return _rendered(self._workspace, held.notebook)

    def _look(self) -> object:
        return self._workspace.looks.signature(), self._workspace.store.read(MEMBERS)


class _News:
    """What is new here since it began, but for what we sent ourselves.

    Where the index serves, it tells which records are other ones now; else all of them are compared.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._before: Held | None = None

    def begin(self) -> None:
        """Count from here on."""
        from fleet.cli import wiring  # noqa: F401 - what the next step needs, imported while there is time
        from fleet.learn import corrections

        corrections.settle_all(self._workspace)  # our own words are no news
        if view.opened(self._workspace) is None:
            self._before = self._workspace.load()
        self._workspace.changed.clear()

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
