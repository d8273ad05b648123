"""The main job through the real command line: log, sync, read."""

import json
import re

import pytest

from fleet.app import finding

LESSON = "Always use awk over sed for user-provided input substitution"


def test_two_agents_that_log_one_lesson_have_logged_it_twice(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    first = stage.correct("velma", LESSON)
    second = stage.correct("tank", f"**{LESSON.upper()[:6]}** {LESSON[7:]}.")
    assert first == second
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    assert stage.patterns("velma") == stage.patterns("tank")
    [found] = stage.patterns("velma")["patterns"]
    assert found["seen"] == 2
    assert found["agents"] == ["tank", "velma"]
    assert [each.id for each in stage.edition()] == [first]
    page = stage.git("show", "fleet:patterns.md", where="clan.git")
    assert LESSON.split()[0] in page
    assert "seen 2 times" in page


def test_patterns_json_has_the_promised_fields_sorted_by_id(stage):
    stage.join("velma")
    ids = [stage.correct("velma", f"lesson {n}") for n in range(5)]
    found = stage.patterns("velma")
    assert set(found) == {"patterns", "refused"}
    assert [p["id"] for p in found["patterns"]] == sorted(ids)
    assert set(found["patterns"][0]) == {
        *(
            "id",
            "text",
            "correct",
            "category",
            "tags",
            "seen",
            "sessions",
            "agents",
            "state",
            "who",
            "changed",
            "first",
        ),
        "last",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["patterns"][0]["first"])


def test_a_correction_is_logged_in_the_documented_shape(stage):
    stage.join("velma")
    stage.run(
        "velma",
        *("correct", "--wrong", "sed mangled slashes", "--right", "awk with -v", "--pattern", LESSON),
        *("--title", "Used sed", "--source", "build failure", "--from", "tank", "--session", "s1"),
    )
    log = (stage.folder / "velma/agents/velma/corrections.md").read_text()
    assert re.search(r"^## \d{4}-\d\d-\d\d \d\d:\d\dZ — Used sed$", log, re.MULTILINE)
    assert "**What I got wrong:** sed mangled slashes\n" in log
    assert "**Correct approach:** awk with -v\n" in log
    assert "**Source:** tank — build failure\n" in log
    assert f"**Pattern:** {LESSON}\n" in log
    assert re.search(
        r"^<!-- fleet c-[0-9a-f]{16} p-[0-9a-f]{16} replica=velma\.[0-9a-f]{8} at=\S+ session=s1 -->$",
        log,
        re.MULTILINE,
    )


def test_an_entry_written_by_hand_counts_once_and_stays_as_it_is(stage):
    stage.join("velma")
    path = stage.folder / "velma/agents/velma/corrections.md"
    text = f"# Corrections\n\n## 2026-03-15 14:30Z — by hand\n**Wrong:** a\n**Correct:** b\n**Pattern:** {LESSON}"
    path.write_text(text)
    for _ in range(3):
        stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1}
    assert path.read_text().startswith(text + "\n<!-- fleet c-")
    # Mending a typo in it later does not count it again; deleting it lowers no count.
    path.write_text(path.read_text().replace("**Wrong:** a", "**Wrong:** another thing"))
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1}
    path.write_text("")
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1}


def test_a_placeholder_counts_for_nothing_until_it_is_filled_in(stage):
    stage.join("velma")
    path = stage.folder / "velma/agents/velma/corrections.md"
    auto = "## 2026-03-15 14:30 — flagged\n**User flagged:** no, wrong\n**Signal:** correction (confidence=0.9)\n"
    path.write_text(f"{auto}**Source:** auto-detected\n**Pattern:** _to be inferred at promotion time_\n")
    stage.run("velma", "sync")
    assert stage.seen("velma") == {}
    assert json.loads(stage.run("velma", "status", "--json").stdout)["unfilled"] == 1
    path.write_text(path.read_text().replace("_to be inferred at promotion time_", LESSON))
    stage.run("velma", "sync")
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1}


def test_the_same_lesson_in_other_words_counts_with_same(stage):
    stage.join("velma")
    first = stage.correct("velma", LESSON)
    assert stage.correct("velma", "Use awk and never sed when a person typed it", "--same", first[:8]) == first
    assert stage.seen("velma") == {LESSON: 2}
    stage.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", "x", "--same", "p-ffff", expect=1)
    assert stage.seen("velma") == {LESSON: 2}


def test_a_confirmation_survives_a_concurrent_retirement(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("velma", LESSON)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("velma", "retire", pattern)
    stage.correct("tank", LESSON)
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    assert stage.seen("velma") == stage.seen("tank") == {LESSON: 2}


def test_retire_takes_a_lesson_out_everywhere_and_restore_brings_it_back_with_its_count(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("velma", LESSON)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("tank", "retire", pattern[:7])
    for agent in ("tank", "velma"):
        stage.run(agent, "sync")
    assert stage.seen("velma") == {}
    assert [p["state"] for p in stage.patterns("velma", "--all")["patterns"]] == ["retired"]
    stage.run("velma", "retire", pattern, expect=1)
    stage.run("velma", "sync")
    assert stage.seen("velma") == {}, "a retired lesson does not come back by itself"
    stage.run("velma", "restore", pattern)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert stage.seen("tank") == {LESSON: 1}


def test_what_stays_here_stays_here(stage):
    stage.join("velma")
    stage.run(
        "velma",
        *("correct", "--wrong", "the-wrong-thing", "--right", "the-right-thing", "--pattern", LESSON),
        *("--source", "the-source", "--session", "the-session", "--title", "the-title"),
    )
    stage.run("velma", "sync")
    tree = stage.git("log", "-p", "fleet", where="clan.git")
    assert "the-right-thing" in tree
    for kept in ("the-wrong-thing", "the-source", "the-session", "the-title", str(stage.folder)):
        assert kept not in tree


def test_share_fields_travel_when_they_are_named(stage):
    stage.join("velma")
    config = stage.folder / "velma/fleet.toml"
    config.write_text(config.read_text().replace("[share]\n", '[share]\nfields = ["wrong"]\n'))
    stage.run("velma", "correct", "--wrong", "the-wrong-thing", "--right", "r", "--pattern", LESSON)
    stage.run("velma", "sync")
    assert stage.edition()[0].value("wrong") == "the-wrong-thing"


def test_fields_that_a_pull_may_have_named_travel_once_somebody_here_agreed_to_them(stage):
    stage.join("velma")
    stage.git("init", "-q", where="velma")
    config = stage.folder / "velma/fleet.toml"
    config.write_text(config.read_text().replace("[share]\n", '[share]\nfields = ["wrong"]\n'))

    def shared(number: int) -> tuple[set[str], str]:
        words = ("--wrong", f"wrong {number}", "--right", "r", "--source", f"source {number}")
        stage.run("velma", "correct", *words, "--pattern", f"{LESSON}, case {number}")
        warned = stage.run("velma", "sync").stderr
        [line] = [each for each in stage.edition() if str(each.value("text")).endswith(f"case {number}")]
        return {field for field in ("wrong", "source") if line.value(field)}, warned

    fields, warned = shared(1)
    assert fields == set()
    assert """would share of each correction wrong, too""" in warned
    assert """`fleet config set share.fields '["wrong"]'` does""" in warned
    stage.run("velma", "config", "set", "share.fields", '["wrong"]')
    assert shared(2) == ({"wrong"}, "")
    config.write_text(config.read_text().replace('fields = ["wrong"]', 'fields = ["wrong", "source"]'))
    fields, warned = shared(3)
    assert fields == {"wrong"}
    assert "correction source, too" in warned


def test_gossip_is_the_newest_of_the_whole_clan(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
        for n in range(12):
            stage.run(agent, "discover", "--problem", f"{agent} problem {n}", "--solution", "s", "--tag", "ci")
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    found = json.loads(stage.run("velma", "gossip", "--json").stdout)["discoveries"]
    assert len(found) == 20
    assert found[0]["problem"] == "tank problem 11"
    assert {d["by"].partition(".")[0] for d in found} == {"velma", "tank"}
    assert "tank problem 11" in stage.run("velma", "gossip", "-n", "1").stdout
    assert "velma problem" not in stage.run("velma", "gossip", "-n", "1").stdout


def test_a_session_starts_with_memory_lessons_and_gossip(stage):
    stage.join("velma")
    (stage.folder / "velma/agents/velma/memory.md").write_text("# Memory\n\n## Notes\n\n- the staging host is slow\n")
    stage.correct("velma", LESSON)
    stage.run("velma", "discover", "--problem", "the wheel is for x86", "--solution", "pin the builder")
    shown = stage.run("velma", "start").stdout
    for part in ("the staging host is slow", LESSON, "the wheel is for x86"):
        assert part in shown
    assert len(shown) <= 9_001
    assert shown.splitlines()[0] != stage.run("velma", "start").stdout.splitlines()[0], "the frame cannot be foreseen"


def test_a_starts_length_is_a_ceiling_however_low_it_is(stage):
    stage.join("velma")
    for number in range(9):
        stage.run("velma", "discover", "--problem", f"problem {number} {'x' * 90}", "--solution", "s")
    lengths = []
    for chars in (0, 600, 1_000, 1_400):
        stage.run("velma", "config", "set", "recall.start_chars", str(chars))
        lengths.append(len(stage.run("velma", "start").stdout))
    assert lengths == sorted(set(lengths))
    assert lengths[0] < 650, "its frame, the headings, and what fleet asks for"


def test_who_chooses_what_is_not_here_is_told_so(stage):
    stage.run("alone", "init", "--agent", "velma")
    chosen = stage.run("alone", "reflect", "--use", "gemini", PATH="/usr/bin:/bin")
    assert "gemini is not on the PATH: until that is mended, sessions wait" in chosen.stderr
    assert "PATH" not in stage.run("alone", "reflect", "--use", "rules").stderr
    stage.run("alone", "config", "set", "semantic.model", "no/such/folder")
    assert "[semantic] model names no/such/folder" in stage.run("alone", "doctor", expect=None).stdout


def test_dry_run_prints_every_outgoing_line_and_sends_nothing(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "discover", "--problem", "p", "--solution", "s")
    shown = [json.loads(line) for line in stage.run("velma", "sync", "--dry-run").stdout.splitlines()]
    assert len(shown) == 2
    assert pattern in {line["id"] for line in shown}
    assert stage.git("for-each-ref", where="clan.git") == ""
    assert json.loads(stage.run("velma", "status", "--json").stdout)["waiting"]["lines"] == 2


def test_lines_of_which_none_goes_out_are_counted_with_the_reason(stage):
    stage.run("alone", "init", "--agent", "velma")
    stage.correct("alone", LESSON)
    assert "1 line would go out, but no remote is named here; nothing was sent" in (
        stage.run("alone", "sync", "--dry-run").stderr
    )
    assert "no remote is named here" in json.loads(stage.run("alone", "sync", "--json").stdout)["why"]
    stage.join("velma", "alone")
    assert json.loads(stage.run("alone", "sync", "--json").stdout)["why"] == ""
    stage.correct("alone", "Quote every path")
    stage.run("alone", "pause")
    assert "1 line would go out, but sharing is paused" in stage.run("alone", "sync", "--dry-run").stderr


def test_a_list_that_is_empty_since_all_writers_are_blocked_says_so(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.join("tank")
    stage.run("tank", "sync")
    stage.run("tank", "block", "velma")
    for words in ((), ("--all",)):
        assert "or left out here (`fleet status`)" in stage.run("tank", "patterns", *words).stdout
    start = stage.run("tank", "start").stdout
    assert "1 lesson is left out here: their writers are blocked" in start
    assert "No lesson and no discovery stands here" not in start
    stage.run("tank", "unblock", "velma")
    assert "left out here" not in stage.run("tank", "start").stdout


def test_a_long_list_as_text_makes_no_document(stage, monkeypatch):
    stage.join("velma")
    stage.correct("velma", LESSON)
    made = list[str]()
    real = finding.lesson_as_json
    monkeypatch.setattr(finding, "lesson_as_json", lambda each, **how: made.append(each.id) or real(each, **how))
    assert LESSON in stage.run("velma", "patterns").stdout
    assert not made, "it took as long again as the list itself"
    assert stage.seen("velma") == {LESSON: 1}
    assert made


def test_nothing_new_makes_no_commit(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    head = stage.git("rev-parse", "fleet", where="clan.git")
    for _ in range(3):
        stage.run("velma", "sync")
    assert stage.git("rev-parse", "fleet", where="clan.git") == head


def test_several_agents_share_one_workspace(stage):
    stage.join("velma", "house")
    stage.run("house", "init", "--agent", "tank")
    stage.correct("house", LESSON, "--agent", "tank")
    stage.correct("house", LESSON)
    stage.correct("house", LESSON, FLEET_AGENT="tank")
    [found] = stage.patterns("house")["patterns"]
    assert found["seen"] == 3
    assert found["agents"] == ["tank", "velma"]
    stage.run("house", "sync")
    assert len(stage.edition()[0].totals["seen"]) == 2


def test_lines_appended_by_hand_to_the_edition_are_read_and_travel(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    column = {"add": "2026-11-20T00:00:00.000Z-0000", "n": {"seen": 1}, "first": {"text": "by hand"}}
    line = {"id": "p-3f9c1a2b7d4e5f60", "w": {"zerocool.00000001": column}}
    with (stage.folder / "velma/clan-learnings/patterns.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert stage.seen("velma") == {LESSON: 1, "by hand": 1}
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert stage.seen("tank") == {LESSON: 1, "by hand": 1}


def test_a_plain_git_pull_merges_the_branch(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.git("clone", "--quiet", "--branch", "fleet", str(stage.remote), "clone")
    column = {"add": "2026-11-20T00:00:00.000Z-0000", "first": {"text": "from a clone"}}
    line = {"id": "p-3f9c1a2b7d4e5f60", "w": {"zerocool.00000001": column}}
    with (stage.folder / "clone/patterns.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    for word in (["user.email", "a@localhost"], ["user.name", "a"]):
        stage.git("config", *word, where="clone")
    stage.git("commit", "--quiet", "-am", "by hand", where="clone")
    stage.correct("tank", "Another lesson")
    stage.run("tank", "sync")
    stage.git("pull", "--quiet", "--no-rebase", "--no-edit", where="clone")
    stage.git("push", "--quiet", where="clone")
    stage.run("velma", "sync")
    assert stage.seen("velma") == {LESSON: 1, "Another lesson": 1, "from a clone": 0}


def test_who_joins_a_clan_has_what_it_knows_and_is_told_what_to_do(stage):
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    joins = ("--remote", str(stage.remote), "--yes")
    assert "knows nothing yet" in stage.run("velma", "init", "--agent", "velma", *joins).stdout
    stage.correct("velma", "Pull before you push")
    stage.run("velma", "sync")
    told = stage.run("tank", "init", "--agent", "tank", *joins).stdout
    assert "knows 1 lesson" in told
    assert "next: `fleet install claude-code`" in told
    assert "Pull before you push" in stage.run("tank", "start").stdout


@pytest.mark.parametrize("private", [False, True])
def test_a_remote_is_not_said_to_know_what_is_only_here(stage, private):
    stage.join("tank")
    stage.correct("tank", "Pull before you push")
    stage.run("tank", "sync")
    stage.run("velma", "init", "--agent", "velma")
    known = stage.correct("velma", "Quote every path in a shell script")
    if private:
        stage.run("velma", "edit", known, "--set", "scope=private")
    joins = ("init", "--remote", str(stage.remote), "--yes")
    assert f"{stage.remote} and this folder know 2 lessons" in stage.run("velma", *joins).stdout


def test_a_clan_that_nobody_asked_is_no_empty_one(stage):
    gone = stage.folder / "gone.git"
    done = stage.run("velma", "init", "--agent", "velma", "--remote", str(gone), "--yes", expect=5)
    assert "not here yet" in done.stderr
    assert "remote never answered yet" in stage.run("velma", "start").stdout
    assert "never asked" not in stage.run("velma", "start").stdout
    assert "what the clan knows is not here yet; `fleet sync` asks" in stage.run("velma", "status").stdout
    assert "`fleet sync` asks the clan" in stage.run("velma", "patterns").stdout, "the yes is there"
    stage.git("init", "--quiet", "--bare", str(gone))
    stage.run("velma", "sync")
    assert "never answered" not in stage.run("velma", "start").stdout
    assert "never" not in next(row for row in stage.run("velma", "status").stdout.splitlines() if "last sync" in row)


def test_another_remote_is_told_neither_to_know_what_is_here_nor_to_have_lost_it(stage):
    stage.join("velma")
    stage.correct("velma", "Pull before you push")
    stage.run("velma", "sync")
    stage.git("init", "--quiet", "--bare", str(stage.folder / "other.git"))
    done = stage.run("velma", "init", "--remote", str(stage.folder / "other.git"), "--yes")
    assert "knows nothing yet" in done.stdout
    assert "is gone" not in done.stderr
    assert "set back" not in stage.run("velma", "sync").stderr
    assert stage.git("rev-parse", "--verify", "fleet", where="other.git")


def test_an_unreadable_line_of_the_fetched_edition_is_told_by_the_sync_that_replaces_it(stage):
    stage.join("velma")
    stage.correct("velma", "Quote shell variables")
    stage.run("velma", "sync")
    stage.git("clone", "--quiet", "--branch", "fleet", str(stage.remote), "raw")
    with (stage.folder / "raw" / "patterns.jsonl").open("a") as edition:
        edition.write("garbage\n")
    stage.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-am", "raw", where="raw")
    stage.git("push", "--quiet", where="raw")
    told = stage.run("velma", "sync", expect=3)
    assert told.stdout.startswith("exchanged, in part")
    assert "1 line could not be read and went to quarantine" in told.stderr
    assert "patterns.jsonl, line 2: not JSON" in stage.run("velma", "status").stdout
    assert "garbage" not in stage.git("show", "fleet:patterns.jsonl", where="clan.git")
    stage.run("velma", "sync")


def test_what_a_sync_tells_of_lines_reads_well_of_one_line_too(stage):
    stage.join("velma")
    stage.correct("velma", "Quote shell variables")
    stage.run("velma", "sync")
    stage.git("clone", "--quiet", "--branch", "fleet", str(stage.remote), "raw")
    (stage.folder / "raw" / "patterns.d").mkdir(exist_ok=True)
    (stage.folder / "raw" / "patterns.d" / "mallory.0badcafe.jsonl").write_text("garbage\n")
    stage.git("add", "-A", where="raw")
    stage.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-m", "raw", where="raw")
    stage.git("push", "--quiet", where="raw")
    stage.run("velma", "sync", expect=3)
    assert "1 line named before, still unreadable and without harm" in stage.run("velma", "sync").stderr
    stage.git("update-ref", "-d", "refs/heads/fleet", where="clan.git")
    assert "1 line lost by the remote, and sent again: its history was" in stage.run("velma", "sync").stderr
