"""Use cases of review: decide pairs of close lessons, block writers, and take in parts that are left out.

The answer "same" merges two lessons for the whole clan. The answer "different" and a block are notes of this machine
alone: a block changes nobody's column, and everything derived from the folds here follows at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from crdt import clock
from fleet.app import pages, reflecting, starting
from fleet.app.finding import find, first_stamp
from fleet.app.lessons import merge, retire
from fleet.learn.counting import add_stamp, reconcile_all
from fleet.model import edits, limits, names
from fleet.model import line as codec
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.model.names import LABELS
from fleet.model.pattern import Merges, Pattern, Policy, fold, is_blocked, merged
from fleet.model.withheld import BULK, OWN, Held
from fleet.recall.wording import Renderer
from fleet.reflect.clusters import Weighing
from fleet.reflect.evidence import RETIRED, Evidence, Witnesses
from fleet.reflect.inbox import Inbox
from fleet.reflect.memory_md import Memory
from fleet.reflect.promotion import AgentMemory
from fleet.store.lines import PATTERNS, Kind, LineReader
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, readable, shortened

LIKELY, CONTRADICTION = "likely", "contradiction"
SAME, DIFFERENT, FIRST, SECOND, BOTH, ASK = "same", "different", "first", "second", "both", "ask"
ANSWERS = {LIKELY: (SAME, DIFFERENT), CONTRADICTION: (FIRST, SECOND, BOTH, SAME)}
"""Answers to a pair; `fleet undo` takes one back."""
TAKE, LEAVE = "take", "leave"
ANSWERS_TO_LEFT_OUT = (TAKE, LEAVE)
SHOWN_MAX = 5
_NOBODY = "no writer here is called {}; nothing was changed. `fleet status` lists the replicas"
_SEPARATOR = ":"
_VALUE_CHARS_MAX, _EFFECT_CHARS_MAX = 120, 400
_Folds = dict[str, tuple[Pattern, Pattern]]
"""Folds of records under two policies, by id: the one before a block (or before its end), and the one after."""


class _Difference(NamedTuple):
    """Difference of a lesson under two policies: a field, a counter, or ``listed``, and how it reads in each."""

    id: str
    field: str
    before: str
    after: str

    def in_one_line(self) -> str:
        """Return the difference for a person, long values cut."""
        before, after = (shortened(each, _VALUE_CHARS_MAX) or "(nothing)" for each in (self.before, self.after))
        return f"{LABELS.get(self.field, self.field)}: {before} -> {after}"


def _differences(before: Pattern, after: Pattern) -> list[_Difference]:
    """Return the differences between two folds of a lesson: of the known fields, the text first, then of the rest."""
    fields = dict.fromkeys([*LABELS, *sorted(before.fields.keys() | after.fields.keys())])
    counters = sorted({*before.totals, *before.parts, *after.totals, *after.parts})
    pairs: list[tuple[str, Any, Any]] = [(each, before.fields.get(each), after.fields.get(each)) for each in fields]
    pairs += [(each, before.count(each), after.count(each)) for each in counters]
    pairs.append(("listed", "yes" if before.is_listed else "no", "yes" if after.is_listed else "no"))
    return [_Difference(before.id, readable(each), _shown(old), _shown(new)) for each, old, new in pairs if old != new]


def _shown(value: object) -> str:
    """Return a field's value or a count as a text fit to be shown, "" for none."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return ", ".join(readable(str(each)) for each in values)


# --- blocking -------------------------------------------------------------------------------------------------------


class _MemoryEntry(NamedTuple):
    """Entry of a lesson in an agent's memory: its line there."""

    agent: str
    id: str
    row: str


class Changes(NamedTuple):
    """Effect of a block, or of its end.

    Attributes:
        gone: text of each lesson that disappears, by id; at the end of a block, of each that reappears.
        other: ids of lessons that read or count otherwise; ``differences``: in what.
        discoveries: number of those not shown, or shown again.
        left: entries that left the memories here.
        kept: entries that stay, since a person had approved them, though their lesson is gone or reads otherwise.
        retired: ids of the lessons that were retired for everybody, or would be.
    """

    name: str
    since: str
    gone: dict[str, str]
    other: list[str]
    differences: list[_Difference]
    discoveries: int = 0
    left: tuple[_MemoryEntry, ...] = ()
    kept: tuple[_MemoryEntry, ...] = ()
    retired: tuple[str, ...] = ()


def block(
    workspace: Workspace, agent: str, name: str, *, since: str = "", dry_run: bool = False, retire: bool = False
) -> Changes:
    """Leave a writer's columns out of the folds here; counts, lessons, memories and pages follow at once.

    ``name``: a replica, or an agent for all of its replicas.
    ``since``: a day or a time; what that writer had on the branch then still counts. "": nothing of it counts.
    ``retire``: retire for everybody the lessons that only that writer has, too.

    Raises:
        UsageError: ``name`` cannot be a writer's name, or ``since`` is no time.
        NoError: ``name`` writes in this folder, or has written nothing that is here.
    """
    _check_writer(workspace, name)
    since_stamp = first_stamp(since)
    if not dry_run and not workspace.is_read_only:
        reconcile_all(workspace)
    earlier = _as_of(workspace, since_stamp, name) if since_stamp else {}
    before, records = workspace.policy(), list(_records_of(workspace, name))
    others = {other: at for other, at in before.blocked.items() if other != name}
    valid = {line.id: earlier[line.id] for line in records if line.id in earlier}
    for each, line in before.earlier.items():  # what an earlier block of this name let count is replaced
        for writer, part in line.by_writer().items():
            if is_blocked(writer, others) or not is_blocked(writer, (name,)):
                valid[each] = codec.join(valid.get(each, part), part)
    after = before._replace(blocked={**others, name: since_stamp}, earlier=valid)
    folds = _folds(records, before, after)
    changes = _changes(workspace, name, since_stamp, folds)
    if not records and not changes.discoveries:
        raise NoError(_NOBODY.format(name[:60]))
    leaving, kept = _in_memories(workspace, folds)
    unblocked = _folds(records, before._replace(blocked=others), after) if retire else {}
    alone = [each for each, (old, new) in unblocked.items() if old.is_present and not new.is_present]
    if not dry_run:
        workspace.trust.block(name, since_stamp, earlier.values(), workspace.wall())
        if alone:
            with workspace.writing(agent) as mine:
                mine.write([edits.retire(line, mine.name) for line in records if line.id in alone])
        for member in dict.fromkeys(each.agent for each in leaving):
            with workspace.locked():
                AgentMemory(workspace, member).release([each.id for each in leaving if each.agent == member])
        _refresh_derived(workspace)
    return changes._replace(left=leaving, kept=kept, retired=tuple(alone))


def unblock(workspace: Workspace, name: str) -> Changes:
    """Let a writer's columns count again; raise ``NoError`` for one that is not blocked."""
    blocks = {each.name: each for each in workspace.trust.blocked()}
    if name not in blocks:
        listed = ", ".join(blocks) or "none"
        raise NoError(f"{name[:60]} is not blocked here; nothing was changed. Blocked writers: {listed}")
    after = workspace.policy()
    before = after._replace(blocked={other: at for other, at in after.blocked.items() if other != name})
    changes = _changes(workspace, name, blocks[name].since, _folds(_records_of(workspace, name), before, after))
    workspace.trust.unblock(name)
    reflecting.promote_all(workspace)
    _refresh_derived(workspace)
    return changes


def _check_name(name: str) -> None:
    if not names.is_agent(names.agent_of(name) if names.is_replica(name) else name):
        raise UsageError(
            f"{name[:60]!r} is neither an agent nor a replica (<agent>.<8 hex digits>); nothing was changed"
        )


def _check_writer(workspace: Workspace, name: str) -> None:
    _check_name(name)
    if any(is_blocked(mine, (name,)) for mine in workspace.mine()):
        raise NoError(f"{name} writes in this folder: block one of its other replicas by name. Nothing was changed")


def _records_of(workspace: Workspace, name: str) -> Iterator[Line]:
    """Yield the records that a replica or an agent has a column of."""
    for line in workspace.patterns.naming(name):
        if any(is_blocked(writer, (name,)) for writer in line.by_writer()):
            yield line


def _as_of(workspace: Workspace, stamp: str, name: str) -> dict[str, Line]:
    """Return the columns of a replica or an agent in the branch at a time, by id."""
    by_id: dict[str, Line] = {}
    tree = workspace.tree
    paths = tree.paths(tree.before(clock.unpack(stamp)[0] / 1000))
    for path in sorted(path for path in paths if Kind.of(path) is PATTERNS):
        for _, entry in LineReader().entries(PATTERNS, [tree.read(paths[path].oid)], path):
            for writer, part in entry.by_writer().items() if isinstance(entry, Line) else ():
                if is_blocked(writer, (name,)):
                    by_id[part.id] = codec.join(by_id.get(part.id, Line(part.id)), part)
    return by_id


def _folds(records: Iterable[Line], before: Policy, after: Policy) -> _Folds:
    return {line.id: (fold(line, before), fold(line, after)) for line in records}


def _changes(workspace: Workspace, name: str, since: str, folds: _Folds) -> Changes:
    gone = {each: readable(old.text) for each, (old, new) in folds.items() if old.is_listed and not new.is_listed}
    differences = [each for id_, both in folds.items() if id_ not in gone for each in _differences(*both)]
    other = list(dict.fromkeys(each.id for each in differences))
    known = list(LABELS)
    differences.sort(key=lambda each: known.index(each.field) if each.field in known else len(known))
    return Changes(name, since, gone, other, differences, workspace.discoveries.count_by(name, since))


def _in_memories(workspace: Workspace, folds: _Folds) -> tuple[tuple[_MemoryEntry, ...], tuple[_MemoryEntry, ...]]:
    """Return the entries that a block removes from the memories here, and those that a person had approved."""
    left, kept = list[_MemoryEntry](), list[_MemoryEntry]()
    for agent in workspace.agents_here():
        evidence = Evidence(agent, workspace.config.promotion, Witnesses(workspace).witness())
        for id_, row in AgentMemory(workspace, agent).rows().items():
            is_approved = AgentMemory.is_approved(row)
            if id_ in folds and evidence.is_lost(*folds[id_]):
                (kept if is_approved else left).append(_MemoryEntry(agent, id_, row))
            elif is_approved and _has_lost_words(workspace, id_, row, folds):
                kept.append(_MemoryEntry(agent, id_, row))
    return tuple(left), tuple(kept)


def _has_lost_words(workspace: Workspace, id_: str, row: str, folds: _Folds) -> bool:
    """Return whether an entry has words that its lesson, or the merged set it is part of, no longer has."""
    before, group = workspace.patterns.lesson(id_), workspace.patterns.group(id_)
    if before is None or folds.keys().isdisjoint(group):
        return False
    records = (folds[each][1] if each in folds else workspace.patterns.get(each) for each in group)
    after = {each.id: each for each in records if each is not None}
    sets = Merges.connected((each.id, each.merged_into or each.id) for each in after.values())
    lesson = merged([after[each] for each in next(one for one in sets if id_ in one) if each in after])
    words = Memory.row(lesson.text, lesson.correct, "", "").removesuffix("(; )")
    return (before.text, before.correct) != (lesson.text, lesson.correct) and not row.startswith(f"{words}(")


def _refresh_derived(workspace: Workspace) -> None:
    """Derive the page, the guards and the inbox from the folds again; the generation outdates the text of a start."""
    workspace.db.refresh()
    asked = {each.name for each in questions(workspace)}
    for entry in Inbox(workspace).waiting(BULK):
        if entry.item.body.get("pair") not in asked:
            Inbox(workspace).settle(BULK, entry.item.key, "it was decided elsewhere")
    for agent in workspace.agents_here():
        reflecting.take_out_retired(workspace, agent)
    starting.Guards(workspace).make_ready()
    pages.write_page(workspace)


# --- removed lessons -------------------------------------------------------------------------------------------------


def restore_all(workspace: Workspace, agent: str, removed_by: str, *, since: str = "") -> list[tuple[str, str]]:
    """Restore every lesson that a replica or an agent removed; return (id, text) of each.

    With ``since``, a day or a time, the removes that the branch held then stay.

    Raises:
        UsageError: ``removed_by`` cannot be a writer's name, or ``since`` is no time.
        NoError: that writer has written nothing that is here, or removed nothing that is still out.
    """
    _check_name(removed_by)
    stamp = first_stamp(since)
    reconcile_all(workspace)
    earlier = _as_of(workspace, stamp, removed_by) if stamp else {}
    records = list(_records_of(workspace, removed_by))
    if not records and not workspace.discoveries.count_by(removed_by, ""):
        raise NoError(_NOBODY.format(removed_by[:60]))
    policy, restored = workspace.policy(), list[tuple[Line, Pattern]]()
    for line in records:
        lesson = fold(line, policy)
        is_out = not lesson.is_present or lesson.state == RETIRED
        theirs = (writer for writer in line.by_writer() if is_blocked(writer, (removed_by,)))
        if is_out and any(line.has_removed(writer, earlier.get(line.id)) for writer in theirs):
            restored.append((line, lesson))
    if not restored:
        raise NoError(f"{removed_by} removed nothing that is out; nothing was changed")
    with Runs(workspace).recording(agent, "restore") as draft, workspace.writing(agent) as writer:
        again, retired = add_stamp(writer), [line for line, lesson in restored if lesson.state == RETIRED]
        states = [writer.edit(line, "state", edits.CANDIDATE) for line in retired]
        writer.write([*(edits.restore(line, writer.name, again) for line, _ in restored), *states])
        draft.summary = f"restored {counted(len(restored), 'lesson')} that {removed_by} had removed"
        draft.lessons = [line.id for line, lesson in restored if not lesson.is_present]
        draft.fields = [Field(line.id, "state", RETIRED, edits.CANDIDATE) for line in retired]
    return [(line.id, readable(lesson.text)) for line, lesson in restored]


# --- parts left out here -------------------------------------------------------------------------------------------


class _Effect(NamedTuple):
    """Effect of a yes on a lesson, or on a discovery, with its text as it is now."""

    id: str
    text: str
    is_retired: bool
    differences: Sequence[_Difference] = ()

    def in_one_line(self) -> str:
        """Return the text and the effect for a person."""
        changed = shortened("; ".join(each.in_one_line() for each in self.differences), _EFFECT_CHARS_MAX)
        effect = "would be retired" if self.is_retired else changed
        return f"{self.text} ({effect})" if effect else self.text


class Question(NamedTuple):
    """Question to a person: whether parts of others, left out here until then, are taken in.

    Attributes:
        kind: ``own`` or ``bulk``.
        group: a replica, or ``newcomers``.
        lessons: the lessons and discoveries in question.
        retires: number of them that a yes removes; ``edits``: that it changes.
    """

    kind: str
    group: str
    writers: list[str]
    lessons: list[_Effect]
    retires: int
    edits: int

    @property
    def name(self) -> str:
        """Name of the question, as an answer takes it."""
        return f"{self.kind}{_SEPARATOR}{self.group}"

    @property
    def summary(self) -> str:
        """Effect of a yes, in a sentence."""
        lessons = counted(len(self.lessons), "lesson or discovery", "lessons or discoveries")
        if self.kind == OWN:
            return (
                f"{lessons} came with words or counts under {self.group}, a name of this folder, that were never "
                "written here. If this folder was put back from an older copy, or you undid something in a copy of it, "
                "they are yours"
            )
        listed = ", ".join(self.writers[:SHOWN_MAX]) + ", ..." * (len(self.writers) > SHOWN_MAX)
        who = f"Writers of whom nothing was known ({listed})" if self.group == "newcomers" else self.group
        changes = f"retire {self.retires:,} and edit {self.edits:,} lessons or discoveries of others"
        return f"{who} would {changes}, all at once"

    def as_json(self) -> dict[str, Any]:
        """Return the question as ``--json`` has it."""
        same = {name: getattr(self, name) for name in ("kind", "writers", "retires", "edits")}
        lessons = [
            {"id": one, "text": text, "retires": is_retired, "differences": [each._asdict() for each in differences]}
            for one, text, is_retired, differences in self.lessons[: limits.PAGE_LESSONS_MAX]
        ]
        fields = {"pair": self.name, "writer": self.group, "told": self.summary, **same}
        return fields | {"lessons": lessons, "answers": list(ANSWERS_TO_LEFT_OUT)}


def questions(workspace: Workspace) -> list[Question]:
    """Return the questions about undecided parts, without those of blocked writers that would have no effect."""
    groups: dict[tuple[str, str], list[Held]] = {}
    for part in workspace.trust.held():
        if part.is_asked:
            groups.setdefault((part.kind, part.group), []).append(part)
    blocked = workspace.policy().blocked
    asked = [_question(workspace, *name, parts) for name, parts in sorted(groups.items())]
    return [
        each
        for each in asked
        if each.retires or each.edits or not all(is_blocked(one, blocked) for one in each.writers)
    ]


def _question(workspace: Workspace, kind: str, group: str, parts: list[Held]) -> Question:
    policy, changes, lessons = workspace.policy(), 0, list[_Effect]()
    theirs = sorted({part.writer for part in parts})
    for id_ in dict.fromkeys(part.id for part in parts):
        line, discovery = workspace.patterns.line(id_), workspace.discoveries.get(id_)
        if discovery is not None and (retracted := workspace.discoveries.get(discovery.retracts)):
            lessons.append(_Effect(id_, readable(retracted.problem or retracted.solution), is_retired=True))
        if line is None:
            continue
        others = {w: part for w, part in policy.withheld.get(id_, {}).items() if w not in theirs}
        now, then = fold(line, policy), fold(line, policy._replace(withheld={id_: others}))
        is_retired = now.is_listed and (not then.is_listed or then.state == RETIRED)
        changes += not is_retired and (not now.is_listed or now.fields != then.fields)
        lessons.append(_Effect(id_, readable(now.text or then.text), is_retired, _differences(now, then)))
    lessons.sort(key=lambda each: each.is_retired)  # new words are to be read, and only some are shown
    return Question(kind, group, theirs, lessons, sum(each.is_retired for each in lessons), changes)


def _answer_left_out(workspace: Workspace, name: str, answer: str, command: str) -> str:
    """Decide a question about what is left out; return the effect, in words. It leaves no run: ``ask`` reopens it."""
    kind, _, group = name.partition(_SEPARATOR)
    if answer not in (choices := (*ANSWERS_TO_LEFT_OUT, ASK)):
        raise UsageError(f"{answer[:20]!r} is no answer: {', '.join(choices)}; nothing was changed")
    if answer == ASK:
        parts = workspace.trust.ask_again(kind, group)
    else:
        parts = workspace.trust.decide(kind, group, is_taken=answer == TAKE)
    if not parts:
        raise NoError(f"nothing waits under {name[:80]}; nothing was changed. `fleet review --json`")
    workspace.has_changed = True
    with suppress(FleetError):  # it is decided: neither the note nor what follows is a reason to fail
        Runs(workspace).note_unrecorded(command, clock.after(workspace.wall()))
        _refresh_derived(workspace)
    lessons = counted(len({each.id for each in parts}), "lesson or discovery", "lessons or discoveries")
    if answer != LEAVE:
        return f"{lessons}: {'asked again' if answer == ASK else 'taken in'}"
    hint = "" if group == "newcomers" or kind == OWN else f"; `fleet block {group}` leaves out the rest of it, too"
    return f"{lessons}: left out here; `fleet review --answer {name}=ask` asks again{hint}"


# --- pairs of lessons -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Pair of lessons to decide, of a kind in ``ANSWERS``, and the differences between them."""

    kind: str
    one: Pattern
    other: Pattern
    differs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the pair, as an answer takes it: both ids."""
        return f"{self.one.id}{_SEPARATOR}{self.other.id}"

    def rows(self) -> list[str]:
        """Return a line for each of the two: its text, author and count."""
        rows = []
        for lesson in (self.one, self.other):
            parts = [Renderer().author(lesson.by), f"seen {lesson.count('seen'):,}", Renderer().edits(lesson)]
            rows.append(f"{lesson.text} ({', '.join(filter(None, parts))}; {lesson.id})")
        return rows


def undecided_pairs(workspace: Workspace) -> list[Pair]:
    """Return the undecided pairs: contradictions first, then the closest."""
    with workspace.snapshot():
        clusters, lesson = reflecting.current_clusters(workspace), workspace.patterns.lesson
        pairs = [*((CONTRADICTION, each) for each in clusters.opposed), *((LIKELY, each) for each in clusters.likely)]
        resolved = ((kind, each.differs, [lesson(id_) for id_ in each.ids]) for kind, each in pairs)
        return [Pair(kind, one, other, differs) for kind, differs, (one, other) in resolved if one and other]


def _grouped_pairs(workspace: Workspace, id_: str) -> list[Pair]:
    """Return the pairs of a lesson with the others that are grouped with it."""
    ids = reflecting.current_clusters(workspace).of(id_)
    lessons = workspace.patterns.lessons_of(ids)
    others = (lessons[each] for each in ids if each != id_ and each in lessons)
    return [Pair(LIKELY, lessons[id_], other, ()) for other in others] if id_ in lessons else []


def answer(
    workspace: Workspace, agent: str, pair: str, choice: str, command: str = "fleet review --answer"
) -> tuple[str, str]:
    """Decide a pair, or a question about what is left out here; return its full name and the effect, in words.

    Two wordings that are grouped as one lesson are a pair, too, which an answer parts. The caller holds the lock of
    decisions: of two answers at the same time the second finds no pair that waits.

    ``pair``: both ids, or unique beginnings of them, with a colon between; or the name of a question.
    ``choice``: one of ``ANSWERS``, or of ``ANSWERS_TO_LEFT_OUT``.
    ``command``: the command that gave the answer; ``fleet undo`` names it if the answer leaves no run.

    Raises:
        UsageError: the pair or question has no such answer.
        NoError: there is no such pair.
    """
    if pair.partition(_SEPARATOR)[0] in (OWN, BULK):
        return pair, _answer_left_out(workspace, pair, choice, command)
    first, _, second = pair.partition(_SEPARATOR)
    if not first or not second:
        raise UsageError("name a pair by both ids, p-...:p-..., as `fleet review --json` lists them")
    one, other = find(workspace, first).id, find(workspace, second).id
    pairs = [*undecided_pairs(workspace), *_grouped_pairs(workspace, one)]
    pending = next((each for each in pairs if {each.one.id, each.other.id} == {one, other}), None)
    if pending is None:
        raise NoError(f"{pair[:80]} is no pair that waits for an answer; nothing was changed. `fleet review --json`")
    if choice not in ANSWERS[pending.kind]:
        choices = ", ".join(ANSWERS[pending.kind])
        raise UsageError(f"{choice[:20]!r} is no answer to a {pending.kind} pair: {choices}; nothing was changed")
    if choice == SAME:  # the words that were used more stand for both, whichever id is the smaller
        seen = {each.id: each.count("seen") for each in (pending.one, pending.other)}
        one, other = sorted((one, other), key=lambda id_: -seen[id_])
    summary = _decide(workspace, agent, one, other, choice)
    kind = CONTRADICTION if pending.kind == CONTRADICTION else "merge"
    Inbox(workspace).settle(kind, _SEPARATOR.join(sorted((one, other))), summary)
    return pending.name, summary


def _decide(workspace: Workspace, agent: str, one: str, other: str, choice: str) -> str:
    if choice == SAME:
        done = merge(workspace, agent, one, other, force=True)
        promoted = f"; promoted: it stands in {', '.join(done.promoted)} from now on" if done.promoted else ""
        return f"{one} and {other} are one lesson, worded as {one}; `fleet unmerge {done.changed}` undoes it{promoted}"
    if choice in (FIRST, SECOND):
        retired, kept = (other, one) if choice == FIRST else (one, other)
        retire(workspace, agent, retired)
        with suppress(FleetError):  # it is decided, whether or not anybody is warned later
            Weighing(workspace).keep_first(kept, retired)
        return f"{kept} holds; {retired} is retired, and `fleet restore {retired}` undoes it"
    with Runs(workspace).recording(agent, "decide") as draft:
        Weighing(workspace).keep_apart([(one, other)])
        draft.summary = f"{one} and {other} are two lessons"
        draft.fields = [Field(" ".join(sorted((one, other))), "apart", None, "apart")]
        starting.forget(workspace)
    return f"two lessons; `fleet undo {draft.run}` undoes it"
