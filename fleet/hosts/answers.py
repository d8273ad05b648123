"""Output of a hook in the form that its host hands to the model: each drops, or chokes on, another one's form."""

import json

from fleet.hosts.payloads import COPILOT, CURSOR, Payload

CONTEXT_CHARS_MAX = 9_000
"""Hosts cut at 10,000, or put the text into a file that nobody reads."""

_CUT = "\n[cut here: {} of its {} characters left out]"


def context(payload: Payload, text: str) -> str:
    """Return the output that puts a text into the model's context."""
    text = _whole(text)
    if payload.host == COPILOT:
        return json.dumps({"additionalContext": text})
    if payload.host == CURSOR:
        return json.dumps({"additional_context": text})
    return json.dumps({"hookSpecificOutput": {"hookEventName": payload.said, "additionalContext": text}})


def go_on(reason: str) -> str:
    """Return the output that makes a host that is about to stop take one more turn."""
    return json.dumps({"decision": "block", "reason": _whole(reason)})


def _whole(text: str) -> str:
    if len(text) <= CONTEXT_CHARS_MAX:
        return text
    kept = text[: CONTEXT_CHARS_MAX - len(_CUT) - 20]
    return kept + _CUT.format(len(text) - len(kept), len(text))
