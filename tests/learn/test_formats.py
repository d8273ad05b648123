"""What `fleet import` reads: every shape in the wild, each once, and nothing that is broken stops what is not."""

import base64
import json
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.learn.corrections_md import Correction, Draft, Record
from fleet.learn.formats import Bad, Finding, Lesson, read_records
from fleet.learn.notes import SkippedPiece
from fleet.recall.wording import Pages
from fleet.store.tree import FRONT_MARK
from fleet.text.dates import to_ms
from tests.records import AT, pattern

SHARED = Path(__file__).resolve().parents[3] / "shared"
JUNE_10 = 1_781_049_600_000
OWN_LINE = "this is fleet's own line: sync it, do not import it"


def corpus(name):
    path = SHARED / "corpora" / name
    if not path.exists():
        pytest.skip(f"no corpus at {path}")
    return path.read_bytes()


def read(text, name="patterns.jsonl"):
    return list(read_records(name, text if isinstance(text, bytes) else text.encode()))


def one(found, name="patterns.jsonl"):
    (item,) = read(json.dumps(found), name)
    return item


def lesson(**found):
    item = one(found)
    assert isinstance(item, Lesson), item
    return item


def finding(**found):
    item = one(found, "discoveries.jsonl")
    assert isinstance(item, Finding), item
    return item


def kinds(items):
    return [type(item).__name__ for item in items]


# The corpora


def test_the_fleets_patterns():
    items = read(corpus("fleet-records/patterns.jsonl"))
    assert kinds(items) == ["Lesson", "Lesson", "Bad", "Lesson"]
    backoff, types, bad, cache = items
    assert backoff.text.startswith("Wrap flaky network calls in exponential backoff")
    assert backoff.correct == "Fixed delays synchronize retries across clients and re-create the outage."
    assert (backoff.title, backoff.agent) == ("Retry with jittered backoff", "backend")
    assert backoff.tags == ("networking", "resilience")
    assert types.text.startswith("Model IDs, temperatures, and money")
    assert (types.title, types.correct) == ("Prefer domain types over primitives", "")
    assert (bad.line, bad.raw) == (3, b"this is not valid json and must be skipped")
    assert bad.reason.startswith("not JSON")
    assert (cache.text, cache.title) == ("Cache read-heavy lookups behind a 5-minute TTL keyed by user id.", "")
    assert (cache.seen, cache.at_ms, cache.category) == (1, None, "")


def test_the_fleets_discoveries():
    first, second, third = read(corpus("fleet-records/discoveries.jsonl"), "discoveries.jsonl")
    assert (first.entry.type, first.entry.context) == ("discovery", "Investigating slow cold starts.")
    assert first.entry.problem == "Lambda cold starts exceed 4s on first invoke."
    assert first.entry.solution.startswith("Enable provisioned concurrency")
    assert (first.entry.confidence, first.agent, first.entry.minutes) == ("high", "research-bot", None)
    assert (first.at_ms, first.entry.tags) == (1_780_315_200_000, ("research", "performance"))
    assert (second.entry.problem, second.entry.context) == ("Duplicate writes under concurrent ingest.", "")
    assert isinstance(third, SkippedPiece)
    assert third[:2] == (3, "retracted")


def test_the_fleets_archive_pending_corrections_and_corrections():
    (old,) = read(corpus("fleet-records/discoveries-archive.jsonl"), "discoveries-archive.jsonl")
    old = old.entry
    assert (old.problem, old.confidence, old.tags) == ("Old auth token TTL was 24h.", "medium", ("security",))
    (pending,) = read(corpus("fleet-records/pending-corrections.jsonl"), "pending-corrections.jsonl")
    assert (pending.text, pending.title) == ("Prefer ast-grep for code search",) * 2
    assert pending.correct == "Use ast-grep for structural code queries instead of plain grep."
    stevie, bulk = read(corpus("fleet-records/corrections.md"), "corrections.md")
    assert (stevie.text, stevie.title) == ("Address the user as Stevie",) * 2
    assert stevie.correct == "Always use the preferred name in replies, not the full account name."
    assert (bulk.text, bulk.seen, bulk.replica) == ("Never bulk-commit unrelated changes", 1, "")


def test_all_194_lessons_are_lessons():
    data = corpus("lessons/lessons.jsonl")
    items = read(data, "lessons.jsonl")
    assert len(items) == 194
    assert set(kinds(items)) == {"Lesson"}
    wild = [json.loads(line) for line in data.splitlines()]
    for item, found in zip(items, wild, strict=True):
        assert (item.text, item.title) == (found["description"].strip(), found["title"].strip())
        assert item.tags == tuple(found["tags"])
        assert item.category == found["domain"]
        assert (item.at_ms is None) == (found["timestamp"] == "")
    assert items[1].at_ms == JUNE_10
    assert len({item.identity for item in items}) == len({(f["title"], f["description"], f["timestamp"]) for f in wild})


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.md", "x", "discoveries.jsonl"])
def test_the_json_test_suite_stops_no_good_line(name):
    good = b'{"title": "good"}'
    for line in corpus("json/json-test-suite.jsonl").splitlines():
        case = json.loads(line)
        raw = base64.b64decode(case["base64"])
        read(raw, name)
        if name == "x.jsonl":
            items = read(good + b"\n" + raw + b"\n" + good)
            assert [items[0].text, items[-1].text] == ["good", "good"], case["name"]
            assert not [item for item in items[1:-1] if isinstance(item, Finding)]


def test_naughty_strings_are_read_as_they_are():
    for text in json.loads(corpus("strings/blns.json")):
        item = one({"pattern": text, "solution": text})
        if isinstance(item, Lesson):
            assert (item.text, item.correct) == (text.strip(), text.strip())
        else:
            assert not text.strip()


# Lessons


def test_a_flat_record_has_its_lesson_in_the_title():
    item = lesson(
        id="p-velma-1774952228616",
        uuid="u-1",
        agent="velma",
        harness="claude-code",
        clan="scooby",
        ts="2026-06-10T00:00:00Z",
        category="git",
        title="Rebase before push",
        problem="Merge noise",
        solution="git pull --rebase",
        tags=["git"],
        status="active",
        supersedes=None,
    )
    assert (item.text, item.title, item.correct) == ("Rebase before push", "Rebase before push", "git pull --rebase")
    assert (item.category, item.agent, item.at_ms, item.tags) == ("git", "velma", JUNE_10, ("git",))
    assert "Merge noise" in item.identity


def test_text_is_the_pattern_else_the_description_else_the_title_else_the_name():
    found = {"pattern": "p", "description": "d", "title": "t", "name": "n"}
    for text, title in (("p", "t"), ("d", "t"), ("t", "t"), ("n", "n")):
        item = lesson(**found)
        assert (item.text, item.title) == (text, title)
        del found[next(iter(found))]


def test_correct_is_the_solution_else_the_rationale_else_the_correction():
    found = {"solution": "s", "rationale": "r", "correction": "c"}
    for correct in ("s", "r", "c"):
        assert lesson(title="t", **found).correct == correct
        del found[next(iter(found))]
    assert lesson(title="t").correct == ""


@pytest.mark.parametrize("empty", [None, "", "  \n"])
def test_an_empty_field_is_an_absent_one(empty):
    item = lesson(pattern=empty, description="d", solution=empty, rationale="r", category=empty, domain="x")
    assert (item.text, item.correct, item.category) == ("d", "r", "x")


def test_occurrences_are_a_positive_number_within_reason():
    for name in ("occurrences", "count", "seen"):
        assert lesson(title="t", **{name: 3}).seen == 3
    for odd in (0, -1, True, "3", 2.5, 1_000_001, None, [3]):
        assert lesson(title="t", count=odd).seen == 1
    assert lesson(title="t", count=1_000_000).seen == 1_000_000


def test_tags_are_strings_from_a_list_or_between_commas():
    assert lesson(title="t", tags=[" a ", 1, None, "", "b", "a", ["c"]]).tags == ("a", "b")
    assert lesson(title="t", tags="a, b,,c").tags == ("a", "b", "c")
    assert lesson(title="t", tags={"a": 1}).tags == ()
    assert lesson(title="t", tags=[str(number) for number in range(50)]).tags == tuple(map(str, range(32)))


def test_what_a_record_can_do_without_may_be_of_any_type():
    item = lesson(title="t", agent=5, category=[1], domain="d", source=None, status={}, id=7, ts={}, type=[])
    assert (item.agent, item.category) == ("", "d")


# Discoveries


@pytest.mark.parametrize(
    "found",
    [
        {"id": "d-velma-17", "problem": "p", "solution": "s"},
        {"id": "disc-17", "title": "p", "insight": "s"},
        {"type": "gotcha", "problem": "p", "solution": "s", "title": "t", "category": "c"},
        {"type": "Tip", "problem": "p", "solution": "s"},
        {"context": "c", "problem": "p", "solution": "s"},
    ],
)
def test_a_discovery_says_that_it_is_one(found):
    item = one(found, "whatever.jsonl")
    assert isinstance(item, Finding)
    assert (item.entry.problem, item.entry.solution) == ("p", "s")


def test_a_discovery_may_be_known_by_its_file_only():
    found = {"problem": "p", "solution": "s", "title": "t"}
    assert isinstance(one(found, "clan/Discoveries-archive.jsonl"), Finding)
    assert isinstance(one(found, "patterns.jsonl"), Lesson)
    for is_lesson in ({"type": "lesson", "title": "t", "problem": "p"}, {"id": "p-velma-1", **found}, {"title": "t"}):
        assert isinstance(one(is_lesson, "discoveries.jsonl"), Lesson)


def test_a_lesson_with_the_fields_of_a_discovery_is_a_lesson():
    for key in ("title", "category"):
        found = {"context": "c", "problem": "p", "solution": "s", "description": "d", key: "x"}
        assert isinstance(one(found), Lesson)


def test_the_first_shape_of_a_discovery():
    item = finding(
        id="d-velma-1",
        type="workaround",
        agent="velma",
        ts="2026-06-10",
        context="CI on arm64",
        problem="p",
        solution="s",
        tags=["ci"],
        confidence="High",
        minutes=40,
    )
    entry = item.entry
    assert (entry.type, entry.context, entry.problem, entry.solution) == ("workaround", "CI on arm64", "p", "s")
    assert (entry.tags, entry.confidence, entry.minutes) == (("ci",), "high", 40)
    assert (item.agent, item.at_ms) == ("velma", JUNE_10)


def test_the_second_shape_of_a_discovery():
    item = finding(id="disc-9", ts=JUNE_10, agent="tank", session_id="s", title="t", insight="i", matched_signals=["x"])
    entry = item.entry
    assert (entry.type, entry.problem, entry.solution, entry.context) == ("discovery", "t", "i", "")
    assert (item.agent, item.at_ms) == ("tank", JUNE_10)


@pytest.mark.parametrize(
    ("said", "is_read_as"),
    [
        (0, "low"),
        (0.49, "low"),
        (0.5, "medium"),
        (0.79, "medium"),
        (0.8, "high"),
        (1, "high"),
        ("LOW", "low"),
        ("sure", ""),
        (None, ""),
        (True, ""),
        ([], ""),
    ],
)
def test_confidence_is_a_word(said, is_read_as):
    assert finding(problem="p", confidence=said).entry.confidence == is_read_as


def test_minutes_are_a_whole_number():
    assert [finding(problem="p", minutes=m).entry.minutes for m in (0, 40, -1, "40", True, 1.5)] == [0, 40, *[None] * 4]


# Times


@pytest.mark.parametrize(
    "said",
    [
        "2026-06-10",
        "2026-6-10",
        "2026/06/10",
        "2026-06-10 00:00:00 UTC",
        "2026-06-10T00:00:00Z",
        "2026-06-10T00:00:00.000Z",
        "2026-06-10T00:00:00",
        "2026-06-10T02:00:00+02:00",
        "2026-06-10 02:00 +0200",
        "2026-06-09T19:30:00-04:30",
        "2026-6-10 0:00",
        "2026-06-10T00:00:00.000Z-0000",
        "20260610T000000Z",
        " 2026-06-10 ",
        JUNE_10,
        JUNE_10 / 1000,
        JUNE_10 // 1000,
        str(JUNE_10),
        str(JUNE_10 // 1000),
    ],
)
def test_a_time_is_read_however_it_is_said(said):
    assert to_ms(said) == JUNE_10


@pytest.mark.parametrize(
    "said",
    [
        "",
        "soon",
        "2026-13-01",
        "2026-02-30",
        "2026-06-10T25:00",
        "1999-12-31",
        "2101-01-01",
        "9999-12-31",
        "0000-00-00",
        "2026-06-10T00:00:00+99:99",
        "2026-06-10 or so",
        "9" * 500,
        0,
        -1,
        1e300,
        float("nan"),
        float("inf"),
        10**18,
        pytest.param(10**400, id="10**400"),
        pytest.param(-(10**400), id="-(10**400)"),
        True,
        None,
        [],
        {},
        5_000_000_000_000,
    ],
)
def test_no_time_is_better_than_a_wrong_one(said):
    assert to_ms(said) is None


def test_milliseconds_and_the_edges_of_the_range_are_exact():
    assert to_ms("2026-06-10T00:00:00.123Z") == JUNE_10 + 123
    assert to_ms("2026-06-10T00:00:00,5") == JUNE_10 + 500
    assert to_ms("2000-01-01") == 946_684_800_000 == to_ms(946_684_800)
    assert to_ms("1999-12-31T23:59:59.999Z") is None
    assert to_ms("2100-12-31T23:59:59Z") == 4_133_980_799_000 == to_ms(4_133_980_799)


@pytest.mark.parametrize("name", ["ts", "timestamp", "created", "created_at", "date", "at"])
def test_every_key_of_a_time_is_known(name):
    assert lesson(title="t", **{name: "2026-06-10"}).at_ms == JUNE_10


def test_an_unreadable_time_gives_way_to_a_readable_one():
    assert lesson(title="t", ts="soon", created="2026-06-10").at_ms == JUNE_10


# Identity


def test_one_record_met_twice_has_one_identity():
    found = {"id": "a", "title": "t é", "description": "d  e", "ts": "2026-06-10T00:00:00Z", "agent": "x", "tags": []}
    same = {"ts": JUNE_10, "description": " d\te", "title": "t e\u0301", "uuid": "b", "path": "elsewhere", "count": 9}
    assert one(found, "a.jsonl").identity == one(same, "b.json").identity
    assert read(json.dumps([same], indent=3), "c.json")[0].identity == one(found).identity


@pytest.mark.parametrize("changed", [{"title": "u"}, {"description": "u"}, {"solution": "u"}, {"ts": "2026-06-11"}])
def test_another_title_body_or_time_is_another_record(changed):
    found = {"title": "t", "description": "d", "solution": "s", "ts": "2026-06-10"}
    assert one(found).identity != one({**found, **changed}).identity


def test_another_finding_is_another_record():
    found = {"problem": "p", "solution": "s", "context": "c", "ts": "2026-06-10"}
    changes = [{}, {"problem": "x"}, {"solution": "x"}, {"context": "x"}, {"ts": "2026-06-11"}]
    assert len({finding(**{**found, **change}).identity for change in changes}) == 5
    assert finding(**found, id="disc-1", agent="a").identity == finding(**found, id="disc-2", agent="b").identity


# Skipped


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"title": "t", "retracted": True}, "retracted"),
        ({"title": "t", "status": "superseded"}, "superseded"),
        ({"title": "t", "status": "Retracted"}, "retracted"),
        *(({"title": "t", "status": gone}, gone) for gone in ("retired", "archived", "deprecated", "rejected")),
        ({"title": "t", "superseded_by": "p-2"}, "superseded"),
        ({"title": "t", "pattern": "_to be inferred at promotion time_"}, "its pattern is still to be inferred"),
        ({"id": "p-3f9c1a2b7d4e5f60", "add": {}, "set": {"text": "x"}}, OWN_LINE),
        ({"id": "p-3f9c1a2b7d4e5f60", "n": 5, "title": "t"}, OWN_LINE),
        ({"id": "d-91be02c4aa107d3e", "by": "velma.09ab12cd", "problem": "p"}, OWN_LINE),
        ({"id": "d-91be02c4aa107d3e", "retracts": "d-91be02c4aa107d3f"}, OWN_LINE),
    ],
)
def test_what_is_rightly_left_out(found, reason):
    left = one(found)
    assert isinstance(left, SkippedPiece)
    assert left[:2] == (1, reason)
    assert left.text in (found.get("title"), found.get("pattern"), found.get("problem"), found.get("id"))


def test_what_only_resembles_it_is_taken():
    for found in ({"retracted": False}, {"status": "active"}, {"id": "p-3f9c"}, {"id": "p-3f9c1a2b7d4e5f60"}, {"n": 5}):
        assert isinstance(one({"title": "t", **found}), Lesson), found


def test_of_a_record_and_the_one_that_supersedes_it_the_later_is_taken():
    older, newer = {"id": "p-a-1", "title": "old"}, {"id": "p-a-2", "title": "new", "supersedes": "p-a-1"}
    items = read(f"{json.dumps(older)}\n{json.dumps(newer)}\n")
    assert items[0] == SkippedPiece(1, "superseded by a later record", "old")
    assert items[1].text == "new"
    retracted = {**newer, "retracted": True}
    assert kinds(read(f"{json.dumps(older)}\n{json.dumps(retracted)}\n")) == ["Lesson", "SkippedPiece"]
    assert kinds(read(json.dumps([older, {**newer, "supersedes": ["p-a-1", 5]}]))) == ["SkippedPiece", "Lesson"]


def test_two_records_that_supersede_each_other_are_not_both_lost():
    pair = [{"id": "a", "title": "x", "supersedes": "b"}, {"id": "b", "title": "y", "supersedes": "a"}]
    assert kinds(read(json.dumps(pair))) == ["SkippedPiece", "Lesson"]


# Bad


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"nonsense", "not JSON"),
        (b'{"title": "t"', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"title": "t", "title": "u"}', "the same key twice"),
        (b'{"title": "t", "x": NaN}', "NaN"),
        (b'{"title": "t", "x": -Infinity}', "Infinity"),
        (b'{"title": "t", "x": 1e999}', "too large"),
        (b'{"title": "t", "x": 9007199254740993}', "2^53"),
        (b'{"title": "t", "x": ' + b"9" * 5000 + b"}", "2^53"),
        (b'{"title": "\\ud800"}', "surrogate"),
        (b'{"title": "t", "x": ' + b"[" * 30000 + b"]" * 30000 + b"}", "nested deeper than 16"),
        (b'{"title": "t", "x": "' + b"x" * 70000 + b'"}', "longer than 65536 bytes"),
        (b'{"title": "' + b"x" * 8193 + b'"}', "'title' is longer than 8192 bytes"),
        (b'{"title": "t", "rationale": "' + "é".encode() * 4097 + b'"}', "'rationale' is longer"),
        (b'{"title": "t", "tags": ["' + b"x" * 8193 + b'"]}', "longer than 8192"),
        (b'{"title": "t\xff"}', "not UTF-8"),
        (b"\x00\x01\x02", "not JSON"),
        (b"{}", "nothing to read as its text"),
        (b'{"title": "", "pattern": " "}', "nothing to read as its text"),
        (b'{"tags": ["x"]}', "nothing to read as its text"),
        (b'{"type": "gotcha", "solution": "s"}', "nothing to read as its text"),
        (b'{"title": 5}', "'title' is no text"),
        (b'{"title": "t", "pattern": ["p"]}', "'pattern' is no text"),
        (b'{"title": "t", "solution": {}}', "'solution' is no text"),
        (b'{"id": "d-1", "problem": true}', "'problem' is no text"),
    ],
)
def test_a_bad_line_says_why_keeps_its_bytes_and_stops_no_other(raw, reason):
    first, bad, last = read(b'{"title": "a"}\n' + raw + b'\n{"title": "b"}\n')
    assert (first.text, last.text) == ("a", "b")
    assert isinstance(bad, Bad), bad
    assert (bad.line, bad.raw) == (2, raw[:65536])
    assert reason in bad.reason


def test_what_is_just_within_the_limits_is_taken():
    assert isinstance(one({"title": "t", "x": json.loads("[" * 15 + "]" * 15), "n": 2**53 - 1}), Lesson)
    assert len(lesson(title="x" * 8192).text) == 8192


def test_blank_lines_line_ends_byte_order_marks_and_conflict_markers_are_no_records():
    good = b'{"title": "a"}\r\n'
    conflict = b"<<<<<<< HEAD\r\n" + good + b"||||||| 1a2b\n=======\n" + good + b">>>>>>> theirs\n"
    items = read(b"\xef\xbb\xbf\n" + good + b"\n  \r\n" + conflict + b"\xef\xbb\xbf" + good.strip())
    assert [item.text for item in items] == ["a"] * 4
    assert read(b"") == read(b"\n \n") == read(b"\xef\xbb\xbf") == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_page_in_utf_16_is_read_by_its_mark(encoding):
    page = "\ufeff# Lessons\r\n\r\n- Always quote a path with a blank\r\n"
    (item,) = read_records("lessons.md", page.encode(encoding))
    assert (item.text, item.line) == ("Always quote a path with a blank", 3)


def test_a_page_is_judged_by_its_own_name_and_not_by_that_of_its_folder():
    page = b"# Lessons\n\nAppend only what holds, and never a story.\n\n- Always quote a path with a blank\n"
    assert list(read_records(".claude/learnings.md", page)) == list(read_records("learnings.md", page))


# Documents


@pytest.mark.parametrize("key", ["patterns", "lessons", "discoveries", "corrections", "records"])
def test_an_object_with_a_list_of_records_gives_each(key):
    found = {"version": 1, "title": "Export", key: [{"title": "a"}, 5, {"title": "b"}]}
    for name in ("x.json", "x.jsonl", "x"):
        for indent in (None, 2):
            items = read(json.dumps(found, indent=indent), name)
            assert kinds(items) == ["Lesson", "Bad", "Lesson"]
            assert items[1].raw == b"5"


def test_a_document_of_one_object_is_one_record():
    (item,) = read(
        json.dumps({"title": "t", "lessons": ["not", "records"], "x": {"patterns": [{}]}}, indent=2), "x.json"
    )
    assert item.text == "t"


def test_in_an_array_a_bad_element_stops_no_other_and_lines_are_told():
    text = (
        '[\n  {"title": "a"},\n  {"title": "b", "title": "c"},\n\n  {"title": "d",\n   "x": 9007199254740993}, '
        '{"title": "e"}\n]\n'
    )
    items = read(text, "x.json")
    assert kinds(items) == ["Lesson", "Bad", "Bad", "Lesson"]
    assert [(item.line, item.raw[:12]) for item in items[1:3]] == [(3, b'{"title": "b'), (5, b'{"title": "d')]


def test_a_document_that_is_no_json_is_read_by_line():
    torn = '[\n {"title": "a"},\n {"title": "b"}\n'
    assert kinds(read(torn, "x.json")) == ["Bad", "Bad", "Lesson"]
    conflict = '[\n<<<<<<< HEAD\n{"title": "a"}\n=======\n{"title": "b"}\n>>>>>>> x\n]\n'
    assert kinds(read(conflict, "x.json")) == ["Bad", "Lesson", "Lesson", "Bad"]


def test_content_decides_and_not_the_name():
    lines = '{"title": "a"}\n{"title": "b"}\n'
    page = "## 2026-06-10 — t\n**Pattern:** a\n\n## 2026-06-10 — u\n**Pattern:** b\n"
    for name in ("x.jsonl", "x.json", "x.md", "x", "x.txt", ""):
        assert [item.text for item in read(lines, name)] == ["a", "b"], name
        assert [item.text for item in read(json.dumps([{"title": "a"}, {"title": "b"}], indent=1), name)] == ["a", "b"]
        assert [item.text for item in read(page, name)] == ["a", "b"], name


def test_a_remark_above_json_lines_makes_them_no_page():
    assert kinds(read('# remark\n{"title": "a"}\n', "x.jsonl")) == ["Bad", "Lesson"]
    assert kinds(read('oops\n{"title": "a"}\n', "x.json")) == ["Bad", "Lesson"]


# Pages


def test_an_entry_of_a_page_is_a_lesson():
    page = Draft(Correction("w", "r", "p", "t", "s"), "2026-06-10 00:00Z").render()
    (item,) = read(f"# Corrections\n\n{page}", "corrections.md")
    assert (item.text, item.correct, item.title) == ("p", "r", "t")
    assert (item.at_ms, item.seen, item.agent, item.replica) == (JUNE_10, 1, "", "")
    assert json.loads(item.identity)[4] == "w"


def test_an_entry_that_was_counted_says_so():
    page = Draft(Correction("", pattern="p", title="t"), "").render()
    said = Record("c-00000000000000aa", "p-3f9c1a2b7d4e5f60", "velma.09ab12cd", "2026-11-20T22:30:00.123Z-0000", "s")
    (item,) = read(page + said.render() + "\n", "corrections.md")
    assert (item.agent, item.replica) == ("velma", "velma.09ab12cd")
    assert item.identity == read(page, "corrections.md")[0].identity


def test_an_entry_without_a_pattern_is_left_out():
    auto = "## 2026-06-10 — t\n**User flagged:** no\n**Pattern:** _to be inferred at promotion time_\n"
    assert read(auto, "corrections.md") == [SkippedPiece(1, "its pattern is still to be inferred")]


def test_an_entry_by_hand_that_names_the_right_way_only_is_a_lesson_all_the_same():
    hand = "\n## 2026-06-10 — Wrong port\n**Wrong:** it was 80\n**Correct:** listen on 8080 behind the proxy\n"
    (item,) = read(hand, "corrections.md")
    assert (item.text, item.line) == ("Wrong port: listen on 8080 behind the proxy", 2)
    assert json.loads(item.identity)[4] == "it was 80"


def test_a_line_that_nobody_wrote_as_text_is_left_out_and_stops_no_other():
    long = f"## t\n**Pattern:** {'x' * 9000}\n\n"
    items = read(f"{long}## u\n**Pattern:** Pin the port\n", "corrections.md")
    assert [item.text for item in items if isinstance(item, Lesson)] == ["Pin the port"]
    reasons = {item.line: getattr(item, "reason", "") for item in items}
    assert reasons[2] == "it is a line of more than 4,096 characters"


def test_an_entry_of_fleets_own_that_is_too_long_is_bad_and_stops_no_other():
    long = f"## t\n**What I got wrong:** w\n**Pattern:** {'x' * 9000}\n\n"
    bad, good = read(f"{long}## u\n**Pattern:** p\n", "corrections.md")
    assert (bad.line, bad.reason, bad.raw) == (1, "'pattern' is longer than 8192 bytes", long.encode())
    assert good.text == "p"


def test_a_page_that_is_none_is_bad_and_an_empty_one_is_empty():
    assert kinds(read(b"\x00\xff" * 50, "corrections.md")) == ["Bad"]
    assert kinds(read("# Corrections\n\nNone yet.\n", "corrections.md")) == ["SkippedPiece"]
    assert read("", "corrections.md") == []


# Any bytes

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "id",
    "ts",
    "at",
    "type",
    "title",
    "name",
    "pattern",
    "description",
    "problem",
    "solution",
    "context",
    "insight",
]
KEYS += [
    "tags",
    "confidence",
    "minutes",
    "count",
    "retracted",
    "status",
    "supersedes",
    "patterns",
    "records",
    "by",
    "n",
]
objects = st.dictionaries(st.sampled_from(KEYS), values | st.sampled_from(["t", "d-1", "tip"]), max_size=6)
bytes_of_any_kind = st.one_of(
    st.binary(),
    st.lists(objects.map(json.dumps), max_size=4).map(lambda lines: "\n".join(lines).encode()),
    st.lists(objects, max_size=4).map(lambda found: json.dumps({"patterns": found}, indent=1).encode()),
    st.lists(st.sampled_from(["{", "}", "[", "]", '"a"', ":", ",", "\n", "\\", "# ", "0", "<<<<<<< x\n"])).map(
        lambda parts: "".join(parts).encode()
    ),
)
file_names = st.sampled_from(["x.jsonl", "x.json", "x.md", "x", "discoveries.jsonl", "a/b\\c.json"])


@settings(max_examples=100, deadline=None)
@given(name=file_names, data=bytes_of_any_kind, cut=st.integers(0, 400))
def test_no_bytes_make_it_raise_and_every_item_keeps_its_limits(name, data, cut):
    for raw in (data, data[:cut]):
        for item in read(raw, name):
            if isinstance(item, Lesson | Finding):
                assert (item.text if isinstance(item, Lesson) else item.entry.problem).strip()
                assert len((item if isinstance(item, Lesson) else item.entry).tags) <= 32
                assert isinstance(json.loads(item.identity), list)
            else:
                assert item.line >= 1
                assert item.reason
            assert read(raw, name) == read(raw, name)


@settings(max_examples=100, deadline=None)
@given(st.lists(objects.filter(lambda found: not {"patterns", "records"} & set(found)), max_size=6))
def test_lines_and_a_document_of_them_say_the_same(found):
    assume(not re.search("NaN|Infinity", json.dumps(found)))
    lines = read("\n".join(json.dumps(record) for record in found))
    document = read(json.dumps(found))
    assert kinds(lines) == kinds(document)
    said = [[i.identity for i in items if isinstance(i, Lesson | Finding)] for items in (lines, document)]
    assert said[0] == said[1]


def test_a_page_that_fleet_rendered_is_no_page_of_lessons():
    known = pattern("p-0000000000000001", {"tank.c0ffee42": 1}, add={"tank.c0ffee42": AT}, text="Prefer composition")
    pages = Pages()
    for page in (pages.lessons([known]), pages.lessons([]), f"{FRONT_MARK}\n# Learned\n\n- Prefer composition\n"):
        (left,) = read(page, "patterns.md")
        assert left.reason == "this is a page that fleet renders: sync its lines, do not import it"
    (quoting,) = read(f"# L\n\n- Never edit what has `{FRONT_MARK[:40]}` in it\n", "lessons.md")
    assert isinstance(quoting, Lesson)


def test_a_backslash_at_the_end_of_a_line_breaks_it():
    (lesson,) = read(
        "# L\n\n## Errors\n- **Wrong:** edited `a\\`\\\n  **Right:** create a branch first\n", "lessons.md"
    )
    assert (lesson.text, json.loads(lesson.identity)[4]) == ("create a branch first", "edited `a\\`")
