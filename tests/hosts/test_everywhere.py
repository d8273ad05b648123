"""One workspace wherever an agent works: in a worktree, in a clone that names nobody, as a subagent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.hosts.calls import root_around

CORRECTION = "No, that's wrong. You should have used pnpm, not npm."
LESSON = "Use awk for user input"


def git(where: Path, *words: str) -> None:
    name = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *name, *words], cwd=where, check=True, capture_output=True)


def fleet(place, where: Path, *words: str, expect: int = 0, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", *words],
        cwd=where,
        env=place.environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(place):
    """A workspace that is a git checkout, with its configuration tracked; one lesson is known."""
    (place.folder / "src").mkdir()
    (place.folder / "src/a.py").write_text("")
    git(place.folder, "init", "-q")
    (place.folder / ".gitignore").write_text("/.fleet/\n/agents/\n/clan-learnings/\n")
    git(place.folder, "add", "-A")
    git(place.folder, "commit", "-qm", "x")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)
    return place


def worktree(place, path: Path) -> Path:
    git(place.folder, "worktree", "add", "-q", "--detach", str(path))
    return path


# --- worktrees --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "src"])
@pytest.mark.parametrize("path", ["../beside", ".claude/worktrees/claudes-own"])
@pytest.mark.parametrize("is_tracked", [True, False], ids=["tracked", "untracked"])
def test_a_worktree_has_the_main_checkouts_workspace_for_hook_and_command_alike(project, inside, path, is_tracked):
    if not is_tracked:
        git(project.folder, "rm", "-q", "--cached", "fleet.toml")
        git(project.folder, "commit", "-qm", "y")
    where = worktree(project, Path(os.path.normpath(project.folder / path)))
    told = {"cwd": str(where / inside)}
    assert LESSON in project.context("SessionStart", told)
    project.hook("UserPromptSubmit", {**told, "prompt": CORRECTION})
    assert "pnpm" in project.entries()
    assert LESSON in fleet(project, where / inside, "patterns")
    fleet(project, where / inside, "correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every variable")
    assert "Quote every variable" in project.fleet("patterns").stdout
    assert not [name for name in (".fleet", "agents", "clan-learnings") if (where / name).exists()]


def test_init_in_a_worktree_names_an_agent_of_the_main_checkout(project):
    where = worktree(project, project.folder.parent / "beside")
    fleet(project, where, "init", "--agent", "velma")
    assert (project.folder / "agents/velma").is_dir()
    assert not (where / ".fleet").exists()


def test_a_workspace_that_was_made_in_a_worktree_stays_its_own(project):
    where = worktree(project, project.folder.parent / "beside")
    fleet(project, where, "init", "--agent", "velma", FLEET_DIR=str(where))
    assert root_around(str(where)) == str(where)


def test_a_folder_that_only_says_it_is_a_worktree_gets_no_other_workspace(project, tmp_path):
    real = worktree(project, project.folder.parent / "beside")
    false = tmp_path / "false"
    false.mkdir()
    (false / ".git").write_text((real / ".git").read_text())
    assert root_around(str(real)) == str(project.folder)
    assert root_around(str(false)) == ""
    for text in ("", "gitdir: ", "gitdir: /nowhere\n", "gitdir: \0\n", "x" * 100_000, "gitdir: " + "a/" * 50_000):
        (false / ".git").write_text(text)
        assert root_around(str(false)) == ""
    (false / ".git").unlink()
    (false / ".git").symlink_to(real / ".git")
    assert root_around(str(false)) in ("", str(project.folder))


def test_a_clone_beside_a_submodule_and_a_bare_repository_have_no_main_checkout(project, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", str(project.folder), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", "--detach", str(tmp_path / "of-bare"))
    assert root_around(str(tmp_path / "of-bare")) == str(tmp_path / "of-bare")
    git(tmp_path, "init", "-q", "super")
    add = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(project.folder), "sub")
    git(tmp_path / "super", *add)
    assert root_around(str(tmp_path / "super/sub")) == str(tmp_path / "super/sub")


def test_an_edit_in_a_worktree_opens_the_door_though_nobody_reported_it(project):
    for path in (project.folder / ".claude/worktrees/one", project.folder.parent / "two"):
        where = worktree(project, path)
        call = {"tool_name": "Bash", "tool_input": {"command": "./deploy.sh"}, "cwd": str(where / "src")}
        for _ in range(3):
            project.hook("PostToolUseFailure", {**call, "session_id": path.name, "error": "Exit code 1\nboom"})
        assert b"deny" in project.hook("PreToolUse", {**call, "session_id": path.name}).stdout
        (where / "new.txt").write_text("")
        assert b"deny" not in project.hook("PreToolUse", {**call, "session_id": path.name}).stdout
