"""Which session an occurrence belongs to: the host's, else a replica's own until it has been idle for a while."""

import hashlib
import re

from fleet.keep.workspace import Workspace

_PLAIN = re.compile(r"[A-Za-z0-9_.:@/-]{1,80}", re.ASCII)


def session_of(workspace: Workspace, agent: str, named: str) -> str:
    """Return the session's id. It stays on this machine."""
    if named:
        return as_word(named)
    idle_ms = workspace.config.recall.session_idle_minutes * 60_000
    return workspace.state.session(agent, workspace.world.wall_ms(), idle_ms, lambda: _new_id(workspace))


def as_word(named: str) -> str:
    """Return the id as it can stand in a comment: one word, no ``--``; anything else is hashed."""
    if _PLAIN.fullmatch(named) and "--" not in named:
        return named
    return "h-" + hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _new_id(workspace: Workspace) -> str:
    return "s-" + workspace.world.entropy(6).hex()
