"""Runner of git, and fleet's own bare repository: a mirror of the clan's branch, rebuilt whenever it is missing.

git never prompts and runs no hook, leaves no process behind, prints a limited amount, and shows no secret. ``Bare``
runs plumbing commands on fleet's repository, without work tree, index or filters; all of it can be fetched again.
``output`` and ``changed_files`` read the user's own repository. Anybody may have written its settings: so they connect
to nothing, and run no program that it names.
"""

import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from fleet.model import limits
from fleet.model.errors import DiskError
from fleet.store import process
from fleet.store.files import Files
from fleet.store.process import Done
from fleet.text.screening import for_terminal, redact

SCHEMES = ("file", "git", "http", "https", "ssh")
"""The protocols that git may use for us."""

OUT_BYTES_MAX = 64 * 1024 * 1024
_REASON_LINES_MAX = 6
_REASON_LINE_CHARS_MAX = 300

# Variables of git that are passed on to it: how to reach and trust the remote. All others (GIT_DIR, GIT_INDEX_FILE,
# GIT_OBJECT_DIRECTORY, GIT_TRACE ...) belong to the caller of fleet, such as a git whose hook runs it.
_KEPT = frozenset(
    str.split(
        "GIT_CEILING_DIRECTORIES GIT_CONFIG_COUNT GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_CONFIG_SYSTEM "
        "GIT_DISCOVERY_ACROSS_FILESYSTEM GIT_EXEC_PATH GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT"
    )
)
_KEPT_PREFIXES = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSL_")

STREAMED = "core.bigFileThreshold=16m"
"""Setting by which git streams a larger blob instead of holding it in memory."""

_SETTINGS = Path(__file__).with_name("data").joinpath("git-settings.txt").read_text("utf-8").splitlines()
"""Settings of every command. The command line comes after all configuration files, so none of them overrides one."""
GIT = ("git", "-c", STREAMED, *(word for row in _SETTINGS if not row.startswith("#") for word in ("-c", row)))
"""The start of every command line."""


class GitFailed(Exception):  # noqa: N818 - an outcome
    """Error: a git command failed or was stopped, with its screened message. None of its processes is left."""

    advice = ""
    """Advice to a person, if the failure has another cause than an unreachable remote."""


class _TimeUpError(GitFailed):
    """Error: a git command took too long."""


class _TooMuchOutputError(GitFailed):
    """Error: a git command printed more than ``OUT_BYTES_MAX``."""


class GitDamaged(GitFailed):
    """Error: the local copy is damaged; ``Bare.rebuild`` makes it anew."""


def _environment(inherited: Mapping[str, str], connect_s: float) -> dict[str, str]:
    """Return the environment for git: with the user's settings of access, without prompts or other repositories."""
    env = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("GIT_") or name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    allowed = inherited.get("GIT_ALLOW_PROTOCOL")
    env |= {
        "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES if allowed is None else sorted({*SCHEMES} & {*allowed.split(":")})),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",  # none, whatever core.askPass and SSH_ASKPASS say
        "SSH_ASKPASS": "false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GCM_INTERACTIVE": "never",
        "LC_ALL": "C",
    }
    if "GIT_SSH" not in env and "GIT_SSH_COMMAND" not in env:
        env["GIT_SSH_COMMAND"] = f"ssh -o BatchMode=yes -o ConnectTimeout={max(1, round(connect_s))}"
    return env


def _run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    until: float,
    stdin: IO[bytes] | None = None,
    is_tied: bool = False,
) -> Done:
    """Run one git, as ``process.run`` does, with at most ``OUT_BYTES_MAX`` of output."""
    try:
        return process.run(
            command, folder=folder, env=env, until=until, out_max=OUT_BYTES_MAX, stdin=stdin, is_tied=is_tied
        )
    except process.StoppedError as why:
        if why.is_late:
            raise _TimeUpError("git took too long and was stopped") from why
        raise _TooMuchOutputError(f"git printed more than {OUT_BYTES_MAX:,} bytes and was stopped") from why


def output(folder: Path, *arguments: str, wait_s: float = 5.0) -> str:
    """Return the stripped output of a git command in a folder; "" where it fails or takes too long."""
    done = _done(folder, arguments, wait_s)
    return done.out.decode("utf-8", "replace").strip() if done.code == 0 else ""


def changed_files(root: Path, wait_s: float) -> list[str]:
    """Return the tracked files that differ from the last commit of the enclosing repository; [] where git fails."""
    if not (root / ".git").exists():
        return []
    # It compares times and sizes: to compare contents, git would run the filters that the repository names.
    listed = ("diff-index", "--name-only", "--no-ext-diff", "--ignore-submodules", "-z", "HEAD")
    return output(root, *listed, wait_s=wait_s).split("\0")[:-1]


def may_track(root: Path, folder: str) -> bool:
    """Return whether the enclosing repository tracks files in a folder below the root, or git cannot tell."""
    done = _done(root, ("ls-files", "-z", "--", f":(literal){folder}"))
    return done.code != 0 or bool(done.out)


def refusal(folder: Path) -> str:
    """Return git's reason for refusing the repository around a folder, such as another owner; "" if it does not."""
    err = _done(folder, ("rev-parse", "--git-dir")).err
    return _shown_reason(err) if "safe.directory" in err else ""


def _done(folder: Path, arguments: Sequence[str], wait_s: float = 5.0) -> Done:
    until = time.monotonic() + wait_s
    # An object that is missing in a partial clone would be fetched, from an address or by a program of its settings.
    env = _environment(os.environ, wait_s) | {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    try:
        return _run((*GIT, *arguments), folder=folder, env=env, until=until)
    except (OSError, GitFailed):
        return Done(1, b"", "")


# --- git's error messages -------------------------------------------------------------------------------------------

_USERINFO = re.compile(r"(?<=://)[^/\s'\"@]*@(?=[^\s])")
_NO_NEWS = re.compile(
    r"hint:|To |error: failed to push some refs|warning: redirecting|remote:\s*$|\s*$"
    r"|Please make sure you have the correct access rights|and the repository exists"
)


def _shown_reason(err: str, hidden: Sequence[str] = ()) -> str:
    """Return git's stderr without the ``hidden`` strings, credentials and terminal escapes, its last lines as one."""
    for secret in sorted(hidden, key=len, reverse=True):
        err = err.replace(secret, "***")
    err = redact(_USERINFO.sub("***@", err))
    lines = [line.strip()[:_REASON_LINE_CHARS_MAX] for line in re.split(r"[\r\n]+", err) if not _NO_NEWS.match(line)]
    return for_terminal(" / ".join(lines[-_REASON_LINES_MAX:])) or "git gave no reason"


# --- fleet's own repository -----------------------------------------------------------------------------------------

FETCHED = "refs/fleet/fetched"
"""Ref of the tree that the workspace has joined: an input of the fold."""
SEEN = "refs/fleet/seen"
"""Ref of the remote's head as last seen."""
NEXT = "refs/fleet/next"
"""Ref of the commit that is about to be pushed."""
_NAMELESS = "fleet"
_MACHINE = "Fleet-Machine"
"""Trailer with the machine's pseudonym, in commits that bear a person's identity."""

_WORD = re.compile(r"[0-9a-f]{12}")
_NO_SIGN = r"<>\x00-\x1f\x7f\ud800-\udfff"
_IDENTITY = re.compile(rf" *([^{_NO_SIGN} ][^{_NO_SIGN}]{{0,199}}?) *<([^{_NO_SIGN} ]{{1,200}})>")


class Author(NamedTuple):
    """The author of commits: a pseudonym of this machine in this clan, and perhaps a person."""

    machine: str = _NAMELESS
    identity: str = ""
    """``Name <address>`` that a person agreed to; "": commits bear the pseudonym alone."""
    signing: tuple[str, ...] | None = None
    """Settings of git with which commits are signed; None: they are not signed."""

    @property
    def is_named(self) -> bool:
        """True for an identity of the form ``Name <address>``, which git takes."""
        return _IDENTITY.fullmatch(self.identity) is not None

    def named(self) -> tuple[str, str]:
        """Return name and address."""
        match = _IDENTITY.fullmatch(self.identity)
        return (match[1], match[2]) if match else (_NAMELESS, f"{self.machine}@localhost")


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
_ELSEWHERE = ("commondir", "objects/info/alternates")
"""Files by which a repository names another folder, whose configuration or objects git would read."""
_LISTINGS_MAX = 8
_HISTORY_MAX = 20_000
_SMALL = ("-c", "core.bigFileThreshold=1m")  # larger files are compared as binary ones: that takes no memory
_HISTORY_S = 4.0  # of a commit with too many files git holds all of them in memory, more in each second
_PACKS_MAX = 100
_STALE_LOCKS = (f"{FETCHED}.lock", f"{SEEN}.lock", f"{NEXT}.lock", "packed-refs.lock", "shallow.lock")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DISK = re.compile(r"No space left|Read-only file system|Permission denied|Disk quota|Input/output error")
_DAMAGE = re.compile(
    r"bad object|valid object|sha1 pointer|corrupt|is empty|unable to read|not a git repository|bad pack|missing"
    r"|index file |packfile |expected object"
)


class Entry(NamedTuple):
    """Entry of a tree; the size of a link or submodule is -1."""

    mode: str
    oid: str
    size: int


class Bare:
    """Fleet's own bare repository. Methods that read from it raise ``GitDamaged`` for a missing object.

    Args:
        hidden: strings that must not be shown, such as the password of an address.
        listings: entries of trees by commit, shared by all users of the same repository. They are never stale.
        places: what to list of a tree that is too large to be listed whole: files, and folders with a final slash.
    """

    def __init__(
        self,
        folder: Path,
        timeout_s: float = 60.0,
        hidden: Sequence[str] = (),
        listings: dict[str, dict[str, Entry]] | None = None,
        places: Sequence[str] = (),
    ) -> None:
        self.folder = folder.absolute()
        self._ignored_file = self.folder.with_name(f"{folder.name}.held")
        self._timeout_s = timeout_s
        self._hidden = hidden
        self._listings = {} if listings is None else listings
        self._places = places
        self._until = 0.0
        self._env = _environment(os.environ, min(timeout_s, _CONNECT_S_MAX))
        self._is_ssh_settled = "GIT_SSH_COMMAND" in os.environ
        self._reader: subprocess.Popen[bytes] | None = None
        self._is_reading = False

    # --- the repository itself --------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock and open the repository, and start the time limit of the commands that follow.

        Raises:
            BusyError: another process held it all the time.
            GitFailed: it cannot be made, or is not as fleet made it; or the time was up.
            OSError: the folder cannot be used, or there is no git.
        """
        until = time.monotonic() + self._timeout_s
        self.folder.parent.mkdir(exist_ok=True)  # no folder above: a workspace that was deleted must not come back
        with Files(self.folder.parent).lock(self.folder.with_name(f"{self.folder.name}.lock"), self._timeout_s):
            self._until = until
            try:
                self._open()
                self._tidy()
                yield
            except _TimeUpError as why:
                raise GitFailed(f"no answer in {self._timeout_s:g} s") from why
            finally:
                self._until = 0.0

    def rebuild(self, object_format: str = "") -> None:
        """Replace the mirror by an empty one, of the same object format unless another one is named."""
        object_format = object_format or self.object_format() or "sha1"
        self._listings.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._create(object_format)

    def object_format(self) -> str:
        """Return "sha1" or "sha256"; "" where there is no repository, or one that fleet did not make."""
        config = self._read("config")
        return next((name for name, known in _CONFIGS.items() if known == config), "")

    def _read(self, name: str) -> bytes:
        """Return the bytes of a small file of the repository; b"" for a missing or unreadable one, and for a pipe."""
        with suppress(DiskError):
            return Files(self.folder).read(self.folder / name)
        return b""

    def _open(self) -> None:
        if not self.folder.exists():
            self._create("sha1")
        self._check()
        # We hold the lock, so these are left over from a git that was killed: a half-fetched pack may be gigabytes.
        for left in (*map(self.folder.joinpath, _STALE_LOCKS), *self.folder.glob("objects/pack/*tmp*")):
            left.unlink(missing_ok=True)

    def _check(self, *, are_files: bool = True) -> None:
        """Raise ``GitFailed`` where git would read another configuration or folder, or wait for a pipe or a device."""
        odd = _odd_file(self.folder) if are_files else ""
        named = f": {os.path.relpath(odd, self.folder)} is no plain file" if odd else ""
        # Each is looked up by name: a disk that ignores case finds it in any spelling, too.
        for each in _ELSEWHERE:
            named = f": {each} leads elsewhere" if os.path.lexists(self.folder / each) else named
        if named or not self.object_format():
            raise GitFailed(f"{self.folder} is not as fleet made it{named}; move it away, it is made anew")

    def _create(self, object_format: str) -> None:
        """Create the repository under another name and rename it, so that it is never incomplete."""
        new = Path(tempfile.mkdtemp(prefix=f".{self.folder.name}.", dir=self.folder.parent))
        try:
            command = (*GIT, "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
            done = _run((*command, "--", str(new)), folder=new, env=self._env, until=self._until)
            if done.code:
                raise GitFailed(f"{self.folder}: {self.reason(done)}")
            Files(new).replace(new / "config", _CONFIGS[object_format])
            new.rename(self.folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _tidy(self) -> None:
        """Repack when there are many packs: each fetch and each commit leaves one, and git searches all of them.

        Measured: 17 ms a pull with one pack, 24 with 100, 65 with 800. A geometric repack joins packs of similar size,
        so the work follows what is new.
        """
        if sum(1 for _ in (self.folder / "objects/pack").glob("*.pack")) <= _PACKS_MAX:
            return
        until = min(self._until, time.monotonic() + self._timeout_s / 3)
        for how in ("--geometric=2", "-a"):  # the first is known since git 2.32
            with suppress(GitFailed):
                if self.git("repack", how, "-d", "-q", until=until).code == 0:
                    return

    # --- refs -------------------------------------------------------------------------------------------------------

    def ref(self, name: str) -> str:
        """Return the commit of a ref, "" for none. Costs a read of one small file, and no process."""
        loose = self._read(name).decode("ascii", "replace").strip()
        if _ID.fullmatch(loose):
            return loose
        rows = (row.partition(" ") for row in self._read("packed-refs").decode("ascii", "replace").splitlines())
        return next((commit for commit, _, packed in rows if packed == name and _ID.fullmatch(commit)), "")

    def set_ref(self, name: str, commit: str) -> None:
        """Point a ref to a commit that is here, durably; "" removes the ref. Raises ``DiskError``."""
        files = Files(self.folder)
        if commit:
            files.replace(self.folder / name, commit.encode() + b"\n")
        elif self.folder.exists():
            files.remove(self.folder / name)
            if self.ref(name):  # packed by somebody's gc
                self.git("update-ref", "-d", name)

    def forget_history(self) -> None:
        """Delete every object that only the history of our refs reaches. The history is shallow from then on."""
        self._listings.clear()
        self.set_ref(NEXT, "")
        commits = sorted({commit for name in (FETCHED, SEEN) if (commit := self.ref(name))})
        Files(self.folder).replace(self.folder / "shallow", "".join(f"{each}\n" for each in commits).encode())
        for command in (("reflog", "expire", "--expire=all", "--all"), ("repack", "-a", "-d", "-q"), ("prune",)):
            self._output(*command)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether one commit is in the history of another; False for a commit that is not here."""
        return self.git("merge-base", "--is-ancestor", older, newer).code == 0

    def before(self, commit: str, at_s: float) -> str:
        """Return the newest commit that is older than a moment, seconds since 1970; "" for none.

        Committers choose their dates freely: a commit with a newer one before it is not trusted.
        """
        rows = self._output("log", f"--max-count={_HISTORY_MAX}", "--first-parent", "--format=%H %ct", commit, "--")
        newest = ""
        for row in reversed(rows.decode("ascii", "replace").split("\n")):
            ancestor, _, date_s = row.partition(" ")
            if _ID.fullmatch(ancestor):
                if not date_s.isdecimal() or int(date_s) >= at_s:
                    break
                newest = ancestor
        return newest

    def pushers(self, commit: str, folder: str, since: str = "") -> dict[str, set[str]] | None:
        """Return the addresses of those who added lines to each file of a folder; None where ``since`` is no ancestor.

        An address is the author's, or the machine's in the trailer of a commit in a person's name. Deleted lines do not
        count, since any push may delete some. If telling takes too long, all who changed a file are returned.

        ``since``: only the commits after this one are read; "": all of them.
        """
        shown = f"--format=%x01%m%H%x01%ae%x01%(trailers:key={_MACHINE},valueonly,separator=%x01)"
        commits = ["--boundary", commit, f"^{since}"] if since else [commit]
        every = ("--full-history", "--sparse")  # else git omits commits, also boundaries, that do not touch the folder

        def log(kind: str) -> bytes:
            command = (*_SMALL, "log", f"--max-count={_HISTORY_MAX}", "--no-renames", kind, *every, shown, *commits)
            return self._output(*command, "--", folder, until=time.monotonic() + _HISTORY_S)

        try:
            rows = log("--numstat")
        except GitFailed:
            rows = log("--name-only")
        pushers_of: dict[str, set[str]] = {}
        addresses, is_ancestor = set[str](), not since
        for row in rows.decode("utf-8", "backslashreplace").split("\n"):
            if row.startswith("\x01"):
                mark, email, *words = row[1:].split("\x01")
                is_bound = mark.startswith("-")  # a parent of the commits that are read; it is not read itself
                is_ancestor = is_ancestor or mark == f"-{since}"
                machines = (f"{word}@localhost" for word in words if _WORD.fullmatch(word))
                addresses = set() if is_bound else {email, *machines}
                continue
            counts, _, path = row.rpartition("\t")
            if addresses and path.startswith(f"{folder}/") and not counts.startswith("0\t"):
                pushers_of.setdefault(path, set()).update(addresses)
        return pushers_of if is_ancestor else None

    # --- trees and blobs --------------------------------------------------------------------------------------------

    def listing(self, commit: str) -> dict[str, Entry]:
        """Return the entries of a commit's tree by path; none for ""."""
        if not commit or commit in self._listings:
            return self._listings.get(commit, {})
        command = ("ls-tree", "-l", "-z", "--full-tree")
        try:
            rows = self._output(*command, "-r", commit)
        except _TooMuchOutputError:
            try:
                rows = self._output(*command, commit, "--", *self._places)
            except _TooMuchOutputError as why:
                raise GitFailed("its tree is too large to list; nothing of it was read") from why
            self.ignore({commit: "it has too many files"})
        entries = {}
        for row in rows.split(b"\0")[:-1]:
            fields, _, path = row.partition(b"\t")
            mode, kind, oid, size = fields.decode("ascii").split()
            if kind != "tree":
                number = int(size) if size.isdecimal() else -1
                entries[path.decode("utf-8", "backslashreplace")] = Entry(mode, oid, number)
        if len(self._listings) >= _LISTINGS_MAX:
            self._listings.clear()
        self._listings[commit] = entries
        return entries

    # --- ignored trees and blobs --------------------------------------------------------------------------------------

    def fit(self, commit: str) -> tuple[dict[str, Entry], list[str]]:
        """Return the entries of a commit's tree that have safe paths, and the other paths."""
        entries = self.listing(commit)
        safe = {path: entry for path, entry in entries.items() if _is_fit(path, entry.mode)}
        return safe, [path for path in entries if path not in safe]

    def ignored(self) -> dict[str, str]:
        """Return the ids of the blobs that are ignored, and of commits that git refuses, each with the reason."""
        with suppress(DiskError, ValueError, RecursionError):
            reasons = json.loads(Files(self.folder.parent).read(self._ignored_file))
            return {str(oid): str(why) for oid, why in reasons.items()} if isinstance(reasons, dict) else {}
        return {}

    def ignore(self, reasons: Mapping[str, str]) -> None:
        """Add blobs, or commits, to those that are ignored: id to reason."""
        if reasons:
            data = json.dumps(self.ignored() | dict(reasons)).encode()
            Files(self.folder.parent).replace(self._ignored_file, data)

    # --- reading blobs ------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep one ``cat-file --batch`` running for all reads in the block."""
        was_reading, self._is_reading = self._is_reading, True
        try:
            yield
        finally:
            self._is_reading = was_reading
            if not was_reading:
                self._stop_reader()

    @contextmanager
    def open(self, oid: str) -> Iterator[IO[bytes]]:
        """Open a blob as a stream for the time of the block."""
        reader, answers, size = self._request(oid)
        self._reader = None  # a read within this one gets a process of its own
        content = _Content(answers, size)
        try:
            yield io.BufferedReader(content, limits.BLOCK_BYTES)
        finally:
            if self._is_reading and self._reader is None and content.is_read and answers.read(1) == b"\n":
                self._reader = reader
            else:
                _stop(reader)

    def _request(self, oid: str) -> "tuple[subprocess.Popen[bytes], IO[bytes], int]":
        """Request a blob; return the reader, its output up to where the content begins, and the content's size."""
        is_new = self._reader is None
        if self._reader is None:
            self._reader = self._start_reader()
        reader = self._reader
        if reader.stdin is None or reader.stdout is None:
            raise ValueError("both ends of the child must be pipes")
        with suppress(BrokenPipeError):
            reader.stdin.write(f"{oid}\n".encode())
            reader.stdin.flush()
        head = reader.stdout.readline(256).split()
        if len(head) == 3 and head[:2] == [oid.encode(), b"blob"]:
            return reader, reader.stdout, int(head[2])
        self._stop_reader()
        if is_new:
            raise GitDamaged(f"{self.folder}: objects are missing")
        return self._request(oid)  # the repository was made anew since the reader was started

    def _start_reader(self) -> "subprocess.Popen[bytes]":
        self._check()
        return subprocess.Popen(
            (*GIT, f"--git-dir={self.folder}", "cat-file", "--batch"),
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _stop_reader(self) -> None:
        if self._reader is not None:
            _stop(self._reader)
            self._reader = None

    # --- commits ------------------------------------------------------------------------------------------------------

    def committer(self, commit: str) -> str:
        """Return the committer that a commit names, which nobody has checked."""
        return self.git("log", "-1", "--format=%cn <%ce>", commit).out.decode("utf-8", "replace").strip() or "nobody"

    def bringer(self, oid: str, head: str) -> str:
        """Return the oldest commit of a history that is an object, or that introduced it; "" if git finds none."""
        log = ("log", f"--max-count={_HISTORY_MAX}")
        rows = self.git(*log, "--format=%H %T", head).out.decode("ascii").splitlines()
        brought = [row.split()[0] for row in rows if oid in row.split()]
        if not brought:  # it is no whole tree
            brought = self.git(*log, "-t", f"--find-object={oid}", "--format=%H", head).out.decode("ascii").split()
        return brought[-1] if brought else ""

    def has_object(self, commit: str, oid: str) -> bool:
        """Return whether a commit is an object, or has it in its tree; True where git cannot read all of that."""
        done = self.git("rev-list", "--objects", "--no-walk", commit)
        return done.code != 0 or oid.encode() in done.out

    def commit(
        self,
        files: Mapping[str, bytes],
        on: str,
        *,
        message: str,
        at_s: float = 1.0,
        author: Author | None = None,
        kept: Mapping[str, Entry] | None = None,
    ) -> str:
        """Commit files on top of a commit, ``b""`` removes one; return the new commit, which ``NEXT`` points to.

        One process does it. A folder or link at one of the paths is replaced. With ``kept``, the new tree has these
        entries instead of the parent's.
        """
        author = author or Author()
        subject = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", message).split())
        trailer = f"\n\n{_MACHINE}: {author.machine}\n" if author.is_named else ""
        text = f"{subject}{trailer}".encode("utf-8", "replace")
        made = self._fast_import(_import_script(_commit_command(author, int(at_s), text, on, kept), files))
        return self._signed(made, on, author, text) if author.signing is not None else made

    def _fast_import(self, script: Iterable[bytes]) -> str:
        """Run a script of fast-import; return the id that it prints."""
        with tempfile.TemporaryFile(dir=self.folder) as stdin:
            stdin.writelines(script)
            # --force: the ref may point anywhere before, since it only protects the objects from garbage collection.
            done = self.git("fast-import", "--quiet", "--force", stdin=stdin)
        made = done.out.decode("ascii", "replace").strip()
        if done.code == 0 and _ID.fullmatch(made):
            return made
        for report in self.folder.glob("fast_import_crash_*"):
            report.unlink(missing_ok=True)
        raise self.failure(done)

    def _signed(self, commit: str, on: str, author: Author, text: bytes) -> str:
        """Return the same commit with a signature, which fast-import cannot make; ``NEXT`` points to it."""
        name, email = author.named()
        settings = (f"user.name={name}", f"user.email={email}", *(author.signing or ()))
        parent = ["-p", on] if on else []
        with tempfile.TemporaryFile(dir=self.folder) as message:
            message.write(text)
            done = self.git("commit-tree", "-S", *parent, f"{commit}^{{tree}}", settings=settings, stdin=message)
        signed = done.out.decode("ascii", "replace").strip()
        if done.code or not _ID.fullmatch(signed):
            failed = GitFailed(f"the commit could not be signed, as git is set to here ({self.reason(done)})")
            failed.advice = "See commit.gpgsign and user.signingkey, or `fleet init --author none`"
            raise failed
        self._output("update-ref", NEXT, signed)
        return signed

    # --- running git ------------------------------------------------------------------------------------------------

    def git(
        self,
        *arguments: str,
        settings: Sequence[str] = (),
        stdin: IO[bytes] | None = None,
        until: float | None = None,
        is_tied: bool = False,
    ) -> Done:
        """Run a git command; raise ``GitFailed`` if it was stopped, or if the repository is not as fleet made it."""
        self._check(are_files=not self._until)  # else they were checked when it was locked
        if stdin:
            stdin.seek(0)  # flushes too
        options = (part for setting in settings for part in ("-c", setting))
        command = (*GIT, *options, f"--git-dir={self.folder}", *arguments)
        until = until or self._until or time.monotonic() + self._timeout_s
        return _run(command, folder=self.folder, env=self._env, until=until, stdin=stdin, is_tied=is_tied)

    def _output(self, *arguments: str, until: float | None = None) -> bytes:
        """Return the output of a command that stays on this machine; raise ``failure`` if it fails."""
        done = self.git(*arguments, until=until)
        if done.code:
            raise self.failure(done)
        return done.out

    def run_remote(self, settings: Sequence[str], *arguments: str) -> Done:
        """Run a command that connects to a remote."""
        if not self._is_ssh_settled:  # our ssh command in the environment would win over one that the user configured
            self._is_ssh_settled = True
            if self.git("config", "--get", "core.sshCommand").code == 0:
                self._env.pop("GIT_SSH_COMMAND", None)
        return self.git(*arguments, settings=settings, is_tied=True)

    def reason(self, done: Done) -> str:
        """Return the error message of a command, fit to be shown."""
        return _shown_reason(done.err, self._hidden)

    def failure(self, done: Done) -> Exception:
        """Return the exception for a failed command: damage, or a disk that is full or broken."""
        kind = GitFailed if _DISK.search(done.err) else GitDamaged
        return kind(f"{self.folder}: {self.reason(done)}")

    def is_damaged(self, done: Done) -> bool:
        """Return whether a command failed because the mirror is damaged; checked where git's message hints at it."""
        if _DISK.search(done.err) or not _DAMAGE.search(done.err):
            return False
        return self.git("fsck", "--no-dangling", "--no-progress").code != 0


class _Content(io.RawIOBase):
    """Content of one blob, read from the output of ``cat-file --batch``."""

    def __init__(self, answers: IO[bytes], size: int) -> None:
        self._answers = answers
        self._left = size

    @property
    def is_read(self) -> bool:
        return not self._left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes. Raise ``GitDamaged`` where the output ends too early."""
        block = self._answers.read(min(len(buffer), self._left))
        if self._left and not block:
            raise GitDamaged("objects are missing")
        buffer[: len(block)] = block
        self._left -= len(block)
        return len(block)


def _odd_file(folder: str | Path) -> str:
    """Return the first path below a folder that is neither a plain file nor a folder; "" for none."""
    with suppress(OSError), os.scandir(folder) as entries:  # another git may take a folder away meanwhile
        for each in entries:
            odd = _odd_file(each.path) if each.is_dir(follow_symlinks=False) else ""
            if odd or not (each.is_dir(follow_symlinks=False) or each.is_file(follow_symlinks=False)):
                return odd or each.path
    return ""


def _stop(reader: "subprocess.Popen[bytes]") -> None:
    reader.kill()
    reader.communicate()


def _import_script(commit: bytes, files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the script that makes a commit of files, and prints its id."""
    yield b"feature done\n"
    yield commit
    yield from (b"D %b\n" % path.encode() for path in sorted(files) if not files[path])
    for path in sorted(path for path in files if files[path]):
        yield b"M 100644 inline %b\ndata %d\n" % (path.encode(), len(files[path]))
        yield files[path]
        yield b"\n"
    yield b"get-mark :1\ndone\n"


def _commit_command(author: Author, at_s: int, text: bytes, on: str, kept: Mapping[str, Entry] | None) -> bytes:
    """Return the command that begins a commit, with the entries of its parent, or those that are kept instead."""
    who = "{} <{}> {} +0000".format(*author.named(), max(1, at_s))
    head = f"commit {NEXT}\nmark :1\nauthor {who}\ncommitter {who}\n".encode()
    rows = [head, b"data %d\n%b\n" % (len(text), text)]
    if on:
        rows.append(f"from {on}\n".encode())
    if kept is not None:
        rows.append(b"deleteall\n")
        for path, entry in sorted(kept.items()):
            rows.append(b"M %b %b %b\n" % (entry.mode.encode(), entry.oid.encode(), _quoted(path)))
    return b"".join(rows)


def _is_fit(path: str, mode: str) -> bool:
    """Return whether a path is safe in a tree: no ``..``, and no ``.git`` in any disguise."""
    for part in path.split("/"):
        plain = part.casefold().encode("ascii", "ignore").decode().rstrip(". ")
        if re.fullmatch(r"(\.[. ]*)?", part) or plain in (".git", "git~1"):
            return False
        if mode == "120000" and plain.startswith((".gitmodules", ".gitattributes", ".gitignore", ".mailmap")):
            return False
    return True


def _quoted(path: str) -> bytes:
    """Return a path quoted for fast-import."""
    plain = (bytes([each]) if 32 < each < 127 and each not in b'"\\' else b"\\%03o" % each for each in path.encode())
    return b'"' + b"".join(plain) + b'"'
