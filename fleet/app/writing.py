"""Writers of a reflection: what it says as a plan, and the plan carried out. Each writer fails alone.

In order: lessons, memory notes, a skill draft, observations of the persona, the user model, the next check. What no
person said and no command did is written nowhere: it waits in the inbox. What was written for this session before is
not written again.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fleet.learn import corrections, corrections_md, counting
from fleet.learn.corrections import Correction, Logged
from fleet.model import edits as lesson_edits
from fleet.model.errors import DiskError, FleetError, NoError
from fleet.model.line import Line
from fleet.model.names import normalise
from fleet.model.pattern import fold
from fleet.reflect import memory_md, reflectors, rules
from fleet.reflect.clusters import same_text_among
from fleet.reflect.digest import Support
from fleet.reflect.inbox import Inbox, Item
from fleet.reflect.records import Written
from fleet.reflect.reflection import Lesson, Reflection
from fleet.store import consent
from fleet.store.lines import screened
from fleet.store.runs import Edit, Field, Run, Runs
from fleet.store.workspace import Workspace
from fleet.text import screening
from fleet.text.prompts import Session

ORIGIN = "origin"
"""Field of a lesson that a reflection was the first to state."""
REFLECTION = "reflection"
SKILL_DAYS = 7
_MEMORY = "memory.md"
_SKILL_CHARS_MIN = 50
_PLAN_TRIES = 5
_CHECK_DAYS_MAX = 366
_FLAGGED_WORDS_MIN = 3


class Planned(NamedTuple):
    """A lesson that is to be logged.

    Attributes:
        key: what it is known by in the log: ``t-`` and 8 hex.
        lesson: as the reflector said it.
        same: id of the known lesson that it says again; "" for a new one.
        entry: id of the entry of the log that waits for this lesson; "" for none.
        is_logged: that entry has it: a pass logged it, and a crash ended that pass before it was recorded.
    """

    key: str
    lesson: Lesson
    same: str
    entry: str
    is_logged: bool = False


class Plan(NamedTuple):
    """What a reflection comes to.

    Attributes:
        reflection: screened.
        lessons: to be logged.
        edits: of files.
        items: that wait for a person.
        updates: of the user model, by person.
        writers: what each writer is to do, and what it leaves out and why.
    """

    reflection: Reflection
    lessons: tuple[Planned, ...]
    edits: tuple[Edit, ...]
    items: tuple[Item, ...]
    updates: dict[str, tuple[str, ...]]
    writers: tuple[Written, ...]


class _Part(NamedTuple):
    """What one writer adds to a plan."""

    writer: Written
    lessons: tuple[Planned, ...] = ()
    edits: tuple[Edit, ...] = ()
    items: tuple[Item, ...] = ()
    updates: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class _About(NamedTuple):
    """What every writer is told.

    Attributes:
        workspace: where.
        agent: for whom.
        session: that was reflected on.
        said: the reflection, screened.
        run: of the pass.
        support: of what is said.
        is_trusted: the rules said it, who make nothing up.
        page: the agent's log.
    """

    workspace: Workspace
    agent: str
    session: Session
    said: Reflection
    run: str
    support: Support
    is_trusted: bool
    page: str

    def item(self, kind: str, title: str, **more: object) -> Item:
        """Return an item for the inbox."""
        return msgspec.convert(
            {"kind": kind, "title": title, "run": self.run, "session": self.session.id, **more}, Item
        )

    def home(self, *names: str) -> str:
        """Return the path of a file of the agent's, relative to the workspace."""
        return self.workspace.own_path(self.agent, *names)


def plan(workspace: Workspace, agent: str, session: Session, said: Reflection, run: str, *, is_trusted: bool) -> Plan:
    """Return what a reflection comes to, without writing anything; arguments as of ``write``."""
    return _planned(_about(workspace, agent, session, said, run, is_trusted=is_trusted))


def _about(
    workspace: Workspace, agent: str, session: Session, said: Reflection, run: str, *, is_trusted: bool
) -> _About:
    clean = msgspec.convert(_screened(msgspec.to_builtins(said)), Reflection)
    page = workspace.files.read(workspace.home(agent) / "corrections.md").decode("utf-8", "replace")
    return _About(workspace, agent, session, clean, run, Support(session.events), is_trusted, page)


def _planned(about: _About) -> Plan:
    parts = [_alone(name, act, about) for name, act in _WRITERS.items()]
    return Plan(
        about.said,
        tuple(each for part in parts for each in part.lessons),
        tuple(each for part in parts for each in part.edits),
        tuple(each for part in parts for each in part.items),
        {peer: told for part in parts for peer, told in part.updates.items()},
        tuple(part.writer for part in parts),
    )


def write(
    workspace: Workspace, agent: str, session: Session, said: Reflection, run: str, *, is_trusted: bool
) -> tuple[Plan, tuple[Written, ...]]:
    """Carry out what a reflection comes to; return the plan, and what each writer did.

    Args:
        workspace: where.
        agent: for whom.
        session: that was reflected on.
        said: the reflection.
        run: of the pass, whose files are one run.
        is_trusted: the rules said it, who make nothing up.

    Raises:
        DiskError: what was written is kept, and the next pass goes on from there.
        BusyError: others write all the time.
    """
    about = _about(workspace, agent, session, said, run, is_trusted=is_trusted)
    made = _planned(about)
    done = {each.name: each for each in made.writers}
    lessons, fields, firsts = _log(about, made.lessons)
    done["lessons"] = _joined(done["lessons"], lessons)
    if known := _carried_out(workspace, run):  # by a pass that a crash ended before it was recorded
        made = made._replace(edits=known.edits)
        done |= {each.name: each for each in _carried(PurePosixPath(workspace.own_path(agent)), known)}
    else:
        made = _apply(about, made, firsts, fields)
        done |= {each.name: each for each in made.writers if each.name != "lessons"}
    for name in ("lessons", "notes", "skill", "persona", "user-model"):
        done[name] = _put(workspace, agent, done[name], [each for each in made.items if _writer_of(each) == name])
    done["user-model"] = _honcho(workspace, agent, made.updates, done["user-model"])
    return made, tuple(done[name] for name in _WRITERS)


def _carried(home: PurePosixPath, run: Run) -> Iterable[Written]:
    """Yield what each writer did in a run, as far as the run tells."""
    logged = tuple(str(each.after) for each in run.fields if each.name == "entry")
    if logged:
        yield Written(name="lessons", ids=logged, count=len(logged))
    for each in run.edits:
        name = _FILES.get(PurePosixPath(each.path).relative_to(home).parts[0], "")
        if name and each.after is not None:
            known = set((each.before or b"").splitlines())
            fresh = [row for row in each.after.splitlines() if row.startswith(b"- ") and row not in known]
            yield Written(name=name, ids=(each.path,), count=len(fresh) if name != "skill" else 1)


_FILES = {_MEMORY: "notes", "skills": "skill", memory_md.USER_MODEL: "user-model", memory_md.CHECKS: "next-check"}


def _carried_out(workspace: Workspace, run: str) -> Run | None:
    try:
        return Runs(workspace).find(run)
    except NoError:
        return None


def _apply(about: _About, made: Plan, firsts: Sequence[str], fields: Sequence[Field]) -> Plan:
    """Carry out the edits of files as one run, planned anew where somebody wrote one of them meanwhile."""
    for _ in range(_PLAN_TRIES):
        if not (made.edits or firsts or fields):
            return made
        whole = Run(
            id=about.run,
            kind="reflect",
            agent=about.agent,
            at=about.workspace.wall(),
            told=f"reflected on session {about.session.id[:60]}",
            edits=made.edits,
            lessons=tuple(firsts),
            fields=tuple(fields),
        )
        if not Runs(about.workspace).apply(whole):
            return made
        made = _planned(about)
    raise DiskError("others write the same files all the time; the answer is on record, and the next pass goes on")


def _alone(name: str, act: "Callable[[_About], _Part]", about: _About) -> _Part:
    try:
        return act(about)
    except (FleetError, OSError, ValueError) as why:
        return _Part(Written(name=name, error=str(why)))


def _screened(value: object) -> object:
    home = str(Path.home())
    if isinstance(value, str):
        return screening.screen(value, home=home).text
    if isinstance(value, dict):
        return {str(_screened(key)): _screened(each) for key, each in value.items()}
    return [_screened(each) for each in value] if isinstance(value, list | tuple) else value


# --- lessons ----------------------------------------------------------------------------------------------------------


def _lessons(about: _About) -> _Part:
    planned, items, skipped = list[Planned](), list[Item](), list[str]()
    is_in_log = f"session={corrections_md.session_word(about.session.id)}" in about.page
    entries = corrections_md.bind(corrections_md.parse_log(about.page)) if is_in_log else []
    for lesson in about.said.lessons:
        text = lesson.text
        key = rules.proposal_id(about.session.id, lesson.by, text)
        if key in about.page:
            if (left := _left_by_a_crash(about.workspace, entries, key)) is not None:
                planned.append(Planned(key, lesson, left.pattern, left.id, is_logged=True))
            else:
                skipped.append(f"{text[:80]!r} was logged for this session before")
            continue
        if why := about.support.of(lesson):
            items.append(_candidate(about, lesson, why))
            continue
        entry, is_stated = _flagged(lesson, entries)
        if is_stated:
            skipped.append(f"{text[:80]!r}: the agent stated that lesson itself")
            continue
        same = _known(about.workspace, about.agent, text)
        counted = f" {same} " in about.page and _counted_in(entries, same, about.session.id)
        if same and counted:
            skipped.append(f"{text[:80]!r} is {same}, which this session counted already")
            continue
        planned.append(Planned(key, lesson, same, entry))
    return _Part(Written(name="lessons", skipped=tuple(skipped)), lessons=tuple(planned), items=tuple(items))


def _left_by_a_crash(
    workspace: Workspace, entries: "Iterable[corrections_md.Bound]", key: str
) -> corrections_md.Record | None:
    """Return the record of an entry that a pass logged, if no run has it: then nothing could take it back."""
    record = next((each.record for each in entries if each.record is not None and key in each.entry.source), None)
    if record is None:
        return None
    known = {field.id for run in Runs(workspace).listed() for field in run.fields if field.name == "entry"}
    return None if record.id in known else record


def _candidate(about: _About, lesson: Lesson, why: str) -> Item:
    return about.item(
        "candidate",
        lesson.text,
        evidence=tuple(filter(None, [lesson.quote[:400], why])),
        weight=1.0,
        diff=f"+ {lesson.text}",
        body={
            "pattern": lesson.text,
            "wrong": lesson.wrong,
            "right": lesson.right,
            "source": f"a reflection on session {about.session.id[:60]}, approved by a person",
        },
    )


def _flagged(lesson: Lesson, entries: "Sequence[corrections_md.Bound]") -> tuple[str, bool]:
    """Return the entry in which a hook logged the very words that a lesson quotes, and whether it has its lesson."""
    quote = normalise(lesson.quote)
    if len(quote.split()) < _FLAGGED_WORDS_MIN:
        return "", False
    for each in entries:
        said = normalise(each.entry.wrong)
        if each.entry.auto and said and (quote[:200] in said or said[:200] in quote):
            is_stated = each.record is not None or bool(each.entry.pattern)
            return ("" if is_stated else each.id), is_stated
    return "", False


def _known(workspace: Workspace, agent: str, text: str) -> str:
    """Return the id of the lesson that says the same; "" for none."""
    exact = workspace.same_text(agent, text)
    if any(each.is_present for each in workspace.patterns.some([exact])):
        return exact
    known = [each for each in workspace.patterns.candidates(text) if each.is_present]
    said = same_text_among([each.text for each in known], text)
    return known[said].id if said is not None else ""


def _counted_in(entries: "Iterable[corrections_md.Bound]", lesson: str, session: str) -> bool:
    word = corrections_md.session_word(session)
    return any(
        each.record is not None and each.record.pattern == lesson and each.record.session == word for each in entries
    )


def _log(about: _About, planned: Sequence[Planned]) -> tuple[Written, list[Field], list[str]]:
    """Log the lessons; return what was done, the fields of the run, and the ids that were first stated here."""
    workspace, agent, session = about.workspace, about.agent, about.session
    ids, skipped, fields, firsts, error = list[str](), list[str](), list[Field](), list[str](), ""
    for each in planned:
        source = f"session-end reflection, {each.lesson.by or 'self'} {each.key}"
        # A known lesson keeps its own words: this session only says that it was met again.
        right = "" if each.same or normalise(each.lesson.right) == normalise(each.lesson.text) else each.lesson.right
        try:
            if each.is_logged:
                logged = _logged_before(workspace, agent, each)
            elif each.entry:
                logged = corrections.state_lesson(workspace, agent, each.entry, each.lesson.text, right, same=each.same)
            else:
                told = Correction(each.lesson.wrong, right, each.lesson.text, source=source)
                logged = corrections.correct(workspace, agent, told, session=session.id, same=each.same)
        except DiskError:
            raise
        except FleetError as why:
            error = error or f"{each.lesson.text[:80]!r} was not logged: {why}"
            continue
        if logged.is_echo:
            skipped.append(f"{each.lesson.text[:80]!r} only repeats {logged.id}, which the agent was shown")
            continue
        ids.append(logged.id)
        fields += [
            Field(logged.entry or each.entry, "entry", None, logged.id),
            Field(logged.id, "seen", None, logged.seen),
        ]
        if logged.is_first:
            firsts.append(logged.id)
    _note_origin(workspace, agent, firsts)
    return Written(name="lessons", ids=tuple(ids), count=len(ids), skipped=tuple(skipped), error=error), fields, firsts


def _logged_before(workspace: Workspace, agent: str, planned: Planned) -> Logged:
    """Return what became of a lesson that a pass logged before it crashed: counted by now, and first stated by it."""
    counting.reconcile_all(workspace)
    line = workspace.whole(agent, planned.same)
    text, seen = (folded.text, folded.count("seen")) if line and (folded := fold(line)) else (planned.lesson.text, 1)
    logged = Logged(planned.same, text, seen, ())
    logged.entry, logged.is_first = planned.entry, seen == 1
    return logged


def _note_origin(workspace: Workspace, agent: str, ids: Sequence[str]) -> None:
    """Set where the lessons come from that nobody stated before."""
    if not ids or workspace.is_guest(agent):
        return
    with workspace.writing(agent) as writer:
        cut = workspace.policy().cut
        lines = [workspace.whole(agent, each) or Line(each) for each in ids]
        writer.say(
            [lesson_edits.set_field(line, ORIGIN, REFLECTION, writer.name, writer.tick(), cut) for line in lines],
        )


# --- files ------------------------------------------------------------------------------------------------------------


def _edit(workspace: Workspace, path: str, after: bytes) -> Edit:
    """Return an edit of a file, none of whose folders is a link.

    Raises:
        DiskError: one is.
    """
    parts = PurePosixPath(path).parts
    for at in range(len(parts)):
        if workspace.root.joinpath(*parts[: at + 1]).is_symlink():
            raise DiskError(f"{'/'.join(parts[: at + 1])} is a link; it was left alone")
    return Runs(workspace).edit(path, after)


def _notes(about: _About) -> _Part:
    workspace, day = about.workspace, about.workspace.wall()[:10]
    said, items, skipped = list[str](), list[Item](), list[str]()
    for each in about.said.memory_notes:
        if not about.is_trusted and (why := about.support.of_note(each)):
            items.append(
                about.item(
                    "candidate",
                    each,
                    evidence=(why,),
                    weight=0.5,
                    diff=f"+ - {day}: {each}",
                    body={"what": "note", "note": each},
                )
            )
        else:
            said.append(each)
    before = workspace.files.read(workspace.root / about.home(_MEMORY))
    noted = memory_md.add(before, said, day, about.agent)
    edits = list[Edit]()
    if noted.added:
        edits.append(_edit(workspace, about.home(_MEMORY), noted.page))
    if noted.archived:
        path = about.home(f"archive-{day}.md")
        known = workspace.files.read(workspace.root / path)
        edits.append(_edit(workspace, path, memory_md.archive(known, noted.archived, about.agent, day)))
    writer = Written(name="notes", count=len(noted.added), ids=noted.added, skipped=(*skipped, *noted.skipped))
    return _Part(writer, edits=tuple(edits), items=tuple(items))


def _skill(about: _About) -> _Part:
    said, workspace = about.said, about.workspace
    if not said.should_skill or said.skill_slug is None:
        return _Part(Written(name="skill"))
    body, slug = (said.skill_body or "").strip(), said.skill_slug
    if len(body) < _SKILL_CHARS_MIN:
        return _Part(Written(name="skill", skipped=(f"{slug}: its body has fewer than {_SKILL_CHARS_MIN} characters",)))
    draft, target = about.home("skills", slug, "SKILL.md"), f".claude/skills/{slug}/SKILL.md"
    known = workspace.files.read(workspace.root / target).decode("utf-8", "replace")
    about_it = screening.one_line(said.skill_description or slug)
    if known:
        text = f"{known.rstrip()}\n\n## From a session\n\n{body}\n"
    else:
        text = f"---\nname: {slug}\ndescription: {msgspec.json.encode(about_it).decode()}\n---\n\n{body}\n"
    is_there = os.path.lexists(workspace.root / draft)
    there = Written(name="skill", skipped=(f"{draft} is there already, and is never overwritten",))
    if is_there and workspace.files.read(workspace.root / draft) != text.encode():
        return _Part(there)
    until = (datetime.fromisoformat(workspace.wall()[:10]) + timedelta(days=SKILL_DAYS)).date().isoformat()
    item = about.item(
        "skill",
        f"{'add to the skill' if known else 'a new skill'} {slug}: {about_it}",
        key=draft,
        evidence=(about_it, *filter(None, [said.what_worked])),
        weight=2.0,
        body={"draft": draft, "target": target, **({"before": screened(known)} if known else {})},
        until=until,
    )
    if is_there:  # a pass that a crash ended may have left it without its place in the inbox
        return _Part(there, items=(item,))
    edit = _edit(workspace, draft, text.encode())
    return _Part(Written(name="skill", ids=(draft,), count=1), edits=(edit,), items=(item,))


def _persona(about: _About) -> _Part:
    items = [
        about.item(
            "persona",
            each,
            evidence=(f"session {about.session.id[:60]}",),
            weight=1.0,
            diff=f"+ {each}",
            body={"note": each},
        )
        for each in about.said.persona_observations
    ]
    return _Part(Written(name="persona"), items=tuple(items))


def _user_model(about: _About) -> _Part:
    updates, items = dict[str, tuple[str, ...]](), list[Item]()
    for peer, said in about.said.user_model_updates.items():
        good = []
        for each in said:
            if why := about.support.of_note(each):
                body = {"what": "person", "peer": peer, "note": each}
                items.append(
                    about.item(
                        "candidate", f"{peer}: {each}", evidence=(why,), weight=0.5, diff=f"+ {peer}: {each}", body=body
                    )
                )
            else:
                good.append(each)
        if good:
            updates[peer] = tuple(good)
    path, workspace = about.home(memory_md.USER_MODEL), about.workspace
    before = workspace.files.read(workspace.root / path)
    after, added = memory_md.UserModel(before).with_observed(updates, workspace.wall()[:10])
    edits = (_edit(workspace, path, after),) if added else ()
    fresh = updates if added else {}
    return _Part(
        Written(name="user-model", ids=tuple(added), count=len(added)), edits=edits, items=tuple(items), updates=fresh
    )


def _next_check(about: _About) -> _Part:
    at, workspace = about.said.next_check_at, about.workspace
    if not at:
        return _Part(Written(name="next-check"))
    now = datetime.fromisoformat(workspace.wall()[:19]).replace(tzinfo=UTC)
    if not now < datetime.fromisoformat(at) < now + timedelta(days=_CHECK_DAYS_MAX):
        return _Part(Written(name="next-check", skipped=(f"{at} is past, or more than a year away",)))
    path = about.home(memory_md.CHECKS)
    before = workspace.files.read(workspace.root / path)
    after = memory_md.Checks(before).with_check(at, f"look at what session {about.session.id[:36]} left")
    edits = (_edit(workspace, path, after),) if after != before else ()
    return _Part(Written(name="next-check", ids=(at,) * len(edits), count=len(edits)), edits=edits)


_WRITERS: dict[str, Callable[[_About], _Part]] = {
    "lessons": _lessons,
    "notes": _notes,
    "skill": _skill,
    "persona": _persona,
    "user-model": _user_model,
    "next-check": _next_check,
}


# --- what waits -------------------------------------------------------------------------------------------------------


def _writer_of(item: Item) -> str:
    what = item.body.get("what", "")
    if item.kind == "candidate":
        return {"note": "notes", "person": "user-model"}.get(str(what), "lessons")
    return item.kind


def _put(workspace: Workspace, agent: str, writer: Written, items: Sequence[Item]) -> Written:
    """Put what a writer leaves to a person into the inbox; return what it did."""
    if not items:
        return writer
    try:
        put = Inbox(workspace, agent).put_all(items)
    except FleetError as why:
        return msgspec.structs.replace(writer, error=writer.error or str(why))
    fresh = tuple(each.id for each in put if each.is_new)
    old = tuple(f"{item.title[:80]!r}: {each.why}" for item, each in zip(items, put, strict=True) if not each.is_new)
    count = writer.count if writer.name == "skill" else writer.count + len(fresh)
    return msgspec.structs.replace(writer, ids=(*writer.ids, *fresh), count=count, skipped=(*writer.skipped, *old))


def _joined(planned: Written, done: Written) -> Written:
    return msgspec.structs.replace(done, skipped=(*planned.skipped, *done.skipped), error=planned.error or done.error)


def _honcho(workspace: Workspace, agent: str, updates: dict[str, tuple[str, ...]], writer: Written) -> Written:
    """Tell Honcho what was observed, where a person here agreed to it; the local file has it whatever comes of it."""
    set_ = workspace.config.reflect
    if not set_.honcho or not updates:
        return writer
    if not workspace.state.agrees(consent.REFLECT, honcho_consented(workspace)):
        why = "Honcho is named and nobody on this machine agreed to it: `fleet reflect --agree` does"
        return msgspec.structs.replace(writer, skipped=(*writer.skipped, why))
    try:
        reflectors.tell_honcho(set_.honcho_url, set_.honcho, consent.variable(set_.honcho_key_env), agent, updates)
    except ImportError:
        why = "honcho is not installed: `uv tool install 'fleet-learnings[honcho]'`"
        return msgspec.structs.replace(writer, error=why)
    except Exception as why:  # noqa: BLE001 - an SDK raises what it likes
        return msgspec.structs.replace(writer, error=f"Honcho was not told: {type(why).__name__}: {str(why)[:200]}")
    return writer


def honcho_consented(workspace: Workspace) -> str:
    """Return what is agreed to before anything is told to Honcho."""
    set_ = workspace.config.reflect
    return f"honcho {set_.honcho} {set_.honcho_url} {set_.honcho_key_env}"
