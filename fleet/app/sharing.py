"""Use cases of sharing: sync, dry run, compact, what a timer does, pause, consent and leave."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from shlex import quote

import msgspec

from crdt import clock
from fleet.app import inbox, pages, reflecting, starting, undoing
from fleet.learn import counting, restore
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import Findings
from fleet.learn.importer import LogPage
from fleet.learn.purge import Purge, follow_marks
from fleet.model import limits
from fleet.model.errors import BusyError, FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.model.pattern import REDACTED
from fleet.reflect import evidence
from fleet.reflect.clusters import Weighing
from fleet.share.exchange import Exchange, ExchangeCounts, Hooks, warn_of_old_state
from fleet.share.git import Address, GitRemote, Repository, check_branch
from fleet.share.outgoing import Outbox, Outgoing
from fleet.store import config, consent, git
from fleet.store.git import Author
from fleet.store.lines import KINDS
from fleet.store.runs import Runs
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, listed

_NO_REMOTE = "no remote is named here (`fleet init --remote URL` names one)"
_LEFT = "left"
_SCREENED = "looked_for_secrets"
"""Key of the generation and row up to which changed lessons were screened for secrets."""
_SCREENED_MAX = 1_000
_PURGED = "looked_for_purged_words"
"""Key of the ids of the purged lessons whose words were looked for here."""
_REPORTED = "refused_told"
"""Key of the unreadable lines that a sync has reported, as many as are kept."""
_LEFT_SHOWN, _LEFT_CHARS = 5, 60
_LOGIN = "login:"
"""Prefix, before an address, of the key of its user, password and query, which are kept in ``local.db`` alone."""


class ConsentNeededError(UsageError):
    """Error: nobody on this machine has agreed to the remote, shown without credentials, and named in ``origin``.

    ``lessons``: what would be shared there, in words.
    """

    def __init__(self, lessons: str, shown: str, origin: str) -> None:
        super().__init__(
            f"this clan's {lessons} would go to {shown} ({origin}), and nobody has agreed to that on this machine. "
            "Nothing was sent. Run `fleet sync --yes`, or name the remote: `fleet init --remote URL`"
        )
        self.lessons, self.shown, self.origin = lessons, shown, origin


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a sync, in numbers.

    Attributes:
        remote: the remote, for people; "" for none.
        why: the reason why nothing was exchanged; "" where something was.
        withheld: lines that the gate kept here.
        held: records with an edit whose stamp lies too far in the future.
        held_before, refused_before: those of them that an earlier sync has reported.
        carried: lines of newer versions.
        refused: lines that could not be read.
        lost: records of which the remote had lost a part.
        skipped: files of the remote's that were not read: links, or too large.
        put_back: files here that lacked lines of the clan's tree, and have them again.
        left_out: lessons of which a part is left out here until a person decides.
        purged: lessons that another writer purged: if one writer purged many, or if it did so in a name of this folder.
        review: a line for each kind of question that waits for ``fleet review``.
    """

    remote: str = ""
    why: str = ""
    out: int = 0
    patterns_in: int = 0
    discoveries_in: int = 0
    withheld: int = 0
    held: int = 0
    held_before: int = 0
    carried: int = 0
    refused: int = 0
    refused_before: int = 0
    lost: int = 0
    edition: bool = False
    skipped: int = 0
    promoted: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    left_out: int = 0
    purged: int = 0
    review: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """True for a sync that skipped something or kept it here."""
        news = self.refused - self.refused_before + self.held - self.held_before
        return bool(self.withheld or news or self.skipped or self.left_out or self.purged)


# --- sync -----------------------------------------------------------------------------------------------------------


def sync(workspace: Workspace, agent: str, *, yes: bool = False, compact: bool = False) -> SyncResult:
    """Exchange lines with the clan, or, without a remote, bring the files here up to date.

    ``yes``: a person agrees to the remote; without it, ``ConsentNeededError`` is raised if nobody here has agreed.
    ``compact``: editions are written even if none is due, and shards lose the lines that they cover.
    """
    _ensure_replica(workspace, agent)
    with workspace.lock("sync"):
        remote = Membership(workspace).remote(yes=yes)  # only now: somebody may have left while this waited
        synced = sync_with(workspace, remote, compact=compact)
        _warn_of_news(workspace)
        return synced


def sync_if_agreed(workspace: Workspace, agent: str) -> SyncResult:
    """Sync with the remote that somebody here agreed to, as a timer or a session's end does; nobody is asked.

    Without such a remote, or while sharing is paused, nothing is done: see ``SyncResult.why``.
    """
    _ensure_replica(workspace, agent)
    with _agreed_remote(workspace) as (remote, why):
        return SyncResult(why=why) if remote is None else sync_with(workspace, remote)


def fetch_if_agreed(workspace: Workspace, agent: str) -> SyncResult:
    """Take in the clan's lines, as ``sync_if_agreed`` does, and send nothing."""
    promoted: list[str] = []
    with _agreed_remote(workspace) as (remote, why):
        if remote is None:
            return SyncResult(why=why)
        _ensure_replica(workspace, agent)
        try:
            exchanged = Exchange(workspace, remote, _hooks(workspace, promoted)).fetch()
        finally:
            for warning in remote.warnings:
                workspace.warn(warning)
        _note_remote_answered(workspace, fetched=workspace.wall())
        warn_of_old_state(workspace, exchanged.lost)
        pages.write_page(workspace)
    return SyncResult(
        remote=remote.name,
        patterns_in=sum(each.startswith("p-") for each in exchanged.changed_ids),
        discoveries_in=sum(each.startswith("d-") for each in exchanged.changed_ids),
        promoted=tuple(promoted),
    )


def update_here(workspace: Workspace, agent: str) -> tuple[list[str], bool]:
    """Do the local part of a sync; return the texts of the promoted lessons, and whether ``patterns.md`` changed."""
    _ensure_replica(workspace, agent)
    return _count_and_promote(workspace), pages.write_page(workspace)


def sync_with(
    workspace: Workspace,
    remote: GitRemote | None,
    *,
    compact: bool = False,
    rng: Random | None = None,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> SyncResult:
    """Exchange lines with a remote, or without one update the files here. The caller holds the sync lock.

    ``rng``, ``sleep`` and ``monotonic`` serve the back-off between attempts.
    """
    exchanged, promoted = ExchangeCounts(), list[str]()
    if remote is None:
        promoted = _count_and_promote(workspace, knows_tree=True)
        exchanged.edition = write_edition_here(workspace, always=compact)
    else:
        exchange = Exchange(workspace, remote, _hooks(workspace, promoted), rng, sleep, monotonic)
        try:
            exchanged = exchange.sync(compact=compact)
        except FleetError as why:
            if not isinstance(why, NoError):  # a pause, or another remote, is no failure
                workspace.state.put(sync_failed=str(why))
            counting.reconcile_all(workspace)  # our own log counts, even if the exchange failed
            raise
        finally:
            for warning in remote.warnings:
                workspace.warn(warning)
        _note_remote_answered(workspace, last_sync=workspace.wall())
    with workspace.db.without_refresh():  # the rows were brought up to date just now
        if remote is not None:
            warn_of_old_state(workspace, exchanged.lost)
            evidence.Witnesses(workspace).look_up()
        pages.write_page(workspace)
        return _result(workspace, remote, exchanged, promoted)


@contextmanager
def _agreed_remote(workspace: Workspace) -> Iterator[tuple[GitRemote | None, str]]:
    """Hold the sync lock, and yield the remote that somebody here agreed to; without one, None and the reason."""
    found = _allowed_remote(workspace)
    if found[0] is None:
        yield found
        return
    with workspace.lock("sync"):
        yield _allowed_remote(workspace)  # once more: somebody may have paused, or left, while this waited


def _allowed_remote(workspace: Workspace) -> tuple[GitRemote | None, str]:
    if pause := workspace.state.paused(workspace.wall()):
        return None, f"sharing is paused {pause}"
    try:
        return Membership(workspace).remote(), _unread(workspace) or _NO_REMOTE
    except UsageError as unconfirmed:
        return None, str(unconfirmed)


def _unread(workspace: Workspace) -> str:
    """Return that the configuration cannot be used, so that no remote is known; "" where it can."""
    return "" if workspace.config.is_read else f"{config.FILE_NAME} cannot be used as it is, and may name a remote"


def _ensure_replica(workspace: Workspace, agent: str) -> None:
    """Give the agent that syncs a replica, so that its log is counted; not in a job that only reads."""
    if not workspace.is_read_only:
        with workspace.writing(agent):
            pass


def _hooks(workspace: Workspace, promoted: list[str]) -> Hooks:
    agreed = workspace.state.agreed(consent.REMOTE)

    def check() -> None:
        if pause := workspace.state.paused(workspace.wall()):
            raise NoError(f"sharing is paused {pause}. What was not sent is kept here; `fleet resume` ends the pause")
        if workspace.state.agreed(consent.REMOTE) != agreed:
            raise NoError("another remote was named meanwhile; nothing more was sent to this one: `fleet sync` again")

    def count_logs() -> None:
        promoted.extend(_count_and_promote(workspace, knows_tree=True))
        _purge_received_secrets(workspace)

    def inspect(fetched: list[Line], before: Callable[[str], Line | None] | None) -> None:
        for agent in workspace.agents_writing():  # first: else what a copy of this folder counted would seem foreign
            counting.reconcile(workspace.writer(agent))
        follow_marks(workspace, fetched)
        restore.give_up_names(workspace, fetched, before)

    return Hooks(check, count_logs, inspect, lambda read: pages.of_branch(read, Weighing(workspace).compared()))


def _count_and_promote(workspace: Workspace, *, knows_tree: bool = False) -> list[str]:
    """Count the logs and update the memories here; return the texts of the promoted lessons.

    ``knows_tree``: the remote's tree was fetched just now, or there is no remote.
    """
    restore.bring(workspace)
    counting.reconcile_all(workspace)
    if knows_tree or workspace.tree.head():
        counting.keep_private(workspace)
    _take_logs(workspace)
    for agent in workspace.agents_writing():
        Findings(workspace, agent).take_waiting()
    Embeddings(workspace).embed_new()  # promotion compares lessons by their meaning, too
    promoted = [each.text for each in reflecting.promote_all(workspace)]
    if not workspace.is_read_only:
        with workspace.warned("the inbox was not updated"):
            undoing.finish(workspace)
            with workspace.db.without_refresh():  # as the promotion has just left them
                overdue = inbox.refresh_and_notify(workspace)
            for dropped in overdue:
                workspace.warn(f"dropped from the inbox, since nobody decided it in time: {dropped.dropped()}")
    return promoted


def _take_logs(workspace: Workspace) -> None:
    """Import the lessons that people wrote into the logs here in another form; report them, and warn of the others."""
    for agent in workspace.agents_writing():
        with Runs(workspace).recording(agent, "import") as draft:
            imported = LogPage(workspace, agent).take()
            imported.note(draft)
        path = CountedLog(workspace, agent).log_file().relative_to(workspace.root).as_posix()
        if imported.patterns_new:
            number = counted(imported.patterns_new, "lesson")
            report = f"took {number} from {path}, written there in another form; that text stays as it is"
            workspace.reports.append(report)
        left = imported.left_out
        for entry in left[:_LEFT_SHOWN]:
            workspace.warn(f"not taken: {path}:{entry.line}: {entry.reason}: {entry.text[:_LEFT_CHARS]}")
        if len(left) > _LEFT_SHOWN:
            workspace.warn(f"not taken: {len(left) - _LEFT_SHOWN:,} more of {path}; `fleet status` names them")


def _purge_received_secrets(workspace: Workspace) -> None:
    """Purge, for everybody, what is certainly a secret in the changed lessons of the branch, and warn of it.

    The next sync continues where this one stopped.
    """
    agents = [agent for agent in workspace.agents_here() if workspace.replica_name(agent)]
    if workspace.is_read_only or not agents:
        return
    generation, row = map(int, (workspace.state.get(_SCREENED) or "0 0").split(" "))
    if generation > workspace.patterns.generation:
        generation = row = 0  # of another database
    with workspace.writing(agents[0]) as writer, workspace.db.without_refresh():
        Purge(workspace).own_wordings(writer)
        changed = workspace.patterns.changed_behind(generation, row, _SCREENED_MAX)
        dropped, last = Purge(workspace).secrets(writer, list(changed))
    if changed:
        workspace.state.put(**{_SCREENED: "{} {}".format(*changed[last])})
    if dropped:
        kinds = ", ".join(sorted({kind for each in dropped.values() for kind in each}))
        workspace.warn(
            f"{listed([*dropped])} came with a secret as it stands ({kinds}): it is dropped for everybody, and the "
            "rest of the lesson stays. Whoever could read the clan's remote may have it: rotate it. "
            f"`fleet show {next(iter(dropped))}` names what is left"
        )


def _warn_of_news(workspace: Workspace) -> None:
    """Give a person the warnings that are given once. A hook does not: its warnings go to a log that nobody reads."""
    if purged := workspace.trust.purged(forget=True):
        starting.forget(workspace)  # the cached start has the same warnings
        workspace.warnings += workspace.trust.purge_sentences(purged, workspace.mine())
    _warn_of_purged_words(workspace)
    if overruled := Weighing(workspace).overruled(forget=True):
        starting.forget(workspace)
        workspace.warnings += overruled
    asked, shared = workspace.config.share.fields, workspace.shared_fields()
    if left := [each for each in asked if each not in shared]:
        workspace.warn(
            f"{config.FILE_NAME} would share of each correction {' and '.join(left)}, too, and nobody on this machine "
            f"agreed to that: `fleet config set share.fields '{config.as_toml(asked)}'` does"
        )
    for log in (CountedLog(workspace, each) for each in workspace.agents_here()):
        if edited := log.newly_edited():
            path = log.log_file().relative_to(workspace.root).as_posix()
            entries = f"{counted(edited, 'entry', 'entries')} of {path}"
            workspace.warn(f"{entries} edited since counted, which words no lesson anew; `fleet status` names the way")


def _warn_of_purged_words(workspace: Workspace) -> None:
    """Warn once of the places here, such as a log, that still have the words of a lesson that others purged."""
    if workspace.is_read_only:
        return
    known, purged = workspace.state.get(_PURGED).split(), workspace.db.purged_ids()
    for lesson in workspace.patterns.some([each for each in purged if each not in known]):
        marked = {writer for writer, _ in (workspace.patterns.line(lesson.id) or Line(lesson.id)).marks("purge")}
        is_of_others = lesson.value("text") != REDACTED and marked.isdisjoint(lesson.mine)
        if lesson.retired_by in lesson.mine or is_of_others:
            continue  # a purge made here has named its places, and a secret of others is in no log here
        if places := [f"{path}:{line}" if line else path for path, line in Purge(workspace).remains([lesson.id], ())]:
            workspace.warn(
                f"{lesson.id} was purged by others, as a secret perhaps, and its words still stand on this machine: "
                f"{listed(places)}. `fleet purge {lesson.id}` takes them out of fleet's own files, and "
                "names those that are yours to mend"
            )
    if purged != known:
        workspace.state.put(**{_PURGED: " ".join(purged)})


def _note_remote_answered(workspace: Workspace, **when: str) -> None:
    """Note that the remote answered. The first answer outdates the cached session start, which says that none came.

    With the first answer this machine has joined the clan: only what comes later is new to the person.
    """
    if starting.is_unasked(workspace):
        starting.forget(workspace)
        workspace.state.note_look(workspace.patterns.generation, workspace.wall())
    workspace.state.put(sync_failed="", **when)


def _result(
    workspace: Workspace, remote: GitRemote | None, counts: ExchangeCounts, promoted: Sequence[str]
) -> SyncResult:
    refused = counts.refused.union(workspace.db.refused())
    refused_before, held_before = _reported_before(workspace, refused, is_shared=remote is not None)
    compared = reflecting.current_clusters(workspace)
    return SyncResult(
        remote=remote.name if remote is not None else "",
        why=_unread(workspace) or _NO_REMOTE if remote is None else "",
        out=counts.out,
        patterns_in=sum(each.startswith("p-") for each in counts.changed_ids),
        discoveries_in=sum(each.startswith("d-") for each in counts.changed_ids),
        withheld=counts.withheld,
        held=len(workspace.db.future_ids()),
        held_before=held_before,
        carried=len(workspace.db.carried()),
        refused=len(refused),
        refused_before=refused_before,
        lost=len(counts.lost),
        edition=counts.edition,
        skipped=remote.skipped if remote is not None else 0,
        promoted=tuple(promoted),
        put_back=tuple(counts.put_back),
        left_out=len({each.id for each in workspace.trust.asked()}),
        purged=sum(workspace.trust.purged().values()),
        review=tuple(reflecting.to_review(len(compared.opposed), len(compared.likely))),
    )


def _reported_before(workspace: Workspace, refused: set[tuple[str, bytes]], *, is_shared: bool) -> tuple[int, int]:
    """Return how many unreadable lines, and how many held edits, an earlier sync has reported; note those of this one.

    Such a line may stay in the branch for good. Without a remote a line of ours stays in its file, and is reported each
    time.
    """
    own = () if is_shared else workspace.replicas().replicas
    own_paths = {kind.shard(each.name) for kind in KINDS for each in own}
    entries = {(path, hash_): hash_.hex()[:16] for path, hash_ in refused if path not in own_paths}
    held = workspace.db.future_ids()
    left = [entries[each] for each in workspace.db.refused() if each in entries]
    reported = "\n".join([*held[: limits.REFUSED_KEPT_MAX], *left])
    before = workspace.state.get(_REPORTED)
    if reported != before and not workspace.is_read_only:
        workspace.state.put(**{_REPORTED: reported})
    known = {line.rpartition(" ")[2] for line in before.split("\n")}  # an earlier version wrote a path before each id
    return sum(each in known for each in entries.values()), len(known.intersection(held))


# --- pages and editions here ----------------------------------------------------------------------------------------


def write_edition_here(workspace: Workspace, *, always: bool = False) -> bool:
    """Write the editions of a clan without a remote, if it is small or ``always``; return whether one changed.

    Shards keep their lines: an edition that was never fetched covers nothing.
    """
    is_written = False
    with workspace.locked():
        for kind in KINDS:
            data = workspace.db.edition(kind, in_tree=False)
            if data and (always or len(data) < workspace.config.keep.edition_always_bytes):
                is_written = workspace.files.replace(workspace.clan / kind.edition, data) or is_written
    return is_written


# --- the outbox -----------------------------------------------------------------------------------------------------


def dry_run(workspace: Workspace, agent: str) -> Outgoing:
    """Return the content that a sync would send now, relative to the tree as last fetched. Nobody is asked."""
    _ensure_replica(workspace, agent)
    _count_and_promote(workspace)
    with workspace.locked():
        return Outbox(workspace).waiting()


# --- membership -----------------------------------------------------------------------------------------------------


class Membership:
    """Membership of a workspace in its clan: the remote, a person's yes to it, and the author of its commits."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._state = workspace, workspace.state

    def remote(self, *, yes: bool = False) -> GitRemote | None:
        """Return the clan's remote if somebody here has agreed to it, or does now with ``yes``; None without one.

        Raises ``ConsentNeededError`` where nobody has, ``UsageError`` for what is not safe to hand to git.
        """
        share = self._workspace.config.share
        if not (named := self._url()):
            return None
        address, branch = Address.checked(named), check_branch(share.branch)
        if share.remote and address.bare != address:
            self._workspace.warn(
                f"{config.FILE_NAME} has a login in [share] remote, for all who can read that file: "
                f"`fleet init --remote` with that address keeps it on this machine alone"
            )
        if not self._state.agrees(consent.REMOTE, share.consented(address.bare)):
            if not yes:
                by_file, by_git = "named in fleet.toml, perhaps by somebody else", "the origin of the repository around"
                origin = by_file if share.remote else by_git
                needed = ConsentNeededError(share.lessons, f"{address.redacted}, branch {branch}", origin)
                if self._state.agreed(consent.REMOTE):  # to another address: what went out goes out no more
                    self._state.put(sync_failed=str(needed))
                raise needed
            self.agree(address.bare)
        url = self._with_login(address)
        return GitRemote(self._workspace.tree, url, branch, timeout_s=share.wait_s, author=self._author(url))

    def _author(self, url: str) -> Author:
        """Return the author of commits: whom the project names or a person agreed to, and the machine's pseudonym.

        The pseudonym differs from clan to clan. Commits are signed only where a person agreed to the name.
        """
        seed = f"{self._workspace.world.machine()} {Address(url).redacted}"
        machine = blake2b(seed.encode(), digest_size=6, person=b"fleet").hexdigest()
        agreed = next(iter(self._state.agreed(consent.AUTHOR)), "")
        signing = Repository(self._workspace.root).signing() if agreed else None
        return Author(machine, self._workspace.config.share.author or agreed, signing)

    def name_author(self, named: str) -> str:
        """Note a person's yes to an author of commits: ``git``, ``none`` or ``Name <address>``; return the author."""
        identity = Repository(self._workspace.root).identity() if named == "git" else "" if named == "none" else named
        self._state.disagree(consent.AUTHOR)
        if identity:
            self._state.agree(consent.AUTHOR, identity, self._workspace.wall())
        self._state.put(author_asked=self._workspace.wall())
        return identity

    def agree(self, url: str) -> None:
        """Note a person's yes to a remote, in place of any other. Its login is kept on this machine alone."""
        consented = self._workspace.config.share.consented(Address(url).bare)
        agreed = self._state.agreed(consent.REMOTE)
        if agreed != [consented]:
            if agreed:
                self._forget_tree()  # another clan's. First: a crash in between must leave the old consent
                self._state.agree(consent.REMOTE_BEFORE, agreed[0], self._workspace.wall(), alone=True)
            self._workspace.agree_to_fields()
            if (share := self._workspace.config.share).fields:
                self._workspace.reports.append(f"{share.lessons} are shared with {Address(url).redacted}")
            self._state.agree(consent.REMOTE, consented, self._workspace.wall(), alone=True)
            self._state.put(sync_failed="")
        self._state.put(**{_LEFT: ""})
        self.keep_login(url)

    def keep_login(self, url: str) -> None:
        """Keep the login of an address, if it has one, on this machine alone. This is no consent to that remote."""
        if (bare := Address(url).bare) != url:
            self._state.put(**{self._state.here(_LOGIN + bare): url})

    def _with_login(self, address: Address) -> Address:
        """Return an address with the login that was kept here: never another address, whatever the database says."""
        kept = Address(self._state.get(self._state.here(_LOGIN + address)))
        return kept if kept.bare == address else address

    def shown(self) -> str:
        """Return the clan's remote without credentials; "" where there is none."""
        url = self._url()
        return Address(url).redacted if url else ""

    def _url(self) -> str:
        if self._state.get(_LEFT) or not self._workspace.config.is_read:
            return ""  # the file may name a remote: the origin is no substitute
        url = self._workspace.config.share.remote or Repository(self._workspace.root).origin() or ""
        if why := git.refusal(self._workspace.root) if not url else "":
            self._workspace.warn(f"the origin of the repository around this folder is not known: {why}")
        return url

    def pause(self, minutes: int | None) -> str:
        """Pause sharing, for some minutes or until it is resumed; return until when, for a message.

        A sync that runs ends before its next push, and is waited for: a push that has begun cannot be stopped.
        """
        now = self._workspace.wall()
        self._state.pause("" if minutes is None else clock.shifted(now, minutes * 60_000))
        try:
            with self._workspace.lock("sync"):
                pass
        except BusyError:
            self._workspace.warn("a sync that began before the pause still runs, and may send what it has read")
        return self._state.paused(now)

    def what_stays(self) -> list[str]:
        """Return sentences on what stays in the remote when this machine leaves; raise ``NoError`` outside a clan."""
        shown, share = self._shown_to_leave(), self._workspace.config.share
        if not shown or not (share.remote or self._state.agreed(consent.REMOTE)):
            raise NoError("this machine is in no clan: no remote is named here. Nothing was changed")
        written = self._workspace.db.newest_by() if self._state.get("last_sync") else {}
        own = sorted({each.name for each in self._workspace.replicas().replicas if each.name in written})
        writers = ", ".join(own) or "nobody here"
        sentences = [
            f"all that was sent stays in {shown}, branch {share.branch}, under its writers' names ({writers})",
            "leaving takes nothing back; to take something back, run `fleet retire` or `fleet purge` first",
            "every line stays here: this clan's lessons as last fetched, the logs, all of the agents' own files",
        ]
        if number := Outbox(self._workspace).waiting().count:
            sentences.append(f"{counted(number, 'line')} never went out: `fleet sync` first, if it should")
        return sentences

    def leave(self) -> list[str]:
        """Forget the remote on this machine; return sentences on what was done, and how to come back.

        Because of the sync lock nothing is sent meanwhile. After a crash it can be repeated. A ``fleet.toml`` in the
        project's git names the remote for others as well, and is left alone.
        """
        share, shown = self._workspace.config.share, self._shown_to_leave()
        with self._workspace.lock("sync"):
            self._forget_tree()  # first: where the write lock is busy, nothing is changed yet
            self._state.disagree(consent.REMOTE)
            login = _LOGIN + Address(share.remote).bare  # an earlier version kept it without the mark of this machine
            self._state.put(**{_LEFT: self._workspace.wall(), self._state.here(login): "", login: ""})
            if not share.remote:
                outcome = "this machine left; the origin around this folder is not asked any more"
            elif self._is_file_of_project():
                outcome = f"this machine left; {config.FILE_NAME} is the project's, and names the remote for others"
            else:
                file = self._workspace.config_file
                text = config.with_value(file.read_text("utf-8-sig"), "share.remote", "")
                self._workspace.files.replace(file, text.encode())
                outcome = f"this machine left; {config.FILE_NAME} names no remote any more"
        warning = "another clan joined from this folder gets all that is here: begin in a new folder if it should not"
        return [outcome, f"`fleet init --remote {quote(shown)}` comes back, and nothing counts twice", warning]

    def _shown_to_leave(self) -> str:
        """Return the clan's remote as ``shown``, also if a crash ended a leave before the file lost the remote."""
        share = self._workspace.config.share
        is_cut_short = share.remote and self._state.get(_LEFT) and not self._is_file_of_project()
        return Address(share.remote).redacted if is_cut_short else self.shown()

    def _is_file_of_project(self) -> bool:
        return bool(git.output(self._workspace.root, "ls-files", "--", config.FILE_NAME))

    def _forget_tree(self) -> None:
        """Forget the fetched tree: after a return, or in another clan, all of it is read again."""
        with self._workspace.locked():
            self._workspace.take("")
        self._state.put(last_sync="", fetched="", pulled="")
