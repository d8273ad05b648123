"""Lessons that say the same in other words, and those that contradict each other, through the real command line."""

import json

import pytest

from fleet.app import reviewing
from fleet.store.workspace import Workspace

AWK = "Always use awk over sed for user-provided input substitution"
AGAIN = "Prefer awk to sed when user input is substituted into a template"
THIRD = "Use awk over sed to substitute user input"
NEVER = "Never run the migration by hand on production"
HAND = "Run the migration by hand on production"


def log(stage, where, pattern, session, *more):
    done = stage.run(
        where, "correct", "--wrong", "w", "--right", "r", "--pattern", pattern, "--session", session, *more
    )
    return done.stdout


def test_three_wordings_in_three_sessions_promote_and_the_fourth_session_starts_with_one(stage):
    stage.join("velma")
    log(stage, "velma", AWK, "s1")
    log(stage, "velma", AGAIN, "s2")
    assert "promoted" in log(stage, "velma", THIRD, "s3")
    memory = (stage.folder / "velma/agents/velma/memory.md").read_text()
    assert "seen 3 by velma in 3 wordings" in memory
    start = stage.run("velma", "start").stdout
    assert sum(said in start for said in (AWK, AGAIN, THIRD)) == 1
    stage.run("velma", "sync")
    assert (stage.folder / "velma/agents/velma/memory.md").read_text() == memory


@pytest.mark.parametrize("command", ["correct", "learn"])
def test_a_third_occurrence_that_is_told_as_the_same_promotes_at_once_and_tells_the_count_of_all_wordings(
    stage, command
):
    stage.join("velma")
    first = json.loads(log(stage, "velma", AWK, "s1", "--json"))["id"]
    log(stage, "velma", AGAIN, "s2")
    if command == "correct":
        told = log(stage, "velma", "Awk, please", "s3", "--same", first)
    else:
        heard = json.dumps({"session_id": "s3", "prompt": "No, that is wrong: use awk here, not sed!"})
        stage.run("velma", "hook", "UserPromptSubmit", text=heard)
        [waiting] = json.loads(stage.run("velma", "learn", "--waiting", "--json").stdout)["waiting"]
        told = stage.run("velma", "learn", waiting["id"], "--same", first).stdout
    assert told.startswith(f"{first} seen 2 times (3 in all wordings): {AWK}\n  promoted: ")
    assert len(told.splitlines()) == 2
    memory = (stage.folder / "velma/agents/velma/memory.md").read_text()
    assert f"- {AWK} — right: r (seen 3 by velma in 2 wordings; {first})" in memory


def test_a_start_shows_a_lesson_in_several_wordings_once_and_none_of_them_as_left_out(stage):
    for agent in ("velma", "slash"):
        stage.join(agent)
    for text in (
        "Run the linter before every commit",
        "Run the linter before each commit",
        "Always run the linter before a commit",
    ):
        stage.correct("velma", text)
    for agent in ("velma", "slash"):
        stage.run(agent, "sync")
        start = stage.run(agent, "start").stdout
        assert start.count("the linter before") == 1
        assert "left out" not in start


def test_lessons_that_have_one_word_in_common_stay_apart(stage):
    stage.join("velma")
    texts = ["Lesson A", "lesson B", "One lesson here", "Some other lesson", "An ephemeral lesson", "lesson to keep"]
    for text in texts:
        stage.correct("velma", text)
    stage.run("velma", "sync")
    assert sorted(each["text"] for each in stage.patterns("velma")["patterns"]) == sorted(texts)


def test_records_stay_and_wordings_are_shown(stage):
    stage.join("velma")
    ids = {said: stage.correct("velma", said) for said in (AWK, AWK, AGAIN)}
    [found] = stage.patterns("velma")["patterns"]
    assert (found["id"], found["text"], found["seen"]) == (ids[AWK], AWK, 3)
    assert [(each["id"], each["seen"]) for each in found["wordings"]] == [(ids[AWK], 2), (ids[AGAIN], 1)]
    assert f"also worded: {AGAIN}" in stage.run("velma", "patterns").stdout
    assert {each["id"] for each in stage.patterns("velma", "--all")["patterns"]} == set(ids.values())
    stage.run("velma", "sync")
    page = (stage.folder / "velma/clan-learnings/patterns.md").read_text()
    assert page.count("seen 3 times") == 1
    assert "Also said:" in page


MIGRATE = "Run the database migrations before the tests"
FRESH = "Run tests with a fresh database"


def correct_by(stage, pattern, right):
    return stage.run("velma", "correct", "--wrong", "w", "--right", right, "--pattern", pattern).stdout


def test_lessons_with_other_right_ways_are_asked_about_and_not_grouped(stage):
    stage.join("velma")
    first = correct_by(stage, MIGRATE, "make migrate").split()[0]
    correct_by(stage, MIGRATE, "make migrate")
    told = correct_by(stage, FRESH, "make dropdb first")
    assert "in all wordings" not in told
    assert "promoted" not in told
    start = stage.run("velma", "start").stdout
    assert MIGRATE in start
    assert FRESH in start
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    assert first in pair["pair"]


@pytest.mark.parametrize("right", ["make migrate", "migrate it in the fixture"])
def test_lessons_with_a_word_of_their_right_ways_in_common_are_grouped(stage, right):
    stage.join("velma")
    correct_by(stage, MIGRATE, "make migrate")
    correct_by(stage, FRESH, right)
    assert len(stage.patterns("velma")["patterns"]) == 1


def test_wordings_that_are_grouped_are_parted_by_an_answer(stage):
    stage.join("velma")
    one, other = stage.correct("velma", AWK), stage.correct("velma", AGAIN)
    done = stage.run("velma", "unmerge", other, expect=None)
    assert done.returncode != 0
    answer = f"{other}:{one}=different"
    assert f"`fleet review --answer {answer}` parts them" in " ".join(done.stderr.split())
    again = stage.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", AWK)
    assert f"fleet review --answer {one}:{other}=different" in " ".join(again.stderr.split())
    stage.run("velma", "review", "--answer", answer)
    assert stage.seen("velma") == {AWK: 2, AGAIN: 1}
    assert len(stage.patterns("velma")["patterns"]) == 2
    stage.run("velma", "undo")
    assert len(stage.patterns("velma")["patterns"]) == 1


def test_a_list_ranks_a_cluster_by_all_its_wordings_however_few_lessons_it_shows(stage):
    for agent in ("velma", "slash"):
        stage.join(agent)
    for said in (AWK, AGAIN, THIRD):  # velma's memory has it then, so slash is asked
        stage.correct("velma", said)
    stage.run("velma", "sync")
    stage.run("slash", "sync")
    for newer in ("Pin actions", "Write tests", "Squash fixups", "Close sockets", "Name threads"):
        stage.correct("slash", newer)
    one, *others = stage.run("slash", "patterns").stdout.splitlines()
    assert AWK in one
    assert len(others) == 7
    assert AWK in stage.run("slash", "patterns", "-n", "1").stdout


def test_every_face_counts_a_lesson_in_three_wordings_as_one(stage):
    for agent in ("velma", "slash"):
        stage.join(agent)
    ids = [stage.correct("velma", said) for said in (AWK, AGAIN, THIRD)]
    stage.correct("velma", "Pin the version of every action")
    stage.run("velma", "sync")
    stage.run("slash", "sync")
    for agent in ("velma", "slash"):
        assert stage.run(agent).stdout.startswith(f"fleet     {agent}: 2 lessons, 0 discoveries\n")
        assert json.loads(stage.run(agent, "status", "--json").stdout)["patterns"] == 2
    joined = stage.run("tank", "init", "--agent", "tank", "--remote", str(stage.remote), "--yes").stdout
    assert "knows 2 lessons from 1 agent" in joined
    front = stage.git("show", "fleet:README.md", where="clan.git")
    assert "[2 lessons]" in front
    assert front.count("awk") == front.count("seen 3 times by velma") == 1
    assert "velma: 2 lessons" in front
    shown = stage.run("slash", "show", ids[1]).stdout
    assert "wordings:   seen 3 times in 3 that say the same" in shown
    assert all(f"({each})" in shown for each in (ids[0], ids[2]))
    found = json.loads(stage.run("slash", "show", ids[1], "--json").stdout)
    assert (found["seen"], {each["id"] for each in found["wordings"]}) == (1, set(ids))


def test_what_is_said_to_be_two_lessons_is_never_joined_or_asked_again_until_that_is_taken_back(stage):
    stage.join("velma")
    one, other = (
        stage.correct("velma", "Run the linter before a push"),
        stage.correct("velma", "Run mypy before a push"),
    )
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    assert pair["kind"] == "likely"
    assert {each["id"] for each in pair["lessons"]} == {one, other}
    assert "1 pair of lessons may be one lesson: fleet review" in stage.run("velma", "sync").stdout
    status = stage.run("velma", "status").stdout
    assert "(1 merge): fleet inbox" in status
    assert "may be one lesson" not in status, "the inbox counts it"
    assert "1 pair of lessons may be one lesson: fleet review" in stage.run("velma", "start").stdout
    stage.run("velma", "review", "--answer", f"{pair['pair']}=different")
    assert json.loads(stage.run("velma", "review", "--json").stdout)["pairs"] == []
    assert "fleet review" not in stage.run("velma", "sync").stdout
    assert len(stage.patterns("velma")["patterns"]) == 2
    stage.run("velma", "undo")
    assert len(json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]) == 1


def test_a_command_in_backticks_and_the_same_without_are_one_lesson_and_no_contradiction(stage):
    stage.join("velma")
    log(stage, "velma", "Always run `make lint` before you commit", "s1")
    log(stage, "velma", "Always run make lint before you commit", "s2")
    assert json.loads(stage.run("velma", "review", "--json").stdout)["pairs"] == []
    [lesson] = stage.patterns("velma")["patterns"]
    assert len(lesson["wordings"]) == 2


def test_same_is_a_merge_and_is_taken_back(stage):
    stage.join("velma")
    stage.correct("velma", "Run the linter before a push")
    stage.correct("velma", "Run mypy before a push")
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    assert "are one lesson" in stage.run("velma", "review", "--answer", f"{pair['pair']}=same").stdout
    assert list(stage.seen("velma").values()) == [2]
    assert stage.run("velma", "review").stdout == "no pair waits for an answer\n"
    stage.run("velma", "undo")
    assert list(stage.seen("velma").values()) == [1, 1]
    assert stage.run("velma", "review", "--answer", f"{pair['pair']}=first", expect=2).stdout == ""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_merge_takes_no_wording_from_the_lesson_that_it_joins_with_another(stage, is_first):
    stage.join("velma")
    texts = (
        "Never push to the main branch by force",
        "Do not force-push the main branch",
        "Do not rewrite the history of main once it is public",
    )
    ids = [json.loads(log(stage, "velma", text, f"s{at}", "--json"))["id"] for at, text in enumerate(texts)]
    assert [each["seen"] for each in stage.patterns("velma")["patterns"]].count(2) == 1
    told = stage.run("velma", "merge", *((ids[0], ids[2]) if is_first else (ids[2], ids[0]))).stdout
    assert "seen 2 times (3 in all wordings)" in told
    assert "promoted" in told
    [lesson] = stage.patterns("velma")["patterns"]
    assert (lesson["seen"], len(lesson["wordings"])) == (3, 2)
    stage.run("velma", "unmerge", ids[2])
    assert sorted(each["seen"] for each in stage.patterns("velma")["patterns"]) == [1, 2]


def test_purged_members_of_merged_sets_make_nothing_one(stage):
    for agent in ("velma", "slash"):
        stage.join(agent)
    texts = (AWK, "Pin the base image by its digest", NEVER, "Sort the imports alphabetically")
    ids = [json.loads(log(stage, "velma", text, "s", "--json"))["id"] for text in texts]
    stage.run("velma", "sync")
    stage.run("slash", "sync")
    for one, other in (ids[:2], ids[2:]):
        stage.run("velma", "merge", one, other, "--force")
        stage.run("slash", "purge", other, "--yes")
    stage.run("slash", "sync")
    stage.run("velma", "sync")
    assert {each["text"] for each in stage.patterns("velma")["patterns"]} == {AWK, NEVER}
    assert not any(each.get("wordings") for each in stage.patterns("velma")["patterns"])


@pytest.mark.parametrize("by", ["review", "merge"])
def test_an_answer_or_a_merge_that_makes_three_promotes_at_once_and_is_taken_back_whole(stage, by):
    stage.join("velma")
    texts = (
        "Run the linter with --fix before you commit",
        "Before each commit run the linter with --fix",
        "Always run the linter with --fix prior to committing",
    )
    for session, text in enumerate(texts):
        assert "promoted" not in log(stage, "velma", text, f"s{session}")
    stage.run("velma", "sync")
    memory = stage.folder / "velma/agents/velma/memory.md"
    assert not memory.exists()
    pair = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"][0]
    if by == "review":
        told = stage.run("velma", "review", "--answer", f"{pair['pair']}=same").stdout
    else:
        told = stage.run("velma", "merge", *(each["id"] for each in pair["lessons"]), "--force").stdout
    assert "promoted: it stands in agents/velma/memory.md from now on" in told
    assert "the linter with --fix" in memory.read_text()
    stage.run("velma", "undo")
    assert not memory.exists() or "the linter" not in memory.read_text()
    assert {each["state"] for each in stage.patterns("velma", "--all")["patterns"]} == {"candidate"}
    stage.run("velma", "sync")
    assert not memory.exists() or "the linter" not in memory.read_text()


@pytest.mark.parametrize("number", [0, 1])
def test_the_words_that_were_used_more_stand_for_two_that_are_one_whichever_id_is_the_smaller(stage, number):
    stage.join("velma")
    for text in ("Run the linter before a push", "Run mypy before a push"):
        stage.correct("velma", text)
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    log(stage, "velma", pair["lessons"][number]["text"], "s2")
    stage.run("velma", "review", "--answer", f"{pair['pair']}=same")
    assert stage.seen("velma") == {pair["lessons"][number]["text"]: 3}


def test_of_two_that_contradict_each_other_neither_is_promoted_until_somebody_decides(stage):
    stage.join("velma")
    for session in ("s1", "s2"):
        log(stage, "velma", NEVER, session)
    other = json.loads(log(stage, "velma", HAND, "s1", "--json"))["id"]
    assert "promoted" not in log(stage, "velma", NEVER, "s3")
    stage.run("velma", "sync")
    assert not (stage.folder / "velma/agents/velma/memory.md").exists()
    start = stage.run("velma", "start").stdout
    assert f"- {NEVER}" not in start
    assert f"- {HAND}" not in start
    assert "lessons that contradict each other: fleet review" in start
    assert f"contradicts {other}: `fleet review` decides" in stage.run("velma", "patterns").stdout
    page = (stage.folder / "velma/clan-learnings/patterns.md").read_text()
    assert page.index("Contradictions") < page.index(NEVER) < page.index("or the opposite") or (
        page.index("Contradictions") < page.index(HAND)
    )
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    assert pair["kind"] == "contradiction"
    keep = "second" if pair["lessons"][0]["id"] == other else "first"
    stage.run("velma", "review", "--answer", f"{pair['pair']}={keep}")
    stage.run("velma", "sync")
    assert NEVER in (stage.folder / "velma/agents/velma/memory.md").read_text()
    stage.run("velma", "undo")
    assert json.loads(stage.run("velma", "review", "--json").stdout)["pairs"] != []


def test_of_two_answers_to_a_contradiction_at_once_one_holds(stage, monkeypatch):
    stage.join("velma")
    for text in (NEVER, HAND):
        stage.correct("velma", text)
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    decide, lock = reviewing._decide, Workspace.lock

    def both(*given):
        monkeypatch.setattr(reviewing, "_decide", decide)
        stage.run("velma", "review", "--answer", f"{pair['pair']}=second", expect=None)
        return decide(*given)

    monkeypatch.setattr(reviewing, "_decide", both)
    monkeypatch.setattr(Workspace, "lock", lambda self, name, *_: lock(self, name, 0))
    stage.run("velma", "review", "--answer", f"{pair['pair']}=first")
    assert [each["id"] for each in stage.patterns("velma")["patterns"]] == [pair["lessons"][0]["id"]]


def test_a_lesson_that_was_to_hold_and_that_others_retired_is_named_once_with_the_way_back(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", NEVER)
    other = stage.correct("tank", HAND)
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    ids = [each["id"] for each in pair["lessons"]]
    [never] = {*ids} - {other}
    keeps = {"velma": never, "tank": other}
    for agent, kept in keeps.items():
        answer = ("first", "second")[ids.index(kept)]
        stage.run(agent, "review", "--answer", f"{pair['pair']}={answer}")
    stage.run("velma", "sync")
    for agent, by in (("tank", "velma"), ("velma", "tank")):
        named = f"{keeps[agent]} was to hold, by a person's answer here, and {by} retired it: "
        assert named in stage.run(agent, "sync").stderr
        assert named not in stage.run(agent, "sync").stderr + stage.run(agent, "start").stdout
    stage.run("velma", "restore", never)
    assert list(stage.seen("velma")) == [NEVER]


def test_a_lesson_that_was_to_hold_and_was_retired_here_is_not_named(stage):
    stage.join("velma")
    stage.correct("velma", NEVER)
    stage.correct("velma", HAND)
    stage.run("velma", "sync")
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    stage.run("velma", "review", "--answer", f"{pair['pair']}=first")
    stage.run("velma", "retire", pair["lessons"][0]["id"])
    assert "was to hold" not in stage.run("velma", "sync").stderr


def test_an_answer_that_was_taken_back_holds_nothing(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    ids = [stage.correct("velma", NEVER), stage.correct("tank", HAND)]
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    stage.run("velma", "review", "--answer", f"{pair['pair']}=first")
    stage.run("velma", "undo")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("tank", "retire", *ids)
    stage.run("tank", "sync")
    assert "was to hold" not in stage.run("velma", "sync").stderr
    assert stage.seen("velma") == {}


def test_a_contradiction_in_several_wordings_stands_once_on_the_pages_and_is_no_lesson_less(stage):
    velma = stage.join("velma")
    for lesson in ("Always run the tests before a push", "Never run the tests before a push"):
        stage.correct(velma, lesson)
    stage.correct(velma, "Before a push, the tests must always run")
    stage.correct(velma, "Pin the version of every action")
    stage.run(velma, "sync")
    here = (stage.folder / "velma/clan-learnings/patterns.md").read_text()
    branch = stage.git("show", "fleet:patterns.md", where="clan.git")
    for page in (here, branch):
        assert "**3 lessons**." in page, "both sides of a contradiction are counted, as on the front page"
        assert "more: `fleet patterns`" not in page
        assert "`fleet review` decides (1)" in page
        assert page.count("the tests must always run") == page.count("Never run the tests") == 1
    assert "[3 lessons](patterns.md)" in stage.git("show", "fleet:README.md", where="clan.git")


def test_a_person_answers_with_a_key_each_and_undoes_the_last(stage):
    import os
    import pty
    import select
    import subprocess
    import sys

    stage.join("velma")
    stage.correct("velma", "Run the linter before a push")
    stage.correct("velma", "Run mypy before a push")
    main, far = pty.openpty()
    asked = subprocess.Popen(
        [sys.executable, "-m", "fleet", "review"],
        cwd=stage.folder / "velma",
        env=stage.environment(),
        stdin=far,
        stdout=far,
        stderr=far,
    )
    os.close(far)
    said = b""
    os.write(main, b"n")  # early: it is kept
    while b"made" not in said:
        assert select.select([main], [], [], 60)[0], said
        said += os.read(main, 4096)
    assert asked.wait(30) == 0
    assert b"two lessons" in said
    assert b"1 decision made" in said


def test_a_lesson_that_only_tells_what_happened_is_logged_and_asked_for_its_rule(stage):
    stage.join("velma")
    found = json.loads(log(stage, "velma", "I used the wrong flag", "s1", "--json"))
    assert found["seen"] == 1
    assert "as a rule" in found["advice"]
    assert "advice" not in json.loads(log(stage, "velma", "Read the manual of a flag first", "s1", "--json"))
    more = ("--problem", "CI failed", "--solution", "Fixed the typo", "--json")
    assert "routine fix" in json.loads(stage.run("velma", "discover", *more).stdout)["advice"]
    more = ("--problem", "CI failed", "--solution", "Pin setuptools below 80: it dropped pkg_resources", "--json")
    assert "advice" not in json.loads(stage.run("velma", "discover", *more).stdout)


def test_a_start_says_of_lessons_that_contradict_each_other_why_they_are_left_out(stage):
    velma = stage.join("velma")
    for lesson in ("Always use tabs in a Makefile", "Never use tabs in a Makefile", "Pin the version of every action"):
        stage.correct(velma, lesson)
    stage.run(velma, "sync")
    context = stage.run(velma, "start").stdout
    assert "2 lessons left out that contradict each other; `fleet review`" in context
    assert "`fleet patterns`" not in context
    assert "tabs in a Makefile" not in context
    [one] = [each["id"] for each in stage.patterns(velma)["patterns"] if each["text"].startswith("Never use tabs")]
    stage.run(velma, "promote", one)
    assert "1 lesson left out that contradicts another; `fleet review`" in stage.run(velma, "start").stdout


def test_what_others_contradict_stays_in_the_start_of_who_logged_it_and_is_promoted_as_before(stage):
    velma, slash = stage.join("velma"), stage.join("slash")
    for session in ("s1", "s2"):
        log(stage, velma, NEVER, session)
    stage.correct(slash, HAND)
    for agent in (velma, slash, velma):
        stage.run(agent, "sync")
    start = stage.run(velma, "start").stdout
    assert NEVER in start
    assert f"- {HAND}" not in start
    assert "1 pair of lessons that contradict each other: fleet review" in start
    assert "promoted" in log(stage, velma, NEVER, "s3")


def test_two_that_only_seem_to_contradict_each_other_are_called_one(stage):
    stage.join("velma")
    log(stage, "velma", "Send results to stdout and the rest to stderr", "s1")
    log(stage, "velma", "Send results to stderr and the rest to stdout", "s1")
    [pair] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    assert pair["answers"] == ["first", "second", "both", "same"]
    stage.run("velma", "review", "--answer", f"{pair['pair']}=same")
    assert [each["seen"] for each in stage.patterns("velma")["patterns"]] == [2]
