"""``fleet import --transcripts``: what past sessions propose, and that nothing is logged which nobody accepted."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from fleet.app import moving

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)


@pytest.fixture
def velma(stage):
    return stage.join("velma")


def lines(cwd, days_ago=1, words="never force-push here, open a pull request", command="git push --force"):
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - days_ago * 86_400))
    told = [
        ("assistant", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": command}}),
        ("user", {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": REFUSED + words}),
        ("user", {"type": "text", "text": "That's wrong, the port is always 8080 in this project"}),
        ("user", {"type": "text", "text": "Add a parser for the header"}),
    ]
    rows = [{"type": r, "cwd": str(cwd), "timestamp": at, "message": {"role": r, "content": [b]}} for r, b in told]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def kept(stage, velma, monkeypatch, tmp_path):
    """The client's own folder, with one session of this project and one of another."""
    home = tmp_path / "claude"
    root = (stage.folder / velma).resolve()
    folder = home / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(root))
    folder.mkdir(parents=True)
    (folder / "s-1.jsonl").write_text(lines(root))
    other = home / "projects" / f"{folder.name}-2"
    other.mkdir()
    (other / "s-9.jsonl").write_text(lines(f"{root}-2", words="always use tabs in the other one"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home))
    return folder


def proposed(stage, where, *words, **more):
    return json.loads(stage.run(where, "import", "--transcripts", "--json", *words, **more).stdout)


def test_past_sessions_of_this_project_propose_and_nothing_is_logged_unasked(stage, velma, kept):
    found = proposed(stage, velma)
    assert found["sessions"] == 1
    assert [(each["kind"], each["text"]) for each in found["proposals"]] == [
        ("rejection", "never force-push here, open a pull request"),
        ("correction", "That's wrong, the port is always 8080 in this project"),
    ]
    assert found["proposals"][0]["wrong"] == "refused Bash git push --force"
    assert "never force-push" in stage.run(velma, "import", "--transcripts").stdout
    assert stage.patterns(velma)["patterns"] == []


LAST, ACCEPTED = ("reflect", "--last"), ("import", "--transcripts", "--accept", "all")


@pytest.mark.parametrize("words", [(LAST, LAST), (ACCEPTED, LAST), (LAST, ACCEPTED), (ACCEPTED, ACCEPTED)])
def test_a_session_that_two_agents_of_a_folder_read_counts_its_lessons_once(stage, velma, kept, words):
    stage.run(velma, "init", "--agent", "tank")
    for agent, each in zip(("velma", "tank"), words, strict=True):
        stage.run(velma, *each, FLEET_AGENT=agent)
    assert set(stage.seen(velma).values()) == {1}


@pytest.mark.parametrize("words", [LAST, ACCEPTED])
def test_a_session_that_another_process_reads_meanwhile_counts_its_lessons_once(stage, velma, kept, monkeypatch, words):
    accept = moving.accept

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(moving, "accept", accept)
        stage.run(velma, *words)
        return accept(*given)

    monkeypatch.setattr(moving, "accept", meanwhile)
    stage.run(velma, *ACCEPTED)
    assert set(stage.seen(velma).values()) == {1}


@pytest.mark.parametrize("words", [("reflect", "--last"), ("done",), ("reflect", "--session", "s-9")])
def test_a_neighbours_session_is_never_taken_for_one_of_this_project(stage, velma, kept, words):
    (kept / "s-1.jsonl").unlink()
    assert "here" in stage.run(velma, *words, expect=1).stderr
    assert stage.patterns(velma)["patterns"] == []


@pytest.mark.parametrize("where", ["api/src", ".claude/worktrees/fix", "../velma-fix", "../fix"])
def test_a_session_below_the_root_or_in_a_worktree_is_one_of_this_project(stage, velma, kept, where):
    (kept / "s-1.jsonl").unlink()
    if "fix" in where:
        stage.git("init", "-q", where=velma)
        who = ("-c", "user.name=dev", "-c", "user.email=dev@example.org")
        stage.git(*who, "commit", "--allow-empty", "-qm", "first", where=velma)
        stage.git("worktree", "add", "-q", where, where=velma)
    cwd = (stage.folder / velma / where).resolve()
    folder = kept.parent / re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
    folder.mkdir()
    (folder / "s-3.jsonl").write_text(lines(cwd))
    assert proposed(stage, velma)["sessions"] == 1
    assert "saved" in stage.run(velma, "reflect", "--last").stdout


def test_where_no_session_is_kept_the_answer_sends_nobody_further_back(stage, velma, kept):
    (kept / "s-1.jsonl").unlink()
    why = stage.run(velma, "import", "--transcripts").stderr
    assert "no session of this project was found on this machine: `fleet import --transcripts PATH`" in why
    assert "--days" not in why


def test_a_proposal_that_follows_no_call_ends_with_its_day(stage, velma, kept):
    session = kept / "s-1.jsonl"
    session.write_text("".join(session.read_text().splitlines(keepends=True)[2:]))
    assert re.search(r"t-[0-9a-f]{8}, [0-9-]{10}\n", stage.run(velma, "import", "--transcripts").stdout)


def test_what_is_accepted_is_logged_once_with_its_session_and_proposed_no_more(stage, velma, kept):
    first = proposed(stage, velma)["proposals"][0]
    assert proposed(stage, velma, "--accept", "1", "--dry-run")["logged"] == []
    (logged,) = proposed(stage, velma, "--accept", first["id"])["logged"]
    assert (logged["proposal"], logged["seen"]) == (first["id"], 1)
    assert [each["kind"] for each in proposed(stage, velma)["proposals"]] == ["correction"]
    assert len(proposed(stage, velma, "--accept", "all")["logged"]) == 1
    nothing = {"sessions": 1, "older": 0, "proposals": [], "known": 2, "retired": [], "logged": []}
    assert proposed(stage, velma, "--accept", "all") == nothing
    assert sorted(each["text"] for each in stage.patterns(velma)["patterns"])[1] == first["text"]
    entries = (stage.folder / velma / "agents" / velma / "corrections.md").read_text()
    assert "session=s-1" in entries


@pytest.mark.parametrize(
    ("words", "trigger"),
    [
        ("never do that here, ask first", "Bash:git push *"),
        ("never run `npm publish` here, ask first", "Bash:npm publish*, Bash:git push *"),
    ],
)
def test_a_lesson_about_a_refused_command_is_shown_before_it_as_one_logged_live_is(stage, velma, kept, words, trigger):
    (kept / "s-1.jsonl").write_text(lines((stage.folder / velma).resolve(), words=words))
    (refusal,) = (each["id"] for each in proposed(stage, velma)["proposals"] if each["kind"] == "rejection")
    proposed(stage, velma, "--accept", refusal)
    (lesson,) = stage.patterns(velma)["patterns"]
    assert (lesson["trigger"], lesson["trigger_derived"]) == (trigger, False)


def test_a_number_of_a_table_of_before_names_no_other_proposal(stage, velma, kept):
    first, second = ((each["number"], each["id"]) for each in proposed(stage, velma)["proposals"])
    for _ in range(2):
        proposed(stage, velma, "--accept", "1")
    left = proposed(stage, velma)["proposals"]
    assert [(each["number"], each["id"]) for each in left] == [second]
    assert first[0] == 1
    assert (
        "nothing was logged: what was named is known already"
        in stage.run(velma, "import", "--transcripts", "--accept", "1").stderr
    )
    (logged,) = proposed(stage, velma, "--accept", f"2,{first[1]}")["logged"]
    assert logged["proposal"] == second[1]


def test_one_undo_takes_back_all_that_one_command_accepted(stage, velma, kept):
    proposed(stage, velma, "--accept", "all")
    assert len(stage.patterns(velma)["patterns"]) == 2
    assert "logged 2 proposals of past sessions" in stage.run(velma, "undo").stdout
    assert stage.patterns(velma)["patterns"] == []
    again = stage.run(velma, "import", "--transcripts").stderr
    assert "2 lessons of these were imported before and retired since, and stay out: `fleet restore p-" in again
    assert len(proposed(stage, velma)["retired"]) == 2
    stage.run(velma, "undo", json.loads(stage.run(velma, "undo", "--list", "--json").stdout)["runs"][0]["id"])
    assert [each["seen"] for each in stage.patterns(velma)["patterns"]] == [1, 1]


def test_what_is_older_than_the_days_is_left_out_and_a_path_may_be_named(stage, velma, kept, tmp_path):
    old = tmp_path / "old.jsonl"
    old.write_text(lines("/elsewhere", days_ago=40))
    assert proposed(stage, velma, str(old))["sessions"] == 0
    assert proposed(stage, velma, str(old), "--days", "50")["sessions"] == 1
    assert proposed(stage, velma, str(old))["older"] == 1
    why = stage.run(velma, "import", "--transcripts", str(old)).stderr
    assert "1 session has nothing of the last 30 days: `--days` looks further back" in why
    assert proposed(stage, velma, str(kept))["sessions"] == 1


def test_a_secret_in_a_past_session_is_taken_out(stage, velma, kept):
    secret = "ghp_" + "a1B2" * 9
    (kept / "s-2.jsonl").write_text(
        lines((stage.folder / velma).resolve(), words=f"never send {secret} to anybody else")
    )
    found = stage.run(velma, "import", "--transcripts", "--json", "--accept", "all").stdout
    assert "[REDACTED:" in found
    assert secret not in found + (stage.folder / velma / "agents" / velma / "corrections.md").read_text()


def test_damaged_transcripts_cost_themselves_alone(stage, velma, kept):
    (kept / "a.jsonl").write_bytes(b"\xff\xfe\x00{{{\n" * 100)
    (kept / "b.jsonl").mkdir()
    (kept / "c.jsonl").symlink_to(kept / "c.jsonl")
    (kept / "d.jsonl").write_text("")
    assert len(proposed(stage, velma)["proposals"]) == 2


@pytest.mark.parametrize(
    "words", [(), ("--accept", "1"), ("--transcripts", "--accept", "7"), ("--transcripts", "--accept", "1,x")]
)
def test_what_names_nothing_is_refused_and_nothing_is_logged(stage, velma, kept, words):
    assert re.search(r"nothing was (logged|changed)", stage.run(velma, "import", *words, expect=2).stderr.lower())
    assert stage.patterns(velma)["patterns"] == []


FEEDBACK = "---\nname: tabs\ndescription: Use tabs in the Makefile\nmetadata:\n  type: feedback\n---\n\nSaid twice.\n"


def test_feedback_of_the_hosts_own_memory_is_proposed_only_where_somebody_wants_it(stage, velma, kept):
    memory = kept / "memory"
    memory.mkdir()
    (memory / "tabs.md").write_text(FEEDBACK)
    (memory / "who.md").write_text(FEEDBACK.replace("feedback", "user").replace("Use tabs", "Lives in Bern"))
    (memory / "MEMORY.md").write_text("- [tabs](tabs.md)\n")
    (memory / "bad.md").write_bytes(b"---\n\xff")
    (memory / "link.md").symlink_to(memory / "link.md")
    assert [each["kind"] for each in proposed(stage, velma)["proposals"]] == ["rejection", "correction"]
    config = stage.folder / velma / "fleet.toml"
    config.write_text(config.read_text().replace("# auto_memory = false", "auto_memory = true"))
    first = proposed(stage, velma)["proposals"][0]
    assert (first["kind"], first["text"]) == ("memory", "Use tabs in the Makefile")
    (kept.with_name(f"{kept.name}-2") / "memory").mkdir()
    (kept.with_name(f"{kept.name}-2") / "memory/theirs.md").write_text(FEEDBACK.replace("Use tabs", "Use blanks"))
    assert not [each for each in proposed(stage, velma)["proposals"] if "blanks" in each["text"]], "a neighbour's"
    assert stage.patterns(velma)["patterns"] == []
    proposed(stage, velma, "--accept", first["id"])
    assert [each["text"] for each in stage.patterns(velma)["patterns"]] == ["Use tabs in the Makefile"]


RULE = "Always deploy the database migration before the api, and wait for its health check."


@pytest.mark.parametrize(
    ("description", "body", "text", "wrong"),
    [
        ("deploy db first", f"{RULE}\n\n**Why:** the api\nfell over twice.\n", RULE, "the api fell over twice."),
        ("deploy db first", f"# Deploy order\n\n{RULE}\n", RULE, "feedback: deploy order"),
        ("Deploy the database before the api", RULE, "Deploy the database before the api", "feedback: deploy order"),
        ("\u5148\u90e8\u7f72", RULE, "\u5148\u90e8\u7f72", "feedback: deploy order"),
        ("", RULE, RULE, "feedback: deploy order"),
        ("d", "", None, ""),
    ],
)
def test_the_rule_of_a_feedback_file_is_found_and_nothing_is_logged_that_the_table_does_not_show(
    stage, velma, kept, description, body, text, wrong
):
    (kept / "memory").mkdir()
    page = f"---\nname: deploy order\ndescription: {description}\ntype: feedback\n---\n\n{body}"
    (kept / "memory/deploy.md").write_text(page)
    config = stage.folder / velma / "fleet.toml"
    config.write_text(config.read_text().replace("# auto_memory = false", "auto_memory = true"))
    found = [each for each in proposed(stage, velma)["proposals"] if each["kind"] == "memory"]
    assert [each["text"] for each in found] == ([text] if text else [])
    if text:
        proposed(stage, velma, "--accept", found[0]["id"])
        log = (stage.folder / velma / "agents" / velma / "corrections.md").read_text()
        assert f"**What I got wrong:** {wrong}\n**Correct approach:**\n" in log
        assert (RULE in stage.run(velma, "sync", "--dry-run", "--json").stdout) == (text == RULE)


@pytest.mark.parametrize(("answer", "logged"), [("2", 1), ("all", 2), ("", 0)])
def test_who_sits_at_a_terminal_is_asked_which_to_log(stage, velma, kept, answer, logged):
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fleet", "import", "--transcripts"],
            cwd=stage.folder / velma,
            env=stage.environment(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Which to log?" in done.stderr
    assert done.stdout.count("seen 1 time") == len(stage.patterns(velma)["patterns"]) == logged
