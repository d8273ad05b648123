"""Records of reflections: what a pass cost is counted from the file, reserved before it and settled after it."""

import threading

import pytest

from fleet.reflect import records
from fleet.reflect.records import Record, Records, Written
from fleet.store import config
from fleet.store.workspace import Workspace, World

DAY = 86_400_000
NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
TODAY = "2026-11-21"


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
    yield workspace
    workspace.close()


def reserve(w: Workspace, run: str, usd: float, cap: float = 5.0, agent: str = "velma") -> bool:
    return Records(w, agent).reserve(Record(run=run, session=run, usd=usd), cap)


def test_what_is_reserved_counts_until_it_is_settled_and_then_what_it_cost(w):
    assert reserve(w, "r1", 3.0)
    assert records.spent(w, TODAY) == 3.0
    assert not reserve(w, "r2", 3.0)
    Records(w, "velma").append(Record(run="r1", line="settled", usd=0.25))
    assert records.spent(w, TODAY) == 0.25
    assert reserve(w, "r2", 3.0)


def test_a_pass_that_died_or_whose_cost_nobody_said_counts_as_reserved(w):
    reserve(w, "r1", 2.0)
    reserve(w, "r2", 2.0)
    Records(w, "velma").append(Record(run="r2", line="settled", usd=None))
    Records(w, "velma").append(Record(run="r2", session="r2"))
    assert records.spent(w, TODAY) == 4.0


def test_the_agents_of_a_workspace_share_one_cap(w):
    assert reserve(w, "r1", 3.0)
    assert not reserve(w, "r2", 3.0, agent="tank")
    assert reserve(w, "r3", 2.0, agent="tank")


def test_what_a_pass_costs_belongs_to_the_day_on_which_it_was_reserved(w, clock):
    clock.now += DAY - 1000
    reserve(w, "r1", 1.0)
    clock.now += 2000
    Records(w, "velma").append(Record(run="r1", line="settled", usd=0.5))
    Records(w, "velma").append(Record(run="r1", usd=0.5))
    assert records.spent(w, TODAY) == 0.5
    assert records.spent(w, "2026-11-22") == 0.0


def test_a_database_that_is_deleted_gives_nobody_a_second_budget(w, tmp_path):
    reserve(w, "r1", 5.0)
    w.close()
    for each in (tmp_path / ".fleet").rglob("*.db*"):
        each.unlink()
    assert not reserve(Workspace(tmp_path, w.world), "r2", 0.1)


def test_two_that_reserve_at_once_never_share_the_same_dollar(w, tmp_path):
    done = list[bool]()

    def one(number: int) -> None:
        done.append(reserve(Workspace(tmp_path, w.world), f"r{number}", 1.0, cap=3.0))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(done) == 3
    assert records.spent(w, TODAY) == 3.0


def test_a_session_that_was_deferred_waits_until_it_was_reflected_on(w):
    Records(w, "velma").append(Record(run="r1", line="deferred", session="s1", why="the day's cap is reached"))
    Records(w, "velma").append(Record(run="r2", line="deferred", session="s1", why="the day's cap is reached"))
    Records(w, "velma").append(Record(run="r3", line="deferred", session="s2", why="the day's cap is reached"))
    assert [each.session for each in Records(w, "velma").deferred()] == ["s1", "s2"]
    Records(w, "velma").append(Record(run="r4", session="s1"))
    assert [each.session for each in Records(w, "velma").deferred()] == ["s2"]


def test_a_deferred_session_waits_on_though_a_consolidation_ran_at_its_end(w):
    Records(w, "velma").append(Record(run="r1", line="deferred", session="s1", why="the day's cap is reached"))
    Records(w, "velma").append(Record(run="r2", kind="consolidation", session="s1"))
    assert [each.session for each in Records(w, "velma").deferred()] == ["s1"]


def test_a_reservation_is_interrupted_until_its_session_has_a_record_or_a_person_stopped_it(w, tmp_path):
    (tmp_path / "t.jsonl").touch()
    for session, path in (("s1", "t.jsonl"), ("s2", "t.jsonl"), ("s3", "gone.jsonl"), ("s4", "t.jsonl")):
        Records(w, "velma").reserve(Record(run=session, session=session, transcript=str(tmp_path / path), usd=0.5), 5.0)
    Records(w, "velma").append(Record(run="s2", line="settled", session="s2", raw="{}"))
    Records(w, "velma").append(Record(run="s4", line="settled", session="s4", why="it was interrupted"))
    assert [each.session for each in Records(w, "velma").interrupted()] == ["s1", "s2"]
    Records(w, "velma").append(Record(run="s2", session="s2"))
    assert [each.session for each in Records(w, "velma").interrupted()] == ["s1"]


def test_a_deferred_session_that_a_person_stopped_the_question_about_waits_on(w):
    Records(w, "velma").append(Record(run="r1", line="deferred", session="s1", why="the day's cap is reached"))
    Records(w, "velma").append(Record(run="r2", line="settled", session="s1", why="it was interrupted"))
    assert [each.session for each in Records(w, "velma").deferred()] == ["s1"]


def test_of_two_passes_that_were_killed_the_last_one_is_named(w, tmp_path):
    (tmp_path / "new.jsonl").touch()
    for run, name in (("r1", "gone.jsonl"), ("r2", "new.jsonl")):
        Records(w, "velma").reserve(Record(run=run, session="s1", transcript=str(tmp_path / name), usd=0.5), 5.0)
    assert [each.run for each in Records(w, "velma").interrupted()] == ["r2"]


def test_success_is_never_claimed_for_nothing(w):
    notes = Written(name="notes", count=2)
    assert Record(run="r", writers=(notes,)).summary() == "saved 2 notes"
    nothing = Record(run="r", outcome="success", writers=(Written(name="notes", skipped=("a note is known already",)),))
    assert nothing.summary() == "saved nothing: a note is known already"
    assert Record(run="r", why="the transcript is empty").summary() == "saved nothing: the transcript is empty"
    asked = Written(name="notes", count=2, ids=("- 2026-05-09: a note", "i-a34f16f7af7c"))
    assert Record(run="r", writers=(asked,)).summary() == "saved 1 note; 1 note waits in the inbox"
    waits = Written(name="lessons", count=1, ids=("i-a34f16f7af7c",))
    assert Record(run="r", writers=(waits,)).summary() == "saved nothing yet; 1 lesson waits in the inbox"
    failed = Record(run="r", writers=(notes, Written(name="skill", error="the disk is full")))
    assert failed.summary() == "saved 2 notes; skill failed: the disk is full"


def test_a_pass_keeps_its_number_and_says_that_it_was_undone(w):
    for run in ("r1", "r2"):
        Records(w, "velma").append(Record(run=run, usd=0.1))
    assert Records(w, "velma").undo("r1")
    assert not Records(w, "velma").undo("r9")
    assert [(each.number, bool(each.undone)) for each in Records(w, "velma").passes()] == [(1, True), (2, False)]
    Records(w, "velma").undo("r1", again=True)
    assert [bool(each.undone) for each in Records(w, "velma").passes()] == [False, False]


@pytest.mark.parametrize("spoil", [b'{"run":"r9","usd":', b"\xff\n", b'{"run":1}\n', b'{"usd":3}\n'])
def test_a_spoiled_line_harms_no_other(w, spoil):
    reserve(w, "r1", 1.0)
    with (w.home("velma") / records.FILE_NAME).open("ab") as file:
        file.write(spoil)
    Records(w, "velma").append(Record(run="r1", usd=0.5))
    assert records.spent(w, TODAY) == 0.5
    assert len(Records(w, "velma").passes()) == 1
