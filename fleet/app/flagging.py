"""Detector of signals in what a host reports: a person's correction, a refused call, a failed build; logged at once.

The question for the lesson comes later: after a strong signal in the turn, after the others once and together when the
agent stops, after a failed build when the same command succeeds. A host waits, so a signal is logged without loading a
workspace; a database is opened only for a question, to name known lessons.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from crdt import clock
from fleet.hosts import local
from fleet.hosts.local import Call, TimeUpError, alarm
from fleet.hosts.payloads import Payload, Reply
from fleet.hosts.transcripts import Transcript
from fleet.learn import signals
from fleet.learn.attempts import AttemptLog
from fleet.learn.signals import Waiting
from fleet.model.errors import FleetError
from fleet.store import homes
from fleet.store.files import Files
from fleet.store.homes import CONFIG
from fleet.text import apostrophed, prompts, screening, shell
from fleet.text.signals import EXCERPT_CHARS_MAX, detect, objections

_LISTED_MAX = 5
_LOCK_WAIT_S = 5.0
"""Time that a hook waits for another process, shorter than a command's, since a host waits for the hook."""

_NEAREST_S = 1.5
"""Limit of the search for known lessons, seconds: a question without them is better than none."""

_QUOTE_CHARS_MAX = 1_000
_TITLE_CHARS_MAX = 120
_LESSON_CHARS_MAX = 120

_STATE_IT, _STATE_ITS_CAUSE, _STATE_THEM, _KNOWN = (
    Path(__file__).with_name("data").joinpath("questions.txt").read_text("utf-8").removesuffix("\n").split("\n---\n")
)
"""Questions for a lesson: in the turn, when a command succeeds again, and at the end; and the row of known lessons."""

_Detected = tuple[prompts.Objection | None, signals.Flag]
"""A signal, and the objection that it was made of, if any."""

_Logged = tuple[Waiting, str]
"""Entry of a signal that was logged, and the signal's confidence."""


class Flagging:
    """Signals in one call of a host."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._notes = call.notes
        files = Files(Path(call.root))  # a whole workspace takes too long
        files.homes = homes.Homes(call.root).current()
        self._signals = signals.Signals(files, call.agent, lambda: clock.nearest(local.now_ms()))

    def on_prompt(self, payload: Payload) -> Reply:
        """Log the objections in a prompt, before the next reply; return the question for their lessons."""
        typed, settings = prompts.Prompt(payload.prompt).text, self._settings()
        text = screening.strip_injected(typed)
        signal, flags = detect(text, settings), list[_Detected]()
        objected_to, read_to = self._objections(payload, typed)
        for objection in objected_to:
            is_prompt = objection.words == typed.strip()[: prompts.EVENT_CHARS_MAX]
            is_strong = not is_prompt or (signal is not None and signal.confidence == "strong")
            flags.append((objection, _flag_of(objection, "strong" if is_strong else "medium")))
            signal = None if is_prompt else signal  # one signal for the same words
        if signal is not None:
            is_short = len(text) <= EXCERPT_CHARS_MAX and "\n" not in text.strip()
            flag = signals.Flag(
                kind="agent" if signal.sender else "human",
                quote=_quoted(text, signal.excerpt),
                title=text if is_short and "…" in signal.excerpt else signal.excerpt,  # "…" stands for quoted words
                confidence=signal.confidence,
                signal_class=signal.kind,
                agent=signal.sender,
            )
            flags.append((None, flag))
        try:
            new = self._log(flags, read_to)
        except FleetError as why:  # the person must not believe that it is logged
            return self._not_logged(why)
        asked = self._question(_STATE_IT, [each for each, confidence in new if confidence == "strong"])
        return Reply(asked, note=_note(new))

    def on_refusals(self, payload: Payload) -> Reply:
        """Log the calls that a person refused in this turn, with their words; return a line for the person."""
        found, read_to = self._objections(payload)
        try:
            return Reply(note=_note(self._log([(each, _flag_of(each, "strong")) for each in found], read_to)))
        except FleetError as why:
            return self._not_logged(why)

    def _not_logged(self, why: FleetError) -> Reply:
        """Return a warning for the person about words that could not be logged; the log has the error, too."""
        self._call.log(local.explained(why))
        reply = Reply()
        later = "say it again, or leave it to the reflection on this session"
        reply.warning = f"fleet could not log what you said now: {later} ({why})"
        return reply

    def _settings(self) -> Any:
        """Return ``[triggers]``; None for the defaults: to parse the configuration takes longer than all else here."""
        if not self._call.sets("triggers"):
            return None
        from fleet.store import config

        return config.load(Path(self._call.root) / CONFIG).triggers

    def _objections(self, payload: Payload, prompt: str = "") -> tuple[list[prompts.Objection], int]:
        """Return the objections since the transcript was read last, and the offset up to which it is read now.

        If the words of an objection are not there yet, it is read again with the next prompt. -1: nothing was read.
        """
        settings = self._settings()
        if not payload.has_transcript or (settings is not None and settings.off):
            return [], -1
        found: list[prompts.Objection] = []
        with self._call.guarded("what was refused in this session was not heard"):
            part = Transcript(self._call.notes, payload.transcript).unread()
            if part.trouble and self._notes.claim("transcript trouble"):
                self._call.log(f"the session's transcript {part.trouble}")
            waits = None
            if part.has_objection():
                known = set(self._notes.all())
                found, waits = objections(part.events(), prompt)
                found = [each for each in found if f"heard {each.id}" not in known and not each.is_mcp]
            return found, waits.offset if waits is not None else part.ends
        return [], -1

    def _log(self, flags: Sequence[_Detected], read_to: int) -> list[_Logged]:
        """Log signals, then note how far the transcript is read; return those that are new."""
        new = []
        for objection, flag in flags:
            done = self._signals.flag(flag, session=self._call.session, wait_s=_LOCK_WAIT_S)
            if objection is not None:
                self._notes.add(f"heard {objection.id}")
            if done.is_new:
                self._notes.add(f"flag {done.id}")
                new.append((Waiting(done.id, flag.title, "", flag.quote), flag.confidence))
        self._call.overdue = (0, "", "")
        if read_to >= 0:
            self._notes.note_read(read_to)
        return new

    def _question(self, words: str, asked: Sequence[Waiting], **more: str) -> str:
        """Return the question for the lessons of some entries, "" for none, with the nearest known lessons."""
        if not asked:
            return ""
        rows = [f'- {each.id}: "{each.shown()}"' for each in asked[:_LISTED_MAX]]
        if over := len(asked) - len(rows):
            rows.append(f"- and {over} more: `fleet learn --waiting`")
        first = asked[0].id
        near = self._nearest(asked[:_LISTED_MAX])
        known = _KNOWN.format(rows="\n".join(near)) if near else ""
        return words.format(rows="\n".join(rows), first=first, known=known, **more)

    def _nearest(self, asked: Sequence[Waiting]) -> list[str]:
        """Return the known lessons nearest to some signals, three for one signal, one for each of several."""
        from fleet.app import finding

        found: dict[str, str] = {}
        quotes = [each.wrong or each.title for each in asked]
        # The output of a failure is full of numbers: every lesson would differ in them.
        passed_over = "number" if any(each.is_failure for each in asked) else ""
        with self._call.guarded("the nearest lessons are not named"):
            try:
                with alarm(_NEAREST_S):
                    for near, whose in finding.nearest(Path(self._call.root), quotes, 3 if len(quotes) == 1 else 1):
                        names = [name for name in near.differs if name != passed_over]
                        differs = f"differs in {', '.join(names)}; " if names else ""
                        text = screening.shortened(screening.one_line(screening.readable(near.text)), _LESSON_CHARS_MAX)
                        found[near.id] = f"- {text} ({whose}; {differs}{near.id})"
            except TimeUpError:
                self._call.log(
                    f"the nearest lessons were not found within {_NEAREST_S:g} s: the question goes without them"
                )
        return list(found.values())

    def on_command_end(self, payload: Payload, *, is_error: bool) -> tuple[bool | None, Reply]:
        """Log a failed build; return whether a command succeeded, None for unknown, and the reply to the agent.

        The reply asks for the cause, once, when a command succeeds after one of its family failed in this session.
        """
        attempts = AttemptLog(self._call.root, self._call.agent)
        builds = attempts.settings().builds if self._call.sets("attempts") else None
        printed = payload.error or payload.printed
        command = shell.Command(payload.command)
        is_ok = command.outcome(printed, is_error=is_error, builds=builds)
        if is_ok is None or not command.is_build(builds):
            if is_ok is False:
                self._count(payload, printed)
            return is_ok, Reply()
        family = command.family
        red = f"red {blake2b(family.encode(), digest_size=6).hexdigest()}"
        if is_ok:
            return True, Reply(self._ask_for_cause(payload, red))
        if not self._count(payload, printed):
            return False, Reply()
        same = f"{family}\n{shell.Failure(printed).fingerprint or payload.exit_code}"
        flag = signals.Flag.of_failure(command.line.strip(), payload.exit_code, printed, same)
        flag = flag._replace(trigger=command.trigger)
        done = self._signals.flag(flag, session=self._call.session, wait_s=_LOCK_WAIT_S)
        if not done.is_new:
            return False, Reply()
        self._notes.add(f"{red} {done.id}")
        return False, Reply(note=f"fleet logged a failure: {_shown_title(flag.title)} ({done.id})")

    def _count(self, payload: Payload, printed: str) -> bool:
        """Count a failed command towards the limit of its tries; return False for a failure reported before."""
        if payload.call and not self._notes.claim(f"call {payload.call}"):
            return False  # a plugin and the settings may both call: one failure is one
        with self._call.guarded("the failure is not counted"):
            AttemptLog(self._call.root, self._call.agent).note_failure(
                self._call.thread, payload.command, printed, payload.exit_code, payload.cwd
            )
        return True

    def _ask_for_cause(self, payload: Payload, red: str) -> str:
        failed, asked = self._notes.of(red), self._notes.of("green")
        new = [entry for entry in dict.fromkeys(failed) if entry not in asked and self._notes.claim(f"green {entry}")]
        if not new:
            return ""
        rows = [each for each in self._signals.waiting(self._call.session, everything=True) if each.id in new]
        command = _shown_title(screening.redact(shell.Command(payload.command).line.strip()).split("\n")[0])
        return self._question(_STATE_ITS_CAUSE, rows, command=command)

    def unstated(self) -> str:
        """Return the question for the lessons of this session's entries, each once; "" for none."""
        session, flagged = self._call.session, self._notes.of("flag")
        # Without a session id, ``waiting`` returns the entries of all sessions, and others' are not this agent's.
        own = [each for each in self._signals.waiting(session) if session or each.id in flagged]
        return self._question(_STATE_THEM, [each for each in own if self._notes.claim(f"stop {each.id}")])


def _flag_of(objection: prompts.Objection, confidence: str) -> signals.Flag:
    """Return the signal of a refused call, or of a stopped turn."""
    words = screening.strip_injected(objection.words)
    what = "Refused" if objection.kind == "rejection" else "Stopped after" if objection.tool else "Stopped"
    about = " ".join(filter(None, [what, f"{objection.tool}:" if objection.about else objection.tool, objection.about]))
    return signals.Flag(
        kind="human",
        quote=f"{_quoted(words, '')}\n({about})",
        title=words.strip().split("\n")[0],
        confidence=confidence,
        signal_class=objection.kind,
        sameness=f"{shell.Command(objection.refused).family or objection.tool}\n{words}",  # one for calls refused alike
        trigger=shell.Command(objection.refused).trigger if confidence == "strong" else "",
    )


def _quoted(message: str, excerpt: str) -> str:
    """Return a short message whole, else from the detected sentence on: the right way mostly follows it."""
    if len(message) <= _QUOTE_CHARS_MAX:
        return message
    message = apostrophed(message)
    begin = max(message.find(excerpt), 0)
    return message[begin : begin + _QUOTE_CHARS_MAX]


def _note(new: Sequence[_Logged]) -> str:
    """Return the line for the person about what was logged, "" for nothing."""
    if not new:
        return ""
    what, more = ("a correction", "") if len(new) == 1 else (f"{len(new)} corrections", f" and {len(new) - 1} more")
    return f'fleet logged {what}: "{new[0][0].shown()}"{more}'


def _shown_title(title: str) -> str:
    return screening.readable(title)[:_TITLE_CHARS_MAX]
