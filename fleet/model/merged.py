"""Merged lessons: several records that a person or an agent called one lesson (DESIGN, section 4).

A merge sets ``merged_into`` of one record to the id of another. Both stay as they are, and are joined when they are
shown: whoever points to whom, the records form a set, and its smallest present id stands for it. So a cycle, made by
two opposite merges at once, is a set like any other, and an id that is not here yet is a member that shows nothing.

A cleared field is an empty text, not null: fields hold texts wherever a reader expects one.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from crdt import clock, gcounter, orset
from fleet.model import limits
from fleet.model.errors import NoError
from fleet.model.pattern import MERGED_INTO, Pattern


def groups(pointing: Mapping[str, str]) -> list[list[str]]:
    """Return the merged sets, each sorted, ids that are not here among them.

    Args:
        pointing: which record is merged into which.
    """
    root: dict[str, str] = {}

    def find(member: str) -> str:
        while root.setdefault(member, member) != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    for one, other in pointing.items():
        a, b = find(one), find(other)
        root[max(a, b)] = min(a, b)
    grouped: dict[str, list[str]] = defaultdict(list)
    for member in sorted(root):
        grouped[find(member)].append(member)
    return list(grouped.values())


def _representative(patterns: Iterable[Pattern]) -> Pattern:
    """Return the record that stands for a set: the smallest id that is listed.

    In a set that is retired as a whole, the smallest with a text.
    """
    return min(patterns, key=lambda pattern: (not pattern.is_listed, not pattern.text, pattern.id))


def united(patterns: Sequence[Pattern]) -> Pattern:
    """Return one lesson made of a set's records, for showing: it is never written. A single one is itself.

    Counters add up, also within one replica, which may have counted for both; a part counts once. A lesson is in while
    any of its records is. Fields are the representative's; those it lacks come from the smallest id that has them.
    Tags are united.
    """
    if len(patterns) == 1:
        return patterns[0]
    first = _representative(patterns)
    members = sorted(patterns, key=lambda pattern: (pattern.id != first.id, pattern.id))
    fields, edited = _fields(members)
    at, by = min(((each.at, each.by) for each in members if each.at != clock.ZERO), default=(clock.ZERO, ""))
    adds: dict[str, str] = {}
    live: dict[str, str] = {}
    for each in members:
        adds, live = orset.join(adds, each.adds), orset.join(live, each.live)
    return Pattern(
        id=first.id,
        fields=fields,
        edited=edited,
        adds=adds,
        live=live,
        totals=_added(each.totals for each in members),
        parts=_together(each.parts for each in members),
        cut=first.cut,
        at=at,
        by=by,
        late=max(each.late for each in members),
        loggers=frozenset().union(*(each.loggers for each in members)),
        by_hand=_together(each.by_hand for each in members),
    )


def _fields(members: Sequence[Pattern]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    fields: dict[str, Any] = {}
    edited: dict[str, tuple[str, str]] = {}
    for each in members:
        for field in each.fields.keys() - fields.keys() - {MERGED_INTO}:
            fields[field] = each.fields[field]
            if field in each.edited:
                edited[field] = each.edited[field]
    if tags := dict.fromkeys(tag for each in members for tag in each.tags):
        fields["tags"] = list(tags)[: limits.TAGS_MAX]
    return dict(sorted(fields.items())), edited


def _added(all_totals: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    added: dict[str, dict[str, int]] = {}
    for totals in all_totals:
        for name, counts in totals.items():
            slots = added.setdefault(name, {})
            for writer, total in counts.items():
                slots[writer] = slots.get(writer, 0) + total
    return added


def _together(all_parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    together: dict[str, dict[str, int]] = {}
    for parts in all_parts:
        for name, counts in parts.items():
            together[name] = gcounter.join(together.get(name, {}), counts)
    return together


def merge(pointing: Mapping[str, str], here: Container[str], one: str, other: str) -> tuple[str, str]:
    """Return which record has to point to which, so that two lessons are one.

    The larger id points to the smaller. Where one of them points elsewhere already, the end of its chain does, since a
    field holds one id: overwriting it would take a third record out of the set.

    Args:
        pointing: which record is merged into which.
        here: the ids of the records that are here: one of those points, where there is one.
        one: an id.
        other: another.

    Raises:
        NoError: they are one lesson already.
    """
    if one == other:
        raise NoError(f"{one} is one lesson already; nothing was changed")
    sets = {member: group for group in groups(pointing) for member in group}
    mine, theirs = sets.get(one, [one]), sets.get(other, [other])
    if other in mine:
        raise NoError(f"{one} and {other} are merged already; nothing was changed")
    ends = [(_end(mine, pointing), theirs), (_end(theirs, pointing), mine)]
    source, into = max(ends, key=lambda end: (end[0] in here, end[0]))
    return source, _end(into, pointing)


def _end(group: Iterable[str], pointing: Mapping[str, str]) -> str:
    """Return the one that points nowhere; in a cycle, which has none, the largest: it can be spared there."""
    members = sorted(group)
    free = next((member for member in members if member not in pointing), "")
    return free or max(_cycle(members[0], pointing))


def _cycle(start: str, pointing: Mapping[str, str]) -> list[str]:
    """Return the ids of the cycle that a walk from here ends in; none, if it ends at one that points nowhere."""
    seen: dict[str, int] = {}
    at = start
    while at in pointing and at not in seen:
        seen[at] = len(seen)
        at = pointing[at]
    return list(seen)[seen[at] :] if at in seen else []


def unmerge(pointing: Mapping[str, str], pattern_id: str) -> list[str]:
    """Return the records whose pointing has to be cleared to undo a merge.

    That is what this record was merged into, or else what was merged into it. What was merged into it before stays with
    it, as it was before the merge.

    Raises:
        NoError: it is not merged.
    """
    cleared = (
        [pattern_id] if pattern_id in pointing else sorted(m for m, into in pointing.items() if into == pattern_id)
    )
    if not cleared:
        raise NoError(f"{pattern_id} is not merged with another; nothing was changed")
    cycle = _cycle(pattern_id, pointing)
    if pattern_id in cycle:  # the way back has to go as well
        cleared += [member for member in cycle if pointing[member] == pattern_id and member not in cleared]
    return cleared
