"""Laws of the shared document: any order, any number of times, any loss that is made good; rows of many writers."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt import doc
from crdt.doc import NOT_TEXT, BadUpdateError, Change, Document, _clocks, key_of, parts_of

WRITERS = ["popashot.7f3a91c2", "tank.c0ffee42", "velma.09ab12cd"]
NAMES = [f"p-{n:016x}" for n in range(4)]
writes = st.lists(
    st.tuples(st.sampled_from(WRITERS), st.sampled_from(NAMES), st.text("aé🦀|", max_size=5)), min_size=1, max_size=24
)


def documents() -> dict[str, Document]:
    return {writer: Document(number) for number, writer in enumerate(WRITERS, 1)}


@given(writes, st.randoms(use_true_random=False))
def test_in_each_writers_order_any_interleaving_any_number_of_times_leads_to_the_same_rows(told: list, rng):
    mine = documents()
    updates = {writer: [] for writer in WRITERS}
    for writer, name, text in told:
        updates[writer].append(mine[writer].put({key_of(name, writer): text}))
    for number in range(10, 13):
        other, waiting = Document(number), {writer: list(told) for writer, told in updates.items()}
        while left := [writer for writer, queue in waiting.items() if queue]:
            update = waiting[rng.choice(left)].pop(0)
            for _ in range(rng.randint(1, 2)):
                other.apply(update)
            other.apply(rng.choice(rng.choice([queue for queue in updates.values() if queue])[:1]))
        assert other.rows() == {key_of(name, writer): text for writer, name, text in told}


@given(writes, st.randoms(use_true_random=False))
def test_updates_in_any_order_are_made_whole_by_an_exchange_of_states(told: list, rng):
    # Out of a writer's own order a row may wait for others, and wait too long: a connection keeps that order, and a
    # new one begins with an exchange of states.
    mine, other = documents(), Document(10)
    updates = [mine[writer].put({key_of(name, writer): text}) for writer, name, text in told] * 2
    rng.shuffle(updates)
    for update in updates:
        other.apply(update)
    for document in mine.values():
        other.apply(document.since(other.state()))
    assert other.rows() == {key_of(name, writer): text for writer, name, text in told}


@given(writes, st.randoms(use_true_random=False))
def test_who_missed_anything_gets_it_by_state_vector(told: list, rng: random.Random):
    mine, other = documents(), Document(10)
    for writer, name, text in told:
        update = mine[writer].put({key_of(name, writer): text})
        if rng.random() < 0.5:
            other.apply(update)
    for document in mine.values():
        other.apply(document.since(other.state()))
    assert other.rows() == {key_of(name, writer): text for writer, name, text in told}
    assert other.apply(mine[WRITERS[0]].since(other.state())).changes == {}


def test_a_change_says_what_was_and_what_is():
    mine, other = Document(1), Document(2)
    other.apply(mine.put({"a|x": "1"}))
    assert other.apply(mine.put({"a|x": "2", "b|x": "3"})).changes == {
        "a|x": Change("1", "2"),
        "b|x": Change(None, "3"),
    }
    assert other.apply(mine.put({"a|x": None, "no|x": None})).changes == {"a|x": Change("2", None)}
    assert mine.put({"no|x": None}) == b""
    assert other.rows() == {"b|x": "3"}


def test_a_document_that_is_filled_says_of_each_row_that_it_is_new():
    told, found = Document(1), Document(2)
    told.put({"a|x": "1", "b|x": "2"})
    told.put({"c|x": "3", "b|x": None})
    found.put({"gone|y": "0"})
    found.put({"gone|y": None})
    assert found.apply(told.since()).changes == {"a|x": (None, "1"), "c|x": (None, "3")}
    assert found.apply(told.since()).changes == {}
    assert found.apply(told.put({"a|x": "4"})).changes == {"a|x": ("1", "4")}


def test_news_are_told_once():
    mine, other = Document(1), Document(2)
    update = mine.put({"a|x": "1"})
    assert other.apply(update).update
    assert other.apply(update).update == b""


@pytest.mark.parametrize("value", [1, 1.5, None, True, b"bytes", ["list"], {"a": 1}, "zero \0 character"])
def test_a_value_that_is_no_text_reads_as_none(value: object):
    from pycrdt import Doc, Map

    hostile = Doc()
    hostile[doc.ROOT] = Map({"a|x": value})
    mine = Document(2)
    changes = mine.apply(hostile.get_update()).changes
    assert changes == {"a|x": Change(None, NOT_TEXT)}
    assert mine.get("a|x") == NOT_TEXT
    assert mine.rows() == {"a|x": NOT_TEXT}


def test_shared_types_and_other_roots_do_no_harm():
    from pycrdt import Array, Doc, Map, Text

    hostile = Doc()
    hostile[doc.ROOT] = Map({"a|x": Map({"b": 1}), "b|x": Array([1]), "c|x": Text("t"), "d|x": Doc()})
    hostile["other"] = Text("elsewhere")
    mine = Document(2)
    mine.apply(hostile.get_update())
    assert mine.rows() == dict.fromkeys(("a|x", "b|x", "c|x", "d|x"), NOT_TEXT)
    as_array = Doc()
    as_array[doc.ROOT] = Array(["x"])
    mine.apply(as_array.get_update())
    mine.put({"e|x": "still works"})
    assert mine.get("e|x") == "still works"


def test_a_cloned_client_id_is_noticed_and_a_fresh_one_brings_all_rows_together():
    # A machine that is copied while it runs goes on under the same client id: each takes the other's rows for known.
    one, copy = Document(7), Document(7)
    one.put({"a|one": "1"})
    copy.put({"b|copy": "2"})
    copy.put({"c|copy": "3"})
    applied = one.apply(copy.since())
    assert applied.is_cloned
    assert one.rows() != {"a|one": "1", "b|copy": "2", "c|copy": "3"}  # what would stay so for ever
    fresh = Document(8)
    assert not fresh.apply(copy.since()).is_cloned
    fresh.put({"a|one": "1"})
    copy.apply(fresh.since(copy.state()))
    assert copy.rows() == fresh.rows() == {"a|one": "1", "b|copy": "2", "c|copy": "3"}


def test_our_own_writes_that_come_back_are_no_clone():
    mine, server = Document(1), Document(2)
    for number in range(3):
        server.apply(mine.put({"a|x": str(number)}))
        assert not mine.apply(server.since()).is_cloned


@given(st.binary(max_size=64))
def test_bytes_that_are_no_update_are_refused_and_do_no_harm(data: bytes):
    mine = Document(1)
    mine.put({"a|x": "1"})
    try:
        mine.apply(data)
        mine.since(data)
    except BadUpdateError:
        pass
    assert mine.get("a|x") == "1"
    mine.put({"b|x": "2"})
    assert Document(2).apply(mine.since()).changes.keys() >= {"a|x", "b|x"}


@given(st.data())
def test_an_update_that_was_tampered_with_never_breaks_the_document(data: st.DataObject):
    other = Document(2)
    other.put({"a|y": "1", "b|y": "é"})
    update = bytearray(other.put({"a|y": "2", "c|y": "3"}))
    for _ in range(data.draw(st.integers(1, 4))):
        update[data.draw(st.integers(0, len(update) - 1))] = data.draw(st.integers(0, 255))
    mine = Document(1)
    mine.put({"a|x": "1"})
    with suppress(BadUpdateError):
        mine.apply(bytes(update))
    assert mine.get("a|x") == "1"
    assert mine.put({"b|x": "2"})


@given(st.integers(0, 2**63 - 1))
def test_a_number_comes_back(number: int):
    reader = doc.Reader(doc.encode(number))
    assert (reader.number(), reader.position) == (number, len(doc.encode(number)))


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff" * 20])
def test_half_a_number_is_none(data: bytes):
    with pytest.raises(doc.TruncatedError):
        doc.Reader(data).number()


def test_bytes_carry_their_length():
    reader = doc.Reader(doc.encode_bytes(b"abc") + b"y")
    assert (reader.chunk(), reader.position) == (b"abc", 4)
    with pytest.raises(doc.TruncatedError):
        doc.Reader(b"\x05abc").chunk()


def test_a_key_names_its_writer():
    assert parts_of(key_of(NAMES[0], WRITERS[0])) == (NAMES[0], WRITERS[0])
    assert parts_of("no writer") == ("", "")


def test_a_state_vector_is_read():
    mine = Document(300)
    mine.put({"a|x": "1", "b|x": "2"})
    assert _clocks(mine.state()) == {300: 2}
