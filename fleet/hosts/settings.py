"""Claude Code's ``settings.json``: our hooks go in beside other people's, and come out again, and nothing else changes.

A file may be a person's own, by hand, with keys that no version of ours knows. So it is read strictly, since what
cannot be written back as it was must not be touched, and our entries are known by their very words.
"""

import json
import re
from typing import Any

from fleet.hosts.splicing import spliced
from fleet.keep.errors import RefusedError

COMMAND = "if command -v fleet >/dev/null 2>&1; then fleet hook {event}; fi"
"""One shell string, as all hosts run it. Where fleet is not installed, a colleague's clone say, nothing fails."""

_OLDER = ("fleet hook {event}",)
"""Other words that are ours: as a person would write them by hand."""

TIMEOUT_S = 10
START_TIMEOUT_S = 30
"""Beyond what ``fleet hook`` allows itself, so that it ends by itself and can say why."""

_SHELL = "Bash"
_CHANGES = "Bash|Edit|MultiEdit|Write|NotebookEdit"

MATCHERS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": "",
    "PostToolUse": _CHANGES,
    "PostToolUseFailure": _SHELL,
    "Stop": "",
    "SessionEnd": "",
}
"""Which events call us, and for which tools; "" for all."""

INDENT = 2
PLUGIN = "fleet"


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Read a settings file; an empty one has no settings.

    Args:
        data: its bytes.
        name: what a person calls it, for the message.

    Raises:
        RefusedError: it could not be written back as it was: no JSON, or a key twice in one object.
    """
    try:
        text = data.decode("utf-8-sig")
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant) if text.strip() else {}
    except (ValueError, RecursionError) as why:
        raise RefusedError(
            f"{name} is not valid JSON ({str(why)[:200]}). Nothing was changed; mend the file and run this again"
        ) from why
    hooks = found.get("hooks", {}) if isinstance(found, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise RefusedError(
            f"{name} has another shape than Claude Code's settings: an object, with `hooks` an object of lists. "
            "Nothing was changed; mend the file and run this again"
        )
    return dict(found)


def with_hooks(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with our hooks, each once; everybody else's stay where they are."""
    hooks = {event: list(groups) for event, groups in settings.get("hooks", {}).items()}
    for event, matcher in MATCHERS.items():
        if _group(event, matcher) in hooks.get(event, []):
            continue
        hooks[event] = [*_without(event, hooks.get(event, [])), _group(event, matcher)]
    return {**settings, "hooks": hooks}


def without_hooks(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without our hooks, and without what only held them."""
    if "hooks" not in settings:
        return settings
    hooks = {}
    for event, groups in settings["hooks"].items():
        kept = _without(event, groups)
        if kept or not groups:
            hooks[event] = kept
    if hooks or not settings["hooks"]:
        return {**settings, "hooks": hooks}
    return {key: value for key, value in settings.items() if key != "hooks"}


def installed(settings: dict[str, Any]) -> list[str]:
    """Return the events that call us."""
    return [event for event in MATCHERS if _without(event, found := settings.get("hooks", {}).get(event, [])) != found]


def has_plugin(settings: dict[str, Any]) -> bool:
    """Tell whether our plugin is switched on, from whichever marketplace it came."""
    found = settings.get("enabledPlugins")
    return isinstance(found, dict) and any(name.startswith(f"{PLUGIN}@") and found[name] is True for name in found)


def render(settings: dict[str, Any], before: bytes) -> bytes:
    """Return the bytes of the file: what is the same is written as it was before, byte for byte."""
    text = before.decode("utf-8-sig")
    newline = "\r\n" if "\r\n" in text else "\n"
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    if text.strip():
        indent = _indent(text)
        unit = " " * indent if isinstance(indent, int) else indent or ""
        return mark + spliced(text, parse(before, "it"), settings, unit=unit, newline=newline).encode()
    return mark + (json.dumps(settings, indent=INDENT) + newline).encode()


def plugin_hooks() -> dict[str, Any]:
    """Return the content of the plugin's ``hooks.json``: the same hooks, said once."""
    return with_hooks({"description": "fleet: every correction one agent gets becomes knowledge for all of them"})


def _group(event: str, matcher: str) -> dict[str, Any]:
    timeout_s = START_TIMEOUT_S if event == "SessionStart" else TIMEOUT_S
    entry = {"type": "command", "command": COMMAND.format(event=event), "timeout": timeout_s}
    return {**({"matcher": matcher} if matcher else {}), "hooks": [entry]}


def _without(event: str, groups: list[Any]) -> list[Any]:
    """Return the groups of an event without our entries; a group that held nothing else goes, too."""
    kept = []
    for group in groups:
        entries = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(entries, list) or not any(_is_ours(event, entry) for entry in entries):
            kept.append(group)
        elif rest := [entry for entry in entries if not _is_ours(event, entry)]:
            kept.append({**group, "hooks": rest})
    return kept


def _is_ours(event: str, entry: object) -> bool:
    words = entry.get("command") if isinstance(entry, dict) else None
    return words in {form.format(event=event) for form in (COMMAND, *_OLDER)}


def _indent(text: str) -> int | str | None:
    """Return the indentation of the first line that has one; none at all for a file in one line."""
    if not text.strip():
        return INDENT
    found = re.search(r"[{\[]\r?\n([ \t]+)", text)
    if found is None:
        return INDENT if text.strip() in ("{}", "[]") or "\n" in text.strip() else None
    return found[1] if "\t" in found[1] else len(found[1])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key in found if sum(other == key for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
