"""Faults 8 and 9, attack 5, docs/adr/0005: clocks that go back, peers in the future, and our own return from it."""

import json
import time

import pytest

from crdt import clock
from fleet.keep import line as codec
from fleet.keep.normal import pattern_id
from tests.faults.test_sync import LESSON, SLOT, Bench, line

NOW_MS = 1_795_219_200_000  # 2026-11-21
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEN_YEARS_MS = 3653 * DAY_MS
FAR = clock.pack(NOW_MS + TEN_YEARS_MS)
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
    return [stamp for raw in raws for stamp in codec.decode(raw).add.values()]


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
def test_with_a_clock_that_went_back_lessons_are_logged_and_sent_but_nothing_is_folded_or_dropped(bench, back_ms):
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, f"lesson of {agent}")
        bench.sync(agent)
    bench.sync("velma")
    bench.correct("velma", LESSON)
    before = stamps(bench, "velma") + [s for row in bench.edition() for s in row["add"].values()]
    edition = bench.blob("patterns.jsonl")
    tree = bench.tree()
    bench.now_ms = NOW_MS - back_ms
    done = bench.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", "Set the clock")
    assert "clock" in done.stderr
    done = bench.run("velma", "sync", expect=None)
    assert "clock" in done.stderr
    assert "no edition is written" in done.stderr
    assert bench.blob("patterns.jsonl") == edition, "no edition"
    for path, data in tree.items():
        if path.endswith(".jsonl"):
            assert set(data.splitlines()) <= set(bench.blob(path).splitlines()), "nothing was dropped"
    sent = b"".join(data for path, data in bench.tree().items() if path.startswith("patterns.d/"))
    issued = [json.loads(raw) for raw in sent.splitlines() if pattern_id("Set the clock").encode() in raw]
    assert min(s for row in issued for s in row["add"].values()) > max(before), "stamps rise all the same"
    assert "Set the clock" in bench.seen("velma")
    bench.now_ms = NOW_MS + HOUR_MS
    bench.sync("velma", "tank", "velma")
    wanted = {"lesson of velma": 1, "lesson of tank": 1, LESSON: 1, "Set the clock": 1}
    assert bench.seen("velma") == bench.seen("tank") == wanted
    assert bench.patterns("velma") == bench.patterns("tank")
    assert len(bench.edition()) == 4


def test_offline_a_clock_that_is_wrong_writes_no_edition_either(bench):
    bench.run("w", "init", "--agent", "velma")
    bench.correct("w", LESSON)
    bench.now_ms = NOW_MS - TEN_YEARS_MS
    bench.correct("w", "Another lesson")
    done = bench.run("w", "sync", expect=None)
    assert "before this version of fleet was made" in done.stderr
    assert not (bench.clan("w") / "patterns.jsonl").exists()
    assert bench.status("w")["clock"]
    bench.now_ms = NOW_MS
    bench.sync("w")
    assert bench.seen("w") == {LESSON: 1, "Another lesson": 1}


# --- 9, attack 5: a peer ahead --------------------------------------------------------------------------------------


def poison(text: str) -> bytes:
    """Return a line that says true things beside parts from the far future."""
    return line(
        text,
        slot=OTHER,
        set={"category": "poison", "title": "poison", "note": "beside it"},
        when={"category": [FAR, OTHER], "title": [FAR, OTHER]},
        add={OTHER: FAR},
        n={"seen": {OTHER: 3}},
        rem={SLOT: FAR},
    )


def category(bench, where: str) -> str:
    [found] = [p for p in bench.patterns(where, "--all")["patterns"] if p["text"] == LESSON]
    return found["category"]


def set_category(bench, where: str, value: str, ms: int) -> None:
    """Edit a field by a line of another agent's shard, stamped as the clock says."""
    slot = "joey.00000009"
    stamp = clock.pack(ms)
    row = {"id": pattern_id(LESSON), "set": {"category": value}, "when": {"category": [stamp, slot]}}
    bench.by_hand(bench.clan(where) / f"patterns.d/{slot}.jsonl", json.dumps(row, separators=(",", ":")).encode())


def test_what_a_peer_stamped_ten_years_ahead_is_held_and_the_parts_beside_it_are_not(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    set_category(bench, "velma", "honest", NOW_MS)
    bench.sync("velma")
    bench.by_hand(bench.clan("tank") / f"patterns.d/{OTHER}.jsonl", poison(LESSON))
    at(bench, NOW_MS, "tank", "velma", "tank")
    for agent in ("velma", "tank"):
        assert bench.seen(agent) == {LESSON: 4}, "the counts beside the held parts joined"
        assert category(bench, agent) == "honest", "it never wins"
        assert bench.status(agent)["held"] == 4
        assert "beside it" in bench.run(agent, "show", pattern_id(LESSON)).stdout
        assert "held" in bench.run(agent, "sync", expect=3).stderr
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
        assert rows.count(FAR.encode()) >= 4
    # ... it joins everywhere when its time has come, and a later edit wins once more.
    at(bench, NOW_MS + TEN_YEARS_MS + HOUR_MS, "velma", "tank", "joey")
    for agent in ("velma", "tank", "joey"):
        assert category(bench, agent) == "poison"
        assert bench.status(agent)["held"] == 0
    assert bench.patterns("velma") == bench.patterns("tank") == bench.patterns("joey")
    set_category(bench, "velma", "and mended", bench.now_ms + HOUR_MS)
    at(bench, bench.now_ms + 2 * HOUR_MS, "velma", "joey")
    assert category(bench, "joey") == "and mended"


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
    assert bench.seen("velma") == {LESSON: 2}, "its count is known, its add is held"
    bench.run("velma", "retire", pattern)
    assert bench.seen("velma") == {}
    bench.correct("velma", "Of the present")
    at(bench, NOW_MS + 2 * HOUR_MS, "velma")
    assert stamps_are_of_the_present(bench)
    for _ in range(2):
        at(bench, NOW_MS + 3 * HOUR_MS, "velma")
        at(bench, ahead + HOUR_MS, "tank")
    # Both admit now: the same bytes on both.
    at(bench, ahead + 2 * HOUR_MS, "velma", "tank", "velma", "tank")
    assert bench.seen("tank") == {LESSON: 2, "From the future": 1, "Of the present": 1}
    assert bench.patterns("velma") == bench.patterns("tank")
    for name in ("patterns.jsonl", "patterns.md"):
        assert (bench.clan("velma") / name).read_bytes() == (bench.clan("tank") / name).read_bytes()


def stamps_are_of_the_present(bench) -> bool:
    """Tell whether no replica of velma's ever issued a stamp of the future."""
    rows = [
        json.loads(raw) for path, data in bench.tree().items() if path.endswith(".jsonl") for raw in data.splitlines()
    ]
    mine = [stamp for row in rows for slot, stamp in row.get("add", {}).items() if slot.startswith("velma.")]
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


# --- a wrong clock writes no edition, and what a revert took out of one waits ----------------------------------------


def test_what_a_revert_took_out_of_the_edition_waits_for_the_clock_is_told_and_goes_out_then(tmp_path):
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.join("tank")
    for lesson in ("Lesson one", "Lesson two"):
        bench.correct("velma", lesson)
    bench.sync("velma", "tank")
    bench.run("velma", "compact")
    edition = bench.tree()["patterns.jsonl"]
    reverted = b"".join(line for line in edition.splitlines(keepends=True) if b"Lesson one" in line)
    bench.push_tree({"patterns.jsonl": ("100644", reverted)})
    bench.now_ms = time.time_ns() // 1_000_000 - 40 * 86_400_000

    done = bench.run("velma", "sync", expect=3)
    assert "exchanged, in part," in done.stdout
    assert "1 line only an edition can carry" in done.stderr
    assert "sent again" not in done.stderr, "it was not"
    shown = bench.run("velma", "status").stdout
    assert "clock       this machine's clock says" in shown
    assert "Until then, 1 line waits here" in shown
    assert bench.status("velma")["waiting"]["paths"] == {"patterns.jsonl": 1}
    found = bench.run("velma", "doctor", expect=1).stdout
    assert "what only an edition can carry waits here" in found
    assert "set the clock" in found
    assert bench.tree()["patterns.jsonl"] == reverted, "no edition by a wrong clock"

    bench.now_ms = None
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0
    assert "clock" not in bench.run("velma", "status").stdout
    assert bench.tree()["patterns.jsonl"] == edition
    bench.sync("tank")
    assert bench.seen("tank") == {"Lesson one": 1, "Lesson two": 1}
