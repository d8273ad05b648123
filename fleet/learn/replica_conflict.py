"""Conflict of replicas: somebody else writes under our name, as after a folder was put back from a snapshot.

A replica's totals are a G-Counter: two writers of one column swallow each other's occurrences. So what the clan has of
our column is compared with what this folder knows of it, before anything fetched is taken in. Where it is news to us,
the records that the clan has not counted move to a new name (STORE, section 1, rule 5).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from fleet.learn import corrections_md, counting
from fleet.learn.corrections_md import MOVED, PART, Record
from fleet.model import names
from fleet.model.line import Line
from fleet.store.lines import PATTERNS, Read, entries
from fleet.store.workspace import Workspace


class Conflict(NamedTuple):
    """One lesson under one of our names, of which the clan has an add that this folder never issued."""

    replica: str
    pattern: str
    add: str


def is_foreign(fetched: str, known: Collection[str], before: str, records: Collection[str]) -> bool:
    """Tell whether somebody else issued an add under our name.

    Args:
        fetched: the add of one lesson and writer of ours in the fetched tree; "" for none.
        known: its adds in our rows and files.
        before: its add in the tree that was fetched before; "" for none.
        records: stamps of the records of this lesson and writer in our log.
    """
    is_news = fetched > before and fetched not in known and fetched not in records
    # Without a record of ours that was not fetched there is nothing to swallow: one stray line renames nobody.
    return is_news and any(stamp > before for stamp in records)


def found(workspace: Workspace, fetched: Iterable[Line], before: Callable[[str], Line | None]) -> list[Conflict]:
    """Return the conflicts that a fetched tree shows. Nothing of it has been taken in yet.

    Args:
        workspace: where.
        fetched: the tree's records, as many of them as our rows do not cover.
        before: returns the record in the tree that was fetched before.
    """
    mine = set(workspace.current_replicas())
    logs: dict[str, dict[tuple[str, str], set[str]]] = {}
    conflicts = []
    for line in fetched:
        for name in mine:
            add = line.add_of(name)
            rows = workspace.patterns.line(line.id) if add else None
            if not add or (rows is not None and rows.add_of(name) == add):
                continue
            agent = names.agent_of(name)
            if agent not in logs:
                logs[agent] = _stamps(counting.read_log(workspace, agent).records)
            records = logs[agent].get((line.id, name), set())
            earlier = before(line.id)
            was = earlier.add_of(name) if earlier is not None else ""
            if records and is_foreign(add, _written(workspace, name, line.id), was, records):
                conflicts.append(Conflict(name, line.id, add))
    return conflicts


def _stamps(records: Iterable[Record]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for record in records:
        found.setdefault((record.pattern, record.replica), set()).add(record.at)
    return found


def _written(workspace: Workspace, replica: str, pattern: str) -> set[str]:
    """Return the adds of a lesson that stand in a shard of ours."""
    data = workspace.files.read(workspace.clan / PATTERNS.shard(replica))
    if pattern.encode() not in data:
        return set()
    lines = [entry for _, entry in entries(PATTERNS, iter([data]), "", Read()) if isinstance(entry, Line)]
    return {line.add_of(replica) for line in lines if line.id == pattern}


def resolve(workspace: Workspace, conflicts: Sequence[Conflict]) -> None:
    """Give up the names in conflict: what the clan did not count of our log counts under new ones.

    A name that is lent to all runs of a job stays theirs: parts of two runs do not swallow each other.
    The caller holds the write lock, and takes the tree in afterwards.
    """
    for old in sorted({conflict.replica for conflict in conflicts}):
        agent, is_lent = names.agent_of(old), old == workspace.lease()
        why = (
            "another run of this job does. Both count"
            if is_lent
            else "this machine was restored or copied. It writes under a new replica id from now on"
        )
        workspace.warn(f"somebody else writes as {old}: {why}; nothing is lost or counted twice")
        fresh = old if is_lent else workspace.mint(agent).name
        adds = {conflict.pattern: conflict.add for conflict in conflicts if conflict.replica == old}
        _move_records(workspace, old, fresh, adds)
        for pattern in adds:
            workspace.db.take_back(pattern, old, ("add", "n"))
        workspace.db.note(counting.note_key(agent), "")


def _move_records(workspace: Workspace, old: str, fresh: str, adds: dict[str, str]) -> None:
    """Record anew, under the new name, what is newer than the clan's add. The newest record of an entry counts.

    As parts, which count once whoever brings them: a folder may be put back a second time, to before this.
    """
    agent = names.agent_of(old)
    with workspace.log_lock(agent):
        moved = [
            record._replace(
                replica=fresh,
                at=workspace.clock.tick(),
                extra=record.extra if PART in record.extra else (*record.extra, PART, MOVED),
            )
            for record in corrections_md.latest(counting.read_log(workspace, agent).records)
            if record.replica == old and record.at > adds.get(record.pattern, "~")
        ]
        if moved:
            data = "".join(corrections_md.format_record(record) + "\n" for record in moved)
            workspace.files.append(counting.log_file(workspace, agent), data.encode())
