"""Runner of ``fleet`` commands for tests: a process of its own for each, forked from one that has imported the program.

So a command meets what it meets in a shell (arguments, folder, environment, three descriptors, an exit code), and the
suite does not pay for the same imports some thousands of times. ``FLEET_TEST_FORK=0`` starts an interpreter for each.
"""

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 120
_REQUEST_BYTES_MAX = 4 * 1024 * 1024
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE")


def run(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    text: str = "",
    *,
    before: Sequence[str] = (),
    timeout_s: float = _TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; return its exit code and what it wrote.

    Args:
        words: behind ``fleet``.
        cwd: the folder.
        environment: all of it.
        text: on standard input.
        before: words of another program that runs it.
        timeout_s: how long it may take.

    Raises:
        subprocess.TimeoutExpired: it did not end; it was killed.
    """
    # Those that run at once, on threads, each have an interpreter: one process forks for one at a time.
    is_plain = not before and threading.current_thread() is threading.main_thread()
    is_plain = is_plain and os.environ.get("FLEET_TEST_FORK") != "0"
    if not is_plain or _read_at_start(environment) != _read_at_start(os.environ):
        return subprocess.run(
            [*before, sys.executable, "-m", "fleet", *words],
            cwd=cwd,
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(text.encode("utf-8", "surrogateescape"))
        given.seek(0)
        asked = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(environment)}).encode()
        code = _server().ask(asked, [given.fileno(), out.fileno(), err.fileno()], timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["fleet", *words], code, _text(out.read()), _text(err.read()))


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name != "PYTHONPATH"}


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


class _Server:
    """The process that forks: one for each process that runs tests."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "GIT_"))}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(theirs.fileno())],
            env=kept | {"PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._socket = ours
        atexit.register(self.close)

    def ask(self, asked: bytes, handles: list[int], timeout_s: float) -> int:
        """Have one command run; return its exit code."""
        with tempfile.TemporaryFile() as request:  # an environment may be longer than a packet
            request.write(asked)
            request.flush()
            sent = array.array("i", [*handles, request.fileno()])
            self._socket.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
            self._socket.settimeout(timeout_s)
            try:
                pid = int(self._socket.recv(64))
                return int(self._socket.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(10)
                self._socket.recv(64)
                raise subprocess.TimeoutExpired("fleet", timeout_s) from None

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait()


_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers or _servers[0].owner != os.getpid():
        _servers[:] = [_Server()]
    return _servers[0]


# --- the process that forks -----------------------------------------------------------------------------------------


def _serve(handle: int) -> bool:
    """Fork a command for each request, one after another, until nobody asks any more; return True in a command."""
    # What most commands need; whatever else one needs it imports for itself, after the fork.
    import fleet.app.learning
    import fleet.app.sharing
    import fleet.cli.main  # noqa: F401

    connection = socket.socket(fileno=handle)
    while True:
        word, sent, _, _ = connection.recvmsg(16, socket.CMSG_SPACE(4 * array.array("i").itemsize))
        if not word:
            return False
        handles = array.array("i")
        for _, _, data in sent:
            handles.frombytes(data)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(list(handles))
            return True
        connection.send(str(pid).encode())
        for each in handles:
            os.close(each)
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(handles: list[int]) -> None:
    """Turn this process into the command: it ends as any interpreter does."""
    request = os.pread(handles[3], _REQUEST_BYTES_MAX, 0)
    asked = json.loads(request)
    for target, each in enumerate(handles[:3]):
        os.dup2(each, target)
    for each in handles:
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = [str(ROOT / "fleet/__main__.py"), *asked["words"]]
    sys.path[0] = asked["cwd"]  # as `python -m` has it
    tempfile.tempdir = None
    time.tzset()


if __name__ == "__main__":
    if _serve(int(sys.argv[1])):
        from fleet.cli.main import main

        main()
