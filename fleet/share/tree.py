"""What to take from a fetched tree and what to send to it: decided here, done by the exchange.

Three views of one clan: *local* is what people see here, *base* is what the remote held when we last looked, and the
*edition* is the part of base that is joined. A local line that base does not cover is still to be sent; a base line
that base's own edition covers may be dropped from its shard. Nothing read here ever goes back: what a rewound remote
no longer covers stays in its file and is sent again.
"""

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fleet.keep import members, names, view
from fleet.keep.line import Carried, Line
from fleet.keep.notebook import Notebook, edition_cut
from fleet.keep.reading import KINDS, PATTERNS, Entry, Kind, Read, entries
from fleet.keep.store import Held, raw_lines
from fleet.keep.workspace import Workspace
from fleet.share import gate
from fleet.share.remote import Files

if TYPE_CHECKING:
    from fleet.keep.glimpse import View

MEMBERS = "members.toml"
PAGE = "patterns.md"
ATTRIBUTES = ".gitattributes"
ATTRIBUTES_TEXT = b"*.jsonl merge=union -text\n*.md merge=union\n*.toml merge=union\n"


class Withheld(NamedTuple):
    """A line that stays on this machine, and why."""

    path: str
    raw: bytes
    reason: str


class Outgoing(msgspec.Struct):
    """What a push would carry.

    Attributes:
        files: whole new content of each path that changes.
        lines: the lines in them that the remote does not have, by path.
        withheld: lines that the gate holds back.
        gone_through: the editions whose shards were gone through for lines to drop, to be noted once it is pushed.
    """

    files: Files = msgspec.field(default_factory=dict)
    lines: dict[str, list[bytes]] = msgspec.field(default_factory=dict)
    withheld: list[Withheld] = msgspec.field(default_factory=list)
    gone_through: str = ""

    @property
    def count(self) -> int:
        """How many lines go out."""
        return sum(len(lines) for lines in self.lines.values())


class Base:
    """The fetched tree, joined twice: its edition alone, and everything. Each is read when it is asked for.

    Args:
        whole: reads the joined files and all shards.
        edition: reads the joined files of the tree.

    Attributes:
        edition: what the second one read. Parts that nobody may fold yet are not joined.
        whole: what the first one read.
    """

    def __init__(self, whole: Callable[[], Held], edition: Callable[[], Held]) -> None:
        self._whole = whole
        self._edition = edition

    @cached_property
    def whole(self) -> Held:
        """The joined files and all shards."""
        return self._whole()

    @cached_property
    def edition(self) -> Held:
        """The joined files of the tree."""
        return self._edition()


def load_base(workspace: Workspace) -> Base:
    """Join the fetched tree under the cut that editions use; in a large clan, as far as somebody asks for it."""
    fetched = workspace.store.fetched()
    seen = view.opened(workspace) if fetched is not None else None
    return _load_whole_base(workspace) if seen is None or fetched is None else _glance_base(workspace, seen, fetched)


def _glance_base(workspace: Workspace, seen: "View", fetched: dict[str, int]) -> Base:
    """The fetched tree as the beginnings of the files here, of which the index knows where each line stands."""
    from fleet.keep.glimpse import Glimpse, GlimpsedFindings

    whole = cache(lambda: _load_whole(workspace))
    edition = cache(lambda: _load_joined(workspace, whole().notebook.cut))
    # Our own lines that wait here count as witnesses of the time, too; what is folded is decided by the whole.
    everywhere = Notebook(workspace.timekeeper.reading().cut)
    everywhere.newest_by = seen.newest_by()
    cut = edition_cut(everywhere)
    prefix = workspace.store.clan.relative_to(workspace.root).as_posix()
    region = {f"{prefix}/{path}": size for path, size in fetched.items()}
    joined = {f"{prefix}/{kind.edition}": region.get(f"{prefix}/{kind.edition}", 0) for kind in KINDS}
    return Base(
        lambda: Held(
            Glimpse(cut, seen, lambda: whole().notebook, region),
            GlimpsedFindings(cut, seen, lambda: whole().findings, region),
        ),
        lambda: Held(
            Glimpse(cut, seen, lambda: edition().notebook, joined),
            GlimpsedFindings(cut, seen, lambda: edition().findings, joined),
        ),
    )


def _load_whole_base(workspace: Workspace) -> Base:
    whole = cache(lambda: _load_whole(workspace))
    return Base(whole, lambda: _load_joined(workspace, whole().notebook.cut))


def _load_whole(workspace: Workspace) -> Held:
    store = workspace.store
    whole = store.load(workspace.timekeeper.reading().cut, store.base)
    careful = edition_cut(whole.notebook)
    if max(whole.notebook.newest_by.values(), default="") > careful:  # some part of it must not be folded
        return store.load(careful, store.base)
    whole.notebook.cut = whole.findings.cut = careful
    return whole


def _load_joined(workspace: Workspace, cut: str) -> Held:
    return workspace.store.load(cut, workspace.store.base, joined_only=True)


def kind_of(path: str) -> Kind | None:
    """Return the kind of log that a path belongs to."""
    for kind in KINDS:
        folder, _, name = path.rpartition("/")
        if path == kind.edition or (folder == f"{kind.name}.d" and names.is_replica(name.removesuffix(".jsonl"))):
            return kind
    return None


def take(
    workspace: Workspace, files: Files, *, everything: bool, on_clone: Callable[[str, set[tuple[str, str]]], None]
) -> int:
    """Take fetched files in. Returns how many lines the remote had lost, which will be sent again.

    Args:
        workspace: where.
        files: the changed paths; b"" for one that is gone.
        everything: the files are the whole tree, so that base must hold nothing else.
        on_clone: called with one of our replica ids under which somebody else writes, and the adds that the clan has
            of it, before anything is changed.
    """
    store = workspace.store
    for replica in _cloned(workspace, files):
        on_clone(replica, _adds(files, replica))
    if everything:
        gone = [path for kind in KINDS for path in store.paths(kind, store.base) if path not in files]
        files = {**files, **dict.fromkeys(gone, b"")}
    # Editions first: after a crash in between, a line stands in two files, never in none.
    files = dict(sorted(files.items(), key=lambda item: ("/" in item[0], item[0])))
    ours: dict[str, list[bytes]] = {}
    theirs_before: set[bytes] = set()
    for path, data in files.items():
        kind = kind_of(path)
        old_base = store.read_base(path)
        if kind is not None:
            before = set(raw_lines(old_base))
            # A carried line that they took out was superseded by a version that understands it.
            ours[path] = [
                raw for raw in _not_in(store.read(path), data) if not (raw in before and _is_carried(kind, raw))
            ]
            theirs_before |= before.intersection(ours[path])
        elif path == MEMBERS:
            joined = members.merge(*(members.parse(each) for each in (old_base, store.read(path), data)))
            store.write(path, members.render(joined) if joined else data)
        store.write_base(path, data)
    base = load_base(workspace) if any(ours.values()) else None
    lost = 0
    # In two steps: after a revert, a line of the edition may be covered by a shard that is not written here yet. Until
    # all files are, a line goes only where the fetched edition covers it, which is written first.
    first = {path: _uncovered(path, lines, base.edition if base else None) for path, lines in ours.items()}
    kept = {path: _uncovered(path, lines, base.whole if base else None) for path, lines in first.items()}
    for path, lines in first.items():
        store.write(path, _with_lines(files[path], lines))
    for path, lines in kept.items():
        left = _without_quarantined(workspace, path, lines)
        if left != first[path]:
            store.write(path, _with_lines(files[path], left))
        lost += len(theirs_before.intersection(left))
    return lost


def _not_in(mine: bytes, theirs: bytes) -> list[bytes]:
    if theirs.startswith(mine):
        return []
    known = set(raw_lines(theirs))
    return [raw for raw in raw_lines(mine) if raw not in known]


def _with_lines(data: bytes, lines: Iterable[bytes]) -> bytes:
    more = b"".join(raw + b"\n" for raw in lines)
    return data + b"\n" + more if more and data and not data.endswith(b"\n") else data + more


def _parsed(kind: Kind, raw: bytes, path: str, read: Read | None = None) -> Entry | None:
    found = list(entries(kind, iter([raw]), path, Read() if read is None else read))
    return found[0][1] if found else None


def _is_carried(kind: Kind, raw: bytes) -> bool:
    return isinstance(_parsed(kind, raw, ""), Carried)


def _is_covered(path: str, raw: bytes, held: Held) -> bool:
    """A line that cannot be read covers nothing and is covered by nothing."""
    kind = kind_of(path)
    entry = _parsed(kind, raw, path) if kind is not None else None
    return kind is not None and entry is not None and held.of(kind).covers(entry)


def _uncovered(path: str, lines: list[bytes], held: Held | None) -> list[bytes]:
    return [raw for raw in lines if held is None or not _is_covered(path, raw, held)]


def _without_quarantined(workspace: Workspace, path: str, lines: list[bytes]) -> list[bytes]:
    """Drop lines that cannot be read and whose bytes are in quarantine: they need not be refused again every time."""
    kind = kind_of(path)
    bad = {raw for raw in lines if kind is not None and _parsed(kind, raw, path) is None}
    if bad:
        bad &= {kept.raw for kept in workspace.quarantine.all()}
    return [raw for raw in lines if raw not in bad]


def _cloned(workspace: Workspace, files: Files) -> list[str]:
    """Return our replica ids under which lines turn up that this machine neither holds nor ever sent."""
    found = []
    for replica in workspace.current_replicas():
        for path in (kind.shard(replica) for kind in KINDS if kind.shard(replica) in files):
            known = workspace.store.read(path) + b"\n" + workspace.store.read_base(path)
            if any(not workspace.state.was_sent(raw) for raw in _not_in(files[path], known)):
                found.append(replica)
                break
    return found


def _adds(files: Files, replica: str) -> set[tuple[str, str]]:
    """Return (pattern, stamp) of every add that the files hold in a replica's slot."""
    found = set()
    for path, data in files.items():
        if kind_of(path) is PATTERNS:
            for _, entry in entries(PATTERNS, iter([data]), path, Read()):
                if isinstance(entry, Line) and replica in entry.add:
                    found.add((entry.id, entry.add[replica]))
    return found


def outgoing(workspace: Workspace, base: Base, *, may_drop: bool, drop_alone: bool = False) -> Outgoing:
    """Return what to push on the tree that base mirrors: our new lines, without what its edition covers anyway.

    Args:
        workspace: where.
        base: the fetched tree, joined.
        may_drop: False when this machine's clock is wrong: then nothing is dropped.
        drop_alone: what may be dropped is worth a push of its own, even when no line goes out.
    """
    out = Outgoing()
    store = workspace.store
    private = _private(workspace)
    for kind in KINDS:
        # What a person put straight into the edition goes out with the next edition.
        for path in sorted({*store.paths(kind), *store.paths(kind, store.base)}):
            lines = store.unsent(path)
            if lines and (new := _sendable(kind, path, lines, base.whole, private, out)):
                out.lines[path] = new
    named = members.parse(store.read(MEMBERS))
    if named and named != members.parse(store.read_base(MEMBERS)):
        data = members.render(named)
        if why := gate.in_texts([data.decode()]):
            out.withheld.append(Withheld(MEMBERS, data, "; ".join(why)))
        else:
            out.files[MEMBERS] = data
    shards = [path for path in out.lines if not _is_edition(path)]
    if shards or out.files or drop_alone:
        drops = _drops(workspace, base, out) if may_drop else {}
        for path in shards:
            kept = drops.pop(path) if path in drops else raw_lines(store.read_base(path))
            out.files[path] = _with_lines(b"", [*kept, *out.lines[path]])
        out.files.update({path: _with_lines(b"", kept) for path, kept in drops.items()})
    return out


def _is_edition(path: str) -> bool:
    return any(path == kind.edition for kind in KINDS)


def _drops(workspace: Workspace, base: Base, out: Outgoing) -> dict[str, list[bytes]]:
    """Return, for each fetched shard that loses lines which the fetched edition covers, the lines that stay.

    What an edition did not cover when its shards were gone through, it does not cover later: once an edition is enough.
    """
    store = workspace.store
    out.gone_through = " ".join(str(each) for kind in KINDS for each in store.base_signature(kind.edition))
    if out.gone_through == workspace.state.get("gone_through"):
        return {}
    found = {}
    for kind in KINDS:
        for path in store.paths(kind, store.base):
            lines = raw_lines(store.read_base(path)) if path != kind.edition else []
            kept = [raw for raw in lines if not _is_covered(path, raw, base.edition)]
            if len(kept) < len(lines):
                found[path] = kept
    return found


def _private(workspace: Workspace) -> set[str]:
    """Return the patterns of which nothing may leave: not a later line either, which does not say so itself."""
    store = workspace.store
    said = Notebook()
    for path in store.paths(PATTERNS):
        for raw in store.unsent(path):
            if isinstance(entry := _parsed(PATTERNS, raw, path), Line):
                said.add(entry)
    return {line.id for line in said.patterns.values() if gate.is_private(line.set)}


def _sendable(kind: Kind, path: str, lines: list[bytes], whole: Held, private: set[str], out: Outgoing) -> list[bytes]:
    sendable = []
    for raw in lines:
        entry = _parsed(kind, raw, path)
        if entry is None or whole.of(kind).covers(entry):
            continue  # refused lines are reported by every load; covered ones are there already
        if why := gate.reasons(entry, private):
            out.withheld.append(Withheld(path, raw, "; ".join(why)))
        else:
            sendable.append(raw)
    return sendable


def edition(workspace: Workspace, base: Base, render: Callable[[Notebook], bytes], *, always: bool = False) -> Files:
    """Return the files of a new edition, or nothing when none is due; ``always`` asks for one that is not due, too.

    Below a size, whenever the tree's edition is not the join of the tree; above, when a good part of the tree is not
    covered by it. Lines that a person put straight into the edition here are in it too.
    """
    extra = _extra_lines(workspace, base)
    files: Files = {}
    for kind in KINDS:
        whole = base.whole.of(kind)
        for entry in extra.get(kind.name, []):
            whole.add(entry)
        if always or extra.get(kind.name) or _is_due(workspace, kind, base):
            data = whole.edition()
            if data and data != workspace.store.read_base(kind.edition):
                files[kind.edition] = data
    if PATTERNS.edition in files:
        files[PAGE] = render(base.whole.notebook)
    if files and workspace.store.read_base(ATTRIBUTES) != ATTRIBUTES_TEXT:
        files[ATTRIBUTES] = ATTRIBUTES_TEXT
    return files


def _extra_lines(workspace: Workspace, base: Base) -> dict[str, list[Entry]]:
    """Return what stands in the local editions and is not covered by the tree, as far as it may leave."""
    extra: dict[str, list[Entry]] = {}
    private = _private(workspace)
    for kind in KINDS:
        path = kind.edition
        for raw in workspace.store.unsent(path):
            entry = _parsed(kind, raw, path)
            if entry is not None and not base.whole.of(kind).covers(entry) and not gate.reasons(entry, private):
                extra.setdefault(kind.name, []).append(entry)
    return extra


def _is_due(workspace: Workspace, kind: Kind, base: Base) -> bool:
    store, keep = workspace.store, workspace.config.keep
    sizes = {path: (store.base / path).stat().st_size for each in KINDS for path in store.paths(each, store.base)}
    if sum(sizes.values()) < keep.edition_always_bytes:
        return True
    due = keep.edition_uncovered_share * sizes.get(kind.edition, 0)
    if sum(size for path, size in sizes.items() if path.startswith(f"{kind.name}.d/")) <= due:
        return False
    uncovered = sum(
        len(raw)
        for path in store.paths(kind, store.base)
        if path != kind.edition
        for raw, entry in store.entries(kind, path, Read(), store.base)
        if not base.edition.of(kind).covers(entry)
    )
    return uncovered > due
