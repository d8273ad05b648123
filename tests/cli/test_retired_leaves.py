"""What the clan retires leaves every memory, says so, and comes back by the usual rules alone."""

import json
import re

import pytest

from fleet import RELEASED_MS

LESSON = "Always use awk over sed for user-provided input substitution"
NOTES = b"# Memory\r\n\r\n## Notes\r\n\r\n- mine, no final newline"


def memory(stage, where):
    return stage.folder / where / f"agents/{where}/memory.md"


def status(stage, where):
    return json.loads(stage.run(where, "status", "--json").stdout)["memory"]


def hook(stage, where, event, **more):
    payload = {"session_id": "s-9", "cwd": str(stage.folder / where), "hook_event_name": event, **more}
    return stage.run(where, "hook", event, text=json.dumps(payload)).stdout


@pytest.fixture
def shared(stage):
    """Velma's lesson, met by both three times, stands in the memories of both; tank's by a yes."""
    for agent in ("velma", "tank"):
        stage.join(agent)
        memory(stage, agent).parent.mkdir(parents=True, exist_ok=True)
        memory(stage, agent).write_bytes(NOTES)
    for number in range(3):
        pattern = stage.correct("velma", LESSON, "--session", f"s-{number}")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("tank", "promote", pattern)
    assert all(LESSON.encode() in memory(stage, agent).read_bytes() for agent in ("velma", "tank"))
    return pattern


def retire_elsewhere(stage, pattern):
    stage.join("slash")
    stage.run("slash", "sync")
    stage.run("slash", "retire", pattern)
    stage.run("slash", "sync")


def test_a_lesson_that_was_retired_elsewhere_leaves_with_the_next_sync(stage, shared):
    retire_elsewhere(stage, shared)
    for agent in ("velma", "tank"):
        told = stage.run(agent, "sync").stderr
        assert f"the clan retired {shared}, so it left {agent}'s memory.md" in told
        left = memory(stage, agent).read_bytes()
        assert LESSON.encode() not in left
        assert shared.encode() not in left
        assert left.endswith(b"\r\n## Notes\r\n\r\n- mine, no final newline")
        assert status(stage, agent)["lessons"] == []
        assert f"`fleet restore {shared}`, then `fleet promote {shared}`" in told
        assert LESSON not in stage.run(agent, "start").stdout
        assert "left" not in stage.run(agent, "sync").stderr  # it is said once
        assert memory(stage, agent).read_bytes() == left


def test_restored_it_comes_back_where_the_evidence_is_and_else_by_a_yes(stage, shared):
    retire_elsewhere(stage, shared)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("slash", "restore", shared)
    stage.run("slash", "sync")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert LESSON.encode() in memory(stage, "velma").read_bytes()  # met three times
    assert LESSON.encode() not in memory(stage, "tank").read_bytes()
    stage.run("tank", "promote", shared)
    assert status(stage, "tank")["lessons"] == [shared]


def test_what_a_person_took_out_stays_out_when_it_is_restored(stage, shared):
    stage.run("velma", "demote", shared)
    retire_elsewhere(stage, shared)
    stage.run("velma", "sync")
    stage.run("slash", "restore", shared)
    stage.run("slash", "sync")
    stage.run("velma", "sync")
    assert status(stage, "velma")["lessons"] == []


def test_a_session_start_does_not_wait_for_a_sync(stage, shared):
    """The retirement came in by other means: a plain git pull, say."""
    retire_elsewhere(stage, shared)
    stage.run("velma", "start")  # what lies ready is of before
    shards = "clan-learnings/patterns.d"
    (stage.folder / "velma" / shards).mkdir(exist_ok=True)
    for name in (
        "clan-learnings/patterns.jsonl",
        *(f"{shards}/{p.name}" for p in (stage.folder / "slash" / shards).iterdir()),
    ):
        (stage.folder / "velma" / name).write_bytes((stage.folder / "slash" / name).read_bytes())
    stage.run("velma", "doctor", expect=None)
    assert LESSON.encode() in memory(stage, "velma").read_bytes()  # looking changes nothing
    (stage.folder / "velma/clan-learnings/members.toml").write_text("# another text than the one that lies ready\n")
    context = json.loads(hook(stage, "velma", "SessionStart"))["hookSpecificOutput"]["additionalContext"]
    assert LESSON not in context
    assert LESSON.encode() not in memory(stage, "velma").read_bytes()
    assert shared in (stage.folder / "velma/.fleet/log").read_text()
    assert LESSON not in hook(stage, "velma", "SessionStart", source="compact")


def test_retired_here_it_leaves_at_once(stage, shared):
    assert "so it left velma's memory.md" in stage.run("velma", "retire", shared).stderr
    assert LESSON.encode() not in memory(stage, "velma").read_bytes()
    stage.correct("velma", LESSON, "--session", "s-7")  # made again: it is in again, and has the evidence
    assert LESSON.encode() in memory(stage, "velma").read_bytes()


def test_a_merged_lesson_stays_while_any_of_its_records_is_in(stage, shared):
    other = stage.correct("velma", "Use awk where a person wrote what is put in")
    stage.run("velma", "sync")
    stage.run("velma", "merge", shared, other)
    retire_elsewhere(stage, shared)  # slash has not heard of the merge
    stage.run("velma", "sync")
    assert json.loads(stage.run("velma", "show", other, "--json").stdout)["id"] == other
    assert LESSON.encode() in memory(stage, "velma").read_bytes()


def test_a_lesson_that_the_clan_does_not_know_stays(stage, shared):
    unknown = "p-00000000000000ff"
    path = memory(stage, "velma")
    path.write_bytes(path.read_bytes().replace(shared.encode(), unknown.encode()))
    stage.run("velma", "sync")
    assert unknown.encode() in path.read_bytes()


def test_a_memory_that_is_a_link_is_not_written_through(stage, shared):
    path = memory(stage, "velma")
    real = path.with_name("elsewhere.md")
    path.rename(real)
    path.symlink_to(real)
    retire_elsewhere(stage, shared)
    stage.run("velma", "sync", expect=None)
    assert path.is_symlink()
    assert LESSON.encode() in real.read_bytes()


def test_what_was_retired_a_moment_ago_is_not_in_the_next_start(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    assert LESSON in stage.run("velma", "start").stdout  # and lies ready from now on
    stage.run("velma", "retire", pattern)
    assert LESSON not in hook(stage, "velma", "SessionStart", source="startup")


def shown(stage, where, pattern):
    return json.loads(stage.run(where, "show", pattern, "--json").stdout)


def test_a_retired_lesson_names_who_retired_it_until_it_is_back(stage):
    velma, tank = stage.join("velma"), stage.join("tank")
    pattern = stage.correct(velma, LESSON)
    for where in (velma, tank):
        stage.run(where, "sync")
    assert "retired_by" not in shown(stage, velma, pattern)
    stage.run(tank, "retire", pattern)
    for where in (tank, velma):
        stage.run(where, "sync")
    found = shown(stage, velma, pattern)
    assert found["retired_by"].startswith("tank.")
    assert f"  retired:    by {found['retired_by']}\n" in stage.run(velma, "show", pattern).stdout
    stage.run(velma, "restore", pattern)
    assert "retired_by" not in shown(stage, velma, pattern)
    stage.run(velma, "retire", pattern)
    assert shown(stage, velma, pattern)["retired_by"].startswith("velma."), "the one who retired it last"


def test_a_retired_lesson_was_seen_last_when_it_was_logged_last(stage):
    stage.join("velma")
    stage.now_ms = RELEASED_MS + 86_400_000
    lesson = stage.correct("velma", "Quote every path")
    stage.now_ms += 60_000
    stage.correct("velma", "Quote every path")
    [before] = stage.patterns("velma")["patterns"]
    stage.run("velma", "retire", lesson)
    [after] = stage.patterns("velma", "--all")["patterns"]
    assert before["first"] < before["last"]
    assert [after[each] for each in ("first", "last")] == [before[each] for each in ("first", "last")]


def test_a_correction_with_the_words_of_a_retired_lesson_says_that_it_is_back(stage):
    velma, tank = stage.join("velma"), stage.join("tank")
    pattern = stage.correct(velma, LESSON)
    for where in (velma, tank):
        stage.run(where, "sync")
    for more in (("--pattern", LESSON), ("--same", pattern)):
        stage.run(tank, "retire", pattern)
        for where in (tank, velma):
            stage.run(where, "sync")
        words = ("correct", "--wrong", "again", "--right", "r", *more)
        told = stage.run(velma, *words).stdout
        assert f"it was retired by tank, and is back; `fleet retire {pattern}` retires it again" in told
        stage.run(velma, "undo")
        document = json.loads(stage.run(velma, *words, "--json").stdout)
        assert document["was_retired_by"]
        assert "is back" not in stage.run(velma, *words).stdout, "it was back before"
        for where in (velma, tank):
            stage.run(where, "sync")


def test_a_correction_that_was_undone_and_is_logged_again_is_no_retired_lesson(stage):
    velma = stage.join("velma")
    stage.correct(velma, LESSON)
    stage.run(velma, "undo")
    assert "retired" not in stage.run(velma, "correct", "--wrong", "w", "--right", "r", "--pattern", LESSON).stdout


def test_who_only_restored_a_lesson_is_nowhere_named_as_one_that_met_its_mistake(stage):
    velma, tank = stage.join("velma"), stage.join("tank")
    pattern = stage.correct(velma, LESSON)
    for where in (velma, tank):
        stage.run(where, "sync")
    stage.run(tank, "retire", pattern)
    stage.run(tank, "undo")
    for where in (tank, velma):
        stage.run(where, "sync")
        assert shown(stage, where, pattern)["agents"] == ["velma"]
        assert "seen once by velma ·" in (stage.folder / where / "clan-learnings/patterns.md").read_text()
    assert "seen once by velma ·" in stage.git("show", "fleet:patterns.md", where="clan.git")


def test_several_lessons_are_retired_at_once_and_one_undo_brings_all_of_them_back(stage):
    velma = stage.join("velma")
    one, other, third = (stage.correct(velma, f"{LESSON} {number}") for number in range(3))
    alone = json.loads(stage.run(velma, "retire", third, "--json").stdout)
    with (stage.folder / velma / f"agents/{velma}/corrections.md").open("a") as log:
        log.write("\n## 2026-11-16 12:00Z — by hand\n**Pattern:** Pin the version of every action\n")
    told = stage.run(velma, "retire", one, third, other, expect=1)
    assert [row.split()[0] for row in told.stdout.splitlines() if " retired: " in row] == [one, other]
    assert f"{third} is retired already" in told.stderr
    taken_back = stage.run(velma, "undo").stdout
    assert f"retired {one}; retired {other}" in taken_back
    by_hand = {each["id"] for each in stage.patterns(velma)["patterns"]} - {one, other}
    assert len(by_hand) == 1, "what was counted on the way is no part of the command"
    stage.run(velma, "undo", re.search(r"`fleet undo (\S+)` redoes it", taken_back)[1])
    assert {each["id"] for each in stage.patterns(velma)["patterns"]} == by_hand
    stage.run(velma, "restore", other)
    document = json.loads(stage.run(velma, "retire", other, one, "--json", expect=1).stdout)
    assert [each["id"] for each in document["retired"]] == [other]
    assert document["retired"][0].keys() == alone.keys()
    assert document["failed"] == [f"{one} is retired already; nothing was changed"]
