"""Private lessons: records that live in an agent's ``notes.jsonl``, which nothing shared ever opens.

A lesson is private while the record there says ``scope=private``. Its counts are parts, keyed by the hash of what was
counted, so that they add up with whatever the clan's record of the same lesson counts.
"""

from collections.abc import Sequence
from typing import Any

from fleet.model import edits, names
from fleet.model import line as lines
from fleet.model.line import Line
from fleet.model.pattern import PRIVATE, SCOPE, Pattern, fold
from fleet.store.lines import PATTERNS
from fleet.store.workspace import Writer

_NO_PART = "0" * 16
_OWN = ("add", "first", "n", "parts", "rem", "set", "over")


def hide(writer: Writer, known: Pattern) -> None:
    """Make a lesson private: what did not go out yet leaves the shared files, what did stays with the clan.

    The caller counts the log again afterwards: occurrences that leave with it are parts from now on.
    """
    workspace, me = writer.workspace, writer.name
    shared = workspace.patterns.line(known.id) or Line(known.id)
    mine = workspace.notes(writer.agent).line(known.id) if workspace.notes_file(writer.agent).is_file() else None
    fields: dict[str, Any] = {field: value for field, value in known.fields.items() if field != SCOPE}
    stamp = writer.tick() if known.is_present else ""
    made = edits.part(mine, known.id, _NO_PART, fields, me, stamp, seen=0, at=known.at)
    made = lines.join(made, edits.set_field(made, SCOPE, PRIVATE, me, writer.tick(), workspace.policy().cut))
    own = [name for name in shared.by_writer() if names.agent_of(name) == writer.agent]
    for name in own:
        kept = shared.parted(name, ("parts", "rem"))[1]
        made = lines.join(made, kept) if kept is not None else made
    writer.append_private([made])
    for name in own:
        workspace.db.take_back(known.id, name, _OWN)


def publish(writer: Writer, pattern: str, scope: str) -> None:
    """Make a private lesson the clan's: its record is said again in the shared shard, and is private no more."""
    workspace, cut = writer.workspace, writer.workspace.policy().cut
    mine = workspace.private(writer.agent, pattern)
    if mine is None:
        return
    shared = workspace.patterns.line(pattern) or Line(pattern)
    said = mine.without_field(SCOPE)
    if fold(mine).is_present:
        said = lines.join(said, edits.restore(lines.join(shared, said), writer.name, writer.tick()))
    writer.append(PATTERNS, [said])
    away = edits.set_field(mine, SCOPE, scope, writer.name, writer.tick(), cut)
    writer.append_private([lines.join(away, edits.retire(mine, writer.name))])


def set_own(writer: Writer, deltas: Sequence[tuple[str, str, Any]]) -> None:
    """Set fields that are this agent's alone, as (id, field, value): of the clan's lessons, too, and never among them.

    They stand in the private file beside its lessons, on a record without a text where the lesson is the clan's.
    """
    workspace, cut = writer.workspace, writer.workspace.policy().cut
    notes = workspace.notes(writer.agent) if workspace.notes_file(writer.agent).is_file() else None
    lines = []
    for each, field, value in deltas:
        known = (notes.line(each) if notes is not None else None) or Line(each)
        lines.append(edits.set_field(known, field, value, writer.name, writer.tick(), cut))
    writer.append_private(lines)
