"""Reader of whole sessions: the events of any supported host's transcript, line by line, within a bound.

A transcript is read once, from its beginning to its end, and is never in memory as a whole. If it is larger than
``BYTES_MAX``, the middle is left out, and ``trouble`` says so. A line that is torn, damaged or too long is left out
alone. Claude Code's lines are parsed by :mod:`fleet.hosts.transcripts`; the other hosts' formats are parsed here.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from fleet.hosts import payloads, transcripts
from fleet.hosts.payloads import joined, parsed, record_in, records_in, text_in
from fleet.store import homes
from fleet.text.prompts import EVENT_CHARS_MAX, Event, Session

BYTES_MAX = 64 * 1024 * 1024
"""Limit of what is read of one transcript: an eighth of it from the beginning, the rest from the end."""

Record = dict[str, Any]
"""One parsed line of a transcript."""

_LINE_BYTES_MAX = 4 * 1024 * 1024
_STORED_MAX = 2_000
_HEAD_BYTES_MAX = 1024 * 1024
"""Length of a transcript's beginning in which the folder of its session is looked for."""
_FOLDER_CHARS_MAX = 4_096  # no system takes a longer path
_OK_CHARS_MAX = 400
_FAILED_CHARS_MAX = 1_600
_EXITED = re.compile(r"(?:Process exited with code|Exit Code:|completed with exit code)\s*(\d{1,3})")
_HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)
_CODEX_FRAMES = ("# AGENTS.md instructions", "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>")
_DENIED = re.compile(r"(?:rejected|denied|declined|cancell?ed) by (?:the )?user", re.IGNORECASE)


def read(path: Path) -> Session:
    """Return the session of a transcript. Never raises: an error is in ``trouble``."""
    session = Session(os.fspath(path), path.stem, payloads.UNKNOWN)
    try:
        with transcripts.opened(os.fspath(path)) as file:
            _read_into(session, file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError) as why:
        session.trouble = f"cannot be read: {getattr(why, 'strerror', None) or why}"
    return session


def read_all(root: str, paths: Iterable[Path] = ()) -> Iterator[Session]:
    """Yield the sessions of transcripts, or of folders of them; without any, those that hosts keep of a project."""
    named = list(paths)
    inside = (sorted((*path.glob("*.jsonl"), *path.glob("*/*.jsonl"))) if path.is_dir() else [path] for path in named)
    yield from map(read, [file for files in inside for file in files] if named else stored(root))


def stored(root: str) -> list[Path]:
    """Return the paths of the transcripts of a project that hosts keep on this machine.

    Codex and Copilot have one folder for all projects, so there the transcript must name the project. Gemini CLI has a
    folder for each project, and a file in it must name the project: folders of equal names differ only by a number.
    """
    home = Path.home()
    claude = [path for folder in folders(root) for path in sorted(folder.glob("*.jsonl"))]
    codex = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    shared = [
        *(codex / "sessions").glob("*/*/*/rollout-*.jsonl"),
        *(home / ".copilot/session-state").glob("*/events.jsonl"),
    ]
    newest = sorted(shared, key=lambda path: path.parts[-4:], reverse=True)[:_STORED_MAX]
    paths = [path for path in (*claude, *sorted(newest)) if _is_inside(_began_in(path), root)]
    for mark in sorted((home / ".gemini/tmp").glob("*/.project_root")):
        if _is_inside(os.fsdecode(homes.read(os.fspath(mark), _FOLDER_CHARS_MAX)).strip(), root):
            paths += sorted(mark.parent.glob("chats/session-*.jsonl"))
    return paths


def folders(root: str) -> list[Path]:
    """Return the folders in which Claude Code keeps the sessions of a project, its worktrees, and the folders below.

    They are named by the real path that it was started in: ``-x-o-web`` may be ``/x/o/web`` or ``/x/o-web``. So a
    session in the folder must name this project; if none names any, the folder's name must be exactly the project's.
    """
    names = {re.sub(r"[^A-Za-z0-9]", "-", path) for path in (root, os.path.realpath(root), *_worktrees(root))}
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    found: list[Path] = []
    for folder in sorted((home / "projects").glob("*")):
        if any(f"{folder.name}-".startswith(f"{name}-") for name in names):
            began = [_began_in(path) for path in folder.glob("*.jsonl")]
            if any(_is_inside(each, root) for each in began) or (folder.name in names and not any(began)):
                found.append(folder)
    return found


def _worktrees(root: str) -> list[str]:
    """Return the folders that correspond to a workspace's root in the git worktrees of its main checkout."""
    top = root
    while not os.path.lexists(os.path.join(top, ".git")) and top != os.path.dirname(top):
        top = os.path.dirname(top)
    marks = []
    for path in sorted(Path(top, ".git", "worktrees").glob("*/gitdir")):
        mark = os.fsdecode(homes.read(os.fspath(path), _FOLDER_CHARS_MAX)).strip().replace("\0", "")
        marks += [os.path.join(path.parent, mark)] if mark else []
    below = os.path.relpath(root, top)
    return [os.path.normpath(os.path.join(os.path.dirname(each), below)) for each in marks]


def _is_inside(folder: str, root: str) -> bool:
    """Return whether a folder is a project's root (also by a link), is below it, or is in a worktree of the project."""
    roots = (root, os.path.realpath(root))
    is_below = any(folder == each or folder.startswith(f"{each}/") for each in roots)
    return is_below or (os.path.isabs(folder) and homes.root_around(folder) in roots)


def _began_in(path: Path) -> str:
    """Return the folder that a transcript names first, in its first part, or ""."""
    with suppress(OSError, ValueError), transcripts.opened(os.fspath(path)) as file:
        left = _HEAD_BYTES_MAX
        while left > 0 and (line := file.readline(_LINE_BYTES_MAX)):
            left -= len(line)
            record = parsed(line) if b'"cwd"' in line else {}
            data = record_in(record, "payload", "data")
            parts = (record, data, record_in(data, "context"))
            if folder := next(filter(None, (text_in(each, "cwd") for each in parts)), ""):
                return folder[:_FOLDER_CHARS_MAX]
    return ""


def _read_into(session: Session, file: BinaryIO, size: int) -> None:
    records = _records(session, file, size)
    for record in records:
        if host := _host_of(record):
            session.host = host
            for event in _READERS[host](session, chain([record], records)):
                event.line = event.line or session.lines
                if event.kind == "result":
                    event.text = event.text[-_OK_CHARS_MAX:] if event.is_ok else event.text[-_FAILED_CHARS_MAX:]
                session.events.append(event)
    session.events.sort(key=lambda event: event.line)


def _records(session: Session, file: BinaryIO, size: int) -> Iterator[Record]:
    """Yield the JSON objects of the lines; set the session's number of lines, digest, and trouble with bad lines."""
    digest, bad = blake2b(digest_size=8), 0
    for line in _lines(session, file, size):
        digest.update(line)
        session.lines += 1
        if record := parsed(line):
            yield record
        else:
            bad += line.strip() not in (b"", b"{}")
    session.digest = digest.hexdigest()
    if bad:
        session.trouble = "; ".join(filter(None, [session.trouble, f"{bad:,} of its lines could not be read"]))


def _lines(session: Session, file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines, without the middle of a transcript that is too large; a line that is too long becomes "?"."""
    skip_from, skip_to = (BYTES_MAX // 8, size - BYTES_MAX * 7 // 8) if size > BYTES_MAX else (size + 1, 0)
    if skip_to:
        session.trouble = f"{skip_to - skip_from:,} bytes in its middle are more than is read, and were passed over"
    while line := file.readline(_LINE_BYTES_MAX):
        if not line.endswith(b"\n") and len(line) == _LINE_BYTES_MAX:
            while (rest := file.readline(_LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            line = b"?\n"  # a large file was read in this line
        if skip_to and file.tell() > skip_from:
            file.seek(skip_to)
            file.readline(_LINE_BYTES_MAX)  # the second half of a line
            skip_to = 0
        yield line


# --- the hosts' formats -----------------------------------------------------------------------------------------------


def _claude(session: Session, records: Iterable[Record]) -> Iterator[Event]:
    for record in records:
        if not session.cwd:
            session.id = text_in(record, "sessionId") or session.id
            session.cwd = text_in(record, "cwd")
        yield from transcripts.events_in(record)


def _codex(session: Session, records: Iterable[Record]) -> Iterator[Event]:
    """Yield the events of rollouts: ``event_msg`` has the messages, ``response_item`` the calls and their output."""
    for record in records:
        payload, at = record_in(record, "payload"), text_in(record, "timestamp")
        kind = payload.get("type")
        if record.get("type") == "session_meta":
            session.id, session.cwd = text_in(payload, "id") or session.id, text_in(payload, "cwd")
        elif record.get("type") == "event_msg":
            if kind == "item_completed" and (item := record_in(payload, "item")):
                kind, payload = item.get("type"), item
            message = text_in(payload, "message") or joined(payload.get("content"))
            if kind in ("UserMessage", "user_message"):
                yield from _message("prompt", at, message)
            elif kind in ("AgentMessage", "agent_message"):
                yield from _message("said", at, message)
            elif kind == "turn_aborted":
                yield _event("stopped", at)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            arguments = _arguments(payload.get("arguments", payload.get("input", payload.get("action"))))
            yield _call(at, text_in(payload, "call_id"), text_in(payload, "name") or "shell", arguments)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            yield _result(at, text_in(payload, "call_id"), _output(payload.get("output")))


def _copilot(session: Session, records: Iterable[Record]) -> Iterator[Event]:
    for record in records:
        data, kind, at = record_in(record, "data"), record.get("type"), text_in(record, "timestamp")
        if kind == "session.start":
            session.id = text_in(data, "sessionId") or session.id
            session.cwd = text_in(record_in(data, "context"), "cwd")
        elif kind == "user.message":
            yield from _message("prompt", at, text_in(data, "content"))
        elif kind == "assistant.message":
            yield from _message("said", at, text_in(data, "content"))
        elif kind == "tool.execution_start":
            yield _call(at, text_in(data, "toolCallId"), text_in(data, "toolName"), _arguments(data.get("arguments")))
        elif kind == "tool.execution_complete":
            text = text_in(record_in(data, "result"), "content") or text_in(record_in(data, "error"), "message")
            code = record_in(data, "shellExecution").get("exitCode")
            is_error = data.get("success") is False or code not in (None, 0)
            yield _result(at, text_in(data, "toolCallId"), text, is_error=is_error)


def _gemini(session: Session, records: Iterable[Record]) -> Iterator[Event]:
    """Yield the events of each id's last record, since a message is rewritten as it grows; its line is the first's."""
    messages: dict[str, tuple[int, Record]] = {}
    for record in records:
        session.id = text_in(record, "sessionId") or session.id
        if name := text_in(record, "id"):
            line, _ = messages.get(name, (session.lines, {}))
            messages[name] = (line, record)
    for line, record in messages.values():
        for event in _gemini_events(record):
            event.line = line
            yield event


def _gemini_events(record: Record) -> Iterator[Event]:
    at, content = text_in(record, "timestamp"), record.get("content")
    if record.get("type") == "user":
        yield from _message("prompt", at, _HOOK_CONTEXT.sub("", joined(content)).strip())
        return
    yield from _message("said", at, joined(content))
    for call in records_in(record.get("toolCalls")):
        name, status = text_in(call, "id"), call.get("status")
        yield _call(at, name, text_in(call, "name"), _arguments(call.get("args")))
        if status == "cancelled":
            yield _event("refused", at, name, is_ok=False)
        elif call.get("result") is not None:
            text = _HOOK_CONTEXT.sub("", _answer(call["result"]))
            yield _result(at, name, text, is_error=status == "error")


def _host_of(record: Record) -> str:
    """Return the host that writes records of this form; "" for none in particular."""
    if isinstance(record.get("payload"), dict) and record.get("type") in ("session_meta", "response_item", "event_msg"):
        return payloads.CODEX
    if "projectHash" in record:
        return payloads.GEMINI
    if isinstance(record.get("data"), dict) and "." in text_in(record, "type"):
        return payloads.COPILOT
    if isinstance(record.get("message"), dict) or "parentUuid" in record:
        return payloads.CLAUDE_CODE
    return ""


_READERS: dict[str, Callable[[Session, Iterable[Record]], Iterator[Event]]] = {
    payloads.CLAUDE_CODE: _claude,
    payloads.CODEX: _codex,
    payloads.COPILOT: _copilot,
    payloads.GEMINI: _gemini,
}


# --- common parts -----------------------------------------------------------------------------------------------------


def _event(kind: str, at: str, name: str = "", text: str = "", **more: Any) -> Event:
    event = Event(kind, name, text[-EVENT_CHARS_MAX:], **more)
    event.at = at
    return event


def _message(kind: str, at: str, text: str) -> Iterator[Event]:
    if text.strip() and not text.lstrip().startswith(_CODEX_FRAMES):
        yield _event(kind, at, "", text)


def _call(at: str, name: str, tool: str, arguments: dict[str, Any]) -> Event:
    call = payloads.Payload("", {"tool_name": tool, "tool_input": arguments}, {})  # as a hook reads it
    arguments = {"command": call.command} if call.command else arguments
    return _event("call", at, name, tool=call.tool, about=transcripts.about(arguments))


def _result(at: str, name: str, text: str, *, is_error: bool = False) -> Event:
    exited = _EXITED.search(text[:400]) or _EXITED.search(text[-400:])
    is_ok = not is_error and (exited is None or int(exited[1]) == 0)
    if not is_ok and _DENIED.search(text[:400]):
        return _event("refused", at, name, is_ok=False)
    return _event("result", at, name, text, is_ok=is_ok)


def _arguments(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str) and arguments.strip() != "{}":
        return parsed(arguments) or {"input": arguments}
    return arguments if isinstance(arguments, dict) else {}


def _output(output: Any) -> str:
    """Return the text of a Codex tool's output: a text, or JSON with the text and the exit code."""
    text = output if isinstance(output, str) else joined(output)
    answer = parsed(text) if text.startswith('{"output"') else {}
    if not answer:
        return text
    code = record_in(answer, "metadata").get("exit_code", 0)
    return f"Process exited with code {code}\n{text_in(answer, 'output')}"


def _answer(result: Any) -> str:
    answers = (record_in(each, "functionResponse") for each in records_in(result))
    return "\n".join(filter(None, (text_in(record_in(each, "response"), "output", "error") for each in answers)))
