"""When somebody else writes under our replica id: a restored machine, or a copy that looks just like us.

We take a new id, and say again under it what the clan has not seen from us. What was sent stays with the old id, which
from now on belongs to the other one.
"""

import msgspec

from fleet.keep.discoveries import Discovery
from fleet.keep.line import Carried, Line
from fleet.keep.names import agent_of
from fleet.keep.notebook import Notebook
from fleet.keep.reading import DISCOVERIES, PATTERNS, Read
from fleet.keep.store import raw_lines
from fleet.keep.workspace import Workspace, Writer
from fleet.learn.corrections import log_file, read_log
from fleet.learn.entries import format_record
from fleet.learn.reconcile import latest


def rehome(workspace: Workspace, old: str, sent: set[tuple[str, str]]) -> None:
    """Give up one of our replica ids. The caller holds the write lock, and base is still the tree before the fetch.

    Args:
        workspace: where.
        old: the id that somebody else writes under as well.
        sent: (pattern, stamp) of its adds that the clan has: an entry among them was counted before we were restored.
    """
    workspace.warn(
        f"somebody else writes as {old}: this machine was restored or copied. It writes under a new replica id from "
        "now on; nothing is lost or counted twice"
    )
    base = workspace.store.load(workspace.timekeeper.reading().cut, workspace.store.base).notebook
    writer = Writer(workspace, workspace.mint(agent_of(old)).name)
    _say_again(writer, old, base, sent)
    _move_unsent(writer, old)


def _say_again(writer: Writer, old: str, base: Notebook, sent: set[tuple[str, str]]) -> None:
    """Record anew, under the new id, the entries that the clan has not seen. The newest record of an entry counts."""
    workspace = writer.workspace
    fresh = []
    for record in latest(read_log(workspace, writer.agent).records):
        line = base.get(record.pattern)
        seen = max(line.add.get(old, ""), line.rem.get(old, "")) if line is not None else ""
        if record.replica == old and record.at > seen and (record.pattern, record.at) not in sent:
            fresh.append(msgspec.structs.replace(record, replica=writer.name, at=writer.tick()))
    if fresh:
        data = "".join(format_record(record) + "\n" for record in fresh)
        workspace.disk.append(log_file(workspace, writer.agent), data.encode())


def _move_unsent(writer: Writer, old: str) -> None:
    store = writer.workspace.store
    for kind in (PATTERNS, DISCOVERIES):
        path = kind.shard(old)
        theirs = set(raw_lines(store.read_base(path)))
        kept: list[bytes] = []
        moved: list[Line | Discovery] = []
        for raw, entry in store.entries(kind, path, Read()):
            if raw in theirs or isinstance(entry, Carried) or writer.workspace.state.was_sent(raw):
                kept.append(raw)
            elif not isinstance(entry, Line):
                moved.append(entry)
            elif rest := _without_own_slots(entry, old, writer):
                moved.append(rest)
        writer.append(kind, moved)
        store.write(path, b"".join(raw + b"\n" for raw in kept))


def _without_own_slots(line: Line, old: str, writer: Writer) -> Line | None:
    """Return the line without the old id's slots; an add that no entry stands for is said again under the new one."""
    add = {replica: stamp for replica, stamp in line.add.items() if replica != old}
    if old in line.add and not line.n:
        add[writer.name] = writer.tick()
    counters = {name: {r: n for r, n in counts.items() if r != old} for name, counts in line.n.items()}
    counters = {name: counts for name, counts in counters.items() if counts}
    # The text stays with the lesson wherever its count goes.
    rest = Line(id=line.id, at=line.at, by=line.by, add=add, rem=line.rem, n=counters, set=line.set, when=line.when)
    return rest if rest.add or rest.rem or rest.n or rest.set else None
