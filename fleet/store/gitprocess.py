"""Running git as a tool: no prompt, no hook, no leftover process, no more output than we can hold, no secret shown.

``run`` starts one git: it ends when git ends or the time is up, and takes the whole process group with it. ``words``
makes what git said fit to be shown.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from fleet.text.screening import for_terminal, redact

SCHEMES = ("file", "git", "http", "https", "ssh")
"""The protocols that git may use for us."""

OUT_BYTES_MAX = 64 * 1024 * 1024
WORDS_BYTES_MAX = 16 * 1024
WORDS_LINES_MAX = 6
WORD_LINE_CHARS_MAX = 300

_CHUNK_BYTES = 256 * 1024
_TERM_S = 1.0  # git removes its lock files and half-written packs when it is asked to end
_LINGER_S = 0.05

# What of git's own environment passes: how to reach and trust the far side. All else (GIT_DIR, GIT_INDEX_FILE,
# GIT_OBJECT_DIRECTORY, GIT_TRACE ...) belongs to whoever called fleet, for instance to the git whose hook we are.
_KEPT = frozenset(
    {
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_EXEC_PATH",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
    }
)
_KEPT_PREFIXES = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSL_")

STREAMED = "core.bigFileThreshold=16m"
"""A larger blob is streamed, never held in memory."""

# Given to every call. Later than any configuration file, so that none of these can be turned around by one.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    # Both are known since git 2.36; an older one ignores them. Measured on a quiet disk: 1 to 2 ms a push. Without, a
    # power cut leaves empty objects behind. We would notice and fetch all anew, which costs more than the waiting.
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    STREAMED,
    "pack.windowMemory=64m",
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "fetch.showForcedUpdates=true",
    "fetch.writeCommitGraph=false",
    "submodule.recurse=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "credential.interactive=false",
    "init.defaultRefFormat=files",
)
GIT: tuple[str, ...] = ("git", *(part for setting in _SETTINGS for part in ("-c", setting)))
"""The start of every command line."""


class GitTimeout(Exception):  # noqa: N818 - an outcome, told apart from git's own errors
    """The time was up; git and its children are gone."""


class GitTooMuch(Exception):  # noqa: N818
    """The output grew beyond what was allowed; git and its children are gone."""


class GitFailed(Exception):  # noqa: N818
    """Git could not do on this machine what it was asked; its screened words."""


class GitDamaged(Exception):  # noqa: N818
    """The local copy is not whole any more: ``Bare.rebuild`` mends it. Git's screened words."""


class Done(NamedTuple):
    """What a finished git left: its exit code, its output, and the tail of what it said, as it said it."""

    code: int
    out: bytes
    err: str


def environment(inherited: Mapping[str, str], connect_s: float) -> dict[str, str]:
    """Return the environment that a git of ours runs in.

    The user's own way in (ssh command, credential helpers, proxies) stays; prompting, and what ties a git to another
    repository, goes.
    """
    env = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("GIT_") or name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    allowed = inherited.get("GIT_ALLOW_PROTOCOL")
    env |= {
        "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES if allowed is None else sorted({*SCHEMES} & {*allowed.split(":")})),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GCM_INTERACTIVE": "never",
        "LC_ALL": "C",
    }
    if "GIT_SSH" not in env and "GIT_SSH_COMMAND" not in env:
        env["GIT_SSH_COMMAND"] = f"ssh -o BatchMode=yes -o ConnectTimeout={max(1, round(connect_s))}"
    return env


# Ends a command, and all that it started, when we are killed: then the pipe that is our end of its stdin closes. A
# parent-death signal would reach git but not its ssh or http helper, and a preexec_fn may deadlock beside threads.
_TIED = """\
exec 3<&0 </dev/null
(read -r _ <&3; kill -TERM 0) >/dev/null 2>&1 &
watch=$!
trap : TERM
"$@" 3<&- &
wait $!; code=$?
while [ $code -gt 128 ] && kill -0 $! 2>/dev/null; do wait $!; code=$?; done
kill $watch 2>/dev/null
exit $code
"""


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    until: float,
    stdin: IO[bytes] | None = None,
    is_tied: bool = False,
) -> Done:
    """Run one command to its end, in a session of its own: without a terminal, nothing in it can ask for anything.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        env: its environment, whole.
        until: when the time is up, on ``time.monotonic``.
        stdin: a file to read from, at its start; None is empty. A file and not a pipe, so that nobody waits for us.
        is_tied: it must not outlive us even if we are killed; for what may wait long. Has no stdin.

    Raises:
        GitTimeout: the time was up.
        GitTooMuch: there was more output than ``OUT_BYTES_MAX``.
        FileNotFoundError: there is no such program.
    """
    kept = _Kept()
    child = subprocess.Popen(
        ("/bin/sh", "-c", _TIED, "sh", *command) if is_tied else command,
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE if is_tied else stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        try:
            err = _pump(child, kept.feed, until)
            code = child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired as why:
            _end(child)
            raise GitTimeout from why
        except BaseException:
            _end(child)
            raise
    return Done(code, b"".join(kept.pieces), err.decode("utf-8", "replace"))


class _Kept:
    """Output that is returned as a whole."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > OUT_BYTES_MAX:
            raise GitTooMuch
        self.pieces.append(data)


def _pump(child: "subprocess.Popen[bytes]", sink: Callable[[bytes], None], until: float) -> bytes:
    """Take both outputs until they end; return the tail of stderr.

    An ssh that stays behind to share its connection keeps stderr open: once git itself has ended, what is there counts.
    """
    err = bytearray()
    if child.stdout is None or child.stderr is None:
        raise ValueError("both outputs of the child must be pipes")
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        waiting.register(child.stderr, selectors.EVENT_READ)
        while waiting.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise GitTimeout
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
                    if len(err) > WORDS_BYTES_MAX:
                        # Cut at a line: half a password would not be recognised as one.
                        del err[: (err.find(b"\n", len(err) - WORDS_BYTES_MAX) + 1) or len(err)]
                else:
                    sink(data)
    return bytes(err)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and all that it started, first kindly."""
    for how, wait_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, how)
        with suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)


# --- what git says --------------------------------------------------------------------------------------------------

_USERINFO = re.compile(r"(?<=://)[^/\s'\"@]*@(?=[^\s])")
_NO_NEWS = re.compile(r"hint:|To |error: failed to push some refs|warning: redirecting|remote:\s*$|\s*$")


def words(err: str, hidden: Sequence[str] = ()) -> str:
    """Return what git said, fit to be shown: no credentials, no terminal escapes, a few lines joined to one.

    Args:
        err: git's stderr, of which the far side wrote the lines after ``remote:``.
        hidden: strings that must not be shown, such as the password of the address.
    """
    for secret in sorted(hidden, key=len, reverse=True):
        err = err.replace(secret, "***")
    err = redact(_USERINFO.sub("***@", err))
    lines = [line.strip()[:WORD_LINE_CHARS_MAX] for line in re.split(r"[\r\n]+", err) if not _NO_NEWS.match(line)]
    return for_terminal(" / ".join(lines[-WORDS_LINES_MAX:])) or "git gave no reason"
