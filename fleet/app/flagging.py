"""Signals that a host tells of: a person's correction, a failed build; logged at once, so that a lesson is stated.

A host waits for this, and loading a workspace would take longer than all of it: so nothing here opens a database, and a
signal gets the few parts of a workspace that it needs.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fleet.hosts import local
from fleet.hosts.calls import CONFIG, Call
from fleet.hosts.payloads import Payload
from fleet.learn import attempts, signals
from fleet.store.files import Files
from fleet.text import screening, shell

LISTED_MAX = 5
LOCK_WAIT_S = 5.0
"""How long a hook waits for another process: shorter than a command does, since a host waits for the hook."""

QUOTE_CHARS_MAX = 1_000
TITLE_CHARS_MAX = 120
REGISTER_BYTES_MAX = 1024 * 1024

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


def heard(call: Call, payload: Payload) -> str:
    """Log a correction by a person, or another agent, before the next reply; return how its lesson is to be stated."""
    from fleet.text.signals import PRAISE, detect

    said = payload.prompt
    if any(mark in said.lower() for mark in _INJECTED):
        from fleet.learn.echoes import strip_injected

        said = strip_injected(said)
    # None means the defaults: reading what a person set takes a parser, and far longer than all else here.
    signal = detect(said, _triggers(call) if call.sets("triggers") else None)
    if signal is None or signal.kind == PRAISE:  # which corrects nothing
        return ""
    flag = signals.Flag(
        kind="agent" if signal.sender else "human",
        quote=_quoted(said, signal.excerpt),
        title=signal.excerpt,
        confidence=signal.confidence,
        heard=signal.kind,
        agent=signal.sender,
    )
    return _flagged(call, flag, STATE_IT)


def _triggers(call: Call) -> Any:
    from fleet.store import config

    return config.load(Path(call.root) / CONFIG).triggers


def _quoted(said: str, excerpt: str) -> str:
    """Return a short message whole, else the sentence that told and what follows it: there stands what is right."""
    if len(said) <= QUOTE_CHARS_MAX:
        return said
    begin = max(said.find(excerpt), 0)
    return said[begin : begin + QUOTE_CHARS_MAX]


def _flagged(call: Call, flag: signals.Flag, words: str) -> str:
    """Log a signal; return how its lesson is to be stated, unless it is one that was logged before."""
    done = signals.flag(_ground(call), call.agent, flag, session=call.session, wait_s=LOCK_WAIT_S)
    if not done.is_new:
        return ""
    call.told.note(f"flag {done.id}")
    return words.format(id=done.id, title=_shown_title(flag.title))


def _shown_title(title: str) -> str:
    return screening.readable(title)[:TITLE_CHARS_MAX]


def failed(call: Call, payload: Payload) -> str:
    """Count a failed command; return how its lesson is to be stated, where it is a build or a test."""
    if payload.call and not call.told.claim(f"call {payload.call}"):
        return ""  # a plugin and the settings may both call: one failure is one
    with call.guarded("the failure is not counted"):
        attempts.note_failure(
            call.root, call.agent, call.session, payload.command, payload.error, payload.exit_code, payload.cwd
        )
    builds = attempts.read_settings(call.root).builds if call.sets("attempts") else None
    if not shell.is_build(payload.command, builds):
        return ""
    return _flagged(call, signals.failure(payload.command, payload.exit_code, payload.error), STATE_ITS_CAUSE)


def unstated(call: Call) -> str:
    """Return what names the entries of this session that teach nothing yet; "" where there is none."""
    waiting = signals.waiting(_ground(call), call.agent, call.session)
    if not waiting:
        return ""
    rows = [f"- {each.id}: {_shown_title(each.title)}" for each in waiting[:LISTED_MAX]]
    if more := len(waiting) - len(rows):
        rows.append(f"- and {more} more: `fleet status`")
    is_one = len(waiting) == 1
    return STATE_THEM.format(
        number="One correction" if is_one else f"{len(waiting)} corrections",
        verb="has" if is_one else "have",
        es="es" if is_one else "",
        rows="\n".join(rows),
        first=waiting[0].id,
    )


class _Ground:
    """A workspace as far as a signal needs one: no configuration, no database, no replica; those take too long.

    Args:
        root: the folder with ``fleet.toml``.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.files = Files(self.root)
        self.world = self
        self.wall_ms = local.now_ms

    @property
    def is_read_only(self) -> bool:
        """Whether nobody may write here: an ephemeral folder, and no lease."""
        register = local.read(str(self.root), "replica.toml", bytes_max=REGISTER_BYTES_MAX)
        return b"\nephemeral = true" in register and not os.environ.get("FLEET_REPLICA")

    def home(self, agent: str) -> Path:
        """Return the folder of one agent's own files."""
        return self.root / "agents" / agent

    def log_lock(self, agent: str, wait_s: float) -> AbstractContextManager[None]:
        """Hold the lock of one agent's log, the one that every command takes."""
        return self.files.lock(self.root / ".fleet" / "locks" / f"log-{agent}.lock", wait_s)


def _ground(call: Call) -> Any:
    """Return what ``learn.signals`` uses of a workspace."""
    return _Ground(call.root)
