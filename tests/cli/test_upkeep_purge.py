"""``fleet purge``: the redaction wins everywhere, the newest tree forgets, and what cannot be done is told."""

import json
import shlex
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.cli.conftest import Stage

# No shape of a token: what the border does not know is what has to be purged.
SECRET = "the door code is four eight fifteen sixteen"


def holders(folder, *, but=("agents", ".fleet/git", "quarantine")):
    return [
        str(p.relative_to(folder))
        for p in sorted(folder.rglob("*"))
        if p.is_file()
        and not any(str(p.relative_to(folder)).startswith(part) for part in but)
        and SECRET.encode() in p.read_bytes()
    ]


def tip(stage):
    names = stage.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git").split()
    return "".join(stage.git("show", f"fleet:{name}", where="clan.git") for name in names)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("leaked"))
    for agent in ("velma", "tank"):
        stage.join(agent)
        stage.pattern = stage.correct(agent, SECRET, "--category", "doors")
        stage.correct(agent, f"harmless, by {agent}")
        stage.run(agent, "sync")
    stage.run("velma", "sync")
    assert SECRET in tip(stage)
    stage.keep()
    return stage


@pytest.fixture
def leaked(made):
    """A lesson with a secret, logged by velma and confirmed by tank, known to both."""
    made.again()
    return made


def test_a_purge_takes_it_out_of_the_newest_tree_and_of_every_machine_that_syncs(leaked):
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    assert SECRET not in tip(leaked)
    assert holders(leaked.folder / "velma") == []
    leaked.run("tank", "sync")
    assert holders(leaked.folder / "tank") == []
    assert leaked.seen("velma") == leaked.seen("tank") == {"harmless, by velma": 1, "harmless, by tank": 1}
    found = {p["id"]: p for p in leaked.patterns("tank", "--all")["patterns"]}
    assert found[leaked.pattern]["text"] == "[REDACTED:purged]"
    assert found[leaked.pattern]["seen"] == 2, "what was counted stays counted"


def test_the_first_word_said_again_elsewhere_does_not_bring_it_back(leaked):
    leaked.correct("tank", SECRET)
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    for agent in ("tank", "velma", "tank"):
        leaked.run(agent, "sync")
    for agent in ("tank", "velma"):
        found = {p["id"]: p["text"] for p in leaked.patterns(agent, "--all")["patterns"]}
        assert found[leaked.pattern] == "[REDACTED:purged]"
    leaked.run("tank", "compact")
    assert SECRET not in tip(leaked)


def test_what_others_sent_since_the_last_sync_is_purged_with_it(leaked):
    leaked.correct("tank", SECRET.upper())  # the same lesson, worded otherwise
    leaked.run("tank", "sync")
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    assert SECRET.upper() not in tip(leaked)
    leaked.run("tank", "sync")
    for agent in ("tank", "velma"):
        assert leaked.seen(agent) == {"harmless, by velma": 1, "harmless, by tank": 1}, "it is retired for everybody"


def test_a_purged_lesson_that_somebody_confirms_before_they_know_is_shown_to_nobody(leaked):
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    leaked.correct("tank", SECRET)
    for agent in ("tank", "velma", "tank"):
        leaked.run(agent, "sync")
    for agent in ("tank", "velma"):
        assert leaked.seen(agent) == {"harmless, by velma": 1, "harmless, by tank": 1}
        assert "REDACTED" not in leaked.run(agent, "start").stdout
    assert SECRET not in tip(leaked)


@pytest.mark.parametrize("words", [SECRET, f"  {SECRET.upper()}."])
def test_what_somebody_logged_who_knew_neither_the_lesson_nor_its_purge_does_not_leave(leaked, words):
    leaked.join("mouse")
    assert leaked.correct("mouse", words, "--category", "doors and keys") == leaked.pattern
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    before = leaked.git("rev-parse", "fleet", where="clan.git").strip()
    leaked.run("mouse", "sync")
    sent = leaked.git("log", "-p", f"{before}..fleet", where="clan.git")
    assert words.strip() not in sent
    assert "doors and keys" not in sent
    assert holders(leaked.folder / "mouse") == []
    for agent in ("velma", "mouse"):
        leaked.run(agent, "sync")
        found = {p["id"]: p for p in leaked.patterns(agent, "--all")["patterns"]}
        assert (found[leaked.pattern]["text"], found[leaked.pattern]["seen"]) == ("[REDACTED:purged]", 3)
    leaked.run("mouse", "compact")
    assert words.strip() not in tip(leaked)


def test_whose_log_has_the_words_is_told_once_where_and_not_to_bring_them_back(leaked):
    for session in ("s2", "s3"):
        leaked.correct("tank", SECRET, "--session", session)
    leaked.run("tank", "sync")
    assert SECRET in (leaked.folder / "tank/agents/tank/memory.md").read_text()
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    told = leaked.run("tank", "sync").stderr
    assert f"{leaked.pattern} was purged by others" in told
    log = (leaked.folder / "tank/agents/tank/corrections.md").read_text().splitlines()
    first = next(number for number, row in enumerate(log, 1) if SECRET in row)
    assert f"agents/tank/corrections.md:{first}, " in told
    assert ".fleet/" not in told, "whose databases have them no more"
    assert f"`fleet purge {leaked.pattern}` takes them out" in told
    assert f"purged {leaked.pattern} of its words, so it left tank's memory.md" in told
    assert "fleet restore" not in told + leaked.run("tank", "show", leaked.pattern).stdout
    for agent in ("tank", "velma"):
        assert "was purged by others" not in leaked.run(agent, "sync").stderr
    leaked.run("tank", "restore", leaked.pattern)
    assert "no words to show" in leaked.run("tank", "promote", leaked.pattern, expect=1).stderr
    leaked.join("mouse")
    assert "was purged by others" not in leaked.run("mouse", "sync").stderr


def test_runs_of_another_machine_that_have_it_are_named_there_and_go_with_a_purge_there(leaked):
    leaked.run("tank", "edit", leaked.pattern, "--set", f"text={SECRET}, and twenty-three")
    leaked.run("tank", "undo")
    leaked.run("tank", "sync")
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    named = leaked.run("tank", "sync").stderr
    assert any("runs/" in path for path in holders(leaked.folder / "tank"))
    assert f"{leaked.pattern} was purged by others" in named
    assert ".fleet/runs/" in named
    leaked.run("tank", "purge", leaked.pattern, "--yes")
    assert not any("runs/" in path for path in holders(leaked.folder / "tank"))


def test_own_files_are_told_and_not_touched(leaked):
    log = leaked.folder / "velma/agents/velma/corrections.md"
    memory = log.with_name("memory.md")
    memory.write_text(f"# Memory\n\n- {SECRET}\n")
    before = log.read_bytes(), memory.read_bytes()
    shown = leaked.run("velma", "purge", leaked.pattern, "--yes").stdout
    assert (log.read_bytes(), memory.read_bytes()) == before
    assert "agents/velma/memory.md, line 3" in shown
    assert "agents/velma/corrections.md, line" in shown
    assert SECRET not in shown
    for part in ("Rotate", "force-with-lease=fleet", "WARNING", "orphan"):
        assert part in shown


def test_what_it_advises_rewrites_the_history_and_loses_no_lesson(leaked):
    leaked.run("velma", "purge", leaked.pattern, "--yes")
    leaked.git("clone", "--quiet", "--single-branch", "--branch", "fleet", str(leaked.remote), "rewrite")
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    leaked.git("checkout", "--quiet", "--orphan", "clean", where="rewrite")
    leaked.git(*who, "commit", "--quiet", "-m", "anew", where="rewrite")
    leaked.git("push", "--quiet", "--force-with-lease=fleet", "origin", "clean:fleet", where="rewrite")
    for agent in ("tank", "velma", "tank"):
        leaked.run(agent, "sync")
    assert SECRET not in leaked.git("log", "-p", "fleet", where="clan.git")
    assert leaked.seen("tank") == leaked.seen("velma") == {"harmless, by velma": 1, "harmless, by tank": 1}


def test_the_commands_that_it_advises_mean_the_remote_whatever_a_shell_makes_of_its_path(stage):
    stage.remote = stage.folder / "it's $HOME `x`.git"
    stage.join("velma")
    pattern = stage.correct("velma", SECRET)
    stage.run("velma", "sync")
    shown = stage.run("velma", "purge", pattern, "--yes").stdout
    [clone] = [row.strip() for row in shown.splitlines() if row.strip().startswith("git clone")]
    subprocess.run(["sh", "-ec", clone], cwd=stage.folder, env=stage.environment(), capture_output=True, check=True)
    assert (stage.folder / "rewrite/patterns.jsonl").is_file()
    assert f"`fleet init --remote {shlex.quote(str(stage.remote))}`" in stage.run("velma", "leave", "--yes").stdout


def test_what_was_not_sent_yet_never_leaves(stage):
    stage.join("velma")
    pattern = stage.correct("velma", SECRET)
    stage.correct("velma", "harmless")
    stage.run("velma", "purge", pattern, "--yes")
    assert SECRET not in stage.git("log", "-p", "--all", where="clan.git")
    assert stage.seen("velma") == {"harmless": 1}


def test_without_an_answer_from_the_remote_it_is_purged_here_and_the_exit_code_tells(leaked):
    leaked.remote.rename(leaked.folder / "away.git")
    done = leaked.run("velma", "purge", leaked.pattern, "--yes", "--json", expect=3)
    assert not json.loads(done.stdout)["shared"]
    assert holders(leaked.folder / "velma", but=("agents", ".fleet")) == []
    (leaked.folder / "away.git").rename(leaked.remote)
    leaked.run("velma", "compact")
    assert SECRET not in tip(leaked)
    assert holders(leaked.folder / "velma") == []


def test_a_purge_while_sharing_is_paused_agrees_to_no_remote(stage):
    stage.join("velma")
    pattern = stage.correct("velma", SECRET)
    config = stage.folder / "velma/fleet.toml"
    config.write_text(config.read_text().replace("clan.git", "another.git"))
    stage.git("init", "-q", "--bare", "another.git")
    stage.run("velma", "pause")
    done = json.loads(stage.run("velma", "purge", pattern, "--yes", "--json", expect=3).stdout)
    assert done["why_not"] == "sharing is paused until `fleet resume`"
    stage.run("velma", "resume")
    assert "nobody has agreed" in stage.run("velma", "sync", expect=2).stderr


def test_every_text_field_goes_and_what_is_no_text_stays(stage):
    stage.run("alone", "init", "--agent", "velma")
    pattern = stage.correct("alone", "x", "--category", SECRET, "--tag", SECRET)
    stage.run("alone", "edit", pattern, "--set", "importance=0.5", "--set", f'title=["{SECRET}"]')
    stage.run("alone", "sync")
    stage.run("alone", "purge", pattern, "--yes")
    found = json.loads(stage.run("alone", "edit", pattern, "--json").stdout)["fields"]
    assert found["importance"]["value"] == 0.5
    assert found["tags"]["value"] == []
    assert found["category"]["value"] == found["title"]["value"] == "[REDACTED:purged]"
    stage.run("alone", "compact")
    assert holders(stage.folder / "alone") == []


def test_a_discovery_is_taken_back_and_told_to_be_immutable(stage):
    stage.join("velma")
    words = ("discover", "--solution", "s", "--json", "--problem")
    sent = json.loads(stage.run("velma", *words, SECRET).stdout)["id"]
    stage.run("velma", "sync")
    shown = stage.run("velma", "purge", sent, "--yes").stdout
    assert "immutable" in shown
    assert SECRET not in stage.run("velma", "gossip").stdout
    unsent = json.loads(stage.run("velma", *words, f"{SECRET}, not sent").stdout)["id"]
    stage.run("velma", "purge", unsent, "--yes")
    assert "not sent" not in stage.git("log", "-p", "--all", where="clan.git")


def test_an_undo_of_an_edit_brings_nothing_back_of_what_was_purged_since(stage):
    stage.run("w", "init", "--agent", "velma")
    lesson = stage.correct("w", "Log in by the key ring")
    stage.run("w", "edit", lesson, "--set", f"right={SECRET}")
    stage.run("w", "edit", lesson, "--set", f"right={SECRET} and more")
    stage.run("w", "purge", lesson, "--yes", expect=None)
    assert holders(stage.folder / "w" / ".fleet", but=()) == []
    runs = json.loads(stage.run("w", "undo", "--list", "--json").stdout)["runs"]
    for run in [each["id"] for each in runs if each["kind"] == "edit"]:
        stage.run("w", "undo", run, expect=None)
        assert SECRET not in stage.run("w", "show", lesson, "--json", expect=None).stdout
        assert SECRET not in stage.run("w", "export", expect=None).stdout


def test_a_purge_asks_first_and_of_nothing_is_a_no(stage):
    stage.join("velma")
    pattern = stage.correct("velma", SECRET)
    assert f"every text of {pattern} for" in stage.run("velma", "purge", pattern[:6], expect=2).stderr
    assert SECRET in stage.seen("velma")
    stage.run("velma", "purge", "p-ffff", expect=1)
    stage.run("velma", "purge", "p-ffff", "--yes", expect=1)
    stage.run("velma", "purge", "d-ffff", "--yes", expect=1)


def test_the_search_index_forgets_what_was_purged_here_and_elsewhere(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("velma", "zugzwangword is in this lesson")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
        stage.correct(agent, f"harmless, by {agent}")
        assert "zugzwangword" in stage.run(agent, "search", "zugzwangword").stdout
    for agent, words in (("velma", ("purge", pattern, "--yes")), ("tank", ("sync",))):
        databases = sorted((stage.folder / agent / ".fleet").glob("state-*.db"))
        assert any(b"zugzwangword" in path.read_bytes() for path in databases)
        stage.run(agent, *words, expect=None)
        for path in (stage.folder / agent / ".fleet").glob("state-*.db*"):
            assert b"zugzwangword" not in path.read_bytes(), path


def test_the_embedding_of_what_was_purged_goes_with_it_here_and_elsewhere(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("velma", "zugzwangword is in this lesson")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
        (path,) = (stage.folder / agent / ".fleet").glob("state-*.db")
        with closing(sqlite3.connect(path)) as connection, connection:
            rows = [(pattern, "model", b"hash", b"zugzwangvector"), ("p-0000000000000000", "model", b"hash", b"other")]
            connection.executemany("INSERT INTO vector VALUES (?, ?, ?, ?)", rows)
    for agent, words in (("velma", ("purge", pattern, "--yes")), ("tank", ("sync",))):
        stage.run(agent, *words, expect=None)
        files = [path.read_bytes() for path in (stage.folder / agent / ".fleet").glob("state-*.db*")]
        assert not any(b"zugzwangvector" in each for each in files)
        assert any(b"other" in each for each in files) is (agent == "tank")


def test_what_was_promoted_leaves_every_memory_here(stage):
    stage.join("velma")
    for number in range(3):
        lesson = stage.correct("velma", "The host is db-internal-7", "--session", f"s{number}")
    stage.correct("velma", "Pin the version of every action", "--agent", "tank")
    stage.run("velma", "promote", lesson, "--agent", "tank")
    homes = [stage.folder / "velma/agents" / agent / "memory.md" for agent in ("velma", "tank")]
    assert all("db-internal-7" in home.read_text() for home in homes)
    stage.run("velma", "purge", lesson, "--yes")
    assert not any("db-internal-7" in home.read_text() for home in homes)
    assert "db-internal-7" not in stage.run("velma", "start").stdout


def test_nothing_that_is_kept_ready_or_noted_holds_the_old_words(stage):
    stage.join("velma")
    left, waits = (stage.correct("velma", f"The host is db-internal-{n}") for n in (7, 8))
    stage.run("velma", "edit", left, "--set", "trigger=Bash:psql*")
    stage.run("velma", "promote", left)
    stage.run("velma", "start")
    stage.run("velma", "retire", left)
    local = stage.folder / "velma/.fleet"
    waiting = [[waits, "The host is db-internal-8", "seen 3 by velma", "a person's choice"]]
    (local / "promotion").mkdir(exist_ok=True)
    (local / "promotion/velma.json").write_text(json.dumps(waiting))
    for lesson in (left, waits):
        stage.run("velma", "purge", lesson, "--yes")
    for path in [*local.glob("promotion/*"), *local.glob("ready/*")]:
        assert "db-internal" not in path.read_text(), path
