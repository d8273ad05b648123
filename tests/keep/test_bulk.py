"""Lines read in bulk are what they are one by one: the same records, the same refusals, the same bytes at the end."""

import random
from itertools import product

import msgspec
import pytest

from benchmarks.data import changes, patterns
from crdt import clock
from fleet.keep import bulk, limits, names, reading
from fleet.keep.disk import Disk
from fleet.keep.line import Line, decode_fast, encode
from fleet.keep.store import Store

ME = "velma.00000001"


def sound(raws):
    return bulk.sound(b"\n".join(raws), raws, {})


def as_line(plain):
    return Line(**msgspec.structs.asdict(plain))


@pytest.fixture
def decoded(monkeypatch):
    """A list of how many lines were decoded at once, each time."""
    counts = []
    plain = bulk.codec.decode_plain_block
    monkeypatch.setattr(
        bulk.codec, "decode_plain_block", lambda block: counts.append(block.count(b"\n") + 1) or plain(block)
    )
    return counts


@pytest.fixture
def store(tmp_path):
    (tmp_path / "clan").mkdir()
    return Store(Disk(tmp_path), tmp_path / "clan", tmp_path / ".fleet" / "base")


def loaded(store, monkeypatch, *, in_bulk, cut="~"):
    monkeypatch.setattr(limits, "BULK_BYTES_MIN", 0 if in_bulk else 2**60)
    monkeypatch.setattr(limits, "TRUST_BYTES_MIN", 2**60)
    return store.load(cut)


def told(held):
    notebook, read = held.notebook, held.read
    refused = [(each.number, each.reason, each.raw) for each in read.refused]
    seen = (read.count, read.markers, read.untidy, sorted(refused))
    return notebook.edition(), notebook.newest_by, notebook.held, sorted(notebook.carried), seen


def odd_lines():
    """Return lines of which each breaks, or nearly breaks, one rule."""
    line = Line(id="p-00000000000000aa", at=clock.pack(1_700_000_000_000), by=ME, set={"text": "a lesson"})
    line.add = {ME: line.at}
    raw = encode(line)
    whole = raw.decode()
    texts = [
        whole,
        whole.replace('"at":"2023-11-14', '"at":"2023-02-30'),
        whole.replace("2023-11-14", "1969-12-31"),
        whole.replace("T22", "T24"),
        whole.replace("Z-0000", "Z-000G"),
        whole.replace("Z-0000", "Z-00000"),
        whole.replace("Z-0000", "Z-000"),
        whole.replace('"at":"2023-11-14T22:13:20.000Z-0000"', '"at":"0"'),
        whole.replace('"at":"2023-11-14T22:13:20.000Z-0000",', ""),
        whole.replace(f',"by":"{ME}"', ""),
        whole.replace(f'"by":"{ME}"', '"by":""'),
        whole.replace(f'"by":"{ME}"', '"by":"Velma.00000001"'),
        whole.replace(f'"add":{{"{ME}"', '"add":{""'),
        whole.replace(f'"add":{{"{ME}"', '"add":{"velma"'),
        whole.replace("p-00000000000000aa", "p-00000000000000aA"),
        whole.replace("p-00000000000000aa", "d-00000000000000aa"),
        whole.replace("p-00000000000000aa", "p-00000000000000a"),
        whole.replace('"set"', '"n":{"seen":{}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"velma.00000001":0}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"velma":1}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"":1}},"set"'),
        whole.replace('"set"', '"n":{"":{"velma.00000001":1}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"velma.00000001":9007199254740992}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"velma.00000001":1,"velma.00000001":2}},"set"'),
        whole.replace('"set"', '"n":{"seen":{"velma.00000001":1,"tank.00000001":2}},"set"'),
        whole.replace('"set"', '"rem":{"velma.00000001":"2023-11-14T22:13:20.000Z-0000"},"set"'),
        whole.replace('"set"', '"rem":{"velma.00000001":"now"},"set"'),
        whole[:-1] + ',"when":{"text":["2023-11-14T22:13:20.000Z-0000","velma.00000001"]}}',
        whole[:-1] + ',"when":{"text":["0",""]}}',
        whole[:-1] + ',"when":{"text":["2023-11-14T22:13:20.000Z-0000",""]}}',
        whole[:-1] + ',"when":{"right":["2023-11-14T22:13:20.000Z-0000","velma.00000001"]}}',
        whole.replace('"a lesson"', "true"),
        whole.replace('"a lesson"', "9007199254740993"),
        whole.replace('"a lesson"', "-9007199254740992"),
        whole.replace('"a lesson"', "9007199254740991"),
        whole.replace('"a lesson"', "18446744073709551616"),
        whole.replace('"a lesson"', "1.0"),
        whole.replace('"a lesson"', "1e400"),
        whole.replace('"a lesson"', "-0"),
        whole.replace('"a lesson"', "null"),
        whole.replace('"a lesson"', "[]"),
        whole.replace('"a lesson"', '[["a"]]'),
        whole.replace('"a lesson"', '["' + '","'.join("a" * 33) + '"]'),
        whole.replace('"a lesson"', "1.50"),
        whole.replace('"a lesson"', "[" * 20 + "]" * 20),
        whole.replace('"a lesson"', '{"b":1,"a":2}'),
        whole.replace('"a lesson"', '"' + "x" * (limits.TEXT_BYTES_MAX + 1) + '"'),
        whole.replace('"a lesson"', '"' + "x" * (limits.TEXT_BYTES_MAX - 1) + '"'),
        whole.replace('"a lesson"', '"' + "é" * (limits.TEXT_BYTES_MAX // 2 + 1) + '"'),
        whole.replace('"a lesson"', '["' + '","'.join("x" * 8_000 for _ in range(9)) + '"]'),
        whole.replace('"text":"a lesson"', ",".join(f'"f{n}":"{"x" * 8_000}"' for n in range(9))),
        whole.replace('"text":"a lesson"', '"tags":["' + '","'.join("abcdefgh") + '"]'),
        whole.replace('"text":"a lesson"', '"tags":["' + '","'.join("a" * 33) + '"]'),
        whole.replace('"text":"a lesson"', '"tags":["a",9007199254740993]'),
        whole.replace('"text":"a lesson"', '"tags":["a"],"text":"a","tags":["b"]'),
        whole.replace('"text":"a lesson"', '"text":"a lesson","":1'),
        whole.replace('"text":"a lesson"', '"a\\u0001b":"a lesson"'),
        whole.replace('"a lesson"', '"\\ud800"'),
        whole.replace('"a lesson"', '"a \\/ b"'),
        whole.replace('"id"', '"v":2,"id"'),
        whole + " ",
        whole.replace(":{", ": {"),
        "",
        "<<<<<<< ours",
        "rubbish",
    ]
    return [text.encode() for text in texts]


def test_the_odd_lines_are_odd_in_their_own_way():
    """Else most of what follows would test one thing."""
    assert len(set(odd_lines())) == len(odd_lines()) > 50


@pytest.mark.parametrize("number", range(len(odd_lines())))
def test_bulk_finds_sound_what_one_by_one_is_sound(number):
    raw = odd_lines()[number]
    fine = [encode(line) for line in patterns(3)]
    line = decode_fast(raw)
    for raws in ([raw], [*fine, raw], [raw, *fine]):
        found = sound(raws)
        assert (found is not None) == (line is not None), raw[:300]
        if found is not None:
            assert [as_line(each) for each in found.lines] == [decode_fast(each) for each in raws]


def test_neighbours_never_make_an_id_of_two_halves():
    one, other = (encode(line).decode() for line in patterns(2))
    first, second = decode_fast(one.encode()), decode_fast(other.encode())
    shorter, longer = one.replace(first.id, first.id[:-1]), other.replace(second.id, first.id[-1] + second.id)
    assert sound([shorter.encode(), longer.encode()]) is None
    both = [first.id, second.id]
    assert names.are_pattern_ids(both)
    assert names.are_pattern_ids([])
    for texts in (["\n".join(both)], [*both, ""], ["", *both], ["\n".join(both), ""], [first.id, second.id + "\n"]):
        assert not names.are_pattern_ids(texts)
    for place, mark in product(range(18), "gGA/:@`\n-é\ud800"):
        text = first.id[:place] + mark + first.id[place + 1 :]
        assert names.are_pattern_ids([text, second.id]) == (text == first.id)


def test_files_of_good_and_odd_lines_load_alike(store, monkeypatch, request):
    seed = 20_261_121
    print(f"seed {seed}")
    rng = random.Random(seed)
    base = patterns(60)
    changed = [line for replica in range(3) for _, line in changes(base, replica)]
    plain = [encode(line) for line in (*base, *changed)]
    for _ in range(40):
        for name in ("patterns.jsonl", f"patterns.d/{ME}.jsonl", "patterns.d/tank.00000002.jsonl"):
            lines = rng.sample(plain, rng.randrange(len(plain)))
            if rng.random() < 0.5:
                lines += rng.sample(odd_lines(), rng.randrange(6))
            lines += rng.choices(plain, k=rng.randrange(4))
            rng.shuffle(lines)
            store.write(name, b"\n".join(lines) + rng.choice([b"\n", b"", b"\r\n"]))
        monkeypatch.setattr(limits, "BLOCK_BYTES", rng.choice([700, 5_000, 2**20]))
        cut = rng.choice(["~", clock.pack(1_760_000_030_000), clock.pack(1_700_000_000_000)])
        in_bulk, one_by_one = (loaded(store, monkeypatch, in_bulk=each, cut=cut) for each in (True, False))
        assert told(in_bulk) == told(one_by_one)


def test_a_line_that_stands_there_already_is_not_decoded(store, monkeypatch, decoded):
    raws = [encode(line) for line in patterns(50)]
    newer = encode(next(changes(patterns(50), 0)).line)
    store.write("patterns.jsonl", b"".join(raw + b"\n" for raw in raws))
    store.write(f"patterns.d/{ME}.jsonl", b"".join(raw + b"\n" for raw in [*raws[:40], newer]))
    held = loaded(store, monkeypatch, in_bulk=True)
    assert decoded == [50, 1]
    store.write("patterns.d/tank.00000002.jsonl", b"".join(raw + b"\n" for raw in [*raws[7:], newer]))
    decoded.clear()
    assert told(loaded(store, monkeypatch, in_bulk=True)) == told(held)
    assert decoded == [50, 1]
    assert sum(held.notebook.patterns.raw(each) is not None for each in held.notebook.patterns) == 49


@pytest.mark.parametrize("seed", range(6))
def test_lines_are_found_where_they_stood_and_anywhere_else(seed):
    rng = random.Random(seed)
    known = [b"line %d" % number for number in range(500)]
    joined = bulk.Joined(known)
    joined.add([b"added"])
    for _ in range(20):
        joined.rewind()
        lines = list(known)
        for _ in range(rng.randrange(4)):
            start = rng.randrange(len(lines))
            match rng.randrange(3):
                case 0:
                    lines[start : start + rng.randrange(90)] = []
                case 1:
                    lines[start:start] = [b"new %d" % rng.randrange(9)] * rng.randrange(90)
                case 2:
                    lines[start : start + 40] = rng.sample(lines, 40)
        lines += [b"added"] * 3
        new = [line for line in lines if line.startswith(b"new")]
        others = []
        while lines:
            size = rng.randrange(1, 60)
            others.append((lines[:size], joined.others(lines[:size])))
            lines = lines[size:]
        assert [line for _, block in others for line in block if line.startswith(b"new")] == new
        assert b"added" not in {line for _, block in others for line in block}
        assert all(set(block) <= set(raws) for raws, block in others)
        # What stands elsewhere is looked up where it is more than half of a block.
        assert all(len(set(block) & set(known)) <= len(raws) // 2 for raws, block in others)


def test_where_lines_stand_in_their_places_none_is_hashed():
    class Unhashed(bytes):
        __slots__ = ()
        __hash__ = None

    known = [Unhashed(b"line %d" % number) for number in range(90)]
    joined = bulk.Joined(known)
    for start in range(0, 90, 30):
        assert joined.others([bytes(raw) for raw in known[start : start + 30]]) == []
    changed = [b"new" if number % 3 == 0 else bytes(raw) for number, raw in enumerate(known)]
    joined.rewind()
    assert joined.others(changed) == [b"new"] * 30


def test_after_a_line_too_many_the_others_are_found_in_their_places_again(store, monkeypatch):
    raws = [encode(line) for line in patterns(300)]
    looked_up = []
    plain = bulk.Joined._looked_up
    monkeypatch.setattr(bulk.Joined, "_looked_up", lambda self, lines: looked_up.append(lines) or plain(self, lines))
    monkeypatch.setattr(limits, "BLOCK_BYTES", 6_000)
    newer = [encode(change.line) for change in changes(patterns(300), 0)][:7]
    for name, lines in (
        ("patterns.jsonl", raws),
        (f"patterns.d/{ME}.jsonl", raws),
        ("patterns.d/tank.00000002.jsonl", [*raws[:100], *newer, *raws[100:200], *raws[205:]]),
    ):
        store.write(name, b"".join(raw + b"\n" for raw in lines))
    loaded(store, monkeypatch, in_bulk=True)
    assert 1 <= len(looked_up) <= 3


def test_one_odd_line_sends_only_its_own_block_to_a_closer_look(store, monkeypatch):
    raws = [encode(line) for line in patterns(300)]
    changed = [encode(change.line) for change in changes(patterns(300), 0)]
    ids = {decode_fast(raw).id: raw for raw in changed}
    replica = [ids.get(decode_fast(raw).id, raw) for raw in raws]
    replica[150] = replica[150].replace(b'"set":{', b'"set":{"":1,')
    store.write("patterns.jsonl", b"".join(raw + b"\n" for raw in raws))
    store.write(f"patterns.d/{ME}.jsonl", b"".join(raw + b"\n" for raw in replica))
    looked = []
    plain = bulk.reading.of_block
    monkeypatch.setattr(
        bulk.reading, "of_block", lambda kind, block, *rest: looked.append(block) or plain(kind, block, *rest)
    )
    monkeypatch.setattr(limits, "BLOCK_BYTES", 4_000)
    held = loaded(store, monkeypatch, in_bulk=True)
    assert [replica[150] in block.raws for block in looked] == [True]
    assert told(held) == told(loaded(store, monkeypatch, in_bulk=False))
    assert held.read.count == 1


def test_nothing_is_noted_of_a_small_shard_beside_a_large_edition(store, monkeypatch, decoded):
    raws = [encode(line) for line in patterns(80)]
    store.write("patterns.jsonl", b"".join(raw + b"\n" for raw in raws))
    store.write(f"patterns.d/{ME}.jsonl", raws[3] + b"\n")
    held = loaded(store, monkeypatch, in_bulk=True)
    assert decoded == [80, 1]
    assert held.notebook.edition() == store.read("patterns.jsonl")


def test_entries_come_with_the_numbers_of_their_lines():
    read = reading.Read()
    blocks = list(reading.numbered(iter([b"a\nb\n", b"c\nd", b"e\n"]), "f", read))
    assert [(block.number, block.raws) for block in blocks] == [(1, [b"a", b"b"]), (3, [b"c"]), (4, [b"de"])]
