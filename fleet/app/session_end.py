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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
_COMPLETE = "reflection.complete"
"""Event of a pass that ended."""
_HOST_CHOICE = "reflector"
"""Key in ``local.db``: the reflector that a person here chose."""
_DRAWN_MAX = 200
_DRAWN_SHOWN_MAX = 40
_DRAWN_CHARS_MAX = 600
_KNOWN_MAX = 20
_DAY_MS = 86_400_000
_NOT_AGREED = "nobody on this machine agreed to {}"


class ReflectResult(NamedTuple):
    """Result of one reflection on a session, named by its host's id.

    Attributes:
        record: as it is kept, or of a dry run would be; None where nothing was done, for the reason in ``why``.
        plan: None where there was none.
        is_deferred: it waits for a later day.
        stands: the supported part of the reflection that stands, of this pass or an earlier one, and its run.
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


class _EndedSession(NamedTuple):
    """Session that is due: its id, its agent and its transcript; whether an earlier pass was interrupted."""

    session: str
    agent: str
    path: str
    is_resumed: bool = False


class _PastSession(NamedTuple):
    """Past session without a reflection: its transcript, the approximate tokens of its digest, and its time."""

    path: Path
    session: str
    tokens: int
    at: str


class _History(NamedTuple):
    """Past sessions: those without a reflection, oldest first; the number of the others; why some are unreadable.

    ``usd``: maximal cost of reflections on those without one; 0 for the rules.
    """

    waiting: list[_PastSession]
    done: int
    usd: float
    troubles: list[str]


# --- the reflector--------------------------------------------------------------------------------------------------


class Choice:
    """Reflector of this machine and its cost, by ``fleet.toml``, the environment, and a person's yes.

    Attributes:
        settings: ``[reflect]``, overridden by the environment.
        named: the reflector of ``fleet.toml``; the host's model that a person chose here where that names none, or one
            that nobody here agreed to.
        trouble: why no model can be asked here and now, so that sessions wait: limits of the environment that nobody
            can read, or a program that is not on the PATH; "" for none.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        configured, chosen = workspace.config.reflect, workspace.state.get(_HOST_CHOICE)
        self.settings = configured.in_environment(os.environ)
        self.trouble = self.settings.unread_limits(os.environ)
        self.named: str = configured.reflector
        is_free = self.named == RULES or (self._is_agreed(str(chosen)) and not self._is_agreed(self.named))
        if chosen in reflection.CLIENTS and is_free:
            self.named = chosen
        program = next(iter(self.settings.command), "") if self.named == "command" else self.named
        if (
            self.named not in (RULES, "endpoint")
            and self._is_agreed(self.named)
            and program
            and os.sep not in program
            and not shutil.which(program)
        ):
            self.trouble = self.trouble or f"{program} is not on the PATH"
        self._offered = self.named if configured.reflector == RULES else configured.reflector

    @property
    def is_open(self) -> bool:
        """True where no reflector was chosen yet, here or by ``fleet.toml``."""
        return self.settings.reflector == RULES and not self._workspace.state.get(_HOST_CHOICE)

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
        """Return the text that a person agrees to: where a session goes, and its cost where that was raised."""
        cost = self._raised_cost()
        if reflector == "command":
            return f"command {json.dumps(self.settings.command)}{cost}"
        if reflector == "endpoint":
            return f"endpoint {self.settings.api} {self.settings.url} {self.settings.key_env}{cost}"
        return f"{reflector}{cost}"

    def _raised_cost(self) -> str:
        """Return the caps of ``fleet.toml`` where one is above its default; "" otherwise."""
        caps, usual = self._workspace.config.reflect, Reflect()
        if caps.max_usd <= usual.max_usd and caps.daily_usd <= usual.daily_usd:
            return ""
        return f" for at most ${caps.max_usd:g} a session and ${caps.daily_usd:g} a day"


def findings(workspace: Workspace, agent: str) -> Iterator[tuple[Any, ...]]:
    """Yield the findings of ``fleet doctor`` about reflection: the reflector, the day's cost, rejected answers."""
    choice = Choice(workspace)
    allowed, named = choice.settings, choice.unagreed()
    spent = records.spent(workspace, workspace.wall()[:10])
    summary = f"by {choice.named}; today ${spent:.2f} of ${allowed.daily_usd:g}"
    if allowed.off:
        yield "note", "turned off", "no session is reflected on by itself"
        return
    if named:
        do = "`fleet reflect --agree` says yes on this machine"
        yield "note", f"{named[:200]} is named and nobody agreed", "the rules are asked", do
        return
    mend = "mend the variable or the PATH, also that of a service"
    if idle := allowed.unread_idle(os.environ):
        yield "note", idle, "sessions are reflected on after that many quiet minutes", mend
    if choice.trouble and choice.named != RULES:
        yield "note", choice.trouble, "sessions wait", f"{mend}; or `fleet reflect --use rules`"
        return
    if choice.trouble:
        yield "note", choice.trouble, "nothing waits: the rules are asked, which cost nothing", mend
    agent = agent or workspace.replicas().default_agent
    lines = Records(workspace, agent).read() if agent else []
    banned = sum(each.line == RAN and "banned word" in each.why for each in lines)
    if banned:
        do = "`fleet records` shows them; the words are [reflect] banned in fleet.toml"
        many = counted(banned, "reflection")
        yield "note", f"{summary}; {many} had a banned word", "all of each was rejected", do
        return
    ledger = Records(workspace, agent) if agent else None
    number, left = (len(ledger.deferred()), len(ledger.interrupted())) if ledger else (0, 0)
    deferred = f"; {number:,} deferred to a later day" if number else ""
    yield "ok", f"{summary}{deferred}{f'; {left:,} not finished, see `fleet records`' if left else ''}"


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
        return _dry_run(workspace, agent, session, by_hand=by_hand)
    name = blake2b(session.id.encode(), digest_size=8).hexdigest()
    with ExitStack() as stack:
        try:
            stack.enter_context(workspace.lock(f"reflect-{name}", 0))
        except BusyError as why:
            raise BusyError(f"another process reflects on session {session.id[:60]}; nothing was done here") from why
        Runs(workspace).recover()
        return _run_pass(workspace, agent, session, by_hand=by_hand)


def done(workspace: Workspace, agent: str, named: str) -> tuple[list[ReflectResult], str]:
    """End a session, the newest one where none is named: reflect on it, and log what it did.

    Returns the passes, and what was written besides in a sentence, "" for nothing.

    Raises:
        NoError: there is no transcript, and nothing of the session that is not in the day's log already.
    """
    try:
        path = transcript_of(workspace, named)
    except NoError as why:  # a session without a transcript may still have observations
        if not named:
            raise
        if closing := consolidating.close_session(workspace, agent, named).summary():
            return [], closing
        raise NoError(f"{why}, and nothing of it that is not in the day's log already") from why
    reflected = reflect(workspace, agent, path, by_hand=True)
    closing = consolidating.close_session(workspace, agent, reflected.session, *reflected.stands).summary()
    if not reflected.is_deferred:
        LocalFolder(os.fspath(workspace.root)).forget_heard(reflected.session)
    return [reflected], closing


def _begin_record(workspace: Workspace, session: Session, run: str, reflector: str) -> tuple[digest.Digest, Record]:
    """Return the digest of a session, and the record of the pass so far."""
    session_digest = digest.Digest.of(session.events, workspace.config.reflect.tokens)
    left_out = "; ".join(filter(None, [session_digest.left_out.rstrip("."), session.trouble]))
    why = "" if session.events else f"not read: {session.trouble or 'the transcript tells of nothing'}"
    return session_digest, Record(
        run=run,
        session=session.id,
        host=session.host,
        transcript=str(Path(session.path).resolve()),
        reflector=reflector,
        left_out=left_out,
        why=why,
    )


def _run_pass(workspace: Workspace, agent: str, session: Session, *, by_hand: bool) -> ReflectResult:
    """Run one pass within the day's cap, or with the answer on record; return its result."""
    began, key = time.monotonic(), _key(session)
    lines = Records(workspace, agent).read()
    choice, interrupted, note = Choice(workspace), _interrupted_answer(lines, key), ""
    unagreed = choice.unagreed()
    reflector = RULES if unagreed else choice.named
    passes = Records(workspace, agent).passes()
    if why := _done_already(passes, key, reflector, by_hand=by_hand):
        last = next(each for each in reversed(passes) if _is_about(each.record.run, key))
        return ReflectResult(session.id, why=why, stands=_standing(workspace, agent, session, last))
    run = interrupted.run if interrupted is not None else _run_id(workspace.wall()[:10], agent, key, lines)
    if unagreed:
        note = f"{_NOT_AGREED.format(unagreed[:200])}: the rules were asked. `fleet reflect --agree` does"
    read, record = _begin_record(workspace, session, run, reflector)
    if not session.events:
        return _finish(workspace, agent, replace(record, outcome="skipped", usd=0.0))
    if interrupted is not None:
        answer = Answer(
            interrupted.raw, "", interrupted.usd, interrupted.tokens_in, interrupted.tokens_out, interrupted.model
        )
    elif deferred := _reserve(workspace, agent, choice, record, lines):
        return deferred
    else:
        answer = _ask(workspace, agent, session, read, record)
    parsed = reflection.parse(answer.text, workspace.config.reflect.banned)
    record = replace(
        record,
        model=answer.model,
        usd=answer.usd,
        tokens_in=answer.tokens_in or (read.tokens if reflector != RULES and (answer.text or answer.usd != 0.0) else 0),
        tokens_out=answer.tokens_out,
        raw=answer.text,
        outcome="skipped" if parsed.reflection is None else parsed.reflection.outcome,
        why="; ".join(filter(None, [answer.trouble, parsed.trouble if answer.text else "", note])),
    )
    plan = None
    if parsed.reflection is not None:
        writing = Writing(workspace, agent, session, parsed.reflection, run, is_trusted=reflector == RULES)
        plan, writers = writing.write()
        drawn_from = _quoted_lines(_texts(session), parsed.reflection.lessons)
        record = replace(record, writers=writers, drawn=tuple(drawn_from[:_DRAWN_MAX]))
    return _finish(workspace, agent, replace(record, duration_s=round(time.monotonic() - began, 3)), plan)


def _dry_run(workspace: Workspace, agent: str, session: Session, *, by_hand: bool) -> ReflectResult:
    """Return the result of a dry run: the digest's size, and the plan of the rules."""
    choice = Choice(workspace)
    unagreed = choice.unagreed()
    reflector = RULES if unagreed else choice.named
    if why := _done_already(Records(workspace, agent).passes(), _key(session), reflector, by_hand=by_hand):
        return ReflectResult(session.id, why=why)
    read, record = _begin_record(workspace, session, "", reflector)
    record = replace(record, tokens_in=read.tokens, usd=0.0 if reflector == RULES else choice.settings.max_usd)
    if unagreed and session.events:
        record = replace(
            record,
            why=f"{_NOT_AGREED.format(unagreed[:200])}: the rules would be asked. `fleet reflect --agree` says yes",
        )
    if not session.events:
        return ReflectResult(session.id, record, why=record.why)
    if choice.trouble and reflector != RULES:
        record = replace(record, usd=0.0 if by_hand else record.usd, why=choice.trouble)
    result = rules.reflect(session)
    plan = Writing(workspace, agent, session, result, "dry-run", is_trusted=True).plan()
    return ReflectResult(session.id, replace(record, outcome=result.outcome), plan)


def _finish(workspace: Workspace, agent: str, record: Record, plan: Plan | None = None) -> ReflectResult:
    """Append the record of a pass, durable before this returns, and notify subscribers; return the result."""
    kept = Records(workspace, agent).append(record)
    data = {"agent": agent, "saved": kept.saved, "told": kept.summary()} | kept.as_json(with_raw=False)
    Notices(workspace).send(Notice(_COMPLETE, f"{agent}: {kept.kind} {kept.outcome or 'done'}", kept.summary(), data))
    return ReflectResult(kept.session, kept, plan, stands=(plan.reflection, kept.run) if plan else (None, ""))


def _standing(workspace: Workspace, agent: str, session: Session, of: Pass) -> tuple[Reflection | None, str]:
    """Return the reflection of an earlier pass, as far as the session supports it, and its run; None for none."""
    record = of.record
    stated = reflection.parse(record.raw, ()).reflection
    if of.undone or record.outcome == "skipped" or stated is None:
        return None, ""
    writing = Writing(workspace, agent, session, stated, record.run, is_trusted=record.reflector == RULES)
    return writing.plan().reflection, record.run


def _key(session: Session) -> str:
    """Return the key of a session and its content: there is a pass for each."""
    return blake2b(f"{session.id}\0{session.digest}".encode(), digest_size=6).hexdigest()


def _done_already(passes: Sequence[Pass], key: str, reflector: str, *, by_hand: bool) -> str:
    """Return why a session needs no further pass; "" where it needs one."""
    passes = [each for each in passes if _is_about(each.record.run, key)]
    last = passes[-1].record if passes else None
    is_other = last is not None and last.reflector == RULES != reflector  # chosen, or agreed to, since then
    if last is None or (by_hand and (passes[-1].undone or last.outcome == "skipped" or is_other)):
        return ""
    undone = ", which was undone" if passes[-1].undone else ""
    return f"this session was reflected on already, as {passes[-1].record.run}{undone}"


def _run_id(day: str, agent: str, key: str, lines: Sequence[Record]) -> str:
    """Return the id of a new pass, which no other agent's has, and no pass that ran or may have been paid for."""
    own = blake2b(agent.encode(), digest_size=3).hexdigest()
    earlier = len({each.run for each in lines if each.line in (RAN, RESERVED) and _is_about(each.run, key)})
    return f"{KIND}-{day.replace('-', '')}-{key}{own}{f'-{earlier + 1}' if earlier else ''}"


def _is_about(run: str, key: str) -> bool:
    return any(part.startswith(key) for part in run.split("-"))


def _interrupted_answer(lines: Sequence[Record], key: str) -> Record | None:
    """Return the answer on record to this very content whose pass a crash ended; None for none."""
    ended = {each.run for each in lines if each.line == RAN}
    answers = (each for each in reversed(lines) if each.line == SETTLED and each.raw and _is_about(each.run, key))
    return next((each for each in answers if each.run not in ended), None)


def _reserve(
    workspace: Workspace, agent: str, choice: Choice, record: Record, lines: Sequence[Record]
) -> ReflectResult | None:
    """Reserve the maximal cost of a pass; return None, or the result of a pass that is deferred to a later day."""
    ledger = Records(workspace, agent)
    max_usd, daily_usd = choice.settings.max_usd, choice.settings.daily_usd
    if record.reflector == RULES:
        return None
    if not choice.trouble and ledger.reserve(replace(record, usd=max_usd), daily_usd):
        return None
    today, why = workspace.wall()[:10], _no_room(choice)
    if not any(each.line == DEFERRED and each.session == record.session and each.at[:10] == today for each in lines):
        ledger.append(replace(record, line=DEFERRED, usd=None, why=why))
    # A session that a person named is due from now on like one whose host reported its end.
    folder = LocalFolder(os.fspath(workspace.root))
    if not any(each.session == record.session and each.has_ended for each in folder.heard()):
        folder.hear(record.session, record.host, agent, record.transcript, has_ended=True)
    return ReflectResult(record.session, why=f"deferred: {why}", is_deferred=True)


def _no_room(choice: Choice) -> str:
    """Return why a pass is deferred, in a sentence."""
    if choice.trouble:
        return choice.trouble
    settings = choice.settings
    is_later = settings.max_usd <= settings.daily_usd
    later = "it runs on a later day (UTC)" if is_later else "no day has; raise daily_usd, or lower max_usd"
    return f"the day's cap of ${settings.daily_usd:g} leaves no room for ${settings.max_usd:g}: {later}"


def _ask(workspace: Workspace, agent: str, session: Session, session_digest: digest.Digest, record: Record) -> Answer:
    """Return the answer of the reflector, which is on record with its cost before it is used."""
    if record.reflector == RULES:
        return Answer(msgspec.json.encode(rules.reflect(session)).decode(), usd=0.0)
    settings, delimiter = Choice(workspace).settings, f"session-{workspace.world.entropy(8).hex()}"
    lessons = list(workspace.patterns.best_texts(_KNOWN_MAX).values())
    answer = Answer(trouble="it was interrupted, and counts as reserved")
    try:
        answer = reflection.ask(record.reflector, settings, session_digest.text, delimiter, lessons)
    finally:
        fields = {"usd": answer.usd, "model": answer.model, "raw": answer.text, "why": answer.trouble}
        read, written = answer.tokens_in, answer.tokens_out
        Records(workspace, agent).append(replace(record, line=SETTLED, tokens_in=read, tokens_out=written, **fields))
    return answer


# --- sessions that ended, and those of the past ---------------------------------------------------------------------


def reflect_due(workspace: Workspace, *, only: str = "", dry_run: bool = False) -> list[ReflectResult]:
    """Reflect on the sessions that ended here, or on one of them, and log each; a failing one hinders no other.

    Those whose reflection a crash ended are among them.

    A guest's wait until an agent is named, and are the default agent's then, as the guest's log is. A dry run plans
    them, each at its maximal cost.
    """
    choice = Choice(workspace)
    settings = choice.settings
    if settings.off or workspace.is_read_only:
        return []
    room = settings.daily_usd - records.spent(workspace, workspace.wall()[:10]) if dry_run else 0.0
    root, results = os.fspath(workspace.root), list[ReflectResult]()
    for session in _due(workspace, settings.idle_min * 60_000, only):
        is_guest = workspace.is_guest(session.agent)
        if not (agent := workspace.replicas().default_agent if is_guest else session.agent):
            continue
        try:
            if not Path(session.path).is_file():
                if not dry_run:
                    results += _forget(workspace, agent, session.session)
                continue
            if choice.trouble and any(each.session == session.session for each in Records(workspace, agent).deferred()):
                # Known to wait: its transcript is not read again until a model can be asked.
                results.append(ReflectResult(session.session, why=f"deferred: {_no_room(choice)}", is_deferred=True))
                continue
            result = reflect(workspace, agent, Path(session.path), dry_run=dry_run, by_hand=session.is_resumed)
            if dry_run and result.record is not None and result.record.usd:
                room -= result.record.usd
                if room < -1e-9 or choice.trouble:
                    result = ReflectResult(session.session, why=f"deferred: {_no_room(choice)}", is_deferred=True)
            results.append(result)
            if not dry_run and not result.is_deferred:
                # Nobody else may: the host may never report its end, or report it when there is nothing new to read.
                consolidating.close_session(workspace, session.agent, session.session, *result.stands, only_log=True)
                LocalFolder(root).forget_heard(session.session)
        except FleetError as why:
            results.append(ReflectResult(session.session, why=str(why)))
    return results


def _due(workspace: Workspace, idle_ms: float, only: str) -> list[_EndedSession]:
    """Return the one session that is named, else those that have ended, then those whose reflection was interrupted."""
    folder = LocalFolder(os.fspath(workspace.root))
    heard = folder.heard()
    if named := [_EndedSession(each.session, each.agent, each.path) for each in heard if each.session == only]:
        return named
    interrupted = [
        _EndedSession(each.session, agent, each.transcript, is_resumed=True)
        for agent in workspace.agents_here()
        for each in Records(workspace, agent).interrupted()
        if not any(one.session == each.session for one in heard)  # its end is still to come, or it is due for that
    ]
    return [*(_EndedSession(each.session, each.agent, each.path) for each in folder.due(idle_ms)), *interrupted]


def _forget(workspace: Workspace, agent: str, session: str) -> list[ReflectResult]:
    """Forget a session whose transcript is gone; return what is on record of it, where it was deferred."""
    LocalFolder(os.fspath(workspace.root)).forget_heard(session)
    deferred = [each for each in Records(workspace, agent).deferred() if each.session == session]
    gone = {"line": RAN, "at": "", "outcome": "skipped", "usd": 0.0, "why": "its transcript is gone"}
    return [_finish(workspace, agent, replace(each, **gone)) for each in deferred]


def transcript_of(workspace: Workspace, session: str = "") -> Path:
    """Return a session's transcript, by default of the last one that a host reported; raise ``NoError`` for none."""
    heard = sorted(LocalFolder(os.fspath(workspace.root)).heard(), key=lambda each: each.at_ms)
    paths = [Path(each.path) for each in heard if not session or each.session == session]
    if paths and paths[-1].is_file():
        return paths[-1]
    records_here = [each for agent in workspace.homes() for each in Records(workspace, agent).read() if each.transcript]
    recorded = [Path(each.transcript) for each in records_here if not session or each.session == session]
    if session and recorded and recorded[-1].is_file():
        return recorded[-1]
    stored = sessions.stored(os.fspath(workspace.root))
    if session:
        named = [path for path in stored if session in (path.stem, path.parent.name)]
        named = named or [path for path in stored if session in path.stem or session in path.parent.name]
        named = named or [path for path in stored if sessions.read(path).id == session]
        if len(named) == 1:
            return named[0]
        raise NoError(f"{'several transcripts' if named else 'no transcript'} of session {session[:80]!r} here")
    last_times = {path: max((each.at for each in sessions.read(path).events if each.at), default="") for path in stored}
    newest = max(last_times, key=last_times.__getitem__, default=recorded[-1] if recorded else None)
    if newest is None:
        raise NoError(
            "no session of this project is known here: `fleet reflect --transcript PATH` reads one by its file"
        )
    return newest


def history(workspace: Workspace, agent: str, days: float, paths: Sequence[Path] = ()) -> _History:
    """Return the sessions of so many days that a pass by hand would reflect on, and their maximal cost.

    ``paths``: transcripts, or folders of them; by default those that hosts keep of this project.
    """
    root, since_ms = os.fspath(workspace.root), workspace.world.wall_ms() - days * _DAY_MS
    choice, passes = Choice(workspace), Records(workspace, agent).passes()
    reflector = RULES if choice.unagreed() else choice.named
    waiting, troubles, reflected = list[_PastSession](), list[str](), 0
    for session in sessions.read_all(root, paths):
        if session.trouble:
            troubles.append(f"{Path(session.path).name} {session.trouble}")
        last = max((each.at for each in session.events), default="")
        if not session.events or (dates.to_ms(last) or since_ms) < since_ms:
            continue
        mine = [each for each in passes if _is_about(each.record.run, _key(session))]
        is_undone = bool(mine) and mine[-1].undone  # only a command that names the session brings that back
        if is_undone or _done_already(mine, _key(session), reflector, by_hand=True):
            reflected += 1
        else:
            session_digest = digest.Digest.of(session.events, workspace.config.reflect.tokens)
            waiting.append(_PastSession(Path(session.path), session.id, session_digest.tokens, last))
    usd = 0.0 if reflector == RULES else len(waiting) * choice.settings.max_usd
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

    They are those that have the quotations of its lessons now: a transcript may have been written anew.
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
        step = " ".join(
            filter(None, ["refused" if objection.kind == "rejection" else "stopped", objection.tool, objection.about])
        )
        texts[objection.line] = f"{step}: {objection.words}"
    return texts


def _quoted_lines(texts: Mapping[int, str], lessons: Iterable[Lesson]) -> list[int]:
    """Return the lines with the quotations of lessons: the one that a lesson names, if it has it, else the first."""
    plain = {line: one_line(text).casefold() for line, text in texts.items()}
    lines = set[int]()
    for lesson in (each for each in lessons if each.quote):
        quote = one_line(lesson.quote).casefold().removesuffix("…")
        named = texts.get(lesson.line, "")
        if not quote.strip():
            continue
        if named and any(
            quote in one_line(each).casefold() for each in (named, screen(named, home=str(Path.home())).text)
        ):
            lines.add(lesson.line)
        else:
            lines.update(islice((line for line, text in plain.items() if quote in text), 1))
    return sorted(lines)
