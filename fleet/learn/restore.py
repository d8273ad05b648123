"""Restore of a backup: a join, so nothing newer is overwritten; and every file is checked.

Lines are joined with the lines here. A log gets its missing entries at its end. Any other file is restored if it is
missing, or put beside a different file of the same name.
"""

import glob
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from crdt import clock
from fleet.learn import corrections_md
from fleet.learn.corrections_md import PART, Log, Record
from fleet.learn.counting import CountedLog, keep_private
from fleet.model import line as codec
from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.errors import DiskError, FleetError, RefusedError
from fleet.model.line import Line, Refused, is_version_1
from fleet.store import backup, git, lines, replica
from fleet.store.backup import Member
from fleet.store.lines import PATTERNS, Entry, Kind, LineReader, lesson_lines, missing_of
from fleet.store.runs import Runs
from fleet.store.tree import MEMBERS, Members
from fleet.store.workspace import Workspace
from fleet.text import markdown

_PRINT = re.compile(r"[0-9a-f]{16}", re.ASCII)
_RENDERED = frozenset({"clan-learnings/patterns.md", "clan-learnings/.gitattributes"})
_ENTRY_ID = rb"\bc-[0-9a-f]{16}\b"
_ORIGIN = (
    rb"<!-- fleet (?:flagged )?(c-[0-9a-f]{16}) (?:p-\S+ )?((?:replica=\S+ )?at=\S+) "
    rb"(?![^>]* (?:part=1 |stated=))"
)
_GUESTS_RECORD = rb"(?P<start><!-- fleet c-[0-9a-f]{16} p-\S+ )(?P<made>replica=guest\.\S+ at=\S+)(?P<rest> [^>\n]*)-->"
_BRING_WAIT_S = 0.5
_FORMAT = "clan-learnings/.fleet-format"


class RestoreResult(msgspec.Struct):
    """Outcome: number of new lines and entries, new files, files put beside another, refused lines, and agents."""

    lines: int = 0
    entries: int = 0
    files: list[str] = []
    beside: list[str] = []
    refused: list[Refused] = []
    agents: list[str] = []


def restore(workspace: Workspace, source: Path) -> RestoreResult:
    """Join a backup into a workspace. Doing it twice changes nothing.

    Raises:
        RefusedError: it is damaged, no backup, or larger than any; nothing was changed.
    """
    # Read to its end first: half an archive is never joined.
    paths, is_old = set[str](), False
    for member in backup.members(source):
        paths.add(member.path)
        is_old = is_old or is_version_1(member.data.partition(b"\n")[0])
    if is_old and _FORMAT not in paths and (workspace.root / _FORMAT).is_file():
        raise RefusedError(
            "fleet 0.1 made this backup, and this workspace has a newer format. Nothing was restored: in an empty "
            f"folder `fleet restore-backup {source.name}`, `fleet upgrade` and `fleet backup` make one for this folder"
        )
    outcome = RestoreResult()
    with workspace.locked():
        _give_up_parted_names(workspace, source)
        join = _Restore(workspace, outcome)
        for number, member in enumerate(backup.members(source), 1):
            if member.refused:
                path = f"{source.name}: {member.path[:200]}"
                outcome.refused.append(Refused(path, number, member.refused, member.data))
                continue
            try:
                join.take(member)
            except (FleetError, ValueError) as why:
                if isinstance(why, DiskError):
                    raise
                outcome.refused.append(Refused(f"{source.name}: {member.path}", number, str(why), member.data))
        workspace.quarantine.keep(outcome.refused, workspace.wall())
    if not workspace.doubt:
        keep_private(workspace)  # a lesson that became private after the backup is a shared one in it
    return outcome


def take_over(workspace: Workspace, agent: str) -> int:
    """Give an agent the guest's files and replicas; return how many files were moved. The caller holds the write lock.

    The guest's replicas become the agent's with the same digits: so doing it twice counts nothing twice.
    """
    if agent == names.GUEST:
        return 0
    home = workspace.home(names.GUEST)
    if _may_be_anybodys(workspace, home):
        place = workspace.own_path(names.GUEST)
        workspace.warn(
            f"git tracks files in {place}, or cannot tell: anybody may have written them, so {agent} has taken nothing "
            f"over. If they are yours: `git rm -r --cached {place}`, and `fleet init --agent {agent}` again"
        )
        return 0
    with workspace.log_lock(agent), workspace.log_lock(names.GUEST):  # the guest may be logging at this moment
        if files := workspace.files_of(home):
            logs = [workspace.home(owner) / corrections_md.FILE_NAME for owner in (agent, names.GUEST)]
            log, data = map(workspace.files.read, logs)
            # This comes first, since after the log is moved, the earlier ids of its entries are unknown.
            Runs(workspace).hand_over(names.GUEST, agent, _ids_here(log, _in_the_name_of(agent, data)))
            _move(workspace, agent, home, files)
    register = workspace.replicas()
    mine = [r for r in register.replicas if r.agent == names.GUEST]
    if mine:
        taken = [r._replace(name=f"{agent}{r.name.removeprefix(names.GUEST)}") for r in mine]
        others = [r for r in register.replicas if r not in mine]
        workspace.files.replace(workspace.replica_file, register._replace(replicas=(*taken, *others)).render())
    return len(files)


def _may_be_anybodys(workspace: Workspace, home: Path) -> bool:
    """Return whether a repository may have brought a home along: git tracks files in it, or cannot tell."""
    if not home.is_dir() or not workspace.is_in_git():
        return False
    parts = home.relative_to(workspace.root).parts
    # On a disk that ignores case, git may track it under another name.
    folders = [home, *home.parents][: len(parts)]
    is_exact = all(each in each.parent.iterdir() for each in folders)
    return not is_exact or git.may_track(workspace.root, "/".join(parts))


def bring(workspace: Workspace) -> None:
    """Move the files of the agents' earlier homes to the place in ``fleet.toml``, and warn about it.

    Each file is written before it is removed: after a crash the next command goes on.
    """
    found = [
        (agent, home, files)
        for agent, home, files in workspace.files_in_old_homes()
        if agent != names.GUEST or not _may_be_anybodys(workspace, home)
    ]
    old_places = dict.fromkeys(home.parent.relative_to(workspace.root).as_posix() for _, home, _ in found)
    if not old_places or workspace.is_read_only:
        return
    moved = f"from {' and '.join(old_places)}/ to {workspace.place}/, as fleet.toml says"
    try:
        for agent, home, files in found:
            log = home / corrections_md.FILE_NAME
            with workspace.log_lock(agent, _BRING_WAIT_S):
                # The log moves first, under its own lock: no later correction may be counted before one in it.
                _move(workspace, agent, home, [log] if log in files else [])
            with workspace.locked(_BRING_WAIT_S), workspace.log_lock(agent, _BRING_WAIT_S):
                _move(workspace, agent, home, [each for each in files if each != log])
    except FleetError as why:
        workspace.warn(f"not all files of the agents came {moved}: {why}. None is lost; the next command goes on")
    else:
        workspace.warn(f"the agents' files came {moved}")


def _move(workspace: Workspace, agent: str, home: Path, files: Iterable[Path]) -> None:
    """Move files into an agent's home, joined with those there. The caller holds the locks of both homes' files."""
    join = _Restore(workspace, RestoreResult())
    for file in files:
        data, path = workspace.files.read(file), workspace.own_path(agent, *file.relative_to(home).parts)
        if file.name == corrections_md.FILE_NAME:
            join.join_log(path, _in_the_name_of(agent, data) if home.name != agent else data)
        elif file.suffix == ".jsonl":
            known = workspace.files.read(workspace.root / path).split(b"\n")
            lines = [line + b"\n" for line in data.split(b"\n") if line and line not in known]
            if lines:
                workspace.files.append(workspace.root / path, b"".join(lines))
        else:
            join.place(path, data)
        workspace.files.remove(file)
    for folder in (*sorted((each for each in home.rglob("*") if each.is_dir()), reverse=True), home, home.parent):
        with suppress(OSError):  # one that is not empty stays
            folder.rmdir()


def _in_the_name_of(agent: str, data: bytes) -> bytes:
    """Return a guest's log as an agent's. Its records become parts: a copy of it may become another agent's."""
    data = re.sub(_GUESTS_RECORD, _as_part, data)
    data = re.sub(rb" replica=guest(\.[0-9a-f]{8}) ", rf" replica={agent}\1 ".encode(), data)
    return data.replace(b" guest\n", f" {agent}\n".encode(), 1)


def _as_part(record: re.Match[bytes]) -> bytes:
    """Return a record whose part has a key of where and when it was made, since an entry's id may differ in a copy."""
    key = hashlib.blake2b(record["made"], digest_size=8).hexdigest()
    return b"%s%s%spart=%s -->" % (*record.groups(), key.encode())


class _Restore:
    """A restore while it runs."""

    def __init__(self, workspace: Workspace, done: RestoreResult) -> None:
        self._workspace = workspace
        self._done = done
        self._joined: dict[tuple[str, str], Line] = {}  # records with the lines so far, by (agent or "", id)

    def take(self, member: Member) -> None:
        """Join one file of the backup."""
        workspace, path = self._workspace, member.path
        top, _, relative = path.partition("/")
        kind = lines.Kind.of(relative) if top == backup.CLAN else None
        is_own = top == backup.HOMES and path.count("/") == 2
        agent = relative.partition("/")[0]
        if top == backup.HOMES:
            path = workspace.own_path(*relative.split("/"))
        if path == backup.REPLICAS:
            self._done.agents += _join_replicas(workspace, member.data)
        elif path == backup.LOCAL:
            backup.join_local(workspace.state, member.local_rows())
        elif kind is not None:
            self._join_lines(kind, path, member.data)
        elif is_own and path.endswith("/notes.jsonl"):
            self._join_lines(PATTERNS, path, member.data, agent)
        elif path == "clan-learnings/members.toml":
            _join_members(workspace, member.data)
        elif path in _RENDERED or path == backup.SENT or (path == _FORMAT and (workspace.root / path).exists()):
            return  # rendered again from the lines, or of fleet 0.1 alone, or here already
        elif is_own and path.endswith("/corrections.md"):
            with workspace.log_lock(agent):
                self.join_log(path, member.data)
        else:
            self.place(path, member.data)

    def _join_lines(self, kind: Kind, path: str, data: bytes, agent: str = "") -> None:
        """Append the lines that nothing here covers: of an agent's private file, or of the clan's without one."""
        target, read = self._workspace.root / path, LineReader()
        mine = frozenset[str]() if agent else self._workspace.mine()
        raw_lines = set(self._workspace.files.read(target).replace(b"\r\n", b"\n").split(b"\n"))
        entries = read.entries(kind, [data], f"backup: {path}")
        missing, ours = list[bytes](), list[bytes]()
        for raw, entry in entries:
            if raw not in raw_lines and not self._covers(entry, agent):
                (missing if mine.isdisjoint(_writers(entry)) else ours).append(raw)
        # Lines of fleet 0.1 come back as they are: `fleet upgrade` reads them.
        old = [each.raw for each in read.refused if is_version_1(each.raw)] if kind is PATTERNS else []
        missing += [raw for raw in old if raw not in raw_lines]
        if old:
            self._workspace.warn("lines of fleet 0.1 came back: run `fleet upgrade`, which converts them")
        self._done.refused += [each for each in read.refused if each.raw not in old]
        self._done.lines += len(missing) + len(ours)
        # Lines under names of ours go to a shard of ours: in a file of others, a person would be asked about them.
        own = self._workspace.clan / kind.shard(min(mine, default=""))
        for file, raws in ((target, missing), (own, ours)):
            if raws:
                self._workspace.files.append(file, b"".join(raw + b"\n" for raw in raws))

    def _covers(self, entry: Entry, agent: str) -> bool:
        """Return whether the clan's lines here, or the agent's own, cover an entry; if not, it counts as joined now."""
        if isinstance(entry, Discovery):
            return missing_of(self._workspace.discoveries.get(entry.id), entry) is None
        if not isinstance(entry, Line):
            return not agent and self._workspace.db.has_carried(entry)
        key = agent, entry.id
        records = self._workspace.notes(agent) if agent else self._workspace.patterns
        record = self._joined.get(key) or records.line(entry.id)
        if record is not None and codec.covers(record, entry):
            return True
        self._joined[key] = entry if record is None else codec.join(record, entry)
        return False

    def join_log(self, path: str, data: bytes) -> None:
        """Append the entries, unchanged, and fleet's comments and statements that the log lacks."""
        target, parse = self._workspace.root / path, Log.parse
        log = self._workspace.files.read(target)
        if not log:
            self.place(path, data)
            return
        ids, mine = _ids_here(log, data), parse(log)
        data = re.sub(_ENTRY_ID, lambda each: ids.get(each[0].decode(), each[0].decode()).encode(), data)
        pieces = list(_missing_entries(mine, parse(data), data))
        added = ("\n" + "\n\n".join(piece.strip("\n") for piece in pieces) + "\n") if pieces else ""
        known = {*_marks(log), *_marks(added.encode())}
        added += "".join(f"\n{mark}\n" for mark in _marks(data) if mark not in known)
        if not added:
            return
        closed = log if log.endswith(b"\n") else log + b"\n"
        # Half a fence or comment in one of the two could hide entries: then they stay two files.
        if len(parse(closed + added.encode()).entries) < len(mine.entries) + len(pieces):
            self.place(path, data)
            return
        self._workspace.files.append(target, added.encode())
        self._done.entries += len(pieces)

    def place(self, path: str, data: bytes) -> None:
        """Write a file if it is missing, or beside a different file of the same name."""
        workspace = self._workspace
        target = workspace.root / path
        if not target.exists() and not target.is_symlink():
            workspace.files.replace(target, data)
            self._done.files.append(path)
            return
        if not target.is_symlink() and target.is_file() and workspace.files.read(target) == data:
            return
        mark = hashlib.blake2b(data, digest_size=2).hexdigest()
        beside = target.with_name(f"{target.name}.restored-{workspace.wall()[:10]}-{mark}")
        if not list(target.parent.glob(f"{glob.escape(target.name)}.restored-*-{mark}")):
            workspace.files.replace(beside, data)
            self._done.beside.append(str(beside.relative_to(workspace.root)))


def _writers(entry: Entry) -> Iterable[str]:
    return entry.by_writer() if isinstance(entry, Line) else [entry.by] if isinstance(entry, Discovery) else []


def _join_replicas(workspace: Workspace, data: bytes) -> list[str]:
    """Add the backup's replicas before ours, since their log entries are ours to send; return the backup's agents.

    A replica of another machine or folder is not used for writing here: the next write mints a new one.
    """
    theirs = replica.Register.parse(data, Path("replica.toml"))
    if not all(r.is_lease or (_PRINT.fullmatch(r.machine) and _PRINT.fullmatch(r.folder)) for r in theirs.replicas):
        raise ValueError("a replica in it is bound to no machine and folder")
    if not all(clock.is_stamp(r.minted) for r in theirs.replicas):
        raise ValueError("a replica in it was minted at no time")
    mine = workspace.replicas()
    known = {r.name for r in mine.replicas}
    older = tuple(r for r in theirs.replicas if r.name not in known and not r.is_lease)
    default = workspace.default_agent() or theirs.default_agent
    joined = mine._replace(default_agent=default, replicas=(*older, *mine.replicas))
    if joined != mine:
        workspace.files.replace(workspace.replica_file, joined.render())
    return [theirs.default_agent, *(r.agent for r in theirs.replicas)]


def _join_members(workspace: Workspace, data: bytes) -> None:
    file = workspace.clan / MEMBERS
    mine = Members.parse(workspace.files.read(file))
    if joined := Members(Members.parse(data) | mine):
        workspace.files.replace(file, joined.render())


def _ids_here(log: bytes, data: bytes) -> dict[str, str]:
    """Return, by the id of each entry of a log (``data``), its id in the log here, now or after it is appended.

    In two logs, different entries of one minute and wording have the same id. They are the same entry only if they were
    made at the same place and time.
    """
    here, there = _origins(log), _origins(data)
    taken = {*here, *(each.id for each in Log.parse(log).entries)}
    ids: dict[str, str] = {}
    for item in Log.parse(data).entries:
        entry = item.record.id if item.record is not None else item.id
        made, known = there.get(entry, set()), here.get(entry, set())
        if entry in ids.values() or (made and known and not made & known):
            same = (each for each, origin in here.items() if origin & made)
            ids[entry] = next(same, "") or item.free_id(taken)
        else:
            ids[entry] = entry
        taken.add(ids[entry])
    return ids


def _origins(data: bytes) -> dict[str, set[bytes]]:
    """Return entry id to where and when it was made: replica and stamp of its record, or the time of a signal.

    Records of hand-written entries and of lessons that were stated later do not tell it: each copy makes its own.
    """
    origins: dict[str, set[bytes]] = {}
    for match in re.finditer(_ORIGIN, data):
        origins.setdefault(match[1].decode(), set()).add(match[2])
    return origins


def _marks(data: bytes) -> list[str]:
    """Return fleet's comments in a log, and its statements, in file order, each as a line."""
    statements = [each.render().strip() for each in Log.parse(data).statements]
    rows = markdown.rows(data.decode("utf-8", "replace").replace("\r", "\n"))
    comments = [each for row in rows for each in row.comments if each.lstrip().startswith("fleet ")]
    return list(dict.fromkeys([*statements, *(f"<!--{each}-->" for each in comments)]))


def _missing_entries(mine: Log, theirs: Log, data: bytes) -> Iterator[str]:
    """Yield the text of each entry of their log whose id, that of its record or else its own, is not in ours."""
    ids = {each.id for each in mine.entries} | {record.id for record in mine.records}
    rows = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = [entry.line for entry in theirs.entries] + [len(rows) + 1]
    for number, item in enumerate(theirs.entries):
        if (item.record.id if item.record is not None else item.id) not in ids:
            yield "\n".join(rows[starts[number] - 1 : starts[number + 1] - 1])


def give_up_names(
    workspace: Workspace, fetched: Iterable[Line], record_before: Callable[[str], Line | None] | None
) -> None:
    """Give up each replica of ours under which another machine writes: our uncounted records move to another replica.

    A replica that is lent to all runs of a job is kept, and its records become parts. The caller holds the write lock,
    and takes the tree in afterwards.

    ``fetched``: the tree's records that our rows do not cover; the tree is not taken in yet.
    ``record_before``: returns a record of the tree that was fetched before; None where that is unknown.
    """
    current = workspace.current_replicas()
    for old, counted_up_to in sorted(_foreign_adds(workspace, fetched, record_before).items()):
        agent, is_lent = names.agent_of(old), old == workspace.lease()
        why = (
            "another run of this job does. Both count"
            if is_lent
            else "this machine was restored or copied. It writes under a new replica id from now on"
        )
        workspace.warn(f"somebody else writes as {old}: {why}; nothing is lost or counted twice")
        replacement = "" if old in current else workspace.replica_name(agent)
        _give_up(workspace, old, old if is_lent else replacement or workspace.mint(agent).name, counted_up_to)


def _give_up_parted_names(workspace: Workspace, source: Path) -> None:
    """Give up each replica of ours under which a backup has other occurrences of a lesson than the log here.

    This folder was reset to an older state, and the backup has its other history: of two totals only the larger counts.
    """
    mine = workspace.mine()
    for member in backup.members(source):
        top, _, relative = member.path.partition("/")
        agent, _, name = relative.partition("/")
        is_ours = any(names.agent_of(each) == agent for each in mine)
        if top != backup.HOMES or name != corrections_md.FILE_NAME or member.refused or not is_ours:
            continue
        here, there = CountedLog(workspace, agent).read_log().records, Log.parse(member.data).records
        known, latest = Record.by_lesson(here), Record.by_lesson(Record.latest(here))
        parted: dict[str, dict[str, str]] = defaultdict(dict)
        for (pattern, replica_name), records in Record.by_lesson(there).items():
            theirs, ours = _stamps(records), _stamps(known[pattern, replica_name])
            if replica_name in mine and theirs - ours and _stamps(latest[pattern, replica_name]) - theirs:
                parted[replica_name][pattern] = max(theirs & ours, default="")
        for old, counted_up_to in parted.items():
            fresh = workspace.replica_name(agent)
            _give_up(workspace, old, workspace.mint(agent).name if fresh in ("", old) else fresh, counted_up_to)


def _stamps(records: Iterable[Record]) -> set[str]:
    return {record.at for record in records if not record.part}


def _give_up(workspace: Workspace, old: str, fresh: str, counted_up_to: dict[str, str]) -> None:
    """Move the records of some lessons, later than the stamp of each, and remove the old replica's unsent totals."""
    _move_records(workspace, old, fresh, counted_up_to)
    for pattern in counted_up_to:
        workspace.db.remove_unsent(pattern, old, ("add", "n"))
    CountedLog(workspace, names.agent_of(old)).forget_count()


def _foreign_adds(
    workspace: Workspace, fetched: Iterable[Line], record_before: Callable[[str], Line | None] | None
) -> dict[str, dict[str, str]]:
    """Return the last stamp of ours that the clan counts, by replica and lesson with a total that we never issued.

    Others may rightly write under a former replica: an add of it matters only if it is not newer than all our records.
    """
    current, former = workspace.current_replicas(), workspace.former_replicas()
    logged = cache(lambda agent: Record.by_lesson(CountedLog(workspace, agent).read_log().records))
    foreign: dict[str, dict[str, str]] = defaultdict(dict)
    for line in fetched:
        for name in [each for each in {*current, *former} if line.add_of(each)]:
            records, add = logged(names.agent_of(name))[line.id, name], line.add_of(name)
            if not records or (name in former and all(record.at < add for record in records)):
                continue
            before = None if record_before is None else record_before(line.id) or Line(line.id)
            if up_to := _counted_up_to(workspace, line, name, records, before):
                foreign[name][line.id] = max(foreign[name].get(line.id, ""), up_to)
    return foreign


def _counted_up_to(workspace: Workspace, line: Line, name: str, records: Sequence[Record], before: Line | None) -> str:
    """Return the last stamp of these records of ours that a fetched line counts; "" if its add is one of ours.

    ``before``: the lesson's record in the tree that was fetched before; None where that is unknown.
    """
    ours, add, total = workspace.patterns.line(line.id) or Line(line.id), line.add_of(name), line.total_of(name, "seen")
    own = [record for record in Record.latest(records) if not record.part]
    issued = sorted(record.at for record in own if not ours.part("seen", record.id.removeprefix("c-")))
    counted = [stamp for stamp in issued if stamp <= add]
    if before is not None:
        known = before.total_of(name, "seen")
    else:  # a log that was reset lacks records that our earlier total counts
        known = max(ours.total_of(name, "seen") - len(issued), 0) + len(counted)
    if add == ours.add_of(name) or total <= known:
        return ""  # a known total cannot hide our records: this add came by an import
    add_before = before.add_of(name) if before is not None else ""
    if not _is_foreign(add, _adds_in_shard(workspace, name, line.id), add_before, {record.at for record in records}):
        return ""
    # The clan counts the oldest of our records, as many as its total says.
    return counted[total - 1] if total < len(counted) else add


def _is_foreign(fetched: str, in_shard: Collection[str], add_before: str, records: Collection[str]) -> bool:
    """Return whether another machine issued an add under a replica of ours.

    All arguments are of one lesson and replica: the add in the fetched tree, those in our files, that in the tree that
    was fetched before ("" for none), and the stamps of the records in our log.
    """
    is_news = fetched > add_before and fetched not in in_shard and fetched not in records
    # Without an unfetched record of ours nothing can be lost: a single stray line must not cause a new replica.
    return is_news and any(stamp > add_before for stamp in records)


def _adds_in_shard(workspace: Workspace, replica: str, pattern: str) -> set[str]:
    """Return the adds of a lesson in a shard of ours."""
    data = workspace.files.read(workspace.clan / PATTERNS.shard(replica))
    raws = (raw for raw in data.splitlines(keepends=True) if pattern.encode() in raw)
    return {line.add_of(replica) for line in lesson_lines(raws) if line.id == pattern}


def _move_records(workspace: Workspace, old: str, fresh: str, counted_up_to: dict[str, str]) -> None:
    """Append the records that the clan does not count again, under the new replica: the newest record counts.

    They become parts, which count once, since the folder may be reset a second time, to a state before this.
    """
    agent = names.agent_of(old)
    with workspace.log_lock(agent):
        moved = [
            record._replace(
                replica=fresh,
                at=workspace.clock.tick(),
                extra=record.extra if record.part else (*record.extra, (PART, record.id.removeprefix("c-"))),
            )
            for record in Record.latest(CountedLog(workspace, agent).read_log().records)
            if record.replica == old and record.at > counted_up_to.get(record.pattern, "~")
        ]
        if moved:
            data = "".join(record.render() + "\n" for record in moved)
            workspace.files.append(CountedLog(workspace, agent).log_file(), data.encode())
