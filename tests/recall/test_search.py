"""Search: everything known can be found, whatever was typed, and whatever has become of the index."""

import json
import os
import random
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from benchmarks.data import edition, patterns
from crdt import clock
from fleet import RELEASED_MS
from fleet.cli.search import pages
from fleet.keep import config, edits, index, indexing, reading
from fleet.keep.discoveries import Discovery, discovery_id, retraction_id
from fleet.keep.line import Line, encode
from fleet.keep.reading import DISCOVERIES, PATTERNS
from fleet.keep.sources import Sources
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.recall.search import SNIPPET_CHARS, search, snippet, terms

COUNT = int(os.environ.get("FLEET_SEARCH_PATTERNS", "5000"))
SEEDS = int(os.environ.get("FLEET_SEARCH_SEEDS", "12"))
ME, OTHER = "velma.09ab12cd", "tank.c0ffee42"
NOW_MS = RELEASED_MS + 40 * 86_400_000
LONG_AGO = 1_700_000_000


class Clan:
    """A workspace in a temporary folder, and the answers to what is asked of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ms = NOW_MS
        (root / config.FILE_NAME).write_text(config.render("", "fleet"))
        self.again()

    def again(self) -> None:
        """Open the workspace as the next process would."""
        world = World(wall_ms=lambda: self.now_ms, machine=lambda: "machine", durable=False)
        self.workspace = Workspace(self.root, world)

    def ask(self, query: str, **more):
        try:
            return indexing.answer(self.workspace, pages(self.workspace), lambda tables: search(tables, query, **more))
        finally:
            self.workspace.close()

    def found(self, query: str, **more) -> list[str]:
        """Return what is found, by id or heading."""
        return [hit.id or hit.text for hit in self.ask(query, **more).hits]

    def write(self, path: str, data: bytes | str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def edition(self, *lines: Line) -> Path:
        return self.write("clan-learnings/patterns.jsonl", b"".join(encode(line) + b"\n" for line in lines))

    def append(self, *lines: Line, replica: str = OTHER) -> None:
        self.workspace.store.append(PATTERNS, replica, lines)

    def settle(self) -> None:
        """Let all files look as if nobody had written them for long."""
        for file in self.root.rglob("*"):
            if file.is_file() and ".fleet" not in file.parts:
                os.utime(file, (LONG_AGO, LONG_AGO))


@pytest.fixture
def clan(tmp_path):
    made = Clan(tmp_path)
    yield made
    assert not made.workspace.warnings


def stamp(number: int = 0) -> str:
    return clock.pack(NOW_MS - 1_000_000 + number)


def lesson(number: int, text: str, *, by: str = OTHER, seen: int = 1, **fields) -> Line:
    return Line(
        id=f"p-{number:016x}",
        at=stamp(number),
        by=by,
        add={by: stamp(number)},
        n={"seen": {by: seen}},
        set={"text": text, **fields},
    )


def ids(*numbers: int) -> list[str]:
    return [f"p-{number:016x}" for number in numbers]


def finding(problem: str, solution: str = "", **fields) -> Discovery:
    found = discovery_id("tip", "", problem, solution)
    return Discovery(id=found, at=stamp(), by=OTHER, type="tip", problem=problem, solution=solution, **fields)


# --- what is found --------------------------------------------------------------------------------------------------


def test_each_kind_is_found_and_says_where_it_stands(clan):
    clan.edition(lesson(1, "Pin the zeppelin image", correct="by digest", category="ci"))
    clan.workspace.store.append(DISCOVERIES, OTHER, [finding("the zeppelin wheel is x86", "build it")])
    clan.write(
        "agents/velma/corrections.md",
        "# Corrections\n\n## 2026-03-15 14:30Z — Wrong airship\n**What I got wrong:** zeppelin\n"
        "**Correct approach:** blimp\n**Source:** tank\n**Pattern:** Ask which airship\n",
    )
    clan.write("agents/tank/JOURNAL.md", "# JOURNAL — main\n\n## 2026-03-17 09:00 — Hangar\nA zeppelin, again.\n")
    found = {hit.kind: hit for hit in clan.ask("zeppelin").hits}
    assert {kind: (hit.where, hit.who, hit.at[:10], hit.text) for kind, hit in found.items()} == {
        "pattern": ("clan-learnings/patterns.jsonl", "tank", stamp()[:10], "Pin the zeppelin image"),
        "discovery": (f"clan-learnings/discoveries.d/{OTHER}.jsonl", "tank", stamp()[:10], "the zeppelin wheel is x86"),
        "correction": ("agents/velma/corrections.md:3", "velma", "2026-03-15", "Wrong airship"),
        "journal": ("agents/tank/JOURNAL.md:3", "tank", "2026-03-17", "2026-03-17 09:00 — Hangar"),
    }
    for kind in index.KINDS:
        assert [hit.kind for hit in clan.ask("zeppelin", kinds=(kind,)).hits] == [kind]


@pytest.mark.parametrize("field", ["correct", "category", "title"])
def test_the_fields_of_a_pattern_are_searched(clan, field):
    clan.edition(lesson(1, "one"), lesson(2, "two", **{field: "quokka"}), lesson(3, "three", tags=["quokka", "x"]))
    assert sorted(clan.found("quokka")) == ids(2, 3)


def test_words_are_all_wanted_and_only_the_last_may_be_cut_short(clan):
    clan.edition(lesson(1, "quote template paths"), lesson(2, "quote the tempo"), lesson(3, "unrelated"))
    assert sorted(clan.found("quote temp")) == ids(1, 2)
    assert clan.found("QUOTE PATHS") == ids(1)
    assert clan.found("quote unrelated") == []
    assert sorted(clan.found("temp quote")) == ids(1, 2)  # no such word: so it is looked for as a part of one


def test_a_whole_word_does_not_keep_longer_ones_away(clan):
    clan.edition(lesson(1, "the template"), lesson(2, "the templates"), lesson(3, "贡献者 x"), lesson(4, "大贡献者们"))
    assert sorted(clan.found("template")) == ids(1, 2)
    assert sorted(clan.found("贡献者")) == ids(3, 4)


def test_a_quoted_phrase_wants_its_words_in_order_and_whole(clan):
    clan.edition(lesson(1, "fetch the full history"), lesson(2, "history of a full fetch"))
    assert clan.found('"full history"') == ids(1)
    assert clan.found('"full histor') == ids(1)  # as a part of the text: no word is cut in a phrase
    assert clan.found('"full fetch" history') == ids(2)


def test_case_accents_and_composed_letters_do_not_matter(clan):
    clan.edition(lesson(1, "Cafe\u0301 Überlauf"), lesson(2, "ΣΊΣΥΦΟΣ Ёлка"))
    for query in ("café", "CAFÉ", "cafe", "Cafe\u0301", "überlauf", "uberlauf"):
        assert clan.found(query) == ids(1), query
    for query in ("σίσυφος", "ёлка", "ЁЛ", "лка"):
        assert clan.found(query) == ids(2), query


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("贡献者提交 PR 后检查失败", ["贡献", "检查失败", "献", '"PR 后检查"']),
        ("ロケールを固定する", ["固定", "ロケール"]),
        ("か\u3099くを", ["がく", "か\u3099"]),
        ("배포 전에 확인한다", ["확인", "배포"]),
        ("ตรวจสอบก่อนเสมอ", ["ก่อน"]),
        ("C++ and C# are not C", ["C++", "c++", "C#", "C"]),
        ("pass --json before -D to it", ["--json", "-D", "json"]),
        ("git branch -D deletes", ["git branch -D", '"branch -D"', "branch -d"]),
        ("copy .env and x->y (foo) 100%_done", [".env", "->", "x->y", "(foo)", "100%", "%_", "_done"]),
        ("run pre-commit; see state.db, a::b", ["pre-commit", "state.db", "commit", "a::b", "state"]),
        ("Go 1.22 in CI", ["go", "CI", "1.22", "1."]),
        ("🎯 hit", ["🎯"]),
        ("use a\\b and 50 percent", ["a\\b", "\\"]),
    ],
)
def test_what_the_tokenizer_cannot_serve_is_looked_for_in_the_text(clan, text, queries):
    clan.edition(lesson(1, text), lesson(2, "Nothing of it here, none"))
    for query in queries:
        answer = clan.ask(query)
        assert [hit.id for hit in answer.hits][:1] == ids(1), query
        assert not answer.is_near, query


def test_a_sign_that_means_something_is_not_left_out(clan):
    clan.edition(lesson(1, "Write C by hand"), lesson(2, "git branch -d is safe"))
    assert clan.found("C++") == []
    assert clan.found("--json") == []
    clan.edition(lesson(3, "Read json first"))
    answer = clan.ask("--json")
    assert ([hit.id for hit in answer.hits], answer.is_near) == (ids(3), True)


def test_short_words_come_before_parts_of_words(clan):
    clan.edition(lesson(1, "decide on the city", seen=900), lesson(2, "run it in CI"))
    assert clan.found("ci") == ids(2, 1)


def test_better_evidence_ranks_higher(clan):
    others = (lesson(number, "something else") for number in range(10, 20))
    clan.edition(
        lesson(1, "quote the path"),
        lesson(2, "quote the path twice", seen=50),
        lesson(3, "quote the path thrice", state="published"),
        *others,
    )
    assert set(clan.found("quote", limit=2)) == {*ids(2, 3)}
    assert clan.found("quote", limit=3)[-1:] == ids(1)
    assert clan.ask("quote", limit=2).is_more
    assert not clan.ask("quote", limit=3).is_more


def test_the_index_itself_takes_any_text(clan):
    clan.edition(lesson(1, "one a b"), lesson(2, "two %"))
    clan.found("x")
    tables = index.Index(clan.workspace.state.connection())
    assert tables.find(index.Ask(match=index.phrase('one" OR "two'))) == []
    assert tables.find(index.Ask(holds=("%" * 60_000,))) == []
    assert [doc.ref for doc in tables.find(index.Ask(holds=("%",)))] == ids(2)
    clan.workspace.close()


def test_a_snippet_has_the_hit_in_one_short_line(clan):
    far = "word " * 200 + "needle in\nthe stack " + "hay " * 200
    clan.edition(lesson(1, far), lesson(2, "short", correct=far))
    for hit in clan.ask("needle").hits:
        assert "needle" in hit.snippet
        assert "\n" not in hit.snippet
        assert len(hit.snippet) <= SNIPPET_CHARS


def test_a_snippet_is_never_longer_than_asked():
    rng = random.Random(5)
    for _ in range(3000):
        text = "".join(rng.choice("ab ") for _ in range(rng.randrange(300)))
        at, chars = rng.randrange(len(text) or 1), rng.randrange(40, 120)
        cut = snippet(text, at, chars)
        assert len(cut) <= chars
        assert cut.strip("…") in text


def test_what_is_shown_is_screened(clan):
    token = "ghp_" + "a1B2" * 10
    clan.edition(lesson(1, f"never print {token} there\x1b[31m\u202e", correct="word " * 30 + f"TOKEN={token} tail"))
    for query in ("print", token, "tail", "TOKEN"):
        for hit in clan.ask(query).hits:
            assert hit.id == ids(1)[0]
            shown = "".join(map(str, hit))
            assert "ghp_" not in shown
            assert "\x1b" not in shown
            assert "\u202e" not in shown


def test_hidden_marks_do_not_hide_a_word(clan):
    clan.edition(lesson(1, "re\u200bbase first"))
    assert clan.found("rebase") == clan.found("re\u200bbase") == ids(1)


def test_terms_are_read_whatever_is_typed():
    assert [term.text for term in terms(' one,  "two  three" (four) five"six"seven "open')] == [
        *("one", "two three", "(four)", "five", "six", "seven", "open")
    ]
    assert terms(' "" " ') == terms("\x00\u200b") == []
    assert len(terms(" ".join(map(str, range(100))))) == 32


NASTY = [
    *('"', '""', "'", "*", "a*", "*a", "NEAR", "NEAR(a b)", "a NEAR b", "a AND", "OR", "NOT a", "a NOT b", "(", "((a"),
    *(
        "head:a",
        "body:",
        "-a",
        "^a",
        "{a b}",
        "a + b",
        '"a" + "b"*',
        "a;DROP TABLE search_doc;--",
        "%",
        "_",
        "\\",
        "\0",
    ),
    *(
        "a\0b",
        "\ud800",
        "a" * 100_000,
        '"' * 1000,
        "a " * 5000,
        "\ufeff",
        "\u202e",
        "ﷺ",
        "İ",
        "ß",
        "ﬁ",
        "é" * 30_000,
        "()" * 999,
    ),
]


def test_anything_that_is_typed_is_safe(clan, shared):
    clan.edition(*(lesson(number, text) for number, text in enumerate(("a b", "NEAR", "AND OR NOT", "x*y (z)"), 1)))
    naughty = json.loads((shared / "corpora/strings/blns.json").read_text())
    clan.ask("x")
    tables = index.Index(clan.workspace.state.connection())
    plain = index.Index(sqlite3.connect(":memory:", isolation_level=None), has_words=False)
    indexing.refresh(plain, sources(clan))
    for query in [*NASTY, *naughty]:
        for asked in (query, f'"{query}', f"{query} a", f"a {query}"):
            search(tables, asked)
            search(plain, asked)
    assert clan.found("NEAR") == ids(2)
    assert clan.found("NOT") == ids(3)


def test_every_naughty_text_is_found_by_itself(clan, shared):
    texts = [t for t in json.loads((shared / "corpora/strings/blns.json").read_text()) if terms(t)]
    clan.edition(*(lesson(number, text) for number, text in enumerate(texts, 1)))
    clan.ask("x")
    tables = index.Index(clan.workspace.state.connection())
    for number, text in enumerate(texts, 1):
        found = {hit.id for hit in search(tables, text, limit=len(texts)).hits}
        assert ids(number)[0] in found, text
    clan.workspace.close()


# --- kept up --------------------------------------------------------------------------------------------------------


def sources(clan: Clan) -> Sources:
    workspace = clan.workspace
    cut = workspace.timekeeper.reading().cut
    return Sources(workspace.root, workspace.store, cut, tuple(pages(workspace)))


@pytest.fixture
def watched(monkeypatch):
    """What was read, decoded and joined since the last look."""
    seen = {"files": [], "lines": [], "ids": []}
    log, page, keys, some = (
        *(indexing._read_log, indexing._read_page),
        *(indexing._keys_of, indexing._refresh_some),
    )
    monkeypatch.setattr(indexing, "_read_log", lambda *a: (seen["files"].append(a[1]), log(*a))[1])
    monkeypatch.setattr(indexing, "_read_page", lambda *a: (seen["files"].append(a[1]), page(*a))[1])
    monkeypatch.setattr(indexing, "_keys_of", lambda raws: (seen["lines"].extend(raws), keys(raws))[1])
    monkeypatch.setattr(indexing, "_refresh_some", lambda i, c, k, r: (seen["ids"].extend(k), some(i, c, k, r))[1])

    def look() -> dict:
        now = {name: list(found) for name, found in seen.items()}
        for found in seen.values():
            found.clear()
        return now

    return look


NOTHING = {"files": [], "lines": [], "ids": []}


def test_what_did_not_change_is_not_read_again(clan, watched):
    clan.edition(*(lesson(number, f"word{number}") for number in range(1, 50)))
    clan.append(lesson(60, "sixty"))
    clan.write("agents/velma/JOURNAL.md", "## one\ntwo\n")
    clan.settle()
    assert clan.found("word7") == ids(7)
    assert len(watched()["files"]) == 3
    clan.again()
    assert clan.found("word8") == ids(8)
    assert watched() == NOTHING


def test_an_appended_line_costs_its_tail_and_its_pattern(clan, watched):
    clan.edition(*(lesson(number, f"word{number}") for number in range(1, 50)))
    clan.append(lesson(60, "sixty"), lesson(61, "sixtyone"))
    clan.settle()
    clan.found("x")
    watched()
    clan.append(changed(7, "changed"))
    assert clan.found("changed") == ids(7)
    assert clan.found("word7") == []
    again = watched()
    assert set(again["files"]) == {f"clan-learnings/patterns.d/{OTHER}.jsonl"}
    assert (again["lines"], again["ids"]) == ([encode(changed(7, "changed"))], ids(7))


def changed(number: int, text: str, at: int = 500) -> Line:
    return Line(id=ids(number)[0], at=stamp(at), by=OTHER, set={"text": text}, when={"text": (stamp(at), OTHER)})


def test_a_rewritten_edition_costs_what_differs(clan, watched):
    lines = [lesson(number, f"word{number}") for number in range(1, 50)]
    clan.edition(*lines)
    clan.found("x")
    watched()
    clan.edition(lesson(0, "zero"), *lines[:20], lesson(21, "other21"), *lines[21:-1])
    assert clan.found("other21") == ids(21)
    assert clan.found("word21") == clan.found("word49") == []
    assert clan.found("word48") == ids(48)
    assert watched()["ids"] == [*ids(0), *ids(21), *ids(49)]


def test_a_change_of_the_same_length_within_one_tick_of_the_clock_is_seen(clan):
    file = clan.edition(lesson(1, "aaa"))
    was = file.stat()
    assert clan.found("aaa") == ids(1)
    with file.open("r+b") as handle:
        handle.write(encode(lesson(1, "bbb")))
    os.utime(file, ns=(was.st_mtime_ns, was.st_mtime_ns))
    assert clan.found("bbb") == ids(1)
    assert clan.found("aaa") == []


def test_a_shard_that_kept_its_length_but_not_its_beginning_is_read_again(clan):
    clan.append(lesson(1, "first"), lesson(2, "second"))
    assert clan.found("first") == ids(1)
    shard = clan.root / f"clan-learnings/patterns.d/{OTHER}.jsonl"
    shard.write_bytes(
        b"".join(encode(line) + b"\n" for line in (lesson(3, "third"), lesson(2, "second"), lesson(4, "x")))
    )
    assert clan.found("first") == []
    assert clan.found("third") == ids(3)
    assert clan.found("second") == ids(2)


def test_a_torn_last_line_is_found_once_it_is_whole(clan):
    raw = encode(lesson(1, "torn in two"))
    file = clan.write(f"clan-learnings/patterns.d/{OTHER}.jsonl", encode(lesson(2, "whole")) + b"\n" + raw[:40])
    assert clan.found("whole") == ids(2)
    assert clan.found("torn") == []
    for piece in (raw[40:90], raw[90:], b"\n", encode(lesson(3, "after")) + b"\n"):
        with file.open("ab") as handle:
            handle.write(piece)
        clan.found("whole")
    assert clan.found("torn") == ids(1)
    assert clan.found("after") == ids(3)


def test_a_line_without_a_newline_counts_and_may_grow(clan):
    file = clan.edition(lesson(1, "one"))
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert clan.found("one") == ids(1)
    with file.open("ab") as handle:
        handle.write(b"\n" + encode(lesson(2, "two")))
    assert clan.found("two") == ids(2)
    assert clan.found("one") == ids(1)


def test_lines_of_any_shape_do_no_harm_to_good_ones(clan, monkeypatch):
    monkeypatch.setattr("fleet.keep.limits.BLOCK_BYTES", 50_000)
    good = [encode(lesson(number, f"good{number}")) for number in range(1, 8)]
    rubbish = [b"", b"\xff\xfe\x00", b"{", b"<<<<<<< HEAD", b'{"id":"p-1"}', b'{"id":7}', b"x" * 300_000, b"[" * 5000]
    rows = [row for pair in zip(good, rubbish, strict=False) for row in pair]
    clan.write("clan-learnings/patterns.jsonl", b"\xef\xbb\xbf" + b"\r\n".join(rows) + b"\n")
    for number in range(1, 8):
        assert clan.found(f"good{number}") == ids(number)
    with (clan.root / "clan-learnings/patterns.jsonl").open("ab") as handle:
        handle.write(b"y" * 200_000)
    clan.found("x")
    with (clan.root / "clan-learnings/patterns.jsonl").open("ab") as handle:
        handle.write(b"y" * 200_000 + b"\n" + encode(lesson(9, "behind")) + b"\n")
    assert clan.found("behind") == ids(9)
    assert clan.found("good5") == ids(5)


def test_a_correction_an_edit_a_retirement_and_a_retraction_are_seen_at_once(clan):
    told = Correction("used sed", "use awk", "Never build a sed expression", category="shell")
    logged = corrections.correct(clan.workspace, "velma", told)
    assert clan.found("expression sed", kinds=("pattern",)) == [logged.id]
    assert clan.ask("awk", kinds=("correction",)).hits[0].where.startswith("agents/velma/corrections.md:")
    line = clan.workspace.load().notebook.patterns[logged.id]
    clan.append(edits.retired(line, OTHER, clock.pack(NOW_MS)))
    assert clan.found("expression", kinds=("pattern",)) == []
    (gone,) = clan.ask("expression", kinds=("pattern",), everything=True).hits
    assert (gone.id, gone.is_gone) == (logged.id, True)
    clan.append(edits.restored(line, OTHER, clock.pack(NOW_MS + 1)))
    assert clan.found("expression", kinds=("pattern",)) == [logged.id]
    entry = finding("a quagga")
    clan.workspace.store.append(DISCOVERIES, OTHER, [entry])
    assert clan.found("quagga") == [entry.id]
    gone = Discovery(id=retraction_id(entry.id), at=stamp(), by=ME, retracts=entry.id)
    clan.workspace.store.append(DISCOVERIES, ME, [gone])
    assert clan.found("quagga") == []


def test_a_page_that_changes_shrinks_or_goes_is_followed(clan):
    page = clan.write("agents/tank/JOURNAL.md", "# JOURNAL\n\n## one\nalpha\n## two\nbeta\n")
    assert clan.found("alpha") == ["one"]
    page.write_text("# JOURNAL\n\nintro\n\n## one\nalpha\n```\n## no heading\n```\n")
    assert clan.found("beta") == []
    assert clan.ask("alpha").hits[0].where == "agents/tank/JOURNAL.md:5"
    assert clan.found('"no heading"') == ["one"]
    page.unlink()
    assert clan.found("alpha") == []


def test_links_are_left_alone(clan, tmp_path):
    (tmp_path / "elsewhere.md").write_text("## secret\npasswords\n")
    home = clan.root / "agents/tank"
    home.mkdir(parents=True)
    (home / "JOURNAL.md").symlink_to(tmp_path / "elsewhere.md")
    (clan.root / "agents/slash").symlink_to(home)
    assert clan.found("passwords") == []


def test_what_is_held_is_found_when_its_time_has_come(clan):
    late = clock.pack(NOW_MS + 3 * 86_400_000)
    early = lesson(1, "now")
    clan.edition(
        early, Line(id=early.id, at=early.at, by=OTHER, set={"text": "tomorrow"}, when={"text": (late, OTHER)})
    )
    assert clan.found("now") == ids(1)
    assert clan.found("tomorrow") == []
    clan.now_ms += 4 * 86_400_000
    clan.again()
    assert clan.found("tomorrow") == ids(1)
    assert clan.found("now") == []


def test_a_newer_versions_line_is_passed_over(clan):
    raw = b'{"hue":"blue","id":"p-0000000000000001","set":{"text":"future"}}'
    clan.write("clan-learnings/patterns.jsonl", raw + b"\n" + encode(lesson(2, "present")) + b"\n")
    assert clan.found("future") == []
    assert clan.found("present") == ids(2)


def docs(tables: index.Index) -> list[tuple]:
    return sorted(tables.connection.execute(f"SELECT {index._COLUMNS} FROM search_doc"))


def words(tables: index.Index) -> list[tuple]:
    """What the full-text index holds, read from itself."""
    tables.connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, search_text, instance)")
    found = tables.connection.execute(
        "SELECT term, kind, ref, path, line, col, offset FROM vocabulary v JOIN search_doc d ON d.id = v.doc"
    ).fetchall()
    count = tables.connection.execute("SELECT count(*) FROM vocabulary").fetchone()[0]
    tables.connection.execute("DROP TABLE temp.vocabulary")
    assert count == len(found), "words of texts that are no more"
    assert heads(tables) == {(row[0], *row[1:5]) for row in found if row[5] == "head"}
    return sorted(found)


def heads(tables: index.Index) -> set[tuple]:
    """What the full-text index of the lessons' own words holds: the same, each word once."""
    tables.connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, search_head, instance)")
    asked = "SELECT term, kind, ref, path, line FROM vocabulary v LEFT JOIN search_doc d ON d.id = v.doc"
    found = set(tables.connection.execute(asked))
    tables.connection.execute("DROP TABLE temp.vocabulary")
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_index_is_what_a_new_one_would_be(clan, seed):
    rng = random.Random(seed)
    made = patterns(40, seed)
    shards = [f"clan-learnings/patterns.d/{replica}.jsonl" for replica in (ME, OTHER)]
    files = ["clan-learnings/patterns.jsonl", *shards]

    def some() -> bytes:
        line = rng.choice(made)
        edited = changed(1, f"text {rng.random()}", rng.randrange(900))
        edited.id = line.id
        return rng.choice([encode(line), encode(edited), encode(finding(f"p {rng.randrange(9)}")), b"rubbish"]) + b"\n"

    for _ in range(25):
        path = clan.root / rng.choice(files)
        path.parent.mkdir(parents=True, exist_ok=True)
        held = path.read_bytes() if path.exists() else b""
        action = rng.randrange(6)
        if action <= 2:
            path.write_bytes(held + b"".join(some() for _ in range(rng.randrange(4))) + some()[: rng.choice([0, 30])])
        elif action == 3:
            rows = held.splitlines(keepends=True)
            rng.shuffle(rows)
            path.write_bytes(b"".join(rows[: rng.randrange(len(rows) + 1)]))
        elif action == 4:
            path.unlink(missing_ok=True)
        else:
            rows = [f"## {rng.randrange(9)}\nword{rng.randrange(9)}\n" for _ in range(rng.randrange(5))]
            clan.write("agents/tank/JOURNAL.md", "".join(rows))
        if rng.random() < 0.5:
            clan.found("x")
    clan.found("x")
    tables = index.Index(clan.workspace.state.connection())
    fresh = index.Index(sqlite3.connect(":memory:", isolation_level=None))
    indexing.refresh(fresh, sources(clan))
    assert docs(tables) == docs(fresh)
    assert words(tables) == words(fresh)
    held = clan.workspace.load()
    present = {line.id: line.set["text"] for line in held.notebook.present()}
    assert {row[1]: row[4] for row in docs(tables) if row[0] == "pattern" and not row[9]} == present
    clan.workspace.close()


# --- what may become of the index -----------------------------------------------------------------------------------


def statement(*sql: str):
    def work(clan: Clan) -> None:
        connection = clan.workspace.state.connection()
        for one in sql:
            connection.execute(one)
        clan.workspace.close()

    work.__name__ = sql[-1][:40]
    return work


def rubbish(clan: Clan) -> None:
    (clan.root / ".fleet/state.db").write_bytes(b"no database at all" * 1000)


def missing(clan: Clan) -> None:
    (clan.root / ".fleet/state.db").unlink()


def shadows(*sql: str):
    return statement("PRAGMA writable_schema = ON", *sql)


DAMAGE = [
    rubbish,
    missing,
    statement("UPDATE search_meta SET value = '0' WHERE key = 'version'"),
    statement("DELETE FROM search_meta"),
    *(statement(f"DROP TABLE {name}") for name in sorted(index._NAMES)),
    *(statement(f"DROP TABLE {name}") for name in sorted(index._SHADOWS)),
    *(statement(f"DELETE FROM {name}") for name in sorted(index._SHADOWS)),
    statement("UPDATE search_text_data SET block = x'00'"),
    *(
        statement(f"UPDATE search_text_data SET block = x'{random.Random(seed).randbytes(50).hex()}'")
        for seed in range(4)
    ),
    statement("UPDATE search_text_config SET v = 99"),
    statement("UPDATE search_head_data SET block = x'00'"),
    statement("UPDATE search_head_config SET v = 99"),
    shadows("UPDATE sqlite_master SET sql = replace(sql, 'unicode61', 'nothing') WHERE name = 'search_head'"),
    statement("ALTER TABLE search_doc RENAME COLUMN head TO title"),
    statement("ALTER TABLE search_file DROP COLUMN digest"),
    shadows("UPDATE sqlite_master SET sql = replace(sql, 'unicode61', 'nothing') WHERE name = 'search_text'"),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_missing_or_older_index_is_made_anew_and_damage_is_told(clan, damage):
    clan.edition(*(lesson(number, f"word{number} of some lesson") for number in range(1, 30)))
    assert clan.found("word7") == ids(7)
    damage(clan)
    clan.again()
    clan.append(changed(8, "word8 renewed lesson"))
    assert len(clan.found("lesson", limit=50)) == 29
    assert clan.found("renewed") == ids(8)
    assert clan.found("word9") == ids(9)
    said, clan.workspace.warnings = clan.workspace.warnings, []
    assert said or (damage is not rubbish and not damage.__name__.startswith("UPDATE search_text_data"))
    assert not said or (damage is not missing and "search_meta" not in damage.__name__), "nothing is wrong with that"
    assert all("damaged" in each and "no lesson is lost" in each for each in said)


def test_tables_of_another_version_are_not_used(clan, watched):
    clan.edition(lesson(1, "one"))
    clan.found("one")
    watched()
    statement("UPDATE search_meta SET value = '0' WHERE key = 'version'")(clan)
    assert clan.found("one") == ids(1)
    assert watched()["ids"] == ids(1)


def test_the_other_tables_of_the_database_outlive_the_index(clan):
    clan.workspace.state.put(confirmed="yes")
    clan.workspace.state.mark_sent([b"line"])
    clan.edition(lesson(1, "word"))
    clan.found("word")
    statement("DROP TABLE search_text_config")(clan)
    assert clan.found("word") == ids(1)
    assert clan.workspace.state.get("confirmed") == "yes"
    assert clan.workspace.state.was_sent(b"line")
    check = clan.workspace.state.connection().execute("PRAGMA integrity_check").fetchone()
    assert check == ("ok",)
    clan.workspace.close()


def plainly(clan: Clan) -> None:
    """Without the index all is found as well, and one warning says so."""
    clan.edition(lesson(1, "Quote every path", correct="use awk"), lesson(2, "贡献者"))
    clan.write("agents/tank/JOURNAL.md", "## one\nquote\n")
    for query, wanted in (("quote path", ids(1)), ("awk", ids(1)), ("贡献", ids(2)), ("nope", []), ("quote", None)):
        clan.again()
        found = clan.found(query)
        assert found == wanted if wanted is not None else set(found) == {*ids(1), "one"}
        (warning,) = clan.workspace.warnings
        assert warning.startswith("the search index cannot be used")
    clan.again()


def test_a_folder_that_cannot_be_written_is_searched_plainly(clan):
    (clan.root / ".fleet").mkdir()
    (clan.root / ".fleet/locks").write_text("a file where a folder belongs")
    plainly(clan)


def test_an_sqlite_without_fts5_is_served_plainly(clan, monkeypatch):
    monkeypatch.setattr(index, "_WORDS", index._WORDS.replace("fts5", "fts5_that_is_not_there"))
    plainly(clan)


def test_a_database_that_cannot_be_opened_is_done_without(clan):
    (clan.root / ".fleet/state.db").mkdir(parents=True)
    plainly(clan)


def test_a_run_that_was_cut_short_goes_on_where_it_was(clan, monkeypatch):
    monkeypatch.setattr(indexing, "PARAMETERS_MAX", 10)
    clan.edition(*(lesson(number, f"word{number}") for number in range(1, 101)))
    some, left = indexing._refresh_some, [3]

    def killed(*given):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return some(*given)

    monkeypatch.setattr(indexing, "_refresh_some", killed)
    with pytest.raises(KeyboardInterrupt):
        clan.found("x")
    calls = []
    monkeypatch.setattr(indexing, "_refresh_some", lambda i, c, k, r: (calls.append(len(k)), some(i, c, k, r))[1])
    clan.again()
    for number in range(1, 101):
        assert clan.found(f'"word{number}"') == ids(number)
    assert sum(calls) == 70


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(clan, monkeypatch):
    lines = [lesson(number, f"word{number}") for number in range(1, 30)]
    clan.edition(*lines)
    read, turn = indexing._refresh_refs, [0]

    def meanwhile(*given):
        turn[0] += 1
        if turn[0] == 1:
            clan.edition(lesson(0, "a longer line in front of all others"), *lines)
        read(*given)

    monkeypatch.setattr(indexing, "_refresh_refs", meanwhile)
    for number in range(1, 30):
        assert clan.found(f'"word{number}"') == ids(number)
    assert clan.found("front") == ids(0)


def test_many_may_search_at_once(clan):
    clan.edition(*patterns(400))
    wrong = []

    def work(number: int) -> None:
        try:
            mine = Clan(clan.root)
            for turn in range(5):
                mine.again()
                if number % 2:
                    mine.append(
                        lesson(1000 * number + turn, f"fresh{number}x{turn}"), replica=f"a{number}.0000000{number}"
                    )
                    assert mine.found(f"fresh{number}x{turn}") == ids(1000 * number + turn)
                assert len(mine.ask("version").hits) == 20
                assert not mine.workspace.warnings, mine.workspace.warnings
        except BaseException as why:
            wrong.append(why)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_large_clan_is_indexed_once(clan, watched):
    """``FLEET_SEARCH_PATTERNS=100000`` for the size that the figures are given for."""
    clan.write("clan-learnings/patterns.jsonl", edition(COUNT))
    clan.settle()
    took = {}

    def timed(what: str, query: str, count: int) -> None:
        start = time.perf_counter()
        assert len(clan.ask(query).hits) == count
        took[what] = time.perf_counter() - start

    timed("first", "version", 20)
    assert len(watched()["ids"]) == COUNT
    timed("second", "version", 20)
    assert watched() == NOTHING
    clan.append(lesson(1, "quixotic zeugma"))
    timed("one line", "zeugma", 1)
    assert watched()["ids"] == ids(1)
    print({what: f"{seconds * 1000:.0f} ms" for what, seconds in took.items()})
    assert took["first"] < 5 + COUNT / 4000, took
    assert took["second"] < 0.5 + took["first"] / 4, took
    assert took["one line"] < 0.5 + took["first"] / 4, took


def test_every_log_has_a_place_in_the_index():
    assert {kind.name for kind in reading.KINDS} == {"patterns", "discoveries"}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rot_in_the_database_costs_no_answer(tmp_path, seed):
    rng = random.Random(seed)
    clan = Clan(tmp_path)
    clan.edition(*(lesson(number, f"word{number} of some lesson") for number in range(1, 200)))
    clan.found("word")
    file = tmp_path / ".fleet/state.db"
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 5, 50])):
        at = rng.randrange(100, len(data))
        length = rng.choice([1, 8, 4096])
        data[at : at + length] = rng.randbytes(min(length, len(data) - at))
    file.write_bytes(data)
    for number in (3, 100, 150):
        clan.again()
        clan.append(changed(number, f"fresh{number} lesson"))
        clan.found("lesson", limit=500)
        assert clan.found(f"fresh{number}") == ids(number) or clan.workspace.warnings
