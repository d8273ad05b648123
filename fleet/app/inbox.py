"""Use cases of the inbox: the queue of items that wait for a person, and the effect of a yes or a no to each.

Reflections add some items. The others mirror pending decisions elsewhere: pairs and questions of ``fleet review``,
lessons that wait for a place in a memory, and rows under Ready to Promote. A decision in one place closes the item
everywhere.

``HANDLERS`` has a handler for each kind, or kind and ``what`` of the body, as ``plan:tidy``. Bodies: a skill has
``draft`` and ``target``, paths of a SKILL.md (and ``before``, the text of a skill that is to be edited, and ``note``,
what is added); persona ``note``; promotion ``lesson``; guard ``lesson`` and ``decision``; merge and contradiction
``pair``; bulk ``pair``, a question; promotion:agents-md the cells of its row; candidate:note and candidate:person
``note``; candidate ``pattern`` and, where known, ``wrong``, ``right``, ``category``, ``tags``, ``trigger``, ``source``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher, unified_diff
from functools import partial
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

import msgspec

from fleet.app import consolidating, learning, reflecting, reviewing, starting, undoing
from fleet.app.reviewing import Pair
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog
from fleet.model import names
from fleet.model.errors import DiskError, NoError, UsageError
from fleet.model.names import LABELS, normalise
from fleet.model.pattern import Pattern, merged
from fleet.recall.wording import Renderer
from fleet.reflect import inbox, memory_md, promotion
from fleet.reflect.clusters import Weighing
from fleet.reflect.housekeeping import Mode
from fleet.reflect.inbox import KINDS, PAIRS, SHOWN_MAX, Decision, Entry, Inbox, Inboxes, Item
from fleet.reflect.promotion import AgentMemory
from fleet.share.notices import Notice, Notices
from fleet.store.lines import screened
from fleet.store.runs import Draft, Edit, Field, Runs
from fleet.store.workspace import Workspace
from fleet.text.screening import one_line, readable, screen
from fleet.text.similarity import ALIKE_MIN, Near, near

USER_FILE = "USER.md"
_SKILL = "SKILL.md"
_T = TypeVar("_T")
_COMMAND = "fleet inbox"
_BULK = "bulk"
"""Kind of the items about what is left out here: the one kind whose answers leave no run."""
_FIELD = "inbox"
"""Name of the field of a run with its decision of an item."""
_DIFF_LINES_MAX = 200
_MORE = "... and "
"""Beginning of a row with the number of lines that a diff was cut by."""
_GONE = "it waits no more where it arose: it was decided there, or is not true any more"
_ROW_GONE = "it stands no more under Ready to Promote, or AGENTS.md says so by now"


class _Handler(NamedTuple):
    """Handler of a kind of item.

    Attributes:
        check: returns why the item is no longer true, or no longer new; "" where it is both.
        approve: applies it; returns a summary, and the id of the run that can be taken back ("" for none).
        reject: changes what a no changes beside the inbox, likewise; None for nothing.
        diff: returns the change that a yes makes, as of now; None: the diff of the item.
    """

    check: Callable[[Workspace, Entry], str]
    approve: Callable[[Workspace, Entry, str], tuple[str, str]]
    reject: Callable[[Workspace, Entry], tuple[str, str]] | None = None
    diff: Callable[[Workspace, Entry], str] | None = None


class Listing(NamedTuple):
    """List of items: the best-evidenced ones, the number of all pending ones, and the day of the oldest.

    ``expired``: items dropped since nobody decided them in time, of which nobody was shown that they went.
    ``to_state``: corrections without a lesson.
    """

    entries: tuple[Entry, ...]
    total: int
    since: str
    expired: tuple[Entry, ...]
    to_state: int


# --- what waits -----------------------------------------------------------------------------------------------------


def listing(workspace: Workspace, kind: str = "", agent: str = "", *, count: int = SHOWN_MAX) -> Listing:
    """Return the best-evidenced pending items (0: all), of a kind and agent if they are named."""
    if kind and kind not in KINDS:
        raise UsageError(f"there is no kind {kind[:40]!r}: {', '.join(KINDS)}")
    try:
        if not workspace.is_read_only:
            refresh(workspace)
    except DiskError as why:
        workspace.warn(f"listed is what waited before; what came since is missing: {why}")
    agents = [agent] if agent else Inboxes(workspace).agents
    waiting = Inboxes(workspace, agents).waiting(kind)
    shown = tuple(_as_of_now(workspace, waiting[:count] if count else waiting))
    to_state = sum(CountedLog(workspace, each).unfilled() for each in ([agent] if agent else workspace.agents_here()))
    expired = tuple(Inboxes(workspace).dropped())
    return Listing(shown, len(waiting), Inboxes(workspace, agents).count().since, expired, to_state)


def _as_of_now(workspace: Workspace, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries, those of lessons that wait for a memory with their present evidence: it has grown since."""
    agents = workspace.agents_here()
    pending = {(agent, each.id): each for agent in agents for each in AgentMemory(workspace, agent).waiting()}
    for entry in entries:
        waits = pending.get((entry.agent, entry.item.key)) if entry.item.kind == "promotion" else None
        evidence = (waits.evidence, waits.why) if waits is not None else entry.item.evidence
        yield entry._replace(item=msgspec.structs.replace(entry.item, evidence=evidence))


def diff_of(workspace: Workspace, entry: Entry) -> str:
    """Return the change that a yes makes, as of now."""
    handler = _handler(entry.item)
    return handler.diff(workspace, entry) if handler is not None and handler.diff is not None else entry.item.diff


class _Refreshed(NamedTuple):
    """Result of bringing the inbox up to date: how many items are new, and those that were dropped."""

    new: int = 0
    dropped: tuple[Entry, ...] = ()


def refresh(workspace: Workspace, *, dry_run: bool = False) -> _Refreshed:
    """Mirror the pending decisions of other places, and drop overdue items; a dry run only counts the new ones."""
    agents = workspace.agents_here()
    if not agents:
        return _Refreshed()
    if not dry_run:
        Runs(workspace).recover()
    owner = workspace.replicas().default_agent or agents[0]
    items_waiting = Inboxes(workspace).waiting()

    with workspace.snapshot():
        table = [
            (owner, PAIRS, [_pair_item(each) for each in reviewing.undecided_pairs(workspace)]),
            (owner, {_BULK}, [_left_out_item(each) for each in reviewing.questions(workspace)]),
        ]
        for agent in agents:
            pending = AgentMemory(workspace, agent).standing().waiting
            lessons = workspace.patterns.lessons_of(each.id for each in pending)
            table.append((agent, {"promotion"}, [_promotion_item(each, lessons.get(each.id)) for each in pending]))
    new = 0
    for agent, kinds, items in table:
        mine = [each for each in items_waiting if each.agent == agent and each.item.kind in kinds]
        entries = [each for each in mine if "what" not in each.item.body]
        new += _mirror(workspace, agent, items, entries, dry_run=dry_run)
    rows = [each for each in items_waiting if each.item.body.get("what") == consolidating.WHAT]
    new += _mirror(workspace, owner, consolidating.waiting(workspace), rows, _ROW_GONE, dry_run=dry_run)
    if dry_run:
        return _Refreshed(new)
    boxes = [Inbox(workspace, agent) for agent in Inboxes(workspace).agents]
    expired = [each for box in boxes for each in box.expire(lambda entry: _has_own_words(workspace, entry))]
    return _Refreshed(new, tuple(_without_draft(workspace, each) for each in expired))


def _has_own_words(workspace: Workspace, entry: Entry) -> bool:
    """Return whether a draft is there and no longer reads as its run wrote it: what a person wrote is never dropped."""
    draft = _skill_draft(workspace, entry) if entry.item.kind == "skill" else b""
    with suppress(NoError):
        return bool(draft) and draft not in (edit.after for edit in Runs(workspace).find(entry.item.run).edits)
    return bool(draft)


def _close(workspace: Workspace, entry: Entry, by: str, why: str) -> str:
    """Close an item that is true or new no more, with its draft unless a person edited it; return that in words."""
    did, run = "", ""
    if entry.item.kind == "skill" and _skill_draft(workspace, entry) and not _has_own_words(workspace, entry):
        did, run = _skill_reject(workspace, entry)  # a draft that stayed would keep the next one out
    decision = Decision(id=entry.item.id, outcome="elsewhere", by=by, why=why, did=did, run=run)
    Inbox(workspace, entry.agent).decide([decision])
    return f"; {did}, and `fleet undo {run}` brings it back" if did else ". Nothing was changed"


def _without_draft(workspace: Workspace, entry: Entry) -> Entry:
    """Remove the draft of a dropped item; return the item with that decision."""
    if entry.item.kind != "skill" or _has_own_words(workspace, entry):
        return entry
    did, run = _skill_reject(workspace, entry)
    decision = Decision(id=entry.item.id, outcome="expired", why="nobody decided it in time", did=did, run=run)
    Inbox(workspace, entry.agent).decide([decision])
    return entry._replace(decision=decision)


def refresh_and_notify(workspace: Workspace) -> tuple[Entry, ...]:
    """Refresh the inbox, and notify subscribers of new items; return the dropped ones."""
    before = Inboxes(workspace).count().number
    expired = refresh(workspace).dropped
    now = Inboxes(workspace).count()
    if now.number > before:
        data = {"number": now.number, "since": now.since, "kinds": now.kinds}
        Notices(workspace).send(Notice("inbox.waiting", f"{now.number} wait for you", now.summary(), data))
    return expired


def _mirror(
    workspace: Workspace, agent: str, items: list[Item], entries: list[Entry], why: str = _GONE, *, dry_run: bool
) -> int:
    """Add the items that wait elsewhere and in no agent's entry, and close the entries that wait there no more.

    Return the number of new ones; a dry run writes nothing.
    """
    owners, open_ = {agent, *(each.agent for each in entries)}, {each.item.id for each in entries}
    ids = [{Item.id_of(owner, each.kind, each.key) for owner in owners} for each in items]
    new = [each for each, its in zip(items, ids, strict=True) if not its & open_]
    put = Inbox(workspace, agent).put(new, dry_run=dry_run) if new else []
    expected = set[str]().union(*ids)
    for entry in (each for each in entries if each.item.id not in expected and not dry_run):
        Inbox(workspace, entry.agent).decide([Decision(id=entry.item.id, outcome="elsewhere", why=why)])
    return sum(each.is_new for each in put)


def _pair_item(pair: Pair) -> Item:
    one, other = sorted((pair.one, pair.other), key=lambda each: each.id)
    is_opposed = pair.kind == reviewing.CONTRADICTION
    wordings = pair._replace(one=one, other=other).rows()
    corrections = [f"= {each.id}: {each.correct}" for each in (one, other) if each.correct]
    return Item(
        kind="contradiction" if is_opposed else "merge",
        key=f"{one.id}:{other.id}",
        title=f"{'which holds' if is_opposed else 'one lesson'}? {one_line(one.text)} / {one_line(other.text)}",
        evidence=(*wordings, *([f"differs in {', '.join(pair.differs)}"] if pair.differs else ())),
        weight=float(one.count("seen") + other.count("seen")),
        diff="\n".join(corrections),
        body={"pair": f"{one.id}:{other.id}"},
    )


def _left_out_item(question: reviewing.Question) -> Item:
    # The same writer may do as much another time, or put other words into the same lessons.
    changed = (each for one in question.lessons for each in one.differences if each.field in LABELS)
    ids = " ".join([*(each.id for each in question.lessons), *(f"{each.field}={each.after}" for each in changed)])
    return Item(
        kind=_BULK,
        key=f"{question.name} {blake2b(ids.encode(), digest_size=8).hexdigest()}",
        title=question.summary,
        evidence=tuple(f"{each.in_one_line()} ({each.id})" for each in question.lessons[: reviewing.SHOWN_MAX]),
        weight=float(len(question.lessons)),
        diff=f"{question.retires:,} lessons out, {question.edits:,} that read otherwise",
        body={"pair": question.name},
    )


def _promotion_item(waiting: promotion.Waiting, lesson: Pattern | None) -> Item:
    return Item(
        kind="promotion",
        key=waiting.id,
        title=f"take into the memory: {one_line(waiting.text)}",
        evidence=(waiting.evidence, waiting.why),
        weight=float(lesson.weight("seen")) if lesson is not None else 0.0,
        diff=f"+ - {one_line(waiting.text)} ({waiting.evidence}; {waiting.id})",
        body={"lesson": waiting.id},
    )


# --- a decision -----------------------------------------------------------------------------------------------------


def _find(workspace: Workspace, prefix: str) -> Entry:
    """Return the item that waits and has this id, or the unique beginning of one."""
    id_prefix = prefix if prefix.startswith("i-") else f"i-{prefix}"
    entries = [each for each in Inboxes(workspace).entries() if each.item.id.startswith(id_prefix)]
    waiting = [each for each in entries if each.is_pending]
    none = f"nothing that waits begins with {prefix[:40]!r}; `fleet inbox` lists it. Nothing was changed"
    if entries and (last := entries[-1].decision) is not None:
        none = f"{entries[-1].item.id} was decided: {last.outcome} on {last.at[:10]}. Nothing was changed"
    names.only({each.item.id: each.item.title for each in waiting}, prefix, none)
    return waiting[0]


@contextmanager
def _locked_entry(workspace: Workspace, prefix: str) -> Iterator[tuple[Entry, _Handler | None]]:
    """Hold the lock of decisions, so that two answers do not act twice, and yield an item with its handler."""
    with workspace.lock("decide"):
        Runs(workspace).recover()
        entry = _find(workspace, prefix)
        yield entry, _handler(entry.item)


def approve(workspace: Workspace, agent: str, prefix: str, answer: str = "") -> Decision:
    """Apply what an item proposes, if it is still true and still new.

    ``answer``: first or second, the one that holds of two lessons that contradict each other.

    Raises:
        NoError: there is no such item; or it is not true, or not new any more, and waits no longer.
        UsageError: an answer is missing.
    """
    with _locked_entry(workspace, prefix) as (entry, handler):
        id_, box = entry.item.id, Inbox(workspace, entry.agent)
        if handler is None:
            raise NoError(f"nothing here knows what to do with {entry.item.kind} items; {id_} waits on")
        if why := handler.check(workspace, entry):
            raise NoError(f"{id_} waits no longer: {why}{_close(workspace, entry, agent, why)}")
        summary, run = handler.approve(workspace, entry, answer)
        decision = Decision(id=id_, outcome="approved", by=agent, did=summary, run=run)
        box.decide([decision])
        return decision


def reject(workspace: Workspace, agent: str, prefix: str, why: str = "") -> Decision:
    """Decline an item: it does not come back, neither as it is nor in other words.

    Raises:
        NoError: there is no such item.
    """
    with _locked_entry(workspace, prefix) as (entry, handler):
        summary, run = "nothing was changed but the inbox", ""
        if handler is not None and handler.reject is not None and not handler.check(workspace, entry):
            summary, run = handler.reject(workspace, entry)
        if not run and entry.item.kind != _BULK:
            with Runs(workspace).recording(entry.agent, "decide") as draft:
                draft.summary = f"rejected {entry.item.id}"
                draft.fields = [Field(entry.item.id, _FIELD, None, inbox.REJECTED)]
            run = draft.run
        decision = Decision(id=entry.item.id, outcome="rejected", by=agent, why=why, did=summary, run=run)
        Inbox(workspace, entry.agent).decide([decision])
        return decision


def undo(workspace: Workspace, decision: Decision) -> str:
    """Take a decision back; return what that did. The item waits again."""
    if decision.run:
        undone = undoing.undo(workspace, decision.run)
        return "; ".join((*undone.did, *undone.left)) or "taken back"
    for entry in Inboxes(workspace).entries():
        if entry.item.id == decision.id:
            if entry.item.kind == _BULK and decision.outcome == inbox.APPROVED:
                return "nothing was taken back: what was taken in counts on. `fleet block` leaves a writer out"
            if entry.item.kind == _BULK:
                reviewing.answer(workspace, entry.agent, _body(entry, "pair"), reviewing.ASK, _COMMAND)
            Inbox(workspace, entry.agent).decide([Decision(id=decision.id, outcome="reopened")])
    return f"{decision.id} waits again"


# --- kinds ----------------------------------------------------------------------------------------------------------


def _handler(item: Item) -> _Handler | None:
    what = item.body.get("what")
    return HANDLERS.get(f"{item.kind}:{what}") if what else HANDLERS.get(item.kind)


def _body(entry: Entry, name: str) -> str:
    value = entry.item.body.get(name)
    return value if isinstance(value, str) else ""


def _recorded(workspace: Workspace, act: Callable[[], _T], *kinds: str) -> tuple[_T, str]:
    """Return what an act returns, and the id of the run of one of these kinds that it left, "" for none."""
    known = len(workspace.runs)
    result = act()
    return result, next((run for run in reversed(workspace.runs[known:]) if run.split("-")[0] in kinds), "")


def _run(
    workspace: Workspace, entry: Entry, summary: str, edits: list[Edit], outcome: str = inbox.APPROVED
) -> tuple[str, str]:
    """Apply edits of files as one run. After a crash before the inbox has the decision, its check closes the item."""
    draft = Draft(summary=summary, edits=edits, fields=[Field(entry.item.id, _FIELD, None, outcome)])
    run = Runs(workspace).fresh("decide", entry.agent, draft)
    if stale := Runs(workspace).apply(run):
        raise NoError(f"{', '.join(stale)} was changed just now; nothing was done. Look at it again")
    return summary, run.id


def _skill_draft(workspace: Workspace, entry: Entry) -> bytes:
    """Return the draft as it is now, a person's changes included; b"" where it is gone, or no draft of the agent's.

    An inbox that came along, in a repository perhaps, must not have another file read.
    """
    parts = PurePosixPath(_draft_path(workspace, entry)).parts
    above = PurePosixPath(workspace.own_path(entry.agent, "skills")).parts
    if parts[: len(above)] != above or ".." in parts or parts[-1] != _SKILL:
        return b""
    return workspace.files.read(workspace.root.joinpath(*parts))


def _draft_path(workspace: Workspace, entry: Entry) -> str:
    return workspace.current_path(_body(entry, "draft"))


def _skill_check(workspace: Workspace, entry: Entry) -> str:
    draft, target = _skill_draft(workspace, entry), _body(entry, "target")
    if PurePosixPath(target).name != _SKILL:
        return f"{target[:80]!r} is no place for a skill"
    if not draft.strip():
        return f"its draft {_draft_path(workspace, entry)} is gone, or taken in already"
    now, before = workspace.files.read(workspace.root / target), _body(entry, "before")
    if now == draft:
        return f"{target} reads so already"
    if now and not before:
        return f"{target} is there by now, and a skill is never overwritten"
    if before and screened(now.decode("utf-8", "replace")) != before:
        return f"{target} was changed since this was proposed"
    return ""


def _skill_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    page, draft = Runs(workspace).page(_body(entry, "target")), _skill_draft(workspace, entry)
    # A draft that stayed would keep the next addition out.
    edits = [page.to(_skill_page(page.before or b"", draft)), Edit(_draft_path(workspace, entry), draft, None)]
    return _run(workspace, entry, f"wrote {page.path}", edits)


def _skill_page(now: bytes, draft: bytes) -> bytes:
    """Return a skill as a yes writes it: lines that stand there, byte for byte, and what its draft adds, screened."""
    lines = (now + b"\n" * bool(now and not now.endswith(b"\n"))).splitlines(keepends=True)
    others, page = draft.splitlines(keepends=True), b""
    for tag, _, _, start, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        part = b"".join(others[start:end])
        page += part if tag == "equal" else screen(part.decode("utf-8", "replace")).text.encode()
    return page


def _skill_reject(workspace: Workspace, entry: Entry) -> tuple[str, str]:
    path = _draft_path(workspace, entry)
    draft = _skill_draft(workspace, entry)
    if not draft:
        return "its draft was gone already", ""
    return _run(workspace, entry, f"removed the draft {path}", [Edit(path, draft, None)], inbox.REJECTED)


def _skill_diff(workspace: Workspace, entry: Entry) -> str:
    target, draft = _body(entry, "target"), _skill_draft(workspace, entry)
    if not draft.strip():
        return ""
    now = workspace.files.read(workspace.root / target)
    pages = (now, _skill_page(now, draft))
    before, after = (each.decode("utf-8", "replace").splitlines() for each in pages)
    rows = unified_diff(before, after, target if now else "/dev/null", target, lineterm="")
    return "\n".join(list(rows)[:_DIFF_LINES_MAX])


def _lesson_check(workspace: Workspace, entry: Entry) -> str:
    lesson = next(iter(workspace.patterns.some([_body(entry, "lesson")])), None)
    if lesson is None or not lesson.is_present:
        return f"{_body(entry, 'lesson')} is retired, or not known here"
    return ""


def _promotion_check(workspace: Workspace, entry: Entry) -> str:
    memory = AgentMemory(workspace, entry.agent).standing()
    if _body(entry, "lesson") in memory.lessons:
        return f"{_body(entry, 'lesson')} stands in the memory already"
    return _lesson_check(workspace, entry)


def _promotion_diff(workspace: Workspace, entry: Entry) -> str:
    lessons = reflecting.records_of(workspace, entry.agent, Weighing(workspace).last_clusters())
    if (lesson := lessons.lesson(_body(entry, "lesson"))) is None:
        return entry.item.diff
    weighed = merged(lessons.wordings(lesson.id) or [lesson], lesson)  # all wordings are evidence for its own words
    counts = {"totals": weighed.totals, "parts": weighed.parts, "loggers": weighed.loggers}
    return f"+ {Renderer().lesson(msgspec.structs.replace(lesson, **counts))}"


def _promotion_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    lesson = _body(entry, "lesson")
    (promoted, _), run = _recorded(workspace, lambda: reflecting.promote(workspace, entry.agent, lesson), "promote")
    return f"{promoted.id} is in {entry.agent}'s memory", run


def _promotion_reject(workspace: Workspace, entry: Entry) -> tuple[str, str]:
    lesson = _body(entry, "lesson")
    (demoted, _), run = _recorded(workspace, lambda: reflecting.demote(workspace, entry.agent, lesson), "demote")
    return f"{demoted} stays out of {entry.agent}'s memory", run


def _row_check(workspace: Workspace, entry: Entry) -> str:
    keys = {each.key for each in consolidating.waiting(workspace)}
    return "" if entry.item.key in keys else _ROW_GONE


def _row_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    run = consolidating.decide(workspace, entry.agent, entry.item.body, is_yes=True)
    return f"{_body(entry, 'item')} is in AGENTS.md", run


def _row_reject(workspace: Workspace, entry: Entry) -> tuple[str, str]:
    run = consolidating.decide(workspace, entry.agent, entry.item.body, is_yes=False)
    return f"{_body(entry, 'item')} is suggested no more", run


def _guard_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    lesson, decision = _body(entry, "lesson"), _body(entry, "decision") or "ask"
    guard, run = _recorded(workspace, lambda: starting.Guards(workspace).decide(lesson, decision), "guard")
    return f"{guard.id} guards {guard.trigger}: {guard.decision}", run


def _pair_check(workspace: Workspace, entry: Entry) -> str:
    ids = set(_body(entry, "pair").split(":"))
    if any({each.one.id, each.other.id} == ids for each in reviewing.undecided_pairs(workspace)):
        return ""
    return "it is no pair any more: it was decided, or one of the lessons changed"


def _answering(answer: str) -> Callable[..., tuple[str, str]]:
    """Return a handler that gives this answer to a pair, or to a question about what is left out here."""

    def answered(workspace: Workspace, entry: Entry, _answer: str = "") -> tuple[str, str]:
        act = partial(reviewing.answer, workspace, entry.agent, _body(entry, "pair"), answer, _COMMAND)
        (_, summary), run = _recorded(workspace, act, "merge", "retire", "decide")
        return summary, run

    return answered


def _contradiction_approve(workspace: Workspace, entry: Entry, answer: str) -> tuple[str, str]:
    if answer not in (reviewing.FIRST, reviewing.SECOND):
        raise UsageError(
            f"{entry.item.id} asks which of the two holds: --answer first or --answer second; to reject it says that "
            "both do, each in its own context. Nothing was changed"
        )
    ids = _body(entry, "pair").split(":")
    pair = next(each for each in reviewing.undecided_pairs(workspace) if {each.one.id, each.other.id} == set(ids))
    is_first = (answer == reviewing.FIRST) == (pair.one.id == ids[0])  # as it is shown, whatever the order there
    return _answering(reviewing.FIRST if is_first else reviewing.SECOND)(workspace, entry)


def _bulk_check(workspace: Workspace, entry: Entry) -> str:
    is_there = any(each.name == _body(entry, "pair") for each in reviewing.questions(workspace))
    return "" if is_there else "nothing of it waits any more"


def _candidate_check(workspace: Workspace, entry: Entry) -> str:
    pattern = _body(entry, "pattern")
    lessons = list(workspace.patterns.candidates(pattern).items())
    for close in near(pattern, lessons, len(lessons) or 1):
        if normalise(close.text) == normalise(pattern) or (close.score >= ALIKE_MIN and not close.differs):
            return f"it is known by now, as {close.id}: {close.text}"
    return ""


def _candidate_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    texts = {name: _body(entry, name) for name in ("wrong", "right", "pattern", "category", "trigger")}
    source, tags = _body(entry, "source") or "a reflection, approved by a person", entry.item.body.get("tags", [])
    tags = tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()
    correction = Correction(**texts, source=source, tags=tags)
    logged, run = _recorded(
        workspace,
        lambda: learning.correct(workspace, entry.agent, correction, session=entry.item.session),
        "correct",
    )
    return f"logged {logged.id}: {logged.text}", run


def _tidy_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    """Put a notebook in order as it is now, by a fresh plan of any size, if that is the one that was shown."""
    from fleet.app import tidying  # 6 ms that a sync, which only gathers what waits, need not spend

    fresh = tidying.tidy(workspace, entry.agent, Mode.ALWAYS, dry_run=True)
    _check_shown(workspace, entry, fresh.report.summary(), *fresh.question(entry.agent))
    tidied = tidying.tidy(workspace, entry.agent, Mode.ALWAYS, is_capped=False)
    return tidied.report.summary(), tidied.run


def _number_cut(rows: Iterable[str]) -> int:
    """Return the number of lines that a diff was cut by, as its last row has it; 0 for a whole one."""
    numbers = (re.match(r"[\d,]+", row.removeprefix(_MORE)) for row in rows if row.startswith(_MORE))
    return sum(int(match[0].replace(",", "")) for match in numbers if match)


def _check_shown(workspace: Workspace, entry: Entry, summary: str, title: str, rows: Sequence[str]) -> None:
    """Let a plan wait anew, as it is now, where it has changes that nobody was shown; raise ``NoError`` then."""
    diff, box = screened("\n".join(rows)), Inbox(workspace, entry.agent)
    # What stands in brackets behind a change is its reason, as that a note is 90 days old: it differs each day.
    shown, now = ({re.sub(r" \([^()]*\)$", "", row) for row in each.splitlines()} for each in (entry.item.diff, diff))
    is_seen = {row for row in now if not row.startswith(_MORE)} <= shown
    if is_seen and _number_cut(now) <= _number_cut(shown):
        return
    box.decide([Decision(id=entry.item.id, outcome="elsewhere", why="there is more to change by now than was shown")])
    evidence = (summary, *entry.item.evidence[-1:])
    [put] = box.put([msgspec.structs.replace(entry.item, title=title, evidence=evidence, diff=diff)])
    raise NoError(
        f"nothing was changed: there is more to change by now than was shown. {put.id} waits anew: fleet inbox"
    )


def _note_check(workspace: Workspace, entry: Entry) -> str:
    path, added, _ = _with_note(workspace, entry)
    return "" if added else f"{path} says so already"


def _note_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    path, added, edits = _with_note(workspace, entry)
    return _run(workspace, entry, f"{path} has it now: {'; '.join(added)}", edits)


def _with_note(workspace: Workspace, entry: Entry) -> tuple[str, Sequence[str], list[Edit]]:
    """Return the file that a note goes into, the lines that are new there, and the edits."""
    if entry.item.kind == "persona":
        return _with_persona(workspace, entry)
    from fleet.app.writing import archive_edits  # 8 ms, as above

    peer, note, day = _body(entry, "peer"), screen(_body(entry, "note")).text, workspace.wall()[:10]
    path = workspace.own_path(entry.agent, memory_md.USER_MODEL if peer else memory_md.FILE_NAME)
    page = Runs(workspace).page(path)
    if peer:
        after, rows = memory_md.UserModel(page.before or b"").with_observed({peer: (note,)}, day)
        return path, rows, [page.to(after)]
    noted = memory_md.Notes(page.before or b"").with_more([note], day, entry.agent)
    return path, noted.added, [page.to(noted.page), *archive_edits(workspace, entry.agent, noted.archived)]


def _with_persona(workspace: Workspace, entry: Entry) -> tuple[str, Sequence[str], list[Edit]]:
    path, note = workspace.own_path(entry.agent, USER_FILE), readable(_body(entry, "note") or entry.item.title)
    page = Runs(workspace).page(path)
    lines = enumerate(page.text.splitlines())
    rows = [(str(index), row.lstrip("-*0123456789: ")) for index, row in lines if row.strip()]
    if Near.same(note, rows, ALIKE_MIN) is not None:
        return path, (), []
    row, gap = f"- {workspace.wall()[:10]}: {note}", "" if not page.text or page.text.endswith("\n") else "\n"
    return path, [row], [page.to(f"{page.text}{gap}{row}\n")]


def _consolidate_approve(workspace: Workspace, entry: Entry, _answer: str) -> tuple[str, str]:
    """Consolidate the daily logs as they are now, by a fresh plan of any size, if that is the one that was shown."""
    fresh = consolidating.consolidate(workspace, entry.agent, force=True, dry_run=True)
    _check_shown(workspace, entry, fresh.summary(), *fresh.question())
    consolidated = consolidating.consolidate(workspace, entry.agent, force=True)
    return consolidated.summary(), consolidated.run


HANDLERS: dict[str, _Handler] = {
    "skill": _Handler(_skill_check, _skill_approve, _skill_reject, _skill_diff),
    "persona": _Handler(_note_check, _note_approve),
    "promotion": _Handler(_promotion_check, _promotion_approve, _promotion_reject, _promotion_diff),
    "guard": _Handler(_lesson_check, _guard_approve),
    _BULK: _Handler(_bulk_check, _answering(reviewing.TAKE), _answering(reviewing.LEAVE)),
    "merge": _Handler(_pair_check, _answering(reviewing.SAME), _answering(reviewing.DIFFERENT)),
    "contradiction": _Handler(_pair_check, _contradiction_approve, _answering(reviewing.BOTH)),
    "candidate": _Handler(_candidate_check, _candidate_approve),
    f"promotion:{consolidating.WHAT}": _Handler(_row_check, _row_approve, _row_reject),
    "plan:consolidate": _Handler(lambda *_: "", _consolidate_approve),
    "plan:tidy": _Handler(lambda *_: "", _tidy_approve),
    "candidate:note": _Handler(_note_check, _note_approve),
    "candidate:person": _Handler(_note_check, _note_approve),
}
"""Handler of each kind of item, or kind and ``what``."""
