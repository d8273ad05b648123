"""The nearest lessons and what differs between them, and the words that the full-text index gets."""

import importlib.util
import re
import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.text import similarity
from fleet.text.similarity import ParsedText, Words, near
from tests.pace import within

ROOT = Path(__file__).resolve().parents[2]


def load_report():
    spec = importlib.util.spec_from_file_location("matching_report", ROOT / "benchmarks/matching/report.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def differences(one, other):
    mine, theirs = ParsedText.of((one, other))
    return mine.differences(theirs)


report = load_report()
PAIRS = report.pairs()
KNOWN = sorted({text for pair in PAIRS for text in (pair.a, pair.b)})


@pytest.fixture(scope="module")
def source():
    """Candidates from an index of all known lessons."""
    return report.full_text(KNOWN)


@pytest.fixture(scope="module")
def held_out(source):
    """What was found for each pair that nothing was tuned to."""
    return report.ask([pair for pair in PAIRS if pair.is_held_out], source)


SAME = [
    ("Avoid global state", "Global state should be avoided"),
    ("Never log passwords in production", "In production, do not log passwords"),
    ("Tests must not touch the network", "Never touch the network in tests"),
    ("Never force push to main", "Force pushes to main are forbidden"),
    ("Do not store secrets in the repository", "Secrets must not be stored in the repository"),
    ("Close files with a context manager, not by hand", "Use a context manager to close files, never by hand"),
    ("Do not parse HTML with regular expressions; use a parser", "Parse HTML with a parser, not regular expressions"),
    ("Retry three times", "Retry 3 times"),
    ("Use pnpm, never npm, in this repository", "In this repository never use npm, use pnpm"),
    ("Run the linter before the tests", "Before the tests, run the linter"),
    ("Pin dependency versions in CI", "In CI pin the versions of dependencies"),
    ("Never push directly to main", "Don't push to main directly"),
    ("Check every input", "Check all inputs"),
    ("Do not edit generated files and do not commit them", "Do not edit or commit generated files"),
    ("Don't log secrets or tokens", "Don't log secrets and don't log tokens"),
    ("Never commit unless the tests pass", "Don't commit if the tests do not pass"),
    ("Don't push while CI is not green", "Never push unless CI is green"),
    ("禁止在循环里查询数据库", "不要在循环中查询数据库"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_lesson_in_other_words_is_near_and_nothing_differs(one, other):
    for text, known in ((one, other), (other, one)):
        (found,) = near(text, [("p-1", known)])
        assert found.score >= 0.5
        assert found.differs == ()


DIFFERENT = [
    # negation
    ("Commit generated files", "Never commit generated files", "negation"),
    ("Commit generated files", "Don't commit generated files", "negation"),
    ("Commit generated files", "Generated files must not be committed", "negation"),
    ("Deploy with a rollback plan", "Deploy without a rollback plan", "negation"),
    ("Merge with a review", "Merge, without a review", "negation"),
    ("Mock the clock", "Mocking the clock is discouraged", "negation"),
    ("Use threads for IO, not for CPU work", "Use threads for CPU work, not for IO", "negation"),
    ("Global state should be avoided", "Global state should be used", "negation"),
    ("Use pnpm, never npm, here", "Use npm, never pnpm, here", "negation"),
    ("Prefer awk to sed for templates", "Prefer sed to awk for templates", "negation"),
    ("禁止在循环里查询数据库", "在循环里查询数据库", "negation"),
    ("测试可以依赖顺序", "测试不可以依赖顺序", "negation"),
    ("请勿使用全局变量", "使用全局变量", "negation"),
    # numbers and versions
    ("Retry 3 times", "Retry 5 times", "number"),
    ("Retry three times", "Retry five times", "number"),
    ("Wait 5 seconds", "Wait 5 minutes", "number"),
    ("Use Python 3.11 or newer", "Use Python 3.12 or newer", "version"),
    ("Use the v2 API", "Use the v3 API", "version"),
    ("Keep 10% of the traces", "Keep 1% of the traces", "number"),
    ("Set the job timeout", "Set the job timeout to 30 minutes", "number"),
    ("Return -1 for no match", "Return 1 for no match", "number"),
    ("重试三次后放弃", "重试五次后放弃", "number"),
    ("等待 5 秒再重试", "等待 15 秒再重试", "number"),
    # names: tools, flags, paths, identifiers, code
    ("Run the tests with pytest", "Run the tests with unittest", "name"),
    ("Delete a merged branch with `git branch -d`", "Delete a merged branch with `git branch -D`", "name"),
    ("Run it with --dry-run first", "Run it with --force first", "name"),
    ("Write logs to /var/log/app", "Write logs to /tmp/app", "name"),
    ("Set `maxRetries` in the client", "Set `maxSockets` in the client", "name"),
    ("Keep shared limits in config/base.toml", "Keep shared limits in config/local.toml", "name"),
    ("用 pytest 运行测试", "用 unittest 运行测试", "name"),
    # opposites
    ("Allow anonymous access", "Deny anonymous access", "opposite"),
    ("Read the first error", "Read the last error", "opposite"),
    ("Increase the pool size", "Decrease the pool size", "opposite"),
    ("Open files inside the sandbox", "Open files outside the sandbox", "opposite"),
    ("Use trusted input as it is", "Use untrusted input as it is", "opposite"),
    ("Load signed plugins from the release folder", "From the release folder, load unsigned plugins", "opposite"),
    ("Default to true", "Default to false", "opposite"),
    ("启用外键约束", "禁用外键约束", "opposite"),
    ("使用同步写入", "使用异步写入", "opposite"),
    ("Keep the lock while writing", "Release the lock while writing", "opposite"),
    # a second negation
    ("Never deploy without a backup", "Never deploy with a backup", "negation"),
    ("No test without an assertion", "No test with an assertion", "negation"),
    ("Don't push if CI is not green", "Don't push if CI is green", "negation"),
    ("Never commit unless the tests pass", "Never commit if the tests pass", "negation"),
    ("Don't merge until nobody objects", "Don't merge until somebody objects", "negation"),
    ("Rotate the logs weekly", "Logs must be rotated monthly", "opposite"),
    ("提交之前先运行测试", "提交之后再运行测试", "opposite"),
    # order
    ("Run the linter before the tests", "Run the tests before the linter", "order"),
    ("Write the test before the fix", "Write the test after the fix", "order"),
    ("Merge main into the feature branch", "Merge the feature branch into main", "order"),
    ("Convert tabs to spaces", "Convert spaces to tabs", "order"),
    ("The server must trust the client's clock", "The client must trust the server's clock", "order"),
]


@pytest.mark.parametrize(("one", "other", "what"), DIFFERENT)
def test_what_reads_alike_says_what_differs(one, other, what):
    for text, known in ((one, other), (other, one)):
        (found,) = near(text, [("p-1", known)])
        assert what in found.differs
    assert set(found.differs) <= set(similarity.DIFFERENCES)


def test_what_only_looks_like_an_opposite_is_none():
    assert "opposite" not in differences(
        "Use awk where a person wrote what is put in", "Use awk over sed for user input"
    )
    assert "opposite" in differences("Accept valid names", "Accept invalid names")


def test_of_the_labelled_pairs_the_same_lessons_are_among_the_three_nearest(held_out):
    assert report.met(held_out) >= 0.9
    assert report.met(held_out, 1) >= 0.65


def test_of_the_labelled_pairs_most_differences_are_named_and_few_that_are_none(held_out):
    assert report.told(held_out, "opposite") >= 0.85
    assert report.told(held_out, "other-number") >= 0.9
    assert report.told(held_out, "other-tool") >= 0.6
    assert report.told(held_out, "same") <= 0.25


def test_the_set_is_as_large_and_as_mixed_as_it_claims():
    counts = {label: sum(pair.label == label for pair in PAIRS) for label in report.LABELS}
    assert sum(counts.values()) == len(PAIRS) >= 180
    assert min(counts.values()) >= 30
    assert len({frozenset((pair.a, pair.b)) for pair in PAIRS}) == len(PAIRS)
    public = [pair for pair in PAIRS if not pair.source.startswith(("this repository", "written for"))]
    assert all(pair.source for pair in PAIRS)
    assert len(public) * 3 >= len(PAIRS)
    assert sum(bool(re.search("[\u4e00-\u9fff]", pair.a)) for pair in PAIRS) >= 30
    held_out = sum(pair.is_held_out for pair in PAIRS)
    assert 0.4 < held_out / len(PAIRS) < 0.6


ENGLISH = [text for text in KNOWN if text.isascii()]


def test_a_lesson_and_its_denial_differ_by_a_negation():
    imperative = [
        t for t in ENGLISH if re.match(r"(?!No |If |Never |Avoid )[A-Z][a-z]+ ", t) and not t.startswith("Do n")
    ]
    assert len(imperative) > 300
    told = [
        "negation" in differences(text, f"{denial} {text[0].lower()}{text[1:]}")
        for text in imperative
        for denial in ("Never", "Do not")
    ]
    assert sum(told) >= 0.85 * len(told)


def test_a_lesson_with_another_number_differs_by_it():
    for text in KNOWN:
        for found in re.finditer(r"(?<![\w`./-])\d+(?![\w`./-])", text):
            other = f"{text[: found.start()]}{int(found[0]) + 7}{text[found.end() :]}"
            assert {"number", "version", "name"} & set(differences(text, other)), (text, other)


def test_near_gives_the_best_first_and_at_most_three():
    known = [(f"p-{n}", f"Never commit generated files to repository {n}") for n in range(9)]
    known.insert(5, ("p-best", "Never commit generated files"))
    found = near("Never commit generated files", known)
    assert len(found) == 3
    assert "p-best" in {n.id for n in found}


def test_what_means_the_same_is_near_whatever_its_words_are():
    known = [("p-1", "Never commit generated files"), ("p-2", "Rotate credentials at once")]
    assert [n.id for n in near("A leaked secret is to be renewed", known)] == []
    assert [n.id for n in near("A leaked secret is to be renewed", known, meaning={"p-2": 0.6, "p-9": 0.6})] == ["p-2"]
    assert [n.id for n in near("A leaked secret is to be renewed", known, meaning={"p-2": 0.4})] == []


def test_nothing_is_near_an_empty_text_or_among_no_lessons():
    assert near("a lesson", []) == []
    for empty in ("", "   ", "...", "``"):
        assert near(empty, [("p-1", "Never commit generated files"), ("p-2", empty)]) == []


def test_what_shares_a_word_alone_is_not_near():
    assert near("Never commit generated files to the repository", [("p-1", "Wait until the files are uploaded")]) == []


def test_rapidfuzz_is_imported_late():
    code = "import sys, fleet.text.similarity; print('rapidfuzz' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@given(st.text(max_size=300), st.text(max_size=300))
@settings(max_examples=120, deadline=None)
def test_any_text_is_compared_alike_in_both_directions_and_harms_nothing(one, other):
    there, back = near(one, [("p-1", other)]), near(other, [("p-1", one)])
    assert [(n.score, n.differs) for n in there] == [(n.score, n.differs) for n in back]
    assert all(0 <= n.score <= 1 for n in there)


@pytest.mark.parametrize(
    "text", ["a" * 8_000, "a " * 4_000, "`" * 8_000, "-" * 8_000, "不" * 2_700, "1 " * 4_000, "./" * 4_000]
)
def test_no_text_takes_long(text):
    with within(2):
        near(text, [(f"p-{n}", f"{text[:8_000]} {n}") for n in range(40)])
        Words(text).indexed()
        Words(text).phrases()


# The words of the index.


def table_of(*texts: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = '{similarity.TOKENIZER}')")
    connection.executemany("INSERT INTO words VALUES (?)", ((Words(text).indexed(),) for text in texts))
    return connection


def has(text: str, query: str) -> bool:
    asked = " AND ".join(Words(query).phrases())
    return bool(asked) and bool(table_of(text).execute("SELECT 1 FROM words WHERE words MATCH ?", (asked,)).fetchall())


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("贡献者提交 PR 后检查失败", ["贡献", "检查失败", "献", "PR 后检查"]),
        ("ロケールを固定する", ["固定", "ロケール"]),
        ("か\u3099くを", ["がく", "か\u3099"]),
        ("배포 전에 확인한다", ["확인", "배포"]),
        ("ตรวจสอบก่อนเสมอ", ["ก่อน"]),
        ("C++ and C# are not C", ["C++", "c++", "C#", "C"]),
        ("pass --json before -D to it", ["--json", "-D", "json"]),
        ("git branch -D deletes", ["git branch -D", "branch -D"]),
        ("copy .env and x->y (foo) 100%_done", [".env", "->", "x->y", "(foo)", "100%", "%_", "_done", "env"]),
        ("run pre-commit; see state.db, a::b", ["pre-commit", "state.db", "commit", "a::b", "state", "::b"]),
        ("Go 1.22 in CI, with `npm ci`", ["go", "CI", "1.22", "1.", "npm ci", "`npm"]),
        ("🎯 hit", ["🎯"]),
        ("use a\\b and 50 percent", ["a\\b", "\\"]),
        ('quote the paths; "cached" it was', ["caching", "path", "quoted"]),
        ("a=b && c || d; 2>&1", ["a=b", "&&", "||", "2>&1", ">&1"]),
    ],
)
def test_words_scripts_without_blanks_and_signs_are_found(text, queries):
    for query in queries:
        assert has(text, query), query
        assert not has("Nothing of it here, none", query), query


@pytest.mark.parametrize(
    ("text", "query"),
    [("Write C by hand", "C++"), ("Read json first", "--json"), ("go to env", ".env"), ("a b", "b a")],
)
def test_a_sign_that_means_something_and_an_order_are_not_left_out(text, query):
    assert not has(text, query)


@given(st.text(max_size=60))
@settings(max_examples=120, deadline=None)
def test_any_text_makes_a_sound_expression_and_is_found_by_itself(text):
    connection = table_of(text, "another")
    for asked in (" AND ".join(Words(text).phrases()), " OR ".join(Words(text).terms())):
        if asked:
            connection.execute("SELECT 1 FROM words WHERE words MATCH ?", (asked,)).fetchall()


def test_a_word_holds_the_letters_and_digits_of_latin_greek_cyrillic_and_armenian_and_no_others():
    assigned = [char for char in map(chr, range(0x3000)) if unicodedata.category(char) != "Cn"]
    letters = [char for char in assigned if char.isalnum() and unicodedata.is_normalized("NFC", char)]
    inside = {char for char in letters if Words(f"x{char}y").indexed() == f"x{char}y"}
    assert inside == {char for char in letters if char < "\u0590" or "\u1e00" <= char < "\u2000"}


def test_the_tokenizer_takes_ascii_apart_as_a_query_does():
    for char in map(chr, range(128)):
        connection = table_of(f"ab{char}cd")
        connection.execute("CREATE VIRTUAL TABLE term USING fts5vocab (words, instance)")
        found = connection.execute("SELECT term FROM term WHERE term < 'z' ORDER BY offset").fetchall()
        assert [term for (term,) in found] == [word.lower() for word in Words(f"ab{char}cd").words()], char


def test_the_other_wording_is_nearly_always_a_candidate(source):
    wanted = report.ask([pair for pair in PAIRS if pair.label == "same"], source)
    assert sum(each.was_candidate for each in wanted) >= 0.95 * len(wanted)


def test_an_expression_asks_for_the_words_that_tell_something():
    assert Words("You should always use the cache").terms() == ['"cache"']
    assert Words("the of a").terms() == []
    assert Words("数据库 connection").terms() == ['"connection"', '"数 据"', '"据 库"']
