"""From the log to the counters, so that nothing is counted twice and nothing is lost (DESIGN, section 4).

Every entry of ``corrections.md`` has one record: who counted it, for which pattern, and when. What a replica's slots
say is worked out anew from the records that are newer than the slots. Deleting an entry lowers no count, a lost state
or a crash recounts none, and a retired lesson does not come back by itself.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from crdt import clock
from fleet.keep import limits, names, screening
from fleet.keep.digests import blake2b
from fleet.keep.line import Line
from fleet.keep.normal import normalise, pattern_id
from fleet.keep.notebook import Notebook, text
from fleet.keep.shown import RELAPSED
from fleet.learn import echoes, times, writing
from fleet.learn.entries import Entry, Log, Record


class Bound(NamedTuple):
    """An entry, the id that its content gives it, and the record that already counts it, if any."""

    entry: Entry
    id: str
    record: Record | None


def bind(log: Log) -> list[Bound]:
    """Find each entry's record.

    First by the id that the content gives, wherever the record stands; then the one right behind the entry, whose
    text may have been mended since; then one at the end of the file that remembers the same heading. Where two agents'
    logs were put into one file, an entry that both have bears one id in both: there, each is counted by the record
    behind it.
    """
    by_id = {record.id: record for record in log.records}
    others = _others(log)
    mine = iter(writing.entry_ids(entry.content for at, entry in enumerate(log.entries) if at not in others))
    ids = [others[at].id if at in others else next(mine) for at in range(len(log.entries))]
    found = [others.get(at) or by_id.get(each) for at, each in enumerate(ids)]
    claimed = {record.id for record in found if record is not None}
    for at, entry in enumerate(log.entries):
        behind = entry.record
        if found[at] is None and behind is not None and behind.id not in claimed:
            found[at] = behind
            claimed.add(behind.id)
    if None in found:  # as a rule none is
        by_heading = {dict(r.extra).get("head"): r for r in log.records if r.id not in claimed}
        for at, entry in enumerate(log.entries):
            if found[at] is None and (record := by_heading.pop(heading_mark(entry), None)) is not None:
                found[at] = record
    return [Bound(entry, ids[at], found[at]) for at, entry in enumerate(log.entries)]


def _others(log: Log) -> dict[int, Record]:
    """Return, by place, the record of each entry that stands in the file before, counted there by another agent.

    One agent's second record of an id is no such thing: a replica that gave up its id records its entries anew.
    """
    found: dict[int, Record] = {}
    owners: dict[tuple[str, str], set[str]] = {}
    for at, entry in enumerate(log.entries):
        if entry.record is not None:
            agents = owners.setdefault((entry.content, entry.record.id), set())
            agent = names.agent_of(entry.record.replica)
            if agents and agent not in agents:
                found[at] = entry.record
            agents.add(agent)
    return found


entry_id = writing.entry_id


def heading_mark(entry: Entry) -> str:
    """Return what a record remembers of its entry's heading, should the entry's text be mended later."""
    return blake2b(f"{entry.when}\0{entry.title}".encode(), digest_size=4).hexdigest()


def _clean(text: str) -> str:
    """Return a field as it may enter a line; "" when it is too long, since nothing is cut."""
    clean = screening.one_line(screening.screen(text).text)
    is_short = len(clean) * 4 <= limits.TEXT_BYTES_MAX or len(clean.encode()) <= limits.TEXT_BYTES_MAX
    return clean if is_short else ""


def lesson_text(entry: Entry, clean_of: Callable[[str], str] = _clean) -> str:
    """Return the entry's pattern as it may enter a line: screened, one line; "" when it is not usable.

    Nor is one that was copied from what fleet shows: an echo is no new observation.
    """
    clean = "" if echoes.injected_id(entry.pattern) else clean_of(entry.pattern)
    return clean if normalise(clean) else ""


def find_pattern(notebook: Notebook, lesson: str, edited: Collection[str] | None = None) -> str:
    """Return the id a lesson is logged under: of the pattern that now reads alike, else the hash of the text.

    Who knows already which records were ``edited`` since they were first logged says so.
    """
    if edited is not None and not edited:
        return pattern_id(lesson)
    normalised = normalise(lesson)
    if edited is None:
        alike = notebook.reading_alike(normalised)
    else:
        alike = (line for each in edited if normalise(text(line := notebook.patterns[each])) == normalised)
    found = next(alike, None)
    return found.id if found is not None else pattern_id(lesson)


def lines_owed(log: Log, notebook: Notebook, fields: Iterable[str]) -> Iterator[Line]:
    """Yield what the notebook lacks of the log: one line for each pattern and replica that has newer records.

    Args:
        log: the whole log, every entry recorded.
        notebook: everything read so far, the last fetched tree included, held parts too.
        fields: names of entry fields that travel besides the text and the right way.
    """
    slots: dict[tuple[str, str], dict[str, Record]] = defaultdict(dict)
    for record in latest(log.records):
        slots[record.pattern, record.replica][record.id] = record
    said = {bound.record.id: bound.entry for bound in bind(log) if bound.record is not None}
    for (pattern, replica), records in slots.items():
        newest = _newest_counted(notebook, pattern, replica)
        fresh = [record for record in records.values() if record.at > newest]
        if fresh:
            line = _raised(notebook, pattern, replica, fresh, records.values())
            entries = [said[r.id] for r in fresh if r.id in said]
            line.at = min(
                [line.at, *(when for entry in entries if (when := _when(entry, line.at)) < line.at[:16] and when)]
            )
            line.set = _fields(notebook, pattern, entries, fields)
            yield line


def line_owed(
    entry: Entry | None,
    record: Record,
    before: Sequence[Record],
    notebook: Notebook,
    fields: Iterable[str],
    *,
    is_clean: bool = False,
) -> Line | None:
    """Return the line that ``lines_owed`` yields of a log to which one record was added, for who knows all before it.

    Args:
        entry: what the record counts; None where its text was logged before, and has said already what it says.
        record: the new one.
        before: the other records of its pattern, in file order, all of which the notebook counts.
        notebook: as for ``lines_owed``.
        fields: as for ``lines_owed``.
        is_clean: each field of the entry was screened, is one line, and short.
    """
    if record.at <= _newest_counted(notebook, record.pattern, record.replica):
        return None
    known = [each for each in latest((*before, record)) if each.replica == record.replica] if before else [record]
    line = _raised(notebook, record.pattern, record.replica, [record], known)
    if entry is not None:
        when = _when(entry, line.at)
        if when and when < line.at[:16]:
            line.at = when
        line.set = _fields(notebook, record.pattern, [entry], fields, screening.one_line if is_clean else _clean)
    return line


def is_counted(records: Iterable[Record], notebook: Notebook) -> bool:
    """Tell whether the slots of the notebook count all of these records."""
    return all(record.at <= _newest_counted(notebook, record.pattern, record.replica) for record in records)


def rights(log: Log) -> dict[str, str]:
    """Return the right way by pattern, as it was last told in this log."""
    counted = (bound for bound in bind(log) if bound.record is not None)
    return {bound.record.pattern: way for bound in counted if bound.record and (way := _clean(bound.entry.right))}


def latest(records: Iterable[Record]) -> list[Record]:
    """Return one record an entry: the newest, since a replica that gave up its id records its entries anew."""
    newest: dict[str, Record] = {}
    for record in records:
        known = newest.get(record.id)
        if known is None or (record.at, record.replica) > (known.at, known.replica):
            newest[record.id] = record
    return list(newest.values())


def _newest_counted(notebook: Notebook, pattern: str, replica: str) -> str:
    line = notebook.get(pattern)
    counted = [line.add.get(replica, ""), line.rem.get(replica, "")] if line is not None else []
    counted += [part.stamp for part in notebook.held if (part.id, part.key) == (pattern, replica)]
    return max(counted, default="")


def _raised(
    notebook: Notebook, pattern: str, replica: str, fresh: list[Record], all_records: Collection[Record]
) -> Line:
    line = notebook.get(pattern)
    counters = line.n if line is not None else {}
    sessions = {record.session for record in fresh if record.session}
    if sessions and len(all_records) > len(fresh):
        fresh_ids = {record.id for record in fresh}
        sessions -= {record.session for record in all_records if record.id not in fresh_ids}
    totals = {"seen": {replica: counters.get("seen", {}).get(replica, 0) + len(fresh)}}
    if sessions:
        totals["sessions"] = {replica: counters.get("sessions", {}).get(replica, 0) + len(sessions)}
    if relapses := len([record for record in fresh if (RELAPSED, "1") in record.extra]):
        totals[RELAPSED] = {replica: counters.get(RELAPSED, {}).get(replica, 0) + relapses}
    stamps = sorted(record.at for record in fresh)
    return Line(id=pattern, at=stamps[0], by=replica, add={replica: stamps[-1]}, n=totals)


def _when(entry: Entry, at: str) -> str:
    """Return when an entry says that it happened: one written by hand may tell of an earlier day than its record."""
    if entry.when.rstrip("Z").replace(" ", "T") == at[:16]:
        return at  # as most do: the minute of the record itself
    ms = times.to_ms(entry.when)
    return clock.pack(ms) if ms is not None else ""


def _fields(
    notebook: Notebook,
    pattern: str,
    entries: list[Entry],
    fields: Iterable[str],
    clean_of: Callable[[str], str] = _clean,
) -> dict[str, object]:
    """Return the fields that the pattern lacks, from the first of these entries that has them."""
    line = notebook.get(pattern)
    known = line.set if line is not None else {}
    wanted: dict[str, object] = {}
    travelling = ("correct", "category", *[field for field in fields if field in SHAREABLE])
    for entry in entries:
        if lesson := lesson_text(entry, clean_of):
            wanted.setdefault("text", lesson)
        for field in travelling:
            if clean := clean_of(getattr(entry, "right" if field == "correct" else field)):
                wanted.setdefault(field, clean)
        if entry.tags and (
            tags := sorted({clean for tag in entry.tags if (clean := clean_of(tag))})[: limits.TAGS_MAX]
        ):
            wanted.setdefault("tags", tags)
    return {field: value for field, value in wanted.items() if field not in known}


SHAREABLE = ("wrong", "source")
"""Fields of an entry that stay here unless ``[share] fields`` names them."""
