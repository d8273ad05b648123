"""Runs: plans of file edits that are applied whole, survive a crash at any write, and can be taken back.

A run is written down in ``.fleet/runs`` before its first edit, with every file as it was and as it is to be. A file
that is no longer as the plan found it stops the plan before anything is written: whoever made it plans anew, so that a
person's edit wins. A crash leaves a plan, which the next run (or ``Runs.recover``) carries on with. To take a run back
is a run of its own, which can be taken back in turn: a file that nobody touched since is as it was, byte for byte;
elsewhere the run's own lines go and what was written since stays (a three-way merge by lines, in which nothing that
was written is lost).

Append-only records, such as ``reflections.jsonl``, are no part of a run: a line that is said stays said.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

import msgspec

from fleet.model.errors import FleetError, NoError, RefusedError, UsageError
from fleet.store.workspace import Workspace

UNDO = "undo"
"""Kind of a run that takes another one back."""
COMMANDS = frozenset(
    (
        *("correct", "learn", "discover", "retire", "retract", "restore", "edit", "merge", "unmerge"),
        *("promote", "demote", "import", "guard", "decide", "config"),
    )
)
"""Kinds of the runs that a person's own commands leave (``Runs.noting``)."""
PART = "run"
"""Name of the field by which a run names another that is a part of it."""
NOTED_MAX = 300
"""So many of these are kept, the newest: each of the other runs can always be taken back."""

_GIVEN = "given"
"""Key in ``local.db`` of the last command that changed something here and left no run."""
_PLAN, _DONE, _BEGUN = ".plan", ".json", ".begun"
_ID = r"[a-z][a-z0-9-]{2,63}"
_GONE = "was removed since; nothing was put back"
_CHANGED = "was changed while the plan was carried out; it stays as it is"


class Edit(msgspec.Struct, frozen=True):
    """One file before and after a run.

    Attributes:
        path: relative to the workspace, with ``/`` between.
        before: its bytes; None where there was no file.
        after: its bytes afterwards; None where there is to be none, in a run that takes another one back.
    """

    path: str
    before: bytes | None
    after: bytes | None


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
        kind: the command, such as ``sleep``; or ``undo``.
        told: one line that says what it did.
        lessons: ids of the lessons that it was the first to state here: to undo it, they are retired.
        retired: ids of the lessons that it retired: to undo it, they are restored.
        of: the run that this one takes back.
        left: files that it was to edit and did not, path to reason.
    """

    id: str
    kind: str
    agent: str
    at: str
    told: str = ""
    edits: tuple[Edit, ...] = ()
    lessons: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    retired: tuple[str, ...] = ()
    of: str = ""
    left: dict[str, str] = {}


class TakenBack(msgspec.Struct, frozen=True):
    """Outcome of taking a run back: the run that did so, and of its files which are as they were, and which merged."""

    run: Run
    restored: tuple[str, ...]
    merged: tuple[str, ...]


class Noted(msgspec.Struct):
    """Note of a command on itself while it runs (``Runs.noting``), in the terms of a run; afterwards its id.

    ``told`` names ids and no lesson's words: whoever purges those must not find them in a note on another machine.
    """

    run: str = ""
    told: str = ""
    lessons: list[str] = []
    fields: list[Field] = []
    retired: list[str] = []


class Runs:
    """The runs of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files = workspace.files
        self._folder = workspace.local / "runs"

    def name(self, kind: str) -> str:
        """Return a fresh id for a run of this kind."""
        day = self._workspace.wall()[:10].replace("-", "")
        return f"{kind}-{day}-{self._workspace.world.entropy(3).hex()}"

    def fresh(
        self,
        kind: str,
        agent: str,
        told: str,
        edits: Iterable[Edit] = (),
        fields: Iterable[Field] = (),
        lessons: Iterable[str] = (),
        retired: Iterable[str] = (),
    ) -> Run:
        """Return a run of now, under a fresh id, that is not applied yet."""
        return Run(
            id=self.name(kind),
            kind=kind,
            agent=agent,
            at=self._workspace.wall(),
            told=told,
            edits=tuple(edits),
            lessons=tuple(lessons),
            fields=tuple(fields),
            retired=tuple(retired),
        )

    def edit(self, path: str, after: bytes) -> Edit:
        """Return the edit that makes a file, as it is now, hold these bytes."""
        return Edit(path, self._read(path), after)

    def apply(self, run: Run) -> tuple[str, ...]:
        """Carry a plan out; return the files that are no longer as it found them: then nothing at all was written.

        Raises:
            UsageError: a path leads out of the workspace, or through a link.
            BusyError: another run is at it.
            DiskError: the plan is kept, and carried on with by the next run.
        """
        with self._locked():
            self._recover()
            return self._apply(run)

    def recover(self) -> tuple[Run, ...]:
        """Carry on with the plans that a crash left, and return them."""
        if not any(self._folder.glob(f"*{_PLAN}")):
            return ()
        with self._locked():
            return self._recover()

    @contextmanager
    def noting(self, agent: str, kind: str, files: Iterable[Path] = ()) -> Iterator[Noted]:
        """Note what the block does as a run that can be taken back; a block that says and changes nothing leaves none.

        What the block did is safe by itself, and never fails for this note: without room for it, it cannot be undone
        by ``fleet undo``, and that is said. An empty file says meanwhile that it began, and stays where no note came of
        it, so that nobody takes the run before it for the last one. The block may write ``files``; ``kind`` is one of
        ``COMMANDS``.
        """
        noted, before, trouble = Noted(), dict[str, bytes | None](), ""
        begun = self._folder / f"{self._workspace.wall()} fleet {kind}{_BEGUN}"
        with suppress(FleetError):
            self._files.note(begun, b"")
        try:
            paths = [each.relative_to(self._workspace.root).as_posix() for each in files]
            before = {path: self._read(path) for path in paths}
        except FleetError as why:
            trouble = str(why)
        try:
            yield noted
        except (UsageError, NoError, RefusedError):
            with suppress(FleetError):
                self._files.remove(begun)
            raise
        try:
            edits = [Edit(path, was, now) for path, was in before.items() if (now := self._read(path)) != was]
            if edits or noted.lessons or noted.fields or noted.retired:
                self._workspace.has_changed = True
                noted.run = noted.run if trouble else self._note(agent, kind, noted, edits)
            if not trouble:
                self._files.remove(begun)
        except FleetError as why:
            trouble = trouble or str(why)
        if trouble:
            self._workspace.warn(f"`fleet undo` cannot take this {kind} back: {trouble}")

    def _note(self, agent: str, kind: str, noted: Noted, edits: list[Edit]) -> str:
        run = self.fresh(kind, agent, noted.told, edits, noted.fields, noted.lessons, noted.retired)
        for name in self._noted()[:-NOTED_MAX]:
            self._files.remove(self._folder / name)
        self._files.replace(self._path(run.id), msgspec.json.encode(run), is_durable=False)
        return run.id

    def _noted(self) -> list[str]:
        """Return the names of the files that commands noted themselves in, those of the earliest days first."""
        found: list[str] = []
        with suppress(OSError):  # there is none yet
            found = [path.name for path in self._folder.iterdir() if path.name.endswith(_DONE)]
        return sorted((name for name in found if name.split("-")[0] in COMMANDS), key=lambda name: name.split("-")[-2])

    def note_given(self, command: str, at: str) -> None:
        """Note that a command which leaves no run was given at a time: whoever takes back the last one must know."""
        self._workspace.state.put(**{_GIVEN: f"{at} {command}"})

    def given(self) -> tuple[str, str]:
        """Return the last command that changed something here and left no run, and when; "" twice for none."""
        begun = [path.stem for path in self._folder.glob(f"*{_BEGUN}")]
        at, _, command = max([self._workspace.state.get(_GIVEN), *begun]).partition(" ")
        return command, at

    def forget(self, texts: Iterable[str]) -> None:
        """Delete the runs that hold one of these texts, which was purged. They cannot be undone."""
        needles = [each.encode() for each in texts if each]
        for run in self.listed():
            sides = [side for each in run.edits for side in (each.before, each.after) if side is not None]
            said = [*sides, run.told.encode(), *(msgspec.json.encode(each) for each in run.fields)]
            if any(needle in each for needle in needles for each in said):
                self._files.remove(self._path(run.id))

    def listed(self) -> list[Run]:
        """Return the runs that were carried out here, the newest first."""
        runs = [run for path in self._folder.glob(f"*{_DONE}") if (run := self._load(path)) is not None]
        return sorted(runs, key=lambda run: (run.at, run.id), reverse=True)

    def find(self, run_id: str) -> Run:
        """Return the run of this id, or of which this is the only beginning.

        Raises:
            NoError: there is none, or several.
        """
        found = [run for run in self.listed() if run_id and run.id.startswith(run_id)]
        exact = [run for run in found if run.id == run_id]
        if len(exact or found) != 1:
            several = "several runs begin like that" if found else "no run here is called that"
            raise NoError(f"{run_id[:80]!r}: {several}; nothing was changed. `fleet undo --list` names them")
        return (exact or found)[0]

    def undone(self, runs: Sequence[Run] | None = None) -> dict[str, str]:
        """Return the runs that are taken back now, each with the run that did so; ``runs``: all that are listed."""
        backs = {run.of: run.id for run in reversed(self.listed() if runs is None else runs) if run.kind == UNDO}

        def stands(run_id: str) -> bool:
            return run_id not in backs or not stands(backs[run_id])

        return {of: by for of, by in backs.items() if stands(by)}

    def take_back(self, run_id: str) -> TakenBack:
        """Undo the file edits of a run, as a run of its own. Its lessons and fields are the caller's.

        Raises:
            NoError: there is no such run, or it is taken back already.
            BusyError, DiskError: as ``apply``.
        """
        run = self.find(run_id)
        with self._locked():
            self._recover()
            if by := self.undone().get(run.id):
                raise NoError(f"{run.id} is taken back already, by {by}; nothing was changed")
            back = self._backwards(run)
            if stale := self._apply(back):
                raise NoError(f"{', '.join(stale)} changed meanwhile; nothing was changed, run it again")
        back = self.find(back.id)  # with what was left in the last moment
        was = {each.path: each.before for each in run.edits}
        done = [each for each in back.edits if each.path not in back.left]
        restored = tuple(each.path for each in done if each.after == was[each.path])
        return TakenBack(back, restored, tuple(each.path for each in done if each.path not in restored))

    def _backwards(self, run: Run) -> Run:
        """Return the run that takes another one back."""
        edits, left = [], {}
        for each in run.edits:
            now = self._read(each.path)
            if each.path in run.left or now == each.before:
                continue
            if now == each.after:
                edits.append(Edit(each.path, now, each.before))
            elif now is None or each.after is None:
                left[each.path] = _GONE
            elif (merged := _merged(now, each.after, each.before or b"")) != now:
                edits.append(Edit(each.path, now, merged or each.before))
        fields = [Field(each.id, each.name, each.after, each.before) for each in reversed(run.fields)]
        back = self.fresh(UNDO, run.agent, f"took back {run.id}", edits, fields, run.retired, run.lessons)
        return msgspec.structs.replace(back, of=run.id, left=left)

    def _apply(self, run: Run) -> tuple[str, ...]:
        for each in run.edits:
            self._check_path(each.path)
        if stale := tuple(each.path for each in run.edits if self._read(each.path) != each.before):
            return stale
        if not re.fullmatch(_ID, run.id):
            raise UsageError(f"{run.id[:80]!r} cannot be the name of a run; nothing was changed")
        self._files.replace(self._path(run.id, _PLAN), msgspec.json.encode(run))
        self._carry_out(run)
        return ()

    def _carry_out(self, run: Run) -> Run:
        """Make every edit that is not made yet, and keep the plan as a run."""
        left = dict(run.left)
        for each in run.edits:
            now = self._read(each.path)
            if now == each.after:
                continue
            if now != each.before:
                left[each.path] = _CHANGED
            elif each.after is None:
                self._files.remove(self._workspace.root / each.path)
            else:
                self._files.replace(self._workspace.root / each.path, each.after)
        done, self._workspace.has_changed = msgspec.structs.replace(run, left=left), True
        self._files.replace(self._path(run.id), msgspec.json.encode(done))
        self._files.remove(self._path(run.id, _PLAN))
        return done

    def _recover(self) -> tuple[Run, ...]:
        plans = sorted(self._folder.glob(f"*{_PLAN}"))
        return tuple(self._carry_out(run) for path in plans if (run := self._load(path)) is not None)

    def _path(self, run_id: str, ending: str = _DONE) -> Path:
        return self._folder / f"{run_id}{ending}"

    def _load(self, path: Path) -> Run | None:
        """Return a run that is kept, its files where the homes are now; None where it is none, which is said."""
        with suppress(msgspec.DecodeError, FleetError):
            run = msgspec.json.decode(self._files.read(path), type=Run)
            now = self._workspace.path_now
            edits = tuple(Edit(now(each.path), each.before, each.after) for each in run.edits)
            return msgspec.structs.replace(run, edits=edits, left={now(each): why for each, why in run.left.items()})
        self._workspace.warn(f"{path} is no run that can be read; it was left as it is, and cannot be taken back")
        return None

    def _read(self, path: str) -> bytes | None:
        """Return the bytes of a file; None where there is none."""
        file = self._workspace.root / path
        return self._files.read(file) if os.path.lexists(file) else None

    def _check_path(self, path: str) -> None:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or parts[0] == ".git":
            raise UsageError(f"{path[:120]!r} is no file of this workspace; nothing was changed")
        for depth in range(1, len(parts) + 1):
            if self._workspace.root.joinpath(*parts[:depth]).is_symlink():
                raise UsageError(f"{path[:120]!r} is, or lies behind, a symbolic link; nothing was changed through it")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._files.lock(self._workspace.local / "locks" / "runs.lock"):
            yield


def _merged(now: bytes, base: bytes, wanted: bytes) -> bytes:
    """Return a file as it is wanted, with what was written into it since ``base``, and without what was taken out."""
    lines = base.splitlines(keepends=True)
    theirs, their_gone = _changes(lines, now.splitlines(keepends=True))
    ours, our_gone = _changes(lines, wanted.splitlines(keepends=True))
    merged: list[bytes] = []
    for at, line in enumerate([*lines, b""]):
        kept = [line] if line and at not in their_gone | our_gone else []
        for each in (*ours.get(at, ()), *theirs.get(at, ()), *kept):
            if merged and not merged[-1].endswith((b"\n", b"\r")):
                merged[-1] += b"\n"
            merged.append(each)
    return b"".join(merged)


def _changes(lines: list[bytes], others: list[bytes]) -> tuple[dict[int, list[bytes]], set[int]]:
    """Return what leads from one file to another: lines put in, by the line they stand before, and lines taken out."""
    put_in: dict[int, list[bytes]] = {}
    gone: set[int] = set()
    for tag, first, last, start, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        if tag != "equal":
            put_in.setdefault(first, []).extend(others[start:end])
            gone.update(range(first, last))
    return put_in, gone
