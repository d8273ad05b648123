"""Undo as a use case: take back any run of this workspace, be it a command, a reflection or a night's tidying.

Files are as they were, or keep what a person wrote since; what the run counted counts no more, lessons that it stated
first are retired, and what it set is set back where it still stands. What is append-only stays: a line more says that
it was undone. To undo is a run of its own, so that it can be undone in turn.

Which run is being taken back is noted before anything is changed, so that whoever comes next finishes what a crash
left.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from fleet.app import reflecting, starting
from fleet.app.finding import find
from fleet.learn import counting, discoveries, private
from fleet.learn.counting import CountedLog
from fleet.model import edits, names
from fleet.model.errors import NoError
from fleet.model.line import Line, canonical
from fleet.model.pattern import Pattern, fold
from fleet.reflect import housekeeping, inbox, records
from fleet.reflect.clusters import Weighing
from fleet.reflect.inbox import Inbox
from fleet.reflect.records import Records
from fleet.store.runs import COMMANDS, PART, UNDO, Field, Run, Runs, TakenBack
from fleet.store.workspace import Workspace

_PENDING = "undoing"
"""Key in ``local.db`` of the run that is being taken back."""


class Undone(NamedTuple):
    """Outcome of an undo.

    Attributes:
        run: what was taken back.
        by: id of the run that did so; "" of a dry run.
        restored: files that are byte for byte as they were.
        merged: files that keep what was written since.
        left: what stays as it is, in a sentence each.
        did: what else was changed, in a sentence each.
    """

    run: Run
    by: str
    restored: tuple[str, ...]
    merged: tuple[str, ...]
    left: tuple[str, ...]
    did: tuple[str, ...]


class Listed(NamedTuple):
    """A run, and the one that took it back; "" where it stands."""

    run: Run
    undone_by: str


def listed(workspace: Workspace) -> list[Listed]:
    """Return the runs of this workspace, the newest first."""
    gone = Runs(workspace).undone()
    return [Listed(run, gone.get(run.id, "")) for run in Runs(workspace).listed()]


def about(workspace: Workspace, run: Run) -> str:
    """Return the words of the lesson or finding that a run is about, as they are now; "" for several, or none."""
    named = {each for each in (*run.lessons, *run.retired, *(field.id for field in run.fields)) if each[1:2] == "-"}
    lessons, found = [each for each in named if each[0] == "p"], [each for each in named if each[0] == "d"]
    if len(lessons) == 1:
        return next((each.text for each in workspace.patterns.some(lessons)), "")
    entry = workspace.discoveries.get(found[0]) if len(found) == 1 and not lessons else None
    return entry.problem if entry is not None else ""


_NOTHING = "nothing is noted yet"


def last(workspace: Workspace) -> Run:
    """Return the last command that a person or an agent gave here, a decision among them, and nobody took back.

    Raises:
        NoError: there is none.
    """
    found = listed(workspace)
    every = [each for agent in inbox.agents(workspace) for each in Inbox(workspace, agent).entries()]
    decided = {each.decision.run for each in every if each.decision is not None and each.decision.by}
    parts = {field.id for each in found for field in each.run.fields if field.name == PART}
    given = (
        each for each in found if each.run.id not in parts and (each.run.kind in COMMANDS or each.run.id in decided)
    )
    chosen = next((each.run for each in given if not each.undone_by), None)
    if chosen is not None:
        return chosen
    other = next((each.run.id for each in found if each.run.kind != UNDO and not each.undone_by), "")
    again = next((each.run.id for each in found if each.run.kind == UNDO and not each.undone_by), "")
    if other:
        more = f"`fleet undo {other}` takes back what fleet did last by itself"
    else:
        more = f"all is taken back already, and `fleet undo {again}` does the last of it again" if again else _NOTHING
    raise NoError(f"there is no command here that could be taken back; {more}. `fleet undo --list` names all runs")


def by_itself_since(workspace: Workspace, run: Run) -> str:
    """Return the id of what fleet did last by itself after a run, a sleep say; "" for nothing that stands."""
    newer = [each for each in listed(workspace) if each.run.at > run.at and not each.undone_by]
    parts = {field.id for each in newer for field in each.run.fields if field.name == PART}
    own = (each.run for each in newer if each.run.kind not in (UNDO, *COMMANDS))
    return next((each.id for each in own if each.id not in parts), "")


def undo(workspace: Workspace, run_id: str = "", *, is_trial: bool = False) -> Undone:
    """Take a run back; without one, the last command here.

    Args:
        workspace: where.
        run_id: of the run, or the unique beginning of one.
        is_trial: say what would happen, and change nothing.

    Raises:
        NoError: there is no such run, it is taken back already, or it cannot be.
    """
    with _alone(workspace):
        if not is_trial:
            _finish(workspace)
        run = Runs(workspace).find(run_id) if run_id else last(workspace)
        if by := Runs(workspace).undone().get(run.id):
            raise NoError(
                f"{run.id} is taken back already, by {by}; nothing was changed. `fleet undo {by}` does it again"
            )
        if any(each.startswith("d-") for each in run.retired):
            raise NoError(
                f"{run.id} took a discovery back, which is for good: nobody can bring it back. Nothing was changed; "
                "`fleet discover` logs it anew in other words, and `fleet undo RUN` takes an earlier run of "
                "`fleet undo --list` back"
            )
        if is_trial:
            return _foreseen(workspace, run)
        workspace.state.put(**{_PENDING: run.id})
        try:
            done = Runs(workspace).take_back(run.id)
        except NoError:
            workspace.state.put(**{_PENDING: ""})
            raise
        return _finished(workspace, run, done)


def finish(workspace: Workspace) -> Undone | None:
    """Finish the undo that a crash left half done; return what came of it, None where there was none."""
    if not workspace.state.get(_PENDING):
        return None
    with _alone(workspace):
        return _finish(workspace)


def _alone(workspace: Workspace) -> AbstractContextManager[None]:
    return workspace.files.lock(workspace.local / "locks" / "undo.lock")


def _finish(workspace: Workspace) -> Undone | None:
    pending = workspace.state.get(_PENDING)
    if not pending:
        return None
    Runs(workspace).recover()
    try:
        run = Runs(workspace).find(pending)
    except NoError:
        workspace.state.put(**{_PENDING: ""})
        return None
    back = Runs(workspace).undone().get(run.id)
    done = TakenBack(Runs(workspace).find(back), (), ()) if back else Runs(workspace).take_back(run.id)
    return _finished(workspace, run, done)


def _foreseen(workspace: Workspace, run: Run) -> Undone:
    """Return what an undo would do, as far as it can be told without doing it."""
    now = {each.path: Runs(workspace).edit(each.path, b"").before for each in run.edits}
    restored = tuple(each.path for each in run.edits if now[each.path] == each.after)
    merged = tuple(each.path for each in run.edits if now[each.path] not in (each.after, each.before, None))
    gone = tuple(f"{path} was removed since" for path, data in now.items() if data is None)
    did = [
        f"{each.id} would count {'no more' if each.after else 'again'}" for each in run.fields if each.name == "entry"
    ]
    did += [f"{each} would be retired" for each in run.lessons]
    did += [f"{each} would be restored" for each in run.retired]
    did += [f"{each.id}: {each.name} would be set back" for each in run.fields if each.name not in ("seen", *_COUNTED)]
    return Undone(run, "", restored, merged, (*run.left.values(), *gone), tuple(did))


def _finished(workspace: Workspace, run: Run, done: TakenBack) -> Undone:
    """Do what is no edit of a file: everything here may have been done before a crash, and is done once."""
    undone = _carried_out(workspace, run, done)
    workspace.state.put(**{_PENDING: ""})
    return undone


def _carried_out(workspace: Workspace, run: Run, done: TakenBack) -> Undone:
    told = _Told([], [f"{path} {why}" for path, why in done.run.left.items()])
    back, agent = done.run, _agent(workspace, run)
    for field in back.fields:
        if field.name in _COUNTED:
            _COUNTED[field.name](workspace, agent, field, told)
    if any((back.lessons, back.retired, back.fields)):
        counting.reconcile_all(workspace)
    _turn(workspace, agent, back, run, told)
    for field in back.fields:
        if field.name not in _COUNTED:
            _SETTERS.get(field.name, _set_field)(workspace, agent, field, told)
    _say_in_records(workspace, run, back, told)
    return Undone(run, back.id, done.restored, done.merged, tuple(told.left), tuple(told.did))


class _Told(NamedTuple):
    did: list[str]
    left: list[str]


def _agent(workspace: Workspace, run: Run) -> str:
    return run.agent or workspace.agent(or_guest=True)


def _turn(workspace: Workspace, agent: str, back: Run, run: Run, told: _Told) -> None:
    """Retire what the run stated first, and restore what it retired: all in one write.

    Retired is also what nobody said but in occurrences that are undone by now; it is back with the first that is not.
    """
    for each in (found for found in back.retired if found.startswith("d-")):
        try:
            discoveries.retract(workspace, agent, each)
            told.did.append(f"{each} is taken back, for good")
        except NoError as no:
            told.left.append(str(no))
    lessons = [(each, False) for each in back.retired if each.startswith("p-")]
    lessons += [(each, True) for each in back.lessons if each.startswith("p-")]
    counted = {str(each.after or each.before): each.after is not None for each in back.fields if each.name == "entry"}
    others = {each.id for each in run.fields if each.name == "seen" and _seen_before(each)}
    others -= {*back.retired, *back.lessons}
    alone = [(each, wanted) for each, wanted in counted.items() if each in others]
    lessons += [each for each in alone if workspace.patterns.group(each[0]) == [each[0]]]
    if not lessons:
        return
    with workspace.writing(agent) as writer:
        lines = []
        for each, wanted in lessons:
            line = private.whole(workspace, agent, each)
            known = fold(line, workspace.policy()) if line is not None else None
            if line is None or known is None:
                told.left.append(f"{each} is not here any more")
            elif (each, wanted) in alone and known.count("seen") != wanted:
                continue
            elif not wanted and (each, wanted) not in alone and (why := _confirmed_since(known, run, agent)):
                told.left.append(f"{each} stays: {why}")
            elif known.is_present is not wanted:
                lines.append(
                    edits.restore(line, writer.name, writer.tick()) if wanted else edits.retire(line, writer.name)
                )
                told.did.append(f"{each} is {'back' if wanted else 'retired'}: {known.text}")
        private.append(writer, lines)
    for each in workspace.agents_here():
        reflecting.take_out_retired(workspace, each)


def _confirmed_since(known: Pattern, run: Run, agent: str) -> str:
    """Return who met the lesson since, apart from the run: their word is not taken back with it."""
    before = next((_seen_before(each) for each in run.fields if (each.id, each.name) == (known.id, "seen")), None)
    if before is not None:
        more = known.count("seen") - before
        return f"it was seen {more:,} more since" if more > 0 else ""
    others = sorted(writer for writer, at in known.adds.items() if at > run.at and not writer.startswith(f"{agent}."))
    return f"{', '.join(others)} confirmed it since" if others else ""


def _seen_before(counted: Field) -> int:
    """Return how often a lesson had been seen before the run counted it."""
    if isinstance(counted.before, int):
        return counted.before
    return counted.after - 1 if isinstance(counted.after, int) else 0


def _set_field(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:
    """Set a field of a lesson to what it is to be, if it still is what the run made it."""
    try:
        known = find(workspace, field.id)
    except NoError as why:
        told.left.append(str(why))
        return
    wanted, now = field.after, known.fields.get(field.name)
    if canonical(now or "") == canonical(wanted or ""):
        return
    if canonical(now or "") != canonical(field.before or ""):
        told.left.append(f"{field.id}: {field.name} was set to something else since, and stays")
        return
    with workspace.writing(agent) as writer:
        if field.name == private.SCOPE and wanted == private.PRIVATE:
            private.hide(writer, known)
        elif field.name == private.SCOPE:
            private.publish(writer, known.id, str(wanted or ""))
        else:
            empty: object = [] if isinstance(now, list) else ""
            line, value = (
                private.whole(workspace, agent, field.id) or Line(field.id),
                empty if wanted is None else wanted,
            )
            edit = edits.set_field(line, field.name, value, writer.name, writer.tick(), workspace.policy().cut)
            private.append(writer, [edit])
        if field.name == private.SCOPE:
            counting.recount(writer)
    told.did.append(f"{field.id}: {field.name} is {wanted or 'empty'} again")


def _mark_entry(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:
    """Say in the log that an entry was undone, or holds again. The entry stays, and counts no more, or again."""
    said = CountedLog(workspace, agent).mark(field.id, is_undone=not field.after)
    if said:
        told.did.append(f"{field.id} is {'stated again' if field.after else 'undone'}: the log says so")
    elif said is None:
        told.left.append(f"{field.id} counts as it did: somebody took its record out of the log")


def _mark_part(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:  # noqa: ARG001 - as all of them
    """Have an imported record count no more, or again: as far as this agent told it."""
    part, line = str(field.after or field.before), private.whole(workspace, agent, field.id) or Line(field.id)
    ours = [each for each in line.by_writer() if each in workspace.policy().mine and names.agent_of(each) == agent]
    with workspace.writing(agent) as writer:
        told_back = [edits.undo_part(line, each, part, is_undone=not field.after) for each in ours]
        private.append(writer, [each for each in told_back if not each.is_empty()])


def _keep_apart(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:  # noqa: ARG001 - as all of them
    one, _, other = field.id.partition(" ")
    if field.after:
        Weighing(workspace).keep_apart([(one, other)])
    else:
        Weighing(workspace).forget_apart((one, other))
    told.did.append(f"{one} and {other} are {'two lessons' if field.after else 'asked about'} again")


def _guard(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:  # noqa: ARG001 - as all of them
    starting.put_guard_back(workspace, field.id, str(field.after or ""))
    told.did.append(f"{field.id} {'guards its step' if field.after else 'guards nothing'} again")


def _take_back_part(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:  # noqa: ARG001 - as all of them
    """Take back a run that is a part of another, or do it again."""
    outer = workspace.state.get(_PENDING)
    try:
        part = Runs(workspace).find(field.id if not field.after else Runs(workspace).undone().get(field.id, ""))
        done = _carried_out(workspace, part, Runs(workspace).take_back(part.id))
    except NoError as why:
        told.left.append(str(why))
        return
    finally:
        workspace.state.put(**{_PENDING: outer})
    told.did.append(f"{part.id} is taken back, by {done.by}")
    told.did.extend(f"{path} is as it was" for path in done.restored)
    told.did.extend(f"{path} keeps what was written since" for path in done.merged)
    told.did.extend(done.did)
    told.left.extend(done.left)


def _set_stage(workspace: Workspace, agent: str, field: Field, told: _Told) -> None:
    """Set what a pass of housekeeping noted of a lesson in the agent's private file."""
    known = workspace.notes(agent).get(field.id) if workspace.notes_file(agent).is_file() else None
    now = known.fields.get(field.name) if known is not None else None
    if canonical(now or "") == canonical(field.after or ""):
        return
    if canonical(now or "") != canonical(field.before or ""):
        told.left.append(f"{field.id}: {field.name} was set to something else since, and stays")
        return
    empty: object = [] if isinstance(now, list) else ""
    with workspace.writing(agent) as writer:
        private.set_own(writer, [(field.id, field.name, empty if field.after is None else field.after)])
    told.did.append(f"{field.id}: {field.name} is {field.after or 'empty'} again")


_COUNTED: Mapping[str, Callable[[Workspace, str, Field, _Told], None]] = {"entry": _mark_entry, "part": _mark_part}
"""What takes back that something was counted, by the name of its field; it comes first."""
_SETTERS: Mapping[str, Callable[[Workspace, str, Field, _Told], None]] = {
    "seen": lambda *_: None,
    "apart": _keep_apart,
    "guard": _guard,
    "inbox": lambda *_: None,  # its lines name the run: see `inbox.undo`
    PART: _take_back_part,
    housekeeping.STAGE: _set_stage,
    housekeeping.MERGED_FROM: _set_stage,
}
"""What sets a field that is no lesson's, by its name."""


def _say_in_records(workspace: Workspace, run: Run, back: Run, told: _Told) -> None:
    """Say in the append-only records that a run was undone, or stands again."""
    of, again = (_first(workspace, run), _is_again(workspace, run)) if run.kind == UNDO else (run, False)
    if of.agent:  # else it is this machine's, and no agent's
        known = [each for each in Records(workspace, of.agent).passes() if each.record.run == of.id]
        if known and bool(known[-1].undone) == again:
            Records(workspace, of.agent).undo(of.id, f"by {back.id}", again=again)
            told.did.append(f"{records.FILE_NAME} says that {of.id} {'stands again' if again else 'was undone'}")
    for each in inbox.undo(workspace, of.id, f"by {back.id}", again=again):
        waits = each.decision is not None
        told.did.append(f"{each.item.id} {'waits again' if waits else 'waits no longer'}: {each.item.title}")


def _first(workspace: Workspace, run: Run) -> Run:
    """Return the run that was taken back, and brought again, and so on, until this one."""
    while run.kind == UNDO:
        run = Runs(workspace).find(run.of)
    return run


def _is_again(workspace: Workspace, run: Run) -> bool:
    """Tell whether to take this undo back brings the first run again: not if it brought that one back itself."""
    number = 0
    while run.kind == UNDO:
        run, number = Runs(workspace).find(run.of), number + 1
    return number % 2 == 1
