"""Each of these broken fleets must be caught by some history, since a check that nothing can fail proves nothing.

Each has one fault that fleet had or might have, put in by replacing one function.
"""

import itertools
import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from fleet.app import moving
from fleet.learn import discoveries, importer, restore
from fleet.learn.discoveries import Findings
from fleet.model import edits, pattern
from fleet.model import line as codec
from fleet.model.errors import NoError
from fleet.model.line import Carried, Column, Line
from fleet.share import exchange, outgoing
from fleet.share.remote import Files, Mark
from fleet.store import ingest, rows, workspace
from fleet.store.ingest import Ingest
from fleet.store.lines import PATTERNS, Kind, LineReader
from fleet.store.query import Patterns
from fleet.store.workspace import Writer
from tests.memory_remote import MemoryTree
from tests.sim.simulator import Simulation, history
from tests.sim.wider import Wider
from tests.sim.world import Machine, SimRemote

SEEDS = int(os.environ.get("FLEET_BROKEN_SEEDS", "300"))
QUIET_SEEDS = 4

Broken = Callable[[pytest.MonkeyPatch], object]


@pytest.fixture
def folder(tmp_path) -> Path:
    memory = Path("/dev/shm")
    return memory / f"fleet-broken-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path / "sim"


def first_caught(kind: type[Simulation], folder: Path, seeds: int = SEEDS, begin: int = 0) -> int | None:
    """Return the first seed whose history fails; those from ``begin`` on are tried first."""
    for seed in (*range(begin, seeds), *range(begin)):
        try:
            history(seed, folder, kind)
        except (AssertionError, NoError):  # a command refuses a lesson that a fault has lost
            return seed
    return None


# --- what is sent, dropped and stripped -----------------------------------------------------------------------------


def lost_lines_are_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    """Fleet believes that the remote still has all that it had once."""
    take, known = Ingest.take, outgoing.Outbox._add_lines
    lost: set[str] = set()

    def remembering(self: Ingest, *rest: Any, **more: Any) -> object:
        taken = take(self, *rest, **more)
        lost.update(entry.id for entry in taken.lost)
        return taken

    def without_lost(self: outgoing.Outbox, out: outgoing.Outgoing) -> None:
        known(self, out)
        gone = [entry for entry in out.entries if entry.id in lost]
        raws = {raw for entry in gone if isinstance(entry, Line) for raw in codec.split(entry)}
        out.lines = {
            path: kept for path, raw in out.lines.items() if (kept := [each for each in raw if each not in raws])
        }

    patch.setattr(Ingest, "take", remembering)
    patch.setattr(outgoing.Outbox, "_add_lines", without_lost)


def shards_lose_what_only_an_edition_of_ours_covers(patch: pytest.MonkeyPatch) -> None:
    """The edition that would be pushed next counts as pushed."""
    uncovered = outgoing.Outbox._uncovered

    def by_our_own(self: outgoing.Outbox, kind: Any, changed: Files) -> object:
        return uncovered(self, kind, changed | {kind.edition: self._workspace.db.edition(kind)})

    patch.setattr(outgoing.Outbox, "_uncovered", by_our_own)


def shards_are_swept(patch: pytest.MonkeyPatch) -> None:
    """Shards are removed that no edition covers yet."""
    push = SimRemote.push

    def sweeping(self: SimRemote, files: Files, on: Mark, *, message: str | None = None) -> object:
        swept = {path: b"" for path in self._server.tree(on) if "/" in path and path not in files}
        return push(self, swept | files, on, message=message)

    patch.setattr(SimRemote, "push", sweeping)


def purged_values_stay_in_the_tree(patch: pytest.MonkeyPatch) -> None:
    """The mark of a purge is sent, and what it covers stays in the tree."""
    patch.setattr(outgoing.Outbox, "_strip_purged", lambda *_: {})


# --- the record -----------------------------------------------------------------------------------------------------


def a_purge_covers_one_stamp_alone(patch: pytest.MonkeyPatch) -> None:
    """A mark covers only the value that it names, and not the earlier ones of the same writer."""

    def exactly(writer: str, column: Column, marks: dict[tuple[str, str], str]) -> Column:
        first = {field: value for field, value in column.first.items() if (writer, field) not in marks}
        edited = {field: edit for field, edit in column.set.items() if edit[0] != marks.get((writer, field))}
        return codec.msgspec.structs.replace(column, first=first, set=edited)

    patch.setattr(codec, "_without_marked", exactly)


def an_add_from_the_future_is_cut(patch: pytest.MonkeyPatch) -> None:
    """The cut applies to adds as well as to edits."""
    fold = pattern.fold

    def cutting(line: Line, policy: pattern.Policy = pattern.NO_POLICY) -> pattern.Pattern:
        columns = {
            writer: codec.msgspec.structs.replace(column, add=column.add if column.add <= policy.cut else "")
            for writer, column in line.w.items()
        }
        return fold(Line(line.id, columns), policy)

    for module in (pattern, rows.pattern):
        patch.setattr(module, "fold", cutting)
    patch.setattr("tests.sim.simulator.fold", cutting)


def an_edit_names_nothing_from_the_future(patch: pytest.MonkeyPatch) -> None:
    """An edit does not name the value from the future that it replaced, which comes back when its time has come."""
    set_field, reissue = edits.set_field, edits.reissue

    def unnamed(made: Line | None) -> Line | None:
        if made is None:
            return None
        columns = {writer: codec.msgspec.structs.replace(column, over={}) for writer, column in made.w.items()}
        return Line(made.id, columns)

    patch.setattr(edits, "set_field", lambda *rest: unnamed(set_field(*rest)))
    patch.setattr(edits, "reissue", lambda *rest: unnamed(reissue(*rest)))


def a_private_lesson_is_a_flag_on_a_shared_one(patch: pytest.MonkeyPatch) -> None:
    """Private lines are written to the shared shard, and only the gate holds them back."""
    patch.setattr(Writer, "append_private", lambda self, lines: self.append(PATTERNS, lines))


# --- the store ------------------------------------------------------------------------------------------------------


def a_file_is_read_on_without_a_look_at_its_beginning(patch: pytest.MonkeyPatch) -> None:
    """Size, modification time and inode decide alone where to read on."""

    def trusting(path: Path | os.DirEntry) -> str:
        try:
            seen = path.stat(follow_symlinks=False)
        except OSError:
            return ""
        return f"{seen.st_size} {seen.st_mtime_ns // 10**9} {seen.st_ino}"

    def passing(self: Any, size: int, hash_: bytes) -> bool:
        self._file.seek(size)
        self.size, self.hash = size, hash_
        return True

    patch.setattr(ingest, "file_fingerprint", trusting)
    patch.setattr(ingest, "fingerprint", lambda seen: f"{seen.st_size} {seen.st_mtime_ns // 10**9} {seen.st_ino}")
    patch.setattr(ingest._FileReader, "skip", passing)


def carried_lines_leave_with_any_tree(patch: pytest.MonkeyPatch) -> None:
    """A newer version's line is dropped if any tree lacks it, even a tree that does not descend from the known one."""
    patch.setattr(MemoryTree, "descends", lambda *_: True)


def the_fetched_tree_is_no_input_of_the_fold(patch: pytest.MonkeyPatch) -> None:
    """Rows come from the files here alone, so after a crash or with a new database totals leave out the tree."""
    patch.setattr(Ingest, "_join_tree", lambda *_: [])


def what_files_here_lack_is_not_put_back(patch: pytest.MonkeyPatch) -> None:
    """A sync does not put back what people took out of the files here."""
    patch.setattr(exchange.Exchange, "_put_back", lambda self: None)


def what_rows_alone_know_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What people took out of a file of ours before it was sent is not written again."""
    patch.setattr(Ingest, "_spill", lambda *_: None)


# --- counting -------------------------------------------------------------------------------------------------------


def a_snapshot_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """A folder that was restored from a snapshot goes on as the same writer."""
    patch.setattr(restore, "give_up_names", lambda *_: None)


def a_hand_written_entry_is_the_writers_own(patch: pytest.MonkeyPatch) -> None:
    """Each copy of a log counts the entries written into it by hand, since the writer is part of their key."""
    part = edits.part

    def by_writer(line: Any, hash_: str, fields: Any, me: str, *rest: Any, **more: Any) -> Line:
        return part(line, me.rpartition(".")[2] + hash_[8:], fields, me, *rest, **more)

    patch.setattr(edits, "part", by_writer)


def _summed(mine: Line, theirs: Line) -> Line:
    joined = _JOIN(mine, theirs)
    columns = dict(joined.w)
    for writer in mine.w.keys() & theirs.w.keys():
        seen = mine.w[writer].n.get("seen", 0) + theirs.w[writer].n.get("seen", 0)
        if seen:
            columns[writer] = codec.msgspec.structs.replace(columns[writer], n={**columns[writer].n, "seen": seen})
    return Line(joined.id, columns)


_JOIN = codec.join


def repeated_lines_are_added_up(patch: pytest.MonkeyPatch) -> None:
    """Two equal lines count twice."""
    patch.setattr(codec, "join", lambda *lines: reduce(_summed, lines))


def the_last_line_wins(patch: pytest.MonkeyPatch) -> None:
    """Of two lines with one id the later one stays."""
    patch.setattr(codec, "join", lambda *lines: lines[-1])


def the_first_line_wins(patch: pytest.MonkeyPatch) -> None:
    """Of two lines with one id the earlier one stays."""
    patch.setattr(codec, "join", lambda *lines: lines[0])


FAULTS: dict[Broken, tuple[str, int]] = {
    lost_lines_are_not_sent_again: ("remotes", 0),
    shards_lose_what_only_an_edition_of_ours_covers: ("anything", 1),
    shards_are_swept: ("anything", 1),
    purged_values_stay_in_the_tree: ("secrets", 68),
    a_purge_covers_one_stamp_alone: ("secrets", 205),
    an_add_from_the_future_is_cut: ("clocks", 39),
    an_edit_names_nothing_from_the_future: ("clocks", 129),
    a_private_lesson_is_a_flag_on_a_shared_one: ("anything", 7),
    a_file_is_read_on_without_a_look_at_its_beginning: ("hands", 0),
    carried_lines_leave_with_any_tree: ("remotes", 11),
    the_fetched_tree_is_no_input_of_the_fold: ("losses", 0),
    what_files_here_lack_is_not_put_back: ("hands", 0),
    what_rows_alone_know_is_forgotten: ("hands", 19),
    a_snapshot_is_not_noticed: ("snapshots", 84),
    a_hand_written_entry_is_the_writers_own: ("losses", 49),
    repeated_lines_are_added_up: ("anything", 0),
    the_last_line_wins: ("anything", 0),
    the_first_line_wins: ("anything", 0),
}
"""Each fault, the theme of histories that find it soon, and a seed that found it, which is tried first."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_with_a_fault_is_caught(fault, folder, monkeypatch):
    fault(monkeypatch)
    theme, begin = FAULTS[fault]
    caught = first_caught(type("About", (Simulation,), {"theme": theme}), folder, begin=begin)
    print(f"caught by seed {caught}")
    assert caught is not None


# --- what wider histories find ----------------------------------------------------------------------------------------


def only_the_named_record_is_purged(patch: pytest.MonkeyPatch) -> None:
    """A purge covers only one record of a merged set, and the others keep its words."""
    purge = moving._purge_here

    def alone(*rest: Any) -> object:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(Patterns, "group", lambda _, each: [each])
            return purge(*rest)

    patch.setattr(moving, "_purge_here", alone)


def what_was_counted_is_forgotten_with_what_becomes_private(patch: pytest.MonkeyPatch) -> None:
    """Totals do not move along when a lesson is made private."""
    patch.setattr(workspace, "_MOVED", ("add", "parts", "rem"))


def each_import_counts(patch: pytest.MonkeyPatch) -> None:
    """A record that several machines import counts for each of them."""
    hashed, numbers = importer._hash, itertools.count()
    patch.setattr(importer, "_hash", lambda identity: hashed(f"{identity} {next(numbers)}"))


def what_is_restored_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A restored backup adds entries to a log that has them already."""
    patch.setattr(restore, "_missing_entries", lambda _mine, _theirs, data: [data.decode()])


def a_finding_that_is_taken_back_stays(patch: pytest.MonkeyPatch) -> None:
    """A discovery that somebody retracts stays."""
    patch.setattr(Findings, "retract", lambda self, prefix: discoveries.find(self._workspace, prefix))


WIDER_FAULTS: dict[Broken, tuple[tuple[str, ...], int]] = {
    only_the_named_record_is_purged: (("word_a_secret", "merge_secret", "purge", "sync"), 18),
    what_was_counted_is_forgotten_with_what_becomes_private: (("correct", "turn_scope"), 3),
    each_import_counts: (("import_page", "sync"), 1),
    what_is_restored_is_not_looked_for: (("save", "restore_saved", "sync"), 1),
    a_finding_that_is_taken_back_stays: (("discover", "retract", "sync"), 1),
}
"""Each fault, the actions that find it soon, and a seed that found it, which is tried first."""


@pytest.mark.parametrize("fault", WIDER_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_with_a_fault_is_caught_by_wider_histories(fault, folder, monkeypatch):
    fault(monkeypatch)
    steps, begin = WIDER_FAULTS[fault]
    caught = first_caught(type("About", (Wider,), {"about": steps}), folder, begin=begin)
    print(f"caught by seed {caught}")
    assert caught is not None


# --- fleets that misread the remote ---------------------------------------------------------------------------------


class Reading(SimRemote):
    """A remote that changes files as they are fetched."""

    def fetch(self, since: Mark) -> Mark:
        head = super().fetch(since)
        if head:
            tidied = {path: self.tidied(path, data) for path, data in self._server.tree(head).items()}
            self._tree.add(head, self._server.ancestors(head) - {head}, tidied)
        return head

    def tidied(self, path: str, data: bytes) -> bytes:
        """Return what a file becomes."""
        raise NotImplementedError


class FirstCopy(Reading):
    """Keeps the first of several lines with one id, which is right only until a union merge has repeated lines."""

    def tidied(self, path: str, data: bytes) -> bytes:
        kind = Kind.of(path)
        if "/" in path or kind is None:
            return data
        found: dict[str, bytes] = {}
        for raw, entry in LineReader().entries(kind, [data], path):
            found.setdefault(raw.decode() if isinstance(entry, Carried) else entry.id, raw)
        return b"".join(raw + b"\n" for raw in found.values())


class OfMerges(Simulation):
    """A history in which people merge with plain git four times as often, which catches this fault sooner."""

    remote_class = FirstCopy
    rewind = revert = cut_off = Simulation.merge


class Quiet:
    """Turns off what people do at the remote and to shared files, crashes, copies, jumps of clocks, and purges."""

    def rewind(self, _: Machine) -> bool:
        return False

    revert = merge = crash = copy = bring_back = jump = carry = supersede = run_twice = rewind
    edit_by_hand = delete_by_hand = bring_old_clan_back = purge = rewind


def test_a_fleet_that_keeps_one_copy_of_each_line_is_caught(folder):
    assert first_caught(OfMerges, folder, begin=103) is not None


def test_a_fleet_that_keeps_one_copy_of_each_line_is_caught_by_nothing_but_merges(folder):
    assert first_caught(type("QuietBroken", (Quiet, OfMerges), {}), folder, seeds=QUIET_SEEDS) is None
