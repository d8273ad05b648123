"""fleet's own bare repository: a copy of the clan's branch, made anew whenever it is gone or damaged."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fleet.keep.disk import Disk
from fleet.keep.lazily import compiled
from fleet.share.gitprocess import GIT, Done, GitDamaged, GitFailed, GitTimeout, environment, run, words

_CONNECT_S_MAX = 15.0

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
