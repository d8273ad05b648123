"""Rows of the database: the writer that joins entries into them in one transaction, and their reader.

A row is the join of all lines of a lesson in files and in the fetched tree. The *outbox* names the rows of which the
tree lacks something, each with the tree's part of it (its *base*): a row minus its base goes out. A row that is not in
the outbox is its own base.
"""

import heapq
import json
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crdt import clock
from fleet.model import limits, line, names, pattern
from fleet.model.discovery import Discovery
from fleet.model.line import Carried, Line
from fleet.model.names import pattern_id
from fleet.model.pattern import Policy
from fleet.store.database import checked, checksum, get_meta, set_meta
from fleet.store.lines import DISCOVERIES, PATTERNS, Entry, Kind, LineReader, lesson_lines
from fleet.text import mentions
from fleet.text.similarity import Words

if TYPE_CHECKING:
    from fleet.model.withheld import Arrivals

_BATCH_ROWS = 500  # that are joined at once, or a few more; few enough to take little memory
_STEP_ROWS = 100  # of each of several files
_FILES_IN_STEP = 8  # editions are sorted: at one place they have much the same lines
_USES = frozenset({"shown", "relapsed", "hurt"})
_NEVER = "~"  # later than every stamp
_NO_WORDS = pattern_id("")  # of a text without words
_COLUMNS = (
    *("line", "hash", "text", "alike", "into_id", "listed", "published", "retired", "triggered", "agents", "sessions"),
    *("seen", "last", "newest", "ripens", "purges", "used", "held"),
)
_INSERT = f"INSERT INTO pattern (id, {', '.join(_COLUMNS)}, generation, rowid) VALUES ({', '.join('?' * 21)})"  # noqa: S608
_UPDATE = f"UPDATE pattern SET {', '.join(f'{each} = ?' for each in ('id', *_COLUMNS, 'generation'))} WHERE rowid = ?"  # noqa: S608
_INSERT_WORDS = "INSERT INTO words (text, more, rowid) VALUES (?, ?, ?)"
_UPDATE_WORDS = "UPDATE words SET text = ?, more = ? WHERE rowid = ? AND (text, more) IS NOT (?, ?)"
_PUT_DISCOVERY = "INSERT OR REPLACE INTO discovery VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_FOUND = "INSERT OR REPLACE INTO found (rowid, text, more) VALUES (?, ?, ?)"
_PENDING = "SELECT o.id, p.line, p.hash, o.base FROM outbox o JOIN pattern p ON p.id = o.id ORDER BY o.id"
_COMPARED = (
    f"SELECT id, {', '.join(_COLUMNS)} FROM pattern ORDER BY id",  # noqa: S608
    "SELECT id, line, hash, base, at, retracts FROM discovery ORDER BY id",
    "SELECT id, base FROM outbox ORDER BY id",
    "SELECT hash, kind, id, raw, in_tree FROM carried ORDER BY hash",
)
_PENDING_UNDONE = _PENDING.replace("ORDER", f"WHERE instr(p.line, '{line.UNDONE}') ORDER")
_PENDING_RETRACTED = (
    "SELECT r.line, d.line FROM discovery r JOIN discovery d ON d.id = r.retracts "
    "WHERE r.retracts != '' AND r.base IS NULL AND d.base IS NULL"
)


class FileTail(msgspec.Struct, frozen=True):
    """Unread part of a file: its path, its bytes block by block, and the number of the first line."""

    path: str
    data: Iterable[bytes]
    first: int = 1


class _StoredRow(msgspec.Struct, frozen=True, gc=False):
    """One row as it is: its number, the bytes of its line, and their checksum."""

    number: int
    data: bytes
    hash: bytes

    def line(self) -> Line:
        """Return its line; raise ``DatabaseError`` if the bytes do not have the stored checksum."""
        return _decoded(checked(self.data, self.hash))


class _Row(NamedTuple):
    """One row to write: its number, None for a new one, the values of its columns, and the words it is searched by."""

    number: int | None
    values: tuple[Any, ...]
    words: tuple[str, str]


class _Batch(msgspec.Struct, frozen=True):
    """Stored rows by id, the bases of those in the outbox, and the changes to them, which are written at once.

    The changes: new rows, new bases, and ids that leave the outbox, since the tree has all of them (``covered``).
    """

    rows: dict[str, _StoredRow]
    bases: dict[str, bytes | None]
    new_rows: list[_Row] = []
    new_bases: dict[str, bytes | None] = {}
    covered: list[str] = []

    def base(self, id_: str) -> Line | None:
        """Return the tree's part of a record."""
        if id_ not in self.bases:
            return self.rows[id_].line() if id_ in self.rows else None
        raw = self.bases[id_]
        return _decoded(raw) if raw else None


class Rows:
    """Writer of rows in one transaction. ``is_searched``: False without a full-text index, for a comparison.

    Attributes:
        arrivals: changes of others' columns, about which a person may be asked; None unless ``is_watched``.
        read: reader of the files here, with their bad lines.
    """

    def __init__(
        self, connection: Connection, policy: Policy, *, is_watched: bool = False, is_searched: bool = True
    ) -> None:
        self.connection = connection
        self.arrivals: Arrivals | None = None
        self.read = LineReader()
        self.changed = False
        self._newly_marked: list[str] = []
        self._policy = policy
        self._is_searched = is_searched
        self._writers: dict[str, str] = dict(connection.execute("SELECT name, newest FROM writer"))
        self._ahead: dict[str, str] = dict(connection.execute("SELECT name, ahead FROM writer WHERE ahead != ''"))
        self._generation = int(get_meta(connection, "generation")) + 1
        self._known = set(self._writers)
        self._own_files = {PATTERNS.edition, *map(PATTERNS.shard, policy.mine)}
        known = connection.execute("SELECT 1 FROM pattern UNION ALL SELECT 1 FROM discovery LIMIT 1").fetchone()
        self.is_watched = is_watched and known is not None  # a new database cannot tell news from old

    # --- joining -----------------------------------------------------------------------------------------------------

    def join(self, kind: Kind, files: Iterable[FileTail], *, in_tree: bool = False) -> None:
        """Join the lines of files, batch by batch, so that several lines of one lesson make its row only once.

        ``in_tree``: these are files of the fetched tree, so their lines leave the outbox, and their bad lines are
        reported by their writers.
        """
        read = LineReader() if in_tree else self.read
        refused_before = len(read.refused)
        inputs = ((file.path, read.raw_lines(file.data, file.path, file.first)) for file in files)
        at_once = 1 if in_tree else _FILES_IN_STEP  # one git process has one blob open
        for batch in _batches(inputs, at_once):
            if kind is PATTERNS:
                self._join_patterns(batch, read, in_tree=in_tree)
            else:
                self._join_discoveries(batch, read, in_tree=in_tree)
        if not in_tree:
            news = [(each.path, checksum(each.raw), each.number, each.reason) for each in read.refused[refused_before:]]
            self.connection.executemany("INSERT OR IGNORE INTO refused VALUES (?, ?, ?, ?)", news)

    def _join_patterns(self, lines: list[tuple[str, int, bytes]], read: LineReader, *, in_tree: bool) -> None:
        quick_ids = [_quick_id(raw) for _, _, raw in lines]
        batch = self._batch(quick_ids)
        pending: dict[str, dict[bytes, tuple[str, Line]]] = {}
        for quick, (path, number, raw) in zip(quick_ids, lines, strict=True):
            row = batch.rows.get(quick)
            if row is not None and row.data == raw and quick not in pending:
                if in_tree and quick in batch.bases:
                    del batch.bases[quick]
                    batch.covered.append(quick)
                continue
            if raw in pending.get(quick, ()):
                continue
            entry = read.entry(PATTERNS, raw, path, number)
            if isinstance(entry, Carried):
                self._carry(PATTERNS, entry, in_tree=in_tree)
            elif isinstance(entry, Line):
                pending.setdefault(entry.id, {})[raw] = path, entry
        looked_up = frozenset(quick_ids)
        others = self._batch(each for each in pending if each not in looked_up)
        batch.rows.update(others.rows)
        batch.bases.update(others.bases)
        for each, entries in pending.items():
            by_path: dict[str, list[Line]] = {}
            for path, part in entries.values():
                by_path.setdefault(path, []).append(part)
            parts = {path: line.join(*of_file) for path, of_file in by_path.items()}
            self._join_pattern(each, parts, batch, in_tree=in_tree)
        self._write(batch)

    def _join_pattern(self, record_id: str, parts: dict[str, Line], batch: _Batch, *, in_tree: bool) -> None:
        """Join the parts of one record, by the path of their file."""
        row = batch.rows.get(record_id)
        record_before = None if row is None else row.line()
        record = line.join(*filter(None, [record_before]), *parts.values())
        data = line.encode(record)
        is_new = row is None or data != row.data
        if is_new:
            if record_before is not None and record.marks("purge") != record_before.marks("purge"):
                self._newly_marked.append(record_id)
            if self.is_watched:
                self._note(record_before, parts, in_tree=in_tree)
            batch.new_rows.append(self._row(record, data, row))
        if in_tree and record_id in batch.bases:
            base_before = batch.base(record_id)
            base_data = line.encode(line.join(*filter(None, [base_before]), *parts.values()))
            if base_data == data:
                batch.covered.append(record_id)
            else:
                batch.new_bases[record_id] = base_data
        elif not in_tree and is_new and record_id not in batch.bases:
            batch.new_bases[record_id] = None if row is None else row.data

    def _note(self, row: Line | None, parts: dict[str, Line], *, in_tree: bool) -> None:
        """Note what the parts of each file change in a row."""
        for path, part in parts.items():
            joined = part if row is None else line.join(row, part)
            if in_tree or path not in self._own_files or not part.by_writer().keys() <= self._policy.mine:
                self._watched().note(path, row, part, joined, in_tree=in_tree)
            row = joined

    def _watched(self) -> "Arrivals":
        from fleet.model.withheld import Arrivals  # 3 ms that a correction of one's own need not spend

        self.arrivals = self.arrivals or Arrivals(self._policy.mine, self._policy.withheld, self._known)
        return self.arrivals

    def _join_discoveries(self, batch: list[tuple[str, int, bytes]], read: LineReader, *, in_tree: bool) -> None:
        for path, number, raw in batch:
            entry = read.entry(DISCOVERIES, raw, path, number)
            if isinstance(entry, Carried):
                self._carry(DISCOVERIES, entry, in_tree=in_tree)
            elif isinstance(entry, Discovery):
                self._join_discovery(path, entry, in_tree=in_tree)

    def _join_discovery(self, path: str, entry: Discovery, *, in_tree: bool) -> None:
        """Join one discovery with its stored line."""
        data = DISCOVERIES.encode(entry)
        row = self.connection.execute("SELECT line, base, rowid FROM discovery WHERE id = ?", (entry.id,)).fetchone()
        line_before, base, number = row or (None, None, None)
        data_joined = Discovery.join(line_before, data)
        if in_tree:
            base = Discovery.join(base, data)
        if row is not None and data_joined == line_before:
            if base != row[1]:  # only the tree's part changed: for queries, the discovery is not new
                self.connection.execute("UPDATE discovery SET base = ? WHERE id = ?", (base, entry.id))
            return
        self.changed = True
        joined = DISCOVERIES.decode(data_joined)
        if joined.by and joined.at != clock.ZERO and not joined.is_imported():  # an import's author is no writer here
            stamp = joined.at if joined.at <= self._policy.cut else ""
            self._writers[joined.by] = max(stamp, self._writers.get(joined.by, ""))
        if row is None and joined.retracts and self.is_watched:
            query = "SELECT line FROM discovery WHERE id = ?"
            for (raw,) in self.connection.execute(query, (joined.retracts,)).fetchall():
                author = DISCOVERIES.decode(raw).by
                self._watched().note_retraction(path, joined.id, joined.by, author, in_tree=in_tree)
        shown = _shown(joined, self._policy)
        values = (number, joined.id, data_joined, checksum(data_joined), base, *shown, self._generation)
        number = self.connection.execute(_PUT_DISCOVERY, values).lastrowid
        if self._is_searched:
            body = "\n".join([joined.solution, joined.context, joined.type, *joined.tags])
            self.connection.execute(_PUT_FOUND, (number, *self._words(joined.problem, body)))

    def _carry(self, kind: Kind, entry: Carried, *, in_tree: bool) -> None:
        """Store a line of a newer version, unless it was purged."""
        insert = "INSERT OR IGNORE INTO carried SELECT ?1, ?2, ?3, ?4, ?5 WHERE ?1 NOT IN (SELECT hash FROM purged)"
        row = (entry.hash, kind.name, entry.id, entry.raw, int(in_tree))
        self.changed |= self.connection.execute(insert, row).rowcount > 0
        if in_tree:
            self.connection.execute("UPDATE carried SET in_tree = 1 WHERE hash = ?", (entry.hash,))

    def compare(self, files: Iterable[tuple[Kind, str, Iterable[bytes]]], *, goes_on: bool) -> list[Entry]:
        """Join a whole tree; return the entries that the tree before had and this one lacks.

        Afterwards the outbox has exactly the rows of which the tree lacks something. ``goes_on``: the tree descends
        from the one before.
        """
        connection = self.connection
        outbox: dict[str, bytes | None] = dict(connection.execute("SELECT id, base FROM outbox"))
        bases = dict(connection.execute("SELECT id, base FROM discovery WHERE base IS NOT NULL"))
        carried = {*connection.execute("SELECT hash FROM carried WHERE in_tree")}
        connection.execute("INSERT OR REPLACE INTO outbox SELECT id, NULL FROM pattern")
        connection.execute("UPDATE discovery SET base = NULL WHERE base IS NOT NULL")
        connection.execute("UPDATE carried SET in_tree = 0 WHERE in_tree")
        for kind, group in groupby(files, key=itemgetter(0)):
            self.join(kind, (FileTail(path, data) for _, path, data in group), in_tree=True)
        if goes_on:  # a newer fleet, which understands these carried lines, removed them
            connection.executemany("DELETE FROM carried WHERE hash = ? AND NOT in_tree", carried)
        query = "SELECT id, raw, hash FROM carried WHERE NOT in_tree"
        lost = [_carried_of(*row) for row in connection.execute(query) if (row[2],) in carried]
        return [*self._lost_patterns(outbox), *self._lost_discoveries(bases), *lost]

    def _lost_patterns(self, outbox: dict[str, bytes | None]) -> Iterator[Line]:
        for id_, raw, hash_, base in self.connection.execute(_PENDING).fetchall():
            base_before = outbox.get(id_, checked(raw, hash_))  # a row outside the outbox was whole in the tree before
            lost = line.difference(_decoded(base_before), _decoded(base) if base else None) if base_before else None
            if lost is not None:
                yield lost

    def _lost_discoveries(self, bases: dict[str, bytes]) -> Iterator[Discovery]:
        bases_now = dict(self.connection.execute("SELECT id, base FROM discovery WHERE base IS NOT NULL"))
        for each, base in bases.items():
            if Discovery.join(bases_now.get(each), base) != bases_now.get(each):
                yield DISCOVERIES.decode(base)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _batch(self, ids: Iterable[str]) -> _Batch:
        wanted = [each for each in dict.fromkeys(ids) if each]
        batch = _Batch({}, {})
        for each, *stored in _select(self.connection, "id, rowid, line, hash FROM pattern WHERE id", wanted):
            batch.rows[each] = _StoredRow(*stored)
        batch.bases.update(_select(self.connection, "id, base FROM outbox WHERE id", wanted))
        return batch

    def _row(self, record: Line, data: bytes, row: _StoredRow | None) -> _Row:
        """Return the row of a record, to be written in place of another one, or as a new one."""
        self.changed = True
        folded = pattern.fold(record, self._policy)
        text, alike = folded.text, pattern_id(folded.text)
        newest, ripens = _newest_and_next(record, self._policy.cut)
        for writer, stamp in record.newest_stamps(self._policy.cut).items():
            self._writers[writer] = max(stamp, self._writers.get(writer, ""))
        for writer, stamp in record.newest_stamps().items() if ripens else ():
            self._ahead[writer] = max(stamp, self._ahead.get(writer, ""))
        purged = record.purged_carried()
        for hash_ in purged:
            self.connection.execute("INSERT OR IGNORE INTO purged VALUES (?)", (hash_,))
            self.connection.execute("DELETE FROM carried WHERE hash = ?", (hash_,))
        # It has a state, or was ever shown, met again or found to hurt.
        is_used = bool(folded.state) or not (_USES.isdisjoint(folded.totals) and _USES.isdisjoint(folded.parts))
        values = (
            *(record.id, data, checksum(data), text, "" if alike in (record.id, _NO_WORDS) else alike),
            *(folded.merged_into, int(folded.is_listed), int(folded.is_published), int(folded.state == "retired")),
            *(_triggered(folded, text), folded.witnesses(), folded.weight("sessions"), folded.weight("seen")),
            *(folded.recency, newest, ripens, int(bool(purged or record.marks("purge"))), int(is_used)),
            *(int(folded.words.has_future_edit), self._generation),
        )
        return _Row(None if row is None else row.number, values, self._words(text, "\n".join(folded.details())))

    def _words(self, text: str, body: str) -> tuple[str, str]:
        return (Words(text).indexed(), Words(body).indexed()) if self._is_searched else ("", "")

    def _write(self, batch: _Batch) -> None:
        """Write the gathered rows, words and outbox of a batch."""
        connection = self.connection
        last = connection.execute("SELECT ifnull(max(rowid), 0) FROM pattern").fetchone()[0]
        new = [(number, row) for number, row in enumerate((r for r in batch.new_rows if r.number is None), last + 1)]
        changed = [row for row in batch.new_rows if row.number is not None]
        connection.executemany(_INSERT, [(*row.values, number) for number, row in new])
        connection.executemany(_UPDATE, [(*row.values, row.number) for row in changed])
        if self._is_searched:
            connection.executemany(_INSERT_WORDS, [(*row.words, number) for number, row in new])
            changed_words = [(*row.words, row.number, *row.words) for row in changed]
            connection.executemany(_UPDATE_WORDS, changed_words)
        connection.executemany("DELETE FROM outbox WHERE id = ?", [(each,) for each in batch.covered])
        connection.executemany("INSERT OR REPLACE INTO outbox VALUES (?, ?)", batch.new_bases.items())

    def base(self, id_: str) -> Line | None:
        """Return the tree's part of a record; None for none."""
        return self._batch([id_]).base(id_)

    def set_back(self, id_: str) -> None:
        """Set a row back to the tree's part of the record, until files are read again."""
        self.changed = True
        batch = self._batch([id_])
        base, row = batch.base(id_), batch.rows[id_]
        if base is not None:
            batch.new_rows.append(self._row(base, line.encode(base), row))
        else:
            self.connection.execute("DELETE FROM words WHERE rowid = ?", (row.number,))
            self.connection.execute("DELETE FROM pattern WHERE rowid = ?", (row.number,))
        batch.covered.append(id_)
        self._write(batch)

    def refold(self, policy: Policy | None = None) -> None:
        """Fold those records again whose fold changes with the policy, a new one if given, or has with the time."""
        self._policy = policy or self._policy
        ids = dict.fromkeys(_due(self.connection, self._policy.cut))
        if self._policy.mark != get_meta(self.connection, "policy"):
            versions_before = json.loads(get_meta(self.connection, "policy_told") or "{}")
            writers, withheld_ids = self._policy.moved(versions_before)
            for name in writers:
                query = "SELECT id FROM pattern WHERE instr(line, ?)"
                ids |= dict.fromkeys(row[0] for row in self.connection.execute(query, (naming(name),)))
                self._refold_discoveries("instr(line, ?)", naming(name, "by"))
            for each in withheld_ids:
                self._refold_discoveries("id = ?", each)
            ids |= dict.fromkeys(withheld_ids)
            set_meta(self.connection, "policy", self._policy.mark)
            set_meta(self.connection, "policy_told", json.dumps(self._policy.versions))
        ids_to_fold = list(ids)
        for start in range(0, len(ids_to_fold), _BATCH_ROWS):
            batch = self._batch(ids_to_fold[start : start + _BATCH_ROWS])
            batch.new_rows.extend(self._row(row.line(), row.data, row) for row in batch.rows.values())
            self._write(batch)

    def _refold_discoveries(self, where: str, value: object) -> None:
        """Update whether the discoveries that match a condition are shown."""
        query = f"SELECT id, line, hash, at, retracts FROM discovery WHERE {where}"  # noqa: S608
        for each, raw, hash_, *shown in self.connection.execute(query, (value,)).fetchall():
            if (shown_now := _shown(DISCOVERIES.decode(checked(raw, hash_)), self._policy)) != tuple(shown):
                self.changed = True
                update = "UPDATE discovery SET at = ?, retracts = ?, generation = ? WHERE id = ?"
                self.connection.execute(update, (*shown_now, self._generation, each))

    def forget_refused(self, path: str, behind: int = 0) -> None:
        """Forget the refused lines of a file after the line with the number ``behind``."""
        self.connection.execute("DELETE FROM refused WHERE path = ? AND number > ?", (path, behind))

    def end(self) -> None:
        """Increase the generation if a row changed. After a purge, rebuild the full-text index: it keeps old words."""
        self.connection.executemany("DELETE FROM vector WHERE id = ?", [(each,) for each in self._newly_marked])
        if self._newly_marked and self._is_searched:
            self.connection.execute("INSERT INTO words (words) VALUES ('rebuild')")
        if self.changed:
            set_meta(self.connection, "generation", str(self._generation))
            rows = [(name, newest, self._ahead.get(name, "")) for name, newest in self._writers.items()]
            self.connection.executemany("INSERT OR REPLACE INTO writer VALUES (?, ?, ?)", rows)

    # --- content of files here ----------------------------------------------------------------------------------------

    def wanted(self, kind: Kind, raws: Iterable[bytes], aside: Callable[[], Container[bytes]]) -> set[bytes]:
        """Return the lines that must stay in files here, since neither the tree nor marks cover them completely.

        Unreadable ones stay unless they are in quarantine (``aside()``), which may have readable ones of other paths.
        """
        by_id: dict[str, list[bytes]] = {}
        for raw in raws:
            by_id.setdefault(_quick_id(raw), []).append(raw)
        wanted = set[bytes]()
        for group in by_id.values():
            bases: dict[str, Line | None] = {}  # of one id; of several only where lines begin in an unusual way
            wanted.update(raw for raw in group if self._is_wanted(kind, raw, aside, bases))
        return wanted

    def _is_wanted(
        self, kind: Kind, raw: bytes, aside: Callable[[], Container[bytes]], bases: dict[str, Line | None]
    ) -> bool:
        entry = LineReader().entry(kind, raw, "", 0)
        if entry is None:
            return raw not in aside()
        if isinstance(entry, Carried):
            query = "SELECT 1 FROM carried WHERE hash = ? AND NOT in_tree"
            return self.connection.execute(query, (entry.hash,)).fetchone() is not None
        if isinstance(entry, Discovery):
            row = self.connection.execute("SELECT base FROM discovery WHERE id = ?", (entry.id,)).fetchone()
            return row is None or Discovery.join(row[0], DISCOVERIES.encode(entry)) != row[0]
        if entry.id not in bases:
            bases[entry.id] = self.base(entry.id)
        base = bases[entry.id]
        return base is None or not line.covers(base, entry)

    def has_marks(self) -> bool:
        """Return whether anything was purged."""
        query = "SELECT 1 FROM pattern WHERE purges UNION ALL SELECT 1 FROM purged LIMIT 1"
        return self.connection.execute(query).fetchone() is not None

    def stripped(self, kind: Kind, data: bytes) -> bytes:
        """Return a file's bytes without what purge marks cover; the same bytes where they cover nothing in it."""
        if not data or not self.has_marks():
            return data
        marked = {row[0] for row in self.connection.execute("SELECT id FROM pattern WHERE purges")}
        hashes = {row[0] for row in self.connection.execute("SELECT hash FROM purged")}
        raws = data.split(b"\n")
        kept = [self._stripped_line(kind, raw, marked, hashes) for raw in raws]
        return data if kept == raws else b"\n".join(raw for raw in kept if raw is not None)

    def _stripped_line(self, kind: Kind, raw: bytes, marked: set[str], hashes: set[str]) -> bytes | None:
        quick = _quick_id(raw)
        if not raw or (kind is PATTERNS and quick and quick not in marked and not hashes):
            return raw
        entry = LineReader().entry(kind, raw, "", 0)
        if isinstance(entry, Carried):
            return None if entry.hash in hashes else raw
        if not isinstance(entry, Line) or entry.id not in marked:
            return raw
        return line.encode(entry.without_purged(self._batch([entry.id]).rows[entry.id].line()))

    def missing(self, kind: Kind, contents: Iterable[Iterable[bytes]]) -> bytes:
        """Return lines with the parts of rows that neither the tree has nor these files, given as blocks of each."""
        raws = self._missing_patterns(contents) if kind is PATTERNS else self._missing_discoveries(contents)
        return b"".join(raw + b"\n" for raw in raws)

    def _missing_discoveries(self, contents: Iterable[Iterable[bytes]]) -> list[bytes]:
        query = "SELECT line, hash FROM discovery WHERE base IS NULL ORDER BY at, id"
        pending = [checked(*row) for row in self.connection.execute(query)]
        present = {raw for data in contents for _, raw in LineReader().raw_lines(data, "")} if pending else set[bytes]()
        return [raw for raw in pending if raw not in present]

    def _missing_patterns(self, contents: Iterable[Iterable[bytes]]) -> list[bytes]:
        pending = self.connection.execute(_PENDING).fetchall()
        pending_ids = {row[0] for row in pending}
        lines = (each for data in contents for each in lesson_lines(data))
        present = line.joined(each for each in lines if each.id in pending_ids)
        raws: list[bytes] = []
        for each, raw, hash_, base in pending:
            covered = present.get(each)
            if base:
                covered = _decoded(base) if covered is None else line.join(_decoded(base), covered)
            missing = line.difference(_decoded(checked(raw, hash_)), covered)
            raws += line.split(missing) if missing is not None else []
        return raws


# --- reading ---------------------------------------------------------------------------------------------------------


class Contents:
    """Reading of a database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_outdated(self, policy: Policy) -> bool:
        """Return whether some rows must be folded again under a policy, as of now."""
        return get_meta(self._connection, "policy") != policy.mark or bool(_due(self._connection, policy.cut))

    def carried(self, id_: str = "") -> list[Carried]:
        """Return the lines of a newer version that are kept and passed on, under an id or all of them."""
        query = "SELECT id, raw, hash FROM carried WHERE ? IN (id, '') ORDER BY id, raw"
        return [_carried_of(*row) for row in self._connection.execute(query, (id_,))]

    def outgoing(self) -> list[Entry]:
        """Return the entries that the rows have and the tree lacks: deltas of patterns, discoveries, carried lines."""
        entries: list[Entry] = []
        for _, raw, hash_, base in self._connection.execute(_PENDING):
            delta = line.difference(_decoded(checked(raw, hash_)), _decoded(base) if base else None)
            if delta is not None:
                entries.append(delta)
        query = "SELECT line, hash FROM discovery WHERE base IS NULL OR base != line ORDER BY at, id"
        entries += [DISCOVERIES.decode(checked(*row)) for row in self._connection.execute(query)]
        query = "SELECT id, raw, hash FROM carried WHERE NOT in_tree ORDER BY id, hash"
        return entries + [_carried_of(*row) for row in self._connection.execute(query)]

    def undone_unsent(self) -> set[str]:
        """Return the ids of what was logged and undone before the tree had any of it; it stays here."""
        ids = set()
        for each, raw, hash_, base in self._connection.execute(_PENDING_UNDONE):
            sent = _decoded(base) if base else None
            news = line.difference(_decoded(checked(raw, hash_)), sent)
            if news is not None and pattern.is_undone_before_sent(news, sent):
                ids.add(each)
        for row in self._connection.execute(_PENDING_RETRACTED):
            ids.update(DISCOVERIES.decode(each).id for each in row)
        return ids

    def edition(self, kind: Kind, *, in_tree: bool = True) -> bytes:
        """Return the canonical bytes of an edition: the join of the tree, or unless ``in_tree`` of all, sorted."""
        query = "SELECT id, raw, hash FROM carried WHERE kind = ? AND in_tree >= ? ORDER BY id, raw"
        carried = [_carried_of(*row) for row in self._connection.execute(query, (kind.name, in_tree))]
        if kind is PATTERNS:
            keyed = [*self._tree_patterns(in_tree=in_tree), *(((each.id, "~"), each.raw) for each in carried)]
        else:
            keyed = [*self._tree_discoveries(in_tree=in_tree), *((("~", each.id), each.raw) for each in carried)]
        if carried or kind is DISCOVERIES:
            keyed.sort(key=lambda item: item[0])
        return b"".join(raw + b"\n" for _, raw in keyed)

    def _tree_patterns(self, *, in_tree: bool) -> Iterator[tuple[tuple[str, str], bytes]]:
        query = (
            "SELECT p.id, p.line, p.hash, o.id, o.base FROM pattern p LEFT JOIN outbox o ON o.id = p.id ORDER BY p.id"
        )
        for each, raw, hash_, pending_id, base in self._connection.execute(query):
            data = checked(raw, hash_) if pending_id is None or not in_tree else base
            if data:
                pieces = [data] if len(data) <= limits.LINE_BYTES_MAX else line.split(_decoded(data))
                yield from (((each, ""), piece) for piece in pieces)

    def _tree_discoveries(self, *, in_tree: bool) -> Iterator[tuple[tuple[str, str], bytes]]:
        for raw, hash_, base in self._connection.execute("SELECT line, hash, base FROM discovery"):
            if data := base if in_tree else checked(raw, hash_):
                entry = DISCOVERIES.decode(data)
                yield (entry.at, entry.id), data

    def names(self, since: int = 0) -> list[str]:
        """Return the ids of records and discoveries that changed after a generation, and ``#hash`` of carried lines."""
        query = (
            "SELECT id FROM pattern WHERE generation > ? UNION ALL SELECT id FROM discovery WHERE generation > ? "
            "UNION ALL SELECT '#' || hash FROM carried"
        )
        return [row[0] for row in self._connection.execute(query, (since, since))]

    def entries(self, names: Sequence[str]) -> dict[str, Entry]:
        """Return the entries with some names, which are formed as ``names`` does; unknown ones are left out."""
        entries: dict[str, Entry] = {}
        for id_, raw, hash_ in _select(self._connection, "id, line, hash FROM pattern WHERE id", names):
            entries[id_] = _decoded(checked(raw, hash_))
        for id_, raw, hash_ in _select(self._connection, "id, line, hash FROM discovery WHERE id", names):
            entries[id_] = DISCOVERIES.decode(checked(raw, hash_))
        for id_, raw, hash_ in _select(self._connection, "id, raw, hash FROM carried WHERE '#' || hash", names):
            entries[f"#{hash_}"] = _carried_of(id_, raw, hash_)
        return entries

    def differences(self, other: "Contents") -> Iterator[str]:
        """Yield the ids, and hashes of carried lines, whose rows differ in another database, or are missing there.

        Row numbers, generations and fingerprints may differ.
        """
        for query in _COMPARED:
            both = (contents._connection.execute(query) for contents in (self, other))
            for key, rows in groupby(heapq.merge(*both, key=itemgetter(0)), key=itemgetter(0)):
                pair = list(rows)
                if len(pair) != 2 or pair[0] != pair[1]:
                    yield key


def _carried_of(id_: str, raw: object, hash_: str) -> Carried:
    """Return a row's line of a newer version; raise ``DatabaseError`` if its checksum is wrong."""
    return Carried(id_, checked(raw, bytes.fromhex(hash_)))


def _select(connection: Connection, query: str, wanted: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose last named column is one of the ``wanted`` values, queried in batches."""
    for start in range(0, len(wanted), _BATCH_ROWS):
        some = wanted[start : start + _BATCH_ROWS]
        yield from connection.execute(f"SELECT {query} IN ({','.join('?' * len(some))})", some).fetchall()


def _batches(
    files: Iterator[tuple[str, Iterator[tuple[int, bytes]]]], at_once: int
) -> Iterator[list[tuple[str, int, bytes]]]:
    """Yield batches of lines as (path, number, bytes), some from each of ``at_once`` files in turns."""
    batch: list[tuple[str, int, bytes]] = []
    opened = list(islice(files, at_once))
    while opened:
        unfinished = []
        for path, rows in opened:
            some = list(islice(rows, _STEP_ROWS))
            batch += [(path, *row) for row in some]
            if len(some) == _STEP_ROWS:
                unfinished.append((path, rows))
        opened = unfinished + list(islice(files, at_once - len(unfinished)))
        if len(batch) >= _BATCH_ROWS or not opened:
            yield batch
            batch = []


def _quick_id(raw: bytes) -> str:
    """Return the id that a canonical line begins with, "" for any other.

    With it, the row to compare is found without parsing, and lines are known that no purge mark can cover.
    """
    if raw.startswith(b'{"id":"p-') and raw[25:26] == b'"':
        return raw[7:25].decode("latin-1")
    return ""


def _decoded(raw: bytes) -> Line:
    record = line.decode(raw, limits.RECORD_BYTES_MAX)
    assert isinstance(record, Line)  # noqa: S101 - rows are written by us
    return record


def _triggered(folded: pattern.Pattern, text: str) -> int:
    """Return 2 for a lesson with a trigger, 1 if its words name a step, 2 more if it was logged here; else 0."""
    given = folded.trigger
    named = mentions.trigger(given, text, folded.correct, folded.value("wrong"))
    return (2 if given else 1) + 2 * folded.is_own if named else 0


def naming(name: str, key: str = "") -> bytes:
    """Return bytes that are in the line of every record with a column of a replica, or of any of an agent's."""
    before = f'"{key}":"' if key else '"'
    return f'{before}{name}"'.encode() if names.is_replica(name) else f"{before}{name}.".encode()


def _shown(entry: Discovery, policy: Policy) -> tuple[str, str]:
    """Return since when a discovery is shown, and the id it retracts; (never, "") if the policy leaves it out."""
    since = [stamp for name, stamp in policy.blocked.items() if pattern.is_blocked(entry.by, (name,))]
    is_out = policy.blocks(entry.by) and entry.at >= min(since)
    return (_NEVER, "") if is_out or policy.withheld.get(entry.id) else (entry.at, entry.retracts)


def _newest_and_next(record: Line, cut: str) -> tuple[str, str]:
    """Return the largest stamp within the cut, and the smallest beyond it."""
    stamps = sorted(record.stamps())
    late = bisect_right(stamps, cut)
    return stamps[late - 1] if late else "", "".join(stamps[late : late + 1])


def _due(connection: Connection, cut: str) -> list[str]:
    """Return the ids of records whose fold changed with the time: a part became due, or the clock was set back."""
    ripe, newer = "SELECT id FROM pattern WHERE ripens != '' AND ripens <= ?", "SELECT id FROM pattern WHERE newest > ?"
    return [id_ for query in (ripe, newer) for (id_,) in connection.execute(query, [cut])]
