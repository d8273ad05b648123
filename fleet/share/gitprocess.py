"""Running git as a tool: no prompt, no hook, no leftover process, no more output than we can hold, no secret shown.

``run`` starts one git: it ends when git ends or the time is up, and takes the whole process group with it. ``Bare`` is
the one repository that it runs in, a copy that is made when it is missing and made anew when it is damaged. ``words``
makes what git said fit to be shown. One module, because each of the three is there to keep the same promise.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from fleet.keep.disk import Disk
from fleet.keep.lazily import compiled
from fleet.keep.screening import for_terminal, redact
from fleet.share.remote import SCHEMES

OUT_BYTES_MAX = 64 * 1024 * 1024
WORDS_BYTES_MAX = 16 * 1024
WORDS_LINES_MAX = 6
WORD_LINE_CHARS_MAX = 300

_CHUNK_BYTES = 256 * 1024
_CONNECT_S_MAX = 15.0
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
    sink: Callable[[bytes], None] | None = None,
    is_tied: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> Done:
    """Run one command to its end, in a session of its own: without a terminal, nothing in it can ask for anything.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        env: its environment, whole.
        until: when the time is up, on ``time.monotonic``.
        stdin: a file to read from, at its start; None is empty. A file and not a pipe, so that nobody waits for us.
        sink: takes the output piece by piece; without, it is returned, up to ``OUT_BYTES_MAX``.
        is_tied: it must not outlive us even if we are killed; for what may wait long. Has no stdin.
        meanwhile: done while the command runs; what that takes does not count as waiting.

    Raises:
        GitTimeout: the time was up.
        GitTooMuch: there was more output than allowed.
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
            if meanwhile is not None:
                began = time.monotonic()
                meanwhile()
                until += time.monotonic() - began
            err = _pump(child, sink or kept.feed, until)
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


# --- the local copy -------------------------------------------------------------------------------------------------

_CONFIG = b"""\
# This repository is fleet's own: a copy of the clan's branch, made anew when it is gone. Do not edit: fleet does not
# run git on a repository with another configuration, since that could name programs to run.
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
"""
_PACKS_MAX = 100
_LOOSE_PER_PACK = 50
_LEFT_LOCKS = ("refs/fleet/fetched.lock", "refs/fleet/next.lock", "packed-refs.lock", "shallow.lock")
_DISK = compiled(r"No space left|Read-only file system|Permission denied|Disk quota|Input/output error")
_DAMAGE = compiled(
    r"bad object|valid object|sha1 pointer|corrupt|is empty|unable to read|not a git repository|bad pack|missing"
)


class Bare:
    """A bare repository of fleet's own. Everything in it can be fetched again.

    Args:
        folder: where it is; the lock lies beside it.
        timeout_s: how long one ``alone`` may take.
        hidden: strings that must not be shown.
    """

    def __init__(self, folder: Path, timeout_s: float, hidden: Sequence[str] = ()) -> None:
        self.folder = folder.absolute()
        self._timeout_s = timeout_s
        self._hidden = hidden
        self._until = 0.0
        self._env = environment(os.environ, min(timeout_s, _CONNECT_S_MAX))
        self._is_ssh_settled = "GIT_SSH_COMMAND" in os.environ

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the repository, open it, and start the clock.

        Raises:
            BusyError: another process held it all the time.
            GitFailed: it cannot be made, or is not as we made it.
            OSError: the folder cannot be used, or there is no git.
        """
        until = time.monotonic() + self._timeout_s
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = self.folder.with_name(self.folder.name + ".lock")
        with Disk(lock.parent).lock(lock, self._timeout_s):
            self._until = until
            self._open()
            self._tidy()
            yield

    def git(
        self,
        *arguments: str,
        stdin: IO[bytes] | None = None,
        sink: Callable[[bytes], None] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Done:
        """Run a command that stays on this machine."""
        return self._run(GIT, arguments, stdin, sink, meanwhile=meanwhile)

    def must(self, *arguments: str, stdin: bytes = b"", sink: Callable[[bytes], None] | None = None) -> bytes:
        """Run a local command that fails only if the copy is damaged or the disk is full, and return its output."""
        with self.scratch() as asked:
            asked.write(stdin)
            done = self.git(*arguments, stdin=asked, sink=sink)
        if done.code:
            raise self.trouble(done)
        return done.out

    def scratch(self) -> IO[bytes]:
        """Return an empty file without a name, for what a command reads. The caller holds the repository."""
        path = self.folder / "fleet-asks"
        path.unlink(missing_ok=True)  # left from a process that was killed right here
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        path.unlink()
        return os.fdopen(handle, "w+b")

    def sizes(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Return each object's type and size, before anything is read: a megabyte may unpack to a gigabyte."""
        if not ids:
            return []
        out = self.must("cat-file", "--batch-check", "--buffer", stdin=_lines(ids))
        answers = [line.split(" ") for line in out.decode().splitlines()]
        if [answer[0] for answer in answers] != [*ids] or any(len(answer) != 3 for answer in answers):
            raise GitDamaged(f"{self.folder}: objects are missing")
        return [(kind, int(size)) for _, kind, size in answers]

    def contents(self, wanted: Sequence[tuple[str, str, int]]) -> dict[str, bytes]:
        """Return the blobs of (path, id, size) by path."""
        if not wanted:
            return {}
        blobs = _Blobs([(path, size) for path, _, size in wanted])
        self.must("cat-file", "--batch", "--buffer", stdin=_lines([blob for _, blob, _ in wanted]), sink=blobs.feed)
        if len(blobs.files) != len(wanted):
            raise GitDamaged(f"{self.folder}: objects are missing")
        return blobs.files

    def far(
        self,
        settings: Sequence[str],
        *arguments: str,
        is_near: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> Done:
        """Run a command that talks to the far side; one on this machine (``is_near``) is hardly reached by ssh."""
        if not is_near:
            self._settle_ssh()
        command = (*GIT, *(part for setting in settings for part in ("-c", setting)))
        done = self._run(command, arguments, is_tied=True, meanwhile=meanwhile)
        # The user's configuration may turn any address into another one.
        return self._run(command, arguments, is_tied=True) if done.code and self._settle_ssh() else done

    def _settle_ssh(self) -> bool:
        """Let an ssh command in the user's configuration count: ours, in the environment, would win. Tell if one does.

        Asked once.
        """
        if self._is_ssh_settled:
            return False
        self._is_ssh_settled = True
        return self.git("config", "--get", "core.sshCommand").code == 0 and bool(self._env.pop("GIT_SSH_COMMAND", None))

    def words(self, done: Done) -> str:
        """Return what git said, fit to be shown."""
        return words(done.err, self._hidden)

    def trouble(self, done: Done) -> Exception:
        """Tell a full or broken disk, which a new copy would not mend, from a damaged copy."""
        kind = GitFailed if _DISK.search(done.err) else GitDamaged
        return kind(f"{self.folder}: {self.words(done)}")

    def is_damaged(self, done: Done) -> bool:
        """Tell whether a command failed because the copy is damaged. Looks only if git's words hint at it."""
        if _DISK.search(done.err) or not _DAMAGE.search(done.err):
            return False
        return self.git("fsck", "--no-dangling", "--no-progress").code != 0

    def rebuild(self) -> None:
        """Throw the copy away and make a new one, empty."""
        import shutil  # hardly ever needed

        shutil.rmtree(self.folder, ignore_errors=True)
        self._open()

    def _open(self) -> None:
        if not self.folder.exists():
            self._create()
        try:
            is_ours = (self.folder / "config").read_bytes() == _CONFIG
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise GitFailed(f"{self.folder} is not as fleet made it; move it away, it is made anew")
        # We hold the lock, so these are left from a git that was killed.
        for left in _LEFT_LOCKS:
            (self.folder / left).unlink(missing_ok=True)

    def _create(self) -> None:
        """Make it elsewhere and rename it, so that it is never half there."""
        import shutil
        import tempfile

        new = Path(tempfile.mkdtemp(prefix=f".{self.folder.name}.", dir=self.folder.parent))
        try:
            command = (*GIT, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--", str(new))
            done = run(command, folder=new, env=self._env, until=self._until)
            if done.code:
                raise GitFailed(f"{self.folder}: {self.words(done)}")
            Disk(new).replace(new / "config", _CONFIG)
            new.rename(self.folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _tidy(self) -> None:
        """Put the packs together when they have become many: each checked fetch leaves one, and all are searched.

        Git's own housekeeping would come at its own time and stay behind. Measured: 17 ms a pull with one pack, 24 with
        100, 65 with 800. Only neighbours in size are joined, so the work follows what is new.
        """
        packs = sum(1 for _ in (self.folder / "objects/pack").glob("*.pack"))
        loose = 256 * sum(
            1 for _ in (self.folder / "objects/17").glob("*")
        )  # ids are spread evenly, as git assumes too
        if packs + loose // _LOOSE_PER_PACK <= _PACKS_MAX:
            return
        until = min(self._until, time.monotonic() + self._timeout_s / 3)
        for how in ("--geometric=2", "-a"):  # the first is known since git 2.32
            with suppress(GitTimeout):
                if self._run(GIT, ("repack", how, "-d", "-q"), until=until).code == 0:
                    return

    def _run(
        self,
        start: Sequence[str],
        arguments: Sequence[str],
        stdin: IO[bytes] | None = None,
        sink: Callable[[bytes], None] | None = None,
        until: float | None = None,
        is_tied: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> Done:
        if stdin:
            stdin.seek(0)  # flushes too
        command = (*start, f"--git-dir={self.folder}", *arguments)

        def spend() -> None:
            began = time.monotonic()
            if meanwhile is not None:
                meanwhile()
            self._until += time.monotonic() - began

        return run(
            command,
            folder=self.folder,
            env=self._env,
            until=self._until if until is None else until,
            stdin=stdin,
            sink=sink,
            is_tied=is_tied,
            meanwhile=spend,
        )


class _Blobs:
    """Takes the answer of ``cat-file --batch`` apart as it arrives, so that it is never in memory as a whole."""

    def __init__(self, wanted: Sequence[tuple[str, int]]) -> None:
        self.files: dict[str, bytes] = {}
        self._wanted = iter(wanted)
        self._next = next(self._wanted, None)
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next piece: ``<id> blob <size>``, a line end, the bytes, a line end, and so on."""
        self._rest += data
        while self._next:
            path, size = self._next
            start = self._rest.find(b"\n", 0, 128) + 1
            if not start or len(self._rest) < start + size + 1:
                return
            with memoryview(self._rest) as view:
                self.files[path] = bytes(view[start : start + size])
            del self._rest[: start + size + 1]
            self._next = next(self._wanted, None)


def _lines(ids: Sequence[str]) -> bytes:
    return "".join(f"{one}\n" for one in ids).encode()


# --- what git says --------------------------------------------------------------------------------------------------

_USERINFO = compiled(r"(?<=://)[^/\s'\"@]*@(?=[^\s])")
_NO_NEWS = compiled(r"hint:|To |error: failed to push some refs|warning: redirecting|remote:\s*$|\s*$")


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
