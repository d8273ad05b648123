"""The commands that are typed most, called without the parser when their words are as they should be.

Importing typer takes longer than logging a correction. So well-formed words of these commands are read here; anything
else (help, a word too many, one too few, an option nobody knows) goes to the parser, which explains it. A test holds
the table to what ``agents.py`` declares.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Quick(NamedTuple):
    """One command: option to parameter, the flags among them, those that repeat, and those that must be there."""

    options: dict[str, str]
    flags: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()


_OBJECTS = 100_000
"""So many objects are made before one looks for cycles: what these commands leave behind goes with their process."""

_WHERE = {"--dir": "directory"}
_WHO = {"--agent": "agent", "--session": "session", **_WHERE}
_JSON = {"--json": "as_json"}

COMMANDS = {
    "correct": Quick(
        {
            **{
                f"--{name}": name
                for name in ("wrong", "right", "pattern", "title", "source", "same", "category", "tag")
            },
            "--from": "told_by",
            **_WHO,
            **_JSON,
        },
        flags=frozenset(_JSON),
        lists=frozenset({"--tag"}),
        required=("wrong", "right", "pattern"),
    ),
    "gossip": Quick(
        {"-n": "count", "--count": "count", **_WHERE, **_JSON}, frozenset(_JSON), numbers=frozenset({"-n", "--count"})
    ),
    "sync": Quick(
        {"--dry-run": "dry_run", "--yes": "yes", "-y": "yes", "--agent": "agent", **_WHERE},
        frozenset({"--dry-run", "--yes", "-y"}),
    ),
    "start": Quick({**_WHO, **_JSON}, frozenset(_JSON)),
}


def call(words: Sequence[str]) -> Callable[[], None] | None:
    """Return what to call for these words, or None when the parser should look at them."""
    command = COMMANDS.get(words[0]) if words else None
    given = None if command is None else parsed(command, words[1:])
    if given is None:
        return None
    import gc

    from fleet.keep import lean

    gc.set_threshold(_OBJECTS)
    lean.import_pathlib()
    lean.import_msgspec()
    from fleet.cli import acts, desk

    desk.chosen.directory = desk.chosen.agent = desk.chosen.session = ""  # nothing stands before these words
    return lambda: getattr(acts, words[0])(**given)


def parsed(command: Quick, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the parameters that the words give, or None unless every word is plain."""
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        option, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = command.options.get(option)
        if name is None or (option in command.flags and has_value):
            return None
        if option in command.flags:
            given[name] = True
            continue
        if not has_value:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        if option in command.numbers and not (value.isascii() and value.isdigit() and 0 < int(value) < 10**9):
            return None
        if option in command.lists:
            given.setdefault(name, []).append(value)
        else:
            given[name] = int(value) if option in command.numbers else value
    return given if all(name in given for name in command.required) else None
