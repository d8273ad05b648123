"""Names that enter from outside: agents, replicas, ids. Checked here, so that no path is ever built from others."""

import re

AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
REPLICA = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\.[0-9a-f]{8}", re.ASCII)
ID = re.compile(r"[a-z][a-z0-9]{0,7}-[0-9a-f]{16}", re.ASCII)
HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)

IMPORT = "import"
"""Stands for the author of an imported record that names none: no real agent may bear it."""


def is_agent(name: str) -> bool:
    """Tell whether this can be an agent's name."""
    return AGENT.fullmatch(name) is not None and name != IMPORT


def is_replica(name: str) -> bool:
    """Tell whether this is a replica's name, ``<agent>.<8 hex>``."""
    return REPLICA.fullmatch(name) is not None


def is_id(text: str) -> bool:
    """Tell whether this is the id of a pattern, a discovery, or of something that a later version knows."""
    return ID.fullmatch(text) is not None


def is_hash(text: str) -> bool:
    """Tell whether these are the 16 hex digits of a hash, as of an imported record or a carried line."""
    return HASH.fullmatch(text) is not None


def agent_of(replica: str) -> str:
    """Return the agent whose install this replica is."""
    return replica.rpartition(".")[0]
