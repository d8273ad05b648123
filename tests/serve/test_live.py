"""A live client over a real socket: what arrives is on disk, what is missed comes later, what is garbled is healed."""

import asyncio
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from websockets.sync.client import connect

from crdt.doc import CLIENT_ID_BITS, NOT_TEXT, Document
from fleet.app import learning, lessons, sharing, undoing
from fleet.learn.corrections_md import Correction
from fleet.model import limits
from fleet.model.discovery import Discovery
from fleet.model.errors import BusyError, DiskError, UsageError
from fleet.serve import room as serving
from fleet.serve import sidecar
from fleet.serve.room import Rooms, Rules, _Visitor
from fleet.share.live import bridge as bridging
from fleet.share.live import client as living
from fleet.share.live import wire
from fleet.share.live.access import Where
from fleet.share.live.bridge import BASE, Bridge
from fleet.share.live.client import Live
from fleet.store import config
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Workspace
from tests.cli.conftest import Stage
from tests.laws.test_updates import PANIC
from tests.memory_remote import MemoryRemote, MemoryServer
from tests.serve.conftest import until
from tests.serve.served import HOST, TOKEN, Served, served

LESSON = "Check the CLI version before using --json"
FORGED = (
    '{"id":"p-%016x","w":{"tank.c0ffee42":{"add":"2026-11-21T08:00:00.000Z-0000","first":{"text":"forged"},'
    '"n":{"seen":%d}}}}'
)


class Agent:
    """One agent's workspace, and its live client in a thread of its own."""

    def __init__(self, folder: Path, name: str, where: Where) -> None:
        self.name, self.where = name, where
        self.root = folder / name
        if not self.root.exists():
            self.root.mkdir()
            (self.root / config.FILE_NAME).write_text("")
        self.arrived = 0
        self.logged: list[str] = []
        self.live: Live
        self._loop = asyncio.new_event_loop()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Agent":
        self._loop, self._ended = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            self._ended.set()

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        self._bell = asyncio.Event()
        self.live = Live(lambda: Workspace(self.root), self.name, self.where, self._count, self.logged.append)
        await self.live.run(self._changed)

    def _count(self) -> None:
        self.arrived += 1

    async def _changed(self) -> None:
        await self._bell.wait()
        self._bell.clear()

    def is_connected(self) -> bool:
        with suppress(AttributeError):
            return len(self.live._sockets) > 0 and not self.live._synced.isdisjoint({BASE})
        return False

    def stop(self) -> None:
        if self._thread is not None and not self._ended.is_set():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread is not None:
            self._thread.join(20)
            assert not self._thread.is_alive()
            self._thread = None

    def correct(self, lesson: str = LESSON) -> str:
        workspace = Workspace(self.root)
        logged = learning.correct(workspace, self.name, Correction("w", "r", lesson))
        workspace.close()
        self.ring()
        return logged.id

    def ring(self) -> None:
        with suppress(RuntimeError, AttributeError):
            self._loop.call_soon_threadsafe(self._bell.set)

    def lines(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self.root / "clan-learnings").glob("patterns*/*.jsonl")))

    def seen(self) -> dict[str, int]:
        workspace = Workspace(self.root)
        found = {each.text: each.count("seen") for each in workspace.patterns.records()}
        workspace.close()
        return found

    def replica(self) -> str:
        return Workspace(self.root).replicas().replicas[-1].name


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as running:
        yield running


@pytest.fixture
def agents(tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Agent]]:
    monkeypatch.setattr(living, "POLL_S", 0.1)
    made: list[Agent] = []

    def make(name: str, where: Where | None = None) -> Agent:
        made.append(Agent(tmp_path, name, where or server.where()))
        return made[-1].start()

    yield make
    for agent in made:
        agent.stop()


def test_a_lesson_of_one_is_on_the_disk_of_the_others_before_they_are_told(agents: Callable, server: Served):
    one, two, three = agents("tank"), agents("velma"), agents("slash")
    assert until(lambda: all(agent.is_connected() for agent in (one, two, three)))
    pattern = one.correct()
    assert until(lambda: two.arrived and three.arrived)
    for agent in (two, three):
        assert agent.seen() == {LESSON: 1}
        assert (agent.root / "clan-learnings" / PATTERNS.shard(one.replica())).is_file()
    assert list(server.rows()) == [f"{pattern}|{one.replica()}"]
    two.correct()
    assert until(lambda: one.seen() == three.seen() == {LESSON: 2})
    assert one.live.bridge.counts.refused == two.live.bridge.counts.healed == 0


def test_who_was_away_gets_what_it_missed(agents: Callable):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    one.correct()
    assert until(two.seen)
    two.stop()
    one.correct("Second lesson")
    two.correct("Logged while away")
    two.start()
    assert until(lambda: one.seen() == two.seen() == {LESSON: 1, "Second lesson": 1, "Logged while away": 1})


def test_a_server_that_starts_anew_is_given_everything_again(agents: Callable, server: Served, tmp_path: Path):
    one, two = agents("tank"), agents("velma")
    one.correct()
    assert until(lambda: two.seen() == {LESSON: 1})
    port = server.port
    server.end()
    two.correct("While nobody served")
    with served(port=port) as again:
        assert until(lambda: one.seen() == two.seen() == {LESSON: 1, "While nobody served": 1}, 40)
        assert until(lambda: len(again.rows()) >= 2)
        late = agents("late", again.where())
        assert until(lambda: late.seen() == one.seen())
        for agent in (one, two, late):
            agent.stop()


def test_a_sidecar_that_starts_again_says_nothing_twice(agents: Callable, server: Served):
    one, two = agents("tank"), agents("velma")
    one.correct()
    assert until(lambda: two.seen() == {LESSON: 1})
    one.stop()
    before = server.rows()
    one.start()
    assert until(one.is_connected)
    one.correct("Another")
    assert until(lambda: len(two.seen()) == 2)
    assert before.items() < server.rows().items()
    assert len(server.rows()) == len(before) + 1
    assert one.live.bridge.counts.healed == 0


def test_what_is_on_the_disk_is_not_written_there_again_at_each_start(agents: Callable, server: Served):
    one, two = agents("tank"), agents("velma")
    one.correct()
    one.correct("Another")
    assert until(lambda: len(two.seen()) == 2)
    lines = two.lines()
    two.stop()
    two.start()
    one.correct("A third")
    assert until(lambda: len(two.seen()) == 3)
    server.do(lambda: server.rooms._empty(server.rooms.room("clan")))  # everybody starts with a new document
    one.correct("A fourth")
    assert until(lambda: len(two.seen()) == 4)
    assert two.lines().startswith(lines)
    assert two.lines().count(b"\n") == 4
    assert until(lambda: two.live.bridge.counts.arrived == 2)  # counted a moment after they are on the disk


def test_a_room_that_no_message_holds_comes_and_goes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "UPDATE_BYTES_MAX", 10_000)
    monkeypatch.setattr(living, "MESSAGE_BYTES_MAX", 40_000)
    monkeypatch.setattr(serving, "MESSAGE_BYTES_MAX", 40_000)
    monkeypatch.setattr(serving, "QUEUE_BYTES_MAX", 20_000)
    many = Document(5)
    for number in range(500):
        many.put({f"p-{number:016x}|tank.c0ffee42": FORGED % (number, 1)})
    agent = Agent(tmp_path, "velma", Where("", ""))
    try:
        with served() as server:
            server.do(lambda: server.rooms.room("clan").document.apply(many.since()))
            agent.where = server.where()
            agent.start()
            assert until(lambda: agent.lines().count(b"\n") == 500)
        with served(port=server.port) as wiped:
            assert until(lambda: len(wiped.rows()) == 500)
    finally:
        agent.stop()


# --- what others may do to the room: on a server that lets them -------------------------------------------------------


class OpenRooms(Rooms):
    """Any other Yjs server: everybody may write everything."""

    def _after_undoing(self, room, guest, before, applied):
        return applied.update


class Vandal:
    """A client that writes what it likes."""

    def __init__(self, server: Served) -> None:
        self._context = connect(
            server.where().of("", ""), additional_headers=server.where().headers, compression=None, max_size=None
        )
        self.socket = self._context.__enter__()
        self.document = Document(int.from_bytes(os.urandom(CLIENT_ID_BITS // 8), "big"))

    def say(self, told: dict) -> None:
        self.socket.send(wire.Message(wire.SYNC, wire.STEP_1, self.document.state()).encode())
        while True:
            message = wire.Message.decode(self.socket.recv(timeout=10))
            if message.kind == wire.SYNC and message.step != wire.STEP_1:
                self.document.apply(message.payload)
                if message.step == wire.STEP_2:
                    break
        if update := self.document.put(told(self.document) if callable(told) else told):
            self.socket.send(wire.Message(wire.SYNC, wire.UPDATE, update).encode())

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def vandalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Agent, Agent, Vandal]]:
    monkeypatch.setattr(living, "HEAL_S", 0.05)
    with served(rooms=OpenRooms(Rules(HOST, TOKEN), os.urandom)) as server:
        one, two = (Agent(tmp_path, name, server.where()).start() for name in ("tank", "velma"))
        one.correct()
        assert until(lambda: two.seen() == {LESSON: 1})
        vandal = Vandal(server)
        yield server, one, two, vandal
        vandal.close()
        one.stop()
        two.stop()


def healthy(server: Served, *agents: Agent) -> bool:
    """Tell whether the room, read by somebody new, says all that the agents hold."""
    room: dict = {}
    for key, text in server.rows().items():
        name = key.partition("|")[0]
        room[name] = bridging.joined_entries(room.get(name), bridging._parsed(key, text).entry)
    held = [Workspace(agent.root) for agent in agents]
    known = [workspace.db.entries(workspace.db.names()) for workspace in held]
    return all(bridging.missing_of(room.get(name), entry) is None for each in known for name, entry in each.items())


@pytest.mark.parametrize(
    "value",
    [NOT_TEXT, "not json", "{}", "x" * (wire.ROW_BYTES_MAX + 1), FORGED % (1, 1), "", '{"id":"p-0000000000000001"}'],
    ids=["no text", "no line", "no id", "huge", "another id", "empty", "bare"],
)
def test_a_garbled_row_is_refused_counted_and_put_again(vandalised: tuple, value: str):
    server, one, two, vandal = vandalised
    vandal.say(lambda document: dict.fromkeys(document.rows(), value))
    assert until(lambda: one.live.bridge.counts.healed + two.live.bridge.counts.healed > 0)
    assert until(lambda: healthy(server, one, two))
    assert one.seen() == two.seen() == {LESSON: 1}
    if value not in ("", NOT_TEXT):
        assert until(lambda: one.live.bridge.counts.refused > 0)
        assert Workspace(one.root).quarantine.all()
    one.correct("Life goes on")
    assert until(lambda: two.seen() == {LESSON: 1, "Life goes on": 1})


def test_a_deletion_of_everything_is_healed(vandalised: tuple):
    server, one, two, vandal = vandalised
    two.correct("Another lesson")
    assert until(lambda: len(one.seen()) == 2)
    vandal.say(lambda document: dict.fromkeys(document.rows()))
    assert until(lambda: one.live.bridge.counts.healed + two.live.bridge.counts.healed >= 2)
    assert until(lambda: healthy(server, one, two))
    assert one.seen() == two.seen() == {LESSON: 1, "Another lesson": 1}


def test_rows_of_somebody_who_is_not_here_are_put_again_by_who_has_them(vandalised: tuple):
    server, one, two, vandal = vandalised
    one.stop()
    vandal.say(lambda document: dict.fromkeys(document.rows()))
    assert until(lambda: [key.rpartition("|")[2] for key in server.rows()] == [two.replica()])
    assert healthy(server, two)


def test_a_row_under_our_key_that_we_never_wrote_is_never_joined(vandalised: tuple):
    server, one, two, vandal = vandalised
    name = f"p-{7:016x}"
    forged = FORGED.replace("tank.c0ffee42", one.replica()) % (7, 1_000)
    two.stop()
    vandal.say({f"{name}|{one.replica()}": forged})
    assert until(lambda: one.live.bridge.counts.refused > 0)
    assert until(lambda: f"{name}|{one.replica()}" not in server.rows())
    assert one.seen() == {LESSON: 1}
    assert b"forged" not in one.lines()


def test_rows_that_are_none_of_a_clan_do_no_harm(vandalised: tuple):
    _, one, two, vandal = vandalised
    vandal.say(
        {"": "x", "|": "x", "a|b": "{}", "../../x|tank.c0ffee42": "{}", "p-0|tank.c0ffee42": "{}", "x" * 9_000: "y"}
    )
    assert until(lambda: min(agent.live.bridge.counts.refused for agent in (one, two)) >= 6)
    one.correct("Still here")
    assert until(lambda: two.seen() == {LESSON: 1, "Still here": 1})
    assert sorted(path.name for path in one.root.iterdir()) == [".fleet", "agents", "clan-learnings", "fleet.toml"]


def test_messages_that_are_none_cost_a_connection_at_most(vandalised: tuple):
    server, one, two, _ = vandalised
    for message in (b"\0\2\5abc", b"\1\3ab", b"", b"\0\2\4\1\1\1\1", b"\7x"):
        server.do(lambda message=message: [guest.send(message) for guest in server.rooms.rooms["clan"].guests])
    one.correct("After the noise")
    assert until(lambda: two.seen() == {LESSON: 1, "After the noise": 1}, 40)


def test_a_cloned_client_id_is_noticed_and_given_up(vandalised: tuple):
    server, one, two, vandal = vandalised
    before = one.live.bridge.documents[BASE].client_id
    vandal.document = Document(before)
    vandal.say({})
    vandal.say({f"p-{n:016x}|{one.replica()}": "clone" for n in range(3)})
    assert until(lambda: one.live.bridge.documents[BASE].client_id != before)
    one.correct("Under a fresh id")
    assert until(lambda: two.seen() == {LESSON: 1, "Under a fresh id": 1})
    assert until(lambda: healthy(server, one, two))


# --- what leaves, what is kept back -----------------------------------------------------------------------------------


def test_what_is_private_or_secret_or_paused_stays_here(agents: Callable, server: Served):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    workspace = Workspace(one.root)
    with workspace.writing("tank") as writer:
        for number, more in enumerate(('"scope":"private"', '"correct":"use ghp_%s"' % ("a1B2" * 9))):
            raw = FORGED.replace("tank.c0ffee42", writer.name) % (number + 1, 1)
            path = workspace.clan / PATTERNS.shard(writer.name)
            workspace.files.append(path, raw.replace('"text"', f'{more},"text"').encode() + b"\n")
    one.correct("May go")
    assert until(lambda: two.seen() == {"May go": 1})
    assert len(server.rows()) == 1
    workspace.state.pause("")
    assert until(lambda: not one.is_connected())
    one.correct("Not yet")
    time.sleep(0.5)
    assert two.seen() == {"May go": 1}
    workspace.state.resume()
    assert until(lambda: "Not yet" in two.seen())
    workspace.close()


def test_a_lesson_that_is_private_here_is_not_offered_when_an_older_copy_of_the_files_has_it(tmp_path):
    """A checkout of clan-learnings puts the lines back; the next sync takes them out, and a live room is faster."""
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "tank")
    kept, told = stand.correct("w", "Nobody else may read this"), stand.correct("w", "Anybody may read this")
    folder = stand.folder / "w"
    before = {path: path.read_bytes() for path in folder.glob("clan-learnings/patterns.d/*")}
    stand.run("w", "edit", kept, "--set", "scope=private")
    for path, data in before.items():
        path.write_bytes(data)
    with closing(Workspace(folder)) as workspace, workspace.writing("tank") as writer:
        bridge = Bridge(workspace, writer.name, partial(sidecar._private_among, workspace))
        offered = b"".join(update for _, update in bridge.offer())
    assert told.encode() in offered
    assert kept.encode() not in offered
    assert b"Nobody else" not in offered


def test_what_is_written_once_sharing_is_paused_stays_here_from_that_moment(agents: Callable, monkeypatch):
    one, two = agents("tank"), agents("velma")
    one.correct()
    assert until(lambda: two.seen() == {LESSON: 1})
    monkeypatch.setattr(living, "POLL_S", 60.0)
    time.sleep(0.3)  # until who looks every 0.1 s sees that
    workspace = Workspace(one.root)
    workspace.state.pause("")
    workspace.close()
    one.correct("Written while paused")
    time.sleep(1)
    assert two.seen() == {LESSON: 1}


@pytest.mark.parametrize("attempt", [1, 8, 5_000])
def test_the_pause_between_attempts_grows_to_its_limit_and_is_a_number_after_days(attempt: int):
    assert living._pause_s_max(attempt) == min(living.BACKOFF_S_MAX, living.BACKOFF_S * 2 ** min(attempt, 10))


def test_a_server_that_never_answers_is_asked_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(living, "OPEN_S", 0.1)
    asked: list[int] = []
    monkeypatch.setattr(living, "_pause_s_max", lambda attempt: asked.append(attempt) or 0.01)
    with socket.create_server((HOST, 0)) as hole:  # takes connections, and says nothing
        agent = Agent(tmp_path, "tank", Where(f"ws://{HOST}:{hole.getsockname()[1]}", "clan", TOKEN)).start()
        assert until(lambda: len(asked) >= 4)
        agent.stop()
    assert asked[:4] == [1, 2, 3, 4]
    assert len([each for each in agent.logged if "tried again" in each]) == 1


def test_what_stays_on_this_machine_is_told_to_no_proxy(agents: Callable, server: Served, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert until(agents("tank").is_connected)
    assert until(lambda: [each.agent for each in asyncio.run(living.who(server.where()))] == ["tank"])
    assert Where("wss://fleet.example.org", "clan").proxy


def test_a_part_from_the_far_future_is_held_and_passed_on_and_an_edit_of_today_still_wins(tmp_path: Path):
    room = Document(1)
    workspaces = {}
    for name in ("tank", "velma"):
        (tmp_path / name).mkdir()
        (tmp_path / name / config.FILE_NAME).write_text("")
        workspaces[name] = Workspace(tmp_path / name)
    bridges = {}
    for name, workspace in workspaces.items():
        with workspace.writing(name) as writer:
            bridges[name] = Bridge(workspace, writer.name)
    late = '{"id":"p-0000000000000001","w":{"far.00000000":{"set":{"category":["%s","%s"]}}}}'
    room.put({"p-0000000000000001|far.00000000": late % ("9999-01-01T00:00:00.000Z-0000", "never")})

    def exchange() -> None:
        for bridge in bridges.values():
            bridge.receive([(BASE, room.since(bridge.documents[BASE].state()))])
            bridge.offer()
            room.apply(bridge.documents[BASE].since(room.state()))

    exchange()
    path = workspaces["tank"].clan / "patterns.d/now.11111111.jsonl"
    workspaces["tank"].files.append(
        path, (late % ("2026-01-01T00:00:00.000Z-0000", "today")).replace("far.0", "now.0").encode() + b"\n"
    )
    exchange()
    exchange()
    for workspace in workspaces.values():
        found = workspace.patterns.get("p-0000000000000001")
        assert found is not None
        assert found.fields == {"category": "today"}
        assert workspace.db.future_ids() == ["p-0000000000000001"]
        workspace.close()


def test_what_came_by_live_and_comes_by_git_again_is_one_line_and_nobodys_clone(tmp_path: Path):
    room, git = Document(1), MemoryServer()
    roots = {}
    for name in ("tank", "velma"):
        roots[name] = tmp_path / name
        roots[name].mkdir()
        (roots[name] / config.FILE_NAME).write_text("")
    tank = Workspace(roots["tank"])
    learning.correct(tank, "tank", Correction("w", "r", LESSON))
    learning.correct(tank, "tank", Correction("w2", "r2", LESSON))
    with tank.writing("tank") as writer:
        bridge = Bridge(tank, writer.name)
    for _, update in bridge.offer():
        room.apply(update)
    velma = Workspace(roots["velma"])
    with velma.writing("velma") as writer:
        other = Bridge(velma, writer.name)
    other.receive([(BASE, room.since())])
    for workspace in (velma, tank, velma):  # the neighbour brings it to git before its author does
        sharing.sync_with(workspace, MemoryRemote(git, workspace.tree), sleep=lambda _: None)
    assert len(tank.replicas().replicas) == 1
    assert not [warning for workspace in (tank, velma) for warning in workspace.warnings]
    for workspace in (tank, velma):
        assert [each.count("seen") for each in workspace.patterns.records()] == [2]
        assert workspace.db.outgoing() == []
        workspace.close()


def test_what_the_room_was_told_is_taken_back_in_the_room_though_git_never_had_it(tmp_path: Path):
    room = Document(1)
    bridge, other = (bridge_of(tmp_path / name, name) for name in ("tank", "velma"))
    tank, velma = bridge.workspace, other.workspace

    def offer() -> None:
        for _, update in bridge.offer():
            room.apply(update)
        other.receive([(BASE, room.since())])

    stale = Discovery(id="", problem="the cache is stale", solution="clear it", type="discovery", confidence="medium")
    found, _ = learning.discover(tank, "tank", stale)
    learning.correct(tank, "tank", Correction("w", "r", LESSON))
    offer()
    assert [each.count("seen") for each in velma.patterns.records()] == [1]
    undoing.undo(tank)
    learning.correct(tank, "tank", Correction("w", "r", LESSON))
    undoing.undo(tank)
    lessons.retract(tank, "tank", found.id)
    learning.correct(tank, "tank", Correction("w", "r", "Never told to anybody"))
    undoing.undo(tank)
    offer()
    assert [each.count("seen") for each in velma.patterns.records()] == [0]
    assert velma.discoveries.retracted() == {found.id}
    assert "Never told" not in "".join(room.rows().values())
    for workspace in (tank, velma):
        workspace.close()


def test_what_a_copy_takes_back_of_what_the_room_has_is_taken_back_there_and_a_third_one_passes_it_on(tmp_path: Path):
    bridge, other, late = (bridge_of(tmp_path / name, name) for name in ("tank", "velma", "trinity"))
    learning.correct(bridge.workspace, "tank", Correction("w", "r", LESSON), session="s")
    shutil.copytree(tmp_path / "tank", tmp_path / "copy")
    [(_, stated)] = bridge.offer()
    copy = bridge_of(tmp_path / "copy", "tank")
    undoing.undo(copy.workspace)
    assert copy.offer() == [], "as far as it knows nobody has it"
    for each in (copy, other, late):
        each.receive([(BASE, stated)])
    other.receive(copy.offer())
    anew, room = Bridge(other.workspace, other.writer), Document(1)  # of a server that started anew
    assert anew.offer() == []
    room.apply(late.documents[BASE].since())
    anew.receive([(BASE, room.since())])
    late.receive(anew.offer())
    for each in (other, late):
        assert [found.count("seen") for found in each.workspace.patterns.records()] == [0]
    for each in (bridge, copy, other, late):
        each.workspace.close()


def test_a_line_that_cannot_be_written_waits_and_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / config.FILE_NAME).write_text("")
    workspace = Workspace(tmp_path)
    with workspace.writing("velma") as writer:
        bridge = Bridge(workspace, writer.name)
    room = Document(1)
    room.put({"p-0000000000000001|tank.c0ffee42": FORGED % (1, 1)})
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(DiskError, match="space"):
            bridge.receive([(BASE, room.since())])
    assert bridge.counts.arrived == 0
    bridge.offer()
    assert bridge.counts.arrived == 1
    assert b"forged" in (workspace.clan / "patterns.d/tank.c0ffee42.jsonl").read_bytes()
    workspace.close()


def test_a_document_that_broke_while_a_sync_held_the_lock_is_still_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bridge = bridge_of(tmp_path, "tank")
    room, broken = Document(1), Document(27)
    room.put({"p-0000000000000001|slash.c0ffee42": FORGED % (1, 1)})
    bridge.documents[BASE] = broken
    with monkeypatch.context() as busy:
        busy.setattr(bridge, "_write", lambda: (_ for _ in ()).throw(BusyError("another process has it")))
        with pytest.raises(BusyError):
            bridge.receive([(BASE, PANIC[0]), (BASE, PANIC[1]), (BASE, room.since())])
    bridge.receive([])
    assert bridge.must_renew
    bridge.workspace.close()


def bridge_of(folder: Path, *agents: str) -> Bridge:
    """Make a workspace in which agents write, and the bridge of the first of them."""
    folder.mkdir(exist_ok=True)
    (folder / config.FILE_NAME).write_text("")
    workspace = Workspace(folder)
    for agent in reversed(agents):
        with workspace.writing(agent) as writer:
            name = writer.name
    return Bridge(workspace, name)


def test_a_document_that_broke_over_an_update_is_given_up_for_a_new_one(tmp_path: Path):
    bridge = bridge_of(tmp_path, "tank")
    broken = bridge.documents[BASE] = Document(27)
    bridge.receive([(BASE, PANIC[0]), (BASE, PANIC[1]), (BASE, Document(5).put({"a|b": "c"}))])
    assert bridge.must_renew
    assert bridge.documents[BASE] is not broken
    bridge.renew()
    assert not bridge.must_renew
    assert bridge.offer() == []
    bridge.workspace.close()


def test_who_ends_while_another_process_holds_the_lock_does_not_wait_for_it(agents: Callable):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    workspace = Workspace(two.root)
    with workspace.locked():
        one.correct()
        time.sleep(1)
        assert two.live.problem == ""
        began = time.monotonic()
        two.stop()
        assert time.monotonic() - began < 1.5
    two.start()
    assert until(lambda: two.seen() == {LESSON: 1})
    workspace.close()


def test_what_arrives_while_the_database_cannot_be_read_is_taken_in_afterwards(agents: Callable, monkeypatch):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    take, failed = two.live.bridge._take, []

    def failing(*given: object) -> None:
        if not failed:
            failed.append(given)
            raise DiskError("no room")
        take(*given)

    monkeypatch.setattr(two.live.bridge, "_take", failing)
    one.correct()
    assert until(lambda: failed and two.seen() == {LESSON: 1}, 30)
    assert until(lambda: two.live.problem == "")


def test_a_line_that_waits_for_the_lock_is_written_when_it_is_free(agents: Callable, monkeypatch: pytest.MonkeyPatch):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    monkeypatch.setattr(living, "POLL_S", 60.0)
    workspace = Workspace(two.root)
    with workspace.locked():
        one.correct()
        time.sleep(1)
    assert until(lambda: two.seen() == {LESSON: 1}, 30)
    workspace.close()


def test_a_row_under_the_key_of_another_agent_of_this_machine_is_refused_too(tmp_path: Path):
    bridge, room = bridge_of(tmp_path, "tank", "velma"), Document(1)
    other = next(r.name for r in bridge.workspace.replicas().replicas if r.agent == "velma")
    room.put({f"p-{1:016x}|{other}": FORGED.replace("tank.c0ffee42", other) % (1, 1_000)})
    bridge.receive([(BASE, room.since())])
    assert (bridge.counts.refused, bridge.counts.arrived) == (1, 0)
    assert list(bridge.workspace.patterns.records()) == []
    bridge.workspace.close()


def test_a_row_that_goes_is_not_put_again_while_another_says_as_much(tmp_path: Path):
    bridge, room = bridge_of(tmp_path, "velma"), Document(1)
    same = dict.fromkeys((f"p-{1:016x}|tank.c0ffee42", f"p-{1:016x}|slash.5e1f0a77"), FORGED % (1, 1))
    room.put(same)
    bridge.receive([(BASE, room.since())])
    for key, updates in zip(same, (0, 1), strict=True):
        bridge.receive([(BASE, room.put({key: None}))])
        assert len(bridge.offer()) == updates
    bridge.workspace.close()


# --- large clans ------------------------------------------------------------------------------------------------------


def test_a_large_clan_spreads_over_further_rooms_and_all_find_them(
    agents: Callable, server: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bridging, "ROOM_PATTERNS", 5)
    one, two = agents("tank"), agents("velma")
    for number in range(12):
        one.correct(f"Lesson number {number}")
    assert until(lambda: len(two.seen()) == 12)
    assert until(lambda: len(one.live.bridge.documents) == len(two.live.bridge.documents) == 17, 40)
    assert until(lambda: len(one.live._sockets) == len(two.live._sockets) == 17, 40)
    two.correct("After it grew")
    assert until(lambda: len(one.seen()) == 13)
    digits = {name for name, room in server.do(lambda: dict(server.rooms.rooms)).items() if len(room.document)}
    assert "clan" in digits
    assert len(digits) > 1
    late = agents("late")
    assert until(lambda: len(late.seen()) == 13, 40)


@pytest.mark.skipif(not os.environ.get("FLEET_TEST_ROOMS"), reason="takes ten seconds; FLEET_TEST_ROOMS=1 runs it")
def test_a_clan_that_outgrows_one_room_for_real_spreads_and_loses_nothing(agents: Callable, server: Served):
    one, two = agents("tank"), agents("velma")
    assert until(lambda: one.is_connected() and two.is_connected())
    workspace = Workspace(one.root)
    with workspace.writing("tank") as writer:
        path = workspace.clan / PATTERNS.shard(writer.name)
        lines = (FORGED.replace("tank.c0ffee42", writer.name) % (n << 48 | n, 1) for n in range(bridging.ROOM_PATTERNS))
        workspace.files.append(path, b"".join(line.encode() + b"\n" for line in lines))
    workspace.close()
    one.ring()
    assert until(lambda: two.live.bridge.counts.arrived == bridging.ROOM_PATTERNS, 120)
    assert not one.live.bridge.is_large  # as many as one room holds
    assert len(one.live.bridge.documents) == len(two.live.bridge.documents) == 1
    two.correct("One more than a room holds")
    assert until(lambda: len(one.live._sockets) == len(two.live._sockets) == 17, 120)
    for number in range(20):
        one.correct(f"After it grew, number {number}")
    assert until(lambda: len(two.lines().splitlines()) == bridging.ROOM_PATTERNS + 21, 120)
    digits = {name for name, room in server.do(lambda: dict(server.rooms.rooms)).items() if len(room.document)}
    assert "clan" in digits
    assert len(digits) > 5
    late = agents("late")
    assert until(lambda: late.is_connected() and len(late.live._sockets) == 17, 120)
    assert until(lambda: len(late.seen()) == len(one.seen()) and late.live.bridge.counts.arrived > 10_000, 120)
    known = [Workspace(agent.root).db for agent in (one, two, late)]
    known = [db.entries(db.names()) for db in known]
    assert known[0] == known[1] == known[2]
    assert len(known[0]) == bridging.ROOM_PATTERNS + 21


def test_many_lines_go_out_in_pieces(tmp_path: Path):
    (tmp_path / config.FILE_NAME).write_text("")
    workspace = Workspace(tmp_path)
    with workspace.writing("tank") as writer:
        path = workspace.clan / PATTERNS.shard(writer.name)
        workspace.files.append(path, b"".join((FORGED % (n, 1)).encode() + b"\n" for n in range(6_000)))
        bridge = Bridge(workspace, writer.name)
    updates = [update for _, update in bridge.offer()]
    assert len(updates) > 1
    assert max(map(len, updates)) < 2 * wire.UPDATE_BYTES_MAX < wire.MESSAGE_BYTES_MAX
    assert len(bridge.documents[BASE]) == 6_000
    workspace.close()


# --- addresses and people ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:8377", "ws://localhost:1", "ws://[::1]:8377", "wss://fleet.example.org/x"]
)
def test_addresses_that_are_taken(url: str):
    assert Where.named(config.Live(url=url)).url == url


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ws://fleet.example.org",
            "http://127.0.0.1",
            "ws://",
            "127.0.0.1:1",
            "ws://u:p@127.0.0.1",
            "ws://127.0.0.1:x",
        ),
        *("ws://192.0.2.1:8377", "ws://127.0.0.1.evil.example", "wss://x?token=1", "ws://127.0.0.1:99999"),
        *(f"wss://{'a' * 70}.example", "wss://..", "ws://127.0.0.1:1/#x"),
    ],
)
def test_addresses_that_are_not_and_clear_text_beyond_this_machine(url: str):
    with pytest.raises(UsageError):
        Where.named(config.Live(url=url))


def test_who_is_here_knows_agents_and_nothing_else():
    presence = wire.Presence(time.monotonic)
    presence.set(1, {"agent": "tank", "replica": "tank.c0ffee42", "since": "2026", "on": "x" * 999, "more": 1})
    presence.set(2, {"agent": "../x", "replica": "tank.c0ffee42"})
    presence.set(3, {"agent": 5})
    presence.set(5, {"agent": "tank", "replica": "mallory.0000000f"})
    presence.set(4, {"user": {"name": "a browser"}})
    assert living._online(presence) == [living.Online("tank", "tank.c0ffee42", "2026", "x" * limits.ON_CHARS_MAX)]


def test_who_is_here_and_on_what(agents: Callable, server: Served):
    one = agents("tank")
    assert until(one.is_connected)
    Workspace(one.root).state.put(**{"on:tank": "the parser"})
    assert until(lambda: [each.on for each in asyncio.run(living.who(server.where()))] == ["the parser"])
    one.stop()
    assert asyncio.run(living.who(server.where())) == []


def test_the_default_port_and_a_visitors_address_are_what_the_pages_say():
    assert limits.LIVE_PORT == 8377
    assert Where("ws://x", "clan").of("a", "tank.c0ffee42") == "ws://x/clan-a?replica=tank.c0ffee42"
    assert _Visitor("clan", "") != json.loads('["clan", ""]')


def test_a_client_that_cannot_begin_closes_the_workspace_that_it_opened(tmp_path, monkeypatch):
    root = tmp_path / "velma"
    root.mkdir()
    (root / config.FILE_NAME).write_text("")
    opened, closed = [], []

    def refused(self: Workspace, *_: object) -> None:
        opened.append(self)
        raise BusyError("somebody else writes here")

    def close(self: Workspace) -> None:
        closed.append(self)

    monkeypatch.setattr(Workspace, "writing", refused)
    monkeypatch.setattr(Workspace, "close", close)
    live = Live(lambda: Workspace(root), "velma", Where(f"ws://{HOST}:1", "room"), lambda: None, print)

    async def changed() -> None:
        await asyncio.Event().wait()

    with pytest.raises(BusyError):
        asyncio.run(live.run(changed))
    assert closed == opened != []
