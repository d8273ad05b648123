"""Live through the real command line: a server, sidecars, `fleet who`; and how each of them ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from fleet.model.errors import BusyError
from fleet.share.live import access
from fleet.store.workspace import Workspace, World
from tests.serve.conftest import Crew, until

TOKEN = "a-token-of-this-test-0123"


class Server:
    """`fleet live serve`, in a process of its own."""

    def __init__(self, crew: Crew, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleet", "live", "serve", "--port", "0", *words],
            cwd=crew.folder,
            env=crew.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().split()[-1]

    def end(self, how: int = signal.SIGTERM) -> tuple[int, float, str]:
        """End it; return its exit code, how long that took, and what it said."""
        began = time.monotonic()
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, time.monotonic() - began, said


@pytest.fixture
def server(crew: Crew) -> Iterator[Server]:
    made = Server(crew)
    yield made
    if made.process.poll() is None:
        made.end()


def live(crew: Crew, agent: str, url: str, more: str = "") -> str:
    """Make a workspace without any git remote, in the live room."""
    crew.run(agent, "init", "--agent", agent, "--yes")
    crew.set(agent, f'url = "{url}"\n{more}', "live")
    crew.run(agent, "live", "join", expect=None)
    return agent


def who(crew: Crew, where: str, **env: str) -> list[dict]:
    return json.loads(crew.run(where, "who", "--json", **env).stdout)["online"]


def test_a_lesson_appears_at_the_others_without_any_command(crew: Crew, server: Server):
    one, two, three = (live(crew, agent, server.url) for agent in ("tank", "velma", "slash"))
    for where in (one, two, three):
        crew.up(where)
    assert until(lambda: len(who(crew, one)) == 3)
    crew.correct(one, "Pin the image digest")
    assert until(lambda: all("Pin the image digest" in crew.lines(where) for where in (two, three)))
    assert crew.seen(two) == crew.seen(three) == {"Pin the image digest": 1}
    assert "in a moment" in crew.run(two, "who", "--on", "the parser\x1b[31m").stderr
    assert until(lambda: any(each["on"] == "the parser" for each in who(crew, one)))
    shown = crew.run(one, "who").stdout
    assert "velma" in shown
    assert "(here)" in next(line for line in shown.splitlines() if line.startswith("tank"))

    def others() -> list[tuple[str, str]]:  # the dashboard asks no server: the sidecar wrote it down
        found = json.loads(crew.run(one, "--json").stdout)["online"]
        return [(each["agent"], each["on"]) for each in found]

    assert until(lambda: others() == [("slash", ""), ("velma", "the parser")])


def test_a_sidecar_serves_where_it_is_told_to(crew: Crew, server: Server):
    port = int(server.url.rpartition(":")[2])
    server.end()
    one = live(crew, "tank", "", f"serve = true\nport = {port}\n")
    two = live(crew, "velma", f"ws://127.0.0.1:{port}")
    first = crew.up(one)
    crew.up(two)
    assert until(lambda: crew.run(two, "who", "--json", expect=None).returncode == 0 and len(who(crew, two)) == 2)
    crew.correct(two, "Quote every path")
    assert until(lambda: "Quote every path" in crew.lines(one))
    began = time.monotonic()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)
    assert first.returncode == 0
    assert time.monotonic() - began < 8


def test_a_token_is_read_from_the_environment_and_never_from_the_file(crew: Crew):
    (crew.folder / "token").write_text(TOKEN)
    server = Server(crew, "--token-file", str(crew.folder / "token"))
    one = live(crew, "tank", server.url)
    done = crew.run(one, "who", expect=5, FLEET_LIVE_TOKEN=f"not {TOKEN}")
    assert "401" in done.stderr
    assert TOKEN not in done.stderr
    assert who(crew, one, FLEET_LIVE_TOKEN=TOKEN) == who(crew, one) == []
    assert server.end()[0] == 0


def test_the_server_ends_at_once_when_told_and_says_nothing_of_its_inside(crew: Crew, server: Server):
    one = live(crew, "tank", server.url)
    crew.up(one)
    assert until(lambda: who(crew, one))
    code, took_s, said = server.end(signal.SIGINT)
    assert (code, said) == (0, "")
    assert took_s < 8  # of a moment; ten is what an end without us takes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--host", "0.0.0.0"), "Nothing was started"),
        (("--token-file", "missing"), "nothing was started"),
        (("--token-file", "empty"), "Nothing was started"),
        (("--tls-cert", "missing"), "nothing was started"),
        (("--tls-cert", "empty", "--tls-key", "empty"), "nothing was started"),
        (("--port", "99999"), "--port"),
    ],
)
def test_what_cannot_be_served_is_said_before_it_starts(crew: Crew, words: tuple[str, ...], told: str):
    (crew.folder / "empty").write_text("\n")
    done = crew.run(".", "live", "serve", *words, expect=2)
    assert done.stdout == ""
    assert told in done.stderr


def test_a_port_that_is_taken_is_said(crew: Crew, server: Server):
    done = crew.run(".", "live", "serve", "--port", server.url.rpartition(":")[2], expect=6)
    assert "nothing was started" in done.stderr


def test_who_without_a_room_or_without_a_server_says_what_to_do(crew: Crew, server: Server):
    crew.run("alone", "init", "--agent", "alone", "--yes")
    assert "fleet live join" in crew.run("alone", "who", expect=2).stderr
    one = live(crew, "tank", server.url)
    assert "once `fleet sidecar` runs here" in crew.run(one, "who", "--on", "the parser").stderr
    server.end()
    done = crew.run(one, "who", expect=5)
    assert "nothing is lost" in done.stderr
    assert "nobody answers there now" in crew.run(one, "live", "join", server.url).stderr
    two = live(crew, "velma", "ws://fleet.example.org")
    assert "wss://" in crew.run(two, "who", expect=2).stderr


def test_nobody_comes_in_without_the_token_that_the_server_made(crew: Crew, server: Server):
    """Loopback is open to every account of a machine: another user reads and writes nothing, token or none."""
    [kept] = (crew.folder / ".local/state/fleet").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {'0' * 48}"}):
        with pytest.raises(InvalidStatus) as turned:
            connect(f"{server.url}/clan", additional_headers=headers).__enter__()
        assert turned.value.response.status_code == 401
    one = live(crew, "tank", server.url)
    crew.up(one)
    assert until(lambda: who(crew, one))
    kept.chmod(0o644)  # whoever could read it knows it: it opens nothing any more
    assert "nothing is lost" in crew.run(one, "who", expect=5).stderr
    server.end()
    assert kept.read_bytes() == b""


def test_a_second_server_of_ours_on_a_port_leaves_the_token_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with access.published(8377, TOKEN):
        with (
            pytest.raises(BusyError, match=r"another server of yours holds .*live-8377\.token"),
            access.published(8377, "another"),
        ):
            pass
        assert access._published_token(8377) == TOKEN
    assert access._published_token(8377) == ""


def test_sidecars_of_a_folder_that_start_at_once_come_under_one_key(crew: Crew):
    crew.run("tank", "init", "--agent", "tank", "--yes")
    root = crew.folder / "tank"
    keys: list[str] = []

    def entropy(size: int) -> bytes:  # another one starts while the first one makes its key
        keys.append(access.Access(Workspace(root)).key())
        return os.urandom(size)

    keys.append(access.Access(Workspace(root, World(entropy=entropy))).key())
    assert len(keys) == 2
    assert len({*keys}) == 1


def test_a_strangers_server_on_our_port_is_told_nothing(crew: Crew):
    """What listens there while no server of ours does is somebody else's: it gets no token, no lesson, no name."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0.2)
        url = f"ws://127.0.0.1:{stranger.getsockname()[1]}"
        server = Server(crew, "--port", "0")
        server.end(signal.SIGKILL)  # its token stays behind, and is nobody's
        [kept] = (crew.folder / ".local/state/fleet").iterdir()
        assert kept.read_bytes()
        kept.rename(kept.with_name(f"live-{stranger.getsockname()[1]}.token"))
        one = live(crew, "tank", url)
        crew.correct(one, "Pin the image digest")
        crew.up(one)
        crew.run(one, "who", expect=5)
        until(lambda: heard.append(accepted(stranger)) or heard[-1], 3)
    assert not any(heard)


def accepted(server: socket.socket) -> bytes:
    """Return the first bytes that somebody sends to a server within a moment; b"" for nobody."""
    try:
        with server.accept()[0] as one:
            one.settimeout(1)
            return one.recv(1000) or b"connected"
    except TimeoutError:
        return b""


def test_a_room_on_another_machine_that_a_file_names_is_shown_and_nothing_is_sent_unasked(crew: Crew):
    crew.run("tank", "init", "--agent", "tank", "--yes")
    crew.set("tank", 'url = "wss://clan.invalid"\ntoken_env = "FLEET_EMBEDDING_KEY"\n', "live")
    done = crew.run("tank", "live", "join", expect=2, FLEET_EMBEDDING_KEY=TOKEN)
    assert "live room clan at wss://clan.invalid, with the token in FLEET_EMBEDDING_KEY, if it is set" in done.stderr
    assert "Pass --yes" in done.stderr
    assert "nobody has agreed" in crew.run("tank", "who", expect=2).stderr


@pytest.mark.parametrize("setting", ['url = "{url}"\nserve = true\nport = 1', "serve = true\nport = {port}"])
def test_a_room_that_a_tracked_file_names_is_used_after_a_yes_alone(crew: Crew, setting: str):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0.2)
        port = stranger.getsockname()[1]
        crew.run("tank", "init", "--agent", "tank", "--yes")
        crew.set("tank", setting.format(url=f"ws://127.0.0.1:{port}", port=port) + "\n", "live")
        env = {"FLEET_LIVE_TOKEN": TOKEN}
        crew.correct("tank", "Pin the image digest")
        crew.up("tank", **env)
        assert "fleet live join" in crew.run("tank", "who", expect=2, **env).stderr
        assert not until(lambda: accepted(stranger), 2)
        assert "nobody has agreed" in crew.events("tank", "live")[0]["what"]
        crew.end()
        crew.started.clear()
        crew.run("tank", "live", "join")
        if "url" in setting:
            crew.up("tank", **env)
            assert until(lambda: TOKEN.encode() in accepted(stranger))
            crew.run("tank", "live", "leave")
            assert until(lambda: any("it was left" in each["what"] for each in crew.events("tank", "live")))
        path = crew.folder / "tank/fleet.toml"
        path.write_text(path.read_text().replace("[live]\n", '[live]\nroom = "another"\n'))
        assert "nobody has agreed" in crew.run("tank", "who", expect=2, **env).stderr


def test_a_joined_room_needs_no_line_in_the_file(crew: Crew, server: Server):
    for agent in ("tank", "velma"):
        crew.run(agent, "init", "--agent", agent, "--yes")
        crew.run(agent, "live", "join", server.url, "--room", "tent")
        crew.up(agent)
    assert until(lambda: len(who(crew, "tank")) == 2)
    crew.correct("tank", "Pin the image digest")
    assert until(lambda: "Pin the image digest" in crew.lines("velma"))
    crew.run("tank", "live", "leave")
    crew.run("tank", "who", expect=2)
    crew.run("tank", "live", "leave", expect=1)


@pytest.mark.parametrize(
    "words",
    [
        ("ws://fleet.example.org",),
        ("http://127.0.0.1",),
        ("wss://me:secret@fleet.example.org",),
        ("wss://fleet.example.org?token=x",),
        ("--room", "../x"),
        ("--token-env", "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_what_can_be_no_room_is_not_joined(crew: Crew, words: tuple[str, ...]):
    crew.run("tank", "init", "--agent", "tank", "--yes")
    done = crew.run("tank", "live", "join", *words, expect=2)
    assert "secret@" not in done.stderr
    crew.run("tank", "who", expect=2)
