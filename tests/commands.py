"""Runner of ``fleet`` commands and hooks for tests: in this process, or in one that is forked from one that is ready.

In a process of its own a command meets what it meets in a shell (arguments, folder, environment, three descriptors, an
exit code), and the suite does not pay for the same imports some thousands of times. ``FLEET_TEST_FORK=0`` starts an
interpreter for each. In this process (``here``) it takes half as long: its entry point is called with all of that but
the descriptors.
"""

import array
import atexit
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 120
_REQUEST_BYTES_MAX = 4 * 1024 * 1024
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE")
_NO_MATTER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""What is read at the start too, and makes no difference to who has imported everything."""


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
    done = _run("fleet", words, cwd, environment, text.encode("utf-8", "surrogateescape"), before, timeout_s)
    return subprocess.CompletedProcess(done.args, done.returncode, _text(done.stdout), _text(done.stderr))


def here(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], text: str = "", *, now_ms: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command in this process, through its entry point; return its exit code and what it wrote.

    What would not meet here what it meets in a shell runs in a process of its own: a hook reads descriptors, a variable
    that an interpreter reads when it starts is read no more, and a thread has no folder of its own.

    Args:
        words: behind ``fleet``.
        cwd: the folder.
        environment: all of it.
        text: on standard input.
        now_ms: what the wall clock says; None: what it really says.
    """
    from fleet.cli import commands as parsed
    from fleet.cli import main

    mine = dict(os.environ)
    is_alike = _read_at_start(environment) == _read_at_start(mine) and environment.get("TZ") == mine.get("TZ")
    is_main = threading.current_thread() is threading.main_thread()
    if words[:1] == ("hook",) or not is_alike or not is_main:
        return run(words, cwd, environment, text)
    given = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogateescape")), "utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    clock = time.time_ns if now_ms is None else lambda: now_ms * 1_000_000
    place = Path.cwd()
    with (
        mock.patch.object(parsed, "app", _parser()),
        mock.patch.multiple(sys, argv=["fleet", *words], stdin=given, stdout=out, stderr=err),
        mock.patch.object(time, "time_ns", clock),
    ):
        os.chdir(cwd)
        _turn(mine, environment)
        try:
            code = main.run()
        finally:
            _turn(dict(os.environ), mine)
            os.chdir(place)
    out.flush()
    err.flush()
    return subprocess.CompletedProcess(words, code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


@functools.cache
def _parser() -> Callable[..., Any]:
    """Return all commands as the parser has them, made once, each when it is first wanted."""
    import typer

    from fleet.cli import commands

    return typer.main.get_command(commands.app)


def _turn(now: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Change the variables of this process that are other than they should be: some of fifty."""
    for name in now.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if now.get(name) != value:
            os.environ[name] = value


def hook(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], data: bytes, *, timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """Call ``python -m fleet.hook`` as a host does; return its exit code and what it wrote.

    Raises:
        subprocess.TimeoutExpired: it did not end; it was killed.
    """
    return _run("fleet.hook", words, cwd, environment, data, (), timeout_s)


def spent_s() -> float:
    """Return the processor time of all processes so far that were waited for, those of commands among them."""
    return sum(os.times()[2:4]) + sum(each.spent_s for each in _servers)


def _run(
    program: str,
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    data: bytes,
    before: Sequence[str],
    timeout_s: float,
) -> subprocess.CompletedProcess[bytes]:
    # Those that run at once, on threads, each have an interpreter: one process forks for one at a time.
    is_plain = not before and threading.current_thread() is threading.main_thread()
    is_plain = is_plain and os.environ.get("FLEET_TEST_FORK") != "0"
    if not is_plain or _read_at_start(environment) != _read_at_start(os.environ):
        return subprocess.run(
            [*before, sys.executable, "-m", program, *words],
            cwd=cwd,
            env=environment,
            input=data,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(data)
        given.seek(0)
        asked = {"program": program, "words": list(words), "cwd": str(cwd), "env": dict(environment)}
        handles = [given.fileno(), out.fileno(), err.fileno()]
        code = _server().ask(json.dumps(asked).encode(), handles, timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([program, *words], code, out.read(), err.read())


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name not in _NO_MATTER}


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


class _Server:
    """The process that forks: one for each process that runs tests."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.spent_s = 0.0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "GIT_"))}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(theirs.fileno())],
            env=kept | {"PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
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
                code, spent_s = self._socket.recv(64).split()
                self.spent_s = float(spent_s)
                return int(code)
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


def _serve(handle: int) -> str:
    """Fork a command for each request, one after another, until nobody asks any more; return its program in a command.

    Args:
        handle: the socket that is asked by.
    """
    get_ready()
    connection = socket.socket(fileno=handle)
    while True:
        word, sent, _, _ = connection.recvmsg(16, socket.CMSG_SPACE(4 * array.array("i").itemsize))
        if not word:
            return ""
        handles = array.array("i")
        for _, _, data in sent:
            handles.frombytes(data)
        pid = os.fork()
        if pid == 0:
            connection.close()
            return _become(list(handles))
        connection.send(str(pid).encode())
        for each in handles:
            os.close(each)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.send(f"{code} {sum(os.times()[2:4])}".encode())


def get_ready() -> None:
    """Import all of the program, and do once what each command would do again: lists of words, patterns, a parser."""
    import fleet
    from fleet.cli import main

    for found in pkgutil.walk_packages(fleet.__path__, "fleet."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    mine, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        os.chdir(folder)
        learned = ["correct", "--wrong", "w", "--right", "r", "--pattern", "Always be ready"]
        for words in (["init", "--agent", "tank", "--yes"], learned, ["patterns", "--json"], ["start"]):
            sys.argv = ["fleet", *words]
            main.run()
        os.chdir(here)
    os.environ.clear()
    os.environ.update(mine)
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # a collection in a command would touch, and so copy, every page of this


def _become(handles: list[int]) -> str:
    """Turn this process into the command; return its program."""
    request = os.pread(handles[3], _REQUEST_BYTES_MAX, 0)
    asked = json.loads(request)
    for target, each in enumerate(handles[:3]):
        os.dup2(each, target)
    for each in handles:
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    place = "fleet/hook.py" if asked["program"] == "fleet.hook" else "fleet/__main__.py"
    sys.argv = [str(ROOT / place), *asked["words"]]
    sys.path[0] = asked["cwd"]  # as `python -m` has it
    tempfile.tempdir = None
    time.tzset()
    customize = Path(os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0]) / "sitecustomize.py"
    if customize.is_file():  # as an interpreter does when it starts
        runpy.run_path(str(customize))
    return str(asked["program"])


def _live(program: str) -> None:
    """Be the command; end as an interpreter does, except that it does not take itself apart first."""
    from fleet.cli.main import main
    from fleet.hook import main as hear

    try:
        if program == "fleet.hook":
            sys.exit(hear(sys.argv[1:]))
        main()
    except SystemExit as left:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(left.code or 0))


if __name__ == "__main__":
    asked_for = _serve(int(sys.argv[1]))
    if asked_for:
        _live(asked_for)
