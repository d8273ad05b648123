"""Fault 2 of FAULTS: the power fails. What was acknowledged is there, whatever became of what nobody waited for.

A recorder notes every change that fleet makes below the workspace: bytes written, files and folders made, renamed,
removed, and each fsync. Then the power fails after every one of them: what was synced before stays, and of the rest any
part may have reached the disk, in any order, cut anywhere, or as zeros (POSIX promises no more; Pillai et al., "All
File Systems Are Not Created Equal", OSDI 2014). Databases are SQLite's own care: the derived one is lost, or an older
copy; the local one is as it was. The fetched tree is git's care: its ref is where it was.
"""

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleet.app import learning, lessons, sharing
from fleet.learn import counting
from fleet.learn.corrections_md import Correction
from fleet.model.discovery import Discovery
from fleet.model.errors import DiskError
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World
from tests.memory_remote import MemoryRemote, MemoryServer, MemoryTree

EVERY = os.environ.get("FLEET_FAULTS") == "all"
SUBSETS = 8 if EVERY else 1
STEP = 13
DATABASE, LOCAL = f".fleet/state-{SCHEMA_NUMBER}.db", ".fleet/local.db"
LESSON = "Always use awk over sed for user-provided input substitution"


# --- what happened ---------------------------------------------------------------------------------------------------


class Wrote(NamedTuple):
    """Bytes went to a file's inode."""

    inode: int
    at: int
    data: bytes


class Cut(NamedTuple):
    """A file's inode was made shorter or longer."""

    inode: int
    size: int


class Named(NamedTuple):
    """Names in a folder changed, at once: name to inode, 0 for one that is gone. A rename is one such change."""

    inode: int
    names: dict[str, int]


class SyncResult(NamedTuple):
    """A file's bytes, or a folder's names, reached the disk."""

    inode: int


class Said(NamedTuple):
    """A command came to its end: what it did is acknowledged."""

    what: str


Event = Wrote | Cut | Named | SyncResult | Said
ROOT = 1


class Recorder:
    """Notes what happens below a root, by standing before ``os``; files get numbers of their own for inodes.

    Args:
        root: what lies outside is nobody's business.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[Event] = []
        self.folders = {ROOT}
        self._numbers = itertools.count(ROOT + 1)
        self._by_path: dict[Path, int] = {root: ROOT}
        self._handles: dict[int, int] = {}

    def adopt(self) -> None:
        """Take what is there already as written and synced."""
        for path in sorted(self.root.rglob("*")):
            self._made(path, is_folder=path.is_dir())
            if path.is_file():
                self.events.append(Wrote(self._by_path[path], 0, path.read_bytes()))
        self.events += [SyncResult(inode) for inode in self._by_path.values()]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync"):
                patch.setattr(os, name, self._before(name, getattr(os, name)))
            for name in ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "truncate", "link", "symlink"):
                patch.setattr(os, name, self._before(name, getattr(os, name)))
            yield

    def said(self, what: str) -> None:
        """Note that a command was acknowledged."""
        self.events.append(Said(what))

    def _before(self, name: str, real: Callable) -> Callable:
        note = getattr(self, f"_{name}", None)

        def called(*args: Any, **more: Any) -> Any:
            was_there = name == "open" and Path(os.fsdecode(args[0])).exists()
            size = os.fstat(args[0]).st_size if name == "write" and args[0] in self._handles else 0
            done = real(*args, **more)
            if name == "open":
                self._opened(Path(os.fsdecode(args[0])), args[1], done, was_there=was_there)
            elif name == "write":
                self._written(args[0], args[1], done, size)
            elif note is not None:
                note(*args)
            elif isinstance(args[0], str | Path) and self._is_ours(Path(args[0])):
                pytest.fail(f"the recorder knows nothing of os.{name}")
            return done

        return called

    def _is_ours(self, path: Path) -> bool:
        if not path.is_absolute():
            path = Path.cwd() / path
        return path.is_relative_to(self.root) and not str(path.relative_to(self.root)).startswith(DATABASE)

    def _made(self, path: Path, *, is_folder: bool) -> None:
        inode = self._by_path[path] = next(self._numbers)
        if is_folder:
            self.folders.add(inode)
        self.events.append(Named(self._by_path[path.parent], {path.name: inode}))

    def _opened(self, path: Path, flags: int, handle: int, *, was_there: bool) -> None:
        if not self._is_ours(path):
            return
        if not was_there:
            self._made(path, is_folder=False)
        elif flags & os.O_TRUNC:
            self.events.append(Cut(self._by_path[path], 0))
        self._handles[handle] = self._by_path[path]

    def _close(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def _written(self, handle: int, data: bytes, count: int, size: int) -> None:
        if handle in self._handles:
            # Every file of ours is appended to, or new: see Disk.
            self.events.append(Wrote(self._handles[handle], size, bytes(data)[:count]))

    def _pwrite(self, handle: int, data: bytes, at: int) -> None:
        if handle in self._handles:
            self.events.append(Wrote(self._handles[handle], at, bytes(data)))

    def _ftruncate(self, handle: int, size: int) -> None:
        if handle in self._handles:
            self.events.append(Cut(self._handles[handle], size))

    def _fsync(self, handle: int) -> None:
        if handle in self._handles:
            self.events.append(SyncResult(self._handles[handle]))

    _fdatasync = _fsync

    def _mkdir(self, path: Path, *_: object) -> None:
        if self._is_ours(Path(path)):
            self._made(Path(path), is_folder=True)

    def _unlink(self, path: Path) -> None:
        if self._is_ours(Path(path)):
            del self._by_path[Path(path)]
            self.events.append(Named(self._by_path[Path(path).parent], {Path(path).name: 0}))

    _remove = _rmdir = _unlink

    def _replace(self, source: Path, target: Path) -> None:
        source, target = Path(source), Path(target)
        if self._is_ours(target):
            assert source.parent == target.parent, "from one folder to another it is two changes on the disk"
            inode = self._by_path[target] = self._by_path.pop(source)
            self.events.append(Named(self._by_path[target.parent], {source.name: 0, target.name: inode}))

    _rename = _replace


# --- what the disk may hold afterwards --------------------------------------------------------------------------------


@dataclass
class Media:
    """Files and folders by inode, as some moment leaves them."""

    data: dict[int, bytearray] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Let one change reach the disk."""
        match event:
            case Wrote(inode, at, data):
                held = self.data.setdefault(inode, bytearray())
                held.extend(bytes(max(0, at - len(held))))  # a hole reads as zeros
                held[at : at + len(data)] = data
            case Cut(inode, size):
                held = self.data.setdefault(inode, bytearray())
                held.extend(bytes(max(0, size - len(held))))
                del held[size:]
            case Named(inode, names):
                held_names = self.names.setdefault(inode, {})
                for name, target in names.items():
                    held_names.pop(name, None)
                    if target:
                        held_names[name] = target

    def files(self, folders: set[int], inode: int = ROOT, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        """Yield (path, bytes) of every file that can be reached, and (path, None) of every folder."""
        for name, target in sorted(self.names.get(inode, {}).items()):
            path = f"{prefix}{name}"
            if target in folders:
                yield path, None
                yield from self.files(folders, target, f"{path}/")
            else:
                yield path, bytes(self.data.get(target, b""))


def after(events: Sequence[Event]) -> Media:
    """Return what is there when these changes have reached the disk."""
    media = Media()
    for event in events:
        media.apply(event)
    return media


def split(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Return what is on the disk for certain after these events, and what may be, both in order."""
    certain, pending = [], []
    synced: set[int] = set()
    for event in reversed(events):
        if isinstance(event, SyncResult):
            synced.add(event.inode)
        elif not isinstance(event, Said):
            (certain if event.inode in synced else pending).append(event)
    return certain[::-1], pending[::-1]


def torn(event: Event, rng: random.Random) -> Event:
    """Cut a write anywhere, or let the file grow and the bytes not arrive."""
    if not isinstance(event, Wrote) or not event.data:
        return event
    cut = rng.randrange(len(event.data) + 1)
    rest = bytes(len(event.data) - cut) if rng.random() < 0.5 else b""
    return Wrote(event.inode, event.at, event.data[:cut] + rest)


def outcomes(events: Sequence[Event], rng: random.Random) -> Iterator[list[Event]]:
    """Yield what may have reached the disk: only the certain, everything, and some subsets, torn and whole."""
    certain, pending = split(events)
    yield certain
    if not pending:
        return
    yield [event for event in events if not isinstance(event, Said | SyncResult)]
    for _ in range(SUBSETS):
        kept = [torn(event, rng) if rng.random() < 0.5 else event for event in pending if rng.random() < 0.6]
        yield certain + kept
    # Names before bytes: the new files are there, and empty, or full of zeros.
    yield certain + [event for event in pending if isinstance(event, Named)]
    yield certain + [
        Wrote(event.inode, event.at, bytes(len(event.data))) if isinstance(event, Wrote) else event for event in pending
    ]


# --- a workspace that is watched --------------------------------------------------------------------------------------


class Clan:
    """Velma's workspace, watched; the memory server; and what she was told at each moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "velma"
        self.server = MemoryServer()
        self.heads: list[tuple[int, str]] = []
        self.databases: list[tuple[int, bytes]] = [(0, b"")]
        self.locals: list[tuple[int, bytes]] = [(0, b"")]
        self.tree = MemoryTree()
        self.taken: list[tuple[int, str]] = [(0, "")]
        self.root.mkdir()
        (self.root / "fleet.toml").write_text("")
        self.recorder = Recorder(self.root)
        self.recorder.adopt()

    def does(self, what: str, work: Callable[[Workspace], object]) -> None:
        """Do one thing in a fresh workspace, on the record; then it is acknowledged."""
        taken, events = self.taken, self.recorder.events

        class Noted(MemoryTree):
            def move(self, commit: str) -> None:
                super().move(commit)
                taken.append((len(events), commit))

        tree = self.tree
        tree.__class__ = Noted
        with self.recorder.watching():
            workspace = Workspace(self.root, World(tree=lambda _: tree))
            work(workspace)
            workspace.close()
        self.recorder.said(what)
        for kept, name in ((self.databases, DATABASE), (self.locals, LOCAL)):
            path = self.root / name
            kept.append((len(self.recorder.events), path.read_bytes() if path.exists() else b""))

    def remote(self) -> MemoryRemote:
        """Return a way to the server that notes when its head moves."""
        heads, events, server = self.heads, self.recorder.events, self.server

        class Noted(MemoryRemote):
            def push(self, *args, **more):
                done = super().push(*args, **more)
                heads.append((len(events), server.head))
                return done

        return Noted(self.server, self.tree)

    def corrects(self, lesson: str) -> None:
        told = Correction("w", "r", lesson)
        self.does(f"correct {lesson}", lambda w: learning.correct(w, "velma", told, session="s"))

    def discovers(self, problem: str) -> None:
        told = Discovery(id="", problem=problem, solution="s", type="discovery", confidence="medium")
        self.does(f"discover {problem}", lambda w: learning.discover(w, "velma", told))

    def retires(self, lesson: str) -> None:
        self.does(f"retire {lesson}", lambda w: lessons.retire(w, "velma", lesson_id(w, lesson)))

    def syncs(self, *, compact: bool = False) -> None:
        self.does("sync", lambda w: sync(w, self.remote(), compact=compact))

    def works_offline(self) -> None:
        self.does("sync", lambda w: sharing.sync_with(w, None))


def lesson_id(workspace: Workspace, lesson: str) -> str:
    [found] = [each.id for each in workspace.patterns.records() if each.text == lesson]
    return found


def sync(workspace: Workspace, remote: MemoryRemote, *, agent: str = "velma", compact: bool = False):
    with workspace.writing(agent):
        pass
    return sharing.sync_with(workspace, remote, rng=random.Random(1), sleep=lambda _: None, compact=compact)


def server_at(clan: Clan, moment: int) -> MemoryServer:
    """Return the server as it stood at a moment. Its commits do not change, so the later ones do no harm."""
    server = MemoryServer()
    server.__dict__.update(_commits=dict(clan.server.__dict__["_commits"]), _numbers=itertools.count(1000))
    server.head = max((head for head in clan.heads if head[0] <= moment), default=(0, ""))[1]
    return server


def lay(root: Path, files: list[tuple[str, bytes | None]]) -> None:
    """Make a folder hold these files and nothing else."""
    folders = {root / name for name, data in files if data is None}
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_dir():
            path.unlink()
        elif path not in folders:
            path.rmdir()
    for name, data in files:
        if data is None:
            (root / name).mkdir(exist_ok=True)
        else:
            (root / name).write_bytes(data)


class Unsynced(Files):
    """A disk that waits for nothing: the power does not fail twice."""

    def _fsync(self, handle: int) -> None:
        pass


def opened(root: Path, tree: MemoryTree | None = None) -> Workspace:
    tree = MemoryTree() if tree is None else tree
    return Workspace(root, World(durable=False, tree=lambda _: tree), Unsynced(root))


def tree_at(clan: Clan, moment: int) -> MemoryTree:
    """Return the tree store as it stood at a moment, for one outcome alone: what is fetched then bears no new name."""
    tree, head = MemoryTree(), max(each for each in clan.taken if each[0] <= moment)[1]
    tree.__dict__.update({name: copy(value) for name, value in clan.tree.__dict__.items()} | {"_head": head})
    return tree


def counts(workspace: Workspace) -> dict[str, int]:
    """Return text to count; a retired lesson counts 0."""
    return {each.text: each.count("seen") * each.is_present for each in workspace.patterns.records()}


class Promised(NamedTuple):
    """What must be there at a moment, and what may be: the command that runs then is not acknowledged yet."""

    counts_min: dict[str, int]
    counts_max: dict[str, int]
    findings_min: set[str]
    findings_max: set[str]
    running: str


def promised(events: Sequence[Event], moment: int) -> Promised:
    said = [event.what for event in events[:moment] if isinstance(event, Said)]
    running = next((event.what for event in events[moment:] if isinstance(event, Said)), "")
    least, most = _totals(said), _totals([*said, running])
    return Promised(
        {text: min(least.get(text, 0), most[text]) for text in most if text in least},
        {text: max(least.get(text, 0), count) for text, count in most.items()},
        {what[9:] for what in said if what.startswith("discover ")},
        {what[9:] for what in [*said, running] if what.startswith("discover ")},
        running.removeprefix("correct ") if running.startswith("correct ") else "",
    )


def _totals(said: list[str]) -> dict[str, int]:
    """Return text to count after these commands; a retired lesson counts 0 until it is told again."""
    seen: dict[str, int] = {}
    gone: set[str] = set()
    for what in said:
        verb, _, text = what.partition(" ")
        if verb == "correct":
            seen[text] = seen.get(text, 0) + 1
            gone.discard(text)
        elif verb == "retire":
            gone.add(text)
    return {text: 0 if text in gone else count for text, count in seen.items()}


# --- the law ----------------------------------------------------------------------------------------------------------


def told(clan: Clan) -> None:
    clan.corrects(LESSON)
    clan.corrects(LESSON)
    clan.corrects("Another lesson")


def found(clan: Clan) -> None:
    clan.discovers("a finding")
    clan.corrects(LESSON)
    clan.discovers("another finding")


def retired(clan: Clan) -> None:
    clan.corrects(LESSON)
    clan.corrects("Another lesson")
    clan.retires(LESSON)
    clan.corrects("Another lesson")


def synced(clan: Clan) -> None:
    clan.corrects(LESSON)
    clan.syncs()
    others_say(clan, LESSON)
    clan.corrects(LESSON)
    clan.discovers("a finding")
    clan.syncs()


def compacted(clan: Clan) -> None:
    clan.corrects(LESSON)
    clan.syncs()
    clan.corrects(LESSON)
    clan.corrects("Another lesson")
    clan.syncs(compact=True)
    clan.retires("Another lesson")
    clan.syncs(compact=True)


def offline(clan: Clan) -> None:
    clan.corrects(LESSON)
    clan.works_offline()
    clan.discovers("a finding")
    clan.corrects("Another lesson")
    clan.works_offline()


def others_say(clan: Clan, lesson: str) -> None:
    """Tank logs the same lesson elsewhere and pushes it: one more occurrence, from then on in every count here."""
    root = clan.folder / "tank"
    root.mkdir()
    (root / "fleet.toml").write_text("")
    workspace = opened(root)
    learning.correct(workspace, "tank", Correction("w", "r", lesson), session="t")
    sync(workspace, MemoryRemote(clan.server, workspace.tree), agent="tank")
    workspace.close()
    clan.heads.append((len(clan.recorder.events), clan.server.head))


HISTORIES = {each.__name__: each for each in (told, found, retired, synced, compacted, offline)}
OTHERS = {LESSON: 1}
"""What tank said in ``synced``: it comes in with a sync, or with the next one."""


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
def test_after_the_power_failed_anywhere_all_that_was_acknowledged_is_there_and_all_agree(tmp_path, history):
    clan = Clan(tmp_path)
    history(clan)
    events, folders = clan.recorder.events, clan.recorder.folders
    check_recording(clan)
    with_peer = OTHERS if history is synced else {}
    rng = random.Random(history.__name__)
    first = next(at for at, event in enumerate(events) if isinstance(event, SyncResult)) + 1
    seen = set()
    for moment in range(first, len(events) + 1):
        wanted = promised(events, moment)
        known = [data for at, data in clan.databases if at <= moment]
        for number, outcome in enumerate(outcomes(events[:moment], rng)):
            if number and moment % STEP != number % STEP and not EVERY:
                continue  # the certain alone at every moment, of the rest few: a kill leaves everything, see there
            files = list(after(outcome).files(folders))
            database = (known[-1], b"", rng.choice(known))[(moment + number) % 3]
            key = (tuple(files), database if EVERY else b"", server_at(clan, moment).head, str(wanted))
            if key not in seen:
                seen.add(key)
                lay(clan.root, files)
                local = max(each for each in clan.locals if each[0] <= moment)[1]
                if (clan.root / ".fleet").is_dir():
                    for name, content in ((DATABASE, database), (LOCAL, local)):
                        if content:
                            (clan.root / name).write_bytes(content)
                check(clan, wanted, server_at(clan, moment), tree_at(clan, moment), with_peer)
    assert len(seen) > 30


def check(clan: Clan, wanted: Promised, server: MemoryServer, tree: MemoryTree, with_peer: dict[str, int]) -> None:
    """Recover, and hold what is there against what was promised."""
    workspace = opened(clan.root, tree)
    counting.reconcile_all(workspace)
    assert_between(counts(workspace), wanted, with_peer)
    problems = {each.problem for each in workspace.discoveries.shown()}
    assert wanted.findings_min <= problems <= wanted.findings_max
    workspace.close()
    # Life goes on: the next thing is logged behind whatever the crash left, and counts once.
    workspace = opened(clan.root, tree)
    learning.correct(workspace, "velma", Correction("w", "r", "The next lesson"), session="s")
    workspace.close()
    workspace = opened(clan.root, tree)
    remote = MemoryRemote(server, tree)
    sync(workspace, remote)
    sync(workspace, remote)
    after = counts(workspace)
    assert after.pop("The next lesson") == 1
    assert_between(after, wanted, with_peer)
    assert {each.problem for each in workspace.discoveries.shown()} == problems
    assert workspace.db.differences() == []
    names = ("patterns.jsonl", "discoveries.jsonl", "patterns.md")
    pages = {name: workspace.files.read(workspace.clan / name) for name in names}
    workspace.close()
    assert {name: server.tree().get(name, b"") for name in pages} == pages, "this machine and the clan have the same"


def assert_between(found: dict[str, int], wanted: Promised, with_peer: dict[str, int]) -> None:
    for text, least in wanted.counts_min.items():
        assert found.get(text, 0) >= least, f"{text!r} was acknowledged {least} times: {found}"
    for text, count in found.items():
        most = wanted.counts_max.get(text, 0) + with_peer.get(text, 0)
        # Of an entry that was torn while it was written there is as much as there is, once at most.
        most = max(most, text != "" and wanted.running.startswith(text))
        assert count <= most, f"{text!r} counts {count}, of {most}"


def check_recording(clan: Clan) -> None:
    """All events together must make what the folder holds: else the recorder misses something."""
    media = after(clan.recorder.events)
    there = sorted(path for path in clan.root.rglob("*") if not is_database(str(path.relative_to(clan.root))))
    made = [each for each in media.files(clan.recorder.folders) if not is_database(each[0])]
    assert [name for name, _ in sorted(made, key=lambda each: Path(each[0]))] == [
        str(path.relative_to(clan.root)) for path in there
    ]
    for name, data in made:
        assert data is None or data == (clan.root / name).read_bytes(), name


def is_database(name: str) -> bool:
    return name.startswith((DATABASE, LOCAL))


# --- one file ---------------------------------------------------------------------------------------------------------


def test_a_page_that_is_replaced_is_the_old_one_or_the_new_one_and_after_it_was_said_the_new_one(tmp_path):
    recorder = Recorder(tmp_path)
    old, new = b"old line\n" * 50, b"the new line\n" * 40
    disk = Files(tmp_path)
    with recorder.watching():
        disk.replace(tmp_path / "folder/page", old)
        recorder.said("old")
        disk.replace(tmp_path / "folder/page", new)
        recorder.said("new")
    rng = random.Random(7)
    for moment in range(len(recorder.events) + 1):
        said = [event.what for event in recorder.events[:moment] if isinstance(event, Said)]
        for _ in range(20):
            for outcome in outcomes(recorder.events[:moment], rng):
                found = dict(after(outcome).files(recorder.folders)).get("folder/page")
                assert found in ([new] if "new" in said else [old, new] if said else [None, old])


def test_what_was_appended_and_said_stands_whole_behind_whatever_was_there(tmp_path):
    recorder = Recorder(tmp_path)
    rows = [b"%d %b\n" % (number, b"x" * 100) for number in range(5)]
    disk = Files(tmp_path)
    with recorder.watching():
        for row in rows:
            disk.append(tmp_path / "folder/log", row)
            recorder.said("row")
    rng = random.Random(7)
    for moment in range(len(recorder.events) + 1):
        said = sum(isinstance(event, Said) for event in recorder.events[:moment])
        for _ in range(20):
            for outcome in outcomes(recorder.events[:moment], rng):
                held = dict(after(outcome).files(recorder.folders)).get("folder/log") or b""
                assert held.startswith(b"".join(rows[:said]))


def test_what_is_taken_back_after_a_failed_append_is_no_half_line(tmp_path, monkeypatch):
    disk, path = Files(tmp_path), tmp_path / "log"
    disk.append(path, b"first\n")
    real = os.write
    done = iter([3])

    def write(handle: int, data: bytes) -> int:
        if count := next(done, 0):
            return real(handle, bytes(data[:count]))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(DiskError):
            disk.append(path, b"second\n")
    assert path.read_bytes() == b"first\n"
    assert stat.S_ISREG(path.stat().st_mode)
