"""Transport by a git branch as the clan's remote: plumbing commands on a bare repository of our own.

No work tree, index, hook or filter is used, so uncommitted work is left alone. A fetch runs ``git fetch`` and, if the
head moved, ``ls-tree``. A push runs ``fast-import`` and ``push``. Both lock the repository against other processes.
"""

import os
import re
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from fleet.model import limits
from fleet.model.errors import BusyError, UsageError
from fleet.share.remote import Files, Mark, Moved, RemoteRefused, RemoteUnavailable, check_outgoing
from fleet.store import git, tree
from fleet.store.git import SCHEMES, SEEN, Author, Bare, Entry, GitDamaged, GitFailed
from fleet.store.process import Done
from fleet.text import tables
from fleet.text.screening import counted, for_terminal, listed

_NAME = "fleet-clan"  # the remote, on git's command line only; no configuration file mentions it
# --update-shallow: else a remote that is a shallow clone itself is refused.
_FETCH = (
    *("fetch", "--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules", "--no-auto-maintenance"),
    *("--no-write-fetch-head", "--update-shallow", "--", _NAME),
)

_SAFE = "nothing is lost: what is not sent yet goes out with the next `fleet sync`"
_MARK = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_UNCHECKED = ("transfer.fsckObjects=false", "fetch.fsckObjects=false")
# The settings of a repository that was unpacked could name programs to run.
_ELSEWHERE = "outside of this project shows whether git reaches it: what a project's .git/config sets is not used"


@cache
def _answer(meaning: str) -> re.Pattern[str]:
    """Return the expression of what git prints, by its meaning."""
    return re.compile("|".join(tables(f"{Path(__file__).parent}/data/git.toml")[meaning]))


class GitRemote:
    """One branch of one git repository.

    Args:
        mirror: the tree store, whose repository is created when it is missing, rebuilt when it is damaged.
        url: the remote's address for git; see ``Address.checked``.

    Attributes:
        name: the address for people, a plain ``str`` without credentials.
        warnings: messages for a person, which the caller shows.
        skipped: number of files that were not read; above 0, the sync is partial.
    """

    def __init__(
        self, mirror: tree.GitTree, url: str, branch: str, *, timeout_s: float = 60, author: Author | None = None
    ) -> None:
        self.warnings: list[str] = []
        self.skipped = 0
        self._url = Address.checked(url)
        self._branch = check_branch(branch)
        self.name = for_terminal(self._url.redacted)
        self._author = author
        self._has_turned = False
        self._malformed = ""  # id of the object for which git refused the last fetch
        self._mirror = mirror
        self._copy = Bare(mirror.folder, timeout_s, self._url.secrets, mirror.listings, mirror.places)

    def fetch(self, since: Mark) -> Mark:
        """Fetch the branch into the local copy; return its head, "" if the branch does not exist.

        Warns if the head does not descend from ``since``. Raises ``RemoteUnavailable`` if nothing was read.
        """
        with self._locked():
            try:
                return self._fetch(since)
            except (GitDamaged, tree.TreeGoneError) as why:
                self._rebuild(str(why))
                return self._fetch(since)

    def push(self, files: Files, on: Mark, *, message: str = "fleet: lines") -> Mark | Moved:
        """Commit files on top of ``on`` and push the commit, if the branch's head still is ``on``; else ``Moved``.

        Without any file nothing happens. Paths that are not the clan's stay in the tree as they are.

        Raises:
            RemoteUnavailable: the push may have arrived or not; repeating it is harmless.
            RemoteRefused: the remote rejected the push.
            ValueError: a path is not one of the clan's.
        """
        check_outgoing(files)
        if not files:
            return on
        if on and not _MARK.fullmatch(on):
            return Moved("the state it builds on is not known here")
        with self._locked():
            try:
                safe, unsafe = self._copy.fit(on)
                kept = safe if unsafe or on in self._copy.ignored() else None
                commit = self._copy.commit(files, on, message=message, at_s=time.time(), author=self._author, kept=kept)
            except GitDamaged as why:
                # Usually `on` is missing, since the copy was rebuilt after the mark. Either way a fetch brings it.
                if not on or self._copy.git("cat-file", "-e", on).code == 0:
                    self._rebuild(str(why))
                return Moved("the state it builds on is not in the local copy")
            return self._send(commit, on)

    # --- fetching ---------------------------------------------------------------------------------------------------

    def _fetch(self, since: Mark) -> Mark:
        head = self._fetch_head()
        if head == since:
            return head
        old: dict[str, Entry] = {}
        if _MARK.fullmatch(since):
            with suppress(GitDamaged):  # it is not here, or not any more
                old = self._copy.listing(since)
                self._warn_of_going_back(since, head)
        new = self._copy.listing(head)
        if why := self._copy.ignored().get(head):
            self._warn_of_malformed(head, why)
        changed = {path: entry for path, entry in new.items() if old.get(path) != entry}
        self._ignore_flooded(changed)
        self._warn_of_unread(changed, new)
        return head

    def _ignore_flooded(self, changed: dict[str, Entry]) -> None:
        """Count the lines of each new file before any line is parsed; ignore the files that have too many."""
        files, reasons = tree.sort_entries(changed, self._copy.ignored()).files, {}
        with self._mirror.reading():
            for path, blob in files.items():
                if blob.size > limits.UNREADABLE_MAX:
                    with self._mirror.open(blob.oid) as content:
                        reasons[blob.oid] = tree.too_much(path, content)
        self._copy.ignore({oid: why for oid, why in reasons.items() if why})

    def _warn_of_going_back(self, since: Mark, head: Mark) -> None:
        if not head:
            self.warnings.append(
                f"{self.name}: the branch {self._branch} is gone; the next push brings it back. "
                "If it was renamed, put the new name into fleet.toml: [share] branch"
            )
        elif not self._copy.is_ancestor(since, head):
            self.warnings.append(f"{self.name}: the remote's history was rewritten; nothing that was read goes back")

    def _warn_of_unread(self, changed: Container[str], listing: dict[str, Entry]) -> None:
        """Warn of the new entries of a tree that are not read."""
        by_reason: dict[str, list[str]] = {}
        for path, why in tree.sort_entries(listing, self._copy.ignored()).unread.items():
            if path in changed:
                by_reason.setdefault(why, []).append(path)
        for why, paths in by_reason.items():
            self.skipped += len(paths)
            what = counted(len(paths), "file is", "files are")
            self.warnings.append(f"{self.name}: {what} held, not read and not dropped: {_listed(paths)}: {why}")

    def _fetch_head(self) -> Mark:
        """Update our copy of the branch and return its head, "" if the branch does not exist."""
        done = self._run_remote(*_FETCH)
        if done.code == 0:
            return self._copy.ref(SEEN)
        if f"fatal: couldn't find remote ref refs/heads/{self._branch}\n" in done.err:
            return ""
        if self._takes_other_hash(done):
            return self._fetch_head()
        why = self._copy.reason(done)
        # A malformed tree must not stop a clan: nothing is checked out, and only plain files at its own paths are read.
        if _answer("malformed").search(done.err) and self._run_remote(*_FETCH, is_checked=False).code == 0:
            self._copy.ignore({self._copy.ref(SEEN): "git refuses it"})  # our copy is not damaged
            self._malformed = found[1] if (found := _answer("object").search(done.err)) else ""
            return self._copy.ref(SEEN)
        if self._copy.is_damaged(done):
            raise GitDamaged(why)
        raise self._unavailable(why)

    def _warn_of_malformed(self, head: Mark, why: str) -> None:
        """Warn of a head that git refused, or that has too many files; the next push puts a good tree on top.

        git also refuses a good tree if a bad one before it in the history is new here: it was repaired since.
        """
        brought = self._copy.bringer(self._malformed, head) if self._malformed else ""
        named = _listed([repr(path) for path in self._copy.fit(brought or head)[1]])
        author = for_terminal(self._copy.committer(brought or head))[:200]
        who = f"the {'commit that brought it' if brought not in ('', head) else 'last commit'} says it is by {author}"
        what = f"{why}{f', for {named}' if named else ''}; {who}"
        if brought and not self._copy.fit(head)[1] and not self._copy.has_object(head, self._malformed):
            self.warnings.append(f"{self.name}: what was on {self._branch}: {what}. It was mended since")
            return
        self.warnings.append(
            f"{self.name}: what is on {self._branch}: {what}. What is well-formed was read; the next push puts a tree "
            "without the rest on top"
        )
        self.skipped += 1

    def _takes_other_hash(self, done: Done) -> bool:
        """Make the local copy anew if the remote's objects are named by the other hash; return whether they are.

        The two formats share no object, so the copy holds nothing of that remote's.
        """
        ours = self._copy.object_format()
        match = re.search(r"client (sha1|sha256); server (sha1|sha256)", done.err)
        theirs = match[2] if match else {"sha1": "sha256", "sha256": "sha1"}[ours]
        if not _answer("other_hash").search(done.err) or theirs == ours or self._has_turned:
            return False
        self._has_turned = True
        self._copy.rebuild(theirs)
        return True

    # --- pushing ----------------------------------------------------------------------------------------------------

    def _send(self, commit: Mark, on: Mark) -> Mark | Moved:
        """Push the commit if the branch is exactly at ``on``.

        The lease is a compare-and-swap, which the remote checks under its lock. It overwrites nothing, since the commit
        is a child of ``on``. A plain push would silently undo a rewind or a deletion of the branch.
        """
        where = f"refs/heads/{self._branch}"
        options = ("--porcelain", "--no-verify", f"--force-with-lease={where}:{on}")
        done = self._run_remote("push", *options, "--", _NAME, f"{commit}:{where}")
        if done.code == 0:
            return commit
        status = re.search(r"^!\t[^\t\n]*\t(.*)$", done.out.decode("utf-8", "replace"), re.MULTILINE)
        verdict = status[1] if status else ""
        shown = self._copy.reason(done._replace(err=verdict))
        if verdict.startswith("[rejected]"):
            return Moved(shown)
        if verdict.startswith("[remote rejected]"):
            why = f"{shown}: {self._copy.reason(done)}"
            if _answer("race").search(verdict) and not _answer("no_race").search(done.err):
                return Moved(why)
            raise self._refused(why)
        if not verdict and self._takes_other_hash(done):
            return Moved("its objects are named by the other hash; the local copy is so from now on")
        if not verdict and _answer("refusal").search(done.err):
            # The server refuses by hanging up.
            raise self._refused(self._copy.reason(done._replace(err=_answer("hung_up").sub("", done.err))))
        raise self._unavailable(self._copy.reason(done))

    # --- errors -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the local copy; turn every error of the block into ``RemoteUnavailable``."""
        try:
            with self._copy.locked():
                yield
        except BusyError as why:
            raise self._unavailable("another fleet process is using it") from why
        except GitFailed as why:
            raise self._unavailable(str(why), why.advice) from why
        except FileNotFoundError as why:
            raise self._unavailable(f"{why.filename} is not there; is git installed?", "Install git") from why
        except OSError as why:
            raise self._unavailable(f"{self._copy.folder} cannot be used ({why.strerror})") from why

    def _rebuild(self, why: str) -> None:
        """Rebuild the local copy, which is empty then. Pending lines are in the shards."""
        self.warnings.append(f"{self.name}: the local copy is fetched anew ({why})")
        self._copy.rebuild()

    def _run_remote(self, *arguments: str, is_checked: bool = True) -> Done:
        """Run a command on the remote. A successful push updates ``SEEN`` as well."""
        settings = [f"url={self._url}", f"fetch=+refs/heads/{self._branch}:{SEEN}"]
        if self._url.is_local:
            # The remote's upload-pack gets our limit, too (else it holds a blob of half a gigabyte in memory). It packs
            # an edition of 50 MB in half the time, into a larger pack, which is no loss on one machine.
            settings.append(f"uploadpack=git -c {git.STREAMED} -c pack.compression=1 upload-pack")
        named = [f"remote.{_NAME}.{setting}" for setting in settings]
        return self._copy.run_remote([*named, *(() if is_checked else _UNCHECKED)], *arguments)

    def _unavailable(self, reason: str, advice: str = "") -> RemoteUnavailable:
        if _answer("redirected").search(reason):
            advice = "The server names another address: `fleet init --remote URL` agrees to one"
        if _answer("no_login").search(reason):
            advice = (
                "It wants a login. git finds one by a credential helper in your own settings (`git config --global`); "
                "`fleet init --remote` with USER:TOKEN@ in the address keeps one on this machine alone"
            )
        is_whole = self.name == self._url  # the command would not work with the login left out
        ask = f"`git ls-remote {self.name}` {_ELSEWHERE}" if is_whole else "`fleet sync` tries it again"
        if reason.startswith("no answer in "):
            ask += ". Where it does, the branch brings more than fits into that time: raise [share] wait_s, or reset it"
        why = RemoteUnavailable(f"{self.name}: {reason}; {_SAFE}. {advice or ask}")
        why.is_offline = _answer("offline").search(reason) is not None
        return why

    def _refused(self, reason: str) -> RemoteRefused:
        is_fault = _answer("server_fault").search(reason) is not None
        then = "has put that right" if is_fault else "allows that"
        is_settled = is_fault or bool(self._author and self._author.identity)
        hint = "" if is_settled else ". If it wants a person's name, or a signature: fleet init --author git"
        return RemoteRefused(f"{self.name} refused the push: {reason}; {_SAFE} once whoever runs it {then}{hint}")


def _listed(paths: Sequence[str]) -> str:
    """Return the first few of some paths as text for a person."""
    return listed([for_terminal(path)[:200] for path in paths])


# --- addresses ------------------------------------------------------------------------------------------------------

_ADDRESS_CHARS_MAX = 4096
_BRANCH_BYTES_MAX = 200  # git appends ".lock" to it: still a file name
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HELPER = re.compile(r"[^/:\[]*::")
_SCHEME = re.compile(r"([^/:]+)://(.*)", re.DOTALL)
_SCP_LIKE = re.compile(r"(?:[^/:@]*@)?(?P<host>\[[^/\]]*\]|[^/:]*):(?P<path>.*)", re.DOTALL)
_NO_BRANCH = re.compile(
    r"[\x00-\x20\x7f-\x9f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|//|(?:^|/)\.|\.lock(?:/|$)|^/|/$|\.$|^-|^@$|^HEAD$"
)
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)?(?P<info>[^\s?#]*)@", re.IGNORECASE)


class Address(str):
    """Address of a git remote, as a person writes it or as it is passed to git."""

    __slots__ = ()

    @classmethod
    def checked(cls, url: str) -> "Address":
        """Return the address as it is passed to git: an absolute path, ``host:path``, or a url of ``SCHEMES``.

        Raises ``UsageError`` for any other, and for one that could be taken for an option or a program.
        """
        url = url.strip()
        shown = cls(url).redacted[:200]
        if url.startswith("-"):
            raise UsageError(f"{shown!r} starts with a dash; git would take it for an option")
        if _HELPER.match(url):
            raise UsageError(f"{shown!r} would make git run a program; use one of {', '.join(SCHEMES)}, or a path")
        is_fit = 0 < len(url) <= _ADDRESS_CHARS_MAX and not _CONTROL.search(url)
        with_scheme, scp_like = _SCHEME.fullmatch(url), _SCP_LIKE.fullmatch(url)
        if with_scheme:
            scheme, rest = with_scheme.groups()
            host = rest.partition("/")[0].rpartition("@")[2]
            is_fit = is_fit and scheme in SCHEMES and not host.startswith("-") and bool(host or scheme == "file")
        elif scp_like:
            is_fit = is_fit and all(part and part[0] != "-" for part in scp_like.group("host", "path"))
        if not is_fit:
            how = f"use a path, HOST:PATH, or {', '.join(SCHEMES)} with :// and a host behind it"
            limit = f"{_ADDRESS_CHARS_MAX:,} characters at most, and no control characters"
            raise UsageError(f"{shown!r} is no address of a remote: {how}; {limit}")
        if with_scheme or scp_like:
            return cls(url)
        return cls(Path(os.path.expanduser(url)).absolute())  # noqa: PTH111 - `~nosuchuser` raises in pathlib

    @classmethod
    def typed(cls, url: str) -> "Address":
        """Return a checked address as it is stored: a path has no ``..`` left. Raises as ``checked``."""
        found = cls.checked(url)
        is_detour = found.startswith("/") and ".." in Path(found).parts
        return cls(Path(found).resolve()) if is_detour else found

    @property
    def is_local(self) -> bool:
        """True if the checked address is on this machine."""
        return self.startswith(("/", "file://"))

    @property
    def redacted(self) -> str:
        """The address with user and password (over ssh only the password), and the query, replaced by ``***``."""
        return self._with_login("***") + ("?***" if "?" in self else "")

    @property
    def bare(self) -> str:
        """The address for a shared file: without user, password and query; over ssh the user stays."""
        with_scheme = _SCHEME.fullmatch(self)
        return self._with_login("") if with_scheme and with_scheme[1] != "file" else str(self)

    def _with_login(self, shown: str) -> str:
        """Return the address without its query, with ``shown`` in place of the login, or over ssh of the password."""
        address = self.partition("?")[0]
        info = _userinfo(address)
        user, _, password = info.partition(":")
        if self.startswith("ssh://"):
            shown = f"{user}:{shown}" if password and shown else user
        return address.replace(f"{info}@", f"{shown}@" if shown else "", 1) if info else address

    @property
    def secrets(self) -> tuple[str, ...]:
        """The parts of the address that must never be shown, in each form in which git may print them."""
        address, _, query = self.partition("?")
        info = _userinfo(address)
        user, _, password = info.partition(":")
        is_ssh = self.startswith("ssh://")
        parts = {query, password, "" if is_ssh else user, "" if is_ssh and not password else info}
        return tuple(sorted(form for part in parts for form in {part, unquote(part)} if len(form) > 3))


def check_branch(name: str) -> str:
    """Return a branch's short name; raise ``UsageError`` if ``git check-ref-format --branch`` would reject it."""
    if not name or len(name.encode("utf-8", "replace")) > _BRANCH_BYTES_MAX or _NO_BRANCH.search(name):
        raise UsageError(f"{name[:200]!r} is no name of a branch; letters, digits, - and / are always fine")
    return name


def _userinfo(address: str) -> str:
    """Return the part before the host. A password may contain a bare ``@`` or ``/``."""
    match = _USERINFO.match(address)
    if not match:
        return ""
    info = match["info"]
    if not match["scheme"]:
        return info if ":" in info.partition("/")[0] and not info.startswith("[") else ""
    first = info.partition("/")[0]
    if first == info or re.search(r":(?![0-9]+$)", first):
        return info
    return first.rpartition("@")[0]


# --- the enclosing repository ---------------------------------------------------------------------------------------


class Repository:
    """The git repository around a folder, as git is configured there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def origin(self, name: str = "origin") -> Address | None:
        """Return the address of its remote of this name, or None. It is only a guess: a person has to agree to it."""
        with suppress(UsageError):
            # Unlike `config --get`, this applies url.<base>.insteadOf. It connects to no remote.
            url = git.output(self._folder, "ls-remote", "--get-url", name)
            if not url or url == name:
                return None
            address = Address.checked(url)
            if not address.is_local or url.startswith(("/", "~", "file:")):
                return address
            top = git.output(self._folder, "rev-parse", "--show-toplevel")  # what a relative path is relative to
            return Address((Path(top) / url).resolve()) if top else None
        return None

    def has_unpulled(self, name: str) -> bool:
        """Return whether the upstream branch, as last fetched, has a file that the last commit here lacks."""
        return bool(git.output(self._folder, "diff", "--raw", "--diff-filter=A", "HEAD", "@{upstream}", "--", name))

    def identity(self) -> str:
        """Return ``Name <address>`` from git's configuration, "" where it is not set."""
        found = f"{self._setting('user.name')} <{self._setting('user.email')}>"
        return found if Author(identity=found).is_named else ""

    def signing(self) -> tuple[str, ...] | None:
        """Return the settings with which git signs commits here; None if it does not sign.

        They never include the program that signs, since anybody may have written the folder's configuration.
        """
        if self._setting("commit.gpgsign", "--type=bool") != "true":
            return None
        values = ((key, self._setting(key)) for key in ("gpg.format", "user.signingkey"))
        return tuple(f"{key}={value}" for key, value in values if value)

    def _setting(self, key: str, *options: str) -> str:
        return git.output(self._folder, "config", *options, "--get", key)
