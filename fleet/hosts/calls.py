"""One call of a hook: what is known of it, its lines in the log, and its limits of time. Standard library only."""

import os
import signal
import time

from fleet.hosts import local
from fleet.hosts.local import LocalFolder

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from types import FrameType

AT_THE_END = "session-end-work"
"""The internal event under which the work of a session's end runs, once the host has gone."""

AT_THE_START = "session-start-work"
"""The internal event under which the next session's start is made ready, where that takes too long to wait for."""

_CONFIG = "fleet.toml"
GUEST = "guest"
"""Works where nobody is named, as ``fleet.model.names`` has it."""

_CONFIG_BYTES_MAX = 1024 * 1024
_LOG = "log"
_WORD_CHARS_MAX = 80
_WHAT_CHARS_MAX = 600


def is_own(command: str) -> bool:
    """Tell whether a command begins as one of fleet's own does, by its name or by a path."""
    return f"/{command.lstrip(' ').partition(' ')[0]}".endswith("/fleet")


class TimeUpError(BaseException):
    """A limit of time was reached. No ``except Exception`` on the way may swallow it."""


class Call:
    """One call of a hook, as far as it is known.

    Attributes:
        event: Claude Code's name for the event, or the host's own for one that nobody here knows.
        root: of the workspace, "" where there is none.
        session: the host's id of the session.
        subagent: the host's id of the subagent in it, "" for the session's own agent.
        can_write: whether anything can be written in the workspace.
    """

    def __init__(self, event: str, root: str = "", agent: str = "", session: str = "", host: str = "") -> None:
        self.event, self.root, self.agent, self.session, self.host = event, root, agent, session, host
        self.subagent = ""
        self.can_write = True

    @property
    def thread(self) -> str:
        """Owner of the context and of the streaks of failures: the session, or a subagent of it."""
        return f"{self.session}/{self.subagent}" if self.subagent else self.session

    @property
    def told(self) -> local.Told:
        """Words that the session, or the subagent, has been told."""
        return local.Told(self.root, self.thread)

    def log(self, what: str) -> None:
        """Add a line to ``.fleet/log``, if there is a workspace to have one."""
        if self.root:
            told = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "event": self.event[:_WORD_CHARS_MAX],
                "host": self.host,
                "session": self.session,
                "what": what[:_WHAT_CHARS_MAX],
            }
            LocalFolder(self.root).add_line(_LOG, told)

    def sets(self, section: str) -> bool:
        """Return True where a section of ``fleet.toml`` says anything: the defaults do not hold then.

        Parsing the file would cost more than all else in a hook. So this looks for a line that is no comment, and may
        say yes too often.
        """
        try:
            with open(os.path.join(self.root, _CONFIG), "rb") as file:
                lines = file.read(_CONFIG_BYTES_MAX).splitlines()
        except OSError:
            return False
        inside, name = False, section.encode()
        for line in map(bytes.strip, lines):
            if line.startswith(b"["):
                inside = line.strip(b"[] \t").startswith(name)
            elif line and not line.startswith(b"#") and (inside or line.startswith(name)):
                return True
        return False

    def guarded(self, means: str) -> "_Guard":
        """Return a ``with`` block whose errors are logged and go no further: one part's fault is no other part's."""
        return _Guard(self, means)


class _Guard:
    """A part of the work whose errors are logged and go no further. A limit of time passes through it."""

    def __init__(self, call: Call, means: str) -> None:
        self._call, self._means = call, means

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> bool:
        if not isinstance(why, Exception):
            return False
        self._call.log(f"{self._means}: {explained(why)}")
        return True


class Alarm:
    """A limit of wall time, inside another one or not. Without a main thread or an alarm clock there is none.

    Args:
        limit_s: after so many seconds ``TimeUpError`` is raised in the block.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    def __enter__(self) -> None:
        try:
            self._before = signal.signal(signal.SIGALRM, _ring)
            self._outer_s = signal.setitimer(signal.ITIMER_REAL, self.limit_s)[0]
            self._began_s = time.monotonic()
        except ValueError:
            self.limit_s = 0.0

    def __exit__(self, *_: object) -> None:
        if self.limit_s:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            if self._outer_s:
                left_s = self._outer_s - (time.monotonic() - self._began_s)
                signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))


def _ring(number: int, frame: "FrameType | None") -> None:  # noqa: ARG001 - as signal.signal wants it
    raise TimeUpError


def explained(why: BaseException) -> str:
    """Return what a line of the log says about an error: for a person, and without secrets."""
    text = f"{type(why).__name__}: {why}"
    try:
        from fleet.text.screening import redact

        return redact(text)
    except Exception:  # noqa: BLE001 - then the text may hold anything
        return type(why).__name__
