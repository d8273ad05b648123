"""Records for tests: a line from what its writers said, in a few words."""

from collections.abc import Collection, Mapping

from fleet.model.line import Column, Line
from fleet.model.pattern import Pattern, Policy, author_field, fold
from fleet.store import replica
from fleet.store.workspace import Workspace

AT = "2026-03-15T14:30:00.000Z-0000"


def line(
    record: str,
    seen: Mapping[str, int],
    *,
    add: Mapping[str, str] | None = None,
    rem: Mapping[str, str] | None = None,
    counters: Mapping[str, Mapping[str, int]] | None = None,
    edits: Mapping[str, tuple[str, str, object]] | None = None,
    imported: Mapping[str, int] | None = None,
    **first: object,
) -> Line:
    """Return a record.

    Args:
        record: its id.
        seen: writer to how often it occurred.
        add: writer to add; every writer of ``seen`` has one.
        rem: writer to the add that is taken away, said by a writer of its own.
        counters: other counters.
        edits: field to (stamp, writer, value).
        imported: hash to how often it occurred, told by an importer.
        first: first wordings, all in the column of the first writer, but for a ``state``, which is an edit of its.
    """
    said: dict[str, dict[str, object]] = {}

    def column(writer: str) -> dict[str, object]:
        return said.setdefault(writer, {"n": {}, "set": {}, "first": {}})

    for writer, total in seen.items():
        column(writer)["n"]["seen"] = total
        column(writer)["add"] = AT
    for name, totals in (counters or {}).items():
        for writer, total in totals.items():
            column(writer)["n"][name] = total
    for field, (stamp, writer, value) in (edits or {}).items():
        column(writer)["set"][field] = (stamp, value)
    if imported:
        importer = column("porter.0a0b0c0d")
        importer |= {"add": AT, "parts": {"seen": dict(imported)}}
        importer["first"] |= {author_field(part): "" for part in imported}
    for writer, stamp in (add or {}).items():
        column(writer)["add"] = stamp
    if rem:
        column("remover.0a0b0c0d")["rem"] = dict(rem)
    own = column(next(iter(said), "tank.c0ffee42"))
    if "state" in first:  # nobody words it when logging
        own["set"]["state"] = (AT, first.pop("state"))
    own["first"] |= first
    return Line(record, {writer: Column(**parts) for writer, parts in said.items()})


def pattern(record: str, seen: Mapping[str, int], *, elsewhere: Collection[str] = (), **more: object) -> Pattern:
    """Return the same, folded where all its writers write, but for those elsewhere."""
    made = line(record, seen, **more)
    return fold(made, Policy(mine=frozenset(made.w) - {*elsewhere}))


def mint(workspace: Workspace, name: str) -> None:
    """Have a replica of a name of one's own write in a workspace. The caller holds the write lock."""
    folder = replica.folder_fingerprint(workspace.root)
    made = replica.Replica(name, workspace.world.machine(), folder, AT)
    workspace.files.replace(workspace.replica_file, workspace.replicas().with_replica(made).render())
