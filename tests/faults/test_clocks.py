"""Faults 8 and 9, attack 5: clocks that go back, peers in the future, and our own return from it (docs/adr/0016)."""

import json
from functools import partial

import pytest

from crdt import clock
from fleet.app import learning
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import reconcile_all
from fleet.model.names import pattern_id
from fleet.store.workspace import Workspace, World
from tests.faults.test_sync import LESSON, Bench

NOW_MS = 1_795_219_200_000  # 2026-11-21
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEN_YEARS_MS = 3653 * DAY_MS
FAR = clock.pack(NOW_MS + TEN_YEARS_MS)
LAST = "9999-12-31T23:59:59.999Z-0000"
OTHER = "tank.0000000a"


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.now_ms = NOW_MS
    return made


def at(bench, ms: int, *where: str) -> None:
    """Sync workspaces while the wall clock says something."""
    bench.now_ms = ms
    for each in where:
        bench.run(each, "sync", expect=None)


def stamps(bench, where: str) -> list[str]:
    """Return the add stamps of a workspace's shards, in the order in which they were written."""
    shards = sorted((bench.clan(where) / "patterns.d").glob("*.jsonl"))
    raws = [raw for shard in shards for raw in shard.read_bytes().splitlines()]
    return [stamp for raw in raws for stamp in adds(json.loads(raw)).values()]


def edition(bench) -> list[dict]:
    """Return the records of the branch's edition."""
    return [json.loads(raw) for raw in bench.blob("patterns.jsonl").splitlines()]


def adds(row: dict) -> dict[str, str]:
    """Return the adds of a line, by writer."""
    return {writer: column["add"] for writer, column in row["w"].items() if "add" in column}


# --- 8: the clock goes back -----------------------------------------------------------------------------------------


def test_stamps_rise_when_the_clock_goes_back_by_a_day(bench):
    bench.run("w", "init", "--agent", "velma")
    for number, ms in enumerate([0, -HOUR_MS, -DAY_MS + 1000, 0, -DAY_MS + 1000]):
        bench.now_ms = NOW_MS + ms
        bench.correct("w", f"lesson {number}")
        bench.correct("w", LESSON)
    issued = stamps(bench, "w")
    assert len(issued) == 10
    assert issued == sorted(set(issued))
    assert bench.seen("w") == {**{f"lesson {number}": 1 for number in range(5)}, LESSON: 5}


@pytest.mark.parametrize("back_ms", [DAY_MS + HOUR_MS, TEN_YEARS_MS], ids=["a day", "ten years"])
def test_a_clock_that_went_back_is_told_and_stops_nothing(bench, back_ms):
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, f"lesson of {agent}")
        bench.sync(agent)
    bench.sync("velma")
    bench.correct("velma", LESSON)
    before = stamps(bench, "velma") + [s for row in edition(bench) for s in adds(row).values()]
    bench.now_ms = NOW_MS - back_ms
    done = bench.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", "Set the clock")
    assert "clock" in done.stderr
    bench.run("velma", "sync", expect=None)
    wanted = {"lesson of velma": 1, "lesson of tank": 1, LESSON: 1, "Set the clock": 1}
    assert bench.seen("velma") == wanted
    assert len(bench.edition()) == 4, "an edition reads no clock"
    if back_ms == TEN_YEARS_MS:
        [row] = [row for row in edition(bench) if row["id"] == pattern_id("Set the clock")]
        assert min(adds(row).values()) > max(before), "stamps rise all the same"
    bench.now_ms = NOW_MS + HOUR_MS
    bench.sync("velma", "tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == wanted
    assert bench.patterns("velma") == bench.patterns("tank")
    assert len(bench.edition()) == 4


def test_offline_a_clock_that_is_wrong_is_told_and_all_is_kept(bench):
    bench.run("w", "init", "--agent", "velma")
    bench.correct("w", LESSON)
    bench.now_ms = NOW_MS - TEN_YEARS_MS
    bench.correct("w", "Another lesson")
    done = bench.run("w", "sync", expect=None)
    assert "before this version of fleet was made" in done.stderr
    assert bench.status("w")["clock"]
    bench.now_ms = NOW_MS
    bench.sync("w")
    assert bench.seen("w") == {LESSON: 1, "Another lesson": 1}


# --- 9, attack 5: a peer ahead --------------------------------------------------------------------------------------


def poison(text: str) -> bytes:
    """Return a line that says true things beside parts from the far future."""
    column = {
        "add": FAR,
        "first": {"text": text, "note": "beside it"},
        "n": {"seen": 3},
        "set": {"category": [FAR, "poison"], "title": [FAR, "poison"]},
    }
    return json.dumps({"id": pattern_id(text), "w": {OTHER: column}}, separators=(",", ":")).encode()


def category(bench, where: str) -> str:
    [found] = [p for p in bench.patterns(where, "--all")["patterns"] if p["text"] == LESSON]
    return found["category"]


def set_category(bench, where: str, value: str, ms: int) -> None:
    """Edit a field by a line of another agent's shard, stamped as the clock says."""
    slot = "joey.00000009"
    stamp = clock.pack(ms)
    row = {"id": pattern_id(LESSON), "w": {slot: {"set": {"category": [stamp, value]}}}}
    bench.by_hand(bench.clan(where) / f"patterns.d/{slot}.jsonl", json.dumps(row, separators=(",", ":")).encode())


def test_no_page_dates_a_lesson_with_a_year_that_cannot_be(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    row = {"id": pattern_id("of a wrong clock"), "w": {OTHER: {"add": LAST, "first": {"text": "of a wrong clock"}}}}
    bench.by_hand(bench.clan("velma") / f"patterns.d/{OTHER}.jsonl", json.dumps(row, separators=(",", ":")).encode())
    at(bench, NOW_MS, "velma")
    for page in ((bench.clan("velma") / "patterns.md").read_bytes(), bench.blob("patterns.md")):
        assert b"of a wrong clock" in page
        assert b"since 9999" not in page


def test_only_an_edit_of_the_future_that_stands_is_held(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    ahead = clock.pack(NOW_MS + TEN_YEARS_MS)
    path = bench.clan("velma") / f"patterns.d/{OTHER}.jsonl"
    row = {"id": pattern_id(LESSON), "w": {OTHER: {"add": ahead, "n": {"seen": 1}}}}
    bench.by_hand(path, json.dumps(row, separators=(",", ":")).encode())
    at(bench, NOW_MS, "velma")
    assert bench.seen("velma") == {LESSON: 2}, "an add counts whatever its stamp says"
    assert bench.status("velma")["held"] == 0
    assert f"1 by {OTHER}, last at an unknown time" in bench.run("velma", "show", pattern_id(LESSON)).stdout
    set_category(bench, "velma", "poison", NOW_MS + TEN_YEARS_MS)
    assert bench.status("velma")["held"] == 1
    bench.run("velma", "edit", pattern_id(LESSON), "--set", "category=ci")
    assert bench.status("velma")["held"] == 0, "it was replaced for good"


def test_an_edit_that_a_peer_stamped_ten_years_ahead_waits_and_what_stands_beside_it_counts(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    set_category(bench, "velma", "honest", NOW_MS)
    bench.sync("velma")
    bench.by_hand(bench.clan("tank") / f"patterns.d/{OTHER}.jsonl", poison(LESSON))
    at(bench, NOW_MS, "tank", "velma", "tank")
    for agent in ("velma", "tank"):
        assert bench.seen(agent) == {LESSON: 4}, "counts and adds fold whatever their stamp says"
        assert category(bench, agent) == "honest", "it never wins"
        assert bench.status(agent)["held"] == 1
        assert "beside it" in bench.run(agent, "show", pattern_id(LESSON)).stdout
        done = bench.run(agent, "sync")
        assert "left out" in done.stderr, "said each time; the sync that told it first was the one in part"
        assert "synced with" in done.stdout
    set_category(bench, "velma", "edited later", NOW_MS + HOUR_MS)
    at(bench, NOW_MS + 2 * HOUR_MS, "velma", "tank")
    assert category(bench, "tank") == "edited later"
    # Still in everybody's files, after many syncs, editions and joins ...
    for number in range(3):
        bench.correct("tank", f"lesson {number}")
        at(bench, bench.now_ms + HOUR_MS, "tank", "velma")
    bench.join("joey")
    at(bench, bench.now_ms, "joey")
    for agent in ("velma", "tank", "joey"):
        assert category(bench, agent) == "edited later"
        rows = b"".join(file.read_bytes() for file in bench.clan(agent).rglob("patterns*.jsonl"))
        assert rows.count(FAR.encode()) >= 3
    # ... it joins everywhere when its time has come, and a later edit wins once more.
    at(bench, NOW_MS + TEN_YEARS_MS + HOUR_MS, "velma", "tank", "joey")
    for agent in ("velma", "tank", "joey"):
        assert category(bench, agent) == "poison"
        assert bench.status(agent)["held"] == 0
    assert bench.patterns("velma") == bench.patterns("tank") == bench.patterns("joey")
    set_category(bench, "velma", "and mended", bench.now_ms + HOUR_MS)
    at(bench, bench.now_ms + 2 * HOUR_MS, "velma", "joey")
    assert category(bench, "joey") == "and mended"


def test_a_writer_with_one_stamp_from_the_future_has_the_date_of_its_newest_other_one(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("tank", LESSON)
    at(bench, NOW_MS, "tank", "velma")
    discovery = ("discover", "--context", "c", "--problem", "p", "--solution", "s")
    for words in (discovery, ("correct", "--wrong", "w", "--right", "r", "--pattern", "From the future")):
        bench.now_ms = NOW_MS + TEN_YEARS_MS
        bench.run("tank", *words)
        at(bench, NOW_MS + TEN_YEARS_MS, "tank")
        at(bench, NOW_MS + HOUR_MS, "velma")
        [last] = [each["last"] for each in bench.status("velma")["replicas"] if each["where"] == "elsewhere"]
        assert last.startswith("2026-11-21"), words
    at(bench, NOW_MS + TEN_YEARS_MS, "velma")
    [last] = [each["last"] for each in bench.status("velma")["replicas"] if each["where"] == "elsewhere"]
    assert last.startswith("2036-11-21"), "its time has come"


def test_the_year_9999_never_drags_our_own_stamps_along(bench):
    bench.join("velma")
    end = "9999-12-31T23:59:59.999Z-ffff"
    bench.by_hand(bench.clan("velma") / f"patterns.d/{OTHER}.jsonl", poison(LESSON).replace(FAR.encode(), end.encode()))
    for _ in range(2):
        bench.correct("velma", LESSON)
        at(bench, bench.now_ms + HOUR_MS, "velma")
    assert bench.seen("velma") == {LESSON: 5}
    [found] = bench.patterns("velma")["patterns"]
    assert found["category"] == ""
    assert found["last"] < clock.pack(NOW_MS + 2 * HOUR_MS)
    assert all(stamp < clock.pack(NOW_MS + 2 * HOUR_MS) or stamp == end for stamp in stamps(bench, "velma"))


def test_a_peers_tool_that_runs_ten_years_ahead_loses_nothing_and_wins_nothing(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    pattern = bench.correct("velma", LESSON)
    at(bench, NOW_MS, "velma")
    ahead = NOW_MS + TEN_YEARS_MS
    at(bench, ahead, "tank")
    bench.correct("tank", LESSON)
    bench.correct("tank", "From the future")
    at(bench, ahead, "tank")
    at(bench, NOW_MS + HOUR_MS, "velma")
    assert bench.seen("velma") == {LESSON: 2, "From the future": 1}, "counts and adds fold whatever they say"
    replicas = json.loads(bench.run("velma", "status", "--json").stdout)["replicas"]
    assert [each["last"] for each in replicas if each["replica"].startswith("tank.")] == [""]
    assert all(each["last"] < clock.pack(NOW_MS + DAY_MS) for each in replicas)
    bench.run("velma", "retire", pattern)
    assert bench.seen("velma") == {"From the future": 1}
    bench.correct("velma", "Of the present")
    at(bench, NOW_MS + 2 * HOUR_MS, "velma")
    assert stamps_are_of_the_present(bench)
    for _ in range(2):
        at(bench, NOW_MS + 3 * HOUR_MS, "velma")
        at(bench, ahead + HOUR_MS, "tank")
    # Both admit now: the same bytes on both.
    at(bench, ahead + 2 * HOUR_MS, "velma", "tank", "velma", "tank")
    assert bench.seen("tank") == {"From the future": 1, "Of the present": 1}
    assert bench.patterns("velma") == bench.patterns("tank")
    for name in ("patterns.jsonl", "patterns.md"):
        assert (bench.clan("velma") / name).read_bytes() == (bench.clan("tank") / name).read_bytes()


def stamps_are_of_the_present(bench) -> bool:
    """Tell whether no replica of velma's ever issued a stamp of the future."""
    rows = [
        json.loads(raw) for path, data in bench.tree().items() if path.endswith(".jsonl") for raw in data.splitlines()
    ]
    mine = [stamp for row in rows for writer, stamp in adds(row).items() if writer.startswith("velma.")]
    return bool(mine) and all(stamp < clock.pack(NOW_MS + DAY_MS) for stamp in mine)


# --- ADR 5: our own clock ran ahead ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [False, True], ids=["kept to itself", "synced meanwhile"])
def test_a_machine_that_ran_ten_years_ahead_writes_anew_and_counts_nothing_twice(bench, is_known):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("tank", LESSON)
    at(bench, NOW_MS, "tank", "velma")
    first = bench.replica("velma")
    bench.now_ms = NOW_MS + TEN_YEARS_MS
    bench.correct("velma", LESSON)
    bench.correct("velma", "Only velma's")
    if is_known:
        at(bench, bench.now_ms, "velma")
    at(bench, NOW_MS + HOUR_MS, "velma")
    assert bench.replica("velma") != first
    assert bench.seen("velma") == {LESSON: 2, "Only velma's": 1}, "present again, though stamped in the future"
    bench.correct("velma", LESSON)
    at(bench, NOW_MS + 2 * HOUR_MS, "velma", "tank", "velma", "tank")
    for agent in ("velma", "tank"):
        assert bench.seen(agent) == {LESSON: 3, "Only velma's": 1}
    second = bench.replica("velma")
    at(bench, NOW_MS + 3 * HOUR_MS, "velma")
    assert bench.replica("velma") == second, "once is enough"
    at(bench, NOW_MS + TEN_YEARS_MS + DAY_MS, "velma", "tank", "velma")
    for agent in ("velma", "tank"):
        assert bench.seen(agent) == {LESSON: 3, "Only velma's": 1}
    assert bench.patterns("velma") == bench.patterns("tank")


def test_what_was_retired_while_the_clock_ran_ahead_does_not_come_back(bench):
    bench.join("velma")
    bench.now_ms = NOW_MS + TEN_YEARS_MS
    pattern = bench.correct("velma", LESSON)
    bench.correct("velma", "It stays")
    bench.run("velma", "retire", pattern)
    at(bench, NOW_MS, "velma", "velma")
    assert bench.seen("velma") == {"It stays": 1}


def test_what_others_replaced_of_the_edits_from_the_future_is_not_said_again(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    pattern = bench.correct("velma", LESSON)
    at(bench, NOW_MS, "velma", "tank")
    bench.now_ms = NOW_MS + TEN_YEARS_MS
    bench.run("velma", "edit", pattern, "--set", "category=ahead", "--set", "trigger=Bash:ahead *")
    at(bench, bench.now_ms, "velma")
    at(bench, NOW_MS + HOUR_MS, "tank")
    bench.run("tank", "edit", pattern, "--set", "category=of today")
    at(bench, NOW_MS + HOUR_MS, "tank")
    at(bench, NOW_MS + TEN_YEARS_MS + HOUR_MS, "velma")
    at(bench, NOW_MS + 2 * HOUR_MS, "velma", "tank")
    for agent in ("velma", "tank"):
        lesson = json.loads(bench.run(agent, "show", pattern, "--json").stdout)
        assert (lesson["category"], lesson["trigger"]) == ("of today", "Bash:ahead *")


def test_a_lent_name_under_which_a_clock_ran_ahead_is_told(tmp_path):
    (tmp_path / "fleet.toml").write_text("")
    told = []
    for now_ms in (NOW_MS + TEN_YEARS_MS, NOW_MS):
        wall_ms = partial(int, now_ms)
        workspace = Workspace(tmp_path, World(wall_ms=wall_ms, durable=False, lent=lambda: "velma.0123abcd"))
        learning.correct(workspace, "velma", Correction("w", "r", LESSON), session="s")
        reconcile_all(workspace)
        told.append(any("Lend this job another name" in each for each in workspace.warnings))
        workspace.close()
    assert told == [False, True]
