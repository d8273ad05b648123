"""Use cases of one lesson: show it, change it, retire it, merge it with another. Discoveries are only retracted."""

import difflib
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

import msgspec

from fleet.app import observing, reflecting
from fleet.app.finding import find
from fleet.learn import counting, discoveries
from fleet.learn.corrections_md import Entry
from fleet.learn.inputs import Text, secrets_in
from fleet.model import edits, limits
from fleet.model.discovery import Discovery
from fleet.model.errors import NoError, RefusedError, UsageError
from fleet.model.line import BadLineError, Line, canonical, check_value
from fleet.model.names import FIELDS, LABELS, only, pattern_id
from fleet.model.pattern import MERGED_INTO, PRIVATE, SCOPE, Merges, Pattern, fold, merged
from fleet.recall import triggers
from fleet.reflect.clusters import Weighing
from fleet.reflect.promotion import AgentMemory
from fleet.store.config import as_toml
from fleet.store.runs import Field, Runs
from fleet.store.workspace import Workspace, Writer
from fleet.text.similarity import ALIKE_MIN, near

_VALUES = {field.name: field.values for field in FIELDS if field.values}
_KNOWN = {alias: field.name for field in FIELDS for alias in (field.name, field.label, *field.aliases)}
"""A field's name in a record by its name, label or alias. A newer version's field can be set if the lesson has it."""
_RESERVED = {
    "merged_into": "`fleet merge A B` sets it, `fleet unmerge A` clears it",
    "id": "an id is computed once, from the first text, and never again",
    "v": "it says which version wrote a line",
    "agent": "it tells who logged an imported record",
}
_WORDS = ("text", "correct")
_ATTRIBUTION = r"(?a)agent\.[0-9a-f]{8}"
_NAME = r"(?a)[a-z][a-z0-9_.-]*"


class _LessonChange(NamedTuple):
    """Result of a change of a lesson.

    Attributes:
        others: ids of the other records merged with it, or changed with it.
        promoted: paths of the memories that the lesson entered by this change.
        whole: number of its occurrences in all wordings that say the same; 0: nobody compared them.
    """

    pattern: Pattern
    others: list[str]
    changed: str
    promoted: tuple[str, ...] = ()
    whole: int = 0

    def as_json(self) -> dict[str, Any]:
        lesson = {"id": self.pattern.id, "text": self.pattern.text, "seen": self.pattern.count("seen")}
        more = {"promoted": list(self.promoted)} if self.promoted else {}
        return lesson | {"others": self.others, "changed": self.changed} | more


# --- reading --------------------------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """One field, its new value, and the kinds of secrets that were removed from it."""

    field: str
    value: Any
    secrets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, assignment: str) -> "_Change":
        """Parse ``field=value``, screened and within the limits.

        A value is text; ``importance`` is a number, and ``tags`` are words between commas.
        """
        field, equals, given = assignment.partition("=")
        field = _KNOWN.get(field.strip(), field.strip())
        if not equals or not field:
            raise UsageError(f"--set takes field=value, not {assignment[:60]!r}. Nothing was changed")
        _check_name(field)
        change = _tags(given) if field == "tags" else cls(field, *Text.enter(f"set {field}", given))
        change = change._replace(value=_importance(given)) if field == "importance" else change
        _check_meaning(field, change.value)
        try:
            check_value(field, change.value)
        except BadLineError as why:
            raise RefusedError(f"{why}; nothing was changed. Say it shorter") from why
        return change

    def check_known(self, known: Pattern) -> None:
        """Raise ``UsageError`` with the nearest known field unless this version or the lesson has the field."""
        if self.field in _KNOWN or self.field in known.fields:
            return
        near = difflib.get_close_matches(self.field, sorted({*_KNOWN, *known.fields}), n=1)
        meant = f"; did you mean '{near[0]}'?" if near else f": one of {', '.join(sorted(_KNOWN))}."
        raise UsageError(f"a lesson has no field '{self.field}'{meant} Nothing was changed")

    def differs(self, known: Pattern) -> bool:
        """Return whether the lesson has another value. Canonical bytes are compared, so that ``1`` is not ``true``."""
        return self.field not in known.fields or canonical(known.fields[self.field]) != canonical(self.value)


def show(workspace: Workspace, prefix: str) -> tuple[str, Pattern, list[Pattern], list[str]]:
    """Return a record's id, the lesson that it belongs to, its other records, and whose memories here have it.

    Raises:
        NoError: no lesson has an id with this prefix, or more than one.
    """
    record = find(workspace, prefix, is_read=True)
    members = _members(workspace, record)
    lesson, ids = merged(members), {each.id for each in members}
    inside = [each for each in workspace.agents_here() if not ids.isdisjoint(AgentMemory(workspace, each).rows())]
    return record.id, lesson, [each for each in members if each.id != lesson.id], inside


def show_discovery(workspace: Workspace, prefix: str, *, is_read: bool = True) -> dict[str, Any]:
    """Return all that is known of one discovery. ``is_read``: False if the caller is going to change it.

    Raises:
        NoError: no discovery has an id with this prefix, or more than one.
    """
    entry = discoveries.find(workspace, prefix, is_read=is_read)
    fields: dict[str, Any] = msgspec.to_builtins(entry)
    blank: dict[str, Any] = {"context": "", "solution": "", "confidence": "", "minutes": None, "tags": []}
    return blank | fields | {"retracted": entry.id in workspace.discoveries.retracted()}


def show_correction(workspace: Workspace, prefix: str) -> dict[str, Any]:
    """Return all that is known of one entry of a log; ``lesson`` is the id of the lesson it counts for, if any.

    Raises:
        NoError: no entry has an id with this prefix, or more than one.
    """
    entries = {
        entry.id: _correction(agent, entry)
        for agent in workspace.homes()
        for entry in counting.CountedLog(workspace, agent).read_log().entries
        if entry.id.startswith(prefix)
    }
    none = f"no correction here begins with {prefix[:40]!r}. `fleet learn --waiting --all` lists those without a lesson"
    known = {id_: entries[id_]["title"] or entries[id_]["wrong"] for id_ in sorted(entries)}
    return entries[only(known, prefix, none, is_read=True)]


def _correction(agent: str, entry: Entry) -> dict[str, Any]:
    fields = {name: getattr(entry, name) for name in ("when", "title", "wrong", "right", "pattern", "source")}
    lesson = entry.record.pattern if entry.record and not entry.is_undone else ""
    return {"id": entry.id, "agent": agent, **fields, "undone": entry.is_undone, "lesson": lesson}


def _members(workspace: Workspace, record: Pattern) -> list[Pattern]:
    """Return the records merged with this one, itself included."""
    group = workspace.patterns.some(workspace.patterns.group(record.id))
    return [record if each.id == record.id else each for each in group] or [record]


# --- changing -------------------------------------------------------------------------------------------------------


def retire(workspace: Workspace, agent: str, prefix: str) -> _LessonChange:
    """Retire a lesson, with all records merged with it. A confirmation that is not known here yet survives.

    Raises:
        NoError: there is no such lesson, or it is retired already.
    """
    with Runs(workspace).recording(agent, "retire") as draft:
        changed = _edit_records(workspace, agent, prefix, lambda line, me, _: edits.retire(line, me), is_in=True)
        draft.summary = f"retired {changed.pattern.id}"
        draft.retired = [changed.pattern.id, *changed.others]
        for each in workspace.agents_here():
            reflecting.take_out_retired(workspace, each)
    return changed


def retract(workspace: Workspace, agent: str, prefix: str) -> Discovery:
    """Retract a discovery for good: nobody is shown it again."""
    with Runs(workspace).recording(agent, "retract") as draft:
        entry = discoveries.Findings(workspace, agent).retract(prefix)
        draft.summary, draft.retired = f"took {entry.id} back, for good", [entry.id]
    return entry


def restore(workspace: Workspace, agent: str, prefix: str) -> _LessonChange:
    """Bring a retired lesson back, with its history.

    Raises:
        NoError: there is no such lesson, or it is not retired.
    """
    with Runs(workspace).recording(agent, "restore") as draft:
        changed = _edit_records(workspace, agent, prefix, edits.restore, is_in=False)
        draft.summary, draft.lessons = f"restored {changed.pattern.id}", [changed.pattern.id, *changed.others]
    return changed


def _edit_records(
    workspace: Workspace, agent: str, prefix: str, change: Callable[[Line, str, str], Line], *, is_in: bool
) -> _LessonChange:
    """Edit the present records of a lesson (``is_in``), or its removed ones. A lesson is present if one record is."""
    # The logs are counted first: an add that is still pending must not undo this edit later.
    counting.reconcile_all(workspace)
    with workspace.writing(agent) as writer:
        stamp = counting.add_stamp(writer)
        members = _members(workspace, find(workspace, prefix))
        lesson = merged(members)
        if lesson.is_present is not is_in:
            raise NoError(f"{lesson.id} is {'retired already' if is_in else 'not retired'}; nothing was changed")
        ids = [each.id for each in members if each.is_present is is_in]
        writer.write([change(writer.line(each), writer.name, stamp) for each in ids])
    from fleet.app.starting import Guards

    Guards(workspace).make_ready()  # a hook reads the prepared table and no database
    return _LessonChange(lesson, [each for each in ids if each != lesson.id], lesson.id)


def edit(
    workspace: Workspace, agent: str, prefix: str, assignments: Sequence[str]
) -> tuple[Pattern, list[str], tuple[str, ...]]:
    """Set fields of a lesson, each as ``field=value``; return it, the changed fields, and the kinds of secrets removed.

    Raises:
        UsageError: a field that is not set this way, or a value that it cannot have.
        RefusedError: beyond a limit.
        NoError: there is no such lesson, or it is merged and would be private.
    """
    changes = [_Change.parse(each) for each in assignments]
    for each in changes:
        is_trigger = each.field == "trigger" and bool(each.value)
        if is_trigger and (remark := triggers.check(str(each.value), "changed")):
            workspace.warn(remark)
    # The logs are counted first: the stamp of this edit is then larger than all that was read.
    counting.reconcile_all(workspace)
    is_hidden = any((each.field, each.value) == (SCOPE, PRIVATE) for each in changes)
    # A sync that has begun may send the lesson until it ends.
    with workspace.lock("sync") if is_hidden else nullcontext(), workspace.writing(agent) as writer:
        record = find(workspace, prefix)
        members = [record] if record.scope == PRIVATE else _members(workspace, record)
        lesson = merged(members)  # its id is that of the record which is shown: an edit of another one shows nowhere
        if is_hidden:
            counting.CountedLog(workspace, agent).check_alone(record.id)
        for each in changes:
            each.check_known(lesson)
        _check_kept(workspace, changes, is_private=workspace.private(agent, lesson.id) is not None)
        changed = [each for each in changes if each.differs(lesson)]
        with Runs(workspace).recording(agent, "edit") as draft:
            if changed:
                _apply(writer, lesson, changed)
            draft.summary = f"edited {lesson.id}: {', '.join(LABELS.get(each.field, each.field) for each in changed)}"
            draft.fields = [Field(lesson.id, each.field, lesson.fields.get(each.field), each.value) for each in changed]
    names = sorted({each.field for each in changed})
    ids = {each.id for each in members}
    if {*names} & {*_WORDS} and not ids.isdisjoint(AgentMemory(workspace, agent).standing().lessons):
        workspace.reports.append(f"the memory has it as it was: fleet demote {lesson.id} && fleet promote {lesson.id}")
    if is_hidden:
        workspace.reports.append("nothing more of it leaves this machine; what was sent before stays with the clan")
    secrets = tuple(sorted({kind for each in changes for kind in each.secrets}))
    return merged(_members(workspace, find(workspace, lesson.id))), names, secrets


def _check_kept(workspace: Workspace, changes: Sequence[_Change], *, is_private: bool) -> None:
    """Raise ``UsageError`` for words that stay on this machine, in a lesson that goes to the clan."""
    is_private = next((each.value == PRIVATE for each in changes if each.field == SCOPE), is_private)
    given = [each.field for each in changes if each.value and each.field in workspace.kept_fields()]
    if given and not is_private:
        fields = as_toml(sorted({*workspace.config.share.fields, given[0]}))
        raise UsageError(
            f"'{given[0]}' stays on this machine, and the lesson is the clan's. Nothing was changed; `fleet config set "
            f"share.fields '{fields}'` shares it, of all lessons that are logged from then on, too"
        )


def _check_name(field: str) -> None:
    if why := _RESERVED.get("agent" if re.fullmatch(_ATTRIBUTION, field) else field):
        raise UsageError(f"'{field}' is not edited: {why}. Nothing was changed")
    if len(field) > limits.NAME_CHARS_MAX or not re.fullmatch(_NAME, field):
        raise UsageError(
            f"{field[:60]!r} cannot be a field's name: up to {limits.NAME_CHARS_MAX} of a-z, 0-9, '.', '_' and '-'. "
            "Nothing was changed"
        )


def _tags(given: str) -> _Change:
    if re.search(r'["\[\]{}]', given):
        raise UsageError("tags are words with commas between: --set tags=ci,git. Nothing was changed")
    screened = [Text.enter("set tags", tag) for tag in given.split(",")]
    return _Change("tags", sorted({tag.text for tag in screened if tag.text}), secrets_in(screened))


def _importance(given: str) -> float | str:
    if not given:
        return ""
    with suppress(ValueError):
        if 0 <= (found := float(given)) <= 1:
            return found
    raise UsageError("importance is a number from 0 to 1. Nothing was changed")


def _check_meaning(field: str, value: Any) -> None:
    if field == "text" and not Text(value).has_words():
        raise UsageError("a lesson needs a text with words in it; `fleet retire` takes one out. Nothing was changed")
    if field in _VALUES and value not in _VALUES[field]:
        known = " or ".join(filter(None, _VALUES[field]))
        way_out = "; `fleet retire` takes one out" if field == "state" else ""
        raise UsageError(f"{field} is {known}, not {value[:40]!r}{way_out}. Nothing was changed")


def _apply(writer: Writer, lesson: Pattern, changes: Sequence[_Change]) -> None:
    """Write the changes, and move the lesson to its scope's file."""
    for each in changes:
        _check_not_purged(writer.line(lesson.id), each.field, writer.name, writer.workspace.clock.cut())
    scope = next((each.value for each in changes if each.field == SCOPE), None)
    if scope is not None:
        counting.CountedLog(writer.workspace, writer.agent).move(lesson.id, str(scope))
    fields = [each for each in changes if each.field != SCOPE or scope != PRIVATE]
    line, stamp = writer.line(lesson.id), writer.tick()
    writer.write([writer.edit(line, each.field, each.value, stamp) for each in fields])


def _check_not_purged(line: Line, field: str, me: str, cut: str) -> None:
    if by := line.purger(me, field, cut):
        raise RefusedError(
            f"{by} purged the {LABELS.get(field, field)} that {me} sets in {line.id}, and for a time to come: no "
            "machine would keep this one. Nothing was changed. `fleet correct` logs the lesson in other words, and "
            "`fleet block` leaves out what else they wrote"
        )


def merge(workspace: Workspace, agent: str, one: str, other: str, *, force: bool = False) -> _LessonChange:
    """Merge two lessons into one with the first one's text: both records are kept, and their counts add up.

    Raises:
        NoError: they are merged already, or one is private or retired; or they read alike and differ, and ``force`` is
            not set.
    """
    counting.reconcile_all(workspace)
    with Runs(workspace).recording(agent, "merge") as draft:
        with workspace.writing(agent) as writer:
            first, second = find(workspace, one), find(workspace, other)
            if own := next((each.id for each in (first, second) if each.scope == PRIVATE), ""):
                raise NoError(f"{own} is private. Nothing was changed; `fleet edit {own} --set scope=clan` shares it")
            before = _members(workspace, first)
            sets = {first.id: before, second.id: _members(workspace, second)}
            if gone := next((id_ for id_, members in sets.items() if not merged(members).is_present), ""):
                raise NoError(f"{gone} is retired. Nothing was changed; `fleet restore {gone}` brings it back")
            targets = workspace.patterns.merge_targets()
            existing = (each.id for each in workspace.patterns.some(sorted(targets)))
            source, into = Merges(targets).merging({first.id, second.id, *existing}, first.id, second.id)
            if not force:
                _check_alike(first, second)
            writer.write([writer.edit(writer.line(source), MERGED_INTO, into)])
            draft.summary = f"merged {source} into {into}"
            draft.fields = [Field(source, MERGED_INTO, "", into)]
            draft.fields += _keep_words(writer, merged(before), first.id)
        members = _members(workspace, find(workspace, first.id))
        lesson = merged(members)
        seen, ids = lesson.count("seen"), [each.id for each in members]
        entered = [reflecting.promote_logged(workspace, each, lesson.id, seen, ids) for each in workspace.agents_here()]
        promoted = tuple(memory for memory, _ in entered if memory)
        draft.fields += [Field(lesson.id, "state", lesson.state, edits.PUBLISHED)] if promoted else []
    [grouped] = reflecting.current_clusters(workspace).grouped([lesson], workspace.patterns.lessons_of)
    others = [each for each in ids if each != lesson.id]
    return _LessonChange(lesson, others, source, promoted, grouped.lesson.count("seen"))


def _keep_words(writer: Writer, first: Pattern, id_: str) -> list[Field]:
    """Set the text and the right way of a merged lesson to those of ``first``; return the fields that changed."""
    lesson = merged(_members(writer.workspace, find(writer.workspace, id_)))
    line = writer.line(lesson.id)
    words = {name: first.fields[name] for name in _WORDS if first.fields.get(name)}
    changes = {name: value for name, value in words.items() if lesson.fields.get(name) != value}
    writer.write([writer.edit(line, name, value) for name, value in changes.items()])
    return [Field(lesson.id, name, lesson.fields.get(name), value) for name, value in changes.items()]


def _restore_words(writer: Writer, parted: Sequence[Pattern], cleared: Sequence[str]) -> list[Field]:
    """Restore the words that a merge set in the other record; return the changed fields.

    ``parted``: the records of the merged set. ``cleared``: ids of those that were merged into another record.
    """
    restored: list[Field] = []
    merges = [each.edited[MERGED_INTO] for each in parted if each.id in cleared and MERGED_INTO in each.edited]
    for lesson, field in ((lesson, field) for lesson in parted for field in _WORDS):
        value = lesson.fields.get(field)
        at, by = lesson.edited.get(field, ("", ""))
        since = max((stamp for stamp, name in merges if name == by and stamp < at), default="")
        if since and any(each.id != lesson.id and each.fields.get(field) == value for each in parted):
            before = _value_before(writer, lesson, field, since)
            writer.write([writer.edit(writer.line(lesson.id), field, before)])
            restored.append(Field(lesson.id, field, value, before))
    return restored


def _value_before(writer: Writer, lesson: Pattern, field: str, stamp: str) -> object:
    """Return a field's value before a merge: as its run has it, else the newest edit before, else as first logged."""
    runs = (run for run in Runs(writer.workspace).listed() if run.kind == "merge")
    fields = (each for run in runs for each in run.fields if (each.id, each.name) == (lesson.id, field))
    if found := next((each for each in fields if each.after == lesson.fields.get(field)), None):
        return found.before or ""
    line = writer.line(lesson.id)
    parts = [fold(part, writer.workspace.policy()) for part in line.by_writer().values()]
    earlier = [(part.edited[field][0], part.fields[field]) for part in parts if field in part.edited]
    edited = max((each for each in earlier if each[0] < stamp), key=lambda each: each[0], default=None)
    first = next((each for each in line.wordings() if pattern_id(str(each.get("text", ""))) == lesson.id), {})
    return edited[1] if edited else first.get(field, "")


def _check_alike(one: Pattern, other: Pattern) -> None:
    close = next(iter(near(one.text, [(other.id, other.text)])), None)
    if close is not None and close.score >= ALIKE_MIN and close.differs:
        raise NoError(
            f"the two read alike and differ ({', '.join(close.differs)}); nothing was changed:\n"
            f"  {one.id} {one.text}\n  {other.id} {other.text}\n"
            f"If they are one lesson all the same: fleet merge --force {one.id} {other.id}"
        )


def unmerge(workspace: Workspace, agent: str, prefix: str) -> _LessonChange:
    """Undo a merge, named by either of the two ids; return the lesson that the record is now.

    From now on the two are not grouped by their words either.

    Raises:
        NoError: it is not merged; if it is grouped by its words, the message says how to part the two.
    """
    counting.reconcile_all(workspace)
    with workspace.writing(agent) as writer:
        record = find(workspace, prefix)
        before = workspace.patterns.group(record.id)
        stamp = writer.tick()
        targets = workspace.patterns.merge_targets()
        grouped = [each for each in reflecting.current_clusters(workspace).of(record.id) if each != record.id]
        if len(before) == 1 and grouped:
            raise NoError(
                f"{record.id} is not merged, but grouped with {grouped[0]} by its words; nothing was changed. `fleet "
                f"review --answer {record.id}:{grouped[0]}=different` parts them"
            )
        cleared = Merges(targets).unmerging(record.id)
        with Runs(workspace).recording(agent, "unmerge") as draft:
            parted = workspace.patterns.some(before)
            # An empty text: readers expect a text in this field.
            writer.write([writer.edit(writer.line(each), MERGED_INTO, "", stamp) for each in cleared])
            changed = _restore_words(writer, parted, cleared)
            members = _members(workspace, find(workspace, record.id))
            member_ids = [each.id for each in members]
            pairs = [(one, other) for one in member_ids for other in before if other not in member_ids]
            Weighing(workspace).keep_apart(pairs)
            draft.summary = f"unmerged {record.id}"
            draft.fields = [Field(each, MERGED_INTO, targets.get(each, ""), "") for each in cleared]
            draft.fields += changed
            draft.fields += [Field(" ".join(sorted(pair)), "apart", None, "apart") for pair in pairs]
    return _LessonChange(merged(members), [each.id for each in members if each.id != record.id], record.id)


def feedback(workspace: Workspace, agent: str, prefix: str, *, is_helped: bool, session: str = "") -> Pattern:
    """Count that a lesson helped, or hurt; return the lesson with the count."""
    counting.reconcile_all(workspace)
    with workspace.writing(agent) as writer:
        line = writer.line(find(workspace, prefix).id)
        writer.write([edits.count(line, "helped" if is_helped else "hurt", writer.name)])
    lesson = merged(_members(workspace, find(workspace, line.id)))
    if is_helped:
        observing.try_observe(workspace, agent, session, "reuse", f"Reused: {lesson.text}")
    return lesson


def history(lesson: Pattern) -> dict[str, dict[str, Any]]:
    """Return each field's value, and when and by whom it was edited, None for a field as first logged."""
    return {
        field: dict(zip(("value", "at", "by"), (value, *lesson.edited.get(field, (None, None))), strict=True))
        for field, value in sorted(lesson.fields.items())
        if value != "" or field in _KNOWN.values()  # an unknown field is unset by an empty value
    }
