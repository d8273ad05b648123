"""Installer of our hooks in a host's settings, beside other people's; uninstalling restores the file.

The file may be written by hand, with keys that we do not know. So it is parsed strictly, since a file that cannot be
written back must not be changed, and our entries are recognised by their exact command. If removing them would not
restore the former bytes, a copy of these is kept beside the file.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fleet.hosts.payloads import CLAUDE_CODE, record_in
from fleet.model.errors import FleetError, RefusedError, UsageError
from fleet.store.files import Files
from fleet.text import tables

_COMMAND = (
    "if command -v fleet >/dev/null 2>&1; then out=$(fleet hook {event} 2>/dev/null) || out={failed}; "
    'case $out in "{{"*) printf %s "$out";; {foreign}esac; fi; true'
)
"""Shell command for all hosts. If fleet is not installed, as in a colleague's clone, nothing fails; if another program
has its name, that one's output and exit code do no harm."""

_NOT_OURS = (
    '\'{"systemMessage":"The program called fleet on your PATH is not the one that these hooks call, or it is '
    "broken: nothing is logged or shown in this session\"}'"
)
"""Output of the shell at a session's start if the call failed, or printed what fleet never prints."""

_FAILED = {"SessionStart": "-", "BeforeTool": '"$out"'}
"""Shell value of the output after a failed call, by event; other events have none. Gemini CLI's refusal before a tool
call is such a failure, so its output is kept."""

_OLDER = ("if command -v fleet >/dev/null 2>&1; then fleet hook {event}; fi", "fleet hook {event}")
"""Other commands that are ours: an earlier version's, and one as a person would write it by hand."""

_TIMEOUT_S = 10
_START_TIMEOUT_S = 30
"""Timeouts of the hosts, longer than the limits of ``fleet hook``, so that the hook can log why it gave up."""

PLUGIN = Path(__file__).parent / "claude_code"
"""Folder of the plugin, in the layout of Claude Code, which Codex and Copilot load, too."""


class _Host(NamedTuple):
    """Agent host whose settings, a JSON object with ``hooks`` in it, can call fleet.

    Attributes:
        title: its name as people write it.
        client: its command, which is the name of its reflector, too, if it can be one.
        file: path of its settings below a project, and below a person's home.
        own: environment variable of another folder for a person's settings, and the path of their folder below that.
        matchers: its events that call us, with a pattern of tools.
        pages: patterns of the pages of the plugin that it reads, beside its settings.
        note: what a person has to do there, once.
        units: units of its timeouts in a second.
        end_s: limit of time for the end of a session.
        comments: its settings may hold some, which cannot be written back.
    """

    title: str
    client: str
    file: str
    own: Sequence[str]
    matchers: Mapping[str, str]
    pages: Sequence[str] = ("skills/*/SKILL.md",)
    note: str = ""
    units: int = 1
    end_s: int = _TIMEOUT_S
    comments: bool = False


INSTALLABLE = {name: _Host(**fields) for name, fields in tables(str(Path(__file__).with_name("hosts.toml"))).items()}
"""Hosts that can be set up to call fleet, by name (``hosts.toml``)."""

_KEPT = ".before-fleet"
"""Ending of the copy of a settings file beside it, from before the hooks, where their removal would not restore its
bytes."""

_COMMENTED = rb'(?s)("(?:[^"\\]|\\.)*(?:"|\Z))|//[^\n]*|/\*.*?\*/'

_Settings = dict[str, Any]


class FileChange(NamedTuple):
    """Change of a host's file, made or, in a dry run, only computed.

    Attributes:
        path: the file, before links are followed.
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
    if host not in INSTALLABLE:
        others = "`fleet help hooks` shows how another host calls fleet"
        raise UsageError(
            f"fleet can set up {', '.join(INSTALLABLE)}, and not {host[:40]!r}; {others}. Nothing was changed"
        )


class SettingsFile(NamedTuple):
    """A settings file of a host's, to which our hooks are added and from which they are removed."""

    path: Path
    root: Path | None = None
    host: _Host = INSTALLABLE[CLAUDE_CODE]

    @classmethod
    def of(cls, root: Path | None, name: str = CLAUDE_CODE) -> "SettingsFile":
        """Return a project's settings file of a host; for None, a person's own."""
        host = INSTALLABLE[name]
        if root is not None:
            return cls(root / host.file, root, host)
        variable, below = host.own
        named = os.environ.get(variable, "")
        return cls(Path(named) / below / Path(host.file).name if named else Path.home() / host.file, None, host)

    def install(self, *, dry_run: bool = False) -> list[FileChange]:
        """Add our hooks to the file, and the skill and slash commands beside it.

        Raises:
            RefusedError: the file is invalid, or outside of the project; nothing was changed.
        """
        path = self.path
        self._check_inside()
        before = _read(path)
        settings = _parsed(before, path, self.host)
        wanted = _with_hooks(settings, self.host)
        after = before if wanted == settings else _render(wanted, before)
        if after != before and not dry_run:
            self._check_comments(before)
            is_new = path.exists() and not _installed(settings, self.host)
            if is_new and _without(after, path, None, self.host) != before:
                _replace(self._kept, before, path)
            _replace(_real(path), after)
        return [FileChange(path, before, after), *_change_pages(path.parent, _pages(self.host), dry_run=dry_run)]

    def uninstall(self, *, dry_run: bool = False) -> list[FileChange]:
        """Remove our hooks and pages, and nothing else; a file that was ours alone is deleted.

        Raises:
            RefusedError: the file is invalid, or outside of the project; nothing was changed.
        """
        path = self.path
        self._check_inside()
        before, kept = _read(path), self._kept
        after = _without(before, path, _read(kept) if kept.is_file() and not kept.is_symlink() else None, self.host)
        if not dry_run:
            if after != before:
                self._check_comments(before)
            if after is None:
                _real(path).unlink(missing_ok=True)
            elif after != before:
                _replace(_real(path), after)
            kept.unlink(missing_ok=True)
        pages = [*_change_pages(path.parent, dict.fromkeys(_pages(self.host), b""), dry_run=dry_run)]
        if after is None and not dry_run:
            with suppress(OSError):  # a folder that holds anything stays
                path.parent.rmdir()
        return [FileChange(path, before, after or b""), *pages]

    @property
    def _kept(self) -> Path:
        return self.path.with_name(f"{self.path.name}{_KEPT}")

    def _check_comments(self, data: bytes) -> None:
        if data != _plain(data, self.host):
            raise RefusedError(
                f"{self.path} holds comments, which fleet cannot write back. Nothing was changed; with --dry-run this "
                "shows the lines to change by hand"
            )

    def _check_inside(self) -> None:
        """Refuse links that lead out of a project: a repository may hold them; a person's own settings may be any."""
        if self.root is None:
            return
        for path in (self.path, *(self.path.parent / name for name in _pages(self.host))):
            if not _real(path).is_relative_to(_real(self.root)):
                raise RefusedError(
                    f"{path} leads out of the project. Nothing was changed; --user names your own settings"
                )


class Calls(NamedTuple):
    """Calls of fleet in a host's settings.

    Attributes:
        where: the settings that do.
        missing: the events that some of them lack.
        off: the switch that turns all hooks off, and where; "" for none.
        unreadable: why a settings file cannot be read, by the host neither; "" if all can.
    """

    where: list[str]
    missing: set[str]
    off: str
    unreadable: str

    @classmethod
    def of(cls, root: Path | None, name: str) -> "Calls":
        """Return how a host calls fleet in a project, by its settings and by a person's own."""
        host, own = INSTALLABLE[name], SettingsFile.of(None, name).path
        places = {own: "user's"}  # earlier entries override later ones
        if root is not None:
            project = SettingsFile.of(root, name).path
            places = {project: "project's"} | places
            if name == CLAUDE_CODE:
                places = {project.with_name("settings.local.json"): "project's local"} | places
        where: list[str] = []
        switches: dict[bool, str] = {}
        missing: set[str] = set()
        unreadable = ""
        for path, whose in places.items():
            file = f"the {whose} settings" + (f" of {host.title}" if name != CLAUDE_CODE else "")
            try:
                settings = _parsed(_read(path), path, host)
            except (FleetError, OSError) as why:
                settings, unreadable = {}, str(why).partition(". Nothing was changed")[0]
            if events := _installed(settings, host):
                where.append(file)
                missing.update(host.matchers.keys() - events)
            if _has_plugin(settings):
                where.append(f"the plugin in {file}")
            is_off, is_on = settings.get("disableAllHooks"), record_in(settings, "hooksConfig").get("enabled")
            if not switches and isinstance(is_off, bool):
                switches[is_off] = f"`disableAllHooks` in {file}"
            elif not switches and isinstance(is_on, bool):
                switches[not is_on] = f"`hooksConfig.enabled` in {file}"
        return cls(where, missing, switches.get(True, ""), unreadable)

    @classmethod
    def installed(cls, root: Path) -> list[str]:
        """Return the hosts whose settings call fleet in a project, and turn no hooks off."""
        found = ((name, cls.of(root, name)) for name in INSTALLABLE)
        return [name for name, calls in found if calls.where and not calls.off]


# --- the settings -----------------------------------------------------------------------------------------------------


def _plain(data: bytes, host: _Host) -> bytes:
    """Return the bytes of a settings file without the comments that the host allows, which no string contains."""
    return re.sub(_COMMENTED, lambda match: match[1] or b" ", data) if host.comments else data


def _parsed(data: bytes, path: Path, host: _Host) -> _Settings:
    """Return the settings of a file, {} for an empty one; refuse a file that could not be written back as it was."""
    try:
        text = _plain(data, host).decode("utf-8-sig")
        settings = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
        json.dumps(settings, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as why:
        raise RefusedError(
            f"{path} is not valid JSON ({str(why)[:200]}). Nothing was changed; mend the file and run this again"
        ) from why
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise RefusedError(
            f"{path} has another shape than a host's settings: an object, with `hooks` an object of lists. "
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


def _with_hooks(settings: _Settings, host: _Host) -> _Settings:
    """Return the settings with our hooks, each once, behind those of others."""
    hooks = {event: list(groups) for event, groups in settings.get("hooks", {}).items()}
    for event in host.matchers:
        group = _group(event, host)
        if group not in hooks.get(event, []):
            hooks[event] = [*_others(event, hooks.get(event, [])), group]
    return {**settings, "hooks": hooks}


def _without(data: bytes, path: Path, kept: bytes | None, host: _Host) -> bytes | None:
    """Return a settings file's bytes without our hooks; None if it has nothing else.

    ``kept``: the bytes from before the hooks were added, which are restored if nobody has changed the file since.
    """
    settings, was = _parsed(data, path, host), _parsed(kept or b"", path, host)
    if kept is not None and data == _render(_with_hooks(was, host), kept):
        return kept
    if not _installed(settings, host):
        return data
    hooks = {event: _others(event, groups) for event, groups in settings["hooks"].items()}
    empty = {event for each in (settings, was) for event, groups in each.get("hooks", {}).items() if not groups}
    hooks = {event: groups for event, groups in hooks.items() if groups or event in empty}
    rest = {**settings, "hooks": hooks}
    if not hooks and "hooks" not in was:
        del rest["hooks"]
    return _render(rest, data) if rest or kept is not None else None


def _installed(settings: _Settings, host: _Host) -> set[str]:
    hooks = settings.get("hooks", {})
    return {event for event in host.matchers if _others(event, hooks.get(event, [])) != hooks.get(event, [])}


def _has_plugin(settings: _Settings) -> bool:
    """Return True where our plugin is switched on, from whichever marketplace it came."""
    plugins = settings.get("enabledPlugins")
    return isinstance(plugins, dict) and any(name.startswith("fleet@") and plugins[name] is True for name in plugins)


def _command_line(event: str) -> str:
    foreign = f"?*) printf %s {_NOT_OURS};; " if event == "SessionStart" else ""
    return _COMMAND.format(event=event, failed=_FAILED.get(event, ""), foreign=foreign)


def _group(event: str, host: _Host) -> _Settings:
    limits_s = {"SessionStart": _START_TIMEOUT_S, "SubagentStart": _START_TIMEOUT_S, "SessionEnd": host.end_s}
    timeout = limits_s.get(event, _TIMEOUT_S) * host.units
    entry = {"type": "command", "command": _command_line(event), "timeout": timeout}
    matcher = host.matchers[event]
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
    before = _COMMAND.format(event=event, failed=_NOT_OURS, foreign="")  # an earlier version's
    return words in {_command_line(event), before, *(form.format(event=event) for form in _OLDER)}


# --- the pages --------------------------------------------------------------------------------------------------------


def _pages(host: _Host) -> dict[str, bytes]:
    """Return the skill and the slash commands, by path beside the settings, each with a seal as its last line."""
    paths = [path for pattern in host.pages for path in PLUGIN.glob(pattern)]
    return {str(path.relative_to(PLUGIN)): _sealed(path.read_bytes()) for path in sorted(paths)}


def _sealed(page: bytes) -> bytes:
    return page + b"<!-- written by fleet, and taken out by it while unchanged: %08x -->\n" % zlib.crc32(page)


def _change_pages(folder: Path, wanted: Mapping[str, bytes], *, dry_run: bool) -> Iterator[FileChange]:
    """Write pages, or delete those for which b"" is wanted; one that a person wrote or changed stays as it is."""
    for name, page in wanted.items():
        path = folder / name
        before = path.read_bytes() if path.is_file() else b""
        plain = before.replace(b"\r\n", b"\n")  # git may check it out with other line ends
        text, newline, _ = plain.removesuffix(b"\n").rpartition(b"\n")
        is_theirs = path.is_symlink() or (path.exists() and plain != _sealed(text + newline))  # a person changed it
        after = before if is_theirs or plain == page else page
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
