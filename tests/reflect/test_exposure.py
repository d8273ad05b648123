"""What was shown is remembered, counted once a day and never twice; a promotion parts it, and nothing is a guess."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from crdt import clock as stamps
from fleet.model import limits
from fleet.model.errors import DiskError, FleetError
from fleet.model.line import Line
from fleet.reflect.exposure import Exposure, Exposures
from fleet.store import config
from fleet.store.files import Files
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace, World
from tests import records
from tests.pace import within

ROOT = Path(__file__).resolve().parents[2]
HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
ONE, TWO, UNKNOWN = (f"p-{number:016x}" for number in (1, 2, 3))


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


class TornFiles(Files):
    """Stops before a write to a shard, or after it, as a killed process would."""

    killed = ""

    def append(self, path, data, **more):
        if "patterns.d" in path.parts and self.killed == "before":
            raise DiskError("killed here")
        super().append(path, data, **more)
        if "patterns.d" in path.parts and self.killed == "after":
            raise DiskError("killed here")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def w(tmp_path, clock):
    (tmp_path / config.FILE_NAME).write_text("")
    workspace = Workspace(tmp_path, World(wall_ms=clock, durable=False), TornFiles(tmp_path))
    with workspace.locked():
        workspace.mint("velma")
    tell(workspace, *(records.line(each, {"tank.00000001": 1}, text=f"lesson {each}") for each in (ONE, TWO)))
    yield workspace
    workspace.close()


def tell(w: Workspace, *lines: Line) -> None:
    """Have a peer's shard hold these lines."""
    path = w.clan / PATTERNS.shard("tank.00000001")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(PATTERNS.encode(each) + b"\n" for each in lines))


def see(w, *ids, at=NOW, session="s") -> None:
    Exposures(w.state).note("velma", session, ids or (ONE,), at)


def is_due(w) -> bool:
    return Exposures(w.state).is_due("velma", w.world.wall_ms())


def roll(w) -> int:
    with w.writing("velma") as writer:
        return Exposures(writer.workspace.state).roll_up(writer)


def totals(w) -> dict[str, int]:
    return {each: w.patterns.get(each).count("shown") for each in (ONE, TWO)}


def spans_of(w, agent="velma") -> dict[str, list[tuple[int, int, int]]]:
    """First, last and number of each span, by lesson."""
    spans = {}
    query = "SELECT pattern, first_ms, last_ms, number FROM exposure WHERE agent = ?"
    for pattern, *span in w.state.rows(query, agent):
        spans.setdefault(pattern, []).append(tuple(span))
    return spans


def counts(w) -> dict[str, int]:
    """How often each was shown here."""
    return {pattern: sum(number for *_, number in spans) for pattern, spans in spans_of(w).items()}


def promote(w, at):
    tell(w, records.line(ONE, {}, edits={"state": (stamps.pack(at), "tank.00000001", "published")}))


def until(w, at, pattern=ONE):
    return Exposures(w.state).shown(["velma"], lambda _: at).get(pattern, Exposure(0, 0)).before


# --- what was shown ---------------------------------------------------------------------------------------------------


def test_what_was_shown_is_found_again(w):
    see(w, ONE, TWO, session='a "session"\n')
    assert w.state.was_shown("velma", [ONE], NOW + 1)
    assert not w.state.was_shown("velma", [ONE], NOW)  # before, and not at the same time
    assert not w.state.was_shown("velma", [UNKNOWN], NOW + 1)
    assert not w.state.was_shown("tank", [ONE], NOW + 1)
    assert w.state.was_shown("velma", [UNKNOWN, TWO], NOW + 1)  # one of them is enough: they are merged
    assert not w.state.was_shown("velma", [], NOW + 1)
    assert spans_of(w) == {ONE: [(NOW, NOW, 1)], TWO: [(NOW, NOW, 1)]}


def test_what_is_no_pattern_or_no_agent_is_not_noted(w):
    see(w, "d-0000000000000001", "p-00", "p-000000000000000G", "../x")
    Exposures(w.state).note("", "s", [ONE], NOW)
    assert spans_of(w) == spans_of(w, "") == {}


def test_where_nothing_was_ever_noted_nothing_is_made(w):
    assert not w.state.was_shown("velma", [ONE], NOW + 1)
    assert not is_due(w)
    assert spans_of(w) == {}
    assert not w.state.path.exists()


@pytest.mark.parametrize("harm", ["a folder", "rubbish", "nowhere"])
def test_nobody_waits_for_a_database_that_refuses(w, harm):
    if harm == "a folder":
        w.state.path.mkdir()
    elif harm == "rubbish":
        w.state.path.write_bytes(b"rubbish" * 1_000)
    else:
        w.state.path = w.local / "nowhere" / "local.db"
    see(w)
    assert not w.state.was_shown("velma", [ONE], NOW + 1)
    assert Exposures(w.state).accesses("velma") == {}


def test_four_processes_at_once_lose_no_showing(w):
    code = (
        "import sys; from pathlib import Path\n"
        "from fleet.reflect.exposure import Exposures; from fleet.store.database import Local\n"
        f"state = Local(Path({str(w.state.path)!r}), durable=False)\n"
        f"for n in range(100): Exposures(state).note('velma', sys.argv[1], [{ONE!r}], {NOW} + n)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(n)], env=environment) for n in range(4)]
    assert [each.wait() for each in running] == [0] * 4
    assert counts(w) == {ONE: 400}


def test_a_note_takes_no_time_and_no_library(w):
    ids = [f"p-{n:016x}" for n in range(100)]
    see(w, ONE)
    with within(100 * 0.01):  # measured: 0.6 ms each
        for n in range(100):
            see(w, *ids, at=NOW + n)
    code = (
        "import sys; before = set(sys.modules); import fleet.reflect.exposure, fleet.store.database; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['crdt', 'fleet']"


# --- counting ---------------------------------------------------------------------------------------------------------


def test_a_day_is_counted_when_it_is_over_and_once(w, clock):
    for n in range(3):
        see(w, ONE, at=NOW + n)
    see(w, TWO)
    assert not is_due(w)
    assert roll(w) == 0
    clock.now = NOW + DAY
    assert is_due(w)
    assert roll(w) == 2
    assert totals(w) == {ONE: 3, TWO: 1}
    assert not is_due(w)
    shard = w.files.read(w.clan / PATTERNS.shard(w.current_replicas()[0]))
    for _ in range(3):
        assert roll(w) == 0
    assert w.files.read(w.clan / PATTERNS.shard(w.current_replicas()[0])) == shard
    assert totals(w) == {ONE: 3, TWO: 1}


def test_totals_go_on_from_day_to_day(w, clock):
    see(w, ONE)
    for day in range(1, 4):
        clock.now = NOW + day * DAY + HOUR
        see(w, ONE, TWO, at=clock.now)
        roll(w)
    assert totals(w) == {ONE: 3, TWO: 2}
    assert counts(w) == {ONE: 4, TWO: 3}
    assert w.state.was_shown("velma", [ONE], NOW + 1)
    assert not w.state.was_shown("velma", [TWO], NOW + DAY)


@pytest.mark.parametrize("killed", ["before", "after"])
def test_wherever_it_is_killed_the_next_run_counts_right(w, clock, killed):
    for n in range(5):
        see(w, ONE, at=NOW + n)
    see(w, TWO)
    clock.now = NOW + DAY
    w.files.killed = killed
    with pytest.raises(DiskError):
        roll(w)
    w.files.killed = ""
    assert is_due(w)
    see(w, ONE, TWO, at=clock.now)
    roll(w)
    assert totals(w) == {ONE: 5, TWO: 1}
    clock.now += DAY
    roll(w)
    assert totals(w) == {ONE: 6, TWO: 2}
    assert counts(w) == {ONE: 6, TWO: 2}


@pytest.mark.parametrize("statement", range(1, 80, 2))
def test_wherever_the_database_stops_nothing_is_counted_twice_or_lost(w, clock, statement):
    for n in range(40):
        see(w, ONE, at=NOW + n)
    see(w, TWO)
    clock.now = NOW + DAY
    left = [statement]

    def stops(*_: object) -> int:
        left[0] -= 1
        return sqlite3.SQLITE_DENY if left[0] == 0 else sqlite3.SQLITE_OK

    w.state.connection().set_authorizer(stops)
    try:
        roll(w)
    except (sqlite3.Error, FleetError):
        pass
    finally:
        w.state.connection().set_authorizer(None)
    roll(w)
    assert totals(w) == {ONE: 40, TWO: 1}
    assert counts(w) == {ONE: 40, TWO: 1}


def test_what_was_counted_is_not_lost_with_the_table(w, clock):
    see(w, ONE)
    clock.now = NOW + DAY
    roll(w)
    w.state.close()
    w.state.path.unlink()
    see(w, ONE, at=clock.now)
    clock.now += DAY
    roll(w)
    assert totals(w) == {ONE: 2, TWO: 0}


def test_a_new_replica_says_only_what_is_new(w, clock):
    see(w, ONE)
    clock.now = NOW + DAY
    roll(w)
    with w.locked():
        w.mint("velma")
    see(w, ONE, at=clock.now)
    clock.now += DAY
    roll(w)
    assert sorted(w.patterns.get(ONE).totals["shown"].values()) == [1, 1]


def test_each_agents_showings_are_its_own(w, clock):
    see(w, ONE)
    Exposures(w.state).note("slash", "s", [ONE], NOW)
    clock.now = NOW + DAY
    roll(w)
    assert totals(w)[ONE] == 1
    assert w.patterns.line(ONE).total_of(w.current_replicas()[0], "shown") == 1
    assert Exposures(w.state).is_due("slash", clock.now)


def test_unknown_and_private_lessons_are_not_spoken_of(w, clock):
    private = records.line(UNKNOWN, {"velma.00000001": 1}, text="mine alone", scope="private")
    w.files.append(w.notes_file("velma"), PATTERNS.encode(private) + b"\n")
    see(w, UNKNOWN, "p-0000000000000004")
    clock.now = NOW + DAY
    assert roll(w) == 0
    assert not is_due(w)
    assert w.state.was_shown("velma", [UNKNOWN], NOW + 1)


# --- when it was ------------------------------------------------------------------------------------------------------


def test_what_was_shown_until_a_promotion_is_told_to_the_showing_even_days_later(w, clock):
    for hour in range(48):
        see(w, at=NOW + hour * HOUR)
    for folded in (False, True):
        if folded:
            clock.now = NOW + 3 * DAY
            roll(w)
        assert until(w, NOW - 1) == 0
        assert until(w, NOW) == 1
        assert until(w, NOW + 30 * HOUR) == 31
        assert until(w, NOW + 30 * HOUR - 1) == 30
        assert until(w, NOW + 9 * DAY) == 48


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_old_is_joined_but_not_across_a_known_promotion(w, clock, is_known):
    cut = NOW + 5 * HOUR + 1
    if is_known:
        promote(w, cut)
    for hour in range(200):
        see(w, at=NOW + hour * HOUR)
    clock.now = NOW + 10 * DAY
    roll(w)
    assert until(w, cut) == 6
    for day in (120, 121):
        see(w, at=clock.now)
        clock.now = NOW + day * DAY
        roll(w)
        assert until(w, cut) == (6 if is_known else None)
    assert counts(w) == {ONE: 202}
    assert len(spans_of(w)[ONE]) <= 4


def test_the_table_is_bounded(w, clock, monkeypatch):
    monkeypatch.setattr(limits, "SHOWN_SPANS_MAX", 40)
    monkeypatch.setattr(limits, "SHOWN_REMEMBERED_MAX", 8)
    ids = [f"p-{n:016x}" for n in range(12)]
    for hour in range(20):
        see(w, *ids[hour % 3 :], at=NOW + hour * HOUR)
    clock.now = NOW + 2 * DAY
    roll(w)
    spans = spans_of(w)
    assert len(spans) == 8
    assert sum(map(len, spans.values())) <= 40 + 2 * 8
    assert all(sum(number for *_, number in spans[pattern]) == 20 for pattern in spans.keys() & ids[2:])
