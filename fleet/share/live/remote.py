"""A live room as a ``Remote``: one call, one exchange of states, and the connection is closed again.

What travels is lines, not files: a room joins what it is told, so nothing is ever removed, nobody is ever faster, and
the lines of a pull stand in the files of those who told them. Pages, editions as such and other files do not travel.
"""

import hashlib
from collections.abc import Callable
from typing import TypeVar

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from crdt.doc import CLIENT_ID_BITS, BadUpdateError, Document, key_of, parts_of
from crdt.varint import TruncatedError
from fleet.share.live import rows, wire
from fleet.share.live.bridge import BASE
from fleet.share.live.client import Where, told
from fleet.share.remote import Files, Mark, Moved, RemoteRefused, RemoteUnavailable, Whole, check_outgoing
from fleet.store.lines import Entry, Read, entries, kind_of
from fleet.text import screening

_SAFE = "nothing is lost; what was to go out goes out with the next sync"
_MARKS_MAX = 64
_NO = (400, 401, 403, 404)
_T = TypeVar("_T")


class LiveRemote:
    """One machine's way to a room.

    Args:
        where: the room.
        writer: the replica under whose keys lines are put.
        entropy: returns so many random bytes.
        wait_s: how long one answer may take, seconds.
    """

    def __init__(self, where: Where, writer: str, entropy: Callable[[int], bytes], *, wait_s: float = 10.0) -> None:
        self.name = f"live room {where.room}"
        self.warnings: list[str] = []
        self.skipped = 0
        self._where, self._writer, self._wait_s = where, writer, wait_s
        self._entropy = entropy
        self._document = self._fresh()
        self._marks: dict[Mark, Files] = {}

    def _fresh(self) -> Document:
        return Document(int.from_bytes(self._entropy(CLIENT_ID_BITS // 8), "big"))

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        """Return the files whose lines are other ones than at a mark. No file is ever gone."""
        self._connected(self._exchange)
        files, mark = self._files()
        before = self._marks.get(since)
        self._remember(mark, files)
        if before is None:
            return Whole(files), mark
        gone = {path: b"" for path in before if path not in files}
        return gone | {path: data for path, data in files.items() if before.get(path) != data}, mark

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:  # noqa: ARG002
        """Put the lines that the room lacks under our own keys. Never ``Moved``: whatever was there is joined."""
        check_outgoing(files)
        if not files:
            return on
        batch = self._connected(lambda socket: self._put(socket, files))
        if any(self._document.get(key) != text for key, text in batch.items()):
            raise RemoteRefused(f"{self.name} undid what was told under {self._writer}; {_SAFE}")
        told_files, mark = self._files()
        self._remember(mark, told_files)
        return mark

    def _remember(self, mark: Mark, files: Files) -> None:
        self._marks.pop(mark, None)
        if mark:
            self._marks[mark] = files
        while len(self._marks) > _MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    # --- lines ----------------------------------------------------------------------------------------------------

    def _files(self) -> tuple[Files, Mark]:
        """Return the good lines of the room, in the shards of those who told them, and their mark."""
        lines: dict[str, list[bytes]] = {}
        self.skipped = 0
        for key, text in sorted(self._document.rows().items()):
            row = rows.parse(key, text)
            self.skipped += len(row.refused)
            if row.lines:
                lines.setdefault(row.kind.shard(row.writer), []).extend(raw for raw, _ in row.lines)
        files = {path: b"".join(raw + b"\n" for raw in told) for path, told in sorted(lines.items())}
        return files, hashlib.sha256(repr(files).encode()).hexdigest() if files else ""

    def _lacking(self, files: Files) -> dict[str, str]:
        """Return the rows to put: what the room lacks, joined with what we said before."""
        room: dict[str, Entry | None] = {}
        for key, text in self._document.rows().items():
            name = parts_of(key)[0]
            room[name] = rows.join(room.get(name), rows.parse(key, text).said)
        fresh: dict[str, Entry | None] = {}
        for path, data in files.items():
            kind = kind_of(path)
            for _, entry in entries(kind, [data], path, Read()) if kind is not None else ():
                name = rows.name_of(entry)
                if (news := rows.lacking(room.get(name), entry)) is not None:
                    fresh[name] = rows.join(fresh.get(name), news)
        batch = {}
        for name, news in fresh.items():
            key = key_of(name, self._writer)
            whole = rows.join(rows.parse(key, self._document.get(key) or "").said, news)
            if whole is not None:
                batch[key] = rows.render(whole)
        return batch

    # --- the connection -------------------------------------------------------------------------------------------

    def _connected(self, act: Callable[[ClientConnection], _T]) -> _T:
        try:
            with connect(
                self._where.of(BASE, self._writer),
                additional_headers=self._where.headers,
                proxy=self._where.proxy,
                open_timeout=self._wait_s,
                close_timeout=1,
                max_size=wire.MESSAGE_BYTES_MAX,
                compression=wire.COMPRESSION,
                logger=wire.quiet,
            ) as socket:
                return act(socket)
        except (OSError, WebSocketException, TruncatedError, BadUpdateError) as why:
            if isinstance(why, BadUpdateError) and why.is_broken:
                self._document = self._fresh()
            if refusal := _refusal(why):
                raise RemoteRefused(f"{self.name} refused: {refusal}; {_SAFE}") from why
            raise RemoteUnavailable(f"{self.name}: no answer ({told(why)}); {_SAFE}") from why

    def _exchange(self, socket: ClientConnection) -> None:
        """Say what we have, take what we lack, and give what the room lacks, as far as it asks."""
        socket.send(wire.sync(wire.STEP_1, self._document.state()))
        while True:
            data = socket.recv(timeout=self._wait_s)
            message = wire.decode(data) if isinstance(data, bytes) else None
            if message is None or message.kind != wire.SYNC:
                continue
            if message.step == wire.STEP_1:
                for each in wire.answer(self._document.pieces_since(message.payload, wire.UPDATE_BYTES_MAX)):
                    socket.send(each)
                continue
            self._document.apply(message.payload)
            if message.step == wire.STEP_2:
                return

    def _put(self, socket: ClientConnection, files: Files) -> dict[str, str]:
        self._exchange(socket)
        batch = self._lacking(files)
        if update := self._document.put(batch):
            socket.send(wire.sync(wire.UPDATE, update))
        self._exchange(socket)  # its answer comes after the update was taken in, or undone
        return batch


def _refusal(why: Exception) -> str:
    """Return the server's words, if it answered and said no."""
    if isinstance(why, InvalidStatus) and why.response.status_code in _NO:
        return screening.for_terminal(screening.redact(told(why)))
    if isinstance(why, ConnectionClosed) and why.rcvd is not None and why.rcvd.code == CloseCode.POLICY_VIOLATION:
        return screening.for_terminal(screening.redact(why.rcvd.reason))
    return ""
