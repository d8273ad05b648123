"""Handling of a host's events: the work that each calls for, and the agent's answer.

A hook waits for all of this, and a host for the hook: so each event imports what it needs and no more. An event has
parts that know nothing of each other: a block and a reminder, say. Each is guarded on its own, so that a fault in one
does not silence another.
"""

import json
import os
import sys
import time
import zlib
from binascii import crc32
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fleet.hosts import local
from fleet.hosts.calls import AT_THE_END, AT_THE_START, GUEST, Alarm, Call, TimeUpError, explained, is_own
from fleet.hosts.local import LocalFolder, Reflog
from fleet.hosts.payloads import CODEX, EDITING_TOOLS, Payload, Reply
from fleet.hosts.transcripts import Transcript
from fleet.learn.attempts import AttemptLog
from fleet.recall import ready, triggers
from fleet.store import homes
from fleet.store.homes import CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from pathlib import Path
    from types import ModuleType

    from fleet.store.config import Config
    from fleet.store.database import Local
    from fleet.store.workspace import Workspace

STATE_WAIT_S = 1.0
"""How long the local database is waited for: what was shown is a measure, and proves nothing."""

SOON_S = 10.0
"""After so long a session's start takes what is at hand; the rest is made ready by a process of its own."""

_ASKED_OF_AGENTS = frozenset(
    ("correct", "discover", "feedback", "gossip", "journal", "learn", "mutate", "patterns", "search", "show", "start")
)
"""Commands that fleet itself asks an agent for: they log and read here, and nothing else."""

_ABOUT_S = 0.3
"""Limit of the search for what is known about a prompt, seconds."""
_LOGGING = frozenset(("learn", "correct", "discover"))
PROMOTED, _SAID = "promoted", "said"
"""Words of what an agent's memory took in when its sessions ended, and of what a person was told of it."""
_ASKED = "asked"
_MEMORY_SEEN = "memory"
_ASK_AGAIN_MS = 60_000
"""Sessions that start within it ask the clan for news once."""
TWICE_MS = 3_000
"""A plugin and the settings may both call: two starts of one session, for one reason, this close together, are one."""


def answer(call: Call, payload: Payload) -> Reply:
    """Do what an event calls for; return what the agent is told, and the person beside it."""
    reply = _answered(call, payload)
    if payload.event == "SessionStart" and payload.source != "compact":
        reply.note = _before_anything_is_logged(call) or _promoted_since(call) or reply.note
    if reply.note and call.sets("hook") and _config(call).hook.quiet:
        reply.note = ""
    return reply


def _before_anything_is_logged(call: Call) -> str:
    """Return what a person should know of this workspace when a session starts in it, "" for nothing."""
    if not call.can_write:
        return "fleet cannot write in .fleet here: nothing of this session is logged, and nothing that is there is lost"
    if call.agent != GUEST or LocalFolder(call.root).marked_ms(GUEST):
        return ""
    LocalFolder(call.root).mark(GUEST, word=call.session or "-")
    return (
        "fleet: no agent is named in this clone. What is logged stays on this machine, as guest's, until "
        "`fleet init --agent NAME` names one, who takes it over"
    )


def _promoted_since(call: Call) -> str:
    """Return which lessons entered the agent's memory when its last sessions ended, once; "" for none."""
    told = local.Told(call.root, f"{PROMOTED}-{call.agent}")
    words = told.words()
    new = [word[len(PROMOTED) + 1 :] for word in words[_after_last(words, _SAID) :] if word.startswith(f"{PROMOTED} ")]
    if not new:
        return ""
    told.note(_SAID)
    more = f" and {len(new) - 1} more" if len(new) > 1 else ""
    return f"fleet promoted {json.loads(new[-1])!r}{more}: every session starts with it"


def _after_last(words: Sequence[str], word: str) -> int:
    """Return the place behind the last time that a word was noted."""
    return next((at for at in range(len(words), 0, -1) if words[at - 1] == word), 0)


def _answered(call: Call, payload: Payload) -> Reply:
    if payload.event in ("SessionStart", "SubagentStart"):
        return _session_start(call, payload)
    if payload.event == "PreToolUse":
        return _before_a_tool(call, payload)
    if payload.event == "PostToolUse":
        return _after_a_tool(call, payload)
    if payload.event == "Stop":
        return _stop(call, payload)
    if payload.event == "SessionEnd":
        _leave(call, AT_THE_END)  # a host waits 1.5 s then, and a sync may take longer
        return Reply()
    from fleet.app import flagging

    if payload.event == "UserPromptSubmit":
        reply = flagging.heard(call, payload)
        with call.guarded("what the clan knows was not shown"):
            news, (about, note) = _news(call), _lessons_about(call, payload)
            reply.context = "\n\n".join(filter(None, [reply.context, news, about]))
            reply.note = reply.note or note
        return reply
    return flagging.ended(call, payload, is_error=True)[1]


# --- a session's start ----------------------------------------------------------------------------------------------


def _session_start(call: Call, payload: Payload) -> Reply:
    """At a start, a resume, a clear, and after a compaction.

    A resumed session holds what it was given first, and gets what is new. After a compaction that may be gone: it gets
    all of it again, and what was new to it then is new to it still.
    """
    began_ms, lies_ready = local.now_ms(), ready.Ready(call.root, call.agent)
    if call.event == "SessionStart" and payload.source != "compact":
        Reflog(call.root, payload.cwd or call.root).pass_over()
    if payload.has_transcript and payload.source == "resume":  # a fork begins with a copy of what another one heard
        Transcript(call.told, payload.transcript).pass_over()
    told, session = call.told, local.Told(call.root, call.session)  # a subagent is told what was new to its session
    since = next(
        (int(word[6:]) for word in session.words() if word.startswith("since ") and word[6:].lstrip("-").isdigit()),
        None,
    )
    is_lost = since is not None and since != lies_ready.seen() and payload.source not in ("startup", "resume")
    made, is_whole = None if is_lost else lies_ready.start(), True
    if made is None:
        with opened(call) as workspace:
            made, is_whole = _made_in_time(call, workspace, since if is_lost else None)
    # Asked last: of two calls at once each can answer, should the other one fail.
    if payload.session and not told.is_first(f"start {payload.source or '-'}", began_ms, TWICE_MS):
        LocalFolder(call.root).mark(local.TWICE, word=call.event)
        return Reply()
    if since is None:
        session.note(f"since {lies_ready.seen()}")
    if made.news and not call.subagent:
        lies_ready.note_seen(made.generation)
    if not is_whole or (call.event == "SessionStart" and _may_ask(call)):
        _leave(call, AT_THE_START)
    holds_the_rest = payload.source == "resume" and since is not None
    shown = made.new_ids if holds_the_rest else made.ids
    _told(call, shown)
    note = _at_hand(payload.source, len(shown), len(made.new_ids))
    text = made.news if holds_the_rest else made.text
    changed = "" if call.subagent or payload.source == "compact" else _memory_changed(call)
    return Reply("\n\n".join(filter(None, [text, changed])), note=note)


def _memory_changed(call: Call) -> str:
    """Return that the agent's memory is not as its last session found it, by whomever; "" where it is."""
    name = f"{homes.current(call.root)}/{call.agent}/memory.md"
    try:
        now = f"{zlib.crc32((_root(call) / name).read_bytes()):08x}"
    except OSError:
        now = "none"
    before = LocalFolder(call.root).read(_MEMORY_SEEN, call.agent, bytes_max=80).decode("ascii", "replace").split()
    if before[:1] != [now]:
        LocalFolder(call.root).mark(_MEMORY_SEEN, call.agent, word=now)
    return f"{name} changed since the last session." if before and before[0] != now else ""


def _at_hand(source: str, shown: int, new: int) -> str:
    """Return the line that tells the person what the agent was given at a start, "" for what it had before."""
    if not shown or source == "compact":
        return ""
    return f"fleet gave this session {_counted(shown, 'lesson')}, {new:,} of them new"


def _made_in_time(call: Call, workspace: "Workspace", since: int | None) -> tuple[ready.Start, bool]:
    """Return what this session starts with, and whether it is all of it.

    A host gives up on a hook that takes too long, and then the agent starts with nothing: part of it is better.
    ``since`` is the generation from which on lessons were new to this very session, where its context is lost.
    """
    from fleet.app import starting

    again = "" if since is None else call.session
    try:
        with Alarm(SOON_S):
            return starting.SessionStart(workspace, call.agent).make(may_tidy=True, since=since, session=again), True
    except TimeUpError:
        made = starting.SessionStart(workspace, call.agent).at_once()
        call.log(
            f"the clan's lessons took longer than {SOON_S:g} s: this session starts with the memory alone, and the "
            "rest is made ready meanwhile"
        )
        return made, False
    except Exception as fault:  # noqa: BLE001 - a memory alone is better than nothing
        made = starting.SessionStart(workspace, call.agent).at_once()
        call.log(f"this session starts with the memory alone: {explained(fault)}")
        return made, True


def _may_ask(call: Call) -> bool:
    """Tell whether the clan's remote may be asked now: a person here agreed to it, and nobody asked a moment ago."""
    if local.now_ms() - LocalFolder(call.root).marked_ms(_ASKED) < _ASK_AGAIN_MS:
        return False
    with call.guarded("the clan was not asked for news"):
        with _local(call) as state:
            may = bool(state.agreed("remote"))
        if may:
            LocalFolder(call.root).mark(_ASKED, word=call.event)
        return may
    return False


# --- a prompt ---------------------------------------------------------------------------------------------------------


def _news(call: Call) -> str:
    """Return what a pull of this session's start brought, once; "" where it is not known yet, or nothing came."""
    told = call.told
    if not any(word.startswith("came ") for word in told.words()):
        return ""
    made = ready.Ready(call.root, call.agent).start()
    if made is None or not made.news or not told.claim("news"):
        return ""
    _told(call, made.new_ids)
    ready.Ready(call.root, call.agent).note_seen(made.generation)
    return made.news


def _lessons_about(call: Call, payload: Payload) -> tuple[str, str]:
    """Return the lessons that are about what a person wrote, each once a session and none of those of its start.

    Beside them the line that tells the person; "" and "" for none.
    """
    from fleet.store.relevant import databases, relevant
    from fleet.text.prompts import own_words

    sender, said = own_words(payload.prompt)
    most = _config(call).recall.at_prompts if call.sets("recall") else triggers.SHOWN_MAX
    if sender or not said or not most:
        return "", ""
    until = time.monotonic() + _ABOUT_S
    known = {id_ for word in call.told.words() if word.startswith(("lesson ", "seen ")) for id_ in word.split()[1:]}
    found = [
        hit
        for path in databases(_root(call), call.agent)
        for hit in relevant(path, said, until - time.monotonic())
        if hit.id not in known
    ]
    best = sorted(found, key=lambda hit: -hit.score)[:most]
    shown = [hit for hit in best if call.told.claim(f"lesson {hit.id}")]
    if not shown:
        return "", ""
    from fleet.app import finding

    _note_shown(call, [hit.id for hit in shown])
    rows = finding.rows(shown, local.now_ms())
    return triggers.framed(rows, f"fleet-{os.urandom(8).hex()}"), _shown(rows)


def _shown(rows: Sequence[str]) -> str:
    """Return the line that tells the person which lessons the agent was just shown."""
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"fleet showed the agent: {rows[0].removeprefix('- ')}{more}"


def _told(call: Call, ids: Sequence[str]) -> None:
    """Note what a session was given whole lists of: a prompt does not repeat it, but a step that it is about does."""
    if ids:
        call.told.note(f"seen {' '.join(ids)}")
    _note_shown(call, ids)


# --- tools ----------------------------------------------------------------------------------------------------------


def _before_a_tool(call: Call, payload: Payload) -> Reply:
    if payload.command:
        with call.guarded("whether this is a fourth try is not known"):
            blocked = AttemptLog(call.root, call.agent).verdict(call.thread, payload.command, payload.cwd)
            if blocked is not None:
                from fleet.learn import journal

                tried = blocked.tried.command
                call.log(f"a try was blocked: {tried}")
                note = f"fleet stopped try {blocked.streak.count + 1} of `{tried}`: nothing has changed since"
                return Reply(blocked=journal.message(blocked), note=note)
    with call.guarded("whether a lesson guards this step is not known"):
        if guarded := _guarded(call, payload):
            return guarded
    reply = Reply()
    with call.guarded("the lessons for this step were not shown"):
        reply.context, reply.note = _lessons_for(call, payload)
    if is_own(payload.command) and payload.tool == "Bash":
        with call.guarded("a command of fleet's own waits for a person's yes"):
            reply.runs = _run_by_path(payload.command)
    return reply


def _guarded(call: Call, payload: Payload) -> Reply | None:
    """Return what the lessons say that a person here made guards of such a step; None where none does."""
    decided = ready.Ready(call.root, call.agent).guards(time.strftime("%Y-%m-%d", time.gmtime()))
    for decision in ("deny", "ask"):
        found = triggers.due(decided.get(decision), (), payload.tool, payload.command, payload.path)
        if not found:
            continue
        ids, lessons = [pattern for pattern, _ in found], [lesson for _, lesson in found]
        _note_shown(call, ids)
        call.log(f"{decision}: a step that {', '.join(ids)} guards")
        lift = f"`fleet guard {ids[0]} off` lifts it, and is the person's to type"
        if decision == "ask":
            return Reply(asked=f"a lesson guards this step: {'; '.join(lessons)}. {lift}")
        shown = triggers.framed((f"- {lesson}" for lesson in lessons), f"fleet-{os.urandom(8).hex()}")
        said = f"Stopped by a person's decision on this machine: a lesson guards this step. {lift}.\n{shown}"
        return Reply(blocked=said, note=f"fleet stopped a step, by the guard {ids[0]}: {lessons[0]}")
    return None


def _run_by_path(command: str) -> str:
    """Return a command of fleet's own with the path of this very program for its name; "" where a person must say yes.

    By its path, so that no alias, function or other ``fleet`` of the shell that runs it comes between.
    """
    from fleet.text import shell

    words = shell.simple_words(command)
    if (
        words[:1] != ["fleet"]
        or not _ASKED_OF_AGENTS.intersection(words[1:2])
        or any(each.startswith("--dir") for each in words)
    ):
        return ""
    program = _program()
    return f"{program}{command.lstrip(' ').removeprefix('fleet')}" if shell.simple_words(program) == [program] else ""


def _program() -> str:
    """Return the path of what ``fleet`` on the PATH is, if that is the program that runs now; "" for another one."""
    from pathlib import Path
    from shutil import which

    found = Path(which("fleet") or "")
    return str(found) if found.is_absolute() and found.samefile(sys.argv[0]) else ""


def _lessons_for(call: Call, payload: Payload) -> tuple[str, str]:
    """Return the lessons that this very step is due, each once a session, and the line for the person; "" for none."""
    rows = ready.Ready(call.root, call.agent).rows()
    if not rows:
        return "", ""
    known = [word.split()[1] for word in call.told.words() if word.startswith("lesson ")]
    with call.guarded("whether a lesson is used is not known"):
        _note_use(call, payload, rows, known)
    found = triggers.due(rows, known, payload.tool, payload.command, payload.path)
    found = [each for each in found if call.told.claim(f"lesson {each[0]}")]
    if not found:
        return "", ""
    _note_shown(call, [pattern for pattern, _ in found])
    shown = [row for _, row in found]
    return triggers.framed(shown, f"fleet-{os.urandom(8).hex()}"), _shown(shown)


def _after_a_tool(call: Call, payload: Payload) -> Reply:
    reply = _judged(call, payload)
    if payload.command:
        with call.guarded("what happened is not noted"):
            _observe(call, payload)
    if payload.command and not reply.note:
        reply.note = _logged_by(payload)
    return reply


def _observe(call: Call, payload: Payload) -> None:
    """Note a commit that was made, and a lesson whose command was run after it was shown and succeeded."""
    if Reflog(call.root, payload.cwd or call.root).has_grown():
        _observing().committed(call, payload.cwd)
    used = f"use {crc32(payload.command.encode('utf-8', 'replace')):08x} "
    for word in call.told.words() if payload.has_ended else ():
        if word.startswith(used) and call.told.claim(f"used {word.split()[2]}"):
            known = ready.Ready(call.root, call.agent).rows()
            listed = known if isinstance(known, list) else []
            row = next(
                (str(each[2]) for each in listed if isinstance(each, list) and each[:1] == [word.split()[2]]), ""
            )
            _observing().note(call, "reuse", f"Reused: {row.removeprefix('- ')}")


def _observing() -> "ModuleType":
    """Return the module that notes what happened in a session; most calls need none of it."""
    from fleet.app import observing

    return observing


def _note_use(call: Call, payload: Payload, rows: object, known: Sequence[str]) -> None:
    """Note that a command is about to run which a lesson says to run that this session has been shown before."""
    shown = {*known, *(id_ for word in call.told.words() if word.startswith("seen ") for id_ in word.split()[1:])}
    if not payload.command or not shown:
        return
    about = (
        [each for each in rows if isinstance(each, list) and each[:1] and each[0] in shown]
        if isinstance(rows, list)
        else []
    )
    for pattern, row in triggers.due(about, (), payload.tool, payload.command, payload.path):
        if _observing().recommends(row, payload.command):
            call.told.note(f"use {crc32(payload.command.encode('utf-8', 'replace')):08x} {pattern}")


def _logged_by(payload: Payload) -> str:
    """Return the line that tells the person what a command of fleet's own logged, and how often that is known now."""
    if not is_own(payload.command) or not _LOGGING.intersection(payload.command.split(None, 2)[1:2]):
        return ""
    id_, _, told = payload.printed.partition("\n")[0].partition(" ")
    if id_[:2] not in ("p-", "d-") or not told:
        return ""
    promoted = "; promoted into its memory" if "\n  promoted: " in payload.printed else ""
    return f"fleet: {told}{promoted}"


def _judged(call: Call, payload: Payload) -> Reply:
    if payload.command and payload.has_ended and payload.host != CODEX:  # Codex does not tell how a command ended
        if not AttemptLog(call.root, call.agent).has_any(call.thread) and not payload.may_have_failed:
            return Reply()
        from fleet.app import flagging

        is_ok, reply = flagging.ended(call, payload, is_error=False)
        if is_ok is None:
            AttemptLog(call.root, call.agent).note_unknown(call.thread, payload.command)
        elif is_ok:
            red = AttemptLog(call.root, call.agent).turned_green(call.thread, payload.command, payload.cwd)
            won = AttemptLog(call.root, call.agent).note_success(call.thread, payload.command)
            if red:
                with call.guarded("what was fixed is not noted"):
                    _observing().note(call, "fix", f"Fixed: {red}")
            if won:
                from fleet.learn.journal import Journal

                with opened(call) as workspace:
                    for mutation in won:
                        Journal(workspace, call.agent).record_success(mutation, payload.command)
        return reply
    if payload.path and payload.tool in EDITING_TOOLS:
        AttemptLog(call.root, call.agent).note_edit(call.thread, payload.path)
    return Reply()


# --- the end of a turn, and of a session ------------------------------------------------------------------------------


def _stop(call: Call, payload: Payload) -> Reply:
    """The agent is done for now: what needs its attention is named, else what it will start with next is made ready."""
    note = ""
    with call.guarded("what was refused in this turn was not heard"):
        if payload.has_transcript and Transcript(call.told, payload.transcript).unread().has_objection():
            from fleet.app import flagging

            note = flagging.objected(call, payload)
    reason = "" if payload.is_stopping or payload.subagent else _unstated(call)
    if not reason and ready.Ready(call.root, call.agent).is_stale():
        _leave(call, AT_THE_START)
    return Reply(go_on=reason, note=note)


def _unstated(call: Call) -> str:
    """Name what was logged in this session and teaches nothing yet, each once."""
    known = call.told.words()
    asked = {word.split()[1] for word in known if word.startswith("stop ")}
    if all(word.split()[1] in asked for word in known if word.startswith("flag ")):
        return ""
    from fleet.app import flagging

    return flagging.unstated(call)


# --- what they share --------------------------------------------------------------------------------------------------


def _counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _leave(call: Call, which: str) -> None:
    """Start a process that outlives the hook, for work that nobody can wait for."""
    import subprocess

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


def _note_shown(call: Call, ids: Iterable[str]) -> None:
    """Note which lessons the session has been shown: what happens afterwards can be told from what happened before."""
    with call.guarded("what was shown is not noted"):
        from fleet.reflect.exposure import Exposures

        with _local(call) as state:
            Exposures(state).note(call.agent, call.session, ids, local.now_ms())


@contextmanager
def _local(call: Call) -> Iterator["Local"]:
    """Open the local database while a ``with`` block runs."""
    from fleet.store.database import Local

    state = Local(_root(call) / local.FOLDER / "local.db", wait_s=STATE_WAIT_S)
    try:
        yield state
    finally:
        state.close()


def _root(call: Call) -> "Path":
    from pathlib import Path

    return Path(call.root)


def _config(call: Call) -> "Config":
    """Return what ``fleet.toml`` says."""
    from fleet.store import config

    return config.load(_root(call) / CONFIG)


@contextmanager
def opened(call: Call) -> Iterator["Workspace"]:
    """Open the workspace while a ``with`` block runs; what it warns of is logged."""
    from fleet.store.workspace import Workspace

    workspace = Workspace(_root(call))
    try:
        if workspace.left_behind():
            from fleet.learn import restore

            restore.bring(workspace)
        yield workspace
    finally:
        for warning in workspace.warnings:
            call.log(f"warning: {warning}")
        workspace.close()
