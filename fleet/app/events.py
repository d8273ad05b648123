"""Handlers of a host's events: the work that each event calls for, and the reply to the agent.

A host waits until its hook has ended, so each event imports only what it needs. The parts of an event, such as a
refusal and a reminder, are guarded one by one, so that a fault in one does not silence another.
"""

import json
import os
import re
import sys
import time
from binascii import crc32
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from fleet.hosts import local
from fleet.hosts.local import AT_THE_END, AT_THE_START, GUEST, Call, LocalFolder, Reflog, TimeUpError, explained
from fleet.hosts.payloads import EDITING_TOOLS, ID_CHARS_MAX, Payload, Reply, parsed
from fleet.hosts.transcripts import Transcript
from fleet.learn.attempts import AttemptLog
from fleet.recall import triggers
from fleet.recall.ready import Ready, Start
from fleet.store import homes
from fleet.store.homes import CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from pathlib import Path
    from types import ModuleType

    from fleet.app.flagging import Flagging
    from fleet.store.config import Config
    from fleet.store.database import Local
    from fleet.store.workspace import Workspace
    from fleet.text.prompts import Prompt

_STATE_WAIT_S = 1.0
"""Time to wait for the local database. A lesson that is not noted as shown only lacks in statistics."""

_OWN_COMMANDS = frozenset(
    str.split("correct discover feedback gossip journal learn mutate patterns search show start status")
)
"""Commands that fleet itself asks an agent to run: they only log and read on this machine."""

_SEARCH_S = 0.3
"""Limit of the search for the lessons about a prompt, seconds."""
_CANNOT_WRITE = (
    "fleet cannot write in .fleet here: you are told of each correction that is not logged, and nothing that is there "
    "is lost"
)
_OF_GUEST = "What is logged stays on this machine, as guest's, until `fleet init --agent NAME` takes it over"
_LOGGING = frozenset(str.split("learn correct discover"))
_OF_SERVER = "mcp__"
_TASK_ENDED = "<task-notification"
_LOOKING = frozenset(str.split("describe fetch find get list read search show"))
"""Words in the names of MCP tools that only read. Any other tool may have changed what a failed command needs."""
PROMOTED, _SHOWN = "promoted", "said"
"""Notes of an agent: a lesson was promoted when a session ended; a person was shown the notes before this one."""
_ASKED = "asked"
_MEMORY_SEEN = "memory"
_LAST = "last"
"""Mark of an agent: the session that started or ended last, which is the one that a clear ends."""
_ASK_AGAIN_MS = 60_000
"""Sessions that start within this time ask the clan for news once."""
_TWICE_MS = 3_000
"""Two starts of a session for the same reason within this time are one: a plugin and the settings may both call."""


def answer(call: Call, payload: Payload) -> Reply:
    """Do the work of an event; return the reply to the agent, with the line for the person."""
    call.agent = _named(call)
    event = _HostEvent(call, payload)
    reply = event.reply()
    if payload.event == "SessionStart" and payload.source != "compact":
        reply.warning = event.workspace_warning() or reply.warning
        reply.note = "" if reply.warning else event.promoted_since() or reply.note
    elif (reply.context or reply.go_on) and not payload.event.endswith("Start") and event.is_of_version_1():
        reply.context = reply.go_on = ""  # every command that it asks for would fail; a start names the upgrade
    if reply.note and call.sets("hook") and _config(call).hook.quiet:
        reply.note = ""
    return reply


def _named(call: Call) -> str:
    """Return the agent to act as; for a guest, the default agent if this machine named it without a note of that."""
    folder = LocalFolder(call.root)
    is_told = os.environ.get("FLEET_AGENT") or os.environ.get("FLEET_REPLICA")
    if call.agent != GUEST or is_told or not folder.default_agent():
        return call.agent
    with call.guarded("who works here is not known"), opened(call) as workspace:
        if agent := workspace.default_agent():
            folder.name(agent)
            return agent
    return GUEST


class _HostEvent:
    """Handler of one event: the call, its payload, and the files here that events read and write."""

    def __init__(self, call: Call, payload: Payload) -> None:
        self._call, self._payload = call, payload
        self._notes = call.notes
        self._folder = LocalFolder(call.root)
        self._ready = Ready(call.root, call.agent)
        self._attempts = AttemptLog(call.root, call.agent)
        self._fault = ""  # why a session starts with the memory alone

    def reply(self) -> Reply:
        return {
            "SessionStart": self._session_start,
            "SubagentStart": self._session_start,
            "UserPromptSubmit": self._prompt,
            "PreToolUse": self._before_a_tool,
            "PostToolUse": self._after_a_tool,
            "PostToolUseFailure": self._after_a_failure,
            "Stop": self._stop,
            "SessionEnd": self._session_end,
        }[self._payload.event]()

    def _flagging(self) -> "Flagging":
        """Return the detector of corrections, which is imported late: most calls do not need it."""
        from fleet.app.flagging import Flagging

        return Flagging(self._call)

    def is_of_version_1(self) -> bool:
        """Return whether fleet 0.1 made this workspace, and no ``fleet upgrade`` has converted it."""
        if homes.read(f"{self._call.root}/clan-learnings/.fleet-format", 1):
            return False  # nearly always: a workspace need not be loaded for it
        with opened(self._call) as workspace:
            return workspace.is_of_version_1

    # --- a session's start --------------------------------------------------------------------------------------------

    def workspace_warning(self) -> str:
        """Return a warning about this workspace for the person, when a session starts; "" for none."""
        call = self._call
        if not call.can_write:
            return _CANNOT_WRITE
        if call.agent == GUEST and (named := os.environ.get("FLEET_AGENT") or GUEST) != GUEST:
            wrong = f"FLEET_AGENT={named[:40]!r} cannot be an agent's name (a-z, 0-9, '-' and '_'): mend that first"
            return f"fleet: {wrong}. {_OF_GUEST}"
        here = self._folder.bind().encode()
        if call.agent != GUEST or self._folder.read(GUEST, bytes_max=80).startswith(here + b" "):
            return ""
        self._folder.mark(GUEST, word=here.decode())
        return f"fleet: no agent is named in this clone. {_OF_GUEST}"

    def promoted_since(self) -> str:
        """Return a line about the lessons promoted when the agent's last sessions ended, once; "" for none."""
        notes, new = local.SessionNotes(self._call.root, f"{PROMOTED}-{self._call.agent}"), list[str]()
        for note in notes.all():
            if note == _SHOWN:
                new = []
            elif note.startswith(f"{PROMOTED} "):
                new.append(note[len(PROMOTED) + 1 :])
        if not new:
            return ""
        notes.add(_SHOWN)
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        return f"fleet promoted {json.loads(new[-1])!r}{more}: every session starts with it"

    def _session_start(self) -> Reply:
        """Return the context of a session's start, also of one after a resume, a clear or a compaction.

        A resumed session still has its first context, and gets only the news. A compaction may have removed that
        context, so the session gets all of it again, and the same lessons are new. To a session after a clear those
        lessons are new that were new to the cleared session.
        """
        call, payload, began_ms = self._call, self._payload, local.now_ms()
        if call.event == "SessionStart" and payload.source != "compact":
            Reflog(call.root, payload.cwd or call.root).pass_over()
        if payload.has_transcript and payload.source == "resume":  # a fork begins with a copy of another transcript
            Transcript(self._notes, payload.transcript).pass_over()
        session = local.SessionNotes(call.root, call.session)  # a subagent is shown what was new to its session
        since = next(map(str.split, session.of("since") or self._cleared(session)), [])
        seen = self._ready.seen()
        if since not in ([], seen) and payload.source not in ("startup", "resume"):  # the context was lost
            start = self._make(since, [call.session, *session.of("cleared")])
        else:
            start = self._ready.start() or self._make()
        # Checked last: if one of two simultaneous calls has failed, the other one must still answer.
        if payload.session and not self._notes.is_first(f"start {payload.source or '-'}", began_ms, _TWICE_MS):
            return Reply()
        if not session.of("since"):
            session.add(f"since {' '.join(since or seen)}")
        if not call.subagent:
            self._folder.mark(_LAST, call.agent, word=call.session)
            self._ready.note_seen(start.mark if start.news else "")
        if call.event == "SessionStart" and self._may_ask():
            _start_process(call, AT_THE_START)
        return self._reply_at_start(start, has_the_rest=payload.source == "resume" and bool(since))

    def _cleared(self, session: local.SessionNotes) -> list[str]:
        """Note the sessions that clears replaced by this one; return what the agent had seen when the first started."""
        if self._payload.source != "clear":
            return []
        word = self._folder.read(_LAST, self._call.agent, bytes_max=ID_CHARS_MAX).decode("ascii", "replace")
        last = word.partition(" ")[0]
        before = local.SessionNotes(self._call.root, last)
        for each in (last, *before.of("cleared")):
            session.add(f"cleared {each}")
        return before.of("since")

    def _reply_at_start(self, start: Start, *, has_the_rest: bool) -> Reply:
        """Return the reply with the context, or with the news alone if the session has the rest, and its notes."""
        source, text, shown = self._payload.source, start.text, start.ids
        if has_the_rest:
            text, shown = start.news, start.new_ids
        self._note_given(shown)
        reply = Reply(text)
        if self._call.subagent:
            return reply
        reply.warning = self._fault
        question = "" if has_the_rest else self._ready.question(start, self._running, is_shown=True)
        reply.context = "\n\n".join(filter(None, [text, question]))
        if source != "compact":
            reply.note = _note_of_given(shown, {*start.new_ids} & {*shown})
            reply.context = "\n\n".join(filter(None, [reply.context, self._memory_changed()]))
            reply.warning = start.warning or ("" if reply.note else self._fault)
        return reply

    def _running(self) -> set[str]:
        """Return the corrections that were flagged in other sessions which are still running."""
        idle_ms = _config(self._call).reflect.in_environment(os.environ).idle_ms
        return self._folder.flagged_meanwhile(idle_ms, self._call.session)

    def _memory_changed(self) -> str:
        """Return a sentence if the agent's memory has changed since its last session started, else ""."""
        call = self._call
        name = f"{homes.Homes(call.root).current()}/{call.agent}/memory.md"
        now = self._ready.sums()[name].rpartition("-")[2] or "none"
        before = self._folder.read(_MEMORY_SEEN, call.agent, bytes_max=80).decode("ascii", "replace").split()
        if before[:1] != [now]:
            self._folder.mark(_MEMORY_SEEN, call.agent, word=now)
        return f"{name} changed since the last session." if before and before[0] != now else ""

    def _make(self, seen: Sequence[str] = (), sessions: Sequence[str] = ()) -> Start:
        """Return the context of this session's start; the memory alone after a fault, or when the hook's time is up.

        For a lost context: ``seen``, what the agent had seen at its start; ``sessions``, this one and cleared ones.
        """
        from fleet.app.starting import SessionStart

        with opened(self._call) as workspace:
            start = SessionStart(workspace, self._call.agent)
            try:
                return start.make(may_tidy=True, seen=seen, sessions=sessions)
            except (Exception, TimeUpError) as why:  # noqa: BLE001 - a memory alone is better than nothing
                fault = f"this session starts with the memory alone: {explained(why)}"
                self._call.log(fault)
                self._fault = fault if str(why) else ""  # that time was up tells a person nothing
                return start.at_once()

    def _may_ask(self) -> bool:
        """Return whether the clan's remote may be asked now: a person here agreed, and nobody asked a moment ago."""
        if local.now_ms() - self._folder.marked_ms(_ASKED) >= _ASK_AGAIN_MS:
            with self._call.guarded("the clan was not asked for news"), _local(self._call) as state:
                if state.agreed("remote"):
                    self._folder.mark(_ASKED, word=self._call.event)
                    return True
        return False

    # --- a prompt -----------------------------------------------------------------------------------------------------

    def _prompt(self) -> Reply:
        """Return what was logged of a prompt, and the lessons about it. A typed prompt lets stopped commands run."""
        from fleet.text.prompts import Prompt

        reply, prompt = self._flagging().on_prompt(self._payload), Prompt(self._payload.prompt)
        with self._call.guarded("that a person has spoken is not noted"):
            if prompt.is_typed or self._payload.prompt.lstrip().startswith(_TASK_ENDED):
                self._attempts.note_change(self._call.thread)
        with self._call.guarded("what the clan knows was not shown"):
            (news, note), (about, more) = self._news(), self._lessons_for_prompt(prompt, Start.ids_in(reply.context))
            reply.context = "\n\n".join(filter(None, [reply.context, news, about]))
            reply.note = "; ".join(filter(None, [reply.note, note, more]))
        return reply

    def _news(self) -> tuple[str, str]:
        """Return the lessons that were fetched at this session's start, once, and the line for the person."""
        if not self._notes.of("came"):
            return "", ""
        start = self._ready.start()
        if start is None or not start.news or not self._notes.claim("news"):
            return "", ""
        self._note_given(start.new_ids)
        self._ready.note_seen(start.mark)
        return start.news, _note_of_given(start.new_ids, start.new_ids)

    def _lessons_for_prompt(self, prompt: "Prompt", named: Sequence[str]) -> tuple[str, str]:
        """Return the lessons about a prompt that this session was not shown yet, and the line for the person.

        ``named``: ids of lessons that the reply names already.
        """
        from fleet.store.relevant import relevant

        call = self._call
        sender, text = prompt.own_words()
        most = _config(call).recall.at_prompts if call.sets("recall") else triggers.SHOWN_MAX
        if sender or not text or not most:
            return "", ""
        shown_ids = self._known() | {*named}
        hits = [hit for hit in relevant(_root(call), call.agent, text, _SEARCH_S) if hit.id not in shown_ids]
        shown = [hit for hit in hits[:most] if self._notes.claim(f"{self._kind('lesson')} {hit.id}")]
        if not shown:
            return "", ""
        from fleet.app import finding

        _note_shown(call, [hit.id for hit in shown])
        remarks = {each: remark for each, trigger, remark in self._ready.rows() if not trigger}
        return _framed(finding.rows(shown, local.now_ms(), remarks))

    def _known(self) -> set[str]:
        """Return the ids of the lessons that this session has been shown, and has not lost to a compaction."""
        notes, kinds = (note.split() for note in self._notes.all()), [self._kind("lesson"), self._kind("seen")]
        return {id_ for kind, *ids in filter(None, notes) if kind in kinds for id_ in ids}

    def _kind(self, word: str) -> str:
        """Return the kind of note for shown lessons. Each compaction changes it, since they leave the context then."""
        return f"{word}{self._notes.all().count('start compact') or ''}"

    def _note_given(self, ids: Sequence[str]) -> None:
        """Note lessons that were shown, so that no prompt repeats them. The step that a lesson is about still does."""
        if ids:
            self._notes.add(f"{self._kind('seen')} {' '.join(ids)}")
        _note_shown(self._call, ids)

    # --- tools --------------------------------------------------------------------------------------------------------

    def _before_a_tool(self) -> Reply:
        call, payload = self._call, self._payload
        if payload.command:
            with call.guarded("whether this is a fourth try is not known"):
                if stopped := self._stopped_try():
                    return stopped
        self._renew_tables()
        with call.guarded("whether a lesson guards this step is not known"):
            if guarded := self._guarded():
                return guarded
        if payload.tool.startswith(_OF_SERVER) and not _only_looks(payload.tool):
            with call.guarded("what a tool may have changed is not noted"):
                self._attempts.note_change(call.thread)
        reply = Reply()
        with call.guarded("the lessons for this step were not shown"):
            rows = self._ready.rows()
            with call.guarded("whether a lesson is used is not known"):
                self._note_use(rows)
            if not payload.can("late"):
                reply.context, reply.note = self._lessons_for_step(rows)
        if payload.is_own and payload.tool == "Bash":
            with call.guarded("a command of fleet's own waits for a person's yes"):
                reply.runs = _run_by_path(payload.command)
        return reply

    def _stopped_try(self) -> Reply | None:
        """Return the refusal of a command that has failed three times and is unchanged; None where it may run."""
        blocked = self._attempts.verdict(self._call.thread, self._payload.command, self._payload.cwd)
        if blocked is None:
            return None
        from fleet.learn import journal

        tried = blocked.tried.command
        self._call.log(f"a try was blocked: {tried}")
        note = f"fleet stopped try {blocked.streak.count + 1} of `{tried}`: nothing has changed since"
        return Reply(blocked=journal.message(blocked), note=note)

    def _guarded(self) -> Reply | None:
        """Return the refusal, or the question, of the lessons that guard this step here; None where none does."""
        guards = self._ready.guards(time.strftime("%Y-%m-%d", time.gmtime()))
        for decision in ("deny", "ask"):
            due = self._due(guards.get(decision, ()), ())
            if not due:
                continue
            ids, lessons = [pattern for pattern, _ in due], [lesson for _, lesson in due]
            _note_shown(self._call, ids)
            self._call.log(f"{decision}: a step that {', '.join(ids)} guards")
            lift = f"`fleet guard {ids[0]} off` lifts it, and is the person's to type"
            if decision == "ask" and self._payload.can("ask"):
                return Reply(asked=f"a lesson guards this step: {'; '.join(lessons)}. {lift}")
            shown, _ = _framed([f"- {lesson}" for lesson in lessons])
            why = "Stopped by a person's decision on this machine"
            if decision == "ask":
                why = "A person is to be asked first, which this host cannot do: ask the person yourself"
            refusal = f"{why}: a lesson guards this step. {lift}.\n{shown}"
            return Reply(blocked=refusal, note=f"fleet stopped a step, by the guard {ids[0]}: {lessons[0]}")
        return None

    def _due(self, rows: Sequence[Sequence[str]], but: Sequence[str]) -> list[tuple[str, str]]:
        return triggers.due(rows, but, self._payload.tool, self._payload.command, *self._payload.paths)

    def _renew_tables(self) -> None:
        """Rebuild the tables of triggers and guards if one of them is outdated."""
        if self._call.can_write and (self._ready.is_table_old() or self._ready.are_guards_old()):
            with self._call.guarded("the lessons for this step are as they were"):
                self._make()

    def _lessons_for_step(self, rows: list[list[str]]) -> tuple[str, str]:
        """Return the lessons that are due at this step, each once a session, and the line for the person."""
        kind = self._kind("lesson")
        shown_ids = self._notes.of(kind)
        due = [each for each in self._due(rows, shown_ids) if self._notes.claim(f"{kind} {each[0]}")]
        if not due:
            return "", ""
        _note_shown(self._call, [pattern for pattern, _ in due])
        return _framed([row for _, row in due])

    def _note_use(self, rows: list[list[str]]) -> None:
        """Note the use of a command that a lesson recommends, if this session was shown the lesson before."""
        command = self._payload.command
        shown_ids = self._known() if command else ()
        for pattern, row in self._due([row for row in rows if row[0] in shown_ids], ()):
            if _observing().recommends(row, command):
                self._notes.add(f"{_use_of(command)} {pattern}")

    def _after_a_tool(self) -> Reply:
        reply = self._note_end()
        if self._payload.command:
            with self._call.guarded("what happened is not noted"):
                self._observe()
            note, id_ = _note_of_own_command(self._payload), self._payload.call
            if note and (not id_ or self._notes.claim(f"call {id_}")):
                reply.note = reply.note or note
        return self._with_lessons(reply)

    def _after_a_failure(self) -> Reply:
        _, reply = self._flagging().on_command_end(self._payload, is_error=True)
        return self._with_lessons(reply)

    def _with_lessons(self, reply: Reply) -> Reply:
        """Return a reply with the lessons for the step that has just ended, where the host shows none before it."""
        if self._payload.can("late"):
            self._renew_tables()
            with self._call.guarded("the lessons for this step were not shown"):
                context, note = self._lessons_for_step(self._ready.rows())
                reply.context = "\n\n".join(filter(None, [reply.context, context]))
                reply.note = reply.note or note
        return reply

    def _observe(self) -> None:
        """Note new commits, and lessons that were used: shown first, then their command was run and succeeded."""
        call, payload = self._call, self._payload
        if Reflog(call.root, payload.cwd or call.root).has_grown(payload.command, call.session):
            _observing().note_commits(call, payload.cwd)
        for pattern in self._notes.of(_use_of(payload.command)) if payload.has_ended else ():
            if self._notes.claim(f"used {pattern}"):
                row = next((each[2] for each in self._ready.rows() if each[0] == pattern), "")
                # Without the right way and the evidence, which would not fit: a truncated line is not counted.
                text = re.split(r" — right: | \([^()]*\)$", row.removeprefix("- "), maxsplit=1)[0]
                _observing().note(call, "reuse", f"Reused: {text}")

    def _note_end(self) -> Reply:
        """Note how a command ended, or that a file was edited: streaks of failures are counted from these."""
        call, payload, attempts = self._call, self._payload, self._attempts
        if not payload.command or not payload.has_ended or not payload.knows_end:
            for path in payload.paths if payload.tool in EDITING_TOOLS else ():
                attempts.note_change(call.thread, path)
            if payload.command:
                attempts.note_unknown(call.thread, payload.command)
            return Reply()
        if not attempts.has_any(call.thread) and not payload.may_have_failed:
            return Reply()
        is_ok, reply = self._flagging().on_command_end(payload, is_error=False)
        if is_ok is None:
            attempts.note_unknown(call.thread, payload.command)
        elif is_ok:
            red = attempts.turned_green(call.thread, payload.command, payload.cwd)
            won = attempts.note_success(call.thread, payload.command)
            if red:
                with call.guarded("what was fixed is not noted"):
                    _observing().note(call, "fix", f"Fixed: {red}")
            if won:
                from fleet.learn.journal import Journal

                with opened(call) as workspace:
                    for mutation in won:
                        Journal(workspace, call.agent).record_success(mutation, payload.command)
        return reply

    # --- the end of a turn --------------------------------------------------------------------------------------------

    def _stop(self) -> Reply:
        """Return a reminder of corrections without a lesson; if there are none, have the next start prepared."""
        call, payload, reply = self._call, self._payload, Reply()
        with call.guarded("what was refused in this turn was not read"):
            if payload.has_transcript and Transcript(self._notes, payload.transcript).unread().has_objection():
                reply = self._flagging().on_refusals(payload)
        reply.go_on = "" if payload.is_stopping or payload.subagent else self._unstated()
        if not reply.go_on and self._ready.is_stale():
            _start_process(call, AT_THE_START)
        return reply

    def _unstated(self) -> str:
        """Return a reminder of the corrections of this session that have no lesson yet, each once; "" for none."""
        asked = self._notes.of("stop")
        return self._flagging().unstated() if any(each not in asked for each in self._notes.of("flag")) else ""

    def _session_end(self) -> Reply:
        self._folder.mark(_LAST, self._call.agent, word=self._call.session)
        _start_process(self._call, AT_THE_END)  # a host waits 1.5 s then, and a sync may take longer
        return Reply()


# --- common parts -----------------------------------------------------------------------------------------------------


def _framed(rows: Sequence[str]) -> tuple[str, str]:
    """Return lessons as the agent is shown them, and the line that names them to the person."""
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    note = f"fleet showed the agent: {rows[0].removeprefix('- ')}{more}"
    return triggers.framed(rows, f"fleet-{os.urandom(8).hex()}"), note


def _only_looks(tool: str) -> bool:
    """Return whether a tool of an MCP server only looks, by its name: ``get_issue``, ``searchPages``."""
    name = tool.rpartition("__")[2]
    return not _LOOKING.isdisjoint(word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name))


def _use_of(command: str) -> str:
    return f"use {crc32(command.encode('utf-8', 'replace')):08x}"


def _run_by_path(command: str) -> str:
    """Return a command of fleet's own with the path of this program as its name; "" if a person must agree to it.

    With its path, no alias, function or other ``fleet`` of the shell can take its place.
    """
    from fleet.text import shell

    words = shell.Command(command).plain_words
    is_elsewhere = any(each.startswith("--dir") for each in words)
    if words[:1] != ["fleet"] or is_elsewhere or not _OWN_COMMANDS.intersection(words[1:2]):
        return ""
    program = _program()
    is_plain = shell.Command(program).plain_words == [program]
    return f"{program}{command.lstrip(' ').removeprefix('fleet')}" if is_plain else ""


def _program() -> str:
    """Return the path of ``fleet`` on the PATH if that is the program that is running, else ""."""
    from pathlib import Path
    from shutil import which

    program = Path(which("fleet") or "")
    return str(program) if program.is_absolute() and program.samefile(sys.argv[0]) else ""


def _observing() -> "ModuleType":
    """Return the module of observations, which is imported late: most calls do not need it."""
    from fleet.app import observing

    return observing


def _note_of_given(shown: Collection[str], new: Collection[str]) -> str:
    """Return the line for the person about lessons that a session is given; "" for none."""
    lessons = f"{len(shown):,} lesson{'' if len(shown) == 1 else 's'}"
    return f"fleet gave this session {lessons}, {len(new):,} new" if shown else ""


def _note_of_own_command(payload: Payload) -> str:
    """Return the line for the person about what a command of fleet's own logged, and how often it was seen."""
    if not payload.is_own or not _LOGGING.intersection(payload.command.split(None, 2)[1:2]):
        return ""
    first, is_promoted = payload.printed.partition("\n")[0], "\n  promoted: " in payload.printed
    id_, _, text = first.partition(" ")
    if first.startswith("{"):
        logged = parsed(first)
        id_, seen, is_promoted = str(logged.get("id")), logged.get("seen"), bool(logged.get("promoted"))
        known = f"{id_} {'logged' if logged.get('new') else 'is known already'}"  # a discovery
        text = f"seen {seen} time{'' if seen == 1 else 's'}: {logged.get('text')}" if seen else known
    if id_[:2] not in ("p-", "d-") or not text:
        return ""
    return f"fleet: {text}{'; promoted into its memory' if is_promoted else ''}"


def _start_process(call: Call, which: str) -> None:
    """Start a process that outlives the hook, for work that nobody can wait for."""
    import subprocess

    # -P: else a folder of the project that is called fleet, or json, would be imported in place of ours.
    subprocess.Popen(
        [sys.executable, "-P", "-m", "fleet.hook", which, call.root, call.agent, call.session, call.host],
        cwd=call.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _note_shown(call: Call, ids: Iterable[str]) -> None:
    """Note which lessons the session was shown, so that later occurrences count as relapses."""
    with call.guarded("what was shown is not noted"):
        from fleet.reflect.exposure import Exposures

        with _local(call) as state:
            Exposures(state).note(call.agent, call.session, ids, local.now_ms())


def _local(call: Call) -> "closing[Local]":
    from fleet.store.database import Local

    return closing(Local(_root(call) / local.FOLDER / "local.db", wait_s=_STATE_WAIT_S))


def _root(call: Call) -> "Path":
    from pathlib import Path

    return Path(call.root)


def _config(call: Call) -> "Config":
    from fleet.store import config

    return config.load(_root(call) / CONFIG)


@contextmanager
def opened(call: Call) -> Iterator["Workspace"]:
    """Open the workspace while a ``with`` block runs; log its reports and warnings."""
    from fleet.store.workspace import Workspace

    workspace = Workspace(_root(call))
    try:
        if workspace.files_in_old_homes():
            from fleet.learn import restore

            restore.bring(workspace)
        yield workspace
    finally:
        for message in (*workspace.reports, *(f"warning: {each}" for each in workspace.warnings)):
            call.log(message)
        workspace.close()
