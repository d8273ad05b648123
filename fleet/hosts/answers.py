"""Output of a hook in the form that its host hands to the model: each drops, or chokes on, another one's form."""

import json

from fleet.hosts.payloads import CLAUDE_CODE, CODEX, COPILOT, CURSOR, GEMINI, UNKNOWN, Payload

CONTEXT_CHARS_MAX = 9_000
"""Hosts cut at 10,000, or put the text into a file that nobody reads."""

NOTE_CHARS_MAX = 240
_READ_EXIT_2 = frozenset({GEMINI, CURSOR})
"""Hosts of which only this was seen: exit 2 refuses a tool call, and stderr says why."""
_ASK = frozenset({CLAUDE_CODE, COPILOT, UNKNOWN})
"""Hosts that can put a tool call to a person. Another one would choke on the word, so the agent is told instead."""
_SHOW_A_NOTE = frozenset({CLAUDE_CODE, CODEX, GEMINI, UNKNOWN})
"""Hosts that show a person a line of a hook's."""

_CUT = "\n[cut here: {} of its {} characters left out]"


class Reply:
    """Answer to an agent at an event, and a word to the person beside it; none, where all are "".

    Attributes:
        context: a text for the agent's context.
        blocked: why the tool call that it is about to make is refused.
        asked: why a person is to decide about that call.
        runs: what that call's command becomes, which then runs without a person's yes.
        go_on: why it should take one more turn before it stops.
        note: one short line for the person: what was logged, counted, promoted, shown or stopped.
    """

    __slots__ = ("asked", "blocked", "context", "go_on", "note", "runs")

    def __init__(
        self, context: str = "", blocked: str = "", go_on: str = "", note: str = "", asked: str = "", runs: str = ""
    ) -> None:
        self.context, self.blocked, self.go_on, self.note = context, blocked, go_on, note
        self.asked, self.runs = asked, runs


def output(payload: Payload, reply: Reply) -> tuple[int, str, str]:
    """Return a reply as its host reads it: exit code, what goes to stdout, what goes to stderr.

    A refusal is JSON and exit 0, but for hosts that are only known to read exit 2; and only before a tool call, since
    at any other event it would stop a person's prompt.
    """
    is_call = payload.event == "PreToolUse"
    if is_call and reply.blocked and payload.host in _READ_EXIT_2:
        return 2, "", f"{_whole(reply.blocked)}\n"
    told = _decision(payload, reply) if is_call else {}
    found: dict[str, object] = {}
    context = reply.context if told or not is_call else "\n".join(filter(None, (reply.asked, reply.context)))
    if reply.go_on:
        found = {"decision": "block", "reason": _whole(reply.go_on)}
    elif context:
        told["additional_context" if payload.host == CURSOR else "additionalContext"] = _whole(context)
    if told and payload.host in (COPILOT, CURSOR):
        found = told
    elif told:
        found = {"hookSpecificOutput": {"hookEventName": payload.said, **told}}
    if reply.note and payload.host in _SHOW_A_NOTE:
        found["systemMessage"] = _line(reply.note)
    return 0, json.dumps(found) if found else "", ""


def _decision(payload: Payload, reply: Reply) -> dict[str, object]:
    """Return what becomes of a tool call; {} where that is not for fleet to say, or the host has no word for it."""
    if reply.blocked:
        return {"permissionDecision": "deny", "permissionDecisionReason": _whole(reply.blocked)}
    if reply.asked and payload.host in _ASK:
        return {"permissionDecision": "ask", "permissionDecisionReason": _whole(reply.asked)}
    if reply.runs and payload.host == CLAUDE_CODE:
        return {"permissionDecision": "allow", "updatedInput": {**payload.given, "command": reply.runs}}
    return {}


def _line(note: str) -> str:
    """A terminal shows it: one line, and nothing in it that moves a cursor or turns a text round."""
    plain = "".join(char if char.isprintable() else " " for char in note[: 4 * NOTE_CHARS_MAX])
    line = " ".join(plain.split())
    return line if len(line) <= NOTE_CHARS_MAX else f"{line[: NOTE_CHARS_MAX - 1]}…"


def _whole(text: str) -> str:
    if len(text) <= CONTEXT_CHARS_MAX:
        return text
    kept = text[: CONTEXT_CHARS_MAX - len(_CUT) - 20]
    return kept + _CUT.format(len(text) - len(kept), len(text))
