"""``fleet inbox``: each thing that waits is shown with its evidence and its diff, decided singly or by kind, undone."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fleet.app import inbox
from fleet.reflect.inbox import Inbox, Item
from fleet.store.workspace import Workspace
from tests.reflect.talks import Talk

LESSON = "Quote every variable in a shell script"
NEVER = "Never use tabs in a Makefile"
ALWAYS = "Always use tabs in a Makefile"
DRAFT = "---\nname: lint\ndescription: Lint before a push\n---\n\nRun the linter, then the tests.\n"


def put(stage, kind: str, title: str, agent: str = "velma", **more) -> str:
    workspace = Workspace(stage.folder / "w")
    done = Inbox(workspace, agent).put([Item(kind=kind, title=title, **more)])[0]
    workspace.close()
    return done.id


def put_skill(stage, slug: str = "lint", **more) -> str:
    path = f"agents/velma/skills/{slug}/SKILL.md"
    draft: Path = stage.folder / "w" / path
    draft.parent.mkdir(parents=True)
    draft.write_text(DRAFT)
    body = {"draft": path, "target": f".claude/skills/{slug}/SKILL.md", **more}
    return put(stage, "skill", f"a skill named {slug}", key=slug, body=body)


def waiting(stage, *words: str) -> list[dict]:
    return json.loads(stage.run("w", "inbox", "--json", *words).stdout)["waiting"]


def decide(stage, *words: str, expect: int = 0) -> dict:
    return json.loads(stage.run("w", "inbox", *words, "--json", expect=expect).stdout or "{}")


def pair(stage) -> dict:
    stage.correct("w", NEVER)
    stage.correct("w", ALWAYS)
    [found] = waiting(stage)
    return found


# --- kinds ----------------------------------------------------------------------------------------------------------


def test_a_skill_is_shown_as_a_diff_copied_at_a_yes_and_taken_away_by_an_undo(w):
    skill = put_skill(w)
    [shown] = waiting(w)
    assert shown["id"] == skill
    assert "+Run the linter, then the tests." in shown["diff"]
    [done] = decide(w, "approve", skill)["decided"]
    target = w.folder / "w/.claude/skills/lint/SKILL.md"
    assert target.read_text() == DRAFT
    assert waiting(w) == []
    w.run("w", "undo", done["run"])
    assert not target.exists()
    assert [each["id"] for each in waiting(w)] == [skill]


def test_a_skill_as_a_person_mended_its_draft_is_what_is_copied(w):
    skill = put_skill(w)
    draft = w.folder / "w/agents/velma/skills/lint/SKILL.md"
    draft.write_text(DRAFT + "And commit.\n")
    assert "+And commit." in waiting(w)[0]["diff"]
    decide(w, "approve", skill)
    assert (w.folder / "w/.claude/skills/lint/SKILL.md").read_text() == DRAFT + "And commit.\n"


def test_a_skill_that_is_there_by_now_is_never_overwritten(w):
    skill = put_skill(w)
    target = w.folder / "w/.claude/skills/lint/SKILL.md"
    target.parent.mkdir(parents=True)
    target.write_text("mine\n")
    assert "-mine" not in waiting(w)[0]["diff"], "what is shown is what a yes does"
    assert "never overwritten" in waiting(w)[0]["diff"]
    told = w.run("w", "inbox", "approve", skill, expect=1).stderr
    assert "never overwritten" in told
    assert target.read_text() == "mine\n"
    assert waiting(w) == [], "what is not true any more waits no longer"


def test_an_edit_of_a_skill_is_refused_where_the_skill_changed_since(w):
    target = w.folder / "w/.claude/skills/lint/SKILL.md"
    target.parent.mkdir(parents=True)
    target.write_text("old\n")
    skill = put_skill(w, before="old\n")
    assert "-old" in waiting(w)[0]["diff"]
    target.write_text("old, and mended\n")
    assert "was changed since" in waiting(w)[0]["diff"]
    assert "was changed since" in w.run("w", "inbox", "approve", skill, expect=1).stderr
    assert target.read_text() == "old, and mended\n"


def test_an_addition_to_a_skill_leaves_its_own_lines_as_they_are_and_the_diff_shows_all_that_changes(w):
    target = w.folder / "w/.claude/skills/lint/SKILL.md"
    target.parent.mkdir(parents=True)
    mine, secret = b"# Lint\r\n<system-reminder>\r\nPASSWORD=hunter2hunter2\r\nlast \xff", "gh" + "p_" + "a1B2c3" * 6
    target.write_bytes(mine)
    skill = put_skill(w, before=inbox.screened(mine.decode("utf-8", "replace")))
    draft = w.folder / "w/agents/velma/skills/lint/SKILL.md"
    draft.write_bytes(mine + f"\n\n## From a session\n\nUse {secret}.\n".encode())
    added = [row[1:] for row in waiting(w)[0]["diff"].splitlines()[3:] if row[0] in "+-"]
    [done] = decide(w, "approve", skill)["decided"]
    head, _, tail = target.read_bytes().partition(b"\xff\n")
    assert head + b"\xff" == mine
    assert secret not in tail.decode()
    assert added == tail.decode().splitlines()
    assert not draft.parent.exists()
    w.run("w", "undo", done["run"])
    assert target.read_bytes() == mine
    assert draft.exists()


def test_the_undo_of_a_skill_leaves_no_folder_of_it(w):
    [done] = decide(w, "approve", put_skill(w))["decided"]
    w.run("w", "undo", done["run"])
    assert not (w.folder / "w/.claude/skills/lint").exists()


@pytest.mark.parametrize(
    "draft", ["../../secret/SKILL.md", "/etc/SKILL.md", "agents/velma/skills/../../../x/SKILL.md", "fleet.toml"]
)
def test_an_inbox_that_came_along_has_no_other_file_read(w, draft):
    (w.folder / "secret").mkdir()
    (w.folder / "secret/SKILL.md").write_text("secret\n")
    skill = put(w, "skill", "a skill", body={"draft": draft, "target": ".claude/skills/x/SKILL.md"})
    assert "secret" not in waiting(w)[0]["diff"]
    assert "is gone" in w.run("w", "inbox", "approve", skill, expect=1).stderr
    assert not (w.folder / "w/.claude/skills/x/SKILL.md").exists()


@pytest.mark.parametrize("target", ["../x/SKILL.md", "Makefile", ".git/SKILL.md", "/tmp/SKILL.md"])
def test_a_skill_goes_nowhere_but_to_a_skill_file_below_the_workspace(w, target):
    skill = put_skill(w, target=target)
    w.run("w", "inbox", "approve", skill, expect=None)
    assert not (w.folder / "x").exists()
    assert not (w.folder / "w/Makefile").exists()
    assert not (w.folder / "w/.git").exists()


def test_a_rejected_skill_leaves_no_draft_and_comes_back_by_an_undo(w):
    skill = put_skill(w)
    draft = w.folder / "w/agents/velma/skills/lint/SKILL.md"
    [done] = decide(w, "reject", skill, "--why", "we have a hook for that")["decided"]
    assert not draft.parent.exists()
    w.run("w", "undo", done["run"])
    assert draft.read_text() == DRAFT
    assert [each["id"] for each in waiting(w)] == [skill]
    (draft.parent / "mine.txt").write_text("a person's")
    decide(w, "reject", skill)
    assert [each.name for each in draft.parent.iterdir()] == ["mine.txt"]


def test_an_observation_is_appended_to_the_page_about_the_person_and_only_at_a_yes(w):
    page = w.folder / "w/agents/velma/USER.md"
    page.write_text("# Me\n\nI like tea.")
    first = put(w, "persona", "Prefers short answers", body={"note": "Prefers short answers"})
    assert page.read_text() == "# Me\n\nI like tea."
    [done] = decide(w, "approve", first)["decided"]
    assert page.read_text().startswith("# Me\n\nI like tea.\n- 20")
    assert page.read_text().endswith(": Prefers short answers\n")
    w.run("w", "undo", done["run"])
    assert page.read_text() == "# Me\n\nI like tea."
    page.write_text("# Me\n\n- 2026-01-01: Works at night\n")
    many = put(w, "persona", "Talks", body={"note": "and so on, " * 300})
    assert len(w.run("w", "inbox", "approve", many).stdout) < 700
    again = put(w, "persona", "Works at night", body={"note": "Works at night."})
    assert "says so already" in w.run("w", "inbox", "approve", again, expect=1).stderr


def test_an_observation_that_the_page_has_is_not_appended_though_one_that_differs_stands_before_it(w):
    page = w.folder / "w/agents/velma/USER.md"
    page.write_text("# Me\n\n- Prefers pytest 7 for unit tests\n- Prefers pytest 8 for unit tests\n")
    item = put(w, "persona", "Prefers pytest 8", body={"note": "Prefers pytest 8 for unit tests"})
    assert "says so already" in w.run("w", "inbox", "approve", item, expect=1).stderr


@pytest.mark.parametrize(
    ("body", "name", "page"),
    [
        ({"what": "note"}, "memory.md", "# Me\n\n* The staging host listens on 9090.\n"),
        (
            {"what": "person", "peer": "ann"},
            "user-model.md",
            "# User model\n\n## ann\n- the staging host listens on 9090\n",
        ),
    ],
)
def test_what_a_person_wrote_into_the_page_without_a_date_is_not_written_there_again(w, body, name, page):
    file = w.folder / "w/agents/velma" / name
    file.write_text(page)
    note = "The staging host listens on 9090"
    item = put(w, "candidate", note, body={**body, "note": note})
    assert "says so already" in w.run("w", "inbox", "approve", item, expect=1).stderr
    assert file.read_text() == page


def test_a_candidate_becomes_a_lesson_at_a_yes_unless_it_is_known_by_then(w):
    one = put(w, "candidate", LESSON, body={"pattern": LESSON, "wrong": "w", "right": "r"})
    two = put(w, "candidate", NEVER, body={"pattern": NEVER, "wrong": "w", "right": "r"})
    assert w.patterns("w")["patterns"] == []
    [done] = decide(w, "approve", one)["decided"]
    assert list(w.seen("w")) == [LESSON]
    assert "approved by a person" in (w.folder / "w/agents/velma/corrections.md").read_text()
    w.correct("w", NEVER)
    assert "known by now" in w.run("w", "inbox", "approve", two, expect=1).stderr
    w.run("w", "undo", done["run"])
    assert list(w.seen("w")) == [NEVER]


def test_a_guard_holds_from_a_yes_until_its_undo(w):
    pattern = w.correct("w", "Ask before `git push --force`")
    w.run("w", "edit", pattern, "--set", "trigger=Bash:git push*")
    guard = put(w, "guard", "ask before git push", key=pattern, body={"lesson": pattern, "decision": "ask"})
    [done] = decide(w, "approve", guard)["decided"]
    assert [each["id"] for each in json.loads(w.run("w", "guard", "--json").stdout)["guards"]] == [pattern]
    w.run("w", "undo", done["run"])
    assert json.loads(w.run("w", "guard", "--json").stdout)["guards"] == []


# --- one queue ------------------------------------------------------------------------------------------------------


def test_a_pair_is_in_the_inbox_and_an_answer_to_the_review_decides_it_there(w):
    shown = pair(w)
    assert shown["kind"] == "contradiction"
    assert any(NEVER in each for each in shown["evidence"])
    [asked] = json.loads(w.run("w", "review", "--json").stdout)["pairs"]
    w.run("w", "review", "--answer", f"{asked['pair']}=both")
    assert waiting(w) == []
    w.run("w", "undo")
    assert [each["id"] for each in waiting(w)] == [shown["id"]]


def test_the_command_that_the_inbox_names_for_a_contradiction_decides_it(w):
    shown = pair(w)
    hint = w.run("w", "inbox").stderr
    assert f"fleet inbox approve {shown['id']} --answer first|second, or" in hint
    w.run("w", "inbox", "approve", shown["id"], "--answer", "first")
    assert waiting(w) == []


def test_an_answer_is_no_reason_and_a_reason_no_answer(w):
    found = pair(w)["id"]
    for words in (["reject", found, "--answer", "first"], ["approve", found, "--why", "first"]):
        assert "--answer goes with approve" in w.run("w", "inbox", *words, expect=2).stderr
    assert [each["id"] for each in waiting(w)] == [found]


@pytest.mark.parametrize(("answer", "kept"), [("first", 0), ("second", 1)])
def test_of_a_contradiction_the_one_that_was_shown_first_is_the_first(w, answer, kept):
    shown = pair(w)
    assert "which of the two holds" in w.run("w", "inbox", "approve", shown["id"], expect=2).stderr
    [done] = decide(w, "approve", shown["id"], "--answer", answer)["decided"]
    [left] = w.seen("w")
    assert left in shown["evidence"][kept]
    assert json.loads(w.run("w", "review", "--json").stdout)["pairs"] == []
    w.run("w", "undo", done["run"])
    assert set(w.seen("w")) == {NEVER, ALWAYS}
    assert [each["id"] for each in waiting(w)] == [shown["id"]]


def test_a_lesson_that_waits_for_a_memory_is_in_the_inbox_and_leaves_it_by_whatever_decides(w):
    config = w.folder / "w/fleet.toml"
    config.write_text(config.read_text().replace("[promotion]", '[promotion]\nmode = "suggest"'))
    texts = (LESSON, "Pin the version of every action")
    first, second = (w.correct("w", text, "--session", "s1") for text in texts)
    for session in ("s2", "s3"):
        for text in texts:
            w.correct("w", text, "--session", session)
    w.run("w", "sync")
    found = {each["title"]: each["id"] for each in waiting(w)}
    assert len(found) == 2
    w.run("w", "promote", first)
    [left] = waiting(w)
    decide(w, "reject", left["id"], "--why", "not for me")
    w.run("w", "sync")
    assert waiting(w) == []
    memory = (w.folder / "w/agents/velma/memory.md").read_text()
    assert f"- {LESSON}" in memory
    assert f"- {texts[1]}" not in memory
    assert second in memory, "a lesson that was declined is remembered as that"
    assert "promotion" not in w.run("w", "start").stdout


def test_a_lesson_that_waits_for_two_agents_is_decided_for_each_alone(w):
    w.run("w", "init", "--agent", "tank")
    w.run("w", "init", "--agent", "scooby")
    lesson = [w.correct("w", LESSON, "--agent", agent) for agent in ("velma", "tank", "tank")].pop()
    w.run("w", "sync")
    asked = {each["agent"]: each["id"] for each in waiting(w)}
    assert asked.keys() == {"velma", "tank", "scooby"}
    decide(w, "approve", asked["scooby"])
    assert {each["agent"]: each["id"] for each in waiting(w)} == {who: asked[who] for who in ("velma", "tank")}
    decide(w, "reject", asked["tank"])
    memories = {who: (w.folder / f"w/agents/{who}/memory.md") for who in asked}
    assert [who for who, page in memories.items() if page.exists() and f"; {lesson})" in page.read_text()] == ["scooby"]
    assert [each["agent"] for each in waiting(w)] == ["velma"]


# --- how it is decided ----------------------------------------------------------------------------------------------


def test_at_most_seven_are_shown_the_best_evidenced_first_and_all_are_counted(w):
    places = ("tests", "docs", "the API", "a migration", "logging", "a cache", "the client", "a queue", "search")
    for number, place in enumerate(places):
        put(w, "persona", f"Wants {place} first", weight=float(number), body={"note": f"Wants {place} first"})
    found = json.loads(w.run("w", "inbox", "--json").stdout)
    assert found["total"] == 9
    assert [each["weight"] for each in found["waiting"]] == [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    assert "2 more wait" in w.run("w", "inbox").stderr
    assert len(waiting(w, "--all", "persona")) == 9
    assert "9 things wait" in w.run("w", "start").stdout
    assert "9 decisions since" in w.run("w", "status").stdout


def test_a_kind_is_decided_all_at_once_and_another_kind_waits_on(w):
    put(w, "persona", "Prefers short answers", body={"note": "Prefers short answers"})
    put(w, "persona", "Works at night", body={"note": "Works at night"})
    skill = put_skill(w)
    assert len(decide(w, "reject", "--all", "persona", "--why", "no")["decided"]) == 2
    assert [each["id"] for each in waiting(w)] == [skill]
    assert not decide(w, "approve", "--all", "persona")["decided"]


def test_of_the_items_of_a_kind_those_of_an_agent_that_is_named_are_decided_alone(w):
    w.run("w", "init", "--agent", "tank")
    mine, theirs = (put(w, "persona", "Works at night", each, body={"note": "At night"}) for each in ("velma", "tank"))
    assert [each["id"] for each in decide(w, "reject", "--all", "every", "--agent", "tank")["decided"]] == [theirs]
    assert [each["id"] for each in waiting(w)] == [mine]
    assert [each["id"] for each in decide(w, "reject", "--all", "persona")["decided"]] == [mine]


def test_what_cannot_be_done_is_named_and_the_rest_of_its_kind_is_done(w):
    put_skill(w, "first")
    put_skill(w, "second")
    (w.folder / "w/agents/velma/skills/first/SKILL.md").unlink()
    done = decide(w, "approve", "--all", "skill", expect=1)
    assert len(done["decided"]) == 1
    assert "is gone" in done["failed"][0]
    assert (w.folder / "w/.claude/skills/second/SKILL.md").exists()


def test_how_a_rejection_is_taken_back_is_said_once(w):
    for text in ("Always use awk over sed for input of users", "Always use awk over sed for the input of a user"):
        w.correct("w", text)
    item = put(w, "persona", "Prefers short answers", body={"note": "Prefers short answers"})
    for each in (item, *(one["id"] for one in waiting(w) if one["kind"] == "merge")):
        assert w.run("w", "inbox", "reject", each).stdout.count("fleet undo") == 1


def test_what_was_decided_is_not_decided_twice(w):
    skill = put_skill(w)
    decide(w, "approve", skill)
    assert "was decided: approved" in w.run("w", "inbox", "reject", skill, expect=1).stderr
    assert "nothing that waits" in w.run("w", "inbox", "reject", "i-0000", expect=1).stderr
    assert w.run("w", "inbox").stdout == "all caught up: nothing waits for a decision\n"


def test_two_who_say_yes_at_once_have_it_done_once(w):
    put(w, "candidate", LESSON, body={"pattern": LESSON, "wrong": "w", "right": "r"})
    [item] = waiting(w)
    words = [sys.executable, "-m", "fleet", "inbox", "approve", item["id"]]
    both = [
        subprocess.Popen(words, cwd=w.folder / "w", env=w.environment(), stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert sorted(each.wait(60) for each in both) == [0, 1]
    assert w.seen("w") == {LESSON: 1}


def proposed(w) -> tuple[str, Path]:
    """Let a reflection propose a skill; return the item's id, and its draft."""
    talk = Talk(w.folder / "t.jsonl")
    for _ in range(4):
        for command in ("make lint", "make unit", "make docs"):
            talk.runs(command, "ok")
    script = w.folder / "reflector.sh"
    said = {
        "outcome": "success",
        "should_skill": True,
        "skill_slug": "lint",
        "skill_body": "Run it. " * 10,
        "cost_usd": 0,
    }
    script.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps(said)}'\n")
    script.chmod(0o755)
    toml = w.folder / "w/fleet.toml"
    toml.write_text(f'[reflect]\nreflector = "command"\ncommand = [{json.dumps(str(script))}]\n')
    w.run("w", "reflect", "--agree")
    w.run("w", "reflect", "--transcript", str(talk.path))
    [skill] = [each for each in waiting(w) if each["kind"] == "skill"]
    return skill["id"], w.folder / "w/agents/velma/skills/lint/SKILL.md"


def later(w, days: int) -> None:
    w.now_ms = (w.now_ms or int(time.time() * 1000)) + days * 86_400_000


def test_what_a_pipe_or_json_was_shown_nobody_has_seen(w):
    _, draft = proposed(w)
    w.run("w", "inbox")
    w.run("w", "inbox", "--json")
    w.run("w", "inbox", "approve", "--all", "persona")
    later(w, 60)
    assert json.loads(w.run("w", "inbox", "--json").stdout)["expired"] == []
    assert draft.exists()
    assert [each["until"] for each in waiting(w)] == [""]
    w.now_ms = None
    on_keys(w, b" ")
    assert waiting(w)[0]["until"]


@pytest.mark.parametrize("way", ["inbox", "json", "sync", "sleep"])
def test_what_nobody_decides_in_time_is_dropped_aloud_with_what_brings_its_draft_back(w, way):
    id_, draft = proposed(w)
    text = draft.read_bytes()
    on_keys(w, b" ")
    later(w, 8)
    words = {"json": ["inbox", "--json"], "sleep": ["sleep", "--only", "review"]}.get(way, [way])
    done = w.run("w", *words, expect=None)
    told = json.loads(done.stdout)["dropped"][0] if way == "json" else done.stdout + done.stderr
    assert "agents/velma/skills/lint/SKILL.md" in told
    assert not draft.exists()
    run = re.search(r"`fleet undo (decide-\S+)` brings it back", told)[1]
    w.run("w", "undo", run)
    assert draft.read_bytes() == text
    assert [each["id"] for each in waiting(w)] == [id_]
    later(w, 30)
    assert [each["id"] for each in waiting(w)] == [id_], "nobody was shown it since"
    assert draft.read_bytes() == text


def test_the_last_day_is_shown_at_the_first_look_and_a_drop_until_somebody_has_seen_it(w):
    id_, _ = proposed(w)
    assert b"dropped after 20" in on_keys(w, b"q")
    later(w, 8)
    w.run("w", "sync", expect=None)
    for _ in range(2):  # a pipe, where nobody sees it
        assert f"dropped, since nobody decided it in time: {id_}" in w.run("w", "inbox").stdout
    assert "1 draft dropped, since nobody decided in time" in w.run("w", "start").stdout
    with closing(Workspace(w.folder / "w")) as workspace:
        Inbox(workspace).show(Inbox(workspace).dropped())
    assert id_ not in w.run("w", "inbox").stdout


def test_a_draft_that_somebody_wrote_in_is_not_dropped(w):
    id_, draft = proposed(w)
    on_keys(w, b" ")
    draft.write_text(draft.read_text() + "\nMine, too.\n")
    later(w, 60)
    assert json.loads(w.run("w", "inbox", "--json").stdout)["expired"] == []
    assert "Mine, too." in draft.read_text()
    decide(w, "approve", id_)
    assert "Mine, too." in (w.folder / "w/.claude/skills/lint/SKILL.md").read_text()


def test_a_diff_that_is_a_line_too_long_says_so(w):
    put(w, "guard", "Shall it stop?", diff="\n".join(f"+ {number}" for number in range(13)))
    assert w.run("w", "inbox").stdout.endswith("    + 11\n    ... 1 more line\n")


def test_days_to_a_decision_are_in_the_statistics(w):
    decide(w, "reject", put_skill(w))
    assert json.loads(w.run("w", "stats", "--json").stdout)["decisions"] == {"number": 1, "median_days": 0.0}


def on_keys(w, *pressed: bytes) -> bytes:
    """Answer ``fleet inbox`` on a terminal, a key for each question; return what it wrote until it ended."""
    main, far = pty.openpty()
    asked = subprocess.Popen(
        [sys.executable, "-m", "fleet", "inbox"],
        cwd=w.folder / "w",
        env=w.environment(),
        stdin=far,
        stdout=far,
        stderr=far,
    )
    os.close(far)
    said, keys = b"", iter(pressed)
    while not re.search(rb"decisions? made", said):
        assert select.select([main], [], [], 60)[0], said
        said += os.read(main, 4096)
        if said.endswith(b"q quit\r\n") and (key := next(keys, None)):
            os.write(main, key)
    assert asked.wait(30) == 0
    os.close(main)
    return said


def test_on_a_terminal_each_is_a_key_and_the_last_can_be_undone(w):
    put_skill(w)
    put(w, "persona", "Prefers short answers", body={"note": "Prefers short answers"})
    said = on_keys(w, b"?", b"y", b"u", b"n", b"y")
    assert said.count(b"'?' answers nothing here") == 1
    assert b"2 decisions made" in said
    assert b"waits again" in said
    assert waiting(w) == []
    assert (w.folder / "w/.claude/skills/lint/SKILL.md").exists() != (w.folder / "w/agents/velma/USER.md").exists()


def test_the_whole_diff_is_a_key_only_where_not_all_of_it_is_shown(w):
    put_skill(w)
    assert b"the whole diff" not in on_keys(w, b" ")
    draft = w.folder / "w/agents/velma/skills/lint/SKILL.md"
    draft.write_text(DRAFT + "".join(f"Step {number}.\n" for number in range(30)))
    said = on_keys(w, b"d", b" ")
    assert said.count(b"d the whole diff") == 1
    assert b"+Step 29." in said.partition(b"d the whole diff")[2]


@pytest.mark.parametrize(
    "words", [("approve",), ("approve", "i-1", "--all", "skill"), ("maybe", "i-1"), ("--all", "x")]
)
def test_what_is_not_understood_changes_nothing(w, words):
    assert w.run("w", "inbox", *words, expect=2).stderr


def test_a_promotion_is_offered_and_entered_with_the_evidence_of_all_its_wordings_as_of_now(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    text = "Pin GitHub actions by commit hash"
    for session in ("s-1", "s-2"):
        lesson = stage.correct("velma", text, "--session", session)
    stage.run("velma", "sync")
    stage.correct("tank", text)
    stage.run("tank", "sync")
    [first] = json.loads(stage.run("tank", "inbox", "--json").stdout)["waiting"]
    assert first["evidence"][0] == "seen 3 by 2 agents"
    stage.correct("tank", "GitHub actions are to be pinned by commit hash")
    [item] = json.loads(stage.run("tank", "inbox", "--json").stdout)["waiting"]
    assert (item["id"], item["evidence"][0]) == (first["id"], "seen 4 by 2 agents in 2 wordings")
    assert item["diff"].endswith(f"(velma, seen 4 by 2 agents; {lesson})")
    stage.run("tank", "inbox", "approve", item["id"])
    memory = (stage.folder / "tank/agents/tank/memory.md").read_text("utf-8")
    assert f"{text} — right: r (velma: a person's yes, seen 4 in 2 wordings; {lesson})" in memory
    stage.run("tank", "sync")
    assert (stage.folder / "tank/agents/tank/memory.md").read_text("utf-8") == memory


@pytest.mark.parametrize("said", ["inbox approve", "inbox reject", "promote", "demote"])
def test_a_promotion_whose_decision_is_undone_waits_again_at_once(stage, said):
    for agent in ("velma", "tank"):
        stage.join(agent)
    for session in ("s-1", "s-2"):
        stage.correct("tank", "Quote each variable of a script", "--session", session)
    lesson = stage.correct("velma", "Quote each variable of a script")
    for agent in ("tank", "velma", "tank", "velma"):
        stage.run(agent, "sync")

    def waiting() -> list[tuple[str, str, list[str]]]:
        shown = json.loads(stage.run("velma", "inbox", "--json").stdout)["waiting"]
        return [(each["id"], each["title"], each["evidence"]) for each in shown if each["kind"] == "promotion"]

    [item] = before = waiting()
    stage.run("velma", *said.split(), item[0] if "inbox" in said else lesson)
    assert not waiting()
    assert f"{item[0]} waits again" in stage.run("velma", "undo").stdout
    assert waiting() == before
    [run, *_] = json.loads(stage.run("velma", "undo", "--list", "--json").stdout)["runs"]
    assert f"{item[0]} waits no longer" in stage.run("velma", "undo", run["id"]).stdout
    assert not waiting()
    [run, *_] = json.loads(stage.run("velma", "undo", "--list", "--json").stdout)["runs"]
    stage.run("velma", "undo", run["id"])
    assert waiting() == before
    stage.run("velma", "sync")
    assert waiting() == before


def test_an_empty_inbox_names_the_corrections_that_lack_a_lesson(w):
    (w.folder / "w/agents/velma/corrections.md").write_text(
        "# Corrections — velma\n\n## 2026-11-20 10:00Z — no, use pnpm\n**What I got wrong:** npm\n"
        "**Correct approach:** \n**Pattern:** \n"
    )
    shown = w.run("w", "inbox").stdout
    assert "nothing waits for a decision" in shown
    assert "1 correction without a lesson: fleet learn --waiting" in shown
    assert "caught up" not in shown


def test_in_a_clone_without_an_agent_it_names_the_pairs_that_a_review_asks_about(stage):
    for agent, right, wrong in (("velma", "npm", "pnpm"), ("tank", "pnpm", "npm")):
        stage.join(agent)
        stage.correct(agent, f"Use {right}, never {wrong}, to change dependencies in this repository")
        stage.run(agent, "sync")
    (stage.folder / "w").mkdir()
    for name in ("fleet.toml", "clan-learnings"):
        source = stage.folder / "tank" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, stage.folder / "w" / name)
    assert "1 pair of lessons that contradict each other: fleet review" in stage.run("w").stdout
    said = stage.run("w", "inbox").stdout
    assert "1 pair of lessons: fleet review" in said
    assert "all caught up" not in said
