"""Payload of a host's hook, parsed once into fields of known types; and the reply, as each host reads it.

It runs on every tool call of every host, so it imports only little of the standard library. The shapes were captured
from the clients themselves; a field that is missing, or of another type than it should be, is empty.
"""

import json
import os
from collections.abc import Mapping

CLAUDE_CODE, CODEX, COPILOT, GEMINI, CURSOR, UNKNOWN = "claude-code", "codex", "copilot", "gemini", "cursor", "unknown"

PAYLOAD_BYTES_MAX = 8 * 1024 * 1024
FIELD_CHARS_MAX = 64 * 1024
ID_CHARS_MAX = 200
_PATH_CHARS_MAX = 4096
"""No system takes a longer path. The limit bounds the search for a workspace, which looks above each part."""

with open(os.path.join(os.path.dirname(__file__), "payloads.json"), encoding="utf-8") as _file:
    _TABLES = json.load(_file)
EVENTS: dict[str, str] = {word: event for event, words in _TABLES["events"].items() for word in words.split()}
"""Each host's word for an event, in lower case, to Claude Code's."""
TOOLS: dict[str, str] = {word: tool for tool, words in _TABLES["tools"].items() for word in words.split()}
"""Each host's word for a tool, in lower case, to Claude Code's."""
_KEYS: dict[str, str] = _TABLES["keys"]
"""Keys that only the payloads of one host have, to that host."""
EDITING_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})

HOSTS: dict[str, dict[str, str]] = _TABLES["hosts"]
"""Agent hosts, in the order in which they are tried. ``home``: parts of transcripts' paths (Qwen Code speaks as Claude
Code does, with a timestamp as Copilot has); ``events``: names that no other host uses; ``process``, ``project``:
variables; ``can``: abilities. ``ask``: put a call to a person; with other hosts the call is refused: Codex and Cursor
know no such decision, and Gemini CLI under -p would wait without end. ``exit-2``: this exit status refuses a call, with
the reason on stderr. ``decision``: a reply refuses it, too. ``exit-status``: report how a command ended. ``late``: give
the agent the context of a call with its result, not before. ``note``: show a person a line of a hook's. ``replace``:
run another command. ``rollout``: how a command ended is only in the transcript; the tool's response is the output.
``snake-case``: the key is additional_context. ``transcript``: in the form that ``hosts.transcripts`` reads.
``unframed``: a reply's fields are read without hookSpecificOutput around them."""
_PATHS = ("file_path", "filePath", "notebook_path", "absolute_path", "path")
_PATCHED = tuple(f"*** {head}: " for head in ("Add File", "Update File", "Delete File", "Move to"))
"""Texts before the path of a file in a patch."""
_ROLLOUT_BYTES = 512 * 1024
"""Number of bytes at a transcript's end in which the exit code of the call that has just ended is looked for."""
_MASKS = ("|", ";", "&", "!", "\n")
_FAILURE_CUES = (*str.split("fail error exit panic fatal traceback exception problem rc= ***"), "not found")


class Payload:
    """One call of a hook.

    Attributes:
        host: the agent host that called; ``unknown`` is answered like Claude Code.
        name: the event, as the host named it.
        event: Claude Code's name for it, "" for an unknown one.
        session, subagent, call: the host's ids of the session, of the subagent in it, and of the tool call.
        source: why a session started: startup, resume, clear, compact.
        tool: the tool's name, as Claude Code would call it.
        given: the tool's input, as the host sent it.
        paths: paths of the files that the call is about; a patch may change several.
        error, printed: the output of a failed command, and of another one; only the end of a long output.
        exit_code: of a failed command; None when it is not known, or it did not fail.
        knows_end: it is known how a command ended, unless its exit code is masked.
        has_ended: the command ran to its end: it was not stopped, and is not in the background.
        is_stopping: a stop hook has sent the agent on already.
    """

    def __init__(self, event: str, fields: dict[str, object], environment: Mapping[str, str]) -> None:
        self.name = event or text_in(fields, "hook_event_name", "hookName")
        self.host = _host_of(self.name.lower(), fields, environment)
        self.event = EVENTS.get(self.name.lower(), "")
        self.session = text_in(fields, "session_id", "sessionId", "conversation_id")[:ID_CHARS_MAX]
        self.subagent = text_in(fields, "agent_id")[:ID_CHARS_MAX]
        self.cwd = text_in(fields, "cwd")[:_PATH_CHARS_MAX]
        self.source = text_in(fields, "source")
        self.prompt = _ends(text_in(fields, "prompt"))
        tool = text_in(fields, "tool_name", "toolName")
        self.tool = _of_server(record_in(fields, "mcp_context")) or TOOLS.get(tool.lower(), tool)[:ID_CHARS_MAX]
        self.given = given = record_in(fields, "tool_input", "toolArgs", "toolInput")
        command = _command(given)
        self.paths = [path] if (path := text_in(given, *_PATHS)) else []
        if self.tool in EDITING_TOOLS:  # a patch of Codex, or of Copilot
            self.paths += _patched(command or text_in(fields, "toolArgs"))
            command = ""
        self.command = command[:FIELD_CHARS_MAX]
        self.call = text_in(fields, "tool_use_id")[:ID_CHARS_MAX]
        answer = record_in(fields, "tool_response")
        stopped = (fields.get("is_interrupt"), answer.get("interrupted"), given.get("run_in_background"))
        self.has_ended = True not in stopped
        self.is_stopping = fields.get("stop_hook_active") is True
        self.exit_code, self.error = _failure(fields)
        self.printed = _tail("\n".join(filter(None, (text_in(answer, "stdout"), text_in(answer, "stderr")))))
        self.transcript = text_in(fields, "transcript_path", "transcriptPath")[:_PATH_CHARS_MAX]
        self.knows_end = self.can("exit-status")
        if self.can("rollout") and self.event == "PostToolUse" and self.tool == "Bash":
            code = _code_in_rollout(self.transcript, self.call)
            self.knows_end, self.exit_code = code is not None, code or None
            self.printed = _tail(_as_text(fields.get("tool_response")))
            self.error = self.printed if code else ""
        if self.event == "PostToolUse" and self.exit_code:
            self.event = "PostToolUseFailure"  # hosts other than Claude Code have no event for a failure

    @classmethod
    def parse(cls, event: str, data: bytes, environment: Mapping[str, str]) -> "Payload":
        """Return the payload that a host sent about an event.

        Raises:
            ValueError: it is no JSON object, or too large.
            RecursionError: it is nested too deeply.
        """
        if len(data) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"over {PAYLOAD_BYTES_MAX:,} bytes")
        # Bytes that are no UTF-8 come from a command's output: no reason to lose the event.
        fields = json.loads(data.decode("utf-8-sig", "replace"))
        if not isinstance(fields, dict):
            raise ValueError(f"a JSON object belongs there, not {type(fields).__name__}")
        return cls(event, fields, environment)

    @property
    def may_have_failed(self) -> bool:
        """True where the exit code of a command may be masked, and its output may be that of a failure."""
        if not any(mark in self.command for mark in _MASKS):
            return False
        lower = self.printed.lower()
        return any(cue in lower for cue in _FAILURE_CUES)

    @property
    def is_own(self) -> bool:
        """True where the command begins as one of fleet's own does, by its name or by a path."""
        return f"/{self.command.lstrip(' ').partition(' ')[0]}".endswith("/fleet")

    @property
    def has_transcript(self) -> bool:
        """True where there is a transcript in the form that ``hosts.transcripts`` reads."""
        return bool(self.transcript) and self.can("transcript")

    def can(self, ability: str) -> bool:
        """Return whether the host has an ability, a word of ``HOSTS``."""
        return ability in HOSTS[self.host]["can"].split()


def _host_of(event: str, fields: dict[str, object], environment: Mapping[str, str]) -> str:
    """Return the host. The payload comes first: a nested agent inherits the environment of another host."""
    transcript = text_in(fields, "transcript_path", "transcriptPath").replace("\\", "/")
    for name, host in HOSTS.items():
        if any(home in transcript for home in host.get("home", "").split()) or event in host.get("events", "").split():
            return name
    if host_by_key := next((host for key, host in _KEYS.items() if key in fields), ""):
        return host_by_key
    session = text_in(fields, "session_id")
    if session and session == environment.get(HOSTS[GEMINI]["process"]):
        return GEMINI
    if "timestamp" in fields and session:
        return COPILOT
    return next((name for name, host in HOSTS.items() if environment.get(host.get("process", ""))), UNKNOWN)


def _failure(fields: dict[str, object]) -> tuple[int | None, str]:
    """Return the exit code and the output of a failed command; None and "" where there is no sign of a failure."""
    error = fields.get("error")
    if isinstance(error, str):
        first, _, rest = error.partition("\n")
        code = _number_behind(first, "Exit code")
        return code, _tail(_as_text(rest if code is not None else error))
    answer = record_in(fields, "tool_response", "tool_result", "toolResult")
    printed = text_in(answer, "llmContent", "text_result_for_llm", "textResultForLlm")
    for mark in ("completed with exit code", "\nExit Code:"):
        if code := _number_behind(printed[-FIELD_CHARS_MAX:], mark):
            return code, _tail(_unframed(printed.rpartition(mark)[0]))
    return None, ""


def _code_in_rollout(path: str, call: str) -> int | None:
    """Return the exit code of a call in Codex's transcript, which has it before the hook is called; None if not."""
    if not call or not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _ROLLOUT_BYTES))
            lines = file.read(_ROLLOUT_BYTES).splitlines()
    except OSError:
        return None  # another user's file, or one that is gone: the rest of the payload is still used
    for line in reversed(lines):
        if b'"CommandExecution"' in line and call.encode() in line:
            item = record_in(record_in(parsed(line), "payload"), "item")
            if item.get("id") == call and isinstance(code := item.get("exit_code"), int):
                return code
    return None


def _unframed(text: str) -> str:
    """Return a command's output without the frame that Copilot and Gemini add."""
    printed, frame, number = text.rpartition("<shellId:")
    if frame and number.strip().isdigit():
        return printed.rstrip("\n")
    printed = text.removeprefix("<untrusted_context>\n").removeprefix("Output: ")
    return "" if printed == "(empty)" else printed


def _number_behind(text: str, mark: str) -> int | None:
    """Return the number that follows the last of these marks in a text."""
    _, separator, rest = text.rpartition(mark)
    digits = rest.strip()[:4].split(">")[0].split("\n")[0].strip()
    return int(digits) if separator and digits.isascii() and digits.isdigit() else None


def _command(given: dict[str, object]) -> str:
    """Return the command that a shell is given as a text, or in words: ``["bash", "-lc", "make test"]``."""
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):
        words = [part for part in command if isinstance(part, str)]
        is_of_shell = len(words) > 2 and words[0].endswith("sh") and words[-2].startswith("-")
        command = words[-1] if is_of_shell else " ".join(words)
    return _as_text(command)


def _patched(patch: str) -> list[str]:
    """Return the paths of the files that a patch adds, changes, deletes, or moves, from and to.

    In the change of a file, a line that begins with a blank is context and no header, since the file may hold a patch.
    """
    paths, is_change = list[str](), False
    for line in patch.split("\n"):
        head, _, path = line.strip().partition(": ")
        if f"{head}: " in _PATCHED and not (is_change and line[0] == " "):
            paths.append(path)
            is_change = head.endswith(("Update File", "Move to"))
    return paths


def _of_server(context: dict[str, object]) -> str:
    """Return Claude Code's name for a tool of an MCP server, which Gemini CLI names apart; "" without both."""
    server, tool = text_in(context, "server_name"), text_in(context, "tool_name")
    named = "".join(char if char.isascii() and (char.isalnum() or char == "-") else "_" for char in f"{server}__{tool}")
    return f"mcp__{named}"[:ID_CHARS_MAX] if server and tool else ""


def parsed(line: bytes | str) -> dict[str, object]:
    """Return the object in a line of JSON; {} for anything else, such as a line that is being written."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def record_in(fields: dict[str, object], *names: str) -> dict[str, object]:
    """Return the first of some fields that is an object; {} for none."""
    values = (fields.get(name) for name in names)
    return next((value for value in values if isinstance(value, dict)), {})


def records_in(content: object) -> list[dict[str, object]]:
    """Return the objects of a list; none of anything else."""
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def text_in(fields: dict[str, object], *names: str) -> str:
    """Return the first of some fields that is a text with anything in it; "" for none."""
    return next((text for name in names if (text := _as_text(fields.get(name)))), "")


def joined(content: object) -> str:
    """Return the text of a content that is a text, or a list of blocks."""
    return _as_text(content) or "\n".join(filter(None, (text_in(block, "text") for block in records_in(content))))


def _as_text(value: object) -> str:
    """Return a text, "" for anything else. Lone surrogates, which JSON allows and no file takes, are replaced."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _ends(text: str) -> str:
    """Return a prompt without OpenCode's quotes; of a long one both ends, since words stand around a pasted log."""
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1].replace('\\"', ""):
        text = text[1:-1].replace('\\"', '"')
    half = FIELD_CHARS_MAX // 2
    return text if len(text) <= FIELD_CHARS_MAX else f"{text[:half]}\n{text[-half:]}"


def _tail(text: str) -> str:
    return text[-FIELD_CHARS_MAX:]


CONTEXT_CHARS_MAX = 9_000
"""Hosts cut at 10,000, or put the text into a file that nobody reads."""

NOTE_CHARS_MAX = 240
_CUT = "\n[cut here: {} of its {} characters left out]"


class Reply:
    """Reply to an agent at an event, and a line for the person; all "" for none.

    Attributes:
        blocked: the reason for which the tool call is refused.
        asked: the reason for which a person is to decide about the call.
        runs: the command that replaces that of the call, and runs without a question to the person.
        go_on: the reason for one more turn before the agent stops.
        note: one short line for the person: what was logged, counted, promoted, shown or stopped.
        warning: the line that stands in its place, whatever ``[hook] quiet`` is: what fleet cannot do here.
    """

    warning = ""

    def __init__(
        self, context: str = "", blocked: str = "", go_on: str = "", note: str = "", asked: str = "", runs: str = ""
    ) -> None:
        self.context, self.blocked, self.go_on, self.note = context, blocked, go_on, note
        self.asked, self.runs = asked, runs

    def output(self, payload: Payload) -> tuple[int, str, str]:
        """Return the reply in the host's form: exit code, stdout, stderr.

        A refusal is JSON with exit code 0, or exit code 2 for hosts that are not known to read the JSON. It is given
        only before a tool call: at any other event exit code 2 would stop a person's prompt.
        """
        is_call = payload.event == "PreToolUse"
        if is_call and self.blocked and payload.can("exit-2"):
            refused = {"decision": "deny", "reason": _cut(self.blocked)} if payload.can("decision") else {}
            return 2, json.dumps(refused) if refused else "", f"{_cut(self.blocked)}\n"
        fields = self._decision(payload) if is_call else {}
        document: dict[str, object] = {}
        if self.go_on:
            document = {"decision": "block", "reason": _cut(self.go_on)}
        elif self.context:
            fields["additional_context" if payload.can("snake-case") else "additionalContext"] = _cut(self.context)
        if fields and payload.can("unframed"):
            document = fields
        elif fields:
            document = {"hookSpecificOutput": {"hookEventName": payload.name, **fields}}
        if (line := self.warning or self.note) and payload.can("note"):
            document["systemMessage"] = _line(line)
        return 0, json.dumps(document) if document else "", ""

    def _decision(self, payload: Payload) -> dict[str, object]:
        """Return the decision about a tool call; {} for none, or where the host has no field for it."""
        if self.blocked:
            return {"permissionDecision": "deny", "permissionDecisionReason": _cut(self.blocked)}
        if self.asked:
            return {"permissionDecision": "ask", "permissionDecisionReason": _cut(self.asked)}
        if self.runs and payload.can("replace"):
            return {"permissionDecision": "allow", "updatedInput": {**payload.given, "command": self.runs}}
        return {}


def _line(note: str) -> str:
    """Return a note as one line of limited length that is safe on a terminal."""
    plain = "".join(char if char.isprintable() else " " for char in note[: 4 * NOTE_CHARS_MAX])
    line = " ".join(plain.split())
    return line if len(line) <= NOTE_CHARS_MAX else f"{line[: NOTE_CHARS_MAX - 1]}…"


def _cut(text: str) -> str:
    if len(text) <= CONTEXT_CHARS_MAX:
        return text
    kept = text[: CONTEXT_CHARS_MAX - len(_CUT) - 20]
    return kept + _CUT.format(len(text) - len(kept), len(text))
