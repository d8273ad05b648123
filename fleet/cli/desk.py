"""What every command needs: which workspace, which agent, and how to print."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from fleet.keep import screening
from fleet.keep.errors import NoError
from fleet.keep.lazily import compiled
from fleet.keep.line import Line
from fleet.keep.notebook import Notebook
from fleet.keep.workspace import Workspace, find_root


class Chosen(msgspec.Struct):
    """Options that stand before the command; the same ones behind it win."""

    directory: str = ""
    agent: str = ""
    session: str = ""


chosen = Chosen()

_UNSAFE_IN_JSON = compiled("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]")


@contextmanager
def opened(directory: str = "") -> Iterator[Workspace]:
    """Open the workspace for one command; afterwards tell what a person should know.

    Raises:
        NoError: there is none here.
    """
    workspace = Workspace(find_root(directory or chosen.directory, os.environ, Path.cwd()))
    try:
        yield workspace
    finally:
        for warning in workspace.warnings:
            note(f"warning: {warning}")
        workspace.close()


def agent_in(workspace: Workspace, named: str = "") -> str:
    """Return the agent to act as: ``--agent``, else ``FLEET_AGENT``, else the stored default."""
    return workspace.agent(named or chosen.agent or os.environ.get("FLEET_AGENT", ""))


def session_named(named: str = "") -> str:
    """Return the session that was named: ``--session``, else ``FLEET_SESSION``, else the one that a host tells of.

    Claude Code sets its variable for every command that it runs.
    """
    said = (os.environ.get(name, "") for name in ("FLEET_SESSION", "CLAUDE_CODE_SESSION_ID"))
    return named or chosen.session or next(filter(None, said), "")


def emoji_of(workspace: Workspace) -> Mapping[str, str]:
    """Return agent to emoji."""
    from fleet.keep import members

    return members.emoji(members.parse(workspace.store.read("members.toml")))


def find(notebook: Notebook, prefix: str) -> Line:
    """Return the pattern that an id, or the unique beginning of one, names.

    Raises:
        NoError: no pattern, or more than one.
    """
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    found = notebook.beginning(wanted) if len(wanted) > len("p-") else []
    if not found:
        raise NoError(f"no pattern begins with {prefix[:40]!r}. `fleet patterns --all` lists them")
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise NoError(f"{prefix} is not unique: {shown}. Give more of the id")
    return notebook.patterns[found[0]]


def say(text: str) -> None:
    """Print to stdout, safe for a terminal."""
    print(screening.for_terminal(text))


def note(text: str) -> None:
    """Print to stderr, safe for a terminal, without secrets."""
    print(f"fleet: {screening.for_terminal(screening.redact(text))}", file=sys.stderr)


def say_json(found: Any) -> None:
    """Print one JSON document that no terminal can stumble over."""
    print(as_json(found))


def as_json(found: Any) -> str:
    """Return one line of JSON that no terminal can stumble over."""
    import json

    text = json.dumps(found, ensure_ascii=False, indent=None, separators=(",", ":"))
    return _UNSAFE_IN_JSON.sub(lambda char: json.dumps(char[0])[1:-1], text)


def fit(text: str) -> str:
    """Return a text that is fit to leave: a line that somebody else wrote may hold anything."""
    return _fit_again(text) if len(text) <= _SHORT_CHARS else screening.redact(screening.strip_controls(text))


_SHORT_CHARS = 64


@lru_cache(maxsize=1 << 14)
def _fit_again(text: str) -> str:
    """The same for ids, stamps and names, which come again and again; of long texts, none does."""
    return screening.redact(screening.strip_controls(text))


def as_large_json(parts: Mapping[str, Any]) -> str:
    """Return what ``as_json(cleaned(...))`` does; what an iterator yields is never in memory all at once."""
    return "{" + ",".join(f"{as_json(name)}:{_one_part(value)}" for name, value in parts.items()) + "}"


def _one_part(value: Any) -> str:
    if isinstance(value, Iterator):
        return "[" + ",".join(as_json(cleaned(each)) for each in value) + "]"
    return as_json(cleaned(value))


def cleaned(found: Any) -> Any:
    """Return a value with every text in it fit to leave: somebody else may have put anything there."""
    if isinstance(found, str):
        return fit(found)
    if isinstance(found, dict):
        return {cleaned(key): cleaned(value) for key, value in found.items()}
    return [cleaned(each) for each in found] if isinstance(found, list | tuple) else found


def counted(number: int, one: str, many: str = "") -> str:
    """Return "1 line", "2 lines"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
