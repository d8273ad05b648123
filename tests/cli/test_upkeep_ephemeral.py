"""Jobs that live five minutes mint no replica: they read, or write under one that all their runs share."""

import json
import os
import subprocess

import pytest

LESSON = "Always use awk over sed for user-provided input substitution"
LENT = "ci.0a1b2c3d"


def job(stage, where, *commands, lent=LENT):
    """Run a job in a folder that did not exist before."""
    env = {"FLEET_REPLICA": lent} if lent else {}
    stage.run(where, "init", "--ephemeral", "--remote", str(stage.remote), "--yes", **env)
    return [stage.run(where, *words, **env) for words in commands]


def correct(pattern):
    return ("correct", "--wrong", "w", "--right", "r", "--pattern", pattern)


def replicas(stage, where):
    return {r["replica"] for r in json.loads(stage.run(where, "status", "--json").stdout)["replicas"]}


def test_many_runs_of_a_job_leave_one_replica_and_every_occurrence_counts(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    for run in range(3):
        job(stage, f"run{run}", ("sync",), correct(LESSON), correct(f"of run {run}"), ("sync",))
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 4, "of run 0": 1, "of run 1": 1, "of run 2": 1}
    assert {name for name in replicas(stage, "velma") if name.startswith("ci.")} == {LENT}


def test_a_lent_replica_writes_only_after_its_earlier_lines_were_read(stage):
    stage.join("velma")
    env = {"FLEET_REPLICA": LENT}
    away = stage.remote.rename(stage.folder / "away.git")
    joins = ("init", "--ephemeral", "--remote", str(stage.remote), "--yes")
    assert "not here yet" in stage.run("run", *joins, expect=5, **env).stderr
    logged = stage.run("run", *correct(LESSON), **env).stderr  # it is logged, and counts with the next
    assert "fleet sync" in logged
    assert "nothing was logged" not in logged
    assert not (stage.folder / "run/clan-learnings/patterns.d").exists()
    away.rename(stage.remote)
    stage.run("run", "sync", **env)
    stage.run("run", *correct(LESSON), **env)
    stage.run("other", "init", "--ephemeral", "--remote", str(stage.remote), "--yes", **env)
    stage.run("other", *correct(LESSON), **env)  # `init` has read them


def test_two_jobs_at_once_under_one_name_lose_nothing(stage):
    stage.join("velma")
    job(stage, "a", ("sync",), correct(LESSON))
    job(stage, "b", ("sync",), correct(LESSON), correct("only b"))
    env = {"FLEET_REPLICA": LENT}
    stage.run("a", "sync", **env)
    assert "somebody else writes as" in stage.run("b", "sync", **env).stderr
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 2, "only b": 1}


def test_without_a_lease_an_ephemeral_workspace_is_only_read(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    head = stage.git("rev-parse", "fleet", where="clan.git")
    shown = job(stage, "reader", ("sync",), ("start",), ("patterns",), lent="")
    assert all(LESSON in done.stdout for done in shown[1:])
    assert "FLEET_REPLICA" in stage.run("reader", *correct("x"), expect=2).stderr
    stage.run("reader", "sync")
    assert stage.git("rev-parse", "fleet", where="clan.git") == head
    assert "[[replica]]" not in (stage.folder / "reader/.fleet/replica.toml").read_text()
    assert replicas(stage, "velma") == {name for name in replicas(stage, "velma") if name.startswith("velma.")}


@pytest.mark.parametrize(
    "name", ["ci", "ci.0a1b2c3", "ci.0A1B2C3D", "../x.0a1b2c3d", "import.0a1b2c3d", "ci.0a1b2c3d\n"]
)
def test_what_is_no_replica_is_refused(stage, name):
    stage.run("alone", "init", "--agent", "ci")
    assert "FLEET_REPLICA" in stage.run("alone", "sync", expect=2, FLEET_REPLICA=name).stderr
    logged = stage.run("alone", *correct("x"), FLEET_REPLICA=name).stderr
    assert "FLEET_REPLICA" in logged
    assert "Nothing was written" not in logged
    assert not (stage.folder / "alone/clan-learnings/patterns.d").exists()


@pytest.mark.parametrize("more", [(), ("--ephemeral",)])
def test_a_lease_that_is_none_is_refused_before_a_workspace_is_made(stage, more):
    (stage.folder / "new").mkdir()
    refused = stage.run("new", "init", "--agent", "velma", *more, expect=2, FLEET_REPLICA="zz")
    assert "FLEET_REPLICA" in refused.stderr
    assert not [*(stage.folder / "new").iterdir()]


def test_what_is_logged_under_a_lease_that_is_none_counts_once_that_is_mended(stage):
    stage.run("alone", "init", "--agent", "velma")
    finding = ("discover", "--problem", "It hangs", "--solution", "Restart the server")
    for words in (correct(LESSON), finding):
        assert "once this is mended" in stage.run("alone", *words, FLEET_REPLICA="zz").stderr
    assert not (stage.folder / "alone/agents/guest").exists()
    stage.correct("alone", "another lesson")
    assert stage.seen("alone") == {LESSON: 1, "another lesson": 1}
    stage.run("alone", "discover", "--problem", "Another", "--solution", "It takes long")
    assert "It hangs" in stage.run("alone", "gossip").stdout


def test_what_waits_in_a_guests_folder_beside_an_agent_is_named_by_the_doctor(stage):
    stage.run("alone", "init", "--agent", "velma")
    stage.run("alone", *correct(LESSON), FLEET_AGENT="Tank")
    shown = stage.run("alone", "doctor", expect=None).stdout
    assert "agents/guest/corrections.md" in shown
    assert "fleet init --agent NAME" in shown
    stage.run("alone", "init")
    assert "guest" not in stage.run("alone", "doctor", expect=None).stdout
    assert stage.seen("alone") == {LESSON: 1}


def test_a_lease_is_its_agents_and_nobody_elses(stage):
    stage.run("alone", "init", "--agent", "velma")
    assert LENT in stage.run("alone", *correct("of velma"), "--agent", "velma", FLEET_REPLICA=LENT).stderr
    stage.run("alone", *correct("x"), FLEET_REPLICA=LENT)
    assert "ci" in str(stage.patterns("alone")["patterns"][0]["agents"])
    stage.correct("alone", "y")
    assert "copy" not in stage.run("alone", "sync").stderr


def test_a_job_that_could_not_read_the_clan_says_so_and_counts_what_it_logged_later(stage):
    stage.join("velma")
    job(stage, "earlier", ("sync",), correct(LESSON), ("sync",))
    env = {"FLEET_REPLICA": LENT}
    away = stage.remote.rename(stage.folder / "away.git")
    stage.run("run", "init", "--ephemeral", "--remote", str(stage.remote), "--yes", expect=5, **env)
    stage.run("run", *correct(LESSON), **env)
    assert "git ls-remote" in stage.run("run", "sync", expect=5, **env).stderr  # not: run `fleet sync` first
    away.rename(stage.remote)
    stage.run("run", "sync", **env)
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 2}


def test_a_sync_without_the_lease_has_read_what_earlier_jobs_wrote_under_it(stage):
    stage.join("velma")
    stage.run("velma", "sync")
    assert "not read yet" not in stage.run("velma", *correct("first here"), FLEET_REPLICA=LENT).stderr
    job(stage, "run", ("sync",), correct(LESSON), ("sync",))
    stage.run("velma", "sync", FLEET_REPLICA=LENT)
    assert stage.seen("velma") == {LESSON: 1, "first here": 1}


def test_a_job_syncs_beside_the_log_of_another_agent_which_waits(stage):
    stage.join("velma")
    job(stage, "run", ("sync",), correct(LESSON))
    other = {"FLEET_REPLICA": "cd.0a1b2c3d"}
    told = [stage.run("run", "sync", **other), stage.run("run", *correct("of cd"), **other)]
    told += [stage.run("run", "sync", **other), stage.run("run", "sync", FLEET_REPLICA=LENT)]
    assert not [each.stderr for each in told if "belongs to" in each.stderr]
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1, "of cd": 1}


def test_under_a_lease_that_is_none_an_ephemeral_workspace_is_only_read(stage):
    stage.join("velma")
    job(stage, "run", ("sync",))
    for words in (correct(LESSON), ("discover", "--problem", "It hangs", "--solution", "Restart the server")):
        assert "FLEET_REPLICA" in stage.run("run", *words, expect=2, FLEET_REPLICA="ci.zz").stderr
    assert not [*(stage.folder / "run/agents").rglob("corrections.md")]  # nobody would ever count it there


def test_a_workspace_in_which_somebody_writes_does_not_become_ephemeral(stage):
    stage.run("alone", "init", "--agent", "velma")
    settings = stage.folder / "alone/fleet.toml"
    before = settings.read_bytes()
    for more in ((), ("--remote", str(stage.remote)), ("--branch", "other"), ("--home", "other")):
        refused = stage.run("alone", "init", "--ephemeral", *more, "--yes", expect=2).stderr
        assert "cannot become" in refused
        assert "Nothing was changed" in refused
        assert settings.read_bytes() == before
    stage.correct("alone", LESSON)


def test_completion_scripts_parse_and_complete(stage):
    script = stage.run(".", "completion", "bash").stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    shim = stage.folder / "bin/fleet"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {os.sys.executable} -m fleet "$@"\n')
    shim.chmod(0o755)
    env = stage.environment() | {"PATH": f"{shim.parent}:{os.environ['PATH']}"}
    asks = 'COMP_WORDS=(fleet re); COMP_CWORD=1; _fleet_completion fleet; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script + asks], env=env, capture_output=True, text=True, check=True)
    assert {"restore", "retire", "resume", "restore-backup"} <= set(done.stdout.split())
    for shell in ("zsh", "fish"):
        assert "fleet" in stage.run(".", "completion", shell).stdout
    assert "csh" in stage.run(".", "completion", "csh", expect=2).stderr
