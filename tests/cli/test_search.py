"""``fleet search``, as it is typed."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet.store.database import SCHEMA_NUMBER
from tests.cli.conftest import Stage


def hits(stage, where: str, *words: str, expect: int | None = 0) -> list[dict]:
    return json.loads(stage.run(where, "search", "--json", *words, expect=expect).stdout)["results"]


def test_a_correction_is_found_at_once_and_a_retired_lesson_no_more(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Never build a sed expression from user input", "--category", "shell")
    (found,) = hits(stage, "velma", "sed expression", "--kind", "pattern")
    assert found == {
        "kind": "pattern",
        "id": lesson,
        "text": "Never build a sed expression from user input",
        "where": found["where"],
        "snippet": "Never build a sed expression from user input",
        "seen": 1,
        "at": found["at"],
        "who": "velma",
        "changed": "",
        "contradicts": [],
        "retired": False,
    }
    assert found["where"] == ""  # its id says where it is
    assert [hit["kind"] for hit in hits(stage, "velma", "sed")] == ["pattern"], "a lesson and its log entry are one row"
    shown = stage.run("velma", "search", "sed", "expr").stdout
    assert f"{lesson}  pattern · 1x · velma · {found['at'][:10]}\n  Never build a sed" in shown
    entries = stage.run("velma", "search", "sed", "expr", "--kind", "correction").stdout
    assert "agents/velma/corrections.md:3  correction · velma" in entries
    stage.correct("velma", "never build a SED expression from user input.")
    assert hits(stage, "velma", "sed", "--kind", "pattern")[0]["seen"] == 2
    stage.run("velma", "retire", lesson)
    assert hits(stage, "velma", "sed", "--kind", "pattern", expect=1) == []
    assert hits(stage, "velma", "sed", "--kind", "pattern", "--all")[0]["retired"]
    stage.run("velma", "restore", lesson)
    assert len(hits(stage, "velma", "sed", "--kind", "pattern")) == 1


def test_the_time_of_what_is_found_in_a_page_is_one_of_rfc_3339(stage):
    stage.join("velma")
    stage.correct("velma", "Never build a sed expression from user input")
    log = stage.folder / "velma/agents/velma/corrections.md"
    log.write_text(log.read_text() + "\n## 2026-03-15 14:30Z — sed mangled it\n")
    stage.run("velma", "journal", "--title", "Port the sed scripts")
    found = hits(stage, "velma", "sed", "--kind", "correction", "--kind", "journal")
    times = {hit["text"]: hit["at"] for hit in found}
    assert len(times) == 3
    assert times["sed mangled it"] == "2026-03-15T14:30:00.000Z"
    assert not [at for at in times.values() if not re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", at)]


def test_a_contradiction_is_named_once_though_the_other_lesson_has_two_wordings(stage):
    stage.join("velma")
    texts = [
        "Use pnpm in this repository, never npm",
        "Use npm in this repository, never pnpm",
        "Never npm here: this repository uses pnpm",
    ]
    ids = [stage.correct("velma", text) for text in texts]
    found = {hit["id"]: sorted(hit["contradicts"]) for hit in hits(stage, "velma", "npm", "--kind", "pattern")}
    assert found == {ids[0]: [ids[1]], ids[1]: sorted([ids[0], ids[2]]), ids[2]: [ids[1]]}
    shown = stage.run("velma", "search", "npm").stdout.splitlines()
    assert [row.count(f"contradicts {ids[1]}") for row in shown if row.startswith((ids[0], ids[2]))] == [1, 1]


def test_an_entry_of_a_retired_lesson_is_found_where_retired_ones_are_asked_for_and_marked(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Always use tabs in makefiles")
    stage.run("velma", "retire", lesson)
    assert hits(stage, "velma", "makefiles", expect=1) == []
    assert hits(stage, "velma", "makefiles", "--kind", "correction", expect=1) == []
    assert [hit["kind"] for hit in hits(stage, "velma", "makefiles", "--all")] == ["pattern"]
    [entry] = hits(stage, "velma", "makefiles", "--all", "--kind", "correction")
    assert entry["retired"]


def test_a_merged_lesson_and_its_entries_are_one_row_that_shows_the_wording_that_was_found(stage):
    stage.join("velma")
    into, merged = (stage.correct("velma", text) for text in ("Use C# records", "Prefer f-strings over percent signs"))
    stage.run("velma", "merge", into, merged, "--force")
    [found] = hits(stage, "velma", "percent")
    assert found["kind"] == "pattern"
    assert "percent" in found["text"] + found["snippet"]


def test_what_others_sent_is_found_after_a_sync(stage):
    stage.join("velma")
    stage.join("tank")
    lesson = stage.correct("tank", "Wait for the namespace to be gone")
    stage.run("tank", "discover", "--problem", "the zeppelin image is x86", "--solution", "pin it", "--type", "tip")
    assert hits(stage, "velma", "namespace", expect=1) == []
    stage.run("tank", "sync")
    stage.run("velma", "sync")
    assert [(hit["id"], hit["who"]) for hit in hits(stage, "velma", "namespace")] == [(lesson, "tank")]
    assert [hit["kind"] for hit in hits(stage, "velma", "zeppelin")] == ["discovery"]


def test_where_nothing_has_all_words_the_nearest_are_told(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Never build a sed expression from user input")
    stage.correct("velma", "Rotate the signing certificate each spring")
    done = stage.run("velma", "search", "sed", "certificate", "--kind", "pattern")
    assert lesson in done.stdout
    assert "nothing has all words of 'sed certificate'; nearest:" in done.stderr
    found = json.loads(stage.run("velma", "search", "sed", "certificate", "--json").stdout)
    assert not found["exact"]
    assert json.loads(stage.run("velma", "search", "sed", "--json").stdout)["exact"]


def test_a_question_in_plain_words_is_answered(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Quote every shell variable that may hold a path")
    stage.correct("velma", "Rotate the signing certificate each spring")
    question = "how should I quote variables in a shell script?"
    assert hits(stage, "velma", question, "--kind", "pattern")[0]["id"] == lesson


def test_an_id_is_no_word_and_what_shows_it_is_named(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Quote every path")
    assert f"`fleet show {lesson}`" in stage.run("velma", "search", lesson, expect=1).stderr


def test_nothing_found_says_what_to_do_and_exits_with_1(stage):
    stage.join("velma")
    done = stage.run("velma", "search", "xyzzy", expect=1)
    assert done.stdout == ""
    assert "nothing is known about 'xyzzy'" in done.stderr
    done = stage.run("velma", "search", "xyzzy", "--json", expect=1)
    assert json.loads(done.stdout)["results"] == []
    assert json.loads(done.stdout)["query"] == "xyzzy"


@pytest.mark.parametrize(
    "words",
    [
        ["git", "branch", "-D"],
        ["-D"],
        ["->"],
        ["--", "--json"],
        ["--force-with-lease"],
        ["C++"],
        ["贡献"],
        [".env"],
        ['"branch -D"'],
        ['git "branch'],
    ],
)
def test_signs_are_words(stage, words):
    stage.join("velma")
    text = "git branch -D, C++ -> --json; .env for 贡献者, --force-with-lease"
    lesson = stage.correct("velma", text)
    assert [hit["id"] for hit in hits(stage, "velma", "--kind", "pattern", *words)] == [lesson]


@pytest.mark.parametrize("words", [[""], ["  "], ["\u200b"], ["x", "--kind", "poem"], ["x", "-n", "0"], []])
def test_what_cannot_be_looked_for_is_a_usage_error(stage, words):
    stage.join("velma")
    stage.run("velma", "search", *words, expect=2)


def test_more_than_asked_for_is_said(stage):
    stage.join("velma")
    for number in range(4):
        stage.correct("velma", f"lesson number {number}")
    done = stage.run("velma", "search", "lesson", "-n", "2")
    assert len([line for line in done.stdout.splitlines() if not line.startswith(" ")]) == 2
    assert "there are more" in done.stderr


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("unindexed"))
    stage.join("velma")
    stage.correct("velma", "Quote every path")
    stage.run("velma", "import", str(stage_lines(stage)))
    stage.keep()
    return stage


@pytest.fixture
def unindexed(imported):
    """A workspace of some thousand lessons in which nobody has searched yet."""
    imported.again()
    return imported


def test_many_search_at_once_while_the_index_is_made(unindexed):
    def ask(number: int):
        return unindexed.run("velma", "search", "quote path", "--kind", "pattern", "--json")

    with ThreadPoolExecutor(3) as pool:
        for done in pool.map(ask, range(3)):
            assert [hit["text"] for hit in json.loads(done.stdout)["results"]] == ["Quote every path"]
            assert done.stderr == ""


def stage_lines(stage):
    """Return a file of lessons that another tool wrote."""
    path = stage.folder / "lessons.jsonl"
    rows = [
        {"type": "lesson", "title": f"t{n}", "description": f"what was learned the {n}th time"} for n in range(2000)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_search_that_is_killed_harms_no_later_one(unindexed):
    for wait_s in (0.15, 0.25, 0.4):
        words = [sys.executable, "-m", "fleet", "search", "learned"]
        running = subprocess.Popen(
            words, cwd=unindexed.folder / "velma", env=unindexed.environment(), stdout=subprocess.DEVNULL
        )
        try:
            running.wait(wait_s)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
    assert [hit["text"] for hit in hits(unindexed, "velma", '"1234th time"')] == ["what was learned the 1234th time"]
    assert len(hits(unindexed, "velma", "learned", "-n", "5000")) == 2000


def test_a_damaged_database_is_no_obstacle(stage):
    stage.join("velma")
    lesson = stage.correct("velma", "Quote every path")
    for data in (b"rubbish" * 5000, b""):
        (stage.folder / f"velma/.fleet/state-{SCHEMA_NUMBER}.db").write_bytes(data)
        done = stage.run("velma", "search", "quote", "--kind", "pattern", "--json")
        assert [hit["id"] for hit in json.loads(done.stdout)["results"]] == [lesson]
        assert ("nothing is lost" in done.stderr) == bool(data), "an empty one is as good as none"
        assert done.stderr.count("\n") == bool(data)


def test_chinese_is_found_among_imported_lessons(stage, shared):
    stage.join("velma")
    corpus = shared / "corpora/lessons/lessons.jsonl"
    stage.run("velma", "import", str(corpus))
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    wanted = {row["description"] for row in rows if "贡献" in row["description"]}
    found = hits(stage, "velma", "贡献", "-n", "500", "--kind", "pattern")
    assert len(rows) == 194
    assert len(wanted) == 5
    assert {hit["text"] for hit in found if "贡献" in hit["text"]} == wanted
    assert all("贡献" in hit["snippet"] for hit in found)
