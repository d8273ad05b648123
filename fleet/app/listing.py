"""The lessons as a list, and one as ``--json`` shows it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fleet.app.finding import sources
from fleet.model import merged
from fleet.model.pattern import Pattern
from fleet.recall.ranking import not_working, ranked
from fleet.store.query import Patterns
from fleet.store.workspace import Workspace
from fleet.text.screening import screened


class Listing(NamedTuple):
    """The lessons that were asked for.

    Attributes:
        lessons: each with the id that it is merged into, "" for none; best first.
        total: how many there are in all.
        refused: how many lines could not be read.
    """

    lessons: list[tuple[Pattern, str]]
    total: int
    refused: int


def listed(workspace: Workspace, count: int | None, *, everything: bool = False) -> Listing:
    """Return the best lessons, or all; with ``everything`` retired ones and each merged record, too."""
    looked, refused = sources(workspace), workspace.db.refused_count()
    if everything:
        into = {each.id: (each, other) for source in looked for each, other in _everything(source)}
        lessons = [into[each.id] for each in ranked((each for each, _ in into.values()), "sight", everything=True)]
        return Listing(lessons[:count], len(lessons), refused)
    some = [each for source in looked for each in (source.lessons() if count is None else source.best("sight", count))]
    found = ranked(some, "sight")[:count]
    return Listing([(each, "") for each in found], sum(source.count() for source in looked), refused)


def _everything(patterns: Patterns) -> Iterator[tuple[Pattern, str]]:
    """Yield every record that has a text, and the id it is shown under if that is another's.

    A record that stands for others is the whole lesson, the others are as they were logged.
    """
    whole = {}
    for group in merged.groups(patterns.pointing()):
        if members := patterns.some(group):
            whole |= dict.fromkeys([member.id for member in members], merged.united(members))
    for each in patterns.records():
        lesson = whole.get(each.id, each)
        if lesson.id == each.id and lesson.text:
            yield lesson, ""
        elif each.text:
            yield each, lesson.id


def lesson_as_json(lesson: Pattern, *, is_merged: bool = False) -> dict[str, Any]:
    """Return a lesson as ``--json`` shows it: the same on every machine that has the same lines."""
    state = (screened(lesson.state) or "candidate") if lesson.is_present else "retired"
    return {
        "id": lesson.id,
        "text": screened(lesson.text),
        "correct": screened(lesson.correct),
        "category": screened(lesson.category),
        "tags": [screened(tag) for tag in lesson.tags],
        "seen": lesson.count("seen"),
        "sessions": lesson.count("sessions"),
        "agents": lesson.agents(),
        "state": "merged" if is_merged else state,
        "first": lesson.at,
        "last": lesson.last_seen,
        **_use(lesson),
    }


def _use(lesson: Pattern) -> dict[str, Any]:
    """Return what became of a lesson where it was read; nothing for one that nobody has told or noted anything of."""
    counters = {counter: lesson.count(counter) for counter in ("shown", "relapsed", "helped", "hurt")}
    return counters | {"not_working": not_working(lesson)} if any(counters.values()) else {}
