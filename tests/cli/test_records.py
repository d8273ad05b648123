"""``fleet records``: what each reflection did, cost and left out; and who is told when one is done."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fleet.app import session_end
from fleet.reflect.records import Record, Records, Written
from fleet.store.workspace import Workspace
from tests.reflect.talks import taught

TOKEN = "gh" + "p_" + "a1B2c3" * 6


def complete(stage, **more) -> list[str]:
    """Write a record as a reflection does; return the warnings."""
    workspace = Workspace(stage.folder / "w")
    session_end._finish(workspace, "velma", Record(**({"run": "reflection-1", "session": "s1"} | more)))
    workspace.close()
    return workspace.warnings


def events(stage) -> list[dict]:
    return [json.loads(row) for row in (stage.folder / "w/.fleet/events.jsonl").read_text().splitlines()]


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict]]]:
    """A webhook on loopback, and what was posted to it; ``/moved`` leads somewhere else."""
    posted: list[dict] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append({"path": self.path, "type": self.headers["Content-Type"], **body})
            self.send_response(302 if self.path == "/moved" else 200)
            if self.path == "/moved":
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    thread.join()
    server.server_close()


def configure(stage, **settings: object) -> None:
    path = stage.folder / "w/fleet.toml"
    rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    head = path.read_text().partition("[notify]\n")[0]
    path.write_text(f"{head}[notify]\n{rows}")


def test_a_variable_with_another_secret_is_named_as_the_webhook_and_never_its_value(w):
    configure(w, webhook_env="FLEET_LIVE_TOKEN")
    token = "5f3a9c0e71d24b86a0c9e2f4d7b1835c60e9a2d4f8b7c1e5"
    for words in (["init"], ["doctor"], ["doctor", "--json"], ["init", "--yes"]):
        done = w.run("w", *words, expect=None, FLEET_LIVE_TOKEN=token)
        assert "FLEET_LIVE_TOKEN" in done.stdout + done.stderr, words
        assert token[:8] not in done.stdout + done.stderr, words


# --- the list -------------------------------------------------------------------------------------------------------


def test_a_record_tells_what_was_saved_and_what_it_cost_and_one_that_saved_nothing_why(w):
    assert "no session was reflected on yet" in w.run("w", "records").stdout
    complete(w, usd=0.25, outcome="success", reflector="rules", writers=(Written(name="notes", count=2),))
    complete(w, run="reflection-2", outcome="skipped", why="the answer was no JSON")
    second, first = w.run("w", "records").stdout.splitlines()
    assert "saved 2 notes" in first
    assert "$0.25" in first
    assert "saved nothing: the answer was no JSON" in second
    assert "cost not known" in second
    complete(w, run="sleep-1", kind="sleep", outcome="success", why="tidy: 1 archived")
    assert "sleep success: tidy" in w.run("w", "records").stdout.splitlines()[0]  # no model was asked


def test_records_are_filtered_by_day_and_bear_their_numbers(w):
    for number, day in enumerate(("2026-03-01", "2026-04-01", "2026-05-01"), 1):
        complete(w, run=f"r{number}", at=f"{day}T10:00:00.000Z-0000")
    found = json.loads(w.run("w", "records", "--since", "2026-04-01", "--json").stdout)["records"]
    assert [each["number"] for each in found] == [3, 2]
    assert w.run("w", "records", "--since", "yesterday", expect=2).stderr


def test_a_session_that_waits_for_the_next_day_is_listed(w):
    workspace = Workspace(w.folder / "w")
    Records(workspace, "velma").append(
        Record(run="r1", line="deferred", session="s9", why="the day's cap of $5.00 is reached")
    )
    workspace.close()
    assert "deferred: session s9" in w.run("w", "records").stdout
    assert "cap of $5.00" in w.run("w", "records").stdout


def test_of_one_thing_one_is_told_and_why_another_was_asked(w):
    why = "nobody on this machine agreed to command []: the rules were asked. `fleet reflect --agree` does"
    written = (Written(name="lessons", ids=("p-1",), count=1), Written(name="notes", ids=("n",), count=1))
    complete(w, writers=written, why=why)
    shown = w.run("w", "records", "show", "1").stdout
    assert "saved 1 lesson, 1 note" in shown
    assert shown.count(why) == 1


def test_one_record_leads_to_the_lines_of_the_transcript_that_it_was_drawn_from(w):
    transcript = w.folder / "session.jsonl"
    rows = [
        {"type": "user", "message": {"content": "no, use awk"}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": f"done with {TOKEN}"}]}},
        {"type": "user", "message": {"content": "thanks"}},
    ]
    transcript.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn')
    skipped = ("a lesson that nobody's words support waits in the inbox",)
    written = Written(name="lessons", ids=("p-1",), count=1, skipped=skipped)
    raw = json.dumps({"outcome": "success", "what_worked": TOKEN})
    complete(w, transcript=str(transcript), drawn=(1, 2, 9), writers=(written,), raw=raw, left_out="3 tool outputs")
    said = w.run("w", "records", "show", "1").stdout
    assert "no, use awk" in said
    assert "done with" in said
    assert "thanks" not in said
    assert "a lesson that nobody's words support" in said
    assert "3 tool outputs" in said
    assert '"what_worked"' in said
    assert TOKEN not in said
    assert TOKEN not in (w.folder / "w/agents/velma/reflections.jsonl").read_text()
    found = json.loads(w.run("w", "records", "show", "1", "--json").stdout)
    assert [each["line"] for each in found["drawn_lines"]] == [1, 2]
    transcript.write_text(json.dumps({"type": "user", "message": {"content": ""}}) + "\n")
    shown = w.run("w", "records", "show", "1").stdout
    assert "which has none of those lines any more" in shown
    assert "gone" not in shown
    transcript.unlink()
    assert "which is gone" in w.run("w", "records", "show", "1").stdout
    assert "no record 2" in w.run("w", "records", "show", "2", expect=1).stderr


def test_a_pass_that_saved_nothing_names_no_run_that_could_be_taken_back(w):
    transcript = w.folder / "session.jsonl"
    transcript.write_text(json.dumps({"message": {"role": "user", "content": "please publish the branch"}}) + "\n")
    said = w.run("w", "reflect", "--transcript", str(transcript)).stdout
    assert "saved nothing" in said
    assert "fleet undo" not in said
    assert "fleet records" in said


def test_what_is_no_transcript_is_said_to_be_none_and_leaves_no_record(w):
    (w.folder / "page.txt").write_text("root:x:0:0:root:/root:/bin/bash\n")
    for more in ((), ("--dry-run",)):
        told = w.run("w", "reflect", "--transcript", str(w.folder / "page.txt"), *more, expect=1).stderr
        assert "page.txt is no transcript of a session: 1 of its lines could not be read. Nothing was done" in told
    assert "no session was reflected on yet" in w.run("w", "records").stdout


def test_a_reflector_that_nobody_agreed_to_is_said_to_be_passed_over_and_what_to_do(w):
    w.run("w", "config", "set", "reflect.command", '["/bin/false"]')
    w.run("w", "config", "set", "reflect.reflector", "command")
    taught(w.folder / "session.jsonl", "s1")
    done = w.run("w", "reflect", "--transcript", str(w.folder / "session.jsonl"))
    assert "saved " in done.stdout
    assert "nobody on this machine agreed" in done.stderr
    for said in (done.stdout + done.stderr, w.run("w", "records", "show", "1").stdout):
        assert said.count("nobody on this machine agreed to command") == 1
        assert said.count("`fleet reflect --agree` does") == 1


def test_a_session_that_the_rules_read_is_read_by_the_reflector_that_somebody_agreed_to_since(w):
    answer = '{"outcome": "success", "what_worked": "a quick look"}'
    w.run("w", "config", "set", "reflect.command", json.dumps(["printf", "%s", answer]))
    w.run("w", "config", "set", "reflect.reflector", "command")
    taught(w.folder / "session.jsonl", "s1")
    said = ("reflect", "--transcript", str(w.folder / "session.jsonl"))
    w.run("w", *said)
    assert "reflected on already" in w.run("w", *said).stdout
    w.run("w", "reflect", "--agree")
    assert "reflected on already" not in w.run("w", *said).stdout
    assert "reflected on already" in w.run("w", *said).stdout
    assert [each["reflector"] for each in json.loads(w.run("w", "records", "--json").stdout)["records"]] == [
        "command",
        "rules",
    ]


def test_the_last_session_is_known_also_when_it_was_reflected_on(w):
    taught(w.folder / "session.jsonl")
    w.run("w", "reflect", "--transcript", str(w.folder / "session.jsonl"))
    for said in (["reflect", "--last"], ["done"]):
        assert "this session was reflected on already, as reflect-" in w.run("w", *said).stdout


def test_the_end_of_a_session_without_a_transcript_is_one_document_too(w):
    w.run("w", "observe", "fix", "the parser", "--session", "s1")
    done = w.run("w", "done", "--session", "s1", "--json")
    assert json.loads(done.stdout) == []
    assert "a block was added" in done.stderr


def test_a_refusal_that_a_record_was_drawn_from_is_told_with_its_words(w):
    refused = "The user doesn't want to proceed with this tool use. STOP what you are doing"
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "npm install"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": refused}
    rows = [
        {"message": {"role": "assistant", "content": [call]}},
        {"message": {"role": "user", "content": [result]}},
        {"message": {"role": "user", "content": "we install with pnpm in here"}},
    ]
    transcript = w.folder / "session.jsonl"
    transcript.write_text("".join(json.dumps(row) + "\n" for row in rows))
    complete(w, transcript=str(transcript), drawn=(2,), raw="{}")
    [drawn] = json.loads(w.run("w", "records", "show", "1", "--json").stdout)["drawn_lines"]
    assert drawn == {"line": 2, "text": "refused Bash npm install: we install with pnpm in here"}


# --- who is told ----------------------------------------------------------------------------------------------------


def test_a_program_finds_each_reflection_in_the_log_of_events(w):
    complete(w, usd=0.5, outcome="partial", duration_s=1.5, raw="{}", writers=(Written(name="notes", count=2),))
    [event] = events(w)
    assert event["event"] == "reflection.complete"
    assert (event["session"], event["usd"], event["outcome"], event["duration_s"]) == ("s1", 0.5, "partial", 1.5)
    assert event["saved"] == 2
    assert event["writers"][0]["name"] == "notes"


def test_a_webhook_hears_nothing_until_somebody_here_agreed_to_its_very_address(w, hook):
    url, posted = hook
    configure(w, webhook=f"{url}/a")
    assert complete(w) == []
    assert posted == []
    assert "gets no messages" in w.run("w", "init").stdout
    assert "messages go to 127.0.0.1" in w.run("w", "init", "--yes").stdout
    assert complete(w, outcome="success", writers=(Written(name="notes", count=2),)) == []
    [one] = posted
    assert (one["path"], one["type"]) == ("/a", "application/json")
    assert "saved 2 notes" in one["text"]
    configure(w, webhook=f"{url}/b")
    complete(w)
    assert len(posted) == 1, "another address is another question"


def test_a_webhook_that_leads_elsewhere_or_answers_nothing_is_a_warning_and_the_record_stands(w, hook):
    url, posted = hook
    configure(w, webhook=f"{url}/moved")
    w.run("w", "init", "--yes")
    [told] = complete(w)
    assert "webhook was not told" in told
    assert [each["path"] for each in posted] == ["/moved"]
    configure(w, webhook="http://127.0.0.1:9/a")
    w.run("w", "init", "--yes")
    assert "webhook was not told" in complete(w)[0]
    assert len(json.loads(w.run("w", "records", "--json").stdout)["records"]) == 2


def test_nothing_goes_over_a_network_in_clear_text(w):
    configure(w, webhook="http://hooks.example.org/a")
    assert "no address" in w.run("w", "init", "--yes").stderr
    assert complete(w) == []


def test_the_desktop_is_told_where_it_can_be(w, monkeypatch):
    configure(w, desktop=True)
    monkeypatch.setenv("PATH", str(w.folder / "nothing"))
    assert complete(w) == []
    program: Path = w.folder / "bin/notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {w.folder}/told\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(program.parent), "/usr/bin", "/bin"]))
    complete(w, why="<b>nothing</b> of use")
    told = (w.folder / "told").read_text()
    assert "velma" in told
    assert "&lt;b&gt;nothing" in told


def test_whoever_listens_hears_at_a_sync_that_more_waits_and_hears_it_once(w):
    w.correct("w", "Never use tabs in a Makefile")
    w.correct("w", "Always use tabs in a Makefile")
    w.run("w", "sync")
    w.run("w", "sync")
    [event] = events(w)
    assert (event["event"], event["number"], event["kinds"]) == ("inbox.waiting", 1, {"contradiction": 1})


def test_an_answer_is_kept_and_shown_with_all_that_it_says(w):
    """As one text, a value would begin behind a name in one field and end in the next one."""
    program, transcript = w.folder / "reflector.sh", taught(w.folder / "s.jsonl").path
    lesson = {"text": "set DEPLOY_TOKEN=tulip", "right": "Never commit it", "quote": "never force-push"}
    answer = json.dumps({"outcome": "success", "lessons": [lesson]}, separators=(",", ":"))
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
    program.chmod(0o755)
    (w.folder / "w/fleet.toml").write_text(f'[reflect]\nreflector = "command"\ncommand = ["{program}"]\n')
    w.run("w", "reflect", "--agree")
    w.run("w", "reflect", "--transcript", str(transcript))
    assert json.loads(w.run("w", "records", "show", "1", "--json").stdout)["raw"].strip() == answer
    assert answer in w.run("w", "records", "show", "1").stdout
