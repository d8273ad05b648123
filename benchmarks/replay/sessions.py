"""Recorded sessions of a team: their events, in the order of time, and the symptoms that are counted in them.

What a symptom is stands in docs/evaluation.md. It knows nothing of fleet's own families of commands and errors.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]

SYMPTOM_CHARS_MAX = 140
_ERROR = re.compile(
    r"error|fail|fatal|panic|not found|no such|denied|cannot|can't|undefined|invalid|unknown|expected|missing|unable|"
    r"exceed|conflict|does not exist|has not been read|matches of the string|not in the|already exists|unrecognized",
    re.IGNORECASE,
)
_EXIT = re.compile(r"\AExit code \d+\n?")
_TAGS = re.compile(r"</?tool_use_error>|\x1b\[[0-9;]*[A-Za-z]")
_PATH = re.compile(r"(?:\.{0,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*(?::\d+)*")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,}\b|\d+(?:\.\d+)*")
_ASSIGNMENT = re.compile(r"\w+=\S*\s+")
_BEFORE = re.compile(r"\A\s*(?:cd\s+[^&;|]+(?:&&|;)\s*)+")
_WORD = re.compile(r"[a-z][\w:-]*\Z", re.ASCII)


class Session(NamedTuple):
    """One session: its id, whose it is, where, and its events in order."""

    id: str
    who: str
    cwd: str
    events: list[Event]


class Symptom(NamedTuple):
    """An error as it is known again: the family of the command or the tool, and the line that tells, made general."""

    family: str
    line: str

    @property
    def lesson(self) -> str:
        """The lesson that the fixed rule words for it."""
        return f"`{self.family}` fails with: {self.line}"


def load(path: Path) -> list[Session]:
    """Return the sessions of a file in the order in which they began."""
    found: dict[str, Session] = {}
    for raw in path.read_text("utf-8").splitlines():
        event = json.loads(raw)
        if event["e"] == "start":
            found[event["s"]] = Session(event["s"], event["who"], event["cwd"], [])
        elif event["s"] in found:
            found[event["s"]].events.append(event)
    return list(found.values())


def family(tool: str, given: Mapping[str, Any]) -> str:
    """Return what a call is an instance of: a command's first word and its subcommand; else the tool."""
    command = given.get("command")
    if tool != "Bash" or not isinstance(command, str):
        return tool
    command = _BEFORE.sub("", command).strip()
    while found := _ASSIGNMENT.match(command):
        command = command[found.end() :]
    words = re.split(r"[\s;|&]+", command, maxsplit=3)[:2]
    first = words[0].rsplit("/", 1)[-1][:40] if words else ""
    return " ".join([first, *(word for word in words[1:] if _WORD.match(word) and len(word) <= 20)]) or tool


def symptom(call: Event, result: Event) -> Symptom | None:
    """Return what went wrong in a call; None where nothing did, or a person refused it."""
    if result["ok"] or result.get("rejected") or call["tool"].startswith(("mcp__", "ExitPlan", "AskUser")):
        return None
    lines = [line.strip() for line in _TAGS.sub("", _EXIT.sub("", result["text"])).splitlines() if line.strip()]
    told = next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "")
    general = _NUMBER.sub("N", _PATH.sub("PATH", told))
    general = " ".join(general.split())[:SYMPTOM_CHARS_MAX]
    return Symptom(family(call["tool"], call["input"]), general) if general else None


def calls(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield each call of a session with its result."""
    made = {event["id"]: event for event in events if event["e"] == "call"}
    for event in events:
        if event["e"] == "result" and event["id"] in made:
            yield made[event["id"]], event
