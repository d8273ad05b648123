"""Bugs that the histories found, and rare ones that rules of the store prevent, each as a short test."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from fleet.app import learning, lessons, moving, reviewing, sharing, undoing
from fleet.learn import corrections, importer, restore
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog, reconcile_all
from fleet.model.errors import NoError, RefusedError
from fleet.model.line import Column, Line, encode
from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from fleet.store import config
from fleet.store.ingest import Ingest
from fleet.store.workspace import Workspace, World, Writer
from tests.memory_remote import MemoryServer
from tests.sim.world import POWERS, START_MS, CrashError, SimFiles, SimRemote, SimTree, simulated

LESSON = "Quote every path"
MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
DAY = "2026-11-20"


@pytest.fixture(autouse=True)
def _simulated():
    with simulated():
        yield


class Agent:
    """One agent's folder on a simulated disk."""

    def __init__(self, folder: Path, name: str, server: MemoryServer, *, keep: str = "") -> None:
        self.root, self.name, self.server = folder / name, name, server
        self.tree = SimTree()
        self.now_ms = START_MS
        self.root.mkdir()
        (self.root / config.FILE_NAME).write_text(keep)

    def open(self) -> Workspace:
        self.now_ms += MINUTE_MS
        world = World(
            wall_ms=lambda: self.now_ms,
            entropy=random.Random(f"{self.name} {self.now_ms}").randbytes,
            machine=lambda: "m",
            durable=False,
            tree=lambda _: self.tree,
        )
        workspace = Workspace(self.root, world, SimFiles(self.root))
        self.tree.power = POWERS[self.root]
        return workspace

    def correct(self, lesson: str) -> None:
        workspace = self.open()
        corrections.Corrections(workspace, self.name).log(Correction("w", "r", lesson), session="s")
        workspace.close()

    def sync(self, *, crash_at: int = -1, torn_share: float = 0.0, compact: bool = False) -> sharing.SyncResult:
        workspace = self.open()
        with workspace.writing(self.name):
            pass
        power = POWERS[self.root]
        power.steps_left, power.torn_share = crash_at, torn_share
        try:
            remote = SimRemote(self.server, self.tree)
            return sharing.sync_with(workspace, remote, rng=random.Random(1), sleep=lambda _: None, compact=compact)
        finally:
            power.steps_left = -1
            workspace.close()

    def take_own(self) -> None:
        """Take all that was left out, as a person's yes does: it came back under names of this folder."""
        workspace = self.open()
        for held in workspace.trust.held():
            workspace.trust.decide(held.kind, held.group, is_taken=True)
        workspace.close()

    def lose_database(self) -> None:
        for each in (self.root / ".fleet").glob("state-*.db*"):
            each.unlink()

    def lessons(self) -> set[str]:
        return {each.text for each in self.open().patterns.records()}

    def seen(self, lesson: str) -> int:
        found = self.open().patterns.get(pattern_id(lesson))
        return found.count("seen") if found is not None else 0


def _holds(tree: dict[str, bytes], folder: str) -> bool:
    return any(path.startswith(folder) and pattern_id(LESSON).encode() in data for path, data in tree.items())


# --- a crash while a tree is taken in -------------------------------------------------------------------------------


EDITION = "patterns.jsonl"
NEWS = encode(
    Line(pattern_id("A third"), {"slash.0123abcd": Column(add=f"{DAY}T00:00:00.000Z-0001", first={"text": "A third"})})
)


def after_a_crash_while_a_revert_comes_in(folder: Path, crash_at: int, torn_share: float) -> set[str]:
    """Return the lessons that an agent knows after three faults. Power failed while it read a revert, that moved a line
    from the edition back into a shard and added another one. Its database was lost. A second revert took the shard."""
    server = MemoryServer()
    tank, velma = Agent(folder, "tank", server), Agent(folder, "velma", server)
    tank.correct("Something else")
    tank.sync()
    before = server.tree()
    velma.correct(LESSON)
    velma.sync()
    line_in_shard = next(server.tree(mark) for mark in server.marks() if _holds(server.tree(mark), "patterns.d/"))
    velma.correct("Something new")
    velma.sync()  # drops from her shard what the edition covers
    assert not _holds(server.tree(), "patterns.d/")
    tank.sync()
    server.commit(line_in_shard | {EDITION: line_in_shard.get(EDITION, b"") + NEWS})
    with suppress(CrashError):
        tank.sync(crash_at=crash_at, torn_share=torn_share)
    tank.lose_database()
    tank.tree = SimTree()
    server.commit(before)
    tank.sync()
    return tank.lessons()


@pytest.mark.parametrize("torn_share", [0.0, 1.0])
@pytest.mark.parametrize("crash_at", range(16))
def test_a_crash_while_a_reverted_tree_is_taken_in_loses_nothing(crash_at, torn_share, tmp_path):
    assert LESSON in after_a_crash_while_a_revert_comes_in(tmp_path, crash_at, torn_share)


def test_files_that_lose_lines_before_others_gain_them_would_lose_one(tmp_path, monkeypatch):
    plans = Ingest._plans

    def in_one_pass(self: Ingest, *rest: object) -> list[object]:
        made = plans(self, *rest)
        return [msgspec.structs.replace(one, leaving=b"", gains=one.gains or bool(one.leaving)) for one in made]

    monkeypatch.setattr(Ingest, "_plans", in_one_pass)

    def known(crash_at: int) -> object:
        (tmp_path / str(crash_at)).mkdir()
        return after_a_crash_while_a_revert_comes_in(tmp_path / str(crash_at), crash_at, 1.0)

    assert any(LESSON not in known(crash_at) for crash_at in range(16))


# --- a folder put back from a snapshot ------------------------------------------------------------------------------


def counted_after_a_snapshot(folder: Path) -> int:
    """Return the count of a lesson that was logged, put into the edition, and logged again by a restored folder."""
    server = MemoryServer()
    velma, tank = Agent(folder, "velma", server), Agent(folder, "tank", server)
    velma.correct("Something else")
    velma.sync()
    tree = velma.tree.copied()
    shutil.copytree(velma.root, folder / "snapshot")
    velma.correct(LESSON)
    velma.sync()
    for _ in range(2):
        tank.correct("anything")
        tank.sync(compact=True)
    assert not _holds(server.tree(), "patterns.d/")
    shutil.rmtree(velma.root)
    shutil.copytree(folder / "snapshot", velma.root)
    velma.tree = tree
    velma.correct(LESSON)
    velma.sync()
    tank.sync()
    velma.sync()
    velma.take_own()
    assert tank.seen(LESSON) == velma.seen(LESSON)
    return tank.seen(LESSON)


def test_a_folder_put_back_from_a_snapshot_swallows_no_count_though_its_shard_was_folded_away(tmp_path):
    assert counted_after_a_snapshot(tmp_path) == 2


def test_a_folder_put_back_counts_what_it_logged_since_though_a_backup_of_its_other_life_is_restored(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct("Something else")
    shutil.copytree(velma.root, tmp_path / "snapshot")
    for _ in range(2):
        velma.correct(LESSON)
    workspace = velma.open()
    moving.backup(workspace, tmp_path / "backup.tar.gz")
    workspace.close()
    shutil.rmtree(velma.root)
    shutil.copytree(tmp_path / "snapshot", velma.root)
    velma.correct(LESSON)
    for _ in range(2):
        workspace = velma.open()
        moving.restore_backup(workspace, tmp_path / "backup.tar.gz")
        reconcile_all(workspace)
        assert velma.seen(LESSON) == 3
    velma.sync()
    assert velma.seen(LESSON) == 3


def test_without_looking_for_it_one_count_would_be_swallowed(tmp_path, monkeypatch):
    monkeypatch.setattr(restore, "give_up_names", lambda *_: None)
    assert counted_after_a_snapshot(tmp_path) == 1


# --- what was undone before it was sent -----------------------------------------------------------------------------


def edited(workspace: Workspace, agent: str) -> None:
    lessons.edit(workspace, agent, pattern_id(LESSON), ["category=shell"])


def retired(workspace: Workspace, agent: str) -> None:
    lessons.retire(workspace, agent, pattern_id(LESSON))


def judged(workspace: Workspace, agent: str) -> None:
    lessons.feedback(workspace, agent, pattern_id(LESSON), is_helped=True)


@pytest.mark.parametrize("change", [edited, retired, judged], ids=lambda change: change.__name__)
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_said_of_a_lesson_that_others_know_leaves_though_its_own_correction_was_undone_here(
    change: Callable[[Workspace, str], None], is_known: bool, tmp_path: Path
):
    server = MemoryServer()
    velma, tank = Agent(tmp_path, "velma", server), Agent(tmp_path, "tank", server)
    workspace = velma.open()
    learning.correct(workspace, "velma", Correction("w", "r", LESSON), session="s")
    undoing.undo(workspace)
    workspace.close()
    if is_known:
        tank.correct(LESSON)
        tank.sync()
    assert velma.sync().out == 0
    with suppress(NoError):  # an unknown lesson can be neither edited nor retired
        workspace = velma.open()
        change(workspace, "velma")
        workspace.close()
    velma.sync()
    tank.sync()
    found = tank.open().patterns.get(pattern_id(LESSON))
    if not is_known:
        assert found is None
        return
    assert found is not None
    arrived = {edited: found.value("category") == "shell", retired: not found.is_present, judged: found.count("helped")}
    assert arrived[change]


# --- what becomes private -------------------------------------------------------------------------------------------


def _hidden_though_power_fails(folder: Path, crash_at: int) -> tuple[bool, int, bool]:
    """Return whether power failed while a lesson was made private, how often it was seen, and whether it left."""
    server = MemoryServer()
    velma = Agent(folder, "velma", server)
    velma.correct(LESSON)
    workspace, each = velma.open(), pattern_id(LESSON)
    POWERS[velma.root].steps_left, is_crashed = crash_at, False
    try:
        lessons.edit(workspace, "velma", each, ["scope=private"])
    except CrashError:
        is_crashed = True
    POWERS[velma.root].steps_left = -1
    workspace.close()
    velma.sync()
    found = velma.open().record("velma", each)
    seen = fold(found).count("seen") if found is not None else 0
    return is_crashed, seen, any(LESSON.encode() in data for data in server.tree().values())


def test_a_crash_while_a_lesson_is_made_private_loses_no_occurrence_and_lets_it_not_leave(tmp_path):
    is_crashed, crash_at = True, 0
    while is_crashed:
        folder = tmp_path / str(crash_at)
        folder.mkdir()
        is_crashed, seen, has_left = _hidden_though_power_fails(folder, crash_at)
        assert (seen, has_left) == (1, False), f"power failed at step {crash_at}"
        crash_at += 1
    assert crash_at > 8, "every step of it was tried"


def test_half_an_entry_of_a_private_lesson_does_not_leave(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct("Something else")
    velma.correct(LESSON)
    workspace, each = velma.open(), pattern_id(LESSON)
    lessons.edit(workspace, "velma", each, ["scope=private"])
    log = CountedLog(workspace, "velma").log_file()
    velma.correct(LESSON)
    whole, begin = log.read_bytes(), log.read_bytes().rindex(LESSON.encode())
    for cut in range(begin + 1, len(whole) + 1):
        log.write_bytes(whole[:cut])
        CountedLog(workspace, "velma").forget_count()
        velma.sync()
        shared = {each.text for each in velma.open().patterns.records()}
        assert shared == {"Something else"}, f"cut at {cut - begin}"
        assert fold(velma.open().record("velma", each)).count("seen") == 2


def test_a_database_made_anew_is_the_one_that_is_there_where_only_a_part_of_what_became_private_had_left(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    velma.sync()
    velma.correct(LESSON)
    workspace = velma.open()
    lessons.edit(workspace, "velma", pattern_id(LESSON), ["scope=private"])
    assert workspace.db.differences() == []


def test_what_became_private_after_a_backup_neither_leaves_nor_counts_twice_when_that_is_restored(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    workspace, each = velma.open(), pattern_id(LESSON)
    moving.backup(workspace, tmp_path / "backup.tar.gz")
    lessons.edit(workspace, "velma", each, ["scope=private"])
    moving.restore_backup(workspace, tmp_path / "backup.tar.gz")
    workspace.close()
    velma.sync()
    found = velma.open().record("velma", each)
    assert found is not None
    assert fold(found).count("seen") == 1
    assert not any(LESSON.encode() in data for data in velma.server.tree().values())


def test_what_became_private_after_a_backup_does_not_leave_where_a_crash_stops_the_restoring(tmp_path, monkeypatch):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    workspace, each = velma.open(), pattern_id(LESSON)
    moving.backup(workspace, tmp_path / "backup.tar.gz")
    lessons.edit(workspace, "velma", each, ["scope=private"])
    monkeypatch.setattr(workspace.quarantine, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        moving.restore_backup(workspace, tmp_path / "backup.tar.gz")
    workspace.close()
    velma.sync()
    workspace = velma.open()
    assert fold(workspace.record("velma", each)).count("seen") == 1
    assert workspace.private("velma", each) is not None
    assert not any(LESSON.encode() in data for data in velma.server.tree().values())


def interrupted(*_):
    raise KeyboardInterrupt


def test_what_was_the_clans_again_while_a_clock_ran_ahead_does_not_leave_once_it_is_private_anew(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    for scope, years in (("private", 10), ("clan", 0), ("private", -10)):
        velma.now_ms += years * YEAR_MS
        workspace = velma.open()
        lessons.edit(workspace, "velma", pattern_id(LESSON), [f"scope={scope}"])
        workspace.close()
    velma.correct("Something else")  # under another name, since that clock ran ahead
    velma.sync()
    assert velma.open().private("velma", pattern_id(LESSON)) is not None
    assert not any(LESSON.encode() in data for data in velma.server.tree().values())


@pytest.mark.parametrize("is_retired", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_what_was_sent_counts_once_when_it_becomes_private_though_the_branch_is_not_known(
    is_known, is_retired, tmp_path
):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    velma.sync()
    velma.correct(LESSON)
    velma.tree = velma.tree if is_known else SimTree()
    workspace, each = velma.open(), pattern_id(LESSON)
    if is_retired:
        lessons.retire(workspace, "velma", each)
    lessons.edit(workspace, "velma", each, ["scope=private"])
    workspace.close()
    for _ in range(2):
        velma.sync()
        whole = velma.open().record("velma", each)
        assert whole is not None
        assert (fold(whole).count("seen"), fold(whole).is_present) == (2, not is_retired)


@pytest.mark.parametrize("scopes", [["private"], ["private", "clan"]])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_another_process_logs_while_a_lesson_changes_its_scope_counts(is_known, scopes, tmp_path, monkeypatch):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    if is_known:
        velma.sync()
    each, hide, publish = pattern_id(LESSON), Writer.hide, Writer.publish

    def after_a_correction(change: Callable[..., None], *rest: object) -> None:
        velma.correct(LESSON)  # logged, and not counted: this process holds the lock
        change(*rest)

    monkeypatch.setattr(Writer, "hide", lambda *rest: after_a_correction(hide, *rest))
    monkeypatch.setattr(Writer, "publish", lambda *rest: after_a_correction(publish, *rest))
    for scope in scopes:
        workspace = velma.open()
        lessons.edit(workspace, "velma", each, [f"scope={scope}"])
        workspace.close()
    velma.sync()
    found = velma.open().record("velma", each)
    assert found is not None
    assert fold(found).count("seen") == 1 + len(scopes)


def restored(workspace: Workspace, page: Path) -> None:
    lessons.restore(workspace, "velma", pattern_id(LESSON))


def all_restored(workspace: Workspace, page: Path) -> None:
    reviewing.restore_all(workspace, "velma", "velma")


def undone(workspace: Workspace, page: Path) -> None:
    undoing.undo(workspace)


def imported(workspace: Workspace, page: Path) -> None:
    page.write_text(f'{{"pattern": "{LESSON}", "seen": 1}}')
    moving.import_files(workspace, "velma", [page])


@pytest.mark.parametrize(
    ("change", "where", "late"),
    [
        (restored, lessons, "_members"),
        (all_restored, reviewing, "_records_of"),
        (undone, undoing._Undoing, "_only_counted"),
        (imported, importer._Import, "_lines"),
    ],
    ids=["restored", "all restored", "undone", "imported"],
)
def test_what_another_process_logs_while_a_lesson_is_added_again_counts(change, where, late, tmp_path, monkeypatch):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    workspace, real = velma.open(), getattr(where, late)
    lessons.retire(workspace, "velma", pattern_id(LESSON))

    def after_a_correction(*rest: object) -> object:
        monkeypatch.setattr(where, late, real)
        with monkeypatch.context() as patch:
            patch.setattr(corrections.Corrections, "_count_now", lambda *_: None)  # the lock is held
            velma.correct(LESSON)
        return real(*rest)

    monkeypatch.setattr(where, late, after_a_correction)
    change(workspace, tmp_path / "page.jsonl")
    workspace.close()
    velma.sync()
    assert velma.seen(LESSON) == 2 + (change is imported)


@pytest.mark.parametrize("is_all", [False, True])
def test_a_lesson_whose_file_was_deleted_by_hand_does_not_leave_once_it_is_private(is_all, tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct("Something else")
    velma.sync()
    velma.correct(LESSON)
    velma.open().db.refresh()
    shutil.rmtree(velma.root / "clan-learnings" / ("" if is_all else "patterns.d"))
    workspace = velma.open()
    lessons.edit(workspace, "velma", pattern_id(LESSON), ["scope=private"])
    workspace.close()
    velma.sync()
    assert not any(LESSON.encode() in data for data in velma.server.tree().values())


def test_what_helped_has_helped_when_it_is_private_and_when_it_is_the_clans_again(tmp_path):
    velma = Agent(tmp_path, "velma", MemoryServer())
    velma.correct(LESSON)
    workspace, each = velma.open(), pattern_id(LESSON)
    lessons.feedback(workspace, "velma", each, is_helped=True)
    found = []
    for scope in ("private", "clan"):
        lessons.edit(workspace, "velma", each, [f"scope={scope}"])
        lessons.feedback(workspace, "velma", each, is_helped=True)
        whole = workspace.record("velma", each)
        found += [fold(whole).count(name) for name in ("helped", "seen")] if whole is not None else []
    assert found == [2, 1, 3, 1]


def test_what_was_purged_is_shown_to_nobody_who_had_blocked_its_writer_since_a_day(tmp_path):
    server = MemoryServer()
    velma, tank = Agent(tmp_path, "velma", server), Agent(tmp_path, "tank", server)
    velma.correct(LESSON)
    for agent in (velma, tank):
        agent.sync()
    workspace = tank.open()
    reviewing.block(workspace, "tank", "velma", since=DAY)
    workspace.close()
    assert tank.lessons() == {LESSON}
    workspace = velma.open()
    moving.purge(workspace, "velma", pattern_id(LESSON), yes=True)
    workspace.close()
    for agent in (velma, tank):
        agent.sync()
    assert LESSON not in tank.lessons()


# --- an entry in two copies of a log --------------------------------------------------------------------------------


@pytest.mark.parametrize(("told", "other"), [(LESSON, "Something else"), ("Something else", LESSON)])
def test_an_entry_by_hand_counts_once_though_its_lesson_was_merged_before_a_copy_of_the_log_counted_it(
    told, other, tmp_path
):
    server = MemoryServer()
    velma = Agent(tmp_path, "velma", server)
    velma.correct(told)
    velma.correct(other)
    velma.sync()
    with (velma.root / "agents/velma/corrections.md").open("a") as file:
        file.write(f"\n## 2026-11-21 — by hand\n**Pattern:** {told}\n")
    (tmp_path / "copies").mkdir()
    copy = Agent(tmp_path / "copies", "velma", server)
    shutil.copytree(velma.root, copy.root, dirs_exist_ok=True)
    copy.now_ms = velma.now_ms
    velma.sync()
    workspace = velma.open()
    lessons.merge(workspace, "velma", pattern_id(told), pattern_id(other), force=True)
    workspace.close()
    velma.sync()
    for agent in (copy, velma):
        agent.sync()
    found = [each.open().patterns.lesson(pattern_id(told)) for each in (velma, copy)]
    assert [each.count("seen") for each in found if each is not None] == [3, 3]


def test_an_entry_by_hand_counts_once_though_another_lesson_had_its_words_when_a_copy_of_the_log_counted_it(tmp_path):
    server = MemoryServer()
    velma, tank = Agent(tmp_path, "velma", server), Agent(tmp_path, "tank", server)
    tank.correct("Something else")
    tank.sync()
    velma.correct("A third lesson")
    velma.sync()
    with (velma.root / "agents/velma/corrections.md").open("a") as file:
        file.write(f"\n## 2026-11-21 — by hand\n**Pattern:** {LESSON}\n")
    (tmp_path / "copies").mkdir()
    copy = Agent(tmp_path / "copies", "velma", server)
    shutil.copytree(velma.root, copy.root, dirs_exist_ok=True)
    copy.now_ms = velma.now_ms
    velma.sync()
    workspace = tank.open()
    lessons.edit(workspace, "tank", pattern_id("Something else"), [f"text={LESSON}"])
    workspace.close()
    for agent in (tank, copy, copy, velma):
        agent.sync()
    seen = [each.count("seen") for each in copy.open().patterns.records()]
    assert sorted(seen) == [1, 1, 1]


# --- a clock that ran ahead -----------------------------------------------------------------------------------------


def test_a_value_that_was_purged_while_it_was_said_again_under_another_name_is_purged_there_too(tmp_path):
    server = MemoryServer()
    velma, tank = Agent(tmp_path, "velma", server), Agent(tmp_path, "tank", server)
    velma.now_ms += 10 * YEAR_MS
    velma.correct(LESSON)
    workspace = velma.open()
    lessons.edit(workspace, "velma", pattern_id(LESSON), ["correct=the word is qzsecret"])
    workspace.close()
    velma.sync()
    tank.sync()
    workspace = tank.open()
    moving.purge(workspace, "tank", pattern_id(LESSON), yes=True)
    workspace.close()
    tank.sync()
    velma.now_ms -= 10 * YEAR_MS
    velma.correct("Something new")
    [before, now] = [each.name for each in velma.open().replicas().replicas]
    said = velma.open().patterns.line(pattern_id(LESSON))
    assert said.w[now].set["correct"][1] == said.w[before].set["correct"][1]
    assert said.w[now].set["correct"][0][:4] == DAY[:4]
    for agent in (velma, tank, velma):
        agent.sync()
    clan = [path.read_bytes() for path in tmp_path.glob("*/clan-learnings/**/*") if path.is_file()]
    assert not any(b"qzsecret" in data for data in (*server.tree().values(), *clan))


def test_a_crash_while_a_machine_takes_new_names_after_running_ahead_loses_no_count(tmp_path, monkeypatch):
    server = MemoryServer()
    velma = Agent(tmp_path, "velma", server)
    velma.now_ms += 10 * YEAR_MS
    velma.correct(LESSON)
    velma.sync()
    velma.now_ms -= 10 * YEAR_MS

    def fail(self: Workspace, agent: str) -> None:
        raise OSError("the power failed")

    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "mint", fail)
        with pytest.raises(OSError, match="the power failed"):
            velma.sync()
    velma.correct(LESSON)
    velma.sync()
    assert [each.count("seen") for each in velma.open().patterns.records()] == [2]


def put_back_after_running_ahead(folder: Path, act: Callable[[Agent], object]) -> list[Agent]:
    """Return two agents. The first one's clock ran ahead while it acted and synced, and then its folder was restored.

    It has fetched since what it had sent.
    """
    server = MemoryServer()
    velma, tank = Agent(folder, "velma", server), Agent(folder, "tank", server)
    velma.correct(LESSON)
    velma.sync()
    tank.sync()
    categorised(tank, "first")
    tank.sync()
    velma.sync()
    tree = velma.tree.copied()
    shutil.copytree(velma.root, folder / "snapshot")
    velma.now_ms += 10 * YEAR_MS
    act(velma)
    velma.sync()
    velma.now_ms -= 10 * YEAR_MS
    shutil.rmtree(velma.root)
    shutil.copytree(folder / "snapshot", velma.root)
    velma.tree = tree
    velma.sync()
    return [velma, tank]


def categorised(agent: Agent, category: str) -> None:
    workspace = agent.open()
    lessons.edit(workspace, agent.name, pattern_id(LESSON), [f"category={category}"])
    workspace.close()


def categories(agents: list[Agent]) -> list[object]:
    found = [agent.open().patterns.get(pattern_id(LESSON)) for agent in agents]
    return [each.value("category") for each in found if each is not None]


def test_what_is_logged_counts_though_the_clock_ran_ahead_before_the_folder_was_put_back(tmp_path):
    agents = put_back_after_running_ahead(tmp_path, lambda velma: velma.correct(LESSON))
    for _ in range(2):
        agents[0].correct(LESSON)
    for each in (*agents, *agents):
        each.sync()
    agents[0].take_own()
    assert [each.seen(LESSON) for each in agents] == [4, 4]


def test_an_edit_reads_as_it_was_made_though_the_clock_ran_ahead_before_the_folder_was_put_back(tmp_path):
    agents = put_back_after_running_ahead(tmp_path, lambda velma: categorised(velma, "ahead"))
    categorised(agents[0], "new")
    for each in (*agents, *agents):
        each.sync()
    assert categories(agents) == ["new", "new"]
    for each in agents:
        each.now_ms += 11 * YEAR_MS
    assert categories(agents) == ["new", "new"]


# --- what stands here and in the tree -------------------------------------------------------------------------------


def clan_of_two(folder: Path) -> tuple[MemoryServer, Agent, Agent]:
    server = MemoryServer()
    velma, tank = Agent(folder, "velma", server), Agent(folder, "tank", server)
    velma.correct(LESSON)
    velma.sync()
    tank.correct("Something else")
    tank.sync()
    velma.sync()
    return server, velma, tank


def deleted(clan: Path) -> None:
    shutil.rmtree(clan)


def emptied(clan: Path) -> None:
    (clan / "patterns.jsonl").write_bytes(b"")


def set_back(clan: Path) -> None:
    edition = clan / "patterns.jsonl"
    edition.write_bytes(edition.read_bytes().splitlines(keepends=True)[0])


@pytest.mark.parametrize("harm", [deleted, emptied, set_back], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("loses_database", [False, True])
def test_what_the_tree_holds_and_the_files_here_lack_is_put_back_and_said(
    harm: Callable[[Path], None], loses_database: bool, tmp_path: Path
):
    server, velma, _ = clan_of_two(tmp_path)
    head = server.head
    harm(velma.root / "clan-learnings")
    if loses_database:
        velma.lose_database()
    done = velma.sync()
    assert "patterns.jsonl" in done.put_back
    assert server.head == head, "nothing is pushed for it"
    assert velma.lessons() == {LESSON, "Something else"}
    assert len((velma.root / "clan-learnings/patterns.jsonl").read_bytes().splitlines()) == 2
    assert not velma.sync().put_back


def test_nothing_is_said_to_be_put_back_where_nothing_was_missing(tmp_path):
    server, velma, tank = clan_of_two(tmp_path)
    for agent in (velma, tank, velma):
        agent.correct("Something new")
        assert not agent.sync().put_back
    velma.tree = SimTree()
    assert not velma.sync().put_back
    velma.lose_database()
    assert not velma.sync().put_back
    server.rewind(2)
    done = velma.sync()
    assert not done.put_back
    assert done.lost


# --- other formats --------------------------------------------------------------------------------------------------


def test_a_tree_of_a_newer_format_is_left_alone_and_one_of_version_1_is_to_be_upgraded(tmp_path):
    server, velma, tank = clan_of_two(tmp_path)
    whole = server.tree()
    assert whole[".fleet-format"] == b"2\n"
    server.commit(whole | {".fleet-format": b"3\n"})
    head, before = server.head, velma.lessons()
    velma.correct("Something new")
    for _ in range(2):
        with pytest.raises(RefusedError, match="upgrade fleet"):
            velma.sync()
    assert server.head == head
    assert velma.lessons() == before | {"Something new"}
    old = b'{"add":{"a.00000001":"2026-11-20T00:00:00.000Z-0000"},"id":"p-%016x","set":{"text":"old"}}\n' % 1
    server.commit({"patterns.jsonl": old})
    with pytest.raises(NoError, match="fleet upgrade"):
        tank.sync()
    server.commit(whole)
    assert velma.sync().out == 1
    assert tank.sync().patterns_in == 1
