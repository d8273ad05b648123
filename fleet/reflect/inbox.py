"""The inbox: everything that waits for a person's decision, and what was decided; ``inbox.jsonl``, append-only.

Whoever proposes something puts an item in. The same thing is there once: what waits is not put in again, and what a
person rejected does not come back, neither as it was nor in other words. What was never shown never expires.

What is decided elsewhere is decided here: a pair that ``fleet review`` answered, a lesson that was promoted by hand.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import date, timedelta
from hashlib import blake2b
from statistics import median
from typing import Any, Literal, NamedTuple

import msgspec

from fleet.model.names import normalise
from fleet.store.lines import JsonLines, screened
from fleet.store.workspace import Workspace
from fleet.text import dates
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
PAIRS = frozenset({"merge", "contradiction"})
"""Kinds of items that are about two lessons."""
_DAY_CHARS, _MINUTE_CHARS = 10, 16
_ID_CHARS = 12
_NAMED_MIN = 0.8
_WAITS_MIN = 0.9


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="item"):
    """One thing that waits.

    Attributes:
        kind: one of ``KINDS``.
        title: what a person is asked about, in a line.
        key: what makes it the same thing another time: a lesson's id, a pair, a path; by default the title's words.
        evidence: what speaks for it, a quote or a line each, the best first.
        weight: how much speaks for it; the heaviest is shown first.
        diff: what an approval would change, as a unified diff or a line.
        body: what its handler needs (``app/inbox``).
        until: the last day on which it can be decided, YYYY-MM-DD; "": for ever.
        id: ``i-`` and 12 hex digits of agent, kind and key; set by ``put``.
        at: when it was put in, a stamp; set by ``put``.
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
        """Return the id of an agent's item about a thing: two agents may each be asked about the same."""
        identity = f"{agent}\0{kind}\0{key}".encode("utf-8", "replace")
        return f"i-{blake2b(identity, digest_size=_ID_CHARS // 2).hexdigest()}"


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="decision"):
    """Decision on an item.

    Attributes:
        outcome: approved, rejected, expired, withdrawn (by the run that proposed it), elsewhere, or reopened.
        at: when, a stamp.
        why: the reason, a person's or ours.
        did: what the decision changed, in a line.
        run: that can be taken back (``store/runs``).
    """

    id: str
    outcome: _Outcome = msgspec.field(name="said")
    at: str = ""
    by: str = ""
    why: str = ""
    did: str = ""
    run: str = ""


class _Shown(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="shown"):
    """That an item was shown to a person for the first time, with its evidence and its diff."""

    id: str
    at: str


class Entry(NamedTuple):
    """An item and how it stands.

    Attributes:
        decision: what was decided; None while it waits.
        shown: when a person was shown it first, a stamp; "" for never.
        was: the decision that was taken back last; None for none.
    """

    agent: str
    item: Item
    decision: Decision | None = None
    shown: str = ""
    was: Decision | None = None

    @property
    def is_pending(self) -> bool:
        """True where nobody decided it yet."""
        return self.decision is None

    def last_day(self) -> str:
        """Return the last day on which it can be decided; "" for never, and for what nobody was shown yet."""
        if not self.item.until or not self.shown:
            return ""
        return max(self.item.until, _later(self.shown, GRACE_DAYS))


class _Put(NamedTuple):
    """Outcome of putting an item in.

    Attributes:
        id: of the item, or of the one that it is the same as.
        is_new: whether it waits now and did not before its run.
        why: why it is not new, in a sentence.
    """

    id: str
    is_new: bool
    why: str = ""


class _Waiting(NamedTuple):
    """Number of things that wait, and the day since which the oldest does (YYYY-MM-DD; "" where nothing waits)."""

    number: int
    since: str
    kinds: dict[str, int]

    def summary(self) -> str:
        """Return it in a line; "" where nothing waits."""
        if not self.number:
            return ""
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.items())
        verb, thing = ("wait", "things") if self.number > 1 else ("waits", "thing")
        return f"{self.number} {thing} {verb} for a person's decision since {self.since} ({kinds}): fleet inbox"


class Inbox:
    """One agent's inbox."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent
        self._path = workspace.home(agent) / FILE_NAME

    def put(self, item: Item) -> _Put:
        """Put an item in, unless it waits already, was approved, or a person rejected it, in these words or in others.

        Raises:
            DiskError: it is not there.
        """
        return self.put_all([item])[0]

    def put_all(self, items: Sequence[Item]) -> list[_Put]:
        """Put items in, all in one write; return what became of each."""
        with self._locked():
            known = {each.item.id: each for each in self.entries()}
            done, fresh = list[_Put](), list[Item]()
            for each in items:
                named = _with_id(self._workspace, self._agent, each)
                like = known.get(named.id) or _alike(named, known.values())
                if (why := _why_known(like)) and like is not None:
                    is_again = (
                        like.is_pending and like.item.run == each.run != ""
                    )  # a crash ended that run, and it goes on
                    done.append(_Put(like.item.id, is_new=is_again, why="" if is_again else why))
                    continue
                known[named.id] = Entry(self._agent, named)
                fresh.append(named)
                done.append(_Put(named.id, is_new=True))
            self._say(fresh)
        return done

    def entries(self) -> list[Entry]:
        """Return everything that was ever in an agent's inbox, as it stands now, oldest first."""
        found: dict[str, Entry] = {}
        for line in JsonLines(self._workspace.files, self._path).read(Item | Decision | _Shown):  # type: ignore[arg-type]
            _take_line(found, self._agent, line)
        return list(found.values())

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Write decisions down, in one write that is on the disk when this returns."""
        at = self._workspace.wall()
        with self._locked():
            self._say([msgspec.structs.replace(each, at=at) for each in decisions])

    def show(self, ids: Iterable[str]) -> None:
        """Note that a person was shown these items, with evidence and diff."""
        at = self._workspace.wall()
        with self._locked():
            self._say([_Shown(id=each, at=at) for each in ids])

    def expire(self) -> list[Entry]:
        """Drop what was shown and whose last day has passed; return it, for whoever says so."""
        today = self._workspace.wall()[:_DAY_CHARS]
        gone = [each for each in self.entries() if each.is_pending and (day := each.last_day()) and day < today]
        if gone:
            why = [(each.item.id, f"its last day was {each.last_day()}") for each in gone]
            self.decide([Decision(id=id_, outcome="expired", why=text) for id_, text in why])
        return gone

    def _locked(self) -> AbstractContextManager[None]:
        return self._workspace.files.lock(self._workspace.local / "locks" / f"inbox-{self._agent}.lock")

    def _say(self, lines: Sequence[msgspec.Struct]) -> None:
        JsonLines(self._workspace.files, self._path).add(lines)


class Inboxes:
    """The inboxes of all agents here, or of some.

    Attributes:
        agents: whose.
    """

    def __init__(self, workspace: Workspace, agents: Sequence[str] | None = None) -> None:
        self._workspace = workspace
        here = workspace.homes() if agents is None else ()
        self.agents = agents or [name for name in here if (workspace.home(name) / FILE_NAME).is_file()]

    def entries(self) -> list[Entry]:
        """Return everything that was ever in them, as it stands now."""
        return [each for agent in self.agents for each in Inbox(self._workspace, agent).entries()]

    def waiting(self, kind: str = "") -> list[Entry]:
        """Return what waits, of a kind if it is named, the best-evidenced first; of equals the oldest."""
        found = [each for each in self.entries() if each.is_pending and kind in ("", each.item.kind)]
        return sorted(found, key=lambda each: (-each.item.weight, each.item.at, each.item.id))

    def count(self) -> _Waiting:
        """Return how many things wait, by kind, and since when."""
        found = self.waiting()
        kinds = {kind: sum(each.item.kind == kind for each in found) for kind in KINDS}
        since = min((each.item.at[:_DAY_CHARS] for each in found), default="")
        return _Waiting(len(found), since, {kind: number for kind, number in kinds.items() if number})

    def show(self, shown: Iterable[Entry]) -> None:
        """Note of items that a person was shown them. Only the first time counts; nothing is written after that."""
        fresh = [(each.agent, each.item.id) for each in shown if not each.shown]
        for agent in dict.fromkeys(agent for agent, _ in fresh):
            Inbox(self._workspace, agent).show(id_ for whose, id_ in fresh if whose == agent)

    def settle(self, kind: str, key: str, did: str) -> None:
        """Close what waits under a key, since it was decided elsewhere."""
        for each in self.waiting(kind):
            if each.item.key == key:
                Inbox(self._workspace, each.agent).decide([Decision(id=each.item.id, outcome="elsewhere", did=did)])

    def undo(self, run: str, why: str, *, again: bool = False) -> list[Entry]:
        """Follow a run that was taken back: what it put in waits no longer, and what was decided by it waits again.

        With ``again`` the run stands once more, and so does all that. Returned is what changed, as it was before.
        """
        changed = []
        for agent in self.agents:
            box = Inbox(self._workspace, agent)
            found = [
                (each, decision) for each in box.entries() if (decision := _decision_after(each, run, again=again))
            ]
            if found:
                box.decide([msgspec.structs.replace(decision, why=why) for _, decision in found])
            changed += [each for each, _ in found]
        return changed

    def days_to_decide(self) -> tuple[int, float]:
        """Return how many items were decided, and the median days that it took."""
        decided = ((each.item.at, each.decision) for each in self.entries() if each.decision is not None)
        took = [_days(at, decision.at) for at, decision in decided if decision.outcome in _DECIDED]
        return len(took), round(median(took), 1) if took else 0.0


def _take_line(found: dict[str, Entry], agent: str, line: Item | Decision | _Shown) -> None:
    known = found.get(line.id)
    if isinstance(line, Item):
        if line.id and (known is None or not known.is_pending):
            found[line.id] = Entry(agent, line)
    elif known is None:
        return  # of an item whose line is spoiled
    elif isinstance(line, _Shown):
        found[line.id] = known._replace(shown=known.shown or line.at)
    elif line.outcome == REOPENED:
        found[line.id] = known._replace(decision=None, was=known.decision)
    else:
        found[line.id] = known._replace(decision=line)


def _decision_after(entry: Entry, run: str, *, again: bool) -> Decision | None:
    """Return what becomes of an item when a run is taken back, or stands again; None for nothing."""
    by, id_ = entry.decision, entry.item.id
    is_its_own = by is not None and by.run == run
    if not again:
        if by is None:
            return Decision(id=id_, outcome="withdrawn", run=run) if entry.item.run == run else None
        return Decision(id=id_, outcome="reopened") if is_its_own and by.outcome != WITHDRAWN else None
    if by is not None:
        return Decision(id=id_, outcome="reopened") if is_its_own and by.outcome == WITHDRAWN else None
    return entry.was if entry.was is not None and entry.was.run == run and entry.was.outcome != WITHDRAWN else None


def _with_id(workspace: Workspace, agent: str, item: Item) -> Item:
    key = item.key or normalise(item.title)
    clean = msgspec.convert(screened(msgspec.to_builtins(item)), Item)
    return msgspec.structs.replace(clean, id=Item.id_of(agent, item.kind, key), at=workspace.wall())


def _why_known(known: Entry | None) -> str:
    """Return why an item that is known already is not put in again; "" where it may be."""
    if known is None:
        return ""
    if known.decision is None:
        return f"it waits already, as {known.item.id}"
    if _is_mirrored(known.item):
        return ""  # it waits again where it arose: somebody took the answer back
    if known.decision.outcome == REJECTED:
        return f"a person rejected it as {known.item.id}{f' ({known.decision.why})' if known.decision.why else ''}"
    if known.decision.outcome == APPROVED:
        return f"it was approved already, as {known.item.id}"
    return ""


def _alike(item: Item, known: Iterable[Entry]) -> Entry | None:
    """Return what was decided, or waits, and says the same in other words.

    To keep out what only resembles a thing that waits would lose it without a word, so that takes more; and so does
    what is named otherwise, such as two skills whose descriptions share a phrase.
    """
    if _is_mirrored(item):
        return None
    close = {each.item.id: each for each in known if each.item.kind == item.kind and _why_known(each)}
    if same := [each for each in close.values() if each.item.key == item.key != ""]:
        return same[-1]  # under its id of when that had no agent in it
    texts = [(each, _words(entry.item)) for each, entry in close.items()]
    for found in near(_words(item), texts, len(texts) or 1):
        entry = close[found.id]
        is_named = bool(item.key and entry.item.key)
        least = _WAITS_MIN if entry.decision is None else _NAMED_MIN if is_named else ALIKE_MIN
        if found.score >= least and not found.differs:
            return entry
    return None


def _is_mirrored(item: Item) -> bool:
    """Return whether an item is about lessons that are asked about elsewhere, by their ids and not by its words."""
    return item.kind in PAIRS or (item.kind == "promotion" and "lesson" in item.body)


def _words(item: Item) -> str:
    """Return what an item says, without what every item of its kind begins with."""
    fields = (item.body.get(name) for name in ("pattern", "note", "description", "item"))
    found = next((each for each in fields if isinstance(each, str) and each), "")
    about = item.title.partition(": ")[2] if item.kind == "skill" else ""
    return found or about or item.title


def _days(since: str, until: str) -> float:
    """Return the days between two stamps."""
    begin, end = dates.to_ms(since[:_MINUTE_CHARS]), dates.to_ms(until[:_MINUTE_CHARS])
    return max(0.0, (end - begin) / 86_400_000) if begin is not None and end is not None else 0.0


def _later(stamp: str, days: int) -> str:
    try:
        return (date.fromisoformat(stamp[:_DAY_CHARS]) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return ""
