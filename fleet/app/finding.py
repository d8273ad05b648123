"""Lookup of a lesson by its id, or by the beginning of one, as a person types it."""

from fleet.model.errors import FleetError, NoError
from fleet.model.pattern import Pattern
from fleet.store.query import Patterns
from fleet.store.workspace import Workspace


def sources(workspace: Workspace, agent: str = "") -> list[Patterns]:
    """Return the clan's records and the private ones, of one agent or of every agent here."""
    try:
        agents = [agent] if agent else workspace.agents_here()
    except FleetError:  # nobody knows who writes here: what the clan has can be read all the same
        agents = []
    return [workspace.patterns, *(workspace.notes(each) for each in agents if workspace.notes_file(each).is_file())]


def find(workspace: Workspace, prefix: str) -> Pattern:
    """Return the record that an id, or the unique beginning of one, names.

    Raises:
        NoError: no pattern, or more than one.
    """
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    looked = sources(workspace)
    found = sorted({each for source in looked for each in source.beginning(wanted)}) if len(wanted) > len("p-") else []
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise NoError(f"{prefix} is not unique: {shown}. Give more of the id")
    for source in looked:
        if found and (pattern := source.get(found[0])) is not None:
            return pattern
    raise NoError(f"no pattern begins with {prefix[:40]!r}. `fleet patterns --all` lists them")
