"""``fleet poll``: what is due is done, once; what fails is tried later, what others do is not done twice."""

import itertools
import json
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from fleet.model.errors import DiskError
from fleet.serve import schedule, sidecar
from fleet.serve.schedule import LocalWork, Marks, Memory, Now, SyncSummary
from fleet.serve.tick import ROUNDS_MAX, Tick
from fleet.share.remote import RemoteUnavailable
from fleet.store.config import Sidecar
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World
from tests.serve.conftest import until

NOW = 1_800_000_000_000
S = 1000
SETTINGS = Sidecar(interval_s=300, quiet_s=3, rescan_s=600)


def now(ms: int = NOW, looked: str = "a", changed_ms: int = NOW - 60 * S) -> Now:
    return Now(ms, looked, changed_ms)


class Middle(random.Random):
    """No luck at all: always the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


# --- what is due ------------------------------------------------------------------------------------------------------


def test_a_new_workspace_is_worked_on_and_synced_at_once():
    assert Marks().work_in_s(now(), SETTINGS) == 0
    assert Marks().sync_in_s(now(), SETTINGS) == 0


def test_nothing_is_due_while_nothing_changes():
    marks = Marks().worked(NOW, "a").synced(NOW, "a", SETTINGS, Middle())
    assert marks.work_in_s(now(NOW + 10 * S), SETTINGS) == 590
    assert marks.sync_in_s(now(NOW + 10 * S), SETTINGS) == 290


def test_any_change_is_worked_on_at_once_and_everything_once_in_a_while():
    marks = Marks().worked(NOW, "a")
    assert marks.work_in_s(now(looked="b"), SETTINGS) == 0
    assert marks.work_in_s(now(NOW + 600 * S), SETTINGS) == 0


def test_what_was_written_goes_out_after_a_quiet_moment():
    marks = Marks().synced(NOW - 60 * S, "a", SETTINGS, Middle())
    assert marks.sync_in_s(now(looked="b", changed_ms=NOW - 1 * S), SETTINGS) == 2
    assert marks.sync_in_s(now(looked="b", changed_ms=NOW - 3 * S), SETTINGS) == 0


def test_who_never_falls_quiet_is_sent_with_the_next_look_for_news():
    marks = Marks().synced(NOW - 299 * S, "a", SETTINGS, Middle())
    assert marks.sync_in_s(now(looked="b", changed_ms=NOW), SETTINGS) == 1


def test_intervals_differ_by_a_fifth_and_no_more():
    rng = random.Random(5)
    pauses = [Marks().synced(NOW, "a", SETTINGS, rng).next_ms - NOW for _ in range(200)]
    assert 240 * S <= min(pauses) < 250 * S
    assert 350 * S < max(pauses) <= 360 * S


def test_the_pause_after_failures_doubles_to_its_limit_and_a_change_does_not_shorten_it():
    marks, pauses = Marks(), []
    for _ in range(10):
        marks = marks.failed(NOW, "away", Middle())
        pauses.append(marks.sync_in_s(now(looked="changed"), SETTINGS))
    assert pauses == [3.75, 7.5, 15, 30, 60, 120, 225, 225, 225, 225]
    assert marks.failures == 10
    assert marks.error == "away"


def test_a_success_forgets_the_failures():
    marks = Marks().failed(NOW, "away", Middle()).synced(NOW, "a", SETTINGS, Middle())
    assert (marks.failures, marks.error, marks.synced_ms) == (0, "", NOW)


def test_a_machine_that_slept_asks_at_once():
    marks = Marks().synced(NOW, "a", SETTINGS, Middle())
    assert marks.sync_in_s(now(NOW + 8 * 3600 * S), SETTINGS) == 0


def test_a_clock_that_was_set_back_by_years_stops_nothing():
    marks = Marks().worked(NOW, "a").synced(NOW, "a", SETTINGS, Middle()).failed(NOW, "away", Middle())
    back = now(NOW - 10 * 365 * 86_400 * S, changed_ms=NOW)
    assert marks.sync_in_s(back, SETTINGS) == 0
    assert marks.work_in_s(back, SETTINGS) == 0


def test_a_file_from_the_future_does_not_hold_up_a_sync():
    marks = Marks().synced(NOW - 60 * S, "a", SETTINGS, Middle())
    assert marks.sync_in_s(now(looked="b", changed_ms=NOW + 10**9), SETTINGS) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"failures":"x"}',
        b'{"next_ms":1e400}',
        b'{"next_ms":9223372036854775807}',
        b'{"failures":-1}',
        b"\xff",
    ],
)
def test_damaged_marks_make_everything_due(data):
    assert Marks.parsed(data) == Marks()


def test_marks_of_a_newer_version_are_read_as_far_as_they_are_known():
    assert Marks.parsed(b'{"failures":3,"later":true}').failures == 3


# --- how the files look -----------------------------------------------------------------------------------------------


def test_looks_tell_every_change_of_a_log_and_what_holds_lines(tmp_path):
    (tmp_path / "agents/ann").mkdir(parents=True)
    (tmp_path / "clan-learnings/patterns.d").mkdir(parents=True)
    seen = [schedule._of_files(str(tmp_path), ["ann"])]
    for path in ("agents/ann/corrections.md", "clan-learnings/patterns.d/ann.00000001.jsonl", "fleet.toml"):
        (tmp_path / path).write_text("x")
        seen.append(schedule._of_files(str(tmp_path), ["ann"]))
    assert len({schedule.digest(each) for each in seen}) == 4
    assert sidecar._changed(seen[0], seen[1]) == {"agents/ann/corrections.md"}
    assert [sidecar._has_lines(sidecar._changed(a, b)) for a, b in itertools.pairwise(seen)] == [False, True, False]


# --- one tick ---------------------------------------------------------------------------------------------------------


class Bench:
    """A tick whose world is made up: files are a counter, the clan answers as it is told."""

    def __init__(self, folder):
        self.ms = NOW
        self.workspace = Workspace(folder, World(wall_ms=lambda: self.ms, durable=False))
        self.workspace.config.sidecar = SETTINGS
        self.workspace.lock = self.alone
        self.memory = Memory(self.workspace)
        self.version = 0
        self.did: list[str] = []
        self.locked: list[str] = []
        self.on_lock = lambda name: None
        self.on_work = lambda: None
        self.on_sync = lambda: SyncSummary(lines_out=1)
        self.waiting = 0

    def work(self) -> LocalWork:
        self.did.append("work")
        self.on_work()
        return LocalWork()

    def sync(self) -> SyncSummary:
        self.did.append("sync")
        return self.on_sync()

    @contextmanager
    def alone(self, name):
        if name != "marks":
            self.on_lock(name)
        self.locked.append(name)
        yield
        self.locked.remove(name)

    def tick(self, **how):
        self.did.clear()
        tick = Tick(self.workspace, "ann", Middle())
        tick._digest, tick._count_waiting = lambda: str(self.version), lambda: self.waiting
        tick._work, tick._sync, tick._sleep = self.work, self.sync, str
        return tick.run(**how)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_second_tick_finds_nothing_to_do(bench):
    assert bench.tick().synced.lines_out == 1
    assert bench.did == ["work", "sync"]
    assert bench.tick().synced is None
    assert bench.did == []


def test_what_a_sync_brought_is_worked_on_in_the_same_tick(bench):
    def sync():
        bench.version += 1
        return SyncSummary()

    bench.on_sync = sync
    bench.tick()
    assert bench.did == ["work", "sync", "work"]
    bench.tick()
    assert bench.did == []


def test_a_local_tick_asks_nobody(bench):
    bench.tick(local=True)
    assert bench.did == ["work"]


def test_what_is_written_while_work_is_done_is_worked_on_as_well(bench):
    writes = iter([1, 1, 0])

    def work():
        bench.version += next(writes)

    bench.on_work = work
    bench.tick(local=True)
    assert bench.did == ["work"] * 3
    bench.tick(local=True)
    assert bench.did == []


def test_work_and_sync_are_done_alone_and_not_again_by_who_had_to_wait(bench):
    def work():
        assert bench.locked == ["poll"]

    def sync():
        assert bench.locked == ["poll-sync"]
        return SyncSummary()

    bench.on_work, bench.on_sync = work, sync
    bench.tick()
    assert bench.did == ["work", "sync"]

    def somebody_was_faster(name):
        looked = str(bench.version)
        bench.memory.change(lambda marks: marks.worked(bench.ms, looked))
        bench.memory.change(lambda marks: marks.synced(bench.ms, looked, SETTINGS, Middle()))

    bench.on_lock = somebody_was_faster
    bench.version += 1
    bench.ms += 3600 * S
    done = bench.tick()
    assert (bench.did, done.worked, done.synced) == ([], None, None)


def test_work_that_always_changes_something_ends_and_stays_due(bench):
    def work():
        bench.version += 1

    bench.on_work = work
    bench.tick(local=True)
    assert len(bench.did) == ROUNDS_MAX
    assert bench.tick(local=True).worked is not None


def test_what_is_written_while_a_sync_runs_goes_out_after_a_quiet_moment(bench):
    bench.waiting = 1
    bench.tick()
    bench.waiting = 0
    bench.ms += 1 * S
    bench.tick()
    assert "sync" not in bench.did
    bench.ms += 2 * S
    bench.tick()
    assert "sync" in bench.did


def test_a_remote_that_is_away_is_asked_less_and_less_and_caught_up_with_when_it_is_back(bench):
    def away():
        raise RemoteUnavailable("no answer; all waits here")

    bench.on_sync = away
    done = bench.tick()
    assert (done.exit, done.errors, done.worked is not None) == (5, ["no answer; all waits here"], True)
    tried = 0
    for _ in range(600):
        bench.ms += 1 * S
        bench.tick()
        tried += bench.did.count("sync")
    assert 5 <= tried <= 8
    bench.on_sync = SyncSummary
    bench.ms += 225 * S
    assert bench.tick().synced is not None
    assert bench.memory.read().failures == 0


def test_what_goes_wrong_here_keeps_no_sync_from_its_work(bench):
    def work():
        raise DiskError("memory.md was not saved")

    bench.on_work = work
    done = bench.tick()
    assert done.synced is not None
    assert done.exit == 6
    assert bench.memory.read().work == ""


def test_a_sync_in_part_is_not_called_whole(bench):
    bench.on_sync = lambda: SyncSummary(partial=True)
    assert bench.tick().exit == 3


def test_who_has_nobody_to_sync_with_is_no_failure(bench):
    bench.on_sync = lambda: "no remote is named"
    done = bench.tick()
    assert (done.exit, done.why, done.synced) == (0, "no remote is named", None)
    marks = bench.memory.read()
    assert (marks.failures, marks.synced_ms) == (0, 0)
    bench.tick()
    assert "sync" not in bench.did


# --- the command ------------------------------------------------------------------------------------------------------


def said(done) -> dict:
    return json.loads(done.stdout)


def test_poll_takes_in_what_was_written_by_hand_renders_makes_ready_and_syncs(crew):
    crew.join("ann")
    crew.join("bob")
    crew.correct("ann", "Check the version first")
    crew.write_by_hand("ann", "ann", 1, "Read the whole error")
    done = said(crew.run("ann", "poll", "--json"))
    assert done["synced"]["lines_out"] >= 1
    assert done["worked"]["ready"] == ["ann"]
    assert "Read the whole error" in (crew.folder / "ann/clan-learnings/patterns.md").read_text()
    assert said(crew.run("bob", "poll", "--json"))["synced"]["records_in"] == 2
    assert crew.seen("bob") == {"Check the version first": 1, "Read the whole error": 1}
    again = said(crew.run("ann", "poll", "--json"))
    assert (again["worked"], again["synced"]) == (None, None)
    assert again["next_s"] > 0


def test_poll_says_that_the_remote_is_away_and_catches_up(crew):
    crew.join("ann")
    crew.correct("ann", "Check the version first")
    shutil.move(crew.remote, crew.folder / "away.git")
    done = crew.run("ann", "poll", expect=5)
    assert "fleet:" in done.stderr
    assert "up to date" not in done.stdout
    crew.run("ann", "poll")  # not before its time
    shutil.move(crew.folder / "away.git", crew.remote)
    marks = crew.marks("ann")
    assert marks["failures"] == 1
    path = crew.folder / "ann/.fleet/poll.json"
    path.write_text(json.dumps(marks | {"next_ms": 1}))
    assert said(crew.run("ann", "poll", "--json"))["synced"]["lines_out"] == 1
    assert crew.taught() == ["Check the version first"]


def test_poll_never_asks_and_sends_nothing_to_a_remote_that_nobody_agreed_to(crew):
    crew.join("ann")
    crew.run("bob", "init", "--agent", "bob")
    path = crew.folder / "bob/fleet.toml"
    path.write_text(path.read_text().replace("[share]", f'[share]\nremote = "{crew.remote}"'))
    crew.correct("bob", "Check the version first")
    done = said(crew.run("bob", "poll", "--json"))
    assert done["synced"] is None
    assert "nobody has agreed" in done["why"]
    assert "fleet" not in crew.git("branch", "--list", where="clan.git")


def test_poll_sends_nothing_while_sharing_is_paused(crew):
    crew.quick("ann")
    crew.run("ann", "pause")
    crew.correct("ann", "Check the version first")
    done = said(crew.run("ann", "poll", "--json"))
    assert (done["synced"], "paused" in done["why"]) == (None, True)
    crew.run("ann", "resume")
    assert until(lambda: said(crew.run("ann", "poll", "--json"))["synced"])
    assert crew.taught() == ["Check the version first"]


@pytest.mark.parametrize(("name", "words"), [("poll", ("--local",)), ("sync", ())])
def test_poll_waits_for_another_process_that_does_the_same(crew, name, words):
    crew.join("ann")
    files = Files(crew.folder / "ann")
    with files.lock(files.root / ".fleet/locks" / f"{name}.lock"):
        command = [sys.executable, "-m", "fleet", "poll", *words]
        child = subprocess.Popen(command, cwd=files.root, env=crew.environment())
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(2)
    assert child.wait(20) == 0


def test_several_polls_at_once_count_nothing_twice(crew):
    crew.join("ann")
    for number in range(5):
        crew.write_by_hand("ann", "ann", number, "Read the whole error")
    words, where = [sys.executable, "-m", "fleet", "poll", "--local", "--json"], crew.folder / "ann"
    children = [subprocess.Popen(words, cwd=where, env=crew.environment(), stdout=subprocess.PIPE) for _ in range(6)]
    done = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    assert [each["exit"] for each in done] == [0] * 6
    assert sum(each["worked"] is not None for each in done) == 1, "one does the work, the others find it done"
    assert crew.seen("ann") == {"Read the whole error": 5}


def test_a_poll_that_fails_does_not_say_that_nothing_is_due(crew):
    crew.join("ann")
    crew.run("ann", "poll")
    lock = crew.folder / "ann/.fleet/locks/poll.lock"
    lock.unlink()
    lock.mkdir()
    crew.correct("ann", "Read the whole error")
    done = crew.run("ann", "poll", "--local", expect=6)
    assert done.stdout == ""
    assert "poll.lock" in done.stderr
