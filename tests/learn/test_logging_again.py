"""A process that goes on logs without reading anything twice; no second process and no crash can tell."""

import os
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdt import clock
from fleet.keep import config, screening, unchanged
from fleet.keep.notebook import Notebook, count
from fleet.keep.unchanged import Looks, Unchanged
from fleet.keep.view import glance
from fleet.keep.workspace import Workspace, World
from fleet.learn import corrections, entries, reconcile
from fleet.learn.corrections import Correction, correct, log_file, read_log

WORDS = [
    "Check",
    "the version",
    "first",
    "quote every path",
    "—",
    "ß",
    "贡献",
    "a#b",
    "x: y",
    "**bold**",
    "- item",
    "1.",
]
ODD = ["`code`", "<!-- x -->", "a\nb", "\\", "~~~", "auto-detected", "to be inferred", "TBD", "  ", "a,b", "#", "| x |"]
SECRETS = [
    "ghp_" + "a1" * 18,
    "AKIA" + "A1B2" * 4,
    "https://me:hunter22@host",
    "API_KEY=abc123def456",
    "Authorization: Bearer abc123abc123abc123abc123",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 40,
    "xoxb-1234567890-abc",
    "/home/velma/x",
    "\x1b[31mred",
    "\u202e",
    "zero\u200bwidth",
]
TICKS_S = 0.015
TEXTS = st.lists(st.sampled_from([*WORDS, *ODD]) | st.text(max_size=6), max_size=4).map(" ".join)


def opened(root, **world):
    if not (root / config.FILE_NAME).exists():
        (root / config.FILE_NAME).write_text(config.render("", "fleet"))
    return Workspace(root, World(machine=lambda: "m", durable=False, **world))


@pytest.fixture
def workspace(tmp_path):
    made = opened(tmp_path)
    yield made
    made.close()


@pytest.fixture
def old_files(monkeypatch):
    """Take files for settled after a few ticks of the file system's clock."""
    monkeypatch.setattr(unchanged, "SETTLED_NS", int(TICKS_S * 1e9))


def tell(workspace, lesson, session="s", wrong="w"):
    return correct(workspace, "velma", Correction(wrong, "r", lesson), session=session)


def counted(root):
    fresh = opened(root)
    try:
        found = {line.id: (count(line, "seen"), count(line, "sessions")) for line in glance(fresh).notebook.present()}
    finally:
        fresh.close()
    return found


# What is plain to see is what a closer look would find


@settings(max_examples=500)
@given(st.lists(st.sampled_from([*SECRETS, *WORDS]) | st.text(max_size=9), max_size=4).map(" ".join))
@example("KEY")
def test_a_text_without_a_hint_is_one_that_screening_leaves_as_it_is(text):
    if screening.is_harmless(text):
        assert screening.screen(text, home="/home/velma") == screening.Screened(text, (), 0)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_screening_changes_is_never_harmless(secret):
    assert screening.screen(secret, home="/home/velma").text != secret
    assert not screening.is_harmless(secret)
    assert not screening.is_harmless(f"before {secret} behind")


@pytest.mark.parametrize("hint", sorted(set(screening._HINTS)))
def test_no_text_with_a_hint_is_harmless(hint):
    for text in (hint, hint.upper(), f"before {hint} behind", f"a-b_c/d:e {hint}"):
        assert not screening.is_harmless(text)


def test_no_hint_goes_over_the_end_of_a_line_so_one_look_tells_it_of_all_fields():
    assert not any("\n" in hint or len(hint) < 2 for hint in screening._HINTS)


@pytest.mark.parametrize("field", ["wrong", "right", "title", "source", "category", "tags"])
def test_a_secret_in_one_field_is_found_beside_harmless_ones(workspace, field):
    said = {"wrong": "w", "right": "r", "pattern": "Check the version first"}
    secret = SECRETS[0]
    logged = correct(workspace, "velma", Correction(**said | {field: (secret,) if field == "tags" else secret}))
    assert logged.secrets
    assert secret not in log_file(workspace, "velma").read_text()


@settings(max_examples=1_000)
@given(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.lists(TEXTS, max_size=3))
@example("# x", "a", "b", "c", "d", "", [])
@example("2026-11-20", "", "", "", "d", "", [])
@example("title #", "", "", "", "d", "", [])
@example("t", "**Pattern:** x", "Source: y", "", "d", "c", ["t u"])
def test_an_entry_that_is_written_plainly_is_the_one_that_is_written_and_read(
    title, wrong, right, source, pattern, category, tags
):
    said = {"when": "2026-11-20 12:00Z", "title": title, "wrong": wrong, "right": right, "source": source}
    said |= {"pattern": pattern, "category": category, "tags": tags}
    if plain := entries.written_plainly(**said):
        body, entry = plain
        assert body == entries.format_entry(**said)
        assert entries.parse_log(body).entries == (entry,)


def test_most_entries_are_written_plainly():
    said = {"title": "I ran it twice", "wrong": "I ran it twice", "right": "run `it` once", "source": "velma"}
    assert entries.written_plainly(when="2026-11-20 12:00Z", pattern="Run it once: 100%", **said | {"right": "once"})
    assert entries.written_plainly(when="2026-11-20 12:00Z", pattern="Run it once", **said) is None


SAID = st.lists(
    st.tuples(
        st.sampled_from(["One", "two", "a  B"]),
        st.sampled_from(["w", "v"]),
        st.sampled_from(["r", "", "r  s"]),
        st.sampled_from(["", "s", "t"]),
        st.sampled_from([(), ("relapsed",)]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(SAID, st.booleans())
def test_the_line_of_one_more_entry_is_the_one_that_the_whole_log_owes(said, is_shared):
    notebook, logged, page, again = Notebook(), [], "", set()
    fields = ("wrong", "text") if is_shared else ()
    for at, (lesson, wrong, right, session, marks, is_other) in enumerate(said):
        when, stamp = "2026-11-20 12:00Z", clock.pack(1_795_176_000_000 + at)
        values = {"title": "t", "wrong": wrong, "right": right, "source": "", "pattern": lesson}
        body, entry = entries.written_plainly(when=when, category="c", tags=("b", "a"), **values)
        ordinal = sum(other.content == entry.content for other, _ in logged)
        record = entries.Record(
            reconcile.entry_id(entry.content, ordinal),
            reconcile.pattern_id(lesson),
            "velma.00000002" if is_other else "velma.00000001",
            stamp,
            session,
            tuple((mark, "1") for mark in marks),
        )
        before = [other for _, other in logged if other.pattern == record.pattern]
        page += f"{body}{entries.format_record(record)}\n"
        (owed,) = reconcile.lines_owed(entries.parse_log(page), notebook, fields)
        first = entry if record.id == reconcile.entry_id(entry.content, 0) else None
        for is_clean in (False, True):
            line = reconcile.line_owed(first, record, before, notebook, fields, is_clean=is_clean)
            assert line == owed
        logged.append((entry, record))
        notebook.add(owed)
        again.add(record.id)
        assert reconcile.line_owed(first, record, before, notebook, fields) is None
    assert len(again) == len(said)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["c-00000000000000aa", "c-00000000000000aa ", "c-00000000000000AA", ""]),
    st.sampled_from(["p-00000000000000aa", "p-00000000000000aa replica=a.00000000", "p"]),
    st.sampled_from(["velma.00000001", "velma.00000001 x=y", "velma", "velma.00000001 session=a"]),
    st.sampled_from(["2026-11-20T12:00:00.000Z-0000", "2026-02-30T12:00:00.000Z-0000", "2026", "2026 at=1"]),
    st.sampled_from(["", "s", "a b", "a--b", "é", "s relapsed=1", "%41", "\ud800", "a\n"]) | st.text(max_size=4),
    st.sampled_from([(), (("relapsed", "1"),), (("session", "x"),), (("K", "v"),)]),
)
@example("c-00000000000000aa", "p-00000000000000aa", "velma.00000001", "2026-02-30T12:00:00.000Z-0000", "s", ())
@example(
    "c-00000000000000aa", "p-00000000000000aa", "velma.00000001", "2026-11-20T12:00:00.000Z-0000", "s relapsed=1", ()
)
@example("c-00000000000000aa", "p-00000000000000aa", "velma.00000001 x=y", "2026-11-20T12:00:00.000Z-0000", "s", ())
@example(
    "c-00000000000000aa",
    "p-00000000000000aa replica=a.00000000",
    "velma.00000001",
    "2026-11-20T12:00:00.000Z-0000",
    "s",
    (),
)
@example("c-00000000000000aa ", "p-00000000000000aa", "velma.00000001", "2026-11-20T12:00:00.000Z-0000", "", ())
def test_a_record_that_is_written_reads_back_or_none_is_written(entry, pattern, replica, at, session, extra):
    record = entries.Record(entry, pattern, replica, at, session, extra)
    try:
        text = entries.format_record(record)
    except ValueError:
        return
    assert entries.read_record(text.removeprefix("<!--").removesuffix("-->"), 0) == record


# Other processes, and crashes


@pytest.mark.parametrize("seed", range(6))
def test_two_processes_by_turns_count_what_a_fresh_one_counts(tmp_path, seed, old_files):
    rng = random.Random(seed)
    two = [opened(tmp_path), opened(tmp_path)]
    told: dict[str, int] = {}
    for _ in range(30):
        time.sleep(rng.choice([0, 0, 2 * TICKS_S]))
        lesson = f"lesson {rng.randrange(6)}"
        logged = tell(rng.choice(two), lesson, session=f"s-{rng.randrange(3)}", wrong=rng.choice(["w", "v"]))
        told[logged.id] = told.get(logged.id, 0) + 1
        assert logged.seen == told[logged.id], f"seed {seed}"
        if rng.random() < 0.1:
            path = log_file(two[0], "velma")
            path.write_bytes(path.read_bytes() + b"\n## 2026-11-20 12:00Z by hand\n**Pattern:** lesson 7\n")
            hand = reconcile.pattern_id("lesson 7")
            told[hand] = told.get(hand, 0) + 1
    corrections.settle_all(two[0])
    assert {each: seen for each, (seen, _) in counted(tmp_path).items()} == told
    log = read_log(two[0], "velma")
    assert len({record.id for record in log.records}) == len(log.records) == sum(told.values())
    assert [record.at for record in log.records] == sorted(record.at for record in log.records)
    for workspace in two:
        workspace.close()


def test_a_lesson_that_another_process_brings_is_seen_by_the_next_correction(workspace, old_files):
    tell(workspace, "lesson 1")
    time.sleep(2 * TICKS_S)
    tell(workspace, "lesson 0")
    other = opened(workspace.root)
    correct(other, "tank", Correction("w", "r", "lesson 2"), session="s")
    other.close()
    assert tell(workspace, "lesson 2").seen == 2


def test_what_stopped_between_the_log_and_the_count_is_counted_with_the_next_one(workspace, monkeypatch, old_files):
    tell(workspace, "lesson 1")
    tell(workspace, "lesson 2")

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corrections._Owed, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            tell(workspace, "lesson 3")
    tell(workspace, "lesson 4")
    assert counted(workspace.root)[reconcile.pattern_id("lesson 3")] == (1, 1)


def test_a_log_that_was_mended_while_the_process_went_on_is_read_again(tmp_path, old_files):
    workspace = opened(tmp_path, wall_ms=lambda: 1_795_176_000_000)
    for number in range(3):
        tell(workspace, f"lesson {number}")
    path = log_file(workspace, "velma")
    path.write_bytes(path.read_bytes().replace(b"lesson 1", b"lesson X"))
    assert tell(workspace, "lesson X").seen == 1
    corrections.settle_all(workspace)
    assert counted(tmp_path)[reconcile.pattern_id("lesson X")][0] == 1
    assert counted(tmp_path)[reconcile.pattern_id("lesson 1")][0] == 1
    workspace.close()


def test_a_process_that_goes_on_reads_no_log_and_lists_no_folder(workspace, monkeypatch, old_files):
    for number in range(4):
        tell(workspace, f"lesson {number}")
        time.sleep(2 * TICKS_S)
    read, listed, scan = [], [], os.scandir
    monkeypatch.setattr(type(workspace.disk), "read", lambda _, path: read.append(path.name) or path.read_bytes())
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scan(path))
    tell(workspace, "lesson 5")
    assert not read  # the clock's file is read by the handle that it is written by
    assert not listed


def test_near_lessons_are_looked_for_when_somebody_asks(workspace, monkeypatch):
    tell(workspace, "Quote every path that may hold blanks")
    logged = tell(workspace, "Always quote every path that may hold blanks")
    assert [near.verdict for near in logged.near] == ["same"]
    monkeypatch.setattr(corrections, "_near", lambda *_: pytest.fail("nobody asked"))
    assert tell(workspace, "Never quote every path that may hold blanks").seen == 1


# What is kept of files


@pytest.mark.parametrize("seed", range(8))
def test_a_look_finds_the_files_that_a_listing_finds(workspace, seed, old_files):
    rng, looks, store = random.Random(seed), Looks(workspace.store), workspace.store
    for step in range(40):
        kind, name = rng.choice(["patterns", "discoveries"]), f"velma.{rng.randrange(4):08x}.jsonl"
        path = rng.choice([store.clan / f"{kind}.d" / name, store.clan / f"{kind}.jsonl", store.clan / f"{kind}.d"])
        is_folder = path.suffix == ".d"
        if path.is_dir() and not path.is_symlink():
            if is_folder and rng.random() < 0.2:
                path.rename(workspace.root / f"gone-{step}")
        elif path.is_symlink() or (path.exists() and rng.random() < 0.4):
            path.unlink()
        elif is_folder:
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(workspace.root) if rng.random() < 0.2 else path.mkdir()
        elif path.parent.is_dir() and not path.parent.is_symlink():
            if rng.random() < 0.2 and path.parent.suffix == ".d" and not path.exists():
                path.symlink_to(workspace.root / config.FILE_NAME)
            else:
                path.write_bytes(path.read_bytes() + b"x" if path.exists() else b"x")
        time.sleep(rng.choice([0, 0, 2 * TICKS_S]))
        assert looks.signature() == store.signature() == looks.signature(), f"seed {seed}, step {step}"


def test_nothing_is_kept_of_a_file_that_was_written_just_now(tmp_path):
    path, made = tmp_path / "file", []
    path.write_bytes(b"one")
    known = Unchanged(path, lambda: made.append(1) or path.read_bytes())
    assert [known.get(), known.get()] == [b"one", b"one"]
    assert len(made) == 2
    os.utime(path, (1, 1))  # its entry changed just now all the same
    assert known.get() == b"one"
    assert len(made) == 3


def test_a_file_that_was_replaced_is_read_again(tmp_path, old_files):
    path, made = tmp_path / "file", []
    path.write_bytes(b"one")
    known = Unchanged(path, lambda: made.append(1) or path.read_bytes())
    time.sleep(2 * TICKS_S)
    assert [known.get(), known.get()] == [b"one", b"one"]
    assert len(made) == 1
    (tmp_path / "new").write_bytes(b"two")
    (tmp_path / "new").rename(path)
    assert known.get() == b"two"


def test_stamps_rise_through_two_processes_by_turns(tmp_path):
    two = [opened(tmp_path, wall_ms=lambda: 1_795_176_000_000) for _ in range(2)]
    stamps = []
    for turn in range(6):
        with two[turn % 2].writing("velma") as writer:
            stamps += [writer.tick(), writer.tick()]
    assert stamps == sorted(set(stamps))
    for workspace in two:
        workspace.close()
