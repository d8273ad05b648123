"""Stage of the scripted quarter: real sessions, played twice under new ids, by three agents on two machines.

The clock is the test's. What a hook would have seen of a session is observed, its transcript is written as the client
writes it, and its end is worked off as the hook's background does it. Each night every agent sleeps, and its machine
exchanges with the one git remote that both have.
"""

import json
import random
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.replay.sessions import Event, Session, calls, family, load, symptom
from fleet import RELEASED_MS
from fleet.app import consolidating, learning, observing, session_end, setup, sharing
from fleet.hosts.local import LocalFolder
from fleet.learn.corrections_md import Correction
from fleet.reflect import auto_reflect
from fleet.reflect.auto_reflect import Scratchpad
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEGIN_MS = RELEASED_MS + 20 * DAY_MS
SECOND_MS = 45 * DAY_MS
"""The second play begins so long after the first."""
DAYS = 90
SEAT = {"dev1": ("east", "velma"), "dev5": ("west", "kai")}
"""Who of the recording sits where; all the others are one more agent on the first machine's checkout."""
OTHERS = ("east", "tank")
_SUBJECT = re.compile(r"git commit\b[^\n]*?-m [\"']?(?:\$\(cat <<'?EOF'?\n)?([^\"'\n]{8,80})")


class Seen(NamedTuple):
    """One observation: when, its kind, its words."""

    at_ms: int
    kind: str
    text: str


class Sat(NamedTuple):
    """A session as it is played.

    Attributes:
        end_ms: when it ends.
        machine: where.
        agent: whose.
        id: of it.
        seen: what is observed.
        learned: lessons that the agent logs.
        events: all of it, for the transcript.
    """

    end_ms: int
    machine: str
    agent: str
    id: str
    seen: list[Seen]
    learned: list[str]
    events: list[Event]

    @property
    def key(self) -> str:
        """What names the session in an observation, a block and a History line."""
        return f"{self.agent} {self.id}"


class Played(NamedTuple):
    """What came of a session: of its end; the lines that were observed; and what the reflection on it says."""

    closed: consolidating._Closing
    lines: list[str]
    told: dict[str, list[str]]


class Machine:
    """A checkout, and all that a test keeps in mind of it on its own."""

    def __init__(self, folder: Path, agents: list[str], remote: Path, wall: "Wall") -> None:
        self.root, self.wall = folder, wall
        self.random = random.Random(folder.name)
        self.agents = agents
        for agent in agents:
            setup.join(folder, agent, str(remote), "")[0].close()
        self.workspace = self.opened()
        for agent in agents:
            sharing.sync(self.workspace, agent, yes=True)

    def opened(self, files: Files | None = None) -> Workspace:
        """Return the workspace, opened."""
        outside = World(wall_ms=self.wall, entropy=self.random.randbytes, machine=lambda: self.root.name, durable=False)
        return Workspace(self.root, outside, files)

    def text(self, path: str) -> str:
        """Return a file's text; "" where there is none."""
        file = self.root / path
        return file.read_bytes().decode() if file.is_file() else ""

    def rows(self) -> list[auto_reflect.Entry]:
        """Return the rows under ``## Ready to Promote``."""
        return Scratchpad(self.text(auto_reflect.FILE)).ready()

    def play(self, sat: Sat) -> Played:
        """Play a session to its end."""
        lines = [
            observing.observe(self.root, sat.agent, sat.id, each.kind, each.text, each.at_ms).line for each in sat.seen
        ]
        self.wall.ms = sat.end_ms
        for pattern in sat.learned:
            told = Correction(wrong="it went wrong", right="see the lesson", pattern=pattern)
            learning.correct(self.workspace, sat.agent, told, session=sat.id)
        path = self.root.parent / "transcripts" / f"{sat.id}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in transcript(sat, str(self.root))))
        LocalFolder(str(self.root)).hear(sat.id, "claude-code", sat.agent, str(path), has_ended=True)
        log = auto_reflect.DailyLog(self.workspace.wall()[:10]).path
        logged = self.text(log)
        came = session_end.reflect_due(self.workspace, only=sat.id)
        plan = next((each.plan for each in came if each.plan is not None), None)
        said = plan.reflection if plan is not None else None
        closed = consolidating.close_session(self.workspace, sat.agent, sat.id)
        closed = closed._replace(log=log if self.text(log) != logged else "")
        return Played(closed, lines, consolidating._lines_of_reflection(said) if said is not None else {})

    def exchange(self) -> None:
        """Exchange with the other machine."""
        came = sharing.sync_if_agreed(self.workspace, self.agents[0])
        assert not came.why, came.why


class Wall:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = BEGIN_MS

    def __call__(self) -> int:
        self.ms += 1
        return self.ms


def machines(folder: Path, wall: Wall) -> dict[str, Machine]:
    """Return the two machines, which share a remote."""
    remote = folder / "clan.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    return {
        "east": Machine(folder / "east", ["velma", "tank"], remote, wall),
        "west": Machine(folder / "west", ["kai"], remote, wall),
    }


def sessions(corpus: Path, every: int) -> list[Sat]:
    """Return each so many-th recorded session of a seat, twice under new ids, in the order in which they end."""
    recorded = load(corpus)
    first = _ms(recorded[0].events[0]["t"])
    found = []
    by_seat: dict[tuple[str, str], list[Session]] = {}
    for session in recorded:
        by_seat.setdefault(SEAT.get(session.who, OTHERS), []).append(session)
    for session in (each for seat in by_seat.values() for each in seat[::every]):
        for play, later in enumerate((0, SECOND_MS)):
            shift = BEGIN_MS - first + later
            machine, agent = SEAT.get(session.who, OTHERS)
            seen = [each._replace(at_ms=each.at_ms + shift) for each in _seen(session)]
            end = _ms(session.events[-1]["t"]) + shift
            found.append(Sat(end, machine, agent, f"{session.id[:10]}-{play}", seen, _learned(session), session.events))
    return sorted(found, key=lambda each: (each.end_ms, each.id))


def _ms(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp() * 1000)


def _seen(session: Session) -> Iterator[Seen]:
    """Yield what is observed of a session: commits, failures turned green, and what the person refused."""
    red: dict[str, str] = {}
    for call, result in calls(session.events):
        at, command = _ms(result["t"]), str(call["input"].get("command", ""))
        kind, found = family(call["tool"], call["input"]), symptom(call, result)
        if found is not None:
            red[kind] = found.line
        elif result["ok"] and kind in red:
            yield Seen(at, "fix", f"Fixed: {kind}: {red.pop(kind)}")
        if result["ok"] and (subject := _SUBJECT.search(command)):
            yield Seen(at, "commit", f"Commit: {subject[1]}")
        if result.get("rejected"):
            said = " ".join(result["text"].rpartition("said:")[2].split())
            yield Seen(at, "dead-end", f"Dead end: {call['tool']} refused: {said or 'without a word'}")


def _learned(session: Session) -> list[str]:
    """Return the lessons that the agent logs: how its first command failed, and when."""
    found = (symptom(call, result) for call, result in calls(session.events))
    told = next((each for each in found if each is not None and each.family != "Edit"), None)
    return [f"{told.lesson}, seen yesterday"] if told is not None else []


def transcript(sat: Sat, root: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a transcript as Claude Code writes them."""
    for number, event in enumerate(sat.events):
        role: str = "assistant" if event["e"] == "call" else "user"
        content: object
        if event["e"] == "prompt":
            content = event["text"]
        elif event["e"] == "call":
            content = [{"type": "tool_use", "id": event["id"], "name": event["tool"], "input": event["input"]}]
        elif event["e"] == "result":
            content = [
                {
                    "type": "tool_result",
                    "tool_use_id": event["id"],
                    "content": event["text"],
                    "is_error": not event["ok"],
                }
            ]
        elif event["e"] == "interrupt":
            content = [{"type": "text", "text": "[Request interrupted by user]"}]
        else:
            continue
        yield {
            "type": role,
            "sessionId": sat.id,
            "cwd": root,
            "timestamp": event["t"],
            "uuid": f"{sat.id}-{number}",
            "message": {"role": role, "content": content},
        }
