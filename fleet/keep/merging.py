"""Merged lessons: several records that a person or an agent called one lesson (DESIGN, section 4).

A merge sets ``merged_into`` of one record to the id of another. Both stay as they are, and are joined when they are
shown: whoever points to whom, the records form a set, and its smallest present id stands for it. So a cycle, made by
two opposite merges at once, is a set like any other, and an id that is not here yet is a member that shows nothing.

A cleared field is an empty text, not null: ``set`` holds texts wherever a reader expects one, and an empty one is read
as "not merged" by versions that know no merges, too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crdt import orset
from fleet.keep import edits, limits
from fleet.keep.errors import NoError
from fleet.keep.line import Line
from fleet.keep.notebook import MERGED_INTO, Notebook, is_present, text

FIELD = MERGED_INTO
CLEARED = ""


def sets(notebook: Notebook) -> dict[str, str]:
    """Return, for each record of a merged set, the id that stands for the set; other records stand for themselves.

    That is the smallest id that is present and has a text; in a set that is retired as a whole, the smallest with one.
    """
    return {member: representative for representative, ids in _members(notebook).items() for member in ids}


def _members(notebook: Notebook) -> dict[str, list[str]]:
    found = {}
    for group in groups(notebook.pointing()):
        here = [member for member in group if member in notebook.patterns]
        if len(here) > 1:
            found[_representative(notebook, here)] = here
    return found


def _representative(notebook: Notebook, members: Iterable[str]) -> str:
    return min(members, key=lambda member: _rank(notebook.patterns[member]))


def _rank(line: Line) -> tuple[bool, bool, str]:
    return (not (is_present(line) and text(line)), not text(line), line.id)


def groups(pointing: Mapping[str, str]) -> list[list[str]]:
    """Return the sets, each sorted, ids that are not here among them."""
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


def group_of(notebook: Notebook, pattern_id: str, pointing: Mapping[str, str] | None = None) -> list[str]:
    """Return the ids of all records that are one lesson with this one, itself included, sorted.

    Who knows already which record is ``pointing`` to which says so.
    """
    pointing = notebook.pointing() if pointing is None else pointing
    if not pointing:
        return [pattern_id] if pattern_id in notebook.patterns else []
    found = next((group for group in groups(pointing) if pattern_id in group), [pattern_id])
    return [member for member in found if member in notebook.patterns]


def shown(notebook: Notebook) -> Iterator[Line]:
    """Yield the clan's lessons: what is in and has a text, each merged set once."""
    members = _members(notebook)
    behind = {member for representative, ids in members.items() for member in ids if member != representative}
    for line in notebook.present():
        if line.id in members:
            yield united(line, (notebook.patterns[member] for member in members[line.id]))
        elif line.id not in behind:
            yield line


def shown_among(notebook: Notebook, pattern_ids: Iterable[str]) -> Iterator[Line]:
    """Yield those of ``shown`` that some of these records are, or are a part of."""
    members = _members(notebook)
    under = {member: representative for representative, ids in members.items() for member in ids}
    for pattern_id in dict.fromkeys(under.get(each, each) for each in pattern_ids):
        line = notebook.get(pattern_id)
        if line is None or not (is_present(line) and text(line)):
            continue
        if pattern_id in members:
            yield united(line, (notebook.patterns[member] for member in members[pattern_id]))
        else:
            yield line


def everything(notebook: Notebook) -> Iterator[tuple[Line, str]]:
    """Yield every record that has a text, retired ones too, and the id it is shown under if that is another's.

    A record that stands for others is the whole lesson, the others are as they were logged.
    """
    members = _members(notebook)
    under = {member: representative for representative, ids in members.items() for member in ids}
    for line in notebook.patterns.values():
        if line.id in members:
            yield united(line, (notebook.patterns[member] for member in members[line.id])), ""
        elif text(line):
            yield line, under.get(line.id, "")


def whole(notebook: Notebook, pattern_id: str, pointing: Mapping[str, str] | None = None) -> Line:
    """Return the lesson that a record is, or is a part of; ``pointing`` as for ``group_of``."""
    return united_of([notebook.patterns[member] for member in group_of(notebook, pattern_id, pointing)])


def united_of(members: Sequence[Line]) -> Line:
    """Return the lesson that the records of a merged set are; of a single one, that one."""
    return members[0] if len(members) == 1 else united(min(members, key=_rank), members)


def united(representative: Line, members: Iterable[Line]) -> Line:
    """Return one lesson made of a set's records, for showing: it is never written.

    Counters add up, also within one replica, which may have counted for both. A lesson is in while any of its records
    is. Fields are the representative's; those it lacks come from the smallest id that has them. Tags are united.
    """
    lines = sorted(members, key=lambda line: (line.id != representative.id, line.id))
    made = Line(id=representative.id, at=representative.at, by=representative.by)
    made.at, made.by = min((line.at, line.by) for line in lines)
    live: dict[str, str] = {}
    for line in lines:
        made.n = _added(made.n, line.n)
        live = orset.join(live, orset.live(line.add, line.rem))
        made.add, made.rem = orset.join(made.add, line.add), orset.join(made.rem, line.rem)
        for field in line.set.keys() - made.set.keys() - {FIELD}:
            made.set[field] = line.set[field]
            if field in line.when:
                made.when[field] = line.when[field]
    # A replica's newer add may be one that was removed, in another record than its live one.
    made.add |= live
    made.rem = {replica: stamp for replica, stamp in made.rem.items() if replica not in live}
    if tags := _tags(line.set.get("tags") for line in lines):
        made.set["tags"] = tags
    return made


def _added(mine: Mapping[str, Mapping[str, int]], theirs: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    total = {name: dict(counts) for name, counts in mine.items()}
    for name, counts in theirs.items():
        slots = total.setdefault(name, {})
        for replica, number in counts.items():
            slots[replica] = slots.get(replica, 0) + number
    return total


def _tags(values: Iterable[Any]) -> list[str]:
    found = dict.fromkeys(tag for value in values if isinstance(value, list) for tag in value if isinstance(tag, str))
    return list(found)[: limits.TAGS_MAX]


def merge(notebook: Notebook, one: str, other: str, replica: str, tick: Callable[[], str]) -> list[Line]:
    """Return the lines that make two lessons one.

    The larger id points to the smaller. Where one of them points elsewhere already, the end of its chain does, since a
    field holds one id: overwriting it would take a third record out of the set.

    Raises:
        NoError: they are one lesson already.
    """
    if one == other:
        raise NoError(f"{one} is one lesson already; nothing was changed")
    pointing = notebook.pointing()
    sets_now = {member: group for group in groups(pointing) for member in group}
    mine, theirs = sets_now.get(one, [one]), sets_now.get(other, [other])
    if other in mine:
        raise NoError(f"{one} and {other} are merged already; nothing was changed")
    # The best end to point from: one that is here before one that is not; then the larger.
    ends = [(end in notebook.patterns, end, group) for group in (mine, theirs) for end in [_end(group, pointing)]]
    _, source, group = max(ends, key=lambda end: end[:2])
    into = theirs if group is mine else mine
    known = notebook.get(source) or Line(id=source)
    return [edits.field_set(known, FIELD, _end(into, pointing), replica, tick())]


def _end(group: Iterable[str], pointing: Mapping[str, str]) -> str:
    """Return the one that points nowhere; in a cycle, which has none, the largest: it can be spared there."""
    members = sorted(group)
    free = next((member for member in members if member not in pointing), "")
    return free or max(_cycle(members[0], pointing))


def _cycle(start: str, pointing: Mapping[str, str]) -> list[str]:
    """Return the ids of the cycle that a walk from here ends in; none, if it ends at somebody who points nowhere."""
    seen: dict[str, int] = {}
    at = start
    while at in pointing and at not in seen:
        seen[at] = len(seen)
        at = pointing[at]
    return list(seen)[seen[at] :] if at in seen else []


def unmerge(notebook: Notebook, pattern_id: str, replica: str, tick: Callable[[], str]) -> list[Line]:
    """Return the lines that undo a merge: what this record was merged into, or else what was merged into it.

    What was merged into it before stays with it, as it was before the merge.

    Raises:
        NoError: it is not merged.
    """
    pointing = notebook.pointing()
    cleared = (
        [pattern_id] if pattern_id in pointing else sorted(m for m, into in pointing.items() if into == pattern_id)
    )
    if not cleared:
        raise NoError(f"{pattern_id} is not merged with another; nothing was changed")
    cycle = _cycle(pattern_id, pointing)
    if pattern_id in cycle:  # the way back has to go as well
        cleared += [member for member in cycle if pointing[member] == pattern_id and member not in cleared]
    return [edits.field_set(notebook.patterns[member], FIELD, CLEARED, replica, tick()) for member in cleared]


class _Fields(msgspec.Struct, gc=False):
    text: Any = ""


class _Told(msgspec.Struct, gc=False):
    id: str
    add: dict[str, str] = {}
    rem: dict[str, str] = {}
    set: _Fields = msgspec.field(default_factory=_Fields)


_told_decoder = msgspec.json.Decoder(_Told)


def texts(notebook: Notebook) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of each record that is in. Of those that nobody asked for, nothing else is decoded."""
    asleep = list(notebook.patterns.raws())
    for line in notebook.patterns.awake():
        if is_present(line) and text(line):
            yield line.id, text(line)
    for start in range(0, len(asleep), _AT_ONCE):
        for told in _told_decoder.decode_lines(b"\n".join(asleep[start : start + _AT_ONCE])):
            said = told.set.text
            # No remove at all is the common case, and a call less for each of 100,000.
            if said and isinstance(said, str) and (not told.rem or orset.present(told.add, told.rem)) and told.add:
                yield told.id, said


_AT_ONCE = 1_000
