"""Rollback and freeze: is what the remote shows as new as what was read from it before?

A remote, or who stands in front of it, may serve an old state. Nothing goes back here whatever it serves, and what it
no longer has is sent again; this module makes that visible. It remembers the highest stamp ever read of each other
replica. A remote that has lost lines of theirs was *set back*; one that has shown nothing newer for days, while syncs
went well, is *stale*: frozen, or the others are silent. Which of the two it is, only a person can find out.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from crdt import clock
from crdt.clock import Stamp
from fleet.keep import names
from fleet.keep.discoveries import Discovery
from fleet.keep.line import Line
from fleet.keep.reading import Read, entries
from fleet.keep.workspace import Workspace
from fleet.share.tree import kind_of

KEY = "seen_by"
"""Where the state database keeps the highest stamps."""
_NAMED_MAX = 3

Highest = dict[str, Stamp]
"""The highest stamp read, of each replica that is not ours."""


def parse(text: str) -> Highest:
    """Read what was remembered; a damaged note counts as none."""
    try:
        found = msgspec.json.decode(text, type=Highest) if text else {}
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return {replica: stamp for replica, stamp in found.items() if clock.is_stamp(stamp)}


def raised(seen: Highest, newest_by: Mapping[str, Stamp], mine: Iterable[str]) -> Highest:
    """Return the highest stamps after one more look; none ever falls. Imported records are nobody's sign of life."""
    found = dict(seen)
    for replica, stamp in newest_by.items():
        if names.agent_of(replica) != names.IMPORT and stamp > found.get(replica, ""):
            found[replica] = stamp
    for replica in mine:
        found.pop(replica, None)
    return found


def set_back(seen: Highest, sent: Mapping[str, Iterable[bytes]]) -> Highest:
    """Return whose lines went out again though they had been read from the clan before, each with the newest stamp.

    Args:
        seen: the highest stamps from before.
        sent: the lines that the remote did not have, by path.
    """
    found: Highest = {}
    for path, raws in sent.items():
        kind = kind_of(path)
        if kind is None:
            continue
        for _, entry in entries(kind, iter([b"\n".join(raws)]), path, Read()):
            slots = {entry.by: entry.at} if isinstance(entry, Discovery) else {}
            for replica, stamp in (entry.add if isinstance(entry, Line) else slots).items():
                if stamp <= seen.get(replica, ""):
                    found[replica] = max(stamp, found.get(replica, ""))
    return found


def days_stale(seen: Highest, last_sync: Stamp, days: int) -> int:
    """Return for how many days the last sync had shown nothing newer of anybody else, 0 while that is fewer than asked.

    Counted up to the last sync and not until now: who does not sync sees nothing new of any remote.
    """
    newest = max(seen.values(), default="")
    if days <= 0 or not newest or not last_sync:
        return 0
    passed = (_day(last_sync) - _day(newest)).days
    return passed if passed >= days else 0


def _day(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp[:10])


def note(workspace: Workspace, newest_by: Mapping[str, Stamp], sent: Mapping[str, Iterable[bytes]], lost: int) -> None:
    """Remember, after a sync, how far each other replica is; warn if the remote was set back or is stale.

    Args:
        workspace: where the state is, and who hears the warnings.
        newest_by: the newest stamp of each replica in what is here now.
        sent: the lines that went out, by path.
        lost: how many of them the remote had had before.
    """
    mine = {replica.name for replica in workspace.replicas().replicas}
    seen = parse(workspace.state.get(KEY))
    back = set_back(seen, sent) if lost else {}
    others = {replica: stamp for replica, stamp in back.items() if replica not in mine}
    if others:
        workspace.warn(_set_back_text(others))
    now = raised(seen, newest_by, mine)
    if now != seen:
        workspace.state.put(**{KEY: msgspec.json.encode(dict(sorted(now.items()))).decode()})
    if told := stale(workspace):
        workspace.warn(told)


def stale(workspace: Workspace) -> str:
    """Return the staleness warning as of the last sync, or ""."""
    seen, last_sync = parse(workspace.state.get(KEY)), workspace.state.get("last_sync")
    days = days_stale(seen, last_sync, workspace.config.share.stale_days)
    if not days:
        return ""
    newest = max(seen.values())
    return (
        f"nothing new from anybody else for {days} days: the newest lesson of another replica is of {newest[:10]}. "
        "Nothing is lost. If others did write since, this remote is frozen or an old copy: compare "
        "`git ls-remote` here and on their machines"
    )


def _set_back_text(back: Highest) -> str:
    named = ", ".join(
        f"{replica} (up to {back[replica][:16].replace('T', ' ')}Z)" for replica in sorted(back)[:_NAMED_MAX]
    )
    more = f" and {len(back) - _NAMED_MAX} more" if len(back) > _NAMED_MAX else ""
    return (
        f"the remote was set back: it no longer had lines of {named}{more} that were read from it before. "
        "Nothing went back here, and they were sent again"
    )
