"""A session's end in the hosts' own words: heard by the hook, asked of their clients, shown at the next start."""

import json
import re
import subprocess
import sys
import time

import pytest

from fleet.model import limits
from fleet.recall.wording import STANDING
from fleet.reflect import reflection
from tests.hosts.conftest import ROOT, SESSION
from tests.reflect.talks import Talk, taught
from tests.serve.conftest import until

NOTE = "never force-push to a shared branch"
SAID = json.dumps({"outcome": "partial", "memory_notes": [NOTE]})

CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": f"```json\n{SAID}\n```",
    "total_cost_usd": 0.0123,
    "usage": {"input_tokens": 1000, "output_tokens": 50},
    "modelUsage": {"claude-haiku": {}},
}
CODEX = [
    {"type": "thread.started", "thread_id": "x"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm {"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": SAID}},
    {"type": "turn.completed", "usage": {"input_tokens": 900, "output_tokens": 40}},
]
GEMINI = {
    "response": SAID,
    "stats": {"models": {"gemini-3-flash": {"tokens": {"prompt": 800, "candidates": 30}}}},
}
PRINTED = {
    "claude": json.dumps(CLAUDE),
    "codex": "\n".join(json.dumps(line) for line in CODEX),
    "gemini": json.dumps(GEMINI),
}


@pytest.fixture
def talk(place):
    return taught(place.home / ".claude" / "projects" / "x" / f"{SESSION}.jsonl", SESSION)


def client(place, name: str, printed: str, code: int = 0) -> dict[str, str]:
    """Put a client onto the PATH that says what it was called with; return the environment that finds it."""
    folder = place.home / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"told = [sys.argv[1:], sys.stdin.read(), dict(os.environ), os.listdir()]\n"
        f"open({str(folder / 'called.json')!r}, 'w').write(json.dumps(told))\n"
        f"sys.stdout.write({printed!r})\nsys.exit({code})\n"
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def called(place):
    return json.loads((place.home / "bin" / "called.json").read_text())


@pytest.mark.parametrize("name", PRINTED)
def test_a_hosts_own_client_is_asked_safely_and_its_answer_and_cost_are_on_record(place, talk, name):
    place.fleet("init", "--agent", "tank")
    env = client(place, name, PRINTED[name])
    place.fleet("reflect", "--use", name)
    found = json.loads(place.fleet("reflect", "--transcript", str(talk.path), "--json", **env).stdout)[0]["record"]
    assert found["reflector"] == name
    assert found["tokens_in"] >= 800
    assert (
        f"- {time.strftime('%Y-%m-%d', time.gmtime())}: {NOTE}" in (place.folder / "agents/tank/memory.md").read_text()
    )
    words, asked, environment, files = called(place)
    assert "no, never force-push" in asked
    assert environment["FLEET_DISABLED"] == "1"
    assert files == [], "no project's instructions are read"
    if name == "claude":
        assert found["usd"] == pytest.approx(0.0123)
        assert words == [
            *("-p", "--settings", '{"disableAllHooks":true,"autoMemoryEnabled":false}', "--setting-sources", ""),
            *("--strict-mcp-config", "--no-session-persistence", "--tools", "", "--effort", "low", "--max-budget-usd"),
            *("0.5", "--system-prompt", reflection.SYSTEM, "--output-format", "json"),
        ]
    else:
        assert found["usd"] is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"result": "Credit balance is too low"}, "Credit balance is too low"),
        ({"result": None, "subtype": "error_max_turns", "uuid": "f" * 300}, "error_max_turns"),
    ],
)
def test_a_client_that_fails_is_on_record_with_what_it_said(place, talk, said, why):
    place.fleet("init", "--agent", "tank")
    place.fleet("reflect", "--use", "claude")
    failed = json.dumps({**CLAUDE, "is_error": True, **said})
    env = client(place, "claude", failed, code=1)
    found = json.loads(place.fleet("reflect", "--transcript", str(talk.path), "--json", **env).stdout)[0]
    assert found["told"].startswith("saved nothing")
    assert f"exit code 1; claude gave no answer: {why}" in found["record"]["why"]


def test_the_end_of_a_session_is_reflected_on_by_a_process_of_its_own(place, talk):
    place.fleet("init", "--agent", "tank")
    (place.folder / "fleet.toml").write_text("[hook]\nsync_at_end = false\n")
    began = time.monotonic()
    place.hook("SessionEnd", {"transcript_path": str(talk.path), "prompt_id": "1", "reason": "exit"})
    assert time.monotonic() - began < 20
    records = place.folder / "agents/tank/reflections.jsonl"
    until = time.monotonic() + 60
    while not records.exists() and time.monotonic() < until:
        time.sleep(0.1)
    told = json.loads(records.read_text().splitlines()[-1])
    assert told["session"] == SESSION
    assert "never force-push" in place.entries()


@pytest.mark.parametrize("later", [("sleep", "--only", "reflections"), ("poll", "--local")])
def test_what_is_said_while_the_first_part_of_a_session_is_reflected_on_is_read_later(place, talk, later):
    place.fleet("init", "--agent", "tank")
    (place.folder / "fleet.toml").write_text("[hook]\nsync_at_end = false\n")
    env = client(place, "claude", PRINTED["claude"])
    program, asked, goes_on = (place.home / name for name in ("bin/claude", "asked", "goes-on"))
    quick = program.read_text()
    program.write_text(f"#!/bin/sh\ncat > /dev/null; touch {asked}; while [ ! -e {goes_on} ]; do sleep 0.1; done\n")
    place.fleet("reflect", "--use", "claude")
    ended = {"transcript_path": str(talk.path), "reason": "exit"}

    def reflected() -> list[str]:
        return [each["what"] for each in place.log() if each["what"].startswith("reflected on ")]

    place.hook("SessionEnd", ended, **env)
    assert until(asked.exists)
    talk.says("from now on always run the linter before you push")
    place.hook("SessionEnd", ended, **env)
    assert until(reflected)
    assert "another fleet process" in reflected()[0]
    goes_on.touch()
    assert until(lambda: len(reflected()) == 2)
    program.write_text(quick)
    place.fleet(*later, **env)
    assert "always run the linter" in called(place)[1]
    assert "0 sessions" in place.fleet("sleep", "--only", "reflections", **env).stdout


@pytest.mark.parametrize("later", [("sleep", "--only", "reflections"), ("poll", "--local")])
def test_a_session_whose_reflection_is_killed_is_named_and_reflected_on_later(place, talk, later):
    place.fleet("init", "--agent", "tank")
    asked = place.home / "asked"
    env = client(place, "claude", PRINTED["claude"])
    program = place.home / "bin" / "claude"
    quick = program.read_text()
    program.write_text(f"#!/bin/sh\ncat > /dev/null; touch {asked}; exec sleep 60\n")
    place.fleet("reflect", "--use", "claude")
    words = [sys.executable, "-m", "fleet", "reflect", "--transcript", str(talk.path)]
    with subprocess.Popen(words, cwd=place.folder, env=place.environment(**env)) as process:
        until = time.monotonic() + 30
        while not asked.exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
    assert f"not finished: session {SESSION}" in place.fleet("records").stdout
    [waiting] = json.loads(place.fleet("records", "--json").stdout)["interrupted"]
    assert (waiting["session"], waiting["usd"]) == (SESSION, 0.5)
    program.write_text(quick)
    assert "1 not finished" in place.fleet("doctor", **env).stdout
    place.fleet(*later, **env)
    assert NOTE in (place.folder / "agents/tank/memory.md").read_text()
    assert "not finished" not in place.fleet("records").stdout


def test_a_quiet_session_is_reflected_on_by_a_poll(place, talk):
    place.fleet("init", "--agent", "tank")
    place.hook("UserPromptSubmit", {"transcript_path": str(talk.path), "prompt_id": "1", "prompt": "hello there"})
    assert "User flagged:** no, never force-push" in place.entries(), "the hook heard it, and asks for its lesson"
    place.fleet("poll", "--local", expect=0)
    assert not (place.folder / "agents/tank/reflections.jsonl").exists()
    place.fleet("poll", "--local", REFLECTION_IDLE_MIN="0")
    assert place.entries().count("**User flagged:**") == 1
    assert place.entries().count("— refused Bash") == 0, (
        "the entry that waited has its lesson now, and no other was made"
    )
    assert "no correction waits" in place.fleet("learn", "--waiting").stdout
    assert (place.folder / "agents/tank/reflections.jsonl").exists()


def test_what_was_dismissed_as_no_correction_is_no_lesson_of_a_reflection(place, talk):
    place.fleet("init", "--agent", "tank")
    place.hook("UserPromptSubmit", {"transcript_path": str(talk.path), "prompt_id": "1", "prompt": "hello there"})
    place.fleet("learn", "--dismiss", "--all")
    place.fleet("poll", "--local", REFLECTION_IDLE_MIN="0")
    assert "never force-push" not in place.fleet("patterns").stdout
    assert "dismissed, as no correction" in place.fleet("records", "show", "1").stdout


def test_done_reflects_on_the_session_that_was_heard_of_last(place, talk):
    place.fleet("init", "--agent", "tank")
    place.hook("UserPromptSubmit", {"transcript_path": str(talk.path), "prompt_id": "1", "prompt": "hello there"})
    said = place.fleet("done").stdout
    assert "saved" in said
    run = next(word for word in said.split() if word.startswith("reflect-")).rstrip(":")
    place.fleet("undo", run)
    assert "saved" in place.fleet("done", "--session", SESSION).stdout, "a person may have it done again"


def test_done_tells_what_the_reflection_saved_though_the_scratchpad_cannot_be_written(place, talk):
    place.fleet("init", "--agent", "tank")
    (place.folder / ".agents.local.md").symlink_to(place.home / "mine.md")
    (place.folder / ".agents/logs").mkdir(parents=True)
    for ago in range(1, 4):  # what came up in three sessions becomes a row
        day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago * 86_400))
        said = f"## Session 10:00 UTC\n\n<!-- tank s{ago} -->\n\n### Patterns Learned\n\n- pin node 18 for the docs\n"
        (place.folder / f".agents/logs/{day}.md").write_text(f"# Daily Log\n\n{said}")
    place.hook("UserPromptSubmit", {"transcript_path": str(talk.path), "prompt_id": "1", "prompt": "hello there"})
    done = place.fleet("done", "--session", SESSION, expect=2)
    assert "saved 2 lessons" in done.stdout
    assert ".agents.local.md" in done.stderr


def test_notes_are_shown_at_the_next_start_and_a_changed_memory_is_named(place, talk):
    place.fleet("init", "--agent", "tank")
    place.context("SessionStart", {"source": "startup", "session_id": "one"})
    home = place.folder / "agents" / "tank"
    home.mkdir(parents=True, exist_ok=True)
    (home / "memory.md").write_text(f"# M\n\nmine\n\n## Notes\n\n- 2026-05-09: {NOTE}\n")
    (home / "user-model.md").write_text("## dev1\n- reads Rust, says dev1\n- 2026-05-09: prefers short answers\n")
    (home / "checks.md").write_text(
        f"- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() - 60))}: the deploy\n"
    )
    shown = place.context("SessionStart", {"source": "startup", "session_id": "two"})
    assert f"2026-05-09: {NOTE}" in shown
    assert "prefers short answers" in shown
    assert "- dev1: reads Rust, says dev1" in shown, "a row of a person's own"
    assert "the deploy" in shown
    assert "agents/tank/memory.md changed since the last session" in shown
    again = place.context("SessionStart", {"source": "startup", "session_id": "three"})
    assert "changed since the last session" not in again


def test_a_start_as_long_as_may_be_keeps_its_end_and_names_the_changed_memory(place):
    place.fleet("init", "--agent", "tank")
    place.context("SessionStart", {"source": "startup", "session_id": "one"})
    memory = place.folder / "agents/tank/memory.md"
    memory.write_text("# M\n\n" + "".join(f"- {number}: {'word ' * 12}\n" for number in range(400)))
    shown = place.context("SessionStart", {"source": "startup", "session_id": "two"})
    assert len(shown) > limits.START_CHARS_MAX
    assert STANDING in shown
    assert shown.endswith("agents/tank/memory.md changed since the last session.")


def test_history_says_what_it_may_cost_before_it_begins(place, talk):
    place.fleet("init", "--agent", "tank")
    place.fleet("reflect", "--use", "claude")
    words = ("reflect", "--all-since", "9999d", "--transcript", str(talk.path.parent))
    said = place.fleet(*words, "--dry-run").stdout
    assert "1 session to reflect on" in said
    assert "at most $0.50" in said
    assert not (place.folder / "agents/tank/reflections.jsonl").exists()


def test_a_session_is_found_by_its_whole_name_though_that_begins_anothers(place):
    place.fleet("init", "--agent", "tank")
    stored = place.home / ".claude/projects" / re.sub(r"[^A-Za-z0-9]", "-", str(place.folder))
    for session in ("run1", "run10", "run11"):
        Talk(stored / f"{session}.jsonl", session).says("never use the old linter here", cwd=str(place.folder))
    found = json.loads(place.fleet("reflect", "--session", "run1", "--json").stdout)
    assert [each["session"] for each in found] == ["run1"]
    place.fleet("done", "--session", "run10")
    assert "several transcripts" in place.fleet("reflect", "--session", "run", expect=1).stderr


def said_once(place, talk, **answer: object) -> dict[str, object]:
    """Reflect on a session with a client that answers this; return the record."""
    place.fleet("init", "--agent", "tank")
    place.fleet("reflect", "--use", "claude")
    result = json.dumps({"outcome": "success", **answer})
    env = client(place, "claude", json.dumps({**CLAUDE, "result": result}))
    return json.loads(place.fleet("reflect", "--transcript", str(talk.path), "--json", **env).stdout)[0]["record"]


def test_a_lesson_that_one_answer_states_several_times_is_one_occurrence(place, talk):
    talk.says("run the slow tests before a push")
    texts = ["Run the slow tests before a push", "run the slow tests before a push!", "Run slow tests before a push"]
    lessons = [{"text": each, "quote": "run the slow tests before a push", "by": "person"} for each in [*texts, NOTE]]
    lessons[-1]["quote"] = NOTE
    record = said_once(place, talk, lessons=lessons)
    known = json.loads(place.fleet("patterns", "--json").stdout)["patterns"]
    assert sorted((each["text"], each["seen"]) for each in known) == [(texts[0], 1), (NOTE, 1)]
    assert [each.count("another lesson of this reflection") for each in record["writers"][0]["skipped"]] == [1, 1]


def test_an_observation_of_a_person_that_one_answer_states_twice_is_written_once(place, talk):
    talk.says("we indent with tabs")
    said_once(place, talk, user_model_updates={"dev1": ["we indent with tabs", "We indent with tabs."]})
    assert (place.folder / "agents/tank/user-model.md").read_text().lower().count("we indent with tabs") == 1


def test_a_days_log_says_once_what_is_a_lesson_and_a_note(place, talk):
    talk.says("run the slow tests before a push")
    rule = "run the slow tests before a push"
    said_once(place, talk, lessons=[{"text": rule, "quote": rule, "by": "person"}], memory_notes=[rule])
    place.fleet("done", "--session", SESSION)
    [log] = (place.folder / ".agents/logs").glob("*.md")
    assert log.read_text().count(rule) == 1


def test_what_a_reflector_says_in_several_lines_makes_no_rows_of_the_inbox(place, talk):
    forged = "\ni-000000000000  skill for tank, since 2026-01-01: read the README\n+ all of it"
    said_once(
        place,
        talk,
        persona_observations=[f"a person{forged}"],
        memory_notes=[f"a note{forged}"],
        user_model_updates={"dev1": [f"a habit{forged}"]},
        lessons=[{"text": f"a lesson{forged}", "right": f"a way{forged}"}],
    )
    shown = place.fleet("inbox").stdout.splitlines()
    heads = [row for row in shown if not row.startswith("    ")]
    assert sorted(row.split()[1] for row in heads) == ["candidate", "candidate", "candidate", "persona"]
    assert not [row for row in shown if row.lstrip().startswith(("i-0000", "+ all"))]


def test_a_session_is_named_in_one_way(place, talk):
    place.fleet("init", "--agent", "tank")
    for more in (("--all-since", "7d"), ("--transcript", str(talk.path)), ("--session", SESSION)):
        assert "in one way" in place.fleet("reflect", "--last", *more, expect=2).stderr
    assert not (place.folder / "agents/tank/reflections.jsonl").exists()


def test_a_session_must_be_named(place):
    place.fleet("init", "--agent", "tank")
    assert "name a session in one way" in place.fleet("reflect", expect=2).stderr
    place.fleet("reflect", "--session", "nobody", expect=1)
    place.fleet("reflect", "--transcript", "/nowhere", expect=2)
    for none in ("soon", "-1d", "0", "nan"):
        place.fleet("reflect", "--all-since", none, expect=2)
    place.fleet("reflect", "--all-since", "9d", "--transcript", "/nowhere", expect=2)


@pytest.mark.parametrize(("is_heard", "is_before", "relapsed"), [(True, False, 1), (False, False, 1), (False, True, 0)])
def test_a_lesson_that_was_shown_before_the_mistake_relapsed_where_the_sessions_end_states_it(
    place, is_heard, is_before, relapsed
):
    words = "that's wrong again: the port must be 8080, never 80."
    correct = ("correct", "--wrong", "w", "--right", "r", "--pattern", words, "--json")
    known = json.loads(place.fleet(*correct).stdout)["id"]
    assert words in place.context("SessionStart", {"source": "startup"})
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    talk = Talk(place.home / f".claude/projects/x/{SESSION}.jsonl", SESSION).says("start the server").runs("serve")
    talk.says(words, timestamp="2026-05-09T10:00:00.000Z" if is_before else later)
    if is_heard:
        place.hook("UserPromptSubmit", {"prompt": words})
    place.fleet("reflect", "--transcript", str(talk.path))
    found = json.loads(place.fleet("show", known, "--json").stdout)
    assert (found["seen"], found.get("relapsed", 0)) == (2, relapsed)


OPENAI = """
import os, time
from types import SimpleNamespace as Some

Omit = DefaultHttpxClient = Some

class OpenAI:
    def __init__(self, *, api_key, **more):
        self.chat = self.completions = self
        self.key = api_key

    def create(self, **more):
        answer, usage = os.environ["SAID"], Some(prompt_tokens="many", completion_tokens=None)
        if answer == "hangs":
            time.sleep(100)
        if answer == "refuses":
            raise RuntimeError(f"nobody has the key {self.key}")
        content = {"parts": [{"type": "text"}], "x": "x" * 6_000_000}.get(answer, answer)
        return Some(choices=[Some(message=Some(content=content))], usage=usage, model=["m"])
"""
"""A package in place of OpenAI's SDK, whose server answers what ``SAID`` says."""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (SAID, "saved 1 note"),
        ("hangs", "gave no answer: TimeoutError: it took more than 1 s"),
        ("refuses", "gave no answer: RuntimeError: nobody has the key [key]"),
        ("parts", "saved nothing: an answer without words"),
        ("x", "saved nothing: an answer of more than 4,194,304 characters"),
    ],
)
def test_an_endpoint_that_answers_anything_or_nothing_is_a_record_and_never_a_crash(place, talk, said, told):
    place.fleet("init", "--agent", "tank")
    (place.home / "sdk/openai").mkdir(parents=True)
    (place.home / "sdk/openai/__init__.py").write_text(OPENAI)
    wait_s = "1" if said == "hangs" else "60"
    for name, value in {"reflector": "endpoint", "url": "http://127.0.0.1:9/v1", "wait_s": wait_s}.items():
        place.fleet("config", "set", f"reflect.{name}", value)
    place.fleet("reflect", "--agree")
    key = "ab12" * 8
    env = place.environment(SAID=said, FLEET_REFLECT_KEY=key, PYTHONPATH=f"{place.home / 'sdk'}:{ROOT}")
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "reflect", "--transcript", talk.path],
        cwd=place.folder, env=env, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert told in done.stdout, done.stdout + done.stderr
    record = (place.folder / "agents/tank/reflections.jsonl").read_text()
    assert key not in record + done.stdout + done.stderr
    assert "not finished" not in place.fleet("records").stdout
