"""Runs: plans of file edits that are applied whole, survive a crash at any write, and can be taken back.

A run is written down in ``.fleet/runs`` before its first edit, with every file as it was and as it is to be. A file
that is no longer as the plan found it stops the plan before anything is written: whoever made it plans anew, so that a
person's edit wins. A crash leaves a plan, which the next run (or ``recover``) carries on with. To take a run back is
a run of its own, which can be taken back in turn: a file that nobody touched since is as it was, byte for byte;
elsewhere the run's own lines go and what was written since stays (a three-way merge by lines, in which nothing that
was written is lost).

Append-only records, such as ``reflections.jsonl``, are no part of a run: a line that is said stays said.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from fleet.model.errors import FleetError, NoError, UsageError
from fleet.store.workspace import Workspace

UNDO = "undo"
"""Kind of a run that takes another one back."""
COMMANDS = frozenset(
    (
        *("correct", "learn", "discover", "retire", "retract", "restore", "edit", "merge", "unmerge"),
        *("promote", "demote", "import", "guard", "decide", "config"),
    )
)
"""Kinds of the runs that a person's own commands leave (``noting``)."""
PART = "run"
"""Name of the field by which a run names another that is a part of it."""
NOTED_MAX = 300
"""So many of these are kept, the newest: each of the other runs can always be taken back."""

_FOLDER = "runs"
_PLAN, _DONE = ".plan", ".json"
_ID = re.compile(r"[a-z][a-z0-9-]{2,63}")
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
    """What one command or one pass changed here, with what it takes to undo it.

    Attributes:
        id: ``<kind>-<day>-<6 hex>``, see ``name``.
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


class _Applied(NamedTuple):
    """Outcome of a run.

    Attributes:
        run: as it is kept; its ``left`` names files that somebody changed in the last moment.
        stale: files that were no longer as the plan found them: nothing at all was written, plan anew.
    """

    run: Run
    stale: tuple[str, ...] = ()


class TakenBack(NamedTuple):
    """Outcome of taking a run back: the run that did so, and of its files which are as they were, and which merged."""

    run: Run
    restored: tuple[str, ...]
    merged: tuple[str, ...]


def name(workspace: Workspace, kind: str) -> str:
    """Return a fresh id for a run of this kind."""
    day = workspace.wall()[:10].replace("-", "")
    return f"{kind}-{day}-{workspace.world.entropy(3).hex()}"


def edit(workspace: Workspace, path: str, after: bytes) -> Edit:
    """Return the edit that makes a file, as it is now, hold these bytes."""
    return Edit(path, _read(workspace, path), after)


def apply(workspace: Workspace, run: Run) -> _Applied:
    """Carry a plan out: all of it, or nothing where a file is no longer as the plan found it.

    Raises:
        UsageError: a path leads out of the workspace, or through a link.
        BusyError: another run is at it.
        DiskError: the plan is kept, and carried on with by the next run.
    """
    with _locked(workspace):
        _recover(workspace)
        return _apply(workspace, run)


def recover(workspace: Workspace) -> tuple[Run, ...]:
    """Carry on with the plans that a crash left, and return them."""
    if not any(_folder(workspace).glob(f"*{_PLAN}")):
        return ()
    with _locked(workspace):
        return _recover(workspace)


class Noted(msgspec.Struct):
    """What a command says of itself while it runs (``noting``), in the terms of a run; afterwards its id.

    ``told`` names ids and no lesson's words: whoever purges those must not find them in a note on another machine.
    """

    run: str = ""
    told: str = ""
    lessons: list[str] = []
    fields: list[Field] = []
    retired: list[str] = []


@contextmanager
def noting(workspace: Workspace, agent: str, kind: str, files: Iterable[Path] = ()) -> Iterator[Noted]:
    """Note what the block does as a run that can be taken back; a block that says and changes nothing leaves none.

    What the block did is safe by itself, and never fails for this note: without room for it, it cannot be undone by
    ``fleet undo``, and that is said.

    The block may write ``files``; ``kind`` is one of ``COMMANDS``.
    """
    paths = [each.relative_to(workspace.root).as_posix() for each in files]
    noted, before, trouble = Noted(), dict[str, bytes | None](), ""
    try:
        before = {path: _read(workspace, path) for path in paths}
    except FleetError as why:
        trouble = str(why)
    yield noted
    if trouble:
        workspace.warn(f"`fleet undo` cannot take this {kind} back: {trouble}")
        return
    try:
        edits = [Edit(path, was, now) for path, was in before.items() if (now := _read(workspace, path)) != was]
        if edits or noted.lessons or noted.fields or noted.retired:
            run = Run(
                id=name(workspace, kind),
                kind=kind,
                agent=agent,
                at=workspace.wall(),
                told=noted.told,
                edits=tuple(edits),
                lessons=tuple(noted.lessons),
                fields=tuple(noted.fields),
                retired=tuple(noted.retired),
            )
            _forget_old(workspace)
            path = _folder(workspace) / f"{run.id}{_DONE}"
            workspace.files.replace(path, msgspec.json.encode(run), is_durable=False)
            noted.run = run.id
    except FleetError as why:
        workspace.warn(f"`fleet undo` cannot take this {kind} back: {why}")


def _forget_old(workspace: Workspace) -> None:
    """Forget the oldest runs of commands: beyond so many nobody undoes them one by one."""
    noted = [path for path in _folder(workspace).glob(f"*{_DONE}") if path.name.split("-")[0] in COMMANDS]
    for path in sorted(noted, key=lambda each: each.stem.split("-")[-2])[: max(0, len(noted) - NOTED_MAX)]:
        workspace.files.remove(path)


def forget(workspace: Workspace, texts: Iterable[str]) -> list[str]:
    """Delete the runs that hold one of these texts, which was purged; return their ids. They cannot be undone."""
    needles = [each.encode() for each in texts if each]
    gone = []
    for run in listed(workspace):
        sides = [side for each in run.edits for side in (each.before, each.after) if side is not None]
        said = [*sides, run.told.encode(), *(msgspec.json.encode(each) for each in run.fields)]
        if any(needle in each for needle in needles for each in said):
            workspace.files.remove(_folder(workspace) / f"{run.id}{_DONE}")
            gone.append(run.id)
    return gone


def ids(workspace: Workspace) -> list[str]:
    """Return the ids of the runs that were carried out here, without reading any, sorted."""
    return sorted(path.stem for path in _folder(workspace).glob(f"*{_DONE}"))


def listed(workspace: Workspace) -> Iterator[Run]:
    """Yield the runs that were carried out here, the newest first."""
    found = _folder(workspace).glob(f"*{_DONE}")
    runs = [run for path in found if (run := _load(workspace, path)) is not None]
    yield from sorted(runs, key=lambda run: (run.at, run.id), reverse=True)


def find(workspace: Workspace, run_id: str) -> Run:
    """Return the run of this id, or of which this is the only beginning.

    Raises:
        NoError: there is none, or several.
    """
    exact = _load(workspace, _folder(workspace) / f"{run_id}{_DONE}") if _ID.fullmatch(run_id) else None
    if exact is not None:
        return exact
    found = [run for run in listed(workspace) if run_id and run.id.startswith(run_id)]
    if len(found) != 1:
        several = "several runs begin like that" if found else "no run here is called that"
        raise NoError(f"{run_id[:80]!r}: {several}; nothing was changed. `fleet undo --list` names them")
    return found[0]


def undone(workspace: Workspace) -> dict[str, str]:
    """Return the runs that are taken back now, each with the run that did so."""
    known = {run.id: run for run in listed(workspace)}
    backs = {run.of: run.id for run in sorted(known.values(), key=lambda run: (run.at, run.id)) if run.kind == UNDO}

    def stands(run_id: str) -> bool:
        return run_id not in backs or not stands(backs[run_id])

    return {of: by for of, by in backs.items() if stands(by)}


def take_back(workspace: Workspace, run_id: str) -> TakenBack:
    """Undo the file edits of a run, as a run of its own. Its lessons and fields are the caller's.

    Raises:
        NoError: there is no such run, or it is taken back already.
        BusyError, DiskError: as ``apply``.
    """
    run = find(workspace, run_id)
    with _locked(workspace):
        _recover(workspace)
        if run.id in undone(workspace):
            raise NoError(f"{run.id} is taken back already, by {undone(workspace)[run.id]}; nothing was changed")
        edits, left = _backwards(workspace, run)
        back = Run(
            id=name(workspace, UNDO),
            kind=UNDO,
            agent=run.agent,
            at=workspace.wall(),
            told=f"took back {run.id}",
            edits=edits,
            lessons=run.retired,
            retired=run.lessons,
            fields=tuple(Field(each.id, each.name, each.after, each.before) for each in reversed(run.fields)),
            of=run.id,
            left=left,
        )
        applied = _apply(workspace, back)
    if applied.stale:
        raise NoError(f"{', '.join(applied.stale)} changed meanwhile; nothing was changed, run it again")
    was = {each.path: each.before for each in run.edits}
    done = [each for each in applied.run.edits if each.path not in applied.run.left]
    restored = tuple(each.path for each in done if each.after == was[each.path])
    return TakenBack(applied.run, restored, tuple(each.path for each in done if each.path not in restored))


def _apply(workspace: Workspace, run: Run) -> _Applied:
    for each in run.edits:
        _check_path(workspace, each.path)
    stale = tuple(each.path for each in run.edits if _read(workspace, each.path) != each.before)
    if stale:
        return _Applied(run, stale)
    if not _ID.fullmatch(run.id):
        raise UsageError(f"{run.id[:80]!r} cannot be the name of a run; nothing was changed")
    workspace.files.replace(_folder(workspace) / f"{run.id}{_PLAN}", msgspec.json.encode(run))
    return _Applied(_carry_out(workspace, run))


def _carry_out(workspace: Workspace, run: Run) -> Run:
    """Make every edit that is not made yet, and keep the plan as a run."""
    left = dict(run.left)
    for each in run.edits:
        now = _read(workspace, each.path)
        if now == each.after:
            continue
        if now != each.before:
            left[each.path] = _CHANGED
        elif each.after is None:
            workspace.files.remove(workspace.root / each.path)
        else:
            workspace.files.replace(workspace.root / each.path, each.after)
    done = msgspec.structs.replace(run, left=left)
    workspace.files.replace(_folder(workspace) / f"{run.id}{_DONE}", msgspec.json.encode(done))
    workspace.files.remove(_folder(workspace) / f"{run.id}{_PLAN}")
    return done


def _recover(workspace: Workspace) -> tuple[Run, ...]:
    plans = sorted(_folder(workspace).glob(f"*{_PLAN}"))
    return tuple(_carry_out(workspace, run) for path in plans if (run := _load(workspace, path)) is not None)


def _backwards(workspace: Workspace, run: Run) -> tuple[tuple[Edit, ...], dict[str, str]]:
    """Return the edits that take a run's back, and the files that stay as they are, with the reason."""
    edits, left = [], {}
    for each in run.edits:
        now = _read(workspace, each.path)
        if each.path in run.left or now == each.before:
            continue
        if now == each.after:
            edits.append(Edit(each.path, now, each.before))
        elif now is None or each.after is None:
            left[each.path] = _GONE
        elif (merged := _merged(now, each.after, each.before or b"")) != now:
            edits.append(Edit(each.path, now, merged or each.before))
    return tuple(edits), left


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


def _read(workspace: Workspace, path: str) -> bytes | None:
    """Return the bytes of a file; None where there is none."""
    return workspace.files.read(workspace.root / path) if os.path.lexists(workspace.root / path) else None


def _check_path(workspace: Workspace, path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0] == ".git":
        raise UsageError(f"{path[:120]!r} is no file of this workspace; nothing was changed")
    for depth in range(1, len(parts) + 1):
        if workspace.root.joinpath(*parts[:depth]).is_symlink():
            raise UsageError(f"{path[:120]!r} is, or lies behind, a symbolic link; nothing was changed through it")


def _folder(workspace: Workspace) -> Path:
    return workspace.local / _FOLDER


def _load(workspace: Workspace, path: Path) -> Run | None:
    """Return a run that is kept; None where the file is gone or no run, which is said."""
    data = workspace.files.read(path)
    with suppress(msgspec.DecodeError, FleetError):
        return _where_files_are(workspace, msgspec.json.decode(data, type=Run)) if data else None
    workspace.warn(f"{path} is no run that can be read; it was left as it is, and cannot be taken back")
    return None


def _where_files_are(workspace: Workspace, run: Run) -> Run:
    """Return a run with the paths of now, where the agents' homes have been moved since."""
    now = {each.path: workspace.path_now(each.path) for each in run.edits}
    if all(path == was for was, path in now.items()):
        return run
    edits = tuple(Edit(now[each.path], each.before, each.after) for each in run.edits)
    return msgspec.structs.replace(run, edits=edits, left={now.get(path, path): why for path, why in run.left.items()})


@contextmanager
def _locked(workspace: Workspace) -> Iterator[None]:
    with workspace.files.lock(workspace.local / "locks" / "runs.lock"):
        yield
