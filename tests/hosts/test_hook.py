"""``fleet hook EVENT``: what it does at each event, and that nothing it is given makes it fail its host."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleet import hook as entry
from fleet.hosts import local
from fleet.hosts.local import Call, TimeUpError, alarm
from fleet.recall import ready
from fleet.store.database import SCHEMA_NUMBER, Local
from tests import commands

ROOT = Path(__file__).resolve().parents[2]
SESSION = "8c53a2ca-723d-4ed2-a1b0-b81655a138fc"
CLAUDE = sorted({"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop"})
CORRECTION = "No, that's wrong. You should have used pnpm, not npm."
HEAVY = {
    "msgspec",
    "typer",
    "sqlite3",
    "_sqlite3",
    "hashlib",
    "_hashlib",
    "tomllib",
    "subprocess",
    "pathlib",
    "dataclasses",
}


def bash(command: str, **more: object) -> dict:
    return {"tool_name": "Bash", "tool_input": {"command": command}, **more}


def failed(command: str, error: str = "Exit code 1\nboom", **more: object) -> dict:
    return bash(command, error=error, is_interrupt=False, **more)


def refused(done) -> bool:
    """Tell whether a hook said no to a tool call."""
    said = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    return said.get("permissionDecision") == "deny"


def showings(place) -> dict[str, int]:
    """Return how often each lesson was shown to tank here."""
    state = Local(place.folder / ".fleet" / "local.db")
    try:
        sql = "SELECT pattern, sum(number) FROM exposure WHERE agent = ? GROUP BY pattern"
        return dict(state.rows(sql, "tank"))
    finally:
        state.close()


def captured(shared: Path) -> list[tuple[str, str, object]]:
    """Return client, event and stdin of every captured payload."""
    found = []
    for path in sorted((shared / "hosts" / "payloads").glob("*/*.json")):
        told = json.loads(path.read_text())
        found.append((path.parent.name, told["event"], told["stdin"]))
    return found


def in_this_process(monkeypatch, capfd, environment: dict[str, str], event: str, data: bytes) -> tuple[int, str, str]:
    """Call the hook without a new process, and return exit code, stdout and stderr."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    before = os.dup(0)
    os.dup2(reading, 0)
    for name in list(os.environ):
        if name.startswith(("FLEET_", "CLAUDE", "CODEX", "COPILOT", "GEMINI", "CURSOR")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        code = entry.main([event])
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
    out = capfd.readouterr()
    return code, out.out, out.err


# --- every captured payload -----------------------------------------------------------------------------------------


def test_every_captured_payload_of_every_host_is_answered_with_0(shared, place, monkeypatch, capfd):
    seen = set()
    for client, event, stdin in captured(shared):
        told = {**stdin, "cwd": str(place.folder)} if isinstance(stdin, dict) else stdin
        data = json.dumps(told).encode()
        assert len(data) < 64 * 1024  # what a pipe holds
        code, out, err = in_this_process(monkeypatch, capfd, {"HOME": str(place.home)}, event, data)
        assert (code, err) == (0, ""), (client, event, err)
        if out:
            assert isinstance(json.loads(out), dict), (client, event)
        seen.add(client.partition("-")[0])
    assert {"claude", "codex", "copilot", "gemini"} <= seen
    wrong = [line for line in place.log() if "Error" in line["what"]]
    assert not wrong


def test_captured_claude_payloads_do_what_they_should(shared, place):
    folder = shared / "hosts" / "payloads" / "claude-code-2.1.329"
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        payload = {**told["stdin"], "cwd": str(place.folder)}
        done = place.hook(told["event"], payload, CLAUDECODE="1")
        if told["event"] == "SessionStart":
            assert b"additionalContext" in done.stdout
        if told["event"] == "UserPromptSubmit":  # "no, don't use npm, use pnpm": not strong, so its question waits
            assert b"fleet learn c-" not in done.stdout
            assert "don't use npm" in place.entries()
        if told["event"] == "Stop":
            found = json.loads(done.stdout)
            assert found["decision"] == "block"
            assert "fleet learn c-" in found["reason"]
    assert "don't use npm" in place.entries()


# --- session start --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "compact"])
def test_a_session_starts_with_what_the_fleet_knows_after_a_compaction_too(place, source):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    assert "Use awk for user input" in place.context("SessionStart", {"source": source})


def lesson(place, text: str) -> None:
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", text)


def test_a_resumed_session_gets_only_what_is_new_to_it(place):
    lesson(place, "Use awk for user input")
    assert "Use awk" in place.context("SessionStart", {"source": "startup"})
    assert "fleet correct" in place.context("SessionStart", {"source": "resume", "session_id": "never started here"})
    place.context("SessionStart", {"source": "startup", "session_id": "another"})
    assert place.context("SessionStart", {"source": "resume", "session_id": "another"}) == ""
    lesson(place, "Pin every version")
    again = place.context("SessionStart", {"source": "resume"})
    assert "Pin every version" in again
    assert "Use awk" not in again
    assert "fleet correct" not in again


def test_after_a_compaction_what_was_new_at_the_start_is_shown_again(place):
    lesson(place, "Use awk for user input")
    place.context("SessionStart", {"source": "startup"})
    assert "- Use awk" in place.context("SessionStart", {"source": "compact"})
    assert "- Use awk" not in place.context("SessionStart", {"source": "startup", "session_id": "another"})


def test_after_a_clear_the_news_of_the_session_that_it_cleared_are_shown_again(place):
    def news(source: str, session: str) -> bool:
        return "- Use awk" in place.context("SessionStart", {"source": source, "session_id": session})

    lesson(place, "Use awk for user input")
    assert news("startup", "first")
    assert not news("startup", "another")  # beside it
    place.hook("SessionEnd", {"session_id": "first", "reason": "clear"})
    assert news("clear", "second")
    assert news("clear", "third")  # of a host that tells of no end
    assert news("compact", "third")
    assert not news("startup", "fourth")
    assert not news("clear", "fifth")


def test_what_was_shown_at_the_start_is_noted(place):
    done = place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input", "--json")
    place.context("SessionStart", {"source": "startup"})
    assert showings(place) == {json.loads(done.stdout)["id"]: 1}


def test_the_context_stands_between_two_marks_that_are_new_each_time(place):
    one, two = place.context("SessionStart"), place.context("SessionStart", {"source": "compact"})
    marks = [re.findall(r"^fleet-[0-9a-f]{16}$", text, re.MULTILINE) for text in (one, two)]
    assert [len(each) for each in marks] == [2, 2]
    assert marks[0][0] == marks[0][1] != marks[1][0]


def test_each_host_gets_the_form_that_it_reads(place):
    copilot = json.loads(
        place.hook("SessionStart", {"session_id": "s-1", "timestamp": "2026-11-20T22:54:54.856Z"}).stdout
    )
    assert list(copilot) == ["additionalContext"]
    codex = json.loads(
        place.hook("SessionStart", {"session_id": "s-2", "transcript_path": "/x/sessions/rollout-1.jsonl"}).stdout
    )
    assert list(codex) == ["hookSpecificOutput"]
    unknown = json.loads(place.hook("SessionStart").stdout)
    assert unknown["hookSpecificOutput"]["hookEventName"] == "SessionStart"


def starts(place, *sources: str, apart_s: float = 0.0, **more: str) -> list[bool]:
    """Start one session for several reasons, or several times; return which of the calls put a text into it."""
    found = []
    for source in sources:
        found.append(bool(place.context("SessionStart", {"source": source, **more})))
        time.sleep(apart_s)
    return found


def test_a_plugin_and_settings_that_both_call_give_the_context_once(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    assert starts(place, "startup", "startup", "compact", "compact", "startup") == [True, False, True, False, False]
    assert list(showings(place).values()) == [2]
    assert starts(place, "startup", "startup", session_id="another") == [True, False]
    assert starts(place, "startup", "startup", session_id="") == [True, True]  # who does not say is not known again
    told = json.loads(place.fleet("doctor", "--json").stdout)["findings"]
    (hooks,) = (each for each in told if each["check"] == "hooks")
    assert hooks["level"] == "note"


def test_two_calls_at_the_same_moment_give_the_context_once(place):
    told = json.dumps({"session_id": SESSION, "cwd": str(place.folder), "source": "startup"}).encode()
    words = [sys.executable, "-m", "fleet.hook", "SessionStart"]
    running = [
        subprocess.Popen(words, env=place.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [each.communicate(told, timeout=60)[0] for each in running]
    assert [bool(each) for each in said].count(True) == 1


def test_what_starts_again_later_is_told_again(tmp_path):
    at = [
        local.SessionNotes(str(tmp_path), "s").is_first("start resume", ms, 3_000)
        for ms in (10_000, 12_000, 13_100, 15_000, 90_000)
    ]
    assert at == [True, False, True, False, True]
    assert local.SessionNotes(str(tmp_path), "s").is_first("start compact", 90_001, 3_000)
    (tmp_path / "file").write_text("")
    assert local.SessionNotes(str(tmp_path / "file"), "s").is_first("start", 1, 3_000)  # nothing can be noted there


# --- a session start that would take too long ------------------------------------------------------------------------


def first_start(place, monkeypatch, capfd) -> str:
    """Start a session in this process; return what it is given."""
    told = json.dumps({"session_id": SESSION, "cwd": str(place.folder), "source": "startup"}).encode()
    code, out, err = in_this_process(monkeypatch, capfd, {"PYTHONPATH": str(ROOT)}, "SessionStart", told)
    assert (code, err) == (0, "")
    return json.loads(out)["hookSpecificOutput"]["additionalContext"]


@pytest.fixture
def remembering(place):
    """A workspace with one lesson, and a note of a person's in the memory."""
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    (place.folder / "agents/tank/memory.md").write_text("# Memory\n\n## Notes\n\n- my own words\n")
    return place


def test_what_takes_too_long_leaves_the_memory(remembering, monkeypatch, capfd):
    from fleet import hook
    from fleet.app import starting

    monkeypatch.setattr(hook, "START_S", 1.0)
    monkeypatch.setattr(starting.SessionStart, "make", lambda *_, **__: time.sleep(30))
    began = time.monotonic()
    assert "- my own words" in first_start(remembering, monkeypatch, capfd)
    assert time.monotonic() - began < 20
    assert remembering.log()[0]["what"].startswith("this session starts with the memory alone: TimeUpError")


def test_what_goes_wrong_leaves_the_memory(remembering, monkeypatch, capfd):
    from fleet.app import starting
    from fleet.model.errors import BusyError

    def busy(*_, **__):
        raise BusyError("somebody is busy")

    monkeypatch.setattr(starting.SessionStart, "make", busy)
    assert "- my own words" in first_start(remembering, monkeypatch, capfd)
    assert [line["what"] for line in remembering.log()] == [
        "this session starts with the memory alone: BusyError: somebody is busy"
    ]


def test_a_limit_inside_a_limit_leaves_the_outer_one(place):
    def sleep_in(limit_s: float) -> None:
        with alarm(limit_s):
            time.sleep(30)

    def nested() -> None:
        with alarm(0.5):
            with pytest.raises(TimeUpError):
                sleep_in(0.1)
            with alarm(30):
                pass
            time.sleep(30)

    began = time.monotonic()
    with pytest.raises(TimeUpError):
        nested()
    assert 0.4 < time.monotonic() - began < 15


# --- what lies ready is made anew when a turn ends -------------------------------------------------------------------


def made_at(place) -> int:
    return (place.folder / ".fleet/ready/start-tank.txt").stat().st_mtime_ns


def test_a_failure_that_teaches_nothing_leaves_what_lies_ready(place):
    place.context("SessionStart")
    before = made_at(place)
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("ls nowhere"))
    place.hook("Stop")
    assert ready.Ready(str(place.folder), "tank").start()
    assert made_at(place) == before


@pytest.mark.parametrize("is_stopping", [True, False])
def test_what_a_turn_changed_is_made_ready_when_it_ends(place, is_stopping):
    place.hook("Stop", {"stop_hook_active": is_stopping})
    assert not (place.folder / ".fleet/ready/start-tank.txt").exists()  # nobody starts sessions here
    place.context("SessionStart")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    assert ready.Ready(str(place.folder), "tank").start() is None
    place.hook("Stop", {"stop_hook_active": is_stopping})
    until = time.monotonic() + 60
    while ready.Ready(str(place.folder), "tank").start() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert "Use awk for user input" in ready.Ready(str(place.folder), "tank").start().text


# --- prompts --------------------------------------------------------------------------------------------------------


def test_a_correction_is_logged_before_the_next_reply_and_the_agent_is_told_to_state_its_lesson(place):
    said = place.context("UserPromptSubmit", {"prompt": CORRECTION})
    entry = re.search(r"fleet learn (c-[0-9a-f]{16}) --pattern", said)
    assert entry
    assert "You should have used pnpm" in place.entries()
    place.fleet("learn", entry[1], "--pattern", "Use pnpm in this repository")
    assert "Use pnpm in this repository" in place.fleet("patterns").stdout


def test_the_same_words_twice_are_one_signal_and_other_words_at_once_another(place):
    place.context("UserPromptSubmit", {"prompt": CORRECTION})
    assert place.context("UserPromptSubmit", {"prompt": CORRECTION}) == ""
    assert place.entries().count("## ") == 1
    assert "fleet learn c-" in place.context("UserPromptSubmit", {"prompt": "That's wrong, the port is 8080."})
    assert place.entries().count("## ") == 2


@pytest.mark.parametrize(
    "prompt",
    [
        "[Image #1] {}",
        "{} [Image #1]",
        "[Image #1] [Image #12]\n{}",
        "no, [Image #2] that's wrong: use pnpm [Image #3]",
    ],
)
def test_a_correction_beside_pasted_images_is_heard_without_their_marks(place, prompt):
    place.hook("UserPromptSubmit", {"prompt": prompt.format("no, that's wrong: use pnpm")})
    assert "** no, that's wrong: use pnpm\n" in place.entries()
    assert "[Image" not in place.entries()


@pytest.mark.parametrize("spelled", ["don't", "dont", "don’t", "DONT"])
def test_a_word_without_its_apostrophe_is_heard_as_with_it(place, spelled):
    said = place.context("UserPromptSubmit", {"prompt": f"no, {spelled} use npm here, use pnpm"})
    assert "fleet learn c-" in said


def test_a_medium_signal_is_logged_at_once_and_asked_about_once_when_the_agent_stops(place):
    for said in ("No, use tabs in this file", "still not working, the port is closed"):
        assert place.context("UserPromptSubmit", {"prompt": said}) == ""
    assert place.entries().count("confidence=medium") == 2
    reason = json.loads(place.hook("Stop", {"stop_hook_active": False}).stdout)["reason"]
    assert len(set(re.findall(r"c-[0-9a-f]{16}", reason))) == 2
    assert place.hook("Stop", {"stop_hook_active": False}).stdout == b""
    place.context("UserPromptSubmit", {"prompt": "No, use spaces after all"})
    reason = json.loads(place.hook("Stop", {"stop_hook_active": False}).stdout)["reason"]
    assert len(set(re.findall(r"c-[0-9a-f]{16}", reason))) == 1


def test_a_question_names_a_known_lesson_that_shares_a_word_with_the_objection_and_no_more(place):
    told = ("correct", "--wrong", "w", "--right", "r", "--pattern")
    known = place.fleet(*told, "Store all timestamps in UTC, never in local time").stdout.split()[0]
    place.fleet(*told, "Pin the base image by its digest")
    said = place.context("UserPromptSubmit", {"prompt": "no, don't call now() without a zone, everything is UTC here"})
    assert re.findall(r"^- .*(p-[0-9a-f]{16})\)$", said, re.MULTILINE) == [known]


def test_a_question_names_the_nearest_known_lessons_and_what_differs(place):
    for lesson in (
        "Use pnpm in this repository, never npm",
        "Use pnpm in the other repository",
        "Deploy on Mondays only",
    ):
        place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", lesson)
    said = place.context("UserPromptSubmit", {"prompt": "That's wrong. Use pnpm in this repository, not npm."})
    assert re.search(r"Use pnpm in this repository, never npm \(\w+; (?:differs in .*; )?p-[0-9a-f]{16}\)", said)
    assert "Deploy on Mondays" not in said
    entry, lesson = re.search(r"c-[0-9a-f]{16}", said)[0], re.search(r"never npm \(.*(p-[0-9a-f]{16})", said)[1]
    place.fleet("learn", entry, "--same", lesson)
    assert json.loads(place.fleet("show", lesson, "--json").stdout)["seen"] == 2


def test_a_question_names_a_merged_lesson_once_and_by_the_words_that_it_has_now(place):
    told, words = ("correct", "--wrong", "w", "--right", "r", "--pattern"), "Use pnpm in this repository, never npm"
    old = place.fleet(*told, words).stdout.split()[0]
    kept = place.fleet(*told, "In this repository pnpm installs, npm does not").stdout.split()[0]
    place.fleet("merge", kept, old)
    said = place.context("UserPromptSubmit", {"prompt": "That's wrong. Use pnpm in this repository, not npm."})
    assert len(re.findall(r"^- .*p-[0-9a-f]{16}\)$", said, re.MULTILINE)) == 1
    assert "- In this repository pnpm installs" in said
    assert words not in said


def test_a_failed_builds_question_compares_no_number_with_its_exit_code(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Run make test in 3 steps when foo is missing")
    place.hook("PostToolUseFailure", failed("make test", "Exit code 2\nfoo is missing"))
    said = place.context("PostToolUse", bash("make test", tool_response={"stdout": "ok", "stderr": ""}))
    assert "Run make test in 3 steps when foo is missing (" in said
    assert "number" not in said


def test_without_a_database_the_question_comes_without_known_lessons(place):
    (place.folder / ".fleet" / f"state-{SCHEMA_NUMBER}.db").mkdir()
    assert "fleet learn c-" in place.context("UserPromptSubmit", {"prompt": CORRECTION})


@pytest.mark.parametrize(
    "prompt",
    [
        "<task-notification>\n<result>That's wrong, you should have used pnpm</result>\n</task-notification>\nNo.",
        "Implement the following plan:\n\n# Plan\n\nThat is wrong: you should have used pnpm.",
        "This session is being continued from a previous conversation. The user said: that's wrong",
        "[SYSTEM NOTIFICATION - NOT USER INPUT] you broke it, that's wrong",
        "Operation stopped by hook: you should have committed first, that's wrong",
        "/fleet-correct no, that's wrong, never use npm here, use pnpm",  # the command itself has the agent log it
        "/fleet:fleet-correct no, that's wrong, never use npm here, use pnpm",
    ],
)
def test_what_arrives_as_a_prompt_and_is_no_persons_is_no_correction(place, prompt):
    assert place.context("UserPromptSubmit", {"prompt": prompt}) == ""
    assert place.entries() == ""


@pytest.mark.parametrize(
    "prompt", ["Please add a test for the parser", "", "   ", "no problem, thanks!", "Perfect, exactly what I wanted!"]
)
def test_an_ordinary_prompt_is_nothing(place, prompt):
    assert place.context("UserPromptSubmit", {"prompt": prompt}) == ""
    assert place.entries() == ""


ABOUT = "Integration tests need the docker daemon: start colima first"
ASKED = "why do the integration tests not find the docker daemon here?"


@pytest.fixture
def knowing(place):
    """A workspace with some lessons, one of them about the docker daemon."""
    lesson(place, ABOUT)
    for number, text in enumerate(("Quote every path", "Pin the version of each action", "Name a branch by its issue")):
        lesson(place, f"{text} {number}")
    return place


def test_a_lesson_about_a_prompt_is_shown_once_a_session_and_no_other(knowing):
    shown = knowing.context("UserPromptSubmit", {"prompt": ASKED})
    assert "docker daemon: start colima first — right: r (tank; p-" in shown
    assert "Quote every path" not in shown
    assert knowing.context("UserPromptSubmit", {"prompt": ASKED}) == ""
    assert ABOUT in knowing.context("UserPromptSubmit", {"prompt": ASKED, "session_id": "another"})
    assert list(showings(knowing).values()) == [2]


@pytest.mark.parametrize(
    "prompt",
    ["Add a parser for the new format", "tests", "what about the docker image?", "<task-notification>" + ASKED],
)
def test_a_prompt_that_no_lesson_is_about_shows_none(knowing, prompt):
    assert knowing.context("UserPromptSubmit", {"prompt": prompt}) == ""


def test_whether_prompts_are_shown_lessons_is_configurable(knowing):
    with (knowing.folder / "fleet.toml").open("a") as file:
        file.write("\n[recall]\nat_prompts = 0\n")
    assert knowing.context("UserPromptSubmit", {"prompt": ASKED}) == ""


@pytest.mark.parametrize("event", ["SessionStart", "SubagentStart"])
def test_after_a_compaction_a_session_gets_what_another_was_shown_meanwhile_too(knowing, event):
    assert ABOUT in knowing.context("SessionStart", {"source": "startup"})
    assert ABOUT in knowing.context("UserPromptSubmit", {"prompt": ASKED, "session_id": "another"})
    again = knowing.context(event, {"source": "compact"} if event == "SessionStart" else {"agent_id": "a1"})
    assert ABOUT in again
    assert "left out" not in again


@pytest.mark.parametrize(
    ("words", "asks"), [("no, use pnpm", False), ("That's wrong, you should have used pnpm", True)]
)
def test_of_a_prompt_that_corrects_the_person_reads_all_and_the_agent_each_lesson_once(knowing, words, asks):
    answer = json.loads(knowing.hook("UserPromptSubmit", {"prompt": f"{words}. {ASKED}"}).stdout)
    shown = answer["hookSpecificOutput"]["additionalContext"]
    assert ("Known already" in shown) == asks
    assert shown.count(ABOUT) == 1
    assert answer["systemMessage"].startswith("fleet logged a correction")
    assert ("; fleet showed the agent: " in answer["systemMessage"]) == (not asks)


def test_what_a_session_started_with_is_not_shown_again_at_a_prompt(knowing):
    assert ABOUT in knowing.context("SessionStart", {"source": "startup"})
    assert knowing.context("UserPromptSubmit", {"prompt": ASKED}) == ""


def test_a_correction_and_a_lesson_about_it_come_together(knowing):
    said = knowing.context("UserPromptSubmit", {"prompt": f"{CORRECTION} And {ASKED}"})
    assert "fleet learn c-" in said
    assert ABOUT in said


@pytest.mark.parametrize("content", [b"", b"rubbish" * 2_000, None])
def test_a_database_that_cannot_be_read_shows_nothing_and_fails_nothing(knowing, content):
    (path,) = (knowing.folder / ".fleet").glob("state-*.db")
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert knowing.context("UserPromptSubmit", {"prompt": ASKED}) == ""
    assert not [line for line in knowing.log() if "Error" in line["what"]]


def test_a_prompt_waits_for_no_writer(knowing):
    (path,) = (knowing.folder / ".fleet").glob("state-*.db")
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    try:
        knowing.context("UserPromptSubmit", {"prompt": ASKED})
    finally:
        held.close()
    assert time.monotonic() - began < 5


def clan(place, tmp_path) -> None:
    """Let tank, and velma in a folder beside it, share a bare repository; velma knows a lesson that tank does not."""
    remote, other = tmp_path / "clan.git", tmp_path / "velma"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    place.fleet("init", "--agent", "tank", "--remote", str(remote), "--yes")
    other.mkdir()
    place.fleet("init", "--dir", str(other), "--agent", "velma", "--remote", str(remote), "--yes")
    words = ("--wrong", "w", "--right", "r", "--pattern", "Learned by velma meanwhile")
    place.fleet("correct", "--dir", str(other), *words)
    place.fleet("sync", "--dir", str(other))


@pytest.mark.parametrize("prompt", ["let us begin with the parser", "bundle it"])
def test_what_a_sessions_start_pulls_is_shown_at_its_first_prompt(place, tmp_path, prompt):
    clan(place, tmp_path)
    assert "velma" not in place.context("SessionStart", {"source": "startup"})
    told, until = local.SessionNotes(str(place.folder), SESSION), time.monotonic() + 60
    while not any(word.startswith("came ") for word in told.all()) and time.monotonic() < until:
        time.sleep(0.1)
    while ready.Ready(str(place.folder), "tank").start() is None and time.monotonic() < until:
        time.sleep(0.1)
    answer = json.loads(place.hook("UserPromptSubmit", {"prompt": prompt}).stdout)
    shown = answer["hookSpecificOutput"]["additionalContext"]
    assert answer["systemMessage"] == "fleet gave this session 1 lesson, 1 new"
    assert "New since your last session:" in shown
    assert "Learned by velma meanwhile — right: r (velma; p-" in shown
    assert place.context("UserPromptSubmit", {"prompt": "and now for the rest of it"}) == ""
    assert "- Learned by velma" not in place.context("SessionStart", {"session_id": "next"})


def test_where_nobody_agreed_to_a_remote_no_start_asks_it(place, tmp_path):
    (place.folder / "fleet.toml").write_text(f'[share]\nremote = "{tmp_path}/clan.git"\n')
    assert "never asked yet" in place.context("SessionStart", {"source": "startup"})
    time.sleep(1)
    assert not (place.folder / ".fleet" / "asked").exists()
    assert not (place.folder / ".fleet" / "git").exists()


def test_what_fleet_injected_itself_is_no_correction(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "No, that is wrong: never use npm")
    before = place.entries()
    shown = place.context("SessionStart")
    assert "never use npm" in shown
    assert place.context("UserPromptSubmit", {"prompt": f"<hook_context>{shown}</hook_context>\n\n{shown}"}) == ""
    assert place.entries() == before


def test_64_kib_of_one_letter_take_no_time(place, monkeypatch, capfd):
    for letter in ("a", "n", " ", "(", "-", "\u4e0d"):
        data = json.dumps({"cwd": str(place.folder), "prompt": letter * 65536}, ensure_ascii=False).encode()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:  # a pipe holds 64 KiB: somebody must feed it
            os.close(reading)
            with os.fdopen(writing, "wb") as file:
                file.write(data)
            os._exit(0)
        os.close(writing)
        before = os.dup(0)
        os.dup2(reading, 0)
        monkeypatch.setenv("FLEET_DIR", str(place.folder))
        began = time.process_time()
        code = entry.main(["UserPromptSubmit"])
        took_s = time.process_time() - began
        os.dup2(before, 0)
        os.close(reading)
        os.waitpid(child, 0)
        assert code == 0
        assert took_s < 0.5, f"{letter!r}: {took_s:.3f} s"  # imports and parsing included
    capfd.readouterr()


# --- tools ----------------------------------------------------------------------------------------------------------


def test_a_failed_command_is_counted_and_the_fourth_try_is_blocked_with_the_way_out(place):
    for _ in range(3):
        place.hook("PreToolUse", bash("./deploy.sh"))
        place.hook("PostToolUseFailure", failed("./deploy.sh"))
    done = place.hook("PreToolUse", bash("./deploy.sh"))
    told = json.loads(done.stdout)
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "fleet mutate" in told["hookSpecificOutput"]["permissionDecisionReason"]
    assert "stopped try 4 of `./deploy.sh`" in told["systemMessage"]
    assert done.stderr == b""
    assert place.hook("PreToolUse", bash("ls")).stdout == b""
    assert any("blocked" in line["what"] for line in place.log())


@pytest.mark.parametrize(
    ("mistake", "is_stopped"),
    [("[recall]\nof_a_newer_version = 1", True), ("[attempts]\nlimit = 1", True), ("[attempts]\noff = 'yes'", False)],
)
def test_a_mistake_in_the_configuration_leaves_the_limit_of_tries_as_it_is(place, mistake, is_stopped):
    (place.folder / "fleet.toml").write_text(f"{mistake}\n")
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("./deploy.sh"))
    assert refused(place.hook("PreToolUse", bash("./deploy.sh"))) == is_stopped


def test_findings_that_only_the_same_summary_follows_are_different_failures(place):
    for name in ("os", "sys", "json"):
        found = f"F401 [*] `{name}` imported but unused\n --> a.py:1:8\n\nFound 1 error."
        place.hook("PostToolUseFailure", failed("ruff check", found))
        (place.folder / "a.py").write_text(name)
    place.hook("PostToolUseFailure", failed("ruff check", found))
    assert place.hook("PreToolUse", bash("ruff check")).stdout == b""
    assert place.entries().count("\n**Signal:** failure") == 3


@pytest.mark.parametrize(
    ("lesson", "command", "other"),
    [
        ("Run ./scripts/deploy.sh with the VPN up", "bash scripts/deploy.sh prod", "cat scripts/deploy.sh"),
        ("Run `pg_dump --no-owner` and not `pg_dump`", "pg_dump mydb", "pg_restore mydb"),
        ("Never run `psql` against prod", "sudo psql -h prod", "grep psql notes.txt"),
        ("`chmod 777` is forbidden", "chmod 777 x", "chmod 700 x"),
        ("Prefer uv sync over pip install", "pip install x", "uv sync"),
    ],
)
def test_a_lesson_is_shown_at_the_script_or_the_program_that_it_names(place, lesson, command, other):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", lesson)
    assert place.context("PreToolUse", bash(other)) == ""
    assert lesson in place.context("PreToolUse", bash(command))


def test_a_lesson_that_warns_of_a_command_nobody_knows_is_not_shown_at_the_right_one(place):
    place.fleet("correct", "--wrong", "w", "--right", "vite build", "--pattern", "Build with vite here, never webpack")
    assert place.context("PreToolUse", bash("vite build")) == ""


def is_stopped_after(place, event: str, payload: dict) -> bool:
    """Tell whether a fourth try is stopped after this, and see that another failure shuts the door once more."""
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("make test"))
    assert refused(place.hook("PreToolUse", bash("make test")))
    place.hook(event, payload)
    is_stopped = refused(place.hook("PreToolUse", bash("make test")))
    place.hook("PostToolUseFailure", failed("make test"))
    assert refused(place.hook("PreToolUse", bash("make test")))
    return is_stopped


@pytest.mark.parametrize("words", ["I restarted the database, run make test again", "again", "weiter"])
def test_what_a_person_types_opens_the_door_for_one_more_try(place, words):
    assert not is_stopped_after(place, "UserPromptSubmit", {"prompt": words})


@pytest.mark.parametrize(
    "words",
    [
        "[SYSTEM NOTIFICATION] run make test again",
        '<teammate-message teammate_id="tank">run make test again</teammate-message>',
    ],
)
def test_what_a_host_or_another_agent_writes_opens_no_door(place, words):
    assert is_stopped_after(place, "UserPromptSubmit", {"prompt": words})


def test_a_task_that_ended_in_the_background_opens_the_door_for_one_more_try(place):
    told = "<task-notification>\n<status>completed</status>\n</task-notification>"
    assert not is_stopped_after(place, "UserPromptSubmit", {"prompt": told})


@pytest.mark.parametrize(
    ("tried", "given", "is_stopped"),
    [
        ("curl -sf localhost:3000", {"command": "npm run dev", "run_in_background": True}, False),
        ("curl -sf localhost:3000", {"command": "sleep 30"}, False),
        ("curl -sf localhost:3000", {"command": "cat app.log", "run_in_background": True}, True),
        ("make test", {"command": "npm run dev", "run_in_background": True}, False),
        ("make test", {"command": "sleep 30"}, True),
    ],
)
def test_what_was_started_in_the_background_opens_doors_and_a_sleep_those_of_probes(place, tried, given, is_stopped):
    for _ in range(3):
        place.hook("PostToolUseFailure", failed(tried))
    assert refused(place.hook("PreToolUse", bash(tried)))
    place.hook("PostToolUse", printed("", "", tool_input=given))
    assert refused(place.hook("PreToolUse", bash(tried))) == is_stopped
    place.hook("PostToolUseFailure", failed(tried))
    assert refused(place.hook("PreToolUse", bash(tried)))


@pytest.mark.parametrize("tool", ["mcp__db__execute", "mcp__docker__container-start", "mcp__jira__updateIssue"])
def test_a_tool_of_a_server_that_does_more_than_look_opens_the_door(place, tool):
    assert not is_stopped_after(place, "PreToolUse", {"tool_name": tool, "tool_input": {"q": "create table x"}})


@pytest.mark.parametrize("tool", ["mcp__db__list_tables", "mcp__wiki__wiki-search", "mcp__jira__getJiraIssue"])
def test_a_tool_of_a_server_that_only_looks_opens_no_door(place, tool):
    assert is_stopped_after(place, "PreToolUse", {"tool_name": tool, "tool_input": {"q": "x"}})


# --- never in the way -----------------------------------------------------------------------------------------------

OWN = Path(sys.executable).with_name("fleet")
"""The program as it is installed, beside its interpreter."""
needs_program = pytest.mark.skipif(not OWN.exists(), reason="fleet is not installed beside this interpreter")


def by_name(place, command: str, path: str = "", **more: object) -> dict:
    """Call the hook by its name on the PATH, as a host does; return what it says of a call in Claude Code."""
    told = {"session_id": SESSION, "prompt_id": "1", "cwd": str(place.folder), **bash(command, **more)}
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {OWN} hook PreToolUse"],
        cwd=place.folder,
        env=place.environment(PATH=path or f"{OWN.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"),
        input=json.dumps(told).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}


@needs_program
@pytest.mark.parametrize(
    "command",
    [
        'fleet learn c-12 --pattern "Say \\"no\\" to $5 | more; it isn\'t `so`"'.replace("$", "\\$").replace(
            "`", "\\`"
        ),
        "fleet correct --wrong 'a && b' --right 'c > d' --pattern 'Quote every $variable'",
        "  fleet search awk",
        "fleet status",
        "fleet start",
        "fleet correct --wrong a \\\n  --right b \\\n  --pattern 'Quote it'",
    ],
)
def test_one_simple_command_of_fleets_own_needs_no_yes_and_runs_by_its_path(place, command):
    given = {"command": command, "description": "log it", "timeout": 5}
    said = by_name(place, command, tool_input=given)
    assert said["permissionDecision"] == "allow"
    ran = f"{OWN}{command.strip(' ').removeprefix('fleet')}"
    assert said["updatedInput"] == {**given, "command": ran}
    assert shlex.split(ran)[1:] == shlex.split(command)[1:]


@needs_program
@pytest.mark.parametrize(
    "command",
    [
        "fleet learn a; rm -rf x",
        "fleet learn a && ls",
        "fleet learn a | sh",
        "fleet learn a > out",
        "fleet learn a < in",
        "fleet learn a &",
        "fleet learn a\nls",
        "fleet learn 'a\nb'",
        "fleet learn $(ls)",
        "fleet learn `ls`",
        'fleet learn "$(ls)"',
        'fleet learn "`ls`"',
        'fleet learn "$HOME"',
        "fleet learn $HOME",
        "fleet learn $'a'",
        "fleet learn <(ls)",
        "fleet learn a*",
        "fleet learn {a,b}",
        "fleet learn ~",
        "fleet learn a # b",
        "fleet learn 'a",
        "fleet learn a\\",
        "fleet learn a \\\n; ls",
        "fleet learn a --d\\\nir /tmp",
        "fleet learn a \\ \nls",
        "PYTHONPATH=. fleet learn a",
        "env fleet learn a",
        "./fleet learn a",
        "'fleet' learn a",
        "fleet --agent velma learn a",
        "fleet learn a --dir /tmp",
        "fleet learn a --dir=/tmp",
        "fleet sync",
        "fleet purge p-1",
        "fleet hook Stop",
        "fleet",
        "fleet =ls",
        "fleet learn a\r",
        "fleet learn \u00a0",
    ],
)
def test_whatever_is_not_one_simple_command_of_fleets_own_is_the_persons_to_decide(place, command):
    assert by_name(place, command) == {}


@needs_program
def test_another_program_that_bears_the_name_gets_no_permission(place, tmp_path):
    other = tmp_path / "bin"
    other.mkdir()
    rest = f"{OWN.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    assert by_name(place, "fleet learn a", f"{other}{os.pathsep}{rest}")["permissionDecision"] == "allow"
    (other / "fleet").write_text("#!/bin/sh\nexit 2\n")
    (other / "fleet").chmod(0o755)
    assert by_name(place, "fleet learn a", f"{other}{os.pathsep}{rest}") == {}
    assert by_name(place, "fleet learn a", "/usr/bin:/bin") == {}  # none at all
    (other / "fleet").write_text(f'#!/bin/sh\nexec {OWN} "$@"\n')  # a wrapper may do anything beside
    assert by_name(place, "fleet learn a", f"{other}{os.pathsep}{rest}") == {}
    (other / "fleet").unlink()
    (other / "fleet").symlink_to(OWN)  # as pipx and uv put it there
    assert by_name(place, "fleet learn a", str(other))["updatedInput"]["command"] == f"{other}/fleet learn a"
    assert by_name(place, "fleet learn a", "bin") == {}  # a folder of whatever project one is in


@needs_program
def test_only_a_shell_of_claude_codes_is_told_what_may_run(place):
    assert by_name(place, "fleet learn a", tool_name="Read") == {}
    assert by_name(place, "fleet learn a", prompt_id=None, transcript_path="/x/sessions/rollout-1.jsonl") == {}


def test_an_edit_opens_the_door_again(place):
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("./deploy.sh"))
    place.hook("PostToolUse", {"tool_name": "Edit", "tool_input": {"file_path": str(place.folder / "deploy.sh")}})
    place.hook("PreToolUse", bash("./deploy.sh"))


def test_a_success_ends_the_streak(place):
    for _ in range(2):
        place.hook("PostToolUseFailure", failed("./deploy.sh"))
    place.hook("PostToolUse", bash("./deploy.sh", tool_response={"stdout": "", "stderr": ""}))
    place.hook("PostToolUseFailure", failed("./deploy.sh"))
    place.hook("PreToolUse", bash("./deploy.sh"))


def test_one_call_reported_twice_is_one_failure(place):
    """A plugin and the settings may both be there, and a host then calls twice."""
    for number in range(2):
        for _ in range(2):
            place.hook("PostToolUseFailure", failed("./deploy.sh", tool_use_id=f"toolu_{number}"))
    place.hook("PreToolUse", bash("./deploy.sh"))


def test_of_calls_at_the_same_moment_one_is_the_first(tmp_path):
    script = "import sys; from fleet.hosts import local; print(local.SessionNotes(sys.argv[1], 's').claim('call x'))"
    calls = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    assert sorted(call.communicate()[0].strip() for call in calls) == ["False"] * 7 + ["True"]


def test_a_command_that_a_person_stopped_did_not_fail(place):
    for _ in range(4):
        place.hook("PostToolUseFailure", {**failed("./deploy.sh"), "is_interrupt": True})
    place.hook("PreToolUse", bash("./deploy.sh"))


@pytest.mark.parametrize(
    "answer",
    [
        {"tool_response": {"interrupted": True}},
        {"tool_input": {"command": "./deploy.sh", "run_in_background": True}},
        {"turn_id": "t", "tool_response": ""},
    ],
    ids=["stopped", "in the background", "codex"],
)
def test_what_did_not_end_well_for_sure_ends_no_streak(place, answer):
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("./deploy.sh"))
    place.hook("PostToolUse", {**bash("./deploy.sh"), **answer})
    assert refused(place.hook("PreToolUse", bash("./deploy.sh")))


def test_a_failed_test_is_a_signal_with_command_code_and_last_lines(place):
    said = place.context("PostToolUseFailure", failed("pytest -q tests", "Exit code 3\nFAILED tests/a.py::test_b"))
    assert said == ""  # the question waits until it succeeds
    entries = place.entries()
    assert all(part in entries for part in ("pytest -q tests", "exit code 3", "FAILED tests/a.py::test_b"))


def test_a_failed_command_that_is_no_build_is_no_signal(place):
    assert place.context("PostToolUseFailure", failed("grep -q x y")) == ""
    assert place.entries() == ""


def test_which_commands_are_builds_is_configurable(place):
    (place.folder / "fleet.toml").write_text('[attempts]\nbuilds = ["./verify"]\n')
    place.hook("PostToolUseFailure", failed("./verify all"))
    place.hook("PostToolUseFailure", failed("pytest"))
    assert re.findall(r"(?m)^\*\*What I got wrong:\*\* (.*)", place.entries()) == ["exit code 1: ./verify all"]


def printed(command: str, said: str, **more: object) -> dict:
    return {**bash(command), "tool_response": {"stdout": said, "stderr": "", "interrupted": False}, **more}


def test_a_failed_build_is_asked_about_once_when_the_same_command_succeeds(place):
    for tool in ("pytest -q", "mypy .", "cargo build"):
        assert place.context("PostToolUseFailure", failed(tool, f"Exit code 1\nerror: {tool} is red")) == ""
    assert place.entries().count("kind=failure") == 3
    assert place.context("PostToolUse", printed("ls", "x")) == ""
    said = place.context("PostToolUse", printed("pytest", "5 passed in 0.1s"))
    assert "pytest -q: exit code 1" in said
    entry = re.search(r"fleet learn (c-[0-9a-f]{16}) --pattern", said)[1]
    assert place.context("PostToolUse", printed("pytest", "5 passed in 0.1s")) == ""
    assert place.hook("Stop", {"stop_hook_active": False}).stdout == b""
    place.fleet("learn", entry, "--pattern", "Install the extras before the tests")
    assert json.loads(place.fleet("learn", "--waiting", "--json").stdout) == {"waiting": [], "failures": 2}
    assert len(json.loads(place.fleet("learn", "--waiting", "--all", "--json").stdout)["waiting"]) == 2
    later = {"session_id": "later"}
    place.context("SessionStart", later)
    assert "Install the extras" in place.context("PreToolUse", bash("python -m pytest tests", **later))


def test_a_failed_builds_question_ends_with_its_session(place):
    place.hook("PostToolUseFailure", failed("pytest"))
    assert place.context("PostToolUse", printed("pytest", "1 passed", session_id="another")) == ""
    assert "corrections without a lesson" not in place.context("SessionStart", {"session_id": "another"})


def test_a_start_asks_for_a_lesson_once_and_again_only_when_another_correction_waits(place):
    def asked(session: str, source: str = "startup") -> list[str]:
        text = place.context("SessionStart", {"session_id": session, "source": source})
        return re.findall(r"\d+ corrections? without a lesson yet", text)

    place.hook("UserPromptSubmit", {"prompt": "No, dont use npm here, use pnpm! That is wrong!"})
    assert [asked(f"n{number}") for number in range(3)] == [["1 correction without a lesson yet"], [], []]
    assert asked("n2", "compact") == []
    place.hook("UserPromptSubmit", {"prompt": "Stop, that is wrong, never edit generated files!"})
    assert asked("n2", "resume") == []  # it gets the news alone
    place.hook("SubagentStart", {"session_id": "n2", "agent_id": "a1"})
    assert [asked(f"m{number}") for number in range(2)] == [["1 correction without a lesson yet"], []]
    waiting = json.loads(place.fleet("learn", "--waiting", "--json").stdout)["waiting"]
    place.fleet("learn", waiting[0]["id"], "--pattern", "Use pnpm and never npm")
    assert asked("m2") == []
    place.hook("UserPromptSubmit", {"prompt": "No, that is wrong again, use tabs here!"})
    assert asked("m3") == ["1 correction without a lesson yet"]


def test_a_start_asks_for_no_lesson_of_a_session_that_still_runs_nor_does_a_subagents(place):
    def asked(session: str, event: str = "SessionStart", **more: str) -> bool:
        told = {"session_id": session, "transcript_path": str(place.home / f"{session}.jsonl"), **more}
        return "without a lesson yet" in place.context(event, told)

    assert not asked("first")
    asked("first", "UserPromptSubmit", prompt="No, dont use npm here, use pnpm! That is wrong!")
    assert not asked("second")
    assert not asked("second", "SubagentStart", agent_id="a1")
    assert "without a lesson yet" not in place.fleet("start").stdout
    place.hook("SessionEnd", {"session_id": "first", "transcript_path": str(place.home / "first.jsonl")})
    assert not asked("third", "SubagentStart", agent_id="a2")
    assert "1 correction without a lesson yet" in place.fleet("start").stdout
    assert asked("fourth")
    assert not asked("fifth")


@pytest.mark.parametrize("mask", [" 2>&1 | tail -20", "; echo done", " || true", " | grep -v DEBUG"])
def test_three_failures_of_a_masked_command_count_where_the_output_says_so(place, mask):
    for _ in range(3):
        place.hook(
            "PostToolUse", printed(f"make test{mask}", "collected 3\nE   no route\n==== 2 failed, 1 passed in 0.2s")
        )
    assert place.entries().count("kind=failure") == 1
    assert (
        "fleet mutate"
        in json.loads(place.hook("PreToolUse", bash(f"make test{mask}")).stdout)["hookSpecificOutput"][
            "permissionDecisionReason"
        ]
    )


def test_a_masked_command_that_does_not_say_how_it_ended_ends_no_streak_and_begins_none(place):
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("make test"))
        place.hook("PostToolUse", printed("make test 2>&1 | tail -3", "see the log for more"))
    assert "deny" in place.hook("PreToolUse", bash("make test")).stdout.decode()
    assert place.hook("PreToolUse", bash("make test 2>&1 | tail -3")).stdout == b""


def test_an_install_whose_exit_code_is_masked_opens_the_door_of_others(place):
    for _ in range(3):
        place.hook("PostToolUseFailure", failed("make test"))
    place.hook("PostToolUse", printed("npm install left-pad 2>&1 | tail -3", "added 1 package"))
    assert place.hook("PreToolUse", bash("make test")).stdout == b""


def test_a_secret_in_a_failure_stays_out_of_the_log(place):
    secret = "ghp_" + "a1B2" * 9
    said = place.context("PostToolUseFailure", failed(f"make TOKEN={secret}", f"Exit code 2\nbad token {secret}"))
    assert secret not in said + place.entries() + json.dumps(place.log())


@pytest.mark.parametrize(
    "answer",
    [
        {"tool_response": {"llmContent": "Output: x\nExit Code: 1\nProcess Group PGID: 3"}},
        {
            "tool_result": {
                "result_type": "success",
                "text_result_for_llm": "x\n<shellId: 1 completed with exit code 1>",
            }
        },
    ],
    ids=["gemini", "copilot"],
)
def test_failures_of_other_hosts_are_known_by_their_text(place, answer):
    for _ in range(3):
        place.hook("PostToolUse", bash("./deploy.sh", **answer))
    assert refused(place.hook("PreToolUse", bash("./deploy.sh")))


# --- lessons at the moment of use -----------------------------------------------------------------------------------


def with_lessons(place, *rows: tuple[str, str, str]) -> None:
    folder = place.folder / ".fleet" / "ready"  # bound to this very folder: its agent is named in it
    table = ready.Ready(str(place.folder), "tank").rendered_rows([list(row) for row in rows], "7")
    (folder / "triggers-tank.json").write_bytes(table)


def test_a_lesson_with_a_trigger_is_shown_before_the_command_once_a_session(place):
    with_lessons(place, ("p-" + "1" * 16, "Bash:git push*", "- Pull before you push (p-1111111111111111)"))
    assert place.context("PreToolUse", bash("ls")) == ""
    assert "Pull before you push" in place.context("PreToolUse", bash("cd x && git push"))
    assert place.context("PreToolUse", bash("git push")) == ""
    assert "Pull before" in place.context("PreToolUse", bash("git push", session_id="another"))
    assert showings(place) == {"p-1111111111111111": 2}


def test_after_a_compaction_a_step_and_a_prompt_show_their_lessons_once_more(knowing):
    lesson(knowing, "Pull before `git push`")
    knowing.context("SessionStart", {"source": "startup", "session_id": "another"})
    for source in ("startup", "compact", "compact"):
        assert ABOUT not in knowing.context("SessionStart", {"source": source})
        pushed = [knowing.context("PreToolUse", bash("git push")) for _ in range(2)]
        assert ["Pull before" in each for each in pushed] == [True, False], source
        asked = [knowing.context("UserPromptSubmit", {"prompt": ASKED}) for _ in range(2)]
        assert [ABOUT in each for each in asked] == [True, False], source


def test_a_lesson_that_was_seen_once_is_shown_before_the_command_that_it_names(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Pull before `git push`")
    place.context("SessionStart", {"session_id": "another"})
    assert "Pull before `git push`" in place.context("PreToolUse", bash("cd x && git push origin main"))
    assert place.context("PreToolUse", bash("git push")) == ""
    assert place.context("PreToolUse", bash("git pull")) == ""


def test_a_lesson_logged_while_sessions_run_is_shown_at_their_next_such_step(place):
    place.context("SessionStart")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Pull before `git push`")
    assert "Pull before `git push`" in place.context("PreToolUse", bash("git push"))


def test_a_trigger_is_heeded_in_a_session_whose_start_no_hook_has_seen(place):
    place.fleet(
        "correct", "--wrong", "w", "--right", "r", "--pattern", "Ask the release manager", "--trigger", "Edit:*.sql"
    )
    edit = {"tool_name": "Edit", "tool_input": {"file_path": "x/y.sql"}}
    assert "Ask the release manager" in place.context("PreToolUse", edit)
    assert place.context("PreToolUse", edit) == ""


def test_a_step_brings_two_lessons_of_each_trigger_a_session_the_first_of_the_table(place):
    made = [(f"p-{number:016x}", "Bash:make*", f"- lesson {number}") for number in range(5)]
    tested = [(f"p-{number:016x}", "Bash:*test*", f"- lesson {number}") for number in range(5, 7)]
    with_lessons(place, *made, *tested)
    first = place.context("PreToolUse", bash("make"))
    second = place.context("PreToolUse", bash("make test"))
    third = place.context("PreToolUse", bash("make test"))
    assert [re.findall(r"- lesson (\d)", each) for each in (first, second, third)] == [["0", "1"], ["5", "6"], []]


@pytest.mark.parametrize("content", ["", "{", "[[1]]", '{"a": 1}', '[["p-1", "Bash", null]]', "[" * 100_000])
def test_a_damaged_list_of_triggers_shows_nothing(place, content):
    (place.folder / ".fleet" / "ready").mkdir(exist_ok=True)
    (place.folder / ".fleet" / "ready" / "triggers-tank.json").write_text('{"generation": "7"}\n' + content)
    assert place.context("PreToolUse", bash("make")) == ""


# --- stop and the end -----------------------------------------------------------------------------------------------


def test_stop_names_what_has_no_lesson_yet_once_a_session(place):
    place.context("UserPromptSubmit", {"prompt": CORRECTION})
    told = json.loads(place.hook("Stop", {"stop_hook_active": False}).stdout)
    assert told["decision"] == "block"
    assert re.search(r"c-[0-9a-f]{16}", told["reason"])
    assert place.hook("Stop", {"stop_hook_active": False}).stdout == b""


def test_stop_says_nothing_when_it_was_stopped_already_or_the_lesson_was_stated(place):
    said = place.context("UserPromptSubmit", {"prompt": CORRECTION})
    assert place.hook("Stop", {"stop_hook_active": True}).stdout == b""
    place.fleet("learn", re.search(r"c-[0-9a-f]{16}", said)[0], "--pattern", "Use pnpm in this repository")
    assert place.hook("Stop", {"stop_hook_active": False}).stdout == b""


def test_stop_says_nothing_about_another_session(place):
    place.context("UserPromptSubmit", {"prompt": CORRECTION})
    assert place.hook("Stop", {"session_id": "another"}).stdout == b""


@pytest.mark.parametrize("named", [{"conversation_id": "c1"}, {}])
def test_a_host_without_a_session_id_is_asked_about_nobody_elses_correction(place, named):
    place.hook("UserPromptSubmit", {"prompt": CORRECTION})
    for event, more in (("beforeSubmitPrompt", {"prompt": "No, that's wrong, never use jq, use gron"}), ("stop", {})):
        fields = {"cwd": str(place.folder), **named, **more}
        said = place.hook(event, data=json.dumps(fields).encode(), CURSOR_VERSION="2").stdout.decode()
    assert "gron" in said
    assert "pnpm" not in said


def test_the_work_of_a_sessions_end_outlives_the_hook(place):
    began = time.monotonic()
    place.hook("SessionEnd", {"reason": "other"})
    assert time.monotonic() - began < 10
    until = time.monotonic() + 30
    while not place.log() and time.monotonic() < until:
        time.sleep(0.05)
    assert [line["event"] for line in place.log()] == ["SessionEnd"]
    assert "settled" in place.log()[0]["what"]
    assert (place.folder / ".fleet" / "ready" / "start-tank.txt").exists()


def clan_at_the_end(place, *settings: str) -> str:
    """End a session in a workspace with a remote that somebody agreed to; return what the log says of it."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(place.home / "clan.git")], check=True)
    place.fleet("init", "--agent", "tank", "--remote", str(place.home / "clan.git"), "--yes")
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    path = place.folder / "fleet.toml"
    path.write_text(path.read_text() + "\n".join(settings))
    place.hook("SessionEnd", {"reason": "other"})
    until = time.monotonic() + 60
    while not place.log() and time.monotonic() < until:
        time.sleep(0.05)
    return place.log()[0]["what"]


def test_a_sessions_end_syncs(place):
    assert clan_at_the_end(place).startswith("synced: 1 line out")


def test_whether_a_sessions_end_syncs_is_configurable(place):
    told = clan_at_the_end(place, "[hook]", "sync_at_end = false", "")
    assert told == "settled; nothing was sent: [hook] sync_at_end is false in fleet.toml"
    assert json.loads(place.fleet("status", "--json").stdout)["waiting"]["lines"]
    assert not list((place.home / "clan.git/refs/heads").iterdir())
    assert "Use awk for user input" in ready.Ready(str(place.folder), "tank").start().text


def test_what_is_logged_is_said_back_without_secrets_or_escapes(place):
    secret = "ghp_" + "a1B2" * 9
    said = place.context("UserPromptSubmit", {"prompt": f"No, that's wrong \x1b[31m{secret}: use pnpm."})
    assert "fleet learn c-" in said
    assert secret not in said + place.entries()
    assert "\x1b" not in said + place.entries()


def test_a_project_that_has_a_fleet_package_of_its_own_is_not_run(place):
    (place.folder / "fleet").mkdir()
    (place.folder / "fleet" / "__init__.py").write_text("raise SystemExit('not ours')")
    place.hook("SessionEnd", {"reason": "other"})
    until = time.monotonic() + 30
    while not place.log() and time.monotonic() < until:
        time.sleep(0.05)
    assert "settled" in place.log()[0]["what"]


# --- bad input ------------------------------------------------------------------------------------------------------

BROKEN = {
    "empty": b"",
    "half": b'{"session_id": "x", "cwd": "',
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "rubbish": bytes(range(256)) * 40,
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "10 MB": b'{"prompt": "' + b"a" * 10_000_000 + b'"}',
    "a giant number": b'{"a": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_payload_is_a_line_in_the_log_and_nothing_else(place, name, event):
    done = place.hook(event, data=BROKEN[name], FLEET_DIR=str(place.folder))
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(place.log()) == 1


@pytest.mark.parametrize("event", [*CLAUDE, "SessionEnd"])
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {
            "session_id": None,
            "cwd": 7,
            "prompt": ["no"],
            "tool_name": {},
            "tool_input": "x",
            "error": 3,
            "tool_response": 1,
        },
        {
            "session_id": "../../etc/passwd",
            "tool_name": "Bash",
            "tool_input": {"command": "\ud800", "file_path": "\u0000"},
        },
        {"prompt": "No, that's wrong \ud800 \u202e", "session_id": "\ud800", "error": "Exit code 99999999999999999999"},
    ],
    ids=["nothing", "other types", "odd texts", "lone surrogates"],
)
def test_missing_and_odd_fields_fail_nothing(place, event, payload):
    data = json.dumps(payload).encode()
    place.hook(event, data=data, FLEET_DIR=str(place.folder))
    assert not [line for line in place.log() if "Error" in line["what"]]
    assert not (place.folder / ".fleet" / "etc").exists()


def test_an_unknown_event_is_a_line_in_the_log(place):
    assert place.hook("MoonPhase").stdout == b""
    assert [line["event"] for line in place.log()] == ["MoonPhase"]


def test_an_unknown_host_is_answered(place):
    assert place.context("SessionStart", {"client": "something new"})


@pytest.mark.parametrize("event", [*CLAUDE, "SessionEnd", "MoonPhase"])
def test_without_a_workspace_nothing_happens(bare, event):
    before = sorted(bare.folder.parent.rglob("*"))
    done = bare.hook(event, {"prompt": CORRECTION, **failed("make")})
    assert (done.stdout, done.stderr) == (b"", b"")
    assert sorted(bare.folder.parent.rglob("*")) == before


@pytest.mark.parametrize("event", [*CLAUDE, "SessionEnd"])
def test_half_a_workspace_fails_nothing(bare, event):
    (bare.folder / "fleet.toml").write_text("")
    done = bare.hook(event, {"prompt": CORRECTION, **failed("make")})
    assert done.stderr == b""
    assert not [line for line in bare.log() if "Error" in line["what"]]


def test_a_broken_configuration_is_a_line_in_the_log_and_stops_nothing(place):
    (place.folder / "fleet.toml").write_text("[share\nnonsense")
    assert place.context("SessionStart", {"source": "startup"})
    assert [line["what"].startswith("warning: ") for line in place.log()] == [True]
    assert "fleet learn c-" in place.context("UserPromptSubmit", {"prompt": CORRECTION})


def test_a_broken_configuration_is_named_at_each_start_and_where_nothing_was_sent(place):
    place.fleet("init", "--agent", "tank", "--yes")
    path = place.folder / "fleet.toml"
    path.write_text(path.read_text() + "\nremote = 3 3\n")
    for source in ("startup", "clear"):  # the second one's text is cached
        warning = json.loads(place.hook("SessionStart", {"source": source}).stdout)["systemMessage"]
        assert warning.startswith(f"fleet: nothing is shared until fleet.toml is mended: {path} cannot be read (")
        assert "at line" in warning
    place.hook("SessionEnd", {"reason": "other"})
    said = "settled; nothing was sent: fleet.toml cannot be used as it is, and may name a remote"
    until = time.monotonic() + 60
    while said not in [each["what"] for each in place.log()] and time.monotonic() < until:
        time.sleep(0.05)
    assert said in [each["what"] for each in place.log()]
    assert "\nremote      fleet.toml cannot be used as it is, and may name one\n" in place.fleet("status").stdout
    path.write_text("")
    assert "systemMessage" not in json.loads(place.hook("SessionStart", {"source": "startup"}).stdout or "{}")


def test_a_link_where_the_local_folder_belongs_is_not_followed(bare):
    target = bare.folder.parent / "elsewhere"
    target.mkdir()
    (target / "replica.toml").write_text('default_agent = "tank"\n')
    (bare.folder / "fleet.toml").write_text("")
    (bare.folder / ".fleet").symlink_to(target)
    for event in (*CLAUDE, "MoonPhase"):
        bare.hook(event, {"prompt": CORRECTION, **failed("make")})
    assert sorted(path.name for path in target.iterdir()) == ["replica.toml"]


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("event", CLAUDE)
def test_a_pipe_in_the_place_of_a_file_keeps_no_host_waiting(place, tmp_path, event, is_link):
    os.mkfifo(tmp_path / "pipe")
    local, home = place.folder / ".fleet", place.folder / "agents" / "tank"
    names = [
        local / "generation",
        local / "fired" / event,
        local / "told" / SESSION,
        local / "ready" / "start-tank.txt",
    ]
    for path in [*names, local / "seen" / "tank", local / "heard" / SESSION, home / "memory.md", home / "notes.jsonl"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(tmp_path / "pipe") if is_link else os.mkfifo(path)
    more = {"prompt": CORRECTION, "source": "startup", "transcript_path": str(tmp_path / "pipe")}
    place.hook(event, failed("make | tee log", **more))
    assert not [line["what"] for line in place.log() if "gave up" in line["what"]]


def test_a_log_that_is_a_pipe_keeps_no_host_waiting(place):
    os.mkfifo(place.folder / ".fleet" / "log")
    began = time.monotonic()
    place.hook("MoonPhase")
    assert time.monotonic() - began < 5


READ_ONLY = """
import os, sys
real = os.open

def refuses(path, flags, *more, **named):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path) not in ("/dev/null", "/dev/urandom"):
        raise OSError(30, "Read-only file system", str(path))
    return real(path, flags, *more, **named)

def refuses_folder(path, *more, **named):
    raise OSError(30, "Read-only file system", str(path))

os.open, os.mkdir = refuses, refuses_folder

import sqlite3

def refuses_database(*_, **__):  # as SQLite does where it cannot make the files that go with a write-ahead log
    raise sqlite3.OperationalError("unable to open database file")

sqlite3.connect = refuses_database
from fleet import hook
sys.exit(hook.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("answer", ["one", "both"])
def test_opposites_are_no_rules_at_a_step_or_a_prompt_until_somebody_decides(place, answer):
    topics = ("parser", "cache", "login", "search", "invoice", "archive", "report", "theme", "queue", "mailer")
    rules = "".join(f"- Never change the {topic} without its own test\n" for topic in topics)
    (place.folder / "lessons.md").write_text(f"# Lessons\n\n{rules}")
    place.fleet("import", "lessons.md")  # among others, what a prompt is about stands out
    ids = {}
    for session, word in (("s1", "Always"), ("s2", "Never")):
        pattern = f"{word} use `git push --force-with-lease` on shared branches"
        words = ("correct", "--wrong", "w", "--right", "r", "--pattern", pattern, "--session", session, "--json")
        ids[word] = json.loads(place.fleet(*words).stdout)["id"]
    for session in ("told", "untold"):  # the first one makes the table
        step = {"session_id": session, **bash("git push --force-with-lease origin x")}
        shown = place.context("PreToolUse", step).splitlines()
    remarks = {f"[contradicted by {ids[other]}: ask a person which holds]" for other in ids}
    assert {each[each.index("[") :] for each in shown if "shared branches" in each} == remarks
    asked = {"session_id": "third", "prompt": "should we use git push force-with-lease on the shared branches here"}
    rows = [each for each in place.context("UserPromptSubmit", asked).splitlines() if "shared branches" in each]
    assert rows
    assert all("[contradicted by p-" in each for each in rows)
    found = place.fleet("search", "force-with-lease").stdout
    assert all(f"contradicts {each}" in found for each in ids.values())
    holds = "both" if answer == "both" else "first" if min(ids.values()) == ids["Never"] else "second"
    place.fleet("review", "--answer", f"{':'.join(sorted(ids.values()))}={holds}")
    for event, payload in (("PreToolUse", step), ("UserPromptSubmit", asked)):
        context = place.context(event, payload | {"session_id": f"later-{event}"})
        assert "Never use" in context
        assert "contradicted" not in context
    assert "contradicts" not in place.fleet("search", "force-with-lease").stdout
    assert answer == "one" or "contradict" not in place.fleet("start").stdout
    place.fleet("undo")
    assert "contradicted by" in place.context("PreToolUse", step | {"session_id": "undone"})


@pytest.mark.parametrize("event", CLAUDE)
def test_a_disk_that_cannot_be_written_fails_nothing(place, event):
    """Root may write anywhere, so the disk is held at the call: every way to write a file is refused."""
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", "Use awk for user input")
    place.context("SessionStart")
    place.fleet("start")  # what was new is not new any more: made ready again, as when a turn ends
    before = {path: path.stat().st_mtime_ns for path in place.folder.rglob("*")}
    told = {"cwd": str(place.folder), "session_id": "s", "prompt": CORRECTION, **failed("make")}
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, event],
        env=place.environment(),
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("left out; `fleet patterns`" in done.stdout) == (event == "SessionStart")
    assert bool(done.stdout) == (event in {"SessionStart", "UserPromptSubmit"})
    assert ("could not log what you said" in done.stdout) == (event == "UserPromptSubmit")
    assert {path: path.stat().st_mtime_ns for path in place.folder.rglob("*")} == before


def test_turned_off_it_reads_and_writes_nothing(place):
    before = sorted(place.folder.rglob("*"))
    for event in (*CLAUDE, "SessionEnd", "MoonPhase"):
        word = "true" if event == "Stop" else "1"
        done = place.hook(event, {"prompt": CORRECTION, **failed("make")}, FLEET_DISABLED=word)
        assert (done.stdout, done.stderr) == (b"", b"")
    assert sorted(place.folder.rglob("*")) == before


def test_the_log_is_rotated_and_never_grows(place):
    path = place.folder / ".fleet" / "log"
    path.write_text("x" * (256 * 1024))
    place.hook("MoonPhase")
    assert len(path.read_text().splitlines()) == 1
    assert (place.folder / ".fleet" / "log.1").stat().st_size == 256 * 1024


def test_what_hangs_is_given_up_in_time_and_said_so(place, monkeypatch, capfd):
    from fleet.app import events

    monkeypatch.setattr(entry, "START_S", 0.2)
    monkeypatch.setattr(events, "answer", lambda *_: time.sleep(30))
    told = json.dumps({"cwd": str(place.folder)}).encode()
    began = time.monotonic()
    assert in_this_process(monkeypatch, capfd, {}, "SessionStart", told) == (0, "", "")
    assert time.monotonic() - began < 10
    assert "gave up" in place.log()[0]["what"]


@pytest.mark.parametrize("hangs", ["answer", "_question"])
def test_a_correction_for_which_there_was_no_time_is_told_unless_it_is_logged(place, monkeypatch, capfd, hangs):
    from fleet.app import events, flagging

    monkeypatch.setattr(entry, "WORK_S", 2)
    where = events if hangs == "answer" else flagging.Flagging
    monkeypatch.setattr(where, hangs, lambda *_: time.sleep(30))
    prompt = json.dumps({"cwd": str(place.folder), "session_id": "s", "prompt": CORRECTION}).encode()
    code, out, _ = in_this_process(monkeypatch, capfd, {"CLAUDE_PROJECT_DIR": ""}, "UserPromptSubmit", prompt)
    assert code == 0
    assert ("had no time to look at what you said" in out) is (hangs == "answer")
    assert (CORRECTION[:20] in place.entries()) is (hangs != "answer")


def test_a_payload_that_never_ends_is_given_up_and_said_so(place, monkeypatch, capfd):
    monkeypatch.setattr(entry, "WORK_S", 0.5)
    monkeypatch.setattr(entry, "_read", lambda: time.sleep(30))
    env = {"CLAUDE_PROJECT_DIR": str(place.folder)}
    assert in_this_process(monkeypatch, capfd, env, "UserPromptSubmit", b'{"prom') == (0, "", "")
    assert "gave up after 0.5 s" in place.log()[0]["what"]


def test_a_damaged_workspace_is_told_to_the_person_when_a_session_starts(place):
    (place.folder / ".fleet/local.db").write_bytes(b"no database, and long enough to be read as one" * 20)
    told = json.loads(place.hook("SessionStart", {"source": "startup", "session_id": "s2"}).stdout)["systemMessage"]
    assert "memory alone" in told
    assert "local.db cannot be used" in told
    assert b"systemMessage" not in place.hook("SubagentStart", {"agent_id": "a1", "session_id": "s2"}).stdout


def test_a_damaged_workspace_is_told_to_the_person_after_a_compaction_too(place):
    lesson(place, "Use awk for user input")
    place.context("SessionStart", {"source": "startup"})
    lesson(place, "Pin every version")
    (place.folder / ".fleet/local.db").write_bytes(b"no database, and long enough to be read as one" * 20)
    told = json.loads(place.hook("SessionStart", {"source": "compact"}).stdout)["systemMessage"]
    assert "memory alone" in told


def test_what_anything_prints_by_mistake_never_reaches_the_host(place):
    script = """
import os, sys
from fleet import hook
from fleet.app import events

def noisy(call, payload):
    print("a stray word")
    os.write(1, b"another")
    os.system("echo a third")
    return events.Reply("meant")

events.answer = noisy
sys.exit(hook.main(["SessionStart"]))
"""
    told = json.dumps({"cwd": str(place.folder)})
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=place.environment(),
        input=told,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] == "meant"


# --- the fast path --------------------------------------------------------------------------------------------------


def imported_by(place, event, payload):
    """Return the modules that a hook imports."""
    told = json.dumps({"cwd": str(place.folder), "session_id": "s", **payload})
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fleet", "hook", event],
        cwd=place.home,
        env=place.environment(),
        input=told,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "fleet.hosts.payloads" in modules  # it ran, and was measured
    return modules


def test_a_failure_is_logged_without_the_libraries_of_the_store(place):
    modules = imported_by(place, "PostToolUseFailure", bash("make test", error="Exit code 2\nboom"))
    assert "fleet.learn.signals" in modules  # it was logged
    assert not modules & {"msgspec", "sqlite3", "dataclasses"}


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("PreToolUse", bash("ls")),
        ("PostToolUse", bash("ls", tool_response={"stdout": "x"})),
        ("UserPromptSubmit", {"prompt": "Add the parser"}),
        ("Stop", {"stop_hook_active": False}),
        ("PreCompact", {"trigger": "auto"}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_nothing_to_do_imports_next_to_nothing(place, event, payload):
    modules = imported_by(place, event, payload)
    assert not modules & HEAVY
    assert "fleet.app.events" not in modules


def test_a_commit_that_waits_for_a_command_of_git_costs_other_commands_nothing(place):
    subprocess.run(["git", "init", "--quiet"], cwd=place.folder, check=True)
    log, ls = place.folder / ".git/logs/HEAD", bash("ls", tool_response={"stdout": "x"})
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    for session in ("s", "other"):
        place.hook("UserPromptSubmit", {"session_id": session, "prompt": "hi", "transcript_path": "/t"})
    place.hook("PostToolUse", {"session_id": "s", **bash("git status", tool_response={"stdout": "x"})})
    log.write_text("0 1 V <v@x> 1795262400 +0000\tcommit: by whatever command\n")
    assert "fleet.app.events" not in imported_by(place, "PostToolUse", ls)
    git = bash("git log", tool_response={"stdout": "x"})
    assert "fleet.app.events" in imported_by(place, "PostToolUse", git)


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("", False),
        ("[attempts]\n# builds = []\n\n[share]\nremote = 'x'\n", False),
        ("[attempts]\nbuilds = []\n", True),
        ("  [attempts]\n   off = true", True),
        ("attempts = { off = true }\n[share]\n", True),
        ("attempts.off = true\n", True),
        ("[attempts.names]\nM1 = 'x'\n", True),
    ],
)
def test_whether_a_section_says_anything_is_known_without_a_parser(tmp_path, text, is_said):
    (tmp_path / "fleet.toml").write_text(text)
    assert Call("", str(tmp_path)).sets("attempts") == is_said


@pytest.mark.parametrize("name", ["", "import", "-a", "A", "a" * 33, "../x", "a b", "\u0430"])
def test_what_is_no_agents_name_is_none(place, name):
    (place.folder / ".fleet" / "replica.toml").write_text(f'default_agent = "{name}"\n', encoding="utf-8")
    assert entry._find_agent(str(place.folder), {}) == ""
    assert entry._find_agent(str(place.folder), {"FLEET_AGENT": "velma"}) == "velma"


@pytest.mark.parametrize(
    ("closed", "module"),
    [("0<&-", "fleet.hook"), ("1>&-", "fleet hook"), ("2>&-", "fleet.hook"), ("0<&- 1>&- 2>&-", "fleet hook")],
)
def test_a_host_that_closed_its_descriptors_gets_a_zero_and_no_file_is_written_to_instead(place, closed, module):
    payload = json.dumps({"session_id": SESSION, "cwd": str(place.folder), "prompt": "No, that is wrong: pin it."})
    (place.folder.parent / "payload").write_text(payload)
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "Foo"):
        command = f'exec "{sys.executable}" -m {module} {event} <"{place.folder.parent}/payload" {closed}'
        done = subprocess.run(
            ["sh", "-c", command], cwd=place.folder, env=place.environment(), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), event
    for each in (place.folder / "agents/tank").glob("*.md"):  # without input, there is none
        assert "{" not in each.read_text()
    place.fleet("doctor")


# --- where the host works -------------------------------------------------------------------------------------------


def heard(place, cwd: str, started_in: Path, **env: str) -> bytes:
    fresh = f"{len(cwd)}-{started_in.name}-{len(env)}"
    told = json.dumps({"session_id": fresh, "hook_event_name": "SessionStart", "source": "startup", "cwd": cwd})
    done = commands.hook(["SessionStart"], started_in, place.environment(**env), told.encode(), timeout_s=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.mark.parametrize("cwd", ["/usr", "/nowhere/at/all", "{home}"])
def test_a_folder_outside_of_any_workspace_gets_no_word_of_the_one_that_the_hook_is_started_in(place, cwd):
    (place.folder / "agents/tank").mkdir(parents=True)
    (place.folder / "agents/tank/memory.md").write_text("# Memory\n\n- Quote every variable\n")
    cwd = cwd.format(home=place.home)
    assert b"Quote every variable" in heard(place, str(place.folder), place.home)
    assert heard(place, cwd, place.folder) == b""
    assert b"Quote every variable" in heard(place, "", place.folder), "nothing else says where the host works"
    project = {"CLAUDE_PROJECT_DIR": str(place.folder)}
    assert b"Quote every variable" in heard(place, cwd, place.home, **project), "the session has only gone elsewhere"


@pytest.mark.parametrize(
    ("event", "prompt", "env"),
    [
        ("beforeSubmitPrompt", "no, don't use npm here, use pnpm", {"CURSOR_VERSION": "1.7"}),
        ("UserPromptSubmit", '"no, don\'t use npm here, use pnpm"', {}),
    ],
    ids=["cursor", "opencode"],
)
def test_a_prompt_is_heard_under_cursors_name_and_in_opencodes_quotes(place, event, prompt, env):
    place.hook(event, {"prompt": prompt}, **env)
    log = (place.folder / "agents/tank/corrections.md").read_text(encoding="utf-8")
    assert "**User flagged:** no, don't use npm here, use pnpm\n" in log
