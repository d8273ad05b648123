"""The policy of sharing: what must not leave, and whose lines may be missing.

- The gate holds every line back that has a secret or an invisible character in it, or that is private; and whatever was
  taken back here before it had left.
- Rollback and freeze: a remote, or who stands in front of it, may serve an old state. Nothing goes back here whatever
  it serves, and what it no longer has is sent again; this makes it visible. The highest stamp ever read of each other
  replica is remembered. A remote that has lost lines of theirs was *set back*; one that has shown nothing newer for
  days, while syncs went well, is *stale*: frozen, or the others are silent. Which of the two, only a person finds out.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from crdt import clock
from crdt.clock import Stamp
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.model.pattern import is_taken_back
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


def stays(entry: Entry, mine: Container[str], gone: Container[str]) -> bool:
    """Tell whether what waits was stated and taken back here before any of it left: it stays, until it is restored.

    Args:
        entry: all that the far side lacks of it.
        mine: the replicas that write here.
        gone: ids of our discoveries that never left, and of what takes them back.
    """
    if isinstance(entry, Discovery):
        return entry.id in gone
    return isinstance(entry, Line) and is_taken_back(entry, mine)


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

_SEEN_BY = "seen_by"  # where the local database keeps the highest stamps
_NAMED_MAX = 3

Highest = dict[str, Stamp]
"""The highest stamp read, of each replica that is not ours."""


def note_seen(workspace: Workspace, came: Iterable[str], sent_again: Iterable[Entry]) -> None:
    """Remember, after a sync, how far each other replica is; warn if the remote was set back or is stale.

    ``came`` are ids of what is new or changed here; ``sent_again`` went out though the remote had had it before.
    """
    mine = {replica.name for replica in workspace.replicas().replicas}
    seen = _parsed(workspace.state.get(_SEEN_BY))
    back = {who: stamp for who, stamp in _set_back(seen, sent_again).items() if who not in mine}
    if back:
        workspace.warn(_set_back_text(back))
    now = {who: stamp for who, stamp in _raised(seen, _newest(workspace, came)).items() if who not in mine}
    if now != seen:
        workspace.state.put(**{_SEEN_BY: msgspec.json.encode(dict(sorted(now.items()))).decode()})
    if told := stale(workspace):
        workspace.warn(told)


def stale(workspace: Workspace) -> str:
    """Return the staleness warning as of the last sync, or ""."""
    seen, last_sync = _parsed(workspace.state.get(_SEEN_BY)), workspace.state.get("last_sync")
    days = _days_stale(seen, last_sync, workspace.config.share.stale_days)
    if not days:
        return ""
    newest = max(seen.values())
    return (
        f"nothing new from anybody else for {days} days: the newest lesson of another replica is of {newest[:10]}. "
        "Nothing is lost. If others did write since, this remote is frozen or an old copy: compare "
        "`git ls-remote` here and on their machines"
    )


def _days_stale(seen: Highest, last_sync: Stamp, days: int) -> int:
    """Return for how many days the last sync had shown nothing newer of anybody else, 0 while that is fewer than asked.

    Counted up to the last sync and not until now: who does not sync sees nothing new of any remote.
    """
    newest = max(seen.values(), default="")
    if days <= 0 or not newest or not last_sync:
        return 0
    passed = (_day(last_sync) - _day(newest)).days
    return passed if passed >= days else 0


def _parsed(text: str) -> Highest:
    """Read what was remembered; a damaged note counts as none."""
    try:
        found = msgspec.json.decode(text, type=Highest) if text else {}
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return {replica: stamp for replica, stamp in found.items() if clock.is_stamp(stamp)}


def _raised(seen: Highest, newest: Mapping[str, Stamp]) -> Highest:
    """Return the highest stamps after one more look; none ever falls."""
    return dict(seen) | {who: stamp for who, stamp in newest.items() if stamp > seen.get(who, "")}


def _newest(workspace: Workspace, ids: Iterable[str]) -> Highest:
    """Return the newest stamp of each writer in some records and discoveries."""
    found: Highest = {}
    with workspace.snapshot():  # a clan that comes for the first time brings 100,000
        for each in ids:
            record = workspace.patterns.line(each) if each.startswith("p-") else None
            told = workspace.discoveries.get(each) if record is None else None
            stamps = record.newest_by() if record is not None else {told.by: told.at} if told is not None else {}
            for who, stamp in stamps.items():
                if who and clock.is_stamp(stamp) and stamp > found.get(who, ""):
                    found[who] = stamp
    return found


def _set_back(seen: Highest, sent_again: Iterable[Entry]) -> Highest:
    """Return whose lines went out again though they had been read from the clan before, each with the newest stamp."""
    found: Highest = {}
    for entry in sent_again:
        stamps = entry.newest_by() if isinstance(entry, Line) else {}
        if isinstance(entry, Discovery):
            stamps = {entry.by: entry.at}
        found = _raised(found, {who: stamp for who, stamp in stamps.items() if stamp <= seen.get(who, "")})
    return found


def _day(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp[:10])


def _set_back_text(back: Highest) -> str:
    named = ", ".join(
        f"{replica} (up to {back[replica][:16].replace('T', ' ')}Z)" for replica in sorted(back)[:_NAMED_MAX]
    )
    more = f" and {len(back) - _NAMED_MAX} more" if len(back) > _NAMED_MAX else ""
    return (
        f"the remote was set back: it no longer had lines of {named}{more} that were read from it before. "
        "Nothing went back here, and they were sent again"
    )
