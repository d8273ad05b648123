"""`fleet stats` and `fleet feedback`, by the real command line."""

import json

import pytest

from fleet.learn.signals import Flag, Signals
from fleet.reflect.exposure import Exposures
from fleet.store.database import Local
from fleet.store.workspace import Workspace

NOW_MS = 1_795_262_400_000


@pytest.fixture
def velma(stage):
    return stage.join("velma")


def stats(stage, where):
    return json.loads(stage.run(where, "stats", "--json").stdout)


def test_a_clan_that_knows_nothing_has_no_figures(stage, velma):
    found = stats(stage, velma)
    assert (found["weeks"], found["lessons"], found["unfilled"]) == ([], [], 0)
    assert "no correction was counted" in stage.run(velma, "stats").stdout


def test_corrections_relapses_and_the_way_to_the_fleet(stage, velma):
    pattern = stage.correct(velma, "Use pnpm", "--session", "s-1")
    state = Local(stage.folder / velma / ".fleet" / "local.db")
    for days in (400, 300, -400):
        Exposures(state).note(velma, "s-2", [pattern], NOW_MS - days * 86_400_000)
    state.close()
    stage.correct(velma, "Another lesson")
    stage.run(velma, "edit", pattern, "--set", "state=published")
    found = stats(stage, velma)
    assert sum(week["corrections"] for week in found["weeks"]) == 2
    (lesson,) = found["lessons"]
    assert (lesson["id"], lesson["seen"], lesson["published"][-1]) == (pattern, 1, "Z")
    assert (lesson["before"]["shown"], lesson["after"]["shown"]) == (2, 1)
    assert found["to_fleet"]["lessons"][0]["id"] == pattern
    assert 0 <= found["to_fleet"]["median_hours"] < 1
    drawn = stage.run(velma, "stats").stdout
    assert drawn.startswith("Agents here: velma\n\nCorrections per week on this machine: ")
    assert "█" in drawn
    assert "  0/3   0/2 > 0/1 " in drawn
    assert "Use pnpm" in drawn
    assert "From first correction to the fleet's memory" in drawn


def test_a_correction_of_a_clock_that_ran_ahead_draws_no_week_that_is_to_come(stage, velma):
    stage.now_ms = NOW_MS + 400 * 86_400_000
    stage.correct(velma, "Logged by a clock that ran ahead")
    stage.now_ms = NOW_MS
    stage.correct(velma, "Logged by a clock that was put right")
    assert [week["corrections"] for week in stats(stage, velma)["weeks"]] == [1]


def test_feedback_raises_a_counter_in_the_own_slot_and_tells_the_totals(stage, velma):
    pattern = stage.correct(velma, "Use pnpm")
    tank = stage.join("tank")
    for where in (velma, tank):
        stage.run(where, "sync")
        for word in ("--helped", "--hurt", "--helped"):
            done = stage.run(where, "feedback", pattern, word, "--json")
        stage.run(where, "sync")
    assert json.loads(done.stdout) == {
        "id": pattern, "helped": 4, "hurt": 2, "shown": 0, "relapsed": 0, "not_working": "",
    }  # fmt: skip
    stage.run(velma, "sync")
    (found,) = stage.patterns(velma)["patterns"]
    assert (found["helped"], found["hurt"], found["seen"]) == (4, 2, 1)
    assert sorted(stage.edition()[0].totals["helped"].values()) == [2, 2]


def test_a_lesson_that_hurts_is_shown_as_not_working(stage, velma):
    pattern = stage.correct(velma, "Use pnpm")
    said = stage.run(velma, "feedback", pattern[:8], "--hurt").stdout
    assert said.startswith(f"{pattern} helped 0, hurt 1: Use pnpm\n  not working: hurt 1 time, helped 0. `fleet edit")
    assert "(not working: hurt 1 time, helped 0)" in stage.run(velma, "patterns").stdout
    assert "not working: hurt 1 time, helped 0" in stage.run(velma, "show", pattern).stdout
    assert stage.patterns(velma)["patterns"][0]["not_working"] == "hurt 1 time, helped 0"
    assert stats(stage, velma)["not_working"] == [
        {"id": pattern, "text": "Use pnpm", "reason": "hurt 1 time, helped 0"}
    ]
    assert "Not working (1)" in stage.run(velma, "stats").stdout
    stage.run(velma, "feedback", pattern, "--helped")
    assert "not working" not in stage.run(velma, "patterns").stdout


def test_feedback_on_a_merged_lesson_tells_the_whole_of_it(stage, velma):
    one, other = stage.correct(velma, "Use pnpm"), stage.correct(velma, "Prefer pnpm to install packages")
    stage.run(velma, "merge", one, other)
    for pattern in (one, other):
        done = json.loads(stage.run(velma, "feedback", pattern, "--helped", "--json").stdout)
    assert done["helped"] == 2


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["p-zzz", "--hurt"], 1, "no lesson has an id"),
        (["PATTERN"], 2, "give one of"),
        (["PATTERN", "--hurt", "--helped"], 2, "give one of"),
    ],
)
def test_feedback_that_says_nothing_is_none(stage, velma, words, code, told):
    pattern = stage.correct(velma, "Use pnpm")
    done = stage.run(velma, "feedback", *[pattern if word == "PATTERN" else word for word in words], expect=code)
    assert told in done.stderr
    assert "hurt" not in stage.patterns(velma)["patterns"][0]


def test_what_waits_for_its_lesson_is_counted(stage, velma):
    workspace = Workspace(stage.folder / velma)
    Signals(workspace.files, velma, workspace.wall).flag(Flag("human", "no"))
    workspace.close()
    assert stats(stage, velma)["unfilled"] == 1
    assert "1 without a lesson yet" in stage.run(velma, "stats").stdout
