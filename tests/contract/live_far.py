"""The far side of the contract suite that is a live room: odd on demand."""

import os

from fleet.serve.auth import Rules
from fleet.serve.room import Guest, Room, Rooms
from fleet.share.live.remote import LiveRemote
from fleet.share.remote import Files, Remote
from tests.serve.served import HOST, Served


class OddRooms(Rooms):
    """A live server that can say no, or fall silent after it took an update in."""

    words = ""
    falls_silent = False

    def _update(self, room: Room, guest: Guest, update: bytes) -> None:
        if self.words and update != b"\0\0":
            guest.socket.protocol.send_close(1008, self.words)
            guest.socket.send_data()
            return
        super()._update(room, guest, update)
        if self.falls_silent and update != b"\0\0":
            self.falls_silent = False
            guest.drop()


class LiveFar:
    def __init__(self) -> None:
        self.rooms = OddRooms(Rules(HOST), os.urandom)
        self.server = Served(self.rooms)
        self.count = 0

    def remote(self) -> LiveRemote:
        self.count += 1
        return LiveRemote(self.server.where(), f"far.{self.count:08x}", os.urandom)

    def told(self, files: Files) -> frozenset[bytes]:
        return frozenset(raw for data in files.values() for raw in data.splitlines())

    def drops_reply(self) -> Remote:
        remote = self.remote()
        remote.pull("")
        self.rooms.falls_silent = True
        return remote

    def refuse(self, words: str) -> None:
        self.rooms.words = words

    def down(self) -> None:
        self.server.end()
