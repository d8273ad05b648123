"""Queries over the joined records: one SELECT each. Each query refreshes the rows first."""

import heapq
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from sqlite3 import Connection
from typing import Any, Literal, TypeVar

from fleet.model import limits
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.model.pattern import Merges, Pattern, fold, is_blocked, merged
from fleet.store.database import checked, get_meta, sharing
from fleet.store.ingest import Ingest
from fleet.store.lines import DISCOVERIES
from fleet.store.rows import naming
from fleet.text.similarity import CANDIDATES_MAX, Words

T = TypeVar("T")

Order = Literal["sight", "evidence", "published"]
"""Ranking of lessons: as a page shows them; by evidence; and the same, of published ones alone."""

_LINE = "SELECT line, hash FROM pattern"
_BY_EVIDENCE = "ORDER BY published DESC, agents DESC, sessions DESC, seen DESC, last DESC, id"
_BEST = {
    "sight": "listed ORDER BY published DESC, seen DESC, last DESC, id",
    "evidence": f"listed AND NOT retired {_BY_EVIDENCE}",
    "published": f"listed AND NOT retired AND published = 1 {_BY_EVIDENCE}",  # so written it is a search of the index
}
_TRIGGERED = (
    "triggered AND listed AND NOT retired "
    "ORDER BY triggered DESC, published DESC, agents DESC, sessions DESC, seen DESC, last DESC, id"
)
# Of the rows that match, only the best are looked up: looking all up would cost more than finding and ranking them.
_FOUND = (
    "WITH hit (number, rank) AS (SELECT rowid, bm25(words, 2.0, 1.0) FROM words WHERE words MATCH ?) "
    "SELECT p.id, rank FROM hit JOIN pattern p ON p.rowid = hit.number "
    "WHERE rank <= ifnull((SELECT rank FROM hit ORDER BY rank LIMIT 1 OFFSET ?), 0) "
    "AND (p.listed OR (? AND p.text != '')) ORDER BY rank, p.last DESC, p.id LIMIT ?"
)
_LOOKED_UP = 4
"""Number of rows that are looked up for each wanted one, since some are not listed."""
_IN_SETS = (
    "id IN (SELECT id FROM pattern WHERE into_id != '' UNION ALL SELECT into_id FROM pattern WHERE into_id != '')"
)
_HOLDING_MAX = 2_000
"""Limit of rows that are read to find literal parts: these may match a replica or key in the line, too."""
SHORT_CHARS_MIN = len("p-000000")
_BATCH_ROWS = 500
_id = attrgetter("id")


def ranked(patterns: Iterable[Pattern], order: Order) -> list[Pattern]:
    """Return lessons, best first, in the order of ``Patterns.best``.

    Lessons that were published here come first. Behind them ``sight`` counts occurrences, as a page does; ``evidence``
    counts agents, then sessions, then occurrences, each as ``Pattern.weight`` has it. Of two equal lessons the newer
    comes first, and one with others' new words last; the id only makes the order the same everywhere.
    """

    def counts(lesson: Pattern) -> tuple[int, ...]:
        evidence = () if order == "sight" else (lesson.witnesses(), lesson.weight("sessions"))
        return (*evidence, lesson.weight("seen"))

    lessons = sorted(patterns, key=_id)
    return sorted(lessons, key=lambda each: (each.is_published, counts(each), each.recency), reverse=True)


class _Table:
    """Queries that both tables have."""

    _name: Literal["pattern", "discovery"]

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._policy = ingest.policy

    def beginning(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix, sorted."""
        if not prefix.isascii():  # no id does, and SQLite would choke on bytes of a shell that are no text
            return []
        query = f"SELECT id FROM {self._name} WHERE id >= ? AND id < ? ORDER BY id"
        return [row[0] for row in self._rows(query, prefix, f"{prefix}~")]

    def short(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the shortest unique beginning of each id that is here, of ``SHORT_CHARS_MIN`` characters at least."""
        return self._ingest.ask(lambda db: _shortened(db, self._name, ids))

    def changed(self, since: int) -> list[str]:
        """Return the ids of the rows that are new or changed since a generation."""
        # Sorted here: with ORDER BY id, SQLite goes through all ids instead of the few of these generations.
        return sorted(row[0] for row in self._rows(f"SELECT id FROM {self._name} WHERE generation > ?", since))

    @staticmethod
    def holds(text: str, parts: Iterable[str]) -> bool:
        """Return whether a text has all parts, ignoring case and width; a part without symbols must begin a word."""
        folded = _folded(text)
        expressions = ((part, re.escape(part)) for part in map(_folded, parts))
        return all(re.search(rf"\b{each}" if part.isalnum() else each, folded) for part, each in expressions)

    def _holding(self, parts: Sequence[str], where: str, *values: object) -> list[str]:
        """Return the ids of the rows whose line has all parts."""
        escaped = [_folded(json.dumps(part, ensure_ascii=False)[1:-1]) for part in parts]
        query = f"SELECT id FROM {self._name} WHERE holds(line) AND {where}"

        def read(db: Connection) -> list[str]:
            db.create_function("holds", 1, lambda raw: all(map(_folded(raw.decode()).__contains__, escaped)))
            return [row[0] for row in db.execute(query, values)]

        return self._ingest.ask(read)

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._ingest.ask(lambda db: db.execute(query, values).fetchall())


class Patterns(_Table):
    """The patterns of one database."""

    _name = "pattern"

    @property
    def generation(self) -> int:
        """Number that changes whenever a row does: a cached text is valid for the generation it was made at."""
        return self._ingest.ask(lambda db: int(get_meta(db, "generation")))

    def line(self, id_: str) -> Line | None:
        """Return the joined record of one id."""
        return next(iter(self._lines(f"{_LINE} WHERE id = ?", id_)), None)

    def changed_behind(self, generation: int, row: int, count: int) -> dict[str, tuple[int, int]]:
        """Return the first records that changed after a place, by id: each with its place, a generation and a row."""
        query = (
            "SELECT id, generation, rowid FROM pattern WHERE generation >= ? AND (generation, rowid) > (?, ?) "
            "ORDER BY generation, rowid LIMIT ?"
        )
        return {each: tuple(place) for each, *place in self._rows(query, generation, generation, row, count)}

    def shared(self, ids: Sequence[str]) -> Iterator[tuple[str, Line | None]]:
        """Yield the tree's part of some records, each with its id; None for none."""
        query = "SELECT line, hash, o.id, base FROM pattern p LEFT JOIN outbox o ON o.id = p.id WHERE p.id = ?"
        rows = self._ingest.ask(lambda db: [(id_, *db.execute(query, (id_,)).fetchone()) for id_ in ids])
        for id_, raw, hash_, pending_id, base in rows:
            data = base if pending_id else checked(raw, hash_)
            line = codec.decode(data, limits.RECORD_BYTES_MAX) if data else None
            yield id_, line if isinstance(line, Line) else None

    def get(self, id_: str) -> Pattern | None:
        """Return the folded record of one id."""
        line = self.line(id_)
        return fold(line, self._policy()) if line is not None else None

    def group(self, id_: str) -> list[str]:
        """Return the ids of all records merged with this one, itself included, sorted."""
        query, ids = "SELECT 1 FROM pattern WHERE id = ?", self.groups().get(id_, [id_])
        return self._ingest.ask(lambda db: [each for each in ids if db.execute(query, (each,)).fetchone()])

    def lesson(self, id_: str) -> Pattern | None:
        """Return the lesson that a record is, or is a part of."""
        return self.lessons_of([id_]).get(id_)

    def lessons_of(self, ids: Iterable[str]) -> dict[str, Pattern]:
        """Return the lesson that each of some records is, or is a part of, by the id of the record."""
        grouped = self.groups()
        sets = {id_: grouped.get(id_, [id_]) for id_ in ids}
        groups = {group[0]: group for group in sets.values()}  # each set is read and merged once
        records = {record.id: record for record in self.some([*chain.from_iterable(groups.values())])}
        members = {first: [records[id_] for id_ in group if id_ in records] for first, group in groups.items()}
        lessons = {first: merged(some) for first, some in members.items() if some}
        return {id_: lessons[group[0]] for id_, group in sets.items() if group[0] in lessons}

    def groups(self) -> dict[str, list[str]]:
        """Return the merged records: from the id of each to the ids of its set, sorted."""
        return {member: group for group in Merges(self.merge_targets()).groups() for member in group}

    def merge_targets(self) -> dict[str, str]:
        """Return which record is merged into which."""
        return dict(self._rows("SELECT id, into_id FROM pattern WHERE into_id != ''"))

    def same_text(self, text: str) -> str:
        """Return the id under which a lesson is logged: that of a pattern with this text now, else the text's hash."""
        text_hash = pattern_id(text)
        # The index is partial: without its condition in the query, all rows would be read.
        query = "SELECT id FROM pattern WHERE alike = ? AND alike != '' ORDER BY id LIMIT 1"
        return next((str(row[0]) for row in self._rows(query, text_hash)), text_hash)

    def best(self, order: Order, count: int) -> list[Pattern]:
        """Return the best lessons, merged records as one. Equal ones are ordered by time, newest first."""
        grouped = self.groups()
        query = f"SELECT id FROM pattern WHERE {_BEST[order]} LIMIT ?"
        ids = [each for (each,) in self._rows(query, count + len(grouped)) if each not in grouped]
        alone, united = self.some(ids[:count]), self._united(order)
        return ranked([*alone, *united], order)[:count] if united else alone

    def best_texts(self, count: int) -> dict[str, str]:
        """Return the texts of the lessons with most evidence, by id: the merged records first, each set as one."""
        grouped, united = self.groups(), ranked(self._united("evidence"), "evidence")
        query = f"SELECT id, text FROM pattern WHERE {_BEST['evidence']} LIMIT ?"
        alone = ((each, text) for each, text in self._rows(query, count + len(grouped)) if each not in grouped)
        return dict(islice(chain(((each.id, each.text) for each in united), alone), count))

    def promising(self, generation: int, writers: Sequence[str], count: int) -> list[str]:
        """Return the ids of those records changed after a generation that may be due for promotion.

        They are the ``count`` with most evidence, those with a column of the ``writers``, and all of merged sets.
        """
        changed = "SELECT id FROM pattern INDEXED BY pattern_generation WHERE generation > ?"
        query = (
            f"SELECT id FROM ({changed} AND {_BEST['evidence']} LIMIT ?) UNION {changed} AND ({_IN_SETS}"
            f"{' OR instr(line, ?)' * len(writers)})"
        )
        return [row[0] for row in self._rows(query, generation, count, generation, *map(naming, writers))]

    def retired(self, count: int) -> list[Pattern]:
        """Return the records that were retired last."""
        records = self._folded(f"{_LINE} WHERE NOT listed AND text != '' ORDER BY last DESC LIMIT ?", count)
        return [each for each in records if not each.is_present]

    def since(self, generation: int, count: int) -> list[Pattern]:
        """Return the newest of the lessons that changed after a generation, merged records as one."""
        query = "SELECT id FROM pattern WHERE generation > ? AND listed AND NOT retired ORDER BY last DESC, id LIMIT ?"
        lessons = self.lessons_of(each for (each,) in self._rows(query, generation, count))
        return list({each.id: each for each in lessons.values()}.values())

    def count_since(self, generation: int) -> int:
        """Return how many lessons changed after a generation, merged records as one."""
        grouped, new = self.groups(), "FROM pattern WHERE generation > ? AND listed AND NOT retired"
        [(records,)] = self._rows(f"SELECT count(*) {new}", generation)
        members = [each for (each,) in self._rows(f"SELECT id {new} AND {_IN_SETS}", generation)]
        return int(records) - len(members) + len({grouped.get(each, [each])[0] for each in members})

    def _united(self, order: Order) -> list[Pattern]:
        """Return the merged sets that an order lists, each as one lesson."""
        published = " AND published = 1" if order == "published" else ""  # of a published set, some record is
        rows = self._rows(f"SELECT id FROM pattern WHERE {_IN_SETS}{published}")
        lessons = {each.id: each for each in self.lessons_of([id_ for (id_,) in rows]).values()}
        fit = (each for each in lessons.values() if order != "published" or each.is_published)
        return [each for each in fit if each.is_listed and (order == "sight" or each.state != "retired")]

    def count(self) -> int:
        """Return how many lessons are listed, merged records as one."""
        grouped = self.groups()
        [(alone,)] = self._rows(f"SELECT count(*) FROM pattern WHERE listed AND NOT {_IN_SETS}")
        rows = self._rows(f"SELECT id FROM pattern WHERE listed AND {_IN_SETS}")
        listed = {grouped.get(each, [each])[0] for (each,) in rows}
        # Of a set without a listed record, one may be present, and another have the words.
        others = self.lessons_of([each for each, group in grouped.items() if group[0] not in listed])
        return int(alone) + len(listed) + len({each.id for each in others.values() if each.is_listed})

    def count_left_out(self) -> int:
        """Return how many records have no text here, though nobody purged it: the policy leaves its writers out."""
        [(number,)] = self._rows("SELECT count(*) FROM pattern WHERE text = '' AND NOT purges")
        return int(number)

    def lessons(self) -> Iterator[Pattern]:
        """Yield all lessons by id, merged records as one."""
        grouped = self.groups()
        alone = (each for each in self.records() if each.is_listed and each.id not in grouped)
        united = sorted(self._united("sight"), key=_id)
        yield from heapq.merge(alone, united, key=_id)

    def used(self) -> list[Pattern]:
        """Return the listed lessons that are published, or that were ever shown, relapsed or rated as harmful.

        Merged records are one; all merged sets are among them.
        """
        grouped = self.groups()
        alone = [each for each in self._folded(f"{_LINE} WHERE listed AND used") if each.id not in grouped]
        return [*alone, *self._united("sight")]

    def records(self) -> Iterator[Pattern]:
        """Yield every record as it is, by id."""
        last = ""
        while batch := self._folded(f"{_LINE} WHERE id > ? ORDER BY id LIMIT ?", last, _BATCH_ROWS):
            yield from batch
            last = batch[-1].id

    def some(self, ids: Sequence[str]) -> list[Pattern]:
        """Return the records of some ids that are here, in the order of the ids."""
        query, policy = f"{_LINE} WHERE id = ?", self._policy()
        lines = self._ingest.ask(lambda db: [line for each in ids for line in _decoded(db, query, (each,))])
        return [fold(line, policy) for line in lines]

    def triggered(self, count: int, *, is_own: bool) -> list[Pattern]:
        """Return the best lessons that have a trigger, of those logged here or of all others; explicit ones first."""
        return self._folded(f"{_LINE} WHERE triggered {'>' if is_own else '<='} 2 AND {_TRIGGERED} LIMIT ?", count)

    def larger_than(self, bytes_min: int) -> list[tuple[str, int]]:
        """Return the lessons whose record is longer than so many bytes, each with its length."""
        return self._rows("SELECT id, length(line) FROM pattern WHERE length(line) > ? ORDER BY id", bytes_min)

    def naming(self, name: str) -> list[Line]:
        """Return the records in which a replica, or any replica of an agent, has a column or is named."""
        return self._lines(f"{_LINE} WHERE instr(line, ?) ORDER BY id", naming(name))

    def candidates(self, text: str) -> dict[str, str]:
        """Return id and words of the listed records that share most of the rare words of a text, best first."""
        return self._ingest.ask(lambda db: _candidates(db, Words(text).terms()))

    def has_embeddings(self) -> bool:
        """Return whether any lesson has an embedding."""
        return bool(self._rows("SELECT 1 FROM vector LIMIT 1"))

    def matching(self, expression: str, count: int, *, retired: bool = False) -> list[tuple[str, float]]:
        """Return (id, bm25, smaller is better) of the lessons that an FTS5 expression finds."""
        return [(row[0], row[1]) for row in self._rows(_FOUND, expression, count * _LOOKED_UP, retired, count)]

    def holding(self, parts: Sequence[str], *, retired: bool = False) -> list[str]:
        """Return the ids of records that have all parts literally, best first."""
        where = "(listed OR (? AND text != '')) ORDER BY published DESC, seen DESC, last DESC, id LIMIT ?"
        records = self.some(self._holding(parts, where, retired, _HOLDING_MAX))
        return [each.id for each in records if self.holds("\n".join([each.text, *each.details()]), parts)]

    def _lines(self, query: str, *values: object) -> list[Line]:
        return self._ingest.ask(lambda db: list(_decoded(db, query, values)))

    def _folded(self, query: str, *values: object) -> list[Pattern]:
        policy = self._policy()
        return [fold(line, policy) for line in self._lines(query, *values)]


class Discoveries(_Table):
    """The discoveries of one database. Those to show are neither retracted nor stamped beyond the present cut."""

    _name = "discovery"

    def get(self, id_: str) -> Discovery | None:
        """Return one entry, which may be a retraction or a retracted discovery."""
        return next(iter(self._entries("WHERE id = ?", id_)), None)

    def newest(self, count: int) -> list[Discovery]:
        """Return the newest discoveries of the clan, oldest of them first, as ``tail`` would."""
        where = f"WHERE {_SHOWN} ORDER BY at DESC, id DESC LIMIT ?"
        return self._entries(where, self._policy().cut, max(count, 0))[::-1]

    def count(self) -> int:
        """Return how many discoveries there are to show."""
        return int(self._rows(f"SELECT count(*) FROM discovery WHERE {_SHOWN}", self._policy().cut)[0][0])

    def count_by(self, name: str, since: str) -> int:
        """Return how many entries a replica, or an agent, logged from some time on."""
        entries = self._entries("WHERE instr(line, ?)", naming(name, "by"))
        return sum(is_blocked(each.by, (name,)) and each.at >= since for each in entries)

    def all(self) -> list[Discovery]:
        """Return every entry that is here, retractions and retracted ones too, by time."""
        return self._entries("ORDER BY at, id")

    def shown(self) -> list[Discovery]:
        """Return the discoveries to show, by time."""
        return self._entries(f"WHERE {_SHOWN} ORDER BY at, id", self._policy().cut)

    def retracted(self) -> set[str]:
        """Return the ids of retracted entries."""
        return {row[0] for row in self._rows("SELECT DISTINCT retracts FROM discovery WHERE retracts != ''")}

    def matching(self, expression: str, count: int) -> list[tuple[str, float]]:
        """Return (id, bm25, smaller is better) of the shown discoveries that an FTS5 expression finds."""
        query = (
            "SELECT d.id, bm25(found, 2.0, 1.0) AS rank FROM found JOIN discovery d ON d.rowid = found.rowid "
            "WHERE found MATCH ? AND d.retracts = '' AND d.at <= ? "
            "AND d.id NOT IN (SELECT retracts FROM discovery WHERE retracts != '') ORDER BY rank, d.at DESC LIMIT ?"
        )
        return [(row[0], row[1]) for row in self._rows(query, expression, self._policy().cut, count)]

    def holding(self, parts: Sequence[str]) -> list[Discovery]:
        """Return the entries that have all parts literally, newest first."""
        where = f"{_SHOWN} ORDER BY at DESC LIMIT ?"
        entries = map(self.get, self._holding(parts, where, self._policy().cut, _HOLDING_MAX))
        texts = ((each, (each.problem, each.solution, each.context, each.type, *each.tags)) for each in entries if each)
        return [each for each, of_entry in texts if self.holds("\n".join(of_entry), parts)]

    def _entries(self, where: str, *values: object) -> list[Discovery]:
        query = f"SELECT line, hash FROM discovery {where}"
        return self._ingest.ask(
            lambda db: [DISCOVERIES.decode(checked(*row)) for row in db.execute(query, values).fetchall()]
        )


_SHOWN = "retracts = '' AND at <= ? AND id NOT IN (SELECT retracts FROM discovery WHERE retracts != '')"


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _shortened(connection: Connection, table: Literal["pattern", "discovery"], ids: Iterable[str]) -> dict[str, str]:
    query = f"SELECT (SELECT max(id) FROM {table} WHERE id < ?), (SELECT min(id) FROM {table} WHERE id > ?)"
    short = {}
    for id_ in dict.fromkeys(ids):
        neighbours = [neighbour for neighbour in connection.execute(query, (id_, id_)).fetchone() if neighbour]
        chars = SHORT_CHARS_MIN
        while any(neighbour.startswith(id_[:chars]) for neighbour in neighbours):
            chars += 1
        short[id_] = id_[:chars]
    return short


def _candidates(connection: Connection, terms: Iterable[str]) -> dict[str, str]:
    query = "SELECT count(*) FROM words WHERE words MATCH ?"
    holders = {term: connection.execute(query, (f"{{text}} : {term}",)).fetchone()[0] for term in terms}
    numbers = sharing(connection, holders, CANDIDATES_MAX, "listed")
    return dict(
        connection.execute("SELECT id, text FROM pattern WHERE rowid = ?", (each,)).fetchone() for each in numbers
    )


def _decoded(connection: Connection, query: str, values: Iterable[object]) -> Iterator[Line]:
    for raw, hash_ in connection.execute(query, tuple(values)).fetchall():
        line = codec.decode(checked(raw, hash_), limits.RECORD_BYTES_MAX)
        if isinstance(line, Line):
            yield line
