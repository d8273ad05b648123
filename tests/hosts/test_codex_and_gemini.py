"""Codex and Gemini CLI: what ``fleet install`` sets up there, and the loop through what was installed.

The shapes are those that the clients were seen to read and to send; ``make test-hosts`` asks the clients themselves.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.hosts.install import INSTALLABLE
from fleet.hosts.payloads import Payload

OTHERS = {"codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
OWN = {"codex": ("CODEX_HOME", "hooks.json"), "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json")}
THEIRS = (
    '{\n    "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "say hello"}]}]},\n  "z": 1.50 }\n'
)


PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def installed(place, host: str) -> dict[str, dict]:
    """Return what the settings of a host call, by event."""
    found = json.loads((place.folder / OTHERS[host]).read_text())["hooks"]
    return {event: {**groups[-1], **groups[-1]["hooks"][0]} for event, groups in found.items()}


def called(place, host: str, event: str, payload: dict) -> subprocess.CompletedProcess:
    """Run what is installed for an event, as the host does: by a shell."""
    fields = {"session_id": "s1", "cwd": str(place.folder), "hook_event_name": event, **payload}
    return subprocess.run(
        ["/bin/sh", "-c", installed(place, host)[event]["command"]],
        env=place.environment(PATH=PATH),
        input=json.dumps(fields),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("host", OTHERS)
def test_each_host_calls_fleet_after_one_command_and_not_after_another(place, host):
    path = place.folder / OTHERS[host]
    path.parent.mkdir()
    path.write_text(THEIRS)
    shown = place.fleet("install", host)
    assert INSTALLABLE[host].note in shown.stderr
    before = path.read_bytes()
    assert "already" in place.fleet("install", host).stdout
    assert path.read_bytes() == before
    assert set(installed(place, host)) == set(INSTALLABLE[host].matchers)
    assert (path.parent / "skills/fleet/SKILL.md").exists()
    place.fleet("uninstall", host)
    assert path.read_text() == THEIRS
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("host", OTHERS)
def test_a_persons_own_settings_are_where_the_host_looks_for_them(place, host, tmp_path):
    variable, below = OWN[host]
    place.fleet("install", host, "--user", **{variable: str(tmp_path / "own")})
    place.fleet("install", host, "--user")
    assert (tmp_path / "own" / below).exists()
    assert (place.home / OTHERS[host]).exists()


def test_limits_of_time_are_in_the_hosts_own_units(place):
    for host in OTHERS:
        place.fleet("install", host)
    codex, gemini = (installed(place, host) for host in OTHERS)
    assert (codex["UserPromptSubmit"]["timeout"], codex["SessionEnd"]["timeout"]) == (10, 3)
    assert (gemini["BeforeAgent"]["timeout"], gemini["SessionStart"]["timeout"]) == (10_000, 30_000)


@pytest.mark.parametrize("host", OTHERS)
def test_the_doctor_names_the_host_and_what_is_missing_in_its_settings(place, host):
    def found(expect: int = 0) -> dict:
        done = place.fleet("doctor", "--json", expect=expect, PATH=PATH)
        return next(each for each in json.loads(done.stdout)["findings"] if each["check"] == "hooks")

    place.fleet("install", host)
    assert INSTALLABLE[host].title in found()["what"]
    assert found()["level"] == "ok"
    path = place.folder / OTHERS[host]
    settings = json.loads(path.read_text())
    del settings["hooks"]["SessionStart"]
    path.write_text(json.dumps(settings))
    assert "not for SessionStart" in found(expect=1)["what"]
    assert found(expect=1)["do"] == f"`fleet install {host}`"


def test_hooks_that_gemini_has_switched_off_are_told(place):
    path = place.folder / OTHERS["gemini"]
    path.parent.mkdir()
    path.write_text('{"hooksConfig": {"enabled": false}}')
    shown = place.fleet("install", "gemini")
    assert "`hooksConfig.enabled` in the project's settings of Gemini CLI turns every hook off" in shown.stderr


def test_init_installs_the_host_that_is_named(bare):
    bare.fleet("init", "--agent", "tank", "--install", "codex")
    assert (bare.folder / OTHERS["codex"]).exists()
    assert not (bare.folder / ".claude").exists()


# --- how a command ended, in Codex ------------------------------------------------------------------------------------


def ended(place, tmp_path, call: str, code: int | None, *, others: tuple[object, ...] = ()) -> dict:
    """Return the payload of a command that ended in Codex, whose transcript has its exit code."""
    path = tmp_path / "rollout-1.jsonl"
    item = {"type": "CommandExecution", "id": call, "status": "failed", "exit_code": code}
    line = json.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": item}})
    with path.open("a") as file:
        file.writelines(f"{each}\n" for each in (line, *others))
    return {
        "turn_id": "t",
        "transcript_path": str(path),
        "tool_name": "Bash",
        "tool_input": {"command": "make nothing"},
        "tool_response": "make: *** No rule to make target 'nothing'.  Stop.\n",
        "tool_use_id": call,
    }


def test_a_fourth_try_of_what_failed_three_times_is_stopped_in_codex(place, tmp_path):
    place.fleet("install", "codex")
    for number in range(3):
        failed = ended(place, tmp_path, f"call_{number}", 2)
        called(place, "codex", "PreToolUse", failed)
        called(place, "codex", "PostToolUse", failed)
    answer = json.loads(called(place, "codex", "PreToolUse", ended(place, tmp_path, "call_4", None)).stdout)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "others",
    [(), ("{", '{"type":"CommandExecution"', '{"payload":{"item":{"type":"CommandExecution","id":["call_2"]}}}')],
    ids=["it succeeded", "lines that are torn or of another shape"],
)
def test_a_success_in_between_ends_the_row_of_failures(place, tmp_path, others):
    place.fleet("install", "codex")
    for number, code in enumerate((2, 2, 0, 2)):
        called(place, "codex", "PostToolUse", ended(place, tmp_path, f"call_{number}", code, others=others))
    assert not called(place, "codex", "PreToolUse", ended(place, tmp_path, "call_5", None)).stdout


def test_where_the_transcript_does_not_say_how_it_ended_nothing_is_counted(place, tmp_path):
    place.fleet("install", "codex")
    for number in range(4):
        unknown = ended(place, tmp_path, f"call_{number}", 2) | {"transcript_path": f"{tmp_path}/rollout-none.jsonl"}
        done = called(place, "codex", "PostToolUse", unknown | {"tool_use_id": f"other_{number}"})
        assert (done.returncode, done.stderr) == (0, "")
    assert not called(place, "codex", "PreToolUse", ended(place, tmp_path, "call_5", None)).stdout


def test_a_transcript_that_cannot_be_read_costs_no_more_than_the_exit_code(place, tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(13, "not yours")

    fields = ended(place, tmp_path, "call_1", 2)
    monkeypatch.setattr("builtins.open", refused)
    payload = Payload.parse("PostToolUse", json.dumps(fields).encode(), {})
    assert (payload.command, payload.exit_code, payload.knows_end) == ("make nothing", None, False)


def test_a_patch_of_codex_is_about_its_file_and_is_no_command(place, tmp_path):
    lesson = ("--pattern", "Run the generator behind a change", "--trigger", "Edit:*api.py")
    place.fleet("correct", "--wrong", "w", "--right", "r", *lesson)
    place.fleet("install", "codex")
    patch = "*** Begin Patch\n*** Update File: src/api.py\n@@\n-a\n+b\n*** End Patch\n"
    fields = {"turn_id": "t", "tool_name": "apply_patch", "tool_input": {"command": patch}, "tool_use_id": "c"}
    assert "Run the generator" in called(place, "codex", "PreToolUse", fields).stdout


PATCHES = [
    "*** Add File: db/migrate/2.rb\n+a",
    "*** Delete File: db/migrate/1.rb",
    "*** Update File: a.rb\n@@\n-a\n+b\n*** Update File: db/migrate/1.rb\n@@\n-a\n+b",
    "*** Update File: a.rb\n*** Move to: db/migrate/1.rb\n@@\n-a\n+b",
    "*** Update File: db/migrate/1.rb\n*** Move to: a.rb\n@@\n-a\n+b",
    "*** Update File: a.rb\n@@\n *** Add File: a.rb\n+b\n*** Delete File: db/migrate/1.rb",
    "*** Delete File: a.rb\n *** Delete File: db/migrate/1.rb",
    "*** Add File: a.rb\n" + ("+" + "x" * 99 + "\n") * 999 + "*** Delete File: db/migrate/1.rb",
]


QUOTED = [
    "*** Add File: db/patches.md\n+*** Add File: db/migrate/3.rb",
    "*** Update File: db/patches.md\n@@\n *** Update File: db/migrate/3.rb\n-a\n+b",
    "*** Update File: db/patches.md\n*** Move to: db/notes.md\n@@\n  *** Add File: db/migrate/3.rb\n-a\n+b",
]
"""Changes of pages that show a patch."""


def test_a_guard_sees_every_file_of_a_patch(place):
    lesson = ("--pattern", "Never touch a migration that ran", "--trigger", "Edit:db/migrate/*", "--json")
    place.fleet(
        "guard", json.loads(place.fleet("correct", "--wrong", "w", "--right", "r", *lesson).stdout)["id"], "deny"
    )
    for change in (*PATCHES, *QUOTED):
        patch = f"*** Begin Patch\n{change}\n*** End Patch\n"
        of_codex = {"turn_id": "t", "tool_name": "apply_patch", "tool_input": {"command": patch}}
        of_copilot = {"sessionId": "s", "toolName": "apply_patch", "toolArgs": patch}
        for fields in (of_codex, of_copilot):
            assert (b'"deny"' in place.hook("PreToolUse", fields).stdout) == (change in PATCHES), change[:60]


def test_a_guard_leaves_a_command_alone_whose_document_shows_a_diff_of_a_script(place):
    words = ("--pattern", "Never force a push", "--trigger", "Bash:git push*", "--json")
    lesson = json.loads(place.fleet("correct", "--wrong", "w", "--right", "r", *words).stdout)["id"]
    place.fleet("guard", lesson, "deny")
    shown = "git apply <<'EOF'\n--- a/x.sh\n+++ b/x.sh\n@@\n cat <<'EOF'\n EOF\n git push --force\n+ls\nEOF"
    for command, is_denied in ((shown, False), (f"{shown}\ngit push", True)):
        fields = {"turn_id": "t", "tool_name": "shell", "tool_input": {"command": command}}
        assert (b'"deny"' in place.hook("PreToolUse", fields).stdout) == is_denied


# --- before and after a tool, in Gemini CLI ---------------------------------------------------------------------------

DESTROY = "Never run `terraform destroy` here"


def of_gemini(tool: str, given: dict, **more: object) -> dict:
    where = "/home/dev/.gemini/tmp/1/chats/session.json"
    return {"tool_name": tool, "tool_input": given, "timestamp": "x", "transcript_path": where, **more}


def test_a_lesson_about_a_step_comes_with_its_result_where_gemini_reads_none_before(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", DESTROY, "--trigger", "Bash:terraform*")
    place.fleet("install", "gemini")
    step = of_gemini("run_shell_command", {"command": "terraform plan"})
    assert not called(place, "gemini", "BeforeTool", step).stdout
    for number in range(3):
        failed = {"tool_response": {"llmContent": "Error: no\nExit Code: 1"}} if number == 1 else {}
        session = {"session_id": f"s{min(number, 1)}"}  # once in each
        given = json.loads(called(place, "gemini", "AfterTool", step | failed | session).stdout or "{}")
        shown = given.get("hookSpecificOutput", {})
        assert (DESTROY in shown.get("additionalContext", "")) == (number < 2)
        assert shown.get("hookEventName", "AfterTool") == "AfterTool"


def test_a_tool_of_an_mcp_server_has_one_name_in_every_host(place):
    words = ("--pattern", DESTROY, "--trigger", "mcp__git_hub__*")
    lesson = json.loads(place.fleet("correct", "--wrong", "w", "--right", "r", *words, "--json").stdout)["id"]
    place.fleet("install", "gemini")
    place.fleet("guard", lesson, "deny")
    context = {"server_name": "git hub", "tool_name": "merge"}
    step = of_gemini("mcp_git_hub_merge", {"command": "x"}, mcp_context=context)
    assert Payload("BeforeTool", step, {}).tool == "mcp__git_hub__merge"
    assert DESTROY in json.loads(called(place, "gemini", "BeforeTool", step).stdout)["reason"]
    step["mcp_context"] = {"server_name": "gitlab", "tool_name": "merge"}
    assert not called(place, "gemini", "BeforeTool", step).stdout
    for odd in ({}, {"server_name": 1, "tool_name": "merge"}, {"tool_name": "merge"}, "git hub"):
        assert Payload("BeforeTool", step | {"mcp_context": odd}, {}).tool == "mcp_git_hub_merge"


def test_what_a_person_is_to_decide_gemini_refuses_since_without_one_it_would_wait_for_ever(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", DESTROY)
    (lesson,) = json.loads(place.fleet("patterns", "--json").stdout)["patterns"]
    place.fleet("guard", lesson["id"], "ask")
    place.fleet("install", "gemini")
    done = called(place, "gemini", "BeforeTool", of_gemini("run_shell_command", {"command": "terraform destroy"}))
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["decision"]) == (0, "deny")
    assert f"`fleet guard {lesson['id']} off` lifts it" in answer["reason"]


def test_a_refusal_reaches_gemini_through_what_is_installed(place):
    place.fleet("correct", "--wrong", "w", "--right", "r", "--pattern", DESTROY)
    (lesson,) = json.loads(place.fleet("patterns", "--json").stdout)["patterns"]
    place.fleet("guard", lesson["id"], "deny")
    place.fleet("install", "gemini")
    step = of_gemini("run_shell_command", {"command": "terraform destroy"})
    done = called(place, "gemini", "BeforeTool", step)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["decision"]) == (0, "deny")
    assert "terraform destroy" in answer["reason"]
    direct = place.hook("BeforeTool", step, expect=2)
    assert b"terraform destroy" in direct.stderr
