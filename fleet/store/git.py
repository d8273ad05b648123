"""fleet's own bare repository: a mirror of the clan's branch, made anew whenever it is gone or damaged.

Plumbing only: no work tree, no index, no hook and no filter is ever involved.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from fleet.store.files import Files
from fleet.store.gitprocess import GIT, Done, GitDamaged, GitFailed, GitTimeout, environment, run, words

FETCHED = "refs/fleet/fetched"
"""The tree that the workspace has taken in: an input of the fold."""
SEEN = "refs/fleet/seen"
"""The remote's head as last seen."""
NEXT = "refs/fleet/next"
"""The commit that is about to be pushed."""
AUTHOR = "fleet"

_CONNECT_S_MAX = 15.0
_CONFIG = b"""\
# This repository is fleet's own: a copy of the clan's branch, made anew when it is gone. Do not edit: fleet does not
# run git on a repository with another configuration, since that could name programs to run.
[core]
\trepositoryformatversion = %d
\tfilemode = true
\tbare = true
"""
_CONFIGS = {
    "sha1": _CONFIG % 0,
    "sha256": _CONFIG % 1 + b"[extensions]\n\tobjectformat = sha256\n",
}
_LISTINGS_MAX = 8
_PACKS_MAX = 100
_LOOSE_PER_PACK = 50
_LEFT_LOCKS = (f"{FETCHED}.lock", f"{SEEN}.lock", f"{NEXT}.lock", "packed-refs.lock", "shallow.lock")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DISK = re.compile(r"No space left|Read-only file system|Permission denied|Disk quota|Input/output error")
_DAMAGE = re.compile(
    r"bad object|valid object|sha1 pointer|corrupt|is empty|unable to read|not a git repository|bad pack|missing"
)


class Entry(NamedTuple):
    """One path of a commit's tree. Its size is -1 for what is no blob."""

    mode: str
    oid: str
    size: int


class Bare:
    """A bare repository of fleet's own. Everything in it can be fetched again.

    Args:
        folder: where it is; its lock lies beside it.
        timeout_s: how long one ``alone`` may take.
        hidden: strings that must not be shown, such as the password of an address.
        listings: commit to what stands in its tree, shared by who works in the same repository. It is never stale.
    """

    def __init__(
        self,
        folder: Path,
        timeout_s: float = 60.0,
        hidden: Sequence[str] = (),
        listings: dict[str, dict[str, Entry]] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._timeout_s = timeout_s
        self._hidden = hidden
        self._listings = {} if listings is None else listings
        self._until = 0.0
        self._env = environment(os.environ, min(timeout_s, _CONNECT_S_MAX))
        self._is_ssh_settled = "GIT_SSH_COMMAND" in os.environ
        self._reader: subprocess.Popen[bytes] | None = None
        self._is_reading = False

    # --- the repository itself --------------------------------------------------------------------------------------

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the repository, open it, and start the clock.

        Raises:
            BusyError: another process held it all the time.
            GitFailed: it cannot be made, or is not as fleet made it.
            OSError: the folder cannot be used, or there is no git.
        """
        until = time.monotonic() + self._timeout_s
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = self.folder.with_name(self.folder.name + ".lock")
        with Files(lock.parent).lock(lock, self._timeout_s):
            self._until = until
            try:
                self._open()
                self._tidy()
                yield
            finally:
                self._until = 0.0

    def rebuild(self, object_format: str = "") -> None:
        """Throw the mirror away and make a new, empty one, with the same object format unless another one is named."""
        object_format = object_format or self.object_format() or "sha1"
        self._listings.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._create(object_format)

    def object_format(self) -> str:
        """Return "sha1" or "sha256"; "" where there is no repository, or one that fleet did not make."""
        with suppress(OSError):
            config = (self.folder / "config").read_bytes()
            return next((name for name, known in _CONFIGS.items() if known == config), "")
        return ""

    def _open(self) -> None:
        if not self.folder.exists():
            self._create("sha1")
        self._check()
        # The lock is held, so these are left from a git that was killed.
        for left in _LEFT_LOCKS:
            (self.folder / left).unlink(missing_ok=True)

    def _check(self) -> None:
        if not self.object_format():
            raise GitFailed(f"{self.folder} is not as fleet made it; move it away, it is made anew")

    def _create(self, object_format: str) -> None:
        """Make it elsewhere and rename it, so that it is never half there."""
        new = Path(tempfile.mkdtemp(prefix=f".{self.folder.name}.", dir=self.folder.parent))
        try:
            command = (*GIT, "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
            done = run((*command, "--", str(new)), folder=new, env=self._env, until=self._until)
            if done.code:
                raise GitFailed(f"{self.folder}: {self.words(done)}")
            Files(new).replace(new / "config", _CONFIGS[object_format])
            new.rename(self.folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _tidy(self) -> None:
        """Put the packs together when they have become many: each checked fetch leaves one, and all are searched.

        Git's own housekeeping would come at its own time and stay behind. Measured: 17 ms a pull with one pack, 24 with
        100, 65 with 800. Only neighbours in size are joined, so the work follows what is new.
        """
        packs = sum(1 for _ in (self.folder / "objects/pack").glob("*.pack"))
        # Ids are spread evenly, as git assumes too.
        loose = 256 * sum(1 for _ in (self.folder / "objects/17").glob("*"))
        if packs + loose // _LOOSE_PER_PACK <= _PACKS_MAX:
            return
        until = min(self._until, time.monotonic() + self._timeout_s / 3)
        for how in ("--geometric=2", "-a"):  # the first is known since git 2.32
            with suppress(GitTimeout):
                if self._run(GIT, ("repack", how, "-d", "-q"), until=until).code == 0:
                    return

    # --- refs -------------------------------------------------------------------------------------------------------

    def ref(self, name: str) -> str:
        """Return the commit of a ref, "" for none. Costs a read of one small file, and no process."""
        with suppress(OSError, ValueError):
            return _checked((self.folder / name).read_bytes().decode("ascii").strip())
        with suppress(OSError, ValueError):
            for line in (self.folder / "packed-refs").read_text("ascii").splitlines():
                commit, _, named = line.partition(" ")
                if named == name:
                    return _checked(commit)
        return ""

    def set_ref(self, name: str, commit: str) -> None:
        """Let a ref name a commit that is here, durably; "" removes it.

        Raises:
            DiskError: it was not written.
        """
        files = Files(self.folder)
        if commit:
            files.replace(self.folder / name, commit.encode() + b"\n")
        elif self.folder.exists():
            files.remove(self.folder / name)
            if self.ref(name):  # packed by somebody's gc
                self.git("update-ref", "-d", name)

    def forget_history(self) -> None:
        """Let go of every object behind the commits that refs name: of what once stood there, nothing stays here.

        Those commits become the bounds of a shallow history. What comes after them is fetched as before.

        Raises:
            GitDamaged: it could not be done; everything is as it was, or only partly gone.
        """
        commits = sorted({commit for name in (FETCHED, SEEN, NEXT) if (commit := self.ref(name))})
        if not commits:
            return
        self._listings.clear()
        self.set_ref(NEXT, "")
        commits = sorted({commit for name in (FETCHED, SEEN) if (commit := self.ref(name))}) or commits
        Files(self.folder).replace(self.folder / "shallow", "".join(f"{each}\n" for each in commits).encode())
        for command in (("reflog", "expire", "--expire=all", "--all"), ("repack", "-a", "-d", "-q"), ("prune",)):
            if (done := self.git(*command)).code:
                raise self.trouble(done)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Tell whether one commit is in the history of another; False for one that is not here."""
        return self.git("merge-base", "--is-ancestor", older, newer).code == 0

    # --- trees and blobs --------------------------------------------------------------------------------------------

    def listing(self, commit: str) -> dict[str, Entry]:
        """Return what stands at each path of a commit; nothing for "".

        Raises:
            GitDamaged: the commit or its trees are not here.
            GitTooMuch: the tree is too large to list.
        """
        if not commit or commit in self._listings:
            return self._listings.get(commit, {})
        done = self.git("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        if done.code:
            raise self.trouble(done)
        found = {}
        for line in done.out.split(b"\0")[:-1]:
            fields, _, path = line.partition(b"\t")
            mode, _, oid, size = fields.decode("ascii").split()
            number = int(size) if size.isdecimal() else -1
            found[path.decode("utf-8", "backslashreplace")] = Entry(mode, oid, number)
        if len(self._listings) >= _LISTINGS_MAX:
            self._listings.clear()
        self._listings[commit] = found
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let one git answer all that is read while the block runs."""
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False
            self._stop_reader()

    def blobs(self, oids: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of each blob, one at a time: never are all of them in memory.

        Raises:
            GitDamaged: one is not here.
        """
        try:
            for oid in oids:
                is_new = self._reader is None
                try:
                    data = self._blob(oid)
                except GitDamaged:
                    self._stop_reader()
                    if is_new:
                        raise
                    data = self._blob(oid)  # the repository was made anew since the reader was started
                yield data
        finally:
            if not self._is_reading:
                self._stop_reader()

    def _blob(self, oid: str) -> bytes:
        """Return the answer to one question: ``<id> blob <size>``, a line end, the bytes, a line end.

        Asked for one blob after the other, so that no disk needs room for a list.
        """
        if self._reader is None:
            self._check()
            self._reader = subprocess.Popen(
                (*GIT, f"--git-dir={self.folder}", "cat-file", "--batch"),
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        asked, answers = self._reader.stdin, self._reader.stdout
        if asked is None or answers is None:
            raise ValueError("both ends of the child must be pipes")
        with suppress(BrokenPipeError):
            asked.write(f"{oid}\n".encode())
            asked.flush()
        head = answers.readline(256).split()
        data = answers.read(int(head[2])) if len(head) == 3 and head[1] == b"blob" else b""
        if head[:2] != [oid.encode(), b"blob"] or len(data) != int(head[2]) or answers.read(1) != b"\n":
            raise GitDamaged(f"{self.folder}: objects are missing")
        return data

    def _stop_reader(self) -> None:
        if self._reader is not None:
            self._reader.kill()
            self._reader.communicate()
            self._reader = None

    def commit(
        self, files: Mapping[str, bytes], on: str, *, message: str, author: str = AUTHOR, at_s: float = 1.0
    ) -> str:
        """Lay files over the tree of a commit, ``b""`` removes one; return the new commit, held by ``NEXT``.

        All of it in one process: hash-object, ls-tree, mktree and commit-tree would be four. What is no plain file at
        the place of one of the paths is replaced.

        Raises:
            GitDamaged: the commit that it builds on is not here.
        """
        who = f"{author} <fleet@localhost> {max(1, int(at_s))} +0000"
        line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", message).split()).encode("utf-8", "replace")
        with self.scratch() as script:
            script.write(f"feature done\ncommit {NEXT}\nmark :1\nauthor {who}\ncommitter {who}\n".encode())
            script.write(b"data %d\n%b\n" % (len(line), line))
            if on:
                script.write(f"from {on}\n".encode())
            for path, data in sorted(files.items()):
                if data:
                    script.write(b"M 100644 inline %b\ndata %d\n" % (path.encode(), len(data)))
                    script.write(data)
                    script.write(b"\n")
                else:
                    script.write(b"D %b\n" % path.encode())
            script.write(b"\nget-mark :1\ndone\n")
            # --force: what the ref was at before does not matter, it only keeps the objects from being collected.
            done = self.git("fast-import", "--quiet", "--force", stdin=script)
        commit = done.out.decode("ascii", "replace").strip()
        if done.code == 0 and _ID.fullmatch(commit):
            return commit
        for report in self.folder.glob("fast_import_crash_*"):
            report.unlink(missing_ok=True)
        raise self.trouble(done)

    # --- running git ------------------------------------------------------------------------------------------------

    def git(self, *arguments: str, stdin: IO[bytes] | None = None) -> Done:
        """Run a command that stays on this machine.

        Raises:
            GitFailed: the repository is not as fleet made it.
        """
        self._check()
        return self._run(GIT, arguments, stdin)

    def far(self, settings: Sequence[str], *arguments: str, is_near: bool = False) -> Done:
        """Run a command that talks to the far side; one on this machine (``is_near``) is hardly reached by ssh."""
        if not is_near:
            self._settle_ssh()
        command = (*GIT, *(part for setting in settings for part in ("-c", setting)))
        done = self._run(command, arguments, is_tied=True)
        # The user's configuration may turn any address into another one.
        return self._run(command, arguments, is_tied=True) if done.code and self._settle_ssh() else done

    def scratch(self) -> IO[bytes]:
        """Return an empty file without a name, for what a command reads."""
        try:
            return tempfile.TemporaryFile(dir=self.folder)
        except OSError:  # read-only, or full: the system's own folder may do
            return tempfile.TemporaryFile()

    def words(self, done: Done) -> str:
        """Return what git said, fit to be shown."""
        return words(done.err, self._hidden)

    def trouble(self, done: Done) -> Exception:
        """Return the error of a failed command: a full or broken disk, which no new mirror mends, or damage."""
        kind = GitFailed if _DISK.search(done.err) else GitDamaged
        return kind(f"{self.folder}: {self.words(done)}")

    def is_damaged(self, done: Done) -> bool:
        """Tell whether a command failed because the mirror is damaged. Looks only if git's words hint at it."""
        if _DISK.search(done.err) or not _DAMAGE.search(done.err):
            return False
        return self.git("fsck", "--no-dangling", "--no-progress").code != 0

    def _settle_ssh(self) -> bool:
        """Let an ssh command in the user's configuration count: ours, in the environment, would win. Tell if one does.

        Asked once.
        """
        if self._is_ssh_settled:
            return False
        self._is_ssh_settled = True
        return self.git("config", "--get", "core.sshCommand").code == 0 and bool(self._env.pop("GIT_SSH_COMMAND", None))

    def _run(
        self,
        start: Sequence[str],
        arguments: Sequence[str],
        stdin: IO[bytes] | None = None,
        until: float | None = None,
        is_tied: bool = False,
    ) -> Done:
        if stdin:
            stdin.seek(0)  # flushes too
        command = (*start, f"--git-dir={self.folder}", *arguments)
        until = until or self._until or time.monotonic() + self._timeout_s
        return run(command, folder=self.folder, env=self._env, until=until, stdin=stdin, is_tied=is_tied)


def _checked(commit: str) -> str:
    if not _ID.fullmatch(commit):
        raise ValueError(commit)
    return commit
