# ruff: noqa: ARG002 - an arm without a memory hears nothing of what it is told
"""Arms of the replay: what an agent is told in a session, and what becomes of what it learns there.

``Nothing`` tells nothing; ``Tail`` puts the newest twenty notes at the start; ``Fleet`` is the real hook,
called in this process as a host calls it: the payload on descriptor 0, the answer on descriptor 1.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.replay.sessions import Event, Session, Symptom
from fleet import hook as entry
from fleet.app import events, learning, setup, sharing
from fleet.learn.corrections import Correction
from fleet.reflect import memory_md
from fleet.store.workspace import Workspace

TAIL = 20
EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit")
_ID = re.compile(r"\bp-[0-9a-f]{4,16}\b")


class Told(NamedTuple):
    """What an agent was told at one event: the text, and whether the call was stopped."""

    text: str = ""
    is_stopped: bool = False


class Nothing:
    """Arm without a memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, session: Session) -> Told:
        """Return what a session starts with."""
        return Told()

    def prompt(self, text: str) -> Told:
        """Return what is added to a prompt."""
        return Told()

    def before(self, call: Event) -> Told:
        """Return what a call is answered with before it runs."""
        return Told()

    def after(self, call: Event, result: Event) -> Told:
        """Return what is said about a call's end."""
        return Told()

    def interrupted(self, at: str) -> None:
        """Hear that the person stopped the turn."""

    def stop(self) -> Told:
        """Return what is said at the end of a turn."""
        return Told()

    def learned(self, symptom: Symptom, right: str) -> None:
        """Log a lesson."""

    def end(self) -> None:
        """End the session: what was learned goes out."""

    def about(self, text: str, known: Mapping[str, Symptom]) -> set[Symptom]:
        """Return the symptoms whose lessons stand in a text."""
        return set()

    def memory_in(self, text: str) -> int:
        """Return how many characters of a text are the agent's own memory."""
        return 0

    def heard(self) -> dict[str, int]:
        """Return how many signals were heard, by kind."""
        return {}


class Tail(Nothing):
    """The newest notes of all, at the start of a session: ``tail -20`` of a shared file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._shared: list[str] = []
        self._mine: list[str] = []

    def begin(self, session: Session) -> Told:
        """Return the last lines of the file."""
        return Told("\n".join(self._shared[-TAIL:]))

    def learned(self, symptom: Symptom, right: str) -> None:
        """Add a line."""
        self._mine.append(f"{symptom.lesson} -> {right}"[:400])

    def end(self) -> None:
        """Push the lines."""
        self._shared += self._mine
        self._mine = []

    def about(self, text: str, known: Mapping[str, Symptom]) -> set[Symptom]:
        """Return the symptoms whose lines stand in a text."""
        return {symptom for symptom in known.values() if symptom.lesson in text}


class Fleet(Nothing):
    """The hooks of fleet: one workspace a person, one remote.

    Args:
        folder: where all of it lies.
        is_synced: False lets each person learn alone.
    """

    def __init__(self, folder: Path, *, is_synced: bool = True) -> None:
        super().__init__(folder)
        self._is_synced = is_synced
        self._remote = folder / "clan.git"
        subprocess.run(["git", "init", "-q", "--bare", str(self._remote)], check=True)
        self._roots: dict[str, Path] = {}
        self._session: Session | None = None
        self._root = folder
        self._edits = 0
        self._left: list[list[str]] = []
        self._ids: dict[str, Symptom] = {}
        events._start_process = self._leave  # type: ignore[attr-defined]  # what a hook leaves to a process is done here, at once
        for name in [name for name in os.environ if name.startswith(("FLEET_", "CLAUDE", "GIT_"))]:
            del os.environ[name]

    def _leave(self, call: Any, which: str) -> None:
        self._left.append([which, call.root, call.agent, call.session, call.host])

    def _home(self, who: str) -> Path:
        if who not in self._roots:
            root = self.folder / who
            root.mkdir()
            remote = str(self._remote) if self._is_synced else ""
            workspace, *_ = setup.join(root, who, remote, "", ephemeral=False)
            if remote:
                sharing.sync(workspace, who, yes=True)
            workspace.close()
            self._roots[who] = root
        return self._roots[who]

    # --- the host ----------------------------------------------------------------------------------------------------

    def _call(self, event: str, **more: Any) -> Told:
        assert self._session is not None
        payload = {
            "session_id": self._session.id,
            "hook_event_name": event,
            "cwd": str(self._root),
            "transcript_path": str(self._transcript),
            "prompt_id": "x",
            **more,
        }
        out = hook([event], json.dumps(payload).encode())
        while self._left:
            hook(self._left.pop(0), b"")
        try:
            said = json.loads(out) if out.strip() else {}
        except ValueError:
            said = {}
        inner = said.get("hookSpecificOutput", {})
        reason = said.get("reason", "") or inner.get("permissionDecisionReason", "")
        text = "\n".join(filter(None, [inner.get("additionalContext", ""), reason]))
        return Told(text, inner.get("permissionDecision") == "deny")

    def _write(self, role: str, content: Any, at: str) -> None:
        assert self._session is not None
        kind = "assistant" if role == "assistant" else "user"
        told = {"type": kind, "sessionId": self._session.id, "cwd": str(self._root), "timestamp": at}
        self._lines += 1
        told |= {"uuid": f"{self._session.id}-{self._lines}", "message": {"role": role, "content": content}}
        with self._transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")

    def _here(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's input with the paths of the recorded folder as paths below the workspace."""
        assert self._session is not None
        cwd = self._session.cwd
        return {
            name: value.replace(cwd, str(self._root)) if isinstance(value, str) else value
            for name, value in given.items()
        }

    def begin(self, session: Session) -> Told:
        """Start a session, and take in what the others pushed, as a start's background does."""
        self._session, self._root = session, self._home(session.who)
        self._transcript = self.folder / ".claude/projects" / session.who / f"{session.id}.jsonl"
        self._transcript.parent.mkdir(parents=True, exist_ok=True)
        self._lines = 0
        return self._call("SessionStart", source="startup")

    def prompt(self, text: str) -> Told:
        """Submit a prompt."""
        told = self._call("UserPromptSubmit", prompt=text)
        self._write("user", text, "")
        return told

    def before(self, call: Event) -> Told:
        """Ask before a tool call."""
        given = self._here(call["input"])
        block = {"type": "tool_use", "id": call["id"], "name": call["tool"], "input": given}
        self._write("assistant", [block], call["t"])
        return self._call("PreToolUse", tool_name=call["tool"], tool_input=given, tool_use_id=call["id"])

    def after(self, call: Event, result: Event) -> Told:
        """Tell how a call ended; an edit touches a file, as it did."""
        given, text = self._here(call["input"]), result["text"]
        block = {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": not result["ok"]}
        self._write("user", [block], result["t"])
        if result.get("rejected"):
            return Told()
        if result["ok"] and call["tool"] in EDITING:
            self._edits += 1
            path = Path(str(given.get("file_path", "")))
            path = path if path.is_relative_to(self._root) else self._root / "elsewhere.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(self._edits))
        more = {"tool_name": call["tool"], "tool_input": given, "tool_use_id": call["id"]}
        if result["ok"]:
            return self._call("PostToolUse", tool_response={"stdout": text, "interrupted": False}, **more)
        return self._call("PostToolUseFailure", error=text, **more)

    def interrupted(self, at: str) -> None:
        """Stop the turn."""
        self._write("user", [{"type": "text", "text": "[Request interrupted by user]"}], at)

    def stop(self) -> Told:
        """End a turn; a question is answered by no lesson: those are worded by the fixed rule alone."""
        return self._call("Stop", stop_hook_active=False)

    def learned(self, symptom: Symptom, right: str) -> None:
        """Log a correction, as `fleet correct` does."""
        assert self._session is not None
        workspace = Workspace(self._root)
        told = Correction(wrong=symptom.line, right=right, pattern=symptom.lesson)
        logged = learning.correct(workspace, self._session.who, told, session=self._session.id)
        self._ids[logged.id] = symptom
        workspace.close()

    def end(self) -> None:
        """End the session: the work of its end is done at once."""
        self._call("SessionEnd", reason="exit")

    def about(self, text: str, known: Mapping[str, Symptom]) -> set[Symptom]:
        """Return the symptoms whose lessons stand in a text, by their ids."""
        found = set(_ID.findall(text))
        return {symptom for each, symptom in self._ids.items() if any(each.startswith(short) for short in found)}

    def memory_in(self, text: str) -> int:
        """Return how much of a text is the memory."""
        assert self._session is not None
        path = self._root / "agents" / self._session.who / "memory.md"
        memory = memory_md.hot(path.read_text("utf-8")) if path.is_file() else ""
        return len(memory) if "Memory of" in text else 0

    def heard(self) -> dict[str, int]:
        """Return how many entries of the logs a signal made, by what it was heard as."""
        found: dict[str, int] = {}
        for root in self._roots.values():
            for path in (root / "agents").glob("*/corrections.md"):
                for kind in re.findall(r"(\w+) \(confidence=", path.read_text("utf-8")):
                    found[kind] = found.get(kind, 0) + 1
        return found


def hook(words: list[str], data: bytes) -> bytes:
    """Call the hook's entry as a host does, in this process; return what it wrote to descriptor 1."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(data)
        given.seek(0)
        with _put({0: given.fileno(), 1: out.fileno(), 2: err.fileno()}):
            entry.main(words)
        out.seek(0)
        return out.read()


@contextmanager
def _put(handles: Mapping[int, int]) -> Iterator[None]:
    kept = {target: os.dup(target) for target in handles}
    for target, handle in handles.items():
        os.dup2(handle, target)
    try:
        yield
    finally:
        for target, handle in kept.items():
            os.dup2(handle, target)
            os.close(handle)
