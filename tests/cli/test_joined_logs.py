"""Two logs that become one: each acknowledged correction counts once, even two of one minute in one wording."""

import json
import shutil
import threading
import time
from contextlib import contextmanager

import pytest

from fleet.learn.corrections_md import Log
from fleet.store.workspace import Workspace
from tests.cli.conftest import Stage

LESSON = "Quote every variable"
WORDS = ("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)


@pytest.fixture
def minute(stage: Stage) -> Stage:
    """A stage on which all happens within one minute."""
    stage.now_ms = time.time_ns() // 60_000_000_000 * 60_000
    return stage


@contextmanager
def uncounted(stage: Stage, where: str = "w"):
    """A while in which another process holds the write lock: what is logged is counted later."""
    stage.now_ms += 1_000
    with Workspace(stage.folder / where).locked():
        yield


def counted(stage: Stage, where: str = "w") -> int:
    """Return how often the lesson was seen, once the log is counted."""
    stage.now_ms += 1_000
    stage.correct(where, "Anything else")
    return stage.seen(where).get(LESSON, 0)


def as_guest(stage: Stage, number: int = 1) -> None:
    """Log the lesson before anybody is named."""
    (stage.folder / "w").mkdir()
    (stage.folder / "w/fleet.toml").touch()
    for _ in range(number):
        stage.now_ms += 1_000
        stage.run("w", *WORDS)


def copies(stage: Stage) -> None:
    """Make a workspace, and a copy of it."""
    stage.run("w", "init", "--agent", "velma")
    shutil.copytree(stage.folder / "w", stage.folder / "copy")


@pytest.mark.parametrize("guests", [1, 2])
@pytest.mark.parametrize("own", [1, 2])
def test_a_guests_correction_counts_beside_the_agents_own_of_the_same_minute_and_words(minute: Stage, guests, own):
    as_guest(minute, guests)
    for _ in range(own):
        minute.now_ms += 1_000
        minute.run("w", *WORDS, "--agent", "velma")
    kept = (minute.folder / "w/agents/guest/corrections.md").read_bytes()
    minute.run("w", "init", "--agent", "velma")
    assert counted(minute) == guests + own
    assert not minute.run("w", "status", "--json").stdout.count('"edited": ["')
    minute.folder.joinpath("w/agents/guest").mkdir(exist_ok=True)
    minute.folder.joinpath("w/agents/guest/corrections.md").write_bytes(kept)  # a crash before it was removed
    minute.run("w", "init", "--agent", "velma")
    assert counted(minute) == guests + own


def test_what_a_guest_took_back_stays_so_and_the_agents_own_stands(minute: Stage):
    as_guest(minute)
    minute.now_ms += 1_000
    minute.run("w", "undo")
    minute.run("w", *WORDS, "--agent", "velma")
    minute.run("w", "init", "--agent", "velma")
    assert counted(minute) == 1


@pytest.mark.parametrize("has_own", [False, True])
def test_a_guests_correction_is_taken_back_after_it_was_taken_over_and_no_other(minute: Stage, has_own):
    as_guest(minute)
    (run,) = json.loads(minute.run("w", "undo", "--list", "--json").stdout)["runs"]
    for _ in range(has_own):
        minute.now_ms += 1_000
        minute.run("w", *WORDS, "--agent", "velma")
    minute.run("w", "init", "--agent", "velma")
    assert "counts as it did" not in minute.run("w", "undo", run["id"]).stdout
    assert counted(minute) == has_own
    log = Log.parse((minute.folder / "w/agents/velma/corrections.md").read_bytes())
    undone = [entry.is_undone for entry in log.entries if entry.pattern == LESSON]
    assert undone == [False, True][not has_own :]
    assert "guest" not in (minute.folder / "w/.fleet/replica.toml").read_text()


def test_two_copies_that_log_the_same_within_a_minute_count_both_once_one_restores_the_other(minute: Stage):
    copies(minute)
    with uncounted(minute):
        minute.run("w", *WORDS)
    minute.now_ms += 1_000
    minute.run("copy", *WORDS)
    minute.run("copy", "backup", "b.tar.gz")
    for _ in range(2):
        minute.run("w", "restore-backup", "../copy/b.tar.gz", "--yes")
        assert counted(minute) == 2


def test_an_entry_by_hand_in_two_copies_counts_once_wherever_each_counted_it(minute: Stage):
    copies(minute)
    for where in ("w", "copy"):
        log = minute.folder / where / "agents/velma/corrections.md"
        log.write_text(f"## 2026-03-15 14:30Z — By hand\n**Correct approach:** r\n**Pattern:** {LESSON}\n")
        minute.now_ms += 1_000
        minute.correct(where, "Something else")
    minute.run("copy", "backup", "b.tar.gz")
    minute.run("w", "restore-backup", "../copy/b.tar.gz", "--yes")
    assert counted(minute) == 1


def test_a_log_in_two_homes_of_one_agent_counts_each_correction_once(minute: Stage):
    minute.run("w", "init", "--agent", "velma")
    log = minute.folder / "w/agents/velma/corrections.md"
    with uncounted(minute):
        minute.run("w", *WORDS)
        earlier = log.read_bytes()
        log.unlink()
        minute.now_ms += 1_000
        minute.run("w", *WORDS)
    (minute.folder / "w/fleet.toml").write_text('[files]\nhome = "elsewhere"\n')
    (minute.folder / "w/elsewhere/velma").mkdir(parents=True)
    (minute.folder / "w/elsewhere/velma/corrections.md").write_bytes(earlier)
    assert counted(minute) == 2


def test_a_correction_that_waits_in_an_earlier_home_is_no_later_than_the_next_one(stage: Stage):
    stage.run("w", "init", "--agent", "velma")
    home = stage.folder / "w/elsewhere"
    with Workspace(stage.folder / "w").locked():
        stage.run("w", *WORDS)
        (stage.folder / "w/fleet.toml").write_text('[files]\nhome = "elsewhere"\n')
        another = threading.Thread(target=stage.run, args=("w", *WORDS))
        another.start()
        while another.is_alive() and not home.exists():  # now it waits no longer for the files, and logs
            time.sleep(0.01)
        time.sleep(0.02)
    another.join()
    stage.correct("w", "Anything else")
    assert stage.seen("w")[LESSON] == 2


def test_of_two_copies_of_a_guests_folder_neither_takes_what_the_other_counted_for_foreign(minute: Stage):
    minute.join("lead")
    minute.correct("lead", "Pin the version of every action")
    minute.run("lead", "sync")
    (minute.folder / "w").mkdir()
    shutil.copytree(minute.folder / "lead/clan-learnings", minute.folder / "w/clan-learnings")  # tracked by the project
    (minute.folder / "w/fleet.toml").write_text(f'[share]\nremote = "{minute.remote}"\n')
    minute.run("w", *WORDS)
    shutil.copytree(minute.folder / "w", minute.folder / "copy")
    for where in ("copy", "w", "copy"):
        minute.now_ms += 1_000
        minute.run(where, "init", "--agent", "velma")
        minute.run(where, "sync", "--yes")
    assert minute.seen("w")[LESSON] == minute.seen("copy")[LESSON] == 1
