"""``fleet sleep``: one lock, one run, one record; killed anywhere it can be run again, undone it leaves no trace."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from crdt import clock
from fleet import RELEASED_MS
from fleet.app import consolidating, learning, sleeping, undoing
from fleet.hosts.local import LocalFolder
from fleet.learn.corrections_md import Correction
from fleet.model.errors import BusyError, DiskError, UsageError
from fleet.model.line import Column, Line
from fleet.reflect.inbox import Inbox
from fleet.reflect.records import Records
from fleet.store import config
from fleet.store.files import Files
from fleet.store.runs import Draft, Runs
from fleet.store.workspace import Workspace, World
from tests.cli.conftest import Stage
from tests.pace import within
from tests.reflect.talks import taught

DAY_MS = 86_400_000
START_MS = RELEASED_MS + 40 * DAY_MS
ME = "velma.09ab12cd"
PIN = "Pin the version of every action in a workflow by its digest"
LOGS = 6


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


def opened(root: Path, wall: Clock, files: Files | None = None) -> Workspace:
    if not (root / config.FILE_NAME).is_file():
        (root / config.FILE_NAME).write_text('[sleep]\nzone = "UTC"\n')
        (root / ".fleet").mkdir()
    return Workspace(root, World(wall_ms=wall, machine=lambda: "machine", durable=False), files)


@pytest.fixture
def wall():
    return Clock()


@pytest.fixture
def workspace(tmp_path, wall):
    found = opened(tmp_path, wall)
    with found.writing("velma"):
        pass
    yield found
    found.close()


def notes(workspace: Workspace, count: int = 6) -> None:
    """Put two notes that say the same, and others with a relative date, into velma's notebook."""
    add(workspace, 0, [PIN, f"{PIN}.", *(f"Step {n} of the build broke yesterday" for n in range(count - 2))])


def add(workspace: Workspace, first: int, said: list[str], at_ms: int = START_MS) -> None:
    columns = [
        Column(add=clock.pack(at_ms - 5_000 + at), first={"scope": "private", "text": text})
        for at, text in enumerate(said)
    ]
    with workspace.writing("velma") as writer:
        writer.append_private([Line(f"p-{first + at:016x}", {ME: column}) for at, column in enumerate(columns)])


def daily_logs(workspace: Workspace) -> None:
    """Write logs of six separate sessions, all of which learned the same."""
    folder = workspace.root / ".agents/logs"
    folder.mkdir(parents=True)
    for n in range(LOGS):
        day = clock.pack(START_MS - (LOGS - n) * DAY_MS)[:10]
        (folder / f"{day}.md").write_text(
            f"# Daily Log — {day}\n\n## Session 10:0{n} UTC\n\n### What Changed\n- Changed part {n}\n\n"
            "### Patterns Learned\n- Quote every variable in a shell script that may hold a path\n"
        )


def pages(workspace: Workspace) -> dict[str, bytes]:
    """Return the Markdown files of a person's and an agent's, by path."""
    found = [
        *workspace.root.glob("*.md"),
        *workspace.root.glob(".agents*/**/*.md"),
        workspace.root / ".agents.local.md",
    ]
    found += workspace.home("velma").glob("*.md")
    return {str(path.relative_to(workspace.root)): path.read_bytes() for path in found if path.is_file()}


def texts(workspace: Workspace) -> dict[str, str]:
    return {each.id: each.text for each in workspace.notes("velma").records()}


def by_name(slept):
    return {each.name: each for each in slept.phases}


# --- nothing to do --------------------------------------------------------------------------------------------------


def test_a_sleep_with_nothing_to_do_says_so_and_moves_no_stamp(workspace):
    sleeping.sleep(workspace, "velma")
    kept = {path: path.read_bytes() for path in workspace.home("velma").rglob("*") if path.is_file()}
    slept = sleeping.sleep(workspace, "velma")
    assert (slept.run, slept.changed) == ("", 0)
    assert {path: path.read_bytes() for path in workspace.home("velma").rglob("*") if path.is_file()} == kept
    assert Runs(workspace).listed() == []
    assert Records(workspace, "velma").passes() == []


def test_a_sleep_with_nothing_to_do_takes_under_200_ms_in_a_large_notebook(workspace):
    notes(workspace, 1_000)
    for _ in range(3):
        sleeping.sleep(workspace, "velma")
    with within(0.2):
        slept = sleeping.sleep(workspace, "velma")
    assert slept.phases == ()


def test_what_was_written_since_is_looked_at_and_so_is_everything_once_an_hour(workspace, wall):
    for _ in range(3):
        sleeping.sleep(workspace, "velma")
    assert sleeping.sleep(workspace, "velma").phases == ()
    notes(workspace)
    assert by_name(sleeping.sleep(workspace, "velma"))["tidy"].changed == 5
    for _ in range(3):
        sleeping.sleep(workspace, "velma")
    wall.ms += 3_600_000
    assert sleeping.sleep(workspace, "velma").phases != ()


def test_an_entry_written_by_hand_during_a_sleep_is_the_next_sleeps(workspace, monkeypatch):
    for _ in range(3):
        sleeping.sleep(workspace, "velma")
    log = workspace.home("velma") / "corrections.md"

    def written(*_):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"## 2026-03-15 14:30Z\n**Pattern:** {PIN}\n")
        return sleeping.Phase()

    with monkeypatch.context() as patch:
        patch.setattr(sleeping, "PHASES", {**sleeping.PHASES, "last": written})
        patch.setattr(sleeping, "_IDLE", "another")
        sleeping.sleep(workspace, "velma")
        assert sleeping.sleep(workspace, "velma").phases != ()


# --- what it does ---------------------------------------------------------------------------------------------------


def test_the_phases_run_in_order_and_each_says_what_it_read_changed_and_left(workspace):
    notes(workspace)
    daily_logs(workspace)
    slept = sleeping.sleep(workspace, "velma")
    assert [each.name for each in slept.phases] == list(sleeping.PHASES)
    told = by_name(slept)
    assert told["consolidation"].changed >= 1
    assert any(row.startswith("+") for row in told["consolidation"].diff)
    assert told["tidy"].changed == 5
    assert all(each.read for each in slept.phases)
    (entry,) = [each.record for each in Records(workspace, "velma").passes() if each.record.kind == "sleep"]
    assert entry.run == slept.run
    assert {"consolidation", "tidy"} <= {each.name for each in entry.writers}


def test_undo_takes_exactly_that_diff_back_and_later_edits_of_a_person_stay(workspace):
    notes(workspace)
    daily_logs(workspace)
    before, said = pages(workspace), texts(workspace)
    slept = sleeping.sleep(workspace, "velma")
    assert pages(workspace) != before
    assert texts(workspace) != said
    index = workspace.root / ".agents/local.md"
    index.write_bytes(index.read_bytes() + b"\nMine.\n")
    undoing.undo(workspace, slept.run)
    assert texts(workspace) == said
    assert b"Mine." in index.read_bytes()
    after = pages(workspace)
    assert {path: data for path, data in after.items() if path != ".agents/local.md"} == before


def test_undo_of_every_run_in_reverse_gives_back_the_first_days_files_byte_for_byte(workspace, wall):
    (workspace.root / "AGENTS.md").write_bytes(b"# Agents\r\n\r\nMine.\r\n")
    notes(workspace)
    daily_logs(workspace)
    before, said = pages(workspace), texts(workspace)
    done = [sleeping.sleep(workspace, "velma").run]
    wall.ms += 2 * DAY_MS
    add(workspace, 900, [f"Port {n} was closed yesterday" for n in range(5)], wall.ms)
    said |= {each: text for each, text in texts(workspace).items() if each >= f"p-{900:016x}"}
    done.append(sleeping.sleep(workspace, "velma").run)
    assert all(done)
    for run in reversed(done):
        undoing.undo(workspace, run)
    assert pages(workspace) == before
    assert texts(workspace) == said


def test_undo_leaves_what_another_process_did_during_the_sleep(workspace, wall, monkeypatch):
    notes(workspace)
    tidy, (mine, theirs) = sleeping.PHASES["tidy"], (Runs(each) for each in (workspace, opened(workspace.root, wall)))

    def meanwhile(*given):
        phase = tidy(*given)
        edit = theirs.page("tank.md").to(b"what tank reflected on\n")
        theirs.apply(theirs.fresh("reflect", "tank", Draft(edits=[edit])))
        return phase

    monkeypatch.setitem(sleeping.PHASES, "tidy", meanwhile)
    slept = sleeping.sleep(workspace, "velma")
    parts = {field.id for field in mine.find(slept.run).fields}
    assert parts == {each.id for each in mine.listed() if each.agent == "velma" and each.id != slept.run} != set()
    undoing.undo(workspace, slept.run)
    assert (workspace.root / "tank.md").read_bytes() == b"what tank reflected on\n"


def test_an_undo_can_be_undone(workspace):
    notes(workspace)
    slept = sleeping.sleep(workspace, "velma")
    after = texts(workspace)
    back = undoing.undo(workspace, slept.run)
    assert texts(workspace) != after
    undoing.undo(workspace, back.undone_by)
    assert texts(workspace) == after


def test_a_mutation_that_worked_becomes_a_pattern(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    words = ("--failed", "npm ci", "--switch", "use the lock file of the main branch", "--why", "it is stale")
    stand.run("w", "mutate", "M4", *words)
    stand.run("w", "mutate", "--worked", "--why", "the build is green")
    slept = json.loads(stand.run("w", "sleep", "--json").stdout)
    assert stand.run("w", "patterns").stdout.count("When npm ci fails, use the lock file of the main branch") == 1
    again = json.loads(stand.run("w", "sleep", "--json").stdout)
    assert {each["name"]: each["changed"] for each in again["phases"]}.get("publish", 0) == 0
    stand.run("w", "undo", slept["run"])
    assert "When npm ci fails" not in stand.run("w", "patterns").stdout


def test_a_mutation_is_one_lesson_whether_a_sleep_or_the_printed_command_logs_it(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    stand.run("w", "mutate", "M4", "--failed", "npm ci", "--switch", "pnpm install", "--why", "the lock file is stale")
    assert "`fleet sleep` logs it" in stand.run("w", "mutate", "--worked").stdout
    [proposal] = json.loads(stand.run("w", "mutate", "--proposed", "--json").stdout)["proposals"]
    printed = shlex.split(proposal["command"])[1:]
    slept = json.loads(stand.run("w", "sleep", "--json").stdout)
    [lesson] = json.loads(stand.run("w", "patterns", "--json").stdout)["patterns"]
    assert lesson["text"] == printed[printed.index("--pattern") + 1]
    assert "an echo" in stand.run("w", *printed).stdout
    [after] = json.loads(stand.run("w", "patterns", "--json").stdout)["patterns"]
    assert (after["id"], after["seen"]) == (lesson["id"], 1)
    stand.run("w", "undo", slept["run"])
    assert "an echo" not in stand.run("w", *printed).stdout, "what was taken back may be logged by hand"
    assert len(json.loads(stand.run("w", "patterns", "--json").stdout)["patterns"]) == 1


def test_a_mutation_counts_once_where_a_sleep_and_the_printed_command_log_it_at_once(tmp_path, monkeypatch):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    stand.run("w", "mutate", "M4", "--failed", "npm ci", "--switch", "pnpm install", "--why", "the lock file is stale")
    stand.run("w", "mutate", "--worked")
    [proposal] = json.loads(stand.run("w", "mutate", "--proposed", "--json").stdout)["proposals"]
    log_lock = Workspace.log_lock

    def waits(*given, **more):
        monkeypatch.setattr(Workspace, "log_lock", log_lock)
        stand.run("w", "sleep", "--only", "publish")
        return log_lock(*given, **more)

    monkeypatch.setattr(Workspace, "log_lock", waits)
    logged = stand.run("w", *shlex.split(proposal["command"])[1:]).stdout
    assert "seen 1 time: " in logged
    assert "an echo" in logged
    assert [each["seen"] for each in stand.patterns("w")["patterns"]] == [1]


def test_one_phase_may_be_asked_for_alone(workspace):
    notes(workspace)
    daily_logs(workspace)
    slept = sleeping.sleep(workspace, "velma", only=["tidy"])
    assert [each.name for each in slept.phases] == ["tidy"]
    assert not (workspace.root / ".agents/topics").exists()
    with pytest.raises(UsageError, match="there is no phase 'dream'"):
        sleeping.sleep(workspace, "velma", only=["tidy", "dream"])


def test_several_phases_may_be_asked_for_and_run_in_their_own_order(waiting):
    slept = json.loads(waiting.run("w", "sleep", "--only", "review", "--only", "tidy", "--json").stdout)
    assert [each["name"] for each in slept["phases"]] == ["tidy", "review"]
    assert slept["phases"][0]["told"].startswith("skipped: fewer than 5 notes are new")
    everything = json.loads(waiting.run("w", "sleep", "--only", "", "--dry-run", "--json").stdout)
    assert len(everything["phases"]) == len(sleeping.PHASES)


def test_a_dry_run_shows_what_would_be_done_and_changes_nothing(workspace):
    notes(workspace)
    daily_logs(workspace)
    before, said = pages(workspace), texts(workspace)
    shown = sleeping.sleep(workspace, "velma", dry_run=True)
    assert by_name(shown)["tidy"].changed == 5
    assert by_name(shown)["consolidation"].diff
    assert (pages(workspace), texts(workspace), Runs(workspace).listed()) == (before, said, [])
    assert by_name(sleeping.sleep(workspace, "velma"))["tidy"].diff == by_name(shown)["tidy"].diff


def test_what_goes_wrong_in_one_phase_keeps_no_other_from_its_work(workspace, monkeypatch):
    def broken(*_):
        raise DiskError("the disk is full; nothing was written")

    notes(workspace)
    monkeypatch.setitem(sleeping.PHASES, "consolidation", broken)
    told = by_name(sleeping.sleep(workspace, "velma"))
    assert "the disk is full" in told["consolidation"].error
    assert told["tidy"].changed == 5


def test_a_plan_that_changes_too_much_waits_and_the_rest_is_done(workspace):
    notes(workspace, 40)
    daily_logs(workspace)
    told = by_name(sleeping.sleep(workspace, "velma"))
    assert told["tidy"].changed == 0
    assert "It waits as i-" in told["tidy"].left[0]
    assert [each.item.kind for each in Inbox(workspace, "velma").waiting("plan")] == ["plan"]
    assert told["consolidation"].changed >= 1


def test_consolidating_again_changes_nothing_also_where_logs_name_no_session(workspace):
    daily_logs(workspace)
    assert by_name(sleeping.sleep(workspace, "velma"))["consolidation"].changed == 1
    after = pages(workspace)
    assert consolidating.consolidate(workspace, "velma", force=True).run == ""
    assert pages(workspace) == after


# --- killed at any write --------------------------------------------------------------------------------------------


class Dying(Files):
    """Files that kill their process on the way into the Nth write: right behind the one before."""

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        self.left = left

    def _count(self, act, *given, **more):
        self.left -= 1
        if self.left == 0:
            os._exit(99)
        return act(*given, **more)

    def append(self, *given, **more):
        """Append, or die."""
        return self._count(super().append, *given, **more)

    def replace(self, *given, **more):
        """Replace, or die."""
        return self._count(super().replace, *given, **more)

    def remove(self, *given, **more):
        """Remove, or die."""
        return self._count(super().remove, *given, **more)


def dies(root: Path, wall: Clock, left: int) -> bool:
    """Sleep in a process that is killed at its Nth write; return whether it was."""
    child = os.fork()
    if child == 0:
        try:
            sleeping.sleep(opened(root, wall, Dying(root, left)), "velma")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def test_kill_9_at_every_write_of_a_sleep_is_harmless(tmp_path, wall):
    root, saved = tmp_path / "w", tmp_path / "saved"
    root.mkdir()
    first = opened(root, wall)
    notes(first)
    daily_logs(first)
    before, said = pages(first), texts(first)
    first.close()
    shutil.copytree(root, saved)
    whole = opened(root, wall)
    sleeping.sleep(whole, "velma")
    wanted, meant = pages(whole), texts(whole)
    whole.close()
    for left in range(1, 200):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        if not dies(root, wall, left):
            assert left > 10
            return
        wall.ms += 60_000
        again = opened(root, wall)
        sleeping.sleep(again, "velma")
        assert (pages(again).keys(), texts(again)) == (wanted.keys(), meant), left
        for run in Runs(again).listed():
            if run.id not in Runs(again).undone():
                undoing.undo(again, run.id)
        assert (pages(again), texts(again)) == (before, said), left
        again.close()
    raise AssertionError("it never came to its end")


class Waiting(Files):
    """Files that tell of their Nth write, and go on only when somebody says so."""

    def __init__(self, root: Path, left: int, told: int, go: int) -> None:
        super().__init__(root)
        self.left, self.told, self.go = left, told, go

    def replace(self, *given, **more):
        """Replace, sooner or later."""
        self.left -= 1
        if self.left == 0:
            os.write(self.told, b".")
            os.read(self.go, 1)
        return super().replace(*given, **more)


@pytest.mark.parametrize("write", [1, 6, 12])
def test_of_two_machines_asleep_at_once_on_one_checkout_one_says_that_it_was_busy(tmp_path, wall, write):
    root = tmp_path / "w"
    root.mkdir()
    first = opened(root, wall)
    notes(first)
    daily_logs(first)
    (hears, told), (waits, go) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sleeping.sleep(opened(root, wall, Waiting(root, write, told, waits)), "velma")
        finally:
            os._exit(0)
    assert os.read(hears, 1) == b"."
    whole = pages(first)
    other = Workspace(root, World(wall_ms=wall, machine=lambda: "another machine", durable=False))
    with pytest.raises(
        BusyError, match=r"sleep-\d{8}-[0-9a-f]{6} of velma is at work here since 20\d\d-.*nothing was ch"
    ):
        sleeping.sleep(other, "velma")
    done = Stage(tmp_path).run("w", "sleep", "--agent", "velma", expect=4)
    assert "is at work here" in done.stderr
    assert pages(first) == whole
    os.write(go, b".")
    os.waitpid(child, 0)
    said = [each.record for each in Records(first, "velma").passes() if each.record.kind == "sleep"]
    assert [each.outcome for each in said] == ["skipped", "skipped", "success"]
    assert said[0].why.startswith(f"busy: {said[2].run} of velma is at work here")
    assert {each.name for each in said[2].writers} >= {"consolidation", "tidy"}
    assert [each.id for each in Runs(first).listed() if each.kind == "sleep"] == [said[2].run]
    again = sleeping.sleep(other, "velma")
    assert again.run == "", "nothing was left half done"
    first.close()
    other.close()


# --- by itself: the sidecar's schedule, systemd, cron ---------------------------------------------------------------


def test_a_poll_sleeps_when_its_gates_open_and_not_where_it_is_off(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    for number in range(5):
        stand.correct("w", f"Step {number} of the build broke yesterday")
    done = json.loads(stand.run("w", "poll", "--local", "--json").stdout)
    assert done["slept"].startswith("sleep-")
    assert "yesterday" not in stand.run("w", "patterns").stdout
    stand.run("w", "undo", done["slept"])
    again = json.loads(stand.run("w", "poll", "--local", "--json").stdout)
    assert again["slept"] == ""  # an hour has to pass

    stand.run("off", "init", "--agent", "tank")
    page = tmp_path / "off" / config.FILE_NAME
    page.write_text(page.read_text().replace("[sleep]\n# off = false", "[sleep]\noff = true"))
    for number in range(5):
        stand.correct("off", f"Step {number} of the build broke yesterday")
    assert json.loads(stand.run("off", "poll", "--local", "--json").stdout)["slept"] == ""


def test_the_timer_is_installed_shown_and_taken_out_and_nothing_else(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "conf"), "PATH": str(tmp_path)}
    shown = stand.run("w", "sleep", "--install-timer", "--dry-run", **env).stdout
    assert "OnCalendar=daily" in shown
    assert '"sleep" "--agent" "velma"' in shown
    assert not (tmp_path / "conf").exists()
    told = stand.run("w", "sleep", "--install-timer", **env).stdout
    made = sorted(path.suffix for path in (tmp_path / "conf/systemd/user").iterdir())
    assert made == [".service", ".timer"]
    for path in (tmp_path / "conf/systemd/user").iterdir():
        assert path.read_text().startswith("# made by `fleet sleep --install-timer`\n")
    assert "run: systemctl --user enable --now fleet-sleep-velma-" in told
    stand.run("w", "sleep", "--remove-timer", **env)
    assert list((tmp_path / "conf").iterdir()) == []
    assert "nothing was changed" in stand.run("w", "sleep", "--remove-timer", **env).stdout


def test_the_command_says_what_each_phase_did(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    for number in range(5):
        stand.correct("w", f"Step {number} of the build broke yesterday")
    assert "a dry run does not show which lessons would enter" in stand.run("w", "sleep", "--dry-run").stdout
    closed = stand.run("w", "consolidate", expect=1).stdout
    assert "no consolidation yet; sessions since: 0 of 5" in closed
    assert "fleet consolidate --force" in closed
    shown = stand.run("w", "sleep").stdout
    assert "tidy           read 5 notes; changed 5: 5 dates made absolute" in shown
    assert "- Step 0 of the build broke yesterday" in shown
    assert "left: a gate is closed" in shown
    for _ in range(2):
        last = stand.run("w", "sleep").stdout
    assert last == "nothing to do\n"
    assert stand.run("w", "sleep", "--only", "dream", expect=2).stderr


def test_a_session_that_is_done_again_is_said_to_have_nothing_new(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    stand.run("w", "observe", "fix", "Mended the importer", "--session", "s1")
    assert "nothing of it" not in stand.run("w", "done", "--session", "s1").stderr
    again = stand.run("w", "done", "--session", "s1", expect=1).stderr
    assert "no transcript of session 's1' here, and nothing of it that is not in the day's log already" in again


def test_done_ends_the_session_that_the_environment_names_and_no_other(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    for session in ("sess-a", "sess-b"):  # the last that a host reported is b
        talk = taught(tmp_path / f"{session}.jsonl", session)
        LocalFolder(str(tmp_path / "w")).hear(session, "claude-code", "velma", str(talk.path), has_ended=False)
    assert stand.run("w", "done", CLAUDE_CODE_SESSION_ID="sess-a").stdout.startswith("sess-a: saved")
    assert "no transcript of session 'unknown'" in stand.run("w", "done", FLEET_SESSION="unknown", expect=1).stderr
    assert [each.session for each in LocalFolder(str(tmp_path / "w")).heard()] == ["sess-b"]


def test_a_second_undo_after_done_does_not_deny_the_first(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    talk = taught(tmp_path / "s.jsonl", "sess-a")
    LocalFolder(str(tmp_path / "w")).hear("sess-a", "claude-code", "velma", str(talk.path), has_ended=False)
    stand.run("w", "done", "--session", "sess-a")
    assert "taken back: reflect-" in stand.run("w", "undo").stdout
    assert "all that can be taken back since `fleet done` is, and" in stand.run("w", "undo", expect=1).stderr


def test_a_sleep_that_only_rendered_pages_does_not_say_that_nothing_changed(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    stand.correct("w", PIN)
    said = stand.run("w", "sleep").stdout
    assert "changed 1: rendered patterns.md" in said
    assert said.endswith("nothing of it needs taking back\n")
    assert stand.run("w", "sleep", "--only", "pages").stdout.endswith("nothing was changed\n")


def test_a_clock_that_jumps_by_days_stops_no_sleep(workspace, wall):
    notes(workspace)
    assert sleeping.sleep(workspace, "velma").run
    wall.ms -= 10 * DAY_MS
    sleeping.sleep(workspace, "velma")
    wall.ms += 40 * DAY_MS
    learning.correct(workspace, "velma", Correction("w", "r", "It broke yesterday"))
    told = by_name(sleeping.sleep(workspace, "velma"))
    assert not any(each.error for each in told.values())


# --- sessions that wait, and reflectors that fail -------------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path):
    """A stage with a session that ended and was not reflected on."""
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    talk = taught(tmp_path / "t/s.jsonl")
    event = {"session_id": talk.session, "hook_event_name": "SessionEnd", "cwd": str(tmp_path / "w")}
    event["transcript_path"] = str(talk.path)
    stand.run("w", "hook", "SessionEnd", text=json.dumps(event), REFLECTION_DISABLED="1")
    return stand


def reflector(stand: Stage, *words: str, agree: bool = True) -> None:
    (stand.folder / "w/fleet.toml").write_text(f'[reflect]\nreflector = "command"\ncommand = {json.dumps(words)}\n')
    if agree:
        stand.run("w", "reflect", "--agree")


def test_a_choice_of_the_reflector_is_one_document_and_none_beside_what_was_reflected_on(waiting):
    reflector(waiting, "/bin/cat", agree=False)
    agreed = json.loads(waiting.run("w", "reflect", "--agree", "--json").stdout)
    assert agreed == {"reflector": "command", "agreed": ['command ["/bin/cat"]'], "trouble": ""}
    assert json.loads(waiting.run("w", "reflect", "--agree", "--json").stdout)["agreed"] == []
    (waiting.folder / "w/fleet.toml").write_text("")
    assert json.loads(waiting.run("w", "reflect", "--use", "rules", "--json").stdout)["reflector"] == "rules"
    talk = str(waiting.folder / "t/s.jsonl")
    [both] = json.loads(waiting.run("w", "reflect", "--use", "rules", "--transcript", talk, "--json").stdout)
    assert both["record"]["reflector"] == "rules"


def reflected(stand: Stage, *words: str, **env: str) -> dict:
    slept = json.loads(stand.run("w", "sleep", "--only", "reflections", "--json", *words, **env).stdout)
    return slept["phases"][0]


def test_a_dry_run_shows_the_sessions_that_a_sleep_would_reflect_on_and_what_that_may_cost(waiting):
    shown = reflected(waiting, "--dry-run")
    assert (shown["read"], shown["changed"]) == ("1 session that has ended", 1)
    assert shown["told"] == "1 session to reflect on, by rules for at most $0.00"
    reflector(waiting, "/bin/false", agree=False)
    assert "nobody on this machine agreed" in reflected(waiting, "--dry-run")["left"][0]
    waiting.run("w", "reflect", "--agree")
    assert reflected(waiting, "--dry-run")["told"] == "1 session to reflect on, by command for at most $0.50"
    full = reflected(waiting, "--dry-run", REFLECTION_DAILY_CAP_USD="0.1")
    assert (full["changed"], "the day's cap of $0.1 leaves no room" in full["left"][0]) == (0, True)
    reflector(waiting, "/bin/cat")
    assert reflected(waiting, REFLECTION_DISABLED="1")["changed"] == 0
    assert reflected(waiting, "--dry-run")["changed"] == 1, "a dry run forgets nothing"


def test_a_reflection_that_failed_is_left_and_no_success(waiting):
    reflector(waiting, "/bin/false")
    phase = reflected(waiting)
    assert phase["changed"] == 0
    assert "exit code 1" in phase["left"][0]
    passes = Records(Workspace(waiting.folder / "w"), "velma").passes()
    assert [(each.record.kind, each.record.outcome) for each in passes] == [("reflection", "skipped")]


def test_a_dry_run_counts_what_would_wait_in_the_inbox_and_puts_nothing_there(workspace):
    for text in ("Always squash the commits before a merge", "Never squash the commits before a merge"):
        learning.correct(workspace, "velma", Correction("it went wrong", "", text))
    for is_dry in (True, True, False):
        phase = by_name(sleeping.sleep(workspace, "velma", dry_run=is_dry, only=["review"]))["review"]
        assert (phase.changed, phase.summary) == (1, "1 thing more to decide: fleet inbox")
    assert not by_name(sleeping.sleep(workspace, "velma", dry_run=True, only=["review"]))["review"].changed


def test_a_dry_run_shows_what_came_up_in_three_sessions(workspace):
    daily_logs(workspace)
    before = pages(workspace)
    shown = by_name(sleeping.sleep(workspace, "velma", dry_run=True, only=["observations"]))["observations"]
    assert pages(workspace) == before
    done = by_name(sleeping.sleep(workspace, "velma", only=["observations"]))["observations"]
    assert (shown.changed, shown.summary) == (done.changed, done.summary) == (1, "1 row is ready to promote")
