"""Use cases of housekeeping: an agent's notebook is read, and put in order by a plan.

The notebook is the agent's own: its private lessons, the lessons of its corrections, and the notes that fleet wrote
into its ``memory.md``. A plan that changes too much waits in the inbox. An applied one is a run, which ``fleet undo``
takes back; each change of a lesson is a line in the private file, so that it merges across machines.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from crdt import clock
from fleet.app.writing import archive_edits
from fleet.hosts import sessions
from fleet.learn.counting import CountedLog
from fleet.model import edits, names
from fleet.model.line import Line, canonical
from fleet.model.pattern import MERGED_FROM, PRIVATE, STAGE, Pattern, fold
from fleet.reflect import housekeeping, inbox, memory_md
from fleet.reflect.clusters import Weighing
from fleet.reflect.exposure import Exposures
from fleet.reflect.housekeeping import DreamReport, Mode, Note, Plan, ReflectionReport, Stage
from fleet.reflect.inbox import Inbox
from fleet.reflect.promotion import AgentMemory
from fleet.reflect.records import Record, Records, Written
from fleet.reflect.rules import Proposal
from fleet.store.runs import UNDO, Draft, Edit, Field, Runs
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace
from fleet.text import dates
from fleet.text.markdown import Page

KIND = "tidy"
_MEMORY_GROUP = "memory"
_NOTE = re.compile(r"- (?P<day>\d{4}-\d{2}-\d{2}): (?P<text>\S.*)")
_DAY_MS = 86_400_000
_IDS_MAX = 60
_MEMORY_BYTES_MAX = 64 * 1024
_MEMORY_WORTH = 6
_RULE_WORDS_MIN = 5


class TidyResult(NamedTuple):
    """Result of a pass: its plan, the run ("" where nothing was changed), and the number of notes in the notebook.

    Attributes:
        pending: id of the inbox's item that the plan waits as; "" where it does not.
        left: why a plan that changes too much was not carried out, and where it waits, or why it does not.
    """

    plan: Plan
    run: str = ""
    pending: str = ""
    total: int = 0
    left: str = ""

    @property
    def report(self) -> ReflectionReport:
        """Report of the plan."""
        return self.plan.report

    def question(self, agent: str) -> inbox.Item:
        """Return the plan as a person is asked about it."""
        # Without the reasons of the changes, such as a note's age in days, which differs each day.
        changes = [repr((each[:-1], self.plan.texts.get(each.id))) for each in self.plan.changes]
        title = f"Tidying would change {self.plan.notes_changed:,} of {self.total:,} notes of {agent}"
        command = "fleet tidy --mode always --dry-run --json"
        return inbox.Item.of_plan(KIND, title, self.report.summary(), self.plan.diff(), changes, command)


def tidy(
    workspace: Workspace,
    agent: str,
    mode: Mode = Mode.COORDINATED,
    *,
    dry_run: bool = False,
    report: str = "",
    confirm: Callable[[inbox.Item], object] | None = None,
    is_logged: bool = True,
) -> TidyResult:
    """Put an agent's notebook in order, or only plan that.

    ``report``: the host's own housekeeping report, or a text that ends with one.
    ``confirm``: called with the plan before it is applied; without it a plan that changes too much waits in the inbox.
    ``is_logged``: append a record; False where the caller does.

    Raises:
        BusyError: another pass runs.
        DiskError: nothing was changed, or the next run finishes this one.
    """
    with workspace.lock(f"tidy-{agent}", 0.5):
        notebook = _Notebook(workspace, agent)
        dream, now_ms = DreamReport.parse(report) if report else _host_report(workspace), workspace.world.wall_ms()
        raw = _report_key(dream, report) if dream is not None else ""
        if raw in notebook.reports:
            dream = None
        if dream is not None and not dry_run:
            notebook.note_report(raw)
        dream_ms = now_ms if dream is not None else max(notebook.reports.values(), default=None)
        why = mode.skip_reason(now_ms, notebook.last_ms, notebook.new(), dream_ms)
        if why is not None:
            skipped = ReflectionReport(skipped=why, dream_report_ingested=dream)
            return TidyResult(Plan(skipped), total=len(notebook.notes))
        tidied = notebook.carry_out(confirm, dry_run=dry_run)
        dreamed = _put_host_facts(workspace, agent, dry_run=dry_run)
        report_now = msgspec.structs.replace(tidied.report, dreamed_accepted=dreamed, dream_report_ingested=dream)
        tidied = tidied._replace(plan=tidied.plan._replace(report=report_now))
        if tidied.run and is_logged:
            _record(workspace, agent, tidied)
        return tidied


# --- the notebook ---------------------------------------------------------------------------------------------------


class _Notebook:
    """Notes of an agent as they are now, with what is needed to change them."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent
        passes = [each.record for each in Records(workspace, agent).passes() if not each.undone]
        tidied = (each for each in passes if any(w.name == KIND and w.count for w in each.writers))
        self.last_ms = max((clock.ms_of(each.at) for each in tidied), default=None)
        self.reports = {each.raw: clock.ms_of(each.at) for each in passes if each.kind == KIND and each.raw}
        self.memory = workspace.files.read(AgentMemory(workspace, agent).path)
        written = _written_lines(workspace, agent, self.memory)
        self.lines = {f"memory:{_hash(match.string)}": (number, match) for number, match in written}
        self.own: dict[str, Pattern] = {}
        self.notes = [*self._lessons(), *map(self._memory_note, self.lines)]

    def new(self) -> int:
        """Return the number of notes since the last pass."""
        return sum(each.at_ms > (self.last_ms or -1) for each in self.notes)

    def note_report(self, raw: str) -> None:
        run, why = Runs(self._workspace).name("dream"), "the host's own report was read"
        record = Record(run=run, kind=KIND, outcome="skipped", why=why, raw=raw)
        Records(self._workspace, self._agent).append(record)

    def plan(self) -> Plan:
        settings, workspace = self._workspace.config.sleep, self._workspace

        def cosines(texts: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
            return Embeddings(workspace).cosines(texts, pairs) or {}

        return housekeeping.Plan.of(
            self.notes,
            workspace.world.wall_ms(),
            zone_of(workspace),
            keep_words=settings.dates == "add",
            archive_hours=settings.archive_hours,
            cosines=cosines if Embeddings(workspace).cosines((), ()) is not None else None,
            apart=Weighing(workspace).decided(),
        )

    def carry_out(self, confirm: Callable[[inbox.Item], object] | None, *, dry_run: bool) -> TidyResult:
        """Apply the plan as a run, or only make it. If the memory was edited meanwhile, the notebook is read again."""
        workspace, agent, notebook = self._workspace, self._agent, self
        tidied, draft = TidyResult(Plan(ReflectionReport())), Draft()

        def planned() -> Draft | None:
            nonlocal notebook, tidied, draft
            if workspace.files.read(AgentMemory(workspace, agent).path) != notebook.memory:
                notebook = _Notebook(workspace, agent)
            tidied = TidyResult(notebook.plan(), total=len(notebook.notes))
            if dry_run or not tidied.plan.changes:
                return None
            if confirm is not None:
                confirm(tidied.question(agent))
            elif tidied.plan.notes_changed > (most := workspace.config.sleep.changes_max(tidied.total)):
                pending, left = put_aside(workspace, agent, tidied.question(agent), most)
                tidied = tidied._replace(pending=pending, left=left)
                return None
            draft = _draft(workspace, agent, notebook, tidied.plan)
            return draft

        if run := Runs(workspace).apply_planned(KIND, agent, planned):
            _write(workspace, agent, draft.fields)
            tidied = tidied._replace(run=run)
        return tidied

    def _lessons(self) -> list[Note]:
        workspace, agent = self._workspace, self._agent
        if workspace.has_notes(agent):
            self.own = {each.id: each for each in workspace.notes(agent).records()}
        hidden = {each: known for each, known in self.own.items() if known.scope == PRIVATE}
        auto = CountedLog(workspace, agent).auto_detected()
        logged = dict.fromkeys(each.pattern for each in CountedLog(workspace, agent).occurrences())
        shared = workspace.patterns.some([each for each in logged if each not in hidden])
        accesses = Exposures(workspace.state).accesses(agent)
        now_ms = workspace.world.wall_ms()
        replicas, hot = set(workspace.current_replicas()), set(AgentMemory(workspace, agent).standing().lessons)
        waiting = {each.item.key for each in Inbox(workspace, agent).waiting()}
        notes = []
        for lesson in (*hidden.values(), *shared):
            if not lesson.is_listed:
                continue
            own, (times, last_ms) = self.own.get(lesson.id), accesses.get(lesson.id, (0, 0))
            at_ms = clock.ms_of(lesson.at)
            # The age of a note with an impossible wall time is unknown.
            may_change = 0 < at_ms < now_ms + _DAY_MS and lesson.state != edits.PUBLISHED
            notes.append(
                Note(
                    lesson.id,
                    lesson.text,
                    at_ms,
                    importance=_importance(lesson, is_auto=lesson.id in auto),
                    accesses=times + _elsewhere(lesson, agent, replicas),
                    tags=tuple(lesson.tags),
                    stage=self._stage(own, last_ms, at_ms, is_pending=lesson.id in waiting),
                    merged=_merged(own),
                    may_change=may_change and (lesson.id in hidden or lesson.loggers == {agent}),
                    may_rest=may_change and lesson.id not in hot,
                    read_ms=clock.ms_of(min(lesson.adds.values(), default=lesson.at)),
                )
            )
        return _with_sums(notes)

    def _stage(self, own: Pattern | None, last_ms: int, at_ms: int, *, is_pending: bool) -> Stage:
        stage = Stage.of(own, last_ms)
        if stage is not Stage.ACTIVE:
            return stage
        if at_ms > (self.last_ms or -1):
            return Stage.RAW
        return Stage.PENDING if is_pending else stage

    def _memory_note(self, name: str) -> Note:
        _, line = self.lines[name]
        noon = datetime.fromisoformat(line["day"]).replace(tzinfo=zone_of(self._workspace))
        at_ms = int((noon + timedelta(hours=12)).timestamp() * 1000)
        return Note(name, line["text"], at_ms, may_rest=False, group=_MEMORY_GROUP)


def _with_sums(notes: Sequence[Note]) -> list[Note]:
    """Return notes with accesses that include those of their sources; stored counts stay as they are."""
    by_id = {each.id: each for each in notes}

    def total(note: Note, visited: frozenset[str]) -> int:
        parts = (by_id[each] for each in note.merged if each in by_id and each not in visited)
        return note.accesses + sum(total(each, visited | {each.id}) for each in parts)

    return [each._replace(accesses=total(each, frozenset({each.id}))) if each.merged else each for each in notes]


def _elsewhere(lesson: Pattern, agent: str, replicas: set[str]) -> int:
    """Return the number of times that other machines reported showing a lesson to the agent."""
    shown = lesson.totals.get("shown", {})
    return sum(n for writer, n in shown.items() if names.agent_of(writer) == agent and writer not in replicas)


def _importance(lesson: Pattern, *, is_auto: bool) -> float:
    value = lesson.fields.get("importance")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return housekeeping.AUTO_IMPORTANCE if is_auto else housekeeping.IMPORTANCE


def _merged(own: Pattern | None) -> tuple[str, ...]:
    ids = own.fields.get(MERGED_FROM) if own is not None else None
    return tuple(each for each in ids if isinstance(each, str)) if isinstance(ids, list) else ()


def _written_lines(workspace: Workspace, agent: str, data: bytes) -> list[tuple[int, re.Match[str]]]:
    """Return the row numbers and notes of a memory that runs of fleet wrote; all other lines are a person's."""
    rows = data.decode("utf-8", "surrogateescape").split("\n")
    dated = [(number, match) for number, row in enumerate(rows) if (match := _NOTE.fullmatch(row.rstrip("\r")))]
    if not dated:  # of hundreds of runs none need be read
        return []
    path, ours = workspace.own_path(agent, memory_md.FILE_NAME), set[bytes]()
    for run in (run for run in Runs(workspace).listed() if run.kind != UNDO):
        for edit in (edit for edit in run.edits if edit.path == path):
            ours |= {*(edit.after or b"").split(b"\n")} - {*(edit.before or b"").split(b"\n")}
    return [
        (number, match)
        for number, match in dated
        if rows[number].encode("utf-8", "surrogateescape") in ours and dates.to_ms(match["day"]) is not None
    ]


def zone_of(workspace: Workspace) -> tzinfo | None:
    """Return the time zone of notes; None for this machine's, UTC with a warning for one that nobody knows."""
    name = workspace.config.sleep.zone
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        workspace.warn(f"[sleep] zone in fleet.toml is {name!r}, which is no time zone: days are reckoned in UTC")
        return UTC


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


# --- applying -------------------------------------------------------------------------------------------------------


def _draft(workspace: Workspace, agent: str, notebook: _Notebook, plan: Plan) -> Draft:
    fields: list[Field] = []
    for change in (each for each in plan.changes if each.id not in notebook.lines):
        own, before = notebook.own.get(change.id), change.before
        if change.field == STAGE:  # the note's stage may be computed, and an undo needs the stored one
            before = own.value(STAGE) if own is not None else None
        fields.append(Field(change.id, change.field, before or None, change.after))
    pages = _memory_edits(workspace, agent, notebook, plan)
    return Draft("", plan.report.summary(), pages, fields=fields)


def _memory_edits(workspace: Workspace, agent: str, notebook: _Notebook, plan: Plan) -> list[Edit]:
    """Return the edits of ``memory.md`` and its archive. A note that a newer one repeats moves there unchanged."""
    rows = notebook.memory.decode("utf-8", "surrogateescape").split("\n")
    archived: list[str] = []
    for change in (each for each in plan.changes if each.id in notebook.lines):
        number, line = notebook.lines[change.id]
        if change.field == "text":
            rows[number] = rows[number].replace(line["text"], str(change.after))
        elif change.field == STAGE:
            archived.append(line.string)
            rows[number] = "\0"
    after = "\n".join(row for row in rows if row != "\0").encode("utf-8", "surrogateescape")
    if after == notebook.memory:
        return []
    page = Edit(workspace.own_path(agent, memory_md.FILE_NAME), notebook.memory, after)
    return [page, *archive_edits(workspace, agent, archived)]


def _write(workspace: Workspace, agent: str, fields: Sequence[Field]) -> None:
    """Write the fields of a run: stages into the agent's private file, words into the file of their lesson.

    A lesson that somebody edited, or another agent confirmed, since the plan was made stays as it is, with a warning.
    """
    private, left = (STAGE, MERGED_FROM), list[str]()
    with workspace.writing(agent) as writer:
        writer.set_own([(each.id, each.name, each.after) for each in fields if each.name in private])
        deltas = []
        for field in (each for each in fields if each.name not in private):
            line = workspace.record(agent, field.id) or Line(field.id)
            lesson = fold(line, workspace.policy())
            now = canonical(lesson.fields.get(field.name) or "")
            if now == canonical(field.before or "") and lesson.loggers <= {agent}:
                deltas.append(writer.edit(line, field.name, field.after))
            elif now != canonical(field.after or ""):
                left.append(f"{field.id} ({field.name})")
        writer.write(deltas)
    if left:
        workspace.warn(f"left as they are, since somebody wrote there while they were tidied: {', '.join(left)}")


def _record(workspace: Workspace, agent: str, tidied: TidyResult) -> None:
    ids = tuple(dict.fromkeys(each.id for each in tidied.plan.changes))
    written = Written(name=KIND, ids=ids[:_IDS_MAX], count=tidied.plan.notes_changed)
    record = Record(run=tidied.run, kind=KIND, outcome="success", why=tidied.report.summary(), writers=(written,))
    Records(workspace, agent).append(record)


def put_aside(workspace: Workspace, agent: str, question: inbox.Item, most: int) -> tuple[str, str]:
    """Put a plan with more than ``most`` changes into the inbox; return the id that it waits as, and a sentence.

    A plan that a person rejected does not wait, and has no id. An approved one is over: the next one waits again.
    """
    key = f"{question.body['what']} {agent} {workspace.wall()[:10]}"
    evidence = (*question.evidence, f"a run changes {most:,} at most by itself")
    item = msgspec.structs.replace(question, key=key, evidence=evidence)
    box = Inbox(workspace, agent)
    put = box.put([item])[0]
    decision = next((each.decision for each in box.entries() if each.item.id == put.id), None)
    if decision is None:
        return put.id, f"It waits as {put.id}: fleet inbox"
    again = f"; `fleet undo {decision.run}` lets it wait again" if decision.run else ""
    return "", f"It does not wait: {put.why}{again}"


# --- the host's own memory ------------------------------------------------------------------------------------------


def _host_report(workspace: Workspace) -> DreamReport | None:
    """Return the newest report in the host's own memory of this project."""
    reports = [DreamReport.parse(page) for _, page in _pages(workspace)]
    return next((each for each in reversed(reports) if each is not None), None)


def _report_key(report: DreamReport, text: str) -> str:
    """Return the key of a report in the record of its reading."""
    source = text or msgspec.json.encode(report).decode()
    return msgspec.json.encode({"report": report, "hash": _hash(source.strip())}).decode()


def _put_host_facts(workspace: Workspace, agent: str, *, dry_run: bool) -> int:
    """Put the new facts of the host's own memory into the inbox, as candidates; return the number of new items."""
    items = [
        inbox.Item(
            kind="candidate",
            title=each.text,
            evidence=(f"{each.wrong} (the host's own memory keeps it)",),
            body={"pattern": each.text, "wrong": each.wrong, "source": f"memory {each.id}"},
        )
        for each in remembered(workspace)
    ]
    return sum(each.is_new for each in Inbox(workspace, agent).put(items, dry_run=dry_run))


def remembered(workspace: Workspace) -> list[Proposal]:
    """Return the feedback in the host's own memory, where each file is a fact with its kind in the front matter."""
    return [each for name, page in _pages(workspace) for each in _fact(name, page)]


def _pages(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield each page's name without its ending, and its text, where that memory may be read."""
    projects = sessions.folders(os.fspath(workspace.root)) if workspace.config.hook.auto_memory else ()
    for folder in (each / "memory" for each in projects):
        for path in sorted(folder.glob("*.md")) if not folder.is_symlink() else ():
            if not path.is_symlink() and path.is_file():
                with path.open("rb") as file:
                    yield path.stem, file.read(_MEMORY_BYTES_MAX).decode("utf-8", "replace")


def _fact(name: str, page: str) -> Iterator[Proposal]:
    front = Page.front_matter(page)
    fields = {key.strip(): value.strip(" \"'") for key, _, value in (row.partition(":") for row in front.splitlines())}
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n|\n(?=\*\*(?:Why|How))", page[len(front) :])]
    why = next((match[1] for each in paragraphs if (match := re.match(r"\*\*Why:?\*\*:? *(.+)", each))), "")
    first = next((each for each in paragraphs if each and not each.startswith(("#", "**Why", "**How"))), "")
    # The first paragraph should be the rule. The description often is one, too, but may be a few words about it.
    rule = fields.get("description", "")
    if not rule or (rule.isascii() and len(rule.split()) < _RULE_WORDS_MIN <= len(first.split())):
        rule = first
    is_sentence = rule and not (rule.isascii() and " " not in rule)  # some languages write no spaces
    if is_sentence and fields.get("type") == "feedback":
        wrong = why or f"feedback: {fields.get('name', name)}"
        yield Proposal.of("", "memory", rule, wrong, "", _MEMORY_WORTH, quote=first)
