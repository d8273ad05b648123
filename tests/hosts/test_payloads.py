"""What hosts send: every captured payload is known for what it is, and what is odd becomes empty."""

import json

import pytest

from fleet import hook
from fleet.hosts import payloads
from fleet.hosts.payloads import Payload

HOSTS = {"claude": "claude-code", "codex": "codex", "copilot": "copilot", "gemini": "gemini"}


def read(path):
    told = json.loads(path.read_text())
    data = json.dumps(told["stdin"]).encode()
    return Payload.parse(told["event"], data, told["env"])


def test_every_captured_payload_is_known_for_its_host(shared):
    count = 0
    for path in sorted((shared / "hosts" / "payloads").glob("*/*.json")):
        if path.stem.endswith("notify"):  # Codex passes that one as a word of the command line
            continue
        count += 1
        assert read(path).host == HOSTS[path.parent.name.partition("-")[0]], path
    assert count > 60


def test_a_nested_agent_inherits_its_hosts_environment_and_is_still_known(shared):
    """A Codex that Claude Code started: the payload is Codex's, the environment is Claude's."""
    path = next((shared / "hosts" / "payloads" / "codex-0.169.0").glob("*SessionStart.json"))
    data = json.dumps(json.loads(path.read_text())["stdin"]).encode()
    everything = {"CLAUDECODE": "1", "COPILOT_CLI": "1", "GEMINI_SESSION_ID": "x"}
    assert Payload.parse("SessionStart", data, everything).host == "codex"


@pytest.mark.parametrize("transcript", ["", "/home/dev/elsewhere/chats/s.jsonl"])
@pytest.mark.parametrize(
    "event", ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "PreCompress", "SessionEnd"]
)
def test_gemini_is_known_without_a_transcript_of_its_own_folder(event, transcript):
    fields = {"session_id": "g", "timestamp": "2026-11-20T22:42:39.138Z", "transcript_path": transcript}
    assert Payload(event, fields, {"GEMINI_SESSION_ID": "g"}).host == "gemini"
    if not event.startswith("Session"):
        assert Payload(event, fields, {}).host == "gemini"
    else:  # a Copilot that Gemini CLI started has a session of its own
        assert Payload(event, fields, {"GEMINI_SESSION_ID": "other"}).host == "copilot"


def test_every_hosts_events_and_commands_are_read_alike(shared):
    seen: dict[str, set[tuple[str, str, int | None]]] = {}
    for path in sorted((shared / "hosts" / "payloads").glob("*/*.json")):
        payload = read(path)
        if payload.event in ("PreToolUse", "PostToolUse", "PostToolUseFailure"):
            assert payload.tool == "Bash"
            seen.setdefault(payload.host, set()).add((payload.event, payload.command, payload.exit_code))
        if payload.event == "UserPromptSubmit":
            assert payload.prompt
        if payload.event:
            assert payload.session, path
            assert payload.cwd == "/home/dev/project", path
    failure = ("PostToolUseFailure", "false", 1)
    assert {host for host, found in seen.items() if failure in found} == {"claude-code", "copilot", "gemini"}
    assert all(("PostToolUse", "echo hello-from-tool", None) in found for found in seen.values())


@pytest.mark.parametrize(
    ("found", "code", "error"),
    [
        ({"error": "Exit code 3\nout\noops"}, 3, "out\noops"),
        ({"error": "Exit code 1"}, 1, ""),
        ({"error": "String to replace not found in file."}, None, "String to replace not found in file."),
        ({"error": ""}, None, ""),
        ({"error": "Exit code x"}, None, "Exit code x"),
        ({"error": "Exit code \u0661"}, None, "Exit code \u0661"),
        (
            {"tool_response": {"llmContent": "Output: x\nExit Code: 127\nPGID: 3"}},
            127,
            "x",
        ),
        (
            {
                "tool_response": {
                    "llmContent": "<untrusted_context>\nOutput: (empty)\nExit Code: 1\n</untrusted_context>"
                }
            },
            1,
            "",
        ),
        (
            {"tool_result": {"text_result_for_llm": "y <shellId: 1>\n<shellId: 1 completed with exit code 2>"}},
            2,
            "y <shellId: 1>",
        ),
        ({"tool_result": {"text_result_for_llm": "y\n<shellId: 1 completed with exit code 0>"}}, None, ""),
    ],
)
def test_how_a_command_ended(found, code, error):
    payload = Payload.parse("PostToolUse", json.dumps(found).encode(), {})
    assert (payload.exit_code, payload.error) == (code, error)


def test_a_long_error_keeps_its_end_and_a_long_prompt_both_ends():
    long = "a" * 200_000
    payload = Payload.parse(
        "X", json.dumps({"error": f"Exit code 1\n{long}END", "prompt": f"BEGIN{long}END"}).encode(), {}
    )
    assert payload.error.endswith("END")
    assert payload.prompt.startswith("BEGIN")
    assert payload.prompt.endswith("END")
    assert max(map(len, (payload.error, payload.prompt))) <= payloads.FIELD_CHARS_MAX + 1


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b"null", b"[" * 100_000, b'{"a":1}' + b" " * 8 * 1024 * 1024])
def test_what_is_no_payload_is_refused(data):
    with pytest.raises((ValueError, RecursionError)):
        Payload.parse("Stop", data, {})


@pytest.mark.parametrize("printed", ["sh: foo: not found", "3 failed", "Traceback (most recent call last):", "*** 1"])
def test_a_command_whose_exit_code_is_masked_may_have_failed_by_what_it_printed(printed):
    def masked(command: str, text: str) -> bool:
        call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": {"stdout": text}}
        return Payload.parse("PostToolUse", json.dumps(call).encode(), {}).may_have_failed

    assert masked("foo | tail", printed)
    assert not masked("foo", printed)
    assert not masked("foo | tail", "all is well")


def output(event: str, reply: payloads.Reply, **found: str) -> dict:
    code, said, _ = reply.output(Payload.parse(event, json.dumps(found).encode(), {}))
    assert code == 0
    return json.loads(said) if said else {}


def test_context_never_grows_beyond_what_a_host_takes_and_says_what_it_left_out():
    shown = output("SessionStart", payloads.Reply("x" * 20_000))["hookSpecificOutput"]["additionalContext"]
    assert len(shown) <= payloads.CONTEXT_CHARS_MAX
    assert "of its 20000 characters left out" in shown


def test_a_line_for_the_person_is_one_line_and_harmless_in_a_terminal():
    said = output("Stop", payloads.Reply(note="logged\n\x1b[2J \u202etwice" + "!" * 500))["systemMessage"]
    assert said.startswith("logged [2J twice!")
    assert len(said) == payloads.NOTE_CHARS_MAX


def test_a_line_for_the_person_goes_beside_the_context_and_only_to_hosts_that_show_one():
    both = payloads.Reply("meant", note="logged")
    assert output("Stop", both)["systemMessage"] == "logged"
    assert output("Stop", both)["hookSpecificOutput"]["additionalContext"] == "meant"
    assert output("Stop", both, sessionId="s") == {"additionalContext": "meant"}  # Copilot
    assert output("Stop", payloads.Reply()) == {}


def test_a_path_that_no_system_takes_is_cut_since_each_part_of_it_is_looked_at():
    made = Payload.parse("Stop", json.dumps({"cwd": "/x" * 100_000, "transcript_path": "/x" * 100_000}).encode(), {})
    assert len(made.cwd) == len(made.transcript) == 4096


def test_a_row_of_the_table_is_all_by_which_a_host_is_recognised_and_answered(tmp_path, monkeypatch):
    monkeypatch.setitem(
        payloads.HOSTS, "foo", {"home": "/.foo/", "process": "FOO_RUNS", "project": "FOO_PROJECT", "can": "ask note"}
    )
    here = Payload("Stop", {}, {"FOO_RUNS": "1"})
    assert here.host == Payload("Stop", {"transcript_path": "/home/x/.foo/1.jsonl"}, {}).host == "foo"
    assert json.loads(payloads.Reply(note="logged").output(here)[1]) == {"systemMessage": "logged"}
    (tmp_path / ".fleet").mkdir()
    (tmp_path / "fleet.toml").touch()
    assert hook._find_root("", {"FOO_PROJECT": str(tmp_path)}) == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('"use pnpm"', "use pnpm"),
        ('"call it \\"bar\\", not \\"foo\\""', 'call it "bar", not "foo"'),
        ('"foo" is wrong, call it "bar"', '"foo" is wrong, call it "bar"'),
        ('"', '"'),
        ("", ""),
    ],
)
def test_a_prompt_loses_the_quotes_that_opencode_wraps_it_in_and_no_others(given, read):
    assert Payload("UserPromptSubmit", {"prompt": given}, {}).prompt == read


def test_the_file_of_a_tool_of_opencode_is_known():
    assert Payload("PreToolUse", {"tool_name": "edit", "tool_input": {"filePath": "/a/b.sql"}}, {}).paths == [
        "/a/b.sql"
    ]


@pytest.mark.parametrize("host", payloads.HOSTS)
def test_a_host_is_known_by_its_variable_and_by_its_transcripts(host):
    signs = payloads.HOSTS[host]
    environment = {signs["process"]: "1"} if "process" in signs else {}
    assert Payload("Stop", {}, environment).host == host
    for home in signs.get("home", "").split():
        assert Payload("Stop", {"transcript_path": f"/home/x{home}1.jsonl"}, {}).host == host


def test_a_session_of_qwen_code_starts_with_a_context_in_the_frame_that_it_reads():
    where = "/home/x/.qwen/projects/-x/chats/q.jsonl"
    qwen = {"session_id": "q", "transcript_path": where, "timestamp": "x", "permission_mode": "default"}
    shown = output("SessionStart", payloads.Reply("pull first"), **qwen)
    assert shown["hookSpecificOutput"]["additionalContext"] == "pull first"
