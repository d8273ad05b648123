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

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from msgspec.structs import replace

from fleet.app import consolidating, learning, reflecting, reviewing, starting, undoing
from fleet.app.reviewing import Pair
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog
from fleet.model import names
from fleet.model.errors import DiskError, NoError, UsageError
from fleet.model.names import LABELS, LOGGED
from fleet.model.pattern import Pattern, merged
from fleet.recall.wording import Renderer
from fleet.reflect import inbox, memory_md, promotion
from fleet.reflect.clusters import Weighing
from fleet.reflect.housekeeping import Mode
from fleet.reflect.inbox import KINDS, PAIRS, SHOWN_MAX, Decision, Entry, Inbox, Item
from fleet.reflect.promotion import AgentMemory
from fleet.share.notices import Notice, Notices
from fleet.store.lines import screened
from fleet.store.runs import Draft, Edit, Field, Runs
from fleet.store.workspace import Workspace
from fleet.text.screening import one_line, readable, screen
from fleet.text.similarity import ALIKE_MIN, Near

USER_FILE = "USER.md"
_SKILL = "SKILL.md"
_Outcome = Literal["approved", "rejected", "expired", "elsewhere"]
_COMMAND = "fleet inbox"
_BULK = "bulk"
"""Kind of the items about what is left out here: the one kind whose answers leave no run."""
_FIELD = "inbox"
"""Name of the field of a run that holds the decision on an item."""
_GONE = "it waits no more where it arose: it was decided there, or is not true any more"


class Listing(NamedTuple):
    """List of items: the best-evidenced ones, the number of all pending ones, and the day of the oldest.

    ``expired``: items that were dropped because nobody decided in time, and that no list has shown since.
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
    boxes = Inbox(workspace, agent)
    waiting = boxes.waiting(kind)
    shown = tuple(_as_of_now(workspace, waiting[:count] if count else waiting))
    to_state = sum(
        len(CountedLog(workspace, each).to_state()) for each in ([agent] if agent else workspace.agents_here())
    )
    return Listing(shown, len(waiting), boxes.count().since, tuple(Inbox(workspace).dropped()), to_state)


def _as_of_now(workspace: Workspace, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries. Those of lessons that wait for a memory get their present evidence, which may have grown."""
    agents = workspace.agents_here()
    pending = {(agent, each.id): each for agent in agents for each in AgentMemory(workspace, agent).waiting()}
    for entry in entries:
        waits = pending.get((entry.agent, entry.item.key)) if entry.item.kind == "promotion" else None
        evidence = (waits.evidence, waits.why) if waits is not None else entry.item.evidence
        yield entry._replace(item=replace(entry.item, evidence=evidence))


def diff_of(workspace: Workspace, entry: Entry) -> str:
    """Return the change that a yes makes, as of now."""
    return _handler(workspace, entry).diff()


def refresh(workspace: Workspace, *, dry_run: bool = False) -> tuple[int, list[Entry]]:
    """Mirror the pending decisions of other places, and drop overdue items; a dry run only counts the new ones.

    Returns the number of new items, and those that were dropped.
    """
    agents = workspace.agents_here()
    if not agents:
        return 0, []
    if not dry_run:
        Runs(workspace).recover()
    owner = workspace.default_agent() or agents[0]
    entries = Inbox(workspace).waiting()

    def waiting(kinds: Collection[str], what: object = None) -> list[Entry]:
        return [each for each in entries if each.item.kind in kinds and each.item.body.get("what") == what]

    with workspace.snapshot():
        table = [
            (owner, [_pair_item(each) for each in reviewing.undecided_pairs(workspace)], waiting(PAIRS)),
            (owner, [_left_out_item(each) for each in reviewing.questions(workspace)], waiting([_BULK])),
            (owner, consolidating.waiting(workspace), waiting(["promotion"], consolidating.WHAT)),
        ]
        for agent in agents:
            pending = AgentMemory(workspace, agent).standing().waiting
            lessons = workspace.patterns.lessons_of(each.id for each in pending)
            theirs = [each for each in waiting(["promotion"]) if each.agent == agent]
            table.append((agent, [_promotion_item(each, lessons.get(each.id)) for each in pending], theirs))
    new = sum(_mirror(workspace, agent, items, known, dry_run=dry_run) for agent, items, known in table)
    return new, [] if dry_run else list(_dropped(workspace))


def _dropped(workspace: Workspace) -> Iterator[Entry]:
    """Drop items that were shown and are overdue, except drafts that a person edited; yield the dropped ones."""
    if not Inbox(workspace).overdue():  # else each list would wait for the lock, which a long answer holds for minutes
        return
    with workspace.lock("decide"):  # nobody answers meanwhile
        for entry in Inbox(workspace).overdue():
            handler = _handler(workspace, entry)
            if not (isinstance(handler, _Skill) and handler.has_own_words()):
                closed = _close(handler, "expired", f"its last day was {entry.last_day()}")
                yield entry._replace(decision=closed)


def _close(handler: "_Handler", outcome: _Outcome, why: str, by: str = "") -> Decision:
    """Close an item that nobody answered, with its draft unless a person edited it; return the decision."""
    is_draft = isinstance(handler, _Skill) and not handler.has_own_words()
    # A draft that stayed would keep the next one out.
    return handler.decide(outcome, handler.reject() if is_draft else "", by, why)


def refresh_and_notify(workspace: Workspace) -> list[Entry]:
    """Refresh the inbox, and notify subscribers of new items; return the dropped ones."""
    before = Inbox(workspace).count().number
    _, dropped = refresh(workspace)
    now = Inbox(workspace).count()
    if now.number > before:
        data = {"number": now.number, "since": now.since, "kinds": now.kinds}
        Notices(workspace).send(Notice("inbox.waiting", f"{now.number} wait for you", now.summary(), data))
    return dropped


def _mirror(workspace: Workspace, agent: str, items: list[Item], entries: list[Entry], *, dry_run: bool) -> int:
    """Add the ``items`` that have no entry yet, and close the ``entries`` that wait no more where they arose.

    Return the number of new ones; a dry run writes nothing.
    """
    owners, open_ = {agent, *(each.agent for each in entries)}, {each.item.id for each in entries}
    ids = [{Item.id_of(owner, each.kind, each.key) for owner in owners} for each in items]
    new = [each for each, its in zip(items, ids, strict=True) if not its & open_]
    put = Inbox(workspace, agent).put(new, dry_run=dry_run) if new else []
    expected = set[str]().union(*ids)
    for entry in (each for each in entries if each.item.id not in expected and not dry_run):
        Inbox(workspace, entry.agent).decide([Decision(id=entry.item.id, outcome="elsewhere", why=_GONE)])
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
    # The key has lessons and values: the same writer may later change other lessons, or these to other words.
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
    entries = [each for each in Inbox(workspace).entries() if each.item.id.startswith(id_prefix)]
    waiting = [each for each in entries if each.is_pending]
    none = f"nothing that waits begins with {prefix[:40]!r}; `fleet inbox` lists it. Nothing was changed"
    if entries and (last := entries[-1].decision) is not None:
        none = f"{entries[-1].item.id} was decided: {last.outcome} on {last.at[:10]}. Nothing was changed"
    names.only({each.item.id: each.item.title for each in waiting}, prefix, none)
    return waiting[0]


@contextmanager
def _locked(workspace: Workspace, prefix: str, answer: str = "") -> Iterator["_Handler"]:
    """Hold the lock of decisions, so that two answers do not act twice, and yield an item's handler."""
    with workspace.lock("decide"):
        Runs(workspace).recover()
        yield _handler(workspace, _find(workspace, prefix), answer)


def approve(workspace: Workspace, agent: str, prefix: str, answer: str = "") -> Decision:
    """Apply what an item proposes, if it is still true and still new.

    ``answer``: for a contradiction, which of the two lessons holds: first or second.

    Raises:
        NoError: there is no such item; or it is no longer true, or no longer new, and was closed.
        UsageError: an answer is missing.
    """
    with _locked(workspace, prefix, answer) as handler:
        if why := handler.check():
            closed = _close(handler, "elsewhere", why, agent)
            undo = f"; {closed.did}, and `fleet undo {closed.run}` brings it back"
            raise NoError(f"{closed.id} waits no longer: {why}{undo if closed.run else '. Nothing was changed'}")
        return handler.decide("approved", handler.approve(), agent)


def reject(workspace: Workspace, agent: str, prefix: str, why: str = "") -> Decision:
    """Decline an item: it does not come back, as it is or in other words. Raise ``NoError`` where there is none."""
    with _locked(workspace, prefix) as handler:
        item = handler.entry.item
        summary = _Handler.reject(handler) if handler.check() else handler.reject()
        if not handler.run_id and item.kind != _BULK:
            with Runs(workspace).recording(handler.agent, "decide") as draft:
                draft.summary = f"rejected {item.id}"
                draft.fields = [Field(item.id, _FIELD, None, inbox.REJECTED)]
        return handler.decide("rejected", summary, agent, why)


def undo(workspace: Workspace, decision: Decision) -> str:
    """Take a decision back; return what that did. The item waits again."""
    if decision.run:
        undone = undoing.undo(workspace, decision.run)
        return "; ".join((*undone.did, *undone.left)) or "taken back"
    entry = next(each for each in Inbox(workspace).entries() if each.item.id == decision.id)
    if entry.item.kind == _BULK:
        if decision.outcome == inbox.APPROVED:
            return "nothing was taken back: what was taken in counts on. `fleet block` leaves a writer out"
        _Bulk(workspace, entry).answered(reviewing.ASK)
    Inbox(workspace, entry.agent).decide([Decision(id=decision.id, outcome="reopened")])
    return f"{decision.id} waits again"


# --- kinds ----------------------------------------------------------------------------------------------------------


class _Handler:
    """Handler of an item of an unknown kind, and base class of the other handlers."""

    def __init__(self, workspace: Workspace, entry: Entry, answer: str = "") -> None:
        self.workspace, self.entry, self.agent, self.answer = workspace, entry, entry.agent, answer
        self._known = len(workspace.runs)

    @property
    def run_id(self) -> str:
        """Id of the last run that was recorded since this handler was made; "" for none."""
        return next(reversed(self.workspace.runs[self._known :]), "")

    def check(self) -> str:
        """Return why the item is no longer true, or no longer new; "" where it is both."""
        return ""

    def approve(self) -> str:
        """Apply the item; return a summary."""
        item = self.entry.item
        raise NoError(f"nothing here knows what to do with {item.kind} items; {item.id} waits on")

    def reject(self) -> str:
        """Apply the effect that a no has outside the inbox; return a summary."""
        return "nothing was changed but the inbox"

    def diff(self) -> str:
        """Return the change that a yes makes, as of now."""
        return self.entry.item.diff

    def text(self, name: str) -> str:
        """Return a text of the item's body; "" for none."""
        value = self.entry.item.body.get(name)
        return value if isinstance(value, str) else ""

    def decide(self, outcome: _Outcome, summary: str, by: str, why: str = "") -> Decision:
        """Append a decision on the item, with the run that it left, durable before this returns; return it."""
        id_ = self.entry.item.id
        decision = Decision(id=id_, outcome=outcome, by=by, why=why, did=summary, run=self.run_id)
        Inbox(self.workspace, self.agent).decide([decision])
        return decision

    def run(self, summary: str, edits: list[Edit], outcome: str = inbox.APPROVED) -> str:
        """Apply edits of files as one run. If a crash loses the decision, ``check`` finds them and closes the item."""
        draft = Draft(summary=summary, edits=edits, fields=[Field(self.entry.item.id, _FIELD, None, outcome)])
        run = Runs(self.workspace).fresh("decide", self.agent, draft)
        if stale := Runs(self.workspace).apply(run):
            raise NoError(f"{', '.join(stale)} was changed just now; nothing was done. Look at it again")
        return summary

    def check_asked(self, plan: Item) -> None:
        """Raise ``NoError`` if a plan has a change that the person was not shown; the plan then waits as a new item."""
        item, asked = self.entry.item, self.entry.item.body.get("changes")
        if {*plan.body["changes"]} <= {str(each) for each in (asked if isinstance(asked, list) else ())}:
            return
        why = "the plan has changed since it was shown"
        self.decide("elsewhere", "", "", why)
        anew = replace(plan, key=item.key, evidence=(*plan.evidence, *item.evidence[-1:]))
        [put] = Inbox(self.workspace, self.agent).put([anew])
        raise NoError(f"nothing was changed: {why}. {put.id} waits anew: fleet inbox")


class _Skill(_Handler):
    @property
    def path(self) -> str:
        return self.workspace.current_path(self.text("draft"))

    def draft(self) -> bytes:
        """Return the draft as it is now, with a person's changes; b"" if it is gone, or no draft of this agent.

        An inbox may have come with a repository: its paths must not make fleet read any other file.
        """
        parts = PurePosixPath(self.path).parts
        above = PurePosixPath(self.workspace.own_path(self.agent, "skills")).parts
        if parts[: len(above)] != above or ".." in parts or parts[-1] != _SKILL:
            return b""
        return self.workspace.files.read(self.workspace.root.joinpath(*parts))

    def has_own_words(self) -> bool:
        """Return whether the draft is there and no longer reads as its run wrote it: a person's words are kept."""
        known: list[bytes | None] = [b""]
        with suppress(NoError):
            known += [edit.after for edit in Runs(self.workspace).find(self.entry.item.run).edits]
        return self.draft() not in known

    def check(self) -> str:
        draft, target, before = self.draft(), self.text("target"), self.text("before")
        if PurePosixPath(target).name != _SKILL:
            return f"{target[:80]!r} is no place for a skill"
        if not draft.strip():
            return f"its draft {self.path} is gone, or taken in already"
        now = self.workspace.files.read(self.workspace.root / target)
        if now == draft:
            return f"{target} reads so already"
        if now and not before:
            return f"{target} is there by now, and a skill is never overwritten"
        if before and screened(now.decode("utf-8", "replace")) != before:
            return f"{target} was changed since this was proposed"
        return ""

    def approve(self) -> str:
        page, draft = Runs(self.workspace).page(self.text("target")), self.draft()
        # A draft that stayed would keep the next addition out.
        edits = [page.to(_skill_page(page.before or b"", draft)), Edit(self.path, draft, None)]
        return self.run(f"wrote {page.path}", edits)

    def reject(self) -> str:
        if not (draft := self.draft()):
            return "its draft was gone already"
        return self.run(f"removed the draft {self.path}", [Edit(self.path, draft, None)], inbox.REJECTED)

    def diff(self) -> str:
        target, draft = self.text("target"), self.draft()
        if not draft.strip():
            return ""
        if why := self.check():
            return f"a yes changes nothing: {why}"
        now = self.workspace.files.read(self.workspace.root / target)
        return Edit(target, now, _skill_page(now, draft)).diff


def _skill_page(now: bytes, draft: bytes) -> bytes:
    """Return a skill as a yes writes it: its present lines, byte for byte, and the draft's other lines, screened."""
    lines = (now + b"\n" * bool(now and not now.endswith(b"\n"))).splitlines(keepends=True)
    others, page = draft.splitlines(keepends=True), b""
    for tag, _, _, start, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        part = b"".join(others[start:end])
        page += part if tag == "equal" else screen(part.decode("utf-8", "replace")).text.encode()
    return page


class _OfLesson(_Handler):
    @property
    def lesson(self) -> str:
        return self.text("lesson")

    def check(self) -> str:
        lesson = next(iter(self.workspace.patterns.some([self.lesson])), None)
        is_known = lesson is not None and lesson.is_present
        return "" if is_known else f"{self.lesson} is retired, or not known here"


class _Promotion(_OfLesson):
    def check(self) -> str:
        if self.lesson in AgentMemory(self.workspace, self.agent).standing().lessons:
            return f"{self.lesson} stands in the memory already"
        return super().check()

    def approve(self) -> str:
        promoted, _ = reflecting.promote(self.workspace, self.agent, self.lesson)
        return f"{promoted.id} is in {self.agent}'s memory"

    def reject(self) -> str:
        demoted, _ = reflecting.demote(self.workspace, self.agent, self.lesson)
        return f"{demoted} stays out of {self.agent}'s memory"

    def diff(self) -> str:
        lessons = reflecting.records_of(self.workspace, self.agent, Weighing(self.workspace).last_clusters())
        if (lesson := lessons.lesson(self.lesson)) is None:
            return super().diff()
        weighed = merged(lessons.wordings(lesson.id) or [lesson], lesson)  # all wordings are evidence for its own words
        counts = {"totals": weighed.totals, "parts": weighed.parts, "loggers": weighed.loggers}
        return f"+ {Renderer().lesson(replace(lesson, **counts))}"


class _Guard(_OfLesson):
    def approve(self) -> str:
        guard = starting.Guards(self.workspace).decide(self.lesson, self.text("decision") or "ask")
        return f"{guard.id} guards {guard.trigger}: {guard.decision}"


class _Row(_Handler):
    def check(self) -> str:
        is_there = any(each.key == self.entry.item.key for each in consolidating.waiting(self.workspace))
        return "" if is_there else "it stands no more under Ready to Promote, or AGENTS.md says so by now"

    def approve(self) -> str:
        consolidating.decide(self.workspace, self.agent, self.entry.item.body, is_yes=True)
        return f"{self.text('item')} is in AGENTS.md"

    def reject(self) -> str:
        consolidating.decide(self.workspace, self.agent, self.entry.item.body, is_yes=False)
        return f"{self.text('item')} is suggested no more"


class _Merge(_Handler):
    yes, no = reviewing.SAME, reviewing.DIFFERENT

    def check(self) -> str:
        ids = set(self.text("pair").split(":"))
        if any({each.one.id, each.other.id} == ids for each in reviewing.undecided_pairs(self.workspace)):
            return ""
        return "it is no pair any more: it was decided, or one of the lessons changed"

    def approve(self) -> str:
        return self.answered(self.yes)

    def reject(self) -> str:
        return self.answered(self.no)

    def answered(self, answer: str) -> str:
        """Give this answer to the pair, or to the question about what is left out here; return the effect."""
        return reviewing.answer(self.workspace, self.agent, self.text("pair"), answer, _COMMAND)[1]


class _Contradiction(_Merge):
    no = reviewing.BOTH

    def approve(self) -> str:
        if self.answer not in (reviewing.FIRST, reviewing.SECOND):
            raise UsageError(
                f"{self.entry.item.id} asks which of the two holds: --answer first or --answer second; to reject it "
                "says that both do, each in its own context. Nothing was changed"
            )
        ids, pairs = self.text("pair").split(":"), reviewing.undecided_pairs(self.workspace)
        pair = next(each for each in pairs if {each.one.id, each.other.id} == set(ids))
        is_as_shown = pair.one.id == ids[0]  # the pair may have the two in another order than the item
        is_first = (self.answer == reviewing.FIRST) == is_as_shown
        return self.answered(reviewing.FIRST if is_first else reviewing.SECOND)


class _Bulk(_Merge):
    yes, no = reviewing.TAKE, reviewing.LEAVE

    def check(self) -> str:
        is_there = any(each.name == self.text("pair") for each in reviewing.questions(self.workspace))
        return "" if is_there else "nothing of it waits any more"


class _Candidate(_Handler):
    def check(self) -> str:
        lessons = self.workspace.patterns.candidates(self.text("pattern"))
        known = Near.same(self.text("pattern"), list(lessons.items()), ALIKE_MIN)
        return f"it is known by now, as {known.id}: {known.text}" if known is not None else ""

    def approve(self) -> str:
        texts = {name: self.text(name) for name in ("wrong", "right", "pattern", *LOGGED)}
        source, tags = self.text("source") or "a reflection, approved by a person", self.entry.item.body.get("tags", [])
        tags = tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()
        correction = Correction(**texts, source=source, tags=tags)
        logged = learning.correct(self.workspace, self.agent, correction, session=self.entry.item.session)
        return f"logged {logged.id}: {logged.text}"


class _Note(_Handler):
    def check(self) -> str:
        path, added, _ = self.edited()
        return "" if added else f"{path} says so already"

    def approve(self) -> str:
        path, added, edits = self.edited()
        return self.run(f"{path} has it now: {'; '.join(added)}", edits)

    def edited(self) -> tuple[str, Sequence[str], list[Edit]]:
        """Return the file that the note goes into, the lines that are new there, and the edits."""
        from fleet.app.writing import archive_edits  # 8 ms that a sync, which only gathers what waits, need not spend

        peer, note, day = self.text("peer"), screen(self.text("note")).text, self.workspace.wall()[:10]
        path = self.workspace.own_path(self.agent, memory_md.USER_MODEL if peer else memory_md.FILE_NAME)
        page = Runs(self.workspace).page(path)
        if peer:
            after, rows = memory_md.UserModel(page.before or b"").with_observed({peer: (note,)}, day)
            return path, rows, [page.to(after)]
        noted = memory_md.Notes(page.before or b"").with_more([note], day, self.agent)
        return path, noted.added, [page.to(noted.page), *archive_edits(self.workspace, self.agent, noted.archived)]


class _Persona(_Note):
    def edited(self) -> tuple[str, Sequence[str], list[Edit]]:
        path = self.workspace.own_path(self.agent, USER_FILE)
        note = readable(self.text("note") or self.entry.item.title)
        page = Runs(self.workspace).page(path)
        lines = enumerate(page.text.splitlines())
        rows = [(str(index), row.lstrip("-*0123456789: ")) for index, row in lines if row.strip()]
        if Near.same(note, rows, ALIKE_MIN) is not None:
            return path, (), []
        row, gap = f"- {self.workspace.wall()[:10]}: {note}", "" if not page.text or page.text.endswith("\n") else "\n"
        return path, [row], [page.to(f"{page.text}{gap}{row}\n")]


class _Consolidation(_Handler):
    def approve(self) -> str:
        """Consolidate the daily logs by a fresh plan of any size, if that is the one that was shown."""
        confirm = self.check_asked
        return consolidating.consolidate(self.workspace, self.agent, force=True, confirm=confirm).summary()


class _Tidying(_Handler):
    def approve(self) -> str:
        """Put a notebook in order by a fresh plan, if that is the one that was shown."""
        from fleet.app import tidying  # 6 ms, as above

        return tidying.tidy(self.workspace, self.agent, Mode.ALWAYS, confirm=self.check_asked).report.summary()


HANDLERS: dict[str, type[_Handler]] = {
    "skill": _Skill,
    "persona": _Persona,
    "promotion": _Promotion,
    "guard": _Guard,
    "merge": _Merge,
    "contradiction": _Contradiction,
    _BULK: _Bulk,
    "candidate": _Candidate,
    "candidate:note": _Note,
    "candidate:person": _Note,
    f"promotion:{consolidating.WHAT}": _Row,
    "plan:consolidate": _Consolidation,
    "plan:tidy": _Tidying,
}
"""Handler of each kind of item, or kind and ``what``."""


def _handler(workspace: Workspace, entry: Entry, answer: str = "") -> _Handler:
    kind, what = entry.item.kind, entry.item.body.get("what")
    return HANDLERS.get(f"{kind}:{what}" if what else kind, _Handler)(workspace, entry, answer)
