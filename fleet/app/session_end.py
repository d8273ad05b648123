"""Use cases of reflection on a session: read, ask, plan, apply, record. A pass adds and confirms; it deletes nothing.

A pass is named by the session and its content, and runs once for each. Its maximal cost is reserved before a reflector
is asked, and settled afterwards, whatever the answer. The answer is on record before anything is written, so that a
crash costs no second one. Lessons enter through the log, like any correction. Files change as one run, which
``fleet undo`` takes back. Items for a person go to the inbox.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fleet.app import consolidating
from fleet.app.writing import Plan, Writing, honcho_consented
from fleet.hosts import sessions
from fleet.hosts.local import LocalFolder
from fleet.hosts.payloads import UNKNOWN
from fleet.model.errors import BusyError, FleetError, NoError, UsageError
from fleet.reflect import digest, records, reflection, rules
from fleet.reflect.records import DEFERRED, RAN, RESERVED, SETTLED, Pass, Record, Records
from fleet.reflect.reflection import Answer, Lesson, Reflection
from fleet.share.notices import Notice, Notices
from fleet.store import consent
from fleet.store.config import Reflect
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace
from fleet.text import dates
from fleet.text.prompts import Session
from fleet.text.screening import counted, one_line, screen
from fleet.text.signals import objections

KIND = "reflect"
RULES = "rules"
_HOST_CHOICE = "reflector"
"""Key in ``local.db``: the reflector that a person here chose."""
_DRAWN_SHOWN_MAX = 40
_DRAWN_CHARS_MAX = 600
_DAY_MS = 86_400_000


class ReflectResult(NamedTuple):
    """Result of one reflection on a session, named by its host's id.

    ``record``: the record of the pass, for a dry run as it would be; None if nothing was done: ``why`` has the reason.
    ``stands``: the reflection that holds, of this pass or an earlier one, as far as the session supports it; its run.
    """

    session: str
    record: Record | None = None
    plan: Plan | None = None
    why: str = ""
    is_deferred: bool = False
    stands: tuple[Reflection | None, str] = (None, "")

    def summary(self) -> str:
        """Return the result in a sentence."""
        if self.plan is not None and self.record is not None and not self.record.run:  # a dry run
            kept = len(self.plan.lessons) + len(self.plan.edits) + len(self.plan.items)
            return f"by the rules alone, {counted(kept, 'thing') if kept else 'nothing'} would be kept"
        return self.why or (self.record.summary() if self.record is not None else "nothing was done")


class _PastSession(NamedTuple):
    """Past session without a reflection: its transcript, the approximate tokens of its digest, and its time."""

    path: Path
    session: str
    tokens: int
    at: str


class _History(NamedTuple):
    """Past sessions: those without a reflection, the number of the others, maximal cost, and what is unreadable."""

    waiting: list[_PastSession]
    done: int
    usd: float
    troubles: list[str]


# --- the reflector --------------------------------------------------------------------------------------------------


class Choice:
    """Reflector of this machine and its cost, by ``fleet.toml``, the environment, and a person's yes.

    ``named``: the reflector of ``fleet.toml``; where that names none that is agreed to, the model that was chosen here.
    ``trouble``: why no model can be asked here and now, so that sessions wait; "" for none.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        configured = workspace.config.reflect
        self.settings = configured.in_environment(os.environ)
        self.named = self._chosen_here() or configured.reflector
        self.trouble = self.settings.unread_limits(os.environ) or self._missing_program()
        self._offered = self.named if configured.reflector == RULES else configured.reflector

    def _chosen_here(self) -> str:
        """Return the model that was chosen on this machine, if it goes before that of ``fleet.toml``; else ""."""
        configured, chosen = self._workspace.config.reflect.reflector, self._workspace.state.get(_HOST_CHOICE)
        if chosen not in reflection.CLIENTS:
            return ""
        is_first = configured == RULES or (self._is_agreed(chosen) and not self._is_agreed(configured))
        return chosen if is_first else ""

    def _missing_program(self) -> str:
        """Return that the program which would be run is not there; "" where none would be run, or it is."""
        program = next(iter(self.settings.command), "") if self.named == "command" else self.named
        is_run = self.named not in (RULES, "endpoint") and self._is_agreed(self.named)
        is_missing = is_run and program and os.sep not in program and not shutil.which(program)
        return f"{program} is not on the PATH" if is_missing else ""

    @property
    def reflector(self) -> str:
        """The reflector that is asked: the rules where nobody on this machine agreed to the named one."""
        return RULES if self.unagreed() else self.named

    def is_open_to(self, client: str) -> bool:
        """Return whether a client can be asked, and no reflector was chosen yet, here or by ``fleet.toml``."""
        is_chosen = self.settings.reflector != RULES or self._workspace.state.get(_HOST_CHOICE)
        return client in reflection.CLIENTS and not is_chosen

    def choose(self, reflector: str) -> None:
        """Note a person's choice for this machine, a host's own model or the rules; a yes to another holds no more."""
        if reflector not in (*reflection.CLIENTS, RULES):
            raise UsageError(f"{reflector[:40]!r} is no host's model: {', '.join(reflection.CLIENTS)}, or {RULES}")
        self.named = self._offered = reflector
        state = self._workspace.state
        state.put(**{_HOST_CHOICE: reflector})
        for each in state.agreed(consent.REFLECT):
            if not each.startswith("honcho "):
                state.disagree(consent.REFLECT, each)
        if reflector != RULES:
            state.agree(consent.REFLECT, self._consented(reflector), self._workspace.wall())

    def unagreed(self) -> str:
        """Return the named reflector, as it is shown, if nobody on this machine agreed to it; "" otherwise."""
        return "" if self.named == RULES or self._is_agreed(self.named) else self._consented(self.named)

    def _is_agreed(self, reflector: str) -> bool:
        return self._workspace.state.agrees(consent.REFLECT, self._consented(reflector))

    def agree(self) -> list[str]:
        """Note a person's yes to the reflector of ``fleet.toml`` or just chosen, and to Honcho; return what is new."""
        state, honcho = self._workspace.state, honcho_consented(self._workspace)
        named = [self._consented(self._offered)] * (self._offered != RULES) + [honcho] * bool(self.settings.honcho)
        new = [each for each in named if not state.agrees(consent.REFLECT, each)]
        for each in new:
            state.agree(consent.REFLECT, each, self._workspace.wall())
        return new

    def _consented(self, reflector: str) -> str:
        """Return the text that a person agrees to: where a session goes, and the caps where one was raised."""
        caps, usual = self._workspace.config.reflect, Reflect()
        is_raised = caps.max_usd > usual.max_usd or caps.daily_usd > usual.daily_usd
        cost = f" for at most ${caps.max_usd:g} a session and ${caps.daily_usd:g} a day" if is_raised else ""
        if reflector == "command":
            return f"command {json.dumps(self.settings.command)}{cost}"
        if reflector == "endpoint":
            return f"endpoint {self.settings.api} {self.settings.url} {self.settings.key_env}{cost}"
        return f"{reflector}{cost}"

    @property
    def why_deferred(self) -> str:
        """Why a session has to wait: for a mend, or for a day whose cap has room."""
        if self.trouble:
            return self.trouble
        most, cap = self.settings.max_usd, self.settings.daily_usd
        later = "it runs on a later day (UTC)" if most <= cap else "no day has; raise daily_usd, or lower max_usd"
        return f"the day's cap of ${cap:g} leaves no room for ${most:g}: {later}"

    def deferred(self, session: str) -> ReflectResult:
        """Return the result of a session that has to wait."""
        return ReflectResult(session, why=f"deferred: {self.why_deferred}", is_deferred=True)


# --- one session ----------------------------------------------------------------------------------------------------


def reflect(
    workspace: Workspace, agent: str, path: Path, *, dry_run: bool = False, by_hand: bool = False
) -> ReflectResult:
    """Reflect on the session of a transcript.

    A dry run asks only the rules, and writes nothing. By hand it runs also where an earlier pass was skipped or undone.

    Raises:
        NoError: what somebody named is no transcript.
        BusyError: another process reflects on this session.
        DiskError: what was written is kept, and the next pass goes on from there.
    """
    session = sessions.read(path)
    if by_hand and session.host == UNKNOWN and (session.lines or session.trouble):
        why = session.trouble or "no line of it is one of a host's that fleet knows"
        raise NoError(f"{path} is no transcript of a session: {why}. Nothing was done")
    if dry_run:
        one = _OneSession(workspace, agent, session)
        return one.earlier(by_hand=by_hand) or one.dry_run()
    name = blake2b(session.id.encode(), digest_size=8).hexdigest()
    with workspace.lock(f"reflect-{name}", 0):
        Runs(workspace).recover()
        one = _OneSession(workspace, agent, session)
        return one.earlier(by_hand=by_hand) or one.run()


def done(workspace: Workspace, agent: str, named: str, show: Callable[[list[ReflectResult]], object]) -> str:
    """End a session, the newest one where none is named: reflect on it, and log what it did.

    Returns what was written besides the reflection in a sentence, "" for nothing.
    ``show``: called with the passes before the rest is done, which may fail.

    Raises:
        NoError: there is no transcript, and nothing of the session that is not in the day's log already.
    """
    folder = LocalFolder(os.fspath(workspace.root))
    heard = folder.heard()
    try:
        path = transcript_of(workspace, named)
    except NoError as why:  # a session without a transcript may still have observations
        if not named:
            raise
        if closing := consolidating.close_session(workspace, agent, named).summary():
            show([])
            return closing
        raise NoError(f"{why}, and nothing of it that is not in the day's log already") from why
    reflected = reflect(workspace, agent, path, by_hand=True)
    show([reflected])
    closing = consolidating.close_session(workspace, agent, reflected.session, *reflected.stands).summary()
    if not reflected.is_deferred:
        folder.forget_heard(reflected.session, heard)
    return closing


class _OneSession:
    """Reflection of an agent on one session. A session that has grown since its last pass gets another pass."""

    def __init__(self, workspace: Workspace, agent: str, session: Session) -> None:
        self._workspace, self._agent, self._session = workspace, agent, session
        self._choice, self._key = Choice(workspace), _key(session)
        self._records = Records(workspace, agent)
        self._lines = self._records.read()

    def earlier(self, *, by_hand: bool) -> ReflectResult | None:
        """Return the result of the earlier pass where the session needs no further one; None where it does."""
        passes = [each for each in self._records.passes() if self._key in each.record.run]
        if why := _done_already(passes, self._choice.reflector, by_hand=by_hand):
            return ReflectResult(self._session.id, why=why, stands=self._standing(passes[-1]))
        return None

    def dry_run(self) -> ReflectResult:
        """Return the result of a dry run: the digest's size, and the plan of the rules."""
        choice, session = self._choice, self._session
        read, record = self._begin("")
        is_free = choice.reflector == RULES or bool(choice.trouble)
        record = replace(record, tokens_in=read.tokens, usd=0.0 if is_free else choice.settings.max_usd)
        if not session.events:
            return ReflectResult(session.id, record, why=record.why)
        if choice.reflector != RULES:
            record = replace(record, why=choice.trouble)
        result = rules.reflect(session)
        plan = Writing(self._workspace, self._agent, session, result, "dry-run", is_trusted=True).plan()
        return ReflectResult(session.id, replace(record, outcome=result.outcome), plan)

    def run(self) -> ReflectResult:
        """Run one pass within the day's cap, or with the answer on record; return its result."""
        began, session = time.monotonic(), self._session
        settled = self._interrupted_answer()
        read, record = self._begin(settled.run if settled is not None else self._run_id())
        if not session.events:
            return _finish(self._workspace, self._agent, replace(record, outcome="skipped", usd=0.0))
        if settled is None and (deferred := self._reserve(record)):
            return deferred
        settled = settled or self._ask(record, read)
        parsed = reflection.parse(settled.raw, self._workspace.config.reflect.banned)
        reasons = [settled.why, parsed.trouble if settled.raw else "", record.why]
        outcome = parsed.reflection.outcome if parsed.reflection is not None else "skipped"
        record, plan = replace(settled, line=RAN, at="", why="; ".join(filter(None, reasons)), outcome=outcome), None
        if parsed.reflection is not None:
            plan, writers = self._writing(parsed.reflection, record).write()
            drawn_from = _quoted_lines(_texts(session), parsed.reflection.lessons)
            record = replace(record, writers=writers, drawn=tuple(drawn_from))
        record = replace(record, duration_s=round(time.monotonic() - began, 3))
        return _finish(self._workspace, self._agent, record, plan)

    def _begin(self, run: str) -> tuple[digest.Digest, Record]:
        """Return the digest of the session, and the record of the pass so far."""
        session, why = self._session, ""
        read = digest.Digest.of(session.events, self._workspace.config.reflect.tokens)
        if not session.events:
            why = f"not read: {session.trouble or 'the transcript tells of nothing'}"
        elif unagreed := self._choice.unagreed():
            named = unagreed[:200]
            were = "were" if run else "would be"
            why = f"nobody on this machine agreed to {named}: the rules {were} asked. `fleet reflect --agree` does"
        return read, Record(
            run=run,
            session=session.id,
            host=session.host,
            transcript=str(Path(session.path).resolve()),
            reflector=self._choice.reflector,
            left_out="; ".join(filter(None, [read.left_out.rstrip("."), session.trouble])),
            why=why,
        )

    def _writing(self, stated: Reflection, record: Record) -> Writing:
        is_trusted = record.reflector == RULES
        return Writing(self._workspace, self._agent, self._session, stated, record.run, is_trusted=is_trusted)

    def _standing(self, last: Pass) -> tuple[Reflection | None, str]:
        """Return the reflection of an earlier pass, as far as the session supports it, and its run; or None."""
        stated = reflection.parse(last.record.raw, ()).reflection
        if last.undone or last.record.outcome == "skipped" or stated is None:
            return None, ""
        return self._writing(stated, last.record).plan().reflection, last.record.run

    def _run_id(self) -> str:
        """Return the id of a new pass, unlike those of other agents, of passes that ran, and of reserved ones."""
        own = blake2b(self._agent.encode(), digest_size=3).hexdigest()
        begun = {each.run for each in self._lines if each.line in (RAN, RESERVED) and self._key in each.run}
        day = self._workspace.wall()[:10].replace("-", "")
        return f"{KIND}-{day}-{self._key}{own}{f'-{len(begun) + 1}' if begun else ''}"

    def _interrupted_answer(self) -> Record | None:
        """Return the recorded answer to this very content if a crash ended its pass, else None."""
        ended = {each.run for each in self._lines if each.line == RAN}
        answers = (each for each in reversed(self._lines) if each.line == SETTLED and each.raw)
        return next((each for each in answers if self._key in each.run and each.run not in ended), None)

    def _reserve(self, record: Record) -> ReflectResult | None:
        """Reserve the maximal cost of a pass; return None, or the result of a pass that is deferred to a later day."""
        choice, limits = self._choice, self._choice.settings
        if record.reflector == RULES:
            return None
        if not choice.trouble and self._records.reserve(replace(record, usd=limits.max_usd), limits.daily_usd):
            return None
        today = self._workspace.wall()[:10]
        earlier = (each for each in self._lines if each.line == DEFERRED and each.session == record.session)
        if not any(each.at[:10] == today for each in earlier):
            self._records.append(replace(record, line=DEFERRED, usd=None, why=choice.why_deferred))
        # A session that a person named is due from now on like one whose host reported its end.
        folder = LocalFolder(os.fspath(self._workspace.root))
        if not any(each.session == record.session and each.has_ended for each in folder.heard()):
            folder.hear(record.session, record.host, self._agent, record.transcript, has_ended=True)
        return choice.deferred(record.session)

    def _ask(self, record: Record, read: digest.Digest) -> Record:
        """Return the record with the answer of the reflector; that of a model is on the disk before it is used."""
        if record.reflector == RULES:
            return replace(record, raw=msgspec.json.encode(rules.reflect(self._session)).decode(), usd=0.0, why="")
        delimiter = f"session-{self._workspace.world.entropy(8).hex()}"
        answer = Answer(trouble="it was interrupted, and counts as reserved")
        try:
            answer = reflection.ask(record.reflector, self._choice.settings, read.text, delimiter)
        finally:
            tokens = answer.tokens_in or (read.tokens if answer.text or answer.usd != 0.0 else 0)
            fields = {"usd": answer.usd, "model": answer.model, "raw": answer.text, "why": answer.trouble}
            settled = replace(record, line=SETTLED, tokens_in=tokens, tokens_out=answer.tokens_out, **fields)
            self._records.append(settled)
        return settled


def _finish(workspace: Workspace, agent: str, record: Record, plan: Plan | None = None) -> ReflectResult:
    """Append the record of a pass, durable before this returns, and notify subscribers; return the result."""
    kept = Records(workspace, agent).append(record)
    data = {"agent": agent, "saved": kept.saved, "told": kept.summary()} | kept.as_json(with_raw=False)
    title = f"{agent}: {kept.kind} {kept.outcome or 'done'}"
    Notices(workspace).send(Notice("reflection.complete", title, kept.summary(), data))
    return ReflectResult(kept.session, kept, plan, stands=(plan.reflection, kept.run) if plan else (None, ""))


def _key(session: Session) -> str:
    """Return the key of a session and its content, a part of the ids of all passes about it."""
    return blake2b(f"{session.id}\0{session.digest}".encode(), digest_size=6).hexdigest()


def _done_already(passes: Sequence[Pass], reflector: str, *, by_hand: bool) -> str:
    """Return why a session, with these passes about it, needs no further one; "" where it needs one."""
    if not passes:
        return ""
    last, undone = passes[-1].record, passes[-1].undone
    is_other = last.reflector == RULES != reflector  # a model was chosen, or agreed to, since then
    if by_hand and (undone or last.outcome == "skipped" or is_other):
        return ""
    return f"this session was reflected on already, as {last.run}{', which was undone' if undone else ''}"


# --- sessions that ended, and those of the past ---------------------------------------------------------------------


def reflect_due(workspace: Workspace, *, only: str = "", dry_run: bool = False) -> list[ReflectResult]:
    """Reflect on the sessions that ended here, or on one of them, and log each; a failing one hinders no other.

    A guest's sessions wait until an agent is named, and are then the default agent's, like the guest's log. A dry run
    plans the passes, each at its maximal cost.
    """
    choice = Choice(workspace)
    settings = choice.settings
    if settings.off or workspace.is_read_only:
        return []
    room = settings.daily_usd - records.spent(workspace, workspace.wall()[:10]) if dry_run else 0.0
    folder, results = LocalFolder(os.fspath(workspace.root)), list[ReflectResult]()
    heard = folder.heard()
    for session, whose, path, is_resumed in _due(workspace, folder, settings.idle_ms, only):
        if not (agent := workspace.default_agent() if workspace.is_guest(whose) else whose):
            continue
        try:
            if not Path(path).is_file():
                if not dry_run:
                    folder.forget_heard(session, heard)
                    results += _record_gone(workspace, agent, session)
                continue
            if choice.trouble and any(each.session == session for each in Records(workspace, agent).deferred()):
                # Known to wait: its transcript is not read again until a model can be asked.
                results.append(choice.deferred(session))
                continue
            result = reflect(workspace, agent, Path(path), dry_run=dry_run, by_hand=is_resumed)
            if dry_run and result.record is not None and result.record.reflector != RULES:
                room -= result.record.usd or 0.0
                if room < -1e-9 or choice.trouble:
                    result = choice.deferred(session)
            results.append(result)
            if not dry_run and not result.is_deferred:
                # Logged now, since the host may never report the end, or only when there is nothing new to read.
                consolidating.close_session(workspace, whose, session, *result.stands, only_log=True)
                folder.forget_heard(session, heard)
        except FleetError as why:
            results.append(ReflectResult(session, why=str(why)))
    return results


def _due(workspace: Workspace, folder: LocalFolder, idle_ms: float, only: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the one session that is named, else those that have ended, then those whose reflection was interrupted.

    Each is its id, its agent, its transcript, and whether an earlier pass was interrupted.
    """
    heard = folder.heard()
    named = [each for each in heard if each.session == only]
    for each in named or folder.due(idle_ms):
        yield each.session, each.agent, each.path, False
    known = {each.session for each in heard}  # the host will report their end, or has done so: they are due above
    for agent in [] if named else workspace.agents_here():
        for record in Records(workspace, agent).interrupted():
            if record.session not in known:
                yield record.session, agent, record.transcript, True


def _record_gone(workspace: Workspace, agent: str, session: str) -> list[ReflectResult]:
    """Record for a deferred reflection that its transcript is gone; return a result for each that was deferred."""
    deferred = [each for each in Records(workspace, agent).deferred() if each.session == session]
    gone = {"line": RAN, "at": "", "outcome": "skipped", "usd": 0.0, "why": "its transcript is gone"}
    return [_finish(workspace, agent, replace(each, **gone)) for each in deferred]


def transcript_of(workspace: Workspace, session: str = "") -> Path:
    """Return a session's transcript, by default of the last one that a host reported; raise ``NoError`` for none."""
    heard = sorted(LocalFolder(os.fspath(workspace.root)).heard(), key=lambda each: each.at_ms)
    lines = [each for agent in workspace.homes() for each in Records(workspace, agent).read() if each.transcript]
    ended = [Path(each.path) for each in heard if session in ("", each.session)]
    recorded = [Path(each.transcript) for each in lines if session in ("", each.session)]
    for path in ended[-1:] + (recorded[-1:] if session else []):
        if path.is_file():
            return path
    stored = sessions.stored(os.fspath(workspace.root))
    if session:
        named = [path for path in stored if session in (path.stem, path.parent.name)]
        named = named or [path for path in stored if session in f"{path.parent.name}/{path.stem}"]
        named = named or [path for path in stored if sessions.read(path).id == session]
        if len(named) == 1:
            return named[0]
        raise NoError(f"{'several transcripts' if named else 'no transcript'} of session {session[:80]!r} here")
    last_times = {path: max((each.at for each in sessions.read(path).events if each.at), default="") for path in stored}
    newest = max(last_times, key=last_times.__getitem__, default=recorded[-1] if recorded else None)
    if newest is None:
        raise NoError("no session of this project is known here: `fleet reflect --transcript PATH` reads one")
    return newest


def history(workspace: Workspace, agent: str, days: float, paths: Sequence[Path] = ()) -> _History:
    """Return the sessions of the last days that a pass by hand would reflect on: of ``paths``, else of this project."""
    root, since_ms = os.fspath(workspace.root), workspace.world.wall_ms() - days * _DAY_MS
    choice, passes = Choice(workspace), Records(workspace, agent).passes()
    waiting, troubles, reflected = list[_PastSession](), list[str](), 0
    for session in sessions.read_all(root, paths):
        if session.trouble:
            troubles.append(f"{Path(session.path).name} {session.trouble}")
        last = max((each.at for each in session.events), default="")
        if not session.events or (dates.to_ms(last) or since_ms) < since_ms:
            continue
        mine = [each for each in passes if _key(session) in each.record.run]
        is_undone = bool(mine) and mine[-1].undone  # only a command that names the session repeats an undone pass
        if is_undone or _done_already(mine, choice.reflector, by_hand=True):
            reflected += 1
        else:
            session_digest = digest.Digest.of(session.events, workspace.config.reflect.tokens)
            waiting.append(_PastSession(Path(session.path), session.id, session_digest.tokens, last))
    usd = 0.0 if choice.reflector == RULES else len(waiting) * choice.settings.max_usd
    return _History(sorted(waiting, key=lambda each: each.at), reflected, usd, troubles)


def reflect_all(workspace: Workspace, agent: str, waiting: Iterable[_PastSession]) -> Iterator[ReflectResult]:
    """Reflect on sessions of the past, one after the other, until the day's cap defers one."""
    for past in waiting:
        try:
            result = reflect(workspace, agent, past.path, by_hand=True)
        except (BusyError, NoError) as why:  # another process has it, or its transcript was removed meanwhile
            result = ReflectResult(past.session, why=str(why))
        yield result
        if result.is_deferred:
            return


def cited_lines(record: Record) -> list[tuple[int, str]]:
    """Return the numbered lines of a transcript that a pass drew from, screened; none where it is gone.

    The lines are searched for by the quotations of its lessons, since a transcript may have been rewritten.
    """
    texts = _texts(sessions.read(Path(record.transcript).expanduser())) if record.drawn else {}
    answer = reflection.parse(record.raw, ()).reflection
    quoted = [each for each in answer.lessons if each.quote] if answer is not None else []
    lines = _quoted_lines(texts, quoted) if quoted else sorted(texts.keys() & record.drawn)
    return [(line, one_line(screen(texts[line]).text)[:_DRAWN_CHARS_MAX]) for line in lines[:_DRAWN_SHOWN_MAX]]


def _texts(session: Session) -> dict[int, str]:
    """Return the text of each line of a transcript, by its number."""
    texts = {each.line: each.text or each.about for each in session.events}
    for objection in objections(session.events)[0]:  # a refusal without words has those of the next prompt
        texts[objection.line] = f"{objection.step}: {objection.words}"
    return texts


def _quoted_lines(texts: Mapping[int, str], lessons: Iterable[Lesson]) -> list[int]:
    """Return the lines with the quotations of lessons: the one that a lesson names, if it has it, else the first."""
    plain = {line: one_line(text).casefold() for line, text in texts.items()}
    lines = set[int]()
    for lesson in lessons:
        quote, named = one_line(lesson.quote).casefold().removesuffix("…").strip(), texts.get(lesson.line, "")
        # The rules quote the screened text, which may differ from that of the transcript.
        if quote and quote in one_line(f"{named}\n{screen(named, home=str(Path.home())).text}").casefold():
            lines.add(lesson.line)
        elif quote:
            lines.update(islice((line for line, text in plain.items() if quote in text), 1))
    return sorted(lines)
