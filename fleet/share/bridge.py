"""Between the clan's files on this machine and a live document: what goes out, what comes in, what is put again.

One rule makes it safe: *join what you read, and put what the document lacks under your own key*. A key has one writer,
so Yjs never has to choose. What arrives is on the disk before anybody is told, in the shard of who wrote it, as if git
had brought it; when git does, the tree covers it. What others garble or delete is put again from the files.

Nothing here knows a socket: updates come in and go out as bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from sys import intern

from crdt.doc import CLIENT_ID_BITS, NOT_TEXT, BadUpdateError, Change, Document, key_of, parts_of
from fleet.keep import heap, limits
from fleet.keep.line import Line, Refused
from fleet.keep.reading import Entry, Kind, Read, entries
from fleet.keep.workspace import Workspace
from fleet.share import gate, packed, rows
from fleet.share.following import Follower
from fleet.share.wire import UPDATE_BYTES_MAX

ROOM_PATTERNS = 10_000
"""So many patterns fit one room; a larger clan has sixteen more, by the first digit of the id."""
LOCK_WAIT_S = 0.5
"""Who ends must not wait for somebody else's long sync: the lines wait, and are tried again."""
DIGITS = "0123456789abcdef"
BASE = ""
"""The room that everybody is in."""
AT_ONCE = 500
"""So many names are put at one time: a large clan's rows, decoded all together, take memory that is not given back."""

Updates = list[tuple[str, bytes]]
"""(room, update) pairs, in the order in which they are to go out."""
News = dict[str, tuple[Kind, list[bytes]]]
"""By name, lines as they stand in the files."""


@dataclass(slots=True)
class Counts:
    """What happened since the start, in lines and rows.

    Attributes:
        sent: lines put into the document.
        arrived: lines written to the disk.
        refused: rows, or lines in them, that cannot be used; they lie in quarantine.
        healed: rows that others had changed or deleted, put again.
        withheld: lines that the gate keeps here.
    """

    sent: int = 0
    arrived: int = 0
    refused: int = 0
    healed: int = 0
    withheld: int = 0


class Bridge:
    """One replica's way between its files and the rooms of its clan. Used from one thread.

    Args:
        workspace: where the files are.
        writer: the replica under whose keys lines are put.

    Attributes:
        documents: the document of each room, by its digit, ``BASE`` for the one that everybody is in.
        counts: what happened.
        took_much: whether much was in memory at once since ``give_back`` was called last.
    """

    def __init__(self, workspace: Workspace, writer: str) -> None:
        self.workspace = workspace
        self.writer = writer
        self.counts = Counts()
        self.took_much = False
        self._mine = {replica.name for replica in workspace.replicas().replicas} | {writer}
        self._unwritten: dict[str, dict[bytes, Kind]] = {}  # path to lines that are not on the disk yet
        self.documents: dict[str, Document] = {}
        self._follower = Follower(workspace.store)
        self._start_anew({BASE})

    def _start_anew(self, rooms: Iterable[str]) -> None:
        """Begin with empty documents, each under a fresh client id, and forget what the old ones held."""
        self.documents = {room: self._fresh() for room in rooms}
        self._own: dict[str, bytes] = {}  # name to what we put under our key, encoded
        self._writers: dict[str, tuple[str, ...]] = {}  # name to who says something of it in a document
        self._alike: dict[tuple[str, ...], tuple[str, ...]] = {}  # the same few writers speak of most names
        self._lacking: dict[str, None] = {}  # names of which the documents may lack something that is here
        self._news: News = {}  # what was read from the files since the last offer
        self._again: set[str] = set()  # our own keys that somebody else changed
        self._reload()

    def _fresh(self) -> Document:
        return Document(int.from_bytes(self.workspace.world.entropy(CLIENT_ID_BITS // 8), "big"))

    def _reload(self) -> None:
        """Join the files and the documents anew, under the cut as it is now."""
        self._cut = self.workspace.timekeeper.reading().cut
        self._here, self._room = packed.held_twice(self._cut)
        self._news = {}
        self.rescan()
        self.took_much = True
        self._writers = {}
        for document in self.documents.values():
            for key in document:
                self._join_row(key, document.get(key) or "")

    def _join_row(self, key: str, text: str) -> rows.Row:
        row = rows.parse(key, text)
        is_known = row.writer not in self._mine or self._is_own(key, text)
        if row.lines and (is_known or (row.writer != self.writer and self._was_ours(key, text))):
            self._note_writer(parts_of(key)[0], row.writer)
            for _, entry in row.lines:
                self._room.of(rows.kind_of(entry)).add(entry)
        return row

    # --- rooms ----------------------------------------------------------------------------------------------------

    @property
    def is_large(self) -> bool:
        """Whether this clan needs more than one room, by what is known here."""
        return len(self._here.notebook.patterns) > ROOM_PATTERNS

    def spread(self) -> list[str]:
        """Open the sixteen further rooms; return those that are new."""
        new = [digit for digit in DIGITS if digit not in self.documents]
        self.documents.update({digit: self._fresh() for digit in new})
        return new

    def renew(self) -> None:
        """Give up all documents for new ones: somebody writes under our client id, or a room was emptied."""
        self._start_anew(list(self.documents))

    def _document(self, name: str) -> tuple[str, Document]:
        room = rows.digit_of(name) if len(self.documents) > 1 else BASE
        room = room if room in self.documents else BASE
        return room, self.documents[room]

    # --- out ------------------------------------------------------------------------------------------------------

    def offer(self) -> Updates:
        """Put into the documents what is new in the files and what they lack; return the updates for others."""
        if self.workspace.timekeeper.reading().cut[:13] > self._cut[:13]:  # an hour has passed: what was held may join
            self._reload()
        self._write()
        self._read()
        fresh, self._news = self._news, {}
        lacking, self._lacking = self._lacking, {}
        names = iter(lacking | dict.fromkeys(fresh))
        self.took_much = self.took_much or len(lacking) + len(fresh) > AT_ONCE
        updates: Updates = []
        # Only now, and not as they are read: a later line may say that the lesson is private.
        while some := list(islice(names, AT_ONCE)):
            updates += self._put({name: self._told(name, None if name in lacking else fresh[name]) for name in some})
        return updates + self._put_again()

    def _read(self) -> None:
        """Read what is new in the files; what of it the documents lack waits for the next offer."""
        self._is_read = True
        for kind, raw, entry in self._follower.news():
            self._here.of(kind).add(entry)
            if not self._room.of(kind).covers(entry):
                name = rows.name_of(entry)
                self._news.setdefault(name, (kind, []))[1].append(packed.shared(self._here, name, raw))

    def _told(self, name: str, fresh: tuple[Kind, list[bytes]] | None) -> list[Entry]:
        """Return what is to be told of a name: of the lines that are new, or of all, those that the documents lack."""
        told: Iterable[Entry] = rows.told_of(self._here, name, self._cut)
        if fresh is not None:
            told = (entry for _, entry in entries(fresh[0], iter([b"\n".join(fresh[1])]), "", Read()))
        return [each for each in told if not self._room.of(rows.kind_of(each)).covers(each)]

    def give_back(self) -> None:
        """Give memory back that a large moment took."""
        self.took_much = False
        heap.give_back()

    def rescan(self) -> None:
        """Read all files anew before anything else is done with them."""
        self._follower.forget()
        self._is_read = False

    def _put(self, told: Mapping[str, list[Entry]]) -> Updates:
        """Put what is told of each name under our own key, as far as it may leave."""
        batches: dict[str, dict[str, str | None]] = {}
        sent: list[bytes] = []
        for name, all_told in told.items():
            may_go = [entry for entry in all_told if self._may_leave(entry)]
            key = key_of(name, self.writer)
            if not may_go and key not in self._again:
                continue
            own = self._own.get(name, b"").decode()
            known = [entry for _, entry in rows.parse(key, own).lines] if own else []
            text = rows.render(name, [*known, *may_go], self._cut)
            if not text or not rows.is_text(text):
                continue  # more than a row can hold: git carries it
            batches.setdefault(self._document(name)[0], {})[key] = text
            self._again.discard(key)
            for line, entry in rows.parse(key, text).lines:
                self._room.of(rows.kind_of(entry)).add(entry)
                sent.append(line)
            self._put_down(name, text)
            self._note_writer(name, self.writer)
            self.counts.sent += len(may_go)
        # Noted before they go: a line that is out there and not known as ours would look like a clone's.
        if sent:
            self.workspace.state.mark_sent(sent)
        return self._all_updates(batches)

    def _put_again(self) -> Updates:
        """Put again what others changed under our keys; what nothing here speaks of goes."""
        batches: dict[str, dict[str, str | None]] = {}
        for key in self._again:
            name = parts_of(key)[0]
            own = self._own.get(name)
            batches.setdefault(self._document(name)[0], {})[key] = None if own is None else own.decode()
        self._again.clear()
        return self._all_updates(batches)

    def _put_down(self, name: str, text: str) -> None:
        """Note what stands under our key."""
        self._own[intern(name)] = packed.shared(self._room, name, text.encode())

    def _is_own(self, key: str, text: str | None) -> bool:
        """Tell whether this is what we put under a key; None: nothing."""
        name, writer = parts_of(key)
        own = self._own.get(name) if writer == self.writer else None
        return own == (None if text is None else text.encode("utf-8", "surrogatepass"))

    def _note_writer(self, name: str, writer: str) -> None:
        known = self._writers.get(name, ())
        if writer not in known:
            more = (*known, writer)
            self._writers[intern(name)] = self._alike.setdefault(more, more)

    def _all_updates(self, batches: Mapping[str, Mapping[str, str | None]]) -> Updates:
        return [(room, update) for room, batch in batches.items() for update in self._updates(room, batch)]

    def _updates(self, room: str, batch: Mapping[str, str | None]) -> Iterable[bytes]:
        piece: dict[str, str | None] = {}
        size = 0
        for key, text in batch.items():
            piece[key] = text
            size += len(key) + len(text or "")
            if size >= UPDATE_BYTES_MAX:
                yield self.documents[room].put(piece)
                piece, size = {}, 0
        if piece and (update := self.documents[room].put(piece)):
            yield update

    def _may_leave(self, entry: Entry) -> bool:
        known = self._here.notebook.get(entry.id) if isinstance(entry, Line) else None
        private = {entry.id} if known is not None and gate.is_private(known.set) else set[str]()
        if gate.reasons(entry, private):
            self.counts.withheld += 1
            return False
        return True

    # --- in -------------------------------------------------------------------------------------------------------

    def receive(self, updates: Updates) -> bool:
        """Take in what others wrote and bring it to the disk; tell whether the documents must be renewed.

        What has to be put again goes out with the next offer. An update that is none is counted and passed over; a
        document that broke over one is given up at once, since touching it again would wait for ever.
        """
        if not self._is_read:  # else all that others ever wrote would seem to arrive now, and be written once more
            self._read()
        is_cloned = False
        refused: list[Refused] = []
        for room, update in updates:
            try:
                applied = self.documents[room].apply(update)
            except BadUpdateError as why:
                self.counts.refused += 1
                if why.is_broken:
                    self.documents[room], is_cloned = self._fresh(), True
                continue
            is_cloned = is_cloned or applied.is_cloned
            self.took_much = self.took_much or len(applied.changes) > AT_ONCE
            for key in list(applied.changes):  # each is let go of as what it says takes its place
                refused += self._take(key, applied.changes.pop(key))
        if refused:
            self.counts.refused += len(refused)
            self.workspace.quarantine.keep(refused, self.workspace.wall())
        self._write()
        return is_cloned

    def _take(self, key: str, change: Change) -> list[Refused]:
        """Take in one row that is another one now; return what of it cannot be used."""
        name, writer = parts_of(key)
        if writer == self.writer:
            return self._take_own(key, change)
        if writer in self._mine and not self._was_ours(key, change.after):
            return [self._forged(key, change.after)] if change.after is not None else []
        row = self._join_row(key, change.after) if change.after is not None else None
        if change.before is not None and self._has_shrunk(key, change.before, row):
            self._look_again(name)
            self.counts.healed += 1
        for line, entry in row.lines if row is not None else ():
            if not self._here.of(row.kind).covers(entry):  # type: ignore[union-attr]
                same, path = packed.shared(self._room, name, line), row.kind.shard(row.writer)  # type: ignore[union-attr]
                self._unwritten.setdefault(path, {})[same] = row.kind  # type: ignore[union-attr]
        return row.refused if row is not None else []

    def _take_own(self, key: str, change: Change) -> list[Refused]:
        """Look at a row under our own key: an earlier start of ours put it, or somebody who may not."""
        name = parts_of(key)[0]
        if self._is_own(key, change.after):
            return []
        if change.after is not None and name not in self._own and self._was_ours(key, change.after):
            self._put_down(name, change.after)
            self._join_row(key, change.after)
            self._put_down(name, change.after)  # now the room holds the same bytes
            return []
        self._again.add(key)
        self._lacking[name] = None
        self.counts.healed += 1
        return [self._forged(key, change.after)] if change.after is not None else []

    def _was_ours(self, key: str, text: str | None) -> bool:
        """Tell whether a row under a key of this machine says what this machine once sent, line by line."""
        row = rows.parse(key, text) if text is not None else None
        sent = self.workspace.state.was_sent
        return row is not None and bool(row.lines) and not row.refused and all(sent(line) for line, _ in row.lines)

    def _forged(self, key: str, text: str) -> Refused:
        raw = b"" if text == NOT_TEXT else text[: limits.LINE_BYTES_MAX].encode("utf-8", "replace")
        return Refused(f"live:{key[: rows.KEY_CHARS_MAX]}", 0, "a row under a key of ours that we never wrote", raw)

    def _has_shrunk(self, key: str, before: str, row: "rows.Row | None") -> bool:
        """Tell whether a row says less than before: then the documents may lack something that is here."""
        now = rows.joined([entry for _, entry in row.lines] if row is not None else [], self._cut)
        return any(not now.of(rows.kind_of(entry)).covers(entry) for _, entry in rows.parse(key, before).lines)

    def _look_again(self, name: str) -> None:
        """Join anew what the documents hold of one name, and look whether it is less than what is here."""
        rows.forget(self._room, name)
        for writer in self._writers.pop(name, ()):
            key = key_of(name, writer)
            for document in self.documents.values():
                if (text := document.get(key)) is not None:
                    self._join_row(key, text)
        self._lacking[name] = None

    def _write(self) -> None:
        """Bring arrived lines to the disk, each in the shard of who wrote it.

        Raises:
            FleetError: they wait, and are written with the next call.
        """
        if not self._unwritten:
            return
        with self.workspace.locked(LOCK_WAIT_S):
            for path in sorted(self._unwritten):
                lines = self._unwritten[path]
                self.workspace.disk.append(self.workspace.store.clan / path, b"".join(raw + b"\n" for raw in lines))
                for line, kind in lines.items():
                    for _, entry in entries(kind, iter([line]), path, Read()):
                        self._here.of(kind).add(entry)
                self.counts.arrived += len(lines)
                del self._unwritten[path]
