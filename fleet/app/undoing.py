"""Undo of any run of this workspace: a command, a reflection, a night's tidying.

``store.runs`` undoes the edits of files. What else a run did is undone here: its occurrences no longer count, lessons
that it stated first are retired, and fields that still have its values get the old ones back. An append-only record
gets a line more, which says that the run was undone. The undo is a run itself, and can be undone.

The id of the run is stored before anything is changed, so the next command finishes an undo that a crash cut short.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from typing import NamedTuple

from fleet.app import reflecting, starting
from fleet.app.finding import find
from fleet.learn import counting, restore
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import Findings
from fleet.learn.signals import Signals
from fleet.model import edits, names
from fleet.model.errors import NoError
from fleet.model.line import Line, canonical
from fleet.model.pattern import MERGED_FROM, MERGED_INTO, PRIVATE, REDACTED, SCOPE, STAGE, Pattern, fold
from fleet.reflect import records
from fleet.reflect.clusters import Weighing
from fleet.reflect.inbox import APPROVED, Inbox
from fleet.reflect.memory_md import Memory
from fleet.reflect.promotion import AgentMemory, Waiting
from fleet.reflect.records import Records
from fleet.share.git import Address
from fleet.store import consent
from fleet.store.homes import CONFIG
from fleet.store.runs import COMMANDS, PART, UNDO, Field, Run, Runs
from fleet.store.workspace import Workspace

_PENDING = "undoing"
"""Key in ``local.db``, for this machine alone: id of the run that is being undone."""
_TAKEN_OUT = "taken out"
"""Key in ``local.db``, with the id of an undo behind it: ids of the lessons that it took out of the memory."""
_NOT_SET = frozenset({"entry", "part", "seen", "inbox", "account"})
"""Names of fields that record an occurrence, an item or an account, and no value that could be set back."""
_BACK = {"pause": "resume", "block": "unblock", "install": "uninstall", "live join": "live leave"}
_BACK |= {back: command for command, back in _BACK.items()}
"""Commands that leave no run, each with the one that takes it back."""
_PRIVATE = frozenset({STAGE, MERGED_FROM})
"""Names of fields that stand in an agent's private file."""


class Undone(NamedTuple):
    """Outcome of an undo: files with their old bytes, files that keep later changes, and what stayed and was done."""

    run: Run
    undone_by: str
    restored: tuple[str, ...]
    merged: tuple[str, ...]
    left: tuple[str, ...]
    did: tuple[str, ...]


class History:
    """Runs of a workspace, and what an undo can take back of them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def listed(self) -> list[tuple[Run, str]]:
        """Return the runs, the newest first, each with the id of its undo; "" for one that stands."""
        runs = Runs(self._workspace).listed()
        undone = Runs(self._workspace).undone(runs)
        return [(run, undone.get(run.id, "")) for run in runs]

    def subject(self, run: Run) -> str:
        """Return the present words of the only lesson or discovery that a run is about; "" for several, or none."""
        ids = {each for each in (*run.lessons, *run.retired, *(field.id for field in run.fields)) if each[1:2] == "-"}
        lessons, entries = [each for each in ids if each[0] == "p"], [each for each in ids if each[0] == "d"]
        if len(lessons) == 1:
            return next((lesson.text for lesson in self._workspace.patterns.some(lessons)), "")
        entry = self._workspace.discoveries.get(entries[0]) if len(entries) == 1 and not lessons else None
        return entry.problem if entry is not None else ""

    def last_command(self, agent: str = "") -> Run:
        """Return the last command on this machine that can be undone, decisions included; raise ``NoError`` for none.

        ``agent``: name of an agent whose last command it is, "" for the last command of any agent.

        Only an id names a run of another machine: a repository may have brought it, and an undo writes its content.
        """
        finish(self._workspace)
        made_at, runs, decided = self._workspace.made_at, self._whole_runs(agent), self._decided()
        open_runs = [run for run, undone_by in runs if not undone_by]
        last = next((run for run in open_runs if run.kind in COMMANDS or run.id in decided), None)
        until = "~"  # behind any stamp
        for command, when in Runs(self._workspace).unrecorded(agent):
            if last is not None and made_at(last.at) >= when:
                break
            kind = command.split()[1]
            if kind == "count":  # a log was counted, by whatever came first
                continue
            run_kind = "reflect" if kind == "done" else kind  # `fleet done` logs the day, too
            own = [run for run, _ in runs if run.kind == run_kind and when <= made_at(run.at) < until]
            if standing := [run for run in own if run in open_runs]:
                return standing[-1]
            if kind in {*COMMANDS, "done"} or not own:
                is_undone = any(run.kind == UNDO and made_at(run.at) > when for run, _ in runs)
                raise NoError(_no_way_back(command, last, is_undone=is_undone))
            until = when
        if last is None:
            raise NoError("there is no command here that could be taken back; `fleet undo --list` names all runs")
        return last

    def _decided(self) -> dict[str, str]:
        """Return the run of each decision about an item of the inbox, and who decided."""
        decisions = (each.decision for each in Inbox(self._workspace).entries())
        return {each.run: each.by for each in decisions if each and each.by}

    def _whole_runs(self, agent: str) -> list[tuple[Run, str]]:
        """Return those of ``listed`` that an agent made on this machine, and that are no parts of others."""
        here = [each for each in self.listed() if each[0].machine == self._workspace.world.machine()]
        decided = self._decided()  # by an agent, maybe about an item of another one
        runs = [(run, by) for run, by in here if not agent or decided.get(run.id, run.agent) in ("", agent)]
        parts = {field.id for run, _ in runs for field in run.fields if field.name == PART}
        return [(run, by) for run, by in runs if run.id not in parts]


def _no_way_back(command: str, last: Run | None, *, is_undone: bool) -> str:
    """Return why a bare undo goes back no further than a command that left no run, and what to do instead.

    ``last``: the last run before it that can be undone. ``is_undone``: something was undone since.
    """
    before = f"`fleet undo {last.id}` takes back the command before it, and " if last is not None else ""
    why = (
        f"all that can be taken back since `{command}` is, and a bare `fleet undo` goes no further back"
        if is_undone
        else f"the last command here was `{command}`, which no bare `fleet undo` takes back"
    )
    if back := _BACK.get(command.removeprefix("fleet ")):
        why += f", and `fleet {back}` does"
    return f"{why}; nothing was changed. {before}`fleet undo --list` names all runs"


def undo(workspace: Workspace, run_id: str | None = None) -> Undone:
    """Undo a run, by its id or the beginning of it; without one, the last command here.

    Raises:
        NoError: there is no such run, it is undone already, or it cannot be.
    """
    run = Runs(workspace).find(run_id) if run_id is not None else History(workspace).last_command()
    is_hiding = any((field.name, field.before) == (SCOPE, PRIVATE) for field in run.fields)
    # A sync that has begun may send the lesson until it ends; and a sync finishes an undo.
    with workspace.lock("sync") if is_hiding else nullcontext(), workspace.lock("undo"):
        _finish_pending(workspace)
        if by := Runs(workspace).undone().get(run.id):
            redo = f". `fleet undo {by}` redoes it" if _can_be_undone(Runs(workspace).find(by)) else ", for good"
            raise NoError(f"{run.id} is taken back already, by {by}; nothing was changed{redo}")
        if not _can_be_undone(run):
            raise NoError(
                f"{run.id} took a discovery back, which is for good: nobody can bring it back. Nothing was changed; "
                "`fleet discover` logs it anew in other words, and `fleet undo RUN` takes an earlier run of "
                "`fleet undo --list` back"
            )
        with _pending_until_done(workspace, run.id):
            return _Undoing(workspace, run).carry_out()


def finish(workspace: Workspace) -> None:
    """Finish an undo that a crash cut short."""
    if _pending(workspace):
        with workspace.lock("undo"):
            _finish_pending(workspace)


def _pending(workspace: Workspace) -> str:
    """Return the id of the run whose undo began on this machine and did not end; "" for none."""
    return workspace.state.get(workspace.state.here(_PENDING))


@contextmanager
def _pending_until_done(workspace: Workspace, run_id: str) -> Iterator[None]:
    """Note the run whose undo begins, until that is done or proves impossible. Each step of it can be repeated."""
    key = workspace.state.here(_PENDING)
    workspace.state.put(**{key: run_id})
    try:
        yield
    except NoError:
        workspace.state.put(**{key: ""})
        raise
    workspace.state.put(**{key: ""})


def _finish_pending(workspace: Workspace) -> None:
    if pending := _pending(workspace):
        Runs(workspace).recover()
        with suppress(NoError), _pending_until_done(workspace, pending):
            _Undoing(workspace, Runs(workspace).find(pending)).carry_out()


class _Undoing:
    """Undo of one run, and the sentences about what it changed and left."""

    def __init__(self, workspace: Workspace, run: Run) -> None:
        self._workspace, self._run = workspace, run
        self._agent = run.agent or workspace.agent(or_guest=True)
        self._seen_before = {field.id: _seen_before(field) for field in reversed(run.fields) if field.name == "seen"}
        self._did: list[str] = []
        self._left: list[str] = []

    def carry_out(self) -> Undone:
        """Undo the run, or the rest of it; raise ``NoError`` and change nothing where a file of it changed since."""
        runs = Runs(self._workspace)
        by = runs.undone().get(self._run.id)
        inverse = runs.find(by) if by else runs.undo(self._run.id, partial(Memory.aligned, self._agent))
        self._left += [f"{path} {why}" for path, why in inverse.skipped.items()]
        for field in inverse.fields:
            if field.name == "entry":
                self._mark_entry(field)
        self._mark_parts([field for field in inverse.fields if field.name == "part"])
        if any((inverse.lessons, inverse.retired, inverse.fields)):
            counting.reconcile_all(self._workspace)
        self._retire_and_restore(inverse)
        merges = [field for field in inverse.fields if field.name == MERGED_INTO and field.after]
        ids = [id_ for each in merges for id_ in (each.id, str(each.after))]
        if own := [each for each in ids if self._workspace.private(self._agent, each) is not None]:
            self._left.append(f"{own[0]} is private, and is merged with none")
        for field in inverse.fields if not own else ():
            self._set(field)
        for field in inverse.fields:  # a concurrent sync may have promoted it again, before the counts were set back
            if field.name == "state" and field.before == edits.PUBLISHED != field.after:
                reflecting.leave(self._workspace, self._agent, field.id)
        self._weigh_anew(inverse)
        self._note_in_records(inverse)
        before = {edit.path: edit.before for edit in self._run.edits}
        edited = [edit for edit in inverse.edits if edit.path not in inverse.skipped]
        restored = tuple(edit.path for edit in edited if edit.after == before[edit.path])
        merged = tuple(edit.path for edit in edited if edit.path not in restored)
        if CONFIG in (*restored, *merged):  # it may name another folder for the homes again
            with closing(Workspace(self._workspace.root)) as now:
                restore.bring(now)
                self._settle_remote(now)
                self._did += [each for each in now.warnings if each not in self._workspace.warnings]
        starting.forget(self._workspace)
        return Undone(self._run, inverse.id, restored, merged, tuple(self._left), tuple(self._did))

    def _settle_remote(self, now: Workspace) -> None:
        """Put back the yes to a remote that is named again, unless lessons came from the other one meanwhile.

        They stay here, and would go to the remote that is named again without a question.
        """
        share, other = now.config.share, self._workspace.config.share
        is_agreed = now.state.agrees(consent.REMOTE, other.consented(other.remote))
        if not share.remote or share.remote == other.remote or not is_agreed:
            return
        if now.state.get("fetched") or now.state.get("last_sync"):
            shown, shown_other = Address(share.remote).redacted, Address(other.remote).redacted
            self._left.append(
                f"what came from {shown_other} stays here, and a sync sends it to {shown}: "
                "`fleet sync --dry-run` shows all that would go out. Begin in a new folder if it should not"
            )
        elif now.state.agrees(consent.REMOTE_BEFORE, share.consented(share.remote)):
            now.state.agree(consent.REMOTE, share.consented(share.remote), now.wall(), alone=True)
            self._did.append(f"{Address(share.remote).redacted} is agreed to again")

    # --- occurrences

    def _mark_entry(self, field: Field) -> None:
        """Mark an entry of the log as undone, so that it does not count, or as valid again. It stays in the log."""
        is_marked = CountedLog(self._workspace, self._agent).mark(field.id, is_undone=not field.after)
        signals = Signals(self._workspace.files, self._agent, self._workspace.wall)
        if field.after and (pending := signals.copy_of(field.id)):
            signals.dismiss(pending)
        elif not field.after and (pending := signals.ask_again(field.id)):
            self._did.append(f"{pending} waits for its lesson: fleet learn {pending} --pattern ...")
        if is_marked:
            self._did.append(f"{field.id} is {'stated again' if field.after else 'undone'}: the log says so")
        elif is_marked is None:
            self._left.append(f"{field.id} counts as it did: somebody took its record out of the log")

    def _mark_parts(self, fields: Sequence[Field]) -> None:
        """Mark records that this agent imported as undone, or as valid again, in one write."""
        if not fields:
            return
        deltas = list[Line]()
        with self._workspace.writing(self._agent) as writer:
            for field in fields:
                part, _, digits = str(field.after or field.before).partition(" ")
                line = self._workspace.record(self._agent, field.id) or Line(field.id)
                name = f"{self._agent}.{digits}"  # a copy of this folder may have imported the same, as another replica
                if name in line.by_writer():
                    deltas.append(edits.undo_part(line, name, part, is_undone=not field.after))
            writer.write(deltas)

    # --- lessons

    def _retire_and_restore(self, inverse: Run) -> None:
        """Retire what the run stated first, and restore what it retired, in one write.

        A lesson all of whose occurrences are undone is retired as well; the first one that counts again restores it.
        """
        for entry in (id_ for id_ in inverse.retired if id_.startswith("d-")):
            try:
                Findings(self._workspace, self._agent).retract(entry)
                self._did.append(f"{entry} is taken back, for good")
            except NoError as no:
                self._left.append(str(no))
        presence = dict.fromkeys((id_ for id_ in inverse.retired if id_.startswith("p-")), False)
        presence |= dict.fromkeys((id_ for id_ in inverse.lessons if id_.startswith("p-")), True)
        entries = [id_ for id_ in inverse.lessons if id_.startswith("d-")]
        self._left += [f"{id_} was taken back for good: nobody can bring it back" for id_ in entries]
        counted = self._only_counted(inverse)
        if not presence and not counted:
            return
        with self._workspace.writing(self._agent) as writer:
            deltas, stamp = [], counting.add_stamp(writer)
            for id_, is_present in (presence | counted).items():
                line = self._workspace.record(self._agent, id_)
                lesson = fold(line, self._workspace.policy()) if line is not None else None
                if line is None or lesson is None:
                    self._left.append(f"{id_} is not here any more")
                elif lesson.is_present is not is_present and self._may_change(lesson, is_counted=id_ in counted):
                    me = writer.name
                    # What a blocked writer added does not count here, and is no part of the run: others keep it.
                    gone = edits.retire(line, me, lesson.live)
                    deltas.append(edits.restore(line, me, stamp) if is_present else gone)
                    self._did.append(f"{id_} is {'back' if is_present else 'retired'}: {lesson.text}")
            writer.write(deltas)
        for agent in self._workspace.agents_here():
            reflecting.take_out_retired(self._workspace, agent)
        starting.Guards(self._workspace).make_ready()

    def _only_counted(self, inverse: Run) -> dict[str, bool]:
        """Return for each lesson of which the run only counted an occurrence whether that counts again."""
        again = {field.id for field in self._run.fields if field.name == "seen" and _seen_before(field)}
        again -= {*inverse.retired, *inverse.lessons}
        counts = {str(each.after or each.before): bool(each.after) for each in inverse.fields if each.name == "entry"}
        group = self._workspace.patterns.group
        return {id_: is_counted for id_, is_counted in counts.items() if id_ in again and group(id_) == [id_]}

    def _weigh_anew(self, inverse: Run) -> None:
        """Take lessons out of the memory whose occurrences were undone; a redo lets in again what its undo took out."""
        state, agent = self._workspace.state, self._agent
        ids = dict.fromkeys(str(each.after or each.before) for each in inverse.fields if each.name == "entry")
        taken_out = state.get(f"{_TAKEN_OUT} {self._run.id}").split()
        for id_ in ids if not self._workspace.is_guest(agent) else ():
            left = reflecting.weigh_anew(self._workspace, agent, id_, may_enter=id_ in taken_out)
            self._did += [f"{each} left {agent}'s memory: it was not seen often enough" for each in left]
            if left:
                known = state.get(f"{_TAKEN_OUT} {inverse.id}")
                state.put(**{f"{_TAKEN_OUT} {inverse.id}": f"{known} {id_}"})

    def _may_change(self, lesson: Pattern, *, is_counted: bool) -> bool:
        if is_counted:
            return lesson.count("seen") == (not lesson.is_present)
        why = self._confirmed_since(lesson) if lesson.is_present else ""
        if why:
            self._left.append(f"{lesson.id} stays: {why}")
        return not why

    def _confirmed_since(self, lesson: Pattern) -> str:
        """Return who confirmed the lesson after the run, or unseen by it; "" for nobody. Their occurrences stand."""
        if lesson.id in self._seen_before:
            times = lesson.count("seen") - self._seen_before[lesson.id]
            return f"it was seen {times:,} more since" if times > 0 else ""
        here = {each.name for each in self._workspace.replicas().replicas if each.agent == self._agent}
        others = sorted(lesson.live.keys() - here)
        return f"{', '.join(others)} confirmed it since" if others else ""

    # --- fields

    def _set(self, field: Field) -> None:
        if field.name == PART:
            self._undo_part(field)
        elif field.name == "apart":
            self._keep_apart(field)
        elif field.name == "guard":
            if starting.Guards(self._workspace).put_back(field.id, str(field.before or ""), str(field.after or "")):
                self._did.append(f"{field.id} {'guards its step' if field.after else 'guards nothing'} again")
            else:
                self._left.append(f"{field.id}: its guard was set to something else since, and stays")
        elif field.name not in _NOT_SET:
            self._set_field(field)

    def _set_field(self, field: Field) -> None:
        """Set a field of a lesson back, if it still has the run's value; a private one in the agent's private file."""
        workspace, is_own = self._workspace, field.name in _PRIVATE
        with workspace.writing(self._agent) as writer:  # first: while it is waited for, somebody may set the field
            try:
                own = fold(workspace.own_notes(self._agent, field.id) or Line(field.id), workspace.policy())
                lesson = own if is_own else find(workspace, field.id, is_worded=False)
                if (field.name, field.after) == (SCOPE, PRIVATE):
                    CountedLog(workspace, self._agent).check_alone(field.id)
            except NoError as why:
                self._left.append(str(why))
                return
            value = lesson.fields.get(field.name)
            if not self._is_due(field, value):
                return
            if is_own:
                writer.set_own([(field.id, field.name, _value(field, value))])
            elif field.name == SCOPE:
                CountedLog(workspace, self._agent).move(lesson.id, str(field.after or ""))
            else:
                writer.write([writer.edit(writer.line(field.id), field.name, _value(field, value))])

    def _is_due(self, field: Field, value: object) -> bool:
        """Return whether a field still has the run's value, so that it is set back; add a sentence about it."""
        if canonical(value or "") == canonical(field.after or ""):
            return False
        name = f"{field.id}: {names.LABELS.get(field.name, field.name)}"
        # A purge redacts runs, too, so that a purged field looks as if it still had the run's value.
        is_purged = REDACTED.encode() in canonical(value or "")
        is_unchanged = canonical(value or "") == canonical(field.before or "") and not is_purged
        if is_unchanged:
            self._did.append(f"{name} is {field.after or 'empty'} again")
        else:
            self._left.append(f"{name} was set to something else since, and stays")
        return is_unchanged

    def _keep_apart(self, field: Field) -> None:
        one, _, other = field.id.partition(" ")
        if field.after:
            Weighing(self._workspace).keep_apart([(one, other)])
        else:
            Weighing(self._workspace).forget_apart((one, other))
        self._did.append(f"{one} and {other} are {'two lessons' if field.after else 'asked about'} again")

    def _undo_part(self, field: Field) -> None:
        """Undo a run that is a part of another, or redo it."""
        runs = Runs(self._workspace)
        try:
            part = runs.find(runs.undone().get(field.id, "") if field.after else field.id)
            undone = _Undoing(self._workspace, part).carry_out()
        except NoError as why:
            self._left.append(str(why))
            return
        self._did.append(f"{part.id} is taken back, by {undone.undone_by}")
        self._did += [f"{path} is as it was" for path in undone.restored]
        self._did += [f"{path} keeps what was written since" for path in undone.merged]
        self._did += undone.did
        self._left += undone.left

    def _note_in_records(self, inverse: Run) -> None:
        """Note in the append-only records that a run was undone, or stands again."""
        origin, steps = self._run, 0
        while origin.kind == UNDO:
            origin, steps = Runs(self._workspace).find(origin.of), steps + 1
        again, why = steps % 2 == 1, f"by {inverse.id}"
        if origin.agent:  # else it is this machine's, and no agent's
            passes = [each for each in Records(self._workspace, origin.agent).passes() if each.record.run == origin.id]
            if passes and bool(passes[-1].undone) == again:
                Records(self._workspace, origin.agent).undo(origin.id, why, again=again)
                state = "stands again" if again else "was undone"
                self._did.append(f"{records.FILE_NAME} says that {origin.id} {state}")
        own = (each for each in Inbox(self._workspace).entries() if each.item.run == origin.id and not again)
        self._left += [
            f"{each.item.id} stays, by a person's yes: {each.item.title}; `fleet undo {by.run}` takes it back"
            for each in own
            if (by := each.decision) and by.outcome == APPROVED
        ]
        for entry in Inbox(self._workspace).undo(origin.id, why, again=again):
            self._did.append(f"{entry.item.id} waits {'again' if entry.decision else 'no longer'}: {entry.item.title}")
            if lesson := entry.item.body.get("lesson") if entry.item.kind == "promotion" else None:
                waiting = Waiting(str(lesson), entry.item.title.partition(": ")[2], *entry.item.evidence[:2])
                memory = AgentMemory(self._workspace, entry.agent)
                with self._workspace.locked():
                    memory.note_waiting([waiting] if entry.decision else [], [waiting.id], ())


def _can_be_undone(run: Run) -> bool:
    """Return whether an undo of a run changes anything: a discovery that was taken back does not come back."""
    ids = (*run.retired, *run.lessons)
    return not run.retired or bool(run.fields or run.edits) or any(each.startswith("p-") for each in ids)


def _seen_before(field: Field) -> int:
    """Return how often a lesson had been seen before the run counted it."""
    if isinstance(field.before, int):
        return field.before
    return field.after - 1 if isinstance(field.after, int) else 0


def _value(field: Field, current: object) -> object:
    """Return the value that a field is set back to. If it had none: an empty list for a list, else an empty text."""
    return field.after if field.after is not None else [] if isinstance(current, list) else ""
