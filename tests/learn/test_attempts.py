"""The mutation protocol's memory: what is stuck is stopped, and ordinary work never is."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleet.learn import attempts, journal
from fleet.learn.attempts import AttemptLog
from fleet.model.errors import DiskError
from fleet.store import changes, config
from fleet.text import shell

ROOT = Path(__file__).resolve().parents[2]
SEQUENCES = sorted((Path(__file__).parent / "sequences").glob("*.jsonl"))
ERROR = "Exit code 1\nE   AssertionError: expected 3, got 4\n1 failed in 0.12s"
AGENT, SESSION = "tank", "s-1"


class Desk:
    """A workspace with one source file, and one agent at work in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "fleet.toml").write_text("")
        (root / "src").mkdir()
        (root / "src" / "a.py").write_text("1\n")

    def fail(self, command="pytest -q", error=ERROR, times=1, session=SESSION, code=1):
        for _ in range(times):
            count = AttemptLog(self.root, AGENT).note_failure(session, command, error, code, str(self.root))
        return count

    def succeed(self, command, session=SESSION):
        return AttemptLog(self.root, AGENT).note_success(session, command)

    def stopped(self, command="pytest -q", session=SESSION, cwd=None):
        return AttemptLog(self.root, AGENT).verdict(session, command, str(cwd or self.root))

    @property
    def log(self) -> Path:
        return self.root / ".fleet" / "attempts" / f"{AGENT}.json"


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


# --- the door -------------------------------------------------------------------------------------------------------


def test_the_file_has_the_names_that_other_versions_beside_this_one_read(desk):
    desk.fail()
    (streak,) = json.loads(desk.log.read_bytes())["streaks"]
    assert list(streak) == ["session", "family", "error", "said", "count", "tries"]


def test_the_fourth_try_of_the_same_thing_is_stopped(desk):
    assert [desk.fail() for _ in range(2)] == [1, 2]
    assert desk.stopped() is None
    assert desk.fail() == 3
    found = desk.stopped()
    assert (found.tried.command, found.streak.family, found.streak.count) == ("pytest -q", "pytest", 3)


def test_white_space_makes_no_other_command(desk):
    desk.fail(times=3)
    assert desk.stopped("  pytest\t -q\n")


@pytest.mark.parametrize("other", ["pytest -q -x", "pytest", "python -m pytest -q", "ls", "pytest -q | tail", ""])
def test_another_command_is_never_stopped(desk, other):
    desk.fail(times=9)
    assert desk.stopped(other) is None


def test_another_folder_makes_another_command(desk):
    desk.fail(times=3)
    assert desk.stopped(cwd=desk.root / "src") is None


def test_other_commands_of_the_family_count_for_the_streak(desk):
    for command in ("pytest -q", "pytest -q -x", "python -m pytest src"):
        desk.fail(command)
    assert desk.stopped("pytest -q -x")
    assert desk.stopped("pytest -k other") is None


def test_another_error_begins_anew(desk):
    desk.fail(times=2)
    assert desk.fail(error="E   KeyError: 'region'") == 1
    assert desk.stopped() is None


def test_the_same_error_in_other_numbers_and_times_is_the_same(desk):
    desk.fail(error="/tmp/x1/a.py:12: AssertionError: got 4\n1 failed in 0.12s")
    desk.fail(error="/tmp/y2/a.py:99: AssertionError: got 5\n1 failed in 3.5s")
    assert desk.fail(error="/home/u/a.py:7: AssertionError: got 6\n1 failed in 2 minutes") == 3


def test_one_module_after_the_other_is_progress(desk):
    for module in "abcdef":
        assert desk.fail(error=f"ModuleNotFoundError: No module named '{module}'") == 1


def test_a_success_of_the_family_ends_the_streak(desk):
    desk.fail(times=3)
    desk.succeed("pytest src/a.py")
    assert desk.stopped() is None
    assert desk.fail() == 1


def test_other_families_do_not_touch_a_streak(desk):
    desk.fail(times=2)
    desk.fail("cargo test", "error[E0308]: mismatched types")
    assert desk.fail() == 3


def test_sessions_are_apart(desk):
    desk.fail(times=3, session="s-2")
    assert desk.stopped() is None
    assert desk.stopped(session="s-2")


def test_failures_without_a_word_are_told_apart_by_their_exit_codes(desk):
    desk.fail("false", "Exit code 1", times=2)
    assert desk.fail("false", "", code=137) == 1


def test_a_poll_is_no_repetition_but_a_build_that_sleeps_is(desk):
    desk.fail("sleep 2 && curl -s localhost:8000/health", "Exit code 7", times=9, code=7)
    assert desk.stopped("sleep 2 && curl -s localhost:8000/health") is None
    desk.fail("sleep 2 && pytest -q", times=3)
    assert desk.stopped("sleep 2 && pytest -q")


# --- what opens it --------------------------------------------------------------------------------------------------


def edit(path):
    path.write_text("2\n")


OPENERS = {
    "an edit": lambda desk: edit(desk.root / "src" / "a.py"),
    "a new file": lambda desk: edit(desk.root / "src" / "b.py"),
    "a deletion": lambda desk: (desk.root / "src" / "a.py").unlink(),
    "a renaming": lambda desk: (desk.root / "src" / "a.py").rename(desk.root / "src" / "c.py"),
    "a mode": lambda desk: (desk.root / "src" / "a.py").chmod(0o755),
    "an old file put back": lambda desk: os.utime(desk.root / "src" / "a.py", (0, 0)),
    "a reported edit": lambda desk: AttemptLog(desk.root, AGENT).note_change(SESSION, "/etc/hosts"),
    "a person's word": lambda desk: AttemptLog(desk.root, AGENT).note_change(SESSION),
    "an install": lambda desk: desk.succeed("pip install requests"),
    "a stopped process": lambda desk: desk.succeed("kill 4711"),
    "a script": lambda desk: desk.succeed("python fix.py"),
}


@pytest.mark.parametrize("what", OPENERS)
def test_a_change_opens_the_door(desk, what):
    desk.fail(times=3)
    assert desk.stopped()
    OPENERS[what](desk)
    assert desk.stopped() is None


@pytest.mark.parametrize(
    "change", ["git remote add origin /srv/x.git", "git config user.email a@b.c", "git branch x", "git commit -m x"]
)
def test_a_change_of_the_repository_alone_opens_the_door(desk, change):
    error = "fatal: 'origin' does not appear to be a git repository"
    desk.fail("git push origin main", error, times=3, code=128)
    for look in ("git remote -v", "git branch -a", "git config --list", "git config --get user.email"):
        desk.succeed(look)
    assert desk.stopped("git push origin main")
    desk.succeed(change)
    assert desk.stopped("git push origin main") is None


def test_a_change_at_once_after_the_failure_counts(desk):
    """The clock that files are stamped with moves in steps: an edit in the very step of the failure is one."""
    for turn in range(30):
        desk.fail(times=3, command=f"pytest -k {turn}")
        edit(desk.root / "src" / "a.py")
        assert desk.stopped(f"pytest -k {turn}") is None


def test_what_cannot_be_told_from_a_later_change_is_one(tmp_path):
    edit(tmp_path / "a")
    at_ns = (tmp_path / "a").stat().st_ctime_ns
    assert changes.Changes(str(tmp_path)).any_since("", at_ns)
    assert not changes.Changes(str(tmp_path)).any_since("", at_ns + 1)


def test_a_failure_is_dated_after_the_step_of_the_clock_in_which_it_fell(monkeypatch):
    now = time.time_ns()
    told = iter([now - 9, now - 9, now - 9, now - 5])
    monkeypatch.setattr(changes, "_touched", lambda _: next(told))
    with monkeypatch.context() as patient:  # a machine with other work may look again only much later
        patient.setattr(changes, "CLOCK_TICK_S_MAX", 60)
        assert changes.moment(0) == now - 5
    monkeypatch.setattr(changes, "_touched", lambda _: 7)  # a clock in steps of seconds: given up, and the same step
    assert changes.moment(0) == 7
    monkeypatch.setattr(changes, "_touched", lambda _: now + 10**12)  # a file server's clock that runs ahead
    assert changes.moment(0) < now + 10**11


def test_what_the_build_wrote_itself_opens_nothing(desk):
    for turn in range(30):
        for _ in range(3):
            edit(desk.root / "src" / f"out-{turn}.txt")
            desk.fail(command=f"make t{turn}")
        assert desk.stopped(f"make t{turn}"), turn


@pytest.mark.parametrize(
    "command", ["ls -la", "git status && git diff | head", "cat a 2>/dev/null", "grep -rn x . | wc -l"]
)
def test_looking_opens_nothing(desk, command):
    desk.fail(times=3)
    desk.succeed(command)
    assert desk.stopped()


@pytest.mark.parametrize("name", [".git/index", "node_modules/a.js", "src/__pycache__/a.pyc", "target/o", ".venv/x"])
def test_caches_open_nothing(desk, name):
    path = desk.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    edit(path)
    desk.fail(times=3)
    edit(path)
    assert desk.stopped()


@pytest.mark.parametrize("name", ["corrections.md", "JOURNAL.md", "memory.md", "journals/x.md", "skills/a/SKILL.md"])
def test_fleets_own_files_open_nothing(desk, name):
    path = desk.root / "agents" / AGENT / name
    path.parent.mkdir(parents=True)
    desk.fail(times=3)
    edit(path)
    edit(desk.root / ".fleet" / "other")
    AttemptLog(desk.root, AGENT).note_change(SESSION, str(path))
    assert desk.stopped()
    edit(desk.root / "agents" / AGENT / "program.py")
    assert desk.stopped() is None


def test_a_deletion_in_the_root_opens_the_door_but_fleets_first_folder_there_does_not(desk):
    edit(desk.root / "Makefile")
    desk.fail(times=3)
    edit_of = desk.root / "agents" / AGENT / "corrections.md"
    edit_of.parent.mkdir(parents=True)
    edit(edit_of)
    assert desk.stopped()
    time.sleep(0.05)
    (desk.root / "Makefile").unlink()
    assert desk.stopped() is None


def test_a_change_in_the_working_folder_outside_the_workspace_counts(desk, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for _ in range(3):
        AttemptLog(desk.root, AGENT).note_failure(SESSION, "make", ERROR, 2, str(elsewhere))
    assert desk.stopped("make", cwd=elsewhere)
    edit(elsewhere / "new.c")
    assert desk.stopped("make", cwd=elsewhere) is None


def test_beyond_a_limit_nothing_is_stopped(desk, monkeypatch):
    desk.fail(times=3)
    monkeypatch.setattr(changes, "ENTRIES_MAX", 2)
    assert desk.stopped() is None
    monkeypatch.setattr(changes, "ENTRIES_MAX", 10_000)
    assert desk.stopped()
    monkeypatch.setattr(changes, "SECONDS_MAX", -1.0)
    assert desk.stopped() is None


def test_a_declaration_opens_the_door_once(desk):
    desk.fail(times=3)
    AttemptLog(desk.root, AGENT).note_declared({"id": "m-1", "session": "", "families": ["pytest"]})
    assert desk.stopped() is None
    assert desk.fail() == 4
    assert desk.stopped()


def test_a_declaration_of_another_session_opens_nothing(desk):
    desk.fail(times=3)
    AttemptLog(desk.root, AGENT).note_declared({"id": "m-1", "session": "s-2", "families": ["pytest"]})
    assert desk.stopped()


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "times", "is_stopped"),
    [
        ("[attempts]\nlimit = 2\n", 2, True),
        ("[attempts]\nlimit = 5\n", 4, False),
        ("[attempts]\nlimit = 5\n", 5, True),
        ("[attempts]\noff = true\n", 9, False),
        ("[attempts\n", 9, False),
        ('[attempts]\noff = "yes"\n', 9, False),
        ("[attempts]\nlimit = 1\n", 2, False),
        ("[attempts]\nlimit = 1\n", 3, True),
        ("[attempts]\nnames = 5\n", 3, True),
        ("[recall]\nof_a_newer_version = 1\n", 3, True),
        ("[of_a_newer_version]\n", 3, True),
    ],
)
def test_settings(desk, toml, times, is_stopped):
    (desk.root / "fleet.toml").write_text(toml)
    desk.fail(times=times)
    assert bool(desk.stopped()) == is_stopped


def test_the_rendered_settings_are_the_defaults(tmp_path):
    head, _, rest = config.render("", "fleet").partition("[attempts]\n")
    section = rest.partition("\n[")[0]
    (tmp_path / "fleet.toml").write_text(
        "[attempts]\n" + "".join(row.removeprefix("#") + "\n" for row in section.splitlines())
    )
    assert config.load(tmp_path / "fleet.toml").attempts == config.Attempts(builds=list(shell.BUILDS))
    assert "[attempts]" not in head


def test_the_message_names_the_way_out(desk):
    (desk.root / "fleet.toml").write_text('[attempts]\nnames = { M4 = "Other tool" }\n')
    desk.fail(times=3)
    told = journal.message(desk.stopped())
    assert "AssertionError: expected 3, got 4" in told
    assert 'fleet mutate M5 --failed "' in told
    assert [code for code in streaks_codes() if told.count(f"  {code} ") != 1] == []
    assert "M4 Other tool" in told
    assert "another try of `pytest -q`" in told
    assert "any other command is free" in told


def streaks_codes():
    return [f"M{number}" for number in range(1, 9)]


def test_neither_log_nor_message_tells_a_secret_or_moves_a_terminal(desk):
    secret = "ghp_" + "a1B2" * 9
    for _ in range(3):
        AttemptLog(desk.root, AGENT).note_failure(
            SESSION, f"TOKEN={secret} pytest", f"\x1b[31mError: {secret} \u202e refused", 1, ""
        )
    told = journal.message(AttemptLog(desk.root, AGENT).verdict(SESSION, f"TOKEN={secret} pytest"))
    assert secret not in told + desk.log.read_text()
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_what_somebody_else_wrote_into_the_log_is_screened_on_its_way_out(desk):
    secret = "ghp_" + "a1B2" * 9
    desk.fail(times=3)
    rows = desk.log.read_text().replace("AssertionError", f"{secret} \\u001b[31m \\u202e")
    desk.log.write_text(rows)
    told = journal.message(desk.stopped())
    assert secret not in told
    assert not {"\x1b", "\u202e"} & set(told)


# --- the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 5000,
        b"{" * 100_000,
        b'{"event":' * 20_000,
        b"[" * 200_000 + b"\n",
        b"[1]",
        b'{"streaks": 7}',
        b'{"streaks": [{"session": "s-1"}]}',
        b'{"declared": [{"id": []}, 3]}',
        b'{"streaks": [{"session": "s-1", "family": "pytest", "error": "e", "said": "", "count": 9, "tries": {}}]}',
    ],
)
def test_a_log_of_rubbish_stops_nothing(desk, data):
    desk.log.parent.mkdir(parents=True)
    desk.log.write_bytes(data)
    assert desk.stopped() is None
    assert desk.succeed("ls") == []
    assert desk.fail() == 1


def test_a_link_is_no_log(desk, tmp_path_factory):
    target = tmp_path_factory.mktemp("outside") / "target"
    target.write_text("")
    desk.log.parent.mkdir(parents=True)
    desk.log.symlink_to(target)
    assert desk.stopped() is None
    assert desk.fail() == 1
    assert target.read_text() == ""


def test_a_linked_folder_is_not_written_through(desk, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (desk.root / ".fleet").mkdir()
    (desk.root / ".fleet" / "attempts").symlink_to(outside)
    with pytest.raises(DiskError):
        desk.fail()
    assert not list(outside.iterdir())


def test_a_pipe_in_the_logs_place_does_not_hang(desk):
    desk.log.parent.mkdir(parents=True)
    os.mkfifo(desk.log)
    assert desk.stopped() is None


@pytest.mark.parametrize("count", ["1e999", "-1e999", "NaN", '"many"', "null", "[]"])
def test_a_file_with_a_count_that_is_no_number_stops_nothing(desk, count):
    desk.fail(times=3)
    [path] = (desk.root / ".fleet" / "attempts").glob("*.json")
    page = path.read_text()
    path.write_text(page.replace('"count":3', f'"count":{count}'))
    assert path.read_text() != page
    assert not desk.stopped()
    desk.fail(times=3)
    assert desk.stopped()


def test_what_is_kept_has_a_limit_and_the_newest_stays(desk, monkeypatch):
    monkeypatch.setattr(attempts, "STREAKS_KEPT_MAX", 4)
    monkeypatch.setattr(attempts, "TRIES_KEPT_MAX", 5)
    for turn in range(12):
        desk.fail(f"cargo test t{turn}", "error: could not compile", session=f"s-{turn}")
        desk.fail(f"make {turn}")
    desk.fail(times=3)
    found = AttemptLog(desk.root, AGENT).state()
    assert len(found.streaks) == 4
    assert found.streaks[SESSION, "pytest"].count == 3
    assert desk.stopped()
    week = 8 * 24 * 3600 * 10**9
    assert attempts._parsed(attempts._encoded(found, time.time_ns() + week)).streaks == {}


def test_many_processes_lose_nothing(desk):
    program = """
import sys, fleet.learn.attempts as a
a.LOCK_WAIT_S = 60
log = a.AttemptLog(sys.argv[1], "tank")
for _ in range(5):
    log.note_won({"id": f"m-{sys.argv[2]}"})
"""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(desk.root), str(number)], env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        for number in range(8)
    ]
    assert [process.wait(timeout=60) for process in running] == [0] * 8
    assert set(AttemptLog(desk.root, AGENT).state().won) == {f"m-{number}" for number in range(8)}
    assert sorted(path.name for path in desk.log.parent.iterdir()) == [desk.log.name, "tank.won"]


def test_a_disk_that_cannot_be_written_says_so_and_stops_nothing(desk, monkeypatch):
    desk.fail(times=3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskError, match="not counted"):
        desk.fail()
    assert desk.stopped()


def test_an_error_of_10_mb_is_capped(desk):
    began = time.process_time()
    desk.fail(error="E   AssertionError: x\n" * 450_000)
    assert time.process_time() - began < 2.0
    assert desk.log.stat().st_size < 2_000


# --- recorded work --------------------------------------------------------------------------------------------------


def replay(desk, path, *, sees_edits=True, reports_edits=False, repeat=None):
    """Run a recorded sequence through the protocol; return the commands that would have been stopped."""
    steps = [json.loads(line) for line in path.read_text().splitlines()][1:]
    stopped = []
    for number, step in enumerate(steps):
        if "edit" in step:
            if sees_edits:
                edit(desk.root / "src" / f"{len(step['edit'])}.py")
            if reports_edits:
                AttemptLog(desk.root, AGENT).note_change(SESSION, step["edit"])
        if "run" not in step:
            continue
        for _ in range(repeat(number) if repeat else 1):
            if desk.stopped(step["run"]):
                stopped.append(step["run"])
            elif step["exit"]:
                desk.fail(step["run"], f"Exit code {step['exit']}\n{step.get('error', '')}", code=step["exit"])
            else:
                desk.succeed(step["run"])
    return steps, stopped


@pytest.mark.parametrize("path", SEQUENCES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "edits", [{"sees_edits": True}, {"sees_edits": False, "reports_edits": True}], ids=["seen", "told"]
)
def test_ordinary_work_is_never_stopped(desk, path, edits):
    steps, stopped = replay(desk, path, **edits)
    assert len(steps) >= 60
    assert sum(bool(step.get("exit")) for step in steps) >= 3
    assert not stopped


def test_there_are_sequences_of_edits_and_tests():
    assert len(SEQUENCES) >= 3


@pytest.mark.parametrize(
    "path", [path for path in SEQUENCES if path.stem.startswith("swe_")], ids=lambda path: path.stem
)
def test_the_same_work_would_be_stopped_if_its_changes_went_unseen(desk, path, monkeypatch):
    """These come close: their agents try one command again and again, and change something in between."""
    monkeypatch.setattr(shell.Command, "is_read_only", True)
    assert replay(desk, path, sees_edits=False)[1]


@pytest.mark.parametrize("path", SEQUENCES, ids=lambda path: path.stem)
def test_each_failure_tried_four_times_over_would_have_been_stopped(desk, path):
    """The same work by an agent that tries each failing command again until it is stopped: the guard is awake."""
    steps, stopped = replay(desk, path, repeat=lambda _: 5)
    failing = {step["run"] for step in steps if step.get("exit") and not is_poll(step["run"])}
    assert set(stopped) == failing


def is_poll(command):
    return shell.Command(command).waits and not shell.Command(command).is_build()


def test_a_stuck_sequence_is_stopped_whatever_is_looked_at_in_between(desk):
    desk.fail()
    for look in ("cat src/a.py", "git diff"):
        desk.succeed(look)
        assert desk.stopped() is None
        desk.fail()
    desk.succeed("ls")
    assert desk.stopped()


# --- speed ----------------------------------------------------------------------------------------------------------


def test_asking_where_there_is_no_log_imports_nothing_and_costs_under_2_ms(tmp_path):
    program = """
import json, os, sys, time  # what a hook has anyway
before = set(sys.modules)
began = time.process_time()
from fleet.learn import attempts
assert attempts.AttemptLog(sys.argv[1], "tank").verdict("s", "pytest -q", sys.argv[1]) is None
assert attempts.AttemptLog(sys.argv[1], "tank").note_success("s", "pytest -q") == []
print(time.process_time() - began, *sorted(set(sys.modules) - before))
"""
    best, loaded = 1.0, ""
    for _ in range(7):
        said = subprocess.run(
            [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}", str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        best, loaded = min(best, float(said[0])), said[1:]
    assert {name for name in loaded if name.startswith("fleet")} == {
        *("fleet", "fleet.learn", "fleet.learn.attempts", "fleet.store", "fleet.store.changes", "fleet.store.homes"),
    }
    assert best < 0.012
