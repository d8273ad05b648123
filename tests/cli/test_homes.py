"""The place of the agents' homes is a setting: a project may have an ``agents/`` of its own, and it may be moved."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.app import setup
from fleet.learn import restore
from fleet.model.errors import BusyError
from fleet.store import homes
from fleet.store.files import Files
from fleet.store.workspace import Workspace
from tests.cli.conftest import Stage

LESSON = "Quote every path in a shell script"
OTHER = "Pin the version of every action"
SAID = "No, that is wrong: use tabs, not spaces."


def project(stage: Stage, where: str = "w") -> Path:
    """Make a project with a Python package ``agents``, which git tracks."""
    root = stage.folder / where
    (root / "agents/velma").mkdir(parents=True)
    for name in ("__init__.py", "router.py", "velma/__init__.py", "velma/memory.md"):
        (root / "agents" / name).write_text("# the project's own\n")
    stage.git("init", "--quiet", where=where)
    stage.git("add", "-A", where=where)
    stage.git("-c", "user.name=V", "-c", "user.email=v@example.org", "commit", "--quiet", "-m", "x", where=where)
    return root


def below(root: Path, place: str) -> dict[str, str]:
    """Return the text of each file below a folder."""
    return {
        path.relative_to(root / place).as_posix(): path.read_text()
        for path in sorted((root / place).rglob("*"))
        if path.is_file()
    }


def hooked(stage: Stage, where: str, event: str, **more: object) -> str:
    """Have a host call fleet; return what it said."""
    said = {"hook_event_name": event, "session_id": "s", "cwd": str(stage.folder / where), **more}
    return stage.run(where, "hook", event, text=json.dumps(said)).stdout


def promoted(stage: Stage, where: str, text: str = LESSON) -> str:
    """Log a lesson three times; return its id."""
    return [stage.correct(where, text) for _ in range(3)][-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Stage:
    """A stage with a workspace in ``whole``, whose agent has a log, a memory and a journal in the usual place."""
    stage = Stage(tmp_path_factory.mktemp("homes"))
    stage.run("w", "init", "--agent", "velma")
    promoted(stage, "w")
    stage.run("w", "journal", "--title", "Looked at it")
    (stage.folder / "w").rename(stage.folder / "whole")
    return stage


@pytest.fixture
def w(made: Stage) -> Path:
    root = made.folder / "w"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made.folder / "whole", root)
    return root


# --- a project with an agents/ of its own ---------------------------------------------------------------------------


def test_init_leaves_the_projects_own_agents_alone_and_says_so(stage: Stage):
    root = project(stage)
    own = below(root, "agents")
    told = stage.run("w", "init", "--agent", "velma").stdout
    assert "fleet-agents/" in told.splitlines()[0]
    assert 'home = "fleet-agents"' in (root / "fleet.toml").read_text()
    promoted(stage, "w")
    assert below(root, "agents") == own
    assert set(below(root, "fleet-agents")) == {"velma/corrections.md", "velma/memory.md"}
    ignored = (root / ".gitignore").read_text()
    assert "/fleet-agents/*/memory.md" in ignored
    assert "/agents/" not in ignored
    assert sorted(stage.git("status", "--short", where="w").split()) == [".gitignore", "??", "??", "fleet.toml"]
    # Twice changes nothing, and nobody is told of the project's own files.
    assert "fleet-agents" not in stage.run("w", "init").stdout
    assert "agents/router" not in stage.run("w", "doctor").stdout
    assert "homes" not in stage.run("w", "doctor").stdout


def test_files_of_the_projects_own_count_before_git_tracks_them_too_but_not_beside_a_log(stage: Stage):
    for name, path, is_proposed in (("a", "planner.py", True), ("b", "router/main.py", True), ("c", "", False)):
        root = stage.folder / name
        (root / "agents" / path).parent.mkdir(parents=True)
        if path:
            (root / "agents" / path).write_text("x = 1\n")
        assert ("fleet-agents/" in stage.run(name, "init", "--agent", "velma").stdout) == is_proposed
    with_log = stage.folder / "d" / "agents" / "velma"
    with_log.mkdir(parents=True)
    (with_log / "corrections.md").write_text("# Corrections\n")
    (with_log / "diary.md").write_text("mine\n")
    assert "fleet-agents/" not in stage.run("d", "init", "--agent", "velma").stdout


def test_the_whole_loop_with_another_home(stage: Stage):
    root = project(stage)
    own = below(root, "agents")
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.run("w", "init", "--agent", "velma", "--remote", str(stage.remote), "--home", "./tools/mine/")
    stage.join("tank")
    stage.correct("tank", OTHER)
    stage.run("tank", "sync")
    promoted(stage, "w")
    hooked(stage, "w", "UserPromptSubmit", prompt=SAID)
    stage.run("w", "journal", "--title", "Looked at it")
    stage.run("w", "sync")
    mine = below(root, "tools/mine")
    assert set(mine) == {"velma/corrections.md", "velma/memory.md", "velma/JOURNAL.md"}
    assert SAID[:20] in mine["velma/corrections.md"]
    context = hooked(stage, "w", "SessionStart", source="startup")
    assert LESSON in context
    assert OTHER in context
    assert LESSON in hooked(stage, "w", "SessionStart", source="startup", session_id="t")  # made ready before
    assert "tools/mine/velma/JOURNAL.md" in stage.run("w", "search", "looked at").stdout
    assert "tools/mine/velma/corrections.md" in stage.run("w", "handover").stdout
    # The last of the three is taken back, and with it the promotion.
    runs = json.loads(stage.run("w", "undo", "--list", "--json").stdout)["runs"]
    stage.run("w", "undo", next(each["id"] for each in runs if each["kind"] == "correct"))
    assert LESSON not in below(root, "tools/mine").get("velma/memory.md", "")
    assert below(root, "agents") == own


@pytest.mark.parametrize(
    "home", ["/etc", "..", "a/../b", ".git", "x/.Git", ".fleet/x", "clan-learnings", "a\tb", "a//b"]
)
def test_a_place_that_cannot_be_one_is_refused_before_anything_is_made(stage: Stage, home: str):
    assert "cannot be" in stage.run("w", "init", "--agent", "velma", "--home", home, expect=2).stderr
    assert not list((stage.folder / "w").iterdir())


def test_a_link_is_no_place(made: Stage, w: Path):
    (made.folder / "outside").mkdir(exist_ok=True)
    (w / "there").symlink_to(made.folder / "outside")
    made.run("w", "config", "set", "files.home", "there/x", expect=2)
    assert 'home = "there' not in (w / "fleet.toml").read_text()


def test_a_backup_names_no_place_and_a_purge_looks_into_it(made: Stage, w: Path):
    known = json.loads(made.run("w", "patterns", "--json").stdout)["patterns"][0]["id"]
    made.run("w", "config", "set", "files.home", "tools/mine")
    backup = str(made.folder / "b.tar.gz")
    made.run("w", "backup", backup, "--yes")
    shutil.rmtree(made.folder / "elsewhere", ignore_errors=True)
    made.run("elsewhere", "init", "--agent", "tank", "--home", ".agents")
    made.run("elsewhere", "restore-backup", backup, "--yes")
    assert below(made.folder / "elsewhere", ".agents/velma") == below(w, "tools/mine/velma")
    assert made.seen("elsewhere") == {LESSON: 3}
    assert "tools/mine/velma/corrections.md" in made.run("w", "purge", known, "--yes", expect=None).stdout


BLOCK = """
## MUTATION: M4 (Change the tool)
Failed 3x on: ./deploy.sh
Switching to: the other script
Rationale: this one cannot work here
"""


def test_the_door_looks_for_journals_and_own_files_where_the_home_is(made: Stage, w: Path):
    made.run("w", "config", "set", "files.home", "tools/mine")
    command = {"tool_name": "Bash", "tool_input": {"command": "./deploy.sh"}}
    for _ in range(3):
        hooked(made, "w", "PostToolUseFailure", **command, error="Exit code 1\nboom", is_interrupt=False)
    made.correct("w", OTHER)  # what fleet writes itself opens no door
    assert "deny" in hooked(made, "w", "PreToolUse", **command)
    with (w / "tools/mine/velma/JOURNAL.md").open("a") as journal:
        journal.write(BLOCK)
    assert hooked(made, "w", "PreToolUse", **command) == ""


# --- moved ----------------------------------------------------------------------------------------------------------


def test_a_home_without_a_file_moves_too(stage: Stage):
    stage.run("w", "init", "--agent", "velma")
    stage.run("w", "init", "--agent", "tank")
    root = stage.folder / "w"
    (root / "agents/router.py").write_text("")
    stage.run("w", "config", "set", "files.home", "tools/mine")
    assert [each.name for each in (root / "agents").iterdir()] == ["router.py"]
    (root / "agents/router.py").unlink()
    stage.run("w", "config", "set", "files.home", "agents")
    stage.run("w", "config", "set", "files.home", "tools/mine")
    assert not (root / "agents").exists()


def test_the_files_follow_the_setting_and_come_back(made: Stage, w: Path):
    before = below(w, "agents")
    told = made.run("w", "config", "set", "files.home", "fleet-agents")
    assert 'files.home = "fleet-agents"' in told.stdout
    assert below(w, "fleet-agents") == before
    assert not (w / "agents").exists()
    assert "/fleet-agents/*/memory.md" in (w / ".gitignore").read_text()
    # A run of before is taken back where its files are now.
    run = next(line.split()[0] for line in made.run("w", "undo", "--list").stdout.splitlines() if "correct-" in line)
    made.run("w", "undo", run)
    assert LESSON not in below(w, "fleet-agents").get("velma/memory.md", "")
    setting = next(line.split()[0] for line in made.run("w", "undo", "--list").stdout.splitlines() if "config-" in line)
    assert "came from fleet-agents/ to agents/" in made.run("w", "undo", setting).stdout
    assert "velma/corrections.md" in below(w, "agents")
    assert not (w / "fleet-agents").exists()


def test_a_file_that_a_redo_makes_anew_comes_to_where_the_homes_are_now(made: Stage, w: Path):
    [lesson] = [each["id"] for each in made.patterns("w")["patterns"] if each["text"] == LESSON]
    made.run("w", "demote", lesson)
    (w / "agents/velma/memory.md").unlink()
    made.run("w", "promote", lesson)
    back = json.loads(made.run("w", "undo", "--json").stdout)["undone_by"]
    assert not (w / "agents/velma/memory.md").exists()
    made.run("w", "config", "set", "files.home", "fleet-agents")
    made.run("w", "undo", back)
    assert LESSON in below(w, "fleet-agents")["velma/memory.md"]
    assert not (w / "agents").exists()


def test_the_files_follow_a_setting_that_came_with_the_project(made: Stage, w: Path):
    before = below(w, "agents")
    (w / "fleet.toml").write_text('[files]\nhome = ".agents"\n')
    assert LESSON in hooked(made, "w", "SessionStart", source="startup")
    assert below(w, ".agents") == before


def test_what_was_logged_in_both_places_is_one_log(made: Stage, w: Path):
    # As after a crash in between: the setting is written, one file is there, and others were logged meanwhile.
    shutil.copytree(w / "agents", w / "new")
    made.correct("w", OTHER)
    (w / "fleet.toml").write_text('[files]\nhome = "new"\n')
    made.run("w", "sync")
    log = (w / "new/velma/corrections.md").read_text()
    assert OTHER in log
    assert made.seen("w") == {LESSON: 3, OTHER: 1}
    assert not (w / "agents").exists()
    assert "homes" not in made.run("w", "doctor").stdout


class _DeadError(BaseException):
    """The process ends here."""


class _Dying(Files):
    """Files of a process that ends before its nth change."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _DeadError

    def append(self, path: Path, data: bytes, *, is_durable: bool = True) -> None:
        self._live()
        super().append(path, data, is_durable=is_durable)

    def replace(self, path: Path, data: bytes, *, is_durable: bool = True) -> bool:
        self._live()
        return super().replace(path, data, is_durable=is_durable)

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)


def test_a_crash_in_between_loses_nothing(made: Stage, w: Path):
    (w / "agents/velma/notes.jsonl").write_text("{}\n")
    before = below(w, "agents")
    for changes in range(20):
        root = made.folder / "crashed"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(w, root)
        (root / "fleet.toml").write_text('[files]\nhome = "new"\n')
        with suppress(_DeadError):
            restore.bring(Workspace(root, files=_Dying(root, changes)))
            break
        restore.bring(Workspace(root))
        assert below(root, "new") == before
        assert not (root / "agents").exists()
    assert 2 * len(before) <= changes < 19


def test_a_place_that_is_the_present_one_on_a_disk_that_ignores_case_is_left_alone(made: Stage, w: Path, monkeypatch):
    monkeypatch.setattr(Path, "samefile", lambda one, two: str(one).casefold() == str(two).casefold())
    (w / "Agents/velma").mkdir(parents=True)
    (w / "fleet.toml").write_text('[files]\nhome = "Agents"\n')
    before, workspace = below(w, "agents"), Workspace(w)
    restore.bring(workspace)
    assert below(w, "agents") == before
    assert not workspace.warnings


def test_no_guest_logs_between_the_reading_and_the_removal_of_its_log(stage: Stage, monkeypatch):
    stage.run("w", "init")
    stage.correct("w", LESSON, "--agent", "guest")
    workspace, remove, unlocked = Workspace(stage.folder / "w"), Files.remove, []

    def removed(files: Files, path: Path) -> None:
        with suppress(BusyError), workspace.log_lock("guest", 0):
            unlocked.append(path)
        remove(files, path)

    monkeypatch.setattr(Files, "remove", removed)
    with workspace.locked():
        assert restore.take_over(workspace, "velma")
    assert not unlocked


def test_what_a_hook_logs_while_an_agent_is_named_is_that_agents(stage: Stage, monkeypatch):
    root = stage.folder / "w"
    root.mkdir()
    (root / "fleet.toml").write_text("")
    hooked(stage, "w", "UserPromptSubmit", prompt=SAID)
    writing = Workspace.writing

    def delayed(workspace: Workspace, *words, **named):
        hooked(stage, "w", "UserPromptSubmit", prompt=SAID, session_id="meanwhile")
        return writing(workspace, *words, **named)

    monkeypatch.setattr(Workspace, "writing", delayed)
    workspace, said, _ = setup.join(root, "velma", "", "")
    workspace.close()
    assert any("taken over" in each for each in said)
    own = workspace.home("velma")
    assert (own / "corrections.md").read_text().count("**User flagged:**") >= 2
    assert not (own.parent / "guest/corrections.md").exists()


def test_what_cannot_be_brought_is_named(made: Stage, w: Path):
    (w / "fleet.toml").write_text('[files]\nhome = "new"\n')
    (w / "new").write_text("a file")
    done = made.run("w", "doctor", expect=None)
    assert "agents/velma/corrections.md" in done.stdout
    assert LESSON in (w / "agents/velma/memory.md").read_text()


@pytest.mark.parametrize(
    "said",
    ["[share\n", "[files]\nhome = 3\n", '[files]\nhome = "../x"\n', "files = 1\n", '[files]\nhome = "e\u0301"\n'],
)
def test_logging_goes_on_where_it_was_while_the_settings_are_broken(made: Stage, w: Path, said: str):
    made.run("w", "config", "set", "files.home", "new")
    (w / "fleet.toml").write_text(said)
    assert "fleet.toml" in made.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", OTHER).stderr
    listed = json.loads(made.run("w", "config", "--json").stdout)["settings"]
    assert [each["value"] for each in listed if each["name"] == "files.home"] == ["new"]
    hooked(made, "w", "UserPromptSubmit", prompt=SAID)
    log = (w / "new/velma/corrections.md").read_text()
    assert OTHER in log
    assert SAID[:20] in log
    assert not (w / "agents").exists()


def test_a_hook_of_a_fresh_clone_logs_where_the_project_says(stage: Stage):
    root = project(stage)
    (root / "fleet.toml").write_text('[files]\nhome = "fleet-agents"\n')
    own = below(root, "agents")
    hooked(stage, "w", "UserPromptSubmit", prompt=SAID)
    assert SAID[:20] in (root / "fleet-agents/guest/corrections.md").read_text()
    assert below(root, "agents") == own
    assert "the project's own" not in stage.run("w", "init", "--agent", "velma").stdout
    assert below(root, "agents") == own
    assert SAID[:20] in (root / "fleet-agents/velma/corrections.md").read_text()


def test_nothing_is_taken_from_behind_a_link(stage: Stage):
    outside = stage.folder / "outside"
    outside.mkdir()
    (outside / "corrections.md").write_text("mine\n")
    (stage.folder / "w/agents").mkdir(parents=True)
    (stage.folder / "w/agents/guest").symlink_to(outside)
    stage.run("w", "init", "--agent", "velma")
    assert (outside / "corrections.md").read_text() == "mine\n"


# --- what the project's own git sees --------------------------------------------------------------------------------


def fill(home: Path) -> list[str]:
    """Write a file of each kind that fleet writes into a home; return their names."""
    kinds = [*homes.FILES, "archive-2026-11-23.md", "journals/main.md", "skills/tidy-up/SKILL.md"]
    kinds += [".agents/logs/2026-11-23.md", ".agents/topics/git.md", ".agents/local.md"]
    kinds += [".memory.md.0a1b2c3d.tmp", "journals/.main.md.0a1b2c3d.tmp"]  # of a process that was killed
    for name in kinds:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("of people\n")
    return kinds


def test_git_add_takes_no_file_of_an_agents_own_and_every_one_of_the_projects(stage: Stage):
    stage.git("init", "--quiet", "w")
    stage.run("w", "init", "--agent", "velma")
    fill(stage.folder / "w/agents/velma")
    for name in ("clan-learnings/.patterns.md.0a1b2c3d.tmp", "..agents.local.md.0a1b2c3d.tmp"):
        (stage.folder / "w" / name).touch()
    theirs = [stage.folder / "w/agents/velma" / name for name in ("router.py", "skills/tidy-up/run.py", "README.md")]
    for path in theirs:
        path.write_text("the project's own\n")
    stage.git("add", "--all", where="w")
    staged = stage.git("diff", "--cached", "--name-only", where="w").split()
    own = [path.relative_to(stage.folder / "w").as_posix() for path in theirs]
    assert sorted(staged) == sorted([".gitignore", "fleet.toml", *own])


def test_an_older_workspace_is_told_and_gets_the_missing_lines_with_the_next_init(stage: Stage):
    stage.git("init", "--quiet", "w")
    stage.run("w", "init", "--agent", "velma")
    ignored = stage.folder / "w/.gitignore"
    whole = ignored.read_text().splitlines(keepends=True)
    ignored.write_text("".join(row for row in whole if "USER.md" not in row and "user-model" not in row))
    told = stage.run("w", "doctor", expect=1).stdout
    assert "/agents/*/USER.md, /agents/*/user-model.md" in told
    stage.run("w", "init")
    assert sorted(ignored.read_text().splitlines(keepends=True)) == sorted(whole)
    assert "USER.md" not in stage.run("w", "doctor", expect=None).stdout


def test_whoever_wants_the_agents_files_in_the_projects_git_is_left_alone(stage: Stage):
    stage.git("init", "--quiet", "w")
    stage.run("w", "init", "--agent", "velma")
    ignored = stage.folder / "w/.gitignore"
    ignored.write_text("".join(row for row in ignored.read_text().splitlines(keepends=True) if "/agents/*" not in row))
    assert "agents' own" not in stage.run("w", "doctor", expect=None).stdout
