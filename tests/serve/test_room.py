"""The live server: who may come in (attack 16), what a guest may change, and what it costs the others."""

import asyncio
import contextlib
import gc
import json
import os
import resource
import shutil
import socket as sockets
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from crdt import doc
from crdt.doc import NOT_TEXT, BadUpdateError, Document
from fleet.model.errors import UsageError
from fleet.serve import room
from fleet.serve.room import Rooms, Rules, _Visitor
from fleet.share.live import client as live
from fleet.share.live import wire
from fleet.share.live.access import Where
from fleet.share.remote import RemoteUnavailable
from fleet.store import consent
from tests.laws.test_updates import DEADLY
from tests.serve.served import HOST, TOKEN, Served, served

KNOWN = {"Authorization": f"Bearer {TOKEN}"}
TANK, VELMA = "tank.c0ffee42", "velma.09ab12cd"
ID = "p-3f9c1a2b7d4e5f60"
KEY, OTHERS = f"{ID}|{TANK}", f"{ID}|{VELMA}"
GET = (
    b"GET /clan HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as running:
        yield running


def entered(url: str, **more: Any) -> ClientConnection:
    """Connect; whoever does so closes it."""
    headers = {"Authorization": f"Bearer {TOKEN}"} | more.pop("additional_headers", {})
    return connect(url, additional_headers=headers, **more).__enter__()


class Guest:
    """A client that does as it likes."""

    def __init__(self, server: Served, replica: str = TANK, document: Document | None = None) -> None:
        self.visitor = replica
        self.document = Document(int.from_bytes(os.urandom(4), "big")) if document is None else document
        self.socket = entered(server.where().of("", replica), compression=None, max_size=None)

    def say(self, rows: dict) -> None:
        self.socket.send(wire.Message(wire.SYNC, wire.UPDATE, self.document.put(rows)).encode())

    def exchange(self) -> dict:
        """Exchange states; return what the room holds then."""
        self.socket.send(wire.Message(wire.SYNC, wire.STEP_1, self.document.state()).encode())
        while True:
            message = wire.Message.decode(self.socket.recv(timeout=10))
            if message.kind == wire.SYNC and message.step != wire.STEP_1:
                self.document.apply(message.payload)
                if message.step == wire.STEP_2:
                    return self.document.rows()

    def next(self, kind: int, step: int = 0) -> bytes:
        while True:
            message = wire.Message.decode(self.socket.recv(timeout=10))
            if (message.kind, message.step) == (kind, step):
                return message.payload

    def ended(self) -> int:
        """Read until the server ends the connection; return its code."""
        while True:
            try:
                self.socket.recv(timeout=10)
            except ConnectionClosed as why:
                return why.rcvd.code

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def until(happened: Callable[[], object], wait_s: float = 10.0) -> bool:
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.02)
    return False


# --- at the door ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost:8377", "127.0.0.1:8377", "127.0.0.1", "[::1]:8377", "LOCALHOST"])
def test_loopbacks_own_names_are_let_in(host: str):
    assert Rules(HOST, TOKEN).decide("/clan", {"Host": host, **KNOWN}) == _Visitor("clan", "")


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8377", "127.0.0.1.evil.example", "localhost.evil.example", "[", "0.0.0.0"],
)
def test_a_name_that_was_made_to_point_here_is_not(host: str):
    assert Rules(HOST, TOKEN).decide("/clan", {"Host": host, **KNOWN}) == (403, door_reason(host))


def door_reason(_: str) -> str:
    return "this server answers to the names of this machine alone"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "http://localhost:8377", "file://"])
def test_a_web_page_is_not_let_in_unless_it_was_named(origin: str):
    asked = Rules(HOST, TOKEN, origins=("https://fleet.example",)).decide(
        "/clan", {"Host": HOST, "Origin": origin, **KNOWN}
    )
    assert not isinstance(asked, _Visitor)
    assert asked.status == 403


def test_a_web_page_that_was_named_is_let_in():
    headers = {"Host": HOST, "Origin": "https://fleet.example", **KNOWN}
    assert Rules(HOST, TOKEN, origins=("https://fleet.example",)).decide("/clan", headers) == _Visitor("clan", "")


@pytest.mark.parametrize(
    ("path", "headers", "is_in"),
    [
        ("/clan", {}, False),
        ("/clan", {"Authorization": "Bearer wrong"}, False),
        ("/clan", {"Authorization": f"Basic {TOKEN}"}, False),
        ("/clan?token=wrong", {}, False),
        ("/clan?token=", {}, False),
        ("/clan?token=%ff", {}, False),
        (f"/clan?token={TOKEN}", {}, True),
        ("/clan", {"Authorization": f"Bearer {TOKEN}"}, True),
        ("/clan", {"Authorization": f"bearer {TOKEN}"}, True),
    ],
)
def test_where_a_token_is_asked_for_nobody_comes_in_without(path: str, headers: dict, is_in: bool):
    asked = Rules("0.0.0.0", TOKEN).decide(path, {"Host": "fleet.example", **headers})
    assert isinstance(asked, _Visitor) is is_in


@pytest.mark.parametrize("path", ["/", "//", "/../x", "/%2e%2e", "/UPPER", "/" + "x" * 65, "/a/b", "/é", "/a%00b"])
def test_a_room_has_a_plain_name(path: str):
    assert not isinstance(Rules(HOST, TOKEN).decide(path, {"Host": HOST, **KNOWN}), _Visitor)


def test_who_comes_as_no_replica_is_told():
    assert Rules(HOST, TOKEN).decide(f"/clan?replica={TANK}", {"Host": HOST, **KNOWN}) == _Visitor("clan", TANK)
    assert not isinstance(Rules(HOST, TOKEN).decide("/clan?replica=../x", {"Host": HOST, **KNOWN}), _Visitor)


@pytest.mark.parametrize(
    ("host", "token", "tls"),
    [("0.0.0.0", "", True), ("192.0.2.1", TOKEN, False), ("::", "", False), ("127.0.0.1", "", False)],
)
def test_beyond_loopback_a_token_and_a_certificate_are_needed(host: str, token: str, tls: bool):
    with pytest.raises(UsageError, match="othing was started"):
        Rules(host, token).check(has_certificate=tls)


@pytest.mark.parametrize(
    ("host", "token", "tls"), [("0.0.0.0", TOKEN, True), ("127.0.0.1", TOKEN, False), ("::1", TOKEN, False)]
)
def test_with_both_or_with_a_token_on_loopback_it_starts(host: str, token: str, tls: bool):
    Rules(host, token).check(has_certificate=tls)


def test_a_short_token_is_none():
    with pytest.raises(UsageError, match="16"):
        Rules(HOST, "short").check(has_certificate=False)


def test_a_cross_site_page_is_turned_away_by_the_running_server(server: Served):
    with pytest.raises(InvalidStatus) as turned:
        entered(server.where().of("", ""), origin="https://evil.example")
    assert turned.value.response.status_code == 403
    for hosts, status in ((b"Host: evil.example\r\n", b"403"), (b"Host: 127.0.0.1\r\nHost: evil.example\r\n", b"400")):
        with sockets.create_connection((HOST, server.port), 10) as raw:
            raw.sendall(GET.replace(b"Host: 127.0.0.1\r\n", hosts))
            assert raw.recv(100).split()[1] == status
    assert not server.rooms.rooms


def test_a_token_opens_the_running_server():
    with served(Rules(HOST, TOKEN)) as server:
        with pytest.raises(InvalidStatus) as turned:
            entered(server.where().of("", ""), additional_headers={"Authorization": "Bearer wrong"})
        assert turned.value.response.status_code == 401
        entered(server.where().of("", "")).close()


# --- in a room --------------------------------------------------------------------------------------------------------


def test_what_one_tells_the_others_hear_and_a_late_one_gets_it_all(server: Served):
    with Guest(server) as tank, Guest(server, VELMA) as velma:
        velma.exchange()
        tank.say({KEY: "one"})
        assert velma.document.apply(velma.next(wire.SYNC, wire.UPDATE)).changes[KEY].after == "one"
        velma.say({OTHERS: "two"})
        assert tank.document.apply(tank.next(wire.SYNC, wire.UPDATE)).changes[OTHERS].after == "two"
    with Guest(server, "") as late:
        assert late.exchange() == {KEY: "one", OTHERS: "two"}


@pytest.mark.parametrize(
    "rows",
    [
        {OTHERS: "forged"},
        {OTHERS: None},
        {KEY: NOT_TEXT},
        {KEY: "x" * (wire.ROW_BYTES_MAX + 1)},
        {"no-id|" + TANK: "x"},
        {"rubbish": "x"},
        {f"{'x' * 100}|{TANK}": "x"},
    ],
    ids=["another's row", "a deletion", "no text", "huge", "no id", "no writer", "long key"],
)
def test_what_a_guest_may_not_change_is_as_it_was(server: Served, rows: dict):
    with Guest(server) as tank, Guest(server, VELMA) as velma:
        velma.say({OTHERS: "velma's"})
        tank.exchange()
        before = tank.exchange()
        velma.exchange()
        tank.say(rows)
        assert tank.exchange() == before == {OTHERS: "velma's"}  # who did it sees it undone
        assert velma.exchange() == before


def test_who_only_looks_on_changes_nothing(server: Served):
    with Guest(server) as tank, Guest(server, "") as page:
        tank.say({KEY: "one"})
        tank.exchange()
        assert page.exchange() == {KEY: "one"}
        page.say({KEY: None, OTHERS: "mine now", f"{ID}|": "x"})
        assert page.exchange() == tank.exchange() == {KEY: "one"}


def test_others_never_see_what_was_undone(server: Served):
    with Guest(server, VELMA) as velma, Guest(server) as tank:
        velma.say({OTHERS: "velma's"})
        velma.exchange()
        tank.exchange()
        tank.say({OTHERS: "secret words of a vandal"})
        tank.exchange()
        update = velma.next(wire.SYNC, wire.UPDATE)
        assert b"vandal" not in update
        assert velma.document.apply(update).changes.get(OTHERS, ("", "velma's"))[1] == "velma's"


@pytest.mark.parametrize(
    "data", [b"\0\2\5abc", b"\0\1\xff\xff\xff\xff\x7f", b"\1\xff", b"\0\0\3\xff\xff\xff", b"", b"\0\2\3\xff\xff\xff"]
)
def test_a_message_that_is_none_ends_its_connection_alone(server: Served, data: bytes):
    with Guest(server) as tank, Guest(server, VELMA) as velma:
        tank.socket.send(data)
        assert tank.ended()
        velma.say({OTHERS: "still here"})
        assert velma.exchange() == {OTHERS: "still here"}


def test_a_value_that_would_end_the_server_costs_a_connection(server: Served):
    with Guest(server) as tank, Guest(server, VELMA) as velma:
        tank.socket.send(wire.Message(wire.SYNC, wire.UPDATE, DEADLY["lists"]).encode())
        assert tank.ended() == room.UNREADABLE
        velma.say({OTHERS: "still here"})
        assert velma.exchange() == {OTHERS: "still here"}


def test_a_document_that_broke_is_given_up_and_never_touched_again(server: Served, monkeypatch: pytest.MonkeyPatch):
    with Guest(server) as tank, Guest(server, VELMA) as velma:
        tank.say({KEY: "one"})
        assert velma.exchange() == {KEY: "one"}
        broken = server.rooms.room("clan").document

        def broke(*_: object) -> None:
            raise BadUpdateError("no update", is_broken=True)

        for touch in ("apply", "put", "since", "rows"):
            monkeypatch.setattr(broken, touch, broke)
        tank.say({KEY: "two"})
        assert velma.ended() == wire.RENEWED
        tank.ended()
    with Guest(server) as tank:
        tank.say({KEY: "three"})
        assert tank.exchange() == {KEY: "three"}


def test_text_frames_are_none_of_ours(server: Served):
    with Guest(server) as tank:
        tank.socket.send("hello")
        assert tank.ended()


def test_messages_of_a_type_that_is_not_known_are_passed_over(server: Served):
    with Guest(server) as tank:
        tank.socket.send(b"\x07rest")
        tank.socket.send(b"\2\0")
        tank.say({KEY: "one"})
        assert tank.exchange() == {KEY: "one"}


def test_a_message_beyond_the_cap_is_not_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "MESSAGE_BYTES_MAX", 100_000)
    with served() as server, Guest(server) as tank:
        tank.socket.send(wire.Message(wire.SYNC, wire.UPDATE, b"x" * 200_000).encode())
        assert tank.ended() == 1009
        assert server.rows() == {}


def test_what_a_message_unpacks_to_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "MESSAGE_BYTES_MAX", 100_000)
    with served() as server:
        packed = entered(server.where().of("", TANK), max_size=None, compression="deflate")
        packed.send(wire.Message(wire.SYNC, wire.UPDATE, b"\0" * 50_000_000).encode())  # about 50 KB on the way
        with pytest.raises(ConnectionClosed) as closed:
            [packed.recv(timeout=10) for _ in range(10)]
        assert closed.value.rcvd.code == 1009


def test_a_slow_reader_is_dropped_and_not_buffered_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "QUEUE_BYTES_MAX", 1_000_000)
    with served() as server, Guest(server) as tank:
        slow = raw_guest(server)
        assert until(lambda: server.guests() == 2)
        for number in range(100):
            tank.say({f"p-{number:016x}|{TANK}": "x" * 200_000})
        tank.exchange()
        assert until(lambda: server.guests() == 1)
        waiting = server.do(lambda: [guest._waiting_bytes for guest in server.rooms.rooms["clan"].guests])
        assert max(waiting) <= 1_000_000
        slow.close()


def test_a_reader_that_takes_nothing_at_all_is_dropped_after_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "SEND_S_MAX", 0.5)
    with served() as server, Guest(server) as tank:
        for number in range(60):
            tank.say({f"p-{number:016x}|{TANK}": "x" * 200_000})
        tank.exchange()
        slow = raw_guest(server, wire.Message(wire.SYNC, wire.STEP_1, b"\0").encode())
        assert until(lambda: server.guests() == 2)
        assert until(lambda: server.guests() == 1)
        slow.close()


def raw_guest(server: Served, message: bytes = b"", times: int = 1) -> sockets.socket:
    """Connect, ask for what there is, and never read."""
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.connect((HOST, server.port))
    raw.sendall(GET)
    if message:
        assert raw.recv(1) == b"H"
        raw.sendall((bytes((0x82, 0x80 | len(message), 0, 0, 0, 0)) + message) * times)
    return raw


def test_who_asks_again_and_again_and_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "QUEUE_BYTES_MAX", 1_000_000)
    with served() as server, Guest(server) as tank:
        for number in range(60):
            tank.say({f"p-{number:016x}|{TANK}": "x" * 200_000})
        tank.exchange()
        slow = raw_guest(server, wire.Message(wire.SYNC, wire.STEP_1, b"\0").encode(), times=2)
        assert until(lambda: server.guests() == 2)
        assert until(lambda: server.guests() == 1, room.SEND_S_MAX / 3)
        slow.close()


def test_who_comes_in_and_speaks_no_websocket_leaves_nothing_behind(server: Served):
    for _ in range(10):
        plain = sockets.create_connection((HOST, server.port))
        plain.sendall(f"GET /clan HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert b"426" in plain.recv(1000)
        plain.close()

    def is_left() -> int:
        gc.collect()
        return len(server.rooms._visitors)

    assert until(lambda: not server.do(is_left))


def test_a_room_that_received_too_much_begins_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "ROOM_BYTES_MAX", 100_000)
    with served() as server, Guest(server) as tank:
        for number in range(50):
            with contextlib.suppress(ConnectionClosed):
                tank.say({KEY: f"{number}" * 5_000})
        assert tank.ended() == wire.RENEWED
        assert server.rows() == {}


def test_rooms_are_not_made_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "ROOMS_MAX", 3)
    with served() as server:
        for number in range(6):  # an empty room makes place for another
            entered(server.where(f"room{number}").of("", "")).close()
            assert until(lambda: not any(r.guests for r in server.rooms.rooms.values()))
        assert len(server.rooms.rooms) == 3
        with contextlib.ExitStack() as stack:
            for number in range(3):
                stack.callback(entered(server.where(f"full{number}").of("", "")).close)
            with pytest.raises(InvalidStatus) as turned:
                entered(server.where("one-more").of("", ""))
            assert turned.value.response.status_code == 503


def test_rooms_that_one_member_filled_and_left_keep_nobody_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "ROOMS_MAX", 3)
    with served() as server:
        with Guest(server) as tank:
            tank.say({KEY: "one", f"p-{1:016x}|{TANK}": "two"})
            tank.exchange()
        document = Document(7)
        update = wire.Message(wire.SYNC, wire.UPDATE, document.put({KEY: "junk"})).encode()
        for number in range(2):
            with entered(server.where(f"junk{number}").of("", TANK)) as vandal:
                vandal.send(update)
                assert until(lambda: server.rows(f"junk{number}"))  # noqa: B023
        assert until(lambda: not any(each.guests for each in server.rooms.rooms.values()))
        entered(server.where("honest").of("", VELMA)).close()
        assert server.rows()[KEY] == "one"  # the room with most in it goes last


def test_too_many_connections_are_turned_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "CONNECTIONS_MAX", 2)
    with served() as server, Guest(server), Guest(server, VELMA):
        assert until(lambda: server.guests() == 2)
        with pytest.raises(InvalidStatus) as turned:
            entered(server.where().of("", ""))
    assert turned.value.response.status_code == 503


def test_who_writes_under_the_servers_client_id_makes_it_take_another(server: Served):
    with Guest(server) as tank:
        tank.say({KEY: "one"})
        tank.exchange()
        before = server.do(lambda: server.rooms.rooms["clan"].document.client_id)
        with Guest(server, document=Document(before)) as vandal:
            vandal.exchange()
            vandal.say({KEY: "two", f"p-{1:016x}|{TANK}": "three"})
            vandal.exchange()
        assert server.do(lambda: server.rooms.rooms["clan"].document.client_id) != before
        tank.exchange()
        tank.say({KEY: "four"})
        assert tank.exchange()[KEY] == "four"


# --- who is here ------------------------------------------------------------------------------------------------------


def test_who_is_here_is_told_to_all_and_to_its_sender_and_taken_back_when_it_leaves(server: Served):
    presence = wire.Presence(time.monotonic)
    with Guest(server) as tank:
        with Guest(server, VELMA) as velma:
            velma.socket.send(
                wire.Message(wire.AWARENESS, 0, presence.set(7, {"agent": "velma", "on": "日本"})).encode()
            )
            seen = wire.Presence(time.monotonic)
            for guest in (velma, tank):
                seen.take(guest.next(wire.AWARENESS))
                assert seen.states() == {7: {"agent": "velma", "on": "日本"}}
            with Guest(server, "") as late:
                again = wire.Presence(time.monotonic)
                again.take(late.next(wire.AWARENESS))
                assert again.states() == seen.states()
                late.socket.send(wire.QUERY)
                assert late.next(wire.AWARENESS)
        seen.take(tank.next(wire.AWARENESS))
        assert seen.states() == {}


def states_of(*states: tuple[int, int, bytes]) -> bytes:
    rows = [doc.encode(client) + doc.encode(clock) + doc.encode_bytes(text) for client, clock, text in states]
    return doc.encode(len(rows)) + b"".join(rows)


def test_one_client_that_a_message_names_often_is_told_to_others_once(server: Served):
    rows = [(1, clock, b"{}") for clock in range(1_000)] + [(1, 1_001, b'{"on":"%s"}' % (b"x" * 4_000))]
    with Guest(server) as tank:
        tank.socket.send(wire.Message(wire.AWARENESS, 0, states_of(*rows[1:])).encode())
        assert len(tank.next(wire.AWARENESS)) < 5_000  # and not 1,000 times as much


def test_more_states_than_are_kept_end_the_connection_that_sends_them(server: Served):
    with Guest(server) as tank:
        tank.socket.send(wire.Message(wire.AWARENESS, 0, doc.encode(5_000_000) + b"\1\0\0" * 5_000_000).encode())
        began = time.monotonic()
        assert tank.ended() == room.UNREADABLE
        assert time.monotonic() - began < 2


def test_nobody_says_that_another_replica_is_here_or_away_or_speaks_for_its_client(server: Served):
    mine, far = json.dumps({"agent": "tank", "replica": TANK}).encode(), 2**53 - 2
    with Guest(server) as tank, Guest(server, VELMA) as velma, Guest(server, "") as looker:
        tank.socket.send(wire.Message(wire.AWARENESS, 0, states_of((7, 0, mine))).encode())
        tank.next(wire.AWARENESS)
        for vandal in (velma, looker):
            forged = states_of((8, 0, mine), (7, 1, b"null"), (7, far, b"{}"), (9 + len(vandal.visitor), 0, b"{}"))
            vandal.socket.send(wire.Message(wire.AWARENESS, 0, forged).encode())
            assert until(lambda: 9 + len(vandal.visitor) in server.do(server.rooms.room("clan").presence.clients))  # noqa: B023
        assert server.do(server.rooms.room("clan").presence.states)[7] == {"agent": "tank", "replica": TANK}
        assert 8 not in server.do(server.rooms.room("clan").presence.states)
        tank.socket.send(wire.Message(wire.AWARENESS, 0, states_of((7, 1, b"{}"))).encode())
        assert until(lambda: server.do(server.rooms.room("clan").presence.states)[7] == {})


def test_who_is_here_shows_texts_alone():
    presence = wire.Presence(lambda: 0.0)
    odd = [b"[" * depth + b"]" * depth for depth in range(300, 1_000)]
    for client, value in enumerate([*odd, b"5", b'"\\ud800"']):
        state = b'{"agent":"tank","replica":"%s","since":%s,"on":%s}' % (TANK.encode(), value, value)
        presence.take(states_of((client, 0, state)))
    assert {(each.since, each.on) for each in live._online(presence)} == {("", ""), ("?", "?")}


def test_presence_is_taken_for_away_after_a_time_and_bounded():
    now = [0.0]
    presence = wire.Presence(lambda: now[0])
    presence.set(1, {"agent": "tank"})
    other = wire.Presence(lambda: now[0])
    other.take(presence.encode([1]))
    now[0] = 31.0
    assert other.forget_stale() == [1]
    assert other.states() == {}
    assert other.forget_stale() == []
    assert other.take(presence.set(1, {"agent": "tank"})) == []  # older than what was taken for away
    assert other.take(presence.set(1, {"agent": "tank"})) == [1]
    huge = wire.Presence(lambda: now[0])
    huge.set(2, {"on": "x" * 5_000})
    assert other.take(huge.encode([2])) == []
    for client in range(3, wire.STATES_MAX + 10):
        other.take(presence.set(client, {}))
    assert len(other.states()) <= wire.STATES_MAX


def awareness_of(client: int, clock: int) -> bytes:
    return b"\x01" + doc.encode(client) + doc.encode(clock) + doc.encode_bytes(b"{}")


def test_nobody_takes_anothers_voice_with_a_clock_that_has_none_after_it():
    room_, mine = wire.Presence(lambda: 0.0), wire.Presence(lambda: 0.0)
    mine.own = 1
    room_.take(mine.set(1, {"agent": "tank"}))
    for clock in (2**53 - 2, 2**53 - 1, 2**63 - 1):
        mine.take(awareness_of(1, clock))
        room_.take(awareness_of(1, clock))
        if told := room_.leave([1]):  # who said so is gone
            assert wire.Presence(lambda: 0.0).take(told) in ([], [1])
    assert max(known.clock for known in room_._known.values()) < 2**53
    assert wire.Presence(lambda: 0.0).take(mine.set(1, {"agent": "tank"})) == [1]
    other = wire.Presence(lambda: 0.0)
    other.take(mine.set(1, {"agent": "tank"}))
    other.leave([1])  # our connection was lost: back again, we are heard at once
    assert other.take(mine.set(1, {"agent": "tank"})) == [1]
    assert room_.take(awareness_of(2**53, 1)) == []  # no JavaScript client could read what we would pass on


def test_a_clients_own_presence_is_not_forgotten_and_that_of_others_is():
    now = [0.0]
    mine = wire.Presence(lambda: now[0])
    mine.own = 1
    mine.set(1, {"agent": "tank"})
    mine.take(awareness_of(2, 1))
    now[0] = 100.0
    assert mine.forget_stale() == [2]
    assert mine.clients() == [1]


def _tls(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_over_tls_only_who_trusts_the_certificate_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert]
    subprocess.run(words, check=True, capture_output=True)
    with served(Rules(HOST, TOKEN), certificate=_tls(cert, key)) as server:
        where = Where(f"wss://localhost:{server.port}", "clan", TOKEN)
        with pytest.raises(RemoteUnavailable, match="certificate verify failed"):
            asyncio.run(live.who(where))
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        assert asyncio.run(live.who(where)) == []
        with pytest.raises(RemoteUnavailable, match="401"):
            asyncio.run(live.who(Where(where.url, "clan", "wrong")))
        with pytest.raises(RemoteUnavailable):
            asyncio.run(live.who(Where(f"ws://localhost:{server.port}", "clan", TOKEN)))


def test_a_server_leaves_its_port_behind():
    with served() as server:
        with Guest(server):
            pass
        port = server.port
    with served(port=port) as again:
        assert again.port == port
    assert Rooms(Rules(HOST), os.urandom).rooms == {}


# --- who is who, and how much one may hold ----------------------------------------------------------------------------


def test_a_replica_is_whoever_came_first_with_a_key_of_its_own(server: Served):
    def come(key: str | None) -> ClientConnection:
        return entered(server.where().of("", TANK), additional_headers={} if key is None else {wire.KEY_HEADER: key})

    come("mine").close()
    come("mine").close()
    for other in ("theirs", "", None):
        with pytest.raises(InvalidStatus) as turned:
            come(other)
        assert turned.value.response.status_code == 403
    entered(server.where().of("", VELMA)).close()  # a page of JavaScript brings none, and leaves none
    entered(server.where().of("", "")).close()


@pytest.mark.parametrize(("name", "replica"), [("REPLICA_MAX", TANK), ("ONLOOKERS_MAX", "")])
def test_one_client_holds_a_share_of_the_connections_at_most(monkeypatch, name: str, replica: str):
    monkeypatch.setattr(room, name, 2)
    with served() as server, Guest(server, replica), Guest(server, replica):
        assert until(lambda: server.guests() == 2)
        with pytest.raises(InvalidStatus) as turned:
            entered(server.where().of("", replica))
        assert turned.value.response.status_code == 503
        entered(server.where().of("", VELMA)).close()


def test_an_address_beyond_this_machine_holds_half_at_most(monkeypatch):
    monkeypatch.setattr(room, "ADDRESS_MAX", 1)
    monkeypatch.setattr(consent, "is_loopback", lambda host: False)
    rules = Rules(HOST, TOKEN)
    with served(rules) as server, Guest(server):
        assert until(lambda: server.guests() == 1)
        with pytest.raises(InvalidStatus) as turned:
            entered(server.where().of("", VELMA))
        assert turned.value.response.status_code == 503


def announced(count: int, tail: bytes = b"") -> bytes:
    return doc.encode(count) + tail


@pytest.mark.parametrize(
    "message",
    [
        wire.Message(wire.SYNC, wire.STEP_1, announced(2**29)).encode(),
        wire.Message(wire.SYNC, wire.STEP_1, announced(2**29, bytes(1000))).encode(),
        wire.Message(wire.SYNC, wire.UPDATE, b"\0" + announced(2**29)).encode(),
        wire.Message(wire.SYNC, wire.UPDATE, b"\0\1\1" + announced(2**29)).encode(),
        wire.Message(wire.SYNC, wire.UPDATE, b"\0\1\1" + announced(2**29, bytes(1000))).encode(),
    ],
)
def test_what_announces_more_than_it_brings_costs_nothing(server: Served, message: bytes):
    """An 8-byte message made the library set aside a gigabyte, and work for two seconds."""
    with Guest(server) as tank:
        tank.exchange()
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        tank.socket.send(message)
        assert tank.ended() == room.UNREADABLE
        assert time.process_time() - began < 1
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
