"""Use cases of sharing: sync, dry run, compact, what a timer does, pause, consent and leave."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from random import Random

import msgspec

from crdt import clock
from fleet.app import inbox, pages, reflecting, starting, undoing
from fleet.learn import counting, restore
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import Findings
from fleet.learn.importer import LogPage
from fleet.learn.purge import Purge, follow_marks
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.reflect import evidence
from fleet.reflect.clusters import Weighing
from fleet.share.git import Address, GitRemote, Repository, check_branch
from fleet.share.outgoing import Outbox, Outgoing
from fleet.share.remote import Remote
from fleet.share.sync import Exchange, Exchanged, Hooks, warn_of_old_state
from fleet.store import config, consent, git
from fleet.store.database import Pause
from fleet.store.git import Author
from fleet.store.lines import KINDS, Kind
from fleet.store.runs import Runs
from fleet.store.semantic import Embeddings
from fleet.store.tree import GitTree
from fleet.store.workspace import Workspace

_LEFT = "left"
_LOOKED = "looked_for_secrets"
"""Key of the generation and row up to which lessons were looked at for secrets, in the order in which they changed."""
_LOOKED_AT_MAX = 1_000
_REFUSED_TOLD, _TOLD_MAX = "refused_told", 2_000
"""Key of the unreadable lines that a sync told, and how many of them are noted; those beyond are told each time."""
_LEFT_TOLD, _LEFT_CHARS = 5, 60
_LOGIN = "login:"
"""Beginning, before an address, of the key under which its user, password and query are kept, in ``local.db`` alone."""


class ConsentNeededError(UsageError):
    """Nobody on this machine agreed to the remote yet.

    Attributes:
        shown: the remote and its branch, without credentials.
        origin: who named it.
    """

    def __init__(self, shown: str, origin: str) -> None:
        super().__init__(
            f"this clan's lessons would go to {shown} ({origin}), and nobody has agreed to that on this machine. "
            "Nothing was sent. Run `fleet sync --yes`, or name the remote: `fleet init --remote URL`"
        )
        self.shown = shown
        self.origin = origin


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a sync, in numbers.

    Attributes:
        remote: whom with, for people; "" for nobody.
        why: why nothing was exchanged, where that is so.
        out: lines sent.
        patterns_in: patterns that are new or changed here.
        discoveries_in: discoveries that are new here.
        withheld: lines that the gate kept here.
        held: records with an edit stamped beyond the cut.
        carried: lines of newer versions.
        refused: lines that could not be read.
        refused_before: so many of them were told by an earlier sync: they are known.
        lost: records of which the remote had lost something.
        edition: whether a new edition was written.
        skipped: files of the remote's that were not read: links, or too large.
        promoted: lessons that entered a memory here.
        put_back: files here that lacked lines which the clan's tree holds, and have them again.
        left_out: lessons of which a part is left out here until a person decides.
        review: what waits for ``fleet review``, a line for each kind.
    """

    remote: str = ""
    why: str = ""
    out: int = 0
    patterns_in: int = 0
    discoveries_in: int = 0
    withheld: int = 0
    held: int = 0
    carried: int = 0
    refused: int = 0
    refused_before: int = 0
    lost: int = 0
    edition: bool = False
    skipped: int = 0
    promoted: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    left_out: int = 0
    review: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """True where something was skipped or stays here: then nobody may say that all is in sync."""
        news = self.refused - self.refused_before
        return bool(self.withheld or self.held or news or self.skipped or self.left_out)


# --- sync -----------------------------------------------------------------------------------------------------------


def sync(workspace: Workspace, agent: str, *, yes: bool = False, compact: bool = False) -> Synced:
    """Bring this machine and the clan together, or, without a remote, this machine's files in order.

    With ``yes`` a person agrees to the remote. To compact writes editions whether they are due or not, and shards lose
    what they cover.

    Raises:
        ConsentNeededError: nobody agreed to the remote; nothing was sent.
        FleetError: the exchange did not end well; nothing is lost.
    """
    _take_seat(workspace, agent)
    remote = Membership(workspace).remote(yes=yes)
    with _alone(workspace):
        return synced(workspace, remote, compact=compact)


def exchange(workspace: Workspace, agent: str) -> Synced:
    """Exchange with the remote that somebody here agreed to, as a timer or a session's end does; never asks.

    Where there is none, or sharing is paused, nothing is done, and ``Synced.why`` says so.
    """
    _take_seat(workspace, agent)
    remote, why = _remote_or_why(workspace)
    if remote is None:
        return Synced(why=why)
    with _alone(workspace):
        return synced(workspace, remote)


def fetch(workspace: Workspace, agent: str) -> Synced:
    """Take in what the clan has, from the remote that somebody here agreed to; nothing is sent, and nobody is asked.

    Where there is none, or sharing is paused, nothing is done, and ``Synced.why`` says so.
    """
    remote, why = _remote_or_why(workspace)
    if remote is None:
        return Synced(why=why)
    _take_seat(workspace, agent)
    with _alone(workspace):
        done = Exchange(workspace, remote, _hooks(workspace, [])).fetch()
        for warning in remote.warnings:
            workspace.warn(warning)
        _note_answer(workspace, fetched=workspace.wall())
        warn_of_old_state(workspace, done.lost)
        pages.write_page(workspace)
    return Synced(
        remote=remote.name,
        patterns_in=sum(each.startswith("p-") for each in done.came),
        discoveries_in=sum(each.startswith("d-") for each in done.came),
        put_back=tuple(done.put_back),
    )


def _remote_or_why(workspace: Workspace) -> tuple[Remote | None, str]:
    """Return the remote that somebody here agreed to; None where nobody may be asked now, and why."""
    if held := workspace.state.paused(workspace.wall()):
        return None, f"sharing is paused {held}"
    try:
        return Membership(workspace).remote(), "no remote is named"
    except UsageError as unconfirmed:
        return None, str(unconfirmed)


def settle(workspace: Workspace, agent: str) -> tuple[list[str], bool]:
    """Bring everything here up to date with what was written by hand, and with what came in. Nobody is asked.

    Returns what was promoted into a memory here, and whether ``patterns.md`` is another one now.
    """
    _take_seat(workspace, agent)
    return _settled(workspace), pages.write_page(workspace)


def synced(
    workspace: Workspace,
    remote: Remote | None,
    *,
    compact: bool = False,
    rng: Random | None = None,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Synced:
    """Exchange with one remote, or with nobody. The caller holds the workspace's sync lock, and has a replica.

    The last three say how long to wait for others, how to wait, and how long an attempt went on.
    """
    done, promoted = Exchanged(), list[str]()
    if remote is None:
        promoted = _settled(workspace)
        done.edition = write_edition_here(workspace, always=compact)
    else:
        exchange = Exchange(workspace, remote, _hooks(workspace, promoted), rng, sleep, monotonic)
        try:
            done = exchange.run(compact=compact)
        except FleetError as why:
            workspace.state.put(sync_failed=str(why))
            counting.reconcile_all(workspace)  # our own words count, whatever became of the exchange
            raise
        finally:
            for warning in remote.warnings:
                workspace.warn(warning)
        _note_answer(workspace, last_sync=workspace.wall())
    with workspace.db.without_refresh():  # the rows were brought up to date just now
        if remote is not None:
            warn_of_old_state(workspace, done.lost)
            evidence.Witnesses(workspace).look_up()
        pages.write_page(workspace)
        return _told(workspace, remote, done, promoted)


def _told(workspace: Workspace, remote: Remote | None, done: Exchanged, promoted: Sequence[str]) -> Synced:
    """Return what came of an exchange, in numbers."""
    return Synced(
        remote=remote.name if remote is not None else "",
        why="" if workspace.config.is_read else f"{config.FILE_NAME} cannot be read, and may name a remote",
        out=done.out,
        patterns_in=sum(each.startswith("p-") for each in done.came),
        discoveries_in=sum(each.startswith("d-") for each in done.came),
        withheld=done.withheld,
        held=len(workspace.db.future_ids()),
        carried=workspace.db.carried_count(),
        # What went to quarantine on the way left its file: it was skipped all the same, and once.
        refused=max(done.refused, workspace.db.refused_count()),
        refused_before=_told_before(workspace, is_shared=remote is not None),
        lost=len(done.lost),
        edition=done.edition,
        skipped=remote.skipped if remote is not None else 0,
        promoted=tuple(promoted),
        put_back=tuple(done.put_back),
        left_out=len({each.id for each in workspace.trust.asked()}),
        review=tuple(reflecting.to_review(reflecting.current_clusters(workspace))),
    )


def _told_before(workspace: Workspace, *, is_shared: bool) -> int:
    """Return how many unreadable lines an earlier sync told, and note those that this one tells.

    Who can write to the branch can put such a line there for good: it is told as skipped when it comes, and from then
    on named as known, here and by ``fleet status``. With a remote one of ours leaves its file; without, it stands there
    to be mended, and is told each time.
    """
    here = [] if is_shared else workspace.replicas().replicas
    ours = {kind.shard(each.name) for kind in KINDS for each in here}
    found = [f"{path} {hash_[:16]}" for path, hash_ in workspace.db.refused() if path not in ours]
    told = "\n".join(found[:_TOLD_MAX])
    before = workspace.state.get(_REFUSED_TOLD)
    if told != before and not workspace.is_read_only:
        workspace.state.put(**{_REFUSED_TOLD: told})
    return len(set(found) & set(before.split("\n")))


def _note_answer(workspace: Workspace, **when: str) -> None:
    """Note that the remote answered; what lies ready says that it never did, the first time."""
    if starting.is_unasked(workspace):
        starting.forget(workspace)
    workspace.state.put(sync_failed="", **when)


def _hooks(workspace: Workspace, promoted: list[str]) -> Hooks:
    def settle() -> None:
        promoted.extend(_settled(workspace))
        _drop_secrets(workspace)

    def look(fetched: list[Line], before: Callable[[str], Line | None]) -> None:
        follow_marks(workspace, fetched)
        restore.give_up_names(workspace, fetched, before)

    return Hooks(
        settle=settle,
        look=look,
        render=lambda read: pages.of_branch(read, Weighing(workspace).compared()),
    )


def _drop_secrets(workspace: Workspace) -> None:
    """Purge certain secrets that lines of the branch carried raw, for everybody, and say so.

    Looks at what changed since the last look, so many at a time: the sync after goes on where this one stopped.
    """
    agents = [agent for agent in workspace.agents_here() if workspace.replica_name(agent)]
    if workspace.is_read_only or not agents:
        return
    generation, row = map(int, (workspace.state.get(_LOOKED) or "0 0").split(" ")[:2])
    with workspace.writing(agents[0]) as writer, workspace.db.without_refresh():
        if generation > workspace.patterns.generation:
            generation, row = 0, 0  # the database is another one
        came = workspace.patterns.changed_behind(generation, row, _LOOKED_AT_MAX)
        dropped, last = Purge(workspace).secrets(writer, list(came))
    if came:
        workspace.state.put(**{_LOOKED: "{} {}".format(*came[last])})
    for pattern, kinds in dropped.items():
        workspace.warn(
            f"{pattern} came with a secret as it stands ({', '.join(kinds)}): it is dropped for everybody, and the "
            "rest of the lesson stays. Whoever could read the clan's remote may have it: rotate it. "
            f"`fleet purge {pattern}` takes what is left of it off this machine"
        )


def _settled(workspace: Workspace) -> list[str]:
    """Count the logs, and let the memories here follow; return what was promoted."""
    restore.bring(workspace)
    counting.reconcile_all(workspace)
    _take_logs(workspace)
    for agent in workspace.agents_here():
        Findings(workspace, agent).take_waiting()
    Embeddings(workspace).embed_new()  # what is compared for a promotion is compared by its meaning, too
    promoted = [each.text for each in reflecting.promote_all(workspace)]
    if not workspace.is_read_only:
        try:
            undoing.finish(workspace)
            with workspace.db.without_refresh():  # as the promotion has just left them
                overdue = inbox.keep_up(workspace)
            for gone in overdue:
                workspace.warn(f"dropped from the inbox, since nobody decided it in time: {gone.item.title}")
        except FleetError as why:
            workspace.warn(f"what waits for a person is as it was: {why}")
    return promoted


def _take_logs(workspace: Workspace) -> None:
    """Take in what people wrote into the logs here in another form; say what was taken of it, and what was not."""
    for agent in [] if workspace.is_read_only else workspace.agents_here():
        with Runs(workspace).recording(agent, "import") as draft:
            done = LogPage(workspace, agent).take()
            done.note(draft)
        where = CountedLog(workspace, agent).log_file().relative_to(workspace.root).as_posix()
        if done.patterns_new:
            number = f"{done.patterns_new:,} lesson{'s' * (done.patterns_new != 1)}"
            workspace.warn(
                f"took {number} from {where} that are written there in another form; nothing there was changed"
            )
        left = done.left
        for each in left[:_LEFT_TOLD]:
            workspace.warn(f"not taken: {where}:{each.line}: {each.left}: {each.text[:_LEFT_CHARS]}")
        if len(left) > _LEFT_TOLD:
            workspace.warn(f"not taken: {len(left) - _LEFT_TOLD:,} more of {where}; `fleet status` names them")


def _take_seat(workspace: Workspace, agent: str) -> None:
    """Give whoever syncs a replica, so that its log is settled; but for a job that only reads."""
    if not workspace.is_read_only:
        with workspace.writing(agent):
            pass


@contextmanager
def _alone(workspace: Workspace) -> Iterator[None]:
    with workspace.files.lock(workspace.local / "locks" / "sync.lock"):
        yield


# --- pages and editions here ----------------------------------------------------------------------------------------


def write_edition_here(workspace: Workspace, *, always: bool = False) -> bool:
    """Write the joined files where nobody is asked: a small clan's are always whole. Shards stay as they are.

    They are not emptied, since no remote holds what they say: an edition that was never fetched covers nothing.
    """
    is_written = False
    with workspace.locked():
        for kind in KINDS:
            data = workspace.db.edition(kind, in_tree=False)
            if data and (always or len(data) < workspace.config.keep.edition_always_bytes):
                is_written = workspace.files.replace(workspace.clan / kind.edition, data) or is_written
    return is_written


# --- what would go out ----------------------------------------------------------------------------------------------


def dry_run(workspace: Workspace, agent: str) -> Outgoing:
    """Return what a sync would send now, going by the tree as last fetched. Asks nobody."""
    _take_seat(workspace, agent)
    _settled(workspace)
    with workspace.locked():
        return Outbox(workspace).waiting()


def waiting(workspace: Workspace) -> int:
    """Return how many lines would go out now: those that were written while the last sync ran."""
    return Outbox(workspace).waiting().count


# --- whom with ------------------------------------------------------------------------------------------------------


class Membership:
    """Tie of a workspace to its clan: its remote, a person's yes to it, and as whom it is written there."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._state = workspace, workspace.state

    def remote(self, *, yes: bool = False) -> Remote | None:
        """Return the clan's remote, once somebody here has agreed to it, or does with ``yes``; None without one.

        Raises:
            ConsentNeededError: nobody did.
            BadRemote: the address or the branch is not one that git is handed.
        """
        share = self._workspace.config.share
        url = self._url()
        if not url:
            return None
        url, branch = Address.checked(url), check_branch(share.branch)
        bare = Address(url).bare
        if share.remote and bare != url:
            self._workspace.warn(
                f"{config.FILE_NAME} has a login in [share] remote, for all who can read that file: "
                f"`fleet init --remote` with that address keeps it on this machine alone"
            )
        if not self._state.agrees(consent.REMOTE, self._consented(bare)):
            if not yes:
                origin = (
                    "named in fleet.toml, perhaps by somebody else"
                    if share.remote
                    else "the origin of the repository around"
                )
                raise ConsentNeededError(f"{Address(url).redacted}, branch {branch}", origin)
            self.agree(bare)
        url = self._state.get(_LOGIN + url) or url
        mirror = self._workspace.tree if isinstance(self._workspace.tree, GitTree) else None
        return GitRemote(
            self._workspace.local / "git", url, branch, timeout_s=share.wait_s, mirror=mirror, author=self._author(url)
        )

    def _author(self, url: str) -> Author:
        """Return as whom to commit: who a person agreed to, or who the project names, and a word for this machine.

        The word is another one in each clan. Signed is only under the name that a person agreed to.
        """
        told = f"{self._workspace.world.machine()} {Address(url).redacted}"
        word = blake2b(told.encode(), digest_size=6, person=b"fleet").hexdigest()
        agreed = next(iter(self._state.agreed(consent.AUTHOR)), "")
        return Author(
            word,
            self._workspace.config.share.author or agreed,
            Repository(self._workspace.root).signing() if agreed else None,
        )

    def name_author(self, named: str) -> str:
        """Note a person's yes to an author of the commits: ``git``, ``none`` or ``Name <address>``; return who it is.

        Raises:
            UsageError: it is none, or git knows no name and address here.
        """
        wanted = Repository(self._workspace.root).identity() if named == "git" else "" if named == "none" else named
        if named == "git" and not wanted:
            raise UsageError("git knows no user.name and user.email here: `git config` sets both")
        if wanted and not Author(identity=wanted).is_named:
            raise UsageError(f"{wanted[:80]!r} is no author: 'Name <address>', git or none")
        self._state.disagree(consent.AUTHOR)
        if wanted:
            self._state.agree(consent.AUTHOR, wanted, self._workspace.wall())
        self._state.put(author_asked=self._workspace.wall())
        return wanted

    def agree(self, url: str) -> None:
        """Note a person's yes to a remote, in place of any other. What lets one in there stays on this machine."""
        bare = Address(url).bare
        known = self._state.agreed(consent.REMOTE)
        if known != [self._consented(bare)]:
            self._state.agree(consent.REMOTE, self._consented(bare), self._workspace.wall(), alone=True)
            self._state.put(sync_failed="")
            if known:
                self._forget_tree()  # another clan answered, this one did not
        self._state.put(**{_LEFT: "", **({_LOGIN + bare: url} if bare != url else {})})

    def shown(self) -> str:
        """Return the clan's remote without credentials; "" where there is none."""
        url = self._url()
        return Address(url).redacted if url else ""

    def _url(self) -> str:
        if self._state.get(_LEFT) or not self._workspace.config.is_read:
            return ""  # what the file names is not known, and no other place is offered instead
        return self._workspace.config.share.remote or Repository(self._workspace.root).origin() or ""

    def _consented(self, url: str) -> str:
        """Return what is agreed to: an address, and its branch, since whoever names another has lessons go there."""
        branch = self._workspace.config.share.branch
        return url if branch == config.Config().share.branch else f"{url} {branch}"

    def pause(self, minutes: int | None) -> Pause:
        """Pause sharing, for so many minutes or until it is ended."""
        until = "" if minutes is None else clock.shifted(self._workspace.wall(), minutes * 60_000)
        return self._state.pause(until)

    def what_stays(self) -> list[str]:
        """Return what stays in the remote of a machine that leaves, and what it never sent there, in sentences.

        Raises:
            NoError: this machine is in no clan.
        """
        shown, share = self.shown(), self._workspace.config.share
        if not shown or not (share.remote or self._state.agreed(consent.REMOTE)):
            raise NoError("this machine is in no clan: no remote is named here. Nothing was changed")
        who = ", ".join(self._sent_by()) or "nobody here"
        said = [
            f"in {shown}, branch {share.branch}, stays all that was sent, under the names of who wrote it ({who})",
            "leaving takes nothing back; `fleet retire` and `fleet purge` do, before it",
            "here stays every line: this clan's lessons as last fetched, the logs, all of the agents' own files",
        ]
        if number := waiting(self._workspace):
            said.append(f"{number:,} line{'s' * (number != 1)} never went out: `fleet sync` first, if it should")
        return said

    def leave(self) -> list[str]:
        """Forget the remote on this machine; return what was done, and how to come back.

        The consent goes first: whatever happens after that, nothing is sent. ``fleet.toml`` may be the project's, and
        then it speaks for others as well: it is left alone.
        """
        share = self._workspace.config.share
        with _alone(self._workspace):
            self._state.put(**{_LEFT: self._workspace.wall()})
            self._state.disagree(consent.REMOTE)
            self._state.put(**{_LOGIN + Address(share.remote).bare: ""})
            self._forget_tree()
            if not share.remote:
                done = "this machine left; the origin around this folder is not asked any more"
            elif git.output(self._workspace.root, "ls-files", "--", config.FILE_NAME):
                done = (
                    f"this machine left; {config.FILE_NAME} is in the project's git, names the remote for others, "
                    "and stays"
                )
            else:
                text = self._workspace.config_file.read_text("utf-8-sig")
                self._workspace.files.replace(
                    self._workspace.config_file, config.with_value(text, "share.remote", "").encode()
                )
                done = f"this machine left; {config.FILE_NAME} names no remote any more"
        other = (
            "another clan that is joined from this folder gets all that is here: begin in a new folder if it should not"
        )
        return [done, "`fleet init --remote URL` comes back, and nothing counts twice", other]

    def _forget_tree(self) -> None:
        """Forget what was fetched: whoever comes back, or joins another clan, reads the whole of it again."""
        with self._workspace.locked():
            self._workspace.take("")
        self._state.put(last_sync="", fetched="", pulled="")

    def _sent_by(self) -> list[str]:
        """Return our replica ids that the fetched tree has a word of."""
        tree = self._workspace.tree
        ours = {replica.name for replica in self._workspace.replicas().replicas}
        found: set[str] = set()
        for data in tree.contents(oid for path, (oid, _) in tree.paths(tree.head()).items() if Kind.of(path)):
            found |= {name for name in ours - found if f'"{name}"'.encode() in data}
        return sorted(found)
