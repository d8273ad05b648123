"""Installer of our hooks in Claude Code's ``settings.json``, beside other people's; uninstalling restores the file.

The file may be written by hand, with keys that we do not know. So it is parsed strictly, since what cannot be written
back must not be changed, and our entries are known by their exact command. Where removing them would not give the
former bytes, those are kept beside the file until then.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fleet.hosts.payloads import CLAUDE_CODE
from fleet.model.errors import FleetError, RefusedError, UsageError
from fleet.store.files import Files

_COMMAND = (
    "if command -v fleet >/dev/null 2>&1; then out=$(fleet hook {event} 2>/dev/null) || out={other}; "
    'case $out in "{{"*) printf %s "$out";; esac; fi; true'
)
"""Shell command of all hosts. Where fleet is not installed, as in a colleague's clone, nothing fails; where another
program has its name, its output and exit code do no harm."""

_OTHER = (
    '\'{"systemMessage":"The program called fleet on your PATH is not the one that these hooks call, or it is broken: '
    "nothing is logged or shown in this session\"}'"
)
"""Printed by the shell when a session starts, since fleet itself is not there to print it."""

_OLDER = ("if command -v fleet >/dev/null 2>&1; then fleet hook {event}; fi", "fleet hook {event}")
"""Other commands that are ours: an earlier version's, and one as a person would write it by hand."""

_TIMEOUT_S = 10
_START_TIMEOUT_S = 30
"""Longer than the limits of ``fleet hook`` itself, so that it can log why it gave up."""

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
"""The events that call us, with a pattern of tools; "" for all. No other tool pays for a process."""

PLUGIN = Path(__file__).parent / "claude_code"
"""Folder of the plugin, in the layout of Claude Code, which Codex and Copilot load, too."""

_KEPT = "settings.json.before-fleet"
"""Copy of a settings file beside it, from before the hooks, where their removal would not restore its bytes."""

_Settings = dict[str, Any]


class FileChange(NamedTuple):
    """Change of a host's file, made or, in a dry run, only computed.

    Attributes:
        path: the file, before links are followed.
        before: its bytes.
        after: its new bytes; the same where nothing changes.
        is_theirs: a person wrote it, so it was left alone.
    """

    path: Path
    before: bytes
    after: bytes
    is_theirs: bool = False

    @property
    def is_other(self) -> bool:
        """True where there is any difference."""
        return self.before != self.after


def check_host(host: str) -> None:
    """Raise ``UsageError`` unless a host is one that can be set up."""
    if host != CLAUDE_CODE:
        others = "`fleet help hooks` shows how another host calls fleet"
        raise UsageError(f"fleet can set up {CLAUDE_CODE}, and not {host[:40]!r}; {others}. Nothing was changed")


class SettingsFile(NamedTuple):
    """A settings file of Claude Code's, to which our hooks are added and from which they are removed."""

    path: Path
    root: Path | None = None

    @classmethod
    def of(cls, root: Path | None) -> "SettingsFile":
        """Return a project's settings file; for None, a person's own."""
        if root is not None:
            return cls(root / ".claude" / "settings.json", root)
        named = os.environ.get("CLAUDE_CONFIG_DIR", "")
        return cls((Path(named) if named else Path.home() / ".claude") / "settings.json")

    def install(self, *, dry_run: bool = False) -> list[FileChange]:
        """Add our hooks to the file, and the skill and slash commands beside it.

        Raises:
            RefusedError: the file is invalid, or outside of the project; nothing was changed.
        """
        path = self.path
        self._check_inside()
        before = _read(path)
        settings = _parsed(before, path)
        wanted = _with_hooks(settings)
        after = before if wanted == settings else _render(wanted, before)
        if after != before and not dry_run:
            if os.path.lexists(path) and not _installed(settings) and _without(after, path, None) != before:
                _replace(path.with_name(_KEPT), before, path)
            _replace(_real(path), after)
        return [FileChange(path, before, after), *_change_pages(path.parent, _pages(), dry_run=dry_run)]

    def uninstall(self, *, dry_run: bool = False) -> list[FileChange]:
        """Remove our hooks and pages, and nothing else; a file that was ours alone is deleted.

        Raises:
            RefusedError: the file is invalid, or outside of the project; nothing was changed.
        """
        path = self.path
        self._check_inside()
        before, kept = _read(path), path.with_name(_KEPT)
        after = _without(before, path, _read(kept) if kept.is_file() and not kept.is_symlink() else None)
        if not dry_run:
            if after is None:
                _real(path).unlink(missing_ok=True)
            elif after != before:
                _replace(_real(path), after)
            kept.unlink(missing_ok=True)
        pages = [*_change_pages(path.parent, dict.fromkeys(_pages(), b""), dry_run=dry_run)]
        if after is None and not dry_run:
            with suppress(OSError):  # a folder that holds anything stays
                path.parent.rmdir()
        return [FileChange(path, before, after or b""), *pages]

    def _check_inside(self) -> None:
        """Refuse links that lead out of a project: a repository may hold them; a person's own settings may be any."""
        if self.root is None:
            return
        for path in (self.path, *(self.path.parent / name for name in _pages())):
            if not _real(path).is_relative_to(_real(self.root)):
                raise RefusedError(
                    f"{path} leads out of the project. Nothing was changed; --user names your own settings"
                )


def callers(root: Path | None) -> tuple[list[str], set[str], str, str]:
    """Return the settings that call fleet's hooks, the events that some of them lack, and which turn all hooks off.

    The last is why a settings file cannot be read, as Claude Code cannot either; "" if all can.
    """
    places = {SettingsFile.of(None).path: "user's"}  # what the ones before it set goes before what it sets
    if root is not None:
        project = SettingsFile.of(root).path
        places = {project.with_name("settings.local.json"): "project's local", project: "project's"} | places
    where: list[str] = []
    switches: dict[bool, str] = {}
    missing: set[str] = set()
    unreadable = ""
    for path, name in places.items():
        try:
            settings = _parsed(_read(path), path)
        except (FleetError, OSError) as why:
            settings, unreadable = {}, str(why)
        if events := _installed(settings):
            where.append(f"the {name} settings")
            missing.update(MATCHERS.keys() - events)
        if _has_plugin(settings):
            where.append(f"the plugin in the {name} settings")
        if not switches and isinstance(is_off := settings.get("disableAllHooks"), bool):
            switches[is_off] = f"the {name} settings"
    return where, missing, switches.get(True, ""), unreadable


# --- the settings -----------------------------------------------------------------------------------------------------


def _parsed(data: bytes, path: Path) -> _Settings:
    """Return the settings of a file, none of an empty one; refuse a file that could not be written back as it was."""
    try:
        text = data.decode("utf-8-sig")
        settings = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
        json.dumps(settings, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as why:
        raise RefusedError(
            f"{path} is not valid JSON ({str(why)[:200]}). Nothing was changed; mend the file and run this again"
        ) from why
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise RefusedError(
            f"{path} has another shape than Claude Code's settings: an object, with `hooks` an object of lists. "
            "Nothing was changed; mend the file and run this again"
        )
    return dict(settings)


def _once(pairs: list[tuple[str, Any]]) -> _Settings:
    settings = dict(pairs)
    if len(settings) != len(pairs):
        twice = next(key for key in settings if sum(other == key for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return settings


def _render(settings: _Settings, before: bytes) -> bytes:
    """Return the bytes of the file, with the indentation, line ends and letters that it had."""
    text = before.decode("utf-8-sig")
    indent = re.search(r"[{\[]\r?\n([ \t]+)", text)
    words = json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=text.isascii())
    words += "\n" if not text.strip() or text.endswith("\n") else ""
    mark = "\ufeff" if before.startswith(b"\xef\xbb\xbf") else ""
    return (mark + words.replace("\n", "\r\n" if "\r\n" in text else "\n")).encode()


def _with_hooks(settings: _Settings) -> _Settings:
    """Return the settings with our hooks, each once, behind those of others."""
    hooks = {event: list(groups) for event, groups in settings.get("hooks", {}).items()}
    for event, matcher in MATCHERS.items():
        group = _group(event, matcher)
        if group not in hooks.get(event, []):
            hooks[event] = [*_others(event, hooks.get(event, [])), group]
    return {**settings, "hooks": hooks}


def _without(data: bytes, path: Path, kept: bytes | None) -> bytes | None:
    """Return a settings file's bytes without our hooks; None where it was ours alone.

    ``kept``: its bytes before they were added, which are restored where nobody has changed the file since.
    """
    settings, was = _parsed(data, path), _parsed(kept or b"", path)
    if kept is not None and data == _render(_with_hooks(was), kept):
        return kept
    if not _installed(settings):
        return data
    hooks = {event: _others(event, groups) for event, groups in settings["hooks"].items()}
    empty = {event for each in (settings, was) for event, groups in each.get("hooks", {}).items() if not groups}
    hooks = {event: groups for event, groups in hooks.items() if groups or event in empty}
    rest = {**settings, "hooks": hooks}
    if not hooks and "hooks" not in was:
        del rest["hooks"]
    return _render(rest, data) if rest or kept is not None else None


def _installed(settings: _Settings) -> set[str]:
    hooks = settings.get("hooks", {})
    return {event for event in MATCHERS if _others(event, hooks.get(event, [])) != hooks.get(event, [])}


def _has_plugin(settings: _Settings) -> bool:
    """Return True where our plugin is switched on, from whichever marketplace it came."""
    plugins = settings.get("enabledPlugins")
    return isinstance(plugins, dict) and any(name.startswith("fleet@") and plugins[name] is True for name in plugins)


def _command_line(event: str) -> str:
    return _COMMAND.format(event=event, other=_OTHER if event == "SessionStart" else "")


def _group(event: str, matcher: str) -> _Settings:
    timeout_s = _START_TIMEOUT_S if event in ("SessionStart", "SubagentStart") else _TIMEOUT_S
    entry = {"type": "command", "command": _command_line(event), "timeout": timeout_s}
    return {**({"matcher": matcher} if matcher else {}), "hooks": [entry]}


def _others(event: str, groups: list[Any]) -> list[Any]:
    """Return the groups of an event without our entries, and without groups that held nothing else."""
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


# --- the pages --------------------------------------------------------------------------------------------------------


def _pages() -> dict[str, bytes]:
    """Return the skill and the slash commands, by path below ``.claude``, each with a seal as its last line."""
    paths = [*PLUGIN.glob("skills/*/SKILL.md"), *PLUGIN.glob("commands/*.md")]
    return {str(path.relative_to(PLUGIN)): _sealed(path.read_bytes()) for path in sorted(paths)}


def _sealed(page: bytes) -> bytes:
    return page + b"<!-- written by fleet, and taken out by it while unchanged: %08x -->\n" % zlib.crc32(page)


def _change_pages(folder: Path, wanted: Mapping[str, bytes], *, dry_run: bool) -> Iterator[FileChange]:
    """Write pages, or delete those for which b"" is wanted; one that a person wrote or changed stays as it is."""
    for name, page in wanted.items():
        path = folder / name
        before = path.read_bytes() if path.is_file() else b""
        text, newline, _ = before.removesuffix(b"\n").rpartition(b"\n")
        is_theirs = path.is_symlink() or (path.exists() and before != _sealed(text + newline))  # a person changed it
        after = before if is_theirs else page
        if after and after != before and not dry_run:
            _replace(_real(path), after)
        elif after != before and not dry_run:
            path.unlink()
            with suppress(OSError):  # until one that is not empty
                for parent in path.parents[: len(Path(name).parents) - 1]:
                    parent.rmdir()
        yield FileChange(path, before, after, is_theirs)


# --- files ------------------------------------------------------------------------------------------------------------


def _real(path: Path) -> Path:
    """Return the file behind links: many keep their settings elsewhere, with a link to them here."""
    return Path(os.path.realpath(path))


def _read(path: Path) -> bytes:
    """Return the bytes of a file, b"" where there is none; refuse what is no plain file: a pipe might never end."""
    real = _real(path)
    if real.exists() and not real.is_file():
        raise RefusedError(f"{path} is no plain file. Nothing was changed; put it away and run this again")
    return real.read_bytes() if real.exists() else b""


def _replace(path: Path, data: bytes, like: Path | None = None) -> None:
    """Replace a file atomically, with its mode, or that of ``like``: settings may hold keys."""
    above = next(each for each in path.parents if each.exists())
    mode = next((each.stat().st_mode & 0o777 for each in (path, like) if each and each.exists()), 0o644)
    try:
        Files(above).write(path, [data], mode=mode)
    except BaseException:
        with suppress(OSError):
            if above != path.parent:  # else it is somebody's own, though it may be empty
                path.parent.rmdir()
        raise
