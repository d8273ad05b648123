"""Golden vectors: the promise on the wire. What is written here may be read by any later version, and by no other.

`editions.json`: lines in, bytes out. `ids.jsonl`: text, normalised text, id. `discoveries.json`: the same for
discoveries. `refused.jsonl`: lines that nobody may take. A vector is never changed to suit the code.
"""

import base64
import hashlib
import json
import re
from itertools import chain
from pathlib import Path

import pytest

from fleet.model import discovery, limits
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.line import BadLineError, Column, Line, canonical
from fleet.model.names import normalise, pattern_id
from fleet.model.pattern import Policy, fold
from fleet.store import lines
from tests.laws import checks

HERE = Path(__file__).parent


def _rows(name):
    return [json.loads(row) for row in (HERE / name).read_text(encoding="utf-8").splitlines()]


def _json(name):
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def _lines(raws):
    return "".join(raw + "\n" for raw in raws).encode()


EDITIONS = _json("editions.json")
IDS = _rows("ids.jsonl")
DISCOVERIES = _json("discoveries.json")
REFUSED = _rows("refused.jsonl")


def by_name(rows, key="name"):
    return pytest.mark.parametrize("vector", [pytest.param(row, id=row[key] or "(empty)") for row in rows])


# --- lines in, edition out ---


@by_name(EDITIONS)
def test_lines_give_these_edition_bytes(vector):
    for raws in (vector["lines"], vector["lines"][::-1], vector["lines"] * 2, vector["edition"]):
        entries = [codec.decode(raw.encode()) for raw in raws]
        assert checks.edition_of(codec, entries) == _lines(vector["edition"])
    joined = {entry.id: entry for raw in vector["edition"] if isinstance(entry := codec.decode(raw.encode()), Line)}
    for raw in vector["lines"]:
        if isinstance(entry := codec.decode(raw.encode()), Line):
            assert codec.covers(joined[entry.id], entry)


@by_name([vector for vector in EDITIONS if "shows" in vector])
def test_lines_show_this(vector):
    record, *others = [codec.decode(raw.encode()) for raw in vector["edition"]]
    assert not others
    for shown in vector["shows"]:
        pattern = fold(record, Policy(shown.get("cut", "~"), dict.fromkeys(shown.get("blocked", ()), "")))
        assert shown.get("present", pattern.is_present) == pattern.is_present
        fields = {field: canonical(value) for field, value in pattern.fields.items()}
        assert {field: canonical(value) for field, value in shown.get("fields", pattern.fields).items()} == fields
        counts = {name: pattern.count(name) for name in pattern.totals.keys() | pattern.parts.keys()}
        assert shown.get("counts", counts) == counts
        assert shown.get("agents", pattern.agents()) == pattern.agents()
        assert (shown.get("at", pattern.at), shown.get("by", pattern.by)) == (pattern.at, pattern.by)


def test_the_lines_of_the_design_are_among_the_vectors(shared):
    design = (shared / "DESIGN.md").read_text(encoding="utf-8")
    section = design.split("## 3. The line")[1].split("## 4.")[0]
    shown = [row for row in section.splitlines() if row.startswith('{"id":')]
    held = chain(EDITIONS[0]["lines"], DISCOVERIES["editions"][0]["lines"])
    assert shown == list(held)


def test_a_line_of_1500_replicas_is_split_into_these_bytes():
    stamp = "2026-11-20T22:30:00.000Z-0000"
    wide = Line("p-0000000000000001", {"anna.00000001": Column(first={"text": "x" * 8192})})
    wide.w["anna.00000001"].set = {"wrong": (stamp, "y" * 8192)}
    for number in range(1_500):
        column = wide.w[f"agent{number % 7}.{number * 7919:08x}"] = Column(add=stamp, n={"seen": number + 1})
        if number % 3 == 0:
            column.rem = {"anna.00000001": stamp}
    parts = codec.split(wide)
    assert [(len(part), hashlib.blake2b(part, digest_size=8).hexdigest()) for part in parts] == SPLIT


SPLIT = [
    (64815, "257487a780756507"),
    (64832, "2a2a4398b44995ff"),
    (27820, "c48cdbd464fdc0f2"),
]


# --- one lesson, one id ---


@by_name(IDS, "text")
def test_a_text_has_this_id(vector):
    assert normalise(vector["text"]) == vector["normal"]
    assert pattern_id(vector["text"]) == vector["id"]
    assert vector["id"] == "p-" + hashlib.blake2b(vector["normal"].encode(), digest_size=8).hexdigest()


def test_one_id_is_one_normalised_text():
    assert len({vector["id"] for vector in IDS}) == len({vector["normal"] for vector in IDS})


# --- discoveries ---


def test_discoveries_have_these_ids():
    for vector in DISCOVERIES["ids"]:
        assert discovery.discovery_id(*vector["parts"]) == vector["id"]
    for vector in DISCOVERIES["retractions"]:
        assert discovery.retraction_id(vector["retracts"]) == vector["id"]


@by_name(DISCOVERIES["editions"])
def test_discoveries_give_these_edition_bytes(vector):
    for raws in (vector["lines"], vector["lines"][::-1], vector["lines"] * 2, vector["edition"]):
        found: dict[str, Discovery] = {}
        carried = set()
        for entry in (discovery.decode(raw.encode()) for raw in raws):
            if isinstance(entry, Discovery):
                found[entry.id] = found.get(entry.id, entry).joined(entry)
            else:
                carried.add(entry.raw)
        rows = [discovery.encode(entry) for entry in sorted(found.values(), key=lambda entry: (entry.at, entry.id))]
        assert [*rows, *sorted(carried)] == [raw.encode() for raw in vector["edition"]]
        retracted = {entry.retracts for entry in found.values()}
        shown = [entry for entry in found.values() if not entry.retracts and entry.id not in retracted]
        assert [entry.id for entry in sorted(shown, key=lambda entry: (entry.at, entry.id))] == vector["newest"]


def test_a_discovery_with_a_written_zero_stamp_is_not_canonical():
    """Found: `"at":"0"` passed as canonical, so that two peers could write two bytes of one discovery."""
    raw = b'{"at":"0","id":"d-0000000000000001","problem":"x"}'
    assert discovery.encode(discovery.decode(raw)) == b'{"id":"d-0000000000000001","problem":"x"}'


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"id":"d-0000000000000001"}', "neither 'problem' nor 'solution'"),
        ('{"id":"d-0000000000000001","context":"x"}', "neither 'problem' nor 'solution'"),
        ('{"id":"d-0000000000000001","retracts":"everything"}', "'retracts' is no id"),
        ('{"id":"d-0000000000000001","problem":"x","at":"now"}', "'at' is no stamp"),
        ('{"id":"d-0000000000000001","problem":"x","by":"me"}', "'by' is no replica"),
        ('{"id":"d-0000000000000001","problem":"x","minutes":-1}', "'minutes' is out of range"),
        ('{"id":"d-0000000000000001","problem":"x","minutes":true}', "Expected"),
        ('{"id":"d-0000000000000001","problem":["x"]}', "Expected"),
        ('{"id":"d-0000000000000001","problem":"x","tags":"ci"}', "Expected"),
        ('{"id":"d-0000000000000001","problem":"x","problem":"y"}', "the same key twice"),
        ('{"id":"d-0000000000000001","problem":"%s"}' % ("x" * 8_193), "'problem' is longer than 8192 bytes"),
        ('{"problem":"x"}', "no valid id"),
    ],
)
def test_a_broken_discovery_is_refused(raw, reason):
    with pytest.raises(BadLineError, match=reason):
        discovery.decode(raw.encode())


# --- what nobody may take ---


def _refusal(raw):
    with pytest.raises(BadLineError) as quick:
        codec.decode(raw)
    with pytest.raises(BadLineError) as slow:
        codec._decode_strictly(raw)
    assert str(quick.value) == str(slow.value)
    return str(quick.value)


@by_name(REFUSED)
def test_a_broken_line_is_refused_with_its_reason(vector):
    raw = base64.b64decode(vector["base64"]) if "base64" in vector else vector["line"].encode()
    assert vector["reason"] in _refusal(raw)


START = b'{"id":"p-0000000000000001","w":{"anna.00000001":{"first":{"text":'


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (START + b'"' + b"x" * 8_193 + b'"}}}}', "'text' is longer than 8192 bytes"),
        (START + b'"' + "é".encode() * 4_097 + b'"}}}}', "'text' is longer than 8192 bytes"),
        (START + b'["' + b"x" * 8_193 + b'"]}}}}', "'text' is longer than 8192 bytes"),
        (START + b'{"' + b"x" * 8_193 + b'":1}}}}}', "'text' is longer than 8192 bytes"),
        (START + b"[" * 18 + b"]" * 18 + b"}}}}", "'text' is nested deeper than 16"),
        (START + b'{"a":' * 17 + b"1" + b"}" * 17 + b"}}}}", "'text' is nested deeper than 16"),
        (START + b"[" * 30_000 + b"]" * 30_000 + b"}}}}", "nested deeper than 16|not JSON"),
        (START + b"[" * 65_000 + b"}}}}", "nested deeper than 16|not JSON"),
        (START + b'"x"}}}}' + b" " * limits.LINE_BYTES_MAX, "longer than 65536 bytes"),
        (START + b"[" + b"1," * 32_300 + b"1]}}}}", "'text' is longer than 64512 bytes"),
        (START + b"9" * 60_000 + b"}}}}", "an integer beyond 2\\^53"),
        (START + b"1e" + b"9" * 60_000 + b"}}}}", "a number too large"),
        (b'{"id":"p-0000000000000001","v":3,"deep":' + b"[" * 24 + b"]" * 24 + b"}", "nested deeper than 16"),
    ],
)
def test_a_line_beyond_a_limit_is_refused_with_its_reason(raw, reason):
    assert re.search(reason, _refusal(raw))


@pytest.mark.parametrize(
    "raw",
    [
        START + b'"' + b"x" * 8_192 + b'"}}}}',
        START + b'"' + "é".encode() * 4_096 + b'"}}}}',
        START + b"[" * 16 + b"]" * 16 + b"}}}}",
        START + b"[9007199254740991,-9007199254740991,1e308,5e-324]}}}}",
        START.replace(b"text", b"x" * 64) + b"1}}}}",
        b'{"id":"p-0000000000000001","w":{"anna.00000001":{"zz":' + b"[" * 16 + b"]" * 16 + b"}}}",
    ],
)
def test_a_line_at_a_limit_is_read(raw):
    assert codec.encode(codec.decode(raw)) == codec.encode(codec._decode_strictly(raw))


# --- the JSON test suite ---

GOOD = (
    b'{"id":"p-0000000000000001","w":{"anna.00000001":{"n":{"seen":1}}}}',
    b'{"id":"p-0000000000000002","w":{"bert.00000002":{"n":{"seen":1}}}}',
)
REFUSED_THOUGH_JSON = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}


@pytest.fixture(scope="module")
def suite(shared):
    found = _rows(shared / "corpora" / "json" / "json-test-suite.jsonl")
    assert len(found) == 318
    return [(row["name"], row["verdict"], base64.b64decode(row["base64"])) for row in found]


def test_good_lines_beside_anything_are_read(suite):
    for name, _, rubbish in suite:
        shard = GOOD[0] + b"\n" + rubbish + b"\n" + GOOD[1] + b"\n"
        read = lines.LineReader()
        entries = list(read.entries(lines.PATTERNS, iter([shard]), name))
        assert [raw for raw, _ in entries] == list(GOOD), name
        assert len(read.refused) <= len([raw for raw in rubbish.split(b"\n") if raw.strip()]), name


def test_anything_is_read_refused_or_carried(suite):
    for name, verdict, value in suite:
        for raw in (value, *value.split(b"\n")):
            _refusal(raw)
        as_field = b'{"id":"p-0000000000000001","w":{"anna.00000001":{"first":{"x":' + value + b"}}}}"
        try:
            codec.decode(as_field)
        except BadLineError:
            assert verdict != "accept" or name in REFUSED_THOUGH_JSON, name
        else:
            assert verdict != "reject", name
            assert name not in REFUSED_THOUGH_JSON
