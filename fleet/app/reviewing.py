"""Review as a use case: pairs of lessons that may be one, or that contradict each other, and what is said of them.

That two lessons are the same is a merge, which the whole clan sees. That they are two is remembered on this machine
alone: it changes no lesson, and one member's word must not keep lessons apart for everybody.
"""

from typing import NamedTuple

from fleet.app import learning, reflecting, trusting
from fleet.app.finding import find
from fleet.model.errors import NoError, UsageError
from fleet.model.pattern import Pattern
from fleet.reflect import inbox
from fleet.reflect.clusters import Pair, Weighing
from fleet.store import runs
from fleet.store.runs import Field
from fleet.store.workspace import Workspace

LIKELY, CONTRADICTION = "likely", "contradiction"
SAME, DIFFERENT, FIRST, SECOND, BOTH, ASK = "same", "different", "first", "second", "both", "ask"
ANSWERS = {LIKELY: (SAME, DIFFERENT), CONTRADICTION: (FIRST, SECOND, BOTH)}
"""Answers that a pair can be given; ``ask`` takes back what was said of either."""

_SEPARATOR = ":"


class Asked(NamedTuple):
    """A pair that somebody should look at.

    Attributes:
        kind: one of ``ANSWERS``.
        one: the first lesson.
        other: the second.
        differs: what differs between them.
    """

    kind: str
    one: Pattern
    other: Pattern
    differs: tuple[str, ...]

    @property
    def pair(self) -> str:
        """Name of the pair, as an answer takes it: both ids."""
        return f"{self.one.id}{_SEPARATOR}{self.other.id}"


class Answered(NamedTuple):
    """Outcome of an answer: the name of the pair, what was said, and what it did, in words."""

    pair: str
    said: str
    told: str


def asked(workspace: Workspace) -> list[Asked]:
    """Return the pairs that nobody decided yet: contradictions first, then the closest."""
    found = reflecting.weighed(workspace)
    pairs = [*((CONTRADICTION, each) for each in found.opposed), *((LIKELY, each) for each in found.likely)]
    return [known for kind, each in pairs if (known := _known(workspace, kind, each)) is not None]


def _known(workspace: Workspace, kind: str, pair: Pair) -> Asked | None:
    """Return a pair with its lessons; None where one of them is gone since."""
    one, other = (workspace.patterns.lesson(each) for each in pair.ids)
    return Asked(kind, one, other, pair.differs) if one is not None and other is not None else None


def answer(workspace: Workspace, agent: str, pair: str, said: str) -> Answered:
    """Decide a pair; ``ask`` takes an earlier answer back.

    Args:
        workspace: where.
        agent: who says so.
        pair: both ids, or unique beginnings of them, with a colon between; or the name of a question about what is
            left out here.
        said: one of ``ANSWERS``, or ``ask``.

    Raises:
        UsageError: there is no such answer to that pair.
        NoError: there is no such pair, or nothing to take back.
    """
    if trusting.is_question(pair):
        return Answered(pair, said, trusting.answer(workspace, pair, said))
    one, other = _ids(workspace, pair)
    if said == ASK:
        return Answered(f"{one}{_SEPARATOR}{other}", said, _taken_back(workspace, agent, one, other))
    found = next((each for each in asked(workspace) if {each.one.id, each.other.id} == {one, other}), None)
    if found is None:
        raise NoError(f"{pair[:80]} is no pair that waits for an answer; nothing was changed. `fleet review --json`")
    if said not in ANSWERS[found.kind]:
        raise UsageError(
            f"{said[:20]!r} is no answer to a {found.kind} pair: {', '.join(ANSWERS[found.kind])}; nothing was changed"
        )
    told = _done(workspace, agent, one, other, said)
    kind = CONTRADICTION if found.kind == CONTRADICTION else "merge"
    inbox.settle(workspace, inbox.agents(workspace), kind, _SEPARATOR.join(_in_order(one, other)), told)
    return Answered(found.pair, said, told)


def _ids(workspace: Workspace, pair: str) -> tuple[str, str]:
    one, separator, other = pair.partition(_SEPARATOR)
    if not separator or not one or not other:
        raise UsageError("name a pair by both ids, p-...:p-..., as `fleet review --json` lists them")
    return find(workspace, one).id, find(workspace, other).id


def _done(workspace: Workspace, agent: str, one: str, other: str, said: str) -> str:
    if said == SAME:
        done = learning.merge(workspace, agent, one, other, force=True)
        return f"{one} and {other} are one lesson; `fleet unmerge {done.changed}` undoes it"
    if said in (FIRST, SECOND):
        gone, kept = (other, one) if said == FIRST else (one, other)
        learning.retire(workspace, agent, gone)
        return f"{kept} holds; {gone} is retired, and `fleet restore {gone}` undoes it"
    with runs.noting(workspace, agent, "decide") as noted:
        Weighing(workspace).keep_apart([(one, other)])
        noted.told = f"{one} and {other} are two lessons"
        noted.fields = [Field(" ".join(sorted((one, other))), "apart", None, "apart")]
    return f"two lessons; `fleet review --answer {one}:{other}=ask` undoes it"


def _taken_back(workspace: Workspace, agent: str, one: str, other: str) -> str:
    if _in_order(one, other) in Weighing(workspace).decided():
        Weighing(workspace).forget_apart((one, other))
        return "the pair is asked about again, if it is still close"
    if other in workspace.patterns.group(one):
        learning.unmerge(workspace, agent, _changed(workspace, one, other))
        Weighing(workspace).forget_apart((one, other))
        return f"{one} and {other} are two lessons again"
    for each in (one, other):
        if not find(workspace, each).is_present:
            learning.restore(workspace, agent, each)
            return f"{each} is back"
    raise NoError(f"nothing was said of {one} and {other} that could be taken back")


def _changed(workspace: Workspace, one: str, other: str) -> str:
    """Return which of two merged records points to the other one."""
    return one if find(workspace, one).merged_into else other


def _in_order(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
