"""Use cases of lessons that come in, go out or go away: import, past sessions, export, backup, purge, upgrade."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fleet.app import learning, pages, reflecting, sharing, starting, tidying
from fleet.app.finding import find, lesson_as_json
from fleet.hosts import sessions
from fleet.learn import counting, discoveries, importer, restore
from fleet.learn.corrections import Correction, Logged
from fleet.learn.discoveries import Findings
from fleet.learn.importer import Imported
from fleet.learn.purge import Purge
from fleet.learn.restore import Restored
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.reflect import rules
from fleet.reflect.rules import Proposal
from fleet.share.git import Address
from fleet.share.remote import Moved
from fleet.store import backup as archive
from fleet.store import config
from fleet.store import upgrade as converting
from fleet.store.backup import BackedUp
from fleet.store.files import Files
from fleet.store.runs import Runs
from fleet.store.tree import PAGE
from fleet.store.workspace import Workspace
from fleet.text import dates
from fleet.text.prompts import Session

EXPORT_FORMAT = "fleet-export"
EXPORT_VERSION = 2
NO_REMOTE = "no remote is named"
_PLACES_SHOWN_MAX = 40
_TRIES_MAX = 5  # so often the branch is converted anew, where somebody pushed meanwhile


# --- in and out -----------------------------------------------------------------------------------------------------


def preview_import(workspace: Workspace) -> Imported:
    """Return what the files of the project would bring that hold lessons; nothing is written."""
    return importer.Imported.preview(importer.files_in(workspace, [workspace.root]))


def import_files(
    workspace: Workspace, agent: str, files: list[Path], progress: Callable[[Path], object] = bool
) -> Imported:
    """Take in what other tools wrote; doing it twice changes nothing.

    Raises:
        DiskError: nothing of it was acknowledged.
    """
    with workspace.writing(agent) as writer:
        counting.reconcile(writer)
        with Runs(workspace).recording(agent, "import") as draft:
            done = importer.import_files(writer, files, progress)
            done.note(draft)
    return done


def export(workspace: Workspace) -> dict[str, Any]:
    """Return everything that this machine knows, the same for the same lines; lessons one after another.

    What the logs owe is counted first, where anything may be written.
    """
    with suppress(FleetError):
        counting.reconcile_all(workspace)
    patterns, found = workspace.patterns, workspace.discoveries
    retracted = found.retracted()
    return {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "patterns": (
            {**lesson_as_json(each), "record": msgspec.to_builtins(patterns.line(each.id))}
            for each in patterns.records()
        ),
        "discoveries": [
            {**msgspec.to_builtins(entry), "retracted": entry.id in retracted}
            for entry in found.all()
            if not entry.retracts
        ],
        "retractions": sorted(retracted),
        "held": workspace.db.future_ids(),
        "carried": sorted(each.raw.decode("utf-8", "backslashreplace") for each in workspace.db.carried()),
    }


# --- from past sessions -----------------------------------------------------------------------------------------------

# A proposal is what somebody said, or what a command said, in one line; nothing here words a lesson anew. They are
# ranked: what lays down how something is done comes before what only asks.


class _Proposals(NamedTuple):
    """Proposals of some sessions.

    Attributes:
        found: those that were not accepted yet, best first, by the number that each has among all.
        accepted: numbers and ids of the others: who accepts by a table of before means no other proposal.
        troubles: what could not be read.
    """

    found: dict[int, Proposal]
    accepted: frozenset[str]
    sessions: int
    troubles: list[str]


def proposals(workspace: Workspace, agent: str, paths: Sequence[Path], days: float) -> _Proposals:
    """Return what past sessions of this project propose, so many days back.

    Read are the transcripts that are named, or in folders of them; without any those that the host keeps of it.
    """
    root = os.fspath(workspace.root)
    since_ms = workspace.world.wall_ms() - days * 86_400_000
    read: list[Session] = []
    troubles: list[str] = []
    for session in sessions.found(root, paths):
        if session.trouble:
            troubles.append(f"{Path(session.path).name} {session.trouble}")
        session.events = [each for each in session.events if (dates.to_ms(each.at) or 0) >= since_ms]
        read += [session] if session.events else []
    logged = workspace.files.read(workspace.home(agent) / "corrections.md")
    kept = tidying.remembered(workspace)
    ranked = dict(enumerate([*(kept if workspace.config.hook.auto_memory else ()), *rules.propose(read)], 1))
    found = {at: each for at, each in ranked.items() if each.id.encode() not in logged}
    accepted = {name for at, each in ranked.items() if at not in found for name in (str(at), each.id)}
    return _Proposals(found, frozenset(accepted), len(read), troubles)


def accept(workspace: Workspace, agent: str, offer: _Proposals, wanted: str) -> list[tuple[Proposal, Logged]]:
    """Log the proposals that are named, each as a correction of its own session; none a second time.

    ``wanted``: numbers or ids, with commas between, or all.

    Raises:
        UsageError: a word names none; nothing was logged.
    """
    found = list(offer.found.values())
    by_name = {str(number): each for number, each in offer.found.items()} | {each.id: each for each in found}
    words = [word for part in wanted.split(",") if (word := part.strip())]
    if unknown := next((word for word in words if word not in {*by_name, *offer.accepted, "all"}), ""):
        raise UsageError(
            f"{unknown[:40]!r} is no proposal; nothing was logged. Name numbers or ids of the table, or all"
        )
    named = {by_name[word].id: by_name[word] for word in words if word in by_name}
    chosen = found if "all" in words else list(named.values())
    told = [(Correction(e.wrong, e.text, e.text, source=f"past session, {e.kind} {e.id}"), e.session) for e in chosen]
    return list(zip(chosen, learning.correct_all(workspace, agent, told), strict=True))


# --- backup ---------------------------------------------------------------------------------------------------------


def backup(workspace: Workspace, target: Path, *, overwrite: bool = False) -> BackedUp:
    """Write a backup of all that can neither be fetched nor computed again. The logs are counted first.

    Raises:
        NoError: there is a file of that name, and it is not to be overwritten.
        DiskError: it was not written.
    """
    counting.reconcile_all(workspace)
    return archive.backup(workspace, target, overwrite=overwrite)


def prepare(root: Path, source: Path, agree: Callable[[], None]) -> None:
    """Make a workspace where there is none, as the backup says, once ``agree`` has asked a person and did not raise.

    The backup is read to its end before: nobody is asked about one that cannot be restored.

    Raises:
        NoError: it does not say.
        RefusedError: it is damaged, or no backup.
    """
    found = [each.data for each in archive.members(source) if each.path == config.FILE_NAME and not each.refused]
    is_there = (root / config.FILE_NAME).exists()
    if not found and not is_there:
        raise NoError(
            f"{root} is no workspace, and {source} does not say how to make one. Run `fleet init` there first"
        )
    agree()
    if not is_there:
        root.mkdir(parents=True, exist_ok=True)
        Files(root).replace(root / config.FILE_NAME, found[0])


def restore_backup(workspace: Workspace, source: Path) -> Restored:
    """Join a backup into a workspace. Doing it twice changes nothing.

    Raises:
        RefusedError: it is damaged, no backup, or larger than any; nothing was changed.
    """
    done = restore.restore(workspace, source)
    workspace.db.refresh()
    starting.Guards(workspace).make_ready()
    return done


# --- purge ----------------------------------------------------------------------------------------------------------


class _Purged(NamedTuple):
    """Account of a purge.

    Attributes:
        id: of the lesson or discovery.
        why_not: why the remote's newest tree still has it; "" where it has not.
        remains: where the texts still stand here.
    """

    id: str
    why_not: str
    remains: list[tuple[str, int]]

    def advice(self, workspace: Workspace) -> list[str]:
        """Return what a person has to do now, most urgent first (``data/purge.txt``)."""
        text = Path(__file__).with_name("data").joinpath("purge.txt").read_text("utf-8").removesuffix("\n")
        rotate, immutable, unshared, shared, stands, nowhere, rewriting = text.split("\n---\n")
        places = [f"     {path}{f', line {line}' if line else ''}" for path, line in self.remains[:_PLACES_SHOWN_MAX]]
        if len(self.remains) > _PLACES_SHOWN_MAX:
            places.append(f"     and {len(self.remains) - _PLACES_SHOWN_MAX} more: --json lists all")
        share = workspace.config.share
        return [
            rotate,
            *([immutable] if self.id.startswith("d-") else []),
            unshared.format(why_not=self.why_not) if self.why_not else shared,
            *([stands, *places] if places else [nowhere]),
            *([rewriting.format(branch=share.branch, remote=Address(share.remote).redacted)] if share.remote else []),
        ]


def id_to_purge(workspace: Workspace, wanted: str) -> str:
    """Return the id of the lesson or discovery that the beginning of one names.

    Raises:
        NoError: of none, or of several.
    """
    return discoveries.find(workspace, wanted).id if wanted.startswith("d-") else find(workspace, wanted).id


def purge(workspace: Workspace, agent: str, wanted: str, *, yes: bool) -> _Purged:
    """Overwrite a lesson, with all records that it is merged with, or take a discovery back; and tell the remote.

    Raises:
        NoError: there is no such id.
        DiskError: nothing was acknowledged.
    """
    with suppress(FleetError):  # what the remote cannot be asked for is told below
        sharing.fetch(workspace, agent)  # marks name only what is known here, and others may have worded it since
    purged, texts = _purge_here(workspace, agent, wanted)
    for each in purged:
        reflecting.forget(workspace, each)
    with workspace.locked():
        Purge(workspace).scrub(texts)
        Runs(workspace).forget(texts)
        workspace.files.replace(workspace.clan / PAGE, pages.rendered_page(workspace))
    for named in workspace.agents_here():
        starting.SessionStart(workspace, named).make()  # what lay ready held the old words
    why_not = _compact_remote(workspace, agent, yes=yes)
    if not why_not:
        # Until now the tree that was fetched had the words, and so had the rows beside it.
        workspace.tree.forget_history()
        with workspace.locked():
            Purge(workspace).scrub(texts)
    return _Purged(purged[0], why_not, Purge(workspace).remains(purged, texts))


def _purge_here(workspace: Workspace, agent: str, wanted: str) -> tuple[list[str], list[str]]:
    with workspace.locked():  # the databases will be deleted: what rows alone know stands in a file before
        workspace.take(workspace.tree.head())
    if wanted.startswith("d-"):
        entry = discoveries.find(workspace, wanted)
        if entry.id not in workspace.discoveries.retracted():
            Findings(workspace, agent).retract(entry.id)
        with workspace.locked():
            Purge(workspace).forget_unsent(entry.id)
        return [entry.id], [entry.context, entry.problem, entry.solution, *entry.tags]
    # What the logs owe goes first: the marks name every value that is known here.
    counting.reconcile_all(workspace)
    known = find(workspace, wanted)
    with workspace.writing(agent) as writer:
        # A merge tells the words of one record in another: both are the lesson.
        ids = [known.id, *(each for each in workspace.patterns.group(known.id) if each != known.id)]
        return ids, [text for each in ids for text in Purge(workspace).lesson(writer, each)]


def _compact_remote(workspace: Workspace, agent: str, *, yes: bool) -> str:
    """Compact: the remote's newest tree then has the redaction, and nothing that marks cover. Return why it has not."""
    if held := workspace.state.paused(workspace.wall()):
        return f"sharing is paused {held}"
    try:
        return "" if sharing.sync(workspace, agent, yes=yes, compact=True).remote else NO_REMOTE
    except FleetError as why:
        return str(why)


# --- upgrade --------------------------------------------------------------------------------------------------------


def upgrade(workspace: Workspace, *, yes: bool = False) -> list[str]:
    """Convert what fleet 0.1 left here, and the clan's branch where it is reached; return what was done.

    Raises:
        FleetError: something could not be written or sent. What was not converted yet is as it was: run it again.
    """
    done: list[str] = []
    with workspace.files.lock(workspace.local / "locks" / "sync.lock"), workspace.locked():
        if (found := converting.upgrade(workspace)) is not None:
            done += found
            # The old page may show what is private by now.
            workspace.files.replace(workspace.clan / PAGE, pages.rendered_page(workspace))
            converting.finish(workspace, done)
        else:
            done.append("the files here have this version's format already")
        done += _upgrade_branch(workspace, yes=yes)
    return done


def _upgrade_branch(workspace: Workspace, *, yes: bool) -> list[str]:
    """Convert the clan's branch, once: whoever comes second finds it done."""
    try:
        remote = sharing.Membership(workspace).remote(yes=yes)
        if remote is None:
            return ["no remote is named: there is no branch to convert"]
        for _ in range(_TRIES_MAX):
            mark = remote.fetch("")
            files = workspace.tree.paths(mark)
            news = converting.converted_tree({path: workspace.tree.read(blob.oid) for path, blob in files.items()})
            if not news:
                return ["the clan's branch has this version's format already, or nothing is there yet"]
            if not isinstance(remote.push(news, mark, message="fleet: lines converted to format 2"), Moved):
                return ["the clan's branch was converted. Upgrade fleet on every other machine of the clan"]
    except FleetError as why:
        return [f"the clan's branch was not converted ({why}). Run `fleet upgrade` again when it can be reached"]
    return ["the clan's branch was not converted: others were faster each time. Run `fleet upgrade` again"]
