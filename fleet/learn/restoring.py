"""Restoring a backup: a join, like everything else. Nothing newer is overwritten, and nothing is taken on trust.

Lines are united with the lines that are here. A log gets the entries that it lacks, at its end. Any other file comes
back where it is missing; where another version of it is, the one of the backup is put beside it.
"""

import glob
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from crdt import clock
from fleet.keep import archive, members, replica
from fleet.keep.archive import Member
from fleet.keep.errors import DiskError, FleetError
from fleet.keep.line import Refused
from fleet.keep.reading import KINDS, Kind, Read, entries
from fleet.keep.store import Held, raw_lines
from fleet.keep.workspace import Workspace
from fleet.learn import reconcile
from fleet.learn.corrections import FILE_NAME
from fleet.learn.entries import Log, format_record, parse_log
from fleet.learn.lessons import format_lesson

_MARK = re.compile(rb"[0-9a-f]{32}")
_PRINT = re.compile(r"[0-9a-f]{16}", re.ASCII)
_RENDERED = frozenset({"clan-learnings/patterns.md", "clan-learnings/.gitattributes"})


@dataclass(slots=True)
class Restored:
    """What came back.

    Attributes:
        lines: lines that were missing here, those of the clan's files.
        entries: entries that a log lacked.
        files: paths of files that were missing.
        beside: paths of files that lie beside another version now.
        refused: what was not taken, and why.
    """

    lines: int = 0
    entries: int = 0
    files: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def restore(workspace: Workspace, source: Path) -> Restored:
    """Join a backup into a workspace. Doing it twice changes nothing.

    Raises:
        RefusedError: it is damaged, no backup, or larger than any; nothing was changed.
    """
    with source.open("rb") as file:
        # Read to its end first: only there is it known to be whole, and no half of it is ever joined.
        for _ in archive.read(file):
            pass
    done = Restored()
    with source.open("rb") as file, workspace.locked():
        held = workspace.store.load(workspace.timekeeper.reading().cut)
        for number, member in enumerate(archive.read(file), 1):
            if member.refused:
                done.refused.append(Refused(f"{source.name}: {member.path[:200]}", number, member.refused, member.data))
                continue
            try:
                _restore(workspace, held, member, done)
            except (FleetError, ValueError) as why:
                if isinstance(why, DiskError):
                    raise
                done.refused.append(Refused(f"{source.name}: {member.path}", number, str(why), member.data))
        workspace.quarantine.keep(done.refused, workspace.wall())
    return done


def _restore(workspace: Workspace, held: Held, member: Member, done: Restored) -> None:
    path = member.path
    top, _, rest = path.partition("/")
    kind = next((k for k in KINDS if rest == k.edition or rest.startswith(f"{k.name}.d/")), None)
    if path == archive.REPLICAS:
        _join_replicas(workspace, member.data)
    elif path == archive.SENT:
        workspace.state.restore_sent(bytes.fromhex(raw.decode()) for raw in _MARK.findall(member.data))
    elif top == archive.CLAN and kind is not None:
        _join_lines(workspace, held, kind, rest, member.data, done)
    elif path == "clan-learnings/members.toml":
        _join_members(workspace, member.data)
    elif path in _RENDERED:
        return  # made anew from the lines
    elif top == archive.HOMES and path.count("/") == 2 and path.endswith(f"/{FILE_NAME}"):
        _join_log(workspace, path, member.data, done)
    else:
        _place(workspace, path, member.data, done)


def _join_replicas(workspace: Workspace, data: bytes) -> None:
    """Older ids come before ours: their log entries are ours to send, and who writes here stays as it is.

    An id that was minted for another machine or folder is not taken up there: the next write mints a new one.
    """
    theirs = replica.parse(data, Path("replica.toml"))
    if not all(r.is_lease or (_PRINT.fullmatch(r.machine) and _PRINT.fullmatch(r.folder)) for r in theirs.replicas):
        raise ValueError("a replica in it is bound to no machine and folder")
    if not all(clock.is_stamp(r.minted) for r in theirs.replicas):
        raise ValueError("a replica in it was minted at no time")
    mine = workspace.replicas()
    known = {r.name for r in mine.replicas}
    older = tuple(r for r in theirs.replicas if r.name not in known and not r.is_lease)
    joined = msgspec.structs.replace(
        mine, default_agent=mine.default_agent or theirs.default_agent, replicas=(*older, *mine.replicas)
    )
    if joined != mine:
        workspace.disk.replace(workspace.replica_file, joined.render())


def _join_lines(workspace: Workspace, held: Held, kind: Kind, path: str, data: bytes, done: Restored) -> None:
    """Append the lines that are not here, and that nothing here covers."""
    known, join, read = set(raw_lines(workspace.store.read(path))), held.of(kind), Read()
    missing = []
    for raw, entry in entries(kind, iter([data]), f"backup: {path}", read):
        if raw not in known and not join.covers(entry):
            missing.append(raw)
            join.add(entry)
    done.refused += read.refused
    done.lines += len(missing)
    if missing:
        workspace.disk.append(workspace.clan / path, b"".join(raw + b"\n" for raw in missing))


def _join_members(workspace: Workspace, data: bytes) -> None:
    mine = members.parse(workspace.store.read("members.toml"))
    if joined := members.parse(data) | mine:
        workspace.store.write("members.toml", members.render(joined))


def _join_log(workspace: Workspace, path: str, data: bytes, done: Restored) -> None:
    """Append the entries that the log lacks, as they were written, and the records that it lacks."""
    target = workspace.root / path
    known = workspace.disk.read(target)
    if not known:
        _place(workspace, path, data, done)
        return
    mine, theirs = parse_log(known), parse_log(data)
    pieces = list(_missing_entries(mine, theirs, data))
    more = ("\n" + "\n\n".join(piece.strip("\n") for piece in pieces) + "\n") if pieces else ""
    records = {(record.id, record.replica, record.at) for record in (*mine.records, *parse_log(more).records)}
    known_lessons = {*mine.lessons, *parse_log(more).lessons}
    more += "".join(f"\n{format_lesson(lesson)}" for lesson in theirs.lessons if lesson not in known_lessons)
    more += "".join(
        f"{format_record(record)}\n"
        for record in theirs.records
        if (record.id, record.replica, record.at) not in records
    )
    if not more:
        return
    closed = known if known.endswith(b"\n") else known + b"\n"
    both = parse_log(closed + more.encode())
    # Half a fence or comment in one of the two could swallow what follows: then they are kept apart.
    if len(both.entries) < len(mine.entries) + len(pieces):
        _place(workspace, path, data, done)
        return
    workspace.disk.append(target, more.encode())
    done.entries += len(pieces)


def _missing_entries(mine: Log, theirs: Log, data: bytes) -> Iterator[str]:
    """Yield the text of each entry that is not here: neither as it stands nor, mended since, under its record."""
    here = {bound.id for bound in reconcile.bind(mine)} | {record.id for record in mine.records}
    rows = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = [entry.line for entry in theirs.entries] + [len(rows) + 1]
    for number, bound in enumerate(reconcile.bind(theirs)):
        recorded = bound.record.id if bound.record is not None else bound.id
        if bound.id not in here and recorded not in here:
            yield "\n".join(rows[starts[number] - 1 : starts[number + 1] - 1])


def _place(workspace: Workspace, path: str, data: bytes, done: Restored) -> None:
    """Put a file where it is missing, or beside another version of itself."""
    target = workspace.root / path
    if not target.exists() and not target.is_symlink():
        workspace.disk.replace(target, data)
        done.files.append(path)
        return
    if not target.is_symlink() and target.is_file() and workspace.disk.read(target) == data:
        return
    mark = hashlib.blake2b(data, digest_size=2).hexdigest()
    beside = target.with_name(f"{target.name}.restored-{workspace.wall()[:10]}-{mark}")
    if not list(target.parent.glob(f"{glob.escape(target.name)}.restored-*-{mark}")):
        workspace.disk.replace(beside, data)
        done.beside.append(str(beside.relative_to(workspace.root)))
