"""Claude Code's ``settings.json``: our hooks go in beside other people's, and come out again, and nothing else changes.

A file may be a person's own, by hand, with keys that no version of ours knows, laid out as no program would do it, with
numbers written as no program would write them. So it is read strictly, since what cannot be written back as it was must
not be touched; our entries are known by their very words; and what is the same stays in its own words, byte for byte.
What is added takes the layout of its neighbours, and takes nothing with it when it goes again.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fleet.model.errors import RefusedError

_COMMAND = (
    "if command -v fleet >/dev/null 2>&1; then out=$(fleet hook {event} 2>/dev/null) || out={other}; "
    'case $out in "{{"*) printf %s "$out";; esac; fi; true'
)
"""One shell string, as all hosts run it. Where fleet is not installed, a colleague's clone say, nothing fails; where
another program bears the name, whatever it prints or exits with stands in nobody's way."""

_OTHER = (
    '\'{"systemMessage":"The program called fleet on your PATH is not the one that these hooks call, or it is broken: '
    "nothing is logged or shown in this session\"}'"
)
"""Said by the shell, when a session starts: fleet itself is not there to say it."""

_OLDER = ("if command -v fleet >/dev/null 2>&1; then fleet hook {event}; fi", "fleet hook {event}")
"""Other words that are ours: an earlier version's, and as a person would write them by hand."""

TIMEOUT_S = 10
START_TIMEOUT_S = 30
"""Beyond what ``fleet hook`` allows itself, so that it ends by itself and can say why."""

_SHELL = "Bash"
_CHANGES = "Bash|Edit|MultiEdit|Write|NotebookEdit"
_STEPS = "Bash|Read|Edit|MultiEdit|Write|NotebookEdit"

MATCHERS = {
    "SessionStart": "",
    "SubagentStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": _STEPS,
    "PostToolUse": _CHANGES,
    "PostToolUseFailure": _SHELL,
    "Stop": "",
    "SessionEnd": "",
}
"""Which events call us, and for which tools; "" for all. No other tool pays for a process."""

INDENT = 2
PLUGIN = "fleet"


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Read a settings file; an empty one has no settings.

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


def without_hooks(settings: dict[str, Any], before: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the settings without our hooks, and without what only held them.

    ``before``: the settings as they were without, where that is known: what was empty then stays.
    """
    if "hooks" not in settings:
        return settings
    hooks = {}
    for event, groups in settings["hooks"].items():
        kept = _without(event, groups)
        if kept or not groups or event in before.get("hooks", {}):
            hooks[event] = kept
    if hooks or not settings["hooks"] or "hooks" in before:
        return {**settings, "hooks": hooks}
    return {key: value for key, value in settings.items() if key != "hooks"}


def installed(settings: dict[str, Any]) -> list[str]:
    """Return the events that call us."""
    return [event for event in MATCHERS if _without(event, found := settings.get("hooks", {}).get(event, [])) != found]


def has_plugin(settings: dict[str, Any]) -> bool:
    """Return True where our plugin is switched on, from whichever marketplace it came."""
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
        return mark + _spliced(text, parse(before, "it"), settings, unit=unit, newline=newline).encode()
    return mark + (json.dumps(settings, indent=INDENT) + newline).encode()


class Before(NamedTuple):
    """What a settings file was before our hooks came in, kept where taking them out again would not tell.

    Attributes:
        data: its bytes.
        after: the checksum of what it became, 0 where somebody has changed it since: then ``data`` is not put back.
    """

    data: bytes
    after: int

    def encode(self) -> bytes:
        """Return the bytes of the file that it is kept in."""
        return json.dumps({"before": self.data.decode("utf-8"), "after": self.after}).encode() + b"\n"

    @staticmethod
    def decoded(data: bytes) -> "Before | None":
        """Return what such a file says; None for one that is none."""
        try:
            found = json.loads(data)
            return Before(found["before"].encode("utf-8"), int(found["after"]))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None


def to_remember(data: bytes, after: bytes, known: Before | None) -> Before | None:
    """Return what must be known of a settings file to take our hooks out exactly; None where the file itself tells.

    ``known``: what was kept when they first came in.
    """
    settings = parse(data, "it")
    if installed(settings):
        return known and known._replace(after=zlib.crc32(after) if known.after == zlib.crc32(data) else 0)
    back = render(without_hooks(parse(after, "it")), after)
    is_as_if_made = after == render(with_hooks({}), b"")  # what we made ourselves goes again
    return None if back == data and not is_as_if_made else Before(data, zlib.crc32(after))


def _command_line(event: str) -> str:
    """Return what a host runs at an event."""
    return _COMMAND.format(event=event, other=_OTHER if event == "SessionStart" else "")


def _group(event: str, matcher: str) -> dict[str, Any]:
    timeout_s = START_TIMEOUT_S if event in ("SessionStart", "SubagentStart") else TIMEOUT_S
    entry = {"type": "command", "command": _command_line(event), "timeout": timeout_s}
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
    return words in {_command_line(event), *(form.format(event=event) for form in _OLDER)}


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


def plugin_folder() -> Path:
    """Return the folder of the plugin in Claude's layout, which Codex and Copilot load, too."""
    return Path(__file__).parent / "claude_code"


def pages() -> dict[str, bytes]:
    """Return the skill and the slash commands, by path below ``.claude``, each with a seal as its last line."""
    folder = plugin_folder()
    found = [*folder.glob("skills/*/SKILL.md"), *folder.glob("commands/*.md")]
    return {str(each.relative_to(folder)): _sealed(each.read_bytes()) for each in sorted(found)}


def is_page(data: bytes) -> bool:
    """Tell whether a page is as some version of fleet wrote it: what a person has changed since is theirs."""
    page, newline, _ = data.removesuffix(b"\n").rpartition(b"\n")
    return data == _sealed(page + newline)


def _sealed(page: bytes) -> bytes:
    return page + b"<!-- written by fleet, and taken out by it while unchanged: %08x -->\n" % zlib.crc32(page)


# --- a JSON text in which some values are others now ----------------------------------------------------------------

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class _Member(NamedTuple):
    """A member of an object or a list: where it begins, where its value does, and where it ends."""

    start: int
    value: int
    end: int


class _Layout(NamedTuple):
    """How a text is laid out: the unit of indentation ("" for one line), and its line end."""

    unit: str
    newline: str


def _spliced(text: str, before: Any, after: Any, *, unit: str, newline: str) -> str:
    """Return a JSON text with its value changed.

    ``unit``: what new lines are indented by, once a level; "" puts what is new on the same line.
    """
    at = _skip(text, 0)
    end = _end(text, at)
    return text[:at] + _changed(text, at, before, after, _Layout(unit, newline), "") + text[end:]


def _changed(text: str, at: int, before: Any, after: Any, layout: _Layout, base: str) -> str:
    """Return the words for ``after``, where the value at a place is ``before``. ``base``: the indentation there."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = list(before)
        keys = [name for name in names if name in after] + [name for name in after if name not in before]
        whole = [(names.index(key) if key in before else None, key, after[key]) for key in keys]
        return _container(text, at, list(before.values()), whole, layout, base)
    if isinstance(before, list) and isinstance(after, list):
        return _container(text, at, before, _aligned(before, after), layout, base)
    return _fresh(after, layout, base)


def _aligned(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int | None, str, Any]]:
    """Return for each item which one of before it is, or has become."""
    mine, theirs = ([json.dumps(each, sort_keys=True) for each in items] for items in (before, after))
    found: list[tuple[int | None, str, Any]] = []
    for what, i1, i2, j1, j2 in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        is_paired = what == "equal" or (what == "replace" and i2 - i1 == j2 - j1)
        found += [(i1 + j - j1 if is_paired else None, "", after[j]) for j in range(j1, j2)]
    return found


def _container(
    text: str, at: int, old: Sequence[Any], items: Sequence[tuple[int | None, str, Any]], layout: _Layout, base: str
) -> str:
    """Return the words of an object or list. ``items``: which member each was, its key, its value."""
    members, end = _members(text, at)
    opening, closing = text[at], text[end - 1]
    if not items:
        return opening + closing if members else text[at:end]
    lead = text[at + 1 : members[0].start] if members else ""
    is_in_lines = "\n" in lead if members else bool(layout.unit)
    inner = lead.rpartition("\n")[2] if members and is_in_lines else base + layout.unit
    mine = layout if is_in_lines else layout._replace(unit="")
    line = layout.newline + inner if is_in_lines else ""
    words = [opening + (lead if members else line)]
    for number, (which, key, value) in enumerate(items):
        if number:
            is_next = which is not None and which > 0
            words.append(text[members[which - 1].end : members[which].start] if is_next else "," + (line or " "))  # type: ignore[operator, index]
        if which is None:
            name = f"{json.dumps(key)}: " if opening == "{" else ""
            words.append(name + _fresh(value, mine, inner))
        elif old[which] == value:
            words.append(text[members[which].start : members[which].end])
        else:
            member = members[which]
            words.append(text[member.start : member.value])
            words.append(_changed(text, member.value, old[which], value, mine, inner))
    words.append(text[members[-1].end : end] if members else (layout.newline + base if is_in_lines else "") + closing)
    return "".join(words)


def _fresh(value: Any, layout: _Layout, base: str) -> str:
    words = json.dumps(value, indent=layout.unit or None)
    return words.replace("\n", layout.newline + base)


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """Return the members of the object or list that begins at a place, and where it ends."""
    found = []
    pos = _skip(text, at + 1)
    while text[pos] not in "}]":
        start = pos
        if text[at] == "{":
            pos = _skip(text, _skip(text, _end(text, pos)) + 1)
        end = _end(text, pos)
        found.append(_Member(start, pos, end))
        pos = _skip(text, end)
        if text[pos] == ",":
            pos = _skip(text, pos + 1)
    return found, pos + 1


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
