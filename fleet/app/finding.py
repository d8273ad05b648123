"""Lookup of lessons: by an id, or the beginning of one; as a list; and one as ``--json`` shows it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from crdt import clock
from fleet.learn.counting import reconcile_all
from fleet.model import limits, names
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.model.pattern import PRIVATE, Merges, Pattern, Policy, fold, merged
from fleet.recall.wording import ROW_CHARS_MAX, Renderer, not_working
from fleet.reflect.clusters import NOT_COMPARED, Clusters, Wordings
from fleet.reflect.housekeeping import STAGE, Stage
from fleet.store.query import Patterns, ranked
from fleet.store.relevant import Relevant
from fleet.store.workspace import Workspace
from fleet.text import dates, mentions
from fleet.text.screening import one_line, screened
from fleet.text.similarity import Near, near

_OTHER_KINDS = {
    "d-": ", and this takes no discovery (`fleet gossip`)",
    "c-": ", and this takes no correction: `fleet show` names the lesson of one",
    "i-": ", and this takes nothing of the inbox (`fleet inbox`)",
}
"""Advice on an id of another kind, by its beginning."""


def sources(workspace: Workspace, agent: str = "") -> list[Patterns]:
    """Return the clan's records and the private ones, of one agent or of every agent here."""
    agents = [agent] if agent else workspace.agents_with_notes()
    return [workspace.patterns, *(workspace.notes(each) for each in agents if workspace.notes_file(each).is_file())]


def find(workspace: Workspace, prefix: str) -> Pattern:
    """Return the record that an id, or the unique beginning of one, names.

    Raises:
        NoError: no pattern, or more than one.
    """
    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    looked = sources(workspace)
    found = _beginning(looked, wanted)
    if not found:  # what was logged a moment ago may not be counted yet
        with suppress(FleetError):
            reconcile_all(workspace)
        found = _beginning(looked, wanted)
    other = next((told for kind, told in _OTHER_KINDS.items() if prefix.startswith(kind)), "")
    none = f"no pattern begins with {prefix[:40]!r}{other}. `fleet patterns --all` lists them"
    id_ = names.only(found, prefix, none)
    for source in looked:
        if (pattern := source.get(id_)) is not None:
            return pattern
    raise NoError(none)


def short(looked: Sequence[Patterns], ids: Sequence[str]) -> dict[str, str]:
    """Return of each id the shortest beginning by which ``find`` knows it among all these records."""
    found: dict[str, str] = {}
    for source in looked:
        for each, name in source.short(ids).items():
            found[each] = max(found.get(each, ""), name, key=len)
    return found


def rows(hits: Iterable[Relevant], now_ms: int) -> list[str]:
    """Return lessons that were looked up for a prompt as lines for an agent; no database is asked."""
    policy = Policy(cut=clock.shifted(clock.nearest(now_ms), limits.AHEAD_HOURS_MAX * 3_600_000))
    records = (codec.decode(hit.line, limits.RECORD_BYTES_MAX) for hit in hits)
    return [Renderer().lesson(fold(each, policy), ROW_CHARS_MAX) for each in records if isinstance(each, codec.Line)]


def _beginning(looked: Sequence[Patterns], wanted: str) -> list[str]:
    return sorted({each for source in looked for each in source.beginning(wanted)}) if len(wanted) > len("p-") else []


def nearest(root: Path, said: Sequence[str], count: int) -> list[Near]:
    """Return the lessons nearest to each of some texts by their words, ``count`` each; for a hook that asks something.

    No model is loaded, and nothing is counted or written: a host waits. Nor is there a least score: a person words an
    objection otherwise than an agent its lesson, and the agent that is asked tells which is meant.
    """
    workspace = Workspace(root)
    try:
        looked = sources(workspace)
        known = [(each, dict(pair for source in looked for pair in source.candidates(each).items())) for each in said]
        return [found for each, texts in known for found in near(each, list(texts.items()), count, least=0.0)]
    finally:
        workspace.close()


class _Listing(NamedTuple):
    """The lessons that were asked for.

    Attributes:
        lessons: each with the id that it is merged into, "" for none, and with its other wordings; best first.
        total: how many there are in all.
        refused: how many lines could not be read.
    """

    lessons: list[tuple[Wordings, str]]
    total: int
    refused: int

    def as_found(self) -> dict[str, Any]:
        """Return them as ``--json`` shows them, each with what says the same in other words, or the opposite."""
        rows = []
        for each, into in self.lessons:
            said = [{"id": one.id, "text": one_line(one.text), "seen": one.count("seen")} for one in each.wordings]
            more = {"wordings": said, "contradicts": list(each.opposites)}
            shown = lesson_as_json(each.lesson) | {name: value for name, value in more.items() if value}
            rows.append(shown | ({"state": "merged"} if into else {}))
        return {"patterns": sorted(rows, key=lambda row: str(row["id"])), "refused": self.refused}


class Wanted(NamedTuple):
    """Filter of a list: "" for any. A lesson's kind is its category, a discovery's its type."""

    kind: str = ""
    tag: str = ""
    agent: str = ""
    since: str = ""

    def admits(self, each: Pattern | Discovery) -> bool:
        """Tell whether it is of that kind, has that tag, and was met by that agent since that day.

        Raises:
            UsageError: the day is none.
        """
        if isinstance(each, Pattern):
            kind, agents, last = each.category, each.agents(), each.last_seen
        else:
            kind, agents, last = each.type, [names.agent_of(each.by)], each.at
        return (
            self.kind.casefold() in ("", kind.casefold())
            and self.tag.casefold() in ("", *map(str.casefold, each.tags))
            and self.agent in ("", *agents)
            and last >= first_stamp(self.since)
        )

    def lessons(
        self,
        workspace: Workspace,
        count: int | None,
        clusters: Clusters = NOT_COMPARED,
        *,
        everything: bool = False,
    ) -> _Listing:
        """Return the best lessons, each cluster as one, or all; with ``everything`` retired ones and each record, too.

        What the logs owe is counted first, where anything may be written.

        Raises:
            UsageError: the day since which they were seen is none.
        """
        first_stamp(self.since)  # also where nothing is there to be compared with it
        with suppress(FleetError):
            reconcile_all(workspace)
        patterns, mine, refused = workspace.patterns, _private(workspace), workspace.db.refused_count()
        is_narrowed = any(self)
        if everything:
            into = {each.id: (each, other) for each, other in _everything(patterns)}
            into |= {each: (own, "") for each, own in mine.items()}
            best = ranked((each for each, _ in into.values()), "sight")
            shown = [(Wordings(each), into[each.id][1]) for each in best]
            total = len(shown)
        else:
            mine = {each: own for each, own in mine.items() if own.value(STAGE) != Stage.CONSOLIDATED}
            spare = sum(map(len, clusters.groups))  # behind the first wordings of clusters others move up
            is_all = count is None or is_narrowed
            shared = patterns.lessons() if is_all else patterns.best("sight", (count or 0) + len(mine) + spare)
            own = [each for each in mine.values() if each.is_listed]
            found = ranked([*(each for each in shared if each.id not in mine), *own], "sight")
            shown = [(each, "") for each in clusters.grouped(found, patterns.lesson)]
            total = _count(patterns, mine) - spare + len(clusters.groups)
        if is_narrowed:
            shown = [row for row in shown if self.admits(row[0].lesson)]
            total = len(shown)
        return _Listing(shown[:count], total, refused)

    def discoveries(self, workspace: Workspace, count: int) -> list[Discovery]:
        """Return the newest discoveries, newest first.

        Raises:
            UsageError: the day since which they were found is none.
        """
        first_stamp(self.since)
        found = workspace.discoveries.shown() if any(self) else workspace.discoveries.newest(count)
        return list(islice(filter(self.admits, reversed(found)), count))


def first_stamp(since: str) -> clock.Stamp:
    """Return the first stamp of a day that a person typed; that of all time for "".

    Raises:
        UsageError: the day is none.
    """
    since_ms = dates.to_ms(since) if since else 0
    if since_ms is None:
        raise UsageError(f"--since takes a day, YYYY-MM-DD, not {since[:40]!r}")
    return clock.pack(since_ms)


def counted(workspace: Workspace) -> int:
    """Return how many lessons are listed, the private ones of the agents here among them."""
    return _count(workspace.patterns, _private(workspace))


def _count(patterns: Patterns, mine: Mapping[str, Pattern]) -> int:
    both = sum(each.is_listed for each in patterns.some(list(mine)))
    return patterns.count() - both + sum(each.is_listed for each in mine.values())


def _private(workspace: Workspace) -> dict[str, Pattern]:
    """Return the private lessons of the agents here, with what the clan knows of them."""
    found = {}
    for agent in workspace.agents_with_notes():
        for each in workspace.notes(agent).records():
            if each.scope == PRIVATE and (whole := workspace.whole(agent, each.id)) is not None:
                found[each.id] = fold(whole, workspace.policy())
    return found


def _everything(patterns: Patterns) -> Iterator[tuple[Pattern, str]]:
    """Yield every record that has a text, and the id it is shown under if that is another's.

    A record that stands for others is the whole lesson, the others are as they were logged.
    """
    whole: dict[str, Pattern] = {}
    for group in Merges(patterns.pointing()).groups():
        if members := patterns.some(group):
            whole |= dict.fromkeys([member.id for member in members], merged(members))
    for each in patterns.records():
        lesson = whole.get(each.id, each)
        if lesson.id == each.id and lesson.text:
            yield lesson, ""
        elif each.text:
            yield each, lesson.id


def lesson_as_json(lesson: Pattern, *, is_whole: bool = False) -> dict[str, Any]:
    """Return a lesson as ``--json`` shows it: the same on every machine that has the same lines. Clean what you print.

    ``is_whole``: with counts per replica, who set what, and every other field.
    """
    state = (one_line(lesson.state) or "candidate") if lesson.is_present else "retired"
    return {
        "id": lesson.id,
        "text": one_line(lesson.text),
        "correct": one_line(lesson.correct),
        "category": one_line(lesson.category),
        "tags": [one_line(tag) for tag in lesson.tags],
        "seen": lesson.count("seen"),
        "sessions": lesson.count("sessions"),
        "agents": lesson.agents(),
        "state": state,
        "first": lesson.at,
        "last": lesson.last_seen,
        **_moment(lesson),
        **_use(lesson),
        **(_details(lesson) if is_whole else {}),
    }


def _details(lesson: Pattern) -> dict[str, Any]:
    usual = ("text", "correct", "category", "tags", "state", "trigger")
    return {
        "counts": {name: dict(sorted(totals.items())) for name, totals in sorted(lesson.totals.items())},
        "imported": {name: sum(found.values()) for name, found in sorted(lesson.parts.items())},
        "last_by": dict(sorted(lesson.adds.items())),
        "edited": {field: {"at": at, "by": by} for field, (at, by) in sorted(lesson.edited.items())},
        "fields": {name: value for name, value in sorted(lesson.fields.items()) if name not in usual and value != ""},
        "by": lesson.by,
    }


def _moment(lesson: Pattern) -> dict[str, Any]:
    """Return before which step a lesson is shown, and whether its words or a person named it; nothing for none."""
    said = (lesson.trigger, lesson.text, lesson.correct, lesson.value("wrong"))
    found = mentions.trigger(*map(screened, said))
    return {"trigger": found, "trigger_derived": not lesson.trigger} if found else {}


def _use(lesson: Pattern) -> dict[str, Any]:
    """Return what became of a lesson where it was read; nothing for one that nobody has told or noted anything of."""
    counters = {counter: lesson.count(counter) for counter in ("shown", "relapsed", "helped", "hurt")}
    return counters | {"not_working": not_working(lesson)} if any(counters.values()) else {}
