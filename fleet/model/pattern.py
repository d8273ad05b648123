"""The folds: what a record amounts to, given what is left out here.

The join keeps what each writer said (``line``). A fold reads one value from all of it. A lesson is present while some
writer's add is larger than every remove of it (OR-Set). A field is the latest edit by (stamp, writer), else the largest
first wording by its bytes, whoever said it (LWW-Register). A counter is the sum of the writers' totals and of the
parts, a part once however many writers know it (G-Counter); what a writer took back of its own column counts nowhere.

Policy enters here and nowhere else: this machine's clock, the writers that were blocked here, and what waits for a
person's yes. Nothing that is pushed may depend on a fold.

Records that somebody called one lesson are folded, too. A merge sets ``merged_into`` of one record
to the id of another. Both stay as they are, and are joined when they are shown: whoever points to whom, the records
form a set, and its smallest present id stands for it. So a cycle, made by two opposite merges at once, is a set like
any other, and an id that is not here yet is a member that shows nothing. A cleared field is an empty text, not null:
fields hold texts wherever a reader expects one.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from crdt import clock, gcounter, lww, orset
from fleet.model import limits, names
from fleet.model.errors import NoError
from fleet.model.line import AT, UNDONE, Column, Line
from fleet.model.names import PREFIX
from fleet.model.withheld import Withheld

_FEEDBACK = frozenset({"helped", "hurt"})
MERGED_INTO = "merged_into"
"""Field by which one record says that it is the same lesson as another."""
REDACTED = "[REDACTED:purged]"
"""Text in place of each that was purged: a lesson that reads so says nothing."""
SCOPE, PRIVATE = "scope", "private"
"""Field that says who knows a lesson, and its value for one that never leaves this machine."""
AUTHOR_OF_IMPORT = "agent."
"""Beginning of the field that names who logged an imported record: 8 hex digits of the record's hash follow."""


class Policy(NamedTuple):
    """Policy of this machine: the parts that its folds leave out.

    Attributes:
        cut: edits with a later stamp are left out until the clock reaches them. Adds, removes and counts never are.
        blocked: replicas, and agents by their bare names, whose columns are left out, each with since when.
        earlier: id to a line with the columns that still count, of writers that are blocked from some day on.
        withheld: id to writer to what is left out of that column until a person here decided.
        mine: the replicas that write in this folder.
        versions: a text for each writer and lesson that any of this is about: which of them fold otherwise by now.
        mark: a text that changes whenever anything but the cut does.
    """

    cut: str = "~"
    blocked: Mapping[str, str] = {}
    earlier: Mapping[str, Line] = {}
    withheld: Mapping[str, Mapping[str, Withheld]] = {}
    mine: frozenset[str] = frozenset()
    versions: Mapping[str, str] = {}
    mark: str = ""

    @classmethod
    def of(cls, mine: frozenset[str], decided: str = "") -> "Policy":
        """Return the policy of a machine where nothing was decided; ``decided`` changes with every decision."""
        versions = {f"{IS_MINE} {name}": "" for name in sorted(mine)}
        return cls(mine=mine, versions=versions, mark=" ".join([decided, *sorted(mine)]).strip())

    def blocks(self, writer: str) -> bool:
        """Tell whether a writer is blocked: nobody is who writes in this folder, whatever a backup brought."""
        return writer not in self.mine and is_blocked(writer, self.blocked)

    def moved(self, before: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return the writers and agents, and the ids of lessons, that count otherwise than with other versions."""
        keys = sorted(key for key in before.keys() | self.versions.keys() if before.get(key) != self.versions.get(key))
        parted = [key.partition(" ") for key in keys]
        return [name for kind, _, name in parted if kind != IS_HELD], [
            name for kind, _, name in parted if kind == IS_HELD
        ]


IS_MINE, IS_HELD, IS_BLOCKED = "mine", "held", "blocked"
"""Subject of a version in a policy: a replica of this folder, a lesson with something held back, a blocked name."""
NO_POLICY = Policy()


class Pattern(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One lesson as it reads here.

    Attributes:
        fields: folded values by name, sorted.
        edited: (stamp, writer) of the fields whose value is an edit; the others are first wordings.
        wording_writers: field to the writer whose first wording counts, of a lesson that its author put into words.
        adds: every writer's newest add, whether or not it was removed.
        live: the adds that no remove covers.
        totals: counter to writer to that writer's own total.
        parts: counter to hash to a count without an owner.
        at: when it was first seen; ``clock.ZERO`` where nobody says.
        late: the largest stamp of an edit that is beyond the cut, "" for none.
        cut: of the policy it was folded under.
        loggers: the agents that logged it themselves, imports not counted.
        by_hand: writer to hash to count of the entries that it told as written by hand: the parts of ``seen`` that are
            no import.
        is_published: somebody here put it into a memory, and the clan's state of it is ``published`` by that.
        kept: fields of a merged set whose edit says what another of its records says in its own words: nobody edited
            it, a merge kept it.
    """

    id: str
    fields: dict[str, Any] = {}
    edited: dict[str, tuple[str, str]] = {}
    wording_writers: dict[str, str] = {}
    adds: dict[str, str] = {}
    live: dict[str, str] = {}
    totals: dict[str, dict[str, int]] = {}
    parts: dict[str, dict[str, int]] = {}
    at: str = clock.ZERO
    by: str = ""
    late: str = ""
    loggers: frozenset[str] = frozenset()
    by_hand: dict[str, dict[str, int]] = {}
    cut: str = "~"
    mine: frozenset[str] = frozenset()
    is_published: bool = False
    kept: frozenset[str] = frozenset()

    def value(self, field: str) -> str:
        """Return a field's text; "" where a peer put anything else there."""
        found = self.fields.get(field)
        return found if isinstance(found, str) else ""

    @property
    def text(self) -> str:
        """The lesson itself; "" for a record whose text has not arrived."""
        return self.value("text")

    @property
    def correct(self) -> str:
        """The correct approach."""
        return self.value("correct")

    @property
    def category(self) -> str:
        """The subject of the lesson, in a word."""
        return self.value("category")

    @property
    def state(self) -> str:
        """``published``, ``retired`` ...; "" for a candidate."""
        return self.value("state")

    @property
    def scope(self) -> str:
        """``private`` for what never leaves this machine, else ""."""
        return self.value(SCOPE)

    @property
    def trigger(self) -> str:
        """The command, file or tool that it is shown before."""
        return self.value("trigger")

    @property
    def tags(self) -> list[str]:
        """The tags that are texts."""
        found = self.fields.get("tags")
        return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []

    @property
    def merged_into(self) -> str:
        """The id that this record is merged into; "" for none, for itself, and for what is no pattern's id."""
        into = self.value(MERGED_INTO)
        return into if into != self.id and into.startswith(PREFIX) and names.is_id(into) else ""

    @property
    def is_present(self) -> bool:
        """True where the lesson is in: some add is live."""
        return bool(self.live)

    @property
    def is_listed(self) -> bool:
        """True where the lesson is in and can be read."""
        return bool(self.live) and self.text not in ("", REDACTED)

    @property
    def is_own(self) -> bool:
        """True where somebody logged it in this folder."""
        return not self.mine.isdisjoint(self.adds)

    @property
    def last_seen(self) -> str:
        """Stamp of the newest live add, else of when it was first seen; "" where all of that is from the future."""
        first = self.at if self.at <= self.cut else ""
        return max((stamp for stamp in self.live.values() if stamp <= self.cut), default=first)

    def count(self, name: str) -> int:
        """Return the value of a counter: all totals, and all parts."""
        return gcounter.value(self.totals.get(name, {})) + gcounter.value(self.parts.get(name, {}))

    def own(self, name: str, writer: str) -> int:
        """Return a writer's own total of a counter."""
        return self.totals.get(name, {}).get(writer, 0)

    def weight(self, name: str) -> int:
        """Return what a counter weighs where lessons are ranked: of one writer no more than its sessions can explain.

        Totals are anybody's claim, and a G-Counter never falls; so is the number of sessions, which is capped as well.
        """
        met_in = self.totals.get("sessions", {})
        each_max = limits.SESSION_SEEN_MAX if name == "seen" else 1
        totals = self.totals.get(name, {})
        capped = [
            min(total, each_max * min(met_in.get(writer) or 1, limits.WRITER_SESSIONS_MAX))
            for writer, total in totals.items()
        ]
        parts = [min(count, limits.WRITER_SESSIONS_MAX) for count in self.parts.get(name, {}).values()]
        return sum(capped) + min(sum(parts), each_max * limits.WRITER_SESSIONS_MAX)

    def seen_by(self, agent: str) -> int:
        """Return how often one agent logged it itself in this folder, by any of its replicas here or by hand.

        What stands under another replica of its name may be anybody's: lines are not signed.
        """
        seen, entries = self.totals.get("seen", {}), dict[str, int]()
        own = [writer for writer in self.mine if names.agent_of(writer) == agent]
        for writer in own:
            entries = gcounter.join(entries, self.by_hand.get(writer, {}))
        return sum(seen.get(writer, 0) for writer in own) + sum(entries.values())

    def witnesses(self) -> int:
        """Return how many agents logged it here. Whoever imported a record is none by that."""
        return len(self.loggers)

    def agents(self) -> list[str]:
        """Return the names of the agents that logged it, sorted: here, or as an imported record names them."""
        imports = {author_field(part) for counts in self.parts.values() for part in counts if counts[part]}
        imports &= self.fields.keys()
        imports |= {author_field(_mark_of(writer)) for writer in self.adds if names.agent_of(writer) == names.IMPORT}
        told = {self.value(field) for field in imports}
        return sorted(self.loggers | {name if names.is_agent(name) else names.IMPORT for name in told})


def _mark_of(writer: str) -> str:
    """Return the part of a replica's name that is not its agent's."""
    return writer.rpartition(".")[2]


def fold(line: Line, policy: Policy = NO_POLICY) -> Pattern:
    """Return what a record amounts to under a policy."""
    columns = _trusted(line, policy)
    for writer, column in columns.items():
        if column.parts:
            columns[writer] = _standing(column)
    wording_writers = Line(line.id, columns).wording_writers()
    fields, edited, late = _folded_fields(columns, wording_writers, policy.cut)
    adds = {writer: column.add for writer, column in columns.items() if column.add}
    removed = _removed(columns)
    at, by = _first_seen(columns)
    return Pattern(
        id=line.id,
        fields=fields,
        edited=edited,
        wording_writers=wording_writers if by and "text" in columns[by].first else {},
        adds=adds,
        live=orset.live(adds, removed) if removed else adds,
        totals=_totals(columns),
        parts=_together(column.parts for column in columns.values()),
        cut=policy.cut,
        at=at,
        by=by,
        late=late,
        loggers=_loggers(columns),
        by_hand=_by_hand(columns),
        mine=policy.mine.intersection(columns),
        is_published=fields.get("state") == "published" and edited.get("state", ("", ""))[1] in policy.mine,
    )


def _trusted(line: Line, policy: Policy) -> dict[str, Column]:
    """Return the columns that count here, by writer in order."""
    columns = dict(sorted(line.w.items()))
    if left := policy.withheld.get(line.id):
        columns = {w: left[w].removed_from(column) if w in left else column for w, column in columns.items()}
    if policy.blocked:
        found = policy.earlier.get(line.id)
        earlier = found.without_purged(line).w if found is not None else {}
        counted = {w: earlier.get(w) if policy.blocks(w) else column for w, column in columns.items()}
        kept = {writer: column for writer, column in counted.items() if column is not None}
        columns = kept | _vouched_words(line, kept)
    return columns


def _vouched_words(line: Line, kept: Mapping[str, Column]) -> dict[str, Column]:
    """Return the words of a lesson from the column of whoever is blocked, where nobody else had to say them again.

    Whoever else logged it met just these words: the id is their hash. Who only brought the lesson back, by a restore or
    an undo, counts nothing and met nothing.
    """
    if not any(column.add and (column.n or column.parts) for column in kept.values()) or any(
        "text" in {**c.first, **c.set} for c in kept.values()
    ):
        return {}
    for writer in sorted(line.w.keys() - kept.keys()):
        text = line.w[writer].first.get("text")
        if isinstance(text, str) and names.normalise(text) and names.pattern_id(text) == line.id:
            return {writer: Column(first={"text": text})}
    return {}


def is_blocked(writer: str, blocked: Container[str]) -> bool:
    """Tell whether a replica is blocked, or its agent."""
    return writer in blocked or names.agent_of(writer) in blocked


def _folded_fields(
    columns: Mapping[str, Column], wording_writers: Mapping[str, str], cut: str
) -> tuple[dict[str, Any], dict[str, tuple[str, str]], str]:
    """Return the fields, the evidence of those that were edited, and the largest stamp beyond the cut."""
    replaced = _replaced(columns)
    values: dict[str, Any] = {field: columns[writer].first[field] for field, writer in wording_writers.items()}
    registers: dict[str, lww.Register] = {}
    late = ""
    for writer, column in columns.items():
        for field, (stamp, value) in column.set.items():
            if stamp <= replaced.get((writer, field), ""):
                continue
            if stamp > cut:
                late = max(late, stamp)
                continue
            # A writer has one edit of a field, so that no tie is left for the value to break.
            register = lww.Register(stamp, writer, b"")
            if field not in registers or not lww.covers(registers[field], register):
                registers[field] = register
                values[field] = value
    values.pop(AT, None)
    edited = {field: (register.stamp, register.replica) for field, register in registers.items() if field != AT}
    return dict(sorted(values.items())), edited, late


def _replaced(columns: Mapping[str, Column]) -> dict[tuple[str, str], str]:
    """Return up to which stamp a writer's edit of a field was replaced while it was in the future."""
    marks: dict[tuple[str, str], str] = {}
    for column in columns.values():
        for writer, fields in column.over.items():
            for field, stamp in fields.items():
                marks[writer, field] = max(stamp, marks.get((writer, field), ""))
    return marks


def _removed(columns: Mapping[str, Column]) -> dict[str, str]:
    removed: dict[str, str] = {}
    for column in columns.values():
        if column.rem:
            removed = orset.join(removed, column.rem)
    return removed


def is_undone_before_sent(news: Line, told: Line | None, mine: Container[str]) -> bool:
    """Tell whether news of a lesson say no more than what we stated and undid before anybody was told any of it.

    Args:
        news: what of the lesson others lack.
        told: what they have of it.
        mine: the replicas that write here. Of a column that was told in part, what undoes that part is news.
    """
    columns = news.w.values()
    if not news.is_only_by(mine) or (told is not None and not told.w.keys().isdisjoint(news.w)):
        return False
    if not any(f"seen{UNDONE}" in column.parts for column in columns) or any(column.purge for column in columns):
        return False
    if told is not None and any(_is_about_others(column, news.w) for column in columns):
        return False
    known, was_seen = fold(news), any("seen" in column.n or "seen" in column.parts for column in columns)
    return was_seen and bool(known.adds) and not known.live and not known.count("seen")


def _is_about_others(column: Column, own: Container[str]) -> bool:
    """Tell whether a column says something of what others stated: an edit, a remove, or what it was worth."""
    is_judged = not _FEEDBACK.isdisjoint(column.n)
    return bool(column.set or column.over) or is_judged or any(writer not in own for writer in column.rem)


def _standing(column: Column) -> Column:
    """Return a column without the occurrences that its writer took back: their parts are 0, or the total is less."""
    if not any(name.endswith(UNDONE) for name in column.parts):
        return column
    totals = dict(column.n)
    parts = {name: dict(counts) for name, counts in column.parts.items() if not name.endswith(UNDONE)}
    for undone in column.parts.keys() - parts.keys():
        name = undone.removesuffix(UNDONE)
        told = parts.get(name, {})
        gone = [key for key, number in column.parts[undone].items() if number % 2]
        told.update((key, 0) for key in gone if key in told)
        if name in totals:
            totals[name] = max(0, totals[name] - sum(key not in told for key in gone))
    return msgspec.structs.replace(column, n=totals, parts=parts)


def _totals(columns: Mapping[str, Column]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for writer, column in columns.items():
        for name, total in column.n.items():
            if total:  # else all of it was undone
                totals.setdefault(name, {})[writer] = total
    return totals


def _first_seen(columns: Mapping[str, Column]) -> tuple[str, str]:
    """Return the smallest (stamp, writer) of what each writer says of when it first saw the lesson."""
    seen = [(at, writer) for writer, column in columns.items() if (at := column.first_seen())]
    return min(seen, default=(clock.ZERO, ""))


def _loggers(columns: Mapping[str, Column]) -> frozenset[str]:
    logged = {names.agent_of(writer) for writer, column in columns.items() if _has_logged(column)}
    return frozenset(logged - {names.IMPORT})


def _has_logged(column: Column) -> bool:
    """Tell whether a writer logged the lesson itself: an add with nothing but imported records beside it is none."""
    if "seen" in column.n and (column.n["seen"] or not _own_entries(column)):
        return bool(column.n["seen"])
    return bool(column.add) and (not column.parts.get("seen") or bool(_own_entries(column)))


def _own_entries(column: Column) -> dict[str, int]:
    """Return the parts of ``seen`` that are entries written by hand."""
    seen = column.parts.get("seen", {})
    return {part: n for part, n in seen.items() if n and author_field(part) not in column.first}


def _by_hand(columns: Mapping[str, Column]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for writer, column in columns.items():
        if column.parts and names.agent_of(writer) != names.IMPORT and (entries := _own_entries(column)):
            found[writer] = entries
    return found


def author_field(part: str) -> str:
    """Return the field that names who logged an imported record, by the record's hash."""
    return AUTHOR_OF_IMPORT + part[:8]


# --- merged lessons -------------------------------------------------------------------------------------------------


def _representative(patterns: Iterable[Pattern]) -> Pattern:
    """Return the record that stands for a set: the smallest id that is listed.

    In a set that is retired as a whole, the smallest with a text.
    """
    return min(patterns, key=lambda pattern: (not pattern.is_listed, not pattern.text, pattern.id))


def merged(patterns: Sequence[Pattern], speaker: Pattern | None = None) -> Pattern:
    """Return one lesson made of a set's records, for showing: it is never written. A single one is itself.

    It bears the id and words of the ``speaker``, or else of the smallest id that is listed. Counters add up, also
    within one replica, which may have counted for both; a part counts once. A lesson is in while any of its records
    is. Fields that the speaker lacks come from the smallest id that has them. Tags are joined.
    """
    if len(patterns) == 1:
        return patterns[0]
    first = speaker or _representative(patterns)
    members = sorted(patterns, key=lambda pattern: (pattern.id != first.id, pattern.id))
    fields, edited = _united_fields(members)
    at, by = min(((each.at, each.by) for each in members if each.at != clock.ZERO), default=(clock.ZERO, ""))
    adds: dict[str, str] = {}
    live: dict[str, str] = {}
    for each in members:
        adds, live = orset.join(adds, each.adds), orset.join(live, each.live)
    return Pattern(
        id=first.id,
        fields=fields,
        edited=edited,
        wording_writers={field: writer for each in reversed(members) for field, writer in each.wording_writers.items()},
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
        mine=frozenset().union(*(each.mine for each in members)),
        is_published=first.is_published,
        kept=frozenset(field for field in first.edited if any(_words(each, field, first) for each in members[1:])),
    )


def _words(record: Pattern, field: str, like: Pattern) -> bool:
    """Tell whether the first wording of a record's field is what another one says."""
    return field in record.fields and field not in record.edited and record.fields[field] == like.fields[field]


def _united_fields(members: Sequence[Pattern]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
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
    added: dict[str, Counter[str]] = defaultdict(Counter)
    for totals in all_totals:
        for name, counts in totals.items():
            added[name].update(counts)
    return {name: dict(counts) for name, counts in added.items()}


def _together(all_parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    together: dict[str, dict[str, int]] = {}
    for parts in all_parts:
        for name, counts in parts.items():
            together[name] = gcounter.join(together.get(name, {}), counts)
    return together


class Merges:
    """Merged lessons.

    Args:
        pointing: tells which record is merged into which.
    """

    def __init__(self, pointing: Mapping[str, str]) -> None:
        self._pointing = pointing

    @staticmethod
    def connected(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
        """Return the sets of names that hang together by pairs, each sorted (union-find)."""
        root: dict[str, str] = {}

        def find(member: str) -> str:
            while root.setdefault(member, member) != member:
                root[member] = root[root[member]]
                member = root[member]
            return member

        for one, other in pairs:
            a, b = find(one), find(other)
            root[max(a, b)] = min(a, b)
        grouped: dict[str, list[str]] = defaultdict(list)
        for member in sorted(root):
            grouped[find(member)].append(member)
        return list(grouped.values())

    def groups(self) -> list[list[str]]:
        """Return the merged sets, each sorted, ids that are not here among them."""
        return self.connected(self._pointing.items())

    def merging(self, here: Container[str], one: str, other: str) -> tuple[str, str]:
        """Return which record has to point to which, so that two lessons are one.

        The larger id points to the smaller. Where one of them points elsewhere already, the end of its chain does,
        since a field holds one id: overwriting it would take a third record out of the set.

        Of two ends, one whose record is ``here`` points.

        Raises:
            NoError: they are one lesson already.
        """
        if one == other:
            raise NoError(f"{one} is one lesson already; nothing was changed")
        sets = {member: group for group in self.groups() for member in group}
        mine, theirs = sets.get(one, [one]), sets.get(other, [other])
        if other in mine:
            raise NoError(f"{one} and {other} are merged already; nothing was changed")
        ends = [(self._end(mine), theirs), (self._end(theirs), mine)]
        source, into = max(ends, key=lambda end: (end[0] in here, end[0]))
        return source, self._end(into)

    def unmerging(self, pattern_id: str) -> list[str]:
        """Return the records whose pointing has to be cleared to undo a merge.

        That is what this record was merged into, or else what was merged into it. What was merged into it before stays
        with it, as it was before the merge.

        Raises:
            NoError: it is not merged.
        """
        pointing = self._pointing
        into_it = sorted(member for member, into in pointing.items() if into == pattern_id)
        cleared = [pattern_id] if pattern_id in pointing else into_it
        if not cleared:
            raise NoError(f"{pattern_id} is not merged with another; nothing was changed")
        cycle = self._cycle(pattern_id)
        if pattern_id in cycle:  # the way back has to go as well
            cleared += [member for member in cycle if pointing[member] == pattern_id and member not in cleared]
        return cleared

    def _end(self, group: Iterable[str]) -> str:
        """Return the one that points nowhere; in a cycle, which has none, the largest: it can be spared there."""
        members = sorted(group)
        free = next((member for member in members if member not in self._pointing), "")
        return free or max(self._cycle(members[0]))

    def _cycle(self, start: str) -> list[str]:
        """Return the ids of the cycle that a walk from here ends in; none, if it ends at one that points nowhere."""
        seen: dict[str, int] = {}
        at = start
        while at in self._pointing and at not in seen:
            seen[at] = len(seen)
            at = self._pointing[at]
        return list(seen)[seen[at] :] if at in seen else []
