"""What a person writes into a log in any other form than the log's own: ``fleet sync`` reads it as any page is read."""

import json

import pytest

PAGE = """
# Corrections

What went wrong here, in short.

## Deploying
- Always pin the base image by its digest
- ❌ `npm install` in CI → ✅ `npm ci` in CI
- [ ] look at the cache
- Added a cache for the packages

### 2026-03-01 The gateway hangs
**Rule:** Send a stream header with every request
**Root cause:** the gateway waits for it

## [TITLE]
**Rule:** [what to do]

## Nothing here
"""
PINNED, CI = "Always pin the base image by its digest", "npm ci` in CI"


@pytest.fixture
def w(stage):
    stage.run("w", "init", "--agent", "velma")
    (stage.folder / "w/agents/velma").mkdir(parents=True, exist_ok=True)
    return stage


def log(stage):
    return stage.folder / "w/agents/velma/corrections.md"


def known(stage) -> dict[str, dict]:
    return {each["text"]: each for each in stage.patterns("w", "--all")["patterns"]}


def status(stage) -> dict:
    return json.loads(stage.run("w", "status", "--json").stdout)


def test_lessons_in_another_form_are_taken_once_and_the_text_stays(w):
    pattern = w.correct("w", "Quote every variable in a shell script")
    before = log(w).read_text()
    log(w).write_text(before + PAGE)
    told = w.run("w", "sync").stderr
    found = known(w)
    assert len(found) == 4, list(found)
    assert {PINNED, "Send a stream header with every request"} <= {*found}
    assert any(CI in each for each in found)
    assert log(w).read_text() == before + PAGE
    assert "took 3 lessons from agents/velma/corrections.md" in told
    for _ in range(2):
        w.run("w", "sync")
    log(w).write_text((before + PAGE).replace("- Always pin the base", "-   Always pin  the base") + "\n" + PAGE)
    w.run("w", "sync")
    assert {text: each["seen"] for text, each in known(w).items()} == dict.fromkeys(found, 1)
    assert found["Quote every variable in a shell script"]["id"] == pattern


def test_what_is_not_taken_is_named_with_line_and_reason_and_templates_and_headings_are_not(w):
    log(w).write_text(PAGE)
    told = w.run("w", "sync").stderr
    left = {each["line"]: each["reason"] for each in status(w)["not_taken"]}
    assert left == {
        4: "it is prose around the lessons",
        9: "it is a task to tick off",
        10: "it tells what was done, as a changelog does",
    }
    assert "corrections.md:9: it is a task to tick off" in told
    assert "line 10: it tells what was done" in w.run("w", "status").stdout
    w.correct("w", "Quote every variable in a shell script")
    assert "not taken" not in w.run("w", "sync").stderr, "it was told, and only an entry of the log's own came since"
    assert status(w)["unfilled"] == 0, "nobody is asked for the lesson of a list"


def test_a_lesson_of_the_log_that_was_retired_stays_so(w):
    log(w).write_text(PAGE)
    w.run("w", "sync")
    w.run("w", "retire", known(w)[PINNED]["id"])
    log(w).write_text(PAGE + "\n- Prefer one large query over many small ones\n")
    w.run("w", "sync")
    assert known(w)[PINNED]["state"] == "retired"
    assert "Prefer one large query over many small ones" in known(w)


def test_an_entry_that_waits_for_its_lesson_still_waits(w):
    log(w).write_text("## 2026-03-01 — Wrong port\n**What I got wrong:** it was 80\n**Correct approach:** use 8080\n")
    w.run("w", "sync")
    assert known(w) == {}
    assert status(w)["unfilled"] == 1
