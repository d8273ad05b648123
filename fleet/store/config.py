"""``fleet.toml``: the one configuration file, every threshold with its default; and what fleet has git ignore.

A mistake in it costs the setting that it is about, never a command: a correction that is refused is lost.
What each setting does stands beside it in ``data/fleet.toml``, and in docs/configuration.md.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from fleet.model import limits
from fleet.model.errors import UsageError
from fleet.store import homes
from fleet.store.files import Files

FILE_NAME = "fleet.toml"


class _Share(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what travels, and where to."""

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
    attempts: int = 15
    wait_s: float = 60.0
    stale_days: int = 14


class _Keep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what is kept: when a whole edition is written, and for whom an agent's own files are."""

    edition_always_bytes: int = 256 * 1024
    edition_uncovered_share: float = 0.25
    private: bool = True


class _Files(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Place of files in the workspace; with ``home`` empty the agents' own stay where they were last."""

    home: str = homes.DEFAULT

    def __post_init__(self) -> None:
        if self.home and (why := homes.problem(self.home)):
            raise ValueError(why)


class _Recall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of how much an agent reads when its session starts."""

    start_chars: int = limits.START_REST_CHARS_MAX
    discoveries: int = 20
    at_prompts: Annotated[int, msgspec.Meta(ge=0, le=3)] = 3
    page_lessons: int = limits.PAGE_LESSONS_MAX
    session_idle_minutes: int = 30


_Threshold = Annotated[int, msgspec.Meta(ge=1)]


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
        """The number of occurrences below which no lesson is ever due: others need not be looked at."""
        return min(self.own, self.clan_seen)


class Attempts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of when an approach counts as stuck."""

    limit: Annotated[int, msgspec.Meta(ge=2, le=100)] = 3
    off: bool = False
    names: dict[str, str] = {}
    builds: list[str] | None = None


_Language = Literal["en", "de", "es", "fr", "zh", "ja"]


class _Triggers(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what counts as a correction in the words of a person, or of another agent."""

    off: bool = False
    minimum: Literal["strong", "medium", "weak"] = "medium"
    languages: list[_Language] = msgspec.field(default_factory=lambda: list(get_args(_Language)))
    strong: list[str] = []
    medium: list[str] = []
    weak: list[str] = []
    without: list[str] = []
    exclusions: list[str] = []


class _Hook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what the hooks of an agent's host do by themselves."""

    sync_at_end: bool = True
    quiet: bool = False
    ask_days: Annotated[float, msgspec.Meta(gt=0)] = 1
    observe: bool = True
    auto_memory: bool = False


class _Sleep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what ``fleet tidy`` and ``fleet sleep`` do by themselves."""

    off: bool = False
    dates: Literal["replace", "add"] = "replace"
    zone: str = ""
    archive_hours: Annotated[float, msgspec.Meta(gt=0)] = 168.0
    changes_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    changes_min: Annotated[int, msgspec.Meta(ge=0)] = 20

    def changes_max(self, total: int) -> int:
        """Return how many of so many things one run may change."""
        return max(self.changes_min, int(self.changes_share * total))


class Sidecar(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``fleet sidecar`` and ``fleet poll``."""

    interval_s: Annotated[float, msgspec.Meta(ge=1)] = 300.0
    quiet_s: Annotated[float, msgspec.Meta(ge=0)] = 3.0
    rescan_s: Annotated[float, msgspec.Meta(ge=1)] = 600.0
    polling: bool = False
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0


class Live(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of live sync, by which neighbours hear of a lesson in a moment."""

    url: str = ""
    room: Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9._-]{0,59}$")] = "clan"
    serve: bool = False
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = limits.LIVE_PORT
    token_env: Annotated[str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$")] = "FLEET_LIVE_TOKEN"  # noqa: S105 - where it stands, not what it is


class Semantic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Similarity by meaning, beside similarity by words."""

    off: bool = False
    model: str = ""
    url: str = ""
    url_model: str = ""
    key_env: Annotated[str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$")] = "FLEET_EMBEDDING_KEY"


class _Notify(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of who is told when a reflection is done, or something waits for a person."""

    terminal: bool = True
    desktop: bool = False
    webhook: str = ""
    webhook_env: Annotated[str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$")] = "FLEET_WEBHOOK_URL"


BANNED = ("hermes", "openclaw", "nanoclaw", "claw")
"""Words that reject a whole reflection, as in the seed."""


class Reflect(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of what is written down when a session ends, and who is asked."""

    off: bool = False
    reflector: Literal["rules", "claude", "codex", "gemini", "command", "endpoint"] = "rules"
    command: list[str] = []
    url: str = ""
    api: Literal["openai", "anthropic"] = "openai"
    model: str = ""
    key_env: Annotated[str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$")] = "FLEET_REFLECT_KEY"
    usd_per_million_in: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    usd_per_million_out: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    wait_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    tokens: Annotated[int, msgspec.Meta(ge=1000, le=200_000)] = 24_000
    idle_min: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    max_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.50
    daily_usd: Annotated[float, msgspec.Meta(ge=0)] = 5.00
    banned: list[str] = msgspec.field(default_factory=lambda: list(BANNED))
    honcho: str = ""
    honcho_url: str = ""
    honcho_key_env: Annotated[str, msgspec.Meta(pattern="^FLEET_[A-Z0-9_]+$")] = "FLEET_HONCHO_KEY"

    def in_environment(self, said: Mapping[str, str]) -> "Reflect":
        """Return the settings as the environment has them, whose word comes first; an absurd one is passed over."""
        is_off = said.get("REFLECTION_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")
        return msgspec.structs.replace(
            self,
            max_usd=_amount(said.get("REFLECTION_MAX_BUDGET_USD", ""), self.max_usd),
            daily_usd=_amount(said.get("REFLECTION_DAILY_CAP_USD", ""), self.daily_usd),
            idle_min=_amount(said.get("REFLECTION_IDLE_MIN", ""), self.idle_min),
            off=is_off or self.off,
        )

    @property
    def idle_ms(self) -> float:
        """For how long a session is quiet that has ended, milliseconds."""
        return self.idle_min * 60_000


def _amount(given: str, otherwise: float) -> float:
    """Return a number that the environment gives; the other one where it gives none, or an absurd one."""
    try:
        found = float(given) if given.strip() else otherwise
    except ValueError:
        return otherwise
    return found if 0 <= found < 1_000_000 else otherwise


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        problems: what in the file could not be used, a sentence each; its default holds instead.
        is_read: False where nothing in the file could be used.
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


_SECTIONS: dict[str, Any] = {
    field.name: field.type for field in msgspec.structs.fields(Config) if field.name not in ("problems", "is_read")
}


_IF_WRONG = {("promotion", "mode"): "suggest", ("files", "home"): ""}
"""Values in place of the default: who meant to be asked must not find lessons in a memory, nor files moved."""


def load(path: Path) -> Config:
    """Return the configuration that a file gives; what it does not say, or says wrongly, has its default."""
    if os.path.lexists(path) and not path.is_file():
        return _defaults(f"{path} is no plain file; every setting has its default until it is one")
    try:
        found = tomllib.loads(_text(path))
    except FileNotFoundError:
        is_gone = path.with_name(".fleet").joinpath("replica.toml").exists()
        told = f"{path} is not there; every setting has its default until it is, or `fleet init` makes a new one"
        return _defaults(told) if is_gone else _defaults()
    except (ValueError, OSError) as why:
        return _defaults(f"{path} cannot be read ({why}); every setting has its default until it is mended")
    config = Config() if found else _defaults()
    for name, table in found.items():
        if name not in _SECTIONS or not isinstance(table, dict):
            config.problems.append(f"{path}: there is no section [{name[:40]}]; it is passed over")
            config.files = _Files(home="") if name == "files" else config.files
        else:
            setattr(config, name, _section(path, name, table, config.problems))
    return config


def _defaults(*problems: str) -> Config:
    """Return what holds while a file says nothing: the defaults; but what was logged stays where it is."""
    return Config(files=_Files(home=""), problems=list(problems), is_read=not problems)


def _text(path: Path) -> str:
    return path.read_bytes().decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _section(path: Path, name: str, table: dict[str, Any], problems: list[str]) -> Any:
    """Return a section without the keys that are wrong; each of those is told."""
    good = {}
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, _SECTIONS[name])
        except msgspec.ValidationError as why:
            if (held := _IF_WRONG.get((name, key))) is not None:
                good[key] = held
            told = f'until it is mended, "{held}" holds' if held else "it is passed over"
            problems.append(f"{path}: [{name}] {key[:40]} cannot be {value!r:.60}: {_wrong(name, key, why)}; {told}")
        else:
            good[key] = value
    return msgspec.convert(good, _SECTIONS[name])


def _wrong(section: str, key: str, why: Exception) -> str:
    """Return what a setting can be, where a value cannot be read; what was wrong with it, where it could."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(_SECTIONS[section])}
    if key not in kinds:
        return "there is no such setting"
    if why.__cause__ is not None:  # our own check of a value
        return str(why.__cause__)
    return f"it is {_allowed(kinds[key])}"


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a table"}
_FROM, _TO = (("ge", "from"), ("gt", "above")), (("le", "to"),)


def _allowed(kind: Any) -> str:
    """Return what a value of a type can be, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(as_toml, inner))}"
    if origin is list:
        return f"a list, each {_allowed(inner[0])}"
    if origin is not Annotated:
        return _NAMES.get(origin or kind) or (_allowed(inner[0]) if inner else "another value")
    meta = inner[1]
    if meta.pattern:
        return meta.description or f"a text of the form {meta.pattern}"
    bounds = [f"{word} {getattr(meta, name):,}" for name, word in (*_FROM, *_TO) if getattr(meta, name) is not None]
    return " ".join([_allowed(inner[0]), *bounds])


# --- settings by name -----------------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """One setting as it holds here: ``section.key``, its value, and whether the file says it, as it may any default."""

    name: str
    value: Any
    is_set: bool


def settings(path: Path) -> list[_Setting]:
    """Return every setting, in the order of the file that ``fleet init`` writes."""
    config = load(path)
    try:
        said = tomllib.loads(_text(path))
    except (ValueError, OSError):
        said = {}
    return [
        _Setting(f"{section}.{key}", getattr(getattr(config, section), key), key in said.get(section, ()))
        for section, key in map(_parts, _names())
    ]


def _names() -> list[str]:
    return [f"{section}.{key.name}" for section, kind in _SECTIONS.items() for key in msgspec.structs.fields(kind)]


def _parts(name: str) -> tuple[str, str]:
    section, _, key = name.partition(".")
    return section, key


def find(name: str) -> list[str]:
    """Return the names of the settings that a name means: one, all of a section, or for "" all.

    Raises:
        UsageError: there is none.
    """
    if found := [each for each in _names() if name in ("", each, _parts(each)[0])]:
        return found
    ends = {_parts(each)[1]: each for each in _names()}
    close = difflib.get_close_matches(name, [*_names(), *ends], n=3, cutoff=0.6)
    meant = dict.fromkeys(ends.get(each, each) for each in close)
    told = f"Did you mean {' or '.join(meant)}?" if meant else "`fleet config` lists the settings."
    raise UsageError(f"{name[:60]!r} is no setting. {told} Nothing was changed")


def parsed(name: str, text: str) -> Any:
    """Return the value of a setting that a person typed: as TOML, or a bare word.

    Raises:
        UsageError: there is no such setting, or it cannot have that value.
    """
    if find(name) != [name]:
        raise UsageError(f"{name} is a section: name a setting of it. Nothing was changed")
    section, key = _parts(name)
    tried: list[Any] = [text]
    with suppress(ValueError):
        tried.insert(0, tomllib.loads(f"value = {text}")["value"])
    wrong = []
    for each in tried:
        try:
            return getattr(msgspec.convert({key: each}, _SECTIONS[section]), key)
        except msgspec.ValidationError as why:
            wrong.append(_wrong(section, key, why))
    raise UsageError(f"{name} cannot be {text[:60]!r}: {wrong[0]}. Nothing was changed")


# --- the file with another value ------------------------------------------------------------------------------------


def render(remote: str, branch: str) -> str:
    """Return the text of a new file: what was chosen, and every default as a comment."""
    text = Path(__file__).with_name("data").joinpath(FILE_NAME).read_text("utf-8")
    text = with_value(text, "share.branch", branch)
    return with_value(text, "share.remote", remote) if remote else text


def with_value(text: str, name: str, value: Any) -> str:
    """Return the text of the file with another value of a setting; comments, and every other line, are as they were.

    What stands there as a comment in one line, as each default does in a new file, becomes the setting. A value of
    several lines is not known: then what comes out does not say what was wanted, or is no TOML.
    """
    section, key = map(re.escape, _parts(name))
    eol = "\r\n" if "\r\n" in text else "\n"
    said = f"{_parts(name)[1]} = {as_toml(value)}"
    head = re.search(rf"^[ \t\ufeff]*\[{section}\][^\r\n]*", text, re.MULTILINE)
    if head is None:
        return f"{text.rstrip()}{2 * eol if text.strip() else ''}[{_parts(name)[0]}]{eol}{said}{eol}"
    rest = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, head.end())
    end = rest.start() if rest else len(text)
    for mark in ("", "#[# \t]*"):
        line = re.compile(rf"^[ \t]*{mark}({key}[ \t]*=[^\r\n]*)", re.MULTILINE).search(text, head.end(), end)
        if line and (not mark or _is_toml(line[1])):
            comment = _comment(line[1])
            return f"{text[: line.start()]}{said}{'  ' + comment if comment else ''}{text[line.end() :]}"
    return f"{text[: head.end()]}{eol}{said}{text[head.end() :]}"


def _comment(line: str) -> str:
    """Return the comment behind a setting, "" for none."""
    marks = (found.start() for found in re.finditer("#", line))
    return next((line[at:] for at in marks if _is_toml(line[:at])), "")


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except ValueError:
        return False


def as_toml(value: Any) -> str:
    """Return a value as the file has it. JSON's forms are a subset of TOML's, but for a table, and DEL in a text."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{as_toml(name)} = {as_toml(each)}' for name, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- .gitignore -----------------------------------------------------------------------------------------------------

IGNORED_NOTE = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
IGNORED_LOCAL = homes.ignores_at_the_root()
"""Files of one machine alone: its state, and the files of auto-reflect and consolidation, file by file."""


def _not_ignored(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return which of these patterns the folder's ``.gitignore`` lacks. A whole folder in it covers its files."""
    known = {line.strip("/") for line in _ignored_lines(root)}
    above = {each: PurePosixPath(each.strip("/")).parents for each in patterns}
    return [each for each in patterns if not {each.strip("/"), *map(str, above[each])} & known]


def ignore(files: Files, patterns: Sequence[str], *, dry_run: bool = False) -> list[str]:
    """Add what is missing to ``.gitignore``, behind what a person wrote; return what was, or would be, added."""
    missing = _not_ignored(files.root, patterns)
    if missing and not dry_run:
        head = [] if IGNORED_NOTE in _ignored_lines(files.root) else [IGNORED_NOTE]
        text = "".join(f"{line}\n" for line in [*head, *missing])
        files.append(files.root / ".gitignore", text.encode())
    return missing


def _ignored_lines(root: Path) -> set[str]:
    """Return the lines of the folder's ``.gitignore``, without what stands around them."""
    path = root / ".gitignore"
    if not path.is_file():
        return set()
    return {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}
