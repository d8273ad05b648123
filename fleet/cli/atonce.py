"""``fleet start`` where its text lies ready: printed with the standard library alone, as every session waits for it."""

import os
import time

from fleet import hook
from fleet.recall import ready

_NAMED = {"--agent": "", "--dir": "", "--session": ""}


def start(words: list[str]) -> str | None:
    """Return what to print for the words behind ``fleet start``; None unless they are plain and the text is ready."""
    given = dict(_NAMED)
    rest = iter(words)
    for word in rest:
        value = next(rest, "")
        if word not in given or not value or value.startswith("-"):
            return None
        given[word] = value
    here = {"FLEET_DIR": given["--dir"] or os.environ.get("FLEET_DIR", "")}
    root = hook.find_root("", here)
    lent = os.environ.get("FLEET_REPLICA", "")
    named = given["--agent"] or os.environ.get("FLEET_AGENT", "")
    agent = hook.find_agent(root, {"FLEET_AGENT": named, "FLEET_REPLICA": lent}) if root else ""
    text = ready.text(root, agent) if agent else None
    told_by = (given["--session"], os.environ.get("FLEET_SESSION", ""), os.environ.get("CLAUDE_CODE_SESSION_ID", ""))
    if text is not None and (session := next(filter(None, told_by), "")):
        from fleet.keep import shown

        shown.note(root, agent, session, ready.ids(text), time.time_ns() // 1_000_000)
    return text
