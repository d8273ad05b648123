"""What the person sees beside the agent: one short line for what was logged, counted, promoted, shown or stopped."""

import fcntl
import json
import re
import subprocess
import time

from fleet.hosts.local import SessionNotes

LESSON = "Quote every variable in a shell script"


def _line(place, event: str, **payload: object) -> str:
    done = place.hook(event, payload)
    return json.loads(done.stdout).get("systemMessage", "") if done.stdout else ""


def _ran(place, command: str, printed: str, **more: object) -> str:
    return _line(
        place,
        "PostToolUse",
        tool_name="Bash",
        tool_input={"command": command},
        tool_response={"stdout": printed, "stderr": "", "interrupted": False},
        **more,
    )


def _correct(place, *more: str) -> str:
    return place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON, *more).stdout


def test_how_often_a_lesson_is_known_now_is_said_when_the_agent_states_it(place):
    _correct(place)
    said = _ran(place, "/usr/local/bin/fleet correct --wrong w", _correct(place))
    assert said == f"fleet: seen 2 times: {LESSON}"
    assert _ran(place, f"echo fleet correct {LESSON}", "p-0123456789abcdef seen 9 times: x") == ""
    assert _ran(place, "fleet show p-01", "p-0123456789abcdef seen 9 times: x") == ""


def test_what_a_command_logged_is_named_though_it_printed_json(place):
    json_ = _correct(place, "--json")
    assert _ran(place, "fleet correct --json", json_) == f"fleet: seen 1 time: {LESSON}"
    assert _ran(place, "fleet discover --json", '{"id":"d-0123456789abcdef","new":true}').endswith("cdef logged")
    assert _ran(place, "fleet correct --json", '{"id": 1') == ""


def test_one_call_that_is_reported_twice_is_told_once(place):
    twice = [_ran(place, "fleet correct", "p-0123456789abcdef seen 2 times: x", tool_use_id="t1") for _ in range(2)]
    assert twice == ["fleet: seen 2 times: x", ""]


def test_what_was_logged_is_named_by_what_it_says(place):
    said = _line(place, "UserPromptSubmit", prompt='No, instead of "Ready" we should say "Done"')
    assert said == 'fleet logged a correction: "No, instead of "Ready" we should say "Done""'
    said = _line(place, "UserPromptSubmit", prompt="You forgot this: see https://example.com/a first")
    assert said == 'fleet logged a correction: "You forgot this: see https://example.com/a first"'
    failed = {"tool_name": "Bash", "error": "Exit code 2\nboom"}
    command = "# Let's build\nmake all && \\\n  ./run"
    said = _line(place, "PostToolUseFailure", tool_input={"command": command}, **failed)
    assert re.fullmatch(r"fleet logged a failure: make all && \./run: exit code 2 \(c-[0-9a-f]{16}\)", said)


def test_a_promotion_is_said_where_it_happened(place):
    for session in "abc":
        printed = _correct(place, "--session", session)
    assert _ran(place, "fleet correct --wrong w", printed).endswith("; promoted into its memory")


def _write_thrice(place) -> None:
    """Write a lesson into the log by hand, on three days: nothing promotes it until the log is counted."""
    entry = "\n## 2026-03-1{} 14:30 — again\n**What I got wrong:** w{}\n**Correct approach:** r\n**Pattern:** {}\n"
    with (place.folder / "agents" / "tank" / "corrections.md").open("a") as file:
        file.writelines(entry.format(day, day, LESSON) for day in (1, 2, 3))


def _wait_for_log(place, lines: int = 1) -> None:
    until = time.monotonic() + 30
    while len(place.log()) < lines and time.monotonic() < until:
        time.sleep(0.05)


def test_what_a_sessions_end_promoted_is_said_once_at_the_next_start(place):
    _correct(place, "--session", "a")
    _write_thrice(place)
    place.hook("SessionEnd", {"reason": "other"})
    _wait_for_log(place)
    assert _line(place, "SessionStart", source="startup") == f"fleet promoted '{LESSON}': every session starts with it"
    assert "promoted" not in _line(place, "SessionStart", source="startup", session_id="next")


def test_what_is_promoted_anew_after_it_was_said_is_said_again(place):
    notes = SessionNotes(str(place.folder), "promoted-tank")
    for session in ("one", "two"):
        notes.add(f"promoted {json.dumps(LESSON)}")
        said = _line(place, "SessionStart", source="startup", session_id=session)
        assert said == f"fleet promoted '{LESSON}': every session starts with it"


def test_what_the_pull_of_a_sessions_start_promoted_is_said_once_at_the_next_start(place, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "clan.git")], check=True)
    place.fleet("init", "--agent", "tank", "--remote", str(tmp_path / "clan.git"))
    _correct(place, "--session", "a")
    place.fleet("sync", "--yes")
    _write_thrice(place)
    assert "promoted" not in _line(place, "SessionStart", source="startup")
    _wait_for_log(place, 2)  # what the start counted of the entries by hand, and what the pull brought
    said = _line(place, "SessionStart", source="startup", session_id="next")
    assert said == f"fleet promoted '{LESSON}': every session starts with it"
    assert "promoted" not in _line(place, "SessionStart", source="startup", session_id="third")


def test_what_the_agent_was_shown_is_said(place):
    _correct(place, "--trigger", "Bash:sh *")
    assert _line(place, "SessionStart", source="startup") == "fleet gave this session 1 lesson, 1 new"
    begun = place.hook("SubagentStart", {"agent_id": "a1", "agent_type": "Explore"}).stdout
    assert LESSON in begun.decode()
    assert "systemMessage" not in json.loads(begun)
    shown = _line(place, "PreToolUse", tool_name="Bash", tool_input={"command": "sh deploy.sh"})
    assert shown.startswith("fleet showed the agent: ")
    assert LESSON in shown
    assert _line(place, "PreToolUse", tool_name="Bash", tool_input={"command": "sh deploy.sh"}) == ""


def test_of_the_lessons_that_a_session_is_given_no_more_are_called_new_than_it_is_given(place):
    rules = (
        f"- Never deploy service number {each} before {'its own test has passed, ' * 9}and say so\n"
        for each in range(40)
    )
    (place.folder / "lessons.md").write_text("# Lessons\n\n" + "".join(rules))
    place.fleet("import", "lessons.md")
    given, new = map(int, re.findall(r"[0-9]+", _line(place, "SessionStart", source="startup")))
    assert 3 < new <= given


def test_of_several_corrections_one_is_quoted_and_the_others_are_counted(place, tmp_path):
    words = "use pnpm here, we never use npm in this repository"
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected. The user said:\n"
    rows = []
    for number, said in enumerate((words, "never touch the lock file by hand, run pnpm install")):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"npm install {number}"}}
        done = {"type": "tool_result", "tool_use_id": f"t{number}", "content": refused + said, "is_error": True}
        rows.append({"type": "assistant", "uuid": f"a{number}", "message": {"role": "assistant", "content": [call]}})
        rows.append({"type": "user", "uuid": f"u{number}", "message": {"role": "user", "content": [done]}})
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert _line(place, "Stop", transcript_path=str(path)) == f'fleet logged 2 corrections: "{words}" and 1 more'


def test_a_person_who_wants_no_line_gets_none(place):
    _correct(place, "--trigger", "Bash:sh *")
    with (place.folder / "fleet.toml").open("a") as file:
        file.write("\n[hook]\nquiet = true\n")
    assert _line(place, "SessionStart", source="startup") == ""
    assert _line(place, "PreToolUse", tool_name="Bash", tool_input={"command": "sh deploy.sh"}) == ""


def test_a_person_who_wants_no_line_is_warned_of_what_is_not_logged(place):
    (place.folder / "fleet.toml").write_text("[hook]\nquiet = true\n")
    prompt = "No, that's wrong, you should always use fd and never find"
    assert _line(place, "UserPromptSubmit", prompt=prompt) == ""
    log = place.folder / "agents/tank/corrections.md"
    log.unlink()
    log.mkdir()
    assert _line(place, "UserPromptSubmit", prompt=prompt).startswith("fleet could not log what you said")
    (place.folder / ".fleet/fired").rename(place.folder / ".fleet/was")
    (place.folder / ".fleet/fired").write_text("")  # as on a read-only mount
    assert _line(place, "SessionStart", source="startup").startswith("fleet cannot write in .fleet here")


def test_where_another_process_holds_the_log_the_person_hears_what_becomes_of_the_words(place):
    prompt = "No, that's wrong, you should always use fd and never find"
    assert "fleet logged" in _line(place, "UserPromptSubmit", prompt=prompt)
    with (place.folder / ".fleet/locks/log-tank.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        line = _line(place, "UserPromptSubmit", prompt=f"{prompt}, please")
    assert "say it again, or leave it to the reflection on this session" in line
    assert line.endswith("nothing is lost)")


def test_the_agent_and_the_person_read_the_whole_prompt_and_not_its_question_alone(place):
    prompt = "why did you delete the config? I told you to keep it"
    answer = json.loads(place.hook("UserPromptSubmit", {"prompt": prompt}).stdout)
    assert answer["systemMessage"] == f'fleet logged a correction: "{prompt}"'
    stopped = json.loads(place.hook("Stop", {}).stdout or "{}")
    assert prompt in json.dumps([answer.get("hookSpecificOutput"), stopped])
