"""An edition that was checked once is not decoded again before somebody asks, and never believed after a change."""

import os

import pytest

from fleet.keep import limits
from fleet.keep.disk import Disk
from fleet.keep.line import Line, encode
from fleet.keep.store import Store

STAMP = "2026-11-{:02d}T00:00:00.000Z-0000"


def line_of(number: int, text: str = "lesson", day: int = 20) -> Line:
    slot = {"velma.00000001": STAMP.format(day)}
    seen = {"seen": {"velma.00000001": 1}}
    return Line(id=f"p-{number:016x}", at=STAMP.format(day), by="velma.00000001", add=slot, n=seen, set={"text": text})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "TRUST_BYTES_MIN", 0)
    (tmp_path / "clan").mkdir()
    made = Store(Disk(tmp_path), tmp_path / "clan", tmp_path / ".fleet" / "base")
    made.write("patterns.jsonl", b"".join(encode(line_of(n)) + b"\n" for n in range(50)))
    return made


def undecoded(held) -> int:
    return sum(held.notebook.patterns.raw(pattern) is not None for pattern in held.notebook.patterns)


def test_the_second_load_decodes_nothing_and_is_the_same(store):
    first, second = store.load("~"), store.load("~")
    assert (undecoded(first), undecoded(second)) == (0, 50)
    assert first.notebook.edition() == second.notebook.edition() == store.read("patterns.jsonl")
    assert first.notebook.newest_by == second.notebook.newest_by
    assert second.notebook.get(f"p-{7:016x}") == line_of(7)
    assert undecoded(second) == 49


def test_a_line_of_a_shard_joins_an_undecoded_one(store):
    store.load("~")
    store.disk.append(store.clan / "patterns.d/tank.00000002.jsonl", encode(line_of(7, "larger text", 21)) + b"\n")
    held = store.load("~")
    assert held.notebook.get(f"p-{7:016x}").add == {"velma.00000001": STAMP.format(21)}
    assert undecoded(held) == 49


@pytest.mark.parametrize("same_size", [True, False])
def test_a_file_that_was_changed_is_checked_anew(store, same_size):
    store.load("~")
    path = store.clan / "patterns.jsonl"
    data = path.read_bytes().replace(b"velma.00000001", b"velma.0000000Z" if same_size else b"velma.1", 1)
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    held = store.load("~")
    assert undecoded(held) == 0
    assert len(held.read.refused) == 1


def test_a_part_beyond_the_cut_is_held_though_the_file_was_checked_under_a_later_one(store):
    store.load("~")
    held = store.load(STAMP.format(1))
    assert len(held.notebook.held) == 50
    assert not any(line.add for line in held.notebook.patterns.values())


@pytest.mark.parametrize(
    "extra",
    [
        b'{"id":"p-00000000000000ff","zz":1}\n',  # carried
        b"rubbish\n",
        encode(line_of(3)) + b"\n",  # an id twice
        b'{"id": "p-00000000000000ff"}\n',  # not canonical
    ],
)
def test_an_edition_that_is_not_plain_is_never_trusted(store, extra):
    store.write("patterns.jsonl", store.read("patterns.jsonl") + extra)
    store.load("~")
    assert undecoded(store.load("~")) == 0


def test_a_damaged_memory_costs_one_slow_load(store):
    store.load("~")
    (store.base.parent / "trusted.json").write_bytes(b"{")
    assert undecoded(store.load("~")) == 0
    assert undecoded(store.load("~")) == 50


def test_text_that_looks_like_an_id_is_no_id(store):
    text = '"id":"p-00000000000000aa"'
    store.write("patterns.jsonl", encode(line_of(1, text)) + b"\n" + encode(line_of(2)) + b"\n")
    store.load("~")
    held = store.load("~")
    assert undecoded(held) == 2
    assert list(held.notebook.patterns) == [f"p-{1:016x}", f"p-{2:016x}"]
