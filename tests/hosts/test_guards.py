"""``fleet guard``: a lesson stops the step that it is about, or puts it to a person, as was decided on this machine."""

import json
import threading
import time
from contextlib import closing

import pytest

from fleet.app import starting
from fleet.model import limits
from fleet.recall import ready
from fleet.store.workspace import Workspace

LESSON = "Pull before you push"
PUSH = {"prompt_id": "1", "tool_name": "Bash", "tool_input": {"command": "cd x && git push origin"}}


@pytest.fixture
def lesson(place) -> str:
    place.fleet("init", "--agent", "tank")
    words = ("correct", "--wrong", "w", "--right", "pull first", "--pattern", LESSON, "--trigger", "Bash:git push*")
    return json.loads(place.fleet(*words, "--json").stdout)["id"]


def decided(place, **more: object) -> tuple[str, str]:
    """Return what becomes of a push, and what is said of it."""
    out = place.hook("PreToolUse", {**PUSH, **more}).stdout
    said = json.loads(out)["hookSpecificOutput"] if out else {}
    return said.get("permissionDecision", ""), said.get("permissionDecisionReason", "")


@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_a_guard_decides_about_its_step_at_once_and_each_time_with_the_lesson_as_the_reason(place, lesson, decision):
    assert "git push*" in place.fleet("guard", lesson[:8], decision).stdout
    for _ in range(2):
        what, why = decided(place)
        assert what == decision
        assert LESSON in why
        assert lesson in why
    assert decided(place, tool_input={"command": "git pull"})[0] == ""
    (listed,) = json.loads(place.fleet("status", "--json").stdout)["guards"]
    assert (listed["id"], listed["decision"], listed["trigger"]) == (lesson, decision, "Bash:git push*")
    assert "guard " in place.fleet("status").stdout
    place.fleet("guard", lesson, "off")
    assert decided(place)[0] == ""
    assert json.loads(place.fleet("guard", "--json").stdout) == {"guards": []}
    assert "ask, deny or off. Nothing was changed" in place.fleet("guard", lesson, expect=2).stderr
    place.fleet("guard", lesson, "off", expect=1)


@pytest.mark.parametrize("command", ["# Let's push\ngit push -f", "git \\\n  push -f", "ls # don't\ngit push"])
def test_a_guard_sees_through_comments_and_continued_lines(place, lesson, command):
    place.fleet("guard", lesson, "deny")
    assert decided(place, tool_input={"command": command})[0] == "deny"
    assert decided(place, tool_input={"command": "ls # git push"})[0] == ""
    assert decided(place, tool_input={"command": ["bash", "-lc", command]})[0] == "deny"


def test_what_a_guard_stopped_is_told_to_the_person(place, lesson):
    place.fleet("guard", lesson, "deny")
    assert LESSON in json.loads(place.hook("PreToolUse", PUSH).stdout)["systemMessage"]
    (place.folder / "fleet.toml").write_text("[hook]\nquiet = true\n")
    assert "systemMessage" not in json.loads(place.hook("PreToolUse", PUSH).stdout)


def test_the_last_decision_counts_and_a_refusal_before_a_question(place, lesson):
    place.fleet("guard", lesson, "deny")
    place.fleet("guard", lesson, "ask")
    assert decided(place)[0] == "ask"
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Never push on a Friday", "--trigger", "Bash:git*")
    other = json.loads(place.fleet(*words, "--json").stdout)["id"]
    place.fleet("guard", other, "deny")
    what, why = decided(place)
    assert what == "deny"
    assert "Friday" in why


def test_a_start_waits_shortly_for_a_process_that_stopped_while_it_rendered_the_table(place, lesson, monkeypatch):
    place.fleet("guard", lesson, "deny")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Something that a start lacks")
    monkeypatch.setattr(starting, "_TIDY_S", 0.1)
    with closing(Workspace(place.folder)) as stopped, stopped.lock("guard"):
        began_s = time.monotonic()
        assert "Something that a start lacks" in place.fleet("start").stdout
        assert time.monotonic() - began_s < limits.LOCK_WAIT_S / 2
    assert decided(place)[0] == "deny"


def test_a_decision_that_is_made_while_a_start_is_rendered_holds(place, lesson, monkeypatch):
    place.fleet("guard", lesson, "ask")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Something that a start lacks")
    put, threads = starting._put, list[threading.Thread]()

    def meanwhile(workspace: Workspace, name: str, data: bytes) -> None:
        if name == ready.GUARDS_FILE:
            threads.append(threading.Thread(target=place.fleet, args=("guard", lesson, "deny")))
            threads[0].start()
            threads[0].join(3)
        put(workspace, name, data)

    monkeypatch.setattr(starting, "_put", meanwhile)
    place.fleet("start")
    threads[0].join()
    assert decided(place)[0] == "deny"


def test_a_guard_whose_table_cannot_be_written_says_so_and_holds_from_the_next_start(place, lesson):
    table = place.folder / ".fleet/ready/guards.json"
    table.mkdir(parents=True)
    done = place.fleet("guard", lesson, "deny")
    assert "hooks go by the guards before this until a session starts" in done.stderr
    assert json.loads(place.fleet("guard", "--json").stdout)["guards"]
    table.rmdir()
    place.fleet("start")
    assert lesson in table.read_text()


def test_a_guard_ends_with_its_day(place, lesson):
    place.fleet("guard", lesson, "deny", "--until", "2999-12-31")
    assert " until 2999-12-31: " in place.fleet("status").stdout
    assert decided(place)[0] == "deny"
    path = place.folder / ".fleet/ready/guards.json"
    path.write_text(path.read_text().replace("2999-12-31", "2001-01-01"))
    assert decided(place)[0] == ""
    for day in ("2001-01-01", "tomorrow", "2999-13-01", "29991231"):
        place.fleet("guard", lesson, "deny", "--until", day, expect=2)
    place.fleet("guard", lesson, "allow", expect=2)
    place.fleet("guard", "p-0000", "deny", expect=1)


def test_a_lesson_that_names_no_step_guards_none(place):
    place.fleet("init", "--agent", "tank")
    done = place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Be kind to strangers", "--json")
    said = place.fleet("guard", json.loads(done.stdout)["id"], "deny", expect=1).stderr
    assert "trigger" in said


def test_a_retired_lesson_guards_nothing_and_is_told_so_and_no_other_reason(place, lesson):
    place.fleet("retire", lesson)
    told = place.fleet("guard", lesson, "deny", expect=1).stderr
    assert f"{lesson} is retired, and guards nothing" in told
    assert "step" not in told


def test_a_guard_of_a_private_lesson_goes_with_it_and_comes_back_with_it(place, lesson):
    place.fleet("edit", lesson, "--set", "scope=private")
    place.fleet("guard", lesson, "deny")
    for words, what in ((("retire", lesson), ""), (("restore", lesson), "deny"), (("undo",), ""), (("undo",), "deny")):
        place.fleet(*words)
        assert decided(place)[0] == what, words


def test_a_guard_made_of_a_lessons_own_words_stops_what_went_wrong_and_never_the_right_way(place):
    place.fleet("init", "--agent", "tank")
    words = ("--wrong", "npm install", "--right", "pnpm install", "--pattern", "Use pnpm in this repository, never npm")
    lesson = json.loads(place.fleet("correct", *words, "--json").stdout)["id"]
    place.fleet("guard", lesson, "deny")
    assert decided(place, tool_input={"command": "cd web && npm install"})[0] == "deny"
    assert decided(place, tool_input={"command": "cd web && pnpm install"})[0] == ""
    words = ("--wrong", "w", "--right", "pnpm test", "--pattern", "Tests run in the workspace")
    lesson = json.loads(place.fleet("correct", *words, "--json").stdout)["id"]
    assert "Bash:pnpm test*" in place.fleet("show", lesson).stdout
    assert "right way" in place.fleet("guard", lesson, "deny", expect=1).stderr


def test_nobody_elses_line_makes_a_guard_or_moves_its_step(place, lesson):
    """An edit may come from anybody: it changes the lesson, and not what was decided here."""
    place.fleet("edit", lesson, "--set", "trigger=Bash:*")
    place.fleet("edit", lesson, "--set", "guard=deny", expect=2)
    place.context("SessionStart")
    assert decided(place)[0] == ""
    place.fleet("edit", lesson, "--set", "trigger=Bash:git push*")
    place.fleet("guard", lesson, "deny")
    place.fleet("edit", lesson, "--set", "trigger=Bash:*")
    place.context("SessionStart")
    assert decided(place)[0] == "deny"
    assert decided(place, tool_input={"command": "ls"})[0] == ""
    place.fleet("retire", lesson)
    assert "guards nothing" in place.fleet("guard").stdout
    assert decided(place)[0] == "", "at once, with no session's start between"
    place.fleet("restore", lesson)
    assert decided(place)[0] == "deny"


def test_a_backup_carries_a_guard(place, lesson, tmp_path):
    place.fleet("guard", lesson, "deny")
    place.fleet("backup", str(tmp_path / "b.tar.gz"))
    place.fleet("guard", lesson, "off")
    place.fleet("restore-backup", str(tmp_path / "b.tar.gz"), "--yes")
    assert decided(place)[0] == "deny"


@pytest.mark.parametrize("content", ["", "{", "[[1]]", '{"a": 1}', '[["p-1", "Bash", "x", "deny"]]', "[" * 100_000])
def test_a_damaged_table_of_guards_stops_nothing(place, content):
    (place.folder / ".fleet/ready").mkdir(exist_ok=True)
    (place.folder / ".fleet/ready/guards.json").write_text('{"generation": ""}\n' + content)
    assert decided(place)[0] == ""


def test_a_host_that_cannot_ask_stops_the_step(place, lesson):
    place.fleet("guard", lesson, "ask")
    what, why = decided(place, prompt_id=None, transcript_path="/x/sessions/rollout-1.jsonl")
    assert what == "deny"
    assert why.startswith("A person is to be asked first")
    assert LESSON in why
    step = {"tool_name": "Bash", "tool_input": {"command": "git push"}}
    assert LESSON in place.hook("preToolUse", step, expect=2, CURSOR_VERSION="2").stderr.decode()


def test_a_decision_is_answered_with_its_guard_alone_and_a_missing_one_with_the_choice(place, lesson):
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Never push on a Friday", "--trigger", "Bash:git*")
    other = json.loads(place.fleet(*words, "--json").stdout)["id"]
    place.fleet("guard", other, "deny")
    assert "Friday" not in place.fleet("guard", lesson, "ask").stdout
    assert "Friday" in place.fleet("guard").stdout
    assert "fleet guard ID ask, deny or off" in place.fleet("guard", lesson, expect=2).stderr
