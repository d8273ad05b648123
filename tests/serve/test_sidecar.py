"""The sidecar, in a process of its own: its faults, its end, and what it does by itself."""

import asyncio
import json
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from fleet.hosts import local
from fleet.learn.corrections_md import Log
from fleet.model.errors import FleetError
from fleet.serve import schedule, sidecar
from fleet.serve.schedule import Fingerprints, LocalWork, Marks, TickResult
from fleet.serve.sidecar import _Sidecar
from fleet.store.config import Config
from tests.cli.conftest import Stage
from tests.serve.conftest import QUICK, Crew, until

HAND = "Read the whole error"
END_S = 6.0
"""Two are promised: a busy machine is given more, and who waited for an answer would take far longer."""
SELDOM = "interval_s = 600.0\nquiet_s = 0.2\n"
"""Nobody looks because a sync is due."""


def count(crew: Crew, where: str, pattern: str = HAND) -> int:
    return crew.seen(where).get(pattern, 0)


def ended_in_s(child: "subprocess.Popen[str]", how: signal.Signals = signal.SIGTERM) -> float:
    began = time.monotonic()
    child.send_signal(how)
    assert child.wait(20) == 0
    return time.monotonic() - began


# --- what it does -----------------------------------------------------------------------------------------------------


def test_what_one_agent_writes_by_hand_is_in_the_other_ones_files_without_a_command(crew):
    crew.quick("ann")
    crew.quick("bob")
    crew.up("ann")
    crew.up("bob")
    crew.write_by_hand("ann", "ann", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))
    assert until(lambda: HAND in crew.lines("bob"))
    assert until(lambda: HAND in (crew.folder / "bob/clan-learnings/patterns.md").read_text())
    assert count(crew, "bob") == 1


def test_one_that_starts_takes_in_what_was_written_while_none_ran_and_a_session_finds_its_text_ready(crew):
    crew.quick("ann")
    crew.write_by_hand("ann", "ann", 1, HAND)
    crew.up("ann")
    assert until(lambda: HAND in crew.lines("ann"))
    assert until(lambda: HAND in (crew.folder / "ann/.fleet/ready/start-ann.txt").read_text())


def test_it_catches_up_when_the_remote_comes_back(crew):
    crew.quick("ann")
    shutil.move(crew.remote, crew.folder / "away.git")
    crew.up("ann")
    crew.correct("ann", HAND)
    assert until(lambda: crew.events("ann", "not synced"))
    shutil.move(crew.folder / "away.git", crew.remote)
    assert until(lambda: crew.events("ann", "synced"))
    assert crew.taught() == [HAND]


def test_it_reads_new_settings_and_keeps_the_former_ones_while_they_are_wrong(crew):
    crew.quick("ann")
    child = crew.up("ann")
    good = (crew.folder / "ann/fleet.toml").read_text()
    crew.set("ann", 'polling = "soon"\n')
    assert until(lambda: crew.events("ann", "settings"))
    (crew.folder / "ann/fleet.toml").write_text(good)
    crew.write_by_hand("ann", "ann", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))
    assert child.poll() is None


# --- fault 20 ---------------------------------------------------------------------------------------------------------


def test_of_several_that_start_one_lives_and_the_others_say_so(crew):
    crew.join("ann")
    children = [crew.sidecar("ann") for _ in range(5)]
    assert until(lambda: sum(child.poll() is None for child in children) == 1, 60)
    gone = [child for child in children if child.poll() is not None]
    assert [child.returncode for child in gone] == [0] * 4
    assert all("looks after ann already" in child.communicate()[0] for child in gone)
    (alive,) = set(children) - set(gone)
    assert json.loads(crew.run("ann", "sidecar", "status", "--json").stdout)["pid"] == alive.pid
    assert len(crew.events("ann", "started")) == 1


def test_another_agent_has_one_of_its_own_and_a_dead_ones_place_is_free(crew):
    crew.join("ann")
    crew.run("ann", "init", "--agent", "cal")
    first = crew.up("ann")
    crew.sidecar("ann", "--agent", "cal")
    assert until(lambda: {each["agent"] for each in crew.events("ann", "started")} == {"ann", "cal"})
    first.kill()
    first.wait()
    crew.up("ann")
    assert first.returncode == -signal.SIGKILL


def test_status_tells_whether_it_runs(crew):
    crew.join("ann")
    idle = json.loads(crew.run("ann", "sidecar", "status", "--json", expect=1).stdout)
    assert (idle["running"], idle["pid"], idle["since"]) == (False, 0, "")
    child = crew.up("ann")
    assert until(lambda: crew.marks("ann").get("synced_ms"))
    running = json.loads(crew.run("ann", "sidecar", "status", "--json").stdout)
    assert (running["running"], running["pid"], running["last_error"]) == (True, child.pid, "")
    assert running["since"] <= running["last_sync"]
    assert "runs as process" in crew.run("ann", "sidecar", "status").stdout
    ended_in_s(child)
    crew.run("ann", "sidecar", "status", expect=1)


def test_the_next_sync_of_a_sidecar_that_does_not_run_is_never_in_the_past(tmp_path):
    stage = Stage(tmp_path)
    stage.join("velma", "w")
    stage.run("w", "poll")
    assert json.loads(stage.run("w", "sidecar", "status", "--json", expect=1).stdout)["next_sync"]
    stage.now_ms = time.time_ns() // 1_000_000 + 86_400_000
    assert "next sync   as soon as it runs" in stage.run("w", "sidecar", "status", expect=1).stdout


# --- fault 21 ---------------------------------------------------------------------------------------------------------


def test_killed_again_and_again_it_loses_nothing_and_counts_nothing_twice(crew):
    crew.quick("ann")
    rng = random.Random(21)
    for number in range(5):
        child = crew.sidecar("ann")
        time.sleep(rng.uniform(0.2, 1.2))
        crew.write_by_hand("ann", "ann", number, HAND)
        time.sleep(rng.uniform(0.0, 0.6))
        for process in crew.processes() if number % 2 else [child.pid]:  # its work dies with it, or does not
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        child.wait()
    crew.up("ann")
    assert until(lambda: count(crew, "ann") == 5, 40), crew.events("ann")
    crew.run("ann", "sync")
    crew.join("bob")
    crew.run("bob", "sync")
    assert count(crew, "bob") == 5
    log = Log.parse((crew.folder / "ann/agents/ann/corrections.md").read_bytes())
    assert len(log.entries) == 5
    assert len({record.id for record in log.records}) == len(log.records) == 5


# --- fault 25 ---------------------------------------------------------------------------------------------------------


def test_without_inotify_it_looks_by_itself(crew):
    strace = shutil.which("strace")
    done = strace and subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, check=False).returncode
    if done != 0:
        pytest.skip("strace cannot trace here")
    crew.quick("ann")
    # -D: the sidecar is our child, and strace its grandchild.
    calls = (
        "-D",
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-e",
        "trace=inotify_init1",
        "-e",
        "inject=inotify_init1:error=EMFILE",
    )
    crew.sidecar("ann", before=(str(strace), *calls))
    assert until(lambda: crew.events("ann", "polling"))
    assert crew.events("ann", "no watcher")
    assert until(lambda: crew.marks("ann").get("worked"))
    crew.write_by_hand("ann", "ann", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))


def test_a_person_may_want_no_watcher(crew):
    crew.quick("ann", QUICK + "polling = true\n")
    crew.sidecar("ann")
    assert until(lambda: crew.events("ann", "polling"))
    crew.write_by_hand("ann", "ann", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))


def test_an_overflowing_queue_hides_nothing(crew):
    limit = Path("/proc/sys/fs/inotify/max_queued_events")
    if not limit.exists() or int(limit.read_text()) > 50_000:
        pytest.skip("the queue of changes is too long to fill it here")
    crew.quick("ann", SELDOM)
    child = crew.up("ann")
    time.sleep(3)  # all that follows from the start is done
    home = crew.folder / "ann/agents/ann"
    child.send_signal(signal.SIGSTOP)
    for number in range(int(limit.read_text())):  # there, and gone: two events and more
        path = home / f"x{number % 7}"
        path.write_text("")
        path.unlink()
    crew.write_by_hand("ann", "ann", 1, HAND)  # nobody is told of this any more
    (home / "later").mkdir()
    child.send_signal(signal.SIGCONT)
    assert until(lambda: HAND in crew.lines("ann"))


def test_a_home_that_came_later_is_watched_as_well_whenever_its_agent_was_entered(crew):
    crew.quick("ann", SELDOM)
    crew.up("ann")
    (crew.folder / "ann/agents/cal").mkdir()
    time.sleep(1)  # heard, and nobody's yet: so a busy machine does it in the midst of an `init`
    crew.run("ann", "init", "--agent", "cal")
    time.sleep(3)  # all that follows from that is done
    crew.write_by_hand("ann", "cal", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_within_two_seconds_and_says_so(crew, how):
    crew.quick("ann")
    child = crew.up("ann")
    assert ended_in_s(child, how) < END_S
    assert crew.events("ann")[-1]["event"] == "stopped"


def test_on_a_terminal_it_names_what_it_does_and_how_it_is_stopped_and_says_that_it_stopped(crew):
    crew.quick("ann")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "fleet", "sidecar"]
    nothing = subprocess.DEVNULL
    environment = crew.environment(COLUMNS="200")
    child = subprocess.Popen(
        words, cwd=crew.folder / "ann", env=environment, stdin=nothing, stdout=nothing, stderr=theirs
    )
    crew.started.append(child)
    os.close(theirs)
    assert until(lambda: crew.events("ann", "watching"))
    begun = os.read(ours, 4096).decode()
    assert "fleet: the sidecar of ann takes in what is written by hand, and syncs after a quiet moment." in begun
    assert "Ctrl-C stops it" in begun
    assert ended_in_s(child, signal.SIGINT) < END_S
    assert "fleet: the sidecar of ann stopped" in os.read(ours, 4096).decode()
    os.close(ours)


def test_with_nohup_it_outlives_its_terminal(crew):
    crew.quick("ann")
    child = crew.sidecar("ann", before=("nohup",))
    assert until(lambda: crew.events("ann", "watching"))
    child.send_signal(signal.SIGHUP)
    crew.write_by_hand("ann", "ann", 1, HAND)
    assert until(lambda: HAND in crew.lines("ann"))
    assert child.poll() is None


def test_it_ends_when_its_workspace_is_taken_away_and_does_not_make_it_again(crew):
    where = crew.folder / crew.quick("tank")
    child = crew.up("tank")
    aside = crew.folder / "aside"
    where.rename(aside)  # at once, unlike a removal
    assert child.wait(30) == 0
    assert not where.exists()
    assert not child.stderr.read()


def test_it_ends_in_time_while_the_remote_hangs(crew):
    crew.quick("ann")
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(16)
        url = f"git://127.0.0.1:{hole.getsockname()[1]}/clan.git"
        crew.set("ann", "wait_s = 1.0\n", "share")  # who makes the workspace waits, too
        crew.run("ann", "init", "--agent", "ann", "--remote", url, "--yes")
        config = crew.folder / "ann/fleet.toml"
        config.write_text(config.read_text().replace("wait_s = 1.0\n", ""))
        hole.settimeout(0.2)
        with suppress(TimeoutError):  # what `init` began
            while True:
                hole.accept()[0].close()
        child = crew.up("ann")
        hole.settimeout(20)
        client, _ = hole.accept()  # now it waits for an answer
        crew.write_by_hand("ann", "ann", 1, HAND)
        assert until(lambda: HAND in crew.lines("ann")), "a remote that hangs must not hold up the work here"
        assert ended_in_s(child) < END_S
        assert until(lambda: not crew.processes(), 20), "what it began ends with it"
        client.close()


# --- in this process: what cannot be seen from outside ----------------------------------------------------------------


class Scene:
    """A sidecar whose ticks are made up."""

    def __init__(self, folder: Path) -> None:
        (folder / "agents/ann").mkdir(parents=True)
        (folder / "clan-learnings").mkdir()
        self.folder = folder
        self.marks = Marks()
        self.told: list[tuple[str, str]] = []
        self.ticks: list[bool] = []
        self.background = {}
        self.on_tick = lambda local: TickResult(worked=LocalWork())

    def fingerprints(self) -> Fingerprints:
        return schedule._of_files(str(self.folder), ["ann"])

    def looked(self) -> str:
        return schedule.digest(self.fingerprints())

    async def tick(self, local: bool) -> TickResult:
        self.ticks.append(local)
        now_ms, looked = time.time_ns() // 1_000_000, self.looked()
        done = self.on_tick(local)
        self.marks = self.marks.worked(now_ms, looked)
        if not local:
            self.marks = self.marks.synced(now_ms, looked, Config().sidecar, random.Random(1))
        return done

    def sidecar(self) -> _Sidecar:
        return _Sidecar(
            root=str(self.folder),
            agent="ann",
            fingerprints=self.fingerprints,
            configured=Config,
            marks=lambda: self.marks,
            now_ms=lambda: time.time_ns() // 1_000_000,
            tick=self.tick,
            log=lambda event, what: self.told.append((event, what)),
            background=self.background,
            rng=random.Random(1),
        )

    def run(self, story) -> None:
        """Run it beside a story, which ends it."""

        async def both() -> None:
            sidecar = self.sidecar()
            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(sidecar.run)
                    await story(sidecar)
                    sidecar.stop()

        anyio.run(both)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


async def when(happened) -> None:
    while not happened():
        await anyio.sleep(0.01)


def test_a_task_that_dies_is_reported_and_starts_again_while_the_others_live_on(scene, monkeypatch):
    monkeypatch.setattr(sidecar, "PAUSE_S", 0.05)
    lives = []

    async def dying(changed, arrived, stop):
        lives.append(1)
        if len(lives) < 3:
            raise ValueError("gone wrong")
        await stop.wait()

    scene.background["live"] = dying

    async def story(_):
        await when(lambda: len(lives) == 3)
        (scene.folder / "agents/ann/corrections.md").write_text("x")
        await when(lambda: scene.looked() == scene.marks.work)

    scene.run(story)
    died = [what for event, what in scene.told if event == "restarted"]
    assert len(died) == 2
    assert "live died (ValueError: gone wrong)" in died[0]


def test_pauses_between_lives_double_to_a_minute():
    class Most(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    assert [sidecar._pause_s(deaths, Most()) for deaths in (1, 2, 3, 6, 7, 50)] == [1, 2, 4, 32, 60, 60]


def test_a_neighbour_hears_of_lines_at_once_and_what_arrives_is_worked_on(scene):
    heard = []

    async def live(changed, arrived, stop):
        await changed.wait()  # everything there is, at the start
        await changed.wait()
        heard.append(time.monotonic())
        (scene.folder / "clan-learnings/patterns.d").mkdir()
        (scene.folder / "clan-learnings/patterns.d/bob.00000001.jsonl").write_text("{}\n")
        arrived()
        await stop.wait()

    scene.background["live"] = live
    (scene.folder / "clan-learnings/patterns.jsonl").write_text("{}\n")

    async def story(_):
        await when(lambda: scene.marks.work == scene.looked())
        await anyio.sleep(0.5)
        began = time.monotonic()
        (scene.folder / "clan-learnings/patterns.jsonl").write_text("{}\n{}\n")
        await when(lambda: heard)
        assert heard[0] - began < 0.5  # before it is settled, rendered or sent
        await when(lambda: scene.marks.work == scene.looked())

    scene.run(story)
    assert (scene.folder / "clan-learnings/patterns.d/bob.00000001.jsonl").exists()


def test_ticks_that_fail_are_not_tried_without_a_pause(scene):
    def broken(local):
        raise FleetError("exit code 6: no space left")

    scene.on_tick = broken

    async def story(_):
        await anyio.sleep(3)

    scene.run(story)
    assert 2 <= len(scene.ticks) <= 10
    assert ("tick failed", "exit code 6: no space left") in scene.told


def test_work_that_is_due_when_it_ends_is_done_before(scene):
    async def story(_):
        await when(lambda: scene.marks.work == scene.looked())
        (scene.folder / "agents/ann/corrections.md").write_text("x")

    scene.run(story)
    assert scene.marks.work == scene.looked()


def test_the_bell_is_heard_once_however_often_it_was_rung():
    async def story() -> list[bool]:
        bell, heard = asyncio.Event(), []
        for _ in range(3):
            bell.set()
        for _ in range(2):
            with anyio.move_on_after(0.05) as limit:
                await sidecar._next(bell)
            heard.append(not limit.cancelled_caught)
        return heard

    assert anyio.run(story) == [True, False]


def test_the_log_keeps_its_size_and_hides_secrets(crew):
    crew.join("ann")
    root = crew.folder / "ann"
    writers = [
        threading.Thread(target=lambda: [sidecar._log(root, "ann", "told", "x" * 5_000) for _ in range(300)])
        for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    sidecar._log(root, "ann", "told", "fetched https://ann:s3cr3t-t0ken-value@example.org/x\x1b[2J")
    sizes = [(root / ".fleet" / name).stat().st_size for name in ("sidecar.log", "sidecar.log.1")]
    assert max(sizes) < local.LOG_BYTES_MAX + 4 * 1024
    last = crew.events("ann")[-1]["what"]
    assert "s3cr3t" not in last
    assert "\x1b" not in last


def test_why_nothing_is_shared_is_logged_once_each_time_it_begins(crew):
    crew.quick("ann", "interval_s = 1.0\nquiet_s = 0.2\n")
    crew.up("ann")
    assert until(lambda: crew.events("ann", "synced"))
    for times in (1, 2):
        crew.run("ann", "pause")
        before = len(crew.events("ann", "not shared"))
        assert until(lambda before=before: len(crew.events("ann", "not shared")) > before)
        known, tried = len(crew.events("ann", "synced")), crew.marks("ann")["next_ms"]
        assert until(
            lambda tried=tried: crew.marks("ann")["next_ms"] != tried
        )  # it was due again, and is not told again
        crew.run("ann", "resume")
        crew.correct("ann", f"Check the lock file {times} times")
        assert until(lambda known=known: len(crew.events("ann", "synced")) > known)
        assert len(crew.events("ann", "not shared")) == times
    assert "paused" in crew.events("ann", "not shared")[0]["what"]


def test_where_a_live_room_is_named_a_lesson_is_next_door_without_any_remote(crew):
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port = some.getsockname()[1]
    for agent in ("ann", "bob"):
        crew.run(agent, "init", "--agent", agent)
        crew.set(agent, f"serve = true\nport = {port}\n", "live")
        crew.run(agent, "live", "join")
        crew.up(agent)
    crew.correct("ann", HAND)
    assert until(lambda: HAND in crew.lines("bob"))
    assert until(lambda: HAND in (crew.folder / "bob/clan-learnings/patterns.md").read_text())


def test_a_watcher_that_cannot_begin_is_replaced_by_looking(scene, monkeypatch):
    def refused(*_, **__):
        raise OSError(24, "inotify watch limit reached")

    monkeypatch.setattr(sidecar, "awatch", refused)

    async def story(_):
        await when(lambda: ("polling", "") in scene.told)
        (scene.folder / "agents/ann/corrections.md").write_text("x")
        await when(lambda: scene.looked() == scene.marks.work)

    scene.run(story)
    assert any(event == "no watcher" and "limit reached" in what for event, what in scene.told)
