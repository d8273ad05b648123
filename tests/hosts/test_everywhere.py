"""One workspace wherever an agent works: in a worktree, in a clone that names nobody, as a subagent."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.store.homes import root_around
from tests import commands
from tests.hosts.conftest import SESSION

CORRECTION = "No, that's wrong. You should have used pnpm, not npm."
LESSON = "Use awk for user input"


def git(where: Path, *words: str) -> None:
    name = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *name, *words], cwd=where, check=True, capture_output=True)


def fleet(place, where: Path, *words: str, expect: int = 0, **env: str) -> str:
    done = commands.run(words, where, place.environment(**env), timeout_s=60)
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


def promote(place) -> None:
    """Log the lesson until it stands in the memory: every start has it then, and not the first one alone."""
    for number in range(2):
        place.fleet("correct", "--wrong", f"w{number}", "--right", "r", "--pattern", LESSON)


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


def test_a_worktree_has_the_journal_of_its_own_branch(project):
    where = worktree(project, project.folder.parent / "beside")
    git(where, "switch", "-qc", "side")
    git(project.folder, "switch", "-qc", "trunk")
    assert "the journal of side" in fleet(project, where, "journal", "--title", "Port the parser")
    assert "the journal of trunk" in project.fleet("journal", "--title", "Mend the build").stdout
    assert "Port the parser" in fleet(project, where, "handover")
    assert "Port the parser" not in project.fleet("handover").stdout


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


# --- a clone that names nobody ----------------------------------------------------------------------------------------


@pytest.fixture
def clone(project):
    """A fresh clone of the project, in which nobody has named an agent; the place looks at it from now on."""
    git(project.folder.parent, "clone", "-q", str(project.folder), "clone")
    project.folder = project.folder.parent / "clone"
    return project


def told(place, event: str, **more: object) -> dict:
    out = place.hook(event, {"prompt_id": "1", **more}).stdout
    return json.loads(out) if out else {}


def guests(place) -> str:
    path = place.folder / "agents/guest/corrections.md"
    return path.read_text() if path.exists() else ""


def test_in_a_clone_that_names_nobody_a_guest_logs_and_the_person_is_told_once(clone):
    said = told(clone, "SessionStart", source="startup")
    assert "fleet init --agent NAME" in said["systemMessage"]
    assert "systemMessage" not in told(clone, "SessionStart", source="startup", session_id="another")
    said = told(clone, "UserPromptSubmit", prompt=CORRECTION)["hookSpecificOutput"]["additionalContext"]
    assert "pnpm" in guests(clone)
    entry = re.search(r"c-[0-9a-f]{16}", said)[0]
    assert "seen 1 time" in clone.fleet("learn", entry, "--pattern", "Use pnpm in this repository").stdout
    assert (
        "seen 2 times"
        in clone.fleet(
            "correct", "--wrong", "npm", "--right", "pnpm", "--pattern", "Use pnpm in this repository"
        ).stdout
    )
    clone.hook("Stop", {"stop_hook_active": False})
    assert not [line for line in clone.log() if "Error" in line["what"]]


def test_a_name_that_cannot_be_an_agents_is_told_and_what_was_logged_under_guest_is_taken_over(place):
    said = json.loads(place.hook("SessionStart", {"source": "startup"}, FLEET_AGENT="Tank").stdout)["systemMessage"]
    assert "FLEET_AGENT='Tank' cannot be an agent's name" in said
    assert "mend that first" in said, "else it is guest's, whoever is named here"
    assert said.endswith("`fleet init --agent NAME` takes it over")
    place.hook("UserPromptSubmit", {"prompt": CORRECTION}, FLEET_AGENT="Tank")
    place.fleet("init", "--agent", "tank")
    assert "pnpm" in place.fleet("learn", "--waiting").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("correct", "--wrong", "w", "--right", "r", "--pattern", "Pin every version"),
        ("discover", "--problem", "It hangs", "--solution", "s"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_logs_as_a_guest_says_that_it_counts_once_an_agent_is_named(clone, words):
    assert "fleet init --agent NAME" in clone.fleet(*words).stderr
    clone.fleet("init", "--agent", "velma")
    assert "fleet init" not in clone.fleet(*words).stderr


def test_what_a_guest_logged_leaves_this_machine_only_under_a_name(clone, tmp_path):
    remote = tmp_path / "clan.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    clone.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Pin the version of every action")
    clone.fleet("discover", "--problem", "It hangs", "--solution", "s")
    for words in (("sync", "--yes"), ("compact",)):
        assert "fleet init --agent NAME" in clone.fleet(*words, expect=2).stderr
    assert not [*clone.folder.glob("clan-learnings/*.d/*")]
    done = clone.fleet("init", "--agent", "velma", "--remote", str(remote), "--yes").stdout
    assert "velma has taken over" in done
    clone.fleet("sync")
    shown = subprocess.run(
        ["git", "grep", "-h", "", "fleet"], cwd=remote, check=True, capture_output=True, text=True
    ).stdout
    assert "Pin the version" in shown
    assert "It hangs" in shown
    assert "velma." in shown
    assert "guest" not in shown


def test_an_agent_that_is_named_takes_over_each_entry_once(clone):
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every variable", "--session")
    for number in range(2):
        clone.fleet(*words, f"s{number}")
    clone.hook("UserPromptSubmit", {"prompt": CORRECTION})
    clone.fleet("journal", "--title", "As a guest")
    kept = guests(clone)
    clone.fleet("init", "--agent", "velma")
    assert not (clone.folder / "agents/guest/corrections.md").exists()
    log = clone.folder / "agents/velma/corrections.md"
    assert log.read_text().startswith("# Corrections — velma\n")
    assert "As a guest" in (clone.folder / "agents/velma/JOURNAL.md").read_text()

    def seen() -> list[int]:
        clone.fleet("correct", "--wrong", "x", "--right", "y", "--pattern", "Anything else")  # counts the log
        found = json.loads(clone.fleet("patterns", "--json").stdout)["patterns"]
        return [each["seen"] for each in found if each["text"] == "Quote every variable"]

    assert seen() == [2]
    assert "No, that's wrong" in clone.fleet("learn", "--waiting").stdout
    (clone.folder / "agents/guest").mkdir(exist_ok=True)
    (clone.folder / "agents/guest/corrections.md").write_text(kept)  # a crash before it was taken away
    clone.fleet("init", "--agent", "velma")
    assert seen() == [2]
    assert log.read_text().count("Quote every variable") == 2
    assert "no agent is named" not in told(clone, "SessionStart", source="startup")["systemMessage"]


def test_an_agent_with_a_log_of_its_own_takes_over_a_guests_beside_it(clone):
    lesson = ("correct", "--right", "r", "--pattern", "Quote every variable", "--wrong")
    clone.fleet(*lesson, "as a guest")
    clone.fleet(*lesson, "as velma", "--agent", "velma")
    clone.fleet("init", "--agent", "velma")
    clone.fleet(*lesson, "again")
    (found,) = json.loads(clone.fleet("patterns", "--json").stdout)["patterns"]
    assert found["seen"] == 3


def test_what_a_guest_logged_counts_and_is_shown_from_the_moment_an_agent_is_named(clone):
    clone.fleet("correct", "--wrong", "a", "--right", "b", "--pattern", "Use tabs in `Makefile` recipes")
    clone.fleet("init", "--agent", "velma")
    assert json.loads(clone.fleet("status", "--json").stdout)["patterns"] == 1
    assert "Use tabs" in clone.context("SessionStart", {"source": "startup"})
    step = {"session_id": "another", "tool_name": "Edit", "tool_input": {"file_path": str(clone.folder / "Makefile")}}
    assert "Use tabs" in clone.context("PreToolUse", step)


@pytest.mark.parametrize("shown_by", ["SessionStart", "status"])
def test_what_somebody_writes_into_a_log_by_hand_is_known_to_the_next_start_and_to_status(project, shown_by):
    project.context("SessionStart", {"source": "startup"})
    log = project.folder / "agents/tank/corrections.md"
    fields = "**What I got wrong:** w\n**Correct approach:** r\n**Pattern:** Ask before a deploy"
    log.write_text(f"{log.read_text()}\n## 2026-11-20 — By hand\n{fields}\n")
    if shown_by == "status":
        assert json.loads(project.fleet("status", "--json").stdout)["patterns"] == 2
    assert "Ask before a deploy" in project.context("SessionStart", {"source": "startup", "session_id": "another"})


def test_copies_of_a_guests_folder_that_get_two_names_count_its_entries_once(clone, tmp_path):
    remote, copy = tmp_path / "clan.git", tmp_path / "copy"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    lesson = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every variable", "--session")
    for session in ("s1", "s1", "s2"):
        clone.fleet(*lesson, session)
    shutil.copytree(clone.folder, copy)
    clone.fleet("init", "--agent", "velma", "--remote", str(remote), "--yes")
    fleet(clone, copy, "init", "--agent", "tank", "--remote", str(remote), "--yes")
    for where in (clone.folder, copy, clone.folder):
        fleet(clone, where, "sync")
    for where in (clone.folder, copy):
        (found,) = json.loads(fleet(clone, where, "patterns", "--json"))["patterns"]
        assert (found["seen"], found["sessions"]) == (3, 2)
    fleet(clone, copy, *lesson, "s3")
    (found,) = json.loads(fleet(clone, copy, "patterns", "--json"))["patterns"]
    assert (found["seen"], found["sessions"]) == (4, 3)


def test_nobody_is_named_guest(bare):
    bare.fleet("init", "--agent", "guest", expect=2)
    assert not (bare.folder / "fleet.toml").exists()


# --- what cannot be written -------------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_a_session_starts_all_the_same_and_it_is_said_once(project):
    where = worktree(project, project.folder.parent / "beside")
    promote(project)
    project.context("SessionStart")  # made ready
    (project.folder / ".fleet/fired").rename(project.folder / ".fleet/was")
    (project.folder / ".fleet/fired").write_text("")  # as on a read-only mount: not even root can write a mark
    told_in = {"cwd": str(where), "session_id": "another"}
    said = told(project, "SessionStart", source="startup", **told_in)
    assert "fleet correct" in said["hookSpecificOutput"]["additionalContext"]
    assert "cannot write" in said["systemMessage"]
    assert "fleet logged" in told(project, "UserPromptSubmit", prompt=CORRECTION, **told_in)["systemMessage"]
    assert "nothing of this session is logged" not in said["systemMessage"]
    assert "systemMessage" not in told(project, "SessionStart", source="compact", **told_in)


def test_what_a_person_says_is_logged_once_where_only_the_agents_files_can_be_written(project):
    (project.folder / ".fleet/locks/log-tank.lock").unlink(missing_ok=True)
    payload = json.dumps({"session_id": "another", "cwd": str(project.folder), "prompt": CORRECTION})
    hook = f"printf %s {shlex.quote(payload)} | {sys.executable} -m fleet hook UserPromptSubmit"
    script = f"mount --bind .fleet .fleet && mount -o remount,bind,ro .fleet || exit 77\n{hook}\n{hook}"
    before = project.entries().count("## ")
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (1, 77):
        pytest.skip(f"no mount of one's own can be made here: {done.stderr}")
    assert done.stdout.count("fleet logged a correction") == 1
    assert project.entries().count("## ") == before + 1


def test_where_a_session_can_read_nothing_of_what_fleet_noted_it_starts_and_that_is_said(project):
    local = project.folder / ".fleet"
    for name in ("fired", "ready"):
        shutil.rmtree(local / name, ignore_errors=True)
        (local / name).write_text("")  # as in the checkout of another user
    (local / "promotion/tank.json").mkdir(parents=True)
    said = told(project, "SessionStart", source="startup", session_id="another")
    assert "fleet correct" in said["hookSpecificOutput"]["additionalContext"]
    assert "cannot write" in said["systemMessage"]


def test_a_correction_that_cannot_be_logged_is_not_passed_over_in_silence(project):
    log = project.folder / "agents/tank/corrections.md"
    log.rename(log.with_suffix(".was"))
    log.mkdir()
    assert "could not log what you said" in told(project, "UserPromptSubmit", prompt=CORRECTION)["systemMessage"]
    assert any("corrections.md" in line["what"] for line in project.log())
    assert told(project, "UserPromptSubmit", prompt="and now the tests, please, all of them") == {}
    log.rmdir()
    log.with_suffix(".was").rename(log)
    assert "fleet logged" in json.dumps(told(project, "UserPromptSubmit", prompt=CORRECTION))


# --- subagents --------------------------------------------------------------------------------------------------------


def shell(command: str, **more: object) -> dict:
    return {"tool_name": "Bash", "tool_input": {"command": command}, **more}


def refused(place, command: str, **more: object) -> bool:
    return b'"deny"' in place.hook("PreToolUse", shell(command, **more)).stdout


def test_a_subagent_starts_with_what_a_session_starts_with_each_of_them(project):
    promote(project)
    project.context("SessionStart")
    for number in "12":
        said = told(project, "SubagentStart", agent_id=f"a{number}", agent_type="Explore")["hookSpecificOutput"]
        assert said["hookEventName"] == "SubagentStart"
        assert LESSON in said["additionalContext"]


def test_a_subagents_failures_are_its_own_and_a_declaration_in_its_session_opens_its_door(place):
    for _ in range(2):
        place.hook("PostToolUseFailure", shell("./deploy.sh", error="Exit code 1\nboom", agent_id="a1"))
    place.hook("PostToolUseFailure", shell("./deploy.sh", error="Exit code 1\nboom"))
    assert not refused(place, "./deploy.sh")
    assert not refused(place, "./deploy.sh", agent_id="a1")
    place.hook("PostToolUseFailure", shell("./deploy.sh", error="Exit code 1\nboom", agent_id="a1"))
    assert refused(place, "./deploy.sh", agent_id="a1")
    assert not refused(place, "./deploy.sh")
    assert not refused(place, "./deploy.sh", agent_id="a2")
    words = ("mutate", "M4", "--failed", "f", "--switch", "s", "--why", "w", "--session", SESSION)
    place.fleet(*words)
    assert not refused(place, "./deploy.sh", agent_id="a1")
    place.hook("PostToolUse", shell("./deploy.sh", agent_id="a1"))
    assert "M4" in place.fleet("mutate", "--proposed").stdout


def test_a_subagent_is_never_sent_round_again(place):
    place.hook("UserPromptSubmit", {"prompt": CORRECTION})
    for event in ("SubagentStop", "Stop"):
        more = {"agent_id": "a1", "stop_hook_active": False}
        assert place.hook(event, more).stdout == b""
    assert place.hook("Stop", {"stop_hook_active": False}).stdout
    assert place.log() == []


def test_what_a_background_task_reports_is_no_persons_word(place):
    said = f"<task-notification>\n<task-id>1</task-id>\n<result>{CORRECTION}</result>\n</task-notification>"
    assert place.hook("UserPromptSubmit", {"prompt": said}).stdout == b""
    assert place.entries() == ""
