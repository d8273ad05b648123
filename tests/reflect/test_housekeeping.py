"""The housekeeping pass over notes, without a file: the seed's statements, its listed tests, and its faults avoided."""

import itertools
import json
import random
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.reflect import housekeeping
from fleet.reflect.clusters import alike
from fleet.reflect.housekeeping import (
    _WHY_SKIPPED,
    ARCHIVE,
    COSINE_MIN,
    SCORE_MIN,
    DreamReport,
    Mode,
    Note,
    Plan,
    Stage,
)
from tests.pace import within

ROOT = Path(__file__).resolve().parents[2]
HOUR_MS = 3_600_000
NOW_MS = 1_776_254_400_000  # 2026-04-15T12:00Z
RECENT_MS = NOW_MS - HOUR_MS
OLD_MS = NOW_MS - 169 * HOUR_MS
PIN = "Pin the version of every action in a workflow by its digest"
PIN_AGAIN = "Pin the version of every action in a workflow by its digest."


def note(name, text, at_ms=RECENT_MS, **more):
    return Note(name, text, at_ms, **more)


def all_alike(_, pairs):
    """Return the highest cosine for every pair: an embedding that knows no difference."""
    return dict.fromkeys(pairs, 1.0)


def stages(found):
    return {each.id: each.after for each in found.changes if each.field == "stage"}


# --- "run_reflection_pass walks a single agent's memories and applies four normalising sweeps in order: 1. rewrite
# relative temporal phrases ("yesterday", "last week", "N days ago", "tomorrow") into ISO-8601 dates anchored on each
# record's created_at" -------------------------------------------------------------------------------------------------


def test_the_four_sweeps_run_in_the_seeds_order():
    notes = [
        note("d", "The build broke yesterday because the lockfile was stale"),
        note("a", PIN, RECENT_MS),
        note("b", PIN_AGAIN, RECENT_MS + 1),
        note("c", "Always squash commits before a merge", importance=0.2),
        note("e", "Never squash commits before a merge", RECENT_MS + 1, importance=0.2),
        note("f", "Restart the queue worker after each change of its settings", OLD_MS),
    ]
    found = Plan.of(notes, NOW_MS)
    order = [each.sweep for each in found.changes]
    assert [key for key, _ in itertools.groupby(order)] == ["dates", "dedup", "conflicts", "archive"]
    report = found.report
    assert (report.absolutized_dates, report.consolidated, report.conflicts_resolved, report.archived) == (1, 1, 1, 1)
    assert report.total_scanned == len(notes)


def test_dates_are_absolute_before_notes_are_compared():
    notes = [
        note("a", "The mirror was moved on 2026-04-14 to another host", RECENT_MS - 1),
        note("b", "The mirror was moved on yesterday to another host", RECENT_MS),
    ]
    assert stages(Plan.of(notes, NOW_MS)) == {"a": "consolidated"}


def test_dates_are_anchored_on_each_records_created_at():
    notes = [note("a", "It broke yesterday", NOW_MS - 48 * HOUR_MS), note("b", "Lost it 2 days ago", NOW_MS)]
    changed = {each.id: each.after for each in Plan.of(notes, NOW_MS).changes if each.field == "text"}
    assert changed == {"a": "It broke 2026-04-12", "b": "Lost it 2026-04-13"}


# --- "any two memories whose embeddings have cosine similarity >= 0.92 collapse into a single record that unions their
# tags and sums their access_count. The older record is moved to the Consolidated state and a consolidated_from relation
# is inserted" ---------------------------------------------------------------------------------------------------------


def test_two_records_with_2_accesses_each_dedup_to_4():
    notes = [
        note("a", PIN, OLD_MS, accesses=2, tags=("ci", "pin")),
        note("b", PIN_AGAIN, RECENT_MS, accesses=2, tags=("actions", "ci")),
    ]
    found = Plan.of(notes, NOW_MS)
    assert stages(found) == {"a": "consolidated"}
    assert {(each.id, each.field): each.after for each in found.changes if each.field != "stage"} == {
        ("b", "consolidated_from"): ["a"],
        ("b", "tags"): ["actions", "ci", "pin"],
    }
    # Made of both, it has 4 accesses, and so it matters in the next pass.
    done = housekeeping._Pass(notes)
    done.consolidate(done.pairs(None, frozenset()), is_cosine=False)
    assert done.notes["b"].accesses == 4


@pytest.mark.parametrize(("cosine", "joined"), [(0.92, True), (0.9199, False)])
def test_the_cosine_from_which_on_two_say_the_same_is_0_92(cosine, joined):
    notes = [
        note("a", "Quote every shell variable that may hold a path"),
        note("b", "Quote shell variables that may hold a path or a name", RECENT_MS + 1),
    ]
    found = Plan.of(notes, NOW_MS, cosines=lambda _, pairs: dict.fromkeys(pairs, cosine))
    assert bool(found.report.consolidated) == joined
    assert found.report.compared_by == "cosine"
    assert COSINE_MIN == 0.92


def test_the_newer_wins_and_of_a_tie_the_one_scanned_first():
    assert stages(Plan.of([note("new", PIN, RECENT_MS), note("old", PIN_AGAIN, OLD_MS)], NOW_MS)) == {
        "old": "consolidated"
    }
    assert stages(Plan.of([note("z", PIN), note("a", PIN_AGAIN)], NOW_MS)) == {"a": "consolidated"}


def test_of_three_alike_one_is_left_and_is_made_of_both():
    notes = [note(name, text, RECENT_MS + at) for at, (name, text) in enumerate([("a", PIN), ("b", PIN), ("c", PIN)])]
    found = Plan.of(notes, NOW_MS)
    assert stages(found) == {"a": "consolidated", "b": "consolidated"}
    made = [each.after for each in found.changes if each.field == "consolidated_from"]
    assert [sorted(each) for each in made] == [["a", "b"]]


APART = [
    ("Use npm in this repository", "Never use npm in this repository"),
    ("Use npm in this repository", "Use pnpm in this repository"),
    ("Retry the upload 3 times", "Retry the upload 5 times"),
    ("Use Node 20 for the build of the docs", "Use Node 22 for the build of the docs"),
    ("Pin ruff to 0.4.1 in the lock file", "Pin ruff to 0.5.0 in the lock file"),
    ("Always squash commits before a merge", "Never squash commits before a merge"),
    ("Enable the cache of the runner", "Disable the cache of the runner"),
    ("Run the tests before the linter", "Run the linter before the tests"),
    ("Edit config/dev.toml for the port", "Edit config/prod.toml for the port"),
    ("Call `git merge` on the branch", "Call `git rebase` on the branch"),
]


@pytest.mark.parametrize(("one", "other"), APART)
@pytest.mark.parametrize("cosines", [None, all_alike])
def test_nothing_is_joined_across_an_opposite_a_number_a_name_or_a_version_whatever_the_cosine(one, other, cosines):
    found = Plan.of([note("a", one), note("b", other, RECENT_MS + 1)], NOW_MS, cosines=cosines)
    assert found.report.consolidated == 0


def test_what_somebody_said_is_two_stays_two():
    notes = [note("a", PIN), note("b", PIN_AGAIN, RECENT_MS + 1)]
    assert Plan.of(notes, NOW_MS, apart={("a", "b")}).changes == ()


def test_words_alone_are_at_least_as_precise_as_the_cosine_on_the_labelled_pairs():
    """With the static embedding of the extra, 9 of these pairs reach 0.92 and differ in nothing, all of them ``same``.

    Without the look at what differs 98 pairs reach it, 9 of them ``same``: that is why it is not left to the cosine.
    """
    rows = [json.loads(line) for line in (ROOT / "benchmarks/matching/pairs.jsonl").read_text("utf-8").splitlines()]
    texts = [text for row in rows for text in (row["a"], row["b"])]
    found = alike(texts, also=[(2 * at, 2 * at + 1) for at in range(len(rows))], least=1.1)
    joined = [
        rows[one // 2]["label"]
        for one, _, each in found
        if each.score >= SCORE_MIN and not each.differs and not each.is_doubtful
    ]
    assert joined.count("same") == len(joined)
    assert len(joined) >= 9


# --- "run detect_conflicts and, for any conflict where both sides have importance < 0.3, apply
# ResolutionStrategy::KeepNewest" --------------------------------------------------------------------------------------

SQUASH = ("Always squash commits before a merge", "Never squash commits before a merge")


@pytest.mark.parametrize(
    ("one", "other", "solved"), [(0.29, 0.29, True), (0.3, 0.29, False), (0.29, 0.3, False), (0.5, 0.5, False)]
)
def test_a_conflict_is_resolved_where_both_sides_matter_less_than_0_3(one, other, solved):
    notes = [note("a", SQUASH[0], importance=one), note("b", SQUASH[1], RECENT_MS + 1, importance=other)]
    found = Plan.of(notes, NOW_MS)
    assert stages(found) == ({"a": "archived"} if solved else {})
    assert found.contradictions == (() if solved else (("a", "b"),))


# --- "mark records Archived when their effective_importance < 0.2, their access_count == 0, and their age exceeds the
# configured threshold (default 7 days)" -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "more", "archived"),
    [
        (OLD_MS, {}, True),
        (NOW_MS - 168 * HOUR_MS, {}, False),
        (OLD_MS, {"accesses": 1}, False),
        (OLD_MS, {"importance": 1.0}, True),
        (NOW_MS - 170 * HOUR_MS, {"importance": 1.0}, True),
        (NOW_MS + HOUR_MS, {}, False),
        (OLD_MS, {"may_rest": False}, False),
        (OLD_MS, {"importance": 0.2}, True),
    ],
)
def test_what_is_stale_goes_to_rest(at_ms, more, archived):
    found = Plan.of([note("a", PIN, at_ms, **more)], NOW_MS)
    assert bool(found.report.archived) == archived
    assert all(each.sweep == ARCHIVE for each in found.changes)


@pytest.mark.parametrize(("importance", "archived"), [(0.9, False), (0.2, True)])
def test_what_matters_stays_though_it_is_old(importance, archived):
    found = Plan.of([note("a", PIN, NOW_MS - 48 * HOUR_MS, importance=importance)], NOW_MS, archive_hours=24)
    assert bool(found.report.archived) == archived


def test_the_threshold_of_age_is_configured():
    assert Plan.of([note("a", PIN, OLD_MS)], NOW_MS, archive_hours=200).changes == ()


@pytest.mark.parametrize("stage", [Stage.CONSOLIDATED, Stage.ARCHIVED, Stage.FORGOTTEN])
def test_what_rests_is_not_looked_at(stage):
    assert Plan.of([note("a", "It broke yesterday", OLD_MS, stage=stage)], NOW_MS).report.total_scanned == 0


# --- "Minimum interval (in hours) between Coordinated passes for one agent. Matches Auto Dream's 24h cadence."
# "Minimum number of newly-written records (since last_reflection_at) that must exist before a Coordinated pass runs.
# Matches Auto Dream's floor." "Controls when the reflection pass runs its expensive phases." "Why a Coordinated pass
# decided to skip, when it did." "The pass is exposed as MnemoEngine::run_reflection_pass and is safe to schedule on a
# periodic tick (default cadence 24h, driven from the CLI)" ------------------------------------------------------------


def test_3_records_give_not_enough_new_records():
    assert Mode.COORDINATED.skip_reason(NOW_MS, None, 3, None) == "NotEnoughNewRecords"
    assert Mode.COORDINATED.skip_reason(NOW_MS, None, 5, None) is None


def test_a_coordinated_pass_waits_for_24_hours():
    assert Mode.COORDINATED.skip_reason(NOW_MS, NOW_MS - 24 * HOUR_MS + 1, 99, None) == "TooSoon"
    assert Mode.COORDINATED.skip_reason(NOW_MS, NOW_MS - 24 * HOUR_MS, 99, None) is None


def test_a_clock_that_was_set_back_by_days_does_not_stop_the_pass_for_good():
    assert Mode.COORDINATED.skip_reason(NOW_MS, NOW_MS + 24 * HOUR_MS, 99, None) is None


def test_after_the_hosts_own_pass_a_coordinated_one_is_skipped():
    assert Mode.COORDINATED.skip_reason(NOW_MS, None, 99, NOW_MS - HOUR_MS) == "AutoDreamAlreadyRan"
    assert Mode.COORDINATED.skip_reason(NOW_MS, None, 99, NOW_MS - 24 * HOUR_MS) is None


def test_run_reflection_pass_runs_unconditionally_in_the_mode_always():
    """ "Back-compat entry point — runs the reflection pass unconditionally (equivalent to
    run_reflection_pass_with_mode(_, _, Always, true))."
    """
    assert Mode.ALWAYS.skip_reason(NOW_MS, NOW_MS, 0, NOW_MS) is None


def test_a_person_is_told_in_words_why_a_pass_was_skipped():
    for reason in _WHY_SKIPPED:
        told = housekeeping.ReflectionReport(skipped=reason).summary()
        assert reason not in told
        assert "`fleet tidy --mode always`" in told


def test_the_names_are_the_seeds():
    """ "Result of a single reflection pass." "Auto Dream organization-report trailer." """
    assert [*_WHY_SKIPPED] == ["TooSoon", "NotEnoughNewRecords", "AutoDreamAlreadyRan"]
    assert {each.name.title() for each in Stage} == {
        "Raw",
        "Active",
        "Pending",
        "Consolidated",
        "Archived",
        "Forgotten",
    }
    assert housekeeping.ReflectionReport.__struct_fields__[:8] == (
        *("consolidated", "absolutized_dates", "dreamed_accepted", "archived", "conflicts_resolved"),
        *("total_scanned", "skipped", "dream_report_ingested"),
    )


# --- "Parser is permissive — matches whichever of these three keys appears: consolidated, removed, reindexed
# (case-insensitive, values are base-10 integers after a colon or equals sign). Missing keys default to zero." ---------


def test_the_trailer_of_the_original_is_read():
    text = "I tidied up.\n\n## Organization Report\nConsolidated: 4\nRemoved = 1\nRe-indexed: 9\n"
    assert DreamReport.parse(text) == DreamReport(4, 1, 9)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("## organization report\nREMOVED:3", DreamReport(0, 3, 0)),
        ("## Organization Report\r\n- **Consolidated**: 2\r\n- re_indexed = 7\r\n", DreamReport(2, 0, 7)),
        ("## ORGANIZATION REPORT\nre indexed: 5 files, reindexed: 6", DreamReport(0, 0, 5)),
        ("## Organization Report\nnothing to say", DreamReport()),
        ("## Organization Report\nremoved: many, consolidated: -4", DreamReport()),
        ("Consolidated: 4\n## Organization Report\n", DreamReport()),
        ("Consolidated: 4", None),
        ("The Organization Report says consolidated: 4", None),
        ("", None),
    ],
)
def test_returns_none_when_no_organization_report_header_is_present(text, wanted):
    """ "Parse an Auto Dream organization-report trailer from free text. Returns None when no ## Organization Report
    header is present."
    """
    assert DreamReport.parse(text) == wanted


@given(st.text())
def test_no_text_breaks_the_parser(text):
    DreamReport.parse(f"## Organization Report\n{text}")


# --- the same notes give the same plan, and a second pass finds nothing -----------------------------------------------

WORDS = ("pin", "retry", "cache", "token", "queue", "deploy", "yesterday", "never", "always", "3", "5", "`make`", "the")
NOTES = st.lists(
    st.builds(
        Note,
        id=st.uuids().map(str),
        text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join),
        at_ms=st.integers(NOW_MS - 400 * HOUR_MS, NOW_MS),
        importance=st.floats(0, 1),
        accesses=st.integers(0, 3),
        tags=st.lists(st.sampled_from(["ci", "git"]), max_size=2).map(tuple),
    ),
    max_size=12,
    unique_by=lambda each: each.id,
)


@given(NOTES)
def test_a_second_pass_over_the_result_of_the_first_changes_nothing(notes):
    found = Plan.of(notes, NOW_MS, UTC)
    after = {each.id: each for each in notes}
    for change in found.changes:
        value = Stage(change.after) if change.field == "stage" else change.after
        name = {"consolidated_from": "merged"}.get(change.field, change.field)
        after[change.id] = after[change.id]._replace(**{name: tuple(value) if isinstance(value, list) else value})
    assert Plan.of(list(after.values()), NOW_MS, UTC).changes == ()


@given(NOTES)
def test_no_text_is_lost_and_every_note_that_goes_says_where(notes):
    found = Plan.of(notes, NOW_MS)
    gone = stages(found)
    made = {part for each in found.changes if each.field == "consolidated_from" for part in each.after}
    assert {name for name, stage in gone.items() if stage == "consolidated"} == made
    assert set(gone) <= {each.id for each in notes}


# --- speed: some partners for each, never all pairs -------------------------------------------------------------------


def many(number):
    rng = random.Random(7)
    words = ["".join(chr(ord("a") + int(digit)) for digit in f"{n:04}") for n in range(3_000)]
    weights = [1 / (n + 1) for n in range(len(words))]
    texts = [" ".join(rng.choices(words, weights, k=14)) for _ in range(number)]
    return [note(f"n{at}", text, RECENT_MS + at) for at, text in enumerate(texts)]


def test_a_text_is_paired_with_few_others_however_many_there_are():
    texts = [each.text for each in many(3_000)]
    assert len(alike(texts + texts[:50])) < 20 * len(texts)


def test_texts_that_are_alike_are_paired_among_many():
    texts = [each.text for each in many(2_000)]
    extra = [f"{text} indeed" for text in texts[::40]]
    found = {(one, other) for one, other, _ in alike(texts + extra)}
    assert all((40 * at, len(texts) + at) in found for at in range(len(extra)))


@pytest.mark.parametrize("text", ["same words again and again", "a", ""])
def test_texts_that_are_all_alike_cost_no_more(text):
    with within(5):
        alike([text] * 5_000)
