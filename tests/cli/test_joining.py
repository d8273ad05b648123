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

from tests.cli.conftest import Stage

LESSON = "Check the CLI version before using --json"
WHO = "Velma Dinkley <velma@example.org>"


def project(stage: Stage, where: str) -> None:
    """Make a project with an ``agents/`` package of its own, a CLAUDE.md, and an origin."""
    root = stage.folder / where
    (root / "agents").mkdir(parents=True)
    (root / "agents/__init__.py").write_text("")
    (root / "agents/router.py").write_text("ROUTES = {}\n")
    (root / "CLAUDE.md").write_text("# Rules\n\n## Lessons\n\n- Always run the linter before you commit anything\n")
    if not stage.remote.exists():
        stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.git("init", "--quiet", where=where)
    stage.git("config", "user.name", "Velma Dinkley", where=where)
    stage.git("config", "user.email", "velma@example.org", where=where)
    stage.git("add", "-A", where=where)
    stage.git("commit", "--quiet", "-m", "x", where=where)
    stage.git("remote", "add", "origin", str(stage.remote), where=where)


def on_a_terminal(stage: Stage, where: str, answers: list[tuple[str, str]], *words: str) -> str:
    """Run ``fleet init`` on a terminal; type each answer once its question stands there. Return all that was shown."""
    pid, handle = pty.fork()
    if pid == 0:
        os.chdir(stage.folder / where)
        os.execve(sys.executable, [sys.executable, "-m", "fleet", "init", *words], stage.environment(TERM="dumb"))
    shown, seen, until = "", 0, time.monotonic() + 30
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
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert not answers, (answers, shown)
    return shown


def test_on_a_terminal_one_question_after_the_other_leads_into_the_clan(stage: Stage):
    project(stage, "tank")
    stage.run("tank", "init", "--agent", "tank", "--remote", "origin")
    stage.correct("tank", LESSON)
    stage.run("tank", "sync")
    project(stage, "velma")
    questions = [
        ("Name of the agent", "velma"),
        ("Share lessons through", ""),
        ("Folder for the agents' files", ""),
        ("Keep what fleet writes", ""),
        ("Commit lessons as Velma Dinkley", ""),
        ("Take in 1 lesson from CLAUDE.md", ""),
        ("Let Claude Code call fleet", ""),
    ]
    shown = on_a_terminal(stage, "velma", questions)
    assert "knows 1 lesson from 1 agent" in shown
    assert (stage.folder / "velma/fleet-agents/velma").is_dir()
    assert sorted(each.name for each in (stage.folder / "velma/agents").iterdir()) == ["__init__.py", "router.py"]
    assert "took in 1 new lesson" in shown
    assert "next: `fleet start`" in shown
    assert LESSON in stage.run("velma", "start").stdout
    assert "fleet hook SessionStart" in (stage.folder / "velma/.claude/settings.json").read_text()
    # The project's own package stays git's to see, and nothing that fleet wrote is.
    (stage.folder / "velma/agents/more.py").write_text("")
    news = stage.git("status", "--porcelain", "-uall", where="velma").split()[1::2]
    assert "agents/more.py" in news
    assert not [each for each in news if each.startswith((".fleet/", "agents/velma", "fleet-agents", "clan-learnings"))]
    assert "[Y/n]" not in on_a_terminal(stage, "velma", [])  # asked once


def test_with_a_yes_to_all_nothing_is_asked_on_a_terminal_and_nobody_is_named_as_author(stage: Stage):
    project(stage, "velma")
    shown = on_a_terminal(stage, "velma", [], "--yes", "--agent", "velma", "--remote", "origin")
    assert "?" not in shown
    assert "next: " in shown
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    assert "@localhost" in stage.git("log", "-1", "--format=%ae", "fleet", where="clan.git")


def test_all_of_it_by_flags_and_a_commit_says_who_learned_what(stage: Stage):
    project(stage, "velma")
    words = ("--agent", "velma", "--remote", "origin", "--author", "git", "--take-in", "--install", "claude-code")
    done = stage.run("velma", "init", *words, "--yes").stdout
    assert f"commits are made as {WHO}" in done
    stage.run("velma", "sync")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    log = stage.git("log", "--format=%an <%ae>|%cn <%ce>|%s", "fleet", where="clan.git").splitlines()
    assert {line.rpartition("|")[0] for line in log} == {f"{WHO}|{WHO}"}
    assert f"{WHO}|{WHO}|velma learned: {LESSON}" in log
    stage.run("velma", "init", "--author", "none")
    stage.correct("velma", "Another one")
    stage.run("velma", "sync")
    assert "@localhost" in stage.git("log", "-1", "--format=%ae", "fleet", where="clan.git")
    assert stage.run("velma", "init", "--author", "nobody", expect=2)


def test_an_author_that_git_does_not_know_is_refused_before_anything_is_made(stage: Stage):
    done = stage.run("velma", "init", "--agent", "velma", "--author", "git", expect=2, GIT_CONFIG_GLOBAL="/dev/null")
    assert "Nothing was made" in done.stderr
    assert not list((stage.folder / "velma").iterdir())


def test_who_comes_second_is_told_how_to_act_as_themselves(stage: Stage):
    stage.run("w", "init", "--agent", "velma")
    assert "`--agent tank` or FLEET_AGENT=tank" in stage.run("w", "init", "--agent", "tank").stdout


def test_commits_are_signed_where_git_is_set_to_sign(stage: Stage):
    project(stage, "velma")
    key = stage.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in (("commit.gpgsign", "true"), ("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub")):
        stage.git("config", name, value, where="velma")
    stage.run("velma", "init", "--agent", "velma", "--remote", "origin", "--author", "git")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    assert "BEGIN SSH SIGNATURE" in stage.git("cat-file", "commit", "fleet", where="clan.git")
    key.unlink()
    stage.correct("velma", "Another one")
    assert "could not be signed" in stage.run("velma", "sync", expect=5).stderr


def test_two_agents_of_one_machine_are_one_witness_whatever_their_names(stage: Stage):
    for agent in ("velma", "tank"):
        project(stage, agent)
        stage.git("config", "user.email", f"{agent}@example.org", where=agent)
        stage.run(agent, "init", "--agent", agent, "--remote", "origin", "--author", "git")
        stage.correct(agent, f"Of {agent}")
        stage.run(agent, "sync")
    words = stage.git("log", "--format=%(trailers:key=Fleet-Machine,valueonly,separator=)", "fleet", where="clan.git")
    assert len(set(words.split())) == 1
    assert len(set(stage.git("log", "--format=%ae", "fleet", where="clan.git").split())) == 2


def test_a_remote_that_does_not_answer_is_said_and_the_workspace_stands(stage: Stage):
    done = stage.run("velma", "init", "--agent", "velma", "--remote", str(stage.folder / "nowhere.git"))
    assert "not here yet" in done.stderr
    assert "next: " in done.stdout
    assert json.loads(stage.run("velma", "status", "--json").stdout)["agent"] == "velma"
    assert "no git repository" in stage.run("bare", "init", "--remote", "origin", expect=2).stderr


def test_from_nothing_to_a_lesson_in_another_agents_session_in_six_commands_and_under_five_minutes(stage: Stage):
    for agent in ("tank", "velma"):
        project(stage, agent)
    began_s, commands = time.monotonic(), 0

    def fleet(where: str, *words: str) -> str:
        nonlocal commands
        commands += 1
        return stage.run(where, *words).stdout

    fleet("tank", "init", "--agent", "tank", "--remote", "origin", "--install", "claude-code")
    fleet("tank", "correct", "--wrong", "w", "--right", "look first", "--pattern", LESSON)
    fleet("tank", "sync")
    fleet("velma", "init", "--agent", "velma", "--remote", "origin", "--install", "claude-code")
    assert commands <= 6
    assert time.monotonic() - began_s < 300
    settings = json.loads((stage.folder / "velma/.claude/settings.json").read_text())
    assert "fleet hook SessionStart" in json.dumps(settings["hooks"]["SessionStart"])
    began = {
        "hook_event_name": "SessionStart",
        "session_id": "s",
        "source": "startup",
        "cwd": str(stage.folder / "velma"),
    }
    assert LESSON in stage.run("velma", "hook", "SessionStart", text=json.dumps(began)).stdout
    assert "router.py" in stage.git("ls-files", "agents", where="velma")


def test_a_remote_that_is_named_by_a_way_around_is_written_down_as_the_folder_that_it_is(stage: Stage):
    stage.git("init", "--quiet", "--bare", "clan.git")
    stage.run("w", "init", "--agent", "velma", "--remote", "../clan.git")
    assert f'remote = "{stage.folder.resolve()}/clan.git"' in (stage.folder / "w/fleet.toml").read_text()
    stage.correct("w", "Quote every variable")
    assert "synced with" in stage.run("w", "sync").stdout
    stage.run("w", "config", "set", "share.remote", "../w/../clan.git")
    assert ".." not in stage.run("w", "config", "get", "share.remote").stdout
