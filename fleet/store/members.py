"""``members.toml``: the agents of a clan, a table each: display name, emoji, later their public keys.

[popashot]
name = "Popashot"
emoji = "🎯"
"""

import tomllib
from collections.abc import Mapping

import msgspec

from fleet.model import limits, names
from fleet.text import screening

Members = dict[str, dict[str, str]]

_EMOJI_CHARS_MAX = 8


def parse(data: bytes) -> Members:
    """Read the file. What cannot be used is left out: it came from somebody else, and only decorates."""
    if len(data) > limits.LINE_BYTES_MAX:
        return {}
    try:
        found = tomllib.loads(data.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return {}
    return {
        agent: {key: screening.one_line(value)[:200] for key, value in table.items() if isinstance(value, str)}
        for agent, table in sorted(found.items())
        if names.is_agent(agent) and isinstance(table, dict)
    }


def render(members: Members) -> bytes:
    """Return the bytes of the file, agents and keys sorted."""
    tables = []
    for agent, table in sorted(members.items()):
        lines = [
            f"{key} = {msgspec.json.encode(value).decode()}" for key, value in sorted(table.items()) if _is_key(key)
        ]
        tables.append("\n".join([f"[{agent}]", *lines]) + "\n")
    return "\n".join(tables).encode()


def merge(base: Members, mine: Members, theirs: Members) -> Members:
    """Join three-way, agent by agent: what changed here since ``base`` stands, all else is theirs."""
    return theirs | {agent: table for agent, table in mine.items() if table != base.get(agent)}


def emoji(members: Members) -> Mapping[str, str]:
    """Return agent to emoji, of those that have a short one."""
    found = {agent: screening.strip_controls(table.get("emoji", "")) for agent, table in members.items()}
    return {
        agent: mark for agent, mark in found.items() if mark and len(mark) <= _EMOJI_CHARS_MAX and mark.isprintable()
    }


def _is_key(key: str) -> bool:
    return key.isascii() and key.replace("_", "").replace("-", "").isalnum()
