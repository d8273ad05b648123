"""Use cases of lessons that come in, go out or go away: import, past sessions, export, backup, purge, upgrade."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from fleet.app import learning, pages, reflecting, sharing, starting, tidying
from fleet.app.finding import find, lesson_as_json
from fleet.app.writing import LOGGING
from fleet.hosts import sessions
from fleet.hosts.local import LocalFolder
from fleet.learn import counting, discoveries, importer, restore
from fleet.learn.corrections import LogResult
from fleet.learn.corrections_md import Correction, session_word
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import Findings
from fleet.learn.importer import ImportResult
from fleet.learn.purge import Purge
from fleet.learn.restore import RestoreResult
from fleet.learn.signals import Signals
from fleet.model.errors import BusyError, FleetError, NoError, RefusedError, UsageError
from fleet.model.names import normalise
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
from fleet.text import dates, mentions
from fleet.text.prompts import Session
from fleet.text.screening import counted

EXPORT_FORMAT = "fleet-export"
EXPORT_VERSION = 2
_NO_REMOTE = "no remote is named"
_PLACES_SHOWN_MAX = 40
_TRIES_MAX = 5  # conversions of the branch, each after another machine pushed meanwhile


# --- in and out -----------------------------------------------------------------------------------------------------


def preview_import(workspace: Workspace) -> ImportResult:
    """Return what an import of the project's files would bring; nothing is written."""
    return ImportResult.preview(importer.files_in(workspace, [workspace.root]))


def _report_retired(workspace: Workspace, ids: list[str]) -> None:
    """Report the lessons that stay retired, and how they come back."""
    if ids:
        were, stay = ("was", "stays") if len(ids) == 1 else ("were", "stay")
        workspace.reports.append(
            f"{counted(len(ids), 'lesson')} of these {were} imported before and retired since, and {stay} out: "
            f"`fleet restore {ids[0]}` brings one back; `fleet undo --list` names the run that retired them, and "
            "`fleet undo RUN` of that run brings back all of them"
        )


def import_files(
    workspace: Workspace, agent: str, files: list[Path], progress: Callable[[Path], object] = bool
) -> ImportResult:
    """Import the lessons in files of other tools; a second import changes nothing.

    Raises:
        DiskError: nothing was acknowledged.
    """
    with workspace.writing(agent) as writer:
        counting.reconcile(writer)
        with Runs(workspace).recording(agent, "import") as draft:
            imported = importer.import_files(writer, files, progress)
            imported.note(draft)
    _report_retired(workspace, imported.retired)
    return imported


def export(workspace: Workspace) -> dict[str, Any]:
    """Return everything that this machine has, lessons as a generator; the same lines give the same export.

    The logs are counted first, if this folder may be written to.
    """
    with suppress(FleetError):
        counting.reconcile_all(workspace)
    patterns, findings = workspace.patterns, workspace.discoveries
    retracted = findings.retracted()
    return {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "patterns": (
            {**lesson_as_json(lesson), "record": msgspec.to_builtins(patterns.line(lesson.id))}
            for lesson in patterns.records()
        ),
        "discoveries": [
            {**msgspec.to_builtins(entry), "retracted": entry.id in retracted}
            for entry in findings.all()
            if not entry.retracts
        ],
        "retractions": sorted(retracted),
        "held": workspace.db.future_ids(),
        "carried": sorted(line.raw.decode("utf-8", "backslashreplace") for line in workspace.db.carried()),
    }


# --- from past sessions -----------------------------------------------------------------------------------------------

# A proposal quotes a person or a command in one line; no lesson is worded here. Proposals are ranked: rules come before
# questions.


class _Proposals(NamedTuple):
    """Proposals of some sessions.

    Attributes:
        new: those that are not in the log yet, best first, by their number among all.
        accepted: numbers and ids of the others, so that the numbers of an earlier table keep their meaning.
        known: number of the others: they were accepted, or a hook heard them.
        retired: ids of the lessons that accepted proposals became, and that were retired since.
        troubles: a sentence for each transcript that could not be read.
        older: number of sessions from before the days that were looked at.
    """

    new: dict[int, Proposal]
    accepted: frozenset[str]
    known: int
    retired: list[str]
    sessions: int
    troubles: list[str]
    older: int


def proposals(workspace: Workspace, agent: str, paths: Sequence[Path], days: float) -> _Proposals:
    """Return the proposals of this project's sessions in the last so many days.

    ``paths`` are transcripts, or folders of them; without any, the host's transcripts of this project are read.
    """
    root = os.fspath(workspace.root)
    since_ms = workspace.world.wall_ms() - days * 86_400_000
    read: list[Session] = []
    troubles: list[str] = []
    older = 0
    for session in sessions.read_all(root, paths):
        if session.trouble:
            troubles.append(f"{Path(session.path).name} {session.trouble}")
        events = [event for event in session.events if (dates.to_ms(event.at) or 0) >= since_ms]
        older += bool(session.events and not events)
        session.events = events
        read += [session] if events else []
    ranked, is_logged = dict(enumerate([*tidying.remembered(workspace), *rules.propose(read)], 1)), _logged(workspace)
    new = {number: proposal for number, proposal in ranked.items() if not is_logged(proposal)}
    old = ranked.keys() - new.keys()
    accepted = frozenset({*map(str, old), *(ranked[number].id for number in old)})
    lessons = workspace.patterns.some([workspace.same_text(agent, ranked[number].text) for number in sorted(old)])
    retired = [each.id for each in lessons if not each.is_present]
    return _Proposals(new, accepted, len(old), retired, len(read), troubles, older)


def _logged(workspace: Workspace) -> Callable[[Proposal], bool]:
    """Return whether a proposal is in a log of any agent here: it was accepted, or its session was heard to say so."""
    homes, heard = workspace.homes(), defaultdict[str, set[str]](set)
    pages = b"".join(workspace.files.page(CountedLog(workspace, each).log_file()) for each in homes)
    for agent in homes:
        for session, words in Signals(workspace.files, agent, workspace.wall).heard().items():
            heard[session] |= words

    def is_logged(proposal: Proposal) -> bool:
        words, known = normalise(proposal.text.removesuffix("…")), heard[session_word(proposal.session)]
        is_cut = proposal.text.endswith("…")
        is_heard = words in known or (is_cut and any(each.startswith(words) for each in known))
        return is_heard or proposal.id.encode() in pages

    return is_logged


def accept(workspace: Workspace, agent: str, offer: _Proposals, choice: str) -> list[tuple[Proposal, LogResult]]:
    """Log the chosen proposals, each as a correction of its own session; none a second time.

    ``choice``: numbers or ids, separated by commas, or ``all``.

    Raises:
        UsageError: a word is no proposal; nothing was logged.
    """
    new = list(offer.new.values())
    by_name = {str(number): each for number, each in offer.new.items()} | {each.id: each for each in new}
    words = [word for part in choice.split(",") if (word := part.strip())]
    if unknown := next((word for word in words if word not in {*by_name, *offer.accepted, "all"}), ""):
        raise UsageError(
            f"{unknown[:40]!r} is no proposal; nothing was logged. Name numbers or ids of the table, or all"
        )
    named = {by_name[word].id: by_name[word] for word in words if word in by_name}
    chosen = new if "all" in words else list(named.values())
    _report_retired(workspace, offer.retired)
    if not chosen:
        return []
    with workspace.lock(LOGGING):
        is_logged = _logged(workspace)
        chosen = [each for each in chosen if not is_logged(each)]
        return list(zip(chosen, learning.correct_all(workspace, agent, map(_correction, chosen)), strict=True))


def _correction(proposal: Proposal) -> tuple[Correction, str]:
    """Return a proposal as the correction that is logged, and its session."""
    trigger = mentions.trigger("", proposal.text, step=proposal.trigger) if proposal.trigger else ""
    source = f"past session, {proposal.kind} {proposal.id}"
    # A right way would be shared, and the table shows none: what a person was not shown stays here.
    return Correction(proposal.wrong, "", proposal.text, source=source, trigger=trigger), proposal.session


# --- backup ---------------------------------------------------------------------------------------------------------


def backup(workspace: Workspace, target: Path, *, overwrite: bool = False) -> BackedUp:
    """Write a backup of what can neither be fetched nor computed again. The logs are counted first.

    Raises:
        NoError: there is a file of that name, and ``overwrite`` is False.
        DiskError: it was not written.
    """
    counting.reconcile_all(workspace)
    return archive.backup(workspace, target, overwrite=overwrite)


def prepare(root: Path, source: Path, agree: Callable[[], None]) -> None:
    """Make a workspace from a backup's ``fleet.toml`` if there is none, once ``agree`` returned.

    The backup is read to its end first: nobody is asked about one that cannot be restored.

    Raises:
        NoError: there is no ``fleet.toml``, neither here nor in the backup.
        RefusedError: it is damaged, or no backup.
    """
    members = [each.data for each in archive.members(source) if each.path == config.FILE_NAME and not each.refused]
    is_there = (root / config.FILE_NAME).exists()
    if not members and not is_there:
        raise NoError(
            f"{root} is no workspace, and {source} does not say how to make one. Run `fleet init` there first"
        )
    agree()
    if not is_there:
        root.mkdir(parents=True, exist_ok=True)
        Files(root).replace(root / config.FILE_NAME, members[0])


def restore_backup(workspace: Workspace, source: Path) -> RestoreResult:
    """Join a backup into a workspace. A second time changes nothing.

    Raises:
        RefusedError: it is damaged, no backup, or too large; nothing was changed.
    """
    before = _decisions(workspace)
    restored = restore.restore(workspace, source)
    LocalFolder(os.fspath(workspace.root)).name(*filter(None, {*restored.agents} - {*workspace.agents_here()}))
    workspace.db.refresh()
    starting.Guards(workspace).make_ready()
    for each in sorted(_decisions(workspace) - before):  # it may have been lifted after the backup was made
        workspace.warn(f"as in the backup, {each}")
    return restored


def _decisions(workspace: Workspace) -> set[str]:
    """Return what a person stopped on this machine, a sentence each with the way to lift it."""
    pause = workspace.state.paused(workspace.wall())
    return {
        *([f"sharing is paused {pause}; `fleet resume` ends that"] if pause else []),
        *(f"{each.name} is blocked: `fleet unblock {each.name}` ends that" for each in workspace.trust.blocked()),
        *workspace.trust.sentences(),
        *(
            f"{each.id} guards its step: `fleet guard {each.id} off` ends that"
            for each in starting.Guards(workspace).all()
        ),
    }


# --- purge ----------------------------------------------------------------------------------------------------------


class _PurgeResult(NamedTuple):
    """Result of a purge: why the remote's newest tree still has the words, or ""; and the places here that have them.

    ``others``: ids of the lessons that others merged with it, whose own words stay.
    """

    id: str
    why_not: str
    remains: list[tuple[str, int]]
    others: list[str]

    @property
    def is_refused(self) -> bool:
        """True where there is a remote, and its newest tree still has it."""
        return self.why_not not in ("", _NO_REMOTE)

    def advice(self, workspace: Workspace) -> list[str]:
        """Return what a person has to do now, the most urgent first (``data/purge.txt``)."""
        text = Path(__file__).with_name("data").joinpath("purge.txt").read_text("utf-8").removesuffix("\n")
        rotate, immutable, unshared, shared, remaining, nowhere, rewriting = text.split("\n---\n")
        places = [f"     {path}{f', line {line}' if line else ''}" for path, line in self.remains[:_PLACES_SHOWN_MAX]]
        if len(self.remains) > _PLACES_SHOWN_MAX:
            places.append(f"     and {len(self.remains) - _PLACES_SHOWN_MAX} more: --json lists all")
        share = workspace.config.share
        branch, remote = quote(share.branch), quote(Address(share.remote).redacted)
        return [
            rotate,
            *([immutable] if self.id.startswith("d-") else []),
            unshared.format(why_not=self.why_not) if self.why_not else shared,
            *([remaining, *places] if places else [nowhere]),
            *([rewriting.format(branch=branch, remote=remote)] if share.remote else []),
        ]


def purge(
    workspace: Workspace, agent: str, prefix: str, agree: Callable[[str], object] = bool, *, yes: bool
) -> _PurgeResult:
    """Purge a lesson, with all that was merged with it here, or retract a discovery, here and at the remote.

    ``agree`` is called with the id before anything is changed; ``yes`` confirms a remote that was guessed.

    Raises:
        NoError: there is no such id.
        DiskError: nothing was acknowledged.
    """
    found = discoveries.find(workspace, prefix) if prefix.startswith("d-") else find(workspace, prefix, is_worded=False)
    agree(found.id)
    with suppress(FleetError):  # reported below, as the reason why the remote still has it
        # The marks of a purge cover only values known here, and others may have reworded the lesson.
        sharing.fetch_if_agreed(workspace, agent)
    purged, others, texts = _purge_here(workspace, agent, found.id)
    texts += Purge(workspace).logged(purged)
    for id_ in purged:
        reflecting.forget(workspace, id_)
    with workspace.locked():
        Purge(workspace).scrub(texts)
        Runs(workspace).forget(texts, purged)
        workspace.files.replace(workspace.clan / PAGE, pages.rendered_page(workspace))
    for name in workspace.agents_here():
        starting.SessionStart(workspace, name).make()  # the cached start has the old words
    why_not = _compact_remote(workspace, agent, yes=yes)
    if not why_not:
        # Until now the fetched tree had the words, and so had the rows that are derived from it.
        workspace.tree.forget_history()
        with workspace.locked():
            Purge(workspace).scrub(texts)
    return _PurgeResult(purged[0], why_not, Purge(workspace).remains(purged, texts), others)


def _purge_here(workspace: Workspace, agent: str, prefix: str) -> tuple[list[str], list[str], list[str]]:
    """Purge on this machine; return the purged ids, those that others merged with them, and the purged texts."""
    with workspace.locked():  # the databases will be deleted: lines that only rows have go to a file first
        workspace.take(workspace.tree.head())
    if prefix.startswith("d-"):
        entry = discoveries.find(workspace, prefix)
        if entry.id not in workspace.discoveries.retracted():
            Findings(workspace, agent).retract(entry.id)
        with workspace.locked():
            Purge(workspace).forget_unsent(entry.id)
        return [entry.id], [], [entry.context, entry.problem, entry.solution, *entry.tags]
    # The logs are counted first: marks cover only values in the record.
    counting.reconcile_all(workspace)
    lesson = find(workspace, prefix, is_worded=False)
    with workspace.writing(agent) as writer:
        # A merge may repeat the words of one record in another. In records that others merged, only these words go.
        ids, others = Purge(workspace).merged_here(lesson.id)
        texts = [text for id_ in ids for text in Purge(workspace).lesson(writer, id_)]
        Purge(workspace).repetitions(writer, others, texts)
        return ids, others, texts


def _compact_remote(workspace: Workspace, agent: str, *, yes: bool) -> str:
    """Compact the remote, so that its newest tree has nothing that marks cover; return why that failed, else ""."""
    if pause := workspace.state.paused(workspace.wall()):  # a sync would note that a person agrees to the remote
        return f"sharing is paused {pause}"
    try:
        return "" if sharing.sync(workspace, agent, yes=yes, compact=True).remote else _NO_REMOTE
    except FleetError as why:
        return str(why)


# --- upgrade --------------------------------------------------------------------------------------------------------


def upgrade(workspace: Workspace, *, yes: bool = False) -> tuple[list[str], int]:
    """Convert a workspace of fleet 0.1, and the clan's branch if it can be reached.

    Return a sentence for each step, and the exit code: 0 unless the branch was not converted.

    Raises:
        FleetError: a file could not be written or sent. Files that are not converted yet are unchanged: run it again.
    """
    with workspace.lock("sync"):
        with workspace.locked():
            if (steps := converting.upgrade(workspace)) is not None:
                # The old page may show lessons that are private now.
                workspace.files.replace(workspace.clan / PAGE, pages.rendered_page(workspace))
                converting.finish(workspace, steps)
        done = ["the files here have this version's format already"] if steps is None else steps
        said, code = _upgrade_branch(workspace, yes=yes)
        return [*done, said], code


def _upgrade_branch(workspace: Workspace, *, yes: bool) -> tuple[str, int]:
    if pause := workspace.state.paused(workspace.wall()):
        why_not = f"sharing is paused {pause}; `fleet resume` ends that, then run it again"
        return f"the clan's branch was not converted: {why_not}", NoError.exit_code
    try:
        remote = sharing.Membership(workspace).remote(yes=yes)
        if remote is None:
            return "no remote is named: there is no branch to convert", 0
        for _ in range(_TRIES_MAX):
            mark = remote.fetch("")
            files = workspace.tree.paths(mark)
            changed = converting.converted_tree({path: workspace.tree.read(blob.oid) for path, blob in files.items()})
            if not changed:
                return "the clan's branch has this version's format already, or nothing is there yet", 0
            if not isinstance(remote.push(changed, mark, message="fleet: lines converted to format 2"), Moved):
                return "the clan's branch was converted. Upgrade fleet on every other machine of the clan", 0
        raise BusyError("others were faster each time")
    except sharing.ConsentNeededError as needed:
        agrees = "nobody on this machine has agreed to it: `fleet upgrade --yes` does, and converts it"
        why_not = f"{needed.shown} is {needed.origin}, and {agrees}"
        return f"the clan's branch was not converted: {why_not}", RefusedError.exit_code
    except RefusedError as newer:
        return f"the clan's branch stays as it is: {newer}. Install the newest fleet here", newer.exit_code
    except FleetError as why:
        again = "Run `fleet upgrade` again when it can be reached"
        return f"the clan's branch was not converted ({why}). {again}", why.exit_code
