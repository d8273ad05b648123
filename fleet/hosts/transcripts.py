"""Reader of Claude Code's transcript: the prompts, refusals and interruptions of a person, the calls and their results.

The client appends to it, one JSON object a line, while it is read: so the last line may be incomplete, and the next
reading begins where this one ended. Another host's transcript, a damaged line, and unknown types hold no event.
Standard library only. All of it is untrusted text, to be screened before it is stored or shown.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from fleet.hosts import local
from fleet.hosts.payloads import joined, parsed, records_in, text_in
from fleet.text.prompts import EVENT_CHARS_MAX, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

_BYTES_MAX = 16 * 1024 * 1024
"""Limit of one reading: a turn of hours. What lies before it is left out, and ``trouble`` says so."""

_ABOUT_CHARS_MAX = 300
_LINE_BYTES_MAX = 4 * 1024 * 1024

_MARKS = (
    b"want to proceed with this tool use",
    b"want to take this action right now",
    b"Permission for this tool use was denied",
    b"proposed a plan that was rejected by",
    b"[Request interrupted by ",
)
"""A turn without any of these, as most are, holds no refusal and no interruption, and is not parsed."""

_REFUSED = (
    r"(?:Error: |<tool_use_error>){0,2}"
    r"(?:The \S{1,40} doesn.t want to (?:proceed with this tool use|take this action right now)"
    r"|Permission for this tool use was denied"
    r"|The agent proposed a plan that was rejected by )"
)
_WITH_WORDS = r"(?is)\A.{0,400}?(?:the \S{1,40} said:|provided the following reason for the rejection:)\s*(?P<words>.*)"
_HINT = r"(?s)\s*(?:Note: The \S{1,40} next message may contain a correction or preference\..*|</tool_use_error>)\Z"
_NOT_THEIRS = r"The \S{1,40} wants to clarify these questions\."
_STOPPED = "[Request interrupted by "
_SUBJECTS = ("command", "file_path", "notebook_path", "path", "url", "query", "pattern", "description", "prompt")


class _Part:
    """Whole lines of a transcript, from one offset to another, and why some or all of it was not read, "" for none."""

    def __init__(self, data: bytes = b"", begins: int = 0, ends: int = 0, trouble: str = "") -> None:
        self.data, self.begins, self.ends, self.trouble = data, begins, ends, trouble

    def has_objection(self) -> bool:
        """Return, without parsing, whether a refusal or an interruption may be in it; in doubt, True."""
        return any(mark in self.data for mark in _MARKS)

    def events(self) -> Iterator[Event]:
        """Yield the events of the lines, in order. A line that cannot be parsed is left out."""
        offset = self.begins
        for line in self.data.splitlines(keepends=True):
            if len(line) <= _LINE_BYTES_MAX:
                yield from events_in(parsed(line), offset)
            offset += len(line)


class Transcript:
    """A session's transcript, read by hooks bit by bit: from the offset that was noted last."""

    def __init__(self, notes: local.SessionNotes, path: str) -> None:
        self._notes, self._path = notes, path

    def unread(self) -> _Part:
        """Return the part that was not read yet."""
        return _read(self._path, self._notes.read_to() or 0)

    def pass_over(self) -> None:
        """Begin at the end, where none of it was read yet."""
        if self._notes.read_to() is None:
            with suppress(OSError):
                self._notes.note_read(os.path.getsize(self._path))


def _read(path: str, since: int = 0) -> _Part:
    """Return the whole lines of a transcript from an offset on; the newest ``_BYTES_MAX`` of them. Never raises.

    A file that is shorter than the offset was rewritten: it is read as if for the first time.
    """
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            trouble = "is shorter than it was: rewritten, and read anew" if size < since else ""
            since = since if size >= since else 0
            start = max(since, size - _BYTES_MAX)
            if since and start > since:
                trouble = f"{start - since:,} bytes of it are more than is read at once, and were passed over"
            file.seek(start)
            data = file.read(size - start)
    except FileNotFoundError:
        return _Part(ends=since)  # the client writes it a moment after a session's first prompt
    except (OSError, ValueError) as why:
        return _Part(ends=since, trouble=f"cannot be read: {why}")
    lines = data[: data.rfind(b"\n") + 1]
    return _Part(lines, start, start + len(lines), trouble)


def opened(path: str) -> "BinaryIO":
    """Return a transcript, open for reading.

    Raises:
        OSError: it is not there, or no plain file: opening a pipe would wait for its other end.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is no file")
    return file


def events_in(record: dict[str, object], offset: int = 0) -> Iterator[Event]:
    """Yield the events of one parsed line."""
    message = record.get("message")
    if not isinstance(message, dict) or record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return
    at, name, content = text_in(record, "timestamp"), text_in(record, "uuid"), message.get("content")
    is_agents = message.get("role") == "assistant"
    for block in records_in([{"type": "text", "text": content}] if isinstance(content, str) else content):
        event = _event(block, is_agents=is_agents, name=name)
        if event is None or (event.kind == "prompt" and record.get("isSidechain") is True):  # written for a subagent
            continue
        event.at, event.offset = at, offset
        yield event


def _event(block: dict[str, object], *, is_agents: bool, name: str) -> Event | None:
    kind = block.get("type")
    if is_agents:
        if kind == "text":
            text = text_in(block, "text")[-EVENT_CHARS_MAX:]
            return Event("said", name, text) if text.strip() else None
        if kind != "tool_use":
            return None
        return Event("call", text_in(block, "id"), tool=text_in(block, "name"), about=about(block.get("input")))
    if kind == "text":
        text = text_in(block, "text")
        if text.startswith(_STOPPED):
            return Event("stopped", name)
        return Event("prompt", name, text) if text.strip() else None
    if kind != "tool_result":
        return None
    text, is_error = joined(block.get("content")), block.get("is_error") is True
    if is_error and re.match(_REFUSED, text):
        return Event("refused", text_in(block, "tool_use_id"), _words(text), is_ok=False)
    return Event("result", text_in(block, "tool_use_id"), text[-EVENT_CHARS_MAX:], is_ok=not is_error)


def _words(refusal: str) -> str:
    """Return what the person said about a refused call, "" for nothing."""
    match = re.match(_WITH_WORDS, refusal)
    words = re.sub(_HINT, "", match["words"]).strip()[:EVENT_CHARS_MAX] if match else ""
    return "" if re.match(_NOT_THEIRS, words) else words


def about(tool_input: object) -> str:
    """Return the most telling field of a call's input, in one line."""
    if not isinstance(tool_input, dict):
        return ""
    return " ".join(text_in(tool_input, *_SUBJECTS, *tool_input)[: 4 * _ABOUT_CHARS_MAX].split())[:_ABOUT_CHARS_MAX]
