"""``fleet import``: what other fleets wrote, taken in on two machines, counts once."""

import base64
import json
import os
import re
import shlex
from collections import Counter

import pytest

from fleet.model.line import decode
from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from tests.faults.test_sync import Bench

LESSON = "Retry with jittered backoff"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def w(bench):
    bench.run("w", "init", "--agent", "velma")
    return "w"


def wanted(shared) -> dict[str, int]:
    """Return id to count of the corpora, worked out by hand: distinct records by what they mean."""
    rows = (shared / "corpora/lessons/lessons.jsonl").read_text("utf-8").splitlines()
    records = {(r["description"] or r["title"], r["title"], r["timestamp"]) for r in map(json.loads, rows)}
    texts = [
        "Wrap flaky network calls in exponential backoff with full jitter to avoid thundering-herd retries.",
        "Model IDs, temperatures, and money as distinct types so invariants are checked at compile time.",
        "Cache read-heavy lookups behind a 5-minute TTL keyed by user id.",
        "Prefer ast-grep for code search",
        "Address the user as Stevie",
        "Never bulk-commit unrelated changes",
    ]
    return Counter(pattern_id(text) for text in [*texts, *(text for text, _, _ in records)])


def take_in(bench, where: str, *paths: object) -> dict:
    """Import, and return what it says."""
    return json.loads(bench.run(where, "import", "--json", *map(str, paths), expect=None).stdout)


def test_what_two_agents_import_on_two_machines_counts_once(bench, shared):
    paths = [shared / "corpora/fleet-records", shared / "corpora/lessons/lessons.jsonl"]
    for agent in ("velma", "tank"):
        bench.join(agent)
    first = bench.run("velma", "import", *map(str, paths), expect=3)
    assert "line 3" in first.stderr
    bench.sync("velma")
    bench.run("tank", "import", *map(str, paths), expect=3)
    for agent in ("tank", "velma"):
        bench.run(agent, "sync")
    records = bench.edition()
    assert len({each.id for each in records}) == len(records), "every lesson has one line"
    assert {each.id: each.count("seen") for each in records} == wanted(shared)
    assert not any(each.totals for each in records), "nobody is a witness of what was imported"
    assert bench.patterns("velma") == bench.patterns("tank")
    findings = bench.git("show", "fleet:discoveries.jsonl", where="clan.git").splitlines()
    assert len(findings) == 3
    assert "Should not be imported" not in "".join(findings)
    # Again, anywhere, in any order: not a byte, not a count.
    tree, head = bench.tree(), bench.git("rev-parse", "fleet", where="clan.git")
    for agent in ("velma", "tank"):
        done = take_in(bench, agent, *reversed(paths))
        assert done["patterns_new"] == done["discoveries_new"] == 0
        bench.sync(agent)
    assert bench.tree() == tree
    assert bench.git("rev-parse", "fleet", where="clan.git") == head


def _but_for_the_importer(fields):
    return {name: value for name, value in fields.items() if value not in ("velma", "tank")}


def test_two_that_import_at_the_same_time_say_the_same_and_it_counts_once(bench, shared, tmp_path):
    said, lessons = [], tmp_path / "lessons.jsonl"
    rows = (shared / "corpora/lessons/lessons.jsonl").read_bytes().splitlines(keepends=True)
    lessons.write_bytes(b"".join(rows[::6]))
    for agent in ("velma", "tank"):
        bench.join(agent)
        take_in(bench, agent, lessons)
        folded = [fold(decode(raw)) for raw in bench.shard(agent).read_bytes().splitlines()]
        said.append(
            sorted(
                (each.id, sorted(each.parts["seen"].items()), each.at, str(_but_for_the_importer(each.fields)))
                for each in folded
            )
        )
    assert said[0] == said[1], "but for whose column it stands in, and when it was imported"
    bench.sync("velma", "tank", "velma")
    assert bench.patterns("velma") == bench.patterns("tank")
    assert sum(bench.seen("velma").values()) == sum(sum(counts for _, counts in parts) for _, parts, _, _ in said[0])


def test_bad_lines_are_counted_and_kept_and_the_others_are_in(bench, w):
    bad = [
        b"this is no JSON",
        b'{"title": NaN}',
        b'{"title": "x", "title": "y"}',
        b"\xff\xfe",
        b'{"tags": ["no text"]}',
    ]
    good = [json.dumps({"title": f"lesson {number}"}).encode() for number in range(len(bad) + 1)]
    path = bench.folder / "records.jsonl"
    path.write_bytes(
        b"\n".join(row for pair in zip(good, bad, strict=False) for row in pair) + b"\n" + good[-1] + b"\n"
    )
    done = bench.run(w, "import", str(path), expect=3)
    assert "5 bad lines" in done.stderr
    for number in (2, 4, 6, 8, 10):
        assert f"records.jsonl, line {number}: " in done.stderr
    assert bench.seen(w) == {f"lesson {number}": 1 for number in range(len(good))}
    kept = (bench.folder / w / ".fleet/quarantine/refused.jsonl").read_bytes().splitlines()
    assert {base64.b64decode(json.loads(row)["bytes"]) for row in kept} == set(bad)
    assert len(bench.status(w)["quarantined"]) == 5
    assert take_in(bench, w, path)["refused"] == 5
    assert len(bench.status(w)["quarantined"]) == 5, "kept once"


@pytest.mark.parametrize(
    "gone", [{"retracted": True}, {"status": "retracted"}, {"status": "superseded"}, {"superseded_by": "x"}], ids=str
)
def test_what_was_taken_back_is_left_out(bench, w, gone):
    path = bench.folder / "patterns.jsonl"
    path.write_text(
        json.dumps({"title": "gone", **gone}) + "\n" + json.dumps({"title": "here", "retracted": False}) + "\n"
    )
    done = bench.run(w, "import", str(path))
    assert "1 left out" in done.stdout
    assert bench.seen(w) == {"here": 1}


def test_a_later_record_takes_the_place_of_the_one_it_supersedes(bench, w):
    path = bench.folder / "patterns.jsonl"
    rows = [{"id": "a", "title": "old"}, {"id": "b", "title": "new", "supersedes": "a"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench.run(w, "import", str(path))
    assert bench.seen(w) == {"new": 1}


def test_a_folder_is_read_whole_and_what_is_no_record_is_left_alone(bench, w):
    folder = bench.folder / "records/deep/er"
    folder.mkdir(parents=True)
    (folder / "patterns.jsonl").write_text(json.dumps({"title": "in a line"}) + "\n")
    (folder.parent / "lessons.json").write_text(json.dumps({"lessons": [{"title": "in a list"}]}))
    (folder.parent.parent / "corrections.md").write_text("# Pin the image in a page\n\nAnd why.\n")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = take_in(bench, w, bench.folder / "records")
    assert done["patterns_new"] == 3
    assert done["refused"] == 0
    assert bench.seen(w) == {"in a line": 1, "in a list": 1, "Pin the image in a page": 1}


@pytest.mark.parametrize("words", [["nowhere.jsonl"], []], ids=["missing", "none"])
def test_a_missing_path_is_wrong_usage(bench, w, words):
    assert bench.run(w, "import", *words, expect=2).stderr
    assert bench.seen(w) == {}


def test_of_a_folder_no_link_is_followed_out_of_it(bench, w, tmp_path):
    theirs = bench.folder / "theirs"
    theirs.mkdir()
    (tmp_path / "private.md").write_text("- Never tell anybody about the merger\n")
    (theirs / "AGENTS.md").write_text("- Run the linter before each commit\n")
    (theirs / "CLAUDE.md").symlink_to("AGENTS.md")
    (theirs / "lessons.md").symlink_to(tmp_path / "private.md")
    bench.run(w, "import", str(theirs))
    assert bench.seen(w) == {"Run the linter before each commit": 1}
    bench.run(w, "import", str(theirs / "lessons.md"))
    assert len(bench.seen(w)) == 2, "what a person names is read"


def test_a_link_that_cannot_be_read_is_named_and_ends_no_import(bench, w):
    notes = bench.folder / w / "notes"
    notes.mkdir()
    (notes / "b.md").write_text("- Always quote every variable in a shell script.\n")
    (notes / "a.md").symlink_to("c.md")
    (notes / "c.md").symlink_to("a.md")
    (notes / "exe").symlink_to("exe")
    (notes / ".#b.md").symlink_to("me@here.123")  # an editor's lock
    done = bench.run(w, "import", "notes", expect=3)
    assert "1 lesson" in done.stdout
    assert re.findall(r"(\w+\.md)\S* .*cannot be read: Too many levels", done.stdout + done.stderr) == ["a.md", "c.md"]
    assert "exe" not in done.stdout + done.stderr


def test_an_empty_folder_and_an_empty_file_are_no_error(bench, w):
    (bench.folder / "empty").mkdir()
    (bench.folder / "empty/records.jsonl").write_bytes(b"")
    assert take_in(bench, w, bench.folder / "empty")["patterns"] == 0


def test_one_record_met_in_many_guises_counts_once(bench, w):
    record = {"id": "a", "title": LESSON, "description": "Spread the retries.", "created": "2026-01-02T03:04:05Z"}
    guises = [
        record,
        dict(reversed(record.items())),
        {**record, "id": "another id"},
        {**record, "title": f"  {LESSON.replace(' ', chr(9) + ' ')} "},
        {**record, "created": "2026-01-02 03:04:05 UTC"},
    ]
    for number, guise in enumerate(guises):
        (bench.folder / f"records{number}.jsonl").write_text(json.dumps(guise, indent=number or None) + "\n")
        take_in(bench, w, bench.folder / f"records{number}.jsonl")
    (bench.folder / "all.json").write_text(json.dumps(guises))
    take_in(bench, w, bench.folder / "all.json")
    assert bench.seen(w) == {"Spread the retries.": 1}


def test_two_records_of_one_text_count_twice_and_their_own_counts_add_up(bench, w):
    rows = [
        {"title": LESSON, "description": "Spread the retries.", "agent": "joey", "occurrences": 3},
        {"title": "Jitter", "description": "Spread the **retries**", "agent": "tank"},
    ]
    (bench.folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    take_in(bench, w, bench.folder / "records.jsonl")
    [found] = bench.patterns(w)["patterns"]
    assert found["seen"] == 4
    assert found["agents"] == ["joey", "tank"]
    bench.correct(w, "Spread the retries")
    assert bench.patterns(w)["patterns"][0]["seen"] == 5


def test_a_log_of_another_fleet_workspace_does_not_count_what_came_by_sync(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma", "tank")
    done = take_in(bench, "tank", bench.folder / "velma/agents/velma/corrections.md")
    assert done["patterns_new"] == 0
    bench.sync("tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 1}


def test_a_lesson_that_was_retired_since_does_not_come_back_with_the_same_record(bench, w):
    path = bench.folder / "records.jsonl"
    path.write_text(json.dumps({"title": LESSON, "occurrences": 2}) + "\n")
    take_in(bench, w, path)
    bench.run(w, "retire", bench.patterns(w)["patterns"][0]["id"])
    assert take_in(bench, w, path)["patterns_new"] == 0
    path.write_text(json.dumps({"title": LESSON, "occurrences": 3}) + "\n")
    assert take_in(bench, w, path)["patterns_new"] == 1
    assert bench.seen(w) == {}, "a larger count of the same record is no new occurrence"
    path.write_text(json.dumps({"title": LESSON, "ts": "2026-01-02"}) + "\n")
    take_in(bench, w, path)
    assert bench.seen(w) == {LESSON: 4}, "another record is one"


def test_a_record_keeps_its_own_date_and_author_and_else_has_those_of_the_file_and_the_importer(bench, w):
    path = bench.folder / "records.jsonl"
    rows = [{"title": LESSON, "agent": "joey", "ts": "2026-01-02T03:04:05Z"}, {"title": "undated"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_770_000_000, 1_770_000_000))
    take_in(bench, w, path)
    found = {each["text"]: each for each in bench.patterns(w)["patterns"]}
    assert found[LESSON]["first"] == "2026-01-02T03:04:05.000Z"
    assert found[LESSON]["agents"] == ["joey"]
    assert found["undated"]["first"] == "2026-02-02T02:40:00.000Z"
    assert found["undated"]["agents"] == ["velma"]


def test_a_date_that_lies_ahead_is_none_and_a_lesson_without_any_has_no_first_time(bench, w):
    path = bench.folder / "notes.md"
    path.write_text("- 2099-01-01: Never trust a date that lies far ahead\n")
    os.utime(path, (1_770_000_000, 1_770_000_000))
    take_in(bench, w, path)
    path.write_text("- Never trust a file that was written tomorrow\n")
    os.utime(path, (4_000_000_000, 4_000_000_000))
    take_in(bench, w, path)
    assert {each["text"][:19]: each["first"] for each in bench.patterns(w)["patterns"]} == {
        "Never trust a date ": "2026-02-02T02:40:00.000Z",
        "Never trust a file ": "",
    }


def test_fleets_own_lines_are_left_out_with_the_advice_to_sync(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.run("w", "init", "--agent", "tank")
    done = bench.run("w", "import", str(bench.clan("velma") / "patterns.jsonl"), expect=1)
    assert "sync it, do not import it" in done.stdout
    assert bench.seen("w") == {}


LESSONS_MD = """# Lessons

How agents on this project should work.

## Format
- **Rule**: [one-line rule]

## Testing
- Always run the migration twice in a test; the second run must change nothing.
- 2026-03-04 — The staging database is wiped at night, so never debug there after eight.
- 2026-05-02: ❌ a global pip install of tools → ✅ give each tool an environment of its own
- [ ] write the missing test

### L-003: [gotcha] The cache key must hold the tenant (2026-04-29)
- **Symptom**: one tenant saw the prices of another
- **Fix**: put the tenant first in every cache key
- **Tags**: cache, tenants

## Traps
❌ `npm install` in CI → ✅ `npm ci` in CI
SUPERSEDES "use yarn for all" → "use pnpm for all packages"

| Mistake | Rule |
|---|---|
| read `a|b` as one path | Quote every path that holds a pipe |

### Deployment
"""


def test_a_page_as_people_write_them_gives_its_lessons_and_names_what_is_none(bench, w):
    page = bench.folder / "tasks/lessons.md"
    page.parent.mkdir()
    page.write_text(LESSONS_MD)
    before = bench.run(w, "import", "--dry-run", "--verbose", str(page)).stdout
    assert bench.seen(w) == {}, "a dry run writes nothing"
    assert "lessons.md:9" in before
    assert "lessons.md:12: it is a task to tick off" in before
    done = take_in(bench, w, page)
    assert set(bench.seen(w)) == {
        "Always run the migration twice in a test; the second run must change nothing.",
        "The staging database is wiped at night, so never debug there after eight.",
        "The cache key must hold the tenant",
        "`npm ci` in CI, not `npm install` in CI",
        "give each tool an environment of its own",
        "use pnpm for all packages",
        "Quote every path that holds a pipe",
    }
    left = {each["line"]: each["reason"] for each in done["left"]}
    assert left.keys() >= {3, 6, 12, 27}, "the intro, the template, the task and the bare heading"
    dry = json.loads(bench.run(w, "import", "--dry-run", "--json", str(page)).stdout)
    assert {*dry["left"][0]} == {"path", "line", "text", "reason"}
    assert {*dry["taken"][0]} == {"path", "line", "text", "category"}
    assert [*dry["skipped"]] == sorted(dry["skipped"])
    found = {each["text"]: each for each in bench.patterns(w)["patterns"]}
    tenant = found["The cache key must hold the tenant"]
    assert (tenant["correct"], tenant["category"]) == ("put the tenant first in every cache key", "gotcha")
    assert tenant["first"].startswith("2026-04-29")
    assert found["give each tool an environment of its own"]["first"].startswith("2026-05-02")


def test_each_lesson_of_one_block_is_named_with_its_own_line(bench, w, tmp_path):
    block = "Wrong: by hand\nRight: by {}, each time\n"
    page = tmp_path / "lessons.md"
    page.write_text("".join(map(block.format, "abc")) + "\n## More\n\n" + "".join(map(block.format, "de")))
    taken = take_in(bench, w, "--dry-run", "--verbose", page)["taken"]
    assert [each["line"] for each in taken] == [1, 3, 5, 8, 12]
    page.write_text("# Lessons\n\nOf this year.\n\n" + block.format("f"))
    assert [each["line"] for each in take_in(bench, w, "--dry-run", "--verbose", page)["taken"]] == [5]


def test_a_file_from_which_nothing_was_taken_is_no_success(bench, w):
    page = bench.folder / "LEARNINGS.md"
    page.write_text("# Learnings\n\n## Format\n- **Rule**: [what to do]\n\n### [YYYY-MM-DD] Title\n- **Fix:** ...\n")
    done = bench.run(w, "import", str(page), expect=1)
    assert "nothing was taken from" in done.stderr
    assert bench.seen(w) == {}


def test_a_projects_folder_gives_its_lessons_and_nothing_of_fleets_own_or_of_others(bench, w):
    root = bench.folder / w
    (root / "CLAUDE.md").write_text("# Shop\n\n- Never commit the lock file of npm\n- `src/` — the sources\n")
    (root / ".cursorrules").write_text("Always write tests before the code they are about.\n")
    (root / ".fleet/lessons.md").write_text("- Never read what fleet keeps for itself\n")
    (root / "node_modules/x").mkdir(parents=True)
    (root / "node_modules/x/CLAUDE.md").write_text("- Always do what this package says\n")
    (root / "docs.md").write_text("- Always read the manual of the whole thing\n")
    bench.run(w, "import", ".")
    assert set(bench.seen(w)) == {
        "Never commit the lock file of npm",
        "Always write tests before the code they are about.",
    }


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"summary": "yq has no --arg flag; use env()", "detail": "jq has"}, "yq has no --arg flag; use env()"),
        (
            {"insight": "Hooks are processes; keep state in files", "trigger": "x"},
            "Hooks are processes; keep state in files",
        ),
        (
            {"memory": "The user prefers tabs over spaces", "metadata": {"category": "style"}},
            "The user prefers tabs over spaces",
        ),
        ({"key": "k", "type": "learned", "content": "LEARNED: pin the base image"}, "pin the base image"),
        (
            {
                "scenario": "a push fails",
                "wrongApproach": "push with force",
                "correctApproach": "pull and rebase first",
            },
            "pull and rebase first",
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_json_lines_of_other_tools_are_read_plain_and_as_a_string_of_json(bench, w, record, text):
    path = bench.folder / "memory.jsonl"
    path.write_text(
        json.dumps(json.dumps(record)) + "\n" + json.dumps({"issue_type": "bug", "title": "no lesson"}) + "\n"
    )
    done = take_in(bench, w, path)
    assert set(bench.seen(w)) == {text}
    assert done["skipped"] == {"an issue of a tracker, and no lesson": 1}


@pytest.mark.parametrize(
    "content", [b"\x7fELF\x02\x01\n\x00\xff" * 99, b"[project]\nname = 'x'\n" * 99, b"import os\n" * 99]
)
def test_a_file_that_is_neither_markdown_nor_json_is_one_refusal(bench, w, tmp_path, content):
    (tmp_path / "other.x").write_bytes(content)
    bench.run(w, "import", "--dry-run", str(tmp_path / "other.x"), expect=3)
    done = bench.run(w, "import", str(tmp_path / "other.x"), expect=3)
    assert "neither Markdown nor JSON" in done.stderr
    assert "nothing was taken" in done.stderr
    assert len(json.loads(bench.run(w, "status", "--json").stdout)["quarantined"]) == 1


def test_each_line_of_a_file_of_rules_is_one_and_a_wrapped_paragraph_stays_one(bench, w):
    lines = ["Always use TypeScript strict mode", "Prefer functional components over classes", "Use Zod for validation"]
    wrapped = "Keep each function short, at most 30 lines,\nand give it one reason to change.\n"
    (bench.folder / w / ".cursorrules").write_text("\n".join(lines) + "\n\n" + wrapped)
    bench.run(w, "import", ".cursorrules")
    assert set(bench.seen(w)) == {*lines, wrapped.strip().replace("\n", " ")}


def test_what_a_sync_takes_from_a_log_in_another_form_is_reported_and_is_no_warning(stage):
    velma = stage.join("velma")
    log = stage.folder / velma / "agents/velma/corrections.md"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("- Always rebase a branch before you merge it\n- TODO\n")
    told = stage.run(velma, "sync").stderr.splitlines()
    took = "took 1 lesson from agents/velma/corrections.md, written there in another form; that text stays as it is"
    assert f"fleet: {took}" in told
    assert not any("warning: took" in row for row in told)


def test_a_sync_reports_each_lesson_that_was_written_into_the_log_by_hand_and_undo_lists_it(stage):
    velma = stage.join("velma")
    log = stage.folder / velma / "agents/velma/corrections.md"
    log.parent.mkdir(parents=True, exist_ok=True)
    entry = "## by hand\nWrong: I used tabs\nRight: use spaces\nPattern: Indent Python with spaces\n"
    log.write_text(f"{entry}\n- Always write tests for bug fixes\n")
    told = stage.run(velma, "sync").stderr
    assert "counted 1 entry written by hand in agents/velma/corrections.md; the ids were added at its end" in told
    assert "took 1 lesson from agents/velma/corrections.md, written there in another form" in told
    runs = json.loads(stage.run(velma, "undo", "--list", "--json").stdout)["runs"]
    assert {each["about"] for each in runs} == {"Indent Python with spaces", "Always write tests for bug fixes"}
    for each in runs:
        stage.run(velma, "undo", each["id"])
    assert stage.patterns(velma)["patterns"] == []
    assert log.read_text().startswith(entry)
    assert "by hand" not in stage.run(velma, "sync").stderr


def test_a_bare_undo_takes_back_the_last_command_and_not_what_was_counted_of_the_log_since(stage):
    velma = stage.join("velma")
    pattern = stage.correct(velma, "Pin the version of every action")
    stage.run(velma, "retire", pattern)
    with (stage.folder / velma / "agents/velma/corrections.md").open("a") as log:
        log.write("\n## By hand\n**Pattern:** Indent Python with spaces\n")
    stage.run(velma, "status")
    stage.run(velma, "undo")
    assert sorted(each["text"] for each in stage.patterns(velma)["patterns"]) == [
        "Indent Python with spaces",
        "Pin the version of every action",
    ]


def test_a_sign_of_unreadable_bytes_in_a_page_of_utf_8_is_a_letter_like_others(bench, w):
    rule = "Always set PYTHONIOENCODING=utf-8, else the log shows \ufffd"
    (bench.folder / w / "notes.md").write_text(f"# Notes\n\n- {rule}\n")
    bench.run(w, "import", "notes.md")
    with (bench.folder / w / "agents/velma/corrections.md").open("a") as log:
        log.write("\n## By hand\n**Pattern:** Never print \ufffd to a log\n")
    bench.run(w, "sync")
    assert {each.partition(";")[0] for each in bench.seen(w)} == {rule, "Never print \ufffd to a log"}


@pytest.mark.parametrize(
    "between", ["", "| Mistake | Fix |\n|---|---|\n| Used tabs | Use spaces |\n\n", "That was long.\n\n"]
)
def test_a_list_after_an_entry_is_read_for_itself_and_a_task_in_it_is_named(bench, w, between):
    entry = "### Mistake: forgot to close the file\n**Wrong:** open()\n**Right:** with open()\n"
    rules = ["Always open files with a context manager", "Pin the versions in requirements.txt", "Keep the log short"]
    page = (
        f"# Lessons\n\n{entry}**Lesson:** {rules[0]}\n\n{between}- {rules[1]}\n- {rules[2]}\n- [ ] todo: write docs\n"
    )
    (bench.folder / w / "lessons.md").write_text(page)
    told = bench.run(w, "import", "--verbose", "lessons.md").stdout
    assert {each.partition(";")[0] for each in bench.seen(w)} == set(rules)
    last = page.count("\n")
    assert f"lessons.md:{last}: it is a task to tick off: todo: write docs" in told
    assert "forgot to close the file: " not in told


def test_a_task_below_an_entry_is_named_under_its_own_line(bench, w):
    page = (
        "# Lessons\n\n## 2026-01-02 Leaks\n**Lesson:** Always open files with a context manager\n- [ ] check the rest\n"
    )
    (bench.folder / w / "lessons.md").write_text(page)
    told = bench.run(w, "import", "--verbose", "lessons.md").stdout
    assert "lessons.md:5: it is a task to tick off: check the rest" in told


def test_what_was_said_on_one_day_is_no_lesson_and_the_order_that_it_led_to_is_one(bench, w):
    page = bench.folder / w / "meeting.md"
    page.write_text("# Meeting\nWe talked about lunch. Next time we should order earlier.\n")
    bench.run(w, "import", "meeting.md", expect=1)
    assert bench.seen(w) == {}
    page.write_text("# Meeting\nI forgot to close the file. Always open files with a context manager.\n")
    bench.run(w, "import", "meeting.md")
    assert len(bench.seen(w)) == 1


def test_a_page_in_utf_16_is_read_and_one_that_only_begins_so_is_named_with_the_reason(bench, w):
    page, rule = bench.folder / w / "lessons.md", "Always pin the image by its digest"
    page.write_bytes(f"# L\n\n- {rule}\n".encode("utf-16"))
    bench.run(w, "import", "lessons.md")
    assert set(bench.seen(w)) == {rule}
    page.write_bytes(f"# L\n\n- {rule}\n".encode("utf-16") + b"- Pin each version too\n")
    told = bench.run(w, "import", "lessons.md", "--verbose", expect=3)
    assert "it begins as UTF-16, and is none from byte" in told.stdout + told.stderr
    assert set(bench.seen(w)) == {rule}


def test_a_right_way_below_a_wrong_one_is_the_lesson_of_an_import_and_of_a_sync(bench, w):
    right, other = "Copy only package.json before npm install", "Pin each image of the build by its digest"
    page = bench.folder / w / "lessons.md"
    page.write_text(f"# L\n\n- ❌ Copy the whole repo\n  ✅ {right}\n")
    bench.run(w, "import", "lessons.md")
    assert set(bench.seen(w)) == {right}
    log = bench.folder / w / "agents/velma/corrections.md"
    log.write_text(f"# Corrections\n\n- ❌ Use the latest tag\n  ✅ {other}\n")
    bench.run(w, "sync")
    assert set(bench.seen(w)) == {right, other}


def test_pieces_of_files_of_one_name_are_told_apart_by_their_folders(bench, w):
    for name in ("one", "two"):
        folder = bench.folder / w / "x" / name
        folder.mkdir(parents=True)
        (folder / "lessons.md").write_text(f"# L\n\n- Always pin the image {name}\n- {name}\n")
    (bench.folder / w / "x/one/bad.jsonl").write_text("nonsense\n")
    shown = bench.run(w, "import", "x", "--dry-run", "--verbose").stdout
    for name in ("one", "two"):
        assert re.search(rf"^x/{name}/lessons\.md:3 +Always pin the image {name}$", shown, re.MULTILINE)
        assert f"x/{name}/lessons.md:4: it is no sentence that says something by itself: {name}" in shown
    assert "x/one/bad.jsonl, line 1: " in bench.run(w, "import", "x", expect=3).stderr


def test_a_hint_of_an_import_can_be_run_as_it_is_printed_and_stands_only_where_it_explains(bench, w):
    root = bench.folder / w
    (root / "my lessons.md").write_text("# L\n\n- short\n")
    for words in ([], ["--dry-run"]):
        told = bench.run(w, "import", "my lessons.md", *words, expect=1).stderr
        (command,) = re.findall(r"`fleet (.*?)`", told)
        assert "my lessons.md:3: " in bench.run(w, *shlex.split(command), expect=1).stdout
    assert "`" not in bench.run(w, "import", "my lessons.md", "--dry-run", "--verbose", expect=1).stderr
    (root / "empty").mkdir()
    assert "`" not in bench.run(w, "import", "empty", expect=1).stderr
    (root / "issues.jsonl").write_text(json.dumps({"issue_type": "bug", "title": "The build is red"}) + "\n")
    shown = bench.run(w, "import", "issues.jsonl", "--verbose", expect=1).stdout
    assert "issues.jsonl:1: an issue of a tracker, and no lesson: The build is red" in shown


@pytest.mark.parametrize(
    ("right", "field", "name", "author"),
    [
        *(("right", field, "ada", "ada") for field in ("agent", "agent_id", "agentId", "author", "by")),
        *(("right", "author", "Ada", "ada"), ("right", "author", "Ada L. <a@b.c>", "velma")),
        *(("correct", "by", "", "velma"), ("correction", "author", "ada", "ada")),
    ],
)
def test_a_record_of_wrong_and_right_is_read_and_its_author_is_whom_it_names(bench, w, right, field, name, author):
    record = {"wrong": "push with force", right: "Pull and rebase before each push", field: name}
    (bench.folder / w / "memory.jsonl").write_text(json.dumps(record) + "\n")
    bench.run(w, "import", "memory.jsonl")
    (lesson,) = bench.patterns(w)["patterns"]
    assert (lesson["text"], lesson["agents"]) == ("Pull and rebase before each push", [author])


@pytest.mark.parametrize("how", ["scope", "mark", "record", "json"])
def test_what_a_log_or_a_record_calls_private_is_not_imported(bench, w, how):
    """The log of another folder of one's own, say: the next sync would send it."""
    text = "Never mention Project Falcon in a public issue"
    if how in {"mark", "record"}:
        bench.run("there", "init", "--agent", "velma")
        bench.correct("there", text)
        page = bench.folder / "there/agents/velma/corrections.md"
        bench.run("there", "edit", bench.patterns("there")["patterns"][0]["id"], "--set", "scope=private")
        if how == "record":
            bench.correct("there", text, wrong="the same again")
    elif how == "scope":
        page = bench.folder / "corrections.md"
        entry = f"**What I got wrong:** w\n**Pattern:** {text}\n"
        page.write_text(f"## 2026-11-30 — Told\n{entry}**Scope:** private\n\n## 2026-11-30 — Again\n{entry}")
    else:
        page = bench.folder / "lessons.jsonl"
        page.write_text(json.dumps({"pattern": text, "scope": "private"}))
    took = take_in(bench, w, page)
    assert took["patterns"] == 0
    assert set(took["skipped"]) == {"it is private"}


def test_a_comment_beside_a_lesson_is_no_part_of_it(bench, w):
    page = bench.folder / "lessons.md"
    page.write_text(
        "# Lessons\n\n- Never push to main on a Friday <!-- velma 2106feba -->\n"
        "- Write `<!-- -->` comments in plain words\n"
        "\n**Rule:** Always pin the wheels of numpy <!-- added in March -->\n\n"
        "| Mistake | Rule |\n|---|---|\n| named none | Name a zone in every date <!-- y --> |\n"
    )
    take_in(bench, w, page)
    assert {each["text"] for each in bench.patterns(w)["patterns"]} == {
        "Never push to main on a Friday",
        "Write `<!-- -->` comments in plain words",
        "Always pin the wheels of numpy",
        "Name a zone in every date",
    }
