"""Configuration: the settings of ``fleet.toml`` with their types and defaults; and fleet's lines in ``.gitignore``.

A wrong setting gets its default and a warning; no command fails for it, since a refused correction is lost. Each
setting is described in ``data/fleet.toml`` and in docs/configuration.md.
"""

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from fleet import YES
from fleet.model import limits
from fleet.model.errors import DiskError, UsageError
from fleet.store import homes
from fleet.store.files import Files
from fleet.text.screening import screened

FILE_NAME = "fleet.toml"

# TOML has infinity, and numbers of any length: each number has an upper limit.
_NUMBER_MAX = 1_000_000_000
_DAYS_MAX = 36_500
_DAY_S = 86_400


class _Share(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of sharing: the remote, and what is sent there."""

    remote: str = ""
    branch: str = "fleet"
    author: Annotated[
        str,
        msgspec.Meta(
            pattern="^([^<>\\x00-\\x1f]*[^<>\\x00-\\x20] *<[^<>\\x00-\\x20]+>)?$",
            description="'Name <address>', or empty",
        ),
    ] = ""
    fields: list[Literal["wrong", "source"]] = []
    attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 15
    wait_s: Annotated[float, msgspec.Meta(gt=0, le=_DAY_S)] = 60.0
    stale_days: Annotated[int, msgspec.Meta(ge=0, le=_DAYS_MAX)] = 14

    @property
    def lessons(self) -> str:
        """The words for what a yes to the remote shares: lessons, and the fields that are named besides."""
        return f"lessons, and {' and '.join(self.fields)} of each correction," if self.fields else "lessons"

    def consented(self, url: str) -> str:
        """Return the text of a yes to a remote: its address, and the branch if it is not the default."""
        return url if self.branch == _Share().branch else f"{url} {self.branch}"


class _Keep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of storage: when an edition is written, and who may read an agent's own files."""

    edition_always_bytes: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 256 * 1024
    edition_uncovered_share: Annotated[float, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 0.25
    private: bool = True


class _Files(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Places of files in the workspace; with an empty ``home`` the homes stay where they are."""

    home: str = homes.DEFAULT

    def __post_init__(self) -> None:
        if self.home and (why := homes.problem(self.home)):
            raise ValueError(why)


class _Recall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what an agent reads when its session starts."""

    start_chars: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = limits.START_REST_CHARS_MAX
    discoveries: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 20
    at_prompts: Annotated[int, msgspec.Meta(ge=0, le=3)] = 3
    page_lessons: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = limits.PAGE_LESSONS_MAX
    session_idle_minutes: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 30


_Variable = Annotated[
    str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$", description="the name of a variable, FLEET_ and capitals or digits")
]
_Threshold = Annotated[int, msgspec.Meta(ge=1, le=_NUMBER_MAX)]


class Promotion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Thresholds at which a lesson becomes permanent memory."""

    own: _Threshold = 3
    clan_seen: _Threshold = 3
    clan_agents: _Threshold = 2
    clan_sessions: _Threshold = 2
    hot_chars: _Threshold = limits.HOT_CHARS_MAX
    mode: Literal["auto", "suggest", "off"] = "auto"
    others: Literal["suggest", "auto"] = "suggest"

    @property
    def least_seen(self) -> int:
        """The number of occurrences below which no lesson is ever due."""
        return min(self.own, self.clan_seen)


class Attempts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of the limit of failed attempts."""

    limit: Annotated[int, msgspec.Meta(ge=2, le=100)] = 3
    off: bool = False
    names: dict[Annotated[str, msgspec.Meta(pattern="^M[1-8]$", description="M1 to M8")], str] = {}
    builds: list[str] | None = None


_Language = Literal["en", "de", "es", "fr", "zh", "ja"]


class _Triggers(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of the phrases by which a correction is detected in what a person or an agent writes."""

    off: bool = False
    minimum: Literal["strong", "medium", "weak"] = "medium"
    languages: list[_Language] = msgspec.field(default_factory=lambda: list(get_args(_Language)))
    strong: list[str] = []
    medium: list[str] = []
    weak: list[str] = []
    without: list[str] = []
    exclusions: list[str] = []


class _Hook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what the hooks of an agent's host do unasked."""

    sync_at_end: bool = True
    quiet: bool = False
    ask_days: Annotated[float, msgspec.Meta(gt=0, le=_DAYS_MAX)] = 1
    observe: bool = True
    auto_memory: bool = False


class _Sleep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``fleet tidy`` and ``fleet sleep``."""

    off: bool = False
    dates: Literal["replace", "add"] = "replace"
    zone: str = ""
    archive_hours: Annotated[float, msgspec.Meta(gt=0, le=24 * _DAYS_MAX)] = 168.0
    changes_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    changes_min: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 20

    def changes_max(self, total: int) -> int:
        """Return how many of a total of entries one run may change."""
        return max(self.changes_min, int(self.changes_share * total))


class Sidecar(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``fleet sidecar`` and ``fleet poll``."""

    interval_s: Annotated[float, msgspec.Meta(ge=1, le=_DAYS_MAX * _DAY_S)] = 300.0
    quiet_s: Annotated[float, msgspec.Meta(ge=0, le=_DAYS_MAX * _DAY_S)] = 3.0
    rescan_s: Annotated[float, msgspec.Meta(ge=1, le=_DAYS_MAX * _DAY_S)] = 600.0
    polling: bool = False
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0


class Live(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of live sync."""

    url: str = ""
    room: Annotated[
        str,
        msgspec.Meta(
            pattern="^[a-z0-9][a-z0-9._-]{0,59}$", description="a short name: a-z, 0-9, dot, dash, underscore"
        ),
    ] = "clan"
    serve: bool = False
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = limits.LIVE_PORT
    token_env: _Variable = "FLEET_LIVE_TOKEN"  # noqa: S105 - the variable with the token, not the token


class Semantic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of similarity by meaning, beside similarity by words."""

    off: bool = False
    model: str = ""
    url: str = ""
    url_model: str = ""
    key_env: _Variable = "FLEET_EMBEDDING_KEY"


class _Notify(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of notices: a reflection is done, or something waits for a person."""

    terminal: bool = True
    desktop: bool = False
    webhook: str = ""
    webhook_env: _Variable = "FLEET_WEBHOOK_URL"


BANNED = ("hermes", "openclaw", "nanoclaw", "claw")
"""Words that reject a whole reflection, as in the seed."""


class Reflect(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of reflection at the end of a session."""

    off: bool = False
    reflector: Literal["rules", "claude", "codex", "gemini", "command", "endpoint"] = "rules"
    command: list[str] = []
    url: str = ""
    api: Literal["openai", "anthropic"] = "openai"
    model: str = ""
    key_env: _Variable = "FLEET_REFLECT_KEY"
    usd_per_million_in: Annotated[float, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 0.0
    usd_per_million_out: Annotated[float, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 0.0
    wait_s: Annotated[float, msgspec.Meta(gt=0, le=_DAY_S)] = 300.0
    tokens: Annotated[int, msgspec.Meta(ge=1000, le=200_000)] = 24_000
    idle_min: Annotated[float, msgspec.Meta(gt=0, le=_DAYS_MAX * 1440)] = 30.0
    max_usd: Annotated[float, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 0.50
    daily_usd: Annotated[float, msgspec.Meta(ge=0, le=_NUMBER_MAX)] = 5.00
    banned: list[str] = msgspec.field(default_factory=lambda: list(BANNED))
    honcho: str = ""
    honcho_url: str = ""
    honcho_key_env: _Variable = "FLEET_HONCHO_KEY"

    def in_environment(self, environment: Mapping[str, str]) -> "Reflect":
        """Return the settings with those of the environment in their place; an absurd value there is ignored."""
        return msgspec.structs.replace(
            self,
            max_usd=_amount(environment.get("REFLECTION_MAX_BUDGET_USD", ""), self.max_usd),
            daily_usd=_amount(environment.get("REFLECTION_DAILY_CAP_USD", ""), self.daily_usd),
            idle_min=_amount(environment.get("REFLECTION_IDLE_MIN", ""), self.idle_min),
            off=environment.get("REFLECTION_DISABLED", "").lower() in YES or self.off,
        )

    @staticmethod
    def unread_limits(environment: Mapping[str, str]) -> str:
        """Return in a sentence which limits of the environment are no amounts; "" for none."""
        unread = _unread(environment, "REFLECTION_MAX_BUDGET_USD", "REFLECTION_DAILY_CAP_USD")
        return f"{unread}: no amount below 1,000,000 dollars, such as 0.50, so that no model is asked" if unread else ""

    def unread_idle(self, environment: Mapping[str, str]) -> str:
        """Return in a sentence that the quiet minutes of the environment are no number; "" where they are one."""
        unread = _unread(environment, "REFLECTION_IDLE_MIN")
        return f"{unread}: no number of minutes, so that {self.idle_min:g} hold" if unread else ""

    @property
    def idle_ms(self) -> float:
        """The time without an event after which a session counts as ended, milliseconds."""
        return self.idle_min * 60_000


def _unread(environment: Mapping[str, str], *names: str) -> str:
    """Return the variables that are set and hold no amount, with what they hold."""
    texts = {name: environment.get(name, "") for name in names}
    return " and ".join(
        f"{name}={text[:40]!r}" for name, text in texts.items() if text.strip() and _amount(text, -1) < 0
    )


def _amount(text: str, default: float) -> float:
    """Return the number in a text; the default for none, or an absurd one."""
    try:
        number = float(text) if text.strip() else default
    except ValueError:
        return default
    return number if 0 <= number < 1_000_000 else default


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a workspace.

    Attributes:
        problems: a sentence for each setting that could not be used, and has its default.
        is_read: False if the whole file, or what names the clan in it, could not be used: then nothing is shared.
        given: full names of the settings in the file.
    """

    share: _Share = msgspec.field(default_factory=_Share)
    keep: _Keep = msgspec.field(default_factory=_Keep)
    files: _Files = msgspec.field(default_factory=_Files)
    recall: _Recall = msgspec.field(default_factory=_Recall)
    promotion: Promotion = msgspec.field(default_factory=Promotion)
    attempts: Attempts = msgspec.field(default_factory=Attempts)
    triggers: _Triggers = msgspec.field(default_factory=_Triggers)
    hook: _Hook = msgspec.field(default_factory=_Hook)
    live: Live = msgspec.field(default_factory=Live)
    sidecar: Sidecar = msgspec.field(default_factory=Sidecar)
    sleep: _Sleep = msgspec.field(default_factory=_Sleep)
    semantic: Semantic = msgspec.field(default_factory=Semantic)
    notify: _Notify = msgspec.field(default_factory=_Notify)
    reflect: Reflect = msgspec.field(default_factory=Reflect)
    problems: list[str] = []
    is_read: bool = True
    given: list[str] = []


_SECTIONS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Config)[:-3]}
"""Type of each section; the last three fields of a configuration are none."""
_NAMED: dict[str, tuple[str, str]] = {
    f"{section}.{key}": (section, key) for section, kind in _SECTIONS.items() for key in kind.__struct_fields__
}
"""Every setting by its full name, as its section and its key."""

_IF_WRONG: dict[tuple[str, str], Any] = {
    ("promotion", "mode"): "suggest",
    ("attempts", "off"): True,
    ("files", "home"): "",
    ("reflect", "off"): True,
    ("semantic", "off"): True,
}
"""Values that replace a wrong one instead of the default: no lesson enters a memory, no text goes to a model, no file
is moved, and no command is stopped, unasked."""
_NAMES_THE_CLAN = {("share", "remote"), ("share", "branch")}
"""Settings without which nothing is shared: no other remote or branch is a substitute."""


def load(path: Path) -> Config:
    """Return the configuration in a file; a setting that is missing or wrong has its default."""
    if os.path.lexists(path) and not path.is_file():
        return _defaults(f"{path} is no plain file; every setting has its default until it is one")
    text = ""
    try:
        text = _text(path)
        tables = Files.toml(text)
    except FileNotFoundError:
        is_lost = path.with_name(".fleet").joinpath("replica.toml").exists()
        warning = f"{path} is not there; every setting has its default until it is, or `fleet init` makes a new one"
        return _defaults(warning) if is_lost else _defaults()
    except (ValueError, OSError) as why:
        reason = "git left two versions in it: keep the team's" if "\n<<<<<<< " in text else why
        return _defaults(f"{path} cannot be read ({reason}); every setting has its default until it is mended")
    config = Config() if tables else _defaults()
    for name, table in tables.items():
        if name not in _SECTIONS or not isinstance(table, dict):
            config.problems.append(f"{path}: there is no section [{name[:40]}]; it is passed over")
            config.files = _Files(home="") if name == "files" else config.files
            config.is_read = config.is_read and name != "share"
        elif table:  # `fleet init` writes all sections, and most stay empty
            setattr(config, name, _section(path, name, table, config))
            config.given += [f"{name}.{key}" for key in table]
    return config


def _defaults(*problems: str) -> Config:
    """Return the defaults for an unusable file, except that the homes stay where they are, and nothing is stopped."""
    attempts = Attempts(off=bool(problems))
    return Config(files=_Files(home=""), attempts=attempts, problems=list(problems), is_read=not problems)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(limits.LINE_BYTES_MAX + 1)
    if len(data) > limits.LINE_BYTES_MAX:
        raise ValueError(f"it is larger than {limits.LINE_BYTES_MAX:,} bytes")
    return data.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _section(path: Path, name: str, table: dict[str, Any], config: Config) -> Any:
    """Return a section without its wrong settings; each of those adds to the problems of a configuration."""
    good = {}
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, _SECTIONS[name])
        except msgspec.ValidationError as why:
            if (replacement := _IF_WRONG.get((name, key))) is not None:
                good[key] = replacement
            effect = f"until it is mended, {as_toml(replacement)} holds" if replacement else "it is passed over"
            if (name, key) in _NAMES_THE_CLAN:
                config.is_read, effect = False, "until it is mended, nothing is shared"
            config.problems.append(f"{path}: [{name}] {_wrong(name, key, repr(value), why)}; {effect}")
        else:
            good[key] = value
    return msgspec.convert(good, _SECTIONS[name])


def _wrong(section: str, key: str, value: str, why: Exception) -> str:
    """Return the fault of a setting: an unknown name, or a wrong value with the rule for it."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(_SECTIONS[section])}
    if key not in kinds:
        return f"{key[:40]} is not a setting"
    rule = why.__cause__ or f"it is {_allowed(kinds[key])}"  # the cause is our own check of a value
    return f"{key[:40]} cannot be {screened(value)[:60]}: {rule}"


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_FROM, _TO = (("ge", "from"), ("gt", "above")), (("le", "to"),)


def _allowed(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(as_toml, inner))}"
    if origin is list:
        return f"a list, each {_allowed(inner[0])}"
    if origin is dict:
        return f"a table, each key {_allowed(inner[0])}"
    if origin is not Annotated:
        return _NAMES.get(origin or kind) or (_allowed(inner[0]) if inner else "another value")
    meta = inner[1]
    if meta.pattern:
        return str(meta.description)
    bounds = [f"{word} {getattr(meta, name):,}" for name, word in (*_FROM, *_TO) if getattr(meta, name) is not None]
    return " ".join([_allowed(inner[0]), *bounds])


# --- settings by name -----------------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """Effective setting: its name ``section.key``, its value, and whether the file sets it."""

    name: str
    value: Any
    is_set: bool


def settings(path: Path) -> list[_Setting]:
    """Return every setting, in the order of the file that ``fleet init`` writes."""
    config = load(path)
    config.files = _Files(home=config.files.home or homes.Homes(path.parent).current())  # they stay where they are
    values = ((name, getattr(getattr(config, section), key)) for name, (section, key) in _NAMED.items())
    return [_Setting(name, value, name in config.given) for name, value in values]


def find(name: str) -> list[str]:
    """Return the full names for a setting, a section, or "" for all; raise ``UsageError`` for an unknown name."""
    if matches := [setting for setting, (section, _) in _NAMED.items() if name in ("", setting, section)]:
        return matches
    by_key = {key: setting for setting, (_, key) in _NAMED.items()}
    close = difflib.get_close_matches(name, [*_NAMED, *by_key], n=3, cutoff=0.6)
    meant = dict.fromkeys(by_key.get(match, match) for match in close)
    hint = f"Did you mean {' or '.join(meant)}?" if meant else "`fleet config` lists the settings."
    raise UsageError(f"{name[:60]!r} is no setting. {hint} Nothing was changed")


def parsed(name: str, text: str) -> Any:
    """Return a setting's value from what was typed, TOML or a bare word; raise ``UsageError`` for none it can have."""
    if find(name) != [name]:
        raise UsageError(f"{name} is a section: name a setting of it. Nothing was changed")
    section, key = _NAMED[name]
    candidates: list[Any] = [text]
    with suppress(ValueError):
        candidates.insert(0, Files.toml(f"value = {text}")["value"])
    reasons = []
    for value in candidates:
        try:
            return getattr(msgspec.convert({key: value}, _SECTIONS[section]), key)
        except msgspec.ValidationError as why:
            reasons.append(_wrong(section, key, repr(text), why))
    raise UsageError(f"{section}.{reasons[0]}. Nothing was changed")


# --- the file with another value ------------------------------------------------------------------------------------


def render(remote: str, branch: str) -> str:
    """Return the text of a new file: remote and branch, and every default as a comment."""
    text = Path(__file__).with_name("data").joinpath(FILE_NAME).read_text("utf-8")
    text = with_value(text, "share.branch", branch)
    return with_value(text, "share.remote", remote) if remote else text


def with_value(text: str, name: str, value: Any) -> str:
    """Return the text of the file with another value of a setting; comments and all other lines stay.

    A setting in a comment, as each default is in a new file, is uncommented. A value that spans several lines is not
    supported: the result then lacks the new value, or is no TOML.
    """
    section, _, key = name.partition(".")
    eol = "\r\n" if "\r\n" in text else "\n"
    row = f"{key} = {as_toml(value)}"
    head = re.search(rf"^[ \t\ufeff]*\[{re.escape(section)}\][^\r\n]*", text, re.MULTILINE)
    if head is None:
        return f"{text.rstrip()}{2 * eol if text.strip() else ''}[{section}]{eol}{row}{eol}"
    rest = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, head.end())
    end = rest.start() if rest else len(text)
    for mark in ("", "#[# \t]*"):
        line = re.compile(rf"^[ \t]*{mark}({re.escape(key)}[ \t]*=[^\r\n]*)", re.MULTILINE).search(
            text, head.end(), end
        )
        if line and (not mark or _is_toml(line[1])):
            comment = _comment(line[1])
            return f"{text[: line.start()]}{row}{'  ' + comment if comment else ''}{text[line.end() :]}"
    return f"{text[: head.end()]}{eol}{row}{text[head.end() :]}"


def _comment(line: str) -> str:
    """Return the comment after a setting, "" for none."""
    starts = (mark.start() for mark in re.finditer("#", line))
    return next((line[start:] for start in starts if _is_toml(line[:start])), "")


def _is_toml(text: str) -> bool:
    try:
        return bool(Files.toml(text))
    except ValueError:
        return False


def as_toml(value: Any) -> str:
    """Return a value as TOML, by JSON: only tables, and DEL in a text, are written differently in TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{as_toml(key)} = {as_toml(inner)}' for key, inner in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- .gitignore -----------------------------------------------------------------------------------------------------

IGNORED_NOTE = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
IGNORED_LOCAL = (
    "/.fleet/",
    *(f"/{name}" for name in (*homes.NOTES, homes.LOCK)),
    f"/.agents.local.md{homes.RESTORED[1:]}",
    f"/..agents.local.md{homes.TEMPORARY}",
    *(f"/.agents/**/{pattern}" for pattern in (homes.RESTORED, homes.TEMPORARY)),
)
"""Patterns of this machine's own files at the root: state, auto-reflect and consolidation."""


def ignore(files: Files, patterns: Sequence[str], *, dry_run: bool = False, shared: bool = False) -> list[str]:
    """Append the missing patterns to ``.gitignore``; return those that were, or with ``dry_run`` would be, added.

    This clone's own list, ``.git/info/exclude``, gets them, too: it holds on a branch from before that ``.gitignore``,
    and is enough there unless ``shared``, for a ``.gitignore`` that is to be committed. A folder covers its files.
    """
    everywhere, here = files.root / ".gitignore", files.root / ".git/info/exclude"
    missing = _missing(patterns, everywhere) if shared else _missing(patterns, everywhere, here)
    if not dry_run:
        _append_lines(files, everywhere, missing)
        if (files.root / ".git/HEAD").is_file():  # a git folder elsewhere is not written to
            with suppress(DiskError):  # as in a sandbox that keeps `.git` from an agent
                _append_lines(files, here, _missing(patterns, here))
    return missing


def _missing(patterns: Sequence[str], *lists: Path) -> list[str]:
    """Return the patterns that stand in none of these files."""
    known = {line.strip("/") for path in lists for line in _lines(path)}
    paths = {pattern: PurePosixPath(pattern.strip("/")) for pattern in patterns}
    return [pattern for pattern, path in paths.items() if known.isdisjoint(map(str, (path, *path.parents)))]


def _append_lines(files: Files, path: Path, lines: Sequence[str]) -> None:
    if lines:
        head = [] if IGNORED_NOTE in _lines(path) else [IGNORED_NOTE]
        files.append(path, "".join(f"{line}\n" for line in [*head, *lines]).encode())


def _lines(path: Path) -> set[str]:
    """Return the lines of a file, stripped; none where there is no file."""
    if not path.is_file():
        return set()
    return {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}
