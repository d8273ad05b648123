"""When a lesson was shown is known, so that a promotion parts it; what is not known is None, and never a guess."""

import json
import random

import pytest

from crdt import clock as stamps
from fleet.keep import config, exposures, limits, shown
from fleet.keep.exposures import Seen, Span, before
from fleet.keep.line import Line
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Workspace, World

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
ONE, TWO = "p-0000000000000001", "p-0000000000000002"
AT = "2026-11-20T00:00:00.000Z-0000"


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
        workspace.mint("velma")
    lines = [Line(id=i, at=AT, add={"tank.00000001": AT}, set={"text": f"lesson {i}"}) for i in (ONE, TWO)]
    workspace.store.append(PATTERNS, "tank.00000001", lines)
    yield workspace
    workspace.close()


def see(w, at, *ids):
    assert shown.note(w.root, "velma", "s", ids or (ONE,), at)


def roll(w, clock, at):
    clock.now = at
    held = w.load()
    with w.writing("velma") as writer:
        w.admit(held.notebook)
        shown.roll_up(writer, held.notebook.get)


def promote(w, at):
    state = Line(id=ONE, at=AT, set={"state": "published"}, when={"state": (stamps.pack(at), "tank.00000001")})
    w.store.append(PATTERNS, "tank.00000001", [state])


def until(w, at, pattern=ONE):
    return before(exposures.known(str(w.root), "velma").get(pattern, ()), at)


def when(w):
    return json.loads((w.local / "shown/velma.when.json").read_bytes())


def test_what_was_shown_until_a_promotion_is_told_to_the_showing_even_days_later(w, clock):
    for hour in range(48):
        see(w, NOW + hour * HOUR)
    for folded in (False, True):
        if folded:
            roll(w, clock, NOW + 3 * DAY)
            assert "velma.2026-11-21.jsonl" not in [each.name for each in (w.local / "shown").iterdir()]
        assert until(w, NOW - 1) == 0
        assert until(w, NOW) == (1 if not folded else None)  # the oldest are joined by now: 48 are over the limit
        assert until(w, NOW + 30 * HOUR) == 31
        assert until(w, NOW + 30 * HOUR - 1) == 30
        assert until(w, NOW + 9 * DAY) == 48


def test_nothing_is_joined_across_a_known_promotion(w, clock):
    cut = NOW + 5 * HOUR + 1
    promote(w, cut)
    for hour in range(200):
        see(w, NOW + hour * HOUR)
    for day in range(1, 12):
        roll(w, clock, NOW + day * DAY)
        assert until(w, cut) == 6
    assert sum(each[2] for each in when(w)["spans"][ONE]) == 200
    assert len(when(w)["spans"][ONE]) == limits.SHOWN_SPANS_EACH_MAX


def test_the_file_is_bounded(w, clock, monkeypatch):
    monkeypatch.setattr(limits, "SHOWN_SPANS_MAX", 40)
    monkeypatch.setattr(limits, "SHOWN_REMEMBERED_MAX", 8)
    ids = [f"p-{n:016x}" for n in range(12)]
    for hour in range(20):
        see(w, NOW + hour * HOUR, *ids[hour % 3 :])
    roll(w, clock, NOW + 2 * DAY)
    spans = when(w)["spans"]
    assert len(spans) == 8
    assert sum(map(len, spans.values())) <= 40
    assert all(sum(each[2] for each in spans[pattern]) == 20 for pattern in spans.keys() & ids[2:])


def test_totals_of_an_older_version_are_one_span_and_what_lies_inside_is_unknown(w, clock):
    (w.local / "shown").mkdir()
    old = {"through": "2026-11-20", "first": {ONE: NOW - 9 * DAY}, "shown": {"velma.00000001": {ONE: 7, TWO: 2}}}
    (w.local / "shown/velma.json").write_text(json.dumps(old | {"unsaid": []}))
    see(w, NOW + HOUR)
    for folded in (False, True):
        if folded:
            roll(w, clock, NOW + 2 * DAY)
            see(w, NOW + 3 * DAY)
        assert until(w, NOW - 9 * DAY - 1) == 0
        assert until(w, NOW - 5 * DAY) is None
        assert until(w, NOW - 1) == 7  # the day was over
        assert until(w, NOW + HOUR) == 8
        assert until(w, NOW - 9 * DAY - 1, TWO) is None  # when it was shown first is not known either
        assert until(w, NOW, TWO) == 2


def test_a_day_that_an_older_version_folded_and_could_not_remove_counts_once(w, clock):
    see(w, NOW - HOUR)
    old = {"through": "2026-11-20", "first": {ONE: NOW - HOUR}, "shown": {"velma.00000001": {ONE: 1}}, "unsaid": []}
    (w.local / "shown/velma.json").write_text(json.dumps(old))
    assert until(w, NOW) == 1
    roll(w, clock, NOW + DAY)
    assert until(w, NOW) == 1


@pytest.mark.parametrize(
    "damage",
    [b"", b"{ damaged", b"[]", b'{"through":3,"spans":[]}', b'{"spans":{"x":1,"p-0000000000000001":[[1],[3,2,1],0]}}'],
)
def test_a_damaged_file_makes_unknown_and_never_wrong(w, clock, damage):
    see(w, NOW)
    see(w, NOW + HOUR)
    roll(w, clock, NOW + 2 * DAY)
    (w.local / "shown/velma.when.json").write_bytes(damage)
    see(w, NOW + 2 * DAY)
    for _ in range(2):
        assert until(w, NOW + HOUR) is None
        assert until(w, NOW - 1) == 0
        assert until(w, NOW + DAY) == 2
        assert until(w, NOW + 2 * DAY) == 3
        roll(w, clock, NOW + 4 * DAY)


def test_what_was_counted_and_has_lost_its_notes_may_have_been_at_any_time(w, clock):
    see(w, NOW)
    roll(w, clock, NOW + DAY + HOUR)
    for name in ("velma.json", "velma.when.json"):
        (w.local / "shown" / name).unlink()
    see(w, NOW + DAY)
    for day in (3, 4):  # the first finds in the shard what is missing
        roll(w, clock, NOW + day * DAY)
    assert until(w, NOW + DAY - 1) is None
    assert until(w, NOW + 3 * DAY) == 2


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_joined_no_figure_is_wrong(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    moments = sorted(rng.randrange(1000) for _ in range(rng.randrange(1, 60)))
    cut = rng.randrange(1000)
    seen = Seen()
    seen.spans[ONE] = [Span(at, at, 1) for at in moments]
    known_cut = rng.choice([cut, None])
    monkey = limits.SHOWN_SPANS_EACH_MAX
    seen.shorten(lambda pattern: known_cut)
    spans = seen.spans[ONE]
    assert len(spans) <= monkey
    assert sum(each.number for each in spans) == len(moments)
    for at in [cut, *moments, *range(0, 1000, 97)]:
        assert before(spans, at) in (sum(each <= at for each in moments), None)
    if known_cut is not None:
        assert before(spans, cut) is not None
