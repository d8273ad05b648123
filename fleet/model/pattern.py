"""Folds of a record: the lesson that it amounts to on this machine.

The join keeps what each writer stated (``line``). A fold computes one value from all of it. A lesson is present while
some writer's add is larger than every remove of it (OR-Set). A field is the latest edit by (stamp, writer), else the
first wording with the largest bytes, whoever its writer (LWW-Register). A counter is the sum of the writers' totals and
of the parts, each once (G-Counter); occurrences that a writer undid in its own column count nowhere.

Policy enters here and nowhere else (docs/adr/0016): nothing that is pushed may depend on a fold.

Merged records are folded, too (docs/adr/0009). Records that are connected by ``merged_into``, whatever its direction,
form a set, and the smallest present id stands for it. So a cycle, made by two opposite concurrent merges, is a set like
any other, and an id that has not arrived yet is a member that shows nothing. A cleared field is an empty text.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crdt import clock, gcounter, lww, orset
from fleet.model import limits, names
from fleet.model.errors import NoError
from fleet.model.line import AT, UNDONE, Column, Line
from fleet.model.names import FIELDS, PREFIX

if TYPE_CHECKING:
    from fleet.model.withheld import Withheld

_FEEDBACK = frozenset({"helped", "hurt"})
MERGED_INTO = "merged_into"
"""Field of a record that is merged: the id of the other record."""
REDACTED = "[REDACTED:purged]"
"""Text in place of a purged one; a lesson with this text is not listed."""
_REDACTION = "[REDACTED:"
SCOPE, PRIVATE = "scope", "private"
"""Field with the audience of a lesson, and its value for one that never leaves this machine."""
STAGE, MERGED_FROM = "stage", "consolidated_from"
"""Fields that stay in an agent's private file: a note's stage, and the ids of those that were consolidated into it."""
AUTHOR_OF_IMPORT = "agent."
"""Prefix of the field with the author of an imported record: 8 hex digits of the record's hash follow."""
_SEARCHED = tuple(field.name for field in FIELDS if "searched" in field.uses)


class Policy(NamedTuple):
    """Policy of this machine: the parts of records that its folds leave out.

    Attributes:
        cut: edits with a later stamp are left out until the clock reaches them. Adds, removes and counts never are.
        blocked: replicas and agents whose columns are left out, each with the day since when.
        earlier: id to a line with the columns that still count, of writers that are blocked from some day on.
        withheld: id to writer to the part of that column which is left out until a person here decides.
        mine: the replicas that write in this folder.
        versions: subject (a writer, an agent or a lesson) to a text that changes whenever the policy on it does.
        mark: a text that changes whenever any attribute but the cut does.
    """

    cut: str = "~"
    blocked: Mapping[str, str] = {}
    earlier: Mapping[str, Line] = {}
    withheld: Mapping[str, Mapping[str, "Withheld"]] = {}
    mine: frozenset[str] = frozenset()
    versions: Mapping[str, str] = {}
    mark: str = ""

    @classmethod
    def of(cls, mine: frozenset[str], decided: str = "") -> "Policy":
        """Return the policy of a machine that blocks and withholds nothing; ``decided`` counts decisions."""
        versions = {f"{IS_MINE} {name}": "" for name in sorted(mine)}
        return cls(mine=mine, versions=versions, mark=" ".join([decided, *sorted(mine)]).strip())

    def blocks(self, writer: str) -> bool:
        """Return whether a writer is blocked. The replicas of this folder never are, whatever a backup brought."""
        return writer not in self.mine and is_blocked(writer, self.blocked)

    def counted(self, line: Line) -> Line:
        """Return the columns of a record that count under this policy."""
        return Line(line.id, _counted_columns(line, self))

    def moved(self, before: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return the writers and agents, and the ids of lessons, whose version differs from an earlier one."""
        keys = sorted(key for key in before.keys() | self.versions.keys() if before.get(key) != self.versions.get(key))
        subjects = [key.partition(" ") for key in keys]
        writers = [name for kind, _, name in subjects if kind != IS_HELD]
        return writers, [name for kind, _, name in subjects if kind == IS_HELD]


IS_MINE, IS_HELD, IS_BLOCKED = "mine", "held", "blocked"
"""Kinds of subject in ``Policy.versions``: a replica of this folder, a lesson with a withheld part, a blocked name."""
NO_POLICY = Policy()
"""Policy that leaves nothing out."""


class _Words(NamedTuple):
    """Origin of a lesson's words.

    Attributes:
        writers: field to the writer of the winning first wording; empty where the first writer worded nothing.
        kept: edited fields without new words: the edit puts the author's first wording back, or in a merged set it
            repeats the wording of another record.
        redacted: fields whose edit replaces a value that its writer purged.
        has_future_edit: True if an edit is later than the cut, and nobody replaced it.
    """

    writers: Mapping[str, str] = {}
    kept: frozenset[str] = frozenset()
    redacted: frozenset[str] = frozenset()
    has_future_edit: bool = False


class Pattern(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One lesson, folded from its record.

    Attributes:
        fields: folded values by name, sorted.
        edited: (stamp, writer) of the fields whose value is an edit; the others are first wordings.
        adds: every writer's newest add, removed or not.
        live: the adds that no remove covers.
        totals: counter to writer to that writer's own total.
        parts: counter to hash to a count without an owner.
        at: when it was first seen; ``clock.ZERO`` if unknown.
        by: the writer that saw it first.
        loggers: the agents that logged it themselves; an import is no log.
        by_hand: writer to hash to count of its entries that were written by hand: the parts of ``seen`` that are no
            import.
        cut: the cut of the policy that it was folded under.
        mine: the replicas of this folder that have a column.
        is_published: its state is ``published`` by an edit of this folder.
        retired_by: writer of the remove that retired it; "" while it is present.
    """

    id: str
    fields: dict[str, Any] = {}
    edited: dict[str, tuple[str, str]] = {}
    words: _Words = _Words()
    adds: dict[str, str] = {}
    live: dict[str, str] = {}
    totals: dict[str, dict[str, int]] = {}
    parts: dict[str, dict[str, int]] = {}
    at: str = clock.ZERO
    by: str = ""
    loggers: frozenset[str] = frozenset()
    by_hand: dict[str, dict[str, int]] = {}
    cut: str = "~"
    mine: frozenset[str] = frozenset()
    is_published: bool = False
    retired_by: str = ""

    def value(self, field: str) -> str:
        """Return a field's text; "" for a value of another type, which a peer may have set."""
        value = self.fields.get(field)
        return value if isinstance(value, str) else ""

    @property
    def text(self) -> str:
        """The lesson's text in one line, since a peer's line breaks could forge rows; "" until the text has arrived."""
        return " ".join(self.value("text").split())

    @property
    def correct(self) -> str:
        """The correct approach, in one line."""
        return " ".join(self.value("correct").split())

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
        """``private`` for a lesson that never leaves this machine, else ""."""
        return self.value(SCOPE)

    @property
    def trigger(self) -> str:
        """The command, file or tool before which it is shown."""
        return self.value("trigger")

    @property
    def tags(self) -> list[str]:
        """The tags that are texts."""
        tags = self.fields.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    def details(self) -> list[str]:
        """Return the texts by which the lesson is searched, besides its own."""
        return [text for text in (*map(self.value, _SEARCHED), *self.tags) if text]

    @property
    def merged_into(self) -> str:
        """The id of the record that it is merged into; "" for none, for itself, and for a value that is no id."""
        into = self.value(MERGED_INTO)
        return into if into != self.id and into.startswith(PREFIX) and names.is_id(into) else ""

    @property
    def is_present(self) -> bool:
        """True while some add is live."""
        return bool(self.live)

    @property
    def is_undone(self) -> bool:
        """True if all its occurrences were undone."""
        return not self.live and bool(self.adds) and not self.count("seen")

    @property
    def is_listed(self) -> bool:
        """True where the lesson is present and has a text that was not purged."""
        return bool(self.live) and self.value("text") not in ("", REDACTED)

    @property
    def is_own(self) -> bool:
        """True where somebody logged it in this folder."""
        return not self.mine.isdisjoint(self.adds)

    @property
    def last_seen(self) -> str:
        """Stamp of the newest live add, or of any add if it is retired, or of the first sight; "" if beyond the cut."""
        first = self.at if self.at <= self.cut else ""
        return max([stamp for stamp in (self.live or self.adds).values() if stamp <= self.cut], default=first)

    @property
    def recency(self) -> str:
        """``last_seen``, for ranking equal lessons; "" if its words are an edit by another agent in another folder."""
        reworded = self.edited.keys() & {"text", "correct"} - self.words.kept
        others = {self.edited[field][1] for field in reworded} - self.mine
        return "" if any(names.agent_of(each) != names.agent_of(self.by) for each in others) else self.last_seen

    def count(self, name: str) -> int:
        """Return the value of a counter: the sum of all totals and parts."""
        return gcounter.value(self.totals.get(name, {})) + gcounter.value(self.parts.get(name, {}))

    def own(self, name: str, writer: str) -> int:
        """Return a writer's own total of a counter."""
        return self.totals.get(name, {}).get(writer, 0)

    def weight(self, name: str) -> int:
        """Return a counter for ranking: each writer counts at most a fixed number for each of its sessions.

        A total is only its writer's claim. So is the number of sessions, which is therefore limited as well.
        """
        sessions, totals, parts = (self.totals.get("sessions", {}), self.totals.get(name, {}), self.parts.get(name, {}))
        each_max = limits.SESSION_SEEN_MAX if name == "seen" else 1
        writer_max = each_max * limits.WRITER_SESSIONS_MAX
        weight = min(writer_max, sum([min(count, limits.WRITER_SESSIONS_MAX) for count in parts.values()]))
        for writer, total in totals.items():
            weight += min(total, each_max * (sessions.get(writer) or 1), writer_max)
        return weight

    def seen_by(self, agent: str, *, anywhere: bool = False) -> int:
        """Return how often an agent logged it in this folder, under any of its replicas here or by hand.

        ``anywhere``: also under its replicas elsewhere, which anybody may have written, as lines are not signed.
        """
        seen = self.totals.get("seen", {})
        writers = seen.keys() | self.by_hand.keys() if anywhere else self.mine
        own = [writer for writer in writers if names.agent_of(writer) == agent]
        entries = gcounter.join(*(self.by_hand.get(writer, {}) for writer in own))
        return sum(seen.get(writer, 0) for writer in own) + sum(entries.values())

    def witnesses(self) -> int:
        """Return how many agents logged it; importing a record is no log."""
        return len(self.loggers)

    def agents(self) -> list[str]:
        """Return the names of the agents that logged it and of the authors of imported records, sorted."""
        imports = {author_field(part) for counts in self.parts.values() for part in counts if counts[part]}
        imports &= self.fields.keys()
        slots = [writer for writer in self.adds if names.agent_of(writer) == names.IMPORT]
        imports |= {author_field(slot.rpartition(".")[2]) for slot in slots}
        authors = {self.value(field) for field in imports}
        return sorted(self.loggers | {name if names.is_agent(name) else names.IMPORT for name in authors})


def fold(line: Line, policy: Policy = NO_POLICY) -> Pattern:
    """Return the lesson that a record amounts to under a policy."""
    columns = _counted_columns(line, policy)
    for writer, column in columns.items():
        if column.parts:
            columns[writer] = _without_undone(column)
    first_seen = [(at, writer) for writer, column in columns.items() if (at := column.first_seen())]
    at, by = min(first_seen, default=(clock.ZERO, ""))
    fields, edited, words = _folded_fields(Line(line.id, columns), columns.get(by, Column()), policy.cut)
    adds = {writer: column.add for writer, column in columns.items() if column.add}
    removals = [column.rem for column in columns.values() if column.rem]
    live = orset.live(adds, orset.join(*removals)) if removals else adds
    loggers = [names.agent_of(writer) for writer, column in columns.items() if _has_logged(column)]
    return Pattern(
        id=line.id,
        fields=fields,
        edited=edited,
        words=words,
        adds=adds,
        live=live,
        totals=_totals(columns),
        parts=_join_parts([column.parts for column in columns.values() if column.parts]),
        at=at,
        by=by,
        loggers=frozenset(loggers) - {names.IMPORT},
        by_hand=_by_hand(columns),
        cut=policy.cut,
        mine=policy.mine.intersection(columns),
        is_published=fields.get("state") == "published" and edited.get("state", ("", ""))[1] in policy.mine,
        retired_by=_remover(columns, adds) if adds and not live else "",
    )


def _counted_columns(line: Line, policy: Policy) -> dict[str, Column]:
    """Return the columns that count under a policy, sorted by writer."""
    columns = dict(sorted(line.w.items()))
    if withheld := policy.withheld.get(line.id):
        columns = {w: withheld[w].removed_from(column) if w in withheld else column for w, column in columns.items()}
    if policy.blocked:
        before = policy.earlier.get(line.id)
        earlier = before.without_purged(line).w if before is not None else {}
        chosen = {w: earlier.get(w) if policy.blocks(w) else column for w, column in columns.items()}
        columns = {writer: column for writer, column in chosen.items() if column is not None}
        columns |= _confirmed_words(line, columns)
    return columns


def _confirmed_words(line: Line, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the text of a lesson from a blocked writer's column, if others logged the lesson and none of them has it.

    Those others logged the same words, since the id is the hash of the text. A restore or an undo is no log.
    """
    is_logged = any(column.add and (column.n or column.parts) for column in columns.values())
    if not is_logged or any("text" in column.first or "text" in column.set for column in columns.values()):
        return {}
    for writer in sorted(line.w.keys() - columns.keys()):
        text = line.w[writer].first.get("text")
        if isinstance(text, str) and names.normalise(text) and names.pattern_id(text) == line.id:
            return {writer: Column(first={"text": text})}
    return {}


def is_blocked(writer: str, blocked: Container[str]) -> bool:
    """Return whether a replica, or its agent, is blocked."""
    return writer in blocked or names.agent_of(writer) in blocked


def _folded_fields(line: Line, author: Column, cut: str) -> tuple[dict[str, Any], dict[str, tuple[str, str]], _Words]:
    """Return the fields, (stamp, writer) of those that were edited, and the origin of their words.

    ``author``: the column of the writer that saw the lesson first.
    """
    replaced = line.marks("over")
    writers = line.wording_writers()
    values: dict[str, Any] = {field: line.w[writer].first[field] for field, writer in writers.items()}
    registers: dict[str, lww.Register] = {}
    has_future_edit = False
    for writer, column in line.w.items():
        for field, (stamp, value) in column.set.items():
            if replaced.get((writer, field), "") >= stamp:
                continue
            if stamp > cut:
                has_future_edit = True
                continue
            # A writer has one edit of a field, so the value never has to break a tie.
            register = lww.Register(stamp, writer, b"")
            if field not in registers or not lww.covers(registers[field], register):
                registers[field] = register
                values[field] = value
    values.pop(AT, None)
    edited = {field: (register.stamp, register.replica) for field, register in registers.items() if field != AT}
    # An edit without new words puts the author's wording back, or empties a field that nobody worded.
    wordings = {field: "" for field in edited if field not in writers} | author.first
    kept = [field for field in edited if field not in author.set and values[field] == wordings.get(field)]
    purged = {by: set(chain.from_iterable(line.w[by].purge.values())) for _, by in edited.values()}
    redacted = [field for field, (_, by) in edited.items() if field in purged[by] and _REDACTION in str(values[field])]
    shown_writers = writers if "text" in author.first else {}
    words = _Words(shown_writers, frozenset(kept), frozenset(redacted), has_future_edit)
    return dict(sorted(values.items())), edited, words


def is_undone_before_sent(news: Line, base: Line | None) -> bool:
    """Return whether ``news``, which others lack, has only occurrences that were undone before others had any of them.

    The names of the writers do not matter: those in a copied, restored or renamed folder may belong to somebody else by
    now. If others have a part of such a column (in ``base``), they need the undo of that part.
    """
    columns = news.w.values()
    if base is not None and not base.w.keys().isdisjoint(news.w):
        return False
    if not any(f"seen{UNDONE}" in column.parts for column in columns) or any(column.purge for column in columns):
        return False
    rated = any(column.set or column.over or not _FEEDBACK.isdisjoint(column.n) for column in columns)
    if base is not None and (rated or any(column.rem.keys() - news.w.keys() for column in columns)):
        return False  # it edits, rates or removes what others stated
    lesson, was_seen = fold(news), any("seen" in column.n or "seen" in column.parts for column in columns)
    return was_seen and bool(lesson.adds) and not lesson.live and not lesson.count("seen")


def _without_undone(column: Column) -> Column:
    """Return a column without the occurrences that its writer undid: their parts are 0, or the total is smaller."""
    totals = dict(column.n)
    parts = {name: dict(counts) for name, counts in column.parts.items() if not name.endswith(UNDONE)}
    for undone in column.parts.keys() - parts.keys():
        name = undone.removesuffix(UNDONE)
        counts = parts.get(name, {})
        keys = [key for key, number in column.parts[undone].items() if number % 2]
        counts.update((key, 0) for key in keys if key in counts)
        if name in totals:
            totals[name] = max(0, totals[name] - sum(key not in counts for key in keys))
    return msgspec.structs.replace(column, n=totals, parts=parts)


def _totals(columns: Mapping[str, Column]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for writer, column in columns.items():
        for name, total in column.n.items():
            if total:  # else all occurrences are undone
                totals.setdefault(name, {})[writer] = total
    return totals


def _has_logged(column: Column) -> bool:
    """Return whether a writer logged the lesson itself: an add beside imported records, or alone, is no log."""
    if "seen" in column.n and (column.n["seen"] or not _own_entries(column)):
        return bool(column.n["seen"])
    return bool(column.add) and bool(_own_entries(column))


def _own_entries(column: Column) -> dict[str, int]:
    """Return the parts of ``seen`` that are no import: entries written by hand."""
    seen = column.parts.get("seen", {})
    return {part: n for part, n in seen.items() if n and author_field(part) not in column.first}


def _by_hand(columns: Mapping[str, Column]) -> dict[str, dict[str, int]]:
    return {
        writer: entries
        for writer, column in columns.items()
        if column.parts and names.agent_of(writer) != names.IMPORT and (entries := _own_entries(column))
    }


def _remover(columns: Mapping[str, Column], adds: Mapping[str, str]) -> str:
    """Return who retired a lesson without a live add: the writer of the remove that covers most of the adds."""
    covered = {
        writer: sum(stamp <= column.rem.get(each, "") for each, stamp in adds.items())
        for writer, column in sorted(columns.items())
        if column.rem
    }
    return max(covered, key=lambda writer: covered[writer], default="")


def author_field(part: str) -> str:
    """Return the name of the field with an imported record's author, by the record's hash."""
    return AUTHOR_OF_IMPORT + part[:8]


# --- merged lessons -------------------------------------------------------------------------------------------------


def merged(patterns: Sequence[Pattern], speaker: Pattern | None = None) -> Pattern:
    """Return one lesson made of a set's records, for showing: it is never written. A single one is itself.

    It has the id and words of the ``speaker``: by default the smallest id that is listed, or in a set that is retired
    as a whole, the smallest with a text. Counters add up, also within one replica, which may have counted for both; a
    part counts once. A lesson is present while any of its records is. Fields that the speaker lacks come from the
    smallest id that has them. Tags are joined.
    """
    if len(patterns) == 1:
        return patterns[0]
    first = speaker or min(patterns, key=lambda pattern: (not pattern.is_listed, not pattern.text, pattern.id))
    members = sorted(patterns, key=lambda pattern: (pattern.id != first.id, pattern.id))
    fields, edited = _merged_fields(members)
    at, by = min(((member.at, member.by) for member in members if member.at != clock.ZERO), default=(clock.ZERO, ""))
    live = orset.join(*(member.live for member in members))
    return msgspec.structs.replace(
        first,
        fields=fields,
        edited=edited,
        words=_merged_words(first, members, edited),
        adds=orset.join(*(member.adds for member in members)),
        live=live,
        totals=_sum(member.totals for member in members),
        parts=_join_parts(member.parts for member in members),
        at=at,
        by=by,
        loggers=frozenset().union(*(member.loggers for member in members)),
        by_hand=_join_parts(member.by_hand for member in members),
        mine=frozenset().union(*(member.mine for member in members)),
        retired_by="" if live else next((member.retired_by for member in members if member.retired_by), ""),
    )


def _merged_words(first: Pattern, members: Sequence[Pattern], edited: Mapping[str, tuple[str, str]]) -> _Words:
    """Return the origin of a merged lesson's words: what a record says of an edit holds if that edit is shown."""
    writers, redacted = dict[str, str](), set[str]()
    kept = set[str]()
    for member in members[1:]:
        worded = first.edited.keys() & member.fields.keys() - member.edited.keys()
        kept |= {field for field in worded if member.fields[field] == first.fields[field]}
    for member in reversed(members):
        writers |= member.words.writers
        shown = {field for field in member.edited if edited.get(field) == member.edited[field]}
        kept |= member.words.kept & shown
        redacted |= member.words.redacted & shown
    return _Words(writers, frozenset(kept), frozenset(redacted))


def _merged_fields(members: Sequence[Pattern]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    fields: dict[str, Any] = {}
    edited: dict[str, tuple[str, str]] = {}
    for member in members:
        for field in [each for each in member.fields if each not in fields and each != MERGED_INTO]:
            fields[field] = member.fields[field]
            if field in member.edited:
                edited[field] = member.edited[field]
    if tags := dict.fromkeys(tag for member in members for tag in member.tags):
        fields["tags"] = list(tags)[: limits.TAGS_MAX]
    return dict(sorted(fields.items())), edited


def _sum(all_totals: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for totals in all_totals:
        for name, counts in totals.items():
            sums[name].update(counts)
    return {name: dict(counts) for name, counts in sums.items()}


def _join_parts(all_parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    counters: dict[str, list[Mapping[str, int]]] = defaultdict(list)
    for name, counts in chain.from_iterable(parts.items() for parts in all_parts):
        counters[name].append(counts)
    return {name: gcounter.join(*counts) for name, counts in counters.items()}


class Merges:
    """Graph of the merged records: an edge leads from a record's id to the id that the record is merged into."""

    def __init__(self, edges: Mapping[str, str]) -> None:
        self._edges = edges

    @staticmethod
    def connected(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
        """Return the connected components of an undirected graph, each sorted (union-find)."""
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
        """Return the merged sets, each sorted, including ids whose records have not arrived."""
        return self.connected(self._edges.items())

    def merging(self, here: Container[str], first: str, second: str) -> tuple[str, str]:
        """Return the edge, as (source, target), that merges two lessons; raise ``NoError`` if they are merged already.

        The larger id points to the smaller. If a record has an edge already, the end of its chain gets the new one: a
        field has one value, and overwriting it would take a third record out of the set. Of the two ends, the source is
        preferably one whose record is ``here``.
        """
        if first == second:
            raise NoError(f"{first} is one lesson already; nothing was changed")
        sets = {member: group for group in self.groups() for member in group}
        mine, theirs = sets.get(first, [first]), sets.get(second, [second])
        if second in mine:
            raise NoError(f"{first} and {second} are merged already; nothing was changed")
        ends = [(self._end(mine), theirs), (self._end(theirs), mine)]
        source, into = max(ends, key=lambda end: (end[0] in here, end[0]))
        return source, self._end(into)

    def unmerging(self, pattern_id: str) -> list[str]:
        """Return the records whose edge has to be cleared to undo a merge; raise ``NoError`` for an unmerged record.

        That is the record itself, or if it has no edge, those with an edge to it. In the first case, records that were
        merged into it before stay with it.
        """
        sources = sorted(source for source, target in self._edges.items() if target == pattern_id)
        cleared = [pattern_id] if pattern_id in self._edges else sources
        if not cleared:
            raise NoError(f"{pattern_id} is not merged with another; nothing was changed")
        cycle = self._cycle(pattern_id)
        if pattern_id in cycle:  # else the edge back still connects them
            cleared += [member for member in cycle if self._edges[member] == pattern_id and member not in cleared]
        return cleared

    def _end(self, group: Iterable[str]) -> str:
        """Return the member without an edge; in a cycle, where each has one, the largest, whose edge is redundant."""
        members = sorted(group)
        end = next((member for member in members if member not in self._edges), "")
        return end or max(self._cycle(members[0]))

    def _cycle(self, start: str) -> list[str]:
        """Return the ids of the cycle that a walk from ``start`` ends in; none for a walk that ends."""
        path: dict[str, int] = {}
        node = start
        while node in self._edges and node not in path:
            path[node] = len(path)
            node = self._edges[node]
        return list(path)[path[node] :] if node in path else []
