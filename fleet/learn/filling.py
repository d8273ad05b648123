"""Stating the lesson of a signal: from then on it counts like any correction.

Append-only: the entry stays as it was written. Its lesson goes to the end of the log, with the record that counts it,
in one write (``lessons`` says in what form).
"""

from typing import NamedTuple

from fleet.keep import merging, shown
from fleet.keep.errors import DiskError, NoError, UsageError
from fleet.keep.notebook import Notebook, text
from fleet.keep.view import glance, remember
from fleet.keep.workspace import Workspace
from fleet.learn import drafts, reconcile, sessions, signals
from fleet.learn.corrections import Logged, answered, log_file, settle
from fleet.learn.entries import Record, format_record, parse_log
from fleet.learn.lessons import Lesson, format_lesson
from fleet.learn.reconcile import Bound

_SHOWN_MAX = 5


class Filled(NamedTuple):
    """What became of an entry.

    Attributes:
        entry: its id.
        logged: as for any correction.
    """

    entry: str
    logged: Logged


def fill(
    workspace: Workspace, agent: str, prefix: str, pattern: str, right: str = "", *, same: str = "", session: str = ""
) -> Filled:
    """State what an entry teaches, durable before this returns.

    Args:
        workspace: where.
        agent: whose log it is in.
        prefix: the entry's id, or the beginning of it, with or without ``c-``.
        pattern: the lesson, unscreened. "" with ``same``: that pattern's own words.
        right: the correct approach, unscreened.
        same: id of an existing pattern that this is another occurrence of.
        session: the host's session; the one in which the signal was flagged comes first.

    Raises:
        NoError: no entry, or more than one, begins like that; or its lesson is stated already.
        RefusedError: a text is too long.
        DiskError: it did not reach the disk.
    """
    said = drafts.pattern(pattern) if pattern or not same else drafts.Text("", ())
    way = drafts.enter("right", right)
    secrets = tuple(sorted({*said.secrets, *way.secrets}))
    with workspace.writing(agent) as writer:
        path = log_file(workspace, agent)
        known = workspace.disk.read(path)
        bound = find(reconcile.bind(parse_log(known)), prefix, agent)
        held = glance(workspace)
        workspace.admit(held.notebook)
        _check_unfilled(bound, held.notebook)
        counted, lesson = _chosen(held.notebook, said.text, same)
        flagged_in, flagged_ms = signals.origin(known, bound.id)
        # Whether it is a relapse was decided when the mistake was made, not when somebody said what it teaches.
        when_ms = flagged_ms if flagged_ms is not None else workspace.world.wall_ms()
        alike = merging.group_of(held.notebook, counted)
        relapse = shown.relapse_extra(workspace.root, agent, counted, when_ms, alike)
        written = [Lesson(bound.id, "pattern", lesson)]
        if way.text:
            written.append(Lesson(bound.id, "right", way.text))
        record = Record(
            id=bound.id,
            pattern=counted,
            replica=writer.name,
            at=writer.tick(),
            session=flagged_in or sessions.session_of(workspace, agent, session),
            extra=(("head", reconcile.heading_mark(bound.entry)), *relapse),
        )
        block = "".join(map(format_lesson, written)) + format_record(record)
        workspace.disk.append(path, f"\n{block}\n".encode())
        try:
            settle(writer, held)
            remember(workspace, held)
        except DiskError as why:
            workspace.warn(f"the lesson is logged, but not counted yet: {why}")
    return Filled(bound.id, answered(held.notebook, counted, lesson, secrets, is_same=bool(same)))


def find(entries: list[Bound], prefix: str, agent: str) -> Bound:
    """Return the entry that an id, or the unique beginning of one, names.

    Raises:
        UsageError: a beginning of no characters.
        NoError: no entry, or more than one.
    """
    wanted = prefix if prefix.startswith("c-") else f"c-{prefix}"
    if wanted == "c-":
        raise UsageError("name the correction: `fleet learn --waiting` lists those that wait for their lesson")
    found = [bound for bound in entries if any(each.startswith(wanted) for each in _ids(bound))]
    if not found:
        raise NoError(
            f"no correction of {agent}'s begins with {prefix[:40]!r}; nothing was logged. `fleet learn --waiting` "
            "lists those that wait for their lesson"
        )
    if len(found) > 1:
        some = ", ".join(bound.id for bound in found[:_SHOWN_MAX]) + (", ..." if len(found) > _SHOWN_MAX else "")
        raise NoError(f"{prefix[:40]} is not unique: {some}. Give more of the id; nothing was logged")
    return found[0]


def _ids(bound: Bound) -> set[str]:
    """An entry whose text was mended since it was counted is known by what it was called then, too."""
    return {bound.id, bound.record.id} if bound.record is not None else {bound.id}


def _check_unfilled(bound: Bound, notebook: Notebook) -> None:
    if bound.record is not None:
        line = notebook.get(bound.record.pattern)
        told = (text(line) if line is not None else "") or bound.entry.pattern
        pattern = bound.record.pattern
        raise NoError(
            f"{bound.id} is filled already, and counted as {pattern}: {told[:200]}. Nothing was logged. To say it "
            f"better: `fleet edit {pattern} --set text=...`; if it is the same lesson as another: "
            f"`fleet merge {pattern} OTHER`"
        )
    if bound.entry.pattern:
        raise NoError(
            f"{bound.id} is filled already, by hand: {bound.entry.pattern[:200]}. Nothing was logged; it counts with "
            "the next `fleet correct` or `fleet sync`"
        )


def _chosen(notebook: Notebook, lesson: str, same: str) -> tuple[str, str]:
    """Return the id that the lesson is counted under, and its words."""
    if not same:
        return reconcile.find_pattern(notebook, lesson), lesson
    line = notebook.get(same)
    if line is None:
        raise NoError(f"there is no pattern {same}; nothing was logged. `fleet patterns` lists them")
    return same, lesson or text(line)
