"""Lines held as bytes join as any others do, and what is known twice is held once."""

import gc
import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crdt.doc import Document
from fleet.keep import config, heap
from fleet.keep.line import Line, encode
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace
from fleet.share import packed
from fleet.share.bridge import AT_ONCE, BASE, Bridge
from tests.laws import checks
from tests.laws.checks import FOREVER, STAMPS

ROWS = 2 * AT_ONCE
TABLE_BYTES = 256 * 1024
STAMP, TANK = "2026-11-20T22:30:00.123Z-0000", "tank.c0ffee42"
histories = st.lists(checks.lines(), max_size=6)
cuts = st.sampled_from((*STAMPS, FOREVER))


@given(histories, checks.lines(), cuts)
def test_packed_records_join_as_others_do(told: list[Line], more: Line, cut: str):
    plain, (here, there) = Notebook(cut), packed.held_twice(cut)
    for line in told:
        plain.add(line)
        here.notebook.add(line)
        there.notebook.add(line)
    for each in (here.notebook, there.notebook):
        assert each.edition() == plain.edition()
        assert each.covers(more) == plain.covers(more)
        assert list(each.patterns.values()) == list(plain.patterns.values())


def line(number: int, words: str = "a lesson in a few words") -> Line:
    told = f"{words} {number:05d} " * 8
    return Line(id=f"p-{number:016x}", at=STAMP, by=TANK, add={TANK: STAMP}, n={"seen": {TANK: 1}}, set={"text": told})


def test_what_both_sides_know_is_held_once_whoever_hears_of_it_first():
    one, other = packed.held_twice(FOREVER)
    for number, sides in enumerate(((one, other), (other, one))):
        for held in sides:
            held.notebook.add(line(number))
        raws = [held.notebook.patterns.raw(f"p-{number:016x}") for held in sides]
        assert raws[0] is raws[1] is packed.shared(one, f"p-{number:016x}", encode(line(number)))
    other.notebook.add(line(0, "something else"))
    assert one.notebook.get(line(0).id) == line(0)
    assert packed.shared(one, "p-unknown", b"x") == b"x"


def test_a_room_takes_little_more_memory_than_its_lines(tmp_path: Path):
    bridge, update, raw_bytes = room(tmp_path, "velma")
    tracemalloc.start()
    bridge.receive([(BASE, update)])
    bridge.offer()
    taken = held()
    assert bridge.counts.arrived == ROWS
    # Once the bytes, and the id with its place in the three tables that name it. Decoded, it is five times as much.
    assert taken < 2 * raw_bytes, (taken, raw_bytes)
    bridge.workspace.close()


def test_lines_that_wait_to_be_written_take_no_second_place(tmp_path: Path, monkeypatch):
    bridge, update, raw_bytes = room(tmp_path, "velma")
    monkeypatch.setattr(bridge, "_write", lambda: None)
    tracemalloc.start()
    bridge.receive([(BASE, update)])
    taken = held()
    assert bridge.counts.arrived == 0
    assert taken < 2 * raw_bytes, (taken, raw_bytes)
    bridge.workspace.close()


def test_own_rows_that_a_room_still_holds_take_no_more(tmp_path: Path):
    first, _, raw_bytes = room(tmp_path, "tank")
    with first.workspace.writing("tank"):
        path = first.workspace.clan / f"patterns.d/{first.writer}.jsonl"
        first.workspace.disk.append(path, b"".join(encode(line(number)) + b"\n" for number in range(ROWS)))
    first.offer()
    again = Bridge(first.workspace, first.writer)
    tracemalloc.start()
    again.receive([(BASE, first.documents[BASE].since())])
    assert again.offer() == []
    taken = held()
    assert again.counts.healed == 0
    assert taken < 2 * raw_bytes, (taken, raw_bytes)
    again.workspace.close()


def test_a_large_moment_is_noted_and_memory_given_back_once(tmp_path: Path, monkeypatch):
    given_back = []
    monkeypatch.setattr(heap, "give_back", lambda: given_back.append(1))
    bridge, update, _ = room(tmp_path, "velma")
    bridge.offer()
    bridge.give_back()
    bridge.receive([(BASE, Document(3).put({f"{line(ROWS).id}|{TANK}": encode(line(ROWS)).decode()}))])
    bridge.offer()
    assert not bridge.took_much
    bridge.receive([(BASE, update)])
    assert bridge.took_much
    bridge.give_back()
    assert not bridge.took_much
    assert given_back == [1, 1]
    bridge.workspace.close()


def test_the_heap_gives_back_or_says_nothing():
    heap.share_one()
    heap.give_back()


def held() -> int:
    """Return the bytes that were taken since tracing began and are still held, and end the tracing.

    One table does not count: the interpreter's own of all names, which grows by megabytes at a time, at whichever name
    it happens to be full.
    """
    gc.collect()
    taken = sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size < TABLE_BYTES)
    tracemalloc.stop()
    return taken


def room(folder: Path, agent: str) -> tuple[Bridge, bytes, int]:
    """Make an agent's bridge, and the update of a room that holds many rows; tell how long all lines are."""
    (folder / config.FILE_NAME).write_text("")
    workspace = Workspace(folder)
    with workspace.writing(agent) as writer:
        bridge = Bridge(workspace, writer.name)
    raws = [encode(line(number)).decode() for number in range(ROWS)]
    document = Document(1)
    document.put({f"p-{number:016x}|{TANK}": raw for number, raw in enumerate(raws)})
    return bridge, document.since(), sum(map(len, raws))
