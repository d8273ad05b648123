"""What fleet does when a host tells of an event: here the hook joins the verbs, and imports them only as it needs them.

An event has parts that know nothing of each other: a block and a reminder, say. Each is guarded on its own, so that a
fault in one does not silence another.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleet.hook import (
    AT_THE_END,
    AT_THE_START,
    CONFIG,
    NOTHING,
    SOON_S,
    Alarm,
    Answer,
    Call,
    TimeUpError,
    explained,
    is_set,
)
from fleet.hosts import answers, local, told
from fleet.hosts.payloads import CODEX, EDITING_TOOLS, Payload

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from fleet.keep.config import Config
    from fleet.keep.workspace import Workspace
    from fleet.learn.signals import Slim

EXIT_BLOCKED = 2
TRIGGERS_BYTES_MAX = 1024 * 1024
LISTED_MAX = 5
LOCK_WAIT_S = 5.0
"""How long a hook waits for another process: shorter than a command does, since a host waits for the hook."""

TWICE_MS = 3_000
"""A plugin and the settings may both call: two starts of one session, for one reason, this close together, are one."""

QUOTE_CHARS_MAX = 1_000
PRAISE = "validation"
"""A kind of signal that corrects nothing."""

_INJECTED = ("fleet-", "hook_context", "(p-", ";p-", "; p-", "(d-", ";d-", "; d-")
"""Without one of these nothing of ours is in a prompt, and what takes it out need not be loaded."""

STATE_IT = """\
fleet logged this as {id}: "{title}". It counts for nothing until its lesson is stated. State it now, in this turn, as \
one general sentence that would have prevented it, and then go on with the task:
  fleet learn {id} --pattern "..."
If it was no correction at all, go on: nothing needs to be done."""

STATE_ITS_CAUSE = """\
fleet logged this as {id}: "{title}". It counts for nothing until its lesson is stated. Once you know the cause, and \
in this turn, state it as one general sentence that would have prevented it:
  fleet learn {id} --pattern "..."
If it failed as it was meant to, as a test that is written first does, go on: nothing needs to be done."""

STATE_THEM = """\
{number} logged in this session {verb} no lesson yet, and so teach{es} nobody anything:
{rows}
State each as one general sentence, for example: fleet learn {first} --pattern "..."
What was no correction can be left as it is; you will not be asked again in this session."""


def answer(call: Call, payload: Payload) -> Answer:
    """Do what an event calls for; return what the host is told."""
    return _ANSWERS[payload.event](call, payload)


def _session_start(call: Call, payload: Payload) -> Answer:
    """At a start, a resume, a clear, and after a compaction: whatever is in the context of a session may be gone."""
    from fleet.keep import shown
    from fleet.recall import ready

    began_ms = time.time_ns() // 1_000_000
    text, is_whole = ready.text(call.root, call.agent), True
    if text is None:
        with _opened(call) as workspace:
            text, is_whole = _made_in_time(call, workspace)
    # Asked last: of two calls at once each can answer, should the other one fail.
    if payload.session and not told.is_first(
        call.root, call.session, f"start {payload.source or '-'}", began_ms, TWICE_MS
    ):
        local.mark(call.root, told.TWICE, data=f"{call.event}\n".encode())
        return NOTHING
    if not is_whole:
        _leave(call, AT_THE_START)
    with _guarded(call, "what was shown is not noted"):
        shown.note(call.root, call.agent, call.session, ready.ids(text), time.time_ns() // 1_000_000)
    return 0, answers.context(payload, text), ""


def _made_in_time(call: Call, workspace: "Workspace") -> tuple[str, bool]:
    """Return what this session starts with, and whether it is all of it.

    A host gives up on a hook that takes too long, and then the agent starts with nothing: part of it is better.
    """
    from fleet.cli import starting
    from fleet.keep import limits, view

    behind = view.behind(workspace)
    if behind > limits.START_BYTES_MAX:
        why = f"{behind >> 20} MB of the clan's files are not indexed yet"
    else:
        try:
            with Alarm(SOON_S):
                return starting.session_start(workspace, call.agent, may_tidy=True), True
        except TimeUpError:
            why = f"the clan's lessons took longer than {SOON_S:g} s"
        except Exception as fault:  # noqa: BLE001 - a memory alone is better than nothing
            text = starting.at_once(workspace, call.agent)
            call.log(f"this session starts with the memory alone: {explained(fault)}")
            return text, True
    text = starting.at_once(workspace, call.agent)
    call.log(f"{why}: this session starts with the memory alone, and the rest is made ready meanwhile")
    return text, False


def _prompt(call: Call, payload: Payload) -> Answer:
    """A person, or another agent, may have corrected this one: that is logged before the next reply."""
    from fleet.learn import triggers

    said = payload.prompt
    if any(mark in said.lower() for mark in _INJECTED):
        from fleet.learn import echoes

        said = echoes.strip_injected(said)
    # None means the defaults: reading what a person set takes a parser, and far longer than all else here.
    signal = triggers.detect(said, _settings(call).triggers if is_set(call.root, "triggers") else None)
    if signal is None or signal.kind == PRAISE:
        return NOTHING
    from fleet.learn import signals

    flag = signals.Flag(
        kind="agent" if signal.sender else "human",
        quote=_quoted(said, signal.excerpt),
        title=signal.excerpt,
        confidence=signal.confidence,
        heard=signal.kind,
        agent=signal.sender,
    )
    flagged = signals.flag(_ground(call), call.agent, flag, session=call.session, wait_s=LOCK_WAIT_S)
    return _state_it(call, payload, flagged.id, signal.excerpt) if flagged.is_new else NOTHING


def _quoted(said: str, excerpt: str) -> str:
    """Return a short message whole, else the sentence that told and what follows it: there stands what is right."""
    if len(said) <= QUOTE_CHARS_MAX:
        return said
    begin = max(said.find(excerpt), 0)
    return said[begin : begin + QUOTE_CHARS_MAX]


def _state_it(call: Call, payload: Payload, entry: str, title: str, words: str = STATE_IT) -> Answer:
    from fleet.keep.screening import for_terminal, one_line, screen

    told.note(call.root, call.session, f"flag {entry}")
    title = for_terminal(one_line(screen(title).text))[:120]
    return 0, answers.context(payload, words.format(id=entry, title=title)), ""


def _before_a_tool(call: Call, payload: Payload) -> Answer:
    if payload.command:
        with _guarded(call, "whether this is a fourth try is not known"):
            from fleet.learn import attempts

            blocked = attempts.verdict(call.root, call.agent, call.session, payload.command, payload.cwd)
            if blocked is not None:
                call.log(f"a try was blocked: {blocked.command}")
                return EXIT_BLOCKED, "", f"{blocked.message()}\n"
    with _guarded(call, "the lessons for this step were not shown"):
        if text := _lessons_for(call, payload):
            return 0, answers.context(payload, text), ""
    return NOTHING


def _lessons_for(call: Call, payload: Payload) -> str:
    from fleet.keep import shown
    from fleet.recall import moments

    known = told.words(call.root, call.session)
    ready = local.read(call.root, "ready", "triggers.json", bytes_max=TRIGGERS_BYTES_MAX)
    found = moments.due(
        json.loads(ready or b"[]"),
        [word.split()[1] for word in known if word.startswith("lesson ")],
        payload.tool,
        payload.command,
        payload.path,
    )
    found = [each for each in found if told.claim(call.root, call.session, f"lesson {each[0]}")]
    if not found:
        return ""
    ids = [pattern for pattern, _ in found]
    shown.note(call.root, call.agent, call.session, ids, time.time_ns() // 1_000_000)
    return moments.framed((row for _, row in found), f"fleet-{os.urandom(8).hex()}")


def _after_a_tool(call: Call, payload: Payload) -> Answer:
    from fleet.learn import attempts

    if payload.command and payload.has_ended and payload.host != CODEX:  # Codex does not tell how a command ended
        attempts.note_success(call.root, call.agent, call.session, payload.command, payload.cwd)
    elif payload.path and payload.tool in EDITING_TOOLS:
        attempts.note_edit(call.root, call.agent, call.session, payload.path)
    return NOTHING


def _after_a_failure(call: Call, payload: Payload) -> Answer:
    if payload.call and not told.claim(call.root, call.session, f"call {payload.call}"):
        return NOTHING  # a plugin and the settings may both call: one failure is one
    with _guarded(call, "the failure is not counted"):
        from fleet.learn import attempts

        attempts.note_failure(
            call.root, call.agent, call.session, payload.command, payload.error, payload.exit_code, payload.cwd
        )
    from fleet.learn import attempts, commands

    settings = attempts.read_settings(call.root) if is_set(call.root, "attempts") else None
    if not commands.is_build(payload.command, settings):
        return NOTHING
    from fleet.learn import signals

    flag = signals.failure(payload.command, payload.exit_code, payload.error)
    flagged = signals.flag(_ground(call), call.agent, flag, session=call.session, wait_s=LOCK_WAIT_S)
    return _state_it(call, payload, flagged.id, flag.title, STATE_ITS_CAUSE) if flagged.is_new else NOTHING


def _stop(call: Call, payload: Payload) -> Answer:
    """The agent is done for now: what needs its attention is named, else what it will start with next is made ready."""
    from fleet.recall import ready

    named = NOTHING if payload.is_stopping else _unstated(call)
    if named is NOTHING and ready.is_stale(call.root, call.agent):
        _leave(call, AT_THE_START)
    return named


def _unstated(call: Call) -> Answer:
    """What was logged in this session and teaches nothing yet is named, once."""
    known = told.words(call.root, call.session)
    if any(word.startswith("stop ") for word in known) or not any(word.startswith("flag ") for word in known):
        return NOTHING
    from fleet.keep.screening import for_terminal, one_line, screen
    from fleet.learn import signals

    open_ones = signals.waiting(_ground(call), call.agent, call.session)
    if not open_ones or not told.claim(call.root, call.session, "stop once"):
        return NOTHING
    rows = [f"- {each.id}: {for_terminal(one_line(screen(each.title).text))[:120]}" for each in open_ones[:LISTED_MAX]]
    if more := len(open_ones) - len(rows):
        rows.append(f"- and {more} more: `fleet status`")
    is_one = len(open_ones) == 1
    text = STATE_THEM.format(
        number="One correction" if is_one else f"{len(open_ones)} corrections",
        verb="has" if is_one else "have",
        es="es" if is_one else "",
        rows="\n".join(rows),
        first=open_ones[0].id,
    )
    return 0, answers.go_on(text), ""


def _session_end(call: Call, payload: Payload) -> Answer:  # noqa: ARG001 - every event is answered alike
    """Leave the work to a process of its own: a host waits 1.5 s at the end, and a sync may take longer."""
    _leave(call, AT_THE_END)
    return NOTHING


def _leave(call: Call, which: str) -> None:
    """Start a process that outlives the hook, for work that nobody can wait for."""
    import subprocess
    import sys

    # -P: a folder of the project that is called fleet, or json, is not ours to run.
    subprocess.Popen(
        [sys.executable, "-P", "-m", "fleet.hook", which, call.root, call.agent, call.session, call.host],
        cwd=call.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )


def make_ready(call: Call) -> str:
    """Make ready what the next session starts with; return what the log says of it."""
    from fleet.keep.errors import BusyError

    with _opened(call) as workspace:
        from fleet.cli import starting

        workspace.waits = True  # for the search index: nobody waits for us
        try:
            with workspace.disk.lock(workspace.local / "locks" / "ready.lock", 0):
                size = len(starting.session_start(workspace, call.agent, may_tidy=True))
        except BusyError:
            return "another process is making the next session's start ready"
    return f"the next session's start is ready: {size:,} characters"


def work_at_the_end(call: Call) -> str:
    """Settle, promote, and sync when somebody here has agreed to a remote; return what the log says of it."""
    with _opened(call) as workspace:
        return _exchanged(call, workspace)


def _exchanged(call: Call, workspace: "Workspace") -> str:
    from fleet.cli import desk, starting, syncing, wiring
    from fleet.keep import pause
    from fleet.keep.errors import UsageError

    with _guarded(call, "old sessions are still remembered"):
        told.prune(call.root, time.time())
    syncing.take_seat(workspace, call.agent)
    remote, why = None, "no remote is named"
    if held := pause.current(workspace):
        why = f"sharing is paused {held}"
    elif not workspace.config.hook.sync_at_end:
        why = "[hook] sync_at_end is false in fleet.toml"
    else:
        try:
            remote = syncing.clan_remote(workspace, yes=False)
        except UsageError as unconfirmed:
            why = str(unconfirmed)
    with workspace.disk.lock(workspace.local / "locks" / "sync.lock"):
        done = wiring.sync(workspace, remote)
    with _guarded(call, "the next session's start is not ready"):
        starting.session_start(workspace, call.agent)
    if remote is None:
        return f"settled; nothing was sent: {why}"
    part = ", in part" if done.is_partial else ""
    return f"synced{part}: {desk.counted(done.out, 'line')} out, {desk.counted(done.patterns_in, 'lesson')} in"


def _settings(call: Call) -> "Config":
    from fleet.keep import lean

    lean.import_pathlib()
    lean.import_msgspec()
    from pathlib import Path

    from fleet.keep import config

    return config.load(Path(call.root) / CONFIG)


def _ground(call: Call) -> "Slim":
    from fleet.keep import lean

    lean.import_pathlib()
    from pathlib import Path

    from fleet.learn.signals import Slim

    return Slim(Path(call.root))


@contextmanager
def _opened(call: Call) -> Iterator["Workspace"]:
    from fleet.keep import lean

    lean.import_pathlib()
    lean.import_msgspec()
    from pathlib import Path

    from fleet.keep.workspace import Workspace

    workspace = Workspace(Path(call.root))
    try:
        yield workspace
    finally:
        for warning in workspace.warnings:
            call.log(f"warning: {warning}")
        workspace.close()


@contextmanager
def _guarded(call: Call, means: str) -> Iterator[None]:
    try:
        yield
    except Exception as why:  # noqa: BLE001 - one part's fault is no other part's
        call.log(f"{means}: {explained(why)}")


_ANSWERS: dict[str, Callable[[Call, Payload], Answer]] = {
    "SessionStart": _session_start,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _before_a_tool,
    "PostToolUse": _after_a_tool,
    "PostToolUseFailure": _after_a_failure,
    "Stop": _stop,
    "SessionEnd": _session_end,
}
