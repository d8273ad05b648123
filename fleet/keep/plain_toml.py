"""TOML as fleet itself writes it, read line by line; whatever else somebody wrote is ``tomllib``'s to read.

A command reads two such files, and importing ``tomllib`` for them takes a third of the time that Python takes to start.
Nothing is guessed: one line that is not plain sends the whole text there, and all that is wrong is told by it.
"""

from typing import Any


def loads(text: str) -> dict[str, Any]:
    """Return what ``tomllib.loads`` returns.

    Raises:
        ValueError: it is not valid TOML (``tomllib.TOMLDecodeError``).
    """
    found = plain(text)
    if found is None:
        import tomllib

        return tomllib.loads(text)
    return found


def plain(text: str) -> dict[str, Any] | None:
    """Return the content of a text that is plain; None for any other, right or wrong.

    Plain are tables and arrays of tables with bare names, each a level deep, and values that are a string without
    escapes, a number in decimal digits, or a truth value: one on a line, a comment behind it or not.
    """
    lines = text.split("\n")
    if not "".join(lines).isprintable():
        return None
    top: dict[str, Any] = {}
    table = top
    for line in map(_stripped, lines):
        if not line or line[0] == "#":
            continue
        if line[0] == "[":
            opened = _opened(top, line)
            if opened is None:
                return None
            table = opened
            continue
        key, _, told = (part.strip(" ") for part in line.partition("="))
        value = _value(told)
        if value is None or key in table or not _is_bare(key):
            return None
        table[key] = value
    return top


def _stripped(line: str) -> str:
    return line.strip(" ")


def _opened(top: dict[str, Any], line: str) -> dict[str, Any] | None:
    """Return the table that a header opens; None for one that takes a closer look."""
    is_many = line.startswith("[[") and line.endswith("]]")
    name = line[2:-2] if is_many else line[1:-1]
    if not line.endswith("]") or not _is_bare(name):
        return None
    fresh: dict[str, Any] = {}
    if not is_many and name not in top:
        top[name] = fresh
    elif is_many and isinstance(known := top.setdefault(name, []), list):
        known.append(fresh)
    else:
        return None
    return fresh


def _is_bare(name: str) -> bool:
    return name.isascii() and name.replace("_", "").replace("-", "").isalnum()


def _value(told: str) -> str | int | float | bool | None:
    if told.startswith('"'):
        text, quote, rest = told[1:].partition('"')
        is_whole = quote and "\\" not in text and rest.lstrip(" ")[:1] in ("", "#")
        return text if is_whole else None
    word = told.partition("#")[0].rstrip(" ")
    if word in ("true", "false"):
        return word == "true"
    whole, point, part = word.partition(".")
    if not word.isascii() or not whole.isdigit() or (whole[0] == "0" and whole != "0"):
        return None
    if not point:
        return int(whole)
    return float(word) if part.isdigit() else None
