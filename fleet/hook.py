"""Fast path that host hooks call: ``fleet hook EVENT`` or ``python -m fleet.hook EVENT``, with the payload on stdin.

It exits 0 whatever happens, except that it blocks a tool call by exit 2, with the reason on stderr, if the host reads
nothing else. Errors go to ``.fleet/log``. Most calls find nothing to do, and end in this module, which imports little
of the standard library and nothing else (``tests/hosts`` counts); for the others ``fleet.app.events`` does the work.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from fleet import YES
from fleet.hosts.local import AT_THE_END, AT_THE_START, GUEST, Call, LocalFolder, Reflog, TimeUpError, alarm, explained
from fleet.hosts.payloads import HOSTS, PAYLOAD_BYTES_MAX, Payload, Reply
from fleet.recall.ready import Ready
from fleet.store.changes import Changes
from fleet.store.homes import is_root, root_around

WORK_S = 8.0
"""Time that a call may take: the host waits for its hook, and so does the person who typed."""

START_S = 25.0
"""Time that a session's start may take."""

_HEARD = frozenset({"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"})  # the events that note a session
_WORDS_MIN = 3
_READ_MAX = 8 * PAYLOAD_BYTES_MAX
_AGENT_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_USAGE = "usage: fleet hook EVENT < payload   (hosts call it; `fleet install claude-code` sets them up)\n"

_OVERDUE = (
    "fleet had no time to look at what you said: if it corrects the agent, say it again, or leave it to the reflection "
    "on this session"
)
_Output = tuple[int, str, str]
"""Exit code, stdout, stderr."""

_NOTHING: _Output = (0, "", "")


def main(argv: list[str]) -> int:
    """Answer one hook, given the words behind ``fleet hook``; return its exit code: 2 for a call that is blocked."""
    if os.environ.get("FLEET_DISABLED", "").lower() in YES:
        return 0
    if argv[:1] in ([AT_THE_END], [AT_THE_START]):
        return _run_alone(*argv)
    if not argv or argv[0].startswith("-"):
        _write(1, _USAGE)
        return 0
    code, out, err = _guarded(Call(argv[0]))
    _write(2, err)
    _write(1, f"{out}\n" if out else "")
    return code


def _guarded(call: Call) -> _Output:
    """Answer within a limit of time. Nothing that code prints by mistake reaches stdout, which the host parses."""
    limit_s = START_S if call.event in ("SessionStart", "SubagentStart") else WORK_S
    with _without_stdout():
        try:
            with alarm(limit_s):
                return _answer(call, os.environ)
        except TimeUpError:
            call.log(f"gave up after {limit_s:g} s; what was acknowledged is kept")
            return call.overdue
        except BaseException as why:  # noqa: BLE001 - a hook never fails its host
            call.log(explained(why))
    return _NOTHING


def _answer(call: Call, environment: Mapping[str, str]) -> _Output:
    call.root = _find_root("", environment)  # for the log, until the payload names the folder
    try:
        payload = Payload.parse(call.event, _read(), environment)
    except (ValueError, RecursionError) as why:
        call.log(f"the payload was not read: {why}")
        return _NOTHING
    call.host, call.session, call.subagent = payload.host, payload.session, payload.subagent
    call.root = _find_root(payload.cwd, environment)
    if not call.root:
        return _NOTHING
    if not payload.event:
        call.log("an event that this version of fleet does not know")
        return _NOTHING
    call.event = payload.event
    call.agent = _find_agent(call.root, environment) or GUEST
    call.can_write = LocalFolder(call.root).mark("fired", payload.event, word=payload.host)
    if payload.event in _HEARD:
        has_ended = payload.event == "SessionEnd"
        LocalFolder(call.root).hear(call.session, call.host, call.agent, payload.transcript, has_ended=has_ended)
    if not _has_work(call, payload):
        return _NOTHING
    if payload.event == "UserPromptSubmit" and _might_signal(call, payload.prompt):
        reply = Reply()
        reply.warning = _OVERDUE
        call.overdue = reply.output(payload)  # until what it says is logged
    from fleet.app import events

    return events.answer(call, payload).output(payload)


def _has_work(call: Call, payload: Payload) -> bool:
    """Return whether more than this module is needed. The check is cheap, and True in doubt."""
    event, ready = payload.event, Ready(call.root, call.agent)
    if event == "PreToolUse":
        return _has_failed(call) or payload.is_own or ready.has_rows() or ready.has_guards()
    if event == "PostToolUse":
        is_due = _has_failed(call) or payload.may_have_failed or payload.is_own
        return is_due or (payload.can("late") and ready.has_rows()) or _has_happened(call, ready, payload)
    if event == "PostToolUseFailure":
        return bool(payload.command) and payload.has_ended
    if event == "UserPromptSubmit":
        # `_might_object` also notes the new part of a transcript as read.
        return bool(payload.prompt.strip()) and (
            _might_signal(call, payload.prompt)
            or _might_object(call, payload)
            or _has_failed(call)
            or _might_know(call, payload.prompt)
            or _has_news(call)
        )
    if event == "Stop":
        return (
            (not payload.is_stopping and bool(call.notes.of("flag")))
            or _might_object(call, payload)
            or ready.is_stale()
        )
    return event in ("SessionStart", "SubagentStart", "SessionEnd")


def _has_failed(call: Call) -> bool:
    """Return whether a command of the agent may have failed here, so that its next try may be blocked."""
    return os.path.exists(LocalFolder(call.root).path_of("attempts", f"{call.agent}.json"))


def _has_happened(call: Call, ready: Ready, payload: Payload) -> bool:
    """Return whether a command left a commit, or was one that a lesson recommends."""
    if not payload.command:
        return False
    has_grown = Reflog(call.root, payload.cwd or call.root).has_grown(payload.command, call.session)
    return has_grown or (ready.has_rows() and bool(call.notes.of("use")))


def _might_signal(call: Call, prompt: str) -> bool:
    from fleet.text.prompts import Prompt

    return Prompt(prompt).might_signal() or call.sets("triggers")


def _might_know(call: Call, prompt: str) -> bool:
    """Return whether there are lessons here that a prompt could be about. A word or two name no subject."""
    return len(prompt.split()) >= _WORDS_MIN and os.path.exists(LocalFolder(call.root).path_of("generation"))


def _has_news(call: Call) -> bool:
    """Return whether lessons were fetched for this session that it was not shown."""
    notes = call.notes.all()
    return "news" not in notes and any(each.startswith("came ") for each in notes)


def _might_object(call: Call, payload: Payload) -> bool:
    """Return whether a person may have refused a call since the last reading; if not, note the transcript as read."""
    if not payload.has_transcript:
        return False
    from fleet.hosts.transcripts import Transcript

    part = Transcript(call.notes, payload.transcript).unread()
    if part.trouble or part.has_objection():
        return True
    call.notes.note_read(part.ends)
    return False


def _find_root(cwd: str, environment: Mapping[str, str]) -> str:
    """Return the workspace's root, or "": ``FLEET_DIR``, else the one around the folder where the host works.

    The payload or the host's variable names that folder, since some hosts start hooks elsewhere; else it is the cwd.
    """
    if folder := environment.get("FLEET_DIR", ""):
        root = os.path.abspath(os.path.expanduser(folder))
        return root if is_root(root) else ""
    projects = [environment.get(host.get("project", ""), "") for host in HOSTS.values()]
    named = [each for each in (cwd, *projects) if os.path.isabs(each)]
    return next(filter(None, map(root_around, named or filter(None, [_here()]))), "")


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _find_agent(root: str, environment: Mapping[str, str]) -> str:
    """Return the agent to act as, or "": ``FLEET_AGENT``, else that of the lease, else the stored default.

    A default that is not noted as named in this very folder is left to ``fleet.app.events``, which checks it.
    """
    name = environment.get("FLEET_AGENT") or environment.get("FLEET_REPLICA", "").rpartition(".")[0]
    if not name:
        name = LocalFolder(root).default_agent()
        name = name if name in Changes(root).named() else ""
    return name if _is_agent(name) else ""


def _is_agent(name: str) -> bool:
    """Return whether a name is an agent's, as ``fleet.model.names.is_agent``, without ``re``."""
    return 0 < len(name) <= 32 and _AGENT_CHARS.issuperset(name) and name[0] not in "_-" and name != "import"


def _read() -> bytes:
    """Return the payload, cut to a byte over the limit. The rest is read and dropped, so that no host's write fails."""
    if os.isatty(0):
        return b""
    kept: list[bytes] = []
    size = 0
    while size < _READ_MAX and (block := os.read(0, 1 << 16)):
        if size <= PAYLOAD_BYTES_MAX:
            kept.append(block)
        size += len(block)
    return b"".join(kept)[: PAYLOAD_BYTES_MAX + 1]


def _run_alone(which: str, *words: str) -> int:
    """Do the work that no host waits for; the result goes to the log. ``words``: root, agent, session, host."""
    call = Call("SessionEnd" if which == AT_THE_END else "SessionStart", *words[:4])
    try:
        from fleet.app import sleeping

        call.log(sleeping.end_session(call) if which == AT_THE_END else sleeping.make_ready(call))
    except BaseException as why:  # noqa: BLE001 - the log is all there is
        call.log(explained(why))
    return 0


@contextmanager
def _without_stdout() -> Iterator[None]:
    """Redirect stdout to the null device while a block runs."""
    real = -1
    with suppress(OSError):  # a host may have closed it
        real = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    try:
        yield
    finally:
        if real >= 0:
            sys.stdout.flush()
            os.dup2(real, 1)
            os.close(real)


def _write(handle: int, text: str) -> None:
    """Write a text to a descriptor, until its reader is gone."""
    data = text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        return


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # as ``fleet hook`` has it
    sys.exit(main(sys.argv[1:]))
