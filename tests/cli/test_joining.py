"""``fleet init`` joins: one question at a time on a terminal, all of it by flags; and who commits what it shares."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from fleet.store import git
from tests.cli.conftest import Shell

LESSON = "Check the CLI version before using --json"
WHO = "Velma Dinkley <velma@example.org>"


def project(shell: Shell, where: str) -> None:
    """Make a project with an ``agents/`` package of its own, a CLAUDE.md, and an origin."""
    root = shell.folder / where
    (root / "agents").mkdir(parents=True)
    (root / "agents/__init__.py").write_text("")
    (root / "agents/router.py").write_text("ROUTES = {}\n")
    (root / "CLAUDE.md").write_text("# Rules\n\n## Lessons\n\n- Always run the linter before you commit anything\n")
    if not shell.remote.exists():
        shell.git("init", "--quiet", "--bare", str(shell.remote))
    shell.git("init", "--quiet", where=where)
    shell.git("config", "user.name", "Velma Dinkley", where=where)
    shell.git("config", "user.email", "velma@example.org", where=where)
    shell.git("add", "-A", where=where)
    shell.git("commit", "--quiet", "-m", "x", where=where)
    shell.git("remote", "add", "origin", str(shell.remote), where=where)


def on_a_terminal(
    shell: Shell,
    where: str,
    answers: list[tuple[str, str]],
    *words: str,
    expect: int = 0,
    command: str = "init",
    term: str = "dumb",
) -> str:
    """Run ``fleet init`` on a terminal; type each answer once its question stands there. Return all that was shown."""
    pid, handle = pty.fork()
    if pid == 0:
        os.chdir(shell.folder / where)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "fleet", command, *words],
            shell.environment(TERM=term, COLUMNS="300"),
        )
    shown, seen, until = "", 0, time.monotonic() + 120
    with suppress(OSError):  # it has ended
        while time.monotonic() < until:
            if not select.select([handle], [], [], 1)[0]:
                continue
            if not (part := os.read(handle, 65_536)):
                break
            shown += part.decode()
            if answers and answers[0][0] in shown[seen:]:
                seen = len(shown)
                os.write(handle, f"{answers.pop(0)[1]}\n".encode())
    if time.monotonic() >= until:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    assert os.waitstatus_to_exitcode(status) == expect, shown
    assert not answers, (answers, shown)
    return shown


def test_a_no_to_the_question_for_a_remote_is_no_path(shell: Shell):
    (shell.folder / "w").mkdir()
    questions = [("Git remote to share", "y"), ("'y' is no address", "n"), ("Keep what fleet writes", "")]
    shown = on_a_terminal(shell, "w", questions, "--agent", "velma", "--install", "none")
    assert "no remote is named here" in shown
    assert shell.run("w", "config", "get", "share.remote").stdout == "\n"


def test_on_a_terminal_one_question_after_the_other_leads_into_the_clan(shell: Shell):
    project(shell, "tank")
    shell.run("tank", "init", "--agent", "tank", "--remote", "origin")
    shell.correct("tank", LESSON)
    shell.run("tank", "sync")
    project(shell, "velma")
    questions = [
        ("Name of the agent", "velma"),
        ("Share lessons through", ""),
        ("Folder for the agents' files", ""),
        ("Keep what fleet writes", ""),
        ("Commit lessons as Velma Dinkley", ""),
        ("Take in 1 lesson from CLAUDE.md", ""),
        ("Let Claude Code call fleet", ""),
    ]
    shown = on_a_terminal(shell, "velma", questions)
    assert "knows 1 lesson from 1 agent" in shown
    assert (shell.folder / "velma/fleet-agents/velma").is_dir()
    assert sorted(each.name for each in (shell.folder / "velma/agents").iterdir()) == ["__init__.py", "router.py"]
    assert "took in 1 new lesson" in shown
    assert "next: `fleet start`" in shown
    assert LESSON in shell.run("velma", "start").stdout
    assert "fleet hook SessionStart" in (shell.folder / "velma/.claude/settings.json").read_text()
    # The project's own package stays git's to see, and nothing that fleet wrote is.
    (shell.folder / "velma/agents/more.py").write_text("")
    news = shell.git("status", "--porcelain", "-uall", where="velma").split()[1::2]
    assert "agents/more.py" in news
    assert not [each for each in news if each.startswith((".fleet/", "agents/velma", "fleet-agents", "clan-learnings"))]
    assert "[Y/n]" not in on_a_terminal(shell, "velma", [])  # asked once


def cloned(shell: Shell) -> None:
    """Make a clan with a lesson, and ``velma``, a clone of the project that names the clan's remote."""
    project(shell, "tank")
    shell.run("tank", "init", "--agent", "tank", "--remote", "origin")
    shell.correct("tank", LESSON)
    shell.run("tank", "sync")
    (shell.folder / "velma").mkdir()
    (shell.folder / "velma/fleet.toml").write_text((shell.folder / "tank/fleet.toml").read_text())


def test_who_says_no_to_the_remote_of_a_sync_is_told_how_to_name_another(shell: Shell):
    cloned(shell)
    shell.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", LESSON, "--agent", "velma")
    no = [("Share this clan's lessons with", "n")]
    shown = on_a_terminal(shell, "velma", no, "--agent", "velma", command="sync", expect=2)
    assert "nothing was sent. Name another remote with `fleet init --remote URL`" in shown


def test_in_a_clone_that_names_the_remote_a_terminal_asks_about_it_and_fetches_at_once(shell: Shell):
    cloned(shell)
    question = f"Share lessons through {shell.remote}, branch fleet (named in fleet.toml, perhaps by somebody else)?"
    others = [("Name of the agent", "velma"), ("Keep what fleet writes", "")]
    shell.git("init", "--quiet", where="velma")
    shell.git("config", "user.name", "Velma Dinkley", where="velma")
    shell.git("config", "user.email", "velma@example.org", where="velma")
    shown = on_a_terminal(shell, "velma", [*others, (question, "n"), ("Let Claude Code call fleet", "n")])
    assert "nobody has agreed" in shown
    assert "Commit lessons as" not in shown, "there is nobody yet to commit them for"
    assert "Fetching" not in shown
    assert "nobody has agreed" in on_a_terminal(shell, "velma", [(question, "")])  # Enter is no yes to another's file
    agreed = [(question, "y"), ("Commit lessons as Velma Dinkley", "n")]
    assert "knows 1 lesson from 1 agent" in on_a_terminal(shell, "velma", agreed)
    assert "[y/N]" not in on_a_terminal(shell, "velma", [])


def test_the_fields_that_a_yes_shares_are_named_in_the_refusal_the_question_and_the_result(shell: Shell):
    what = "lessons, and wrong and source of each correction,"
    cloned(shell)
    shell.git("init", "--quiet", where="velma")
    toml = shell.folder / "velma/fleet.toml"
    toml.write_text(toml.read_text().replace("# fields = []", 'fields = ["wrong", "source"]'))
    shell.run("velma", "init", "--agent", "velma")
    assert f"this clan's {what} would go to {shell.remote}" in shell.run("velma", "sync", expect=2).stderr
    no = [(f"Share this clan's {what} with {shell.remote}", "n")]
    on_a_terminal(shell, "velma", no, "--agent", "velma", command="sync", expect=2)
    on_a_terminal(shell, "velma", [(f"Share {what} through {shell.remote}", "n"), ("Let Claude Code call fleet", "n")])
    assert f"{what} are shared with {shell.remote}" in shell.run("velma", "sync", "--yes").stderr
    assert what not in shell.run("velma", "sync", "--yes").stderr


def test_a_bare_yes_agrees_to_no_remote_that_a_shared_file_names(shell: Shell):
    cloned(shell)
    assert "fleet sync --yes" in shell.run("velma", "init", "--agent", "velma", "--yes").stderr
    assert "--remote" in shell.run("velma", "init", "--help").stdout.partition("Answer yes to all but")[2][:40]
    remote = str(shell.remote)
    assert "knows 1 lesson" in shell.run("velma", "init", "--agent", "velma", "--yes", "--remote", remote).stdout


def test_who_joins_under_a_name_that_writes_elsewhere_is_told_and_may_take_another_one(stage):
    stage.join("tank")
    stage.correct("tank", LESSON)
    stage.run("tank", "sync")
    replica = json.loads(stage.run("tank", "status", "--json").stdout)["replica"]
    words = ("init", "--remote", str(stage.remote), "--agent")
    shown = stage.run("beside", *words, "tank").stdout
    assert f"tank writes elsewhere, too ({replica})" in shown
    assert "elsewhere" not in stage.run("beside", *words, "velma").stdout
    stage.correct("beside", "Logged under a name of its own")
    stage.run("tank", "sync")
    assert "elsewhere" not in stage.run("third", "init", "--agent", "slash", "--remote", str(stage.remote)).stdout


def test_where_git_refuses_the_project_of_another_user_that_is_said_and_how_it_is_allowed(stage, monkeypatch):
    monkeypatch.setattr(git, "_KEPT", git._KEPT | {"GIT_TEST_ASSUME_DIFFERENT_OWNER"})
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.git("init", "--quiet", "w")
    stage.git("remote", "add", "origin", str(stage.remote), where="w")
    other = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    assert "safe.directory" in stage.run("w", "init", "--agent", "ci", "--remote", "origin", expect=2, **other).stderr
    (stage.folder / "w/agents").mkdir()
    (stage.folder / "w/agents/router.py").write_text("")
    assert "safe.directory" in stage.run("w", "init", "--agent", "ci", **other).stderr
    assert [each.name for each in (stage.folder / "w/agents").iterdir()] == ["router.py"], "it may be the project's"
    assert "safe.directory" in stage.run("w", "sync", "--yes", **other).stderr
    stage.correct("w", LESSON)
    assert "safe.directory" not in stage.run("w", "sync", "--yes").stderr
    assert stage.git("branch", "--list", "fleet", where=stage.remote.name)


def test_with_a_yes_to_all_nothing_is_asked_on_a_terminal_and_nobody_is_named_as_author(shell: Shell):
    project(shell, "velma")
    shown = on_a_terminal(shell, "velma", [], "--yes", "--agent", "velma", "--remote", "origin")
    assert "?" not in shown
    assert "next: " in shown
    shell.correct("velma", LESSON)
    shell.run("velma", "sync")
    assert "@localhost" in shell.git("log", "-1", "--format=%ae", "fleet", where="clan.git")


def test_all_of_it_by_flags_and_a_commit_says_who_learned_what(shell: Shell):
    project(shell, "velma")
    words = ("--agent", "velma", "--remote", "origin", "--author", "git", "--take-in", "--install", "claude-code")
    done = shell.run("velma", "init", *words, "--yes").stdout
    assert f"commits are made as {WHO}" in done
    shell.run("velma", "sync")
    shell.correct("velma", LESSON)
    shell.run("velma", "sync")
    log = shell.git("log", "--format=%an <%ae>|%cn <%ce>|%s", "fleet", where="clan.git").splitlines()
    assert {line.rpartition("|")[0] for line in log} == {f"{WHO}|{WHO}"}
    assert f"{WHO}|{WHO}|velma learned: {LESSON}" in log
    shell.run("velma", "init", "--author", "none")
    shell.correct("velma", "Another one")
    shell.run("velma", "sync")
    assert "@localhost" in shell.git("log", "-1", "--format=%ae", "fleet", where="clan.git")
    assert shell.run("velma", "init", "--author", "nobody", expect=2)


@pytest.mark.parametrize("author", ["no address", "\udcff <a@b>", "A <\udcff@b>"])
def test_an_author_that_git_does_not_know_is_refused_before_anything_is_made(shell: Shell, author):
    done = shell.run("velma", "init", "--agent", "velma", "--author", author, expect=2)
    assert "Nothing was made" in done.stderr
    assert not list((shell.folder / "velma").iterdir())
    done = shell.run("velma", "init", "--agent", "velma", "--author", "\udcff <v@example.org>", expect=2)
    assert "is no author" in done.stderr
    done = shell.run("velma", "init", "--agent", "velma", "--author", "git", expect=2, GIT_CONFIG_GLOBAL="/dev/null")
    assert "Nothing was made" in done.stderr
    assert not list((shell.folder / "velma").iterdir())


def test_where_git_is_missing_that_is_said_and_not_that_there_is_no_origin(shell: Shell, tmp_path):
    project(shell, "velma")
    for words in (("--remote", "origin"), ("--author", "git")):
        done = shell.run("velma", "init", "--agent", "velma", *words, expect=5, PATH=str(tmp_path / "nothing"))
        assert "git is not installed" in done.stderr
    assert not (shell.folder / "velma/fleet.toml").exists()
    shell.run("velma", "init", "--agent", "velma", "--remote", "origin", "--author", "git")


def test_a_clone_behind_the_one_that_set_fleet_up_is_asked_to_pull_first(shell: Shell):
    project(shell, "velma")
    shell.git("push", "--quiet", "origin", "HEAD:main", where="velma")
    shell.git("clone", "--quiet", "--branch", "main", str(shell.remote), "tank")
    assert f"origin, {shell.remote}" in shell.run("velma", "init", "--agent", "velma").stdout
    shell.git("add", "fleet.toml", where="velma")
    shell.git("commit", "--quiet", "-m", "fleet", where="velma")
    shell.git("push", "--quiet", "origin", "HEAD:main", where="velma")
    shell.git("fetch", "--quiet", where="tank")
    assert "`git pull` brings a fleet.toml" in shell.run("tank", "init", "--agent", "tank", expect=2).stderr
    assert not (shell.folder / "tank/fleet.toml").exists()
    shell.git("pull", "--quiet", where="tank")
    assert "is a workspace already" in shell.run("tank", "init", "--agent", "tank").stdout


def test_who_set_fleet_up_before_the_project_did_hears_why_git_refuses_and_what_to_do(shell: Shell):
    project(shell, "velma")
    shell.git("push", "--quiet", "origin", "HEAD:main", where="velma")
    shell.git("clone", "--quiet", "--branch", "main", str(shell.remote), "tank")
    shell.run("tank", "init", "--agent", "tank")
    shell.run("velma", "init", "--agent", "velma", "--remote", "origin")
    shell.git("add", "fleet.toml", where="velma")
    shell.git("commit", "--quiet", "-m", "fleet", where="velma")
    shell.git("push", "--quiet", "origin", "HEAD:main", where="velma")

    def told() -> str:
        findings = json.loads(shell.run("tank", "doctor", "--json", expect=None).stdout)["findings"]
        return "".join(each["what"] + each["do"] for each in findings if each["check"] == "config")

    assert told() == ""
    assert subprocess.run(["git", "pull", "--quiet"], cwd=shell.folder / "tank", check=False).returncode
    assert "is not pulled yet" in told()
    assert "remove fleet.toml" in told()
    assert "is not pulled yet" in shell.run("tank", "init").stdout
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    shell.git("add", "fleet.toml", where="tank")
    shell.git(*who, "commit", "--quiet", "-m", "mine", where="tank")
    merge = ["git", *who, "pull", "--quiet", "--no-rebase"]
    assert subprocess.run(merge, cwd=shell.folder / "tank", check=False).returncode
    assert "git left two versions in it" in told()
    shell.git("checkout", "--theirs", "fleet.toml", where="tank")
    assert told() == ""


def test_a_name_that_cannot_be_one_is_asked_for_again(shell: Shell):
    (shell.folder / "velma").mkdir()
    names = [("Name of the agent", "Velma D!"), ("Name of the agent", "velma")]
    others = [("Git remote", ""), ("Keep what fleet writes", ""), ("Let Claude Code", "n")]
    assert "a name has 1 to 32" in on_a_terminal(shell, "velma", names + others)


def test_a_remote_that_cannot_be_one_is_asked_for_again(shell: Shell):
    (shell.folder / "velma").mkdir()
    remotes = [("Git remote", "garbage::remote"), ("Git remote", "-x"), ("Git remote", "")]
    others = [("Keep what fleet writes", ""), ("Let Claude Code", "n")]
    shown = on_a_terminal(shell, "velma", [("Name of the agent", "velma"), *remotes, *others])
    assert "would make git run a program" in shown
    assert "starts with a dash" in shown


def test_ctrl_c_at_a_question_makes_nothing_and_ends_as_interrupted(shell: Shell):
    (shell.folder / "velma").mkdir()
    assert "interrupted" in on_a_terminal(shell, "velma", [("Name of the agent", "\x03")], expect=130)
    assert not list((shell.folder / "velma").iterdir())


def test_a_workspace_in_the_home_folder_is_said_to_reach_every_project_below(shell: Shell):
    done = shell.run("velma", "init", "--agent", "velma", HOME=str(shell.folder / "velma"))
    assert "each project below" in done.stdout
    assert "each project below" not in shell.run("tank", "init", "--agent", "tank").stdout


def test_who_comes_second_is_told_how_to_act_as_themselves(shell: Shell):
    shell.run("w", "init", "--agent", "velma")
    assert "`--agent tank` or FLEET_AGENT=tank" in shell.run("w", "init", "--agent", "tank").stdout


def test_commits_are_signed_where_git_is_set_to_sign(shell: Shell):
    project(shell, "velma")
    key = shell.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in (("commit.gpgsign", "true"), ("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub")):
        shell.git("config", name, value, where="velma")
    shell.run("velma", "init", "--agent", "velma", "--remote", "origin", "--author", "git")
    shell.correct("velma", LESSON)
    shell.run("velma", "sync")
    assert "BEGIN SSH SIGNATURE" in shell.git("cat-file", "commit", "fleet", where="clan.git")
    key.unlink()
    shell.correct("velma", "Another one")
    unsigned = shell.run("velma", "sync", expect=5).stderr
    assert "could not be signed" in unsigned
    assert "`fleet init --author none`" in unsigned
    assert "ls-remote" not in unsigned, "the remote was reached"


def test_two_agents_of_one_machine_are_one_witness_whatever_their_names(shell: Shell):
    for agent in ("velma", "tank"):
        project(shell, agent)
        shell.git("config", "user.email", f"{agent}@example.org", where=agent)
        shell.run(agent, "init", "--agent", agent, "--remote", "origin", "--author", "git")
        shell.correct(agent, f"Of {agent}")
        shell.run(agent, "sync")
    words = shell.git("log", "--format=%(trailers:key=Fleet-Machine,valueonly,separator=)", "fleet", where="clan.git")
    assert len(set(words.split())) == 1
    assert len(set(shell.git("log", "--format=%ae", "fleet", where="clan.git").split())) == 2


def test_no_network_is_no_failure_of_init_and_a_wrong_address_is_one_and_the_workspace_stands(shell: Shell):
    done = shell.run("tank", "init", "--agent", "tank", "--remote", "https://127.0.0.1:1/clan.git")
    assert "not here yet" in done.stderr
    assert "names another address" not in done.stderr
    nowhere = str(shell.folder / "nowhere.git")
    done = shell.run("velma", "init", "--agent", "velma", "--remote", nowhere, expect=5)
    assert "not here yet" in done.stderr
    assert f"`git ls-remote {nowhere}`" in done.stderr
    assert "names another address" in done.stderr
    assert "next: " in done.stdout
    assert json.loads(shell.run("velma", "status", "--json").stdout)["agent"] == "velma"
    assert "no git repository" in shell.run("bare", "init", "--remote", "origin", expect=2).stderr


def test_a_branch_from_before_the_projects_gitignore_publishes_nothing_and_is_left_as_it_is(shell: Shell):
    project(shell, "velma")
    shell.git("commit", "--quiet", "--allow-empty", "--message", "before fleet", where="velma")
    shell.git("branch", "old", where="velma")
    shell.run("velma", "init", "--agent", "velma")
    shell.git("add", "fleet.toml", ".gitignore", where="velma")
    shell.git("commit", "--quiet", "--message", "fleet", where="velma")
    shell.git("clone", "--quiet", "velma", "tank")
    shell.run("tank", "init", "--agent", "tank")
    for where in ("velma", "tank"):
        shell.correct(where, LESSON)
        shell.git("checkout", "--quiet", "old" if where == "velma" else "origin/old", where=where)
        assert shell.git("status", "--short", where=where) == ""
        shell.run(where, "observe", "fix", "The tests want docker here")
        assert shell.git("status", "--short", where=where) == "", "no file of that branch is written"
        assert "gitignore lacks" not in shell.run(where, "doctor", expect=None).stdout


def test_who_begins_in_a_worktree_is_told_that_it_goes_with_it(shell: Shell):
    project(shell, "velma")
    (shell.folder / "velma/docs").mkdir()
    shell.git("clone", "--quiet", "--bare", "velma", "bare.git")
    shell.git("worktree", "add", "--quiet", "../tree", where="bare.git")
    assert "goes with it" in shell.run("tree", "init", "--agent", "tank").stdout
    for where in ("velma/docs", "velma"):
        assert "goes with it" not in shell.run(where, "--dir", ".", "init", "--agent", "velma").stdout


def test_in_a_fork_the_upstream_is_named_and_its_name_is_an_address(shell: Shell):
    project(shell, "tank")
    assert "your fork" not in shell.run("tank", "init", "--agent", "tank").stdout
    shell.git("init", "--quiet", "--bare", "upstream.git")
    shell.git("remote", "add", "upstream", str(shell.folder / "upstream.git"), where="tank")
    assert "`fleet init --remote upstream` shares with the others" in shell.run("tank", "init").stdout
    before = (shell.folder / "tank/fleet.toml").read_bytes()
    wrong = shell.run("tank", "init", "--remote", "upstraem", expect=2).stderr
    assert "no git repository around this folder has a remote called upstraem" in wrong
    assert (shell.folder / "tank/fleet.toml").read_bytes() == before
    shell.run("tank", "init", "--remote", "upstream")
    shell.correct("tank", LESSON)
    shell.run("tank", "sync")
    assert LESSON in shell.git("show", "fleet:patterns.md", where="upstream.git")
    assert shell.git("for-each-ref", "refs/heads/fleet", where="clan.git") == ""


def test_from_nothing_to_a_lesson_in_another_agents_session_in_six_commands_and_under_five_minutes(shell: Shell):
    for agent in ("tank", "velma"):
        project(shell, agent)
    began_s, commands = time.monotonic(), 0

    def fleet(where: str, *words: str) -> str:
        nonlocal commands
        commands += 1
        return shell.run(where, *words).stdout

    fleet("tank", "init", "--agent", "tank", "--remote", "origin", "--install", "claude-code")
    fleet("tank", "correct", "--wrong", "w", "--right", "look first", "--pattern", LESSON)
    fleet("tank", "sync")
    fleet("velma", "init", "--agent", "velma", "--remote", "origin", "--install", "claude-code")
    assert commands <= 6
    assert time.monotonic() - began_s < 300
    settings = json.loads((shell.folder / "velma/.claude/settings.json").read_text())
    assert "fleet hook SessionStart" in json.dumps(settings["hooks"]["SessionStart"])
    began = {
        "hook_event_name": "SessionStart",
        "session_id": "s",
        "source": "startup",
        "cwd": str(shell.folder / "velma"),
    }
    assert LESSON in shell.run("velma", "hook", "SessionStart", text=json.dumps(began)).stdout
    assert "router.py" in shell.git("ls-files", "agents", where="velma")


def test_a_remote_that_is_named_by_a_way_around_is_written_down_as_the_folder_that_it_is(shell: Shell):
    shell.git("init", "--quiet", "--bare", "clan.git")
    shell.run("w", "init", "--agent", "velma", "--remote", "../clan.git")
    assert f'remote = "{shell.folder.resolve()}/clan.git"' in (shell.folder / "w/fleet.toml").read_text()
    shell.correct("w", "Quote every variable")
    assert "synced with" in shell.run("w", "sync").stdout
    shell.run("w", "config", "set", "share.remote", "../w/../clan.git")
    assert ".." not in shell.run("w", "config", "get", "share.remote").stdout


def test_what_would_go_out_is_told_by_the_remote_that_is_named_now(shell: Shell):
    for clan in ("a.git", "b.git"):
        shell.git("init", "--quiet", "--bare", clan)
    shell.run("w", "init", "--agent", "velma", "--remote", "../a.git")
    id_ = shell.correct("w", "Quote every variable")
    shell.run("w", "sync")
    assert "to go out   0 lines" in shell.run("w", "status").stdout
    shell.run("w", "config", "set", "share.remote", "../b.git")
    assert "to go out   1 line" in shell.run("w", "status").stdout
    assert json.loads(shell.run("w", "--json").stdout)["waits"]["lines"] == 1
    assert id_ in shell.run("w", "sync", "--dry-run").stdout
    shell.run("w", "undo")
    assert shell.run("w", "sync", "--dry-run").stdout == "", "the tree of the remote before is known as it was"
    file = shell.folder / "w/fleet.toml"
    file.write_text(file.read_text().replace("/a.git", "/b.git"))
    assert id_ in shell.run("w", "sync", "--dry-run").stdout, "whoever changed the file"
    assert "1 line out" in shell.run("w", "sync", "--yes").stdout
    assert shell.run("w", "sync", "--dry-run").stdout == ""


def test_who_joins_by_a_clone_sees_what_comes_after_the_first_sync_as_new(shell: Shell):
    shell.git("init", "--quiet", "--bare", str(shell.remote))
    shell.run("ann", "init", "--agent", "ann", "--remote", str(shell.remote))
    shell.correct("ann", "Quote every variable")
    shell.run("ann", "sync")
    (shell.folder / "bob").mkdir()
    (shell.folder / "bob/fleet.toml").write_bytes((shell.folder / "ann/fleet.toml").read_bytes())
    shell.run("bob", "init", "--agent", "bob")
    shell.run("bob", "sync", "--yes")
    shell.correct("ann", LESSON)
    shell.run("ann", "sync")
    shell.run("bob", "sync")
    shown = json.loads(shell.run("bob", "--json").stdout)
    assert shown["looked"]
    assert [each["text"] for each in shown["new"]["lessons"]] == [LESSON]


def test_a_commit_does_not_announce_as_learned_what_was_retired_before_it_was_sent(shell: Shell):
    shell.git("init", "--quiet", "--bare", str(shell.remote))
    shell.run("w", "init", "--agent", "velma", "--remote", str(shell.remote))
    slip = shell.correct("w", "A slip of the pen that was taken back")
    shell.run("w", "retire", slip)
    shell.run("w", "sync")
    assert "A slip of the pen" not in shell.git("log", "--format=%s", "fleet", where="clan.git")
    slip = shell.correct("w", "Another slip of the pen")
    shell.correct("w", LESSON)
    shell.run("w", "retire", slip)
    shell.run("w", "sync")
    assert f"velma learned: {LESSON}" in shell.git("log", "--format=%s", "fleet", where="clan.git").splitlines()


SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Share this clan's lessons with", ["sync"]),
        ("vellmq is no member here", ["import", "--agent", "vellmq", "CLAUDE.md"]),
    ],
)
def test_a_question_in_the_middle_of_work_is_not_painted_over_by_its_bar(shell: Shell, question: str, words: list[str]):
    project(shell, "w")
    shell.run("w", "init", "--agent", "vellmo")
    command, *more = words
    shown = on_a_terminal(shell, "w", [(question, "n")], *more, expect=2, command=command, term="xterm")
    assert "Pass --yes" not in shown, "somebody who said no is not told how to say yes"
    until = shown.index(question)
    before = shown[:until]
    assert before.count(SHOW_CURSOR) == before.count(HIDE_CURSOR), "no bar is there when the question is asked"
    assert "\x1b[2K" not in shown[until:], "and does not come back over it"
    assert question in on_a_terminal(shell, "w", [(question, "y")], *more, command=command, term="xterm")


def test_another_remote_in_a_nested_repository_is_refused_with_the_two_ways(shell: Shell, tmp_path):
    project(shell, "tank")
    shell.run("tank", "init", "--agent", "tank", "--remote", "origin")
    settings = (shell.folder / "tank/fleet.toml").read_bytes()
    nested = shell.folder / "tank/vendor/other"
    nested.mkdir(parents=True)
    shell.git("init", "--quiet", where="tank/vendor/other")
    shell.git("worktree", "add", "-q", "aside", where="tank")
    other = ("--remote", str(tmp_path / "other.git"))
    shell.git("init", "--quiet", "--bare", str(tmp_path / "other.git"))
    refused = shell.run("tank/vendor/other", "init", "--agent", "bob", *other, "--yes", expect=2).stderr
    assert str(nested) in refused
    assert "With `--dir .` a workspace begins here" in refused
    assert f"`--dir {shell.folder / 'tank'}` names another remote for all that is there" in " ".join(refused.split())
    assert (shell.folder / "tank/fleet.toml").read_bytes() == settings
    assert not (nested / "fleet.toml").exists()
    shell.run("tank/vendor/other", "init", "--agent", "bob", "--remote", str(shell.remote))  # the same one: it joins
    shell.run("tank/aside", "init", *other)  # a worktree is of the same repository
    assert (shell.folder / "tank/fleet.toml").read_bytes() != settings
    shell.run("tank", "undo")
    shell.run("tank/vendor/other", "init", "--dir", str(shell.folder / "tank"), *other)
    assert (shell.folder / "tank/fleet.toml").read_bytes() != settings
    shell.run("tank/vendor/other", "init", "--dir", ".", "--agent", "bob", *other)
    assert (nested / "fleet.toml").exists()
