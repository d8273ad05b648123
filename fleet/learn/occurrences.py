"""What a log counted, one occurrence at a time: for whoever asks when mistakes were made, and which were relapses."""

from collections.abc import Iterator
from typing import NamedTuple

from crdt import clock
from fleet.learn import times
from fleet.learn.entries import Log
from fleet.learn.reconcile import bind, latest

MINUTE_MS = 60_000


class Occurrence(NamedTuple):
    """One counted entry: of which pattern, when the mistake was made, and whether the lesson had been shown before."""

    pattern: str
    at_ms: int
    is_relapse: bool


def occurrences(log: Log) -> Iterator[Occurrence]:
    """Yield what the records of a log say, in file order; a deleted entry's record counts on.

    A mistake was made when its record was written, unless the entry tells of an earlier time: a heading is exact to the
    minute only.
    """
    told = {bound.record.id: bound.entry.when for bound in bind(log) if bound.record is not None}
    for record in latest(log.records):
        at_ms = clock.unpack(record.at)[0]
        heading_ms = times.to_ms(told.get(record.id, ""))
        if heading_ms is not None and heading_ms < at_ms - MINUTE_MS:
            at_ms = heading_ms
        yield Occurrence(record.pattern, at_ms, dict(record.extra).get("relapsed") == "1")
