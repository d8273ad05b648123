"""A git branch as the clan's remote: plumbing on a bare repository of our own.

No work tree, index, hook or filter is ever involved, and nobody's uncommitted work is in the way (DESIGN, section 5).
A pull is ``fetch`` and, only if the head moved, ``diff-tree`` and ``cat-file``. A push is ``fast-import`` and ``push``:
fast-import makes blobs, trees and commit in one process, where hash-object, ls-tree, mktree and commit-tree would be
four. Both take a lock beside the repository, so that two processes of one machine do not meet inside it.

What a hostile far side can put into a tree is met here: an entry is read only if it is a plain file at one of the
clan's own paths, and never becomes a file of this machine by itself.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fleet.keep.errors import BusyError
from fleet.keep.lazily import compiled
from fleet.keep.screening import for_terminal
from fleet.share import gitprocess
from fleet.share.bare import Bare
from fleet.share.gitprocess import Done, GitDamaged, GitFailed, GitTimeout, GitTooMuch
from fleet.share.meanwhile import Meanwhile
from fleet.share.remote import (
    BLOB_BYTES_MAX,
    PULL_BYTES_MAX,
    BadRemote,
    Files,
    Mark,
    Moved,
    RemoteRefused,
    RemoteUnavailable,
    Whole,
    check_branch,
    check_outgoing,
    check_remote,
    is_clan_path,
    is_local,
    redact_url,
    remote_is_allowed,
    secrets_in,
)

__all__ = [
    "BadRemote",
    "GitRemote",
    "check_branch",
    "check_remote",
    "guess_remote",
    "redact_url",
    "remote_is_allowed",
]

_NAME = "fleet-clan"  # the remote, on git's command line only; no configuration file mentions it
_FETCHED = "refs/fleet/fetched"
_NEXT = "refs/fleet/next"
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it without having it
_PLAIN, _NOTHING = "100644", "000000"
_LINKS = ("120000", "160000")
_NAMED_MAX = 5
_GUESS_S = 5.0

_SAFE = "nothing is lost: what waits here goes out with the next `fleet sync`"
_MARK = compiled(r"[0-9a-f]{40}")
_RACE = compiled(
    r"cannot lock ref|failed to update ref|incorrect old value|reference already exists|failed to lock"
    r"|non-fast-forward|fetch first|stale info"
)
# Trying again would not help: its disk, or a branch `fleet/x` where `fleet` should be.
_NO_RACE = compiled(r"No space left|Permission denied|Read-only file system|Disk quota|exists; cannot create")
_NO = compiled(
    r"remote error: |denied to |returned error: 403|not allowed|read[- ]only|write access"
    # Git's server dies of such a hook instead of answering; a newer one names hook and phase.
    r"|fatal: (?:in '[a-z]+' phase, )?(?:ref updates? aborted by|update aborted by the reference-transaction) hook",
    re.IGNORECASE,
)
_HUNG_UP = compiled(r"^.*(?:the remote end hung up|unexpected disconnect).*$\n?", re.MULTILINE)
_UNFIT = compiled(r"unpacker error|No space left|Disk quota|Read-only file system|Input/output error")


class _Entry(NamedTuple):
    """One path that differs between two trees."""

    path: str
    old_mode: str
    mode: str
    blob: str


class GitRemote:
    """One branch of one git repository.

    Args:
        git_dir: a bare repository of fleet's own; made when it is missing, made anew when it is damaged.
        url: what git takes as a remote; see ``check_remote``.
        branch: its short name. It holds exactly the tree of ``clan-learnings/``.
        timeout_s: how long one pull or push may take in all.
        author: whose name the commits bear.
        clock: the seconds since 1970, for the commits' dates.
        meanwhile: what there is to do while git works.

    Raises:
        BadRemote: the url or the branch is not one that we hand to git.
    """

    def __init__(
        self,
        git_dir: Path,
        url: str,
        branch: str,
        *,
        timeout_s: float = 60,
        author: str = "fleet",
        clock: Callable[[], float] = time.time,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self.skipped = 0
        self._url = check_remote(url)
        self._branch = check_branch(branch)
        self.name = for_terminal(redact_url(self._url))
        self._timeout_s = timeout_s
        self._author = re.sub(r"[\x00-\x1f\x7f<>]", "", author).strip() or "fleet"
        self._clock = clock
        self._meanwhile = Meanwhile() if meanwhile is None else meanwhile
        self._copy = Bare(git_dir, timeout_s, secrets_in(self._url))

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        """Return what changed since a mark, and the mark of the state it leads to.

        A mark that this repository does not know any more counts as never pulled. Deleted branch: every path that the
        mark had is gone, and the mark is ``""``.

        Raises:
            RemoteUnavailable: nothing was read.
        """
        with self._alone():
            try:
                return self._pull(since)
            except GitDamaged as why:
                self._rebuild(str(why))
            return self._pull(since)

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Commit files on top of ``on`` and push that, if the branch is still exactly there.

        Paths that are not the clan's stay in the tree as they are.

        Raises:
            RemoteUnavailable: it may or may not have arrived; pushing it again is harmless.
            RemoteRefused: it was not taken.
            ValueError: a path is not one of the clan's.
        """
        check_outgoing(files)
        if not files:
            return on
        if on and not _MARK.fullmatch(on):
            return Moved("the state it builds on is not known here")
        with self._alone():
            try:
                commit = self._commit(files, on, message or _generated(files))
            except GitDamaged as why:
                # Most often `on` is simply not here: the copy is newer than the mark. Either way a pull mends it.
                if not on or self._copy.git("cat-file", "-e", on).code == 0:
                    self._rebuild(str(why))
                return Moved("the state it builds on is not in the local copy")
            return self._send(commit, on)

    # --- pulling ----------------------------------------------------------------------------------------------------

    def _pull(self, since: Mark) -> tuple[Files, Mark]:
        before = self._fetched()
        head, is_forced = self._fetch()
        if head == since:
            return (Files() if since else Whole()), head
        known = since if _MARK.fullmatch(since) else ""
        entries = self._changed(known, head)
        if entries is None:
            known, entries = "", self._changed("", head) or []
        if known and not head:
            self.warnings.append(
                f"{self.name}: the branch {self._branch} is gone; the next push brings it back. "
                "Was it renamed, put the new name into fleet.toml: [share] branch"
            )
        elif known and (is_forced if before == known else not self._is_ancestor(known, head)):
            self.warnings.append(f"{self.name}: the remote's history was rewritten; nothing that was read goes back")
        files = self._read(entries)
        return (files if known else Whole(files)), head

    def _fetch(self) -> tuple[Mark, bool]:
        """Bring our copy of the branch up to date; return its head and whether the branch was forced elsewhere.

        First without force: that it is refused tells, at no cost, that the history was rewritten.
        """
        done = self._fetch_once("")
        is_forced = done.code == 1
        if is_forced:
            done = self._fetch_once("+")
        if done.code == 0:
            return self._fetched(), is_forced
        if f"fatal: couldn't find remote ref refs/heads/{self._branch}\n" in done.err:
            return "", False
        why = self._copy.words(done)
        if self._copy.is_damaged(done):
            raise GitDamaged(why)
        raise self._unavailable(why)

    def _fetch_once(self, force: str) -> Done:
        options = ["--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules", "--no-auto-maintenance"]
        # --update-shallow: else a remote that is a shallow clone itself is refused.
        return self._far(force, "fetch", *options, "--no-write-fetch-head", "--update-shallow", "--", _NAME)

    def _fetched(self) -> Mark:
        """Return what our copy of the branch is at. Reading the file saves a process; packed refs have none."""
        with suppress(OSError, ValueError):
            head = (self._copy.folder / _FETCHED).read_bytes().decode("ascii").strip()
            if _MARK.fullmatch(head):
                return head
        return self._copy.git("rev-parse", "--verify", "--quiet", _FETCHED).out.decode("ascii", "replace").strip()

    def _is_ancestor(self, older: Mark, newer: Mark) -> bool:
        return self._copy.git("merge-base", "--is-ancestor", older, newer).code == 0

    def _changed(self, old: Mark, new: Mark) -> list[_Entry] | None:
        """Return the entries that differ between two commits, related or not; None if the old one is not here."""
        options = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-relative", "--ignore-submodules=none")
        done = self._copy.git("diff-tree", *options, old or _EMPTY_TREE, new or _EMPTY_TREE, "--")
        if done.code == 0:
            return _entries(done.out)
        if old:
            return None
        raise self._copy.trouble(done)

    def _read(self, entries: Sequence[_Entry]) -> Files:
        """Return the contents of the entries that are the clan's plain files, and warn of what is in their place."""
        refused = [entry.path for entry in entries if _is_refused(entry)]
        ours = [entry for entry in entries if is_clan_path(entry.path)]
        files = {entry.path: b"" for entry in ours if entry.old_mode == _PLAIN}
        plain = [entry for entry in ours if entry.mode == _PLAIN]
        wanted: list[tuple[str, str, int]] = []
        total = 0
        for entry, (kind, size) in zip(plain, self._copy.sizes([entry.blob for entry in plain]), strict=True):
            if kind != "blob":
                refused.append(entry.path)
            elif size > BLOB_BYTES_MAX or total + size > PULL_BYTES_MAX:
                files.pop(entry.path, None)  # it is not gone, only not read
                what, limit = ("is", BLOB_BYTES_MAX) if size > BLOB_BYTES_MAX else ("makes the pull", PULL_BYTES_MAX)
                self.skipped += 1
                self.warnings.append(f"{self.name}: {entry.path} {what} larger than {limit // 2**20} MiB: not read")
            else:
                total += size
                wanted.append((entry.path, entry.blob, size))
        self.skipped += len(refused)
        if refused:
            named = ", ".join(for_terminal(path)[:100] for path in refused[:_NAMED_MAX])
            more = ", ..." if len(refused) > _NAMED_MAX else ""
            self.warnings.append(
                f"{self.name}: refused {len(refused)} tree entries that are no plain files: {named}{more}"
            )
        return files | self._copy.contents(wanted)

    # --- pushing ----------------------------------------------------------------------------------------------------

    def _commit(self, files: Files, on: Mark, message: str) -> Mark:
        """Make the blobs, trees and the commit. A refused mode in the place of one of our paths is replaced."""
        who = f"{self._author} <fleet@localhost> {max(1, int(self._clock()))} +0000"
        line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", message).split()).encode("utf-8", "replace")
        with self._copy.scratch() as script:
            script.write(f"feature done\ncommit {_NEXT}\nmark :1\nauthor {who}\ncommitter {who}\n".encode())
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
            done = self._copy.git("fast-import", "--quiet", "--force", stdin=script, meanwhile=self._meanwhile.one)
        commit = done.out.decode("ascii", "replace").strip()
        if done.code == 0 and _MARK.fullmatch(commit):
            return commit
        for report in self._copy.folder.glob("fast_import_crash_*"):
            report.unlink(missing_ok=True)
        raise self._copy.trouble(done)

    def _send(self, commit: Mark, on: Mark) -> Mark | Moved:
        """Push the commit if the branch is exactly at ``on``.

        The lease is a compare-and-swap that the far side checks again under its lock, for a branch that must not exist
        yet as well. It forces nothing: the commit is a child of ``on``, so it can only ever go forward. A plain push
        would also take a branch that was rewound or deleted since, and nobody would have been told.
        """
        where = f"refs/heads/{self._branch}"
        options = ("--porcelain", "--no-verify", f"--force-with-lease={where}:{on}")
        done = self._far("+", "push", *options, "--", _NAME, f"{commit}:{where}")
        if done.code == 0:
            return commit
        status = re.search(r"^!\t[^\t\n]*\t(.*)$", done.out.decode("utf-8", "replace"), re.MULTILINE)
        verdict = status[1] if status else ""
        if verdict.startswith("[rejected]"):
            return Moved(gitprocess.words(verdict))
        if verdict.startswith("[remote rejected]"):
            why = f"{gitprocess.words(verdict)}: {self._copy.words(done)}"
            if _RACE.search(verdict) and not _NO_RACE.search(done.err):
                return Moved(why)
            raise self._refused(why)
        if not verdict and _NO.search(done.err):
            # That it hung up is how it said no.
            raise self._refused(self._copy.words(done._replace(err=_HUNG_UP.sub("", done.err))))
        raise self._unavailable(self._copy.words(done))

    # --- troubles ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the local copy. Every trouble on the way becomes one that callers know."""
        try:
            with self._copy.alone():
                yield
        except BusyError as why:
            raise self._unavailable("another fleet process is using it") from why
        except GitTimeout as why:
            raise self._unavailable(f"no answer in {self._timeout_s:g} s") from why
        except GitTooMuch as why:
            raise self._unavailable("its tree is too large to list; nothing of it was read") from why
        except (GitFailed, GitDamaged) as why:
            raise self._unavailable(str(why)) from why
        except FileNotFoundError as why:
            raise self._unavailable(f"{why.filename} is not there; is git installed?") from why
        except OSError as why:
            raise self._unavailable(f"{self._copy.folder} cannot be used ({why.strerror})") from why

    def _rebuild(self, why: str) -> None:
        """Only copies are in it: what waits to go out is in the shards."""
        self.warnings.append(f"{self.name}: the local copy is fetched anew ({why})")
        self._copy.rebuild()

    def _far(self, force: str, *arguments: str) -> Done:
        """Run a command on the remote. A push then notes by itself in ``_FETCHED`` what it achieved."""
        settings = [f"url={self._url}", f"fetch={force}refs/heads/{self._branch}:{_FETCHED}"]
        if is_local(self._url):
            # Then its git is ours to feed as well: without, it holds a blob of half a gigabyte in memory.
            settings.append(f"uploadpack=git -c {gitprocess.STREAMED} upload-pack")
        named = [f"remote.{_NAME}.{setting}" for setting in settings]
        is_near = is_local(self._url)
        return self._copy.far(named, *arguments, is_near=is_near, meanwhile=self._meanwhile.spend)

    def _unavailable(self, what: str) -> RemoteUnavailable:
        return RemoteUnavailable(f"{self.name}: {what}; {_SAFE}. `git ls-remote` shows whether git gets there")

    def _refused(self, what: str) -> RemoteRefused:
        then = "has put that right" if _UNFIT.search(what) else "allows that"
        return RemoteRefused(f"{self.name} refused the push: {what}; {_SAFE} once whoever runs it {then}")


def _entries(raw: bytes) -> list[_Entry]:
    """Parse ``:100644 100644 <old> <new> M``, NUL, path, NUL, and so on. A path may be anything but NUL."""
    parts = raw.split(b"\0")
    entries = []
    for fields, path in zip(parts[::2], parts[1::2], strict=False):
        old_mode, mode, _, blob, _ = fields.decode("ascii").removeprefix(":").split(" ")
        entries.append(_Entry(path.decode("utf-8", "backslashreplace"), old_mode, mode, blob))
    return entries


def _is_refused(entry: _Entry) -> bool:
    """Tell whether an entry is no plain file: a link of any name, and whatever else sits at one of our paths."""
    return entry.mode in _LINKS or (is_clan_path(entry.path) and entry.mode not in (_PLAIN, _NOTHING))


def _generated(files: Files) -> str:
    return f"fleet: {len(files)} file" + ("s" if len(files) > 1 else "")


def guess_remote(folder: Path) -> str | None:
    """Return the address that the git repository around a folder calls ``origin``, or None.

    A guess is no permission: it needs a person's yes before anything is sent there (DESIGN, section 4).
    """
    with suppress(GitTimeout, GitTooMuch, OSError, BadRemote):
        # Unlike `config --get`, this applies the abbreviations of the repository's own configuration. It asks nobody.
        url = _ask(folder, "ls-remote", "--get-url", "origin")
        if not url or url == "origin":
            return None
        address = check_remote(url)
        if not is_local(address) or url.startswith(("/", "~", "file:")):
            return address
        top = _ask(folder, "rev-parse", "--show-toplevel")  # what a relative path is relative to
        return str((Path(top) / url).resolve()) if top else None
    return None


def _ask(folder: Path, *arguments: str) -> str:
    """Return the one line that a git in this folder answers, or nothing."""
    env = gitprocess.environment(os.environ, _GUESS_S)
    done = gitprocess.run((*gitprocess.GIT, *arguments), folder=folder, env=env, until=time.monotonic() + _GUESS_S)
    return done.out.decode("utf-8", "replace").strip() if done.code == 0 else ""
