"""Use case of guards: a lesson that stops a step, or puts it to a person, as somebody on this machine decided.

A guard is a consent in the local database: what was decided, at which step, until when, and in which words. A line of
somebody else's never makes one, nor moves the step, nor puts words into it: only what was edited here shows. To retire
the lesson lifts the guard. What a hook asks lies ready as a table.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple

from fleet.app.finding import find
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.model.pattern import Pattern
from fleet.recall import ready, triggers
from fleet.recall.wording import author, edits
from fleet.store import runs
from fleet.store.runs import Field
from fleet.store.workspace import Workspace
from fleet.text import mentions
from fleet.text.screening import readable

DECISIONS = ("ask", "deny")
_KIND = "guard"


class Guard(NamedTuple):
    """One decision.

    Attributes:
        id: of the lesson.
        decision: "ask" or "deny".
        until: the last day on which it holds, YYYY-MM-DD; "" for no end.
        trigger: the step, as it was when it was decided.
        lesson: its words, fit to be shown; "" where it is retired or gone, and guards nothing.
    """

    id: str
    decision: str
    until: str
    trigger: str
    lesson: str


def guard(workspace: Workspace, prefix: str, decision: str, until: str = "") -> Guard:
    """Let a lesson decide about its step from now on.

    Raises:
        NoError: there is no such lesson, or it names no step.
        UsageError: no such decision, or no day that is still to come.
    """
    if decision not in DECISIONS:
        raise UsageError(f"a guard can {' or '.join(DECISIONS)}, or be off; not {decision[:40]!r}. Nothing was changed")
    today = workspace.wall()[:10]
    if until and (not _is_day(until) or until < today):
        raise UsageError(f"--until is a day from {today} on, such as {today}; not {until[:40]!r}. Nothing was changed")
    known = find(workspace, prefix)
    step = mentions.trigger(known.trigger, known.text, known.correct)
    if not triggers.parse(step) or not known.is_present:
        raise NoError(
            f"{known.id} names no command and no file, or is retired: there is no step to guard. Nothing was changed; "
            f'give it one: fleet edit {known.id} --set trigger="Bash:git push*"'
        )
    before = [raw for raw, each in _decided(workspace) if each[0] == known.id]
    made = json.dumps([known.id, decision, until, step, _said(known)])
    with runs.noting(workspace, "", "guard") as noted:
        workspace.state.agree(_KIND, made, workspace.wall())  # first: between the two, the newest counts
        _forget(workspace, [raw for raw in before if raw != made])
        noted.told = f"{known.id} guards its step: {decision}"
        noted.fields = [Field(known.id, _KIND, before[0] if before else None, made)] if before[:1] != [made] else []
    return next(each for each in guards(workspace) if each.id == known.id)


def lift(workspace: Workspace, prefix: str) -> list[str]:
    """Lift the guards whose lesson's id begins so; return their ids.

    Raises:
        NoError: there is none.
    """
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    found = {raw: each[0] for raw, each in _decided(workspace) if each[0].startswith(wanted)}
    if not found:
        raise NoError(f"{prefix[:40]} guards nothing here; nothing was changed. `fleet guard` lists what does")
    with runs.noting(workspace, "", "guard") as noted:
        _forget(workspace, list(found))
        noted.told = f"{', '.join(sorted(set(found.values())))} guards nothing any more"
        noted.fields = [Field(each, _KIND, raw, None) for raw, each in reversed(found.items())]
    return sorted(set(found.values()))


def put_back(workspace: Workspace, pattern: str, decided: str) -> None:
    """Let a lesson guard what it did before, as its decision was kept then; "" for nothing."""
    before = [raw for raw, each in _decided(workspace) if each[0] == pattern]
    if decided:
        workspace.state.agree(_KIND, decided, workspace.wall())
    _forget(workspace, [raw for raw in before if raw != decided])


def guards(workspace: Workspace) -> list[Guard]:
    """Return the guards that hold today, by the lesson's id."""
    found: dict[str, Guard] = {}
    for _, (pattern, decision, until, trigger, said) in _decided(workspace):
        if pattern not in found and (not until or until >= workspace.wall()[:10]):
            found[pattern] = Guard(pattern, decision, until, trigger, _words(workspace, pattern, said))
    return [found[pattern] for pattern in sorted(found)]


def make_ready(workspace: Workspace) -> None:
    """Make ready what a hook asks before each step."""
    path = workspace.root / ready.GUARDS_FILE
    with suppress(FleetError):  # a read-only disk, a damaged database: what lies ready holds on
        held = [each for each in guards(workspace) if each.lesson]
        table = [[each.id, each.trigger, each.lesson, each.decision, each.until] for each in held]
        if table:
            workspace.files.replace(path, ready.rendered_rows(table, ""))
        elif path.exists():
            workspace.files.remove(path)


def _decided(workspace: Workspace) -> Iterator[tuple[str, list[str]]]:
    """Yield what was decided, newest first, as it is kept and as it is read. What cannot be one is passed over."""
    for raw in workspace.state.agreed(_KIND):
        with suppress(ValueError, RecursionError):
            told: Any = json.loads(raw)
            if isinstance(told, list) and len(told) in (4, 5) and all(isinstance(each, str) for each in told):
                yield raw, [*told, ""][:5]


def _forget(workspace: Workspace, consents: list[str]) -> None:
    for raw in consents:
        workspace.state.disagree(_KIND, raw)
    make_ready(workspace)


def _words(workspace: Workspace, pattern: str, said: str) -> str:
    """Return the words of a guard: as they were when it was decided, unless they were edited here since."""
    try:
        known = find(workspace, pattern)
    except NoError:
        return ""
    if not known.is_present:
        return ""
    editors = {known.edited[field][1] for field in ("text", "correct") if field in known.edited}
    if editors and editors <= known.mine:
        return _said(known)
    return said or f"a lesson that others worded since: `fleet show {known.id}` ({known.id})"


def _said(known: Pattern) -> str:
    right = readable(known.correct)
    filed = ", ".join(filter(None, [author(known.by, {}), edits(known, {}), known.id]))
    return f"{readable(known.text)}{f' — right: {right}' if right else ''} ({filed})"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
