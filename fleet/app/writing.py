"""Writers of a reflection: each plans its part, and the plan is applied. If one fails, the others still write.

In order: lessons, memory notes, a skill draft, observations of the persona, the user model, the next check. A
statement that the session does not support waits in the inbox. What was written for a session is not written again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fleet.learn import corrections, corrections_md, counting
from fleet.learn.corrections import LogResult
from fleet.learn.corrections_md import Correction, Entry
from fleet.learn.counting import CountedLog
from fleet.model.errors import DiskError, FleetError
from fleet.model.names import normalise, pattern_id
from fleet.model.pattern import fold
from fleet.reflect import memory_md, reflection, rules
from fleet.reflect.clusters import same_text_among
from fleet.reflect.digest import Support
from fleet.reflect.inbox import Inbox, Item
from fleet.reflect.records import Records, Written
from fleet.reflect.reflection import Lesson, Reflection
from fleet.store import consent
from fleet.store.lines import screened
from fleet.store.runs import Draft, Edit, Field, Runs
from fleet.store.workspace import Workspace
from fleet.text import dates, screening
from fleet.text.prompts import Session

LOGGING = "lessons"
"""Name of the lock under which lessons of sessions are logged: what another process logged meanwhile counts once."""
SKILL_DAYS = 7
_ACCOUNT = "account"
"""Name of a field of a run with what a writer wrote: a crash may leave the run without the pass's record."""
_SKILL_CHARS_MIN = 50
_CHECK_DAYS_MAX = 366
_FLAGGED_WORDS_MIN = 3
_DISMISSED = ": its entry was dismissed, as no correction"


class _PlannedLesson(NamedTuple):
    """Lesson that is to be logged, its mark in the log, and the known lesson that it repeats ("" for none).

    ``entry``: id of the entry that waits for it; ``is_logged``: a pass logged it there, and crashed before its record.
    """

    key: str
    lesson: Lesson
    same: str
    entry: str
    is_logged: bool = False


class Plan(msgspec.Struct):
    """Plan of a reflection: lessons to log, edits of files, items for the inbox, and an account of each writer.

    ``reflection`` is without what the session does not support, or a person declined; ``kept``: the texts in it.
    """

    reflection: Reflection
    kept: list[str] = []
    lessons: list[_PlannedLesson] = []
    edits: list[Edit] = []
    items: list[Item] = []
    updates: dict[str, tuple[str, ...]] = {}
    writers: dict[str, Written] = {}


class Writing:
    """Writers of one reflection, with what they share.

    ``run``: id of the pass; its edits of files are one run.
    ``is_trusted``: the rules made it, which invent nothing.
    """

    def __init__(
        self, workspace: Workspace, agent: str, session: Session, reflection: Reflection, run: str, *, is_trusted: bool
    ) -> None:
        self._workspace, self._agent, self._session, self._run = workspace, agent, session, run
        self._reflection = msgspec.convert(screened(msgspec.to_builtins(reflection), str(Path.home())), Reflection)
        self._support, self._is_trusted = Support(session.events), is_trusted
        self._log_page = ""
        self._day = workspace.wall()[:10]

    def plan(self) -> Plan:
        """Return the plan of the reflection, without writing anything."""
        plan = Plan(self._reflection)
        for name, act in _WRITERS.items():
            try:
                plan.writers[name] = act(self, plan)
            except (FleetError, OSError, ValueError) as why:
                plan.writers[name] = Written(name=name, error=str(why))
        plan.reflection = self._supported(plan.kept)
        return plan

    def _supported(self, kept: Sequence[str]) -> Reflection:
        """Return the reflection with only the ``kept`` lessons and notes, and without summaries that repeat others."""
        whole = self._reflection
        dropped = [each.text for each in whole.lessons if each.text not in kept]
        worked, failed = (
            None if not text or self._doubt_of_note(text) or any(each in text for each in dropped) else text
            for text in (whole.what_worked, whole.what_didnt)
        )
        lessons = tuple(each for each in whole.lessons if each.text in kept)
        notes = tuple(each for each in whole.memory_notes if each in kept)
        return replace(whole, what_worked=worked, what_didnt=failed, lessons=lessons, memory_notes=notes)

    def _doubt_of_note(self, note: str) -> str:
        return "" if self._is_trusted else self._support.of_note(note)

    def write(self) -> tuple[Plan, tuple[Written, ...]]:
        """Apply the plan of the reflection; return it, and each writer's account. The next pass mends what failed."""
        with self._workspace.lock(LOGGING):
            plan = self.plan()
            logged, fields, firsts = self._log_lessons(plan.lessons)
        planned = plan.writers["lessons"]
        lessons = replace(logged, skipped=(*planned.skipped, *logged.skipped), error=planned.error or logged.error)
        run = next((each for each in Runs(self._workspace).listed() if each.id == self._run), None)
        if run is not None:  # of a pass that crashed before it was recorded
            plan.edits = list(run.edits)
            written = {each.id: msgspec.convert(each.after, Written) for each in run.fields if each.name == _ACCOUNT}
            accounts = {**plan.writers, "lessons": lessons, **written}
        else:
            plan = self._apply(plan, firsts, fields, lessons)
            accounts = plan.writers
        for name in accounts:
            accounts[name] = self._put(accounts[name], [each for each in plan.items if _writer_of(each) == name])
        accounts["user-model"] = self._tell_honcho(plan.updates, accounts["user-model"])
        return plan, tuple(accounts[name] for name in _WRITERS)

    # --- files and items

    def _page(self, *names: str) -> Edit:
        """Return a file of the agent's as it is now; raise DiskError where it is a link, or lies behind one."""
        return _unlinked(self._workspace, self._workspace.own_path(self._agent, *names))

    def _item(self, kind: str, title: str, **fields: object) -> Item:
        fields = {"kind": kind, "title": title, "run": self._run, "session": self._session.id, **fields}
        return msgspec.convert(fields, Item)

    def _put(self, writer: Written, items: Sequence[Item]) -> Written:
        """Put the items of a writer into the inbox; return its account."""
        if not items:
            return writer
        try:
            put = Inbox(self._workspace, self._agent).put(items)
        except FleetError as why:
            return replace(writer, error=writer.error or str(why))
        new = tuple(each.id for each in put if each.is_new)
        old = [f"{item.title[:80]!r}: {each.why}" for item, each in zip(items, put, strict=True) if not each.is_new]
        count = writer.count if writer.name == "skill" else writer.count + len(new)
        return replace(writer, ids=(*writer.ids, *new), count=count, skipped=(*writer.skipped, *old))

    def _apply(self, plan: Plan, firsts: list[str], fields: list[Field], lessons: Written) -> Plan:
        """Apply the edits of files as one run, with each writer's account; return the plan that the run carries out."""
        plans, summary = chain([plan], iter(self.plan, None)), f"reflected on session {self._session.id[:60]}"

        def planned() -> Draft | None:
            nonlocal plan
            plan = next(plans)
            plan.writers["lessons"] = lessons
            written = (Written(name=each.name, ids=each.ids, count=each.count) for each in plan.writers.values())
            accounts = [Field(each.name, _ACCOUNT, None, msgspec.to_builtins(each)) for each in written if each.count]
            # An undo takes back the items of the inbox, too.
            has_changes = plan.edits or plan.items or firsts or fields
            return Draft(self._run, summary, plan.edits, firsts, [*fields, *accounts]) if has_changes else None

        Runs(self._workspace).apply_planned("reflect", self._agent, planned)
        return plan

    # --- lessons

    def plan_lessons(self, plan: Plan) -> Written:
        """Plan the lessons to log; an unsupported one waits for a person."""
        skipped, workspace = list[str](), self._workspace
        homes = [self._agent, *(each for each in workspace.homes() if each != self._agent)]
        logs = [workspace.files.page(CountedLog(workspace, each).log_file()) for each in homes]
        pages = [each.decode("utf-8", "replace") for each in logs]
        word = f"session={corrections_md.session_word(self._session.id)}"
        entries, *others = [corrections_md.Log.parse(page).entries if word in page else () for page in pages]
        self._log_page = pages[0]
        for lesson in self._reflection.lessons:
            planned = self._plan_lesson(lesson, entries, [*entries, *chain(*others)])
            # Else an answer that says one thing three times would be the evidence of three occurrences.
            if isinstance(planned, _PlannedLesson) and _is_repeated(planned, plan.lessons):
                planned = ": it says the same as another lesson of this reflection"
            if isinstance(planned, _PlannedLesson):
                plan.lessons.append(planned)
            elif isinstance(planned, Item):
                plan.items.append(planned)
            else:
                skipped.append(f"{lesson.text[:80]!r}{planned}")
            if not isinstance(planned, Item) and planned != _DISMISSED:
                plan.kept.append(lesson.text)
        return Written(name="lessons", skipped=tuple(skipped))

    def _plan_lesson(
        self, lesson: Lesson, entries: Sequence[Entry], of_all: Sequence[Entry]
    ) -> _PlannedLesson | Item | str:
        """Return a lesson as it is to be logged, as an item for the inbox, or why it is neither.

        ``of_all``: the entries of all agents here: a session that several reflect on counts its lessons once.
        """
        text = lesson.text
        key = rules.Proposal.id_of(self._session.id, lesson.by, text)
        if key in self._log_page:
            record = self._left_by_a_crash(entries, key)
            if record is not None:
                return _PlannedLesson(key, lesson, record.pattern, record.id, is_logged=True)
            logged = [each for each in entries if key in each.source]
            if not logged or not all(each.is_undone for each in logged):
                return " was logged for this session before"
        same, is_retired = self._known(text)
        word = corrections_md.session_word(self._session.id)
        counted = [(each.record, each.source) for each in of_all if each.record is not None and not each.is_undone]
        for record, source in counted if not is_retired else ():
            if record.session == word and (record.pattern == same or key in source):
                return f" is {record.pattern}, which this session counted already"
        if why := self._support.of(lesson) or (f"it was taken back, as {same}" if is_retired else ""):
            source = f"a reflection on session {self._session.id[:60]}, approved by a person"
            body = {"pattern": text, "wrong": lesson.wrong, "right": lesson.right, "source": source}
            added = [text, *([f"right: {lesson.right}"] if lesson.right else [])]  # a yes shares both
            return self._candidate(text, added, body, filter(None, [lesson.quote[:400], why]), weight=1.0)
        entry, is_stated = _flagged(lesson, entries)
        if is_stated:
            return ": the agent stated that lesson itself"
        if f"<!-- fleet dismissed {entry} " in self._log_page:
            return _DISMISSED
        return _PlannedLesson(key, lesson, same, entry)

    def _candidate(
        self, title: str, added: Iterable[str], body: Mapping[str, str], evidence: Iterable[str], weight: float = 0.5
    ) -> Item:
        diff = "\n".join(f"+ {screening.one_line(row)}" for row in added)
        return self._item("candidate", title, evidence=tuple(evidence), weight=weight, diff=diff, body=body)

    def _left_by_a_crash(self, entries: Iterable[Entry], key: str) -> corrections_md.Record | None:
        """Return the record of an entry that a crashed pass logged and no run has, so that no undo would find it."""
        record = next((each.record for each in entries if each.record is not None and key in each.source), None)
        runs = Runs(self._workspace).listed() if record is not None else []
        recorded = {field.id for run in runs for field in run.fields if field.name == "entry"}
        return None if record is None or record.id in recorded else record

    def _known(self, text: str) -> tuple[str, bool]:
        """Return the id of the lesson that says the same, "" for none, and whether it was taken back."""
        patterns = self._workspace.patterns
        for exact in patterns.some([self._workspace.same_text(self._agent, text)]):
            return exact.id, not exact.is_present
        candidates = patterns.candidates(text)
        number = same_text_among(list(candidates.values()), text)
        return list(candidates)[number] if number is not None else "", False

    def _log_lessons(self, planned: Sequence[_PlannedLesson]) -> tuple[Written, list[Field], list[str]]:
        """Log the lessons; return the account, the fields of the run, and the ids that were first stated here."""
        ids, skipped, fields, firsts, error = list[str](), list[str](), list[Field](), list[str](), ""
        for item in planned:
            try:
                logged = self._log_lesson(item)
            except DiskError:
                raise
            except FleetError as why:
                error = error or f"{item.lesson.text[:80]!r} was not logged: {why}"
                continue
            if logged.is_echo:
                skipped.append(f"{item.lesson.text[:80]!r} only repeats {logged.id}, which the agent was shown")
                continue
            ids.append(logged.id)
            fields += logged.fields(logged.entry or item.entry)
            firsts += [logged.id] if logged.is_first else []
        self._note_origin(firsts)
        account = Written(name="lessons", ids=tuple(ids), count=len(ids), skipped=tuple(skipped), error=error)
        return account, fields, firsts

    def _log_lesson(self, planned: _PlannedLesson) -> LogResult:
        workspace, lesson = self._workspace, planned.lesson
        if planned.is_logged:  # by a pass that crashed: it is counted by now
            counting.reconcile_all(workspace)
            line = workspace.record(self._agent, planned.same)
            seen = fold(line).count("seen") if line is not None else 1
            return LogResult(planned.same, lesson.text, seen, (), entry=planned.entry, is_first=seen == 1)
        # A known lesson keeps its own words: this session only says that it was met again.
        right, log = "" if planned.same else lesson.right, corrections.Corrections(workspace, self._agent)
        if planned.entry:
            return log.state(planned.entry, Correction("", right, lesson.text), same=planned.same, is_own=True)
        source = f"session-end reflection, {lesson.by or 'self'} {planned.key}"
        correction = Correction(lesson.wrong, right, lesson.text, source=source)
        met_at = next((each.at for each in self._session.events if each.line == lesson.line), "")
        at_ms = dates.to_ms(met_at) or 0  # shown before the mistake, not before this reflection on it
        quoted = bool(lesson.by)  # a person or a command, whose words support it
        return log.log(
            correction, session=self._session.id, same=planned.same, is_own=True, is_quoted=quoted, at_ms=at_ms
        )

    def _note_origin(self, ids: Sequence[str]) -> None:
        """Set the origin of the lessons that nobody stated before."""
        workspace, agent = self._workspace, self._agent
        if not ids or workspace.is_guest(agent):
            return
        with workspace.writing(agent) as writer:
            writer.write([writer.edit(writer.line(each), "origin", "reflection") for each in ids])

    # --- the other writers

    def plan_notes(self, plan: Plan) -> Written:
        """Plan the notes of the memory, and of its archive. Where the memory is a link, they wait for a person."""
        reasons = {note: self._doubt_of_note(note) for note in self._reflection.memory_notes}
        if not reasons:
            return Written(name="notes")
        plan.kept += [note for note, why in reasons.items() if not why]
        try:
            memory = self._page(memory_md.FILE_NAME)
        except DiskError as why:
            memory, reasons = Edit("", None, None), {note: doubt or str(why) for note, doubt in reasons.items()}
        supported, most = [note for note, why in reasons.items() if not why], memory_md.NOTES_A_SESSION_MAX
        passes = Records(self._workspace, self._agent).passes()
        earlier = [each.record for each in passes if each.record.session == self._session.id and not each.undone]
        room = max(0, most - sum(each.count for one in earlier for each in one.writers if each.name == "notes"))
        noted = memory_md.Notes(memory.before or b"").with_more(supported, self._day, self._agent, room)
        if noted.added:
            plan.edits += [memory.to(noted.page), *archive_edits(self._workspace, self._agent, noted.archived)]
        others = [note for note, why in reasons.items() if why]
        room -= len(noted.added)
        for note in others[:room]:
            body = {"what": "note", "note": note}
            plan.items.append(self._candidate(note, [f"- {self._day}: {note}"], body, [reasons[note]]))
        beyond = [f"{each[:80]!r} is one more than {most} notes of one session" for each in others[room:]]
        return Written(name="notes", count=len(noted.added), ids=noted.added, skipped=(*noted.skipped, *beyond))

    def plan_skill(self, plan: Plan) -> Written:
        """Plan the draft of a skill, which waits for a person."""
        reflection, workspace = self._reflection, self._workspace
        if not reflection.should_skill or reflection.skill_slug is None:
            return Written(name="skill")
        body, slug = (reflection.skill_body or "").strip(), reflection.skill_slug
        if len(body) < _SKILL_CHARS_MIN:
            return Written(name="skill", skipped=(f"{slug}: its body has fewer than {_SKILL_CHARS_MIN} characters",))
        file, target = self._page("skills", slug, "SKILL.md"), f".claude/skills/{slug}/SKILL.md"
        current = workspace.files.read(workspace.root / target)
        summary = screening.one_line(reflection.skill_description or slug)
        text = f"---\nname: {slug}\ndescription: {msgspec.json.encode(summary).decode()}\n---\n\n{body}\n".encode()
        if current:
            gap = b"" if current.endswith(b"\n") else b"\n"
            text = current + gap + f"\n## From a session\n\n{body}\n".encode()
        edit = file.to(text)
        added = {"before": screened(current.decode("utf-8", "replace")), "note": body} if current else {}
        item = self._item(
            "skill",
            f"{'add to the skill' if current else 'a new skill'} {slug}: {summary}",
            key=f"{edit.path} {pattern_id(body)}",
            evidence=(summary, *filter(None, [reflection.what_worked])),
            weight=2.0,
            body={"draft": edit.path, "target": target, **added},
            until=(datetime.fromisoformat(self._day) + timedelta(days=SKILL_DAYS)).date().isoformat(),
        )
        [put] = Inbox(workspace, self._agent).put([item], dry_run=True)
        if not put.is_new:
            return Written(name="skill", skipped=(f"{edit.path}: {put.why}",))
        # A pass that a crash ended may have left the draft without its place in the inbox, and a yes of an earlier
        # version of fleet left it as the skill reads.
        plan.items += [item] if edit.before in (None, current, edit.after) else []
        if edit.before not in (None, current):
            return Written(name="skill", skipped=(f"{edit.path} is there already, and is never overwritten",))
        plan.edits.append(edit)
        return Written(name="skill", ids=(edit.path,), count=1)

    def plan_persona(self, plan: Plan) -> Written:
        """Plan the observations of the agent itself, which wait for a person."""
        evidence = (f"session {self._session.id[:60]}",)
        for each in map(screening.one_line, self._reflection.persona_observations):
            body = {"note": each}
            plan.items.append(self._item("persona", each, evidence=evidence, weight=1.0, diff=f"+ {each}", body=body))
        return Written(name="persona")

    def plan_user_model(self, plan: Plan) -> Written:
        """Plan the notes about persons."""
        updates = dict[str, tuple[str, ...]]()
        for peer, notes in self._reflection.user_model_updates.items():
            supported = []
            for note in notes:
                if why := self._support.of_note(note):
                    body, title = {"what": "person", "peer": peer, "note": note}, f"{peer}: {note}"
                    plan.items.append(self._candidate(title, [title], body, [why]))
                else:
                    supported.append(note)
            updates |= {peer: tuple(supported)} if supported else {}
        if not updates:
            return Written(name="user-model")
        model = self._page(memory_md.USER_MODEL)
        after, added = memory_md.UserModel(model.before or b"").with_observed(updates, self._day)
        if added:
            plan.updates = updates
            plan.edits.append(model.to(after))
        return Written(name="user-model", ids=tuple(added), count=len(added))

    def plan_next_check(self, plan: Plan) -> Written:
        """Plan the next check."""
        due = self._reflection.next_check_at
        if not due:
            return Written(name="next-check")
        now = datetime.fromisoformat(self._workspace.wall()[:19]).replace(tzinfo=UTC)
        if not now < datetime.fromisoformat(due) < now + timedelta(days=_CHECK_DAYS_MAX):
            return Written(name="next-check", skipped=(f"{due} is past, or more than a year away",))
        checks = self._page(memory_md.CHECKS)
        page, what = checks.before or b"", f"look at what session {self._session.id[:36]} left"
        after = memory_md.Checks(page).with_check(due, what)
        if after == page:
            return Written(name="next-check")
        plan.edits.append(checks.to(after))
        return Written(name="next-check", ids=(due,), count=1)

    def _tell_honcho(self, updates: dict[str, tuple[str, ...]], writer: Written) -> Written:
        """Tell Honcho the observations, where a person here agreed to it; the local file has them in any case."""
        workspace, settings = self._workspace, self._workspace.config.reflect
        if not settings.honcho or not updates:
            return writer
        if not workspace.state.agrees(consent.REFLECT, honcho_consented(workspace)):
            why = "Honcho is named and nobody on this machine agreed to it: `fleet reflect --agree` does"
            return replace(writer, skipped=(*writer.skipped, why))
        return replace(writer, error=writer.error or reflection.tell_honcho(settings, self._agent, updates))


_WRITERS: dict[str, Callable[[Writing, Plan], Written]] = {
    "lessons": Writing.plan_lessons,
    "notes": Writing.plan_notes,
    "skill": Writing.plan_skill,
    "persona": Writing.plan_persona,
    "user-model": Writing.plan_user_model,
    "next-check": Writing.plan_next_check,
}


def archive_edits(workspace: Workspace, agent: str, rows: Sequence[str]) -> list[Edit]:
    """Return the edit that puts rows of a memory into the day's archive; none without rows."""
    if not rows:
        return []
    day = workspace.wall()[:10]
    archive = _unlinked(workspace, workspace.own_path(agent, f"archive-{day}.md"))
    return [archive.to(memory_md.archive(archive.before or b"", rows, agent, day))]


def _unlinked(workspace: Workspace, path: str) -> Edit:
    if workspace.files.is_linked(workspace.root / path):
        raise DiskError(f"{path} is a link, or lies behind one; it was left alone")
    return Runs(workspace).page(path)


def _writer_of(item: Item) -> str:
    """Return the writer that left an item to a person."""
    part = item.body.get("what", "")
    if item.kind == "candidate":
        return {"note": "notes", "person": "user-model"}.get(str(part), "lessons")
    return item.kind


def _is_repeated(planned: _PlannedLesson, others: Sequence[_PlannedLesson]) -> bool:
    """Return whether a lesson says the same as one of the others, or repeats the same known lesson."""
    is_known = planned.same and any(each.same == planned.same for each in others)
    return bool(is_known) or same_text_among([each.lesson.text for each in others], planned.lesson.text) is not None


def _flagged(lesson: Lesson, entries: Sequence[Entry]) -> tuple[str, bool]:
    """Return the entry that a hook logged with the words that a lesson quotes, and whether its lesson is stated."""
    quote = normalise(lesson.quote)
    if len(quote.split()) < _FLAGGED_WORDS_MIN:
        return "", False
    for entry in entries:
        wrong = normalise(entry.wrong)
        if entry.auto and wrong and (quote[:200] in wrong or wrong[:200] in quote):
            is_stated = entry.record is not None or bool(entry.pattern)
            return ("" if is_stated else entry.id), is_stated
    return "", False


def honcho_consented(workspace: Workspace) -> str:
    """Return the text that a person agrees to before observations go to Honcho."""
    settings = workspace.config.reflect
    return f"honcho {settings.honcho} {settings.honcho_url} {settings.honcho_key_env}"
