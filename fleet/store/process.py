"""Child processes: one command, run in a session of its own with limits on time and output.

It has no terminal, so it can prompt for nothing. Stopping it stops all processes that it started.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

_ERR_BYTES_MAX = 16 * 1024
_CHUNK_BYTES = 256 * 1024
_TERM_S = 1.0  # git removes its lock files and half-written packs when it is asked to end
_LINGER_S = 0.05
_TIED = Path(__file__).absolute().with_name("data") / "tied.sh"


class Done(NamedTuple):
    """Result of a finished command: its exit code, its stdout, and the end of its stderr."""

    code: int
    out: bytes
    err: str


class StoppedError(Exception):
    """The command was stopped: it took too long (``is_late``), or printed too much. ``out``: its stdout so far."""

    def __init__(self, out: bytes, *, is_late: bool) -> None:
        super().__init__("the time was up" if is_late else "there was too much output")
        self.out = out
        self.is_late = is_late


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    until: float,
    out_max: int,
    stdin: IO[bytes] | None = None,
    is_tied: bool = False,
    is_alone: bool = False,
) -> Done:
    """Run one command to its end.

    ``until``: deadline on ``time.monotonic``.
    ``out_max``: limit of its stdout, in bytes.
    ``stdin``: a file to read from, at its start; None is empty. A file and not a pipe, so that it never waits for us.
    ``is_tied``: True to stop it when this process is killed, for commands that may take long. It has no stdin.
    ``is_alone``: True to stop its children when it ends.

    Raises ``StoppedError`` where the deadline passed or there was more output, ``OSError`` where it cannot be started.
    """
    child = subprocess.Popen(
        ("/bin/sh", _TIED, *command) if is_tied else command,
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE if is_tied else stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        try:
            out, err = _pump(child, until, out_max)
            code = child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired as why:
            _end(child)
            raise StoppedError(out, is_late=True) from why
        except BaseException:
            _end(child)
            raise
        if is_alone:
            _end(child)
    return Done(code, out, err.decode("utf-8", "replace"))


def _pump(child: "subprocess.Popen[bytes]", until: float, out_max: int) -> tuple[bytes, bytes]:
    """Read both outputs to their end; return stdout, and the end of stderr.

    An ssh that stays behind to share its connection keeps stderr open, so the exit of git itself ends the reading.
    """
    out, err = bytearray(), bytearray()
    if child.stdout is None or child.stderr is None:
        raise ValueError("both outputs of the child must be pipes")
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        waiting.register(child.stderr, selectors.EVENT_READ)
        while waiting.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise StoppedError(bytes(out), is_late=True)
            is_silent = child.stdout.fileno() not in waiting.get_map()
            ready = waiting.select(min(left, _LINGER_S) if is_silent else left)
            if not ready and is_silent and child.poll() is not None:
                break
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK_BYTES)
                if not data:
                    waiting.unregister(key.fd)
                elif key.fd == child.stderr.fileno():
                    err += data
                    if len(err) > _ERR_BYTES_MAX:
                        # Cut at a line: half a password would not be screened.
                        del err[: (err.find(b"\n", len(err) - _ERR_BYTES_MAX) + 1) or len(err)]
                else:
                    out += data
                    if len(out) > out_max:
                        raise StoppedError(b"", is_late=False)
    return bytes(out), bytes(err)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Stop the child and all that it started, with SIGTERM and then SIGKILL."""
    for how, wait_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, how)
        with suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
