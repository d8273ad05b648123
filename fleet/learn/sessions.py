"""Which session an occurrence belongs to: the host's, else a replica's own until it has been idle for a while."""

import re
from typing import TYPE_CHECKING

from fleet.keep.digests import blake2b
from fleet.keep.lazily import compiled

if TYPE_CHECKING:  # a hook needs ``as_word`` alone, and that import takes five times as long as Python's own start
    from fleet.keep.workspace import Workspace

_FILE_BYTES = 48
_NOTED = compiled(rb"(s-[0-9a-f]{12}) ([0-9]{1,15}) *")
_PLAIN = compiled(r"[A-Za-z0-9_.:@/-]{1,80}", re.ASCII)


def session_of(workspace: "Workspace", agent: str, named: str) -> str:
    """Return the session's id. It stays on this machine."""
    if named:
        return as_word(named)
    idle_ms = workspace.config.recall.session_idle_minutes * 60_000
    now_ms, file = workspace.world.wall_ms(), workspace.local / "sessions" / agent
    session, last_ms = _read(workspace.disk.read(file))
    if not session or not 0 <= now_ms - last_ms <= idle_ms:
        session = _new_id(workspace)
    workspace.disk.note(file, f"{session} {now_ms}".ljust(_FILE_BYTES).encode())
    return session


def _read(data: bytes) -> tuple[str, int]:
    """Return the running session and when it was last used; a damaged file is none, and begins a new one."""
    found = _NOTED.fullmatch(data)
    return (found[1].decode(), int(found[2])) if found else ("", 0)


def as_word(named: str) -> str:
    """Return the id as it can stand in a comment: one word, no ``--``; anything else is hashed."""
    if _PLAIN.fullmatch(named) and "--" not in named:
        return named
    return "h-" + blake2b(named.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _new_id(workspace: "Workspace") -> str:
    return "s-" + workspace.world.entropy(6).hex()
