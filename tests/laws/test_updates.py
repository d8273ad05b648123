"""Laws of updates as bytes: what the library could not live through is refused; what is cut is the whole."""

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import doc
from crdt.doc import BadUpdateError, Document, TruncatedError

ROW = b"\x28\x01\x05lines\x01a\x01"  # a value in the root map, under a key that nobody used before
NULL = b"\x7e"


def nested(opening: bytes, depth: int) -> bytes:
    """Return an update that sets one value: lists or maps in one another."""
    return b"\x01\x01\x05\x00" + ROW + opening * depth + NULL + b"\x00"


def of_clients(count: int, struct: bytes) -> bytes:
    clients = (b"\x01" + doc.encode(1_000_000 - number) + b"\x00" + struct for number in range(count))
    return doc.encode(count) + b"".join(clients) + b"\x00"


def rivals(count: int) -> bytes:
    return b"\x01" + doc.encode(count) + b"\x05\x00" + (ROW + NULL) * count + b"\x00"


def types_in_one_another(count: int) -> bytes:
    inner = (b"\x27\x00\x05" + doc.encode(number) + b"\x01b\x01" for number in range(count))
    return b"\x01" + doc.encode(count + 1) + b"\x05\x00\x27\x01\x05lines\x01a\x01" + b"".join(inner) + b"\x00"


DEADLY = {
    "lists": nested(b"\x75\x01", 100_000),
    "maps": nested(b"\x76\x01\x01k", 100_000),
    "lists that the reader's own language cannot nest": nested(b"\x75\x01", 2_000),
    "in a document's options": b"\x01\x01\x05\x00\x29\x01\x05lines\x01a\x01g" + b"\x75\x01" * 100_000 + NULL + b"\x00",
    "types": types_in_one_another(doc.NESTED_MAX + 1),
    "clients": of_clients(doc.CLIENTS_MAX + 1, ROW + NULL),
    "rivals": rivals(doc.RIVALS_MAX + 1),
    "writes": b"\x01" + doc.encode(doc.STRUCTS_MAX + 1) + b"\x05\x00" + b"\x00\x01" * (doc.STRUCTS_MAX + 1),
}


@pytest.mark.parametrize("name", DEADLY)
def test_what_the_library_could_not_live_through_is_refused_before_it_sees_it(name: str):
    mine = Document(1)
    mine.put({"a|x": "1"})
    with pytest.raises(BadUpdateError):
        mine.apply(DEADLY[name])
    assert mine.rows() == {"a|x": "1"}
    assert Document(2).apply(mine.since()).changes.keys() == {"a|x"}  # and nothing of it waits for the next reader


def test_a_deeply_nested_value_ends_no_process():
    code = (
        "from tests.laws.test_updates import DEADLY; from crdt.doc import BadUpdateError, Document\n"
        "for name in DEADLY:\n    try: Document(1).apply(DEADLY[name])\n    except BadUpdateError: pass"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


PANIC = (
    (
        b"\x03\x01\x82\x02\x00!\x01\x05lines\x04k1|w\x01\x03\x00\x01\x00\x02\xa1\x82\x02\x00\x01\xa8\x01\x02\x01w\x1f"
        b"vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\x03\x01\x00!\x01\x05lines\x04k2|w\x01!\x01\x05lines\x04k3|w\x01\xa8\x01\x01\x01w\x1e"
        b"\x13vvvvvvvvvvvvvvvvvvvvv\x03\x01\x01\x00\x02\x01\x01\x00\x00"
    ),
    (
        b"\x03\x05\x01\x00\xa1w\x04\x01\xa8R\x00\x01w\x15vvvvvvvvvvvvvvvvvvvvv\xa8w\x01\x01w\x1avvvvvvvvvvvvvvvvvvvvvvvvvv"
        b"\xa8w\x07\x01w\x06vvvvvv\x01\x00\x01w\x00\x05w\x00!\x01\x05lines\x04k0mw\x01!\x01\x05lines\x04k3|w\x01!\x01\x05"
        b"lines\x042|w\x01w\x00\x03\xa1R\x01\x02\x03R\x00!\x01\x05lines\x04k1|w\x01\xa1\x01\x03\x01\x00\x00\x01\x01\x00"
    ),
)
"""Two updates that the library ends in a panic over (pycrdt 0.14, found by tampering); whoever touches the document
afterwards waits for ever."""


def test_a_panic_of_the_library_is_a_refused_update_and_the_document_is_given_up():
    mine = Document(27)
    mine.apply(PANIC[0])
    with pytest.raises(BadUpdateError) as refused:
        mine.apply(PANIC[1])
    assert refused.value.is_broken


def test_what_any_client_may_well_write_is_taken():
    from pycrdt import Array, Doc, Map, Text

    other = Doc()
    value = {"b": {"c": [1, -5, -(2**40), 2.5, None, True, False, b"x", 2**60]}}
    other[doc.ROOT] = Map({"a|x": Map(value), "b|x": value, "c|x": Text("hé😀"), "d|x": Array([1, [2]]), "e|x": Doc()})
    other["elsewhere"] = text = Text("bold")
    text.format(0, 2, {"bold": True})
    text.insert_embed(1, {"a": 1})
    del other[doc.ROOT]["b|x"]
    walk = doc._Walk(other.get_update())
    walk.runs()
    assert walk.position < len(other.get_update())  # the deletions are left
    assert Document(1).apply(other.get_update()).changes.keys() == {"a|x", "c|x", "d|x", "e|x"}


def history(rng: random.Random) -> Document:
    """Return a document that several wrote into, taking from each other now and then."""
    room, writers = Document(99), [Document(number) for number in range(1, 5)]
    for _ in range(rng.randrange(1, 60)):
        writer = rng.choice(writers)
        if rng.random() < 0.5:
            writer.apply(room.since(writer.state()))
        told = None if rng.random() < 0.2 else rng.choice("aé🦀") * rng.randrange(60)
        writer.put({f"{rng.randrange(5)}|w": told, f"{rng.randrange(5)}|v": "both"})
        room.apply(writer.since(room.state()))
    return room


@given(st.randoms(use_true_random=False), st.integers(1, 2_000))
def test_pieces_taken_in_one_after_the_other_are_the_whole(rng: random.Random, size: int):
    room, shown = history(rng), {}
    reader = Document(100)
    for piece in room.pieces_since(reader.state(), size):
        for key, change in reader.apply(piece).changes.items():
            shown[key] = change.after
    assert reader.rows() == room.rows()
    assert doc._clocks(reader.state()) == doc._clocks(room.state())
    assert {key: text for key, text in shown.items() if text is not None} == room.rows()  # nothing waited unheard


def test_a_piece_is_about_as_large_as_asked_for():
    room = Document(1)
    room.put({f"{number}|w": "x" * 100 for number in range(1_000)})
    found = list(room.pieces_since(b"\0", 10_000))
    assert len(found) > 10
    assert max(map(len, found)) < 10_000 + 200


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x01\x05\x00\x0b\x01", b"\x01\x01\x05\x00" + ROW + b"\x10\x00"])
def test_what_is_no_update_is_refused(data: bytes):
    with pytest.raises(TruncatedError):
        doc._check(data)
