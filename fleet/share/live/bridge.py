"""Bridge between the clan's files on this machine and live documents.

One rule makes it safe: *join what you read, and put what the document lacks under your own key*. A key has one writer,
so Yjs never has to choose between values. Lines that arrive are first written to the shard of their writer, as if git
had brought them; once git does, the tree covers them. Rows that others damage or delete are put again.

The bridge has no socket: updates come in and go out as bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import NamedTuple

from crdt.doc import CLIENT_ID_BITS, NOT_TEXT, BadUpdateError, Change, Document, key_of, parts_of
from fleet.model import limits, names
from fleet.model.discovery import Discovery
from fleet.model.line import Line, Refused
from fleet.model.pattern import is_undone_before_sent
from fleet.share import outgoing
from fleet.share.live.wire import CARRIED, KEY_CHARS_MAX, UPDATE_BYTES_MAX, is_key_of, is_text
from fleet.store.lines import PATTERNS, Entry, Kind, LineReader, joined_entries, missing_of, name_of, raws_of
from fleet.store.workspace import Workspace

ROOM_PATTERNS = 10_000
"""Limit of patterns in one room; a larger clan has sixteen more rooms, by the first digit of the id."""
LOCK_WAIT_S = 0.5
"""Limit of the wait for the write lock, which a long sync may hold; unwritten lines are tried again later."""
DIGITS = "0123456789abcdef"
BASE = ""
"""Room that every client is in."""
_AT_ONCE = 500
_FORGED = "a row under a key of ours that we never wrote"

Updates = list[tuple[str, bytes]]
"""(room, update) pairs, in the order in which they are sent."""


@dataclass(slots=True)
class _Counts:
    """Totals since the start: lines written here; rows and lines refused; rows put again since others spoiled them."""

    arrived: int = 0
    refused: int = 0
    healed: int = 0


class Bridge:
    """Bridge of one replica between its files and the rooms of its clan. Used from one thread.

    Args:
        private_among: returns which of some names are lessons that an agent here keeps private, however their lines
            came into the shared files: nothing of them is offered.

    Attributes:
        documents: the document of each room, by the room's digit, or ``BASE``.
        is_large: True if this clan needed more than one room at the last offer.
        must_renew: True if ``renew`` is due: a document broke, or somebody else writes under our client id.
    """

    def __init__(
        self,
        workspace: Workspace,
        writer: str,
        private_among: Callable[[Sequence[str]], Collection[str]] = lambda _: (),
    ) -> None:
        self.workspace = workspace
        self._private_among = private_among
        self.writer = writer
        self.counts = _Counts()
        self.is_large = False
        self._mine = {replica.name for replica in workspace.replicas().replicas} | {writer}
        self._unwritten: dict[str, dict[bytes, None]] = {}  # path to lines that are not on the disk yet
        self.documents: dict[str, Document] = {}
        self.renew()

    def renew(self) -> None:
        """Begin again with empty documents and new client ids, since ours is taken, or a room was emptied."""
        self.documents = {room: self._fresh() for room in self.documents or [BASE]}
        self.must_renew = False
        self._own: dict[str, int] = {}  # name to the hash of our row's text, which the document has
        self._writers: dict[str, tuple[str, ...]] = {}  # name to the writers with a row of it
        self._lacking: dict[str, None] = {}  # names of which the documents may lack something
        self._withheld: dict[str, None] = {}  # names of entries that were undone before others, it seems, had them
        self._changed: set[str] = set()  # our own keys that somebody else changed
        self._generation = 0

    def _fresh(self) -> Document:
        return Document(int.from_bytes(self.workspace.world.entropy(CLIENT_ID_BITS // 8), "big"))

    # --- rooms ----------------------------------------------------------------------------------------------------

    def spread(self) -> list[str]:
        """Add the sixteen further rooms; return the new ones."""
        new = [digit for digit in DIGITS if digit not in self.documents]
        self.documents.update({digit: self._fresh() for digit in new})
        return new

    def _room_of(self, name: str) -> str:
        """Return the room of a name: the first hex digit of its id or hash, if there are further rooms."""
        digit = name.removeprefix(CARRIED).rpartition("-")[2][:1]
        return digit if digit in self.documents else BASE

    def _entry(self, name: str) -> Entry | None:
        """Return the join of all valid rows of one name."""
        joined: Entry | None = None
        for writer in self._writers.get(name, ()):
            key = key_of(name, writer)
            for document in self.documents.values():
                if (text := document.get(key)) is not None and self._may_join(key, text):
                    joined = joined_entries(joined, _parsed(key, text).entry)
        return joined

    def _may_join(self, key: str, text: str) -> bool:
        """Return whether a row counts: one under a key of this machine only if this machine wrote it."""
        name, writer = parts_of(key)
        if writer == self.writer:
            return self._own.get(name) == hash(text)
        return writer not in self._mine or self._was_ours(key, text)

    def _note_writer(self, name: str, writer: str) -> None:
        writers = self._writers.get(name, ())
        if writer not in writers:
            self._writers[name] = (*writers, writer)

    # --- out ------------------------------------------------------------------------------------------------------

    def offer(self) -> Updates:
        """Put new lines, and lines that the documents lack, into the documents; return the updates for others."""
        self._write()
        generation = self.workspace.patterns.generation
        self.is_large = self.workspace.patterns.count() > ROOM_PATTERNS
        changed = self.workspace.db.names(since=self._generation)
        names = iter(dict.fromkeys([*self._lacking, *changed]))
        self._generation, self._lacking = generation, {}
        updates: Updates = []
        while batch := list(islice(names, _AT_ONCE)):
            updates += self._put(batch)
        return updates + self._remove_rows()

    def _put(self, names: Sequence[str]) -> Updates:
        """Put those lines of some names that the documents lack under our own keys, if they pass the gate."""
        rows: dict[str, str | None] = {}
        undone_unsent, private = self.workspace.db.undone_unsent(), self._private_among(names)
        for name, entry in self.workspace.db.entries(names).items():
            key, in_room = key_of(name, self.writer), self._entry(name)
            missing = missing_of(in_room, entry)
            if missing is None or name in private or outgoing.gate(missing):
                continue
            if name in undone_unsent and not self._is_known(missing, in_room):
                self._withheld[name] = None
                continue
            own_text = self.documents[self._room_of(name)].get(key) or ""
            own = _parsed(key, own_text).entry if self._may_join(key, own_text) else None
            text = b"\n".join(raws_of(joined_entries(own, missing) or missing)).decode()
            if not is_text(text):
                continue  # too large for a row: git carries it
            rows[key] = text
            self._changed.discard(key)
            self._own[name] = hash(text)
            self._note_writer(name, self.writer)
        return self._updates(rows)

    def _is_known(self, missing: Entry, in_room: Entry | None) -> bool:
        """Return whether the room has a part, under any key, of the occurrences or discovery that an entry undoes."""
        if isinstance(missing, Discovery):
            return bool(missing.retracts) and self._entry(missing.retracts) is not None
        base = in_room if isinstance(in_room, Line) else None
        return not (isinstance(missing, Line) and is_undone_before_sent(missing, base))

    def _remove_rows(self) -> Updates:
        """Remove the rows under our keys that others changed, unless ``_put`` has replaced them by ours."""
        rows = dict.fromkeys(self._changed)
        self._changed.clear()
        for key in rows:
            self._own.pop(parts_of(key)[0], None)
        return self._updates(rows)

    def _updates(self, rows: Mapping[str, str | None]) -> Updates:
        """Put rows into the documents of their rooms, or delete those that are None; return the updates for others."""
        pieces, sizes = defaultdict[str, list[dict[str, str | None]]](lambda: [{}]), Counter[str]()
        for key, text in rows.items():
            room = self._room_of(parts_of(key)[0])
            pieces[room][-1][key] = text
            sizes[room] += len(key) + len(text or "")
            if sizes[room] >= UPDATE_BYTES_MAX:
                pieces[room].append({})
                sizes[room] = 0
        updates = [(room, self.documents[room].put(piece)) for room in pieces for piece in pieces[room]]
        return [(room, update) for room, update in updates if update]

    # --- in -------------------------------------------------------------------------------------------------------

    def receive(self, updates: Updates) -> None:
        """Take in updates and write their lines to the disk; note whether the documents must be renewed.

        Rows to be put again are sent with the next offer. An invalid update is counted and ignored; a document that it
        broke is replaced at once, since any further use of that document would block for ever.
        """
        changes: dict[str, Change] = {}
        for room, update in updates:
            try:
                applied = self.documents[room].apply(update)
            except BadUpdateError as why:
                self.counts.refused += 1
                if why.is_broken:
                    self.documents[room], self.must_renew = self._fresh(), True
                continue
            self.must_renew = self.must_renew or applied.is_cloned
            for key, change in applied.changes.items():
                before = changes[key].before if key in changes else change.before
                changes[key] = Change(before, change.after)
        keys = iter(changes)
        while batch := list(islice(keys, _AT_ONCE)):
            self._take(batch, changes)
        self._write()

    def _take(self, keys: Sequence[str], changes: Mapping[str, Change]) -> None:
        entries = self.workspace.db.entries([parts_of(key)[0] for key in keys])
        refused: list[Refused] = []
        for key in keys:
            refused += self._take_row(key, changes[key], entries.get(parts_of(key)[0]))
        if refused:
            self.counts.refused += len(refused)
            self.workspace.quarantine.keep(refused, self.workspace.wall())

    def _take_row(self, key: str, change: Change, mine: Entry | None) -> list[Refused]:
        """Take in one row; return the lines of it that cannot be used."""
        name, writer = parts_of(key)
        if writer == self.writer:
            return self._take_own(key, change)
        if writer in self._mine and not self._was_ours(key, change.after):
            return _refused(key, change.after, _FORGED)
        row = _parsed(key, change.after)
        if row.lines:
            self._note_writer(name, writer)
            if name in self._withheld:  # somebody has the entry and needs its undo; a retraction has another name
                self._lacking.update(self._withheld)
                self._withheld.clear()
        now = row.entry
        if any(missing_of(now, entry) is not None for _, entry in _parsed(key, change.before).lines):
            self._lacking[name] = None  # the row holds less than before: the documents may lack something
            self.counts.healed += 1
        for raw, entry in row.lines:
            if missing_of(mine, entry) is not None:
                self._unwritten.setdefault(Kind.of_id(entry.id).shard(writer), {})[raw] = None
        return row.refused

    def _take_own(self, key: str, change: Change) -> list[Refused]:
        """Check a row under our own key: put by this start, by an earlier one, or by somebody who must not."""
        name = parts_of(key)[0]
        if self._own.get(name) == (None if change.after is None else hash(change.after)):
            return []
        is_ours = self._was_ours(key, change.after)
        if is_ours and name not in self._own and change.after is not None:
            self._own[name] = hash(change.after)
            self._note_writer(name, self.writer)
            return []
        self._changed.add(key)
        self._lacking[name] = None
        if is_ours:  # Yjs chose between the rows of an earlier start of ours and of this one
            return []
        self.counts.healed += 1
        return _refused(key, change.after, _FORGED)

    def _was_ours(self, key: str, text: str | None) -> bool:
        """Return whether this machine may have written a row under a key of its own: all of the row is known here."""
        row, name = _parsed(key, text), parts_of(key)[0]
        if not row.lines or row.refused:
            return False
        mine = self.workspace.db.entries([name]).get(name)
        return mine is not None and all(missing_of(mine, entry) is None for _, entry in row.lines)

    def _write(self) -> None:
        """Write arrived lines to the disk, each to the shard of its writer; lines are kept until they are written."""
        if not self._unwritten:
            return
        with self.workspace.locked(LOCK_WAIT_S):
            for path in sorted(self._unwritten):
                lines = self._unwritten[path]
                self.workspace.files.append(self.workspace.clan / path, b"".join(raw + b"\n" for raw in lines))
                self.counts.arrived += len(lines)
                del self._unwritten[path]


# --- rows -----------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """One parsed row: its valid lines, each with its entry, and the lines that are not used, with the reason."""

    lines: list[tuple[bytes, Entry]]
    refused: list[Refused]

    @property
    def entry(self) -> Entry | None:
        """The join of its lines; None for a row without a valid one."""
        return reduce(joined_entries, (entry for _, entry in self.lines), None)


def _parsed(key: str, text: str | None) -> _Row:
    """Return the parsed row, an empty one for None; ``refused`` has the lines that are invalid."""
    if text is None:
        return _Row([], [])
    name, writer = parts_of(key)
    path = f"live:{key[:KEY_CHARS_MAX]}"
    kind = Kind.of_id(name)
    if not names.is_replica(writer) or not is_key_of(key, writer):
        return _Row([], _refused(key, text, "a key of a live document that is no <id>|<replica>"))
    if not is_text(text):
        return _Row([], _refused(key, text, "a row of a live document that is no text, or too long"))
    raw = text.encode("utf-8", "replace")
    if name.startswith(CARRIED):
        kind = next((Kind.of_id(entry.id) for _, entry in LineReader().entries(PATTERNS, [raw], path)), PATTERNS)
    read = LineReader()
    valid: list[tuple[bytes, Entry]] = []
    for line_raw, entry in read.entries(kind, [raw], path):
        if name_of(entry) == name and Kind.of_id(entry.id) is kind:
            valid.append((line_raw, entry))
        else:
            read.refuse(Refused(path, 0, "a line that speaks of something else than its key", line_raw))
    return _Row(valid, read.refused)


def _refused(key: str, text: str | None, reason: str) -> list[Refused]:
    """Return a row that cannot be used, for the quarantine; [] for a deleted one."""
    if text is None:
        return []
    raw = b"" if text == NOT_TEXT else text[: limits.LINE_BYTES_MAX].encode("utf-8", "replace")
    return [Refused(f"live:{key[:KEY_CHARS_MAX]}", 0, reason, raw)]
