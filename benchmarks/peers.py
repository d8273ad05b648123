"""Others that do the same work, each prepared by a function that returns it: from bytes in memory to Python values.

Each pattern is one plain value in a map: the quickest way that these libraries have. With a container of its own for
each counter and set, which is what a join of the same meaning would need, they take several times longer.
"""

import json
from pathlib import Path

from benchmarks.data import AGENTS, cached, changes, patterns
from benchmarks.workers import Work
from fleet.model.line import Line, encode


def _value(line: Line) -> dict:
    return json.loads(encode(line))


def _values(cache: Path, count: int) -> list[dict]:
    return [json.loads(line) for line in cached(count, cache).read_bytes().splitlines()]


def msgspec_decodes(cache: Path, count: int) -> Work:
    """msgspec decodes the same bytes: no check, no join."""
    import msgspec

    data = cached(count, cache).read_bytes()
    decoder = msgspec.json.Decoder(Line)
    return lambda: decoder.decode_lines(data)


def loro_reads(cache: Path, count: int) -> Work:
    """Loro reads a snapshot."""
    import loro

    made = loro.LoroDoc()
    kept = made.get_map("patterns")
    for value in _values(cache, count):
        kept.insert(value["id"], value)
    made.commit()
    snapshot = made.export(loro.ExportMode.Snapshot())
    del made, kept
    return lambda: _loro_values([snapshot])


def loro_joins(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """Loro imports seven snapshots of documents that have one beginning."""
    import loro

    base = patterns(count)
    made = loro.LoroDoc()
    kept = made.get_map("patterns")
    for line in base:
        kept.insert(line.id, _value(line))
    made.commit()
    beginning = made.export(loro.ExportMode.Snapshot())
    snapshots = []
    for replica in range(len(AGENTS)):
        made = loro.LoroDoc()
        made.import_(beginning)
        kept = made.get_map("patterns")
        for _, line in changes(base, replica):
            kept.insert(line.id, _value(line))
        made.commit()
        snapshots.append(made.export(loro.ExportMode.Snapshot()))
    del made, kept, base
    return lambda: _loro_values(snapshots)


def _loro_values(snapshots: list[bytes]) -> object:
    import loro

    doc = loro.LoroDoc()
    for snapshot in snapshots:
        doc.import_(snapshot)
    return doc.get_deep_value()


def pycrdt_reads(cache: Path, count: int) -> Work:
    """pycrdt, that is Yjs, reads an update."""
    import pycrdt

    made = pycrdt.Doc()
    kept = made.get("patterns", type=pycrdt.Map)
    with made.transaction():
        for value in _values(cache, count):
            kept[value["id"]] = value
    update = made.get_update()
    del made, kept
    return lambda: _pycrdt_values([update])


def pycrdt_joins(cache: Path, count: int) -> Work:  # noqa: ARG001 - one shape for all
    """pycrdt applies seven updates, each a whole document, that have one beginning."""
    import pycrdt

    base = patterns(count)
    made = pycrdt.Doc()
    kept = made.get("patterns", type=pycrdt.Map)
    with made.transaction():
        for line in base:
            kept[line.id] = _value(line)
    beginning = made.get_update()
    updates = []
    for replica in range(len(AGENTS)):
        made = pycrdt.Doc()
        made.apply_update(beginning)
        kept = made.get("patterns", type=pycrdt.Map)
        with made.transaction():
            for _, line in changes(base, replica):
                kept[line.id] = _value(line)
        updates.append(made.get_update())
    del made, kept, base
    return lambda: _pycrdt_values(updates)


def _pycrdt_values(updates: list[bytes]) -> object:
    import pycrdt

    doc = pycrdt.Doc()
    for update in updates:
        doc.apply_update(update)
    return doc.get("patterns", type=pycrdt.Map).to_py()


def automerge_reads(cache: Path, count: int) -> Work:
    """Automerge reads a saved document.

    The package (0.1.2, the newest on PyPI, of 2022) keeps a document as its saved bytes and loads them for each
    question, so ``obj`` is load and values. It gives those bytes to nobody: seven of them cannot be joined.
    """
    import automerge

    made = automerge.Doc({"patterns": {value["id"]: value for value in _values(cache, count)}})
    return made.obj
