"""Memories brought up to date with each sync: whatever the clan's size, and however a lesson was logged."""

import pytest

from fleet.app import reflecting
from fleet.learn import counting
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.reflect.exposure import Exposures
from fleet.reflect.promotion import AgentMemory
from fleet.store import config
from fleet.store.lines import PATTERNS
from fleet.store.query import Patterns
from fleet.store.workspace import Workspace, World
from tests import records

LESSON = "Always use awk over sed"
DAY = 86_400_000
NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def w(tmp_path, clock):
    (tmp_path / config.FILE_NAME).write_text("")
    workspace = Workspace(tmp_path, World(wall_ms=clock, durable=False))
    with workspace.locked():
        records.mint(workspace, "velma.00000007")
        workspace.mint("velma")
    yield workspace
    workspace.close()


def tell(w: Workspace, *lines: Line) -> None:
    """Have each writer's shard hold what it says in these lines."""
    for each in lines:
        for writer, part in each.by_writer().items():
            w.files.append(w.clan / PATTERNS.shard(writer), PATTERNS.encode(part) + b"\n")


def lesson(seen: dict[str, int], said: str = LESSON, **more: object) -> Line:
    return records.line(pattern_id(said), seen, text=said, **more)


def memory(w: Workspace) -> str:
    return w.files.read(AgentMemory(w, "velma").path).decode()


def promoted(w: Workspace) -> list[str]:
    found = [each.text for each in reflecting.promote_all(w)]
    assert w.warnings == []
    return found


@pytest.fixture
def large(w):
    """A clan of 150 lessons, all of them better evidenced for a page than what follows, and none due here."""
    w.config.promotion.clan_seen = 1_000
    said = [f"lesson {number} of tank's and slash's" for number in range(150)]
    tell(w, *(lesson({"tank.00000001": 9, "slash.00000001": 9}, each, state="published") for each in said))
    assert promoted(w) == []
    return w


def test_in_a_large_clan_a_lesson_that_changed_is_looked_at(large):
    tell(large, lesson({"velma.00000007": 2}))
    assert promoted(large) == []
    tell(large, lesson({"velma.00000007": 3}))
    assert promoted(large) == [LESSON]
    assert promoted(large) == []
    assert memory(large).count(LESSON) == 1


def test_in_a_large_clan_the_records_of_a_merged_lesson_are_one(large):
    small, other = sorted((pattern_id(LESSON), pattern_id("Quote what a person typed")))
    tell(large, lesson({"velma.00000007": 2}), lesson({"velma.00000007": 1}, "Quote what a person typed"))
    assert promoted(large) == []
    tell(large, records.line(other, {}, edits={"merged_into": (records.AT, "velma.00000007", small)}))
    assert len(promoted(large)) == 1


def test_in_a_large_clan_what_waits_is_looked_at_again(large):
    large.config.promotion.mode = "suggest"
    tell(large, lesson({"velma.00000007": 3}))
    assert promoted(large) == []
    assert [each.text for each in AgentMemory(large, "velma").standing().waiting] == [LESSON]
    assert promoted(large) == []
    assert [each.text for each in AgentMemory(large, "velma").standing().waiting] == [LESSON]
    tell(large, lesson({}, rem={"velma.00000007": records.AT}))
    assert promoted(large) == []
    assert AgentMemory(large, "velma").standing().waiting == ()


def test_a_lost_database_promotes_nothing_twice_and_misses_nothing(large):
    tell(large, lesson({"velma.00000007": 3}))
    assert promoted(large) == [LESSON]
    tell(large, lesson({"velma.00000007": 3}, "Quote every path"))
    large.close()
    for file in large.local.glob("state-*"):
        file.unlink()
    assert promoted(large) == ["Quote every path"]
    assert promoted(large) == []


def test_of_many_lessons_that_changed_at_once_only_the_best_and_the_own_ones_are_weighed(large, monkeypatch):
    weighed = []
    lessons_of = Patterns.lessons_of
    monkeypatch.setattr(Patterns, "lessons_of", lambda of, ids: weighed.append(len(ids)) or lessons_of(of, ids))
    weak = [f"another lesson {number}" for number in range(300)]
    tell(large, lesson({"velma.00000007": 3}), *(lesson({"tank.00000001": 1}, each) for each in weak))
    assert promoted(large) == [LESSON]
    assert max(weighed) <= reflecting._PROMISING + 1


def test_three_entries_written_by_hand_promote(w):
    log = w.home("velma") / "corrections.md"
    log.parent.mkdir(parents=True)
    for number in range(3):
        with log.open("a") as file:
            file.write(f"\n## 2026-11-2{number} — sed again\n**Correct approach:** awk -v\n**Pattern:** {LESSON}\n")
        counting.reconcile_all(w)
        assert promoted(w) == ([LESSON] if number == 2 else [])
    assert f"- {LESSON} — right: awk -v (seen 3 by velma; {pattern_id(LESSON)})" in memory(w)


def test_what_was_shown_is_counted_on_the_way(w, clock):
    tell(w, lesson({"tank.00000001": 1}))
    Exposures(w.state).note("velma", "s", [pattern_id(LESSON)], NOW)
    promoted(w)
    assert w.patterns.get(pattern_id(LESSON)).count("shown") == 0
    clock.now += DAY
    promoted(w)
    promoted(w)
    assert w.patterns.get(pattern_id(LESSON)).count("shown") == 1


def test_a_memory_that_cannot_be_written_is_a_warning_and_the_next_run_tries_again(w):
    tell(w, lesson({"velma.00000007": 3}))
    path = AgentMemory(w, "velma").path
    path.mkdir(parents=True)
    assert reflecting.promote_all(w) == []
    assert "velma's memory was not updated" in w.warnings[0]
    path.rmdir()
    w.warnings.clear()
    assert promoted(w) == [LESSON]
