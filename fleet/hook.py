"""The fast path that host hooks call: ``fleet hook EVENT``, the payload on stdin.

It exits 0 whatever happens, but for one thing: exit 2 before a tool call that is blocked, with the reason on stderr.
What went wrong stands in ``.fleet/log``. Most calls find nothing to do, and end here: standard library only, and little
of it (``tests/hosts`` counts); ``fleet.events`` does the work.
"""

import os
import sys
import time
from collections.abc import Mapping

from fleet.hosts import local, told
from fleet.hosts.payloads import PAYLOAD_BYTES_MAX, BadPayloadError, Payload, parse

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from types import FrameType

WORK_S = 8.0
"""How long a call may take: hosts wait for their hooks, and so does whoever typed."""

START_S = 25.0
"""How long a session's start may take."""

SOON_S = 10.0
"""After so long a session's start takes what is at hand; the rest is made ready by a process of its own."""

AT_THE_END = "session-end-work"
"""The internal event under which the work of a session's end runs, once the host has gone."""

AT_THE_START = "session-start-work"
"""The internal event under which the next session's start is made ready, where that takes too long to wait for."""

CONFIG = "fleet.toml"
_READ_MAX = 8 * PAYLOAD_BYTES_MAX
_AGENT_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_USAGE = "usage: fleet hook EVENT < payload   (hosts call it; `fleet install claude-code` sets them up)\n"

Answer = tuple[int, str, str]
"""Exit code, what goes to stdout, what goes to stderr."""

NOTHING: Answer = (0, "", "")


class Call:
    """One call, as far as it is known; and so, what a line of the log says about it."""

    __slots__ = ("agent", "event", "host", "root", "session")

    def __init__(self, event: str) -> None:
        self.event = event
        self.root = self.agent = self.host = self.session = ""

    def log(self, what: str) -> None:
        """Add a line to ``.fleet/log``, if there is a workspace to have one."""
        if self.root:
            local.log(self.root, event=self.event, host=self.host, session=self.session, what=what)


class TimeUpError(BaseException):
    """A limit of time was reached. No ``except Exception`` on the way may swallow it."""


def main(argv: list[str]) -> int:
    """Answer one hook; return the exit code: 0, or 2 for a tool call that is blocked.

    Args:
        argv: the words behind ``fleet hook``.
    """
    if os.environ.get("FLEET_DISABLED") == "1":
        return 0
    words = argv[1:] if argv[:1] == ["hook"] else argv
    if words[:1] in ([AT_THE_END], [AT_THE_START]):
        return _run_alone(*words)
    if not words or words[0].startswith("-"):
        _write(1, _USAGE)
        return 0
    call = Call(words[0])
    code, out, err = _guarded(call)
    _write(2, err)
    _write(1, f"{out}\n" if out else "")
    return code


def _guarded(call: Call) -> Answer:
    """Answer in time, without a word on stdout that nobody meant."""
    limit_s = START_S if call.event == "SessionStart" else WORK_S
    shown = _aside(1)
    try:
        with Alarm(limit_s):
            return _answer(call, os.environ)
    except TimeUpError:
        call.log(f"gave up after {limit_s:g} s; what was acknowledged is kept")
    except BaseException as why:  # noqa: BLE001 - a hook never fails its host
        call.log(explained(why))
    finally:
        _back(1, shown)
    return NOTHING


def _answer(call: Call, environment: Mapping[str, str]) -> Answer:
    try:
        payload = parse(call.event, _read(), environment)
    except BadPayloadError as why:
        call.root = find_root("", environment)
        call.log(f"the payload was not read: {why}")
        return NOTHING
    call.host, call.session = payload.host, payload.session
    call.root = find_root(payload.cwd, environment)
    if not call.root:
        return NOTHING
    if not payload.event:
        call.log("an event that this version of fleet does not know")
        return NOTHING
    call.event = payload.event
    call.agent = find_agent(call.root, environment)
    if not call.agent:
        call.log("no agent is named here: run `fleet init --agent NAME`")
        return NOTHING
    local.mark(call.root, "fired", payload.event, data=f"{payload.host}\n".encode())
    if not _has_work(call, payload):
        return NOTHING
    from fleet import events

    return events.answer(call, payload)


def _has_work(call: Call, payload: Payload) -> bool:
    """Tell whether anything here needs more than this module; cheap, and never wrong by saying no."""
    event = payload.event
    if event in ("PreToolUse", "PostToolUse"):
        is_tracked = os.path.exists(local.path_of(call.root, "attempts", f"{call.agent}.jsonl"))
        return is_tracked or (
            event == "PreToolUse" and os.path.exists(local.path_of(call.root, "ready", "triggers.json"))
        )
    if event == "PostToolUseFailure":
        return bool(payload.command) and payload.has_ended
    if event == "UserPromptSubmit":
        return bool(payload.prompt.strip()) and _might_signal(call, payload.prompt)
    if event == "Stop":
        from fleet.recall import ready

        words = () if payload.is_stopping else told.words(call.root, payload.session)
        return any(word.startswith("flag ") for word in words) or ready.is_stale(call.root, call.agent)
    return event in ("SessionStart", "SessionEnd")


def _might_signal(call: Call, prompt: str) -> bool:
    from fleet.learn.triggers import might_signal

    return might_signal(prompt) or is_set(call.root, "triggers")


def is_set(root: str, section: str) -> bool:
    """Tell whether a section of ``fleet.toml`` says anything: its phrases are then not those known here.

    Parsing it would cost more than all else. So this looks for a line that is no comment, and may say yes too often.
    """
    try:
        with open(os.path.join(root, CONFIG), "rb") as file:
            lines = file.read(PAYLOAD_BYTES_MAX).splitlines()
    except OSError:
        return False
    inside, name = False, section.encode()
    for line in map(bytes.strip, lines):
        if line.startswith(b"["):
            inside = line.strip(b"[] \t").startswith(name)
        elif line and not line.startswith(b"#") and (inside or line.startswith(name)):
            return True
    return False


def find_root(cwd: str, environment: Mapping[str, str]) -> str:
    """Return the workspace's root, or "": ``FLEET_DIR``, else the nearest ``fleet.toml`` above where the host is."""
    if named := environment.get("FLEET_DIR", ""):
        root = os.path.abspath(os.path.expanduser(named))
        return root if os.path.isfile(os.path.join(root, CONFIG)) else ""
    for start in (cwd, environment.get("CLAUDE_PROJECT_DIR", ""), environment.get("GEMINI_CWD", ""), _here()):
        folder = start if os.path.isabs(start) else ""
        while folder:
            if os.path.isfile(os.path.join(folder, CONFIG)):
                return folder
            above = os.path.dirname(folder)
            folder = above if above != folder else ""
    return ""


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def find_agent(root: str, environment: Mapping[str, str]) -> str:
    """Return the agent to act as, or "": ``FLEET_AGENT``, else whose lease this is, else the stored default."""
    lent = environment.get("FLEET_REPLICA", "").rpartition(".")[0]
    for name in (environment.get("FLEET_AGENT", ""), lent):
        if name:
            return name if _is_agent(name) else ""
    # The one line of the file, without a TOML parser: `fleet.keep.replica` writes it so.
    for line in local.read(root, "replica.toml", bytes_max=PAYLOAD_BYTES_MAX).decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == "default_agent":
            name = value.strip().strip("\"'")
            return name if _is_agent(name) else ""
    return ""


def _is_agent(name: str) -> bool:
    """As ``fleet.keep.names`` has it, without ``re``."""
    return 0 < len(name) <= 32 and _AGENT_CHARS.issuperset(name) and name[0] not in "_-" and name != "import"


def _read() -> bytes:
    """Return the payload, or a byte more than may be read. The rest is read away: no host's write must fail for it."""
    if os.isatty(0):
        return b""
    kept: list[bytes] = []
    size = 0
    while size < _READ_MAX and (block := os.read(0, 1 << 16)):
        if size <= PAYLOAD_BYTES_MAX:
            kept.append(block)
        size += len(block)
    return b"".join(kept)[: PAYLOAD_BYTES_MAX + 1]


def explained(why: BaseException) -> str:
    """Return what a line of the log says about an error: for a person, and without secrets."""
    text = f"{type(why).__name__}: {why}"
    try:
        from fleet.keep.screening import redact

        return redact(text)
    except Exception:  # noqa: BLE001 - then the text may hold anything
        return type(why).__name__


def _run_alone(which: str, *words: str) -> int:
    """Do what nobody waits for: ``root agent session host``. Nobody reads what it prints: the log tells."""
    call = Call("SessionEnd" if which == AT_THE_END else "SessionStart")
    call.root, call.agent, call.session, call.host = (*words, "", "", "", "")[:4]
    try:
        from fleet import events

        call.log(events.work_at_the_end(call) if which == AT_THE_END else events.make_ready(call))
    except BaseException as why:  # noqa: BLE001 - the log is all there is
        call.log(explained(why))
    return 0


class Alarm:
    """A limit of wall time, inside another one or not. Without a main thread or an alarm clock there is none."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    def __enter__(self) -> None:
        import signal

        try:
            self.before = signal.signal(signal.SIGALRM, _ring)
            self.outer_s = signal.setitimer(signal.ITIMER_REAL, self.limit_s)[0]
            self.began_s = time.monotonic()
        except ValueError:
            self.limit_s = 0.0

    def __exit__(self, *_: object) -> None:
        if self.limit_s:
            import signal

            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)
            if self.outer_s:
                left_s = self.outer_s - (time.monotonic() - self.began_s)
                signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))


def _ring(number: int, frame: "FrameType | None") -> None:  # noqa: ARG001 - as signal.signal wants it
    raise TimeUpError


def _aside(handle: int) -> int:
    """Send what is written to a descriptor nowhere; return the real one, or -1 when it is closed."""
    try:
        real = os.dup(handle)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, handle)
        os.close(nowhere)
    except OSError:
        return -1
    return real


def _back(handle: int, real: int) -> None:
    if real >= 0:
        sys.stdout.flush()
        os.dup2(real, handle)
        os.close(real)


def _write(handle: int, text: str) -> None:
    """Write all of it, or as much as somebody reads."""
    data = text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
