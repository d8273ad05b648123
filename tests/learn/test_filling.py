"""The lesson of a signal: stated at the end of the log, counted once, and never mistaken for an entry."""

import itertools
import json
import random
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.app import moving
from fleet.app.learning import correct, state_lesson
from fleet.learn import corrections_md, counting, signals
from fleet.learn.corrections_md import Correction, Draft, Log, Statement
from fleet.learn.counting import CountedLog
from fleet.learn.signals import Flag, Signals
from fleet.model.errors import NoError, RefusedError, UsageError
from fleet.reflect.exposure import Exposures
from fleet.store.workspace import Workspace, World

NOON = 1_795_262_400_000  # 2026-11-21 12:00:00 UTC
LESSON = "In this repository use pnpm, never npm"


class Wall:
    def __init__(self):
        self.ms = NOON

    def __call__(self):
        return self.ms


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def workspace(tmp_path, wall):
    (tmp_path / "fleet.toml").write_text("")
    opened = Workspace(tmp_path, World(wall_ms=wall, durable=False))
    with opened.writing("velma"):  # as fleet init does: from now on velma writes here
        pass
    yield opened
    opened.close()


def log_of(workspace):
    return workspace.home("velma") / "corrections.md"


def flagged(workspace, quote="no, use pnpm here", session="s-1", kind="human"):
    return Signals(workspace.files, "velma", workspace.wall).flag(Flag(kind, quote), session=session).id


def seen(workspace):
    """Return text to count, as everybody who reads the files now sees it."""
    return {lesson.text: lesson.count("seen") for lesson in workspace.patterns.lessons()}


def forget_counts(workspace):
    """Take back all that was counted: what was torn off the log had not been counted yet."""
    shutil.rmtree(workspace.clan)
    workspace.db.database.delete()


def bound_of(workspace):
    return Log.parse(log_of(workspace).read_bytes()).entries


# Counting


def test_a_filled_entry_counts_like_any_correction(workspace):
    entry = flagged(workspace)
    assert seen(workspace) == {}
    done = state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    assert (done.entry, done.text, done.seen) == (entry, LESSON, 1)
    assert seen(workspace) == {LESSON: 1}
    (line,) = workspace.patterns.lessons()
    assert (line.id, line.correct, line.count("sessions")) == (done.id, "pnpm install", 1)
    assert len(CountedLog(workspace, "velma").to_state()) == 0
    assert signals.Signals(workspace.files, "velma", workspace.wall).waiting() == []
    counting.reconcile_all(workspace)
    assert seen(workspace) == {LESSON: 1}


def test_what_stood_in_the_file_stays_byte_for_byte(workspace):
    entry = flagged(workspace)
    before = log_of(workspace).read_bytes()
    state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    after = log_of(workspace).read_bytes()
    assert after.startswith(before)
    added = after[len(before) :].decode()
    assert added.startswith(
        f"\n## Learned from {entry} — {LESSON}\n## Right way for {entry} — pnpm install\n<!-- fleet {entry} p-"
    )
    assert added.count("\n") == 4


def test_all_triggers_count_alike(workspace, wall):
    told = (
        Flag("human", "no, use pnpm"),
        Flag("agent", "use pnpm", agent="splinter"),
        signals.Flag.of_failure("npm ci", 1, "lockfile missing"),
    )
    for number, signal in enumerate(told, 1):
        done = Signals(workspace.files, "velma", workspace.wall).flag(signal, session=f"s-{number}")
        assert state_lesson(workspace, "velma", done.id, Correction("", "", LESSON)).seen == number
    correct(workspace, "velma", Correction("ran npm", "run pnpm", LESSON, source="self"), session="s-4")
    (line,) = workspace.patterns.lessons()
    assert (line.count("seen"), line.count("sessions")) == (4, 4)
    assert len({bound.record.pattern for bound in bound_of(workspace)}) == 1


def test_the_same_lesson_of_another_entry_is_the_same_pattern(workspace):
    correct(workspace, "velma", Correction("w", "r", LESSON))
    done = state_lesson(workspace, "velma", flagged(workspace), Correction("", "", f"**{LESSON}**."))
    assert done.seen == 2


def test_same_counts_it_as_an_existing_pattern_with_or_without_words(workspace):
    known = correct(workspace, "velma", Correction("w", "r", LESSON)).id
    done = state_lesson(workspace, "velma", flagged(workspace), Correction("", "", "pnpm is what we use"), same=known)
    assert (done.id, done.seen, done.text) == (known, 2, LESSON)
    state_lesson(workspace, "velma", flagged(workspace, "again", "s-2"), Correction("", "", ""), same=known)
    assert seen(workspace) == {LESSON: 3}
    assert [bound.pattern for bound in bound_of(workspace)] == [LESSON, "pnpm is what we use", LESSON]
    with pytest.raises(NoError, match="no lesson has an id that begins with"):
        state_lesson(
            workspace, "velma", flagged(workspace, "x", "s-3"), Correction("", "", "y"), same="p-0000000000000000"
        )


def test_the_session_is_the_one_in_which_it_was_flagged(workspace):
    state_lesson(workspace, "velma", flagged(workspace, session="then"), Correction("", "", LESSON), session="now")
    state_lesson(
        workspace, "velma", flagged(workspace, "b", session=""), Correction("", "", "Another lesson"), session="now"
    )
    assert [bound.record.session for bound in bound_of(workspace)] == ["then", "now"]


def test_whether_it_is_a_relapse_is_a_matter_of_when_it_was_flagged(workspace, wall):
    known = correct(workspace, "velma", Correction("w", "r", LESSON)).id
    wall.ms += 1_000
    early = flagged(workspace, "early", "s-1")
    wall.ms += 1_000
    Exposures(workspace.state).note("velma", "s-2", [known], wall.ms)
    wall.ms += 1_000
    late = flagged(workspace, "late", "s-2")
    for entry in (early, late):
        state_lesson(workspace, "velma", entry, Correction("", "", LESSON))
    said = {bound.id: dict(bound.record.extra).get("relapsed") for bound in bound_of(workspace)}
    assert (said[early], said[late]) == (None, "1")


def test_a_relapse_raises_seen_and_relapsed_at_once_and_neither_twice(workspace, wall):
    known = correct(workspace, "velma", Correction("w", "r", LESSON), session="s-0").id
    Exposures(workspace.state).note("velma", "s-1", [known], wall.ms)
    for session in ("s-1", "s-2"):
        wall.ms += 1_000
        correct(workspace, "velma", Correction("w", "r", LESSON), session=session)
    (shard,) = (workspace.clan / "patterns.d").iterdir()
    said = [column for row in shard.read_bytes().splitlines() for column in json.loads(row)["w"].values()]
    assert [column["n"] for column in said if "n" in column] == [  # at last it is promoted, which counts nothing
        {"seen": 1, "sessions": 1},
        {"relapsed": 1, "seen": 2, "sessions": 2},
        {"relapsed": 2, "seen": 3, "sessions": 3},
    ]
    before = shard.read_bytes()
    for _ in range(2):
        counting.reconcile_all(workspace)
    assert shard.read_bytes() == before


# Refusals


def test_what_is_filled_is_not_filled_again(workspace):
    entry = flagged(workspace)
    pattern = state_lesson(workspace, "velma", entry, Correction("", "", LESSON)).id
    before = log_of(workspace).read_bytes()
    for words, same in ((LESSON, ""), ("Something else", ""), ("", pattern)):
        with pytest.raises(NoError, match=f"is filled already, and counted as {pattern}: {LESSON}.*fleet merge"):
            state_lesson(workspace, "velma", entry, Correction("", "", words), same=same)
    assert log_of(workspace).read_bytes() == before


def test_what_a_person_filled_in_by_hand_keeps_working(workspace):
    entry = flagged(workspace)
    path = log_of(workspace)
    path.write_text(path.read_text().replace(corrections_md.TO_BE_INFERRED, "Use pnpm by hand"))
    (bound,) = bound_of(workspace)
    assert bound.id != entry
    with pytest.raises(NoError, match="filled already, by hand"):
        state_lesson(workspace, "velma", bound.id, Correction("", "", LESSON))
    counting.reconcile_all(workspace)
    assert seen(workspace) == {"Use pnpm by hand": 1}


def test_a_pattern_that_a_person_writes_into_a_filled_entry_counts_no_second_time(workspace):
    state_lesson(workspace, "velma", flagged(workspace), Correction("", "", LESSON))
    path = log_of(workspace)
    path.write_text(path.read_text().replace(corrections_md.TO_BE_INFERRED, "Use pnpm by hand"))
    counting.reconcile_all(workspace)
    assert seen(workspace) == {LESSON: 1}


def test_an_unknown_or_ambiguous_beginning_is_told(workspace):
    ids = [flagged(workspace, f"no {number}", f"s-{number}") for number in range(20)]
    start = next(a for a, b in itertools.combinations(sorted(each[:3] for each in ids), 2) if a == b)
    with pytest.raises(NoError, match="not enough of an id"):
        state_lesson(workspace, "velma", start, Correction("", "", LESSON))
    with pytest.raises(NoError, match="begins with 'c-zzzz'"):
        state_lesson(workspace, "velma", "c-zzzz", Correction("", "", LESSON))
    with pytest.raises(NoError, match="splinter has no correction"):
        state_lesson(workspace, "splinter", ids[0], Correction("", "", LESSON))
    with pytest.raises(NoError, match="'' is not enough of an id"):
        state_lesson(workspace, "velma", "", Correction("", "", LESSON))
    assert state_lesson(workspace, "velma", ids[0].removeprefix("c-")[:8], Correction("", "", LESSON)).entry == ids[0]


def test_words_are_screened_and_limited(workspace):
    entry = flagged(workspace)
    token = "ghp_" + "a1B2" * 9
    with pytest.raises(RefusedError):
        state_lesson(workspace, "velma", entry, Correction("", "", "x " * 9_000))
    with pytest.raises(UsageError):
        state_lesson(workspace, "velma", entry, Correction("", "", "..."))
    done = state_lesson(
        workspace, "velma", entry, Correction("", f"hide {token} <!-- -->", f"Never print\n{token}\x1b[2J 中文")
    )
    assert "github-classic" in done.secrets
    assert "a1B2" not in log_of(workspace).read_text()
    assert done.text == "Never print [REDACTED:github-classic] 中文"
    (line,) = workspace.patterns.lessons()
    assert line.correct == "hide [REDACTED:github-classic] <!-- -->"


# The text


hostile = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["<!--", "-->", "--\\>", "`", "```", "#", "##", "—", "-", ":", " ", "\n", "**Pattern:**", "TBD",
                         "Learned from c-0123456789abcdef — x", "fleet c-0123456789abcdef", "中文", "x", "\\", "_"]),
        min_size=1, max_size=8,
    ).map("".join),
)  # fmt: skip


@given(words=hostile, field=st.sampled_from(["pattern", "right"]))
def test_a_stated_lesson_reads_back(words, field):
    words = " ".join(words.split())
    if not words:
        return
    said = Statement("c-0123456789abcdef", field, words)
    log = Log.parse(said.render())
    assert (log.statements, log.entries, log.records) == ((said,), (), ())


@given(title=hostile, when=st.sampled_from(["", "2026-03-15 14:30Z"]))
def test_no_title_is_taken_for_a_lesson(title, when):
    for start in ("Learned from c-0123456789abcdef — ", "Right way for c-0123456789abcdef: "):
        page = Draft(Correction("w", title=start + title, pattern="p"), when).render()
        log = Log.parse(page)
        assert (log.statements, [entry.wrong for entry in log.entries]) == ((), ["w"])
        assert log.entries[0].title == " ".join((start + title).split("\n")).strip() or "\n" in title


def test_a_reader_that_knows_no_lessons_sees_the_entries_as_they_are(workspace, monkeypatch):
    correct(workspace, "velma", Correction("w", "r", "Another lesson"))
    ids = [flagged(workspace), flagged(workspace, "b", "s-2")]
    before = Log.parse(log_of(workspace).read_bytes())
    for entry in ids:
        state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    path = log_of(workspace)
    path.write_text(path.read_text() + "\n## 2026-11-22 12:00Z — by hand\n**Pattern:** By hand\n")
    monkeypatch.setattr(corrections_md, "_read_statement", lambda heading: None)
    after = Log.parse(path.read_bytes())
    assert [e.content for e in after.entries[:-1]] == [e.content for e in before.entries]
    assert after.entries[-1].pattern == "By hand"
    assert {record.id for record in after.records} >= set(ids)


def test_wherever_the_write_was_torn_off_nothing_false_is_learned(workspace):
    entry = flagged(workspace)
    before = log_of(workspace).read_bytes()
    state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    whole = log_of(workspace).read_bytes()
    for cut in range(len(before), len(whole)):
        (bound,) = Log.parse(whole[:cut]).entries
        assert bound.id == entry
        assert (bound.record, bound.pattern) == (None, "") or cut == len(whole) - 1, cut


@pytest.mark.parametrize("cut", [3, 30, 60, 100, 150, 250])
def test_after_a_torn_write_it_is_said_again_and_counts_once(workspace, cut):
    entry = flagged(workspace)
    before = log_of(workspace).read_bytes()
    state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    whole = log_of(workspace).read_bytes()
    forget_counts(workspace)
    log_of(workspace).write_bytes(whole[: len(before) + cut])
    assert len(CountedLog(workspace, "velma").to_state()) == 1
    done = state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    assert (done.seen, done.text) == (1, LESSON)
    (line,) = workspace.patterns.lessons()
    assert line.correct == "pnpm install"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_order_a_merge_leaves_the_lines_in_each_lesson_finds_its_entry(workspace, seed):
    ids = [flagged(workspace, f"no {number}", f"s-{number}") for number in range(4)]
    cut = len(log_of(workspace).read_text())
    for number, entry in enumerate(ids):
        state_lesson(workspace, "velma", entry, Correction("", f"Way {number}", f"Lesson number {number}"))
    whole = log_of(workspace).read_text()
    rows = whole[cut:].splitlines(keepends=True)
    random.Random(seed).shuffle(rows)
    log = Log.parse(whole[:cut] + "".join(rows))
    found = {bound.id: (bound.pattern, bound.right, bound.record.id) for bound in log.entries}
    assert found == {entry: (f"Lesson number {n}", f"Way {n}", entry) for n, entry in enumerate(ids)}


def test_two_branches_that_filled_different_entries_are_united_by_git(workspace, tmp_path):
    ids = [flagged(workspace, f"no {number}", f"s-{number}") for number in range(2)]
    base = log_of(workspace).read_bytes()
    sides = []
    for number, entry in enumerate(ids):
        log_of(workspace).write_bytes(base)
        state_lesson(workspace, "velma", entry, Correction("", "", f"Lesson number {number}"))
        sides.append(tmp_path / f"side-{number}")
        sides[-1].write_bytes(log_of(workspace).read_bytes())
    (tmp_path / "base").write_bytes(base)
    merged = subprocess.run(
        ["git", "merge-file", "--union", "-p", str(sides[0]), str(tmp_path / "base"), str(sides[1])],
        capture_output=True,
        check=True,
    ).stdout
    found = Log.parse(merged).entries
    assert {bound.id: bound.pattern for bound in found} == dict(
        zip(ids, ["Lesson number 0", "Lesson number 1"], strict=True)
    )
    assert all(bound.record is not None for bound in found)


def test_one_entry_filled_twice_in_two_branches_is_what_its_newest_record_says(workspace):
    entry = flagged(workspace)
    base = log_of(workspace).read_bytes()
    added = []
    for words in ("One lesson", "Zebra lesson", "Another lesson"):
        log_of(workspace).write_bytes(base)
        state_lesson(workspace, "velma", entry, Correction("", "", words))
        added.append(log_of(workspace).read_bytes()[len(base) :])
    for order in itertools.permutations(added):
        (bound,) = Log.parse(base + b"".join(order)).entries
        assert bound.pattern == "Another lesson"


def test_what_somebody_writes_below_a_lesson_is_not_lost(workspace):
    state_lesson(workspace, "velma", flagged(workspace), Correction("", "", LESSON))
    path = log_of(workspace)
    path.write_text(path.read_text() + "**What I got wrong:** x\n**Pattern:** A lesson without a heading\n")
    counting.reconcile_all(workspace)
    assert seen(workspace) == {LESSON: 1, "A lesson without a heading": 1}


def test_a_bare_entry_before_a_lesson_is_an_entry_still(workspace):
    entry = flagged(workspace)
    path = log_of(workspace)
    path.write_text(path.read_text() + "\n# Never bulk-commit\n\nSplit.\n")
    state_lesson(workspace, "velma", entry, Correction("", "", LESSON))
    assert [
        each.title for each in signals.Signals(workspace.files, "velma", workspace.wall).waiting(everything=True)
    ] == ["Never bulk-commit"]


def test_the_pattern_that_stands_in_an_entry_is_the_one_that_counts(workspace):
    correct(workspace, "velma", Correction("w", "r", LESSON))
    (bound,) = bound_of(workspace)
    path = log_of(workspace)
    path.write_text(path.read_text() + Statement(bound.id, "pattern", "Something else").render())
    (again,) = bound_of(workspace)
    assert (again.pattern, again.id) == (LESSON, bound.id)


def test_a_backup_brings_a_lesson_back(workspace):
    entry = flagged(workspace)
    before = log_of(workspace).read_bytes()
    state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    moving.backup(workspace, workspace.root.parent / f"{workspace.root.name}.tar.gz")
    log_of(workspace).write_bytes(before)
    forget_counts(workspace)
    for _ in range(2):
        moving.restore_backup(workspace, workspace.root.parent / f"{workspace.root.name}.tar.gz")
    (bound,) = bound_of(workspace)
    assert (bound.pattern, bound.right) == (LESSON, "pnpm install")
    assert log_of(workspace).read_text().count("## Learned from") == 1
    counting.reconcile_all(workspace)
    assert seen(workspace) == {LESSON: 1}


def test_the_content_stays_the_one_that_was_hashed(workspace):
    entry = flagged(workspace)
    (before,) = bound_of(workspace)
    state_lesson(workspace, "velma", entry, Correction("", "pnpm install", LESSON))
    (after,) = bound_of(workspace)
    assert (before.content, before.id) == (after.content, after.id)
    assert json.loads(after.content)[5] == ""


@pytest.mark.parametrize(
    ("old", "new"), [("Learned from", "Learned form"), ("never npm", "never yarn"), ("run pnpm", "run npm")]
)
def test_an_edited_lesson_of_a_signal_is_noticed_and_counts_as_it_did(workspace, old, new):
    entry = flagged(workspace)
    state_lesson(workspace, "velma", entry, Correction("", "run pnpm `<!-- x -->`", LESSON, trigger="Bash:npm*"))
    log = CountedLog(workspace, "velma")
    assert log.edited() == []
    log_of(workspace).write_text(log_of(workspace).read_text().replace(old, new))
    assert [each.id for each in log.edited()] == [entry]
    counting.reconcile_all(workspace)
    assert seen(workspace) == {LESSON: 1}


def test_a_lesson_stated_before_records_remembered_it_is_not_called_edited(workspace):
    state_lesson(workspace, "velma", flagged(workspace), Correction("", "", LESSON))
    log_of(workspace).write_text(re.sub(r" stated=\w+", "", log_of(workspace).read_text()))
    assert CountedLog(workspace, "velma").edited() == []
