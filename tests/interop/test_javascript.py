"""A JavaScript Yjs client in the room: it reads, it sees what is new, and whatever it writes does no harm.

Not part of ``make test``: ``make test-interop`` downloads yjs and y-websocket from npm, once, into ``.cache``.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.share.live.access import Where
from tests.serve.served import HOST, TOKEN, Served, served

pytestmark = pytest.mark.skipif(
    os.environ.get("FLEET_TEST_INTEROP") != "1", reason="downloads npm packages: make test-interop"
)

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("FLEET_INTEROP_CACHE", HERE.parents[1] / ".cache" / "interop"))
LESSON = "Check the CLI version before using --json"
KINDS = [
    *("number", "float", "null", "bytes", "list", "map", "array", "text", "subdocument"),
    *("huge", "rubbish", "nul", "surrogate"),
]


@pytest.fixture(scope="session")
def modules() -> Path:
    """Return the folder with the packages, installed once for each lock file."""
    lock = (HERE / "package-lock.json").read_bytes()
    if not (CACHE / "node_modules").is_dir() or (CACHE / "package-lock.json").read_bytes() != lock:
        npm = shutil.which("npm")
        assert npm, "npm is needed to download yjs"
        CACHE.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, CACHE / name)
        subprocess.run([npm, "ci", "--prefix", str(CACHE), "--no-audit", "--no-fund"], check=True, timeout=600)
    return CACHE


class Browser:
    """The JavaScript client, in a process of its own."""

    def __init__(self, modules: Path, where: Where, params: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["node", str(HERE / "client.mjs"), where.url, where.room, json.dumps(params)],
            env={**os.environ, "FLEET_INTEROP_MODULES": str(modules)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, command: str, **given: object):
        self.process.stdin.write(json.dumps({"command": command, **given}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture(params=["ours", "any"])
def stage(request, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple]:
    """Two agents, and a JavaScript client: on fleet's server, and on one that lets everybody write everything."""
    from fleet.serve import room
    from fleet.serve.room import Rules
    from fleet.share.live import client as live
    from tests.serve.test_live import Agent, OpenRooms, until

    undone, not_allowed = [], room._not_allowed

    def noting(*asked: object) -> dict:
        undone.append(not_allowed(*asked))
        return undone[-1]

    monkeypatch.setattr(room, "_not_allowed", noting)
    monkeypatch.setattr(live, "HEAL_S", 0.05)
    with served(rooms=OpenRooms(Rules(HOST, TOKEN), os.urandom) if request.param == "any" else None) as server:
        agents = [Agent(tmp_path, name, server.where()).start() for name in ("tank", "velma")]
        agents[0].correct(LESSON)
        assert until(lambda: agents[1].seen() == {LESSON: 1})
        browser = Browser(modules, server.where(), {"token": TOKEN})
        browser.undone = undone
        assert until(lambda: browser.do("connected"))
        yield server, *agents, browser
        browser.end()
        for agent in agents:
            agent.stop()


def texts(rows: dict[str, str | None]) -> set[str]:
    said = [column for text in rows.values() if text for column in json.loads(text)["w"].values()]
    return {column["first"]["text"] for column in said if "first" in column}


def undisturbed(server: Served, one, two, browser: Browser) -> bool:
    """Tell whether everybody holds what they held, and the room says so to whoever joins it now."""
    from tests.serve.test_live import healthy

    return healthy(server, one, two) and one.seen() == two.seen() and LESSON in one.seen()


def test_it_reads_the_lessons_and_sees_a_new_one_arrive(stage: tuple):
    from tests.serve.test_live import until

    _, one, two, browser = stage
    assert texts(browser.do("rows")) == {LESSON}
    line = json.loads(next(iter(browser.do("rows").values())))
    assert line["w"][one.replica()]["n"]["seen"] == 1
    two.correct("A lesson while it looks on")
    assert until(lambda: texts(browser.do("rows")) == {LESSON, "A lesson while it looks on"})


def test_it_sees_who_is_here(stage: tuple):
    from tests.serve.test_live import until

    _, _, _, browser = stage
    browser.do("present", state={"user": {"name": "a browser"}, "agent": 5})
    assert until(lambda: {"tank", "velma"} <= {state.get("agent") for state in browser.do("here")})


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_of_every_kind_does_no_harm(stage: tuple, kind: str):
    from tests.serve.test_live import until

    server, one, two, browser = stage
    assert sorted(KINDS) == sorted(browser.do("kinds"))
    for key in [*browser.do("rows"), f"p-{1:016x}|{one.replica()}", f"p-{1:016x}|else.00000000", "rubbish", ""]:
        browser.do("garbage", key=key, kind=kind)
    browser.do("otherRoots")
    assert until(lambda: is_refused(browser, one, two))
    assert until(lambda: undisturbed(server, one, two, browser)), server.rows()
    assert one.seen() == {LESSON: 1}
    one.correct("Life goes on")
    assert until(lambda: two.seen() == {LESSON: 1, "Life goes on": 1})
    assert until(lambda: "Life goes on" in str(browser.do("rows")))


def is_refused(browser: Browser, *agents) -> bool:
    """Tell whether our server undid something, or an agent refused or healed it."""
    return any(browser.undone) or any(a.live.bridge.counts.refused or a.live.bridge.counts.healed for a in agents)


def test_a_forged_line_under_another_replicas_key_is_refused_by_who_can_know(stage: tuple):
    from tests.serve.test_live import FORGED, until

    server, one, two, browser = stage
    two.stop()  # who only looks on cannot know what another never wrote: a server of ours does, and its owner
    forged = FORGED.replace("tank.c0ffee42", one.replica()) % (9, 1_000)
    browser.do("set", key=f"p-{9:016x}|{one.replica()}", value=forged)
    assert until(lambda: is_refused(browser, one))
    assert until(lambda: "forged" not in str(server.rows()))
    assert one.seen() == {LESSON: 1}
    two.start()
    assert until(two.is_connected)
    assert two.seen() == {LESSON: 1}


def test_a_deletion_of_everything_is_healed(stage: tuple):
    from tests.serve.test_live import until

    server, one, two, browser = stage
    two.correct("Another lesson")
    assert until(lambda: len(texts(browser.do("rows"))) == 2)
    browser.do("clear")
    assert until(lambda: is_refused(browser, one, two))
    assert until(lambda: undisturbed(server, one, two, browser))
    assert until(lambda: texts(browser.do("rows")) == {LESSON, "Another lesson"})
