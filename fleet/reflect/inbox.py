"""Inbox: items that wait for a person's decision, and the decisions; ``inbox.jsonl``, append-only.

An item is there once: one that waits is not put in again, and one that a person rejected does not come back, neither
as it was nor in other words. An item that was never shown never expires. A decision elsewhere (a pair that ``fleet
review`` answered, a lesson that was promoted by hand) is one here.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from hashlib import blake2b
from itertools import accumulate
from statistics import median
from typing import Any, Literal, NamedTuple

import msgspec

from crdt import clock
from fleet.model.names import normalise
from fleet.reflect.clusters import Weighing
from fleet.store.lines import JsonLines, screened
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, one_line, screen
from fleet.text.similarity import ALIKE_MIN, near

FILE_NAME = "inbox.jsonl"
KINDS = ("contradiction", "merge", "promotion", "skill", "persona", "guard", "plan", "bulk", "candidate")
SHOWN_MAX = 7
GRACE_DAYS = 7

APPROVED: Literal["approved"] = "approved"
REJECTED: Literal["rejected"] = "rejected"
_Outcome = Literal["approved", "rejected", "expired", "withdrawn", "elsewhere", "reopened"]
WITHDRAWN, ELSEWHERE, REOPENED = "withdrawn", "elsewhere", "reopened"
_DECIDED = (APPROVED, REJECTED, ELSEWHERE)
_UNANSWERED = ("expired", ELSEWHERE)
PAIRS = frozenset({"merge", "contradiction"})
"""Kinds of items that are about two lessons."""
_DAY_CHARS = 10
_ID_CHARS = 12
_NAMED_MIN = 0.8
_WAITS_MIN = 0.9
_DIFF_CHARS_MAX = 30_000
"""Greatest length of a plan's diff in its item: a longer text would be cut in the file (``store/lines``)."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="item"):
    """Item of the inbox.

    Attributes:
        kind: one of ``KINDS``.
        title: the question to a person, in a line.
        key: identity of its subject: a lesson's id, a pair, a path; by default the title's words.
        evidence: quotes or lines, the best first; ``weight``: of all of it; the heaviest item is shown first.
        diff: change that an approval makes, as a unified diff or a line.
        body: input of its handler (``app/inbox``).
        until: the last day on which it can be decided, YYYY-MM-DD; "": for ever.
        id: ``i-`` and 12 hex digits of agent, kind and key; ``at``: a stamp. Both are set by ``put``.
    """

    kind: str
    title: str
    key: str = ""
    evidence: tuple[str, ...] = ()
    weight: float = 0.0
    diff: str = ""
    body: dict[str, Any] = {}
    until: str = ""
    run: str = ""
    session: str = ""
    id: str = ""
    at: str = ""

    @staticmethod
    def id_of(agent: str, kind: str, key: str) -> str:
        """Return the id of an agent's item: two agents may each be asked about the same subject."""
        identity = f"{agent}\0{kind}\0{key}".encode("utf-8", "replace")
        return f"i-{blake2b(identity, digest_size=_ID_CHARS // 2).hexdigest()}"

    @classmethod
    def of_plan(
        cls, what: str, title: str, summary: str, rows: Sequence[str], changes: Iterable[str], command: str
    ) -> "Item":
        """Return the item of a plan, with a fingerprint of each change: a yes is for exactly these changes.

        ``rows``: the diff's. ``changes``: a full text of each. ``command``: the command that shows the whole diff.
        """
        sizes = accumulate(len(row) + 1 for row in rows)
        shown = sum(size <= _DIFF_CHARS_MAX for size in sizes)
        more = [f"... and {counted(len(rows) - shown, 'more line')}: {command}"] if shown < len(rows) else []
        marks = [blake2b(screen(each).text.encode("utf-8", "replace"), digest_size=8).hexdigest() for each in changes]
        body = {"what": what, "changes": marks}
        return cls(kind="plan", title=title, evidence=(summary,), diff="\n".join([*rows[:shown], *more]), body=body)


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="decision"):
    """Decision on an item: what it changed, in a line, and the run that can be taken back (``store/runs``)."""

    id: str
    outcome: _Outcome = msgspec.field(name="said")
    at: str = ""
    by: str = ""
    why: str = ""
    did: str = ""
    run: str = ""


class _Shown(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="shown"):
    """Note of the first time that an item was shown to a person, with its evidence and its diff."""

    id: str
    at: str


class Entry(NamedTuple):
    """Item with its decision, None while it waits, and the one that was taken back last (``was``).

    ``shown``: stamp of when a person was first shown it (for a dropped item: that it was dropped); "" for never.
    """

    agent: str
    item: Item
    decision: Decision | None = None
    shown: str = ""
    was: Decision | None = None

    @property
    def is_pending(self) -> bool:
        """True where it is undecided."""
        return self.decision is None

    def dropped(self) -> str:
        """Return a dropped item as it is named to a person: its title, what went with it, and what brings that back."""
        decision = self.decision
        if decision is None or not decision.run:
            return self.item.title
        return f"{self.item.title}; {decision.did}, and `fleet undo {decision.run}` brings it back"

    def last_day(self) -> str:
        """Return the last day on which it can be decided; "" for no end, and for one that nobody was shown yet."""
        if not self.item.until or not self.shown:
            return ""
        return max(self.item.until, _later(self.shown, GRACE_DAYS))


class _Put(NamedTuple):
    """Outcome of putting an item in: its id, or that of the item that it repeats, and why it is not new."""

    id: str
    is_new: bool
    why: str = ""


class _Waiting(NamedTuple):
    """Number of items that wait, and the day since which the oldest does (YYYY-MM-DD; "" where none waits)."""

    number: int
    since: str
    kinds: dict[str, int]

    def summary(self) -> str:
        if not self.number:
            return ""
        kinds = ", ".join(counted(number, kind) for kind, number in self.kinds.items())
        verb, thing = ("wait", "things") if self.number > 1 else ("waits", "thing")
        return f"{self.number} {thing} {verb} for a person's decision since {self.since} ({kinds}): fleet inbox"


class Inbox:
    """Inbox of an agent, or of all agents here where none is named; what is put in or decided is of one."""

    def __init__(self, workspace: Workspace, agent: str = "") -> None:
        self._workspace = workspace
        here = () if agent else workspace.homes()
        self._agents = [agent] if agent else [name for name in here if (workspace.home(name) / FILE_NAME).is_file()]

    def put(self, items: Sequence[Item], *, dry_run: bool = False) -> list[_Put]:
        """Put in the items that neither wait nor were decided, in these or other words; return the outcomes."""
        (agent,) = self._agents
        with self._locked(agent) as lines:
            known = {each.item.id: each for each in self.entries()}
            outcomes, new, met = list[_Put](), list[Item](), set[str]()
            for item in items:
                clean = msgspec.convert(screened(msgspec.to_builtins(item)), Item)
                about = " ".join(filter(None, [str(item.body.get("what", "")), normalise(item.title)]))
                id_ = Item.id_of(agent, item.kind, item.key or about)
                named = msgspec.structs.replace(clean, id=id_, at=self._workspace.wall())
                like = known.get(named.id) or _alike(named, known.values())
                if (why := _why_known(like)) and like is not None:
                    # New again, if a crash cut short the same run; but of two alike in one call the second is not.
                    is_again = like.is_pending and like.item.run == item.run != "" and like.item.id not in met
                    outcomes.append(_Put(like.item.id, is_new=is_again, why="" if is_again else why))
                else:
                    known[named.id] = Entry(agent, named)
                    new.append(named)
                    outcomes.append(_Put(named.id, is_new=True))
                met.add(outcomes[-1].id)
            lines.add([] if dry_run else new)
        return outcomes

    def entries(self) -> list[Entry]:
        """Return all entries there ever were, as they are now, of each agent the oldest first."""
        entries = list[Entry]()
        for agent in self._agents:
            by_id: dict[str, Entry] = {}
            for line in self._lines(agent).read(Item | Decision | _Shown):  # type: ignore[arg-type]
                _take_line(by_id, agent, line)
            entries += by_id.values()
        return entries

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Append decisions, in one write that is durable when this returns.

        A decision without a person and a run (elsewhere, expired) is left out if the item was decided meanwhile, so
        that an answer keeps its reason and its run.
        """
        (agent,), at = self._agents, self._workspace.wall()
        with self._locked(agent) as lines:
            known = {each.item.id for each in self.entries() if not each.is_pending}
            made = [each for each in decisions if each.run or each.outcome not in _UNANSWERED or each.id not in known]
            lines.add([msgspec.structs.replace(each, at=at) for each in made])

    def _lines(self, agent: str) -> JsonLines:
        return JsonLines(self._workspace.files, self._workspace.home(agent) / FILE_NAME)

    @contextmanager
    def _locked(self, agent: str) -> Iterator[JsonLines]:
        with self._workspace.lock(f"inbox-{agent}"):
            yield self._lines(agent)

    def waiting(self, kind: str = "") -> list[Entry]:
        """Return the entries that wait, of a kind if it is named, the best-evidenced first; of equals the oldest."""
        entries = [each for each in self.entries() if each.is_pending and kind in ("", each.item.kind)]
        return sorted(entries, key=lambda each: (-each.item.weight, each.item.at, each.item.id))

    def overdue(self) -> list[Entry]:
        """Return the entries that wait, were shown, and whose last day has passed."""
        today = self._workspace.wall()[:_DAY_CHARS]
        return [each for each in self.waiting() if (day := each.last_day()) and day < today]

    def dropped(self) -> list[Entry]:
        """Return the entries that nobody decided in time, for a week or until a person is shown that they went."""
        today = self._workspace.wall()[:_DAY_CHARS]
        unseen = ((each, each.decision) for each in self.entries() if each.decision and not each.shown)
        return [each for each, by in unseen if by.outcome == "expired" and _later(by.at, GRACE_DAYS) >= today]

    def count(self, *, with_mirrored: bool = True) -> _Waiting:
        """Return the number of items that wait, by kind, and since when; without those that mirror a question.

        A pair that the last comparison did not find again counts no more: a lesson of it was retired or edited since.
        """
        waiting = [each for each in self.waiting() if with_mirrored or not _is_mirrored(each.item)]
        if any(each.item.kind in PAIRS for each in waiting):
            compared = Weighing(self._workspace).last_clusters()
            found = {":".join(each.ids) for each in (*compared.opposed, *compared.likely)}
            waiting = [each for each in waiting if each.item.kind not in PAIRS or each.item.key in found]
        kinds = {kind: sum(each.item.kind == kind for each in waiting) for kind in KINDS}
        since = min((each.item.at[:_DAY_CHARS] for each in waiting), default="")
        return _Waiting(len(waiting), since, {kind: number for kind, number in kinds.items() if number})

    def show(self, shown: Iterable[Entry]) -> None:
        """Note that a person was shown these items, with evidence and diff; only the first time is written."""
        for entry in (each for each in shown if not each.shown):
            with self._locked(entry.agent) as lines:
                lines.add([_Shown(id=entry.item.id, at=self._workspace.wall())])

    def settle(self, kind: str, key: str, did: str, run: str = "") -> None:
        """Close the items of a key, since their subject was decided elsewhere, by a run if one is named."""
        for entry in (each for each in self.waiting(kind) if each.item.key == key):
            decision = Decision(id=entry.item.id, outcome="elsewhere", did=did, run=run)
            Inbox(self._workspace, entry.agent).decide([decision])

    def undo(self, run: str, why: str, *, again: bool = False) -> list[Entry]:
        """Withdraw the items of a run that was undone, and let those that it decided wait again.

        With ``again`` the run was redone, and all that is reverted. Return the changed entries as they were before.
        """
        changed = []
        for box in (Inbox(self._workspace, agent) for agent in self._agents):
            decided = [(each, by) for each in box.entries() if (by := _decision_after(each, run, again=again))]
            if decided:  # in one write: a crash leaves all of them or none
                box.decide([msgspec.structs.replace(by, why=why) for _, by in decided])
            changed += [each for each, _ in decided]
        return changed

    def days_to_decide(self) -> tuple[int, float]:
        """Return the number of decided items, and the median of days that one took."""
        decided = ((each.item.at, each.decision) for each in self.entries() if each.decision is not None)
        spans = [(at, decision.at) for at, decision in decided if decision.outcome in _DECIDED]
        days = [max(0.0, (clock.ms_of(until) - clock.ms_of(since)) / 86_400_000) for since, until in spans]
        return len(days), round(median(days), 1) if days else 0.0


def _take_line(by_id: dict[str, Entry], agent: str, line: Item | Decision | _Shown) -> None:
    known = by_id.get(line.id)
    if isinstance(line, Item):
        if line.id and (known is None or not known.is_pending):
            by_id[line.id] = Entry(agent, msgspec.structs.replace(line, title=one_line(line.title)))
    elif known is None:
        return  # of an item whose line is spoiled
    elif isinstance(line, _Shown):
        by_id[line.id] = known._replace(shown=known.shown or line.at)
    elif line.outcome == REOPENED:
        # It counts as never shown: else a dropped item, whose last day has passed, would be dropped again unseen.
        by_id[line.id] = known._replace(decision=None, was=known.decision, shown="")
    else:
        by_id[line.id] = known._replace(decision=line, shown="" if line.outcome == "expired" else known.shown)


def _decision_after(entry: Entry, run: str, *, again: bool) -> Decision | None:
    """Return the decision on an item after the undo of a run, or with ``again`` its redo; None for no decision."""
    by, was = entry.decision, entry.was
    if by is not None:  # an undo reverts the decisions that the run made; a redo reverts the withdrawals
        is_due = by.run == run and (by.outcome == WITHDRAWN) is again
        return Decision(id=entry.item.id, outcome="reopened") if is_due else None
    if not again:
        return Decision(id=entry.item.id, outcome="withdrawn", run=run) if entry.item.run == run else None
    return was if was is not None and was.run == run and was.outcome != WITHDRAWN else None


def _why_known(entry: Entry | None) -> str:
    """Return why a known item is not put in again; "" where it may be."""
    if entry is None:
        return ""
    if entry.decision is None:
        return f"it waits already, as {entry.item.id}"
    if _is_mirrored(entry.item):
        return ""  # the answer was taken back, so that it waits again where it arose
    if entry.decision.outcome == REJECTED:
        return f"a person rejected it as {entry.item.id}{f' ({entry.decision.why})' if entry.decision.why else ''}"
    if entry.decision.outcome == APPROVED and entry.item.kind != "plan":  # an approved plan is done: this is a new one
        return f"it was approved already, as {entry.item.id}"
    return ""


def _alike(item: Item, known: Iterable[Entry]) -> Entry | None:
    """Return the entry, decided or not, that says the same in other words.

    The threshold is higher for an entry that waits, since keeping out an item that only resembles it would lose it, and
    for one of another key, such as two skills whose descriptions share a phrase.
    """
    if _is_mirrored(item):
        return None
    close = {each.item.id: each for each in known if _subject(each.item) == _subject(item) and _why_known(each)}
    if item.kind == "plan":  # two plans differ by their changes and not by their titles, and one waits at a time
        return next((each for each in close.values() if each.is_pending), None)
    texts = [(each, _words(entry.item)) for each, entry in close.items()]
    for found in near(_words(item), texts, len(texts) or 1):
        entry = close[found.id]
        is_named = bool(item.key and entry.item.key)
        least = _WAITS_MIN if entry.decision is None else _NAMED_MIN if is_named else ALIKE_MIN
        if found.score >= least and not found.differs:
            return entry
    return None


def _is_mirrored(item: Item) -> bool:
    """Return whether an item mirrors a question about lessons, by their ids and not by its words."""
    return item.kind in (*PAIRS, "bulk") or (item.kind == "promotion" and "lesson" in item.body)


def _subject(item: Item) -> tuple[object, ...]:
    """Return what a yes to an item is about: a lesson and a note of the same words are two."""
    return item.kind, item.body.get("what"), item.body.get("peer")


def _words(item: Item) -> str:
    """Return the words of an item, without those that every item of its kind begins with."""
    fields = (item.body.get(name) for name in ("pattern", "note", "description", "item"))
    text = next((each for each in fields if isinstance(each, str) and each), "")
    about = item.title.partition(": ")[2] if item.kind == "skill" else ""
    return text or about or item.title


def _later(stamp: str, days: int) -> str:
    try:
        return (date.fromisoformat(stamp[:_DAY_CHARS]) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return ""
