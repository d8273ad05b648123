"""What a person writes into a log in any other form than the log's own: ``fleet sync`` reads it as any page is read."""

import json
from contextlib import closing

import pytest

from fleet.learn import corrections_md
from fleet.learn.importer import LogPage
from fleet.store.workspace import Workspace

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


def test_the_title_of_a_log_is_no_prose_behind_a_byte_order_mark(w):
    w.correct("w", "Quote every variable in a shell script")
    log(w).write_bytes(b"\xef\xbb\xbf" + log(w).read_bytes() + PAGE.encode())
    w.run("w", "sync")
    assert 1 not in {each["line"] for each in status(w)["not_taken"]}


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


def test_a_second_value_of_a_field_of_one_entry_is_named_and_taken_for_nothing(w):
    one, other = "Always use awk over sed", "Never parse HTML by regular expressions"
    said = f"## 2026-11-20 Parsing\n**Wrong:** sed\n**Right:** awk\n**Pattern:** {one}\n**Pattern:** {other}\n"
    log(w).write_text(f"# Corrections\n\n{said}**Right:** awk\n**Category:** shell\n**Category:** tools\n")
    told = w.run("w", "sync").stderr
    assert {*known(w)} == {one}
    assert {(each["line"], each["text"]) for each in status(w)["not_taken"]} == {(7, other), (10, "tools")}
    assert {*status(w)["not_taken"][0]} == {"path", "line", "reason", "text"}
    assert "says something else in that field already" in told


def test_a_rule_before_the_fields_of_an_undated_section_is_taken_and_its_mistake_waits_for_a_lesson(w):
    section = f"- {PINNED}\n- **Wrong:** edited main\n  **Right:** create a branch, then commit\n"
    log(w).write_text(f"# Corrections — velma\n\n## Notes of mine\n{section}")
    w.run("w", "sync")
    assert ({*known(w)}, status(w)["not_taken"], status(w)["unfilled"]) == ({PINNED}, [], 1)


def test_what_stands_before_the_fields_of_an_entry_is_named_or_taken(w):
    fields = "**Wrong:** sed\n**Right:** awk\n**Pattern:** Always use awk over sed\n"
    log(w).write_text(f"# Corrections\n\n## 2026-11-20 Parsing\nA long day.\n- {PINNED}\n\n{fields}")
    w.run("w", "sync")
    assert {*known(w)} == {"Always use awk over sed", PINNED}
    assert [each["line"] for each in status(w)["not_taken"]] == [4]


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
    told = w.run("w", "status").stdout
    assert "3 pieces of agents/velma/corrections.md, for these reasons:" in told
    assert "line 10: it tells what was done" in told
    log(w).write_text("- [ ] look at the cache\n")
    assert "1 piece of agents/velma/corrections.md, for these reasons:" in w.run("w", "status").stdout
    log(w).write_text(PAGE)
    w.correct("w", "Quote every variable in a shell script")
    assert "not taken" not in w.run("w", "sync").stderr, "it was told, and only an entry of the log's own came since"
    assert status(w)["unfilled"] == 0, "nobody is asked for the lesson of a list"


@pytest.mark.parametrize("blanks", range(30, 70, 5))
def test_a_secret_in_what_is_not_taken_is_screened_before_the_text_is_cut(w, blanks):
    secret = "gh" + "p_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    log(w).write_text(f"- [ ] {'version 1.2 of it ' * 4}"[:blanks] + f" is out: rotate {secret} now\n")
    for words in (["sync"], ["status"], ["status", "--json"], ["import", str(log(w)), "--dry-run"]):
        done = w.run("w", *words, expect=None)
        assert secret[:8] not in done.stdout + done.stderr, words


def test_what_a_sync_took_of_a_log_is_taken_back_by_an_undo_and_stays_so(w):
    log(w).write_text(PAGE)
    w.run("w", "sync")
    assert json.loads(w.run("w", "undo", "--json").stdout)["kind"] == "import"
    log(w).write_text(PAGE + "\nMore of it.\n")
    w.run("w", "sync")
    assert {each["state"] for each in known(w).values()} == {"retired"}


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


BY_HAND = """## 2026-11-20 — sed broke
**What I got wrong:** sed mangled a path
**Correct approach:** awk -v
**Pattern:** Always use awk over sed
"""
REMARKS = """
My own remark: talk to Bob about the salary table.

- buy milk
- 2026-11-21: never run tests against production
"""
WAITS = """
## 2026-11-21 — Wrong port
**What I got wrong:** it was 80
**Correct approach:** use 8080
"""
AWK, TESTS = "Always use awk over sed", "never run tests against production"


def sent(w) -> str:
    return "".join(path.read_text() for path in (w.folder / "w/clan-learnings").rglob("*.jsonl"))


def test_text_below_an_entry_is_no_part_of_its_lesson_and_is_judged_by_itself(w):
    log(w).write_text(BY_HAND + REMARKS)
    w.run("w", "sync")
    assert {text: each["seen"] for text, each in known(w).items()} == {AWK: 1, TESTS: 1}
    assert "salary" not in sent(w)
    assert "milk" not in sent(w)
    assert {each["line"] for each in status(w)["not_taken"]} == {6, 8}
    assert log(w).read_text().startswith(BY_HAND + REMARKS)


def test_text_below_the_record_of_an_entry_is_no_part_of_it_either(w):
    w.correct("w", "Quote every variable in a shell script")
    log(w).write_text(log(w).read_text() + "- 2026-11-21: never run tests against production\n")
    w.run("w", "sync")
    assert {*known(w)} == {"Quote every variable in a shell script", TESTS}
    assert json.loads(w.run("w", "status", "--json").stdout)["edited"] == []


def test_an_entry_that_was_counted_with_the_text_below_it_counts_once(w):
    # As it was counted before a blank line ended a value.
    log(w).write_text(BY_HAND.replace("sed\n", "sed\n    My own remark.\n") + WAITS)
    w.run("w", "sync")
    before = known(w)
    assert {*before} == {f"{AWK} My own remark."}
    text = log(w).read_text()
    log(w).write_text(text.replace("    My own remark.\n", "\nMy own remark.\n"))
    w.run("w", "sync")
    assert known(w) == before, "the old lesson stays as it was, and counts once"


LESSON_EDITED, RIGHT_EDITED = ("over sed", "over sed for input"), ("awk -v", "awk with -v")
TITLE_EDITED = ("— sed broke", "— sed did break")


@pytest.mark.parametrize(
    ("waits", "old", "new"),
    [
        *(("below", *edited) for edited in (LESSON_EDITED, RIGHT_EDITED, TITLE_EDITED)),
        *(("above", *LESSON_EDITED), ("none", *TITLE_EDITED), ("bare", *RIGHT_EDITED)),
    ],
)
def test_an_entry_that_is_edited_counts_once_wherever_its_record_stands(w, waits, old, new):
    bare = "\n## Port\nIt is 8080, and that is that.\n"
    log(w).write_text(
        {"below": BY_HAND + WAITS, "above": WAITS + BY_HAND, "none": BY_HAND, "bare": BY_HAND + bare}[waits]
    )
    for _ in range(2):
        w.run("w", "sync")
        assert known(w)[AWK]["seen"] == 1
        assert len(known(w)) == 1 + (waits == "bare")
        told = w.run("w", "learn", "--waiting").stdout
        assert ("Wrong port" in told) == (waits in ("below", "above")), told
        log(w).write_text(log(w).read_text().replace(old, new, 1))
    w.run("w", "sync")
    assert log(w).read_text().count("<!-- fleet c-") == 1
    log(w).write_text(
        log(w).read_text().replace("use 8080\n", "use 8080\n**Pattern:** Read the port from the settings\n")
    )
    w.run("w", "sync")
    more = {"bare": "Port: It is 8080, and that is that.", "none": AWK}.get(waits, "Read the port from the settings")
    assert {text: each["seen"] for text, each in known(w).items()} == {AWK: 1, more: 1}


def test_an_entry_without_a_lesson_that_lost_its_place_to_anothers_record_is_counted_once_it_has_one(w):
    # Two records of the first entry stand in the second: an earlier version counted it again when it was edited.
    log(w).write_text(BY_HAND)
    w.run("w", "sync")
    first = log(w).read_text().removeprefix(BY_HAND)
    log(w).write_text(BY_HAND.replace("over sed", "over sed for input"))
    w.run("w", "sync")
    second = log(w).read_text().removeprefix(BY_HAND.replace("over sed", "over sed for input"))
    log(w).write_text(BY_HAND.replace("over sed", "over sed for input") + WAITS + first + second)
    w.run("w", "sync")
    assert "Wrong port" in w.run("w", "learn", "--waiting").stdout
    log(w).write_text(
        log(w).read_text().replace("use 8080\n", "use 8080\n**Pattern:** Read the port from the settings\n")
    )
    w.run("w", "sync")
    assert known(w)["Read the port from the settings"]["seen"] == 1


def test_of_a_log_to_which_only_own_entries_were_added_only_these_are_parsed(w, monkeypatch):
    log(w).write_text(PAGE)
    w.run("w", "sync")
    before, parsed, blank = log(w).read_bytes(), [], corrections_md.blank_entries
    w.correct("w", "Quote every variable in a shell script")
    monkeypatch.setattr(corrections_md, "blank_entries", lambda data, **how: parsed.append(data) or blank(data, **how))
    with closing(Workspace(w.folder / "w")) as workspace:
        assert LogPage(workspace, "velma").take().patterns_new == 0
        assert b"".join(parsed) == log(w).read_bytes().removeprefix(before)
        log(w).write_bytes(log(w).read_bytes() + b"\n## Testing\n- Never mock the database in a migration test\n")
        assert LogPage(workspace, "velma").take().patterns_new == 1
        log(w).write_bytes(log(w).read_bytes().replace(b"its digest", b"its full digest"))
        assert LogPage(workspace, "velma").take().patterns_new == 1


def test_a_lesson_that_a_person_calls_private_in_the_log_stays_with_the_agent(stage):
    stage.join("velma", "w")
    text = "Never mention Project Falcon in a public issue"
    entry = f"## 2026-11-30 — Told\n**What I got wrong:** w\n**Pattern:** {text}\n**Scope:** Private\n"
    log(stage).parent.mkdir(parents=True, exist_ok=True)
    log(stage).write_text(entry)
    assert "0 lines would go out" in stage.run("w", "sync", "--dry-run").stderr
    assert known(stage)[text]["seen"] == 1
    assert text not in "".join(path.read_text() for path in (stage.folder / "w/clan-learnings").rglob("*.jsonl"))
    stage.correct("w", text)
    assert "0 lines out" in stage.run("w", "sync").stdout
    assert known(stage)[text]["seen"] == 2
    id_ = known(stage)[text]["id"]
    stage.run("w", "edit", id_, "--set", "scope=clan")
    log(stage).write_text(log(stage).read_text() + "\n")
    assert "1 line out" in stage.run("w", "sync").stdout
    assert known(stage)[text]["seen"] == 2


def test_a_lesson_that_the_clan_has_is_not_made_private_by_an_entry(stage):
    stage.join("velma", "w")
    text = "Tag releases from main only"
    stage.correct("w", text)
    log(stage).write_text(f"{log(stage).read_text()}\n## 2026-11-30 — Told\n**Pattern:** {text}\n**Scope:** private\n")
    assert "1 line out" in stage.run("w", "sync").stdout
    assert known(stage)[text]["seen"] == 2


@pytest.mark.parametrize("scope", ["privat", "`private`", "**Private**", '"private"', "keep private"])
def test_a_scope_that_reads_like_private_is_private(stage, scope):
    stage.join("velma", "w")
    text = "Never mention Project Falcon in a public issue"
    log(stage).parent.mkdir(parents=True, exist_ok=True)
    log(stage).write_text(f"## 2026-11-30 — Told\n**What I got wrong:** w\n**Pattern:** {text}\n**Scope:** {scope}\n")
    assert "0 lines out" in stage.run("w", "sync").stdout
    assert known(stage)[text]["seen"] == 1


LONG = "Pin the digest of every base image. " * 250


@pytest.mark.parametrize(
    ("field", "wrong", "right", "reason"),
    [
        ("Scope", "personal", "clan", "private or clan"),
        ("Correct approach", LONG, "docker pull NAME@sha256:...", "longer than 8,192 bytes"),
        ("Pattern", LONG, "Pin the digest of every base image", "longer than 8,192 bytes"),
        ("Pattern", "!!!", "Pin the digest of every base image", "no words"),
        ("Pattern", "Pin it (seen 3 by velma; p-d837fb5f3504f5db)", "Pin the digest of every base image", "no words"),
        ("Pattern", "Pin the caf\udce9", "Pin the digest of every base image", "UTF-8"),
    ],
)
def test_an_entry_that_cannot_be_counted_is_named_once_by_a_sync_and_counts_when_it_is_mended(
    stage, field, wrong, right, reason
):
    stage.join("velma", "w")
    stage.correct("w", "Quote every variable in a shell script")
    stage.run("w", "sync")
    before = log(stage).read_bytes()
    values = {"What I got wrong": "w", "Correct approach": "r", "Pattern": "A lesson by hand"}

    def write(value: str) -> None:
        fields = (f"**{name}:** {text}" for name, text in (values | {field: value}).items())
        page = "\n".join(["", "## 2026-11-30 — Told", *fields, ""])
        log(stage).write_bytes(before + page.encode("utf-8", "surrogateescape"))

    write(wrong)
    done = stage.run("w", "sync")
    assert "0 lines out" in done.stdout
    assert "not taken" in done.stderr
    assert reason in done.stderr
    assert "not taken" not in stage.run("w", "sync").stderr
    assert [reason in each["reason"] for each in status(stage)["not_taken"]] == [True]
    write(right)
    assert "1 line out" in stage.run("w", "sync").stdout
    assert status(stage)["not_taken"] == []


PRIVATE_FORMS = {
    "items": "## Told\n- **Rule:** {}\n- **Scope:** private\n",
    "paragraph": "**Mistake:** I named it\n**Rule:** {}\n**Scope:** `private`\n",
    "table": "| Mistake | Rule | Scope |\n|---|---|---|\n| named it | {} | private |\n",
    "heading": "### {}\nRight: Call it the project\nScope: private\n",
}


@pytest.mark.parametrize("form", PRIVATE_FORMS)
def test_what_has_private_as_its_scope_in_another_form_stays_here_and_is_named(stage, form):
    stage.join("velma", "w")
    log(stage).parent.mkdir(parents=True, exist_ok=True)
    log(stage).write_text(
        f"# Corrections\n\n{PRIVATE_FORMS[form].format('Never mention Project Falcon in a public issue')}"
    )
    done = stage.run("w", "sync")
    assert "0 lines out" in done.stdout
    assert "it is private" in done.stderr
    assert known(stage) == {}
