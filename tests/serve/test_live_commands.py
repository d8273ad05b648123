"""Live through the real command line: a server, sidecars, `fleet who`; and how each of them ends."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

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
    crew.run(two, "who", "--on", "the parser\x1b[31m")
    assert until(lambda: any(each["on"] == "the parser" for each in who(crew, one)))
    shown = crew.run(one, "who").stdout
    assert "velma" in shown
    assert "(here)" in next(line for line in shown.splitlines() if line.startswith("tank"))


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
    assert time.monotonic() - began < 4


def test_a_token_is_read_from_the_environment_and_never_from_the_file(crew: Crew):
    (crew.folder / "token").write_text(TOKEN)
    server = Server(crew, "--token-file", str(crew.folder / "token"))
    one = live(crew, "tank", server.url)
    done = crew.run(one, "who", expect=5)
    assert "401" in done.stderr
    assert TOKEN not in done.stderr
    assert who(crew, one, FLEET_LIVE_TOKEN=TOKEN) == []
    assert server.end()[0] == 0


def test_the_server_ends_at_once_when_told_and_says_nothing_of_its_inside(crew: Crew, server: Server):
    one = live(crew, "tank", server.url)
    crew.up(one)
    assert until(lambda: who(crew, one))
    code, took_s, said = server.end(signal.SIGINT)
    assert (code, said) == (0, "")
    assert took_s < 2.5


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
    assert "[live]" in crew.run("alone", "who", expect=2).stderr
    one = live(crew, "tank", server.url)
    server.end()
    done = crew.run(one, "who", expect=5)
    assert "nothing is lost" in done.stderr
    two = live(crew, "velma", "ws://fleet.example.org")
    assert "wss://" in crew.run(two, "who", expect=2).stderr
