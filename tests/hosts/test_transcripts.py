"""What a person refused or stopped is read from the transcript's tail: each once, with the call, whatever the file."""

import json
import os
import re
import time

import pytest

from fleet.hosts import transcripts
from fleet.text.signals import objections

HEAD = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). "
)
STOP = "STOP what you are doing and wait for the user to tell you how to proceed."
HINT = (
    "\n\nNote: The user's next message may contain a correction or preference. Pay close attention — if they explain "
    "what went wrong or how they'd prefer you to work, consider saving that to memory for future sessions."
)
WORDS = "no, never force-push here"
WITH_WORDS = {
    "today": f"{HEAD}To tell you how to proceed, the user said:\n{WORDS}",
    "with a hint": f"{HEAD}To tell you how to proceed, the user said:\n{WORDS}{HINT}",
    "a reason": f"{HEAD}The user provided the following reason for the rejection:  {WORDS}",
    "another name": HEAD.replace("user", "dev5") + f"To tell you how to proceed, the dev5 said:\n{WORDS}",
    "a subagent": f"Permission for this tool use was denied. The tool use was rejected. The user said:\n{WORDS}",
}


def line(role: str, *blocks: dict, **more: object) -> dict:
    return {"type": role, "message": {"role": role, "content": list(blocks)}, "uuid": f"u-{id(blocks)}", **more}


def call(name: str, tool: str = "Bash", **given: str) -> dict:
    return line("assistant", {"type": "tool_use", "id": name, "name": tool, "input": given})


def result(name: str, text: str, *, is_error: bool = True) -> dict:
    return line("user", {"type": "tool_result", "tool_use_id": name, "content": text, "is_error": is_error})


def typed(text: str, **more: object) -> dict:
    return line("user", {"type": "text", "text": text}, **more)


STOPPED = typed("[Request interrupted by user for tool use]")


class Talk:
    """A transcript as the client writes it, and the hooks that are told where it is."""

    def __init__(self, place) -> None:
        self.place = place
        self.path = place.home / ".claude" / "projects" / "x" / "s.jsonl"
        self.path.parent.mkdir(parents=True)

    def write(self, *lines: dict) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in lines)

    def hook(self, event: str, **more: object) -> dict:
        done = self.place.hook(event, {"transcript_path": str(self.path), "prompt_id": "1", **more})
        return json.loads(done.stdout) if done.stdout else {}

    def prompt(self, text: str) -> dict:
        return self.hook("UserPromptSubmit", prompt=text)

    def stop(self) -> dict:
        return self.hook("Stop", stop_hook_active=False)


@pytest.fixture
def talk(place):
    return Talk(place)


@pytest.mark.parametrize("form", WITH_WORDS, ids=str)
def test_a_refused_call_with_words_is_a_strong_signal_with_the_call_beside_it_and_asked_about_in_the_turn(talk, form):
    talk.write(typed("push it"), call("t1", command="git push --force"), result("t1", WITH_WORDS[form]))
    asked = talk.stop()
    assert re.search(r"fleet learn c-[0-9a-f]{16}", asked["reason"])
    assert "fleet logged a correction" in asked["systemMessage"]
    entry = talk.place.entries()
    assert f"**User flagged:** {WORDS}\n    (Refused Bash: git push --force)\n" in entry
    assert "rejection (confidence=strong)" in entry
    assert "Note: The user's" not in entry


def test_a_turn_in_which_nothing_was_refused_takes_no_room_in_the_sessions_notes(talk):
    """They take 64 KiB: full, they knew of no refusal that it was heard, and each prompt logged it once more."""
    sizes = []
    for _ in range(3):
        talk.write(typed("please go on"), line("assistant", {"type": "text", "text": "done"}))
        talk.prompt("please go on with the next task")
        talk.stop()
        sizes.append({each.name: each.stat().st_size for each in (talk.place.folder / ".fleet/told").iterdir()})
    assert sizes[0] == sizes[1] == sizes[2]
    talk.write(call("t1", command="git push"), result("t1", WITH_WORDS["today"]))
    assert "fleet learn" in talk.stop()["reason"]
    assert not talk.stop()


def lesson_of(talk, entry: str, *more: str) -> dict:
    """State a lesson that names no step by itself; return what is known of it."""
    id_ = talk.place.fleet("learn", entry, "--pattern", "Ask before anything leaves", *more).stdout.split()[0]
    return json.loads(talk.place.fleet("show", id_, "--json").stdout)


def test_the_lesson_of_a_refused_call_is_shown_before_the_next_such_call(talk):
    talk.write(call("t1", command="cd x && git push --force origin main"), result("t1", WITH_WORDS["today"]))
    entry = re.search(r"c-[0-9a-f]{16}", talk.stop()["reason"])[0]
    assert lesson_of(talk, entry)["trigger"] == "Bash:git push *"
    talk.place.context("SessionStart", {"session_id": "later", "source": "startup"})
    for command, is_shown in (("git pull", False), ("git push", True)):
        step = {"session_id": "later", "tool_name": "Bash", "tool_input": {"command": command}}
        assert ("Ask before anything leaves" in talk.place.context("PreToolUse", step)) is is_shown


@pytest.mark.parametrize(
    ("pattern", "more", "trigger"),
    [
        ("Use `helm upgrade`, never npm", (), "Bash:npm, Bash:npm *, Bash:git push *"),
        ("Ask first", ("--trigger", "Bash:ls *"), "Bash:ls *"),
        ("Never `git push *`", (), "Bash:git push*, Bash:git push *"),
    ],
)
def test_the_refused_call_is_beside_what_the_lesson_names_and_gives_way_to_what_it_is_given(
    talk, pattern, more, trigger
):
    talk.write(call("t1", command="git push"), result("t1", WITH_WORDS["today"]))
    entry = re.search(r"c-[0-9a-f]{16}", talk.stop()["reason"])[0]
    id_ = talk.place.fleet("learn", entry, "--pattern", pattern, *more).stdout.split()[0]
    assert json.loads(talk.place.fleet("show", id_, "--json").stdout)["trigger"] == trigger


@pytest.mark.parametrize(("given", "trigger"), [((), "Bash:git push *"), (("--trigger", "Bash:scp *"), "Bash:scp *")])
def test_a_known_lesson_gets_the_refused_call_for_a_step_where_it_was_given_none(talk, given, trigger):
    words = ("--wrong", "a", "--right", "b", "--pattern", "Ask before anything leaves")
    talk.place.fleet("correct", *words, *given)
    talk.write(call("t1", command="git push"), result("t1", WITH_WORDS["today"]))
    known = lesson_of(talk, re.search(r"c-[0-9a-f]{16}", talk.stop()["reason"])[0])
    assert known["trigger"] == trigger
    assert known["seen"] == 2


@pytest.mark.parametrize("given", [(), ("--trigger", "Bash:ls *", "--right", "list first")], ids=["none", "given"])
@pytest.mark.parametrize("written", ["", "**Correct approach:** by a pull request\n"], ids=["as logged", "by hand"])
def test_what_waits_again_after_an_undo_waits_as_it_did(talk, given, written):
    talk.write(call("t1", command="git push"), result("t1", WITH_WORDS["today"]))
    first = re.search(r"c-[0-9a-f]{16}", talk.stop()["reason"])[0]
    log = talk.place.folder / "agents/tank/corrections.md"
    log.write_text(log.read_text().replace("**Pattern:** _to be", f"{written}**Pattern:** _to be"))
    entry = re.search(r"c-[0-9a-f]{16}", talk.place.fleet("learn", "--waiting").stdout)[0]
    assert (entry == first) is not written
    talk.place.fleet("learn", entry, "--pattern", "Push no more", *given)
    again = re.search(r"(c-\S+) waits for its lesson", talk.place.fleet("undo").stdout)[1]
    known = lesson_of(talk, again)
    assert known["trigger"] == "Bash:git push *"
    assert known.get("correct", "") == ("by a pull request" if written else "")


@pytest.mark.parametrize("settled_by", ["learn", "dismiss", "waits"])
def test_what_was_heard_live_is_not_proposed_and_counted_again_by_an_import_of_the_transcripts(talk, settled_by):
    words, now = "Use bun here, yarn is banned in this repo", {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z")}
    told = [call("t1", command="yarn add x"), result("t1", WITH_WORDS["today"].replace(WORDS, words))]
    for session in ("s-1", "s-2"):
        talk.path = talk.path.with_name(f"{session}.jsonl")
        talk.write(*(each | now for each in told))
        asked = talk.hook("Stop", stop_hook_active=False, session_id=session)
        entry = re.search(r"c-[0-9a-f]{16}", asked["reason"])[0]
        if settled_by == "learn":
            talk.place.fleet("learn", entry, "--pattern", words, "--session", session)
        elif settled_by == "dismiss":
            talk.place.fleet("learn", entry, "--dismiss")
    folder = str(talk.path.parent)
    rows = talk.place.fleet("import", "--transcripts", folder).stdout
    assert "0 proposals from 2 sessions; 1 more known already" in rows
    found = json.loads(talk.place.fleet("import", "--transcripts", folder, "--accept", "all", "--json").stdout)
    assert (found["proposals"], found["known"], found["logged"]) == ([], 1, [])


def test_a_call_after_which_a_person_only_changed_the_subject_is_no_step(talk):
    talk.write(call("t1", command="git push"), result("t1", HEAD + STOP), STOPPED)
    talk.prompt("first tell me what is in the archive")
    assert "trigger" not in lesson_of(talk, re.search(r"flagged (c-[0-9a-f]{16})", talk.place.entries())[1])


def test_a_refusal_that_cannot_be_logged_is_not_passed_over_in_silence(talk):
    talk.write(call("t1", command="git push --force"), result("t1", WITH_WORDS["today"]))
    log = talk.place.folder / "agents/tank/corrections.md"
    log.mkdir(parents=True)
    assert "could not log what you said" in talk.stop()["systemMessage"]
    log.rmdir()
    assert "fleet logged a correction" in talk.stop()["systemMessage"]


def test_a_refused_call_is_heard_once_however_often_the_hooks_are_called(talk):
    talk.write(call("t1", command="git push -f"), result("t1", WITH_WORDS["today"]))
    talk.stop()
    entry = re.search(r"c-[0-9a-f]{16}", talk.place.entries())[0]
    talk.place.fleet("learn", entry, "--pattern", "Never force-push")
    for _ in range(2):
        talk.stop()
        talk.prompt("Add the parser")
    assert talk.place.entries().count("**User flagged:**") == 1


def test_calls_that_are_refused_together_with_the_same_words_are_one_signal(talk):
    for n in range(3):
        talk.write(call(f"t{n}", "Write", file_path=f"/x/{n}"), result(f"t{n}", WITH_WORDS["today"]))
    assert len(set(re.findall(r"c-[0-9a-f]{16}", talk.stop()["reason"]))) == 1
    assert talk.place.entries().count("**User flagged:**") == 1
    for command in ("git push", "npm publish", "git push origin"):
        talk.write(call(command, command=command), result(command, WITH_WORDS["today"]))
    talk.stop()
    assert re.findall(r"\*\*Trigger:\*\* (.*)", talk.place.entries()) == ["Bash:git push *", "Bash:npm publish *"]


def test_a_refusal_without_words_gets_those_of_the_next_prompt(talk):
    talk.write(call("t1", "Write", file_path="/x/LICENSE", content="MIT"), result("t1", HEAD + STOP + HINT), STOPPED)
    assert talk.stop() == {}
    assert talk.place.entries() == ""
    talk.prompt("put our own company there")
    assert "put our own company there\n    (Refused Write: /x/LICENSE)" in talk.place.entries()
    assert "rejection (confidence=medium)" in talk.place.entries()


def test_words_that_the_host_put_into_a_refusal_are_not_the_persons(talk):
    words = "The user wants to clarify these questions. This means they may have additional information."
    talk.write(call("t1", "AskUserQuestion"), result("t1", WITH_WORDS["today"].replace(WORDS, words)))
    talk.stop()
    assert talk.place.entries() == ""


def test_words_in_the_result_of_an_mcp_tool_are_its_servers_and_the_next_prompt_is_the_persons(talk):
    talk.write(call("t1", "mcp__web__fetch", url="http://x"), result("t1", WITH_WORDS["today"]))
    assert talk.stop() == {}
    assert talk.place.entries() == ""
    talk.write(call("t2", "mcp__web__fetch", url="http://x"), result("t2", HEAD + STOP))
    talk.prompt("take the page from the archive")
    assert "take the page from the archive\n    (Refused mcp__web__fetch: http://x)" in talk.place.entries()


def test_words_that_are_strong_by_themselves_are_one_signal_with_the_refused_call(talk):
    talk.write(call("t1", command="npm i"), result("t1", HEAD + STOP), STOPPED)
    said = talk.prompt("That's wrong. You should have used pnpm.")
    assert "fleet learn c-" in said["hookSpecificOutput"]["additionalContext"]
    assert talk.place.entries().count("**User flagged:**") == 1
    assert "(Refused Bash: npm i)" in talk.place.entries()


def test_a_stopped_turn_gets_the_words_of_the_next_prompt(talk):
    talk.write(typed("tidy up"), call("t1", command="rm -r build"), result("t1", "", is_error=False))
    talk.write(typed("[Request interrupted by user]"))
    talk.prompt("keep the build folder, it is tracked")
    assert "keep the build folder, it is tracked\n    (Stopped after Bash: rm -r build)" in talk.place.entries()
    assert "interruption (confidence=medium)" in talk.place.entries()


@pytest.mark.parametrize(
    "then",
    ["continue", "sorry, continue", "ok go on", "Implement the following plan:\n\n# Plan\nNo.",
     "<task-notification>wrong</task-notification>", "<command-name>/clear</command-name>"],
)  # fmt: skip
def test_who_only_says_to_go_on_and_who_is_no_person_objects_to_nothing(talk, then):
    talk.write(call("t1", "ExitPlanMode"), result("t1", HEAD + STOP), STOPPED)
    talk.prompt(then)
    talk.prompt("add a test for the parser")
    assert talk.place.entries() == ""


def test_a_prompt_that_is_mended_before_anything_was_done_objects_to_nothing(talk):
    talk.write(typed("can you do a mixed scenario?"), typed("[Request interrupted by user]"))
    talk.prompt("can you do a mixed scenario? with several sessions")
    assert talk.place.entries() == ""


def test_what_only_quotes_a_refusal_is_none(talk):
    talk.write(
        call("t1", command="grep -r proceed ."),
        result("t1", f"notes.md:12: {WITH_WORDS['today']}", is_error=False),
        call("t2", command="cat notes.md"),
        result("t2", WITH_WORDS["today"], is_error=False),
        line("assistant", {"type": "text", "text": WITH_WORDS["today"]}),
        typed(f"what does this mean: {WITH_WORDS['today']}"),
        typed(WITH_WORDS["today"], isMeta=True),
        result("t3", "Permission to use Bash with command rm has been denied."),
        result("t4", "<tool_use_error>File does not exist.</tool_use_error>"),
    )
    talk.stop()
    talk.prompt("Add the parser")
    assert talk.place.entries() == ""


def test_what_a_fork_copied_from_another_session_is_not_heard_again(talk):
    talk.write(call("t1", command="git push -f"), result("t1", WITH_WORDS["today"]))
    talk.hook("SessionStart", source="resume")
    talk.prompt("Add the parser")
    assert talk.place.entries() == ""
    talk.write(call("t2", command="git push -f"), result("t2", WITH_WORDS["today"]))
    talk.stop()
    assert talk.place.entries().count("**User flagged:**") == 1


def test_a_secret_in_a_refused_call_stays_out(talk):
    secret = "ghp_" + "a1B2" * 9
    talk.write(call("t1", command=f"curl -H 'Authorization: Bearer {secret}' x"), result("t1", WITH_WORDS["today"]))
    said = talk.stop()
    assert "Refused Bash: curl" in talk.place.entries()
    assert secret not in talk.place.entries() + json.dumps(said) + json.dumps(talk.place.log())


def test_with_triggers_off_nothing_is_heard(talk):
    (talk.place.folder / "fleet.toml").write_text("[triggers]\noff = true\n")
    talk.write(call("t1", command="x"), result("t1", WITH_WORDS["today"]))
    talk.stop()
    assert talk.place.entries() == ""


# --- the file: torn, rewritten, huge, unreadable, of another host ----------------------------------------------------


def test_a_line_that_is_half_there_is_heard_when_it_is_whole(talk):
    whole = json.dumps(result("t1", WITH_WORDS["today"])) + "\n"
    talk.write(call("t1", command="git push -f"))
    for at in (10, 60, len(whole) - 1, len(whole)):
        with talk.path.open("a") as file:
            file.write(whole[:at])
            whole = whole[at:]
        talk.stop()
    assert talk.place.entries().count("**User flagged:**") == 1


def test_a_damaged_line_costs_itself_alone(talk):
    talk.write(call("t1", command="git push -f"))
    with talk.path.open("ab") as file:
        file.write(
            b'{"message": {"role": "user", "content": [{"type"\n\xff\xfe\n[]\n"x"\n{"message": 3}\n'
            + b"[" * 9_999
            + b"\n"
        )
    talk.write(line("user", "no block", {"type": "tool_result"}, {"type": 7}), result("t1", WITH_WORDS["today"]))
    talk.stop()
    assert "(Refused Bash: git push -f)" in talk.place.entries()


def test_a_transcript_that_was_rewritten_is_read_anew_said_once_and_nothing_counts_twice(talk):
    talk.write(*[typed("x" * 1000)] * 20, call("t1", command="git push -f"), result("t1", WITH_WORDS["today"]))
    talk.stop()
    for _ in range(2):
        talk.path.write_text("")
        talk.write(call("t1", command="git push -f"), result("t1", WITH_WORDS["today"]))
        talk.prompt("That's wrong, the port is 8080")
    talk.write(call("t2", command="make clean"), result("t2", WITH_WORDS["today"].replace(WORDS, "keep the build")))
    talk.stop()
    assert re.findall(r"\*\*User flagged:\*\* (.*)", talk.place.entries()) == [
        WORDS, "That's wrong, the port is 8080", "keep the build"
    ]  # fmt: skip
    assert sum("rewritten" in each["what"] for each in talk.place.log()) == 1


def test_of_500_mb_the_newest_part_is_read_in_no_time(talk):
    with talk.path.open("wb") as file:
        file.truncate(500 * 1024 * 1024)  # a hole: it takes no room
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    talk.write(call("t1", command="git push -f"), result("t1", WITH_WORDS["today"]))
    talk.stop()
    assert "(Refused Bash: git push -f)" in talk.place.entries()


def test_what_is_passed_over_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "_BYTES_MAX", 100)
    path = tmp_path / "s.jsonl"
    path.write_text("x" * 50 + "\n" + "y" * 400 + "\n" + "z" * 60 + "\n")
    part = transcripts._read(str(path), 51)
    assert "passed over" in part.trouble
    assert (part.data.endswith(b"z\n"), part.ends) == (True, path.stat().st_size)


@pytest.mark.parametrize("what", ["folder", "pipe", "not mine", "missing"])
def test_what_cannot_be_read_is_said_once_and_fails_nothing(talk, what):
    if what == "folder":
        talk.path.mkdir()
    elif what == "pipe":
        os.mkfifo(talk.path)
    elif what == "not mine":
        talk.path.symlink_to(talk.path)
    for _ in range(2):
        talk.prompt("That's wrong. You should have used pnpm.")
        talk.stop()
    assert talk.place.entries().count("**User flagged:**") == 1
    assert sum("transcript" in each["what"] for each in talk.place.log()) == (what != "missing")


@pytest.mark.parametrize("host", ["codex-0.169.0", "copilot-1.0.102", "gemini-0.61.0"])
def test_another_hosts_transcript_holds_no_objection(talk, shared, host):
    part = transcripts._read(str(shared / "hosts" / "transcripts" / f"{host}.jsonl"))
    assert not part.has_objection()
    assert objections(part.events()) == ([], None)


# --- what real people refused -----------------------------------------------------------------------------------------


def test_of_real_refusals_with_words_all_are_heard_with_their_calls(shared):
    paths = sorted((shared / "corpora" / "transcripts").glob("*.jsonl"))
    assert len(paths) == 12
    for path in paths:
        found = list(transcripts._read(str(path)).events())
        heard, _ = objections(found)
        refused = [each for each in found if each.kind == "refused" and each.text]
        assert {each.id for each in refused} <= {each.id for each in heard}
        assert all(each.tool and each.words for each in heard if each.kind == "rejection")
