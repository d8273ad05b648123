"""Witnesses: who of those that say a lesson may be one and the same, by what git tells of how their lines came.

Lines are not signed, so a name proves nothing. What is known is who committed to a writer's file (fleet commits under a
word that stands for its machine), and in whose file a column came. Writers that share one of these are one witness, and
so are the writers of this folder, and all those of whom nothing is known. Whoever pushes may invent commit authors,
too: this tells careless floods from evidence, and is no proof.
"""

import json
from collections import defaultdict
from collections.abc import Iterable

from fleet.model import names
from fleet.reflect.evidence import Witness, by_agent
from fleet.store.tree import TreeGoneError
from fleet.store.workspace import Workspace

_NOTE = "witnesses"
_HERE, _UNKNOWN = "here", "unknown"
_FOLDER = "patterns.d"


def witness(workspace: Workspace) -> Witness:
    """Return who vouches for what a writer says of a lesson. Looked for where others' evidence may be enough alone."""
    if workspace.config.promotion.others != "auto":
        return by_agent
    groups, brought = _groups(workspace), workspace.trust.brought()

    def of(each: str, writer: str) -> str:
        carrier = brought.get((each, writer), writer)
        return groups.get(carrier, _UNKNOWN)

    return of


def known_groups(workspace: Workspace) -> dict[str, str]:
    """Return writer to the name of its group, as it was looked up last: for who cannot wait."""
    return _kept(workspace)[1]


def look_up(workspace: Workspace) -> None:
    """Look up who is one with whom, as of the fetched tree."""
    _groups(workspace)


def _kept(workspace: Workspace) -> tuple[str, dict[str, str]]:
    try:
        mark, found = json.loads(workspace.db.noted(_NOTE) or "[]")
        return str(mark), {str(writer): str(group) for writer, group in found.items()}
    except (ValueError, AttributeError):
        return "", {}  # none was kept yet, or by another version


def _groups(workspace: Workspace) -> dict[str, str]:
    """Return writer to the name of its group, as of the fetched tree."""
    mark = json.dumps([workspace.tree.head(), sorted(workspace.mine())])
    kept, groups = _kept(workspace)
    if kept == mark:
        return groups
    groups = grouped(_pushers(workspace), workspace.mine())
    workspace.db.note(_NOTE, json.dumps([mark, groups]))
    return groups


def _pushers(workspace: Workspace) -> dict[str, set[str]]:
    """Return who committed to each writer's file; nothing where the history is not here."""
    try:
        found = workspace.tree.pushers(_FOLDER)
    except TreeGoneError:
        return {}
    shards = ((path.removeprefix(f"{_FOLDER}/").removesuffix(".jsonl"), who) for path, who in found.items())
    return {writer: who for writer, who in shards if names.is_replica(writer)}


def grouped(pushers: dict[str, set[str]], mine: Iterable[str]) -> dict[str, str]:
    """Return writer to the name of its group.

    Args:
        pushers: writer to those who committed to its file: all whose files one of them committed to are one.
        mine: the writers of this folder, who are one.
    """
    root: dict[str, str] = {}

    def find(each: str) -> str:
        while root.setdefault(each, each) != each:
            root[each] = root[root[each]]
            each = root[each]
        return each

    def join(one: str, other: str) -> None:
        a, b = find(one), find(other)
        root[max(a, b)] = min(a, b)

    for writer, who in pushers.items():
        for author in who:
            join(f"w {writer}", f"a {author}")
    for writer in mine:
        join(f"w {writer}", _HERE)
    members: dict[str, str] = defaultdict(str)
    for each in sorted(root):
        if each.startswith("w "):
            members[each.removeprefix("w ")] = find(each)
    return dict(members)
