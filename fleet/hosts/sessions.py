"""Reader of whole sessions: what any supported host's transcript tells of, line by line, within a bound.

A transcript is read from its beginning to its end in one go and never held as a whole. Of one that is larger than
``BYTES_MAX`` the middle is passed over, and said to be. A line that is torn, damaged or longer than any that a client
writes costs itself alone. Claude Code's lines are read by :mod:`fleet.hosts.transcripts`; the other hosts' forms are
here, as their clients write them.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from fleet.hosts import payloads, transcripts
from fleet.hosts.payloads import joined, record_in, text_in
from fleet.text.prompts import SAID_CHARS_MAX, Event, Session

BYTES_MAX = 64 * 1024 * 1024
"""So much of one transcript is read: its first eighth, and its end."""

_LINE_BYTES_MAX = 4 * 1024 * 1024
_STORED_MAX = 2_000
_OK_CHARS_MAX = 400
_FAILED_CHARS_MAX = 1_600
_EXITED = re.compile(r"(?:Process exited with code|Exit Code:|completed with exit code)\s*(\d{1,3})")
_HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)
_CODEX_FRAMES = ("# AGENTS.md instructions", "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>")
_DENIED = re.compile(r"(?:rejected|denied|declined|cancell?ed) by (?:the )?user", re.IGNORECASE)


def read(path: Path) -> Session:
    """Return what a transcript tells of. Never raises: what stands in the way is in ``trouble``."""
    session = Session(os.fspath(path), path.stem, payloads.UNKNOWN)
    try:
        with transcripts.opened(os.fspath(path)) as file:
            _read_into(session, file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError) as why:
        session.trouble = f"cannot be read: {getattr(why, 'strerror', None) or why}"
    return session


def found(root: str, paths: Iterable[Path] = ()) -> Iterator[Session]:
    """Yield the sessions of transcripts that are named, or in folders of them; else of those that hosts keep of a root.

    Of a session that began elsewhere, and was not named, the events are left out.
    """
    named = list(paths)
    inside = (sorted((*path.glob("*.jsonl"), *path.glob("*/*.jsonl"))) if path.is_dir() else [path] for path in named)
    for path in [file for files in inside for file in files] if named else stored(root):
        session = read(path)
        if not named and session.cwd and not _is_below(session.cwd, root):
            session.events = []
        yield session


def stored(root: str) -> list[Path]:
    """Return the transcripts that hosts keep on this machine and that may be of a project, each where it is kept.

    Of Codex and Copilot, which keep those of all projects together, only those that say that they began in it.
    """
    home = Path.home()
    claude = os.environ.get("CLAUDE_CONFIG_DIR") or os.fspath(home / ".claude")
    found = [each for folder in transcripts.folders(root, claude) for each in sorted(Path(folder).glob("*.jsonl"))]
    codex = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    shared = [
        *(codex / "sessions").glob("*/*/*/rollout-*.jsonl"),
        *(home / ".copilot/session-state").glob("*/events.jsonl"),
    ]
    newest = sorted(shared, key=lambda path: path.parts[-4:], reverse=True)[:_STORED_MAX]
    found += sorted(path for path in newest if _is_below(_began_in(path), root))
    found += sorted((home / ".gemini/tmp" / Path(root).name / "chats").glob("session-*.jsonl"))
    return found


def _is_below(folder: str, root: str) -> bool:
    """Tell whether a folder is the root, or below it."""
    return folder == root or folder.startswith(f"{root}/")


def _began_in(path: Path) -> str:
    """Return the folder that a transcript's first line names, or ""."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            found = json.loads(file.readline(_LINE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ""
    told = record_in(found, "payload", "data")
    return text_in(record_in(told, "context") or told, "cwd")


def _read_into(session: Session, file: BinaryIO, size: int) -> None:
    told = blake2b(digest_size=8)
    reader: _Reader | None = None
    bad = 0
    for line in _lines(session, file, size):
        told.update(line)
        session.lines += 1
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            bad += bool(line.strip())
            continue
        if not isinstance(found, dict):
            bad += 1
            continue
        if reader is None and (kind := _host_of(found)):
            session.host, reader = kind, _READERS[kind]()
        if reader is not None:
            for event in reader.read(session, found):
                _add(session, event)
    if reader is not None:
        for event in reader.rest():
            _add(session, event)
    session.events.sort(key=lambda event: event.line)
    session.digest = told.hexdigest()
    if bad:
        session.trouble = "; ".join(filter(None, [session.trouble, f"{bad:,} of its lines could not be read"]))


def _add(session: Session, event: Event) -> None:
    event.line = event.line or session.lines
    if event.kind == "result":
        event.text = event.text[-_OK_CHARS_MAX:] if event.is_ok else event.text[-_FAILED_CHARS_MAX:]
    session.events.append(event)


def _lines(session: Session, file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the whole lines, without the middle of a transcript that is too large, and without monstrous ones."""
    skip_from, skip_to = (BYTES_MAX // 8, size - BYTES_MAX * 7 // 8) if size > BYTES_MAX else (size + 1, 0)
    if skip_to:
        session.trouble = f"{skip_to - skip_from:,} bytes in its middle are more than is read, and were passed over"
    at = 0
    while line := file.readline(_LINE_BYTES_MAX):
        at += len(line)
        if not line.endswith(b"\n") and len(line) == _LINE_BYTES_MAX:
            while (rest := file.readline(_LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                at += len(rest)
            at += len(rest)
            line = b"?\n"  # too long to be anything but a file that was read into it
        if at > skip_from and skip_to:
            file.seek(skip_to)
            file.readline(_LINE_BYTES_MAX)  # the half of a line
            at, skip_to = file.tell(), 0
        yield line


# --- the hosts' forms -------------------------------------------------------------------------------------------------


class _Reader:
    """A form of transcript: what a line tells of, and what is known only at the end."""

    def read(self, session: Session, told: dict[str, Any]) -> Iterable[Event]:
        raise NotImplementedError

    def rest(self) -> Iterable[Event]:
        return ()


class _Claude(_Reader):
    def read(self, session: Session, told: dict[str, Any]) -> Iterable[Event]:
        if not session.cwd:
            session.id = text_in(told, "sessionId") or session.id
            session.cwd = text_in(told, "cwd")
        return transcripts.events_in(told)


class _Codex(_Reader):
    """Rollouts: ``event_msg`` has what was said, ``response_item`` what was called and how it ended."""

    def read(self, session: Session, told: dict[str, Any]) -> Iterator[Event]:
        payload, at = record_in(told, "payload"), text_in(told, "timestamp")
        kind = payload.get("type")
        if told.get("type") == "session_meta":
            session.id, session.cwd = text_in(payload, "id") or session.id, text_in(payload, "cwd")
        elif told.get("type") == "event_msg":
            if kind == "item_completed" and (item := record_in(payload, "item")):
                kind, payload = item.get("type"), item
            if kind in ("UserMessage", "user_message"):
                yield from _spoken("prompt", at, _said(payload))
            elif kind in ("AgentMessage", "agent_message"):
                yield from _spoken("said", at, _said(payload))
            elif kind == "turn_aborted":
                yield _event("stopped", at)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            given = _given(payload.get("arguments", payload.get("input", payload.get("action"))))
            yield _call(at, text_in(payload, "call_id"), text_in(payload, "name") or "shell", given)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            yield _result(at, text_in(payload, "call_id"), _output(payload.get("output")))


class _Copilot(_Reader):
    def read(self, session: Session, told: dict[str, Any]) -> Iterator[Event]:
        data, kind, at = record_in(told, "data"), told.get("type"), text_in(told, "timestamp")
        if kind == "session.start":
            session.id = text_in(data, "sessionId") or session.id
            session.cwd = text_in(record_in(data, "context"), "cwd")
        elif kind == "user.message":
            yield from _spoken("prompt", at, text_in(data, "content"))
        elif kind == "assistant.message":
            yield from _spoken("said", at, text_in(data, "content"))
        elif kind == "tool.execution_start":
            yield _call(at, text_in(data, "toolCallId"), text_in(data, "toolName"), _given(data.get("arguments")))
        elif kind == "tool.execution_complete":
            text = text_in(record_in(data, "result"), "content") or text_in(record_in(data, "error"), "message")
            code = record_in(data, "shellExecution").get("exitCode")
            is_error = data.get("success") is False or code not in (None, 0)
            yield _result(at, text_in(data, "toolCallId"), text, is_error=is_error)


class _Gemini(_Reader):
    """A message is written again as it grows: the last one of an id holds, at the place of the first."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    def read(self, session: Session, told: dict[str, Any]) -> Iterable[Event]:
        session.id = text_in(told, "sessionId") or session.id
        if name := text_in(told, "id"):
            line, _ = self._known.get(name, (session.lines, {}))
            self._known[name] = (line, told)
        return ()

    def rest(self) -> Iterator[Event]:
        for line, told in self._known.values():
            for event in self._events(told):
                event.line = line
                yield event

    def _events(self, told: dict[str, Any]) -> Iterator[Event]:
        at, content = text_in(told, "timestamp"), told.get("content")
        if told.get("type") == "user":
            yield from _spoken("prompt", at, _HOOK_CONTEXT.sub("", joined(content)).strip())
            return
        yield from _spoken("said", at, joined(content))
        calls = told.get("toolCalls")
        for each in calls if isinstance(calls, list) else ():
            if isinstance(each, dict):
                name = text_in(each, "id")
                yield _call(at, name, text_in(each, "name"), _given(each.get("args")))
                status = each.get("status")
                if status == "cancelled":
                    yield _event("refused", at, name, is_ok=False)
                elif each.get("result") is not None:
                    text = _HOOK_CONTEXT.sub("", _answer(each["result"]))
                    yield _result(at, name, text, is_error=status == "error")


def _host_of(told: dict[str, Any]) -> str:
    """Return whose transcript a line is from; "" for one that does not tell."""
    if isinstance(told.get("payload"), dict) and told.get("type") in ("session_meta", "response_item", "event_msg"):
        return payloads.CODEX
    if "projectHash" in told:
        return payloads.GEMINI
    if isinstance(told.get("data"), dict) and "." in text_in(told, "type"):
        return payloads.COPILOT
    if isinstance(told.get("message"), dict) or "parentUuid" in told:
        return payloads.CLAUDE_CODE
    return ""


_READERS: dict[str, Callable[[], _Reader]] = {
    payloads.CLAUDE_CODE: _Claude,
    payloads.CODEX: _Codex,
    payloads.COPILOT: _Copilot,
    payloads.GEMINI: _Gemini,
}


# --- what they share --------------------------------------------------------------------------------------------------


def _event(kind: str, at: str, name: str = "", text: str = "", **more: Any) -> Event:
    event = Event(kind, name, text[-SAID_CHARS_MAX:], **more)
    event.at = at
    return event


def _spoken(kind: str, at: str, text: str) -> Iterator[Event]:
    if text.strip() and not text.lstrip().startswith(_CODEX_FRAMES):
        yield _event(kind, at, "", text)


def _call(at: str, name: str, tool: str, given: dict[str, Any]) -> Event:
    command = given.get("cmd", given.get("command"))
    if isinstance(command, list):  # ["bash", "-lc", "make test"]
        words = [word for word in command if isinstance(word, str)]
        command = words[-1] if words[:1] and words[0].endswith("sh") else " ".join(words)
    if isinstance(command, str):
        given = {"command": command}
    return _event("call", at, name, tool=payloads.TOOLS.get(tool.lower(), tool), about=transcripts.about(given))


def _result(at: str, name: str, text: str, *, is_error: bool = False) -> Event:
    found = _EXITED.search(text[:400]) or _EXITED.search(text[-400:])
    is_ok = not is_error and (found is None or int(found[1]) == 0)
    if not is_ok and _DENIED.search(text[:400]):
        return _event("refused", at, name, is_ok=False)
    return _event("result", at, name, text, is_ok=is_ok)


def _given(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return {"input": arguments}
        return parsed if isinstance(parsed, dict) else {"input": arguments}
    return arguments if isinstance(arguments, dict) else {}


def _output(output: Any) -> str:
    """Return the text of a Codex tool's output: a text, or JSON with the text and the exit code."""
    text = output if isinstance(output, str) else joined(output)
    if text.startswith('{"output"'):
        try:
            told = json.loads(text)
            code = told.get("metadata", {}).get("exit_code", 0)
            return f"Process exited with code {code}\n{told.get('output', '')}"
        except (ValueError, AttributeError, RecursionError):
            return text
    return text


def _answer(result: Any) -> str:
    answers = (record_in(each, "functionResponse") for each in (result if isinstance(result, list) else ()))
    return "\n".join(filter(None, (text_in(record_in(each, "response"), "output", "error") for each in answers)))


def _said(payload: dict[str, Any]) -> str:
    return text_in(payload, "message") or joined(payload.get("content"))
