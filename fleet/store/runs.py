"""Runs: transactions over files, each with a log of what it takes to undo it.

A run is written to ``.fleet/runs`` before its first edit, with each file before and after (a write-ahead log). If a
file has changed since the run was planned, nothing is written and the caller plans anew, so a person's edit wins. After
a crash, the next run or ``Runs.recover`` finishes the plan, if it was made on this machine. Any other is put aside: a
cloned repository may bring one along.

Undoing a run is a run of its own, and can be undone in turn. A file that nobody touched since gets its old bytes back;
in any other, a three-way merge by lines removes the run's lines and keeps those written since.

Append-only records such as ``reflections.jsonl`` are no part of a run: their lines stay.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher, unified_diff
from itertools import chain
from pathlib import Path, PurePosixPath

import msgspec

from crdt import clock
from fleet.model.errors import BusyError, DiskError, FleetError, NoError, RefusedError, UsageError
from fleet.model.names import FIELDS
from fleet.store.workspace import Workspace
from fleet.text.screening import listed

UNDO = "undo"
"""Kind of the run that undoes another."""
COMMANDS = frozenset(
    (
        *("correct", "learn", "discover", "retire", "retract", "restore", "edit", "merge", "unmerge"),
        *("promote", "demote", "import", "guard", "decide", "config"),
    )
)
"""Kinds of the runs that a person's commands leave (``Runs.recording``)."""
PART = "run"
"""Name of the field by which a run refers to another run that is a part of it."""
COMMANDS_KEPT_MAX = 300
"""Number of runs of these kinds that are kept, the newest; runs of other kinds are never dropped."""

_UNRECORDED, _UNRECORDED_MAX = "given", 50
"""Key in ``local.db`` of the last commands here that left no run, and how many of them are kept."""
_TRIES_MAX = 5
_PURGED_CHARS_MIN = 6  # shorter texts are in every run, and hide nothing
_SKILL = "SKILL.md"  # a skill is a folder, and this in it
_PLAN, _DONE, _BEGUN, _ASIDE = ".plan", ".json", ".begun", ".plan-aside"
_BY = " by "  # behind a command that was begun, and before the agent it acts as
_WORDED = {field.name for field in FIELDS if not field.values} - {"importance"}  # a number
"""Fields of a lesson that have words."""
_ID = r"[a-z][a-z0-9-]{2,63}"
_FRAMED = ("/memory.md", "/user-model.md")
"""Ends of the paths of pages where a heading stays if anything was added below it since."""
_LISTS, _ROW_MARKS = ("AGENTS.md", ".agents.local.md", ".agents/local.md"), b"-*+|"
"""Ends of the paths of pages where a heading stays only above new rows, as runs add them; how rows begin."""
_TABLE_RULE = rb"\|[-:| ]*-[-:| ]*"
_REMOVED = "was removed since; nothing was put back"
_CHANGED = "was changed while the plan was carried out; it stays as it is"


class Edit(msgspec.Struct, frozen=True):
    """One file of the workspace before and after a run; None for no file, which only an undo leaves."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def text(self) -> str:
        """The text before the run; "" for no file."""
        return (self.before or b"").decode("utf-8", "surrogateescape")

    @property
    def diff(self) -> str:
        """The edit as a unified diff."""
        before, after = self.text.splitlines(), (self.after or b"").decode("utf-8", "surrogateescape").splitlines()
        return "\n".join(unified_diff(before, after, self.path if before else "/dev/null", self.path, lineterm="", n=2))

    def to(self, after: str | bytes) -> "Edit":
        """Return the edit that replaces the content of this file, as it was read."""
        data = after.encode("utf-8", "surrogateescape") if isinstance(after, str) else after
        return Edit(self.path, self.before, data)


class Field(msgspec.Struct, frozen=True):
    """One field of a lesson before and after a run, as JSON values."""

    id: str
    name: str
    before: object = None
    after: object = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Change by one command or one pass, with what it takes to undo it.

    Attributes:
        id: ``<kind>-<day>-<6 hex>``, see ``Runs.name``.
        kind: name of the command, such as ``sleep``, or ``undo``.
        lessons: ids of the lessons that it was the first to state here; an undo retires them.
        retired: ids of the lessons that it retired; an undo restores them.
        of: id of the run that this one undoes.
        skipped: files that it was to edit and did not, path to reason.
    """

    id: str
    kind: str
    agent: str
    at: str
    summary: str = msgspec.field(default="", name="told")
    edits: tuple[Edit, ...] = ()
    lessons: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    retired: tuple[str, ...] = ()
    of: str = ""
    skipped: dict[str, str] = msgspec.field(default_factory=dict, name="left")
    machine: str = ""


class Draft(msgspec.Struct):
    """Draft of a run: planned, or filled by a command while it runs (``Runs.recording``).

    ``run`` is its id, "" for a new one; afterwards that of the run. ``summary`` has ids and no lesson's words: a purge
    on another machine would not find them there. ``problem`` is why a command cannot be undone, "" if it can.
    """

    run: str = ""
    summary: str = ""
    edits: list[Edit] = []
    lessons: list[str] = []
    fields: list[Field] = []
    retired: list[str] = []
    problem: str = ""


class Runs:
    """The runs of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files = workspace.files
        self._folder = workspace.local / "runs"

    def name(self, kind: str) -> str:
        """Return a new id for a run of this kind."""
        day = self._workspace.wall()[:10].replace("-", "")
        return f"{kind}-{day}-{self._workspace.world.entropy(3).hex()}"

    def fresh(self, kind: str, agent: str, draft: Draft) -> Run:
        """Return the run of a draft, stamped now and not applied yet."""
        return Run(
            id=draft.run or self.name(kind),
            kind=kind,
            agent=agent,
            at=self._workspace.wall(),
            summary=draft.summary,
            edits=tuple(draft.edits),
            lessons=tuple(draft.lessons),
            fields=tuple(draft.fields),
            retired=tuple(draft.retired),
            machine=self._workspace.world.machine(),
        )

    def page(self, path: str) -> Edit:
        """Return a file as it is now, as an edit that changes nothing; ``Edit.to`` makes a change of it."""
        before = self._read(path)
        return Edit(path, before, before)

    def apply(self, run: Run) -> tuple[str, ...]:
        """Apply a run; return the paths of files that changed since it was planned, in which case nothing was written.

        Raises:
            UsageError: a path leads out of the workspace, or through a link.
            BusyError: another process is applying a run.
            DiskError: the plan is kept, and the next run finishes it.
        """
        with self._workspace.lock("runs"):
            self._recover()
            return self._apply(run)

    def apply_planned(self, kind: str, agent: str, plan: Callable[[], Draft | None]) -> str:
        """Apply the draft that ``plan`` returns, planned anew where a file changed meanwhile; return the run's id.

        "" where ``plan`` returned None. Raises ``BusyError`` where somebody writes the same files all the time.
        """
        for _ in range(_TRIES_MAX):
            self.recover()  # a plan is made of whole pages
            if (draft := plan()) is None:
                return ""
            if not self.apply(run := self.fresh(kind, agent, draft)):
                return run.id
        raise BusyError("somebody keeps editing these files; nothing was changed, try again later")

    def swap(self, file: Path, before: bytes, after: bytes) -> bool:
        """Replace a file if its content is still ``before``; return whether it was. The command's run records it."""
        path, recorded = file.relative_to(self._workspace.root).as_posix(), self._workspace.recorded
        with self._workspace.lock("runs"):  # a run that another process applies compares and replaces, too
            now = self._read(path)
            if (now or b"") != before:
                return False
            self._files.replace(file, after)
        if recorded is not None:
            first, last = recorded.get(path, (now, now))
            # What a person wrote between two edits of one run counts as older than both, so that an undo keeps it.
            first = first if last == now else _merged(path, now or b"", last or b"", first or b"")
            recorded[path] = first, after
        return True

    def recover(self) -> tuple[Run, ...]:
        """Finish the plans that a crash left here, and return them."""
        if not any(self._folder.glob(f"*{_PLAN}")):
            return ()
        with self._workspace.lock("runs"):
            return self._recover()

    @contextmanager
    def recording(self, agent: str, kind: str) -> Iterator[Draft]:
        """Record what the block does as a run; a block that changes nothing leaves none.

        What the block did is durable by itself and never fails for its record: without room for one, a warning says
        that ``fleet undo`` cannot undo it. Until there is a record, an empty marker file says that the command began.
        If none is made, it stays, so that ``fleet undo`` does not take an earlier run for the last command. Files that
        the block replaces by ``swap`` are the run's edits. ``kind`` is one of ``COMMANDS``, or ``count`` for a log.
        """
        disk, state = self._files, self._workspace.state
        draft, edits, written = Draft(), dict[str, tuple[bytes | None, bytes | None]](), (disk.written, state.written)
        began = clock.after(self._workspace.wall())  # later than a run that ended in this very millisecond
        marker = self._folder / f"{began} fleet {kind}{_BY}{agent}{_BEGUN}"
        with suppress(FleetError):
            self._files.note(marker, b"")
        outer, self._workspace.recorded = self._workspace.recorded, edits
        try:
            yield draft
        except BaseException as why:
            is_over = isinstance(why, (UsageError, NoError, RefusedError))
            with suppress(FleetError):
                self._end(marker, stays=not is_over and (disk.written, state.written) != written)
            raise
        finally:
            self._workspace.recorded = outer
        try:
            draft.edits = [Edit(path, was, now) for path, (was, now) in edits.items() if was != now]
            if draft.edits or draft.lessons or draft.fields or draft.retired:
                self._workspace.has_changed = True
                draft.run = draft.run if draft.problem else self._record(self.fresh(kind, agent, draft))
            self._end(marker, stays=bool(draft.problem))
        except FleetError as why:
            draft.problem = draft.problem or f"{why}. The {kind} itself is done"
        if draft.problem:
            self._workspace.warn(f"`fleet undo` cannot take this {kind} back: {draft.problem}")

    @contextmanager
    def together(self, agent: str, kind: str) -> Iterator[None]:
        """Record the runs of a block that are of its kind as the parts of one run, which one undo takes back."""
        with self.recording(agent, kind) as draft:
            known = len(self._workspace.runs)
            yield
            # A log that was counted meanwhile is no part: what is written in it was not this command's.
            parts = [each for each in self._workspace.runs[known:] if each.startswith(f"{kind}-")]
            draft.fields = [Field(part, PART, None, part) for part in parts]
            loaded = (self._load(self._path(part)) for part in parts)
            draft.summary = "; ".join(run.summary for run in loaded if run is not None)

    def _end(self, marker: Path, *, stays: bool) -> None:
        """Remove a command's marker; or, if it ``stays`` as that of its agent's last command, the markers before."""
        before = (path for path in self._folder.glob(f"*{_BEGUN}") if path.name < marker.name and marker.exists())
        others = (path for path in before if path.stem.partition(_BY)[2] in ("", marker.stem.partition(_BY)[2]))
        for path in others if stays else (marker,):
            self._files.remove(path)

    def _record(self, run: Run) -> str:
        with suppress(OSError):  # there is no folder yet
            files = os.listdir(self._folder)  # noqa: PTH208 - on every command
            names = (name for name in files if name.endswith(_DONE) and name.split("-")[0] in COMMANDS)
            for name in sorted(names, key=lambda name: name.split("-")[-2])[:-COMMANDS_KEPT_MAX]:
                self._files.remove(self._folder / name)
        self._files.replace(self._path(run.id), msgspec.json.encode(run), is_durable=False)
        self._workspace.runs.append(run.id)
        return run.id

    def note_unrecorded(self, command: str, at: str, agent: str = "") -> None:
        """Note a command that left no run, so that ``fleet undo`` does not undo the command before it instead.

        ``agent``: name of the agent that the command acted as, "" if none was named.
        """
        with self._workspace.state.transaction() as connection:  # of two commands at once, both are noted
            known = self._workspace.state.get(_UNRECORDED).splitlines()[1 - _UNRECORDED_MAX :]
            row = (_UNRECORDED, "\n".join([*known, f"{at} {command}{agent and f'{_BY}{agent}'}"]))
            connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?)", row)

    def unrecorded(self, agent: str = "") -> list[tuple[str, str]]:
        """Return the last commands that left no run, each with its time, the newest first.

        ``agent``: leave out commands of other agents.
        """
        begun = [path.stem for path in self._folder.glob(f"*{_BEGUN}")]
        lines = sorted([*self._workspace.state.get(_UNRECORDED).splitlines(), *begun], reverse=True)
        given = (line.partition(_BY) for line in lines)
        mine = (command.partition(" ") for command, _, by in given if not agent or by in ("", agent))
        return [(command, self._workspace.made_at(at)) for at, _, command in mine]

    def forget(self, texts: Iterable[str], ids: Collection[str] = ()) -> None:
        """Delete the runs that contain one of these texts, which were purged, and the earlier words of these lessons.

        They cannot be undone any more.
        """
        needles = [text.encode() for text in texts if len(text) >= _PURGED_CHARS_MIN]
        for run in self.listed():
            fields = tuple(each for each in run.fields if each.id not in ids or each.name not in _WORDED)
            if fields != run.fields and any((fields, run.edits, run.lessons, run.retired)):
                rest = msgspec.structs.replace(run, fields=fields)
                self._files.replace(self._path(run.id), msgspec.json.encode(rest))
            elif fields != run.fields:
                self._files.remove(self._path(run.id))
            contents = [data for edit in run.edits for data in (edit.before, edit.after) if data is not None]
            contents += [run.summary.encode(), *(msgspec.json.encode(field) for field in run.fields)]
            if any(needle in data for needle in needles for data in contents):
                self._files.remove(self._path(run.id))

    def hand_over(self, old: str, agent: str, ids: Mapping[str, str]) -> None:
        """Give the runs of agent ``old`` to another agent; ``ids``: old to new id of the entries in its log."""
        for run in (run for run in self.listed() if run.agent == old):
            fields = tuple(msgspec.structs.replace(field, id=ids.get(field.id, field.id)) for field in run.fields)
            fresh = msgspec.structs.replace(run, agent=agent, fields=fields)
            self._files.replace(self._path(run.id), msgspec.json.encode(fresh))

    def listed(self) -> list[Run]:
        """Return the runs that were applied here, the newest first."""
        runs = [run for path in self._folder.glob(f"*{_DONE}") if (run := self._load(path)) is not None]
        return sorted(runs, key=lambda run: (self._workspace.made_at(run.at), run.at, run.id), reverse=True)

    def find(self, run_id: str) -> Run:
        """Return the run with this id, or the only one whose id begins so; raise ``NoError`` for none, or several."""
        matches = [run for run in self.listed() if run_id and run.id.startswith(run_id)]
        exact = [run for run in matches if run.id == run_id]
        if len(exact or matches) != 1:
            reason = "several runs begin like that" if matches else "no run here is called that"
            raise NoError(f"{run_id[:80]!r}: {reason}; nothing was changed. `fleet undo --list` names them")
        return (exact or matches)[0]

    def undone(self, runs: Sequence[Run] | None = None) -> dict[str, str]:
        """Return the ids of the undone runs, each with the id of its undo; ``runs``: all that are ``listed``."""
        undos = defaultdict[str, list[str]](list)
        for run in self.listed() if runs is None else runs:
            if run.kind == UNDO:
                undos[run.of].append(run.id)

        def is_effective(run_id: str) -> bool:
            return not any(is_effective(by) for by in undos.get(run_id, ()))

        return {run_id: by for run_id, bys in undos.items() for by in bys if is_effective(by)}

    def undo(self, run_id: str, aligned: Callable[..., Sequence[bytes]] = lambda _, *versions: versions) -> Run:
        """Undo the file edits of a run, and return the run that did so. Its lessons and fields are the caller's.

        Raises ``NoError`` where there is no such run, or it is undone already; others as ``apply``.
        """
        run = self.find(run_id)
        with self._workspace.lock("runs"):
            self._recover()
            if by := self.undone().get(run.id):
                raise NoError(f"{run.id} is taken back already, by {by}; nothing was changed")
            inverse = self._inverse(run, aligned)
            if stale := self._apply(inverse):
                raise NoError(f"{', '.join(stale)} changed meanwhile; nothing was changed, run it again")
        return self.find(inverse.id)  # with what was skipped at the last moment

    def _inverse(self, run: Run, aligned: Callable[..., Sequence[bytes]]) -> Run:
        """Return the run that undoes another; ``aligned`` returns the versions of a file as they are merged."""
        edits: list[Edit] = []
        skipped: dict[str, str] = {}
        only_here = self._lost_by_skipped(run)
        for edit in run.edits:
            now = self._read(edit.path)
            if edit.path in run.skipped or now == edit.before:
                continue
            if edit.after is None:  # a file that was created again keeps its lines beside the old ones
                base = _common(now or b"", edit.before or b"")
            else:
                base = _without(edit.after, only_here - _lines(edit.before))
            if now == edit.after and base == (now or b""):
                edits.append(Edit(edit.path, now, edit.before))
            elif now is None:
                skipped[edit.path] = _REMOVED
            elif (merged := _merged(edit.path, *aligned(edit.path, now, base, edit.before or b""))) != now:
                edits.append(Edit(edit.path, now, merged or (edit.before and b"")))
        fields = self._inverse_fields(run)
        draft = Draft("", f"took back {run.id}", edits, list(run.retired), fields, list(run.lessons))
        return msgspec.structs.replace(self.fresh(UNDO, run.agent, draft), of=run.id, skipped=skipped)

    def _inverse_fields(self, run: Run) -> list[Field]:
        """Return the fields as the undo of a run sets them: to no words of an earlier run that was undone since."""
        runs = self.listed()
        undone, place = self.undone(runs), next(at for at, each in enumerate(runs) if each.id == run.id)
        since, inverse = {each.id for each in runs[:place]}, list[Field]()
        taken_back = defaultdict[tuple[str, str], list[Field]](list)  # the newest first
        for each in chain.from_iterable(other.fields for other in runs[place:] if undone.get(other.id) in since):
            taken_back[each.id, each.name].append(each)
        for field in reversed(run.fields):
            before = field.before
            for each in taken_back[field.id, field.name] if field.name in _WORDED else ():
                before = each.before if each.after == before else before
            inverse.append(Field(field.id, field.name, field.after, before))
        return inverse

    def _lost_by_skipped(self, run: Run) -> set[bytes]:
        """Return the lines that a run was to move out of pages it skipped, and that a later run took out of them.

        Lines that the run added elsewhere may be their only copy: its undo must leave them.
        """
        pages = [edit for edit in run.edits if edit.path in run.skipped]
        return {line for edit in pages for line in _lines(edit.before) - _lines(self._read(edit.path)) if line.strip()}

    def _apply(self, run: Run) -> tuple[str, ...]:
        self._check(run)
        if stale := tuple(edit.path for edit in run.edits if self._read(edit.path) != edit.before):
            return stale
        for edit in run.edits:  # a plan that cannot be finished would hinder every later run
            self._files.check(self._workspace.root / edit.path)
        run = msgspec.structs.replace(run, machine=self._workspace.world.machine())
        self._files.replace(self._path(run.id, _PLAN), msgspec.json.encode(run))
        self._workspace.runs.append(run.id)
        self._finish(run)
        return ()

    def _finish(self, run: Run) -> Run:
        """Make the edits of a plan that are not made yet, and turn the plan into a run.

        Lines that move are in the new file before they leave the old one, and stay there if the new one was changed.
        """
        skipped = dict(run.skipped)
        for edit in sorted(run.edits, key=_loss):
            now = self._read(edit.path)
            stays = _CHANGED in skipped.values() and _loss(edit) >= 0 and now != edit.after
            if stays or now not in (edit.before, edit.after):
                skipped[edit.path] = _CHANGED
            elif now is not None and edit.after is None:
                self._files.remove(file := self._workspace.root / edit.path)
                with suppress(OSError):  # the folder holds more
                    if file.name == _SKILL:
                        file.parent.rmdir()
            elif now != edit.after:
                self._files.replace(self._workspace.root / edit.path, edit.after or b"")
        done, self._workspace.has_changed = msgspec.structs.replace(run, skipped=skipped), True
        self._files.replace(self._path(run.id), msgspec.json.encode(done))
        self._files.remove(self._path(run.id, _PLAN))
        return done

    def _recover(self) -> tuple[Run, ...]:
        plans = [(path, self._load(path)) for path in sorted(self._folder.glob(f"*{_PLAN}"))]
        ours = [run for path, run in plans if run is not None and self._is_ours(path, run)]
        try:
            finished = tuple(map(self._finish, ours))
        except DiskError as why:
            raise DiskError(f"an earlier run has to be finished first, and cannot be ({ours[0].id}): {why}") from why
        for run in finished:
            self._workspace.warn(f"{run.id}, which was cut short, is finished now; `fleet undo {run.id}` takes it back")
        return finished

    def _is_ours(self, path: Path, run: Run) -> bool:
        """Return whether a plan was made on this machine; put aside any other, with a warning."""
        with suppress(UsageError):
            self._check(run)
            if run.machine == self._workspace.world.machine() and path == self._path(run.id, _PLAN):
                return True
        aside = path.with_suffix(_ASIDE)
        self._files.replace(aside, self._files.read(path))
        self._files.remove(path)
        named = listed([repr(edit.path[:120]) for edit in run.edits])
        self._workspace.warn(
            "a plan that was not made on this machine, or leads out of this folder, would have changed "
            f"{named or 'no file'}; nothing was written, and it lies in {aside}. If this folder came from "
            "another machine of yours, a crash cut it short there; else somebody put it into the repository"
        )
        return False

    def _path(self, run_id: str, ending: str = _DONE) -> Path:
        return self._folder / f"{run_id}{ending}"

    def _load(self, path: Path) -> Run | None:
        """Return a run from its file, paths adjusted to where the homes are now; None, with a warning, for none."""
        with suppress(msgspec.DecodeError, FleetError):
            run = msgspec.json.decode(self._files.read(path), type=Run)
            now = self._workspace.current_path
            edits = tuple(Edit(now(edit.path), edit.before, edit.after) for edit in run.edits)
            skipped = {now(skipped): why for skipped, why in run.skipped.items()}
            return msgspec.structs.replace(run, edits=edits, skipped=skipped)
        self._workspace.warn(f"{path} is no run that can be read; it was left as it is, and cannot be taken back")
        return None

    def _read(self, path: str) -> bytes | None:
        """Return the bytes of a file; None for no file."""
        file = self._workspace.root / path
        return self._files.read(file) if os.path.lexists(file) else None

    def _check(self, run: Run) -> None:
        """Raise ``UsageError`` for a run that would write outside the workspace, or has an invalid id."""
        for path in (edit.path for edit in run.edits):
            parts = PurePosixPath(path).parts
            is_gits = any(each.casefold().rstrip(". ") == ".git" for each in parts)  # as a disk that ignores case does
            if not parts or path.startswith("/") or ".." in parts or is_gits or "\0" in path:
                raise UsageError(f"{path[:120]!r} is no file of this workspace; nothing was changed")
            if self._files.is_linked(self._workspace.root / path):
                raise UsageError(f"{path[:120]!r} is, or lies behind, a symbolic link; nothing was changed through it")
        if not re.fullmatch(_ID, run.id):
            raise UsageError(f"{run.id[:80]!r} cannot be the name of a run; nothing was changed")


def _loss(edit: Edit) -> int:
    """Return 1 for an edit that only takes lines out of its file, -1 for one that takes none, and 0 for others."""
    before, after = _lines(edit.before), _lines(edit.after)
    return -1 if before <= after else int(after <= before)


def _merged(path: str, now: bytes, base: bytes, target: bytes) -> bytes:
    """Return the three-way merge of a file by lines: the target, with what was added and removed since ``base``.

    In some pages, a heading or table head of ``base`` stays as long as lines that were added since are below it.
    """
    lines = base.splitlines(keepends=True)
    theirs, removed_by_them = _diff(lines, now.splitlines(keepends=True))
    ours, removed_by_us = _diff(lines, target.splitlines(keepends=True))
    for end, added in theirs.items():
        first = b"".join(added).strip(b"\r\n")[:1]
        if path.endswith(_FRAMED) or (path.endswith(_LISTS) and first in _ROW_MARKS):
            removed_by_us -= _frame(lines, removed_by_us, end, first)
    merged: list[bytes] = []
    for index, line in enumerate([*lines, b""]):
        kept = [line] if line and index not in removed_by_them | removed_by_us else []
        for row in (*_once(ours.get(index, []), theirs.get(index, [])), *kept):
            if merged and not merged[-1].endswith((b"\n", b"\r")):
                merged[-1] += b"\n"
            merged.append(row)
    return b"".join(merged)


def _frame(lines: list[bytes], removed: set[int], end: int, first: bytes) -> set[int]:
    """Return the removed headings and table head above line ``end`` that stay over added rows like ``first``."""
    level, is_row, kept = 0 if first in b"#" else 7, first == b"|", set[int]()
    for index in reversed(range(end)):
        if index not in removed:
            break
        depth = len(lines[index]) - len(lines[index].lstrip(b"#"))
        if 0 < depth < level:
            kept |= {index, index - 1} if not lines[index - 1].strip() else {index}
            level = depth
        elif is_row and re.fullmatch(_TABLE_RULE, lines[index].strip()):
            kept |= {index - 1, index}
            is_row = False
    return kept


def _once(ours: list[bytes], theirs: list[bytes]) -> list[bytes]:
    """Return what two sides added at one place: if one has all lines of the other, in order, that one alone."""
    common = _common(b"".join(ours), b"".join(theirs))
    if ours and common == b"".join(ours):
        return theirs
    return ours if theirs and common == b"".join(theirs) else [*ours, *theirs]


def _lines(data: bytes | None) -> set[bytes]:
    return set((data or b"").splitlines())


def _without(data: bytes, lines: set[bytes]) -> bytes:
    """Return a file's bytes without these lines."""
    return b"".join(line for line in data.splitlines(keepends=True) if line.rstrip(b"\r\n") not in lines)


def _common(now: bytes, target: bytes) -> bytes:
    """Return the lines that two files have in common, in their order."""
    lines, others = now.splitlines(keepends=True), target.splitlines(keepends=True)
    blocks = SequenceMatcher(None, lines, others, autojunk=False).get_matching_blocks()
    return b"".join(line for start, _, number in blocks for line in lines[start : start + number])


def _diff(lines: list[bytes], others: list[bytes]) -> tuple[dict[int, list[bytes]], set[int]]:
    """Return the lines inserted in the other file, by the index of the next line, and the removed lines' indexes."""
    inserted: dict[int, list[bytes]] = {}
    removed: set[int] = set()
    for tag, first, last, start, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        if tag != "equal":
            inserted.setdefault(first, []).extend(others[start:end])
            removed.update(range(first, last))
    return inserted, removed
