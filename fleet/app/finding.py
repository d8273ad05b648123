"""Lookup of lessons by their ids, lists of lessons, and the JSON of a lesson."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from crdt import clock
from fleet.learn.counting import reconcile_all
from fleet.model import limits, names
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.model.pattern import PRIVATE, SCOPE, STAGE, Pattern, Policy, fold
from fleet.recall.wording import ROW_CHARS_MAX, Renderer, day, not_working
from fleet.reflect.clusters import NOT_COMPARED, Clusters, Wordings
from fleet.reflect.housekeeping import Stage
from fleet.store.query import Patterns, ranked
from fleet.store.relevant import Relevant
from fleet.store.workspace import Workspace, World
from fleet.text import dates, mentions
from fleet.text.screening import one_line, screened
from fleet.text.similarity import Near, near

_OTHER_KINDS = {
    "d-": ", and this takes no discovery (`fleet gossip`)",
    "c-": ", and this takes no correction: `fleet show` names the lesson of one",
    "i-": ", and this takes nothing of the inbox (`fleet inbox`)",
}
"""Advice on an id of another kind, by its prefix."""
_SPANS_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AMBIGUOUS_MAX = 8
"""Greatest number of ids with a common prefix that are looked up; a message names fewer."""
_MEANT_MIN = 0.25
"""Score from which on a hook's question names a known lesson."""


def sources(workspace: Workspace, agent: str = "") -> list[Patterns]:
    """Return the clan's records and the private ones, of one agent or of every agent here."""
    agents = [agent] if agent else workspace.agents_with_notes()
    own = [each for each in agents if not workspace.is_guest(each) and workspace.has_notes(each)]
    return [workspace.patterns, *map(workspace.notes, own)]


def find(workspace: Workspace, prefix: str, *, is_worded: bool = True, is_read: bool = False) -> Pattern:
    """Return the record with an id, or with a unique prefix of one; ``is_read``: to be shown.

    Raises:
        NoError: no lesson matches, or more than one; with ``is_worded`` also if all words of it are left out here.
    """
    id_prefix = prefix if prefix.startswith("p-") else f"p-{prefix}"
    stores = sources(workspace)
    found = _beginning(stores, id_prefix)
    if not found:  # a correction of a moment ago may not be counted yet
        with suppress(FleetError):
            reconcile_all(workspace)
        found = _beginning(stores, id_prefix)
    advice = next((text for kind, text in _OTHER_KINDS.items() if prefix.startswith(kind)), "")
    none = f"no lesson has an id that begins with {prefix[:40]!r}{advice}. `fleet patterns --all` lists them"
    id_ = names.only({id_: record.text for id_, record in found.items()}, prefix, none, is_read=is_read)
    record = _private(workspace, id_).get(id_, found[id_])
    lines = filter(None, (store.line(id_) for store in stores)) if is_worded and not record.text else ()
    if any(fold(line, Policy(workspace.policy().cut)).text for line in lines):
        raise NoError(
            f"{id_} is left out here, with its writer: blocked (`fleet status`), or what it says waits for "
            "`fleet review`. Nothing was changed"
        )
    return record


def short(stores: Sequence[Patterns], ids: Sequence[str]) -> dict[str, str]:
    """Return for each id its shortest unique prefix among the records of these stores."""
    prefixes: dict[str, str] = {}
    for store in stores:
        for id_, prefix in store.short(ids).items():
            prefixes[id_] = max(prefixes.get(id_, ""), prefix, key=len)
    return prefixes


def rows(hits: Iterable[Relevant], now_ms: int, remarks: Mapping[str, str]) -> list[str]:
    """Return lessons that were looked up for a prompt as lines for an agent, without a database; remarks by id."""
    policy = Policy(cut=clock.shifted(clock.nearest(now_ms), limits.AHEAD_HOURS_MAX * 3_600_000))
    lines = (codec.decode(hit.line, limits.RECORD_BYTES_MAX) for hit in hits)
    lessons = [fold(line, policy) for line in lines if isinstance(line, codec.Line)]
    return [Renderer().lesson(each, ROW_CHARS_MAX) + remarks.get(each.id, "") for each in lessons]


def _beginning(stores: Sequence[Patterns], prefix: str) -> dict[str, Pattern]:
    """Return the first records whose ids have this prefix, by id. If several stores have one, the first store wins."""
    ids = sorted({id_ for store in stores for id_ in store.beginning(prefix)})[:_AMBIGUOUS_MAX]
    return {id_: record for id_ in ids for store in reversed(stores) if (record := store.get(id_)) is not None}


def nearest(root: Path, texts: Sequence[str], count: int) -> list[tuple[Near, str]]:
    """Return for a hook the ``count`` lessons nearest to each text by their words, each with its author and editors.

    A host waits, so no model is loaded, and nothing is counted or written. The least score is low, since a person words
    an objection differently from an agent's lesson; the agent decides which lesson is meant.
    """
    with closing(Workspace(root)) as workspace:
        stores = sources(workspace)
        sets = {member: group[0] for store in stores for member, group in store.groups().items()}
        found: list[Near] = []
        for text in texts:
            candidates = dict(pair for store in stores for pair in store.candidates(text).items())
            found += near(text, list(candidates.items()), count, merged=sets, least=_MEANT_MIN)
        # Whichever of its wordings matched, a merged lesson is shown with its present text.
        named = [store.lessons_of([one.id for one in found]) for store in stores]
        # A private file may have a lesson of the clan without a text, or with the text from before it was shared.
        lessons = {id_: each for some in named for id_, each in some.items() if each.is_listed}
        by = Renderer()
        known = ((lessons[each.id], each) for each in found if each.id in lessons)
        return [
            (
                Near(one.id, one.text, each.score, each.differs),
                "; ".join(filter(None, (by.author(one.by), by.edits(one)))),
            )
            for one, each in known
        ]


class _Listing(NamedTuple):
    """List of lessons.

    Attributes:
        lessons: best first, with their other wordings, and with the id that each is merged into, "" for none.
        refused: number of lines that could not be read.
    """

    lessons: list[tuple[Wordings, str]]
    total: int
    refused: int

    def as_json(self) -> dict[str, Any]:
        """Return the list as ``--json`` shows it, each lesson with its other wordings and its opposites."""
        rows = []
        for cluster, into in self.lessons:
            row = lesson_as_json(cluster.lesson, wordings=cluster.wordings)
            row |= {"contradicts": list(cluster.opposites)} if cluster.opposites else {}
            rows.append(row | ({"state": "merged"} if into else {}))
        return {"patterns": sorted(rows, key=lambda row: str(row["id"])), "refused": self.refused}


class ListFilter(NamedTuple):
    """Filter of a list: "" for any. A lesson's kind is its category, a discovery's its type; ``since`` is a stamp."""

    kind: str = ""
    tag: str = ""
    agent: str = ""
    since: str = ""

    def admits(self, record: Pattern | Discovery) -> bool:
        """Return whether a record is of that kind, has that tag, and was seen by that agent since then."""
        if isinstance(record, Pattern):
            kind, agents, last = record.category, record.agents(), record.last_seen
        else:
            kind, agents, last = record.type, [names.agent_of(record.by)], record.at
        texts = (normalize("NFC", each.casefold()) for each in (self.kind, self.tag, kind, *record.tags))
        wanted_kind, wanted_tag, kind, *tags = texts
        is_meant = wanted_kind in ("", kind) and wanted_tag in ("", *tags)
        return is_meant and self.agent in ("", *agents) and last >= self.since

    def lessons(
        self,
        workspace: Workspace,
        count: int | None,
        clusters: Clusters = NOT_COMPARED,
        *,
        everything: bool = False,
    ) -> _Listing:
        """Return the best lessons, each cluster as one; ``count``: None for all; ``everything``: also retired records.

        The logs are reconciled first, where the workspace can be written.
        """
        with suppress(FleetError):
            reconcile_all(workspace)
        patterns, private, refused = workspace.patterns, _private(workspace), len(workspace.db.refused())
        if everything:
            records = {record.id: (record, into) for record, into in _everything(patterns)}
            records |= {id_: (record, "") for id_, record in private.items()}
            best = ranked((record for record, _ in records.values()), "sight")
            rows = [(Wordings(record), records[record.id][1]) for record in best]
            total = len(rows)
        else:
            private = _awake(private)
            clustered = patterns.lessons_of(chain.from_iterable(clusters.groups)) | private
            spare = sum(map(len, clusters.groups))  # a cluster takes one row, so as many other lessons move up
            is_all = count is None or any(self)
            shared = patterns.lessons() if is_all else patterns.best("sight", (count or 0) + len(private) + spare)
            # A cluster as a whole may be among the best, though none of its wordings is.
            candidates = {each.id: each for each in chain(shared, clustered.values())} | private
            listed = [record for record in candidates.values() if record.is_listed]
            groups = {cluster.lesson.id: cluster for cluster in clusters.grouped(listed, lambda _: clustered)}
            order = ranked((cluster.lesson for cluster in groups.values()), "sight")
            rows = [(groups[lesson.id], "") for lesson in order]
            total = counted(workspace, clusters)
        if any(self):
            rows = [row for row in rows if self.admits(row[0].lesson)]
            total = len(rows)
        return _Listing(rows[:count], total, refused)

    def discoveries(self, workspace: Workspace, count: int) -> list[Discovery]:
        """Return the newest discoveries, newest first."""
        entries = workspace.discoveries.shown() if any(self) else workspace.discoveries.newest(count)
        return list(islice(filter(self.admits, reversed(entries)), count))


def first_stamp(since: str) -> clock.Stamp:
    """Return the first stamp of a day, a time or a span until now (``2w``), "" for "".

    Raises:
        UsageError: it is anything else.
    """
    if not since:
        return ""
    if span := re.fullmatch(r"(?a)(\d{1,4})([hdw])", since.strip()):
        return clock.shifted(clock.nearest(World().wall_ms()), -int(span[1]) * _SPANS_MS[span[2]])
    if (since_ms := dates.to_ms(since)) is None:
        raise UsageError(
            "--since takes a day or a time in the years 2000 to 2100, such as 2026-11-20, 2026-11-20T14:30Z, or 12h, "
            f"3d, 2w for hours, days, weeks ago; not {since[:40]!r}. Nothing was changed"
        )
    return clock.nearest(since_ms)


def counted(workspace: Workspace, clusters: Clusters) -> int:
    """Return the number of listed lessons, each cluster as one, with the private ones of the agents here."""
    patterns, private = workspace.patterns, _awake(_private(workspace))
    both = sum(record.is_listed for record in patterns.some(list(private)))
    inside = sum(len(group) - 1 for group in clusters.groups)
    return patterns.count() - both - inside + sum(record.is_listed for record in private.values())


def _awake(private: Mapping[str, Pattern]) -> dict[str, Pattern]:
    return {id_: own for id_, own in private.items() if own.value(STAGE) != Stage.CONSOLIDATED}


def _private(workspace: Workspace, only: str = "") -> dict[str, Pattern]:
    """Return the private lessons of the agents here, joined with what the clan knows of them; all, or one by its id."""
    lessons = {}
    for agent in workspace.agents_with_notes():
        notes = workspace.notes(agent)
        for record in notes.some([only]) if only else notes.records():
            if record.scope == PRIVATE and (private := notes.line(record.id)) is not None:
                # The scope of the clan's record must not overrule that of the agent's private one.
                shared = (workspace.patterns.line(record.id) or codec.Line(record.id)).without_field(SCOPE)
                lessons[record.id] = fold(codec.join(shared, private), workspace.policy())
    return lessons


def _everything(patterns: Patterns) -> Iterator[tuple[Pattern, str]]:
    """Yield every record that has a text, and the id that it is merged into, "" for none.

    The first record of a merged set is yielded as the merged lesson, the others as they were logged.
    """
    lessons = patterns.lessons_of(patterns.groups())
    for record in patterns.records():
        lesson = lessons.get(record.id, record)
        if lesson.id == record.id and lesson.text:
            yield lesson, ""
        elif record.text:
            yield record, lesson.id


def lesson_as_json(lesson: Pattern, *, is_whole: bool = False, wordings: Sequence[Pattern] = ()) -> dict[str, Any]:
    """Return a lesson as ``--json`` shows it, equal on all machines with the same lines. Clean what you print.

    ``is_whole``: with counts per replica, the writer of each field, and every other field.
    ``wordings``: the other lessons of its cluster.
    """
    worded = [{"id": each.id, "text": one_line(each.text), "seen": each.count("seen")} for each in wordings]
    state = (one_line(lesson.state) or "candidate") if lesson.is_present else "retired"
    return {
        "id": lesson.id,
        **{field.name: one_line(lesson.value(field.name)) for field in names.FIELDS if field.shown == "text"},
        "tags": [one_line(tag) for tag in lesson.tags],
        "seen": lesson.count("seen"),
        "sessions": max(lesson.count("sessions"), min(lesson.count("seen"), 1)),  # an undo may have taken the only one
        "agents": lesson.agents(),
        "state": state,
        **({"retired_by": lesson.retired_by} if lesson.retired_by else {}),
        "who": names.agent_of(lesson.by),
        "changed": one_line(Renderer().edits(lesson)),
        "first": lesson.at if day(lesson.at) else "",
        "last": lesson.last_seen,
        **_trigger(lesson),
        **_use(lesson),
        **(_details(lesson) if is_whole else {}),
        **({"wordings": worded} if worded else {}),
    }


def _details(lesson: Pattern) -> dict[str, Any]:
    shown = {field.name for field in names.FIELDS if field.shown}
    return {
        "counts": {name: dict(sorted(totals.items())) for name, totals in sorted(lesson.totals.items())},
        "imported": {name: sum(parts.values()) for name, parts in sorted(lesson.parts.items())},
        "last_by": dict(sorted(lesson.adds.items())),
        "edited": {field: {"at": at, "by": by} for field, (at, by) in sorted(lesson.edited.items())},
        "fields": {name: value for name, value in sorted(lesson.fields.items()) if name not in shown and value != ""},
        "by": lesson.by,
    }


def _trigger(lesson: Pattern) -> dict[str, Any]:
    """Return the trigger of a lesson, and whether it was derived from its words; an empty dict for none."""
    trigger = mentions.trigger(*map(screened, (lesson.trigger, lesson.text, lesson.correct, lesson.value("wrong"))))
    return {"trigger": trigger, "trigger_derived": not lesson.trigger} if trigger else {}


def _use(lesson: Pattern) -> dict[str, Any]:
    """Return the counters of a lesson's use, and why it does not work; an empty dict while all are 0."""
    counters = {counter: lesson.count(counter) for counter in ("shown", "relapsed", "helped", "hurt")}
    return counters | {"not_working": not_working(lesson)} if any(counters.values()) else {}
