"""A process that goes on logs like one that begins: no second process and no crash can tell."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.learn import corrections, counting
from fleet.learn.corrections import Corrections
from fleet.learn.corrections_md import Correction, Log, Record, _read_record
from fleet.learn.counting import CountedLog
from fleet.model.names import FIELDS, LOGGED, pattern_id
from fleet.store import config
from fleet.store.workspace import Workspace, World
from fleet.text import screening

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


def opened(root, **world):
    if not (root / config.FILE_NAME).exists():
        (root / config.FILE_NAME).write_text(config.render("", "fleet"))
    return Workspace(root, World(machine=lambda: "m", durable=False, **world))


@pytest.fixture
def workspace(tmp_path):
    made = opened(tmp_path)
    yield made
    made.close()


def tell(workspace, lesson, session="s", wrong="w"):
    return Corrections(workspace, "velma").log(Correction(wrong, "r", lesson), session=session)


def counted(root):
    fresh = opened(root)
    try:
        found = {each.id: (each.count("seen"), each.count("sessions")) for each in fresh.patterns.lessons()}
    finally:
        fresh.close()
    return found


# What is plain to see is what a closer look would find


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*SECRETS, *WORDS]) | st.text(max_size=9), max_size=4).map(" ".join))
@example("KEY")
def test_a_text_without_a_hint_is_one_that_screening_leaves_as_it_is(text):
    if screening.is_harmless(text):
        assert screening.screen(text, home="/home/velma") == screening.ScreenedText(text, ())


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
    logged = Corrections(workspace, "velma").log(Correction(**said | {field: (secret,) if field == "tags" else secret}))
    assert logged.secrets
    assert secret not in CountedLog(workspace, "velma").log_file().read_text()


@pytest.mark.parametrize("name", LOGGED)
def test_each_logged_field_goes_from_a_correction_through_the_log_into_the_lesson(workspace, name):
    said = {"wrong": "w", "right": "r", "pattern": "Check the version first", name: "Bash:git push*"}
    logged = Corrections(workspace, "velma").log(Correction(**said))
    (entry,) = Log.parse(CountedLog(workspace, "velma").log_file().read_bytes()).entries
    assert getattr(entry, name) == "Bash:git push*"
    assert workspace.patterns.get(logged.id).fields[name] == "Bash:git push*"


def test_no_two_fields_of_a_lesson_share_a_name_for_people():
    names = [{field.name, field.label, *field.aliases} for field in FIELDS]
    assert sum(map(len, names)) == len(set().union(*names))


@settings(max_examples=120, deadline=None)
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
    record = Record(entry, pattern, replica, at, session, extra)
    try:
        text = record.render()
    except ValueError:
        return
    assert _read_record(text.removeprefix("<!--").removesuffix("-->")) == record


# Other processes, and crashes


@pytest.mark.parametrize("seed", range(6))
def test_two_processes_by_turns_count_what_a_fresh_one_counts(tmp_path, seed):
    rng = random.Random(seed)
    two = [opened(tmp_path), opened(tmp_path)]
    told: dict[str, int] = {}
    for _ in range(30):
        lesson = f"lesson {rng.randrange(6)}"
        logged = tell(rng.choice(two), lesson, session=f"s-{rng.randrange(3)}", wrong=rng.choice(["w", "v"]))
        told[logged.id] = told.get(logged.id, 0) + 1
        assert logged.seen == told[logged.id], f"seed {seed}"
        if rng.random() < 0.1:
            path = CountedLog(two[0], "velma").log_file()
            path.write_bytes(path.read_bytes() + b"\n## 2026-11-20 12:00Z by hand\n**Pattern:** lesson 7\n")
            hand = pattern_id("lesson 7")
            told[hand] = told.get(hand, 0) + 1
    counting.reconcile_all(two[0])
    assert {each: seen for each, (seen, _) in counted(tmp_path).items()} == told
    log = CountedLog(two[0], "velma").read_log()
    assert len({record.id for record in log.records}) == len(log.records) == sum(told.values())
    assert [record.at for record in log.records] == sorted(record.at for record in log.records)
    for workspace in two:
        workspace.close()


def test_a_lesson_that_another_process_brings_is_seen_by_the_next_correction(workspace):
    tell(workspace, "lesson 1")
    tell(workspace, "lesson 0")
    other = opened(workspace.root)
    Corrections(other, "tank").log(Correction("w", "r", "lesson 2"), session="s")
    other.close()
    assert tell(workspace, "lesson 2").seen == 2


def test_what_stopped_between_the_log_and_the_count_is_counted_with_the_next_one(workspace, monkeypatch):
    tell(workspace, "lesson 1")
    tell(workspace, "lesson 2")

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corrections, "reconcile", stop)
        with pytest.raises(KeyboardInterrupt):
            tell(workspace, "lesson 3")
    tell(workspace, "lesson 4")
    assert counted(workspace.root)[pattern_id("lesson 3")] == (1, 1)


def test_a_log_that_was_mended_while_the_process_went_on_is_read_again(tmp_path):
    workspace = opened(tmp_path, wall_ms=lambda: 1_795_176_000_000)
    for number in range(3):
        tell(workspace, f"lesson {number}")
    path = CountedLog(workspace, "velma").log_file()
    path.write_bytes(path.read_bytes().replace(b"lesson 1", b"lesson X"))
    assert tell(workspace, "lesson X").seen == 1
    counting.reconcile_all(workspace)
    assert counted(tmp_path)[pattern_id("lesson X")][0] == 1
    assert counted(tmp_path)[pattern_id("lesson 1")][0] == 1
    workspace.close()


def test_near_lessons_are_looked_for_when_somebody_asks(workspace, monkeypatch):
    tell(workspace, "Quote every path that may hold blanks")
    logged = tell(workspace, "Always quote every path that may hold blanks")
    assert [(near.text, near.differs) for near in logged.near] == [("Quote every path that may hold blanks", ())]
    monkeypatch.setattr(corrections.Corrections, "_near", lambda *_: pytest.fail("nobody asked"))
    assert tell(workspace, "Never quote every path that may hold blanks").seen == 1


def test_stamps_rise_through_two_processes_by_turns(tmp_path):
    two = [opened(tmp_path, wall_ms=lambda: 1_795_176_000_000) for _ in range(2)]
    stamps = []
    for turn in range(6):
        with two[turn % 2].writing("velma") as writer:
            stamps += [writer.tick(), writer.tick()]
    assert stamps == sorted(set(stamps))
    for workspace in two:
        workspace.close()
