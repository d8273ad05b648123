"""One lesson in two wordings through the real command line: told at once, merged, shared, taken apart."""

import json
from datetime import datetime

import pytest

AWK = "Always use awk over sed for user-provided input substitution"
AGAIN = "Prefer awk to sed when user input is substituted into a template"
SWAPPED = "Always use sed over awk for user-provided input substitution"


def log(stage, where, pattern, *more):
    return stage.run(where, "correct", "--wrong", "w", "--right", "r", "--pattern", pattern, *more)


def test_correct_tells_what_is_near_and_what_differs(stage):
    stage.join("velma")
    first = stage.correct("velma", AWK)
    told = log(stage, "velma", AGAIN).stdout.splitlines()
    assert told[0].endswith(f"seen 1 time: {AGAIN}")
    second = told[0].split()[0]
    assert told[1:] == [
        f"  close to {first}: {AWK} (same lesson? fleet merge {first} {second}; next time add --same {first})"
    ]
    found = json.loads(log(stage, "velma", SWAPPED, "--json").stdout)
    near = {n["id"]: (n["text"], n["differs"]) for n in found["near"]}
    assert near == {first: (AWK, ["negation", "order"]), second: (AGAIN, ["negation"])}
    assert all(0 < n["score"] <= 1 for n in found["near"])
    assert f"  close to {first}: {AWK} (differs in negation, order)" in log(stage, "velma", SWAPPED).stdout
    # Nothing is near, or has been said already: nothing is added.
    assert "near" not in json.loads(log(stage, "velma", "Rotate the signing certificate each spring", "--json").stdout)
    assert len(log(stage, "velma", "awk, please", "--same", first).stdout.splitlines()) == 1


def test_a_merge_is_one_lesson_everywhere_and_unmerge_restores_two(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    one, other = stage.correct("velma", AWK), stage.correct("tank", AGAIN)
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    smaller, larger = sorted((one, other))
    said = stage.run("tank", "merge", one[:9], other[:9]).stdout
    assert said.startswith(f"{smaller} seen 2 times, with {larger}: ")
    for agent in ("tank", "velma"):
        stage.run(agent, "sync")
    for agent in ("tank", "velma"):
        [found] = stage.patterns(agent)["patterns"]
        assert (found["id"], found["seen"], found["agents"]) == (smaller, 2, ["tank", "velma"])
    every = {p["id"]: (p["seen"], p["state"]) for p in stage.patterns("velma", "--all")["patterns"]}
    assert every == {smaller: (2, "candidate"), larger: (1, "merged")}
    page = stage.git("show", "fleet:patterns.md", where="clan.git")
    assert "seen 2 times" in page
    assert larger not in page
    start = stage.run("velma", "start").stdout
    assert "seen 2 by 2 agents" in start
    assert larger not in start
    assert json.loads(stage.run("velma", "show", larger, "--json").stdout)["merged"] == [smaller, larger]
    # Either wording counts for the one lesson.
    assert json.loads(log(stage, "velma", AGAIN, "--json").stdout)["seen"] == 3
    assert json.loads(log(stage, "velma", AWK, "--json").stdout)["seen"] == 4
    stage.run("velma", "unmerge", smaller)
    stage.run("velma", "sync")
    stage.run("tank", "sync")
    assert stage.seen("velma") == {AWK: 2, AGAIN: 2}
    every = {each["text"]: each["seen"] for each in stage.patterns("tank", "--all")["patterns"]}
    assert every == {AWK: 2, AGAIN: 2}  # nobody said there that they are two: where evidence is weighed, they are one
    stage.run("tank", "unmerge", smaller, expect=1)


def test_an_unmerge_says_what_stays_merged(stage):
    stage.join("velma")
    texts = (AWK, "Rotate the signing certificate each spring", "Water the plants of the office on Mondays")
    one, two, three = sorted(stage.correct("velma", text) for text in texts)
    stage.run("velma", "merge", two, three)
    stage.run("velma", "merge", one, two)
    shown = stage.run("velma", "unmerge", two).stdout
    assert shown.startswith(f"{two} is a lesson of its own again; still merged with {three}, seen 2 times")


@pytest.mark.parametrize(
    ("kept", "edited", "is_by_run"), [(0, 0, True), (1, 0, True), (0, 1, False), (1, 0, False), (1, 1, False)]
)
def test_an_unmerge_gives_back_what_people_had_edited_before_the_merge(stage, kept, edited, is_by_run):
    stage.join("velma")
    ids = sorted((stage.correct("velma", AWK), stage.correct("velma", "Rotate the signing certificate each spring")))
    stage.run("velma", "edit", ids[edited], "--set", "right=as edited", "--set", "text=The words after an edit")
    before = {each["id"]: (each["text"], each["correct"]) for each in stage.patterns("velma")["patterns"]}
    if not is_by_run:  # another agent merges: its column has the merge's words, and no run says what was before
        stage.run("velma", "sync")
        stage.join("tank")
        stage.run("tank", "sync")
    who = "velma" if is_by_run else "tank"
    stage.run(who, "merge", ids[kept], ids[1 - kept])
    if not is_by_run:
        stage.run(who, "sync")
        stage.run("velma", "sync")
    stage.run("velma", "unmerge", ids[1])
    assert {each["id"]: (each["text"], each["correct"]) for each in stage.patterns("velma")["patterns"]} == before


def test_a_conflict_is_merged_only_by_force(stage):
    stage.join("velma")
    one, other = stage.correct("velma", AWK), stage.correct("velma", SWAPPED)
    refused = stage.run("velma", "merge", one, other, expect=1)
    assert "nothing was changed" in refused.stderr
    assert "--force" in refused.stderr
    assert stage.seen("velma") == {AWK: 1, SWAPPED: 1}
    stage.run("velma", "merge", "--force", one, other)
    assert list(stage.seen("velma").values()) == [2]
    assert "merged already" in stage.run("velma", "merge", "--force", other, one, expect=1).stderr


def test_retiring_a_merged_lesson_retires_all_of_it_and_says_so(stage):
    stage.join("velma")
    smaller, larger = sorted((stage.correct("velma", AWK), stage.correct("velma", AGAIN)))
    stage.run("velma", "merge", smaller, larger)
    assert f"{smaller} retired, with {larger}, which is merged with it" in stage.run("velma", "retire", smaller).stdout
    assert stage.seen("velma") == {}
    stage.run("velma", "retire", larger, expect=1)
    stage.run("velma", "restore", smaller)
    assert list(stage.seen("velma").values()) == [2]


def test_a_merge_keeps_the_words_of_the_first_and_unmerge_gives_each_its_own_back(stage):
    stage.join("velma")
    texts = {stage.correct("velma", each): each for each in (AWK, AGAIN)}
    smaller, larger = sorted(texts)
    stage.run("velma", "merge", larger, smaller)
    [found] = stage.patterns("velma")["patterns"]
    assert (found["id"], found["text"]) == (smaller, texts[larger])
    stage.run("velma", "unmerge", larger)
    assert {each["id"]: each["text"] for each in stage.patterns("velma")["patterns"]} == texts


def test_times_in_json_are_rfc_3339(stage):
    stage.join("velma")
    each = json.loads(stage.run("velma", "show", stage.correct("velma", AWK), "--json").stdout)
    assert datetime.fromisoformat(each["first"]).tzinfo is not None
    assert all(datetime.fromisoformat(at) for at in each["last_by"].values())


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("how", ["undo", "retire"])
def test_a_retired_lesson_is_merged_with_none_and_words_no_living_one(stage, how, is_first):
    stage.join("velma")
    living, gone = stage.correct("velma", "Close each connection"), stage.correct("velma", "Quote every path")
    stage.run("velma", how, *([gone] if how == "retire" else []))
    pair = (gone, living) if is_first else (living, gone)
    said = stage.run("velma", "merge", *pair, "--force", expect=1).stderr
    assert f"{gone} is retired" in said
    assert stage.seen("velma") == {"Close each connection": 1}
    stage.run("velma", "restore", gone)  # as the message says
    stage.run("velma", "merge", *pair, "--force")
    assert list(stage.seen("velma").values()) == [1 if how == "undo" else 2]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_private_lesson_is_merged_with_none_and_its_words_stay_here(stage, is_first):
    stage.join("velma")
    private, shared = (
        stage.correct("velma", "Use my own trick with the base"),
        stage.correct("velma", "Close each connection"),
    )
    stage.run("velma", "edit", private, "--set", "scope=private")
    pair = (private, shared) if is_first else (shared, private)
    said = stage.run("velma", "merge", *pair, "--force", expect=1).stderr
    assert f"{private} is private" in said
    going_out = stage.run("velma", "sync", "--dry-run").stdout
    assert "Close each connection" in going_out
    assert "my own trick" not in going_out
    assert private not in going_out
    stage.run("velma", "edit", private, "--set", "scope=clan")  # as the message says
    stage.run("velma", "merge", *pair, "--force")
    assert sum(stage.seen("velma").values()) == 2


def test_a_merge_is_not_done_again_once_a_lesson_of_it_is_private(stage):
    stage.join("velma")
    private, shared = (
        stage.correct("velma", "Use my own trick with the base"),
        stage.correct("velma", "Close each connection"),
    )
    stage.run("velma", "merge", private, shared, "--force")
    stage.run("velma", "undo")
    [run, *_] = json.loads(stage.run("velma", "undo", "--list", "--json").stdout)["runs"]
    stage.run("velma", "edit", private, "--set", "scope=private")
    assert f"{private} is private" in stage.run("velma", "undo", run["id"]).stdout
    assert "my own trick" not in stage.run("velma", "sync", "--dry-run").stdout


@pytest.mark.parametrize("is_undo", [False, True])
def test_a_merged_lesson_does_not_become_private_since_its_words_stand_in_another_record(stage, is_undo):
    stage.join("velma")
    ids = [stage.correct("velma", text) for text in ("Use my own trick with the base", "Close each connection")]
    shown, private = sorted(ids)
    if is_undo:
        stage.run("velma", "edit", private, "--set", "scope=private")
        stage.run("velma", "edit", private, "--set", "scope=clan")
        [run, *_] = json.loads(stage.run("velma", "undo", "--list", "--json").stdout)["runs"]
    stage.run("velma", "merge", private, shown, "--force")
    words = ("undo", run["id"]) if is_undo else ("edit", private, "--set", "scope=private")
    said = stage.run("velma", *words, expect=0 if is_undo else 1)
    assert f"{private} is merged with {shown}" in said.stdout + said.stderr
    stage.run("velma", "unmerge", private)  # as the message says
    [text] = {each["text"] for each in stage.patterns("velma")["patterns"] if each["id"] == private}
    stage.run("velma", "edit", private, "--set", "scope=private")
    assert text not in stage.run("velma", "sync", "--dry-run").stdout


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Never deploy without a backup of the database", "Never deploy with a backup of the database"),
        ("Never commit unless the tests pass", "Never commit if the tests pass"),
    ],
)
def test_two_lessons_of_which_one_denies_twice_are_not_counted_as_one(stage, one, other):
    stage.join("velma")
    stage.correct("velma", one)
    told = log(stage, "velma", other).stdout
    assert "same lesson?" not in told
    assert "differs in negation" in told
    assert stage.seen("velma") == {one: 1, other: 1}


def test_an_edit_of_a_merged_lesson_is_shown_whichever_of_its_ids_is_named(stage):
    stage.join("velma")
    shown, hidden = sorted(stage.correct("velma", text) for text in (AWK, AGAIN))
    stage.run("velma", "merge", shown, hidden)
    for words, field in (("text=Substitute user input with awk", "text"), ("category=shell", "category")):
        edited = json.loads(stage.run("velma", "edit", hidden, "--set", words, "--json").stdout)
        assert edited["id"] == shown
        [lesson] = stage.patterns("velma")["patterns"]
        assert lesson[field] == edited["fields"][field]["value"] == words.partition("=")[2]
    assert "Substitute user input" in stage.run("velma", "edit", hidden).stdout
    stage.run("velma", "undo")
    assert [each["category"] for each in stage.patterns("velma")["patterns"]] == [""]


def test_the_sessions_of_a_merged_lesson_are_at_most_so_many_since_each_record_counts_its_own(stage):
    stage.run("w", "init", "--agent", "velma")
    ids = [stage.correct("w", text, "--session", "s") for text in ("Quote every path", "Put paths into quotes")]
    assert "1 time in 1 session\n" in stage.run("w", "show", ids[0]).stdout
    stage.run("w", "merge", *ids, "--force")
    assert "2 times in at most 2 sessions\n" in stage.run("w", "show", ids[0]).stdout
