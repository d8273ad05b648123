"""The policy of sharing: what must not leave, and whose lines may be missing.

- The gate holds every line back that has a secret or an invisible character in it, or that is private; and whatever was
  taken back here before it had left.
- Rollback and freeze: a remote, or who stands in front of it, may serve an old state. Nothing goes back here whatever
  it serves, and what it no longer has is sent again; this makes it visible. The rows remember what was read. A remote
  that has lost lines of others was *set back*; one that has shown nothing newer for days, while syncs went well, is
  *stale*: frozen, or the others are silent. Which of the two, only a person finds out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from crdt.clock import ZERO, Stamp
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.store.lines import Entry
from fleet.store.workspace import Workspace
from fleet.text import screening

# --- the gate -------------------------------------------------------------------------------------------------------

PRIVATE = "scope is private"


def reasons(entry: Entry) -> list[str]:
    """Return why an entry must not be sent; empty when it may go."""
    if isinstance(entry, Line):
        said = [*entry.said()]
        if ("scope", "private") in said:
            return [PRIVATE]
        return in_texts([text for pair in said for text in _texts(pair)])
    if isinstance(entry, Discovery):
        return in_texts([entry.problem, entry.solution, entry.context, entry.type, entry.confidence, *entry.tags])
    # Decoded, since JSON's escapes would hide a secret; and as it stands, since a newer version may read it so.
    found = json.loads(entry.raw)
    if _says_private(found):
        return [PRIVATE]
    return in_texts([*_texts(found), entry.raw.decode("utf-8", "replace")])


def in_texts(texts: list[str]) -> list[str]:
    """Return why texts must not be sent."""
    kinds = sorted({kind for text in texts for kind in screening.screen(text).secrets})
    found = [f"holds a secret ({', '.join(kinds)})"] if kinds else []
    if any(screening.strip_controls(text) != text for text in texts):
        found.append("holds control or invisible characters")
    return found


def _says_private(value: object) -> bool:
    """Tell whether some object in a newer version's line says private, whatever it stands in."""
    if isinstance(value, dict):
        scope = value.get("scope")
        is_edit = isinstance(scope, list) and "private" in scope
        return scope == "private" or is_edit or any(_says_private(inner) for inner in value.values())
    return isinstance(value, list) and any(_says_private(inner) for inner in value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


# --- rollback and freeze --------------------------------------------------------------------------------------------

_NAMED_MAX = 3


def warn_of_old_state(workspace: Workspace, lost: Iterable[Entry]) -> None:
    """Warn, after a sync, of a remote that was set back or is stale; ``lost`` is what it had had before."""
    mine, back = _mine(workspace), dict[str, Stamp]()
    for entry in lost:
        stamps = entry.newest_by() if isinstance(entry, Line) else {}
        if isinstance(entry, Discovery) and entry.by and entry.at != ZERO:
            stamps = {entry.by: entry.at}
        back |= {who: max(stamp, back.get(who, "")) for who, stamp in stamps.items() if who not in mine}
    if back:
        workspace.warn(_set_back_text(back))
    if told := stale(workspace):
        workspace.warn(told)


def stale(workspace: Workspace) -> str:
    """Return the staleness warning as of the last sync, or "".

    Counted up to the last sync and not until now: who does not sync sees nothing new of any remote.
    """
    mine, last_sync = _mine(workspace), workspace.state.get("last_sync")
    newest = max((stamp for who, stamp in workspace.db.newest_by().items() if who not in mine), default="")
    passed = (_day(last_sync) - _day(newest)).days if newest and last_sync else 0
    if not 0 < workspace.config.share.stale_days <= passed:
        return ""
    return (
        f"nothing new from anybody else for {passed} days: the newest lesson of another replica is of {newest[:10]}. "
        "Nothing is lost. If others did write since, this remote is frozen or an old copy: compare "
        "`git ls-remote` here and on their machines"
    )


def _mine(workspace: Workspace) -> set[str]:
    return {replica.name for replica in workspace.replicas().replicas}


def _day(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp[:10])


def _set_back_text(back: Mapping[str, Stamp]) -> str:
    named = ", ".join(f"{who} (up to {back[who][:16].replace('T', ' ')}Z)" for who in sorted(back)[:_NAMED_MAX])
    more = f" and {len(back) - _NAMED_MAX} more" if len(back) > _NAMED_MAX else ""
    return (
        f"the remote was set back: it no longer had lines of {named}{more} that were read from it before. "
        "Nothing went back here, and they were sent again"
    )
