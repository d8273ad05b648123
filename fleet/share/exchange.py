"""Exchange with a remote: fetch, take in, push, and all of that again if somebody else pushed first.

Lines are pushed first, alone. An edition is a push of its own: it is pushed unchanged on a newer head as long as that
head has the edition from which it was made, else it is dropped. ``outgoing`` decides what is sent.

A remote, or a proxy in front of it, may serve an old state. In any case nothing is lost here, and what the remote no
longer has is sent again. A person is warned. A remote that lost lines of others was *set back*. A remote that showed
nothing newer for days, while syncs succeeded, is *stale*: it is frozen, or the others are silent.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from random import Random

import msgspec

from crdt.clock import ZERO, Stamp
from fleet.model import limits
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.errors import BusyError, NoError, RefusedError
from fleet.model.line import Line, is_version_1
from fleet.share.git import GitRemote
from fleet.share.outgoing import Outbox, Outgoing
from fleet.share.remote import Files, Mark, Moved, RemoteRefused
from fleet.store.ingest import Taken
from fleet.store.lines import PATTERNS, Entry, Kind, LineReader, lesson_lines
from fleet.store.tree import (
    FORMAT,
    FORMAT_NUMBER,
    FRONT_MARK,
    FRONT_PAGE,
    MEMBERS,
    GitTree,
    Members,
    Paths,
    TreeGoneError,
)
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, for_terminal, listed

BACKOFF_S = 0.05
BACKOFF_S_MAX = 120.0
_FORMAT_BYTES_MAX = 100
STILL_MAX = 5
"""Number of failed pushes in a row, with the branch unmoved, that count as a refusal by the remote and no race."""


class Hooks(msgspec.Struct, frozen=True):
    """Callbacks into the other verbs, which the exchange does not import.

    Attributes:
        check: raises if a person has paused sharing, or named another remote; called before each fetch and push.
        count_logs: counts the agents' logs into the shards, after a fetched tree was taken in.
        inspect: receives the fetched lines that name replicas of ours, and a function from an id to its record in the
            previous tree, or None without such a tree. Called under the write lock, before the new tree is taken in.
        render: returns the pages of an edition, given a function that reads a path of the tree as it will be.
    """

    check: Callable[[], object]
    count_logs: Callable[[], object]
    inspect: Callable[[list[Line], Callable[[str], Line | None] | None], object]
    render: Callable[[Callable[[str], bytes]], Files]


class ExchangeCounts(Taken):
    """Outcome of an exchange: data taken in, number of lines sent and withheld, and whether an edition was pushed."""

    out: int = 0
    withheld: int = 0
    edition: bool = False


class Exchange(msgspec.Struct, eq=False):
    """One exchange with a remote. The caller holds the workspace's sync lock."""

    workspace: Workspace
    remote: GitRemote
    hooks: Hooks
    rng: Random | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    done: ExchangeCounts = msgspec.field(default_factory=ExchangeCounts)

    def sync(self, *, compact: bool = False) -> ExchangeCounts:
        """Exchange lines with the remote.

        With ``compact``, an edition is written even if none is due, and shards lose the lines that the edition covers.

        Raises:
            RemoteUnavailable, RemoteRefused: the lines stay in the outbox.
            BusyError: others were faster in every attempt.
            RefusedError, NoError: the clan's lines have a newer format, or that of fleet 0.1.
        """
        with self.workspace.tree.reading():
            self._put_back()
            out = self._pull_and_push()
            self._push_edition(always=compact or out.purges)
            if compact:
                # Lines that the edition covers leave the shards only after the remote has the edition.
                out = self._pull_and_push(drop_alone=True)
            with self.workspace.locked():
                Outbox(self.workspace).note_stripped(out)
            return self.done

    def fetch(self) -> ExchangeCounts:
        """Take in the remote's tree, and send nothing. Raises as ``sync`` does."""
        with self.workspace.tree.reading():
            self._put_back()
            self._pull()
            self.hooks.count_logs()
            return self.done

    # --- coming in --------------------------------------------------------------------------------------------------

    def _put_back(self) -> None:
        """Restore lines that rows or the fetched tree have but files here lack, deleted or replaced by older ones."""
        with self.workspace.locked():
            try:
                self._put_back_files()
            except TreeGoneError as gone:
                if isinstance(gone.__cause__, FileNotFoundError):
                    return  # git is not installed any more; the fetch that follows reports it
                self.workspace.tree.move("")  # the objects are damaged: the next fetch brings them again
                self._put_back_files()

    def _put_back_files(self) -> None:
        workspace, head = self.workspace, self.workspace.tree.head()
        taken = workspace.take(head)
        self.done.put_back, self.done.refused = taken.put_back, taken.refused
        paths = workspace.tree.paths(head)
        if MEMBERS in paths and not workspace.files.read(workspace.clan / MEMBERS):
            self._write_members(paths, Members())
            self.done.put_back.append(MEMBERS)

    def _pull(self) -> Mark:
        """Fetch the remote's tree and take it in; return its commit."""
        workspace, tree = self.workspace, self.workspace.tree
        self.hooks.check()
        commit = self.remote.fetch(tree.head())
        with workspace.locked():
            _check_format(tree, commit)  # even of a known commit, which fleet 0.1 may have fetched
            self._take(commit)
        if not workspace.state.get("pulled"):
            # From now on, all that earlier jobs wrote under a lease is known.
            workspace.state.put(pulled=workspace.wall())
        return commit

    def _take(self, commit: Mark) -> None:
        workspace, tree = self.workspace, self.workspace.tree
        head = tree.head()
        if commit != head:
            before, after = tree.paths(head), tree.paths(commit)
            if news := _new_lines_of_ours(workspace, before, after):
                self.hooks.inspect(news, partial(_record_in, workspace, before) if head else None)
            taken = workspace.take(commit)
            self.done.lost += taken.lost
            self.done.refused |= taken.refused
            self.done.put_back += [path for path in taken.put_back if path not in self.done.put_back]
            self.done.changed_ids.update(taken.changed_ids)
            if MEMBERS in after and after[MEMBERS] != before.get(MEMBERS):
                base = tree.read(before[MEMBERS].oid) if MEMBERS in before else b""
                self._write_members(after, Members.parse(base))

    def _write_members(self, paths: Paths, base: Members) -> None:
        workspace = self.workspace
        file, data = workspace.clan / MEMBERS, workspace.tree.read(paths[MEMBERS].oid)
        mine = Members.parse(workspace.files.read(file))
        # Three-way merge by agent: a change made here since the base wins.
        changed = {agent: table for agent, table in mine.items() if table != base.get(agent)}
        joined = Members(Members.parse(data) | changed)
        workspace.files.replace(file, joined.render() if joined else data)

    # --- going out --------------------------------------------------------------------------------------------------

    def _push(self, files: Files, on: Mark, message: str) -> Mark | Moved:
        """Push files on top of a commit, and take in the new commit, which the remote has now."""
        self.hooks.check()
        pushed = self.remote.push(files, on, message=message)
        if not isinstance(pushed, Moved):
            with self.workspace.locked():
                self.workspace.take(pushed)
        return pushed

    def _pull_and_push(self, *, drop_alone: bool = False) -> Outgoing:
        """Pull and push the outbox, again while others push first; return what was sent."""
        last_mark, unmoved = None, 0
        attempts_max = self.workspace.config.share.attempts
        for attempt in range(attempts_max):
            began_s = self.clock()
            mark = self._pull()
            self.hooks.count_logs()
            with self.workspace.locked():
                out = Outbox(self.workspace).plan(drop_alone=drop_alone)
            self.done.withheld = len(out.withheld)
            if not out.files:
                return out
            pushed = self._push(out.files, mark, out.subject)
            if not isinstance(pushed, Moved):
                self.done.out += out.count
                return out
            last_mark, unmoved = mark, unmoved + 1 if mark == last_mark else 1
            if unmoved == STILL_MAX:
                raise RemoteRefused(
                    f"{self.remote.name} did not take the push {unmoved} times though nobody was faster: "
                    f"{pushed.reason}; nothing is lost: what is not sent yet goes out with the next `fleet sync` once "
                    "whoever runs it has looked whether the branch is hidden from pushes or locked there"
                )
            rng = self.rng or Random()  # noqa: S311 - it spreads out who asks when
            self.sleep(_pause(attempt, rng, self.clock() - began_s))
        raise BusyError(
            f"{self.remote.name}: others were faster {attempts_max} times in a row; "
            "nothing is lost, your lines wait here and go out with the next `fleet sync`"
        )

    def _push_edition(self, *, always: bool) -> None:
        workspace, tree = self.workspace, self.workspace.tree
        with workspace.locked():
            files = Outbox(workspace).edition(always=always)
            paths = tree.paths(tree.head())
            if files or always:
                files |= self._pages(files, paths)
            mark = tree.head()
        number = files.get("patterns.jsonl", b"").count(b"\n")
        subject = f"fleet: edition of {counted(number, 'record')}" if number else "fleet: edition"
        for _ in range(workspace.config.share.attempts if files else 0):
            pushed = self._push(files, mark, subject)
            if not isinstance(pushed, Moved):
                self.done.edition = True
                return
            mark = self._pull()
            now = tree.paths(tree.head())
            if any(now.get(path) != paths.get(path) for path in files):
                return  # another machine pushed an edition meanwhile, which has at least as much

    def _pages(self, files: Files, paths: Paths) -> Files:
        """Return the pages that change with new files. A front page that a person wrote stays."""
        tree = self.workspace.tree

        def read(path: str) -> bytes:
            return files[path] if path in files else tree.read(paths[path].oid) if path in paths else b""

        def is_ours(path: str) -> bool:
            return path != FRONT_PAGE or not tree.has(path) or read(path).startswith(FRONT_MARK.encode())

        return {path: page for path, page in self.hooks.render(read).items() if page != read(path) and is_ours(path)}


def _check_format(tree: GitTree, commit: str) -> None:
    """Raise ``RefusedError`` or ``NoError`` for a fetched tree that this version may not join and write to."""
    paths = tree.paths(commit)
    if FORMAT in paths:
        oid, size = paths[FORMAT]
        text = tree.read(oid).decode("utf-8", "replace").strip() if size <= _FORMAT_BYTES_MAX else "?"
        if text.isascii() and text.isdecimal() and int(text) > FORMAT_NUMBER:  # the next push replaces anything else
            raise RefusedError(
                f"this clan's lines have the format {for_terminal(text)[:20]}, and this fleet writes "
                f"{FORMAT_NUMBER}: upgrade fleet here. Nothing was written, and nothing is lost"
            )
        return
    files = (tree.read(blob.oid).split(b"\n") for path, blob in paths.items() if Kind.of(path) is PATTERNS)
    raws = (raw for file in files for raw in file if raw.startswith(b"{") and b'"w"' not in raw)
    if any(map(is_version_1, raws)):
        raise NoError(
            "this clan's lines were written by fleet 0.1: run `fleet upgrade` once, on one machine. "
            "Nothing was written, and nothing is lost"
        )
    # A branch of which a tree was taken in before is fleet's, whatever somebody removed from it since.
    foreign = sorted(path for path in paths if "/" not in path and path != FRONT_PAGE)
    if foreign and not tree.head() and not _has_lines(tree, paths):
        raise RefusedError(
            f"the branch holds {listed(foreign)}, and no line of fleet's: a push would replace what somebody else has "
            "there. Nothing was written; name another branch: `fleet init --branch NAME`"
        )


def _has_lines(tree: GitTree, paths: Paths) -> bool:
    """Return whether a tree has any line that fleet wrote, of a newer version too."""
    files = ((Kind.of(path), path, blob.oid) for path, blob in paths.items())
    read = (LineReader().entries(kind, [tree.read(oid)], path) for kind, path, oid in files if kind)
    return any(True for entries in read for _ in entries)


def _new_lines_of_ours(workspace: Workspace, before: Paths, after: Paths) -> list[Line]:
    """Return the lines that name replicas of ours and are new in their file of the tree."""
    marks = [f'"{name}"'.encode() for name in (*workspace.current_replicas(), *workspace.former_replicas())]
    files = _pattern_files(before)
    changed = {path: oid for path, oid in _pattern_files(after).items() if files.get(path) != oid}
    old_hashes = {hash(raw) for path in changed if path in files for raw in _lines_with(workspace, files[path], marks)}
    raws = (raw for oid in changed.values() for raw in _lines_with(workspace, oid, marks))
    return list(lesson_lines(raw for raw in raws if hash(raw) not in old_hashes))


def _record_in(workspace: Workspace, paths: Paths, pattern_id: str) -> Line | None:
    """Return a lesson's record in a tree, all of which is read: only if somebody else may write under our name."""
    files = (_lines_with(workspace, oid, [pattern_id.encode()]) for oid in _pattern_files(paths).values())
    return codec.joined(line for file in files for line in lesson_lines(file)).get(pattern_id)


def _pattern_files(paths: Paths) -> dict[str, str]:
    return {path: blob.oid for path, blob in sorted(paths.items()) if Kind.of(path) is PATTERNS}


def _lines_with(workspace: Workspace, oid: str, marks: list[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that contain one of the marks; most blocks of a large edition have none."""
    with workspace.tree.open(oid) as content:
        for rows in iter(partial(content.readlines, limits.BLOCK_BYTES), []):
            block = b"".join(rows)
            for raw in rows if any(mark in block for mark in marks) else ():
                if any(mark in raw for mark in marks):
                    yield raw if raw.endswith(b"\n") else raw + b"\n"


def _pause(attempt: int, rng: Random, took_s: float) -> float:
    """Return the seconds to wait before the next attempt: exponential back-off with full jitter.

    Brooker, "Exponential Backoff And Jitter" (2015). The wait grows with the duration of an attempt: one of a second
    collides twenty times as often as one of 50 ms, and a hundred machines must spread over minutes.
    """
    return rng.uniform(0, min(BACKOFF_S_MAX, max(BACKOFF_S, 2 * took_s) * 2**attempt))


# --- rollback and freeze --------------------------------------------------------------------------------------------


def warn_of_old_state(workspace: Workspace, lost: Iterable[Entry]) -> None:
    """Warn, after a sync, of a remote that was set back or is stale; ``lost``: entries that it no longer had."""
    mine, back = _mine(workspace), dict[str, Stamp]()
    for entry in lost:
        stamps = entry.newest_stamps() if isinstance(entry, Line) else {}
        if isinstance(entry, Discovery) and entry.by and entry.at != ZERO:
            stamps = {entry.by: entry.at}
        back |= {replica: max(stamp, back.get(replica, "")) for replica, stamp in stamps.items() if replica not in mine}
    if back:
        named = [f"{name} (up to {stamp[:16].replace('T', ' ')}Z)" for name, stamp in sorted(back.items())]
        workspace.warn(
            f"the remote was set back: it no longer had lines of {listed(named)} that were read from it "
            "before. Nothing went back here, and they were sent again"
        )
    if warning := stale_warning(workspace):
        workspace.warn(warning)


def stale_warning(workspace: Workspace) -> str:
    """Return the warning that the remote is stale, or "". Only days before the last sync count."""
    mine, last_sync = _mine(workspace), workspace.state.get("last_sync")
    newest = max((stamp for replica, stamp in workspace.db.newest_by().items() if replica not in mine), default="")
    passed = (_day(last_sync) - _day(newest)).days if newest and last_sync else 0
    if not 0 < workspace.config.share.stale_days <= passed:
        return ""
    return (
        f"nothing new from anybody else for {passed} days: the newest lesson of another replica is of {newest[:10]}. "
        "Nothing is lost. If others did write since, this remote is frozen or an old copy: compare "
        "`git ls-remote` here and on their machines"
    )


def _mine(workspace: Workspace) -> set[str]:
    return {replica.name for replica in workspace.replicas().replicas}


def _day(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp[:10])
