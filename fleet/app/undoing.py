"""Undo as a use case: take back any run of this workspace, be it a command, a reflection or a night's tidying.

Files are as they were, or keep what a person wrote since; what the run counted counts no more, lessons that it stated
first are retired, and what it set is set back where it still stands. What is append-only stays: a line more says that
it was undone. To undo is a run of its own, so that it can be undone in turn.

Which run is being taken back is noted before anything is changed, so that whoever comes next finishes what a crash
left.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from fleet.app import reflecting, starting
from fleet.app.finding import find
from fleet.learn import counting
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import Findings
from fleet.learn.signals import Signals
from fleet.model import edits, names
from fleet.model.errors import NoError
from fleet.model.line import Line, canonical
from fleet.model.pattern import SCOPE, Pattern, fold
from fleet.reflect import housekeeping, records
from fleet.reflect.clusters import Weighing
from fleet.reflect.inbox import Inboxes
from fleet.reflect.records import Records
from fleet.store.runs import COMMANDS, PART, UNDO, Field, Run, Runs, TakenBack
from fleet.store.workspace import Workspace

_PENDING = "undoing"
"""Key in ``local.db`` of the run that is being taken back."""
_ELSEWHERE = frozenset({"entry", "part", "seen", "inbox"})
"""Fields that are no value of anything: what was counted, and an item, whose lines name the run."""
_NOTED = frozenset({housekeeping.STAGE, housekeeping.MERGED_FROM})
"""Fields that stand in an agent's private file."""


class Undone(NamedTuple):
    """Outcome of an undo.

    Attributes:
        run: what was taken back.
        undone_by: id of the run that did so.
        restored: files that are byte for byte as they were.
        merged: files that keep what was written since.
        left: what stays as it is, in a sentence each.
        did: what else was changed, in a sentence each.
    """

    run: Run
    undone_by: str
    restored: tuple[str, ...]
    merged: tuple[str, ...]
    left: tuple[str, ...]
    did: tuple[str, ...]


def listed(workspace: Workspace) -> list[tuple[Run, str]]:
    """Return the runs of this workspace, the newest first, each with the one that took it back; "" where it stands."""
    runs = Runs(workspace).listed()
    gone = Runs(workspace).undone(runs)
    return [(run, gone.get(run.id, "")) for run in runs]


def about(workspace: Workspace, run: Run) -> str:
    """Return the words of the lesson or finding that a run is about, as they are now; "" for several, or none."""
    named = {each for each in (*run.lessons, *run.retired, *(field.id for field in run.fields)) if each[1:2] == "-"}
    lessons, found = [each for each in named if each[0] == "p"], [each for each in named if each[0] == "d"]
    if len(lessons) == 1:
        return next((each.text for each in workspace.patterns.some(lessons)), "")
    entry = workspace.discoveries.get(found[0]) if len(found) == 1 and not lessons else None
    return entry.problem if entry is not None else ""


def _last(workspace: Workspace) -> Run:
    """Return the last command that a person or an agent gave here, a decision among them, and nobody took back.

    Raises:
        NoError: there is none, or a later command left nothing that could be taken back in its place.
    """
    found = listed(workspace)
    every = Inboxes(workspace).entries()
    decided = {each.decision.run for each in every if each.decision is not None and each.decision.by}
    parts = {field.id for run, _ in found for field in run.fields if field.name == PART}
    stand = [run for run, undone_by in found if not undone_by and run.id not in parts]
    last = next((run for run in stand if run.kind in COMMANDS or run.id in decided), None)
    given, at = Runs(workspace).given()
    if given and (last is None or last.at < at):
        since = [run for run in stand if run.at >= at and run.kind != UNDO]
        if made := [run for run in since if run.kind == _kind_left_by(given)]:
            return made[-1]
        raise NoError(_why_not(given, last, since))
    if last is not None:
        return last
    own = next((run.id for run in stand if run.kind != UNDO), "")
    more = f"`fleet undo {own}` takes back what fleet did last by itself; " if own else ""
    raise NoError(f"there is no command here that could be taken back; {more}`fleet undo --list` names all runs")


def _kind_left_by(given: str) -> str:
    """Return the kind of the run that a command left, if it had something to do: its name, but for one."""
    name = given.split()[1]
    return "reflect" if name == "done" else name


def _why_not(given: str, last: Run | None, since: list[Run]) -> str:
    """Return why the last command is not taken back, and neither is one before it: nobody asked for that one."""
    told = [f"the last command here was `{given}`, which no bare `fleet undo` takes back; nothing was changed"]
    told += [f"`fleet undo {run.id}` takes back what was done since: {run.told or run.kind}" for run in since[:1]]
    told += [f"`fleet undo {last.id}` takes back the command before it: {last.told or last.kind}"] if last else []
    return ". ".join([*told, "`fleet undo --list` names all runs"])


def undo(workspace: Workspace, run_id: str | None = None) -> Undone:
    """Take back a run, of this id or the only one that begins so; without one, the last command here.

    Raises:
        NoError: there is no such run, it is taken back already, or it cannot be.
    """
    with _lock(workspace):
        _finish_pending(workspace)
        run = Runs(workspace).find(run_id) if run_id is not None else _last(workspace)
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
        workspace.state.put(**{_PENDING: run.id})
        return _take_back(workspace, run)


def finish(workspace: Workspace) -> None:
    """Finish the undo that a crash left half done."""
    if workspace.state.get(_PENDING):
        with _lock(workspace):
            _finish_pending(workspace)


def _lock(workspace: Workspace) -> AbstractContextManager[None]:
    return workspace.files.lock(workspace.local / "locks" / "undo.lock")


def _finish_pending(workspace: Workspace) -> None:
    if pending := workspace.state.get(_PENDING):
        Runs(workspace).recover()
        with suppress(NoError):
            _take_back(workspace, Runs(workspace).find(pending))
        workspace.state.put(**{_PENDING: ""})


def _take_back(workspace: Workspace, run: Run) -> Undone:
    """Take a run back; everything here may have been done before a crash, and is done once."""
    try:
        undone = _Undoing(workspace, run).carry_out()
    except NoError:
        workspace.state.put(**{_PENDING: ""})
        raise
    workspace.state.put(**{_PENDING: ""})
    return undone


class _Undoing:
    """Undo of one run while it is at work, and what is told of it."""

    def __init__(self, workspace: Workspace, run: Run) -> None:
        self._workspace, self._run = workspace, run
        self._agent = run.agent or workspace.agent(or_guest=True)
        self._seen_before = {each.id: _seen_before(each) for each in reversed(run.fields) if each.name == "seen"}
        self._did: list[str] = []
        self._left: list[str] = []

    def carry_out(self) -> Undone:
        """Take the run back, or do what is missing where it is taken back already.

        Raises:
            NoError: one of its files changed meanwhile; nothing was changed.
        """
        runs = Runs(self._workspace)
        by = runs.undone().get(self._run.id)
        done = TakenBack(runs.find(by), (), ()) if by else runs.take_back(self._run.id)
        back = done.run
        self._left += [f"{path} {why}" for path, why in back.left.items()]
        for field in back.fields:
            if field.name == "entry":
                self._mark_entry(field)
        self._mark_parts([field for field in back.fields if field.name == "part"])
        if any((back.lessons, back.retired, back.fields)):
            counting.reconcile_all(self._workspace)
        self._retire_and_restore(back)
        for field in back.fields:
            self._set(field)
        for each in back.fields:  # a sync beside us may have promoted it once more, before we had set the counts back
            if (each.name, each.before) == ("state", edits.PUBLISHED):
                reflecting.leave(self._workspace, self._agent, each.id)
        self._say_in_records(back)
        return Undone(self._run, back.id, done.restored, done.merged, tuple(self._left), tuple(self._did))

    # --- what was counted

    def _mark_entry(self, field: Field) -> None:
        """Say in the log that an entry was undone, or holds again. It stays, and counts no more, or again."""
        said = CountedLog(self._workspace, self._agent).mark(field.id, is_undone=not field.after)
        signals = Signals(self._workspace, self._agent)
        if field.after and (waits := signals.copy_of(field.id)):
            signals.dismiss(waits)
        elif not field.after and (waits := signals.ask_again(field.id)):
            self._did.append(f"{waits} waits for its lesson: fleet learn {waits} --pattern ...")
        if said:
            self._did.append(f"{field.id} is {'stated again' if field.after else 'undone'}: the log says so")
        elif said is None:
            self._left.append(f"{field.id} counts as it did: somebody took its record out of the log")

    def _mark_parts(self, fields: Sequence[Field]) -> None:
        """Have imported records count no more, or again, all in one write: as far as this agent told them."""
        if not fields:
            return
        mine, told_back = self._workspace.policy().mine, list[Line]()
        with self._workspace.writing(self._agent) as writer:
            for field in fields:
                part, line = str(field.after or field.before), self._whole(field.id) or Line(field.id)
                ours = [each for each in line.by_writer() if each in mine and names.agent_of(each) == self._agent]
                told_back += [edits.undo_part(line, each, part, is_undone=not field.after) for each in ours]
            writer.write([each for each in told_back if not each.is_empty()])

    # --- lessons

    def _retire_and_restore(self, back: Run) -> None:
        """Retire what the run stated first, and restore what it retired: all in one write.

        Retired is also what nobody said but in occurrences that are undone by now; it is back with the first that is
        not.
        """
        for each in (found for found in back.retired if found.startswith("d-")):
            try:
                Findings(self._workspace, self._agent).retract(each)
                self._did.append(f"{each} is taken back, for good")
            except NoError as no:
                self._left.append(str(no))
        wanted = dict.fromkeys((each for each in back.retired if each.startswith("p-")), False)
        wanted |= dict.fromkeys((each for each in back.lessons if each.startswith("p-")), True)
        alone = self._only_counted(back)
        if not wanted and not alone:
            return
        with self._workspace.writing(self._agent) as writer:
            lines = []
            for each, is_wanted in (wanted | alone).items():
                line = self._whole(each)
                known = fold(line, self._workspace.policy()) if line is not None else None
                if line is None or known is None:
                    self._left.append(f"{each} is not here any more")
                elif known.is_present is not is_wanted and self._may_change(known, is_counted=each in alone):
                    name = writer.name
                    lines.append(edits.restore(line, name, writer.tick()) if is_wanted else edits.retire(line, name))
                    self._did.append(f"{each} is {'back' if is_wanted else 'retired'}: {known.text}")
            writer.write(lines)
        for agent in self._workspace.agents_here():
            reflecting.take_out_retired(self._workspace, agent)

    def _only_counted(self, back: Run) -> dict[str, bool]:
        """Return the lessons that the run met again, and stated neither first nor last: whether each counts again."""
        met = {each.id for each in self._run.fields if each.name == "seen" and _seen_before(each)}
        met -= {*back.retired, *back.lessons}
        counted = {str(each.after or each.before): bool(each.after) for each in back.fields if each.name == "entry"}
        group = self._workspace.patterns.group
        return {id_: is_so for id_, is_so in counted.items() if id_ in met and group(id_) == [id_]}

    def _may_change(self, known: Pattern, *, is_counted: bool) -> bool:
        if is_counted:
            return known.count("seen") == (not known.is_present)
        why = self._confirmed_since(known) if known.is_present else ""
        if why:
            self._left.append(f"{known.id} stays: {why}")
        return not why

    def _confirmed_since(self, known: Pattern) -> str:
        """Return who met the lesson since, apart from the run: their word is not taken back with it."""
        run = self._run
        if known.id in self._seen_before:
            more = known.count("seen") - self._seen_before[known.id]
            return f"it was seen {more:,} more since" if more > 0 else ""
        mine = f"{self._agent}."
        others = sorted(writer for writer, at in known.adds.items() if at > run.at and not writer.startswith(mine))
        return f"{', '.join(others)} confirmed it since" if others else ""

    def _whole(self, id_: str) -> Line | None:
        return self._workspace.whole(self._agent, id_)

    # --- what was set

    def _set(self, field: Field) -> None:
        if field.name == PART:
            self._take_back_part(field)
        elif field.name == "apart":
            self._keep_apart(field)
        elif field.name == "guard":
            starting.Guards(self._workspace).put_back(field.id, str(field.after or ""))
            self._did.append(f"{field.id} {'guards its step' if field.after else 'guards nothing'} again")
        elif field.name in _NOTED:
            self._set_noted(field)
        elif field.name not in _ELSEWHERE:
            self._set_field(field)

    def _set_field(self, field: Field) -> None:
        """Set a field of a lesson to what it is to be, if it still is what the run made it."""
        try:
            known = find(self._workspace, field.id)
        except NoError as why:
            self._left.append(str(why))
            return
        now = known.fields.get(field.name)
        if not self._is_due(field, now):
            return
        with self._workspace.writing(self._agent) as writer:
            if field.name == SCOPE:
                CountedLog(self._workspace, self._agent).move(known.id, str(field.after or ""))
            else:
                line, cut = self._whole(field.id) or Line(field.id), self._workspace.policy().cut
                edit = edits.set_field(line, field.name, _value(field, now), writer.name, writer.tick(), cut)
                writer.write([edit])

    def _set_noted(self, field: Field) -> None:
        """Set what a pass of housekeeping noted of a lesson in the agent's private file."""
        is_there = self._workspace.notes_file(self._agent).is_file()
        known = self._workspace.notes(self._agent).get(field.id) if is_there else None
        now = known.fields.get(field.name) if known is not None else None
        if self._is_due(field, now):
            with self._workspace.writing(self._agent) as writer:
                writer.set_own([(field.id, field.name, _value(field, now))])

    def _is_due(self, field: Field, now: object) -> bool:
        """Tell whether a field still is what the run made it, and is not set back yet; say what becomes of it."""
        if canonical(now or "") == canonical(field.after or ""):
            return False
        is_as_made = canonical(now or "") == canonical(field.before or "")
        if is_as_made:
            self._did.append(f"{field.id}: {field.name} is {field.after or 'empty'} again")
        else:
            self._left.append(f"{field.id}: {field.name} was set to something else since, and stays")
        return is_as_made

    def _keep_apart(self, field: Field) -> None:
        one, _, other = field.id.partition(" ")
        if field.after:
            Weighing(self._workspace).keep_apart([(one, other)])
        else:
            Weighing(self._workspace).forget_apart((one, other))
        self._did.append(f"{one} and {other} are {'two lessons' if field.after else 'asked about'} again")

    def _take_back_part(self, field: Field) -> None:
        """Take back a run that is a part of another, or do it again."""
        runs = Runs(self._workspace)
        try:
            part = runs.find(runs.undone().get(field.id, "") if field.after else field.id)
            done = _Undoing(self._workspace, part).carry_out()
        except NoError as why:
            self._left.append(str(why))
            return
        self._did.append(f"{part.id} is taken back, by {done.undone_by}")
        self._did += [f"{path} is as it was" for path in done.restored]
        self._did += [f"{path} keeps what was written since" for path in done.merged]
        self._did += done.did
        self._left += done.left

    def _say_in_records(self, back: Run) -> None:
        """Say in the append-only records that a run was undone, or stands again."""
        of, steps = self._run, 0
        while of.kind == UNDO:
            of, steps = Runs(self._workspace).find(of.of), steps + 1
        again, why = steps % 2 == 1, f"by {back.id}"
        if of.agent:  # else it is this machine's, and no agent's
            known = [each for each in Records(self._workspace, of.agent).passes() if each.record.run == of.id]
            if known and bool(known[-1].undone) == again:
                Records(self._workspace, of.agent).undo(of.id, why, again=again)
                state = "stands again" if again else "was undone"
                self._did.append(f"{records.FILE_NAME} says that {of.id} {state}")
        for each in Inboxes(self._workspace).undo(of.id, why, again=again):
            waits = "waits again" if each.decision is not None else "waits no longer"
            self._did.append(f"{each.item.id} {waits}: {each.item.title}")


def _seen_before(counted: Field) -> int:
    """Return how often a lesson had been seen before the run counted it."""
    if isinstance(counted.before, int):
        return counted.before
    return counted.after - 1 if isinstance(counted.after, int) else 0


def _value(field: Field, now: object) -> object:
    """Return what a field is set to; what is to be empty stays a list where it is one."""
    return field.after if field.after is not None else [] if isinstance(now, list) else ""
